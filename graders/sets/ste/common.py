"""What the tasks of set 03 share."""

from collections.abc import Callable

import torch
from torch import Tensor

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.aspects import GRADIENT, WATCHED, contract, gradient, second_order, value
from graders.judge.task import DOUBLE, DTYPES, HALF, MASKS, Check, Draw

MANNERS = "Memory is looked at here, and these numbers first: a gradient that is wrong elsewhere is wrong here too."
AGAIN = "the gradient can be differentiated again, by the upstream gradient"
PENALTY = "A gradient penalty differentiates your backward."
INFINITY = float("inf")
EXACT = (*look.FORWARD[:-1], look.exact)


def layouts(cases: list[Case]) -> list[Case]:
    """Return `Draw.forms` without its one case for each dtype, where other cases have the dtypes already."""
    return [c for c in cases if c.name not in {f"a {str(t)[6:]} input" for t in DTYPES}]


# --- Two values, and the gradient of a clamp --------------------------------------------------------------------------


def two_valued(low: float, width: float) -> Callable[[Tensor], Tensor]:
    """Return the function that is `low` or 1, with the gradient of a clamp of slope 1 where |x| <= width.

    The gradient is that of torch's own clamp, which adds 0.
    """

    def reference(x: Tensor) -> Tensor:
        ramp = x.clamp(-width, width)
        above = x >= 0 if low else x > 0
        return torch.where(above, 1.0, low).to(x.dtype) + (ramp - ramp.detach())

    return reference


def ramp_and_beyond(draw: Draw, width: float) -> Callable[..., Tensor]:
    """Return a sampler of numbers of both signs in turn, in pairs near the ramp's edge, beyond it and near 0."""

    def sample(*shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
        size = torch.Size(shape).numel()
        part = torch.arange(size) // 2 % 3
        low, high = torch.tensor([0.6, 1.05, 0.05])[part], torch.tensor([0.95, 2.0, 0.4])[part]
        signs = 1.0 - 2.0 * (torch.arange(size) % 2)
        return (width * signs * (low + (high - low) * draw.between(0, 1, size))).reshape(shape).to(dtype)

    return sample


def beside(edge: float, dtype: torch.dtype) -> Tensor:
    """Return an edge of the ramp, of both signs, and the numbers next to it."""
    step = torch.finfo(dtype).eps * edge
    numbers = [edge, edge + step, edge - step / 2, 0.0]
    return torch.tensor([*numbers, *(-n for n in numbers)], dtype=dtype)


def beside_zero(dtype: torch.dtype) -> Tensor:
    """Return both zeros, and the smallest numbers of both signs that have all their digits."""
    tiny = torch.finfo(dtype).tiny
    return torch.tensor([0.0, -0.0, tiny, -tiny], dtype=dtype)


def two_valued_checks(width: float, points: dict[str, float], low: str, surrogate: str) -> tuple[Check, ...]:
    """Return the checks of an operation with two values.

    Args:
        width: the gradient passes where |x| <= width.
        points: by the check's name; 0 for those that are left out.
        low: the lower of the two values, as a grade cell prints it.
        surrogate: the function whose gradient is meant.
    """
    ends = torch.tensor([INFINITY, -INFINITY], dtype=DOUBLE)
    infinite = torch.tensor([INFINITY, -INFINITY, INFINITY, -INFINITY, 1e4, -1e4] * 2, dtype=DOUBLE)

    def sample(draw: Draw) -> Callable[..., Tensor]:
        return ramp_and_beyond(draw, width)

    return (
        value(
            points.get("value", 0),
            about=f"the output is {low} or 1, as the text says, in every dtype, shape and layout",
            cases=lambda d: [
                *layouts(d.forms(sample(d), order=0)),
                d.case("every size", torch.cat([d.scales(12), ends]), order=0),
                *(d.case("at 0 and beside it", beside_zero(t), order=0) for t in DTYPES),
                *d.lopsided(lambda x: (x,), 5, order=0),
            ],
            looks=EXACT,
        ),
        gradient(
            points.get("gradient", 0),
            about=f"the gradient is that of {surrogate}, at its edges too, for any upstream gradient",
            why="This is the gradient that you chose, so nothing but this comparison can prove it.",
            cases=lambda d: [
                d.case("inside and outside the ramp", torch.cat([sample(d)(12), ends])),
                d.case("every size", d.scales(12), upstream=d.scales(12)),
                *(d.case("at the edges and beside them", beside(width, t)) for t in DTYPES),
                *layouts(d.forms(sample(d))),
                *d.lopsided(lambda x: (x,), 5),
            ],
            gradcheck=None,
        ),
        Check(
            "infinite",
            points.get("infinite", 0),
            about="an infinite upstream gradient passes on the ramp and gives 0 elsewhere, never nan",
            why="One nan in a gradient ends a training run.",
            cases=lambda d: [d.case("infinite upstream gradients", sample(d)(12), upstream=infinite)],
            looks=GRADIENT,
        ),
        second_order(
            points.get("second_order", 0),
            about=AGAIN,
            why=PENALTY,
            cases=lambda d: [
                d.case("inside and outside the ramp", sample(d)(12), order=2),
                d.case("a matrix", sample(d)(2, 3), order=2),
                *d.lopsided(lambda x: (x,), 5, order=2),
            ],
            gradcheck=None,
        ),
        contract(
            points.get("contract", 0),
            about="the caller's tensors stay untouched; changing one before backward spoils no gradient",
            why=MANNERS,
            cases=lambda d: [
                d.case("inside and outside", sample(d)(6), watch=WATCHED, deny=MASKS),
                d.case("every size", d.scales(4, 3)),
            ],
        ),
    )


# --- The same number, another gradient --------------------------------------------------------------------------------

FACTOR = 0.75  # every dtype holds it: what rounds the number loses the one check that is about numbers


def scaled(x: Tensor, factor: float) -> Tensor:
    """Return x, a new tensor, with the gradient times the factor: by a hook, in place of a Function."""
    y = x.clone()
    if y.requires_grad:
        y.register_hook(lambda g: factor * g)
    return y


def output_is_free(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """Find an output that cannot be changed in place before backward."""
    for what, grads in yours.overwritten:
        if what == "the output" and grads is None:
            text = (
                "When your output is changed in place before backward, torch raises; here it has to be free for that."
            )
            return look.Finding("guarded", text, {"case": look.describe(call, case)})
    return None


def scaled_checks(points: dict[str, float], name: str, times: str) -> tuple[Check, ...]:
    """Return the checks of an operation that changes the gradient alone.

    Args:
        points: by the check's name; 0 for those that are left out.
        name: the second argument's.
        times: what the gradient is, as a grade cell prints it.
    """
    ends = torch.tensor([INFINITY, -INFINITY, 0.0], dtype=DOUBLE)

    def numbers(d: Draw) -> list[Case]:
        ordinary = (0.3, 0, 0.0, -1.0, -0.7, 3, 40.0, -3_000_000, 1e40)
        in_dtypes = zip(DTYPES[:3], (2, -0.25, 0), strict=True)
        return [
            *(d.case(f"{name} {n}", d.sides(4), n) for n in ordinary),
            *(d.case(f"{str(t)[6:]}, {name} {n}", d.sides(4, dtype=t), n) for t, n in in_dtypes),
            d.case(
                f"float16, {name} larger than any float16",
                d.sides(4, dtype=HALF),
                1e5,
                upstream=1e-3 * d.sides(4, dtype=HALF),
            ),
            d.case(f"{name} by keyword", d.sides(4), 0.3, keywords=(name,)),
            d.case("both by keyword", d.sides(4), -2.0, keywords=("x", name)),
            d.case(f"{name} -0.7, large inputs", d.sides(4, away=30, reach=60), -0.7),
        ]

    return (
        value(
            points.get("value", 0),
            about="the output equals x exactly, in every dtype, shape and layout",
            why="Forward is to leave the numbers alone.",
            cases=lambda d: [
                *d.forms(d.sides, FACTOR, order=0),
                d.case("every size", d.scales(12), FACTOR, order=0),
                d.case("infinite inputs", ends, FACTOR, order=0),
                *d.lopsided(lambda x: (x, FACTOR), 5, order=0),
            ],
            looks=EXACT,
        ),
        gradient(
            points.get("gradient", 0),
            about=f"the gradient is {times}, whatever the size of either",
            why="Everything before this operation learns from these numbers.",
            cases=lambda d: [
                d.case("both signs", d.sides(7), FACTOR),
                d.case("every size", d.scales(12), FACTOR, upstream=d.scales(12)),
                d.case("infinite inputs", ends, FACTOR),
                *layouts(d.forms(d.sides, FACTOR)),
                *d.lopsided(lambda x: (x, FACTOR), 5),
            ],
            gradcheck=None,
        ),
        Check(
            f"{name}s",
            points.get(f"{name}s", 0),
            about=f"{name} may be any int or float: 0, negative, large, by position or by keyword",
            why="The number is a factor as it stands: of any size, of either sign, with all its digits.",
            cases=numbers,
            looks=(*GRADIENT, look.value),
        ),
        second_order(
            points.get("second_order", 0),
            about=AGAIN,
            why=PENALTY,
            cases=lambda d: [
                d.case("both signs", d.sides(6), FACTOR, order=2),
                d.case("a matrix", d.sides(2, 3), -FACTOR, order=2),
                *d.lopsided(lambda x: (x, FACTOR), 5, order=2),
                d.case(f"a negative {name}, large inputs", d.sides(4, away=30, reach=60), -FACTOR, order=2),
            ],
            gradcheck=None,
        ),
        contract(
            points.get("contract", 0),
            about="a new output that may be changed in place; the caller's tensors stay untouched",
            why=MANNERS,
            cases=lambda d: [
                d.case("both signs", d.sides(6), FACTOR, watch=WATCHED, deny=MASKS),
                d.case("a transposed input", d.sides(3, 2).t(), FACTOR),
                d.case("every size", d.scales(4, 3), FACTOR),
            ],
            looks=(*look.CONTRACT, output_is_free),
        ),
    )
