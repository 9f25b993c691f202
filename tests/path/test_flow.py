"""A submission flows one way: read once, repaired once; and what is recorded is what stock nbgrader would record."""

import json
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import nbformat
import pytest

from graders.classroom.course import Course
from graders.classroom.gradebook import Records
from graders.engine import outcome
from graders.notebook import cells, form
from tests.path.course_maker import edit, hand_in, make_course, release
from tools.stock import CONFIG, environment

DOUBLE, TRIPLE = "def double(x):\n    return 2 * x", "def triple(x):\n    return 3 * x"
RIGHT = {"double": DOUBLE, "triple": TRIPLE}
LATE = """
from nbgrader.plugins import BasePlugin


class Late(BasePlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return {"ada": 1.5, "ben": 100, "eve": -3}.get(student_id)


c.AssignLatePenalties.plugin_class = Late
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_notebook_is_parsed_twice_and_repaired_once(tmp_path, here, monkeypatch, workers):
    """Once as it was handed in; then as JSON, once by the worker and once of what it gives back.

    What was graded before is read only as it was handed in. Students' text is read in other processes than this one,
    which are forked from it: what they do is noted in a file.
    """
    root = make_course(tmp_path)
    release(root)
    path = hand_in(root, "ada", **RIGHT)
    edit(path, lambda data: data["cells"].pop(-1))  # there is something to repair
    notes = tmp_path / "counted"

    def note(name: str) -> None:
        with notes.open("a") as file:
            file.write(f"{name}\n")

    def counted() -> Counter[str]:
        found = Counter(notes.read_text().split())
        notes.unlink()
        return found

    def count(owner: object, name: str) -> None:
        act = getattr(owner, name)

        def counting(*arguments: object, **named: object) -> object:
            note(name)
            return act(*arguments, **named)

        monkeypatch.setattr(owner, name, counting)

    count(form, "parse")
    count(cells, "repair")
    reads = nbformat.reads

    def reading(text: str, *arguments: object, **named: object) -> object:
        if "return 3 * x" in text and "BEGIN SOLUTION" not in text:  # the set itself is read as well
            note("reads")
        return reads(text, *arguments, **named)

    monkeypatch.setattr(nbformat, "reads", reading)
    code, out, err = here(root, "grade", "tiny", "--workers", workers)
    assert code == 1 and "test cell test_triple_value was deleted" in err and "1 of 1 submissions graded" in out
    assert counted() == {"parse": 1, "repair": 1, "reads": 2}
    assert "1 of them earlier" in here(root, "grade", "tiny")[1]
    assert counted() == {"parse": 1, "repair": 1}


def test_what_a_mark_says_is_said_again_and_an_older_form_is_graded_again(tmp_path, here):
    root = make_course(tmp_path)
    release(root)
    hand_in(root, "ada", double="def Double(x):\n    return x", triple=TRIPLE)
    code, _, err = here(root, "grade", "tiny")
    assert code == 1 and "nothing is called double" in err
    again = here(root, "grade", "tiny")
    assert again[2] == err and "1 of them earlier" in again[1]
    graded = root / "autograded/ada/01_tiny/tiny.ipynb"
    graded.chmod(0o644)
    edit(graded, lambda data: data["metadata"]["graders"].update(form=1))
    assert "1 to grade" in here(root, "grade", "tiny")[1]


def test_events_are_the_engine_s_and_not_the_student_s(tmp_path, here):
    """A notebook that brings events of its own, or raises under the name of a limit, is described as it was."""
    root = make_course(tmp_path)
    release(root)
    forged = {"events": [{"cell": 1, "name": outcome.KERNEL_DIED, "did": "ended the kernel", "ran": True}]}
    path = hand_in(root, "ada", double=f"class {outcome.CELL_TIME}(Exception):\n    pass\nraise {outcome.CELL_TIME}")
    edit(path, lambda data: data["metadata"].update(graders=forged))
    _, _, err = here(root, "grade", "tiny")
    assert "cell double raises CellTimeLimit" in err and "kernel died" not in err


def _rows(root: Path) -> dict[str, list[tuple]]:
    """What a gradebook says of the class, without ids."""
    queries = {
        "grades": "SELECT s.id, b.name, g.auto_score, g.manual_score, g.extra_credit, g.needs_manual_grade "
        "FROM grade g JOIN base_cell b ON g.cell_id = b.id JOIN submitted_notebook n ON g.notebook_id = n.id "
        "JOIN submitted_assignment a ON n.assignment_id = a.id JOIN student s ON a.student_id = s.id",
        "comments": "SELECT s.id, b.name, c.auto_comment, c.manual_comment FROM comment c "
        "JOIN base_cell b ON c.cell_id = b.id JOIN submitted_notebook n ON c.notebook_id = n.id "
        "JOIN submitted_assignment a ON n.assignment_id = a.id JOIN student s ON a.student_id = s.id",
        "late": "SELECT s.id, n.late_submission_penalty, a.timestamp FROM submitted_notebook n "
        "JOIN submitted_assignment a ON n.assignment_id = a.id JOIN student s ON a.student_id = s.id",
    }
    with sqlite3.connect(root / "gradebook.db") as database:
        return {name: sorted(database.execute(query).fetchall()) for name, query in queries.items()}


def _class(root: Path) -> None:
    for student, answers in {
        "ada": RIGHT,
        "ben": {"double": DOUBLE, "triple": "def triple(x):\n    return x"},
        "eve": {"double": DOUBLE},
    }.items():
        time = hand_in(root, student, **answers).with_name("timestamp.txt")
        time.write_text("2026-03-02 10:00:00 UTC")


def _prepare(root: Path) -> None:
    """A due date that all have missed, and a manual grade and comment given after a first grading."""
    with sqlite3.connect(root / "gradebook.db") as database:
        database.execute("UPDATE assignment SET duedate = '2026-03-01 10:00:00.000000'")
        cell = "SELECT id FROM base_cell WHERE name = 'test_triple_value'"
        database.execute(f"UPDATE grade SET manual_score = 1, needs_manual_grade = 0 WHERE cell_id = ({cell})")
        cell = "SELECT id FROM base_cell WHERE name = 'double'"
        database.execute(f"UPDATE comment SET manual_comment = 'read chapter 1' WHERE cell_id = ({cell})")


def _nbgrader(root: Path, *arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "nbgrader", *arguments]
    done = subprocess.run(command, cwd=root, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def stock(tmp_path_factory) -> Path:
    """The class graded by stock nbgrader, twice, with manual grades and a due date in between."""
    root = make_course(tmp_path_factory.mktemp("stock"))
    (root / "nbgrader_config.py").write_text(CONFIG + LATE, encoding="utf-8")
    _nbgrader(root, "generate_assignment", "01_tiny")
    _class(root)
    _nbgrader(root, "autograde", "01_tiny")
    _prepare(root)
    _nbgrader(root, "autograde", "01_tiny", "--force")
    _nbgrader(root, "export")
    return root


@pytest.mark.parametrize("by", ["grade", "nbgrader autograde"])
def test_the_gradebook_is_that_of_stock_nbgrader(tmp_path, here, stock, by):
    """Scores, manual scores, comments, late penalties, what is to be looked at, and the export."""
    root = make_course(tmp_path)
    (root / "nbgrader_config.py").write_text((root / "nbgrader_config.py").read_text() + LATE, encoding="utf-8")
    _nbgrader(root, "generate_assignment", "01_tiny")
    _class(root)
    for force in ([], ["--force"]):
        if by == "grade":
            assert here(root, "grade", "tiny", *force)[0] == 0
        else:
            _nbgrader(root, "autograde", "01_tiny", *force)
        if not force:
            _prepare(root)
    assert _rows(root) == _rows(stock)
    assert {row[1] for row in _rows(root)["late"]} >= {1.5, 0.0} and any(row[5] for row in _rows(root)["grades"])
    _nbgrader(root, "export")
    assert _export(root) == _export(stock)
    with Records(Course(root)) as records:
        assert records.scores()[0]["ada"]["01_tiny"] is not None
    assert json.loads((root / "autograded/ada/01_tiny/tiny.ipynb").read_text())["metadata"]["graders"]["form"] == 2
    _nbgrader(root, "generate_feedback", "01_tiny")
    page = (root / "feedback/ben/01_tiny/tiny.html").read_text(encoding="utf-8")
    assert "triple value: 0 of 2 points" in page and "read chapter 1" in page


def test_nbgrader_s_own_command_reads_in_a_process_of_its_own_too(tmp_path):
    """A notebook that keeps its reader busy is one line about one student there as well."""
    root = make_course(tmp_path)
    config = root / "nbgrader_config.py"
    hurry = (
        "from graders.classroom import nbgrader_steps, reader\nnbgrader_steps.READER = reader.Reader(None, seconds=1)"
    )
    config.write_text(f"{config.read_text()}\n{hurry}\n", encoding="utf-8")
    _nbgrader(root, "generate_assignment", "01_tiny")
    for student in ("ada", "ben", "eve"):
        hand_in(root, student, **RIGHT)
    edit(root / "submitted/ben/01_tiny/tiny.ipynb", lambda data: data["metadata"].update(own=[{}] * 2_000_000))
    said = _nbgrader(root, "autograde", "01_tiny", code=1)
    assert "tiny.ipynb: cannot be read: that takes more than 1 CPU seconds" in said
    with Records(Course(root)) as records:
        scores = {student: found["01_tiny"] for student, found in records.scores()[0].items()}
    assert scores["ada"] == scores["eve"] == 6 and scores["ben"] is None


def test_nbgrader_s_own_command_refuses_in_the_same_line(tmp_path):
    """What is refused where it is read says there too what it is about, and what to do."""
    root = make_course(tmp_path)
    _nbgrader(root, "generate_assignment", "01_tiny")
    for student in ("ada", "ben", "eve"):
        hand_in(root, student, **RIGHT)
    edit(root / "submitted/ben/01_tiny/tiny.ipynb", lambda data: data["metadata"].update(language_info={"name": "R"}))
    said = _nbgrader(root, "autograde", "01_tiny", code=1)
    assert "tiny.ipynb: has a kernel for R, and only Python is graded. In JupyterLab, choose Kernel, Change" in said
    with Records(Course(root)) as records:
        scores = {student: found["01_tiny"] for student, found in records.scores()[0].items()}
    assert scores["ada"] == scores["eve"] == 6 and scores["ben"] is None


def _export(root: Path) -> list[str]:
    return sorted((root / "grades.csv").read_text().splitlines())


def test_a_failing_record_costs_one_submission(tmp_path, here, monkeypatch):
    root = make_course(tmp_path)
    release(root)
    for student in ("ada", "ben"):
        hand_in(root, student, **RIGHT)
    save = Records._save

    def failing(self: Records, prepared, *rest: object) -> None:
        if prepared.submission.student == "ada":
            raise OSError("the disk is full")
        save(self, prepared, *rest)

    monkeypatch.setattr(Records, "_save", failing)
    code, out, err = here(root, "grade", "tiny")
    assert code == 1 and "1 of 2 submissions graded" in out
    assert err.startswith("ada: tiny.ipynb: could not be recorded (OSError: the disk is full). It is not graded:")
    monkeypatch.undo()
    assert here(root, "grade", "tiny")[0] == 0
