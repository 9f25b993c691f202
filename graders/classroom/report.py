"""Scores and lost points as text."""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nbformat import NotebookNode

FIRST_LINE = re.compile(r"^(?P<task>\w+) (?P<check>\w+): (?P<earned>[\d.]+) of (?P<points>[\d.]+) points$")


@dataclass(frozen=True)
class Verdict:
    """What a grade cell printed: first line, message, evidence."""

    task: str
    check: str
    earned: float
    points: float
    message: str
    evidence: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lost:
    """Points that a grade cell did not give, and why."""

    student: str
    assignment: str
    check: str  # as `check_name` has it
    earned: float
    points: float
    message: str

    def __str__(self) -> str:
        return f"{self.student}  {self.assignment}  {self.check}: {self.earned:g} of {self.points:g}. {self.message}"


def check_name(cell: str, tasks: list[str]) -> str:
    """A test cell in words: "round_ste second order" for ``test_round_ste_second_order``.

    Args:
        cell: its `grade_id`.
        tasks: the `grade_id` of each solution cell.
    """
    task = task_of(cell, tasks)
    return f"{task} {cell.removeprefix('test_').removeprefix(task).replace('_', ' ').strip()}".strip()


def task_of(cell: str, tasks: list[str]) -> str:
    """The task whose test cell this is; arguments as those of `check_name`."""
    return max((t for t in tasks if cell.removeprefix("test_").startswith(f"{t}_")), key=len, default="")


def read_verdict(text: str) -> Verdict | None:
    """The verdict that a grade cell printed, or None. Whatever the student's code prints before it is skipped."""
    lines = text.strip().splitlines()
    start = next((i for i in reversed(range(len(lines))) if FIRST_LINE.match(lines[i])), None)
    if start is None:
        return None
    head = FIRST_LINE.match(lines[start])
    evidence, message = {}, []
    for line in lines[start + 1 :]:
        name, colon, value = line.partition(": ")
        if line.startswith("  ") and colon:
            evidence[name.strip()] = value
        elif line.strip():
            message.append(line.strip())
    earned, points = float(head["earned"]), float(head["points"])
    return Verdict(head["task"], head["check"], earned, points, " ".join(message), evidence)


def why(cell: NotebookNode) -> str:
    """One line on what a graded test cell says about its points."""
    for output in cell.outputs:
        if output.output_type == "error":
            return f"{output.ename}: {output.evalue}".split("\n")[0].strip(": ")
        if output.output_type == "stream" and output.name == "stderr":
            return "something was written to stderr, which nbgrader scores 0"
    for output in cell.outputs:
        if output.output_type == "stream" and (verdict := read_verdict(output.text)):
            return verdict.message
    return "the cell gave no verdict"


def table(rows: Mapping[str, Mapping[str, float | None]], most: Mapping[str, float]) -> str:
    """Scores as a table, a line per student and a column per assignment; ``-`` where nothing was graded."""
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
    """The same as comma-separated values, an empty field where nothing was graded."""
    names = list(names)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["student", *names, "total"])
    for student in sorted(rows):
        scores = [rows[student].get(name) for name in names]
        cells = ["" if score is None else f"{score:g}" for score in scores]
        writer.writerow([student, *cells, f"{sum(score or 0 for score in scores):g}"])
    return text.getvalue()
