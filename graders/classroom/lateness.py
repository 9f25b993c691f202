"""What a late hand-in loses: nothing, everything, or something for each day that has begun."""

from datetime import timedelta
from math import ceil

from nbgrader.plugins import LateSubmissionPlugin
from traitlets import Enum, Float, Int

DAY = timedelta(days=1).total_seconds()


class LatePolicy(LateSubmissionPlugin):
    """nbgrader's late penalties, with a third method, ``daily``.

    It is nbgrader's own plugin otherwise: what is set for ``LateSubmissionPlugin`` counts here too.
    """

    penalty_method = Enum(
        ("none", "zero", "daily"),
        default_value="none",
        help="What a late hand-in loses. none: nothing. zero: everything. daily: so much for each day that has begun.",
    ).tag(config=True)
    points_a_day = Float(
        0.0, min=0.0, help="With daily: points that each day costs, whatever the hand-in has earned."
    ).tag(config=True)
    percent_a_day = Float(
        0.0, min=0.0, max=100.0, help="With daily: what each day costs, in percent of what the hand-in has earned."
    ).tag(config=True)
    minutes_of_grace = Int(
        0, min=0, help="With daily: the days begin so many minutes after the due date; before that nothing is lost."
    ).tag(config=True)
    days_at_most = Int(
        0, min=0, help="With daily: what comes after so many days earns nothing. 0: there is no such end."
    ).tag(config=True)

    def told(self) -> str:
        """Return what a late hand-in loses, in words."""
        if self.penalty_method == "none":
            return "it costs nothing to be late"
        if self.penalty_method == "zero":
            return "what is late earns nothing"
        parts = [f"{self.percent_a_day:g} percent of what was earned"] if self.percent_a_day else []
        parts += [f"{self.points_a_day:g} point{'s' * (self.points_a_day != 1)}"] if self.points_a_day else []
        said = f"{' and '.join(parts) or 'nothing'} for each day that has begun"
        grace, days = self.minutes_of_grace, self.days_at_most
        said += f", after {grace} minute{'s' * (grace != 1)} of grace" if grace else ""
        return f"{said}, and all of it after {days} day{'s' * (days != 1)}" if days else said

    def late_submission_penalty(self, student_id: str, score: float, total_seconds_late: float) -> float | None:
        """Return what a late hand-in loses.

        Args:
            student_id: whose it is; it makes no difference.
            score: what it has earned, in points.
            total_seconds_late: seconds since the due date, an extension being part of it.

        Returns:
            Points from 0 to the score; None: nothing.
        """
        if self.penalty_method != "daily":
            penalty: float | None = super().late_submission_penalty(student_id, score, total_seconds_late)
            return penalty
        days = ceil((total_seconds_late - 60 * self.minutes_of_grace) / DAY)
        if days <= 0:
            return None
        if self.days_at_most and days > self.days_at_most:
            return score
        return round(min(score, days * (self.points_a_day + self.percent_a_day / 100 * score)), 4)
