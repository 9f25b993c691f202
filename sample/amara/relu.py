# %% Square
class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output

# %% LeakyReLU
class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(x, negative_slope=0.01):
        return torch.where(x > 0, x, negative_slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, negative_slope = inputs
        ctx.save_for_backward(x)
        ctx.negative_slope = negative_slope

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        # where, not a product with a mask: inf * 0 would be nan
        grad_x = torch.where(x > 0, grad_output, ctx.negative_slope * grad_output)
        return grad_x, None

# %% Tanh
class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * (1 - y * y)
