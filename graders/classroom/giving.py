"""Feedback for a set: pages made by several processes, only those that are out of date; and an archive to hand back."""

import hashlib
import json
import logging
import os
import selectors
import signal
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.converters import GenerateFeedback
from nbgrader.converters.base import NbGraderException

import graders.classroom
from graders.classroom.course import Course
from graders.classroom.errors import CourseError
from graders.classroom.platforms import PLATFORMS, signed
from graders.classroom.report import course_site
from graders.classroom.roster import Roster
from graders.notebook.problem import printable

CODE = ("feedback.py", "formulas.py", "pages.py", "report.py")  # what pages are made by
MOST = 100_000  # names in an archive of a platform's


class _Share(GenerateFeedback):
    """nbgrader's, of some students; it says when a student's pages are written."""

    assignments: dict[str, list[str]]
    chosen: frozenset[str] = frozenset()
    done: Callable[[str], None] = staticmethod(lambda student: None)

    def init_notebooks(self) -> None:
        """Find the notebooks of those students alone."""
        super().init_notebooks()
        for path in [path for path in self.assignments if Path(path).parent.name not in self.chosen]:
            del self.assignments[path]

    def set_permissions(self, assignment_id: str, student_id: str) -> None:
        """The last step for a student."""
        super().set_permissions(assignment_id, student_id)
        self.done(student_id)


@dataclass(frozen=True)
class Given:
    """What became of a set's pages.

    Args:
        made, kept: the students whose pages are new, and whose were as they are now.
        lines: a line on each page that could not be made.
    """

    made: tuple[str, ...]
    kept: tuple[str, ...]
    lines: tuple[str, ...]


def give(
    course: Course,
    gradebook: Gradebook,
    assignment: str,
    students: Sequence[str],
    workers: int,
    force: bool,
    say: Callable[[str], None],
) -> Given:
    """Write the feedback pages of a set.

    Args:
        course: the course.
        gradebook: its, open; closed where the work begins.
        assignment: the set.
        students: whose; those without a graded notebook are left out.
        workers: processes that make pages at a time.
        force: make those too that would not change.
        say: gets a line on how far it is.
    """
    feedback = Path(course.dirs.format_path(course.dirs.feedback_directory, ".", ".")).resolve()
    notes = feedback / noted(assignment)
    known = _read(notes)
    pages = {student: _pages(course, assignment, student) for student in students}
    now = _digests(course, gradebook, assignment, [student for student in students if pages[student]])
    gradebook.close()
    stale = [
        student
        for student, digest in now.items()
        if force or known.get(student) != digest or not all(page.exists() for page in pages[student])
    ]
    made: list[str] = []
    lines: list[str] = []
    failed: set[str] = set()
    feedback.mkdir(parents=True, exist_ok=True)
    try:
        for student, line in _parallel(course, assignment, stale, max(1, min(workers, len(stale)))):
            if line:
                lines.append(line)
                failed.add(student)
            if line or student in failed:
                continue
            made.append(student)
            known[student] = now[student]
            say(f"{assignment}: {len(made)} of {len(stale)} pages, {student}")
    finally:  # what was made is known, whatever ends this
        for student in {*stale} - {*made}:
            known.pop(student, None)
        _write(notes, known)
    silent = sorted({*stale} - {*made} - failed)
    lines += [
        f"{printable(student, 60)}: no page could be made: see `nbgrader generate_feedback`" for student in silent
    ]
    return Given(tuple(sorted(made)), tuple(sorted({*now} - {*stale})), tuple(lines))


def noted(assignment: str) -> str:
    """Return the name of the file, beside the students' folders, that says what a set's pages were made of."""
    return f".{assignment}.json"


def _pages(course: Course, assignment: str, student: str) -> list[Path]:
    """Return the pages of a student's graded notebooks, whether they are there or not."""
    folder = Path(course.dirs.format_path(course.dirs.feedback_directory, student, assignment))
    graded = course.autograded(course.submission(student, assignment))
    return [folder / f"{path.stem}.html" for path in sorted(graded.glob("*.ipynb"))]


def _digests(course: Course, gradebook: Gradebook, assignment: str, students: Iterable[str]) -> dict[str, str]:
    """Return what the pages of each student depend on, as a hash."""
    code = hashlib.sha256(course_site().encode())
    for name in CODE:
        code.update(Path(str(graders.classroom.__path__[0]), name).read_bytes())
    code.update((course.root / "nbgrader_config.py").read_bytes())
    rows = {}
    for row in gradebook.assignment_submissions(assignment):
        notebooks = sorted(row.notebooks, key=lambda notebook: notebook.name)
        rows[row.student_id] = [
            (
                notebook.name,
                notebook.late_submission_penalty,
                sorted((g.name, g.auto_score, g.manual_score, g.extra_credit, g.max_score) for g in notebook.grades),
                sorted((c.name, c.auto_comment, c.manual_comment) for c in notebook.comments),
            )
            for notebook in notebooks
        ]
    found = {}
    for student in students:
        if student not in rows:
            continue
        digest = code.copy()
        digest.update(repr(rows[student]).encode())
        folder = course.autograded(course.submission(student, assignment))
        for path in sorted(folder.glob("*.ipynb")):
            digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
        found[student] = digest.hexdigest()
    return found


def _parallel(course: Course, assignment: str, students: Sequence[str], workers: int) -> Iterator[tuple[str, str]]:
    """Make pages in several processes; yield each student's name as they are written, or a line on what went wrong."""
    children: dict[int, int] = {}
    waiting = selectors.DefaultSelector()
    parts: dict[int, bytes] = {}
    try:
        for worker in range(workers if students else 0):
            read, write = os.pipe()
            pid = os.fork()
            if not pid:
                os.close(read)
                _child(course, assignment, students[worker::workers], write)
            os.close(write)
            with suppress(OSError):  # the child does so itself, now or before
                os.setpgid(pid, pid)
            children[read], parts[read] = pid, b""
            waiting.register(read, selectors.EVENT_READ)
        while waiting.get_map():
            for key, _ in waiting.select():
                read = key.fd
                data = os.read(read, 1 << 16)
                *whole, parts[read] = (parts[read] + data).split(b"\n")
                for line in whole:
                    student, problem = json.loads(line)
                    yield student, problem
                if not data:
                    waiting.unregister(read)
                    os.close(read)
                    os.waitpid(children.pop(read), 0)
    finally:
        for read, pid in children.items():
            os.close(read)
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)  # it makes each page in a process of its own, and formulas by another
                os.waitpid(pid, 0)


class _Told(logging.Handler):
    """Passes on what the exporter says of a page."""

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        super().__init__(logging.ERROR)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "page of feedback" in text:
            self._tell(text.partition("/")[0], text)


def _child(course: Course, assignment: str, students: Sequence[str], write: int) -> None:
    """In a process of its own: make the pages of some students; never return."""
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who waits, who kills this

        def tell(student: str, problem: str) -> None:
            os.write(write, json.dumps([student, problem]).encode() + b"\n")

        course.app.log.handlers = [_Told(tell)]
        converter = _Share(coursedir=course.directories(assignment_id=assignment, student_id="*"), parent=course.app)
        converter.chosen, converter.done = frozenset(students), lambda student: tell(student, "")
        converter.force = True
        with suppress(NbGraderException):  # of pages that failed: who waits counts those that were written
            converter.start()
    finally:
        os._exit(0)


def _read(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _write(path: Path, known: Mapping[str, str]) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(dict(sorted(known.items())), indent=1), encoding="utf-8")
    part.replace(path)


# --- an archive to hand back ------------------------------------------------------------------------------------------


def archive(
    course: Course, assignment: str, students: Iterable[str], target: Path, download: Path | None, roster: Roster
) -> tuple[int, list[str]]:
    """Write the pages of a set as one archive, one file a notebook.

    Without a download each student has a folder. With the archive, or the folder, in which the learning platform gave
    out the hand-ins, the pages bear its names, by which the platform knows whose each is when the archive is uploaded:
    the folders of Moodle and Brightspace, the beginnings of Canvas's file names.

    Args:
        course: the course.
        assignment: the set.
        students: whose pages.
        target: the archive to write.
        download: what the platform gave out.
        roster: who the students are.

    Returns:
        How many pages are in it, and a line on each that is not.

    Raises:
        CourseError: the download cannot be read.
    """
    places = {student: f"{student}/" for student in students}
    lines = []
    if download is not None:
        names = course.reader.ask(names_in, download)
        found: dict[str, set[str]] = {}
        for name in names:
            for student in _meant(name, assignment, roster):
                found.setdefault(student, set()).add(_begin(name, assignment))
        for student in sorted(found.keys() - places.keys()):
            lines.append(f"{printable(student, 60)} is in {download.name} and has no page: nothing of theirs is graded")
        for student in sorted(places):
            if len(found.get(student, ())) == 1:
                places[student] = found[student].pop()
            else:
                reason = "is not in" if student not in found else "has several hand-ins in"
                lines.append(f"{printable(student, 60)} {reason} {download.name}: hand this page back yourself")
                del places[student]
    part, count = target.with_name(f".{target.name}.part"), 0
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as file:
        for student, begin in sorted(places.items()):
            for page in _pages(course, assignment, student):
                if page.is_file():
                    info = zipfile.ZipInfo(f"{begin}{page.name}", (1980, 1, 1, 0, 0, 0))  # the same twice
                    info.compress_type = zipfile.ZIP_DEFLATED
                    info.external_attr = 0o644 << 16
                    file.writestr(info, page.read_bytes())
                    count += 1
    part.replace(target)
    return count, lines


def names_in(download: Path) -> list[str]:
    """Return the outermost names of an archive or a folder; a folder's ends with ``/``.

    Raises:
        CourseError: it is neither, or has too many.
    """
    try:
        if download.is_dir():
            return sorted(f"{path.name}{'/' * path.is_dir()}" for path in download.iterdir())
        with zipfile.ZipFile(download) as file:
            infos = file.infolist()
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise CourseError(f"{download} cannot be read ({error}): name the platform's .zip, or a folder of it") from None
    if len(infos) > MOST:
        raise CourseError(f"{download} has {len(infos):,} names: that is more than a class hands in")
    return sorted({f"{first}{slash}" for info in infos for first, slash, _ in [info.filename.partition("/")] if first})


def _meant(name: str, assignment: str, roster: Roster) -> set[str]:
    """Return the students that an outermost name may mean: one, or none."""
    for key in PLATFORMS:
        one = signed(name.rstrip("/").removesuffix(".zip"), assignment, key)
        if one is not None and len(found := roster.find(one.name, one.person)) == 1:
            return set(found)
    return set()


def _begin(name: str, assignment: str) -> str:
    """Return what stands before the name of a page: the platform's folder, or its part of the file's name."""
    if name.endswith("/"):
        return name
    for key in PLATFORMS:
        one = signed(name, assignment, key)
        if one is not None and one.rest:
            return name.removesuffix(one.rest)
    return f"{Path(name).stem}/"
