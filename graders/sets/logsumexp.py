"""Set 07: LogSumExp, online_logsumexp, CrossEntropy; and the chapter's LogSumExp1d, SoftCrossEntropy."""

import math
from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graders.inside.records import Case, Helper, Record
from graders.judge import looks as look
from graders.judge.looks import Finding
from graders.judge.task import BRAIN, DOUBLE, DTYPES, HALF, SINGLE, Check, Draw, Task, operators
from graders.judge.wording import (
    CUT_OFF,
    FLOAT32_AND_BACK,
    KEPT_AS_ATTRIBUTE,
    NO_FUNCTION,
    VIEW_NEEDED,
    WRITES_INTO_UPSTREAM,
)

INF, NAN = float("inf"), float("nan")
ALL = ("state", "overwrite", "trace")
GLOBAL: dict[str, object] = {}  # where the mistake `kept_outside_ctx` keeps things


def epsilon(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """In float64, an output off by just what a power of ten in the logarithm does to it. Looks before `precise` does."""
    mine, right = yours.outputs[0], expected.outputs[0]
    if not mine.dtype == right.dtype == DOUBLE or torch.allclose(mine, right, rtol=1e-10, atol=1e-10):
        return None
    if call.startswith("LogSumExp."):  # m + log(sum + epsilon)
        x, dim = case.args[:2]
        sizes = (torch.expm1(mine - right) * (right - x.amax(dim, keepdim=True).reshape(right.shape)).exp())[
            right.isfinite()
        ]
        where, instead = (
            "the sum",
            "After the shift that is at least 1, and in a row of -inf its logarithm is to be -inf.",
        )
    elif call.startswith("CrossEntropy."):  # the mean of -log(p + epsilon), p the target's probability; to first order
        x, target = case.args
        sizes = (right - mine).reshape(1) / (torch.logsumexp(x, 1) - x.gather(1, target[:, None])[:, 0]).exp().mean()
        where, instead = (
            "the probability",
            "Make the logarithm of the softmax by a subtraction, and nothing needs that.",
        )
    else:
        return None
    size = sizes.amax().item() if sizes.numel() else 0.0
    power = 10.0 ** round(math.log10(size)) if 0 < size < 0.01 else 0.0
    if not power or not torch.allclose(sizes, torch.full_like(sizes, power), rtol=1e-2, atol=0):
        return None
    text = f"Your value is off by what {power:g}, added to {where} before the logarithm, does to it. {instead}"
    return Finding("epsilon", text, {"case": look.describe(call, case)})


FORWARD = (*look.FORWARD[:-1], epsilon, look.precise, look.value)
FIRST = (*look.FIRST[:-1], epsilon, look.precise, look.gradient)
SECOND = (*FIRST, look.second_order)
BOTH = (*FORWARD, *FIRST[4:])
# what is changed in place comes before the numbers that it spoils
CONTRACT = (*FIRST[:4], look.untouched, *FIRST[4:], look.stateless, look.guarded, look.allowed)

# Every operator of torch that adds exponentials, or divides by their sum
SUMS = operators(
    "logsumexp logaddexp logaddexp2 logcumsumexp _logcumsumexp _softmax _log_softmax _safe_softmax _masked_softmax "
    "_softmax_backward_data _log_softmax_backward_data _masked_softmax_backward nll_loss_forward nll_loss2d_forward "
    "_sparse_softmax _sparse_log_softmax _ctc_loss _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention _scaled_dot_product_attention_math "
    "softplus log_sigmoid_forward soft_margin_loss binary_cross_entropy_with_logits"  # a + softplus(b - a): a logaddexp
)

FORBIDS = look.Forbids(
    "A logarithm of a sum of exponentials is to be made from exp, a sum and log in torch: without logsumexp, logaddexp, softmax, "
    "softplus, their relatives and other libraries, and without torch.autograd or torch.func in backward.",
    names="""
        logsumexp logaddexp logaddexp2 logcumsumexp softmax softmin log_softmax gumbel_softmax cross_entropy nll_loss
        Softmax Softmin LogSoftmax Softmax2d CrossEntropyLoss NLLLoss AdaptiveLogSoftmaxWithLoss scaled_dot_product_attention
        softplus logsigmoid log_sigmoid Softplus LogSigmoid soft_margin_loss SoftMarginLoss multilabel_soft_margin_loss
        MultiLabelSoftMarginLoss binary_cross_entropy_with_logits BCEWithLogitsLoss
    """,
    foreign=True,
    backward=True,
)


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _logits(d: Draw) -> Callable[..., Tensor]:
    return lambda *shape, dtype=DOUBLE: d.between(-2, 3, *shape, dtype=dtype)


# --- LogSumExp --------------------------------------------------------------------------------------------------------


class Ungraded(Function):
    """The same numbers; gradients of rows whose result is infinite become nan, which equals whatever comes."""

    @staticmethod
    def forward(x, infinite):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        return torch.where(*ctx.saved_tensors, NAN, g), None


def _log_sum_exp(x: Tensor, dim: int | tuple[int, ...], keepdim: bool = False) -> Tensor:
    """In float64, rounded to the dtype of x, its gradient too."""
    infinite = torch.logsumexp(x.detach(), dim, keepdim=True).isinf()
    return torch.logsumexp(Ungraded.apply(x, infinite).double(), dim, keepdim).to(x.dtype)


def _forms(d: Draw, order: int) -> list[Case]:
    """Every dtype, shape and layout, over one axis."""
    x = _logits(d)
    inputs = [(f"a {_named(t)} input", x(2, 3, dtype=t), 1) for t in DTYPES] + [
        ("columns", x(3, 4), 0),
        ("a 0-d input", x(), -1),
        ("no rows", x(0, 3), 1),
        ("an axis of one element", x(2, 1), 1),
        ("one row", x(1, 3), 1),
        ("a 3-d input", x(2, 3, 4), 1),
        ("a transposed input", x(3, 2).t(), 1),
        ("every second row", x(4, 3)[::2], 0),
        ("an expanded input", x(2, 1).expand(2, 3), 1),
    ]
    return [d.case(name, *rest, order=order) for name, *rest in inputs]


def _dims(d: Draw) -> list[Case]:
    """dim in every form, keepdim in every way."""
    x = _logits(d)
    cases = [d.case(f"dim={i}", x(2, 3, 4), i) for i in (-2, (1,), (2, 0), (-2, -1), (0, 1, 2))]
    cases += [d.case(f"dim={i}, keepdim=True", x(2, 3, 4), i, True) for i in (-2, (0, 2), (-1, 0))]
    cases += [
        d.case(f"equal sizes, dim={i}", x(3, 3, 3), i, k) for i, k in ((0, False), ((-2, -1), False), ((0, 1), True))
    ]
    return [
        *cases,
        d.case("keepdim by keyword", x(2, 3), 0, True, keywords=("keepdim",)),
        d.case("both by keyword", x(2, 3), (0, 1), False, keywords=("dim", "keepdim")),
        d.case("a 0-d input, keepdim=True", x(), -1, True),
        d.case("float16, two axes", x(2, 3, 2, dtype=HALF), (0, 2)),
        d.case("no rows, two axes", x(2, 0, 3), (0, 2), True),
        d.case("transposed, two axes", x(4, 3, 2).transpose(0, 2), (0, -1)),
    ]


def _rows(*rows: list[float], dtype: torch.dtype = DOUBLE) -> Tensor:
    return torch.tensor(rows, dtype=dtype)


def _far(d: Draw) -> list[Case]:
    """Where exp overflows or is 0. In low precision only rows with one large term: others lose digits in x - y."""
    levels = torch.tensor([[1e4], [0.0], [-1e4]], dtype=DOUBLE)
    cases = [
        d.case("rows around 10000, 0 and -10000", levels + _logits(d)(3, 4), 1, watch=("trace",), deny=SUMS),
        d.case("all around 1000", 1000 + _logits(d)(2, 3), 1),
        d.case("all around -1000", -1000 + _logits(d)(2, 3), 1),
        d.case("columns far apart", (levels + _logits(d)(3, 2)).t(), 0),
        d.case("10000 and -10000 in one row", _rows([1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]), 1),
        d.case("equal numbers", _rows([1e4] * 3, [-1e4] * 3), 1),
        d.case("float32 around 95", 95 + _logits(d)(2, 3, dtype=SINGLE), 1),
        d.case("float32 around -108", -108 + _logits(d)(2, 3, dtype=SINGLE), 1),
        d.case("float16 around 12", 12 + d.between(-1, 1, 2, 3, dtype=HALF), 1),
    ]
    for dtype, far in ((SINGLE, 1e4), (HALF, 100.0), (BRAIN, 100.0)):
        one = _rows([far, -far, 0.0], [-far, -2 * far, -1.5 * far], dtype=dtype)
        cases += [
            d.case(f"{_named(dtype)} around {far:g}", far + _logits(d)(2, 3, dtype=dtype), 1, order=0),
            d.case(f"{_named(dtype)} at {far:g} and -{far:g}", one, 1),
        ]
    return cases


MIXED = ([1.0, 2.0, -INF], [-INF, -INF, -INF], [INF, 1.0, 2.0], [INF, -INF, INF], [-INF, 0.0, -INF], [0.5, -1.0, 2.0])


def _infinite(d: Draw) -> list[Case]:
    """Rows with -inf, of -inf, with inf, beside rows without, which are small or far from 0."""

    def mixed(far: float) -> Tensor:
        return _rows(*MIXED, [far, far - 1, 0.0], [-far, -far, -far - 1])

    return [
        *(d.case(f"{_named(t)} rows", mixed(100).to(t), 1, order=0) for t in DTYPES),
        d.case("rows", mixed(1000), 1, watch=("trace",), deny=SUMS),
        d.case("columns", mixed(1000).t(), 0),
        d.case("-inf beside numbers", _rows(*MIXED[::5]), 1),
        d.case("float16, -inf beside numbers", _rows(*MIXED[::5], dtype=HALF), 1),
        *(d.case(f"a 0-d {v}", torch.tensor(v, dtype=DOUBLE), 0, order=0) for v in (INF, -INF)),
        d.case("nothing but -inf", torch.full((3,), -INF, dtype=DOUBLE), 0, order=0),
    ]


logsumexp = Task(
    "LogSumExp",
    "LogSumExp.apply(x, dim, keepdim=False)",
    _log_sum_exp,
    (
        Check(
            "value",
            1,
            "the output equals torch.logsumexp over one axis, in every dtype, shape and layout",
            "Forward is what every later number rests on.",
            lambda d: [
                *_forms(d, order=0),
                d.case("a matrix", _logits(d)(2, 3), 0, order=0, watch=("trace",), deny=SUMS),
            ],
            (*FORWARD, look.allowed),
        ),
        Check(
            "dims",
            2,
            "dim an int or a tuple, negative too, keepdim in every way: value, shape and gradient",
            "An axis that was reduced has to come back where it was before anything can be subtracted from x.",
            _dims,
            BOTH,
        ),
        Check(
            "gradient",
            1,
            "the gradient equals torch's for upstream gradients of any size, and gradcheck passes",
            "Backward returns the softmax along dim, times the upstream gradient of its row.",
            lambda d: [
                *_forms(d, order=1),
                d.case("upstream of every size", _logits(d)(6, 3), 1, upstream=d.scales(6)),
                d.case("expanded upstream", _logits(d)(2, 3, 4), 1, upstream=d.normal(2, 1).expand(2, 4)),
                d.case("transposed upstream", _logits(d)(2, 3, 4), 1, upstream=d.normal(4, 2).t()),
                d.case("a matrix", _logits(d)(2, 3), 0, watch=("trace",), deny=SUMS),
            ],
            (*FIRST, look.allowed),
            lambda d: (_logits(d)(2, 3), 1),
        ),
        Check(
            "extremes",
            1,
            "10000 and -10000, 100 and -100 in halves, in one tensor too: value and gradient right",
            "Logits of this size are everyday: exp of 89 overflows in float32, and exp of -104 is 0.",
            _far,
            (*BOTH, look.allowed),
        ),
        Check(
            "infinities",
            1,
            "rows of -inf give -inf, rows with inf give inf, and nan reaches no other row",
            "Masks are made of -inf; the rows beside them are as large as ever, and one nan ends a training run.",
            _infinite,
            (*BOTH, look.allowed),
        ),
        Check(
            "second_order",
            2,
            "the gradient can be differentiated again, by x and by the upstream gradient",
            "The Hessian of a row is diag(p) - p p^T, p its softmax. What backward detaches, or makes a number of, is missing.",
            lambda d: [
                d.case("rows", _logits(d)(2, 3), 1, order=2),
                d.case("a middle axis", _logits(d)(2, 3, 2), -2, order=2),
                d.case("two axes kept", _logits(d)(2, 3, 2), (0, 2), True, order=2),
                d.case("a 0-d input", _logits(d)(), 0, order=2),
                d.case("float32", _logits(d)(2, 3, dtype=SINGLE), 0, order=2),
                d.case("around 1000", 1000 + _logits(d)(2, 3), 1, order=2),
                d.case("-inf beside numbers", _rows(*MIXED[::5]), 1, order=2),
                d.case("an upstream gradient that is a constant", _logits(d)(2, 3), 1, order=2, how="constant"),
            ],
            SECOND,
            lambda d: (_logits(d)(2, 3), 1),
            order=2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; those that backward needs are saved",
            "Memory is looked at here, and these numbers first: a gradient that is wrong elsewhere is wrong here too.",
            lambda d: [
                d.case("rows", _logits(d)(3, 3), 1, watch=ALL, between=(_logits(d)(3, 3), 0, True)),
                d.case("float32, an axis kept", _logits(d)(2, 3, dtype=SINGLE), 0, True, watch=("state", "overwrite")),
                d.case("a 0-d input", _logits(d)(), 0, watch=("overwrite",)),
                d.case("an axis of one element", _logits(d)(2, 1), 1, watch=("overwrite",)),
                d.case("a row of -inf", _rows(*MIXED[:2]), 1),
            ],
            CONTRACT,
        ),
    ),
    forbids=FORBIDS,
)


def _kept(x: Tensor, dim: int | tuple[int, ...]) -> torch.Size:
    """The shape that x has where dim is reduced and kept."""
    return x.sum(dim, keepdim=True).shape


def _largest(x: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """What to shift by: the maximum along dim, 0 where that is infinite."""
    m = x.amax(dim, keepdim=True)
    return torch.where(m.isinf(), 0, m)


def _shifted(x: Tensor, dim: int | tuple[int, ...], keepdim: bool, m: Tensor) -> Tensor:
    """Log-sum-exp with this shift, of the reduced shape."""
    y = m + (x - m).exp().sum(dim, keepdim=True).log()
    return y if keepdim else y.reshape(x.sum(dim).shape)


@logsumexp.solution
class LogSumExpNew(Function):
    """Saves x and the output, exp(x - output) in backward."""

    @staticmethod
    def forward(x, dim, keepdim=False):
        return _shifted(x, dim, keepdim, _largest(x, dim))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.dim, _ = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        shape = _kept(x, ctx.dim)
        return g.reshape(shape) * (x - y.reshape(shape)).exp(), None, None


@logsumexp.solution
class LogSumExpOld(Function):
    """forward and setup_context in one; saves x alone, and makes a softmax of it again, its shift too."""

    @staticmethod
    def forward(ctx, x, dim, keepdim=False):
        ctx.dim = dim
        ctx.save_for_backward(x)
        m = torch.nan_to_num(x.amax(dim, keepdim=True), nan=NAN)  # infinities become the largest finite numbers
        y = (x - m).exp().sum(dim, keepdim=True).log() + m
        return y if keepdim else y.sum(dim)  # over axes of one element

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        e = (x - x.amax(ctx.dim, keepdim=True)).exp()
        total = e.sum(ctx.dim, keepdim=True)
        return e / total * g.reshape(total.shape), None, None


@logsumexp.solution
class LogSumExpSorted(LogSumExpNew):
    """In float64, one axis after the other, the largest first, with unsqueeze to bring the axes back."""

    @staticmethod
    def forward(x, dim, keepdim=False):
        y = x.double()
        for i in sorted({i % max(x.ndim, 1) for i in (dim if isinstance(dim, tuple) else (dim,))}, reverse=True):
            m = y.max(i, keepdim=True).values
            m = m.clamp(torch.finfo(y.dtype).min, torch.finfo(y.dtype).max)
            y = (y - m).exp().sum(i, keepdim=True).log() + m
            y = y if keepdim else y.squeeze(i)
        return y.to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, dim, ctx.keepdim = inputs
        ctx.axes = sorted(i % max(x.ndim, 1) for i in (dim if isinstance(dim, tuple) else (dim,)))
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        if x.ndim and not ctx.keepdim:
            for i in ctx.axes:
                g, y = g.unsqueeze(i), y.unsqueeze(i)
        return torch.where(y.isinf(), 0, g * torch.exp(x - y)), None, None


class _Softmax(Function):
    """Saves its output; its backward is written out."""

    @staticmethod
    def forward(x, dim):
        e = (x - x.amax(dim, keepdim=True)).exp()
        return e / e.sum(dim, keepdim=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dim = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        return p * (g - (g * p).sum(ctx.dim, keepdim=True)), None


@logsumexp.solution
class LogSumExpBySoftmax(LogSumExpNew):
    """A Function of its own as softmax in backward; the infinite results put in by hand."""

    @staticmethod
    def forward(x, dim, keepdim=False):
        m = x.amax(dim, keepdim=True)
        y = torch.where(m.isfinite(), torch.log(torch.exp(x - m).sum(dim, keepdim=True)) + m, m)
        return y if keepdim else y.reshape(x.sum(dim).shape)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.dim, _ = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None, None, None
        (x,) = ctx.saved_tensors
        p = _Softmax.apply(x, ctx.dim)
        return p * g.reshape(_kept(x, ctx.dim)), None, None


@logsumexp.mistake(
    "value",
    "You leave out the maximum at the end. It was subtracted from every exponent, so the logarithm is too small by exactly it: "
    "log sum exp(x) = m + log sum exp(x - m).",
)
class max_not_added_back(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        return (x - _largest(x, dim)).exp().sum(dim, keepdim).log()


@logsumexp.mistake(
    "value",
    "You add a small number to the sum before the logarithm. After the shift the sum is at least 1, so nothing needs that, and "
    "it costs digits; a row of -inf, where the sum is 0, should give -inf.",
)
class epsilon_in_logarithm(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        m = _largest(x, dim)
        y = m + ((x - m).exp().sum(dim, keepdim=True) + 1e-6).log()
        return y if keepdim else y.reshape(x.sum(dim).shape)


@logsumexp.mistake(
    "value",
    "Your output is squeezed of every axis of size 1. Only the reduced axes go: x of shape (1, 3) reduced over 1 gives shape (1,).",
)
class squeezes_everything(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        y = LogSumExpNew.forward(x, dim, True)
        return y if keepdim else y.squeeze()


@logsumexp.mistake("value", FLOAT32_AND_BACK)
class float32_and_back(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        return LogSumExpNew.forward(x.float(), dim, keepdim).to(x.dtype)


@logsumexp.mistake(
    "value",
    "Your forward calls a built-in that does the task (logsumexp, logaddexp, a softmax or log_softmax). Make it from the maximum, "
    "exp, a sum and log.",
)
class calls_logsumexp(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        return torch.logsumexp(x, dim, keepdim)


@logsumexp.mistake(
    "dims",
    "Your output never keeps the reduced axes. With keepdim=True they stay, with size 1: that is what makes x - output "
    "broadcast.",
)
class keepdim_ignored(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        return LogSumExpNew.forward(x, dim, False)


@logsumexp.mistake(
    "dims",
    "Your forward takes the maximum with max(dim), which knows one axis and fails for a tuple. amax takes an int or a tuple, as "
    "sum does.",
)
class max_of_one_axis(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        m = x.max(dim, keepdim=True).values
        return _shifted(x, dim, keepdim, torch.where(m.isinf(), 0, m))


@logsumexp.mistake(
    "dims",
    "Your backward brings the axis back with unsqueeze(dim), which takes one int and fails for a tuple. Reshape to the shape "
    "that keepdim=True gives.",
)
class unsqueeze_of_one_axis(LogSumExpNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.dim, ctx.keepdim = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        if not ctx.keepdim and x.ndim:
            g, y = g.unsqueeze(ctx.dim), y.unsqueeze(ctx.dim)
        return g * (x - y).exp(), None, None


def _axes(dim: int | tuple[int, ...]) -> tuple[int, ...]:
    return dim if isinstance(dim, tuple) else (dim,)


@logsumexp.mistake(
    "dims",
    "Your backward brings the axes back although keepdim=True has kept them: the output then has axes too many, and "
    "broadcasting makes something of it or raises. Ask whether they were kept, or reshape, which is right both times.",
)
class unsqueezed_twice(LogSumExpNew):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        for i in sorted(i % max(x.ndim, 1) for i in _axes(ctx.dim)) if x.ndim else ():
            g, y = g.unsqueeze(i), y.unsqueeze(i)
        return g * (x - y).exp(), None, None


@logsumexp.mistake(
    "dims",
    "Your backward brings the axes of a tuple back in the order in which they were given. Negative ones, and those that do not "
    "ascend, then land in wrong places: count them from the front and sort them, or reshape to the shape that keepdim=True gives.",
)
class axes_in_given_order(LogSumExpNew):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        if g.ndim < x.ndim:
            for i in _axes(ctx.dim):
                g, y = g.unsqueeze(i), y.unsqueeze(i)
        return g * (x - y).exp(), None, None


@logsumexp.mistake(
    "dims",
    "You reduce the axes of a tuple one after another without keeping them. After the first the axes behind it have moved up "
    "by one, so the next reduction takes a wrong axis: keep them until the end.",
)
class axes_move(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        y = x
        for i in _axes(dim):
            y = _shifted(y, i, keepdim, _largest(y, i))
        return y


@logsumexp.mistake(
    "dims",
    "You reduce the last axis whatever dim is. The axis is the caller's choice, and the output has the other ones.",
)
class last_axis_always(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        return _shifted(x, -1, keepdim, _largest(x, -1))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dim = -1
        ctx.save_for_backward(inputs[0], output)


@logsumexp.mistake(
    "gradient",
    "Your gradient does not depend on the upstream gradient: it is the softmax alone. Multiply each row by the upstream gradient "
    "of its output.",
)
class upstream_ignored(LogSumExpNew):
    @staticmethod
    def backward(ctx, g):
        return LogSumExpNew.backward(ctx, torch.ones_like(g))


@logsumexp.mistake(
    "gradient",
    "Your backward returns one gradient, or nothing (is there a return?), and forward has three arguments: torch wants one for "
    "each, None for dim and keepdim.",
)
class one_gradient_returned(LogSumExpNew):
    @staticmethod
    def backward(ctx, g):
        return LogSumExpNew.backward(ctx, g)[0]


@logsumexp.mistake(
    "gradient",
    "Your backward copies the upstream gradient along the row, as for a sum. Here each element gets its share: the softmax, "
    "exp(x - output), whose sum along dim is 1.",
)
class gradient_of_a_sum(LogSumExpNew):
    @staticmethod
    def backward(ctx, g):
        x, _ = ctx.saved_tensors
        return g.reshape(_kept(x, ctx.dim)).expand(x.shape), None, None


@logsumexp.mistake(
    "gradient",
    "You add a gradient for the maximum that was added back. The same maximum was subtracted inside, and that cancels it: the "
    "result does not depend on the shift. The gradient is the softmax alone, and sums to 1.",
)
class max_gets_gradient(LogSumExpNew):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        shape = _kept(x, ctx.dim)
        p = (x - y.reshape(shape)).exp() + (x == x.amax(ctx.dim, keepdim=True))
        return g.reshape(shape) * p, None, None


@logsumexp.mistake("gradient", VIEW_NEEDED)
class view_needed(LogSumExpNew):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        shape = _kept(x, ctx.dim)
        return g.view(-1).view(shape) * (x - y.reshape(shape)).exp(), None, None


@logsumexp.mistake("gradient", NO_FUNCTION)
def no_function(x, dim, keepdim=False):
    return LogSumExpNew.forward(x, dim, keepdim)


@logsumexp.mistake(
    "extremes",
    "Your forward takes exp of x as it is: it overflows above 88.7 in float32, and a row below -104 becomes log 0. Subtract the "
    "maximum along dim first, and add it at the end.",
)
class no_shift(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        return x.exp().sum(dim, keepdim).log()


@logsumexp.mistake(
    "extremes",
    "You subtract the maximum of the whole tensor. In a row far below it every exp is 0 and the logarithm -inf: each row needs "
    "its own maximum, along dim.",
)
class shift_of_everything(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        m = x.max() if x.numel() else x.new_zeros(())
        return _shifted(x, dim, keepdim, torch.where(m.isinf(), 0, m))


@logsumexp.mistake(
    "extremes",
    "Your forward is right, and your backward divides exp(x) by its sum without a shift: inf / inf, or 0 / 0, is nan. Take "
    "exp(x - output), whose exponent is never above 0.",
)
class no_shift_in_backward(LogSumExpNew):
    @staticmethod
    def backward(ctx, g):
        x, _ = ctx.saved_tensors
        e = x.exp()
        total = e.sum(ctx.dim, keepdim=True)
        return g.reshape(total.shape) * e / total, None, None


@logsumexp.mistake(
    "infinities",
    "Your shift is the maximum also where that is infinite: inf - inf is nan. A row of -inf should give -inf and a row with inf "
    "should give inf: shift by 0 where the maximum is infinite.",
)
class no_guard(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        return _shifted(x, dim, keepdim, x.amax(dim, keepdim=True))


@logsumexp.mistake(
    "infinities",
    "You guard against a maximum of -inf, and one of inf still gives inf - inf, which is nan. A row with inf should give inf.",
)
class only_minus_infinity_guarded(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        m = x.amax(dim, keepdim=True)
        return _shifted(x, dim, keepdim, m.masked_fill(m == -INF, 0))


@logsumexp.mistake(
    "infinities",
    "You ask whether any maximum is infinite, and then leave out the shift for all rows. The rows beside it are finite and need "
    "theirs: decide element by element, with torch.where or masked_fill.",
)
class one_row_decides(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        m = x.amax(dim, keepdim=True)
        return _shifted(x, dim, keepdim, torch.zeros_like(m) if m.isinf().any() else m)


@logsumexp.mistake(
    "infinities",
    "Your backward returns zeros for the whole input as soon as one row is infinite. The other rows have a gradient: decide row by "
    "row, or not at all, since exp(x - output) is right in every row that is finite.",
)
class zeros_for_all_rows(LogSumExpNew):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        if y.isinf().any():
            return torch.zeros_like(x), None, None
        return LogSumExpNew.backward(ctx, g)


@logsumexp.mistake(
    "second_order",
    "Your first derivative is right, but what was saved is a constant, so the Hessian is 0 where diag(p) - p p^T is right: a "
    "softmax made in forward, or detached. Save x and the output themselves and compute exp(x - output) in backward.",
)
class saves_softmax(LogSumExpNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.dim, _ = inputs
        e = (x - x.amax(ctx.dim, keepdim=True)).exp()
        ctx.save_for_backward(e / e.sum(ctx.dim, keepdim=True))

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        return g.reshape(_kept(p, ctx.dim)) * p, None, None


@logsumexp.mistake(
    "second_order",
    "Your Hessian is diag(p): the part - p p^T is missing, because log-sum-exp (or the maximum and the sum) came to backward as a "
    "constant: a copy, a reshaped output or an intermediate result was saved, or detached. Save the output itself, and reshape it "
    "in backward.",
)
class saves_copy_of_output(LogSumExpNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.dim, _ = inputs
        ctx.save_for_backward(x, output.reshape(_kept(x, ctx.dim)).clone())


CONSTANT_UPSTREAM = (
    "You look whether the upstream gradient requires a gradient, and else compute without a graph (no_grad, or detach). The gradient "
    "depends on the input too: for torch.autograd.functional.hessian, whose upstream gradient is a constant, your Hessian is 0."
)


@logsumexp.mistake("second_order", CONSTANT_UPSTREAM)
class graph_for_upstream_alone(LogSumExpNew):
    @staticmethod
    def backward(ctx, g):
        with torch.set_grad_enabled(g.requires_grad):
            return LogSumExpNew.backward(ctx, g)


@logsumexp.mistake("second_order", CUT_OFF)
class not_differentiable_twice(LogSumExpNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return LogSumExpNew.backward(ctx, g)


@logsumexp.mistake(
    "contract",
    "Your forward subtracts the maximum in place (x -= m, sub_, out=x): the caller's tensor is overwritten. Write x - m, a new "
    "tensor.",
)
class writes_into_input(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        m = _largest(x, dim)
        y = m + x.sub_(m).exp().sum(dim, keepdim=True).log()
        return y if keepdim else y.reshape(x.sum(dim).shape)


@logsumexp.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(LogSumExpNew):
    @staticmethod
    def backward(ctx, g):
        _, y = ctx.saved_tensors
        g.mul_(y.isfinite())
        return LogSumExpNew.backward(ctx, g)


@logsumexp.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(LogSumExpNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.dim, _ = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        shape = _kept(ctx.x, ctx.dim)
        return g.reshape(shape) * (ctx.x - y.reshape(shape)).exp(), None, None


@logsumexp.mistake(
    "contract",
    "You keep dim (or the shape, or tensors) outside ctx, on the class or in a global: a second call overwrites it before the first "
    "one's backward. A number or a shape becomes an attribute of ctx, a tensor goes through ctx.save_for_backward.",
)
class kept_outside_ctx(LogSumExpNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, GLOBAL["dim"], _ = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, g):
        ctx.dim = GLOBAL["dim"]
        return LogSumExpNew.backward(ctx, g)


@logsumexp.mistake(
    "contract",
    "Where there is nothing to add up (no dimensions, or an axis of one element) your forward returns x itself, or a view of it: "
    "changing the output in place would change x. Return a new tensor.",
)
class returns_its_input(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        if math.prod(x.shape[i] for i in _axes(dim)) == 1 if x.ndim else True:
            return x.reshape(_kept(x, dim)) if keepdim else x.reshape(x.sum(dim).shape)
        return LogSumExpNew.forward(x, dim, keepdim)


# --- online_logsumexp -------------------------------------------------------------------------------------------------

CALL = "online_logsumexp(chunks)"


def _chunks(name: str, *chunks: Tensor | list[float], dtype: torch.dtype = DOUBLE, **options: object) -> Case:
    """A case of these chunks, from a generator."""
    given = tuple(c.to(dtype) if isinstance(c, Tensor) else torch.tensor(c, dtype=dtype) for c in chunks)
    return Case(name, (Helper("given_one_by_one", given),), requires_grad=(False,), **options)


def _streams(d: Draw) -> list[Case]:
    """Ragged chunks, single ones, and maxima in every order."""
    x = _logits(d)
    steps = torch.arange(5.0, dtype=DOUBLE)[:, None]
    return [
        _chunks("three chunks", x(4), x(2), x(3), watch=("trace",), deny=SUMS),
        *(_chunks(f"{_named(t)} chunks", x(3), x(1), x(4), dtype=t) for t in DTYPES[:3]),
        _chunks("one chunk", x(5)),
        _chunks("one chunk of one number", x(1)),
        _chunks("chunks of one number", *x(5, 1)),
        _chunks("ascending maxima", *(2 * steps + x(5, 3))),
        _chunks("descending maxima", *(-2 * steps + x(5, 3))),
        _chunks("equal chunks", *x(1, 3).expand(4, 3)),
    ]


def _streams_far(d: Draw) -> list[Case]:
    x, up = _logits(d), torch.linspace(-1, 1, 5, dtype=DOUBLE)[:, None]
    cases = [
        _chunks("from -10000 up to 10000", *(1e4 * up + x(5, 3)), watch=("trace",), deny=SUMS),
        _chunks("from 10000 down to -10000", *(-1e4 * up + x(5, 3))),
        _chunks("all around -10000", *(x(3, 4) - 1e4)),
        _chunks("all around 1000", *(x(3, 4) + 1000)),
        _chunks("10000 in the middle", x(3), [1e4, -1e4], x(2)),
        _chunks("one 0, and 5000 numbers at -21", [0.0], torch.full((5000,), -21.0)),
        _chunks("float32 around 100", *(x(3, 2) + 100), dtype=SINGLE),
        _chunks("float32 around -120", *(x(3, 2) - 120), dtype=SINGLE),
    ]
    for dtype in (HALF, BRAIN):
        cases += [_chunks(f"{_named(dtype)} around {n:g}", *(x(3, 2) + n), dtype=dtype) for n in (100, -100)]
    return cases


def _streams_infinite(d: Draw) -> list[Case]:
    x, none, some = _logits(d), [-INF, -INF], [INF, 0.0]
    return [
        _chunks("-inf first", none, x(3), x(2), watch=("trace",), deny=SUMS),
        _chunks("-inf first, then around -1000", none, x(3) - 1000),
        _chunks("-inf in the middle and last", x(3), none, x(2), [-INF]),
        _chunks("-inf beside numbers", [-INF, 1.0], [0.5, -INF]),
        _chunks("nothing but -inf", none, [-INF], none),
        _chunks("a single -inf", [-INF]),
        _chunks("inf first", some, x(3)),
        _chunks("inf in the middle", x(2), [INF], x(3)),
        _chunks("inf last", x(2), [1.0, INF]),
        _chunks("inf twice", [INF], x(2), some),
        _chunks("-inf, then inf", none, [INF], none),
        *(_chunks(f"{_named(t)}, -inf first and last", none, x(3), none, dtype=t) for t in DTYPES[:3]),
    ]


def streamed(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """One chunk at a time, and nothing that grows with their number."""
    tally = dict(yours.tally)

    def found(message: str, **evidence: str) -> Finding:
        return Finding("counts", message, {"case": case.name, **evidence})

    if (alive := tally.get("chunks_alive", 0)) > 3:
        text = "Earlier chunks are still in memory when a later one is asked for: only the current one fits."
        return found(text, yours=f"{alive} chunks alive at once", expected="the current one")
    if (each := tally.get("numbers_kept", 0)) > 0:
        text = "Something grows with the number of chunks (a list of results?): a fixed number of scalars is enough."
        return found(text, yours=f"about {each} objects or numbers more for each chunk", expected="none")
    if tally.get("chunks_changed", 0):
        return found("Your function changes a chunk in place; it belongs to the caller.")
    return None


def _in_one(chunks: object) -> Tensor:
    x = torch.cat(list(chunks))
    return torch.logsumexp(x.double(), 0).to(x.dtype)


online = Task(
    "online_logsumexp",
    CALL,
    _in_one,
    (
        Check(
            "value",
            2,
            "the log-sum-exp of all chunks together, 0-d and in their dtype, from an iterator",
            "A maximum that grows on the way changes what the earlier chunks are worth.",
            _streams,
            (*FORWARD, look.allowed),
        ),
        Check(
            "extremes",
            1,
            "maxima from -10000 to 10000 and back, 100 and -100 in halves",
            "Every exponent is taken relative to the largest number so far, in whatever order they come.",
            _streams_far,
            (*FORWARD, look.allowed),
        ),
        Check(
            "infinities",
            1,
            "chunks of -inf, first, last and all; inf anywhere",
            "Finite chunks stand beside infinite ones here, and both have to be right: -inf counts nothing, the first chunk of all "
            "too, and one inf makes inf.",
            _streams_infinite,
            (*FORWARD, look.allowed),
        ),
        Check(
            "one_pass",
            1,
            "the state does not grow with the number of chunks, and no chunk is changed",
            "The chunks together do not fit into memory: that is why they come in chunks.",
            lambda d: [
                _chunks("eight chunks", *_logits(d)(8, 3)),
                _chunks("chunks of 0 and 1", *torch.eye(4, dtype=DOUBLE)),
                Case("280 chunks", (Helper("many_chunks", (_logits(d)(280, 2),)),), requires_grad=(False,)),
            ],
            (*FORWARD[:3], streamed, *FORWARD[3:]),
        ),
    ),
    forbids=FORBIDS,
)


@online.solution
def with_running_maximum(chunks):
    """Maximum and sum of exponentials; a guard for the shift alone."""
    m = s = None
    for chunk in chunks:
        high = chunk.max() if m is None else torch.maximum(m, chunk.max())
        shift = torch.where(high.isinf(), 0, high)
        part = (chunk - shift).exp().sum()
        s = part if s is None else s * (m - shift).exp() + part
        m = high
    return torch.where(m.isinf(), m, m + s.log())


@online.solution
def with_running_result(chunks):
    """The result so far as one more number of the chunk."""
    result = None
    for chunk in chunks:
        x = chunk if result is None else torch.cat([result.reshape(1), chunk])
        m = x.max()
        result = m + (x - m).exp().sum().log() if m.isfinite() else m
    return result


@online.solution
def in_python_floats(chunks):
    """State (m, s) in Python numbers, float64 inside; rescales only when the maximum grows."""
    m, s, like = -INF, 0.0, None
    for chunk in chunks:
        like = chunk
        high = float(chunk.max())
        if high > m:
            s, m = s * float(torch.exp(torch.tensor(m - high, dtype=DOUBLE))), high
        if m == INF:
            continue
        if high > -INF:
            s += (chunk.double() - m).exp().sum().item()
    if m in (INF, -INF):
        return torch.full((), m, dtype=like.dtype)
    return (m + torch.tensor(s, dtype=DOUBLE).log()).to(like.dtype)


@online.solution
def with_next(chunks):
    """The first chunk gives the state; pairs are merged by a function."""

    def state(x):
        m = x.amax()
        return m, (x - m.clamp(torch.finfo(x.dtype).min, torch.finfo(x.dtype).max)).exp().sum()

    def merge(one, two):
        (m, s), (n, t) = one, two
        if not m >= n:
            (m, s), (n, t) = (n, t), (m, s)
        return m, s + t * torch.exp(torch.nan_to_num(n - m, nan=0.0))

    chunks = iter(chunks)
    total = state(next(chunks))
    for chunk in chunks:
        total = merge(total, state(chunk))
    m, s = total
    return torch.where(m.isinf(), m, m + s.log())


@online.mistake(
    "value",
    "You go through the chunks twice, once for the maximum and once for the sum. An iterator is used up after the first time, so "
    "the sum stays empty. Rescale the sum when the maximum grows, and one pass is enough.",
)
def two_passes(chunks):
    m = torch.stack([chunk.max() for chunk in chunks]).max()
    s = torch.zeros_like(m)
    for chunk in chunks:
        s = s + (chunk - m).exp().sum()
    return torch.where(m.isinf(), m, m + s.log())


@online.mistake(
    "value",
    "You ask for the length of chunks, or for chunks[0]. An iterator has neither: it gives the next one, and ends.",
)
def indexed(chunks):
    m, s = _state(chunks[0])
    for i in range(1, len(chunks)):
        m, s = _merged(m, s, chunks[i])
    return _result(m, s)


def _state(x: Tensor) -> tuple[Tensor, Tensor]:
    return _merged(torch.full((), -INF, dtype=x.dtype), torch.zeros((), dtype=x.dtype), x)


def _merged(m: Tensor, s: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The state (m, s) with a chunk added."""
    high = torch.maximum(m, x.max())
    shift = torch.where(high.isinf(), 0, high)
    return high, s * (m - shift).exp() + (x - shift).exp().sum()


def _result(m: Tensor, s: Tensor) -> Tensor:
    return torch.where(m.isinf(), m, m + s.log())


def _run(chunks: object, merged: Callable = _merged, result: Callable = _result, state: Callable = _state) -> Tensor:
    """The right loop, with parts of it changed."""
    total = None
    for chunk in chunks:
        total = state(chunk) if total is None else merged(*total, chunk)
    return result(*total)


@online.mistake(
    "value",
    "When a larger maximum comes, the sum so far stays as it is. It was relative to the old maximum: multiply it by exp(old - "
    "new) before the new terms are added.",
)
def sum_not_rescaled(chunks):
    def merged(m, s, x):
        high = torch.maximum(m, x.max())
        return high, s + (x - torch.where(high.isinf(), 0, high)).exp().sum()

    return _run(chunks, merged)


@online.mistake(
    "value",
    "You rescale the sum the wrong way round: by exp(new - old), which is above 1 when the maximum grows. What counted 1 "
    "relative to the old maximum counts less relative to a larger one: exp(old - new).",
)
def rescaled_upwards(chunks):
    def merged(m, s, x):
        high = torch.maximum(m, x.max())
        shift, old = torch.where(high.isinf(), 0, high), torch.where(m.isinf(), 0, m)
        return high, s * (shift - old).exp() + (x - shift).exp().sum()

    return _run(chunks, merged)


@online.mistake(
    "value",
    "You add the log-sum-exps of the chunks. Logarithms of sums do not add up: the sums under them do, once they are relative to "
    "the same maximum.",
)
def results_added(chunks):
    return sum(_result(*_state(chunk)) for chunk in chunks)


@online.mistake(
    "value",
    "Your result is that of the last chunk: the state begins anew inside the loop. Set it before the loop and carry it on.",
)
def last_chunk_alone(chunks):
    return _run(chunks, lambda m, s, x: _state(x))


@online.mistake(
    "value",
    "The first chunk is missing from your result: next(chunks) has taken it, to look at its dtype perhaps, and the loop begins "
    "with the second.",
)
def first_chunk_dropped(chunks):
    first = next(iter(chunks))
    total = torch.full((), -INF, dtype=first.dtype), torch.zeros((), dtype=first.dtype)
    return _result(*reduce(lambda state, x: _merged(*state, x), chunks, total))


@online.mistake(
    "value",
    "You leave out the maximum at the end. The sum is relative to it: the result is the maximum plus the logarithm of the sum.",
)
def maximum_not_added_back(chunks):
    return _run(chunks, result=lambda m, s: torch.where(m.isinf(), m, s.log()))


@online.mistake(
    "value",
    "Your result is float32 whatever the chunks are: torch.tensor of a Python number is, and so is torch.zeros. Give the result "
    "the dtype of the chunks.",
)
def float32_result(chunks):
    return torch.tensor(_run(chunks).item())


@online.mistake(
    "value", "You return a Python number. A tensor without dimensions is asked for, of the dtype of the chunks."
)
def number_returned(chunks):
    return _run(chunks).item()


@online.mistake(
    "value",
    "Your state is float32 and the result is cast back: for float64 chunks half of the digits are lost. Take the dtype of the "
    "chunks, or float64.",
)
def float32_state(chunks):
    like = []

    def single(x):
        like[:] = [x.dtype]
        return x.float()

    result = _run(map(single, chunks))
    return result.to(like[0])


@online.mistake(
    "value",
    "You call a built-in that does the task (logsumexp, logaddexp, a softmax). Carry a maximum and a sum of exponentials, and "
    "take one logarithm at the end.",
)
def calls_logaddexp(chunks):
    return reduce(torch.logaddexp, (_result(*_state(chunk)) for chunk in chunks))


@online.mistake(
    "value",
    "You merge by softplus: a + softplus(b - a) is the logaddexp of a and b, which torch has ready. Carry a maximum and a sum of "
    "exponentials, and take one logarithm at the end.",
)
def merges_by_softplus(chunks):
    return reduce(lambda a, b: a + F.softplus(b - a), (_result(*_state(chunk)) for chunk in chunks))


@online.mistake(
    "extremes",
    "Your maximum is that of the current chunk, not the largest so far. Where a chunk is far below an earlier one, the sum so far "
    "is multiplied by the exp of a large number, which overflows: take the larger of the two maxima.",
)
def maximum_of_the_chunk(chunks):
    def merged(m, s, x):
        high = x.max()
        shift, old = torch.where(high.isinf(), m, high), torch.where(m.isinf(), high, m)
        if high.isinf() or m.isinf():
            return _merged(m, s, x)
        return high, s * (old - shift).exp() + (x - shift).exp().sum()

    return _run(chunks, merged)


@online.mistake(
    "extremes",
    "Every chunk is shifted by the maximum of the first one. A later one that is far above it overflows: let the maximum grow, and "
    "rescale the sum when it does.",
)
def first_maximum_kept(chunks):
    def merged(m, s, x):
        if m.isinf() or x.max().isinf():
            return _merged(m, s, x)
        return m, s + (x - m).exp().sum()

    return _run(chunks, merged)


@online.mistake(
    "extremes",
    "You leave out chunks that are far below the maximum. One number of theirs counts next to nothing; thousands of them do not.",
)
def far_chunks_skipped(chunks):
    return _run(chunks, lambda m, s, x: (m, s) if x.max() < m - 16 else _merged(m, s, x))


@online.mistake(
    "extremes",
    "You add up exp of the chunks as they are: it overflows above 88.7 in float32, and below -104 the sum is 0. Keep the largest "
    "number so far, and take every exponent relative to it.",
)
def no_shift(chunks):
    return sum(chunk.exp().sum() for chunk in chunks).log()


@online.mistake(
    "extremes",
    "Your running maximum begins at 0 (or at another number of no account). Where all numbers are far below it, every exp is 0 "
    "and the result -inf. Begin at -inf, or with the first chunk.",
)
def begins_at_zero(chunks):
    def state(x):
        return _merged(torch.zeros((), dtype=x.dtype), torch.zeros((), dtype=x.dtype), x)

    return _run(chunks, state=state)


@online.mistake(
    "infinities",
    "Your shift is the maximum also where that is infinite: inf - inf is nan. A first chunk of -inf makes everything nan, and inf "
    "anywhere too: shift by 0 where the maximum so far is infinite.",
)
def no_guard(chunks):
    def merged(m, s, x):
        high = torch.maximum(m, x.max())
        return high, s * (m - high).exp() + (x - high).exp().sum()

    def state(x):
        return x.max(), (x - x.max()).exp().sum()

    return _run(chunks, merged, lambda m, s: m + s.log(), state)


@online.mistake(
    "infinities",
    "You guard against a maximum of -inf, and one of inf still gives inf - inf, which is nan. With inf in any chunk the result is inf.",
)
def only_minus_infinity_guarded(chunks):
    def merged(m, s, x):
        high = torch.maximum(m, x.max())
        shift = torch.where(high == -INF, 0, high)
        return high, s * (m - shift).exp() + (x - shift).exp().sum()

    def state(x):
        return merged(torch.full((), -INF, dtype=x.dtype), torch.zeros((), dtype=x.dtype), x)

    return _run(chunks, merged, lambda m, s: m + s.log(), state)


@online.mistake(
    "infinities",
    "Your state keeps the shift in place of the maximum: 0 for a chunk of -inf. Merged with numbers far below 0 it hides them "
    "all. Keep -inf as the maximum, and replace it where you subtract, nowhere else.",
)
def guard_kept_as_maximum(chunks):
    def merged(m, s, x):
        high = torch.maximum(m, x.max())
        high = torch.where(high.isinf(), 0, high)
        return high, s * (m - high).exp() + (x - high).exp().sum()

    def state(x):
        return merged(torch.full((), -INF, dtype=x.dtype), torch.zeros((), dtype=x.dtype), x)

    return _run(chunks, merged, lambda m, s: m + s.log(), state)


@online.mistake(
    "infinities",
    "You leave out chunks whose maximum is infinite. That is right for one of -inf, as long as another follows; with inf in a "
    "chunk the result is inf, and of -inf alone it is -inf.",
)
def infinite_chunks_skipped(chunks):
    return _run(chunk for chunk in chunks if chunk.max().isfinite())


@online.mistake(
    "one_pass",
    "You collect all chunks (torch.cat, list(chunks)) before you reduce them. They come one by one since they do not fit into "
    "memory together: carry a maximum and a sum instead.",
)
def collects_chunks(chunks):
    return _result(*_state(torch.cat(list(chunks))))


@online.mistake(
    "one_pass",
    "You collect one result for each chunk, in a list, and join them at the end: a list that grows with the number of chunks. "
    "Merge each chunk into the state as it comes: two numbers are enough.",
)
def collects_results(chunks):
    return _result(*_state(torch.stack([_result(*_state(chunk)) for chunk in chunks])))


@online.mistake(
    "one_pass",
    "You join each chunk to the tensor of all chunks so far: at the end it holds everything. Merge each chunk into a maximum and "
    "a sum.",
)
def joins_chunks(chunks):
    return _result(*_state(reduce(lambda one, two: torch.cat([one, two]), chunks)))


@online.mistake(
    "one_pass",
    "You subtract the maximum from the chunk in place (chunk -= m, sub_, exp_): it belongs to the caller. Write chunk - m, a new "
    "tensor.",
)
def writes_into_chunk(chunks):
    m = s = None
    for chunk in chunks:
        high = chunk.max() if m is None else torch.maximum(m, chunk.max())
        shift = torch.where(high.isinf(), 0, high)
        part = chunk.sub_(shift).exp_().sum()
        m, s = high, part if s is None else s * (m - shift).exp() + part
    return _result(m, s)


# --- CrossEntropy -----------------------------------------------------------------------------------------------------

# The losses of torch that end in the logarithm of a probability
LOSSES = (
    *operators("nll_loss_forward nll_loss2d_forward multi_margin_loss binary_cross_entropy"),
    *operators("binary_cross_entropy_with_logits"),
    "torch.nn.functional.kl_div",
)

NO_LOSS = look.Forbids(
    "The loss is to be written in torch: softmax, log_softmax and logsumexp are allowed, a loss of torch's "
    "is not, other libraries are not, and in backward no torch.autograd or torch.func.",
    names="""
        cross_entropy nll_loss nll_loss_nd nll_loss2d cross_entropy_loss kl_div binary_cross_entropy multi_margin_loss
        binary_cross_entropy_with_logits CrossEntropyLoss NLLLoss NLLLoss2d KLDivLoss BCELoss BCEWithLogitsLoss MultiMarginLoss
    """,
    foreign=True,
    backward=True,
)


def _batch(
    d: Draw, n: int, classes: int, dtype: torch.dtype = DOUBLE, around: float = 0.0, last: int = 0
) -> tuple[Tensor, Tensor]:
    """Logits (n, classes) and targets, none of the `last` classes among them."""
    target = torch.randint(0, classes - last, (n,), generator=d.random)
    return d.between(-2 + around, 3 + around, n, classes).to(dtype), target


def _batches(d: Draw, order: int) -> list[Case]:
    logits, target = _batch(d, 4, 3)
    other, _ = _batch(d, 3, 4)
    return [
        *(d.case(f"{_named(t)} logits", *_batch(d, 4, 3, t), order=order) for t in DTYPES),
        d.case("as many rows as classes", *_batch(d, 3, 3), order=order),
        d.case("one row", *_batch(d, 1, 4), order=order),
        d.case("one class", *_batch(d, 3, 1), order=order),
        d.case("the last class missing", *_batch(d, 4, 3, last=1), order=order),
        d.case("transposed logits", other.t(), target, order=order),
        d.case("equal rows, expanded", logits[:1].expand(4, 3), target, order=order),
        d.case("every second target", logits[:2], target[::2], order=order),
        d.case("target by keyword", logits, target, keywords=("target",), order=order),
    ]


def _far_batches(d: Draw) -> list[Case]:
    """Large logits and -inf. In low precision the gradient only where one term is large: others lose digits in x - y."""
    second = torch.tensor([1, 0])
    masked = _rows([1.0, -INF, 2.0], [0.5, 0.0, -INF])
    cases = [
        d.case("around 10000, 0 and -10000", _rows([1e4], [0], [-1e4]) + _batch(d, 3, 4)[0], torch.tensor([3, 0, 1])),
        d.case(
            "10000 and -10000 in one row",
            _rows([1e4, -1e4, 0], [-1e4, 1e4, 1e4]),
            second,
            watch=("trace",),
            deny=LOSSES,
        ),
        d.case("float32 around 95", *_batch(d, 2, 3, SINGLE, 95)),
        d.case("float32 around -110", *_batch(d, 2, 3, SINGLE, -110)),
        *(d.case("float32 around 10000", *_batch(d, 1, 3, SINGLE, 1e4), order=0) for _ in range(4)),
        d.case("-inf beside the target", masked, torch.tensor([0, 0])),
        d.case("-inf at the target, where the loss is inf", masked, second),
        d.case("float16, -inf beside the target", masked.half(), torch.tensor([2, 1])),
    ]
    for dtype, far in ((SINGLE, 1e4), (HALF, 100.0), (BRAIN, 100.0)):
        one = _rows([far, -far, 0.0], [-far, -2 * far, -1.5 * far], dtype=dtype)
        cases += [
            d.case(f"{_named(dtype)} at {far:g} and -{far:g}", one, second),
            d.case(f"{_named(dtype)} at {far:g}, without loss", one, torch.tensor([0, 0])),
        ]
    return [*cases, d.case("float16 around 100", *_batch(d, 2, 3, HALF, 100), order=0)]


cross_entropy = Task(
    "CrossEntropy",
    "CrossEntropy.apply(logits, target)",
    lambda logits, target: F.cross_entropy(logits.double(), target).to(logits.dtype),
    (
        Check(
            "value",
            1,
            "the loss equals F.cross_entropy, its mean over the rows, in every dtype and layout",
            "Forward is what every later number rests on.",
            lambda d: [
                *_batches(d, order=0),
                d.case("a batch", *_batch(d, 4, 3), order=0, watch=("trace",), deny=LOSSES),
            ],
            (*FORWARD, look.allowed),
        ),
        Check(
            "gradient",
            2,
            "the gradient equals torch's for any upstream gradient, and gradcheck passes",
            "Backward returns (p - y) / N times the upstream gradient, p the softmax of a row, y 1 at its target.",
            lambda d: [
                *_batches(d, order=1),
                *(d.case("an upstream of any size", *_batch(d, 4, 3), upstream=u) for u in d.scales(3)),
                d.case("a batch", *_batch(d, 4, 3), watch=("trace",), deny=LOSSES),
            ],
            (*FIRST, look.allowed),
            lambda d: _batch(d, 4, 3),
        ),
        Check(
            "extremes",
            1,
            "logits of 10000 and -10000, 100 and -100 in halves, and -inf: loss and gradient",
            "Logits of this size are everyday, and -inf is how a class is ruled out.",
            _far_batches,
            (*BOTH, look.allowed),
        ),
        Check(
            "second_order",
            1,
            "the gradient can be differentiated again, by logits and upstream gradient",
            "The Hessian of a row is (diag(p) - p p^T) / N. Newton steps and gradient penalties need it.",
            lambda d: [
                d.case("a batch", *_batch(d, 4, 3), order=2),
                d.case("one row", *_batch(d, 1, 3), order=2),
                d.case("one class", *_batch(d, 2, 1), order=2),
                d.case("float32", *_batch(d, 3, 4, SINGLE), order=2),
                d.case("around 1000", *_batch(d, 2, 3, around=1000), order=2),
                d.case("-inf beside the target", _rows(*MIXED[::5]), torch.tensor([1, 0]), order=2),
                d.case("an upstream gradient that is a constant", *_batch(d, 2, 3), order=2, how="constant"),
            ],
            SECOND,
            lambda d: _batch(d, 2, 3),
            order=2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; those that backward needs are saved",
            "Memory is looked at here, and these numbers first: a gradient that is wrong elsewhere is wrong here too.",
            lambda d: [
                d.case("a batch", _batch(d, 4, 3)[0], TARGET, watch=ALL, between=(_batch(d, 4, 3)[0], TARGET.flip(0))),
                d.case(
                    "float32",
                    _batch(d, 4, 3, SINGLE)[0],
                    TARGET,
                    watch=("state", "overwrite"),
                    between=_batch(d, 1, 3, SINGLE),  # one row, so that what is kept of it broadcasts
                ),
            ],
            CONTRACT,
        ),
    ),
    forbids=NO_LOSS,
)
TARGET = torch.tensor([0, 2, 1, 1])


def _log_p(logits: Tensor) -> Tensor:
    """The logarithm of the softmax of each row."""
    shifted = logits - logits.amax(1, keepdim=True)
    return shifted - shifted.exp().sum(1, keepdim=True).log()


def _picked(values: Tensor, target: Tensor) -> Tensor:
    """The one of each row that the target names."""
    return values.gather(1, target[:, None])[:, 0]


@cross_entropy.solution
class CrossEntropyNew(Function):
    """Saves the logits and the target; (p - y) / N in backward."""

    @staticmethod
    def forward(logits, target):
        return -_picked(_log_p(logits), target).mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        y = F.one_hot(target, logits.shape[1])
        return g * (_log_p(logits).exp() - y) / len(logits), None


@cross_entropy.solution
class CrossEntropyOld(Function):
    """torch's log_softmax and softmax; writes into tensors of its own alone."""

    @staticmethod
    def forward(ctx, logits, target):
        ctx.save_for_backward(logits, target)
        log_p = torch.log_softmax(logits, dim=1)
        return -log_p[range(len(target)), target].sum() / len(target)

    @staticmethod
    def backward(ctx, grad_output):
        logits, target = ctx.saved_tensors
        p = torch.softmax(logits, dim=-1)
        y = torch.zeros_like(logits).scatter_(1, target.unsqueeze(1), 1.0)
        return grad_output / target.numel() * (p - y), None


@cross_entropy.solution
class CrossEntropyWide(CrossEntropyNew):
    """logsumexp in float64, so that nothing is lost when the target's logit is subtracted; masks in place of indices."""

    @staticmethod
    def forward(logits, target):
        x = logits.double()
        at = torch.arange(x.shape[1]) == target[:, None]
        loss = torch.logsumexp(x, 1) - x[at]
        return loss.mean().to(logits.dtype)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        x = logits.double()
        p = (x - torch.logsumexp(x, 1, keepdim=True)).exp()
        at = torch.arange(x.shape[1]) == target[:, None]
        return (torch.where(at, p - 1, p) * (g.double() / len(x))).to(logits.dtype), None


@cross_entropy.solution
class CrossEntropyByRows(CrossEntropyNew):
    """A loop over the rows; index_add for the ones."""

    @staticmethod
    def forward(logits, target):
        losses = []
        for row, t in zip(logits, target.tolist(), strict=True):
            away = row - row.max()
            losses.append(away.exp().sum().log() - away[t])
        return torch.stack(losses).mean()

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None, None
        logits, target = ctx.saved_tensors
        n, classes = logits.shape
        away = logits - logits.max(1, keepdim=True).values
        p = away.exp() / away.exp().sum(1, keepdim=True)
        flat = p.reshape(-1).index_add(0, torch.arange(n) * classes + target, -torch.ones_like(p[:, 0]))
        return flat.reshape(n, classes) * (g / n), None


@cross_entropy.mistake(
    "value",
    "Your loss is the sum over the rows. The mean is asked for, as F.cross_entropy has it: divide by their number N.",
)
class sum_over_rows(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return -_picked(_log_p(logits), target).sum()


@cross_entropy.mistake(
    "value", "Your loss has the wrong sign: it is minus the logarithm of the target's probability, and never negative."
)
class sign_of_the_loss(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return _picked(_log_p(logits), target).mean()


@cross_entropy.mistake(
    "value",
    "You return one loss for each row. The mean over the rows is asked for, a tensor without dimensions.",
)
class loss_of_each_row(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return -_picked(_log_p(logits), target)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        return g[:, None] * (_log_p(logits).exp() - F.one_hot(target, logits.shape[1])), None


@cross_entropy.mistake(
    "value",
    "Your softmax runs along the rows (dim 0). The classes are the columns: each row of the logits has probabilities that sum "
    "to 1, along dim 1.",
)
class softmax_over_the_batch(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return -_picked(_log_p(logits.t()).t(), target).mean()

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        p = _log_p(logits.t()).t().exp()
        return g * (p - F.one_hot(target, logits.shape[1])) / len(logits), None


@cross_entropy.mistake(
    "value",
    "Your indexing log_p[:, target] takes the columns of all targets for every row: an N x N matrix. One element a row is asked "
    "for: log_p[torch.arange(N), target], or gather.",
)
class columns_indexed(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return -_log_p(logits)[:, target].mean()


@cross_entropy.mistake("value", FLOAT32_AND_BACK)
class float32_and_back(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return CrossEntropyNew.forward(logits.float(), target).to(logits.dtype)


@cross_entropy.mistake(
    "value",
    "Your forward calls a loss of torch's (cross_entropy, nll_loss). The task is to write it: the mean of log sum exp minus the "
    "target's logit. A softmax or log_softmax is allowed, a loss is not.",
)
class calls_a_loss(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return F.nll_loss(_log_p(logits), target)


@cross_entropy.mistake(
    "value",
    "Your one_hot is told nothing of the number of classes, and takes the largest target for the last class. Where that class is "
    "absent from the batch the shapes do not fit: one_hot(target, logits.shape[1]).",
)
class classes_inferred(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return -(F.one_hot(target) * _log_p(logits)).sum() / len(logits)


@cross_entropy.mistake(
    "gradient",
    "Your loss is a mean over N rows, your gradient that of the sum: N times too large. Divide by N in backward too. With one row "
    "nothing shows.",
)
class mean_forgotten(CrossEntropyNew):
    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        return g * (_log_p(logits).exp() - F.one_hot(target, logits.shape[1])), None


@cross_entropy.mistake(
    "gradient",
    "Your gradient does not depend on the upstream gradient, as if the loss were always the last thing. It may be scaled, or one "
    "term of several: multiply by the upstream gradient.",
)
class upstream_ignored(CrossEntropyNew):
    @staticmethod
    def backward(ctx, g):
        return CrossEntropyNew.backward(ctx, torch.ones_like(g))


@cross_entropy.mistake(
    "gradient",
    "Your gradient is the softmax alone: that of log sum exp. The target's logit is subtracted from it, so its gradient is p - 1.",
)
class target_forgotten(CrossEntropyNew):
    @staticmethod
    def backward(ctx, g):
        logits, _ = ctx.saved_tensors
        return g * _log_p(logits).exp() / len(logits), None


@cross_entropy.mistake(
    "gradient", "Your gradient has the wrong sign: y - p goes uphill. It is p - y, negative at the target."
)
class sign_of_the_gradient(CrossEntropyNew):
    @staticmethod
    def backward(ctx, g):
        return CrossEntropyNew.backward(ctx, -g)


@cross_entropy.mistake(
    "gradient",
    "You subtract 1 in whole columns (p[:, target] -= 1) or whole rows (p[target] -= 1). Pairs are asked for, one element a row: "
    "p[torch.arange(N), target], or scatter, or one_hot.",
)
class whole_columns(CrossEntropyNew):
    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        p = _log_p(logits).exp()
        p[:, target] -= 1
        return g * p / len(logits), None


@cross_entropy.mistake(
    "gradient",
    "Your backward returns one gradient, or nothing (is there a return?), and forward has two arguments: torch wants one for each, "
    "None for target.",
)
class one_gradient_returned(CrossEntropyNew):
    @staticmethod
    def backward(ctx, g):
        return CrossEntropyNew.backward(ctx, g)[0]


@cross_entropy.mistake("gradient", NO_FUNCTION)
def no_function(logits, target):
    return CrossEntropyNew.forward(logits, target)


@cross_entropy.mistake(
    "extremes",
    "Your softmax takes exp of the logits as they are: it overflows above 88.7 in float32. Subtract the maximum of each row first.",
)
class no_shift(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return (logits.exp().sum(1).log() - _picked(logits, target)).mean()


@cross_entropy.mistake(
    "extremes",
    "You take the logarithm of the softmax. A probability below the smallest number is 0, and its logarithm -inf, where the loss is "
    "large and finite: subtract log sum exp from the logits, and never form the probability.",
)
class logarithm_of_softmax(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return -_picked(torch.softmax(logits, 1), target).log().mean()


@cross_entropy.mistake(
    "extremes",
    "You bound the probability or its logarithm from below (clamp, or a small number added). A loss above that bound comes out too "
    "small, and -inf at the target should give inf. The shift by the maximum makes all that unnecessary.",
)
class probability_clamped(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return -_picked(_log_p(logits), target).clamp(min=-100).mean()


@cross_entropy.mistake(
    "extremes",
    "You subtract the target's logit from log sum exp: two numbers near 10000 whose difference is near 1, so that float32 keeps "
    "three digits of it. Subtract the maximum of the row from its logits first, and work with the small numbers.",
)
class digits_cancel(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return (torch.logsumexp(logits, 1) - _picked(logits, target)).mean()


@cross_entropy.mistake(
    "extremes",
    "You multiply log p by a one-hot matrix and add up. A class ruled out by -inf gives 0 * -inf, which is nan, also where it is "
    "not the target: pick the target's entry, by gather or by an index.",
)
class one_hot_times_infinity(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return -(F.one_hot(target, logits.shape[1]) * _log_p(logits)).sum() / len(logits)


@cross_entropy.mistake(
    "extremes",
    "Your forward is right, and your backward takes exp of the logits as they are: inf / inf is nan. Shift there too, or take "
    "torch.softmax.",
)
class no_shift_in_backward(CrossEntropyNew):
    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        e = logits.exp()
        p = e / e.sum(1, keepdim=True)
        return g * (p - F.one_hot(target, logits.shape[1])) / len(logits), None


@cross_entropy.mistake(
    "second_order",
    "Your first derivative is right, but the softmax was computed in forward and saved (or detached), so it is a constant for the "
    "second: the Hessian is 0 where (diag(p) - p p^T) / N is right. Save the logits and compute p in backward.",
)
class saves_softmax(CrossEntropyNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        logits, target = inputs
        ctx.save_for_backward(torch.softmax(logits, 1), target)

    @staticmethod
    def backward(ctx, g):
        p, target = ctx.saved_tensors
        return g * (p - F.one_hot(target, p.shape[1])) / len(p), None


@cross_entropy.mistake(
    "second_order",
    "Your backward changes the softmax in place (p[...] -= 1, p -= y, p /= N). It is your own tensor, but the derivative of exp, or of "
    "softmax, needs its values: torch cannot differentiate your gradient. Make a new one: p - y.",
)
class changes_softmax_in_place(CrossEntropyNew):
    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        p = _log_p(logits).exp()
        p[torch.arange(len(p)), target] -= 1
        return g * p / len(p), None


@cross_entropy.mistake("second_order", CONSTANT_UPSTREAM)
class graph_for_upstream_alone(CrossEntropyNew):
    @staticmethod
    def backward(ctx, g):
        with torch.set_grad_enabled(g.requires_grad):
            return CrossEntropyNew.backward(ctx, g)


@cross_entropy.mistake("second_order", CUT_OFF)
class not_differentiable_twice(CrossEntropyNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return CrossEntropyNew.backward(ctx, g)


@cross_entropy.mistake(
    "contract",
    "Your forward subtracts the maximum in place (logits -= m, sub_): the caller's tensor is overwritten. Write logits - m, a new "
    "tensor.",
)
class writes_into_logits(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        logits.sub_(logits.amax(1, keepdim=True))
        return (logits.exp().sum(1).log() - _picked(logits, target)).mean()


@cross_entropy.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(CrossEntropyNew):
    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        g /= len(logits)
        return g * (_log_p(logits).exp() - F.one_hot(target, logits.shape[1])), None


@cross_entropy.mistake(
    "contract",
    "Your backward subtracts 1 in the saved softmax itself. A second backward through the same graph would subtract it again: torch "
    "raises. Subtract in a tensor of your own (and save the logits, not their softmax, for the second derivative).",
)
class subtracts_in_saved(CrossEntropyNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        logits, target = inputs
        ctx.save_for_backward(torch.softmax(logits, 1), target)

    @staticmethod
    def backward(ctx, g):
        p, target = ctx.saved_tensors
        p[torch.arange(len(p)), target] -= 1
        return g * p / len(p), None


@cross_entropy.mistake(
    "contract",
    "You keep the target as an attribute of ctx, where torch does not watch it: when it is changed in place before backward (a "
    "buffer that is used again), the gradient is silently wrong. save_for_backward takes integer tensors too.",
)
class target_kept_as_attribute(CrossEntropyNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        logits, ctx.target = inputs
        ctx.save_for_backward(logits)

    @staticmethod
    def backward(ctx, g):
        (logits,) = ctx.saved_tensors
        return g * (_log_p(logits).exp() - F.one_hot(ctx.target, logits.shape[1])) / len(logits), None


# --- The chapter's own: LogSumExp1d, SoftCrossEntropy -----------------------------------------------------------------


def _sibling_checks(cases: Callable, second: Callable) -> tuple[Check, ...]:
    """The checks of a chapter's Function, a point each.

    Args:
        cases: from a Draw and an order, the cases of value and gradient.
        second: from a Draw, arguments for the second order, gradcheck and the contract.
    """
    both = "Forward and backward are what every later number rests on."
    return (
        Check("value", 1, "the output equals torch's", both, lambda d: cases(d, 0), FORWARD),
        Check("gradient", 1, "the gradients equal torch's", both, lambda d: cases(d, 1), FIRST, second),
        Check(
            "second_order",
            1,
            "the gradients can be differentiated again",
            "A Hessian differentiates your backward.",
            lambda d: [d.case("a sample", *second(d), order=2)],
            SECOND,
            second,
            2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; those that backward needs are saved",
            "Tensors that your Function did not make belong to others.",
            lambda d: [d.case("a sample", *second(d), watch=ALL)],
            CONTRACT,
        ),
    )


def _vectors(d: Draw, order: int) -> list[Case]:
    far = [[-INF, -INF], [INF, 0.0], [-INF, 0.0], [1000.0, 1000.0], [-1000.0, -1000.0]]
    return [
        *(d.case(f"a {_named(t)} vector", _logits(d)(4, dtype=t), order=order) for t in DTYPES),
        *(d.case(f"x = {row}", torch.tensor(row, dtype=DOUBLE), order=order) for row in far),
    ]


vector = Task(
    "LogSumExp1d",
    "LogSumExp1d.apply(x)",
    lambda x: _log_sum_exp(x, 0),
    _sibling_checks(_vectors, lambda d: (_logits(d)(5),)),
)


@vector.solution
class LogSumExp1dNew(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(x):
        m = x.amax()
        m = m.masked_fill(m.isinf(), 0)
        return m + (x - m).exp().sum().log()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * (x - y).exp()


@vector.mistake(
    "value",
    "Your shift is the maximum also where that is infinite: inf - inf is nan. A row of -inf must give -inf and a row with +inf must "
    "give inf: shift by 0 where the maximum is infinite.",
)
class no_guard(LogSumExp1dNew):
    @staticmethod
    def forward(x):
        m = x.amax()
        return m + (x - m).exp().sum().log()


@vector.mistake(
    "gradient",
    "You add a gradient for the maximum that was added back. The same maximum was subtracted inside, and that cancels it: the "
    "result does not depend on the shift. The gradient is the softmax alone; its sum is 1.",
)
class max_gets_gradient(LogSumExp1dNew):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * ((x - y).exp() + (x == x.amax()))


@vector.mistake(
    "second_order",
    "Your first derivative is right, but the softmax was computed in forward and saved, so it comes back as a constant and the "
    "Hessian is 0, where diag(p) - p p^T is right. Save x and the output, compute exp(x - output) in backward. detach() or clone() "
    "before saving is no cure.",
)
class saves_softmax(LogSumExp1dNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(torch.softmax(*inputs, dim=0))

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        return g * p


def _soft(d: Draw, n: int = 3, classes: int = 4, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor]:
    return _logits(d)(n, classes, dtype=dtype), d.between(0.1, 1, n, classes, dtype=dtype)


def _softly(d: Draw, order: int) -> list[Case]:
    return [
        *(d.case(f"{_named(t)} inputs", *_soft(d, dtype=t), order=order) for t in DTYPES),
        d.case("one row", *_soft(d, 1), order=order),
        d.case("one class", *_soft(d, 3, 1), order=order),
    ]


soft = Task(
    "SoftCrossEntropy",
    "SoftCrossEntropy.apply(logits, probs)",
    lambda logits, probs: F.cross_entropy(logits, probs),
    _sibling_checks(_softly, _soft),
)


@soft.solution
class SoftCrossEntropyNew(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(logits, probs):
        terms = probs * logits.log_softmax(-1)
        return -torch.where(probs == 0, 0, terms).sum() / len(logits)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, probs = ctx.saved_tensors
        logp, g = logits.log_softmax(-1), g / len(logits)
        total = probs.sum(-1, keepdim=True)
        return g * (logp.exp() * total - probs), -g * logp


@soft.mistake(
    "gradient",
    "Your loss is a mean over N rows, your gradient that of the sum: N times too large. Divide by N in backward too. With one row "
    "nothing shows.",
)
class mean_forgotten(SoftCrossEntropyNew):
    @staticmethod
    def backward(ctx, g):
        logits, probs = ctx.saved_tensors
        logp = logits.log_softmax(-1)
        return g * (logp.exp() * probs.sum(-1, keepdim=True) - probs), -g * logp


TASKS = (logsumexp, online, cross_entropy)
CHAPTER = (vector, soft)
