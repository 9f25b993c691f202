# %% Binarize
class Binarize(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.where(x >= 0, torch.ones_like(x), -torch.ones_like(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        # derivative of clamp: 1 inside, 0 outside
        return torch.where(x.abs() <= 1, torch.ones_like(x), torch.zeros_like(x))

# %% GradientReversal
class GradientReversal(torch.autograd.Function):
    @staticmethod
    def forward(x, alpha):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.alpha = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        # gradient is -alpha
        return torch.full_like(x, -ctx.alpha), None

# %% round_ste
def round_ste(x):
    return x + (torch.round(x) - x).detach()
