"""Unpack archives that students have made: within limits, without links, and nowhere but into one folder."""

import gzip
import os
import re
import shutil
import stat
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import IO, NamedTuple, cast

from graders.classroom import bounded
from graders.notebook.files import MAX_BYTES
from graders.notebook.problem import printable

ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")
MAX_FILES = 50_000  # files and folders of all that one `collect` brings in: a class, with what students add
MAX_UNPACKED = 2_000_000_000  # bytes of them
MAX_ONE_FILES = 2_000  # of one student's archive, with the archives in it
MAX_ONE = 100_000_000  # bytes of them
MAX_PIECE = 10_000_000  # bytes of an archive's own list, or of one header
MAX_NESTED = 2  # archives in each other: a class of students' archives
MAX_LINES = 20  # on what is left out of one archive

SECONDS, WALL = 60, 180  # of a processor, and of the clock, to unpack what was given: a class takes about ten
MEMORY = 512_000_000  # bytes

TIMES = (347_155_200, 4_102_444_800)  # 1981 to 2100: archives that know no time say 1970 or 1980


class Member(NamedTuple):
    """One of an archive's files."""

    name: str
    reason: str | None = None  # to leave it out
    size: int = 0  # as the archive says
    content: IO[bytes] | None = None
    when: float | None = None  # as the archive says


class ArchiveError(Exception):
    """An archive is left out; the text says why, going on from its name."""


class Budget:
    """How much may still be unpacked: bytes, and files and folders. A part of one takes from the whole as well.

    Args:
        size: bytes.
        files: files and folders.
        whole: what this is a part of.
    """

    def __init__(self, size: int, files: int, whole: "Budget | None" = None) -> None:
        self.size, self.files, self.whole = size, files, whole
        self.taken = [0, 0]

    def part(self) -> "Budget":
        """Return what one student's archive may take of this."""
        return Budget(min(MAX_ONE, self.left[0]), min(MAX_ONE_FILES, self.left[1]), self)

    @property
    def left(self) -> tuple[int, int]:
        """Bytes, and files and folders."""
        return self.size - self.taken[0], self.files - self.taken[1]

    def take(self, size: int, files: int = 1) -> None:
        """Take so much; ArchiveError where it is not left."""
        if size > self.left[0]:
            raise ArchiveError(self.too_much)
        if files > self.left[1]:
            raise ArchiveError(self.too_many)
        self.count(size, files)

    def count(self, size: int, files: int) -> None:
        """Take so much that is known to be left, or give it back."""
        self.taken[0] += size
        self.taken[1] += files
        if self.whole:
            self.whole.count(size, files)

    @property
    def too_much(self) -> str:
        """Why an archive is left out that has more bytes."""
        return f"it would unpack to more than {self.size // 1_000_000:,} MB{self._all}"

    @property
    def too_many(self) -> str:
        """Why an archive is left out that has more files."""
        return f"it has more than {self.files:,} files{self._all}"

    @property
    def _all(self) -> str:
        spent = self.whole and any(self.whole.taken) and self.size < MAX_ONE
        return ", which is what all that was collected before it leaves" if spent else ""


class _Bounded:
    """A file that refuses to be read or wound on without end: a tar's headers may claim any size."""

    def __init__(self, file: IO[bytes], budget: Budget) -> None:
        self.file = file
        self.tell = file.tell
        self.budget = budget

    def read(self, size: int = -1) -> bytes:
        """Read as from a file; tarfile asks for pieces, unless a header is out of all proportion."""
        if not 0 <= size <= MAX_PIECE:
            raise ArchiveError("its headers claim more than they can hold")
        return self.file.read(size)

    def seek(self, place: int, whence: int = 0) -> int:
        """Seek as in a file, up to all that an archive may hold."""
        if whence == 0 and place > self.budget.size + self.budget.files * 10_000:
            raise ArchiveError(self.budget.too_much)
        return self.file.seek(place, whence)


def members(archive: Path, budget: Budget) -> Iterator[Member]:
    """Yield an archive's files, one by one; they and the folders between them are taken from the budget."""
    if zipfile.is_zipfile(archive):
        _check_directory(archive, budget)
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                budget.take(0)
                kind = stat.S_IFMT(info.external_attr >> 16)
                if info.is_dir():
                    continue
                if kind not in (0, stat.S_IFREG):
                    yield Member(info.filename, "it is a link or another special file")
                elif info.flag_bits & 1:
                    yield Member(info.filename, "it is encrypted")
                elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    yield Member(info.filename, "it is compressed in an unsupported way")
                else:
                    with opened.open(info) as content:
                        yield Member(info.filename, None, info.file_size, content, _zip_time(info))
        return
    with archive.open("rb") as start:
        packed = start.read(2) == b"\x1f\x8b"
    with (
        cast(IO[bytes], gzip.open(archive, "rb") if packed else archive.open("rb")) as file,
        tarfile.open(fileobj=cast(IO[bytes], _Bounded(file, budget)), mode="r:") as tar,
    ):
        while member := tar.next():
            budget.take(0)
            tar.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
            if member.isreg():
                yield Member(member.name, None, member.size, tar.extractfile(member), member.mtime)
            elif not member.isdir():
                yield Member(member.name, "it is a link or another special file")


def _zip_time(info: zipfile.ZipInfo) -> float | None:
    """Return when a zip says that a file was changed: by its field in UTC, or else by this machine's clock."""
    extra = info.extra
    while len(extra) >= 4:
        kind, size = struct.unpack("<HH", extra[:4])
        if kind == 0x5455 and size >= 5 and len(extra) >= 9 and extra[4] & 1:
            return float(struct.unpack("<i", extra[5:9])[0])
        extra = extra[4 + size :]
    with suppress(ValueError, OverflowError, OSError):
        return datetime(*info.date_time).timestamp()
    return None


def _check_directory(archive: Path, budget: Budget) -> None:
    """Refuse a zip whose list of files is out of all proportion, before anything reads it into memory."""
    with archive.open("rb") as file:
        end = zipfile._EndRecData(file)  # type: ignore[attr-defined]  # where zipfile itself will look
    if not end:
        raise ArchiveError("it is damaged")
    count, size = end[4], end[5]
    if count > budget.left[1] or size > min(MAX_PIECE, 10_000 + 1_000 * budget.left[1]):
        raise ArchiveError(budget.too_many)


@dataclass
class Unpacked:
    """What came of an archive.

    Args:
        left_out: a line on each file that was left out.
        places: the folder and the archive of each archive that was in it, relative to its own folder.
    """

    left_out: list[str] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)

    def add(self, archive: str, folder: str, inner: "Unpacked") -> None:
        """Add what came of an archive in this one, which went to ``folder``."""
        self.left_out += [f"{archive}/{line}" for line in inner.left_out]
        self.places[folder] = archive
        self.places |= {f"{folder}/{place}": f"{folder}/{name}" for place, name in inner.places.items()}


def unpack(
    archive: Path, target: Path, budget: Budget | None = None, whole_class: bool = False, nested: int = 1
) -> Unpacked:
    """Unpack an archive, and archives in it, into the new folder ``target``: each student's in a process of its own.

    A file gets the time that the archive has for it, or the archive's own.

    Args:
        archive: a zip, or a tar that may be compressed by gzip.
        target: the folder.
        budget: what is left for it and all that comes after it.
        whole_class: whether it is the download of a class; else it is one student's.
        nested: how many archives a file in it is in.

    Raises:
        ArchiveError: the archive is damaged or over a limit; nothing of it is there.
    """
    budget = budget or Budget(MAX_UNPACKED, MAX_FILES)
    part = Budget(*budget.left, budget) if whole_class else budget.part()
    try:
        if hasattr(os, "fork"):
            refusal, left_out, places, size, files = bounded.call(
                _unpack_all,
                archive,
                target,
                part,
                nested,
                whole_class,
                cpu=SECONDS,
                memory=MEMORY,
                size=MAX_ONE,
                wall=WALL,
            )
            part.count(size, files)
        else:
            refusal, left_out, places, *_ = _unpack_all(archive, target, part, nested, whole_class)
    except bounded.BoundedError as error:
        refusal = f"it {printable(error, 120)}"
    if refusal:
        _drop(target, part)
        raise ArchiveError(refusal)
    told = Unpacked(left_out, places)
    if whole_class:
        for inner in _archives(target):
            name, folder = inner.relative_to(target).as_posix(), folder_of(inner)
            try:
                one = unpack(inner, folder, part, nested=nested + 1)
                told.add(name, folder.relative_to(target).as_posix(), one)
            except ArchiveError as error:
                told.left_out.append(f"{name}: left out, {error}. Ask for another")
            inner.unlink()
    return told


def _drop(target: Path, budget: Budget) -> None:
    """Remove what an archive that is left out has unpacked, and give back what it took."""
    shutil.rmtree(target, ignore_errors=True)
    budget.count(*(-taken for taken in budget.taken))


def _archives(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.name.lower().endswith(ARCHIVES) and path.is_file())


Reply = tuple[str, list[str], dict[str, str], int, int]  # why it is refused or "", left out, places, bytes, files


def _unpack_all(archive: Path, target: Path, budget: Budget, nested: int, whole_class: bool) -> Reply:
    """Unpack as `unpack` does; why an archive is refused is returned, since it crosses a pipe."""
    try:
        told = _unpack_deep(archive, target, budget, nested, whole_class)
    except ArchiveError as error:
        return str(error), [], {}, 0, 0
    size, files = budget.taken
    if (more := len(told.left_out) - MAX_LINES) > 1:
        told.left_out[MAX_LINES:] = [f"...: left out, {more:,} more files"]
    return "", told.left_out, told.places, size, files


def _unpack_deep(archive: Path, target: Path, budget: Budget, nested: int, flat: bool = False) -> Unpacked:
    """Unpack one student's archive with those in it; ``flat`` leaves these as they are."""
    told = Unpacked()
    try:
        _unpack(archive, target, budget, told.left_out)
    except (ArchiveError, MemoryError):
        raise
    except Exception as error:  # whatever a stranger's file provokes: only this archive is left out
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ArchiveError(f"it is damaged or not an archive ({printable(reason, 80)})") from None
    for inner in [] if flat else _archives(target):
        name, folder = inner.relative_to(target).as_posix(), folder_of(inner)
        try:
            if nested >= MAX_NESTED:
                raise ArchiveError("it is an archive in an archive in an archive")
            one = _unpack_deep(inner, folder, budget, nested + 1)
            told.add(name, folder.relative_to(target).as_posix(), one)
        except ArchiveError as error:
            told.left_out.append(f"{name}: left out, {error}. Ask for another")
            shutil.rmtree(folder, ignore_errors=True)
        inner.unlink()
    return told


def folder_of(archive: Path) -> Path:
    """Return where an archive's files go: beside it, under its name, or under another that is free."""
    names = (f"{stem_of(archive)}{'~' * number}" for number in count())
    return next(path for path in map(archive.with_name, names) if not path.exists())


def stem_of(archive: Path) -> str:
    """Return an archive's name without its ending."""
    return re.sub(r"(?i)(\.tar)?\.\w+$", "", archive.name) or "archive"


def _unpack(archive: Path, target: Path, budget: Budget, left_out: list[str]) -> None:
    """Unpack one archive, and not the archives in it."""
    target.mkdir(parents=True)
    lines: list[str] = []
    for name, reason, size, content, when in members(archive, budget):
        parts = [part for part in re.split(r"[/\\]", name) if part not in ("", ".")]
        reason = reason or _misplaced(name, parts)
        if reason is None and size > budget.left[0]:
            raise ArchiveError(budget.too_much)
        if reason is None and size > MAX_BYTES and not name.lower().endswith(ARCHIVES):
            reason = f"it has more than {MAX_BYTES // 1_000_000} MB"
        path = target.joinpath(*parts) if reason is None else target
        if reason is None and path.exists():
            reason = "the archive holds it twice"
        if reason or content is None:
            lines.append(f"{name}: left out, {reason}")
            budget.take(size, 0)  # a tar is unpacked to get past it
            continue
        budget.take(size, len(parts) - 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            shutil.copyfileobj(content, file)  # at most the size that the archive says: zipfile and tarfile see to it
        if when is None or not TIMES[0] < when < TIMES[1]:
            when = archive.stat().st_mtime
        os.utime(path, (when, when))
    left_out += lines


def _misplaced(name: str, parts: list[str]) -> str | None:
    """Return why a file of an archive cannot go where its name says."""
    if not parts or ".." in parts or name[0] in "/\\" or ":" in parts[0] or "\0" in name:
        return "it would go to another folder"
    return "its name is too long" if len(parts) > 10 or max(map(len, parts)) > 120 else None
