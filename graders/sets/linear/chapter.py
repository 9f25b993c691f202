"""BroadcastDiv, Mean, Amax and Softplus, which the chapter alone shows."""

from collections.abc import Callable

import torch
from torch.autograd import Function
from torch.nn import functional as F

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import WATCHED, gradient, value
from graders.judge.task import DOUBLE, DTYPES, Check, Draw, Task
from graders.judge.wrong import Wrong
from graders.sets.linear.common import (
    AXES_MOVE,
    PAIRS,
    SHAPES,
    away_from_0,
    axis_by_axis,
    contract,
    factors,
    gated,
    named,
    second_order,
)


def _sibling_checks(cases: Callable, second: Callable) -> tuple[Check, ...]:
    """Return the checks of a chapter's Function, a point each.

    Args:
        cases: from a Draw and an order, the cases of value and gradient.
        second: from a Draw, arguments for the second order, gradcheck and the contract.
    """
    both = "Everything after this is computed from these numbers, so start here."
    return (
        value(1, about="the output equals torch's", why=both, cases=lambda d: cases(d, 0)),
        gradient(1, about="the gradients equal torch's", why=both, cases=lambda d: cases(d, 1), gradcheck=second),
        second_order(
            1,
            about="the gradients can be differentiated again",
            why="A Hessian differentiates your backward.",
            cases=lambda d: [d.case("a matrix", *second(d), order=2)],
            gradcheck=second,
        ),
        contract(1, cases=lambda d: [d.case("a matrix", *second(d), watch=WATCHED)]),
    )


# --- BroadcastDiv -----------------------------------------------------------------------------------------------------


def _quotients(d: Draw, order: int) -> list[Case]:
    """Return cases of every kind of broadcasting and dtype."""
    cases = [d.case(f"{one} with {two}", *factors(d, one, two), order=order) for one, two in SHAPES]
    return cases + [d.case(f"{named(t)} inputs", *factors(d, (2, 3), (3,), t), order=order) for t in DTYPES]


divide = Task(
    "BroadcastDiv",
    "BroadcastDiv.apply(a, b)",
    reference=lambda a, b: a / b,
    checks=_sibling_checks(_quotients, lambda d: factors(d, (3, 1), (2,))),
    forbids=look.GRADIENT,
)


@divide.solution
class DivNew(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(a, b):
        return a / b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grad_a = g / b
        return grad_a.sum_to_size(a.shape), (-grad_a * (a / b)).sum_to_size(b.shape)


wrong = Wrong(divide, of=DivNew)


@wrong.backward("gradient", AXES_MOVE)
def axes_move(a, b, g):
    return axis_by_axis(g / b, a), axis_by_axis(-g / b * (a / b), b)


wrong.usual("writes_into_upstream kept_as_attribute")


# --- Mean and Amax ----------------------------------------------------------------------------------------------------


def _reduced(d: Draw, order: int) -> list[Case]:
    """Return cases of every form of dim, dtypes, and ties."""
    dims = (None, 0, -1, (0, 2), (1,))
    cases = [d.case(f"dim={i}", away_from_0(d, 2, 3, 4), i, k, order=order) for i in dims for k in (False, True)]
    cases += [d.case(f"{named(t)} input", away_from_0(d, 2, 3, dtype=t), 0, False, order=order) for t in DTYPES]
    tied = torch.tensor([[1.0, 3.0, 3.0], [3.0, 0.5, 0.5]], dtype=DOUBLE)
    cases += [d.case(f"ties, dim={i}", tied, i, False, order=order) for i in (None, 0, 1)]
    return [*cases, d.case("left out", away_from_0(d, 2, 3), order=order)]


mean = Task(
    "Mean",
    "Mean.apply(x, dim=None, keepdim=False)",
    reference=lambda x, dim=None, keepdim=False: x.mean(dim, keepdim),
    checks=_sibling_checks(_reduced, lambda d: (away_from_0(d, 2, 3), 1, False)),
    forbids=look.GRADIENT,
)


@mean.solution
class MeanNew(Function):
    """The shape with the axes kept, which g is copied from."""

    @staticmethod
    def forward(x, dim=None, keepdim=False):
        return x.mean(dim, keepdim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, dim, _ = inputs
        ctx.shape, ctx.kept = x.shape, x.sum(dim, keepdim=True).shape

    @staticmethod
    def backward(ctx, g):
        count = ctx.shape.numel() / max(g.numel(), 1)
        return (g / count).reshape(ctx.kept).expand(ctx.shape), None, None


wrong = Wrong(mean, of=MeanNew)


@wrong.backward(
    "gradient",
    "Your gradient is divided by the number of all elements. Each mean is taken over the reduced axes alone: divide "
    "by how many elements went into one output.",
)
def divides_by_all(ctx, g):
    return g.reshape(ctx.kept).expand(ctx.shape) / ctx.shape.numel(), None, None


@wrong.backward(
    "gradient",
    "Your gradient is divided by how many means there are. Divide by how many numbers went into each: the elements of x "
    "over those of g.",
)
def divides_by_means(ctx, g):
    return g.reshape(ctx.kept).expand(ctx.shape) / max(g.numel(), 1), None, None


@wrong.backward("gradient", "Your gradient is not divided at all: each of N numbers has a share of 1 / N in its mean.")
def not_divided(ctx, g):
    return g.reshape(ctx.kept).expand(ctx.shape).clone(), None, None


wrong.usual("writes_into_upstream")

amax = Task(
    "Amax",
    "Amax.apply(x, dim=None, keepdim=False)",
    reference=lambda x, dim=None, keepdim=False: x.amax(() if dim is None else dim, keepdim),
    checks=_sibling_checks(
        _reduced, lambda d: (torch.arange(6, dtype=DOUBLE).reshape(2, 3) * d.between(1, 2), 1, False)
    ),
    forbids=look.GRADIENT,
)


@amax.solution
class AmaxNew(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(x, dim=None, keepdim=False):
        return x.amax(() if dim is None else dim, keepdim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, dim, _ = inputs
        ctx.dim, ctx.kept = dim, x.sum(dim, keepdim=True).shape
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        largest = x == y.reshape(ctx.kept)
        count = largest.sum(ctx.dim, keepdim=True)
        return torch.where(largest, g.reshape(ctx.kept) / count, 0), None, None


wrong = Wrong(amax, of=AmaxNew)


@wrong.backward(
    "gradient",
    "Where several elements tie for the maximum, each gets the whole gradient, so they get it several times over. "
    "torch.amax gives each of k tied elements g / k.",
)
def ties_in_full(ctx, x, y, g):
    return torch.where(x == y.reshape(ctx.kept), g.reshape(ctx.kept), 0), None, None


wrong.usual("writes_into_upstream")


# --- Softplus ---------------------------------------------------------------------------------------------------------


def _rounded(d: Draw, order: int) -> list[Case]:
    """Return cases of every shape of beta and dtype."""
    cases = [d.case(f"x {one}, beta {two}", *gated(d, one, two), order=order) for one, two in PAIRS]
    return cases + [d.case(f"{named(t)} inputs", *gated(d, (2, 3), (3,), t), order=order) for t in DTYPES]


softplus = Task(
    "Softplus",
    "Softplus.apply(x, beta)",
    reference=lambda x, beta: F.softplus(beta * x) / beta,
    checks=_sibling_checks(_rounded, lambda d: gated(d, (2, 3), (3,))),
    forbids=look.GRADIENT,
)


@softplus.solution
class SoftplusNew(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(x, beta):
        z = beta * x
        return (z.clamp(min=0) + torch.log1p(torch.exp(-z.abs()))) / beta

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        z = beta * x
        a = z.abs()
        entropy = a * torch.sigmoid(-a) + torch.log1p(torch.exp(-a))
        return g * torch.sigmoid(z), (-g * entropy / beta**2).sum_to_size(beta.shape)


wrong = Wrong(softplus, of=SoftplusNew)


def _of_beta(x, beta):
    z = beta * x
    a = z.abs()
    return -(a * torch.sigmoid(-a) + torch.log1p(torch.exp(-a))) / beta**2


@wrong.backward(
    "gradient",
    "Your gradient for beta lacks the upstream gradient: multiply -rest / beta^2 by g before you sum it to beta's "
    "shape.",
)
def upstream_ignored_for_beta(x, beta, g):
    return g * torch.sigmoid(beta * x), _of_beta(x, beta).sum_to_size(beta.shape)


@wrong.backward(
    "gradient",
    "You sum the derivative to beta's shape first, and multiply by the upstream gradient afterwards. Each element of "
    "the output has an upstream gradient of its own: multiply first, then sum.",
)
def summed_before_upstream(x, beta, g):
    return g * torch.sigmoid(beta * x), _of_beta(x, beta).sum_to_size(beta.shape) * g.sum_to_size(beta.shape)


@wrong.backward("gradient", "Your gradient for beta has the wrong sign: a larger beta makes softplus smaller.")
def sign_lost_for_beta(x, beta, g):
    return g * torch.sigmoid(beta * x), -(g * _of_beta(x, beta)).sum_to_size(beta.shape)


@wrong.backward(
    "second_order",
    "Your first derivative is right, but the sigmoid was computed in forward and saved, so it comes back as a "
    "constant and its part of the second derivative is missing. Save x and beta and compute the sigmoid in backward.",
    saves=lambda x, beta, y: (x, beta, y, torch.sigmoid(beta * x)),
)
def saves_sigmoid(x, beta, y, s, g):
    return g * s, (g * (x * s - y) / beta).sum_to_size(beta.shape)


wrong.usual("writes_into_upstream kept_as_attribute")

CHAPTER = (divide, mean, amax, softplus)
