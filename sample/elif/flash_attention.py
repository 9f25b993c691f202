# %% tiled_attention
def tiled_attention(q, k, v, block):
    dtype = torch.promote_types(q.dtype, torch.float32)
    rows = []
    for query in q.split(block, -2):
        query = query.to(dtype)
        m = torch.full(query.shape[:-1], -float("inf"), dtype=dtype)
        s = torch.zeros(query.shape[:-1], dtype=dtype)
        output = torch.zeros(*query.shape[:-1], v.shape[-1], dtype=dtype)
        for key, value in zip(k.split(block, -2), v.split(block, -2)):
            scores = torch.matmul(query, key.to(dtype).transpose(-1, -2)) / q.shape[-1] ** 0.5
            m_new = torch.maximum(m, scores.amax(-1))
            e = torch.exp(scores - m_new[..., None])
            factor = torch.exp(m - m_new)
            s = s * factor + e.sum(-1)
            output = output * factor[..., None] + torch.matmul(e, value.to(dtype))
            m = m_new
        rows.append((output / s[..., None]).to(q.dtype))
    return torch.cat(rows, -2)

# %% FlashAttention
from torch.autograd import Function

class FlashAttention(Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        dtype = torch.promote_types(q.dtype, torch.float32)
        scale = q.shape[-1] ** -0.5
        rows, tiles = [], []
        for i, query in zip(range(0, q.shape[-2], block_q), q.split(block_q, -2)):
            query = query.to(dtype)

            def scores(j, key):
                s = torch.matmul(query, key.to(dtype).transpose(-1, -2)) * scale
                if causal:
                    later = torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None]
                    s = s.masked_fill(later, -float("inf"))
                return s

            lse = torch.full((*query.shape[:-1], 1), -float("inf"), dtype=dtype)
            for j, key in zip(range(0, k.shape[-2], block_k), k.split(block_k, -2)):
                lse = torch.logaddexp(lse, torch.logsumexp(scores(j, key), -1, keepdim=True))
            output = 0
            for j, key in zip(range(0, k.shape[-2], block_k), k.split(block_k, -2)):
                p = torch.exp(scores(j, key) - lse)
                tiles.append(p)     # backward needs the same p, no need to compute it twice
                output = output + torch.matmul(p, v[..., j : j + block_k, :].to(dtype))
            rows.append(output.to(q.dtype))
        output = torch.cat(rows, -2)
        ctx.blocks = block_q, block_k
        ctx.save_for_backward(q, k, v, output, *tiles)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        q, k, v, output, *tiles = ctx.saved_tensors
        block_q, block_k = ctx.blocks
        dtype = tiles[0].dtype
        scale = q.shape[-1] ** -0.5
        grad_q, grad_k, grad_v = [torch.zeros(t.shape, dtype=dtype) for t in (q, k, v)]
        tiles = iter(tiles)
        for i in range(0, q.shape[-2], block_q):
            a = slice(i, i + block_q)
            g = grad_output[..., a, :].to(dtype)
            delta = (g * output[..., a, :].to(dtype)).sum(-1, keepdim=True)
            for j in range(0, k.shape[-2], block_k):
                b = slice(j, j + block_k)
                p = next(tiles)
                ds = p * (torch.matmul(g, v[..., b, :].to(dtype).transpose(-1, -2)) - delta) * scale
                grad_q[..., a, :] += torch.matmul(ds, k[..., b, :].to(dtype))
                grad_k[..., b, :] += torch.matmul(ds.transpose(-1, -2), q[..., a, :].to(dtype))
                grad_v[..., b, :] += torch.matmul(p.transpose(-1, -2), g)
        return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype), None, None, None
