"""What the tasks of set 05 share."""

from collections.abc import Callable

import torch
from torch import Tensor

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.aspects import VALUE, WATCHED, contract, gradient, second_order, value
from graders.judge.task import DOUBLE, DTYPES, HALF, MASKS, SINGLE, Check, Draw

EDGE_BY_TOLERANCE = (
    "You compare with an edge by a tolerance (isclose, or an epsilon), so x that lies beside it counts as on it. An "
    "edge is one number: compare with <, <=, > and >=."
)
BOUND_IN_FLOAT32 = (
    "torch.tensor({name}) is float32, in which 1/3 is 0.33333334 and 0.7 is 0.69999999, so a float64 x at or beside "
    "{name} counts for the wrong side: keep the number itself, ctx.{name} = {name}. Where a tensor is wanted, give it the "
    "dtype of x: torch.tensor({name}, dtype=x.dtype)."
)
FLOAT32_IN_PLACE = (
    "For float32 input your forward changes the caller's x: x.float() makes no copy of what is float32 already, and "
    "what follows works in place. Leave the in-place operation out."
)
PENALTY = "A gradient penalty differentiates your backward, with respect to the upstream gradient too."
TENSORS_SAVED = "the caller's tensors stay untouched; those that backward needs are saved"
INFINITY = float("inf")
NAN = float("nan")
BOTH = (*look.FIRST[:-1], look.dtype, look.precise, look.value, look.gradient)
BOTH_ORDERS = (*BOTH, look.second_order)


def mannerly(looks: tuple[look.Look, ...]) -> tuple[look.Look, ...]:
    """Return the looks of a contract: what is changed in place comes before the numbers that it spoils."""
    return (*looks[:4], look.untouched, *looks[4:], look.stateless, look.guarded, look.allowed)


def keeps_nan(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """Find where the output should be nan and is not."""
    for a, b in zip(yours.outputs, expected.outputs, strict=True):
        if (wrong := b.isnan() & ~a.isnan()).any():
            index = tuple(wrong.nonzero()[0].tolist())
            text = f"Wrong value at index {index}, where x is nan: a nan that is hidden is found later, elsewhere."
            evidence = {"case": look.describe(call, case), "yours": look.number(a[index]), "expected": "nan"}
            return look.Finding("value", text, evidence)
    return None


def regions(draw: Draw, low: float, high: float) -> Callable[..., Tensor]:
    """Return a sampler of numbers inside, above and below (low, high) in turn, away from both edges."""
    width = high - low

    def sample(*shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
        far = draw.between(0.1, 0.9, *shape) * width
        turn = torch.arange(far.numel()).reshape(shape) % 3
        return torch.where(turn == 0, low + far, torch.where(turn == 1, high + far, low - far)).to(dtype)

    return sample


def edges(draw: Draw, low: float, high: float, *rest: object) -> list[Case]:
    """Return cases on both edges, in every dtype.

    A half holds 1.5 and 0.25, so there is no question which side they are on.
    """
    cases = []
    for dtype in DTYPES:
        x = torch.tensor([low - 1, low, (low + high) / 2, high, high + 1, -0.0], dtype=dtype)
        upstream = torch.tensor([1, 0.5, -0.25, 0.75, -0.125, 0.375], dtype=dtype)
        given = [r.to(dtype) if isinstance(r, Tensor) else r for r in rest]
        cases.append(draw.case("on the edges", x, *given, upstream=upstream))
    return cases


def beside(draw: Draw, low: float) -> list[tuple[float, Tensor]]:
    """Return bounds that are not round, each with x so near the edges that comparing with a tolerance mistakes it."""
    high = 1 / 3
    near = [edge + side * max(abs(edge), 1e-3) * 1e-6 for edge in (low * high, high) for side in (-1, 1)]
    end, up = torch.tensor(1.5), torch.tensor(INFINITY)
    steps = [torch.nextafter(end, -up), torch.nextafter(end, up)]
    steps += [-s for s in steps] if low else [torch.tensor(1e-9), torch.tensor(-1e-9)]
    return [(high, torch.tensor(near, dtype=DOUBLE)), (1.5, torch.stack(steps))]


def digits(low: float) -> list[tuple[str, float, Tensor]]:
    """Return bounds that float32 rounds, up and down, each with float64 x that end on the wrong side of what it makes."""
    sides = (low, 1) if low else (1,)
    return [
        (name, bound, torch.tensor([side * bound * inside for side in sides], dtype=DOUBLE))
        for name, bound, inside in (("on the edge of a third", 1 / 3, 1), ("just inside 0.7", 0.7, 1 - 1e-8))
    ]


def far_out(dtype: torch.dtype = DOUBLE) -> Tensor:
    """Return numbers as large as they come, infinite ones too, and two ordinary ones."""
    return torch.tensor([-INFINITY, -1e4, 0.0, 1.0, 1e4, INFINITY], dtype=dtype)


def bounded_checks(points: dict[str, float], low: float, name: str) -> tuple[Check, ...]:
    """Return the checks of a clip to [low * bound, bound], the bound a number called `name`."""

    def sample(draw: Draw, bound: float = 1.5) -> Callable[..., Tensor]:
        return regions(draw, low * bound, bound)

    def slopes(d: Draw) -> list[Case]:
        return [
            d.case("below, inside and above", sample(d)(8), 1.5),
            *edges(d, low * 1.5, 1.5, 1.5),
            *(d.case("beside the edges", x, bound) for bound, x in beside(d, low)),
            *(d.case(where, x, bound) for where, bound, x in digits(low)),
            d.case("every size", d.scales(12), 1.0, upstream=d.scales(12)),
            d.case("infinite x", far_out(), 1.5),
            *d.forms(sample(d), 1.5)[len(DTYPES) :],  # the edges stand in every dtype already
            *d.lopsided(lambda x: (x, 1.5), 5),
        ]

    def numbers(d: Draw) -> list[Case]:
        return [
            *(d.case(f"{name} {c}", sample(d, c)(6), c) for c in (0.01, 1 / 3, 6.0)),
            d.case(f"{name} 1e20", torch.cat([d.sides(4), torch.tensor([3e20], dtype=DOUBLE)]), 1e20),
            d.case(f"float16, {name} 0.25", sample(d, 0.25)(6, dtype=HALF), 0.25),
            d.case(f"{name} 6, on the edges", torch.tensor([low * 6, 6.0], dtype=SINGLE), 6.0),
            d.case(f"{name} by keyword", sample(d, 0.3)(6), 0.3, keywords=(name,)),
        ]

    return (
        value(
            points["value"],
            about="the output equals torch's in every dtype, shape and layout; nan stays nan",
            why="Forward is what later numbers rest on.",
            cases=lambda d: [
                *d.forms(sample(d), 1.5, order=0),
                d.case("every size", d.scales(12), 1.0, order=0),
                *(d.case("infinite x", far_out(t), 1.5, order=0) for t in (HALF, DOUBLE)),
                d.case("nan among others", torch.tensor([NAN, 1.0, -1.0, NAN, 3.0], dtype=DOUBLE), 1.5, order=0),
                *d.lopsided(lambda x: (x, 1.5), 5, order=0),
            ],
            looks=(*VALUE, keeps_nan),
        ),
        gradient(
            points["gradient"],
            about="the gradient equals torch's, at both edges too, and gradcheck passes away from them",
            why="These numbers are all that an optimiser ever learns of your Function.",
            cases=slopes,
            looks=BOTH,
            gradcheck=lambda d: (sample(d)(6), 1.5),
        ),
        Check(
            f"{name}s",
            points[f"{name}s"],
            about=f"every float above 0 is a {name}, by position or by keyword",
            why=f"The {name} is an argument: value and gradient have to follow it.",
            cases=numbers,
            looks=BOTH,
        ),
        second_order(
            points["second_order"],
            why=PENALTY,
            cases=lambda d: [
                d.case("below, inside and above", sample(d)(6), 1.5, order=2),
                *d.lopsided(lambda x: (x, 1.5), 5, order=2),
            ],
            looks=BOTH_ORDERS,
            gradcheck=lambda d: (sample(d)(5), 1.5),
        ),
        contract(
            points["contract"],
            about=TENSORS_SAVED,
            cases=lambda d: [
                d.case(
                    "below, inside and above",
                    sample(d)(6),
                    1.5,
                    watch=WATCHED,
                    deny=MASKS,
                    between=(sample(d, 0.7)(6).roll(1), 0.1),
                ),
                d.case("inside alone", sample(d)(3)[:1], 1.5, watch=("overwrite",)),
                d.case("float32 input", sample(d)(6, dtype=SINGLE), 1.5),
            ],
            looks=mannerly(BOTH),
        ),
    )


def alpha_of(number: float, *shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
    """Return the number as a tensor that can learn."""
    return torch.full(shape, number, dtype=dtype)


def learnable_checks(low: float) -> tuple[Check, ...]:
    """Return the checks of a clip to [low * alpha, alpha], alpha a tensor."""

    def sample(draw: Draw, alpha: float = 1.5) -> Callable[..., Tensor]:
        return regions(draw, low * alpha, alpha)

    def forms(d: Draw, order: int) -> list[Case]:
        inputs = [(c.name, c.args[0]) for c in d.forms(sample(d), order=0)]
        return [d.case(name, x, alpha_of(1.5, dtype=x.dtype), order=order) for name, x in inputs]

    def slopes(d: Draw) -> list[Case]:
        x = sample(d)(9)
        return [
            d.case("below, inside and above", x, alpha_of(1.5)),
            *edges(d, low * 1.5, 1.5, alpha_of(1.5)),
            *(d.case("beside the edges", x, alpha_of(bound, dtype=x.dtype)) for bound, x in beside(d, low)),
            *(d.case(where, x, alpha_of(bound)) for where, bound, x in digits(low)),
            d.case("nothing at or above alpha", x.clamp(max=1.25), alpha_of(1.5)),
            d.case("every size", d.scales(12), alpha_of(1.0), upstream=d.scales(12)),
            d.case("a large alpha", torch.cat([d.sides(4), torch.tensor([3e20], dtype=DOUBLE)]), alpha_of(1e20)),
            *forms(d, 1)[len(DTYPES) :],  # the edges stand in every dtype already
            d.case(
                "an expanded upstream gradient",
                sample(d)(2, 2, 3),
                alpha_of(1.5),
                upstream=d.normal(2, 1, 3).expand(2, 2, 3),
            ),
            *d.lopsided(lambda x: (x, alpha_of(1.5)), 5),
        ]

    def shapes(d: Draw) -> list[Case]:
        x = sample(d)(2, 3)
        given = (("2-d", x, (1,)), ("0-d, above", x[0, 1].clone(), (1,)))
        given += (("1-d", x[0].clone(), (1, 1)), ("0-d, inside", x[0, 0].clone(), (1, 1)))
        return [
            *(d.case(f"alpha of shape {s}, x {what}", x, alpha_of(1.5, *s)) for what, x, s in given),
            d.case("x empty, alpha of shape (1,)", sample(d)(0, 3), alpha_of(1.5, 1)),
            d.case("float16, alpha of shape (1,)", x.half(), alpha_of(1.5, 1, dtype=HALF)),
            d.case("alpha by keyword", x, alpha_of(1.5), keywords=("alpha",)),
        ]

    def subsets(d: Draw) -> list[Case]:
        return [
            d.case(f"{name} requires a gradient", sample(d)(2, 3), alpha_of(1.5, *s), requires=flags)
            for s in ((), (1,))
            for name, flags in (("x alone", (True, False)), ("alpha alone", (False, True)))
        ]

    return (
        value(
            1,
            about="the output equals torch.clamp's in every dtype, shape and layout, at infinite x too",
            why="Forward is what later numbers rest on.",
            cases=lambda d: [
                *forms(d, 0),
                d.case("every size", d.scales(12), alpha_of(1.0), order=0),
                *(d.case("infinite x", far_out(t), alpha_of(1.5, dtype=t), order=0) for t in (HALF, DOUBLE)),
                *d.lopsided(lambda x: (x, alpha_of(1.5)), 5, order=0),
            ],
        ),
        gradient(
            1,
            about="x and alpha get what the text says, at both edges too, and gradcheck passes away from them",
            why="These numbers are all that an optimiser ever learns of your Function, and alpha learns from its own alone.",
            cases=slopes,
            looks=BOTH,
            gradcheck=lambda d: (sample(d)(6), alpha_of(1.5)),
        ),
        Check(
            "shapes",
            1,
            about="alpha of shape (), (1,) or (1, 1): the output has x's shape, and each gradient its input's",
            why="A parameter of one element comes in several shapes.",
            cases=shapes,
            looks=BOTH,
        ),
        Check(
            "subsets",
            1,
            about="x alone, or alpha alone, may require a gradient",
            why="A layer may be frozen, and the first layer's input never requires a gradient.",
            cases=subsets,
            looks=BOTH,
        ),
        second_order(
            1,
            why=PENALTY,
            cases=lambda d: [
                d.case("below, inside and above", sample(d)(6), alpha_of(1.5), order=2),
                d.case(
                    "alpha alone requires a gradient", sample(d)(6), alpha_of(1.5, 1), order=2, requires=(False, True)
                ),
                *d.lopsided(lambda x: (x, alpha_of(1.5)), 5, order=2),
            ],
            looks=BOTH_ORDERS,
            gradcheck=lambda d: (sample(d)(6), alpha_of(1.5)),
        ),
        contract(
            1,
            about=TENSORS_SAVED,
            cases=lambda d: [
                d.case(
                    "below, inside and above",
                    sample(d)(6),
                    alpha_of(1.5),
                    watch=WATCHED,
                    deny=MASKS,
                    between=(sample(d, 0.7)(6).roll(1), alpha_of(0.7)),
                ),
                d.case("inside alone", sample(d)(3)[:1], alpha_of(1.5), watch=("overwrite",)),
                d.case("float32 inputs", sample(d)(6, dtype=SINGLE), alpha_of(1.5, dtype=SINGLE)),
            ],
            looks=mannerly(BOTH),
        ),
    )
