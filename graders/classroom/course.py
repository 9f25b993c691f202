"""A course folder: its sets, who handed in, nbgrader opened on it with its configuration."""

import json
import logging
import os
import re
import sqlite3
import sys
import tempfile
from collections.abc import Container
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import quote

from nbgrader.api import Gradebook
from nbgrader.apps import NbGrader
from nbgrader.converters import GenerateAssignment
from nbgrader.converters.base import BaseConverter, NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.plugins import LateSubmissionPlugin
from nbgrader.preprocessors import AssignLatePenalties
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from traitlets import TraitError

from graders.classroom.errors import CourseError
from graders.classroom.lateness import LatePolicy
from graders.classroom.nbgrader_steps import TrustedExecute
from graders.classroom.points import differing
from graders.classroom.reader import Reader
from graders.classroom.seeds import read_secret, seed_of
from graders.classroom.submission import Submission
from graders.engine.job import Settings
from graders.notebook.problem import printable

OF_APPENDIX = re.compile(r"[a-z]_\w+")  # the folder of such a set: f_implicit


def optional(assignment: str) -> bool:
    """Return whether a set counts only where a class takes it up: one that belongs to an appendix."""
    return OF_APPENDIX.fullmatch(assignment) is not None


class Course:
    """A course folder, with nbgrader's configuration for it.

    Args:
        root: the folder.
        verbose: whether nbgrader's own log is shown.
        db: the gradebook's URL, in place of the one that is configured.

    Raises:
        CourseError: it is not a course folder, or its gradebook cannot be used.
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
        if not verbose:
            self.app.log.handlers = [logging.NullHandler()]
            self.app.log.setLevel(logging.ERROR)
            logging.getLogger("tornado.application").setLevel(logging.CRITICAL)  # nbgrader's, of a gradebook that fails
        _check_settings(self.app)
        self.dirs: CourseDirectory = self.app.coursedir
        self.dirs.root = str(self.root)
        if db:
            self.dirs.db_url = db
        _check_gradebook(self.dirs.db_url)
        self.reader = Reader(self)  # of all that students wrote
        self.secret = read_secret(self.root)  # b"": one seed is everybody's

    def close(self) -> None:
        """End what it started."""
        self.reader.close()

    @property
    def settings(self) -> Settings:
        """The limits that notebooks are executed within, as configured."""
        return TrustedExecute(config=self.app.config).settings()

    @property
    def late_policy(self) -> str:
        """What a late hand-in loses, in words, as configured."""
        step = AssignLatePenalties(config=self.app.config)
        step.init_plugin()
        told = getattr(step.plugin_inst, "told", None)  # a course may have a plugin of its own
        return told() if told else f"as {type(step.plugin_inst).__name__} has it"

    def directories(self, **others: str) -> CourseDirectory:
        """Return nbgrader's directories of this course for one of its converters, some of them others.

        Args:
            others: traits of nbgrader's ``CourseDirectory``: ``student_id``, ``release_directory`` ...
        """
        return CourseDirectory(parent=self.app, root=self.dirs.root, db_url=self.dirs.db_url, **others)

    # --- sets ---

    @property
    def assignments(self) -> list[str]:
        """The sets that have a source notebook, in order."""
        return sorted({path.parent.name for path in (self.root / self.dirs.source_directory).glob("*/*.ipynb")})

    def taken(self, known: Container[str]) -> list[str]:
        """Return the sets that count in this class: all but the optional ones that nobody has taken up.

        An optional set is taken up by a due date, by a grading (both make it known to the gradebook) or by a hand-in.

        Args:
            known: the sets that the gradebook knows.
        """
        return [a for a in self.assignments if not optional(a) or a in known or self.students(a)]

    def find(self, name: str) -> str:
        """Return the assignment that ``name`` means: ``01_relu``, ``relu``, or ``01_relu/`` as a shell completes it.

        Raises:
            CourseError: there is none.
        """
        sets = self.assignments
        for assignment in sets:
            if name.rstrip("/") in (assignment, assignment.partition("_")[2]):
                return assignment
        if not sets:
            folder = self.root / self.dirs.source_directory
            raise CourseError(f"there is no set in {folder}/ (SET/NAME.ipynb): restore that folder from the course")
        raise CourseError(f"there is no set {name!r}; there are: {', '.join(sets)}")

    def source(self, assignment: str) -> Path:
        """Return the folder of a set's notebooks with their solutions."""
        return self._folder(self.dirs.source_directory, ".", assignment)

    def notebooks(self, assignment: str) -> list[str]:
        """Return the names of a set's notebooks."""
        return sorted(path.stem for path in self.source(assignment).glob("*.ipynb"))

    # --- submissions ---

    def students(self, assignment: str) -> list[str]:
        """Return those who handed something in."""
        folders = self.root.glob(f"{self.dirs.submitted_directory}/*/{assignment}")
        return sorted(path.parent.name for path in folders)

    def submission(self, student: str, assignment: str) -> Submission:
        """Return what a student handed in for a set, whether it is there or not."""
        folder = self._folder(self.dirs.submitted_directory, student, assignment)
        return Submission(student, assignment, folder, tuple(self.notebooks(assignment)))

    def autograded(self, submission: Submission) -> Path:
        """Return the folder of a submission's graded notebooks."""
        return self._folder(self.dirs.autograded_directory, submission.student, submission.assignment)

    def _folder(self, step: str, student: str, assignment: str) -> Path:
        return Path(self.dirs.format_path(step, student, assignment))

    def seed(self, submission: Submission, common: int) -> int:
        """Return the seed of a submission's hidden inputs.

        Args:
            submission: whose it is, and of which set.
            common: everybody's, where the class has no secret.
        """
        return seed_of(self.secret, submission.assignment, submission.student) if self.secret else common

    # --- nbgrader's parts ---

    def gradebook(self) -> Gradebook:
        """Open nbgrader's gradebook; ``with`` closes it."""
        return Gradebook(self.dirs.db_url, self.dirs.course_id)

    @property
    def has_gradebook(self) -> bool:
        """Whether there is a gradebook already; to open it makes one."""
        url = make_url(self.dirs.db_url)
        return url.get_backend_name() != "sqlite" or Path(str(url.database)).exists()

    def register(self, assignment: str) -> None:
        """Put the cells into the gradebook as ``nbgrader generate_assignment`` does, but leave ``exercises/`` alone.

        Raises:
            CourseError: nbgrader refuses.
        """
        for name in self.notebooks(assignment):
            source = json.loads((self.source(assignment) / f"{name}.ipynb").read_text(encoding="utf-8"))
            for line in differing(source):
                raise CourseError(f"{assignment}: {line}")
        self.make_gradebook()
        with tempfile.TemporaryDirectory() as folder:
            try:
                self._convert(GenerateAssignment, assignment_id=assignment, student_id=".", release_directory=folder)
            except OperationalError as error:
                reason = printable(error.orig or error, 100)
                raise CourseError(
                    f"the gradebook cannot be written ({reason}): check its permissions and the disk"
                ) from None
            except NbGraderException:
                raise CourseError(
                    f"nbgrader cannot take {assignment} from {self.dirs.source_directory}/ (changed since the first "
                    f"submission was graded?): see `nbgrader generate_assignment {assignment}`"
                ) from None

    def make_gradebook(self) -> None:
        """Make the gradebook's file where there is none: whole at once, whoever is killed or comes second."""
        url = make_url(self.dirs.db_url)
        path = Path(str(url.database))
        if url.get_backend_name() != "sqlite" or path.exists() or not url.database:
            return
        with tempfile.TemporaryDirectory(prefix=".gradebook-", dir=path.parent) as folder:
            new = Path(folder, path.name)
            Gradebook(f"sqlite:///{new}", self.dirs.course_id).close()
            with suppress(FileExistsError):  # another command was quicker
                os.link(new, path)

    def _convert(self, kind: type[BaseConverter], **directories: str) -> None:
        converter = kind(coursedir=self.directories(**directories), parent=self.app)
        converter.force = True
        converter.start()


def _check_settings(app: NbGrader) -> None:
    """Refuse values and names in the settings of our own parts, which nbgrader would meet late or not at all."""
    ours = {kind.__name__ for kind in (TrustedExecute, LatePolicy, LateSubmissionPlugin, AssignLatePenalties)}
    for section in app.config:
        if section not in ours and (near := get_close_matches(section, ours, 1, 0.85)):
            raise CourseError(
                f"nbgrader_config.py: nothing is called {printable(section, 40)}. Did you mean {near[0]}?"
            )
    for kind in (TrustedExecute, LatePolicy):
        known = kind.class_trait_names(config=True)
        for name in app.config.get(kind.__name__, {}):
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f" Did you mean {near[0]}?" if near else ""
                raise CourseError(f"nbgrader_config.py: {kind.__name__} has no setting {printable(name, 40)}.{hint}")
        try:
            kind(config=app.config)
        except TraitError as error:
            raise CourseError(f"nbgrader_config.py: {printable(error, 200)}") from None


def _check_gradebook(db_url: str) -> None:
    """Refuse a gradebook that cannot be used, and the one that nbgrader leaves when `alembic` is not found."""
    try:
        url = make_url(db_url)
    except (ArgumentError, ValueError):  # a port that is no number; the text may hold a password
        forms = "sqlite:///FILE, or postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE"
        raise CourseError(f"the gradebook's URL is not a database URL; it has the form {forms}") from None
    database = str(url.database)
    if url.get_backend_name() == "sqlite" and not url.database:
        raise CourseError("the gradebook's URL names no file: sqlite:///FILE")
    tables, version = _sqlite(Path(database)) if url.get_backend_name() == "sqlite" else _server(url)
    if tables and not version:
        name = Path(database).name if url.get_backend_name() == "sqlite" else f"the database {database!r}"
        raise CourseError(f"{name} is incomplete (no alembic version): move it away, and grading creates a new one")


def _sqlite(path: Path) -> tuple[set[str], object]:
    """The tables of a file, and nbgrader's version in it.

    It is opened for writing where it may be written: a command that was killed while it wrote leaves a journal
    beside the gradebook, which the next one has to roll back before it can read. SQLite opens a file that is
    write-protected for reading all the same.
    """
    if not _is_there(path):
        return set(), None
    try:
        with sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            version = "alembic_version" in tables and database.execute("SELECT * FROM alembic_version").fetchone()
    except sqlite3.DatabaseError as error:
        raise CourseError(f"{path.name} cannot be read ({error}): restore a copy of it or move it away") from None
    return tables, version


def _is_there(path: Path) -> bool:
    """Return whether the gradebook is there.

    Raises:
        CourseError: it is not, and cannot be made there.
    """
    try:
        if path.exists():
            return True
        possible = "\0" not in str(path) and path.parent.is_dir() and os.access(path.parent, os.W_OK)
    except (OSError, ValueError):  # a name that no file can have
        possible = False
    if not possible:
        raise CourseError(f"the gradebook {path} cannot be made there: its folder must exist, and be yours to write in")
    return False


def _server(url: URL) -> tuple[set[str], object]:
    """The tables of a database on a server, and nbgrader's version in it."""
    try:
        engine = create_engine(url)
        with engine.connect() as connection:
            tables = set(inspect(connection).get_table_names())
            found = "alembic_version" in tables and connection.execute(text("SELECT * FROM alembic_version")).first()
        engine.dispose()
    except (SQLAlchemyError, ImportError, ValueError, TypeError) as error:
        reason = str(error).split("\n")[0][:200]
        for secret in filter(None, [url.password, *map(str, url.query.values())]):
            reason = reason.replace(secret, "***")
        remedy = "is the server up, and the URL postgresql+psycopg://USER:PASSWORD@HOST/DATABASE?"
        place = url.set(query={}).render_as_string()
        raise CourseError(f"the gradebook at {place} cannot be opened ({reason}): {remedy}") from None
    return tables, found
