"""The command line: ``python -m graders coach | study`` to learn, ``grade | collect | doctor | scores | sample`` to
grade a class; run from the course's folder.

Arguments are read before anything heavy is loaded: each command imports what it needs, and `grade` starts a sandbox
before that, since a sandbox takes as long to start as the imports.
"""

import argparse
import gc
import json
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graders.classroom.errors import CourseError
from graders.engine.cores import cores
from graders.engine.errors import PoolError
from graders.notebook import doctor
from graders.notebook.files import KEPT
from graders.notebook.problem import printable

if TYPE_CHECKING:
    from graders.classroom.course import Course
    from graders.classroom.gradebook import Records
    from graders.engine.job import Settings
    from graders.engine.sandbox import WarmParent

_PROMISES = {  # of `review`, which tests what is promised
    "elementwise": "it takes any shape",
    "broadcasts": "it takes two shapes that broadcast",
    "vmap": "it works under torch.vmap and torch.func.grad",
    "jvp": "it has a forward mode",
    "compiles": "it compiles into one graph",
    "skips": "it computes no gradient that nobody needs",
}
PLATFORMS = ("folders", "canvas", "moodle", "blackboard", "brightspace", "sakai", "gradescope", "github")
EXIT_CODES = (
    "exit codes: 0 no problems, 1 at least one problem (each is a line on stderr), 2 usage error, 130 interrupted "
    "by Ctrl-C"
)


class _NotBegun(Exception):
    """Ctrl-C came while modules loaded."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = _parser()
    if argv is None and not sys.argv[1:]:
        parser.print_help(sys.stderr)
        return 2
    arguments = parser.parse_args(argv)
    try:
        with warnings.catch_warnings():
            if not arguments.verbose:
                warnings.simplefilter("ignore")
            code: int = arguments.run(arguments)
            sys.stdout.flush()
            return code
    except _NotBegun:
        print("\ngraders: interrupted before it started", file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        print(f"\ngraders: interrupted; {_how_to_go_on(arguments)}", file=sys.stderr)
        return 130
    except (CourseError, PoolError) as error:
        print(f"graders: {printable(error, 1000)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        if not _unread():
            raise
        return 141  # as a shell has it of a program that the signal of a closed pipe ended
    finally:
        if argv is None:
            gc.freeze()  # the process ends: looking for garbage once more would take a while


def _unread() -> bool:
    """Return whether nobody reads what is printed any more, as of `scores | head`; what is left goes nowhere then."""
    closed = False
    for number in (1, 2):
        poll = select.poll()
        poll.register(number, 0)
        if poll.poll(0):  # POLLERR, POLLHUP: a pipe without a reader
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            closed = True
    return closed


def _how_to_go_on(arguments: argparse.Namespace) -> str:
    """Return what the interrupted command leaves behind, and what to type next."""
    if arguments.run is _feedback and not arguments.force:
        return "what was made is kept; run the same command to continue"
    if arguments.run is _watch:
        return "what was graded is kept; run the same command to go on"
    if arguments.run is not _grade:
        return "run the same command to start over"
    if arguments.again or arguments.undo:
        return "run the same command to start over"
    if arguments.force:
        return "what was graded is kept; run it without --force to continue with what has no score yet"
    return "what was graded is kept; run the same command to continue"


@contextmanager
def _loading() -> Iterator[None]:
    """Load modules within this, quickly. Ctrl-C waits until the end: a module that is interrupted may raise anything.

    Raises:
        _NotBegun: Ctrl-C came meanwhile.
    """
    # jsonschema builds 38 parsers for formats that no notebook has when it finds this package: half of the time.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    masked = hasattr(signal, "pthread_sigmask")
    if masked:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    gc.disable()  # what is imported stays: looking through it for garbage takes a fifth of the time to start
    try:
        try:
            yield
        finally:
            gc.freeze()
            gc.enable()
            if masked:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    except KeyboardInterrupt:
        raise _NotBegun from None
    if "GRADERS_PROFILE" in os.environ:
        import psutil

        from graders.engine.timing import note

        note("start: interpreter and imports", time.time() - psutil.Process().create_time())


class _Parser(argparse.ArgumentParser):
    """Takes students after an option too, as in `grade relu --force amara`: argparse has given all places away then."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, more = super().parse_known_args(args, namespace)
        if getattr(found, "run", None) in (_grade, _feedback) and not any(word.startswith("-") for word in more):
            found.student, more = [*found.student, *more], []
        return found, more


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m graders",
        description="Judge your own answers, or grade a course folder: collect, check, grade, and print scores.",
        epilog=EXIT_CODES,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, epilog=EXIT_CODES)
        sub.add_argument("-v", "--verbose", action="store_true", help="show nbgrader's own log as well")
        sub.set_defaults(run=run)
        return sub

    sub = command("coach", _coach, "judge the answers in a notebook of yours, and name the mistakes")
    sub.add_argument("notebook", metavar="NOTEBOOK", type=Path, help="exercises/01_relu/relu.ipynb, or a chapter")
    sub.add_argument("task", metavar="TASK", nargs="?", default="", help="judge only this one: Square")
    sub.add_argument("--json", action="store_true", help="print the verdicts as data")
    sub.add_argument("--timeout", type=_seconds, metavar="S", help="time limit for all of it in seconds (default 120)")
    sub.epilog = (
        "Runs the notebook's code as you would, in a process of its own, without a sandbox: use it for your own. "
        "exit codes: 0 all checks hold, 1 some do not, 2 usage error, 130 interrupted by Ctrl-C"
    )

    sub = command("study", _study, "print what you have done and tried, and what comes next")
    sub.add_argument("--json", action="store_true", help="print it as data")
    sub.add_argument("--forget", action="store_true", help="delete the file that holds it")
    sub.epilog = f"The file is .study.json in the course's folder; nothing leaves your machine. {EXIT_CODES}"

    sub = command(
        "review", _review, "ask a Function of any project what a careful reviewer would ask, and print the answers"
    )
    sub.add_argument(
        "target",
        metavar="TARGET",
        nargs="*",
        help="package.module:Function, file.py:Function, or a module or file with Reviews at its top",
    )
    sub.add_argument(
        "--case",
        action="append",
        default=[],
        metavar="EXPR",
        help='arguments for one call, as Python: "torch.randn(2, 3), 0.5", which is seeded; give one for each branch '
        "(default: guessed)",
    )
    sub.add_argument("--reference", metavar="EXPR", help="the same operation by torch's own: torch.relu, a lambda")
    sub.add_argument("--surrogate", metavar="EXPR", help="whose gradient an estimator has: torch.clone")
    sub.add_argument("--order", type=int, choices=(1, 2), help="1: it refuses a second derivative")
    sub.add_argument("--dtypes", nargs="+", metavar="NAME", help="float64 float32 ... (default: these and both halves)")
    sub.add_argument("--keeps", type=int, metavar="BYTES", help="it keeps at most so much beyond inputs and outputs")
    for name, text in _PROMISES.items():
        sub.add_argument(f"--{name}", action="store_true", help=text)
    sub.add_argument(
        "--only", nargs="+", default=[], metavar="ITEM", help='ask only these items: gradcheck "same twice"'
    )
    sub.add_argument("--list", action="store_true", help="print the items and what each asks")
    sub.add_argument("--json", action="store_true", help="print the answers as data")
    sub.epilog = (
        "Needs torch alone, and runs the code that you name as you would. "
        "exit codes: 0 nothing failed, 1 something did, 2 something could not be reviewed, 130 interrupted by Ctrl-C"
    )

    sub = command("init", _init, "check what this machine and folder have of what grading needs, and set up a class")
    sub.add_argument("--roster", type=Path, metavar="FILE", help="write students.csv from this gradebook file (CSV)")
    sub.add_argument(
        "--due",
        nargs="+",
        default=[],
        metavar="SET=DATE",
        help="set due dates, in UTC: relu=2026-03-01T12:00; relu=none takes one away",
    )
    sub.add_argument(
        "--own-inputs",
        action="store_true",
        help="write class_secret.txt: from then on the hidden checks draw other inputs for each student",
    )
    sub.add_argument("--check", action="store_true", help="change nothing and ask nothing")
    sub.add_argument("--db", metavar="URL", help="the gradebook to use instead of gradebook.db")
    sub.epilog = "exit codes: 0 a class can be graded here, 1 something is missing, 2 usage error"

    sub = command("class", _class, "print who is in the class, what is due when, and how far everybody is")
    sub.add_argument("--db", metavar="URL", help="the gradebook to use instead of gradebook.db")

    sub = command("grade", _grade, "grade the submissions of a set, several at a time")
    sub.add_argument("set", metavar="SET", help="the set: 01_relu, or relu for short")
    sub.add_argument(
        "student", metavar="STUDENT", nargs="*", help="grade only these students (default: all in submitted/)"
    )
    sub.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="seed of the hidden inputs (default 0, or each student's own where the class has a secret)",
    )
    sub.add_argument(
        "--timeout",
        type=_seconds,
        metavar="S",
        help="time limit of a cell in seconds (a notebook gets four times that)",
    )
    anew = sub.add_mutually_exclusive_group()
    anew.add_argument("--force", action="store_true", help="grade again what has already been graded")
    anew.add_argument(
        "--again",
        action="store_true",
        help="grade again what has been graded, print whose points that changes and why, and ask before writing it",
    )
    anew.add_argument("--undo", action="store_true", help="take back what the last --again wrote")
    sub.add_argument("--yes", action="store_true", help="with --again: write it without asking")
    sub.add_argument("--json", action="store_true", help="print scores, verdicts and problems as data on stdout")
    where = sub.add_mutually_exclusive_group()
    where.add_argument(
        "--workers",
        type=_count,
        metavar="N",
        help=f"submissions graded at a time (default: one per core, {cores()} here)",
    )
    where.add_argument(
        "--scheduler", metavar="URL", help="run submissions on the workers of this Dask scheduler: tcp://HOST:8786"
    )
    sub.add_argument(
        "--no-sandbox",
        action="store_true",
        help="grade without a sandbox: submitted code can then do everything that you can",
    )
    sub.add_argument(
        "--db", metavar="URL", help="the gradebook to use instead of gradebook.db: postgresql+psycopg://..."
    )

    sub = command("watch", _watch, "grade what arrives in a folder, as it arrives, and write its feedback")
    sub.add_argument("set", metavar="SET", help="the set: 01_relu, or relu for short")
    sub.add_argument(
        "inbox",
        metavar="INBOX",
        type=Path,
        help="the folder: for each hand-in a folder, an archive or a notebook, named as `collect` takes them, or "
        "nbgrader's inbound/",
    )
    sub.add_argument(
        "--attempts", type=_count, default=0, metavar="N", help="grade at most N different files of a student"
    )
    sub.add_argument("--every", type=_count, default=1, metavar="S", help="seconds between two looks (default 1)")
    sub.add_argument("--once", action="store_true", help="end when nothing new is there")
    sub.add_argument("--workers", type=_count, metavar="N", help=f"submissions graded at a time (default {cores()})")
    sub.add_argument("--db", metavar="URL", help="the gradebook to use instead of gradebook.db")
    sub.set_defaults(seed=None, timeout=None, no_sandbox=False, scheduler=None)
    sub.epilog = (
        "Nothing in the folder is changed. The file watched/SET.json says which hand-ins were graded, so you can stop "
        f"and start this at any time. {EXIT_CODES}"
    )

    sub = command("collect", _collect, "copy notebooks from folders and archives into submitted/")
    sub.add_argument("set", metavar="SET", help="the set: 01_relu, or relu for short")
    sub.add_argument("path", metavar="PATH", nargs="+", type=Path, help="a folder, a notebook, a .zip or a .tar.gz")
    sub.add_argument(
        "--from",
        dest="platform",
        choices=PLATFORMS,
        help="what the paths were downloaded from; an archive then holds a whole class, not one student's files "
        "(folders: a class as NAME/, NAME.zip or NAME_SET.ipynb)",
    )
    sub.add_argument("--older", action="store_true", help="let an older file replace a newer one")
    sub.epilog = (
        "The outermost folder, the archive or the start of the file name is the student. If the course folder has a "
        "students.csv (with a column id, and first_name, last_name, email, lms_user_id if known), only the students in "
        f"it are collected. Replaced files are kept in replaced/. {EXIT_CODES}."
    )

    sub = command(
        "doctor",
        _doctor,
        "check submissions and repair what can be repaired; also works on a single notebook before it is submitted",
    )
    sub.add_argument("path", metavar="PATH", nargs="+", type=Path, help="submitted/, part of it, or any notebook")
    sub.add_argument("--dry-run", action="store_true", help="report what is wrong and change nothing")
    sub.epilog = f"{doctor.EXIT_CODES}. The original of each repaired file is kept in {KEPT}/."

    sub = command("scores", _scores, "print the scores in the gradebook")
    sub.add_argument("set", metavar="SET", nargs="?", default="", help="of this set alone: 01_relu, or relu for short")
    form = sub.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print comma-separated values")
    form.add_argument("--json", action="store_true", help="print them as data")
    sub.add_argument("--why", action="store_true", help="also print a line for each check that lost points")
    sub.add_argument("--db", metavar="URL", help="the gradebook to use instead of gradebook.db")

    sub = command("feedback", _feedback, "write the feedback pages of a set that are out of date, several at a time")
    sub.add_argument("set", metavar="SET", help="the set: 01_relu, or relu for short")
    sub.add_argument(
        "student", metavar="STUDENT", nargs="*", help="only of these students (default: all that are graded)"
    )
    sub.add_argument("--force", action="store_true", help="make those again too that would not change")
    sub.add_argument(
        "--workers", type=_count, metavar="N", help=f"pages made at a time (default: one per core, {cores()} here)"
    )
    sub.add_argument("--zip", type=Path, metavar="FILE", help="put all pages of the set into this archive as well")
    sub.add_argument(
        "--like",
        type=Path,
        metavar="DOWNLOAD",
        help="name the pages in the archive as this download of hand-ins from Canvas, Moodle or Brightspace does, so "
        "that the platform takes the archive back",
    )
    sub.add_argument("--db", metavar="URL", help="the gradebook to use instead of gradebook.db")

    sub = command(
        "fill", _fill, "fill in a set's grades in the gradebook file of a learning platform, to be imported there"
    )
    sub.add_argument("set", metavar="SET", help="the set: 01_relu, or relu for short")
    sub.add_argument("file", metavar="FILE", type=Path, help="the gradebook as CSV from Canvas, Moodle or Brightspace")
    sub.add_argument(
        "--column", default="", metavar="NAME", help="the column (default: the one that is called as the set)"
    )
    sub.add_argument("--out", type=Path, metavar="FILE", help="the file to write (default: FILE-filled.csv)")
    sub.add_argument("--db", metavar="URL", help="the gradebook to use instead of gradebook.db")
    sub.epilog = (
        "Whose row it is, is decided by the platform's number, the account, the address, or the name, in this order, "
        "with students.csv where there is one; a row that two students could have stays as it is, with a line. "
        "exit codes: 0 all grades are in the file, 1 some are not, 2 usage error"
    )

    sub = command("roster", _roster, "write students.csv from the gradebook file of a learning platform")
    sub.add_argument("file", metavar="FILE", type=Path, help="the gradebook as CSV from Canvas, Moodle or Brightspace")
    sub.add_argument("--force", action="store_true", help="replace a students.csv that is there")

    sub = command("extend", _extend, "give students more time for a set, from its due date on")
    sub.add_argument("set", metavar="SET", help="the set: 01_relu, or relu for short")
    sub.add_argument("student", metavar="STUDENT", nargs="+", help="who gets it")
    sub.add_argument("time", metavar="TIME", help="how much: +3d, +12h, +1d12h, +2w; 0 takes an extension away")
    sub.add_argument("--db", metavar="URL", help="the gradebook to use instead of gradebook.db")
    sub.epilog = f"An earlier extension of the same set is replaced, and late penalties are settled. {EXIT_CODES}"

    sub = command("report", _report, "write a page on the class: hard checks, common mistakes, students to talk to")
    sub.add_argument(
        "--out",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="the page (default report.html); the figures of the checks go beside it, with .csv at the end",
    )
    sub.add_argument("--anonymous", action="store_true", help="leave names out, also of the answers that are shown")
    sub.add_argument("--db", metavar="URL", help="the gradebook to use instead of gradebook.db")

    sub = command("hand", _hand, "grade by hand in a spreadsheet: write out what waits for a score, and read it back")
    sub.add_argument("set", metavar="SET", help="the set: 01_relu, or relu for short")
    sub.add_argument("--from", dest="sheet", type=Path, metavar="FILE", help="read scores, marks and comments back")
    sub.add_argument("--out", type=Path, metavar="FILE", help="the sheet to write (default: hand-SET.csv)")
    sub.add_argument("--force", action="store_true", help="replace a sheet that is there")
    sub.add_argument("--db", metavar="URL", help="the gradebook to use instead of gradebook.db")
    sub.epilog = (
        "Of each row fill in score, or marks (keys of rubric.csv: key, points, text), and comment; what is left empty "
        "stays as it is. exit codes: 0 all is written, 1 some rows are not, 2 usage error"
    )

    sub = command("similar", _similar, "find answers of a set that have more in common than the class, to be read")
    sub.add_argument("set", metavar="SET", help="the set: 01_relu, or relu for short")
    sub.add_argument(
        "--out", type=Path, metavar="FILE", help="the page with both side by side (default: similar-SET.html)"
    )
    sub.add_argument("--db", metavar="URL", help="the gradebook to use instead of gradebook.db")
    sub.epilog = f"It proves nothing: read both answers, and talk to both people. {EXIT_CODES}"

    sub = command(
        "sample",
        _sample,
        "build and grade the sample class, write its feedback, and compare its scores with the expected ones",
    )
    sub.add_argument("sets", nargs="*", metavar="SET", help="the sets to grade (default: all but optional ones)")
    sub.add_argument("--update", action="store_true", help="write sample/expected.json instead of comparing with it")
    return parser


def _seconds(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of seconds, 1 or more")
    return int(text)


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return int(text)


def _early_parent() -> "WarmParent | None":
    """Return a warm parent that starts while modules load, None where none can be had or all is loaded already."""
    if "torch" in sys.modules or os.name != "posix":
        return None
    with _loading():
        import matplotlib  # noqa: F401 (the sandbox is given its list of fonts)

        from graders.engine.sandbox import SandboxError, WarmParent
    with suppress(SandboxError, OSError):  # without one the wait comes later
        return WarmParent("required")
    return None


def _settings(course: "Course", arguments: argparse.Namespace) -> "Settings":
    """Return the limits as configured, or as the arguments have them."""
    settings = course.settings
    if arguments.seed is not None:
        settings = replace(settings, seed=arguments.seed)
    if arguments.timeout:
        settings = replace(settings, cell_time=arguments.timeout, notebook_time=4 * arguments.timeout)
    if arguments.no_sandbox:
        settings = replace(settings, sandbox="off")
    return settings


def _coach(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.coach import command
    return command.coach(arguments.notebook, arguments.task, arguments.json, arguments.timeout)


def _review(arguments: argparse.Namespace) -> int:
    if arguments.list:
        from graders.review.questions import listed

        print(listed())
        return 0
    if not arguments.target:
        taken = [
            name
            for name in ("only", "dtypes")
            if any(":" in word or word.endswith(".py") for word in getattr(arguments, name) or ())
        ]
        raise CourseError(
            f"--{taken[0]} takes all words after it: name what to review before it"
            if taken
            else "name what to review, as in `review package.module:Function`; `review --list` prints the items"
        )
    try:
        with _loading():
            from graders.review import command
            from graders.review.subject import Given, ReviewError, dtypes
    except ModuleNotFoundError as error:
        raise CourseError(f"review needs {error.name}: install it beside the code to be reviewed") from None
    try:
        promises: dict[str, Any] = {name: True for name in _PROMISES if getattr(arguments, name)}
        promises |= {name: value for name in ("order", "keeps") if (value := getattr(arguments, name)) is not None}
        if arguments.dtypes:
            promises["dtypes"] = dtypes(arguments.dtypes)
        functions = {name: text for name in ("reference", "surrogate") if (text := getattr(arguments, name))}
        given = Given(arguments.case, functions, promises)
        return command.run(arguments.target, given, arguments.only, arguments.json)
    except ReviewError as error:
        raise CourseError(str(error)) from None


def _study(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.coach import command
    return command.tell(arguments.json, arguments.forget)


def _to_grade(arguments: argparse.Namespace, at_end: ExitStack) -> "tuple[Course, Settings]":
    """Return the course and the limits for a command that executes notebooks, its sandbox on the way."""
    early = None if arguments.no_sandbox or arguments.scheduler else _early_parent()
    if early:
        at_end.callback(early.close)
    with _loading():
        from graders.classroom.course import Course
        from graders.classroom.grading import Grading  # noqa: F401 (all that grading needs, at once)
        from graders.engine import parents, pool

        if not arguments.scheduler:
            pool.load()
    if early:
        parents.provide(early)
    course = Course(Path.cwd(), arguments.verbose, arguments.db)
    settings = _settings(course, arguments)
    if arguments.seed is not None:
        course.secret = b""  # this time, one seed for everybody
    if os.name != "posix":
        raise CourseError("grading needs Linux or macOS: a notebook runs in a forked process")
    return course, settings


def _watch(arguments: argparse.Namespace) -> int:
    with ExitStack() as at_end:
        course, settings = _to_grade(arguments, at_end)
        with _loading():
            from graders.classroom.console import conclude
            from graders.classroom.grading import Grading
            from graders.classroom.lock import alone
            from graders.classroom.watching import Clerk, Watch, watch
            from graders.engine import pool
        assignment = course.find(arguments.set)
        inbox: Path = arguments.inbox.absolute()
        if inbox.exists() and not inbox.is_dir():
            raise CourseError(f"{arguments.inbox} is not a folder: name the one that hand-ins come into")
        if not inbox.exists():
            raise CourseError(f"there is no folder {arguments.inbox}: make it first, or name another")
        if inbox.resolve() == course.root:
            raise CourseError(f"{arguments.inbox} is the course's own folder: name another")
        for own in (course.root / name for name in ("submitted", "autograded", "feedback", "replaced")):
            if inbox == own or own in inbox.parents:
                raise CourseError(f"{arguments.inbox} is a folder that grading itself writes: name another")
        with alone(course.source(assignment)):
            course.register(assignment)
        course.reader.start()  # before there are threads
        at_end.callback(course.close)
        clerk = Clerk(course, assignment)
        at_end.callback(clerk.close)
        crew = at_end.enter_context(pool.hired(settings, arguments.workers or cores(), None, conclude))
        crew.ready()
        grading = Grading(course, assignment, crew, settings)
        one = Watch(
            grading, clerk, inbox, arguments.attempts, lambda line: conclude(f"{time.strftime('%H:%M:%S')} {line}")
        )
        conclude(f"{assignment}: watching {arguments.inbox}; Ctrl-C ends it")
        watch(one, arguments.every, arguments.once)
        conclude(f"{assignment}: {one.graded} hand-in{'s' * (one.graded != 1)} graded.")
    return 0


def _grade(arguments: argparse.Namespace) -> int:
    if arguments.json and (arguments.again or arguments.undo):
        raise CourseError("--again and --undo print lines, no data: leave --json out")
    if arguments.yes and not arguments.again:
        raise CourseError("--yes answers the question of --again: `grade SET --again --yes`")
    if arguments.undo:
        return _undo(arguments)
    with ExitStack() as at_end:
        course, settings = _to_grade(arguments, at_end)
        with _loading():
            from graders.classroom.attention import attention
            from graders.classroom.checkup import misplaced
            from graders.classroom.console import conclude, data_on_stdout, say
            from graders.classroom.grading import Grading
            from graders.classroom.lock import alone
            from graders.engine import pool
            from graders.engine.timing import phase
        at_end.enter_context(data_on_stdout(arguments.json))
        assignment = course.find(arguments.set)
        students = course.students(assignment)
        chosen = set(arguments.student)
        strays = [found for found in misplaced(course, assignment) if not chosen or found[0] in chosen]
        say(*(f"{printable(student, 60)}: {problem}" for student, problem in strays))
        if unknown := sorted(chosen - set(students)):
            where = f"submitted/{unknown[0] if len(unknown) == 1 else 'STUDENT'}/{assignment}/"
            raise CourseError(f"nothing was handed in for {assignment} by {', '.join(unknown)}; it belongs in {where}")
        students = [student for student in students if not chosen or student in chosen]
        if not students:
            where = f"submitted/STUDENT/{assignment}/"
            raise CourseError(f"nothing was handed in for {assignment}: put submissions into {where}")
        at_end.enter_context(alone(course.source(assignment)))
        with phase("start: registering"):
            course.register(assignment)  # while the warm parent loads
        course.reader.start()  # before there are threads
        at_end.callback(course.close)
        workers = arguments.workers or cores()
        crew = at_end.enter_context(pool.hired(settings, workers, arguments.scheduler, say))
        if arguments.again:
            from graders.classroom.regrade import again

            return again(course, assignment, students, crew, settings, arguments.yes)
        faults = Grading(course, assignment, crew, settings).grade(students, arguments.force, len(strays))
        told = {student: list(problems) for student, problems in faults.items()}
        for student, problem in strays:
            told.setdefault(student, []).append(problem)
        conclude(*attention(told))
        if arguments.json:
            from graders.classroom.asdata import graded

            seed = None if course.secret else settings.seed
            _print_json(graded(course, assignment, seed, students, told))
    return 1 if faults or strays else 0


def _undo(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.classroom.console import conclude, say
        from graders.classroom.course import Course
        from graders.classroom.gradebook import Records
        from graders.classroom.lock import alone
        from graders.classroom.regrade import undo
    if arguments.student:
        raise CourseError("--undo takes back a whole grading: leave the students out")
    with closing(Course(Path.cwd(), arguments.verbose, arguments.db)) as course:
        assignment = course.find(arguments.set)
        with alone(course.source(assignment)):
            folder, done, left = undo(course, Records(course), assignment)
    say(*left)
    some = f"{len(done)} submission{'s have' if len(done) != 1 else ' has'}"
    conclude(f"{assignment}: {some} the points of before {folder.name} again.")
    return 1 if left else 0


def _init(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.classroom.course import Course
        from graders.classroom.firstday import MISSING, ask, due_dates, findings, next_steps
        from graders.classroom.gradebook import Records
        from graders.classroom.gradefile import read_table, roster_of
        from graders.classroom.overview import overview
        from graders.classroom.roster import ROSTER
        from graders.classroom.seeds import read_secret, write_secret
    if arguments.check and (arguments.roster or arguments.due or arguments.own_inputs):
        raise CourseError("--check changes nothing: leave --roster, --due and --own-inputs out, or --check")
    with closing(Course(Path.cwd(), arguments.verbose, arguments.db)) as course, Records(course) as records:
        file, dates = arguments.roster, arguments.due
        if (
            not (arguments.check or file or dates or arguments.own_inputs)
            and sys.stdin.isatty()
            and sys.stdout.isatty()
        ):
            typed, dates = ask(course)
            file = Path(typed).expanduser() if typed else None
        due = due_dates(course, dates)
        if due:
            course.make_gradebook()
        for assignment, when in due.items():
            records.set_due(assignment, when)
        if arguments.own_inputs:
            write_secret(course.root)
            course.secret = read_secret(course.root)
        if file:  # the one that can be refused comes last: what else was said is done
            kept = f" ({'the due dates are' if due else 'the rest is'} set)" if due or arguments.own_inputs else ""
            if Path(ROSTER).exists():
                raise CourseError(
                    f"{ROSTER} is there already: `python -m graders roster FILE --force` replaces it{kept}"
                )
            try:
                listed = roster_of(read_table(file))
            except CourseError as error:
                raise CourseError(f"{error}{kept}") from None
            _write_text(Path(ROSTER), listed)
        missing = False
        seen = overview(course, records)
        for finding in findings(course, records, seen):
            missing = missing or finding.state == MISSING
            print(*finding.lines(), sep="\n", flush=True)
        print("", *next_steps(course, seen), sep="\n")
    return 1 if missing else 0


def _class(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.classroom.course import Course
        from graders.classroom.gradebook import Records
        from graders.classroom.overview import overview
    with closing(Course(Path.cwd(), arguments.verbose, arguments.db)) as course, Records(course) as records:
        seen = overview(course, records)
    print(*seen.lines(), sep="\n")
    for line in seen.faults():
        print(line, file=sys.stderr)
    return 1 if seen.faults() else 0


def _collect(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.classroom.collect import collect
        from graders.classroom.course import Course
    course = Course(Path.cwd(), arguments.verbose)
    assignment = course.find(arguments.set)
    if missing := [str(path) for path in arguments.path if not path.exists()]:
        raise CourseError(f"there is no {', '.join(missing)}")
    came = collect(course.root, assignment, arguments.path, arguments.platform, arguments.older)
    students = sorted(came.students)
    for line in came.left_out:
        print(printable(line, 1000), file=sys.stderr)
    for line in came.replaced:
        print(printable(line, 1000))
    new = [student for student in students if student not in came.same]
    names = f" ({', '.join(printable(student, 60) for student in new)})" if new else ""
    same = f"; {len(students) - len(new)} as they were" if len(new) < len(students) else ""
    print(f"{assignment}: {len(new)} collected into submitted/{names}{same}")
    return 1 if came.left_out or not students else 0


def _doctor(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.classroom.checkup import checkup
        from graders.classroom.course import Course
    with closing(Course(Path.cwd(), arguments.verbose)) as course:
        return checkup(course, arguments.path, arguments.dry_run)


def _scores(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.classroom import report
        from graders.classroom.course import Course
        from graders.classroom.gradebook import Records
    with closing(Course(Path.cwd(), arguments.verbose, arguments.db)) as course, Records(course) as records:
        only = course.find(arguments.set) if arguments.set else ""
        if arguments.json:
            from graders.classroom.asdata import scores

            _print_json(scores(records, arguments.why, only))
            return 0
        rows, most = records.scores(only)
        if arguments.csv:
            print(report.as_csv(rows, most), end="")
            return 0
        if not rows or (only and only not in most):
            raise CourseError(f"nothing has been graded yet: run `python -m graders grade {only or 'SET'}`")
        print(report.table(rows, most))
        if notes := records.notes(only):
            print("", *notes, sep="\n")
        if arguments.why:
            print()
            for line in records.lines(rows):
                print(line)
    return 0


def _feedback(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.classroom.console import overwrites, progress
        from graders.classroom.course import Course
        from graders.classroom.giving import archive, give
        from graders.classroom.lock import alone
        from graders.classroom.roster import Roster, read_roster
    if os.name != "posix":
        raise CourseError("pages are made in forked processes, on Linux or macOS: use `nbgrader generate_feedback`")
    if arguments.like and not arguments.zip:
        raise CourseError("--like says how the pages in an archive are named: name the archive too, with --zip FILE")
    with closing(Course(Path.cwd(), arguments.verbose, arguments.db)) as course:
        assignment = course.find(arguments.set)
        graded = [
            s for s in course.students(assignment) if course.autograded(course.submission(s, assignment)).is_dir()
        ]
        if unknown := sorted({*arguments.student} - {*graded}):
            raise CourseError(f"nothing of {', '.join(unknown)} is graded in {assignment}")
        students = arguments.student or graded
        if not students:
            raise CourseError(f"nothing is graded in {assignment}: run `python -m graders grade {assignment}`")
        course.reader.start()
        with alone(course.source(assignment)):
            say = progress if overwrites() else lambda line: None
            workers = arguments.workers or cores()
            given = give(course, course.gradebook(), assignment, students, workers, arguments.force, say)
        if overwrites():
            progress("")
        lines = list(given.lines)
        counts = f"{len(given.made)} made, {len(given.kept)} as they were"
        print(f"{assignment}: pages of feedback: {counts}, in {course.dirs.feedback_directory}/STUDENT/{assignment}/")
        if arguments.zip:
            roster = read_roster(course.root, course.dirs.db_url) or Roster([{"id": student} for student in graded])
            count, left = archive(course, assignment, graded, arguments.zip, arguments.like, roster)
            lines += left
            print(f"{arguments.zip}: {count} page{'s' * (count != 1)}")
    for line in lines:
        print(printable(line, 1000), file=sys.stderr)
    return 1 if lines else 0


def _fill(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.classroom.course import Course
        from graders.classroom.gradebook import Records
        from graders.classroom.gradefile import fill, read_table
        from graders.classroom.roster import Roster, read_roster
    target: Path = arguments.out or arguments.file.with_name(f"{arguments.file.stem}-filled.csv")
    if target.exists() and not arguments.out:
        raise CourseError(
            f"{target} is there already: name it instead of {arguments.file.name} to fill another column in it, or "
            "name the file to write with --out"
        )
    with closing(Course(Path.cwd(), arguments.verbose, arguments.db)) as course, Records(course) as records:
        assignment = course.find(arguments.set)
        rows, most = records.scores()
        if assignment not in most:
            raise CourseError(
                f"nothing of {assignment} has been graded yet: run `python -m graders grade {assignment}`"
            )
        scores = {student: row.get(assignment) for student, row in rows.items()}
        roster = read_roster(course.root, course.dirs.db_url) or Roster([{"id": student} for student in rows])
        table = read_table(arguments.file)
        others = [name for name in course.assignments if name != assignment]
        filled = fill(table, assignment, scores, most[assignment], roster, arguments.column, others)
    _write_text(target, filled.text)
    for line in filled.lines:
        print(line, file=sys.stderr)
    counts = f"{filled.new} new, {filled.changed} changed, {filled.same} as they were"
    print(f"{target}: {printable(filled.column, 100)!r} for {filled.platform}: {counts}")
    return 1 if filled.lines else 0


def _roster(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.classroom.gradefile import read_table, roster_of
        from graders.classroom.roster import ROSTER
    target = Path(ROSTER)
    if not Path("nbgrader_config.py").is_file():
        raise CourseError("this is not a course folder (no nbgrader_config.py): run this from the course's root")
    if target.exists() and not arguments.force:
        raise CourseError(f"{target} is there already: --force replaces it")
    text = roster_of(read_table(arguments.file))
    _write_text(target, text)
    count = text.count("\n") - 1
    print(f"{target}: {count} student{'s' * (count != 1)}; `nbgrader db student import {target}` enters their names")
    return 0


def _extend(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.classroom.course import Course
        from graders.classroom.extending import extend
        from graders.classroom.gradebook import Records
    with closing(Course(Path.cwd(), arguments.verbose, arguments.db)) as course, Records(course) as records:
        assignment = course.find(arguments.set)
        for extended in extend(course, records, assignment, arguments.student, arguments.time):
            print(f"{assignment}: {extended}")
    return 0


def _write_text(target: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = target.with_name(f".{target.name}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(target)
    except OSError as error:
        raise CourseError(f"{target} cannot be written ({error.strerror or error})") from None


def _page(target: Path) -> Path:
    """Return where a page is to be written; say so now if it cannot be."""
    if target.suffix not in (".html", ".htm"):
        raise CourseError(f"{target} is not a page: name a file that ends in .html")
    if not target.absolute().parent.is_dir():
        raise CourseError(f"there is no folder {target.parent}: make it first")
    return target


def _graded(course: "Course", records: "Records", assignment: str) -> None:
    """Say what to type first where a set is not in the gradebook; to open it would make one."""
    if not course.has_gradebook or assignment not in records.scores()[1]:
        raise CourseError(f"{assignment} is not graded yet: run `python -m graders grade {assignment}`")


def _hand(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.classroom.byhand import WIDTH, read_rubric, read_sheet, sheet
        from graders.classroom.console import overwrites, progress
        from graders.classroom.course import Course
        from graders.classroom.gradebook import Records
    if arguments.sheet and (arguments.out or arguments.force):
        raise CourseError("--from writes no sheet: leave --out and --force out")
    with closing(Course(Path.cwd(), arguments.verbose, arguments.db)) as course, Records(course) as records:
        assignment = course.find(arguments.set)
        _graded(course, records, assignment)
        cells = records.by_hand(assignment)
        if not cells:
            raise CourseError(f"{assignment} has no cell that is graded by hand, in nothing that is graded")
        if not arguments.sheet:
            target = arguments.out or Path(f"hand-{assignment}.csv")
            if target.exists() and not arguments.force:
                raise CourseError(f"{target} is there already, and may be half filled in: --force replaces it")
            students = sorted({cell.student for cell in cells})
            answers: dict[tuple[str, str], str] = {}
            for number, student in enumerate(students, 1):
                found = records.answers(assignment, student, WIDTH + 1)  # one more shows that it was cut
                answers |= {(student, cell): text for cell, text in found.items()}
                progress(f"{assignment}: {number} of {len(students)} read" if overwrites() else "")
            if overwrites():
                progress("")
            _write_text(target, sheet(cells, answers))
            waiting = sum(cell.score is None for cell in cells)
            print(f"{target}: {len(cells)} answers, {waiting} of them without a score")
            return 0
        given, faults = read_sheet(arguments.sheet, cells, read_rubric(course.root))
        records.give_by_hand(assignment, given)
        left = sum(cell.score is None for cell in records.by_hand(assignment))
    for line in faults:
        print(line, file=sys.stderr)
    counts = [sum(one.score is not None for one in given), sum(one.comment is not None for one in given)]
    done = " and ".join(f"{n} {what}{'s' * (n != 1)}" for n, what in zip(counts, ("score", "comment"), strict=True))
    print(f"{assignment}: {done} written; {left} answer{'s' * (left != 1)} without a score")
    return 1 if faults else 0


def _similar(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.classroom.console import overwrites, progress
        from graders.classroom.course import Course
        from graders.classroom.gradebook import Records
        from graders.classroom.similarpage import compare, lines, page
        from graders.classroom.templates import face
    with closing(Course(Path.cwd(), arguments.verbose, arguments.db)) as course, Records(course) as records:
        assignment = course.find(arguments.set)
        target = _page(arguments.out or Path(f"similar-{assignment}.html"))
        _graded(course, records, assignment)
        found = compare(course, records, assignment, lambda line: progress(line if overwrites() else ""))
        if overwrites():
            progress("")
        count = len(found.corpus.answers)
        if count < 2:
            raise CourseError(f"{assignment}: {count} graded here, and it takes two to compare")
        _write_text(target, page(assignment, found, face(course.root)))
    print(*lines(found), sep="\n", end="\n" if found.pairs else "")
    some = f"{len(found.pairs)} of {count * (count - 1) // 2} pairs of {count} students"
    print(f"{target}: {some} have more in common than chance explains (from {found.corpus.enough:.0f} bits on)")
    return 0


def _report(arguments: argparse.Namespace) -> int:
    with _loading():
        from graders.classroom.classreport import write
        from graders.classroom.console import overwrites, progress
        from graders.classroom.course import Course
        from graders.classroom.gradebook import Records
    target: Path = _page(arguments.out)
    with closing(Course(Path.cwd(), arguments.verbose, arguments.db)) as course, Records(course) as records:
        try:
            sets, concerns = write(
                course,
                records,
                target,
                arguments.anonymous,
                lambda line, last: progress(line if last or overwrites() else ""),
            )
        except OSError as error:
            raise CourseError(f"{target} cannot be written ({error.strerror or error})") from None
        if overwrites():
            progress("")
        if not sets:
            raise CourseError(f"nothing has been handed in, as {target} says: put submissions into submitted/")
    talk = f"{len(concerns)} student{'s' * (len(concerns) != 1)} to talk to"
    print(f"{target}, {target.with_suffix('.csv').name}: {len(sets)} set{'s' * (len(sets) != 1)}, {talk}")
    return 0


def _print_json(document: object) -> None:
    print(json.dumps(document, indent=2))


def _sample(arguments: argparse.Namespace) -> int:
    early = _early_parent()
    with ExitStack() as at_end:
        if early:
            at_end.callback(early.close)
        with _loading():
            from graders.classroom.console import say
            from graders.classroom.course import Course
            from graders.classroom.sample import run_sample
            from graders.engine import parents, pool

            pool.load()
        if early:
            parents.provide(early)
        course = Course(Path.cwd(), arguments.verbose)
        assignments = sorted({course.find(name) for name in arguments.sets})
        course.reader.start()  # before there are threads
        at_end.callback(course.close)
        settings = course.settings
        try:
            with pool.hired(settings, cores(), None, say) as crew:
                crew.ready()
                return run_sample(course, crew, settings, arguments.update, assignments)
        except PoolError as error:
            say(f"graders: the sample class is harmless, so it is graded without a sandbox ({error})")
        settings = replace(settings, sandbox="off")
        with pool.hired(settings, cores(), None, say) as crew:
            return run_sample(course, crew, settings, arguments.update, assignments)
