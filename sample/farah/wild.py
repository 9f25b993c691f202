# %% RowNorm
class RowNorm(torch.autograd.Function):
    @staticmethod
    def forward(x):
        m = x.abs().amax(-1, keepdim=True)
        m = torch.where(m == 0, 1, m)
        return (x / m).square().sum(-1).sqrt() * m.squeeze(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        y[y == 0] = 1
        return grad_output.unsqueeze(-1) * (x / y.unsqueeze(-1))

# %% Normalize
class Normalize(torch.autograd.Function):
    @staticmethod
    def forward(x, eps):
        return x / x.norm(dim=-1, keepdim=True).clamp(min=eps)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.eps = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        n = x.norm(dim=-1, keepdim=True).clamp(min=ctx.eps)
        y = x / n
        return (grad_output - y * (y * grad_output).sum(-1, keepdim=True)) / n, None
