# %% Square
# f(x) = x^2, f'(x) = 2x. The engine hands us the upstream gradient g = dL/dy, and wants dL/dx = g * 2x.
class Square(torch.autograd.Function):
    """y = x * x, elementwise, any shape."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.square(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None
        x, = ctx.saved_tensors
        return g * (x + x)

# %% LeakyReLU
class LeakyReLU(torch.autograd.Function):
    """x where x > 0, negative_slope * x elsewhere; at 0 the gradient is the slope, as in torch."""

    @staticmethod
    def forward(x, negative_slope=0.01):
        y = x.clone()
        # only the non-positive side changes; the clone keeps the caller's x as it is
        below = x <= 0
        y[below] = y[below] * negative_slope
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, slope = inputs
        # a float is no tensor: it goes on ctx, the tensor does not
        ctx.slope = slope
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        gx = torch.where(x > 0, g, g * ctx.slope) if ctx.needs_input_grad[0] else None
        return gx, None

# %% Tanh
class Tanh(torch.autograd.Function):
    """tanh by expm1 of a number that is never positive, so nothing overflows."""

    @staticmethod
    def forward(x):
        e = torch.expm1(-2 * x.abs())
        return -torch.sign(x) * e / (e + 2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)  # the output alone

    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return g * (1 + y) * (1 - y)
