"""The command line: ``python -m graders grade | collect | scores | sample``, run from the course's folder.

Each command drives nbgrader's own parts; what they lack is here: one clear line per fault, progress, an exit code.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from . import report
from .collect import collect
from .course import Course, CourseError
from .sample import SampleError, run_sample
from .submission import Problem

EXIT_CODES = "exit codes: 0 nothing to look at, 1 at least one fault (each has its line on stderr), 2 a wrong command"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        with warnings.catch_warnings():
            if not arguments.verbose:
                warnings.simplefilter("ignore")
            return arguments.run(arguments)
    except (CourseError, SampleError) as error:
        print(f"graders: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ngraders: stopped; what was graded is kept, the same command goes on from there", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m graders", description=__doc__.split("\n")[0], epilog=EXIT_CODES)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, epilog=EXIT_CODES)
        sub.add_argument("-v", "--verbose", action="store_true", help="show nbgrader's own log as well")
        sub.set_defaults(run=run)
        return sub

    sub = command("grade", _grade, "grade what was handed in for a set, one student after the other")
    sub.add_argument("set", metavar="SET", help="01_relu, or relu for short")
    sub.add_argument("student", metavar="STUDENT", nargs="*", help="only these (default: all in submitted/)")
    sub.add_argument(
        "--seed", type=int, metavar="N", help="seed of the hidden inputs (default 0); regrade with --force"
    )
    sub.add_argument(
        "--timeout", type=_seconds, metavar="S", help="seconds a cell may take (a notebook: four times that)"
    )
    sub.add_argument("--force", action="store_true", help="grade again what is graded already")

    sub = command("collect", _collect, "bring folders and archives of notebooks into submitted/")
    sub.add_argument("set", metavar="SET", help="01_relu, or relu for short")
    sub.add_argument("path", metavar="PATH", nargs="+", type=Path, help="a folder, a notebook, a .zip or a .tar.gz")

    sub = command("scores", _scores, "print the scores that the gradebook holds")
    sub.add_argument("--csv", action="store_true", help="as comma-separated values")
    sub.add_argument("--why", action="store_true", help="a line on each lost point as well")

    sub = command("sample", _sample, "build the sample class, grade it, write its feedback and compare its scores")
    sub.add_argument("--update", action="store_true", help="write sample/expected.json in place of comparing with it")
    return parser


def _seconds(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 up")
    return int(text)


def _grade(arguments: argparse.Namespace) -> int:
    course = Course(Path.cwd(), arguments.verbose)
    if arguments.seed is not None:
        os.environ["GRADERS_SEED"] = str(arguments.seed)
    if arguments.timeout:
        course.app.config.Execute.timeout = arguments.timeout
        course.app.config.LimitedExecute.notebook_timeout = 4 * arguments.timeout
    assignment = course.find(arguments.set)
    students = course.students(assignment)
    if unknown := sorted(set(arguments.student) - set(students)):
        raise CourseError(f"nothing handed in for {assignment} by {', '.join(unknown)}; it would be in submitted/")
    students = [student for student in students if not arguments.student or student in arguments.student]
    if not students:
        raise CourseError(f"nothing handed in for {assignment}: submitted/STUDENT/{assignment}/ is where it belongs")
    faults = grade_class(course, assignment, students, arguments.force)
    return 1 if faults else 0


def grade_class(course: Course, assignment: str, students: Sequence[str], force: bool) -> dict[str, list[Problem]]:
    """Grade students one by one with progress, a line per fault on stderr and a summary; the faults by student."""
    course.register(assignment)
    faults: dict[str, list[Problem]] = {}
    graded = failed = 0
    start = time.monotonic()
    for number, student in enumerate(students, 1):
        left = (time.monotonic() - start) / (number - 1) * (len(students) - number + 1) if number > 1 else None
        _progress(f"{assignment}: {number} of {len(students)}, {student}" + (f", {_clock(left)} left" if left else ""))
        executed, problems = course.grade(assignment, student, force)
        graded += executed
        failed += any(problem.fatal for problem in problems)
        if problems:
            faults[student] = problems
            _progress("")
            for problem in problems:
                print(f"{student}: {problem}", file=sys.stderr)
    _progress("")
    kept = len(students) - graded - failed
    parts = [f"{len(students) - failed} of {len(students)} submissions graded in {_clock(time.monotonic() - start)}"]
    parts += [f"{kept} of them before"] if kept > 0 else []
    lines = sum(map(len, faults.values()))
    parts += [f"{lines} fault{'s' * (lines != 1)} above"] if lines else []
    print(f"{assignment}: {', '.join(parts)}.")
    return faults


def _progress(text: str) -> None:
    """A line that the next one overwrites on a terminal; elsewhere one line a student."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K{text}", end="", flush=True)
    elif text:
        print(text, flush=True)


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


def _scores(arguments: argparse.Namespace) -> int:
    course = Course(Path.cwd(), arguments.verbose)
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


def _sample(arguments: argparse.Namespace) -> int:
    return run_sample(Course(Path.cwd(), arguments.verbose), grade_class, print_lost, arguments.update)
