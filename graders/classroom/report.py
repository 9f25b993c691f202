"""Scores and lost points as text."""

import ast
import csv
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nbformat import NotebookNode
from nbgrader.utils import is_solution

from graders.classroom.released import Cells
from graders.judge.places import Place
from graders.judge.verdict import Verdict, shown_by
from graders.notebook.problem import printable

FORMULA = ("=", "+", "-", "@")  # how a field begins that a spreadsheet would compute


@dataclass(frozen=True)
class Lost:
    """Points that a grade cell did not give, and why."""

    student: str
    assignment: str
    check: str  # in words: "round_ste second order"
    earned: float
    points: float
    message: str
    see: str = ""  # where the book treats it

    def __str__(self) -> str:
        parts = printable(self.student, 60), printable(self.assignment, 60), printable(self.check, 100)
        return f"{'  '.join(parts)}: {self.earned:g} of {self.points:g}. {printable(self.message, 4000)}"


def checks_of(cells: Cells) -> dict[str, tuple[str, str]]:
    """Return the task and the check of each test cell of a released notebook, the check in words.

    The cell's call of `grade` names both. Where it has none, the task is the answer cell above it.

    Args:
        cells: the released ones, in the notebook's order.

    Returns:
        By `grade_id`: ``test_round_ste_second_order`` is ("round_ste", "second order").
    """
    found, task = {}, ""
    for name, cell in cells.items():
        if cell.solution:
            task = name
        if cell.grade:
            called = _called(cell.source)
            check = called[1] if called else name.removeprefix("test_").removeprefix(f"{task}_")
            found[name] = called[0] if called else task, check.replace("_", " ")
    return found


def _called(source: str) -> tuple[str, str] | None:
    """Return the task and the check in a grade cell's ``grade("relu", "Square", "gradient", ...)``."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return None
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "grade":
            words = [a.value for a in node.args[:3] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            if len(words) == 3:
                return words[1], words[2]
    return None


def course_site() -> str:
    """Return the address of the course's site, from COURSE_URL, without a slash at its end; "" where it has none."""
    site = os.environ.get("COURSE_URL", "").strip().rstrip("/")
    return site if site.startswith(("http://", "https://")) else ""


def see(place: Place | None) -> str:
    """Return where to read on: "See Chapter 1: In place.", and the address where the course has one."""
    if place is None:
        return ""
    site = course_site()
    return f"See {place.title}{f' ({place.url(site)})' if site else ''}."


def verdict_of(cell: NotebookNode) -> Verdict | None:
    """Return the verdict of a graded cell; None for one in which the student's code ran, whatever it shows."""
    return None if is_solution(cell) else shown_by(cell.get("outputs", ()))


def why(cell: NotebookNode) -> str:
    """Return one line on what a graded test cell says about its points."""
    for output in cell.get("outputs", ()):
        if output.output_type == "error":
            return f"{output.ename}: {output.evalue}".split("\n")[0].strip(": ")
        if output.output_type == "stream" and output.name == "stderr":
            return "something was written to stderr, which nbgrader scores 0"
    verdict = verdict_of(cell)
    return verdict.message if verdict else "the cell gave no verdict"


def table(rows: Mapping[str, Mapping[str, float | None]], most: Mapping[str, float]) -> str:
    """Return scores as a table, a line per student and a column per assignment; ``-`` where nothing was graded."""
    names = {student: printable(student, 60) for student in rows}
    width = max([len("student"), *map(len, names.values())])
    head = "  ".join(["student".ljust(width), *(f"{name:>{max(len(name), 8)}}" for name in most), "   total"])
    lines = [head, "-" * len(head)]
    for student in sorted(rows):
        scores = [rows[student].get(name) for name in most]
        cells = [_score(score, max(len(name), 8)) for name, score in zip(most, scores, strict=True)]
        lines.append("  ".join([names[student].ljust(width), *cells, _score(sum(score or 0 for score in scores), 8)]))
    totals = [_score(value, max(len(name), 8)) for name, value in most.items()]
    lines += ["-" * len(head), "  ".join(["points".ljust(width), *totals, _score(sum(most.values()), 8)])]
    return "\n".join(lines)


def _score(value: float | None, width: int) -> str:
    return f"{'-' if value is None else f'{value:g}':>{width}}"


def field(text: object) -> str:
    """Return a text as a field of comma-separated values: on one line, and no formula to a spreadsheet."""
    safe = printable(text)
    return f"'{safe}" if safe.lstrip().startswith(FORMULA) else safe


def as_csv(rows: Mapping[str, Mapping[str, float | None]], names: Iterable[str]) -> str:
    """Return the same as comma-separated values, an empty field where nothing was graded."""
    names = list(names)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["student", *names, "total"])
    for student in sorted(rows):
        scores = [rows[student].get(name) for name in names]
        cells = ["" if score is None else f"{score:g}" for score in scores]
        writer.writerow([field(student), *cells, f"{sum(score or 0 for score in scores):g}"])
    return text.getvalue()
