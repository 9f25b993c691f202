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
    folder: str
    start: str  # of its name
    notebook: str
    exact: bool  # named as it was given out


def whose(
    files: Iterable[str],
    assignment: str,
    names: list[str],
    known: set[str],
    shown: Callable[[str], str] = str,
    same: Callable[[str, str], bool] = operator.eq,
) -> tuple[list[Claim], list[str]]:
    """Whose notebook each file is.

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
        same: whether two files are alike to the byte.

    Returns:
        What is taken, a file's doubles after it, and a line on each file that is left out.
    """
    found: list[_Found] = []
    told: list[str] = []
    ours = {assignment, "exercises", "custom-gradients"}
    wanted = " and ".join(f"{name}.ipynb" for name in names)
    for file in files:
        *folders, last = file.split("/")
        if LEFT_BEHIND & {*folders, last} or "__MACOSX" in folders:
            continue
        meant = _meant(unicodedata.normalize("NFC", last), assignment, names)
        if not last.endswith(".ipynb"):
            why = f"the assignment has only {wanted}"
            if meant:
                why = f"its name does not end in .ipynb. Rename it to {_called(meant[0], meant[1])}"
            told.append(f"{shown(file)}: left out, {why}")
        elif meant is None:
            told.append(f"{shown(file)}: left out, the assignment has only {wanted}. Rename it if that is what it is")
        else:
            others = [unicodedata.normalize("NFC", name).rstrip("~") for name in folders if not GIVEN.fullmatch(name)]
            others = [MOODLE.sub("", name) for name in others if name not in ours]
            owner = next((name for name in others if name in known), others[-1] if others else "")
            found.append(_Found(file, owner, *meant))
    students = known | {one.folder for one in found if not one.start and STUDENT.fullmatch(one.folder)}
    wanting: dict[tuple[str, str], list[_Found]] = {}
    for one in sorted(found, key=_rank):
        student = one.start or one.folder
        if one.start and one.folder in students and one.start != one.folder:
            why = f"it is in {one.folder}'s folder and says {one.start}. Move it to {one.start}/ if that is right"
        elif not student:
            remedy = f"Put it into a folder NAME/, or rename it to {_called('NAME', one.notebook)}"
            why = f"there is no student name on it. {remedy}"
        elif not STUDENT.fullmatch(student):
            allowed = "up to 100 letters, digits, . @ - _ and single blanks between them"
            why = f"{student!r} is no student's name: {allowed}. Rename the {'file' if one.start else 'folder'}"
        else:
            wanting.setdefault((student, one.notebook), []).append(one)
            continue
        told.append(f"{shown(one.file)}: left out, {why}")
    claims: list[Claim] = []
    for (student, name), ones in wanting.items():
        first = ones[0]
        doubles: list[_Found] = []
        others: list[_Found] = []
        for one in ones[1:]:
            (doubles if same(first.file, one.file) else others).append(one)
        if others and not first.exact:
            files = " and ".join(shown(one.file) for one in (first, *others[:2]))
            why = f"each may be {student}'s {name}.ipynb. Rename the right one to {_called(first.start, name)}"
            told.append(f"{files}: left out, {why}")
            continue
        claims += [(one.file, student, name) for one in (first, *doubles)]
        for one in others:
            why = f"{shown(first.file)} is {student}'s {name}.ipynb too. Keep the right one"
            told.append(f"{shown(one.file)}: left out, {why}")
    return claims, told


def _rank(one: _Found) -> tuple[bool, int, bool, str]:
    """Which of two files comes first."""
    folders = one.file.split("/")[:-1]
    return not one.exact, len(folders) - bool(folders and GIVEN.fullmatch(folders[0])), bool(one.start), one.file


def _called(start: str, name: str) -> str:
    return f"{start}_{name}.ipynb" if start else f"{name}.ipynb"


def _meant(last: str, assignment: str, names: list[str]) -> tuple[str, str, bool] | None:
    """The start of a file's name, the notebook that its end means, and whether that is as it was given out."""
    ends = [(assignment, name) for name in names if assignment.endswith(f"_{name}")] + [(name, name) for name in names]
    cuts = [0, *(found.end() for found in re.finditer("[_-]", last))]
    for like in (operator.eq, resembles):
        for end, name in ends:
            for cut in cuts:
                rest = last[cut:]
                if len(rest) < len(end) + 40 and like(f"{end}.ipynb", rest):  # a longer one would take its time
                    return MOODLE.sub("", last[:cut][:-1]).strip(), name, like is operator.eq
    return None
