"""The loop that grades a class: each submission from its folder to the gradebook, as soon as it is done."""

import errno
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from graders.classroom.attention import brief
from graders.classroom.console import clock, conclude, overwrites, progress, say
from graders.classroom.course import Course
from graders.classroom.errors import CourseError
from graders.classroom.gradebook import GO_ON, Records
from graders.classroom.released import Released, job_of
from graders.classroom.submission import Prepared, Refused, Submission, not_read, prepare
from graders.classroom.version import version
from graders.engine import pool
from graders.engine.errors import Overspent
from graders.engine.job import Job, Settings
from graders.engine.sandbox import NoMemory
from graders.engine.timing import phase
from graders.notebook.codes import Code
from graders.notebook.problem import Problem, printable

# of a file that cannot be written: what would happen to every other submission too
FOR_ALL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}


@dataclass(frozen=True)
class Kept:
    """A submission that is graded already, and what a person should know of it."""

    submission: Submission
    problems: tuple[Problem, ...]
    earlier: bool  # other checks, or another seed, judged it
    settled: bool = False  # its points changed: a due date, an extension or the late policy is another


Outcome = Prepared | Refused | Kept


class Grading:
    """The grading of one registered set.

    Args:
        course: the course.
        assignment: the set.
        crew: the workers that execute notebooks.
        settings: the limits of an execution.
    """

    def __init__(self, course: Course, assignment: str, crew: pool.Crew, settings: Settings) -> None:
        self.course, self.assignment, self.crew, self.settings = course, assignment, crew, settings
        self.records = Records(course)
        self.released: Released = self.records.released(assignment)

    def grade(self, students: Sequence[str], force: bool = False, named: int = 0) -> dict[str, list[Problem]]:
        """Grade the submissions of these students with progress, a line per fault on stderr and a summary.

        Args:
            students: each with a submission.
            force: grade again what is graded already.
            named: how many faults were named before.

        Returns:
            The faults, by student.
        """
        faults: dict[str, list[Problem]] = {}
        graded = kept = earlier = settled = number = 0
        start = time.monotonic()
        with self.records:
            plan = [self._plan(student, force) for student in students]
            left = sum(not isinstance(step, Kept) for step in plan)
            progress(f"{self.assignment}: {len(plan)} submission{'s' * (len(plan) != 1)}, {left} to grade")
            for outcome, problems in self._results(plan):
                number += 1
                student = outcome.submission.student
                failed = any(problem.fatal for problem in problems)
                graded += isinstance(outcome, Prepared) and not failed
                kept += isinstance(outcome, Kept)
                earlier += isinstance(outcome, Kept) and outcome.earlier
                settled += isinstance(outcome, Kept) and outcome.settled
                left -= not isinstance(outcome, Kept)
                if problems:
                    faults[student] = problems
                    say(*brief(student, problems))
                if not isinstance(outcome, Kept) or overwrites():
                    rate = _rate(time.monotonic() - start, graded, left)
                    progress(f"{self.assignment}: {number} of {len(plan)}, {student}{rate}")
        progress("")
        lines = named + sum(map(len, faults.values()))
        parts = [f"{graded + kept} of {len(plan)} submissions graded in {clock(time.monotonic() - start)}"]
        parts += [f"{kept} of them earlier"] if kept else []
        parts += [f"{lines} fault{'s' * (lines != 1)} above"] if lines else []
        conclude(f"{self.assignment}: {', '.join(parts)}.")
        if settled:
            have = "submissions have" if settled != 1 else "submission has"
            conclude(
                f"{self.assignment}: {settled} {have} other points than before, by the due date and the late policy."
            )
        if earlier:
            some = f"{earlier} submission{'s' * (earlier != 1)} by other checks, or with another seed, than today's"
            conclude(f"{self.assignment}: graded {some}; `--again` shows what grading again would change.")
        return faults

    def each(self, students: Sequence[str]) -> Iterator[tuple[Outcome, list[Problem]]]:
        """Grade what is not graded yet; yield each submission when it is recorded, with what a person should know."""
        with self.records:
            yield from self._results([self._plan(student, False) for student in students])

    def _results(self, plan: Sequence[Outcome | Submission]) -> Iterator[tuple[Outcome, list[Problem]]]:
        for outcome, results in pool.execute(self.crew, self._work(plan)):
            with phase("nbgrader: saving, writing"):
                problems = self._finish(outcome, results)
            yield outcome, problems

    def _plan(self, student: str, force: bool) -> Outcome | Submission:
        """Return a submission; one that was graded before is read now, to see whether it is still the same."""
        submission = self.course.submission(student, self.assignment)
        marks = None if force else self.records.marks(submission, submission.notebooks)
        if marks is None:
            return submission
        found = self._prepare(submission)
        if isinstance(found, Refused) or not self.records.is_graded(found):
            return found
        settled = self.records.settle(found)
        ran = [problem for mark in marks.values() for problem in mark.problems]
        judged = self._judged(submission)
        earlier = any(mark.judged != judged[name] for name, mark in marks.items())
        return Kept(submission, (*found.problems, *ran), earlier, settled)

    def _prepare(self, submission: Submission) -> Prepared | Refused:
        try:
            return self.course.reader.ask(prepare, submission, self.released)
        except Exception as error:  # whatever a student wrote: the others are graded
            self.course.app.log.info(traceback.format_exc())
            return Refused(submission, (not_read(f"{submission.folder.name}/", error),))

    def _work(self, plan: Sequence[Outcome | Submission]) -> Iterator[tuple[Outcome, list[Job]]]:
        """Yield each submission with what has to be executed of it; it is read only now, if it was not before."""
        for step in plan:
            with phase("submission: reading"):
                outcome = self._prepare(step) if isinstance(step, Submission) else step
                yield outcome, self._jobs(outcome)

    def _jobs(self, outcome: Outcome) -> list[Job]:
        if not isinstance(outcome, Prepared):
            return []
        cells = self.released.cells
        settings = replace(self.settings, seed=self.course.seed(outcome.submission, self.settings.seed))
        return [job_of(ready.text, cells[name], settings) for name, ready in outcome.notebooks.items()]

    def _finish(self, outcome: Outcome, results: Sequence[pool.Result]) -> list[Problem]:
        """Record what was executed; return what a person should know of the submission."""
        problems = list(outcome.problems)
        if isinstance(outcome, Kept):
            return problems
        if isinstance(outcome, Refused):
            return with_earlier(problems, self.records.score(outcome.submission))
        executed: dict[str, str] = {}
        for name, result in zip(outcome.notebooks, results, strict=True):
            if isinstance(result, BaseException):
                self._forget(outcome.submission)
                failed = [*problems, _not_executed(f"{name}.ipynb", result)]
                return with_earlier(failed, self.records.score(outcome.submission))
            executed[name] = result
        try:
            return problems + self._record(outcome, executed)
        except CourseError:
            raise
        except Overspent as error:
            self._forget(outcome.submission)
            return [*problems, not_read(f"{next(iter(executed))}.ipynb", error)]
        except Exception as error:  # of the database, of the disk, of a configured step: the others are graded
            if isinstance(error, OSError) and error.errno in FOR_ALL:
                where = printable(error.filename or "autograded/")
                raise CourseError(f"{where} cannot be written ({error.strerror}): {GO_ON}") from None
            self.course.app.log.info(traceback.format_exc())
            self._forget(outcome.submission)
            return [*problems, _not_recorded(f"{next(iter(executed))}.ipynb", error)]

    def _record(self, prepared: Prepared, executed: dict[str, str]) -> list[Problem]:
        return self.records.record(prepared, executed, self._judged(prepared.submission))

    def _judged(self, submission: Submission) -> dict[str, str]:
        """Return the version of the checks that judge a submission, by notebook."""
        seed = self.course.seed(submission, self.settings.seed)
        return {name: version(self.assignment, known, seed) for name, known in self.released.cells.items()}

    def _forget(self, submission: Submission) -> None:
        self.records.forget(submission)


def with_earlier(problems: list[Problem], score: float | None) -> list[Problem]:
    """Return the problems, the first that keeps a submission from being graded saying that an earlier score stays."""
    at = next((number for number, problem in enumerate(problems) if problem.fatal), None)
    if score is None or at is None:
        return problems
    remedy = f"{problems[at].remedy} Until then the score of the file graded earlier stands: {score:g}."
    return [*problems[:at], replace(problems[at], remedy=remedy), *problems[at + 1 :]]


def _not_executed(file: str, error: BaseException) -> Problem:
    if isinstance(error, Overspent):
        return not_read(file, error)
    if isinstance(error, NoMemory):
        remedy = "free some memory on the machine that graded it, use fewer --workers, and run it again."
        return Problem(Code.NO_MEMORY, file, str(error), f"It is not graded: {remedy}", fatal=True)
    remedy = "It is not graded: run the same command again."
    return Problem(Code.NOT_EXECUTED, file, f"could not be executed ({error})", remedy, fatal=True)


def _not_recorded(file: str, error: Exception) -> Problem:
    first = (str(error).strip() or "no reason given").splitlines()[0]
    remedy = "It is not graded: run the same command again, with --verbose to see why it failed."
    what = f"could not be recorded ({type(error).__name__}: {first})"
    return Problem(Code.NOT_RECORDED, file, what, remedy, fatal=True)


def _rate(seconds: float, graded: int, left: int) -> str:
    """Return how fast it goes and how long it takes, once that can be told."""
    if not graded or not left:
        return ""
    rate = f"{graded / seconds:.1f} a second" if graded > seconds else f"{60 * graded / seconds:.0f} a minute"
    return f", {rate}, {clock(left * seconds / graded)} left"
