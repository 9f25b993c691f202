"""Normalize: rows of length 1, and rows too short for that divided by eps; a gradient for each kind."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd import forward_ad as fw

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import WATCHED, gradient, value
from graders.judge.task import BRAIN, DTYPES, HALF, SINGLE, Check, Draw, Task
from graders.judge.wording import WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.wild.common import (
    BOTH,
    CONSTANT_UPSTREAM,
    EXPANDED,
    FORWARD_MODE,
    FROM_START,
    LEFT_BEHIND,
    MADE_OF_X,
    ONE_BY_ONE,
    STRIDES,
    apart,
    away,
    contract,
    long_row,
    matrix,
    named,
    not_nan,
    second_order,
)

PLACE = 2


def _normalize(x: Tensor, eps: float) -> Tensor:
    """Return the rows in float64, rounded to the dtype of x."""
    wide = x.double()
    square = wide.square().sum(-1, keepdim=True)
    long = square > eps * eps
    length = torch.where(long, torch.where(long, square, 1).sqrt(), eps)
    return (wide / length).to(x.dtype)


def _mixed(d: Draw, *shape: int) -> Tensor:
    """Return rows from 0.5 up, every second one made a tenth of that: around an eps of 0.4 both kinds."""
    x = away(d)(*shape)
    x.view(-1, shape[-1])[1::2] *= 0.05
    return x


def _forms(d: Draw, order: int) -> list[Case]:
    """Return cases of every dtype, shape and layout, each with long rows, and most with short ones."""
    x = away(d)
    inputs = [(f"a {named(t)} input", _mixed(d, 2, 3).to(t)) for t in DTYPES] + [
        ("a vector", x(3)),
        ("a short vector", x(3) * 0.05),
        ("one number", x(1)),
        ("one row", x(1, 4)),
        ("one column", _mixed(d, 3, 1)),
        ("no rows", x(0, 3)),
        ("as many rows as columns", _mixed(d, 3, 3)),
        ("a 3-d input", _mixed(d, 2, 3, 4)),
        ("a 4-d input", _mixed(d, 2, 2, 2, 3)),
        ("no rows in 3-d", x(2, 0, 3)),
        ("no matrices", x(0, 2, 3)),
        ("a 3-d input, its axes turned round", _mixed(d, 4, 3, 2).permute(2, 1, 0)),
        ("zeros among a row's numbers", matrix([0.0, 2.0, 0.0], [0.0, -0.1, 0.0])),
        ("a transposed input", _mixed(d, 3, 2).t()),
        ("every second row", x(4, 3)[::2]),
        ("every second column", _mixed(d, 3, 6)[:, ::2]),
        ("an expanded input", x(1, 3).expand(2, 3)),
    ]
    cases = [d.case(name, t, 0.4, order=order) for name, t in inputs]
    return [
        *cases,
        d.case("eps = 1e-12", _mixed(d, 2, 3), 1e-12, order=order),
        d.case("eps = 2", _mixed(d, 2, 3), 2, order=order),
        d.case("eps = 50, all rows short", x(2, 3), 50.0, order=order),
        d.case("rows of every size", d.scales(6, 1) * x(6, 3), 1e-3, order=order),
        d.case("short rows around 1e-10", x(2, 3) * 1e-10, 1e-8, order=order),
        d.case("long rows around 1e-10", x(2, 3) * 1e-10, 1e-12, order=order),
        d.case("eps by keyword", _mixed(d, 2, 3), 0.4, order=order, keywords=("eps",)),
        d.case("short rows around 1e-7", x(2, 3) * 1e-7, 1e-6, order=order),
        d.case("long rows around 1e-110", x(2, 3) * 1e-110, 1e-120, order=order),
        *(d.case(f"{named(t)}, rows around 1e10", (x(2, 3) * 1e10).to(t), 1.0, order=order) for t in (BRAIN, SINGLE)),
        d.case(
            "rows just above eps, and just below", matrix([3.0, 4.0], [-4.0, 3.0]) * _beside(0.08), 0.4, order=order
        ),
        d.case("eps between the length and its square", matrix([0.3, 0.4], [3.0, 4.0]), 0.4, order=order),
        d.case("eps between the square and the length", matrix([0.3, 0.4], [3.0, 4.0]), 6.0, order=order),
    ]


def _beside(size: float) -> Tensor:
    """Return this number made a little larger, and a little smaller: a column."""
    return size * matrix([1 + 1e-8], [1 - 1e-8])


def _short(d: Draw) -> list[Case]:
    """Return cases of rows shorter than eps, of zeros too, alone and beside long ones."""
    x = away(d)
    beside = x(4, 3)
    beside[1] = 0
    beside[2] *= 0.01
    some = x(2, 3, 2)
    some[0, 1] = some[1, 0] = 0
    return [
        d.case("short rows", 0.05 * x(2, 3), 0.4, order=2),
        d.case("zeros and a short row beside long ones", beside, 0.4, order=2),
        d.case("zeros beside others, eps = 1e-12", some, 1e-12, order=2),
        *(d.case(f"{named(t)} zeros", torch.zeros(2, 3, dtype=t), 0.5, order=2) for t in DTYPES),
        d.case("a vector of zeros", matrix([0.0, 0.0, 0.0])[0], 2.0, order=2),
        d.case("one column", matrix([0.0], [2.0], [-0.1]), 0.4, order=2),
        d.case("a long row of small numbers beside zeros", matrix([3e-9, -4e-9], [0.0, 0.0]), 1e-9, order=1),
    ]


task = Task(
    "Normalize",
    "Normalize.apply(x, eps)",
    reference=_normalize,
    checks=(
        value(
            1,
            about="x / max(|x|, eps) for each row, in every dtype, shape and layout; zeros stay zeros",
            cases=lambda d: [
                *_forms(d, order=0),
                *(d.case(f"{named(t)} zeros", torch.zeros(2, 3, dtype=t), 0.5, order=0) for t in DTYPES),
                d.case("zeros beside others", matrix([3.0, -4.0], [0.0, 0.0]), 1e-12, order=0),
                d.case("a long row, one number of it large", long_row(), 0.4, order=0),
                *d.lopsided(lambda x: (x, 0.4), 2, 3, order=0),
            ],
        ),
        gradient(
            1,
            about="both kinds of rows, however the upstream gradient lies in memory; gradcheck passes",
            why="Along a long row nothing changes, so the part of g along y goes; what is left is over the length.",
            cases=lambda d: [
                d.case("long rows", away(d)(2, 4), 0.4),
                *_forms(d, order=1),
                d.case("upstream of every size", _mixed(d, 6, 3), 0.4, upstream=d.scales(6, 3)),
                d.case("expanded upstream", _mixed(d, 3, 4), 0.4, upstream=d.normal(1, 4).expand(3, 4)),
                d.case("one upstream number for a row", _mixed(d, 3, 4), 0.4, upstream=d.normal(3, 1).expand(3, 4)),
                d.case("one upstream number for all", _mixed(d, 3, 4), 0.4, upstream=d.normal(1).expand(3, 4)),
                d.case("transposed upstream", _mixed(d, 3, 4), 0.4, upstream=d.normal(4, 3).t()),
                d.case("upstream with gaps", _mixed(d, 3, 4), 0.4, upstream=apart(d, 3, 4)),
                d.case("a part of a wider upstream", _mixed(d, 3, 4), 0.4, upstream=d.normal(3, 9)[:, 2:6]),
                *d.lopsided(lambda x: (x, 0.4), 2, 3, zeros=False),
            ],
            gradcheck=lambda d: (_mixed(d, 2, 3), 0.4),
        ),
        Check(
            "short",
            1,
            about="rows shorter than eps, zeros too: gradient g / eps, second derivative 0, no nan beside",
            why="Below eps the output is x / eps, a line: its slope is 1 / eps and doesn't change.",
            cases=_short,
            looks=(*BOTH, not_nan, look.second_order),
        ),
        second_order(
            1,
            about="the gradient can be differentiated again, by x and by the upstream gradient",
            why="The length and y depend on x: what was computed before backward, or cut off there, is a constant.",
            cases=lambda d: [
                d.case("long rows", away(d)(2, 3), 0.4, order=2),
                d.case("both kinds of rows", _mixed(d, 3, 3), 0.4, order=2),
                d.case("a vector", away(d)(4), 0.4, order=2),
                d.case("a 3-d input", away(d)(2, 2, 3), 0.4, order=2),
                d.case("float32", away(d)(2, 3, dtype=SINGLE), 0.4, order=2),
                d.case("float16", 2 * away(d)(2, 3, dtype=HALF), 0.4, order=2),
                d.case("bfloat16", 2 * away(d)(2, 3, dtype=BRAIN), 0.4, order=2),
                d.case("a transposed input", away(d)(3, 2).t(), 0.4, order=2),
                d.case("a 3-d input, its axes turned round", away(d)(3, 2, 2).permute(2, 1, 0), 0.4, order=2),
                d.case("after an ordinary backward", _mixed(d, 2, 3), 0.4, order=2, watch=("state",)),
                d.case("expanded upstream", away(d)(2, 3), 0.4, order=2, upstream=d.normal(1, 3).expand(2, 3)),
                d.case("an upstream gradient that is a constant", away(d)(2, 3), 0.4, order=2, how="constant"),
                *d.lopsided(lambda x: (x, 0.4), 2, 3, order=2, zeros=False),
            ],
            gradcheck=lambda d: (away(d)(2, 3), 0.4),
        ),
        contract(
            1,
            cases=lambda d: [
                d.case("both kinds of rows", _mixed(d, 3, 4), 0.4, watch=WATCHED, between=(away(d)(3, 4), 7.0)),
                d.case("a short row", 0.05 * away(d)(1, 4), 0.4, watch=WATCHED),
                d.case("long rows", away(d)(2, 4), 0.4, watch=WATCHED, between=(away(d)(2, 4), 0.9)),
                d.case("float32", _mixed(d, 2, 3).to(SINGLE), 0.4, watch=("state", "overwrite")),
                d.case("eps = 1", matrix([3.0, -4.0], [0.1, 0.2]), 1.0, watch=("overwrite",)),
                d.case("eps = 1, all rows short", matrix([0.3, -0.4], [0.1, 0.2]), 1.0, watch=("overwrite",)),
                d.case("a row of zeros", matrix([1.0, -2.0], [0.0, 0.0]), 0.4, watch=WATCHED),
                d.case("another eps for the same x", x := away(d)(2, 3), 0.4, watch=("state",), between=(x, 7.0)),
                *(d.case(named(t), _mixed(d, 2, 3).to(t), 0.4, watch=("trace",)) for t in (HALF, BRAIN, SINGLE)),
                d.case("a transposed input", _mixed(d, 3, 2).t(), 0.4, watch=("trace",)),
                d.case("many rows", away(d)(32, 8), 0.4, watch=("trace",)),
            ],
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class NormalizeNew(Function):
    """Saves x, and makes length and output again in backward: second derivatives come by themselves. The one to write."""

    @staticmethod
    def forward(x, eps):
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x / length.clamp(min=eps)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.eps = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        square = x.square().sum(-1, keepdim=True)
        long = square > ctx.eps**2
        length = torch.where(long, square, 1).sqrt()
        y = x / length
        return torch.where(long, (g - y * (y * g).sum(-1, keepdim=True)) / length, g / ctx.eps), None


@task.solution
class NormalizeByOutput(NormalizeNew):
    """Saves the output too, and takes y from it: where the next layer keeps it anyway, for a division less."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.eps = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        square = (x * x).sum(-1, keepdim=True)
        long = square > ctx.eps * ctx.eps
        length = torch.where(long, torch.where(long, square, torch.ones_like(square)).sqrt(), ctx.eps)
        along = torch.where(long, (g * y).sum(-1, keepdim=True), 0)
        return (g - y * along) / length, None


@task.solution
class NormalizeOld(Function):
    """The older form, by the square alone and no root: 1 / |x| as rsqrt, and a mask that is a number; no torch.func."""

    @staticmethod
    def forward(ctx, x, eps):
        ctx.save_for_backward(x)
        ctx.eps = eps
        return x / x.norm(dim=-1, keepdim=True).clamp_min(eps)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        square = x.pow(2).sum(-1, keepdim=True).clamp(min=ctx.eps**2)
        scale = 1 / square.sqrt()
        long = (square > ctx.eps**2).to(x.dtype)
        return g * scale - long * x * (x * g).sum(-1, keepdim=True) * scale / square, None


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class NormalizeRows(NormalizeNew):
    """Rows gathered by a mask, in two batches; float64 for the halves."""

    @staticmethod
    def forward(x, eps):
        wide = x if x.element_size() > 2 else x.float()
        square = (wide * wide).sum(-1, keepdim=True)
        return (wide / torch.where(square.sqrt() > eps, square.sqrt(), eps)).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        if not ctx.needs_input_grad[0]:
            return None, None
        wide, v = (t.reshape(-1, t.shape[-1]) for t in (x, g))
        wide, v = (wide, v) if x.element_size() > 2 else (wide.float(), v.float())
        long = (wide.detach() ** 2).sum(-1).sqrt() > ctx.eps
        rows, above = wide[long], v[long]
        length = rows.norm(dim=-1, keepdim=True)
        y = rows / length
        grad = (v / ctx.eps).index_put((long,), (above - (above * y).sum(-1, keepdim=True) * y) / length)
        return grad.reshape(x.shape).to(x.dtype), None


# --- Mistakes ---------------------------------------------------------------------------------------------------------

wrong = Wrong(task, of=NormalizeNew)


def _parts(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return which rows are long, their lengths (1 for the others), and those rows over these."""
    square = x.square().sum(-1, keepdim=True)
    long = square > eps**2
    length = torch.where(long, square, 1).sqrt()
    return long, length, x / length


@wrong.backward(
    "gradient",
    "Your gradient is g over the length alone. The length depends on x too: take the part along the row away first, "
    "g - y (y g), where y g is summed over the row.",
)
def projection_missing(ctx, x, g):
    long, length, _ = _parts(x, ctx.eps)
    return g / torch.where(long, length, ctx.eps), None


@wrong.backward(
    "gradient",
    "Your gradient is that of long rows everywhere. Below eps the output is x / eps, so its gradient is g / eps: choose by "
    "torch.where.",
)
def long_everywhere(ctx, x, g):
    length = x.norm(dim=-1, keepdim=True).clamp(min=ctx.eps)
    y = x / length
    return (g - y * (y * g).sum(-1, keepdim=True)) / length, None


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is wrong: the length was computed in forward and saved (or kept on ctx), so "
    "it's a constant in backward. Save x, and make the length again there.",
    saves=lambda x, eps, y: (x, x.norm(dim=-1, keepdim=True)),
)
def saves_length(ctx, x, length, g):
    long = length > ctx.eps
    length = torch.where(long, length, 1)
    y = x / length
    return torch.where(long, (g - y * (y * g).sum(-1, keepdim=True)) / length, g / ctx.eps), None


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is wrong: you keep the output and the length. The output is in the graph, but "
    "the length was computed in forward, so it's a constant in backward. Save x, and make the length again there.",
    saves=lambda x, eps, y: (y, x.norm(dim=-1, keepdim=True).clamp(min=eps)),
)
def saves_output_and_length(ctx, y, length, g):
    along = torch.where(length > ctx.eps, (y * g).sum(-1, keepdim=True), 0)
    return (g - y * along) / length, None


@wrong.backward(
    "short",
    "At a row of zeros your gradient is right and your second derivative nan: you take the root of 0, or divide by it, before "
    "torch.where chooses, and what isn't chosen has an infinite slope times 0. Put a 1 in place of the square first.",
)
def chosen_after(ctx, x, g):
    length = x.square().sum(-1, keepdim=True).sqrt()
    y = x / length
    return torch.where(length > ctx.eps, (g - y * (y * g).sum(-1, keepdim=True)) / length, g / ctx.eps), None


@wrong.forward(
    "value",
    "You divide by the length alone. Zeros become nan, and rows shorter than eps come out with length 1: divide by eps "
    "where the length is smaller.",
)
def eps_unused(x, eps):
    return x / x.norm(dim=-1, keepdim=True)


@wrong.forward(
    "value", "You add eps to the length. It's the larger of the two that you divide by: length.clamp(min=eps)."
)
def eps_added(x, eps):
    return x / (x.norm(dim=-1, keepdim=True) + eps)


@wrong.forward(
    "value",
    "You add eps under the root. Divide by the larger of length and eps: length.clamp(min=eps).",
)
def eps_under_root(x, eps):
    return x / (x.square().sum(-1, keepdim=True) + eps).sqrt()


@wrong.forward(
    "value",
    "You add the square of eps under the root, which makes all rows a little too short. Divide by the larger of length and "
    "eps: length.clamp(min=eps).",
)
def square_of_eps_under_root(x, eps):
    return x / (x.square().sum(-1, keepdim=True) + eps**2).sqrt()


@wrong.forward(
    "value",
    "You hold the square of the length against eps. Take the root before the clamp, or clamp by eps ** 2.",
)
def square_against_eps(x, eps):
    return x / x.square().sum(-1, keepdim=True).clamp(min=eps).sqrt()


@wrong.forward("value", "You divide by the smaller of length and eps: clamp(max=...) where clamp(min=eps) is meant.")
def smaller_of_both(x, eps):
    return x / x.norm(dim=-1, keepdim=True).clamp(max=eps)


@wrong.forward("value", "Rows shorter than eps come out as they are. Divide them by eps.")
def short_rows_unchanged(x, eps):
    length = x.norm(dim=-1, keepdim=True)
    return torch.where(length > eps, x / torch.where(length > eps, length, 1), x)


@wrong.forward("value", "Rows shorter than eps come out as zeros. Divide them by eps.")
def short_rows_zeroed(x, eps):
    length = x.norm(dim=-1, keepdim=True)
    return torch.where(length > eps, x / torch.where(length > eps, length, 1), 0)


@wrong.forward(
    "value",
    "You divide by one length for the whole tensor. Each row has its own: reduce over the last axis, with keepdim=True.",
)
def one_length(x, eps):
    return x / x.norm().clamp(min=eps)


@wrong.forward("value", "You reduce over the first axis, and a row lies along the last: dim=-1.")
def first_axis(x, eps):
    return x / x.norm(dim=0, keepdim=True).clamp(min=eps)


@wrong.forward(
    "value",
    "The length lost its axis, so it doesn't meet the rows: torch raises, or, where there are as many rows as columns, divides "
    "by the wrong lengths. Reduce with keepdim=True.",
)
def axis_lost(x, eps):
    return x / x.norm(dim=-1).clamp(min=eps)


@wrong.forward("value", "You divide by the sum of the sizes. The Euclidean length is the root of the sum of squares.")
def sizes_added(x, eps):
    return x / x.abs().sum(-1, keepdim=True).clamp(min=eps)


@wrong.forward("value", "You divide by the square of the length: the root is missing.")
def root_forgotten(x, eps):
    return x / x.square().sum(-1, keepdim=True).clamp(min=eps)


@wrong.forward(
    "value", "You divide by the largest number of the row (the maximum norm). The Euclidean length is asked for."
)
def largest_number(x, eps):
    return x / x.abs().amax(-1, keepdim=True).clamp(min=eps)


@wrong.forward("value", "Your output is the lengths. Divide x by them.")
def lengths_returned(x, eps):
    return x.norm(dim=-1, keepdim=True).clamp(min=eps)


@wrong.forward(
    "value",
    "Your second argument isn't called eps, so a caller who names it gets a TypeError. Use the names of the task's text.",
)
def argument_renamed(x, epsilon):
    return NormalizeNew.forward(x, epsilon)


@wrong.forward(
    "value", "You look at eps as if it were 1e-12 always. It's the second argument, and a caller may give any above 0."
)
def eps_fixed(x, eps):
    return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)


wrong.habits(
    "float32_inside float32_and_back zeros_returned no_function not_differentiable_twice upstream_ignored upstream_summed "
    "kept_outside_ctx",
    upstream_unchanged="Your gradient is the upstream gradient unchanged: take its part along the row away, and divide by the "
    "length.",
    nothing_returned="Your backward returns None for x (is a return statement missing?): x gets no gradient at all.",
    none_forgotten="Your backward returns one gradient, and forward has two arguments: return that of x, then None for eps.",
    sign_flipped="Your gradient has the wrong sign everywhere: it is minus what it should be.",
    view_needed="Your Function uses view, which refuses an upstream gradient that isn't contiguous in memory. reshape takes any, "
    "and sums over the last axis need neither.",
    detached="Your first derivative is right and your second is wrong: what you saved is not in the graph of the gradient. Either "
    "detach (or .data) cuts it off, or forward made it of x (reshape, view). Save x itself, and use it as it is.",
    kept_as_attribute="You keep x as an attribute of ctx, where torch doesn't watch it: when x is changed in place before backward, "
    "the gradient is silently wrong. Use ctx.save_for_backward.",
    autograd_in_backward="Your backward lets torch.autograd differentiate. The task is to write the gradient, from tensors.",
)


@task.mistake("gradient", STRIDES)
class upstream_contiguous(NormalizeNew):
    @staticmethod
    def backward(ctx, g):
        return NormalizeNew.backward(ctx, g.as_strided(g.shape, torch.empty(g.shape).stride()))


@wrong.backward(
    "gradient",
    "You take away the part of g along the row, and don't divide by the length. Twice as long a row turns half as fast.",
)
def not_divided(ctx, x, g):
    long, _, y = _parts(x, ctx.eps)
    return torch.where(long, g - y * (y * g).sum(-1, keepdim=True), g / ctx.eps), None


@wrong.backward(
    "gradient",
    "You add the part of g along the row where it has to go: the sign is minus, g - y (y g).",
)
def projection_added(ctx, x, g):
    long, length, y = _parts(x, ctx.eps)
    return torch.where(long, (g + y * (y * g).sum(-1, keepdim=True)) / length, g / ctx.eps), None


@wrong.backward(
    "gradient",
    "What you subtract from g is the number y g alone. It's the part of g along y: multiply that number by y.",
)
def direction_missing(ctx, x, g):
    long, length, y = _parts(x, ctx.eps)
    return torch.where(long, (g - (y * g).sum(-1, keepdim=True)) / length, g / ctx.eps), None


@wrong.backward(
    "gradient",
    "You subtract x (x g), with x as it came. The direction is y = x / |x|: y (y g).",
)
def direction_not_unit(ctx, x, g):
    long, length, _ = _parts(x, ctx.eps)
    return torch.where(long, (g - x * (x * g).sum(-1, keepdim=True)) / length, g / ctx.eps), None


@wrong.backward(
    "gradient",
    "You subtract y * y * g, element by element. The product y g is summed over the row: each number of it moves the length.",
)
def sum_missing(ctx, x, g):
    long, length, y = _parts(x, ctx.eps)
    return torch.where(long, (g - y * y * g) / length, g / ctx.eps), None


@wrong.backward(
    "gradient",
    "You sum y g over the whole tensor. Each row has a product of its own: sum(-1, keepdim=True).",
)
def sum_over_everything(ctx, x, g):
    long, length, y = _parts(x, ctx.eps)
    return torch.where(long, (g - y * (y * g).sum()) / length, g / ctx.eps), None


@wrong.backward(
    "gradient",
    "The product y g lost its axis, so it doesn't meet the rows: torch raises, or, where there are as many rows as columns, "
    "takes the wrong ones. Sum with keepdim=True.",
)
def product_without_axis(ctx, x, g):
    long, length, y = _parts(x, ctx.eps)
    return torch.where(long, (g - y * (y * g).sum(-1)) / length, g / ctx.eps), None


@wrong.backward(
    "gradient", "You divide by the square of the length, in long rows. y has one length in it already, and one is left."
)
def divided_by_square(ctx, x, g):
    long, length, y = _parts(x, ctx.eps)
    return torch.where(long, (g - y * (y * g).sum(-1, keepdim=True)) / length**2, g / ctx.eps), None


@wrong.backward(
    "gradient",
    "You multiply by the length where you're to divide by it.",
)
def multiplied_by_length(ctx, x, g):
    long, length, y = _parts(x, ctx.eps)
    return torch.where(long, (g - y * (y * g).sum(-1, keepdim=True)) * length, g / ctx.eps), None


@wrong.backward("gradient", "You return a gradient for eps. It's a number, not a tensor: return None in its place.")
def gradient_for_eps(ctx, x, g):
    grad, _ = _right(ctx.eps, x, g)
    return grad, grad.sum()


def _right(eps: float, x: Tensor, g: Tensor) -> tuple[Tensor, None]:
    """Return the right gradients."""
    long, length, y = _parts(x, eps)
    return torch.where(long, (g - y * (y * g).sum(-1, keepdim=True)) / length, g / eps), None


@wrong.backward(
    "short",
    "In rows shorter than eps your gradient is the upstream gradient as it is. The output is x / eps there: g / eps.",
)
def short_not_divided(ctx, x, g):
    grad, _ = _right(ctx.eps, x, g)
    return torch.where(_parts(x, ctx.eps)[0], grad, g), None


@wrong.backward("short", "In rows shorter than eps your gradient is 0. The output is x / eps there, so it's g / eps.")
def short_zeroed(ctx, x, g):
    grad, _ = _right(ctx.eps, x, g)
    return torch.where(_parts(x, ctx.eps)[0], grad, 0), None


@wrong.backward(
    "short",
    "In rows shorter than eps you multiply g by eps. The output is x / eps there: divide.",
)
def short_multiplied(ctx, x, g):
    grad, _ = _right(ctx.eps, x, g)
    return torch.where(_parts(x, ctx.eps)[0], grad, g * ctx.eps), None


@wrong.backward(
    "short",
    "Your gradient of a row of zeros is nan: you divide by its length before you choose, or choose by a mask that's "
    "multiplied, and 0 * nan is nan. Put a 1 in place of the length, then use torch.where.",
)
def nan_at_zeros(ctx, x, g):
    length = x.norm(dim=-1, keepdim=True)
    y, long = x / length, (length > ctx.eps).to(x.dtype)
    return long * (g - y * (y * g).sum(-1, keepdim=True)) / length + (1 - long) * g / ctx.eps, None


@wrong.backward(
    "short",
    "You ask once for the whole tensor whether its rows are long (any, all, or an if). Each row has to answer for itself: "
    "torch.where.",
)
def asked_for_all(ctx, x, g):
    length = x.norm(dim=-1, keepdim=True)
    if (length <= ctx.eps).any():
        return g / ctx.eps, None
    return _right(ctx.eps, x, g)


@wrong.backward(
    "short",
    "At a row of zeros your gradient is right and your second derivative nan: the root of 0 has an infinite slope, and the clamp "
    "behind it multiplies that by 0. Clamp the square, by eps ** 2, and take the root after that.",
    saves=lambda x, eps, y: (x, y),
)
def root_before_clamp(ctx, x, y, g):
    length = x.square().sum(-1, keepdim=True).sqrt().clamp(min=ctx.eps)
    along = torch.where(length > ctx.eps, (y * g).sum(-1, keepdim=True), 0)
    return (g - y * along) / length, None


@wrong.backward(
    "gradient",
    "Your backward holds the square of the length against eps, so it takes some long rows for short ones, or short ones for long. "
    "Compare it with eps ** 2.",
)
def square_against_eps_in_backward(ctx, x, g):
    square = x.square().sum(-1, keepdim=True)
    long = square > ctx.eps
    length = torch.where(long, square, 1).sqrt()
    y = x / length
    return torch.where(long, (g - y * (y * g).sum(-1, keepdim=True)) / length, g / ctx.eps), None


@wrong.backward(
    "short",
    "You look for rows of zeros alone. A row that's shorter than eps, and not 0, has the gradient g / eps too.",
)
def only_zeros_short(ctx, x, g):
    square = x.square().sum(-1, keepdim=True)
    there = square > 0
    length = torch.where(there, square, 1).sqrt()
    y = x / length
    return torch.where(there, (g - y * (y * g).sum(-1, keepdim=True)) / length, g / ctx.eps), None


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is wrong: y = x / |x| is a constant in your backward. Either you cut it off "
    "there (detach), or what you save is a copy of the output, or was computed beside it. Save x, and make y of it.",
    saves=lambda x, eps, y: (x, y.detach().clone()),
)
def saves_copy_of_output(ctx, x, y, g):
    long, length, _ = _parts(x, ctx.eps)
    return torch.where(long, (g - y * (y * g).sum(-1, keepdim=True)) / length, g / ctx.eps), None


@wrong.backward(
    "second_order",
    "Your second derivative lacks the part through the length: it's cut off in backward, by detach, item or no_grad.",
)
def length_detached(ctx, x, g):
    long, length, _ = _parts(x.detach(), ctx.eps)
    y = x / length
    return torch.where(long, (g - y * (y * g).sum(-1, keepdim=True)) / length, g / ctx.eps), None


@wrong.backward(
    "second_order",
    "Your second derivative lacks the part through the product y g: it's cut off in backward, by detach, item or no_grad.",
)
def product_detached(ctx, x, g):
    long, length, y = _parts(x, ctx.eps)
    product = (y * g).sum(-1, keepdim=True).detach()
    return torch.where(long, (g - y * product) / length, g / ctx.eps), None


@wrong.backward("second_order", CONSTANT_UPSTREAM)
def constant_upstream(ctx, x, g):
    grad, _ = _right(ctx.eps, x, g)
    return (grad if g.requires_grad else grad.detach()), None


@wrong.forward(
    "contract",
    "You divide x in place (/=, or div_). It's the caller's, who goes on with other numbers: write x / length, a new tensor.",
)
def writes_into_input(x, eps):
    return x.div_(x.norm(dim=-1, keepdim=True).clamp(min=eps)).clone()


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(ctx, x, g):
    long, length, y = _parts(x, ctx.eps)
    g -= torch.where(long, y * (y * g).sum(-1, keepdim=True), 0)
    return g / torch.where(long, length, ctx.eps), None


@task.mistake(
    "contract",
    "You keep the output as an attribute of ctx, where torch doesn't watch it: an operation that writes into it before "
    "backward makes the gradient silently wrong. Use ctx.save_for_backward.",
)
class output_as_attribute(NormalizeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.eps = inputs
        ctx.save_for_backward(x)
        ctx.y = output

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        long, length, _ = _parts(x, ctx.eps)
        grad = (g - ctx.y * (ctx.y * g).sum(-1, keepdim=True)) / length
        return torch.where(long, grad, g / ctx.eps), None


@wrong.backward(
    "contract",
    "You save a mask beside x. It can be had from x in backward, so it's memory for nothing.",
    saves=lambda x, eps, y: (x, _parts(x, eps)[0]),
)
def mask_saved(ctx, x, long, g):
    return torch.where(long, _right(ctx.eps, x, g)[0], g / ctx.eps), None


@task.mistake(
    "contract",
    "You keep eps outside ctx (on the class, or in a global): a second call with another eps replaces it before the first "
    "one's backward. Write ctx.eps = eps.",
)
class eps_on_class(NormalizeNew):
    eps = 0.0

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, eps_on_class.eps = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        return _right(eps_on_class.eps, *ctx.saved_tensors, g)


@wrong.forward(
    "value",
    "You divide along the second axis, as F.normalize does if it isn't told another (dim=1). A row lies along the last: dim=-1.",
)
def second_axis(x, eps):
    return torch.nn.functional.normalize(x, eps=eps, dim=min(1, x.dim() - 1))


@wrong.forward("value", ONE_BY_ONE)
def sum_one_by_one(x, eps):
    square = torch.zeros_like(x[..., :1])
    for column in x.split(1, -1):
        square = square + column * column
    return x / square.sqrt().clamp(min=eps)


@task.mistake(
    "value",
    "You round eps, or raise it to at least some number of your own. It's the second argument, and a caller may give any above 0.",
)
class eps_rounded(NormalizeNew):
    @staticmethod
    def forward(x, eps):
        return NormalizeNew.forward(x, max(round(eps, 6), 1e-12))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, eps = inputs
        ctx.save_for_backward(x)
        ctx.eps = max(round(eps, 6), 1e-12)


@task.mistake(
    "value",
    "Your Function uses view on x, which refuses one whose axes were turned round. Reduce over the last axis, or use reshape.",
)
class view_of_input(NormalizeNew):
    @staticmethod
    def forward(x, eps):
        return NormalizeNew.forward(x.view(-1, x.shape[-1]), eps).view(x.shape)


@wrong.backward(
    "gradient",
    "Your backward raises eps to at least some small number. With a smaller eps it takes long rows for short ones: use eps as it is.",
)
def eps_clamped_in_backward(ctx, x, g):
    return _right(max(ctx.eps, 1e-8), x, g)


@wrong.backward(
    "gradient",
    "You divide by the cube of the length. In a row around 1e-110 that is 0, where the square still fits: divide x by the length "
    "first, for y, and take g - y (y g) over the length.",
)
def cube_of_length(ctx, x, g):
    long, length, _ = _parts(x, ctx.eps)
    return torch.where(long, g / length - x * (x * g).sum(-1, keepdim=True) / length**3, g / ctx.eps), None


@wrong.backward(
    "gradient",
    "You tell long rows by the output, whose length is to be 1 there. It is 1 only up to rounding: hold the square of x against "
    "eps ** 2.",
    saves=lambda x, eps, y: (x, y),
)
def long_by_output(ctx, x, y, g):
    long = y.square().sum(-1, keepdim=True) >= 1
    length = torch.where(long, x.square().sum(-1, keepdim=True), 1).sqrt()
    y = x / length
    return torch.where(long, (g - y * (y * g).sum(-1, keepdim=True)) / length, g / ctx.eps), None


@wrong.backward(
    "gradient",
    "You ask once for the whole tensor whether any row is long, and then treat all as long ones. Each row has to answer for itself: "
    "torch.where, with no any.",
)
def long_if_any(ctx, x, g):
    square = x.square().sum(-1, keepdim=True)
    long = (square > ctx.eps**2).any().expand_as(square)
    length = torch.where(square > 0, square, 1).sqrt()
    y = x / length
    return torch.where(long, (g - y * (y * g).sum(-1, keepdim=True)) / length, g / ctx.eps), None


@wrong.backward(
    "gradient",
    "You take a row with a single 0 in it for a row of zeros (by the product of its numbers, all, or min). Sum the squares: they say "
    "how long it is.",
)
def zero_anywhere(ctx, x, g):
    grad, _ = _right(ctx.eps, x, g)
    return torch.where(x.prod(-1, keepdim=True) == 0, g / ctx.eps, grad), None


@wrong.backward(
    "gradient",
    "Your backward takes a row for a long one only from a little above eps. The kink is at eps exactly: compare the square with "
    "eps ** 2.",
)
def margin_above_eps(ctx, x, g):
    long = _parts(x, 1.000001 * ctx.eps)[0]
    return torch.where(long, _right(ctx.eps, x, g)[0], g / ctx.eps), None


@wrong.backward("gradient", EXPANDED)
def expanded_taken_for_one(ctx, x, g):
    if g.dim() > 1 and 0 in g.stride():
        g = g.reshape(-1, g.shape[-1])[0].expand_as(x)
    return _right(ctx.eps, x, g)


@wrong.backward("gradient", FORWARD_MODE)
def forward_mode(ctx, x, g):
    with fw.dual_level():
        square = (pair := fw.make_dual(x, g)).square().sum(-1, keepdim=True)
        long = square > ctx.eps**2
        y = pair / torch.where(long, torch.where(long, square, 1).sqrt(), ctx.eps)
        return fw.unpack_dual(y).tangent, None


@wrong.backward("second_order", FROM_START)
def upstream_from_start(ctx, x, g):
    return _right(ctx.eps, x, g.as_strided(x.shape, g.stride(), 0))


@wrong.backward("second_order", MADE_OF_X, saves=lambda x, eps, y: (x.contiguous(),))
def saves_contiguous(ctx, x, g):
    return _right(ctx.eps, x, g)


@wrong.backward("second_order", MADE_OF_X, saves=lambda x, eps, y: (x.double(),))
def saves_wide(ctx, x, g):
    return _right(ctx.eps, x, g.double())[0].to(g.dtype), None


@wrong.backward("second_order", MADE_OF_X, saves=lambda x, eps, y: (x if x.dim() <= 2 else x.reshape(-1, x.shape[-1]),))
def saves_matrix_of_more(ctx, x, g):
    return _right(ctx.eps, x, g.reshape(x.shape))[0].reshape(g.shape), None


@wrong.backward("second_order", LEFT_BEHIND)
def direction_left_on_ctx(ctx, x, g):
    if not hasattr(ctx, "made"):
        ctx.made = _parts(x, ctx.eps)
    long, length, y = ctx.made
    return torch.where(long, (g - y * (y * g).sum(-1, keepdim=True)) / length, g / ctx.eps), None


class _Pull(Function):
    """The gradient of Normalize, with a backward of its own."""

    masked = True
    whole = True

    @staticmethod
    def forward(ctx, x, g, eps):
        ctx.save_for_backward(x, g)
        ctx.eps = eps
        return _right(eps, x, g)[0]

    @classmethod
    def derived(cls, ctx, v):
        x, g = ctx.saved_tensors
        square = x.square().sum(-1, keepdim=True)
        long = square > ctx.eps**2
        square = torch.where(square > 0, square, 1)
        length = square.sqrt()
        y = x / length
        yg, yv, gv = ((a * b).sum(-1, keepdim=True) for a, b in ((y, g), (y, v), (g, v)))
        to_x = (3 * y * yg * yv - g * yv - v * yg - (y * gv if cls.whole else 0)) / square
        to_x = torch.where(long if cls.masked else (x != 0).any(-1, keepdim=True), to_x, 0)
        return to_x, torch.where(long, (v - y * yv) / length, v / ctx.eps), None


class _PullUnmasked(_Pull):
    masked = False

    @staticmethod
    def backward(ctx, v):
        return _PullUnmasked.derived(ctx, v)


class _PullShort(_Pull):
    whole = False

    @staticmethod
    def backward(ctx, v):
        return _PullShort.derived(ctx, v)


@wrong.backward(
    "short",
    "The backward of your backward treats short rows as long ones. The gradient there is g / eps, whatever x is, so its derivative by "
    "x is 0: choose by torch.where in that one too.",
)
def second_backward_unmasked(ctx, x, g):
    return _PullUnmasked.apply(x, g, ctx.eps), None


@wrong.backward(
    "second_order",
    "The backward of your backward lacks a term, the one with g v. In (g - y (y g)) / |x| three things depend on x: both y "
    "and the length. Or let torch make it: leave your backward without a Function of its own.",
)
def second_backward_lacks_term(ctx, x, g):
    return _PullShort.apply(x, g, ctx.eps), None


@task.mistake("contract", "You save eps as a tensor. It's a number: keep it as it is, ctx.eps = eps.")
class eps_as_tensor(NormalizeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, eps = inputs
        ctx.save_for_backward(x, torch.tensor(eps, dtype=torch.float64))

    @staticmethod
    def backward(ctx, g):
        x, eps = ctx.saved_tensors
        return _right(eps.item(), x, g)


@task.mistake(
    "contract",
    "You keep eps in a dictionary, by where x lies in memory or by its shape: a second call on the same x with another eps replaces it "
    "before the first one's backward. Write ctx.eps = eps.",
)
class eps_by_address(NormalizeNew):
    known: dict[tuple[int, torch.Size], float] = {}

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, eps = inputs
        ctx.save_for_backward(x)
        eps_by_address.known[x.data_ptr(), x.shape] = eps

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return _right(eps_by_address.known[x.data_ptr(), x.shape], x, g)


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is wrong: the length was computed in forward and saved (or kept on ctx), so "
    "it's a constant in backward. Save x, and make the length again there.",
    saves=lambda x, eps, y: (x, x.double().norm(dim=-1, keepdim=True)),
)
def saves_wide_length(ctx, x, length, g):
    long = length > ctx.eps
    length = torch.where(long, length, 1)
    y = x / length
    return torch.where(long, (g - y * (y * g).sum(-1, keepdim=True)) / length, g / ctx.eps).to(g.dtype), None
