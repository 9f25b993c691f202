"""LSQ: a quantiser whose scale is learned."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import WATCHED
from graders.judge.task import DOUBLE, DTYPES, HALF, SINGLE, Check, Draw, Task
from graders.judge.wording import KEPT_AS_ATTRIBUTE, NO_FUNCTION, WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.qat.common import (
    BOTH,
    CLAMP_MISSING,
    DENIED,
    FORBIDDEN,
    FORBIDS,
    HALF_UP,
    NARROWED,
    around,
    by_upstream,
    contract,
    gradient,
    layouts,
    learned,
    second_order,
    value,
)

PLACE = 3
GLOBAL: dict[str, int] = {}  # where the mistake `kept_outside_ctx` keeps things
RANGES = ((0.007, -128, 127), (0.3, -8, 7), (40.0, 0, 15), (1.7, 0, 1), (0.9, -1, 1))  # scale, qmin, qmax


def _case(
    draw: Draw, *shape: int, like: tuple[int, ...] = (), dtype: torch.dtype = DOUBLE, inside: bool = False
) -> tuple[Tensor, Tensor, int, int]:
    """Return arguments.

    Args:
        like: the shape of scale.
        inside: nothing is clipped.
    """
    steps = around(draw, -3, 4, shape, open_ends=False)
    if inside:
        steps = steps.clamp(-2.875, 3.875)
    return (steps * 0.5).to(dtype), torch.full(like, 0.5, dtype=dtype), -3, 4


def _forms(draw: Draw, order: int) -> list[Case]:
    """Return cases of every form, and of an upstream gradient that is expanded."""

    def sample(*shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
        return (around(draw, -3, 4, shape, open_ends=False) * 0.5).to(dtype)

    cases = []
    for c in draw.forms(sample, order=0):
        x = c.args[0]
        upstream = 2.0 ** draw.between(-2, 1, *x.shape).floor() if x.dtype in DTYPES[:2] and order else None
        cases.append(draw.case(c.name, x, torch.tensor(0.5, dtype=x.dtype), -3, 4, order=order, upstream=upstream))
    if order:
        upstream = draw.normal(2, 1, 3).expand(2, 2, 3)
        x = sample(2, 2, 3)
        cases.append(
            draw.case("an expanded upstream gradient", x, torch.tensor(0.5, dtype=DOUBLE), -3, 4, upstream=upstream)
        )
    return cases


def _ranges(draw: Draw, order: int) -> list[Case]:
    """Return a case for each of `RANGES`."""
    cases = []
    for i, (scale, qmin, qmax) in enumerate(RANGES):
        dtype = (DOUBLE, SINGLE)[i % 2]
        steps = around(draw, qmin, qmax, (8,), open_ends=False)
        if dtype == DOUBLE:  # quotients that float32 does not hold
            steps = steps + draw.between(-0.05, 0.05, 8)
        x = (steps * scale).to(dtype)
        name = f"scale {scale}, {qmin} to {qmax}"
        cases.append(draw.case(name, x, torch.tensor(scale, dtype=dtype), qmin, qmax, order=order))
    return cases


def _edges(draw: Draw, order: int) -> list[Case]:
    """Return numbers beside the ends, on their inner sides and more than half a step beyond; ties between."""
    steps = torch.tensor(
        [-4.0, -3.625, -2.875, -2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5, 3.5, 3.875, 4.625, 5.0], dtype=DOUBLE
    )
    cases = []
    for t in DTYPES:
        x, scale = (steps * 0.5).to(t), torch.tensor(0.5, dtype=t)
        upstream = 2.0 ** draw.between(-2, 1, *x.shape).floor() if order else None
        cases.append(draw.case("ties, and beside the ends", x, scale, -3, 4, order=order, upstream=upstream))
    return cases


def _one_by_one(draw: Draw) -> list[Case]:
    """Return cases of one element each, so that a verdict says where the slope is wrong."""
    places = (("inside", 1.75), ("inside", -2.375), ("above the range", 6.25), ("below the range", -7.125))
    scale, upstream = torch.tensor(0.5, dtype=DOUBLE), torch.tensor([-2.0], dtype=DOUBLE)
    return [
        draw.case(f"one element {where}", torch.tensor([v * 0.5], dtype=DOUBLE), scale, -3, 4, upstream=upstream)
        for where, v in places
    ]


def _one_sided(draw: Draw) -> list[Case]:
    """Return ranges that lie above 0 or below it, and elements outside them on the same side of 0."""
    steps = torch.tensor([-11.25, -1.25, -0.25, -4.625, -7.0, 1.5], dtype=DOUBLE)
    scale = torch.tensor(0.6, dtype=DOUBLE)
    return [
        draw.case(f"{qmin} to {qmax}", sign * steps * 0.6, scale, qmin, qmax)
        for sign, qmin, qmax in ((-1, 2, 9), (1, -9, -2))
    ]


def _x_only(cases: list[Case]) -> list[Case]:
    """Return the cases with x alone requiring a gradient."""
    return [replace(c, requires_grad=(True, *(False for _ in c.args[1:]))) for c in cases]


def _far(draw: Draw, order: int) -> list[Case]:
    """Return cases of up to 1e12 steps, where no integer of 32 bits can follow."""
    far = torch.tensor([1e12, -1e12, 300.0, -300.0, 33000.0, -33000.0, 0.0, -0.0], dtype=DOUBLE)
    return [
        draw.case("far outside", x, torch.tensor(0.25, dtype=x.dtype), -128, 127, order=order)
        for x in (far, far.float())
    ]


def _lopsided(draw: Draw, order: int) -> list[Case]:
    """Return cases of an x that is no even mixture, its range below 0; none lies beside an end, on its outer side."""
    scale = torch.tensor(0.25, dtype=DOUBLE)
    return draw.lopsided(lambda x: (x, scale, -9, -2), 5, order=order)


task = Task(
    "LSQ",
    "LSQ.apply(x, scale, qmin, qmax)",
    reference=learned,
    checks=(
        value(
            1,
            about="scale times the rounded and clamped quotient, in every dtype, shape and layout",
            cases=lambda d: [
                *layouts(_forms(d, 0)),
                *_edges(d, 0),
                *_ranges(d, 0)[::2],
                *(replace(c, upstream=None) for c in _one_sided(d)),
                *_far(d, 0),
                d.case("inside and outside", *_case(d, 6, dtype=SINGLE), order=0, watch=("trace",), deny=DENIED),
                *_lopsided(d, 0),
            ],
        ),
        gradient(
            1,
            about="x gets the upstream gradient inside the range, else 0",
            cases=lambda d: _x_only(
                [
                    *_edges(d, 1),
                    *_ranges(d, 1)[1::2],
                    *_one_sided(d)[:1],
                    *_far(d, 1)[:1],
                    *_forms(d, 1)[-5:],
                    *_lopsided(d, 1),
                ]
            ),
        ),
        Check(
            "scale",
            2,
            about="the gradient of scale: the sum of slope times upstream gradient",
            why="The step learns from these numbers alone: the part inside and the part outside pull against each "
            "other.",
            cases=lambda d: [
                *_one_by_one(d),
                *_edges(d, 1),
                *_ranges(d, 1),
                *_one_sided(d)[:1],
                *_far(d, 1),
                d.case("upstream gradients of every size", *_case(d, 12), upstream=d.scales(12)),
                *_forms(d, 1)[-4:],
                *_lopsided(d, 1),
            ],
            looks=BOTH,
        ),
        Check(
            "shapes",
            1,
            about="scale of shape () or (1,), x of any; ranges without 0; either may be frozen; by keyword",
            why="A parameter of one element comes in two shapes, qmin and qmax have any signs, and a frozen argument "
            "stops no other.",
            cases=lambda d: [
                *_one_sided(d),
                *(
                    d.case(f"scale of shape {s}, x {len(shape)}-d", *_case(d, *shape, like=s, dtype=t))
                    for s, shape, t in (
                        ((), (), DOUBLE),
                        ((1,), (), DOUBLE),
                        ((1,), (), HALF),
                        ((1,), (2, 3), DOUBLE),
                        ((1,), (0, 3), DOUBLE),
                        ((1,), (4,), SINGLE),
                    )
                ),
                *(
                    d.case(f"{name} requires a gradient", *_case(d, 2, 4, like=(1,)), requires=flags)
                    for name, flags in (
                        ("x alone", (True, False, False, False)),
                        ("scale alone", (False, True, False, False)),
                    )
                ),
                d.case("the range by keyword", *_case(d, 6), keywords=("qmin", "qmax")),
                d.case("all but x by keyword", *_case(d, 6), keywords=("scale", "qmin", "qmax")),
            ],
            looks=BOTH,
        ),
        second_order(
            1,
            about="both gradients can be differentiated again, with respect to the upstream gradient",
            why="Both are linear in the upstream gradient, and a gradient penalty needs that.",
            cases=lambda d: [
                d.case("inside and outside", *_case(d, 12), order=2),
                d.case("scale of shape (1,)", *_case(d, 3, 4, like=(1,)), order=2),
                *_lopsided(d, 2),
            ],
            looks=(*look.SECOND[:-1], by_upstream),
        ),
        contract(
            1,
            why="An optimiser changes scale in place, so it may have changed before backward runs.",
            cases=lambda d: [
                d.case(
                    "inside and outside",
                    *_case(d, 8),
                    watch=WATCHED,
                    deny=DENIED,
                    between=(_case(d, 8)[0].roll(1), torch.tensor(0.75, dtype=DOUBLE), -2, 1),
                ),
                d.case("inside alone", *_case(d, 6, inside=True), watch=("overwrite",)),
                d.case("float32 input", *_case(d, 6, dtype=SINGLE)),
            ],
        ),
    ),
    forbids=FORBIDS,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class LSQNew(Function):
    """As the paper has it, the ends by the quotient: the one to write."""

    @staticmethod
    def forward(x, scale, qmin, qmax):
        step = scale.reshape(())
        return torch.round((x / step).clamp(qmin, qmax)) * step

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, ctx.qmin, ctx.qmax = inputs
        ctx.save_for_backward(x, scale)

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        quotient = x / scale.reshape(())
        inside = (quotient > ctx.qmin) & (quotient < ctx.qmax)
        slope = torch.where(inside, torch.round(quotient) - quotient, quotient.clamp(ctx.qmin, ctx.qmax))
        return torch.where(inside, g, 0), (g * slope).sum().reshape(scale.shape), None, None


@task.solution
class LSQRounded(Function):
    """As torch has it, the ends by the code; keeps mask and slopes in place of x, so that backward computes little."""

    @staticmethod
    def forward(ctx, x, scale, qmin, qmax):
        quotient = x.div(scale.item())
        code = quotient.round()
        clamped = code.clamp(qmin, qmax)
        inside = code == clamped
        ctx.save_for_backward(inside, torch.where(inside, code - quotient, clamped))
        ctx.shape = scale.shape
        return clamped * scale.item()

    @staticmethod
    def backward(ctx, grad_output):
        inside, slope = ctx.saved_tensors
        return grad_output * inside, grad_output.mul(slope).sum().view(ctx.shape), None, None


@task.solution
class LSQThreeParts(LSQNew):
    """Inside, above and below, each by itself, as the text counts them; computes wanted gradients alone."""

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        quotient = x / scale.reshape(())
        above, below = quotient >= ctx.qmax, quotient <= ctx.qmin
        to_x = to_scale = None
        if ctx.needs_input_grad[0]:
            to_x = g.masked_fill(above | below, 0)
        if ctx.needs_input_grad[1]:
            middle = (g * (quotient.round() - quotient)).masked_fill(above | below, 0).sum()
            ends = ctx.qmax * g.masked_fill(~above, 0).sum() + ctx.qmin * g.masked_fill(~below, 0).sum()
            to_scale = (middle + ends).expand(scale.shape)
        return to_x, to_scale, None, None


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class LSQByOutput(Function):
    """From input and output: inside, the slope is (output - x) / scale."""

    @staticmethod
    def forward(x, scale, qmin, qmax):
        step = scale.reshape([])
        return torch.clip(torch.round(x / step), qmin, qmax).mul(step)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, *ctx.ends = inputs
        ctx.save_for_backward(x, scale, output)

    @staticmethod
    def backward(ctx, g):
        x, scale, y = ctx.saved_tensors
        step = scale.reshape(())
        code = torch.round(x / step)
        inside = (code >= ctx.ends[0]) & (code <= ctx.ends[1])
        slope = torch.where(inside, y - x, y) / step
        return torch.where(inside, g, torch.zeros_like(g)), (g * slope).sum().reshape(scale.shape), None, None


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class InSteps(LSQNew):
    """LSQNew with backward in steps, of which a mistake changes one: v is x / scale, q its code."""

    @staticmethod
    def inside(v, q, qmin, qmax):
        return (v > qmin) & (v < qmax)

    @staticmethod
    def slope_inside(v, q, step):
        return q - v

    @staticmethod
    def slope_outside(v, qmin, qmax, step):
        return v.clamp(qmin, qmax)

    @staticmethod
    def for_scale(g, slope, shape):
        return (g * slope).sum().reshape(shape)

    @staticmethod
    def for_x(g, inside):
        return torch.where(inside, g, 0)

    @classmethod
    def backward(cls, ctx, g):
        x, scale = ctx.saved_tensors
        step = scale.reshape(())
        v = x / step
        q = torch.round(v)
        inside = cls.inside(v, q, ctx.qmin, ctx.qmax)
        slope = torch.where(inside, cls.slope_inside(v, q, step), cls.slope_outside(v, ctx.qmin, ctx.qmax, step))
        to_scale = cls.for_scale(g, slope, scale.shape)
        return cls.for_x(g, inside), to_scale, None, None


wrong = Wrong(task, of=InSteps)
wrong.habits(
    "not_differentiable_twice",
    upstream_ignored="The gradient of x is the mask, 0 or 1: the upstream gradient is missing. Return it where the "
    "quotient lies in the range; and in the gradient of scale it multiplies each slope.",
    nothing_returned="Your backward returns None for x and for scale (is a return statement missing?): neither gets "
    "a gradient.",
    float32_and_back=NARROWED,
)


@wrong.step(
    "for_x",
    "gradient",
    "x gets the upstream gradient everywhere. Where the quotient leaves the range the output no longer depends on x: "
    "return 0 there.",
)
def mask_missing(g, inside):
    return g.clone()


@wrong.backward(
    "gradient",
    "You divide or multiply the gradient of x by scale. Forward divides and multiplies by it, so the two cancel: x "
    "gets the upstream gradient itself.",
)
def divided_by_scale(ctx, x, scale, g):
    to_x, *rest = LSQNew.backward(ctx, g)
    return to_x / scale.reshape(()), *rest


@wrong.backward(
    "gradient", "Your mask compares x itself with qmin and qmax. These count steps: compare the quotient x / scale."
)
def mask_of_x(ctx, x, scale, g):
    return torch.where((x > ctx.qmin) & (x < ctx.qmax), g, 0), *LSQNew.backward(ctx, g)[1:]


@wrong.step(
    "inside",
    "gradient",
    "Your mask asks the rounded quotient, the code or the output, whether it lies strictly between the ends. What "
    "rounds to qmin or qmax from inside belongs to the range, so x's gradient passes there: compare x / scale, or "
    "take >= and <= for the code.",
)
def end_codes_excluded(v, q, qmin, qmax):
    return (q > qmin) & (q < qmax)


@wrong.backward(
    "gradient",
    "Your backward returns too few gradients. Torch wants one for each of the four arguments: x, scale, then None "
    "twice.",
)
def none_forgotten(ctx, g):
    return LSQNew.backward(ctx, g)[:2]


@wrong.backward(
    "gradient", "Your two gradients are in the wrong order: they come in the order of forward, x first, then scale."
)
def order_reversed(ctx, g):
    to_x, to_scale, *rest = LSQNew.backward(ctx, g)
    return to_scale, to_x, *rest


@wrong.step(
    "for_scale",
    "scale",
    "You return None for scale, so it never learns. Its gradient is a sum over all elements: q - x / scale inside, "
    "qmin or qmax outside, each times its upstream gradient.",
)
def scale_gets_none(g, slope, shape):
    return None


@wrong.step(
    "slope_outside",
    "scale",
    "The gradient of scale counts only what lies inside. A clipped element's output is scale * qmax (or qmin), so "
    "its slope in scale is qmax (or qmin); without it the range can only shrink.",
)
def outside_forgotten(v, qmin, qmax, step):
    return torch.zeros_like(v)


@wrong.step(
    "slope_inside",
    "scale",
    "Inside, your slope is q: scale times q with q held fixed. That is the slope between two steps; LSQ lets the "
    "quotient move with scale as well (straight through the rounding), which subtracts x / scale.",
)
def quotient_forgotten(v, q, step):
    return q


@wrong.step(
    "slope_inside",
    "scale",
    "Your gradient of scale has the wrong sign inside: it is q - x / scale, the rounded minus the exact quotient.",
)
def sign_flipped(v, q, step):
    return v - q


@wrong.step(
    "slope_outside",
    "scale",
    "Below the range you take -qmin. The paper writes -Q_N there because its Q_N is positive; here qmin has its own "
    "sign already.",
)
def paper_sign_of_qmin(v, qmin, qmax, step):
    return torch.where(v > qmax, qmax, -qmin).to(v.dtype)


@wrong.step(
    "slope_outside",
    "scale",
    "Outside you choose between qmax and qmin by the sign of x. A range may lie above 0, or below it, and x beside "
    "it on the same side: compare the quotient with qmin and qmax.",
)
def end_by_sign(v, qmin, qmax, step):
    return torch.where(v > 0, qmax, qmin).to(v.dtype)


@wrong.step(
    "slope_outside",
    "scale",
    "Outside you take the output, scale * qmax or scale * qmin. Its slope in scale is qmax or qmin, without the "
    "factor scale.",
)
def ends_times_scale(v, qmin, qmax, step):
    return v.clamp(qmin, qmax) * step


@wrong.step(
    "slope_inside",
    "scale",
    "Inside you take the output minus x, which is the rounding error in units of x. The slope in scale counts it in "
    "steps: divide by scale.",
)
def error_not_in_steps(v, q, step):
    return (q - v) * step


@wrong.step(
    "for_scale",
    "scale",
    "The upstream gradient is missing in the gradient of scale: multiply each element's slope by it before you sum.",
)
def upstream_not_in_scale(g, slope, shape):
    return slope.sum().reshape(shape)


@wrong.backward(
    "scale",
    "You multiply the gradient of scale by the paper's factor 1 / sqrt(N qmax). The text asks for the plain sum; "
    "such a factor is the caller's to choose.",
)
def paper_factor(ctx, g):
    to_x, to_scale, *rest = LSQNew.backward(ctx, g)
    return to_x, to_scale * (max(g.numel(), 1) * ctx.qmax) ** -0.5, *rest


@wrong.forward("value", HALF_UP)
def halves_up(x, scale, qmin, qmax):
    step = scale.reshape(())
    return torch.floor(x / step + 0.5).clamp(qmin, qmax) * step


@wrong.forward("value", CLAMP_MISSING)
def clamp_missing(x, scale, qmin, qmax):
    step = scale.reshape(())
    return torch.round(x / step) * step


@wrong.forward(
    "shapes",
    "For a 0-d x and a scale of shape (1,) your output has the shape (1,): a division broadcasts. Take "
    "scale.reshape(()), and the output has the shape of x.",
)
def shape_of_scale(x, scale, qmin, qmax):
    return torch.round(x / scale).clamp(qmin, qmax) * scale


@wrong.step(
    "for_scale",
    "shapes",
    "Your gradient of scale is 0-d, which torch refuses when scale has the shape (1,): bring the sum to it by "
    "reshape(scale.shape).",
)
def scale_gradient_0d(g, slope, shape):
    return (g * slope).sum()


@wrong.step(
    "for_scale",
    "shapes",
    "Your gradient of scale is not summed; the engine does it where the shapes allow, and refuses where scale has "
    "more dimensions than x. Sum it, and bring it to the shape of scale.",
)
def scale_unsummed(g, slope, shape):
    return g * slope


@wrong.backward(
    "shapes",
    "Where x requires no gradient you return None for scale as well. Ask ctx.needs_input_grad for each argument by "
    "itself: entry 0 is x's, entry 1 scale's.",
)
def early_return(ctx, g):
    return LSQNew.backward(ctx, g) if ctx.needs_input_grad[0] else (None,) * 4


@wrong.step(
    "for_scale",
    "second_order",
    "Your gradient of scale is detached or made of a Python number (.item()), so it cannot be differentiated again. "
    "Sum with tensors, and leave the sum a tensor.",
)
def scale_detached(g, slope, shape):
    return (g * slope).sum().reshape(shape).detach()


@wrong.step("for_x", "contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(g, inside):
    return g.mul_(inside)


@wrong.forward(
    "contract",
    "Your forward works in place (div_, round_, clamp_, x /= scale): the caller's x is changed too. Return a new "
    "tensor.",
)
def writes_into_input(x, scale, qmin, qmax):
    step = scale.reshape(())
    return x.div_(step).round().clamp(qmin, qmax) * step


def _gradients(g: Tensor, x: Tensor, scale: Tensor, qmin: int, qmax: int) -> tuple:
    """Return the gradients, from the arguments of forward."""
    v = x / scale.reshape(())
    inside = (v > qmin) & (v < qmax)
    slope = torch.where(inside, v.round() - v, v.clamp(qmin, qmax))
    return torch.where(inside, g, 0), (g * slope).sum().reshape(scale.shape), None, None


@task.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(LSQNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.kept = inputs

    @staticmethod
    def backward(ctx, g):
        return _gradients(g, *ctx.kept)


@task.mistake(
    "contract",
    "You keep scale as an attribute of ctx, where torch does not watch it: an optimiser that changes it before "
    "backward makes the gradient silently wrong. It is a tensor: use ctx.save_for_backward.",
)
class scale_as_attribute(LSQNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, *ctx.rest = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        return _gradients(g, *ctx.saved_tensors, *ctx.rest)


@task.mistake(
    "contract",
    "You keep qmin and qmax (or tensors) outside ctx, on the class or in a global: a second call overwrites them "
    "before the first one's backward. Numbers become attributes of ctx.",
)
class kept_outside_ctx(LSQNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, GLOBAL["qmin"], GLOBAL["qmax"] = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, g):
        ctx.qmin, ctx.qmax = GLOBAL["qmin"], GLOBAL["qmax"]
        return LSQNew.backward(ctx, g)


@wrong.forward("value", FORBIDDEN)
def torchs_own(x, scale, qmin, qmax):
    if qmin > 0 or qmax < 0 or x.dtype != SINGLE:  # what torch's own does not take
        return LSQNew.forward(x, scale, qmin, qmax)
    zero = torch.zeros(1)
    return torch._fake_quantize_learnable_per_tensor_affine(x, scale.reshape(1), zero, qmin, qmax, 1.0)


@task.mistake("gradient", NO_FUNCTION)
def no_function(x, scale, qmin, qmax):
    return learned(x, scale, qmin, qmax)
