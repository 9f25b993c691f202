# %% FakeQuantize
class FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        # clamping the steps to qmin - z..qmax - z saves adding z and taking it off again
        steps = torch.round(x / scale).clamp(qmin - zero_point, qmax - zero_point)
        return (scale * steps).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, qmin, qmax = inputs
        # the mask is a tensor, whatever scale is, and nobody else can change it
        steps = torch.round(x / scale)
        ctx.save_for_backward((steps < qmin - zero_point) | (steps > qmax - zero_point))

    @staticmethod
    def backward(ctx, grad_output):
        (outside,) = ctx.saved_tensors
        return grad_output.masked_fill(outside, 0), None, None, None, None

# %% FakeQuantizePerChannel
class FakeQuantizePerChannel(torch.autograd.Function):
    @staticmethod
    def forward(x, scale, zero_point, axis, qmin, qmax):
        # with the channels last, (C,) broadcasts by itself
        turned = x.movedim(axis, -1)
        code = (torch.round(turned / scale) + zero_point).clamp(qmin, qmax)
        return ((code - zero_point) * scale).movedim(-1, axis).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, ctx.axis, ctx.qmin, ctx.qmax = inputs
        ctx.save_for_backward(x, scale, zero_point)

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, zero_point = ctx.saved_tensors
        code = torch.round(x.movedim(ctx.axis, -1) / scale) + zero_point
        outside = (code < ctx.qmin) | (code > ctx.qmax)
        return grad_output.masked_fill(outside.movedim(-1, ctx.axis), 0), None, None, None, None, None

# %% LSQ
class LSQ(torch.autograd.Function):
    @staticmethod
    def forward(x, scale, qmin, qmax):
        s = scale.reshape(())
        return s * torch.round(x / s).clamp(qmin, qmax)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, ctx.qmin, ctx.qmax = inputs
        ctx.save_for_backward(x, scale)

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        v = x / scale.reshape(())
        outside = (v <= ctx.qmin) | (v >= ctx.qmax)
        # y = s * code + (v s passed straight through): slope = code - v inside, the code (an end) outside
        slope = torch.round(v).clamp(ctx.qmin, ctx.qmax) - v.masked_fill(outside, 0)
        return grad_output.masked_fill(outside, 0), (grad_output * slope).sum().reshape(scale.shape), None, None
