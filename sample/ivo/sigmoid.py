# %% Sigmoid
class Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(x):
        e = torch.exp(-x.abs())
        return torch.where(x >= 0, torch.ones_like(x), e) / (1 + e)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, v):
        y = ctx.saved_tensors[0]
        return v * y * (1 - y)

# %% Cube
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, v):
        x = ctx.saved_tensors[0]
        return v * 3.0 * x * x
