"""ReLU, which the chapter alone shows."""

import torch
from torch.autograd import Function

from graders.judge import looks as look
from graders.judge.task import Task
from graders.judge.wording import KEPT_AS_ATTRIBUTE, MASK_MULTIPLIED, WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.relu.common import kinked_checks

relu = Task(
    "ReLU",
    "ReLU.apply(x)",
    reference=torch.relu,
    checks=kinked_checks(dict.fromkeys(["value", "gradient", "infinite", "second_order", "contract"], 1)),
    forbids=look.GRADIENT,
)


@relu.solution
class ReLUNew(Function):
    """In the form of chapter 1: x is saved, and a gradient passes where x is nan, as in torch.relu."""

    @staticmethod
    def forward(x):
        return x.clamp(min=0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x <= 0, 0, g)


wrong = Wrong(relu, of=ReLUNew)
wrong.habits(
    upstream_ignored="Your gradient is the mask, 0 or 1: the upstream gradient is missing. Backward returns the "
    "vector-Jacobian product: the upstream gradient where x > 0, else 0.",
)


@wrong.backward(
    "gradient",
    "Your gradient is relu(x) itself, as torch.where(x > 0, x, 0) gives it: g stands for the upstream gradient, and x "
    "only says where it passes.",
)
def input_passed(x, g):
    return torch.where(x > 0, x, 0).to(g.dtype)


@wrong.backward("infinite", MASK_MULTIPLIED)
def mask_multiplied(x, g):
    return g * (x > 0)


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(x, g):
    g[x <= 0] = 0
    return g


@relu.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(ReLUNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        (ctx.x,) = inputs

    @staticmethod
    def backward(ctx, g):
        return torch.where(ctx.x <= 0, 0, g)


wrong.usual()

CHAPTER = (relu,)
