"""Read and write files that students have made: plain files only, within a size, and nothing is overwritten."""

import hashlib
import os
import re
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .codes import Code
from .problem import Unreadable

MAX_BYTES = 10_000_000  # of a notebook; the largest of the course has 60 kB without outputs
KEPT = ".doctor"  # the folder for files as they were before a repair

_COPIES = re.compile(r"( ?[-_ ]copy\d*| - copy| ?\(\d+\))*")


@dataclass(frozen=True)
class NotAFile:
    """Why something is not a plain file of its own."""

    code: Code
    what: str

    def __str__(self) -> str:
        return self.what


KINDS = (
    (stat.S_ISLNK, NotAFile(Code.SYMBOLIC_LINK, "is a symbolic link")),
    (stat.S_ISDIR, NotAFile(Code.FOLDER, "is a folder")),
    (stat.S_ISFIFO, NotAFile(Code.NAMED_PIPE, "is a named pipe")),
    (stat.S_ISSOCK, NotAFile(Code.SOCKET, "is a socket")),
)


def no_file(path: Path) -> NotAFile | None:
    """Return why ``path`` is not a plain file of its own, or None. A link may lead anywhere on the machine."""
    try:
        return _no_file(path.lstat())
    except (OSError, ValueError) as error:
        return NotAFile(
            Code.UNREADABLE, f"cannot be read ({getattr(error, 'strerror', None) or 'its name is invalid'})"
        )


def is_folder(path: Path) -> bool:
    """Return whether ``path`` is a folder itself, not a link to one."""
    return path.is_dir() and not path.is_symlink()


def _no_file(info: os.stat_result) -> NotAFile | None:
    for is_kind, reason in KINDS:
        if is_kind(info.st_mode):
            return reason
    if not stat.S_ISREG(info.st_mode):
        return NotAFile(Code.DEVICE, "is a device")
    if info.st_nlink > 1:
        return NotAFile(Code.HARD_LINK, "is a hard link: the same file has another name elsewhere")
    return None


def read_bytes(path: Path, most: int = MAX_BYTES, file: str | None = None) -> bytes:
    """Read a plain file of at most ``most`` bytes; messages call it ``file``, or by its own name.

    Raises:
        Unreadable: it is not a plain file, too large, or the system does not let it be read.
    """
    name = file or path.name
    if reason := no_file(path):
        raise Unreadable(reason.code, name, reason.what)
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(path, flags), "rb") as opened:
            if reason := _no_file(os.fstat(opened.fileno())):  # it was exchanged meanwhile
                raise Unreadable(reason.code, name, reason.what)
            data = opened.read(most + 1)
    except OSError as error:
        raise Unreadable(Code.UNREADABLE, name, f"cannot be read ({error.strerror})") from None
    if len(data) > most:
        what = f"has more than {most // 1_000_000} MB"
        raise Unreadable(Code.TOO_LARGE, name, what, "Clear its outputs and save it again.")
    return data


def resembles(wanted: str, name: str) -> bool:
    """Return whether ``name`` is how a browser, a system or a hand would have altered the file name ``wanted``."""
    stem = re.sub(r"(?i)(\.ipynb)?(\.(txt|json))?$", "", name.strip(), count=1)
    ends = re.search(r"(?i)\.ipynb(\.txt|\.json)?$|\.json$", name.strip())
    stem, wanted = " ".join(stem.split()).casefold(), wanted.removesuffix(".ipynb").casefold()
    return bool(ends) and stem.startswith(wanted) and _COPIES.fullmatch(stem, len(wanted)) is not None


def keep(path: Path, root: Path) -> Path:
    """Copy a file, as it is, into ``root/.doctor``; nothing there is ever overwritten. Return the copy's path."""
    data = read_bytes(path)
    try:
        inside = path.absolute().relative_to(root.absolute())
    except ValueError:
        inside = Path(path.name)
    kept = root / KEPT / inside.parent / f"{inside.name}.{hashlib.sha256(data).hexdigest()[:12]}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    if not kept.exists():
        _write(kept, data)
    return kept


def write(path: Path, data: bytes, root: Path) -> Path:
    """Put a repaired notebook in its file's place; the file as it was is kept first. Returns where.

    It keeps its time of change, the only sign of when it was handed in where there is no other.
    """
    kept = keep(path, root)
    before = path.stat()
    _write(path, data, before)
    return kept


def _write(path: Path, data: bytes, like: os.stat_result | None = None) -> None:
    """Write a file that is there whole or not at all, with the rights and times of another."""
    handle, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(data)
        if like:
            os.chmod(new, stat.S_IMODE(like.st_mode) & 0o777)
            if hasattr(os, "chown"):
                with suppress(PermissionError):
                    os.chown(new, like.st_uid, like.st_gid)
            os.utime(new, ns=(like.st_atime_ns, like.st_mtime_ns))
        os.replace(new, path)
    except BaseException:
        Path(new).unlink(missing_ok=True)
        raise
