"""round_ste: the straight-through estimator without a Function, by detach alone."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.aspects import contract, value
from graders.judge.task import DOUBLE, DTYPES, Check, Draw, Task
from graders.judge.wording import FLOAT32
from graders.sets.ste.common import MANNERS, layouts

PLACE = 3

NARROWED = (
    "You compute in float32 and cast back: float64 input loses half of its digits, and the value is no longer exact. "
    "Compute in the dtype of x."
)
ROUNDED = (*look.FORWARD[:-1], look.no_function, look.exact)
PASSED = (*look.FIRST[:4], look.differentiable, look.no_function, look.gradient, look.second_order)


def _between(draw: Draw) -> Callable[..., Tensor]:
    """Return a sampler of numbers between two integers, of both signs."""
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, reach=9.0, dtype=dtype)


def _of_a_dtype(draw: Draw, dtype: torch.dtype) -> Tensor:
    """Return small numbers, halves, and numbers of every size that the dtype holds, with few and with no binary places.

    The odd integers at the end of those that it holds are among them.
    """
    bits = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23, torch.float64: 52}[dtype]
    top = 15 if dtype == torch.float16 else 120 if dtype != torch.float64 else 1000
    powers = torch.tensor([bits - 2, bits - 1, bits, bits + 1, (bits + top) // 2, top], dtype=DOUBLE)
    large = draw.sides(6, away=1.01, reach=1.9) * 2**powers
    odd = torch.tensor([2 ** (bits - 1) + 1, 2**bits - 1, 2 ** (bits + 1) - 1], dtype=DOUBLE)
    return torch.cat([draw.between(-4, 4, 60), torch.arange(-4.5, 5, 0.5), large, odd, -odd]).to(dtype)


def _rounded(x: Tensor) -> Tensor:
    """Return torch.round with the gradient of the identity: by adding a zero."""
    return torch.round(x).detach() + (x - x.detach())


def only_where_x_does(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """Find an output that requires a gradient where x requires none."""
    if any(yours.differentiable) and not any(case.requires_grad):
        text = "The output requires a gradient although x does not, so torch builds graphs behind it for nothing."
        return look.Finding("function", text, {"case": look.describe(call, case)})
    return None


task = Task(
    "round_ste",
    "round_ste(x)",
    reference=_rounded,
    checks=(
        value(
            2,
            about="the output is torch.round(x) exactly, in every dtype, shape and layout, for every size",
            why="An output beside the grid is not a rounded number: what indexes a table or counts levels with it "
            "goes wrong.",
            cases=lambda d: [
                *layouts(d.forms(_between(d), order=0)),
                *(d.case(f"{str(t)[6:]} numbers of every size", _of_a_dtype(d, t), order=0) for t in DTYPES),
                d.case("every size", d.scales(12), order=0),
                d.case("an input that needs no gradient", d.sides(4, reach=9.0), order=0, requires=(False,)),
                *d.lopsided(lambda x: (x,), 5, order=0),
            ],
            looks=ROUNDED,
        ),
        Check(
            "gradient",
            2,
            about="the gradient is the upstream gradient, whatever x is, and can be differentiated again",
            why="Backward is to see the identity, as if nothing had been rounded.",
            cases=lambda d: [
                *layouts(d.forms(_between(d))),
                d.case("every size", d.scales(12), upstream=d.scales(12)),
                d.case("halves and integers", torch.arange(-2, 2.5, 0.5, dtype=DOUBLE)),
                *(d.case(f"{str(t)[6:]} numbers of every size", _of_a_dtype(d, t)) for t in DTYPES),
                d.case("differentiated again", _between(d)(6), order=2),
                *d.lopsided(lambda x: (x,), 5, order=2),
            ],
            looks=PASSED,
        ),
        contract(
            1,
            about="x stays as it was, and the output is a new tensor, made without a Function",
            why=MANNERS,
            cases=lambda d: [
                d.case("both signs", _between(d)(6), watch=("state", "overwrite")),
                d.case("a transposed input", _between(d)(3, 2).t()),
                d.case("forward alone", _between(d)(6), order=0),
                d.case("an input that needs no gradient", _between(d)(6), order=0, requires=(False,)),
                d.case("integers", torch.arange(-2, 3, dtype=DOUBLE)),
            ],
            looks=(*PASSED[:-1], only_where_x_does, look.untouched, look.stateless, look.guarded),
        ),
    ),
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
def by_difference(x):
    """The usual form, and the one to prefer: x stays in the graph, and what is added to it is a constant."""
    return x + (torch.round(x) - x).detach()


@task.solution
def by_adding_zero(x):
    """The rounded number, plus x - x, which carries the gradient: exact for other functions than round too."""
    return x.round().detach() + (x - x.detach())


@task.solution
def under_no_grad(x):
    """no_grad in place of detach: for a difference that takes several steps."""
    with torch.no_grad():
        step = x.round() - x
    return x.add(step)


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
def by_subtraction(x):
    """Takes the fraction away."""
    fraction = x.detach() - x.detach().round()
    return x - fraction


@task.solution
def half_detached(x):
    """round's own gradient is 0, so one detach is enough."""
    return x + (torch.round(x) - x.detach())


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class Round(Function):
    """What the text asks to do without."""

    @staticmethod
    def forward(x):
        return torch.round(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g


@task.mistake(
    "value",
    "The formula is right on paper and your value is not exact: (round(x) + x) - x.detach() rounds on the way, once "
    "at the sum. Put the parentheses so that the two numbers that are close, or equal, are subtracted first.",
)
def inexact_order(x):
    return torch.round(x).detach() + x - x.detach()


@task.mistake(
    "value", "Your value is 2x - round(x): the difference is taken the wrong way round. Add round(x) - x to x."
)
def difference_reversed(x):
    return x + (x - torch.round(x)).detach()


@task.mistake("value", "Your value is x + round(x): what is added to x has to be the difference, round(x) - x.")
def sum_for_difference(x):
    return x + torch.round(x).detach()


@task.mistake(
    "value",
    "floor(x + 0.5) rounds halves up: 0.5 gives 1. torch.round rounds them to the even number, 0.5 to 0 and 1.5 to 2.",
)
def halves_up(x):
    return x + (torch.floor(x + 0.5) - x).detach()


@task.mistake("value", "You cut the fraction off (trunc, or a conversion to int): 1.7 gives 1. Use torch.round.")
def truncated(x):
    return x + (torch.trunc(x) - x).detach()


@task.mistake("value", "Your value is x: torch.round is missing from what is detached.")
def not_rounded(x):
    return x.detach() + (x - x.detach())


@task.mistake("value", FLOAT32)
def float32_inside(x):
    x = x.float()
    return x + (torch.round(x) - x).detach()


@task.mistake("value", NARROWED)
def float32_and_back(x):
    return x + (torch.round(x.float()).to(x.dtype) - x).detach()


@task.mistake("value", NARROWED)
def float32_all_the_way_and_back(x):
    wide = x.float()
    return (wide + (torch.round(wide) - wide).detach()).to(x.dtype)


@task.mistake(
    "value",
    "You go through integers, which end at 2^31 or 2^63: larger numbers come back as something else. torch.round "
    "keeps the dtype.",
)
def through_integers(x):
    return x + (torch.round(x).to(torch.int32) - x).detach()


@task.mistake(
    "value",
    "x * (round(x) / x) is nan at 0 and not exact elsewhere, and its gradient is round(x) / x. Add a detached "
    "difference in place of multiplying by a ratio.",
)
def ratio_for_difference(x):
    return x * (torch.round(x) / x).detach()


@task.mistake(
    "gradient",
    "Your gradient is zero everywhere: x cancels in your formula, or enters through round alone, whose derivative is "
    "0. Detach the difference round(x) - x, and nothing else.",
)
def zeros_returned(x):
    return x + (torch.round(x) - x)


@task.mistake(
    "gradient",
    "All of your output is detached, so it needs no gradient and nothing reaches x. Detach the difference round(x) - "
    "x alone; the x that it is added to stays in the graph.",
)
def everything_detached(x):
    return (x + (torch.round(x) - x)).detach()


@task.mistake(
    "gradient",
    "Your gradient has the wrong sign: you detached the wrong x. The one that stays in the graph is added, not "
    "subtracted.",
)
def wrong_tensor_detached(x):
    return x.detach() + (torch.round(x) - x)


@task.mistake(
    "gradient",
    "requires_grad_ on a detached tensor makes a new leaf, which nothing connects to x: x gets no gradient. Add the "
    "detached difference to x.",
)
def new_leaf(x):
    return torch.round(x).detach().requires_grad_()


@task.mistake(
    "gradient",
    "Your gradient is 0 where |x| > 1: that ramp is Binarize's. round_ste passes the upstream gradient everywhere.",
)
def ramp_of_binarize(x):
    ramp = x.clamp(-1, 1)
    return torch.round(x).detach() + (ramp - ramp.detach())


@task.mistake(
    "gradient",
    "You clamp the gradient to [-1, 1] in a hook. The straight-through estimator of the text passes it unchanged.",
)
def clips_upstream(x):
    y = x + (torch.round(x) - x).detach()
    if y.requires_grad:
        y.register_hook(lambda g: g.clamp(-1, 1))
    return y


@task.mistake(
    "value",
    "Your numbers are right, and a torch.autograd.Function makes them. The text asks for the same without one: "
    "detach, and torch's own gradients of + and -.",
)
def by_a_function(x):
    return Round.apply(x)


@task.mistake(
    "contract",
    "You round x.detach() in place, and detach makes no copy: the caller's x is rounded too. Use torch.round, which "
    "makes a new tensor.",
)
def detach_taken_for_a_copy(x):
    rounded = x.detach().round_()
    return x + (rounded - x).detach()


@task.mistake(
    "contract",
    "Where every element of x is an integer already you return x itself: the caller who then changes the output in "
    "place changes x. The output is a new tensor, whatever x holds.",
)
def integers_as_they_are(x):
    return x if torch.equal(x, torch.round(x)) else x + (torch.round(x) - x).detach()


@task.mistake(
    "contract",
    "Your output requires a gradient where x requires none, so torch builds graphs behind it for nothing. Without "
    "requires_grad_ the output follows x.",
)
def always_requires_a_gradient(x):
    x = x if x.requires_grad else x.detach().requires_grad_()
    return x + (torch.round(x) - x).detach()


@task.mistake(
    "contract",
    "You round x itself, under no_grad or through .data, and return it: the caller's x is gone. Leave x as it is and "
    "return a new tensor.",
)
def writes_into_input(x):
    with torch.no_grad():
        x.round_()
    return x


@task.mistake(
    "contract",
    "You leave a hook on x, which is the caller's: it stays after your function has returned and answers for every "
    "other use of x. Detach the difference, and no hook is needed.",
)
def hook_on_the_input(x):
    rounded, seen = torch.round(x), []
    if x.requires_grad:
        rounded.register_hook(seen.append)
        x.register_hook(lambda g: seen[-1])
    return rounded


@task.mistake(
    "contract",
    "You switch x.requires_grad on, and x is the caller's: from then on torch builds graphs behind tensors that "
    "nobody trains. Leave it as it is; without it the rounded number alone is right.",
)
def switches_requires_grad_on(x):
    x.requires_grad_()
    return x + (torch.round(x) - x).detach()
