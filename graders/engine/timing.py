"""Where the time goes: with ``GRADERS_PROFILE=FILE`` in the environment, FILE gets a JSON line for each ended step."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

_within: list[float] = [0.0]  # per open step, the seconds of the steps inside it


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Note the block's seconds, less those of the phases inside it: no second is counted twice in a process.

    Of one thread; without the variable in the environment nothing is noted.
    """
    if "GRADERS_PROFILE" not in os.environ:
        yield
        return
    _within.append(0.0)
    start = perf_counter()
    try:
        yield
    finally:
        seconds, inside = perf_counter() - start, _within.pop()
        _within[-1] += seconds
        note(name, seconds - inside)


def note(name: str, seconds: float) -> None:
    """Append one line, whole, whichever processes write to the file."""
    if path := os.environ.get("GRADERS_PROFILE"):
        line = json.dumps({"phase": name, "seconds": seconds, "process": os.getpid()}) + "\n"
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)
