"""Is this notebook the right one, is every cell of the set in it, and would it be graded? What can be repaired is.

    python doctor.pyz [--dry-run] [exercises/01_relu/relu.ipynb]

Without a path it looks at the sets beside itself. Nothing of a notebook is executed. The standard library is enough:
students get this folder as ``doctor.pyz``, with the released cells of all sets in it; grading reads and repairs
notebooks by the same functions.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path

from .cells import Original, answers, of_another_set, repair, stubs
from .codes import Code
from .files import KEPT, is_folder, resembles, write
from .form import Notebook, read, to_bytes
from .problem import Problem, Unreadable, printable, quoted

EXIT_CODES = "exit codes: 0 all would be graded, 1 at least one would not in its current state, 2 usage error"

Validate = Callable[[Notebook, str], None]


def accept(notebook: Notebook, file: str) -> None:
    """Accept every notebook that was read: students have no more than the standard library to validate it with."""


def examine(
    path: Path, originals: Mapping[str, Original], file: str, validate: Validate = accept
) -> tuple[Notebook | None, list[Problem]]:
    """Read one notebook and repair it in memory; write nothing.

    Args:
        path: the file.
        originals: the set's own cells.
        file: what problems call it.
        validate: raises Unreadable for a notebook that grading refuses for a reason of its own.

    Returns:
        The repaired notebook (None: it would not be graded), and what is or was wrong.
    """
    try:
        notebook, problems = read(path, file=file)
        if other := of_another_set(notebook, originals, file):
            return None, [other]
        problems += repair(notebook, originals, file)
        validate(notebook, file)
    except Unreadable as error:
        return None, [error.problem]
    return notebook, problems + answers(notebook, originals, file)


def released_sets() -> dict[str, dict[str, Original]]:
    """Read the released cells of all sets, by notebook, from ``released.json``: only the students' program has it."""
    sets = json.loads(resources.files(__package__).joinpath("released.json").read_text(encoding="utf-8"))
    return {name: {cell["grade_id"]: Original(**cell) for cell in cells} for name, cells in sets.items()}


def beside(program: Path, names: Iterable[str]) -> list[Path]:
    """Return the notebooks of sets in the folder that a program lies in, and in the sets' folders below it.

    The program may lie beside ``exercises/``, in it, or beside a notebook. Hidden folders are left out.
    """
    folder, wanted = program.parent, [f"{name}.ipynb" for name in names]
    there = (path for depth in ("*", "*/*", "exercises/*/*") for path in sorted(folder.glob(depth)))
    found = (path for path in there if any(resembles(name, path.name) for name in wanted))
    return [path for path in found if not any(p.startswith(".") for p in path.relative_to(folder).parts)]


def notebooks_in(paths: Iterable[Path], names: Iterable[str]) -> list[Path]:
    """Return the notebooks that the arguments mean: files, and what a folder or its folders hold under a set's name."""
    wanted = [f"{name}.ipynb" for name in names]
    found: list[Path] = []
    for path in paths:
        if is_folder(path):
            there = sorted([*path.glob("*"), *path.glob("*/*")])
            found += [p for p in there if any(resembles(name, p.name) for name in wanted) and KEPT not in p.parts]
        else:
            found.append(path)
    return found


def treat(
    path: Path, sets: Mapping[str, Mapping[str, Original]], root: Path, dry_run: bool, validate: Validate = accept
) -> tuple[bool, list[Problem]]:
    """Examine one notebook by itself and repair it; return whether it would be graded, and what was found."""
    name = next((name for name in sets if resembles(f"{name}.ipynb", path.name)), None)
    if name is None:
        known = ", ".join(f"{name}.ipynb" for name in sets)
        what = "is not the name of a set's notebook"
        return False, [Problem(Code.UNKNOWN_NAME, path.name, what, f"The names are {known}.", fatal=True)]
    notebook, problems = examine(path, sets[name], path.name, validate)
    repaired = None
    if notebook is not None:
        repaired = notebook if any(problem.repaired for problem in problems) else None
        problems += stubs(notebook, sets[name], path.name)
    wanted = path.with_name(f"{name}.ipynb")
    misnamed = path.name != wanted.name
    if misnamed:
        problems.insert(0, _wrong_name(path, wanted.name, notebook is not None))
    fatal = any(problem.fatal for problem in problems)
    if not dry_run and not fatal:
        if repaired is not None:
            write(path, to_bytes(repaired), root)
        if misnamed:
            os.rename(path, wanted)
    return not fatal and not (misnamed and dry_run), problems


def _wrong_name(path: Path, wanted: str, readable: bool) -> Problem:
    what = f"is not called {wanted}"
    others = sorted(p.name for p in path.parent.iterdir() if p.name != path.name and resembles(wanted, p.name))
    if readable and not others:
        return Problem(Code.WRONG_NAME, path.name, what, "It is renamed.", repaired=True)
    remedy = f"Rename it to {wanted}."
    if readable:
        remedy = f"There is also {quoted(others)}: hand in one of them, as {wanted}."
    return Problem(Code.WRONG_NAME, path.name, what, remedy, fatal=True)


def line(problem: Problem, dry_run: bool) -> str:
    """Return one problem as it is printed."""
    mark = (" [would be repaired]" if dry_run else " [repaired]") if problem.repaired else ""
    return f"{problem}{mark}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the student's command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python doctor.pyz",
        description="Check whether your notebooks would be graded, and repair what can be repaired. The original of "
        f"each repaired file is kept in {KEPT}/. Missing answers are reported; the rest is graded all the same.",
        epilog=EXIT_CODES,
    )
    parser.add_argument(
        "path",
        metavar="PATH",
        nargs="*",
        type=Path,
        help="a notebook, or a folder with notebooks (default: the sets in the folder that this program lies in)",
    )
    parser.add_argument("--dry-run", action="store_true", help="report what is wrong and change nothing")
    options = parser.parse_args(arguments)
    sets = released_sets()
    if options.path:
        return treat_all(options.path, sets, options.dry_run)
    program = Path(sys.argv[0])
    found = beside(program, sets)
    if not found:
        print(f"there is no notebook of a set beside {printable(program)}: name one, or its folder", file=sys.stderr)
        return 2
    return treat_all(found, sets, options.dry_run)


Treat = Callable[[Path, Mapping[str, Mapping[str, Original]], Path, bool], tuple[bool, list[Problem]]]


def treat_all(
    paths: Iterable[Path], sets: Mapping[str, Mapping[str, Original]], dry_run: bool, one: Treat = treat
) -> int:
    """Examine notebooks one by one and print what is found; return the exit code.

    Args:
        paths: as `notebooks_in` takes them.
        sets: the released cells of each notebook, by its name.
        dry_run: whether nothing is written.
        one: does what `treat` does.
    """
    paths = list(paths)
    if missing := [path for path in paths if not os.path.lexists(path)]:
        print(f"there is no {printable(missing[0])}", file=sys.stderr)
        return 2
    notebooks = notebooks_in(paths, sets)
    if not notebooks:
        print(f"there is no notebook of a set in {printable(paths[0])}", file=sys.stderr)
        return 2
    bad = 0
    for path in notebooks:
        try:
            graded, problems = one(path, sets, path.absolute().parent, dry_run)
            for problem in problems:
                print(line(problem, dry_run))
        except OSError as error:
            graded = False
            print(f"{printable(path.name)}: cannot be repaired here ({printable(error.strerror)})")
        bad += not graded
        print(f"{printable(path)}: would {'' if graded else 'NOT '}be graded{' in its current state' * (not graded)}.")
    return 1 if bad else 0
