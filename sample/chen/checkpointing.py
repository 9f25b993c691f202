# %% saved_bytes
def saved_bytes(fn, *args):
    """Bytes of the distinct storages that autograd packs, those of arguments and parameters left out."""
    sizes = {}  # address of a storage -> its size; a dictionary, so that a storage counts once

    def pack(t):
        root = t if t._base is None else t._base
        if not (root.requires_grad and root.grad_fn is None):
            storage = t.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        return t.detach()

    with saved_tensors_hooks(pack, lambda t: t):
        fn(*args)
    # the arguments are alive anyway
    free = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
    return sum(size for address, size in sizes.items() if address not in free)

# %% FusedLinearReLU
class FusedLinearReLU(torch.autograd.Function):
    """relu(x W^T + b). Keeps x, W and the output, which knows where the ReLU is open."""

    @staticmethod
    def forward(x, weight, bias):
        return F.linear(x, weight, bias).relu_()  # in place on a tensor of our own

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2], output)

    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        # 1 where the ReLU is open, 0 where it is shut
        g = g * (y > 0)
        rows = g.reshape(-1, weight.shape[0])
        gx = g @ weight if ctx.needs_input_grad[0] else None
        gw = rows.t() @ x.reshape(-1, weight.shape[1]) if ctx.needs_input_grad[1] else None
        gb = rows.sum(0) if ctx.needs_input_grad[2] else None
        return gx, gw, gb

# %% MixedLinear
class MixedLinear(torch.autograd.Function):
    """x W^T + b. Keeps x and W, and casts them in backward to the dtype of g."""

    @staticmethod
    def forward(x, weight, bias):
        return F.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        x, weight = x.to(g.dtype), weight.to(g.dtype)
        rows = g.reshape(-1, weight.shape[0])
        gx = g @ weight if ctx.needs_input_grad[0] else None
        gw = rows.t() @ x.reshape(-1, weight.shape[1]) if ctx.needs_input_grad[1] else None
        gb = rows.sum(0) if ctx.needs_input_grad[2] else None
        return gx, gw, gb

# %% checkpoint
def checkpoint(fn, *args):
    """fn(*args); backward runs fn again, from the random state and under the autocast of the first run."""
    state = torch.get_rng_state()
    cast = torch.is_autocast_enabled("cpu")

    class Rerun(torch.autograd.Function):
        @staticmethod
        def forward(anchor, *args):
            return fn(*args)

        @staticmethod
        def setup_context(ctx, inputs, output):
            args = inputs[1:]
            # tensors are saved; numbers, None and strings stay as they are
            ctx.save_for_backward(*(a if isinstance(a, torch.Tensor) else None for a in args))
            ctx.args = [None if isinstance(a, torch.Tensor) else a for a in args]

        @staticmethod
        def backward(ctx, *upstream):
            leaves = [
                a if t is None else t.detach().requires_grad_(t.requires_grad)
                for t, a in zip(ctx.saved_tensors, ctx.args)
            ]
            with torch.enable_grad(), torch.autocast("cpu", enabled=cast):
                torch.set_rng_state(state)  # the masks of the first run again
                result = fn(*leaves)
                ys = result if isinstance(result, tuple) else (result,)
                for y, g in zip(ys, upstream):
                    if y.requires_grad:
                        y.backward(g, retain_graph=True)
            return None, *(t.grad if isinstance(t, torch.Tensor) else None for t in leaves)

    anchor = torch.empty(0, requires_grad=True)
    return Rerun.apply(anchor, *args)
