"""What the gradebook holds of a submitted notebook, as values that can be compared and put back."""

from collections.abc import Mapping
from dataclasses import dataclass

from graders.classroom.nbgrader_steps import Grades


@dataclass(frozen=True)
class Cell:
    """The row of a grade cell.

    Args:
        auto: what the tests say; None: nothing yet.
        manual: what a person says, which counts instead; None: nothing.
        extra: what a person adds.
    """

    auto: float | None
    manual: float | None = None
    extra: float = 0.0

    @property
    def score(self) -> float:
        """What counts, as nbgrader has it."""
        given = self.auto if self.manual is None else self.manual
        return 0.0 if given is None else given + self.extra


@dataclass(frozen=True)
class Held:
    """What the gradebook holds of a submitted notebook.

    Args:
        cells: by grade_id.
        comments: nbgrader's own, by the grade_id of each answer.
        penalty: what is taken off because it was late.
    """

    cells: Mapping[str, Cell]
    comments: Mapping[str, str | None]
    penalty: float | None = None

    @property
    def grades(self) -> Grades:
        """What the tests say."""
        return Grades({name: cell.auto for name, cell in self.cells.items()}, self.comments)

    @property
    def score(self) -> float:
        """What counts, the penalty taken off."""
        return max(0.0, sum(cell.score for cell in self.cells.values()) - (self.penalty or 0.0))
