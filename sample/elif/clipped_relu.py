# %% MulConstant
from torch.autograd import Function

class MulConstant(Function):
    @staticmethod
    def forward(ctx, x, c):
        ctx.c = c
        return x * c

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.c, None

# %% ClippedReLU
class ClippedReLU(Function):
    @staticmethod
    def forward(ctx, x, clip):
        inside = (x > 0) & (x < clip)
        ctx.save_for_backward(inside)   # a bool mask is smaller than x
        return x.clamp(0, clip)

    @staticmethod
    def backward(ctx, grad_output):
        inside, = ctx.saved_tensors
        return torch.where(inside, grad_output, torch.zeros_like(grad_output)), None

# %% PACT
class PACT(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        a = alpha.reshape(())
        above = x >= a
        ctx.save_for_backward((x > 0) & ~above, above)
        ctx.alpha_shape = alpha.shape
        return torch.minimum(x.clamp(min=0), a)

    @staticmethod
    def backward(ctx, grad_output):
        inside, above = ctx.saved_tensors
        zero = torch.zeros_like(grad_output)
        grad_alpha = torch.where(above, grad_output, zero).sum().reshape(ctx.alpha_shape)
        return torch.where(inside, grad_output, zero), grad_alpha

# %% clip_by_norm
class ClipByNorm(Function):
    @staticmethod
    def forward(ctx, x, tau):
        norm = torch.linalg.vector_norm(x)
        ctx.tau = tau
        ctx.clipped = bool(norm > tau)
        # everything backward needs, computed once: the direction and the factor
        ctx.save_for_backward(x / norm, tau / norm)
        return x * (tau / norm) if ctx.clipped else x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        if not ctx.clipped:
            return grad_output.clone(), None
        u, scale = ctx.saved_tensors
        return scale * (grad_output - u * (u * grad_output).sum()), None

def clip_by_norm(x, tau):
    return ClipByNorm.apply(x, tau)
