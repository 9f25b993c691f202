"""PACT: a bound that learns."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from graders.judge import looks as look
from graders.judge.task import DOUBLE, Task
from graders.judge.wording import NO_FUNCTION, WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.clipped_relu.common import EDGE_BY_TOLERANCE, FLOAT32_IN_PLACE, learnable_checks

PLACE = 3


def _pact(x: Tensor, alpha: Tensor) -> Tensor:
    """Return eq. 1 of Choi et al. 2018, with the gradient of eq. 3 at its kinks."""
    bound = alpha.reshape(())
    above = x >= bound
    return torch.where(above, bound, torch.where((x > 0) & ~above, x, 0))


task = Task("PACT", "PACT.apply(x, alpha)", reference=_pact, checks=learnable_checks(0), forbids=look.GRADIENT)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class PACTNew(Function):
    """In the form of chapter 5: both tensors are saved, and torch notices if the optimiser changes alpha too early."""

    @staticmethod
    def forward(x, alpha):
        return x.clamp(torch.zeros_like(alpha).reshape(()), alpha.reshape(()))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        above = x >= alpha
        return torch.where((x > 0) & ~above, g, 0), torch.where(above, g, 0).sum().reshape(alpha.shape)


@task.solution
class PACTOld(Function):
    """Keeps two masks and not x, and computes only what is wanted: the one for large inputs that nothing else keeps."""

    @staticmethod
    def forward(ctx, x, alpha):
        inside, above = (x > 0) & (x < alpha), x >= alpha
        ctx.save_for_backward(inside.reshape(x.shape), above.reshape(x.shape))
        ctx.shape = alpha.shape
        return torch.minimum(x.relu(), alpha.reshape(()))

    @staticmethod
    def backward(ctx, grad_output):
        inside, above = ctx.saved_tensors
        grad_x = grad_alpha = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output * inside
        if ctx.needs_input_grad[1]:
            grad_alpha = (grad_output * above).sum().view(ctx.shape)
        return grad_x, grad_alpha


@task.solution
class PACTByNumber(Function):
    """Keeps the bound as a number, a copy that nobody can change: the one to take where alpha is on the CPU anyway."""

    @staticmethod
    def forward(x, alpha):
        if alpha.item() <= 0:
            raise ValueError("alpha must be above 0")
        return F.hardtanh(x, 0.0, alpha.item())

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, alpha = inputs
        ctx.alpha, ctx.shape = alpha.item(), alpha.shape
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        to_x = g.masked_fill((x <= 0) | (x >= ctx.alpha), 0)
        return to_x, g.masked_fill(x < ctx.alpha, 0).sum().expand(ctx.shape)


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class PACTByOutput(Function):
    """Saves the output, which is alpha exactly where x is at or above it."""

    @staticmethod
    def forward(x, alpha):
        bound = alpha.reshape(())
        return torch.where(x < 0, torch.zeros_like(x), torch.where(x > bound, bound, x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx, g):
        alpha, y = ctx.saved_tensors
        full = y == alpha.reshape(())
        return torch.where((y > 0) & ~full, g, 0), (g * full).sum().reshape(alpha.shape)


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class Steps(PACTNew):
    """PACTNew in steps, for the mistakes to change one of them."""

    @staticmethod
    def to_x(x: Tensor, alpha: Tensor, g: Tensor) -> Tensor:
        """Return the gradient of x."""
        return torch.where((x > 0) & (x < alpha), g, 0)

    @staticmethod
    def to_alpha(x: Tensor, alpha: Tensor, g: Tensor) -> Tensor:
        """Return the gradient of alpha."""
        return torch.where(x >= alpha, g, 0).sum().reshape(alpha.shape)

    @classmethod
    def backward(cls, ctx, g):
        x, alpha = ctx.saved_tensors
        return cls.to_x(x, alpha, g), cls.to_alpha(x, alpha, g)


wrong = Wrong(task, of=Steps)
wrong.habits(
    "float32_inside float32_and_back view_needed not_differentiable_twice kept_as_attribute",
    upstream_ignored="Your gradients are counts and masks: the upstream gradient is missing. x gets it where 0 < x < "
    "alpha, alpha its sum over x >= alpha.",
    nothing_returned="Your backward returns None for x and for alpha (is a return statement missing?): neither gets "
    "a gradient.",
    writes_into_input="Your forward works in place (clamp_): the caller's x is clipped too. Return a new tensor.",
)


@wrong.step(
    "to_alpha",
    "gradient",
    "Your gradient for alpha counts the elements at or above alpha: the upstream gradient is missing. Sum the upstream "
    "gradient over them.",
)
def alpha_counts(x, alpha, g):
    return (x >= alpha).to(g.dtype).sum().reshape(alpha.shape)


@wrong.step(
    "to_alpha",
    "gradient",
    "Your gradient for alpha sums the upstream gradient over everything outside, over x <= 0 too, where the output is 0 "
    "whatever alpha is. Sum it over x >= alpha alone.",
)
def alpha_sums_all_outside(x, alpha, g):
    return torch.where((x > 0) & (x < alpha), 0, g).sum().reshape(alpha.shape)


@wrong.step(
    "to_alpha",
    "gradient",
    "Your gradient for alpha sums the upstream gradient over x < 0 too, where the output is 0 whatever alpha is. Sum it "
    "over x >= alpha alone.",
)
def alpha_sums_below_zero(x, alpha, g):
    return torch.where((x < 0) | (x >= alpha), g, 0).sum().reshape(alpha.shape)


@wrong.step(
    "to_alpha",
    "gradient",
    "You return None for alpha, which means zero: alpha is a tensor that learns, so save it and return its gradient, "
    "the sum of the upstream gradient over x >= alpha.",
)
def alpha_gets_none(x, alpha, g):
    return None


@wrong.step(
    "to_alpha",
    "gradient",
    "Your gradient for alpha has the wrong sign: a larger alpha raises the output where x >= alpha, so its slope is "
    "+1.",
)
def alpha_sign_flipped(x, alpha, g):
    return -Steps.to_alpha(x, alpha, g)


@wrong.step(
    "to_alpha",
    "gradient",
    "Your gradient for alpha is a mean. Every element above alpha adds its upstream gradient to alpha's: take the sum.",
)
def alpha_averaged(x, alpha, g):
    return Steps.to_alpha(x, alpha, g) / max(g.numel(), 1)


@wrong.step(
    "to_alpha",
    "gradient",
    "Your gradient for alpha is a Python number (.item()). Torch wants a tensor: leave the sum as it is, in alpha's "
    "shape.",
)
def number_returned(x, alpha, g):
    return Steps.to_alpha(x, alpha, g).item()


@wrong.step(
    "to_x",
    "gradient",
    "Above alpha your x gets the upstream gradient too. There the output is alpha: alpha gets all of it, and x "
    "nothing.",
)
def upper_mask_missing(x, alpha, g):
    return torch.where(x > 0, g, 0)


@wrong.backward(
    "gradient",
    "On both edges you follow torch.clamp, which passes the upstream gradient to x there. By the text's rule x gets "
    "it where 0 < x < alpha, and alpha where x >= alpha.",
)
def edges_open(x, alpha, g):
    return torch.where((x >= 0) & (x <= alpha), g, 0), torch.where(x > alpha, g, 0).sum().reshape(alpha.shape)


@wrong.backward(
    "gradient",
    "At exactly x = alpha you give the upstream gradient to x (x <= alpha), as torch.clamp does. By the paper's rule "
    "it goes to alpha: alpha sums over x >= alpha.",
)
def edge_to_x(x, alpha, g):
    above = x > alpha
    return torch.where((x > 0) & ~above, g, 0), torch.where(above, g, 0).sum().reshape(alpha.shape)


@wrong.step(
    "to_alpha",
    "gradient",
    "At exactly x = alpha nobody gets the upstream gradient in your backward (x > alpha and x < alpha). By the "
    "text's rule it goes to alpha: use x >= alpha.",
)
def edge_to_nobody(x, alpha, g):
    return torch.where(x > alpha, g, 0).sum().reshape(alpha.shape)


@wrong.backward(
    "gradient",
    "Your backward returns one gradient. alpha is an argument too, and a tensor that learns: return two, for x and "
    "for alpha.",
)
def alpha_forgotten(x, alpha, g):
    return Steps.to_x(x, alpha, g)


@wrong.backward(
    "gradient", "Your two gradients are in the wrong order: they come in the order of forward, x first, then alpha."
)
def order_reversed(x, alpha, g):
    return Steps.to_alpha(x, alpha, g), Steps.to_x(x, alpha, g)


@wrong.forward("value", "Your forward is ReLU: nothing holds the output at alpha.")
def upper_clip_missing(x, alpha):
    return x.relu()


@wrong.forward(
    "value",
    "At infinite x your output is nan: the paper's (|x| - |x - alpha| + alpha) / 2 is inf - inf there, and in "
    "float16 far out it has lost its digits. Clamp, or compare, instead of subtracting.",
)
def infinity_minus_infinity(x, alpha):
    bound = alpha.reshape(())
    return (x.abs() - (x - bound).abs() + bound) / 2


@wrong.saves(
    "value",
    "save_for_backward takes tensors, and alpha.item() is a number. Save alpha itself, or keep the number as an "
    "attribute of ctx.",
)
def number_saved(x, alpha, y):
    return x, alpha.item()


@wrong.forward(
    "shapes",
    "For a 0-d x, or for alpha of shape (1, 1), your output has alpha's dimensions: clamp and minimum broadcast. "
    "Take alpha as a 0-d tensor, alpha.reshape(()), and the output has the shape of x.",
)
def shape_of_alpha(x, alpha):
    return torch.minimum(x.relu(), alpha)


@wrong.backward(
    "shapes",
    "Your gradient for alpha is 0-d, which torch refuses when alpha has the shape (1,): bring the sum to alpha's "
    "shape, by reshape(alpha.shape).",
)
def alpha_gradient_0d(x, alpha, g):
    above = x >= alpha
    return torch.where((x > 0) & ~above, g, 0).reshape(x.shape), torch.where(above, g, 0).sum()


@wrong.step(
    "to_alpha",
    "shapes",
    "Your gradient for alpha is not summed; the engine does it where the shapes allow, and refuses where alpha has "
    "more dimensions than x. Sum it, and bring it to alpha's shape.",
)
def alpha_unsummed(x, alpha, g):
    return torch.where(x >= alpha.reshape(()), g, 0)


@wrong.backward(
    "subsets",
    "Where x requires no gradient you return None for alpha as well. Ask ctx.needs_input_grad for each argument by "
    "itself: entry 0 is x's, entry 1 alpha's.",
)
def early_return(ctx, g):
    if not ctx.needs_input_grad[0]:
        return None, None
    return Steps.backward(ctx, g)


@wrong.backward(
    "subsets",
    "You mix up the entries of ctx.needs_input_grad: entry 0 says whether x wants a gradient, entry 1 whether alpha "
    "does.",
)
def needs_mixed_up(ctx, g):
    to_x, to_alpha = Steps.backward(ctx, g)
    return (to_x if ctx.needs_input_grad[1] else None), (to_alpha if ctx.needs_input_grad[0] else None)


@wrong.backward(
    "subsets",
    "Where alpha requires no gradient your backward returns one gradient, and forward has two arguments: return None "
    "in alpha's place.",
)
def one_when_frozen(ctx, g):
    grads = Steps.backward(ctx, g)
    return grads if ctx.needs_input_grad[1] else grads[0]


@wrong.backward("gradient", EDGE_BY_TOLERANCE)
def edge_by_tolerance(x, alpha, g):
    bound = alpha.reshape(())
    above = (x >= bound) | torch.isclose(x, bound)
    return torch.where((x > 0) & ~above, g, 0), torch.where(above, g, 0).sum().reshape(alpha.shape)


@wrong.forward("contract", FLOAT32_IN_PLACE)
def writes_into_float32(x, alpha):
    wide = x.clone() if x.dtype == DOUBLE else x.float()
    return wide.clamp_(0, alpha.item()).clone().to(x.dtype)


@wrong.forward(
    "gradient",
    "You subtract from alpha and subtract the rest again: next to a large alpha a small x has no digits left and "
    "comes back as 0. Clamp, or compare.",
)
def difference_of_large_numbers(x, alpha):
    bound = alpha.reshape(())
    return bound - (bound - x.relu()).relu()


@wrong.step(
    "to_alpha",
    "second_order",
    "Your gradient for alpha is made of a Python number (.item()) or detached, so it cannot be differentiated again. "
    "Sum with tensors, and leave the sum a tensor.",
)
def alpha_detached(x, alpha, g):
    return Steps.to_alpha(x, alpha, g).detach()


@task.mistake(
    "contract",
    "You keep alpha as an attribute of ctx, where torch does not watch it: an optimiser that changes it before "
    "backward makes the gradient silently wrong. alpha is a tensor: use ctx.save_for_backward.",
)
class alpha_as_attribute(PACTNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.alpha = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return Steps.to_x(x, ctx.alpha, g), Steps.to_alpha(x, ctx.alpha, g)


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(x, alpha, g):
    to_alpha = Steps.to_alpha(x, alpha, g)
    g[(x <= 0) | (x >= alpha)] = 0
    return g, to_alpha


@task.mistake("gradient", NO_FUNCTION)
def no_function(x, alpha):
    return _pact(x, alpha)
