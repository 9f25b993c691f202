"""FlashSkeleton, which the chapter alone shows: lengths that the block divides, no mask."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from graders.judge.aspects import GRADIENT, gradient, value
from graders.judge.task import DOUBLE, SINGLE, Check, Draw, Mistake, Task
from graders.sets.flash_attention.common import attention, keeps_lse_alone, qkv
from graders.sets.flash_attention.flash_attention_mistakes import task as flash


def _aligned(d: Draw, *lead: int, dtype: torch.dtype = DOUBLE, size: float = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k and v of one shape, of length 8."""
    q, k, v = qkv(d, 8, 8, 4, 4, lead, dtype)
    return size * q, k, v


def _far_below(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return float32 q, k and v whose scores all lie far below 0."""
    q, k, v = _aligned(d, dtype=SINGLE)
    return -50 * (1 + q.abs()), 1 + k.abs(), v


# --- FlashSkeleton ----------------------------------------------------------------------------------------------------


skeleton = Task(
    "FlashSkeleton",
    "FlashSkeleton.apply(q, k, v, block)",
    reference=lambda q, k, v, block: attention(q, k, v),
    checks=(
        value(
            0,
            about="the output equals torch's, large scores too",
            cases=lambda d: [
                d.case("a matrix", *_aligned(d), 2, order=0),
                d.case("two heads", *_aligned(d, 2), 4, order=0),
                d.case("scores x 1000", *_aligned(d, 1, 2, size=1000), 2, order=0),
                d.case("float32, scores far below 0", *_far_below(d), 4, order=0),
                d.case("float32, scores x 50", *_aligned(d, dtype=SINGLE, size=50), 4, order=0),
            ],
        ),
        gradient(
            0,
            about="the gradients of q, k and v equal torch's; gradcheck",
            why="Backward computes each tile's weights again from lse, and adds up over all tiles.",
            cases=lambda d: [
                d.case("a matrix", *_aligned(d), 2),
                d.case("two heads", *_aligned(d, 2), 4),
                d.case("a batch of heads, float32", *_aligned(d, 1, 2, dtype=SINGLE), 2),
            ],
            gradcheck=lambda d: (*_aligned(d), 4),
        ),
        Check(
            "memory",
            0,
            about="beside q, k, v and o only lse is kept",
            why="Memory that grows with the square of the length is what the tiles are there to avoid.",
            cases=lambda d: [d.case("two heads", *_aligned(d, 2), 2, watch=("trace",))],
            looks=(*GRADIENT, keeps_lse_alone),
        ),
    ),
)


def tiled_forward(q, k, v, block):
    if not q.shape == k.shape == v.shape or q.shape[-2] % block:
        raise ValueError("q, k, v need one shape, N a multiple of block")
    outputs = []
    sums = []
    for qi in q.split(block, -2):
        m = torch.full_like(qi[..., :1], -torch.inf)
        ell = torch.zeros_like(m)
        acc = torch.zeros_like(qi)
        for kj, vj in zip(k.split(block, -2), v.split(block, -2), strict=True):
            s = qi @ kj.mT * q.shape[-1] ** -0.5
            new = torch.maximum(m, s.amax(-1, keepdim=True))
            c = torch.exp(m - new)
            p = torch.exp(s - new)
            ell = c * ell + p.sum(-1, keepdim=True)
            acc = c * acc + p @ vj
            m = new
        outputs.append(acc / ell)
        sums.append(m + ell.log())
    return torch.cat(outputs, -2).contiguous(), torch.cat(sums, -2).contiguous()


def tiled_backward(g, q, k, v, delta, lse, block):
    scale = q.shape[-1] ** -0.5
    dq = torch.zeros_like(q)
    dk = torch.zeros_like(k)
    dv = torch.zeros_like(v)
    for i in range(0, q.shape[-2], block):
        rows = slice(i, i + block)
        qi = q[..., rows, :]
        gi = g[..., rows, :]
        for j in range(0, k.shape[-2], block):
            keys = slice(j, j + block)
            kj = k[..., keys, :]
            vj = v[..., keys, :]
            p = torch.exp(qi @ kj.mT * scale - lse[..., rows, :])
            dp = gi @ vj.mT
            ds = p * (dp - delta[..., rows, :])
            dq[..., rows, :] += ds @ kj * scale
            dk[..., keys, :] += ds.mT @ qi * scale
            dv[..., keys, :] += p.mT @ gi
    return dq, dk, dv


class Tiles(Function):
    @staticmethod
    def forward(q, k, v, block):
        return tiled_forward(q, k, v, block)

    @staticmethod
    def setup_context(ctx, inputs, output):
        q, k, v, ctx.block = inputs
        o, lse = output
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.mark_non_differentiable(lse)

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        q, k, v, o, lse = ctx.saved_tensors
        delta = (g * o).sum(-1, keepdim=True)
        return *tiled_backward(g, q, k, v, delta, lse, ctx.block), None


@skeleton.solution
class SkeletonRight:
    """As the chapter has it: lse is an output of the inner Function, and apply hands on o alone."""

    @staticmethod
    def apply(q, k, v, block):
        return Tiles.apply(q, k, v, block)[0]


# --- Mistakes ---------------------------------------------------------------------------------------------------------


def as_in_flash(name: str, caught_by: str = "", message: str = "") -> None:
    """Add a mistake of FlashAttention, with the check and the words that it has there where no others are given."""
    known = next(m for m in flash.mistakes if m.name == name)

    def as_skeleton(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
        return known.operation(q, k, v, False, block, block)

    skeleton.mistakes.append(Mistake(name, caught_by or known.caught_by, message or known.message, as_skeleton))


as_in_flash(
    "no_running_max",
    "value",
    "Your tiles add exp(s) without taking a running maximum away first. It is right for small scores and overflows "
    "for large ones: exp(89) is inf in float32. Keep the maximum of each row so far, and rescale the sum and the "
    "output when it moves.",
)
as_in_flash("max_started_at_zero", "value")


class NotRescaled(Tiles):
    """The sum is rescaled when the maximum moves, the running output is not."""

    @staticmethod
    def forward(q, k, v, block):
        outputs = []
        _, lse = tiled_forward(q, k, v, block)
        for qi in q.split(block, -2):
            m = torch.full_like(qi[..., :1], -torch.inf)
            ell = torch.zeros_like(m)
            acc = torch.zeros_like(qi)
            for kj, vj in zip(k.split(block, -2), v.split(block, -2), strict=True):
                s = qi @ kj.mT * q.shape[-1] ** -0.5
                new = torch.maximum(m, s.amax(-1, keepdim=True))
                p = torch.exp(s - new)
                ell = torch.exp(m - new) * ell + p.sum(-1, keepdim=True)
                acc = acc + p @ vj
                m = new
            outputs.append(acc / ell)
        return torch.cat(outputs, -2), lse


@skeleton.mistake(
    "value",
    "You rescale the sum when the maximum moves, and not the running output: both are relative to the old maximum. "
    "acc = c * acc + p @ v.",
)
def output_not_rescaled(q, k, v, block):
    return NotRescaled.apply(q, k, v, block)[0]


class WithoutWeights(Tiles):
    """The gradient of the scores lacks its weights: dP - D."""

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        q, k, v, o, lse = ctx.saved_tensors
        scale = q.shape[-1] ** -0.5
        p = torch.exp(q @ k.mT * scale - lse)
        ds = g @ v.mT - (g * o).sum(-1, keepdim=True)
        return ds @ k * scale, ds.mT @ q * scale, p.mT @ g, None


@skeleton.mistake(
    "gradient",
    "Your gradient of the scores is dP - D. A key counts by its weight as well: dS = P * (dP - D), element by element.",
)
def weights_forgotten(q, k, v, block):
    return WithoutWeights.apply(q, k, v, block)[0]


for name in [
    "missing_d",
    "overwritten",
    "saves_p",
    "scale_missing",
    "d_of_the_tile",
    "d_without_the_output",
    "d_without_keepdim",
    "gradients_not_scaled",
    "dq_not_scaled",
    "dk_not_scaled",
    "dk_scaled_twice",
    "dq_scaled_twice",
    "dq_overwritten",
    "gradients_in_wrong_order",
    "upstream_ignored",
    "lse_without_sum",
    "lse_in_base_2",
    "lse_of_the_last_tile",
    "softmax_of_the_tile_in_backward",
    "nothing_returned",
    "no_function",
]:
    as_in_flash(name)

CHAPTER = (skeleton,)
