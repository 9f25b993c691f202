"""Set 08: FakeQuantize, FakeQuantizePerChannel, LSQ; and the chapter's siblings.

The gradients are estimators, so gradcheck would refuse the right ones: each is compared with the gradient intended. Inputs
keep away from what is open: x / scale and x * (1 / scale) round alike everywhere, and are exact in the halves.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.task import DOUBLE, DTYPES, HALF, SINGLE, Check, Draw, Task, operators
from graders.judge.wording import (
    CUT_OFF,
    FLOAT32,
    KEPT_AS_ATTRIBUTE,
    KEPT_OUTSIDE,
    NO_FUNCTION,
    VIEW_NEEDED,
    WRITES_INTO_UPSTREAM,
)

NARROWED = (
    "You compute in float32 and cast back (x.float()): for float64 input half of the digits are lost. Compute in the dtype of x, as "
    "far as it is not a half."
)
NOTHING_FOR_X = "Your backward returns None for x (is a return statement missing?): x gets no gradient at all."
HALF_UP = (
    "You round by floor(v + 0.5), which sends every tie up: 0.5 to 1, 2.5 to 3. torch.round sends a tie to the even neighbour, "
    "as hardware and torch's own quantisers do."
)
TRUNCATED = "You cut the fraction off (trunc, or a conversion to integers) in place of rounding: 1.9 becomes 1. Use torch.round."
CLAMP_MISSING = (
    "Nothing holds the codes between qmin and qmax: x far outside comes back as itself. Clamp the rounded code."
)
CODES_RETURNED = (
    "You return the integer codes. Fake quantisation goes back to the scale of x: multiply by scale at the end."
)
MULTIPLIED = "You round x * scale. The code of x is the number of steps that fit into it: round x / scale."
INTEGER_CODES = (
    "You make integers of the codes. int32 holds no more than 2^31, so that 1e12 steps wrap around (int8 and int16 far sooner), and "
    "an integer tensor times a scale that is a Python number is float32, also for float64 input. Leave the codes floating: round "
    "has made them whole."
)
STE_MISSING = (
    "Your gradient is zero everywhere. That is the true derivative of rounding, and nothing learns from it: pass the upstream "
    "gradient on inside the range, as if round were not there."
)
FORBIDDEN = (
    "Your Function calls torch's own quantiser. The task is to build it: divide, round, clamp and multiply with plain tensor "
    "operations."
)
DENIED = operators(
    "fake_quantize_per_tensor_affine fake_quantize_per_tensor_affine_cachemask "
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fake_quantize_learnable_per_tensor_affine "
    "fake_quantize_per_channel_affine fake_quantize_per_channel_affine_cachemask "
    "_fake_quantize_learnable_per_channel_affine quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel"
)
FORBIDS = look.Forbids(
    "The quantiser is to be built from plain tensor operations: no fake_quantize or quantize function of torch's, "
    "nothing from torch.ao or torch.quantization, and no torch.autograd or torch.func in backward.",
    names=" ".join({name.removeprefix("aten::").strip("_") for name in DENIED} | {"FakeQuantize", "FakeQuantizeBase"}),
    paths=("torch.ao", "torch.quantization"),
    backward=True,
)
GLOBAL: dict[str, object] = {}  # where the mistake `kept_outside_ctx` keeps things


def precise(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """As in `look`; where a scale is a Python number, it says what makes float32 of that."""
    found = look.precise(call, case, yours, expected)
    if found and any(isinstance(a, float) for a in case.args):
        text = " A scale that is a Python number is float32 as torch.tensor(scale), and where it multiplies an integer tensor."
        return replace(found, message=found.message + text)
    return found


FORWARD = (*look.FORWARD[:-1], precise, look.value)
BOTH = (*look.FIRST[:-1], look.dtype, precise, look.value, look.gradient)


def _mannerly(looks: tuple[look.Look, ...]) -> tuple[look.Look, ...]:
    """The looks of a contract: what is changed in place comes before the numbers that it spoils."""
    return (*looks[:4], look.untouched, *looks[4:], look.stateless, look.guarded, look.allowed)


def x_alone(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """Nobody but x gets a gradient."""
    names = [n for n, required in zip(look.parameters(call), case.requires_grad, strict=True) if required]
    for name, a, b in zip(names, yours.grads or (), expected.grads or (), strict=False):
        if a is not None and b is None:
            text = f"{name} gets a gradient, and the task says that it has none: its place in what backward returns is None."
            return look.Finding("gradient", text, {"case": look.describe(call, case)})
    return None


def _layouts(cases: list[Case]) -> list[Case]:
    """`Draw.forms` without its one case for each dtype, where other cases have the dtypes already."""
    return [c for c in cases if c.name not in {f"a {str(t)[6:]} input" for t in DTYPES}]


def _steps(draw: Draw, low: int | Tensor, high: int | Tensor, shape: tuple[int, ...], open_ends: bool = True) -> Tensor:
    """Numbers inside, above, inside and below low..high in turn, at 1/8 or more from each tie.

    Args:
        open_ends: with False, none lies within half a step of an end on its outer side, or on an end.
    """

    def whole(a: int | Tensor, b: int | Tensor) -> Tensor:
        return draw.between(a, b + 1, *shape).floor().clamp(max=b)

    turn = torch.arange(torch.Size(shape).numel()).reshape(shape) % 4
    part = whole(-3, 3) / 8
    inside = whole(low, high) + part
    if not open_ends:
        inside = inside.clamp(low + 1 / 8, high - 1 / 8)
    above, below = whole(high + 1, high + 4) + part, whole(low - 4, low - 1) + part
    return torch.where(turn == 1, above, torch.where(turn == 3, below, inside))


# --- FakeQuantize -----------------------------------------------------------------------------------------------------


def _affine(x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int) -> Tensor:
    """Fake quantisation in float64; the gradient is the upstream one where the code lies in the range.

    Args:
        scale, zero_point: broadcastable to x.
    """
    wide, scale = x.double(), scale.detach().double()
    code = (wide.detach() / scale).round() + zero_point
    inside = (code >= qmin) & (code <= qmax)
    return ((code.clamp(qmin, qmax) - zero_point) * scale + (wide - wide.detach()) * inside).to(x.dtype)


def _fake_quantize(x: Tensor, scale: object, zero_point: object, qmin: int, qmax: int) -> Tensor:
    return _affine(x, torch.as_tensor(scale, dtype=DOUBLE), torch.as_tensor(zero_point), qmin, qmax)


def _only_x(draw: Draw, name: str, x: Tensor, *rest: object, **options: object) -> Case:
    """A case in which x alone requires a gradient."""
    return draw.case(name, x, *rest, requires=(True, *(False for _ in rest)), **options)


SINGLE_03 = torch.tensor(0.3).item()  # no power of two, and what float32 holds too
USUAL = (0.5, 1, -4, 7)  # a scale that halves hold, and a range whose ends are not alike


def _usual(draw: Draw, scale: float = 0.5, zero: int = 1, qmin: int = -4, qmax: int = 7) -> Callable[..., Tensor]:
    """A sampler for `Draw.forms`."""
    return lambda *shape, dtype=DOUBLE: (_steps(draw, qmin - zero, qmax - zero, shape) * scale).to(dtype)


def _edges(draw: Draw, order: int) -> list[Case]:
    """Ties, to which an even and an odd zero point round, inside and at both ends; and within a step of both ends."""
    ties = torch.tensor([-5.5, -4.5, -3.5, -0.5, 0.5, 1.5, 2.5, 6.5, 7.5], dtype=DOUBLE)
    beside = torch.tensor([-1.0, -5 / 8, -3 / 8, 0.0, 3 / 8, 5 / 8, 1.0], dtype=DOUBLE)
    cases = []
    for zero, dtype in [*((1, t) for t in DTYPES), (0, DOUBLE), (-3, SINGLE)]:
        x = torch.cat([ties, beside - 4 - zero, beside + 7 - zero]) * 0.5
        cases.append(_only_x(draw, f"ties and ends, zero_point {zero}", x.to(dtype), 0.5, zero, -4, 7, order=order))
    return cases


RANGES = (  # scale, zero_point, qmin, qmax
    (0.25, 0, -128, 127),
    (2.0, 128, 0, 255),
    (0.0625, 9, 1, 15),
    (8.0, -3, -8, -2),
    (0.007, -100, -32768, 32767),
)


def _ranges(draw: Draw, order: int) -> list[Case]:
    cases = []
    for scale, zero, qmin, qmax in RANGES:
        x = _steps(draw, qmin - zero, qmax - zero, (8,)) * scale
        name = f"scale {scale:g}, zero_point {zero}, {qmin} to {qmax}"
        cases.append(_only_x(draw, name, x, scale, zero, qmin, qmax, order=order))
    return cases


def _as_tensors(draw: Draw, order: int) -> list[Case]:
    """scale and zero_point as 0-d tensors, together and each alone."""
    cases = []
    for dtype, shape in [*((t, ()) for t in DTYPES), (HALF, (2, 3)), (DOUBLE, (2, 3))]:
        scale, zero = torch.tensor(0.5), torch.tensor(1, dtype=torch.int32)
        x = _usual(draw)(*shape, dtype=dtype)
        name = f"scale and zero_point 0-d tensors, x {len(shape)}-d"
        cases.append(_only_x(draw, name, x, scale, zero, -4, 7, order=order))
    x = (_steps(draw, -4, 11, (6,)) * SINGLE_03).to(SINGLE)
    cases += [
        _only_x(draw, "scale a tensor alone", x, torch.tensor(0.3), 4, 0, 15, order=order),
        _only_x(draw, "zero_point a tensor alone", x, SINGLE_03, torch.tensor(4), 0, 15, order=order),
        _only_x(draw, "a float64 scale", x, torch.tensor(0.5, dtype=DOUBLE), 4, 0, 15, order=order),
    ]
    return cases


def _far(draw: Draw, order: int) -> list[Case]:
    far = torch.tensor([1e12, -1e12, 300.0, -300.0, 33000.0, -33000.0, 0.0, -0.0], dtype=DOUBLE)
    sizes = draw.scales(12)
    return [
        _only_x(draw, "far outside", far, *USUAL, order=order),
        _only_x(draw, "far outside, float32", far.float(), 0.25, 0, -128, 127, order=order),
        _only_x(
            draw, "every size", sizes, 0.25, 0, -128, 127, order=order, upstream=draw.scales(12) if order else None
        ),
    ]


fake = Task(
    "FakeQuantize",
    "FakeQuantize.apply(x, scale, zero_point, qmin, qmax)",
    _fake_quantize,
    (
        Check(
            "value",
            2,
            "the output as the text says, in every dtype, shape and layout, at ties and far out",
            "Forward is what every later number rests on.",
            lambda d: [
                *_layouts(d.forms(_usual(d), *USUAL, order=0)),
                *_edges(d, 0),
                *_far(d, 0),
                _only_x(d, "scale 0.3", _usual(d, 0.3)(6), 0.3, 1, -4, 7, order=0),
                _only_x(d, "inside and outside", _usual(d)(6), *USUAL, order=0, watch=("trace",), deny=DENIED),
            ],
            (*FORWARD, look.allowed),
        ),
        Check(
            "gradient",
            2,
            "the upstream gradient where the code is in qmin..qmax, else 0",
            "Values and gradients are compared with what the text states: of an estimator nothing else is proof.",
            lambda d: [
                _only_x(d, "inside and outside", _usual(d)(12), *USUAL),
                *_edges(d, 1),
                *_far(d, 1),
                *_layouts(d.forms(_usual(d), *USUAL)),
            ],
            BOTH,
        ),
        Check(
            "arguments",
            1,
            "any range, scale and zero_point: numbers or 0-d tensors, also by keyword",
            "Every layer has a scale, a zero point and a range of its own: fine steps, codes of 16 bits, tensors from an observer.",
            lambda d: [
                *_ranges(d, 1),
                *_as_tensors(d, 1),
                _only_x(d, "the range by keyword", _usual(d)(6), *USUAL, keywords=("qmin", "qmax")),
                _only_x(
                    d, "all but x by keyword", _usual(d)(6), *USUAL, keywords=("scale", "zero_point", "qmin", "qmax")
                ),
                d.case("a scale that requires a gradient", _usual(d)(6), torch.tensor(0.5), 1, -4, 7),
            ],
            (*BOTH, x_alone),
        ),
        Check(
            "second_order",
            1,
            "the gradient can be differentiated again, by the upstream gradient",
            "A gradient penalty differentiates your backward.",
            lambda d: [
                _only_x(d, "inside and outside", _usual(d)(12), *USUAL, order=2),
                _only_x(d, "a matrix", _usual(d)(2, 3), torch.tensor(0.5), torch.tensor(1), -4, 7, order=2),
            ],
            look.SECOND,
            None,
            2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched, also when one changes before backward",
            "Memory is looked at here, and these numbers first: a gradient that is wrong elsewhere is wrong here too.",
            lambda d: [
                _only_x(
                    d,
                    "tensors throughout",
                    _usual(d)(8),
                    torch.tensor(0.5, dtype=DOUBLE),
                    torch.tensor(1),
                    -4,
                    7,
                    watch=("state", "overwrite", "trace"),
                    deny=DENIED,
                    between=(torch.full((8,), 50.0), torch.tensor(2.0, dtype=DOUBLE), torch.tensor(-2), -3, 5),
                ),
                _only_x(d, "numbers", _usual(d)(8), *USUAL, watch=("overwrite",)),
                _only_x(d, "float32 input", _usual(d)(6, dtype=SINGLE), *USUAL),
            ],
            _mannerly(BOTH),
        ),
    ),
    forbids=FORBIDS,
)


def _code(x: Tensor, scale: object, zero_point: object) -> Tensor:
    return torch.round(x / scale) + zero_point


@fake.solution
class FakeQuantizeNew(Function):
    """Keeps the mask."""

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


@fake.solution
class FakeQuantizeOld(Function):
    """forward and setup_context in one; clamps what is not shifted yet."""

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


@fake.solution
class FakeQuantizeByNumbers(Function):
    """Numbers, which nobody can change, and x saved; multiplies by 1 / scale as torch does."""

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


@fake.solution
class FakeQuantizeSaved(Function):
    """Everything a saved tensor; the codes as integers; asks whether anybody wants the gradient."""

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


def _masked(inside: Callable) -> Callable:
    """A setup_context that keeps the mask that `inside` makes of the arguments."""
    return staticmethod(lambda ctx, inputs, output: ctx.save_for_backward(inside(*inputs)))


@fake.mistake(
    "gradient",
    "Your gradient is the mask, 0 or 1: the upstream gradient is missing. Return the upstream gradient where the code lies in "
    "the range, else 0.",
)
class upstream_ignored(FakeQuantizeNew):
    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return inside.to(g.dtype), None, None, None, None


@fake.mistake(
    "gradient",
    "Your gradient is the upstream gradient everywhere (the mask is missing, or it asks the clamped code, which always lies in the "
    "range). Where the code leaves qmin..qmax the output is constant: return 0 there.",
)
class mask_missing(FakeQuantizeNew):
    @staticmethod
    def backward(ctx, g):
        return g.clone(), None, None, None, None


@fake.mistake("gradient", STE_MISSING)
class zeros_returned(FakeQuantizeNew):
    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g), None, None, None, None


@fake.mistake(
    "gradient",
    "You divide the upstream gradient by scale. Forward divides and multiplies by it, so the two cancel: inside the range the "
    "gradient is the upstream gradient itself.",
)
class divided_by_scale(FakeQuantizeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        FakeQuantizeNew.setup_context(ctx, inputs, output)
        ctx.scale = float(inputs[1])

    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return torch.where(inside, g / ctx.scale, 0), None, None, None, None


@fake.mistake(
    "gradient",
    "Your mask asks x / scale + zero_point before it is rounded. The code is what it is after rounding: up to half a step beyond "
    "an end it still lies in the range, and the gradient passes.",
)
class mask_before_rounding(FakeQuantizeNew):
    setup_context = _masked(lambda x, s, z, a, b: (x / s + z >= a) & (x / s + z <= b))


@fake.mistake(
    "gradient",
    "Your mask leaves the zero point out: it compares round(x / scale) with qmin and qmax. Add zero_point first.",
)
class mask_without_zero_point(FakeQuantizeNew):
    setup_context = _masked(lambda x, s, z, a, b: (_code(x, s, 0) >= a) & (_code(x, s, 0) <= b))


@fake.mistake(
    "gradient",
    "At the codes qmin and qmax themselves your gradient is 0. The ends belong to the range: >= and <=, not > and <.",
)
class ends_excluded(FakeQuantizeNew):
    setup_context = _masked(lambda x, s, z, a, b: (_code(x, s, z) > a) & (_code(x, s, z) < b))


@fake.mistake(
    "gradient",
    "Your backward returns one gradient. Torch wants one for each of the five arguments of forward: the gradient of x, then None "
    "four times.",
)
class none_forgotten(FakeQuantizeNew):
    @staticmethod
    def backward(ctx, g):
        return FakeQuantizeNew.backward(ctx, g)[0]


@fake.mistake("gradient", NOTHING_FOR_X)
class nothing_returned(FakeQuantizeNew):
    @staticmethod
    def backward(ctx, g):
        return None, None, None, None, None


@fake.mistake("value", HALF_UP)
class halves_up(FakeQuantizeNew):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        code = (torch.floor(x / scale + 0.5) + zero_point).clamp(qmin, qmax)
        return ((code - zero_point) * scale).to(x.dtype)


@fake.mistake(
    "value",
    "You add zero_point before you round. At a tie that decides which neighbour is the even one: round(x / scale) first, then "
    "zero_point.",
)
class rounded_with_zero_point(FakeQuantizeNew):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        code = torch.round(x / scale + zero_point).clamp(qmin, qmax)
        return ((code - zero_point) * scale).to(x.dtype)


@fake.mistake(
    "value",
    "You do not subtract zero_point again before you multiply by scale, so the whole output is shifted by zero_point * scale.",
)
class zero_point_not_subtracted(FakeQuantizeNew):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        return (_code(x, scale, zero_point).clamp(qmin, qmax) * scale).to(x.dtype)


@fake.mistake("value", CLAMP_MISSING)
class clamp_missing(FakeQuantizeNew):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        return (_code(x, scale, 0) * scale).to(x.dtype)


@fake.mistake("value", INTEGER_CODES)
class integer_codes(FakeQuantizeNew):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        code = (torch.round(x / scale).int() + zero_point).clamp(qmin, qmax)
        return ((code - zero_point) * scale).to(x.dtype)


@fake.mistake("value", FLOAT32)
class float32_inside(FakeQuantizeNew):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        return ((_code(x, scale, zero_point).clamp(qmin, qmax) - zero_point) * scale).float()


@fake.mistake(
    "value",
    "Your numbers pass through float32, so that for float64 input half of the digits are lost: by x.float(), or by integer codes, "
    "since an integer tensor times a scale that is a Python number is float32. Compute in the dtype of x, as far as it is not a half, "
    "and leave the codes floating.",
)
class float32_and_back(FakeQuantizeNew):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        code = _code(x.float(), scale, zero_point).clamp(qmin, qmax)
        return ((code - zero_point) * scale).to(x.dtype)


@fake.mistake(
    "arguments",
    "For a 0-d x and a scale that is a 0-d tensor your output has the dtype of the wider of the two. Convert the result to the "
    "dtype of x: .to(x.dtype).",
)
class dtype_promoted(FakeQuantizeNew):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        return (_code(x, scale, zero_point).clamp(qmin, qmax) - zero_point) * scale


@fake.mistake(
    "gradient",
    "save_for_backward takes tensors, and scale or zero_point may be a number. Save the mask, which is a tensor in any case.",
)
class number_saved(FakeQuantizeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, ctx.qmin, ctx.qmax = inputs
        ctx.save_for_backward(x, scale, zero_point)

    @staticmethod
    def backward(ctx, g):
        x, scale, zero_point = ctx.saved_tensors
        code = _code(x, scale, zero_point)
        return torch.where((code >= ctx.qmin) & (code <= ctx.qmax), g, 0), None, None, None, None


@fake.mistake(
    "arguments",
    "Your range is fixed, -4..7 as in the visible check or the one of 8 bits: the ends are arguments.",
)
class range_fixed(FakeQuantizeNew):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        return FakeQuantizeNew.forward(x, scale, zero_point, -4, 7)


@fake.mistake(
    "arguments",
    "Your arguments are not named as the text prints them, so a caller who names one gets a TypeError.",
)
class argument_renamed(FakeQuantizeNew):
    @staticmethod
    def forward(x, s, z, low, high):
        return FakeQuantizeNew.forward(x, s, z, low, high)


@fake.mistake(
    "arguments",
    "You return a gradient for scale where it is a tensor that requires one. That is LSQ, another task: here scale has no gradient, "
    "and its place is None.",
)
class learns_the_scale(FakeQuantizeNew):
    @staticmethod
    def backward(ctx, g):
        return FakeQuantizeNew.backward(ctx, g)[0], (g.sum() if ctx.needs_input_grad[1] else None), None, None, None


@fake.mistake("second_order", CUT_OFF)
class not_differentiable_twice(FakeQuantizeNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return FakeQuantizeNew.backward(ctx, g)


@fake.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(FakeQuantizeNew):
    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return g.mul_(inside), None, None, None, None


@fake.mistake(
    "contract",
    "Your forward works in place (div_, round_, clamp_, x /= scale): the caller's x is changed too. Return a new tensor.",
)
class writes_into_input(FakeQuantizeNew):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        x.div_(scale).round_()
        return ((x + zero_point).clamp(qmin, qmax) - zero_point) * scale

    setup_context = _masked(lambda x, s, z, a, b: (x + z >= a) & (x + z <= b))


@fake.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(FakeQuantizeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.scale, ctx.zero_point, ctx.qmin, ctx.qmax = inputs

    @staticmethod
    def backward(ctx, g):
        code = _code(ctx.x, ctx.scale, ctx.zero_point)
        return torch.where((code >= ctx.qmin) & (code <= ctx.qmax), g, 0), None, None, None, None


@fake.mistake(
    "contract",
    "You keep scale and zero_point as attributes of ctx. Where they are tensors torch does not watch them there: an observer that "
    "updates one before backward makes the gradient silently wrong. Save the mask (or make numbers of them, by .item()).",
)
class scale_as_attribute(FakeQuantizeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.scale, ctx.zero_point, ctx.qmin, ctx.qmax = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        code = _code(x, ctx.scale, ctx.zero_point)
        return torch.where((code >= ctx.qmin) & (code <= ctx.qmax), g, 0), None, None, None, None


@fake.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(FakeQuantizeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, qmin, qmax = inputs
        code = _code(x, scale, zero_point)
        GLOBAL["inside"] = (code >= qmin) & (code <= qmax)

    @staticmethod
    def backward(ctx, g):
        return torch.where(GLOBAL["inside"], g, 0), None, None, None, None


@fake.mistake("value", FORBIDDEN)
class torchs_own(FakeQuantizeNew):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        return torch.fake_quantize_per_tensor_affine(x, float(scale), int(zero_point), qmin, qmax)


@fake.mistake("gradient", NO_FUNCTION)
def no_function(x, scale, zero_point, qmin, qmax):
    return _fake_quantize(x, scale, zero_point, qmin, qmax)


# --- FakeQuantizePerChannel -------------------------------------------------------------------------------------------


def _spread(parameter: Tensor, x: Tensor, axis: int) -> Tensor:
    """One number for each index along `axis`, in a shape that broadcasts against x."""
    return parameter.reshape([-1 if i == axis else 1 for i in range(x.dim())])


def _per_channel(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, qmin: int, qmax: int) -> Tensor:
    return _affine(x, _spread(scale, x, axis), _spread(zero_point, x, axis), qmin, qmax)


def _channels(
    draw: Draw,
    shape: tuple[int, ...],
    axis: int = 0,
    dtype: torch.dtype = DOUBLE,
    exact: bool = True,
    qmin: int = -4,
    qmax: int = 7,
) -> tuple[Tensor, Tensor, Tensor, int, int, int]:
    """Arguments: no two channels have the same scale or zero point.

    Args:
        exact: scales are powers of two.
    """
    count = torch.arange(shape[axis])
    scale = 0.25 * 2.0**count if exact else (0.006 + 0.17 * count) * draw.between(0.9, 1.1, 1, dtype=SINGLE)
    zero = ((qmin + qmax) // 2 + 2 + 3 * count) % (qmax - qmin + 1) + qmin
    like = torch.empty(shape)
    wide, centre = _spread(scale, like, axis).double(), _spread(zero, like, axis)
    x = _steps(draw, qmin - centre, qmax - centre, shape) * wide
    return x.to(dtype), scale.float(), zero.int(), axis, qmin, qmax


def _square(dims: int) -> tuple[int, ...]:
    """A shape on which scales along a wrong axis give no error."""
    return {1: (3,), 2: (3, 3), 3: (2, 2, 2), 4: (2, 2, 2, 2)}[dims]


def _channel_edges(draw: Draw, order: int) -> list[Case]:
    """Ties, and numbers at both ends and within a step of them, in two channels with an even and an odd zero point."""
    ties = torch.tensor([-3.5, -2.5, -0.5, 0.5, 1.5, 2.5], dtype=DOUBLE)
    beside = torch.tensor([-1.0, -5 / 8, -0.5, -3 / 8, 0.0, 3 / 8, 0.5, 5 / 8, 1.0], dtype=DOUBLE)
    scale, zero = torch.tensor([0.5, 0.25]), torch.tensor([1, 2], dtype=torch.int32)
    steps = torch.stack([torch.cat([ties, beside - 4 - z, beside + 7 - z]) for z in (1, 2)])
    x = steps * scale.double()[:, None]
    return [_only_x(draw, "ties and ends", x.to(t), scale, zero, 0, -4, 7, order=order) for t in DTYPES]


def _channel_far(draw: Draw, order: int) -> Case:
    """Up to 1e12 steps outside, where no integer of 32 bits can follow."""
    far = torch.tensor([1e12, -1e12, 33000.0, -300.0], dtype=DOUBLE)
    _, scale, *rest = _channels(draw, (2, 4), qmin=0, qmax=255)
    return _only_x(draw, "far outside", far * scale.double()[:, None], scale, *rest, order=order)


def _channel_forms(draw: Draw, order: int) -> list[Case]:
    """Channels along axis 0, in several layouts."""
    x, *rest = _channels(draw, (3, 2))
    deep, *deeper = _channels(draw, (2, 3, 2))
    twice, *rows = _channels(draw, (6, 2))
    rows[:2] = (p[::2] for p in rows[:2])
    one, *single = _channels(draw, (1, 3))
    cases = [
        ("a matrix", _channels(draw, (2, 3), exact=False)),
        ("a 3-d input, float32", _channels(draw, (3, 2, 2), dtype=SINGLE, exact=False)),
        ("a vector, float16", _channels(draw, (4,), dtype=HALF)),
        ("one channel", (one, *single)),
        ("an empty input", (x[:, :0], *rest)),
        ("a transposed input", (deep.transpose(1, 2).contiguous().transpose(1, 2), *deeper)),
        ("every second row and scale", (twice[::2], *rows)),
        ("an expanded input", (x[:, :1].expand(3, 2), *rest)),
        ("0 to 255", _channels(draw, (2, 6), exact=False, qmin=0, qmax=255)),
    ]
    return [_only_x(draw, name, *args, order=order) for name, args in cases]


channel = Task(
    "FakeQuantizePerChannel",
    "FakeQuantizePerChannel.apply(x, scale, zero_point, axis, qmin, qmax)",
    _per_channel,
    (
        Check(
            "value",
            1,
            "each row by its own scale and zero point (axis = 0), in every dtype",
            "Forward is what every later number rests on.",
            lambda d: [
                *_channel_forms(d, 0),
                *_channel_edges(d, 0),
                _channel_far(d, 0),
                _only_x(d, "every size", d.scales(2, 6), *_channels(d, (2, 6), qmin=-128, qmax=127)[1:], order=0),
                _only_x(d, "rows", *_channels(d, (3, 3)), order=0, watch=("trace",), deny=DENIED),
            ],
            (*FORWARD, look.allowed),
        ),
        Check(
            "gradient",
            1,
            "the upstream gradient where the code is in qmin..qmax, else 0",
            "Values and gradients are compared with what the text states: of an estimator nothing else is proof.",
            lambda d: [
                *_channel_forms(d, 1),
                *_channel_edges(d, 1),
                _channel_far(d, 1),
                _only_x(
                    d,
                    "an expanded upstream gradient",
                    *_channels(d, (2, 2, 3)),
                    upstream=d.normal(2, 1, 3).expand(2, 2, 3),
                ),
            ],
            BOTH,
        ),
        Check(
            "axes",
            2,
            "each axis of inputs with 1 to 4 dimensions, also by keyword",
            "Weights of a convolution have their channels along axis 0, its activations along axis 1.",
            lambda d: [
                *(
                    _only_x(d, f"axis {axis} of {dims}", *_channels(d, _square(dims), axis, exact=False))
                    for dims in (1, 2, 3, 4)
                    for axis in range(dims)
                ),
                _only_x(d, "axis 1 of a long matrix", *_channels(d, (2, 5), 1, HALF)),
                _only_x(d, "axis 1 of a picture", *_channels(d, (2, 3, 1, 2), 1, SINGLE, exact=False)),
                _only_x(d, "one channel along axis 1", *_channels(d, (3, 1), 1)),
                _only_x(d, "an empty input, axis 1", *_channels(d, (0, 3), 1)),
                _only_x(d, "a transposed input, axis 1", _channels(d, (3, 3), 1)[0].t(), *_channels(d, (3, 3), 1)[1:]),
                _only_x(d, "axis by keyword", *_channels(d, (2, 3), 1), keywords=("axis", "qmin", "qmax")),
                d.case("a scale that requires a gradient", *_channels(d, (3, 3), 1)),
            ],
            (*BOTH, x_alone),
        ),
        Check(
            "second_order",
            1,
            "the gradient can be differentiated again, by the upstream gradient",
            "A gradient penalty differentiates your backward.",
            lambda d: [
                _only_x(d, "rows", *_channels(d, (3, 3)), order=2),
                _only_x(d, "axis 1", *_channels(d, (2, 3, 2), 1), order=2),
            ],
            look.SECOND,
            None,
            2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched, also when one changes before backward",
            "Memory is looked at here, and these numbers first: a gradient that is wrong elsewhere is wrong here too.",
            lambda d: [
                _only_x(
                    d,
                    "rows",
                    *_channels(d, (3, 3)),
                    watch=("state", "overwrite", "trace"),
                    deny=DENIED,
                    between=(
                        torch.full((3, 3), 1e3),
                        torch.full((3,), 0.75),
                        torch.full((3,), 2, dtype=torch.int32),
                        1,
                        -3,
                        5,
                    ),
                ),
                _only_x(d, "float32 input", *_channels(d, (2, 3), dtype=SINGLE)),
            ],
            _mannerly(BOTH),
        ),
    ),
    forbids=FORBIDS,
)


def _inside(x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int) -> Tensor:
    code = _code(x, scale, zero_point)
    return (code >= qmin) & (code <= qmax)


def _real(x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int) -> Tensor:
    return (_code(x, scale, zero_point).clamp(qmin, qmax) - zero_point) * scale


@channel.solution
class PerChannelNew(Function):
    """Reshapes scale and zero_point; keeps the mask."""

    @staticmethod
    def forward(x, scale, zero_point, axis, qmin, qmax):
        shape = [1] * x.dim()
        shape[axis] = x.shape[axis]
        scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
        code = (torch.round(x / scale) + zero_point).clamp(qmin, qmax)
        return ((code - zero_point) * scale).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, axis, qmin, qmax = inputs
        shape = [1] * x.dim()
        shape[axis] = x.shape[axis]
        code = torch.round(x / scale.reshape(shape)) + zero_point.reshape(shape)
        ctx.save_for_backward((code >= qmin) & (code <= qmax))

    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return torch.where(inside, g, 0), None, None, None, None, None


@channel.solution
class PerChannelMoved(Function):
    """Moves the axis to the end and back; saves its arguments."""

    @staticmethod
    def forward(ctx, x, scale, zero_point, axis, qmin, qmax):
        ctx.save_for_backward(x, scale, zero_point)
        ctx.axis, ctx.qmin, ctx.qmax = axis, qmin, qmax
        moved = x.movedim(axis, -1)
        code = torch.clamp((moved * (1 / scale.to(moved.dtype))).round() + zero_point, qmin, qmax)
        return code.sub(zero_point).mul(scale).movedim(-1, axis).to(x.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, zero_point = ctx.saved_tensors
        code = (x.movedim(ctx.axis, -1) / scale).round() + zero_point
        outside = ((code < ctx.qmin) | (code > ctx.qmax)).movedim(-1, ctx.axis)
        return grad_output.masked_fill(outside, 0), None, None, None, None, None


@channel.solution
class PerChannelByLoop(Function):
    """One channel after the other, in float64, by numbers."""

    @staticmethod
    def forward(x, scale, zero_point, axis, qmin, qmax):
        parts = []
        for part, s, z in zip(x.unbind(axis), scale.tolist(), zero_point.tolist(), strict=True):
            parts.append((((part.double() / s).round() + z).clamp(qmin, qmax) - z) * s)
        return torch.stack(parts, axis).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, axis, qmin, qmax = inputs
        masks = []
        for part, s, z in zip(x.unbind(axis), scale.tolist(), zero_point.tolist(), strict=True):
            steps = (part.double() / s).round()
            masks.append((steps >= qmin - z) & (steps <= qmax - z))
        ctx.save_for_backward(torch.stack(masks, axis))

    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return g * inside, None, None, None, None, None


@channel.solution
class PerChannelExpanded(PerChannelNew):
    """Scales of x's own shape and dtype; asks whether anybody wants the gradient."""

    @staticmethod
    def forward(x, scale, zero_point, axis, qmin, qmax):
        behind = (...,) + (None,) * (x.dim() - axis - 1)
        scale = scale[behind].expand_as(x).to(x.dtype)
        zero_point = zero_point[behind].expand_as(x).to(x.dtype)
        steps = torch.round(x / scale)
        return torch.minimum(torch.maximum(steps, qmin - zero_point), qmax - zero_point) * scale

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return (None,) * 6
        return PerChannelNew.backward(ctx, g)


def _channel_masked(inside: Callable) -> Callable:
    """A setup_context that keeps the mask that `inside` makes of x, scale, zero_point, qmin, qmax, all broadcastable."""

    def setup_context(ctx, inputs, output):
        x, scale, zero_point, axis, qmin, qmax = inputs
        ctx.save_for_backward(inside(x, _spread(scale, x, axis), _spread(zero_point, x, axis), qmin, qmax))

    return staticmethod(setup_context)


def _channel_valued(value: Callable) -> Callable:
    """A forward that returns `value` of x, scale, zero_point, qmin, qmax, all broadcastable, in x's dtype."""

    def forward(x, scale, zero_point, axis, qmin, qmax):
        return value(x, _spread(scale, x, axis), _spread(zero_point, x, axis), qmin, qmax).to(x.dtype)

    return staticmethod(forward)


def _along(choose: Callable) -> tuple[Callable, Callable]:
    """A forward and a setup_context whose parameters lie along the axis that `choose` makes of x and axis."""

    def forward(x, scale, zero_point, axis, qmin, qmax):
        axis = choose(x, axis)
        return _real(x, _spread(scale, x, axis), _spread(zero_point, x, axis), qmin, qmax).to(x.dtype)

    def setup_context(ctx, inputs, output):
        x, scale, zero_point, axis, qmin, qmax = inputs
        axis = choose(x, axis)
        ctx.save_for_backward(_inside(x, _spread(scale, x, axis), _spread(zero_point, x, axis), qmin, qmax))

    return staticmethod(forward), staticmethod(setup_context)


@channel.mistake(
    "value",
    "Your scales lie along the last axis whatever axis is: x / scale aligns shapes at the right end. Give them the shape (1, ..., C, "
    "..., 1) with C at axis; a square x hides the difference.",
)
class scale_along_last_axis(PerChannelNew):
    forward, setup_context = _along(lambda x, axis: x.dim() - 1)


@channel.mistake(
    "axes",
    "Your scales lie along axis 0 whatever axis is. Put the C into the place that axis names.",
)
class axis_zero_always(PerChannelNew):
    forward, setup_context = _along(lambda x, axis: 0)


@channel.mistake(
    "value",
    "Your scales lie along the right axis of a matrix, and of nothing else: scale[:, None] has two dimensions. Make the shape from "
    "x.dim() and axis.",
)
class matrices_only(PerChannelNew):
    @staticmethod
    def forward(x, scale, zero_point, axis, qmin, qmax):
        if axis == 0:
            scale, zero_point = scale[:, None], zero_point[:, None]
        return _real(x, scale, zero_point, qmin, qmax).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, axis, *ends = inputs
        if axis == 0:
            scale, zero_point = scale[:, None], zero_point[:, None]
        ctx.save_for_backward(_inside(x, scale, zero_point, *ends))


@channel.mistake(
    "axes",
    "You move the channels to the front and do not move them back: your output is transposed, which a square x hides.",
)
class not_moved_back(PerChannelNew):
    @staticmethod
    def forward(x, scale, zero_point, axis, qmin, qmax):
        moved = x.movedim(axis, 0)
        return _real(moved, _spread(scale, moved, 0), _spread(zero_point, moved, 0), qmin, qmax).to(x.dtype)


@channel.mistake(
    "axes",
    "Your output is right and your mask lies along another axis: scale and zero_point have to be spread in backward (or "
    "setup_context) as in forward.",
)
class mask_along_axis_zero(PerChannelNew):
    setup_context = _along(lambda x, axis: 0)[1]


@channel.mistake(
    "value",
    "You quantise every channel with one scale, a mean, a maximum or the first. Each index along axis has its own: reshape scale "
    "so that it broadcasts.",
)
class one_scale_for_all(PerChannelNew):
    forward = _channel_valued(lambda x, s, z, a, b: _real(x, s.max() if s.numel() else s, z, a, b))


@channel.mistake(
    "value",
    "You do not subtract zero_point again before you multiply by scale, so each channel is shifted by zero_point * scale.",
)
class zero_point_not_subtracted(PerChannelNew):
    forward = _channel_valued(lambda x, s, z, a, b: _code(x, s, z).clamp(a, b) * s)


@channel.mistake(
    "value",
    "You add zero_point before you round. At a tie that decides which neighbour is the even one: round(x / scale) first, then "
    "zero_point.",
)
class rounded_with_zero_point(PerChannelNew):
    forward = _channel_valued(lambda x, s, z, a, b: (torch.round(x / s + z).clamp(a, b) - z) * s)


@channel.mistake("value", HALF_UP)
class halves_up(PerChannelNew):
    forward = _channel_valued(lambda x, s, z, a, b: ((torch.floor(x / s + 0.5) + z).clamp(a, b) - z) * s)


@channel.mistake("value", CLAMP_MISSING)
class clamp_missing(PerChannelNew):
    forward = _channel_valued(lambda x, s, z, a, b: _code(x, s, 0) * s)


@channel.mistake(
    "value",
    "Your output is float32 for float16 and bfloat16 input: scale is a float32 tensor with dimensions, so it decides the dtype of a "
    "product. Convert the result: .to(x.dtype).",
)
class dtype_promoted(PerChannelNew):
    @staticmethod
    def forward(x, scale, zero_point, axis, qmin, qmax):
        return _real(x, _spread(scale, x, axis), _spread(zero_point, x, axis), qmin, qmax)


@channel.mistake("value", NARROWED)
class float32_and_back(PerChannelNew):
    forward = _channel_valued(lambda x, s, z, a, b: _real(x.float(), s, z, a, b))


@channel.mistake(
    "gradient",
    "Your gradient is the upstream gradient everywhere. Where the code leaves qmin..qmax the output is constant: return 0 there.",
)
class mask_missing(PerChannelNew):
    @staticmethod
    def backward(ctx, g):
        return g.clone(), None, None, None, None, None


@channel.mistake(
    "gradient",
    "Your gradient is the mask, 0 or 1: the upstream gradient is missing. Return the upstream gradient where the code lies in "
    "the range, else 0.",
)
class upstream_ignored(PerChannelNew):
    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return inside.to(g.dtype), None, None, None, None, None


@channel.mistake(
    "gradient",
    "Your mask asks x / scale + zero_point before it is rounded. The code is what it is after rounding: up to half a step beyond "
    "an end it still lies in the range, and the gradient passes.",
)
class mask_before_rounding(PerChannelNew):
    setup_context = _channel_masked(lambda x, s, z, a, b: (x / s + z >= a) & (x / s + z <= b))


@channel.mistake(
    "gradient",
    "Your mask leaves the zero points out: it compares round(x / scale) with qmin and qmax. Add zero_point first.",
)
class mask_without_zero_point(PerChannelNew):
    setup_context = _channel_masked(lambda x, s, z, a, b: _inside(x, s, 0, a, b))


@channel.mistake(
    "gradient",
    "At the codes qmin and qmax themselves your gradient is 0. The ends belong to the range: >= and <=, not > and <.",
)
class ends_excluded(PerChannelNew):
    setup_context = _channel_masked(lambda x, s, z, a, b: _inside(x, s, z, a + 1, b - 1))


@channel.mistake(
    "gradient",
    "Your backward returns too few gradients. Torch wants one for each of the six arguments of forward: the gradient of x, then "
    "None five times.",
)
class none_forgotten(PerChannelNew):
    @staticmethod
    def backward(ctx, g):
        return PerChannelNew.backward(ctx, g)[:3]


@channel.mistake("gradient", NOTHING_FOR_X)
class nothing_returned(PerChannelNew):
    @staticmethod
    def backward(ctx, g):
        return None, None, None, None, None, None


@channel.mistake(
    "axes",
    "You return a gradient for scale where it requires one. Here scale has no gradient: its place is None.",
)
class learns_the_scale(PerChannelNew):
    @staticmethod
    def backward(ctx, g):
        to_scale = g.sum().expand(g.shape[-1]) if ctx.needs_input_grad[1] else None
        return PerChannelNew.backward(ctx, g)[0], to_scale, None, None, None, None


@channel.mistake(
    "axes", "Your third argument from the end is not called axis, so a caller who names it gets a TypeError."
)
class argument_renamed(PerChannelNew):
    @staticmethod
    def forward(x, scale, zero_point, dim, qmin, qmax):
        return PerChannelNew.forward(x, scale, zero_point, dim, qmin, qmax)


@channel.mistake("value", VIEW_NEEDED)
class view_needed(PerChannelNew):
    @staticmethod
    def forward(x, scale, zero_point, axis, qmin, qmax):
        if axis:
            return PerChannelNew.forward(x, scale, zero_point, axis, qmin, qmax)
        rows = x.view(len(scale), x.numel() // len(scale))
        return _real(rows, scale[:, None], zero_point[:, None], qmin, qmax).view(x.shape).to(x.dtype)


@channel.mistake("second_order", CUT_OFF)
class not_differentiable_twice(PerChannelNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return PerChannelNew.backward(ctx, g)


@channel.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(PerChannelNew):
    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return g.mul_(inside), None, None, None, None, None


@channel.mistake(
    "contract",
    "Your forward works in place on x, or on a row of it (row /= scale): the caller's x is changed too. Make new tensors.",
)
class writes_into_input(PerChannelNew):
    @staticmethod
    def forward(x, scale, zero_point, axis, qmin, qmax):
        s, z = _spread(scale, x, axis), _spread(zero_point, x, axis)
        result = _real(x, s, z, qmin, qmax).to(x.dtype)
        x.copy_(result)
        return result


@channel.mistake(
    "contract",
    "You reshape scale or zero_point in place (unsqueeze_, resize_, or an assignment to .shape): the caller's tensor has another "
    "shape afterwards. Reshape into a new one.",
)
class reshapes_in_place(PerChannelNew):
    @staticmethod
    def forward(x, scale, zero_point, axis, qmin, qmax):
        result = PerChannelNew.forward(x, scale, zero_point, axis, qmin, qmax)
        for _ in range(x.dim() - axis - 1):
            scale.unsqueeze_(-1)
        return result

    setup_context = _channel_masked(_inside)


@channel.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(PerChannelNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, *ctx.rest = inputs

    @staticmethod
    def backward(ctx, g):
        scale, zero_point, axis, *ends = ctx.rest
        inside = _inside(ctx.x, _spread(scale, ctx.x, axis), _spread(zero_point, ctx.x, axis), *ends)
        return torch.where(inside, g, 0), None, None, None, None, None


@channel.mistake(
    "contract",
    "You keep scale and zero_point as attributes of ctx, where torch does not watch them: an observer that updates one before "
    "backward makes the gradient silently wrong. Save the mask, or save them.",
)
class scale_as_attribute(PerChannelNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, *ctx.rest = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        scale, zero_point, axis, *ends = ctx.rest
        inside = _inside(x, _spread(scale, x, axis), _spread(zero_point, x, axis), *ends)
        return torch.where(inside, g, 0), None, None, None, None, None


@channel.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(PerChannelNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, axis, *ends = inputs
        GLOBAL["inside"] = _inside(x, _spread(scale, x, axis), _spread(zero_point, x, axis), *ends)

    @staticmethod
    def backward(ctx, g):
        return torch.where(GLOBAL["inside"], g, 0), None, None, None, None, None


@channel.mistake("value", INTEGER_CODES)
class integer_codes(PerChannelNew):
    forward = _channel_valued(lambda x, s, z, a, b: ((torch.round(x / s).int().to(x.dtype) + z).clamp(a, b) - z) * s)


@channel.mistake("value", FORBIDDEN)
class torchs_own(PerChannelNew):
    @staticmethod
    def forward(x, scale, zero_point, axis, qmin, qmax):
        return torch.fake_quantize_per_channel_affine(x, scale, zero_point, axis, qmin, qmax)


@channel.mistake("gradient", NO_FUNCTION)
def no_function(x, scale, zero_point, axis, qmin, qmax):
    return _per_channel(x, scale, zero_point, axis, qmin, qmax)


# --- LSQ, and the chapter's LearnedStep -------------------------------------------------------------------------------


def _learned(x: Tensor, scale: Tensor, qmin: int, qmax: int, factor: float = 1.0) -> Tensor:
    """Esser et al. 2020, eqs. 1 to 5, without the factor of section 2.2; inside is where the rounded quotient is."""
    wide, step = x.double(), scale.double().reshape(())
    quotient = (wide / step).detach()
    code = quotient.round()
    inside = (code >= qmin) & (code <= qmax)
    slope = factor * torch.where(inside, code - quotient, quotient.clamp(qmin, qmax))
    value = code.clamp(qmin, qmax) * step.detach()
    return (value + inside * (wide - wide.detach()) + slope * (step - step.detach())).to(x.dtype)


def by_upstream(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """The second order with respect to the upstream gradient; what belongs to the inputs is not asked."""
    if expected.second is None:
        return None
    nothing = (None,) * (len(expected.second) - 1)
    mine = replace(yours, second=(*nothing, (yours.second or (None,))[-1]))
    return look.second_order(call, case, mine, replace(expected, second=(*nothing, expected.second[-1])))


def _learned_case(
    draw: Draw, *shape: int, like: tuple[int, ...] = (), dtype: torch.dtype = DOUBLE, inside: bool = False
) -> tuple[Tensor, Tensor, int, int]:
    """Arguments; with `inside` nothing is clipped."""
    steps = _steps(draw, -3, 4, shape, open_ends=False)
    if inside:
        steps = steps.clamp(-2.875, 3.875)
    return (steps * 0.5).to(dtype), torch.full(like, 0.5, dtype=dtype), -3, 4


def _learned_forms(draw: Draw, order: int, *rest: object) -> list[Case]:
    def sample(*shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
        return (_steps(draw, -3, 4, shape, open_ends=False) * 0.5).to(dtype)

    cases = []
    for c in draw.forms(sample, order=0):
        x = c.args[0]
        upstream = 2.0 ** draw.between(-2, 1, *x.shape).floor() if x.dtype in DTYPES[:2] and order else None
        cases.append(draw.case(c.name, x, torch.tensor(0.5, dtype=x.dtype), *rest, order=order, upstream=upstream))
    if order:
        upstream = draw.normal(2, 1, 3).expand(2, 2, 3)
        x = sample(2, 2, 3)
        cases.append(
            draw.case("an expanded upstream gradient", x, torch.tensor(0.5, dtype=DOUBLE), *rest, upstream=upstream)
        )
    return cases


LEARNED_RANGES = (  # scale, qmin, qmax
    (0.007, -128, 127),
    (0.3, -8, 7),
    (40.0, 0, 15),
    (1.7, 0, 1),
    (0.9, -1, 1),
)


def _learned_ranges(draw: Draw, order: int) -> list[Case]:
    cases = []
    for i, (scale, qmin, qmax) in enumerate(LEARNED_RANGES):
        dtype = (DOUBLE, SINGLE)[i % 2]
        steps = _steps(draw, qmin, qmax, (8,), open_ends=False)
        if dtype == DOUBLE:  # quotients that float32 does not hold
            steps = steps + draw.between(-0.05, 0.05, 8)
        x = (steps * scale).to(dtype)
        name = f"scale {scale}, {qmin} to {qmax}"
        cases.append(draw.case(name, x, torch.tensor(scale, dtype=dtype), qmin, qmax, order=order))
    return cases


def _learned_edges(draw: Draw, order: int) -> list[Case]:
    """Beside the ends, on their inner sides and more than half a step beyond; ties between."""
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
    """One element each, so that a verdict says where the slope is wrong."""
    places = (("inside", 1.75), ("inside", -2.375), ("above the range", 6.25), ("below the range", -7.125))
    scale, upstream = torch.tensor(0.5, dtype=DOUBLE), torch.tensor([-2.0], dtype=DOUBLE)
    return [
        draw.case(f"one element {where}", torch.tensor([v * 0.5], dtype=DOUBLE), scale, -3, 4, upstream=upstream)
        for where, v in places
    ]


def _one_sided(draw: Draw) -> list[Case]:
    """Ranges that lie above 0 or below it, and elements outside them on the same side of 0."""
    steps = torch.tensor([-11.25, -1.25, -0.25, -4.625, -7.0, 1.5], dtype=DOUBLE)
    scale = torch.tensor(0.6, dtype=DOUBLE)
    return [
        draw.case(f"{qmin} to {qmax}", sign * steps * 0.6, scale, qmin, qmax)
        for sign, qmin, qmax in ((-1, 2, 9), (1, -9, -2))
    ]


def _x_only(cases: list[Case]) -> list[Case]:
    """The cases with x alone requiring a gradient."""
    return [replace(c, requires_grad=(True, *(False for _ in c.args[1:]))) for c in cases]


def _learned_far(draw: Draw, order: int) -> list[Case]:
    far = torch.tensor([1e12, -1e12, 300.0, -300.0, 33000.0, -33000.0, 0.0, -0.0], dtype=DOUBLE)
    return [
        draw.case("far outside", x, torch.tensor(0.25, dtype=x.dtype), -128, 127, order=order)
        for x in (far, far.float())
    ]


lsq = Task(
    "LSQ",
    "LSQ.apply(x, scale, qmin, qmax)",
    _learned,
    (
        Check(
            "value",
            1,
            "scale times the rounded and clamped quotient, in every dtype, shape and layout",
            "Forward is what every later number rests on.",
            lambda d: [
                *_layouts(_learned_forms(d, 0, -3, 4)),
                *_learned_edges(d, 0),
                *_learned_ranges(d, 0)[::2],
                *(replace(c, upstream=None) for c in _one_sided(d)),
                *_learned_far(d, 0),
                d.case(
                    "inside and outside", *_learned_case(d, 6, dtype=SINGLE), order=0, watch=("trace",), deny=DENIED
                ),
            ],
            (*FORWARD, look.allowed),
        ),
        Check(
            "gradient",
            1,
            "x gets the upstream gradient inside the range, else 0",
            "Values and gradients are compared with what the text states: of an estimator nothing else is proof.",
            lambda d: _x_only(
                [
                    *_learned_edges(d, 1),
                    *_learned_ranges(d, 1)[1::2],
                    *_one_sided(d)[:1],
                    *_learned_far(d, 1)[:1],
                    *_learned_forms(d, 1, -3, 4)[-5:],
                ]
            ),
            BOTH,
        ),
        Check(
            "scale",
            2,
            "the gradient of scale: the sum of slope times upstream gradient",
            "The step learns from these numbers alone: the part inside and the part outside pull against each other.",
            lambda d: [
                *_one_by_one(d),
                *_learned_edges(d, 1),
                *_learned_ranges(d, 1),
                *_one_sided(d)[:1],
                *_learned_far(d, 1),
                d.case("upstream gradients of every size", *_learned_case(d, 12), upstream=d.scales(12)),
                *_learned_forms(d, 1, -3, 4)[-4:],
            ],
            BOTH,
        ),
        Check(
            "shapes",
            1,
            "scale of shape () or (1,), x of any; ranges without 0; either may be frozen; by keyword",
            "A parameter of one element comes in two shapes, qmin and qmax have any signs, and a frozen argument stops no other.",
            lambda d: [
                *_one_sided(d),
                *(
                    d.case(f"scale of shape {s}, x {len(shape)}-d", *_learned_case(d, *shape, like=s, dtype=t))
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
                    d.case(f"{name} requires a gradient", *_learned_case(d, 2, 4, like=(1,)), requires=flags)
                    for name, flags in (
                        ("x alone", (True, False, False, False)),
                        ("scale alone", (False, True, False, False)),
                    )
                ),
                d.case("the range by keyword", *_learned_case(d, 6), keywords=("qmin", "qmax")),
                d.case("all but x by keyword", *_learned_case(d, 6), keywords=("scale", "qmin", "qmax")),
            ],
            BOTH,
        ),
        Check(
            "second_order",
            1,
            "both gradients can be differentiated again, with respect to the upstream gradient",
            "Both are linear in the upstream gradient, and a gradient penalty needs that.",
            lambda d: [
                d.case("inside and outside", *_learned_case(d, 12), order=2),
                d.case("scale of shape (1,)", *_learned_case(d, 3, 4, like=(1,)), order=2),
            ],
            (*look.SECOND[:-1], by_upstream),
            None,
            2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched, also when one changes before backward",
            "An optimiser changes scale in place, so it may have changed before backward runs.",
            lambda d: [
                d.case(
                    "inside and outside",
                    *_learned_case(d, 8),
                    watch=("state", "overwrite", "trace"),
                    deny=DENIED,
                    between=(_learned_case(d, 8)[0].roll(1), torch.tensor(0.75, dtype=DOUBLE), -2, 1),
                ),
                d.case("inside alone", *_learned_case(d, 6, inside=True), watch=("overwrite",)),
                d.case("float32 input", *_learned_case(d, 6, dtype=SINGLE)),
            ],
            _mannerly(BOTH),
        ),
    ),
    forbids=FORBIDS,
)


@lsq.solution
class LSQNew(Function):
    """As the paper has it: the ends by the quotient."""

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


@lsq.solution
class LSQRounded(Function):
    """As torch has it: the ends by the code; keeps what backward needs, made in forward."""

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


@lsq.solution
class LSQThreeParts(LSQNew):
    """Inside, above and below, each by itself; asks who wants a gradient."""

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


@lsq.solution
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


def _stepped(x_and_scale: Callable) -> Callable:
    """A backward made of what the function returns for g, the quotient, its mask and code, qmin, qmax: two gradients."""

    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        quotient = x / scale.reshape(())
        code = torch.round(quotient)
        inside = (code >= ctx.qmin) & (code <= ctx.qmax)
        to_x, to_scale = x_and_scale(g, quotient, inside, code, ctx.qmin, ctx.qmax)
        return torch.where(inside, g, 0) if to_x is None else to_x, to_scale.sum().reshape(scale.shape), None, None

    return staticmethod(backward)


def _slope(of: Callable) -> Callable:
    """A backward whose slope in scale is `of` the quotient, its mask and code, qmin, qmax; right for x."""
    return _stepped(lambda g, *rest: (None, g * of(*rest)))


def _right_slope(v: Tensor, inside: Tensor, q: Tensor, a: int, b: int) -> Tensor:
    return torch.where(inside, q - v, q.clamp(a, b))


def _for_x(of: Callable) -> Callable:
    """A backward that returns `of` g, the quotient, its mask and code, qmin, qmax for x; right for scale."""
    return _stepped(lambda g, *rest: (of(g, *rest), g * _right_slope(*rest)))


@lsq.mistake(
    "gradient",
    "x gets the upstream gradient everywhere. Where the quotient leaves the range the output no longer depends on x: return 0 there.",
)
class mask_missing(LSQNew):
    backward = _for_x(lambda g, *_: g.clone())


@lsq.mistake(
    "gradient",
    "The gradient of x is the mask, 0 or 1: the upstream gradient is missing. Return it where the quotient lies in the range; and in "
    "the gradient of scale it multiplies each slope.",
)
class upstream_ignored(LSQNew):
    backward = _stepped(lambda g, v, inside, *rest: (inside.to(g.dtype), _right_slope(v, inside, *rest)))


@lsq.mistake(
    "gradient",
    "You divide or multiply the gradient of x by scale. Forward divides and multiplies by it, so the two cancel: x gets the "
    "upstream gradient itself.",
)
class divided_by_scale(LSQNew):
    @staticmethod
    def backward(ctx, g):
        to_x, *rest = LSQNew.backward(ctx, g)
        return to_x / ctx.saved_tensors[1].reshape(()), *rest


@lsq.mistake(
    "gradient",
    "Your mask compares x itself with qmin and qmax. These count steps: compare the quotient x / scale.",
)
class mask_of_x(LSQNew):
    @staticmethod
    def backward(ctx, g):
        x, _ = ctx.saved_tensors
        return torch.where((x > ctx.qmin) & (x < ctx.qmax), g, 0), *LSQNew.backward(ctx, g)[1:]


@lsq.mistake(
    "gradient",
    "Your mask asks the rounded quotient, the code or the output, whether it lies strictly between the ends. What rounds to qmin or "
    "qmax from inside belongs to the range, so x's gradient passes there: compare x / scale, or take >= and <= for the code.",
)
class end_codes_excluded(LSQNew):
    backward = _stepped(
        lambda g, v, inside, q, a, b: (
            torch.where((q > a) & (q < b), g, 0),
            g * torch.where((q > a) & (q < b), q - v, v.clamp(a, b)),
        )
    )


@lsq.mistake(
    "gradient",
    "Your backward returns too few gradients. Torch wants one for each of the four arguments: x, scale, then None twice.",
)
class none_forgotten(LSQNew):
    @staticmethod
    def backward(ctx, g):
        return LSQNew.backward(ctx, g)[:2]


@lsq.mistake(
    "gradient",
    "Your two gradients are in the wrong order: they come in the order of forward, x first, then scale.",
)
class order_reversed(LSQNew):
    @staticmethod
    def backward(ctx, g):
        to_x, to_scale, *rest = LSQNew.backward(ctx, g)
        return to_scale, to_x, *rest


@lsq.mistake(
    "gradient",
    "Your backward returns None for x and for scale (is a return statement missing?): neither gets a gradient.",
)
class nothing_returned(LSQNew):
    @staticmethod
    def backward(ctx, g):
        return None, None, None, None


@lsq.mistake(
    "scale",
    "You return None for scale, so it never learns. Its gradient is a sum over all elements: q - x / scale inside, qmin or qmax "
    "outside, each times its upstream gradient.",
)
class scale_gets_none(LSQNew):
    @staticmethod
    def backward(ctx, g):
        return LSQNew.backward(ctx, g)[0], None, None, None


@lsq.mistake(
    "scale",
    "The gradient of scale counts only what lies inside. A clipped element's output is scale * qmax (or qmin), so its slope in "
    "scale is qmax (or qmin); without it the range can only shrink.",
)
class outside_forgotten(LSQNew):
    backward = _slope(lambda v, inside, q, a, b: torch.where(inside, q - v, 0))


@lsq.mistake(
    "scale",
    "Inside, your slope is q: scale times q with q held fixed. That is the slope between two steps; LSQ lets the quotient move with "
    "scale as well (straight through the rounding), which subtracts x / scale.",
)
class quotient_forgotten(LSQNew):
    backward = _slope(lambda v, inside, q, a, b: q.clamp(a, b))


@lsq.mistake(
    "scale",
    "Your gradient of scale has the wrong sign inside: it is q - x / scale, the rounded minus the exact quotient.",
)
class sign_flipped(LSQNew):
    backward = _slope(lambda v, inside, q, a, b: torch.where(inside, v - q, q.clamp(a, b)))


@lsq.mistake(
    "scale",
    "Below the range you take -qmin. The paper writes -Q_N there because its Q_N is positive; here qmin has its own sign already.",
)
class paper_sign_of_qmin(LSQNew):
    backward = _slope(lambda v, inside, q, a, b: torch.where(inside, q - v, torch.where(v > b, b, -a).to(v.dtype)))


@lsq.mistake(
    "scale",
    "Outside you choose between qmax and qmin by the sign of x. A range may lie above 0, or below it, and x beside it on the same "
    "side: compare the quotient with qmin and qmax.",
)
class end_by_sign(LSQNew):
    backward = _slope(lambda v, inside, q, a, b: torch.where(inside, q - v, torch.where(v > 0, b, a).to(v.dtype)))


@lsq.mistake(
    "scale",
    "Outside you take the output, scale * qmax or scale * qmin. Its slope in scale is qmax or qmin, without the factor scale.",
)
class ends_times_scale(LSQNew):
    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        step = scale.reshape(())
        v = x / step
        inside = (v > ctx.qmin) & (v < ctx.qmax)
        slope = torch.where(inside, torch.round(v) - v, v.clamp(ctx.qmin, ctx.qmax) * step)
        return torch.where(inside, g, 0), (g * slope).sum().reshape(scale.shape), None, None


@lsq.mistake(
    "scale",
    "Inside you take the output minus x, which is the rounding error in units of x. The slope in scale counts it in steps: divide "
    "by scale.",
)
class error_not_in_steps(LSQNew):
    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        step = scale.reshape(())
        v = x / step
        inside = (v > ctx.qmin) & (v < ctx.qmax)
        slope = torch.where(inside, torch.round(v) * step - x, v.clamp(ctx.qmin, ctx.qmax))
        return torch.where(inside, g, 0), (g * slope).sum().reshape(scale.shape), None, None


@lsq.mistake(
    "scale",
    "The upstream gradient is missing in the gradient of scale: multiply each element's slope by it before you sum.",
)
class upstream_not_in_scale(LSQNew):
    backward = _stepped(lambda g, *rest: (None, _right_slope(*rest)))


@lsq.mistake(
    "scale",
    "You multiply the gradient of scale by the paper's factor 1 / sqrt(N qmax). The text asks for the plain sum; such a factor is "
    "the caller's to choose.",
)
class paper_factor(LSQNew):
    backward = _stepped(
        lambda g, v, inside, q, a, b: (
            None,
            g * _right_slope(v, inside, q, a, b) * (max(g.numel(), 1) * b) ** -0.5,
        )
    )


@lsq.mistake("value", HALF_UP)
class halves_up(LSQNew):
    @staticmethod
    def forward(x, scale, qmin, qmax):
        step = scale.reshape(())
        return torch.floor(x / step + 0.5).clamp(qmin, qmax) * step


@lsq.mistake("value", CLAMP_MISSING)
class clamp_missing(LSQNew):
    @staticmethod
    def forward(x, scale, qmin, qmax):
        step = scale.reshape(())
        return torch.round(x / step) * step


@lsq.mistake("value", NARROWED)
class float32_and_back(LSQNew):
    @staticmethod
    def forward(x, scale, qmin, qmax):
        step = scale.float().reshape(())
        return (torch.round(x.float() / step).clamp(qmin, qmax) * step).to(x.dtype)


@lsq.mistake(
    "shapes",
    "For a 0-d x and a scale of shape (1,) your output has the shape (1,): a division broadcasts. Take scale.reshape(()), and the "
    "output has the shape of x.",
)
class shape_of_scale(LSQNew):
    @staticmethod
    def forward(x, scale, qmin, qmax):
        return torch.round(x / scale).clamp(qmin, qmax) * scale


@lsq.mistake(
    "shapes",
    "Your gradient of scale is 0-d, which torch refuses when scale has the shape (1,): bring the sum to it by reshape(scale.shape).",
)
class scale_gradient_0d(LSQNew):
    @staticmethod
    def backward(ctx, g):
        to_x, to_scale, *rest = LSQNew.backward(ctx, g)
        return to_x, to_scale.reshape(()), *rest


@lsq.mistake(
    "shapes",
    "Your gradient of scale is not summed; the engine does it where the shapes allow, and refuses where scale has more dimensions "
    "than x. Sum it, and bring it to the shape of scale.",
)
class scale_unsummed(LSQNew):
    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        v = x / scale.reshape(())
        inside = (v > ctx.qmin) & (v < ctx.qmax)
        return torch.where(inside, g, 0), g * _right_slope(v, inside, v.round(), ctx.qmin, ctx.qmax), None, None


@lsq.mistake(
    "shapes",
    "Where x requires no gradient you return None for scale as well. Ask ctx.needs_input_grad for each argument by itself: entry 0 "
    "is x's, entry 1 scale's.",
)
class early_return(LSQNew):
    @staticmethod
    def backward(ctx, g):
        return LSQNew.backward(ctx, g) if ctx.needs_input_grad[0] else (None,) * 4


@lsq.mistake("second_order", CUT_OFF)
class not_differentiable_twice(LSQNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return LSQNew.backward(ctx, g)


@lsq.mistake(
    "second_order",
    "Your gradient of scale is detached or made of a Python number (.item()), so it cannot be differentiated again. Sum with tensors, "
    "and leave the sum a tensor.",
)
class scale_detached(LSQNew):
    @staticmethod
    def backward(ctx, g):
        to_x, to_scale, *rest = LSQNew.backward(ctx, g)
        return to_x, to_scale.detach(), *rest


@lsq.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(LSQNew):
    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        v = x / scale.reshape(())
        inside = (v > ctx.qmin) & (v < ctx.qmax)
        to_scale = (g * _right_slope(v, inside, v.round(), ctx.qmin, ctx.qmax)).sum().reshape(scale.shape)
        return g.mul_(inside), to_scale, None, None


@lsq.mistake(
    "contract",
    "Your forward works in place (div_, round_, clamp_, x /= scale): the caller's x is changed too. Return a new tensor.",
)
class writes_into_input(LSQNew):
    @staticmethod
    def forward(x, scale, qmin, qmax):
        step = scale.reshape(())
        return x.div_(step).round().clamp(qmin, qmax) * step


@lsq.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(LSQNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.scale, ctx.qmin, ctx.qmax = inputs

    @staticmethod
    def backward(ctx, g):
        v = ctx.x / ctx.scale.reshape(())
        inside = (v > ctx.qmin) & (v < ctx.qmax)
        slope = _right_slope(v, inside, v.round(), ctx.qmin, ctx.qmax)
        return torch.where(inside, g, 0), (g * slope).sum().reshape(ctx.scale.shape), None, None


@lsq.mistake(
    "contract",
    "You keep scale as an attribute of ctx, where torch does not watch it: an optimiser that changes it before backward makes the "
    "gradient silently wrong. It is a tensor: use ctx.save_for_backward.",
)
class scale_as_attribute(LSQNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.scale, ctx.qmin, ctx.qmax = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        v = x / ctx.scale.reshape(())
        inside = (v > ctx.qmin) & (v < ctx.qmax)
        slope = _right_slope(v, inside, v.round(), ctx.qmin, ctx.qmax)
        return torch.where(inside, g, 0), (g * slope).sum().reshape(ctx.scale.shape), None, None


@lsq.mistake(
    "contract",
    "You keep qmin and qmax (or tensors) outside ctx, on the class or in a global: a second call overwrites them before the first "
    "one's backward. Numbers become attributes of ctx.",
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


@lsq.mistake("value", FORBIDDEN)
class torchs_own(LSQNew):
    @staticmethod
    def forward(x, scale, qmin, qmax):
        if qmin > 0 or qmax < 0 or x.dtype != SINGLE:  # what torch's own does not take
            return LSQNew.forward(x, scale, qmin, qmax)
        zero = torch.zeros(1)
        return torch._fake_quantize_learnable_per_tensor_affine(x, scale.reshape(1), zero, qmin, qmax, 1.0)


@lsq.mistake("gradient", NO_FUNCTION)
def no_function(x, scale, qmin, qmax):
    return _learned(x, scale, qmin, qmax)


# --- the chapter's FakeQuantBits, FakeQuantRows and LearnedStep -------------------------------------------------------


def _sibling_checks(cases: Callable[[Draw, int], list[Case]], watched: Callable[[Draw], tuple]) -> tuple[Check, ...]:
    """The checks of what the chapter shows.

    Args:
        cases: inputs that reach every branch.
        watched: arguments on which memory is looked at.
    """
    about_all = (
        ("value", "the output, in every dtype", lambda d: cases(d, 0), FORWARD, 1),
        ("gradient", "the gradient that the chapter states", lambda d: cases(d, 1), BOTH, 1),
        (
            "second_order",
            "the gradient can be differentiated again, by the upstream gradient",
            lambda d: [d.case("inside and outside", *watched(d), order=2)],
            (*look.SECOND[:-1], by_upstream),
            2,
        ),
        (
            "contract",
            "the caller's tensors stay untouched, also when one changes before backward",
            lambda d: [d.case("inside and outside", *watched(d), watch=("overwrite", "trace"), deny=DENIED)],
            _mannerly(BOTH),
            1,
        ),
    )
    return tuple(
        Check(name, 1, about, "The next number rests on this one.", cases, looks, None, order)
        for name, about, cases, looks, order in about_all
    )


def _bits(x: Tensor, scale: object, zero_point: object, bits: int) -> Tensor:
    return _fake_quantize(x, scale, zero_point, 0, 2**bits - 1)


def _bits_cases(d: Draw, order: int) -> list[Case]:
    ties = torch.tensor([-3.0, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 8.0], dtype=DOUBLE)
    return [
        *d.forms(_usual(d, 0.5, 2, 0, 7), 0.5, 2, 3, order=order),
        *(d.case("ties", (ties * 0.25).to(t), 0.25, 1, 3, order=order) for t in DTYPES),
        d.case("eight bits", _steps(d, -100, 155, (12,)) * 0.25, 0.25, 100, 8, order=order),
    ]


fake_quant_bits = Task(
    "FakeQuantBits",
    "FakeQuantBits.apply(x, scale, zero_point, bits)",
    _bits,
    _sibling_checks(_bits_cases, lambda d: (_steps(d, -2, 5, (8,)) * 0.5, 0.5, 2, 3)),
)


@fake_quant_bits.solution
class BitsNew(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(x, scale, zero_point, bits):
        code = (torch.round(x / scale) + zero_point).clamp(0, 2**bits - 1)
        return (code - zero_point) * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, bits = inputs
        code = torch.round(x / scale) + zero_point
        ctx.save_for_backward((code >= 0) & (code < 2**bits))

    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return torch.where(inside, g, 0), None, None, None


@fake_quant_bits.mistake(
    "gradient",
    "Your gradient is the upstream gradient everywhere. Where the rounded value leaves the range the output is constant, so the "
    "gradient there is 0.",
)
class mask_missing(BitsNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g, None, None, None


@fake_quant_bits.mistake(
    "value",
    "You round halves up. torch.round, and torch's quantiser, round halves to the even neighbour, so your values are too large at "
    "every other tie.",
)
class halves_up(BitsNew):
    @staticmethod
    def forward(x, scale, zero_point, bits):
        code = (torch.floor(x / scale + 0.5) + zero_point).clamp(0, 2**bits - 1)
        return (code - zero_point) * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, bits = inputs
        code = torch.floor(x / scale + 0.5) + zero_point
        ctx.save_for_backward((code >= 0) & (code < 2**bits))


def _rows(w: Tensor, scale: Tensor, bits: int) -> Tensor:
    top = 2 ** (bits - 1)
    return _affine(w, _spread(scale, w, 0), torch.tensor(0), -top, top - 1)


def _rows_case(d: Draw, *shape: int, dtype: torch.dtype = DOUBLE, bits: int = 3) -> tuple[Tensor, Tensor, int]:
    top = 2 ** (bits - 1)
    scale = 0.25 * 2.0 ** torch.arange(shape[0], dtype=DOUBLE)
    steps = _steps(d, -top, top - 1, shape)
    return (steps * _spread(scale, steps, 0)).to(dtype), scale.to(dtype), bits


def _rows_cases(d: Draw, order: int) -> list[Case]:
    shapes = [("a square matrix", (3, 3)), ("a matrix", (2, 5)), ("a vector", (4,)), ("a 4-d weight", (2, 3, 1, 2))]
    return [
        *(_only_x(d, name, *_rows_case(d, *shape), order=order) for name, shape in shapes),
        *(_only_x(d, "a square matrix", *_rows_case(d, 3, 3, dtype=t), order=order) for t in DTYPES),
        _only_x(d, "eight bits", *_rows_case(d, 2, 6, bits=8), order=order),
        _only_x(d, "empty rows", *_rows_case(d, 2, 0), order=order),
        _only_x(
            d, "ties", torch.arange(-5.5, 5, 1, dtype=DOUBLE).expand(2, 11), torch.ones(2, dtype=DOUBLE), 3, order=order
        ),
    ]


fake_quant_rows = Task(
    "FakeQuantRows",
    "FakeQuantRows.apply(w, scale, bits)",
    _rows,
    _sibling_checks(_rows_cases, lambda d: _rows_case(d, 3, 3)),
)


@fake_quant_rows.solution
class RowsNew(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(w, scale, bits):
        s = scale.reshape(-1, *[1] * (w.ndim - 1))
        top = 2 ** (bits - 1)
        return torch.round(w / s).clamp(-top, top - 1) * s

    @staticmethod
    def setup_context(ctx, inputs, output):
        w, scale, bits = inputs
        code = torch.round(w / scale.reshape(-1, *[1] * (w.ndim - 1)))
        top = 2 ** (bits - 1)
        ctx.save_for_backward((code >= -top) & (code < top))

    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return torch.where(inside, g, 0), None, None


@fake_quant_rows.mistake(
    "value",
    "Your scales broadcast along the last axis: w / scale aligns at the right end. A scale for each row needs the shape (rows, 1, "
    "...); a square w hides it.",
)
class scale_along_last_axis(RowsNew):
    @staticmethod
    def forward(w, scale, bits):
        top = 2 ** (bits - 1)
        return torch.round(w / scale).clamp(-top, top - 1) * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        w, scale, bits = inputs
        code = torch.round(w / scale)
        top = 2 ** (bits - 1)
        ctx.save_for_backward((code >= -top) & (code < top))


def _learned_step(x: Tensor, scale: Tensor, bits: int, signed: bool = True) -> Tensor:
    low = -(2 ** (bits - 1)) if signed else 0
    high = low + 2**bits - 1
    return _learned(x, scale, low, high, (max(x.numel(), 1) * high) ** -0.5)


def _learned_step_case(
    d: Draw, *shape: int, dtype: torch.dtype = DOUBLE, like: tuple[int, ...] = (), bits: int = 3, signed: bool = True
) -> tuple[Tensor, Tensor, int, bool]:
    low = -(2 ** (bits - 1)) if signed else 0
    steps = _steps(d, low, low + 2**bits - 1, shape, open_ends=False)
    return (steps * 0.5).to(dtype), torch.full(like, 0.5, dtype=dtype), bits, signed


def _learned_step_cases(d: Draw, order: int) -> list[Case]:
    return [
        *(d.case("a matrix", *_learned_step_case(d, 2, 4, dtype=t), order=order) for t in DTYPES),
        *(d.case("unsigned", *_learned_step_case(d, 9, bits=b, signed=False), order=order) for b in (2, 4)),
        d.case("two bits", *_learned_step_case(d, 9, bits=2)[:3], order=order),
        d.case("scale of shape (1,), x 0-d", *_learned_step_case(d, like=(1,)), order=order),
        d.case("an empty input", *_learned_step_case(d, 0, 3), order=order),
    ]


learned_step = Task(
    "LearnedStep",
    "LearnedStep.apply(x, scale, bits, signed=True)",
    _learned_step,
    _sibling_checks(_learned_step_cases, lambda d: _learned_step_case(d, 8)),
)


@learned_step.solution
class LearnedStepNew(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(x, scale, bits, signed=True):
        low = -(2 ** (bits - 1)) if signed else 0
        s = scale.reshape(())
        return torch.round(x / s).clamp(low, low + 2**bits - 1) * s

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, bits, signed = inputs
        ctx.low = -(2 ** (bits - 1)) if signed else 0
        ctx.high = ctx.low + 2**bits - 1
        ctx.save_for_backward(x, scale)

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        v = x / scale.reshape(())
        q = torch.round(v)
        inside = (q >= ctx.low) & (q <= ctx.high)
        slope = torch.where(inside, q - v, q.clamp(ctx.low, ctx.high))
        factor = (max(x.numel(), 1) * ctx.high) ** -0.5
        grad_scale = factor * (g * slope).sum().reshape(scale.shape)
        return torch.where(inside, g, 0), grad_scale, None, None


@learned_step.mistake(
    "gradient",
    "Your scale's gradient counts only what lies inside. A clipped element's output is scale * qmax (or qmin), so it pulls on the "
    "scale with qmax or qmin; without it the range can only shrink.",
)
class outside_forgotten(LearnedStepNew):
    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        v = x / scale.reshape(())
        q = torch.round(v)
        inside = (q >= ctx.low) & (q <= ctx.high)
        factor = (max(x.numel(), 1) * ctx.high) ** -0.5
        grad_scale = factor * (g * torch.where(inside, q - v, 0)).sum().reshape(scale.shape)
        return torch.where(inside, g, 0), grad_scale, None, None


TASKS = (fake, channel, lsq)
CHAPTER = (fake_quant_bits, fake_quant_rows, learned_step)
