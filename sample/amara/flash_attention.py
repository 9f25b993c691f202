# %% tiled_attention
def tiled_attention(q, k, v, block):
    # twice over the keys: first the lse of each query, then the weights, which are right at once
    wide = torch.promote_types(q.dtype, torch.float32)
    scaled = q.to(wide) / q.shape[-1] ** 0.5
    lse = scaled.new_full(q.shape[:-1] + (1,), -torch.inf)
    for k_j in k.split(block, -2):
        s = scaled @ k_j.to(wide).mT
        lse = torch.logaddexp(lse, s.logsumexp(-1, keepdim=True))
    o = 0
    for k_j, v_j in zip(k.split(block, -2), v.split(block, -2)):
        p = torch.exp(scaled @ k_j.to(wide).mT - lse)
        o = o + p @ v_j.to(wide)
    return o.to(q.dtype)

# %% FlashAttention
def cut(t, start, size):
    """Rows start..start + size, or up to the end, in float32 or wider."""
    return t[..., start : start + size, :].to(torch.promote_types(t.dtype, torch.float32))


def tile(q_i, k_j, causal, i, j):
    """Scores whose first query is i and whose first key is j; -inf where a key lies behind its query."""
    s = q_i @ k_j.mT * q_i.shape[-1] ** -0.5
    if causal:
        query = torch.arange(i, i + s.shape[-2])[:, None]
        s = s.masked_fill(torch.arange(j, j + s.shape[-1]) > query, -torch.inf)
    return s


class Tiles(torch.autograd.Function):
    """q (..., N_q, d), k (..., N_k, d), v (..., N_k, d_v) -> o (..., N_q, d_v) and lse, one number a query."""

    @staticmethod
    def forward(q, k, v, causal, block_q, block_k):
        rows, sums = [], []
        for i in range(0, q.shape[-2], block_q):
            q_i = cut(q, i, block_q)
            m = q_i.new_full(q_i.shape[:-1] + (1,), -torch.inf)
            total, o_i = torch.zeros_like(m), 0
            for j in range(0, k.shape[-2], block_k):
                s = tile(q_i, cut(k, j, block_k), causal, i, j)
                new = torch.maximum(m, s.amax(-1, keepdim=True))  # key 0 comes first: finite from then on
                p, old = torch.exp(s - new), torch.exp(m - new)
                total = old * total + p.sum(-1, keepdim=True)
                o_i = old * o_i + p @ cut(v, j, block_k)
                m = new
            rows.append((o_i / total).to(q.dtype))
            sums.append(m + total.log())
        return torch.cat(rows, -2), torch.cat(sums, -2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        q, k, v, *ctx.rest = inputs
        o, lse = output
        ctx.mark_non_differentiable(lse)
        ctx.save_for_backward(q, k, v, o, lse)

    @staticmethod
    def backward(ctx, grad_o, grad_lse):
        q, k, v, o, lse = ctx.saved_tensors
        causal, block_q, block_k = ctx.rest
        dq, dk, dv = (torch.zeros_like(t, dtype=lse.dtype) for t in (q, k, v))
        scale = q.shape[-1] ** -0.5
        # keys outside, queries inside: dk and dv of a block are complete when its turn is over
        for j in range(0, k.shape[-2], block_k):
            k_j, v_j = cut(k, j, block_k), cut(v, j, block_k)
            for i in range(0, q.shape[-2], block_q):
                q_i, g_i = cut(q, i, block_q), cut(grad_o, i, block_q)
                p = torch.exp(tile(q_i, k_j, causal, i, j) - cut(lse, i, block_q))
                d = (g_i * cut(o, i, block_q)).sum(-1, keepdim=True)
                ds = p * (g_i @ v_j.mT - d) * scale
                dq[..., i : i + block_q, :] += ds @ k_j
                dk[..., j : j + block_k, :] += ds.mT @ q_i
                dv[..., j : j + block_k, :] += p.mT @ g_i
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None


class FlashAttention:
    """Attention whose memory grows as the lengths, not as their product."""

    @staticmethod
    def apply(q, k, v, causal, block_q, block_k):
        return Tiles.apply(q, k, v, causal, block_q, block_k)[0]
