# %% Square
from torch.autograd import Function

class Square(Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.pow(2)

    @staticmethod
    def backward(ctx, grad_output):
        input, = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input = grad_input * 2 * input
        return grad_input

# %% LeakyReLU
class LeakyReLU(Function):
    @staticmethod
    def forward(ctx, input, negative_slope=0.01):
        ctx.save_for_backward(input)
        ctx.negative_slope = negative_slope
        return input.clamp(min=0) + negative_slope * input.clamp(max=0)

    @staticmethod
    def backward(ctx, grad_output):
        input, = ctx.saved_tensors
        pos = (input > 0).to(grad_output.dtype)
        neg = (input <= 0).to(grad_output.dtype)
        return grad_output * pos + ctx.negative_slope * grad_output * neg, None

# %% Tanh
class Tanh(Function):
    @staticmethod
    def forward(ctx, input):
        out = torch.tanh(input)
        ctx.save_for_backward(1 - out ** 2)   # compute it once, backward is then just a product
        return out

    @staticmethod
    def backward(ctx, grad_output):
        d, = ctx.saved_tensors
        return grad_output * d
