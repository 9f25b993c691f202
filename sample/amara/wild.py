# %% RowNorm
class RowNorm(torch.autograd.Function):
    """The length of each row."""

    @staticmethod
    def forward(x):
        largest = x.abs().amax(dim=-1, keepdim=True)
        largest = largest.masked_fill(largest == 0, 1)
        return torch.linalg.vector_norm(x / largest, dim=-1) * largest[..., 0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, grad_output):
        x, length = ctx.saved_tensors
        length = length.masked_fill(length == 0, 1)  # where x is 0 the quotient is 0 as well
        return x / length[..., None] * grad_output[..., None]


# %% Normalize
class Normalize(torch.autograd.Function):
    """Rows of length 1, or x / eps where they are shorter than eps."""

    @staticmethod
    def forward(x, eps):
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=eps)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.eps = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        square = (x * x).sum(dim=-1, keepdim=True)
        long = square > ctx.eps**2
        length = square.clamp(min=ctx.eps**2).sqrt()
        y = x / length
        along = torch.where(long, (y * grad_output).sum(dim=-1, keepdim=True), 0)
        return (grad_output - y * along) / length, None
