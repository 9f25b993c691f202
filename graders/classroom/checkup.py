"""``python -m graders doctor``: examine submissions, repair them, name those that would not be graded."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

from nbgrader.api import MissingEntry

from graders.classroom.course import Course, CourseError
from graders.classroom.released import originals, shown
from graders.classroom.submission import (
    LEFT_BEHIND,
    Submission,
    files_in,
    folder_problems,
    misnamed,
    not_read,
    notebook_problems,
    read_notebook,
    unreadable_folder,
    validate,
)
from graders.engine.errors import Overspent
from graders.notebook import cells, doctor, form
from graders.notebook.cells import Original
from graders.notebook.codes import Code
from graders.notebook.files import KEPT, MAX_BYTES, NotAFile, is_folder, keep, no_file, write
from graders.notebook.problem import Problem, printable

TIME_WRITTEN = "Written from the notebook's own time."


@dataclass(frozen=True)
class Stray:
    """Something in ``submitted/`` that is not a submission where it stands.

    Attributes:
        student: whose it is, as far as its place tells.
        problem: what is wrong, and where it belongs.
        meant: the set that it is of, by its name or by what is in it; None where neither tells.
        notebook: whether it is, or holds, a notebook.
    """

    student: str
    problem: Problem
    meant: str | None = None
    notebook: bool = False


class ReleasedCells:
    """The released cells of a course's notebooks; those of each notebook are read once."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.cells = cache(self._cells)

    def _cells(self, assignment: str, name: str) -> Mapping[str, Original]:
        """Return the cells of a notebook, as students see them: from the gradebook, if it has them, or the release."""
        course = self.course
        url = course.dirs.db_url
        if not url.startswith("sqlite:///") or Path(url.removeprefix("sqlite:///")).exists():  # else it would be made
            with suppress(MissingEntry), course.gradebook() as gradebook:
                held = originals(gradebook, course.source(assignment) / f"{name}.ipynb", assignment)
                return {key: shown(cell) for key, cell in held.items()}
        for step in (course.dirs.release_directory, course.dirs.source_directory):
            path = course.root / step / assignment / f"{name}.ipynb"
            if path.is_file():
                return {key: shown(cell) for key, cell in cells.released(form.read(path)[0]).items()}
        raise CourseError(f"there is no {name}.ipynb in {course.dirs.source_directory}/{assignment}/")


def checkup(course: Course, paths: Iterable[Path], dry_run: bool) -> int:
    """Examine and repair what the paths mean: all of submitted/, a student's folder, a set's, or single notebooks.

    Prints a line on each finding and a summary.

    Returns:
        0 if all would be graded, 1 if at least one would not.

    Raises:
        CourseError: a path does not exist, or nothing is there to examine.
    """
    home = course.root / course.dirs.submitted_directory
    submissions: list[Submission] = []
    single: list[Path] = []
    stray: list[Stray] = []
    sets = course.assignments
    for path in paths:
        if not os.path.lexists(path):
            raise CourseError(f"there is no {printable(path)}")
        place = Path(os.path.abspath(path))  # not resolve(): a link is to be found, not followed
        if place == home or home in place.parents:
            for found in _submissions(course, home, place.relative_to(home).parts, sets):
                if isinstance(found, Submission):
                    submissions.append(found)
                else:
                    stray.append(found)
        else:
            single.append(path)
    if not (submissions or single or stray):
        raise CourseError(f"nothing was handed in: put submissions into {course.dirs.submitted_directory}/STUDENT/SET/")
    released = ReleasedCells(course)
    bad = repaired = 0
    for found in stray:
        print(f"{printable(found.student, 60)}: {found.problem}")
    for submission in dict.fromkeys(submissions):
        graded, problems = treat(released, submission, dry_run)
        bad += not graded
        repaired += any(problem.repaired for problem in problems)
        for problem in problems:
            print(f"{submission}/{doctor.line(problem, dry_run)}")
    if submissions or stray:
        print(_summary(len(dict.fromkeys(submissions)), bad, repaired, dry_run))
    if single:
        known = {name: released.cells(key, name) for key in sets for name in course.notebooks(key)}
        bad += doctor.treat_all(single, known, dry_run, partial(_treat_alone, course))
    return 1 if bad or stray else 0


def _treat_alone(
    course: Course, path: Path, sets: Mapping[str, Mapping[str, Original]], root: Path, dry_run: bool
) -> tuple[bool, list[Problem]]:
    """Examine and repair a notebook by itself, in the reader's process."""
    try:
        return course.reader.ask(doctor.treat, path, sets, root, dry_run, validate)
    except Overspent as error:
        return False, [not_read(path.name, error)]


def _summary(count: int, bad: int, repaired: int, dry_run: bool) -> str:
    parts = [f"{count - bad} of {count} submissions would be graded" + (" in their current state" if dry_run else "")]
    if repaired:
        done = "can be repaired" if dry_run else f"repaired (as they were: {KEPT}/)"
        parts.append(f"{repaired} {done}")
    return f"{', '.join(parts)}."


def misplaced(course: Course, assignment: str) -> list[tuple[str, Problem]]:
    """Return (student, problem) for what grading passes over in ``submitted/``: of this set, or notebooks of none."""
    home = course.root / course.dirs.submitted_directory
    found = _submissions(course, home, (), course.assignments) if home.is_dir() else ()
    strays = [stray for stray in found if isinstance(stray, Stray)]
    return [
        (stray.student, stray.problem)
        for stray in strays
        if stray.meant == assignment or (stray.notebook and stray.meant is None)
    ]


def _submissions(course: Course, home: Path, parts: tuple[str, ...], sets: list[str]) -> Iterator[Submission | Stray]:
    """Yield the submissions below ``submitted/PARTS``, and what is not one."""
    path = home.joinpath(*parts[:2])  # a notebook stands for its submission
    if len(parts) > 1:
        known = parts[1] in sets
        yield course.submission(parts[0], parts[1]) if known else _stray(course, home, parts[0], parts[1], sets)
    elif parts and not is_folder(path):
        reason = no_file(path) or NotAFile(Code.NOT_A_FOLDER, "is a file where a student's folder belongs")
        remedy = f"A submission is {home.name}/STUDENT/SET/NOTEBOOK.ipynb."
        problem = Problem(reason.code, parts[0], reason.what, remedy, fatal=True)
        yield Stray(parts[0], problem, *_meant(course, path, sets))
    else:
        try:
            names = sorted(inner.name for inner in path.iterdir() if inner.name not in LEFT_BEHIND)
        except OSError as error:
            yield Stray(path.name, unreadable_folder(f"{path.name}/", error), notebook=True)
            return
        for name in names:
            yield from _submissions(course, home, (*parts, name), sets)


def _stray(course: Course, home: Path, student: str, name: str, sets: list[str]) -> Stray:
    """Describe ``submitted/STUDENT/NAME``, which is not the folder of a set."""
    path = home / student / name
    meant, notebook = _meant(course, path, sets)
    folder, turned = path.is_dir(), _named(student, sets)
    code, what, file = Code.OUTSIDE_SET, "is not in the folder of a set", name
    if folder:
        code, what = Code.NO_SET, "is not a set"
    if folder and turned and not _named(name, sets):
        meant, student, file = turned, name, f"{student}/{name}"
        code, what = Code.SWAPPED_FOLDERS, "has the set and student folders swapped"
        target, remedy = home / name / meant, f"Move it to {home.name}/{name}/{meant}/."
    elif meant and folder:
        target, remedy = path.with_name(meant), f"Rename it to {meant}."
    elif meant:
        target, remedy = path.parent / meant / name, f"Move it into {home.name}/{student}/{meant}/."
    else:
        target, remedy = None, f"The sets are {', '.join(sets)}."
    if target and os.path.lexists(target):
        remedy = f"{target.relative_to(home.parent)} exists as well: keep the right one there."
    return Stray(student, Problem(code, file, what, remedy, fatal=True), meant, notebook)


def _named(name: str, sets: list[str]) -> str | None:
    """Return the set that a folder of this name may be meant for: `relu`, `Relu`, `01_RELU` are 01_relu."""
    near = [key for key in sets if name.casefold() in (key.casefold(), key.partition("_")[2].casefold())]
    return near[0] if near else None


def _meant(course: Course, path: Path, sets: list[str]) -> tuple[str | None, bool]:
    """Return the set of a stray file or folder, None if that cannot be told; and whether there is a notebook in it."""
    files = [path.name]
    if is_folder(path):
        with suppress(OSError):
            files = [inner.name for _, inner in files_in(path)]
    held = [key for key in sets if any(misnamed(f"{name}.ipynb", files) for name in course.notebooks(key))]
    notebook = bool(held) or any(name.casefold().endswith(".ipynb") for name in files)
    return _named(path.name, sets) or (held[0] if len(held) == 1 else None), notebook


def treat(released: ReleasedCells, submission: Submission, dry_run: bool) -> tuple[bool, list[Problem]]:
    """Examine one submission of a course and repair it.

    Returns:
        Whether it would be graded in its state at the end, and what was found.
    """
    course = released.course
    try:
        return course.reader.ask(_treat, course, submission, dry_run)
    except Overspent as error:
        return False, [not_read(f"{submission.folder.name}/", error)]
    except (OSError, ValueError) as error:
        what = f"cannot be repaired here ({error})"
        return False, [Problem(Code.NOT_REPAIRABLE, "its folder", what, "Check its permissions.", fatal=True)]


@cache
def _released(course: Course) -> ReleasedCells:
    """Return a course's released cells, once in a process."""
    return ReleasedCells(course)


def _treat(course: Course, submission: Submission, dry_run: bool) -> tuple[bool, list[Problem]]:
    """Examine and repair, in the reader's process."""
    released = _released(course)
    assignment, folder = submission.assignment, submission.folder
    names = course.notebooks(assignment)
    listed = [path.name for path in (course.root / course.dirs.source_directory / assignment).iterdir()]
    found = folder_problems(folder, names, listed)
    if folder.is_symlink() or folder.parent.is_symlink() or not folder.is_dir():
        return False, found
    files = [name for name, path in files_in(folder) if no_file(path) is None]
    when = max((folder.joinpath(name).stat().st_mtime for name in files if name.endswith(".ipynb")), default=None)
    problems = []
    for problem in found:
        if problem.code is Code.MALFORMED_TIME and no_file(folder / problem.file) is None and when is not None:
            problem = _repair_time(problem, folder, when, course.root, dry_run)
        elif problem.code is Code.NOTEBOOK_MISNAMED:
            problem = _repair_name(problem, folder, files, dry_run)
        problems.append(problem)
    for name in names:
        path = folder / f"{name}.ipynb"
        if not os.path.lexists(path) and len(near := misnamed(path.name, files)) == 1:  # not renamed in a dry run
            path = folder / near[0]
        if no_file(path) is None:
            notebook, found = doctor.examine(path, released.cells(assignment, name), f"{name}.ipynb", validate)
            problems += found
            if notebook is not None and any(problem.repaired for problem in found) and not dry_run:
                write(path, form.to_bytes(notebook), course.root)
    time = folder / "timestamp.txt"
    missing = not os.path.lexists(time)
    if when is not None and (missing or (no_file(time) is None and not time.stat().st_size)):
        what = "is missing" if missing else "is empty"
        problems.append(Problem(Code.NO_TIME, time.name, what, TIME_WRITTEN, repaired=True))
        if not dry_run:
            _write_time(folder, when)
    return _would_be_graded(released, assignment, folder, names, listed), problems


def _repair_time(problem: Problem, folder: Path, when: float, root: Path, dry_run: bool) -> Problem:
    """Put a time in the place of a ``timestamp.txt`` that holds none."""
    path = folder / problem.file
    if path.stat().st_size > MAX_BYTES:
        return problem
    if not dry_run:
        keep(path, root)
        _write_time(folder, when)
    return replace(problem, remedy=TIME_WRITTEN, fatal=False, repaired=True)


def _repair_name(problem: Problem, folder: Path, files: list[str], dry_run: bool) -> Problem:
    """Give the notebook its name, if one file alone can be meant."""
    near = misnamed(problem.file, files)
    if len(near) != 1:
        return problem
    if not dry_run:
        os.rename(folder / near[0], folder / problem.file)
    return replace(problem, remedy="It is renamed.", fatal=False, repaired=True)


def _write_time(folder: Path, when: float) -> None:
    text = datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M:%S UTC\n")
    (folder / "timestamp.txt").write_text(text, encoding="utf-8")


def _would_be_graded(
    released: ReleasedCells, assignment: str, folder: Path, names: list[str], listed: list[str]
) -> bool:
    """Return what ``grade`` would decide: by the same functions, on what is there now."""
    problems = folder_problems(folder, names, listed)
    if any(problem.fatal for problem in problems):
        return False
    try:
        for name in names:
            notebook = read_notebook(folder / f"{name}.ipynb")
            problems += notebook_problems(f"{name}.ipynb", notebook, released.cells(assignment, name))
    except ValueError:
        return False
    return not any(problem.fatal for problem in problems)
