"""Unpack archives that students have made: within limits, without links, and nowhere but into one folder."""

import gzip
import os
import re
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO, NamedTuple, cast

from graders.notebook.files import MAX_BYTES
from graders.notebook.problem import printable

ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")
MAX_FILES = 10_000  # of an archive: a whole class may be in one
MAX_UNPACKED = 1_000_000_000  # bytes of an archive's files together
MAX_PIECE = 10_000_000  # bytes of an archive's own list, or of one header
MAX_NESTED = 2  # archives in each other: a class of students' archives

TIMES = (347_155_200, 4_102_444_800)  # 1981 to 2100: archives that know no time say 1970 or 1980

TOO_MUCH = f"it would unpack to more than {MAX_UNPACKED // 1_000_000:,} MB"


class Member(NamedTuple):
    """One of an archive's files."""

    name: str
    reason: str | None = None  # to leave it out
    size: int = 0  # as the archive says
    content: IO[bytes] | None = None
    when: float | None = None  # as the archive says


class ArchiveError(Exception):
    """An archive is left out; the text says why, going on from its name."""


class _Bounded:
    """A file that refuses to be read or wound on without end: a tar's headers may claim any size."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        """Read as from a file; tarfile asks for pieces, unless a header is out of all proportion."""
        if not 0 <= size <= MAX_PIECE:
            raise ArchiveError("its headers claim more than they can hold")
        return self.file.read(size)

    def seek(self, place: int, whence: int = 0) -> int:
        """Seek as in a file, up to all that an archive may hold."""
        if whence == 0 and place > MAX_UNPACKED + MAX_FILES * 10_000:
            raise ArchiveError(TOO_MUCH)
        return self.file.seek(place, whence)


def members(archive: Path) -> Iterator[Member]:
    """Yield an archive's files, one by one."""
    if zipfile.is_zipfile(archive):
        _check_directory(archive)
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
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
        tarfile.open(fileobj=cast(IO[bytes], _Bounded(file)), mode="r:") as tar,
    ):
        for member in tar:
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


def _check_directory(archive: Path) -> None:
    """Refuse a zip whose list of files is out of all proportion, before anything reads it into memory."""
    with archive.open("rb") as file:
        file.seek(-min(archive.stat().st_size, 1 << 16), 2)
        tail = file.read()
    at = tail.rfind(b"PK\5\6")
    count, size = struct.unpack("<HI", tail[at + 10 : at + 16]) if 0 <= at <= len(tail) - 16 else (0, 0)
    if count > MAX_FILES or size > MAX_PIECE or tail[max(at - 20, 0) : at].startswith(b"PK\6\7"):
        raise ArchiveError(f"it has more than {MAX_FILES:,} files, or is a zip64 archive")


def unpack(archive: Path, target: Path, nested: int = 0, places: dict[Path, Path] | None = None) -> list[str]:
    """Unpack an archive, and archives in it, into the new folder ``target``.

    A file gets the time that the archive has for it, or the archive's own.

    Args:
        archive: a zip, or a tar that may be compressed by gzip.
        target: the folder.
        nested: how many archives this one is in.
        places: gets the folder of each inner archive: folder, archive.

    Returns:
        A line on each file that was left out.

    Raises:
        ArchiveError: the archive is damaged or over a limit; nothing of it is there.
    """
    left_out: list[str] = []
    try:
        _unpack(archive, target, left_out)
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
        raise ArchiveError(f"it is damaged or not an archive ({printable(error, 80)})") from None
    for inner in sorted(path for path in target.rglob("*") if path.name.lower().endswith(ARCHIVES)):
        name = inner.relative_to(target).as_posix()
        try:
            if nested + 1 >= MAX_NESTED:
                raise ArchiveError("it is an archive in an archive in an archive")
            folder = folder_of(inner)
            left_out += [f"{name}/{line}" for line in unpack(inner, folder, nested + 1, places)]
            if places is not None:
                places[folder] = inner
        except ArchiveError as error:
            left_out.append(f"{name}: left out, {error}. Ask for another")
        inner.unlink()
    return left_out


def folder_of(archive: Path) -> Path:
    """Return where an archive's files go: beside it, under its name, or under another that is free."""
    stem = re.sub(r"(?i)(\.tar)?\.\w+$", "", archive.name) or "archive"
    names = (f"{stem}{'~' * number}" for number in range(1000))
    return next(path for path in map(archive.with_name, names) if not path.exists())


def _unpack(archive: Path, target: Path, left_out: list[str]) -> None:
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
            left_out.append(f"{name}: left out, {reason}")
            total += size  # a tar is unpacked to get past it
            continue
        path = target.joinpath(*parts)
        if path.exists():
            left_out.append(f"{name}: left out, the archive holds it twice")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            shutil.copyfileobj(content, file)  # at most the size that the archive says: zipfile and tarfile see to it
        if when is None or not TIMES[0] < when < TIMES[1]:
            when = archive.stat().st_mtime
        os.utime(path, (when, when))
        total += size
