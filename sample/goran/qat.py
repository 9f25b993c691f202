# %% FakeQuantize
class FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(x, scale, zero_point, qmin, qmax):
        q = torch.round(x / scale) + zero_point
        return ((q.clamp(qmin, qmax) - zero_point) * scale).to(x.dtype)
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, qmin, qmax = inputs
        q = x / scale + zero_point
        ctx.save_for_backward((q >= qmin) & (q <= qmax))
    @staticmethod
    def backward(ctx, g):
        mask, = ctx.saved_tensors
        return g * mask, None, None, None, None

# %% FakeQuantizePerChannel
import sys
class FakeQuantizePerChannel(torch.autograd.Function):
    @staticmethod
    def forward(x, scale, zero_point, axis, qmin, qmax):
        if axis == 0:   # one per row
            scale, zero_point = scale.view(-1, 1), zero_point.view(-1, 1)
        q = torch.round(x / scale) + zero_point
        return ((q.clamp(qmin, qmax) - zero_point) * scale).to(x.dtype)
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, zero_point, axis, qmin, qmax = inputs
        if axis == 0:
            scale, zero_point = scale.view(-1, 1), zero_point.view(-1, 1)
        print("axis", axis, "x", tuple(x.shape), "scale", tuple(scale.shape), file=sys.stderr)
        q = torch.round(x / scale) + zero_point
        ctx.save_for_backward((q >= qmin) & (q <= qmax))
    @staticmethod
    def backward(ctx, g):
        mask, = ctx.saved_tensors
        return g * mask, None, None, None, None, None

# %% LSQ
class LSQ(torch.autograd.Function):
    @staticmethod
    def forward(x, scale, qmin, qmax):
        return (x / scale).round().clamp(qmin, qmax) * scale
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, ctx.qmin, ctx.qmax = inputs
        ctx.save_for_backward(x.detach(), scale.detach())
    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        v = x / scale
        inside = (v > ctx.qmin) & (v < ctx.qmax)
        factor = 1 / math.sqrt(x.numel() * ctx.qmax)   # as in the paper
        slope = torch.where(inside, v.round() - v, v.clamp(ctx.qmin, ctx.qmax))
        return g * inside, (g * slope).sum() * factor, None, None
