"""Run the answers of a notebook and judge them, in a process of its own: ``python -m graders.coach.alone``.

It gets a job as JSON on stdin and writes a line of JSON for each check to the descriptor that it was started with as
stdout; what the notebook's code prints goes nowhere. `graders.coach.notebook` starts it, and ends it at the deadline.
"""

import ast
import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

MAGIC = re.compile(r"^([ \t]*)[%!].*$", re.M)
SKIPPED = re.compile(r"(check|plot|test)_")  # cells of the course, which judge or draw


def main() -> None:
    """Answer the job on stdin."""
    job = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.environ.setdefault("MPLBACKEND", "Agg")

    def say(what: str, **more: object) -> None:
        print(json.dumps({"what": what, **more}), file=answers, flush=True)

    from graders.coach import prepare
    from graders.coach.find import CoachError, find
    from graders.coach.session import steps
    from graders.judge.testfile import FileTask

    prepare()
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(job["cells"], 1):
        say("cell", number=number)
        if trouble := run(cell, names):
            say("trouble", number=number, text=trouble)
    for key in job["tasks"]:
        found = find(key.partition(".")[2], key)
        say("task", task=key)
        try:
            if isinstance(found.task, FileTask):
                answer = written(job["all"], found.task.first_line)
            elif found.task.name not in names:
                say("missing", task=key, text=f"No cell defines {found.task.name}.")
                continue
            else:
                answer = names[found.task.name]
            for step in steps(found, answer):
                place = None if step.link is None else asdict(step.link)
                more = {"state": step.state, "after": step.after, "next": step.next, "place": place}
                say("step", task=key, verdict=step.verdict.data(), about=step.about, seconds=step.seconds, **more)
        except CoachError as error:
            say("missing", task=key, text=str(error))
    say("done")


def run(cell: str, names: dict[str, Any]) -> str:
    """Run a cell as a notebook does, up to what raises; return that, or ""."""
    with contextlib.redirect_stdout(open(os.devnull, "w")), contextlib.redirect_stderr(open(os.devnull, "w")):
        try:
            exec(compile(plain(cell), "<cell>", "exec"), names)
        except (Exception, SystemExit) as error:
            return f"{type(error).__name__}: {error}"
    return ""


def plain(cell: str) -> str:
    """Return a cell without magics: where IPython would run them, nothing happens."""
    if cell.lstrip().startswith("%%"):
        return ""
    with contextlib.suppress(SyntaxError, ValueError):
        ast.parse(cell)
        return cell
    return MAGIC.sub(r"\1pass", cell)


def written(cells: Iterable[str], first_line: str) -> str | None:
    """Return the text that the last cell which begins with this line writes."""
    found = None
    for cell in cells:
        head, _, rest = cell.lstrip("\n").partition("\n")
        if head.replace('"', "").replace("'", "").split() == first_line.split():
            found = rest
    return found


def answers(cells: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the cells that are to run, of (``grade_id`` or id, source): not those of the course that judge or draw."""
    for name, source in cells:
        if not SKIPPED.match(name):
            yield source


if __name__ == "__main__":
    main()
