"""FusedLinearReLU: two layers in one, which keeps no more than they do."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import GRADIENT, VALUE, WATCHED, contract, gradient, second_order, value
from graders.judge.outside import Outside
from graders.judge.task import DOUBLE, DTYPES, MASKS, SINGLE, Check, Draw, Task
from graders.judge.wording import VIEW_NEEDED
from graders.judge.wrong import Wrong
from graders.sets.checkpointing.common import layer, layers, lopsided_layers, named, some_learn

PLACE = 2
ROWS, UNITS = (
    1 << 13,
    448,
)  # of a layer whose output is so large that even a mask of it stands out in a process's memory


def _small(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return a layer whose outputs are tiny, exactly."""
    x, weight, bias = layer(d, 3, 3)
    return x, weight * 2.0**-40, bias * 2.0**-40


def _at_zero(d: Draw, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor, Tensor]:
    """Return a layer with [[0, 4], [-2, 0]] before the ReLU, exactly, times a power of 2."""
    rows = torch.tensor([[1.0, 2.0], [-1.0, 0.0]]), torch.tensor([[2.0, -1.0], [1.0, 1.0]]), torch.tensor([0.0, 1.0])
    x, weight, bias = (r.to(dtype) for r in rows)
    factor = 2.0 ** int(d.between(-2, 3))
    return x, weight * factor, bias * factor


def _edges(d: Draw) -> list[Case]:
    """Return cases with zeros before the ReLU, and infinite upstream gradients there."""
    cases = [d.case(f"{named(t)}, 0 before the ReLU", *_at_zero(d, t)) for t in DTYPES]
    zeros = (torch.zeros(2, 3, dtype=DOUBLE), d.normal(2, 3), torch.zeros(2, dtype=DOUBLE))
    cases.append(d.case("zeros before the ReLU throughout", *zeros))
    inf = float("inf")
    for t in DTYPES:
        upstream = torch.tensor([[inf, 0.75], [-inf, inf]], dtype=t)
        name = f"{named(t)}, an infinite upstream gradient where the output is 0"
        cases.append(d.case(name, *_at_zero(d, t), upstream=upstream))
    return cases


def _large(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return x, weight and bias of a layer whose output is large."""
    return d.normal(ROWS, 4), d.normal(UNITS, 4), d.normal(UNITS)


task = Task(
    "FusedLinearReLU",
    "FusedLinearReLU.apply(x, weight, bias)",
    reference=lambda x, weight, bias: F.relu(F.linear(x, weight, bias)),
    checks=(
        value(
            1,
            about="the output equals F.relu(F.linear(...)) for any leading dimensions and dtype",
            cases=lambda d: [
                *layers(d, order=0),
                d.case("every size", d.scales(4, 3), *layer(d, 2, 3)[1:], order=0),
                d.case("named arguments", *layer(d, 2, 3), keywords=("x", "weight", "bias"), order=0),
                *lopsided_layers(d, 0),
            ],
        ),
        gradient(
            1,
            about="all gradients equal torch's, whichever are needed, and gradcheck passes",
            why="The ReLU lets g through where the output is above 0; what passes goes on as in a linear layer.",
            cases=lambda d: [
                *layers(d),
                d.case("every size", d.scales(4, 3), *layer(d, 4, 3)[1:], upstream=d.scales(4, 4)),
                d.case("an expanded upstream gradient", *layer(d, 2, 2, 3), upstream=d.normal(2, 1, 4).expand(2, 2, 4)),
                *some_learn(d),
                d.case("outputs near 1e-12", *_small(d)),
                *lopsided_layers(d, 1),
            ],
            gradcheck=lambda d: layer(d, 2, 2, 3),
        ),
        Check(
            "edges",
            1,
            about="no gradient where the output is 0: at the kink, and where g is infinite",
            why="Torch's relu has the gradient 0 at 0, and 0 times infinity is nan.",
            cases=_edges,
            looks=(*VALUE, look.function, look.gradient),
        ),
        second_order(
            1,
            about="each gradient can be differentiated again, by the other factor and by g",
            why="A Hessian or a gradient penalty differentiates your backward.",
            cases=lambda d: [
                *(d.case(f"x of shape {s}", *layer(d, *s), order=2) for s in ((2, 3), (3,), (2, 2, 3))),
                d.case("weight requires no gradient", *layer(d, 2, 3), order=2, requires=(True, False, True)),
                *lopsided_layers(d, 2),
            ],
            looks=(*GRADIENT, look.second_order),
            gradcheck=lambda d: layer(d, 2, 3, out=2),
        ),
        contract(
            1,
            about="the caller's tensors stay untouched; backward is yours; nothing changes unnoticed",
            cases=lambda d: [
                d.case("a matrix", *layer(d, 2, 3), watch=WATCHED, deny=MASKS),
                d.case("a float32 vector", *layer(d, 3, dtype=SINGLE), watch=("state",)),
                d.case("a batch of batches", *layer(d, 2, 2, 3), watch=("state", "overwrite")),
            ],
            # what is changed in place comes before the numbers that it spoils
            looks=(*GRADIENT[:4], look.untouched, *GRADIENT[4:], look.stateless, look.guarded, look.allowed),
        ),
        Check(
            "memory",
            1,
            about="nothing beside x, weight, bias and the output stays in memory for backward",
            why="A layer that is fused to save memory must not keep more than the two it replaces.",
            cases=lambda d: [
                d.case("a matrix", *layer(d, 5, 3), watch=("trace",)),
                d.case("a float32 batch of batches", *layer(d, 2, 3, 3, dtype=SINGLE), watch=("trace",)),
                d.case("a transposed x", layer(d, 3, 5, 3)[0].transpose(0, 1), *layer(d, 3)[1:], watch=("trace",)),
                d.case("weight requires no gradient", *layer(d, 5, 3), watch=("trace",), requires=(True, False, True)),
            ],
            looks=(*GRADIENT, look.value, look.keeps_at_most(0)),
            outside=Outside(_large, "the arguments and the output", least=ROWS * UNITS, keeps=True),
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


def _backward(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of a linear layer."""
    rows = g.reshape(-1, weight.shape[0])
    return g @ weight, rows.t() @ x.reshape(-1, weight.shape[1]), rows.sum(0)


@task.solution
class FusedNew(Function):
    """In the form of chapter 1; the mask is made of the output, which the next layer keeps anyway: the one to write."""

    @staticmethod
    def forward(x, weight, bias):
        return F.relu(F.linear(x, weight, bias))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight, output)

    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        return _backward(torch.where(y > 0, g, 0), x, weight)


@task.solution
class FusedOld(Function):
    """forward and setup_context in one; saves no output, at the price of one more product: where nothing else keeps it.

    Computes wanted gradients alone: worth it where the weight is frozen.
    """

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight, bias)
        return (x.matmul(weight.mT) + bias).clamp_(min=0)

    @staticmethod
    def backward(ctx, g):
        x, weight, bias = ctx.saved_tensors
        with torch.no_grad():
            dead = x.matmul(weight.mT) + bias <= 0
        g = g.masked_fill(dead, 0)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        grad_weight = grad_bias = None
        if needs_weight:
            grad_weight = torch.outer(g, x) if x.ndim == 1 else (g.mT @ x).sum_to_size(weight.shape)
        if needs_bias:
            grad_bias = g.sum_to_size(bias.shape)
        return g.matmul(weight) if needs_x else None, grad_weight, grad_bias


@task.solution
class FusedEinsum(FusedNew):
    """Every product as an einsum: the indices say what is summed; the engine sums the gradient of bias."""

    @staticmethod
    def forward(x, weight, bias):
        return (torch.einsum("...i,oi->...o", x, weight) + bias).clamp(min=0)

    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        g = torch.where(y == 0, torch.zeros_like(g), g)
        grad_weight = torch.einsum("no,ni->oi", g.flatten(0, -2) if g.ndim > 1 else g[None], x.reshape(-1, x.shape[-1]))
        return torch.einsum("...o,oi->...i", g, weight), grad_weight, g


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class FusedByBroadcasting(FusedNew):
    """A product over a new axis, and sums; a copy of g whose dead places are overwritten."""

    @staticmethod
    def forward(x, weight, bias):
        y = (x.unsqueeze(-2) * weight).sum(-1) + bias
        return torch.maximum(y, torch.zeros((), dtype=y.dtype))

    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        g = g.clone()
        g[~(y > 0)] = 0
        wide = g.unsqueeze(-1)
        grad_weight = (wide * x.unsqueeze(-2)).sum_to_size(weight.shape)
        return (wide * weight).sum(-2), grad_weight, g.sum_to_size(weight.shape[:1])


# --- Mistakes ---------------------------------------------------------------------------------------------------------

wrong = Wrong(task, of=FusedNew)
wrong.habits(
    "float32_inside float32_and_back no_function not_differentiable_twice kept_outside_ctx",
    upstream_ignored="Your gradients do not depend on the upstream gradient, as if it were 1 everywhere. What passes "
    "the ReLU is the upstream gradient where the output is above 0.",
    nothing_returned="Your backward returns None for everything (is a return statement missing?): nothing gets a "
    "gradient at all.",
    detached="Your first derivatives are right and your second are missing: detach (or .data) in backward cuts x and "
    "weight out of the graph of the gradients. Use what you saved as it is.",
    autograd_in_backward="Your backward lets torch.autograd differentiate forward. The task is to write the "
    "vector-Jacobian product yourself: mask g, then g @ weight, g^T x, and a sum.",
)


@wrong.forward(
    "value",
    "Your output is the linear layer's alone: the ReLU is missing. Negative numbers become 0 before you return them.",
)
def relu_left_out(x, weight, bias):
    return F.linear(x, weight, bias)


@wrong.forward(
    "value",
    "You add the bias after the ReLU. It belongs before: relu(x W^T + b), so that the output is never negative.",
)
def bias_after_relu(x, weight, bias):
    return F.relu(x @ weight.t()) + bias


@wrong.forward(
    "value",
    "You multiply by weight as it is. Its shape is (out, in), as in F.linear, so x is multiplied by its transpose: "
    "x @ weight.t().",
)
def weight_not_transposed(x, weight, bias):
    return F.relu(x @ weight + bias)


@wrong.forward(
    "value",
    "Your forward multiplies with mm or addmm, which take matrices alone: an x with one dimension, or with three, "
    "raises. F.linear and the operator @ take any leading dimensions.",
)
def two_dimensions_only(x, weight, bias):
    return torch.addmm(bias, x, weight.t()).relu_()


@wrong.backward(
    "gradient",
    "Your gradients are those of the linear layer: the ReLU is missing in backward. Set the upstream gradient to 0 "
    "where the output is 0, before you multiply or sum anything.",
)
def mask_left_out(x, weight, y, g):
    return _backward(g, x, weight)


@wrong.backward(
    "gradient",
    "You multiply the upstream gradient by the output. The derivative of ReLU is 1 where the output is above 0, "
    "whatever its size: ask whether the output is above 0 and let g through there.",
)
def multiplied_by_output(x, weight, y, g):
    return _backward(g * y, x, weight)


@wrong.backward(
    "gradient",
    "You put the upstream gradient itself through a ReLU, so negative gradients are lost. Backward asks where the "
    "output is above 0, and lets gradients of both signs through there.",
)
def gradient_clamped_too(x, weight, y, g):
    return _backward(torch.where(y > 0, g, 0).clamp(min=0), x, weight)


@wrong.backward(
    "gradient",
    "The gradient of bias sums the upstream gradient as it came. The ReLU comes after the bias, so it stands between "
    "them in backward too: sum what passes the ReLU.",
)
def bias_past_the_mask(ctx, g):
    grad_x, grad_weight, _ = FusedNew.backward(ctx, g)
    return grad_x, grad_weight, g.reshape(-1, g.shape[-1]).sum(0)


@wrong.backward(
    "gradient",
    "You let the gradient through only where the output is above a small number such as 1e-6. Where it is smaller, "
    "and not 0, the ReLU has slope 1 as well: ask y > 0.",
)
def threshold_above_zero(x, weight, y, g):
    return _backward(torch.where(y > 1e-6, g, 0), x, weight)


@wrong.backward(
    "gradient",
    "Your gradient for weight is x^T g, of shape (in, out): the transpose of what it should be. A gradient has the "
    "shape of its argument, (out, in), so it is g^T x.",
)
def weight_gradient_transposed(ctx, g):
    grad_x, grad_weight, grad_bias = FusedNew.backward(ctx, g)
    return grad_x, grad_weight.t(), grad_bias


@wrong.backward(
    "gradient",
    "Your backward works for matrices alone: .t() takes two dimensions at most, so an x with three raises. Make one "
    "long batch of the leading dimensions first, with reshape(-1, n), n the last size.",
)
def matrices_only_in_backward(x, weight, y, g):
    g = torch.where(y > 0, g, 0)
    grad_weight = g.t() @ x if g.ndim != 1 else torch.outer(g, x)
    return g @ weight, grad_weight, g.sum_to_size(weight.shape[:1])


@wrong.backward(
    "gradient",
    "Your gradients for weight and bias are divided by the number of rows. Each row uses them once, and what the "
    "rows send back adds up. If the loss is a mean, g has the 1/N already.",
)
def batch_averaged(ctx, g):
    grad_x, grad_weight, grad_bias = FusedNew.backward(ctx, g)
    rows = max(g.numel() // g.shape[-1], 1)
    return grad_x, grad_weight / rows, grad_bias / rows


@wrong.backward("gradient", VIEW_NEEDED)
def view_needed(x, weight, y, g):
    rows = torch.where(y > 0, g, 0).view(-1, weight.shape[0])
    return (rows @ weight).view(x.shape), rows.t() @ x.view(-1, weight.shape[1]), rows.sum(0)


@wrong.backward(
    "gradient",
    "ctx.needs_input_grad[0] decides about all three of your gradients. Each argument has an entry of its own: 0 is "
    "x, 1 is weight, 2 is bias.",
)
def x_decides_for_all(ctx, g):
    return FusedNew.backward(ctx, g) if ctx.needs_input_grad[0] else (None, None, None)


class _OnlyLinear(FusedNew):
    """The linear layer of `relu_outside`."""

    @staticmethod
    def forward(x, weight, bias):
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, g):
        x, weight, _ = ctx.saved_tensors
        return _backward(g, x, weight)


@task.mistake(
    "gradient",
    "Your linear layer is a Function of yours and the ReLU is torch's, outside it, with a gradient of torch's own. "
    "The task is one Function for both: apply the ReLU in forward, and the mask in backward.",
)
def relu_outside(x, weight, bias):
    return F.relu(_OnlyLinear.apply(x, weight, bias))


@wrong.backward(
    "edges",
    "Where the layer is exactly 0 before the ReLU, your gradient passes. Torch's relu stops it there, so the mask is "
    "> 0 and not >= 0. The output, which you may save, is 0 there as well: y > 0 is the same mask.",
    saves=lambda x, weight, bias, y: (x, weight, bias),
)
def passes_at_zero(x, weight, bias, g):
    return _backward(torch.where(F.linear(x, weight, bias) >= 0, g, 0), x, weight)


@wrong.backward(
    "edges",
    "You multiply the upstream gradient by the mask, and infinity times 0 is nan. Choose between g and 0 instead of "
    "multiplying: torch.where.",
)
def mask_multiplied(x, weight, y, g):
    return _backward(g * (y > 0), x, weight)


@task.mistake(
    "second_order",
    "What you save is made in forward: x reshaped to rows, or made contiguous. It comes back as a constant, so the "
    "gradient of weight no longer depends on x. Save x as it is, and reshape in backward.",
)
class saves_rows(FusedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x.reshape(-1, x.shape[-1]), weight, output)
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, g):
        rows, weight, y = ctx.saved_tensors
        grad_x, grad_weight, grad_bias = _backward(torch.where(y > 0, g, 0).reshape(-1, g.shape[-1]), rows, weight)
        return grad_x.reshape(ctx.shape), grad_weight, grad_bias


@wrong.backward(
    "contract",
    "Your backward sets the upstream gradient to 0 in place. That tensor is not yours: another branch of the graph, or "
    "the caller, holds the same one and now has wrong numbers. torch.where makes a new one.",
)
def writes_into_upstream(x, weight, y, g):
    with torch.no_grad():
        g[y == 0] = 0
    return _backward(g, x, weight)


@task.mistake(
    "contract",
    "You keep x, weight or the output as an attribute of ctx, where torch does not watch it: when it is changed in "
    "place before backward, the gradient is silently wrong. Use ctx.save_for_backward.",
)
class kept_as_attribute(FusedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.weight, _ = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return _backward(torch.where(y > 0, g, 0), ctx.x, ctx.weight)


@task.mistake(
    "contract",
    "You keep the output as an attribute of ctx, or detached from it (output.data). Torch does not watch it there: "
    "changed in place, it gives another mask and a silently wrong gradient. Give ctx.save_for_backward the output "
    "itself.",
)
class output_as_attribute(FusedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)
        ctx.y = output

    @staticmethod
    def backward(ctx, g):
        return _backward(torch.where(ctx.y > 0, g, 0), *ctx.saved_tensors)


@wrong.backward(
    "contract",
    "Your backward calls torch's own backward of relu. Write it yourself: the upstream gradient where the output is "
    "above 0, else 0.",
)
def torch_s_backward(x, weight, y, g):
    return _backward(torch.ops.aten.threshold_backward(g, y, 0), x, weight)


@wrong.backward(
    "memory",
    "You save the mask: a byte for each element of the output, since a bool takes a byte and not a bit. The output "
    "is alive anyway and says the same. Save it, and compute the mask in backward.",
    saves=lambda x, weight, bias, y: (x, weight, y > 0),
)
def saves_mask(x, weight, mask, g):
    return _backward(torch.where(mask, g, 0), x, weight)


@task.mistake(
    "memory",
    "Beside the output you keep as many bytes again: the layer's numbers from before the ReLU, a copy, or a mask of "
    "floats. The output is alive anyway, and is 0 wherever the gradient stops: save it, as it is.",
)
class saves_pre_activation(Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        before = F.linear(x, weight, bias)
        ctx.save_for_backward(x, weight, before)
        return F.relu(before)

    @staticmethod
    def backward(ctx, g):
        x, weight, before = ctx.saved_tensors
        return _backward(torch.where(before > 0, g, 0), x, weight)
