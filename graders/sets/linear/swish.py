"""Swish: a product rule, and a parameter that broadcasts."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import WATCHED, gradient, value
from graders.judge.task import BRAIN, DOUBLE, DTYPES, HALF, SINGLE, Check, Draw, Task
from graders.judge.wording import WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.linear.common import (
    DENIED,
    NOTHING_FOR_BOTH,
    PAIRS,
    RENAMED,
    SAVES_DATA,
    SECOND_OVERFLOWS,
    SIGMOID_BY_ABS,
    added_and_stretched,
    by_abs,
    contract,
    gated,
    lopsided,
    named,
    second_order,
)

PLACE = 3


def _forms(d: Draw, order: int = 1) -> list[Case]:
    """Return cases of every shape of beta, dtype and layout."""
    cases = [d.case(f"x {one}, beta {two}", *gated(d, one, two), order=order) for one, two in PAIRS]
    cases += [d.case(f"{named(t)} inputs", *gated(d, (2, 3), (3,), t), order=order) for t in DTYPES[:3]]
    x, beta = gated(d, (4, 3), (3, 4))
    cases += [d.case("every second row, an expanded beta", x[::2], beta[:1, :1].expand(2, 3), order=order)]
    signs = torch.tensor([-2.0, 0.0, 3.0], dtype=DOUBLE)
    cases += [d.case("beta negative, 0 and positive", x[:2].clone(), signs, order=order)]
    return cases


def _extremes(d: Draw) -> list[Case]:
    """Return cases far from 0."""
    ends = [-1000.0, -100.0, -30.0, 0.0, 30.0, 100.0, 1000.0]
    near = [*ends, -0.8, 1.5]
    cases = [
        d.case(f"{named(t)} far from 0", torch.tensor(x, dtype=t), torch.tensor(1.0, dtype=t), order=2)
        for t, x in ((DOUBLE, near), (SINGLE, near), (BRAIN, ends))
    ]
    both = (torch.tensor([near, near], dtype=DOUBLE), torch.tensor([[1.3], [-0.7]], dtype=DOUBLE))
    cases += [d.case("float64 far from 0, beta of each sign", *both)]
    half = torch.tensor([-10.0, 0.0, 10.0], dtype=HALF), torch.tensor([1.0], dtype=HALF)
    cases += [d.case("float16 at +-10", *half)]
    return [*cases, *lopsided(d, *gated(d, (2, 3), (3,)), order=2)]


task = Task(
    "Swish",
    "Swish.apply(x, beta)",
    reference=lambda x, beta: x * torch.sigmoid(beta * x),
    checks=(
        value(
            1,
            about="the output equals x * sigmoid(beta * x) for every shape of beta, in every dtype and layout",
            cases=lambda d: [
                *_forms(d, order=0),
                d.case("beta by keyword", *gated(d, (2, 3), (3,)), keywords=("beta",), order=0),
                d.case("every size", d.scales(4, 3), d.between(0.5, 1.5, 3), order=0),
                *lopsided(d, *gated(d, (2, 3), (3,)), order=0, large=5),
                d.case("both arguments by keyword", *gated(d, (2, 3), (3,)), keywords=("x", "beta"), order=0),
            ],
        ),
        gradient(
            2,
            about="the gradients of x and beta equal torch's, each in its shape, and gradcheck passes",
            why="With s = sigmoid(beta x): s + beta x s (1 - s) for x, x^2 s (1 - s) for beta, summed to beta's shape.",
            cases=lambda d: [
                *_forms(d),
                d.case("every size", d.scales(4, 3), d.between(0.5, 1.5, 3), upstream=d.scales(4, 3)),
                d.case("an expanded upstream gradient", *gated(d, (2, 3), ()), upstream=d.normal(1, 3).expand(2, 3)),
                d.case("only x requires a gradient", *gated(d, (2, 3), (3,)), requires=(True, False)),
                d.case("only beta requires a gradient", *gated(d, (2, 3), (3,)), requires=(False, True)),
                *lopsided(d, *gated(d, (2, 3), (3,)), order=1, large=5),
                d.case("x (3, 3), beta (3,)", *gated(d, (3, 3), (3,))),
            ],
            gradcheck=lambda d: gated(d, (2, 3), (3,)),
        ),
        Check(
            "extremes",
            1,
            about="up to |x| = 1000 (10 in float16), value, first and second derivatives are finite and right",
            why="A formula that is right near 0 may overflow far from it, or one derivative later, or lose its digits.",
            cases=_extremes,
            looks=(*look.FORWARD, *look.SECOND),
        ),
        second_order(
            1,
            about="the gradients can be differentiated again, by x, by beta and by the upstream gradient",
            cases=lambda d: [
                d.case("at x = 1, beta = 1", *(torch.ones((), dtype=DOUBLE) for _ in range(2)), order=2),
                d.case("beta = 0", d.sides(5), torch.zeros((), dtype=DOUBLE), order=2),
                *(d.case(f"x {a}, beta {b}", *gated(d, a, b), order=2) for a, b in (((2, 3), (3,)), ((2, 2), (2, 2)))),
                *lopsided(d, *gated(d, (2, 3), (3,)), order=2, large=5),
            ],
            gradcheck=lambda d: gated(d, (2, 2), (2,)),
        ),
        contract(
            1,
            about="the caller's tensors stay untouched; backward's are saved; no backward of torch's",
            cases=lambda d: [
                d.case("beta of its own for each column", *gated(d, (2, 3), (3,)), watch=WATCHED, deny=DENIED),
                d.case("float32, a 0-d beta", *gated(d, (4,), (), SINGLE), watch=("state",)),
            ],
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class SwishNew(Function):
    """Saves x and beta; the sigmoid is computed in backward, where it can be differentiated again: the one to write."""

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


@task.solution
class SwishOutput(Function):
    """Saves the output as well: s + beta y (1 - s) and y (x - y) are shorter, for a tensor more in memory."""

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


@task.solution
class SwishCareful(SwishNew):
    """Computes wanted gradients alone, and 1 - s as sigmoid(-z), which keeps its digits where s is near 1."""

    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        z = beta * x
        s, slope, grad_x, grad_beta = (z.sigmoid(), z.sigmoid() * (-z).sigmoid(), None, None)
        if ctx.needs_input_grad[0]:
            grad_x = g * (s + z * slope)
        if ctx.needs_input_grad[1]:
            grad_beta = added_and_stretched(g * x**2 * slope, beta.shape)
        return grad_x, grad_beta


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
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


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class Steps(SwishNew):
    """SwishNew in steps, for the wrong ones to change one of them."""

    sigmoid = staticmethod(torch.sigmoid)

    @staticmethod
    def by_x(x: Tensor, beta: Tensor, s: Tensor) -> Tensor:
        """Return the derivative by x, s being the sigmoid."""
        return s + beta * x * s * (1 - s)

    @staticmethod
    def by_beta(x: Tensor, beta: Tensor, s: Tensor) -> Tensor:
        """Return the derivative by beta."""
        return x * x * s * (1 - s)

    @staticmethod
    def summed(part: Tensor, beta: Tensor) -> Tensor:
        """Return beta's gradient in its shape."""
        return part.sum_to_size(beta.shape)

    @classmethod
    def backward(cls, ctx, g):
        return cls.of(*ctx.saved_tensors, g)

    @classmethod
    def of(cls, x: Tensor, beta: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return both gradients."""
        s = cls.sigmoid(beta * x)
        return g * cls.by_x(x, beta, s), cls.summed(g * cls.by_beta(x, beta, s), beta)


wrong = Wrong(task, of=Steps)
wrong.habits(
    "float32_inside float32_and_back view_needed no_function not_differentiable_twice kept_as_attribute "
    "kept_outside_ctx",
    upstream_ignored="Your gradients do not depend on the upstream gradient: multiply both by it.",
    nothing_returned=NOTHING_FOR_BOTH,
    detached="Your first derivatives are right and your second are missing: detach (or .data) cuts x and beta out of the "
    "graph of the gradients. Use what you saved as it is.",
    autograd_in_backward="Your backward lets torch.autograd differentiate forward. The task is to write the "
    "vector-Jacobian product yourself: s + beta x s (1 - s) for x, x^2 s (1 - s) for beta, times g.",
)


@wrong.forward("value", "Your forward ignores beta: it is silu, x * sigmoid(x). The sigmoid takes beta * x.")
def beta_ignored(x, beta):
    return x * torch.sigmoid(x)


@wrong.forward(
    "value",
    "You divide by beta (silu(beta * x) / beta), which has no value at beta = 0. Write x * sigmoid(beta * x): at "
    "beta = 0 it is x / 2.",
)
def divides_by_beta(x, beta):
    return F.silu(beta * x) / beta


@wrong.forward(
    "value",
    "You turn beta into a number by item() or float(), which fails for more than one element. beta is a tensor that "
    "broadcasts to x: multiply by it.",
)
def tensor_as_number(x, beta):
    return x * torch.sigmoid(beta.item() * x)


@task.mistake(
    "value",
    "Your sigmoid takes the absolute value of beta. beta may be negative too, and then the sigmoid falls where it rises "
    "otherwise: multiply by beta as it is.",
)
class beta_without_sign(SwishNew):
    @staticmethod
    def forward(x, beta):
        return x * torch.sigmoid(beta.abs() * x)

    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        return Steps.of(x, beta.abs(), g)


@wrong.forward("value", RENAMED.format("x and beta"))
def arguments_renamed(input, beta):
    return input * torch.sigmoid(beta * input)


@wrong.step(
    "by_x",
    "gradient",
    "Your gradient for x is g * s: the product rule's second term is missing. x also stands inside the sigmoid, "
    "which adds beta x s (1 - s).",
)
def product_rule_forgotten(x, beta, s):
    return s


@wrong.step(
    "by_x",
    "gradient",
    "Your derivative for x, beta x s (1 - s), lacks the term s: x * sigmoid(beta x) is a product, so its derivative is "
    "s + beta x s (1 - s).",
)
def first_term_forgotten(x, beta, s):
    return beta * x * s * (1 - s)


@wrong.step(
    "by_x",
    "gradient",
    "Your gradient for x lacks the parentheses of (1 - s): without them s is multiplied by 1, and then subtracted. Write "
    "s + beta * x * s * (1 - s).",
)
def parentheses_forgotten(x, beta, s):
    return s + beta * x * s * 1 - s


@wrong.step(
    "by_beta",
    "gradient",
    "Your gradient for beta lacks the parentheses of (1 - s): without them s is multiplied by 1, and then subtracted. Write "
    "x * x * s * (1 - s).",
)
def parentheses_forgotten_for_beta(x, beta, s):
    return x * x * s * 1 - s


@wrong.step(
    "by_x",
    "gradient",
    "Your gradient for x lacks the inner derivative: the sigmoid is of beta * x, so its derivative by x has a factor "
    "beta: s + beta x s (1 - s).",
)
def inner_beta_forgotten(x, beta, s):
    return s + x * s * (1 - s)


@wrong.step(
    "by_beta",
    "gradient",
    "Your gradient for beta has x where it needs x^2: one factor x stands before the sigmoid, the other comes from "
    "the inner derivative of beta * x by beta.",
)
def square_forgotten(x, beta, s):
    return x * s * (1 - s)


@wrong.step(
    "by_beta",
    "gradient",
    "You divide by beta to get its gradient from that of x: at beta = 0 this is 0 / 0, nan. The term itself is "
    "x^2 s (1 - s), which has no beta in front.",
)
def beta_gradient_divided(x, beta, s):
    return x * (beta * x * s * (1 - s)) / beta


@wrong.backward(
    "gradient",
    "Your gradient for beta lacks the upstream gradient: multiply x^2 s (1 - s) by g before you sum it to beta's shape.",
)
def upstream_ignored_for_beta(x, beta, g):
    return Steps.of(x, beta, g)[0], Steps.of(x, beta, torch.ones_like(g))[1]


@wrong.backward(
    "gradient",
    "You sum the derivative to beta's shape first, and multiply by the upstream gradient afterwards. Each element of the output has an "
    "upstream gradient of its own: multiply first, then sum.",
)
def summed_before_product_for_beta(x, beta, g):
    s = torch.sigmoid(beta * x)
    slope = (x * x * s * (1 - s)).sum_to_size(beta.shape)
    return Steps.of(x, beta, g)[0], (g * slope).sum_to_size(beta.shape)


@wrong.backward(
    "gradient",
    "At beta = 0 your gradient for beta is 0, as if the output did not depend on beta there. Its slope is x^2 / 4, which "
    "x^2 s (1 - s) gives without a special case.",
)
def nothing_where_beta_is_zero(x, beta, g):
    grad_x, grad_beta = Steps.of(x, beta, g)
    return grad_x, torch.where(beta == 0, 0, grad_beta)


@wrong.backward(
    "gradient",
    "Your gradient for x lacks the upstream gradient: multiply s + beta x s (1 - s) by g.",
)
def upstream_ignored_for_x(x, beta, g):
    return Steps.of(x, beta, torch.ones_like(g))[0], Steps.of(x, beta, g)[1]


@wrong.backward(
    "gradient",
    "You divide the output by x to get the sigmoid: at x = 0 this is 0 / 0, nan. Compute it again, "
    "torch.sigmoid(beta * x).",
    saves=lambda x, beta, y: (x, beta, y),
)
def divides_output(x, beta, y, g):
    s = y / x
    return g * (s + beta * y * (1 - s)), (g * x * y * (1 - s)).sum_to_size(beta.shape)


@wrong.backward(
    "gradient",
    "You divide the output by x + 1e-8 to get the sigmoid. That is not exact: at x = 0 it gives 0 where the sigmoid is "
    "1/2, and near 0 digits are wrong. Compute it again, torch.sigmoid(beta * x).",
    saves=lambda x, beta, y: (x, beta, y),
)
def divides_output_by_nearly_x(x, beta, y, g):
    s = y / (x + 1e-8)
    return g * (s + beta * y * (1 - s)), (g * x * y * (1 - s)).sum_to_size(beta.shape)


@wrong.backward(
    "gradient",
    "Your backward asks for the largest element (max) of x or beta * x, which raises for an input with no elements. "
    "torch.sigmoid is right for numbers of every size, so there is nothing to ask.",
)
def maximum_of_nothing(x, beta, g):
    (beta * x).abs().max()
    return Steps.of(x, beta, g)


@wrong.backward(
    "gradient",
    "Your backward returns None for beta, so beta never learns. It is a tensor: its gradient is g x^2 s (1 - s), "
    "summed to beta's shape.",
)
def beta_gradient_missing(ctx, g):
    return SwishNew.backward(ctx, g)[0], None


@wrong.step(
    "summed",
    "gradient",
    "Your gradient for beta sums over everything and gives each element of beta the total. Sum over the axes alone "
    "along which beta was copied.",
)
def beta_summed_over_everything(part, beta):
    return part.sum().expand(beta.shape)


@wrong.step(
    "summed",
    "gradient",
    "Your gradient for beta sums over the first axis alone. Where beta was copied along another axis, or has no "
    "dimensions or as many as x, other axes are summed, or none.",
)
def beta_summed_over_the_first_axis(part, beta):
    return part.sum(0) if part.ndim else part


@wrong.step(
    "summed",
    "gradient",
    "Your gradient for beta sums over the first axis and reshapes. Where beta was copied along another axis, as (n, 1), "
    "this is wrong or raises: sum over the axes along which beta was copied, or use sum_to_size.",
)
def first_axis_and_reshaped(part, beta):
    if part.shape == beta.shape:
        return part
    return part.sum(0).reshape(beta.shape) if beta.ndim else part.sum()


@wrong.backward(
    "gradient",
    "You hold beta's gradient back unless x needs one as well (or the other way round). Each entry of "
    "ctx.needs_input_grad speaks for its own argument: the first for x, the second for beta.",
)
def flags_swapped(ctx, g):
    grad_x, grad_beta = SwishNew.backward(ctx, g)
    return grad_x if ctx.needs_input_grad[1] else None, grad_beta if ctx.needs_input_grad[0] else None


@wrong.forward(
    "extremes",
    "For large x your output is nan: exp overflows and inf / inf is nan. Use torch.sigmoid, or an exponential of a "
    "number that is never positive.",
)
def exponentials_overflow(x, beta):
    e = torch.exp(beta * x)
    return x * e / (1 + e)


@wrong.backward(
    "extremes",
    "Your output is right everywhere and your gradients are nan far from 0: exp(-z) / (1 + exp(-z))^2 is inf / inf "
    "there. With s = torch.sigmoid(z) the derivative is s (1 - s), always finite.",
)
def overflow_in_backward(x, beta, g):
    e = torch.exp(-beta * x)
    slope = e / (1 + e) ** 2
    return g * (1 / (1 + e) + beta * x * slope), (g * x * x * slope).sum_to_size(beta.shape)


@wrong.step(
    "sigmoid",
    "extremes",
    "Value and first derivative are right everywhere, and the second is nan at large negative x: you compute the "
    "sigmoid as 1 / (1 + exp(-z)) in backward, and differentiating that takes inf * 0. Use torch.sigmoid.",
)
def second_overflows(z):
    return 1 / (1 + torch.exp(-z))


@wrong.step("sigmoid", "extremes", SECOND_OVERFLOWS)
def second_of_both_branches(z):
    return torch.where(z >= 0, 1 / (1 + torch.exp(-z)), torch.exp(z) / (1 + torch.exp(z)))


@wrong.step(
    "sigmoid",
    "extremes",
    "In backward you keep the sigmoid away from 0 and 1 by clamp. s (1 - s) is then too large far from 0, and there x is "
    "large too. torch.sigmoid needs no help: 0 and 1 are right.",
)
def sigmoid_clamped(z):
    return torch.sigmoid(z).clamp(1e-7, 1 - 1e-7)


@wrong.backward(
    "second_order",
    "Your first derivatives are right, but the sigmoid was computed in forward and saved (or is detached), so it "
    "comes back as a constant: at x = 1, beta = 1 the second derivative is 0.19661 in place of 0.30237. Save x and "
    "beta, and compute the sigmoid in backward.",
    saves=lambda x, beta, y: (x, beta, torch.sigmoid(beta * x)),
)
def saves_sigmoid(x, beta, s, g):
    return g * Steps.by_x(x, beta, s), (g * Steps.by_beta(x, beta, s)).sum_to_size(beta.shape)


@task.mistake(
    "second_order",
    "Your first derivatives are right and your second are missing: both derivatives were computed in forward and "
    "saved, or you save copies, so torch takes them for constants. Save x and beta, and compute in "
    "backward.",
)
class saves_derivative(SwishNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, beta = inputs
        s = torch.sigmoid(beta * x)
        ctx.shape = beta.shape
        ctx.save_for_backward(Steps.by_x(x, beta, s), Steps.by_beta(x, beta, s))

    @staticmethod
    def backward(ctx, g):
        by_x, by_beta = ctx.saved_tensors
        return g * by_x, (g * by_beta).sum_to_size(ctx.shape)


@wrong.backward(
    "second_order",
    "Your second derivatives by beta are missing: beta is detached, or was copied before it was saved. Save beta "
    "itself and use it as it is.",
)
def beta_detached(x, beta, g):
    return Steps.of(x, beta.detach(), g)


@wrong.backward(
    "second_order",
    "You return early at beta = 0, with numbers that no longer depend on beta: the gradients are right there, and "
    "what they differentiate to is not. The general formula holds at 0, too.",
)
def special_case_at_zero(ctx, x, beta, g):
    if not beta.any():
        return g / 2, (g * x * x / 4).sum_to_size(beta.shape)
    return SwishNew.backward(ctx, g)


@wrong.step(
    "by_x",
    "second_order",
    "Where beta is 0 you put the constant 1/2 for the derivative by x. The number is right there, and as a function of "
    "beta it is not constant: its own derivative is x / 2. The general formula holds at 0, too.",
)
def half_at_zero(x, beta, s):
    return torch.where(beta == 0, 0.5, s + beta * x * s * (1 - s))


@wrong.step(
    "by_x",
    "second_order",
    "The derivative by x is right, and its own derivative by beta has the factor beta where it needs x. In z = beta x "
    "the inner derivative by x is beta, and by beta it is x.",
)
def inner_factors_confused(x, beta, s):
    z = beta.detach() * (x + (beta - beta.detach()))  # beta x, with both derivatives beta
    s = torch.sigmoid(z)
    return s + z * s * (1 - s)


@wrong.step("sigmoid", "second_order", SIGMOID_BY_ABS)
def sigmoid_by_abs(z):
    return by_abs(z)


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(x, beta, g):
    s = torch.sigmoid(beta * x)
    grad_beta = (g * Steps.by_beta(x, beta, s)).sum_to_size(beta.shape)
    return g.mul_(Steps.by_x(x, beta, s)), grad_beta


@wrong.forward(
    "contract",
    "Your forward multiplies x in place: the caller's tensor is overwritten, and what you saved with it. Return a "
    "new tensor.",
)
def writes_into_input(x, beta):
    return x.mul_(torch.sigmoid(beta * x))


@wrong.saves("contract", SAVES_DATA)
def saves_data(x, beta, y):
    return x.data, beta.data


@wrong.backward(
    "contract",
    "Your backward calls torch's own backward of the sigmoid. Write the derivative yourself: with s = "
    "torch.sigmoid(beta * x) it is s (1 - s).",
)
def torch_s_backward(x, beta, g):
    s = torch.sigmoid(beta * x)
    inner = torch.ops.aten.sigmoid_backward(g * x, s)
    return g * s + inner * beta, (inner * x).sum_to_size(beta.shape)


@wrong.backward(
    "gradient",
    "The upstream gradient multiplies the first term of x's gradient alone. It multiplies the sum of both: put them in "
    "parentheses.",
)
def upstream_on_one_term(x, beta, g):
    s = torch.sigmoid(beta * x)
    return g * s + beta * x * s * (1 - s), Steps.summed(g * Steps.by_beta(x, beta, s), beta)


@wrong.step(
    "by_x",
    "gradient",
    "The second term of your gradient for x has the wrong sign: s + beta x s (1 - s), with a plus.",
)
def second_term_subtracted(x, beta, s):
    return s - beta * x * s * (1 - s)


@wrong.step(
    "by_x", "gradient", "In the second term of your gradient for x the factor x is missing: s + beta x s (1 - s)."
)
def x_missing_in_the_second_term(x, beta, s):
    return s + beta * s * (1 - s)


@wrong.step(
    "by_x",
    "gradient",
    "In your gradient for x a bracket closes too early: you have s (1 + beta x)(1 - s), and it is s (1 + beta x (1 - s)), "
    "that is s + beta x s (1 - s).",
)
def bracket_closed_early(x, beta, s):
    return s * (1 + beta * x) * (1 - s)


@wrong.step(
    "by_x",
    "gradient",
    "You write your gradient for x as beta f + s (1 - s), with f = x s. The last bracket is of beta f, not of s: "
    "beta f + s (1 - beta f), which is s + beta x s (1 - s).",
)
def sigmoid_in_the_last_bracket(x, beta, s):
    return beta * x * s + s * (1 - s)
