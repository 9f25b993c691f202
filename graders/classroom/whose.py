"""Tell whose notebook a file is: the outermost folder or archive says it, and nothing that a student put into one."""

import operator
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from graders.classroom.platforms import FOLDERS, PLATFORMS, Signed, platform_of, signed, surplus
from graders.classroom.roster import ROSTER, Roster
from graders.classroom.submission import LEFT_BEHIND
from graders.notebook.files import resembles
from graders.notebook.problem import printable

# No way out of the folder, and no option; blanks only one by one, inside.
STUDENT = re.compile(r"(?=.{1,100}$)\w[\w.@-]*(['’]\w[\w.@-]*)*( [\w.@-]+(['’]\w[\w.@-]*)*)*(?<!\.)")
ALLOWED = "up to 100 letters, digits, . @ - _ ' and single blanks between them"
NAMELESS = re.compile(r"submission_\d+")  # Gradescope's folders: another number for each set
SCRIPTS = ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC")  # whose letters look like one another's

Claim = tuple[str, str, str]  # file, student, notebook


class Arrival(NamedTuple):
    """A file that came in.

    Args:
        file: its path, with "/".
        outer: the names from the folder or download that was given down to it, or to the archive that it is in.
        inner: the names in that archive, which are its student's.
    """

    file: str
    outer: tuple[str, ...]
    inner: tuple[str, ...] = ()


@dataclass(frozen=True)
class Class:
    """What names are held against.

    Args:
        known: students who handed in before.
        roster: who is in the course, None where nobody has said it.
        platform: the one whose download it is, None: it was not said.
    """

    known: set[str] = field(default_factory=set)
    roster: Roster | None = None
    platform: str | None = None


class _Found(NamedTuple):
    file: str
    hand_in: str  # where the folder or archive lies that is one hand-in
    place: tuple[str, ...]  # the names down to it
    owner: str  # what that is called, or the start of the file's name where there is none
    signed: Signed | None  # what a platform says there
    loose: bool  # a notebook by itself
    packed: bool  # what is in it was named by its student
    inside: tuple[str, ...]  # folders in it, and the start of the file's name
    notebook: str
    exact: bool  # named as it was given out

    @property
    def rank(self) -> tuple[bool, int]:
        """Which of a hand-in's files goes first."""
        return not self.exact, self.file.count("/")


def whose(
    files: Iterable[str | Arrival],
    assignment: str,
    names: list[str],
    known: set[str],
    shown: Callable[[str], str] = str,
    same: Callable[[str, str], bool] = operator.eq,
    when: Callable[[str], float] = lambda file: 0.0,
    roster: Roster | None = None,
    platform: str | None = None,
    rule: Callable[[Arrival], tuple[str, str] | str] | None = None,
) -> tuple[list[Claim], list[str]]:
    """Tell whose notebook each file is.

    The outermost folder or archive says it; a notebook that is in none says it by the start of its name. What is in a
    student's folder or archive never makes it another's: where it names another student, it is left out. Names
    are held against the roster, where there is one. Of several hand-ins of a student the latest is taken, and in one
    the notebook that is named as it was given out, in the fewest folders; a copy, ``relu (1).ipynb``, is taken where it
    is the only one.

    Args:
        files: what came in, or paths of it, relative and with "/".
        assignment: the set.
        names: its notebooks.
        known: students who handed in before.
        shown: what to call a file.
        same: whether two files are equal to the byte.
        when: when a file was handed in, in seconds.
        roster: who is in the course.
        platform: whose download it is: a key of `PLATFORMS`, or `FOLDERS`.
        rule: tells the student and the notebook of a file, or why not, in place of the rules of this module.

    Returns:
        What is taken, a file's doubles after it, and a line on each file that is left out.
    """
    course = Class(known, roster, platform)
    lost: list[tuple[Arrival, str]] = []
    found: list[tuple[Arrival, _Found, str]] = []
    arrivals = [one if isinstance(one, Arrival) else Arrival(one, tuple(one.split("/"))) for one in files]
    for one in sorted(arrivals):
        path = {*one.outer, *one.inner}
        if LEFT_BEHIND & path or "__MACOSX" in path or surplus((one.inner or one.outer)[-1], platform):
            continue
        read = _ruled(one, rule(one)) if rule else _read(one, assignment, names, platform)
        student = read if isinstance(read, str) else _student(read, course)
        if isinstance(read, str) or isinstance(student, _No):
            lost.append((one, student))
        else:
            found.append((one, read, student))
    students = known | {student for *_, student in found} | (roster.ids if roster else set())
    wanting: dict[tuple[str, str], list[_Found]] = {}
    twins = _twins([(read, student) for _, read, student in found])
    for one, read, student in found:
        if why := twins.get(student) or _objection(read, student, students, course):
            lost.append((one, why))
        else:
            wanting.setdefault((student, read.notebook), []).append(read)
    left_out = _told(arrivals, lost, shown, asked=platform is None and rule is None)
    claims: list[Claim] = []
    for (student, name), ones in wanting.items():
        taken, lines = _choice(ones, f"{student}'s {name}.ipynb", shown, same, when)
        claims += [(one.file, student, name) for one in taken]
        left_out += lines
    return claims, left_out


def _told(
    arrivals: list[Arrival], lost: list[tuple[Arrival, str]], shown: Callable[[str], str], asked: bool
) -> list[str]:
    """Return a line on each file that is left out; one for a platform's whole download, of which nothing is taken.

    Args:
        arrivals: what came in.
        lost: what is left out, and why.
        shown: what to call a file.
        asked: whether it was left to us to tell the platform.
    """
    whole: dict[str, list[Arrival]] = {}
    for one in arrivals:
        if one.inner and asked and one.inner[-1].endswith(".ipynb"):
            whole.setdefault(one.file[: -len("/".join(one.inner))].rstrip("/"), []).append(one)
    left = {one.file for one, _ in lost}
    lines, covered = [], set()
    for ones in whole.values():
        keys = {platform_of(one.inner[0]) for one in ones}
        if len(ones) > 1 and len(keys) == 1 and (key := keys.pop()) and left.issuperset(one.file for one in ones):
            what = f"its {len(ones)} notebooks are named as {PLATFORMS[key].title} names what a class handed in"
            place = shown(ones[0].file).removesuffix("/" + "/".join(ones[0].inner))
            lines.append(f"{place}: left out, {what}. Collect it with --from {key}")
            covered |= {one.file for one in ones}
    return lines + [f"{shown(one.file)}: left out, {why}" for one, why in lost if one.file not in covered]


# --- what a file says ---


def _read(one: Arrival, assignment: str, names: list[str], platform: str | None) -> _Found | str:
    """Return what the names of a file say, or why it is not a notebook of the set."""
    outer = [unicodedata.normalize("NFC", name) for name in one.outer]
    ours = {assignment, "exercises", "custom-gradients"}
    folders = len(outer) if one.inner else len(outer) - 1
    first = next((at for at in range(folders) if outer[at] not in ours), folders)
    packed = bool(one.inner)
    loose = first == folders and not packed
    if first == folders and packed:
        first -= 1  # an archive of the set's own name says nothing, and what is in it says nothing either
    container = outer[first].rstrip("~") if not loose else re.sub(r"(?i)(\.ipynb)?(\.\w{1,5})?$", "", outer[-1])
    sign = signed(outer[-1] if loose else container, assignment, platform)
    last = (sign.rest if loose and sign and sign.rest else None) or (one.inner or outer)[-1]
    last = unicodedata.normalize("NFC", last)
    if sign and sign.version and platform in ("canvas", None):
        sign, last = _attempt(sign, last)
    meant = _meant(last, assignment, names)
    if meant is None or not last.endswith(".ipynb"):
        wanted = f"the assignment has only {' and '.join(f'{name}.ipynb' for name in names)}"
        if meant:
            return f"its name does not end in .ipynb. Rename it to {_called(meant[0], meant[1])}"
        return f"{wanted}. Rename it if it belongs to the assignment" if last.endswith(".ipynb") else wanted
    start, name, exact = meant
    owner = sign.name if sign else start if loose else _trimmed(container, assignment, names)
    if packed and not sign and container in ours:
        owner = ""
    inside = (
        *outer[first + 1 : folders],
        *(part for part in one.inner[:-1]),
        *([start] if start and not loose else []),
    )
    place = tuple(outer[: first + 1])
    parts = one.file.split("/")
    hand_in = "/".join(parts[: max(len(parts) - len(one.inner) - (len(outer) - 1 - first), 0)])
    return _Found(one.file, hand_in, place, owner, sign, loose, packed, inside, name, exact)


def _ruled(one: Arrival, told: tuple[str, str] | str) -> _Found | str:
    """Return what the instructor's own rule says of a file."""
    if isinstance(told, str):
        return told
    student, notebook = (unicodedata.normalize("NFC", text) for text in told)
    sign = Signed(student, "", (), "")
    loose = len(one.outer) == 1 and not one.inner
    return _Found(one.file, one.file, one.outer[:1], student, sign, loose, bool(one.inner), (), notebook, True)


def _attempt(sign: Signed, last: str) -> tuple[Signed, str]:
    """Take off the number that Canvas puts behind the name of a file that is handed in again: ``relu-1.ipynb``."""
    again = re.search(r"-(\d{1,4})(?=\.ipynb$)", last)
    sign = sign._replace(version=(again[1].zfill(20) if again else "", *sign.version))
    return sign, last[: again.start()] + last[again.end() :] if again else last


def _trimmed(container: str, assignment: str, names: list[str]) -> str:
    """Return the student in the name of a folder or an archive: ``ada_relu.zip`` is ada's, ``relu.zip`` nobody's."""
    for end in sorted({assignment, assignment.replace("_", "-"), *names}, key=len, reverse=True):
        if container.casefold() == end.casefold():
            return ""
        if container.casefold().endswith((f"_{end}".casefold(), f"-{end}".casefold())):
            return container[: -len(end) - 1].strip()
    return container


def _meant(last: str, assignment: str, names: list[str]) -> tuple[str, str, bool] | None:
    """Return the start of a file's name, the notebook that its end means, and whether that is as it was given out."""
    ends = [(assignment, name) for name in names if assignment.endswith(f"_{name}")] + [(name, name) for name in names]
    cuts = [0, *(found.end() for found in re.finditer("[_-]", last))]
    for like in (operator.eq, resembles):
        for end, name in ends:
            for cut in cuts:
                rest = last[cut:]
                if len(rest) < len(end) + 40 and like(f"{end}.ipynb", rest):  # a longer one would take its time
                    return last[:cut][:-1].strip(), name, like is operator.eq
    return None


# --- who that is ---


class _No(str):
    """Why it is nobody that can be told."""


def _student(one: _Found, course: Class) -> str:
    """Return the student that a file's owner is; a `_No` says why there is none."""
    called = one.owner.replace("’", "'")
    what = "file" if one.loose else "archive" if one.packed and len(one.place) else "folder"
    numbered = course.platform in (None, FOLDERS, "gradescope") and NAMELESS.fullmatch(called)
    if numbered and not (course.roster and course.roster.find(called)):
        remedy = f"Collect the whole download, with its submission_metadata.yml, or rename the {what} to the student"
        return _No(f"{called} is Gradescope's number of a hand-in, and names nobody. {remedy}")
    if course.platform not in (None, FOLDERS) and not one.signed:
        title, example = PLATFORMS[course.platform].title, PLATFORMS[course.platform].example
        key = next(filter(None, map(platform_of, (*one.place[-1:], *one.inside, one.file.rpartition("/")[2]))), None)
        other = f"{PLATFORMS[key].title} names it so: collect it with --from {key}" if key else ""
        remedy = other or f"Collect it without --from {course.platform}"
        return _No(f"its {what} is not named as {title} names one ({example}). {remedy}")
    if not called:
        remedy = f"Put it into a folder NAME/, or rename {'it' if one.loose else f'the {what}'} to "
        renamed = _called("NAME", one.notebook) if one.loose else "NAME.zip" if one.packed else "NAME"
        return _No(f"there is no student name on it. {remedy}{renamed}")
    if course.roster:
        found = course.roster.find(called, one.signed.person if one.signed else "")
        if len(found) > 1:
            return _No(
                f"{printable(called, 60)!r} may be {' or '.join(sorted(found))}. Rename the {what} to the right one"
            )
        if not found:
            return _No(
                f"there is no student {printable(called, 60)!r} in the course. Rename the {what}, "
                f"or add them to {ROSTER}"
                + ("; a platform's download of all hand-ins needs --from PLATFORM" if one.packed else "")
            )
        called = next(iter(found))
    if not STUDENT.fullmatch(called):
        return _No(f"{called!r} is not a valid student name: {ALLOWED}. Rename the {what}")
    if course.roster:
        return called
    if _deceptive(called):
        return _No(f"{called!r} has letters that look like others. Rename the {what}")
    others = sorted(other for other in course.known if other != called and other.casefold() == called.casefold())
    if others and called not in course.known:
        return _No(f"{called} and {others[0]}, who handed in before, differ in capitals only. Rename the {what}")
    return called


def _deceptive(name: str) -> bool:
    """Return whether a name mixes letters of several scripts, or has wide, small or joined forms of them."""
    letters = {unicodedata.name(letter, "").split(" ")[0] for letter in name if letter.isalpha()}
    return len(letters & set(SCRIPTS)) > 1 or unicodedata.normalize("NFKC", name) != name


def _twins(found: list[tuple[_Found, str]]) -> dict[str, str]:
    """Return why nothing of a student is taken where several people, or spellings, have the name."""
    people: dict[str, set[str]] = {}
    spelled: dict[str, set[str]] = {}
    for one, student in found:
        spelled.setdefault(student.casefold(), set()).add(student)
        if one.signed and one.signed.person:
            people.setdefault(student, set()).add(one.signed.person)
    twins = {}
    for student in {student for _, student in found}:
        if len(people.get(student, ())) > 1:
            twins[student] = (
                f"{len(people[student])} students are called {student}. Put each notebook into a folder of another name"
            )
        elif len(spelled[student.casefold()]) > 1:
            both = " and ".join(sorted(spelled[student.casefold()]))
            twins[student] = f"{both} differ in capitals only. Rename one, or both to the same name"
    return twins


def _objection(one: _Found, student: str, students: set[str], course: Class) -> str | None:
    """Return why a notebook cannot be taken for its owner's: what is inside names another."""
    place = f"{'/'.join(one.place)}{'' if one.packed else '/'}"
    if one.packed and not one.signed:
        for name in (*one.inside, one.file.rpartition("/")[2]):
            if key := platform_of(name):
                download = f"it looks like a part of a download from {PLATFORMS[key].title}"
                return f"{download}. If the archive is the whole class's, collect it with --from {key}"
    for name in one.inside:
        other = name.replace("’", "'")
        meant = course.roster.find(other) if course.roster else {other} & students
        if meant and student not in meant:
            who = " or ".join(sorted(meant))
            return (
                f"it is in {student}'s {'archive' if one.packed else 'folder'} {printable(place, 60)}, but a name in "
                f"it says {who}. Take it out of there if it is {who}'s, else rename it"
            )
    start = one.inside[-1] if one.inside else ""
    if one.signed or one.packed or not start or start in (student, one.owner) or not _is_start(one, start):
        return None
    if course.roster and (course.roster.find(one.owner) or not course.roster.find(start)):
        return None
    return (
        f"it is in {student}'s folder, but its name says {printable(start, 60)}. Rename it to "
        f"{_called('', one.notebook)} if it is {student}'s; if {student} is not a student, "
        f"collect {printable(place, 60)} itself"
    )


def _is_start(one: _Found, start: str) -> bool:
    """Return whether the last name inside is the start of the file's name, not a folder's."""
    return start in one.file.rpartition("/")[2] or unicodedata.normalize("NFD", start) in one.file.rpartition("/")[2]


def _choice(
    ones: Sequence[_Found],
    owner: str,
    shown: Callable[[str], str],
    same: Callable[[str, str], bool],
    when: Callable[[str], float],
) -> tuple[list[_Found], list[str]]:
    """Return which of a student's files for one notebook are taken, and a line on each that is left out."""
    places: dict[str, list[_Found]] = {}
    for one in sorted(ones, key=lambda one: (one.rank, one.file)):
        places.setdefault(one.hand_in, []).append(one)
    best: list[_Found] = []
    left_out: list[str] = []
    for inside in places.values():
        first, *rest = inside
        others = [one for one in rest if not same(first.file, one.file)]
        rivals = [one for one in others if one.rank == first.rank or not first.exact]
        if rivals:
            files = " and ".join(shown(one.file) for one in (first, *rivals[:2]))
            remedy = f"Rename the right one to {first.notebook}.ipynb, and remove the others"
            if first.inside and first.packed:
                remedy += "; if the archive is a whole class's, collect it with --from folders"
            elif first.inside:
                remedy += f"; if these are several students', collect {'/'.join(first.place)}/ itself"
            left_out.append(f"{files}: left out, each may be {owner}. {remedy}")
            continue
        best += [first, *(one for one in rest if one not in others)]
        left_out += [
            f"{shown(one.file)}: left out, {shown(first.file)} is {owner} too. Keep the right one" for one in others
        ]
    return _latest(best, left_out, owner, shown, same, when)


def _latest(
    best: list[_Found],
    left_out: list[str],
    owner: str,
    shown: Callable[[str], str],
    same: Callable[[str, str], bool],
    when: Callable[[str], float],
) -> tuple[list[_Found], list[str]]:
    """Return the latest of several hand-ins: as the platform numbers them, else by their time."""
    if not best:
        return [], left_out
    ordered = sorted(best, key=lambda one: (one.rank[0], one.rank[1], one.file))
    numbered = all(one.signed and one.signed.version for one in best)
    first = max(
        ordered, key=lambda one: one.signed.version if numbered and one.signed else (f"{when(one.file):020.3f}",)
    )
    taken = [one for one in ordered if one is not first and same(first.file, one.file)]
    for one in ordered:
        if one is first or one in taken:
            continue
        if numbered and one.signed and first.signed and one.signed.version < first.signed.version:
            left_out.append(f"{shown(one.file)}: left out, {shown(first.file)} is {owner} and was handed in later")
        else:
            left_out.append(f"{shown(one.file)}: left out, {shown(first.file)} is {owner} too. Keep the right one")
    return [first, *taken], left_out


def _called(start: str, name: str) -> str:
    """Return what a student's notebook may be called."""
    return f"{start}_{name}.ipynb" if start else f"{name}.ipynb"
