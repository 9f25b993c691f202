"""What the tasks of set 04 share."""

from collections.abc import Callable

import torch
from torch import Tensor

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.looks import Finding
from graders.judge.task import DOUBLE, Draw


def precise(or_else: str) -> look.Look:
    """Return `look.precise` with another thing that costs digits in its message."""

    def precise(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
        found = look.precise(call, case, yours, expected)
        text = f"In float64 about half of your digits are right: something narrows them to float32, or {or_else}."
        return found and Finding(found.look, text, found.evidence)

    return precise


DIVIDED = precise("a division by nearly 0 has lost them")
FORWARD = (*look.FORWARD[:-1], DIVIDED, look.value)
FIRST = (*look.FIRST[:-1], DIVIDED, look.gradient)
SECOND = (*FIRST, look.second_order)

ENDS = torch.tensor([-1.0, 1.0], dtype=DOUBLE)


def inside_and_out(draw: Draw) -> Callable[..., Tensor]:
    """Return what draws numbers inside and outside of [-1, 1], of a shape and a dtype."""
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, reach=1.5, dtype=dtype)
