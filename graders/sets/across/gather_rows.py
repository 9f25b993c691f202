"""GatherRows: an all-gather of uneven parts, whose backward depends on whose loss it is."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import VALUE, WATCHED, value
from graders.judge.task import DOUBLE, DTYPES, SINGLE, Check, Draw, Task
from graders.judge.wording import CUT_OFF, WRITES_INTO_UPSTREAM, ZEROS_RETURNED
from graders.judge.wrong import Wrong
from graders.sets.across.common import (
    GRADIENT,
    INF,
    MANNERS,
    NAN,
    contract,
    handed_on,
    lets_go,
    named,
    own_copies,
    second_order,
)

PLACE = 1


def _gather_rows(x: Tensor, sizes: tuple[int, ...], shared: bool) -> Tensor:
    """Return a copy of all rows for each rank; where the loss is shared, a rank's copy moves by its own rows alone."""
    copies = []
    for reader in range(len(sizes)):
        parts = [x[rank, :n] for rank, n in enumerate(sizes)]
        copies.append(torch.cat([p.detach() if shared and r != reader else p for r, p in enumerate(parts)]))
    return torch.stack(copies)


def _padded(d: Draw, sizes: tuple[int, ...], most: int, *rest: int, dtype: torch.dtype = DOUBLE) -> Tensor:
    """Return x with nan below each rank's rows: nobody may read it."""
    x = d.normal(len(sizes), most, *rest, dtype=dtype)
    for rank, n in enumerate(sizes):
        x[rank, n:] = NAN
    return x


def _holding(x: Tensor, number: float) -> Tensor:
    """Return x with this number in each rank's first row."""
    x[:, 0, 0] = number
    return x


def _forms(d: Draw, shared: bool, order: int) -> list[Case]:
    """Return cases of every dtype, shape and layout, and of sizes of every kind."""
    uneven = (2, 1, 3)
    inputs: list[tuple[str, Tensor, tuple[int, ...]]] = [
        *((f"a {named(t)} input", d.normal(3, 3, 2, dtype=t), uneven) for t in DTYPES),
        ("numbers for rows", d.normal(3, 3), uneven),
        ("two ranks", d.normal(2, 2, 2), (2, 1)),
        ("the smaller part first", d.normal(2, 3, 2), (1, 3)),
        ("even parts", d.normal(3, 2, 2), (2, 2, 2)),
        ("a row each, as many as ranks", d.normal(3, 1, 3), (1, 1, 1)),
        ("rows that are matrices", d.normal(2, 3, 2, 2), (1, 3)),
        ("rows of four dimensions", d.normal(2, 2, 2, 1, 2, 2), (1, 2)),
        ("even parts, and room below", d.normal(3, 3, 2), (2, 2, 2)),
        ("infinite numbers in the rows", _holding(d.normal(2, 2, 2), INF), (2, 1)),
        ("nan in the rows", _holding(d.normal(2, 2, 2), NAN), (2, 1)),
        ("more room than rows", d.normal(3, 5, 2), (2, 4, 1)),
        ("one rank", d.normal(1, 3, 2), (2,)),
        ("one rank, full", d.normal(1, 2, 2), (2,)),
        ("a rank without rows", d.normal(3, 3, 2), (2, 0, 3)),
        ("a first rank without rows", d.normal(3, 2, 2), (0, 1, 2)),
        ("a last rank without rows", d.normal(2, 2, 2), (1, 0)),
        ("no rows at all", d.normal(2, 2, 2), (0, 0)),
        ("no room", d.normal(2, 0, 2), (0, 0)),
        ("no columns", d.normal(2, 2, 0), (2, 1)),
        ("four ranks", d.normal(4, 3, 2), (1, 3, 2, 1)),
        ("nan below the rows", _padded(d, uneven, 4, 2), uneven),
        ("float32, nan below the rows", _padded(d, uneven, 3, 2, dtype=SINGLE), uneven),
        ("ranks in the last dimension of memory", d.normal(3, 2, 3).permute(2, 0, 1), uneven),
        ("an expanded input", d.normal(1, 3, 2).expand(3, 3, 2), uneven),
        ("every second column", d.normal(3, 3, 4)[..., ::2], uneven),
    ]
    cases = [d.case(name, x, sizes, shared, order=order) for name, x, sizes in inputs]
    return [*cases, d.case("by keyword", d.normal(3, 3, 2), uneven, shared, keywords=("sizes", "shared"), order=order)]


def _upstreams(d: Draw, shared: bool) -> list[Case]:
    """Return cases of upstream gradients of every layout, size and kind."""
    sizes = (2, 1, 3)

    def case(name: str, upstream: Tensor | None = None) -> Case:
        return d.case(name, d.normal(3, 3, 2), sizes, shared, upstream=upstream)

    one = torch.zeros(3, 6, 2, dtype=DOUBLE)
    one[1] = d.normal(6, 2)
    first = torch.zeros(3, 6, 2, dtype=DOUBLE)
    first[0] = d.normal(6, 2)
    last = torch.zeros(3, 6, 2, dtype=DOUBLE)
    last[2] = d.normal(6, 2)
    infinite = d.normal(3, 6, 2)
    infinite[1] = INF
    return [
        case("the upstream gradients all alike", d.normal(1, 6, 2).expand(3, 6, 2)),
        case("an upstream gradient on one rank alone", one),
        case("an upstream gradient on the first rank alone", first),
        case("an upstream gradient on the last rank alone", last),
        case("a transposed upstream gradient", d.normal(2, 6, 3).permute(2, 1, 0)),
        case("every second number upstream", d.normal(3, 6, 4)[..., ::2]),
        case("upstream gradients of every size", d.scales(3, 6, 2)),
        case("one upstream number for all", d.normal(1).expand(3, 6, 2)),
        case("upstream gradients nearly alike", torch.stack([w := d.sides(6, 2), w * (1 + 4e-6), w * (1 - 3e-6)])),
        case(
            "one rank's upstream gradient far above",
            torch.stack([d.normal(6, 2), d.normal(6, 2) * 1e12, d.normal(6, 2)]),
        ),
        case("upstream gradients that cancel", torch.stack([u := d.normal(6, 2), -u, torch.zeros_like(u)])),
        case("infinite upstream gradients", torch.full((3, 6, 2), INF, dtype=DOUBLE)),
        case("one rank's upstream gradient infinite", infinite),
        case("upstream gradients of nan", torch.full((3, 6, 2), NAN, dtype=DOUBLE)),
    ]


def _silent(d: Draw) -> Tensor:
    """Return an upstream gradient of two ranks, three rows and two columns, of which the second rank's is 0."""
    upstream = d.normal(2, 3, 2)
    upstream[1] = 0
    return upstream


def _lopsided(d: Draw, shared: bool, order: int = 1) -> list[Case]:
    return d.lopsided(lambda x: (x, (2, 1), shared), 2, 2, 2, order=order)


task = Task(
    "GatherRows",
    "GatherRows.apply(x, sizes, shared)",
    reference=_gather_rows,
    checks=(
        value(
            1,
            about="every rank has all rows, in order, whatever the sizes; nothing of the padding",
            cases=lambda d: [
                *_forms(d, shared=False, order=0),
                *_forms(d, shared=True, order=0),
                *_lopsided(d, shared=False, order=0),
            ],
            looks=(*VALUE, handed_on),
        ),
        Check(
            "parts",
            1,
            about="summed losses: each row gets the sum over the ranks, the padding 0; gradcheck",
            why="Every rank has used the row, each in its own loss, and the gradient of a sum is the sum.",
            cases=lambda d: [
                *_forms(d, shared=False, order=1),
                *_upstreams(d, shared=False),
                *_lopsided(d, shared=False),
            ],
            looks=GRADIENT,
            gradcheck=lambda d: (d.normal(3, 3, 2), (2, 1, 3), False),
        ),
        Check(
            "whole",
            1,
            about="one shared loss: each rank reads its rows in its own upstream gradient",
            why="Each rank holds the whole upstream gradient already: nobody sends, and nothing is added.",
            cases=lambda d: [*_forms(d, shared=True, order=1), *_upstreams(d, shared=True), *_lopsided(d, shared=True)],
            looks=GRADIENT,
        ),
        second_order(
            1,
            about="the gradient can be differentiated again, by the upstream gradient, in both cases",
            why="A gradient penalty differentiates your backward, and so it crosses the ranks once more.",
            cases=lambda d: [
                *(
                    case
                    for shared in (False, True)
                    for case in (
                        d.case("uneven parts", d.normal(3, 3, 2), (2, 1, 3), shared, order=2),
                        d.case("a rank without rows", d.normal(3, 3, 2), (2, 0, 3), shared, order=2),
                        d.case("numbers for rows", d.normal(2, 3), (1, 3), shared, order=2),
                        d.case("one rank", d.normal(1, 3, 2), (2,), shared, order=2),
                        d.case("nothing upstream", d.normal(2, 2, 2), (2, 1), shared, order=2, upstream=_silent(d)),
                        d.case("float32", d.normal(2, 2, 2, dtype=SINGLE), (2, 1), shared, order=2),
                        *_lopsided(d, shared, order=2),
                    )
                ),
            ],
            gradcheck=lambda d: (d.normal(2, 3, 2), (1, 3), False),
        ),
        contract(
            1,
            about="what's the caller's stays untouched; no tensor is kept; each rank's copy is its own",
            cases=lambda d: [
                d.case(
                    "summed losses",
                    d.normal(3, 3, 2),
                    (2, 1, 3),
                    False,
                    watch=WATCHED,
                    between=(d.normal(3, 4, 2), (1, 3, 2), True),
                ),
                d.case(
                    "a shared loss",
                    d.normal(3, 4, 2),
                    (2, 1, 3),
                    True,
                    watch=WATCHED,
                    between=(d.normal(3, 3, 2), (3, 1, 2), False),
                ),
                d.case("even parts", d.normal(2, 2, 2), (2, 2), False, watch=("trace", "overwrite")),
                d.case(
                    "the same shape again, other sizes",
                    d.normal(3, 3, 2),
                    (2, 1, 3),
                    False,
                    watch=("state",),
                    between=(d.normal(3, 3, 2), (1, 3, 2), False),
                ),
                d.case("one rank, full, its own loss", d.normal(1, 2, 3), (2,), False, watch=("trace", "overwrite")),
                d.case("one rank, full", d.normal(1, 2, 3), (2,), True, watch=("trace", "overwrite")),
                d.case("many rows", d.normal(4, 16, 8), (16, 8, 12, 16), False, watch=("trace",)),
            ],
            looks=(*MANNERS, lets_go, own_copies, look.allowed),
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class GatherRowsNew(Function):
    """A rank at a time, its rows written into zeros: the one to write, and the one that looks like the real thing."""

    @staticmethod
    def forward(x, sizes, shared):
        rows = torch.cat([part[:n] for part, n in zip(x, sizes, strict=True)])
        return torch.stack([rows] * len(sizes))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.sizes, ctx.shared = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, g):
        whole = g if ctx.shared else g.sum(0).expand_as(g)
        grad = g.new_zeros(ctx.shape)
        start = 0
        for rank, n in enumerate(ctx.sizes):
            grad[rank, :n] = whole[rank, start : start + n]
            start += n
        return grad, None, None


@task.solution
class GatherRowsOld(Function):
    """The older form, without a write: split, fill up with zeros, stack. Short, and each step is one of torch's."""

    @staticmethod
    def forward(ctx, x, sizes, shared):
        ctx.sizes, ctx.shared, ctx.most = sizes, shared, x.shape[1]
        rows = torch.cat([x[rank, :n] for rank, n in enumerate(sizes)])
        return rows.unsqueeze(0).repeat(len(sizes), *[1] * rows.dim())

    @staticmethod
    def backward(ctx, g):
        if not ctx.shared:
            g = g.sum(0, keepdim=True).expand_as(g)
        parts = [g[rank].split(ctx.sizes)[rank] for rank in range(len(ctx.sizes))]
        room = [(0, 0) * (part.dim() - 1) + (0, ctx.most - len(part)) for part in parts]
        return torch.stack([F.pad(part, pad) for part, pad in zip(parts, room, strict=True)]), None, None


@task.solution
class GatherRowsMask(Function):
    """One mask says which rows there are, in forward and in backward: no loop, so the one for many ranks."""

    @staticmethod
    def forward(x, sizes, shared):
        there = torch.arange(x.shape[1]) < torch.tensor(sizes)[:, None]
        rows = x[there]
        return rows.expand(len(sizes), *rows.shape).clone(memory_format=torch.contiguous_format)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.sizes, ctx.shared = inputs
        ctx.most = x.shape[1]

    @staticmethod
    def backward(ctx, g):
        sizes = torch.tensor(ctx.sizes)
        there = torch.arange(ctx.most) < sizes[:, None]
        grad = g.new_zeros(*there.shape, *g.shape[2:])
        owner = torch.arange(len(sizes)).repeat_interleave(sizes)
        grad[there] = g[owner, torch.arange(len(owner))] if ctx.shared else g.sum(0)
        return grad, None, None


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class GatherRowsBuffers(GatherRowsNew):
    """Each rank puts its rows into zeros of the whole length, and the ranks are added; sums rank after rank."""

    @staticmethod
    def forward(x, sizes, shared):
        out = x.new_zeros(len(sizes), sum(sizes), *x.shape[2:])
        start = 0
        for rank, n in enumerate(sizes):
            out[:, start : start + n] += x[rank, :n]
            start += n
        return out

    @staticmethod
    def backward(ctx, g):
        total = torch.zeros_like(g[0])
        for part in g:
            total = total + part
        grads = []
        start = 0
        for rank, n in enumerate(ctx.sizes):
            mine = (g[rank] if ctx.shared else total)[start : start + n]
            grads.append(torch.cat([mine, mine.new_zeros(ctx.shape[1] - n, *ctx.shape[2:])]))
            start += n
        return torch.stack(grads), None, None


@task.solution
class GatherRowsLists(GatherRowsNew):
    """Slices added after they were cut, all of the same rank; nothing where nothing is asked."""

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None, None, None
        ends = torch.tensor(ctx.sizes).cumsum(0).tolist()
        grad = torch.zeros(ctx.shape, dtype=g.dtype)
        for rank, (end, n) in enumerate(zip(ends, ctx.sizes, strict=True)):
            start = end - n
            readers = [rank] if ctx.shared else range(len(ctx.sizes))
            grad[rank, : end - start] = torch.stack([g[reader, start:end] for reader in readers]).sum(0)
        return grad, None, None


@task.solution
class GatherRowsRepeated(GatherRowsNew):
    """The copies side by side, seen as one for each rank; an index of rows for backward."""

    @staticmethod
    def forward(x, sizes, shared):
        rows = torch.cat([part[:n] for part, n in zip(x, sizes, strict=True)])
        return rows.repeat(len(sizes), *[1] * (rows.dim() - 1)).view(len(sizes), *rows.shape)

    @staticmethod
    def backward(ctx, g):
        places = [rank * ctx.shape[1] + i for rank, n in enumerate(ctx.sizes) for i in range(n)]
        owner = [rank for rank, n in enumerate(ctx.sizes) for _ in range(n)]
        rows = g[owner, torch.arange(len(owner))] if ctx.shared else g.sum(0)
        flat = g.new_zeros(ctx.shape[0] * ctx.shape[1], *ctx.shape[2:])
        return flat.index_add(0, torch.tensor(places, dtype=torch.long), rows).reshape(ctx.shape), None, None


# --- Mistakes ---------------------------------------------------------------------------------------------------------


def _rows(x: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return all rows, one rank's below the other's."""
    return torch.cat([part[:n] for part, n in zip(x, sizes, strict=True)])


def _placed(ctx: object, slices: object) -> tuple[Tensor, None, None]:
    """Return the gradient with these slices, a rank each, above zeros."""
    parts = [*slices]  # type: ignore[misc]
    grad = parts[0].new_zeros(ctx.shape)  # type: ignore[attr-defined]
    for rank, part in enumerate(parts):
        grad[rank, : len(part)] = part
    return grad, None, None


def _own(ctx: object, g: Tensor) -> list[Tensor]:
    """Return for each rank its slice of its own upstream gradient."""
    return [v.split(ctx.sizes)[rank] for rank, v in enumerate(g)]  # type: ignore[attr-defined]


def _summed(ctx: object, g: Tensor) -> list[Tensor]:
    """Return for each rank its slice of the sum."""
    return [*g.sum(0).split(ctx.sizes)]  # type: ignore[attr-defined]


def _right(ctx: object, g: Tensor) -> list[Tensor]:
    """Return for each rank what is right."""
    return _own(ctx, g) if ctx.shared else _summed(ctx, g)  # type: ignore[attr-defined]


wrong = Wrong(task, of=GatherRowsNew)


@wrong.backward(
    "parts",
    "With summed losses each rank takes its slice of its own upstream gradient, and nobody adds. All ranks have used the row, "
    "so add their gradients first: that slice is right for a shared loss alone.",
)
def slice_not_added(ctx, g):
    return _placed(ctx, _own(ctx, g))


@wrong.backward(
    "whole",
    "You add the ranks' upstream gradients also where the loss is shared. There each of them is the whole gradient, so the sum "
    "is too large by the number of ranks: take the slice of the rank's own g.",
)
def copies_added(ctx, g):
    return _placed(ctx, _summed(ctx, g))


@wrong.backward(
    "parts",
    "The two cases are exchanged: you add where the loss is shared, and take the rank's own slice where the losses are summed.",
)
def cases_exchanged(ctx, g):
    return _placed(ctx, _summed(ctx, g) if ctx.shared else _own(ctx, g))


@wrong.backward(
    "parts",
    "You cut the upstream gradient into equal parts (chunk, or a reshape). The parts are as long as sizes says: start where "
    "the ranks before end, or split(sizes).",
)
def equal_parts(ctx, g):
    whole = g if ctx.shared else g.sum(0).expand_as(g)
    ranks = len(ctx.sizes)
    each = -(-g.shape[1] // ranks)
    grad = g.new_zeros(ctx.shape)
    for rank, n in enumerate(ctx.sizes):
        part = whole[rank, rank * each : (rank + 1) * each][:n]
        grad[rank, : len(part)] = part
    return grad, None, None


@wrong.backward(
    "parts",
    "You let rank r's slice begin at r times the room, as if no rank had padding. It begins where the rows of the ranks before "
    "it end: at the sum of their sizes.",
)
def starts_by_room(ctx, g):
    whole = g if ctx.shared else g.sum(0).expand_as(g)
    starts = [rank * ctx.shape[1] for rank in range(len(ctx.sizes))]
    grad = g.new_zeros(ctx.shape)
    for rank, (start, n) in enumerate(zip(starts, ctx.sizes, strict=True)):
        part = whole[rank, start : start + n]
        grad[rank, : len(part)] = part
    return grad, None, None


@wrong.backward(
    "contract",
    "You add the upstream gradients into g[0] (total = g[0], then +=). g[0] is a view of the caller's tensor, which now holds the "
    "sum: begin with zeros, or take g.sum(0).",
)
def sum_written_into_g(ctx, g):
    if ctx.shared:
        return _placed(ctx, _own(ctx, g))
    total = g[0]
    for v in g[1:]:
        total += v
    return _placed(ctx, total.split(ctx.sizes))


@wrong.forward(
    "value",
    "You gather the padding too: all of x, its room included. Of rank r only the first sizes[r] rows are there.",
)
def padding_gathered(x, sizes, shared):
    return torch.stack([x.flatten(0, 1)] * len(sizes))


@task.mistake(
    "value",
    "Your output is one copy of all rows. After an all-gather every rank has them: an output of shape (ranks, rows, ...).",
)
class one_copy(GatherRowsNew):
    @staticmethod
    def forward(x, sizes, shared):
        return _rows(x, sizes)

    @staticmethod
    def backward(ctx, g):
        return _placed(ctx, g.split(ctx.sizes))


@wrong.forward(
    "contract",
    "Your output is expanded: the ranks' copies are one memory, and whoever writes into one writes into all, or torch refuses. "
    "Each rank gets a copy of its own: stack, repeat, or clone after expand.",
)
def copies_are_one_memory(x, sizes, shared):
    rows = _rows(x, sizes)
    return rows.expand(len(sizes), *rows.shape)


@wrong.backward(
    "parts",
    "Below a rank's rows your gradient is not 0: you take as many rows as there is room for, and the extra ones are the next rank's. "
    "Rank r's slice has sizes[r] rows, and zeros come below.",
)
def neighbours_in_the_padding(ctx, g):
    whole = g if ctx.shared else g.sum(0).expand_as(g)
    grad = g.new_zeros(ctx.shape)
    start = 0
    for rank, n in enumerate(ctx.sizes):
        part = whole[rank, start : start + ctx.shape[1]]
        grad[rank, : len(part)] = part
        start += n
    return grad, None, None


@wrong.backward(
    "parts",
    "With summed losses you multiply the rank's own slice by the number of ranks. That's the sum where all ranks send the same, "
    "and they don't: add what each of them sends.",
)
def times_the_number_of_ranks(ctx, g):
    own = _own(ctx, g)
    return _placed(ctx, own if ctx.shared else [part * len(own) for part in own])


@wrong.backward(
    "parts",
    "You take the mean over the ranks. Losses that are summed have summed gradients: nobody divides.",
)
def averaged(ctx, g):
    return _placed(ctx, _own(ctx, g) if ctx.shared else g.mean(0).split(ctx.sizes))


@wrong.backward(
    "parts",
    "With summed losses you read the upstream gradient of one rank alone, g[0]. The others have used the rows too: add over the ranks.",
)
def first_rank_alone(ctx, g):
    return _placed(ctx, _own(ctx, g) if ctx.shared else g[0].split(ctx.sizes))


@wrong.backward(
    "parts",
    "You leave a rank's own upstream gradient out of the sum. Its loss has used its rows as well: add over all ranks.",
)
def own_left_out(ctx, g):
    parts = [s - o for s, o in zip(_summed(ctx, g), _own(ctx, g), strict=True)]
    return _placed(ctx, _own(ctx, g) if ctx.shared else parts)


@wrong.backward(
    "parts",
    "Each rank takes its own slice first, and then you add up slices of different rows. Add the whole upstream "
    "gradients, and then cut.",
)
def cut_before_adding(ctx, g):
    own = _own(ctx, g)
    if ctx.shared:
        return _placed(ctx, own)
    most = max(ctx.sizes)
    filled = [torch.cat([part, part.new_zeros(most - len(part), *part.shape[1:])]) for part in own]
    total = torch.stack(filled).sum(0)
    return _placed(ctx, [total[:n] for n in ctx.sizes])


@wrong.backward(
    "parts",
    "Your slices begin where they should end: the cumulative sum counts a rank's own rows too. Rank r's slice begins after the "
    "rows of the ranks before it.",
)
def starts_after_own(ctx, g):
    whole = g if ctx.shared else g.sum(0).expand_as(g)
    ends = torch.tensor(ctx.sizes).cumsum(0).tolist()
    grad = g.new_zeros(ctx.shape)
    for rank, (end, n) in enumerate(zip(ends, ctx.sizes, strict=True)):
        part = whole[rank, end : end + n]
        grad[rank, : len(part)] = part
    return grad, None, None


@wrong.backward(
    "parts",
    "You let rank r's slice begin at r * sizes[r], which holds for even parts alone. It begins after the rows of all ranks before "
    "it: at the sum of their sizes.",
)
def starts_by_own_size(ctx, g):
    whole = g if ctx.shared else g.sum(0).expand_as(g)
    grad = g.new_zeros(ctx.shape)
    for rank, n in enumerate(ctx.sizes):
        part = whole[rank, rank * n : (rank + 1) * n]
        grad[rank, : len(part)] = part
    return grad, None, None


@wrong.backward(
    "parts",
    "Your start is set to the size of the rank before, and not moved on by it (start = n in place of start += n): from the third rank "
    "on the slice is another's.",
)
def start_is_the_last_size(ctx, g):
    whole = g if ctx.shared else g.sum(0).expand_as(g)
    grad = g.new_zeros(ctx.shape)
    start = 0
    for rank, n in enumerate(ctx.sizes):
        part = whole[rank, start : start + n]
        grad[rank, : len(part)] = part
        start = n
    return grad, None, None


@wrong.backward(
    "parts",
    "Every rank gets the slice of rank 0: your start is never moved on. Rank r's slice begins after the rows of the ranks "
    "before it.",
)
def start_not_moved(ctx, g):
    whole = g if ctx.shared else g.sum(0).expand_as(g)
    return _placed(ctx, [whole[rank, :n] for rank, n in enumerate(ctx.sizes)])


@wrong.backward(
    "parts",
    "The slices are given out from the end: the last rank's rows go to rank 0. They lie in the order in which forward put them.",
)
def ranks_reversed(ctx, g):
    whole = g if ctx.shared else g.sum(0).expand_as(g)
    grad = g.new_zeros(ctx.shape)
    end = g.shape[1]
    for rank, n in enumerate(ctx.sizes):
        grad[rank, :n] = whole[rank, end - n : end]
        end -= n
    return grad, None, None


@wrong.backward(
    "parts",
    "Your gradient has room for the longest part, max(sizes). x may have more: make it of x's own shape.",
)
def room_of_the_longest(ctx, g):
    parts = _right(ctx, g)
    grad = g.new_zeros(len(parts), max(ctx.sizes), *g.shape[2:])
    for rank, part in enumerate(parts):
        grad[rank, : len(part)] = part
    return grad, None, None


@wrong.backward(
    "parts",
    "Your gradient has all rows one below another, without the ranks. It needs the shape of x, (ranks, room, ...): each rank's slice, and "
    "zeros below it.",
)
def gradient_not_cut(ctx, g):
    return torch.cat(_right(ctx, g)), None, None


@wrong.backward(
    "whole",
    "With a shared loss you read all ranks' rows in g[0]. The numbers would be the same on every rank, but rank r doesn't have "
    "g[0], and sending it is what this case saves: read g[r].",
)
def all_from_rank_0(ctx, g):
    return _placed(ctx, g[0].split(ctx.sizes) if ctx.shared else _summed(ctx, g))


@wrong.backward(
    "whole",
    "With a shared loss you take the mean over the ranks' copies. If they are equal, that is any of them, after an all-reduce "
    "for nothing: rank r reads its own g[r].",
)
def copies_averaged(ctx, g):
    return _placed(ctx, g.mean(0).split(ctx.sizes) if ctx.shared else _summed(ctx, g))


@wrong.backward(
    "whole",
    "With a shared loss you divide by the number of ranks. Each rank's upstream gradient is the whole one, and nobody has added "
    "the copies: pass the rank's own slice on as it is.",
)
def divided_where_shared(ctx, g):
    parts = _right(ctx, g)
    return _placed(ctx, [part / len(parts) for part in parts] if ctx.shared else parts)


@wrong.backward(
    "whole",
    "With a shared loss you multiply by the number of ranks, which is what adding equal copies comes to. Each rank has the whole "
    "upstream gradient: pass its slice on as it is.",
)
def multiplied_where_shared(ctx, g):
    parts = _right(ctx, g)
    return _placed(ctx, [part * len(parts) for part in parts] if ctx.shared else parts)


@wrong.backward(
    "whole",
    "With a shared loss rank 0 alone gets a gradient. The loss is one, but each rank has the whole upstream gradient, and its own "
    "rows learn from it.",
)
def only_rank_0_where_shared(ctx, g):
    parts = _right(ctx, g)
    return _placed(ctx, [parts[0], *(0 * part for part in parts[1:])] if ctx.shared else parts)


@wrong.backward(
    "whole",
    "With a shared loss no gradient comes back. Nobody needs to send anything, but each rank passes its slice of its own g on.",
)
def nothing_where_shared(ctx, g):
    return _placed(ctx, [0 * part for part in _right(ctx, g)] if ctx.shared else _summed(ctx, g))


@wrong.forward(
    "value",
    "Your rows come in the order of their numbers: the first of every rank, then the second. Asked for are all rows of rank 0, then "
    "those of rank 1.",
)
def rows_interleaved(x, sizes, shared):
    rows = [x[rank, i] for i in range(x.shape[1]) for rank, n in enumerate(sizes) if i < n]
    rows = torch.stack(rows) if rows else x[0, :0]
    return torch.stack([rows] * len(sizes))


@wrong.forward(
    "value",
    "Only rank 0 gets the rows, the others zeros: that's a gather to one rank. After an all-gather every rank has all of them.",
)
def rank_0_alone_gets_them(x, sizes, shared):
    rows = _rows(x, sizes)
    out = rows.new_zeros(len(sizes), *rows.shape)
    out[0] = rows
    return out


@wrong.forward(
    "value",
    "You take as many rows of each rank as rank 0 has. sizes has a number for every rank.",
)
def sizes_of_rank_0(x, sizes, shared):
    rows = x[:, : sizes[0]].flatten(0, 1)
    return torch.stack([rows] * len(sizes))


@wrong.forward(
    "value",
    "You add each rank's rows to those of the others, which is an all-reduce. They should stand one below another: torch.cat.",
)
def added_instead(x, sizes, shared):
    rows = torch.stack(
        [
            torch.where((torch.arange(x.shape[1]) < n).reshape(-1, *[1] * (x.dim() - 2)), part, 0)
            for part, n in zip(x, sizes, strict=True)
        ]
    )
    return torch.stack([rows.sum(0)] * len(sizes))


@wrong.forward(
    "value",
    "The padding is multiplied by 0, by a mask or in a matrix product with one. It may hold anything, and nan times 0 is nan: "
    "choose the rows by slices, or by indexing with the mask.",
)
def padding_times_0(x, sizes, shared):
    total = sum(sizes)
    choose = x.new_zeros(total, len(sizes) * x.shape[1])
    places = [rank * x.shape[1] + i for rank, n in enumerate(sizes) for i in range(n)]
    choose[torch.arange(total), torch.tensor(places, dtype=torch.long)] = 1
    flat = x.reshape(len(sizes) * x.shape[1], -1) if x.numel() else x.new_zeros(len(sizes) * x.shape[1], 0)
    rows = (choose @ flat).reshape(total, *x.shape[2:])
    return torch.stack([rows] * len(sizes))


@wrong.forward(
    "value",
    "Your output is float32 whatever x is: you convert x, or your buffer for the rows is made without a dtype. Make it with "
    "x.new_empty, or with dtype=x.dtype.",
)
def buffer_in_float32(x, sizes, shared):
    out = torch.zeros(len(sizes), sum(sizes), *x.shape[2:])
    start = 0
    for part, n in zip(x, sizes, strict=True):
        out[:, start : start + n] = part[:n]
        start += n
    return out


@wrong.backward(
    "parts",
    "Your buffer for the gradient is made without a dtype, so it is float32, and the digits of float64 are lost in it. Make it "
    "with g.new_zeros, or with dtype=g.dtype.",
)
def gradient_in_float32(ctx, g):
    grad = torch.zeros(ctx.shape)
    for rank, part in enumerate(_right(ctx, g)):
        grad[rank, : len(part)] = part
    return grad, None, None


@wrong.forward(
    "value",
    "You leave ranks without rows out, and where none has any, torch.cat gets an empty list and raises. Their slices of no rows "
    "may stay in: torch.cat takes them.",
)
def nobody_has_rows(x, sizes, shared):
    rows = torch.cat([part[:n] for part, n in zip(x, sizes, strict=True) if n])
    return torch.stack([rows] * len(sizes))


@wrong.forward(
    "value",
    "Your forward takes the shape of x apart into three numbers, or writes out three dimensions. After the room there may be any "
    "number of them, also none: x.shape[2:] has them all.",
)
def three_dimensions_only(x, sizes, shared):
    ranks, _, columns = x.shape
    rows = _rows(x, sizes)
    return rows.expand(ranks, len(rows), columns).clone()


@wrong.forward(
    "contract",
    "Your forward writes zeros into the padding of x. x is the caller's, padding and all: leave it, nobody reads it.",
)
def padding_cleared(x, sizes, shared):
    for rank, n in enumerate(sizes):
        x[rank, n:] = 0
    return torch.stack([_rows(x, sizes)] * len(sizes))


wrong.habits("float32_and_back", not_differentiable_twice=CUT_OFF)
wrong.habits(
    "nothing_returned no_function",
    caught_by="parts",
    sign_flipped="Your gradient has the wrong sign: a gather copies, and a copy passes the upstream gradient on as it is.",
    upstream_ignored="Your gradient counts the ranks that read a row, as if each sent 1 back: cut and add the upstream gradients "
    "themselves.",
    none_forgotten="Your backward returns one gradient. forward has three arguments, so torch wants three: None for sizes and "
    "for shared.",
    one_too_many="Your backward returns four gradients; forward has three arguments, and torch wants one for each.",
    view_needed="Your backward uses view, which refuses an upstream gradient that isn't contiguous in memory. reshape, flatten and "
    "slices take any.",
)


@wrong.forward(
    "value",
    "You take the last sizes[r] rows of each rank. Its rows come first, with the padding below: x[r, :sizes[r]].",
)
def rows_from_the_end(x, sizes, shared):
    rows = torch.cat([part[len(part) - n :] for part, n in zip(x, sizes, strict=True)])
    return torch.stack([rows] * len(sizes))


@wrong.forward(
    "value",
    "Each rank gets its own rows first, and then those of the ranks after it. The order is one for all: rank 0's rows, then "
    "rank 1's.",
)
def own_rows_first(x, sizes, shared):
    parts = [part[:n] for part, n in zip(x, sizes, strict=True)]
    return torch.stack([torch.cat(parts[rank:] + parts[:rank]) for rank in range(len(parts))])


@task.mistake(
    "value",
    "Where the loss is shared your output is one copy of all rows. Forward is the same for both: each rank has its copy, in an "
    "output of shape (ranks, rows, ...).",
)
class one_copy_where_shared(GatherRowsNew):
    @staticmethod
    def forward(x, sizes, shared):
        return _rows(x, sizes) if shared else GatherRowsNew.forward(x, sizes, shared)

    @staticmethod
    def backward(ctx, g):
        return _placed(ctx, (g if ctx.shared else g.sum(0)).split(ctx.sizes))


@wrong.forward(
    "value",
    "You replace what isn't finite (nan_to_num, where) so that the padding does no harm, and the rows may hold nan and inf too. Leave "
    "the numbers alone: sizes says which rows there are.",
)
def rows_made_finite(x, sizes, shared):
    return torch.stack([_rows(torch.where(x.isfinite(), x, 0), sizes)] * len(sizes))


@wrong.forward(
    "value",
    "You call nan_to_num so that the padding does no harm, and the rows may hold nan and inf too. Leave the numbers alone: sizes says "
    "which rows there are.",
)
def nan_to_num_called(x, sizes, shared):
    return torch.stack([_rows(x.nan_to_num(), sizes)] * len(sizes))


@wrong.forward(
    "value",
    "You take rows of zeros for padding and drop them. A row may be 0, and padding anything: sizes says which rows there are.",
)
def rows_of_zeros_dropped(x, sizes, shared):
    rows = _rows(x, sizes)
    rows = rows[(rows.reshape(*rows.shape[:1], rows[:1].numel()) != 0).any(1)] if len(rows) else rows
    return torch.stack([rows] * len(sizes))


@wrong.forward(
    "value",
    "You repeat the rows by repeat(ranks, 1), which fits rows that are numbers. With more dimensions the copies come one below "
    "another, or torch raises: stack them, or unsqueeze(0) first and repeat that dimension alone.",
)
def repeated_along_the_rows(x, sizes, shared):
    return _rows(x, sizes).repeat(len(sizes), 1)


@wrong.forward(
    "value",
    "Your forward uses view on x, which refuses an x that isn't contiguous in memory. reshape, flatten and slices take any.",
)
def view_of_x_needed(x, sizes, shared):
    ranks, room = x.shape[:2]
    places = [rank * room + i for rank, n in enumerate(sizes) for i in range(n)]
    return torch.stack([x.view(ranks * room, *x.shape[2:])[torch.tensor(places, dtype=torch.long)]] * ranks)


@wrong.backward(
    "parts",
    "Your backward uses view on the upstream gradient, rank by rank, which refuses one whose ranks aren't contiguous in memory. "
    "reshape, flatten and slices take any.",
)
def view_by_ranks_needed(ctx, g):
    return _placed(ctx, _right(ctx, g.view(len(g), g.numel() // len(g)).reshape(g.shape)))


@wrong.backward(
    "parts",
    "Your backward splits, or pads, along the last dimension, which is that of the rows only where a row is a number. Split along "
    "dimension 1; F.pad begins with the last dimension, so it needs (0, 0) for each of those after the rows.",
)
def last_dimension(ctx, g):
    pieces = [part[rank] if ctx.shared else part.sum(0) for rank, part in enumerate(g.split(ctx.sizes, -1))]
    return torch.stack([F.pad(part, (0, ctx.shape[1] - part.shape[-1])) for part in pieces]), None, None


@wrong.backward(
    "parts",
    "You leave ranks without rows out of the sum. They have no rows of their own, and a loss all the same, which has used those of "
    "the others: add over all ranks.",
)
def losses_without_rows_left_out(ctx, g):
    there = [rank for rank, n in enumerate(ctx.sizes) if n]
    return _placed(ctx, _own(ctx, g) if ctx.shared else g[there].sum(0).split(ctx.sizes))


@wrong.backward(
    "parts",
    "You drop the zeros from sizes and count the ranks anew: after a rank without rows each part goes to the rank before. Keep "
    "them, a slice of no rows does no harm.",
)
def empty_ranks_dropped(ctx, g):
    whole = g if ctx.shared else g.sum(0).expand_as(g)
    grad = g.new_zeros(ctx.shape)
    start = 0
    for rank, n in enumerate(n for n in ctx.sizes if n):
        grad[rank, :n] = whole[rank, start : start + n]
        start += n
    return grad, None, None


@wrong.backward(
    "parts",
    "Where no rank has rows your backward returns None for x. There is an x, and its gradient is 0: zeros in its shape.",
)
def none_where_nobody_has_rows(ctx, g):
    return _placed(ctx, _right(ctx, g)) if g.numel() else (None, None, None)


@wrong.backward(
    "parts",
    "You put each rank's slice at the end of its room, below the zeros. Its rows come first, and the padding below them.",
)
def slice_below_the_zeros(ctx, g):
    grad = g.new_zeros(ctx.shape)
    for rank, part in enumerate(_right(ctx, g)):
        grad[rank, ctx.shape[1] - len(part) :] = part
    return grad, None, None


@wrong.backward(
    "parts",
    "Below a rank's rows your gradient repeats that of its last row: an index that is bent into the range (clamp, or min) reads a row "
    "that is there. Blank the padding by torch.where.",
)
def last_row_in_the_padding(ctx, g):
    grad = g.new_zeros(ctx.shape)
    whole = g if ctx.shared else g.sum(0).expand_as(g)
    start = 0
    for rank, n in enumerate(ctx.sizes):
        places = (start + torch.arange(ctx.shape[1])).clamp(max=max(start + n - 1, 0))
        grad[rank] = whole[rank, places] if g.shape[1] else 0
        start += n
    return grad, None, None


@wrong.backward(
    "parts",
    "You blank the padding by multiplying with 0. Where the upstream gradient is inf or nan, that is nan, and the padding's gradient "
    "is 0 all the same: write the rows into zeros, or choose by torch.where.",
)
def padding_blanked_by_a_product(ctx, g):
    if not g.shape[1]:
        return g.new_zeros(ctx.shape), None, None
    sizes, i = torch.tensor(ctx.sizes), torch.arange(ctx.shape[1])
    places = ((sizes.cumsum(0) - sizes)[:, None] + i).clamp(max=g.shape[1] - 1)
    picked = g[torch.arange(len(sizes))[:, None], places] if ctx.shared else g.sum(0)[places]
    there = (i < sizes[:, None]).to(g.dtype)
    return picked * there.reshape(*there.shape, *[1] * (g.dim() - 2)), None, None


@wrong.backward(
    "whole",
    "With a shared loss you multiply the other ranks' rows by 0 and add. Where a rank's upstream gradient is inf or nan, that is nan "
    "for all: rank r reads its own g[r], and nothing is added.",
)
def others_blanked_by_a_product(ctx, g):
    if not ctx.shared:
        return _placed(ctx, _summed(ctx, g))
    ends = torch.tensor(ctx.sizes).cumsum(0)[:, None]
    starts, i = ends - torch.tensor(ctx.sizes)[:, None], torch.arange(g.shape[1])
    own = ((starts <= i) & (i < ends)).to(g.dtype)
    return _placed(ctx, (g * own.reshape(*own.shape, *[1] * (g.dim() - 2))).sum(0).split(ctx.sizes))


@wrong.backward(
    "parts",
    "Your backward lets torch.autograd differentiate a gather. The task is to write the gradient, from tensors.",
)
def autograd_in_backward(ctx, g):
    with torch.enable_grad():
        x = g.new_zeros(ctx.shape).requires_grad_()
        return torch.autograd.grad(_gather_rows(x, ctx.sizes, ctx.shared), x, g, create_graph=True)[0], None, None


class _Sent(Function):
    """What is right of an upstream gradient; its own gradient comes from all copies of a gather, also where shared."""

    @staticmethod
    def forward(ctx, g, of):
        ctx.sizes = of.sizes
        return _placed(of, _right(of, g))[0]

    @staticmethod
    def backward(ctx, v):
        return GatherRowsNew.apply(v, ctx.sizes, False), None


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is wrong where the loss is shared: you gather there for all ranks. The gradient has "
    "rank r's rows from g[r] alone, so only those places of g[r] get something back.",
)
def second_gathered_where_shared(ctx, g):
    return _Sent.apply(g, ctx), None, None


@wrong.forward(
    "contract",
    "Where no rank has padding you take a shorter way, and its output is expanded: the copies are one memory. Each rank gets a copy of "
    "its own there too: stack, repeat, or clone after expand.",
)
def full_copies_are_one_memory(x, sizes, shared):
    rows = _rows(x, sizes)
    if all(n == x.shape[1] for n in sizes):
        return rows.expand(len(sizes), *rows.shape)
    return torch.stack([rows] * len(sizes))


@wrong.forward(
    "contract",
    "With one rank your output is x, or a view of it: whoever changes one changes the other. That rank gets a copy too (clone, cat, "
    "stack).",
)
def one_rank_gets_x(x, sizes, shared):
    return x[:, : sizes[0]] if len(sizes) == 1 else torch.stack([_rows(x, sizes)] * len(sizes))


wrong.habits(
    kept_outside_ctx="You keep sizes, shared or the shape outside ctx (on the class, or in a global): a second call overwrites them "
    "before the first one's backward. Each call has a ctx of its own.",
)


@wrong.backward("parts", ZEROS_RETURNED)
def zeros_returned(ctx, g):
    return g.new_zeros(ctx.shape), None, None


@wrong.backward(
    "second_order",
    "Where the losses are summed your gradient is cut off from the graph, by detach or .data on the upstream gradient: torch "
    "would not know that the sum crossed the ranks. Leave that out.",
)
def sum_detached(ctx, g):
    return _placed(ctx, _own(ctx, g) if ctx.shared else g.detach().sum(0).split(ctx.sizes))


@wrong.backward(
    "second_order",
    "With a shared loss your gradient is cut off from the graph, by detach, .data or no_grad. Nothing crosses the ranks there, and yet it "
    "depends on the upstream gradient: leave that out.",
)
def slice_detached(ctx, g):
    return _placed(ctx, _own(ctx, g.detach()) if ctx.shared else _summed(ctx, g))


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def sum_written_into_all(ctx, g):
    if not ctx.shared and len(g) > 1:
        g.copy_(g.sum(0).expand_as(g))
    return _placed(ctx, _own(ctx, g))


@task.mistake(
    "contract",
    "You save x for its shape, and with it all of its memory stays until backward. A shape is no tensor: ctx.shape = x.shape.",
)
class input_saved(GatherRowsNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.sizes, ctx.shared = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        grad = torch.zeros_like(x)
        for rank, part in enumerate(_right(ctx, g)):
            grad[rank, : len(part)] = part
        return grad, None, None


@task.mistake(
    "contract",
    "You keep x as an attribute of ctx, and with it all of its memory until backward. Its shape is enough, and that's no tensor.",
)
class input_as_attribute(GatherRowsNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.sizes, ctx.shared = inputs
        ctx.shape = ctx.x.shape


@task.mistake(
    "contract",
    "You keep a tensor for backward beside ctx's numbers, small as it may be: a mask, an index, the sizes. It costs memory on every "
    "rank. Keep sizes as the tuple it is, and make the rest of it in backward.",
)
class mask_kept(GatherRowsNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        GatherRowsNew.setup_context(ctx, inputs, output)
        x, sizes, _ = inputs
        ctx.save_for_backward(torch.arange(x.shape[1]) < torch.tensor(sizes)[:, None])

    @staticmethod
    def backward(ctx, g):
        (there,) = ctx.saved_tensors
        grad = g.new_zeros(ctx.shape)
        grad[there] = torch.cat(_right(ctx, g))
        return grad, None, None
