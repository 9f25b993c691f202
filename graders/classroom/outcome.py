"""What went wrong while a submission ran, beyond wrong answers: from the engine's events and the cells' own errors."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from nbformat import NotebookNode

from graders.engine.outcome import CELL_TIME, NOTEBOOK_TIME, OUTPUT_CUT, RUNNING_ON, SUSPECT, Event
from graders.judge.verdict import REPLY, shown_by
from graders.notebook.cells import NOT_PYTHON, bound_names, nearest, python
from graders.notebook.codes import Code
from graders.notebook.problem import Problem

SYNTAX = ("SyntaxError", "IndentationError", "TabError")


def outcome_problems(file: str, notebook: NotebookNode, events: Sequence[Event]) -> list[Problem]:
    """Return what a person should know of how an executed notebook ran.

    Args:
        file: the notebook's name.
        notebook: after execution.
        events: the engine's, of this notebook.
    """
    happened: dict[int, list[Event]] = {}
    for event in events:
        happened.setdefault(event.cell, []).append(event)
    found: list[Problem] = []
    stopped = False
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        limits = [event for event in happened.get(number, ()) if event.name not in RUNNING_ON]
        for event in limits:
            if event.name != NOTEBOOK_TIME or not stopped:
                found += _limit_problems(file, _name(cell, number), event)
            stopped = stopped or event.name == NOTEBOOK_TIME
        if not limits:
            found += _error_problems(file, _name(cell, number), cell)
        for event in happened.get(number, ()):
            if event.name == OUTPUT_CUT:
                what = f"{_name(cell, number)} {event.did}"
                found.append(Problem(Code.OUTPUT_CUT, file, what, "The rest was cut; the points stand."))
    return found + _suspicions(file, notebook, events) + _missing_names(file, notebook)


def _suspicions(file: str, notebook: NotebookNode, events: Sequence[Event]) -> list[Problem]:
    """Return what only a person can judge: reaching for the tests, and answers that no answer gives by itself."""
    found = []
    if seen := [event for event in events if event.name == SUSPECT]:
        first, more = seen[0], len(seen) - 1
        what = f"{_name(notebook.cells[first.cell], first.cell)} {first.did}"
        what += f", and {more} other cell{'s' * (more > 1)} do{'es' * (more == 1)} so too" if more else ""
        remedy = "No exercise needs it, and it may hide what runs: read it."
        found.append(Problem(Code.SUSPECT, file, what, remedy))
    tests = [cell for cell in notebook.cells if (cell.metadata.get("nbgrader") or {}).get("grade")]
    forged = [test for test in tests if (verdict := shown_by(test.get("outputs", ()))) and verdict.look == REPLY]
    if forged:
        more = len(forged) - 1
        what = f"the answer to {_name(forged[0], 0)} could not be read"
        what += f", nor could {more} more" if more else ""
        remedy = "It earns nothing there: look for code that writes to the channel of the tests."
        found.append(Problem(Code.FORGED_REPLY, file, what, remedy))
    return found


def _name(cell: NotebookNode, number: int) -> str:
    grade_id = (cell.metadata.get("nbgrader") or {}).get("grade_id")
    return f"cell {grade_id}" if grade_id else f"cell {number + 1}"


def _limit_problems(file: str, name: str, event: Event) -> list[Problem]:
    """Return what to say of a limit; of a cell that did not run, nothing where an earlier cell's event says it."""
    if event.name == NOTEBOOK_TIME:
        why = event.did.removeprefix("was not run: ")
        return [Problem(Code.NOTEBOOK_TIME, file, f"stopped before {name}: {why}", "Look for loops.")]
    if not event.ran:
        return []
    if event.name == CELL_TIME:
        return [Problem(Code.CELL_TIME, file, f"{name} {event.did}", "Look for an endless loop.")]
    what = f"the kernel died in {name}"
    remedy = "Cells that ran before keep their points; look for a call of exit or for too much memory."
    return [Problem(Code.KERNEL_DIED, file, what, remedy)]


def _error_problems(file: str, name: str, cell: NotebookNode) -> list[Problem]:
    """Return what to say of a cell that ended in an error of its own."""
    errors = _errors(cell)
    meta = cell.metadata.get("nbgrader") or {}
    if errors and meta.get("solution"):
        remedy = "Nothing in it ran." if errors.keys() & set(SYNTAX) else "What it defined before that is graded."
        return [Problem(Code.ANSWER_RAISED, file, f"{name} {_did(errors)}", remedy)]
    if not meta.get("grade") and errors.keys() & set(SYNTAX):
        remedy = "Nothing in it ran; an answer that needs it earns nothing."
        return [Problem(Code.SYNTAX_ERROR, file, f"{name} {_did(errors)}", remedy)]
    return []


def causes(notebook: NotebookNode, events: Iterable[Event]) -> dict[str, str]:
    """Return why an answer cell did not define what its tests need, by its grade_id: a limit, or its syntax."""
    at = {event.cell: event for event in events if event.name not in RUNNING_ON}
    found = {}
    for number, cell in enumerate(notebook.cells):
        meta = cell.metadata.get("nbgrader") or {}
        if cell.cell_type == "code" and meta.get("solution"):
            errors = _errors(cell)
            if number in at:
                found[meta["grade_id"]] = f"Cell {meta['grade_id']} {at[number].did}."
            elif errors.keys() & set(SYNTAX):
                found[meta["grade_id"]] = f"Cell {meta['grade_id']} {_did(errors)}."
    return found


def _errors(cell: NotebookNode) -> dict[str, str]:
    return {output.ename: output.evalue for output in cell.outputs if output.output_type == "error"}


def _did(errors: Mapping[str, str]) -> str:
    """Return the end of a sentence that begins with the cell: what it did that ended in these errors, by name."""
    kind = next(iter(errors))
    return f"has a syntax error ({_line(errors[kind])})" if kind in SYNTAX else f"raises {kind} ({_line(errors[kind])})"


def _line(text: str) -> str:
    text = " ".join(text[:1000].split())
    return re.sub(r" ?\(([^\s()]+, )?line (\d+)\)", r", line \2", text)[:120]  # without the kernel's name for the cell


def _missing_names(file: str, notebook: NotebookNode) -> list[Problem]:
    """Return a problem for each answer cell whose name no cell of the notebook binds: a class deleted or renamed."""
    wanted = []
    for cell in notebook.cells:
        meta = cell.metadata.get("nbgrader") or {}
        if cell.cell_type != "code" or not meta.get("solution") or cell.source.startswith("%%"):
            continue
        with suppress(*NOT_PYTHON):  # named already, as is what raised
            python(cell.source)
            if not _errors(cell):
                wanted.append(meta["grade_id"])
    bound = bound_names(notebook)
    missing = [(name, f"nothing is called {name}{nearest(name, bound)}") for name in wanted if name not in bound]
    remedy = "Rename it to {} and grade again."
    return [Problem(Code.NAME_MISSING, file, what, remedy.format(name)) for name, what in missing]
