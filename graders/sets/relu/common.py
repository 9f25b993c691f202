"""What the tasks of set 01 share."""

import torch

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import WATCHED, contract, gradient, second_order, value
from graders.judge.task import DOUBLE, DTYPES, MASKS, Check, Draw

DENIED = (*MASKS, "aten::tanh_backward")  # torch's own backwards
INFINITY = float("inf")
ENDS = torch.tensor([INFINITY, -INFINITY, 1e4, -1e4, INFINITY, -INFINITY], dtype=DOUBLE)


def kinked_checks(points: dict[str, float], *rest: float) -> tuple[Check, ...]:
    """Return the checks of an operation with a kink at 0, those of them that earn points.

    Args:
        rest: its arguments after x.
    """

    def slopes(d: Draw) -> list[Case]:
        kink = torch.tensor([-1.0, -0.0, 0.0, 1.0], dtype=DOUBLE)
        return [
            d.case("both signs", d.sides(8), *rest),
            d.case("every size", d.scales(12), *rest, upstream=d.scales(12)),
            *(d.case("at 0", kink.to(t), *rest, upstream=torch.ones_like(kink, dtype=t)) for t in DTYPES),
            *(d.case("at 0, another slope", kink, 3.0, upstream=torch.ones_like(kink)) for _ in rest),
            *d.forms(d.sides, *rest),
            *d.lopsided(lambda x: (x, *rest), 5),
        ]

    checks = (
        value(
            points.get("value", 0),
            about="the output equals torch's in every dtype, shape and layout",
            why="Forward is what later numbers rest on.",
            cases=lambda d: [
                d.case("every size", d.scales(12), *rest, order=0),
                *d.forms(d.sides, *rest, order=0),
                *d.lopsided(lambda x: (x, *rest), 5, order=0),
            ],
        ),
        gradient(
            points.get("gradient", 0),
            about="the gradient equals torch's, at 0 too, and gradcheck passes away from 0",
            why="These numbers are all that an optimiser ever learns of your Function.",
            cases=slopes,
            gradcheck=lambda d: (d.sides(6), *rest),
        ),
        Check(
            "infinite",
            points.get("infinite", 0),
            about="infinite upstream gradients pass as they do in torch, without nan",
            why="One nan in a gradient ends a training run.",
            cases=lambda d: [d.case("infinite upstream gradients", d.sides(6), *rest, upstream=ENDS)],
            looks=look.FIRST,
        ),
        second_order(
            points.get("second_order", 0),
            why="A gradient penalty differentiates your backward, with respect to the upstream gradient too.",
            cases=lambda d: [
                d.case("both signs", d.sides(6), *rest, order=2),
                *d.lopsided(lambda x: (x, *rest), 5, order=2, zeros=False),
                *(d.case("another slope, large", d.sides(6, away=30, reach=60), -0.7, order=2) for _ in rest),
            ],
            gradcheck=lambda d: (d.sides(4), *rest),
        ),
        contract(
            points.get("contract", 0),
            cases=lambda d: [
                d.case("both signs", d.sides(6), *rest, watch=WATCHED, deny=DENIED),
                d.case("every size", d.scales(4, 3), *rest),
            ],
        ),
    )
    return tuple(check for check in checks if check.points)
