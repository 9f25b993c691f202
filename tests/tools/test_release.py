"""The release: what students get is what solutions/ makes, without answers; every gate is seen to close."""

import re

import pytest

from tests.tools import course
from tools import release
from tools.notebooks import ROOT, to_text, write


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A course with its release."""
    root = course.make(tmp_path_factory.mktemp("course"))
    release.release(root)
    return root


def test_a_release_has_stubs_and_no_answer(made):
    notebook = course.load(made / "exercises/01_tiny/tiny.ipynb")
    title, imports, square, test = notebook.cells
    assert square.source.startswith("class Square") and "raise NotImplementedError" in square.source
    assert test.source == "# Square: the gradient, compared with torch's"
    assert test.metadata.nbgrader.checksum and test.metadata.nbgrader.points == 1
    assert imports.source == "import torch" and title.id == "title"
    assert not list(made.glob("gradebook.db*")), "the release needs no gradebook"


def test_a_second_release_changes_nothing(made):
    before = release.files(made / "exercises")
    assert "unchanged" in release.release(made)
    assert release.release(made, check=True)
    assert release.files(made / "exercises") == before


def solution_with(edit):
    notebook = course.solution()
    edit({cell.id: cell for cell in notebook.cells}, notebook)
    return notebook


def leaves_answer_outside(cells, notebook):
    cells["imports"].source += "\n# the answer: return 2 * x * grad_output"


def forgets_the_hidden_marker(cells, notebook):
    cell = cells["test-square-gradient"]
    cell.source = cell.source.replace("### BEGIN HIDDEN TESTS\n", "").replace("\n### END HIDDEN TESTS", "")


def repeats_a_hidden_test(cells, notebook):
    cells["title"].source += '\n\n    grade("relu", "Square", "gradient", lambda: Square.apply)'


def names_the_graders(cells, notebook):
    cells["title"].source += "\n\nRun `python -m graders`."


def takes_more_than_the_coach(cells, notebook):
    cells["imports"].source += "\nfrom graders import coach, grade"


def is_no_solution(cells, notebook):
    cells["square"].metadata.nbgrader.solution = False
    cells["square"].metadata.nbgrader.locked = True


def has_a_broken_stub(cells, notebook):
    cells["square"].source = "class Square(:\n    ### BEGIN SOLUTION\n    pass\n    ### END SOLUTION"


def lacks_metadata(cells, notebook):
    del cells["imports"].metadata.nbgrader["task"]


def checks_nothing_known(cells, notebook):
    cells["test-square-gradient"].metadata.nbgrader.grade_id = "test_Cube_value"


def says_nothing_visible(cells, notebook):
    cell = cells["test-square-gradient"]
    cell.source = cell.source.partition("\n")[2]


def is_open(cells, notebook):
    cells["test-square-gradient"].metadata.nbgrader.locked = False


def has_a_random_id(cells, notebook):
    cells["title"].id = "0a1b2c3d"


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (leaves_answer_outside, "a line of Square that students must not get: 'return 2 [*] x [*] grad_output'"),
        (forgets_the_hidden_marker, "'graders'"),
        (repeats_a_hidden_test, "a line of test_Square_gradient that students must not get"),
        (names_the_graders, "cell title: 'graders'"),
        (takes_more_than_the_coach, "cell imports: 'graders'"),
        (is_no_solution, "nbgrader"),
        (has_a_broken_stub, "its stub is not Python"),
        (lacks_metadata, "lacks task|Traceback|schema|task"),
        (checks_nothing_known, "a test cell must be named test_<solution cell>_<aspect>"),
        (says_nothing_visible, "a test cell must be locked and say what it checks|empty"),
        (is_open, "a test cell must be locked"),
        (has_a_random_id, "give it an id"),
    ],
)
def test_a_fault_keeps_the_old_release(edit, fault, tmp_path):
    root = course.make(tmp_path)
    (root / "exercises/01_tiny").mkdir(parents=True)
    (root / "exercises/01_tiny/tiny.ipynb").write_text("the old release")
    write(root / "solutions/01_tiny/tiny.ipynb", to_text(solution_with(edit)))
    with pytest.raises(release.ReleaseError) as refused:
        release.release(root)
    assert re.search(fault, str(refused.value)), str(refused.value)
    assert release.files(root / "exercises") == {"01_tiny/tiny.ipynb": b"the old release"}
    assert {path.name for path in root.iterdir()} == {"book", "solutions", "exercises", "nbgrader_config.py"}


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda cells: cells["square"].update(source="class Square: pass"), "does not raise NotImplementedError"),
        (
            lambda cells: cells["square"].update(source="class Square:\n    raise NotImplementedError"),
            "raises in line 2 when the cell runs",
        ),
        (lambda cells: cells["square"].update(source=course.SOLUTION), "'BEGIN SOLUTION'"),
        (lambda cells: cells["square"].metadata.nbgrader.update(grade_id="Cube"), "missing from the release"),
        (lambda cells: cells["test-square-gradient"].metadata.nbgrader.update(points=5), "metadata differs"),
        (lambda cells: cells["test-square-gradient"].metadata.nbgrader.pop("checksum"), "no checksum"),
        (lambda cells: cells["test-square-gradient"].update(source=""), "say what it checks"),
    ],
)
def test_the_gate_reads_the_release_itself(edit, fault, made):
    made_release = course.load(made / "exercises/01_tiny/tiny.ipynb")
    assert list(release.gate(course.solution(), made_release)) == []
    edit({cell.id: cell for cell in made_release.cells})
    assert any(fault in found for found in release.gate(course.solution(), made_release))


def test_check_names_what_differs_and_writes_nothing(made, tmp_path):
    root = course.make(tmp_path)
    release.release(root)
    path = root / "exercises/01_tiny/tiny.ipynb"
    path.write_bytes(path.read_bytes() + b"\n")
    (root / "exercises/notes.txt").write_text("forgotten")
    before = release.files(root / "exercises")
    with pytest.raises(release.ReleaseError, match=r"01_tiny/tiny\.ipynb.*\n.*notes\.txt"):
        release.release(root, check=True)
    assert release.files(root / "exercises") == before


def test_a_failed_replacement_puts_the_old_release_back(tmp_path, monkeypatch):
    (tmp_path / "old").mkdir()
    (tmp_path / "old/kept").write_text("kept")
    with pytest.raises(OSError):
        release.replace(tmp_path / "there is no such folder", tmp_path / "old")
    assert release.files(tmp_path / "old") == {"kept": b"kept"}


def test_committed_exercises_are_what_solutions_make():
    release.release(ROOT, check=True)
