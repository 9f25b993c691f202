"""Recompute and LinearTanh, which the chapter alone shows."""

import torch
from torch.autograd import Function
from torch.nn import functional as F

from graders.inside.records import Helper
from graders.judge import looks as look
from graders.judge.aspects import GRADIENT, gradient, second_order, value
from graders.judge.task import DOUBLE, DTYPES, SINGLE, Check, Draw, Task
from graders.judge.wrong import Wrong
from graders.sets.checkpointing.common import Surroundings, layer, named


def _two_layers(d: Draw, dtype: torch.dtype = DOUBLE) -> tuple[object, ...]:
    """Return x, the function, and its parameters."""
    x, *parameters = (d.normal(*s, dtype=dtype) for s in ((2, 3), (4, 3), (4,), (2, 4), (2,)))
    return x, Helper("two_layers"), *parameters


# --- Recompute --------------------------------------------------------------------------------------------------------

recompute = Task(
    "Recompute",
    "Recompute.apply(x, f, *parameters)",
    reference=lambda x, f, *parameters: f(x, *parameters),
    checks=(
        value(
            0,
            about="the output is f(x, *parameters)",
            cases=lambda d: [d.case("two layers", *_two_layers(d), order=0)],
            looks=look.FORWARD,
        ),
        Check(
            "gradient",
            0,
            about="x and every parameter get a gradient; dropout masks and autocast repeat",
            why="A gradient belongs to the output that was returned.",
            cases=lambda d: [
                d.case("two layers", *_two_layers(d)),
                d.case("dropout", d.normal(6, 5), Helper("dropped"), d.normal(5, 4)),
                d.case("under autocast", *_two_layers(d, SINGLE), within="autocast"),
            ],
            looks=look.FIRST,
        ),
        Check(
            "second_order",
            0,
            about="the gradients can be differentiated again",
            why="A Hessian differentiates your backward.",
            cases=lambda d: [d.case("two layers", *_two_layers(d), order=2)],
            looks=look.SECOND,
        ),
    ),
)


@recompute.solution
class Recompute(Function):
    """As the chapter has it."""

    @classmethod
    def apply(cls, x, f, *parameters):
        return super().apply(Surroundings(), f, x, *parameters)

    @staticmethod
    def forward(state, f, *tensors):
        return f(*tensors)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.state, ctx.f, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, g):
        twice = torch.is_grad_enabled()
        with ctx.state.again():
            tensors = [t.view_as(t) for t in ctx.saved_tensors]
            y = ctx.f(*tensors)
        needed = [t for t in tensors if t.requires_grad]
        grads = iter(torch.autograd.grad(y, needed, g, create_graph=twice, allow_unused=True))
        return None, None, *(next(grads) if t.requires_grad else None for t in tensors)


class _Once(Recompute):
    """Recompute for first derivatives, as the chapter's wrong versions have it."""

    @staticmethod
    def backward(ctx, g):
        with ctx.state.again():
            tensors = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            y = ctx.f(*tensors)
        return None, None, *torch.autograd.grad(y, tensors, g)


wrong = Wrong(recompute, of=_Once)


@wrong.backward(
    "gradient",
    "You return a gradient for x and None for each parameter, so the block never learns. Ask torch.autograd.grad for "
    "x and the parameters, and return one gradient for each.",
)
def parameters_none(ctx, g):
    x, *parameters = ctx.saved_tensors
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        y = ctx.f(x, *parameters)
    return None, None, *torch.autograd.grad(y, x, g), *(None for _ in parameters)


@wrong.backward(
    "gradient",
    "The recomputation draws new dropout masks, so the gradient belongs to another output than the one you returned. "
    "Take the random state before f runs and put it back for the recomputation.",
)
def masks_redrawn(ctx, g):
    with torch.enable_grad():
        tensors = [t.detach().requires_grad_() for t in ctx.saved_tensors]
        y = ctx.f(*tensors)
    return None, None, *torch.autograd.grad(y, tensors, g)


@wrong.backward(
    "gradient",
    "Forward ran under autocast, the recomputation does not: backward differentiates a float32 function that nobody "
    "computed. Keep the autocast state with the random state and enter it again.",
)
def autocast_forgotten(ctx, g):
    ctx.state.cast["enabled"] = False
    return _Once.backward(ctx, g)


wrong.usual()


# --- LinearTanh -------------------------------------------------------------------------------------------------------

linear_tanh = Task(
    "LinearTanh",
    "LinearTanh.apply(x, weight, bias)",
    reference=lambda x, weight, bias: torch.tanh(F.linear(x, weight, bias)),
    checks=(
        value(
            0,
            about="the output is tanh(F.linear(x, weight, bias))",
            cases=lambda d: [d.case(f"{named(t)} input", *layer(d, 2, 3, dtype=t), order=0) for t in DTYPES],
        ),
        gradient(
            0,
            about="the gradients equal torch's",
            why="A gradient belongs to the output that was returned.",
            cases=lambda d: [d.case(f"{named(t)} input", *layer(d, 2, 3, dtype=t)) for t in DTYPES],
            gradcheck=lambda d: layer(d, 2, 3),
        ),
        second_order(
            0,
            about="the gradients can be differentiated again",
            why="A Hessian differentiates your backward.",
            cases=lambda d: [d.case("a matrix", *layer(d, 2, 3), order=2, watch=("trace",))],
            looks=(*GRADIENT, look.second_order, look.keeps_at_most(0)),
            gradcheck=lambda d: layer(d, 2, 3),
        ),
    ),
)


@linear_tanh.solution
class LinearTanh(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(x, weight, bias):
        return torch.tanh(F.linear(x, weight, bias))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight, output)

    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        d = g * (1 - y * y)
        return d @ weight, d.T @ x, d.sum(0)


wrong = Wrong(linear_tanh, of=LinearTanh)


@wrong.backward(
    "second_order",
    "You save the pre-activation: n times o elements that nothing else keeps alive, and a constant in double "
    "backward. Save the output: tanh' = 1 - y^2 needs no more.",
    saves=lambda x, weight, bias, y: (x, weight, x @ weight.T + bias),
)
def saves_pre_activation(x, weight, z, g):
    d = g * (1 - z.tanh() ** 2)
    return d @ weight, d.T @ x, d.sum(0)


wrong.usual()

CHAPTER = (recompute, linear_tanh)
