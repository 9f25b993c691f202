"""Codes of problems: each has a number of its own, each is given to some fault, and the manual lists them."""

import re
import shutil
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from nbgrader.converters import GenerateAssignment

from graders.classroom import checkup, submission
from graders.classroom.course import Course
from graders.classroom.gradebook import Records
from graders.classroom.grading import Grading
from graders.classroom.outcome import outcome_problems
from graders.classroom.submission import prepare
from graders.engine.errors import Overspent
from graders.engine.job import Settings
from graders.engine.outcome import CELL_TIME, KERNEL_DIED, NOTEBOOK_TIME, OUTPUT_CUT, SUSPECT, Event, put_events
from graders.engine.pool import Lost
from graders.engine.sandbox import NoMemory
from graders.judge.verdict import MIME, REPLY, Verdict
from graders.notebook import doctor, form
from graders.notebook.cells import released
from graders.notebook.codes import Code
from graders.notebook.files import read_bytes
from graders.notebook.problem import Unreadable
from tests.path import test_doctor as faulty
from tests.path.course_maker import ROOT, edit, hand_in, make_course


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = make_course(tmp_path_factory.mktemp("course"))
    Course(root)._convert(GenerateAssignment, assignment_id="01_tiny", student_id=".")
    return root


@pytest.fixture
def handed(root):
    """A right submission by Ada, alone in submitted/."""
    for folder in (root / "submitted", root / ".doctor", *root.glob("aside-*")):
        shutil.rmtree(folder, ignore_errors=True)
    path = hand_in(root, "ada", **faulty.RIGHT)
    path.with_name("timestamp.txt").write_text("2026-02-02 12:00:00 UTC\n")
    return path


def examined(path: Path) -> set[Code]:
    """The codes that the doctor gives to a notebook by itself."""
    given = released(form.read(path.parents[3] / "exercises/01_tiny/tiny.ipynb")[0])
    return {problem.code for problem in doctor.treat(path, {"tiny": given}, path.parent, True)[1]}


def checked(path: Path) -> set[Code]:
    """The codes that the doctor gives to the submissions of a course, or to what stands in their place."""
    course, home = Course(path.parents[3]), path.parents[2]
    problems = [problem for _, problem in checkup.misplaced(course, "01_tiny")]
    if (home / "ada").is_dir():
        problems += checkup.treat(checkup.ReleasedCells(course), course.submission("ada", "01_tiny"), True)[1]
    return {problem.code for problem in problems}


# Notebooks and folders that other tests hold against grading.
NOTEBOOKS = {**faulty.REPAIRED, **faulty.REFUSED}


@pytest.fixture
def walked(handed):
    """What is given to all of them."""
    right, codes = handed.read_bytes(), set()
    for change, _ in NOTEBOOKS.values():
        handed.write_bytes(right)
        edit(handed, change)
        codes |= examined(handed)
    for data in [change(right) for change, _ in faulty.BYTES.values()] + [d for d, _ in faulty.REFUSED_BYTES.values()]:
        handed.write_bytes(data)
        codes |= examined(handed)
    return codes


# Faults of one code each.


def of_a_file(name):
    def codes(path, monkeypatch):
        with pytest.raises(Unreadable) as refused:
            read_bytes(Path(name))
        return {refused.value.problem.code}

    return codes


def in_folder(change):
    def codes(path, monkeypatch):
        change(path)
        return checked(path)

    return codes


def in_notebook(change):
    def codes(path, monkeypatch):
        edit(path, change)
        return examined(path)

    return codes


def called(name):
    def codes(path, monkeypatch):
        return examined(path.rename(path.with_name(name)))

    return codes


def in_place_of(place):
    """The submission moved to another place below submitted/."""

    def codes(path, monkeypatch):
        target = path.parents[2] / place
        target.parent.mkdir(exist_ok=True)
        path.parent.rename(target)
        return checked(path)

    return codes


def converted(path, monkeypatch):
    given = released(form.read(path)[0])
    more = {f"more{number}": replace(given["see_double"], grade_id=f"more{number}") for number in range(9)}
    edit(path, faulty.all_unmarked)
    return {problem.code for problem in doctor.examine(path, given | more, path.name)[1]}


def without_nbformat(path, monkeypatch):
    edit(path, faulty.in_notebook(nbformat=3))
    monkeypatch.setitem(sys.modules, "nbformat", None)
    return examined(path)


def not_listed(path, monkeypatch):
    def refused(folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(submission, "files_in", refused)
    return {problem.code for problem in submission.folder_problems(path.parent, ["tiny"])}


def not_writable(path, monkeypatch):
    (path.parents[3] / ".doctor").write_text("a file")
    edit(path, faulty.deleted("test_double_value"))
    course = Course(path.parents[3])
    problems = checkup.treat(checkup.ReleasedCells(course), course.submission("ada", "01_tiny"), False)[1]
    (course.root / ".doctor").unlink()
    return {problem.code for problem in problems}


def ended(name=None, *, event=None, error=None, source="x = 1"):
    """What is said of an executed notebook with one cell that a limit or an error of its own ended."""
    meta = {"nbgrader": {"grade_id": name, "solution": True}} if name else {}
    outputs = [new_output("error", ename=error, evalue="")] if error else []
    notebook = new_notebook(cells=[new_code_cell(source, metadata=meta, outputs=outputs)])
    events = [Event(0, event, "did something")] if event else []
    return lambda path, monkeypatch: {p.code for p in outcome_problems("tiny.ipynb", notebook, events)}


def corrupted(path, monkeypatch):
    """What is said of a test that got an answer that cannot be read."""
    verdict = Verdict("Square", "value", 1.0, 0.0, "Your code's reply was corrupted.", look=REPLY)
    shown = new_output("display_data", {MIME: vars(verdict)})
    meta = {"nbgrader": {"grade_id": "test_Square_value", "grade": True, "solution": False}}
    notebook = new_notebook(cells=[new_code_cell("", metadata=meta, outputs=[shown])])
    return {p.code for p in outcome_problems("tiny.ipynb", notebook, [])}


def not_graded(error, of_record=False):
    """A submission that cannot be executed, or recorded, because of this."""

    def codes(path, monkeypatch):
        def fails(*_):
            raise error

        course = Course(path.parents[3])
        monkeypatch.setattr(Records, "record", fails)
        result = new_notebook() if of_record else error
        grading = Grading(course, "01_tiny", None, Settings())
        prepared = prepare(course.submission("ada", "01_tiny"), grading.released)
        return {problem.code for problem in grading._finish(prepared, [result])}

    return codes


def kept_score(path, monkeypatch):
    """A score that a person gave, and whose file is another now."""
    course = Course(path.parents[3])
    grading = Grading(course, "01_tiny", None, Settings())
    prepared = prepare(course.submission("ada", "01_tiny"), grading.released)

    def recorded() -> set[Code]:
        executed = nbformat.reads(prepared.notebooks["tiny"].text, as_version=4)
        put_events(executed, ())
        return {problem.code for problem in grading._finish(prepared, [nbformat.writes(executed)])}

    def by_hand(points: str) -> None:
        with sqlite3.connect(course.root / "gradebook.db") as database:
            database.execute(f"UPDATE grade SET manual_score = {points}")

    recorded()
    shutil.rmtree(course.root / "autograded")
    by_hand("1")
    found = recorded()
    by_hand("NULL")
    return found


FAULTS = {
    Code.SYMBOLIC_LINK: in_folder(faulty.linked),
    Code.HARD_LINK: in_folder(faulty.hard_linked),
    Code.FOLDER: in_folder(faulty.a_folder),
    Code.NAMED_PIPE: in_folder(faulty.piped),
    Code.SOCKET: in_folder(faulty.plugged),
    Code.DEVICE: of_a_file("/dev/null"),
    Code.UNREADABLE: of_a_file("/nowhere/at/all"),
    Code.WRONG_NAME: called("Tiny (1).ipynb"),
    Code.UNKNOWN_NAME: called("homework.ipynb"),
    Code.OLD_FORMAT: without_nbformat,
    Code.OTHER_LANGUAGE: in_notebook(lambda data: data["metadata"].update(language_info={"name": "bash"})),
    Code.ALL_UNMARKED: converted,
    Code.ANSWER_DELETED: in_notebook(faulty.deleted("double")),
    Code.ANSWER_UNWRITTEN: lambda path, monkeypatch: examined(hand_in(path.parents[3], "ada")),
    Code.ANSWER_NOT_PYTHON: in_notebook(faulty.in_cell("double", source="def double(x)")),
    Code.ANSWER_RENAMED: in_notebook(faulty.in_cell("double", source="doubel = 2")),
    Code.ANSWER_STILL_RAISES: in_notebook(
        faulty.in_cell("double", source="def double(x):\n    x + 1\n    raise NotImplementedError")
    ),
    Code.LINKED_FOLDER: in_folder(lambda path: faulty.aside(path.parent)),
    Code.NOT_A_FOLDER: in_folder(lambda path: (path.parents[2] / "tiny.ipynb").write_bytes(path.read_bytes())),
    Code.UNREADABLE_FOLDER: not_listed,
    Code.TOO_MANY_FILES: in_folder(faulty.many_files),
    Code.NOTEBOOK_MISSING: in_folder(lambda path: path.unlink()),
    Code.NOTEBOOK_MISNAMED: in_folder(faulty.two_copies),
    Code.MALFORMED_TIME: in_folder(lambda path: path.with_name("timestamp.txt").write_text("yesterday")),
    Code.NO_TIME: in_folder(lambda path: path.with_name("timestamp.txt").unlink()),
    Code.SURPLUS_FILE: in_folder(lambda path: path.with_name("torch.py").touch()),
    Code.FUTURE_TIME: in_folder(lambda path: path.with_name("timestamp.txt").write_text("2999-01-01 00:00:00 UTC")),
    Code.NO_SET: in_place_of("ada/homework"),
    Code.OUTSIDE_SET: in_folder(lambda path: path.rename(path.parents[1] / path.name)),
    Code.SWAPPED_FOLDERS: in_place_of("01_tiny/ada"),
    Code.NOT_REPAIRABLE: not_writable,
    Code.NOT_READ: not_graded(Overspent("takes more than it may")),
    Code.CELL_TIME: ended(event=CELL_TIME),
    Code.KERNEL_DIED: ended(event=KERNEL_DIED),
    Code.NOTEBOOK_TIME: ended(event=NOTEBOOK_TIME),
    Code.ANSWER_RAISED: ended("double", error="ValueError"),
    Code.SYNTAX_ERROR: ended(error="SyntaxError"),
    Code.OUTPUT_CUT: ended(event=OUTPUT_CUT),
    Code.NAME_MISSING: ended("double"),
    Code.NOT_EXECUTED: not_graded(Lost("its worker died")),
    Code.NO_MEMORY: not_graded(NoMemory("no memory is left")),
    Code.SCORE_BY_HAND: kept_score,
    Code.NOT_RECORDED: not_graded(OSError("the disk is full"), of_record=True),
    Code.SUSPECT: ended(event=SUSPECT),
    Code.FORGED_REPLY: corrupted,
}


@pytest.mark.parametrize(("code", "fault"), FAULTS.items(), ids=map(str, FAULTS))
def test_a_fault_has_its_code(handed, monkeypatch, code, fault):
    assert code in fault(handed, monkeypatch)


def test_every_code_is_given_to_some_fault(walked):
    assert {str(code) for code in Code if code not in FAULTS} == {str(code) for code in walked - FAULTS.keys()}


def test_every_number_is_one_code_in_the_order_of_the_table():
    numbers = [code.number for code in Code]
    assert numbers == sorted(set(numbers))
    assert all(re.fullmatch(r"E[1-5]\d\d", number) for number in numbers)


def test_the_manual_lists_the_codes():
    page = (ROOT / "book/instructors.md").read_text(encoding="utf-8")
    table = page.partition("### Codes of problems\n")[2].partition("\n#")[0]
    rows = [f"| `{code}` | {code.meaning} |" for code in Code]
    assert [line for line in table.splitlines() if line.startswith("| `")] == rows
