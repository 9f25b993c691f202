"""nbgrader's gradebook and the graded notebooks beside it: what they hold of a set, how a submission is recorded."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from shutil import copy, rmtree

import nbformat
from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbformat.v4.rwbase import rejoin_lines
from nbgrader.api import Gradebook, MissingEntry, SubmittedNotebook
from nbgrader.converters import Autograde
from nbgrader.preprocessors import AssignLatePenalties, CheckCellMetadata, Execute, SaveAutoGrades
from nbgrader.utils import find_all_files, is_grade
from traitlets.utils.importstring import import_item

from graders.classroom.course import Course
from graders.classroom.mark import MARK, Mark
from graders.classroom.nbgrader_steps import TrustedExecute, save_grades
from graders.classroom.outcome import causes, outcome_problems
from graders.classroom.released import Released, originals
from graders.classroom.report import Lost, checks_of, verdict_of, why
from graders.classroom.submission import Prepared, Submission
from graders.engine.outcome import take_events
from graders.notebook.problem import Problem, printable

OURS = (Execute, TrustedExecute, SaveAutoGrades, AssignLatePenalties, CheckCellMetadata)  # steps that are done here


class Records:
    """What is recorded of a class: rows of the gradebook, and the notebooks in ``autograded/``.

    Args:
        course: the course.
    """

    def __init__(self, course: Course) -> None:
        self.course = course
        self._known = cache(self.released)  # by set, for what is read of many students

    @cached_property
    def _gradebook(self) -> Gradebook:
        """Opened once: opening takes as long as grading a small notebook."""
        return self.course.gradebook()

    def close(self) -> None:
        """Close the gradebook."""
        if gradebook := self.__dict__.pop("_gradebook", None):
            gradebook.close()

    def __enter__(self) -> "Records":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[Gradebook]:
        """Give the gradebook; no transaction stays open behind it."""
        try:
            yield self._gradebook
        finally:
            self._gradebook.db.rollback()

    def released(self, assignment: str) -> Released:
        """Return a registered set as the gradebook holds it.

        Raises:
            MissingEntry: it is not registered.
        """
        source = self.course.source(assignment)
        with self._reading() as gradebook:
            cells, kernels = {}, {}
            for name in self.course.notebooks(assignment):
                cells[name] = originals(gradebook, source / f"{name}.ipynb", assignment)
                kernel = gradebook.find_notebook(name, assignment).kernelspec
                kernels[name] = json.loads(kernel) if kernel else None
        return Released(assignment, cells, kernels, tuple(path.name for path in source.iterdir()))

    # --- one submission ---

    def marks(self, submission: Submission, names: Iterable[str]) -> dict[str, Mark] | None:
        """Return the marks of a submission's notebooks, None unless each has one."""
        found = {name: self._mark(submission, name) for name in names}
        marks = {name: mark for name, mark in found.items() if mark is not None}
        return marks if len(marks) == len(found) else None

    def _mark(self, submission: Submission, name: str) -> Mark | None:
        try:
            data = json.loads(self.course.autograded(submission).joinpath(f"{name}.ipynb").read_bytes())
            return Mark.of(data["metadata"][MARK])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # not there, cut off by a kill, not ours
            return None

    def is_graded(self, prepared: Prepared) -> bool:
        """Return whether all is in place: marks of the very files, the submission's time, each grade in its row."""
        submission = prepared.submission
        marks = self.marks(submission, prepared.notebooks)
        if marks is None or any(marks[name].graded != ready.digest for name, ready in prepared.notebooks.items()):
            return False
        with self._reading() as gradebook:
            try:
                row = gradebook.find_submission(submission.assignment, submission.student)
            except MissingEntry:
                return False
            if prepared.time and row.timestamp != prepared.time:
                return False
            grades = [grade for notebook in row.notebooks for grade in notebook.grades]
            return all(grade.auto_score is not None or grade.manual_score is not None for grade in grades)

    def score(self, submission: Submission) -> float | None:
        """Return the score of a submission whose grading was finished, None where none was."""
        if self.marks(submission, self.course.notebooks(submission.assignment)) is None:
            return None
        with self._reading() as gradebook:
            try:
                return gradebook.find_submission(submission.assignment, submission.student).score
            except MissingEntry:
                return None

    def record(self, prepared: Prepared, executed: dict[str, NotebookNode]) -> list[Problem]:
        """Record a graded submission: one transaction a notebook, then the files, the marks in them.

        Args:
            prepared: the submission.
            executed: its notebooks by name, as the engine gave them back; they are changed.

        Returns:
            What a person should know of how it ran.
        """
        submission = prepared.submission
        converter = self._converter(submission)
        converter.run_pre_convert_hook()
        self.forget(submission)
        marks = {}
        for name, notebook in executed.items():
            events = tuple(take_events(notebook))
            found = outcome_problems(f"{name}.ipynb", notebook, events)
            marks[name] = Mark(prepared.notebooks[name].digest, tuple(found), events)
            executed[name], _ = self._further_steps(converter, notebook, self._resources(submission, name))
        self._save(prepared, executed, converter)
        folder = self._copy_files(submission, converter)
        for name, notebook in executed.items():
            notebook.metadata[MARK] = marks[name].as_data()
            _write(folder / f"{name}.ipynb", nbformat.writes(notebook) + "\n")
        converter.set_permissions(submission.assignment, submission.student)
        converter.run_post_convert_hook()
        return [problem for mark in marks.values() for problem in mark.problems]

    def forget(self, submission: Submission) -> None:
        """Remove the graded notebooks of a submission; what the gradebook holds stays."""
        rmtree(self.course.autograded(submission), ignore_errors=True)

    def _converter(self, submission: Submission) -> Autograde:
        """Return nbgrader's autograde for one submission: it carries the configuration and is never started."""
        dirs = self.course.directories(assignment_id=submission.assignment, student_id=submission.student)
        converter = Autograde(coursedir=dirs, parent=self.course.app)
        converter.notebooks = [str(submission.folder / f"{name}.ipynb") for name in submission.notebooks]
        return converter

    def _resources(self, submission: Submission, name: str) -> ResourcesDict:
        """Return what nbgrader's steps are told of a notebook."""
        about = {
            "student": submission.student,
            "assignment": submission.assignment,
            "notebook": name,
            "db_url": self.course.dirs.db_url,
        }
        return ResourcesDict(unique_key=name, output_files_dir=f"{name}_files", nbgrader=about)

    def _further_steps(
        self, converter: Autograde, notebook: NotebookNode, resources: ResourcesDict
    ) -> tuple[NotebookNode, ResourcesDict]:
        """Run the configured steps after the execution that are not done here: they limit and clean what is kept."""
        for entry in converter.autograde_preprocessors:
            kind = import_item(entry) if isinstance(entry, str) else entry
            if not (isinstance(kind, type) and issubclass(kind, OURS)):
                step = kind(parent=converter) if isinstance(kind, type) else kind
                notebook, resources = step(notebook, resources)
        return notebook, resources

    def _save(self, prepared: Prepared, executed: Mapping[str, NotebookNode], converter: Autograde) -> None:
        """Save grades, comments and late penalties."""
        student, assignment = prepared.submission.student, prepared.submission.assignment
        gradebook = self._gradebook
        try:
            if converter.create_student:
                gradebook.update_or_create_student(student)
            time = {"timestamp": prepared.time} if prepared.time else {}
            submission = gradebook.update_or_create_submission(assignment, student, **time)
            for name, notebook in executed.items():
                row = gradebook.find_submission_notebook(name, assignment, student)
                save_grades(gradebook, row, notebook)
                row.late_submission_penalty = self._late_penalty(converter, row, student, submission.total_seconds_late)
                gradebook.db.commit()
        except BaseException:
            gradebook.db.rollback()
            raise

    def _late_penalty(self, converter: Autograde, row: SubmittedNotebook, student: str, late: float) -> float | None:
        """Return what the course's plugin takes off, from 0 to the score, as nbgrader's ``AssignLatePenalties``."""
        kinds = [kind for kind in converter.autograde_preprocessors if isinstance(kind, type)]
        kind = next((kind for kind in kinds if issubclass(kind, AssignLatePenalties)), None)
        if kind is None or late <= 0:
            return None
        step = kind(parent=converter)
        step.init_plugin()
        penalty = step.plugin_inst.late_submission_penalty(student, row.score, late)
        return None if penalty is None else min(max(penalty, 0), row.score)

    def _copy_files(self, submission: Submission, converter: Autograde) -> Path:
        """Put the set's other files and the time of the hand-in beside the graded notebook; return the folder."""
        folder, source = self.course.autograded(submission), self.course.source(submission.assignment)
        folder.mkdir(parents=True)
        theirs = set(converter.exclude_overwriting.get(submission.assignment, ()))
        for path in map(Path, find_all_files(str(source), [*self.course.dirs.ignore, "*.ipynb"])):
            name = path.relative_to(source)
            handed_in = submission.folder / name
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy(handed_in if name.as_posix() in theirs and handed_in.is_file() else path, target)
        time = submission.folder / "timestamp.txt"
        if time.is_file():
            copy(time, folder)
        return folder

    # --- the class ---

    def notebook(self, submission: Submission, name: str) -> NotebookNode:
        """Return a submission's notebook after grading."""
        text = self.course.autograded(submission).joinpath(f"{name}.ipynb").read_text(encoding="utf-8")
        return rejoin_lines(nbformat.reads(text, as_version=4))

    def scores(self) -> tuple[dict[str, dict[str, float | None]], dict[str, float]]:
        """Return the score by student and assignment (None: not graded), and what each assignment is worth."""
        with self._reading() as gradebook:
            most = {a.name: a.max_score for a in sorted(gradebook.assignments, key=lambda a: a.name)}
            rows: dict[str, dict[str, float | None]] = {student.id: {} for student in gradebook.students}
            for assignment in most:
                for student in self.course.students(assignment):
                    rows.setdefault(student, {})[assignment] = None
                names = self.course.notebooks(assignment)
                for row in gradebook.assignment_submissions(assignment):
                    submission = self.course.submission(row.student_id, assignment)
                    graded = self.marks(submission, names) is not None
                    rows[row.student_id][assignment] = row.score if graded else None
        return rows, most

    def lines(self, rows: Mapping[str, Mapping[str, float | None]]) -> Iterator[str]:
        """Yield a line on each lost point of the class.

        Args:
            rows: as `scores` returns them.
        """
        for student in sorted(rows):
            for assignment, score in sorted(rows[student].items()):
                if score is None:
                    yield f"{printable(student, 60)}  {assignment}  not graded"
                else:
                    yield from map(str, self.lost(assignment, student))

    def lost(self, assignment: str, student: str) -> list[Lost]:
        """Return a line on each test cell of a graded submission that did not give all its points."""
        submission = self.course.submission(student, assignment)
        found = []
        for name in submission.notebooks:
            notebook, mark = self.notebook(submission, name), self._mark(submission, name)
            blamed = causes(notebook, mark.events if mark else ())
            checks = checks_of(self._known(assignment).cells[name])
            with self._reading() as gradebook:
                grades = {g.name: g for g in gradebook.find_submission_notebook(name, assignment, student).grades}
                for cell in filter(is_grade, notebook.cells):
                    grade = grades[cell.metadata.nbgrader.grade_id]
                    if grade.score < grade.max_score:
                        verdict = verdict_of(cell)
                        task, check = checks.get(grade.name, ("", grade.name))
                        message = why(cell)
                        if task in blamed and (verdict is None or verdict.look == "exists"):
                            message = f"{message.rstrip('.')}. {blamed[task]}"
                        points = grade.score, grade.max_score
                        found.append(Lost(student, assignment, f"{task} {check}".strip(), *points, message))
        return found


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
