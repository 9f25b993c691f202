"""The steps that ``nbgrader autograde`` and the formgrader's button run: thin, on the functions of ``grade``."""

import atexit
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

from nbconvert.exporters import NotebookExporter
from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbgrader.api import Gradebook, SubmittedNotebook
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor, SaveAutoGrades
from nbgrader.utils import compute_checksum, determine_grade, is_grade, is_solution, is_task
from traitlets import Bool, Enum, Integer

from graders.classroom.mark import MARK, Mark
from graders.classroom.outcome import outcome_problems
from graders.classroom.reader import Reader
from graders.classroom.released import Cells, job_of, originals
from graders.classroom.seeds import read_secret, seed_of
from graders.classroom.submission import TOLD, digest, not_read, notebook_problems, read_notebook
from graders.classroom.version import version
from graders.engine.errors import Overspent
from graders.engine.job import Settings
from graders.engine.outcome import take_events
from graders.notebook.files import no_file
from graders.notebook.problem import Problem, Unreadable

Resources = dict[str, Any] | None  # what nbconvert hands from step to step
READER = Reader(None)  # of all that students wrote
atexit.register(READER.close)
Q = ParamSpec("Q")
A = TypeVar("A")


def _read(file: str, function: Callable[Q, A], *args: Q.args, **keywords: Q.kwargs) -> A:
    """Call a function in the reader's process; what it refuses, or takes too long for, is a line about one student."""
    try:
        return READER.ask(function, *args, **keywords)
    except Overspent as error:
        raise NbGraderException(str(not_read(file, error))) from None
    except Unreadable as error:
        raise NbGraderException(str(error.problem)) from None


def _cells(db_url: str, coursedir: CourseDirectory, assignment: str, notebook: str) -> Cells:
    """Return the released cells of a notebook."""
    source = Path(coursedir.format_path(coursedir.source_directory, ".", assignment)) / f"{notebook}.ipynb"
    with Gradebook(db_url) as gradebook:
        return originals(gradebook, source, assignment)


class SubmissionExporter(NotebookExporter):
    """nbconvert's way to a notebook, with the course's way of reading one: limits, and repairs of its form."""

    def from_filename(self, filename: str, resources: Resources = None, **kw: Any) -> tuple[Any, dict[str, Any]]:
        """Convert a notebook; what is not a plain file is not even opened: a pipe would never end."""
        if reason := no_file(Path(filename)):
            raise NbGraderException(f"{filename} {reason}")
        return super().from_filename(filename, resources=resources, **kw)

    def from_file(self, file_stream: IO[str], resources: Resources = None, **kw: Any) -> tuple[Any, dict[str, Any]]:
        """Convert the notebook of an open file, read within limits: ``nbformat.read`` trips over a byte-order mark."""
        converter: Any = self.parent
        path = Path(file_stream.name)
        if converter._sanitizing:
            notebook = _read(path.name, read_notebook, path)
        else:  # nbgrader has written it from what was read
            notebook = read_notebook(path, limited=False)
        return self.from_notebook_node(notebook, resources=resources, **kw)


class CleanSubmission(NbGraderPreprocessor):
    """Refuse symbolic links, drop files that the assignment does not list, restore released cells."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        """Clean up ``nb`` and the folder that nbgrader has copied the submission's other files to."""
        about = resources["nbgrader"]
        coursedir = self.parent.parent.coursedir
        source = Path(coursedir.format_path(coursedir.source_directory, ".", about["assignment"]))
        submitted = Path(coursedir.format_path(coursedir.submitted_directory, about["student"], about["assignment"]))
        copied = Path(coursedir.format_path(coursedir.autograded_directory, about["student"], about["assignment"]))
        if any(path.is_symlink() for path in (submitted.parent, submitted, submitted / f"{about['notebook']}.ipynb")):
            raise NbGraderException(f"{submitted}: symbolic links are not graded")
        for folder, _, names in os.walk(copied):
            for name in names:
                path = Path(folder, name)
                listed = name in TOLD or (source / path.relative_to(copied)).is_file()
                if not listed:
                    self.log.warning("Leaving out %s, which is not part of the assignment", path)
                    path.unlink()
        cells = _cells(about["db_url"], coursedir, about["assignment"], about["notebook"])
        file = f"{about['notebook']}.ipynb"
        nb, problems = _read(file, _repaired, file, nb, cells)
        for problem in problems:
            if problem.fatal:
                raise NbGraderException(f"{about['student']}: {problem}")
            self.log.warning("%s: %s", about["student"], problem)
        return nb, resources


def _repaired(file: str, notebook: NotebookNode, released: Cells) -> tuple[NotebookNode, list[Problem]]:
    """Return a notebook that is repaired and marked, and what was wrong with it; in the reader's process."""
    problems = notebook_problems(file, notebook, released)
    if not any(problem.fatal for problem in problems):
        notebook.metadata[MARK] = {"digest": digest(notebook, released)}
    return notebook, problems


class TrustedExecute(NbGraderPreprocessor):
    """Run the student's cells in a sandbox and the grade cells outside of it.

    Takes the place of nbgrader's ``Execute`` in ``c.Autograde.autograde_preprocessors``.
    """

    timeout = Integer(Settings.cell_time, help="Seconds for one cell.").tag(config=True)
    notebook_timeout = Integer(Settings.notebook_time, help="Seconds for all cells of a notebook.").tag(config=True)
    max_output = Integer(Settings.max_output, help="Characters of output kept per cell.").tag(config=True)
    memory = Integer(Settings.memory, help="Bytes of memory that each process of a notebook may use.").tag(config=True)
    processes = Integer(Settings.processes, help="Processes and threads of a notebook at a time.").tag(config=True)
    disk = Integer(Settings.disk, help="Bytes of files that a notebook may write.").tag(config=True)
    seed = Integer(Settings.seed, help="Seed of the hidden inputs.").tag(config=True)
    visible = Bool(
        False, help="Run the visible checks and figures (check_..., plot_...) too, for the feedback; it takes longer."
    ).tag(config=True)
    sandbox = Enum(
        ("required", "off"),
        "required",
        help="'off': grade without a sandbox. Submitted code can then do everything that you can.",
    ).tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        """Execute ``nb``, and pass on to `SaveGrades` what must not stand in a notebook's metadata meanwhile.

        Raises:
            SandboxError: there is no sandbox, and one is required.
        """
        about = resources["nbgrader"]
        cells = _cells(about["db_url"], self.parent.parent.coursedir, about["assignment"], about["notebook"])
        about["digest"] = nb.metadata.pop(MARK)["digest"]
        settings = self.settings()
        if secret := read_secret(Path(self.parent.parent.coursedir.root)):
            settings = replace(settings, seed=seed_of(secret, about["assignment"], about["student"]))
        about["judged"] = version(about["assignment"], cells, settings.seed)
        from graders.engine.run import execute  # here: torch takes a second, and only this step needs it

        executed = execute(job_of(json.dumps(nb), cells, settings))
        about["events"] = tuple(take_events(executed))
        about["problems"] = tuple(outcome_problems(f"{about['notebook']}.ipynb", executed, about["events"]))
        return executed, resources

    def settings(self) -> Settings:
        """Return the limits, as configured."""
        return Settings(
            cell_time=self.timeout,
            notebook_time=self.notebook_timeout,
            max_output=self.max_output,
            memory=self.memory,
            processes=self.processes,
            disk=self.disk,
            seed=self.seed,
            visible=self.visible,
            sandbox=self.sandbox,
        )


class SaveGrades(SaveAutoGrades):
    """nbgrader's, with all grades of a notebook in one transaction; and the notebook says which file was graded.

    nbgrader writes a notebook into autograded/ before it executes it, and commits each cell's grade on its own: after a
    kill it cannot tell what is finished. The mark is written with the executed notebook, when the grades are in.
    """

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        """Save the grades of ``nb``, mark it."""
        about = resources["nbgrader"]
        with Gradebook(about["db_url"]) as gradebook:
            row = gradebook.find_submission_notebook(about["notebook"], about["assignment"], about["student"])
            save_grades(gradebook, row, grades_of(nb))
        nb.metadata[MARK] = Mark(about["digest"], about["problems"], about["events"], about["judged"]).as_data()
        return nb, resources


@dataclass(frozen=True)
class Grades:
    """What an executed notebook earned.

    Args:
        scores: by grade_id; None: to be graded by hand.
        comments: nbgrader's own, by the grade_id of each answer.
    """

    scores: Mapping[str, float | None]
    comments: Mapping[str, str | None]


def grades_of(notebook: NotebookNode) -> Grades:
    """Return the grades and comments of an executed notebook, as nbgrader's ``SaveAutoGrades`` finds them."""
    scores, comments = {}, {}
    for cell in notebook.cells:
        if is_grade(cell):
            scores[cell.metadata.nbgrader["grade_id"]], _ = determine_grade(cell)
        if is_solution(cell) or is_task(cell):
            meta = cell.metadata.nbgrader
            untouched = meta.get("checksum") == compute_checksum(cell) and not is_task(cell)
            comments[meta["grade_id"]] = "No response." if untouched else None
    return Grades(scores, comments)


def save_grades(gradebook: Gradebook, row: SubmittedNotebook, found: Grades) -> None:
    """Put the grades and comments of an executed notebook into its row, as nbgrader's ``SaveAutoGrades`` does.

    A manual score stays, and then the cell is to be looked at again; all is in one transaction.
    """
    grades = {grade.name: grade for grade in row.grades}
    comments = {comment.name: comment for comment in row.comments}
    for name, score in found.scores.items():
        grades[name].auto_score = score
        grades[name].needs_manual_grade = grades[name].manual_score is not None or score is None
    for name, comment in found.comments.items():
        comments[name].auto_comment = comment
    gradebook.db.commit()
