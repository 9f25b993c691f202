# %% GatherRows
from torch.autograd import Function

class GatherRows(Function):
    @staticmethod
    def forward(ctx, x, sizes, shared):
        ctx.sizes, ctx.shared = sizes, shared
        ctx.save_for_backward(x)
        rows = torch.cat([x[r, :n] for r, n in enumerate(sizes)])
        return torch.stack([rows] * len(sizes))

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        g = grad_output if ctx.shared else grad_output.sum(0).expand_as(grad_output)
        out = torch.zeros_like(x)
        start = 0
        for r, n in enumerate(ctx.sizes):
            out[r, :n] = g[r, start:start + n]
            start += n
        return out, None, None

# %% VocabLoss
class VocabLoss(Function):
    @staticmethod
    def forward(ctx, logits, target):
        words = logits.shape[2]
        m = logits.amax(2).amax(0)
        lse = m + (logits - m[:, None]).exp().sum(2).sum(0).log()
        # only the owner has it
        right = logits[target // words, torch.arange(len(target)), target % words]
        ctx.save_for_backward(logits, target, lse)
        return lse - right

    @staticmethod
    def backward(ctx, grad_output):
        logits, target, lse = ctx.saved_tensors
        words = logits.shape[2]
        p = (logits - lse[:, None]).exp()
        one = torch.zeros_like(p)
        one[target // words, torch.arange(len(target)), target % words] = 1
        return grad_output[:, None] * (p - one), None
