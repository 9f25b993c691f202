"""GradientReversal: the same number, and a gradient that only the other argument changes."""

import torch
from torch.autograd import Function

from graders.judge import looks as look
from graders.judge.task import Task
from graders.judge.wording import NO_FUNCTION
from graders.judge.wrong import Wrong
from graders.sets.ste.common import scaled, scaled_checks

PLACE = 2

task = Task(
    "GradientReversal",
    "GradientReversal.apply(x, alpha)",
    reference=lambda x, alpha: scaled(x, -alpha),
    checks=scaled_checks(
        points={"value": 1, "gradient": 1, "alphas": 2, "second_order": 1, "contract": 2},
        name="alpha",
        times="-alpha times the upstream gradient",
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class ReversalNew(Function):
    """In the form of chapter 3: alpha is a number and stays on ctx, and nothing is saved."""

    @staticmethod
    def forward(x, alpha):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.alpha = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return -ctx.alpha * g, None


@task.solution
class ReversalOld(Function):
    """forward and setup_context in one, as much older code has them; torch.func cannot transform it."""

    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x * 1

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.alpha, None


@task.solution
class ReversalInPlace(ReversalNew):
    """Works in place on a copy of its own, and asks who wants a gradient: for backwards of more steps or inputs."""

    @staticmethod
    def forward(x, alpha):
        return torch.empty_like(x).copy_(x)

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None, None
        return g.clone().mul_(ctx.alpha).neg_(), None


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class ReversalSubtracts(Function):
    """Copies by adding 0; subtracts from zeros."""

    @staticmethod
    def forward(x, alpha):
        return x + 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.alpha = inputs

    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g) - ctx.alpha * g, None


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class ReversalSaving(ReversalNew):
    """Saves x, which backward does not need: what the mistakes about saved tensors change."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.alpha = inputs
        ctx.save_for_backward(x)


saving = Wrong(task, of=ReversalSaving)
wrong = Wrong(task, of=ReversalNew)
wrong.habits(
    "float32_inside zeros_returned not_differentiable_twice writes_into_upstream",
    sign_flipped="Your gradient is scaled by alpha and not reversed: the sign is missing. It is -alpha times the "
    "upstream gradient.",
    none_forgotten="Your backward returns one gradient, and forward has two arguments: return the gradient of x, then "
    "None, for alpha.",
    nothing_returned="Your backward returns None for x (is a return statement missing?): x gets no gradient at all.",
    kept_outside_ctx="You keep alpha outside ctx (on the class, or in a global): a second call with another alpha "
    "overwrites it before the first one's backward. Each call has its own ctx: ctx.alpha = alpha.",
)


@wrong.forward(
    "value",
    "You multiply the value as well as the gradient: that is -alpha * x and its true derivative, and gradcheck "
    "passes. Here the value stays x, the gradient alone is reversed, and gradcheck must fail.",
)
def scales_the_value(x, alpha):
    return -alpha * x


@saving.saves(
    "value",
    "save_for_backward takes tensors, and alpha is a number. Keep it as an attribute: ctx.alpha = alpha. And x need "
    "not be saved.",
)
def alpha_saved_as_tensor(x, alpha, y):
    return x, alpha


@task.mistake(
    "value",
    "You return x and announce it with mark_dirty, which declares a change in place: torch refuses that for a leaf, "
    "and x would be part of the new graph. Return a new tensor, x.clone().",
)
class marked_dirty(ReversalNew):
    @staticmethod
    def forward(x, alpha):
        return x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.alpha = inputs[1]
        ctx.mark_dirty(inputs[0])


@task.mistake(
    "gradient",
    "You unpack inputs in the wrong order: x comes first and alpha second, as in forward. What you keep as alpha is x, so your "
    "gradient is -x times the upstream gradient. Write x, alpha = inputs.",
)
class inputs_unpacked_backwards(ReversalNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.alpha, _ = inputs


@wrong.backward("gradient", "Your gradient is reversed and not scaled: the factor alpha is missing.")
def factor_missing(ctx, g):
    return -g, None


@wrong.backward("gradient", "Your gradient is -alpha alone: the upstream gradient is missing. Multiply by it.")
def upstream_ignored(ctx, g):
    return torch.full_like(g, -ctx.alpha), None


@saving.backward(
    "gradient",
    "Your gradient is multiplied by x. The value of forward plays no part in it: it is -alpha times the upstream "
    "gradient.",
)
def multiplied_by_the_input(ctx, x, g):
    return -ctx.alpha * g * x, None


@wrong.backward(
    "gradient",
    "Your backward returns a gradient in the second place, which is that of alpha: a Python number can have none. "
    "Return the gradient of x first, then None.",
)
def gradient_for_alpha(ctx, g):
    return -ctx.alpha * g, -g.sum()


@task.mistake("gradient", NO_FUNCTION)
def no_function(x, alpha):
    return scaled(x, -alpha)


@saving.backward(
    "gradient",
    "Your gradient is nan where x is infinite: x is in your formula, if only as 0 * x. The gradient depends on alpha "
    "and the upstream gradient alone, so x need not be saved.",
)
def nan_at_infinite_inputs(ctx, x, g):
    return -ctx.alpha * g + 0 * x, None


@saving.backward(
    "alphas",
    "You make a tensor of alpha that is float16 where x is, and float16 ends at 65504: a larger alpha becomes "
    "infinite. Keep the number as it is, as an attribute.",
    saves=lambda x, alpha, y: (torch.tensor(alpha, dtype=x.dtype),),
)
def alpha_in_the_dtype_of_x(alpha, g):
    return -alpha * g, None


@saving.backward(
    "alphas",
    "You make a tensor of alpha: torch.tensor(alpha) is float32, so for float64 input half of the digits of your "
    "gradient are lost, and an alpha above 3.4e38 becomes infinite. Keep the number as it is, as an attribute.",
    saves=lambda x, alpha, y: (torch.tensor(alpha),),
)
def alpha_in_float32(alpha, g):
    return -alpha * g, None


@wrong.backward(
    "alphas",
    "An alpha of 0 is taken for a missing one (alpha or 1.0) and replaced: in Python 0 is false. Use the argument as "
    "it is.",
)
def zero_alpha_replaced(ctx, g):
    return -(ctx.alpha or 1.0) * g, None


@wrong.backward(
    "alphas", "At alpha = 0 you return None for x. The text wants zeros there: 0 is a factor like any other."
)
def none_at_zero(ctx, g):
    return (-ctx.alpha * g if ctx.alpha else None), None


@wrong.backward(
    "alphas", "Your gradient takes |alpha|: a negative alpha has to give -alpha all the same, which is positive."
)
def magnitude_of_alpha(ctx, g):
    return -abs(ctx.alpha) * g, None


@wrong.backward(
    "alphas", "You bound alpha from above. The text allows a number of any size: it is the caller's to choose."
)
def alpha_bounded(ctx, g):
    return -max(-1000, min(ctx.alpha, 1000)) * g, None


@wrong.backward(
    "alphas",
    "You cut negative values of alpha off. The text allows every number: -alpha is positive there, and so it stays.",
)
def alpha_clamped(ctx, g):
    return -max(ctx.alpha, 0) * g, None


@wrong.forward(
    "alphas",
    "Your argument is not called alpha, so a caller who names it gets a TypeError. Use the names of the task's text.",
)
def argument_renamed(x, factor):
    return x.clone()


@wrong.forward(
    "contract",
    "You return x itself, a view of it (view_as) or its detached twin: all share its memory. Changing the output in "
    "place then raises, or changes x. Return a copy, x.clone().",
)
def returns_its_input(x, alpha):
    return x


@wrong.forward(
    "contract",
    "contiguous, to and reshape copy only where they must: here they return x itself, and changing the output in "
    "place raises, or changes x. Return x.clone().",
)
def copied_only_where_needed(x, alpha):
    return x.contiguous()


@saving.backward(
    "contract",
    "You save the output, which backward does not need: when somebody changes it in place, torch refuses the "
    "backward. Save nothing; alpha is a number and stays on ctx.",
    saves=lambda x, alpha, y: (y,),
)
def saves_output(ctx, y, g):
    return -ctx.alpha * g * torch.ones_like(y), None


@wrong.backward("gradient", "You divide by alpha. The gradient is -alpha times the upstream gradient.")
def divided_by_alpha(ctx, g):
    return -g / ctx.alpha, None
