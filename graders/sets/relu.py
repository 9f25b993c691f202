"""Set 01: Square, LeakyReLU, Tanh; and the chapter's ReLU."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.task import DOUBLE, DTYPES, MASKS, Check, Draw, Task
from graders.judge.wording import (
    CUT_OFF,
    FLOAT32,
    FLOAT32_AND_BACK,
    KEPT_AS_ATTRIBUTE,
    KEPT_OUTSIDE,
    NO_FUNCTION,
    NOTHING_RETURNED,
    ONE_TOO_MANY,
    UPSTREAM_AVERAGED,
    WRITES_INTO_UPSTREAM,
    ZEROS_RETURNED,
)

INFINITY = float("inf")
DENIED = (*MASKS, "aten::tanh_backward")  # torch's own backwards
GLOBAL: dict[str, Tensor] = {}  # where the mistake `kept_outside_ctx` keeps things

FORWARD = (*look.FORWARD[:-1], look.precise, look.value)
FIRST = (*look.FIRST[:-1], look.precise, look.gradient)


def _sides(draw: Draw):
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, dtype=dtype)


# --- Square -----------------------------------------------------------------------------------------------------------

square = Task(
    "Square",
    "Square.apply(x)",
    lambda x: x * x,
    (
        Check(
            "value",
            1,
            "the output equals x * x in every dtype, shape and layout",
            "Forward is what every later number rests on.",
            lambda d: [
                *d.forms(_sides(d), order=0),
                d.case("zeros", torch.zeros(3, dtype=DOUBLE), order=0),
                d.case("every size", d.scales(12), order=0),
            ],
            FORWARD,
        ),
        Check(
            "gradient",
            1,
            "the gradient equals torch's for upstream gradients of any size, and gradcheck passes",
            "Backward returns the upstream gradient times the derivative, one number for each element of x.",
            lambda d: [
                d.case("both signs", d.sides(7)),
                d.case("every size", d.scales(12), upstream=d.scales(12)),
                d.case("zeros", torch.zeros(3, dtype=DOUBLE)),
                *d.forms(_sides(d)),
            ],
            FIRST,
            lambda d: (d.sides(5),),
        ),
        Check(
            "second_order",
            1,
            "the gradient can be differentiated again",
            "A Hessian, a gradient penalty or a physics loss differentiates your backward.",
            lambda d: [d.case("both signs", d.sides(7), order=2), d.case("a matrix", d.sides(2, 3), order=2)],
            look.SECOND,
            lambda d: (d.sides(3),),
            order=2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; backward's go through save_for_backward",
            "Tensors that your Function did not make belong to others.",
            lambda d: [
                d.case("both signs", d.sides(5), watch=("state", "overwrite", "trace"), deny=DENIED),
                d.case("every size", d.scales(4, 3)),
            ],
            look.CONTRACT,
        ),
    ),
    forbids=look.GRADIENT,
)


@square.solution
class SquareNew(Function):
    """In the form of chapter 1."""

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


@square.solution
class SquareOld(Function):
    """forward and setup_context in one."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.pow(2)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 2.0 * x


@square.solution
class SquareCareful(SquareNew):
    """Asks whether anybody wants the gradient."""

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None
        (x,) = ctx.saved_tensors
        return torch.mul(g, x + x)


@square.solution
class SquareByFunctionCall(Function):
    """Saves in setup_context by keyword-free unpacking, multiplies tensor by tensor."""

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


@square.mistake("gradient", "Your gradient is 2x: the upstream gradient is missing. Backward returns g * 2x, not 2x.")
class upstream_ignored(SquareNew):
    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0]


@square.mistake(
    "gradient", "Your gradient is the upstream gradient unchanged; multiply it by the derivative of x * x, which is 2x."
)
class upstream_unchanged(SquareNew):
    @staticmethod
    def backward(ctx, g):
        return g.clone()


@square.mistake("gradient", "Your gradient is g * x: the factor 2 of the derivative 2x is missing.")
class factor_missing(SquareNew):
    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


@square.mistake(
    "gradient", "Your gradient multiplies the upstream gradient by x * x, the value; it needs 2x, the derivative."
)
class value_for_derivative(SquareNew):
    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0] ** 2


@square.mistake("gradient", "Your gradient has the wrong sign: the derivative of x * x is 2x, not -2x.")
class sign_flipped(SquareNew):
    @staticmethod
    def backward(ctx, g):
        return -2 * ctx.saved_tensors[0] * g


@square.mistake("gradient", ZEROS_RETURNED)
class zeros_returned(SquareNew):
    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g)


@square.mistake("gradient", NOTHING_RETURNED)
class nothing_returned(SquareNew):
    @staticmethod
    def backward(ctx, g):
        return None


@square.mistake(
    "gradient",
    "Your backward sums the upstream gradient first. Each element of the input has its own upstream gradient: "
    "multiply element by element.",
)
class upstream_summed(SquareNew):
    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g.sum()


@square.mistake("gradient", UPSTREAM_AVERAGED)
class upstream_averaged(SquareNew):
    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * (g.mean() if g.numel() else g)


@square.mistake("gradient", ONE_TOO_MANY)
class one_too_many(SquareNew):
    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g, g * 0


@square.mistake(
    "gradient",
    "Your Function uses view, which fails on an input that is not contiguous in memory; work on x as it is "
    "(or use reshape).",
)
class view_needed(SquareNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (2 * x.view(-1) * g.view(-1)).view(x.shape)


@square.mistake("value", FLOAT32)
class float32_inside(SquareNew):
    @staticmethod
    def forward(x):
        return x.float() ** 2


@square.mistake("value", FLOAT32_AND_BACK)
class float32_and_back(SquareNew):
    @staticmethod
    def forward(x):
        return (x.float() ** 2).to(x.dtype)


@square.mistake("value", "Your output is float64 whatever the input is: you convert x inside. Keep the input's dtype.")
class float64_inside(SquareNew):
    @staticmethod
    def forward(x):
        return x.double() ** 2


@square.mistake(
    "value",
    "Your forward uses view, which fails on an input that is not contiguous in memory; work on x as it is (or use reshape).",
)
class view_in_forward(SquareNew):
    @staticmethod
    def forward(x):
        return (x.view(-1) * x.view(-1)).view(x.shape)


@square.mistake("value", "Your forward returns 2x, the derivative; it should return x * x.")
class derivative_for_value(SquareNew):
    @staticmethod
    def forward(x):
        return 2 * x


@square.mistake(
    "second_order",
    "Your first derivative is right and your second is zero: 2x was computed in forward and saved, so torch takes it "
    "for a constant. Save x and compute 2x in backward.",
)
class saves_derivative(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(2 * x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return ctx.saved_tensors[0] * g


@square.mistake(
    "second_order",
    "Your first derivative is right and your second is zero: detach (or .data) in backward cuts x out of the graph of "
    "the gradient. Use the saved x as it is.",
)
class detached(SquareNew):
    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0].detach() * g


@square.mistake(
    "second_order",
    CUT_OFF,
)
class not_differentiable_twice(SquareNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g


@square.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(SquareNew):
    @staticmethod
    def backward(ctx, g):
        g.mul_(2 * ctx.saved_tensors[0])
        return g


@square.mistake(
    "contract",
    "Your forward changes its input in place: the caller's tensor is squared too, and what you saved with it. "
    "Return a new tensor.",
)
class writes_into_input(SquareNew):
    @staticmethod
    def forward(x):
        return x.mul_(x)


@square.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(SquareNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        (ctx.x,) = inputs

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.x * g


@square.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Function):
    @staticmethod
    def forward(ctx, x):
        GLOBAL["x"] = x
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * GLOBAL["x"] * g


@square.mistake("gradient", NO_FUNCTION)
def no_function(x):
    return x * x


# --- ReLU (the chapter's) and LeakyReLU -------------------------------------------------------------------------------

ENDS = torch.tensor([INFINITY, -INFINITY, 1e4, -1e4, INFINITY, -INFINITY], dtype=DOUBLE)


def _kinked_checks(points: dict[str, float], *rest: float) -> tuple[Check, ...]:
    """The checks of an operation with a kink at 0; `rest` are its arguments after x."""

    def gradient(d: Draw) -> list[Case]:
        kink = torch.tensor([-1.0, -0.0, 0.0, 1.0], dtype=DOUBLE)
        return [
            d.case("both signs", d.sides(8), *rest),
            d.case("every size", d.scales(12), *rest, upstream=d.scales(12)),
            *(d.case("at 0", kink.to(t), *rest, upstream=torch.ones_like(kink, dtype=t)) for t in DTYPES),
            *(d.case("at 0, another slope", kink, 3.0, upstream=torch.ones_like(kink)) for _ in rest),
            *d.forms(_sides(d), *rest),
        ]

    about_all = (
        ("value", "the output equals torch's in every dtype, shape and layout", "Forward is what later numbers rest on.",
         lambda d: [d.case("every size", d.scales(12), *rest, order=0), *d.forms(_sides(d), *rest, order=0)],
         FORWARD, None, 1),
        ("gradient", "the gradient equals torch's, at 0 too, and gradcheck passes away from 0",
         "Optimisers see nothing of your Function but these numbers.",
         gradient, FIRST, lambda d: (d.sides(6), *rest), 1),
        ("infinite", "infinite upstream gradients pass as they do in torch, without nan",
         "One nan in a gradient ends a training run.",
         lambda d: [d.case("infinite upstream gradients", d.sides(6), *rest, upstream=ENDS)], look.FIRST, None, 1),
        ("second_order", "the gradient can be differentiated again",
         "A gradient penalty differentiates your backward, with respect to the upstream gradient too.",
         lambda d: [d.case("both signs", d.sides(6), *rest, order=2)],
         look.SECOND, lambda d: (d.sides(4), *rest), 2),
        ("contract", "the caller's tensors stay untouched; backward's go through save_for_backward",
         "Tensors that your Function did not make belong to others.",
         lambda d: [
             d.case("both signs", d.sides(6), *rest, watch=("state", "overwrite", "trace"), deny=DENIED),
             d.case("every size", d.scales(4, 3), *rest),
         ],
         look.CONTRACT, None, 1),
    )  # fmt: skip
    return tuple(
        Check(name, points.get(name, 0), about, why, cases, looks, gradcheck, order)
        for name, about, why, cases, looks, gradcheck, order in about_all
    )


leaky = Task(
    "LeakyReLU",
    "LeakyReLU.apply(x, negative_slope)",
    F.leaky_relu,
    (
        *(c for c in _kinked_checks({"value": 1, "gradient": 2, "infinite": 1}, 0.1) if c.points),
        Check(
            "slopes",
            2,
            "every float is a slope: 0, negative, above 1, by position or by keyword",
            "The slope is an argument: value and gradient have to follow it.",
            lambda d: [
                *(d.case(f"slope {s}", d.sides(6), s) for s in (0.0, -0.7, 3.0, 0.25, 20.0)),
                *(d.case(f"{str(t)[6:]}, slope 0.25", d.sides(4, dtype=t), 0.25) for t in DTYPES[:3]),
                d.case("slope by keyword", d.sides(6), 0.3, keywords=("negative_slope",)),
            ],
            (*look.FIRST, look.value),
        ),
        *(c for c in _kinked_checks({"second_order": 1, "contract": 1}, 0.1) if c.points),
    ),
    forbids=look.GRADIENT,
)


@leaky.solution
class LeakyNew(Function):
    """In the form of chapter 1."""

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


@leaky.solution
class LeakyOld(Function):
    """Keeps a mask; clamps."""

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


@leaky.solution
class LeakyClone(LeakyNew):
    """Scales a copy by boolean indexing."""

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


@leaky.solution
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


@leaky.mistake(
    "gradient",
    "Your gradient is 1 or the slope: the upstream gradient is missing. Backward returns the vector-Jacobian product: where x > 0 the upstream gradient, elsewhere negative_slope times it.",
)
class upstream_ignored(LeakyNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, torch.ones_like(x), torch.full_like(x, ctx.negative_slope)), None


@leaky.mistake(
    "gradient",
    "Your gradient is the upstream gradient unchanged; where x <= 0 it has to be multiplied by negative_slope.",
)
class upstream_unchanged(LeakyNew):
    @staticmethod
    def backward(ctx, g):
        return g.clone(), None


@leaky.mistake(
    "gradient", "Your gradient is 0 where x <= 0, as for ReLU; there it is negative_slope times the upstream gradient."
)
class slope_forgotten(LeakyNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, torch.zeros_like(g)), None


@leaky.mistake(
    "gradient", "Your two branches are swapped: the upstream gradient passes where x > 0 and is scaled where x <= 0."
)
class branches_swapped(LeakyNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, ctx.negative_slope * g, g), None


@leaky.mistake(
    "gradient",
    "At exactly x = 0 your gradient is that of the right side (x >= 0, or x < 0 the other way round). Torch's convention "
    "takes the slope there: use x > 0.",
)
class right_side_at_zero(LeakyNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x >= 0, g, ctx.negative_slope * g), None


@leaky.mistake(
    "gradient",
    "At exactly x = 0 your gradient is 0. Torch's convention takes negative_slope times the upstream gradient.",
)
class zero_at_zero(LeakyNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x > 0) + ctx.negative_slope * g * (x < 0), None


@leaky.mistake(
    "gradient",
    "Your backward returns one gradient. Torch wants one for each argument of forward: return the gradient of x, and None "
    "for negative_slope.",
)
class none_forgotten(LeakyNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, ctx.negative_slope * g)


@leaky.mistake(
    "gradient",
    "Your backward returns a gradient for negative_slope, which is a Python number and can have none. Return None in its "
    "place.",
)
class gradient_for_the_slope(LeakyNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, ctx.negative_slope * g), (g * x.clamp(max=0)).sum()


@leaky.mistake(
    "value",
    "save_for_backward takes tensors, and negative_slope is a number. Keep it as an attribute: "
    "ctx.negative_slope = negative_slope.",
)
class slope_saved_as_tensor(LeakyNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


@leaky.mistake(
    "gradient", "Your backward returns None for x (is a return statement missing?): x gets no gradient at all."
)
class nothing_returned(LeakyNew):
    @staticmethod
    def backward(ctx, g):
        return None, None


@leaky.mistake("slopes", "Your slope is 0.1 or so whatever the caller asks for. Use the argument negative_slope.")
class slope_fixed_forward(LeakyNew):
    @staticmethod
    def forward(x, negative_slope):
        return torch.where(x > 0, x, 0.1 * x)


@leaky.mistake(
    "slopes", "Your forward follows negative_slope and your backward does not: it has a fixed number in its place."
)
class slope_fixed_backward(LeakyNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, 0.1 * g), None


@leaky.mistake(
    "slopes",
    "A slope of 0 is taken for a missing one (negative_slope or 0.01) and replaced: in Python 0 is false. Use the argument as "
    "it is.",
)
class zero_slope_replaced(LeakyNew):
    @staticmethod
    def forward(x, negative_slope):
        return torch.where(x > 0, x, (negative_slope or 0.01) * x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, (ctx.negative_slope or 0.01) * g), None


@leaky.mistake(
    "slopes",
    "Your argument is not called negative_slope, so a caller who names it gets a TypeError. Use the names of the task's text.",
)
class argument_renamed(LeakyNew):
    @staticmethod
    def forward(x, slope):
        return torch.where(x > 0, x, slope * x)


@leaky.mistake(
    "slopes",
    "max(x, negative_slope * x) is right only for slopes up to 1: above 1 it takes the wrong branch. Choose by the sign of x.",
)
class maximum_of_both(LeakyNew):
    @staticmethod
    def forward(x, negative_slope):
        return torch.maximum(x, negative_slope * x)


@leaky.mistake(
    "slopes",
    "You tell the branches apart by the sign of the output. With a negative slope the output is positive on both sides: "
    "save x and use its sign.",
)
class sign_of_the_output(LeakyNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.negative_slope = inputs[1]
        ctx.save_for_backward(output)


@leaky.mistake(
    "infinite",
    "Where the mask is 0 and the upstream gradient infinite, your gradient is nan: inf * 0 = nan. Choose with torch.where "
    "instead of multiplying by a mask.",
)
class mask_multiplied(LeakyNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x > 0) + ctx.negative_slope * g * (x <= 0), None


@leaky.mistake(
    "infinite",
    "You sweep nan away with nan_to_num, which also turns an infinite gradient into the largest finite number. Choose with "
    "torch.where instead, and no nan arises.",
)
class nan_swept_away(LeakyNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.nan_to_num(g * (x > 0)) + torch.nan_to_num(ctx.negative_slope * g * (x <= 0)), None


@leaky.mistake(
    "value",
    "For half-precision input your output is float32: torch.where(x > 0, 1.0, slope) makes a float32 factor. Build it in "
    "the dtype of x, or choose between x and slope * x.",
)
class factor_in_float32(LeakyNew):
    @staticmethod
    def forward(x, negative_slope):
        return x * torch.where(x > 0, 1.0, negative_slope)


@leaky.mistake(
    "gradient",
    "In float64 your gradient has the digits of float32 only: torch.where(x > 0, 1.0, slope) makes a float32 tensor, in "
    "which 0.1 is 0.10000000149. Choose between the upstream gradient and slope times it.",
)
class slope_in_float32(LeakyNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.where(x > 0, 1.0, ctx.negative_slope), None


@leaky.mistake("value", FLOAT32)
class float32_inside(LeakyNew):
    @staticmethod
    def forward(x, negative_slope):
        x = x.float()
        return torch.where(x > 0, x, negative_slope * x)


@leaky.mistake("value", "Your forward is ReLU: where x <= 0 it returns 0, and should return negative_slope * x.")
class relu_forward(LeakyNew):
    @staticmethod
    def forward(x, negative_slope):
        return x.clamp(min=0)


@leaky.mistake(
    "second_order",
    "Your backward is cut off from the graph (once_differentiable, no_grad, or a detached upstream gradient), so the "
    "gradient cannot be differentiated again, not even with respect to the upstream gradient. Leave it out.",
)
class not_differentiable_twice(LeakyNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, ctx.negative_slope * g), None


@leaky.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(LeakyNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        g[x <= 0] *= ctx.negative_slope
        return g, None


@leaky.mistake(
    "contract",
    "Your forward changes its input in place: the caller's tensor is no longer what it was. Clone it first, or build a new "
    "tensor with torch.where.",
)
class writes_into_input(LeakyNew):
    @staticmethod
    def forward(x, negative_slope):
        x[x <= 0] *= negative_slope
        return x


@leaky.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(LeakyNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.negative_slope = inputs

    @staticmethod
    def backward(ctx, g):
        return torch.where(ctx.x > 0, g, ctx.negative_slope * g), None


@leaky.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Function):
    @staticmethod
    def forward(ctx, x, negative_slope):
        GLOBAL["x"], GLOBAL["slope"] = x, negative_slope
        return torch.where(x > 0, x, negative_slope * x)

    @staticmethod
    def backward(ctx, g):
        return torch.where(GLOBAL["x"] > 0, g, GLOBAL["slope"] * g), None


@leaky.mistake("gradient", NO_FUNCTION)
def no_function(x, negative_slope):
    return torch.where(x > 0, x, negative_slope * x)


relu = Task(
    "ReLU",
    "ReLU.apply(x)",
    torch.relu,
    _kinked_checks(dict.fromkeys(["value", "gradient", "infinite", "second_order", "contract"], 1)),
    forbids=look.GRADIENT,
)


@relu.solution
class ReLUNew(Function):
    """In the form of chapter 1."""

    @staticmethod
    def forward(x):
        return x.clamp(min=0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return torch.where(y > 0, g, 0)


@relu.mistake(
    "gradient",
    "Your gradient is the mask, 0 or 1: the upstream gradient is missing. Backward returns the vector-Jacobian product: the upstream gradient where x > 0, else 0.",
)
class upstream_ignored(ReLUNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return (y > 0).to(g.dtype)


@relu.mistake(
    "infinite",
    "Where the mask is 0 and the upstream gradient infinite, your gradient is nan: inf * 0 = nan. Choose with torch.where "
    "instead of multiplying by a mask.",
)
class mask_multiplied(ReLUNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (y > 0)


@relu.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(ReLUNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        g[y <= 0] = 0
        return g


@relu.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(ReLUNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        (ctx.x,) = inputs

    @staticmethod
    def backward(ctx, g):
        return torch.where(ctx.x > 0, g, 0)


# --- Tanh -------------------------------------------------------------------------------------------------------------


def _tanh_inputs(draw: Draw):
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, reach=3.0, dtype=dtype)


tanh = Task(
    "Tanh",
    "Tanh.apply(x)",
    lambda x: torch.tanh(x),
    (
        Check(
            "value",
            1,
            "the output equals torch.tanh in every dtype, shape and layout, and at +-1000",
            "Forward is what every later number rests on.",
            lambda d: [
                *d.forms(_tanh_inputs(d), order=0),
                d.case("every size", d.scales(12), order=0),
                d.case("large inputs", torch.tensor([-1000.0, -30.0, 0.0, 30.0, 1000.0], dtype=DOUBLE), order=0),
            ],
            FORWARD,
        ),
        Check(
            "gradient",
            2,
            "the gradient equals torch's for upstream gradients of any size, and gradcheck passes",
            "The derivative of tanh is 1 - tanh(x)^2, times the upstream gradient.",
            lambda d: [
                d.case("both signs", _tanh_inputs(d)(7)),
                d.case("every size", d.scales(12), upstream=d.scales(12)),
                d.case("large inputs", torch.tensor([-1000.0, 0.0, 1000.0], dtype=DOUBLE)),
                *d.forms(_tanh_inputs(d)),
            ],
            FIRST,
            lambda d: (d.sides(5),),
        ),
        Check(
            "second_order",
            2,
            "the gradient can be differentiated again, and the result is right",
            "A saved output stays part of the graph; anything else computed in forward does not.",
            lambda d: [d.case("both signs", d.sides(7), order=2), d.case("a matrix", d.sides(2, 3), order=2)],
            look.SECOND,
            lambda d: (d.sides(3),),
            order=2,
        ),
        Check(
            "saved",
            2,
            "the output is kept for backward, and nothing else",
            "The output is alive anyway, as the next layer's input; all else costs memory in every layer.",
            lambda d: [d.case("both signs", d.sides(64), watch=("trace",))],
            (*look.FIRST, look.keeps_output_alone),
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; backward's go through save_for_backward",
            "Tensors that your Function did not make belong to others.",
            lambda d: [
                d.case("both signs", d.sides(5), watch=("state", "overwrite", "trace"), deny=DENIED),
                d.case("every size", d.scales(4, 3)),
            ],
            look.CONTRACT,
        ),
    ),
    forbids=look.GRADIENT,
)


@tanh.solution
class TanhNew(Function):
    """In the form of chapter 1."""

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


@tanh.solution
class TanhOld(Function):
    """forward and setup_context in one."""

    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output - grad_output * y.pow(2)


@tanh.solution
class TanhByExponential(TanhNew):
    """tanh from expm1 of a number that cannot overflow."""

    @staticmethod
    def forward(x):
        e = torch.expm1(-2 * x.abs())
        return -torch.sign(x) * e / (e + 2)


@tanh.solution
class TanhProduct(TanhNew):
    """1 - y^2 as a product."""

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g.mul((1 + y).mul(1 - y))


@tanh.mistake("gradient", "Your gradient is 1 - y^2 alone: the upstream gradient is missing. Multiply by it.")
class upstream_ignored(TanhNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return 1 - y * y


@tanh.mistake("gradient", "Your gradient is the upstream gradient unchanged; multiply it by 1 - y^2.")
class upstream_unchanged(TanhNew):
    @staticmethod
    def backward(ctx, g):
        return g.clone()


@tanh.mistake(
    "gradient", "Your gradient is g (1 - x^2): the formula is 1 - tanh(x)^2, so it takes the output, not the input."
)
class input_for_output(TanhNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


@tanh.mistake("gradient", "Your gradient is g y (1 - y), the sigmoid's. For tanh it is g (1 - y^2).")
class sigmoid_derivative(TanhNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * (1 - y)


@tanh.mistake("gradient", "Your gradient is g (1 - y): y has to be squared.")
class square_forgotten(TanhNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y)


@tanh.mistake("gradient", "Your gradient has the wrong sign: 1 - y^2, not y^2 - 1.")
class sign_flipped(TanhNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (y * y - 1)


@tanh.mistake(
    "gradient", "Your backward takes tanh of the saved output: the output is tanh(x) already, so use 1 - y^2 as it is."
)
class tanh_twice(TanhNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - torch.tanh(y) ** 2)


@tanh.mistake("gradient", NOTHING_RETURNED)
class nothing_returned(TanhNew):
    @staticmethod
    def backward(ctx, g):
        return None


@tanh.mistake("gradient", ZEROS_RETURNED)
class zeros_returned(TanhNew):
    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g)


@tanh.mistake(
    "value",
    "For large |x| your output is nan: exp overflows and inf / inf is nan. Use torch.tanh, or an exponential of a number "
    "that is never positive.",
)
class exponentials_overflow(TanhNew):
    @staticmethod
    def forward(x):
        a, b = torch.exp(x), torch.exp(-x)
        return (a - b) / (a + b)


@tanh.mistake("value", FLOAT32)
class float32_inside(TanhNew):
    @staticmethod
    def forward(x):
        return torch.tanh(x.float())


@tanh.mistake("value", FLOAT32_AND_BACK)
class float32_and_back(TanhNew):
    @staticmethod
    def forward(x):
        return torch.tanh(x.float()).to(x.dtype)


@tanh.mistake(
    "value",
    "For half-precision input your output is float32: you compute in float32 and do not convert back. Keep the input's dtype.",
)
class half_not_restored(TanhNew):
    @staticmethod
    def forward(x):
        return torch.tanh(x.float() if x.dtype in (torch.float16, torch.bfloat16) else x)


@tanh.mistake(
    "gradient",
    "Your backward builds the diagonal Jacobian (torch.diag), which works for vectors alone. An elementwise operation needs "
    "no matrix: multiply element by element, in any shape.",
)
class diagonal_jacobian(TanhNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return torch.diag(1 - y**2) @ g


@tanh.mistake(
    "second_order",
    "Your first derivative is right and your second is wrong: 1 - y^2 was computed in forward and saved, so torch takes it "
    "for a constant. Save the output and compute 1 - y^2 in backward.",
)
class saves_derivative(Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(1 - y * y)
        return y

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        return g * d


@tanh.mistake(
    "second_order",
    "Your first derivative is right and your second is wrong: detach (or .data) cuts the saved output out of the graph of "
    "the gradient. Use it as it is.",
)
class detached(TanhNew):
    @staticmethod
    def backward(ctx, g):
        y = ctx.saved_tensors[0].detach()
        return g * (1 - y * y)


@tanh.mistake(
    "second_order",
    CUT_OFF,
)
class not_differentiable_twice(TanhNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


@tanh.mistake(
    "saved",
    "You save x and compute tanh again in backward. The numbers are right, and x is kept in memory for nothing: "
    "1 - y^2 needs the output alone.",
)
class saves_input(TanhNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * (1 - torch.tanh(ctx.saved_tensors[0]) ** 2)


@tanh.mistake(
    "saved", "You save x as well as the output, and backward needs the output alone: x is kept in memory for nothing."
)
class saves_both(TanhNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, g):
        return g * (1 - ctx.saved_tensors[1] ** 2)


@tanh.mistake(
    "saved", "You keep x as an attribute of ctx, and backward does not need it: x stays in memory for nothing."
)
class input_as_attribute(TanhNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x = inputs[0]
        ctx.save_for_backward(output)


@tanh.mistake(
    "contract",
    "You keep the output as an attribute of ctx: torch does not watch it there (changed in place, it gives a silently wrong "
    "gradient), and the reference cycle holds the graph in memory. Use ctx.save_for_backward.",
)
class output_as_attribute(TanhNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.y = output

    @staticmethod
    def backward(ctx, g):
        return g * (1 - ctx.y**2)


@tanh.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(TanhNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        g *= 1 - y * y
        return g


@tanh.mistake(
    "contract",
    "Your backward works in place on the saved output. That tensor is the one your forward returned: the caller's "
    "activations change, and a second backward is wrong. Make a new tensor.",
)
class writes_into_saved(TanhNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y.pow_(2).neg_().add_(1).mul_(g)


@tanh.mistake(
    "contract", "Your forward works in place (tanh_): the caller's x is overwritten with its tanh. Return a new tensor."
)
class writes_into_input(TanhNew):
    @staticmethod
    def forward(x):
        return x.tanh_()


@tanh.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Function):
    @staticmethod
    def forward(ctx, x):
        GLOBAL["y"] = torch.tanh(x)
        return GLOBAL["y"].clone()

    @staticmethod
    def backward(ctx, g):
        return g * (1 - GLOBAL["y"] ** 2)


@tanh.mistake(
    "contract",
    "Your backward calls torch's own (tanh_backward). The task is to write it: the upstream gradient times 1 - y^2.",
)
class torchs_own_backward(TanhNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(g, y)


@tanh.mistake("gradient", NO_FUNCTION)
def no_function(x):
    return torch.tanh(x)


TASKS = (square, leaky, tanh)
CHAPTER = (relu,)
