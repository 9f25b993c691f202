"""Bring in submissions from folders and archives, through nbgrader's own ``zip_collect``.

What comes from students is not trusted: an archive is unpacked within limits, its links and its ways out of the folder
are left out, and nobody hands in for somebody else by a file's name.
"""

import gzip
import re
import shutil
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from nbgrader.apps import ZipCollectApp
from nbgrader.plugins import ExtractorPlugin, FileNameCollectorPlugin

from .doctor import MAX_BYTES, no_file, plain
from .submission import LEFT_BEHIND

STUDENT = re.compile(r"\w[\w.@-]{0,99}(?<!\.)")  # no way out of the folder, and no option
ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")
MAX_FILES = 10_000  # of an archive: a whole class may be in one
MAX_UNPACKED = 1_000_000_000  # bytes of an archive's files together
MAX_PIECE = 10_000_000  # bytes of an archive's own list, or of one header
MAX_NESTED = 2  # archives in each other: a class of students' archives

TOO_MUCH = f"it would unpack to more than {MAX_UNPACKED // 1_000_000:,} MB"

Claim = tuple[str, str, str]  # file, student, notebook


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


def members(archive: Path) -> Iterator[tuple[str, str | None, int, IO[bytes] | None]]:
    """Name, reason to leave it out, size as told and content of each of an archive's files."""
    if zipfile.is_zipfile(archive):
        _check_directory(archive)
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if info.is_dir():
                    continue
                if kind not in (0, stat.S_IFREG):
                    yield info.filename, "it is a link or no file at all", 0, None
                elif info.flag_bits & 1:
                    yield info.filename, "it is encrypted", 0, None
                elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    yield info.filename, "it is packed in an unusual way", 0, None
                else:
                    with opened.open(info) as content:
                        yield info.filename, None, info.file_size, content
        return
    with archive.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with (
        (gzip.open if packed else open)(archive, "rb") as file,
        tarfile.open(fileobj=_Bounded(file), mode="r:") as opened,
    ):
        for info in opened:
            if info.isreg():
                yield info.name, None, info.size, opened.extractfile(info)
            elif not info.isdir():
                yield info.name, "it is a link or no file at all", 0, None


def _check_directory(archive: Path) -> None:
    """Refuse a zip whose list of files is out of all proportion, before anything reads it into memory."""
    with archive.open("rb") as file:
        file.seek(-min(archive.stat().st_size, 1 << 16), 2)
        tail = file.read()
    at = tail.rfind(b"PK\5\6")
    count, size = struct.unpack("<HI", tail[at + 10 : at + 16]) if 0 <= at <= len(tail) - 16 else (0, 0)
    if count > MAX_FILES or size > MAX_PIECE or tail[max(at - 20, 0) : at].startswith(b"PK\6\7"):
        raise ArchiveError(f"it has more than {MAX_FILES:,} files, or is in the form for that")


def unpack(archive: Path, target: Path, nested: int = 0) -> list[str]:
    """Unpack an archive, and archives in it, into the new folder ``target``; a line on each file that was left out.

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
        raise ArchiveError(f"it is damaged or no archive at all ({plain(error, 80)})") from None
    for inner in sorted(path for path in target.rglob("*") if path.name.lower().endswith(ARCHIVES)):
        name = inner.relative_to(target).as_posix()
        try:
            if nested + 1 >= MAX_NESTED:
                raise ArchiveError("it is an archive in an archive in an archive")
            told += [f"{name}/{line}" for line in unpack(inner, _folder_of(inner), nested + 1)]
        except ArchiveError as error:
            told.append(f"{name}: left out, {error}")
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
    for count, (name, reason, size, content) in enumerate(members(archive), 1):
        if count > MAX_FILES:
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
        total += size


class Extractor(ExtractorPlugin):
    """nbgrader's plugin for archives, with limits: nbgrader's own unpacks all, and stops at the first hostile name."""

    def extract(self, archive_path: str, extracted_path: str) -> None:
        """Unpack every archive below one folder into another and copy all other files there."""
        given, target = Path(archive_path), Path(extracted_path)
        told = self.parent.__dict__.setdefault("told", [])
        for path in sorted(given.rglob("*")):
            name = path.relative_to(given)
            if path.is_dir():
                continue
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                if path.name.lower().endswith(ARCHIVES):
                    told += [f"{name}/{line}" for line in unpack(path, _folder_of(target / name))]
                elif (target / name).exists():
                    told.append(f"{name}: left out, an archive has brought another of this name")
                else:
                    shutil.copyfile(path, target / name)
            except ArchiveError as error:
                told.append(f"{name}: left out, {error}")


class Collector(FileNameCollectorPlugin):
    """nbgrader's ``zip_collect`` plugin for this course: the student is the folder, or the start of the file's name.

    ``ada/relu.ipynb``, ``ada.zip`` holding ``relu.ipynb``, ``ada/01_relu/relu.ipynb`` and ``ada_relu.ipynb`` are all of
    them ada's. Folders that the course itself has (``exercises``, ``01_relu``) say nothing about the student.
    With ``c.FileNameCollectorPlugin.named_regexp`` set nbgrader's own rule is followed in place of this one.
    """

    def collect(self, submitted_file: str) -> dict[str, str] | None:
        """The student and the notebook of one extracted file, None for a file to leave out."""
        if self.named_regexp:
            return super().collect(submitted_file)
        app: ZipCollectApp = self.parent
        root = Path(app._format_collect_path(app.extracted_directory))
        if "claims" not in app.__dict__:
            assignment = app.coursedir.assignment_id
            released = Path(app.coursedir.format_path(app.coursedir.release_directory, ".", assignment))
            submitted = Path(app.coursedir.root, app.coursedir.submitted_directory)
            files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
            names = sorted(notebook.stem for notebook in released.glob("*.ipynb"))
            known = {path.name for path in submitted.glob("*")}
            claims, told = whose(files, assignment, names, known)
            app.__dict__.setdefault("told", []).extend(told)
            app.__dict__["claims"] = {file: (student, name) for file, student, name in claims}
        claim = app.__dict__["claims"].get(Path(submitted_file).relative_to(root).as_posix())
        return claim and {"student_id": claim[0], "file_id": f"{claim[1]}.ipynb"}


def whose(files: Iterable[str], assignment: str, names: list[str], known: set[str]) -> tuple[list[Claim], list[str]]:
    """Whose notebook each file is.

    A folder, or an archive, says it before a file's name does: in ada's folder, ``ben_relu.ipynb`` is not ben's. Only
    a folder that is no student's, such as a download of a whole class, leaves it to the names in it. Where two claim to
    be the same student's, the one in fewer folders is taken.

    Args:
        files: paths of what came in, relative and with "/".
        assignment: the set.
        names: its notebooks.
        known: students who handed in before.

    Returns:
        What is taken, and a line on each file that is left out.
    """
    found: list[tuple[str, str, str, str]] = []  # file, its folder, the start of its name, notebook
    told: list[str] = []
    ours = {assignment, "exercises", "custom-gradients"}
    for file in files:
        *folders, last = file.split("/")
        if LEFT_BEHIND & {*folders, last} or "__MACOSX" in folders:
            continue
        stem = unicodedata.normalize("NFC", last).removesuffix(".ipynb")
        name = next((n for n in names if stem == n or re.search(rf"[_-]{re.escape(n)}$", stem)), None)
        if not last.endswith(".ipynb") or name is None:
            told.append(f"{file}: left out, the assignment has only {', '.join(names)}.ipynb")
            continue
        others = [unicodedata.normalize("NFC", folder).rstrip("~") for folder in folders if folder not in ours]
        owner = next((folder for folder in others if folder in known), others[-1] if others else "")
        found.append((file, owner, stem[: -len(name) - 1], name))
    students = known | {folder for _, folder, start, _ in found if not start}
    seen: dict[tuple[str, str], str] = {}
    claims: list[Claim] = []
    for file, folder, start, name in sorted(found, key=lambda one: (one[0].count("/"), bool(one[2]), one[0])):
        student = start or folder
        if start and folder in students and start != folder:
            told.append(f"{file}: left out, it is in {folder}'s folder under another's name. Move it if it is right")
        elif not STUDENT.fullmatch(student):
            told.append(f"{file}: left out, no student's name found ({student!r}). Put it into a folder NAME/")
        elif (student, name) in seen:
            told.append(f"{file}: left out, {seen[student, name]} is {student}'s {name}.ipynb too. Keep one")
        else:
            seen[student, name] = file
            claims.append((file, student, name))
    return claims, told


def stage(paths: Iterable[Path], archive: Path) -> list[str]:
    """Copy folders, notebooks and archives to where ``zip_collect`` looks; a line on each file that was refused."""
    told: list[str] = []
    shutil.rmtree(archive.parent, ignore_errors=True)
    archive.mkdir(parents=True)
    for given in paths:
        files = sorted(given.rglob("*")) if given.is_dir() else [given]
        for file in files:
            name = file.relative_to(given) if given.is_dir() else Path(file.name)
            reason = no_file(file)
            size = 0 if reason else file.stat().st_size
            if reason == "is a folder":
                continue
            if reason and not reason.startswith("is a hard link"):  # a copy of it is a file of its own
                told.append(f"{name}: left out, it {reason}")
            elif size > (MAX_UNPACKED if file.name.lower().endswith(ARCHIVES) else MAX_BYTES):
                told.append(f"{name}: left out, it has {size // 1_000_000:,} MB")
            elif (archive / name).exists():
                told.append(f"{name}: left out, there is another of this name (of {given} this time)")
            else:
                (archive / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, archive / name)
    return told


def collect(root: Path, assignment: str, paths: Iterable[Path]) -> tuple[list[str], list[str]]:
    """Collect ``paths`` into ``submitted/``; the students that came in, and a line on each file that was left out."""
    app = ZipCollectApp()
    app.initialize([assignment, "--force", "--log-level=CRITICAL", f"--CourseDirectory.root={root}"])
    told = stage(paths, Path(app._format_collect_path(app.archive_directory)))
    app.start()
    students = {student for student, _ in app.__dict__.get("claims", {}).values()}
    return sorted(students), [plain(line) for line in told + app.__dict__.get("told", [])]
