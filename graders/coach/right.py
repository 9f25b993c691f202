"""The right ways of a task, as a student would write them, each with a sentence on when to prefer it."""

import sys
import textwrap
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

from graders.coach.display import Screen
from graders.coach.find import CoachError, Found, tasks
from graders.coach.source import highlighted, written
from graders.judge.testfile import FileTask

COUNT = 3


@dataclass(frozen=True)
class Way:
    """One right way.

    Args:
        when: what it does, and when to prefer it.
        code: what a student would write.
    """

    when: str
    code: str


@dataclass(frozen=True)
class Ways:
    """The right ways of a task."""

    found: Found
    each: tuple[Way, ...]

    def show(self, screen: Screen) -> None:
        """Show them: as highlighted code in a notebook, as text elsewhere."""
        screen.replace(self.html(), self.text())
        screen.line(self.text())

    def text(self) -> str:
        """Return them as text."""
        parts = [f"{i}. {way.when}\n\n{textwrap.indent(way.code, '    ')}\n" for i, way in enumerate(self.each, 1)]
        return "\n".join([f"{self.found.task.name}: {self.title()}", "", *parts])

    def title(self) -> str:
        """Return how many there are, in words."""
        return f"{len(self.each)} right way{'s' * (len(self.each) > 1)}"

    def html(self) -> str:
        """Return them as HTML."""
        name = escape(self.found.task.name)
        parts = [
            f'<p style="margin:12px 0 4px"><b>{i}.</b> {escape(way.when)}</p>{highlighted(way.code)}'
            for i, way in enumerate(self.each, 1)
        ]
        return f"<div><p><b>{name}: {self.title()}</b></p>{''.join(parts)}</div>"


@cache
def ways(found: Found) -> Ways:
    """Return the first right ways of a task.

    Raises:
        CoachError: the task has none to show.
    """
    task = found.task
    if isinstance(task, FileTask):
        files = list(task.solutions.items())[:COUNT]
        each = tuple(Way(task.when.get(name, name), f"{task.first_line}\n{source.strip()}") for name, source in files)
    else:
        known = {other.task.name for other in tasks(found.set)} - {task.name}
        right = list(task.solutions.values())[:COUNT]
        each = tuple(_way(task.name, task.call, known, operation) for operation in right)
    if not each:
        raise CoachError(f"{task.name} has no solutions to show.")
    return Ways(found, each)


def _way(name: str, call: str, known: Collection[str], operation: Callable[..., Any]) -> Way:
    """Return a right operation as its author would write it under the task's name."""
    return Way(when(operation), written(defined(operation), name, call, known))


def defined(operation: Callable[..., Any]) -> Any:
    """Return the class or the function that a right operation is defined by."""
    owner = getattr(operation, "__self__", None)
    if isinstance(owner, type):
        return owner
    head, dot, _ = operation.__qualname__.rpartition(".")
    return getattr(sys.modules[operation.__module__], head) if dot and "<" not in head else operation


def when(operation: Callable[..., Any]) -> str:
    """Return the sentence on when to prefer a right way: its docstring, on one line."""
    return " ".join((defined(operation).__doc__ or "").split())
