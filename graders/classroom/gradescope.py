"""A download of Gradescope's: its ``submission_metadata.yml`` says whose each numbered folder is, and when it came.

Its form (``:submitters`` with ``:name``, ``:sid`` and ``:email``, ``:created_at``, by folder) is that of "Export
Submissions" in 2026. The file counts where it lies beside the folders, never in a student's own.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from graders.classroom.roster import Roster
from graders.classroom.whose import NAMELESS, STUDENT, Arrival
from graders.notebook.files import MAX_BYTES, read_bytes
from graders.notebook.problem import Unreadable, printable

METADATA = "submission_metadata.yml"
IDENTITIES = (":sid", ":email", ":name")  # the first that fits is the student
TIME = "timestamp.txt"


def named(
    arrivals: Sequence[Arrival], root: Path, roster: Roster | None, shown: Callable[[str], str]
) -> tuple[list[Arrival], list[str]]:
    """Return what came in, a student's name behind each folder's number, and a line on each folder that has several.

    Notebooks get a ``timestamp.txt`` with Gradescope's time, which counts more than one that a student wrote.

    Args:
        arrivals: what came in.
        root: where it lies; what is there is a copy, which may be changed.
        roster: who is in the course.
        shown: tells what to call a file.
    """
    lines: list[str] = []
    meant: dict[tuple[str, ...], dict[str, Any]] = {}
    for one in arrivals:
        if one.outer == (METADATA,) and not one.inner:  # what a student has put elsewhere is not even read
            try:
                meant |= {(one.file.rpartition("/")[0], *key): who for key, who in _read(root / one.file).items()}
            except ValueError as error:
                lines.append(
                    f"{shown(one.file)}: cannot be read ({printable(error, 100)}). Export the submissions again"
                )
    if not meant:
        return list(arrivals), lines
    found, told = [], set()
    for one in arrivals:
        at = next((at for at, name in enumerate(one.outer) if NAMELESS.fullmatch(name)), None)
        parts = one.file.split("/")
        folder = len(parts) - len(one.inner) - len(one.outer) + (at or 0)
        who = None if at is None else meant.get(("/".join(parts[:folder]), one.outer[at]))
        if who is None or at is None:
            found.append(one)
            continue
        student = _student(who, roster)
        place = "/".join(parts[: folder + 1])
        if not student and place not in told:
            people = " and ".join(printable(person.get(":name") or "somebody", 60) for person in who[":submitters"])
            remedy = "Put a copy into a folder of each one's name" if len(who[":submitters"]) > 1 else "Rename it"
            lines.append(f"{shown(place)}: left out, it is from {people or 'nobody'}. {remedy}")
        elif student:
            found.append(one._replace(outer=(*one.outer[:at], f"{one.outer[at]} {student}", *one.outer[at + 1 :])))
            if one.file.endswith(".ipynb") and isinstance(when := who.get(":created_at"), datetime):
                _write_time((root / one.file).parent / TIME, when)
        told.add(place)
    return found, lines


def _read(path: Path) -> dict[tuple[str], dict[str, Any]]:
    """Return what the file says of each folder; ValueError if it is none."""
    try:
        data = yaml.load(read_bytes(path, MAX_BYTES), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, Unreadable, RecursionError, ValueError) as error:
        raise ValueError(str(error).splitlines()[0]) from None
    if not isinstance(data, dict):
        raise ValueError("it lists no submissions")
    return {
        (key,): value
        for key, value in data.items()
        if isinstance(key, str)
        and isinstance(value, dict)
        and isinstance(value.get(":submitters"), list)
        and all(isinstance(person, dict) for person in value[":submitters"])
    }


def _student(who: Mapping[str, Any], roster: Roster | None) -> str:
    """Return the one student that a submission is of; "": there are several, or nobody with a name."""
    if len(who[":submitters"]) != 1:
        return ""
    called = [str(who[":submitters"][0].get(key) or "").strip() for key in IDENTITIES]
    called = [name for name in called if STUDENT.fullmatch(name)]
    if roster:
        called = [name for name in called if len(roster.find(name, name)) == 1] or called
    return next(iter(called), "")


def _write_time(path: Path, when: datetime) -> None:
    when = when.astimezone(UTC) if when.tzinfo else when
    path.unlink(missing_ok=True)
    path.write_text(f"{when:%Y-%m-%d %H:%M:%S} UTC\n", encoding="ascii")
