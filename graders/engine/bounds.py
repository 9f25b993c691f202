"""Bounds on what a process of the grader may spend on what a student wrote: CPU seconds, and memory.

Two for CPU seconds: `spending` raises an exception where Python code goes on for too long; a process that may die,
since another waits for it, is ended by the system besides, wherever it is: in a regular expression, in a parser.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

SPARE = 10.0  # CPU seconds that a process which may die has for handling the exception
_mortal = False


class Exceeded(BaseException):
    """The block of `spending` spent more than it may; no `except Exception` of a grade cell or a judge keeps it."""


def may_die(memory: int | None = None) -> None:
    """Say that this process is one whose end another process takes notice of.

    Args:
        memory: bytes that it may map beyond what it has, where the system keeps count; None: as many as it likes.
    """
    global _mortal
    _mortal = True
    if resource is None:
        return
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory is None:
        return
    with suppress(OSError, ValueError):
        with open("/proc/self/statm", encoding="ascii") as file:
            mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (mapped + memory, resource.getrlimit(resource.RLIMIT_AS)[1]))


def end_after(seconds: float | None) -> None:
    """Have the system end this process by SIGXCPU when it has spent so many CPU seconds more; None: never."""
    if resource is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = hard if seconds is None else math.ceil(time.process_time() + seconds)
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


@contextmanager
def spending(seconds: float) -> Iterator[None]:
    """Bound the CPU seconds of a block.

    Signals reach the main thread alone: in another one, on a Dask worker, only the end of the process bounds it.

    Raises:
        Exceeded: somewhere in the block.
    """
    if _mortal:
        end_after(seconds + SPARE)
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def exceeded(number: int, frame: FrameType | None) -> None:
        raise Exceeded

    before = signal.signal(signal.SIGPROF, exceeded)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)  # again: where it arrives in a destructor it is lost
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
