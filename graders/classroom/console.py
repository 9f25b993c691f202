"""What a command says while it works: lines on stderr that stay, and progress on stdout that a terminal overwrites."""

import sys

from graders.notebook.problem import printable


def say(*lines: str) -> None:
    """Print lines on stderr, each on a line of its own."""
    if overwrites():
        progress("")
    for line in lines:
        print(printable(line, 1000), file=sys.stderr, flush=True)


def overwrites() -> bool:
    """Return whether progress is overwritten, so that a line more costs nothing."""
    return sys.stdout.isatty()


def progress(text: str) -> None:
    """Print a line that the next one overwrites on a terminal; elsewhere it stays."""
    if overwrites():
        print(f"\r\x1b[K{printable(text)}", end="", flush=True)
    elif text:
        print(printable(text), flush=True)


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds: ``1:05``."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
