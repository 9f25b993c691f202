"""Cube: a Function with three bugs, to be mended."""

import torch
from torch.autograd import Function

from graders.judge import looks as look
from graders.judge.aspects import GRADIENT, VALUE, WATCHED, contract, gradient, second_order
from graders.judge.task import DOUBLE, Draw, Task
from graders.judge.wording import FLOAT32, FLOAT32_AND_BACK
from graders.judge.wrong import Wrong
from graders.sets.sigmoid.common import SECOND

PLACE = 3


def _sides(draw: Draw):
    """Return numbers of both signs."""
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, dtype=dtype)


task = Task(
    "Cube",
    "Cube.apply(x)",
    reference=lambda x: x**3,
    checks=(
        gradient(
            2,
            about="value and gradient are those of x**3 in every dtype, shape and layout, and gradcheck passes",
            why="Backward returns the upstream gradient times 3 x^2, one number for each element of x.",
            cases=lambda d: [
                d.case("both signs", _sides(d)(7)),
                d.case("every size", d.scales(12), upstream=d.scales(12)),
                d.case("zeros", torch.zeros(3, dtype=DOUBLE)),
                *d.forms(_sides(d)),
                *d.lopsided(lambda x: (x,), 5, zeros=False),
            ],
            looks=(*VALUE, *GRADIENT),
            gradcheck=lambda d: (_sides(d)(5),),
        ),
        second_order(
            2,
            about="the gradient can be differentiated again, and the result is right",
            why="gradcheck alone does not see this: gradgradcheck does.",
            cases=lambda d: [
                d.case("both signs", _sides(d)(7), order=2),
                d.case("zeros", torch.zeros(3, dtype=DOUBLE), order=2),
                d.case("a matrix", _sides(d)(2, 3), order=2),
                *d.lopsided(lambda x: (x,), 5, order=2, zeros=False),
            ],
            looks=SECOND,
            gradcheck=lambda d: (_sides(d)(3),),
        ),
        contract(
            1, cases=lambda d: [d.case("both signs", _sides(d)(5), watch=WATCHED), d.case("every size", d.scales(4, 3))]
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class CubeNew(Function):
    """BuggyCube, mended: x is saved and all else computed in backward, so every derivative comes out right."""

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


@task.solution
class CubeOld(Function):
    """forward and setup_context in one, as older code has it; products in place of powers."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3.0 * x * x * grad_output


@task.solution
class CubeCareful(CubeNew):
    """Asks whether the gradient is wanted, which saves the work where it is not."""

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None
        (x,) = ctx.saved_tensors
        return g.mul(x.square()).mul(3)


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class CubeAsSum(CubeNew):
    """Saves input and output; adds three equal parts."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, g):
        x, _ = ctx.saved_tensors
        part = g * x.pow(2)
        return part + part + part


# --- Mistakes ---------------------------------------------------------------------------------------------------------


wrong = Wrong(task, of=CubeNew)
wrong.habits(
    "zeros_returned nothing_returned upstream_summed upstream_averaged one_too_many "
    "not_differentiable_twice writes_into_upstream kept_as_attribute kept_outside_ctx no_function",
    upstream_ignored="Your gradient is 3 x^2: the upstream gradient is missing. Backward returns g * 3 x^2.",
    sign_flipped="Your gradient has the wrong sign: the derivative of x^3 is 3 x^2, never negative.",
    upstream_unchanged="Your gradient is the upstream gradient unchanged; multiply it by the derivative of "
    "x^3, which is 3 x^2.",
    detached="Your first derivative is right and your second is zero: detach (or .data) in backward cuts x out of "
    "the graph of the gradient. Use the saved x as it is.",
)


@wrong.backward(
    "gradient",
    "This is BuggyCube as it was given: all three bugs are in it. Run gradcheck on it and begin with the first message: why "
    "does the analytical Jacobian of an elementwise function have entries off its diagonal?",
    saves=lambda x, y: (x * x,),
)
def as_given(square, g):
    return 2 * square


@wrong.backward(
    "gradient",
    "One bug is left: the factor. Numerical and analytical Jacobian differ by 3/2 everywhere; the power rule gives 3 x^2.",
)
def factor_two(x, g):
    return g * 2 * x**2


@wrong.backward(
    "gradient",
    "Two bugs are left. The first: the upstream gradient is missing (the analytical Jacobian is not diagonal).",
)
def upstream_and_factor_left(x, g):
    return 2 * x**2


@wrong.backward(
    "gradient",
    "Two bugs are left. Begin with the upstream gradient: it is missing.",
    saves=lambda x, y: (x * x,),
)
def upstream_and_saved_left(square, g):
    return 3 * square


@wrong.backward(
    "gradient",
    "Two bugs are left. The first: the factor. Numerical and analytical Jacobian differ by 3/2 everywhere.",
    saves=lambda x, y: (x * x,),
)
def factor_and_saved_left(square, g):
    return g * 2 * square


@wrong.backward(
    "second_order",
    "One bug is left, which gradcheck does not see: the square that you save was computed before backward, so torch takes it for "
    "a constant and the second derivative is zero. Save x and compute the square in backward.",
    saves=lambda x, y: (x * x,),
)
def saves_derivative(square, g):
    return 3 * square * g


@wrong.forward("gradient", "Your forward gives 3 x, the product: * multiplies, and ** takes the power. Write x**3.")
def product_for_power(x):
    return x * 3


@wrong.backward("gradient", "Your gradient is g x^2: the factor 3 of the derivative 3 x^2 is missing.")
def factor_missing(x, g):
    return g * x**2


@wrong.backward("gradient", "Your gradient is g 3x: the square is missing. The derivative of x^3 is 3 x^2.")
def square_missing(x, g):
    return g * 3 * x


@wrong.backward("gradient", "Your gradient has 2x, the derivative of the square. The derivative of x^3 is 3 x^2.")
def square_derivative(x, g):
    return g * 2 * x


@wrong.backward(
    "gradient", "Your gradient multiplies the upstream gradient by 6x, the second derivative; the first is 3 x^2."
)
def second_for_first(x, g):
    return g * 6 * x


@wrong.backward(
    "gradient",
    "You square the 3 as well: (3 x)^2 is 9 x^2, and the derivative is 3 x^2. Without the parentheses, 3 * x**2, the "
    "power comes first.",
)
def factor_squared(x, g):
    return g * (3 * x) ** 2


@wrong.backward(
    "gradient", "Your gradient multiplies the upstream gradient by x^3, the value; it needs 3 x^2, the derivative."
)
def value_for_derivative(x, g):
    return g * x**3


@wrong.backward(
    "gradient",
    "Your gradient is 3 y / x with the output y: at x = 0 that is 0 / 0, nan. Save x and use 3 x^2.",
    saves=lambda x, y: (x, y),
)
def divided_by_input(x, y, g):
    return g * 3 * y / x


@wrong.saves(
    "gradient", "Your gradient is 3 y^2 with the output y = x^3 in it: the formula 3 x^2 takes the input. Save x."
)
def output_for_input(x, y):
    return (y,)


@wrong.backward("gradient", "Your gradient adds the upstream gradient to 3 x^2. The chain rule multiplies: g * 3 x^2.")
def upstream_added(x, g):
    return g + 3 * x**2


@wrong.forward("gradient", FLOAT32)
def float32_inside(x):
    return x.float() ** 3


@wrong.forward("gradient", FLOAT32_AND_BACK)
def float32_and_back(x):
    return (x.float() ** 3).to(x.dtype)


@wrong.backward(
    "second_order",
    "Half of your second derivative is there: one factor x is constant for torch (detached, or a copy that was made in "
    "forward). Both factors of x^2 have to come from the saved input.",
)
def half_detached(x, g):
    return 3 * x * x.detach() * g


@wrong.backward(
    "contract",
    "Your backward works in place on the saved x, which is the caller's own tensor: it changes, and a second backward is "
    "wrong. Make a new tensor.",
)
def writes_into_saved(x, g):
    return x.mul_(x).mul_(3).mul_(g)
