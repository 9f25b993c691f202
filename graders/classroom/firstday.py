"""The first day: what this machine and this folder have of what grading needs, and how to get the rest."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from nbgrader.utils import parse_utc
from sqlalchemy.engine import make_url

from graders.classroom.course import Course
from graders.classroom.errors import CourseError
from graders.classroom.gradebook import Records
from graders.classroom.gradefile import read_table, roster_of
from graders.classroom.overview import Overview, shown
from graders.classroom.roster import ROSTER
from graders.classroom.seeds import SECRET
from graders.engine import memory
from graders.engine.cores import cores
from graders.engine.sandbox import SandboxError, WarmParent
from graders.notebook.problem import printable

# one reading only: 03/04/2026 is March to some and April to others, and a day without a time begins at midnight
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?( ?UTC|Z|[+-][0-9]{2}:?[0-9]{2})?")
OK, NOTE, MISSING = "ok", "note", "missing"
DISK = 2 << 30  # bytes free below which a class may not fit
MEMORY = 2 << 30  # bytes of memory that one worker needs to be comfortable


@dataclass(frozen=True)
class Finding:
    """One thing that grading needs.

    Args:
        what: in words.
        state: `OK`, `NOTE`: it works, and you should know; `MISSING`: nothing can be graded without it.
        found: what is there.
        remedy: what to do; "": nothing.
    """

    what: str
    state: str
    found: str
    remedy: str = ""

    def lines(self) -> list[str]:
        """Return it for a terminal."""
        first = f"{self.state:8} {self.what}: {self.found}"
        return [first, f"{'':8} {self.remedy}"] if self.remedy else [first]


def due_dates(course: Course, texts: list[str]) -> dict[str, datetime | None]:
    """Return the due dates that texts mean: ``relu=2026-03-01 12:00``; ``relu=none`` takes one away.

    Raises:
        CourseError: a text means none.
    """
    found: dict[str, datetime | None] = {}
    for text in texts:
        name, equals, when = text.partition("=")
        if not equals:
            raise CourseError(f"{printable(text, 80)} is not a due date: write SET=DATE, as in relu=2026-03-01T12:00")
        assignment = course.find(name)
        if assignment in found:
            raise CourseError(f"{assignment} has two due dates: leave one out")
        if when == "none":
            found[assignment] = None
            continue
        try:
            if not DATE.fullmatch(when):
                raise ValueError
            found[assignment] = parse_utc(when)
        except (ValueError, OverflowError):
            remedy = "write day and time, 2026-03-01T12:00, in UTC, or with a zone, 2026-03-01T12:00+01:00"
            raise CourseError(f"{printable(when, 80)} is not a date: {remedy}") from None
    return found


def findings(course: Course, records: Records, seen: Overview) -> Iterator[Finding]:
    """Yield each thing that grading needs, as soon as it is looked at; the sandbox is started for it.

    Args:
        course: the course.
        records: its records.
        seen: the class.
    """
    versions = f"{platform.python_version()}, torch {version('torch')}, nbgrader {version('nbgrader')}"
    yield Finding("Python", OK, versions)
    yield _sandbox()
    yield _outside()
    yield _room(course.root)
    yield _sets(course, seen)
    yield _gradebook(course, seen)
    if seen.listed is None:
        how = f"`python -m graders roster FILE` writes {ROSTER} from the gradebook of your learning platform"
        yield Finding("students", NOTE, "nobody has said who they are: any name is taken", how)
    else:
        yield Finding("students", OK, f"{len(seen.listed)} in the list")
    if course.secret:
        yield Finding("inputs", OK, f"each student has their own, from {SECRET}: keep a copy of it")
    else:
        how = "`python -m graders init --own-inputs` draws others for each, so that numbers cannot be passed on"
        yield Finding("inputs", OK, "the hidden checks ask everybody the same", how)
    dated = [row for row in seen.sets if row.due]
    yield Finding("late hand-ins", OK, course.late_policy)
    if dated:
        yield Finding("due dates", OK, "; ".join(f"{row.name} {shown(row.due)}" for row in dated if row.due))
    else:
        example = f"`python -m graders init --due {seen.sets[0].name}=2026-03-01T12:00`, in UTC"
        yield Finding("due dates", NOTE, "no set has one, so nothing is late", example)


def _sandbox() -> Finding:
    try:
        parent = WarmParent("required")
        try:
            parent.wait()
        finally:
            parent.close()
    except SandboxError as error:
        return Finding("sandbox", MISSING, printable(error, 500))
    found = "works"
    with suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, timeout=10, check=True)
        found = f"{said.stdout.strip()} works"
    return Finding("sandbox", OK, found if os.geteuid() else f"{found}, and you are root")


def _outside() -> Finding:
    group = memory.new_group()
    if group is None:
        what = "no control group can be made here: what an answer keeps in memory is read from its process instead"
        return Finding("memory", NOTE, what, "as root, or in a container that may make control groups, it is measured")
    memory.remove(group)
    return Finding("memory", OK, "measured from outside, by control groups")


def _room(root: Path) -> Finding:
    free, has = shutil.disk_usage(root).free, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = f"{cores()} cores, {has >> 30} GB of memory, {free >> 30} GB of disk free"
    if free < DISK:
        return Finding("room", NOTE, found, "that is little for a class: 300 hand-ins of a set take about 1 GB")
    if has < cores() * MEMORY:
        return Finding("room", NOTE, found, f"use --workers {max(1, has // MEMORY)}")
    return Finding("room", OK, found)


def _sets(course: Course, seen: Overview) -> Finding:
    sets = [row.name for row in seen.sets]
    if not course.assignments:
        return Finding("sets", MISSING, "there are none", f"restore {course.dirs.source_directory}/ from the course")
    released = course.root / course.dirs.release_directory
    without = [name for name in sets if not any((released / name).glob("*.ipynb"))]
    if without:
        return Finding(
            "sets",
            NOTE,
            f"{len(sets)}, of which {', '.join(without)} cannot be given out yet",
            "`make exercises` makes what students get",
        )
    others = [name for name in course.assignments if name not in sets]
    left = f"; {', '.join(others)} {'is' if len(others) == 1 else 'are'} optional, and not taken up" if others else ""
    found = f"{len(sets)}, all of them ready to be given out in {course.dirs.release_directory}/{left}"
    return Finding("sets", OK, found)


def _gradebook(course: Course, seen: Overview) -> Finding:
    url = make_url(course.dirs.db_url)
    name = Path(str(url.database)).name if url.get_backend_name() == "sqlite" else str(url.set(query={}))
    sample = course.root / "sample"
    known = {path.name for path in sample.iterdir() if path.is_dir()} if sample.is_dir() else set()
    if known and len(known & seen.seen) >= min(3, len(known)):
        how = "use a clone of its own for your class, or remove submitted/, autograded/, feedback/ and the gradebook"
        return Finding("gradebook", NOTE, f"{name}, with the sample class in it", how)
    return Finding("gradebook", OK, name if course.has_gradebook else f"{name}, which the first grading makes")


def ask(course: Course) -> tuple[str, list[str]]:
    """Ask on the terminal for what no flag has said; return the platform's file ("" for none) and due dates."""
    sys.stdout.write("Press Enter to leave one out; each can be set later.\n")
    file = "" if (course.root / ROSTER).exists() else input("Gradebook file of your learning platform (CSV): ").strip()
    while file and (refused := _refused(Path(file).expanduser())):
        file = input(f"{refused}\nGradebook file: ").strip()
    dates = input("Due dates in UTC, as relu=2026-03-01T12:00, with blanks between several: ").split()
    while dates:
        try:
            due_dates(course, dates)
            break
        except CourseError as error:
            dates = input(f"{printable(error, 300)}\nDue dates: ").split()
    return file, dates


def _refused(path: Path) -> str:
    """Return why a file cannot be made into the list of students; "" where it can."""
    if not path.is_file():
        return f"There is no file {printable(path, 80)}."
    try:
        roster_of(read_table(path))
    except CourseError as error:
        return printable(error, 500)
    return ""


def next_steps(course: Course, seen: Overview) -> list[str]:
    """Return what to type next."""
    first = seen.sets[0].name
    if not seen.seen:
        return [
            f"Next: give out {course.dirs.release_directory}/ (`make students` packs it), and when hand-ins have come:",
            f"  python -m graders collect {first} DOWNLOAD.zip --from canvas",
            f"  python -m graders grade {first}",
            f"  python -m graders feedback {first}",
        ]
    left = [row.name for row in seen.sets if row.waiting]
    return [f"Next: python -m graders grade {left[0]}"] if left else ["Next: python -m graders scores"]
