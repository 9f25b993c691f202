"""MixedLinear: a linear layer whose products, backward's too, are computed in the dtype that forward's autocast chose."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.amp import custom_bwd, custom_fwd
from torch.autograd import Function
from torch.nn import functional as F

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import GRADIENT, VALUE, WATCHED, contract, value
from graders.judge.task import BRAIN, DOUBLE, HALF, SINGLE, Check, Draw, Task
from graders.judge.wrong import Wrong
from graders.sets.checkpointing.common import layer, layers, lopsided_layers, some_learn

PLACE = 3
Three = tuple[Tensor, Tensor, Tensor]
FORWARD = {HALF: "autocast in float16", BRAIN: "autocast"}  # what runs in which dtype


def _few(d: Draw, *shape: int, dtype: torch.dtype = SINGLE) -> Tensor:
    """Draw multiples of 1/4 up to 2: a product of a few such matrices is exact in every dtype, in any order."""
    return ((d.sides(*shape, away=0.3) * 4).round() / 4).to(dtype)


def _near(d: Draw, *shape: int) -> Tensor:
    """Draw numbers that bfloat16 rounds to those of `_few`."""
    return (_few(d, *shape, dtype=DOUBLE) * (1 + d.sides(*shape, away=0.4, reach=0.9) * 2.0**-9)).float()


def _fine(d: Draw, *shape: int) -> Tensor:
    """Draw numbers that float16 holds and bfloat16 rounds."""
    odd = (d.between(0, 127, *shape).round() * 2 + 1) / 256
    return ((1 + odd) * d.sides(*shape).sign()).float()


def _upstream(d: Draw, *shape: int, dtype: torch.dtype) -> Tensor:
    """Draw an upstream gradient of 1/2 and 1 with either sign."""
    return (d.sides(*shape, away=0.3, reach=1.2).mul(2).round() / 2).clamp(-1, 1).to(dtype)


def _mixed(
    d: Draw, name: str, *rows: int, dtype: torch.dtype = BRAIN, x: torch.dtype = SINGLE, order: int = 1, **keywords: Any
) -> Case:
    """Return a case of a forward under autocast, with weights of float32 and x of this dtype."""
    near = _near if dtype == BRAIN else _fine
    args = near(d, *rows, 3).to(x), _near(d, 4, 3) if dtype == BRAIN else _few(d, 4, 3), _near(d, 4)
    upstream = _upstream(d, *rows, 4, dtype=dtype) if order else None
    if "state" in keywords.get("watch", ()):
        keywords["between"] = layer(d, 2, 3, dtype=SINGLE)  # which runs outside autocast
    return d.case(name, *args, upstream=upstream, order=order, within=FORWARD[dtype], **keywords)


def _coarse(d: Draw, which: str) -> Three:
    """Return a layer in which numbers of one argument cancel: bfloat16 rounds them to 256, and float16 elsewhere."""
    x, weight, bias = _few(d, 2, 3), _few(d, 4, 3), _few(d, 4)
    if which == "bias":  # the product is even, so that each dtype holds it
        x, weight = x.sign(), weight.sign()
        x[:, 0], bias = 256, -weight[:, 0] * (256 + d.between(0.55, 0.7, 4).float())
        return x, weight, bias
    coarse, other = (x, weight) if which == "x" else (weight, x)
    coarse[:, 0], coarse[:, 1] = 256 + d.between(0.55, 0.7, len(coarse)).float(), -256
    other[:, :2] = 2 * d.sides(len(other), 1).sign()
    return x, weight, bias


def _rounded(d: Draw) -> list[Case]:
    """Return cases of values under autocast in which it shows which argument was cast before all were added up."""
    dtypes = {"bfloat16": BRAIN, "float16": HALF}
    return [
        d.case(f"{which} with numbers that {name} rounds, under autocast", *layer, order=0, within=FORWARD[dtype])
        for which in ("x", "weight", "bias")
        for layer in [_coarse(d, which)]
        for name, dtype in dtypes.items()
    ]


def _under(d: Draw, order: int) -> list[Case]:
    """Return cases of forwards under autocast: both dtypes, leading dimensions, an x that has the dtype already."""
    return [
        _mixed(d, "under autocast", 2, order=order),
        _mixed(d, "under autocast in float16", 2, dtype=HALF, order=order),
        _mixed(d, "a vector under autocast", order=order),
        _mixed(d, "a batch of batches under autocast", 2, 2, order=order),
        _mixed(d, "no rows under autocast", 0, order=order),
        _mixed(d, "a bfloat16 x under autocast", 2, x=BRAIN, order=order),
        _mixed(d, "a float16 x under autocast in float16", 2, dtype=HALF, x=HALF, order=order),
    ]


def _around(d: Draw) -> list[Case]:
    """Return cases of a forward outside autocast and a backward under it."""
    within = {"within": "autocast around backward"}
    return [
        d.case("float32, backward alone under autocast", *layer(d, 2, 3, dtype=SINGLE), **within),
        d.case("a batch of batches, backward alone under autocast", *layer(d, 2, 2, 3, dtype=SINGLE), **within),
    ]


def _backward(g: Tensor, x: Tensor, weight: Tensor) -> Three:
    """Return the gradients of a linear layer, of tensors of one dtype."""
    rows = g.reshape(-1, weight.shape[0])
    return g @ weight, rows.t() @ x.reshape(-1, weight.shape[1]), rows.sum(0)


class MixedNew(Function):
    """The inputs cast anew in backward, to the dtype of the upstream gradient, which is forward's: the one to write."""

    @staticmethod
    def forward(x, weight, bias):
        return F.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):
            return _backward(g, x.to(g.dtype), weight.to(g.dtype))


task = Task(
    "MixedLinear",
    "MixedLinear.apply(x, weight, bias)",
    reference=MixedNew.apply,  # torch's own layer takes the autocast that is around backward
    checks=(
        value(
            1,
            about="the output equals F.linear(x, weight, bias), under autocast in its dtype",
            cases=lambda d: [
                *layers(d, order=0),
                *_under(d, order=0),
                d.case("float32, no autocast", *layer(d, 2, 3, dtype=SINGLE), order=0),
                *_rounded(d),
                *lopsided_layers(d, 0),
            ],
        ),
        Check(
            "gradient",
            1,
            about="forward outside autocast: first and second derivatives as F.linear's",
            why="Outside autocast a layer for mixed precision is a linear layer like any other.",
            cases=lambda d: [
                *layers(d),
                *some_learn(d),
                *_around(d),
                d.case("an expanded upstream gradient", *layer(d, 2, 2, 3), upstream=d.normal(2, 1, 4).expand(2, 2, 4)),
                *lopsided_layers(d, 1),
                *(d.case(f"x of shape {s}", *layer(d, *s), order=2) for s in ((2, 3), (3,), (2, 2, 3))),
                d.case("weight requires no gradient", *layer(d, 2, 3), order=2, requires=(True, False, True)),
                *lopsided_layers(d, 2),
            ],
            looks=(*GRADIENT, look.second_order),
            gradcheck=lambda d: layer(d, 2, 3, out=2),
            order=2,
        ),
        Check(
            "autocast",
            1,
            about="forward under autocast: backward computes in the dtype in which forward did",
            why="Backward runs where loss.backward() stands, and belongs to the forward that was.",
            cases=lambda d: [
                *_under(d, order=1),
                _mixed(d, "a gradient for x alone, under autocast", 2, requires=(True, False, False)),
                _mixed(d, "a gradient for weight and bias, under autocast", 3, requires=(False, True, True)),
                d.case("float32, no autocast", *layer(d, 2, 3, dtype=SINGLE)),
            ],
            looks=(*VALUE, look.function, look.gradient),
        ),
        contract(
            1,
            about="nothing is kept beside the arguments, under autocast too; nothing changes unnoticed",
            cases=lambda d: [
                d.case("a matrix", *layer(d, 2, 3), watch=WATCHED),
                d.case("a float32 batch of batches", *layer(d, 2, 2, 3, dtype=SINGLE), watch=WATCHED),
                _mixed(d, "a matrix under autocast", 5, watch=WATCHED),
                _mixed(d, "a float16 x under autocast in float16", 2, dtype=HALF, x=HALF, watch=("state", "trace")),
                _mixed(d, "a bfloat16 x under autocast", 5, x=BRAIN, watch=("state", "trace")),
            ],
            looks=(
                *GRADIENT[:4],
                look.untouched,
                *GRADIENT[4:],
                look.stateless,
                look.guarded,
                look.allowed,
                look.keeps_at_most(0, "keeps"),
            ),
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------

task.solution(MixedNew)


@task.solution
class MixedOld(Function):
    """The decorators of torch.amp, which note forward's autocast and enter it in backward: where the older form suits.

    They need forward and setup_context in one.
    """

    @staticmethod
    @custom_fwd(device_type="cpu")
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, g):
        return _backward(g, *ctx.saved_tensors)


@task.solution
class MixedNoted(MixedNew):
    """Forward's autocast noted on ctx, and entered again in backward: where many operations would each need casts."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])
        ctx.cast = {"enabled": torch.is_autocast_enabled("cpu"), "dtype": torch.get_autocast_dtype("cpu")}

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        with torch.autocast("cpu", **ctx.cast):
            return _backward(g, x, weight)


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class MixedByHand(Function):
    """All casts by hand, einsums, gradients where they are needed; the engine sums that of bias."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        ctx.dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        with torch.autocast("cpu", enabled=False):
            return torch.matmul(x.to(ctx.dtype), weight.to(ctx.dtype).mT).add_(bias.to(ctx.dtype))

    @staticmethod
    def backward(ctx, g):
        x, weight = (t.to(ctx.dtype) for t in ctx.saved_tensors)
        needs_x, needs_weight, _ = ctx.needs_input_grad
        grad_x = grad_weight = None
        with torch.autocast("cpu", enabled=False):
            if needs_x:
                grad_x = torch.einsum("...o,oi->...i", g, weight)
            if needs_weight:
                grad_weight = torch.einsum("no,ni->oi", g.reshape(-1, g.shape[-1]), x.reshape(-1, x.shape[-1]))
        return grad_x, grad_weight, g


# --- Mistakes ---------------------------------------------------------------------------------------------------------

wrong = Wrong(task, of=MixedNew)


def _off() -> torch.autocast:
    """Return autocast, switched off."""
    return torch.autocast("cpu", enabled=False)


def _other_weight(ctx: Any, g: Tensor, grad_weight: Callable[[], Tensor]) -> Three:
    """Return the right gradients, but for that of weight."""
    grad_x, _, grad_bias = MixedNew.backward(ctx, g)
    with _off():
        return grad_x, grad_weight(), grad_bias


def _long(x: Tensor) -> Tensor:
    """Return x as one long batch."""
    return x.reshape(-1, x.shape[-1])


@wrong.backward(
    "autocast",
    "Under autocast the upstream gradient has the small dtype and what you saved is float32, and a product of the two "
    "raises: where backward runs, autocast is off, and nobody casts. Cast x and weight to the upstream gradient's dtype.",
)
def dtypes_clash(x, weight, g):
    return _backward(g, x, weight)


@wrong.backward(
    "autocast",
    "You cast the upstream gradient up to float32, so backward's products are the slow ones that autocast was to save. "
    "Cast the other way, x and weight to the dtype of the upstream gradient. (Do you ask in backward whether autocast "
    "is on? There it is off: what counts is what forward ran under.)",
)
def cast_up_in_backward(x, weight, g):
    return _backward(g.to(weight.dtype), x.to(weight.dtype), weight)


@wrong.backward(
    "gradient",
    "Your casts are right, but autocast may be on around backward where it was off in forward, and then it makes "
    'small products of a float32 layer. Compute under torch.autocast("cpu", enabled=False).',
)
def autocast_left_on(x, weight, g):
    return _backward(g, x.to(g.dtype), weight.to(g.dtype))


@wrong.forward(
    "value",
    "You cast to a small dtype whether autocast is on or not. Outside it the layer is F.linear in the dtype of its inputs: "
    "whoever wants float64 gets it. (torch.get_autocast_dtype has an answer when autocast is off, too.)",
)
def always_small(x, weight, bias):
    dtype = torch.get_autocast_dtype("cpu")
    return F.linear(x.to(dtype), weight.to(dtype), bias.to(dtype))


@wrong.forward(
    "value",
    'You take bfloat16 for autocast\'s dtype. It may be float16 as well: torch.get_autocast_dtype("cpu") says which, '
    "and F.linear under autocast casts by itself.",
)
def bfloat16_for_every_autocast(x, weight, bias):
    if not torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    with torch.autocast("cpu", torch.bfloat16):
        return F.linear(x, weight, bias)


@wrong.forward(
    "value",
    "Under autocast x @ weight.t() has the small dtype and bias is float32, so their sum is float32: autocast casts for "
    "products, and not for a sum. Cast bias too, or call F.linear, which takes all three.",
)
def bias_not_cast(x, weight, bias):
    return x @ weight.t() + bias


@wrong.forward(
    "value",
    "Under autocast you cast the output back to float32. The next layer wants the small dtype, as F.linear returns it "
    "there; only gradients go back to the dtype of what they belong to.",
)
def output_cast_back(x, weight, bias):
    return F.linear(x, weight, bias).to(weight.dtype)


@wrong.backward(
    "gradient",
    "Your backward returns None for bias. It is a parameter like weight: its gradient is the upstream gradient, summed "
    "over the rows.",
)
def bias_none(ctx, g):
    return *MixedNew.backward(ctx, g)[:2], None


@wrong.backward(
    "gradient",
    "Your gradient for weight is x^T g, of shape (in, out): the transpose of what it should be. A gradient has the "
    "shape of its argument, (out, in), so it is g^T x.",
)
def weight_gradient_transposed(ctx, g):
    grad_x, grad_weight, grad_bias = MixedNew.backward(ctx, g)
    return grad_x, grad_weight.t(), grad_bias


@wrong.backward(
    "gradient",
    "Your backward works for matrices alone: .t() takes two dimensions at most, so an x with three raises. Make one "
    "long batch of the leading dimensions first, with reshape(-1, n), n the last size.",
)
def matrices_only(x, weight, g):
    x, weight = x.to(g.dtype), weight.to(g.dtype)
    with _off():
        grad_weight = g.t() @ x if g.ndim != 1 else torch.outer(g, x)
        return g @ weight, grad_weight, g.sum_to_size(weight.shape[:1])


wrong.habits(
    "upstream_ignored nothing_returned no_function kept_outside_ctx",
    autograd_in_backward="Your backward lets torch.autograd differentiate forward. The task is to write the "
    "vector-Jacobian product yourself, in forward's dtype: g @ weight, g^T x, and a sum.",
)
wrong.habits("not_differentiable_twice", caught_by="gradient")
wrong.habits(
    caught_by="gradient",
    detached="Your first derivatives are right and your second are missing: detach (or .data) in backward cuts x and "
    "weight out of the graph of the gradients, and so does saving views of both. Save and use them as they are.",
)


@wrong.forward(
    "value",
    "Under autocast you switch it off in forward, or let custom_fwd cast the inputs to float32: the product is the "
    "float32 one. Compute it in autocast's dtype; F.linear does so by itself where autocast is on.",
)
def switched_off_in_forward(x, weight, bias):
    with _off():
        return F.linear(x.to(weight.dtype), weight, bias)


@wrong.forward(
    "value",
    "Under autocast you compute in float32 and cast the output. The product is what is to be quick: cast x, weight and "
    "bias first, then multiply.",
)
def cast_after_the_product(x, weight, bias):
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    with _off():
        return F.linear(x.to(weight.dtype), weight, bias).to(dtype)


@wrong.forward(
    "value",
    "You add the float32 bias to the small product and cast the sum. F.linear under autocast casts all three before it "
    "multiplies and adds: bias.to(product.dtype) first.",
)
def bias_not_rounded(x, weight, bias):
    product = x @ weight.t()
    return (product + bias).to(product.dtype)


@wrong.forward(
    "value",
    "You multiply by weight as it is. Its shape is (out, in), as in F.linear, so x is multiplied by its transpose: "
    "x @ weight.t().",
)
def weight_not_transposed(x, weight, bias):
    return F.linear(x, weight.t(), bias)


@wrong.backward(
    "gradient",
    "Your backward computes in float32 (.float()) whatever forward computed in: in float64 half of the digits are lost, "
    "and under autocast its products are the slow ones. Cast x and weight to the dtype of the upstream gradient.",
)
def float32_in_backward(x, weight, g):
    return _backward(g.float(), x.float(), weight.float())


@wrong.backward(
    "gradient",
    "Your gradients for weight and bias are divided by the number of rows. Each row uses them once, and what the "
    "rows send back adds up. If the loss is a mean, g has the 1/N already.",
)
def batch_averaged(ctx, g):
    grad_x, grad_weight, grad_bias = MixedNew.backward(ctx, g)
    rows = max(g.numel() // g.shape[-1], 1)
    return grad_x, grad_weight / rows, grad_bias / rows


@wrong.backward(
    "gradient",
    "Your gradient for bias is one number, the sum over everything. Each output has a bias of its own: sum over the "
    "rows and keep the last dimension.",
)
def bias_summed_to_one_number(ctx, g):
    grad_x, grad_weight, _ = MixedNew.backward(ctx, g)
    return grad_x, grad_weight, g.sum()


@wrong.backward(
    "gradient",
    "ctx.needs_input_grad[0] decides about all three of your gradients. Each argument has an entry of its own: 0 is "
    "x, 1 is weight, 2 is bias.",
)
def x_decides_for_all(ctx, g):
    return MixedNew.backward(ctx, g) if ctx.needs_input_grad[0] else (None, None, None)


@wrong.backward(
    "gradient",
    "Your gradient for bias hangs on whether weight requires one, so a bias that learns alone gets None. Each argument "
    "has an entry of its own in ctx.needs_input_grad, and bias's is 2.",
)
def bias_tied_to_weight(ctx, g):
    grad_x, grad_weight, grad_bias = MixedNew.backward(ctx, g)
    return (grad_x, grad_weight, grad_bias) if ctx.needs_input_grad[1] else (grad_x, None, None)


@wrong.backward(
    "gradient",
    "For weight you make (out, rows) of the upstream gradient by reshape(out, -1). That is no transpose: it keeps the "
    "numbers in their order, and mixes rows and columns. Make rows first, reshape(-1, out), and then transpose: .t().",
)
def reshape_for_transpose(ctx, x, weight, g):
    return _other_weight(ctx, g, lambda: g.reshape(len(weight), -1) @ _long(x).to(g.dtype))


@wrong.backward(
    "gradient",
    "For an x of shape (in,) the upstream gradient has shape (out,) and is bias's gradient: no dimension is left to sum "
    "over, and sum(0) and sum(dim=()) add up the outputs. Sum over rows, g.reshape(-1, out).sum(0), or return g as it is.",
)
def sum_over_no_dims(ctx, g):
    return *MixedNew.backward(ctx, g)[:2], g.sum(dim=tuple(range(g.ndim - 1)))


FLATTENED = (
    "You make a matrix of x by flattening all dimensions but the first. Those that belong together are all but the last: "
    "reshape(-1, x.shape[-1]). The two are the same for an x of two dimensions alone."
)


@wrong.backward("gradient", FLATTENED)
def flattens_all_but_first(ctx, x, weight, g):
    x = x.to(g.dtype)
    return _other_weight(ctx, g, lambda: g.reshape(len(g), -1).t() @ x.reshape(len(x), -1))


@wrong.backward("gradient", FLATTENED)
def flatten_from_the_second_on(ctx, x, weight, g):
    return _other_weight(ctx, g, lambda: g.flatten(1).t() @ x.to(g.dtype).flatten(1))


VIEW_SAVED = (
    "Your first derivatives are right, and the second do not reach {}: you save a view of it (detach makes one, too), and "
    "what is made while forward runs has no graph behind it. Save {} as it came, and make the view in backward."
)


@wrong.backward("gradient", VIEW_SAVED.format("weight", "weight"), saves=lambda x, weight, bias, y: (x, weight.t()))
def saves_a_view(x, weight_t, g):
    with _off():
        return _backward(g, x.to(g.dtype), weight_t.t().to(g.dtype))


@wrong.backward("gradient", VIEW_SAVED.format("x", "x"), saves=lambda x, weight, bias, y: (_long(x), weight))
def saves_the_long_batch(rows, weight, g):
    with _off():
        return _backward(g, rows.to(g.dtype), weight.to(g.dtype))


@wrong.backward(
    "autocast",
    "Your backward computes in the dtype of the inputs, float32, where forward computed in a small one. The upstream "
    'gradient has forward\'s dtype. (Do you ask torch.is_autocast_enabled() without "cpu"? It then answers for a GPU.)',
)
def dtype_of_the_inputs(x, weight, g):
    with _off():
        return _backward(g.to(weight.dtype), x.to(weight.dtype), weight)


@wrong.backward(
    "autocast",
    "Where your backward multiplies, autocast is off, so nobody casts, and small and float32 tensors meet. Cast x and "
    "weight to the dtype of the upstream gradient. (Or do you enter the autocast that forward noted? "
    'torch.is_autocast_enabled() without "cpu" answers for a GPU, so it noted that it was off.)',
)
def nobody_casts(x, weight, g):
    with _off():
        return _backward(g, x, weight)


@wrong.backward(
    "autocast",
    "In backward you cast weight and not x, which may be float32 as well, as the first layer's is. Cast both to the "
    "dtype of the upstream gradient: what has it already stays as it is.",
)
def x_not_cast(x, weight, g):
    with _off():
        return _backward(g, x, weight.to(g.dtype))


@wrong.backward(
    "autocast",
    "In backward you cast weight and not x, which may be float32 as well, as the first layer's is. Cast both to the dtype "
    "of the upstream gradient, and multiply with autocast off: it may be on around the backward of a float32 layer.",
)
def x_not_cast_and_autocast_left_on(x, weight, g):
    return _backward(g, x, weight.to(g.dtype))


@wrong.backward(
    "autocast",
    "You ask in backward whether autocast is on. loss.backward() usually stands outside the block: what counts is what "
    "forward ran under. Ask in forward or setup_context and note the answer on ctx, or go by the dtype of the upstream "
    "gradient.",
)
def asked_in_backward(x, weight, g):
    if torch.is_autocast_enabled("cpu"):
        x, weight, g = (t.to(torch.get_autocast_dtype("cpu")) for t in (x, weight, g))
    return _backward(g, x, weight)


@wrong.backward(
    "autocast",
    "Your backward takes the dtype of the autocast that it stands in. loss.backward() usually stands in none, so after a "
    "forward in a small dtype you compute in float32, and within one a float32 layer gets small products. Go by the "
    "dtype of the upstream gradient, which is forward's.",
)
def state_asked_in_backward(x, weight, g):
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weight.dtype
    with _off():
        return _backward(*(t.to(dtype) for t in (g, x, weight)))


@wrong.backward(
    "gradient",
    "Where autocast is on around backward you compute in its dtype, though forward ran without it: a float32 layer gets "
    "small products. Cast to the dtype of the upstream gradient, which is forward's, whatever is around.",
)
def autocast_around_preferred(x, weight, g):
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else g.dtype
    with _off():
        return _backward(*(t.to(dtype) for t in (g, x, weight)))


@task.mistake(
    "gradient",
    'You note torch.get_autocast_dtype("cpu") in forward, and not whether autocast is on. It has an answer, bfloat16, '
    "when it is off, too, and your backward then computes a float64 layer in that. Cast to the dtype of the output, or "
    "of the upstream gradient.",
)
class autocast_dtype_though_off(MixedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        MixedNew.setup_context(ctx, inputs, output)
        ctx.dtype = torch.get_autocast_dtype("cpu")

    @staticmethod
    def backward(ctx, g):
        with _off():
            return _backward(*(t.to(ctx.dtype) for t in (g, *ctx.saved_tensors)))


@wrong.backward(
    "autocast",
    "Your backward enters autocast whether forward ran under it or not, so a float32 layer gets gradients of bfloat16 "
    "products. Pass enabled= what forward saw.",
)
def autocast_always_entered(x, weight, g):
    dtype = torch.bfloat16 if g.dtype == torch.float32 else g.dtype
    with torch.autocast("cpu", dtype, enabled=g.dtype != torch.float64):
        return _backward(g, x, weight)


@task.mistake(
    "autocast",
    "You note whether autocast was on in forward, and not in which dtype: torch.autocast alone means bfloat16, so a "
    'forward in float16 gets a backward in bfloat16. Note torch.get_autocast_dtype("cpu") too.',
)
class autocast_dtype_forgotten(MixedNoted):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])
        ctx.cast = {"enabled": torch.is_autocast_enabled("cpu")}


@wrong.backward(
    "autocast",
    "In backward you cast to bfloat16 whatever forward computed in: a forward in float16, or in float32 outside "
    "autocast, gets gradients of bfloat16 products. Cast to the dtype of the upstream gradient.",
)
def bfloat16_in_backward(x, weight, g):
    dtype = g.dtype if g.dtype == torch.float64 else torch.bfloat16
    with _off():
        return _backward(g.to(dtype), x.to(dtype), weight.to(dtype))


@wrong.backward(
    "contract",
    "You save the small copies that forward computed with: memory beside the arguments, which are alive anyway. Save x "
    "and weight as they are and cast them again in backward.",
    saves=lambda x, weight, bias, y: (x.to(y.dtype), weight.to(y.dtype)),
)
def small_copies_saved(x, weight, g):
    with _off():
        return _backward(g, x, weight)


@wrong.backward(
    "contract",
    "You save a float32 copy of an x that came in the small dtype: twice its memory, for products that are small "
    "anyway. Save x as it is.",
    saves=lambda x, weight, bias, y: (x.to(weight.dtype), weight),
)
def wide_copy_saved(x, weight, g):
    with _off():
        return _backward(g, x.to(g.dtype), weight.to(g.dtype))


wrong.habits("kept_as_attribute")


@task.mistake(
    "contract",
    "You note forward's dtype outside ctx, on the class or in a global. The next forward, which may run outside autocast, "
    "writes over it before your backward reads it. What belongs to a call goes on its own ctx.",
)
class dtype_outside_ctx(MixedNew):
    dtype = torch.float32

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        dtype_outside_ctx.dtype = output.dtype
        MixedNew.setup_context(ctx, inputs, output)

    @staticmethod
    def backward(ctx, g):
        dtype = dtype_outside_ctx.dtype
        x, weight = (t.to(dtype) for t in ctx.saved_tensors)
        with _off():
            return _backward(g.to(dtype), x, weight)


@task.mistake(
    "contract",
    "You note forward's autocast outside ctx, on the class or in a global, as forward has no ctx here. The next forward, "
    "which may run outside autocast, writes over it before your backward enters it. setup_context has a ctx: note it there.",
)
class state_on_the_class(MixedNew):
    cast = {"enabled": False, "dtype": torch.bfloat16}

    @staticmethod
    def forward(x, weight, bias):
        enabled, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        state_on_the_class.cast = {"enabled": enabled, "dtype": dtype}
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, g):
        with torch.autocast("cpu", **state_on_the_class.cast):
            return _backward(g, *ctx.saved_tensors)
