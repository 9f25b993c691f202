"""Grading on the workers of a Dask scheduler: processes of their own, in folders of their own, that see no course."""

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
from distributed import Client

from graders.classroom.course import Course
from graders.classroom.gradebook import Records
from tests.engine.commands import DOUBLE, RIGHT, TRIPLE, WRONG, grade, start, tiny_course
from tests.path.course_maker import ROOT, hand_in

pytestmark = pytest.mark.usefixtures("warm")
SLOW = {"double": DOUBLE, "triple": "import time\ntime.sleep(4)\n" + TRIPLE}


class Cluster:
    """A scheduler on loopback, and workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen] = []
        self._log = folder / "scheduler.log"
        self._start("scheduler", "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self.url = self._said(self._log, r"Scheduler at:\s+(tcp://\S+)")

    def worker(self, name: str, **environment: str) -> subprocess.Popen:
        """Start a worker in an empty folder."""
        arguments = [self.url, "--name", name, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0"]
        return self._start(name, "dask_worker", *arguments, **environment)

    def wait(self, workers: int) -> None:
        """Until so many workers are there."""
        with Client(self.url, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=120)

    def warm(self) -> list[bool]:
        """For each worker, whether it has executed notebooks."""
        with Client(self.url, set_as_default=False) as client:
            return list(client.run(_warm).values())

    def stop(self) -> None:
        """End all of them."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str, module: str, *arguments: str, **environment: str) -> subprocess.Popen:
        folder = self.folder / name
        folder.mkdir()
        installed = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{module}", *arguments],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **installed},
            )  # fmt: skip
        self.processes.append(process)
        return process

    def _said(self, log: Path, pattern: str) -> str:
        end = time.monotonic() + 60
        while not (found := re.search(pattern, log.read_text())):
            assert time.monotonic() < end and self.processes[0].poll() is None, log.read_text()
            time.sleep(0.05)
        return found.group(1)


def _warm() -> bool:
    from graders.engine import parents

    return bool(parents._warm)


@pytest.fixture
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("machines"))
    yield made
    made.stop()


def scores(root: Path) -> dict[str, float | None]:
    return {student: row["01_tiny"] for student, row in Records(Course(root)).scores()[0].items()}


def test_two_workers_grade_a_class_and_the_loss_of_one_costs_nothing(cluster, tmp_path):
    """At first there is none; then there are two, in empty folders; then one is killed with a submission in hand."""
    root = tiny_course(tmp_path, ada=RIGHT, ben=WRONG, eve=SLOW, gil=SLOW)
    command = start(root, "grade", "tiny", "--scheduler", cluster.url)
    command.until(lambda: "has no worker" in command.stderr)
    assert "dask worker" in command.stderr and len(command.stderr.splitlines()) == 1
    cluster.worker("one")
    second = cluster.worker("two")
    code, out, _ = command.done()
    assert code == 0, (out, command.stderr)
    assert len(command.stderr.splitlines()) == 1
    assert scores(root) == {"ada": 6, "ben": 4, "eve": 6, "gil": 6}
    assert cluster.warm() == [True, True]
    for name in ("one", "two"):
        seen = [path.name for path in (cluster.folder / name).rglob("*")]
        assert not [path for path in seen if path.endswith((".ipynb", ".db"))], seen

    for student in ("eve", "gil", "ida", "jon"):
        hand_in(root, student, **(SLOW | {"double": DOUBLE + "\n"}))
    command = start(root, "grade", "tiny", "--scheduler", cluster.url)
    command.until(lambda: "6 submissions, 4 to grade" in command.stdout)
    time.sleep(3)
    second.send_signal(signal.SIGKILL)
    code, out, err = command.done()
    assert (code, err) == (0, ""), out
    assert "2 of them earlier" in out
    assert scores(root) == {"ada": 6, "ben": 4} | dict.fromkeys(("eve", "gil", "ida", "jon"), 6)


def test_a_worker_with_other_code_is_refused(cluster, tmp_path):
    """Before anything is graded: another version of the graders, and none at all."""
    root = tiny_course(tmp_path / "course", ada=RIGHT)
    other, none = tmp_path / "other", tmp_path / "none"
    shutil.copytree(ROOT / "graders", other / "graders", ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "graders/judge/looks.py").open("a") as file:
        file.write("# one line more\n")
    (none / "graders").mkdir(parents=True)
    (none / "graders/__init__.py").write_text("raise ModuleNotFoundError('there is none')\n")
    cluster.worker("right")
    wrong = [cluster.worker("other", PYTHONPATH=str(other)), cluster.worker("none", PYTHONPATH=str(none))]
    cluster.wait(3)
    code, _, err = grade(root, "--scheduler", cluster.url)
    assert code == 2 and len(err.splitlines()) == 1, err
    assert re.search(r"the worker at tcp://\S+ has graders \w{12} instead of \w{12}", err), err
    assert re.search(r"the worker at tcp://\S+ has no usable graders \(", err), err
    assert err.count("the worker at") == 2 and "install the same versions there" in err
    assert not (root / "autograded").exists()
    for process in wrong:
        process.terminate()
        process.wait(30)
    code, _, err = grade(root, "--scheduler", cluster.url)
    assert (code, err) == (0, "")


def test_a_scheduler_that_does_not_answer_is_named(tmp_path):
    root = tiny_course(tmp_path, ada=RIGHT)
    code, _, err = grade(root, "--scheduler", "tcp://127.0.0.1:9")
    assert code == 2 and len(err.splitlines()) == 1, err
    assert err.startswith("graders: no scheduler answers at tcp://127.0.0.1:9 (")
    assert "dask scheduler" in err


def test_a_scheduler_that_is_lost_ends_the_command_in_a_line(cluster, tmp_path):
    root = tiny_course(tmp_path, ada=RIGHT, ben=SLOW, eve=SLOW)
    cluster.worker("one")
    cluster.wait(1)
    command = start(root, "grade", "tiny", "--scheduler", cluster.url)
    command.until(lambda: "1 of 3, ada" in command.stdout)
    cluster.processes[0].kill()
    code, out, err = command.done(60)
    assert code == 2, (out, err)
    assert f"the scheduler at {cluster.url} is gone" in err and len(err.splitlines()) == 1, err
    assert scores(root) == {"ada": 6, "ben": None, "eve": None}
