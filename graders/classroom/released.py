"""A released set: its cells as the gradebook holds them, and what they make of a notebook that is to be graded."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbgrader.api import Gradebook

from graders.engine.job import Job, Settings
from graders.notebook.cells import Original, claimed

# nbgrader's ClearHiddenTests takes these lines out of what students get.
HIDDEN = re.compile(r"^[^\n]*BEGIN HIDDEN TESTS.*?(END HIDDEN TESTS[^\n]*\n?|\Z)", re.DOTALL | re.MULTILINE)

Cells = Mapping[str, Original]  # by their grade_ids, in the notebook's order


@dataclass(frozen=True)
class Released:
    """A set, read from the gradebook once a command.

    Args:
        assignment: its name.
        cells: its cells, by notebook.
        kernels: the kernelspec of each notebook, None where it has none.
        files: the names of the files beside its notebooks.
    """

    assignment: str
    cells: Mapping[str, Cells]
    kernels: Mapping[str, dict[str, Any] | None]
    files: tuple[str, ...]


def originals(gradebook: Gradebook, source: Path, assignment: str) -> dict[str, Original]:
    """Return the released cells of a notebook as the gradebook holds them, with hidden tests, in the notebook's order.

    Args:
        gradebook: opened.
        source: the notebook with its solutions.
        assignment: the set.

    Raises:
        MissingEntry: the gradebook has no such notebook.
    """
    held = gradebook.find_notebook(source.stem, assignment)
    grades = {cell.name: cell.max_score for cell in held.grade_cells}
    solutions = {cell.name for cell in held.solution_cells}
    found = {
        cell.name: Original(
            cell.name,
            cell.cell_type,
            cell.source,
            cell.checksum,
            cell.name in grades,
            cell.name in solutions,
            cell.locked,
            grades.get(cell.name, 0.0),
            visible(cell.source),
        )
        for cell in held.source_cells
    }
    cells = json.loads(source.read_text(encoding="utf-8"))["cells"]  # a database promises no order
    order = [cell["metadata"].get("nbgrader", {}).get("grade_id") for cell in cells]
    return {name: found[name] for name in order if name in found}


def visible(source: str) -> str:
    """Return what students get of a cell's text."""
    return HIDDEN.sub("", source).rstrip("\n")


def shown(cell: Original) -> Original:
    """Return the cell as students have it."""
    return cell.with_source(visible(cell.source))


def sanitise(notebook: NotebookNode, cells: Cells, kernel: dict[str, Any] | None) -> None:
    """Make a repaired notebook fit to be executed: no outputs, locked cells as the gradebook has them.

    Does what nbgrader's ``ClearOutput``, ``OverwriteKernelspec`` and ``OverwriteCells`` do, from data read before.
    """
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            for key in ("collapsed", "scrolled"):
                cell.metadata.pop(key, None)
        if name := claimed(cell):
            cell.metadata.nbgrader = NotebookNode(cells[name].metadata())
            if cells[name].locked:
                cell.source = cells[name].source
    if kernel is not None:
        notebook.metadata.kernelspec = NotebookNode(kernel)


def job_of(notebook: str, cells: Cells, settings: Settings) -> Job:
    """Return what has to be executed of a notebook: all that is trusted in it comes from the gradebook.

    Args:
        notebook: its JSON, sanitised.
        cells: the released ones.
        settings: the limits.
    """
    code = [cell for cell in cells.values() if cell.cell_type == "code"]
    return Job(
        notebook,
        tests=tuple((cell.grade_id, cell.source) for cell in code if cell.grade and not cell.solution),
        given=tuple(cell.source for cell in code if cell.locked and not cell.grade),
        answers=tuple(cell.source for cell in code if cell.solution),
        settings=settings,
    )
