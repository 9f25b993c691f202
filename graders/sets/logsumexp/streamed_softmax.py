"""StreamedSoftmax: a softmax in pieces, forward and backward, in the memory of its result."""

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.aspects import WATCHED, gradient, value
from graders.judge.looks import Finding
from graders.judge.task import BRAIN, DOUBLE, DTYPES, HALF, SINGLE, Check, Draw, Task
from graders.judge.wording import WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.logsumexp.common import (
    CONSTANT_UPSTREAM,
    FORBIDS,
    GRADIENT,
    INF,
    SUMS,
    VALUE,
    matrix,
    moderate,
    named,
    second_order,
)

PLACE = 3
PIECES = 32  # of the row in which memory is looked at
State = tuple[Tensor, Tensor]  # of each row: the maximum, and the sum of exponentials relative to it


def _forms(d: Draw, order: int) -> list[Case]:
    """Return cases of every dtype, shape, layout and size of the pieces."""
    x = moderate(d)
    inputs = [(f"a {named(t)} input", x(2, 7, dtype=t), 3) for t in DTYPES] + [
        ("pieces of one column", x(2, 4), 1),
        ("pieces that come out even", x(3, 6), 2),
        ("one piece", x(3, 5), 5),
        ("a size above the number of columns", x(2, 3), 8),
        ("a last piece of one column", x(4, 7), 3),
        ("a vector", x(5), 2),
        ("one column", x(3, 1), 2),
        ("no rows", x(0, 3), 2),
        ("a 3-d input", x(2, 3, 5), 2),
        ("as many rows as columns", x(4, 4), 2),
        ("a transposed input", x(5, 3).t(), 2),
        ("every second row", x(4, 5)[::2], 3),
        ("an expanded input", x(1, 5).expand(3, 5), 2),
    ]
    return [d.case(name, *rest, order=order) for name, *rest in inputs]


def _far(d: Draw, order: int) -> list[Case]:
    """Return cases where exp overflows or is 0, where a large maximum has few digits after the point, and of -inf."""
    x = moderate(d)
    levels = matrix([1e4], [0.0], [-1e4])
    rising = torch.linspace(-1e4, 1e4, 7, dtype=DOUBLE)
    none = matrix([-INF, -INF, -INF, 1.0, 2.0], [0.5, 0.0, 1.0, -INF, -INF], [-INF, 2.0, -INF, -INF, 1.0])
    return [
        d.case("rows around 10000, 0 and -10000", levels + x(3, 5), 2, order=order),
        d.case("all around 1000", 1000 + x(2, 5), 2, order=order),
        d.case("all around -1000", -1000 + x(2, 5), 2, order=order),
        d.case("from -10000 up to 10000, and down", torch.stack([rising, -rising]), 2, order=order),
        d.case("-inf, in pieces of nothing else too", none, 2, order=order),
        d.case("-inf first, numbers around -1000", none - 1000, 3, order=order),
        d.case("float16, -inf", none.half(), 2, order=order),
        *(d.case(f"float32 around {n:g}", (n + x(6, 7)).float(), 3, order=order) for n in (95, -110, 1e4, -1e4)),
        *(
            d.case(f"{named(t)} around {n:g}", (n + x(4, 5)).to(t), 2, order=order)
            for t in (HALF, BRAIN)
            for n in (100, -100)
        ),
    ]


def in_pieces(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find a pass that holds much more than its result."""
    x, size = case.args
    if (
        "trace" not in case.watch
        or not isinstance(x, Tensor)
        or not isinstance(size, int)
        or x.shape[-1] < PIECES * size
    ):
        return None  # of few pieces, one is much
    own = x.numel() * x.element_size()
    for where, seen in zip(("forward", "backward"), yours.peak, strict=False):
        if seen > 1.5 * own:
            text = (
                f"At its worst moment the {where} holds {seen} bytes beside what it was given; its result has {own}. "
                "Make the result once, take size columns at a time, and write each piece into its place."
            )
            evidence = {"case": look.describe(call, case), "yours": f"{seen} bytes", "expected": f"about {own}"}
            return Finding("peak", text, evidence)
    return None


task = Task(
    "StreamedSoftmax",
    "StreamedSoftmax.apply(x, size)",
    reference=lambda x, size: torch.softmax(x.double(), -1).to(x.dtype),
    checks=(
        value(
            1,
            about="the softmax of each row, by pieces of any size; up to 10000, and with -inf",
            cases=lambda d: [
                *_forms(d, order=0),
                *_far(d, order=0),
                d.case("rows", moderate(d)(3, 5), 2, order=0, watch=("trace",), deny=SUMS),
                *d.lopsided(lambda x: (x, 2), 2, 3, order=0),
            ],
            looks=(*VALUE, look.allowed),
        ),
        gradient(
            1,
            about="the gradient equals torch's for pieces of any size, and gradcheck passes",
            why="Each element of the gradient is p (v - D), and D is one number for a row, summed over all its pieces.",
            cases=lambda d: [
                *_forms(d, order=1),
                *_far(d, order=1),
                d.case("upstream of every size", moderate(d)(6, 3), 2, upstream=d.scales(6, 3)),
                d.case("expanded upstream", moderate(d)(2, 3, 4), 3, upstream=d.normal(2, 1, 4).expand(2, 3, 4)),
                d.case("transposed upstream", moderate(d)(4, 5), 2, upstream=d.normal(5, 4).t()),
                d.case("rows", moderate(d)(3, 5), 2, watch=("trace",), deny=SUMS),
                *d.lopsided(lambda x: (x, 2), 2, 3),
            ],
            looks=(*GRADIENT, look.allowed),
            gradcheck=lambda d: (moderate(d)(2, 5), 2),
        ),
        second_order(
            1,
            about="the gradient can be differentiated again, by x and by the upstream gradient",
            why="D depends on x and on the upstream gradient: what backward detaches, or makes a number of, is missing.",
            cases=lambda d: [
                d.case("rows", moderate(d)(2, 5), 2, order=2),
                d.case("one piece", moderate(d)(3, 4), 4, order=2),
                d.case("pieces of one column", moderate(d)(2, 3), 1, order=2),
                d.case("a 3-d input", moderate(d)(2, 3, 4), 3, order=2),
                d.case("float32", moderate(d)(2, 5, dtype=SINGLE), 2, order=2),
                d.case("around 1000", 1000 + moderate(d)(2, 5), 3, order=2),
                d.case("an upstream gradient that is a constant", moderate(d)(2, 5), 2, order=2, how="constant"),
                *d.lopsided(lambda x: (x, 2), 2, 3, order=2),
            ],
            gradcheck=lambda d: (moderate(d)(2, 5), 2),
        ),
        Check(
            "memory",
            1,
            about="a pass holds its result and little more, keeps the output alone, changes nothing",
            why="Memory is looked at here, and these numbers first: a gradient that is wrong elsewhere is wrong here too.",
            cases=lambda d: [
                # what a shorter row, in other pieces, leaves behind does not cover this one
                d.case("rows", moderate(d)(3, 5), 2, watch=WATCHED, between=(moderate(d)(3, 3), 1)),
                d.case("float32", moderate(d)(2, 5, dtype=SINGLE), 3, watch=("state", "overwrite")),
                d.case("one column", moderate(d)(2, 1), 1, watch=("overwrite",)),
                d.case("a row of 32 pieces", moderate(d)(1, 24 * PIECES), 24, watch=("trace",)),
                d.case("32 pieces, not 2", moderate(d)(10, 2 * PIECES), 2, watch=("trace",)),
                # twice as many: a piece may be widened to float64, a copy of the row in float32 is too much
                d.case("float16, 64 pieces", moderate(d)(1, 48 * PIECES, dtype=HALF), 24, watch=("trace",)),
            ],
            looks=(
                *GRADIENT[:4],
                look.untouched,
                *GRADIENT[4:],
                look.stateless,
                look.guarded,
                look.keeps_output_alone,
                in_pieces,
                look.allowed,
            ),
        ),
    ),
    forbids=FORBIDS,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class StreamedSoftmaxNew(Function):
    """Maximum and sum in one pass, the quotients in a second, written into one result: the one to write."""

    @staticmethod
    def forward(x, size):
        m = ell = 0
        for i, piece in enumerate(x.split(size, -1)):
            high = piece.amax(-1, keepdim=True)
            high = torch.maximum(m, high) if i else high
            shift = high.masked_fill(high == -INF, 0)
            ell = (piece - shift).exp().sum(-1, keepdim=True) + (ell * (m - shift).exp() if i else 0)
            m = high
        y = torch.empty_like(x)
        for start in range(0, x.shape[-1], size):
            columns = slice(start, start + size)
            y[..., columns] = (x[..., columns] - m).exp() / ell
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.size = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        pairs = zip(y.split(ctx.size, -1), g.split(ctx.size, -1), strict=True)
        d = sum((p * v).sum(-1, keepdim=True) for p, v in pairs)
        grad = torch.empty_like(y)
        for start in range(0, y.shape[-1], ctx.size):
            columns = slice(start, start + ctx.size)
            grad[..., columns] = y[..., columns] * (g[..., columns] - d)
        return grad, None


@task.solution
class StreamedSoftmaxThrice(StreamedSoftmaxNew):
    """The maximum first, then the sum: three passes, and nothing to rescale, where reading x again costs little."""

    @staticmethod
    def forward(x, size):
        pieces = x.split(size, -1)
        m = pieces[0].amax(-1, keepdim=True)
        for piece in pieces[1:]:
            m = torch.maximum(m, piece.amax(-1, keepdim=True))
        ell = sum((piece - m).exp().sum(-1, keepdim=True) for piece in pieces)
        y = torch.zeros_like(x)
        for place, piece in zip(y.split(size, -1), pieces, strict=True):
            place.copy_((piece - m).exp() / ell)
        return y


@task.solution
class StreamedSoftmaxWide(Function):
    """Each piece in float64: for halves, whose sums lose digits otherwise; a conversion for each piece."""

    @staticmethod
    def forward(ctx, x, size):
        m = torch.full_like(x[..., :1], -INF, dtype=torch.float64)
        ell = torch.zeros_like(m)
        for piece in x.split(size, -1):
            piece = piece.double()
            high = torch.maximum(m, piece.max(-1, keepdim=True).values)
            shift = torch.where(high.isinf(), 0, high)
            ell = ell * (m - shift).exp() + (piece - shift).exp().sum(-1, keepdim=True)
            m = high
        y = x.new_empty(x.shape)
        for i in range(0, x.size(-1), size):
            y[..., i : i + size] = (x[..., i : i + size].double() - m).exp() / ell
        ctx.save_for_backward(y)
        ctx.size = size
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        starts = range(0, y.size(-1), ctx.size)
        d = 0
        for i in starts:
            p, v = y[..., i : i + ctx.size].double(), g[..., i : i + ctx.size].double()
            d = d + (p * v).sum(-1, keepdim=True)
        grad = torch.zeros_like(y)
        for i in starts:
            p, v = y[..., i : i + ctx.size].double(), g[..., i : i + ctx.size].double()
            grad[..., i : i + ctx.size] = p * (v - d)
        return grad, None


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class StreamedSoftmaxNarrow(StreamedSoftmaxNew):
    """The numerators are written first, each relative to the maximum so far, and corrected in place; D by a product."""

    @staticmethod
    def forward(x, size):
        y, high, ell = torch.empty_like(x), [], None
        for i in range(0, x.shape[-1], size):
            piece = x.narrow(-1, i, min(size, x.shape[-1] - i))
            m = piece.amax(-1, keepdim=True).nan_to_num(neginf=torch.finfo(x.dtype).min)
            m = torch.maximum(m, high[-1]) if high else m
            e = y.narrow(-1, i, piece.shape[-1]).copy_(piece - m).exp_()
            ell = e.sum(-1, keepdim=True) + (ell * (high[-1] - m).exp() if high else 0)
            high = [m]
        for place, piece in zip(y.split(size, -1), x.split(size, -1), strict=True):
            torch.sub(piece, m, out=place).exp_().div_(ell)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        d = torch.zeros_like(y[..., :1])
        for p, v in zip(y.split(ctx.size, -1), g.split(ctx.size, -1), strict=True):
            d = d + torch.einsum("...i,...i->...", p, v).unsqueeze(-1)
        grad = torch.empty_like(y)
        for i in range(0, y.shape[-1], ctx.size):
            p, v = (t.narrow(-1, i, min(ctx.size, t.shape[-1] - i)) for t in (y, g))
            grad.narrow(-1, i, p.shape[-1]).copy_(p * v - p * d)
        return grad, None


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class Pieces(Function):
    """A right StreamedSoftmax in steps, for the wrong ones to change one of them."""

    @staticmethod
    def cut(x: Tensor, size: int) -> list[slice]:
        """Return the columns of each piece."""
        return [slice(i, i + size) for i in range(0, x.shape[-1], size)]

    @staticmethod
    def maximum(m: Tensor, piece: Tensor) -> Tensor:
        """Return the maximum of each row with one piece more."""
        return torch.maximum(m, piece.amax(-1, keepdim=True))

    @staticmethod
    def shift(m: Tensor) -> Tensor:
        """Return what is subtracted: the maximum, 0 where that is -inf."""
        return torch.where(m == -INF, 0, m)

    @staticmethod
    def shrink(m: Tensor, shift: Tensor) -> Tensor:
        """Return by what the sum is multiplied that was relative to m."""
        return (m - shift).exp()

    @classmethod
    def state(cls, x: Tensor, size: int) -> State:
        """Return maximum and sum of each row."""
        m = torch.full_like(x[..., :1], -INF)
        ell = torch.zeros_like(m)
        for columns in cls.cut(x, size):
            high = cls.maximum(m, x[..., columns])
            shift = cls.shift(high)
            ell = ell * cls.shrink(m, shift) + (x[..., columns] - shift).exp().sum(-1, keepdim=True)
            m = high
        return m, ell

    @staticmethod
    def share(piece: Tensor, m: Tensor, ell: Tensor) -> Tensor:
        """Return the softmax of one piece."""
        return (piece - m).exp() / ell

    @classmethod
    def forward(cls, x, size):
        m, ell = cls.state(x, size)
        y = torch.zeros_like(x)
        for columns in cls.cut(x, size):
            y[..., columns] = cls.share(x[..., columns], m, ell)
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.size = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def part(p: Tensor, v: Tensor) -> Tensor:
        """Return what a piece adds to D."""
        return (p * v).sum(-1, keepdim=True)

    @staticmethod
    def term(p: Tensor, v: Tensor, d: Tensor) -> Tensor:
        """Return the gradient of one piece."""
        return p * (v - d)

    @classmethod
    def backward(cls, ctx, g):
        (y,) = ctx.saved_tensors
        pieces = cls.cut(y, ctx.size)
        d = sum(cls.part(y[..., columns], g[..., columns]) for columns in pieces)
        grad = torch.zeros_like(y)
        for columns in pieces:
            grad[..., columns] = cls.term(y[..., columns], g[..., columns], d)
        return grad, None


wrong = Wrong(task, of=Pieces)


@wrong.step(
    "term",
    "gradient",
    "Each piece has a D of its own: it's summed over the piece alone. D belongs to the whole row, so go through all pieces "
    "once to add it up, and only then a second time for the gradient.",
)
def d_of_each_piece(p, v, d):
    return p * (v - (p * v).sum(-1, keepdim=True))


@wrong.step(
    "term",
    "gradient",
    "D is missing: your gradient is p times the upstream gradient. Raising one number of a row lowers all other outputs of "
    "it, so subtract D, the sum of p times the upstream gradient over the row, first.",
)
def d_missing(p, v, d):
    return p * v


@task.mistake(
    "value",
    "You split x along its first axis: that's what split(size) does by itself. A row is cut along its columns, so say "
    "split(size, dim=-1).",
)
class split_over_dim_0(Pieces):
    @staticmethod
    def forward(x, size):
        m = ell = None
        for piece in x.split(size):
            top = piece.amax(-1, keepdim=True)
            high = top if m is None else torch.maximum(m, top)
            shift = Pieces.shift(high)
            old = 0 if m is None else ell * (m - shift).exp()
            m, ell = high, old + (piece - shift).exp().sum(-1, keepdim=True)
        return torch.cat([Pieces.share(piece, m, ell) for piece in x.split(size)])


@wrong.step(
    "shrink",
    "value",
    "When a later piece brings a larger maximum, the sum so far stays as it is. It was relative to the old maximum: multiply "
    "it by exp(old - new) before you add the new terms.",
)
def sum_not_rescaled(m, shift):
    return torch.ones_like(m)


@wrong.step(
    "share",
    "value",
    "You take exp(x - lse). That's right on paper, but near 10000 lse has three digits after the point in float32, and your "
    "softmax no more than these. Subtract the maximum, which is exact, and divide by the sum.",
)
def lse_rounded(piece, m, ell):
    return (piece - (m + ell.log())).exp()


@task.mistake(
    "value",
    "Each piece is a softmax of its own, so each sums to 1. The sum belongs to the whole row: go through all pieces for it, "
    "and then a second time to divide.",
)
class each_piece_normalised(Pieces):
    @classmethod
    def forward(cls, x, size):
        y = torch.zeros_like(x)
        for columns in cls.cut(x, size):
            piece = x[..., columns]
            e = (piece - cls.shift(piece.amax(-1, keepdim=True))).exp()
            y[..., columns] = e / e.sum(-1, keepdim=True)
        return y


@wrong.step(
    "part",
    "gradient",
    "Your D is a single number for the whole tensor: .sum() without a dimension adds up the rows as well. Each row has its "
    "own D: sum over the last axis, with keepdim=True.",
)
def d_of_all_rows(p, v):
    return (p * v).sum()


@wrong.step(
    "cut",
    "value",
    "You take n // size pieces, so a last piece that is shorter gets lost. Count the starts instead, range(0, n, size), or "
    "let split do it.",
)
def last_piece_dropped(x, size):
    return [slice(i * size, (i + 1) * size) for i in range(x.shape[-1] // size)]


@task.mistake(
    "memory",
    "Forward and backward hold all of x's size twice. Either you collect the pieces and join them (torch.cat), or you take all "
    "columns at once, whatever size is. Make the result once, with torch.empty_like, and write each piece into its columns.",
)
class pieces_collected(Pieces):
    @classmethod
    def forward(cls, x, size):
        m, ell = cls.state(x, size)
        return torch.cat([cls.share(piece, m, ell) for piece in x.split(size, -1)], -1)

    @classmethod
    def backward(cls, ctx, g):
        (y,) = ctx.saved_tensors
        pairs = list(zip(y.split(ctx.size, -1), g.split(ctx.size, -1), strict=True))
        d = sum(cls.part(p, v) for p, v in pairs)
        return torch.cat([cls.term(p, v, d) for p, v in pairs], -1), None


@wrong.step(
    "shift",
    "value",
    "A piece of nothing but -inf at the front of a row makes nan of all that follows: its maximum is -inf, and -inf - -inf is "
    "nan. Subtract 0 where the maximum so far is -inf.",
)
def no_guard(m):
    return m


@wrong.step(
    "maximum",
    "value",
    "Every piece is shifted by the maximum of the first one. A later one far above it overflows, and inf / inf is nan: let the "
    "maximum grow, and rescale the sum when it does.",
)
def first_maximum_kept(m, piece):
    return torch.where(m == -INF, piece.amax(-1, keepdim=True), m)


@wrong.step(
    "maximum",
    "value",
    "Your maximum is that of the current piece, and not the largest so far. Where a piece lies far below an earlier one, the sum "
    "so far is multiplied by the exp of a large number, which overflows: take the larger of the two.",
)
def maximum_of_the_piece(m, piece):
    high = piece.amax(-1, keepdim=True)
    return torch.where(high == -INF, m, high)


@wrong.step(
    "maximum",
    "value",
    "You keep the 0 that stands in for a maximum of -inf as the maximum itself, and numbers below 0 never beat it: around -1000 "
    "every exp is 0, and 0 / 0 is nan. Subtract 0 while a row has shown nothing but -inf, and let its maximum stay -inf.",
)
def guard_kept_as_maximum(m, piece):
    return Pieces.shift(torch.maximum(m, piece.amax(-1, keepdim=True)))


@task.mistake(
    "value",
    "You write the numerators in the first loop, each relative to the maximum so far. When a later piece brings a larger one you "
    "rescale the sum, but not what is written already: write in a second loop, or rescale that too.",
)
class numerators_not_rescaled(Pieces):
    @classmethod
    def forward(cls, x, size):
        y, m = torch.zeros_like(x), torch.full_like(x[..., :1], -INF)
        ell = torch.zeros_like(m)
        for columns in cls.cut(x, size):
            high = cls.maximum(m, x[..., columns])
            shift = cls.shift(high)
            y[..., columns] = (x[..., columns] - shift).exp()
            ell = ell * cls.shrink(m, shift) + y[..., columns].sum(-1, keepdim=True)
            m = high
        return y / ell


@task.mistake(
    "value",
    "You take exp of x as it is: in float32 it overflows above 88.7, and below -104 a row is 0 / 0. Subtract the largest "
    "number of the row first; it cancels in the quotient.",
)
class no_shift(Pieces):
    @classmethod
    def forward(cls, x, size):
        ell = sum(x[..., columns].exp().sum(-1, keepdim=True) for columns in cls.cut(x, size))
        y = torch.zeros_like(x)
        for columns in cls.cut(x, size):
            y[..., columns] = x[..., columns].exp() / ell
        return y


@task.mistake(
    "value",
    "You subtract the maximum of the whole tensor. In a row far below it every exp is 0, and 0 / 0 is nan: each row needs the "
    "maximum of its own.",
)
class shift_of_everything(Pieces):
    @classmethod
    def state(cls, x, size):
        m = torch.full_like(x[..., :1], x.max().item() if x.numel() else 0.0)
        return m, sum((x[..., columns] - m).exp().sum(-1, keepdim=True) for columns in cls.cut(x, size))


@wrong.step(
    "state",
    "value",
    "You add a small number to the sum before you divide. After the shift it's at least 1, so nothing needs that, and every "
    "output is a little too small.",
)
def epsilon_in_denominator(x, size):
    m, ell = Pieces.state(x, size)
    return m, ell + 1e-6


@wrong.step(
    "state",
    "value",
    "You add a number like 1e-8 to the sum before you divide. In float64 that costs half of the digits. Nothing needs it: after "
    "the shift the sum is at least 1.",
)
def tiny_epsilon_in_denominator(x, size):
    m, ell = Pieces.state(x, size)
    return m, ell + 1e-8


@wrong.step(
    "state",
    "value",
    "Your sum is float32: torch.zeros(shape) makes it so, and what you add to it in place loses half of its digits where x is "
    "float64. Take torch.zeros_like of the maximum.",
)
def sum_in_float32(x, size):
    m = torch.full_like(x[..., :1], -INF)
    ell = torch.zeros(m.shape)
    for columns in Pieces.cut(x, size):
        high = Pieces.maximum(m, x[..., columns])
        shift = Pieces.shift(high)
        ell *= (m - shift).exp()
        ell += (x[..., columns] - shift).exp().sum(-1, keepdim=True)
        m = high
    return m, ell


@wrong.step(
    "share",
    "value",
    "You leave out the division at the end: these are the numerators. Divide each piece by the sum of its row.",
)
def not_divided(piece, m, ell):
    return (piece - m).exp()


@wrong.forward(
    "value",
    "Your forward calls a built-in that does the task (softmax, log_softmax or logsumexp). Make it from the maximum, exp, a "
    "sum and a quotient, a piece at a time.",
)
def calls_softmax(x, size):
    return torch.softmax(x, -1)


wrong.habits(
    "float32_and_back",
    float32_inside="Your output is float32 whatever the input is: torch.zeros(x.shape) makes it so, or a conversion inside. "
    "torch.zeros_like and torch.empty_like take the dtype of x.",
)


@wrong.step(
    "part",
    "gradient",
    "Your D sums the upstream gradient alone. Each of its numbers counts as much as its output does: D is the sum of p times "
    "the upstream gradient.",
)
def d_of_upstream_alone(p, v):
    return v.sum(-1, keepdim=True)


@wrong.step(
    "part",
    "gradient",
    "Your D lacks keepdim=True: one number a row, but in a shape that meets the columns when you subtract it. It raises, or, "
    "where there happen to be as many rows as columns, subtracts the wrong numbers.",
)
def d_without_keepdim(p, v):
    return (p * v).sum(-1)


@wrong.backward(
    "gradient",
    "Your D is that of the last piece: d = ... in the loop replaces what the earlier pieces gave. Begin at 0 before the loop, "
    "and add.",
)
def d_of_the_last_piece(ctx, y, g):
    d = Pieces.part(y.split(ctx.size, -1)[-1], g.split(ctx.size, -1)[-1])
    grad = torch.zeros_like(y)
    for columns in Pieces.cut(y, ctx.size):
        grad[..., columns] = Pieces.term(y[..., columns], g[..., columns], d)
    return grad, None


@wrong.backward(
    "gradient",
    "Your backward is one loop: each piece subtracts what D has come to so far. The first piece needs the last one's part as "
    "well, so finish D in a loop of its own.",
)
def d_so_far(ctx, y, g):
    d, grad = 0, torch.zeros_like(y)
    for columns in Pieces.cut(y, ctx.size):
        d = d + Pieces.part(y[..., columns], g[..., columns])
        grad[..., columns] = Pieces.term(y[..., columns], g[..., columns], d)
    return grad, None


@wrong.backward(
    "gradient",
    "Your backward takes n // size pieces, so a last one that is shorter gets no gradient, and its part of D is missing too. "
    "Count the starts, range(0, n, size), or let split do it.",
)
def last_piece_dropped_in_backward(ctx, y, g):
    pieces = [slice(i * ctx.size, (i + 1) * ctx.size) for i in range(y.shape[-1] // ctx.size)]
    d = sum(Pieces.part(y[..., columns], g[..., columns]) for columns in pieces)
    grad = torch.zeros_like(y)
    for columns in pieces:
        grad[..., columns] = Pieces.term(y[..., columns], g[..., columns], d)
    return grad, None


@wrong.backward(
    "gradient",
    "Your backward splits the output and the upstream gradient along their first axis: that's what split(size) does by itself. "
    "The pieces are columns, so say split(size, dim=-1).",
)
def split_over_dim_0_in_backward(ctx, y, g):
    pairs = list(zip(y.split(ctx.size), g.split(ctx.size), strict=True))
    d = sum(Pieces.part(p, v) for p, v in pairs)
    return torch.cat([Pieces.term(p, v, d) for p, v in pairs]), None


@wrong.step(
    "term",
    "gradient",
    "Your gradient is p (1 - p) times the upstream gradient: that's the diagonal of the softmax's Jacobian, or a sigmoid's "
    "slope. Each number of a row moves the other outputs too; p (v - D) has all of that.",
)
def diagonal_alone(p, v, d):
    return p * (1 - p) * v


@wrong.step(
    "term",
    "gradient",
    "Your gradient is p (1 - p), which knows neither the upstream gradient nor the other outputs of the row. Both are in "
    "p (v - D), where v is the upstream gradient and D the sum of p v over the row.",
)
def derivative_alone(p, v, d):
    return p * (1 - p)


@wrong.step(
    "term",
    "gradient",
    "Your gradient lacks the factor p: it's v - D alone. An output near 0 hardly moves, and p says how much: p (v - D).",
)
def p_missing(p, v, d):
    return v - d


wrong.habits(
    "nothing_returned view_needed no_function",
    sign_flipped="Your gradient has the wrong sign everywhere: it's p (D - v). Raising a number raises its own output, so the "
    "upstream gradient comes first: p (v - D).",
    none_forgotten="Your backward returns one gradient, and forward has two arguments: torch wants one for each, None for size.",
    one_too_many="Your backward returns three gradients. Forward has two arguments, x and size: return the gradient and None.",
)


@wrong.backward(
    "gradient",
    "Your backward returns a gradient for size, which is an int and has none. Return None in its place.",
)
def gradient_for_size(ctx, g):
    return Pieces.backward(ctx, g)[0], g.sum()


@wrong.backward(
    "gradient",
    "The tensor that you write the gradient into is float32: torch.zeros(shape) makes it so, and for float64 half of the digits "
    "are lost on the way. Take torch.zeros_like or torch.empty_like.",
)
def buffer_in_float32(ctx, y, g):
    d = sum(Pieces.part(y[..., columns], g[..., columns]) for columns in Pieces.cut(y, ctx.size))
    grad = torch.zeros(y.shape)
    for columns in Pieces.cut(y, ctx.size):
        grad[..., columns] = Pieces.term(y[..., columns], g[..., columns], d)
    return grad, None


@wrong.backward(
    "gradient",
    "Your D is float32: torch.zeros(shape) makes it so, and what you add to it in place loses half of its digits where x is "
    "float64. Take torch.zeros_like of y[..., :1].",
)
def d_in_float32(ctx, y, g):
    d, grad = torch.zeros(y[..., :1].shape), torch.zeros_like(y)
    for columns in Pieces.cut(y, ctx.size):
        d += Pieces.part(y[..., columns], g[..., columns])
    for columns in Pieces.cut(y, ctx.size):
        grad[..., columns] = Pieces.term(y[..., columns], g[..., columns], d)
    return grad, None


@task.mistake(
    "value",
    "Your sum is float32, and so is your D: torch.zeros(shape) makes them so, and what you add to them in place loses half of its "
    "digits where x is float64. Take torch.zeros_like of a tensor that has the dtype of x.",
)
class sums_in_float32(Pieces):
    state = staticmethod(sum_in_float32)
    backward = staticmethod(lambda ctx, g: d_in_float32(ctx, *ctx.saved_tensors, g))


@wrong.saves(
    "second_order",
    "Your first derivative is right, but what you saved is a copy of the output, or a softmax made on the way: a constant for "
    "the second. Save the output itself, which torch knows to depend on x.",
)
def saves_copy_of_output(x, size, y):
    return (y.detach().clone(),)


@wrong.step(
    "part",
    "second_order",
    "Your D is a constant for the second derivative: item, detach or no_grad cuts it off. It depends on x through p, and on the "
    "upstream gradient: leave it a tensor in the graph.",
)
def d_detached(p, v):
    return (p * v).sum(-1, keepdim=True).detach()


@wrong.backward(
    "second_order",
    "In backward you write into the views that split gives. Torch refuses that as soon as the gradient itself is differentiated: an output "
    "of split may not be changed in place. Write into grad[..., i : i + size], a view that stands alone.",
)
def writes_into_split(ctx, y, g):
    size = ctx.size
    d = sum(Pieces.part(p, v) for p, v in zip(y.split(size, -1), g.split(size, -1), strict=True))
    grad = torch.zeros_like(y)
    for place, p, v in zip(grad.split(size, -1), y.split(size, -1), g.split(size, -1), strict=True):
        place.copy_(Pieces.term(p, v, d))
    return grad, None


wrong.habits("not_differentiable_twice")


@wrong.backward("second_order", CONSTANT_UPSTREAM)
def graph_for_upstream_alone(ctx, g):
    with torch.set_grad_enabled(g.requires_grad):
        return Pieces.backward(ctx, g)


@task.mistake(
    "memory",
    "Your forward holds all of x's size twice: it takes all columns at once, or collects the pieces to join them. Your backward "
    "shows how it's done: one result, made once, and each piece written into it.",
)
class twice_in_forward(Pieces):
    @staticmethod
    def forward(x, size):
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)


@wrong.backward(
    "memory",
    "Your backward holds all of x's size twice: it takes all columns at once, or collects the pieces to join them. Your forward "
    "shows how it's done: one result, made once, and each piece written into it.",
)
def twice_in_backward(y, g):
    return y * (g - (y * g).sum(-1, keepdim=True)), None


@task.mistake(
    "memory",
    "Where size is small, your pieces have more than size columns. x.chunk(size), for one, makes size pieces, each of n / size "
    "columns; x.split(size, -1) makes pieces of size columns.",
)
class size_taken_for_count(Pieces):
    @staticmethod
    def cut(x, size):
        columns = -(-x.shape[-1] // size)
        return [slice(i, i + columns) for i in range(0, x.shape[-1], columns)]


def _widened(cls, x, size):
    """Return the softmax of halves, computed from a copy of the row in float32."""
    return Pieces.forward(x.float() if x.dtype in (HALF, BRAIN) else x, size).to(x.dtype)


def _widened_in_backward(cls, ctx, g):
    """Return the gradient of halves, computed from copies of the rows in float32."""
    (y,) = ctx.saved_tensors
    p, v = (t.float() if t.dtype in (HALF, BRAIN) else t for t in (y, g))
    d = sum(cls.part(p[..., columns], v[..., columns]) for columns in cls.cut(y, ctx.size))
    grad = torch.zeros_like(y)
    for columns in cls.cut(y, ctx.size):
        grad[..., columns] = cls.term(p[..., columns], v[..., columns], d)
    return grad, None


@task.mistake(
    "memory",
    "Forward and backward hold whole rows in a wider dtype than they came in: of halves, a copy in float32 is twice the size of "
    "x. Widen each piece for itself, inside the loop.",
)
class rows_widened(Pieces):
    forward = classmethod(_widened)
    backward = classmethod(_widened_in_backward)


@task.mistake(
    "memory",
    "Your forward holds whole rows in a wider dtype than that of x: of halves, a copy in float32 is twice the size of x. Widen "
    "each piece for itself, inside the loop.",
)
class rows_widened_in_forward(Pieces):
    forward = classmethod(_widened)


@task.mistake(
    "memory",
    "Your backward holds whole rows in a wider dtype than they came in: of halves, a copy in float32 is twice the size of x. "
    "Widen each piece for itself, inside the loop.",
)
class rows_widened_in_backward(Pieces):
    backward = classmethod(_widened_in_backward)


@task.mistake(
    "memory",
    "You keep x, and compute the softmax again in backward. The output is all that the gradient needs, and somebody holds that "
    "anyway: save it alone.",
)
class input_kept(Pieces):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.size = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        y = Pieces.forward(x, ctx.size)
        pieces = Pieces.cut(y, ctx.size)
        d = sum(Pieces.part(y[..., columns], g[..., columns]) for columns in pieces)
        grad = torch.zeros_like(y)
        for columns in pieces:
            grad[..., columns] = Pieces.term(y[..., columns], g[..., columns], d)
        return grad, None


@task.mistake(
    "memory",
    "Your forward works in x itself (sub_, exp_ or out= on its pieces, which are views): the caller's tensor is overwritten. "
    "Write piece - m, a new tensor of a piece's size.",
)
class writes_into_input(Pieces):
    @classmethod
    def forward(cls, x, size):
        m, ell = cls.state(x, size)
        y = torch.zeros_like(x)
        for place, piece in zip(y.split(size, -1), x.split(size, -1), strict=True):
            place.copy_(piece.sub_(m).exp_().div_(ell))
        return y


wrong.habits(
    caught_by="memory",
    writes_into_upstream=WRITES_INTO_UPSTREAM,
    kept_as_attribute="You keep the output as an attribute of ctx, where torch does not watch it: when it's changed in place "
    "before backward, the gradient is silently wrong. Use ctx.save_for_backward.",
    kept_outside_ctx="You keep size or the output outside ctx, on the class or in a global: a second call overwrites it before "
    "the first one's backward. An int becomes an attribute of ctx, the output goes through ctx.save_for_backward.",
)


@task.mistake(
    "memory",
    "You keep the columns of the pieces, or their number, on the class or in a global. After a second call, of a shorter row, the "
    "first one's backward leaves columns out: keep size on ctx, and cut again in backward.",
)
class columns_outside_ctx(Pieces):
    cuts: tuple[slice, ...] = ()

    @classmethod
    def forward(cls, x, size):
        columns_outside_ctx.cuts = tuple(Pieces.cut(x, size))
        return Pieces.forward(x, size)

    @classmethod
    def cut(cls, x, size):
        return columns_outside_ctx.cuts
