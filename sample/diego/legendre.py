# %% Legendre
class Legendre(torch.autograd.Function):
    @staticmethod
    def forward(x, n):
        p0, p1 = torch.ones_like(x), x.clone()
        if n == 0:
            return p0
        for k in range(1, n):
            p0, p1 = p1, ((2 * k + 1) * x * p1 - k * p0) / (k + 1)
        return p1

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.n = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        # P_n' = (2n-1) P_{n-1} + (2n-5) P_{n-3} + ...
        d = torch.zeros_like(x)
        for k in range(ctx.n - 1, -1, -2):
            d = d + (2 * k + 1) * Legendre.apply(x, k)
        return d, None

# %% fit_sine
def fit_sine(steps, lr):
    x = torch.linspace(-math.pi, math.pi, 2000, dtype=torch.float64)
    y = torch.sin(x)
    p = torch.tensor([0.0, -1.0, 0.0, 0.3], dtype=torch.float64, requires_grad=True)
    for t in range(steps):
        a, b, c, d = p
        loss = ((a + b * Legendre.apply(c + d * x, 3) - y) ** 2).sum()
        loss.backward()
        with torch.no_grad():
            p -= lr * p.grad
            p.grad = None
    return (*p.tolist(), loss.item())

# %% hvp
def hvp(f, x, v):
    x = x.detach().clone().requires_grad_()
    g, = torch.autograd.grad(f(x), x, create_graph=True, materialize_grads=True)
    # second derivative of f, 0 * x for when f is linear
    h, = torch.autograd.grad((g + 0 * x).sum(), x)
    return h
