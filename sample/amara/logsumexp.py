# %% LogSumExp
class LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(x, dim, keepdim=False):
        e, top = LogSumExp.shifted(x, dim)
        y = e.sum(dim, keepdim=True).log() + top
        return y if keepdim else y.reshape(x.sum(dim).shape)

    @staticmethod
    def shifted(x, dim):
        """exp(x - top) and top, the maximum of each row; 0 in its place where it is infinite, since inf - inf is nan."""
        top = x.detach().amax(dim, keepdim=True)
        top = torch.where(top.isinf(), 0, top)
        return torch.exp(x - top), top

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.dim = inputs[:2]
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        # x alone: the result does not depend on the shift, so top may be a constant in double backward
        e, top = LogSumExp.shifted(x, ctx.dim)
        p = e / e.sum(ctx.dim, keepdim=True)
        return grad_output.reshape(top.shape) * p, None, None

# %% online_logsumexp
from functools import reduce


def state(chunk):
    """A maximum, and the sum of exponentials relative to it (relative to 0 if it is infinite)."""
    top = chunk.max()
    return top, torch.exp(chunk - torch.where(top.isinf(), 0, top)).sum()


def merge(a, b):
    top = torch.maximum(a[0], b[0])
    shift = torch.where(top.isinf(), 0, top)
    return top, a[1] * torch.exp(a[0] - shift) + b[1] * torch.exp(b[0] - shift)


def online_logsumexp(chunks):
    top, total = reduce(merge, map(state, chunks))
    return top + torch.log(total)

# %% StreamedSoftmax
class StreamedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(x, size):
        top = total = None
        for piece in x.split(size, dim=-1):
            new = piece.amax(-1, keepdim=True)
            new = new if top is None else torch.maximum(top, new)
            shift = torch.where(new.isinf(), 0, new)
            old = 0 if top is None else total * torch.exp(top - shift)
            top, total = new, old + torch.exp(piece - shift).sum(-1, keepdim=True)
        y = torch.empty_like(x)
        for at in StreamedSoftmax.pieces(x, size):
            # not exp(x - lse): a large lse is rounded, top is not
            y[..., at] = torch.exp(x[..., at] - top) / total
        return y

    @staticmethod
    def pieces(x, size):
        return [slice(i, i + size) for i in range(0, x.shape[-1], size)]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.size = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        pieces = StreamedSoftmax.pieces(p, ctx.size)
        d = sum((p[..., at] * grad_output[..., at]).sum(-1, keepdim=True) for at in pieces)
        grad = torch.empty_like(p)
        for at in pieces:
            grad[..., at] = p[..., at] * (grad_output[..., at] - d)
        return grad, None

# %% CrossEntropy
class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(logits, target):
        log_p = torch.log_softmax(logits, 1)
        return -log_p[torch.arange(len(target)), target].mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        logits, target = ctx.saved_tensors
        p = torch.softmax(logits, 1)
        y = torch.zeros_like(p).scatter(1, target[:, None], 1)
        return grad_output * (p - y) / len(target), None
