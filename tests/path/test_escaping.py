"""What a student writes reaches a terminal, a table or a page spelled out: names, messages, texts of every kind."""

import csv
import io
import json
import os
import subprocess
import sys
import unicodedata
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_output

from graders.classroom.course import Course, CourseError
from graders.classroom.feedback import Feedback
from graders.classroom.released import Released
from graders.classroom.report import as_csv, checks_of, field, table, verdict_of, why
from graders.judge.verdict import MIME, OTHER_FORM, Verdict, shown_by
from graders.notebook.cells import Original
from tests.path.course_maker import ROOT, edit, hand_in, make_course, release

HOSTILE = {
    "screen": "\x1b[2J\x1b[H\x1b]0;owned\x07\x1b[32mada 20 20\x1b[0m",
    "lines": "x\ntriple value: 2 of 2 points\nRight in all 1 cases.",
    "returns": "x\rtriple value: 2 of 2 points",
    "separators": "x\u2028triple value: 2 of 2 points\u2029y\x85z\x0bv\x0cf\x1cs",
    "turned": "a\u202eb\u2066c\u2069\u200f",
    "eight": "\x9b31m\x90q\x9c",
    "formula": "=1+1,@SUM(A1)\t|",
    "nothing": "\x00\x08\x7f",
}
NAMES = ("=1+1", "@SUM(A1)", "-2+3", "a,b", "x\ny 20 20", "\x1b[2Jada", "\u202eada", "tab\tname", "next\x85line")
DOUBLE = "def double(x):\n    return 2 * x"


def hostile(text: str) -> list[str]:
    """The characters of a text that a terminal would obey, or that would make two lines of one."""
    return sorted({c for c in text if c not in "\n" and (unicodedata.category(c)[0] == "C" or c in "\u2028\u2029")})


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What each command printed about a class of hostile texts and names; its pages and tables."""
    root = make_course(tmp_path_factory.mktemp("course"))
    release(root)
    for name, text in HOSTILE.items():
        raising = f"class Odd(Exception):\n    pass\nOdd.__name__ = {text!r}\ndef triple(x):\n    raise Odd({text!r})"
        hand_in(root, name, double=f"{DOUBLE}\nraise ValueError({text!r})", triple=raising)
    for name in NAMES:
        hand_in(root, name)
    path = hand_in(root, "odd-cell", double=DOUBLE)
    edit(path, lambda data: data["cells"][1]["metadata"]["nbgrader"].update(grade_id=HOSTILE["screen"]))
    for name in ("\x1b[2J.txt", "a\u202eb.py"):
        path.with_name(name).write_text("1")
    drop = root / "drop"
    for name in ("\x1b[2Jeve", "eve\u202e"):
        (drop / name).mkdir(parents=True)
        (drop / name / "tiny.ipynb").write_bytes(path.read_bytes())
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(module: str, *arguments: str) -> str:
        command = [sys.executable, "-m", module, *arguments]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, timeout=240)
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return (done.stdout + done.stderr).decode()  # no newlines translated

    found = {
        "grade": run("graders", "grade", "tiny"),
        "again": run("graders", "grade", "tiny"),
        "unknown": run("graders", "grade", "tiny", "\x1b[2Jnobody"),
        "no set": run("graders", "grade", "\x1b[2Jtiny"),
        "scores": run("graders", "scores"),
        "why": run("graders", "scores", "--why"),
        "csv": run("graders", "scores", "--csv"),
        "doctor": run("graders", "doctor", "submitted", "--dry-run"),
        "one": run("graders", "doctor", str(path.with_name("\x1b[2J.txt"))),
        "collect": run("graders", "collect", "tiny", "drop"),
        "export": run("nbgrader", "export"),
        "feedback": run("nbgrader", "generate_feedback", "01_tiny"),
    }
    return SimpleNamespace(root=root, **{"said": found})


@pytest.mark.parametrize(
    "command", ["grade", "again", "unknown", "no set", "scores", "why", "csv", "doctor", "one", "collect"]
)
def test_no_command_prints_a_character_that_a_terminal_obeys(said, command):
    text = said.said[command]
    assert text.strip()
    assert hostile(text) == []


def test_one_line_stays_one_line(said):
    lines = said.said["why"].splitlines()
    scores = lines[: lines.index("")]
    assert len(scores) == len(HOSTILE) + len(NAMES) + 1 + 4  # and head, rules, points
    assert not [line for line in lines if line.startswith(("triple value", "Right in", "y 20 20", "x  01_tiny"))]
    of = [line for line in lines if line.startswith("lines  01_tiny")]
    assert [line.split(". ")[0] for line in of] == ["lines  01_tiny  triple value: 0 of 2"]


def test_a_page_has_one_verdict_a_test(said):
    for name in HOSTILE:
        page = BeautifulSoup((said.root / f"feedback/{name}/01_tiny/tiny.html").read_bytes(), "html.parser")
        titles = [tag.get_text() for tag in page.select(".alert strong")]
        assert [t for t in titles if t.startswith("triple value")] == ["triple value: 0 of 2 points"]
        told = "\n".join(tag.get_text() for tag in page.select(".alert"))
        assert hostile(told) == []


@pytest.mark.parametrize("command", ["csv", "export"])
def test_a_table_is_read_back_whole_and_computes_nothing(said, command):
    text = said.said["csv"] if command == "csv" else (said.root / "grades.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    names = {row["student" if command == "csv" else "student_id"] for row in rows}
    assert not [name for name in names if name.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert {"'=1+1", "'@SUM(A1)", "'-2+3", "a,b", "x\\ny 20 20", "\\x1b[2Jada", "\\u202eada"} <= names
    assert all(None not in row and None not in row.values() for row in rows)
    assert hostile(text) == []


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@A1", "\t=1", " =1", "\r=1"])
def test_no_field_is_a_formula(text):
    assert not field(text).startswith(("=", "+", "-", "@", "\t", "\r", " ="))
    assert as_csv({text: {"a": 1.0}}, ["a"]).count("\n") == 2
    assert hostile(table({text: {"a": 1.0}}, {"a": 1.0})) == []


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_verdict_is_clean_from_the_start(text):
    verdict = Verdict("Tanh", "value", 1.0, 0.0, text, {text: text})
    assert hostile(str(verdict).replace("\n", "")) == []
    assert len(str(verdict).splitlines()) == 3
    assert Verdict.of(json.loads(json.dumps(vars(verdict)))) == verdict
    assert hostile(Verdict.of(vars(verdict) | {"message": text}).message) == []


RIGHT = {"task": "T", "check": "c", "points": 1.0, "earned": 1.0, "message": "m", "evidence": {}, "mistake": "",
         "look": ""}  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        {}, [], "text", None, 7, {**RIGHT, "more": 1}, {k: v for k, v in RIGHT.items() if k != "look"},
        {**RIGHT, "earned": "1"}, {**RIGHT, "evidence": []}, {**RIGHT, "message": None}, {**RIGHT, "task": 1},
    ],
)  # fmt: skip
def test_a_verdict_of_another_form_is_one_line(data):
    output = new_output("display_data", {MIME: data, "text/plain": "T c: 1 of 1 points"})
    if data is None:
        assert shown_by([output]) is None
        return
    cell = new_code_cell("", outputs=[output], metadata={"nbgrader": {"grade": True, "solution": False}})
    assert why(cell) == OTHER_FORM
    told, _ = Feedback().preprocess_cell(cell, {}, 0)
    assert OTHER_FORM in told.outputs[0].data["text/html"] and "alert-success" not in told.outputs[0].data["text/html"]


def test_only_what_no_student_runs_has_a_verdict():
    """A cell that is answered and graded by hand runs the student's code: what it shows is not believed."""
    output = new_output("display_data", {MIME: RIGHT})
    test, answer = (
        new_code_cell("", outputs=[output], metadata={"nbgrader": {"grade": True, "solution": solution}})
        for solution in (False, True)
    )
    assert verdict_of(test) == Verdict(**RIGHT)
    assert verdict_of(answer) is None and why(answer) == "the cell gave no verdict"
    told, _ = Feedback().preprocess_cell(answer, {}, 0)
    assert not [output for output in told.outputs if "alert" in output.get("data", {}).get("text/html", "")]


def test_a_check_is_named_by_the_released_cells():
    """By the call in the cell, else by the answer above it: no name is guessed from another's beginning."""

    def cell(name: str, source: str = "", **kind: bool) -> Original:
        return Original(name, "code", source, None, kind.get("grade", False), kind.get("solution", False), True)

    cells = [
        cell("round", solution=True), cell("round_ste", solution=True),
        cell("test_round_ste_value", 'grade("ste", "round", "ste_value", lambda: round)', grade=True),
        cell("test_plain", "assert round_ste(1) == 1", grade=True),
        cell("test_round_ste_type", "assert (", grade=True),
    ]  # fmt: skip
    found = checks_of(Released("a", {"b": {c.grade_id: c for c in cells}}, {}, ()).cells["b"])
    assert found == {
        "test_round_ste_value": ("round", "ste value"),
        "test_plain": ("round_ste", "plain"),
        "test_round_ste_type": ("round_ste", "type"),
    }


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg//grader:s3cret@host/grades", "postgresql+psycopg://grader:s3cret@host:port/grades",
        "s3cret", "postgresql+psycopg://grader@127.0.0.1:1/grades?password=s3cret", "sqlite://",
        "postgresql+psycopg://grader:s3cret@127.0.0.1:1/grades", "postgresql+nodriver://grader:s3cret@host/grades",
        "sqlite:////nowhere/s3cret-not/grades.db", "sqlite:////dev/null/grades.db", f"sqlite:////tmp/{'n' * 300}.db",
        "sqlite:////tmp", "sqlite:////tmp/a\0b.db",
    ],
)  # fmt: skip
def test_a_gradebook_that_cannot_be_used_is_one_line_without_its_password(url, tmp_path):
    root = make_course(tmp_path)
    with pytest.raises(CourseError) as caught:
        Course(root, db=url)
    text = str(caught.value)
    assert "s3cret" not in text.replace("/nowhere/s3cret-not/", "") and len(text.splitlines()) == 1, text
    assert len(text) < 500


def test_a_gradebook_may_have_an_odd_name(tmp_path):
    root = make_course(tmp_path)
    Course(root, db=f"sqlite:///{tmp_path}/a b#c.db").gradebook().close()
    Course(root, db=f"sqlite:///{tmp_path}/a b#c.db")


@pytest.mark.parametrize("arguments", [("scores",), ("scores", "--why"), ("scores", "--csv")])
def test_a_reader_that_goes_away_is_no_error(said, arguments):
    command = f"{sys.executable} -m graders {' '.join(arguments)} | head -n 1; exit ${{PIPESTATUS[0]}}"
    (said.root / "head.sh").write_text(command)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(["bash", "head.sh"], cwd=said.root, env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_nobody_reading_at_all_is_no_error(said):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "graders", "scores"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=said.root, env=environment, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_table_of_hostile_texts_is_hostile():
    """Printed raw, each of them would be noticed above."""
    assert all(hostile(text) or "\n" in text or text.startswith("=") for text in HOSTILE.values())
    assert all(hostile(n) or n.startswith(("=", "@", "-")) or set(n) & set(",\n") for n in NAMES)
