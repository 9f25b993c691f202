# %% Kepler
class Kepler(torch.autograd.Function):
    @staticmethod
    def forward(m, e):
        at = m + e * m.sin().sign()
        for step in range(40):
            residual = at - e * at.sin() - m
            at = at - residual / (1 - e * at.cos())
        return at

    @staticmethod
    def setup_context(ctx, inputs, output):
        m, e = inputs
        ctx.save_for_backward(1 - e * output.cos(), output.sin())  # cheaper than computing them twice

    @staticmethod
    def backward(ctx, g):
        slope, sine = ctx.saved_tensors
        return g / slope, g * sine / slope

# %% Simplex
class Simplex(torch.autograd.Function):
    @staticmethod
    def forward(x):
        s = x.sort(dim=-1, descending=True)[0]
        n = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        c = s.cumsum(-1) - 1
        k = (s * n > c).sum(-1, keepdim=True)
        return (x - c.gather(-1, k - 1) / k).clamp(min=0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        on = (p > 0).to(g.dtype)
        return on * (g - (on * g).sum(-1, keepdim=True) / on.sum(-1, keepdim=True))
