# %% PackedLeakyReLU
class PackedLeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.slope = slope
        ctx.save_for_backward(x > 0)
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def backward(ctx, grad):
        mask, = ctx.saved_tensors
        return torch.where(mask, grad, ctx.slope * grad), None

# %% Direction
class Direction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        y = z / z.abs()
        ctx.save_for_backward(z, y)
        return y

    @staticmethod
    def backward(ctx, g):
        z, y = ctx.saved_tensors
        return (g - y * (y.conj() * g).real) / z.abs()
