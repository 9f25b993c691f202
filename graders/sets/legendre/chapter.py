"""Chebyshev, which the chapter alone shows."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable as once

from graders.judge.aspects import gradient, second_order, value
from graders.judge.task import Task
from graders.judge.wrong import Wrong
from graders.sets.legendre.common import ENDS, FIRST, FORWARD, SECOND, inside_and_out


def _right(x: Tensor, n: int) -> Tensor:
    """Return T_n by T_n, T_{n+1} from T_{n-1}, T_n (DLMF 18.9.1)."""
    t, after = 1 + 0 * x, x
    for _ in range(n):
        t, after = after, 2 * x * after - t
    return t + 0 * x


chebyshev = Task(
    "Chebyshev",
    "Chebyshev.apply(x, n)",
    reference=_right,
    checks=(
        value(
            0,
            about="the output is T_n(x) in every dtype, shape and layout",
            cases=lambda d: (
                [d.case(f"n = {n}", inside_and_out(d)(4), n, order=0) for n in (0, 1, 2, 5)]
                + d.forms(inside_and_out(d), 3, order=0)
            ),
            looks=FORWARD,
        ),
        gradient(
            0,
            about="the gradient is the upstream gradient times n U_{n-1}(x), at x = -1 and 1 too",
            why="Backward returns one gradient for each argument of forward.",
            cases=lambda d: (
                [d.case(f"n = {n}", torch.cat([ENDS, inside_and_out(d)(4)]), n) for n in (0, 1, 2, 3, 5)]
                + d.forms(inside_and_out(d), 3)
            ),
            looks=FIRST,
            gradcheck=lambda d: (torch.cat([ENDS, inside_and_out(d)(3)]), 4),
        ),
        second_order(
            0,
            about="the gradient can be differentiated again, at x = -1 and 1 too",
            why="A fit to a differential equation differentiates your backward.",
            cases=lambda d: [
                d.case(f"n = {n}", torch.cat([ENDS, inside_and_out(d)(4)]), n, order=2) for n in (0, 1, 2, 3, 5)
            ],
            looks=SECOND,
            gradcheck=lambda d: (torch.cat([ENDS, inside_and_out(d)(3)]), 4),
        ),
    ),
)


@chebyshev.solution
class ChebyshevNew(Function):
    """In the form of chapter 4."""

    @staticmethod
    def forward(x, n):
        t, after = torch.ones_like(x), x.clone()
        for _ in range(n):
            t, after = after, 2 * x * after - t
        return t

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.n = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        u, after = torch.zeros_like(x), torch.ones_like(x)
        for _ in range(ctx.n):
            u, after = after, 2 * x * after - u
        return g * ctx.n * u, None


def _slope(x: Tensor, n: int) -> Tensor:
    """Return T_n', which is n U_{n-1}."""
    u, after = torch.zeros_like(x), torch.ones_like(x)
    for _ in range(n):
        u, after = after, 2 * x * after - u
    return n * u


wrong = Wrong(chebyshev, of=ChebyshevNew)


@wrong.backward(
    "gradient",
    "Your slope divides by 1 - x^2, which is 0/0 at x = -1 and 1: nan there, although T_n'(+-1) is finite, n^2 up to "
    "sign. Use an identity without a division: T_n' = n U_{n-1}, by the recurrence of U.",
)
def divides_at_ends(ctx, x, g):
    before, t = x, torch.ones_like(x)
    for _ in range(ctx.n):
        before, t = t, 2 * x * t - before
    return g * ctx.n * (before - x * t) / (1 - x * x), None


@wrong.backward(
    "gradient",
    "Your slope is n T_{n-1}, the power rule of x^n; the slope of T_n is n U_{n-1}, whose recurrence starts with 1 "
    "and 2x. At n = 0 and 1 the two agree, so test larger n.",
)
def power_rule(ctx, x, g):
    before, t = x, torch.ones_like(x)
    for _ in range(ctx.n):
        before, t = t, 2 * x * t - before
    return g * ctx.n * before, None


@wrong.backward("gradient", "Your gradient is g U_{n-1}. The slope of T_n is n U_{n-1}: multiply by n.")
def degree_missing(ctx, x, g):
    u, after = torch.zeros_like(x), torch.ones_like(x)
    for _ in range(ctx.n):
        u, after = after, 2 * x * after - u
    return g * u, None


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is zero: what you save is made in setup_context (n U_{n-1}, or a "
    "copy of x), and torch takes that for a constant. Save x itself, and run the recurrence in backward.",
    saves=lambda x, n, y: (_slope(x, n),),
)
def saves_derivative(slope, g):
    return g * slope, None


@wrong.backward(
    "second_order",
    "Your backward is marked once_differentiable, so its result has no path back to x: second derivatives are "
    "silently 0 or incomplete, and an error comes only from a .backward() that walks the whole graph. Leave it out: "
    "your recurrence is made of differentiable operations.",
)
@once
def once_differentiable(ctx, g):
    return ChebyshevNew.backward(ctx, g)


wrong.usual(without="not_differentiable_twice")

CHAPTER = (chebyshev,)
