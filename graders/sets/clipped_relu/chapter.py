"""HardTanh and SymmetricClip, which the chapter alone shows: both edges away from 0."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from graders.judge import looks as look
from graders.judge.task import DOUBLE, Check, Task
from graders.judge.wording import MASK_MULTIPLIED
from graders.judge.wrong import Wrong
from graders.sets.clipped_relu.common import BOUND_IN_FLOAT32, bounded_checks, learnable_checks

# --- HardTanh ---------------------------------------------------------------------------------------------------------


OUTSIDE = torch.tensor([-3.0, 0.5, 2.0, -0.5], dtype=DOUBLE)
INFINITE = torch.tensor([float("inf"), 1.0, -float("inf"), -2.0], dtype=DOUBLE)


def _hard_tanh(x: Tensor, bound: float) -> Tensor:
    return F.hardtanh(x, -bound, bound)


hard_tanh = Task(
    "HardTanh",
    "HardTanh.apply(x, bound)",
    reference=_hard_tanh,
    checks=(
        *bounded_checks(dict.fromkeys(["value", "gradient", "bounds", "second_order", "contract"], 1), -1, "bound"),
        Check(
            "infinite",
            1,
            about="an infinite upstream gradient outside the bounds gives 0, not nan",
            why="One nan in a gradient ends a training run.",
            cases=lambda d: [d.case("infinite upstream gradients outside", OUTSIDE, 1.5, upstream=INFINITE)],
            looks=look.FIRST,
        ),
    ),
)


@hard_tanh.solution
class HardTanhNew(Function):
    """In the form of chapter 5: the bound is a number."""

    @staticmethod
    def forward(x, bound):
        return x.clamp(-bound, bound)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.bound = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() >= ctx.bound, 0, g), None


wrong = Wrong(hard_tanh, of=HardTanhNew)


@wrong.backward(
    "gradient",
    "Your gradient is right below -bound and inside, but above bound, where the output is constant, it is the upstream "
    "gradient instead of 0. Inputs that never exceed bound cannot show it.",
)
def upper_mask_missing(ctx, x, g):
    return torch.where(x <= -ctx.bound, 0, g), None


@wrong.backward(
    "gradient",
    "At exactly -bound and bound your gradient is the upstream gradient, as torch.clamp has it; F.hardtanh, which this "
    "operation follows, has 0 there: pass it on where -bound < x < bound, and nowhere else.",
)
def edges_open(ctx, x, g):
    return torch.where(x.abs() > ctx.bound, 0, g), None


@hard_tanh.mistake("gradient", BOUND_IN_FLOAT32.format(name="bound"))
class bound_kept_in_float32(HardTanhNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, bound = inputs
        ctx.bound = torch.tensor(bound)
        ctx.save_for_backward(x)


@wrong.backward("infinite", MASK_MULTIPLIED)
def mask_multiplied(ctx, x, g):
    return g * (x.abs() < ctx.bound), None


wrong.usual("writes_into_upstream")


# --- SymmetricClip ----------------------------------------------------------------------------------------------------


def _symmetric_clip(x: Tensor, alpha: Tensor) -> Tensor:
    bound = alpha.reshape(())
    return torch.where(x >= bound, bound, torch.where(x <= -bound, -bound, x))


symmetric_clip = Task(
    "SymmetricClip", "SymmetricClip.apply(x, alpha)", reference=_symmetric_clip, checks=learnable_checks(-1)
)


@symmetric_clip.solution
class SymmetricClipNew(Function):
    """In the form of chapter 5: alpha gets a gradient from both sides."""

    @staticmethod
    def forward(x, alpha):
        bound = alpha.reshape(())
        return x.clamp(-bound, bound)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        bound = alpha.reshape(())
        above, below = x >= bound, x <= -bound
        signed = torch.where(above, g, torch.where(below, -g, 0))
        return torch.where(above | below, 0, g), signed.sum().reshape(alpha.shape)


wrong = Wrong(symmetric_clip, of=SymmetricClipNew)


@wrong.backward(
    "gradient",
    "Your gradient for alpha adds up both sides. Where x <= -alpha the output is -alpha, whose slope in alpha is -1: "
    "subtract the sum over that side.",
)
def lower_sign_forgotten(x, alpha, g):
    outside = x.abs() >= alpha
    return torch.where(outside, 0, g).reshape(x.shape), torch.where(outside, g, 0).sum().reshape(alpha.shape)


@wrong.backward(
    "gradient",
    "You return None for alpha, which means zero: alpha is a tensor that learns, so save it and return its gradient, "
    "the sum over x >= alpha minus the sum over x <= -alpha.",
)
def alpha_gets_none(x, alpha, g):
    return torch.where(x.abs() >= alpha, 0, g).reshape(x.shape), None


wrong.usual("writes_into_upstream")

CHAPTER = (hard_tanh, symmetric_clip)
