"""The student's names as a grade cell sees them: nothing of the student's is in this process, all is asked for."""

import builtins
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from graders.inside.operation import Operation
from graders.inside.records import Failure
from graders.inside.replies import answered
from graders.inside.wire import Message
from graders.judge.verdict import Verdict

Ask = Callable[[str, Message], Message]  # a path and a message to the answer


class StudentError(Exception):
    """The student's code raised what is no exception of Python's own."""


class Proxy:
    """A name of the student's, or an attribute of one: ``Square.apply``. It is only looked up when it is called.

    Args:
        path: the dotted name.
        desk: who is asked.
    """

    __slots__ = ("_desk", "_path")

    def __init__(self, path: str, desk: "Desk") -> None:
        self._path, self._desk = path, desk

    def __getattr__(self, name: str) -> "Proxy":
        if name.startswith("_"):
            raise AttributeError(f"{self._path}.{name} is not available")
        return Proxy(f"{self._path}.{name}", self._desk)

    def __call__(self, *args: object, **keywords: object) -> object:
        """Call it in the kernel, with tensors, numbers, strings, None and lists, tuples and dicts of these.

        Where a tensor requires a gradient the result is differentiable to any order, by asking again.
        """
        tensors = [a for a in args if isinstance(a, Tensor)]
        if not keywords and any(t.requires_grad for t in tensors):
            return operation(self)(*args)
        message = {"do": "call", "args": args, "keywords": keywords}
        answer = answered(message, self._desk.ask(self._path, message))
        if "failure" in answer:
            raise _raised(answer["failure"])
        return answer["value"]

    def __bool__(self) -> bool:
        raise TypeError(f"{self._path} is the student's and has no truth value; call it instead")

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __ne__ = __len__ = __iter__ = None  # type: ignore[assignment] # it has none
    __hash__ = object.__hash__


@dataclass(frozen=True)
class Desk:
    """What a grade cell may ask of the submission while it runs.

    Args:
        ask: asks about a name of the student's.
        run_file: what `graders.inside.testrun.run` says, in a kernel of its own.
        cell_source: the text below a first line, in the last of the student's cells that begins so.
        source: the text of the student's own cells so far.
        seed: of the hidden inputs.
        memory: the bytes that all of the submission's processes hold, beyond what they have by themselves; None where
            nobody can tell.
        tell: told what a person should look at, as the end of a sentence about the grade cell.
        judged: what each check found since the last cell of the student's ran, by task and check.
    """

    ask: Ask
    run_file: Callable[[Message], list[dict[str, Any]]]
    cell_source: Callable[[str], str | None]
    source: str
    seed: int
    memory: Callable[[], int | None] = lambda: None
    tell: Callable[[str], None] = lambda did: None
    judged: dict[tuple[str, str], Verdict] = field(default_factory=dict)


DESK: ContextVar[Desk | None] = ContextVar("desk", default=None)  # set while a grade cell runs on the trusted side


def operation(proxy: Proxy) -> Operation:
    """Return the proxy as what `graders.judge.task` judges."""
    found = Operation(lambda message: proxy._desk.ask(proxy._path, message))
    found.source, found.memory, found.tell = proxy._desk.source, proxy._desk.memory, proxy._desk.tell
    found.proves = True
    return found


def _raised(failure: Failure) -> Exception:
    kind = getattr(builtins, failure.kind, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and kind not in (UnicodeDecodeError, UnicodeEncodeError):
        return kind(failure.message)
    return StudentError(f"{failure.kind}: {failure.message}")
