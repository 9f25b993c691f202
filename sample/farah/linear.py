# %% Linear
class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.x = x
        ctx.weight = weight
        ctx.bias = bias
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, grad_out):
        n_out, n_in = ctx.weight.shape
        g = grad_out.reshape(-1, n_out)
        grad_bias = None
        if ctx.bias is not None:
            grad_bias = g.sum(0)
        return grad_out @ ctx.weight, g.t() @ ctx.x.reshape(-1, n_in), grad_bias

# %% BroadcastMul
class BroadcastMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.a = a
        ctx.b = b
        return a * b

    @staticmethod
    def backward(ctx, grad_out):
        return (grad_out * ctx.b).sum_to_size(ctx.a.shape), (grad_out * ctx.a).sum_to_size(ctx.b.shape)

# %% Swish
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, beta):
        ctx.x = x
        ctx.beta = beta
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def backward(ctx, grad_out):
        s = torch.sigmoid(ctx.beta * ctx.x)
        ds = s * (1 - s)
        grad_x = grad_out * (s + ctx.beta * ctx.x * ds)
        grad_beta = (grad_out * ctx.x ** 2 * ds).sum_to_size(ctx.beta.shape)
        return grad_x, grad_beta

# %% SwiGLU
class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        a, b = x.chunk(2, dim=-1)
        return F.silu(a) * b

    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.x.chunk(2, dim=-1)
        s = torch.sigmoid(a)
        return torch.cat([grad_out * b * s * (1 + a * (1 - s)), grad_out * a * s], dim=-1)
