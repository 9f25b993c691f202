"""What a verdict depends on besides the submission: the set's cells, the checks' code, torch, the seed."""

import hashlib
import json
from functools import lru_cache
from importlib.metadata import version as installed
from importlib.resources import files
from pathlib import Path

from graders.classroom.released import Cells

JUDGING = ("gradecell.py", "inside", "judge")  # of the package: what every check runs


def version(assignment: str, cells: Cells, seed: int) -> str:
    """Return what tells one state of a set's checks from another: the same, and so is every verdict.

    Args:
        assignment: the set: ``01_relu``.
        cells: the released cells of one of its notebooks.
        seed: of the hidden inputs.
    """
    released = [[cell.grade_id, cell.points, cell.source if cell.locked else ""] for cell in cells.values()]
    found = [released, _code(assignment.partition("_")[2]), installed("torch"), seed]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


@lru_cache
def _code(slug: str) -> str:
    """Return a digest of the code that judges a set."""
    package, code = Path(str(files("graders"))), hashlib.sha256()
    for place in (*JUDGING, f"sets/{slug}"):
        path = package / place
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            code.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return code.hexdigest()
