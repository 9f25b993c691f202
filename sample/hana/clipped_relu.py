# %% MulConstant
class MulConstant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, c):
        ctx.c = c
        return x.mul(c)

    @staticmethod
    def backward(ctx, grad):
        return grad.mul(ctx.c)

# %% ClippedReLU
class ClippedReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, clip):
        ctx.save_for_backward(x)
        return x.clamp(0, clip)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad.masked_fill(x <= 0, 0), None

# %% PACT
class PACT(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x, alpha)
        return torch.min(x.relu(), alpha)

    @staticmethod
    def backward(ctx, grad):
        x, alpha = ctx.saved_tensors
        above = x >= alpha
        grad_x = grad.masked_fill((x <= 0) | above, 0)
        return grad_x, grad.masked_fill(~above, 0)
