"""SwiGLU: one tensor, split in two and joined again."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import WATCHED, gradient, value
from graders.judge.task import BRAIN, DOUBLE, HALF, SINGLE, Draw, Task
from graders.judge.wording import WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.linear.common import (
    DENIED,
    RENAMED,
    SECOND_OVERFLOWS,
    SIGMOID_BY_ABS,
    away_from_0,
    by_abs,
    contract,
    lopsided,
    named,
    second_order,
)

PLACE = 4


def _swiglu(x: Tensor) -> Tensor:
    """Return the right value, as torch has it."""
    gate, linear_half = x.chunk(2, -1)
    return F.silu(gate) * linear_half


def _forms(d: Draw, order: int = 1) -> list[Case]:
    """Return cases of every shape, dtype and layout, far from 0 and at it."""
    shapes = {"a matrix": (2, 6), "a vector": (6,), "three dimensions": (2, 3, 4), "no rows": (0, 4)}
    cases = [d.case(name, away_from_0(d, *shape), order=order) for name, shape in shapes.items()]
    for t, ends in ((DOUBLE, (30, 1000)), (SINGLE, (30, 1000)), (BRAIN, (30, 1000)), (HALF, (5, 10))):
        gates = torch.tensor([-ends[1], -ends[0], ends[0], ends[1]], dtype=t)
        x = torch.cat([gates, away_from_0(d, 4, dtype=t)])
        cases += [d.case(f"{named(t)} input, gates far from 0", x, order=order)]
    zeros = torch.tensor([0.5, 0.0, -1.0, 0.0, 2.0, 0.0], dtype=DOUBLE)
    cases += [d.case("zeros in both halves", zeros, order=order)]
    wide = away_from_0(d, 4, 3, 4)
    cases += [d.case("a transposed input", wide[:2].transpose(0, 1), order=order)]
    cases += [d.case("an expanded input, every second row", wide[:1, ::2].expand(3, 2, 4), order=order)]
    return cases


task = Task(
    "SwiGLU",
    "SwiGLU.apply(x)",
    reference=_swiglu,
    checks=(
        value(
            1,
            about="silu(first half) * second half along the last dimension, in every dtype, shape and layout",
            cases=lambda d: [
                *_forms(d, order=0),
                d.case("every size", d.scales(3, 8), order=0),
                *lopsided(d, away_from_0(d, 6), order=0),
                d.case("x by keyword", away_from_0(d, 2, 4), keywords=("x",), order=0),
                d.case("sizes of 1, and halves of one element", away_from_0(d, 1, 3, 2), order=0),
            ],
        ),
        gradient(
            1,
            about="the gradient equals torch's, in the shape of x, and gradcheck passes",
            why="Both halves get a gradient, and they are joined as x was split.",
            cases=lambda d: [
                *_forms(d),
                d.case("every size", d.scales(3, 8), upstream=d.scales(3, 4)),
                d.case(
                    "an expanded upstream gradient", away_from_0(d, 2, 2, 6), upstream=d.normal(2, 1, 3).expand(2, 2, 3)
                ),
                *lopsided(d, away_from_0(d, 6), order=1),
                d.case("sizes of 1, and halves of one element", away_from_0(d, 1, 3, 2)),
            ],
            gradcheck=lambda d: (away_from_0(d, 2, 4),),
        ),
        second_order(
            1,
            about="the gradient can be differentiated again, by x and by the upstream gradient",
            cases=lambda d: [
                d.case("a matrix", away_from_0(d, 2, 6), order=2),
                d.case("zeros in both halves", torch.tensor([0.5, 0.0, -1.0, 0.0, 2.0, 0.0], dtype=DOUBLE), order=2),
                d.case("gates far from 0", torch.tensor([-1000.0, 1000.0, 0.7, -0.4], dtype=DOUBLE), order=2),
                *lopsided(d, away_from_0(d, 6), order=2),
            ],
            gradcheck=lambda d: (away_from_0(d, 4),),
        ),
        contract(
            1,
            about="the caller's tensors stay untouched; backward's are saved; no backward of torch's",
            cases=lambda d: [
                d.case("a matrix", away_from_0(d, 2, 6), watch=WATCHED, deny=DENIED),
                d.case("a float32 vector", away_from_0(d, 4, dtype=SINGLE), watch=("state",)),
            ],
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class SwiGLUNew(Function):
    """Saves x and splits it again in backward, so that it can be differentiated again: the one to write."""

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


@task.solution
class SwiGLUOld(Function):
    """forward and setup_context in one, and slices in place of chunk: where the halves are to be of unequal size."""

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


@task.solution
class SwiGLUBuffer(SwiGLUNew):
    """A buffer in the form of x, filled half by half: no copy by torch.cat, which pays for large x."""

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


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
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


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class Steps(SwiGLUNew):
    """SwiGLUNew in steps, for the wrong ones to change one of them."""

    sigmoid = staticmethod(torch.sigmoid)

    @staticmethod
    def by_a(a: Tensor, b: Tensor, s: Tensor) -> Tensor:
        """Return the derivative by the first half, s being its sigmoid."""
        return b * (s + a * s * (1 - s))

    @staticmethod
    def by_b(a: Tensor, b: Tensor, s: Tensor) -> Tensor:
        """Return the derivative by the second half."""
        return a * s

    @classmethod
    def backward(cls, ctx, g):
        a, b = ctx.saved_tensors[0].chunk(2, -1)
        s = cls.sigmoid(a)
        return torch.cat([g * cls.by_a(a, b, s), g * cls.by_b(a, b, s)], -1)


wrong = Wrong(task, of=Steps)
wrong.habits(
    "float32_inside float32_and_back nothing_returned view_needed no_function not_differentiable_twice "
    "kept_as_attribute kept_outside_ctx",
    upstream_ignored="Your gradient does not depend on the upstream gradient: multiply both halves by it.",
    one_too_many="Your backward returns two gradients, one for each half. forward has one argument: join the halves "
    "into one gradient of the shape of x.",
    autograd_in_backward="Your backward lets torch.autograd differentiate forward. The task is to write the "
    "vector-Jacobian product yourself: with s = sigmoid(a), b (s + a s (1 - s)) and a s, times g.",
)


@wrong.forward(
    "value",
    "Your gate is the second half, as in F.glu. In SwiGLU the first half goes through silu: silu(first) * second.",
)
def second_half_gates(x):
    a, b = x.chunk(2, -1)
    return a * F.silu(b)


@wrong.forward(
    "value",
    "Your forward is F.glu: the first half times the sigmoid of the second. SwiGLU takes silu, not the sigmoid, and "
    "of the first half.",
)
def glu_for_swiglu(x):
    return F.glu(x)


@wrong.forward("value", "Your gate is the sigmoid of the first half. SwiGLU takes silu, a * sigmoid(a).")
def sigmoid_for_silu(x):
    a, b = x.chunk(2, -1)
    return torch.sigmoid(a) * b


@task.mistake(
    "value",
    "You take the even and the odd elements, x[..., 0::2] and x[..., 1::2]. The task takes the first half and the second: "
    "chunk(2, dim=-1), joined again by cat.",
)
class even_and_odd(SwiGLUNew):
    @staticmethod
    def forward(x):
        return F.silu(x[..., 0::2]) * x[..., 1::2]

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        a, b = x[..., 0::2], x[..., 1::2]
        s = torch.sigmoid(a)
        return torch.stack([g * Steps.by_a(a, b, s), g * Steps.by_b(a, b, s)], -1).flatten(-2)


@wrong.forward(
    "value",
    "You split along the first dimension (chunk and split do that unless told otherwise). The halves lie along the "
    "last: chunk(2, dim=-1).",
)
def first_dimension_split(x):
    a, b = x.chunk(2)
    return F.silu(a) * b


@wrong.forward(
    "value",
    "You split along dimension 1, which is the last one of a matrix alone: a vector raises, and three dimensions are "
    "split in the middle. The halves lie along the last: chunk(2, dim=-1), or x[..., :n].",
)
def second_dimension_split(x):
    a, b = x.chunk(2, 1)
    return F.silu(a) * b


@wrong.forward(
    "value",
    "You take the halves as x[:, :n], which is right for a matrix alone: a vector raises, and with three dimensions the "
    "rows are split. The halves lie along the last: x[..., :n].",
)
def columns_split(x):
    n = x.shape[-1] // 2
    return F.silu(x[:, :n]) * x[:, n:]


@wrong.forward(
    "value",
    "Your forward ends in squeeze(), which drops every dimension of size 1, those of x too: with n = 1, or one row, the "
    "output has the wrong shape. Name the dimension to drop, or use chunk, which makes none.",
)
def squeezed(x):
    a, b = x.unflatten(-1, (2, -1)).split(1, -2)
    return (F.silu(a) * b).squeeze()


@wrong.forward("value", RENAMED.format("x"))
def arguments_renamed(input):
    return _swiglu(input)


@wrong.forward(
    "value",
    "Where the gate is large your output is nan: exp overflows and inf / inf is nan. Use torch.sigmoid or F.silu.",
)
def exponentials_overflow(x):
    a, b = x.chunk(2, -1)
    return a * torch.exp(a) / (1 + torch.exp(a)) * b


@wrong.backward(
    "gradient", "Your two halves of the gradient are in the wrong order. Join them as x was split: the gate's first."
)
def halves_swapped(ctx, g):
    a, b = SwiGLUNew.backward(ctx, g).chunk(2, -1)
    return torch.cat([b, a], -1)


@wrong.backward(
    "gradient",
    "You join the two halves of the gradient by stack along the last dimension, which puts their elements in turn, a0 b0 a1 b1. "
    "They stand one behind the other, as in x: torch.cat([...], dim=-1).",
)
def halves_interleaved(ctx, g):
    return torch.stack(SwiGLUNew.backward(ctx, g).chunk(2, -1), -1).flatten(-2)


@wrong.step(
    "by_a",
    "gradient",
    "Your derivative of silu is the sigmoid alone: a * sigmoid(a) is a product, so its derivative is s + a s (1 - s).",
)
def product_rule_forgotten(a, b, s):
    return b * s


@wrong.step(
    "by_a",
    "gradient",
    "Your derivative of silu, a s (1 - s), lacks the term s: a * sigmoid(a) is a product, so its derivative is "
    "s + a s (1 - s).",
)
def first_term_forgotten(a, b, s):
    return b * a * s * (1 - s)


@wrong.step(
    "by_a",
    "gradient",
    "Your gradient for the first half lacks the factor b, the second half: the output is a product, and silu'(a) is "
    "multiplied by what stands beside it.",
)
def other_half_forgotten(a, b, s):
    return s + a * s * (1 - s)


@wrong.backward(
    "gradient",
    "Your gradient for the second half lacks the upstream gradient: it is g * silu(a), and that for the first half "
    "g * b * silu'(a).",
    saves=lambda x, y: (x,),
)
def upstream_in_one_half(x, g):
    a, b = x.chunk(2, -1)
    return torch.cat([g * Steps.by_a(a, b, torch.sigmoid(a)), F.silu(a)], -1)


@wrong.backward(
    "gradient",
    "Your gradient for the second half is g * y / b: where b is 0 this is 0 / 0, nan. It is g * silu(a), computed "
    "from a.",
    saves=lambda x, y: (x, y),
)
def divides_output(x, y, g):
    a, b = x.chunk(2, -1)
    return torch.cat([g * Steps.by_a(a, b, torch.sigmoid(a)), g * y / b], -1)


@wrong.backward(
    "gradient",
    "You collect the halves in a buffer made by torch.zeros(shape) or torch.empty(shape), which is float32: in "
    "float64 half of the digits are lost. Use torch.zeros_like(x), or join the halves with torch.cat.",
)
def buffer_in_float32(ctx, x, g):
    result = torch.zeros(x.shape)
    n = result.shape[-1] // 2
    result[..., :n], result[..., n:] = SwiGLUNew.backward(ctx, g).chunk(2, -1)
    return result


@wrong.backward(
    "gradient",
    "You fill zeros_like(x) through a reshape of it. Where x is not contiguous that reshape is a copy, and the gradient "
    "stays 0. Fill result[..., :n] and result[..., n:], or join the halves with torch.cat.",
)
def buffer_reshaped(x, g):
    result, n = torch.zeros_like(x), g.shape[-1]
    a, b = x[..., :n].reshape(-1, n), x[..., n:].reshape(-1, n)
    s, rows, up = torch.sigmoid(a), result.reshape(-1, 2 * n), g.reshape(-1, n)
    rows[:, :n], rows[:, n:] = up * Steps.by_a(a, b, s), up * Steps.by_b(a, b, s)
    return result


@wrong.backward(
    "gradient",
    "You read x by as_strided with the strides of a contiguous tensor. A transposed or expanded x has others, so you "
    "take other numbers, or memory that is not there. Use chunk, or reshape, which look at the strides.",
)
def strides_assumed(x, g):
    n, start = g.shape[-1], x.storage_offset()
    a, b = (x.as_strided((g.numel() // n, n), (2 * n, 1), start + i) for i in (0, n))
    s, up = torch.sigmoid(a), g.reshape(-1, n)
    return torch.cat([up * Steps.by_a(a, b, s), up * Steps.by_b(a, b, s)], -1).reshape(x.shape)


@wrong.step(
    "by_a",
    "gradient",
    "You write the derivative of silu as f + s (1 - f) with f = silu(a). For a large gate f and 1 - f cancel, and in "
    "half precision the 1 is lost: the gradient is 0 instead of b. Write s + a s (1 - s).",
)
def slope_cancels(a, b, s):
    f = F.silu(a)
    return b * (f + s * (1 - f))


@wrong.step(
    "by_a",
    "gradient",
    "Your derivative of silu is a difference of two values over a small step: half of the digits are lost in float64, "
    "nearly all in float32. Write the formula, s + a s (1 - s).",
)
def finite_difference(a, b, s):
    return b * ((F.silu(a + 1e-5) - F.silu(a - 1e-5)) / (2 * 1e-5))


@wrong.backward(
    "gradient",
    "Your gradient is nan far from 0: exp(-a) / (1 + exp(-a))^2 is inf / inf there. With s = torch.sigmoid(a) the "
    "derivative is s (1 - s), always finite.",
)
def overflow_in_backward(x, g):
    a, b = x.chunk(2, -1)
    e = torch.exp(-a)
    return torch.cat([g * b * (1 / (1 + e) + a * e / (1 + e) ** 2), g * F.silu(a)], -1)


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is missing: you save the two halves, which were made in forward "
    "and come back as constants (or you detach what you saved). Save x itself, and split it in backward.",
    saves=lambda x, y: (*x.chunk(2, -1),),
)
def saves_halves(a, b, g):
    s = torch.sigmoid(a)
    return torch.cat([g * Steps.by_a(a, b, s), g * Steps.by_b(a, b, s)], -1)


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is missing: the derivatives by both halves were computed in forward "
    "and saved, or you save copies, so torch takes them for constants. Save x, and compute in backward.",
    saves=lambda x, y: tuple(f(*x.chunk(2, -1), torch.sigmoid(x.chunk(2, -1)[0])) for f in (Steps.by_a, Steps.by_b)),
)
def saves_derivatives(by_a, by_b, g):
    return torch.cat([g * by_a, g * by_b], -1)


@wrong.backward(
    "second_order",
    "Your first derivative is right, but the sigmoid was computed in forward and saved (or is detached), so it comes "
    "back as a constant and its part of the second derivative is missing. Save x, and compute the sigmoid in "
    "backward.",
    saves=lambda x, y: (x, torch.sigmoid(x.chunk(2, -1)[0])),
)
def saves_sigmoid(x, s, g):
    a, b = x.chunk(2, -1)
    return torch.cat([g * Steps.by_a(a, b, s), g * Steps.by_b(a, b, s)], -1)


@wrong.step(
    "sigmoid",
    "second_order",
    "Your first derivative is finite and your second is nan at large negative gates: you compute the sigmoid as "
    "1 / (1 + exp(-a)) in backward, and differentiating that takes inf * 0. Use torch.sigmoid.",
)
def second_overflows(a):
    return 1 / (1 + torch.exp(-a))


@wrong.step("by_a", "second_order", SECOND_OVERFLOWS)
def slope_by_cosh(a, b, s):
    return b * (s + a / (2 + torch.exp(a) + torch.exp(-a)))


@wrong.step(
    "by_a",
    "second_order",
    "You compute the derivative of silu under no_grad, or detach it, so it is a constant for the second derivative by "
    "the gate. Leave that out: torch records the graph of a backward only when somebody asks for it.",
)
def slope_without_graph(a, b, s):
    return b * (s + a * s * (1 - s)).detach()


@wrong.backward(
    "second_order",
    "You divide the output by b to get silu(a), with another formula where b is 0: the gradient is right, and as a "
    "function of x it is not the same there. Compute silu(a) from a everywhere.",
    saves=lambda x, y: (x, y),
)
def divides_where_it_can(x, y, g):
    a, b = x.chunk(2, -1)
    silu = torch.where(b == 0, F.silu(a.detach()), y / b)
    return torch.cat([g * Steps.by_a(a, b, torch.sigmoid(a)), g * silu], -1)


@wrong.step("sigmoid", "second_order", SIGMOID_BY_ABS)
def sigmoid_by_abs(z):
    return by_abs(z)


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(x, g):
    a, b = x.chunk(2, -1)
    s = torch.sigmoid(a)
    grad_b = g * a * s
    return torch.cat([g.mul_(Steps.by_a(a, b, s)), grad_b], -1)


@wrong.forward(
    "contract",
    "Your forward works in place (F.silu(..., inplace=True), sigmoid_, mul_) on a half of x, which is a view of it: "
    "the caller's tensor is overwritten. Make new tensors.",
)
def writes_into_input(x):
    n = x.shape[-1] // 2
    return F.silu(x[..., :n], inplace=True) * x[..., n:]


@wrong.backward(
    "contract",
    "Your backward works in place (F.silu(..., inplace=True), sigmoid_, mul_) on a half of the saved x: the caller's "
    "tensor is overwritten, and a second backward raises. Make new tensors.",
)
def writes_into_saved(x, g):
    a, b = x.chunk(2, -1)
    by_a = Steps.by_a(a, b, torch.sigmoid(a))
    return torch.cat([g * by_a, g * F.silu(a, inplace=True)], -1)


@wrong.saves(
    "contract",
    "You keep what torch does not watch, x.data or halves of x that setup_context made: when x is changed in place before "
    "backward, the gradient is silently wrong, and the second derivative is missing. Save x itself with "
    "ctx.save_for_backward.",
)
def saves_data(x, y):
    return (x.data,)


@wrong.backward(
    "contract",
    "Your backward calls torch's own backward of silu (or of glu, or the sigmoid). Write the derivative yourself: with "
    "s = torch.sigmoid(a) it is s + a s (1 - s).",
)
def torch_s_backward(x, g):
    a, b = x.chunk(2, -1)
    return torch.cat([torch.ops.aten.silu_backward(g * b, a), g * F.silu(a)], -1)


@wrong.step(
    "by_a",
    "gradient",
    "Your gradient for the first half, the gate, is that of the sigmoid alone, s (1 - s). silu is a times the sigmoid, so "
    "its derivative has two terms: s + a s (1 - s).",
)
def sigmoid_s_derivative(a, b, s):
    return b * s * (1 - s)


@wrong.backward(
    "gradient",
    "Your gradient for the second half is s times the upstream gradient. The second half is multiplied by silu(a), which "
    "is a s: the factor a is missing.",
)
def sigmoid_for_the_second_half(x, g):
    a, b = x.chunk(2, -1)
    s = torch.sigmoid(a)
    return torch.cat([g * Steps.by_a(a, b, s), g * s], -1)


@wrong.backward(
    "gradient",
    "You join the two gradients along the first dimension, which is torch.cat's default. x was split along the last: "
    "dim=-1.",
)
def joined_along_the_first(x, g):
    a, b = x.chunk(2, -1)
    return torch.cat([g * Steps.by_a(a, b, torch.sigmoid(a)), g * F.silu(a)])


@wrong.step(
    "by_a",
    "gradient",
    "In your derivative of silu a bracket closes too early: you have s (1 + a)(1 - s), and it is s (1 + a (1 - s)), that is "
    "s + a s (1 - s).",
)
def bracket_closed_early(a, b, s):
    return b * s * (1 + a) * (1 - s)


@wrong.step(
    "by_a",
    "gradient",
    "You write the derivative of silu as f + s (1 - s), with f = silu(a). The last bracket is of f, not of s: f + s (1 - f). It "
    "loses digits for a large gate, though; s + a s (1 - s) is the same and does not.",
)
def sigmoid_in_the_last_bracket(a, b, s):
    return b * (a * s + s * (1 - s))
