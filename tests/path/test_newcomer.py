"""What somebody meets who downloads the course: unpack it, install what it asks for, open JupyterLab, and begin set 01.

Each archive gets an environment of its own, made by pip from the archive's requirements, and a browser that reaches
nothing but its JupyterLab. pip takes its packages from where the machine's configuration says.
"""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.path.course_maker import ROOT
from tests.path.lab import Lab
from tools import students

SET = "exercises/01_relu/relu.ipynb"
SQUARE = '''class Square(torch.autograd.Function):
    """x * x, element by element."""

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return {gradient}'''
WRONG, RIGHT = (SQUARE.format(gradient=gradient) for gradient in ("grad_output * x", "grad_output * 2 * x"))


def typed(folder: Path, *command: str, timeout: int = 1200) -> str:
    """What a command in the course's folder prints, nothing of this repository being on Python's path."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode in (0, 1), f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module", params=[students.STUDY, students.NAME])
def course(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive, unpacked elsewhere, with an environment in it that has what its requirements say and no more."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    students.write_zip(students.collect(ROOT, request.param), elsewhere / "a.zip", request.param)
    with zipfile.ZipFile(elsewhere / "a.zip") as archive:
        archive.extractall(elsewhere)
    folder = elsewhere / request.param
    typed(folder, sys.executable, "-m", "venv", ".venv")
    said = typed(folder, ".venv/bin/python", "-m", "pip", "install", "--quiet", "-r", "requirements.txt")
    assert "ERROR" not in said, said
    return folder


def test_set_01_from_the_first_cell_to_the_end_of_a_task(course: Path, lab: Lab) -> None:
    coach = course.name == students.STUDY
    python = str(course / ".venv/bin/python")
    lab.start(python, course)
    lab.open(SET)
    answer = lab.cell("class Square(torch.autograd.Function)")
    lab.run_above(answer)
    lab.write(answer, WRONG)
    assert lab.run(answer) == ""
    said = lab.run(lab.cell("def check_Square()"))
    assert "Is the upstream gradient in it, and the factor 2?" in said and "NameError" not in said
    if not coach:
        missing = lab.run(lab.below(answer, "import graders"))
        assert "No module named 'graders'" in missing
    else:
        asked = lab.below(answer, "from graders import coach, solutions\ncoach(Square)")
        said = lab.run(asked)
        assert "the factor 2 of the derivative 2x is missing" in said, said
        assert "class SquareNew" not in said
    lab.write(answer, RIGHT)
    assert lab.run(answer) == ""
    said = lab.run(lab.cell("def check_Square()"))
    assert "Error" not in said and "pass" in said
    if coach:
        said = lab.run(asked)
        assert "missing" not in said and "not yet" not in said, said
        opened = lab.run(lab.below(asked, "coach.solutions(Square)"))
        assert opened.count("class ") >= 3 and "In the form of chapter 1" in opened, opened
    lab.save()
    said = typed(course, python, "doctor.pyz")
    assert said.count(": would be graded.") == len(list(ROOT.glob("exercises/*/*.ipynb")))
    unwritten = next(line for line in said.splitlines() if line.startswith("relu.ipynb"))
    assert "LeakyReLU" in unwritten and "Square" not in unwritten
    if coach:
        assert "Square" in (row := typed(course, python, "-m", "graders", "study")) and "done" in row
        told = typed(course, python, "-m", "graders", "coach", SET, "Square", "--json")
        assert '"holds": true' in told


def test_the_example_of_the_setup_page_runs(course: Path) -> None:
    page = (course / "book/setup.md").read_text(encoding="utf-8")
    [(code, shown)] = re.findall(r"```python\n([^`]*)```\n\n```text\n([^`]*)```", page)
    assert typed(course, str(course / ".venv/bin/python"), "-c", code) == shown
