"""What a reader calls: `coach` and `solutions`."""

import sys
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from graders.coach import page, state
from graders.coach.display import Screen, shell
from graders.coach.find import CoachError, Found, find, named, slug, tasks
from graders.coach.right import ways
from graders.coach.session import HOLDS, Step, closing, count, file_text, steps, untouched, words
from graders.judge.testfile import FileTask

QUESTION = "{task} has not passed. Show the solutions all the same? [y/N] "


def coach(thing: object = None, where: str = "", *, depth: int = 1) -> None:
    """Judge an answer by all checks of its task, one after the other, and show what each says.

    Args:
        thing: the Function or the function, or its name; None: list the tasks of the set and their state.
        where: the set (``"relu"``) where several have a task of this name; the task (``"Square"``) where yours has
            another name.
        depth: how many frames above this one the reader's names are.

    Nothing is raised for an answer that cannot be judged: one line says why, and what to do.
    """
    names = _names(depth + 1)
    try:
        if thing is None or (isinstance(thing, str) and slug(thing) and not where):
            _list(where or str(thing or ""), names)
            return
        found, answer = _answer(thing, where, names)
        _judge(found, answer)
    except CoachError as error:
        print(error)


def solutions(thing: object, where: str = "", *, anyway: bool = False, depth: int = 1) -> None:
    """Show up to three right ways to solve a task, each with a sentence on when to prefer it.

    Args:
        thing: the Function or the function, or its name.
        where: as for `coach`.
        anyway: show them although the task has not passed.
        depth: how many frames above this one the reader's names are.
    """
    try:
        name = thing if isinstance(thing, str) else named(thing)
        found = find(name, where)
        if not (anyway or state.read().done(found.key) or _asked(found)):
            print(
                f"{found.task.name} has not passed yet; coach({name}) says what is left. "
                f"To see the solutions all the same: coach.solutions({name}, anyway=True)."
            )
            return
        ways(found).show(Screen())
        state.opened(found.key)
    except CoachError as error:
        print(error)


def _asked(found: Found) -> bool:
    """Ask once, where somebody can answer; return whether the answer was yes."""
    ip = shell()
    kernel = getattr(ip, "kernel", None)
    if kernel is not None and not getattr(kernel, "_allow_stdin", False):
        return False
    if kernel is None and not (sys.stdin and sys.stdin.isatty()):
        return False
    try:
        return input(QUESTION.format(task=found.task.name)).strip().casefold() in ("y", "yes")
    except (EOFError, RuntimeError, OSError):
        return False


def _names(depth: int) -> Mapping[str, Any]:
    """Return the names that the reader's code sees."""
    frame = sys._getframe(depth)
    return {**frame.f_globals, **frame.f_locals}


def _answer(thing: object, where: str, names: Mapping[str, Any]) -> tuple[Found, object]:
    """Return the task, and the answer to it."""
    if not isinstance(thing, str):
        return find(named(thing), where), thing
    found = find(thing, where)
    if isinstance(found.task, FileTask):
        return found, file_text(found.task)
    if found.task.name not in names and thing not in names:
        raise CoachError(f"{thing} is not defined yet: run the cell that defines it, then coach({thing}).")
    return found, names.get(thing, names.get(found.task.name))


def _judge(found: Found, answer: object) -> None:
    """Judge an answer, showing each check as it is done, and note what came out."""
    screen = Screen()
    done: list[Step] = []
    total = count(found.task)
    try:
        judging = steps(found, answer)
        screen.line(page.title(found))
        screen.replace(page.table(found, done, ()), page.title(found))
        for step in judging:
            done.append(step)
            screen.line(page.line(step))
            screen.replace(page.table(found, done, ()), page.text(found, done, ()))
    except KeyboardInterrupt as stop:
        check = words(found.task.checks[len(done)].name) if len(done) < total else "the end"
        _end(screen, found, done, [page.stopped(check, _place(stop.__traceback__, answer))])
        raise
    _end(screen, found, done, [])


def _end(screen: Screen, found: Found, done: list[Step], before: list[str]) -> None:
    end = [*before, *closing(found, done)]
    if not untouched(done):
        checks = [(step.verdict.check, step.state == HOLDS) for step in done]
        end += filter(None, [state.tried(found.key, checks, count(found.task))])
    for sentence in end:
        screen.line(sentence)
    screen.replace(page.table(found, done, end), page.text(found, done, end))


def _place(trace: TracebackType | None, answer: object) -> str:
    """Return where in the reader's code an interrupt came: "backward, line 12"; "" where it was elsewhere."""
    methods = [getattr(answer, name, None) for name in ("forward", "setup_context", "backward")]
    files = {f.__code__.co_filename for f in (answer, *methods) if hasattr(f, "__code__")}
    own = [frame for frame in traceback.extract_tb(trace) if frame.filename in files]
    return f"{own[-1].name}, line {own[-1].lineno}" if own else ""


def _list(where: str, names: Mapping[str, Any]) -> None:
    """Show the tasks of a set and their state."""
    set_ = slug(where) if where else _set_of(names)
    if where and not set_:
        raise CoachError(f"There is no set called {where}; coach() lists all of them.")
    from graders.coach.study import overview

    print(overview(state.read(), [set_] if set_ else None))


def _set_of(names: Mapping[str, Any]) -> str | None:
    """Return the set whose tasks are defined here; None where none, or more than one, is."""
    from graders.coach.find import sets

    defined = {s for s in sets() for found in tasks(s) if not found.turn and found.task.name in names}
    return next(iter(defined)) if len(defined) == 1 else None
