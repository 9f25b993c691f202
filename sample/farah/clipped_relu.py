# %% MulConstant
class MulConstant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, c):
        ctx.c = c
        return c * x

    @staticmethod
    def backward(ctx, grad_out):
        return ctx.c * grad_out, None

# %% ClippedReLU
class ClippedReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, clip):
        ctx.x = x
        ctx.clip = clip
        return torch.clamp(x, 0, clip)

    @staticmethod
    def backward(ctx, grad_out):
        inside = (ctx.x > 0) & (ctx.x < ctx.clip)
        return torch.where(inside, grad_out, torch.zeros_like(grad_out)), None

# %% PACT
class PACT(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.x = x
        ctx.alpha = alpha
        return torch.minimum(torch.relu(x), alpha.reshape(()))

    @staticmethod
    def backward(ctx, grad_out):
        a = ctx.alpha.reshape(())
        zero = torch.zeros_like(grad_out)
        above = ctx.x >= a
        grad_x = torch.where((ctx.x > 0) & ~above, grad_out, zero)
        grad_alpha = torch.where(above, grad_out, zero).sum().reshape(ctx.alpha.shape)
        return grad_x, grad_alpha

# %% clip_by_norm
class _ClipByNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, tau):
        ctx.x = x
        ctx.tau = tau
        n = torch.linalg.vector_norm(x)
        return x * (tau / n) if n > tau else x.clone()

    @staticmethod
    def backward(ctx, grad_out):
        n = torch.linalg.vector_norm(ctx.x)
        if n <= ctx.tau:
            return grad_out.clone(), None
        u = ctx.x / n
        return ctx.tau / n * (grad_out - u * (u * grad_out).sum()), None

def clip_by_norm(x, tau):
    return _ClipByNorm.apply(x, tau)
