"""A course folder for nbgrader as it comes, to hold this project's grading against.

    python -m tools.stock TARGET SET...

Preprocessors, execution and limits are nbgrader's own: the configuration names the course's folders and nothing else.
The sets' grade cells run there unchanged, since `graders` is installed. Submissions belong in `TARGET/submitted/`; then
`nbgrader autograde SET` in TARGET grades them.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.notebooks import ROOT

CONFIG = """c = get_config()  # noqa: F821

c.CourseDirectory.course_id = "stock"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"
"""


class StockError(Exception):
    """Why there is no such course; one line, or nbgrader's own words."""


def environment() -> dict[str, str]:
    """What nbgrader runs with: the environment's programs on PATH, since it calls `alembic` by name."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}


def nbgrader(course: Path, *arguments: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run an nbgrader command in a course's folder; it reads no configuration but the folder's."""
    command = [sys.executable, "-m", "nbgrader", *arguments]
    return subprocess.run(command, cwd=course, env=environment(), capture_output=True, text=True, timeout=timeout)


def stock_course(root: Path, target: Path, sets: Sequence[str]) -> Path:
    """Make a course for stock nbgrader in the new or empty folder `target`, its sets in the gradebook.

    Args:
        root: the project's folder.
        target: the course's folder; `solutions/`, `exercises/`, `gradebook.db` and the configuration are made in it.
        sets: the sets' full names: ``01_relu``.

    Returns:
        `target`.

    Raises:
        StockError: no such set, something is in `target` already, or nbgrader refuses a set.
    """
    if missing := [name for name in sets if not (root / "solutions" / name).is_dir()]:
        raise StockError(f"there is no set {', '.join(missing)} in {root / 'solutions'}")
    if target.exists() and any(target.iterdir()):
        raise StockError(f"{target} is not empty")
    target.mkdir(parents=True, exist_ok=True)
    (target / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
    leave = shutil.ignore_patterns(".*", "__pycache__")
    for name in sets:
        shutil.copytree(root / "solutions" / name, target / "solutions" / name, ignore=leave)
        done = nbgrader(target, "generate_assignment", name)
        if done.returncode:
            raise StockError(f"nbgrader refuses {name}:\n{done.stderr.strip()}")
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.stock", description=__doc__.split("\n")[0])
    parser.add_argument("target", metavar="TARGET", type=Path)
    parser.add_argument("sets", metavar="SET", nargs="+", help="01_relu")
    chosen = parser.parse_args(arguments)
    try:
        print(f"{stock_course(ROOT, chosen.target, chosen.sets)}: {', '.join(chosen.sets)}")
    except StockError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
