"""A right FlashAttention in steps, for the mistakes to change one of them."""

import math

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

Pair = tuple[Tensor, Tensor]
Triple = tuple[Tensor, Tensor, Tensor]


class Run(Function):
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
    """FlashAttention, as ``apply``, and tiled_attention, as ``tiled``.

    Of a tile, i and j are the places of its first query and key, rows and columns their numbers. Of a block of queries,
    m is the running maximum, total and acc are the sums of the weights and of the weighted values.
    """

    @classmethod
    def apply(cls, q, k, v, causal, block_q, block_k):
        return Run.apply(cls, q, k, v, causal, block_q, block_k)[0]

    @classmethod
    def tiled(cls, q, k, v, block):
        return cls.forward(q, k, v, False, block, block)[0]

    # both passes

    @staticmethod
    def wide(dtype: torch.dtype) -> torch.dtype:
        """Return the dtype to compute in."""
        return torch.promote_types(dtype, torch.float32)

    @staticmethod
    def scale(q: Tensor, v: Tensor) -> float:
        """Return the factor of the scores."""
        return q.shape[-1] ** -0.5

    @staticmethod
    def keys(q: Tensor, k: Tensor, i: int, causal: bool, block_q: int, block_k: int) -> range | list[int]:
        """Return where the tiles begin that this block of queries needs."""
        return range(0, min(k.shape[-2], i + block_q) if causal else k.shape[-2], block_k)

    @staticmethod
    def hidden(i: int, rows: int, j: int, columns: int, q: Tensor, k: Tensor) -> Tensor:
        """Return which scores of a tile are masked."""
        return torch.arange(j, j + columns) > torch.arange(i, i + rows)[:, None]

    @staticmethod
    def hidden_score() -> float:
        """Return the score of a key that a query does not see."""
        return -math.inf

    @staticmethod
    def product(q_i: Tensor, k_j: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
        """Return the scores of a tile, unmasked; dtype is that of the arguments, not of the tile."""
        return scale * (q_i @ k_j.mT)

    @classmethod
    def scores(cls, q_i, k_j, i, j, causal, scale, q, k):
        s = cls.product(q_i, k_j, scale, q.dtype)
        if causal:
            s = s.masked_fill(cls.hidden(i, s.shape[-2], j, s.shape[-1], q, k), cls.hidden_score())
        return s

    # forward

    @staticmethod
    def result(q: Tensor, v: Tensor) -> Tensor:
        """Return what the output is written into."""
        return q.new_zeros(*q.shape[:-1], v.shape[-1])

    @staticmethod
    def start() -> float:
        """Return the running maximum before the first tile."""
        return -math.inf

    @staticmethod
    def maximum(m: Tensor, s: Tensor) -> Tensor:
        """Return the running maximum after one more tile."""
        return torch.maximum(m, s.amax(-1, keepdim=True))

    @staticmethod
    def rescaled(shrink: Tensor, total: Tensor, acc: Tensor) -> Pair:
        """Return both sums as they are with the new maximum."""
        return shrink * total, shrink * acc

    @staticmethod
    def weighted(p: Tensor, v_j: Tensor) -> Tensor:
        """Return what a tile adds to the output."""
        return p @ v_j

    @classmethod
    def step(cls, m, total, acc, s, v_j):
        """Return the state after one more tile."""
        new = cls.maximum(m, s)
        p = torch.exp(s - new)
        total, acc = cls.rescaled(torch.exp(m - new), total, acc)
        return new, total + p.sum(-1, keepdim=True), acc + cls.weighted(p, v_j)

    @staticmethod
    def kept(m: Tensor, total: Tensor, acc: Tensor, dtype: torch.dtype) -> Triple:
        """Return the state as it goes on to the next tile."""
        return m, total, acc

    @staticmethod
    def finish(acc: Tensor, total: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the output of a block of queries, to be rounded to this dtype."""
        return acc / total

    @staticmethod
    def lse(m: Tensor, total: Tensor) -> Tensor:
        """Return the one number a row that backward needs."""
        return m + total.log()

    @classmethod
    def forward(cls, q, k, v, causal, block_q, block_k):
        wide, scale = cls.wide(q.dtype), cls.scale(q, v)
        o, rows = cls.result(q, v), []
        for i in range(0, q.shape[-2], block_q):
            q_i = q[..., i : i + block_q, :].to(wide)
            m = torch.full_like(q_i[..., :1], cls.start())
            total, acc = torch.zeros_like(m), torch.zeros_like(o[..., i : i + block_q, :], dtype=wide)
            for j in cls.keys(q, k, i, causal, block_q, block_k):
                k_j, v_j = (t[..., j : j + block_k, :].to(wide) for t in (k, v))
                s = cls.scores(q_i, k_j, i, j, causal, scale, q, k)
                m, total, acc = cls.kept(*cls.step(m, total, acc, s, v_j), q.dtype)
            o[..., i : i + block_q, :] = cls.finish(acc, total, q.dtype)
            rows.append(cls.lse(m, total))
        return o, torch.cat(rows, -2)

    # backward

    @staticmethod
    def save(ctx, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor) -> None:
        """Keep what backward needs."""
        ctx.save_for_backward(q, k, v, o, lse)

    @staticmethod
    def saved(ctx) -> tuple[Tensor, ...]:
        """Return what was kept, q, k, v, o and lse first."""
        return ctx.saved_tensors

    @staticmethod
    def queries(q: Tensor, k: Tensor, causal: bool, block_q: int) -> range:
        """Return where the blocks of queries begin that backward goes through."""
        return range(0, q.shape[-2], block_q)

    @staticmethod
    def delta(g_i: Tensor, o_i: Tensor) -> Tensor:
        """Return D of a block of queries."""
        return (g_i * o_i).sum(-1, keepdim=True)

    @staticmethod
    def through_values(g_i: Tensor, v_j: Tensor) -> Tensor:
        """Return dP of a tile."""
        return g_i @ v_j.mT

    @classmethod
    def weights(cls, q_i, k_j, i, j, causal, scale, q, k, lse_i):
        """Return P of a tile."""
        return torch.exp(cls.scores(q_i, k_j, i, j, causal, scale, q, k) - lse_i)

    @staticmethod
    def through_softmax(p: Tensor, dp: Tensor, delta: Tensor) -> Tensor:
        """Return dS of a tile, unscaled."""
        return p * (dp - delta)

    @staticmethod
    def gradients(ds: Tensor, p: Tensor, q_i: Tensor, k_j: Tensor, g_i: Tensor, scale: float) -> Triple:
        """Return what a tile adds to the gradients of q, k and v."""
        return scale * ds @ k_j, scale * ds.mT @ q_i, p.mT @ g_i

    @staticmethod
    def write(dq_i: Tensor, dk_j: Tensor, dv_j: Tensor, parts: Triple) -> None:
        """Add what a tile adds."""
        for whole, part in zip((dq_i, dk_j, dv_j), parts, strict=True):
            whole += part

    @staticmethod
    def sums(dtype: torch.dtype, wide: torch.dtype) -> torch.dtype:
        """Return the dtype in which gradients add up."""
        return wide

    @classmethod
    def backward(cls, ctx, g):
        q, k, v, o, lse, *_ = cls.saved(ctx)
        causal, block_q, block_k = ctx.rest
        wide, scale = cls.wide(q.dtype), cls.scale(q, v)
        dq, dk, dv = (torch.zeros(t.shape, dtype=cls.sums(q.dtype, wide)) for t in (q, k, v))
        for i in cls.queries(q, k, causal, block_q):
            q_i, g_i, o_i, lse_i = (t[..., i : i + block_q, :].to(wide) for t in (q, g, o, lse))
            delta = cls.delta(g_i, o_i)
            for j in cls.keys(q, k, i, causal, block_q, block_k):
                k_j, v_j = (t[..., j : j + block_k, :].to(wide) for t in (k, v))
                p = cls.weights(q_i, k_j, i, j, causal, scale, q, k, lse_i)
                ds = cls.through_softmax(p, cls.through_values(g_i, v_j), delta)
                there = dq[..., i : i + block_q, :], dk[..., j : j + block_k, :], dv[..., j : j + block_k, :]
                cls.write(*there, cls.gradients(ds, p, q_i, k_j, g_i, scale))
        return tuple(d.to(t.dtype) for d, t in ((dq, q), (dk, k), (dv, v)))
