"""What is wrong with a submission, as data, and text that is fit for a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

Said = tuple[str, str]  # what, and what is done or has to be done


def printable(text: object, most: int = 300) -> str:
    """``text`` on one line, fit for a terminal: control characters, escapes and turns of direction are spelled out."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)[: most + 1])
    return safe if len(safe) <= most else f"{safe[: most - 3]}..."


def quoted(found: Sequence[str]) -> str:
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return ", ".join(printable(repr(name), 40) for name in found[:5]) + more


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a submission: what, what to do, and whether it keeps the submission from being graded."""

    file: str
    what: str
    remedy: str
    fatal: bool = False
    repaired: bool = False

    def __str__(self) -> str:
        return f"{printable(self.file, 100)}: {printable(self.what)}. {printable(self.remedy)}"
