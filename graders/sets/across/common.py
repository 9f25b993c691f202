"""What the tasks of the appendix Across machines share. In both the first dimension is the rank."""

from functools import partial

import torch
from torch import Tensor

from graders.inside.records import Case, Record
from graders.judge import aspects
from graders.judge import looks as look
from graders.judge.looks import Finding
from graders.judge.task import DOUBLE

GRADIENT = aspects.GRADIENT
BOTH = (*aspects.VALUE, *GRADIENT[4:])
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


def own_copies(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find an output of which no tensor was ever as large: one memory, seen several times."""
    if "trace" not in case.watch or not yours.outputs or not yours.largest:
        return None
    if yours.largest[0] >= yours.outputs[0].numel():
        return None
    text = "The copies of the ranks are one memory (expand): whoever writes into one writes into all."
    return Finding("largest", text, {"case": look.describe(call, case)})


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
