# %% PackedLeakyReLU
class PackedLeakyReLU(torch.autograd.Function):
    """Leaky ReLU that keeps one bit for each number."""

    @staticmethod
    def forward(x, slope):
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.shape, ctx.n = x.shape, x.numel()
        flat = torch.zeros((ctx.n + 7) // 8 * 8, dtype=torch.uint8)
        flat[: ctx.n] = (x > 0).reshape(-1)
        rows = flat.reshape(-1, 8)
        packed = torch.zeros(len(rows), dtype=torch.uint8)
        for i in range(8):
            packed += rows[:, i] << i
        ctx.save_for_backward(packed)

    @staticmethod
    def backward(ctx, grad_output):
        (packed,) = ctx.saved_tensors
        rows = torch.stack([packed >> i & 1 for i in range(8)], dim=1)
        positive = rows.reshape(-1)[: ctx.n].reshape(ctx.shape).bool()
        return torch.where(positive, grad_output, ctx.slope * grad_output), None

# %% Direction
class Direction(torch.autograd.Function):
    """Where a complex number points."""

    @staticmethod
    def forward(z):
        r = torch.abs(z)
        return torch.where(r == 0, torch.zeros_like(z), z / r)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, grad_output):
        z, y = ctx.saved_tensors
        across = grad_output - y * torch.real(torch.conj(y) * grad_output)
        return torch.where(z == 0, torch.zeros_like(z), across / torch.abs(z))
