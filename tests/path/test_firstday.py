"""The first day: what is missing, who is in the class, what is due when."""

import os
import shutil
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from graders.classroom.overview import length_of
from tests.path.course_maker import hand_in, make_course, release

RIGHT = {"double": "def double(x):\n    return 2 * x", "triple": "def triple(x):\n    return 3 * x"}
MOODLE = """First name,Last name,ID number,Email address,Assignment: tiny (Real)
Ada,Lovelace,ada,ada@x.edu,-
Ben,Bit,ben,ben@x.edu,-
"""


@pytest.fixture
def course(tmp_path) -> Path:
    root = make_course(tmp_path / "course")
    release(root)
    return root


def states(out: str) -> dict[str, str]:
    """The state of each thing that `init` looks at."""
    lines = [line for line in out.splitlines() if line[:8].strip() in ("ok", "note", "missing")]
    return {line[9:].partition(":")[0]: line[:8].strip() for line in lines}


def test_from_an_empty_folder_to_a_class(course, here, run):
    code, out, err = here(course, "init", "--check")
    assert (code, err) == (0, "")
    found = states(out)
    assert found | {"memory": "ok", "room": "ok"} == {
        "Python": "ok",
        "sandbox": "ok",
        "memory": "ok",
        "room": "ok",
        "sets": "ok",
        "gradebook": "ok",
        "students": "note",
        "inputs": "ok",
        "late hand-ins": "ok",
        "due dates": "note",
    }
    assert "gradebook.db, which the first grading makes" in out and not (course / "gradebook.db").exists()
    assert "python -m graders collect 01_tiny DOWNLOAD.zip --from canvas" in out

    (course.parent / "moodle.csv").write_text(MOODLE)
    code, out, err = here(course, "init", "--roster", "../moodle.csv", "--due", "tiny=2026-03-01T13:00+01:00")
    assert (code, err) == (0, "") and states(out)["students"] == states(out)["due dates"] == "ok"
    assert "ok       due dates: 01_tiny 2026-03-01 12:00 UTC\n" in out and "2 in the list" in out
    code, _, err = here(course, "init", "--roster", "../moodle.csv", "--due", "tiny=2026-03-02T12:00")
    assert code == 2 and "students.csv is there already" in err and err.endswith("(the due dates are set)\n")
    assert "2026-03-02 12:00 UTC" in here(course, "class")[1], "what else was said is done"
    (course / "students.csv").rename(course / "kept.csv")
    code, _, err = here(course, "init", "--roster", "kept.csv", "--due", "tiny=2026-03-01T12:00")
    assert code == 2 and "is a list of students already" in err and err.endswith("(the due dates are set)\n")
    (course / "kept.csv").rename(course / "students.csv")
    assert here(course, "init", "--due", "tiny=2026-03-01T12:00")[0] == 0
    out = here(course, "scores", "--csv")[1]
    assert out == "student,01_tiny,total\n" and here(course, "scores")[0] == 2, "a date alone is no score"

    for student, when in (("ada", "2026-03-01 10:00:00 UTC"), ("zoe", "2026-03-02 10:00:00 UTC")):
        folder = hand_in(course, student, **RIGHT).parent
        (folder / "timestamp.txt").write_text(when)
    code, out, err = here(course, "class")
    assert code == 1 and "2 students in the list; 2 have handed something in" in out
    assert err.splitlines() == [
        "handed in, and not in the list: zoe",
        "in the list, and nothing handed in so far: ben",
        "01_tiny: 2 handed in and not graded (ada, zoe): `python -m graders grade 01_tiny` grades them or says why not",
    ]
    assert here(course, "grade", "tiny")[0] == 0
    here(course, "extend", "tiny", "ben", "+1d12h")
    code, out, err = here(course, "class")
    assert out.splitlines()[-1] == "01_tiny  2026-03-01 12:00 UTC          2       2     1  ben +1d12h"
    assert len(err.splitlines()) == 2
    assert "Next: python -m graders scores" in here(course, "init", "--check")[1]
    assert here(course, "init", "--due", "tiny=none")[0] == 0  # an extension is left, of a date that is gone
    assert here(course, "grade", "tiny", "--force")[0] == 0
    assert "01_tiny  no date" in here(course, "class")[1]
    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:
        assert gradebook.find_assignment("01_tiny").duedate is None


def test_a_due_date_that_was_set_first_stays_when_the_set_is_registered(course, here):
    here(course, "init", "--due", "tiny=2026-03-01T00:00")
    hand_in(course, "ada", **RIGHT)
    assert here(course, "grade", "tiny")[0] == 0
    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:
        assert gradebook.find_assignment("01_tiny").duedate == datetime(2026, 3, 1)
        assert gradebook.find_submission("01_tiny", "ada").score == 6


def test_without_a_sandbox_nothing_can_be_graded(course, monkeypatch, here):
    folder = course.parent / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(shutil.which("python3"))
    monkeypatch.setenv("PATH", str(folder))  # where there is no bwrap
    code, out, _ = here(course, "init", "--check")
    assert code == 1 and "missing  sandbox: no sandbox: bwrap is not installed" in out
    assert "ok       sets: 1" in out  # the rest is looked at all the same


def test_the_sample_class_is_told_from_yours(course, here):
    for student in ("amara", "bjorn", "chen"):
        (course / "sample" / student).mkdir(parents=True)
        hand_in(course, student, **RIGHT)
    out = here(course, "init", "--check")[1]
    assert "note     gradebook: gradebook.db, with the sample class in it\n" in out
    assert "use a clone of its own for your class" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--due", "tiny"), "tiny is not a due date: write SET=DATE"),
        (("--due", "tiny=soon"), "soon is not a date: write day and time, 2026-03-01T12:00, in UTC, or with a zone"),
        (("--due", "tiny=03/04/2026"), "03/04/2026 is not a date"),
        (("--due", "tiny=2026-03-01"), "2026-03-01 is not a date"),
        (("--due", "tiny=2026-13-01T12:00"), "2026-13-01T12:00 is not a date"),
        (("--due", "tiny=2026-03-01T12:00", "tiny=none"), "01_tiny has two due dates: leave one out"),
        (("--due", "nine=2026-03-01T12:00"), "there is no set 'nine'; there are: 01_tiny"),
        (("--roster", "none.csv"), "none.csv"),
        (("--check", "--due", "tiny=2026-03-01T12:00"), "--check changes nothing"),
    ],
)
def test_what_is_refused_changes_nothing(course, here, arguments, message):
    before = sorted(course.rglob("*"))
    code, _, err = here(course, "init", *arguments)
    assert code == 2 and message in err and len(err.splitlines()) == 1
    assert sorted(course.rglob("*")) == before


def test_on_a_terminal_it_asks(course):
    """Through a pseudo-terminal, as a person types."""
    (course.parent / "moodle.csv").write_text(MOODLE)
    (course / "tiny.csv").write_text("name,points\n")
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "graders", "init"],
        cwd=course,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    os.close(slave)
    os.write(master, b"y\ntiny.csv\n../moodle.csv\ntiny=soon\ntiny=2026-03-01T12:00\n")
    said = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # it has ended
            break
        if not part:
            break
        said += part
    os.close(master)
    assert process.wait(60) == 0, said.decode()
    for line in (b"There is no file y.", b"has the columns of no gradebook", b"soon is not a date"):
        assert line in said
    assert "Gradebook file of your learning platform (CSV)" in said.decode() and b"2 in the list" in said
    assert (course / "students.csv").read_text().splitlines()[1].startswith("ada,Ada,Lovelace,ada@x.edu")


@pytest.mark.parametrize(
    ("length", "text"),
    [(timedelta(days=3), "+3d"), (timedelta(hours=36), "+1d12h"), (timedelta(minutes=90), "+1h30m")],
)
def test_an_extension_in_words(length, text):
    assert length_of(length) == text


def test_without_a_command_the_commands_are_listed(course, run):
    done = run(course, "graders")
    assert done.returncode == 2 and done.stderr.startswith("usage: python -m graders") and "\n    grade " in done.stderr


def test_an_optional_set_counts_once_it_is_taken_up(course, here):
    """That of an appendix; by a grading, and also by a due date or a hand-in alone."""
    for step in ("solutions", "exercises"):
        shutil.copytree(course / step / "01_tiny", course / step / "f_extra")
    hand_in(course, "ada", **RIGHT)
    assert here(course, "grade", "tiny")[0] == 0
    before = here(course, "scores")[1], here(course, "class")[1]
    assert "f_extra" not in "".join(before)
    sets = "sets: 1, all of them ready to be given out in exercises/; f_extra is optional, and not taken up"
    assert sets in here(course, "init", "--check")[1]
    copy = course.parent / "copy"
    shutil.copytree(course, copy)
    assert here(copy, "init", "--due", "extra=2026-03-01T12:00")[0] == 0
    assert "f_extra  2026-03-01 12:00 UTC          0       0     0" in here(copy, "class")[1]
    assert "sets: 2, all of them ready to be given out in exercises/\n" in here(copy, "init", "--check")[1]

    shutil.copytree(course / "submitted/ada/01_tiny", course / "submitted/ada/f_extra")
    assert here(course, "scores")[1] == before[0], "nothing of it is graded yet"
    assert "f_extra: 1 handed in and not graded (ada)" in here(course, "class")[2]
    assert here(course, "grade", "extra")[0] == 0
    rows = [line.split() for line in here(course, "scores")[1].splitlines()]
    assert rows[0] == ["student", "01_tiny", "f_extra", "total"] and rows[2] == ["ada", "6", "6", "12"], rows
