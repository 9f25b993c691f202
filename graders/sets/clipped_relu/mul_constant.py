"""MulConstant: an argument that is a number, kept on ctx."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import gradient, value
from graders.judge.task import DOUBLE, SINGLE, Check, Draw, Task
from graders.judge.wrong import Wrong
from graders.sets.clipped_relu.common import BOTH, BOTH_ORDERS, FLOAT32_IN_PLACE, INFINITY, mannerly

PLACE = 1


def _sides(draw: Draw) -> Callable[..., Tensor]:
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, dtype=dtype)


def _constants(draw: Draw, order: int) -> list[Case]:
    """Return a case of every sort of constant."""
    return [draw.case(f"c = {c}", draw.sides(4), c, order=order) for c in (0, 0.0, 1, -3, 1 / 3, -1000.0)]


task = Task(
    "MulConstant",
    "MulConstant.apply(x, c)",
    reference=lambda x, c: x * c,
    checks=(
        value(
            1,
            about="the output equals x * c for an int or float c, in every dtype, shape and layout",
            cases=lambda d: [
                *d.forms(_sides(d), 2.5, order=0),
                *_constants(d, 0),
                d.case("c by keyword", d.sides(4), -0.5, order=0, keywords=("c",)),
                *d.lopsided(lambda x: (x, -3), 5, order=0),
            ],
        ),
        gradient(
            1,
            about="the gradient equals torch's, zeros at c = 0, None for c, and gradcheck passes",
            why="The vector-Jacobian product of x * c is the upstream gradient times c, one number for each element "
            "of x.",
            cases=lambda d: [
                *_constants(d, 1),
                d.case("every size", d.scales(12), -7, upstream=d.scales(12)),
                d.case("zeros", torch.zeros(3, dtype=DOUBLE), -3),
                *d.forms(_sides(d), 2.5),
                *d.lopsided(lambda x: (x, -3), 5, zeros=False),
                d.case("a c that float32 does not hold", d.sides(4), 1e100),
            ],
            looks=BOTH,
            gradcheck=lambda d: (d.sides(4), -3),
        ),
        Check(
            "contract",
            1,
            about="the gradient can be differentiated again; the caller's tensors stay untouched",
            why="Tensors that your Function did not make belong to others.",
            cases=lambda d: [
                *(
                    d.case(f"c = {c}", d.sides(5, dtype=t), c, order=2, watch=("state", "overwrite", "trace"))
                    for c, t in ((-3, DOUBLE), (0.5, SINGLE), (1, DOUBLE))
                ),
                *d.lopsided(lambda x: (x, -3), 5, order=2),
            ],
            looks=mannerly(BOTH_ORDERS),
            gradcheck=lambda d: (d.sides(3), 2.5),
            order=2,
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class MulNew(Function):
    """In the form of chapter 1: the number is kept as an attribute of ctx, with all of its digits."""

    @staticmethod
    def forward(x, c):
        return x * c

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.c = inputs

    @staticmethod
    def backward(ctx, g):
        return g * ctx.c, None


@task.solution
class MulOld(Function):
    """In one forward, and computes only the gradient that is wanted: for releases before torch 2.0."""

    @staticmethod
    def forward(ctx, x, c):
        ctx.constant = c
        return torch.mul(x, c)

    @staticmethod
    def backward(ctx, grad_output):
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output.mul(ctx.constant)
        return grad_x, None


@task.solution
class MulSaved(Function):
    """Saves the constant as a tensor of x's dtype, as you would a whole array of constants."""

    @staticmethod
    def forward(x, c):
        return x * torch.tensor(c, dtype=x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, c = inputs
        ctx.save_for_backward(torch.tensor(c, dtype=x.dtype))

    @staticmethod
    def backward(ctx, g):
        (c,) = ctx.saved_tensors
        return c * g, None


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class MulOfItself(MulNew):
    """Calls the Function itself in backward, which is linear."""

    @staticmethod
    def backward(ctx, g):
        return MulOfItself.apply(g, ctx.c), None


@task.solution
class MulRefusesTensors(MulNew):
    """Refuses a tensor, as the chapter advises."""

    @staticmethod
    def forward(x, c):
        if isinstance(c, torch.Tensor):
            raise TypeError("c is a number")
        return c * x


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class KeepsX(MulNew):
    """Saves x, which no right way needs: what some mistakes change."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.c = inputs
        ctx.save_for_backward(x)


keeps_x = Wrong(task, of=KeepsX)
wrong = Wrong(task, of=MulNew)
wrong.habits(
    "upstream_summed float32_inside float32_and_back view_needed writes_into_upstream no_function",
    upstream_ignored="Your gradient is c alone: the upstream gradient is missing. Backward returns g * c.",
    upstream_unchanged="Your gradient is the upstream gradient unchanged; multiply it by c.",
    none_forgotten="Your backward returns one gradient, and forward has two arguments: return the gradient of x, then "
    "None, for c.",
    nothing_returned="Your backward returns None for x (is a return statement missing?): x gets no gradient at all.",
    sign_flipped="Your gradient has the wrong sign: it is the upstream gradient times c, c's own sign included.",
    writes_into_input="Your forward works in place (x *= c): the caller's x is multiplied too. Return a new tensor.",
    kept_outside_ctx="You keep c outside ctx (on the class, or in a global): a second call overwrites it before the "
    "first one's backward. Use an attribute of ctx.",
)
wrong.habits("not_differentiable_twice", caught_by="contract")


@keeps_x.backward(
    "gradient",
    "Your gradient for x is g * x: either backward multiplies by x, which is what c would get if it were a tensor, or "
    "what you keep as ctx.c is x, because inputs come in the order of forward (x, c = inputs). The derivative of x * c "
    "with respect to x is c.",
)
def derivative_for_c(x, g):
    return g * x, None


@keeps_x.backward("gradient", "Your backward multiplies by x as well: the derivative of x * c is c, whatever x is.")
def value_for_derivative(ctx, x, g):
    return g * x * ctx.c, None


@wrong.backward("gradient", "Your backward divides by c. That undoes the forward; the chain rule multiplies by c.")
def divided(ctx, g):
    return g / ctx.c if ctx.c else torch.full_like(g, INFINITY), None


@wrong.backward(
    "gradient",
    "Your backward returns a tensor in c's place. c is a Python number and can have no gradient, not even zero: the "
    "second entry is None, the first the gradient of x.",
)
def gradient_for_c(ctx, g):
    return g * ctx.c, torch.zeros(())


@keeps_x.backward(
    "gradient",
    "You find c again as output / input, which is 0 / 0 = nan where x is 0. Keep the number itself: ctx.c = c.",
    saves=lambda x, c, y: (x, y),
)
def constant_from_the_output(x, y, g):
    return g * (y / x), None


@wrong.backward(
    "gradient",
    "At c = 0 your gradient is None, because 0 is false in Python (if ctx.c:). The gradient there is a tensor of "
    "zeros: multiply by c whatever it is.",
)
def none_at_zero(ctx, g):
    return (g * ctx.c if ctx.c else None), None


@keeps_x.saves("value", "save_for_backward takes tensors, and c is a number. Keep it as an attribute: ctx.c = c.")
def constant_saved_as_tensor(x, c, y):
    return x, c


@wrong.forward(
    "value",
    "In forward you make c a tensor without a dtype: torch.tensor(0.1) is float32. It loses half of the digits in "
    "float64, and for a 0-d float16 x the output becomes float32. Multiply by the number itself.",
)
def constant_in_float32(x, c):
    return x * torch.tensor(float(c))


@wrong.forward(
    "value",
    "A c of 0 is taken for a missing one (c or 1) and replaced: in Python 0 is false. Use the argument as it is.",
)
def zero_replaced(x, c):
    return x * (c or 1)


@wrong.forward(
    "value",
    "Your argument is not called c, so a caller who names it gets a TypeError. Use the names of the task's text.",
)
def argument_renamed(x, constant):
    return x * constant


@task.mistake(
    "gradient",
    "You round c before you keep it (round, or a dtype with few digits): the derivative of x * c is c with all of "
    "its digits. Keep the number itself: ctx.c = c.",
)
class constant_rounded(MulNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.c = round(inputs[1], 1)


@task.mistake(
    "gradient",
    "torch.tensor(c) makes a float32 tensor, in which 0.1 is 0.10000000149 and 1e100 is inf, so keep the number itself, "
    "ctx.c = c. Where a tensor is wanted, give it the dtype of x: torch.tensor(c, dtype=x.dtype).",
)
class constant_kept_in_float32(MulNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.c = torch.tensor(inputs[1])


@wrong.forward("contract", FLOAT32_IN_PLACE)
def writes_into_float32(x, c):
    return x * c if x.dtype == DOUBLE else x.float().mul_(c).clone().to(x.dtype)


@wrong.forward(
    "contract",
    "At c = 1 your forward returns x itself, so the output shares its memory: changing one in place changes the "
    "other. Return a new tensor always.",
)
def input_returned_at_one(x, c):
    return x if c == 1 else x * c
