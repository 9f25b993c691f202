# %% Square
class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * x
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * 2 * x

# %% LeakyReLU
class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(x, negative_slope=0.01):
        return torch.where(x > 0, x, x * negative_slope)
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, slope = inputs
        ctx.save_for_backward(x)
        ctx.slope = slope
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return torch.where(x > 0, g, g * ctx.slope)

# %% Tanh
class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.tanh(x)
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output.detach())   # don't keep the graph alive
    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return g * (1 - y.detach() ** 2)
