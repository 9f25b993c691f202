# %% GatherRows
class GatherRows(torch.autograd.Function):
    """All rows for every rank."""

    @staticmethod
    def forward(x, sizes, shared):
        rows = torch.cat([x[rank, :size] for rank, size in enumerate(sizes)], dim=0)
        return torch.stack([rows for _ in sizes])

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.sizes, ctx.shared = inputs
        ctx.room = x.shape[1]

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.shared:  # each rank has the whole gradient, and reads its own copy
            slices = [grad_output[rank].split(ctx.sizes)[rank] for rank in range(len(ctx.sizes))]
        else:  # a part on each rank
            slices = grad_output.sum(dim=0).split(ctx.sizes)
        grad_x = torch.zeros(len(ctx.sizes), ctx.room, *grad_output.shape[2:], dtype=grad_output.dtype)
        for rank, rows in enumerate(slices):
            grad_x[rank, : len(rows)] = rows
        return grad_x, None, None


# %% VocabLoss
class VocabLoss(torch.autograd.Function):
    """Cross-entropy, one loss for each row, words split over ranks."""

    @staticmethod
    def target_logit(logits, target):
        words = logits.shape[2]
        place = target - words * torch.arange(len(logits)).unsqueeze(1)  # (ranks, rows)
        mine = (0 <= place) & (place < words)
        found = logits.gather(2, place.clamp(0, words - 1).unsqueeze(2)).squeeze(2)
        return torch.where(mine, found, 0).sum(dim=0), place

    @staticmethod
    def forward(logits, target):
        largest = logits.amax(dim=2).amax(dim=0)
        total = torch.exp(logits - largest.unsqueeze(1)).sum(dim=2).sum(dim=0)
        return torch.log(total) + (largest - VocabLoss.target_logit(logits, target)[0])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, grad_output):
        logits, target, loss = ctx.saved_tensors
        right, place = VocabLoss.target_logit(logits, target)
        p = torch.exp(logits - (loss + right).unsqueeze(1))
        y = (place.unsqueeze(2) == torch.arange(logits.shape[2])).to(p.dtype)
        return (p - y) * grad_output.unsqueeze(1), None
