# %% Linear
from torch.autograd import Function

class Linear(Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        rows = x.reshape(-1, weight.shape[1])
        wt = weight.t().contiguous()
        # the layouts that the two products want, made once
        ctx.save_for_backward(rows.t().contiguous(), weight.clone())
        ctx.has_bias = bias is not None
        output = x @ wt
        if bias is not None:
            output = output + bias
        return output

    @staticmethod
    def backward(ctx, grad_output):
        rows_t, weight = ctx.saved_tensors
        grad_rows = grad_output.reshape(-1, grad_output.shape[-1])
        grad_input = grad_output @ weight
        grad_weight = (rows_t @ grad_rows).t()
        grad_bias = grad_rows.sum(0) if ctx.has_bias else None
        return grad_input, grad_weight, grad_bias

# %% BroadcastMul
class BroadcastMul(Function):
    @staticmethod
    def forward(ctx, a, b):
        out = a * b
        # expanded here, so that backward multiplies equal shapes
        ctx.save_for_backward(a.expand_as(out).clone(), b.expand_as(out).clone())
        ctx.shapes = a.shape, b.shape
        return out

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        shape_a, shape_b = ctx.shapes
        return (grad_output * b).sum_to_size(shape_a), (grad_output * a).sum_to_size(shape_b)

# %% Swish
class Swish(Function):
    @staticmethod
    def forward(ctx, x, beta):
        s = torch.sigmoid(beta * x)
        ctx.save_for_backward(x, beta, s)   # sigmoid is expensive
        return x * s

    @staticmethod
    def backward(ctx, grad_output):
        x, beta, s = ctx.saved_tensors
        ds = s * (1 - s)
        grad_beta = (grad_output * x ** 2 * ds).sum_to_size(beta.shape)
        return grad_output * (s + beta * x * ds), grad_beta

# %% SwiGLU
class SwiGLU(Function):
    @staticmethod
    def forward(ctx, x):
        a, b = x.chunk(2, dim=-1)
        s = torch.sigmoid(a)
        silu = a * s
        # d_a and d_b are all that backward needs
        ctx.save_for_backward(b * (s + silu * (1 - s)), silu)
        return silu * b

    @staticmethod
    def backward(ctx, grad_output):
        d_a, d_b = ctx.saved_tensors
        return torch.cat([grad_output * d_a, grad_output * d_b], dim=-1)
