"""What the tasks of the appendix Across machines share; most of it is GatherRows's. The first dimension is the rank."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from graders.inside.records import Case, Record
from graders.judge import aspects
from graders.judge import looks as look
from graders.judge.looks import Finding
from graders.judge.task import DOUBLE

INF, NAN = float("inf"), float("nan")
CONSTANT_UPSTREAM = (
    "You look whether the upstream gradient requires a gradient, and else compute without a graph (no_grad, or "
    "detach). Your gradient depends on the logits too: where the upstream gradient is a constant, as in "
    "torch.autograd.functional.hessian, your Hessian is 0."
)


def lets_go(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find that x is kept for backward."""
    if not yours.kept_arguments:
        return None
    text = "x is kept for backward, all of it. Backward needs shapes and sizes, and no number of x."
    told = {"case": look.describe(call, case), "yours": "x kept", "expected": "only the output kept"}
    return Finding("keeps", text, told)


def handed_on(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find a nan in a row that comes out as a number; `look.value` lets whatever comes for nan pass."""
    lost = expected.outputs[0].isnan() & ~yours.outputs[0].isnan()
    if not lost.any():
        return None
    index = tuple(lost.nonzero()[0].tolist())
    text = f"A row's nan isn't in the output, at index {index}. Forward copies rows as they are, nan and inf too."
    told = {"yours": look.number(yours.outputs[0][index]), "expected": "nan"}
    return Finding("value", text, {"case": look.describe(call, case), **told})


def own_copies(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find an output of which no tensor was ever as large: one memory, seen several times."""
    if "trace" not in case.watch or not yours.outputs or not yours.largest:
        return None
    if yours.largest[0] >= yours.outputs[0].numel():
        return None
    text = "The copies of the ranks are one memory (expand): whoever writes into one writes into all."
    return Finding("largest", text, {"case": look.describe(call, case)})


def padding(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find a gradient that is right in the rows of all ranks, and below them is not 0."""
    found = look.gradient(call, case, yours, expected)
    mine, right = (r.grads[0] if r.grads else None for r in (yours, expected))
    if found is None or mine is None or right is None or mine.shape != right.shape or mine.dtype != right.dtype:
        return None
    there = torch.arange(right.shape[1]) < torch.tensor(case.args[1])[:, None]
    if look.wrong_at(mine[there], right[there]) is not None or (mine.isnan() != right.isnan())[there].any():
        return None
    text = (
        "Below a rank's rows your gradient isn't 0. What stands there is padding, whatever the upstream gradient is: "
        "begin with zeros (g.new_zeros) and write the rows alone, or choose by torch.where."
    )
    return replace(found, message=text)


GRADIENT = (*aspects.GRADIENT[:-1], padding, aspects.GRADIENT[-1])
second_order = partial(aspects.second_order, looks=(*GRADIENT, look.second_order))
contract = partial(
    aspects.contract,
    why="This check is about memory, but looks at the numbers first: a gradient that is wrong elsewhere is wrong here too.",
)
MANNERS = (  # what is changed in place comes before the numbers that it spoils
    *GRADIENT[:4],
    look.untouched,
    *GRADIENT[4:],
    look.stateless,
    look.guarded,
    look.keeps_nothing,
)


def named(dtype: torch.dtype) -> str:
    """Return a dtype's name without torch's."""
    return str(dtype).removeprefix("torch.")


def tensor(*rows: object, dtype: torch.dtype = DOUBLE) -> Tensor:
    """Return the tensor of these rows."""
    return torch.tensor(rows, dtype=dtype)
