"""Grading on arrival: what comes is graded once and gets its page; what is unfinished waits; a kill loses nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from graders.classroom.errors import CourseError
from graders.classroom.watching import Notes, look
from tests.path.course_maker import ROOT, hand_in, make_course, release

RIGHT = {"double": "def double(x):\n    return 2 * x", "triple": "def triple(x):\n    return 3 * x"}
HALF = RIGHT | {"triple": "def triple(x):\n    return x"}


@pytest.fixture
def course(tmp_path) -> Path:
    root = make_course(tmp_path / "course")
    release(root)
    (tmp_path / "inbox").mkdir()
    return root


def drop(course: Path, student: str, name: str = "", **answers: str) -> Path:
    """Put a hand-in into the inbox: a folder, or what its name says."""
    made = hand_in(course / "elsewhere", student, **answers) if (course / "elsewhere").exists() else None
    if made is None:
        shutil.copytree(course / "exercises", course / "elsewhere/exercises")
        made = hand_in(course / "elsewhere", student, **answers)
    inbox = course.parent / "inbox"
    if name.endswith(".zip"):
        shutil.make_archive(str(course / "elsewhere/packed"), "zip", made.parent)
        os.replace(course / "elsewhere/packed.zip", inbox / name)
    elif name.endswith(".ipynb"):
        shutil.copy(made, inbox / name)
    else:
        shutil.copytree(made.parent, inbox / (name or student), dirs_exist_ok=True)
    return inbox


def command(course: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "graders", "watch", "tiny", str(course.parent / "inbox"), *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "GRADERS_SEED": "0"}


def once(course: Path, *arguments: str) -> tuple[str, str]:
    done = subprocess.run(
        command(course, "--once", *arguments),
        cwd=course,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return re.sub(r"^\d\d:\d\d:\d\d ", "", done.stdout, flags=re.MULTILINE), done.stderr


@pytest.fixture
def running(course) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(
        command(course),
        cwd=course,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert "watching" in process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()


def until(there, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_each_kind_of_hand_in_is_graded_once_and_gets_its_page(course):
    drop(course, "ada", **RIGHT)
    drop(course, "ben", "ben.zip", **HALF)
    drop(course, "cy", "cy_tiny.ipynb", **HALF)
    drop(course, "dora", "dora+01_tiny+2026-03-01 10:00:00 UTC+x1", **RIGHT)
    inbox = drop(course, "eve", "eve+02_other+2026-03-01 10:00:00 UTC", **RIGHT)
    (inbox / "fay.zip").write_bytes(b"no archive")
    (inbox / ".upload.part").write_bytes(b"PK")
    (inbox / "mallory").symlink_to(inbox / "ada")
    before = {path: path.stat().st_mtime_ns for path in inbox.rglob("*")}
    out, err = once(course)
    lines = [re.sub(r", after [\d.]+ s$", "", line) for line in out.splitlines()]
    assert {"ada: 6 points", "ben: 4 points", "cy: 4 points", "dora: 6 points"} < set(lines)
    assert any(line.startswith(f"{inbox}/fay.zip: left out") for line in lines)
    assert "mallory: left out, it is a symbolic link. Put the file itself there" in lines
    assert not (course / "submitted/mallory").exists()
    assert not any("eve" in line or "upload" in line for line in lines)
    assert lines[-1] == "01_tiny: 4 hand-ins graded." and err == ""
    pages = {path.parts[-3]: path.read_text() for path in course.glob("feedback/*/01_tiny/tiny.html")}
    assert {name: re.search(r"Score: [\d.]+", page)[0] for name, page in pages.items()} == {
        "ada": "Score: 6.0",
        "ben": "Score: 4.0",
        "cy": "Score: 4.0",
        "dora": "Score: 6.0",
    }
    assert {path: path.stat().st_mtime_ns for path in inbox.rglob("*")} == before
    assert once(course)[0].splitlines()[-1] == "01_tiny: 0 hand-ins graded."


def test_attempts_are_counted_by_different_files(course):
    drop(course, "ada", **HALF)
    assert "ada: 4 points" in once(course, "--attempts", "2")[0]
    os.utime(drop(course, "ada", **HALF) / "ada/tiny.ipynb")  # the same once more
    assert "ada: the same file as before, which is graded already" in once(course, "--attempts", "2")[0]
    drop(course, "ada", **RIGHT)
    assert "ada: 6 points" in once(course, "--attempts", "2")[0]
    inbox = drop(course, "ada", **HALF)
    out = once(course, "--attempts", "2")[0]
    assert f"{inbox}/ada/tiny.ipynb: left out, 2 of 2 attempts are used" in out and "0 hand-ins graded" in out
    assert json.loads((course / "watched/01_tiny.json").read_text())["attempts"] == {"ada": 2}


def test_a_hand_in_that_comes_while_it_watches_and_ctrl_c(course, running):
    drop(course, "ada", **RIGHT)
    until((course / "feedback/ada/01_tiny/tiny.html").is_file)
    assert "ada: 6 points, after" in running.stdout.readline()
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 130


def test_what_was_in_hand_at_a_kill_is_taken_again_and_counted_once(course, running):
    for number in range(12):
        drop(course, f"s{number:02}", **RIGHT)
    until(lambda: len(list(course.glob("feedback/*/01_tiny/tiny.html"))) >= 3)
    running.kill()
    running.wait()
    graded = len(list(course.glob("autograded/*/01_tiny/tiny.ipynb")))
    assert 3 <= graded < 12
    out = once(course)[0]
    assert len(re.findall("6 points", out)) == 12 - graded or len(re.findall("6 points", out)) == 13 - graded
    assert len(list(course.glob("feedback/*/01_tiny/tiny.html"))) == 12
    notes = Notes.of(course / "watched/01_tiny.json")
    assert len(notes.taken) == 12 and set(notes.attempts.values()) == {1}


def test_on_a_full_disk_it_waits_and_goes_on(course):
    drop(course, "ada", **RIGHT)
    (course / "submitted").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(course / "submitted")]).returncode:
        pytest.skip("only root can make a small disk")
    try:
        (course / "submitted/ballast").write_bytes(b"x" * (64 << 10))
        process = subprocess.Popen(
            [sys.executable, "-c", WAITS_LESS, *command(course, "--once")[3:]],
            cwd=course,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = process.stderr.readline()
        assert "cannot be written (No space left on device); trying again every" in said, said + process.stdout.read()
        (course / "submitted/ballast").unlink()
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0 and "ada: 6 points" in out
    finally:
        subprocess.run(["umount", "-l", str(course / "submitted")], check=True)


WAITS_LESS = """
import sys
from graders.classroom import watching
from graders.cli import main

watching.WAIT = 0.5
sys.exit(main(sys.argv[1:]))
"""


def test_the_inbox_is_a_folder_that_is_not_one_of_the_course_s(course, here):
    code, _, err = here(course, "watch", "tiny", "nowhere")
    assert code == 2 and "there is no folder nowhere: make it first, or name another" in err
    assert "the course's own folder: name another" in here(course, "watch", "tiny", ".")[2]
    assert "nbgrader_config.py is not a folder" in here(course, "watch", "tiny", "nbgrader_config.py")[2]
    (course / "submitted").mkdir()
    code, _, err = here(course, "watch", "tiny", "submitted")
    assert code == 2 and "submitted is a folder that grading itself writes: name another" in err


def test_what_changes_is_seen_and_no_link_is_followed(tmp_path):
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada/relu.ipynb").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path.parent)
    first = look(tmp_path)
    assert set(first) == {"ada", "link"} and look(tmp_path) == first
    (tmp_path / "ada/relu.ipynb").write_text("{} ")
    assert look(tmp_path)["ada"] != first["ada"] and look(tmp_path)["link"] == first["link"]
    with pytest.raises(CourseError, match="cannot be read"):
        look(tmp_path / "gone")


def test_notes_that_cannot_be_read_are_one_line(tmp_path):
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(CourseError, match=r"x\.json cannot be read .* remove it, and the whole inbox is checked again"):
        Notes.of(tmp_path / "x.json")
