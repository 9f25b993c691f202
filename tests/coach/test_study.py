"""`python -m graders study`, and the file that it reads."""

import json
import os
import re
from pathlib import Path

import pytest

from graders import coach
from graders.cli import main
from graders.coach import state, study
from graders.coach.state import Progress
from tests.coach.conftest import HALF, RIGHT, defined
from tests.coach.documents import faults


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["study", *words])
    return code, *capsys.readouterr()


def test_what_is_done_tried_and_next(capsys, study_file) -> None:
    code, out, err = told(capsys)
    assert (code, err) == (0, "") and "Next: Square (set relu), which you have not tried yet." in out
    coach(defined(HALF))
    code, out, _ = told(capsys)
    assert re.search(r"Square +1 of 4 checks hold, 1 try\n", out)
    assert "Next: Square (set relu); what is left is gradient, second order and contract." in out
    coach(defined(RIGHT))
    code, out, _ = told(capsys)
    assert "01_relu: 1 of 3 done" in out and re.search(r"Square +done \d{4}-\d\d-\d\d, 2 tries\n", out)
    assert "Next: LeakyReLU (set relu), which you have not tried yet." in out
    assert out.index("01_relu") < out.index("02_sigmoid") < out.index("10_flash_attention")


def test_done_stays_done(capsys) -> None:
    coach(defined(RIGHT))
    coach(defined(HALF))
    progress = state.read().tasks["relu.Square"]
    assert progress.done and progress.tries == 2 and progress.held == ["value"] and progress.best == 4


def test_an_untouched_answer_is_no_try(capsys, study_file) -> None:
    coach(defined(RIGHT.replace("return x * x", "raise NotImplementedError")))
    assert not study_file.exists()


def test_a_chapter_s_turn_is_listed_once_it_was_tried(capsys) -> None:
    assert "ReLU\n" not in re.sub(r"Leaky\w+|\w*Linear\w*|Clipped\w+", "", told(capsys)[1])
    relu = RIGHT.replace("Square", "ReLU")
    coach(defined(relu, "ReLU"))
    assert re.search(r"  ReLU +.*, a turn of the chapter", told(capsys)[1])


def test_as_data(capsys) -> None:
    coach(defined(HALF))
    code, out, err = told(capsys, "--json")
    document = json.loads(out)
    assert code == 0 and err == "" and not faults(document)
    (square,) = [t for s in document["sets"] for t in s["tasks"] if t["task"] == "Square"]
    assert square["state"] == "tried" and square["held"] == ["value"] and document["next"]["task"] == "Square"


def test_forgetting(capsys, study_file) -> None:
    coach(defined(RIGHT))
    code, out, err = told(capsys, "--forget")
    assert code == 0 and out == "" and err == f"Deleted {study_file}.\n" and not study_file.exists()
    assert told(capsys, "--forget")[2] == "There is nothing to forget.\n"
    code, out, err = told(capsys, "--forget", "--json")
    assert not faults(json.loads(out))


DAMAGED = {
    "cut short": '{"version": 1, "tasks": {"relu.Sq',
    "not JSON": "hello",
    "a list": "[]",
    "of another version": '{"version": 2, "tasks": {}}',
    "a number in place of a task": '{"version": 1, "tasks": {"relu.Square": 3}}',
    "tries that are words": '{"version": 1, "tasks": {"relu.Square": {"tries": "many"}}}',
    "held that are numbers": '{"version": 1, "tasks": {"relu.Square": {"held": [1]}}}',
    "not text": b"\xff\xfe\x00\x80",
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_costs_one_line(capsys, study_file: Path, case: str) -> None:
    damage = DAMAGED[case]
    study_file.write_bytes(damage if isinstance(damage, bytes) else damage.encode())
    code, out, _ = told(capsys)
    assert code == 0 and out.startswith("study.json could not be read (it is damaged)") and "01_relu: 0 of 3" in out
    capsys.readouterr()
    coach(defined(RIGHT))
    out = capsys.readouterr().out
    assert "All 4 checks hold." in out and "It is kept as study.json.damaged." in out
    kept = study_file.with_name("study.json.damaged").read_bytes()
    assert kept == (damage if isinstance(damage, bytes) else damage.encode())
    assert state.read().done("relu.Square") and state.read().note == ""


def test_what_a_later_version_adds_is_no_damage(study_file: Path) -> None:
    study_file.write_text('{"version": 1, "tasks": {"relu.Square": {"tries": 2, "mood": "good"}, "new.Task": {}}}')
    read = state.read()
    assert read.note == "" and read.tasks["relu.Square"].tries == 2
    assert "new.Task" in read.tasks and study.overview(read)


def test_the_file_is_there_whole_or_not_at_all(study_file: Path, monkeypatch) -> None:
    state.tried("relu.Square", [("value", True)], 4)
    before = study_file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    note = state.tried("relu.Square", [("value", False)], 4)
    assert "could not be noted" in note and "No space left on device" in note
    assert study_file.read_bytes() == before and [p.name for p in study_file.parent.iterdir()] == ["study.json"]


def test_where_the_file_is(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("GRADERS_STUDY")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    course = tmp_path / "course"
    for folder in ("book", "exercises/01_relu"):
        (course / folder).mkdir(parents=True)
    monkeypatch.chdir(course / "exercises/01_relu")
    assert state.file() == course / ".study.json"
    monkeypatch.chdir(tmp_path)
    assert state.file() == tmp_path / "state/custom-gradients/study.json"
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")  # which the specification has ignored
    assert state.file() == Path("~/.local/state/custom-gradients/study.json").expanduser()
    monkeypatch.setenv("GRADERS_STUDY", "off")
    assert state.file() is None and state.tried("relu.Square", [("value", True)], 4) == ""


def test_the_docstring_shows_the_file_as_it_is(study_file: Path) -> None:
    state.tried("relu.Square", [("value", True)], 4)
    (entry,) = json.loads(study_file.read_text())["tasks"].values()
    shown = re.findall(r'^          "(\w+)":', state.__doc__, re.M)
    assert shown == [*entry] == [*vars(Progress())]
