# %% GatherRows
class GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(x, sizes, shared):
        rows = torch.cat([x[r, :sizes[r]] for r in range(len(sizes))])
        return torch.stack([rows] * len(sizes))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.sizes, ctx.shared = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, grad_output):
        grad = torch.zeros(ctx.shape, dtype=grad_output.dtype)
        start = 0
        for r in range(len(ctx.sizes)):
            grad[r, :ctx.sizes[r]] = grad_output[r, start:start + ctx.sizes[r]]
            start = start + ctx.sizes[r]
        return grad, None, None
