"""What is read of executed and of graded notebooks: students' code has written in them, so this runs in the reader."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbformat.v4.rwbase import rejoin_lines
from nbgrader.converters import Autograde
from nbgrader.preprocessors import AssignLatePenalties, CheckCellMetadata, Execute, SaveAutoGrades
from nbgrader.utils import is_grade, is_solution
from traitlets.utils.importstring import import_item

from graders.classroom.course import Course
from graders.classroom.mark import MARK, Mark
from graders.classroom.nbgrader_steps import Grades, TrustedExecute, grades_of
from graders.classroom.outcome import causes, outcome_problems
from graders.classroom.report import see, verdict_of, why
from graders.classroom.submission import Prepared, Submission
from graders.engine.outcome import take_events
from graders.judge.once import once
from graders.judge.verdict import Verdict
from graders.notebook.problem import Problem

OURS = (
    Execute,
    TrustedExecute,
    SaveAutoGrades,
    AssignLatePenalties,
    CheckCellMetadata,
)  # done elsewhere
MOST_ANSWER = 6000  # characters of an answer that is shown; the longest right one has half of them


def converter_of(course: Course, submission: Submission) -> Autograde:
    """Return nbgrader's autograde for one submission: it carries the configuration and is never started."""
    dirs = course.directories(assignment_id=submission.assignment, student_id=submission.student)
    converter = Autograde(coursedir=dirs, parent=course.app)
    converter.notebooks = [str(submission.folder / f"{name}.ipynb") for name in submission.notebooks]
    return converter


@dataclass(frozen=True)
class Executed:
    """What is kept of an executed notebook.

    Args:
        grades: what it earned.
        problems: what a person should know of how it ran.
        text: the notebook with its mark, as the file in ``autograded/`` has it.
    """

    grades: Grades
    problems: tuple[Problem, ...]
    text: str


def read_executed(course: Course, prepared: Prepared, name: str, text: str, judged: str) -> Executed:
    """Read an executed notebook.

    Args:
        course: with the steps that are configured for it.
        prepared: the submission.
        name: the notebook's.
        text: JSON, as the engine gave it back.
        judged: the version of the checks.
    """
    submission, digest = prepared.submission, prepared.notebooks[name].digest
    notebook = nbformat.reads(text, as_version=4)
    events = tuple(take_events(notebook))
    mark = Mark(digest, tuple(outcome_problems(f"{name}.ipynb", notebook, events)), events, judged)
    about = {
        "student": submission.student,
        "assignment": submission.assignment,
        "notebook": name,
        "db_url": course.dirs.db_url,
    }
    resources = ResourcesDict(unique_key=name, output_files_dir=f"{name}_files", nbgrader=about)
    notebook = _further_steps(converter_of(course, submission), notebook, resources)
    grades = grades_of(notebook)
    notebook.metadata[MARK] = mark.as_data()
    return Executed(grades, mark.problems, nbformat.writes(notebook) + "\n")


def _further_steps(converter: Autograde, notebook: NotebookNode, resources: ResourcesDict) -> NotebookNode:
    """Run the configured steps after the execution that are not done here: they limit and clean what is kept."""
    for entry in converter.autograde_preprocessors:
        kind = import_item(entry) if isinstance(entry, str) else entry
        if not (isinstance(kind, type) and issubclass(kind, OURS)):
            step = kind(parent=converter) if isinstance(kind, type) else kind
            notebook, resources = step(notebook, resources)
    return notebook


def mark_in(path: Path) -> Mark | None:
    """Return the mark of a graded notebook; one that is not ours raises what it likes."""
    return Mark.of(json.loads(path.read_bytes())["metadata"][MARK])


def points_in(path: Path) -> dict[str, float]:
    """Return what each test cell of a graded notebook was worth, by its grade_id."""
    cells = [cell.metadata.nbgrader for cell in notebook_in(path).cells if is_grade(cell) and not is_solution(cell)]
    return {str(cell.grade_id): float(cell.points) for cell in cells}


def notebook_in(path: Path) -> NotebookNode:
    return rejoin_lines(nbformat.reads(path.read_text(encoding="utf-8"), as_version=4))


def messages_in(path: Path, checks: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str, str]]:
    """Return what each test cell of a graded notebook is about, in words, says of its points, and refers to.

    They come by its grade_id. What a person grades says nothing: "". What a verdict says is said once a task.

    Args:
        path: the notebook.
        checks: the task and the check of each test cell.
    """
    notebook = notebook_in(path)
    try:
        mark = mark_in(path)
    except (ValueError, KeyError, TypeError, AttributeError):
        mark = None
    blamed = causes(notebook, mark.events if mark else ())
    cells = [cell for cell in notebook.cells if is_grade(cell)]
    verdicts = {id(cell): verdict for cell in cells if (verdict := verdict_of(cell))}
    lines = dict(zip(verdicts, once(list(verdicts.values())), strict=True))
    found = {}
    for cell in cells:
        name = cell.metadata.nbgrader.grade_id
        if is_solution(cell):
            found[name] = name, "", ""
            continue
        verdict, message = verdicts.get(id(cell)), why(cell)
        own = verdict is not None and message == verdict.message == lines[id(cell)]
        if verdict and message == verdict.message:
            message = lines[id(cell)]
        task, check = checks.get(name, ("", name))
        if task in blamed and (verdict is None or verdict.look == "exists") and (own or verdict is None):
            message = f"{message.rstrip('.')}. {blamed[task]}"
        found[name] = f"{task} {check}".strip(), message, see(verdict.place) if verdict and own else ""
    return found


def verdicts_in(path: Path) -> list[Verdict]:
    """Return the verdicts of a graded notebook, in the order of its test cells."""
    verdicts = map(verdict_of, filter(is_grade, notebook_in(path).cells))
    return [verdict for verdict in verdicts if verdict is not None]


def answers_in(path: Path, most: int = MOST_ANSWER) -> dict[str, str]:
    """Return the answer cells of a graded notebook by their grade_id, the first ``most`` characters of each."""
    cells = [cell for cell in notebook_in(path).cells if is_solution(cell)]
    return {cell.metadata.nbgrader.grade_id: cell.source[:most] for cell in cells}
