# %% RowNorm
from torch.autograd import Function

class RowNorm(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.norm(dim=-1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        y = y.unsqueeze(-1)
        # no nan where the row is 0
        return grad_output.unsqueeze(-1) * torch.where(y > 0, x / y, torch.zeros_like(x))

# %% Normalize
class Normalize(Function):
    @staticmethod
    def forward(ctx, x, eps):
        n = x.norm(dim=-1, keepdim=True)
        ctx.eps = eps
        ctx.save_for_backward(x, n)
        return x / n.clamp(min=eps)

    @staticmethod
    def backward(ctx, grad_output):
        x, n = ctx.saved_tensors
        long = n > ctx.eps
        n = torch.where(long, n, 1)
        y = x / n
        g = (grad_output - y * (y * grad_output).sum(-1, keepdim=True)) / n
        return torch.where(long, g, grad_output / ctx.eps), None
