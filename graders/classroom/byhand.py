"""What a person grades, as a sheet: written out with the answers, read back with scores, marks and comments.

A mark is an entry of the class's ``rubric.csv``: a key, the points that it gives or takes, and a sentence for the
student. So the same fault costs the same everywhere, and what one has found out how to say is said again by its key.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graders.classroom.errors import CourseError
from graders.classroom.report import FORMULA
from graders.notebook.problem import printable

RUBRIC = "rubric.csv"  # in the course's folder
COLUMNS = ("student", "cell", "points", "answer", "score", "marks", "comment")
NEEDED = {"student", "cell", "score", "marks", "comment"}
LARGEST = 50 << 20  # bytes of a file: three hundred long answers have a tenth of them
WIDTH = 30_000  # characters of a field, what is longer ends in "..."; spreadsheets cut off at 32,767


@dataclass(frozen=True)
class ByHand:
    """A cell that a person grades, as the gradebook has it.

    Args:
        student, notebook, cell: whose, where, which.
        points: what it is worth.
        score: None: it waits for one.
        comment: what the student is told.
    """

    student: str
    notebook: str
    cell: str
    points: float
    score: float | None
    comment: str


@dataclass(frozen=True)
class Entry:
    """A line of the rubric.

    Args:
        key: what one types.
        points: what it adds to the full points; most take some away.
        text: what the student is told.
    """

    key: str
    points: float
    text: str


@dataclass(frozen=True)
class Given:
    """What a person gave for a cell; None: that stays as it is."""

    of: ByHand
    score: float | None
    comment: str | None


Rubric = Mapping[tuple[str, str], Entry]  # by cell, "" for any, and key


def read_rubric(root: Path) -> dict[tuple[str, str], Entry]:
    """Return the rubric of a class; {} where there is none.

    Args:
        root: the course's folder.

    Raises:
        CourseError: a line of it is wrong.
    """
    path = root / RUBRIC
    if not path.exists():
        return {}
    found: dict[tuple[str, str], Entry] = {}
    for number, row in _rows(path, {"key", "points", "text"}):
        key, cell = row["key"].strip(), row.get("cell", "").strip()
        where = f"{RUBRIC}, line {number}"
        if not key or len(key.split()) != 1:
            raise CourseError(f"{where}: {printable(key, 60)!r} is not a key: one word, as in no-units")
        if (cell, key) in found:
            raise CourseError(f"{where}: {key} is there twice{f' for {cell}' if cell else ''}: leave one out")
        found[cell, key] = Entry(key, _number(row["points"] or "0", where), row["text"].strip())
    return found


def sheet(cells: Sequence[ByHand], answers: Mapping[tuple[str, str], str]) -> str:
    """Return the cells as comma-separated values, a line each, those of one cell together.

    Args:
        cells: those that a person grades.
        answers: what was written, by student and cell.
    """
    text = io.StringIO()
    text.write("\ufeff")  # or Excel takes it for another encoding
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for one in sorted(cells, key=lambda one: (one.cell, one.student)):
        score = "" if one.score is None else f"{one.score:g}"
        answer = _field(answers.get((one.student, one.cell), ""))
        writer.writerow(
            [_field(one.student), _field(one.cell), f"{one.points:g}", answer, score, "", _field(one.comment)]
        )
    return text.getvalue()


def read_sheet(path: Path, cells: Sequence[ByHand], rubric: Rubric) -> tuple[list[Given], list[str]]:
    """Return what a filled sheet gives, without what it leaves as it is; and a line on each row that is wrong.

    Args:
        path: the sheet.
        cells: those that a person grades.
        rubric: the marks.

    Raises:
        CourseError: it is no such sheet.
    """
    known = {(one.student, one.cell): one for one in cells}
    found: dict[tuple[str, str], Given] = {}
    faults: list[str] = []
    for number, row in _rows(path, NEEDED):
        where = f"{path.name}, line {number}"
        key = _unfield(row["student"]).strip(), _unfield(row["cell"]).strip()
        try:
            if key not in known:
                who = f"{printable(key[0], 60) or 'nobody'}, {printable(key[1], 60) or 'no cell'}"
                raise CourseError(f"{where}: {who}: there is no such cell to be graded by hand")
            if key in found:
                raise CourseError(f"{where}: {printable(key[0], 60)} has {printable(key[1], 60)} twice: leave one out")
            given = _given(known[key], row, rubric, where)
        except CourseError as error:
            faults.append(str(error))
            continue
        if given.score is not None or given.comment is not None:
            found[key] = given
    return list(found.values()), faults


def _given(of: ByHand, row: Mapping[str, str], rubric: Rubric, where: str) -> Given:
    """Return what a row gives: the score that stands there, else full points and what its marks add."""
    entries = []
    for key in row["marks"].replace(",", " ").split():
        entry = rubric.get((of.cell, key)) or rubric.get(("", key))
        if entry is None:
            keys = ", ".join(sorted({k for cell, k in rubric if cell in ("", of.cell)})) or f"none: write {RUBRIC}"
            raise CourseError(f"{where}: there is no mark {printable(key, 60)!r}; there are: {printable(keys, 300)}")
        entries.append(entry)
    score: float | None = None
    if row["score"].strip():
        score = _number(row["score"], where)
        if not 0 <= score <= of.points:
            raise CourseError(f"{where}: {score:g} points for a cell that is worth {of.points:g}")
    elif entries:
        score = min(max(of.points + sum(entry.points for entry in entries), 0.0), of.points)
    comment = "\n".join(filter(None, [*(entry.text for entry in entries), _unfield(row["comment"]).strip()]))
    return Given(
        of, None if score == of.score else score, comment if comment not in ("", _unfield(_field(of.comment))) else None
    )


def _rows(path: Path, needed: set[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number and the fields of each row that is not empty, whichever of three signs is between them."""
    columns = ", ".join(sorted(needed))
    try:
        if path.stat().st_size > LARGEST:
            raise CourseError(f"{path} is too large ({path.stat().st_size >> 20} MB)")
        text = path.read_bytes().decode("utf-8-sig")
        delimiter = max(",;\t", key=text.split("\n", 1)[0].count)
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, restval="")
        names = {(name or "").strip().casefold(): name for name in reader.fieldnames or ()}
        if missing := sorted(needed - names.keys()):
            raise CourseError(f"{path} has no column {', '.join(missing)}: its first line needs {columns}")
        for row in reader:
            fields = {lower: row[name] or "" for lower, name in names.items()}
            if any(value.strip() for value in fields.values()):
                yield reader.line_num, fields
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or ("it is not UTF-8" if isinstance(error, UnicodeError) else error)
        raise CourseError(f"{path} cannot be read ({reason}): save it as CSV in UTF-8") from None


def _number(text: str, where: str) -> float:
    """Return a number with a point or, as some spreadsheets write it, a comma."""
    try:
        number = float(text.strip().replace(",", "."))
        if number - number == 0:  # neither infinite nor nan
            return number
    except ValueError:
        pass
    raise CourseError(f"{where}: {printable(text, 60)!r} is not a number of points")


def _field(text: str) -> str:
    """Return a text as a field: fit for a terminal, line by line, and no formula to a spreadsheet."""
    safe = "\n".join(printable(line.expandtabs(4), WIDTH) for line in text.strip().splitlines())
    safe = safe if len(safe) <= WIDTH else f"{safe[:WIDTH]}..."
    return f"'{safe}" if safe.startswith(FORMULA) else safe


def _unfield(text: str) -> str:
    """Return what `_field` was given, where it was no longer than a field may be."""
    return text[1:] if text.startswith("'") and text[1:].startswith(FORMULA) else text
