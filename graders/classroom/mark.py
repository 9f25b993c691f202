"""The mark of a graded notebook: which file it is the grading of, and how it ran."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graders.engine.outcome import Event
from graders.notebook.codes import Code
from graders.notebook.problem import Problem

MARK = "graders"  # in a graded notebook's metadata
FORM = 2  # of the mark: what was graded with another is graded again


@dataclass(frozen=True)
class Mark:
    """What a graded notebook says of its grading; written last, so that a kill leaves none.

    Args:
        graded: the digest of the file that was graded.
        problems: what a person should know of how it ran.
        events: the engine's.
        judged: the `version` of the checks that judged it; "": an earlier one, which did not say.
    """

    graded: str
    problems: tuple[Problem, ...] = ()
    events: tuple[Event, ...] = ()
    judged: str = ""

    def as_data(self) -> dict[str, Any]:
        """Return the mark as JSON holds it."""
        problems = [asdict(problem) | {"code": problem.code.name} for problem in self.problems]
        events = [asdict(event) for event in self.events]
        return {"form": FORM, "graded": self.graded, "problems": problems, "events": events, "judged": self.judged}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Mark | None":
        """Return the mark that JSON holds, None where there is none or one of another form."""
        if data.get("form") != FORM:
            return None
        problems = tuple(Problem(**problem | {"code": Code[problem["code"]]}) for problem in data["problems"])
        events = tuple(Event(**event) for event in data["events"])
        return cls(data["graded"], problems, events, data.get("judged", ""))
