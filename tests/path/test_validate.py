"""nbgrader's Validate: it fails on every set as it is given out and passes on every solved one, typed or clicked."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nbformat import NotebookNode

from tests.path.course_maker import ROOT
from tests.path.lab import Lab
from tools import students
from tools.notebooks import read, to_text

SETS = [path.relative_to(ROOT / "exercises").as_posix() for path in sorted(ROOT.glob("exercises/*/*.ipynb"))]
MARKS = re.compile(r"^ *### (BEGIN|END) SOLUTION\n?", re.MULTILINE)
PASSES = "Success! Your notebook passes all the tests."


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What students of a class download, unpacked."""
    folder = tmp_path_factory.mktemp("class")
    for name, content in students.collect(ROOT).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def answers(name: str) -> dict[str, str]:
    """The answers of a set by the ids of their cells."""
    cells = read(ROOT / "solutions" / name).cells
    own = [cell for cell in cells if cell.metadata.get("nbgrader", {}).get("solution")]
    return {cell.metadata.nbgrader.grade_id: MARKS.sub("", cell.source).rstrip("\n") for cell in own}


def solve(path: Path, name: str, left: str = "") -> None:
    """Write the answers of a set into its notebook, all but that of the task `left`."""
    notebook: NotebookNode = read(path)
    written = answers(name)
    for cell in notebook.cells:
        task = cell.metadata.get("nbgrader", {}).get("grade_id")
        if task in written and task != left:
            cell.source = written[task]
    path.write_text(to_text(notebook), encoding="utf-8")


def validate(folder: Path, name: str) -> str:
    """What ``nbgrader validate`` prints about a notebook, typed in the folder."""
    command = [sys.executable, "-m", "nbgrader", "validate", f"exercises/{name}"]
    environment = os.environ | {"PYTHONPATH": "", "JUPYTER_PLATFORM_DIRS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


def failed(said: str, name: str) -> set[str]:
    """The checks of a set whose cells failed, by the beginnings of the cells that are printed."""
    printed = [block.split("\nThe error was:")[0] for block in said.split("The following cell failed:\n\n")[1:]]
    cells = read(ROOT / "exercises" / name).cells
    checks = {beginning(cell.source): cell.metadata.get("nbgrader", {}).get("grade_id", "") for cell in cells}
    assert len(checks) == len(cells), "two cells begin alike"
    return {check for block in printed if (check := checks[beginning(block)]).startswith("check_")}


def beginning(source: str) -> tuple[str, ...]:
    """The first lines of a cell, as far as nbgrader prints them."""
    return tuple(line.strip()[:60] for line in source.strip().splitlines()[:5])


def check_both(unpacked: Path, name: str) -> None:
    """Validate a set as it is given out, then solved."""
    checks = {f"check_{task}" for task in answers(name)}
    said = validate(unpacked, name)
    assert PASSES not in said and said.startswith("VALIDATION FAILED")
    assert failed(said, name) == checks
    solve(unpacked / "exercises" / name, name)
    assert validate(unpacked, name) == f"{PASSES}\n"


def test_the_command(unpacked: Path) -> None:
    name = SETS[0]
    solve(unpacked / "exercises" / name, name, left="Tanh")
    assert failed(validate(unpacked, name), name) == {"check_Tanh"}


def test_a_check_shows_its_sentence_and_no_lines_of_its_own(unpacked: Path) -> None:
    name = SETS[0]
    path = unpacked / "exercises" / name
    solve(path, name)
    notebook = read(path)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == "Square":
            cell.source = cell.source.replace("grad_output * 2 * x", "2 * x")
    path.write_text(to_text(notebook), encoding="utf-8")
    said = validate(unpacked, name)
    assert failed(said, name) == {"check_Square"}
    numbers = said.split("The error was:")[1].split("\n    ")[1:]
    assert numbers[0] == "The gradient of x. It is upstream * 2x. Is the upstream gradient in it, and the fac..."
    assert [line.split()[0] for line in numbers[1:3]] == ["yours", "right"] and "Traceback" not in said


def test_the_command_in_the_course_s_own_folder(tmp_path: Path) -> None:
    """There the instructor's configuration says so; without one nbgrader sees only comments, and is content."""
    for file in ("nbgrader_config.py", "exercises"):
        (shutil.copytree if (ROOT / file).is_dir() else shutil.copy)(ROOT / file, tmp_path / file)
    (tmp_path / "graders").symlink_to(ROOT / "graders")
    assert failed(validate(tmp_path, SETS[0]), SETS[0]) == {f"check_{task}" for task in answers(SETS[0])}
    (tmp_path / "nbgrader_config.py").unlink()
    assert validate(tmp_path, SETS[0]) == f"{PASSES}\n"


@pytest.mark.parametrize("name", SETS)
def test_the_command_on_every_set(name: str, unpacked: Path) -> None:
    shutil.copy(ROOT / "exercises" / name, unpacked / "exercises" / name)
    check_both(unpacked, name)


def test_the_button(unpacked: Path, lab: Lab) -> None:
    name = SETS[0]
    shutil.copy(ROOT / "exercises" / name, unpacked / "exercises" / name)
    lab.start(sys.executable, unpacked)
    lab.open(f"exercises/{name}")
    lab.page.get_by_role("button", name="Validate").click()
    said = lab.dialog()
    assert all(words in said for words in ("The following cell failed", "check_Square", "NotImplementedError"))
    solve(unpacked / "exercises" / name, name)
    lab.open(f"exercises/{name}")
    lab.page.get_by_role("button", name="Validate").click()
    assert "Success" in lab.dialog()
