"""Tell whose notebook a file is, by its folder and its name: nobody hands in for another by a file's name."""

import operator
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import NamedTuple

from graders.classroom.submission import LEFT_BEHIND
from graders.notebook.files import resembles

# No way out of the folder, and no option; blanks only one by one, inside.
STUDENT = re.compile(r"(?=.{1,100}$)\w[\w.@-]*( [\w.@-]+)*(?<!\.)")
MOODLE = re.compile(r"_\d+_assignsubmission_(file|onlinetext)_?$")  # after a name: other numbers for each set
GIVEN = re.compile(r"~\d+")  # the folder of all that came by one argument

Claim = tuple[str, str, str]  # file, student, notebook


class _Found(NamedTuple):
    file: str
    folder: str  # that names a student, or ""
    start: str  # of the file's name
    notebook: str
    exact: bool  # named as it was given out

    @property
    def student(self) -> str:
        return self.start or self.folder


def whose(
    files: Iterable[str],
    assignment: str,
    names: list[str],
    known: set[str],
    shown: Callable[[str], str] = str,
    same: Callable[[str, str], bool] = operator.eq,
) -> tuple[list[Claim], list[str]]:
    """Tell whose notebook each file is.

    A folder, or an archive, says it before a file's name does: in ada's folder, ``ben_relu.ipynb`` is not ben's. Only
    a folder that is no student's, such as a download of a whole class, leaves it to the names in it. Where two claim to
    be the same student's, the one that is named as it was given out is taken, then the one in fewer folders. A copy,
    ``relu (1).ipynb``, is taken where it is the student's only one.

    Args:
        files: paths of what came in, relative and with "/".
        assignment: the set.
        names: its notebooks.
        known: students who handed in before.
        shown: what to call a file.
        same: whether two files are equal to the byte.

    Returns:
        What is taken, a file's doubles after it, and a line on each file that is left out.
    """
    found: list[_Found] = []
    left_out: list[str] = []
    for file in files:
        *folders, last = file.split("/")
        if LEFT_BEHIND & {*folders, last} or "__MACOSX" in folders:
            continue
        one = _named(file, assignment, names, known)
        if isinstance(one, _Found):
            found.append(one)
        else:
            left_out.append(f"{shown(file)}: left out, {one}")
    students = known | {one.folder for one in found if not one.start and STUDENT.fullmatch(one.folder)}
    wanting: dict[tuple[str, str], list[_Found]] = {}
    for one in sorted(found, key=_rank):
        if why := _objection(one, students):
            left_out.append(f"{shown(one.file)}: left out, {why}")
        else:
            wanting.setdefault((one.student, one.notebook), []).append(one)
    claims: list[Claim] = []
    for (student, name), ones in wanting.items():
        taken, lines = _choice(ones, shown, same)
        claims += [(one.file, student, name) for one in taken]
        left_out += lines
    return claims, left_out


def _named(file: str, assignment: str, names: list[str], known: set[str]) -> _Found | str:
    """Return what a file's folders and name say, or why it is not a notebook of the set."""
    *folders, last = file.split("/")
    meant = _meant(unicodedata.normalize("NFC", last), assignment, names)
    if meant is None or not last.endswith(".ipynb"):
        wanted = f"the assignment has only {' and '.join(f'{name}.ipynb' for name in names)}"
        if meant:
            return f"its name does not end in .ipynb. Rename it to {_called(meant[0], meant[1])}"
        return f"{wanted}. Rename it if it belongs to the assignment" if last.endswith(".ipynb") else wanted
    ours = {assignment, "exercises", "custom-gradients"}
    others = [unicodedata.normalize("NFC", name).rstrip("~") for name in folders if not GIVEN.fullmatch(name)]
    others = [MOODLE.sub("", name) for name in others if name not in ours]
    return _Found(file, next((name for name in others if name in known), others[-1] if others else ""), *meant)


def _objection(one: _Found, students: set[str]) -> str | None:
    """Return the first reason for which a notebook cannot be taken for a student's."""
    allowed = "up to 100 letters, digits, . @ - _ and single blanks between them"
    reasons = (
        (
            one.start and one.folder in students and one.start != one.folder,
            f"it is in {one.folder}'s folder, but its name says {one.start}. Move it to {one.start}/ if that is right",
        ),
        (
            not one.student,
            "there is no student name on it. "
            f"Put it into a folder NAME/, or rename it to {_called('NAME', one.notebook)}",
        ),
        (
            not STUDENT.fullmatch(one.student),
            f"{one.student!r} is not a valid student name: {allowed}. Rename the {'file' if one.start else 'folder'}",
        ),
    )
    return next((why for holds, why in reasons if holds), None)


def _choice(
    ones: list[_Found], shown: Callable[[str], str], same: Callable[[str, str], bool]
) -> tuple[list[_Found], list[str]]:
    """Return which of a student's files for one notebook are taken, and a line on each that is left out."""
    first = ones[0]
    owner = f"{first.student}'s {first.notebook}.ipynb"
    doubles: list[_Found] = []
    others: list[_Found] = []
    for one in ones[1:]:
        (doubles if same(first.file, one.file) else others).append(one)
    if others and not first.exact:
        files = " and ".join(shown(one.file) for one in (first, *others[:2]))
        remedy = f"Rename the right one to {_called(first.start, first.notebook)}"
        return [], [f"{files}: left out, each may be {owner}. {remedy}"]
    why = f"{shown(first.file)} is {owner} too. Keep the right one"
    return [first, *doubles], [f"{shown(one.file)}: left out, {why}" for one in others]


def _rank(one: _Found) -> tuple[bool, int, bool, str]:
    """Return the order in which files are considered: the first of a student's is taken."""
    folders = one.file.split("/")[:-1]
    return not one.exact, len(folders) - bool(folders and GIVEN.fullmatch(folders[0])), bool(one.start), one.file


def _called(start: str, name: str) -> str:
    """Return what a student's notebook may be called."""
    return f"{start}_{name}.ipynb" if start else f"{name}.ipynb"


def _meant(last: str, assignment: str, names: list[str]) -> tuple[str, str, bool] | None:
    """Return the start of a file's name, the notebook that its end means, and whether that is as it was given out."""
    ends = [(assignment, name) for name in names if assignment.endswith(f"_{name}")] + [(name, name) for name in names]
    cuts = [0, *(found.end() for found in re.finditer("[_-]", last))]
    for like in (operator.eq, resembles):
        for end, name in ends:
            for cut in cuts:
                rest = last[cut:]
                if len(rest) < len(end) + 40 and like(f"{end}.ipynb", rest):  # a longer one would take its time
                    return MOODLE.sub("", last[:cut][:-1]).strip(), name, like is operator.eq
    return None
