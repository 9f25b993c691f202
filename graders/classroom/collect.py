"""Bring in submissions from folders and archives, through nbgrader's own ``zip_collect``.

What comes from students is not trusted: an archive is unpacked within limits, its links and its ways out of the folder
are left out, and nobody hands in for somebody else by a file's name.
"""

import filecmp
import gzip
import operator
import os
import re
import shutil
import stat
import struct
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import IO, NamedTuple

from nbgrader.apps import ZipCollectApp
from nbgrader.plugins import ExtractorPlugin, FileNameCollectorPlugin

from graders.classroom.submission import LEFT_BEHIND, read_time
from graders.notebook.codes import Code
from graders.notebook.files import MAX_BYTES, no_file, resembles
from graders.notebook.problem import printable

# No way out of the folder, and no option; blanks only one by one, inside.
STUDENT = re.compile(r"(?=.{1,100}$)\w[\w.@-]*( [\w.@-]+)*(?<!\.)")
MOODLE = re.compile(r"_\d+_assignsubmission_(file|onlinetext)_?$")  # after a name: other numbers for each set
GIVEN = re.compile(r"~\d+")  # the folder of all that came by one argument
ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")
MAX_FILES = 10_000  # of an archive: a whole class may be in one
MAX_UNPACKED = 1_000_000_000  # bytes of an archive's files together
MAX_PIECE = 10_000_000  # bytes of an archive's own list, or of one header
MAX_NESTED = 2  # archives in each other: a class of students' archives

TIMES = (347_155_200, 4_102_444_800)  # 1981 to 2100: archives that know no time say 1970 or 1980

TOO_MUCH = f"it would unpack to more than {MAX_UNPACKED // 1_000_000:,} MB"

Claim = tuple[str, str, str]  # file, student, notebook


class Member(NamedTuple):
    """One of an archive's files."""

    name: str
    reason: str | None = None  # to leave it out
    size: int = 0  # as told
    content: IO[bytes] | None = None
    when: float | None = None  # as told


class ArchiveError(Exception):
    """Why an archive is left out; the text goes on from its name."""


class _Bounded:
    """A file that refuses to be read or wound on without end: a tar's headers may claim any size."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        """As of a file; tarfile asks for pieces, unless a header is out of all proportion."""
        if not 0 <= size <= MAX_PIECE:
            raise ArchiveError("its headers claim more than they can hold")
        return self.file.read(size)

    def seek(self, place: int, whence: int = 0) -> int:
        """As of a file, up to all that an archive may hold."""
        if whence == 0 and place > MAX_UNPACKED + MAX_FILES * 10_000:
            raise ArchiveError(TOO_MUCH)
        return self.file.seek(place, whence)


def members(archive: Path) -> Iterator[Member]:
    """An archive's files, one by one."""
    if zipfile.is_zipfile(archive):
        _check_directory(archive)
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if info.is_dir():
                    continue
                if kind not in (0, stat.S_IFREG):
                    yield Member(info.filename, "it is a link or no file at all")
                elif info.flag_bits & 1:
                    yield Member(info.filename, "it is encrypted")
                elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    yield Member(info.filename, "it is packed in an unusual way")
                else:
                    with opened.open(info) as content:
                        yield Member(info.filename, None, info.file_size, content, _zip_time(info))
        return
    with archive.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with (
        (gzip.open if packed else open)(archive, "rb") as file,
        tarfile.open(fileobj=_Bounded(file), mode="r:") as opened,
    ):
        for info in opened:
            if info.isreg():
                yield Member(info.name, None, info.size, opened.extractfile(info), info.mtime)
            elif not info.isdir():
                yield Member(info.name, "it is a link or no file at all")


def _zip_time(info: zipfile.ZipInfo) -> float | None:
    """When a zip says that a file was changed: in UTC where it has the field for that, else by this machine's clock."""
    extra = info.extra
    while len(extra) >= 4:
        kind, size = struct.unpack("<HH", extra[:4])
        if kind == 0x5455 and size >= 5 and len(extra) >= 9 and extra[4] & 1:
            return float(struct.unpack("<i", extra[5:9])[0])
        extra = extra[4 + size :]
    with suppress(ValueError, OverflowError, OSError):
        return datetime(*info.date_time).timestamp()
    return None


def _check_directory(archive: Path) -> None:
    """Refuse a zip whose list of files is out of all proportion, before anything reads it into memory."""
    with archive.open("rb") as file:
        file.seek(-min(archive.stat().st_size, 1 << 16), 2)
        tail = file.read()
    at = tail.rfind(b"PK\5\6")
    count, size = struct.unpack("<HI", tail[at + 10 : at + 16]) if 0 <= at <= len(tail) - 16 else (0, 0)
    if count > MAX_FILES or size > MAX_PIECE or tail[max(at - 20, 0) : at].startswith(b"PK\6\7"):
        raise ArchiveError(f"it has more than {MAX_FILES:,} files, or is in the form for that")


def unpack(archive: Path, target: Path, nested: int = 0, places: dict[Path, Path] | None = None) -> list[str]:
    """Unpack an archive, and archives in it, into the new folder ``target``; a line on each file that was left out.

    A file gets the time that the archive has for it, or the archive's own. ``places`` is told which folder each inner
    archive went to: folder, archive.

    Raises:
        ArchiveError: the archive is damaged or over a limit; nothing of it is there.
    """
    told: list[str] = []
    try:
        _unpack(archive, target, told)
    except ArchiveError:
        shutil.rmtree(target, ignore_errors=True)
        raise
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        OSError,
        EOFError,
        ValueError,
        NotImplementedError,
    ) as error:
        shutil.rmtree(target, ignore_errors=True)
        raise ArchiveError(f"it is damaged or no archive at all ({printable(error, 80)})") from None
    for inner in sorted(path for path in target.rglob("*") if path.name.lower().endswith(ARCHIVES)):
        name = inner.relative_to(target).as_posix()
        try:
            if nested + 1 >= MAX_NESTED:
                raise ArchiveError("it is an archive in an archive in an archive")
            folder = _folder_of(inner)
            told += [f"{name}/{line}" for line in unpack(inner, folder, nested + 1, places)]
            if places is not None:
                places[folder] = inner
        except ArchiveError as error:
            told.append(f"{name}: left out, {error}. Ask for another")
        inner.unlink()
    return told


def _folder_of(archive: Path) -> Path:
    """Where an archive's files go: beside it, under its name, or under another that is free."""
    stem = re.sub(r"(?i)(\.tar)?\.\w+$", "", archive.name) or "archive"
    names = (f"{stem}{'~' * number}" for number in range(1000))
    return next(path for path in map(archive.with_name, names) if not path.exists())


def _unpack(archive: Path, target: Path, told: list[str]) -> None:
    target.mkdir(parents=True)
    total = 0
    for number, (name, reason, size, content, when) in enumerate(members(archive), 1):
        if number > MAX_FILES:
            raise ArchiveError(f"it has more than {MAX_FILES:,} files")
        parts = [part for part in re.split(r"[/\\]", name) if part not in ("", ".")]
        if reason is None and (not parts or ".." in parts or name[0] in "/\\" or ":" in parts[0] or "\0" in name):
            reason = "it would go to another folder"
        if reason is None and (len(parts) > 10 or max(map(len, parts)) > 120):
            reason = "its name is too long"
        if reason is None and size > MAX_UNPACKED - total:
            raise ArchiveError(TOO_MUCH)
        if reason is None and size > MAX_BYTES and not name.lower().endswith(ARCHIVES):
            reason = f"it has more than {MAX_BYTES // 1_000_000} MB"
        if reason or content is None:
            told.append(f"{name}: left out, {reason}")
            total += size  # a tar is unpacked to get past it
            continue
        path = target.joinpath(*parts)
        if path.exists():
            told.append(f"{name}: left out, the archive holds it twice")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            shutil.copyfileobj(content, file)  # at most the size that was told: zipfile and tarfile see to it
        if when is None or not TIMES[0] < when < TIMES[1]:
            when = archive.stat().st_mtime
        os.utime(path, (when, when))
        total += size


@dataclass
class Intake:
    """What came in during one run of ``zip_collect``; its plugins share it.

    Args:
        told: a line on each file that was left out.
        given: the folder that each argument was copied to, and the one that it means where it was typed.
        places: the folder that each archive went to, and that archive as if it had been copied like other files.
        claims: what is said to ``zip_collect`` on the files that are taken, None before all of them are there.
        students: those whose files are taken.
    """

    told: list[str] = field(default_factory=list)
    given: dict[str, Path] = field(default_factory=dict)
    places: dict[Path, Path] = field(default_factory=dict)
    claims: dict[Path, dict[str, object]] | None = None
    students: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, app: ZipCollectApp) -> "Intake":
        """The one of this run."""
        return app.__dict__.setdefault("intake", cls())

    def shown(self, path: Path, root: Path) -> str:
        """A file below ``root`` by the name that it had where it came from; in an archive, ``amara.zip/relu.ipynb``."""
        for folder in path.parents:
            if folder in self.places:
                return f"{self.shown(self.places[folder], root)}/{path.relative_to(folder).as_posix()}"
        name = path.relative_to(root)
        if name.parts[0] in self.given:
            return str(self.given[name.parts[0]].joinpath(*name.parts[1:]))
        return str(self.given.get("", Path()) / name)


class Extractor(ExtractorPlugin):
    """nbgrader's plugin for archives, with limits: nbgrader's own unpacks all, and stops at the first hostile name."""

    def extract(self, archive_path: str, extracted_path: str) -> None:
        """Unpack every archive below one folder into another and copy all other files there."""
        given, target = Path(archive_path), Path(extracted_path)
        intake = Intake.of(self.parent)
        files = [path for path in sorted(given.rglob("*")) if not path.is_dir()]
        archives = [path for path in files if path.name.lower().endswith(ARCHIVES)]
        for path in files:
            if path not in archives:
                _copy(path, target / path.relative_to(given))
        for path in archives:
            copied = target / path.relative_to(given)
            copied.parent.mkdir(parents=True, exist_ok=True)
            folder, name = _folder_of(copied), intake.shown(copied, target)
            try:
                intake.told += [f"{name}/{line}" for line in unpack(path, folder, 0, intake.places)]
                intake.places[folder] = copied
            except ArchiveError as error:
                intake.told.append(f"{name}: left out, {error}. Ask for another")


def _copy(source: Path, target: Path) -> None:
    """Copy a file's bytes and its time, nothing else."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    info = source.stat()
    os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))


class Collector(FileNameCollectorPlugin):
    """nbgrader's ``zip_collect`` plugin for this course: the student is the folder, or the start of the file's name.

    ``ada/relu.ipynb``, ``ada.zip`` holding ``relu.ipynb``, ``ada/01_relu/relu.ipynb`` and ``ada_relu.ipynb`` are all of
    them ada's. Folders that the course itself has (``exercises``, ``01_relu``) say nothing about the student.
    With ``c.FileNameCollectorPlugin.named_regexp`` set nbgrader's own rule is followed in place of this one.
    """

    def collect(self, submitted_file: str) -> dict[str, object] | None:
        """The student, the notebook and the time of one extracted file, None for a file to leave out."""
        path, intake = Path(submitted_file), Intake.of(self.parent)
        if self.named_regexp:
            found = super().collect(submitted_file)
            if found and not found.get("timestamp"):
                found["timestamp"] = Time.of(path)
        else:
            if intake.claims is None:
                intake.claims = self._claims(intake)
            found = intake.claims.get(path)
        if found:
            intake.students.add(found["student_id"])
        return found

    def _claims(self, intake: Intake) -> dict[Path, dict[str, object]]:
        """What to say of each file that is taken."""
        app: ZipCollectApp = self.parent
        root = Path(app._format_collect_path(app.extracted_directory))
        assignment = app.coursedir.assignment_id
        released = Path(app.coursedir.format_path(app.coursedir.release_directory, ".", assignment))
        submitted = Path(app.coursedir.root, app.coursedir.submitted_directory)
        claims, told = whose(
            sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()),
            assignment,
            sorted(notebook.stem for notebook in released.glob("*.ipynb")),
            {path.name for path in submitted.glob("*")},
            shown=lambda file: intake.shown(root / file, root),
            same=lambda one, other: filecmp.cmp(root / one, root / other, shallow=False),
        )
        intake.told += told
        students: dict[Path, set[str]] = {}  # by folder
        taken: dict[tuple[str, str], list[Path]] = {}
        for file, student, name in claims:
            students.setdefault((root / file).parent, set()).add(student)
            taken.setdefault((student, name), []).append(root / file)
        stamps: dict[Path, Time] = {}
        for folder in students:
            stamp = folder / "timestamp.txt"
            if len(students[folder]) == 1 and stamp.exists() and stamp.stat().st_size:  # else it is nobody's
                try:
                    stamps[folder] = Time.read(stamp)
                except ValueError as error:
                    what = f"it {error}; the notebook's own time is taken. Fix it and collect again if that is wrong"
                    intake.told.append(f"{intake.shown(stamp, root)}: left out, {what}")
        found = {}
        for (student, name), files in taken.items():
            written = [stamps[path.parent] for path in files if path.parent in stamps]
            when = min(written or map(Time.of, files))  # the same file may have come twice
            found[files[0]] = {"student_id": student, "file_id": f"{name}.ipynb", "timestamp": when}
        return found


class Time(datetime):
    """When something was handed in, in UTC. nbgrader writes it by ``isoformat``, and reads it from that."""

    def isoformat(self, *_: object, **__: object) -> str:
        """The form of the course's ``timestamp.txt``."""
        return self.strftime("%Y-%m-%d %H:%M:%S UTC")

    @classmethod
    def of(cls, path: Path) -> "Time":
        """When a file was changed."""
        return cls.fromtimestamp(int(min(max(path.stat().st_mtime, 0), TIMES[1])), UTC).replace(tzinfo=None)

    @classmethod
    def read(cls, path: Path) -> "Time":
        """The time in a ``timestamp.txt``; ValueError says why there is none."""
        with suppress(ValueError):
            if when := read_time(path):
                return cls(*when.timetuple()[:6])
        raise ValueError("is not the time at which it was handed in")


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


def stage(paths: Iterable[Path], archive: Path, intake: Intake) -> None:
    """Copy folders, notebooks and archives to where ``zip_collect`` looks, each path after the first to its own folder.

    A file that is refused gets its line in ``intake``.
    """
    archive.mkdir(parents=True)
    for given in paths:
        place = ""
        if intake.given:
            place = next(name for name in map("~{}".format, count(1)) if not (archive / name).exists())
        intake.given[place] = given if given.is_dir() else given.parent
        for file in sorted(given.rglob("*")) if given.is_dir() else [given]:
            packed = file.name.lower().endswith(ARCHIVES)
            most = MAX_UNPACKED if packed else MAX_BYTES
            reason = no_file(file)
            if reason and reason.code is Code.FOLDER:
                continue
            if reason and reason.code is not Code.HARD_LINK:  # a copy of it is a file of its own
                intake.told.append(f"{file}: left out, it {reason}. Put the file itself there")
            elif (size := file.stat().st_size) > most:
                remedy = "Unpack it and collect the folder" if packed else "Ask for the notebook without its outputs"
                what = f"it has {size // 1_000_000:,} MB, more than {most // 1_000_000:,}"
                intake.told.append(f"{file}: left out, {what}. {remedy}")
            else:
                try:
                    _copy(file, archive / place / file.relative_to(intake.given[place]))
                except OSError as error:
                    intake.told.append(f"{file}: left out, it cannot be read ({error.strerror}). Check its permissions")


def collect(root: Path, assignment: str, paths: Iterable[Path]) -> tuple[list[str], list[str]]:
    """Collect ``paths`` into ``submitted/``; the students that came in, and a line on each file that was left out."""
    app = ZipCollectApp()
    app.initialize([assignment, "--force", "--log-level=CRITICAL", f"--CourseDirectory.root={root}"])
    downloaded = root / app.downloaded_directory
    downloaded.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="collect-", dir=downloaded) as folder:  # what lies there may be the path
        app.downloaded_directory = str(Path(app.downloaded_directory, Path(folder).name))
        intake = Intake.of(app)
        stage(paths, Path(app._format_collect_path(app.archive_directory)), intake)
        app.start()
    with suppress(OSError):  # it is not empty
        downloaded.rmdir()
    return sorted(intake.students), [printable(line, 1000) for line in intake.told]
