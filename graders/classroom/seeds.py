"""Which inputs the hidden checks draw for whom: one seed for the class, or one for each student.

Each student's own comes from a secret of the class and the student's name, by HMAC-SHA256 (RFC 2104): it is the same
today and at the end of the term, and nobody can tell it from another's.
"""

import hmac
import secrets
from pathlib import Path

from graders.classroom.errors import CourseError

SECRET = "class_secret.txt"  # in the course's folder; where it is, each student has a seed of their own
LEAST, MOST = 16, 1000  # bytes of a secret
BITS = 31  # of a seed


def read_secret(root: Path) -> bytes:
    """Return the secret of a class; b"": it has none, and one seed is everybody's.

    Args:
        root: the course's folder.

    Raises:
        CourseError: there is a file, and no secret in it.
    """
    path = root / SECRET
    if not path.exists() and not path.is_symlink():
        return b""
    try:
        with path.open("rb") as file:
            found = file.read(MOST).strip()
    except OSError as error:
        raise CourseError(f"{SECRET} cannot be read ({error.strerror}): put your copy of it back") from None
    if len(found) < LEAST:
        remedy = "put your copy of it back, or delete it and write a new one with `python -m graders init --own-inputs`"
        raise CourseError(f"{SECRET} holds {len(found)} bytes, and a secret has {LEAST} at least: {remedy}")
    return found


def write_secret(root: Path) -> Path:
    """Write a new secret, which only its owner may read; return its path.

    Args:
        root: the course's folder.

    Raises:
        CourseError: there is one already: with another, every grading again would draw other inputs.
    """
    path = root / SECRET
    try:
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(f"{secrets.token_urlsafe(32)}\n", encoding="ascii")
    except FileExistsError:
        raise CourseError(f"{SECRET} is there already: each student has inputs of their own") from None
    except OSError as error:
        raise CourseError(f"{path} cannot be written ({error.strerror})") from None
    return path


def seed_of(secret: bytes, assignment: str, student: str) -> int:
    """Return the seed of a student in a set, from 0 to 2^31 - 1.

    Args:
        secret: of the class.
        assignment: the set.
        student: whose it is.
    """
    digest = hmac.digest(secret, f"{assignment}\0{student}".encode("utf-8", "surrogateescape"), "sha256")
    return int.from_bytes(digest[:8], "big") % (1 << BITS)
