"""Commands as processes of their own that can be killed: forked, so that nothing has to be imported again."""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from graders.cli import main
from graders.engine import parents
from tests.path.course_maker import hand_in, make_course, release

DOUBLE, TRIPLE = "def double(x):\n    return 2 * x", "def triple(x):\n    return 3 * x"
RIGHT = {"double": DOUBLE, "triple": TRIPLE}
WRONG = {"double": DOUBLE, "triple": "def triple(x):\n    return 4 * x"}
HERE = ("--workers", "1")
SLEEPER = {"double": DOUBLE, "triple": "import time\ntime.sleep(25)\n" + TRIPLE}


@dataclass
class Command:
    """A command under way."""

    process: Any
    said: Path

    @property
    def stdout(self) -> str:
        """What it has printed."""
        return (self.said / "out").read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        """What it has said on stderr."""
        return (self.said / "err").read_text(encoding="utf-8")

    def until(self, ready: Callable[[], object], seconds: float = 120) -> None:
        """Wait for something, as long as the command runs."""
        end = time.monotonic() + seconds
        while not ready():
            assert self.process.is_alive() and time.monotonic() < end, (self.stdout, self.stderr)
            time.sleep(0.02)

    def done(self, seconds: float = 240) -> tuple[int, str, str]:
        """Wait for its end: exit code (minus a signal), stdout, stderr."""
        self.process.join(seconds)
        assert self.process.exitcode is not None, (self.stdout, self.stderr)
        return self.process.exitcode, self.stdout, self.stderr


def start(folder: Path, *arguments: str, before: Callable[[], object] | None = None, keep: bool = False) -> Command:
    """Start ``python -m graders`` with these arguments in a folder, in a process group of its own.

    Args:
        folder: the course.
        arguments: of the command.
        before: called in the new process first.
        keep: it uses this process's warm parent, and leaves it as it is: seconds less, where it has no workers.
    """
    said = folder / f"said-{time.monotonic_ns()}"
    said.mkdir()
    for name in ("out", "err"):
        (said / name).touch()
    process = get_context("fork").Process(target=_child, args=(folder, said, arguments, before, keep))
    process.start()
    return Command(process, said)


def grade(folder: Path, *arguments: str, before: Callable[[], object] | None = None) -> tuple[int, str, str]:
    """Start ``python -m graders grade tiny`` and wait for its end."""
    return start(folder, "grade", "tiny", *arguments, before=before, keep=arguments[:2] == HERE).done()


def _child(
    folder: Path, said: Path, arguments: tuple[str, ...], before: Callable[[], object] | None, keep: bool
) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if keep:
        parents.close = lambda: None
    else:
        parents.forget()
    os.chdir(folder)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(said / name, os.O_WRONLY | os.O_APPEND), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    os.environ["GRADERS_SEED"] = "0"
    if before:
        before()
    sys.exit(main(arguments))


def tiny_course(root: Path, **students: dict[str, str]) -> Path:
    """A course in which these students have handed in."""
    make_course(root)
    release(root)
    for student, answers in students.items():
        hand_in(root, student, **answers)
    return root
