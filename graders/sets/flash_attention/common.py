"""What the modules of set 10 share: torch's own attention, what is forbidden, looks at memory, inputs."""

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.looks import Finding, describe
from graders.judge.task import BRAIN, DOUBLE, HALF, SINGLE, Draw, operators

ATTENTION = "scaled_dot_product_attention"
DENIED = operators(
    f"{ATTENTION} _{ATTENTION}_math _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention _flash_attention_forward "
    "_efficient_attention_forward _flash_attention_backward _efficient_attention_backward"
)

FORBIDS = look.Forbids(
    "Attention is to be written tile by tile in torch: without scaled_dot_product_attention, torch's other attentions "
    "(as in torch.nn.attention) and other libraries, and without torch.autograd or torch.func in backward.",
    names=f"{ATTENTION} multi_head_attention_forward MultiheadAttention flex_attention Transformer "
    "TransformerEncoderLayer",
    paths=("torch.nn.attention",),
    foreign=True,
    backward=True,
)


def attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, block_q: int | None = None, block_k: int | None = None
) -> Tensor:
    """Return torch's own, computed in float32 at least and rounded once."""
    wide = torch.promote_types(q.dtype, SINGLE)
    return F.scaled_dot_product_attention(q.to(wide), k.to(wide), v.to(wide), is_causal=causal).to(q.dtype)


# --- What is seen of memory -------------------------------------------------------------------------------------------


def _sizes(case: Case) -> tuple[int, int, int]:
    """Return the most elements that one tensor of the caller has, those of all together, and those of one tile."""
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
                f"The {where} makes a tensor of {seen} elements. The largest of q, k, v and o has {most}, a tile "
                f"{tile}: what is larger grows with the product of the lengths."
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
            f"{yours.kept_bytes} bytes are kept for backward, as much as the scores of all queries with all keys. "
            "Keep lse, one number for each query, and compute each tile of P again from it."
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


def keeps_lse_alone(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Beside arguments and output, one number a row is kept for backward."""
    limit = 8 * case.args[0][..., 0].numel()
    if "trace" in case.watch and yours.kept_bytes > limit:
        text = (
            f"{yours.kept_bytes} bytes are kept for backward beside q, k, v and o. One number for each query, lse, is "
            f"{limit} bytes at most."
        )
        evidence = {"case": describe(call, case), "yours": f"{yours.kept_bytes} bytes", "expected": f"at most {limit}"}
        # where only the halves keep too much, and not copies of the arguments, mistakes are told apart by how much
        halves = case.args[0].dtype in (HALF, BRAIN) and yours.kept_arguments
        return Finding("bytes" if halves else "keeps", text, evidence)
    return None


# --- Inputs -----------------------------------------------------------------------------------------------------------


def qkv(
    d: Draw, n_q: int, n_k: int, dim: int = 3, dim_v: int = 2, lead: tuple = (), dtype: torch.dtype = DOUBLE
) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k and v."""
    return tuple(d.normal(*lead, *s, dtype=dtype) for s in ((n_q, dim), (n_k, dim), (n_k, dim_v)))


def layouts(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return heads made of a permuted projection, k with its axes turned, one v for all heads."""
    q = d.normal(2, 4, 2, 3).transpose(1, 2)
    k = d.normal(2, 2, 3, 5).mT
    return q, k, d.normal(2, 1, 5, 2).expand(2, 2, 5, 2)


def towards(d: Draw, keys: Tensor, n_q: int = 3, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k and v for which every query has about these scores."""
    q, k, v = qkv(d, n_q, len(keys), 2, 2)
    q[:, 0], k[:, 0] = math.sqrt(2), keys
    q[:, 1] *= 0.5
    return q.to(dtype), k.to(dtype), v.to(dtype)


def opposed(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries whose scores are near -3000, and one near 3000, in one tile."""
    q, k, v = qkv(d, 4, 5, 2, 3)
    q[:, 0], k[:, 0] = torch.tensor([-42.0, 42.0, 0.0, -42.0], dtype=DOUBLE), 100.0
    return q, k, v


def exact(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return what gives scores of -2^17 and a small number each, without any rounding (d = 4)."""
    q = torch.full((5, 4), 0.0, dtype=DOUBLE)
    k = q.clone()
    q[:, 0], k[:, 0] = -512.0, 512.0
    q[:, 1] = torch.tensor([1.0, 2.0, -1.0, 3.0, -2.0], dtype=DOUBLE)
    k[:, 1] = torch.tensor([1.0, -1.0, 0.0, 2.0, -0.5], dtype=DOUBLE)
    return q, k, d.normal(5, 2)


def far_in_half(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return products of q and k beyond what float16 holds; the last key wins everywhere."""
    q, k, v = qkv(d, 3, 5, 4, 2)
    q[:] = 220.0
    k[:] = 200.0 + 2 * torch.arange(5.0, dtype=DOUBLE).unsqueeze(-1)
    return q.half(), k.half(), v.half()


def alike(d: Draw, dtype: torch.dtype = BRAIN) -> tuple[Tensor, Tensor, Tensor]:
    """Return what gives scores near 90 that differ a little: rounded to bfloat16 they would lie half a unit apart."""
    q, k, v = qkv(d, 7, 6, 2, 2)
    q[:, 0], k[:, 0] = 11.3, 11.3
    return q.to(dtype), k.to(dtype), v.to(dtype)


def nearly_opposite(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return products that cancel: q scaled in bfloat16, before them, gives other scores."""
    q, k, v = qkv(d, 3, 6, 2, 2, dtype=BRAIN)
    q[:] = torch.tensor([[45.25, -45.0], [21.75, -22.0], [37.25, -37.5]])
    k[:], v[:, 0] = torch.arange(12.0, -12.0, -4.0).unsqueeze(-1), torch.tensor([1.0, 0, 0, 0, 0, 0])
    return q, k, v


def heavy() -> tuple[Tensor, Tensor, Tensor]:
    """Return forty equal values, whose sum is beyond what float16 holds, and whose mean is not."""
    return tuple(t.half() for t in (torch.zeros(1, 2), torch.zeros(40, 2), torch.full((40, 1), 2000.0)))


MANY = 32  # a sum in bfloat16 loses what is below 1/512 to 1/256 of it, so these lose up to a tenth


def many_keys() -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """Return a first key that counts as much as dozens of others together, each of which a sum in bfloat16 would lose.

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


def many_small(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return a first key with nearly all of the weight, and dozens of others whose values are large."""
    q, k, v = towards(d, torch.cat([torch.zeros(1, dtype=DOUBLE), torch.full((50,), -20.0, dtype=DOUBLE)]), 2)
    v[0], v[1:] = 0.0, 1e6 * d.between(0.5, 1, 50, 2)
    return q, k, v


def in_pairs(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return pairs of equal keys, whose values are large and nearly opposite."""
    q, k, v = qkv(d, 2, 6, 2, 2)
    k[1::2] = k[::2]
    v[::2] *= 1000
    v[1::2] -= v[::2]
    return q, k, v


def many_large() -> tuple[Tensor, Tensor, Tensor]:
    """Return values of which three in one tile add up to more than float16 holds."""
    return tuple(t.half() for t in (torch.zeros(2, 2), torch.zeros(8, 2), torch.full((8, 1), 30000.0)))


def far_below(d: Draw, dtype: torch.dtype = BRAIN) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores 40 below the first, and values so large that they count: a scale that is rounded is seen."""
    q, k, v = torch.zeros(2, 7), torch.zeros(6, 7), 1e17 * d.between(0.5, 1, 6, 2)
    q[:, 0], k[0, 0], v[0] = 8.0, 13.25, 0.0
    return q.to(dtype), k.to(dtype), v.to(dtype)


def far_above(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return a first query of which one score is 250, and others with moderate ones."""
    q, k, v = qkv(d, 3, 8, 2, 2)
    q[:, 0], k[:, 0] = -1.0, 0.0
    q[0] = torch.tensor([50 * math.sqrt(2), 0.0], dtype=DOUBLE)
    k[0, 0] = 5.0
    return q, k, v


def whole_numbers(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return one key, whose value is the output to the last bit."""
    q, k, _ = qkv(d, 2, 1)
    return q, k, torch.tensor([[3.0, -2.0]], dtype=DOUBLE)


def lopsided(d: Draw, *rest: object, order: int) -> list[Case]:
    """Return cases in which q, k or v is no even mixture (`Draw.lopsided`); with order 0 no gradient is asked.

    Where q is large k is small, and the other way round: the scores are moderate.
    """
    q, k, v = qkv(d, 2, 4, 2, 2)
    found = {
        "q": d.lopsided(lambda t: (t, k / 20, v, *rest), *q.shape, order=order),
        "k": d.lopsided(lambda t: (q / 20, t, v, *rest), *k.shape, order=order),
        "v": d.lopsided(lambda t: (q, k, t, *rest), *v.shape, order=order),
    }
    cases = [replace(c, name=f"{name}: {c.name}") for name, some in found.items() for c in some]
    return cases if order else [replace(c, requires_grad=(False,) * len(c.args)) for c in cases]


def forward_only(d: Draw, name: str, tensors: tuple, *rest: object, **options: object) -> Case:
    """Return a call of which no gradient is asked."""
    return d.case(name, *tensors, *rest, order=0, requires=(False,) * (3 + len(rest)), **options)
