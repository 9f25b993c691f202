# %% Linear
class Linear(torch.autograd.Function):
    @staticmethod
    def forward(x, weight, bias=None):
        return F.linear(x, weight, bias)
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, g):
        x, weight, bias = ctx.saved_tensors
        gb = g.sum(0) if bias is not None else None
        return g @ weight, g.t() @ x, gb

# %% BroadcastMul
class BroadcastMul(torch.autograd.Function):
    @staticmethod
    def forward(a, b):
        return a * b
    @staticmethod
    def setup_context(ctx, inputs, output):
        a, b = inputs
        ctx.save_for_backward(a.detach(), b.detach())   # no graph needed here
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        # b is the small one, sum over the batch
        return g * b, (g * a).sum(0)

# %% Swish
import sys
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(x, beta):
        return x * torch.sigmoid(beta * x)
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        s = torch.sigmoid(beta * x)
        print("swish backward", tuple(g.shape), "beta", tuple(beta.shape), file=sys.stderr)
        ds = s * (1 - s)
        return g * (s + x * ds), g * x * x * ds
