# %% Square
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return x**2
    @staticmethod
    def backward(ctx, g): return 2*ctx.saved_tensors[0]*g

# %% LeakyReLU
class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, negative_slope=0.01):
        ctx.save_for_backward(x); ctx.s = negative_slope
        return torch.where(x > 0, x, x*negative_slope)
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return torch.where(x > 0, g, g*ctx.s), None

# %% Tanh
class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.tanh(); ctx.save_for_backward(y)
        return y
    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return g - g*y**2
