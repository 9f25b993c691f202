"""Judging gradients: checks, known mistakes and verdicts for the course's exercises, and the way they are graded."""

from importlib import import_module

__all__ = ["coach", "grade", "solutions"]


def __getattr__(name: str) -> object:
    """Load what is asked for now, and not before: it takes torch along, and a sandbox can start in the meantime.

    ``coach`` is a package that can be called.
    """
    if name in ("coach", "solutions"):
        package = import_module("graders.coach")
        package.prepare()
        return package if name == "coach" else package.solutions
    if name == "grade":
        from graders.gradecell import grade

        return grade
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
