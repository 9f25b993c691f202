"""Judging gradients: checks, known mistakes and verdicts for the course's exercises, and the way they are graded."""

from graders.grade import grade

__all__ = ["grade"]
