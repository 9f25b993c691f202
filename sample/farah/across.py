# %% GatherRows
class GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(x, sizes, shared):
        rows = torch.cat([x[r, :n] for r, n in enumerate(sizes)])
        return torch.stack([rows] * len(sizes))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.sizes, ctx.shared = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, grad_output):
        grad = grad_output.new_zeros(ctx.shape)
        total = grad_output[0]
        if not ctx.shared:
            for g in grad_output[1:]:
                total += g
        start = 0
        for r, n in enumerate(ctx.sizes):
            mine = grad_output[r] if ctx.shared else total
            grad[r, :n] = mine[start : start + n]
            start += n
        return grad, None, None

# %% VocabLoss
class VocabLoss(torch.autograd.Function):
    @staticmethod
    def forward(logits, target):
        m = logits.amax((0, 2))
        lse = m + (logits - m[:, None]).exp().sum((0, 2)).log()
        words = torch.arange(logits.shape[0] * logits.shape[2]).view(logits.shape[0], 1, -1)
        return lse - torch.where(words == target[:, None], logits, 0).sum((0, 2))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        logits, target = ctx.saved_tensors
        m = logits.amax((0, 2))
        e = (logits - m[:, None]).exp()
        p = e / e.sum((0, 2))[:, None]
        # the target is on its rank
        at = target % logits.shape[2]
        y = (at[:, None] == torch.arange(logits.shape[2])).to(p.dtype)
        return grad_output[:, None] * (p - y), None
