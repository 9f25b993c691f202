# %% tiled_attention
def tiled_attention(q, k, v, block):
    f = torch.promote_types(q.dtype, torch.float32)
    q = q.to(f)
    m = torch.full_like(q[..., :1], float("-inf"))
    total = torch.zeros_like(m)
    out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=f)
    for start in range(0, k.shape[-2], block):
        k_tile = k[..., start : start + block, :].to(f)
        v_tile = v[..., start : start + block, :].to(f)
        s = q @ k_tile.mT / q.shape[-1] ** 0.5
        m_new = torch.maximum(m, s.amax(-1, keepdim=True))
        p = torch.exp(s - m_new)
        shrink = torch.exp(m - m_new)
        total = total * shrink + p.sum(-1, keepdim=True)
        out = out * shrink + p @ v_tile
        m = m_new
    return (out / total).to(v.dtype)

# %% FlashAttention
class FlashAttention(torch.autograd.Function):
    @staticmethod
    def scores(q_tile, k_tile, i, j, causal):
        s = q_tile @ k_tile.mT / q_tile.shape[-1] ** 0.5
        if causal:
            row = torch.arange(i, i + s.shape[-2]).unsqueeze(1)
            col = torch.arange(j, j + s.shape[-1]).unsqueeze(0)
            s = s.masked_fill(col > row, float("-inf"))
        return s

    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        f = torch.promote_types(q.dtype, torch.float32)
        out = torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
        lse = torch.empty(*q.shape[:-1], 1, dtype=f)
        for i in range(0, q.shape[-2], block_q):
            q_tile = q[..., i : i + block_q, :].to(f)
            m = torch.full_like(q_tile[..., :1], float("-inf"))
            total = torch.zeros_like(m)
            o = torch.zeros(*q_tile.shape[:-1], v.shape[-1], dtype=f)
            for j in range(0, k.shape[-2], block_k):
                if causal and j >= i + block_q:
                    break
                s = FlashAttention.scores(q_tile, k[..., j : j + block_k, :].to(f), i, j, causal)
                m_new = torch.maximum(m, s.amax(-1, keepdim=True))
                p = torch.exp(s - m_new)
                shrink = torch.exp(m - m_new)
                total = total * shrink + p.sum(-1, keepdim=True)
                o = o * shrink + p @ v[..., j : j + block_k, :].to(f)
                m = m_new
            out[..., i : i + block_q, :] = o / total
            lse[..., i : i + block_q, :] = m + torch.log(total)
        ctx.q = q
        ctx.k = k
        ctx.v = v
        ctx.out = out
        ctx.lse = lse
        ctx.causal = causal
        ctx.block_q = block_q
        ctx.block_k = block_k
        return out

    @staticmethod
    def backward(ctx, grad_out):
        q, k, v = ctx.q, ctx.k, ctx.v
        f = ctx.lse.dtype
        grad_q = torch.zeros(q.shape, dtype=f)
        grad_k = torch.zeros(k.shape, dtype=f)
        grad_v = torch.zeros(v.shape, dtype=f)
        scale = q.shape[-1] ** -0.5
        for i in range(0, q.shape[-2], ctx.block_q):
            rows = slice(i, i + ctx.block_q)
            q_tile = q[..., rows, :].to(f)
            g_tile = grad_out[..., rows, :].to(f)
            d = (g_tile * ctx.out[..., rows, :].to(f)).sum(-1, keepdim=True)
            for j in range(0, k.shape[-2], ctx.block_k):
                if ctx.causal and j >= i + ctx.block_q:
                    break
                cols = slice(j, j + ctx.block_k)
                k_tile = k[..., cols, :].to(f)
                v_tile = v[..., cols, :].to(f)
                s = FlashAttention.scores(q_tile, k_tile, i, j, ctx.causal)
                p = torch.exp(s - ctx.lse[..., rows, :])
                ds = p * (g_tile @ v_tile.mT - d) * scale
                grad_q[..., rows, :] += ds @ k_tile
                grad_k[..., cols, :] += ds.mT @ q_tile
                grad_v[..., cols, :] += p.mT @ g_tile
        return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype), None, None, None
