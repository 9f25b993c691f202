"""Grading by hand in a spreadsheet: what waits goes out with the answers, and comes back with scores and comments."""

import csv
import io
import shutil
import sqlite3
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_markdown_cell

from tests.path.course_maker import _meta, hand_in, make_course, release

RIGHT = {"double": "def double(x):\n    return 2 * x", "triple": "def triple(x):\n    return 3 * x"}
LONG = (20 * ("A paragraph is one line. " * 15)).strip()
TEXTS = {
    "ada": "Because it is linear,\nand so is its slope.",
    "ben": '=HYPERLINK("http://x", "1")\x1b[2J',
    "cat": LONG,
}
RUBRIC = """cell,key,points,text
why,no-reason,-2,You say that it is so and not why.
,units,-0.5,The units are missing.
why,bonus,1,A proof of your own.
"""


@pytest.fixture(scope="module")
def graded(tmp_path_factory, quick) -> Path:
    """A course of which one cell, worth 3 points, is graded by hand; three students have answered."""
    root = make_course(tmp_path_factory.mktemp("graded") / "course")
    release(root)
    question = new_markdown_cell("Why?", id="why", metadata=_meta("why", grade=True, solution=True, points=3))
    question.metadata.nbgrader["cell_type"] = "markdown"
    for path in (root / "solutions/01_tiny/tiny.ipynb", root / "exercises/01_tiny/tiny.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        notebook.cells.append(question)
        nbformat.write(notebook, path)
    for student, text in TEXTS.items():
        hand_in(root, student, **RIGHT, why=text)
    done = quick(root, "graders", "grade", "tiny")
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture
def course(graded, tmp_path) -> Path:
    return Path(shutil.copytree(graded, tmp_path / "course"))


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"))))


def fill(path: Path, delimiter: str = ",", **given: dict[str, str]) -> None:
    """Fill in a sheet, and save it as a spreadsheet may."""
    found = rows(path)
    text = io.StringIO()
    writer = csv.DictWriter(text, found[0].keys(), delimiter=delimiter)
    writer.writeheader()
    for row in found:
        writer.writerow(row | given.get(row["student"], {}))
    path.write_text(text.getvalue(), encoding="utf-8")


def held(root: Path) -> dict[str, tuple[float | None, str | None]]:
    """The score and the comment of each student's answer, as nbgrader has them."""
    query = (
        "SELECT s.student_id, g.manual_score, c.manual_comment FROM submitted_assignment s "
        "JOIN submitted_notebook n ON n.assignment_id = s.id JOIN grade g ON g.notebook_id = n.id "
        "JOIN base_cell gc ON gc.id = g.cell_id AND gc.name = 'why' "
        "JOIN comment c ON c.notebook_id = n.id JOIN base_cell cc ON cc.id = c.cell_id AND cc.name = 'why'"
    )
    with sqlite3.connect(root / "gradebook.db") as database:
        return {student: (score, comment) for student, score, comment in database.execute(query)}


def test_out_and_back(course, here):
    code, out, err = here(course, "hand", "tiny")
    assert (code, out, err) == (0, "hand-01_tiny.csv: 3 answers, 3 of them without a score\n", "")
    sheet = course / "hand-01_tiny.csv"
    found = {row["student"]: row for row in rows(sheet)}
    assert found["ada"]["answer"] == TEXTS["ada"] and found["ada"]["points"] == "3" and found["ada"]["score"] == ""
    assert found["cat"]["answer"] == LONG and len(LONG) > 6000  # whole, unlike an answer that a page shows
    assert found["ben"]["answer"].startswith("'=HYPERLINK") and "\x1b" not in sheet.read_text("utf-8-sig")

    (course / "rubric.csv").write_text(RUBRIC)
    fill(
        sheet,
        ada={"score": "2.5", "comment": "Nearly."},
        ben={"marks": "no-reason units", "comment": "See me."},
    )
    code, out, err = here(course, "hand", "tiny", "--from", "hand-01_tiny.csv")
    assert (code, err) == (0, "")
    assert out == "01_tiny: 2 scores and 2 comments written; 1 answer without a score\n"
    said = "You say that it is so and not why.\nThe units are missing.\nSee me."
    assert held(course) == {"ada": (2.5, "Nearly."), "ben": (0.5, said), "cat": (None, None)}

    code, out, err = here(course, "hand", "tiny")
    assert code == 2 and "hand-01_tiny.csv is there already" in err
    here(course, "hand", "tiny", "--force")
    again = {row["student"]: row for row in rows(sheet)}
    assert (again["ada"]["score"], again["ada"]["comment"]) == ("2.5", "Nearly.") and again["ben"]["comment"] == said
    assert here(course, "hand", "tiny", "--from", "hand-01_tiny.csv")[1].startswith("01_tiny: 0 scores and 0 comments")
    here(course, "grade", "tiny", "--force")
    assert held(course)["ada"] == (2.5, "Nearly.")
    assert "8.5" in here(course, "scores")[1]


def test_as_a_spreadsheet_of_another_country_saves_it(course, here):
    here(course, "hand", "tiny")
    (course / "rubric.csv").write_text(
        RUBRIC.replace(",", ";").replace("-0.5", "-0,5").replace("why;bonus", "why;bonus")
    )
    fill(course / "hand-01_tiny.csv", ";", ada={"score": "1,5"}, ben={"marks": "units, bonus"}, cat={"marks": "bonus"})
    code, _, err = here(course, "hand", "tiny", "--from", "hand-01_tiny.csv")
    assert (code, err) == (0, "")
    assert {student: score for student, (score, _) in held(course).items()} == {"ada": 1.5, "ben": 3.0, "cat": 3.0}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"score": "4"}, "4 points for a cell that is worth 3"),
        ({"score": "-1"}, "-1 points for a cell that is worth 3"),
        ({"score": "good"}, "'good' is not a number of points"),
        ({"score": "nan"}, "'nan' is not a number of points"),
        ({"marks": "rude"}, "there is no mark 'rude'; there are: bonus, no-reason, units"),
        ({"cell": "who"}, "ben, who: there is no such cell to be graded by hand"),
        ({"student": "ada"}, "ada has why twice: leave one out"),
    ],
)
def test_a_row_that_is_wrong_is_a_line_and_the_others_are_written(course, here, given, line):
    here(course, "hand", "tiny")
    (course / "rubric.csv").write_text(RUBRIC)
    fill(course / "hand-01_tiny.csv", ada={"score": "2"}, cat={"score": "1"}, ben=given)
    code, _, err = here(course, "hand", "tiny", "--from", "hand-01_tiny.csv")
    assert code == 1 and err.count("\n") == 1 and line in err and err.startswith("hand-01_tiny.csv, line "), err
    assert {student: score for student, (score, _) in held(course).items()} == {"ada": 2.0, "ben": None, "cat": 1.0}


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("hand-01_tiny.csv", b"a,b\n1,2\n", "has no column cell, comment, marks, score, student"),
        ("hand-01_tiny.csv", b"\xff\xfe\x00", "cannot be read (it is not UTF-8)"),
        ("rubric.csv", b"key,points,text\nno units,1,x\n", "rubric.csv, line 2: 'no units' is not a key"),
        ("rubric.csv", b"key,points,text\na,1,x\na,2,y\n", "rubric.csv, line 3: a is there twice"),
        ("rubric.csv", b"key,points,text\na,much,x\n", "rubric.csv, line 2: 'much' is not a number of points"),
    ],
)
def test_a_file_that_is_wrong_is_a_line(course, here, name, text, line):
    here(course, "hand", "tiny")
    (course / name).write_bytes(text)
    code, _, err = here(course, "hand", "tiny", "--from", "hand-01_tiny.csv")
    assert code == 2 and err.count("\n") == 1 and line in err, err
    assert set(held(course).values()) == {(None, None)}


def test_where_nothing_is_graded_by_hand(tmp_path, here):
    root = make_course(tmp_path / "course")
    release(root)
    hand_in(root, "ada", **RIGHT)
    assert "is not graded yet" in here(root, "hand", "tiny")[2]
    here(root, "grade", "tiny")
    assert "has no cell that is graded by hand" in here(root, "hand", "tiny")[2]
