"""Judge the answers of a notebook as their author would, in a process of its own that is ended at a deadline."""

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from graders.coach.alone import answers
from graders.coach.find import CoachError, Found, find, sets, slug, tasks
from graders.coach.links import Link
from graders.coach.session import Step, count
from graders.judge.testfile import FileTask
from graders.judge.verdict import Verdict, one_line
from graders.notebook.form import read
from graders.notebook.problem import ANOTHER, Unreadable

LIMIT = 120.0  # seconds for the notebook and all checks
START = 60.0  # seconds for torch to load


@dataclass
class Judged:
    """What came out for one task.

    Args:
        found: the task.
        steps: of the checks that ran.
        trouble: why there is no verdict, or none of the rest; "" for nothing.
    """

    found: Found
    steps: list[Step] = field(default_factory=list)
    trouble: str = ""


def cells(path: Path) -> list[tuple[str, str]]:
    """Return the code cells of a notebook: each with its name, ``grade_id`` or id, and its source.

    Raises:
        CoachError: it cannot be read.
    """
    try:
        found, _ = read(path)
    except Unreadable as error:
        what = f"{error}".removesuffix(".")
        own = "" if error.problem.remedy == ANOTHER else f" {error.problem.remedy}"  # it's said to whoever wrote it
        remedy = own or " Give a notebook, such as exercises/01_relu/relu.ipynb."
        raise CoachError(f"{one_line(path, 300)}: {what}.{remedy}") from None
    made = []
    for cell in found["cells"]:
        if cell["cell_type"] == "code":
            grading = cell["metadata"].get("nbgrader")
            name = grading.get("grade_id") if isinstance(grading, dict) else None
            made.append((str(name or cell.get("id", "")), cell["source"]))
    return made


def asked(path: Path, sources: list[str], task: str) -> list[Found]:
    """Return the tasks to judge: the one that is named, or those of the notebook's set, or all that are defined in it.

    Raises:
        CoachError: there is none.
    """
    set_ = slug(path.name)
    if task:
        dotted = task.partition(".")
        if dotted[1] or not set_:
            return [find(dotted[2] or task, task if dotted[1] else "")]
        return [find(task, set_)]
    here = [found for name in ([set_] if set_ else sets()) for found in tasks(name)]
    text = "\n".join(sources)
    written = [found for found in here if _defined(found, text)]
    exercises = [found for found in here if not found.turn]
    if set_ and any(found in exercises for found in written):
        return [found for found in here if found in written or not found.turn]
    if written:
        return written
    raise CoachError(f"{one_line(path, 300)}: no cell defines a task of the course; name one: ... {path.name} Square.")


def _defined(found: Found, text: str) -> bool:
    """Return whether a notebook defines what a task asks for."""
    if isinstance(found.task, FileTask):
        return found.task.first_line in text
    return re.search(rf"^(class|def) {found.task.name}\b", text, re.M) is not None


def judge(
    path: Path, task: str = "", limit: float = LIMIT, say: Callable[[str], None] = lambda line: None
) -> tuple[list[Judged], list[str]]:
    """Run a notebook's answers in a process of its own, and judge them.

    Args:
        path: the notebook.
        task: one of its tasks; "": all.
        limit: seconds for all of it.
        say: gets a line on what is going on.

    Returns:
        What came out for each task, and a line for each cell that raised.

    Raises:
        CoachError: the notebook cannot be read, or defines no task.
    """
    every = cells(path)
    sources = [source for _, source in every]
    judged = {found.key: Judged(found) for found in asked(path, sources, task)}
    job = {"cells": list(answers(every)), "all": sources, "tasks": list(judged)}
    troubles: list[str] = []
    where, current = "while torch was loading", ""
    process, lines = _start(path, job)
    end = time.monotonic() + limit
    try:
        while True:
            try:
                line = lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                _stopped(judged, f"stopped after {limit:g} s {where}: a loop that does not end?")
                break
            if line is None:
                if process.wait() != 0 or where:
                    _stopped(judged, f"its process ended {where}")
                break
            told = json.loads(line)
            what = told["what"]
            if what == "cell":
                where = f"in code cell {told['number']} of those that run"
                say(f"running {where.removeprefix('in ')}")
            elif what == "trouble":
                troubles.append(one_line(f"code cell {told['number']} raised {told['text']}", 300))
            elif what == "task":
                current = told["task"]
                where = f"in {judged[current].found.task.name}"
            elif what == "missing":
                judged[told["task"]].trouble = one_line(told["text"], 300)
            elif what == "step":
                step = _step(told)
                judged[told["task"]].steps.append(step)
                say(f"{step.verdict.task} {step.name}: {step.state}")
            elif what == "done":
                where = ""
    finally:
        _kill(process)
    return list(judged.values()), troubles


def _step(told: dict[str, Any]) -> Step:
    place = told["place"] and Link(**told["place"])
    return Step(
        Verdict.of(told["verdict"]),
        told["about"],
        told["state"],
        told["after"],
        told["next"],
        place,
        told["seconds"],
    )


def _stopped(judged: dict[str, Judged], why: str) -> None:
    """Say why of all tasks that are not through."""
    for one in judged.values():
        if not one.trouble and len(one.steps) < count(one.found.task):
            one.trouble = f"Not judged to the end: {why}."


def _start(path: Path, job: dict[str, Any]) -> tuple[subprocess.Popen[bytes], "queue.Queue[bytes | None]"]:
    """Start the process in the notebook's folder; what it says comes through a queue, None at the end."""
    root = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH", "")
    process = subprocess.Popen(
        [sys.executable, "-m", "graders.coach.alone"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=path.resolve().parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, inherited]))},
        start_new_session=os.name == "posix",
    )
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(job).encode())
        process.stdin.close()
    lines: queue.Queue[bytes | None] = queue.Queue()
    threading.Thread(target=_listen, args=(process.stdout, lines), daemon=True).start()
    return process, lines


def _listen(source: IO[bytes], lines: "queue.Queue[bytes | None]") -> None:
    for line in source:
        lines.put(line)
    lines.put(None)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process, and what it started."""
    with suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()
