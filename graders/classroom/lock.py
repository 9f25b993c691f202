"""One command at a time grades a set: the work would be done twice."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

from graders.classroom.errors import CourseError

_held: list[int] = []  # descriptors of locks that only this process may hold


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a set's folder; no other command of this machine has it meanwhile.

    Raises:
        CourseError: another command has it.
    """
    if fcntl is None:
        yield
        return
    _held.append(os.open(folder, os.O_RDONLY))
    try:
        with suppress(OSError):  # a file system without locks
            try:
                fcntl.flock(_held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CourseError(
                    f"{folder.name} is being graded by another command: wait until it has ended, or stop it by Ctrl-C"
                ) from None
        yield
    finally:
        os.close(_held.pop())


def _release() -> None:
    """After a fork: a lock is the parent's, and ends with it."""
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release)
