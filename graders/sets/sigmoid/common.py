"""What the tasks of set 02 share."""

from torch import Tensor

from graders.judge import looks as look
from graders.judge.aspects import GRADIENT
from graders.judge.task import DOUBLE, Draw

SECOND = (*GRADIENT, look.second_order)


def wide_inputs(draw: Draw):
    """Return numbers of both signs up to 4."""
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, reach=4.0, dtype=dtype)


def sizes(draw: Draw, top: float, *shape: int) -> Tensor:
    """Return numbers of both signs and of every size from 0.001 to 10 ** top."""
    return draw.sides(*shape, away=1, reach=1) * 10 ** draw.between(-3, top, *shape)
