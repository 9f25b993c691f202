"""BroadcastMul: what forward copies, backward sums."""

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import WATCHED, gradient, value
from graders.judge.task import DOUBLE, DTYPES, SINGLE, Draw, Task
from graders.judge.wording import WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.linear.common import (
    AXES_MOVE,
    DENIED,
    NOTHING_FOR_BOTH,
    RENAMED,
    SAVES_DATA,
    SHAPES,
    added_and_stretched,
    axis_by_axis,
    contract,
    factors,
    lopsided,
    named,
    second_order,
)

PLACE = 2


def _zeros() -> tuple[Tensor, Tensor]:
    """Return factors with zeros among them."""
    return torch.tensor([[0.0, 1.5, -2.0]], dtype=DOUBLE), torch.tensor([[0.7], [0.0]], dtype=DOUBLE)


def _products(d: Draw, order: int = 1) -> list[Case]:
    """Return cases of every kind of broadcasting, dtype and layout."""
    cases = [d.case(f"{one} with {two}", *factors(d, one, two), order=order) for one, two in SHAPES]
    cases += [d.case(f"{named(t)} inputs", *factors(d, (2, 3), (3,), t), order=order) for t in DTYPES[:3]]
    cases += [d.case("zeros among the factors", *_zeros(), order=order)]
    a, b = factors(d, (4, 3), (4, 1))
    cases += [d.case("every second column, and an expanded tensor", a.t()[:, ::2], b[:1].expand(3, 2), order=order)]
    return cases


task = Task(
    "BroadcastMul",
    "BroadcastMul.apply(a, b)",
    reference=lambda a, b: a * b,
    checks=(
        value(
            1,
            about="the output equals a * b for all shapes that broadcast, in every dtype and layout",
            cases=lambda d: [
                *_products(d, order=0),
                d.case("named arguments", *factors(d, (3, 1), (2,)), keywords=("a", "b"), order=0),
                d.case("every size", d.scales(4, 3), d.scales(3), order=0),
                *lopsided(d, *factors(d, (2, 3), (3,)), order=0),
            ],
        ),
        gradient(
            1,
            about="both gradients equal torch's, whichever tensor is the smaller, and gradcheck passes",
            why="What forward copies, backward sums: over the axes that were added, and over those of size 1 that "
            "were stretched.",
            cases=lambda d: [
                *_products(d),
                d.case("every size", d.scales(4, 3), d.scales(3), upstream=d.scales(4, 3)),
                d.case(
                    "an expanded upstream gradient", *factors(d, (2, 1), (3,)), upstream=d.normal(1, 3).expand(2, 3)
                ),
                d.case("only a requires a gradient", *factors(d, (3, 1), (4,)), requires=(True, False)),
                d.case("only b requires a gradient", *factors(d, (3, 1), (4,)), requires=(False, True)),
                *lopsided(d, *factors(d, (2, 3), (3,)), order=1),
                d.case("(3,) with (3, 3)", *factors(d, (3,), (3, 3))),
            ],
            gradcheck=lambda d: factors(d, (2, 1, 3), (2, 1)),
        ),
        second_order(
            1,
            about="each gradient can be differentiated again, by the other factor and by g",
            cases=lambda d: [
                *(
                    d.case(f"{one} with {two}", *factors(d, one, two), order=2)
                    for one, two in (((2, 3), (2, 3)), ((), (3,)), ((2, 3, 3), (1, 1, 3)))
                ),
                d.case("zeros among the factors", *_zeros(), order=2),
                *lopsided(d, *factors(d, (2, 3), (3,)), order=2),
            ],
            gradcheck=lambda d: factors(d, (2, 1), (3,)),
        ),
        contract(
            1,
            cases=lambda d: [
                d.case("equal shapes", *factors(d, (2, 3), (2, 3)), watch=WATCHED, deny=DENIED),
                d.case("float32, b is the smaller", *factors(d, (2, 3), (3,), SINGLE), watch=WATCHED),
            ],
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class MulNew(Function):
    """Torch's own sum to a size: the shortest, and it says what it does."""

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


@task.solution
class MulUnsummed(MulNew):
    """Leaves the sums to the engine, which has to make them: right, and lost on whoever calls backward directly."""

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b, g * a


@task.solution
class MulCareful(MulNew):
    """Sums by hand, over all axes at once, and what is wanted alone: for frameworks without sum_to_size."""

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grad_a = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_a = added_and_stretched(g * b, a.shape)
        if ctx.needs_input_grad[1]:
            grad_b = added_and_stretched(g * a, b.shape)
        return grad_a, grad_b


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
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


@task.solution
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


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class Steps(MulNew):
    """MulNew in steps, for the wrong ones to change one of them."""

    @staticmethod
    def summed(part: Tensor, mine: Tensor) -> Tensor:
        """Return a gradient of the output's shape summed to that of mine."""
        return part.sum_to_size(mine.shape)

    @classmethod
    def backward(cls, ctx, g):
        a, b = ctx.saved_tensors
        return cls.summed(g * b, a), cls.summed(g * a, b)


wrong = Wrong(task, of=Steps)
wrong.habits(
    "float32_inside float32_and_back view_needed no_function not_differentiable_twice kept_outside_ctx",
    upstream_ignored="Your gradients are b and a: the upstream gradient is missing. Multiply by it, before you sum "
    "to the shape of each input.",
    nothing_returned=NOTHING_FOR_BOTH,
    detached="Your first derivatives are right and your second are missing: detach (or .data) in backward cuts a and "
    "b out of the graph of the gradients. Use what you saved as it is.",
    kept_as_attribute="You keep a and b as attributes of ctx, where torch does not watch them: when one of them is "
    "changed in place before backward, the gradient is silently wrong. Use ctx.save_for_backward.",
    autograd_in_backward="Your backward lets torch.autograd differentiate a * b. The task is to write the "
    "vector-Jacobian product yourself: the other factor times g, summed to shape.",
)


@wrong.forward(
    "value",
    "Your forward expands b to the shape of a, so it fails where a is the smaller, or where each has an axis that "
    "the other lacks. a * b broadcasts both.",
)
def expands_b(a, b):
    return a * b.expand_as(a)


@wrong.forward(
    "value",
    "Your forward expands the smaller tensor to the shape of the larger one, so it fails where each has an axis that "
    "the other lacks, as (3, 1) with (4,). a * b broadcasts both.",
)
def expands_the_smaller(a, b):
    return a.expand(b.shape) * b if a.numel() < b.numel() else a * b.expand(a.shape)


@wrong.forward("value", RENAMED.format("a and b"))
def arguments_renamed(x, y):
    return x * y


@wrong.backward(
    "gradient",
    "Your gradients are the upstream gradient, summed to shape, as for a + b. For a product it is multiplied by the "
    "other factor first.",
)
def upstream_unchanged(a, b, g):
    return g.sum_to_size(a.shape), g.sum_to_size(b.shape)


@wrong.backward(
    "gradient",
    "Each of your gradients multiplies by its own factor. The derivative of a * b with respect to a is b: the "
    "gradient of a takes b, and that of b takes a.",
)
def own_factor(a, b, g):
    return (g * a).sum_to_size(a.shape), (g * b).sum_to_size(b.shape)


@wrong.backward(
    "gradient",
    "Your backward sums the upstream gradient to the shape of the input and multiplies afterwards. Where the other "
    "factor varies along the summed axis this is wrong: multiply first, then sum.",
)
def summed_before_product(a, b, g):
    return g.sum_to_size(a.shape) * b, g.sum_to_size(b.shape) * a


@wrong.backward(
    "gradient",
    "Your gradient of a sums the upstream gradient to the shape of a and multiplies by b afterwards. Where b varies "
    "along the summed axis this is wrong: multiply first, then sum.",
)
def summed_before_product_for_a(a, b, g):
    return g.sum_to_size(a.shape) * b, (g * a).sum_to_size(b.shape)


@wrong.backward(
    "gradient",
    "Your gradient of b sums the upstream gradient to the shape of b and multiplies by a afterwards. Where a varies "
    "along the summed axis this is wrong: multiply first, then sum.",
)
def summed_before_product_for_b(a, b, g):
    return (g * b).sum_to_size(a.shape), g.sum_to_size(b.shape) * a


@wrong.step("summed", "gradient", AXES_MOVE)
def axes_move(part, mine):
    return axis_by_axis(part, mine)


@wrong.step(
    "summed",
    "gradient",
    "You sum an axis that was stretched and drop it, so your gradient has fewer dimensions than its input. "
    "Keep the axis: keepdim=True, or reshape to the input's shape.",
)
def axes_dropped(part, mine):
    added = part.ndim - mine.ndim
    axes = [*range(added), *(i + added for i, n in enumerate(mine.shape) if n == 1)]
    return part.sum(axes) if axes else part


@wrong.step(
    "summed",
    "gradient",
    "Your list of axes is empty where nothing was broadcast, and g.sum([]) sums over all axes. Ask first whether "
    "there is an axis to sum.",
)
def sum_over_no_axis(part, mine):
    added = part.ndim - mine.ndim
    axes = [*range(added), *(i + added for i, n in enumerate(mine.shape) if n == 1)]
    return part.sum(axes, keepdim=True).reshape(mine.shape)


@wrong.step(
    "summed",
    "gradient",
    "Where nothing was broadcast each element of your gradient is the sum of all: g.sum([]), with an empty list of axes, "
    "sums over every axis. Ask first whether there is an axis to sum.",
)
def total_of_everything(part, mine):
    return part.sum().expand(mine.shape) if part.shape == mine.shape else part.sum_to_size(mine.shape)


@wrong.step(
    "summed",
    "gradient",
    "You compare the shapes from the left: where (3,) meets (3, 3) you sum over the last axis. Broadcasting aligns "
    "shapes at their right end, so the axes that were added are the first ones.",
)
def matched_from_the_left(part, mine):
    if part.shape != mine.shape and part.shape[: mine.ndim] == mine.shape:
        return part.sum(tuple(range(mine.ndim, part.ndim)))
    return part.sum_to_size(mine.shape)


@wrong.step(
    "summed",
    "gradient",
    "You align the shapes at their left end: axis i of the input is not axis i of the output where axes were added "
    "on the left. Count from the right, or add the number of added axes.",
)
def aligned_at_the_left(part, mine):
    axes = [*(i for i, n in enumerate(mine.shape) if n == 1), *range(mine.ndim, part.ndim)]
    return part.sum(axes, keepdim=True).reshape(mine.shape) if axes else part


@wrong.step(
    "summed",
    "gradient",
    "You compare the sizes from the left: axis i of the input is not axis i of the output where axes were added on the left, so "
    "you sum the wrong ones. Count from the right, or add the number of added axes.",
)
def sizes_compared_from_the_left(part, mine):
    axes = [i for i, n in enumerate(part.shape) if i >= mine.ndim or mine.shape[i] != n]
    return part.sum(axes, keepdim=True).reshape(mine.shape) if axes else part


@wrong.step(
    "summed",
    "gradient",
    "You sum the surplus axes away from the right, by sum(-1). Broadcasting aligns shapes at their right end, so the axes that were "
    "added are the first ones: sum(0).",
)
def surplus_summed_from_the_right(part, mine):
    while part.ndim > mine.ndim:
        part = part.sum(-1)
    for axis, size in enumerate(mine.shape):
        if size == 1:
            part = part.sum(axis, keepdim=True)
    return part


@wrong.step(
    "summed",
    "gradient",
    "Where the shapes differ you sum over the first axis alone. Sum over each axis that was added on the left, and "
    "over each axis of size 1 that was stretched, wherever it stands.",
)
def first_axis_only(part, mine):
    return part if part.shape == mine.shape else part.sum(0)


@wrong.step(
    "summed",
    "gradient",
    "You sum to the input's shape and expand to the output's again. The engine sums what you return once more, so the "
    "gradient is too large: return it in the shape of the input.",
)
def summed_and_expanded(part, mine):
    return part.sum_to_size(mine.shape).expand(part.shape)


@wrong.step(
    "summed",
    "gradient",
    "You take the mean over the axes that were broadcast. Every copy of an element sends back its own gradient, and "
    "they add up: take the sum.",
)
def mean_for_sum(part, mine):
    return part.sum_to_size(mine.shape) * max(mine.numel(), 1) / max(part.numel(), 1)


@wrong.backward(
    "gradient",
    "Your two gradients stand in each other's place: saved in one order, perhaps, and unpacked in the other. Return the gradient "
    "of a first, g * b, and that of b second, g * a.",
)
def gradients_swapped(a, b, g):
    return (g * a).sum_to_size(b.shape), (g * b).sum_to_size(a.shape)


@wrong.backward(
    "gradient",
    "You divide the output by a factor to get the other one: where the factor is 0 this is 0 / 0, nan. Save a and b, "
    "and multiply.",
    saves=lambda a, b, y: (a, b, y),
)
def divides_output(a, b, y, g):
    return (g * y / a).sum_to_size(a.shape), (g * y / b).sum_to_size(b.shape)


@wrong.backward(
    "gradient",
    "You divide the output by a to get b: where a is 0 this is 0 / 0, nan. Save b, and multiply by it.",
    saves=lambda a, b, y: (a, b, y),
)
def divides_output_by_a(a, b, y, g):
    return (g * (y / a)).sum_to_size(a.shape), (g * a).sum_to_size(b.shape)


@wrong.backward(
    "gradient",
    "You divide the output by b to get a: where b is 0 this is 0 / 0, nan. Save a, and multiply by it.",
    saves=lambda a, b, y: (a, b, y),
)
def divides_output_by_b(a, b, y, g):
    return (g * b).sum_to_size(a.shape), (g * y / b).sum_to_size(b.shape)


@task.mistake(
    "gradient",
    "You save each factor only where it wants a gradient itself. The gradient of a needs b, and that of b needs a: "
    "save b where a wants a gradient, and a where b wants one, or both.",
)
class saved_by_its_own_flag(MulNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*(t if n else None for t, n in zip(inputs, ctx.needs_input_grad, strict=True)))

    @staticmethod
    def backward(ctx, g):
        (a, b), (needs_a, needs_b) = ctx.saved_tensors, ctx.needs_input_grad
        return g * b if needs_a else None, g * a if needs_b else None


@wrong.backward(
    "gradient",
    "You read ctx.needs_input_grad in the wrong order: the tensor that needs a gradient gets None. The first entry "
    "is a's, the second b's.",
)
def flags_swapped(ctx, g):
    needs_b, needs_a = ctx.needs_input_grad
    grad_a, grad_b = MulNew.backward(ctx, g)
    return grad_a if needs_a else None, grad_b if needs_b else None


@task.mistake(
    "second_order",
    "You save copies of a and b that forward or setup_context made (expanded, say): they come back as constants, and "
    "the second derivative is missing. Save a and b themselves.",
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


@wrong.backward(
    "second_order",
    "You save a and b expanded to the output's shape. What is expanded in setup_context or forward comes back as a "
    "constant, so its part of the second derivative is missing. Save a and b themselves.",
    saves=lambda a, b, y: torch.broadcast_tensors(a, b),
)
def saves_broadcast(a, b, g):
    return g * b, g * a


@wrong.backward(
    "second_order",
    "Where a factor is 0 you return a constant 0. The value of the gradient is right there and its derivative is "
    "not: it is the upstream gradient. Multiply, whatever the factor is.",
)
def constant_at_zero(a, b, g):
    grads = torch.where(b != 0, g * b, 0), torch.where(a != 0, g * a, 0)
    return grads[0].sum_to_size(a.shape), grads[1].sum_to_size(b.shape)


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(a, b, g):
    grad_b = g * a
    return g.mul_(b).sum_to_size(a.shape), grad_b.sum_to_size(b.shape)


@wrong.forward(
    "contract",
    "Your forward multiplies a in place: the caller's tensor is overwritten, and what you saved with it (and where a "
    "is the smaller it raises). Return a new tensor, a * b.",
)
def writes_into_input(a, b):
    return a.mul_(b)


@wrong.forward(
    "contract",
    "Your forward multiplies in place what contiguous returned. That copies only where it has to: a contiguous a of the "
    "output's shape comes back as it is, and the caller's numbers are overwritten. Write a * b.",
)
def writes_into_no_copy(a, b):
    return a.expand(torch.broadcast_shapes(a.shape, b.shape)).contiguous().mul_(b)


@wrong.saves("contract", SAVES_DATA.replace("x", "a"))
def saves_data(a, b, y):
    return a.data, b.data


@task.mistake(
    "contract",
    "Your backward uses up what it finds on ctx (pop, or next), so it can run only once: with retain_graph=True, and "
    "in gradcheck, it runs again. Read what is there, and leave it.",
)
class used_up(MulNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.shapes = [t.shape for t in reversed(inputs)]

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return (g * b).sum_to_size(ctx.shapes.pop()), (g * a).sum_to_size(ctx.shapes.pop())


@wrong.backward(
    "contract",
    "Your backward works in place on a saved tensor, which is the caller's own: it is changed, and a second backward "
    "is wrong. Make a new tensor.",
)
def writes_into_saved(a, b, g):
    grad_a = (g * b).sum_to_size(a.shape)
    return grad_a, a.mul_(g).sum_to_size(b.shape)


@wrong.step(
    "summed",
    "gradient",
    "You look for the axes of size 1 while the axes that broadcasting added are still in front, so you count from the "
    "wrong end: shapes are aligned at the right. Sum the added axes away first.",
)
def ones_before_the_added_axes(part, mine):
    for axis, size in enumerate(mine.shape):
        if size == 1:
            part = part.sum(axis, keepdim=True)
    while part.ndim > mine.ndim:
        part = part.sum(0)
    return part
