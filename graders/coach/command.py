"""``python -m graders coach`` and ``python -m graders study``: what they print, as text and as data."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from graders.coach import data, page, state, study
from graders.coach.find import CoachError
from graders.coach.notebook import LIMIT, Judged, judge
from graders.coach.session import HOLDS, closing, count, untouched
from graders.judge.verdict import one_line


def coach(notebook: Path, task: str, as_json: bool, limit: float | None) -> int:
    """Judge a notebook's answers and print what came out; return the exit code: 0 where all checks hold."""
    try:
        judged, troubles = judge(notebook, task, limit or LIMIT, _say if as_json or sys.stderr.isatty() else _silent)
    except CoachError as error:
        print(f"graders: {one_line(error, 1000)}", file=sys.stderr)
        return 2
    notes = [_note(one) for one in judged]
    for note in filter(None, notes):
        print(f"graders: {note}", file=sys.stderr)
    if as_json:
        print(json.dumps(data.coach(notebook.name, judged, troubles), indent=2))
    else:
        _print(judged, troubles)
    return 0 if all(_passes(one) for one in judged) else 1


def _passes(one: Judged) -> bool:
    return len(one.steps) == count(one.found.task) and all(step.state == HOLDS for step in one.steps)


def _note(one: Judged) -> str:
    """Note a task in the study file; return what went wrong with that."""
    if untouched(one.steps):
        return ""
    checks = [(step.verdict.check, step.state == HOLDS) for step in one.steps]
    return state.tried(one.found.key, checks, count(one.found.task))


def _print(judged: Sequence[Judged], troubles: Sequence[str]) -> None:
    for trouble in troubles:
        print(trouble)
    for one in judged:
        end = [one.trouble] if one.trouble else []
        end += closing(one.found, one.steps) if one.steps else []
        print(page.text(one.found, one.steps, end))
        print()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _silent(line: str) -> None:
    pass


def tell(as_json: bool, forget: bool) -> int:
    """Print what is done, tried and next, or delete what is known of it; return the exit code."""
    if forget:
        try:
            gone = state.forget()
        except OSError as error:
            print(f"graders: {state.file()} could not be deleted ({error.strerror}).", file=sys.stderr)
            return 2
        print("There is nothing to forget." if gone is None else f"Deleted {gone}.", file=sys.stderr)
        if not as_json:
            return 0
    found = state.read()
    if as_json:
        if found.note:
            print(f"graders: {found.note}", file=sys.stderr)
        print(json.dumps(data.study(found), indent=2))
    else:
        print(study.overview(found))
    return 0
