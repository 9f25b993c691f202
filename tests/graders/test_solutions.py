"""The notebooks in solutions/ against the set files: points, comments, calls, cards, and the visible checks."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import nbformat
import pytest

import graders.sets
from graders.judge.task import Task
from tools import grade_cells

mpl.use("agg")
SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions"
NOTEBOOKS = sorted(SOLUTIONS.glob("*/*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def cells(path: Path) -> dict[str, nbformat.NotebookNode]:
    """The cells that nbgrader knows, by their names; all but those in which a student notes a prediction, ungraded."""
    found = nbformat.read(path, 4).cells
    assert all("nbgrader" in c.metadata or c.id.startswith("predict-") for c in found)
    return {c.metadata.nbgrader.grade_id: c for c in found if "nbgrader" in c.metadata}


@each_notebook
def test_grade_cells_say_what_the_set_file_says(path: Path) -> None:
    found = {i: c for i, c in cells(path).items() if c.metadata.nbgrader.grade}
    wanted = {f"test_{t.name}_{c.name}": (t, c) for t in graders.sets.module(path.stem).TASKS for c in t.checks}
    assert list(found) == list(wanted)
    for name, (task, check) in wanted.items():
        assert found[name].metadata.nbgrader.points == check.points, name
        assert found[name].source == grade_cells.text(path.stem, task, check)


def test_the_first_page_lists_every_set_with_its_tasks() -> None:
    intro = (SOLUTIONS.parent / "book/intro.md").read_text(encoding="utf-8")
    listed = dict(
        map(reversed, re.findall(r"Exercises: ([\w, ]+)\.\\\n.*\(\.\./exercises/([\w/]+)\.ipynb\)$", intro, re.M))
    )
    tasks = {f"{p.parent.name}/{p.stem}": [t.name for t in graders.sets.module(p.stem).TASKS] for p in NOTEBOOKS}
    assert listed == {path: ", ".join(names) for path, names in tasks.items()}


@each_notebook
def test_each_task_has_its_card_cells_and_hints(path: Path) -> None:
    by_id, tasks = cells(path), graders.sets.module(path.stem).TASKS
    text = "\n".join(c.source for c in by_id.values() if c.cell_type == "markdown")
    cards = re.findall(r"^## (\w+)\n\n\*(\d+) points, \d+ minutes, difficulty [1-5] of 5\*$", text, re.M)
    assert cards == [(t.name, f"{t.points:g}") for t in tasks]
    for task in tasks:
        assert by_id[task.name].metadata.nbgrader.solution and not by_id[task.name].metadata.nbgrader.locked
        assert by_id[f"check_{task.name}"].metadata.nbgrader.locked
        assert isinstance(task, Task) is (f"plot_{task.name}" in by_id)
    assert text.count("<summary>Hint ") == 3 * len(tasks)
    assert all(c.metadata.nbgrader.locked or c.metadata.nbgrader.solution for c in by_id.values())


def left_behind(source: str) -> set[str]:
    """The names that a cell assigns, imports apart, but for the function that it puts all in and calls."""
    body = ast.parse(source).body
    defined = {s.name for s in body if isinstance(s, ast.FunctionDef | ast.ClassDef)}
    stored = {
        n.id for s in body for n in _outside_functions(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return stored | defined


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """The node and what is in it, what stands in functions left out."""
    if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _outside_functions(child)


@each_notebook
def test_a_locked_cell_leaves_a_student_s_names_alone(path: Path) -> None:
    """A helper of theirs called `half` is still there when the grade cells run."""
    offered = {"BuggyCube", "run_file", "too_large"}  # set 02 offers the first, and its texts speak of the others
    for name, cell in cells(path).items():
        if cell.cell_type == "code" and cell.metadata.nbgrader.locked and not name.endswith("-setup"):
            assert left_behind(cell.source) <= {name.replace("-", "_")} | offered, name


def test_a_name_left_behind_is_seen() -> None:
    assert left_behind("def check_x():\n    half = 1\n\n\ncheck_x()") == {"check_x"}
    assert left_behind("import math\nwith a as half:\n    [x for x in y]\nfor i in half:\n    pass") == {
        "half",
        "x",
        "i",
    }


def visible(path: Path, task: Task, operation: object) -> str | None:
    """Run the visible check of a task on an operation; what it complains of."""
    by_id = cells(path)
    setup = next(c.source for i, c in by_id.items() if i.endswith("-setup"))
    names: dict = {}
    exec(setup, names)
    holder, *apply = task.call.split("(")[0].split(".")
    names[holder] = type(holder, (), {"apply": staticmethod(operation)}) if apply else operation
    try:
        exec(by_id[f"check_{task.name}"].source, names)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@each_notebook
def test_visible_checks_pass_right_solutions(path: Path) -> None:
    """What they refuse, tests/graders/test_visible.py holds."""
    for task in graders.sets.module(path.stem).TASKS:
        if isinstance(task, Task):
            for name, right in task.solutions.items():
                assert visible(path, task, right) is None, f"{task.name} {name}"
