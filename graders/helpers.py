"""Functions that a case may name as an argument (`graders.records.Helper`). They run beside the student's code.

No answer may stand here: a submission can read this module.
"""

from collections import Counter
from functools import cache

import torch
from numpy.polynomial.legendre import leg2poly
from torch import Tensor

TALLY: Counter[str] = Counter()  # what the helpers count while an operation runs; a record takes it over


# --- what an hvp is asked of: functions of one tensor of any shape, with a 0-d result ---------------------------------


class Counted(torch.autograd.Function):
    """The same numbers; counts the backward passes. Of the older form, with NumPy: for no torch.func or vmap."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        TALLY["backward_passes"] += 1
        g.detach().numpy()
        return Counted.apply(g)


def _parameter(like: Tensor, value: float) -> Tensor:
    """A 0-d tensor that requires a gradient; who writes into its ``.grad`` is counted."""

    def count(_: Tensor) -> None:
        TALLY["gradients_accumulated"] += 1

    parameter = torch.tensor(value, dtype=like.dtype, requires_grad=True)
    parameter.register_post_accumulate_grad_hook(count)
    return parameter


def coupled(x: Tensor) -> Tensor:
    """Each element multiplies each other one."""
    return (x**4).sum() / 12 + x.sum() ** 3 / 6


def separate(x: Tensor) -> Tensor:
    """Each element by itself: the Hessian is diagonal."""
    return (x**4).sum() / 12


def first_row(x: Tensor) -> Tensor:
    """Rows are not alike."""
    return (x[0] ** 3).sum() + x.sum() ** 3


def projected(x: Tensor) -> Tensor:
    """Holds a matrix of float32, for vectors of three elements."""
    return (torch.linspace(-1, 2, 9, dtype=torch.float32).reshape(3, 3) @ x).square().sum()


def waves(x: Tensor) -> Tensor:
    """Sines of neighbours."""
    x = x.reshape(-1)
    return (x.sin() * x.flip(0).cos() + x * x).sum()


def linear(x: Tensor) -> Tensor:
    """Its gradient is a constant without a graph."""
    return (3 * x).sum()


def weighted(x: Tensor) -> Tensor:
    """Linear in x; its gradient depends on a parameter."""
    return (_parameter(x, 2.0) ** 2 * x).sum()


def partly(x: Tensor) -> Tensor:
    """Only every second element counts."""
    return (x.reshape(-1)[::2] ** 3).sum()


def trained(x: Tensor) -> Tensor:
    """Has a parameter of its own."""
    return (_parameter(x, 0.5) * x.sin()).sum()


def counted(x: Tensor) -> Tensor:
    """`separate`, with its backward passes counted."""
    return separate(Counted.apply(x))


# --- what one task of a set lends to another ----------------------------------------------------------------------


@cache
def _powers(n: int) -> tuple[float, ...]:
    return tuple(leg2poly([0] * n + [1])[::-1].tolist())


class Legendre:
    """P_n for a fit: plain torch, its gradient torch's. For small n only: powers of x lose digits."""

    @staticmethod
    def apply(x: Tensor, n: int) -> Tensor:
        value = torch.zeros_like(x)
        for coefficient in _powers(n):
            value = value * x + coefficient
        return value
