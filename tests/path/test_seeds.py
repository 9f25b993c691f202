"""A seed of each student's own: the same each time, another for each, and nobody's where the class has no secret."""

import json
import stat
from pathlib import Path

import pytest

from graders.classroom.errors import CourseError
from graders.classroom.mark import MARK
from graders.classroom.seeds import SECRET, read_secret, seed_of, write_secret
from graders.judge.draw import Draw
from graders.judge.task import Task, forget
from graders.sets.relu.square import task as square
from tests.path.course_maker import hand_in, make_course, release

RIGHT = {"double": "def double(x):\n    return 2 * x", "triple": "def triple(x):\n    return 3 * x"}
RECITED = {"double": "def double(x):\n    return 6", "triple": "def triple(x):\n    return 9"}  # what seed 0 expects


@pytest.fixture
def course(tmp_path) -> Path:
    root = make_course(tmp_path / "course")
    release(root)
    hand_in(root, "ada", **RIGHT)
    hand_in(root, "ben", **RIGHT)
    hand_in(root, "cat", **RECITED)
    return root


def judged(root: Path, student: str) -> str:
    """By what state of the checks a submission was judged: the seed is part of it."""
    notebook = json.loads((root / "autograded" / student / "01_tiny" / "tiny.ipynb").read_text())
    return str(notebook["metadata"][MARK]["judged"])


def points(here, root: Path) -> dict[str, float]:
    _, out, _ = here(root, "grade", "tiny", "--json")
    return {one["student"]: one["score"] for one in json.loads(out)["submissions"]}


def test_recited_numbers_pass_for_everybody_or_for_nobody(course, here):
    assert points(here, course) == {"ada": 6.0, "ben": 6.0, "cat": 6.0}
    assert judged(course, "ada") == judged(course, "ben")

    code, out, err = here(course, "init", "--own-inputs")
    assert (code, err) == (0, "") and "each student has their own, from class_secret.txt: keep a copy of it" in out
    code, out, _ = here(course, "grade", "tiny", "--force", "--json")
    document = json.loads(out)
    assert document["seed"] is None
    assert {one["student"]: one["score"] for one in document["submissions"]} == {"ada": 6.0, "ben": 6.0, "cat": 0.0}
    assert len({judged(course, student) for student in ("ada", "ben", "cat")}) == 3

    _, out, err = here(course, "grade", "tiny")
    assert "3 of them earlier" in out + err and "another seed" not in out + err  # the same seed today as then
    _, out, _ = here(course, "grade", "tiny", "--seed", "0", "--force", "--json")
    assert json.loads(out)["seed"] == 0 and judged(course, "ada") == judged(course, "ben")


def test_nbgrader_draws_the_same(course, here, run):
    write_secret(course)
    here(course, "grade", "tiny")
    ours = judged(course, "ada"), judged(course, "cat")
    done = run(course, "nbgrader", "autograde", "01_tiny", "--force")
    assert done.returncode == 0, done.stderr
    assert (judged(course, "ada"), judged(course, "cat")) == ours and ours[0] != ours[1]


def test_a_seed_is_its_students_and_its_sets():
    secret = b"0123456789abcdef"
    seeds = {seed_of(secret, name, f"s{i}") for name in ("01_relu", "02_sigmoid") for i in range(300)}
    assert len(seeds) == 600 and all(0 <= seed < 2**31 for seed in seeds)
    assert seed_of(secret, "01_relu", "s1") == seed_of(secret, "01_relu", "s1")
    assert seed_of(b"another secret of a class", "01_relu", "s1") not in seeds


def test_other_seeds_are_other_inputs():
    check = square.check("value")
    first, second = (
        check.cases(Draw(square.reference, seed_of(b"0123456789abcdef", "01_relu", name))) for name in ("ada", "ben")
    )
    assert repr(first) != repr(second)


def test_what_was_drawn_for_one_is_let_go_for_the_next():
    kept = [member for member in vars(Task).values() if hasattr(member, "cache_info")]
    square._expected(square.check("value"), 5)
    assert any(member.cache_info().currsize for member in kept)
    forget()
    assert not any(member.cache_info().currsize for member in kept)


def test_a_secret_is_its_owners_and_written_once(tmp_path):
    path = write_secret(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and len(read_secret(tmp_path)) >= 32
    with pytest.raises(CourseError, match="is there already"):
        write_secret(tmp_path)


@pytest.mark.parametrize("text", ["", "short\n"])
def test_what_is_no_secret_is_a_line(course, here, text):
    (course / SECRET).write_text(text)
    code, _, err = here(course, "grade", "tiny")
    assert code == 2 and err.startswith(f"graders: {SECRET} holds") and err.count("\n") == 1
    (course / SECRET).unlink()
    (course / SECRET).mkdir()
    code, _, err = here(course, "grade", "tiny")
    assert code == 2 and err.startswith(f"graders: {SECRET} cannot be read (Is a directory)")
