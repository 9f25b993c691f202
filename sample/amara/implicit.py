# %% Kepler
class Kepler(torch.autograd.Function):
    """The angle E of a planet: E - e sin(E) = m."""

    @staticmethod
    def forward(m, e):
        E = m + e * torch.sign(torch.sin(m))
        for _ in range(25):
            E = E - (E - e * torch.sin(E) - m) / (1 - e * torch.cos(E))
        return E

    @staticmethod
    def setup_context(ctx, inputs, output):
        m, e = inputs
        ctx.save_for_backward(e, output)

    @staticmethod
    def backward(ctx, grad_output):
        e, E = ctx.saved_tensors
        shared = grad_output / (1 - e * torch.cos(E))
        return shared, shared * torch.sin(E)

# %% Simplex
class Simplex(torch.autograd.Function):
    """The nearest row of shares."""

    @staticmethod
    def forward(x):
        z = x - x.max(dim=-1, keepdim=True).values
        down, _ = torch.sort(z, dim=-1, descending=True)
        sums = torch.cumsum(down, dim=-1)
        counts = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
        k = ((sums - 1) / counts < down).sum(dim=-1, keepdim=True)
        tau = (torch.gather(sums, -1, k - 1) - 1) / k
        return torch.relu(z - tau)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        zero = torch.zeros_like(grad_output)
        g = torch.where(y > 0, grad_output, zero)
        mean = g.sum(dim=-1, keepdim=True) / (y > 0).sum(dim=-1, keepdim=True)
        return torch.where(y > 0, g - mean, zero)
