"""What a check found: the data behind a score, shown by a grade cell and read again from its output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from graders.judge.places import Place, known, of_message, place
from graders.judge.raised import meaning

MIME = "application/vnd.graders.verdict+json"
SHOWN: ContextVar[list[dict[str, Any]] | None] = ContextVar("what the grade cell that runs has shown", default=None)
MESSAGE, PART = 4000, 1000  # characters of a message, and of a part of the evidence
CODE = 20_000  # characters of the failing case as code; a longer one is left out, since half of it would not run
PASTE = "Run this below your answer to see it:"
REPLY = "reply"  # the look of a verdict on an answer that no code of a student gives by itself
FORM = "form"  # the look of what stands for a verdict that cannot be read
LATER = ("code", "after")  # parts that verdicts of earlier versions lack, which are read as well
OTHER_FORM = "This verdict has the form of another version of the graders. Grade again with --force."


def one_line(text: object, most: int = MESSAGE) -> str:
    """Return ``text`` on one line: line ends, control characters and turns of direction are spelled out."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)[: most + 1])
    return safe if len(safe) <= most else f"{safe[: most - 3]}..."


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
        code: the failing case as Python that runs below the answer; "": there is none that would show it.
        after: the check that is about the mistake, where it is another; "": this one.
    """

    task: str
    check: str
    points: float
    earned: float
    message: str
    evidence: dict[str, str] = field(default_factory=dict)
    mistake: str = ""
    look: str = ""
    code: str = ""
    after: str = ""

    def __post_init__(self) -> None:
        """Spell out what a student's text may hold: it reaches terminals, tables and pages from here."""
        object.__setattr__(self, "message", one_line(self.message))
        evidence = {one_line(name, PART): one_line(text, PART) for name, text in self.evidence.items()}
        object.__setattr__(self, "evidence", evidence)
        code = "\n".join(one_line(line, CODE) for line in self.code.split("\n")) if len(self.code) <= CODE else ""
        object.__setattr__(self, "code", code)

    @classmethod
    def of(cls, data: object) -> Verdict:
        """Return the verdict that JSON holds; of another form, one of no task that says so."""
        unreadable = cls("", "", 0.0, 0.0, OTHER_FORM, look=FORM)
        if isinstance(data, dict):  # the place is looked up anew: the book may have moved since
            data = {name: value for name, value in data.items() if name != "place"}
        if not isinstance(data, dict) or {*LATER, *data} != {part.name for part in fields(cls)}:
            return unreadable
        numbers, others = ("points", "earned"), ("evidence",)
        sound = isinstance(data["evidence"], dict) and all(isinstance(data[name], int | float) for name in numbers)
        texts = (value for name, value in data.items() if name not in (*numbers, *others))
        return cls(**data) if sound and all(isinstance(text, str) for text in texts) else unreadable

    def __str__(self) -> str:
        parts = [self.title, self.message, *(f"  {name}: {text}" for name, text in self.evidence.items())]
        return "\n".join([*parts, *(["", PASTE, "", self.code] if self.code else [])])

    @property
    def title(self) -> str:
        """The first line: "Square gradient: 0 of 2 points"."""
        if self.look == FORM:
            return "Unreadable verdict"
        return f"{self.task} {self.check}: {self.earned:g} of {self.points:g} points"

    @property
    def place(self) -> Place | None:
        """Where the book treats what is wrong; None: nothing is, or it is nothing that the book treats."""
        lost = (self.look or self.earned < self.points) and self.look not in (REPLY, FORM, "exists")
        if not lost or not known(self.task, self.check):
            return None
        if not self.mistake and (heading := meaning(self.evidence.get("raised", "")).heading):
            return of_message(heading)
        return place(self.task, self.check, self.mistake)

    def data(self) -> dict[str, Any]:
        """Return all of it as JSON has it, the place in the book included."""
        return asdict(self) | {"place": asdict(self.place) if self.place else None}

    def show(self) -> None:
        """Show it as a cell's output: the text, and beside it the data that `shown_by` reads."""
        output = {"text/plain": str(self), MIME: self.data()}
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
    """Return the first verdict among the outputs of a grade cell that runs no code of a student, None for none."""
    for output in outputs:
        data = output.get("data", {}).get(MIME)
        if data is not None:
            return Verdict.of(data)
    return None
