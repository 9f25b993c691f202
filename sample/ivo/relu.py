# %% Square
class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, v):
        x = ctx.saved_tensors[0]
        return v * 2.0 * x

# %% LeakyReLU
class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(x, negative_slope=0.01):
        factor = torch.where(x > 0, torch.ones_like(x), torch.full_like(x, negative_slope))
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.negative_slope = inputs[1]

    @staticmethod
    def backward(ctx, v):
        x = ctx.saved_tensors[0]
        return v * torch.where(x > 0, torch.ones_like(x), torch.full_like(x, ctx.negative_slope)), None

# %% Tanh
class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, v):
        y = ctx.saved_tensors[0]
        return v * (1 - y * y)
