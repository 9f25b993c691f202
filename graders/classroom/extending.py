"""More time for a student: an extension of a set's due date, and what it makes of a late penalty."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from difflib import get_close_matches

from graders.classroom.course import Course
from graders.classroom.errors import CourseError
from graders.classroom.gradebook import Records
from graders.classroom.lock import alone
from graders.classroom.overview import shown
from graders.classroom.roster import read_roster
from graders.notebook.problem import printable

UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes"}
FORM = re.compile(r"\+?((?:[0-9]{1,5}[wdhm])+)\Z")
MOST = timedelta(weeks=104)


def span(text: str) -> timedelta:
    """Return the time that a text means: ``+3d``, ``1d12h``, ``90m``, ``2w``; ``0`` is none.

    Raises:
        CourseError: it means none, or more than two years.
    """
    found = FORM.match(text)
    if text.lstrip("+") != "0" and not found:
        raise CourseError(
            f"{printable(text, 40)} is not a time: +3d, +12h, +1d12h, +2w or +90m; 0 takes an extension away"
        )
    parts = re.findall(r"([0-9]{1,5})([wdhm])", found[1]) if found else []
    length = sum((timedelta(**{UNITS[unit]: int(number)}) for number, unit in parts), timedelta())
    if length > MOST:
        raise CourseError(f"{printable(text, 40)} is more than two years")
    return length


@dataclass(frozen=True)
class Extended:
    """What an extension changed.

    Args:
        student: whose it is.
        due: the due date with the extension, in UTC.
        handed_in: in UTC; None: not yet, or not known.
        before, after: the score; None: not graded.
        there: whether something is handed in, be it not graded yet.
    """

    student: str
    due: datetime
    handed_in: datetime | None
    before: float | None
    after: float | None
    there: bool = False

    def __str__(self) -> str:
        said = f"{printable(self.student, 60)}: due {shown(self.due)} now"
        if self.handed_in is None:
            return f"{said}; {'handed in, and not graded yet' if self.there else 'nothing is handed in yet'}"
        late = self.handed_in > self.due
        said += f"; handed in {shown(self.handed_in)}, {'late' if late else 'in time'}"
        return said if self.before == self.after else f"{said}; {self.before:g} -> {self.after:g} points"


def extend(course: Course, records: Records, assignment: str, students: Iterable[str], text: str) -> list[Extended]:
    """Give students so much more time for a set, from its due date on; an earlier extension is replaced.

    Args:
        course: the course.
        records: its records.
        assignment: the set.
        students: their ids, or what the roster has of them alone: a name, an address.
        text: how much, as `span` reads it.

    Raises:
        CourseError: the text is no time, the set has no due date, or a student is unknown; nothing is changed then.
    """
    length, names = span(text), list(dict.fromkeys(students))
    due = records.due(assignment)
    if due is None:
        command = f"python -m graders init --due {assignment}=2026-03-01T12:00"
        raise CourseError(f"{assignment} has no due date that could be extended: set one with `{command}`")
    known, roster = _known(course, records, assignment), read_roster(course.root, course.dirs.db_url)
    for at, name in enumerate(names):
        if name in known:
            continue
        meant = sorted(roster.find(name)) if roster else []  # by a full name, or an address
        if len(meant) != 1:
            near = get_close_matches(name, known, 1)
            hint = f"; it may be {' or '.join(meant)}" if meant else f"; there is {near[0]}" if near else ""
            raise CourseError(f"there is no student {printable(name, 60)} in this course{hint}")
        names[at] = meant[0]
    with alone(course.source(assignment)):
        course.register(assignment)  # else a row without notebooks would keep the set from being registered
    found = [Extended(name, *records.extend(assignment, name, length)) for name in names]
    handed_in = {*course.students(assignment)}
    return [replace(one, there=one.student in handed_in) for one in found]


def _known(course: Course, records: Records, assignment: str) -> set[str]:
    """Return the students that the roster, the gradebook or a hand-in names."""
    roster = read_roster(course.root, course.dirs.db_url)
    rows: Mapping[str, object] = records.scores()[0]
    return {*rows, *course.students(assignment), *(roster.ids if roster else ())}
