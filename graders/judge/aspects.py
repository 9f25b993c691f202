"""The four checks that nearly every task has, with what each looks at and why it matters."""

from collections.abc import Callable

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.draw import Draw
from graders.judge.task import Check

Cases = Callable[[Draw], list[Case]]
Point = Callable[[Draw], tuple[object, ...]]

WATCHED = ("state", "overwrite", "trace")  # all that a case can watch
VALUE = (*look.FORWARD[:-1], look.precise, look.value)
GRADIENT = (*look.FIRST[:-1], look.precise, look.gradient)


def value(
    points: float,
    *,
    about: str,
    cases: Cases,
    why: str = "Everything after forward is computed from these numbers, so start here.",
    looks: tuple[look.Look, ...] = VALUE,
) -> Check:
    """Return the check of the output's numbers."""
    return Check("value", points, about=about, why=why, cases=cases, looks=looks)


def gradient(
    points: float,
    *,
    about: str,
    why: str,
    cases: Cases,
    gradcheck: Point | None,
    looks: tuple[look.Look, ...] = GRADIENT,
) -> Check:
    """Return the check of the gradients' numbers, by torch's gradcheck too."""
    return Check("gradient", points, about=about, why=why, cases=cases, looks=looks, gradcheck=gradcheck)


def second_order(
    points: float,
    *,
    cases: Cases,
    gradcheck: Point | None,
    about: str = "the gradient can be differentiated again",
    why: str = "A Hessian, a gradient penalty or a physics loss differentiates your backward.",
    looks: tuple[look.Look, ...] = look.SECOND,
) -> Check:
    """Return the check of the numbers of the gradient's gradient, by torch's gradgradcheck too."""
    return Check("second_order", points, about=about, why=why, cases=cases, looks=looks, gradcheck=gradcheck, order=2)


def contract(
    points: float,
    *,
    cases: Cases,
    about: str = "the caller's tensors stay untouched; backward's go through save_for_backward",
    why: str = "Tensors that your Function did not make belong to others.",
    looks: tuple[look.Look, ...] = look.CONTRACT,
) -> Check:
    """Return the check of whether what belongs to others stays as it was."""
    return Check("contract", points, about=about, why=why, cases=cases, looks=looks)
