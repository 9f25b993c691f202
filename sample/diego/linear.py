# %% Linear
class Linear(torch.autograd.Function):
    @staticmethod
    def forward(x, weight, bias=None):
        y = x @ weight.t()
        if bias is not None:
            y = y + bias
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias = inputs
        ctx.has_bias = bias is not None
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        # dy/dx = W, dy/dW = x, dy/db = 1
        ones = torch.ones_like(grad_output)
        rows = ones.reshape(-1, weight.shape[0])
        grad_x = ones @ weight
        grad_weight = rows.t() @ x.reshape(-1, weight.shape[1])
        grad_bias = rows.sum(0) if ctx.has_bias else None
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
        # d(ab)/da = b, d(ab)/db = a
        return b, a

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
        grad_x = s + beta * x * s * (1 - s)
        grad_beta = x ** 2 * s * (1 - s)
        return grad_x, grad_beta.sum_to_size(beta.shape)

# %% SwiGLU
class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(x):
        a, b = x.chunk(2, dim=-1)
        return a * torch.sigmoid(a) * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        a, b = x.chunk(2, dim=-1)
        s = torch.sigmoid(a)
        return torch.cat([(s + a * s * (1 - s)) * b, a * s], dim=-1)
