"""What a command says while it works: lines on stderr that stay, and progress on stdout that a terminal overwrites.

Within `data_on_stdout` progress goes to stderr too: what is on stdout then is one document.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

from graders.notebook.problem import printable

_DATA: ContextVar[bool] = ContextVar("whether stdout is for data alone", default=False)


@contextmanager
def data_on_stdout(wanted: bool = True) -> Iterator[None]:
    """Keep stdout free of all that is no data, if that is wanted."""
    token = _DATA.set(wanted)
    try:
        yield
    finally:
        _DATA.reset(token)


def _out() -> TextIO:
    return sys.stderr if _DATA.get() else sys.stdout


def conclude(*lines: str) -> None:
    """Print lines that end a command; on stderr where stdout is for data."""
    for line in lines:
        print(line, file=_out(), flush=True)


def say(*lines: str) -> None:
    """Print lines on stderr, each on a line of its own."""
    if overwrites():
        progress("")
    for line in lines:
        print(printable(line, 1000), file=sys.stderr, flush=True)


def overwrites() -> bool:
    """Return whether progress is overwritten, so that a line more costs nothing."""
    return _out().isatty()


def progress(text: str) -> None:
    """Print a line that the next one overwrites on a terminal; elsewhere it stays."""
    if overwrites():
        print(f"\r\x1b[K{printable(text)}", end="", file=_out(), flush=True)
    elif text:
        print(printable(text), file=_out(), flush=True)


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds: ``1:05``."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
