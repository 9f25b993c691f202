# %% LogSumExp
class LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(x, dim, keepdim=False):
        m = x.amax(dim, keepdim=True)
        m = m.masked_fill(m.isinf(), 0)
        s = torch.exp(x - m).sum(dim, keepdim=True)
        y = m + torch.log(s)
        if not keepdim:
            y = y.reshape(x.sum(dim).shape)
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.dim, _ = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        shape = x.sum(ctx.dim, keepdim=True).shape
        # derivative of logsumexp is softmax
        return torch.exp(x - y.reshape(shape)), None, None

# %% online_logsumexp
def online_logsumexp(chunks):
    m = s = None
    for c in chunks:
        if m is None:
            m, s = c.new_full((), -inf), c.new_zeros(())
        new = torch.maximum(m, c.max())
        shift = new if new.isfinite() else torch.zeros_like(new)
        s = s * torch.exp(m - shift) + torch.exp(c - shift).sum()
        m = new
    if m.isinf():
        return m
    return m + s.log()

# %% StreamedSoftmax
class StreamedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(x, size):
        m = s = None
        for c in x.split(size, -1):
            new = c.amax(-1, keepdim=True)
            if m is None:
                m, s = torch.full_like(new, -inf), torch.zeros_like(new)
            new = torch.maximum(m, new)
            shift = new.masked_fill(new.isinf(), 0)
            s = s * torch.exp(m - shift) + torch.exp(c - shift).sum(-1, keepdim=True)
            m = new
        y = torch.zeros_like(x)
        for i in range(0, x.shape[-1], size):
            y[..., i:i + size] = torch.exp(x[..., i:i + size] - m) / s
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.size = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        p, = ctx.saved_tensors
        grad = torch.zeros_like(p)
        for i in range(0, p.shape[-1], ctx.size):
            # derivative of softmax is p (1 - p)
            q = p[..., i:i + ctx.size]
            grad[..., i:i + ctx.size] = q * (1 - q)
        return grad, None

# %% CrossEntropy
class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(logits, target):
        logp = torch.log_softmax(logits, dim=1)
        return -logp.gather(1, target[:, None]).mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        logits, target = ctx.saved_tensors
        n, c = logits.shape
        # softmax - one hot
        return (torch.softmax(logits, dim=1) - F.one_hot(target, c)) / n, None
