"""What students wrote cannot stop, slow or fill who reads and judges it: who goes too far for it is ended."""

import json
import os
import re
import time

import pytest

from graders.classroom.course import Course
from graders.classroom.reader import Reader
from graders.engine import bounds, pool, run
from graders.engine.errors import Overspent
from graders.engine.job import Job, Settings
from tests.engine.commands import DOUBLE, RIGHT, grade, start, tiny_course
from tests.engine.test_pool import scores
from tests.path.course_maker import hand_in


def _backtrack(number: int) -> object:
    return re.match(r"(a|a)*b", "a" * number)


def _parse() -> None:
    """Where no signal is looked at until it is done, after half a minute."""
    compile("f'" + "{1}" * 150_000 + "'", "a cell", "exec")


def _count() -> None:
    while True:
        pass


def _fill() -> int:
    return len([bytearray(100_000_000) for _ in range(100)])


def _refuse(text: str) -> None:
    raise LookupError(text)


def _end() -> None:
    os._exit(0)


def _opened() -> list[str]:
    here = "/proc/self/fd"
    return [os.readlink(f"{here}/{fd}") for fd in os.listdir(here) if fd > "2" and os.path.lexists(f"{here}/{fd}")]


@pytest.fixture
def reader():
    started = Reader("the course", seconds=1, memory=500 << 20)
    yield started
    started.close()


@pytest.mark.parametrize("stop", [(_backtrack, 60), (_count,), (_end,)], ids=["in a pattern", "in Python", "by itself"])
def test_a_reader_that_does_not_come_back_is_ended_and_replaced(reader, stop):
    before = reader.ask(os.getpid)
    with pytest.raises(Overspent, match="takes more than 1 CPU seconds"):
        reader.ask(*stop)
    assert reader.ask(os.getpid) not in (before, os.getpid())


def test_a_reader_that_fills_the_memory_is_replaced(reader):
    before = reader.ask(os.getpid)
    with pytest.raises(Overspent, match="more than 500 MB"):
        reader.ask(_fill)
    assert reader.ask(os.getpid) != before


def test_a_reader_goes_on_after_an_exception_and_many_questions_cost_no_more_than_one(reader):
    first = reader.ask(os.getpid)
    with pytest.raises(LookupError, match="of its own"):
        reader.ask(_refuse, "of its own")
    for _ in range(4):  # 2 seconds, and 1 is the limit of each
        reader.ask(_spend, 0.5)
    assert reader.ask(os.getpid) == first


def _spend(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_the_course_stands_for_itself_and_nothing_else_is_open_there(tmp_path):
    course = Course(tiny_course(tmp_path))
    try:
        with (tmp_path / "held").open("w"):
            assert course.reader.ask(_name, course) == str(course.root)
            assert not [name for name in course.reader.ask(_opened) if "held" in name]
    finally:
        course.close()


def _name(course: Course) -> str:
    return str(course.root)


def test_nothing_is_left_of_a_reader(reader):
    process = reader.ask(os.getpid)
    reader.close()
    for _ in range(100):
        if not os.path.exists(f"/proc/{process}"):
            return
        time.sleep(0.02)
    pytest.fail("it lives on")


def test_python_that_goes_too_far_gets_an_exception_that_nobody_swallows():
    started = time.process_time()
    with pytest.raises(bounds.Exceeded), bounds.spending(0.3):
        try:
            _count()
        except Exception:
            pytest.fail("swallowed")
    assert time.process_time() - started < 5
    with bounds.spending(0.3):
        pass
    _spend(0.5)  # nothing comes later


# --- in a class -------------------------------------------------------------------------------------------------------

pytestmark = pytest.mark.usefixtures("warm")
LOST = {"double": DOUBLE, "triple": "def triple(x):\n    return 3 * x  # lost"}


def _swallowing(judge: object) -> object:
    """A judge that gets lost over one submission's text."""

    def lost(self: run.Execution, cell: object, seconds: float) -> None:
        if "# lost" in str(self.notebook) and "triple" in str(cell.metadata.nbgrader.grade_id):
            with open(os.environ["TRIED"], "a") as file:
                file.write("x")
            judge()
        tested(self, cell, seconds)

    tested = run.Execution._test
    return lost


@pytest.mark.parametrize("workers", "12")
@pytest.mark.parametrize("where", ["in the parser", "in Python"])
def test_a_judge_that_gets_lost_costs_one_submission_at_most(tmp_path, where, workers):
    root = tiny_course(tmp_path, ada=RIGHT, ben=LOST, eve=RIGHT, gil=RIGHT)

    def before() -> None:
        os.environ["TRIED"] = str(tmp_path / "tried")
        run.JUDGING, bounds.SPARE = 0, 1.0
        run.Execution._test = _swallowing(_count if where == "in Python" else _parse)

    code, out, err = grade(root, "--workers", workers, "--timeout", "2", before=before)
    assert (tmp_path / "tried").read_text() == "x", "it was tried again"
    assert code == 1 and len(err.splitlines()) == 1, (out, err)
    score = 4 if where == "in Python" else None
    assert scores(root) == {"ada": 6, "ben": score, "eve": 6, "gil": 6}
    if where == "in Python":
        assert "ben: tiny.ipynb: cell test_triple_value took the grader more than 2 CPU seconds" in err
    else:
        assert "ben: tiny.ipynb: cannot be read: that ended the process that judged it" in err


def test_what_cannot_be_read_is_one_line_and_the_others_are_graded(tmp_path):
    """A text on which Python's own parser takes a time that grows with the square, in the doctor and after grading."""
    slow = "f'" + "{1}" * 60_000 + "'\n"
    root = tiny_course(tmp_path, ada=RIGHT, ben={"double": DOUBLE, "triple": slow}, eve=RIGHT)
    path = hand_in(root, "ben", double=DOUBLE, triple=slow)
    data = json.loads(path.read_text())
    for number in range(5):
        cell = {"cell_type": "code", "id": f"m{number}", "metadata": {}, "source": slow + "#" * number}
        data["cells"].append(cell | {"outputs": [], "execution_count": None})
    path.write_text(json.dumps(data))
    code, out, err = start(root, "doctor", "submitted", before=_hurry).done()
    assert code == 1, (out, err)
    assert out.count("cannot be read: that takes more than 1 CPU seconds") == 1, out
    assert "2 of 3 submissions would be graded" in out
    code, out, err = grade(root, "--workers", "2", "--timeout", "3", before=_hurry)
    assert code == 1, (out, err)
    assert "ben: tiny.ipynb: cannot be read: that " in err
    assert "Traceback" not in err
    assert scores(root) == {"ada": 6, "ben": None, "eve": 6}


def _hurry() -> None:
    Reader.__init__.__defaults__ = (1.0, 2 << 30)


def test_a_dask_worker_bounds_the_seconds_of_a_job_too(monkeypatch):
    asked = []
    monkeypatch.setattr(bounds, "end_after", asked.append)
    monkeypatch.setattr(bounds, "may_die", lambda: asked.append("may die"))
    monkeypatch.setattr(run, "run", lambda job: "done")
    assert pool.answer(Job("{}", settings=Settings(cell_time=7)), pool.stamp()) == "done"
    assert asked == ["may die", 7 + run.JUDGING + bounds.SPARE, None]
