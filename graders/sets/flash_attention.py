"""Set 10: tiled_attention, FlashAttention; and the chapter's FlashSkeleton."""

import math
from collections.abc import Callable, Iterator
from itertools import product

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.looks import Finding, describe
from graders.judge.task import BRAIN, DOUBLE, DTYPES, SINGLE, Check, Draw, Task, operators
from graders.judge.wording import (
    FLOAT32,
    FLOAT32_AND_BACK,
    KEPT_AS_ATTRIBUTE,
    KEPT_OUTSIDE,
    NO_FUNCTION,
    VIEW_NEEDED,
    WRITES_INTO_UPSTREAM,
)

GLOBAL: dict[str, tuple] = {}  # where the mistake `kept_outside_ctx` keeps things
ATTENTION = "scaled_dot_product_attention"
DENIED = operators(
    f"{ATTENTION} _{ATTENTION}_math _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention _flash_attention_forward "
    "_efficient_attention_forward _flash_attention_backward _efficient_attention_backward"
)

FORBIDS = look.Forbids(
    "Attention is to be written tile by tile in torch: without scaled_dot_product_attention, torch's other attentions (as in "
    "torch.nn.attention) and other libraries, and without torch.autograd or torch.func in backward.",
    names=f"{ATTENTION} multi_head_attention_forward MultiheadAttention flex_attention Transformer TransformerEncoderLayer",
    paths=("torch.nn.attention",),
    foreign=True,
    backward=True,
)

FORWARD = (*look.FORWARD[:-1], look.precise, look.value)
FIRST = (*look.FIRST[:-1], look.precise, look.gradient)
BOTH = (*FORWARD[:5], look.function, look.precise, look.value, look.gradient)
# far out a row is nearly one key's whatever the mistake, and looks as if it had lost digits
FAR = (*look.FORWARD, look.precise)
FAR_BOTH = (*BOTH[:6], look.value, look.gradient, look.precise)
# what is changed in place comes before the numbers that it spoils
CONTRACT = (*FIRST[:4], look.untouched, *FIRST[4:], look.stateless, look.guarded)


def attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, block_q: int | None = None, block_k: int | None = None
) -> Tensor:
    """Torch's own, computed in float32 at least and rounded once."""
    wide = torch.promote_types(q.dtype, SINGLE)
    return F.scaled_dot_product_attention(q.to(wide), k.to(wide), v.to(wide), is_causal=causal).to(q.dtype)


# --- what is seen of memory -------------------------------------------------------------------------------------------


def _sizes(case: Case) -> tuple[int, int, int]:
    """The most elements that one tensor of the caller has, those of all together, and those of one tile."""
    q, k, v = case.args[:3]
    block_q, block_k = (q.shape[-2], case.args[3]) if len(case.args) == 4 else case.args[4:]
    rows = q[..., 0].numel()
    own = (q.numel(), k.numel(), v.numel(), rows * v.shape[-1])
    return max(own), sum(own), rows // q.shape[-2] * min(block_q, q.shape[-2]) * min(block_k, k.shape[-2])


PASSES = ("forward", "backward")


def largest(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """No tensor is larger than the caller's, or than one tile; what is padded may be a little more."""
    most, _, tile = _sizes(case)
    for where, seen in zip(PASSES, yours.largest, strict=False):
        if seen > 1.25 * max(most, tile):
            text = (
                f"The {where} makes a tensor of {seen} elements. The largest of q, k, v and o has {most}, a tile {tile}: "
                "what is larger grows with the product of the lengths."
            )
            evidence = {"case": describe(call, case), "yours": f"{seen} elements", "expected": f"{max(most, tile)}"}
            return Finding("largest", text, evidence)
    return None


def no_matrix(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Neither does forward make all scores at once, where no gradient is asked, nor is anything of their size kept."""
    if "trace" not in case.watch:
        return None
    scores = case.args[0][..., 0].numel() * case.args[1].shape[-2]
    if case.upstream is None and yours.largest[:1] >= (scores,):
        text = "You make the scores of all queries with all keys at once. The task is to go through the keys in tiles."
        return Finding("largest", text, {"case": describe(call, case), "yours": f"{yours.largest[0]} elements"})
    if yours.kept_bytes >= 4 * scores:
        text = (
            f"{yours.kept_bytes} bytes are kept for backward, as much as the scores of all queries with all keys. Keep lse, "
            "one number for each query, and compute each tile of P again from it."
        )
        return Finding("keeps", text, {"case": describe(call, case), "yours": f"{yours.kept_bytes} bytes"})
    return None


def peak(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Tiles are not collected."""
    _, total, tile = _sizes(case)
    limit = 8 * (3 * total + 6 * tile)
    for where, seen in zip(PASSES, yours.peak, strict=False):
        if seen > limit:
            text = (
                f"At its worst moment the {where} holds {seen} bytes beside the arguments: something of each tile is "
                "collected. Use each tile for what is running, and let it go."
            )
            evidence = {"case": describe(call, case), "yours": f"{seen} bytes", "expected": f"at most {limit}"}
            return Finding("peak", text, evidence)
    return None


def unless_causal(look: look.Look) -> look.Look:
    """The look, but for causal cases: for checks that are about something else."""

    def unless_causal(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
        return None if case.args[3] else look(call, case, yours, expected)

    return unless_causal


def keeps_lse_alone(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Beside arguments and output, one number a row is kept for backward."""
    limit = 8 * case.args[0][..., 0].numel()
    if "trace" in case.watch and yours.kept_bytes > limit:
        text = (
            f"{yours.kept_bytes} bytes are kept for backward beside q, k, v and o. One number for each query, lse, is "
            f"{limit} bytes at most."
        )
        evidence = {"case": describe(call, case), "yours": f"{yours.kept_bytes} bytes", "expected": f"at most {limit}"}
        return Finding("keeps", text, evidence)
    return None


# --- inputs -----------------------------------------------------------------------------------------------------------


def _qkv(
    d: Draw, n_q: int, n_k: int, dim: int = 3, dim_v: int = 2, lead: tuple = (), dtype: torch.dtype = DOUBLE
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v."""
    return tuple(d.normal(*lead, *s, dtype=dtype) for s in ((n_q, dim), (n_k, dim), (n_k, dim_v)))


def _layouts(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Heads made of a permuted projection, k with its axes turned, one v for all heads."""
    q = d.normal(2, 4, 2, 3).transpose(1, 2)
    k = d.normal(2, 2, 3, 5).mT
    return q, k, d.normal(2, 1, 5, 2).expand(2, 2, 5, 2)


def _towards(d: Draw, keys: Tensor, n_q: int = 3, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v for which every query has about these logits."""
    q, k, v = _qkv(d, n_q, len(keys), 2, 2)
    q[:, 0], k[:, 0] = math.sqrt(2), keys
    q[:, 1] *= 0.5
    return q.to(dtype), k.to(dtype), v.to(dtype)


def _opposed(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """One query whose logits are all near -3000, one near 3000, in one tile."""
    q, k, v = _qkv(d, 4, 5, 2, 3)
    q[:, 0], k[:, 0] = torch.tensor([-42.0, 42.0, 0.0, -42.0], dtype=DOUBLE), 100.0
    return q, k, v


def _exact(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of -2^17 and a small number each, without any rounding (d = 4)."""
    q = torch.full((5, 4), 0.0, dtype=DOUBLE)
    k = q.clone()
    q[:, 0], k[:, 0] = -512.0, 512.0
    q[:, 1] = torch.tensor([1.0, 2.0, -1.0, 3.0, -2.0], dtype=DOUBLE)
    k[:, 1] = torch.tensor([1.0, -1.0, 0.0, 2.0, -0.5], dtype=DOUBLE)
    return q, k, d.normal(5, 2)


def _far_in_half(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Products of q and k beyond what float16 holds; the last key wins everywhere."""
    q, k, v = _qkv(d, 3, 5, 4, 2)
    q[:] = 220.0
    k[:] = 200.0 + 2 * torch.arange(5.0, dtype=DOUBLE).unsqueeze(-1)
    return q.half(), k.half(), v.half()


def _alike(d: Draw, dtype: torch.dtype = BRAIN) -> tuple[Tensor, Tensor, Tensor]:
    """Logits near 90 that differ a little: rounded to bfloat16 they would lie half a unit apart."""
    q, k, v = _qkv(d, 7, 6, 2, 2)
    q[:, 0], k[:, 0] = 11.3, 11.3
    return q.to(dtype), k.to(dtype), v.to(dtype)


def _nearly_opposite(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Products that cancel: q scaled in bfloat16, before them, gives other scores."""
    q, k, v = _qkv(d, 3, 6, 2, 2, dtype=BRAIN)
    q[:] = torch.tensor([[45.25, -45.0], [21.75, -22.0], [37.25, -37.5]])
    k[:], v[:, 0] = torch.arange(12.0, -12.0, -4.0).unsqueeze(-1), torch.tensor([1.0, 0, 0, 0, 0, 0])
    return q, k, v


def _heavy() -> tuple[Tensor, Tensor, Tensor]:
    """Forty equal values, whose sum is beyond what float16 holds, and whose mean is not."""
    return tuple(t.half() for t in (torch.zeros(1, 2), torch.zeros(40, 2), torch.full((40, 1), 2000.0)))


MANY = 32  # a sum in bfloat16 loses what is below 1/512 to 1/256 of it, so these lose up to a tenth


def _many_keys() -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """The first key counts as much as dozens of others together, each of which a sum in bfloat16 would lose.

    The first query sees it in the gradient of q, the second in the output: where a sum of weights is lost in the second
    column, where one of values is in the third.
    """
    q, k, v, g = (torch.zeros(n, m, dtype=DOUBLE) for n, m in ((2, 2), (MANY, 2), (MANY, 3), (2, 3)))
    signs = 1 - 2.0 * (torch.arange(MANY - 1) % 2)
    q[1, 1] = math.sqrt(2)
    k[0], v[0, 0] = torch.tensor([784.0, 5.65]), 1.0
    k[1:, 0], v[1:, 0], v[1:, 1] = 1.75 * signs, signs, 1.0
    v[:, 2] = 1.0
    g[0, 0] = g[1, 1] = 1.0
    return tuple(t.to(BRAIN) for t in (q, k, v)), g.to(BRAIN)


def _many_queries() -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """The first query sends back as much as dozens of others together, each of which a sum in bfloat16 would lose."""
    q, k, v, g = (torch.zeros(n, 2, dtype=DOUBLE) for n in (MANY, 2, 2, MANY))
    q[:, 0], v[0, 0], v[1, 0] = 1.0, 0.75, -0.75
    g[0, 0], g[1:, 0] = 8.0, 0.02
    return tuple(t.to(BRAIN) for t in (q, k, v)), g.to(BRAIN)


# --- tiled_attention --------------------------------------------------------------------------------------------------


def _forward(d: Draw, name: str, qkv: tuple, *rest: object, **options: object) -> Case:
    """A call of which no gradient is asked."""
    return d.case(name, *qkv, *rest, order=0, requires=(False,) * (3 + len(rest)), **options)


def _far(d: Draw, *rest: int) -> list[Case]:
    """Large logits of every kind, forward alone."""
    q, k, v = _qkv(d, 5, 7)
    rising = torch.arange(7.0, dtype=DOUBLE) * 800
    return [
        _forward(d, "logits x 20", (20 * q, k, v), *rest),
        _forward(d, "logits x 1000", (1000 * q, k, v), *rest),
        _forward(d, "logits that rise by 800 from key to key", _towards(d, rising), *rest),
        _forward(d, "logits that fall by 800 from key to key", _towards(d, -rising), *rest),
        _forward(d, "queries whose logits are near -3000, beside one near 3000", _opposed(d), *rest),
        _forward(d, "logits near -131072", _exact(d), *rest),
        _forward(d, "float16, products above 65504", _far_in_half(d), *rest),
        _forward(d, "bfloat16, logits near 90", _alike(d), *rest),
        _forward(d, "bfloat16, products that cancel", _nearly_opposite(d), *rest),
        _forward(d, "float16, 40 values of 2000", _heavy(), *rest),
    ]


tiled = Task(
    "tiled_attention",
    "tiled_attention(q, k, v, block)",
    lambda q, k, v, block: attention(q, k, v),
    (
        Check(
            "value",
            2,
            "the output equals torch's, for all lengths, blocks, leading dimensions and dtypes",
            "Whether a block divides the lengths may change no number.",
            lambda d: [
                *(_forward(d, f"{str(t)[6:]} input", _qkv(d, 4, 7, dtype=t), 3) for t in DTYPES),
                _forward(d, "more queries than keys", _qkv(d, 7, 4), 3),
                _forward(d, "a block that divides both lengths, two heads", _qkv(d, 4, 6, lead=(2,)), 2),
                _forward(d, "blocks of 1, equal lengths", _qkv(d, 3, 3, 2, 3), 1),
                _forward(d, "a block above both lengths", _qkv(d, 3, 5, 2, 2, lead=(1, 2)), 9),
                _forward(d, "one query, one key", _qkv(d, 1, 1), 2),
                _forward(d, "a batch of heads, not contiguous", _layouts(d), 2),
                _forward(d, "three leading dimensions", _qkv(d, 3, 5, 1, 4, lead=(2, 1, 2)), 4),
                _forward(d, "a dozen queries", _qkv(d, 12, 14, 1, 1), 4, watch=("trace",)),
                _forward(
                    d, "block by keyword, v of every size", (*_qkv(d, 2, 5)[:2], d.scales(5, 2)), 2, keywords=("block",)
                ),
            ],
            (*FORWARD, no_matrix),
        ),
        Check(
            "extremes",
            2,
            "logits of every size, and sums that lose nothing in float16 and bfloat16",
            "Each row needs a running maximum, all in between float32 (the product of q and scale too): round once, at the end.",
            lambda d: [*_far(d, 3), _forward(d, "bfloat16, 32 keys", _many_keys()[0], 1)],
            FAR,
        ),
        Check(
            "memory",
            2,
            "no tensor larger than q, k, v, o or a tile, no tiles collected; inputs untouched",
            "The scores of all queries with all keys are what the tiles are to avoid.",
            lambda d: [
                _forward(d, "queries and keys by the dozen", _qkv(d, 24, 59, 1, 2), 4, watch=("trace",), deny=DENIED),
                _forward(d, "a batch of heads", _qkv(d, 4, 9, 2, 2, lead=(2, 1)), 2, watch=("trace",), deny=DENIED),
            ],
            (*FORWARD[:4], look.allowed, look.untouched, *FORWARD[4:], largest, peak),
        ),
    ),
    forbids=FORBIDS,
)


# --- FlashAttention ---------------------------------------------------------------------------------------------------


def _subsets(d: Draw) -> Iterator[Case]:
    """Which of q, k and v require a gradient."""
    for flags in list(product((True, False), repeat=3))[1:-1]:
        wanted = " and ".join(n for n, f in zip("qkv", flags, strict=True) if f)
        yield d.case(
            f"a gradient for {wanted} alone", *_qkv(d, 3, 4), False, 3, 4, requires=(*flags, False, False, False)
        )


def _far_both(d: Draw) -> list[Case]:
    """Large logits of every kind, backward too, and sums of many terms in bfloat16."""
    q, k, v = _qkv(d, 4, 5)
    rising = torch.arange(5.0, dtype=DOUBLE) * 800
    alike = _alike(d)
    alike[2].mul_(0.25)  # so that the rounding of o counts for little in D
    keys, g_keys = _many_keys()
    queries, g_queries = _many_queries()
    return [
        d.case("logits x 20", 20 * q, k, v, False, 3, 2),
        d.case("logits x 1000, causal", 1000 * q, k[:4], v[:4], True, 3, 2),
        d.case("logits that rise by 800 from key to key, causal", *_towards(d, rising, 5), True, 2, 2),
        d.case("logits that fall by 800 from key to key", *_towards(d, -rising), False, 2, 2),
        d.case("queries whose logits are near -3000, beside one near 3000", *_opposed(d), False, 4, 3),
        _forward(d, "logits near -131072, causal", _exact(d), True, 3, 2),
        d.case("float16, products above 65504", *_far_in_half(d), False, 2, 2),
        d.case("bfloat16, logits near 90", *alike, False, 3, 4),
        _forward(d, "bfloat16, products that cancel", _nearly_opposite(d), False, 3, 4),
        _forward(d, "float16, 40 values of 2000", _heavy(), False, 1, 20),
        d.case("bfloat16, 32 keys", *keys, False, 2, 1, upstream=g_keys),
        d.case("bfloat16, 32 queries", *queries, False, 1, 2, upstream=g_queries),
    ]


flash = Task(
    "FlashAttention",
    "FlashAttention.apply(q, k, v, causal, block_q, block_k)",
    attention,
    (
        Check(
            "value",
            2,
            "not causal, the output equals torch's, for all lengths, blocks, shapes and dtypes",
            "Forward is what every later number rests on.",
            lambda d: [
                *(_forward(d, f"{str(t)[6:]} input", _qkv(d, 4, 7, dtype=t), False, 3, 2) for t in DTYPES),
                _forward(d, "more queries than keys", _qkv(d, 7, 4), False, 2, 3),
                _forward(d, "blocks that divide the lengths, two heads", _qkv(d, 4, 6, lead=(2,)), False, 2, 3),
                _forward(d, "blocks of 1, equal lengths", _qkv(d, 3, 3, 2, 3), False, 1, 1),
                _forward(d, "blocks above the lengths", _qkv(d, 3, 5, 2, 2, lead=(1, 2)), False, 7, 9),
                _forward(d, "a batch of heads, not contiguous", _layouts(d), False, 3, 2),
                _forward(d, "v of every size", (*_qkv(d, 2, 5)[:2], d.scales(5, 2)), False, 1, 3),
            ],
            FORWARD,
        ),
        Check(
            "gradient",
            4,
            "not causal, the gradients of q, k and v equal torch's, each alone too; gradcheck",
            "Backward computes each tile's weights again from lse, and adds up over all tiles.",
            lambda d: [
                *(d.case(f"{str(t)[6:]} input", *_qkv(d, 4, 5, dtype=t), False, 3, 2) for t in DTYPES),
                d.case("more queries than keys", *_qkv(d, 5, 3), False, 2, 2),
                d.case("blocks that divide the lengths, two heads", *_qkv(d, 4, 4, lead=(2,)), False, 2, 2),
                d.case("blocks above the lengths", *_qkv(d, 3, 4, 2, 2, lead=(1, 2)), False, 7, 9),
                d.case("a batch of heads, not contiguous", *_layouts(d), False, 3, 2),
                d.case(
                    "an expanded upstream gradient",
                    *_qkv(d, 3, 4, lead=(2, 2)),
                    False,
                    2,
                    3,
                    upstream=d.normal(2, 1, 3, 1).expand(2, 2, 3, 2),
                ),
                d.case("every size", *_qkv(d, 3, 4)[:2], d.scales(4, 2), False, 2, 3, upstream=d.scales(3, 2)),
                d.case("a dozen queries", *_qkv(d, 12, 14, 1, 1), False, 4, 5, watch=("trace",)),
                *_subsets(d),
            ],
            (*FIRST, no_matrix),
            lambda d: (*_qkv(d, 2, 3, 2, 2), False, 2, 2),
        ),
        Check(
            "causal",
            3,
            "causal from the top left, value and gradients, for all lengths and blocks",
            "Query i sees the keys j <= i, in forward and in backward, whatever the lengths and the blocks are.",
            lambda d: [
                d.case("equal lengths", *_qkv(d, 5, 5), True, 2, 2),
                d.case("fewer queries than keys", *_qkv(d, 3, 7), True, 2, 2),
                d.case("more queries than keys", *_qkv(d, 7, 3), True, 3, 2),
                d.case("large blocks of queries", *_qkv(d, 6, 6), True, 5, 1),
                d.case("large blocks of keys", *_qkv(d, 6, 6), True, 1, 4),
                d.case("blocks above the lengths, two heads", *_qkv(d, 3, 4, lead=(2,)), True, 5, 6),
                d.case("a batch of heads, not contiguous", *_layouts(d), True, 3, 2),
                d.case("one query", *_qkv(d, 1, 4, dtype=SINGLE), True, 2, 2),
                d.case("bfloat16 input", *_qkv(d, 4, 4, dtype=BRAIN), True, 3, 2),
                d.case("a dozen queries", *_qkv(d, 12, 14, 1, 1), True, 6, 5, watch=("trace",)),
            ],
            (*BOTH, no_matrix),
        ),
        Check(
            "extremes",
            2,
            "value and gradients for logits of every size; sums that lose nothing in halves",
            "Each row needs a running maximum, hidden scores are -inf; scores, lse, D and every sum are float32 or wider.",
            _far_both,
            FAR_BOTH,
        ),
        Check(
            "memory",
            2,
            "no tensor larger than q, k, v, o or a tile; beside those four only lse is kept",
            "Memory that grows with the product of the lengths is what FlashAttention is there to avoid.",
            lambda d: [
                d.case(
                    "dozens of queries and keys", *_qkv(d, 40, 42, 1, 1), False, 10, 14, watch=("trace",), deny=DENIED
                ),
                d.case("dozens, causal", *_qkv(d, 24, 25, 1, 1), True, 8, 9, watch=("trace",), deny=DENIED),
                d.case(
                    "a batch of heads", *_qkv(d, 6, 8, 2, 2, lead=(2, 1)), False, 3, 4, watch=("trace",), deny=DENIED
                ),
                d.case("bfloat16 input", *_qkv(d, 2, 7, 3, 3, dtype=BRAIN), False, 2, 4, watch=("trace",)),
            ],
            (*BOTH[:6], look.allowed, *map(unless_causal, BOTH[6:]), largest, peak, keeps_lse_alone),
        ),
        Check(
            "contract",
            1,
            "what belongs to the caller stays untouched; what backward needs is saved; keywords",
            "Tensors that your Function did not make belong to others.",
            lambda d: [
                d.case(
                    "equal lengths, not causal",
                    *_qkv(d, 3, 3, 2, 2),
                    False,
                    2,
                    2,
                    watch=("state", "overwrite"),
                    between=(*_qkv(d, 3, 3, 2, 2), True, 1, 3),
                ),
                d.case(
                    "two heads, float32", *_qkv(d, 3, 5, 2, 2, lead=(2,), dtype=SINGLE), False, 2, 3, watch=("state",)
                ),
                d.case(
                    "the last three by keyword", *_qkv(d, 2, 3), False, 1, 2, keywords=("causal", "block_q", "block_k")
                ),
            ],
            CONTRACT,
        ),
    ),
    forbids=FORBIDS,
)


# --- right solutions --------------------------------------------------------------------------------------------------


@tiled.solution
def keys_in_tiles(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """All queries at once, keys tile by tile: running maximum, sum and output."""
    wide = torch.promote_types(q.dtype, torch.float32)
    q_wide = q.to(wide) / math.sqrt(q.shape[-1])
    m = torch.full((*q.shape[:-1], 1), -math.inf, dtype=wide)
    total = torch.zeros_like(m)
    acc = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=wide)
    for k_tile, v_tile in zip(k.split(block, -2), v.split(block, -2), strict=True):
        s = q_wide @ k_tile.to(wide).mT
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        p = torch.exp(s - new)
        shrink = torch.exp(m - new)
        total = total * shrink + p.sum(-1, keepdim=True)
        acc = acc * shrink + p @ v_tile.to(wide)
        m = new
    return (acc / total).to(q.dtype)


@tiled.solution
def merged_softmaxes(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """Each tile's own softmax and log-sum-exp, merged by weights; queries in tiles too; in float64 throughout."""
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


@tiled.solution
def two_passes(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """Log-sum-exp of each row first, then the output: every tile's scores twice."""
    with torch.no_grad():
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        out = torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
        for i in range(0, q.shape[-2], block):
            q_tile = q[..., i : i + block, :].to(wide)

            def scores(j: int, q_tile: Tensor = q_tile) -> Tensor:
                return q_tile @ k[..., j : j + block, :].to(wide).transpose(-1, -2) / math.sqrt(q.shape[-1])

            starts = range(0, k.shape[-2], block)
            lse = torch.full_like(q_tile[..., 0], -math.inf)
            for j in starts:
                lse = torch.logaddexp(lse, scores(j).logsumexp(-1))
            parts = torch.zeros(*lse.shape, v.shape[-1], dtype=wide)
            for j in starts:
                parts += torch.exp(scores(j) - lse[..., None]) @ v[..., j : j + block, :].to(wide)
            out[..., i : i + block, :] = parts
        return out


@tiled.solution
def backwards_and_flat(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """Leading dimensions flattened, padded keys masked, last tile first, output kept divided."""
    lead, n, size = q.shape[:-2], k.shape[-2], v.shape[-1]
    wide = torch.promote_types(q.dtype, torch.float32)
    count = lead.numel()
    q, k, v, dtype = *(t.reshape(count, *t.shape[-2:]) for t in (q, k, v)), q.dtype
    block = min(block, n)
    pad = -n % block
    k, v = F.pad(k, (0, 0, 0, pad)), F.pad(v, (0, 0, 0, pad))
    m = torch.full((count, q.shape[1]), torch.finfo(wide).min, dtype=wide)
    total, out = torch.zeros_like(m), torch.zeros(count, q.shape[1], size, dtype=wide)
    for j in reversed(range(0, n, block)):
        s = torch.bmm(q.to(wide), k[:, j : j + block].to(wide).mT).div_(q.shape[-1] ** 0.5)
        s.masked_fill_(torch.arange(j, j + block) >= n, -math.inf)
        new = torch.maximum(m, s.max(-1).values)
        p = (s - new[..., None]).exp()
        before = total * (m - new).exp()
        total = before + p.sum(-1)
        out = (out * before[..., None] + torch.bmm(p, v[:, j : j + block].to(wide))) / total[..., None]
        m = new
    return out.to(dtype).reshape(*lead, -1, size)


class _Own(Function):
    """Two loops of tiles; (o, lse) from an inner Function."""

    @staticmethod
    def forward(q, k, v, causal, block_q, block_k):
        wide = torch.promote_types(q.dtype, torch.float32)
        scale = q.shape[-1] ** -0.5
        o = q.new_empty(*q.shape[:-1], v.shape[-1])
        lse = torch.empty(q.shape[:-1], dtype=wide)
        for i in range(0, q.shape[-2], block_q):
            q_i = q[..., i : i + block_q, :].to(wide)
            rows = torch.arange(i, i + q_i.shape[-2])
            m = torch.full_like(q_i[..., :1], -math.inf)
            total, acc = torch.zeros_like(m), 0.0
            for j in range(0, k.shape[-2], block_k):
                if causal and j >= i + block_q:
                    break
                k_j, v_j = (t[..., j : j + block_k, :].to(wide) for t in (k, v))
                s = scale * q_i @ k_j.mT
                if causal:
                    s = s.masked_fill(torch.arange(j, j + k_j.shape[-2]) > rows[:, None], -math.inf)
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
        dq, dk, dv = (torch.zeros(t.shape, dtype=lse.dtype) for t in (q, k, v))
        for i in range(0, q.shape[-2], block_q):
            q_i, g_i, o_i = (t[..., i : i + block_q, :].to(lse.dtype) for t in (q, g, o))
            rows = torch.arange(i, i + q_i.shape[-2])
            delta = (g_i * o_i).sum(-1, keepdim=True)
            for j in range(0, k.shape[-2], block_k):
                if causal and j >= i + block_q:
                    break
                k_j, v_j = (t[..., j : j + block_k, :].to(lse.dtype) for t in (k, v))
                p = torch.exp(scale * q_i @ k_j.mT - lse[..., i : i + block_q, None])
                if causal:
                    p = p.masked_fill(torch.arange(j, j + k_j.shape[-2]) > rows[:, None], 0)
                ds = scale * p * (g_i @ v_j.mT - delta)
                dq[..., i : i + block_q, :] += ds @ k_j
                dk[..., j : j + block_k, :] += ds.mT @ q_i
                dv[..., j : j + block_k, :] += p.mT @ g_i
        return *(d.to(t.dtype) for d, t in ((dq, q), (dk, k), (dv, v))), None, None, None


@flash.solution
class FlashInner:
    """An inner Function, an apply around it."""

    @staticmethod
    def apply(q, k, v, causal, block_q, block_k):
        return _Own.apply(q, k, v, causal, block_q, block_k)[0]


@flash.solution
class FlashOlder(Function):
    """The older form; tiles by split; keys in the outer loop in both passes, the query tiles' state in lists."""

    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        n_q, n_k, wide = q.size(-2), k.size(-2), torch.promote_types(q.dtype, torch.float32)
        scale = 1 / math.sqrt(q.size(-1))
        q_tiles = q.split(block_q, -2)
        m = [t.new_full((*t.shape[:-1], 1), -math.inf, dtype=wide) for t in q_tiles]
        total = [torch.zeros_like(t) for t in m]
        acc = [t.new_zeros(*t.shape[:-1], v.size(-1), dtype=wide) for t in q_tiles]
        for k_j, v_j, at in zip(
            k.split(block_k, -2), v.split(block_k, -2), torch.arange(n_k).split(block_k), strict=True
        ):
            for t, (q_i, rows) in enumerate(zip(q_tiles, torch.arange(n_q).split(block_q), strict=True)):
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
        dq = torch.zeros(q.shape, dtype=wide)
        queries = [t.split(ctx.block_q, -2) for t in (q, g, lse, delta, dq)] + [
            torch.arange(q.size(-2)).split(ctx.block_q)
        ]
        keys = [t.split(ctx.block_k, -2) for t in (k, v)] + [torch.arange(k.size(-2)).split(ctx.block_k)]
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


@flash.solution
class FlashRecomputing(Function):
    """Saves q, k and v alone; backward finds lse and D in a first pass over the keys; two-pass softmax in forward."""

    @staticmethod
    def forward(q, k, v, causal, block_q, block_k):
        o = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
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
        dq, dk, dv = (torch.zeros(t.shape, dtype=torch.float64) for t in (q, k, v))
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
    return t[..., start : start + block, :].double()


def _scores(q: Tensor, k: Tensor, causal: bool, i: int, block_q: int, block_k: int) -> Iterator[tuple[int, Tensor]]:
    """The scores of one block of queries, tile by tile; tiles with nothing but masked ones too."""
    for j in range(0, k.shape[-2], block_k):
        s = _tile(q, i, block_q) @ _tile(k, j, block_k).mT / math.sqrt(q.shape[-1])
        yield j, s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(i - j + 1), -math.inf) if causal else s


def _row_lse(q: Tensor, k: Tensor, causal: bool, i: int, block_q: int, block_k: int) -> Tensor:
    lse = torch.tensor(-math.inf, dtype=torch.float64)
    for _, s in _scores(q, k, causal, i, block_q, block_k):
        lse = torch.logaddexp(lse, s.logsumexp(-1, keepdim=True))
    return lse


class _Flat(Function):
    """Batches of matrices; each tile's own softmax, merged; dq in one pass, dk and dv in another."""

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
                    hidden = torch.arange(j, j + k_j.shape[1])[None] > torch.arange(i, i + q_i.shape[1])[:, None]
                    s = s.masked_fill(hidden, torch.finfo(wide).min)
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
            """P and dS of a tile."""
            rows, columns = slice(i, i + ctx.block_q), slice(j, j + ctx.block_k)
            s = torch.einsum("nid,njd->nij", q[:, rows].to(lse), k[:, columns].to(lse)) / math.sqrt(q.shape[2])
            if ctx.causal:
                far = torch.arange(k.shape[1])[columns] - torch.arange(q.shape[1])[rows, None]
                s = s.masked_fill(far > 0, -math.inf)
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


@flash.solution
class FlashFlat:
    """All leading dimensions as one, outside the Function."""

    @staticmethod
    def apply(q, k, v, causal, block_q, block_k):
        flat = [t.reshape(-1, *t.shape[-2:]) for t in (q, k, v)]
        o, _ = _Flat.apply(*flat, causal, block_q, block_k)
        return o.reshape(*q.shape[:-1], v.shape[-1])


# --- wrong solutions --------------------------------------------------------------------------------------------------


class _Run(Function):
    """Both passes of some `Parts`."""

    @staticmethod
    def forward(parts, q, k, v, causal, block_q, block_k):
        return parts.forward(q, k, v, causal, block_q, block_k)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.parts, q, k, v, *ctx.rest = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.parts.save(ctx, q, k, v, *output)

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        return None, *ctx.parts.backward(ctx, g), None, None, None


class Parts:
    """A right FlashAttention in steps, for the wrong ones to change one of them."""

    START = -math.inf  # the running maximum before the first tile
    HIDDEN = -math.inf  # the score of a key that a query does not see

    @classmethod
    def apply(cls, q, k, v, causal, block_q, block_k):
        return _Run.apply(cls, q, k, v, causal, block_q, block_k)[0]

    @classmethod
    def tiled(cls, q, k, v, block):
        """The same as a tiled_attention."""
        return cls.forward(q, k, v, False, block, block)[0]

    @classmethod
    def wide(cls, dtype):
        return torch.promote_types(dtype, torch.float32)

    @classmethod
    def result(cls, q, v):
        return q.new_zeros(*q.shape[:-1], v.shape[-1])

    @classmethod
    def scale(cls, q, v):
        return q.shape[-1] ** -0.5

    @classmethod
    def keys(cls, q, k, i, causal, block_q, block_k):
        """Where the tiles begin that this block of queries needs."""
        return range(0, min(k.shape[-2], i + block_q) if causal else k.shape[-2], block_k)

    @classmethod
    def hidden(cls, i, rows, j, columns, q, k):
        """Which scores of a tile are masked."""
        return torch.arange(j, j + columns) > torch.arange(i, i + rows)[:, None]

    @classmethod
    def product(cls, q_i, k_j):
        return q_i @ k_j.mT

    @classmethod
    def scores(cls, q_i, k_j, i, j, causal, scale, q, k):
        s = scale * cls.product(q_i, k_j)
        if causal:
            s = s.masked_fill(cls.hidden(i, s.shape[-2], j, s.shape[-1], q, k), cls.HIDDEN)
        return s

    @classmethod
    def step(cls, m, total, acc, s, v_j):
        """The state after one more tile."""
        new = cls.maximum(m, s)
        p, shrink = torch.exp(s - new), torch.exp(m - new)
        return new, cls.add(total, shrink, p.sum(-1, keepdim=True)), cls.add_out(acc, shrink, p @ v_j)

    @classmethod
    def maximum(cls, m, s):
        return torch.maximum(m, s.amax(-1, keepdim=True))

    @classmethod
    def add(cls, total, shrink, more):
        return shrink * total + more

    add_out = add

    @classmethod
    def finish(cls, acc, total):
        return acc / total

    @classmethod
    def lse(cls, m, total):
        return m + total.log()

    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        wide, scale = cls.wide(q.dtype), cls.scale(q, v)
        o, rows = cls.result(q, v), []
        for i in range(0, q.shape[-2], block_q):
            q_i = q[..., i : i + block_q, :].to(wide)
            m = torch.full_like(q_i[..., :1], cls.START)
            total, acc = torch.zeros_like(m), torch.zeros_like(o[..., i : i + block_q, :], dtype=wide)
            for j in cls.keys(q, k, i, causal, block_q, block_k):
                k_j, v_j = (t[..., j : j + block_k, :].to(wide) for t in (k, v))
                s = cls.scores(q_i, k_j, i, j, causal, scale, q, k)
                m, total, acc = cls.step(m, total, acc, s, v_j)
            o[..., i : i + block_q, :] = cls.finish(acc, total)
            rows.append(cls.lse(m, total))
        return o, torch.cat(rows, -2)

    @classmethod
    def save(cls, ctx, q, k, v, o, lse):
        ctx.save_for_backward(q, k, v, o, lse)

    @classmethod
    def saved(cls, ctx):
        return ctx.saved_tensors

    @classmethod
    def delta(cls, g_i, o_i):
        return (g_i * o_i).sum(-1, keepdim=True)

    @classmethod
    def weights(cls, q_i, k_j, i, j, causal, scale, q, k, lse_i):
        """P of a tile."""
        return torch.exp(cls.scores(q_i, k_j, i, j, causal, scale, q, k) - lse_i)

    @classmethod
    def through_softmax(cls, p, dp, delta):
        """dS of a tile."""
        return p * (dp - delta)

    @classmethod
    def gradients(cls, ds, p, q_i, k_j, g_i, scale):
        """What a tile adds to the gradients of q, k and v."""
        return scale * ds @ k_j, scale * ds.mT @ q_i, p.mT @ g_i

    @classmethod
    def write(cls, dq_i, dk_j, dv_j, parts):
        for whole, part in zip((dq_i, dk_j, dv_j), parts, strict=True):
            whole += part

    @classmethod
    def sums(cls, dtype):
        """The dtype in which gradients add up."""
        return dtype

    @classmethod
    def backward(cls, ctx, g):
        q, k, v, o, lse = cls.saved(ctx)
        causal, block_q, block_k = ctx.rest
        wide, scale = cls.wide(q.dtype), cls.scale(q, v)
        dq, dk, dv = (torch.zeros(t.shape, dtype=cls.sums(wide)) for t in (q, k, v))
        for i in range(0, q.shape[-2], block_q):
            q_i, g_i, o_i, lse_i = (t[..., i : i + block_q, :].to(wide) for t in (q, g, o, lse))
            delta = cls.delta(g_i, o_i)
            for j in cls.keys(q, k, i, causal, block_q, block_k):
                k_j, v_j = (t[..., j : j + block_k, :].to(wide) for t in (k, v))
                p = cls.weights(q_i, k_j, i, j, causal, scale, q, k, lse_i)
                ds = cls.through_softmax(p, g_i @ v_j.mT, delta)
                there = dq[..., i : i + block_q, :], dk[..., j : j + block_k, :], dv[..., j : j + block_k, :]
                cls.write(*there, cls.gradients(ds, p, q_i, k_j, g_i, scale))
        return tuple(d.to(t.dtype) for d, t in ((dq, q), (dk, k), (dv, v)))


def _both(tiled_by: str, flash_by: str, message: str) -> Callable:
    """Decorator: a mistake that can be made in either task, under one name.

    Args:
        flash_by: the check of FlashAttention; "": there the mistake is not listed, since it stands above already.
    """

    def add(wrong: type[Parts]) -> type[Parts]:
        def as_function(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
            return wrong.tiled(q, k, v, block)

        as_function.__name__ = wrong.__name__
        tiled.mistake(tiled_by, message)(as_function)
        return flash.mistake(flash_by, message)(wrong) if flash_by else wrong

    return add


@_both(
    "extremes",
    "extremes",
    "Your tiles add exp(s) without taking a maximum away first: right for small logits, infinite above 709 (in float32 above "
    "88). Keep the maximum of each row so far, and rescale the sum and the output when it moves.",
)
class no_running_max(Parts):
    @classmethod
    def maximum(cls, m, s):
        return torch.zeros_like(m)


@_both(
    "extremes",
    "",
    "Your running maximum starts at 0. For a row whose logits are all far below 0 it stays there, every exp(s - m) becomes 0, "
    "and the row ends as 0 / 0. Start at -inf: exp(-inf - m) is 0.",
)
class max_started_at_zero(Parts):
    START = 0.0


@_both(
    "extremes",
    "",
    "Your running maximum starts at a number such as -1e4. A row whose logits are all below it loses every term and ends as "
    "0 / 0. Start at -inf.",
)
class max_started_at_a_number(Parts):
    START = -1e4


@_both(
    "extremes",
    "",
    "You take the maximum of the tile at hand for the running maximum. When that is smaller than the one before, "
    "exp(m_old - m_new) overflows. The maximum may only rise: torch.maximum(m, the tile's).",
)
class max_of_the_tile(Parts):
    @classmethod
    def maximum(cls, m, s):
        return s.amax(-1, keepdim=True)


@_both(
    "extremes",
    "",
    "You take the maximum of the first tile and keep it. A later tile with larger logits overflows: update the maximum with "
    "every tile, and rescale what was summed so far.",
)
class max_of_the_first_tile(Parts):
    @classmethod
    def maximum(cls, m, s):
        return torch.where(m == -math.inf, s.amax(-1, keepdim=True), m)


@_both(
    "extremes",
    "",
    "You use one maximum for all rows of a tile. A row whose logits lie far below it loses every term and ends as 0 / 0. The "
    "maximum belongs to the row: amax(-1, keepdim=True).",
)
class one_max_for_all_rows(Parts):
    @classmethod
    def maximum(cls, m, s):
        return torch.maximum(m, s.amax().expand_as(m))


@_both(
    "value",
    "",
    "You do not rescale the old sum. When the maximum rises from m to m_new, all that was summed so far is too large by the factor "
    "exp(m_new - m): multiply it by exp(m - m_new) before you add.",
)
class sum_not_rescaled(Parts):
    @classmethod
    def add(cls, total, shrink, more):
        return total + more

    add_out = Parts.add


@_both(
    "value",
    "",
    "You rescale the sum, and not the output. The output summed so far has the old maximum in it as well: multiply it by "
    "exp(m - m_new), too.",
)
class output_not_rescaled(Parts):
    @classmethod
    def add_out(cls, acc, shrink, more):
        return acc + more


@_both(
    "value",
    "",
    "You rescale nothing when the maximum rises: the sum and the output have terms of different maxima. Multiply both by "
    "exp(m - m_new) before you add.",
)
class nothing_rescaled(Parts):
    @classmethod
    def add(cls, total, shrink, more):
        return total + more

    add_out = add


@_both(
    "value",
    "",
    "You divide the output by the sum after each tile, and go on adding to the quotient as if it were the sum of p v. Divide "
    "once, after the last tile (or multiply by the old sum before you add).",
)
class divided_in_each_tile(Parts):
    @classmethod
    def step(cls, m, total, acc, s, v_j):
        m, total, acc = Parts.step(m, total, acc, s, v_j)
        return m, total, acc / total

    @classmethod
    def finish(cls, acc, total):
        return acc


@_both(
    "value",
    "",
    "You take the softmax of each tile by itself and add the results. The weights of a row sum to 1 over all keys, not over "
    "each tile: that needs the running maximum and the running sum.",
)
class softmax_of_each_tile(Parts):
    @classmethod
    def step(cls, m, total, acc, s, v_j):
        m, total, _ = Parts.step(m, total, acc, s, v_j)
        return m, total, acc + torch.softmax(s, -1) @ v_j

    @classmethod
    def finish(cls, acc, total):
        return acc


@_both(
    "value",
    "value",
    "You do not scale the scores. They are q k^T / sqrt(d), d the last dimension of q.",
)
class scale_missing(Parts):
    @classmethod
    def scale(cls, q, v):
        return 1.0


@_both("value", "", "You divide the scores by d. It is the square root of d, the last dimension of q.")
class scale_without_root(Parts):
    @classmethod
    def scale(cls, q, v):
        return 1 / q.shape[-1]


@_both(
    "value",
    "",
    "You scale the scores by the last dimension of v. It is that of q and k that counts, 1 / sqrt(d): over d they are summed.",
)
class scale_of_v(Parts):
    @classmethod
    def scale(cls, q, v):
        return v.shape[-1] ** -0.5


@_both(
    "value",
    "value",
    "You leave out the last tile where the block does not divide the number of keys, so those keys count for nothing. Let the loop "
    "run to N_k: range(0, N_k, block); slices end where the tensor ends.",
)
class ragged_tail_dropped(Parts):
    @classmethod
    def keys(cls, q, k, i, causal, block_q, block_k):
        n = k.shape[-2]
        whole = range(0, n - n % block_k if n > block_k else n, block_k)
        return [j for j in whole if not causal or j < i + block_q]


@_both(
    "value",
    "",
    "You fill the last tile up with zeros, and the padded keys take part in the softmax with a logit of 0. Let the last tile be "
    "smaller, or set those scores to -inf.",
)
class padded_keys_count(Parts):
    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        pad = (0, 0, 0, -k.shape[-2] % block_k)
        return super().forward(q, F.pad(k, pad), F.pad(v, pad), causal, block_q, block_k)


@_both(
    "value",
    "",
    "You refuse lengths that the block does not divide. Here they are part of the task: the last tile is smaller, which slices "
    "and split give you for nothing.",
)
class block_must_divide(Parts):
    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        if q.shape[-2] % block_q or k.shape[-2] % block_k:
            raise ValueError("the blocks do not divide the lengths")
        return super().forward(q, k, v, causal, block_q, block_k)


@_both(
    "value",
    "",
    "You use one length for queries and keys: your loop over the keys ends at N_q. Keys beyond it count for nothing, and with "
    "fewer keys you slice past their end. Take N_k from k.",
)
class one_length_for_both(Parts):
    @classmethod
    def keys(cls, q, k, i, causal, block_q, block_k):
        return range(0, min(q.shape[-2], i + block_q) if causal else q.shape[-2], block_k)


@_both(
    "value",
    "",
    "Your output has the last dimension of q. It is d_v, the last dimension of v: the rows of the output are means of rows of v.",
)
class output_like_q(Parts):
    @classmethod
    def result(cls, q, v):
        return torch.zeros_like(q)


@_both(
    "value",
    "",
    "Your code takes the shape of q apart into batch, heads, length and d. The leading dimensions may be any number, none too: count "
    "from the end, q.shape[-2] and q[..., i:j, :].",
)
class four_dimensions_only(Parts):
    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        _, _, _, _ = q.shape
        return super().forward(q, k, v, causal, block_q, block_k)


@_both(
    "value",
    "",
    "You swap axes by numbers that count from the front (transpose(1, 2), or .t()), which suits one number of leading "
    "dimensions alone. k.transpose(-2, -1), or k.mT, suits all.",
)
class axes_from_the_front(Parts):
    @classmethod
    def product(cls, q_i, k_j):
        return q_i @ k_j.transpose(1, 2)


@_both("value", "", FLOAT32)
class float32_inside(Parts):
    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        return super().forward(q.float(), k.float(), v.float(), causal, block_q, block_k)


@_both("value", "", FLOAT32_AND_BACK)
class float32_and_back(Parts):
    @classmethod
    def wide(cls, dtype):
        return torch.float32


@_both(
    "extremes",
    "extremes",
    "In bfloat16 and float16 you add up in the dtype of the input. A sum in bfloat16 has 8 bits: 1 + 0.003 is 1, and a long row loses "
    "most of its keys. Keep maximum, sum and output in float32, and round once at the end.",
)
class low_precision_sums(Parts):
    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        dtype = q.dtype

        class Rounded(cls):
            @classmethod
            def step(inner, m, total, acc, s, v_j):
                return tuple(t.to(dtype).to(s.dtype) for t in cls.step(m, total, acc, s, v_j))

        return super(low_precision_sums, Rounded).forward(q, k, v, causal, block_q, block_k)


@_both(
    "extremes",
    "",
    "You keep the sum in float32, but add up the output in the dtype of the input. In bfloat16 small parts of it are lost: keep the "
    "output in float32 as well, and round once at the end.",
)
class low_precision_output(Parts):
    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        dtype = q.dtype

        class Rounded(cls):
            @classmethod
            def step(inner, m, total, acc, s, v_j):
                m, total, acc = cls.step(m, total, acc, s, v_j)
                return m, total, acc.to(dtype).to(s.dtype)

        return super(low_precision_output, Rounded).forward(q, k, v, causal, block_q, block_k)


@_both(
    "value",
    "",
    "You add a small number to the sum before you divide by it. The sum is never 0, since the largest key of a row adds exp(0) = 1; "
    "leave it out.",
)
class epsilon_added(Parts):
    @classmethod
    def finish(cls, acc, total):
        return acc / (total + 1e-6)


@_both(
    "extremes",
    "extremes",
    "You multiply q and k in float16 or bfloat16. The product is rounded to that dtype: beyond 65504 it is infinite, and in bfloat16 "
    "logits near 90 lie half a unit apart. Convert the tiles to float32 first.",
)
class low_precision_scores(Parts):
    @classmethod
    def scores(cls, q_i, k_j, i, j, causal, scale, q, k):
        s = (scale * (q_i.to(q.dtype) @ k_j.to(q.dtype).mT)).to(q_i.dtype)
        if causal:
            s = s.masked_fill(cls.hidden(i, s.shape[-2], j, s.shape[-1], q, k), cls.HIDDEN)
        return s


@_both(
    "extremes",
    "",
    "You multiply q by the scale in float16 or bfloat16, before you convert. The product is rounded, and where q k^T is a difference of large "
    "numbers the scores are others. Convert first, then scale.",
)
class scaled_before_converting(Parts):
    @classmethod
    def scores(cls, q_i, k_j, i, j, causal, scale, q, k):
        q_i = (q_i.to(q.dtype) * scale).to(q_i.dtype)
        return super().scores(q_i, k_j, i, j, causal, 1.0, q, k)


@_both(
    "extremes",
    "",
    "You round the output and the sum to the input's dtype before you divide. In float16 a sum of values above 65504 is infinite, though their "
    "mean is not. Divide in float32, and round the quotient.",
)
class rounded_before_dividing(Parts):
    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        dtype = q.dtype

        class Rounded(cls):
            @classmethod
            def finish(inner, acc, total):
                return acc.to(dtype) / total.to(dtype)

        return super(rounded_before_dividing, Rounded).forward(q, k, v, causal, block_q, block_k)


@_both("value", "", VIEW_NEEDED)
class view_needed(Parts):
    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        flat = [t.view(-1, *t.shape[-2:]) for t in (q, k, v)]
        return tuple(t.view(*q.shape[:-1], -1) for t in super().forward(*flat, causal, block_q, block_k))


@_both(
    "memory",
    "memory",
    "Your numbers are right, but you compute the scores of all queries with all keys at once: N_q x N_k of them, as plain attention does. "
    "Compute them tile by tile.",
)
class whole_scores(Parts):
    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        wide = cls.wide(q.dtype)
        s = cls.scores(q.to(wide), k.to(wide), 0, 0, causal, cls.scale(q, v), q, k)
        lse = s.logsumexp(-1, keepdim=True)
        return (torch.exp(s - lse) @ v.to(wide)).to(q.dtype), lse


@_both(
    "memory",
    "memory",
    "Your numbers are right, but only the queries come in blocks: each block's scores with all keys are in memory at once. The keys "
    "come in blocks as well, which is what the running maximum and sum are for.",
)
class rows_of_scores(Parts):
    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        wide, scale, outs, lses = cls.wide(q.dtype), cls.scale(q, v), [], []
        for i in range(0, q.shape[-2], block_q):
            s = cls.scores(q[..., i : i + block_q, :].to(wide), k.to(wide), i, 0, causal, scale, q, k)
            outs.append((torch.softmax(s, -1) @ v.to(wide)).to(q.dtype))
            lses.append(s.logsumexp(-1, keepdim=True))
        return torch.cat(outs, -2), torch.cat(lses, -2)


@_both(
    "memory",
    "memory",
    "Your numbers are right, but you collect something of every tile in a list: its scores, its weights, or its share of the output. All "
    "together grow with the product of the lengths. Use each tile for the running maximum, sum and output, and let it go.",
)
class tiles_collected(Parts):
    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        wide, scale = cls.wide(q.dtype), cls.scale(q, v)
        o, lse, tiles = cls.result(q, v), torch.empty(*q.shape[:-1], 1, dtype=wide), {}
        for i in range(0, q.shape[-2], block_q):
            for j in cls.keys(q, k, i, causal, block_q, block_k):
                q_i, k_j = q[..., i : i + block_q, :].to(wide), k[..., j : j + block_k, :].to(wide)
                tiles[i, j] = cls.scores(q_i, k_j, i, j, causal, scale, q, k)
        for i in range(0, q.shape[-2], block_q):
            row = {j: s for (at, j), s in tiles.items() if at == i}
            most = torch.stack([s.amax(-1) for s in row.values()]).amax(0).unsqueeze(-1)
            total = sum(torch.exp(s - most).sum(-1, keepdim=True) for s in row.values())
            o[..., i : i + block_q, :] = sum(
                torch.exp(s - most) @ v[..., j : j + block_k, :].to(wide) / total for j, s in row.items()
            )
            lse[..., i : i + block_q, :] = most + total.log()
        return o, lse


@_both(
    "memory",
    "memory",
    "You call torch's scaled_dot_product_attention. The task is to write what it does, tile by tile.",
)
class calls_torch_s(Parts):
    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        _, lse = super().forward(q, k, v, causal, block_q, block_k)
        return attention(q, k, v, causal), lse


@_both(
    "memory",
    "",
    "You scale q in place (q *= ..., mul_): the caller's tensor is changed. Multiply into a new tensor: q * scale.",
)
class scales_q_in_place(Parts):
    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        o, lse = super().forward(q, k, v, causal, block_q, block_k)
        q.mul_(q.shape[-1] ** -0.5)
        return o, lse

    @classmethod
    def backward(cls, ctx, g):
        q, *rest = ctx.saved_tensors
        whole = q * q.shape[-1] ** 0.5
        saved = type("Saved", (), {"saved_tensors": (whole, *rest), "rest": ctx.rest})
        return super().backward(saved, g)


# --- what only a backward, or only causal attention, can get wrong ------------------------------------------------------


@flash.mistake(
    "gradient",
    "Your gradient of the scores is P * dP. Each row of P sums to 1, so raising one weight lowers the others: dS = P * (dP - D), "
    "D = rowsum(dO * O). The gradient of v does not need it and is right.",
)
class missing_d(Parts):
    @classmethod
    def through_softmax(cls, p, dp, delta):
        return p * dp


@flash.mistake(
    "gradient",
    "You compute D from one tile, rowsum(P * dP) over its keys. The sum runs over all keys of the row, which is why it is taken from "
    "the output: D = rowsum(dO * O).",
)
class d_of_the_tile(Parts):
    @classmethod
    def through_softmax(cls, p, dp, delta):
        return p * (dp - (p * dp).sum(-1, keepdim=True))


@flash.mistake(
    "gradient",
    "The gradients of q and k lack the factor 1 / sqrt(d): dq = scale dS k, dk = scale dS^T q.",
)
class gradients_not_scaled(Parts):
    @classmethod
    def gradients(cls, ds, p, q_i, k_j, g_i, scale):
        return ds @ k_j, ds.mT @ q_i, p.mT @ g_i


@flash.mistake(
    "gradient",
    "Each block of queries adds to the gradients of every block of keys and values. You write them anew for each, so only the last "
    "block of queries remains: accumulate with +=.",
)
class overwritten(Parts):
    @classmethod
    def write(cls, dq_i, dk_j, dv_j, parts):
        dq_i += parts[0]
        dk_j.copy_(parts[1])
        dv_j.copy_(parts[2])


@flash.mistake(
    "gradient",
    "Your gradients do not depend on the upstream gradient, as if it were 1 everywhere. It enters three times: in dP = dO v^T, in D, "
    "and in dv = P^T dO.",
)
class upstream_ignored(Parts):
    @classmethod
    def backward(cls, ctx, g):
        return super().backward(ctx, torch.ones_like(g))


@flash.mistake(
    "gradient",
    "You save the running maximum in place of lse, so P = exp(S - m) is not divided by the sum. lse is m + log(sum).",
)
class lse_without_sum(Parts):
    @classmethod
    def lse(cls, m, total):
        return m


@flash.mistake(
    "gradient",
    "Backward takes the softmax of each tile by itself. The weights of a row sum to 1 over all keys: P = exp(S - lse), with the lse "
    "of the whole row.",
)
class softmax_of_the_tile_in_backward(Parts):
    @classmethod
    def weights(cls, q_i, k_j, i, j, causal, scale, q, k, lse_i):
        return torch.softmax(cls.scores(q_i, k_j, i, j, causal, scale, q, k), -1)


@flash.mistake(
    "gradient",
    "Backward lets the keys run to N_q. Their number is N_k; with another number of queries some gradients stay 0, or slices are empty.",
)
class one_length_in_backward(Parts):
    @classmethod
    def backward(cls, ctx, g):
        return one_length_for_both.backward(ctx, g)


@flash.mistake(
    "gradient",
    "Your backward returns None for everything (is a return statement missing?): nothing gets a gradient at all.",
)
class nothing_returned(Parts):
    @classmethod
    def backward(cls, ctx, g):
        return None, None, None


@flash.mistake(
    "gradient",
    "Your backward asks the wrong entry of ctx.needs_input_grad: it has one for each argument, in their order, q first.",
)
class needs_shifted(Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        o, lse = Parts.forward(q, k, v, causal, block_q, block_k)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.rest = causal, block_q, block_k
        return o

    @staticmethod
    def backward(ctx, g):
        dq, dk, dv = Parts.backward(ctx, g)
        needs = ctx.needs_input_grad
        return dq, dk if needs[2] else None, dv if needs[1] else None, None, None, None


@flash.mistake("gradient", NO_FUNCTION)
class no_function:
    @staticmethod
    def apply(q, k, v, causal, block_q, block_k):
        return Parts.forward(q, k, v, causal, block_q, block_k)[0]


@flash.mistake(
    "value",
    "Your apply returns a tuple. lse is your own business: let an inner Function return (o, lse), and FlashAttention.apply o alone.",
)
class returns_lse_too(Parts):
    @classmethod
    def apply(cls, q, k, v, causal, block_q, block_k):
        return _Run.apply(cls, q, k, v, causal, block_q, block_k)


@flash.mistake(
    "causal", "You leave causal out of account: every query sees every key. With causal=True, query i sees keys j <= i."
)
class causal_ignored(Parts):
    @classmethod
    def apply(cls, q, k, v, causal, block_q, block_k):
        return super().apply(q, k, v, False, block_q, block_k)


@flash.mistake(
    "causal",
    "You mask in forward only. Backward computes P again, so it has to mask the same scores: exp(S - lse) is not 0 for a key that "
    "the query does not see.",
)
class causal_in_forward_only(Parts):
    @classmethod
    def backward(cls, ctx, g):
        ctx.rest = (False, *ctx.rest[1:])
        return super().backward(ctx, g)


@flash.mistake(
    "causal",
    "Where N_q and N_k differ your mask is aligned at the bottom right, the last query seeing all keys. Here, as in torch, it is aligned "
    "at the top left: query i sees keys j <= i whatever the lengths are.",
)
class aligned_bottom_right(Parts):
    @classmethod
    def keys(cls, q, k, i, causal, block_q, block_k):
        return range(0, k.shape[-2], block_k)

    @classmethod
    def hidden(cls, i, rows, j, columns, q, k):
        return torch.arange(j, j + columns) > torch.arange(i, i + rows)[:, None] + k.shape[-2] - q.shape[-2]


@flash.mistake(
    "causal",
    "You compare places within the tile. The mask is about places in the whole sequence: query i + its place, key j + its place.",
)
class places_within_the_tile(Parts):
    @classmethod
    def hidden(cls, i, rows, j, columns, q, k):
        return torch.arange(columns) > torch.arange(rows)[:, None]


@flash.mistake(
    "causal",
    "Your mask hides the diagonal as well. Query i sees keys j <= i, itself included; query 0 would see nothing.",
)
class diagonal_hidden(Parts):
    @classmethod
    def hidden(cls, i, rows, j, columns, q, k):
        return torch.arange(j, j + columns) >= torch.arange(i, i + rows)[:, None]


@flash.mistake(
    "causal",
    "You set the hidden scores to 0, and exp(0 - m) is not 0. Set them to -inf before the maximum and the exp.",
)
class masked_to_zero(Parts):
    HIDDEN = 0.0


@flash.mistake(
    "extremes",
    "You set the hidden scores to a number such as -1e4. A row whose logits are all below it sees the hidden keys alone. Set them to -inf.",
)
class masked_to_a_number(Parts):
    HIDDEN = -1e4


@flash.mistake(
    "causal",
    "You skip the tiles whose first key lies behind the first query of the block. Later queries of the block may see them: skip a tile "
    "when its first key lies behind the last query.",
)
class skipped_by_first_query(Parts):
    @classmethod
    def keys(cls, q, k, i, causal, block_q, block_k):
        return [j for j in range(0, k.shape[-2], block_k) if not causal or j <= i]


@flash.mistake(
    "causal",
    "A row of a tile of which nothing is seen gives nan: its own maximum is -inf, and -inf - -inf is nan, in a softmax too. Use the running "
    "maximum, which is finite from key 0 on (each query sees it), or a tile's logsumexp with masked weights.",
)
class hidden_row_is_nan(Parts):
    @classmethod
    def step(cls, m, total, acc, s, v_j):
        here = s.amax(-1, keepdim=True)
        new, p = torch.maximum(m, here), torch.exp(s - here)
        old, weight = torch.exp(m - new), torch.exp(here - new)
        return new, old * total + weight * p.sum(-1, keepdim=True), old * acc + weight * (p @ v_j)


@flash.mistake(
    "extremes",
    "In backward you mask after the exp, by a product with 0 or False. For a hidden key exp(S - lse) may be infinite, and infinity times 0 "
    "is nan. Set the scores to -inf before the exp, as in forward, or choose with torch.where.",
)
class masked_by_a_product(Parts):
    @classmethod
    def weights(cls, q_i, k_j, i, j, causal, scale, q, k, lse_i):
        p = super().weights(q_i, k_j, i, j, False, scale, q, k, lse_i)
        return p * ~cls.hidden(i, p.shape[-2], j, p.shape[-1], q, k) if causal else p


@flash.mistake(
    "extremes",
    "You add up the gradients in float16 or bfloat16. Each tile adds to them, and a sum in bfloat16 has 8 bits: small parts are lost. "
    "Accumulate in float32, and convert once at the end.",
)
class gradients_added_in_halves(Parts):
    @classmethod
    def backward(cls, ctx, g):
        dtype = ctx.saved_tensors[0].dtype

        class Narrow(cls):
            @classmethod
            def sums(inner, wide):
                return dtype

        return super(gradients_added_in_halves, Narrow).backward(ctx, g)


@flash.mistake(
    "extremes",
    "You save lse in the dtype of the input. In bfloat16 numbers near 90 lie half a unit apart, so P = exp(S - lse) is off by up to a "
    "quarter. Keep lse in float32.",
)
class lse_in_halves(Parts):
    @classmethod
    def save(cls, ctx, q, k, v, o, lse):
        ctx.save_for_backward(q, k, v, o, lse.to(q.dtype))


@flash.mistake(
    "memory",
    "Values and gradients are right, but the N_q x N_k matrix P stays in memory until backward. Save q, k, v, o and lse, and compute each "
    "tile of P again from them: P = exp(S - lse).",
)
class saves_p(whole_scores):
    @classmethod
    def save(cls, ctx, q, k, v, o, lse):
        wide = cls.wide(q.dtype)
        s = cls.scores(q.to(wide), k.to(wide), 0, 0, ctx.rest[0], cls.scale(q, v), q, k)
        ctx.save_for_backward(q, k, v, torch.exp(s - lse))

    @classmethod
    def backward(cls, ctx, g):
        *qkv, p = ctx.saved_tensors
        (q, k, v), g = (t.to(p.dtype) for t in qkv), g.to(p.dtype)
        dp = g @ v.mT
        ds = cls.scale(q, v) * p * (dp - (p * dp).sum(-1, keepdim=True))
        return tuple(d.to(t.dtype) for d, t in zip((ds @ k, ds.mT @ q, p.mT @ g), qkv, strict=True))


@flash.mistake(
    "memory",
    "Forward works in tiles, but backward computes all of P at once, N_q x N_k numbers. Compute it tile by tile there as well.",
)
class scores_in_backward(Parts):
    @classmethod
    def backward(cls, ctx, g):
        ctx.rest = (ctx.rest[0], 10**6, 10**6)
        return super().backward(ctx, g)


@flash.mistake(
    "memory",
    "Backward collects something of every tile in a list, P or dS or what each adds to a gradient. All together grow with the product of the "
    "lengths: add each tile's share to dq, dk and dv, and let it go.",
)
class tiles_collected_in_backward(Parts):
    @classmethod
    def backward(cls, ctx, g):
        held = []

        class Collecting(cls):
            @classmethod
            def through_softmax(inner, p, dp, delta):
                held.append(p)
                return cls.through_softmax(p, dp, delta)

        return super(tiles_collected_in_backward, Collecting).backward(ctx, g)


@flash.mistake(
    "memory",
    "You make the causal mask as a whole, N_q x N_k, and cut tiles out of it. Compare the places of one tile: two torch.arange.",
)
class whole_mask(Parts):
    @classmethod
    def hidden(cls, i, rows, j, columns, q, k):
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
        return mask[i : i + rows, j : j + columns]


@flash.mistake(
    "memory",
    "You keep the tiles of P for backward (in a list, or on ctx). Together they are the N_q x N_k matrix: compute each again from q, k and lse.",
)
class tiles_kept_for_backward(Parts):
    @classmethod
    def save(cls, ctx, q, k, v, o, lse):
        causal, block_q, block_k = ctx.rest
        wide, scale = cls.wide(q.dtype), cls.scale(q, v)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.tiles = []
        for i in range(0, q.shape[-2], block_q):
            q_i, lse_i = (t[..., i : i + block_q, :].to(wide) for t in (q, lse))
            for j in cls.keys(q, k, i, causal, block_q, block_k):
                k_j = k[..., j : j + block_k, :].to(wide)
                ctx.tiles.append(cls.weights(q_i, k_j, i, j, causal, scale, q, k, lse_i))


@flash.mistake(
    "memory",
    "You keep more for backward than q, k, v, o and one number a row: the maximum and the sum by themselves, or numbers that backward can "
    "find again (D, a mask, scaled copies). m + log(sum) is enough.",
)
class saves_max_and_sum(Parts):
    @classmethod
    def save(cls, ctx, q, k, v, o, lse):
        ctx.save_for_backward(q, k, v, o, lse, lse.clone(), lse.clone())

    @classmethod
    def saved(cls, ctx):
        return ctx.saved_tensors[:5]


@flash.mistake(
    "memory",
    "For float16 and bfloat16 you keep copies in float32, twice the memory. Save the tensors as they came, and convert tiles in backward.",
)
class saves_float32_copies(Parts):
    @classmethod
    def save(cls, ctx, q, k, v, o, lse):
        wide = cls.wide(q.dtype)
        ctx.dtype = q.dtype
        ctx.save_for_backward(q.to(wide), k.to(wide), v.to(wide), o, lse)

    @classmethod
    def backward(cls, ctx, g):
        return tuple(t.to(ctx.dtype) for t in super().backward(ctx, g))


@flash.mistake(
    "memory",
    "Your backward asks torch.autograd for the gradient, of a tile or of all of them (of which autograd then keeps the whole matrix, and "
    "more). The task is to write the vector-Jacobian product yourself.",
)
class autograd_in_backward(Parts):
    @classmethod
    def backward(cls, ctx, g):
        q, k, v, *_ = ctx.saved_tensors
        with torch.enable_grad():
            again = [t.detach().requires_grad_() for t in (q, k, v)]
            return torch.autograd.grad(cls.forward(*again, *ctx.rest)[0], again, g)


@flash.mistake(
    "contract",
    KEPT_AS_ATTRIBUTE.replace(" x ", " tensors ")
    .replace("when x is", "when one is")
    .replace("an attribute", "attributes"),
)
class kept_as_attribute(Parts):
    @classmethod
    def save(cls, ctx, q, k, v, o, lse):
        ctx.kept = q, k, v, o.clone(), lse

    @classmethod
    def saved(cls, ctx):
        return ctx.kept


@flash.mistake(
    "contract",
    "You keep causal or the block sizes outside ctx (on the class, or in a global): a second call puts its own there, and the first one's "
    "backward goes by them. What is no tensor is kept on ctx.",
)
class flags_outside_ctx(Parts):
    @classmethod
    def save(cls, ctx, q, k, v, o, lse):
        super().save(ctx, q, k, v, o, lse)
        GLOBAL["rest"] = tuple(ctx.rest)

    @classmethod
    def saved(cls, ctx):
        ctx.rest = GLOBAL["rest"]
        return ctx.saved_tensors


@flash.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Parts):
    @classmethod
    def save(cls, ctx, q, k, v, o, lse):
        ctx.save_for_backward(q, k, v, o)
        GLOBAL["lse"] = (lse,)

    @classmethod
    def saved(cls, ctx):
        return *ctx.saved_tensors, *GLOBAL["lse"]


@flash.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(Parts):
    @classmethod
    def backward(cls, ctx, g):
        grads = super().backward(ctx, g)
        g.mul_(ctx.saved_tensors[3])
        return grads


# --- the chapter's FlashSkeleton ----------------------------------------------------------------------------------------


def _aligned(d: Draw, *lead: int, dtype: torch.dtype = DOUBLE, size: float = 1) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of one shape, of length 8."""
    q, k, v = _qkv(d, 8, 8, 4, 4, lead, dtype)
    return size * q, k, v


skeleton = Task(
    "FlashSkeleton",
    "FlashSkeleton.apply(q, k, v, block)",
    lambda q, k, v, block: attention(q, k, v),
    (
        Check(
            "value",
            0,
            "the output equals torch's, large logits too",
            "Forward is what every later number rests on.",
            lambda d: [
                d.case("a matrix", *_aligned(d), 2, order=0),
                d.case("two heads", *_aligned(d, 2), 4, order=0),
                d.case("logits x 1000", *_aligned(d, 1, 2, size=1000), 2, order=0),
                d.case("float32, logits x 50", *_aligned(d, dtype=SINGLE, size=50), 4, order=0),
            ],
            FORWARD,
        ),
        Check(
            "gradient",
            0,
            "the gradients of q, k and v equal torch's; gradcheck",
            "Backward computes each tile's weights again from lse, and adds up over all tiles.",
            lambda d: [
                d.case("a matrix", *_aligned(d), 2),
                d.case("two heads", *_aligned(d, 2), 4),
                d.case("a batch of heads, float32", *_aligned(d, 1, 2, dtype=SINGLE), 2),
            ],
            FIRST,
            lambda d: (*_aligned(d), 4),
        ),
        Check(
            "memory",
            0,
            "beside q, k, v and o only lse is kept",
            "Memory that grows with the square of the length is what the tiles are there to avoid.",
            lambda d: [d.case("two heads", *_aligned(d, 2), 2, watch=("trace",))],
            (*FIRST, keeps_lse_alone),
        ),
    ),
)


@skeleton.solution
class SkeletonRight:
    """As the chapter has it."""

    @staticmethod
    def apply(q, k, v, block):
        return _Own.apply(q, k, v, False, block, block)[0]


def _aligned_mistake(caught_by: str, message: str, wrong: type[Parts]) -> None:
    """One of the mistakes above, as the chapter shows it."""

    def as_skeleton(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
        return wrong.apply(q, k, v, False, block, block)

    as_skeleton.__name__ = wrong.__name__
    skeleton.mistake(caught_by, message)(as_skeleton)


_aligned_mistake(
    "value",
    "Your tiles add exp(s) without taking a running maximum away first. It is right for small logits and overflows for "
    "large ones: exp(89) is inf in float32. Keep the maximum of each row so far, and rescale the sum and the output when "
    "it moves.",
    no_running_max,
)
for _wrong in (missing_d, overwritten, saves_p):
    _known = next(m for m in flash.mistakes if m.name == _wrong.__name__)
    _aligned_mistake(_known.caught_by, _known.message, _wrong)


TASKS = (tiled, flash)
CHAPTER = (skeleton,)
