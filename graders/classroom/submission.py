"""A submission, from its folder to what can be executed: read once, repaired once, or refused.

What a notebook by itself tells, and how it is repaired, is in ``graders/notebook/``, which students have too.
"""

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.utils import parse_utc

from graders.classroom.released import Cells, Released, sanitise
from graders.engine.errors import Overspent
from graders.notebook import cells, form
from graders.notebook.cells import Original, claimed
from graders.notebook.codes import Code
from graders.notebook.files import KEPT, no_file, read_bytes, resembles
from graders.notebook.problem import Problem, Unreadable, printable

TOLD = (
    "timestamp.txt",
    "submission_secret.txt",
)  # files that nbgrader's exchange adds: when, and for whom the feedback is
STUDY = ".study.json"  # the coach's file on what its owner has tried: read by `report` alone, where it was handed in
LEFT_BEHIND = {*TOLD, STUDY, ".DS_Store", ".ipynb_checkpoints", "__pycache__", KEPT}
MAX_FILES = 200  # files and folders of a submission


@dataclass(frozen=True)
class Submission:
    """What a student handed in for a set.

    Args:
        student: the name of the student's folder.
        assignment: the set's.
        folder: where it lies.
        notebooks: the names that the set's notebooks have.
    """

    student: str
    assignment: str
    folder: Path
    notebooks: tuple[str, ...]

    def __str__(self) -> str:
        return f"{printable(self.student, 60)}: {printable(self.assignment, 60)}"


@dataclass(frozen=True)
class Ready:
    """A notebook that was read, repaired and sanitised.

    Args:
        text: its JSON.
        digest: what tells it from one that would be graded in another way.
    """

    text: str
    digest: str


@dataclass(frozen=True)
class Prepared:
    """A submission that can be executed.

    Args:
        submission: where it comes from.
        notebooks: all of the set's, by name.
        time: when it was handed in, UTC without a zone; None: it does not say.
        problems: what was wrong with it, and was repaired or left out.
    """

    submission: Submission
    notebooks: Mapping[str, Ready]
    time: datetime | None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Refused:
    """A submission that cannot be graded; at least one of the problems is fatal."""

    submission: Submission
    problems: tuple[Problem, ...]


def prepare(submission: Submission, released: Released) -> Prepared | Refused:
    """Read and repair what was handed in.

    Args:
        submission: where it lies.
        released: the set.
    """
    problems = folder_problems(submission.folder, released.cells, released.files)
    ready = {}
    for name, known in {} if any(problem.fatal for problem in problems) else released.cells.items():
        file = f"{name}.ipynb"
        try:
            notebook = read_notebook(submission.folder / file)
        except Unreadable as error:
            problems.append(error.problem)
            continue
        found = notebook_problems(file, notebook, known)
        problems += found
        if not any(problem.fatal for problem in found):
            number = digest(notebook, known)
            sanitise(notebook, known, released.kernels[name])
            ready[name] = Ready(json.dumps(notebook), number)
    if any(problem.fatal for problem in problems):
        return Refused(submission, tuple(problems))
    return Prepared(submission, ready, handed_in(submission.folder), tuple(problems))


def not_read(name: str, error: Exception) -> Problem:
    """Return the problem of a submission, or a file of it, that cannot be read within the limits, or at all."""
    how = str(error) if isinstance(error, Overspent) else f"fails ({type(error).__name__}: {error})"
    what, remedy = (
        f"cannot be read: that {how}",
        "Look at its text, its size and its metadata, and ask for a plain one.",
    )
    return Problem(Code.NOT_READ, name, what, remedy, fatal=True)


def digest(notebook: NotebookNode, known: Cells) -> str:
    """Return what tells a repaired notebook from one that would be graded in another way, whatever its outputs are."""
    found = []
    for cell in notebook["cells"]:
        name = claimed(cell)
        source = "" if name and known[name].locked else cell["source"]
        found.append([name, cell["cell_type"], source, cell["metadata"].get("tags")])
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def read_notebook(path: Path, limited: bool = True) -> NotebookNode:
    """Read the notebook at ``path`` in nbformat 4.5; Unreadable has the problem of one that cannot be read."""
    notebook, _ = form.read(path, limited)
    validate(notebook, path.name)
    return nbformat.from_dict(notebook)


def validate(notebook: form.Notebook, file: str) -> None:
    """Refuse what nbconvert would refuse in the middle of grading, by Unreadable."""
    bare = [cell | {"outputs": []} if cell["cell_type"] == "code" else cell for cell in notebook["cells"]]
    try:
        nbformat.validate(notebook | {"cells": bare}, relax_add_props=True)
    except nbformat.ValidationError as error:
        raise form.not_a_notebook(file, printable(str(error).splitlines()[0], 100)) from None


def notebook_problems(file: str, notebook: NotebookNode, originals: Mapping[str, Original]) -> list[Problem]:
    """Repair the released cells of a notebook that is to be graded, and list what was wrong; deleted answers too.

    nbgrader's ``OverwriteCells`` then puts the locked text back, where it is another than that of the gradebook.
    """
    if other := cells.of_another_set(notebook, originals, file):
        return [other]
    problems = cells.repair(notebook, originals, file)
    notebook["cells"] = nbformat.from_dict(notebook["cells"])
    return problems + cells.deleted_answers(notebook, originals, file)


def files_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of what is in a folder and its folders, links not followed, at most ``MAX_FILES`` and one."""
    waiting, count = [folder], 0
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                count += 1
                path = Path(entry.path)
                yield path.relative_to(folder).as_posix(), path
                if count > MAX_FILES:
                    return
                if entry.is_dir(follow_symlinks=False) and entry.name not in LEFT_BEHIND:
                    waiting.append(path)


def folder_problems(folder: Path, notebooks: Iterable[str], listed: Iterable[str] = ()) -> list[Problem]:
    """List what is wrong with the files of a submission: links, surplus files, notebooks that are not there.

    ``notebooks`` are the names that the assignment consists of, ``listed`` its other files.
    """
    wanted = [f"{name}.ipynb" for name in notebooks]
    inside = f"{folder.name}/"
    for place, name in ((folder, inside), (folder.parent, f"{folder.parent.name}/")):
        if place.is_symlink():
            what, remedy = "the folder is a symbolic link", "Put the folder itself there."
            return [Problem(Code.LINKED_FOLDER, name, what, remedy, fatal=True)]
    if not folder.is_dir():
        remedy = f"Replace it with a folder containing {' and '.join(wanted)}."
        return [Problem(Code.NOT_A_FOLDER, folder.name, "is not a folder", remedy, fatal=True)]
    try:
        files = list(files_in(folder))
    except OSError as error:
        return [unreadable_folder(inside, error)]
    if len(files) > MAX_FILES:
        what, remedy = f"holds more than {MAX_FILES} files", f"Keep only {', '.join(wanted)}."
        return [Problem(Code.TOO_MANY_FILES, inside, what, remedy, fatal=True)]
    problems: list[Problem] = []
    others = []
    for name, path in files:
        reason = no_file(path)
        if reason and (reason.code is not Code.FOLDER or name in wanted):
            remedy = f"Ask for the {'notebook' if reason.code is Code.FOLDER else 'file'} itself."
            problems.append(Problem(reason.code, name, reason.what, remedy, fatal=True))
        elif not reason and name not in {*wanted, *listed} and not LEFT_BEHIND & set(Path(name).parts):
            others.append(name)
    there = {name for name, _ in files}
    for name in wanted:
        if name not in there:
            near = misnamed(name, others)
            others = [other for other in others if other not in near]
            problems.append(_missing(folder, name, near, others))
    if time := time_problem(folder):
        problems.append(time)
    what, remedy = "is not part of the assignment", "It is left out of grading and feedback."
    return problems + [Problem(Code.SURPLUS_FILE, name, what, remedy) for name in others]


def unreadable_folder(name: str, error: OSError) -> Problem:
    """Return the problem of a folder that the system does not let be read."""
    what = f"cannot be read ({error.strerror})"
    return Problem(Code.UNREADABLE_FOLDER, name, what, "Check its permissions.", fatal=True)


def misnamed(wanted: str, others: Iterable[str]) -> list[str]:
    """Return the files that a missing notebook may be, its name off by case, a number, a folder."""
    return [name for name in others if resembles(wanted, name.rpartition("/")[2])]


def _missing(folder: Path, name: str, near: list[str], others: Iterable[str]) -> Problem:
    if len(near) == 1:
        what = f"is missing; there is {near[0]!r} instead"
        remedy = f"Rename it, or let `{_doctor(folder)}` do so, and grade again."
        return Problem(Code.NOTEBOOK_MISNAMED, name, what, remedy, fatal=True)
    if near:
        what = f"is missing; there are {' and '.join(map(repr, near[:3]))}"
        remedy = f"Rename the right one to {name} and grade again."
        return Problem(Code.NOTEBOOK_MISNAMED, name, what, remedy, fatal=True)
    rest = [other for other in others if other.endswith(".ipynb")]
    hint = f"; there is {rest[0]!r}" if rest else ""
    return Problem(Code.NOTEBOOK_MISSING, name, f"is missing{hint}", "Ask for it and grade again.", fatal=True)


def _doctor(folder: Path) -> str:
    """Return the command that examines a submission; paths are from the course's folder."""
    return f"python -m graders doctor {shlex.quote('/'.join(folder.parts[-3:]))}"


def read_time(path: Path) -> datetime | None:
    """Return the time in a ``timestamp.txt``, UTC without a zone; None if it is empty, ValueError if it is no time."""
    text = read_bytes(path, 100).decode().strip()
    try:
        return parse_utc(text) if text else None
    except (OverflowError, TypeError, AttributeError) as error:  # what dateutil raises for some texts
        raise ValueError(str(error)) from None


def time_problem(folder: Path) -> Problem | None:
    """Return what is wrong with ``timestamp.txt``: with one that it cannot read, nbgrader stops the class."""
    path = folder / "timestamp.txt"
    reason = no_file(path)
    if not os.path.lexists(path) or (reason and reason.code is not Code.FOLDER):
        return None  # links and devices are named already
    with suppress(ValueError):
        time = read_time(path)
        if time and time > datetime.now(UTC).replace(tzinfo=None) + timedelta(days=1):
            what, remedy = f"says {time:%Y-%m-%d %H:%M} UTC, which has not come yet", "Write the right time there."
            return Problem(Code.FUTURE_TIME, path.name, what, remedy)
        return None
    remedy = f"`{_doctor(folder)}` writes one from the time of the notebook."
    what = "does not contain the time of submission"
    return Problem(Code.MALFORMED_TIME, path.name, what, remedy, fatal=True)


def handed_in(folder: Path) -> datetime | None:
    """Return the time of a submission; None where there is none to be read: see `time_problem`."""
    with suppress(ValueError):
        return read_time(folder / "timestamp.txt")
    return None
