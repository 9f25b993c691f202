"""clip_by_norm: a norm that must be differentiable at 0."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.aspects import WATCHED, contract, gradient, second_order, value
from graders.judge.task import DOUBLE, HALF, Check, Draw, Task
from graders.judge.wording import FLOAT32, FLOAT32_AND_BACK, WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.clipped_relu.common import mannerly

PLACE = 4


def _clip_by_norm(x: Tensor, tau: float) -> Tensor:
    wide = x.double()
    square = (wide * wide).sum()
    large = square > tau * tau
    scale = torch.where(large, tau / torch.where(large, square, 1).sqrt(), 1)
    return (wide * scale).to(x.dtype)


def _away(draw: Draw) -> Callable[..., Tensor]:
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, away=0.5, reach=2.0, dtype=dtype)


def _lengths(draw: Draw, order: int) -> list[Case]:
    """Return cases longer and shorter than tau, in every form, and of every size."""
    sample = _away(draw)
    return [
        *draw.forms(sample, 0.4, order=order),
        *(draw.case("shorter than tau", sample(2, 3, dtype=t), 50.0, order=order) for t in (HALF, DOUBLE)),
        draw.case("0-d, shorter than tau", sample(), 5.0, order=order),
        draw.case("a little longer than tau", torch.tensor([3.0, 0.0, -4.0], dtype=DOUBLE), 4.9, order=order),
        draw.case("a little shorter than tau", torch.tensor([3.0, 0.0, -4.0], dtype=DOUBLE), 5.1, order=order),
        draw.case("numbers of every size", draw.scales(12), 0.01, order=order),
        draw.case("a short vector and a shorter tau", sample(3) * 1e-6, 4e-7, order=order),
        draw.case("a long vector and a large tau", sample(3) * 1e6, 4e5, order=order),
    ]


def _precise(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    found = look.precise(call, case, yours, expected)
    return found and replace(found, message=f"{found.message} An epsilon added to the norm shows like this, too.")


LENGTH = (*look.FORWARD[:-1], _precise, look.value)


EITHER = (*look.FIRST[:-2], look.differentiable, look.dtype, _precise, look.value, look.gradient)


task = Task(
    "clip_by_norm",
    "clip_by_norm(x, tau)",
    reference=_clip_by_norm,
    checks=(
        value(
            1,
            about="x as it is up to the length tau, else scaled to it, in every dtype, shape and layout",
            cases=lambda d: [
                *_lengths(d, 0),
                d.case("one small number", _away(d)(1) * 1e-3, 4e-4, order=0),
                d.case("zeros", torch.zeros(2, 3, dtype=DOUBLE), 0.5, order=0),
                d.case("tau by keyword", _away(d)(4), 0.4, order=0, keywords=("tau",)),
                *d.lopsided(lambda x: (x, 0.8), 5, order=0, zeros=False),
            ],
            looks=LENGTH,
        ),
        gradient(
            1,
            about="the gradient flows through the norm, and gradcheck passes",
            why="Where x is scaled, each element of the output depends on each element of x, through the norm.",
            cases=lambda d: [
                d.case("longer than tau", _away(d)(5), 0.8),
                *_lengths(d, 1),
                *d.lopsided(lambda x: (x, 0.8), 5, zeros=False),
            ],
            looks=EITHER,
            gradcheck=lambda d: (_away(d)(5), 0.8),
        ),
        Check(
            "zero",
            1,
            about="at x = 0 the gradient is the upstream gradient and the second derivative 0, without nan",
            why="A layer initialised to zeros meets x = 0 in its first step: a nan there ends the run, and an "
            "epsilon beside the norm shows.",
            cases=lambda d: [
                *(d.case("zeros", torch.zeros(2, 2, dtype=t), 0.5, order=2) for t in (HALF, DOUBLE)),
                d.case("a 0-d zero", torch.zeros((), dtype=DOUBLE), 0.5, order=2),
                d.case("shorter than tau", _away(d)(3), 50.0, order=2),
                d.case("longer than tau", _away(d)(3), 0.8, order=2),
            ],
            looks=(*EITHER, look.second_order),
            gradcheck=lambda d: (torch.zeros(3, dtype=DOUBLE), 0.5),
            order=2,
        ),
        second_order(
            1,
            about="the gradient can be differentiated again, and the result is right",
            why="A Hessian, a gradient penalty or a physics loss differentiates the gradient.",
            cases=lambda d: [
                d.case("longer than tau", _away(d)(4), 0.8, order=2),
                d.case("a matrix", _away(d)(2, 3), 0.8, order=2),
                d.case("shorter than tau", _away(d)(4), 50.0, order=2),
                d.case("a short vector and a shorter tau", _away(d)(3) * 1e-3, 4e-4, order=2),
                *d.lopsided(lambda x: (x, 0.8), 5, order=2, zeros=False),
            ],
            looks=(*EITHER, look.second_order),
            gradcheck=lambda d: (_away(d)(4), 0.8),
        ),
        contract(
            1,
            about="a new tensor always; the caller's tensors stay untouched",
            why="Tensors that your code did not make belong to others.",
            cases=lambda d: [
                d.case("longer than tau", _away(d)(4), 0.8, watch=WATCHED),
                d.case("shorter than tau", _away(d)(4), 50.0, watch=WATCHED),
            ],
            looks=mannerly(EITHER),
        ),
    ),
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
def by_condition(x, tau):
    """Asks by a Python condition: the plainest, where the length may come back to the CPU."""
    length = torch.linalg.vector_norm(x)
    if length <= tau:
        return x.clone()
    return x * (tau / length)


@task.solution
def by_python_maximum(x, tau):
    """Python's max leaves the norm out of the graph where it does not count: the shortest."""
    return x / max(1.0, x.norm() / tau)


@task.solution
def by_squares(x, tau):
    """Clamps the square of the norm, smooth at 0, before the root: without a branch, so it never waits for a device."""
    wide = x.float() if x.element_size() < 4 else x
    square = (wide * wide).sum().clamp(min=tau**2)
    return (wide * tau * square.rsqrt()).to(x.dtype)


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
def by_two_wheres(x, tau):
    """Puts a harmless number in the norm's place where the norm is not used."""
    square = x.square().sum()
    large = square > tau * tau
    length = torch.where(large, square, torch.ones_like(square)).sqrt()
    return torch.where(large, tau * x / length, x)


@task.solution
class ClipByNormFunction(Function):
    """Writes out the closed form in a Function."""

    @staticmethod
    def forward(x, tau):
        length = x.norm().item()
        return x * (tau / length) if length > tau else x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.tau = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        square = (x * x).sum()
        if square <= ctx.tau**2:
            return g.clone(), None
        return ctx.tau / square.sqrt() * (g - x * ((x * g).sum() / square)), None


# --- Mistakes ---------------------------------------------------------------------------------------------------------


wrong = Wrong(task, of=ClipByNormFunction)
wrong.habits(
    "not_differentiable_twice kept_as_attribute",
    none_forgotten="Your backward returns one gradient, and forward has two arguments: return the gradient of x, then "
    "None, for tau.",
    nothing_returned="Your backward returns None for x (is a return statement missing?): x gets no gradient at all.",
)


@task.mistake(
    "gradient",
    "Your gradient is the upstream gradient times tau / norm: it takes the norm for a constant (item(), float() or "
    "detach() cut it off). The norm depends on x, and its gradient has to flow: leave it a tensor of the graph.",
)
def norm_detached(x, tau):
    return x * min(1.0, tau / max(x.detach().norm().item(), 1e-300))


@wrong.backward(
    "gradient",
    "Your backward is the upstream gradient times the scale alone. The scale depends on x too: subtract the part "
    "along x, tau / norm * x * <x, g> / norm^2.",
)
def projection_missing(ctx, x, g):
    square = (x * x).sum()
    large = square > ctx.tau**2
    return torch.where(large, g * (ctx.tau / torch.where(large, square, 1).sqrt()), g), None


@wrong.backward(
    "gradient",
    "Your gradient is that of the scaled branch everywhere. Up to the length tau the output is x, and its gradient the "
    "upstream gradient.",
)
def scaled_branch_everywhere(ctx, x, g):
    length = x.norm().clamp(min=1e-30)
    return ctx.tau / length * (g - x / length * (x / length * g).sum()), None


@task.mistake(
    "gradient",
    "Your output has no graph: no_grad, detach, .data or torch.tensor cut it off, so nothing reaches x. Compute it "
    "from x by torch operations.",
)
def graph_cut_off(x, tau):
    with torch.no_grad():
        return by_condition(x, tau)


@task.mistake(
    "value",
    "Something is added to the norm or to the sum of squares (torch.renorm adds 1e-7), so the scale is off where the "
    "norm is small itself. The definition has no epsilon; treat x = 0 by the case x shorter than tau.",
)
def epsilon_under_the_root(x, tau):
    length = ((x * x).sum() + 1e-12).sqrt()
    return torch.where(length <= tau, x, x * tau / length)


@task.mistake(
    "value",
    "You add an epsilon to the norm, as torch.nn.utils.clip_grad_norm_ does: the output is a little shorter than "
    "tau. The definition has none; treat x = 0 by the case x shorter than tau.",
)
def epsilon_added(x, tau):
    return x * (tau / (x.norm() + 1e-6)).clamp(max=1)


@task.mistake(
    "value",
    "Your norm is half of the sum of squares: ** binds before /, so that s ** 1 / 2 is (s ** 1) / 2. Write s ** 0.5, "
    "or s.sqrt().",
)
def half_for_root(x, tau):
    length = x.square().sum() ** 1 / 2
    return x * (tau / length) if length > tau else x.clone()


@task.mistake("value", "Your norm is the sum of squares: its root is missing. Write s.sqrt(), or s ** 0.5.")
def root_forgotten(x, tau):
    length = x.square().sum()
    return x * (tau / length) if length > tau else x.clone()


@task.mistake("value", "You take a norm for each row. There is one norm, over all elements of x, whatever its shape.")
def norm_of_each_row(x, tau):
    length = x.norm(dim=-1, keepdim=True) if x.dim() else x.norm()
    return torch.where(length > tau, x * tau / torch.where(length > tau, length, 1), x)


@task.mistake(
    "value",
    "You clip each element to [-tau, tau]. Clipping by norm scales all elements by one factor and keeps the direction.",
)
def clipped_by_value(x, tau):
    return x.clamp(-tau, tau)


@task.mistake(
    "value",
    "You scale x to the length tau always. Up to the length tau it stays as it is: clipping makes nothing longer "
    "(and 0 has no direction).",
)
def always_scaled(x, tau):
    return x * tau / x.norm()


@task.mistake(
    "value",
    "For a matrix torch.linalg.norm(x, ord=2) is its largest singular value, another norm. "
    "torch.linalg.vector_norm(x) takes all elements of any shape.",
)
def spectral_norm(x, tau):
    length = torch.linalg.norm(x, ord=2)
    return x * (tau / length) if length > tau else x.clone()


@task.mistake(
    "value",
    "Your output is x, unclipped: torch.nn.utils.clip_grad_norm_, or a hook, clips a gradient and leaves x. Here x "
    "itself is clipped, and a new tensor returned.",
)
def gradient_clipped_instead(x, tau):
    torch.nn.utils.clip_grad_norm_([x], tau)
    return x.clone()


@task.mistake(
    "value",
    "Your norm is a dot product of vectors (dot, or @), which fails for a matrix and for a 0-d tensor. Sum the "
    "squares of all elements.",
)
def vectors_only(x, tau):
    length = torch.dot(x, x).sqrt()
    return x * (tau / length) if length > tau else x.clone()


@task.mistake(
    "value",
    "You scale x in place, which torch refuses for a leaf that requires a gradient and which is not yours to do. "
    "Return a new tensor.",
)
def writes_into_input(x, tau):
    length = x.norm()
    if length > tau:
        x *= tau / length
    return x


@task.mistake(
    "value",
    "Your argument is not called tau, so a caller who names it gets a TypeError. Use the names of the task's text.",
)
def argument_renamed(x, max_norm):
    return by_condition(x, max_norm)


@task.mistake(
    "zero",
    "At x = 0 your gradient is nan, because tau / norm (or a root) is differentiated there even where clamp or "
    "torch.where does not take it: keep the norm out of the graph where it does not count, by an if, or clamp the sum of "
    "squares before its root. The slope at 0 is infinite, and what is not taken multiplies it by 0.",
)
def nan_at_zero(x, tau):
    return x * (tau / x.norm()).clamp(max=1)


@task.mistake(
    "zero",
    "At x = 0 your gradient is right and your second derivative nan: the norm is in the graph there, behind a clamp "
    "or a where, and its second derivative at 0 is infinite. Keep the norm out of that branch, or clamp its square.",
)
def hessian_nan_at_zero(x, tau):
    return x * (tau / x.norm().clamp(min=tau))


@task.mistake(
    "zero",
    "At x = 0 your gradient is 0. The output is x in the whole ball around 0, so the gradient is the upstream "
    "gradient.",
)
def zero_at_zero(x, tau):
    return x * 0 if not x.any() else by_condition(x, tau)


@task.mistake(
    "zero",
    "At x = 0 your output has no graph: a constant tensor is returned there. Return a new tensor computed from x.",
)
def constant_at_zero(x, tau):
    return torch.zeros_like(x) if x.numel() and not x.any() else by_condition(x, tau)


@wrong.backward(
    "zero",
    "Your backward divides by the norm before it chooses the branch, so at x = 0 the derivative of your gradient is "
    "nan: torch.where multiplies the branch not taken by 0, and 0 * nan is nan. Choose first.",
)
def divides_first(ctx, x, g):
    length = x.norm()
    scaled = ctx.tau / length * (g - x * (x * g).sum() / length**2)
    return torch.where(length > ctx.tau, scaled, g), None


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is wrong: the norm was computed before backward and saved, so "
    "torch takes it for a constant. Save x and compute the norm in backward.",
    saves=lambda x, tau, y: (x, x.norm()),
)
def saves_norm(ctx, x, length, g):
    if length <= ctx.tau:
        return g.clone(), None
    return ctx.tau / length * (g - x * (x * g).sum() / length**2), None


@task.mistake(
    "contract",
    "Up to the length tau you return x itself, so the output shares its memory: changing one in place changes the "
    "other. Return a new tensor, x.clone().",
)
def input_returned(x, tau):
    length = x.norm()
    return x if length <= tau else x * (tau / length)


@task.mistake("value", FLOAT32)
def float32_inside(x, tau):
    return by_condition(x.float(), tau)


@task.mistake("value", FLOAT32_AND_BACK)
def float32_and_back(x, tau):
    return by_condition(x.float(), tau).to(x.dtype)


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(ctx, x, g):
    square = (x * x).sum()
    if square > ctx.tau**2:
        g.sub_(x * ((x * g).sum() / square)).mul_(ctx.tau / square.sqrt())
    return g, None
