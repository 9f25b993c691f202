"""`python -m graders coach NOTEBOOK`: a notebook's answers, judged in a process of its own."""

import json
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from graders.cli import main
from graders.coach import alone, notebook
from tests.coach.conftest import HALF, RIGHT
from tests.coach.documents import faults

ROOT = Path(__file__).resolve().parents[2]
SETUP = "import torch"


@pytest.fixture
def write(tmp_path: Path):
    def write(*cells: str, name: str = "relu.ipynb") -> Path:
        path = tmp_path / name
        nbformat.write(new_notebook(cells=[new_code_cell(cell) for cell in cells]), path)
        return path

    return write


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["coach", *map(str, words)])
    return code, *capsys.readouterr()


def test_a_notebook_s_answers_are_judged(capsys, write, study_file) -> None:
    noisy = "print('noise'); import sys; print('noise', file=sys.stderr)\n%matplotlib inline\n!echo noise"
    path = write(SETUP, noisy, HALF, "1 / 0", "%%bash\nexit 1")
    code, out, err = run(capsys, path)
    assert code == 1 and err == ""
    assert "the factor 2 of the derivative 2x is missing" in out and "code cell 4 raised ZeroDivisionError" in out
    assert "No cell defines LeakyReLU." in out and "noise" not in out
    assert json.loads(study_file.read_text())["tasks"]["relu.Square"]["tries"] == 1


def test_one_task_as_data(capsys, write) -> None:
    code, out, err = run(capsys, write(SETUP, RIGHT, name="homework.ipynb"), "Square", "--json")
    document = json.loads(out)
    assert code == 0 and not faults(document)
    assert "Square value: holds" in err  # progress, beside the data
    (task,) = document["tasks"]
    assert task["holds"] and [check["state"] for check in task["checks"]] == ["holds"] * 4
    assert document["notebook"] == "homework.ipynb"


def test_a_loop_that_does_not_end_is_ended_and_what_was_found_stays(capsys, write) -> None:
    endless = RIGHT.replace("return 2 * x * grad_output", "\n        while True: pass")
    path = write(SETUP, endless)
    (square,), _ = notebook.judge(path, "Square", limit=20)
    assert [step.verdict.check for step in square.steps] == ["value"]
    assert "stopped after 20 s in Square: a loop that does not end?" in square.trouble


def test_a_cell_that_does_not_end_is_named(capsys, write) -> None:
    (square,), _ = notebook.judge(write(SETUP, "while True: pass", RIGHT), "Square", limit=15)
    assert not square.steps and "in code cell 2" in square.trouble


def test_a_process_that_dies_is_told(write) -> None:
    (square,), _ = notebook.judge(write(SETUP, RIGHT, "import os; os._exit(3)"), "Square", limit=60)
    assert not square.steps and "its process ended in code cell 3" in square.trouble


UNREADABLE = {"missing.ipynb": None, "text.ipynb": "hello", "list.ipynb": "[]"}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_notebook_gets_one_line(capsys, tmp_path: Path, name: str) -> None:
    if UNREADABLE[name]:
        (tmp_path / name).write_text(UNREADABLE[name])
    code, out, err = run(capsys, tmp_path / name)
    assert code == 2 and out == "" and err.count("\n") == 1 and name in err and "Give a notebook" in err


def test_a_notebook_that_is_refused_is_told_what_its_author_can_do(capsys, write) -> None:
    code, _, err = run(capsys, write("<<<<<<< mine\ny = 1\n=======\ny = 2\n>>>>>>> theirs"))
    assert code == 2 and "Keep one of the two versions" in err


def test_a_notebook_without_a_task_gets_one_line(capsys, write) -> None:
    code, out, err = run(capsys, write("x = 1", name="mine.ipynb"))
    assert code == 2 and out == "" and err.count("\n") == 1 and "no cell defines a task" in err
    code, out, err = run(capsys, write("x = 1", name="mine.ipynb"), "Sqare")
    assert code == 2 and err.count("\n") == 1 and "no task called Sqare" in err and "Square" in err


def test_cells_of_the_course_that_judge_or_draw_do_not_run() -> None:
    cells = notebook.cells(ROOT / "exercises/01_relu/relu.ipynb")
    kept = [*alone.answers(cells)]
    assert len(kept) < len(cells) and not any("def check_" in cell or "def plot_" in cell for cell in kept)
    assert any("class Square" in cell for cell in kept)


def test_magics_are_left_out_and_nothing_else() -> None:
    assert alone.plain("%%bash\nls") == ""
    assert alone.plain("x = 7 % 2\n") == "x = 7 % 2\n"
    assert alone.plain("if True:\n    %time f()\ny = 1") == "if True:\n    pass\ny = 1"
    names: dict = {}
    assert alone.run("if True:\n    %time f()\n    y = 1", names) == "" and names["y"] == 1


def test_a_chapter_s_turns_are_judged(write) -> None:
    path = write(SETUP, RIGHT.replace("Square", "ReLU"), name="01_relu.ipynb")
    (relu,), _ = notebook.judge(path)
    assert relu.found.turn and relu.found.task.name == "ReLU" and relu.steps
