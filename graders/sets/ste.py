"""Set 03: Binarize, GradientReversal, round_ste; and the chapter's Step and ScaleGradient.

The gradients are estimators, so gradcheck would refuse the right ones: each is compared with the gradient intended.
"""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.task import DOUBLE, DTYPES, HALF, MASKS, Check, Draw, Task
from graders.judge.wording import (
    CUT_OFF,
    FLOAT32,
    KEPT_AS_ATTRIBUTE,
    KEPT_OUTSIDE,
    NO_FUNCTION,
    NOTHING_RETURNED,
    ONE_TOO_MANY,
    WRITES_INTO_UPSTREAM,
    ZEROS_RETURNED,
)

NARROWED = (
    "You compute in float32 and cast back: float64 input loses half of its digits, and the value is no longer exact. Compute in "
    "the dtype of x."
)
INFINITY = float("inf")
DENIED = MASKS  # torch's own backwards
GLOBAL: dict[str, object] = {}  # where the mistake `kept_outside_ctx` keeps things
WATCHED = "the caller's tensors stay untouched; changing one before backward spoils no gradient"
MANNERS = "Memory is looked at here, and these numbers first: a gradient that is wrong elsewhere is wrong here too."
EXACT = (*look.FORWARD[:-1], look.exact)
FIRST = (*look.FIRST[:-1], look.precise, look.gradient)


def _sides(draw: Draw):
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, dtype=dtype)


def _layouts(cases: list[Case]) -> list[Case]:
    """`Draw.forms` without its one case for each dtype, where other cases have the dtypes already."""
    return [c for c in cases if c.name not in {f"a {str(t)[6:]} input" for t in DTYPES}]


def output_is_free(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """The output can be changed in place before backward."""
    for what, grads in yours.overwritten:
        if what == "the output" and grads is None:
            text = (
                "When your output is changed in place before backward, torch raises; here it has to be free for that."
            )
            return look.Finding("guarded", text, {"case": look.describe(call, case)})
    return None


# --- Binarize and Step: two values, and the gradient of a clamp -------------------------------------------------------


def _two_valued(low: float, width: float):
    """`low` or 1, with the gradient of a clamp of slope 1 where |x| <= width: torch's own clamp, which adds 0."""

    def reference(x: Tensor) -> Tensor:
        ramp = x.clamp(-width, width)
        above = x >= 0 if low else x > 0
        return torch.where(above, 1.0, low).to(x.dtype) + (ramp - ramp.detach())

    return reference


def _beside(edge: float, dtype: torch.dtype) -> Tensor:
    """An edge of the ramp, of both signs, and the numbers next to it."""
    step = torch.finfo(dtype).eps * edge
    numbers = [edge, edge + step, edge - step / 2, 0.0]
    return torch.tensor([*numbers, *(-n for n in numbers)], dtype=dtype)


def _beside_zero(dtype: torch.dtype) -> Tensor:
    tiny = torch.finfo(dtype).tiny
    return torch.tensor([0.0, -0.0, tiny, -tiny], dtype=dtype)


def _two_valued_checks(width: float, points: dict[str, float], low: str, surrogate: str) -> tuple[Check, ...]:
    """The checks of an operation with two values.

    Args:
        width: the gradient passes where |x| <= width.
        points: by the check's name.
        low: the lower of the two values, as a grade cell prints it.
        surrogate: the function whose gradient is meant.
    """

    def inputs(d: Draw):
        """Numbers of both signs in turn, in pairs near the ramp's edge, beyond it and near 0."""

        def draw(*shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
            size = torch.Size(shape).numel()
            part = torch.arange(size) // 2 % 3
            low, high = torch.tensor([0.6, 1.05, 0.05])[part], torch.tensor([0.95, 2.0, 0.4])[part]
            signs = 1.0 - 2.0 * (torch.arange(size) % 2)
            return (width * signs * (low + (high - low) * d.between(0, 1, size))).reshape(shape).to(dtype)

        return draw

    ends = torch.tensor([INFINITY, -INFINITY], dtype=DOUBLE)

    def value(d: Draw) -> list[Case]:
        return [
            *_layouts(d.forms(inputs(d), order=0)),
            d.case("every size", torch.cat([d.scales(12), ends]), order=0),
            *(d.case("at 0 and beside it", _beside_zero(t), order=0) for t in DTYPES),
        ]

    def gradient(d: Draw) -> list[Case]:
        return [
            d.case("inside and outside the ramp", torch.cat([inputs(d)(12), ends])),
            d.case("every size", d.scales(12), upstream=d.scales(12)),
            *(d.case("at the edges and beside them", _beside(width, t)) for t in DTYPES),
            *_layouts(d.forms(inputs(d))),
        ]

    infinite = torch.tensor([INFINITY, -INFINITY, INFINITY, -INFINITY, 1e4, -1e4] * 2, dtype=DOUBLE)
    about_all = (
        ("value", f"the output is {low} or 1, as the text says, in every dtype, shape and layout",
         "Forward is what every later number rests on.", value, EXACT, 1),
        ("gradient", f"the gradient is that of {surrogate}, at its edges too, for any upstream gradient",
         "This is the gradient that you chose, so nothing but this comparison can prove it.", gradient, FIRST, 1),
        ("infinite", "an infinite upstream gradient passes on the ramp and gives 0 elsewhere, never nan",
         "One nan in a gradient ends a training run.",
         lambda d: [d.case("infinite upstream gradients", inputs(d)(12), upstream=infinite)], FIRST, 1),
        ("second_order", "the gradient can be differentiated again, by the upstream gradient",
         "A gradient penalty differentiates your backward.",
         lambda d: [d.case("inside and outside the ramp", inputs(d)(12), order=2),
                    d.case("a matrix", inputs(d)(2, 3), order=2)],
         look.SECOND, 2),
        ("contract", WATCHED, MANNERS,
         lambda d: [d.case("inside and outside", inputs(d)(6), watch=("state", "overwrite", "trace"), deny=DENIED),
                    d.case("every size", d.scales(4, 3))],
         look.CONTRACT, 1),
    )  # fmt: skip
    return tuple(
        Check(name, points.get(name, 0), about, why, cases, looks, None, order)
        for name, about, why, cases, looks, order in about_all
    )


binarize = Task(
    "Binarize",
    "Binarize.apply(x)",
    _two_valued(-1.0, 1.0),
    _two_valued_checks(
        1.0,
        {"value": 2, "gradient": 2, "infinite": 1, "second_order": 1, "contract": 2},
        "-1",
        "clamp(x, -1, 1)",
    ),
    forbids=look.GRADIENT,
)


@binarize.solution
class BinarizeNew(Function):
    """In the form of chapter 3."""

    @staticmethod
    def forward(x):
        return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() <= 1, g, 0)


@binarize.solution
class BinarizeOld(Function):
    """forward and setup_context in one; keeps the mask."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward((x >= -1) & (x <= 1))
        return 2 * (x >= 0).to(x.dtype) - 1

    @staticmethod
    def backward(ctx, grad_output):
        (inside,) = ctx.saved_tensors
        return grad_output.where(inside, torch.zeros_like(grad_output))


@binarize.solution
class BinarizeBySign(BinarizeNew):
    """sign, with its zeros filled; a copy of the upstream gradient with zeros written into it."""

    @staticmethod
    def forward(x):
        y = torch.sign(x)
        y[x == 0] = 1
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        result = g.clone()
        result[x.abs() > 1] = 0
        return result


@binarize.solution
class BinarizeMasked(BinarizeNew):
    """masked_fill both ways."""

    @staticmethod
    def forward(x):
        return torch.ones_like(x).masked_fill(x < 0, -1)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g.masked_fill((x > 1) | (x < -1), 0)


@binarize.solution
class BinarizeByClamp(BinarizeNew):
    """The mask is true where clamp changes nothing; asks whether anybody wants the gradient."""

    @staticmethod
    def forward(x):
        return torch.heaviside(x, torch.ones_like(x)).mul(2).sub(1)

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None
        (x,) = ctx.saved_tensors
        return torch.where(x.clamp(-1, 1) == x, g, torch.zeros_like(g))


@binarize.mistake(
    "value",
    "torch.sign(0) is 0, so at exactly 0 your output is a third value. Compare instead: x >= 0 gives 1, all else -1.",
)
class sign_of_zero(BinarizeNew):
    @staticmethod
    def forward(x):
        return torch.sign(x)


@binarize.mistake("value", "At exactly 0 your output is -1. The text wants 1 there: compare with x >= 0, not x > 0.")
class minus_at_zero(BinarizeNew):
    @staticmethod
    def forward(x):
        return torch.where(x > 0, 1.0, -1.0).to(x.dtype)


@binarize.mistake(
    "value",
    "At -0.0 your output is -1: copysign and signbit look at the sign bit, which -0.0 has. As a number it equals 0, and 0 "
    "gives 1: compare with x >= 0.",
)
class sign_bit(BinarizeNew):
    @staticmethod
    def forward(x):
        return torch.copysign(torch.ones_like(x), x)


@binarize.mistake("value", "Your output is 0 where x < 0: that is the step. Binarize gives -1 there: 2 * step - 1.")
class zero_and_one(BinarizeNew):
    @staticmethod
    def forward(x):
        return (x >= 0).to(x.dtype)


@binarize.mistake(
    "value",
    "Your output is clamp(x, -1, 1). That is the surrogate, which lends its gradient to backward; forward returns -1 or 1 and "
    "nothing between.",
)
class surrogate_for_value(BinarizeNew):
    @staticmethod
    def forward(x):
        return x.clamp(-1, 1)


@binarize.mistake(
    "value",
    "Your output is float32 whatever the input is: (x >= 0).float() and torch.where(x >= 0, 1.0, -1.0) are. Convert to the "
    "dtype of x: .to(x.dtype).",
)
class float32_inside(BinarizeNew):
    @staticmethod
    def forward(x):
        return (x >= 0).float() * 2 - 1


@binarize.mistake(
    "value",
    "Your output is a tensor of integers: torch.where(x >= 0, 1, -1) makes one. Integers carry no gradient, so nothing "
    "reaches x. Convert to the dtype of x.",
)
class integers(BinarizeNew):
    @staticmethod
    def forward(x):
        return torch.where(x >= 0, 1, -1)


@binarize.mistake(
    "gradient",
    "Your gradient passes everywhere: the mask is missing, or it asks the output, which is always within [-1, 1]. It has to "
    "be 0 where |x| > 1.",
)
class identity_outside(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        return g.clone()


@binarize.mistake(
    "gradient", "Your gradient is the mask, 0 or 1: the upstream gradient is missing. Where |x| <= 1 it is passed on."
)
class upstream_ignored(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (x.abs() <= 1).to(g.dtype)


@binarize.mistake(
    "gradient",
    "At exactly x = 1 and x = -1 your gradient is 0. The edges belong to the ramp, as in clamp: <= and not <.",
)
class zero_at_the_edges(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() < 1, g, 0)


@binarize.mistake(
    "gradient",
    "Just outside of the edges, at the next number above 1, your gradient still passes: a tolerance widens the mask, or a narrower "
    "dtype rounds x to 1 before you compare. Compare x as it is: x.abs() <= 1.",
)
class tolerant_edges(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() <= 1 + 1e-6, g, 0)


@binarize.mistake(
    "gradient", "Your mask has one side: x <= 1 is true for every negative x. It is |x| <= 1, so take x.abs()."
)
class one_sided_mask(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x <= 1, g, 0)


@binarize.mistake(
    "gradient",
    "Your mask is |x| <= 1/2, that of the step from 0 to 1. Binarize rises by 2, from -1 to 1: its ramp is |x| <= 1.",
)
class ramp_of_the_step(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() <= 0.5, g, 0)


@binarize.mistake(
    "gradient",
    "Your mask asks the upstream gradient, |g| <= 1. It has to ask the input: the gradient passes where |x| <= 1, however "
    "large it is.",
)
class mask_by_the_upstream(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        return torch.where(g.abs() <= 1, g, 0)


@binarize.mistake(
    "gradient",
    "You clip the upstream gradient where this estimator masks it: it passes g unchanged where |x| <= 1 and gives 0 "
    "elsewhere, so the condition is on x, never on g.",
)
class clips_upstream(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        return g.clamp(-1, 1)


@binarize.mistake(
    "gradient",
    "Your gradient is that of tanh, 1 - tanh(x)^2. A smooth surrogate makes an estimator too, but not this one: pass the upstream "
    "gradient unchanged where |x| <= 1, and 0 elsewhere.",
)
class gradient_of_tanh(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (1 - torch.tanh(x) ** 2)


@binarize.mistake(
    "gradient",
    "Your gradient is zero everywhere. That is the true derivative, and nothing learns from it: pass the upstream gradient "
    "where |x| <= 1.",
)
class zeros_returned(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g)


@binarize.mistake("gradient", NOTHING_RETURNED)
class nothing_returned(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        return None


@binarize.mistake("gradient", ONE_TOO_MANY)
class one_too_many(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() <= 1, g, 0), None, g


@binarize.mistake("gradient", NO_FUNCTION)
def no_function(x):
    ramp = x.clamp(-1, 1)
    return ramp + (BinarizeNew.forward(x) - ramp).detach()


@binarize.mistake(
    "infinite",
    "Where the mask is 0 and the upstream gradient infinite, your gradient is nan: inf * 0 = nan. Choose with "
    "torch.where instead of multiplying by a mask.",
)
class mask_multiplied(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() <= 1)


@binarize.mistake(
    "infinite",
    "You sweep nan away with nan_to_num, which also turns an infinite gradient into the largest finite number. Choose with "
    "torch.where instead, and no nan arises.",
)
class nan_swept_away(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.nan_to_num(g * (x.abs() <= 1))


@binarize.mistake("second_order", CUT_OFF)
class not_differentiable_twice(BinarizeNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() <= 1, g, 0)


@binarize.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(BinarizeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        g[x.abs() > 1] = 0
        return g


@binarize.mistake(
    "contract",
    "Your forward changes its input in place: the caller's weights become -1 and 1, and so does what you saved. Build a new "
    "tensor.",
)
class writes_into_input(BinarizeNew):
    @staticmethod
    def forward(x):
        negative = x < 0
        return x.fill_(1).masked_fill_(negative, -1)


@binarize.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(BinarizeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        (ctx.x,) = inputs

    @staticmethod
    def backward(ctx, g):
        return torch.where(ctx.x.abs() <= 1, g, 0)


@binarize.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Function):
    @staticmethod
    def forward(ctx, x):
        GLOBAL["x"] = x
        return BinarizeNew.forward(x)

    @staticmethod
    def backward(ctx, g):
        return torch.where(GLOBAL["x"].abs() <= 1, g, 0)


step = Task(
    "Step",
    "Step.apply(x)",
    _two_valued(0.0, 0.5),
    _two_valued_checks(0.5, {}, "0", "clamp(x, -1/2, 1/2)"),
)


@step.solution
class StepNew(Function):
    """In the form of chapter 3."""

    @staticmethod
    def forward(x):
        return (x > 0).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() <= 0.5, g, 0)


@step.mistake(
    "value",
    "torch.sign(0) is 0, so your step is 0.5 at exactly 0, a third value. Compare instead: (x > 0).to(x.dtype).",
)
class half_at_zero(StepNew):
    @staticmethod
    def forward(x):
        return (torch.sign(x) + 1) / 2


@step.mistake(
    "gradient",
    "You clip the upstream gradient where the clipped estimator masks it: it passes g unchanged where |x| <= 1/2 and gives 0 "
    "elsewhere, so the condition is on x, never on g.",
)
class clips_upstream(StepNew):
    @staticmethod
    def backward(ctx, g):
        return g.clamp(-1, 1)


@step.mistake(
    "gradient",
    "Your gradient passes everywhere; this estimator is the gradient of clamp(x, -1/2, 1/2) and is 0 where |x| > 1/2. Without "
    "the mask, latent weights run far away and cannot come back.",
)
class identity_outside(StepNew):
    @staticmethod
    def backward(ctx, g):
        return g.clone()


# --- GradientReversal and ScaleGradient: the same number, another gradient --------------------------------------------


FACTOR = 0.75  # every dtype holds it: what rounds the number loses the one check that is about numbers


def _scaled(x: Tensor, factor: float) -> Tensor:
    """x, a new tensor, with the gradient times the factor: by a hook, in place of a Function."""
    y = x.clone()
    if y.requires_grad:
        y.register_hook(lambda g: factor * g)
    return y


def _scaled_checks(points: dict[str, float], name: str, gradient: str) -> tuple[Check, ...]:
    """The checks of an operation that changes the gradient alone.

    Args:
        points: by the check's name.
        name: the second argument's.
        gradient: what the gradient is, as a grade cell prints it.
    """

    def forward(d: Draw) -> list[Case]:
        ends = torch.tensor([INFINITY, -INFINITY, 0.0], dtype=DOUBLE)
        return [
            *d.forms(_sides(d), FACTOR, order=0),
            d.case("every size", d.scales(12), FACTOR, order=0),
            d.case("infinite inputs", ends, FACTOR, order=0),
        ]

    def backward(d: Draw) -> list[Case]:
        return [
            d.case("both signs", d.sides(7), FACTOR),
            d.case("every size", d.scales(12), FACTOR, upstream=d.scales(12)),
            d.case("infinite inputs", torch.tensor([INFINITY, -INFINITY, 0.0], dtype=DOUBLE), FACTOR),
            *_layouts(d.forms(_sides(d), FACTOR)),
        ]

    def factors(d: Draw) -> list[Case]:
        numbers = (0.3, 0, 0.0, -1.0, -0.7, 3, 40.0, -3_000_000, 1e40)
        return [
            *(d.case(f"{name} {n}", d.sides(4), n) for n in numbers),
            *(
                d.case(f"{str(t)[6:]}, {name} {n}", d.sides(4, dtype=t), n)
                for t, n in zip(DTYPES[:3], (2, -0.25, 0), strict=True)
            ),
            d.case(
                f"float16, {name} larger than any float16",
                d.sides(4, dtype=HALF),
                1e5,
                upstream=1e-3 * d.sides(4, dtype=HALF),
            ),
            d.case(f"{name} by keyword", d.sides(4), 0.3, keywords=(name,)),
            d.case("both by keyword", d.sides(4), -2.0, keywords=("x", name)),
        ]

    about_all = (
        ("value", "the output equals x exactly, in every dtype, shape and layout",
         "Forward is to leave the numbers alone.", forward, EXACT, 1),
        ("gradient", f"the gradient is {gradient}, whatever the size of either",
         "Everything before this operation learns from these numbers.", backward, FIRST, 1),
        (f"{name}s", f"{name} may be any int or float: 0, negative, large, by position or by keyword",
         "The number is a factor as it stands: of any size, of either sign, with all its digits.", factors, (*FIRST, look.value), 1),
        ("second_order", "the gradient can be differentiated again, by the upstream gradient",
         "A gradient penalty differentiates your backward.",
         lambda d: [d.case("both signs", d.sides(6), FACTOR, order=2), d.case("a matrix", d.sides(2, 3), -FACTOR, order=2)],
         look.SECOND, 2),
        ("contract", "a new output that may be changed in place; the caller's tensors stay untouched", MANNERS,
         lambda d: [
             d.case("both signs", d.sides(6), FACTOR, watch=("state", "overwrite", "trace"), deny=DENIED),
             d.case("a transposed input", d.sides(3, 2).t(), FACTOR),
             d.case("every size", d.scales(4, 3), FACTOR),
         ],
         (*look.CONTRACT, output_is_free), 1),
    )  # fmt: skip
    return tuple(
        Check(check, points.get(check, 0), about, why, cases, looks, None, order)
        for check, about, why, cases, looks, order in about_all
    )


reversal = Task(
    "GradientReversal",
    "GradientReversal.apply(x, alpha)",
    lambda x, alpha: _scaled(x, -alpha),
    _scaled_checks(
        {"value": 1, "gradient": 1, "alphas": 2, "second_order": 1, "contract": 2},
        "alpha",
        "-alpha times the upstream gradient",
    ),
    forbids=look.GRADIENT,
)


@reversal.solution
class ReversalNew(Function):
    """In the form of chapter 3."""

    @staticmethod
    def forward(x, alpha):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.alpha = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return -ctx.alpha * g, None


@reversal.solution
class ReversalOld(Function):
    """forward and setup_context in one; the copy by arithmetic."""

    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x * 1

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.alpha, None


@reversal.solution
class ReversalInPlace(ReversalNew):
    """Copies into new memory; works in place on a tensor of its own; asks who wants a gradient."""

    @staticmethod
    def forward(x, alpha):
        return torch.empty_like(x).copy_(x)

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None, None
        return g.clone().mul_(ctx.alpha).neg_(), None


@reversal.solution
class ReversalSubtracts(Function):
    """Copies by adding 0; subtracts from zeros."""

    @staticmethod
    def forward(x, alpha):
        return x + 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.alpha = inputs

    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g) - ctx.alpha * g, None


@reversal.mistake(
    "value",
    "You multiply the value as well as the gradient: that is -alpha * x and its true derivative, and gradcheck passes. Here the "
    "value stays x, the gradient alone is reversed, and gradcheck must fail.",
)
class scales_the_value(ReversalNew):
    @staticmethod
    def forward(x, alpha):
        return -alpha * x


@reversal.mistake("value", FLOAT32)
class float32_inside(ReversalNew):
    @staticmethod
    def forward(x, alpha):
        return x.float() * 1


@reversal.mistake(
    "value",
    "save_for_backward takes tensors, and alpha is a number. Keep it as an attribute: ctx.alpha = alpha. And x need not be saved.",
)
class alpha_saved_as_tensor(ReversalNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


@reversal.mistake(
    "value",
    "You return x and announce it with mark_dirty, which declares a change in place: torch refuses that for a leaf, and x would "
    "be part of the new graph. Return a new tensor, x.clone().",
)
class marked_dirty(ReversalNew):
    @staticmethod
    def forward(x, alpha):
        return x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.alpha = inputs[1]
        ctx.mark_dirty(inputs[0])


@reversal.mistake(
    "gradient",
    "Your gradient is scaled by alpha and not reversed: the sign is missing. It is -alpha times the upstream gradient.",
)
class sign_flipped(ReversalNew):
    @staticmethod
    def backward(ctx, g):
        return ctx.alpha * g, None


@reversal.mistake("gradient", "Your gradient is reversed and not scaled: the factor alpha is missing.")
class factor_missing(ReversalNew):
    @staticmethod
    def backward(ctx, g):
        return -g, None


@reversal.mistake("gradient", "Your gradient is -alpha alone: the upstream gradient is missing. Multiply by it.")
class upstream_ignored(ReversalNew):
    @staticmethod
    def backward(ctx, g):
        return torch.full_like(g, -ctx.alpha), None


@reversal.mistake(
    "gradient",
    "Your gradient is multiplied by x. The value of forward plays no part in it: it is -alpha times the upstream gradient.",
)
class multiplied_by_the_input(ReversalNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.alpha = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return -ctx.alpha * g * x, None


@reversal.mistake(
    "gradient",
    "Your backward returns one gradient. Torch wants one for each argument of forward: return the gradient of x, and None for "
    "alpha.",
)
class none_forgotten(ReversalNew):
    @staticmethod
    def backward(ctx, g):
        return -ctx.alpha * g


@reversal.mistake(
    "gradient",
    "Your backward returns a gradient in the second place, which is that of alpha: a Python number can have none. Return the "
    "gradient of x first, then None.",
)
class gradient_for_alpha(ReversalNew):
    @staticmethod
    def backward(ctx, g):
        return -ctx.alpha * g, -g.sum()


@reversal.mistake(
    "gradient", "Your backward returns None for x (is a return statement missing?): x gets no gradient at all."
)
class nothing_returned(ReversalNew):
    @staticmethod
    def backward(ctx, g):
        return None, None


@reversal.mistake("gradient", ZEROS_RETURNED)
class zeros_returned(ReversalNew):
    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g), None


@reversal.mistake(
    "gradient",
    "Your gradient is nan where x is infinite: x is in your formula, if only as 0 * x. The gradient depends on alpha and the "
    "upstream gradient alone, so x need not be saved.",
)
class nan_at_infinite_inputs(ReversalNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.alpha = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.alpha * g + 0 * ctx.saved_tensors[0], None


@reversal.mistake(
    "alphas",
    "You make a tensor of alpha, and beside a float16 that becomes a float16, which ends at 65504: a larger alpha is infinite. Keep "
    "the number as it is, as an attribute.",
)
class alpha_in_the_dtype_of_x(ReversalNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, alpha = inputs
        ctx.save_for_backward(torch.tensor(alpha, dtype=x.dtype))

    @staticmethod
    def backward(ctx, g):
        return -ctx.saved_tensors[0] * g, None


@reversal.mistake(
    "alphas",
    "You make a tensor of alpha: torch.tensor(alpha) is float32, so for float64 input half of the digits of your gradient are "
    "lost. Keep the number as it is, as an attribute.",
)
class alpha_in_float32(ReversalNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(torch.tensor(inputs[1]))

    @staticmethod
    def backward(ctx, g):
        return -ctx.saved_tensors[0] * g, None


@reversal.mistake("gradient", NO_FUNCTION)
def no_function(x, alpha):
    return _scaled(x, -alpha)


@reversal.mistake(
    "alphas",
    "An alpha of 0 is taken for a missing one (alpha or 1.0) and replaced: in Python 0 is false. Use the argument as it is.",
)
class zero_alpha_replaced(ReversalNew):
    @staticmethod
    def backward(ctx, g):
        return -(ctx.alpha or 1.0) * g, None


@reversal.mistake(
    "alphas", "At alpha = 0 you return None for x. The text wants zeros there: 0 is a factor like any other."
)
class none_at_zero(ReversalNew):
    @staticmethod
    def backward(ctx, g):
        return (-ctx.alpha * g if ctx.alpha else None), None


@reversal.mistake(
    "alphas", "Your gradient takes |alpha|: a negative alpha has to give -alpha all the same, which is positive."
)
class magnitude_of_alpha(ReversalNew):
    @staticmethod
    def backward(ctx, g):
        return -abs(ctx.alpha) * g, None


@reversal.mistake(
    "alphas",
    "You bound alpha from above. The text allows a number of any size: it is the caller's to choose.",
)
class alpha_bounded(ReversalNew):
    @staticmethod
    def backward(ctx, g):
        return -max(-1000, min(ctx.alpha, 1000)) * g, None


@reversal.mistake(
    "alphas",
    "You cut negative values of alpha off. The text allows every number: -alpha is positive there, and so it stays.",
)
class alpha_clamped(ReversalNew):
    @staticmethod
    def backward(ctx, g):
        return -max(ctx.alpha, 0) * g, None


@reversal.mistake(
    "alphas",
    "Your argument is not called alpha, so a caller who names it gets a TypeError. Use the names of the task's text.",
)
class argument_renamed(ReversalNew):
    @staticmethod
    def forward(x, factor):
        return x.clone()


@reversal.mistake("second_order", CUT_OFF)
class not_differentiable_twice(ReversalNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return -ctx.alpha * g, None


@reversal.mistake(
    "contract",
    "You return x itself, a view of it (view_as) or its detached twin: all share its memory. Changing the output in place then "
    "raises, or changes x. Return a copy, x.clone().",
)
class returns_its_input(ReversalNew):
    @staticmethod
    def forward(x, alpha):
        return x


@reversal.mistake(
    "contract",
    "contiguous, to and reshape copy only where they must: here they return x itself, and changing the output in place raises, "
    "or changes x. Return x.clone().",
)
class copied_only_where_needed(ReversalNew):
    @staticmethod
    def forward(x, alpha):
        return x.contiguous()


@reversal.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(ReversalNew):
    @staticmethod
    def backward(ctx, g):
        return g.mul_(-ctx.alpha), None


@reversal.mistake(
    "contract",
    "You save the output, which backward does not need: when somebody changes it in place, torch refuses the backward. Save "
    "nothing; alpha is a number and stays on ctx.",
)
class saves_output(ReversalNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.alpha = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return -ctx.alpha * g * torch.ones_like(y), None


@reversal.mistake(
    "contract",
    "You keep alpha outside ctx (on the class, or in a global): a second call with another alpha overwrites it before the first "
    "one's backward. Each call has its own ctx: ctx.alpha = alpha.",
)
class kept_outside_ctx(ReversalNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        GLOBAL["alpha"] = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return -GLOBAL["alpha"] * g, None


scale = Task(
    "ScaleGradient",
    "ScaleGradient.apply(x, factor)",
    lambda x, factor: _scaled(x, factor),
    _scaled_checks({}, "factor", "the factor times the upstream gradient"),
)


@scale.solution
class ScaleNew(Function):
    """In the form of chapter 3."""

    @staticmethod
    def forward(x, factor):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None


@scale.mistake(
    "value",
    "You multiply the value as well as the gradient: that is x * factor and its true derivative, and gradcheck passes. Here the "
    "value must stay x, and gradcheck must fail.",
)
class scales_the_value(ScaleNew):
    @staticmethod
    def forward(x, factor):
        return x * factor


@scale.mistake(
    "contract",
    "You return x itself, which torch hands out as a view, so an in-place operation on your output raises; return x.clone().",
)
class returns_its_input(ScaleNew):
    @staticmethod
    def forward(x, factor):
        return x


# --- round_ste --------------------------------------------------------------------------------------------------------

GRAPH = (look.differentiable, look.no_function)
ROUNDED = (*look.FORWARD[:-1], look.no_function, look.exact)
PASSED = (*look.FIRST[:4], *GRAPH, look.gradient, look.second_order)


def _between(draw: Draw):
    """Numbers between two integers, of both signs."""
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, reach=9.0, dtype=dtype)


def _of_a_dtype(draw: Draw, dtype: torch.dtype) -> Tensor:
    """Small numbers, halves, and numbers of every size that the dtype holds, with few and with no binary places; the odd
    integers at the end of those that it holds."""
    bits = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23, torch.float64: 52}[dtype]
    top = 15 if dtype == torch.float16 else 120 if dtype != torch.float64 else 1000
    powers = torch.tensor([bits - 2, bits - 1, bits, bits + 1, (bits + top) // 2, top], dtype=DOUBLE)
    large = draw.sides(6, away=1.01, reach=1.9) * 2**powers
    odd = torch.tensor([2 ** (bits - 1) + 1, 2**bits - 1, 2 ** (bits + 1) - 1], dtype=DOUBLE)
    return torch.cat([draw.between(-4, 4, 60), torch.arange(-4.5, 5, 0.5), large, odd, -odd]).to(dtype)


def _rounded(x: Tensor) -> Tensor:
    """torch.round, and the gradient of the identity: by adding a zero."""
    return torch.round(x).detach() + (x - x.detach())


def only_where_x_does(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """The output requires no gradient where x requires none."""
    if any(yours.differentiable) and not any(case.requires_grad):
        text = "The output requires a gradient although x does not, so torch builds graphs behind it for nothing."
        return look.Finding("function", text, {"case": look.describe(call, case)})
    return None


round_task = Task(
    "round_ste",
    "round_ste(x)",
    _rounded,
    (
        Check(
            "value",
            2,
            "the output is torch.round(x) exactly, in every dtype, shape and layout, for every size",
            "An output beside the grid is not a rounded number: what indexes a table or counts levels with it goes wrong.",
            lambda d: [
                *_layouts(d.forms(_between(d), order=0)),
                *(d.case(f"{str(t)[6:]} numbers of every size", _of_a_dtype(d, t), order=0) for t in DTYPES),
                d.case("every size", d.scales(12), order=0),
                d.case("an input that needs no gradient", d.sides(4, reach=9.0), order=0, requires=(False,)),
            ],
            ROUNDED,
        ),
        Check(
            "gradient",
            2,
            "the gradient is the upstream gradient, whatever x is, and can be differentiated again",
            "Backward is to see the identity, as if nothing had been rounded.",
            lambda d: [
                *_layouts(d.forms(_between(d))),
                d.case("every size", d.scales(12), upstream=d.scales(12)),
                d.case("halves and integers", torch.arange(-2, 2.5, 0.5, dtype=DOUBLE)),
                *(d.case(f"{str(t)[6:]} numbers of every size", _of_a_dtype(d, t)) for t in DTYPES),
                d.case("differentiated again", _between(d)(6), order=2),
            ],
            PASSED,
        ),
        Check(
            "contract",
            1,
            "x stays as it was, and the output is a new tensor, made without a Function",
            MANNERS,
            lambda d: [
                d.case("both signs", _between(d)(6), watch=("state", "overwrite")),
                d.case("a transposed input", _between(d)(3, 2).t()),
                d.case("forward alone", _between(d)(6), order=0),
                d.case("an input that needs no gradient", _between(d)(6), order=0, requires=(False,)),
                d.case("integers", torch.arange(-2, 3, dtype=DOUBLE)),
            ],
            (*PASSED[:-1], only_where_x_does, look.untouched, look.stateless, look.guarded),
        ),
    ),
)


@round_task.solution
def by_difference(x):
    """The usual form."""
    return x + (torch.round(x) - x).detach()


@round_task.solution
def by_adding_zero(x):
    """The rounded number, plus x - x, which carries the gradient."""
    return x.round().detach() + (x - x.detach())


@round_task.solution
def under_no_grad(x):
    """no_grad in place of detach."""
    with torch.no_grad():
        step = x.round() - x
    return x.add(step)


@round_task.solution
def by_subtraction(x):
    """Takes the fraction away."""
    fraction = x.detach() - x.detach().round()
    return x - fraction


@round_task.solution
def half_detached(x):
    """round's own gradient is 0, so one detach is enough."""
    return x + (torch.round(x) - x.detach())


@round_task.mistake(
    "value",
    "The formula is right on paper and your value is not exact: (round(x) + x) - x.detach() rounds on the way, once at the sum. "
    "Put the parentheses so that the two numbers that are close, or equal, are subtracted first.",
)
def inexact_order(x):
    return torch.round(x).detach() + x - x.detach()


@round_task.mistake(
    "value",
    "Your value is 2x - round(x): the difference is taken the wrong way round. Add round(x) - x to x.",
)
def difference_reversed(x):
    return x + (x - torch.round(x)).detach()


@round_task.mistake("value", "Your value is x + round(x): what is added to x has to be the difference, round(x) - x.")
def sum_for_difference(x):
    return x + torch.round(x).detach()


@round_task.mistake(
    "value",
    "floor(x + 0.5) rounds halves up: 0.5 gives 1. torch.round rounds them to the even number, 0.5 to 0 and 1.5 to 2.",
)
def halves_up(x):
    return x + (torch.floor(x + 0.5) - x).detach()


@round_task.mistake("value", "You cut the fraction off (trunc, or a conversion to int): 1.7 gives 1. Use torch.round.")
def truncated(x):
    return x + (torch.trunc(x) - x).detach()


@round_task.mistake("value", "Your value is x: torch.round is missing from what is detached.")
def not_rounded(x):
    return x.detach() + (x - x.detach())


@round_task.mistake("value", FLOAT32)
def float32_inside(x):
    x = x.float()
    return x + (torch.round(x) - x).detach()


@round_task.mistake("value", NARROWED)
def float32_and_back(x):
    return x + (torch.round(x.float()).to(x.dtype) - x).detach()


@round_task.mistake(
    "value",
    "You go through integers, which end at 2^31 or 2^63: larger numbers come back as something else. torch.round keeps the dtype.",
)
def through_integers(x):
    return x + (torch.round(x).to(torch.int32) - x).detach()


@round_task.mistake(
    "value",
    "x * (round(x) / x) is nan at 0 and not exact elsewhere, and its gradient is round(x) / x. Add a detached difference in "
    "place of multiplying by a ratio.",
)
def ratio_for_difference(x):
    return x * (torch.round(x) / x).detach()


@round_task.mistake(
    "gradient",
    "Your gradient is zero everywhere: x cancels in your formula, or enters through round alone, whose derivative is 0. Detach "
    "the difference round(x) - x, and nothing else.",
)
def zeros_returned(x):
    return x + (torch.round(x) - x)


@round_task.mistake(
    "gradient",
    "All of your output is detached, so it needs no gradient and nothing reaches x. Detach the difference round(x) - x alone; "
    "the x that it is added to stays in the graph.",
)
def everything_detached(x):
    return (x + (torch.round(x) - x)).detach()


@round_task.mistake(
    "gradient",
    "Your gradient has the wrong sign: you detached the wrong x. The one that stays in the graph is added, not subtracted.",
)
def wrong_tensor_detached(x):
    return x.detach() + (torch.round(x) - x)


@round_task.mistake(
    "gradient",
    "requires_grad_ on a detached tensor makes a new leaf, which nothing connects to x: x gets no gradient. Add the detached "
    "difference to x.",
)
def new_leaf(x):
    return torch.round(x).detach().requires_grad_()


@round_task.mistake(
    "gradient",
    "Your gradient is 0 where |x| > 1: that ramp is Binarize's. round_ste passes the upstream gradient everywhere.",
)
def ramp_of_binarize(x):
    ramp = x.clamp(-1, 1)
    return torch.round(x).detach() + (ramp - ramp.detach())


@round_task.mistake(
    "gradient",
    "You clamp the gradient to [-1, 1] in a hook. The straight-through estimator of the text passes it unchanged.",
)
def clips_upstream(x):
    y = x + (torch.round(x) - x).detach()
    if y.requires_grad:
        y.register_hook(lambda g: g.clamp(-1, 1))
    return y


@round_task.mistake(
    "value",
    "Your numbers are right, and a torch.autograd.Function makes them. The text asks for the same without one: detach, and "
    "torch's own gradients of + and -.",
)
def by_a_function(x):
    class Round(Function):
        @staticmethod
        def forward(x):
            return torch.round(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return g

    return Round.apply(x)


@round_task.mistake(
    "contract",
    "You round x.detach() in place, and detach makes no copy: the caller's x is rounded too. Use torch.round, which makes a new "
    "tensor.",
)
def detach_taken_for_a_copy(x):
    rounded = x.detach().round_()
    return x + (rounded - x).detach()


@round_task.mistake(
    "contract",
    "Where every element of x is an integer already you return x itself: the caller who then changes the output in place changes x. "
    "The output is a new tensor, whatever x holds.",
)
def integers_as_they_are(x):
    return x if torch.equal(x, torch.round(x)) else x + (torch.round(x) - x).detach()


@round_task.mistake(
    "contract",
    "Your output requires a gradient where x requires none, so torch builds graphs behind it for nothing. Without requires_grad_ "
    "the output follows x.",
)
def always_requires_a_gradient(x):
    x = x if x.requires_grad else x.detach().requires_grad_()
    return x + (torch.round(x) - x).detach()


@round_task.mistake(
    "contract",
    "You round x itself, under no_grad or through .data, and return it: the caller's x is gone. Leave x as it is and return a "
    "new tensor.",
)
def writes_into_input(x):
    with torch.no_grad():
        x.round_()
    return x


@round_task.mistake(
    "contract",
    "You leave a hook on x, which is the caller's: it stays after your function has returned and answers for every other use "
    "of x. Detach the difference, and no hook is needed.",
)
def hook_on_the_input(x):
    rounded, seen = torch.round(x), []
    if x.requires_grad:
        rounded.register_hook(seen.append)
        x.register_hook(lambda g: seen[-1])
    return rounded


@round_task.mistake(
    "contract",
    "You switch x.requires_grad on, and x is the caller's: from then on torch builds graphs behind tensors that nobody trains. "
    "Leave it as it is; without it the rounded number alone is right.",
)
def switches_requires_grad_on(x):
    x.requires_grad_()
    return x + (torch.round(x) - x).detach()


TASKS = (binarize, reversal, round_task)
CHAPTER = (step, scale)
