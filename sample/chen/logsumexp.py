# %% LogSumExp
# log sum exp(x) = m + log sum exp(x - m) for any m; with m the largest x of the row no exp is above 1.
class LogSumExp(torch.autograd.Function):
    """log(sum(exp(x))) over dim, one axis or several."""

    @staticmethod
    def forward(x, dim, keepdim=False):
        m = x.amax(dim, keepdim=True)
        # a row of nothing but -inf: -inf - -inf is nan, so shift such a row by 0
        shift = m.masked_fill(m == -inf, 0)
        y = shift + (x - shift).exp().sum(dim, keepdim=True).log()
        return y if keepdim else y.reshape(x.sum(dim).shape)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.dim, _ = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        # the shape with the axes kept, whether the caller kept them or not
        shape = x.sum(ctx.dim, keepdim=True).shape
        gx = g.reshape(shape) * (x - y.reshape(shape)).exp() if ctx.needs_input_grad[0] else None
        return gx, None, None

# %% online_logsumexp
def online_logsumexp(chunks):
    """m: largest number so far; s: sum of exp(x - m) so far. The same guard as above for chunks of -inf."""
    m, s = None, None
    for chunk in chunks:
        top = chunk.max()
        new = top if m is None else torch.maximum(m, top)
        if new == -inf:
            m, s = new, chunk.new_zeros(())
            continue
        old = 0 if m is None else s * (m - new).exp()
        m, s = new, old + (chunk - new).exp().sum()
    return m + s.log()

# %% StreamedSoftmax
class StreamedSoftmax(torch.autograd.Function):
    """One pass for logsumexp of each row, a second one for exp(x - logsumexp)."""

    @staticmethod
    def forward(x, size):
        m, s = None, None
        for piece in x.split(size, dim=-1):
            top = piece.amax(-1, keepdim=True)
            new = top if m is None else torch.maximum(m, top)
            shift = new.masked_fill(new == -inf, 0)
            old = 0 if m is None else s * (m - shift).exp()
            m, s = new, old + (piece - shift).exp().sum(-1, keepdim=True)
        lse = m + s.log()
        out = torch.empty_like(x)
        for i in range(0, x.shape[-1], size):
            out[..., i:i + size] = (x[..., i:i + size] - lse).exp()
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.size = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        size, n = ctx.size, p.shape[-1]
        # all of D before the first piece's gradient
        d = 0
        for i in range(0, n, size):
            d = d + (p[..., i:i + size] * g[..., i:i + size]).sum(-1, keepdim=True)
        out = torch.empty_like(p)
        for i in range(0, n, size):
            out[..., i:i + size] = p[..., i:i + size] * (g[..., i:i + size] - d)
        return out, None

# %% CrossEntropy
class CrossEntropy(torch.autograd.Function):
    """Mean of logsumexp(row) - row[target]; softmax minus one-hot in backward."""

    @staticmethod
    def forward(logits, target):
        # -log softmax(x)[t] = logsumexp(x) - x[t], and torch's logsumexp is stable
        at_target = logits.gather(1, target.unsqueeze(1)).squeeze(1)
        return (torch.logsumexp(logits, dim=1) - at_target).mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        n, c = logits.shape
        return g / n * (torch.softmax(logits, dim=1) - F.one_hot(target, c)), None
