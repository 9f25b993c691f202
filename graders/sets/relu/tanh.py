"""Tanh: the output is kept, and nothing else."""

import torch
from torch import Tensor
from torch.autograd import Function

from graders.judge import looks as look
from graders.judge.aspects import WATCHED, contract, gradient, second_order, value
from graders.judge.outside import Outside
from graders.judge.task import BRAIN, DOUBLE, HALF, Check, Draw, Task
from graders.judge.wording import KEPT_OUTSIDE
from graders.judge.wrong import Wrong
from graders.sets.relu.common import DENIED

PLACE = 3
LARGE = 1 << 20  # so many numbers stand out in a process's memory
GLOBAL: dict[str, Tensor] = {}  # where the mistake `kept_outside_ctx` keeps things


def inputs(d: Draw):
    """Return numbers of both signs up to 3."""
    return lambda *shape, dtype=DOUBLE: d.sides(*shape, reach=3.0, dtype=dtype)


task = Task(
    "Tanh",
    "Tanh.apply(x)",
    reference=lambda x: torch.tanh(x),
    checks=(
        value(
            1,
            about="the output equals torch.tanh in every dtype, shape and layout, and at +-1000",
            cases=lambda d: [
                *d.forms(inputs(d), order=0),
                d.case("every size", d.scales(12), order=0),
                d.case("large inputs", torch.tensor([-1000.0, -30.0, 0.0, 30.0, 1000.0], dtype=DOUBLE), order=0),
                *d.lopsided(lambda x: (x,), 5, order=0),
            ],
        ),
        gradient(
            2,
            about="the gradient equals torch's for upstream gradients of any size, and gradcheck passes",
            why="The derivative of tanh is 1 - tanh(x)^2, times the upstream gradient.",
            cases=lambda d: [
                d.case("both signs", inputs(d)(7)),
                d.case("every size", d.scales(12), upstream=d.scales(12)),
                d.case("large inputs", torch.tensor([-1000.0, 0.0, 1000.0], dtype=DOUBLE)),
                *d.forms(inputs(d)),
                *d.lopsided(lambda x: (x,), 5),
            ],
            gradcheck=lambda d: (d.sides(5),),
        ),
        second_order(
            2,
            about="the gradient can be differentiated again, and the result is right",
            why="A saved output stays part of the graph; anything else computed in forward does not.",
            cases=lambda d: [
                d.case("both signs", d.sides(7), order=2),
                d.case("a matrix", d.sides(2, 3), order=2),
                *d.lopsided(lambda x: (x,), 5, order=2),
            ],
            gradcheck=lambda d: (d.sides(3),),
        ),
        Check(
            "saved",
            2,
            about="the output is kept for backward, and nothing else",
            why="The output is alive anyway, as the next layer's input; all else costs memory in every layer.",
            cases=lambda d: [d.case("both signs", d.sides(64), watch=("trace",))],
            looks=(*look.FIRST, look.keeps_output_alone),
            outside=Outside(lambda d: (d.normal(LARGE),), "the output", least=8 * LARGE),
        ),
        contract(
            1,
            cases=lambda d: [
                d.case("both signs", d.sides(5), watch=WATCHED, deny=DENIED),
                d.case("every size", d.scales(4, 3)),
            ],
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class TanhNew(Function):
    """In the form of chapter 1: the output is saved, so backward computes no tanh again and x is free."""

    @staticmethod
    def forward(x):
        return torch.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


@task.solution
class TanhOld(Function):
    """forward and setup_context in one, as older code has it: a method less, and no torch.func."""

    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output - grad_output * y.pow(2)


@task.solution
class TanhProduct(TanhNew):
    """1 - y^2 as a product, which keeps its digits where y is near 1."""

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g.mul((1 + y).mul(1 - y))


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class TanhByExponential(TanhNew):
    """tanh from expm1 of a number that cannot overflow."""

    @staticmethod
    def forward(x):
        e = torch.expm1(-2 * x.abs())
        return -torch.sign(x) * e / (e + 2)


# --- Mistakes ---------------------------------------------------------------------------------------------------------

wrong = Wrong(task, of=TanhNew)
wrong.habits(
    "zeros_returned nothing_returned float32_inside float32_and_back not_differentiable_twice writes_into_upstream "
    "no_function",
    upstream_ignored="Your gradient is 1 - y^2 alone: the upstream gradient is missing. Multiply by it.",
    upstream_unchanged="Your gradient is the upstream gradient unchanged; multiply it by 1 - y^2.",
    sign_flipped="Your gradient has the wrong sign: 1 - y^2, not y^2 - 1.",
    detached="Your first derivative is right and your second is wrong: detach (or .data) cuts the saved output out "
    "of the graph of the gradient. Save it and use it as it is.",
    writes_into_input="Your forward works in place (tanh_): the caller's x is overwritten with its tanh. Return a new "
    "tensor.",
)


@wrong.saves(
    "gradient", "Your gradient is g (1 - x^2): the formula is 1 - tanh(x)^2, so it takes the output, not the input."
)
def input_for_output(x, y):
    return (x,)


@wrong.backward("gradient", "Your gradient is g y (1 - y), the sigmoid's. For tanh it is g (1 - y^2).")
def sigmoid_derivative(y, g):
    return g * y * (1 - y)


@wrong.backward("gradient", "Your gradient is g (1 - y): y has to be squared.")
def square_forgotten(y, g):
    return g * (1 - y)


@wrong.backward(
    "gradient",
    "Your gradient is g * (1 - y) ** 2, and the square belongs to y alone: g * (1 - y ** 2).",
)
def difference_squared(y, g):
    return g * (1 - y) ** 2


@wrong.backward(
    "gradient",
    "You wrote 1 - y ** 2 * g, and Python multiplies before it subtracts: that is 1 minus y^2 g. The parentheses are "
    "missing: g * (1 - y ** 2).",
)
def parentheses_forgotten(y, g):
    return 1 - y**2 * g


@wrong.backward(
    "gradient", "Your backward takes tanh of the saved output: the output is tanh(x) already, so use 1 - y^2 as it is."
)
def tanh_twice(y, g):
    return g * (1 - torch.tanh(y) ** 2)


@wrong.forward(
    "value",
    "For large |x| your output is nan: exp overflows and inf / inf is nan. Use torch.tanh, or an exponential of a "
    "number that is never positive.",
)
def exponentials_overflow(x):
    a, b = torch.exp(x), torch.exp(-x)
    return (a - b) / (a + b)


@wrong.forward(
    "value",
    "For half-precision input your output is float32: you compute in float32 and do not convert back. Keep the "
    "input's dtype.",
)
def half_not_restored(x):
    return torch.tanh(x.float() if x.dtype in (HALF, BRAIN) else x)


@wrong.backward(
    "gradient",
    "Your backward builds the diagonal Jacobian (torch.diag), which works for vectors alone. An elementwise "
    "operation needs no matrix: multiply element by element, in any shape.",
)
def diagonal_jacobian(y, g):
    return torch.diag(1 - y**2) @ g


@wrong.backward(
    "gradient",
    "Your gradient stops short of 0 far from x = 0: y is clamped, or a small number is added, where 1 - y^2 is right as "
    "it is. There is nothing to divide by, and 0 is the right slope there.",
)
def output_clamped(y, g):
    return g * (1 - y.clamp(-0.999999, 0.999999) ** 2)


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is wrong: what you save is not the output but made beside it "
    "(1 - y^2, tanh(x) once more, or a copy of the output), and torch takes that for a constant. Save the output itself "
    "and compute 1 - y^2 in backward.",
    saves=lambda x, y: (1 - y * y,),
)
def saves_derivative(d, g):
    return g * d


@wrong.backward(
    "saved",
    "You save x and compute tanh again in backward. The numbers are right, and x is kept in memory for nothing: "
    "1 - y^2 needs the output alone.",
    saves=lambda x, y: (x,),
)
def saves_input(x, g):
    return g * (1 - torch.tanh(x) ** 2)


@wrong.backward(
    "saved",
    "You save x as well as the output, and backward needs the output alone: x is kept in memory for nothing.",
    saves=lambda x, y: (x, y),
)
def saves_both(x, y, g):
    return g * (1 - y**2)


@task.mistake(
    "saved", "You keep x as an attribute of ctx, and backward does not need it: x stays in memory for nothing."
)
class input_as_attribute(TanhNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x = inputs[0]
        ctx.save_for_backward(output)


@task.mistake(
    "contract",
    "You keep the output as an attribute of ctx: torch does not watch it there (changed in place, it gives a "
    "silently wrong gradient), and the reference cycle holds the graph in memory. Use ctx.save_for_backward.",
)
class output_as_attribute(TanhNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.y = output

    @staticmethod
    def backward(ctx, g):
        return g * (1 - ctx.y**2)


@wrong.backward(
    "contract",
    "Your backward works in place on the saved output. That tensor is the one your forward returned: the caller's "
    "activations change, and a second backward is wrong. Make a new tensor.",
)
def writes_into_saved(y, g):
    return y.pow_(2).neg_().add_(1).mul_(g)


@task.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Function):
    @staticmethod
    def forward(ctx, x):
        GLOBAL["y"] = torch.tanh(x)
        return GLOBAL["y"].clone()

    @staticmethod
    def backward(ctx, g):
        return g * (1 - GLOBAL["y"] ** 2)


@wrong.backward(
    "contract",
    "Your backward calls torch's own (tanh_backward). The task is to write it: the upstream gradient times 1 - y^2.",
)
def torchs_own_backward(y, g):
    return torch.ops.aten.tanh_backward(g, y)


@wrong.backward("gradient", "Your gradient is g - y^2: parentheses are missing. It is g * (1 - y * y).")
def parentheses_missing(y, g):
    return g * 1 - y * y
