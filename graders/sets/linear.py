"""Set 06: Linear, BroadcastMul, Swish, SwiGLU; and the chapter's BroadcastDiv, Mean, Amax, Softplus."""

from collections.abc import Callable
from itertools import compress, product

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.task import BRAIN, DOUBLE, DTYPES, HALF, SINGLE, Check, Draw, Task
from graders.judge.wording import (
    CUT_OFF,
    FLOAT32,
    FLOAT32_AND_BACK,
    KEPT_AS_ATTRIBUTE,
    KEPT_OUTSIDE,
    NO_FUNCTION,
    NOTHING_RETURNED,
    VIEW_NEEDED,
    WRITES_INTO_UPSTREAM,
)

GLOBAL: dict[str, Tensor] = {}  # where the mistakes `kept_outside_ctx` keep things
ALL = ("state", "overwrite", "trace")
DENIED = ("aten::sigmoid_backward", "aten::silu_backward", "aten::glu_backward")  # torch's own backwards

FORWARD = (*look.FORWARD[:-1], look.precise, look.value)
FIRST = (*look.FIRST[:-1], look.precise, look.gradient)
SECOND = (*FIRST, look.second_order)
# what is changed in place comes before the numbers that it spoils
CONTRACT = (*FIRST[:4], look.untouched, *FIRST[4:], look.stateless, look.guarded, look.allowed)


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# --- Linear -----------------------------------------------------------------------------------------------------------


def _factors(d: Draw, *shape: int, out: int = 4, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor, Tensor]:
    """x of this shape, weight and bias."""
    return tuple(d.between(-1.5, 1.5, *s, dtype=dtype) for s in (shape, (out, shape[-1]), (out,)))


def _linear_forms(d: Draw, order: int = 1) -> list[Case]:
    """Every dtype, leading dimensions of every kind, layouts, and sizes that are 1 or equal."""
    shapes = {"a vector": (3,), "a batch of batches": (2, 2, 3), "no rows": (0, 3), "one row": (1, 3)}
    cases = [d.case(f"{_named(t)} input", *_factors(d, 2, 3, dtype=t), order=order) for t in DTYPES[:3]]
    cases += [d.case(name, *_factors(d, *shape), order=order) for name, shape in shapes.items()]
    cases += [d.case("a square weight", *_factors(d, 2, 3, out=3), order=order)]
    cases += [d.case("one input, one output", *_factors(d, 2, 1, out=1), order=order)]
    x, weight, bias = _factors(d, 2, 2, 3)
    weight = weight.t().contiguous().t()
    cases += [d.case("a transposed x and weight", x.transpose(0, 1), weight, bias, order=order)]
    cases += [d.case("an expanded x and bias", x[:1].expand(2, 2, 3), weight, bias[:1].expand(4), order=order)]
    return cases


def _subsets(d: Draw) -> list[Case]:
    """Which of the arguments require a gradient."""
    cases = []
    for count in (3, 2):
        for flags in list(product((True, False), repeat=count))[1:-1]:
            wanted = " and ".join(compress(("x", "weight", "bias"), flags))
            name = f"a gradient for {wanted} alone{'' if count == 3 else ', no bias'}"
            cases.append(d.case(name, *_factors(d, 2, 3)[:count], requires=flags))
    return cases


linear = Task(
    "Linear",
    "Linear.apply(x, weight, bias=None)",
    lambda x, weight, bias=None: F.linear(x, weight, bias),
    (
        Check(
            "value",
            1,
            "the output equals F.linear, for any leading dimensions, in every dtype and layout",
            "Forward is what every later number rests on.",
            lambda d: [
                *_linear_forms(d, order=0),
                d.case("every size", d.scales(4, 3), *_factors(d, 2, 3)[1:], order=0),
            ],
            FORWARD,
        ),
        Check(
            "gradient",
            2,
            "all three gradients equal torch's, for any leading dimensions, and gradcheck passes",
            "With g of shape (..., out): g @ weight for x; for weight and bias, sums over all rows of x.",
            lambda d: [
                *_linear_forms(d),
                d.case("every size", d.scales(4, 3), *_factors(d, 4, 3)[1:], upstream=d.scales(4, 4)),
                d.case(
                    "an expanded upstream gradient", *_factors(d, 2, 2, 3), upstream=d.normal(2, 1, 4).expand(2, 2, 4)
                ),
            ],
            FIRST,
            lambda d: _factors(d, 2, 2, 3),
        ),
        Check(
            "arguments",
            1,
            "bias None, left out or by keyword; any subset of the arguments may need a gradient",
            "Layers without bias and layers that are frozen are everyday cases.",
            lambda d: [
                d.case("bias is None", *_factors(d, 2, 3)[:2], None),
                *(d.case("bias left out", *_factors(d, *s)[:2]) for s in ((2, 3), (3,), (2, 2, 3))),
                d.case("float16, bias left out", *_factors(d, 2, 3, dtype=HALF)[:2]),
                d.case("weight and bias by keyword", *_factors(d, 2, 3), keywords=("weight", "bias")),
                d.case("bias=None by keyword", *_factors(d, 2, 3)[:2], None, keywords=("bias",)),
                *_subsets(d),
            ],
            (*FIRST, look.dtype, look.value),
        ),
        Check(
            "second_order",
            1,
            "each gradient can be differentiated again, by the other factor and by g",
            "A Hessian or a gradient penalty differentiates your backward.",
            lambda d: [
                d.case("a matrix", *_factors(d, 2, 3), order=2),
                d.case("a vector", *_factors(d, 3), order=2),
                d.case("a batch of batches", *_factors(d, 2, 2, 3), order=2),
                d.case("weight requires no gradient", *_factors(d, 2, 3), order=2, requires=(True, False, True)),
            ],
            SECOND,
            lambda d: _factors(d, 2, 3, out=2),
            order=2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; those that backward needs are saved",
            "Tensors that your Function did not make belong to others.",
            lambda d: [
                d.case("a matrix", *_factors(d, 2, 3), watch=ALL),
                d.case("a float32 vector", *_factors(d, 3, dtype=SINGLE), watch=("state",)),
                d.case("a batch of batches", *_factors(d, 2, 2, 3), watch=("state", "overwrite")),
            ],
            CONTRACT,
        ),
    ),
    forbids=look.GRADIENT,
)


@linear.solution
class LinearNew(Function):
    """All rows as one long batch."""

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


@linear.solution
class LinearOld(Function):
    """forward and setup_context in one, which sees as many arguments as were passed; asks who wants a gradient."""

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


@linear.solution
class LinearEinsum(LinearNew):
    """Every product as an einsum; the bias gradient is left to the engine to sum."""

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


@linear.solution
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


@linear.solution
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


@linear.mistake(
    "value",
    "You multiply by weight as it is. Its shape is (out, in), as in F.linear, so x is multiplied by its transpose: "
    "x @ weight.t().",
)
class weight_not_transposed(LinearNew):
    @staticmethod
    def forward(x, weight, bias=None):
        y = x @ weight
        return y if bias is None else y + bias


@linear.mistake(
    "value",
    "Your forward multiplies with mm, which takes matrices alone: an x with one dimension, or with three, raises. The "
    "operator @ (torch.matmul) takes any leading dimensions.",
)
class two_dimensions_only(LinearNew):
    @staticmethod
    def forward(x, weight, bias=None):
        y = torch.mm(x, weight.t())
        return y if bias is None else y + bias


@linear.mistake(
    "value",
    "Your output is a matrix whatever the leading dimensions of x are: you make one long batch of them and do not bring "
    "them back. The output has the shape of x with in replaced by out.",
)
class leading_dimensions_lost(LinearNew):
    @staticmethod
    def forward(x, weight, bias=None):
        y = x.reshape(-1, x.shape[-1]) @ weight.t()
        return y if bias is None else y + bias

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return (
            (g @ weight).reshape(x.shape),
            g.t() @ x.reshape(-1, x.shape[-1]),
            g.sum(0) if ctx.has_bias else None,
        )


@linear.mistake("value", FLOAT32)
class float32_inside(LinearNew):
    @staticmethod
    def forward(x, weight, bias=None):
        return F.linear(x.float(), weight.float(), None if bias is None else bias.float())


@linear.mistake("value", FLOAT32_AND_BACK)
class float32_and_back(LinearNew):
    @staticmethod
    def forward(x, weight, bias=None):
        return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)


@linear.mistake(
    "gradient",
    "Your gradients do not depend on the upstream gradient, as if it were 1 everywhere. Put it where you have ones: "
    "g @ weight for x, g^T x for weight, the sum of g over the rows for bias.",
)
class upstream_ignored(LinearNew):
    @staticmethod
    def backward(ctx, g):
        return LinearNew.backward(ctx, torch.ones_like(g))


@linear.mistake(
    "gradient",
    "Your gradient for x multiplies by weight.t(), as forward does. Backward goes the other way: g has shape (..., out), "
    "weight (out, in), so the gradient of x is g @ weight.",
)
class weight_transposed_again(LinearNew):
    @staticmethod
    def backward(ctx, g):
        _, weight = ctx.saved_tensors
        _, grad_weight, grad_bias = LinearNew.backward(ctx, g)
        return g @ weight.t(), grad_weight, grad_bias


@linear.mistake(
    "gradient",
    "Your gradient for weight is x^T g, of shape (in, out): the transpose of what it should be. A gradient has the shape of "
    "its argument, (out, in), so it is g^T x.",
)
class weight_gradient_transposed(LinearNew):
    @staticmethod
    def backward(ctx, g):
        grad_x, grad_weight, grad_bias = LinearNew.backward(ctx, g)
        return grad_x, grad_weight.t(), grad_bias


@linear.mistake(
    "gradient",
    "Your backward transposes with .t(), which takes two dimensions at most: an x with three raises. Make one long batch of "
    "the leading dimensions first, with reshape(-1, n), n the last size.",
)
class matrices_only_in_backward(LinearNew):
    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grad_weight = g.t() @ x if g.ndim != 1 else torch.outer(g, x)
        return g @ weight, grad_weight, g.sum_to_size(weight.shape[:1]) if ctx.has_bias else None


@linear.mistake(
    "gradient",
    "Your weight gradient fails for an x with one dimension: transposing a vector does nothing (or raises), and g^T x needs "
    "two matrices. Reshape both to matrices of one row: reshape(-1, n), n the last size.",
)
class vector_forgotten(LinearNew):
    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return g @ weight, g.mT @ x, g if ctx.has_bias else None


@linear.mistake(
    "gradient",
    "Your bias gradient sums over the first axis (g.sum(0)), or over an empty tuple of axes, which sums over all. For an x "
    "with one dimension there is no leading axis: the bias gradient is g as it is. Reshape g to (-1, out) first.",
)
class bias_summed_without_rows(LinearNew):
    @staticmethod
    def backward(ctx, g):
        grad_x, grad_weight, _ = LinearNew.backward(ctx, g)
        return grad_x, grad_weight, g.sum(tuple(range(g.ndim - 1))) if ctx.has_bias else None


@linear.mistake(
    "gradient",
    "Your gradients for weight and bias are divided by the number of rows. Each row uses them once, and what the rows send "
    "back adds up. If the loss is a mean, g has the 1/N already.",
)
class batch_averaged(LinearNew):
    @staticmethod
    def backward(ctx, g):
        grad_x, grad_weight, grad_bias = LinearNew.backward(ctx, g)
        rows = max(g.numel() // g.shape[-1], 1)
        return grad_x, grad_weight / rows, None if grad_bias is None else grad_bias / rows


@linear.mistake(
    "gradient",
    "Your backward returns None for everything (is a return statement missing?): nothing gets a gradient at all.",
)
class nothing_returned(LinearNew):
    @staticmethod
    def backward(ctx, g):
        return None, None, None


@linear.mistake("gradient", VIEW_NEEDED)
class view_needed(LinearNew):
    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        rows = g.view(-1, g.shape[-1])
        grad_weight = rows.t() @ x.reshape(-1, x.shape[-1])
        return g @ weight, grad_weight, rows.sum(0) if ctx.has_bias else None


@linear.mistake(
    "gradient",
    "Your product is a Function of yours and the bias is added outside it, so torch computes its gradient. The task is to "
    "write all of it: add the bias in forward, and return its gradient from backward.",
)
def bias_added_outside(x, weight, bias=None):
    y = LinearNew.apply(x, weight)
    return y if bias is None else y + bias


@linear.mistake("gradient", NO_FUNCTION)
def no_function(x, weight, bias=None):
    return F.linear(x, weight, bias)


@linear.mistake(
    "arguments",
    "Your forward has no default for bias, so Linear.apply(x, weight) raises. Write bias=None.",
)
class bias_required(LinearNew):
    @staticmethod
    def forward(x, weight, bias):
        return F.linear(x, weight, bias)


@linear.mistake("arguments", "Your forward adds the bias also when it is None. Ask first whether bias is None.")
class bias_always_added(LinearNew):
    @staticmethod
    def forward(x, weight, bias=None):
        return x @ weight.t() + bias


@linear.mistake(
    "arguments",
    "Where there is no bias you add zeros made by torch.zeros(shape), which are float32: for half-precision input the output is "
    "float32 too. Add nothing, or make the zeros with x.new_zeros(shape).",
)
class zeros_in_float32(LinearNew):
    @staticmethod
    def forward(x, weight, bias=None):
        bias = torch.zeros(weight.shape[0]) if bias is None else bias
        return x @ weight.t() + bias


@linear.mistake(
    "arguments",
    "Your backward returns a gradient for a bias that is None. What is no tensor can have none: return None in its place.",
)
class gradient_for_no_bias(LinearNew):
    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        rows = g.reshape(-1, g.shape[-1])
        return g @ weight, rows.t() @ x.reshape(-1, x.shape[-1]), rows.sum(0)


@linear.mistake(
    "arguments",
    "ctx.needs_input_grad[2] raises where bias is left out: with forward(ctx, ...) the tuple has one entry for each argument "
    "that was passed. Write forward and setup_context apart, and defaults count as passed; or ask for the length first.",
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


@linear.mistake(
    "arguments",
    "Your arguments are not called weight and bias, so a caller who names them gets a TypeError. Use the names of the task's "
    "text.",
)
class arguments_renamed(LinearNew):
    @staticmethod
    def forward(x, w, b=None):
        return F.linear(x, w, b)


@linear.mistake(
    "second_order",
    "Your first derivatives are right and your second are missing: detach (or .data) in backward cuts x and weight out of the "
    "graph of the gradients. Use what you saved as it is.",
)
class detached(LinearNew):
    @staticmethod
    def backward(ctx, g):
        x, weight = (t.detach() for t in ctx.saved_tensors)
        rows = g.reshape(-1, g.shape[-1])
        grad_weight = rows.t() @ x.reshape(-1, x.shape[-1])
        return g @ weight, grad_weight, rows.sum(0) if ctx.has_bias else None


@linear.mistake(
    "second_order",
    "You save the transpose of weight (or another tensor made in forward), which comes back as a constant: the gradient of "
    "x no longer depends on weight. Save weight itself, and transpose in backward.",
)
class saves_transpose(LinearNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias = inputs
        ctx.save_for_backward(x, weight.t().contiguous())
        ctx.has_bias = bias is not None

    @staticmethod
    def backward(ctx, g):
        x, transposed = ctx.saved_tensors
        rows = g.reshape(-1, g.shape[-1])
        grad_weight = rows.t() @ x.reshape(-1, x.shape[-1])
        return g @ transposed.t(), grad_weight, rows.sum(0) if ctx.has_bias else None


@linear.mistake("second_order", CUT_OFF)
class not_differentiable_twice(LinearNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return LinearNew.backward(ctx, g)


@linear.mistake(
    "contract",
    "You turn an upstream gradient with one dimension into a row by unsqueeze_, in place. That tensor is not yours: another "
    "branch of the graph, or the caller, holds the same one. Use unsqueeze, or reshape.",
)
class writes_into_upstream(LinearNew):
    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        rows = g.unsqueeze_(0) if g.ndim == 1 else g.reshape(-1, g.shape[-1])
        grad_x, grad_weight = (rows @ weight).reshape(x.shape), rows.t() @ x.reshape(-1, x.shape[-1])
        return grad_x, grad_weight, rows.sum(0) if ctx.has_bias else None


@linear.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(LinearNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.weight, ctx.bias = inputs

    @staticmethod
    def backward(ctx, g):
        rows = g.reshape(-1, g.shape[-1])
        grad_weight = rows.t() @ ctx.x.reshape(-1, ctx.x.shape[-1])
        return g @ ctx.weight, grad_weight, rows.sum(0) if ctx.bias is not None else None


@linear.mistake("contract", KEPT_OUTSIDE)
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


@linear.mistake(
    "contract",
    "Your backward lets torch.autograd differentiate forward. The task is to write the vector-Jacobian product yourself: "
    "g @ weight, g^T x, and a sum.",
)
class autograd_in_backward(LinearNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        given = [t for t in ctx.saved_tensors if t is not None]
        with torch.enable_grad():
            own = [t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in given]
            grads = torch.autograd.grad(F.linear(*own), own, g, create_graph=True)
        return *grads, *[None] * (3 - len(grads))


# --- BroadcastMul -----------------------------------------------------------------------------------------------------

SHAPES = (
    ((2, 3), (2, 3)),
    ((3, 1), (4,)),
    ((3,), (2, 2, 3)),
    ((2, 3, 3), (1, 1, 3)),
    ((2, 1, 3), (2, 1)),
    ((), (3,)),
    ((), ()),
    ((0, 1), (4,)),
)


def _pair(d: Draw, one: tuple, two: tuple, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor]:
    return d.sides(*one, away=0.3, reach=1.8, dtype=dtype), d.between(0.3, 1.8, *two, dtype=dtype)


def _zeros() -> tuple[Tensor, Tensor]:
    return torch.tensor([[0.0, 1.5, -2.0]], dtype=DOUBLE), torch.tensor([[0.7], [0.0]], dtype=DOUBLE)


def _products(d: Draw, order: int = 1) -> list[Case]:
    """Every kind of broadcasting, dtype and layout."""
    cases = [d.case(f"{one} with {two}", *_pair(d, one, two), order=order) for one, two in SHAPES]
    cases += [d.case(f"{_named(t)} inputs", *_pair(d, (2, 3), (3,), t), order=order) for t in DTYPES[:3]]
    cases += [d.case("zeros among the factors", *_zeros(), order=order)]
    a, b = _pair(d, (4, 3), (4, 1))
    cases += [d.case("every second column, and an expanded tensor", a.t()[:, ::2], b[:1].expand(3, 2), order=order)]
    return cases


multiply = Task(
    "BroadcastMul",
    "BroadcastMul.apply(a, b)",
    lambda a, b: a * b,
    (
        Check(
            "value",
            1,
            "the output equals a * b for all shapes that broadcast, in every dtype and layout",
            "Forward is what every later number rests on.",
            lambda d: [
                *_products(d, order=0),
                d.case("named arguments", *_pair(d, (3, 1), (2,)), keywords=("a", "b"), order=0),
                d.case("every size", d.scales(4, 3), d.scales(3), order=0),
            ],
            FORWARD,
        ),
        Check(
            "gradient",
            1,
            "both gradients equal torch's, whichever tensor is the smaller, and gradcheck passes",
            "What forward copies, backward sums: over the axes that were added, and over those of size 1 that were stretched.",
            lambda d: [
                *_products(d),
                d.case("every size", d.scales(4, 3), d.scales(3), upstream=d.scales(4, 3)),
                d.case("an expanded upstream gradient", *_pair(d, (2, 1), (3,)), upstream=d.normal(1, 3).expand(2, 3)),
                d.case("only a requires a gradient", *_pair(d, (3, 1), (4,)), requires=(True, False)),
                d.case("only b requires a gradient", *_pair(d, (3, 1), (4,)), requires=(False, True)),
            ],
            FIRST,
            lambda d: _pair(d, (2, 1, 3), (2, 1)),
        ),
        Check(
            "second_order",
            1,
            "each gradient can be differentiated again, by the other factor and by g",
            "A Hessian or a gradient penalty differentiates your backward.",
            lambda d: [
                *(
                    d.case(f"{one} with {two}", *_pair(d, one, two), order=2)
                    for one, two in (((2, 3), (2, 3)), ((), (3,)), ((2, 3, 3), (1, 1, 3)))
                ),
                d.case("zeros among the factors", *_zeros(), order=2),
            ],
            SECOND,
            lambda d: _pair(d, (2, 1), (3,)),
            order=2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; those that backward needs are saved",
            "Tensors that your Function did not make belong to others.",
            lambda d: [
                d.case("equal shapes", *_pair(d, (2, 3), (2, 3)), watch=ALL),
                d.case("float32, b is the smaller", *_pair(d, (2, 3), (3,), SINGLE), watch=ALL),
            ],
            CONTRACT,
        ),
    ),
    forbids=look.GRADIENT,
)


@multiply.solution
class MulNew(Function):
    """Torch's own sum to a size."""

    @staticmethod
    def forward(a, b):
        return a * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return (g * b).sum_to_size(a.shape), (g * a).sum_to_size(b.shape)


@multiply.solution
class MulUnsummed(MulNew):
    """Leaves the sums to the engine."""

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b, g * a


def _added_and_stretched(g: Tensor, shape: torch.Size) -> Tensor:
    added = g.ndim - len(shape)
    axes = [*range(added), *(i + added for i, n in enumerate(shape) if n == 1)]
    return g.sum(axes, keepdim=True).reshape(shape) if axes else g


@multiply.solution
class MulCareful(MulNew):
    """Sums over all axes at once; asks who wants a gradient."""

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grad_a = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_a = _added_and_stretched(g * b, a.shape)
        if ctx.needs_input_grad[1]:
            grad_b = _added_and_stretched(g * a, b.shape)
        return grad_a, grad_b


@multiply.solution
class MulOld(Function):
    """forward and setup_context in one; axis after axis, keeping each."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.mul(a, b)

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        grads = []
        for mine, other in ((a, b), (b, a)):
            part = grad_output * other
            while part.ndim > mine.ndim:
                part = part.sum(0)
            for axis, size in enumerate(mine.shape):
                if part.shape[axis] != size:
                    part = part.sum(axis, keepdim=True)
            grads.append(part)
        return tuple(grads)


@multiply.solution
class MulOnes(MulNew):
    """Sums where sizes differ, after giving the smaller tensor ones on its left."""

    @staticmethod
    def backward(ctx, g):
        grads = []
        for mine, other in (ctx.saved_tensors, ctx.saved_tensors[::-1]):
            padded = (1,) * (g.ndim - mine.ndim) + tuple(mine.shape)
            part, wrong = other * g, [i for i, n in enumerate(padded) if g.shape[i] != n]
            grads.append((part.sum(wrong, keepdim=True) if wrong else part).view_as(mine.reshape(mine.shape)))
        return tuple(grads)


@multiply.mistake(
    "value",
    "Your forward expands b to the shape of a, so it fails where a is the smaller, or where each has an axis that the other "
    "lacks. a * b broadcasts both.",
)
class expands_b(MulNew):
    @staticmethod
    def forward(a, b):
        return a * b.expand_as(a)


@multiply.mistake("value", FLOAT32)
class float32_inside(MulNew):
    @staticmethod
    def forward(a, b):
        return a.float() * b.float()


@multiply.mistake("value", FLOAT32_AND_BACK)
class float32_and_back(MulNew):
    @staticmethod
    def forward(a, b):
        return (a.float() * b.float()).to(a.dtype)


@multiply.mistake(
    "gradient",
    "Your gradients are b and a: the upstream gradient is missing. Multiply by it, before you sum to the shape of each input.",
)
class upstream_ignored(MulNew):
    @staticmethod
    def backward(ctx, g):
        return MulNew.backward(ctx, torch.ones_like(g))


@multiply.mistake(
    "gradient",
    "Your gradients are the upstream gradient, summed to shape, as for a + b. For a product it is multiplied by the other "
    "factor first.",
)
class upstream_unchanged(MulNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g.sum_to_size(a.shape), g.sum_to_size(b.shape)


@multiply.mistake(
    "gradient",
    "Each of your gradients multiplies by its own factor. The derivative of a * b with respect to a is b: the gradient of a "
    "takes b, and that of b takes a.",
)
class own_factor(MulNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return (g * a).sum_to_size(a.shape), (g * b).sum_to_size(b.shape)


@multiply.mistake(
    "gradient",
    "Your backward sums the upstream gradient to the shape of the input and multiplies afterwards. Where the other factor "
    "varies along the summed axis this is wrong: multiply first, then sum.",
)
class summed_before_product(MulNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g.sum_to_size(a.shape) * b, g.sum_to_size(b.shape) * a


@multiply.mistake(
    "gradient",
    "You sum the axes of size 1 one after another. After the first sum the remaining axes have moved up by one, so the second "
    "sum takes the wrong axis: sum over all of them in one call, or with keepdim=True.",
)
class axes_move(MulNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grads = []
        for mine, part in ((a, g * b), (b, g * a)):
            while part.ndim > mine.ndim:
                part = part.sum(0)
            for axis, size in enumerate(mine.shape):
                if size == 1:
                    part = part.sum(axis)
            grads.append(part.reshape(mine.shape))
        return tuple(grads)


@multiply.mistake(
    "gradient",
    "You sum an axis that was stretched and drop it, so a gradient of shape (3,) meets an input of shape (3, 1). Keep the "
    "axis: keepdim=True, or reshape to the input's shape.",
)
class axes_dropped(MulNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grads = []
        for mine, part in ((a, g * b), (b, g * a)):
            added = part.ndim - mine.ndim
            axes = [*range(added), *(i + added for i, n in enumerate(mine.shape) if n == 1)]
            grads.append(part.sum(axes) if axes else part)
        return tuple(grads)


@multiply.mistake(
    "gradient",
    "Your list of axes is empty where nothing was broadcast, and g.sum([]) sums over all axes. Ask first whether there is an "
    "axis to sum.",
)
class sum_over_no_axis(MulNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grads = []
        for mine, part in ((a, g * b), (b, g * a)):
            added = part.ndim - mine.ndim
            axes = [*range(added), *(i + added for i, n in enumerate(mine.shape) if n == 1)]
            grads.append(part.sum(axes, keepdim=True).reshape(mine.shape))
        return tuple(grads)


@multiply.mistake(
    "gradient",
    "You align the shapes at their left end: axis i of the input is not axis i of the output where axes were added on the "
    "left. Count from the right, or add the number of added axes.",
)
class aligned_at_the_left(MulNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grads = []
        for mine, part in ((a, g * b), (b, g * a)):
            axes = [i for i, n in enumerate(mine.shape) if n == 1]
            axes += range(mine.ndim, part.ndim)
            grads.append(part.sum(axes, keepdim=True).reshape(mine.shape) if axes else part)
        return tuple(grads)


@multiply.mistake(
    "gradient",
    "Where the shapes differ you sum over the first axis alone. Sum over each axis that was added on the left, and over each "
    "axis of size 1 that was stretched, wherever it stands.",
)
class first_axis_only(MulNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grads = [g * b, g * a]
        return tuple(p if p.shape == t.shape else p.sum(0) for p, t in zip(grads, (a, b), strict=True))


@multiply.mistake(
    "gradient",
    "You sum to the input's shape and expand to the output's again. The engine sums what you return once more, so the "
    "gradient is too large: return it in the shape of the input.",
)
class summed_and_expanded(MulNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return (
            (g * b).sum_to_size(a.shape).expand(g.shape),
            (g * a).sum_to_size(b.shape).expand(g.shape),
        )


@multiply.mistake(
    "gradient",
    "You take the mean over the axes that were broadcast. Every copy of an element sends back its own gradient, and they add "
    "up: take the sum.",
)
class mean_for_sum(MulNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        parts = MulNew.backward(ctx, g)
        return tuple(p * max(t.numel(), 1) / max(g.numel(), 1) for p, t in zip(parts, (a, b), strict=True))


@multiply.mistake(
    "gradient",
    "You divide the output by a factor to get the other one: where the factor is 0 this is 0 / 0, nan. Save a and b, and "
    "multiply.",
)
class divides_output(MulNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        a, b, y = ctx.saved_tensors
        return (g * y / a).sum_to_size(a.shape), (g * y / b).sum_to_size(b.shape)


@multiply.mistake(
    "gradient",
    "Your backward returns None for both (is a return statement missing?): nothing gets a gradient at all.",
)
class nothing_returned(MulNew):
    @staticmethod
    def backward(ctx, g):
        return None, None


@multiply.mistake(
    "gradient",
    "You read ctx.needs_input_grad in the wrong order: the tensor that needs a gradient gets None. The first entry is a's, the "
    "second b's.",
)
class flags_swapped(MulNew):
    @staticmethod
    def backward(ctx, g):
        needs_b, needs_a = ctx.needs_input_grad
        grad_a, grad_b = MulNew.backward(ctx, g)
        return grad_a if needs_a else None, grad_b if needs_b else None


@multiply.mistake("gradient", VIEW_NEEDED)
class view_needed(MulNew):
    @staticmethod
    def backward(ctx, g):
        flat = g.view(-1).view(g.shape)
        return MulNew.backward(ctx, flat)


@multiply.mistake("gradient", NO_FUNCTION)
def no_function(a, b):
    return a * b


@multiply.mistake(
    "second_order",
    "Your first derivatives are right and your second are missing: detach (or .data) in backward cuts a and b out of the "
    "graph of the gradients. Use what you saved as it is.",
)
class detached(MulNew):
    @staticmethod
    def backward(ctx, g):
        a, b = (t.detach() for t in ctx.saved_tensors)
        return (g * b).sum_to_size(a.shape), (g * a).sum_to_size(b.shape)


@multiply.mistake(
    "second_order",
    "You save copies of a and b that forward or setup_context made (expanded, say): they come back as constants, and the "
    "second derivative is missing. Save a and b themselves.",
)
class saves_expanded(MulNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shapes = [t.shape for t in inputs]
        ctx.save_for_backward(*(t.expand_as(output).clone() for t in inputs))

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return (g * b).sum_to_size(ctx.shapes[0]), (g * a).sum_to_size(ctx.shapes[1])


@multiply.mistake(
    "second_order",
    "Where a factor is 0 you return a constant 0. The value of the gradient is right there and its derivative is not: it is the "
    "upstream gradient. Multiply, whatever the factor is.",
)
class constant_at_zero(MulNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grads = torch.where(b != 0, g * b, 0), torch.where(a != 0, g * a, 0)
        return grads[0].sum_to_size(a.shape), grads[1].sum_to_size(b.shape)


@multiply.mistake("second_order", CUT_OFF)
class not_differentiable_twice(MulNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return MulNew.backward(ctx, g)


@multiply.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(MulNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grad_b = g * a
        return g.mul_(b).sum_to_size(a.shape), grad_b.sum_to_size(b.shape)


@multiply.mistake(
    "contract",
    "Your forward multiplies a in place: the caller's tensor is overwritten, and what you saved with it (and where a is the "
    "smaller it raises). Return a new tensor, a * b.",
)
class writes_into_input(MulNew):
    @staticmethod
    def forward(a, b):
        return a.mul_(b)


@multiply.mistake(
    "contract",
    "Your backward works in place on a saved tensor, which is the caller's own: it is changed, and a second backward is wrong. "
    "Make a new tensor.",
)
class writes_into_saved(MulNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grad_a = (g * b).sum_to_size(a.shape)
        return grad_a, a.mul_(g).sum_to_size(b.shape)


@multiply.mistake(
    "contract",
    "You keep a and b as attributes of ctx, where torch does not watch them: when one of them is changed in place before "
    "backward, the gradient is silently wrong. Use ctx.save_for_backward.",
)
class kept_as_attribute(MulNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.a, ctx.b = inputs

    @staticmethod
    def backward(ctx, g):
        return (g * ctx.b).sum_to_size(ctx.a.shape), (g * ctx.a).sum_to_size(ctx.b.shape)


@multiply.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Function):
    @staticmethod
    def forward(ctx, a, b):
        GLOBAL["a"], GLOBAL["b"] = a, b
        return a * b

    @staticmethod
    def backward(ctx, g):
        a, b = GLOBAL["a"], GLOBAL["b"]
        return (g * b).sum_to_size(a.shape), (g * a).sum_to_size(b.shape)


@multiply.mistake(
    "contract",
    "Your backward lets torch.autograd differentiate a * b. The task is to write the vector-Jacobian product yourself: the "
    "other factor times g, summed to shape.",
)
class autograd_in_backward(MulNew):
    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            own = [t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in ctx.saved_tensors]
            return torch.autograd.grad(own[0] * own[1], own, g, create_graph=True)


SIGMOID_BY_ABS = (
    "Your sigmoid is right, and its derivative at 0 is not: in backward you write it with exp(-z.abs()), and torch takes 0 for the "
    "slope of abs at 0, so a second derivative loses a part there. Use torch.sigmoid."
)


def _by_abs(z: Tensor) -> Tensor:
    """A sigmoid without overflow, by two formulas that meet at 0."""
    e = torch.exp(-z.abs())
    return torch.where(z >= 0, 1 / (1 + e), e / (1 + e))


# --- Swish ------------------------------------------------------------------------------------------------------------

PAIRS = (
    ((2, 3), ()),
    ((2, 3), (3,)),
    ((3, 3), (3, 1)),
    ((2, 3), (2, 3)),
    ((2, 2, 3), (2, 1)),
    ((), ()),
    ((0, 3), (1, 3)),
)


def _gated(d: Draw, one: tuple, two: tuple, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor]:
    """x and beta."""
    return d.sides(*one, away=0.3, reach=2, dtype=dtype), d.between(0.5, 1.5, *two, dtype=dtype)


def _swish_forms(d: Draw, order: int = 1) -> list[Case]:
    cases = [d.case(f"x {one}, beta {two}", *_gated(d, one, two), order=order) for one, two in PAIRS]
    cases += [d.case(f"{_named(t)} inputs", *_gated(d, (2, 3), (3,), t), order=order) for t in DTYPES[:3]]
    x, beta = _gated(d, (4, 3), (3, 4))
    cases += [d.case("every second row, an expanded beta", x[::2], beta[:1, :1].expand(2, 3), order=order)]
    signs = torch.tensor([-2.0, 0.0, 3.0], dtype=DOUBLE)
    cases += [d.case("beta negative, 0 and positive", x[:2].clone(), signs, order=order)]
    return cases


def _extremes(d: Draw) -> list[Case]:
    ends = [-1000.0, -100.0, -30.0, 0.0, 30.0, 100.0, 1000.0]
    near = [*ends, -0.8, 1.5]
    cases = [
        d.case(f"{_named(t)} far from 0", torch.tensor(x, dtype=t), torch.tensor(1.0, dtype=t), order=2)
        for t, x in ((DOUBLE, near), (SINGLE, near), (BRAIN, ends))
    ]
    both = torch.tensor([near, near], dtype=DOUBLE), torch.tensor([[1.3], [-0.7]], dtype=DOUBLE)
    cases += [d.case("float64 far from 0, beta of each sign", *both)]
    half = torch.tensor([-10.0, 0.0, 10.0], dtype=HALF), torch.tensor([1.0], dtype=HALF)
    return [*cases, d.case("float16 at +-10", *half)]


swish = Task(
    "Swish",
    "Swish.apply(x, beta)",
    lambda x, beta: x * torch.sigmoid(beta * x),
    (
        Check(
            "value",
            1,
            "the output equals x * sigmoid(beta * x) for every shape of beta, in every dtype and layout",
            "Forward is what every later number rests on.",
            lambda d: [
                *_swish_forms(d, order=0),
                d.case("beta by keyword", *_gated(d, (2, 3), (3,)), keywords=("beta",), order=0),
                d.case("every size", d.scales(4, 3), d.between(0.5, 1.5, 3), order=0),
            ],
            FORWARD,
        ),
        Check(
            "gradient",
            2,
            "the gradients of x and beta equal torch's, each in its shape, and gradcheck passes",
            "With s = sigmoid(beta x): s + beta x s (1 - s) for x, x^2 s (1 - s) for beta, summed to beta's shape.",
            lambda d: [
                *_swish_forms(d),
                d.case("every size", d.scales(4, 3), d.between(0.5, 1.5, 3), upstream=d.scales(4, 3)),
                d.case("an expanded upstream gradient", *_gated(d, (2, 3), ()), upstream=d.normal(1, 3).expand(2, 3)),
                d.case("only x requires a gradient", *_gated(d, (2, 3), (3,)), requires=(True, False)),
                d.case("only beta requires a gradient", *_gated(d, (2, 3), (3,)), requires=(False, True)),
            ],
            FIRST,
            lambda d: _gated(d, (2, 3), (3,)),
        ),
        Check(
            "extremes",
            1,
            "up to |x| = 1000 (10 in float16), value, first and second derivatives are finite and right",
            "A formula that is right near 0 may overflow far from it, or one derivative later, or lose its digits.",
            _extremes,
            (*look.FORWARD, *look.SECOND),
        ),
        Check(
            "second_order",
            1,
            "the gradients can be differentiated again, by x, by beta and by the upstream gradient",
            "A Hessian or a gradient penalty differentiates your backward.",
            lambda d: [
                d.case("at x = 1, beta = 1", *(torch.ones((), dtype=DOUBLE) for _ in range(2)), order=2),
                d.case("beta = 0", d.sides(5), torch.zeros((), dtype=DOUBLE), order=2),
                *(d.case(f"x {a}, beta {b}", *_gated(d, a, b), order=2) for a, b in (((2, 3), (3,)), ((2, 2), (2, 2)))),
            ],
            SECOND,
            lambda d: _gated(d, (2, 2), (2,)),
            order=2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; backward's are saved; no backward of torch's",
            "Tensors that your Function did not make belong to others.",
            lambda d: [
                d.case("beta of its own for each column", *_gated(d, (2, 3), (3,)), watch=ALL, deny=DENIED),
                d.case("float32, a 0-d beta", *_gated(d, (4,), (), SINGLE), watch=("state",)),
            ],
            CONTRACT,
        ),
    ),
    forbids=look.GRADIENT,
)


@swish.solution
class SwishNew(Function):
    """Saves x and beta, and computes the sigmoid in backward."""

    @staticmethod
    def forward(x, beta):
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        s = torch.sigmoid(beta * x)
        slope = s * (1 - s)
        return g * (s + beta * x * slope), (g * x * x * slope).sum_to_size(beta.shape)


@swish.solution
class SwishOutput(Function):
    """Saves the output as well: the derivatives are s + beta y (1 - s) and y (x - y)."""

    @staticmethod
    def forward(ctx, x, beta):
        y = torch.sigmoid(x * beta) * x
        ctx.save_for_backward(x, beta, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, beta, y = ctx.saved_tensors
        s = torch.sigmoid(x * beta)
        return grad_output * (s + beta * y * (1 - s)), grad_output * y * (x - y)


@swish.solution
class SwishCareful(SwishNew):
    """Asks who wants a gradient; sums by hand, 1 - s as sigmoid(-z)."""

    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        z = beta * x
        s, slope, grad_x, grad_beta = z.sigmoid(), z.sigmoid() * (-z).sigmoid(), None, None
        if ctx.needs_input_grad[0]:
            grad_x = g * (s + z * slope)
        if ctx.needs_input_grad[1]:
            grad_beta = _added_and_stretched(g * x**2 * slope, beta.shape)
        return grad_x, grad_beta


@swish.solution
class SwishTanh(SwishNew):
    """The sigmoid by tanh, which torch can differentiate again anywhere; the engine sums."""

    @staticmethod
    def forward(x, beta):
        return x / 2 * (1 + torch.tanh(beta * x / 2))

    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        t = torch.tanh(beta * x / 2)
        inner = g * x * (1 - t) * (1 + t) / 4
        return g * (1 + t) / 2 + inner * beta, inner * x


@swish.mistake("value", "Your forward ignores beta: it is silu, x * sigmoid(x). The sigmoid takes beta * x.")
class beta_ignored(SwishNew):
    @staticmethod
    def forward(x, beta):
        return x * torch.sigmoid(x)


@swish.mistake(
    "value",
    "You divide by beta (silu(beta * x) / beta), which has no value at beta = 0. Write x * sigmoid(beta * x): at beta = 0 it "
    "is x / 2.",
)
class divides_by_beta(SwishNew):
    @staticmethod
    def forward(x, beta):
        return F.silu(beta * x) / beta


@swish.mistake(
    "value",
    "You turn beta into a number by item() or float(), which fails for more than one element. beta is a tensor that "
    "broadcasts to x: multiply by it.",
)
class tensor_as_number(SwishNew):
    @staticmethod
    def forward(x, beta):
        return x * torch.sigmoid(beta.item() * x)


@swish.mistake("value", FLOAT32)
class float32_inside(SwishNew):
    @staticmethod
    def forward(x, beta):
        return x.float() * torch.sigmoid(beta.float() * x.float())


@swish.mistake("value", FLOAT32_AND_BACK)
class float32_and_back(SwishNew):
    @staticmethod
    def forward(x, beta):
        return (x.float() * torch.sigmoid(beta.float() * x.float())).to(x.dtype)


@swish.mistake("gradient", "Your gradients do not depend on the upstream gradient: multiply both by it.")
class upstream_ignored(SwishNew):
    @staticmethod
    def backward(ctx, g):
        return SwishNew.backward(ctx, torch.ones_like(g))


def _swish_backward(ctx, g, for_x, for_beta):
    """A backward with other derivatives: functions of x, beta and the sigmoid."""
    x, beta = ctx.saved_tensors
    s = torch.sigmoid(beta * x)
    return g * for_x(x, beta, s), (g * for_beta(x, beta, s)).sum_to_size(beta.shape)


def _by_x(x, beta, s):
    return s + beta * x * s * (1 - s)


def _by_beta(x, beta, s):
    return x * x * s * (1 - s)


@swish.mistake(
    "gradient",
    "Your gradient for x is g * s: the product rule's second term is missing. x also stands inside the sigmoid, which adds "
    "beta x s (1 - s).",
)
class product_rule_forgotten(SwishNew):
    @staticmethod
    def backward(ctx, g):
        return _swish_backward(ctx, g, lambda x, beta, s: s, _by_beta)


@swish.mistake(
    "gradient",
    "Your gradient for x lacks the inner derivative: the sigmoid is of beta * x, so its derivative by x has a factor beta: "
    "s + beta x s (1 - s).",
)
class inner_beta_forgotten(SwishNew):
    @staticmethod
    def backward(ctx, g):
        return _swish_backward(ctx, g, lambda x, beta, s: s + x * s * (1 - s), _by_beta)


@swish.mistake(
    "gradient",
    "Your gradient for beta has x where it needs x^2: one factor x stands before the sigmoid, the other comes from the inner "
    "derivative of beta * x by beta.",
)
class square_forgotten(SwishNew):
    @staticmethod
    def backward(ctx, g):
        return _swish_backward(ctx, g, _by_x, lambda x, beta, s: x * s * (1 - s))


@swish.mistake(
    "gradient",
    "Your backward returns None for beta, so beta never learns. It is a tensor: its gradient is g x^2 s (1 - s), summed to "
    "beta's shape.",
)
class beta_gradient_missing(SwishNew):
    @staticmethod
    def backward(ctx, g):
        return SwishNew.backward(ctx, g)[0], None


@swish.mistake(
    "gradient",
    "Your gradient for beta sums over everything and gives each element of beta the total. Sum over the axes alone along "
    "which beta was copied.",
)
class beta_summed_over_everything(SwishNew):
    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        s = torch.sigmoid(beta * x)
        return g * _by_x(x, beta, s), (g * _by_beta(x, beta, s)).sum().expand(beta.shape)


@swish.mistake(
    "gradient",
    "Your gradient for beta sums over the first axis alone. Where beta was copied along another axis, or has no dimensions "
    "or as many as x, other axes are summed, or none.",
)
class beta_summed_over_the_first_axis(SwishNew):
    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        s = torch.sigmoid(beta * x)
        part = g * _by_beta(x, beta, s)
        return g * _by_x(x, beta, s), part.sum(0) if part.ndim else part


@swish.mistake(
    "gradient",
    "Your backward returns None for both (is a return statement missing?): nothing gets a gradient at all.",
)
class nothing_returned(SwishNew):
    @staticmethod
    def backward(ctx, g):
        return None, None


@swish.mistake(
    "gradient",
    "You hold beta's gradient back unless x needs one as well (or the other way round). Each entry of ctx.needs_input_grad "
    "speaks for its own argument: the first for x, the second for beta.",
)
class flags_swapped(SwishNew):
    @staticmethod
    def backward(ctx, g):
        grad_x, grad_beta = SwishNew.backward(ctx, g)
        return grad_x if ctx.needs_input_grad[1] else None, grad_beta if ctx.needs_input_grad[0] else None


@swish.mistake("gradient", VIEW_NEEDED)
class view_needed(SwishNew):
    @staticmethod
    def backward(ctx, g):
        return SwishNew.backward(ctx, g.view(-1).view(g.shape))


@swish.mistake("gradient", NO_FUNCTION)
def no_function(x, beta):
    return x * torch.sigmoid(beta * x)


@swish.mistake(
    "extremes",
    "For large x your output is nan: exp overflows and inf / inf is nan. Use torch.sigmoid, or an exponential of a number "
    "that is never positive.",
)
class exponentials_overflow(SwishNew):
    @staticmethod
    def forward(x, beta):
        e = torch.exp(beta * x)
        return x * e / (1 + e)


@swish.mistake(
    "extremes",
    "Your output is right everywhere and your gradients are nan far from 0: exp(-z) / (1 + exp(-z))^2 is inf / inf there. "
    "With s = torch.sigmoid(z) the derivative is s (1 - s), always finite.",
)
class overflow_in_backward(SwishNew):
    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        e = torch.exp(-beta * x)
        slope = e / (1 + e) ** 2
        return g * (1 / (1 + e) + beta * x * slope), (g * x * x * slope).sum_to_size(beta.shape)


@swish.mistake(
    "extremes",
    "Value and first derivative are right everywhere, and the second is nan at large negative x: you compute the sigmoid as "
    "1 / (1 + exp(-z)) in backward, and differentiating that takes inf * 0. Use torch.sigmoid.",
)
class second_overflows(SwishNew):
    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        s = 1 / (1 + torch.exp(-beta * x))
        slope = s * (1 - s)
        return g * (s + beta * x * slope), (g * x * x * slope).sum_to_size(beta.shape)


@swish.mistake(
    "second_order",
    "Your first derivatives are right, but the sigmoid was computed in forward and saved (or is detached), so it comes back as "
    "a constant: at x = 1, beta = 1 the second derivative is 0.19661 in place of 0.30237. Save x and beta, and compute the "
    "sigmoid in backward.",
)
class saves_sigmoid(SwishNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, beta = inputs
        ctx.save_for_backward(x, beta, torch.sigmoid(beta * x))

    @staticmethod
    def backward(ctx, g):
        x, beta, s = ctx.saved_tensors
        return g * _by_x(x, beta, s), (g * _by_beta(x, beta, s)).sum_to_size(beta.shape)


@swish.mistake(
    "second_order",
    "Your first derivatives are right and your second are missing: both derivatives were computed in forward and saved, or "
    "what you saved is detached, so torch takes them for constants. Save x and beta, and compute in backward.",
)
class saves_derivative(SwishNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, beta = inputs
        s = torch.sigmoid(beta * x)
        ctx.shape = beta.shape
        ctx.save_for_backward(_by_x(x, beta, s), _by_beta(x, beta, s))

    @staticmethod
    def backward(ctx, g):
        by_x, by_beta = ctx.saved_tensors
        return g * by_x, (g * by_beta).sum_to_size(ctx.shape)


@swish.mistake(
    "second_order",
    "Your second derivatives by beta are missing: beta is detached, or was copied before it was saved. Save beta itself and "
    "use it as it is.",
)
class beta_detached(SwishNew):
    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        beta = beta.detach()
        s = torch.sigmoid(beta * x)
        return g * _by_x(x, beta, s), (g * _by_beta(x, beta, s)).sum_to_size(beta.shape)


@swish.mistake(
    "second_order",
    "You return early at beta = 0, with numbers that no longer depend on beta: the gradients are right there, and what they "
    "differentiate to is not. The general formula holds at 0, too.",
)
class special_case_at_zero(SwishNew):
    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        if not beta.any():
            return g / 2, (g * x * x / 4).sum_to_size(beta.shape)
        return SwishNew.backward(ctx, g)


@swish.mistake("second_order", SIGMOID_BY_ABS)
class sigmoid_by_abs(SwishNew):
    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        s = _by_abs(beta * x)
        return g * _by_x(x, beta, s), (g * _by_beta(x, beta, s)).sum_to_size(beta.shape)


@swish.mistake("second_order", CUT_OFF)
class not_differentiable_twice(SwishNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return SwishNew.backward(ctx, g)


@swish.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(SwishNew):
    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        s = torch.sigmoid(beta * x)
        grad_beta = (g * _by_beta(x, beta, s)).sum_to_size(beta.shape)
        return g.mul_(_by_x(x, beta, s)), grad_beta


@swish.mistake(
    "contract",
    "Your forward multiplies x in place: the caller's tensor is overwritten, and what you saved with it. Return a new tensor.",
)
class writes_into_input(SwishNew):
    @staticmethod
    def forward(x, beta):
        return x.mul_(torch.sigmoid(beta * x))


@swish.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(SwishNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.beta = inputs

    @staticmethod
    def backward(ctx, g):
        s = torch.sigmoid(ctx.beta * ctx.x)
        grad_beta = (g * _by_beta(ctx.x, ctx.beta, s)).sum_to_size(ctx.beta.shape)
        return g * _by_x(ctx.x, ctx.beta, s), grad_beta


@swish.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Function):
    @staticmethod
    def forward(ctx, x, beta):
        GLOBAL["x"], GLOBAL["beta"] = x, beta
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def backward(ctx, g):
        x, beta = GLOBAL["x"], GLOBAL["beta"]
        s = torch.sigmoid(beta * x)
        return g * _by_x(x, beta, s), (g * _by_beta(x, beta, s)).sum_to_size(beta.shape)


@swish.mistake(
    "contract",
    "Your backward lets torch.autograd differentiate forward. The task is to write the vector-Jacobian product yourself: "
    "s + beta x s (1 - s) for x, x^2 s (1 - s) for beta, times g.",
)
class autograd_in_backward(SwishNew):
    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            own = [t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in ctx.saved_tensors]
            return torch.autograd.grad(own[0] * torch.sigmoid(own[1] * own[0]), own, g, create_graph=True)


@swish.mistake(
    "contract",
    "Your backward calls torch's own backward of the sigmoid. Write the derivative yourself: with s = torch.sigmoid(beta * x) "
    "it is s (1 - s).",
)
class torch_s_backward(SwishNew):
    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        s = torch.sigmoid(beta * x)
        inner = torch.ops.aten.sigmoid_backward(g * x, s)
        return g * s + inner * beta, (inner * x).sum_to_size(beta.shape)


# --- SwiGLU -----------------------------------------------------------------------------------------------------------


def _swiglu(x):
    gate, linear_half = x.chunk(2, -1)
    return F.silu(gate) * linear_half


def _wide(d: Draw):
    return lambda *shape, dtype=DOUBLE: d.sides(*shape, away=0.3, reach=2, dtype=dtype)


def _swiglu_forms(d: Draw, order: int = 1) -> list[Case]:
    shapes = {"a matrix": (2, 6), "a vector": (6,), "three dimensions": (2, 3, 4), "no rows": (0, 4)}
    cases = [d.case(name, _wide(d)(*shape), order=order) for name, shape in shapes.items()]
    for t, ends in ((DOUBLE, (30, 1000)), (SINGLE, (30, 1000)), (BRAIN, (30, 1000)), (HALF, (5, 10))):
        gates = torch.tensor([-ends[1], -ends[0], ends[0], ends[1]], dtype=t)
        x = torch.cat([gates, _wide(d)(4, dtype=t)])
        cases += [d.case(f"{_named(t)} input, gates far from 0", x, order=order)]
    zeros = torch.tensor([0.5, 0.0, -1.0, 0.0, 2.0, 0.0], dtype=DOUBLE)
    cases += [d.case("zeros in both halves", zeros, order=order)]
    wide = _wide(d)(4, 3, 4)
    cases += [d.case("a transposed input", wide[:2].transpose(0, 1), order=order)]
    cases += [d.case("an expanded input, every second row", wide[:1, ::2].expand(3, 2, 4), order=order)]
    return cases


swiglu = Task(
    "SwiGLU",
    "SwiGLU.apply(x)",
    _swiglu,
    (
        Check(
            "value",
            1,
            "silu(first half) * second half along the last dimension, in every dtype, shape and layout",
            "Forward is what every later number rests on.",
            lambda d: [*_swiglu_forms(d, order=0), d.case("every size", d.scales(3, 8), order=0)],
            FORWARD,
        ),
        Check(
            "gradient",
            1,
            "the gradient equals torch's, in the shape of x, and gradcheck passes",
            "Both halves get a gradient, and they are joined as x was split.",
            lambda d: [
                *_swiglu_forms(d),
                d.case("every size", d.scales(3, 8), upstream=d.scales(3, 4)),
                d.case("an expanded upstream gradient", _wide(d)(2, 2, 6), upstream=d.normal(2, 1, 3).expand(2, 2, 3)),
            ],
            FIRST,
            lambda d: (_wide(d)(2, 4),),
        ),
        Check(
            "second_order",
            1,
            "the gradient can be differentiated again, by x and by the upstream gradient",
            "A Hessian or a gradient penalty differentiates your backward.",
            lambda d: [
                d.case("a matrix", _wide(d)(2, 6), order=2),
                d.case("zeros in both halves", torch.tensor([0.5, 0.0, -1.0, 0.0, 2.0, 0.0], dtype=DOUBLE), order=2),
                d.case("gates far from 0", torch.tensor([-1000.0, 1000.0, 0.7, -0.4], dtype=DOUBLE), order=2),
            ],
            SECOND,
            lambda d: (_wide(d)(4),),
            order=2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; backward's are saved; no backward of torch's",
            "Tensors that your Function did not make belong to others.",
            lambda d: [
                d.case("a matrix", _wide(d)(2, 6), watch=ALL, deny=DENIED),
                d.case("a float32 vector", _wide(d)(4, dtype=SINGLE), watch=("state",)),
            ],
            CONTRACT,
        ),
    ),
    forbids=look.GRADIENT,
)


@swiglu.solution
class SwiGLUNew(Function):
    """Saves x and splits it again in backward."""

    @staticmethod
    def forward(x):
        return _swiglu(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        a, b = x.chunk(2, -1)
        s = torch.sigmoid(a)
        return torch.cat([g * b * (s + a * s * (1 - s)), g * a * s], -1)


@swiglu.solution
class SwiGLUOld(Function):
    """forward and setup_context in one; slices."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        n = x.size(-1) // 2
        return x[..., :n] * torch.sigmoid(x[..., :n]) * x[..., n:]

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        n = x.size(-1) // 2
        a, b = x[..., :n], x[..., n:]
        s = torch.sigmoid(a)
        grad_a = grad_output * b * s * (1 + a * (1 - s))
        return torch.cat((grad_a, grad_output * F.silu(a)), dim=-1)


@swiglu.solution
class SwiGLUBuffer(SwiGLUNew):
    """A buffer of x's dtype, filled half by half; asks whether anybody wants it."""

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None
        (x,) = ctx.saved_tensors
        n = x.shape[-1] // 2
        a, b = x.split(n, -1)
        result = torch.empty_like(x, memory_format=torch.contiguous_format)
        result[..., n:] = g * F.silu(a)
        result[..., :n] = g * b * (torch.sigmoid(a) + F.silu(a) * torch.sigmoid(-a))
        return result


@swiglu.solution
class SwiGLUStack(SwiGLUNew):
    """The halves on an axis of their own."""

    @staticmethod
    def forward(x):
        a, b = x.reshape(*x.shape[:-1], 2, x.shape[-1] // 2).unbind(-2)
        return a / (1 + torch.exp(-a)) * b

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        a, b = x.reshape(*x.shape[:-1], 2, x.shape[-1] // 2).unbind(-2)
        s = a.sigmoid()
        silu = a * s
        return torch.stack([g * b * (s + silu * (1 - s)), g * silu], -2).reshape(x.shape)


@swiglu.mistake(
    "value",
    "Your gate is the second half, as in F.glu. In SwiGLU the first half goes through silu: silu(first) * second.",
)
class second_half_gates(SwiGLUNew):
    @staticmethod
    def forward(x):
        a, b = x.chunk(2, -1)
        return a * F.silu(b)


@swiglu.mistake(
    "value",
    "Your forward is F.glu: the first half times the sigmoid of the second. SwiGLU takes silu, not the sigmoid, and of the "
    "first half.",
)
class glu_for_swiglu(SwiGLUNew):
    @staticmethod
    def forward(x):
        return F.glu(x)


@swiglu.mistake(
    "value",
    "Your gate is the sigmoid of the first half. SwiGLU takes silu, a * sigmoid(a).",
)
class sigmoid_for_silu(SwiGLUNew):
    @staticmethod
    def forward(x):
        a, b = x.chunk(2, -1)
        return torch.sigmoid(a) * b


@swiglu.mistake(
    "value",
    "You split along the first dimension (chunk and split do that unless told otherwise). The halves lie along the last: "
    "chunk(2, dim=-1).",
)
class first_dimension_split(SwiGLUNew):
    @staticmethod
    def forward(x):
        a, b = x.chunk(2)
        return F.silu(a) * b


@swiglu.mistake(
    "value",
    "Where the gate is large your output is nan: exp overflows and inf / inf is nan. Use torch.sigmoid or F.silu.",
)
class exponentials_overflow(SwiGLUNew):
    @staticmethod
    def forward(x):
        a, b = x.chunk(2, -1)
        return a * torch.exp(a) / (1 + torch.exp(a)) * b


@swiglu.mistake("value", FLOAT32)
class float32_inside(SwiGLUNew):
    @staticmethod
    def forward(x):
        return _swiglu(x.float())


@swiglu.mistake("value", FLOAT32_AND_BACK)
class float32_and_back(SwiGLUNew):
    @staticmethod
    def forward(x):
        return _swiglu(x.float()).to(x.dtype)


@swiglu.mistake("gradient", "Your gradient does not depend on the upstream gradient: multiply both halves by it.")
class upstream_ignored(SwiGLUNew):
    @staticmethod
    def backward(ctx, g):
        return SwiGLUNew.backward(ctx, torch.ones_like(g))


@swiglu.mistake(
    "gradient",
    "Your two halves of the gradient are in the wrong order. Join them as x was split: the gate's first.",
)
class halves_swapped(SwiGLUNew):
    @staticmethod
    def backward(ctx, g):
        a, b = SwiGLUNew.backward(ctx, g).chunk(2, -1)
        return torch.cat([b, a], -1)


@swiglu.mistake(
    "gradient",
    "Your backward returns two gradients, one for each half. forward has one argument: join the halves into one gradient of "
    "the shape of x.",
)
class one_too_many(SwiGLUNew):
    @staticmethod
    def backward(ctx, g):
        return SwiGLUNew.backward(ctx, g).chunk(2, -1)


def _halves(ctx, g, for_a, for_b):
    """A backward with other derivatives: functions of the halves and the sigmoid."""
    a, b = ctx.saved_tensors[0].chunk(2, -1)
    s = torch.sigmoid(a)
    return torch.cat([g * for_a(a, b, s), g * for_b(a, b, s)], -1)


def _by_a(a, b, s):
    return b * (s + a * s * (1 - s))


def _by_b(a, b, s):
    return a * s


@swiglu.mistake(
    "gradient",
    "Your derivative of silu is the sigmoid alone: a * sigmoid(a) is a product, so its derivative is s + a s (1 - s).",
)
class product_rule_forgotten(SwiGLUNew):
    @staticmethod
    def backward(ctx, g):
        return _halves(ctx, g, lambda a, b, s: b * s, _by_b)


@swiglu.mistake(
    "gradient",
    "Your gradient for the first half lacks the factor b, the second half: the output is a product, and silu'(a) is "
    "multiplied by what stands beside it.",
)
class other_half_forgotten(SwiGLUNew):
    @staticmethod
    def backward(ctx, g):
        return _halves(ctx, g, lambda a, b, s: s + a * s * (1 - s), _by_b)


@swiglu.mistake(
    "gradient",
    "Your gradient for the second half is g * y / b: where b is 0 this is 0 / 0, nan. It is g * silu(a), computed from a.",
)
class divides_output(SwiGLUNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        y = ctx.saved_tensors[1]
        return _halves(ctx, g, _by_a, lambda a, b, s: y / b)


@swiglu.mistake("gradient", NOTHING_RETURNED)
class nothing_returned(SwiGLUNew):
    @staticmethod
    def backward(ctx, g):
        return None


@swiglu.mistake(
    "gradient",
    "You collect the halves in a buffer made by torch.zeros(shape) or torch.empty(shape), which is float32: in float64 half of "
    "the digits are lost. Use torch.zeros_like(x), or join the halves with torch.cat.",
)
class buffer_in_float32(SwiGLUNew):
    @staticmethod
    def backward(ctx, g):
        result = torch.zeros(ctx.saved_tensors[0].shape)
        n = result.shape[-1] // 2
        result[..., :n], result[..., n:] = SwiGLUNew.backward(ctx, g).chunk(2, -1)
        return result


@swiglu.mistake(
    "gradient",
    "Your gradient is nan far from 0: exp(-a) / (1 + exp(-a))^2 is inf / inf there. With s = torch.sigmoid(a) the derivative "
    "is s (1 - s), always finite.",
)
class overflow_in_backward(SwiGLUNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors[0].chunk(2, -1)
        e = torch.exp(-a)
        return torch.cat([g * b * (1 / (1 + e) + a * e / (1 + e) ** 2), g * F.silu(a)], -1)


@swiglu.mistake("gradient", VIEW_NEEDED)
class view_needed(SwiGLUNew):
    @staticmethod
    def backward(ctx, g):
        return SwiGLUNew.backward(ctx, g.view(-1, g.shape[-1]).view(g.shape))


@swiglu.mistake("gradient", NO_FUNCTION)
def no_function(x):
    return _swiglu(x)


@swiglu.mistake(
    "second_order",
    "Your first derivative is right and your second is missing: you save the two halves, which were made in forward and come "
    "back as constants (or you detach what you saved). Save x itself, and split it in backward.",
)
class saves_halves(SwiGLUNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[0].chunk(2, -1))

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        s = torch.sigmoid(a)
        return torch.cat([g * _by_a(a, b, s), g * _by_b(a, b, s)], -1)


@swiglu.mistake(
    "second_order",
    "Your first derivative is right, but the sigmoid was computed in forward and saved (or is detached), so it comes back as a "
    "constant and its part of the second derivative is missing. Save x, and compute the sigmoid in backward.",
)
class saves_sigmoid(SwiGLUNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x, torch.sigmoid(x.chunk(2, -1)[0]))

    @staticmethod
    def backward(ctx, g):
        x, s = ctx.saved_tensors
        a, b = x.chunk(2, -1)
        return torch.cat([g * _by_a(a, b, s), g * _by_b(a, b, s)], -1)


@swiglu.mistake(
    "second_order",
    "Your first derivative is finite and your second is nan at large negative gates: you compute the sigmoid as "
    "1 / (1 + exp(-a)) in backward, and differentiating that takes inf * 0. Use torch.sigmoid.",
)
class second_overflows(SwiGLUNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors[0].chunk(2, -1)
        s = 1 / (1 + torch.exp(-a))
        return torch.cat([g * _by_a(a, b, s), g * _by_b(a, b, s)], -1)


@swiglu.mistake(
    "second_order",
    "You divide the output by b to get silu(a), with another formula where b is 0: the gradient is right, and as a function of x "
    "it is not the same there. Compute silu(a) from a everywhere.",
)
class divides_where_it_can(SwiGLUNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        y = ctx.saved_tensors[1]
        return _halves(ctx, g, _by_a, lambda a, b, s: torch.where(b == 0, F.silu(a.detach()), y / b))


@swiglu.mistake("second_order", SIGMOID_BY_ABS)
class sigmoid_by_abs(SwiGLUNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors[0].chunk(2, -1)
        s = _by_abs(a)
        return torch.cat([g * _by_a(a, b, s), g * _by_b(a, b, s)], -1)


@swiglu.mistake("second_order", CUT_OFF)
class not_differentiable_twice(SwiGLUNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return SwiGLUNew.backward(ctx, g)


@swiglu.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(SwiGLUNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        a, b = x.chunk(2, -1)
        s = torch.sigmoid(a)
        grad_b = g * a * s
        return torch.cat([g.mul_(_by_a(a, b, s)), grad_b], -1)


@swiglu.mistake(
    "contract",
    "Your forward works in place (F.silu(..., inplace=True), sigmoid_, mul_) on a half of x, which is a view of it: the "
    "caller's tensor is overwritten. Make new tensors.",
)
class writes_into_input(SwiGLUNew):
    @staticmethod
    def forward(x):
        n = x.shape[-1] // 2
        return F.silu(x[..., :n], inplace=True) * x[..., n:]


@swiglu.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(SwiGLUNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        (ctx.x,) = inputs

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.x.chunk(2, -1)
        s = torch.sigmoid(a)
        return torch.cat([g * _by_a(a, b, s), g * _by_b(a, b, s)], -1)


@swiglu.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Function):
    @staticmethod
    def forward(ctx, x):
        GLOBAL["x"] = x
        return _swiglu(x)

    @staticmethod
    def backward(ctx, g):
        a, b = GLOBAL["x"].chunk(2, -1)
        s = torch.sigmoid(a)
        return torch.cat([g * _by_a(a, b, s), g * _by_b(a, b, s)], -1)


@swiglu.mistake(
    "contract",
    "Your backward lets torch.autograd differentiate forward. The task is to write the vector-Jacobian product yourself: with "
    "s = sigmoid(a), b (s + a s (1 - s)) and a s, times g.",
)
class autograd_in_backward(SwiGLUNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
            return torch.autograd.grad(_swiglu(x), x, g, create_graph=True)[0]


@swiglu.mistake(
    "contract",
    "Your backward calls torch's own backward of silu (or of glu, or the sigmoid). Write the derivative yourself: with "
    "s = torch.sigmoid(a) it is s + a s (1 - s).",
)
class torch_s_backward(SwiGLUNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors[0].chunk(2, -1)
        return torch.cat([torch.ops.aten.silu_backward(g * b, a), g * F.silu(a)], -1)


# --- The chapter's own: BroadcastDiv, Mean, Amax, Softplus ------------------------------------------------------------


def _sibling_checks(cases: Callable, second: Callable) -> tuple[Check, ...]:
    """The checks of a chapter's Function, a point each.

    Args:
        cases: from a Draw and an order, the cases of value and gradient.
        second: from a Draw, arguments for the second order, gradcheck and the contract.
    """
    both = "Forward and backward are what every later number rests on."
    return (
        Check("value", 1, "the output equals torch's", both, lambda d: cases(d, 0), FORWARD),
        Check("gradient", 1, "the gradients equal torch's", both, lambda d: cases(d, 1), FIRST, second),
        Check(
            "second_order",
            1,
            "the gradients can be differentiated again",
            "A Hessian differentiates your backward.",
            lambda d: [d.case("a matrix", *second(d), order=2)],
            SECOND,
            second,
            2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; those that backward needs are saved",
            "Tensors that your Function did not make belong to others.",
            lambda d: [d.case("a matrix", *second(d), watch=ALL)],
            CONTRACT,
        ),
    )


def _quotients(d: Draw, order: int) -> list[Case]:
    cases = [d.case(f"{one} with {two}", *_pair(d, one, two), order=order) for one, two in SHAPES]
    return cases + [d.case(f"{_named(t)} inputs", *_pair(d, (2, 3), (3,), t), order=order) for t in DTYPES]


divide = Task(
    "BroadcastDiv",
    "BroadcastDiv.apply(a, b)",
    lambda a, b: a / b,
    _sibling_checks(_quotients, lambda d: _pair(d, (3, 1), (2,))),
    forbids=look.GRADIENT,
)


@divide.solution
class DivNew(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(a, b):
        return a / b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grad_a = g / b
        return grad_a.sum_to_size(a.shape), (-grad_a * (a / b)).sum_to_size(b.shape)


@divide.mistake(
    "gradient",
    "You sum the axes of size 1 one after another. After the first sum the remaining axes have moved up by one, so the second "
    "sum takes the wrong axis: sum over all of them in one call, or with keepdim=True.",
)
class axes_move(DivNew):
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grads = []
        for t, v in ((a, g / b), (b, -g / b * (a / b))):
            while v.ndim > t.ndim:
                v = v.sum(0)
            for axis, n in enumerate(t.shape):
                if n == 1:
                    v = v.sum(axis)
            grads.append(v.reshape(t.shape))
        return grads[0], grads[1]


def _reduced(d: Draw, order: int) -> list[Case]:
    """Every form of dim, dtypes, and ties."""
    dims = (None, 0, -1, (0, 2), (1,))
    cases = [d.case(f"dim={i}", _wide(d)(2, 3, 4), i, k, order=order) for i in dims for k in (False, True)]
    cases += [d.case(f"{_named(t)} input", _wide(d)(2, 3, dtype=t), 0, False, order=order) for t in DTYPES]
    tied = torch.tensor([[1.0, 3.0, 3.0], [3.0, 0.5, 0.5]], dtype=DOUBLE)
    cases += [d.case(f"ties, dim={i}", tied, i, False, order=order) for i in (None, 0, 1)]
    return [*cases, d.case("left out", _wide(d)(2, 3), order=order)]


mean = Task(
    "Mean",
    "Mean.apply(x, dim=None, keepdim=False)",
    lambda x, dim=None, keepdim=False: x.mean(dim, keepdim),
    _sibling_checks(_reduced, lambda d: (_wide(d)(2, 3), 1, False)),
    forbids=look.GRADIENT,
)


@mean.solution
class MeanNew(Function):
    """The shape with the axes kept, which g is copied from."""

    @staticmethod
    def forward(x, dim=None, keepdim=False):
        return x.mean(dim, keepdim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, dim, _ = inputs
        ctx.shape, ctx.kept = x.shape, x.sum(dim, keepdim=True).shape

    @staticmethod
    def backward(ctx, g):
        count = ctx.shape.numel() / max(g.numel(), 1)
        return (g / count).reshape(ctx.kept).expand(ctx.shape), None, None


@mean.mistake(
    "gradient",
    "Your gradient is divided by the number of all elements. Each mean is taken over the reduced axes alone: divide by how "
    "many elements went into one output.",
)
class divides_by_all(MeanNew):
    @staticmethod
    def backward(ctx, g):
        return g.reshape(ctx.kept).expand(ctx.shape) / ctx.shape.numel(), None, None


amax = Task(
    "Amax",
    "Amax.apply(x, dim=None, keepdim=False)",
    lambda x, dim=None, keepdim=False: x.amax(() if dim is None else dim, keepdim),
    _sibling_checks(_reduced, lambda d: (torch.arange(6, dtype=DOUBLE).reshape(2, 3) * d.between(1, 2), 1, False)),
    forbids=look.GRADIENT,
)


@amax.solution
class AmaxNew(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(x, dim=None, keepdim=False):
        return x.amax(() if dim is None else dim, keepdim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, dim, _ = inputs
        ctx.dim, ctx.kept = dim, x.sum(dim, keepdim=True).shape
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        largest = x == y.reshape(ctx.kept)
        count = largest.sum(ctx.dim, keepdim=True)
        return torch.where(largest, g.reshape(ctx.kept) / count, 0), None, None


@amax.mistake(
    "gradient",
    "Where several elements tie for the maximum, each gets the whole gradient, so they get it several times over. torch.amax "
    "gives each of k tied elements g / k.",
)
class ties_in_full(AmaxNew):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return torch.where(x == y.reshape(ctx.kept), g.reshape(ctx.kept), 0), None, None


def _rounded(d: Draw, order: int) -> list[Case]:
    cases = [d.case(f"x {one}, beta {two}", *_gated(d, one, two), order=order) for one, two in PAIRS]
    return cases + [d.case(f"{_named(t)} inputs", *_gated(d, (2, 3), (3,), t), order=order) for t in DTYPES]


softplus = Task(
    "Softplus",
    "Softplus.apply(x, beta)",
    lambda x, beta: F.softplus(beta * x) / beta,
    _sibling_checks(_rounded, lambda d: _gated(d, (2, 3), (3,))),
    forbids=look.GRADIENT,
)


@softplus.solution
class SoftplusNew(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(x, beta):
        z = beta * x
        return (z.clamp(min=0) + torch.log1p(torch.exp(-z.abs()))) / beta

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        z = beta * x
        a = z.abs()
        entropy = a * torch.sigmoid(-a) + torch.log1p(torch.exp(-a))
        return g * torch.sigmoid(z), (-g * entropy / beta**2).sum_to_size(beta.shape)


@softplus.mistake(
    "second_order",
    "Your first derivative is right, but the sigmoid was computed in forward and saved, so it comes back as a constant and "
    "its part of the second derivative is missing. Save x and beta and compute the sigmoid in backward.",
)
class saves_sigmoid(SoftplusNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, beta = inputs
        ctx.save_for_backward(x, beta, output, torch.sigmoid(beta * x))

    @staticmethod
    def backward(ctx, g):
        x, beta, y, s = ctx.saved_tensors
        return g * s, (g * (x * s - y) / beta).sum_to_size(beta.shape)


TASKS = (linear, multiply, swish, swiglu)
CHAPTER = (divide, mean, amax, softplus)
