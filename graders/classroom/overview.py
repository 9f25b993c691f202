"""Who is in the course and when what is due: the class as the roster, the gradebook and the hand-ins have it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from graders.classroom.course import Course
from graders.classroom.gradebook import Records
from graders.classroom.roster import ROSTER, read_roster
from graders.classroom.submission import handed_in as handed_in_at
from graders.notebook.problem import printable

MOST = 20  # names in a line


@dataclass(frozen=True)
class SetRow:
    """A set, and how far the class is with it.

    Args:
        name: the set.
        due: in UTC without a zone; None: no date.
        handed_in, late: how many.
        waiting: who handed in and is not graded.
        extended: a word on each extension.
    """

    name: str
    due: datetime | None
    handed_in: int
    waiting: tuple[str, ...]
    late: int
    extended: tuple[str, ...]

    @property
    def graded(self) -> int:
        """How many of those handed in are graded."""
        return self.handed_in - len(self.waiting)


@dataclass(frozen=True)
class Overview:
    """The class.

    Args:
        listed: those in the roster; None: nobody has said who is in the course.
        seen: those who have handed something in.
        sets: in order; optional ones that the class has not taken up are not among them.
    """

    listed: frozenset[str] | None
    seen: frozenset[str]
    sets: tuple[SetRow, ...]

    def lines(self) -> list[str]:
        """Return the class as a table."""
        where = "no list of students"
        if self.listed is not None:
            where = f"{len(self.listed)} student{'s' * (len(self.listed) != 1)} in the list"
        lines = [f"{where}; {len(self.seen)} {'has' if len(self.seen) == 1 else 'have'} handed something in", ""]
        width = max(len(row.name) for row in self.sets)
        head = f"{'set':{width}}  {'due':20}  handed in  graded  late  extensions"
        lines += [head, "-" * len(head)]
        for row in self.sets:
            due = shown(row.due) if row.due else "no date"
            counts = f"{row.handed_in:9}  {row.graded:6}  {row.late:4}"
            lines.append(f"{row.name:{width}}  {due:20}  {counts}  {_some(row.extended, ', ')}".rstrip())
        return lines

    def faults(self) -> list[str]:
        """Return a line on each thing that a person should look at."""
        found = []
        if self.listed is None:
            found.append(
                f"nobody has said who is in the course: write {ROSTER}, or `python -m graders roster FILE` from your "
                "learning platform's gradebook"
            )
        elif strangers := sorted(self.seen - self.listed):
            found.append(f"handed in, and not in the list: {_some(strangers)}")
        if self.listed is not None and self.seen and (silent := sorted(self.listed - self.seen)):
            found.append(f"in the list, and nothing handed in so far: {_some(silent)}")
        for row in self.sets:
            if row.waiting:
                said = f"{len(row.waiting)} handed in and not graded ({_some(row.waiting)})"
                found.append(f"{row.name}: {said}: `python -m graders grade {row.name}` grades them or says why not")
        return found


def overview(course: Course, records: Records) -> Overview:
    """Return the class as it stands.

    Args:
        course: the course.
        records: its records.
    """
    roster = read_roster(course.root, course.dirs.db_url)
    scores, known = records.scores() if course.has_gradebook else ({}, {})
    seen: set[str] = set()
    rows = []
    for name in course.taken(known):
        handed_in = set(course.students(name))
        seen |= handed_in
        times = records.times(name) if name in known else {}
        extended = records.extensions(name) if name in known else {}
        waiting = tuple(sorted(s for s in handed_in if scores.get(s, {}).get(name) is None))
        words = tuple(f"{printable(student, 60)} {length_of(more)}" for student, more in sorted(extended.items()))
        due = records.due(name) if name in known else None
        for student in waiting:  # the gradebook hears of their time when they are graded
            until = due + extended.get(student, timedelta()) if due else None
            times[student] = handed_in_at(course.submission(student, name).folder), until
        late = sum(bool(when and until and when > until) for when, until in times.values())
        rows.append(SetRow(name, due, len(handed_in), waiting, late, words))
    return Overview(frozenset(roster.ids) if roster else None, frozenset(seen), tuple(rows))


def shown(when: datetime) -> str:
    """Return a time of the gradebook's for people."""
    return f"{when.replace(tzinfo=UTC):%Y-%m-%d %H:%M} UTC"


def length_of(length: timedelta) -> str:
    """Return an extension as `extending.span` reads it: ``+1d12h``."""
    minutes = int(length.total_seconds()) // 60
    parts = ((minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "m"))
    return "+" + "".join(f"{number}{unit}" for number, unit in parts if number)


def _some(names: Sequence[str], between: str = ", ") -> str:
    more = f"{between}and {len(names) - MOST} more" if len(names) > MOST else ""
    return between.join(printable(name, 80) for name in names[:MOST]) + more
