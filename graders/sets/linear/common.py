"""What the tasks of set 06 share."""

from functools import partial

import torch
from torch import Tensor

from graders.inside.records import Case
from graders.judge import aspects
from graders.judge import looks as look
from graders.judge.task import DOUBLE, Draw

DENIED = (  # torch's own backwards; those of a convolution are a linear layer's as well
    "aten::sigmoid_backward",
    "aten::silu_backward",
    "aten::glu_backward",
    "aten::convolution_backward",
)
SHAPES = (  # that broadcast
    ((2, 3), (2, 3)),
    ((3, 1), (4,)),
    ((3,), (2, 2, 3)),
    ((2, 3, 3), (1, 1, 3)),
    ((2, 1, 3), (2, 1)),
    ((), (3,)),
    ((), ()),
    ((0, 1), (4,)),
)
PAIRS = (  # of x and beta
    ((2, 3), ()),
    ((2, 3), (3,)),
    ((3, 3), (3, 1)),
    ((2, 3), (2, 3)),
    ((2, 2, 3), (2, 1)),
    ((), ()),
    ((0, 3), (1, 3)),
)
NOTHING_FOR_BOTH = (
    "Your backward returns None for both (is a return statement missing?): nothing gets a gradient at all."
)
AXES_MOVE = (
    "You sum the axes of size 1 one after another. After the first sum the remaining axes have moved up by one, so "
    "the second sum takes the wrong axis: sum over all of them in one call, or with keepdim=True."
)
SAVES_DATA = (
    "You save x.data, whose changes torch does not count: when x is changed in place before backward, the gradient is "
    "silently wrong, and the second derivative is missing. Save the tensor itself: that makes no graph."
)
RENAMED = (
    "Your forward's parameters are not called {}, so a caller who names them gets a TypeError. Use the names of the "
    "task's text."
)
SECOND_OVERFLOWS = (
    "Your first derivatives are finite and your second are nan far from 0: exp overflows in a formula of your backward "
    "(1 / (2 + exp(z) + exp(-z)), or the branch that torch.where does not choose), and differentiating that takes "
    "0 * inf. Use s (1 - s) with s = torch.sigmoid(z)."
)
SIGMOID_BY_ABS = (
    "Your sigmoid is right, and its derivative at 0 is not: in backward you write it with z.abs(), and torch "
    "takes 0 for the slope of abs at 0, so a second derivative loses a part there. Use torch.sigmoid."
)

second_order = partial(
    aspects.second_order,
    why="A Hessian or a gradient penalty differentiates your backward.",
    looks=(*aspects.GRADIENT, look.second_order),
)
contract = partial(
    aspects.contract,
    about="the caller's tensors stay untouched; those that backward needs are saved",
    # what is changed in place comes before the numbers that it spoils
    looks=(*aspects.GRADIENT[:4], look.untouched, *aspects.GRADIENT[4:], look.stateless, look.guarded, look.allowed),
)


def lopsided(d: Draw, *args: Tensor, order: int, large: float = 30.0) -> list[Case]:
    """Return cases in which one tensor after the other is no even mixture (`Draw.lopsided`); those of one shape each."""
    cases = []
    for place, tensor in enumerate(args):
        cases += d.lopsided(
            lambda x, place=place: (*args[:place], x, *args[place + 1 :]),
            *tensor.shape,
            order=order,  # type: ignore[misc]
        )
    return cases


def named(dtype: torch.dtype) -> str:
    """Return a dtype's name without torch's."""
    return str(dtype).removeprefix("torch.")


def factors(d: Draw, one: tuple, two: tuple, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor]:
    """Return a and b of these shapes."""
    return d.sides(*one, away=0.3, reach=1.8, dtype=dtype), d.between(0.3, 1.8, *two, dtype=dtype)


def gated(d: Draw, one: tuple, two: tuple, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor]:
    """Return x and beta of these shapes."""
    return d.sides(*one, away=0.3, reach=2, dtype=dtype), d.between(0.5, 1.5, *two, dtype=dtype)


def away_from_0(d: Draw, *shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
    """Return numbers of both signs."""
    return d.sides(*shape, away=0.3, reach=2, dtype=dtype)


def added_and_stretched(g: Tensor, shape: torch.Size) -> Tensor:
    """Return g summed to this shape over all axes at once."""
    added = g.ndim - len(shape)
    axes = [*range(added), *(i + added for i, n in enumerate(shape) if n == 1)]
    return g.sum(axes, keepdim=True).reshape(shape) if axes else g


def axis_by_axis(part: Tensor, mine: Tensor) -> Tensor:
    """Sum wrongly to the shape of mine: each sum moves the axes behind it."""
    while part.ndim > mine.ndim:
        part = part.sum(0)
    for axis, size in enumerate(mine.shape):
        if size == 1:
            part = part.sum(axis)
    return part.reshape(mine.shape)


def by_abs(z: Tensor) -> Tensor:
    """Return a sigmoid without overflow, by two formulas that meet at 0, where its slope is wrong."""
    e = torch.exp(-z.abs())
    return torch.where(z >= 0, 1 / (1 + e), e / (1 + e))
