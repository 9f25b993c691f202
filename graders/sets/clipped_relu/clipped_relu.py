"""ClippedReLU: a bound that is a number, and two edges."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from graders.judge import looks as look
from graders.judge.task import DOUBLE, Task
from graders.judge.wording import NO_FUNCTION, WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.clipped_relu.common import BOUND_IN_FLOAT32, EDGE_BY_TOLERANCE, FLOAT32_IN_PLACE, bounded_checks

PLACE = 2


def _clipped_relu(x: Tensor, clip: float) -> Tensor:
    return F.hardtanh(x, 0, clip)


task = Task(
    "ClippedReLU",
    "ClippedReLU.apply(x, clip)",
    reference=_clipped_relu,
    checks=bounded_checks({"value": 1, "gradient": 2, "clips": 1, "second_order": 1, "contract": 1}, 0, "clip"),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class ClippedNew(Function):
    """In the form of chapter 5: torch.where chooses, so that an infinite upstream gradient makes no nan."""

    @staticmethod
    def forward(x, clip):
        return x.clamp(0, clip)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.clip = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where((x > 0) & (x < ctx.clip), g, 0), None


@task.solution
class ClippedOld(Function):
    """Keeps a mask, a byte for each element, and not x: the one for large inputs that nothing else keeps."""

    @staticmethod
    def forward(ctx, x, clip):
        outside = (x <= 0) | (x >= clip)
        ctx.save_for_backward(outside)
        return F.hardtanh(x, 0.0, clip)

    @staticmethod
    def backward(ctx, grad_output):
        (outside,) = ctx.saved_tensors
        return grad_output.masked_fill(outside, 0), None


@task.solution
class ClippedByOutput(ClippedNew):
    """Keeps the output, which tells the regions apart as well as x does: the next layer holds it anyway."""

    @staticmethod
    def forward(x, clip):
        return torch.minimum(x.relu(), x.new_full((), clip))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.clip = torch.full_like(output, inputs[1])
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        inside = (y > 0).logical_and(y < ctx.clip)
        return g * inside, None


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class ClippedByIndex(ClippedNew):
    """Copies, and writes into the copies."""

    @staticmethod
    def forward(x, clip):
        y = x.clone()
        y[x < 0] = 0
        y[x > clip] = clip
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        result = g.clone()
        result[x <= 0] = 0
        result[x >= ctx.clip] = 0
        return result, None


@task.solution
class ClippedTwice(ClippedNew):
    """Clips twice, one side after the other, and refuses a tensor."""

    @staticmethod
    def forward(x, clip):
        if isinstance(clip, torch.Tensor) or clip <= 0:
            raise ValueError("clip is a number above 0")
        return x.clamp(min=0).clamp(max=clip)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        below = torch.where(x < ctx.clip, g, torch.zeros_like(g))
        return torch.where(x > 0, below, torch.zeros_like(g)), None


# --- Mistakes ---------------------------------------------------------------------------------------------------------


wrong = Wrong(task, of=ClippedNew)
wrong.habits(
    "view_needed float32_inside float32_and_back not_differentiable_twice kept_as_attribute kept_outside_ctx",
    upstream_ignored="Your gradient is the mask, 0 or 1: the upstream gradient is missing. Return the upstream "
    "gradient where 0 < x < clip, else 0.",
    upstream_unchanged="Your gradient is the upstream gradient unchanged; outside 0 < x < clip the output is "
    "constant: return 0 there.",
    none_forgotten="Your backward returns one gradient, and forward has two arguments: return the gradient of x, then "
    "None, for clip.",
    nothing_returned="Your backward returns None for x (is a return statement missing?): x gets no gradient at all.",
    writes_into_input="Your forward works in place (clamp_, or x[x < 0] = 0): the caller's x is clipped too. Return "
    "a new tensor.",
)


@wrong.backward(
    "gradient",
    "Your gradient is ReLU's: above clip, where the output is constant, it is the upstream gradient instead of 0. "
    "Inputs that never exceed clip cannot show it.",
)
def upper_mask_missing(x, g):
    return torch.where(x > 0, g, 0), None


@wrong.backward(
    "gradient",
    "At exactly 0 and clip your gradient is the upstream gradient, as torch.clamp has it; F.hardtanh, which this "
    "operation follows, has 0 at both. Use > and <, not >= and <=.",
)
def edges_open(ctx, x, g):
    return torch.where((x >= 0) & (x <= ctx.clip), g, 0), None


@wrong.backward(
    "gradient",
    "At exactly x = clip your gradient is the upstream gradient; F.hardtanh has 0 there. Use x < clip, not x <= clip.",
)
def upper_edge_open(ctx, x, g):
    return torch.where((x > 0) & (x <= ctx.clip), g, 0), None


@wrong.backward(
    "gradient",
    "Your backward returns a gradient for clip, which is a Python number and can have none. Return None in its "
    "place; a clip that learns is the next task.",
)
def gradient_for_the_clip(ctx, x, g):
    return torch.where((x > 0) & (x < ctx.clip), g, 0), torch.where(x >= ctx.clip, g, 0).sum()


@wrong.backward(
    "gradient",
    "Your gradient is written into torch.zeros(shape), which is float32 whatever x is. Use torch.zeros_like(g), or "
    "torch.where.",
)
def buffer_in_float32(ctx, x, g):
    result, inside = torch.zeros(g.shape), (x > 0) & (x < ctx.clip)
    result[inside] = g[inside]
    return result, None


@wrong.backward("gradient", EDGE_BY_TOLERANCE)
def edge_by_tolerance(ctx, x, g):
    edge = torch.isclose(x, torch.zeros_like(x)) | torch.isclose(x, torch.full_like(x, ctx.clip))
    return torch.where((x > 0) & (x < ctx.clip) & ~edge, g, 0), None


@task.mistake(
    "gradient",
    "You round clip before backward compares with it, so x between the two counts for the wrong side. Keep the "
    "number itself.",
)
class clip_rounded(ClippedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, clip = inputs
        ctx.clip = round(clip, 2)
        ctx.save_for_backward(x)


@task.mistake("gradient", BOUND_IN_FLOAT32.format(name="clip"))
class clip_kept_in_float32(ClippedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, clip = inputs
        ctx.clip = torch.tensor(clip)
        ctx.save_for_backward(x)


@task.mistake("gradient", BOUND_IN_FLOAT32.format(name="clip"))
class output_beside_float32(ClippedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.clip = torch.tensor(inputs[1])
        ctx.save_for_backward(output)


@wrong.forward(
    "value",
    "Your output is never below clip, because clamp(clip) takes its one number for the lower bound: write clamp(max=clip). "
    "Then what lies above clip comes down to it, and what lies between stays as it is.",
)
def clip_as_lower_bound(x, clip):
    return x.relu().clamp(clip)


@wrong.forward("value", "Your forward is ReLU: nothing holds the output at clip. It returns clip where x > clip.")
def upper_clip_missing(x, clip):
    return x.clamp(min=0)


@wrong.forward(
    "value",
    "A nan in x becomes a number in your output: every comparison with nan is false, so nan falls into the last "
    "branch. torch.clamp keeps it; or let the branch that is left over be x itself.",
)
def nan_swallowed(x, clip):
    return torch.where(x >= clip, clip, torch.where(x > 0, x, 0))


@wrong.forward(
    "value",
    "For infinite x your output is nan: a formula with |x| - |x - clip| meets inf - inf. Compare instead of "
    "subtracting.",
)
def infinity_minus_infinity(x, clip):
    return (x.abs() - (x - clip).abs() + clip) / 2


@wrong.saves(
    "value", "save_for_backward takes tensors, and clip is a number. Keep it as an attribute: ctx.clip = clip."
)
def clip_saved_as_tensor(x, clip, y):
    return x, clip


@wrong.forward(
    "value",
    "For a 0-d float16 or float64 input your output is float32: torch.tensor(clip) is float32 and decides the dtype "
    "among 0-d tensors. torch.clamp takes the number itself.",
)
def clip_as_float32(x, clip):
    return torch.minimum(x.clamp(min=0), torch.tensor(clip))


@task.mistake(
    "value",
    "Your forward changes x in place and marks it dirty. x is the caller's, and torch refuses this for a leaf that "
    "requires a gradient. Return a new tensor.",
)
class marks_dirty(Function):
    @staticmethod
    def forward(ctx, x, clip):
        ctx.save_for_backward((x > 0) & (x < clip))
        ctx.mark_dirty(x)
        return x.clamp_(0, clip)

    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return g * inside, None


@wrong.backward(
    "clips", "Your forward follows clip and your backward does not: it has a fixed number in its place. Use ctx.clip."
)
def clip_fixed_backward(x, g):
    return torch.where((x > 0) & (x < 1.5), g, 0), None


@wrong.forward(
    "clips",
    "Your argument is not called clip, so a caller who names it gets a TypeError. Use the names of the task's text.",
)
def argument_renamed(x, c):
    return x.clamp(0, c)


@wrong.forward(
    "clips",
    "You subtract from clip and subtract the rest again: next to a large clip, such as 1e20, a small x has no digits "
    "left and comes back as 0. Use torch.clamp.",
)
def difference_of_large_numbers(x, clip):
    return clip - (clip - x.relu()).relu()


@wrong.backward(
    "contract",
    "Your backward works in place on the saved x. That tensor is the caller's: it changes under the caller's hands. "
    "Make a new tensor.",
)
def writes_into_saved(ctx, x, g):
    inside = (x > 0) & (x < ctx.clip)
    return x.zero_().add_(inside).mul_(g), None


@wrong.forward("contract", FLOAT32_IN_PLACE)
def writes_into_float32(x, clip):
    wide = x.clone() if x.dtype == DOUBLE else x.float()
    return wide.clamp_(0, clip).clone().to(x.dtype)


@task.mistake(
    "contract",
    "You keep clip outside ctx (on the class, or in a global): a second call overwrites it before the first one's "
    "backward. Use an attribute of ctx.",
)
class clip_outside_ctx(ClippedNew):
    clip = 0.0

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, clip_outside_ctx.clip = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where((x > 0) & (x < clip_outside_ctx.clip), g, 0), None


@wrong.backward(
    "contract",
    "Your backward calls torch's own (hardtanh_backward). The task is to write it: the upstream gradient where 0 < x "
    "< clip.",
)
def torchs_own_backward(ctx, x, g):
    return torch.ops.aten.hardtanh_backward(g, x, 0, ctx.clip), None


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(ctx, x, g):
    g[(x <= 0) | (x >= ctx.clip)] = 0
    return g, None


@task.mistake("gradient", NO_FUNCTION)
def no_function(x, clip):
    return F.hardtanh(x, 0, clip)
