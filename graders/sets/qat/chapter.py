"""FakeQuantBits, FakeQuantRows and LearnedStep, which the chapter alone shows."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.task import DOUBLE, DTYPES, Check, Draw, Task
from graders.judge.wrong import Wrong
from graders.sets.qat.common import (
    DENIED,
    VALUE,
    affine,
    around,
    by_upstream,
    contract,
    fake_quantize,
    gradient,
    learned,
    only_x,
    second_order,
    spread,
    usual,
    value,
)


def _sibling_checks(cases: Callable[[Draw, int], list[Case]], watched: Callable[[Draw], tuple]) -> tuple[Check, ...]:
    """Return the checks of a chapter's Function, a point each.

    Args:
        cases: from a Draw and an order, inputs that reach every branch.
        watched: from a Draw, arguments for the second order and the contract.
    """
    why = "Everything after this is computed from these numbers, so start here."
    return (
        value(1, about="the output, in every dtype", why=why, cases=lambda d: cases(d, 0), looks=VALUE),
        gradient(1, about="the gradient that the chapter states", why=why, cases=lambda d: cases(d, 1)),
        second_order(
            1,
            why=why,
            cases=lambda d: [d.case("inside and outside", *watched(d), order=2)],
            looks=(*look.SECOND[:-1], by_upstream),
        ),
        contract(
            1,
            why=why,
            cases=lambda d: [d.case("inside and outside", *watched(d), watch=("overwrite", "trace"), deny=DENIED)],
        ),
    )


# --- FakeQuantBits ----------------------------------------------------------------------------------------------------


def _bits_cases(d: Draw, order: int) -> list[Case]:
    """Return cases of every form, ties, and another number of bits."""
    ties = torch.tensor([-3.0, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 8.0], dtype=DOUBLE)
    return [
        *d.forms(usual(d, 0.5, 2, 0, 7), 0.5, 2, 3, order=order),
        *(d.case("ties", (ties * 0.25).to(t), 0.25, 1, 3, order=order) for t in DTYPES),
        d.case("eight bits", around(d, -100, 155, (12,)) * 0.25, 0.25, 100, 8, order=order),
    ]


fake_quant_bits = Task(
    "FakeQuantBits",
    "FakeQuantBits.apply(x, scale, zero_point, bits)",
    reference=lambda x, scale, zero_point, bits: fake_quantize(x, scale, zero_point, 0, 2**bits - 1),
    checks=_sibling_checks(_bits_cases, lambda d: (around(d, -2, 5, (8,)) * 0.5, 0.5, 2, 3)),
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


wrong = Wrong(fake_quant_bits, of=BitsNew)


@wrong.backward(
    "gradient",
    "Your gradient is the upstream gradient everywhere. Where the rounded value leaves the range the output is "
    "constant, so the gradient there is 0.",
    saves=lambda x, scale, zero_point, bits, y: (),
)
def mask_missing(ctx, g):
    return g, None, None, None


@fake_quant_bits.mistake(
    "value",
    "You round halves up. torch.round, and torch's quantiser, round halves to the even neighbour, so your values are "
    "too large at every other tie.",
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


@wrong.saves(
    "gradient",
    "At the first and the last code your gradient is 0. The ends belong to the range: >= 0 and <= 2**bits - 1.",
)
def ends_excluded(x, scale, zero_point, bits, y):
    code = torch.round(x / scale) + zero_point
    return ((code > 0) & (code < 2**bits - 1),)


@wrong.saves(
    "gradient",
    "Your mask leaves the zero point out: it compares round(x / scale) with the range. Add zero_point first.",
)
def mask_without_zero_point(x, scale, zero_point, bits, y):
    code = torch.round(x / scale)
    return ((code >= 0) & (code < 2**bits),)


@wrong.saves(
    "gradient",
    "Your mask compares x / scale + zero_point before it is rounded. The end codes reach half a step further: round first.",
)
def mask_before_rounding(x, scale, zero_point, bits, y):
    quotient = x / scale + zero_point
    return ((quotient >= 0) & (quotient <= 2**bits - 1),)


wrong.usual("writes_into_upstream", without="float32_and_back")


# --- FakeQuantRows ----------------------------------------------------------------------------------------------------


def _rows(w: Tensor, scale: Tensor, bits: int) -> Tensor:
    top = 2 ** (bits - 1)
    return affine(w, spread(scale, w, 0), torch.tensor(0), -top, top - 1)


def _rows_case(d: Draw, *shape: int, dtype: torch.dtype = DOUBLE, bits: int = 3) -> tuple[Tensor, Tensor, int]:
    """Return arguments in which each row has another scale."""
    top = 2 ** (bits - 1)
    scale = 0.25 * 2.0 ** torch.arange(shape[0], dtype=DOUBLE)
    steps = around(d, -top, top - 1, shape)
    return (steps * spread(scale, steps, 0)).to(dtype), scale.to(dtype), bits


def _rows_cases(d: Draw, order: int) -> list[Case]:
    """Return cases of every number of dimensions and dtype, ties, and another number of bits."""
    shapes = [("a square matrix", (3, 3)), ("a matrix", (2, 5)), ("a vector", (4,)), ("a 4-d weight", (2, 3, 1, 2))]
    ties = torch.arange(-5.5, 5, 1, dtype=DOUBLE).expand(2, 11)
    return [
        *(only_x(d, name, *_rows_case(d, *shape), order=order) for name, shape in shapes),
        *(only_x(d, "a square matrix", *_rows_case(d, 3, 3, dtype=t), order=order) for t in DTYPES),
        only_x(d, "eight bits", *_rows_case(d, 2, 6, bits=8), order=order),
        only_x(d, "empty rows", *_rows_case(d, 2, 0), order=order),
        only_x(d, "ties", ties, torch.ones(2, dtype=DOUBLE), 3, order=order),
    ]


fake_quant_rows = Task(
    "FakeQuantRows",
    "FakeQuantRows.apply(w, scale, bits)",
    reference=_rows,
    checks=_sibling_checks(_rows_cases, lambda d: _rows_case(d, 3, 3)),
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
    "Your scales broadcast along the last axis: w / scale aligns at the right end. A scale for each row needs the "
    "shape (rows, 1, ...); a square w hides it.",
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


wrong = Wrong(fake_quant_rows, of=RowsNew)
wrong.usual(without="float32_and_back")


# --- LearnedStep ------------------------------------------------------------------------------------------------------


def _learned_step(x: Tensor, scale: Tensor, bits: int, signed: bool = True) -> Tensor:
    low = -(2 ** (bits - 1)) if signed else 0
    high = low + 2**bits - 1
    return learned(x, scale, low, high, (max(x.numel(), 1) * high) ** -0.5)


def _learned_step_case(
    d: Draw, *shape: int, dtype: torch.dtype = DOUBLE, like: tuple[int, ...] = (), bits: int = 3, signed: bool = True
) -> tuple[Tensor, Tensor, int, bool]:
    """Return arguments.

    Args:
        like: the shape of scale.
    """
    low = -(2 ** (bits - 1)) if signed else 0
    steps = around(d, low, low + 2**bits - 1, shape, open_ends=False)
    return (steps * 0.5).to(dtype), torch.full(like, 0.5, dtype=dtype), bits, signed


def _learned_step_cases(d: Draw, order: int) -> list[Case]:
    """Return cases of every dtype, numbers of bits, and shapes."""
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
    reference=_learned_step,
    checks=_sibling_checks(_learned_step_cases, lambda d: _learned_step_case(d, 8)),
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


wrong = Wrong(learned_step, of=LearnedStepNew)


@wrong.backward(
    "gradient",
    "Your scale's gradient counts only what lies inside. A clipped element's output is scale * qmax (or qmin), so it "
    "pulls on the scale with qmax or qmin; without it the range can only shrink.",
)
def outside_forgotten(ctx, x, scale, g):
    v = x / scale.reshape(())
    q = torch.round(v)
    inside = (q >= ctx.low) & (q <= ctx.high)
    factor = (max(x.numel(), 1) * ctx.high) ** -0.5
    grad_scale = factor * (g * torch.where(inside, q - v, 0)).sum().reshape(scale.shape)
    return torch.where(inside, g, 0), grad_scale, None, None


def _scale_gradient(ctx, x: Tensor, scale: Tensor, g: Tensor, slopes: Callable[..., Tensor]) -> Tensor:
    """Return the gradient of scale, without its factor, made of slopes of (v, q, inside)."""
    v = x / scale.reshape(())
    q = torch.round(v)
    return (g * slopes(v, q, (q >= ctx.low) & (q <= ctx.high))).sum().reshape(scale.shape)


@wrong.backward(
    "gradient",
    "Your scale's gradient has the wrong sign inside: it is q - x / scale, the rounded minus the exact quotient.",
)
def sign_inside_flipped(ctx, x, scale, g):
    to_x, *_ = LearnedStepNew.backward(ctx, g)
    ends = ctx.low, ctx.high
    found = _scale_gradient(ctx, x, scale, g, lambda v, q, inside: torch.where(inside, v - q, q.clamp(*ends)))
    return to_x, (max(x.numel(), 1) * ctx.high) ** -0.5 * found, None, None


@wrong.backward(
    "gradient",
    "Outside the range your scale's gradient counts with the code that was rounded to. The output is scale * qmax there (or "
    "qmin): clamp the code first.",
)
def codes_not_clamped(ctx, x, scale, g):
    to_x, *_ = LearnedStepNew.backward(ctx, g)
    found = _scale_gradient(ctx, x, scale, g, lambda v, q, inside: torch.where(inside, q - v, q))
    return to_x, (max(x.numel(), 1) * ctx.high) ** -0.5 * found, None, None


@wrong.backward(
    "gradient",
    "Your scale's gradient lacks the factor 1 / sqrt(N qmax), with which this chapter's version slows the scale down.",
)
def factor_missing(ctx, x, scale, g):
    to_x, *_ = LearnedStepNew.backward(ctx, g)
    ends = ctx.low, ctx.high
    return (
        to_x,
        _scale_gradient(ctx, x, scale, g, lambda v, q, inside: torch.where(inside, q - v, q.clamp(*ends))),
        None,
        None,
    )


wrong.usual("writes_into_upstream", without="float32_and_back")

CHAPTER = (fake_quant_bits, fake_quant_rows, learned_step)
