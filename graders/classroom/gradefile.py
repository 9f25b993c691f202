"""Grades in the file that a learning platform exports and imports again, and the roster that is in it.

A platform's file is taken as it was exported, one column of it is filled, and all else stays as it is. The forms:

- Canvas: Instructure Community, "How do I import grades in the Gradebook?": Student, ID, SIS User ID, SIS Login ID,
  Section, then "NAME (NUMBER)"; below the header a row "Points Possible".
- Moodle: MoodleDocs, "Grade import": names, ID number, email address, then "Assignment: NAME (Real)"; and the offline
  grading worksheet of one assignment: Identifier, Full name, Email address, Grade, Maximum Grade.
- Brightspace: D2L, "Importing grades": OrgDefinedId, Username, then "NAME Points Grade <Numeric MaxPoints:20 ...>", and
  an End-of-Line Indicator, #, which also stands before identifiers.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from graders.classroom.errors import CourseError
from graders.classroom.report import FORMULA
from graders.classroom.roster import FIELDS, ROSTER, Roster, plain
from graders.notebook.problem import printable

LONGEST = 300  # characters of a column's name that is looked at
MOST = 20_000_000  # bytes of a platform's file; a class of 3,000 with 50 columns has 2 MB


@dataclass(frozen=True)
class Form:
    """A platform's file.

    Args:
        title: the platform.
        told: columns by which it is known, in lower case; it has all of them.
        ids, names, emails: columns that say whose row it is, in lower case; several of `names` together are the name.
        number: the column of the platform's own number for a person.
        last_first: whether a name is "Doe, Jane".
        grades: a regular expression for the columns that hold points; it takes the item's name out.
        worth: where the item's points stand: a regular expression for the header, or a column's name in lower case.
    """

    title: str
    told: tuple[str, ...]
    ids: tuple[str, ...]
    names: tuple[str, ...]
    emails: tuple[str, ...]
    grades: str
    number: str = ""
    last_first: bool = False
    worth: str = ""


FORMS = (
    Form(
        "Canvas",
        ("student", "id", "section"),
        ("sis login id", "sis user id"),
        ("student",),
        (),
        r"(?P<item>.+) \(\d+\)",
        number="id",
        last_first=True,
    ),
    Form(
        "Moodle's grading worksheet",
        ("identifier", "full name", "grade", "maximum grade"),
        ("id number",),
        ("full name",),
        ("email address",),
        r"(?P<item>Grade)",
        worth="maximum grade",
    ),
    Form(
        "Moodle",
        ("first name", "email address"),
        ("id number", "username"),
        ("first name", "last name"),
        ("email address",),
        r"(?:\w+: )?(?P<item>.+?)(?: \((?:Real|Points)\))",
    ),
    Form(
        "Brightspace",
        ("end-of-line indicator",),
        ("username", "orgdefinedid"),
        ("first name", "last name"),
        ("email",),
        r"(?P<item>.+?) Points Grade\b.*",
        worth=r"MaxPoints:(?P<worth>[\d.]+)",
    ),
)
OLD_NAMES = {"surname": "last name", "e-mail address": "email address", "org defined id": "orgdefinedid"}  # of columns
NOT_PEOPLE = ("points possible", "manual posting", "student, test")  # rows of Canvas that are nobody's


@dataclass
class Table:
    """A platform's file, read.

    Args:
        form: the platform's.
        header: the first row.
        rows: those below it.
        delimiter, ending: what separates fields, and what ends lines.
        mark: whether a byte-order mark stands in front.
        written: the rows, the header first, each field as the file has it, quotes and all.
    """

    form: Form
    header: list[str]
    rows: list[list[str]]
    delimiter: str
    ending: str
    mark: bool
    written: list[list[str]]

    def text(self) -> str:
        """Return the file's text, what has not changed as it was written."""
        rows = [self.header, *self.rows]
        lines = [self._line(row, written) for row, written in zip(rows, self.written, strict=True)]
        return ("\ufeff" if self.mark else "") + "".join(lines)

    def _line(self, row: Sequence[str], written: Sequence[str]) -> str:
        fields = []
        for value, before in zip_longest(row, written):
            kept = before is not None and _value(before).strip() == value.strip()
            quoted = (before or "").startswith('"') or any(mark in value for mark in (self.delimiter, '"', "\r", "\n"))
            doubled = value.replace('"', '""')
            fields.append(before if kept else f'"{doubled}"' if quoted else value)
        return self.delimiter.join(fields) + self.ending

    def places(self, names: Iterable[str]) -> list[int]:
        """Return where columns stand, of those that are there."""
        lower = [_column(name) for name in self.header]
        return [lower.index(name) for name in names if name in lower]

    def people(self) -> list[list[str]]:
        """Return the rows that are a person's."""
        return [
            row
            for row in self.rows
            if person(self, row) != NOBODY and not row[0].strip().casefold().startswith(NOT_PEOPLE)
        ]


@dataclass(frozen=True)
class Person:
    """Whom a row is of, in the platform's words."""

    ids: tuple[str, ...]
    name: str
    email: str
    number: str


NOBODY = Person((), "", "", "")  # whose row is about the file: Canvas has "Manual Posting" below its columns of points


@dataclass(frozen=True)
class Filled:
    """What became of a file.

    Args:
        text: the file, to be imported.
        platform, column: whose it is, and which column was filled.
        new, changed, same: how many grades it did not have, had otherwise, had already.
        lines: what a person should look at, a line each.
    """

    text: str
    platform: str
    column: str
    new: int
    changed: int
    same: int
    lines: tuple[str, ...]


def _value(field: str) -> str:
    """Return what a field of a file says: one in quotes without them."""
    return field[1:-1].replace('""', '"') if field.startswith('"') else field


def _as_written(text: str, delimiter: str, rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the fields of a file with their quotes, row by row; as few quotes as it takes where they are odd ones."""
    ends = re.compile(f"[{re.escape(delimiter)}\r\n]")
    found: list[list[str]] = [[]]
    at = 0
    while at < len(text):
        end = _quoted_end(text, at) if text[at] == '"' else at
        found_end = ends.search(text, end)
        end = found_end.start() if found_end else len(text)
        found[-1].append(text[at:end])
        last = text[end : end + 1]
        at = end + (2 if text[end : end + 2] == "\r\n" else 1)
        if last != delimiter:
            found.append([])
        elif at == len(text):
            found[-1].append("")
    found = found if found[-1] else found[:-1]
    same = [[_value(one) for one in row] for row in found] == [list(row) or [""] for row in rows]
    return found if same else [[] for row in rows]


def _quoted_end(text: str, at: int) -> int:
    """Return where the field in quotes that begins there ends, behind its closing quote."""
    at += 1
    while (at := text.find('"', at)) >= 0:
        if text[at + 1 : at + 2] != '"':
            return at + 1
        at += 2
    return len(text)


def read_table(path: Path) -> Table:
    """Read a platform's file.

    Raises:
        CourseError: it cannot be read, or is no platform's.
    """
    known = ", ".join(form.title for form in FORMS)
    remedy = f"export the gradebook as CSV and name that file; the forms known are those of {known}"
    try:
        if path.stat().st_size > MOST:
            raise CourseError(f"{path} is too large ({path.stat().st_size >> 20} MB): {remedy}")
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise CourseError(f"{path} cannot be read ({reason}): {remedy}") from None
    mark = text.startswith("\ufeff")
    text = text.removeprefix("\ufeff")
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise CourseError(f"{path} cannot be read ({error}): {remedy}") from None
    header = [name.strip() for name in rows[0]] if rows else []
    lower = [_column(name) for name in header]
    form = next((form for form in FORMS if all(name in lower for name in form.told)), None)
    if form is None and "id" in lower and set(lower) <= set(FIELDS):
        raise CourseError(f"{path} is a list of students already: copy it to {ROSTER} in the course's folder")
    if form is None:
        raise CourseError(
            f"{path} has the columns of no gradebook that is known ({printable(', '.join(header), 200)}): {remedy}"
        )
    wide = [row + [""] * (len(header) - len(row)) for row in rows[1:]]
    ending = "\r\n" if first.endswith("\r") else "\n"
    return Table(form, header, wide, delimiter, ending, mark, _as_written(text, delimiter, rows))


def _column(name: str) -> str:
    lower = name.strip().casefold()
    return OLD_NAMES.get(lower, lower)


def person(table: Table, row: Sequence[str]) -> Person:
    """Return whom a row is of."""
    form = table.form

    def values(names: Iterable[str]) -> list[str]:
        return [value for i in table.places(names) if (value := row[i].strip().lstrip("#'"))]

    name = " ".join(values(form.names))
    if form.last_first and "," in name:
        name = " ".join(part.strip() for part in reversed(name.split(",", 1)))
    email, number = values(form.emails), values([form.number] if form.number else [])
    return Person(tuple(values(form.ids)), name, email[0] if email else "", number[0] if number else "")


def fill(
    table: Table,
    assignment: str,
    scores: Mapping[str, float | None],
    worth: float,
    roster: Roster,
    column: str = "",
    others: Iterable[str] = (),
) -> Filled:
    """Fill the column of a set; whose row is not clear stays as it is.

    Args:
        table: the platform's file; it is changed.
        assignment: the set.
        scores: by student; None: not graded, which changes nothing.
        worth: the set's points.
        roster: who the students are.
        column: the column's name as the file has it; "": the one that is called as the set.
        others: the other sets, whose columns are not to be filled by mistake.

    Raises:
        CourseError: the column is not clear, or is worth other points.
    """
    place = _place(table, assignment, column)
    if other := next((name for name in others if column and _called_as(table, column, name)), None):
        raise CourseError(f"the column {column!r} is called as {other}, and its grades would be lost: name another")
    _same_worth(table, place, assignment, worth)
    rows: dict[str, list[list[str]]] = {}
    lines = []
    for row in table.people():
        who = person(table, row)
        students = _students(roster, who)
        if len(students) == 1:
            rows.setdefault(students.pop(), []).append(row)
        elif not students and who.name and (called := roster.find(who.name)):
            lines.append(
                f"{_shown(who)} in the file has another number or address than {' and '.join(sorted(called))}: "
                "left alone. If it is them, put that number or address into students.csv."
            )
        elif students:
            lines.append(
                f"{_shown(who)} may be any of {', '.join(sorted(students))}: put their numbers into students.csv."
            )
    counts = dict.fromkeys(("new", "changed", "same"), 0)
    for student in sorted(scores):
        score = scores[student]
        of = rows.get(student, [])
        if len(of) > 1:
            lines.append(f"{printable(student, 60)} has {len(of)} rows in the file: none was filled.")
        elif score is not None and not of:
            lines.append(f"{printable(student, 60)} has {score:g} and no row in the file: enter it by hand.")
        elif score is not None:
            counts[_enter(of[0], place, score)] += 1
    return Filled(table.text(), table.form.title, table.header[place], **counts, lines=tuple(lines))


def _enter(row: list[str], place: int, score: float) -> str:
    """Put a score into its cell; return what that was."""
    before = row[place].strip()
    try:
        if before and float(before.replace(",", ".")) == float(f"{score:g}"):
            return "same"  # as the platform writes it, 12.50
    except ValueError:  # "-", "EX": the platform's own words
        pass
    row[place] = f"{score:g}"
    return "changed" if before not in ("", "-") else "new"


def _place(table: Table, assignment: str, column: str) -> int:
    """Return where the set's column stands."""
    if column:
        if column in table.header:
            return table.header.index(column)
        raise CourseError(f"the file has no column {column!r}; its columns are: {_names(table, table.header)}")
    short = {i: name for i, name in enumerate(table.header) if len(name) <= LONGEST}
    found = {i: match["item"] for i, name in short.items() if (match := re.fullmatch(table.form.grades, name))}
    called = (
        list(found)
        if len(found) == 1 and table.form.worth == "maximum grade"  # a worksheet is one assignment's
        else [i for i, item in found.items() if _is_called(item, assignment)]
    )
    if len(called) == 1:
        return called[0]
    why = "several columns are" if called else "no column is"
    columns = _names(table, [table.header[i] for i in (called or found)])
    raise CourseError(f"{why} called as {assignment}: say which with --column NAME. Columns of points: {columns}")


def _is_called(item: str, assignment: str) -> bool:
    """Whether a platform's name for an item is a set's: 01 ReLU, 01_relu, ReLU."""
    slug = assignment.partition("_")[2] or assignment
    return plain(item).startswith(plain(assignment)) or plain(item) == plain(slug)


def _called_as(table: Table, column: str, assignment: str) -> bool:
    """Whether a column of points has a set's name."""
    match = re.fullmatch(table.form.grades, column[:LONGEST])
    return bool(match and _is_called(match["item"], assignment))


def _names(table: Table, names: Iterable[str]) -> str:
    return printable("; ".join(repr(name) for name in names), 1000) or "none"


def _same_worth(table: Table, place: int, assignment: str, worth: float) -> None:
    """Refuse a column that is worth other points than the set."""
    told = ""
    if table.form.title == "Canvas":
        told = next((row[place] for row in table.rows if row[0].strip().casefold() == "points possible"), "")
    elif (places := table.places([table.form.worth])) and table.people():
        told = table.people()[0][places[0]]
    elif table.form.worth and (match := re.search(table.form.worth, table.header[place][:LONGEST])):
        told = match["worth"]
    try:
        there = float(told.replace(",", "."))
    except ValueError:
        return  # read only, or not said
    if there != worth:
        raise CourseError(
            f"{table.header[place]!r} is worth {there:g} points in {table.form.title}, and {assignment} {worth:g}: "
            "set its points there, and export the file again"
        )


def _students(roster: Roster, who: Person) -> set[str]:
    """Return the students that a row may be of: what is surest decides, and a name alone against nothing else."""
    for found in (
        roster.find("", who.number) if who.number else set(),
        *(roster.find(name) for name in who.ids),
        roster.find(who.email) if who.email else set(),
    ):
        if found:
            return set(found)
    emails = [who.email, *(name for name in who.ids if "@" in name)]
    called = roster.find(who.name) if who.name else set()
    return {student for student in called if not roster.denied(student, emails, who.number)}


def _shown(who: Person) -> str:
    return printable(who.name or who.email or " ".join(who.ids), 80)


def roster_of(table: Table) -> str:
    """Return the people of a platform's file as ``students.csv``.

    The id is the platform's own for a person, that of an account where it has one; else the address, else the name.

    Raises:
        CourseError: two people would have one id.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    seen: dict[str, str] = {}
    for row in table.people():
        who = person(table, row)
        student = next(filter(None, [*who.ids, who.email, who.name]), "").replace("/", "-")
        if student in seen:
            raise CourseError(
                f"{_shown(who)} and {seen[student]} would both be {student!r}: give one another id in the file"
            )
        seen[student] = _shown(who)
        first, _, last = who.name.rpartition(" ")
        names = [row[i].strip() for i in table.places(table.form.names)]
        if len(table.form.names) == 2:
            first, last = ([*names, "", ""])[:2]
        elif table.form.last_first and "," in names[0]:  # van der Berg, Anna
            last, first = (part.strip() for part in names[0].split(",", 1))
        email = who.email or next((name for name in who.ids if "@" in name), "")  # Canvas logs some in by it
        fields = (student, first, last, email, who.number)
        writer.writerow([f"'{text}" if text.startswith(FORMULA) else text for text in fields])
    return out.getvalue()
