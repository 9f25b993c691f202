"""Where stock nbgrader's time goes: one of its commands in this process, with a clock at each step.

    python -m bench.stock_phases FILE autograde SET

Appends a JSON line to FILE for each step that ended: {"phase": ..., "seconds": ...}. The seconds are a step's own:
those of a step within it are not counted twice. Nothing of what nbgrader does is changed, but clocks are not free: the
benchmark takes its times from runs without them.
"""

import json
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

import psutil

BEFORE = time.time() - psutil.Process().create_time()
STARTED = time.perf_counter()

from nbclient import NotebookClient  # noqa: E402
from nbgrader.apps.nbgraderapp import NbGraderApp  # noqa: E402
from nbgrader.converters import Autograde  # noqa: E402
from nbgrader.preprocessors import (  # noqa: E402
    AssignLatePenalties,
    CheckCellMetadata,
    DeduplicateIds,
    Execute,
    OverwriteCells,
    SaveAutoGrades,
)

IMPORTED = time.perf_counter()
_inner: list[float] = [0.0]  # seconds of the steps within each open step


@contextmanager
def clock(file: Path, phase: str):
    """Note the seconds of the block that belong to no block within it."""
    _inner.append(0.0)
    start = time.perf_counter()
    try:
        yield
    finally:
        whole, within = time.perf_counter() - start, _inner.pop()
        _inner[-1] += whole
        note(file, phase, whole - within)


def note(file: Path, phase: str, seconds: float) -> None:
    """Append one line."""
    with file.open("a", encoding="utf-8") as sink:
        sink.write(json.dumps({"phase": phase, "seconds": seconds}) + "\n")


def kind(cell: dict) -> str:
    """The phase that a cell of a set's notebook belongs to."""
    meta = cell["metadata"].get("nbgrader", {})
    name = meta.get("grade_id", "")
    if meta.get("grade"):
        return "grade cells"
    if name.endswith("setup"):
        return "setup cell"
    return {"check": "visible checks", "plot": "plots"}.get(name.split("_")[0], "student's cells")


def watch(file: Path) -> None:
    """Put clocks around nbgrader's steps, in this process."""

    def around(owner: type, name: str, phase: str | Callable[..., str]) -> None:
        inner = getattr(owner, name)

        @wraps(inner)
        def timed(self, *args, **keywords):
            with clock(file, phase if isinstance(phase, str) else phase(*args)):
                return inner(self, *args, **keywords)

        setattr(owner, name, timed)

    around(NotebookClient, "start_new_kernel", "kernel: start")
    around(NotebookClient, "start_new_kernel_client", "kernel: boot")
    around(NotebookClient, "_cleanup_kernel", "kernel: end")
    around(Execute, "preprocess_cell", lambda cell, resources, index: kind(cell))
    around(Execute, "preprocess", "kernel: other")
    for step in (SaveAutoGrades, OverwriteCells, AssignLatePenalties, CheckCellMetadata, DeduplicateIds):
        around(step, "preprocess", "database")
    around(Autograde, "init_assignment", "database")
    around(Autograde, "convert_single_notebook", "nbgrader: reading and writing")


def main(arguments: list[str]) -> int:
    """Run the command that follows the file's name; its exit code."""
    file = Path(arguments[0])
    note(file, "start: interpreter and imports", BEFORE + IMPORTED - STARTED)
    watch(file)
    try:
        with clock(file, "nbgrader: other"):
            NbGraderApp.launch_instance(arguments[1:])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
