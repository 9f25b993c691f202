"""Find the task that an answer is meant for: by its name, and where two sets have a task of one name, by the set."""

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from torch import Tensor

import graders.sets
from graders.inside.operation import Operation, Responder
from graders.judge.task import Task
from graders.judge.testfile import FileTask

ORDER = (  # of the chapters, then of the appendices
    "relu",
    "sigmoid",
    "ste",
    "legendre",
    "clipped_relu",
    "linear",
    "logsumexp",
    "qat",
    "checkpointing",
    "flash_attention",
    "implicit",
    "across",
    "engine",
    "wild",
)
ANY = "torch.autograd.gradcheck tries the gradient of any other Function."


class CoachError(Exception):
    """Why an answer cannot be judged at all; one line with a remedy."""


@dataclass(frozen=True)
class Found:
    """A task, and where it stands.

    Args:
        set: the slug of its set: ``relu``.
        task: the task.
        turn: whether it stands in the chapter alone, not in the exercises.
    """

    set: str
    task: Task | FileTask
    turn: bool = False

    @property
    def key(self) -> str:
        """What the study file calls it: ``relu.Square``."""
        return f"{self.set}.{self.task.name}"

    @property
    def applied(self) -> bool:
        """Whether what is asked for is a Function, which is called by ``apply``."""
        return isinstance(self.task, Task) and ".apply(" in self.task.call


def sets() -> list[str]:
    """Return the slugs of all sets, in the order of the chapters."""
    return sorted(graders.sets.names(), key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))


def slug(text: str) -> str | None:
    """Return the slug of the set that a word names: ``relu``, ``01_relu`` or a path to its notebook; None for none."""
    name = re.sub(r"^(\d\d|[a-z])_", "", Path(text).name.removesuffix(".ipynb"))
    return name if name in graders.sets.names() else None


@cache
def tasks(name: str) -> tuple[Found, ...]:
    """Return the tasks of a set, those of its exercises first, then those of its chapter."""
    module = graders.sets.module(name)
    return (*(Found(name, task) for task in module.TASKS), *(Found(name, task, True) for task in module.CHAPTER))


def find(name: str, where: str = "") -> Found:
    """Return the task of that name.

    Args:
        name: of the answer: ``Square``.
        where: a set (``relu``, ``01_relu``), a task (``Square``), or both (``relu.Square``); "": any set.

    Raises:
        CoachError: there is no such task, or there are several.
    """
    set_, wanted = _place(name, where)
    named = [set_] if set_ else [s for s in sets() if _mentions(s, wanted)]
    fitting = [found for s in named for found in tasks(s) if found.task.name == wanted]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        calls = " or ".join(f'coach({name}, "{found.set}")' for found in fitting)
        raise CoachError(f"Several sets have a task called {wanted}; say which is meant: {calls}.")
    known = [found.task.name for s in ([set_] if set_ else sets()) for found in tasks(s)]
    near = difflib.get_close_matches(wanted, known, 1, 0.6)
    near = near or [n for n in known if n.casefold() in wanted.casefold()][-1:]
    inside = f"The set {set_}" if set_ else "The course"
    if near and not where:
        raise CoachError(
            f"{inside} has no task called {wanted}. If yours is meant for {near[0]}, say so: "
            f'coach({name}, "{near[0]}").'
        )
    listed = f" Its tasks are {_listed(tasks(set_))}." if set_ else f" coach() lists the tasks; {ANY}"
    raise CoachError(f"{inside} has no task called {wanted}.{listed}")


def _listed(every: tuple[Found, ...]) -> str:
    """Return the names of a set's tasks, those of its chapter apart."""
    asked, turns = (", ".join(found.task.name for found in every if found.turn == turn) for turn in (False, True))
    return f"{asked}; the chapter's are {turns}" if turns else asked


def _place(name: str, where: str) -> tuple[str, str]:
    """Return the set, "" for any, and the task's name."""
    if not where:
        return "", name
    if set_ := slug(where):
        return set_, name
    head, dot, tail = where.rpartition(".")
    if dot and (set_ := slug(head)):
        return set_, tail
    return "", where


@cache
def _mentions(set_: str, name: str) -> bool:
    """Return whether a set's files quote a name: most sets need not be loaded to be ruled out."""
    module = f"{graders.sets.__path__[0]}/{set_}"
    return any(f'"{name}"' in path.read_text(encoding="utf-8") for path in Path(module).glob("*.py"))


def named(thing: object) -> str:
    """Return the name of an answer.

    Raises:
        CoachError: it is nothing that has a name.
    """
    owner = getattr(thing, "__self__", None)
    if isinstance(owner, type) and getattr(thing, "__name__", "") == "apply":
        thing = owner
    if isinstance(thing, Tensor):
        raise CoachError("That is a tensor, a result. Give the Function itself, without calling it: coach(Square).")
    if isinstance(thing, partial):
        raise CoachError('functools.partial hides the name. Say which task is meant: coach(function, "clip_by_norm").')
    name = getattr(thing, "__name__", None)
    if isinstance(name, str) and callable(thing):
        return name
    kind = type(thing)
    if hasattr(kind, "apply") and hasattr(kind, "forward"):
        raise CoachError(f"That is an instance. Give the class itself, without brackets: coach({kind.__name__}).")
    raise CoachError(f"That is {_article(kind.__name__)}. Give the class or the function itself: coach(Square).")


def _article(word: str) -> str:
    return f"{'an' if word[:1] in 'aeiouAEIOU' else 'a'} {word}"


def operation(found: Found, thing: Any) -> Operation:
    """Return an answer as something that checks can ask, in this process.

    Raises:
        CoachError: it is not what the task asks for.
    """
    name = found.task.name
    get: Callable[[], Any]
    if not found.applied:
        if isinstance(thing, type):
            raise CoachError(f"{name} is to be a function, not a class: begin with `def {name}(...)`.")
        get = lambda: thing  # noqa: E731
    elif isinstance(thing, type):
        if not callable(getattr(thing, "apply", None)):
            raise CoachError(
                f"{thing.__name__} is not a torch.autograd.Function: begin with "
                f"`class {thing.__name__}(torch.autograd.Function):`."
            )
        get = partial(getattr, thing, "apply")
    elif getattr(thing, "__name__", "") == "apply":
        get = lambda: thing  # noqa: E731
    else:
        raise CoachError(
            f"{name} is to be a class, so that {name}.apply works: begin with `class {name}(torch.autograd.Function):`."
        )
    return Operation(Responder(get))
