"""Grade cells come from the set file: whatever was done to them in the notebook, they are as the set file has them."""

from collections.abc import Callable

import pytest
from nbformat import NotebookNode

from tools import grade_cells
from tools.notebooks import ROOT, read


@pytest.fixture
def notebook() -> NotebookNode:
    return read(ROOT / "solutions/01_relu/relu.ipynb")


def graded(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]


def edited(notebook: NotebookNode) -> None:
    graded(notebook)[0].source += "\n1.0"


def worth_more(notebook: NotebookNode) -> None:
    graded(notebook)[0].metadata.nbgrader.points = 9


def deleted(notebook: NotebookNode) -> None:
    notebook.cells.remove(graded(notebook)[3])


def moved(notebook: NotebookNode) -> None:
    notebook.cells.append(notebook.cells.pop(notebook.cells.index(graded(notebook)[0])))


def of_no_check(notebook: NotebookNode) -> None:
    cell = graded(notebook)[0]
    notebook.cells.insert(3, NotebookNode({**cell, "id": "test-square-nothing"}))


def card_with_other_points(notebook: NotebookNode) -> None:
    card = next(cell for cell in notebook.cells if cell.source.startswith("## Square"))
    card.source = card.source.replace("*4 points,", "*7 points,")


@pytest.mark.parametrize("edit", [edited, worth_more, deleted, moved, of_no_check, card_with_other_points])
def test_what_was_done_to_a_grade_cell_is_undone(edit: Callable, notebook: NotebookNode) -> None:
    wanted = read(ROOT / "solutions/01_relu/relu.ipynb").cells
    edit(notebook)
    assert notebook.cells != wanted
    grade_cells.fill(notebook, "relu")
    assert notebook.cells == wanted


def test_a_notebook_without_a_set_file_is_left_alone(notebook: NotebookNode) -> None:
    before = list(notebook.cells)
    grade_cells.fill(notebook, "nothing")
    assert notebook.cells == before
