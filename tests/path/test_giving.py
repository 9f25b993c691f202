"""Pages of feedback at the speed of grading: several at a time, those that are out of date; an archive to hand back."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from graders.classroom.giving import _begin, _meant, names_in
from graders.classroom.roster import Roster
from tests.path.course_maker import ROOT, graded_course, hand_in

ANSWERS = {"double": "def double(x):\n    return 2 * x", "triple": "def triple(x):\n    return x"}
STUDENTS = ("ada", "ben", "cy")


@pytest.fixture(scope="module")
def graded(tmp_path_factory, quick) -> Path:
    return graded_course(tmp_path_factory.mktemp("course"), quick, dict.fromkeys(STUDENTS, ANSWERS))


@pytest.fixture
def course(graded, tmp_path) -> Path:
    """A course of its own for each test, graded once for all."""
    return shutil.copytree(graded, tmp_path / "course")


def page(root: Path, student: str) -> Path:
    return root / f"feedback/{student}/01_tiny/tiny.html"


def test_only_what_is_out_of_date_is_made_again(course, here):
    code, out, err = here(course, "feedback", "tiny", "--workers", "2")
    assert (code, err) == (0, "") and "3 made, 0 as they were" in out
    first = {student: page(course, student).read_bytes() for student in STUDENTS}
    assert all(b"Score: 4.0 / 6.0" in text for text in first.values())
    assert "0 made, 3 as they were" in here(course, "feedback", "tiny")[1]
    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:  # a comment in the formgrader
        gradebook.find_comment("double", "tiny", "01_tiny", "ben").manual_comment = "Well done, Ben."
        gradebook.db.commit()
    assert "1 made, 2 as they were" in here(course, "feedback", "tiny")[1]
    assert b"Well done, Ben." in page(course, "ben").read_bytes()
    assert page(course, "ada").read_bytes() == first["ada"]
    hand_in(course, "cy", **ANSWERS | {"triple": "def triple(x):\n    return 3 * x"})
    here(course, "grade", "tiny")
    page(course, "ada").unlink()
    assert "2 made, 1 as they were" in here(course, "feedback", "tiny")[1]
    assert b"Score: 6.0 / 6.0" in page(course, "cy").read_bytes() and page(course, "ada").read_bytes() == first["ada"]
    assert "3 made, 0 as they were" in here(course, "feedback", "tiny", "--force")[1]
    assert "1 made, 0 as they were" in here(course, "feedback", "tiny", "ada", "--force")[1]


def test_pages_are_those_of_nbgrader_s_own_command(course, here, run):
    here(course, "feedback", "tiny")
    ours = {student: page(course, student).read_bytes() for student in STUDENTS}
    done = run(course, "nbgrader", "generate_feedback", "01_tiny", "--force")
    assert done.returncode == 0, done.stderr
    assert {student: page(course, student).read_bytes() for student in STUDENTS} == ours


def test_a_page_that_fails_is_a_line_and_is_tried_again(course, here):
    path = course / "autograded/ben/01_tiny/tiny.ipynb"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    code, out, err = here(course, "feedback", "tiny")
    assert code == 1 and "2 made" in out, out
    assert (
        err
        == "ben/01_tiny/tiny.ipynb: making its page of feedback failed; the page says only that. Read the notebook.\n"
    )
    path.write_bytes(whole)
    assert "1 made, 2 as they were" in here(course, "feedback", "tiny")[1]


def test_after_an_interruption_what_was_made_is_kept(course):
    for number in range(24):
        source, target = course / "submitted/ada/01_tiny", course / f"submitted/s{number:02}/01_tiny"
        target.mkdir(parents=True)
        (target / "tiny.ipynb").write_bytes((source / "tiny.ipynb").read_bytes())
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "graders"]
    graded = subprocess.run([*command, "grade", "tiny"], cwd=course, env=environment, capture_output=True, text=True)
    assert "27 of 27" in graded.stdout, graded.stderr
    process = subprocess.Popen(
        [*command, "feedback", "tiny", "--workers", "1"],
        cwd=course,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )
    while len(list((course / "feedback").glob("*/01_tiny/tiny.html"))) < 3:
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.strip() == "graders: interrupted; what was made is kept; run the same command to continue"
    made = len(json.loads((course / "feedback/.01_tiny.json").read_text()))
    assert 2 <= made < 27
    again = subprocess.run([*command, "feedback", "tiny"], cwd=course, env=environment, capture_output=True, text=True)
    assert f"{27 - made} made, {made} as they were" in again.stdout, again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("feedback", "tiny", "zoe"), "nothing of zoe is graded in 01_tiny"),
        (("feedback", "tiny", "--like", "x.zip"), "name the archive too, with --zip FILE"),
        (("feedback", "tiny", "--zip", "a.zip", "--like", "none.zip"), "none.zip cannot be read"),
    ],
)
def test_what_is_refused(course, here, arguments, message):
    code, _, err = here(course, *arguments)
    assert code == 2 and message in err


# --- an archive to hand back ------------------------------------------------------------------------------------------

DOWNLOADS = {
    "Moodle, folders": (
        ["Ada Byron_501_assignsubmission_file_/my work.ipynb", "Ben Roe_502_assignsubmission_file_/tiny.ipynb"],
        {"Ada Byron_501_assignsubmission_file_/tiny.html", "Ben Roe_502_assignsubmission_file_/tiny.html"},
    ),
    "Moodle, flat": (
        ["Ada Byron_501_assignsubmission_file_tiny.ipynb", "Ben Roe_502_assignsubmission_file_tiny.ipynb"],
        {"Ada Byron_501_assignsubmission_file_tiny.html", "Ben Roe_502_assignsubmission_file_tiny.html"},
    ),
    "Canvas": (
        ["byronada_501_9001_tiny.ipynb", "roeben_LATE_502_9002_tiny-1.ipynb"],
        {"byronada_501_9001_tiny.html", "roeben_LATE_502_9002_tiny.html"},
    ),
    "Brightspace": (
        ["501-77 - Ada Byron - Mar 1, 2026 1000 AM/tiny.ipynb", "502-77 - Ben Roe - Mar 1, 2026 1130 PM/tiny.ipynb"],
        {"501-77 - Ada Byron - Mar 1, 2026 1000 AM/tiny.html", "502-77 - Ben Roe - Mar 1, 2026 1130 PM/tiny.html"},
    ),
}


@pytest.mark.parametrize("platform", DOWNLOADS)
def test_the_archive_bears_the_names_of_the_download(course, here, platform):
    given, wanted = DOWNLOADS[platform]
    with zipfile.ZipFile(course / "download.zip", "w") as file:
        for name in given:
            file.writestr(name, "{}")
    rows = "ada,Ada,Byron,ada@example.org,501\nben,Ben,Roe,ben@example.org,502\ncy,Cy,Low,,503\n"
    (course / "students.csv").write_text(f"id,first_name,last_name,email,lms_user_id\n{rows}")
    arguments = ("feedback", "tiny", "--zip", "back.zip", "--like", "download.zip")
    code, out, err = here(course, *arguments)
    assert (code, err) == (1, "cy is not in download.zip: hand this page back yourself\n"), out
    with zipfile.ZipFile(course / "back.zip") as file:
        assert set(file.namelist()) == wanted
        name = next(name for name in wanted if "ada" in name.lower())
        assert file.read(name) == page(course, "ada").read_bytes()
    before = (course / "back.zip").read_bytes()
    here(course, *arguments)
    assert (course / "back.zip").read_bytes() == before


def test_who_handed_in_and_has_no_page_is_named(course, here):
    """A file that could not be graded: its author waits for a page that is not in the archive."""
    rows = "ada,Ada,Byron,ada@example.org,501\nben,Ben,Roe,ben@example.org,502\ncy,Cy,Low,,503\neve,Eve,Moe,,504\n"
    (course / "students.csv").write_text(f"id,first_name,last_name,email,lms_user_id\n{rows}")
    with zipfile.ZipFile(course / "download.zip", "w") as file:
        for name in ("byronada_501_1_tiny", "roeben_502_2_tiny", "lowcy_503_3_tiny", "moeeve_504_4_tiny"):
            file.writestr(f"{name}.ipynb", "{}")
    code, out, err = here(course, "feedback", "tiny", "--zip", "back.zip", "--like", "download.zip")
    assert code == 1 and "back.zip: 3 pages" in out
    assert err == "eve is in download.zip and has no page: nothing of theirs is graded\n"


def test_without_a_download_each_student_has_a_folder(course, here):
    code, out, _ = here(course, "feedback", "tiny", "--zip", "back.zip")
    assert code == 0 and "back.zip: 3 pages" in out
    with zipfile.ZipFile(course / "back.zip") as file:
        assert file.namelist() == [f"{student}/tiny.html" for student in STUDENTS]


def test_two_hand_ins_of_one_student_are_handed_back_by_hand(tmp_path):
    roster = Roster([{"id": "ada", "lms_user_id": "501"}])
    names = ["byronada_501_9001_tiny.ipynb", "byronada_501_9002_tiny-1.ipynb"]
    assert {_begin(name, "01_tiny") for name in names} == {"byronada_501_9001_", "byronada_501_9002_"}
    assert [_meant(name, "01_tiny", roster) for name in names] == [{"ada"}, {"ada"}]


def test_names_are_read_of_an_archive_and_of_a_folder(tmp_path):
    (tmp_path / "Ada_1_assignsubmission_file_").mkdir()
    (tmp_path / "index.html").write_text("")
    assert names_in(tmp_path) == ["Ada_1_assignsubmission_file_/", "index.html"]
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as file:
        file.writestr("../out.ipynb", "")
        file.writestr("/abs.ipynb", "")
        file.writestr("a/b/c.ipynb", "")
    assert names_in(tmp_path / "d.zip") == ["../", "a/"]
