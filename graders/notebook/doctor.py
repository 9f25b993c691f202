"""Is this notebook the right one, is every cell of the set in it, and would it be graded? What can be repaired is.

    python doctor.pyz [--dry-run] exercises/01_relu/relu.ipynb

Nothing of a notebook is executed. The standard library is enough: students get this folder as ``doctor.pyz``, with the
released cells of all sets in it; grading reads and repairs notebooks by the same functions.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path

from .cells import Original, answers, of_another_set, repair, stubs
from .files import KEPT, resembles, write
from .form import Notebook, read, to_bytes
from .problem import Problem, printable, quoted


def look(
    path: Path, originals: Mapping[str, Original], file: str | None = None, check: Callable[[Notebook], None] = bool
) -> tuple[Notebook | None, list[Problem]]:
    """Examine one notebook; nothing is written.

    Args:
        path: the file.
        originals: the set's own cells.
        file: what to call it.
        check: raises ValueError for a notebook that grading refuses for a reason of its own.

    Returns:
        The repaired notebook (None: there is nothing to repair, or no repair), and what is or was wrong.
    """
    file = file or path.name
    try:
        notebook, form = read(path)
        if other := of_another_set(notebook, originals):
            raise ValueError(other)
        said = form + repair(notebook, originals)
        check(notebook)
    except ValueError as error:
        return None, [Problem(file, str(error), remedy(str(error)), fatal=True)]
    problems = [Problem(file, *one, repaired=True) for one in said]
    problems += [Problem(file, *one) for one in answers(notebook, originals)]
    return (notebook if said else None), problems


def remedy(why: str) -> str:
    """What to do about a notebook that cannot be read."""
    if "MB" in why:
        return "Clear its outputs and save it again."
    return "Hand in the right one." if "another set" in why else "Ask for a new one."


def released_sets() -> dict[str, dict[str, Original]]:
    """Read the released cells of all sets, by notebook, from ``released.json``: only the students' program has it."""
    sets = json.loads(resources.files(__package__).joinpath("released.json").read_text(encoding="utf-8"))
    return {name: {cell["grade_id"]: Original(**cell) for cell in cells} for name, cells in sets.items()}


def notebooks_in(paths: Iterable[Path], names: Iterable[str]) -> list[Path]:
    """The notebooks that the arguments mean: files, and what a folder or its folders hold under a set's name."""
    wanted = [f"{name}.ipynb" for name in names]
    found: list[Path] = []
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            there = sorted([*path.glob("*"), *path.glob("*/*")])
            found += [p for p in there if any(resembles(name, p.name) for name in wanted) and KEPT not in p.parts]
        else:
            found.append(path)
    return found


def treat(path: Path, sets: Mapping[str, Mapping[str, Original]], root: Path, dry_run: bool,
          check: Callable[[Notebook], None] = bool) -> tuple[bool, list[str]]:  # fmt: skip
    """Examine one notebook by itself and repair it; whether it would be graded, and a line on each finding."""
    names = [name for name in sets if resembles(f"{name}.ipynb", path.name)]
    if not names:
        known = ", ".join(f"{name}.ipynb" for name in sets)
        return False, [str(Problem(path.name, "is not the name of a set's notebook", f"There are {known}."))]
    wanted = path.with_name(f"{names[0]}.ipynb")
    notebook, problems = look(path, sets[names[0]], check=check)
    fatal = any(problem.fatal for problem in problems)
    if not fatal:
        problems += [Problem(path.name, *said) for said in stubs(read(path)[0], sets[names[0]])]
    misnamed = path.name != wanted.name
    if misnamed:
        problems.insert(
            0, Problem(path.name, f"is not called {wanted.name}", f"It has to be {wanted.name}.", fatal=True)
        )
        others = [p.name for p in wanted.parent.iterdir() if resembles(wanted.name, p.name)]
        if not fatal and others == [path.name]:
            problems[0] = Problem(path.name, f"is not called {wanted.name}", "It is renamed.", repaired=True)
        elif not fatal:
            others.remove(path.name)
            more = f"There is also {quoted(sorted(others))}: hand in one of them, as {wanted.name}."
            problems[0] = Problem(path.name, f"is not called {wanted.name}", more, fatal=True)
    if not dry_run and not any(problem.fatal for problem in problems):
        if notebook is not None:
            write(path, to_bytes(notebook), root)
        if misnamed:
            os.rename(path, wanted)
            misnamed = False
    graded = not misnamed and not any(problem.fatal for problem in problems)
    return graded, [line(problem, dry_run) for problem in problems]


def line(problem: Problem, dry_run: bool) -> str:
    """One finding as it is printed."""
    mark = (" [would be repaired]" if dry_run else " [repaired]") if problem.repaired else ""
    return f"{problem}{mark}"


EXIT_CODES = "exit codes: 0 all would be graded, 1 at least one would not as it now stands, 2 a wrong command"


def main(arguments: Sequence[str] | None = None) -> int:
    """The student's command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python doctor.pyz",
        description="See whether your notebooks would be graded, and repair what can be. The files as they were are "
        f"kept in {KEPT}/. Answers that are missing are named; they do not keep the rest from being graded.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("path", metavar="PATH", nargs="+", type=Path, help="a notebook, or a folder with notebooks")
    parser.add_argument("--dry-run", action="store_true", help="say what is wrong, write nothing")
    options = parser.parse_args(arguments)
    return treat_all(options.path, released_sets(), options.dry_run)


def treat_all(paths: Iterable[Path], sets: Mapping[str, Mapping[str, Original]], dry_run: bool,
              check: Callable[[Notebook], None] = bool) -> int:  # fmt: skip
    """Examine notebooks one by one, print what there is to say; the exit code."""
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
            graded, lines = treat(path, sets, path.absolute().parent, dry_run, check)
        except OSError as error:
            graded, lines = False, [f"{printable(path.name)}: cannot be repaired here ({printable(error.strerror)})"]
        bad += not graded
        for text in lines:
            print(text)
        print(f"{printable(path)}: would {'' if graded else 'NOT '}be graded{' as it now stands' * (not graded)}.")
    return 1 if bad else 0
