"""FlashAttention: attention in tiles, causal or not, and its backward from one number a row."""

import math
from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.aspects import GRADIENT, VALUE, contract, gradient, value
from graders.judge.looks import Finding
from graders.judge.outside import Outside
from graders.judge.task import BRAIN, DOUBLE, DTYPES, SINGLE, Check, Draw, Task
from graders.sets.flash_attention.common import (
    DENIED,
    FORBIDS,
    MANY,
    alike,
    attention,
    exact,
    far_above,
    far_below,
    far_in_half,
    forward_only,
    heavy,
    in_pairs,
    keeps_lse_alone,
    largest,
    layouts,
    lopsided,
    many_keys,
    many_large,
    many_small,
    nearly_opposite,
    no_matrix,
    opposed,
    peak,
    qkv,
    towards,
    whole_numbers,
)

PLACE = 2
LONG = 1024  # so many queries and keys: their square of numbers stands out in a process's memory

BOTH = (*VALUE[:5], look.function, look.precise, look.value, look.gradient)
# far out a row is nearly one key's whatever the mistake, and looks as if it had lost digits
FAR_BOTH = (*BOTH[:6], look.value, look.gradient, look.precise)
# what is changed in place comes before the numbers that it spoils
CONTRACT = (*GRADIENT[:4], look.untouched, *GRADIENT[4:], look.stateless, look.guarded)


def unless_causal(look: look.Look) -> look.Look:
    """Return the look, but for causal cases: for checks that are about something else."""

    def unless_causal(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
        return None if case.args[3] else look(call, case, yours, expected)

    return unless_causal


def _many_queries() -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """Return a first query that sends back as much as dozens of others, each of which a sum in bfloat16 would lose."""
    q, k, v, g = (torch.zeros(n, 2, dtype=DOUBLE) for n in (MANY, 2, 2, MANY))
    q[:, 0], v[0, 0], v[1, 0] = 1.0, 0.75, -0.75
    g[0, 0], g[1:, 0] = 8.0, 0.015
    return tuple(t.to(BRAIN) for t in (q, k, v)), g.to(BRAIN)


def _shared() -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """Return values near 256: in bfloat16 neither dP nor D has a place for what they differ by."""
    q, g = torch.zeros(2, 2), torch.ones(2, 2)
    k, v = torch.tensor([[1.0, 1.0], [0.0, -1.0]]), torch.tensor([[256.0, 3.0], [256.0, -1.0]])
    return tuple(t.to(BRAIN) for t in (q, k, v)), g.to(BRAIN)


def _large_gradients() -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """Return what sends 40000 back to q: twice as much, before the scale of 1 / 2, is beyond what float16 holds."""
    signs = torch.tensor([[1.0], [-1.0]])
    q, k, v = torch.zeros(2, 4), 250 * signs.expand(2, 4), 320 * signs
    return tuple(t.half() for t in (q, k, v)), torch.ones(2, 1).half()


def _subsets(d: Draw) -> Iterator[Case]:
    """Return cases in which one or two of q, k and v require a gradient."""
    for flags in list(product((True, False), repeat=3))[1:-1]:
        wanted = " and ".join(n for n, f in zip("qkv", flags, strict=True) if f)
        yield d.case(
            f"a gradient for {wanted} alone", *qkv(d, 3, 4), False, 3, 4, requires=(*flags, False, False, False)
        )


def _far_both(d: Draw) -> list[Case]:
    """Return large scores of every kind, backward too, and sums of many terms in bfloat16."""
    q, k, v = qkv(d, 4, 5)
    rising = torch.arange(5.0, dtype=DOUBLE) * 800
    near = alike(d)
    near[2].mul_(0.25)  # so that the rounding of o counts for little in D
    keys, g_keys = many_keys()
    queries, g_queries = _many_queries()
    shared, g_shared = _shared()
    large, g_large = _large_gradients()
    return [
        d.case("scores x 20", 20 * q, k, v, False, 3, 2),
        d.case("scores x 1000, causal", 1000 * q, k[:4], v[:4], True, 3, 2),
        d.case("scores that rise by 800 from key to key, causal", *towards(d, rising, 5), True, 2, 2),
        d.case("scores that fall by 800 from key to key", *towards(d, -rising), False, 2, 2),
        d.case("queries whose scores are near -3000, beside one near 3000", *opposed(d), False, 4, 3),
        forward_only(d, "scores near -131072, causal", exact(d), True, 3, 2),
        d.case("float16, products above 65504", *far_in_half(d), False, 2, 2),
        d.case("bfloat16, scores near 90", *near, False, 3, 4),
        forward_only(d, "bfloat16, products that cancel", nearly_opposite(d), False, 3, 4),
        forward_only(d, "float16, 40 values of 2000", heavy(), False, 1, 20),
        d.case("bfloat16, 32 keys", *keys, False, 2, 1, upstream=g_keys),
        d.case("bfloat16, 32 queries", *queries, False, 2, 2, upstream=g_queries),
        d.case("one key, and 50 whose scores are 20 below and whose values are large", *many_small(d), False, 2, 8),
        d.case("large values that cancel", *in_pairs(d), False, 2, 1),
        forward_only(d, "one query whose largest score is far above the others'", far_above(d), False, 4, 3),
        forward_only(d, "bfloat16, scores 40 below one, with large values", far_below(d), False, 2, 4),
        forward_only(d, "float16, 8 values of 30000", many_large(), False, 2, 4),
        d.case("bfloat16, values near 256", *shared, False, 2, 2, upstream=g_shared),
        d.case("float16, gradients near 40000", *large, False, 2, 2, upstream=g_large),
    ]


task = Task(
    "FlashAttention",
    "FlashAttention.apply(q, k, v, causal, block_q, block_k)",
    reference=attention,
    checks=(
        value(
            2,
            about="not causal, the output equals torch's, for all lengths, blocks, shapes and dtypes",
            cases=lambda d: [
                *(forward_only(d, f"{str(t)[6:]} input", qkv(d, 4, 7, dtype=t), False, 3, 2) for t in DTYPES),
                forward_only(d, "more queries than keys", qkv(d, 7, 4), False, 2, 3),
                forward_only(d, "blocks that divide the lengths, two heads", qkv(d, 4, 6, lead=(2,)), False, 2, 3),
                forward_only(d, "blocks of 1, equal lengths", qkv(d, 3, 3, 2, 3), False, 1, 1),
                forward_only(d, "blocks above the lengths", qkv(d, 3, 5, 2, 2, lead=(1, 2)), False, 7, 9),
                forward_only(d, "a batch of heads, not contiguous", layouts(d), False, 3, 2),
                forward_only(d, "v of every size", (*qkv(d, 2, 5)[:2], d.scales(5, 2)), False, 1, 3),
                *lopsided(d, False, 1, 3, order=0),
                forward_only(d, "one head: a leading dimension of 1", qkv(d, 3, 4, lead=(1,)), False, 2, 3),
                forward_only(d, "scores 40 below one, with large values", far_below(d, DOUBLE), False, 2, 4),
                forward_only(d, "one key, whole numbers", whole_numbers(d), False, 2, 2),
            ],
        ),
        gradient(
            4,
            about="not causal, the gradients of q, k and v equal torch's, each alone too; gradcheck",
            why="Backward computes each tile's weights again from lse, and adds up over all tiles.",
            cases=lambda d: [
                *(d.case(f"{str(t)[6:]} input", *qkv(d, 4, 5, dtype=t), False, 3, 2) for t in DTYPES),
                d.case("more queries than keys", *qkv(d, 5, 3), False, 2, 2),
                d.case("blocks that divide the lengths, two heads", *qkv(d, 4, 4, lead=(2,)), False, 2, 2),
                d.case("blocks above the lengths", *qkv(d, 3, 4, 2, 2, lead=(1, 2)), False, 7, 9),
                d.case("a batch of heads, not contiguous", *layouts(d), False, 3, 2),
                d.case(
                    "an expanded upstream gradient",
                    *qkv(d, 3, 4, lead=(2, 2)),
                    False,
                    2,
                    3,
                    upstream=d.normal(2, 1, 3, 1).expand(2, 2, 3, 2),
                ),
                d.case("every size", *qkv(d, 3, 4)[:2], d.scales(4, 2), False, 2, 3, upstream=d.scales(3, 2)),
                d.case("a dozen queries", *qkv(d, 12, 14, 1, 1), False, 4, 5, watch=("trace",)),
                *_subsets(d),
                *lopsided(d, False, 1, 3, order=1),
            ],
            looks=(*GRADIENT, no_matrix),
            gradcheck=lambda d: (*qkv(d, 2, 3, 2, 2), False, 2, 2),
        ),
        Check(
            "causal",
            3,
            about="causal from the top left, value and gradients, for all lengths and blocks",
            why="Query i sees the keys j <= i, in forward and in backward, whatever the lengths and the blocks are.",
            cases=lambda d: [
                d.case("equal lengths", *qkv(d, 5, 5), True, 2, 2),
                d.case("fewer queries than keys", *qkv(d, 3, 7), True, 2, 2),
                d.case("more queries than keys", *qkv(d, 7, 3), True, 3, 2),
                d.case("large blocks of queries", *qkv(d, 6, 6), True, 5, 1),
                d.case("large blocks of keys", *qkv(d, 6, 6), True, 1, 4),
                d.case("blocks above the lengths, two heads", *qkv(d, 3, 4, lead=(2,)), True, 5, 6),
                d.case("a batch of heads, not contiguous", *layouts(d), True, 3, 2),
                d.case("one query", *qkv(d, 1, 4, dtype=SINGLE), True, 2, 2),
                d.case("bfloat16 input", *qkv(d, 4, 4, dtype=BRAIN), True, 3, 2),
                d.case("a dozen queries", *qkv(d, 12, 14, 1, 1), True, 6, 5, watch=("trace",)),
            ],
            looks=(*BOTH, no_matrix),
        ),
        Check(
            "extremes",
            2,
            about="value and gradients for scores of every size; sums that lose nothing in halves",
            why="Each row needs a running maximum, hidden scores are -inf; scores, lse, D and every sum are float32 or "
            "wider.",
            cases=_far_both,
            looks=FAR_BOTH,
        ),
        Check(
            "memory",
            2,
            about="no tensor larger than q, k, v, o or a tile; beside those four only lse is kept",
            why="Memory that grows with the product of the lengths is what FlashAttention is there to avoid.",
            cases=lambda d: [
                d.case(
                    "dozens of queries and keys", *qkv(d, 40, 42, 1, 1), False, 10, 14, watch=("trace",), deny=DENIED
                ),
                d.case("dozens, causal", *qkv(d, 24, 25, 1, 1), True, 8, 9, watch=("trace",), deny=DENIED),
                d.case(
                    "a batch of heads", *qkv(d, 6, 8, 2, 2, lead=(2, 1)), False, 3, 4, watch=("trace",), deny=DENIED
                ),
                d.case("bfloat16 input", *qkv(d, 2, 7, 3, 3, dtype=BRAIN), False, 2, 4, watch=("trace",)),
                d.case("blocks of two queries", *qkv(d, 36, 28, 3, 2), False, 2, 32, watch=("trace",), deny=DENIED),
                d.case("large blocks of queries", *qkv(d, 20, 20, 1, 1), False, 16, 3, watch=("trace",), deny=DENIED),
            ],
            looks=(*BOTH[:6], look.allowed, *map(unless_causal, BOTH[6:]), largest, peak, keeps_lse_alone),
            outside=Outside(
                lambda d: (*qkv(d, LONG, LONG), False, 256, 256), "q, k, v, o and lse", least=8 * LONG**2, keeps=True
            ),
        ),
        contract(
            1,
            about="what belongs to the caller stays untouched; what backward needs is saved; keywords",
            cases=lambda d: [
                d.case(
                    "equal lengths, not causal",
                    *qkv(d, 3, 3, 2, 2),
                    False,
                    2,
                    2,
                    watch=("state", "overwrite"),
                    between=(*qkv(d, 3, 3, 2, 2), True, 1, 3),
                ),
                d.case(
                    "two heads, float32", *qkv(d, 3, 5, 2, 2, lead=(2,), dtype=SINGLE), False, 2, 3, watch=("state",)
                ),
                d.case(
                    "the last three by keyword", *qkv(d, 2, 3), False, 1, 2, keywords=("causal", "block_q", "block_k")
                ),
                d.case(
                    "all by keyword",
                    *qkv(d, 2, 3),
                    True,
                    1,
                    2,
                    keywords=("q", "k", "v", "causal", "block_q", "block_k"),
                ),
            ],
            looks=CONTRACT,
        ),
    ),
    forbids=FORBIDS,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


class Inner(Function):
    """Two loops of tiles in either pass; returns (o, lse)."""

    @staticmethod
    def forward(q, k, v, causal, block_q, block_k):
        wide = torch.promote_types(q.dtype, torch.float32)
        scale = q.shape[-1] ** -0.5
        o = q.new_empty(*q.shape[:-1], v.shape[-1])
        lse = q.new_empty(q.shape[:-1], dtype=wide)
        for i in range(0, q.shape[-2], block_q):
            q_i = q[..., i : i + block_q, :].to(wide)
            rows = torch.arange(i, i + q_i.shape[-2], device=q.device)
            m = torch.full_like(q_i[..., :1], -math.inf)
            total, acc = torch.zeros_like(m), 0.0
            for j in range(0, k.shape[-2], block_k):
                if causal and j >= i + block_q:
                    break
                k_j, v_j = (t[..., j : j + block_k, :].to(wide) for t in (k, v))
                s = scale * q_i @ k_j.mT
                if causal:
                    columns = torch.arange(j, j + k_j.shape[-2], device=q.device)
                    s = s.masked_fill(columns > rows[:, None], -math.inf)
                new = torch.maximum(m, s.amax(-1, keepdim=True))
                p, shrink = torch.exp(s - new), torch.exp(m - new)
                total, acc, m = shrink * total + p.sum(-1, keepdim=True), shrink * acc + p @ v_j, new
            o[..., i : i + block_q, :] = acc / total
            lse[..., i : i + block_q] = (m + total.log()).squeeze(-1)
        return o, lse

    @staticmethod
    def setup_context(ctx, inputs, output):
        q, k, v, *ctx.rest = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(q, k, v, *output)

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        q, k, v, o, lse = ctx.saved_tensors
        causal, block_q, block_k = ctx.rest
        scale = q.shape[-1] ** -0.5
        dq, dk, dv = (t.new_zeros(t.shape, dtype=lse.dtype) for t in (q, k, v))
        for i in range(0, q.shape[-2], block_q):
            q_i, g_i, o_i = (t[..., i : i + block_q, :].to(lse.dtype) for t in (q, g, o))
            rows = torch.arange(i, i + q_i.shape[-2], device=q.device)
            delta = (g_i * o_i).sum(-1, keepdim=True)
            for j in range(0, k.shape[-2], block_k):
                if causal and j >= i + block_q:
                    break
                k_j, v_j = (t[..., j : j + block_k, :].to(lse.dtype) for t in (k, v))
                p = torch.exp(scale * q_i @ k_j.mT - lse[..., i : i + block_q, None])
                if causal:
                    columns = torch.arange(j, j + k_j.shape[-2], device=q.device)
                    p = p.masked_fill(columns > rows[:, None], 0)
                ds = scale * p * (g_i @ v_j.mT - delta)
                dq[..., i : i + block_q, :] += ds @ k_j
                dk[..., j : j + block_k, :] += ds.mT @ q_i
                dv[..., j : j + block_k, :] += p.mT @ g_i
        return *(d.to(t.dtype) for d, t in ((dq, q), (dk, k), (dv, v))), None, None, None


@task.solution
class FlashInner:
    """An inner Function that returns lse too, an apply around it that does not.

    The one to write: setup_context sees lse as an output, and each pass is two plain loops.
    """

    @staticmethod
    def apply(q, k, v, causal, block_q, block_k):
        return Inner.apply(q, k, v, causal, block_q, block_k)[0]


@task.solution
class FlashOlder(Function):
    """The older form; tiles by split; keys in the outer loop in both passes, the query tiles' state in lists.

    Preferable where apply is to return o alone without a class around it: forward has ctx at hand, saves lse itself.
    """

    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        n_q, n_k, wide = q.size(-2), k.size(-2), torch.promote_types(q.dtype, torch.float32)
        scale = 1 / math.sqrt(q.size(-1))
        q_tiles = q.split(block_q, -2)
        m = [t.new_full((*t.shape[:-1], 1), -math.inf, dtype=wide) for t in q_tiles]
        total = [torch.zeros_like(t) for t in m]
        acc = [t.new_zeros(*t.shape[:-1], v.size(-1), dtype=wide) for t in q_tiles]
        row_tiles = torch.arange(n_q, device=q.device).split(block_q)
        column_tiles = torch.arange(n_k, device=q.device).split(block_k)
        for k_j, v_j, at in zip(k.split(block_k, -2), v.split(block_k, -2), column_tiles, strict=True):
            for t, (q_i, rows) in enumerate(zip(q_tiles, row_tiles, strict=True)):
                s = q_i.to(wide).matmul(k_j.to(wide).transpose(-2, -1)).mul(scale)
                if causal:
                    s = torch.where(rows[:, None] >= at, s, -torch.inf)
                new = torch.maximum(m[t], s.max(-1, keepdim=True)[0])
                p, shrink = (s - new).exp(), (m[t] - new).exp()
                total[t] = total[t] * shrink + p.sum(-1, keepdim=True)
                acc[t] = acc[t] * shrink + p.matmul(v_j.to(wide))
                m[t] = new
        o = torch.cat([a / b for a, b in zip(acc, total, strict=True)], -2).to(q.dtype)
        lse = torch.cat([a + b.log() for a, b in zip(m, total, strict=True)], -2)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.causal, ctx.block_q, ctx.block_k = causal, block_q, block_k
        return o

    @staticmethod
    def backward(ctx, g):
        q, k, v, o, lse = ctx.saved_tensors
        wide, scale = lse.dtype, q.size(-1) ** -0.5
        delta = (g.to(wide) * o.to(wide)).sum(-1, keepdim=True)
        dq = q.new_zeros(q.shape, dtype=wide)
        rows, columns = (torch.arange(t.size(-2), device=q.device) for t in (q, k))
        queries = [t.split(ctx.block_q, -2) for t in (q, g, lse, delta, dq)] + [rows.split(ctx.block_q)]
        keys = [t.split(ctx.block_k, -2) for t in (k, v)] + [columns.split(ctx.block_k)]
        dk, dv = [], []
        for k_j, v_j, at in zip(*keys, strict=True):
            k_j, v_j = k_j.to(wide), v_j.to(wide)
            dk_j, dv_j = torch.zeros_like(k_j), torch.zeros_like(v_j)
            for q_i, g_i, lse_i, delta_i, dq_i, rows in zip(*queries, strict=True):
                if ctx.causal and rows[-1] < at[0]:
                    continue
                q_i, g_i = q_i.to(wide), g_i.to(wide)
                s = q_i @ k_j.mT * scale
                if ctx.causal:
                    s.masked_fill_(at > rows.unsqueeze(-1), -math.inf)
                p = (s - lse_i).exp()
                dv_j += p.mT @ g_i
                ds = p * (g_i @ v_j.mT - delta_i)
                dk_j += ds.mT @ q_i * scale
                dq_i += ds @ k_j * scale
            dk.append(dk_j)
            dv.append(dv_j)
        return dq, torch.cat(dk, -2), torch.cat(dv, -2), None, None, None


@task.solution
class FlashRecomputing(Function):
    """Saves q, k and v alone; backward finds lse and D in a first pass over the keys; two-pass softmax in forward.

    Preferable where memory counts most: not even o and lse are kept, for one more pass over all tiles.
    """

    @staticmethod
    def forward(q, k, v, causal, block_q, block_k):
        o = q.new_empty(*q.shape[:-1], v.shape[-1])
        for i in range(0, q.shape[-2], block_q):
            lse = _row_lse(q, k, causal, i, block_q, block_k)
            o[..., i : i + block_q, :] = sum(
                torch.exp(s - lse) @ _tile(v, j, block_k) for j, s in _scores(q, k, causal, i, block_q, block_k)
            )
        return o

    @staticmethod
    def setup_context(ctx, inputs, output):
        q, k, v, ctx.causal, ctx.block_q, ctx.block_k = inputs
        ctx.save_for_backward(q, k, v)

    @staticmethod
    def backward(ctx, g):
        q, k, v = ctx.saved_tensors
        blocks = ctx.causal, ctx.block_q, ctx.block_k
        dq, dk, dv = (t.new_zeros(t.shape, dtype=torch.float64) for t in (q, k, v))
        for i in range(0, q.shape[-2], ctx.block_q):
            lse, g_i = _row_lse(q, k, ctx.causal, i, *blocks[1:]), _tile(g, i, ctx.block_q)
            delta = 0
            for j, s in _scores(q, k, ctx.causal, i, *blocks[1:]):
                delta = delta + (torch.exp(s - lse) * (g_i @ _tile(v, j, ctx.block_k).mT)).sum(-1, keepdim=True)
            for j, s in _scores(q, k, ctx.causal, i, *blocks[1:]):
                p = torch.exp(s - lse)
                ds = p * (g_i @ _tile(v, j, ctx.block_k).mT - delta) / math.sqrt(q.shape[-1])
                dq.narrow(-2, i, p.shape[-2]).add_(ds @ _tile(k, j, ctx.block_k))
                dk.narrow(-2, j, p.shape[-1]).add_(ds.mT @ _tile(q, i, ctx.block_q))
                dv.narrow(-2, j, p.shape[-1]).add_(p.mT @ g_i)
        return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype), None, None, None


def _tile(t: Tensor, start: int, block: int) -> Tensor:
    """Return some rows, in float64."""
    return t[..., start : start + block, :].double()


def _scores(q: Tensor, k: Tensor, causal: bool, i: int, block_q: int, block_k: int) -> Iterator[tuple[int, Tensor]]:
    """Return the scores of one block of queries, tile by tile; tiles with nothing but masked ones too."""
    for j in range(0, k.shape[-2], block_k):
        s = _tile(q, i, block_q) @ _tile(k, j, block_k).mT / math.sqrt(q.shape[-1])
        yield j, s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(i - j + 1), -math.inf) if causal else s


def _row_lse(q: Tensor, k: Tensor, causal: bool, i: int, block_q: int, block_k: int) -> Tensor:
    """Return lse of one block of queries."""
    lse = q.new_full((), -math.inf, dtype=torch.float64)
    for _, s in _scores(q, k, causal, i, block_q, block_k):
        lse = torch.logaddexp(lse, s.logsumexp(-1, keepdim=True))
    return lse


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


class _Flat(Function):
    """Of batches of matrices: each tile's own softmax, merged; dq in one pass, dk and dv in another."""

    @staticmethod
    def forward(q, k, v, causal, block_q, block_k):
        wide = torch.promote_types(q.dtype, torch.float32)
        n_q, n_k = q.shape[1], k.shape[1]
        outs, lses = [], []
        for i in range(0, n_q, block_q):
            out = lse = None
            for j in range(0, min(n_k, i + block_q) if causal else n_k, block_k):
                q_i, k_j, v_j = (
                    q[:, i : i + block_q].to(wide),
                    k[:, j : j + block_k].to(wide),
                    v[:, j : j + block_k].to(wide),
                )
                s = torch.bmm(q_i, k_j.transpose(1, 2)) / math.sqrt(q.shape[2])
                if causal:
                    rows = torch.arange(i, i + q_i.shape[1], device=q.device)
                    columns = torch.arange(j, j + k_j.shape[1], device=q.device)
                    s = s.masked_fill(columns > rows[:, None], torch.finfo(wide).min)
                lse_j, out_j = s.logsumexp(-1, keepdim=True), torch.bmm(s.softmax(-1), v_j)
                if out is None:
                    out, lse = out_j, lse_j
                else:
                    both = torch.logaddexp(lse, lse_j)
                    out, lse = out * (lse - both).exp() + out_j * (lse_j - both).exp(), both
            outs.append(out.to(q.dtype))
            lses.append(lse)
        return torch.cat(outs, 1), torch.cat(lses, 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.causal, ctx.block_q, ctx.block_k = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, g, no_gradient):
        if g is None:
            return (None,) * 6
        q, k, v, o, lse = ctx.saved_tensors
        delta = torch.einsum("nid,nid->ni", g.to(lse), o.to(lse)).unsqueeze(-1)

        def weights(i: int, j: int) -> tuple[Tensor, Tensor]:
            """Return P and dS of a tile."""
            rows, columns = slice(i, i + ctx.block_q), slice(j, j + ctx.block_k)
            s = torch.einsum("nid,njd->nij", q[:, rows].to(lse), k[:, columns].to(lse)) / math.sqrt(q.shape[2])
            if ctx.causal:
                all_rows, all_columns = (torch.arange(t.shape[1], device=q.device) for t in (q, k))
                s = s.masked_fill(all_columns[columns] > all_rows[rows, None], -math.inf)
            p = torch.exp(s - lse[:, rows])
            return p, p * (torch.einsum("nid,njd->nij", g[:, rows].to(lse), v[:, columns].to(lse)) - delta[:, rows])

        starts_q, starts_k = range(0, q.shape[1], ctx.block_q), range(0, k.shape[1], ctx.block_k)
        dq, dk, dv = [], [], []
        if ctx.needs_input_grad[0]:
            for i in starts_q:
                parts = (weights(i, j)[1] @ k[:, j : j + ctx.block_k].to(lse) for j in starts_k)
                dq.append(sum(parts) / math.sqrt(q.shape[2]))
        if any(ctx.needs_input_grad[1:3]):
            for j in starts_k:
                dk_j = dv_j = 0
                for i in starts_q:
                    p, ds = weights(i, j)
                    dk_j = dk_j + ds.mT @ q[:, i : i + ctx.block_q].to(lse)
                    dv_j = dv_j + p.mT @ g[:, i : i + ctx.block_q].to(lse)
                dk.append(dk_j / math.sqrt(q.shape[2]))
                dv.append(dv_j)
        dq, dk, dv = (torch.cat(parts, 1).to(q.dtype) if parts else None for parts in (dq, dk, dv))
        return dq, dk, dv, None, None, None


@task.solution
class FlashFlat:
    """All leading dimensions as one, outside the Function."""

    @staticmethod
    def apply(q, k, v, causal, block_q, block_k):
        flat = [t.reshape(-1, *t.shape[-2:]) for t in (q, k, v)]
        o, _ = _Flat.apply(*flat, causal, block_q, block_k)
        return o.reshape(*q.shape[:-1], v.shape[-1])
