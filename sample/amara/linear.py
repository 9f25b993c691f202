# %% Linear
class Linear(torch.autograd.Function):
    @staticmethod
    def forward(x, weight, bias=None):
        y = x @ weight.t()
        return y if bias is None else y + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        # all leading dimensions are rows, whatever their number; a vector is one row
        rows = grad_output.reshape(-1, weight.shape[0])
        grad_x = grad_output @ weight
        grad_weight = rows.t() @ x.reshape(-1, weight.shape[1])
        grad_bias = rows.sum(0) if ctx.needs_input_grad[2] else None
        return grad_x, grad_weight, grad_bias

# %% BroadcastMul
class BroadcastMul(torch.autograd.Function):
    @staticmethod
    def forward(a, b):
        return a * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        return (grad_output * b).sum_to_size(a.shape), (grad_output * a).sum_to_size(b.shape)

# %% Swish
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(x, beta):
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, beta = ctx.saved_tensors
        s = torch.sigmoid(beta * x)
        slope = s * (1 - s)
        grad_x = grad_output * (s + beta * x * slope)
        grad_beta = grad_output * x * x * slope
        return grad_x, grad_beta.sum_to_size(beta.shape)

# %% SwiGLU
class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(x):
        a, b = x.chunk(2, dim=-1)
        return F.silu(a) * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        a, b = x.chunk(2, dim=-1)  # again: chunks made in forward would be constants
        s = torch.sigmoid(a)
        grad_a = grad_output * b * (s + a * s * (1 - s))
        grad_b = grad_output * a * s
        return torch.cat([grad_a, grad_b], dim=-1)
