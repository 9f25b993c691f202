"""What the tasks of the set share."""

import torch

from graders.judge import aspects
from graders.judge import looks as look
from graders.judge.task import DOUBLE, SINGLE

DTYPES = (SINGLE, DOUBLE)  # a loop that settles, or a sum that decides who is in, needs more digits than halves have
VALUE, GRADIENT = aspects.VALUE, aspects.GRADIENT
SECOND = (*GRADIENT, look.second_order)
CONTRACT = (*GRADIENT[:4], look.untouched, *GRADIENT[4:], look.stateless, look.guarded, look.allowed)
KEEPS = (*GRADIENT, look.keeps_nothing)
NO_FUNCTION = (
    "The gradient of your output is torch's: it goes back through what found the solution. Find it inside forward, "
    "where no graph is recorded, and write backward for the solution alone."
)
AUTOGRAD = (
    "Your backward lets torch.autograd differentiate what found the solution. The equation gives the derivative in one "
    "line, at the solution: write that."
)
CONSTANT_UPSTREAM = (
    "You look whether the upstream gradient requires a gradient, and else compute without a graph (no_grad, or detach). "
    "The gradient depends on the inputs too: with a constant upstream gradient your second derivative is 0."
)


def named(dtype: torch.dtype) -> str:
    """Return a dtype's name without torch's."""
    return str(dtype).removeprefix("torch.")
