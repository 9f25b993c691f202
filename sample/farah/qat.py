# %% FakeQuantize
class FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, zero_point, qmin, qmax):
        ctx.x = x
        ctx.scale = scale
        ctx.zero_point = zero_point
        ctx.qmin = qmin
        ctx.qmax = qmax
        q = torch.round(x / scale) + zero_point
        return (scale * (torch.clamp(q, qmin, qmax) - zero_point)).to(x.dtype)

    @staticmethod
    def backward(ctx, grad_out):
        q = torch.round(ctx.x / ctx.scale) + ctx.zero_point
        inside = (q >= ctx.qmin) & (q <= ctx.qmax)
        return torch.where(inside, grad_out, torch.zeros_like(grad_out)), None, None, None, None

# %% FakeQuantizePerChannel
class FakeQuantizePerChannel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, zero_point, axis, qmin, qmax):
        shape = [1] * x.dim()
        shape[axis] = x.shape[axis]
        ctx.x = x
        ctx.scale = scale.reshape(shape)
        ctx.zero_point = zero_point.reshape(shape)
        ctx.qmin = qmin
        ctx.qmax = qmax
        q = torch.round(x / ctx.scale) + ctx.zero_point
        return (ctx.scale * (torch.clamp(q, qmin, qmax) - ctx.zero_point)).to(x.dtype)

    @staticmethod
    def backward(ctx, grad_out):
        q = torch.round(ctx.x / ctx.scale) + ctx.zero_point
        inside = (q >= ctx.qmin) & (q <= ctx.qmax)
        return torch.where(inside, grad_out, torch.zeros_like(grad_out)), None, None, None, None, None

# %% LSQ
class LSQ(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, qmin, qmax):
        ctx.x = x
        ctx.scale = scale
        ctx.qmin = qmin
        ctx.qmax = qmax
        s = scale.reshape(())
        return s * torch.clamp(torch.round(x / s), qmin, qmax)

    @staticmethod
    def backward(ctx, grad_out):
        v = ctx.x / ctx.scale.reshape(())
        inside = (v > ctx.qmin) & (v < ctx.qmax)
        grad_x = torch.where(inside, grad_out, torch.zeros_like(grad_out))
        slope = torch.where(inside, torch.round(v) - v, torch.clamp(v, ctx.qmin, ctx.qmax))
        return grad_x, (grad_out * slope).sum().reshape(ctx.scale.shape), None, None
