"""Who is in the course: ``students.csv``, or those that were imported into the gradebook with their names."""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path

from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from graders.classroom.errors import CourseError

ROSTER = "students.csv"  # in the course's folder, as `nbgrader db student import` reads it
FIELDS = ("id", "first_name", "last_name", "email", "lms_user_id")


class Roster:
    """The students of a course, found by what platforms and people call them.

    Args:
        rows: one for each student, with an ``id`` and any other of `FIELDS`.
    """

    def __init__(self, rows: Iterable[Mapping[str, str | None]]) -> None:
        self.ids: set[str] = set()
        self._called: dict[str, set[str]] = {}
        self._numbers: dict[str, set[str]] = {}
        self._told: dict[str, tuple[str, str]] = {}
        for row in rows:
            student, first, last, email, number = (_nfc(row.get(field)) for field in FIELDS)
            self.ids.add(student)
            self._told[student] = plain(email), number
            names = [student, email]
            if first and last:
                names += [f"{first} {last}", f"{last} {first}"]
            for name in filter(None, map(plain, names)):
                self._called.setdefault(name, set()).add(student)
            if number:
                self._numbers.setdefault(number, set()).add(student)

    def find(self, name: str, number: str = "") -> set[str]:
        """Return the students that a name, or a platform's number for a person, may mean; the number goes first."""
        if number in self._numbers:
            return self._numbers[number]
        return {name} if name in self.ids else self._called.get(plain(name), set())

    def denied(self, student: str, emails: Iterable[str], number: str) -> bool:
        """Whether a student is known to have another number, or an address that is none of these."""
        email, own = self._told[student]
        others = {plain(each) for each in emails if each}
        return bool((own and number and own != number) or (email and others and email not in others))


def read_roster(root: Path, db_url: str) -> Roster | None:
    """Return who is in the course, None where nobody has said it.

    Args:
        root: the course's folder.
        db_url: the gradebook's.

    Raises:
        CourseError: ``students.csv`` cannot be read.
    """
    path = root / ROSTER
    rows = _of_file(path) if path.exists() else _of_gradebook(db_url)
    return Roster(rows) if rows else None


def _of_file(path: Path) -> list[dict[str, str | None]]:
    remedy = f"it needs a first line with {', '.join(FIELDS)}, of which only id has to be there, and a line a student"
    try:
        written = path.read_text(encoding="utf-8-sig")
        first = written.split("\n", 1)[0]
        comma = ";" if first.count(";") > first.count(",") else ","  # a spreadsheet's, where decimals have commas
        reader = csv.DictReader(io.StringIO(written), delimiter=comma, skipinitialspace=True)
        rows = [row for row in reader if any(row.values())]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CourseError(f"{path.name} cannot be read ({error}): {remedy}") from None
    if not rows or not all(_nfc(row.get("id")) for row in rows):
        raise CourseError(f"{path.name} does not say who is in the course: {remedy}")
    return rows


def _of_gradebook(db_url: str) -> list[dict[str, str | None]]:
    """Return the students that have more than an id: grading itself enters whoever handed in, with the id alone."""
    url = make_url(db_url)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return []
    try:
        engine = create_engine(url)
        with engine.connect() as connection:
            if "student" not in inspect(connection).get_table_names():
                return []
            found = connection.execute(text(f"SELECT {', '.join(FIELDS)} FROM student"))
            rows = [dict(zip(FIELDS, row, strict=True)) for row in found]
        engine.dispose()
    except SQLAlchemyError:
        return []  # `Course` has said what is wrong with it
    return [row for row in rows if any(row[field] for field in FIELDS[1:])]


def _nfc(value: str | None) -> str:
    return unicodedata.normalize("NFC", value.strip()) if isinstance(value, str) else ""


def plain(name: str) -> str:
    """Return a name's letters and digits: platforms leave out blanks, commas and capitals."""
    return re.sub(r"[\W_]", "", unicodedata.normalize("NFC", name)).casefold()
