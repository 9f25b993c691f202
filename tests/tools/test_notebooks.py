"""The notebook tool: every committed notebook is in one form, and each way out of it is refused."""

import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.tools import course
from tools import notebooks
from tools.notebooks import NotebookError, committed, normalise, process, to_text


@pytest.mark.parametrize("path", committed(), ids=lambda path: path.name)
def test_committed_notebooks_are_in_form(path):
    process(path, check=True)


@pytest.fixture
def root(tmp_path):
    """A small course in the committed form."""
    return course.make(tmp_path)


def test_the_small_course_is_in_form(root):
    assert {process(path, check=True) for path in committed(root)} == {"in the committed form"}


def timing(notebook):
    notebook.cells[1].metadata["execution"] = {"iopub.execute_input": "2026-01-01T00:00:00Z"}


def pieces_of_a_stream(notebook):
    notebook.cells[1].outputs = [new_output("stream", name="stdout", text=text) for text in ("1\n", "2\n")]


def version_of_python(notebook):
    notebook.metadata["language_info"]["version"] = "3.11.7"


def old_format(notebook):
    notebook.nbformat_minor = 4
    for cell in notebook.cells:
        del cell["id"]


def machine_path(notebook):
    notebook.cells[1].outputs = [new_output("stream", name="stdout", text="/home/me/course\n")]


def address(notebook):
    data = {"text/plain": "<object at 0x7f11fa7d9b10>"}
    notebook.cells[1].outputs = [new_output("execute_result", data=data, execution_count=1)]


def wrong_count_of_a_result(notebook):
    notebook.cells[1].outputs = [new_output("execute_result", data={"text/plain": "3"}, execution_count=7)]


def stale_figure(notebook):
    notebook.cells[2].source = notebook.cells[2].source.replace("[0, 1]", "[0, 2]", 1)


def unknown_figure(notebook):
    notebook.cells[2].metadata.tags[0] = "figure:nothing"


def figure_without_a_call(notebook):
    notebook.cells[2].source = "print('no figure')"


def dated_picture(notebook):
    svg = {"image/svg+xml": "<svg><dc:date>2026</dc:date></svg>"}
    notebook.cells[2].outputs = [new_output("display_data", data=svg)]


def white_picture(notebook):
    svg = {"image/svg+xml": '<svg><path style="fill: #ffffff"/></svg>'}
    notebook.cells[2].outputs = [new_output("display_data", data=svg)]


def stderr(notebook):
    notebook.cells[1].outputs.append(new_output("stream", name="stderr", text="UserWarning: no\n"))


def error(notebook):
    notebook.cells[1].outputs.append(new_output("error", ename="ValueError", evalue="no", traceback=[]))


def no_count(notebook):
    notebook.cells[1].execution_count = None


def run_out_of_order(notebook):
    notebook.cells[1].execution_count, notebook.cells[2].execution_count = 2, 1


def random_id(notebook):
    notebook.cells[0].id = "a1b2c3d4"


def twice_the_same_id(notebook):
    notebook.cells[0].id = notebook.cells[1].id


def empty_cell(notebook):
    notebook.cells.append(new_markdown_cell("", id="nothing"))


FORMS = [timing, pieces_of_a_stream, version_of_python]
FAULTS = [
    (old_format, "cell 1: give it an id"),
    (machine_path, "cell prints: shows a path of this machine: /home/"),
    (address, "cell prints: shows a memory address: 0x7f11fa7d9b10"),
    (wrong_count_of_a_result, "an output has execution count 7"),
    (stale_figure, "cell line: differs from figures.py"),
    (unknown_figure, "does not call nothing|has no function nothing"),
    (figure_without_a_call, r"does not call line\(\)"),
    (dated_picture, "contains its date"),
    (white_picture, "has a white background"),
    (stderr, "cell prints: wrote to stderr: UserWarning: no"),
    (error, "cell prints: raised ValueError"),
    (no_count, "execution count None, expected 1"),
    (run_out_of_order, "execution count 2, expected 1"),
    (random_id, "cell a1b2c3d4: give it an id"),
    (twice_the_same_id, "cell prints: two cells have this id"),
    (empty_cell, "cell nothing: empty"),
]


def planted(root, edit):
    path = root / "book/01_tiny.ipynb"
    notebook = course.load(path)
    edit(notebook)
    path.write_text(to_text(notebook))
    return path


@pytest.mark.parametrize("edit", FORMS)
def test_what_has_one_form_is_put_into_it(edit, root):
    wanted = (root / "book/01_tiny.ipynb").read_text()
    path = planted(root, edit)
    faulty = path.read_text()
    with pytest.raises(NotebookError, match=r"not in the committed form .*line \d+ is"):
        process(path, check=True)
    assert path.read_text() == faulty, "--check writes nothing"
    assert process(path) == "written"
    assert path.read_text() == wanted
    assert process(path) == "in the committed form"


@pytest.mark.parametrize(("edit", "fault"), FAULTS)
def test_what_the_author_must_mend_is_refused(edit, fault, root):
    path = planted(root, edit)
    faulty = path.read_text()
    for check in (True, False):
        with pytest.raises(NotebookError, match=fault):
            process(path, check=check)
        assert path.read_text() == faulty


def test_key_order_and_indent_are_put_right(root):
    path = root / "book/01_tiny.ipynb"
    wanted = path.read_text()
    path.write_text(json.dumps(dict(reversed(json.loads(wanted).items())), indent=2))
    with pytest.raises(NotebookError, match="not in the committed form"):
        process(path, check=True)
    process(path)
    assert path.read_text() == wanted


def test_solutions_keep_no_outputs_and_their_metadata(root):
    path = root / "solutions/01_tiny/tiny.ipynb"
    wanted = path.read_text()
    notebook = course.load(path)
    notebook.cells[1].update(execution_count=3, outputs=[new_output("stream", name="stdout", text="x\n")])
    path.write_text(to_text(notebook))
    with pytest.raises(NotebookError, match="not in the committed form"):
        process(path, check=True)
    process(path)
    assert path.read_text() == wanted
    assert course.load(path).cells[3].metadata.nbgrader.points == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"nbformat": 3}', '{"cells": 1, "nbformat": 4}'])
def test_a_file_that_is_no_notebook_is_one_line(text, root, capsys):
    path = root / "book/01_tiny.ipynb"
    path.write_text(text)
    assert notebooks.main([str(path)]) == 1
    captured = capsys.readouterr()
    assert "not a notebook" in captured.err and len(captured.err.splitlines()) == 1
    assert path.read_text() == text


def test_a_figure_over_the_limit_is_refused(root):
    figures = root / "book/figures.py"
    figures.write_text(figures.read_text().replace("    figure, ax = canvas()\n", "    figure, ax = canvas()\n" * 50))
    with pytest.raises(NotebookError, match=r"takes \d+ lines; the limit is 60"):
        process(root / "book/01_tiny.ipynb", check=True)


def runnable(root, *sources):
    """A chapter whose cells have not run; the last is the figure's bare call."""
    cells = [new_code_cell(source, id=f"cell-{'abc'[i]}") for i, source in enumerate(sources)]
    cells.append(new_code_cell("line(slope=2)", id="line", metadata={"tags": ["figure:line"]}))
    path = root / "book/01_tiny.ipynb"
    path.write_text(to_text(normalise(new_notebook(cells=cells), outputs=True)))
    return path


def test_execute_fills_figures_runs_and_repeats(root, capsys):
    path = runnable(root, "print(1)\nprint(2)", "from pathlib import Path\n\nPath('figures.py').exists()")
    assert notebooks.main(["--execute", str(path)]) == 0
    assert "ran in" in capsys.readouterr().out
    notebook = course.load(path)
    assert notebook.cells[-1].source == course.LINE
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3]
    assert notebook.cells[0].outputs == [
        nbformat.from_dict({"name": "stdout", "output_type": "stream", "text": "1\n2\n"})
    ]
    assert notebook.cells[1].outputs[0].data["text/plain"] == "True", "a chapter runs in its own folder"
    assert process(path, check=True) == "in the committed form"
    written = path.read_bytes()
    process(path, run=True)
    assert path.read_bytes() == written, "a second run gives the same bytes"


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("raise ValueError('no such thing')", "cell cell-b: ValueError: no such thing"),
        ("import sys\n\nprint('careful', file=sys.stderr)", "cell cell-b: wrote to stderr: careful"),
        ("import os\n\nos._exit(1)", "cell cell-b: .*died"),
    ],
)
def test_a_failing_cell_leaves_the_file(source, fault, root, capsys):
    path = runnable(root, "print(1)", source)
    before = path.read_bytes()
    with pytest.raises(NotebookError, match=fault):
        process(path, run=True)
    assert path.read_bytes() == before
    assert {found.name for found in path.parent.iterdir()} == {"01_tiny.ipynb", "figures.py"}


def test_what_is_not_on_this_machine_takes_no_output_away(root):
    """A chapter's cell says in a line what is missing: where the committed one shows results, they stay."""
    path = runnable(root, "import os\n\nprint('fast' if 'KIT' in os.environ else 'not run here, it needs a kit')")
    process(path, run=True)  # it said so before: nothing is lost
    path.write_text(path.read_text().replace("not run here, it needs a kit\\n", "fast\\n"))
    before = path.read_bytes()
    assert process(path, run=True) == "left as it was, to keep its outputs (not run here, it needs a kit)"
    assert path.read_bytes() == before
