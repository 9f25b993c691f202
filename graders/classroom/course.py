"""A course folder with nbgrader's parts opened on it: gradebook, grading of one submission, scores."""

import glob
import json
import logging
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from nbconvert.exporters import Exporter
from nbformat import NotebookNode
from nbformat.v4.rwbase import rejoin_lines
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.apps import NbGrader
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.converters.base import NbGraderException
from nbgrader.utils import is_grade, is_solution
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from graders.classroom import preprocess
from graders.classroom.nbgrader_steps import TrustedExecute
from graders.classroom.report import Lost, check_name, task_of, why
from graders.classroom.submission import (
    Problem,
    cause,
    folder_problems,
    handed_in,
    notebook_problems,
    outcome_problems,
    read_notebook,
)
from graders.engine.job import Job, Settings
from graders.engine.outcome import CELL_TIME
from graders.engine.sandbox import NoMemory
from graders.notebook.codes import Code
from graders.notebook.problem import Unreadable

NO_MEMORY = f"{NoMemory.__module__}.{NoMemory.__name__}: "  # how a traceback ends that is none of a submission's doing


class CourseError(Exception):
    """Something that keeps a whole command from running; its text is one line with a remedy."""


class _LastLine(logging.Handler):
    """Remembers the exception that nbgrader logs as the last line of a traceback."""

    line = "no reason given"

    def emit(self, record: logging.LogRecord) -> None:
        lines = record.getMessage().strip().splitlines()
        if "Traceback (most recent call last):" in lines:  # not always the first: a worker's comes before ours
            self.line = lines[-1][:200]


class Course:
    """A course folder: nbgrader's configuration, its gradebook and its converters, in this process.

    Args:
        root: the folder.
        verbose: whether nbgrader's own log is shown.
        db: the gradebook's URL, in place of the one that is configured.

    Raises:
        CourseError: it is no course folder, or its gradebook cannot be used.
    """

    def __init__(self, root: Path, verbose: bool = False, db: str | None = None) -> None:
        self.root = root.resolve()
        if not (self.root / "nbgrader_config.py").is_file():
            raise CourseError(
                f"{self.root} is not a course folder (no nbgrader_config.py): run this from the course's root"
            )
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
            self.app.log.setLevel(logging.ERROR)
        self.app.log.addHandler(self._errors)
        self.dirs = self.app.coursedir
        self.dirs.root = str(self.root)
        if db:
            self.dirs.db_url = db
        self._check_gradebook()
        self._sanitizer = Autograde(coursedir=self.dirs, parent=self.app)
        kind = self._sanitizer.exporter_class
        kind = type(f"Unwritten{kind.__name__}", (kind,), {"from_notebook_node": Exporter.from_notebook_node})
        self._sanitizer.exporter = kind(parent=self._sanitizer, config=self.app.config)

    @property
    def assignments(self) -> list[str]:
        """The sets that have a source notebook, in order."""
        return sorted({path.parent.name for path in (self.root / self.dirs.source_directory).glob("*/*.ipynb")})

    def find(self, name: str) -> str:
        """The assignment that ``name`` means: ``01_relu``, ``relu``, or ``01_relu/`` as a shell completes it."""
        sets = self.assignments
        for assignment in sets:
            if name.rstrip("/") in (assignment, assignment.partition("_")[2]):
                return assignment
        if not sets:
            folder = self.root / self.dirs.source_directory
            raise CourseError(f"there is no set in {folder}/ (SET/NAME.ipynb): restore that folder from the course")
        raise CourseError(f"there is no set {name!r}; there are: {', '.join(sets)}")

    def notebooks(self, assignment: str) -> list[str]:
        """The names of an assignment's notebooks."""
        return sorted(path.stem for path in self.source(assignment).glob("*.ipynb"))

    def students(self, assignment: str) -> list[str]:
        """Those who handed something in."""
        folders = self.root.glob(f"{self.dirs.submitted_directory}/*/{assignment}")
        return sorted(path.parent.name for path in folders)

    def source(self, assignment: str) -> Path:
        """The folder of a set's notebooks with their solutions."""
        return self._folder(self.dirs.source_directory, ".", assignment)

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
        listed = [path.name for path in self.source(assignment).iterdir()]
        problems = folder_problems(folder, names, listed)
        fatal = any(problem.fatal for problem in problems)
        for name in [] if fatal else names:
            try:
                notebook = read_notebook(folder / f"{name}.ipynb")
            except Unreadable as error:
                problems.append(error.problem)
                fatal = True
                continue
            with self.gradebook() as gradebook:
                known = preprocess.originals(gradebook, self.dirs, assignment, name)
            problems += notebook_problems(f"{name}.ipynb", notebook, known)
            fatal = any(problem.fatal for problem in problems)
        if fatal:
            return False, self._with_earlier(assignment, student, problems)
        if done := force or not self.is_graded(assignment, student):
            self._errors.line = _LastLine.line
            try:
                self._start(Autograde, assignment, glob.escape(student), force=True)
            except NbGraderException:
                code, remedy = Code.NOT_GRADED, f"See `nbgrader autograde {assignment} --student {student} --force`."
                what = f"nbgrader gave up on it ({self._errors.line})"
                if self._errors.line.startswith(NO_MEMORY):
                    code = Code.NO_MEMORY
                    remedy = "It is not graded: free memory where it was graded, use fewer --workers, and run it again."
                    what = self._errors.line.removeprefix(NO_MEMORY)
                return True, [*problems, Problem(code, f"{names[0]}.ipynb", what, remedy, fatal=True)]
        for name in names:
            graded = self.graded_notebook(assignment, student, name)
            for code, what, remedy in outcome_problems(graded):
                problems.append(Problem(code, f"{name}.ipynb", what, remedy))
        return done, problems

    def _with_earlier(self, assignment: str, student: str, problems: list[Problem]) -> list[Problem]:
        """The same, the first that keeps it from being graded saying that the score of an earlier file stays, if so."""
        if not all(self._graded(assignment, student, name) for name in self.notebooks(assignment)):
            return problems
        with self.gradebook() as gradebook:
            try:
                score = gradebook.find_submission(assignment, student).score
            except MissingEntry:
                return problems
        at = next(number for number, problem in enumerate(problems) if problem.fatal)
        stays = f"{problems[at].remedy} Until then the score of what was graded before stays, {score:g}."
        return [*problems[:at], replace(problems[at], remedy=stays), *problems[at + 1 :]]

    @property
    def settings(self) -> Settings | None:
        """The limits that notebooks are executed with; None where nbgrader is configured to do without our engine."""
        step = self._execution()
        return step and step.settings()

    def jobs(self, assignment: str, student: str) -> list[Job]:
        """What grading a submission is going to execute: its notebooks, sanitised in memory as nbgrader will do it.

        None where that cannot be told; nbgrader finds out why when it comes to this submission.
        """
        if not (step := self._execution()):
            return []
        found = []
        nowhere = {"autograded_directory": str(Path("autograded", "nowhere"))}  # nothing of an earlier grading
        with self._directories(assignment_id=assignment, student_id=student, **nowhere):
            self._sanitizer._init_preprocessors()
            try:
                for name in self.notebooks(assignment):
                    path = self._folder(self.dirs.submitted_directory, student, assignment) / f"{name}.ipynb"
                    about = self._sanitizer.init_single_notebook_resources(str(path))
                    found.append(step.job(*self._sanitizer.exporter.from_filename(str(path), resources=about)))
            except Exception:  # whatever a strange notebook makes of nbgrader's steps
                return []
        return found

    def _execution(self) -> TrustedExecute | None:
        steps = self._sanitizer.autograde_preprocessors
        kind = next((step for step in steps if isinstance(step, type) and issubclass(step, TrustedExecute)), None)
        return kind and kind(parent=self._sanitizer.exporter)

    def feedback(self, assignment: str) -> None:
        """Write the feedback of everybody whose submission is graded."""
        self._start(GenerateFeedback, assignment, "*", force=True)

    def graded_notebook(self, assignment: str, student: str, name: str) -> NotebookNode:
        """A submission's notebook after grading."""
        folder = self._folder(self.dirs.autograded_directory, student, assignment)
        return rejoin_lines(read_notebook(folder / f"{name}.ipynb", limited=False))  # outputs are lists of lines there

    def scores(self) -> tuple[dict[str, dict[str, float | None]], dict[str, float]]:
        """Score by student and assignment (None: not graded), and what each assignment is worth."""
        with self.gradebook() as gradebook:
            most = {a.name: a.max_score for a in sorted(gradebook.assignments, key=lambda a: a.name)}
            rows: dict[str, dict[str, float | None]] = {student.id: {} for student in gradebook.students}
            for assignment in most:
                for student in self.students(assignment):
                    rows.setdefault(student, {})[assignment] = None
                for submission in gradebook.assignment_submissions(assignment):
                    graded = all(self._graded(assignment, submission.student_id, n) for n in self.notebooks(assignment))
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
                        check, told = check_name(grade.name, tasks), why(cell)
                        if "NameError: name " in told or CELL_TIME in told:  # of what the answer cell did not get to
                            why_not = cause(notebook, task_of(grade.name, tasks))
                            told = f"{told.rstrip('.')}. {why_not}" if why_not else told
                        found.append(Lost(student, assignment, check, grade.score, grade.max_score, told))
        return found

    def is_graded(self, assignment: str, student: str) -> bool:
        """Whether all is in place: the marked notebook, of the very file and its time, each grade in the gradebook."""
        folder = self._folder(self.dirs.submitted_directory, student, assignment)
        time = handed_in(folder)
        for name in self.notebooks(assignment):
            path = folder / f"{name}.ipynb"
            with self.gradebook() as gradebook:
                try:
                    if time and gradebook.find_submission(assignment, student).timestamp != time:
                        return False
                    known = preprocess.originals(gradebook, self.dirs, assignment, name)
                    if self._graded(assignment, student, name) != preprocess.digest(path, known):
                        return False
                    grades = gradebook.find_submission_notebook(name, assignment, student).grades
                except (MissingEntry, ValueError):  # or a file that cannot be read
                    return False
                if any(grade.auto_score is None and grade.manual_score is None for grade in grades):
                    return False
        return True

    def _graded(self, assignment: str, student: str, name: str) -> str | None:
        """The digest of the file whose grading is finished; None where none is. See `preprocess.SaveGrades`."""
        path = self._folder(self.dirs.autograded_directory, student, assignment) / f"{name}.ipynb"
        try:
            return json.loads(path.read_bytes())["metadata"][preprocess.MARK]["graded"]
        except (OSError, ValueError, KeyError, TypeError):  # not there, cut off by a kill, or executed by nobody yet
            return None

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
        """Refuse a gradebook that cannot be used, and the one that nbgrader leaves when `alembic` is not found."""
        try:
            url = make_url(self.dirs.db_url)
        except ArgumentError:
            raise CourseError(
                f"{self.dirs.db_url!r} is no database URL: sqlite:///FILE, postgresql+psycopg://..."
            ) from None
        tables, version = _sqlite(Path(url.database)) if url.get_backend_name() == "sqlite" else _server(url)
        if tables and not version:
            name = Path(url.database).name if url.get_backend_name() == "sqlite" else f"the database {url.database!r}"
            raise CourseError(f"{name} is half made (no alembic version): move it away, and grading makes a new one")


def _sqlite(path: Path) -> tuple[set[str], object]:
    """The tables of a file, and nbgrader's version in it."""
    if not path.exists():
        return set(), None
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            version = "alembic_version" in tables and database.execute("SELECT * FROM alembic_version").fetchone()
    except sqlite3.DatabaseError as error:
        raise CourseError(f"{path.name} cannot be read ({error}): restore a copy of it or move it away") from None
    return tables, version


def _server(url: URL) -> tuple[set[str], object]:
    """The tables of a database on a server, and nbgrader's version in it."""
    try:
        engine = create_engine(url)
        with engine.connect() as connection:
            tables = set(inspect(connection).get_table_names())
            found = "alembic_version" in tables and connection.execute(text("SELECT * FROM alembic_version")).first()
        engine.dispose()
    except (SQLAlchemyError, ImportError) as error:
        reason = str(error).split("\n")[0][:200]
        remedy = "is the server up, and the URL postgresql+psycopg://USER:PASSWORD@HOST/DATABASE?"
        raise CourseError(f"the gradebook at {url.render_as_string()} cannot be opened ({reason}): {remedy}") from None
    return tables, found
