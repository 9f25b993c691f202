"""Binarize: two values, and a gradient that is chosen: that of a clamp."""

import torch
from torch.autograd import Function

from graders.judge import looks as look
from graders.judge.task import Task
from graders.judge.wording import NO_FUNCTION, ONE_TOO_MANY, WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.ste.common import two_valued, two_valued_checks

PLACE = 1

task = Task(
    "Binarize",
    "Binarize.apply(x)",
    reference=two_valued(-1.0, 1.0),
    checks=two_valued_checks(
        width=1.0,
        points={"value": 2, "gradient": 2, "infinite": 1, "second_order": 1, "contract": 2},
        low="-1",
        surrogate="clamp(x, -1, 1)",
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class BinarizeNew(Function):
    """In the form of chapter 3: torch.where chooses, so that no infinite gradient is multiplied by 0."""

    @staticmethod
    def forward(x):
        return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() <= 1, g, 0)


@task.solution
class BinarizeOld(Function):
    """Keeps the mask, a byte for each element, and not x: the one for large inputs that nothing else keeps."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward((x >= -1) & (x <= 1))
        return 2 * (x >= 0).to(x.dtype) - 1

    @staticmethod
    def backward(ctx, grad_output):
        (inside,) = ctx.saved_tensors
        return grad_output.where(inside, torch.zeros_like(grad_output))


@task.solution
class BinarizeBySign(BinarizeNew):
    """Fills the zeros of sign, and writes zeros into a copy of the gradient: reads as the text does, and is slower."""

    @staticmethod
    def forward(x):
        y = torch.sign(x)
        y[x == 0] = 1
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        result = g.clone()
        result[x.abs() > 1] = 0
        return result


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class BinarizeMasked(BinarizeNew):
    """masked_fill both ways."""

    @staticmethod
    def forward(x):
        return torch.ones_like(x).masked_fill(x < 0, -1)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g.masked_fill((x > 1) | (x < -1), 0)


@task.solution
class BinarizeByClamp(BinarizeNew):
    """The mask is true where clamp changes nothing; asks whether anybody wants the gradient."""

    @staticmethod
    def forward(x):
        return torch.heaviside(x, torch.ones_like(x)).mul(2).sub(1)

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None
        (x,) = ctx.saved_tensors
        return torch.where(x.clamp(-1, 1) == x, g, torch.zeros_like(g))


# --- Mistakes ---------------------------------------------------------------------------------------------------------

wrong = Wrong(task, of=BinarizeNew)
wrong.habits(
    "nothing_returned not_differentiable_twice kept_as_attribute kept_outside_ctx",
    upstream_ignored="Your gradient is the mask, 0 or 1: the upstream gradient is missing. Where |x| <= 1 it is "
    "passed on.",
    zeros_returned="Your gradient is zero everywhere. That is the true derivative, and nothing learns from it: pass "
    "the upstream gradient where |x| <= 1.",
)


@wrong.forward(
    "value",
    "torch.sign(0) is 0, so at exactly 0 your output is a third value. Compare instead: x >= 0 gives 1, all else -1.",
)
def sign_of_zero(x):
    return torch.sign(x)


@wrong.forward("value", "At exactly 0 your output is -1. The text wants 1 there: compare with x >= 0, not x > 0.")
def minus_at_zero(x):
    return torch.where(x > 0, 1.0, -1.0).to(x.dtype)


@wrong.forward(
    "value",
    "At -0.0 your output is -1: copysign and signbit look at the sign bit, which -0.0 has. As a number it equals 0, "
    "and 0 gives 1: compare with x >= 0.",
)
def sign_bit(x):
    return torch.copysign(torch.ones_like(x), x)


@wrong.forward("value", "Your output is 0 where x < 0: that is the step. Binarize gives -1 there: 2 * step - 1.")
def zero_and_one(x):
    return (x >= 0).to(x.dtype)


@wrong.forward(
    "value",
    "Your output is clamp(x, -1, 1). That is the surrogate, which lends its gradient to backward; forward returns -1 "
    "or 1 and nothing between.",
)
def surrogate_for_value(x):
    return x.clamp(-1, 1)


@wrong.forward(
    "value",
    "Your output is float32 whatever the input is: (x >= 0).float() and torch.where(x >= 0, 1.0, -1.0) are. Convert to "
    "the dtype of x: .to(x.dtype).",
)
def float32_inside(x):
    return (x >= 0).float() * 2 - 1


@wrong.forward(
    "value",
    "Your output is a tensor of integers: torch.where(x >= 0, 1, -1) makes one. Integers carry no gradient, so nothing "
    "reaches x. Convert to the dtype of x.",
)
def integers(x):
    return torch.where(x >= 0, 1, -1)


@wrong.backward(
    "gradient",
    "Your gradient passes everywhere: the mask is missing, or it asks the output, which is always within [-1, 1]. It "
    "has to be 0 where |x| > 1.",
)
def identity_outside(ctx, g):
    return g.clone()


@wrong.backward(
    "gradient",
    "At exactly x = 1 and x = -1 your gradient is 0. The edges belong to the ramp, as in clamp: <= and not <.",
)
def zero_at_the_edges(x, g):
    return torch.where(x.abs() < 1, g, 0)


@wrong.backward(
    "gradient",
    "Just outside of the edges, at the next number above 1, your gradient still passes: a tolerance widens the mask, "
    "or a narrower dtype rounds x to 1 before you compare. Compare x as it is: x.abs() <= 1.",
)
def tolerant_edges(x, g):
    return torch.where(x.abs() <= 1 + 1e-6, g, 0)


@wrong.backward(
    "gradient", "Your mask has one side: x <= 1 is true for every negative x. It is |x| <= 1, so take x.abs()."
)
def one_sided_mask(x, g):
    return torch.where(x <= 1, g, 0)


@wrong.backward(
    "gradient",
    "Your mask is |x| <= 1/2, that of the step from 0 to 1. Binarize rises by 2, from -1 to 1: its ramp is |x| <= 1.",
)
def ramp_of_the_step(x, g):
    return torch.where(x.abs() <= 0.5, g, 0)


@wrong.backward(
    "gradient",
    "Your mask asks the upstream gradient, |g| <= 1. It has to ask the input: the gradient passes where |x| <= 1, "
    "however large it is.",
)
def mask_by_the_upstream(ctx, g):
    return torch.where(g.abs() <= 1, g, 0)


@wrong.backward(
    "gradient",
    "You clip the upstream gradient where this estimator masks it: it passes g unchanged where |x| <= 1 and gives 0 "
    "elsewhere, so the condition is on x, never on g.",
)
def clips_upstream(ctx, g):
    return g.clamp(-1, 1)


@wrong.backward(
    "gradient",
    "Your gradient is that of tanh, 1 - tanh(x)^2. A smooth surrogate makes an estimator too, but not this one: pass "
    "the upstream gradient unchanged where |x| <= 1, and 0 elsewhere.",
)
def gradient_of_tanh(x, g):
    return g * (1 - torch.tanh(x) ** 2)


@wrong.backward("gradient", ONE_TOO_MANY)
def one_too_many(x, g):
    return torch.where(x.abs() <= 1, g, 0), None, g


@task.mistake("gradient", NO_FUNCTION)
def no_function(x):
    ramp = x.clamp(-1, 1)
    return ramp + (BinarizeNew.forward(x) - ramp).detach()


@wrong.backward(
    "infinite",
    "Where the mask is 0 and the upstream gradient infinite, your gradient is nan: inf * 0 = nan. Choose with "
    "torch.where instead of multiplying by a mask.",
)
def mask_multiplied(x, g):
    return g * (x.abs() <= 1)


@wrong.backward(
    "infinite",
    "You sweep nan away with nan_to_num, which also turns an infinite gradient into the largest finite number. "
    "Choose with torch.where instead, and no nan arises.",
)
def nan_swept_away(x, g):
    return torch.nan_to_num(g * (x.abs() <= 1))


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(x, g):
    g[x.abs() > 1] = 0
    return g


@wrong.forward(
    "contract",
    "Your forward changes its input in place: the caller's weights become -1 and 1, and so does what you saved. Build "
    "a new tensor.",
)
def writes_into_input(x):
    negative = x < 0
    return x.fill_(1).masked_fill_(negative, -1)


@wrong.backward(
    "gradient",
    "At exactly x = 1 your gradient is 0, and at x = -1 it passes: one of your comparisons leaves its edge out. Both "
    "edges belong to the ramp: -1 <= x <= 1.",
)
def right_edge_left_out(x, g):
    return torch.where((x >= -1) & (x < 1), g, 0)


@wrong.backward(
    "gradient",
    "At exactly x = -1 your gradient is 0, and at x = 1 it passes: one of your comparisons leaves its edge out. Both "
    "edges belong to the ramp: -1 <= x <= 1.",
)
def left_edge_left_out(x, g):
    return torch.where((x > -1) & (x <= 1), g, 0)


@wrong.backward(
    "gradient",
    "You multiply the upstream gradient by the value of clamp(x, -1, 1). Backward needs its slope, which is 1 where "
    "|x| <= 1 and 0 elsewhere.",
)
def ramp_for_its_slope(x, g):
    return g * x.clamp(-1, 1)


@wrong.backward(
    "gradient",
    "You decide once for the whole tensor, with all, any or an if: one element outside of the ramp stops the gradient "
    "of all others. Decide element by element, with torch.where.",
)
def one_decision_for_all(x, g):
    return g.clone() if (x.abs() <= 1).all() else torch.zeros_like(g)


@wrong.backward(
    "gradient",
    "Your gradient passes where it should stop and stops where it should pass: the comparison, or the two branches of "
    "where, are swapped.",
)
def branches_swapped(x, g):
    return torch.where(x.abs() > 1, g, 0)


@wrong.backward(
    "gradient",
    "Your slope falls off as 1 - |x|, a triangle. That of clamp(x, -1, 1) is 1 all along the ramp, where |x| <= 1.",
)
def triangle(x, g):
    return g * (1 - x.abs()).clamp(min=0)


@wrong.backward(
    "gradient", "Your gradient stops for negative x: the ramp goes from -1 to 1, and not from 0 to 1. Compare x.abs()."
)
def ramp_from_zero(x, g):
    return torch.where((x >= 0) & (x <= 1), g, 0)


@wrong.backward(
    "gradient",
    "For negative x your gradient has the wrong sign: you multiply by the sign of x, or by the output. The ramp rises "
    "on both sides of 0, so its slope is 1 there.",
)
def sign_multiplied(x, g):
    return torch.where(x.abs() <= 1, g * torch.where(x >= 0, 1, -1), 0)
