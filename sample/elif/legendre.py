# %% Legendre
from torch.autograd import Function

class Legendre(Function):
    @staticmethod
    def forward(ctx, x, n):
        before, p = torch.zeros_like(x), torch.ones_like(x)
        d_before, d = torch.zeros_like(x), torch.zeros_like(x)
        # values and slopes in one loop, so backward has nothing left to do
        for k in range(n):
            d_before, d = d, d_before + (2 * k + 1) * p
            before, p = p, ((2 * k + 1) * x * p - k * before) / (k + 1)
        ctx.save_for_backward(d)
        return p

    @staticmethod
    def backward(ctx, grad_output):
        d, = ctx.saved_tensors
        return grad_output * d, None

# %% fit_sine
def fit_sine(steps, lr):
    x = torch.linspace(-math.pi, math.pi, 2000, dtype=torch.float64)
    target = torch.sin(x)
    params = [torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in (0.0, -1.0, 0.0, 0.3)]
    for _ in range(steps):
        a, b, c, d = params
        loss = (a + b * Legendre.apply(c + d * x, 3) - target).pow(2).sum()
        grads = torch.autograd.grad(loss, params)
        params = [(p - lr * g).detach().requires_grad_() for p, g in zip(params, grads)]
    return tuple(p.item() for p in params) + (loss.item(),)

# %% hvp
def hvp(f, x, v):
    z = x.detach().clone().requires_grad_()
    grad_f, = torch.autograd.grad(f(z) + 0 * z.pow(2).sum(), z, create_graph=True)
    return torch.autograd.grad((grad_f * v).sum(), z)[0]
