# %% Legendre
def p(x, n):
    if n == 0:
        return torch.ones_like(x)
    lower, p = torch.ones_like(x), x.clone()
    for k in range(2, n + 1):
        lower, p = p, ((2 * k - 1) * x * p - (k - 1) * lower) / k
    return p

class Legendre(torch.autograd.Function):
    @staticmethod
    def forward(x, n):
        return p(x, n)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.n = inputs[1]

    @staticmethod
    def backward(ctx, v):
        x, n = ctx.saved_tensors[0], ctx.n
        # Bonnet
        return v * n * (p(x, n - 1) - x * p(x, n)) / (1 - x * x), None

# %% fit_sine
def fit_sine(steps, lr):
    x = torch.linspace(-math.pi, math.pi, 2000, dtype=torch.float64)
    y = torch.sin(x)
    a = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    b = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
    c = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    d = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    for step in range(steps):
        loss = ((a + b * Legendre.apply(c + d * x, 3) - y) ** 2).sum()
        loss.backward()
        with torch.no_grad():
            a -= lr * a.grad
            b -= lr * b.grad
            c -= lr * c.grad
            d -= lr * d.grad
    return a.item(), b.item(), c.item(), d.item(), loss.item()

# %% hvp
def hvp(f, x, v):
    x = x.detach().requires_grad_()
    g = torch.autograd.grad(f(x), x, create_graph=True)[0]
    return torch.autograd.grad(g, x, v)[0]
