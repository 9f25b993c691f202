# %% PackedLeakyReLU
class PackedLeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(x, slope):
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.shape = x.shape
        bits = (x > 0).flatten()
        bits = torch.nn.functional.pad(bits, (0, 8 - len(bits) % 8))
        ctx.save_for_backward((bits.reshape(-1, 8) * 2 ** torch.arange(8)).sum(1).to(torch.uint8))

    @staticmethod
    def backward(ctx, g):
        (packed,) = ctx.saved_tensors
        bits = (packed.unsqueeze(1) >> torch.arange(8)) & 1
        on = bits.flatten()[: g.numel()].reshape(ctx.shape).bool()
        return torch.where(on, g, ctx.slope * g), None

# %% Direction
class Direction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        r = z.abs()
        y = torch.where(r == 0, 0, z / r)
        ctx.save_for_backward(y, r)  # no need to take the modulus twice
        return y

    @staticmethod
    def backward(ctx, g):
        y, r = ctx.saved_tensors
        return torch.where(r == 0, 0, (g - y * (y.conj() * g).real) / r)
