"""What is wrong with a submission, as data, and text that is fit for a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

from .codes import Code


def printable(text: object, most: int = 300) -> str:
    """Return ``text`` on one line, fit for a terminal: control characters and turns of direction are spelled out."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)[: most + 1])
    return safe if len(safe) <= most else f"{safe[: most - 3]}..."


def quoted(found: Sequence[str]) -> str:
    """Return the first five of some names in quotes, and how many more there are."""
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return ", ".join(printable(repr(name), 40) for name in found[:5]) + more


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a submission.

    Attributes:
        code: its kind; the text may change, the code does not.
        file: what it is about.
        what: what is wrong, going on from the file's name.
        remedy: what to do about it, or what is done.
        fatal: whether it keeps the submission from being graded.
        repaired: whether grading puts it right by itself, and the doctor in the file.
    """

    code: Code
    file: str
    what: str
    remedy: str
    fatal: bool = False
    repaired: bool = False

    def __str__(self) -> str:
        return f"{printable(self.file, 100)}: {printable(self.what)}. {printable(self.remedy)}"


ANOTHER = "Ask for a new one."  # what an instructor does about a file that says nothing


class Unreadable(ValueError):
    """A file that cannot be read as a notebook of the course; its text goes on from the file's name."""

    def __init__(self, code: Code, file: str, what: str, remedy: str = ANOTHER) -> None:
        super().__init__(what)
        self.problem = Problem(code, file, what, remedy, fatal=True)

    def __reduce__(self) -> tuple[type["Unreadable"], tuple[Code, str, str, str]]:
        """Be copied whole from the process that reads: an exception's own way has the text alone."""
        found = self.problem
        return type(self), (found.code, found.file, found.what, found.remedy)


class Findings(list[Problem]):
    """The problems of one file, in the order in which they are found."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def found(self, code: Code, what: str, remedy: str) -> None:
        """Add what only the author can put right."""
        self.append(Problem(code, self.file, what, remedy))

    def repaired(self, code: Code, what: str, remedy: str) -> None:
        """Add what is put right where the file is read."""
        self.append(Problem(code, self.file, what, remedy, repaired=True))
