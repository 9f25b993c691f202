"""nbgrader's gradebook and the graded notebooks beside it: what they hold of a set, how a submission is recorded."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from shutil import copy, copytree, rmtree

from nbformat import NotebookNode
from nbgrader.api import BaseCell, Grade, Gradebook, InvalidEntry, MissingEntry, SubmittedAssignment, SubmittedNotebook
from nbgrader.converters import Autograde
from nbgrader.preprocessors import AssignLatePenalties
from nbgrader.utils import find_all_files
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from graders.classroom.byhand import ByHand, Given
from graders.classroom.course import Course
from graders.classroom.errors import CourseError
from graders.classroom.graded import (
    MOST_ANSWER,
    Executed,
    answers_in,
    converter_of,
    mark_in,
    messages_in,
    notebook_in,
    read_executed,
    verdicts_in,
)
from graders.classroom.held import Cell, Held
from graders.classroom.mark import Mark
from graders.classroom.nbgrader_steps import Grades, save_grades
from graders.classroom.points import worth
from graders.classroom.released import Released, originals
from graders.classroom.report import Lost, checks_of
from graders.classroom.submission import STUDY, TOLD, Prepared, Submission, not_read
from graders.coach.state import read
from graders.engine.errors import Overspent
from graders.judge.verdict import Verdict
from graders.notebook.codes import Code
from graders.notebook.files import no_file, read_bytes
from graders.notebook.problem import Problem, Unreadable, printable

GO_ON = "what was graded before is kept; put that right, and run the same command without --force to continue"
MAX_TOLD = 1000  # bytes of a file of the exchange: a time, or a secret of 128 letters


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

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write to the gradebook within this; what was not committed when it ends is undone.

        Raises:
            CourseError: it cannot be written at all, for nobody.
        """
        try:
            yield
        except (OperationalError, InterfaceError, InvalidEntry) as error:  # the last is nbgrader's, of any of them
            cause = error.__context__ if isinstance(error, InvalidEntry) else error
            if not isinstance(cause, OperationalError | InterfaceError):
                raise
            reason = str(cause.orig).strip().splitlines()[0] if cause.orig else type(cause).__name__
            raise CourseError(f"the gradebook cannot be written ({printable(reason)}): {GO_ON}") from None
        finally:
            with suppress(SQLAlchemyError):
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
        path = self.course.autograded(submission) / f"{name}.ipynb"
        try:
            return self.course.reader.ask(mark_in, path) if path.exists() else None
        except (Overspent, OSError, ValueError, KeyError, TypeError, AttributeError):  # cut off by a kill, not ours
            return None

    def is_graded(self, prepared: Prepared) -> bool:
        """Return whether all is in place: marks of the very files, each grade in its row."""
        submission = prepared.submission
        marks = self.marks(submission, prepared.notebooks)
        if marks is None or any(marks[name].graded != ready.digest for name, ready in prepared.notebooks.items()):
            return False
        with self._reading() as gradebook:
            try:
                row = gradebook.find_submission(submission.assignment, submission.student)
            except MissingEntry:
                return False
            return not _unscored(gradebook, submission.assignment).get(row.id, Unscored()).tests

    def score(self, submission: Submission) -> float | None:
        """Return the score that the gradebook holds of a submission, None where it was never graded as a whole."""
        with self._reading() as gradebook:
            try:
                row = gradebook.find_submission(submission.assignment, submission.student)
                return _score(row, _unscored(gradebook, submission.assignment))
            except MissingEntry:
                return None

    def settle(self, prepared: Prepared) -> bool:
        """Bring time and late penalty of a graded submission up to date: a due date is set at any time.

        Returns:
            Whether its points changed.
        """
        submission = prepared.submission
        gradebook = self._gradebook
        with self._writing():
            row = gradebook.find_submission(submission.assignment, submission.student)
            changed = bool(prepared.time and row.timestamp != prepared.time)
            if changed:
                row.timestamp = prepared.time
                self._copy_told(submission)
            points = self._settle_penalties(submission, row)
            if points or changed:  # not what is dirty: a query in between has flushed it
                gradebook.db.commit()
            return points

    def _settle_penalties(self, submission: Submission, row: SubmittedAssignment) -> bool:
        """Bring the late penalties of a row up to date; return whether one changed."""
        converter, changed = converter_of(self.course, submission), False
        for notebook in row.notebooks:
            late = _late(row)
            penalty = self._late_penalty(converter, notebook.score, submission.student, late)
            if (notebook.late_submission_penalty or 0) != (penalty or 0):
                notebook.late_submission_penalty = penalty
                changed = True
        return changed

    def due(self, assignment: str) -> datetime | None:
        """Return a set's due date in UTC without a zone, None where it has none or was never registered."""
        with self._reading() as gradebook:
            try:
                return gradebook.find_assignment(assignment).duedate
            except MissingEntry:
                return None

    def extend(
        self, assignment: str, student: str, length: timedelta
    ) -> tuple[datetime, datetime | None, float | None, float | None]:
        """Replace a student's extension of a set that has a due date, and settle the late penalties.

        Returns:
            The due date with it, the time of the hand-in, and the score before and after.
        """
        submission, gradebook = self.course.submission(student, assignment), self._gradebook
        before = self.score(submission)
        with self._writing():
            gradebook.update_or_create_student(student)
            row = gradebook.update_or_create_submission(assignment, student)  # one who has not handed in has none
            row.extension = length or None
            gradebook.db.commit()
            if self._settle_penalties(submission, row):
                gradebook.db.commit()
            due, handed_in = row.duedate, row.timestamp
        return due, handed_in, before, self.score(submission)

    def record(self, prepared: Prepared, executed: Mapping[str, str], judged: Mapping[str, str]) -> list[Problem]:
        """Record a graded submission: one transaction a notebook, then the files, the marks in them.

        Args:
            prepared: the submission.
            executed: its notebooks by name, JSON as the engine gave it back.
            judged: the version of the checks, by notebook.

        Returns:
            What a person should know of how it ran.

        Raises:
            Overspent: a notebook cannot be read within the limits; nothing is recorded.
        """
        return self.write(prepared, self.read(prepared, executed, judged))

    def read(self, prepared: Prepared, executed: Mapping[str, str], judged: Mapping[str, str]) -> dict[str, Executed]:
        """Return what is kept of a submission's executed notebooks, by name; nothing is recorded. See `record`."""
        ask = self.course.reader.ask
        return {
            name: ask(read_executed, self.course, prepared, name, text, judged[name]) for name, text in executed.items()
        }

    def write(self, prepared: Prepared, read: Mapping[str, Executed]) -> list[Problem]:
        """Record what `read` returned. See `record`."""
        submission = prepared.submission
        converter = converter_of(self.course, submission)
        converter.run_pre_convert_hook()
        before = self.marks(submission, read) or {}
        same = all(name in before and before[name].graded == prepared.notebooks[name].digest for name in read)
        self.forget(submission)
        self._save(prepared, {name: found.grades for name, found in read.items()}, converter)
        folder = self._copy_files(submission, converter)
        for name, found in read.items():
            _write(folder / f"{name}.ipynb", found.text.encode())
        converter.set_permissions(submission.assignment, submission.student)
        converter.run_post_convert_hook()
        problems = [problem for found in read.values() for problem in found.problems]
        return problems if same else problems + self._by_hand(submission)

    def _by_hand(self, submission: Submission) -> list[Problem]:
        """Return a problem for each score or extra point that a person gave an earlier file and that still counts."""
        found = []
        with self._reading() as gradebook:
            for notebook in gradebook.find_submission(submission.assignment, submission.student).notebooks:
                for grade in notebook.grades:
                    manual, auto, extra = grade.manual_score, grade.auto_score, grade.extra_credit
                    kept = []
                    if manual is not None and auto is not None and manual != auto:
                        kept.append(f"the score given by hand, {manual:g} (the checks say {auto:g})")
                    if extra:
                        kept.append(f"{extra:g} point{'s' * (extra != 1)} of extra credit")
                    if kept:
                        what = f"cell {grade.name} keeps {' and '.join(kept)}"
                        remedy = "It was given for an earlier file: look at it in the formgrader."
                        found.append(Problem(Code.SCORE_BY_HAND, f"{notebook.name}.ipynb", what, remedy))
        return found

    def forget(self, submission: Submission) -> None:
        """Remove the graded notebooks of a submission; what the gradebook holds stays."""
        rmtree(self.course.autograded(submission), ignore_errors=True)

    def _save(self, prepared: Prepared, executed: Mapping[str, Grades], converter: Autograde) -> None:
        """Save grades, comments and late penalties."""
        student, assignment = prepared.submission.student, prepared.submission.assignment
        gradebook = self._gradebook
        with self._writing():
            if converter.create_student:
                gradebook.update_or_create_student(student)
            time = {"timestamp": prepared.time} if prepared.time else {}
            submission = gradebook.update_or_create_submission(assignment, student, **time)
            for name, grades in executed.items():
                row = gradebook.find_submission_notebook(name, assignment, student)
                save_grades(gradebook, row, grades)
                late = _late(submission)
                row.late_submission_penalty = self._late_penalty(converter, row.score, student, late)
                gradebook.db.commit()

    def _late_penalty(self, converter: Autograde, score: float, student: str, late: float) -> float | None:
        """Return what the course's plugin takes off, from 0 to the score, as nbgrader's ``AssignLatePenalties``."""
        kinds = [kind for kind in converter.autograde_preprocessors if isinstance(kind, type)]
        kind = next((kind for kind in kinds if issubclass(kind, AssignLatePenalties)), None)
        if kind is None or late <= 0:
            return None
        step = kind(parent=converter)
        step.init_plugin()
        penalty = step.plugin_inst.late_submission_penalty(student, score, late)
        return None if penalty is None else min(max(penalty, 0), score)

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
        self._copy_told(submission)
        return folder

    def _copy_told(self, submission: Submission) -> None:
        """Put beside the graded notebook what feedback through the exchange needs: the time, the student's secret."""
        for name in TOLD:
            with suppress(Unreadable):  # a link, a pipe, or nothing
                _write(self.course.autograded(submission) / name, read_bytes(submission.folder / name, MAX_TOLD))

    # --- what a grading would change, and how it was ---

    def held(self, submission: Submission) -> dict[str, Held]:
        """Return what the gradebook holds of a submission's notebooks, by name; {} where it holds nothing."""
        with self._reading() as gradebook:
            try:
                row = gradebook.find_submission(submission.assignment, submission.student)
            except MissingEntry:
                return {}
            return {
                notebook.name: Held(
                    {g.name: Cell(g.auto_score, g.manual_score, g.extra_credit or 0.0) for g in notebook.grades},
                    {comment.name: comment.auto_comment for comment in notebook.comments},
                    notebook.late_submission_penalty,
                )
                for notebook in row.notebooks
            }

    def would_hold(self, prepared: Prepared, read: Mapping[str, Executed]) -> dict[str, Held]:
        """Return what the gradebook would hold after `write`."""
        submission = prepared.submission
        converter, found = converter_of(self.course, submission), self.held(submission)
        with self._reading() as gradebook:
            row = gradebook.find_submission(submission.assignment, submission.student)
            row.timestamp = prepared.time or row.timestamp  # undone behind it
            late = _late(row)
        for name, executed in read.items():
            scores, comments = executed.grades.scores, executed.grades.comments
            cells = {key: replace(cell, auto=scores.get(key, cell.auto)) for key, cell in found[name].cells.items()}
            score = sum(cell.score for cell in cells.values())
            penalty = self._late_penalty(converter, score, submission.student, late)
            found[name] = Held(cells, {**found[name].comments, **comments}, penalty)
        return found

    def put_back(self, submission: Submission, held: Mapping[str, Held], folder: Path) -> None:
        """Make the gradebook and ``autograded/`` hold again what they held; scores by hand stay as they are now.

        Args:
            submission: the submission.
            held: what `held` returned then.
            folder: a copy of its folder in ``autograded/`` from then.
        """
        gradebook = self._gradebook
        with self._writing():
            row = gradebook.find_submission(submission.assignment, submission.student)
            for notebook in row.notebooks:
                before = held[notebook.name]
                save_grades(gradebook, notebook, before.grades)
                notebook.late_submission_penalty = before.penalty
                gradebook.db.commit()
        self.forget(submission)
        copytree(folder, self.course.autograded(submission))

    def by_hand(self, assignment: str) -> list[ByHand]:
        """Return the cells of a set that a person grades, of all that is graded."""
        found = []
        with self._reading() as gradebook:
            for row in gradebook.assignment_submissions(assignment):
                for notebook in row.notebooks:
                    said = {comment.name: comment.comment or "" for comment in notebook.comments}
                    for grade in notebook.grades:
                        if grade.name in said:  # a solution that gives points
                            score = None if grade.needs_manual_grade and grade.manual_score is None else grade.score
                            place = (row.student_id, notebook.name, grade.name)
                            found.append(ByHand(*place, grade.max_score, score, said[grade.name]))
        return found

    def give_by_hand(self, assignment: str, given: Sequence[Given]) -> None:
        """Write scores and comments that a person gave: one transaction a student, late penalties with them."""
        gradebook = self._gradebook
        by_student: dict[str, list[Given]] = {}
        for one in given:
            by_student.setdefault(one.of.student, []).append(one)
        for student, ones in by_student.items():
            with self._writing():
                for one in ones:
                    place = (one.of.cell, one.of.notebook, assignment, student)
                    if one.score is not None:
                        grade = gradebook.find_grade(*place)
                        grade.manual_score, grade.needs_manual_grade = one.score, False
                    if one.comment is not None:
                        gradebook.find_comment(*place).manual_comment = one.comment
                row = gradebook.find_submission(assignment, student)
                self._settle_penalties(self.course.submission(student, assignment), row)
                gradebook.db.commit()

    def messages(self, assignment: str, name: str, path: Path) -> dict[str, tuple[str, str, str]]:
        """Return what each test cell of a graded notebook is about, says and refers to: see `messages_in`."""
        return self.course.reader.ask(messages_in, path, checks_of(self._known(assignment).cells[name]))

    # --- the class ---

    def notebook(self, submission: Submission, name: str) -> NotebookNode:
        """Return a submission's notebook after grading."""
        return notebook_in(self.course.autograded(submission) / f"{name}.ipynb")

    def scores(self, only: str = "") -> tuple[dict[str, dict[str, float | None]], dict[str, float]]:
        """Return the score by student and assignment (None: not graded), and what each assignment is worth.

        What the gradebook holds counts, wherever it was graded; a late penalty is taken off, as in nbgrader's export.

        Args:
            only: of this set alone; "": of all that the gradebook knows.
        """
        with self._reading() as gradebook:
            sets = sorted((a for a in gradebook.assignments if only in ("", a.name)), key=lambda a: a.name)
            most = {a.name: a.max_score or self._worth(a.name) for a in sets}
            rows: dict[str, dict[str, float | None]] = {student.id: {} for student in gradebook.students}
            for assignment in most:
                there = self.course.students(assignment)
                for student in there:
                    rows.setdefault(student, {})[assignment] = None
                unscored = _unscored(gradebook, assignment)
                for row in gradebook.assignment_submissions(assignment):
                    if row.extension and not (row.timestamp or row.score or row.student_id in there):
                        continue  # more time, and nothing handed in
                    rows[row.student_id][assignment] = _score(row, unscored)
        return rows, most

    def _worth(self, assignment: str) -> float:
        """Return the points of a set that has a date in the gradebook, and no cells yet."""
        source = self.course.source(assignment)
        paths = [source / f"{name}.ipynb" for name in self.course.notebooks(assignment)]
        return sum(worth(json.loads(path.read_text(encoding="utf-8"))) for path in paths)

    def notes(self, only: str = "") -> list[str]:
        """Return what a person should know of the scores: late penalties, cells that wait for a score by hand."""
        found = []
        with self._reading() as gradebook:
            for assignment in sorted(gradebook.assignments, key=lambda a: a.name):
                if only not in ("", assignment.name):
                    continue
                unscored = _unscored(gradebook, assignment.name)
                for row in sorted(gradebook.assignment_submissions(assignment.name), key=lambda row: row.student_id):
                    if row.late_submission_penalty and _score(row, unscored) is not None:
                        less = min(row.late_submission_penalty, row.score)
                        found.append(f"{row.student_id}  {assignment.name}  {less:g} points less: handed in late.")
                if waiting := sum(not left.tests for left in unscored.values()):
                    some = f"{waiting} submission{'s' * (waiting != 1)}"
                    found.append(f"{assignment.name}: {some} with cells to be graded by hand: open the formgrader.")
        return found

    def times(self, assignment: str) -> dict[str, tuple[datetime | None, datetime | None]]:
        """Return when each submission of a set was handed in and when it was due, its extension included, by student.

        Both in UTC without a zone, as nbgrader has them; None: not known, or no due date.
        """
        with self._reading() as gradebook:
            found = gradebook.assignment_submissions(assignment)
            return {row.student_id: (row.timestamp, _due(row)) for row in found}

    def extensions(self, assignment: str) -> dict[str, timedelta]:
        """Return the extensions of a set, by student."""
        with self._reading() as gradebook:
            rows = gradebook.assignment_submissions(assignment)
            return {row.student_id: row.extension for row in rows if row.extension}

    def set_due(self, assignment: str, due: datetime | None) -> None:
        """Set a set's due date, in UTC without a zone; the set need not be registered yet."""
        with self._writing():
            self._gradebook.update_or_create_assignment(assignment, duedate=due)

    def answers(self, assignment: str, student: str, most: int = MOST_ANSWER) -> dict[str, str]:
        """Return the answer cells of a graded submission by their grade_id; of what cannot be read, nothing.

        Args:
            assignment: the set.
            student: whose.
            most: characters of each.
        """
        submission = self.course.submission(student, assignment)
        found: dict[str, str] = {}
        for name in submission.notebooks:
            with suppress(Exception):  # the others have theirs
                found |= self.course.reader.ask(answers_in, self.course.autograded(submission) / f"{name}.ipynb", most)
        return found

    def tries(self, assignment: str, student: str) -> dict[str, int]:
        """Return how often a student asked the coach, by task, as the student's own file says; {} without that file."""
        path = self.course.submission(student, assignment).folder / STUDY
        if no_file(path):
            return {}
        try:
            tasks = self.course.reader.ask(read, path).tasks
        except Exception:  # a file of the student's, which may be anything
            return {}
        slug = assignment.partition("_")[2]
        return {key.removeprefix(f"{slug}."): one.tries for key, one in tasks.items() if key.startswith(f"{slug}.")}

    def lines(self, rows: Mapping[str, Mapping[str, float | None]]) -> Iterator[str]:
        """Yield a line on each lost point of the class.

        Args:
            rows: as `scores` returns them.
        """
        for student in sorted(rows):
            for assignment, score in sorted(rows[student].items()):
                if score is None:
                    yield f"{printable(student, 60)}  {assignment}  not graded"
                elif self.marks(self.course.submission(student, assignment), self.course.notebooks(assignment)) is None:
                    folder = printable(f"{self.course.dirs.autograded_directory}/{student}/{assignment}/")
                    where = f"{score:g}; the reasons are where it was graded, in {folder}"
                    yield f"{printable(student, 60)}  {assignment}  {where}"
                else:
                    yield from (f"{lost} {lost.see}".rstrip() for lost in self.lost(assignment, student))

    def every_lost(self, rows: Mapping[str, Mapping[str, float | None]]) -> Iterator[Lost]:
        """Yield each lost point of the class of which the reason is here.

        Args:
            rows: as `scores` returns them.
        """
        for student in sorted(rows):
            for assignment, score in sorted(rows[student].items()):
                submission = self.course.submission(student, assignment)
                if score is not None and self.marks(submission, self.course.notebooks(assignment)) is not None:
                    yield from self.lost(assignment, student)

    def verdicts(self, assignment: str, student: str) -> list[Verdict]:
        """Return the verdicts in a graded submission; none where it was graded elsewhere, or cannot be read."""
        submission = self.course.submission(student, assignment)
        if self.marks(submission, submission.notebooks) is None:
            return []
        found: list[Verdict] = []
        for name in submission.notebooks:
            with suppress(Exception):  # the others have theirs
                found += self.course.reader.ask(verdicts_in, self.course.autograded(submission) / f"{name}.ipynb")
        return found

    def lost(self, assignment: str, student: str) -> list[Lost]:
        """Return a line on each test cell of a graded submission that did not give all its points."""
        submission = self.course.submission(student, assignment)
        found = []
        for name in submission.notebooks:
            path = self.course.autograded(submission) / f"{name}.ipynb"
            checks = checks_of(self._known(assignment).cells[name])
            with self._reading() as gradebook:
                grades = {g.name: g for g in gradebook.find_submission_notebook(name, assignment, student).grades}
                try:
                    said = self.course.reader.ask(messages_in, path, checks)
                except Exception as error:  # the others have their lines
                    said = {cell: ("its notebook", str(not_read(path.name, error)), "") for cell in list(grades)[:1]}
                for cell, (check, message, see) in said.items():
                    grade = grades[cell]
                    waits = grade.manual_score is None and grade.auto_score is None
                    if not message:
                        message = "Waits to be graded by hand." if waits else "Graded by hand."
                    elif grade.manual_score is not None:
                        message = f"Given by hand; the checks say {grade.auto_score or 0:g}: {message}"
                    if waits or grade.score < grade.max_score:
                        found.append(Lost(student, assignment, check, grade.score, grade.max_score, message, see))
        return found


@dataclass(frozen=True)
class Unscored:
    """The grade cells of a submission that have no score: those that tests grade, those that a person does."""

    tests: frozenset[str] = frozenset()
    by_hand: frozenset[str] = frozenset()


def _unscored(gradebook: Gradebook, assignment: str) -> dict[str, Unscored]:
    """Return what has no score, by the ids of the submissions of which something has none."""
    notebooks = gradebook.find_assignment(assignment).notebooks
    by_hand = {cell.name for notebook in notebooks for cell in notebook.solution_cells}
    query = gradebook.db.query(SubmittedNotebook.assignment_id, BaseCell.name)
    query = query.join(Grade, Grade.notebook_id == SubmittedNotebook.id).join(BaseCell, Grade.cell_id == BaseCell.id)
    query = query.filter(Grade.auto_score.is_(None), Grade.manual_score.is_(None))
    query = query.filter(SubmittedNotebook.notebook_id.in_([notebook.id for notebook in notebooks]))
    names: dict[str, set[str]] = {}
    for submission, name in query:
        names.setdefault(submission, set()).add(name)
    return {key: Unscored(frozenset(found - by_hand), frozenset(found & by_hand)) for key, found in names.items()}


def _due(row: SubmittedAssignment) -> datetime | None:
    """Return when a submission is due, its extension included; nbgrader's own fails where that alone is left."""
    due: datetime | None = row.assignment.duedate and row.duedate
    return due


def _late(row: SubmittedAssignment) -> float:
    """Return the seconds that a submission is late."""
    late: float = row.total_seconds_late if _due(row) else 0.0
    return late


def _score(row: SubmittedAssignment, unscored: Mapping[str, Unscored]) -> float | None:
    """Return what a submission has earned, late penalties taken off; None where tests have not graded all of it."""
    if row.id in unscored and unscored[row.id].tests:
        return None
    return max(0.0, row.score - (row.late_submission_penalty or 0.0))


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)
