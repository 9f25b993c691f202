"""Square: the first Function of all."""

import torch
from torch import Tensor
from torch.autograd import Function

from graders.judge import looks as look
from graders.judge.aspects import WATCHED, contract, gradient, second_order, value
from graders.judge.task import Task
from graders.judge.wrong import Wrong
from graders.sets.relu.common import DENIED

PLACE = 1

task = Task(
    "Square",
    "Square.apply(x)",
    reference=lambda x: x * x,
    checks=(
        value(
            1,
            about="the output equals x * x in every dtype, shape and layout",
            cases=lambda d: [
                *d.forms(d.sides, order=0),
                d.case("every size", d.scales(12), order=0),
                *d.lopsided(lambda x: (x,), 5, order=0),
            ],
        ),
        gradient(
            1,
            about="the gradient equals torch's for upstream gradients of any size, and gradcheck passes",
            why="Backward returns the upstream gradient times the derivative, one number for each element of x.",
            cases=lambda d: [
                d.case("both signs", d.sides(7)),
                d.case("every size", d.scales(12), upstream=d.scales(12)),
                *d.forms(d.sides),
                *d.lopsided(lambda x: (x,), 5),
            ],
            gradcheck=lambda d: (d.sides(5),),
        ),
        second_order(
            1,
            cases=lambda d: [
                d.case("both signs", d.sides(7), order=2),
                d.case("a matrix", d.sides(2, 3), order=2),
                *d.lopsided(lambda x: (x,), 5, order=2),
            ],
            gradcheck=lambda d: (d.sides(3),),
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
class SquareNew(Function):
    """In the form of chapter 1, forward and setup_context apart: the one to write, since torch.func takes it too."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


@task.solution
class SquareOld(Function):
    """forward and setup_context in one, as older code has it: a method less, and no torch.func."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.pow(2)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 2.0 * x


@task.solution
class SquareCareful(SquareNew):
    """Asks whether the gradient is wanted: worth it where backward takes long, not here."""

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None
        (x,) = ctx.saved_tensors
        return torch.mul(g, x + x)


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class SquareByFunctionCall(Function):
    """Every product a function call, the 2 a tensor."""

    @staticmethod
    def forward(x):
        return torch.square(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, upstream):
        x = ctx.saved_tensors[0]
        two = torch.full_like(x, 2)
        return two.mul(x).mul(upstream)


# --- Mistakes ---------------------------------------------------------------------------------------------------------

wrong = Wrong(task, of=SquareNew)
wrong.habits(
    "zeros_returned nothing_returned upstream_summed upstream_averaged one_too_many float32_inside float32_and_back "
    "not_differentiable_twice writes_into_upstream kept_as_attribute kept_outside_ctx no_function",
    upstream_ignored="Your gradient is 2x: the upstream gradient is missing. Backward returns g * 2x, not 2x.",
    upstream_unchanged="Your gradient is the upstream gradient unchanged; multiply it by the derivative of x * x, "
    "which is 2x.",
    sign_flipped="Your gradient has the wrong sign: the derivative of x * x is 2x, not -2x.",
    detached="Your first derivative is right and your second is zero: x is cut out of the graph of the gradient, by detach "
    "or .data where you save it or where you use it. Save x itself, and use it as it comes back.",
    writes_into_input="Your forward changes its input in place: the caller's tensor is squared too, and what you saved "
    "with it. Return a new tensor.",
)


@wrong.backward("gradient", "Your gradient is g * x: the factor 2 of the derivative 2x is missing.")
def factor_missing(x, g):
    return g * x


@wrong.backward(
    "gradient",
    "Your gradient is 2 g, the same for every x: the factor x of the derivative 2x is missing. Save x in "
    "setup_context, and return g * 2x.",
)
def x_missing(_, g):
    return 2 * g


@wrong.backward(
    "gradient", "Your gradient multiplies the upstream gradient by x * x, the value; it needs 2x, the derivative."
)
def value_for_derivative(x, g):
    return g * x**2


@wrong.backward(
    "gradient",
    "Your Function uses view, which fails on an input that is not contiguous in memory; work on x as it is (or use "
    "reshape).",
)
def view_needed(x, g):
    return (2 * x.view(-1) * g.view(-1)).view(x.shape)


@wrong.forward("value", "Your output is float64 whatever the input is: you convert x inside. Keep the input's dtype.")
def float64_inside(x):
    return x.double() ** 2


@wrong.forward(
    "value",
    "Your forward uses view, which fails on an input that is not contiguous in memory; work on x as it is (or use "
    "reshape).",
)
def view_in_forward(x):
    return (x.view(-1) * x.view(-1)).view(x.shape)


@wrong.backward(
    "gradient",
    "You build the Jacobian as a matrix, with torch.diag, which takes one dimension alone. Of an elementwise operation only its "
    "diagonal is not zero: multiply element by element, g * 2x.",
)
def jacobian_as_a_matrix(x, g):
    return torch.diag(2 * x) @ g


@wrong.forward("value", "Your forward returns 2x, the derivative; it should return x * x.")
def derivative_for_value(x):
    return 2 * x


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is zero: what you save is no input and no output but made before "
    "backward (2x, or a copy of x), and torch takes that for a constant. Save x itself and compute 2x in backward.",
    saves=lambda x, y: (2 * x,),
)
def saves_derivative(d, g):
    return d * g


@wrong.backward(
    "gradient",
    "Your gradient has the right size and, where x < 0, the wrong sign: the square root of the output is |x|. Save x itself.",
    saves=lambda x, y: (y,),
)
def root_of_the_output(y, g):
    return 2 * torch.sqrt(y) * g


@wrong.backward(
    "gradient",
    "Your gradient is 2 x^2 times the upstream gradient: you saved the output and use it where x belongs. Save x.",
    saves=lambda x, y: (y,),
)
def output_for_input(y, g):
    return 2 * y * g
