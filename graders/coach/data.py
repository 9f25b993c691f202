"""Verdicts as data: what ``--json`` prints. ``verdicts.schema.json`` beside this file says what stands where."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from graders.coach import study as studying
from graders.coach.notebook import Judged
from graders.coach.session import HOLDS, Step, beyond, count, summary
from graders.coach.state import Study
from graders.judge.data import document


def coach(notebook: str, judged: Sequence[Judged], troubles: Sequence[str]) -> dict[str, Any]:
    """Return the verdicts on a notebook's answers.

    Args:
        notebook: its file's name.
        judged: what came out for each task.
        troubles: a line for each cell that raised.
    """
    return document("coach", notebook=notebook, tasks=[task(one) for one in judged], raised=list(troubles))


def task(one: Judged) -> dict[str, Any]:
    """Return what came out for one task."""
    found = one.found
    holds = len(one.steps) == count(found.task) and all(step.state == HOLDS for step in one.steps)
    return {
        "set": found.set,
        "task": found.task.name,
        "turn": found.turn,
        "holds": holds,
        "checks": [check(step) for step in one.steps],
        "summary": summary(one.steps, count(found.task)),
        "trouble": one.trouble,
        "beyond": beyond(found),
    }


def check(step: Step) -> dict[str, Any]:
    """Return what the coach says of one check."""
    return {
        "check": step.verdict.check,
        "about": step.about,
        "state": step.state,
        "after": step.after,
        "next": step.next,
        "place": None if step.link is None else asdict(step.link),
        "seconds": round(step.seconds, 3),
        "verdict": step.verdict.data(),
    }


def study(study: Study) -> dict[str, Any]:
    """Return what is done, tried and next."""
    return document("study", **studying.data(study))
