"""Write what Gradescope runs for each hand-in of a set: the graders, the set with its solutions, and two scripts.

    python -m tools.gradescope relu --seed 7

The archive is for Gradescope alone: it has every answer in it.
"""

import argparse
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from tools.notebooks import ROOT

SETUP = """#!/bin/bash
# Run once, where a platform makes the machine: a Python of 3.11 to 3.13, the sandbox, and the pinned packages.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq bubblewrap
cd "$(dirname "$0")"
python=
for name in python3.13 python3.12 python3.11; do
    command -v "$name" >/dev/null && "$name" -c 'import venv, ensurepip' 2>/dev/null && python=$name && break
done
if [ -z "$python" ]; then
    apt-get install -y -qq python3.12 python3.12-venv && python=python3.12 ||
        { apt-get install -y -qq python3.11 python3.11-venv && python=python3.11; }
fi
"$python" -m venv .venv
.venv/bin/python -m pip install -q -r requirements-grading.txt
"""
RUN = """#!/bin/bash
# Run for each hand-in, which lies in submission/; writes results/results.json.
set -eu
home="${{AUTOGRADER:-/autograder}}"
cd "$home/source"
exec "${{PYTHON:-.venv/bin/python}}" -m graders.classroom.autograder {set}{seed} \\
    "$home/submission" "$home/results/results.json"
"""
PATTERNS = (
    "graders/**/*.py",
    "graders/**/*.json",
    "graders/**/*.html",
    "nbgrader_config.py",
    "requirements.txt",
    "constraints.txt",
)
TIME = (1980, 1, 1, 0, 0, 0)  # of every file: the same bytes while the course is the same


def grading_requirements(root: Path) -> str:
    """Return the packages that grading needs: what students need, and the part on grading of what `make` needs."""
    text = (root / "requirements-dev.txt").read_text(encoding="utf-8")
    part = text.partition("\n# grading\n")[2].partition("\n\n")[0]
    if "nbgrader==" not in part:
        raise OSError("requirements-dev.txt has no part '# grading'")
    return f"-r requirements.txt\n{part}\n"


def files(root: Path, assignment: str, seed: int | None) -> dict[str, str]:
    """Return what the archive holds, by name.

    Args:
        root: the course.
        assignment: the set.
        seed: of the hidden inputs; None: the course's own.
    """
    inside = {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for pattern in (*PATTERNS, f"solutions/{assignment}/*.ipynb", f"exercises/{assignment}/*.ipynb")
        for path in sorted(root.glob(pattern))
    }
    inside["requirements-grading.txt"] = grading_requirements(root)
    inside["setup.sh"] = SETUP
    inside["run_autograder"] = RUN.format(set=assignment, seed="" if seed is None else f" --seed {seed}")
    return inside


def find_set(root: Path, name: str) -> str:
    """Return the set of this name.

    Raises:
        OSError: there is none.
    """
    sets = sorted(path.parent.name for path in (root / "solutions").glob("*_*/*.ipynb"))
    for one in sets:
        if name in (one, one.partition("_")[2]):
            return one
    raise OSError(f"there is no set {name!r}; there are: {', '.join(sets)}")


def pack(inside: dict[str, str], target: Path) -> None:
    """Write an archive, whole or not at all; scripts may be run.

    Raises:
        OSError: it cannot be written.
    """
    part = target.with_name(f".{target.name}.part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in sorted(inside.items()):
            info = zipfile.ZipInfo(path, TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o100755 if text.startswith("#!") else 0o100644) << 16
            archive.writestr(info, text)
    part.replace(target)


def command(
    platform: str,
    about: str,
    inside: Callable[[Path, str, int | None], dict[str, str]],
    then: str,
    given: list[str] | None,
) -> int:
    """Write the archive of a platform, as its command line says; return the exit code.

    Args:
        platform: in lower case, as the module and the archive are called.
        about: what the archive is, for ``--help``.
        inside: returns what it holds, by name, of the course, the set and the seed.
        then: what to do with it.
        given: the arguments; None: the program's own.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tools.{platform}", description=about)
    parser.add_argument("set", metavar="SET", help="the set: 01_relu, or relu for short")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="seed of the hidden inputs: one that students do not know"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"the archive (default: {platform}-SET.zip)")
    options = parser.parse_args(given)
    target = options.out or ROOT / f"{platform}-{options.set}.zip"
    try:
        assignment = find_set(ROOT, options.set)
        held = inside(ROOT, assignment, options.seed)
        pack(held, target)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{target}: {assignment}, {len(held)} files. {then}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    about = "Write the archive that Gradescope runs for each hand-in of a set."
    then = "It has every answer in it: upload it to Gradescope, nowhere else"
    return command("gradescope", about, files, then, arguments)


if __name__ == "__main__":
    sys.exit(main())
