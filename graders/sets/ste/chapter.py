"""Step and ScaleGradient, which the chapter alone shows: Binarize's ramp halved, GradientReversal without its sign."""

import torch
from torch.autograd import Function

from graders.judge.task import Task
from graders.judge.wording import MASK_MULTIPLIED
from graders.judge.wrong import Wrong
from graders.sets.ste.common import scaled, scaled_checks, two_valued, two_valued_checks

# --- Step -------------------------------------------------------------------------------------------------------------

step = Task(
    "Step",
    "Step.apply(x)",
    reference=two_valued(0.0, 0.5),
    checks=two_valued_checks(width=0.5, points={}, low="0", surrogate="clamp(x, -1/2, 1/2)"),
)


@step.solution
class StepNew(Function):
    """In the form of chapter 3: the ramp is |x| <= 1/2, as the step rises by 1."""

    @staticmethod
    def forward(x):
        return (x > 0).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() <= 0.5, g, 0)


wrong = Wrong(step, of=StepNew)


@wrong.forward(
    "value",
    "torch.sign(0) is 0, so your step is 0.5 at exactly 0, a third value. Compare instead: (x > 0).to(x.dtype).",
)
def half_at_zero(x):
    return (torch.sign(x) + 1) / 2


@wrong.backward(
    "gradient",
    "You clip the upstream gradient where the clipped estimator masks it: it passes g unchanged where |x| <= 1/2 and "
    "gives 0 elsewhere, so the condition is on x, never on g.",
)
def clips_upstream(ctx, g):
    return g.clamp(-1, 1)


@wrong.backward(
    "gradient",
    "Your gradient passes everywhere; this estimator is the gradient of clamp(x, -1/2, 1/2) and is 0 where |x| > "
    "1/2. Without the mask, latent weights run far away and cannot come back.",
)
def identity_outside(ctx, g):
    return g.clone()


ON_X = (
    "Your condition looks at the upstream gradient g. It has to look at x: where |x| <= 1/2 g passes unchanged, however "
    "large it is, and elsewhere it is 0."
)


@wrong.backward("gradient", ON_X)
def clips_upstream_at_half(ctx, g):
    return g.clamp(-0.5, 0.5)


@wrong.backward("gradient", ON_X)
def masks_upstream(x, g):
    return torch.where(g.abs() <= 0.5, g, 0)


@wrong.backward(
    "gradient",
    "You return the ramp's slope, 1 or 0, and not the slope times the upstream gradient g: choose between g and 0.",
)
def upstream_ignored(x, g):
    return torch.where(x.abs() <= 0.5, 1.0, 0).to(g.dtype)


@wrong.backward(
    "gradient",
    "You pass x itself where |x| <= 1/2. The mask asks x, and what passes is the upstream gradient g: "
    "torch.where(x.abs() <= 0.5, g, 0).",
)
def input_passed(x, g):
    return torch.where(x.abs() <= 0.5, x, 0).to(g.dtype)


@wrong.backward("infinite", MASK_MULTIPLIED)
def mask_multiplied(x, g):
    return g * (x.abs() <= 0.5)


@wrong.backward("gradient", "At exactly -1/2 and 1/2 your gradient is 0. The ends belong to the ramp: use <=, not <.")
def ends_left_out(x, g):
    return torch.where(x.abs() < 0.5, g, 0)


@wrong.backward(
    "gradient", "Your mask ends on one side alone: x <= 1/2 is true for -100 as well. Ask for x.abs() <= 1/2."
)
def one_sided(x, g):
    return torch.where(x <= 0.5, g, 0)


wrong.usual("writes_into_upstream")


# --- ScaleGradient ----------------------------------------------------------------------------------------------------

scale = Task(
    "ScaleGradient",
    "ScaleGradient.apply(x, factor)",
    reference=scaled,
    checks=scaled_checks(points={}, name="factor", times="the factor times the upstream gradient"),
)


@scale.solution
class ScaleNew(Function):
    """In the form of chapter 3: the factor is a number and stays on ctx, and nothing is saved."""

    @staticmethod
    def forward(x, factor):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None


wrong = Wrong(scale, of=ScaleNew)


@wrong.forward(
    "value",
    "You multiply the value as well as the gradient: that is x * factor and its true derivative, and gradcheck "
    "passes. Here the value must stay x, and gradcheck must fail.",
)
def scales_the_value(x, factor):
    return x * factor


@wrong.forward(
    "contract",
    "You return x itself, which torch hands out as a view, so an in-place operation on your output raises; return "
    "x.clone().",
)
def returns_its_input(x, factor):
    return x


wrong.usual("writes_into_upstream", without="float32_and_back")

CHAPTER = (step, scale)
