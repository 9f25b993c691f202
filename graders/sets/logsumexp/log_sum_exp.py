"""LogSumExp: dim is an int or a tuple, keepdim a choice, and the numbers are anything up to infinity."""

import math

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import WATCHED, gradient, value
from graders.judge.task import BRAIN, DOUBLE, DTYPES, HALF, SINGLE, Check, Draw, Task
from graders.judge.wording import KEPT_AS_ATTRIBUTE, WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.logsumexp.common import (
    BOTH,
    CONSTANT_UPSTREAM,
    FORBIDS,
    GRADIENT,
    INF,
    MIXED,
    NAN,
    SUMS,
    VALUE,
    contract,
    log_sum_exp,
    many_small,
    matrix,
    moderate,
    named,
    second_order,
)

PLACE = 1
GLOBAL: dict[str, object] = {}  # where the mistake `kept_outside_ctx` keeps things
Dim = int | tuple[int, ...]


def _forms(d: Draw, order: int) -> list[Case]:
    """Return cases of every dtype, shape and layout, over one axis."""
    x = moderate(d)
    inputs = [(f"a {named(t)} input", x(2, 3, dtype=t), 1) for t in DTYPES] + [
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
    """Return cases of dim in every form, keepdim in every way."""
    x = moderate(d)
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


def _far(d: Draw) -> list[Case]:
    """Return cases where exp overflows or is 0.

    In low precision the gradient only of rows with one large term: others lose digits in x - y.
    """
    levels = torch.tensor([[1e4], [0.0], [-1e4]], dtype=DOUBLE)
    cases = [
        d.case("rows around 10000, 0 and -10000", levels + moderate(d)(3, 4), 1, watch=("trace",), deny=SUMS),
        d.case("all around 1000", 1000 + moderate(d)(2, 3), 1),
        d.case("all around -1000", -1000 + moderate(d)(2, 3), 1),
        d.case("columns far apart", (levels + moderate(d)(3, 2)).t(), 0),
        d.case("10000 and -10000 in one row", matrix([1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]), 1),
        d.case("equal numbers", matrix([1e4] * 3, [-1e4] * 3), 1),
        d.case("float32 around 95", 95 + moderate(d)(2, 3, dtype=SINGLE), 1),
        d.case("float32 around -108", -108 + moderate(d)(2, 3, dtype=SINGLE), 1),
        d.case("float16 around 12", 12 + d.between(-1, 1, 2, 3, dtype=HALF), 1),
    ]
    for dtype, far in ((SINGLE, 1e4), (HALF, 100.0), (BRAIN, 100.0)):
        one = matrix([far, -far, 0.0], [-far, -2 * far, -1.5 * far], dtype=dtype)
        cases += [
            d.case(f"{named(dtype)} around {far:g}", far + moderate(d)(2, 3, dtype=dtype), 1, order=0),
            d.case(f"{named(dtype)} at {far:g} and -{far:g}", one, 1),
        ]
    return [
        *cases,
        d.case("one 0, and 3000 numbers at -20", many_small(), 1),
        d.case("results of 0", -matrix([4.0] * 4, [1.5, 6.0, 12.0, 12.0]).log(), 1),
    ]


def _infinite(d: Draw) -> list[Case]:
    """Return cases of rows with -inf, of -inf and with inf, beside rows without, which are small or far from 0."""

    def mixed(far: float) -> Tensor:
        return matrix(*MIXED, [far, far - 1, 0.0], [-far, -far, -far - 1])

    return [
        *(d.case(f"{named(t)} rows", mixed(100).to(t), 1, order=0) for t in DTYPES),
        d.case("rows", mixed(1000), 1, watch=("trace",), deny=SUMS),
        d.case("columns", mixed(1000).t(), 0),
        d.case("-inf beside numbers", matrix(*MIXED[::5]), 1),
        d.case("float16, -inf beside numbers", matrix(*MIXED[::5], dtype=HALF), 1),
        *(d.case(f"a 0-d {v}", torch.tensor(v, dtype=DOUBLE), 0, order=0) for v in (INF, -INF)),
        d.case("nothing but -inf", torch.full((3,), -INF, dtype=DOUBLE), 0, order=0),
    ]


task = Task(
    "LogSumExp",
    "LogSumExp.apply(x, dim, keepdim=False)",
    reference=log_sum_exp,
    checks=(
        value(
            1,
            about="the output equals torch.logsumexp over one axis, in every dtype, shape and layout",
            cases=lambda d: [
                *_forms(d, order=0),
                d.case("a matrix", moderate(d)(2, 3), 0, order=0, watch=("trace",), deny=SUMS),
                *d.lopsided(lambda x: (x, -1), 2, 3, order=0),
            ],
            looks=(*VALUE, look.allowed),
        ),
        Check(
            "dims",
            1,
            about="dim an int or a tuple, negative too, keepdim in every way: value, shape and gradient",
            why="An axis that was reduced has to come back where it was before anything can be subtracted from x.",
            cases=_dims,
            looks=BOTH,
        ),
        gradient(
            1,
            about="the gradient equals torch's for upstream gradients of any size, and gradcheck passes",
            why="Backward returns the softmax along dim, times the upstream gradient of its row.",
            cases=lambda d: [
                *_forms(d, order=1),
                d.case("upstream of every size", moderate(d)(6, 3), 1, upstream=d.scales(6)),
                d.case("expanded upstream", moderate(d)(2, 3, 4), 1, upstream=d.normal(2, 1).expand(2, 4)),
                d.case("transposed upstream", moderate(d)(2, 3, 4), 1, upstream=d.normal(4, 2).t()),
                d.case("a matrix", moderate(d)(2, 3), 0, watch=("trace",), deny=SUMS),
                *d.lopsided(lambda x: (x, -1), 2, 3),
            ],
            looks=(*GRADIENT, look.allowed),
            gradcheck=lambda d: (moderate(d)(2, 3), 1),
        ),
        Check(
            "extremes",
            1,
            about="10000 and -10000, 100 and -100 in halves, in one tensor too: value and gradient right",
            why="Logits of this size are everyday: exp of 89 overflows in float32, and exp of -104 is 0.",
            cases=_far,
            looks=(*BOTH, look.allowed),
        ),
        Check(
            "infinities",
            1,
            about="rows of -inf give -inf, rows with inf give inf, and nan reaches no other row",
            why="Masks are made of -inf; the rows beside them are as large as ever, and one nan ends a training run.",
            cases=_infinite,
            looks=(*BOTH, look.allowed),
        ),
        second_order(
            1,
            about="the gradient can be differentiated again, by x and by the upstream gradient",
            why="The Hessian of a row is diag(p) - p p^T, p its softmax. What backward detaches, or makes a number "
            "of, is missing.",
            cases=lambda d: [
                d.case("rows", moderate(d)(2, 3), 1, order=2),
                d.case("a middle axis", moderate(d)(2, 3, 2), -2, order=2),
                d.case("two axes kept", moderate(d)(2, 3, 2), (0, 2), True, order=2),
                d.case("a 0-d input", moderate(d)(), 0, order=2),
                d.case("float32", moderate(d)(2, 3, dtype=SINGLE), 0, order=2),
                d.case("around 1000", 1000 + moderate(d)(2, 3), 1, order=2),
                d.case("-inf beside numbers", matrix(*MIXED[::5]), 1, order=2),
                d.case("an upstream gradient that is a constant", moderate(d)(2, 3), 1, order=2, how="constant"),
                *d.lopsided(lambda x: (x, -1), 2, 3, order=2),
            ],
            gradcheck=lambda d: (moderate(d)(2, 3), 1),
        ),
        contract(
            1,
            why="Memory is looked at here, and these numbers first: a gradient that is wrong elsewhere is wrong here "
            "too.",
            cases=lambda d: [
                d.case("rows", moderate(d)(3, 3), 1, watch=WATCHED, between=(moderate(d)(3, 3), 0, True)),
                d.case("float32, an axis kept", moderate(d)(2, 3, dtype=SINGLE), 0, True, watch=("state", "overwrite")),
                d.case("a 0-d input", moderate(d)(), 0, watch=("overwrite",)),
                d.case("an axis of one element", moderate(d)(2, 1), 1, watch=("overwrite",)),
                d.case("a row of -inf", matrix(*MIXED[:2]), 1),
            ],
        ),
    ),
    forbids=FORBIDS,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class LogSumExpNew(Function):
    """In the form of chapter 1, exp(x - output) in backward: x alone is large of what is kept, no exponent above 0."""

    @staticmethod
    def forward(x, dim, keepdim=False):
        m = x.amax(dim, keepdim=True)
        m = torch.where(m.isinf(), 0, m)
        y = m + (x - m).exp().sum(dim, keepdim=True).log()
        return y if keepdim else y.reshape(x.sum(dim).shape)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.dim, _ = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        kept = x.sum(ctx.dim, keepdim=True).shape
        return g.reshape(kept) * (x - y.reshape(kept)).exp(), None, None


@task.solution
class LogSumExpOld(Function):
    """Saves x alone and makes the softmax of it again: where the output is not to be kept, for an exponential more."""

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


@task.solution
class LogSumExpSorted(LogSumExpNew):
    """In float64, one axis after another: for halves, whose sums lose digits otherwise; the most steps."""

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


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


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


@task.solution
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
        return p * g.reshape(x.sum(ctx.dim, keepdim=True).shape), None, None


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class Steps(LogSumExpNew):
    """LogSumExpNew in steps, for the wrong ones to change one of them."""

    @staticmethod
    def shift(x: Tensor, dim: Dim) -> Tensor:
        """Return what is subtracted: the maximum along dim, 0 where that is infinite."""
        m = x.amax(dim, keepdim=True)
        return torch.where(m.isinf(), 0, m)

    @staticmethod
    def added(x: Tensor, m: Tensor, dim: Dim) -> Tensor:
        """Return the sum of the exponentials, relative to m."""
        return (x - m).exp().sum(dim, keepdim=True)

    @classmethod
    def forward(cls, x, dim, keepdim=False):
        m = cls.shift(x, dim)
        y = m + cls.added(x, m, dim).log()
        return y if keepdim else y.reshape(x.sum(dim).shape)

    @staticmethod
    def back(reduced: Tensor, x: Tensor, dim: Dim) -> Tensor:
        """Return what has lost its axes with the axes that keepdim=True would have kept."""
        return reduced.reshape(x.sum(dim, keepdim=True).shape)

    @staticmethod
    def softmax(x: Tensor, y: Tensor, dim: Dim) -> Tensor:
        """Return the derivative of the output y, whose axes are back, by x."""
        return (x - y).exp()

    @classmethod
    def backward(cls, ctx, g):
        x, y = ctx.saved_tensors
        g, y = cls.back(g, x, ctx.dim), cls.back(y, x, ctx.dim)
        return g * cls.softmax(x, y, ctx.dim), None, None


wrong = Wrong(task, of=Steps)
wrong.habits(
    "float32_and_back view_needed no_function not_differentiable_twice",
    upstream_ignored="Your gradient does not depend on the upstream gradient: it is the softmax alone. Multiply each "
    "row by the upstream gradient of its output.",
)


@wrong.forward(
    "value",
    "You leave out the maximum at the end. It was subtracted from every exponent, so the logarithm is too small by "
    "exactly it: log sum exp(x) = m + log sum exp(x - m).",
)
def max_not_added_back(x, dim, keepdim=False):
    return (x - Steps.shift(x, dim)).exp().sum(dim, keepdim).log()


@wrong.step(
    "added",
    "value",
    "You add a small number to the sum before the logarithm. After the shift the sum is at least 1, so nothing needs "
    "that, and it costs digits; a row of -inf, where the sum is 0, should give -inf.",
)
def epsilon_in_logarithm(x, m, dim):
    return Steps.added(x, m, dim) + 1e-6


@wrong.forward(
    "value",
    "Your output is squeezed of every axis of size 1. Only the reduced axes go: x of shape (1, 3) reduced over 1 "
    "gives shape (1,).",
)
def squeezes_everything(x, dim, keepdim=False):
    y = LogSumExpNew.forward(x, dim, True)
    return y if keepdim else y.squeeze()


@wrong.forward(
    "value",
    "Your forward calls a built-in that does the task (logsumexp, logaddexp, a softmax or log_softmax). Make it from "
    "the maximum, exp, a sum and log.",
)
def calls_logsumexp(x, dim, keepdim=False):
    return torch.logsumexp(x, dim, keepdim)


@wrong.forward(
    "dims",
    "Your output never keeps the reduced axes. With keepdim=True they stay, with size 1: that is what makes x - output "
    "broadcast.",
)
def keepdim_ignored(x, dim, keepdim=False):
    return LogSumExpNew.forward(x, dim, False)


@wrong.step(
    "shift",
    "dims",
    "Your forward takes the maximum with max(dim), which knows one axis and fails for a tuple. amax takes an int or "
    "a tuple, as sum does.",
)
def max_of_one_axis(x, dim):
    m = x.max(dim, keepdim=True).values
    return torch.where(m.isinf(), 0, m)


@wrong.step(
    "back",
    "dims",
    "Your backward brings the axis back with unsqueeze(dim), which takes one int and fails for a tuple. Reshape to "
    "the shape that keepdim=True gives.",
)
def unsqueeze_of_one_axis(reduced, x, dim):
    return reduced.unsqueeze(dim) if reduced.ndim < x.ndim else reduced


def _axes(dim: int | tuple[int, ...]) -> tuple[int, ...]:
    return dim if isinstance(dim, tuple) else (dim,)


@wrong.step(
    "back",
    "dims",
    "Your backward brings the axes back although keepdim=True has kept them: the output then has axes too many, and "
    "broadcasting makes something of it or raises. Ask whether they were kept, or reshape, which is right both times.",
)
def unsqueezed_twice(reduced, x, dim):
    for i in sorted(i % x.ndim for i in _axes(dim)) if x.ndim else ():
        reduced = reduced.unsqueeze(i)
    return reduced


@wrong.step(
    "back",
    "dims",
    "Your backward brings the axes of a tuple back in the order in which they were given. Negative ones, and those "
    "that do not ascend, then land in wrong places: count them from the front and sort them, or reshape to the shape "
    "that keepdim=True gives.",
)
def axes_in_given_order(reduced, x, dim):
    for i in _axes(dim) if reduced.ndim < x.ndim else ():
        reduced = reduced.unsqueeze(i)
    return reduced


@wrong.step(
    "back",
    "dims",
    "Your backward sorts the axes of a tuple, but doesn't count the negative ones from the front first: -2 and -1 are put "
    "back where an output with fewer axes has them. Take d % x.ndim, then sort; or reshape to the shape of keepdim=True.",
)
def negative_axes_sorted(reduced, x, dim):
    for i in sorted(_axes(dim)) if reduced.ndim < x.ndim else ():
        reduced = reduced.unsqueeze(i)
    return reduced


@wrong.forward(
    "dims",
    "You reduce the axes of a tuple one after another without keeping them. After the first the axes behind it have "
    "moved up by one, so the next reduction takes a wrong axis: keep them until the end.",
)
def axes_move(x, dim, keepdim=False):
    for i in _axes(dim):
        x = LogSumExpNew.forward(x, i, keepdim)
    return x


@task.mistake(
    "dims",
    "You reduce the last axis whatever dim is. The axis is the caller's choice, and the output has the other ones.",
)
class last_axis_always(LogSumExpNew):
    @staticmethod
    def forward(x, dim, keepdim=False):
        return LogSumExpNew.forward(x, -1, keepdim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, _, keepdim = inputs
        LogSumExpNew.setup_context(ctx, (x, -1, keepdim), output)


@wrong.backward(
    "gradient",
    "Your backward returns one gradient, or nothing (is there a return?), and forward has three arguments: torch "
    "wants one for each, None for dim and keepdim.",
)
def one_gradient_returned(ctx, g):
    return LogSumExpNew.backward(ctx, g)[0]


@wrong.step(
    "softmax",
    "gradient",
    "Your backward copies the upstream gradient along the row, as for a sum. Here each element gets its share: the "
    "softmax, exp(x - output), whose sum along dim is 1.",
)
def gradient_of_a_sum(x, y, dim):
    return torch.ones_like(x)


@wrong.step(
    "softmax",
    "gradient",
    "You add a gradient for the maximum that was added back. The same maximum was subtracted inside, and that "
    "cancels it: the result does not depend on the shift. The gradient is the softmax alone, and sums to 1.",
)
def max_gets_gradient(x, y, dim):
    return (x - y).exp() + (x == x.amax(dim, keepdim=True))


@wrong.forward(
    "extremes",
    "Your forward takes exp of x as it is: it overflows above 88.7 in float32, and a row below -104 becomes log 0. "
    "Subtract the maximum along dim first, and add it at the end.",
)
def no_shift(x, dim, keepdim=False):
    return x.exp().sum(dim, keepdim).log()


@wrong.step(
    "shift",
    "extremes",
    "You subtract the maximum of the whole tensor. In a row far below it every exp is 0 and the logarithm -inf: each "
    "row needs its own maximum, along dim.",
)
def shift_of_everything(x, dim):
    m = x.max() if x.numel() else x.new_zeros(())
    return torch.where(m.isinf(), 0, m)


@wrong.step(
    "softmax",
    "extremes",
    "Your forward is right, and your backward divides exp(x) by its sum without a shift: inf / inf, or 0 / 0, is "
    "nan. Take exp(x - output), whose exponent is never above 0.",
)
def no_shift_in_backward(x, y, dim):
    return x.exp() / x.exp().sum(dim, keepdim=True)


@wrong.step(
    "shift",
    "infinities",
    "Your shift is the maximum also where that is infinite: inf - inf is nan. A row of -inf should give -inf and a "
    "row with inf should give inf: shift by 0 where the maximum is infinite.",
)
def no_guard(x, dim):
    return x.amax(dim, keepdim=True)


@wrong.step(
    "shift",
    "infinities",
    "You guard against a maximum of -inf, and one of inf still gives inf - inf, which is nan. A row with inf should "
    "give inf.",
)
def only_minus_infinity_guarded(x, dim):
    m = x.amax(dim, keepdim=True)
    return m.masked_fill(m == -INF, 0)


@wrong.step(
    "shift",
    "infinities",
    "You ask whether any maximum is infinite, and then leave out the shift for all rows. The rows beside it are "
    "finite and need theirs: decide element by element, with torch.where or masked_fill.",
)
def one_row_decides(x, dim):
    m = x.amax(dim, keepdim=True)
    return torch.zeros_like(m) if m.isinf().any() else m


@wrong.backward(
    "infinities",
    "Your backward returns zeros for the whole input as soon as one row is infinite. The other rows have a gradient: "
    "decide row by row, or not at all, since exp(x - output) is right in every row that is finite.",
)
def zeros_for_all_rows(ctx, x, y, g):
    if y.isinf().any():
        return torch.zeros_like(x), None, None
    return LogSumExpNew.backward(ctx, g)


@wrong.backward(
    "second_order",
    "Your first derivative is right, but what was saved is a constant, so the Hessian is 0 where diag(p) - p p^T is "
    "right: a softmax made in forward, or detached. Save x and the output themselves and compute exp(x - output) in "
    "backward.",
    saves=lambda x, dim, keepdim, y: (_Softmax.forward(x, dim),),
)
def saves_softmax(ctx, p, g):
    return Steps.back(g, p, ctx.dim) * p, None, None


@wrong.saves(
    "second_order",
    "Your Hessian is diag(p): the part - p p^T is missing, because log-sum-exp (or the maximum and the sum) came to "
    "backward as a constant: a copy, a reshaped output or an intermediate result was saved, or detached. Save the "
    "output itself, and reshape it in backward.",
)
def saves_copy_of_output(x, dim, keepdim, y):
    return x, Steps.back(y, x, dim).clone()


@wrong.backward("second_order", CONSTANT_UPSTREAM)
def graph_for_upstream_alone(ctx, g):
    with torch.set_grad_enabled(g.requires_grad):
        return LogSumExpNew.backward(ctx, g)


@wrong.step(
    "added",
    "contract",
    "Your forward subtracts the maximum in place (x -= m, sub_, out=x): the caller's tensor is overwritten. Write x - "
    "m, a new tensor.",
)
def writes_into_input(x, m, dim):
    return x.sub_(m).exp().sum(dim, keepdim=True)


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(ctx, x, y, g):
    g.mul_(y.isfinite())
    return LogSumExpNew.backward(ctx, g)


@task.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(LogSumExpNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.dim, _ = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return Steps.back(g, ctx.x, ctx.dim) * (ctx.x - Steps.back(y, ctx.x, ctx.dim)).exp(), None, None


@task.mistake(
    "contract",
    "You keep dim (or the shape, or tensors) outside ctx, on the class or in a global: a second call overwrites it "
    "before the first one's backward. A number or a shape becomes an attribute of ctx, a tensor goes through "
    "ctx.save_for_backward.",
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


@wrong.forward(
    "contract",
    "Where there is nothing to add up (no dimensions, or an axis of one element) your forward returns x itself, or a "
    "view of it: changing the output in place would change x. Return a new tensor.",
)
def returns_its_input(x, dim, keepdim=False):
    if x.ndim and math.prod(x.shape[i] for i in _axes(dim)) != 1:
        return LogSumExpNew.forward(x, dim, keepdim)
    return x.reshape(x.sum(dim, keepdim).shape)


@wrong.forward(
    "infinities",
    "You add a small number inside the logarithm. A row of -inf then gives about -28, not -inf, and all others are a little "
    "too large. Leave it out: the sum is at least 1 where the maximum is finite, and log(0) is the -inf that is wanted.",
)
def small_number_in_the_logarithm(x, dim, keepdim=False):
    m = Steps.shift(x, dim)
    y = (Steps.added(x, m, dim) + 1e-12).log() + m
    return y if keepdim else y.reshape(x.sum(dim).shape)


@wrong.forward(
    "value",
    "For an x without dimensions your forward returns x itself. The output is a tensor of its own, and torch refuses to save "
    "an input that was returned as it is: return x.clone(), or leave the special case out.",
)
def returns_the_input(x, dim, keepdim=False):
    return x if x.dim() == 0 else Steps.forward(x, dim, keepdim)
