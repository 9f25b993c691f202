"""Grading again: who would gain or lose what, before anything is written; scores by hand stay; and the way back."""

import json
import re
import shutil
from datetime import datetime
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from tests.path.course_maker import graded_course, hand_in

RIGHT = {"double": "def double(x):\n    return 2 * x", "triple": "def triple(x):\n    return 3 * x"}
STUDENTS = {
    "ada": RIGHT,
    "ben": RIGHT | {"triple": "def triple(x):\n    return x + 4"},
    "cy": RIGHT | {"double": "def double(x):\n    return x"},
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory, quick) -> Path:
    return graded_course(tmp_path_factory.mktemp("course"), quick, STUDENTS)


@pytest.fixture
def course(graded, tmp_path) -> Path:
    """A course of its own for each test, graded once for all."""
    return shutil.copytree(graded, tmp_path / "course")


def other_check(root: Path) -> None:
    """The check of `triple` was wrong: four more than three is what was meant."""
    path = root / "solutions/01_tiny/tiny.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("== 9 + 3 * seed", "== 7 + seed")
    nbformat.write(notebook, path)


def held(root: Path) -> dict[str, object]:
    """What the gradebook and autograded/ hold, files and rows, without the times at which rows were written."""
    files = {str(p.relative_to(root)): p.read_bytes() for p in sorted((root / "autograded").rglob("*")) if p.is_file()}
    with Gradebook(f"sqlite:///{root}/gradebook.db") as gradebook:
        rows = {
            (row.student_id, notebook.name): (
                {g.name: (g.auto_score, g.manual_score, g.extra_credit) for g in notebook.grades},
                {c.name: (c.auto_comment, c.manual_comment) for c in notebook.comments},
                notebook.late_submission_penalty,
            )
            for row in gradebook.assignment_submissions("01_tiny")
            for notebook in row.notebooks
        }
    return files | rows


def scores(root: Path, here) -> dict[str, str]:
    _, out, _ = here(root, "scores", "--csv")
    return dict(line.split(",")[:2] for line in out.splitlines()[1:])


def test_nothing_changes_where_nothing_has(course, here):
    before = held(course)
    code, out, err = here(course, "grade", "tiny", "--again")
    assert (code, err) == (0, "")
    assert "01_tiny: nothing changes for any of the 3 graded again.\n01_tiny: nothing was written.\n" in out
    assert held(course) == before and not (course / "regraded").exists()


def test_who_gains_and_who_loses_is_told_then_written_then_taken_back(course, here):
    before = held(course)
    other_check(course)
    code, out, err = here(course, "grade", "tiny", "--again")
    assert (code, err) == (0, "")
    lines = out[out.index("01_tiny: of 3") :].splitlines()
    assert (
        lines[0] == "01_tiny: of 3 graded again 1 would gain and 2 would lose points; the mean goes from 4.00 to 3.33."
    )
    assert lines[1] == "  ada  6 -> 4  (-2)"
    assert lines[2].startswith("      triple value: 2 -> 0, it says: Your result is another number")
    assert [line for line in lines if re.match("  [a-z]", line)] == [
        "  ada  6 -> 4  (-2)",
        "  cy  2 -> 0  (-2)",
        "  ben  4 -> 6  (+2)",
    ]
    assert "      triple value: 0 -> 2, it said: Your result is another number; think of 3." in lines
    assert lines[-1] == "01_tiny: nothing was written; `python -m graders grade 01_tiny --again --yes` writes it."
    assert held(course) == before and not (course / "regraded").exists()

    code, out, err = here(course, "grade", "tiny", "--again", "--yes")
    assert (code, err) == (0, "") and "01_tiny: written. The earlier grading is kept in regraded/01_tiny/2" in out
    assert scores(course, here) == {"ada": "4", "ben": "6", "cy": "0"}
    assert "3 of 3 submissions graded" in here(course, "grade", "tiny")[1]  # nothing is left to grade
    assert "3 of them earlier" in here(course, "grade", "tiny")[1]

    code, out, err = here(course, "grade", "tiny", "--undo")
    assert (code, err) == (0, "") and "3 submissions have the points of before 2" in out
    assert held(course) == before
    code, _, err = here(course, "grade", "tiny", "--undo")
    assert code == 2 and "there is nothing to take back: regraded/01_tiny/ holds no grading" in err


def test_a_score_by_hand_a_comment_and_a_penalty_survive(course, here):
    settings = (course / "nbgrader_config.py").read_text(encoding="utf-8")
    plugin = "\nfrom nbgrader.plugins import LateSubmissionPlugin\n\n\nclass Half(LateSubmissionPlugin):\n"
    plugin += (
        "    def late_submission_penalty(self, student_id, score, total_seconds_late):\n        return score / 2\n\n\n"
    )
    plugin += "c.AssignLatePenalties.plugin_class = Half\n"
    (course / "nbgrader_config.py").write_text(settings + plugin, encoding="utf-8")
    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:
        gradebook.find_assignment("01_tiny").duedate = datetime(2026, 1, 1)
        for student in STUDENTS:
            gradebook.find_submission("01_tiny", student).timestamp = datetime(2026, 1, 2)
        gradebook.find_grade("test_triple_value", "tiny", "01_tiny", "ada").manual_score = 1.5
        gradebook.find_comment("triple", "tiny", "01_tiny", "ada").manual_comment = "Nearly."
        gradebook.db.commit()
    assert "3 of them earlier" in here(course, "grade", "tiny")[1]
    assert scores(course, here) == {"ada": "2.75", "ben": "2", "cy": "1"}
    before = held(course)
    other_check(course)
    code, out, err = here(course, "grade", "tiny", "--again", "--yes")
    assert "  ada  2.75 -> 2.75  (+0)" in out and "  ben  2 -> 3  (+1)" in out and "  cy  1 -> 0  (-1)" in out
    assert "triple value: 2 -> 0 (by hand 1.5, which stays)" in out
    assert (code, err) == (0, "")
    assert scores(course, here) == {"ada": "2.75", "ben": "3", "cy": "0"}
    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:
        assert gradebook.find_comment("triple", "tiny", "01_tiny", "ada").manual_comment == "Nearly."
    assert here(course, "grade", "tiny", "--undo")[0] == 0
    assert held(course) == before


def test_what_was_graded_once_more_since_is_left_by_undo(course, here):
    before = held(course)
    other_check(course)
    here(course, "grade", "tiny", "--again", "--yes")
    hand_in(course, "ben", **RIGHT)
    here(course, "grade", "tiny")
    code, out, err = here(course, "grade", "tiny", "--undo")
    assert code == 1 and err == "ben: was graded once more since then, and is left as it is\n"
    assert "2 submissions have the points of before" in out
    assert "there is nothing to take back" in here(course, "grade", "tiny", "--undo")[2]
    now = held(course)
    assert all(now[key] == before[key] for key in before if "ben" not in key) and scores(course, here)["ben"] == "4"


def test_points_that_are_others_now_are_not_put_back(course, here):
    other_check(course)
    here(course, "grade", "tiny", "--again", "--yes")
    path = course / "solutions/01_tiny/tiny.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == "test_triple_value":
            cell.metadata.nbgrader["points"] = 3
    nbformat.write(notebook, path)
    here(course, "grade", "tiny")
    before = held(course)
    code, _, err = here(course, "grade", "tiny", "--undo")
    assert code == 2 and "test_triple_value was worth 2 then and is worth 3 now: put its points back" in err
    assert held(course) == before


def test_students_may_stand_after_the_option(course, here):
    other_check(course)
    out = here(course, "grade", "tiny", "--again", "ada")[1]
    assert "of 1 graded again 0 would gain and 1 would lose points" in out
    assert here(course, "grade", "tiny", "--force", "zed")[0] == 2


def test_a_newer_file_is_said_and_who_has_no_score_is_left_out(course, here):
    hand_in(course, "cy", **RIGHT)
    hand_in(course, "dora", **RIGHT)
    code, out, err = here(course, "grade", "tiny", "--again")
    assert code == 0 and "  cy  2 -> 6  (+4)  (a newer file than the one graded before)" in out
    assert "double value: 0 -> 2, it said: Your result is another number; think of 3." in out
    assert err.startswith("01_tiny: 1 submission has no score here yet and is left out")


def test_a_file_that_cannot_be_read_any_more_changes_nothing(course, here):
    before = held(course)
    (course / "submitted/cy/01_tiny/tiny.ipynb").write_text("{", encoding="utf-8")
    code, out, err = here(course, "grade", "tiny", "--again", "--yes")
    assert code == 1 and "cy: tiny.ipynb: is not JSON" in err and "the file graded earlier stands: 2" in err
    assert "nothing changes for any of the 2 graded again" in out
    assert held(course) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--yes",), "--yes answers the question of --again"),
        (("--undo",), "there is nothing to take back: regraded/01_tiny/ holds no grading"),
        (("ada", "--undo"), "--undo takes back a whole grading: leave the students out"),
        (("--again", "--json"), "--again and --undo print lines, no data: leave --json out"),
    ],
)
def test_what_is_refused(course, here, arguments, message):
    code, _, err = here(course, "grade", "tiny", *arguments)
    assert code == 2 and message in err


def test_what_is_kept_and_cannot_be_read_is_one_line(course, here):
    other_check(course)
    here(course, "grade", "tiny", "--again", "--yes")
    (kept,) = (course / "regraded/01_tiny").iterdir()
    data = json.loads((kept / "before.json").read_text())
    assert sorted(data) == sorted(STUDENTS)
    (kept / "before.json").write_text("[]")
    code, _, err = here(course, "grade", "tiny", "--undo")
    assert code == 2 and "before.json cannot be read: restore a copy of it" in err
