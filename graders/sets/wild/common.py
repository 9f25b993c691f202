"""What the tasks of the appendix In the wild share."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from graders.inside.records import Case, Record
from graders.judge import aspects
from graders.judge import looks as look
from graders.judge.looks import Finding
from graders.judge.task import BRAIN, DOUBLE, Draw

GRADIENT = aspects.GRADIENT
BOTH = (*aspects.VALUE, *GRADIENT[4:])
CONSTANT_UPSTREAM = (
    "You look whether the upstream gradient requires a gradient, and else compute without a graph (no_grad, or "
    "detach). Your gradient depends on x too: where the upstream gradient is a constant, as in "
    "torch.autograd.functional.hessian, your Hessian is 0."
)
STRIDES = (
    "You read the upstream gradient as if its rows lay one behind the other in memory. Behind a cat, a transposed or an "
    "expanded tensor they don't: use its own strides (indexing, unsqueeze), or call contiguous() first."
)


FROM_START = (
    "You read the upstream gradient from the start of its memory (as_strided with an offset of 0). That of a part of a "
    "larger tensor starts elsewhere, and in a second derivative torch takes it for another tensor: use it by indexing or "
    "unsqueeze."
)
EXPANDED = (
    "Where the upstream gradient has a stride of 0 you take its first number, or row, for all. It may be expanded along "
    "one axis alone: use it as it is, torch reads it by its strides."
)
MADE_OF_X = (
    "Your first derivative is right and your second is wrong: what you save is made of x in forward (contiguous, reshape, "
    "unsqueeze, another dtype), so no graph leads from it to x. Save x itself, and make the rest in backward."
)
LEFT_BEHIND = (
    "Your first backward keeps what it made on ctx, for the next. An ordinary backward makes no graph, so a second "
    "derivative after it takes that for a constant, and it's memory beside x and the output. Make it again each time."
)
ONE_BY_ONE = (
    "You add up the squares one by one in the dtype of x. In a long bfloat16 row the sum soon stands still: what comes is "
    "smaller than its last digit. Sum by sum(-1), which adds in float32, or make the row float32 first."
)
FORWARD_MODE = "Your backward lets torch differentiate, by torch.autograd.forward_ad. The task is to write the gradient, from tensors."


def long_row() -> Tensor:
    """Return a bfloat16 row of one large number and many of size 1, whose squares count only together."""
    return torch.cat([torch.tensor([30.0]), torch.ones(1900)])[None].to(BRAIN)


def not_nan(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find a second derivative that is nan."""
    names = [*look.parameters(call)[:1], "the upstream gradient"]
    for name, a in zip(names, yours.second or (), strict=False):
        if a is not None and a.isnan().any():
            index = tuple(a.isnan().nonzero()[0].tolist())
            text = (
                f"The second derivative with respect to {name} is nan at index {index}: a division "
                "by 0, or the root of 0, is in the graph of your gradient, and a mask behind it multiplies its infinite "
                "slope by 0."
            )
            return Finding("second order", text, {"case": look.describe(call, case)})
    return None


def held_still(case: Case) -> Case:
    """Return the case of order 2 with directions of 0 in rows of zeros: there is no second derivative, but any times 0 is 0."""
    x = case.args[0]
    if not isinstance(x, Tensor) or case.directions is None:
        return case
    still = (x == 0).all(-1, keepdim=True).expand_as(x)
    return replace(case, directions=(case.directions[0].masked_fill(still, 0),))


second_order = partial(aspects.second_order, looks=(*GRADIENT, look.second_order))
contract = partial(
    aspects.contract,
    about="the caller's tensors stay untouched; x and the output are all that is kept, and saved",
    why="Memory is looked at here, and these numbers first: a gradient that is wrong elsewhere is wrong here too.",
    # what is changed in place comes before the numbers that it spoils
    looks=(
        *GRADIENT[:4],
        look.untouched,
        *GRADIENT[4:],
        look.stateless,
        look.guarded,
        look.keeps_at_most(0),
        look.allowed,
    ),
)


def named(dtype: torch.dtype) -> str:
    """Return a dtype's name without torch's."""
    return str(dtype).removeprefix("torch.")


def away(d: Draw) -> Callable[..., Tensor]:
    """Return what draws numbers of both signs from 0.5 to 2, of a shape."""
    return lambda *shape, dtype=DOUBLE: d.sides(*shape, away=0.5, reach=2.0, dtype=dtype)


def matrix(*rows: list[float], dtype: torch.dtype = DOUBLE) -> Tensor:
    """Return the tensor of these rows."""
    return torch.tensor(rows, dtype=dtype)


def apart(d: Draw, *shape: int) -> Tensor:
    """Return a tensor whose numbers lie apart in memory, as a part of a larger one's rows."""
    return d.normal(*shape[:-1], 2 * shape[-1] + 1)[..., 1::2]
