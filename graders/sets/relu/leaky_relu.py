"""LeakyReLU: a kink at 0, and an argument that is a number."""

import torch
from torch.autograd import Function
from torch.nn import functional as F

from graders.judge import looks as look
from graders.judge.task import DTYPES, Check, Task
from graders.judge.wording import MASK_MULTIPLIED, WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.relu.common import kinked_checks

PLACE = 2

task = Task(
    "LeakyReLU",
    "LeakyReLU.apply(x, negative_slope)",
    reference=F.leaky_relu,
    checks=(
        *kinked_checks({"value": 1, "gradient": 2, "infinite": 1}, 0.1),
        Check(
            "slopes",
            2,
            about="every float is a slope: 0, negative, above 1, by position or by keyword",
            why="The slope is an argument: value and gradient have to follow it.",
            cases=lambda d: [
                *(d.case(f"slope {s}", d.sides(6), s) for s in (0.0, -0.7, 3.0, 0.25, 20.0)),
                d.case("slope -0.7, large", d.sides(6, away=30, reach=60), -0.7),
                *(d.case(f"{str(t)[6:]}, slope 0.25", d.sides(4, dtype=t), 0.25) for t in DTYPES[:3]),
                d.case("slope by keyword", d.sides(6), 0.3, keywords=("negative_slope",)),
            ],
            looks=(*look.FIRST, look.value),
        ),
        *kinked_checks({"second_order": 1, "contract": 1}, 0.1),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class LeakyNew(Function):
    """In the form of chapter 1: torch.where chooses, so that no branch is multiplied by 0."""

    @staticmethod
    def forward(x, negative_slope):
        return torch.where(x > 0, x, negative_slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.negative_slope = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, ctx.negative_slope * g), None


@task.solution
class LeakyOld(Function):
    """Keeps a mask, a byte for each element, and not x: the one for large inputs that nothing else keeps."""

    @staticmethod
    def forward(ctx, x, negative_slope):
        positive = x > 0
        ctx.save_for_backward(positive)
        ctx.slope = negative_slope
        return x.clamp(min=0) + negative_slope * x.clamp(max=0)

    @staticmethod
    def backward(ctx, g):
        (positive,) = ctx.saved_tensors
        return g.where(positive, g * ctx.slope), None


@task.solution
class LeakyClone(LeakyNew):
    """Scales a copy by boolean indexing: reads as the formula does, and is the slowest."""

    @staticmethod
    def forward(x, negative_slope):
        y = x.clone()
        y[x <= 0] *= negative_slope
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        result = g.clone()
        result[x <= 0] = g[x <= 0] * ctx.negative_slope
        return result, None


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class LeakyFactor(LeakyNew):
    """One factor per element, in the dtype of x."""

    @staticmethod
    def factor(x, slope):
        return torch.where(x > 0, torch.ones_like(x), torch.full_like(x, slope))

    @staticmethod
    def forward(x, negative_slope):
        return x * LeakyFactor.factor(x, negative_slope)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * LeakyFactor.factor(x, ctx.negative_slope), None


# --- Mistakes ---------------------------------------------------------------------------------------------------------

wrong = Wrong(task, of=LeakyNew)
wrong.habits(
    "float32_inside kept_as_attribute kept_outside_ctx no_function",
    upstream_ignored="Your gradient is 1 or the slope: the upstream gradient is missing. Backward returns the "
    "vector-Jacobian product: where x > 0 the upstream gradient, elsewhere negative_slope times it.",
    upstream_unchanged="Your gradient is the upstream gradient unchanged; where x <= 0 it has to be multiplied by "
    "negative_slope.",
    nothing_returned="Your backward returns None for x (is a return statement missing?): x gets no gradient at all.",
    none_forgotten="Your backward returns one gradient, and forward has two arguments: return the gradient of x, then "
    "None, for negative_slope.",
    not_differentiable_twice="Your backward is cut off from the graph (once_differentiable, no_grad, or a detached "
    "upstream gradient), so the gradient cannot be differentiated again, not even with respect to the upstream "
    "gradient. Leave it out.",
)


@wrong.backward(
    "gradient", "Your gradient is 0 where x <= 0, as for ReLU; there it is negative_slope times the upstream gradient."
)
def slope_forgotten(x, g):
    return torch.where(x > 0, g, torch.zeros_like(g)), None


@wrong.backward(
    "gradient", "Your two branches are swapped: the upstream gradient passes where x > 0 and is scaled where x <= 0."
)
def branches_swapped(ctx, x, g):
    return torch.where(x > 0, ctx.negative_slope * g, g), None


@wrong.backward(
    "gradient",
    "Your backward applies leaky ReLU to the upstream gradient, whose sign chooses then. The sign of x has to choose: save x, and use "
    "torch.where(x > 0, g, negative_slope * g).",
)
def sign_of_the_upstream(ctx, x, g):
    return torch.where(g > 0, g, ctx.negative_slope * g), None


@wrong.backward(
    "gradient",
    "At exactly x = 0 your gradient is that of the right side (x >= 0, or x < 0 the other way round). Torch's "
    "convention takes the slope there: use x > 0.",
)
def right_side_at_zero(ctx, x, g):
    return torch.where(x >= 0, g, ctx.negative_slope * g), None


@wrong.backward(
    "gradient",
    "At exactly x = 0 your gradient is 0. Torch's convention takes negative_slope times the upstream gradient.",
)
def zero_at_zero(ctx, x, g):
    return g * (x > 0) + ctx.negative_slope * g * (x < 0), None


@wrong.backward(
    "gradient",
    "Your backward returns a gradient in the second place, which is that of negative_slope: a Python number can have "
    "none. Return the gradient of x first, and None second.",
)
def gradient_for_the_slope(ctx, x, g):
    return torch.where(x > 0, g, ctx.negative_slope * g), (g * x.clamp(max=0)).sum()


@wrong.saves(
    "value",
    "save_for_backward takes tensors, and negative_slope is a number. Keep it as an attribute: "
    "ctx.negative_slope = negative_slope.",
)
def slope_saved_as_tensor(x, negative_slope, y):
    return x, negative_slope


@wrong.forward("slopes", "Your slope is 0.1 or so whatever the caller asks for. Use the argument negative_slope.")
def slope_fixed_forward(x, negative_slope):
    return torch.where(x > 0, x, 0.1 * x)


@wrong.backward(
    "slopes", "Your forward follows negative_slope and your backward does not: it has a fixed number in its place."
)
def slope_fixed_backward(x, g):
    return torch.where(x > 0, g, 0.1 * g), None


@task.mistake(
    "slopes",
    "A slope of 0 is taken for a missing one (negative_slope or 0.01) and replaced: in Python 0 is false. Use the "
    "argument as it is.",
)
class zero_slope_replaced(LeakyNew):
    @staticmethod
    def forward(x, negative_slope):
        return torch.where(x > 0, x, (negative_slope or 0.01) * x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, (ctx.negative_slope or 0.01) * g), None


@wrong.backward(
    "slopes",
    "In backward a slope of 0 is taken for a missing one (negative_slope or 0.01) and replaced: in Python 0 is false. "
    "Use the argument as it is.",
)
def zero_slope_replaced_backward(ctx, x, g):
    return torch.where(x > 0, g, (ctx.negative_slope or 0.01) * g), None


@wrong.forward(
    "slopes",
    "Your argument is not called negative_slope, so a caller who names it gets a TypeError. Use the names of the "
    "task's text.",
)
def argument_renamed(x, slope):
    return torch.where(x > 0, x, slope * x)


@wrong.forward(
    "slopes",
    "max(x, negative_slope * x) is right only for slopes up to 1: above 1 it takes the wrong branch. Choose by the "
    "sign of x.",
)
def maximum_of_both(x, negative_slope):
    return torch.maximum(x, negative_slope * x)


@wrong.saves(
    "slopes",
    "You tell the branches apart by the sign of the output. With a negative slope the output is positive on both "
    "sides: save x and use its sign.",
)
def sign_of_the_output(x, negative_slope, y):
    return (y,)


@wrong.backward("infinite", MASK_MULTIPLIED)
def mask_multiplied(ctx, x, g):
    return g * (x > 0) + ctx.negative_slope * g * (x <= 0), None


@wrong.backward(
    "infinite",
    "You sweep nan away with nan_to_num, which also turns an infinite gradient into the largest finite number. "
    "Choose with torch.where instead, and no nan arises.",
)
def nan_swept_away(ctx, x, g):
    return torch.nan_to_num(g * (x > 0)) + torch.nan_to_num(ctx.negative_slope * g * (x <= 0)), None


@wrong.forward(
    "value",
    "For half-precision input your output is float32: torch.where(x > 0, 1.0, slope) makes a float32 factor. Build "
    "it in the dtype of x, or choose between x and slope * x.",
)
def factor_in_float32(x, negative_slope):
    return x * torch.where(x > 0, 1.0, negative_slope)


@wrong.backward(
    "gradient",
    "In float64 your gradient has the digits of float32 only: torch.tensor(negative_slope), torch.where between two "
    "numbers and a mask times a number each make a float32 tensor, in which 0.1 is 0.10000000149. Keep the number on ctx, "
    "and choose between the upstream gradient and negative_slope times it.",
)
def slope_in_float32(ctx, x, g):
    return g * torch.where(x > 0, 1.0, ctx.negative_slope), None


@wrong.forward("value", "Your forward is ReLU: where x <= 0 it returns 0, and should return negative_slope * x.")
def relu_forward(x, negative_slope):
    return x.clamp(min=0)


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(ctx, x, g):
    g[x <= 0] *= ctx.negative_slope
    return g, None


@wrong.forward(
    "contract",
    "Your forward changes its input in place: the caller's tensor is no longer what it was. Clone it first, or build "
    "a new tensor with torch.where.",
)
def writes_into_input(x, negative_slope):
    x[x <= 0] *= negative_slope
    return x


@wrong.forward(
    "contract",
    "Your forward changes its input in place and returns a copy of it: the caller's tensor is no longer what it was, and "
    "the x that you save has lost its signs where the slope is negative or 0. Build a new tensor with torch.where.",
)
def writes_into_input_and_copies(x, negative_slope):
    x[x <= 0] *= negative_slope
    return x.clone()


@wrong.backward(
    "gradient",
    "Where x <= 0 your gradient is negative_slope itself, whatever the upstream gradient is. Multiply the upstream "
    "gradient by it.",
)
def slope_for_the_gradient(ctx, x, g):
    return torch.where(x > 0, g, torch.full_like(g, ctx.negative_slope)), None


@task.mistake(
    "value", "Where x <= 0 your slope has the wrong sign: negative_slope is the slope as it is, and not to be negated."
)
class slope_negated(LeakyNew):
    @staticmethod
    def forward(x, negative_slope):
        return torch.where(x > 0, x, -negative_slope * x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, -ctx.negative_slope * g), None


@task.mistake(
    "contract",
    "You keep negative_slope outside ctx, on the class or in a global: a second call with another slope overwrites it "
    "before the first one's backward. Each call has its own ctx: ctx.negative_slope = negative_slope.",
)
class slope_on_the_class(LeakyNew):
    slope = 0.0

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, slope_on_the_class.slope = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, slope_on_the_class.slope * g), None


@wrong.backward(
    "gradient",
    "Where x <= 0 your gradient is negative_slope * x: that is forward's value there. Its derivative is negative_slope, so "
    "backward returns negative_slope times the upstream gradient.",
)
def value_for_the_slope(ctx, x, g):
    return torch.where(x > 0, g, ctx.negative_slope * x), None


@wrong.backward(
    "gradient",
    "Where x <= 0 you multiply the upstream gradient by negative_slope * x: that is forward's value there. Its derivative is "
    "negative_slope alone, without the x.",
)
def value_times_the_upstream(ctx, x, g):
    return torch.where(x > 0, g, ctx.negative_slope * x * g), None


@wrong.backward(
    "gradient",
    "You multiply the upstream gradient by forward's value, x or negative_slope * x. Backward multiplies it by the "
    "derivative: 1 where x > 0, negative_slope elsewhere.",
)
def value_for_the_derivative(ctx, x, g):
    return torch.where(x > 0, x, ctx.negative_slope * x) * g, None
