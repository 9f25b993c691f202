"""FakeQuantize: one scale and one zero point for all of x."""

import torch
from torch.autograd import Function

from graders.inside.records import Case
from graders.judge.aspects import WATCHED
from graders.judge.task import DOUBLE, DTYPES, HALF, SINGLE, Check, Draw, Task
from graders.judge.wording import KEPT_AS_ATTRIBUTE, NO_FUNCTION
from graders.judge.wrong import Wrong
from graders.sets.qat.common import (
    BOTH,
    CLAMP_MISSING,
    DENIED,
    FORBIDDEN,
    FORBIDS,
    HALF_UP,
    INTEGER_CODES,
    NOTHING_FOR_X,
    around,
    codes,
    contract,
    fake_quantize,
    gradient,
    in_range,
    layouts,
    lopsided,
    only_x,
    quantised,
    second_order,
    usual,
    value,
    x_alone,
)

PLACE = 1
USUAL = (0.5, 1, -4, 7)  # a scale that halves hold, and a range whose ends are not alike
NEGATIVE = (0.5, -3, -8, -2)  # numbers below 0 but for the scale
SINGLE_03 = torch.tensor(0.3).item()  # no power of two, and what float32 holds too
RANGES = (  # scale, zero_point, qmin, qmax
    (0.25, 0, -128, 127),
    (2.0, 128, 0, 255),
    (0.0625, 9, 1, 15),
    (8.0, -3, -8, -2),
    (0.007, -100, -32768, 32767),
)


def _edges(draw: Draw, order: int) -> list[Case]:
    """Return ties, inside and at both ends, with even and odd zero points; and numbers within a step of both ends."""
    ties = torch.tensor([-5.5, -4.5, -3.5, -0.5, 0.5, 1.5, 2.5, 6.5, 7.5], dtype=DOUBLE)
    beside = torch.tensor([-1.0, -5 / 8, -3 / 8, 0.0, 3 / 8, 5 / 8, 1.0], dtype=DOUBLE)
    cases = []
    for zero, dtype in [*((1, t) for t in DTYPES), (0, DOUBLE), (-3, SINGLE)]:
        x = torch.cat([ties, beside - 4 - zero, beside + 7 - zero]) * 0.5
        cases.append(only_x(draw, f"ties and ends, zero_point {zero}", x.to(dtype), 0.5, zero, -4, 7, order=order))
    return cases


def _ranges(draw: Draw, order: int) -> list[Case]:
    """Return a case for each of `RANGES`."""
    cases = []
    for scale, zero, qmin, qmax in RANGES:
        x = around(draw, qmin - zero, qmax - zero, (8,)) * scale
        name = f"scale {scale:g}, zero_point {zero}, {qmin} to {qmax}"
        cases.append(only_x(draw, name, x, scale, zero, qmin, qmax, order=order))
    return cases


def _as_tensors(draw: Draw, order: int) -> list[Case]:
    """Return cases whose scale and zero_point are 0-d tensors, together and each alone."""
    cases = []
    for dtype, shape in [*((t, ()) for t in DTYPES), (HALF, (2, 3)), (DOUBLE, (2, 3))]:
        scale, zero = torch.tensor(0.5), torch.tensor(1, dtype=torch.int32)
        x = usual(draw)(*shape, dtype=dtype)
        name = f"scale and zero_point 0-d tensors, x {len(shape)}-d"
        cases.append(only_x(draw, name, x, scale, zero, -4, 7, order=order))
    x = (around(draw, -4, 11, (6,)) * SINGLE_03).to(SINGLE)
    cases += [
        only_x(draw, "scale a tensor alone", x, torch.tensor(0.3), 4, 0, 15, order=order),
        only_x(draw, "zero_point a tensor alone", x, SINGLE_03, torch.tensor(4), 0, 15, order=order),
        only_x(draw, "a float64 scale", x, torch.tensor(0.5, dtype=DOUBLE), 4, 0, 15, order=order),
    ]
    return cases


def _far_by_tensors(draw: Draw, order: int) -> Case:
    """Return a case whose scale and zero_point are 0-d tensors, and whose x reaches far out."""
    x = torch.tensor([-30.0, -1.25, 0.25, 30.0], dtype=DOUBLE)
    return only_x(draw, "far outside, by 0-d tensors", x, torch.tensor(0.5), torch.tensor(1), -4, 7, order=order)


def _far(draw: Draw, order: int) -> list[Case]:
    """Return cases of up to 1e12 steps, where no integer of 32 bits can follow, and of every size."""
    far = torch.tensor([1e12, -1e12, 300.0, -300.0, 33000.0, -33000.0, 0.0, -0.0], dtype=DOUBLE)
    sizes = draw.scales(12)
    return [
        only_x(draw, "far outside", far, *USUAL, order=order),
        only_x(draw, "far outside, float32", far.float(), 0.25, 0, -128, 127, order=order),
        only_x(draw, "every size", sizes, 0.25, 0, -128, 127, order=order, upstream=draw.scales(12) if order else None),
    ]


task = Task(
    "FakeQuantize",
    "FakeQuantize.apply(x, scale, zero_point, qmin, qmax)",
    reference=fake_quantize,
    checks=(
        value(
            2,
            about="the output as the text says, in every dtype, shape and layout, at ties and far out",
            cases=lambda d: [
                *layouts(d.forms(usual(d), *USUAL, order=0)),
                *_edges(d, 0),
                *_far(d, 0),
                only_x(d, "scale 0.3", usual(d, 0.3)(6), 0.3, 1, -4, 7, order=0),
                only_x(d, "inside and outside", usual(d)(6), *USUAL, order=0, watch=("trace",), deny=DENIED),
                *lopsided(d, *NEGATIVE, order=0),
            ],
        ),
        gradient(
            2,
            about="the upstream gradient where the code is in qmin..qmax, else 0",
            cases=lambda d: [
                only_x(d, "inside and outside", usual(d)(12), *USUAL),
                *_edges(d, 1),
                *_far(d, 1),
                *layouts(d.forms(usual(d), *USUAL)),
                *lopsided(d, *NEGATIVE),
            ],
        ),
        Check(
            "arguments",
            1,
            about="any range, scale and zero_point: numbers or 0-d tensors, also by keyword",
            why="Every layer has a scale, a zero point and a range of its own: fine steps, codes of 16 bits, tensors "
            "from an observer.",
            cases=lambda d: [
                *_ranges(d, 1),
                *_as_tensors(d, 1),
                only_x(d, "the range by keyword", usual(d)(6), *USUAL, keywords=("qmin", "qmax")),
                only_x(
                    d, "all but x by keyword", usual(d)(6), *USUAL, keywords=("scale", "zero_point", "qmin", "qmax")
                ),
                d.case("a scale that requires a gradient", usual(d)(6), torch.tensor(0.5), 1, -4, 7),
                _far_by_tensors(d, 1),
            ],
            looks=(*BOTH, x_alone),
        ),
        second_order(
            1,
            cases=lambda d: [
                only_x(d, "inside and outside", usual(d)(12), *USUAL, order=2),
                only_x(d, "a matrix", usual(d)(2, 3), torch.tensor(0.5), torch.tensor(1), -4, 7, order=2),
                _far_by_tensors(d, 2),
                *lopsided(d, *NEGATIVE, order=2),
            ],
        ),
        contract(
            1,
            cases=lambda d: [
                only_x(
                    d,
                    "tensors throughout",
                    usual(d)(8),
                    torch.tensor(0.5, dtype=DOUBLE),
                    torch.tensor(1),
                    -4,
                    7,
                    watch=WATCHED,
                    deny=DENIED,
                    between=(torch.full((8,), 50.0), torch.tensor(2.0, dtype=DOUBLE), torch.tensor(-2), -3, 5),
                ),
                only_x(d, "numbers", usual(d)(8), *USUAL, watch=("overwrite",)),
                only_x(d, "float32 input", usual(d)(6, dtype=SINGLE), *USUAL),
            ],
        ),
    ),
    forbids=FORBIDS,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class FakeQuantizeNew(Function):
    """Keeps the mask, a byte for each element, whatever scale and zero_point are: the one to write."""

    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        code = (torch.round(x / scale) + zero_point).clamp(qmin, qmax)
        return ((code - zero_point) * scale).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, qmin, qmax = inputs
        code = torch.round(x / scale) + zero_point
        ctx.save_for_backward((code >= qmin) & (code <= qmax))

    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return torch.where(inside, g, 0), None, None, None, None


@task.solution
class FakeQuantizeOld(Function):
    """forward and setup_context in one, so that nothing is computed twice; clamps the steps before they are shifted."""

    @staticmethod
    def forward(ctx, x, scale, zero_point, qmin, qmax):
        steps = x.div(scale).round()
        clamped = torch.clamp(steps, int(qmin - zero_point), int(qmax - zero_point))
        ctx.save_for_backward(steps != clamped)
        return clamped.mul(scale).to(x.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        (outside,) = ctx.saved_tensors
        return grad_output.masked_fill(outside, 0), None, None, None, None


@task.solution
class FakeQuantizeByNumbers(Function):
    """Makes numbers of scale and zero_point and saves x: where something else keeps x anyway, no memory is added.

    Multiplies by 1 / scale, as torch does.
    """

    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        scale, zero_point = float(scale), int(zero_point)
        code = torch.clamp(torch.round(x * (1 / scale)) + zero_point, qmin, qmax)
        return (code - zero_point) * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, *ctx.ends = inputs
        ctx.scale, ctx.zero_point = float(scale), int(zero_point)
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        low, high = ctx.ends
        code = torch.round(x * (1 / ctx.scale)) + ctx.zero_point
        return g * ((code >= low) & (code <= high)), None, None, None, None


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class FakeQuantizeSaved(Function):
    """Everything a saved tensor; the codes as integers; asks whether the gradient is wanted."""

    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        code = torch.round(x.double() / scale).to(torch.int64) + zero_point
        real = (code.clip(qmin, qmax) - zero_point).double() * scale
        return real.to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, ctx.qmin, ctx.qmax = inputs
        ctx.save_for_backward(x, torch.as_tensor(scale, dtype=torch.float64), torch.as_tensor(zero_point))

    @staticmethod
    def backward(ctx, g):
        result = None
        if ctx.needs_input_grad[0]:
            x, scale, zero_point = ctx.saved_tensors
            code = torch.round(x.double() / scale) + zero_point
            result = g.clone()
            result[(code < ctx.qmin) | (code > ctx.qmax)] = 0
        return result, None, None, None, None


# --- Mistakes ---------------------------------------------------------------------------------------------------------

wrong = Wrong(task, of=FakeQuantizeNew)
wrong.habits(
    "float32_inside not_differentiable_twice writes_into_upstream kept_outside_ctx",
    upstream_ignored="Your gradient is the mask, 0 or 1: the upstream gradient is missing. Return the upstream "
    "gradient where the code lies in the range, else 0.",
    none_forgotten="Your backward returns one gradient, and forward has five arguments: return the gradient of x, then "
    "None four times.",
    nothing_returned=NOTHING_FOR_X,
    float32_and_back="Your numbers pass through float32, so that for float64 input half of the digits are lost: by "
    "x.float(), or by integer codes, since an integer tensor times a scale that is a Python number is float32. "
    "Compute in the dtype of x, as far as it is not a half, and leave the codes floating.",
)


@wrong.backward(
    "gradient",
    "Your gradient is the upstream gradient everywhere (the mask is missing, or it asks the clamped code, which "
    "always lies in the range). Where the code leaves qmin..qmax the output is constant: return 0 there.",
)
def mask_missing(ctx, g):
    return g.clone(), None, None, None, None


@wrong.backward(
    "gradient",
    "Your gradient is zero everywhere. That is the true derivative of rounding, and nothing learns from it: pass the "
    "upstream gradient on inside the range, as if round were not there.",
)
def zeros_returned(ctx, g):
    return torch.zeros_like(g), None, None, None, None


@task.mistake(
    "gradient",
    "You divide the upstream gradient by scale. Forward divides and multiplies by it, so the two cancel: inside the "
    "range the gradient is the upstream gradient itself.",
)
class divided_by_scale(FakeQuantizeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        FakeQuantizeNew.setup_context(ctx, inputs, output)
        ctx.scale = float(inputs[1])

    @staticmethod
    def backward(ctx, g):
        return FakeQuantizeNew.backward(ctx, g / ctx.scale)


@wrong.saves(
    "gradient",
    "Your mask asks x / scale + zero_point before it is rounded. The code is what it is after rounding: up to half a "
    "step beyond an end it still lies in the range, and the gradient passes.",
)
def mask_before_rounding(x, scale, zero_point, qmin, qmax, y):
    steps = x / scale + zero_point
    return ((steps >= qmin) & (steps <= qmax),)


@wrong.saves(
    "gradient",
    "Your mask leaves the zero point out: it compares round(x / scale) with qmin and qmax. Add zero_point first.",
)
def mask_without_zero_point(x, scale, zero_point, qmin, qmax, y):
    return (in_range(x, scale, 0, qmin, qmax),)


@wrong.saves(
    "gradient",
    "At the codes qmin and qmax themselves your gradient is 0. The ends belong to the range: >= and <=, not > and <.",
)
def ends_excluded(x, scale, zero_point, qmin, qmax, y):
    code = codes(x, scale, zero_point)
    return ((code > qmin) & (code < qmax),)


@wrong.forward("value", HALF_UP)
def halves_up(x, scale, zero_point, qmin, qmax):
    code = (torch.floor(x / scale + 0.5) + zero_point).clamp(qmin, qmax)
    return ((code - zero_point) * scale).to(x.dtype)


@wrong.forward(
    "value",
    "You add zero_point before you round. At a tie that decides which neighbour is the even one: round(x / scale) "
    "first, then zero_point.",
)
def rounded_with_zero_point(x, scale, zero_point, qmin, qmax):
    code = torch.round(x / scale + zero_point).clamp(qmin, qmax)
    return ((code - zero_point) * scale).to(x.dtype)


@wrong.forward(
    "value",
    "You do not subtract zero_point again before you multiply by scale, so the whole output is shifted by zero_point "
    "* scale.",
)
def zero_point_not_subtracted(x, scale, zero_point, qmin, qmax):
    return (codes(x, scale, zero_point).clamp(qmin, qmax) * scale).to(x.dtype)


@wrong.forward("value", CLAMP_MISSING)
def clamp_missing(x, scale, zero_point, qmin, qmax):
    return (torch.round(x / scale) * scale).to(x.dtype)


@wrong.forward("value", INTEGER_CODES)
def integer_codes(x, scale, zero_point, qmin, qmax):
    code = (torch.round(x / scale).int() + zero_point).clamp(qmin, qmax)
    return ((code - zero_point) * scale).to(x.dtype)


@wrong.forward(
    "arguments",
    "For a 0-d x and a scale that is a 0-d tensor your output has the dtype of the wider of the two. Convert the "
    "result to the dtype of x: .to(x.dtype).",
)
def dtype_promoted(x, scale, zero_point, qmin, qmax):
    return quantised(x, scale, zero_point, qmin, qmax)


@task.mistake(
    "gradient",
    "save_for_backward takes tensors, and scale or zero_point may be a number. Save the mask, which is a tensor in "
    "any case.",
)
class number_saved(FakeQuantizeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.qmin, ctx.qmax = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, g):
        inside = in_range(*ctx.saved_tensors, ctx.qmin, ctx.qmax)
        return torch.where(inside, g, 0), None, None, None, None


@wrong.forward(
    "arguments", "Your range is fixed, -4..7 as in the visible check or the one of 8 bits: the ends are arguments."
)
def range_fixed(x, scale, zero_point, qmin, qmax):
    return FakeQuantizeNew.forward(x, scale, zero_point, -4, 7)


@wrong.forward(
    "arguments", "Your arguments are not named as the text prints them, so a caller who names one gets a TypeError."
)
def argument_renamed(x, s, z, low, high):
    return FakeQuantizeNew.forward(x, s, z, low, high)


@wrong.backward(
    "arguments",
    "You return a gradient for scale where it is a tensor that requires one. That is LSQ, another task: here scale "
    "has no gradient, and its place is None.",
)
def learns_the_scale(ctx, g):
    return FakeQuantizeNew.backward(ctx, g)[0], (g.sum() if ctx.needs_input_grad[1] else None), None, None, None


@task.mistake(
    "contract",
    "Your forward works in place (div_, round_, clamp_, x /= scale): the caller's x is changed too. Return a new "
    "tensor.",
)
class writes_into_input(FakeQuantizeNew):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        x.div_(scale).round_()
        return ((x + zero_point).clamp(qmin, qmax) - zero_point) * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        steps, _, zero_point, qmin, qmax = inputs
        ctx.save_for_backward((steps + zero_point >= qmin) & (steps + zero_point <= qmax))


@task.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(FakeQuantizeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.kept = inputs

    @staticmethod
    def backward(ctx, g):
        return torch.where(in_range(*ctx.kept), g, 0), None, None, None, None


@task.mistake(
    "contract",
    "You keep scale and zero_point as attributes of ctx. Where they are tensors torch does not watch them there: an "
    "observer that updates one before backward makes the gradient silently wrong. Save the mask (or make numbers of "
    "them, by .item()).",
)
class scale_as_attribute(FakeQuantizeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, *ctx.rest = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        return torch.where(in_range(*ctx.saved_tensors, *ctx.rest), g, 0), None, None, None, None


@wrong.forward("value", FORBIDDEN)
def torchs_own(x, scale, zero_point, qmin, qmax):
    return torch.fake_quantize_per_tensor_affine(x, float(scale), int(zero_point), qmin, qmax)


@task.mistake("gradient", NO_FUNCTION)
def no_function(x, scale, zero_point, qmin, qmax):
    return fake_quantize(x, scale, zero_point, qmin, qmax)
