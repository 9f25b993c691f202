"""``python -m graders doctor``: look at what was handed in, repair it, say who would not be graded."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nbgrader.api import MissingEntry

from . import doctor
from .course import Course, CourseError
from .doctor import Original, Problem, plain
from .preprocess import originals, shown
from .submission import LEFT_BEHIND, check, files_in, folder_problems, misnamed, notebook_problems, read_notebook

TIME_WRITTEN = "Written from the notebook's own time."


@dataclass(frozen=True)
class Submission:
    """A folder ``submitted/STUDENT/SET``."""

    student: str
    assignment: str
    folder: Path

    def __str__(self) -> str:
        return f"{plain(self.student, 60)}: {plain(self.assignment, 60)}"


def checkup(course: Course, paths: Iterable[Path], dry_run: bool) -> int:
    """Examine and repair what the paths mean: all of submitted/, a student's folder, a set's, or single notebooks.

    Prints a line on each finding and a summary.

    Returns:
        0 if all would be graded, 1 if at least one would not.

    Raises:
        CourseError: a path that means nothing.
    """
    home = course.root / course.dirs.submitted_directory
    submissions: list[Submission] = []
    single: list[Path] = []
    stray: list[tuple[str, Problem]] = []
    for path in paths:
        if not os.path.lexists(path):
            raise CourseError(f"there is no {plain(path)}")
        place = Path(os.path.abspath(path))  # not resolve(): a link is to be found, not followed
        if place == home or home in place.parents:
            for found in _submissions(course, home, place.relative_to(home).parts):
                (submissions if isinstance(found, Submission) else stray).append(found)
        else:
            single.append(path)
    if not (submissions or single or stray):
        raise CourseError(f"nothing was handed in: {course.dirs.submitted_directory}/STUDENT/SET/ is where it belongs")
    bad = repaired = 0
    for student, problem in stray:
        print(f"{plain(student, 60)}: {problem}")
    for submission in dict.fromkeys(submissions):
        try:
            graded, problems = treat(course, submission, dry_run)
        except (OSError, ValueError) as error:
            what = f"cannot be repaired here ({error})"
            graded, problems = False, [Problem("its folder", what, "Look at its rights.", fatal=True)]
        bad += not graded
        repaired += any(problem.repaired for problem in problems)
        for problem in problems:
            print(f"{submission}/{doctor.line(problem, dry_run)}")
    if submissions or stray:
        print(_summary(len(dict.fromkeys(submissions)), bad, repaired, dry_run))
    if single:
        sets = {}
        for assignment in course.assignments:
            for name in course.notebooks(assignment):
                sets[name] = truth(course, assignment, name)
        bad += doctor.treat_all(single, sets, dry_run, check)
    return 1 if bad or any(problem.fatal for _, problem in stray) else 0


def _summary(count: int, bad: int, repaired: int, dry_run: bool) -> str:
    parts = [f"{count - bad} of {count} submissions would be graded" + (" as they now stand" if dry_run else "")]
    if repaired:
        told = "can be repaired" if dry_run else f"repaired (as they were: {doctor.KEPT}/)"
        parts.append(f"{repaired} {told}")
    return f"{', '.join(parts)}."


def _submissions(course: Course, home: Path, parts: tuple[str, ...]) -> Iterator[Submission | tuple[str, Problem]]:
    """The submissions below ``submitted/PARTS``, and (student, problem) for what is no submission."""
    if not parts:
        for path in sorted(home.iterdir()):
            if path.name not in LEFT_BEHIND:
                yield from _submissions(course, home, (path.name,))
    elif len(parts) == 1:
        folder = home / parts[0]
        reason = doctor.no_file(folder)
        if reason != "is a folder":
            remedy = f"A submission is {home.name}/STUDENT/SET/NOTEBOOK.ipynb."
            yield (
                parts[0],
                Problem(parts[0], reason or "is a file where a student's folder belongs", remedy, fatal=True),
            )
            return
        for path in sorted(folder.iterdir()):
            if path.name not in LEFT_BEHIND:
                yield from _submissions(course, home, (parts[0], path.name))
    elif parts[1] in course.assignments:
        yield Submission(parts[0], parts[1], home / parts[0] / parts[1])
    else:
        near = [name for name in course.assignments if parts[1].casefold() in (name, name.partition("_")[2])]
        there = (home / parts[0] / parts[1]).is_dir()
        remedy = f"Rename it to {near[0]}." if near and there else f"The sets are {', '.join(course.assignments)}."
        what = "is no set" if there else "is not in the folder of a set"
        yield parts[0], Problem(parts[1], what, remedy, fatal=True)


def treat(course: Course, submission: Submission, dry_run: bool) -> tuple[bool, list[Problem]]:
    """Examine one submission and repair it.

    Returns:
        Whether it would be graded as it stands at the end, and what was found.
    """
    assignment, folder = submission.assignment, submission.folder
    names = course.notebooks(assignment)
    listed = [path.name for path in (course.root / course.dirs.source_directory / assignment).iterdir()]
    found = folder_problems(folder, names, listed)
    if folder.is_symlink() or folder.parent.is_symlink() or not folder.is_dir():
        return False, found
    files = [name for name, path in files_in(folder) if doctor.no_file(path) is None]
    when = max((folder.joinpath(name).stat().st_mtime for name in files if name.endswith(".ipynb")), default=None)
    problems = []
    for problem in found:
        if problem.file == "timestamp.txt" and doctor.no_file(folder / problem.file) is None and when is not None:
            problem = _mend_time(problem, folder, when, course.root, dry_run)
        elif problem.file not in files and problem.fatal:
            problem = _mend_name(problem, folder, files, dry_run)
        problems.append(problem)
    for name in names:
        path = folder / f"{name}.ipynb"
        if not os.path.lexists(path) and len(near := misnamed(path.name, files)) == 1:  # not renamed in a dry run
            path = folder / near[0]
        if doctor.no_file(path) is None:
            notebook, said = doctor.look(path, truth(course, assignment, name), f"{name}.ipynb", check)
            problems += said
            if notebook is not None and not dry_run:
                doctor.write(path, notebook, course.root)
    time = folder / "timestamp.txt"
    missing = not os.path.lexists(time)
    if when is not None and (missing or (doctor.no_file(time) is None and not time.stat().st_size)):
        problems.append(Problem(time.name, "is missing" if missing else "is empty", TIME_WRITTEN, repaired=True))
        if not dry_run:
            _write_time(folder, when)
    return _would_be_graded(course, assignment, folder, names, listed), problems


def _mend_time(problem: Problem, folder: Path, when: float, root: Path, dry_run: bool) -> Problem:
    """Put a time in the place of a ``timestamp.txt`` that holds none."""
    path = folder / problem.file
    if path.stat().st_size > doctor.MAX_BYTES:
        return problem
    if not dry_run:
        doctor.keep(path, root)
        _write_time(folder, when)
    return Problem(problem.file, problem.what, TIME_WRITTEN, repaired=True)


def _mend_name(problem: Problem, folder: Path, files: list[str], dry_run: bool) -> Problem:
    """Give the notebook its name, if one file alone can be meant."""
    near = misnamed(problem.file, files)
    if len(near) != 1:
        return problem
    if not dry_run:
        os.rename(folder / near[0], folder / problem.file)
    return Problem(problem.file, problem.what, "It gets that name.", repaired=True)


def _write_time(folder: Path, when: float) -> None:
    text = datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M:%S UTC\n")
    (folder / "timestamp.txt").write_text(text, encoding="utf-8")


def _would_be_graded(course: Course, assignment: str, folder: Path, names: list[str], listed: list[str]) -> bool:
    """What ``grade`` would say: by the same functions, on what is there now."""
    problems = folder_problems(folder, names, listed)
    if any(problem.fatal for problem in problems):
        return False
    try:
        for name in names:
            notebook = read_notebook(folder / f"{name}.ipynb")
            problems += notebook_problems(f"{name}.ipynb", notebook, truth(course, assignment, name))
    except ValueError:
        return False
    return not any(problem.fatal for problem in problems)


def truth(course: Course, assignment: str, name: str) -> Mapping[str, Original]:
    """The released cells of a notebook, as students see them: from the gradebook, if it has them, or the release."""
    key = (course.root, assignment, name)
    if key not in _TRUTH:
        _TRUTH[key] = _truth(course, assignment, name)
    return _TRUTH[key]


_TRUTH: dict[tuple[Path, str, str], Mapping[str, Original]] = {}


def _truth(course: Course, assignment: str, name: str) -> Mapping[str, Original]:
    url = course.dirs.db_url
    if not url.startswith("sqlite:///") or Path(url.removeprefix("sqlite:///")).exists():  # else it would be made
        try:
            with course.gradebook() as gradebook:
                return {key: shown(cell) for key, cell in originals(gradebook, course.dirs, assignment, name).items()}
        except MissingEntry:
            pass
    for step in (course.dirs.release_directory, course.dirs.source_directory):
        path = course.root / step / assignment / f"{name}.ipynb"
        if path.is_file():
            return {key: shown(cell) for key, cell in doctor.released(doctor.read(path)[0]).items()}
    raise CourseError(f"there is no {name}.ipynb in {course.dirs.source_directory}/{assignment}/")
