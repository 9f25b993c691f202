"""Scores and lost points as text."""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nbformat import NotebookNode

from graders.judge.verdict import Verdict, shown_by


@dataclass(frozen=True)
class Lost:
    """Points that a grade cell did not give, and why."""

    student: str
    assignment: str
    check: str  # in words: "round_ste second order"
    earned: float
    points: float
    message: str

    def __str__(self) -> str:
        return f"{self.student}  {self.assignment}  {self.check}: {self.earned:g} of {self.points:g}. {self.message}"


def check_of(cell: str, verdict: Verdict | None, tasks: Iterable[str]) -> tuple[str, str]:
    """Return the task and the check of a test cell, the check in words: ("round_ste", "second order").

    Args:
        cell: its `grade_id`.
        verdict: what it showed; where it showed none, its `grade_id` tells: ``test_round_ste_second_order``.
        tasks: the `grade_id` of each solution cell.
    """
    if verdict is not None:
        return verdict.task, verdict.check.replace("_", " ")
    name = cell.removeprefix("test_")
    task = max((t for t in tasks if name.startswith(f"{t}_")), key=len, default="")
    return task, name.removeprefix(task).replace("_", " ").strip()


def why(cell: NotebookNode) -> str:
    """Return one line on what a graded test cell says about its points."""
    for output in cell.outputs:
        if output.output_type == "error":
            return f"{output.ename}: {output.evalue}".split("\n")[0].strip(": ")
        if output.output_type == "stream" and output.name == "stderr":
            return "something was written to stderr, which nbgrader scores 0"
    verdict = shown_by(cell.outputs)
    return verdict.message if verdict else "the cell gave no verdict"


def table(rows: Mapping[str, Mapping[str, float | None]], most: Mapping[str, float]) -> str:
    """Return scores as a table, a line per student and a column per assignment; ``-`` where nothing was graded."""
    width = max([len("student"), *map(len, rows)])
    head = "  ".join(["student".ljust(width), *(f"{name:>{max(len(name), 8)}}" for name in most), "   total"])
    lines = [head, "-" * len(head)]
    for student in sorted(rows):
        scores = [rows[student].get(name) for name in most]
        cells = [_score(score, max(len(name), 8)) for name, score in zip(most, scores, strict=True)]
        lines.append("  ".join([student.ljust(width), *cells, _score(sum(score or 0 for score in scores), 8)]))
    totals = [_score(value, max(len(name), 8)) for name, value in most.items()]
    lines += ["-" * len(head), "  ".join(["points".ljust(width), *totals, _score(sum(most.values()), 8)])]
    return "\n".join(lines)


def _score(value: float | None, width: int) -> str:
    return f"{'-' if value is None else f'{value:g}':>{width}}"


def as_csv(rows: Mapping[str, Mapping[str, float | None]], names: Iterable[str]) -> str:
    """Return the same as comma-separated values, an empty field where nothing was graded."""
    names = list(names)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["student", *names, "total"])
    for student in sorted(rows):
        scores = [rows[student].get(name) for name in names]
        cells = ["" if score is None else f"{score:g}" for score in scores]
        writer.writerow([student, *cells, f"{sum(score or 0 for score in scores):g}"])
    return text.getvalue()
