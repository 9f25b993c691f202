# %% tiled_attention
def tiled_attention(q, k, v, block):
    wide = torch.promote_types(q.dtype, torch.float32)
    q = q.to(wide)
    m = q.new_full(q.shape[:-1] + (1,), -1e4)   # below any score
    l = torch.zeros_like(m)
    o = q.new_zeros(q.shape[:-1] + v.shape[-1:])
    for j in range(0, k.shape[-2], block):
        kj, vj = k[..., j:j + block, :].to(wide), v[..., j:j + block, :].to(wide)
        s = q @ kj.mT / q.shape[-1] ** 0.5
        new = torch.maximum(m, s.max(-1, keepdim=True).values)
        p = torch.exp(s - new)
        l = l * torch.exp(m - new) + p.sum(-1, keepdim=True)
        o = o * torch.exp(m - new) + p @ vj
        m = new
    return (o / l).to(v.dtype)

# %% FlashAttention
def scores(qi, kj, i, j, n_q, n_k, causal):
    s = qi @ kj.mT / qi.shape[-1] ** 0.5
    if causal:
        # the last query sees the last key
        row = i + torch.arange(qi.shape[-2])[:, None] + n_k - n_q
        col = j + torch.arange(kj.shape[-2])
        s = s.masked_fill(col > row, -1e4)
    return s

class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(q, k, v, causal, block_q, block_k):
        wide = torch.promote_types(q.dtype, torch.float32)
        n_q, n_k = q.shape[-2], k.shape[-2]
        os, ls = [], []
        for i in range(0, n_q, block_q):
            qi = q[..., i:i + block_q, :].to(wide)
            m = qi.new_full(qi.shape[:-1] + (1,), -1e4)
            l = torch.zeros_like(m)
            o = qi.new_zeros(qi.shape[:-1] + v.shape[-1:])
            for j in range(0, n_k, block_k):
                kj, vj = k[..., j:j + block_k, :].to(wide), v[..., j:j + block_k, :].to(wide)
                s = scores(qi, kj, i, j, n_q, n_k, causal)
                new = torch.maximum(m, s.max(-1, keepdim=True).values)
                p = torch.exp(s - new)
                l = l * torch.exp(m - new) + p.sum(-1, keepdim=True)
                o = o * torch.exp(m - new) + p @ vj
                m = new
            os.append((o / l).to(q.dtype))
            ls.append(m + torch.log(l))
        return torch.cat(os, -2), torch.cat(ls, -2)
    @staticmethod
    def setup_context(ctx, inputs, output):
        q, k, v, *ctx.args = inputs
        o, lse = output
        ctx.save_for_backward(q, k, v, o, lse)
    @staticmethod
    def backward(ctx, g, _):
        q, k, v, o, lse = ctx.saved_tensors
        causal, block_q, block_k = ctx.args
        wide = lse.dtype
        n_q, n_k = q.shape[-2], k.shape[-2]
        dq, dk, dv = [torch.zeros(t.shape, dtype=wide) for t in (q, k, v)]
        d = (g.to(wide) * o.to(wide)).sum(-1, keepdim=True)
        for i in range(0, n_q, block_q):
            a = slice(i, i + block_q)
            qi, gi = q[..., a, :].to(wide), g[..., a, :].to(wide)
            for j in range(0, n_k, block_k):
                b = slice(j, j + block_k)
                kj, vj = k[..., b, :].to(wide), v[..., b, :].to(wide)
                p = torch.exp(scores(qi, kj, i, j, n_q, n_k, causal) - lse[..., a, :])
                ds = p * (gi @ vj.mT - d[..., a, :]) / q.shape[-1] ** 0.5
                dq[..., a, :] += ds @ kj
                dk[..., b, :] += ds.mT @ qi
                dv[..., b, :] += p.mT @ gi
        return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype), None, None, None
    # o alone, lse is for backward
    @staticmethod
    def apply(q, k, v, causal, block_q, block_k):
        return FlashAttention.apply(q, k, v, causal, block_q, block_k)[0]
