# %% LogSumExp
from torch.autograd import Function

class LogSumExp(Function):
    @staticmethod
    def forward(ctx, input, dim, keepdim=False):
        m = input.amax(dim, keepdim=True)
        m = torch.where(torch.isinf(m), torch.zeros_like(m), m)
        e = torch.exp(input - m)
        s = e.sum(dim, keepdim=True)
        # backward is the softmax, and e and s are there already
        ctx.save_for_backward(e / s)
        ctx.kept = s.shape
        output = torch.log(s) + m
        return output if keepdim else output.reshape(input.sum(dim).shape)

    @staticmethod
    def backward(ctx, grad_output):
        softmax, = ctx.saved_tensors
        return grad_output.reshape(ctx.kept) * softmax, None, None

# %% online_logsumexp
def online_logsumexp(chunks):
    chunks = iter(chunks)
    chunk = next(chunks)
    m = chunk.max()
    s = torch.exp(chunk - torch.where(torch.isinf(m), torch.zeros_like(m), m)).sum()
    for chunk in chunks:
        m_new = torch.maximum(m, chunk.max())
        shift = torch.where(torch.isinf(m_new), torch.zeros_like(m_new), m_new)
        s = s * torch.exp(m - shift) + torch.exp(chunk - shift).sum()
        m = m_new
    return m + torch.log(s)

# %% StreamedSoftmax
class StreamedSoftmax(Function):
    @staticmethod
    def forward(ctx, input, size):
        m = None
        for piece in input.split(size, -1):
            m_new = piece.amax(-1, keepdim=True)
            if m is not None:
                m_new = torch.maximum(m, m_new)
            shift = torch.where(torch.isinf(m_new), torch.zeros_like(m_new), m_new)
            part = torch.exp(piece - shift).sum(-1, keepdim=True)
            s = part if m is None else s * torch.exp(m - shift) + part
            m = m_new
        output = torch.cat([torch.exp(piece - m) / s for piece in input.split(size, -1)], -1)
        ctx.save_for_backward(output)
        ctx.size = size
        return output

    @staticmethod
    def backward(ctx, grad_output):
        output, = ctx.saved_tensors
        pairs = list(zip(output.split(ctx.size, -1), grad_output.split(ctx.size, -1)))
        D = sum((p * v).sum(-1, keepdim=True) for p, v in pairs)
        return torch.cat([p * (v - D) for p, v in pairs], -1), None

# %% CrossEntropy
class CrossEntropy(Function):
    @staticmethod
    def forward(ctx, logits, target):
        log_p = F.log_softmax(logits, dim=1)
        n = logits.shape[0]
        # softmax minus one-hot, divided by N: all that backward needs
        d = log_p.exp()
        d[torch.arange(n), target] -= 1
        ctx.save_for_backward(d / n)
        return -log_p[torch.arange(n), target].mean()

    @staticmethod
    def backward(ctx, grad_output):
        d, = ctx.saved_tensors
        return grad_output * d, None
