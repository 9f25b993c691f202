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
from datetime import datetime
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.utils import parse_utc

from graders.classroom.released import Cells, Released, sanitise
from graders.notebook import cells, form
from graders.notebook.cells import Original, claimed
from graders.notebook.doctor import remedy
from graders.notebook.files import KEPT, no_file, read_bytes, resembles
from graders.notebook.problem import Problem, Said, printable

LEFT_BEHIND = {"timestamp.txt", ".DS_Store", ".ipynb_checkpoints", "__pycache__", "submission_secret.txt", KEPT}
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
        return f"{printable(self.student)}, {self.assignment}"


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
        except ValueError as error:
            problems.append(Problem(file, str(error), remedy(str(error)), fatal=True))
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


def digest(notebook: NotebookNode, known: Cells) -> str:
    """Return what tells a repaired notebook from one that would be graded in another way, whatever its outputs are."""
    found = []
    for cell in notebook["cells"]:
        name = claimed(cell)
        source = "" if name and known[name].locked else cell["source"]
        found.append([name, cell["cell_type"], source, cell["metadata"].get("tags")])
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def read_notebook(path: Path, limited: bool = True) -> NotebookNode:
    """The notebook at ``path``, in nbformat 4.5; ValueError says in one line why it is none. See ``form.read``."""
    notebook, _ = form.read(path, limited)
    check(notebook)
    return nbformat.from_dict(notebook)


def check(notebook: form.Notebook) -> None:
    """Refuse what nbconvert would refuse in the middle of grading: ValueError says in one line what."""
    bare = [cell | {"outputs": []} if cell["cell_type"] == "code" else cell for cell in notebook["cells"]]
    try:
        nbformat.validate(notebook | {"cells": bare}, relax_add_props=True)
    except nbformat.ValidationError as error:
        raise ValueError(f"is JSON but not a notebook ({printable(str(error).splitlines()[0], 100)})") from None


def restore(notebook: NotebookNode, originals: Mapping[str, Original]) -> list[Said]:
    """Repair the released cells of a notebook that is to be graded; (what, remedy) pairs, deleted answers too."""
    said = cells.repair(notebook, originals)
    notebook["cells"] = nbformat.from_dict(notebook["cells"])
    return said + cells.deleted_answers(notebook, originals)


def notebook_problems(file: str, notebook: NotebookNode, originals: Mapping[str, Original]) -> list[Problem]:
    """What is wrong with the cells of a notebook that was read; as a side effect they are repaired."""
    if other := cells.of_another_set(notebook, originals):
        return [Problem(file, other, remedy(other), fatal=True)]
    return [Problem(file, *said) for said in restore(notebook, originals)]


def files_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names and paths of what is in a folder and its folders, links not followed, at most ``MAX_FILES`` and one."""
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
    """What is wrong with the files of a submission: links, files nobody asked for, notebooks that are not there.

    ``notebooks`` are the names that the assignment consists of, ``listed`` its other files.
    """
    wanted = [f"{name}.ipynb" for name in notebooks]
    for place, name in ((folder, f"{folder.name}/"), (folder.parent, f"{folder.parent.name}/")):
        if place.is_symlink():
            return [Problem(name, "the folder is a symbolic link", "Put the folder itself there.", fatal=True)]
    if not folder.is_dir():
        return [Problem(folder.name, "is no folder", f"Make it one, with {', '.join(wanted)} in it.", fatal=True)]
    try:
        files = list(files_in(folder))
    except OSError as error:
        return [Problem(f"{folder.name}/", f"cannot be read ({error.strerror})", "Look at its rights.", fatal=True)]
    if len(files) > MAX_FILES:
        what = f"holds more than {MAX_FILES} files"
        return [Problem(f"{folder.name}/", what, f"Keep {', '.join(wanted)}, and no other.", fatal=True)]
    found: list[Problem] = []
    others = []
    for name, path in files:
        reason = no_file(path)
        if reason == "is a folder":
            if name in wanted:
                found.append(Problem(name, "is a folder", "Ask for the notebook itself.", fatal=True))
        elif reason:
            found.append(Problem(name, reason, "Ask for the file itself.", fatal=True))
        elif name not in {*wanted, *listed} and not LEFT_BEHIND & set(Path(name).parts):
            others.append(name)
    there = {name for name, _ in files}
    for name in wanted:
        if name not in there:
            near = misnamed(name, others)
            others = [other for other in others if other not in near]
            found.append(_missing(folder, name, near, others))
    if time := time_problem(folder):
        found.append(time)
    return found + [
        Problem(name, "is not part of the assignment", "It is left out of grading and feedback.") for name in others
    ]


def misnamed(wanted: str, others: Iterable[str]) -> list[str]:
    """The files that a missing notebook may be, its name off by case, a number, a folder."""
    return [name for name in others if resembles(wanted, name.rpartition("/")[2])]


def _missing(folder: Path, name: str, near: list[str], others: Iterable[str]) -> Problem:
    if len(near) == 1:
        remedy = f"Rename it, or let `{_doctor(folder)}` do so, and grade again."
        return Problem(name, f"is missing, there is {near[0]!r} instead", remedy, fatal=True)
    if near:
        what = f"is missing, there are {' and '.join(map(repr, near[:3]))}"
        return Problem(name, what, f"Rename the right one to {name} and grade again.", fatal=True)
    rest = [other for other in others if other.endswith(".ipynb")]
    hint = f", there is {rest[0]!r}" if rest else ""
    return Problem(name, f"is missing{hint}", "Ask for it and grade again.", fatal=True)


def _doctor(folder: Path) -> str:
    """What to type for the doctor to look at a submission; paths are from the course's folder."""
    return f"python -m graders doctor {shlex.quote('/'.join(folder.parts[-3:]))}"


def read_time(path: Path) -> datetime | None:
    """The time in a ``timestamp.txt``, UTC without a zone; None if it is empty, ValueError if it is none."""
    text = read_bytes(path, 100).decode().strip()
    try:
        return parse_utc(text) if text else None
    except (OverflowError, TypeError, AttributeError) as error:  # what dateutil raises for some texts
        raise ValueError(str(error)) from None


def time_problem(folder: Path) -> Problem | None:
    """What is wrong with ``timestamp.txt``: with one that it cannot read, nbgrader stops the class."""
    path = folder / "timestamp.txt"
    if not os.path.lexists(path) or no_file(path) not in (None, "is a folder"):
        return None  # links and devices are named already
    with suppress(ValueError):
        read_time(path)
        return None
    remedy = f"`{_doctor(folder)}` writes one from the time of the notebook."
    return Problem(path.name, "is not the time at which it was handed in", remedy, fatal=True)


def handed_in(folder: Path) -> datetime | None:
    """The time of a submission; None where there is none to be read: see `time_problem`."""
    with suppress(ValueError):
        return read_time(folder / "timestamp.txt")
    return None
