"""Several submissions at a time: the same scores, one worker's death is one submission's, and a kill loses nothing."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbgrader.converters import base
from sqlalchemy.orm import Session

from graders.classroom import gradebook
from graders.classroom.course import Course
from graders.classroom.gradebook import Records
from graders.classroom.submission import prepare
from graders.cli import main
from graders.engine import pool, run
from graders.engine.job import Job
from graders.engine.sandbox import NoMemory
from tests.engine.commands import DOUBLE, HERE, RIGHT, SLEEPER, WRONG, grade, start, tiny_course
from tests.engine.reaper import descendants
from tests.path.course_maker import ROOT, hand_in

pytestmark = pytest.mark.usefixtures("warm")  # skipped, or failing, where there is no sandbox
ENDLESS = {"double": DOUBLE, "triple": "while True:\n    pass"}
CLASS = ("ada", "ben", "eve")
ran, written = run.execute, run.run  # before a test puts others in their places


def scores(root: Path) -> dict[str, float | None]:
    return {student: row["01_tiny"] for student, row in Records(Course(root)).scores()[0].items()}


def lines(text: str) -> list[str]:
    """The students in the order in which they were done."""
    return re.findall(r"^01_tiny: \d+ of \d+, (\w+)", text, re.MULTILINE)


def counted(log: Path) -> Callable[[], None]:
    """What makes a process and those that it forks write a line for each notebook that is executed."""

    def before() -> None:
        run.execute = _counting
        os.environ["RAN"] = str(log)

    return before


def _counting(job: Job) -> NotebookNode:
    with open(os.environ["RAN"], "a") as file:
        file.write(f"{os.getpid()} {'4 * x' in job.notebook}\n")
    return ran(job)


def test_a_class_gets_the_same_scores_whoever_executes_it(tmp_path):
    """In this process, in two others; each notebook once, also one without ids of cells, which then get new ones."""
    root = tiny_course(tmp_path, ada=RIGHT, ben=WRONG, eve=RIGHT)
    path = hand_in(root, "old", **WRONG)
    old = json.loads(path.read_text())
    for cell in old["cells"]:
        del cell["id"]
    path.write_text(json.dumps(old | {"nbformat_minor": 4}))
    seen = []
    for arguments in (["--workers", "1"], ["--workers", "2", "--force"]):
        log = tmp_path / f"ran-{len(seen)}"
        code, out, err = grade(root, *arguments, before=counted(log))
        assert (code, err) == (0, ""), out
        with Records(course := Course(root)) as records:
            graded = records.notebook(course.submission("ada", "01_tiny"), "tiny")
        seen.append((scores(root), {c.source for c in graded.cells}))
        assert len(log.read_text().splitlines()) == 4
        assert len({line.split()[0] for line in log.read_text().splitlines()}) <= int(arguments[1])
    assert seen[0] == seen[1]
    assert seen[0][0] == {"ada": 6, "ben": 4, "eve": 6, "old": 4}


def test_one_that_takes_long_holds_up_no_other(tmp_path):
    others = {f"s{number}": RIGHT for number in range(7)}
    root = tiny_course(tmp_path, ada=ENDLESS, **others)
    code, out, err = grade(root, "--workers", "2", "--timeout", "8")
    assert code == 1
    assert (sorted(lines(out)[:-1]), lines(out)[-1]) == ([*others], "ada")
    assert "ada: tiny.ipynb: cell triple ran longer than 8 s" in err
    assert len(err.splitlines()) == 1
    assert scores(root) == dict.fromkeys(others, 6) | {"ada": 4}
    assert re.search(r"01_tiny: 7 of 8, s[0-6], (\d+\.\d a second|\d+ a minute), \d+:\d\d left", out), out
    assert re.search(r"(?m)^01_tiny: 8 of 8 submissions graded in \d+:\d\d, 1 fault above\.$", out.strip()), out


@pytest.mark.parametrize("times", [1, 99])
def test_a_worker_that_dies_costs_its_own_submission_at_most(tmp_path, times):
    """Once: nobody notices. Whenever it has that submission in hand: that one is a fault, all others are graded."""
    root = tiny_course(tmp_path, ada=RIGHT, ben=WRONG, eve=RIGHT, gil=RIGHT)

    def before() -> None:
        run.execute = _deadly
        os.environ["DEATHS"], os.environ["TIMES"] = str(tmp_path / "deaths"), str(times)

    code, out, err = grade(root, "--workers", "2", before=before)
    assert len((tmp_path / "deaths").read_text()) == min(times, 2), out
    assert scores(root) == {"ada": 6, "ben": 4 if times == 1 else None, "eve": 6, "gil": 6}
    if times == 1:
        assert (code, err) == (0, "")
        return
    assert code == 1
    assert err.startswith("ben: tiny.ipynb: could not be executed (") and "died, and so did a second one" in err
    assert len(err.splitlines()) == 1
    assert "3 of 4 submissions graded" in out
    code, out, err = grade(root, *HERE)  # the next command tries it again
    assert (code, err) == (0, "")
    assert "3 of them earlier" in out and scores(root)["ben"] == 4


def _deadly(job: Job) -> NotebookNode:
    if _struck(job):
        os.kill(os.getpid(), signal.SIGKILL)
    return ran(job)


def _struck(job: Job) -> bool:
    """Whether it is ben's turn to be struck, as often as TIMES says; each time is counted in DEATHS."""
    deaths = Path(os.environ["DEATHS"])
    deaths.touch()
    if "4 * x" not in job.notebook or len(deaths.read_text()) >= int(os.environ["TIMES"]):
        return False
    with deaths.open("a") as file:
        file.write("x")
    return True


def test_what_the_engine_itself_raises_is_that_submissions_fault(tmp_path):
    root = tiny_course(tmp_path, ada=RIGHT, ben=WRONG)
    code, _, err = grade(root, "--workers", "2", before=lambda: setattr(run, "run", _raising))
    assert code == 1
    assert re.fullmatch(r"ben: tiny.ipynb: could not be executed \(planted\)\. .*\n", err), err
    assert scores(root) == {"ada": 6, "ben": None}


@pytest.mark.parametrize("times", [1, 99])
def test_a_machine_without_memory_is_no_fault_of_a_submission(tmp_path, times):
    """Once: it runs again, alone, and is graded. Whenever it runs: it has no score, a line, and another chance."""
    root = tiny_course(tmp_path, ada=RIGHT, ben=WRONG)

    def before() -> None:
        run.execute = _starving
        os.environ["DEATHS"], os.environ["TIMES"] = str(tmp_path / "deaths"), str(times)

    code, _, err = grade(root, "--workers", "2", before=before)
    assert len((tmp_path / "deaths").read_text()) == min(times, 2)
    if times == 1:
        assert (code, err, scores(root)) == (0, "", {"ada": 6, "ben": 4})
        return
    remedy = "It is not graded: free some memory on the machine that graded it, use fewer --workers, and run it again."
    assert (code, err) == (1, f"ben: tiny.ipynb: memory ran out in planted. {remedy}\n")
    assert scores(root) == {"ada": 6, "ben": None}
    code, _, err = grade(root, *HERE)
    assert (code, err, scores(root)) == (0, "", {"ada": 6, "ben": 4})


def _starving(job: Job) -> NotebookNode:
    if _struck(job):
        raise NoMemory("memory ran out in planted")
    return ran(job)


def _raising(job: Job) -> str:
    if "4 * x" in job.notebook:
        raise LookupError("planted")
    return written(job)


class Threads:
    """A crew of threads that counts what it is given."""

    broken = ()
    window = 5

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(2)
        self.running = self.most = 0

    def submit(self, job: Job) -> Future[str]:
        self.running += 1
        self.most = max(self.most, self.running)
        future = self._executor.submit(lambda: time.sleep(0.01) or job.notebook.upper())
        future.add_done_callback(self._done)
        return future

    def _done(self, _: object) -> None:
        self.running -= 1


def test_no_more_is_prepared_than_is_needed_soon():
    crew, taken, done = Threads(), [], []

    def work() -> Iterator[tuple[str, list[Job]]]:
        for number in range(40):
            taken.append(number)
            yield f"s{number}", [Job(f"{number} {part}") for part in "ab"[: number % 3]]

    for name, results in pool._Queue(crew, work()).run():
        done.append(name)
        number = int(name[1:])
        assert results == [f"{number} {part.upper()}" for part in "ab"[: number % 3]]
        assert len(taken) - len(done) <= 2 * crew.window
    assert sorted(done, key=lambda name: int(name[1:])) == [f"s{number}" for number in range(40)]
    assert 3 <= crew.most <= crew.window + 1


def _events(root: Path, kill: int, log: Path, half: bool = False) -> Callable[[], None]:
    """Kill the process with signal 9 at the ``kill``-th thing that is done on disk, before or halfway through."""

    def happens(name: str, act: Callable, *arguments: object, **named: object) -> object:
        with log.open("a") as file:
            file.write(name + "\n")
        if len(log.read_text().splitlines()) == kill:
            if half:
                path, data = arguments
                path.with_name(f".{path.name}.part").write_bytes(data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return act(*arguments, **named)

    def before() -> None:
        for owner, name in ((gradebook, "_write"), (Session, "commit"), (gradebook, "rmtree"), (base.os, "chmod")):
            act = getattr(owner, name)
            setattr(owner, name, lambda *a, _name=name, _act=act, **k: happens(_name, _act, *a, **k))

    return before


@pytest.fixture(scope="module")
def graded_once(tmp_path_factory) -> tuple[Path, list[str]]:
    """A course whose class was graded with wrong answers, and what happened when it was graded with others."""
    root = tiny_course(tmp_path_factory.mktemp("killed"), **dict.fromkeys(CLASS, RIGHT))
    assert grade(root, *HERE)[0] == 0
    for student in CLASS:
        hand_in(root, student, **WRONG)
    log = root / "events"
    assert grade(root, *HERE, before=_events(root, -1, log))[0] == 0
    return root, log.read_text().splitlines()


@pytest.mark.parametrize(
    ("kind", "which", "half", "finished"),
    [
        ("rmtree", 1, False, 1),  # before the second one's earlier grading is removed
        ("_write", 1, False, 1),  # its grades are in the gradebook, its notebook is not written
        ("_write", 1, True, 1),  # ... is half written
        ("chmod", -2, False, 2),  # all is done but the permissions
        ("commit", -2, False, 2),  # before the third one's grades are in
    ],
)
def test_a_kill_loses_nothing_and_nothing_is_graded_twice(graded_once, tmp_path, kind, which, half, finished):
    """All were graded before, with other answers: grades of then are in the gradebook, and do not pass for new ones."""
    root, events = graded_once
    course = Course(root)
    before = scores(root)["ada"]
    wanted = 10 - before
    for student in CLASS:
        hand_in(root, student, **(RIGHT if wanted == 6 else WRONG))
    moment = [number for number, event in enumerate(events, 1) if event == kind][which]
    code, out, err = grade(root, *HERE, before=_events(root, moment, tmp_path / "events", half))
    assert code == -signal.SIGKILL, (out, err)
    with Records(course) as records:
        released = records.released("01_tiny")
        prepared = {s: prepare(course.submission(s, "01_tiny"), released) for s in CLASS}
        done = [student for student in CLASS if records.is_graded(prepared[student])]
    assert done == [*CLASS[:finished]]
    now = scores(root)
    assert [now[student] for student in done] == [wanted] * finished
    # that of the one in hand may be in the gradebook already, with its notebook to follow: it is graded again
    in_hand = {CLASS[finished]: wanted} if kind == "_write" else {}
    assert all(now[student] in (None, before, in_hand.get(student)) for student in CLASS[finished:])
    log = tmp_path / "ran"
    code, out, err = grade(root, *HERE, before=counted(log))
    assert (code, err) == (0, ""), out
    assert f"{finished} of them earlier" in out
    assert len(log.read_text().splitlines()) == len(CLASS) - finished
    assert scores(root) == dict.fromkeys(CLASS, wanted)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_who_is_stopped_takes_the_workers_along(tmp_path, number):
    """Ctrl-C, or a kill: workers and kernels are gone within ten seconds, on a busy machine too; what was done is kept.

    Until then a second command for the same set is refused, and after it none is.
    """
    root = tiny_course(tmp_path, ada=RIGHT, ben=SLEEPER, eve=SLEEPER)
    rooms = tmp_path / "rooms"
    rooms.mkdir()
    command = start(root, "grade", "tiny", "--workers", "2", before=lambda: setattr(tempfile, "tempdir", str(rooms)))
    command.until(lambda: "1 of 3, ada" in command.stdout)
    again = "wait until it has ended, or stop it by Ctrl-C"
    assert grade(root, *HERE) == (2, "", f"graders: 01_tiny is being graded by another command: {again}\n")
    below = descendants(command.process.pid)
    assert sum("bwrap" in line for line in below.values()) >= 2, below
    assert list(rooms.iterdir())
    (os.killpg if number == signal.SIGINT else os.kill)(command.process.pid, number)  # Ctrl-C goes to all of them
    end = time.monotonic() + 10
    while (left := [pid for pid in below if _alive(pid)]) and time.monotonic() < end:
        time.sleep(0.02)
    assert not left, [below[pid] for pid in left]
    code, _, err = command.done(10)
    if number == signal.SIGINT:
        assert code == 130
        assert err.strip() == "graders: interrupted; what was graded is kept; run the same command to continue"
    assert not list(rooms.iterdir())
    assert scores(root) == {"ada": 6, "ben": None, "eve": None}
    for student in ("ben", "eve"):
        hand_in(root, student, **WRONG)
    code, out, err = grade(root, *HERE)
    assert (code, err) == (0, "") and "1 of them earlier" in out
    assert scores(root) == {"ada": 6, "ben": 4, "eve": 4}


def _alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_without_a_sandbox_it_says_so_and_how_to_go_on(tmp_path, monkeypatch):
    root = tiny_course(tmp_path, ada=RIGHT)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))  # where there is no bwrap
    for workers in "12":
        code, out, err = start(root, "grade", "tiny", "--workers", workers).done()
        assert code == 2, (out, err)
        assert (
            err.startswith("graders: no sandbox: bwrap is not installed; install bubblewrap") and "--no-sandbox" in err
        )
        assert len(err.splitlines()) == 1
        assert not (root / "autograded/ada").exists()
    code, out, err = grade(root, "--workers", "2", "--no-sandbox")
    assert (code, err) == (0, "")
    assert scores(root) == {"ada": 6}


def test_a_number_of_workers_is_one(tmp_path, capsys):
    for arguments in (["--workers", "0"], ["--workers", "many"], ["--workers", "2", "--scheduler", "tcp://x:1"]):
        with pytest.raises(SystemExit) as stop:
            main(["grade", "tiny", *arguments])
        assert stop.value.code == 2
    assert "is not a whole number, 1 or more" in capsys.readouterr().err


def test_what_only_reads_what_was_graded_loads_no_torch():
    """It takes a second; `grade` loads it by `pool.load`, before it forks its workers."""
    rooms = (
        "cli classroom.grading classroom.giving classroom.report classroom.classreport classroom.regrade engine.pool"
    )
    code = f"import sys, {', '.join(f'graders.{name}' for name in rooms.split())}\nprint('torch' in sys.modules)"
    code += "\ngraders.engine.pool.load()\nprint('torch' in sys.modules, 'graders.engine.run' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (said.stdout, said.stderr) == ("False\nTrue True\n", "")
