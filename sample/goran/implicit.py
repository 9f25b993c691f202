# %% Kepler
class Kepler(torch.autograd.Function):
    @staticmethod
    def forward(ctx, m, e):
        E = m + e * torch.sign(torch.sin(m))
        for n in range(50):
            E = E - (E - e * torch.sin(E) - m) / (1 - e * torch.cos(E))
        ctx.save_for_backward(m, e, E)
        return E

    @staticmethod
    def backward(ctx, grad):
        m, e, E = ctx.saved_tensors
        return grad, grad * torch.sin(E)

# %% Simplex
class Simplex(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return y * (g - (y * g).sum(-1, keepdim=True))
