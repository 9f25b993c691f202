# %% Binarize
class Binarize(torch.autograd.Function):
    @staticmethod
    def forward(x):
        # a comparison decides, so that 0 and -0.0 fall on the same side
        return 2 * (x >= 0).to(x.dtype) - 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() > 1, torch.zeros_like(grad_output), grad_output)

# %% GradientReversal
class GradientReversal(torch.autograd.Function):
    @staticmethod
    def forward(x, alpha):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.alpha = inputs

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * -ctx.alpha, None

# %% round_ste
def round_ste(x):
    # x - x.detach() is exactly 0 and carries the gradient
    return torch.round(x).detach() + (x - x.detach())
