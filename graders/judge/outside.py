"""What is kept for backward, seen in the memory of the submission's process: nobody's word is asked for it.

Forward runs on arguments so large that a tensor too many cannot be missed, their owner lets go of them, and the grader
reads how much the process holds. Then it asks for the gradient: what was kept has to be enough for it.

A process may hold something before, and let go of it while it is weighed. So forward runs as often, and all outputs are
held at a time, that what would be kept too many is more than all that it could let go of.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from graders.inside.operation import Operation, local
from graders.judge.draw import Draw
from graders.judge.looks import Finding, number, parameters, wrong_at

OUTSIDE = "outside"  # the look's name
SLACK = 3 << 20  # bytes that a process may grow by the way: lists of the allocator, pages in whole
TRIES = 3  # a process that holds too much is asked again: what it did for the first time is no concern of its author's
ELEMENTS = 500  # of each gradient, at random
UPSTREAM = 1.5
MOST = 640 << 20  # bytes of arguments and outputs that are held at a time,
OFTEN = 40  # and how many outputs
TOO_MUCH = "found {} MB held before it weighed what backward keeps: too much to tell apart"


@dataclass(frozen=True)
class Weighed:
    """What is asked from outside, and what is right.

    Args:
        args: the arguments.
        requires_grad: which of them require a gradient.
        elements: which elements of which gradients are asked for.
        size: bytes of the output, and of the arguments that stay.
        given: bytes of the arguments.
        right: the gradients' elements.
    """

    args: tuple[Any, ...]
    requires_grad: tuple[bool, ...]
    elements: tuple[tuple[int, Tensor], ...]
    size: int
    given: int
    right: tuple[Tensor | None, ...]

    @property
    def most(self) -> int:
        """How many outputs are held at a time at most."""
        return max(1, min(OFTEN, MOST // (self.size + self.given)))


@dataclass(frozen=True)
class Outside:
    """How a check looks from outside.

    Args:
        args: large arguments.
        says: what may be kept: "the output".
        least: bytes of the smallest thing that somebody would keep too many.
        keeps: whether the arguments may be kept.
        more: bytes that may be kept beside.
    """

    args: Callable[[Draw], tuple[Any, ...]]
    says: str
    least: int
    keeps: bool = False
    more: int = 0

    def weighed(self, draw: Draw, reference: Callable[..., Any]) -> Weighed:
        """Return what is asked, and what the reference answers."""
        args = self.args(draw)
        flags = tuple(isinstance(a, Tensor) and a.is_floating_point() for a in args)
        tensors = {i: a for i, a in enumerate(args) if flags[i]}
        elements = tuple((i, draw.places(a.numel(), ELEMENTS)) for i, a in tensors.items())
        seen: list[int] = []

        def sized(*given: Any) -> Any:
            output = reference(*given)
            seen.append(output.numel() * output.element_size())
            return output

        right = local(sized)
        right.memory = lambda: 0
        found = right.held(args, flags, self.keeps, UPSTREAM, elements)
        assert found is not None  # it has a memory
        given = sum(a.numel() * a.element_size() for a in tensors.values())
        return Weighed(args, flags, elements, seen[0] + given * self.keeps, given, tuple(found.grads[0]))

    def find(self, call: str, operation: Operation, asked: Weighed) -> Finding | None:
        """Return what the memory shows that may not be, or that what was kept is not enough."""
        held: list[float] = []
        right = asked.size + self.more
        times = partial(self._times, most=asked.most)
        for _ in range(TRIES):
            seen = operation.held(asked.args, asked.requires_grad, self.keeps, UPSTREAM, asked.elements, times)
            if seen is None:
                return None
            count = len(seen.grads)
            apart = count >= self._needed(seen.before)
            if seen.grown <= count * right + SLACK and (apart or not held):
                if not apart:
                    operation.tell(TOO_MUCH.format(_mega(seen.before)))
                return next((found for grads in seen.grads if (found := _insufficient(call, asked, grads))), None)
            held.append(seen.grown / count)
        case = ", ".join(f"{n} of shape {tuple(a.shape)}" for n, a in _named(call, asked.args) if isinstance(a, Tensor))
        text = f"Beside {self.says} your code keeps memory: its process holds more than that needs after forward."
        evidence = {"case": case, "yours": f"{_mega(min(held))} MB", "expected": f"{_mega(right)} MB"}
        return Finding(OUTSIDE, text, evidence)

    def _needed(self, before: int) -> int:
        """Return how many outputs have to be held at a time, where so many bytes may be let go of meanwhile."""
        return 1 + (max(0, before) + SLACK) // self.least

    def _times(self, before: int, most: int) -> int:
        """Return how many are held; where that would be too much, one: who holds so much loses nothing by it."""
        return needed if (needed := self._needed(before)) <= most else 1


def _mega(size: float) -> str:
    return f"{size / (1 << 20):.0f}"


def _named(call: str, args: tuple[Any, ...]) -> list[tuple[str, Any]]:
    return list(zip(parameters(call), args, strict=False))


def _insufficient(call: str, asked: Weighed, grads: list[Tensor | None]) -> Finding | None:
    """Return that what was kept does not give the gradient."""
    for (place, _), mine, right in zip(asked.elements, grads, asked.right, strict=True):
        if right is None:
            continue
        name = _named(call, asked.args)[place][0]
        if mine is None or mine.dtype != right.dtype:
            return Finding(OUTSIDE, f"On large arguments the gradient with respect to {name} does not arrive.")
        if (index := wrong_at(mine, right)) is not None:
            told = {"yours": number(mine[index]), "expected": number(right[index])}
            return Finding(OUTSIDE, f"On large arguments the gradient with respect to {name} is wrong.", told)
    return None
