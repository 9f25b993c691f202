"""FakeQuantizePerChannel: a scale and a zero point for each index along an axis."""

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case
from graders.judge.aspects import WATCHED
from graders.judge.task import DOUBLE, DTYPES, HALF, SINGLE, Check, Draw, Task
from graders.judge.wording import KEPT_AS_ATTRIBUTE, NO_FUNCTION, VIEW_NEEDED
from graders.judge.wrong import Wrong
from graders.sets.qat.common import (
    BOTH,
    CLAMP_MISSING,
    DENIED,
    FORBIDDEN,
    FORBIDS,
    HALF_UP,
    INTEGER_CODES,
    NARROWED,
    NOTHING_FOR_X,
    affine,
    around,
    codes,
    contract,
    gradient,
    in_range,
    lopsided,
    only_x,
    quantised,
    second_order,
    spread,
    value,
    x_alone,
)

PLACE = 2


def _per_channel(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, qmin: int, qmax: int) -> Tensor:
    return affine(x, spread(scale, x, axis), spread(zero_point, x, axis), qmin, qmax)


def _channels(
    draw: Draw,
    shape: tuple[int, ...],
    axis: int = 0,
    dtype: torch.dtype = DOUBLE,
    exact: bool = True,
    qmin: int = -4,
    qmax: int = 7,
) -> tuple[Tensor, Tensor, Tensor, int, int, int]:
    """Return arguments: no two channels have the same scale or zero point.

    Args:
        exact: scales are powers of two.
    """
    count = torch.arange(shape[axis])
    scale = 0.25 * 2.0**count if exact else (0.006 + 0.17 * count) * draw.between(0.9, 1.1, 1, dtype=SINGLE)
    zero = ((qmin + qmax) // 2 + 2 + 3 * count) % (qmax - qmin + 1) + qmin
    like = torch.empty(shape)
    wide, centre = spread(scale, like, axis).double(), spread(zero, like, axis)
    x = around(draw, qmin - centre, qmax - centre, shape) * wide
    return x.to(dtype), scale.float(), zero.int(), axis, qmin, qmax


def _square(dims: int) -> tuple[int, ...]:
    """Return a shape on which scales along a wrong axis give no error."""
    return {1: (3,), 2: (3, 3), 3: (2, 2, 2), 4: (2, 2, 2, 2)}[dims]


def _edges(draw: Draw, order: int) -> list[Case]:
    """Return ties, and numbers at both ends and within a step of them; one zero point is even, the other odd."""
    ties = torch.tensor([-3.5, -2.5, -0.5, 0.5, 1.5, 2.5], dtype=DOUBLE)
    beside = torch.tensor([-1.0, -5 / 8, -0.5, -3 / 8, 0.0, 3 / 8, 0.5, 5 / 8, 1.0], dtype=DOUBLE)
    scale, zero = torch.tensor([0.5, 0.25]), torch.tensor([1, 2], dtype=torch.int32)
    steps = torch.stack([torch.cat([ties, beside - 4 - z, beside + 7 - z]) for z in (1, 2)])
    x = steps * scale.double()[:, None]
    return [only_x(draw, "ties and ends", x.to(t), scale, zero, 0, -4, 7, order=order) for t in DTYPES]


def _far(draw: Draw, order: int) -> Case:
    """Return a case up to 1e12 steps outside, where no integer of 32 bits can follow."""
    far = torch.tensor([1e12, -1e12, 33000.0, -300.0], dtype=DOUBLE)
    _, scale, *rest = _channels(draw, (2, 4), qmin=0, qmax=255)
    return only_x(draw, "far outside", far * scale.double()[:, None], scale, *rest, order=order)


def _forms(draw: Draw, order: int) -> list[Case]:
    """Return cases whose channels lie along axis 0, in several layouts."""
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
    return [only_x(draw, name, *args, order=order) for name, args in cases]


def _lopsided(draw: Draw, order: int) -> list[Case]:
    """Return cases of an x that is no even mixture, its range below 0."""
    scale, zero = torch.tensor([0.5, 0.25]), torch.tensor([-3, -5], dtype=torch.int32)
    return lopsided(draw, scale, zero, 0, -8, -2, shape=(2, 3), order=order)


task = Task(
    "FakeQuantizePerChannel",
    "FakeQuantizePerChannel.apply(x, scale, zero_point, axis, qmin, qmax)",
    reference=_per_channel,
    checks=(
        value(
            1,
            about="each row by its own scale and zero point (axis = 0), in every dtype",
            cases=lambda d: [
                *_forms(d, 0),
                *_edges(d, 0),
                _far(d, 0),
                only_x(d, "every size", d.scales(2, 6), *_channels(d, (2, 6), qmin=-128, qmax=127)[1:], order=0),
                only_x(d, "rows", *_channels(d, (3, 3)), order=0, watch=("trace",), deny=DENIED),
                *_lopsided(d, 0),
            ],
        ),
        gradient(
            1,
            about="the upstream gradient where the code is in qmin..qmax, else 0",
            cases=lambda d: [
                *_forms(d, 1),
                *_edges(d, 1),
                _far(d, 1),
                only_x(
                    d,
                    "an expanded upstream gradient",
                    *_channels(d, (2, 2, 3)),
                    upstream=d.normal(2, 1, 3).expand(2, 2, 3),
                ),
                *_lopsided(d, 1),
            ],
        ),
        Check(
            "axes",
            2,
            about="each axis of inputs with 1 to 4 dimensions, also by keyword",
            why="Weights of a convolution have their channels along axis 0, its activations along axis 1.",
            cases=lambda d: [
                *(
                    only_x(d, f"axis {axis} of {dims}", *_channels(d, _square(dims), axis, exact=False))
                    for dims in (1, 2, 3, 4)
                    for axis in range(dims)
                ),
                only_x(d, "axis 1 of a long matrix", *_channels(d, (2, 5), 1, HALF)),
                only_x(d, "axis 1 of a picture", *_channels(d, (2, 3, 1, 2), 1, SINGLE, exact=False)),
                only_x(d, "one channel along axis 1", *_channels(d, (3, 1), 1)),
                only_x(d, "an empty input, axis 1", *_channels(d, (0, 3), 1)),
                only_x(d, "a transposed input, axis 1", _channels(d, (3, 3), 1)[0].t(), *_channels(d, (3, 3), 1)[1:]),
                only_x(d, "axis by keyword", *_channels(d, (2, 3), 1), keywords=("axis", "qmin", "qmax")),
                d.case("a scale that requires a gradient", *_channels(d, (3, 3), 1)),
            ],
            looks=(*BOTH, x_alone),
        ),
        second_order(
            1,
            cases=lambda d: [
                only_x(d, "rows", *_channels(d, (3, 3)), order=2),
                only_x(d, "axis 1", *_channels(d, (2, 3, 2), 1), order=2),
                *_lopsided(d, 2),
            ],
        ),
        contract(
            1,
            cases=lambda d: [
                only_x(
                    d,
                    "rows",
                    *_channels(d, (3, 3)),
                    watch=WATCHED,
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
                only_x(d, "float32 input", *_channels(d, (2, 3), dtype=SINGLE)),
            ],
        ),
    ),
    forbids=FORBIDS,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class PerChannelNew(Function):
    """Reshapes scale and zero_point so that they broadcast, and keeps the mask: the one to write."""

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


@task.solution
class PerChannelMoved(Function):
    """Moves the axis to the end, where scales broadcast by themselves, and back; keeps its arguments and no mask."""

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


@task.solution
class PerChannelByLoop(Function):
    """One channel after the other, by numbers: the easiest to compare with the text, and slow with many channels."""

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


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class PerChannelExpanded(PerChannelNew):
    """Scales of x's own shape and dtype; asks whether the gradient is wanted."""

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


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class InSteps(PerChannelNew):
    """PerChannelNew in steps, of which a mistake changes one: s and z are scale and zero_point as spread makes them."""

    spread, value, inside = staticmethod(spread), staticmethod(quantised), staticmethod(in_range)

    @classmethod
    def forward(cls, x, scale, zero_point, axis, qmin, qmax):
        s, z = cls.spread(scale, x, axis), cls.spread(zero_point, x, axis)
        return cls.value(x, s, z, qmin, qmax).to(x.dtype)

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        x, scale, zero_point, axis, *ends = inputs
        ctx.save_for_backward(cls.inside(x, cls.spread(scale, x, axis), cls.spread(zero_point, x, axis), *ends))


wrong = Wrong(task, of=InSteps)
wrong.habits(
    "not_differentiable_twice writes_into_upstream kept_outside_ctx",
    float32_and_back=NARROWED,
    upstream_ignored="Your gradient is the mask, 0 or 1: the upstream gradient is missing. Return the upstream "
    "gradient where the code lies in the range, else 0.",
    nothing_returned=NOTHING_FOR_X,
)


@wrong.step(
    "spread",
    "value",
    "Your scales lie along the last axis whatever axis is: x / scale aligns shapes at the right end. Give them the "
    "shape (1, ..., C, ..., 1) with C at axis; a square x hides the difference.",
)
def scale_along_last_axis(parameter, x, axis):
    return spread(parameter, x, x.dim() - 1)


@wrong.step(
    "spread", "axes", "Your scales lie along axis 0 whatever axis is. Put the C into the place that axis names."
)
def axis_zero_always(parameter, x, axis):
    return spread(parameter, x, 0)


@wrong.step(
    "spread",
    "value",
    "Your scales lie along the right axis of a matrix, and of nothing else: scale[:, None] has two dimensions. Make "
    "the shape from x.dim() and axis.",
)
def matrices_only(parameter, x, axis):
    return parameter[:, None] if axis == 0 else parameter


@wrong.forward(
    "axes",
    "You move the channels to the front and do not move them back: your output is transposed, which a square x hides.",
)
def not_moved_back(x, scale, zero_point, axis, qmin, qmax):
    return InSteps.forward(x.movedim(axis, 0), scale, zero_point, 0, qmin, qmax)


@wrong.saves(
    "axes",
    "Your output is right and your mask lies along another axis: scale and zero_point have to be spread in backward "
    "(or setup_context) as in forward.",
)
def mask_along_axis_zero(x, scale, zero_point, axis, qmin, qmax, y):
    return (in_range(x, spread(scale, x, 0), spread(zero_point, x, 0), qmin, qmax),)


@wrong.step(
    "value",
    "value",
    "You quantise every channel with one scale, a mean, a maximum or the first. Each index along axis has its own: "
    "reshape scale so that it broadcasts.",
)
def one_scale_for_all(x, s, z, qmin, qmax):
    return quantised(x, s.max() if s.numel() else s, z, qmin, qmax)


@wrong.step(
    "value",
    "value",
    "You do not subtract zero_point again before you multiply by scale, so each channel is shifted by zero_point * "
    "scale.",
)
def zero_point_not_subtracted(x, s, z, qmin, qmax):
    return codes(x, s, z).clamp(qmin, qmax) * s


@wrong.step(
    "value",
    "value",
    "You add zero_point before you round. At a tie that decides which neighbour is the even one: round(x / scale) "
    "first, then zero_point.",
)
def rounded_with_zero_point(x, s, z, qmin, qmax):
    return (torch.round(x / s + z).clamp(qmin, qmax) - z) * s


@wrong.step("value", "value", HALF_UP)
def halves_up(x, s, z, qmin, qmax):
    return ((torch.floor(x / s + 0.5) + z).clamp(qmin, qmax) - z) * s


@wrong.step("value", "value", CLAMP_MISSING)
def clamp_missing(x, s, z, qmin, qmax):
    return torch.round(x / s) * s


@wrong.forward(
    "value",
    "Your output is float32 for float16 and bfloat16 input: scale is a float32 tensor with dimensions, so it decides "
    "the dtype of a product. Convert the result: .to(x.dtype).",
)
def dtype_promoted(x, scale, zero_point, axis, qmin, qmax):
    return quantised(x, spread(scale, x, axis), spread(zero_point, x, axis), qmin, qmax)


@wrong.backward(
    "gradient",
    "Your gradient is the upstream gradient everywhere. Where the code leaves qmin..qmax the output is constant: "
    "return 0 there.",
)
def mask_missing(ctx, g):
    return g.clone(), None, None, None, None, None


@wrong.step(
    "inside",
    "gradient",
    "Your mask asks x / scale + zero_point before it is rounded. The code is what it is after rounding: up to half a "
    "step beyond an end it still lies in the range, and the gradient passes.",
)
def mask_before_rounding(x, s, z, qmin, qmax):
    return (x / s + z >= qmin) & (x / s + z <= qmax)


@wrong.step(
    "inside",
    "gradient",
    "Your mask leaves the zero points out: it compares round(x / scale) with qmin and qmax. Add zero_point first.",
)
def mask_without_zero_point(x, s, z, qmin, qmax):
    return in_range(x, s, 0, qmin, qmax)


@wrong.step(
    "inside",
    "gradient",
    "At the codes qmin and qmax themselves your gradient is 0. The ends belong to the range: >= and <=, not > and <.",
)
def ends_excluded(x, s, z, qmin, qmax):
    return in_range(x, s, z, qmin + 1, qmax - 1)


@wrong.backward(
    "gradient",
    "Your backward returns too few gradients. Torch wants one for each of the six arguments of forward: the gradient "
    "of x, then None five times.",
)
def none_forgotten(ctx, g):
    return PerChannelNew.backward(ctx, g)[:3]


@wrong.backward(
    "axes", "You return a gradient for scale where it requires one. Here scale has no gradient: its place is None."
)
def learns_the_scale(ctx, g):
    to_scale = g.sum().expand(g.shape[-1]) if ctx.needs_input_grad[1] else None
    return PerChannelNew.backward(ctx, g)[0], to_scale, None, None, None, None


@wrong.forward(
    "axes", "Your third argument from the end is not called axis, so a caller who names it gets a TypeError."
)
def argument_renamed(x, scale, zero_point, dim, qmin, qmax):
    return PerChannelNew.forward(x, scale, zero_point, dim, qmin, qmax)


@wrong.forward("value", VIEW_NEEDED)
def view_needed(x, scale, zero_point, axis, qmin, qmax):
    if axis:
        return PerChannelNew.forward(x, scale, zero_point, axis, qmin, qmax)
    rows = x.view(len(scale), x.numel() // len(scale))
    return quantised(rows, scale[:, None], zero_point[:, None], qmin, qmax).view(x.shape).to(x.dtype)


@wrong.forward(
    "contract",
    "Your forward works in place on x, or on a row of it (row /= scale): the caller's x is changed too. Make new "
    "tensors.",
)
def writes_into_input(x, scale, zero_point, axis, qmin, qmax):
    result = PerChannelNew.forward(x, scale, zero_point, axis, qmin, qmax)
    x.copy_(result)
    return result


@wrong.forward(
    "contract",
    "You reshape scale or zero_point in place (unsqueeze_, resize_, or an assignment to .shape): the caller's tensor "
    "has another shape afterwards. Reshape into a new one.",
)
def reshapes_in_place(x, scale, zero_point, axis, qmin, qmax):
    result = PerChannelNew.forward(x, scale, zero_point, axis, qmin, qmax)
    for _ in range(x.dim() - axis - 1):
        scale.unsqueeze_(-1)
    return result


def _masked(g: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, qmin: int, qmax: int) -> tuple:
    """Return the gradients, from the arguments of forward."""
    inside = in_range(x, spread(scale, x, axis), spread(zero_point, x, axis), qmin, qmax)
    return torch.where(inside, g, 0), None, None, None, None, None


@task.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(PerChannelNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.kept = inputs

    @staticmethod
    def backward(ctx, g):
        return _masked(g, *ctx.kept)


@task.mistake(
    "contract",
    "You keep scale and zero_point as attributes of ctx, where torch does not watch them: an observer that updates "
    "one before backward makes the gradient silently wrong. Save the mask, or save them.",
)
class scale_as_attribute(PerChannelNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, *ctx.rest = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        return _masked(g, *ctx.saved_tensors, *ctx.rest)


@wrong.step("value", "value", INTEGER_CODES)
def integer_codes(x, s, z, qmin, qmax):
    return ((torch.round(x / s).int().to(x.dtype) + z).clamp(qmin, qmax) - z) * s


@wrong.forward("value", FORBIDDEN)
def torchs_own(x, scale, zero_point, axis, qmin, qmax):
    return torch.fake_quantize_per_channel_affine(x, scale, zero_point, axis, qmin, qmax)


@task.mistake("gradient", NO_FUNCTION)
def no_function(x, scale, zero_point, axis, qmin, qmax):
    return _per_channel(x, scale, zero_point, axis, qmin, qmax)
