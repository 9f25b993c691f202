"""tiled_attention: softmax attention, forward alone, without the matrix of all scores."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import VALUE, value
from graders.judge.task import DOUBLE, DTYPES, Check, Draw, Task
from graders.sets.flash_attention.common import (
    DENIED,
    FORBIDS,
    alike,
    attention,
    exact,
    far_above,
    far_below,
    far_in_half,
    forward_only,
    heavy,
    in_pairs,
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

PLACE = 1

# far out a row is nearly one key's whatever the mistake, and looks as if it had lost digits
FAR = (*look.FORWARD, look.precise)


def _far(d: Draw, *rest: int) -> list[Case]:
    """Return large scores of every kind, forward alone."""
    q, k, v = qkv(d, 5, 7)
    rising = torch.arange(7.0, dtype=DOUBLE) * 800
    return [
        forward_only(d, "scores x 20", (20 * q, k, v), *rest),
        forward_only(d, "scores x 1000", (1000 * q, k, v), *rest),
        forward_only(d, "scores that rise by 800 from key to key", towards(d, rising), *rest),
        forward_only(d, "scores that fall by 800 from key to key", towards(d, -rising), *rest),
        forward_only(d, "queries whose scores are near -3000, beside one near 3000", opposed(d), *rest),
        forward_only(d, "scores near -131072", exact(d), *rest),
        forward_only(d, "float16, products above 65504", far_in_half(d), *rest),
        forward_only(d, "bfloat16, scores near 90", alike(d), *rest),
        forward_only(d, "bfloat16, products that cancel", nearly_opposite(d), *rest),
        forward_only(d, "float16, 40 values of 2000", heavy(), *rest),
    ]


task = Task(
    "tiled_attention",
    "tiled_attention(q, k, v, block)",
    reference=lambda q, k, v, block: attention(q, k, v),
    checks=(
        value(
            2,
            about="the output equals torch's, for all lengths, blocks, leading dimensions and dtypes",
            why="The numbers are the same whether or not the block divides the lengths.",
            cases=lambda d: [
                *(forward_only(d, f"{str(t)[6:]} input", qkv(d, 4, 7, dtype=t), 3) for t in DTYPES),
                forward_only(d, "more queries than keys", qkv(d, 7, 4), 3),
                forward_only(d, "a block that divides both lengths, two heads", qkv(d, 4, 6, lead=(2,)), 2),
                forward_only(d, "blocks of 1, equal lengths", qkv(d, 3, 3, 2, 3), 1),
                forward_only(d, "a block above both lengths", qkv(d, 3, 5, 2, 2, lead=(1, 2)), 9),
                forward_only(d, "one query, one key", qkv(d, 1, 1), 2),
                forward_only(d, "a batch of heads, not contiguous", layouts(d), 2),
                forward_only(d, "three leading dimensions", qkv(d, 3, 5, 1, 4, lead=(2, 1, 2)), 4),
                forward_only(d, "a dozen queries", qkv(d, 12, 14, 1, 1), 4, watch=("trace",)),
                forward_only(
                    d, "block by keyword, v of every size", (*qkv(d, 2, 5)[:2], d.scales(5, 2)), 2, keywords=("block",)
                ),
                *lopsided(d, 3, order=0),
                forward_only(d, "one head: a leading dimension of 1", qkv(d, 3, 4, lead=(1,)), 2),
                forward_only(d, "all by keyword", qkv(d, 3, 4), 2, keywords=("q", "k", "v", "block")),
                forward_only(d, "scores 40 below one, with large values", far_below(d, DOUBLE), 4),
                forward_only(d, "one key, whole numbers", whole_numbers(d), 2),
            ],
            looks=(*VALUE, no_matrix),
        ),
        Check(
            "extremes",
            2,
            about="scores of every size, and sums that lose nothing in float16 and bfloat16",
            why="Each row needs a running maximum of its own. Everything in between is float32, the product of q and scale "
            "too: round once, at the end.",
            cases=lambda d: [
                *_far(d, 3),
                forward_only(d, "bfloat16, 32 keys", many_keys()[0], 1),
                forward_only(
                    d, "one key, and 50 whose scores are 20 below and whose values are large", many_small(d), 8
                ),
                forward_only(d, "large values that cancel", in_pairs(d), 1),
                forward_only(d, "one query whose largest score is far above the others'", far_above(d), 3),
                forward_only(d, "bfloat16, scores 40 below one, with large values", far_below(d), 4),
                forward_only(d, "float16, 8 values of 30000", many_large(), 3),
            ],
            looks=FAR,
        ),
        Check(
            "memory",
            2,
            about="no tensor larger than q, k, v, o or a tile, no tiles collected; inputs untouched",
            why="The scores of all queries with all keys are what the tiles are to avoid.",
            cases=lambda d: [
                forward_only(
                    d, "queries and keys by the dozen", qkv(d, 24, 59, 1, 2), 4, watch=("trace",), deny=DENIED
                ),
                forward_only(d, "a batch of heads", qkv(d, 4, 9, 2, 2, lead=(2, 1)), 2, watch=("trace",), deny=DENIED),
                forward_only(d, "large blocks", qkv(d, 12, 20, 3, 2), 10, watch=("trace",), deny=DENIED),
                forward_only(d, "blocks of one key", qkv(d, 8, 36, 1, 2), 1, watch=("trace",), deny=DENIED),
            ],
            looks=(*VALUE[:4], look.allowed, look.untouched, *VALUE[4:], largest, peak),
        ),
    ),
    forbids=FORBIDS,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
def keys_in_tiles(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """All queries at once, keys tile by tile: running maximum, sum and output.

    The shortest, and the one to write first: the forward of FlashAttention is this loop inside one over queries.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    q_wide = q.to(wide) / math.sqrt(q.shape[-1])
    m = q.new_full((*q.shape[:-1], 1), -math.inf, dtype=wide)
    total = torch.zeros_like(m)
    acc = q.new_zeros(*q.shape[:-1], v.shape[-1], dtype=wide)
    for k_tile, v_tile in zip(k.split(block, -2), v.split(block, -2), strict=True):
        s = q_wide @ k_tile.to(wide).mT
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        p = torch.exp(s - new)
        shrink = torch.exp(m - new)
        total = total * shrink + p.sum(-1, keepdim=True)
        acc = acc * shrink + p @ v_tile.to(wide)
        m = new
    return (acc / total).to(q.dtype)


@task.solution
def merged_softmaxes(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """Each tile's own softmax and log-sum-exp, merged by weights; queries in tiles too; in float64 throughout.

    Preferable where tiles are computed apart, on several devices say: each is whole, and any two can be merged.
    """
    rows = []
    for start in range(0, q.shape[-2], block):
        q_tile = q[..., start : start + block, :].double()
        out, lse = None, None
        for j in range(0, k.shape[-2], block):
            s = torch.einsum("...id,...jd->...ij", q_tile, k[..., j : j + block, :].double()) * q.shape[-1] ** -0.5
            here = torch.softmax(s, -1) @ v[..., j : j + block, :].double()
            lse_here = torch.logsumexp(s, -1, keepdim=True)
            if out is None:
                out, lse = here, lse_here
            else:
                both = torch.logaddexp(lse, lse_here)
                out = out * torch.exp(lse - both) + here * torch.exp(lse_here - both)
                lse = both
        rows.append(out.to(q.dtype))
    return torch.cat(rows, -2)


@task.solution
def two_passes(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """Log-sum-exp of each row first, then the output: every tile's scores twice.

    Preferable where nothing is to be rescaled: the easiest to get right, for twice the products of q and k.
    """
    with torch.no_grad():
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        for i in range(0, q.shape[-2], block):
            q_tile = q[..., i : i + block, :].to(wide)

            def scores(j: int, q_tile: Tensor = q_tile) -> Tensor:
                return q_tile @ k[..., j : j + block, :].to(wide).transpose(-1, -2) / math.sqrt(q.shape[-1])

            starts = range(0, k.shape[-2], block)
            lse = torch.full_like(q_tile[..., 0], -math.inf)
            for j in starts:
                lse = torch.logaddexp(lse, scores(j).logsumexp(-1))
            parts = lse.new_zeros(*lse.shape, v.shape[-1])
            for j in starts:
                parts += torch.exp(scores(j) - lse[..., None]) @ v[..., j : j + block, :].to(wide)
            out[..., i : i + block, :] = parts
        return out


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
def backwards_and_flat(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """Leading dimensions flattened, padded keys masked, last tile first, output kept divided."""
    lead, n, size = q.shape[:-2], k.shape[-2], v.shape[-1]
    wide = torch.promote_types(q.dtype, torch.float32)
    count = lead.numel()
    q, k, v, dtype = *(t.reshape(count, *t.shape[-2:]) for t in (q, k, v)), q.dtype
    block = min(block, n)
    pad = -n % block
    k, v = F.pad(k, (0, 0, 0, pad)), F.pad(v, (0, 0, 0, pad))
    m = q.new_full((count, q.shape[1]), torch.finfo(wide).min, dtype=wide)
    total, out = torch.zeros_like(m), q.new_zeros(count, q.shape[1], size, dtype=wide)
    for j in reversed(range(0, n, block)):
        s = torch.bmm(q.to(wide), k[:, j : j + block].to(wide).mT).div_(q.shape[-1] ** 0.5)
        s.masked_fill_(torch.arange(j, j + block, device=q.device) >= n, -math.inf)
        new = torch.maximum(m, s.max(-1).values)
        p = (s - new[..., None]).exp()
        before = total * (m - new).exp()
        total = before + p.sum(-1)
        out = (out * before[..., None] + torch.bmm(p, v[:, j : j + block].to(wide))) / total[..., None]
        m = new
    return out.to(dtype).reshape(*lead, -1, size)
