# %% Legendre
class Legendre(torch.autograd.Function):
    @staticmethod
    def forward(x, n):
        before, p = torch.zeros_like(x), torch.ones_like(x)
        for k in range(n):
            before, p = p, ((2 * k + 1) * x * p - k * before) / (k + 1)
        return p

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.n = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        # P_n' = n P_{n-1} + x P_{n-1}': no division, so the ends are like everywhere else
        slope = torch.zeros_like(x)
        for k in range(1, ctx.n + 1):
            slope = k * Legendre.apply(x, k - 1) + x * slope
        return grad_output * slope, None

# %% fit_sine
def fit_sine(steps, lr):
    x = torch.linspace(-math.pi, math.pi, 2000, dtype=torch.float64)
    y = torch.sin(x)
    a, b, c, d = (torch.tensor(start, dtype=torch.float64, requires_grad=True) for start in (0.0, -1.0, 0.0, 0.3))
    optimizer = torch.optim.SGD([a, b, c, d], lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (a + b * Legendre.apply(c + d * x, 3) - y).square().sum()
        loss.backward()
        optimizer.step()
    return a.item(), b.item(), c.item(), d.item(), loss.item()

# %% hvp
def hvp(f, x, v):
    leaf = x.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(f(leaf), leaf, create_graph=True, materialize_grads=True)
    # 0 * leaf: there is a path to leaf even where f is linear
    (product,) = torch.autograd.grad(gradient + 0 * leaf, leaf, v)
    return product
