# %% Binarize
class Binarize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        out = torch.ones_like(x)
        out[x < 0] = -1
        return out

    @staticmethod
    def backward(ctx, grad_out):
        return torch.where(ctx.x.abs() <= 1, grad_out, torch.zeros_like(grad_out))

# %% GradientReversal
class GradientReversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.clone()

    @staticmethod
    def backward(ctx, grad_out):
        return -ctx.alpha * grad_out, None

# %% round_ste
def round_ste(x):
    return x + (x.round() - x).detach()
