# %% MulConstant
class MulConstant(torch.autograd.Function):
    @staticmethod
    def forward(x, c):
        return x * c

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.c = inputs

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.c * grad_output, None

# %% ClippedReLU
class ClippedReLU(torch.autograd.Function):
    @staticmethod
    def forward(x, clip):
        return x.clamp(0, clip)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.clip = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        outside = (x <= 0) | (x >= ctx.clip)
        return grad_output.masked_fill(outside, 0), None

# %% PACT
class PACT(torch.autograd.Function):
    @staticmethod
    def forward(x, alpha):
        # alpha of shape (1,) would make a vector of a 0-d x
        bound = alpha.reshape(())
        return torch.where(x >= bound, bound, x.clamp(min=0))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, alpha = ctx.saved_tensors
        bound = alpha.reshape(())
        above = x >= bound
        zero = torch.zeros_like(grad_output)
        grad_x = torch.where((x > 0) & ~above, grad_output, zero)
        grad_alpha = torch.where(above, grad_output, zero).sum().reshape(alpha.shape)
        return grad_x, grad_alpha

# %% clip_by_norm
def clip_by_norm(x, tau):
    # the root of something that is at least tau^2: its slope is finite everywhere
    squares = (x * x).sum().clamp(min=tau**2)
    return x * (tau / torch.sqrt(squares))
