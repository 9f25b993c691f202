"""The command line: ``python -m graders grade | collect | doctor | scores | sample``, run from the course's folder.

Each command drives nbgrader's own parts; what they lack is here: one clear line per fault, progress, an exit code.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

import psutil

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

from graders.classroom import report
from graders.classroom.checkup import checkup, misplaced
from graders.classroom.collect import collect
from graders.classroom.course import Course, CourseError
from graders.classroom.once import cells_once, prepared_once
from graders.classroom.sample import SampleError, run_sample
from graders.classroom.submission import Problem
from graders.engine import pool
from graders.engine.job import Job
from graders.engine.timing import note, phase
from graders.notebook import doctor
from graders.notebook.files import KEPT
from graders.notebook.problem import printable

EXIT_CODES = (
    "exit codes: 0 nothing to look at, 1 at least one fault (each has its line on stderr), 2 a wrong command, "
    "130 stopped by Ctrl-C"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = _parser().parse_args(argv)
    if argv is None and "GRADERS_PROFILE" in os.environ:
        note("start: interpreter and imports", time.time() - psutil.Process().create_time())
    try:
        with warnings.catch_warnings():
            if not arguments.verbose:
                warnings.simplefilter("ignore")
            return arguments.run(arguments)
    except (CourseError, SampleError, pool.PoolError) as error:
        print(f"graders: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\ngraders: stopped; {_how_to_go_on(arguments)}", file=sys.stderr)
        return 130


def _how_to_go_on(arguments: argparse.Namespace) -> str:
    """What the command that was stopped leaves behind, and what to type next."""
    if arguments.run is not _grade:
        return "the same command begins anew"
    if arguments.force:
        return "what was graded is kept; without --force it goes on from there, with what has no score yet"
    return "what was graded is kept, the same command goes on from there"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m graders", description=__doc__.split("\n")[0], epilog=EXIT_CODES)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, epilog=EXIT_CODES)
        sub.add_argument("-v", "--verbose", action="store_true", help="show nbgrader's own log as well")
        sub.set_defaults(run=run)
        return sub

    sub = command("grade", _grade, "grade what was handed in for a set, several submissions at a time")
    sub.add_argument("set", metavar="SET", help="01_relu, or relu for short")
    sub.add_argument("student", metavar="STUDENT", nargs="*", help="only these (default: all in submitted/)")
    sub.add_argument(
        "--seed", type=int, metavar="N", help="seed of the hidden inputs (default 0); regrade with --force"
    )
    sub.add_argument(
        "--timeout", type=_seconds, metavar="S", help="seconds a cell may take (a notebook: four times that)"
    )
    sub.add_argument("--force", action="store_true", help="grade again what is graded already")
    where = sub.add_mutually_exclusive_group()
    where.add_argument(
        "--workers", type=_count, metavar="N", help=f"submissions at a time (default: one a core, {pool.cores()} here)"
    )
    where.add_argument(
        "--scheduler", metavar="URL", help="run submissions on the workers of this Dask scheduler: tcp://HOST:8786"
    )
    sub.add_argument("--no-sandbox", action="store_true", help="go on where what is handed in cannot be confined")
    sub.add_argument("--db", metavar="URL", help="the gradebook, in place of gradebook.db: postgresql+psycopg://...")

    sub = command("collect", _collect, "bring folders and archives of notebooks into submitted/")
    sub.add_argument("set", metavar="SET", help="01_relu, or relu for short")
    sub.add_argument("path", metavar="PATH", nargs="+", type=Path, help="a folder, a notebook, a .zip or a .tar.gz")

    sub = command(
        "doctor", _doctor, "see who would be graded and repair what can be; a notebook before it is handed in"
    )
    sub.add_argument("path", metavar="PATH", nargs="+", type=Path, help="submitted/, part of it, or any notebook")
    sub.add_argument("--dry-run", action="store_true", help="say what is wrong, write nothing")
    sub.epilog = f"{doctor.EXIT_CODES}. What is repaired is kept as it was in {KEPT}/, and is not graded again."

    sub = command("scores", _scores, "print the scores that the gradebook holds")
    sub.add_argument("--csv", action="store_true", help="as comma-separated values")
    sub.add_argument("--why", action="store_true", help="a line on each lost point as well")
    sub.add_argument("--db", metavar="URL", help="the gradebook, in place of gradebook.db")

    sub = command("sample", _sample, "build the sample class, grade it, write its feedback and compare its scores")
    sub.add_argument("--update", action="store_true", help="write sample/expected.json in place of comparing with it")
    return parser


def _seconds(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 up")
    return int(text)


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


def _grade(arguments: argparse.Namespace) -> int:
    course = Course(Path.cwd(), arguments.verbose, arguments.db)
    if arguments.seed is not None:
        os.environ["GRADERS_SEED"] = str(arguments.seed)
    if arguments.timeout:
        course.app.config.TrustedExecute.timeout = arguments.timeout
        course.app.config.TrustedExecute.notebook_timeout = 4 * arguments.timeout
    if arguments.no_sandbox:
        course.app.config.TrustedExecute.sandbox = "off"
    assignment = course.find(arguments.set)
    students = course.students(assignment)
    chosen = set(arguments.student)
    strays = [found for found in misplaced(course, assignment) if not chosen or found[0] in chosen]
    _tell(*(f"{printable(student, 60)}: {problem}" for student, problem in strays))
    if unknown := sorted(chosen - set(students)):
        where = f"submitted/{unknown[0] if len(unknown) == 1 else 'STUDENT'}/{assignment}/"
        raise CourseError(f"nothing handed in for {assignment} by {', '.join(unknown)}; it would be in {where}")
    students = [student for student in students if not chosen or student in chosen]
    if not students:
        raise CourseError(f"nothing handed in for {assignment}: submitted/STUDENT/{assignment}/ is where it belongs")
    with _alone(course, assignment):
        _register(course, assignment)  # while the warm parent loads
        with _crew(course, arguments.workers, arguments.scheduler) as crew:
            faults = grade_class(course, assignment, students, arguments.force, crew, len(strays))
    return 1 if faults or strays else 0


_locks: list[int] = []  # descriptors that only this process may hold


@contextmanager
def _alone(course: Course, assignment: str) -> Iterator[None]:
    """No other command of this machine grades this set in this course meanwhile: the work would be done twice.

    Raises:
        CourseError: one does.
    """
    if fcntl is None:
        yield
        return
    _locks.append(os.open(course.source(assignment), os.O_RDONLY))
    try:
        with suppress(OSError):  # a file system without locks
            try:
                fcntl.flock(_locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CourseError(
                    f"{assignment} is being graded by another command: wait until it has ended, or stop it by Ctrl-C"
                ) from None
        yield
    finally:
        os.close(_locks.pop())


def _unlock() -> None:
    """After a fork: a lock is its parent's, and ends with it."""
    while _locks:
        os.close(_locks.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


@contextmanager
def _crew(course: Course, workers: int | None = None, scheduler: str | None = None) -> Iterator[pool.Crew | None]:
    """Those who execute submissions, ended with this; None: this process does."""
    settings = course.settings
    workers = workers or pool.cores()
    if settings is None or os.name != "posix":
        yield None
    elif scheduler is None and workers == 1:
        with pool.nobody(settings):
            yield None
    else:
        crew = pool.Remote(scheduler, _tell) if scheduler else pool.Local(workers, settings)
        try:
            yield crew
        finally:
            crew.stop()


def _register(course: Course, assignment: str) -> None:
    with prepared_once(), phase("start: registering"):
        course.register(assignment)


def grade_class(
    course: Course, assignment: str, students: Sequence[str], force: bool, crew: pool.Crew | None = None, told: int = 0
) -> dict[str, list[Problem]]:
    """Grade students of a registered set with progress, a line per fault on stderr and a summary; faults by student.

    ``told`` is how many faults were named already.
    """
    faults: dict[str, list[Problem]] = {}
    graded = failed = 0
    start = time.monotonic()
    with prepared_once(), cells_once():
        todo = {student for student in students if force or not course.is_graded(assignment, student)}
        work = (
            (student, _jobs(course, assignment, student) if crew and student in todo else []) for student in students
        )
        _progress(f"{assignment}: {len(students)} submission{'s' * (len(students) != 1)}, {len(todo)} to grade")
        finished = pool.executed(crew, work) if crew else work
        for number, (student, results) in enumerate(finished, 1):
            ready = pool.answering(results, crew) if crew else nullcontext()
            with ready, phase("nbgrader: sanitising, saving, writing"):
                executed, problems = course.grade(assignment, student, student in todo)
            graded += executed
            failed += any(problem.fatal for problem in problems)
            new = student in todo
            todo.discard(student)
            if problems:
                faults[student] = problems
                _tell(*(f"{student}: {problem}" for problem in problems))
            if new or sys.stdout.isatty():
                _progress(f"{assignment}: {number} of {len(students)}, {student}{_rate(start, graded, len(todo))}")
    _progress("")
    kept = len(students) - graded - failed
    parts = [f"{len(students) - failed} of {len(students)} submissions graded in {_clock(time.monotonic() - start)}"]
    parts += [f"{kept} of them before"] if kept > 0 else []
    lines = told + sum(map(len, faults.values()))
    parts += [f"{lines} fault{'s' * (lines != 1)} above"] if lines else []
    print(f"{assignment}: {', '.join(parts)}.")
    return faults


def _jobs(course: Course, assignment: str, student: str) -> list[Job]:
    with phase("nbgrader: sanitising ahead"):
        return course.jobs(assignment, student)


def _rate(start: float, graded: int, left: int) -> str:
    """How fast it goes and how long it takes, once that can be told."""
    seconds = time.monotonic() - start
    if not graded or not left:
        return ""
    rate = f"{graded / seconds:.1f} a second" if graded > seconds else f"{60 * graded / seconds:.0f} a minute"
    return f", {rate}, {_clock(left * seconds / graded)} left"


def _tell(*lines: str) -> None:
    """Say something on stderr, on lines of its own."""
    if sys.stdout.isatty():
        _progress("")
    for line in lines:
        print(printable(line, 1000), file=sys.stderr, flush=True)


def _progress(text: str) -> None:
    """A line that the next one overwrites on a terminal; elsewhere one line a student."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K{printable(text)}", end="", flush=True)
    elif text:
        print(printable(text), flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _collect(arguments: argparse.Namespace) -> int:
    course = Course(Path.cwd(), arguments.verbose)
    assignment = course.find(arguments.set)
    if missing := [str(path) for path in arguments.path if not path.exists()]:
        raise CourseError(f"there is no {', '.join(missing)}")
    students, told = collect(course.root, assignment, arguments.path)
    for line in told:
        print(line, file=sys.stderr)
    print(
        f"{assignment}: {len(students)} collected into submitted/" + (f" ({', '.join(students)})" if students else "")
    )
    return 1 if told or not students else 0


def _doctor(arguments: argparse.Namespace) -> int:
    return checkup(Course(Path.cwd(), arguments.verbose), arguments.path, arguments.dry_run)


def _scores(arguments: argparse.Namespace) -> int:
    course = Course(Path.cwd(), arguments.verbose, arguments.db)
    rows, most = course.scores()
    if arguments.csv:
        print(report.as_csv(rows, most), end="")
        return 0
    if not rows:
        raise CourseError("nothing is graded yet: `python -m graders grade SET` does it")
    print(report.table(rows, most))
    if arguments.why:
        print()
        print_lost(course, rows)
    return 0


def print_lost(course: Course, rows: dict[str, dict[str, float | None]]) -> None:
    """A line on each lost point of the class."""
    for student in sorted(rows):
        for assignment, score in sorted(rows[student].items()):
            if score is None:
                print(f"{student}  {assignment}  not graded")
                continue
            for lost in course.lost(assignment, student):
                print(lost)


def _registered(course: Course, assignment: str, *rest: object, **more: object) -> dict[str, list[Problem]]:
    _register(course, assignment)
    return grade_class(course, assignment, *rest, **more)


def _sample(arguments: argparse.Namespace) -> int:
    course = Course(Path.cwd(), arguments.verbose)
    try:
        with _crew(course) as crew:
            if isinstance(crew, pool.Local):
                crew.ready()
            return run_sample(course, partial(_registered, crew=crew), print_lost, arguments.update)
    except pool.PoolError as error:
        print(f"graders: the sample class is harmless, it is graded without a sandbox ({error})", file=sys.stderr)
    course.app.config.TrustedExecute.sandbox = "off"
    with _crew(course) as crew:
        return run_sample(course, partial(_registered, crew=crew), print_lost, arguments.update)
