"""A course folder with nbgrader's parts opened on it: gradebook, grading of one submission, scores."""

import glob
import logging
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nbformat import NotebookNode
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.apps import NbGrader
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.converters.base import NbGraderException
from nbgrader.utils import is_grade, is_solution

from .preprocess import originals
from .report import Lost, check_name, why
from .submission import Problem, folder_problems, outcome_problems, read_notebook, restore


class CourseError(Exception):
    """Something that keeps a whole command from running; its text is one line with a remedy."""


class _LastLine(logging.Handler):
    """Remembers the exception that nbgrader logs as the last line of a traceback."""

    line = "no reason given"

    def emit(self, record: logging.LogRecord) -> None:
        lines = record.getMessage().strip().splitlines()
        if lines and lines[0].startswith("Traceback"):
            self.line = lines[-1][:200]


class Course:
    """A course folder: nbgrader's configuration, its gradebook and its converters, in this process."""

    def __init__(self, root: Path, verbose: bool = False) -> None:
        self.root = root.resolve()
        if not (self.root / "nbgrader_config.py").is_file():
            raise CourseError(
                f"{self.root} is not a course folder (no nbgrader_config.py): run this from the course's root"
            )
        self._check_gradebook()
        self.app = NbGrader()
        self.app.log_level = logging.INFO if verbose else logging.ERROR
        argv, sys.argv = sys.argv, sys.argv[:1]  # traitlets would read ours
        try:
            self.app.initialize([], root=str(self.root))
        finally:
            sys.argv = argv
        self._errors = _LastLine()
        if not verbose:
            self.app.log.handlers.clear()
        self.app.log.addHandler(self._errors)
        self.dirs = self.app.coursedir
        self.dirs.root = str(self.root)

    @property
    def assignments(self) -> list[str]:
        """The sets that have a source notebook, in order."""
        return sorted({path.parent.name for path in (self.root / self.dirs.source_directory).glob("*/*.ipynb")})

    def find(self, name: str) -> str:
        """The assignment that ``name`` means: ``01_relu`` or ``relu``."""
        for assignment in self.assignments:
            if name in (assignment, assignment.partition("_")[2]):
                return assignment
        raise CourseError(f"there is no set {name!r}; there are: {', '.join(self.assignments) or 'none'}")

    def notebooks(self, assignment: str) -> list[str]:
        """The names of an assignment's notebooks."""
        return sorted(path.stem for path in self._folder(self.dirs.source_directory, ".", assignment).glob("*.ipynb"))

    def students(self, assignment: str) -> list[str]:
        """Those who handed something in."""
        folders = self.root.glob(f"{self.dirs.submitted_directory}/*/{assignment}")
        return sorted(path.parent.name for path in folders)

    def gradebook(self) -> Gradebook:
        """nbgrader's gradebook; close it by ``with``."""
        return Gradebook(self.dirs.db_url, self.dirs.course_id)

    def register(self, assignment: str) -> None:
        """Put the cells into the gradebook as ``nbgrader generate_assignment`` does, but leave ``exercises/`` alone."""
        with tempfile.TemporaryDirectory() as folder, self._directories(release_directory=folder):
            try:
                self._start(GenerateAssignment, assignment, ".", force=True)
            except NbGraderException:
                raise CourseError(
                    f"nbgrader cannot take {assignment} from {self.dirs.source_directory}/ (changed since the first "
                    f"submission was graded?): see `nbgrader generate_assignment {assignment}`"
                ) from None

    def grade(self, assignment: str, student: str, force: bool = False) -> tuple[bool, list[Problem]]:
        """Grade one submission with nbgrader's autograde, unless it is graded already.

        Returns:
            Whether cells were executed, and what is wrong with the submission (the same the second time).
        """
        folder = self._folder(self.dirs.submitted_directory, student, assignment)
        names = self.notebooks(assignment)
        listed = [path.name for path in self._folder(self.dirs.source_directory, ".", assignment).iterdir()]
        problems = folder_problems(folder, names, listed)
        fatal = any(problem.fatal for problem in problems)
        for name in [] if fatal else names:
            try:
                notebook = read_notebook(folder / f"{name}.ipynb")
            except ValueError as error:
                problems.append(Problem(f"{name}.ipynb", str(error), "Ask for a new one.", fatal=True))
                fatal = True
                continue
            with self.gradebook() as gradebook:
                known = originals(gradebook, self.dirs, assignment, name)
            problems += [Problem(f"{name}.ipynb", *said) for said in restore(notebook, known)]
        if fatal:
            return False, problems
        if done := force or not self._is_graded(assignment, student):
            try:
                self._start(Autograde, assignment, glob.escape(student), force=True)
            except NbGraderException:
                remedy = f"See `nbgrader autograde {assignment} --student {student} --force`."
                what = f"nbgrader gave up on it ({self._errors.line})"
                return True, [*problems, Problem(f"{names[0]}.ipynb", what, remedy, fatal=True)]
        for name in names:
            graded = self.graded_notebook(assignment, student, name)
            problems += [Problem(f"{name}.ipynb", *said) for said in outcome_problems(graded)]
        return done, problems

    def feedback(self, assignment: str) -> None:
        """Write the feedback of everybody whose submission is graded."""
        self._start(GenerateFeedback, assignment, "*", force=True)

    def graded_notebook(self, assignment: str, student: str, name: str) -> NotebookNode:
        """A submission's notebook after grading."""
        return read_notebook(self._folder(self.dirs.autograded_directory, student, assignment) / f"{name}.ipynb")

    def scores(self) -> tuple[dict[str, dict[str, float | None]], dict[str, float]]:
        """Score by student and assignment (None: not graded), and what each assignment is worth."""
        with self.gradebook() as gradebook:
            most = {a.name: a.max_score for a in sorted(gradebook.assignments, key=lambda a: a.name)}
            rows: dict[str, dict[str, float | None]] = {student.id: {} for student in gradebook.students}
            for assignment in most:
                for student in self.students(assignment):
                    rows.setdefault(student, {})[assignment] = None
                for submission in gradebook.assignment_submissions(assignment):
                    graded = self._folder(self.dirs.autograded_directory, submission.student_id, assignment).is_dir()
                    rows[submission.student_id][assignment] = submission.score if graded else None
        return rows, most

    def lost(self, assignment: str, student: str) -> list[Lost]:
        """A line on each test cell of a graded submission that did not give all its points."""
        found = []
        for name in self.notebooks(assignment):
            notebook = self.graded_notebook(assignment, student, name)
            with self.gradebook() as gradebook:
                grades = {g.name: g for g in gradebook.find_submission_notebook(name, assignment, student).grades}
                tasks = [cell.metadata.nbgrader.grade_id for cell in filter(is_solution, notebook.cells)]
                for cell in filter(is_grade, notebook.cells):
                    grade = grades[cell.metadata.nbgrader.grade_id]
                    if grade.score < grade.max_score:
                        check = check_name(grade.name, tasks)
                        found.append(Lost(student, assignment, check, grade.score, grade.max_score, why(cell)))
        return found

    def _is_graded(self, assignment: str, student: str) -> bool:
        """Whether all is in place: a notebook younger than the one handed in, and every grade in the gradebook."""
        for name in self.notebooks(assignment):
            after = self._folder(self.dirs.autograded_directory, student, assignment) / f"{name}.ipynb"
            before = self._folder(self.dirs.submitted_directory, student, assignment) / f"{name}.ipynb"
            if not after.is_file() or after.stat().st_mtime < before.stat().st_mtime:
                return False
            with self.gradebook() as gradebook:
                try:
                    grades = gradebook.find_submission_notebook(name, assignment, student).grades
                except MissingEntry:
                    return False
                if any(grade.auto_score is None and grade.manual_score is None for grade in grades):
                    return False
        return True

    def _folder(self, step: str, student: str, assignment: str) -> Path:
        return Path(self.dirs.format_path(step, student, assignment))

    def _start(self, kind: type, assignment: str, student: str, force: bool) -> None:
        with self._directories(assignment_id=assignment, student_id=student):
            converter = kind(coursedir=self.dirs, parent=self.app)
            converter.force = force
            converter.start()

    @contextmanager
    def _directories(self, **changed: str) -> Iterator[None]:
        before = {name: getattr(self.dirs, name) for name in changed}
        try:
            for name, value in changed.items():
                setattr(self.dirs, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(self.dirs, name, value)

    def _check_gradebook(self) -> None:
        """Refuse the database that nbgrader leaves when `alembic` is not found; it would go on with it."""
        path = self.root / "gradebook.db"
        if not path.exists():
            return
        try:
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
                tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                version = "alembic_version" in tables and database.execute("SELECT * FROM alembic_version").fetchone()
        except sqlite3.DatabaseError as error:
            raise CourseError(f"gradebook.db cannot be read ({error}): restore a copy of it or move it away") from None
        if tables and not version:
            raise CourseError(
                "gradebook.db is half made (no alembic version): move it away, and grading makes a new one"
            )
