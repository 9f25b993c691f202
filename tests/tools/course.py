"""A small course for the tests of the tools: one chapter, one set, in the shape of the real ones."""

from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools.notebooks import normalise, to_text, write

FIGURES = '''"""Figures."""

import matplotlib.pyplot as plt

INK, BLUE = "#7d7d7d", "#3f87c7"


def canvas(columns=1):
    """Axes.

    Args:
        columns: how many.
    """
    return plt.subplots(1, columns)


def line(slope):
    """A line."""
    figure, ax = canvas()
    ax.plot([0, 1], [0, slope], color=BLUE)


def other():
    """Not used by `line`."""
    return INK
'''
LINE = """import matplotlib.pyplot as plt

INK, BLUE = "#7d7d7d", "#3f87c7"


def canvas(columns=1):
    return plt.subplots(1, columns)


def line(slope):
    figure, ax = canvas()
    ax.plot([0, 1], [0, slope], color=BLUE)


line(slope=2)"""
SOLUTION = """class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ### BEGIN SOLUTION
        ctx.save_for_backward(x)
        return x * x
        ### END SOLUTION

    @staticmethod
    def backward(ctx, grad_output):
        ### BEGIN SOLUTION
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output
        ### END SOLUTION"""
HIDDEN = """# Square: the gradient, compared with torch's
### BEGIN HIDDEN TESTS
from graders import grade

grade("relu", "Square", "gradient", lambda: Square.apply)
### END HIDDEN TESTS"""


def meta(grade_id: str, grade: bool = False, solution: bool = False, points: int | None = None) -> dict:
    """nbgrader's metadata of a cell."""
    fields = {"grade": grade, "grade_id": grade_id, "locked": not solution, "schema_version": 3, "solution": solution}
    return {"nbgrader": fields | {"task": False} | ({} if points is None else {"points": points})}


def solution() -> NotebookNode:
    """The instructor's notebook of a set with one task, in the committed form."""
    cells = [
        new_markdown_cell("# Tiny\n\n[The chapter](../../book/01_tiny.ipynb)", id="title"),
        new_code_cell("import torch", id="imports", metadata=meta("imports")),
        new_code_cell(SOLUTION, id="square", metadata=meta("Square", solution=True)),
        new_code_cell(HIDDEN, id="test-square-gradient", metadata=meta("test_Square_gradient", True, points=1)),
    ]
    return normalise(new_notebook(cells=cells), outputs=False)


def chapter() -> NotebookNode:
    """A chapter with a figure cell and outputs, in the committed form."""
    printed = [new_output("stream", name="stdout", text="1\n"), new_output("stream", name="stdout", text="2\n")]
    cells = [
        new_markdown_cell("# Tiny\n\n[The exercises](../exercises/01_tiny/tiny.ipynb)", id="title"),
        new_code_cell("print(1)\nprint(2)", id="prints", execution_count=1, outputs=printed),
        new_code_cell(LINE, id="line", execution_count=2, metadata={"tags": ["figure:line", "hide-input"]}),
    ]
    return normalise(new_notebook(cells=cells), outputs=True)


def make(root: Path) -> Path:
    """Write the course into `root` and return it."""
    for folder in ("book", "solutions/01_tiny"):
        (root / folder).mkdir(parents=True)
    (root / "book/figures.py").write_text(FIGURES)
    write(root / "book/01_tiny.ipynb", to_text(chapter()))
    write(root / "solutions/01_tiny/tiny.ipynb", to_text(solution()))
    (root / "nbgrader_config.py").write_text(
        "c = get_config()\n"
        'c.CourseDirectory.course_id = "tiny"\n'
        'c.CourseDirectory.source_directory = "solutions"\n'
        'c.CourseDirectory.release_directory = "exercises"\n'
    )
    return root


def load(path: Path) -> NotebookNode:
    """A notebook as it stands in its file."""
    return nbformat.read(path, as_version=4)
