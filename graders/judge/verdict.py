"""What a check found: the data behind a score, shown by a grade cell and read again from its output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any

MIME = "application/vnd.graders.verdict+json"
SHOWN: ContextVar[list[dict[str, Any]] | None] = ContextVar("what the grade cell that runs has shown", default=None)


@dataclass(frozen=True)
class Verdict:
    """What a check found.

    Args:
        task, check: their names.
        points: what the check is worth.
        earned: what the operation earned, from 0 to `points`.
        message: one or two sentences to the author.
        evidence: a failing case, by what each part of it is: its inputs, yours, the expected.
        mistake: the name of the known mistake; "": none, or the operation is right.
        look: the look that found it (``exists``, ``gradient`` ...); "": the operation is right.
    """

    task: str
    check: str
    points: float
    earned: float
    message: str
    evidence: dict[str, str] = field(default_factory=dict)
    mistake: str = ""
    look: str = ""

    def __str__(self) -> str:
        return "\n".join([self.title, self.message, *(f"  {name}: {text}" for name, text in self.evidence.items())])

    @property
    def title(self) -> str:
        """The first line: "Square gradient: 0 of 2 points"."""
        return f"{self.task} {self.check}: {self.earned:g} of {self.points:g} points"

    def show(self) -> None:
        """Show it as a cell's output: the text, and beside it the data that `shown_by` reads."""
        output = {"text/plain": str(self), MIME: asdict(self)}
        shown = SHOWN.get()
        if shown is not None:
            shown.append(output)
            return
        from IPython import get_ipython  # in a student's kernel, under stock nbgrader
        from IPython.display import display

        if get_ipython() is None:
            print(self)
        else:
            display(output, raw=True)


def shown_by(outputs: Iterable[Mapping[str, Any]]) -> Verdict | None:
    """Return the verdict among the outputs of a grade cell, None where there is none."""
    for output in outputs:
        data = output.get("data", {}).get(MIME)
        if data is not None:
            return Verdict(**data)
    return None
