# %% MulConstant
# y = c x, so dL/dx = c g. c is a number, not a tensor: nothing to save, nothing to return for it.
class MulConstant(torch.autograd.Function):
    """c * x for a Python number c."""

    @staticmethod
    def forward(x, c):
        return torch.mul(x, c)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.c = inputs[1]

    @staticmethod
    def backward(ctx, g):
        gx = torch.mul(g, ctx.c) if ctx.needs_input_grad[0] else None
        return gx, None

# %% ClippedReLU
class ClippedReLU(torch.autograd.Function):
    """min(max(x, 0), clip); at 0 and at clip the gradient is 0, as in F.hardtanh."""

    @staticmethod
    def forward(x, clip):
        return F.hardtanh(x, 0.0, clip)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.clip = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        # both comparisons are strict: the edges belong to the outside
        gx = torch.where((0 < x) & (x < ctx.clip), g, 0)
        return gx, None

# %% PACT
class PACT(torch.autograd.Function):
    """x clipped to [0, alpha]. Choi et al. 2018, eq. (2) and (3)."""

    @staticmethod
    def forward(x, alpha):
        return torch.clamp(x, torch.zeros_like(alpha), alpha).reshape(x.shape)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        a = alpha.squeeze()
        gx = ga = None
        if ctx.needs_input_grad[0]:
            gx = torch.where((x > 0) & (x < a), g, 0)
        if ctx.needs_input_grad[1]:
            # every clipped element moves with alpha; at the edge itself nothing is clipped
            ga = torch.where(x > a, g, 0).sum().view(alpha.shape)
        return gx, ga

# %% clip_by_norm
def clip_by_norm(x, tau):
    """x, scaled onto the sphere of radius tau if it lies outside. Autograd does the rest: f is smooth off the sphere."""
    length = torch.linalg.vector_norm(x)
    # a Python `if`, so that the other branch is never computed and 0 / 0 never happens
    if length > tau:
        return x * tau / length
    return x.clone()
