"""Linear: three tensors, of which the bias may be missing."""

from itertools import compress, product

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F
from torch.nn.grad import conv1d_weight

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import GRADIENT, WATCHED, gradient, value
from graders.judge.task import BRAIN, DOUBLE, DTYPES, HALF, SINGLE, Check, Draw, Task
from graders.judge.wording import KEPT_OUTSIDE
from graders.judge.wrong import Wrong
from graders.sets.linear.common import DENIED, SAVES_DATA, contract, lopsided, named, second_order

PLACE = 1
GLOBAL: dict[str, Tensor] = {}  # where the mistake `kept_outside_ctx` keeps things


def _factors(d: Draw, *shape: int, out: int = 4, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor, Tensor]:
    """Return x of this shape, weight and bias."""
    return tuple(d.between(-1.5, 1.5, *s, dtype=dtype) for s in (shape, (out, shape[-1]), (out,)))


def _forms(d: Draw, order: int = 1) -> list[Case]:
    """Return cases of every dtype, leading dimensions of every kind, layouts, and sizes that are 1 or equal."""
    shapes = {"a vector": (3,), "a batch of batches": (2, 2, 3), "no rows": (0, 3), "one row": (1, 3)}
    cases = [d.case(f"{named(t)} input", *_factors(d, 2, 3, dtype=t), order=order) for t in DTYPES[:3]]
    cases += [d.case(name, *_factors(d, *shape), order=order) for name, shape in shapes.items()]
    cases += [d.case("a square weight", *_factors(d, 2, 3, out=3), order=order)]
    cases += [d.case("one input, one output", *_factors(d, 2, 1, out=1), order=order)]
    x, weight, bias = _factors(d, 2, 2, 3)
    weight = weight.t().contiguous().t()
    cases += [d.case("a transposed x and weight", x.transpose(0, 1), weight, bias, order=order)]
    cases += [d.case("an expanded x and bias", x[:1].expand(2, 2, 3), weight, bias[:1].expand(4), order=order)]
    return cases


def _many_rows(d: Draw) -> Case:
    """Return a case whose rows add up to more than 256, above which two numbers of bfloat16 are 2 apart."""
    x, weight, bias = _factors(d, 600, 1, out=2, dtype=BRAIN)
    return d.case("600 rows in bfloat16", torch.zeros_like(x), weight, bias)  # nothing to add up for weight


def _subsets(d: Draw) -> list[Case]:
    """Return cases in which some of the arguments require a gradient."""
    cases = []
    for count in (3, 2):
        for flags in list(product((True, False), repeat=count))[1:-1]:
            wanted = " and ".join(compress(("x", "weight", "bias"), flags))
            name = f"a gradient for {wanted} alone{'' if count == 3 else ', no bias'}"
            cases.append(d.case(name, *_factors(d, 2, 3)[:count], requires=flags))
    return cases


task = Task(
    "Linear",
    "Linear.apply(x, weight, bias=None)",
    reference=lambda x, weight, bias=None: F.linear(x, weight, bias),
    checks=(
        value(
            1,
            about="the output equals F.linear, for any leading dimensions, in every dtype and layout",
            cases=lambda d: [
                *_forms(d, order=0),
                d.case("every size", d.scales(4, 3), *_factors(d, 2, 3)[1:], order=0),
                *lopsided(d, *_factors(d, 2, 3), order=0),
            ],
        ),
        gradient(
            2,
            about="all three gradients equal torch's, for any leading dimensions, and gradcheck passes",
            why="With g of shape (..., out): g @ weight for x; for weight and bias, sums over all rows of x.",
            cases=lambda d: [
                *_forms(d),
                d.case("every size", d.scales(4, 3), *_factors(d, 4, 3)[1:], upstream=d.scales(4, 4)),
                d.case(
                    "an expanded upstream gradient", *_factors(d, 2, 2, 3), upstream=d.normal(2, 1, 4).expand(2, 2, 4)
                ),
                *lopsided(d, *_factors(d, 2, 3), order=1),
                _many_rows(d),
            ],
            gradcheck=lambda d: _factors(d, 2, 2, 3),
        ),
        Check(
            "arguments",
            1,
            about="bias None, left out or by keyword; any subset of the arguments may need a gradient",
            why="Layers without bias and layers that are frozen are everyday cases.",
            cases=lambda d: [
                d.case("bias is None", *_factors(d, 2, 3)[:2], None),
                *(d.case("bias left out", *_factors(d, *s)[:2]) for s in ((2, 3), (3,), (2, 2, 3))),
                d.case("float16, bias left out", *_factors(d, 2, 3, dtype=HALF)[:2]),
                d.case("weight and bias by keyword", *_factors(d, 2, 3), keywords=("weight", "bias")),
                d.case("bias=None by keyword", *_factors(d, 2, 3)[:2], None, keywords=("bias",)),
                *_subsets(d),
                d.case("all arguments by keyword", *_factors(d, 2, 3), keywords=("x", "weight", "bias")),
            ],
            looks=(*GRADIENT, look.dtype, look.value),
        ),
        second_order(
            1,
            about="each gradient can be differentiated again, by the other factor and by g",
            cases=lambda d: [
                d.case("a matrix", *_factors(d, 2, 3), order=2),
                d.case("a vector", *_factors(d, 3), order=2),
                d.case("a batch of batches", *_factors(d, 2, 2, 3), order=2),
                d.case("weight requires no gradient", *_factors(d, 2, 3), order=2, requires=(True, False, True)),
                *lopsided(d, *_factors(d, 2, 3, out=3), order=2),
            ],
            gradcheck=lambda d: _factors(d, 2, 3, out=2),
        ),
        contract(
            1,
            cases=lambda d: [
                d.case("a matrix", *_factors(d, 2, 3), watch=WATCHED, deny=DENIED),
                d.case("a float32 vector", *_factors(d, 3, dtype=SINGLE), watch=("state",)),
                d.case("a batch of batches", *_factors(d, 2, 2, 3), watch=("state", "overwrite")),
            ],
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class LinearNew(Function):
    """All rows as one long batch, so that x may have any leading dimensions: the one to write."""

    @staticmethod
    def forward(x, weight, bias=None):
        y = x @ weight.t()
        return y if bias is None else y + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias = inputs
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        rows = g.reshape(-1, g.shape[-1])
        grad_weight = rows.t() @ x.reshape(-1, x.shape[-1])
        return g @ weight, grad_weight, rows.sum(0) if ctx.has_bias else None


@task.solution
class LinearOld(Function):
    """forward and setup_context in one, which sees as many arguments as were passed; computes wanted gradients alone.

    A layer whose weight is frozen saves the larger product so.
    """

    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight, bias)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, g):
        x, weight, bias = ctx.saved_tensors
        needs = ctx.needs_input_grad
        grads = [None] * len(needs)
        if needs[0]:
            grads[0] = g.matmul(weight)
        if needs[1]:
            grads[1] = g.flatten(0, -2).t() @ x.flatten(0, -2) if x.ndim > 1 else torch.outer(g, x)
        if bias is not None and needs[2]:
            grads[2] = g.sum_to_size(bias.shape)
        return tuple(grads)


@task.solution
class LinearEinsum(LinearNew):
    """Every product as an einsum: the indices say what is summed, at the price of some speed."""

    @staticmethod
    def forward(x, weight, bias=None):
        y = torch.einsum("...i,oi->...o", x, weight)
        return y if bias is None else y.add_(bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight, bias = ctx.saved_tensors
        grad_weight = torch.einsum("no,ni->oi", g.reshape(-1, g.shape[-1]), x.reshape(-1, x.shape[-1]))
        return torch.einsum("...o,oi->...i", g, weight), grad_weight, None if bias is None else g


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class LinearBatched(LinearNew):
    """One product for each matrix of the batch, which the engine sums; asks who wants a gradient."""

    @staticmethod
    def forward(x, weight, bias=None):
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        grad_x = grad_weight = grad_bias = None
        if needs_x:
            grad_x = F.linear(g, weight.t())
        if needs_weight:
            grad_weight = torch.outer(g, x) if g.ndim == 1 else g.mT @ x
        if needs_bias:
            grad_bias = g.sum(list(range(g.ndim - 1))) if g.ndim > 1 else g
        return grad_x, grad_weight, grad_bias


@task.solution
class LinearByBroadcasting(LinearNew):
    """A product over a new axis, and sums: no matrix product at all."""

    @staticmethod
    def forward(x, weight, bias=None):
        y = (x.unsqueeze(-2) * weight).sum(-1)
        return y if bias is None else y + bias

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        g = g.unsqueeze(-1)
        grad_weight = (g * x.unsqueeze(-2)).sum_to_size(weight.shape)
        return (g * weight).sum(-2), grad_weight, g.squeeze(-1).sum_to_size(weight.shape[:1]) if ctx.has_bias else None


# --- Mistakes ---------------------------------------------------------------------------------------------------------


def _right(x: Tensor, weight: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three gradients."""
    rows = g.reshape(-1, g.shape[-1])
    return g @ weight, rows.t() @ x.reshape(-1, x.shape[-1]), rows.sum(0)


wrong = Wrong(task, of=LinearNew)
wrong.habits(
    "float32_inside float32_and_back view_needed no_function not_differentiable_twice kept_as_attribute",
    upstream_ignored="Your gradients do not depend on the upstream gradient, as if it were 1 everywhere. Put it "
    "where you have ones: g @ weight for x, g^T x for weight, the sum of g over the rows for bias.",
    nothing_returned="Your backward returns None for everything (is a return statement missing?): nothing gets a "
    "gradient at all.",
    detached="Your first derivatives are right and your second are missing: detach (or .data) in backward cuts x and "
    "weight out of the graph of the gradients. Use what you saved as it is.",
    autograd_in_backward="Your backward lets torch.autograd differentiate forward. The task is to write the "
    "vector-Jacobian product yourself: g @ weight, g^T x, and a sum.",
)


@wrong.forward(
    "value",
    "You multiply by weight as it is. Its shape is (out, in), as in F.linear, so x is multiplied by its transpose: "
    "x @ weight.t().",
)
def weight_not_transposed(x, weight, bias=None):
    y = x @ weight
    return y if bias is None else y + bias


@wrong.forward(
    "value",
    "Your forward multiplies with mm, which takes matrices alone: an x with one dimension, or with three, raises. The "
    "operator @ (torch.matmul) takes any leading dimensions.",
)
def two_dimensions_only(x, weight, bias=None):
    y = torch.mm(x, weight.t())
    return y if bias is None else y + bias


@task.mistake(
    "value",
    "Your output is a matrix whatever the leading dimensions of x are: you make one long batch of them and do not "
    "bring them back. The output has the shape of x with in replaced by out.",
)
class leading_dimensions_lost(LinearNew):
    @staticmethod
    def forward(x, weight, bias=None):
        y = x.reshape(-1, x.shape[-1]) @ weight.t()
        return y if bias is None else y + bias

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grad_weight = g.t() @ x.reshape(-1, x.shape[-1])
        return (g @ weight).reshape(x.shape), grad_weight, g.sum(0) if ctx.has_bias else None


@wrong.backward(
    "gradient",
    "Your gradient for x multiplies by weight.t(), as forward does. Backward goes the other way: g has shape (..., "
    "out), weight (out, in), so the gradient of x is g @ weight.",
)
def weight_transposed_again(ctx, x, weight, g):
    return g @ weight.t(), *LinearNew.backward(ctx, g)[1:]


@wrong.backward(
    "gradient",
    "Your gradients stand in the wrong order: torch takes the first for x, the second for weight, the third for bias, as forward "
    "has them. Return grad_x, grad_weight, grad_bias.",
)
def x_and_weight_swapped(ctx, g):
    grad_x, grad_weight, grad_bias = LinearNew.backward(ctx, g)
    return grad_weight, grad_x, grad_bias


@wrong.backward(
    "gradient",
    "Your gradients stand in the wrong order: weight comes before bias, as in forward. Return grad_x, grad_weight, grad_bias.",
)
def weight_and_bias_swapped(ctx, g):
    grad_x, grad_weight, grad_bias = LinearNew.backward(ctx, g)
    return grad_x, grad_bias, grad_weight


@wrong.backward(
    "gradient",
    "Your gradient for weight is x^T g, of shape (in, out): the transpose of what it should be. A gradient has the "
    "shape of its argument, (out, in), so it is g^T x.",
)
def weight_gradient_transposed(ctx, g):
    grad_x, grad_weight, grad_bias = LinearNew.backward(ctx, g)
    return grad_x, grad_weight.t(), grad_bias


@wrong.backward(
    "gradient",
    "Your backward transposes with .t(), which takes two dimensions at most: an x with three raises. Make one long "
    "batch of the leading dimensions first, with reshape(-1, n), n the last size.",
)
def matrices_only_in_backward(ctx, x, weight, g):
    grad_weight = g.t() @ x if g.ndim != 1 else torch.outer(g, x)
    return g @ weight, grad_weight, g.sum_to_size(weight.shape[:1]) if ctx.has_bias else None


@wrong.backward(
    "gradient",
    "Your weight gradient fails for an x with one dimension: transposing a vector does nothing (or raises), and g^T "
    "x needs two matrices. Reshape both to matrices of one row: reshape(-1, n), n the last size.",
)
def vector_forgotten(ctx, x, weight, g):
    return g @ weight, g.mT @ x, g if ctx.has_bias else None


@wrong.backward(
    "gradient",
    "Your bias gradient sums over the first axis (g.sum(0)), or over an empty tuple of axes, which sums over all. "
    "For an x with one dimension there is no leading axis: the bias gradient is g as it is. Reshape g to (-1, out) "
    "first.",
)
def bias_summed_without_rows(ctx, g):
    grad_x, grad_weight, _ = LinearNew.backward(ctx, g)
    return grad_x, grad_weight, g.sum(tuple(range(g.ndim - 1))) if ctx.has_bias else None


@wrong.backward(
    "gradient",
    "Your gradients for weight and bias are divided by the number of rows. Each row uses them once, and what the "
    "rows send back adds up. If the loss is a mean, g has the 1/N already.",
)
def batch_averaged(ctx, g):
    grad_x, grad_weight, grad_bias = LinearNew.backward(ctx, g)
    rows = max(g.numel() // g.shape[-1], 1)
    return grad_x, grad_weight / rows, None if grad_bias is None else grad_bias / rows


@wrong.backward(
    "gradient",
    "Your gradient for weight is the mean over the rows. Each row uses weight once, and what the rows send back adds "
    "up. If the loss is a mean, g has the 1/N already.",
)
def weight_averaged(ctx, g):
    grad_x, grad_weight, grad_bias = LinearNew.backward(ctx, g)
    return grad_x, grad_weight / max(g.numel() // g.shape[-1], 1), grad_bias


@wrong.backward(
    "gradient",
    "Your gradient for bias is the mean over the rows. Each row uses bias once, and what the rows send back adds up: "
    "take the sum. If the loss is a mean, g has the 1/N already.",
)
def bias_averaged(ctx, x, weight, g):
    grad_x, grad_weight, _ = _right(x, weight, g)
    return grad_x, grad_weight, g.reshape(-1, g.shape[-1]).mean(0) if ctx.has_bias else None


@wrong.backward(
    "gradient",
    "You reshape the rows of g to (out, n) where they should be transposed. A reshape keeps the order in memory, so "
    "numbers of one row end up in several: reshape to (-1, out) first, and transpose with .t().",
)
def reshaped_for_transpose(ctx, x, weight, g):
    grad_x, _, grad_bias = _right(x, weight, g)
    columns = g.reshape(weight.shape[0], g.numel() // weight.shape[0])
    return grad_x, columns @ x.reshape(-1, x.shape[-1]), grad_bias if ctx.has_bias else None


@wrong.backward(
    "gradient",
    "A bias of zeros, as many layers start with, gets no gradient from you and would never learn. Ask whether bias is "
    "None, not whether a number in it differs from 0.",
    saves=lambda x, weight, bias, y: (x, weight, bias),
)
def zeros_taken_for_no_bias(ctx, x, weight, bias, g):
    return *_right(x, weight, g)[:2], _right(x, weight, g)[2] if bias is not None and bias.any() else None


@wrong.backward(
    "gradient",
    "For an input without rows your backward returns None. Its gradients are tensors too, of zeros, in the shape of "
    "each argument: sums and products over no rows give them, so no special case is needed.",
)
def nothing_for_no_rows(ctx, g):
    return LinearNew.backward(ctx, g) if g.numel() else (None, None, None)


@wrong.backward(
    "gradient",
    "You add the rows for the bias one after another. In half precision the sum stops growing when a row is smaller "
    "than the distance between its numbers: rows.sum(0) adds with more digits inside.",
)
def rows_added_one_by_one(ctx, x, weight, g):
    total = torch.zeros_like(weight[:, 0])
    for row in g.reshape(-1, g.shape[-1]):
        total = total + row
    return *_right(x, weight, g)[:2], total if ctx.has_bias else None


@wrong.backward(
    "gradient",
    "Your gradient for weight is computed from a copy of x in bfloat16, whose numbers are off by up to 0.4 percent; "
    "converting them back does not mend that. Save x itself: that makes no copy at all.",
    saves=lambda x, weight, bias, y: (x.to(BRAIN), weight),
)
def x_saved_in_bfloat16(ctx, x, weight, g):
    grad_x, grad_weight, grad_bias = _right(x.to(g.dtype), weight, g)
    return grad_x, grad_weight, grad_bias if ctx.has_bias else None


@task.mistake(
    "gradient",
    "Your product is a Function of yours and the bias is added outside it, so torch computes its gradient. The task "
    "is to write all of it: add the bias in forward, and return its gradient from backward.",
)
def bias_added_outside(x, weight, bias=None):
    y = LinearNew.apply(x, weight)
    return y if bias is None else y + bias


@wrong.forward("arguments", "Your forward has no default for bias, so Linear.apply(x, weight) raises. Write bias=None.")
def bias_required(x, weight, bias):
    return F.linear(x, weight, bias)


@wrong.forward("arguments", "Your forward adds the bias also when it is None. Ask first whether bias is None.")
def bias_always_added(x, weight, bias=None):
    return x @ weight.t() + bias


@wrong.forward(
    "arguments",
    "Where there is no bias you add zeros made by torch.zeros(shape), which are float32: for half-precision input "
    "the output is float32 too. Add nothing, or make the zeros with x.new_zeros(shape).",
)
def zeros_in_float32(x, weight, bias=None):
    bias = torch.zeros(weight.shape[0]) if bias is None else bias
    return x @ weight.t() + bias


@wrong.backward(
    "arguments",
    "Your backward returns a gradient for a bias that is None. Only tensors have gradients: return None for it.",
)
def gradient_for_no_bias(x, weight, g):
    rows = g.reshape(-1, g.shape[-1])
    return g @ weight, rows.t() @ x.reshape(-1, x.shape[-1]), rows.sum(0)


@wrong.backward(
    "arguments",
    "Without a bias your backward returns two gradients. forward has three arguments, and torch wants one entry for "
    "each of them: return None for the bias that is missing.",
)
def entry_missing(ctx, x, weight, g):
    return _right(x, weight, g) if ctx.has_bias else _right(x, weight, g)[:2]


@wrong.backward(
    "arguments",
    "You compute the gradient of bias only where weight wants one too, so a bias beside a frozen weight never learns. "
    "Its own entry is ctx.needs_input_grad[2].",
)
def bias_waits_for_weight(ctx, g):
    grad_x, grad_weight, grad_bias = LinearNew.backward(ctx, g)
    return grad_x, grad_weight, grad_bias if ctx.needs_input_grad[1] else None


@task.mistake(
    "arguments",
    "ctx.needs_input_grad[2] raises where bias is left out: with forward(ctx, ...) the tuple has one entry for each "
    "argument that was passed. Write forward and setup_context apart, and defaults count as passed; or ask for the "
    "length first.",
)
class index_past_the_end(Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        rows = g.reshape(-1, g.shape[-1])
        grad_weight = rows.t() @ x.reshape(-1, x.shape[-1])
        return g @ weight, grad_weight, rows.sum(0) if ctx.needs_input_grad[2] else None


@wrong.forward(
    "arguments",
    "Your arguments are not called weight and bias, so a caller who names them gets a TypeError. Use the names of "
    "the task's text.",
)
def arguments_renamed(x, w, b=None):
    return F.linear(x, w, b)


@wrong.forward(
    "arguments",
    "Your first argument is called input, as in F.linear. Here it is x, so a caller who names it gets a TypeError. Use "
    "the names of the task's text.",
)
def input_for_x(input, weight, bias=None):
    return F.linear(input, weight, bias)


@task.mistake(
    "arguments",
    "Your first argument after ctx is called input, as in F.linear. Here it is x, so a caller who names it gets a "
    "TypeError. Use the names of the task's text.",
)
class input_for_x_after_ctx(LinearOld):
    @staticmethod
    def forward(ctx, input, weight, bias=None):
        return LinearOld.forward(ctx, input, weight, bias)


@wrong.backward(
    "second_order",
    "You save the transpose of weight (or another tensor made in forward), or you detach weight, so it comes back as a "
    "constant: the gradient of x no longer depends on weight. Save weight itself, and use it as it is in backward.",
    saves=lambda x, weight, bias, y: (x, weight.t().contiguous()),
)
def saves_transpose(ctx, x, transposed, g):
    rows = g.reshape(-1, g.shape[-1])
    grad_weight = rows.t() @ x.reshape(-1, x.shape[-1])
    return g @ transposed.t(), grad_weight, rows.sum(0) if ctx.has_bias else None


@wrong.saves(
    "second_order",
    "You save copies of x and weight that forward or setup_context made (transposed, reshaped, cloned): they come back "
    "as constants, and the second derivatives are missing. Save x and weight themselves.",
)
def saves_copies(x, weight, bias, y):
    return x.clone(), weight.clone()


@wrong.backward(
    "contract",
    "You turn an upstream gradient with one dimension into a row by unsqueeze_, in place. That tensor is not yours: "
    "another branch of the graph, or the caller, holds the same one. Use unsqueeze, or reshape.",
)
def writes_into_upstream(ctx, x, weight, g):
    rows = g.unsqueeze_(0) if g.ndim == 1 else g.reshape(-1, g.shape[-1])
    grad_x, grad_weight = (rows @ weight).reshape(x.shape), rows.t() @ x.reshape(-1, x.shape[-1])
    return grad_x, grad_weight, rows.sum(0) if ctx.has_bias else None


@task.mistake(
    "contract",
    "weight.t_() transposes the caller's weight in place, as a name with _ at its end says: afterwards it has another "
    "shape, and the next call fails. Use weight.t(), a view.",
)
class transposes_in_place(LinearNew):
    @staticmethod
    def forward(x, weight, bias=None):
        y = x @ weight.t_()
        return y if bias is None else y + bias

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grads = _right(x, weight.t(), g)
        return grads if ctx.has_bias else (*grads[:2], None)


@wrong.saves("contract", SAVES_DATA)
def saves_data(x, weight, bias, y):
    return x.data, weight.data


@wrong.backward(
    "contract",
    "Your backward takes the gradient from torch's own backward of a convolution (torch.nn.grad). Write the product "
    "yourself: it is g^T x, over all rows.",
)
def torch_s_backward(ctx, x, weight, g):
    rows = g.reshape(1, -1, g.shape[-1]).transpose(1, 2)
    columns = x.reshape(1, -1, x.shape[-1]).transpose(1, 2)
    grad_x, grad_weight, grad_bias = _right(x, weight, g)
    if x.numel():
        grad_weight = conv1d_weight(columns, (*weight.shape, 1), rows).squeeze(2)
    return grad_x, grad_weight, grad_bias if ctx.has_bias else None


@task.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        GLOBAL["x"], GLOBAL["weight"], ctx.bias = x, weight, bias is not None
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, g):
        x, rows = GLOBAL["x"], g.reshape(-1, g.shape[-1])
        grad_weight = rows.t() @ x.reshape(-1, x.shape[-1])
        return g @ GLOBAL["weight"], grad_weight, rows.sum(0) if ctx.bias else None


@wrong.backward(
    "second_order",
    "You save the rows of x, x.reshape(...) made in setup_context. There they are a constant, so nothing arrives at x in "
    "the second derivative. Save x itself, and reshape it in backward.",
    saves=lambda x, weight, bias, y: (x.reshape(-1, x.shape[-1]), weight),
)
def saves_rows(ctx, rows, weight, g):
    flat = g.reshape(-1, g.shape[-1])
    grad_bias = flat.sum(0) if ctx.has_bias else None
    return g @ weight, flat.T @ rows, grad_bias


@task.mistake(
    "arguments",
    "You save x only where x wants a gradient, and weight only where weight does. It is the other way round: the gradient of "
    "x is made of weight, and that of weight of x. Save what the wanted gradients are made of, or both.",
)
class saves_what_wants_a_gradient(LinearNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias = inputs
        needs = ctx.needs_input_grad
        ctx.save_for_backward(x if needs[0] else None, weight if needs[1] else None)
        ctx.has_bias = bias is not None

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        needs, rows = ctx.needs_input_grad, g.reshape(-1, g.shape[-1])
        grad_x = g @ weight if needs[0] else None
        grad_weight = rows.t() @ x.reshape(-1, x.shape[-1]) if needs[1] else None
        return grad_x, grad_weight, rows.sum(0) if ctx.has_bias and needs[2] else None
