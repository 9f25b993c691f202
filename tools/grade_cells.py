"""The grade cells of a set's notebook, written from its set file, which alone says what is checked and for what."""

import importlib.util
import re
from types import ModuleType
from typing import TYPE_CHECKING

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

if TYPE_CHECKING:  # both take torch along
    from graders.judge.task import Check, Task
    from graders.judge.testfile import FileCheck, FileTask


def text(slug: str, task: "Task | FileTask", check: "Check | FileCheck") -> str:
    """The source of one grade cell.

    Args:
        slug: the set's: ``relu``.
        task: what a student is asked for.
        check: one of its checks.
    """
    get = f", lambda: {task.call.split('(')[0]}" if hasattr(task, "call") else ""
    points = f"{check.points:g} point{'s' * (check.points != 1)}"
    return (
        f"# {task.name}, {check.name.replace('_', ' ')} ({points}): {check.about}\n"
        "### BEGIN HIDDEN TESTS\nfrom graders import grade\n\n"
        f'grade("{slug}", "{task.name}", "{check.name}"{get})\n### END HIDDEN TESTS'
    )


def _cell(slug: str, task: "Task | FileTask", check: "Check | FileCheck") -> NotebookNode:
    name = f"test_{task.name}_{check.name}"
    cell = new_code_cell(text(slug, task, check), id=name.lower().replace("_", "-"))
    cell.metadata = NotebookNode(
        nbgrader=NotebookNode(
            grade=True, grade_id=name, locked=True, points=check.points, schema_version=3, solution=False, task=False
        )
    )
    return cell


def set_file(slug: str) -> ModuleType | None:
    """The set of a notebook, None where there is none."""
    name = f"graders.sets.{slug}"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def fill(notebook: NotebookNode, slug: str) -> None:
    """Write the grade cells and the points on the cards of a notebook.

    The grade cells of a task stand at the end of its part: before the next heading of the second level after its
    solution cell, the one whose `grade_id` is the task's name. A task that the notebook does not have yet is left out;
    a grade cell that its set file does not have goes.
    """
    if (found := set_file(slug)) is None:
        return
    tasks = {task.name: task for task in found.TASKS}
    cells: list[NotebookNode] = []
    pending: list[NotebookNode] = []
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        if cell.metadata.get("nbgrader", {}).get("grade") and f'\ngrade("{slug}", ' in cell.source:
            continue  # written anew; a test of somebody's own stays
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            cells, pending = cells + pending, []
            title = cell.source.split("\n", 1)[0].removeprefix("## ").strip()
            if title in tasks:
                cell.source = re.sub(
                    r"^\*[\d.]+ points?,", f"*{tasks[title].points:g} points,", cell.source, flags=re.M
                )
        cells.append(cell)
        if name in tasks and cell.metadata.nbgrader.solution:
            pending = [_cell(slug, tasks[name], check) for check in tasks[name].checks]
    notebook.cells = cells + pending
