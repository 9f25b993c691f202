"""``python -m graders study``: what is done, what was tried, and what comes next, over all sets."""

from dataclasses import dataclass
from typing import Any

from graders.coach.find import ORDER, Found, sets, tasks
from graders.coach.session import count, listed, words
from graders.coach.state import Progress, Study

DONE, TRIED, OPEN = "done", "tried", "not tried"


@dataclass(frozen=True)
class Row:
    """A task and what is known of it."""

    found: Found
    progress: Progress

    @property
    def state(self) -> str:
        """Return `DONE`, `TRIED` or `OPEN`."""
        return DONE if self.progress.done else TRIED if self.progress.tries else OPEN

    @property
    def left(self) -> list[str]:
        """Return the checks that did not hold the last time."""
        return [words(check.name) for check in self.found.task.checks if check.name not in self.progress.held]


def rows(study: Study, chosen: list[str] | None = None) -> list[Row]:
    """Return the tasks of these sets, in order: of the exercises all, of the chapters' turns those that were tried."""
    found = [task for name in chosen or sets() for task in tasks(name)]
    made = [Row(task, study.tasks.get(task.key, Progress())) for task in found]
    return [row for row in made if not row.found.turn or row.progress.tries]


def following(study: Study) -> Row | None:
    """Return what comes next: what was tried last and is not done, else the first of the others; None: all done."""
    every = rows(study)
    begun = [row for row in every if row.state == TRIED]
    if begun:
        return max(begun, key=lambda row: row.progress.last)
    return next((row for row in every if row.state == OPEN), None)


def said(row: Row) -> str:
    """Return the state of a task in words."""
    progress, total = row.progress, count(row.found.task)
    times = f"{progress.tries} {'try' if progress.tries == 1 else 'tries'}"
    if row.state == DONE:
        return f"done {(progress.done or '')[:10]}, {times}"
    if row.state == TRIED:
        return f"{len(progress.held)} of {total} checks hold, {times}"
    return "solutions opened, not tried" if progress.opened else OPEN


def advice(study: Study) -> str:
    """Return one sentence on what comes next."""
    row = following(study)
    if row is None:
        return "All tasks of all sets are done."
    name = row.found.task.name
    if row.state == TRIED:
        return f"Next: {name} (set {row.found.set}); what is left is {listed(row.left)}."
    return f"Next: {name} (set {row.found.set}), which you have not tried yet."


def overview(study: Study, chosen: list[str] | None = None) -> str:
    """Return the state of these sets, or of all, as text."""
    lines = [study.note] if study.note else []
    made = rows(study, chosen)
    width = max(len(row.found.task.name) for row in made)
    for name in chosen or sets():
        own = [row for row in made if row.found.set == name]
        done = sum(row.state == DONE for row in own)
        number = f"{ORDER.index(name) + 1:02d}_" if name in ORDER else ""
        lines.append(f"{number}{name}: {done} of {len(own)} done")
        for row in own:
            turn = ", a turn of the chapter" if row.found.turn else ""
            lines.append(f"  {row.found.task.name:{width}}  {said(row)}{turn}")
    return "\n".join([*lines, "", advice(study)])


def data(study: Study) -> dict[str, Any]:
    """Return the same as data: see ``verdicts.schema.json``."""
    made = rows(study)
    after = following(study)
    return {
        "sets": [{"set": name, "tasks": [_entry(row) for row in made if row.found.set == name]} for name in sets()],
        "next": None if after is None else {"set": after.found.set, "task": after.found.task.name},
        "note": study.note,
    }


def _entry(row: Row) -> dict[str, Any]:
    progress = row.progress
    return {
        "task": row.found.task.name,
        "turn": row.found.turn,
        "state": row.state,
        "checks": count(row.found.task),
        "held": progress.held,
        "left": [check.name for check in row.found.task.checks if check.name not in progress.held],
        "tries": progress.tries,
        "first": progress.first or None,
        "last": progress.last or None,
        "done": progress.done,
        "opened": progress.opened,
    }
