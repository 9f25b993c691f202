# %% FakeQuantize
class FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        q = torch.clamp(torch.round(x / scale) + zero_point, qmin, qmax)
        return (scale * (q - zero_point)).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, qmin, qmax = inputs
        q = torch.round(x / scale) + zero_point
        ctx.save_for_backward((q >= qmin) & (q <= qmax))

    @staticmethod
    def backward(ctx, grad_output):
        inside, = ctx.saved_tensors
        # straight through: 1 inside, 0 outside
        return inside.to(grad_output.dtype), None, None, None, None

# %% FakeQuantizePerChannel
class FakeQuantizePerChannel(torch.autograd.Function):
    @staticmethod
    def forward(x, scale, zero_point, axis, qmin, qmax):
        shape = [1] * x.dim()
        shape[axis] = -1
        s, z = scale.reshape(shape), zero_point.reshape(shape)
        q = torch.clamp(torch.round(x / s) + z, qmin, qmax)
        return (s * (q - z)).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, axis, qmin, qmax = inputs
        shape = [1] * x.dim()
        shape[axis] = -1
        q = torch.round(x / scale.reshape(shape)) + zero_point.reshape(shape)
        ctx.save_for_backward((q >= qmin) & (q <= qmax))

    @staticmethod
    def backward(ctx, grad_output):
        inside, = ctx.saved_tensors
        return inside.to(grad_output.dtype), None, None, None, None, None

# %% LSQ
class LSQ(torch.autograd.Function):
    @staticmethod
    def forward(x, scale, qmin, qmax):
        s = scale.reshape(())
        return s * torch.clamp(torch.round(x / s), qmin, qmax)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, ctx.qmin, ctx.qmax = inputs
        ctx.save_for_backward(x, scale)

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        v = x / scale.reshape(())
        inside = (v > ctx.qmin) & (v < ctx.qmax)
        # dy/dx = 1 inside, dy/ds = round(v) - v inside, the end outside
        grad_x = inside.to(x.dtype)
        grad_scale = torch.where(inside, torch.round(v) - v, v.clamp(ctx.qmin, ctx.qmax))
        return grad_x, grad_scale.sum().reshape(scale.shape), None, None
