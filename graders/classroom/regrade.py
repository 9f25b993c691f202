"""Grading again with a difference: who would gain or lose what, and why, before anything is written; and the way back.

What is written over is kept in ``regraded/SET/``: each student's graded notebooks, and what the gradebook held. The way
back puts it in place again for everybody who has not been graded anew since.
"""

import json
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from shutil import copytree, rmtree
from statistics import fmean
from tempfile import TemporaryDirectory

from graders.classroom.console import conclude, say
from graders.classroom.course import Course
from graders.classroom.errors import CourseError
from graders.classroom.gradebook import Records
from graders.classroom.graded import Executed, points_in
from graders.classroom.grading import Grading
from graders.classroom.held import Cell, Held
from graders.classroom.submission import Prepared, Submission
from graders.engine.job import Settings
from graders.engine.pool import Crew
from graders.notebook.problem import Problem, printable

KEPT = "regraded"  # in the course's folder
BEFORE = "before.json"  # what the gradebook held; written first
EVEN = 10  # names of those whose total stays, in a line


@dataclass(frozen=True)
class Difference:
    """A check that another grading judges otherwise.

    Args:
        check: in words: "Square gradient".
        before, after: its points; None: none yet.
        by_hand: the points that a person gave, which count whatever the checks say; None: none.
        message: what the one of the two that has fewer points says.
    """

    check: str
    before: float | None
    after: float | None
    by_hand: float | None
    message: str

    def __str__(self) -> str:
        points = f"{_points(self.before)} -> {_points(self.after)}"
        hand = f" (by hand {self.by_hand:g}, which stays)" if self.by_hand is not None else ""
        when = "it said" if (self.after or 0) > (self.before or 0) else "it says"
        said = f", {when}: {printable(self.message, 300)}" if self.message else ""
        return f"{printable(self.check, 100)}: {points}{hand}{said}"


@dataclass(frozen=True)
class Change:
    """What another grading makes of a submission.

    Args:
        student: whose it is.
        before, after: the score, late penalties taken off.
        differences: the checks that are judged otherwise.
        newer: whether another file was handed in since.
    """

    student: str
    before: float
    after: float
    differences: tuple[Difference, ...]
    newer: bool


@dataclass(frozen=True)
class _Pending:
    """A submission that was executed again, and is not recorded yet; the notebooks themselves lie in a folder."""

    prepared: Prepared
    read: Mapping[str, Executed]  # without their texts
    before: Mapping[str, Held]
    after: Mapping[str, Held]
    change: Change


class Again(Grading):
    """A grading whose results wait until somebody has seen what they change.

    Args:
        course: the course.
        assignment: the set.
        crew: the workers that execute notebooks.
        settings: the limits of an execution.
        folder: an empty one of the caller's, for the notebooks that wait.
    """

    def __init__(self, course: Course, assignment: str, crew: Crew, settings: Settings, folder: Path) -> None:
        super().__init__(course, assignment, crew, settings)
        self._folder = folder
        self._pending: dict[str, _Pending] = {}

    @property
    def changes(self) -> list[Change]:
        """Those whose score or checks change, the largest loss first."""
        found = [one.change for one in self._pending.values()]
        return sorted(
            (c for c in found if c.differences or c.before != c.after), key=lambda c: (c.after - c.before, c.student)
        )

    @property
    def done(self) -> int:
        """How many were graded again."""
        return len(self._pending)

    def means(self) -> tuple[float, float]:
        """Return the mean score of all who were graded again, before and after; at least one was."""
        found = [one.change for one in self._pending.values()]
        return fmean(c.before for c in found), fmean(c.after for c in found)

    def write(self) -> tuple[Path, list[tuple[str, Problem]]]:
        """Record what waits, and keep what it replaces.

        Returns:
            The folder with what is replaced, and what a person should know, by student.

        Raises:
            CourseError: the gradebook or the folder cannot be written.
        """
        kept = self._keep()
        problems: list[tuple[str, Problem]] = []
        with self.records:
            for student, one in self._pending.items():
                texts = {name: (self._folder / student / f"{name}.ipynb").read_text("utf-8") for name in one.read}
                read = {name: Executed(found.grades, (), texts[name]) for name, found in one.read.items()}
                problems += [(student, problem) for problem in self.records.write(one.prepared, read)]
        return kept, problems

    def _keep(self) -> Path:
        """Copy what is going to be replaced; return the folder."""
        parent = self.course.root / KEPT / self.assignment
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
        number = next(n for n in range(100) if not (parent / f"{stamp}{f'_{n}' if n else ''}").exists())
        folder = parent / f"{stamp}{f'_{number}' if number else ''}"
        try:
            part = folder.with_name(f".{folder.name}.part")
            for student, one in self._pending.items():
                copytree(self.course.autograded(one.prepared.submission), part / student)
            both = {
                student: {"held": _as_data(one.before), "written": _digests(self._folder / student)}
                for student, one in self._pending.items()
            }
            (part / BEFORE).write_text(json.dumps(both), encoding="utf-8")
            part.rename(folder)
        except OSError as error:
            raise CourseError(f"{KEPT}/ cannot be written ({error.strerror or error}): nothing was changed") from None
        return folder

    # --- in place of recording ---

    def _record(self, prepared: Prepared, executed: dict[str, str]) -> list[Problem]:
        submission, folder = prepared.submission, self._folder / prepared.submission.student
        marks = self.records.marks(submission, submission.notebooks) or {}
        read = self.records.read(prepared, executed, self._judged(submission))
        folder.mkdir()
        for name, found in read.items():
            (folder / f"{name}.ipynb").write_text(found.text, encoding="utf-8")
        before, after = self.records.held(submission), self.records.would_hold(prepared, read)
        newer = any(marks[name].graded != ready.digest for name, ready in prepared.notebooks.items() if name in marks)
        change = Change(
            submission.student,
            sum(held.score for held in before.values()),
            sum(held.score for held in after.values()),
            tuple(self._differences(submission, before, after)),
            newer,
        )
        light = {name: Executed(found.grades, (), "") for name, found in read.items()}
        self._pending[submission.student] = _Pending(prepared, light, before, after, change)
        return [problem for found in read.values() for problem in found.problems]

    def _forget(self, submission: Submission) -> None:
        """Nothing was written."""

    def _differences(
        self, submission: Submission, before: Mapping[str, Held], after: Mapping[str, Held]
    ) -> Iterator[Difference]:
        for name, held in after.items():
            pairs = {cell: (before[name].cells[cell], now) for cell, now in held.cells.items()}
            if all(old == new for old, new in pairs.values()):
                continue
            was = self._said(self.course.autograded(submission) / f"{name}.ipynb", name)
            now = self._said(self._folder / submission.student / f"{name}.ipynb", name)
            for cell, (old, new) in pairs.items():
                if old != new:
                    said = was if (new.auto or 0) > (old.auto or 0) else now
                    check, message, _ = said.get(cell, (cell, "", ""))
                    yield Difference(check, old.auto, new.auto, new.manual, message)

    def _said(self, path: Path, name: str) -> dict[str, tuple[str, str, str]]:
        try:
            return self.records.messages(self.assignment, name, path)
        except Exception:  # a file that somebody changed or removed: the points are told all the same
            return {}


def again(course: Course, assignment: str, students: Sequence[str], crew: Crew, settings: Settings, sure: bool) -> int:
    """Grade again what is graded, say what that changes, and write it if somebody agrees.

    Args:
        course: the course; its reader runs, and the set is registered.
        assignment: the set.
        students: those who may be graded again, each with a submission.
        crew: the workers that execute notebooks.
        settings: the limits of an execution.
        sure: write it without asking. Where nobody can be asked, nothing is written.

    Returns:
        The exit code: 0, or 1 where a person should look at something.

    Raises:
        CourseError: there is nothing to grade again, or it cannot be written.
    """
    with Records(course) as records:
        scores, _ = records.scores()
    graded = [
        student
        for student in students
        if scores.get(student, {}).get(assignment) is not None
        and course.autograded(course.submission(student, assignment)).is_dir()
    ]
    if not graded:
        raise CourseError(f"nothing is graded in {assignment}: run `python -m graders grade {assignment}`")
    if others := len(students) - len(graded):
        has, are = ("submissions have", "are") if others > 1 else ("submission has", "is")
        say(f"{assignment}: {others} {has} no score here yet and {are} left out: `grade` without --again grades them")
    with TemporaryDirectory(prefix="again-") as folder:
        grading = Again(course, assignment, crew, settings, Path(folder))
        faults = grading.grade(graded, force=True)
        if not grading.done:
            raise CourseError("none of them could be graded again: nothing was changed")
        conclude(*told(assignment, grading.changes, grading.means(), grading.done))
        if not sure and grading.changes and sys.stdin.isatty() and sys.stdout.isatty():
            sure = input("Write this? [y/N] ").strip().lower() in ("y", "yes")
        if not sure:
            how = f"; `python -m graders grade {assignment} --again --yes` writes it" if grading.changes else ""
            conclude(f"{assignment}: nothing was written{how}.")
            return 1 if faults else 0
        with _uninterrupted():
            kept, problems = grading.write()
    say(*(f"{student}: {problem}" for student, problem in problems))
    conclude(
        f"{assignment}: written. The earlier grading is kept in {kept.relative_to(course.root)}/; "
        f"`python -m graders grade {assignment} --undo` puts it back."
    )
    return 1 if faults or problems else 0


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until this has ended: half a class with new points is what nobody wants."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def told(assignment: str, changes: Sequence[Change], means: tuple[float, float], graded: int) -> list[str]:
    """Return the lines that say what would change.

    Args:
        assignment: the set.
        changes: as `Again.changes` has them.
        means: of the scores, before and after.
        graded: how many were graded again.
    """
    gain, lose = (sum(sign * (c.after - c.before) > 0 for c in changes) for sign in (1, -1))
    if not changes:
        return [f"{assignment}: nothing changes for any of the {graded} graded again."]
    lines = [f"{assignment}: of {graded} graded again {gain} would gain and {lose} would lose points; "]
    lines[0] += f"the mean goes from {means[0]:.2f} to {means[1]:.2f}."
    even = [c for c in changes if c.after == c.before and not any("by hand" in str(each) for each in c.differences)]
    for change in changes:
        if change in even:
            continue
        newer = "  (a newer file than the one graded before)" if change.newer else ""
        moved = f"{change.before:g} -> {change.after:g}  ({change.after - change.before:+g})"
        lines.append(f"  {printable(change.student, 60)}  {moved}{newer}")
        lines += [f"      {difference}" for difference in change.differences]
    if even:
        names = ", ".join(printable(change.student, 60) for change in even[:EVEN])
        more = f" and {len(even) - EVEN} more" if len(even) > EVEN else ""
        lines.append(f"  the same total, other points of checks: {names}{more}")
    return lines


def undo(course: Course, records: Records, assignment: str) -> tuple[Path, list[str], list[str]]:
    """Put back what the last grading with `Again` replaced.

    Returns:
        The folder it was kept in, which is gone then unless somebody was left out; the students who have their former
        points again; and a line on each who was left out, since the score is another by now.

    Raises:
        CourseError: nothing is kept, or it cannot be read.
    """
    kept = sorted(path for path in (course.root / KEPT / assignment).glob("[0-9]*") if (path / BEFORE).is_file())
    if not kept:
        raise CourseError(f"there is nothing to take back: {KEPT}/{assignment}/ holds no grading")
    folder, done, left = kept[-1], [], []
    try:
        both = json.loads((folder / BEFORE).read_text(encoding="utf-8"))
        known = {
            student: ({name: _of_data(held) for name, held in one["held"].items()}, dict(one["written"]))
            for student, one in both.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise CourseError(f"{folder.relative_to(course.root)}/{BEFORE} cannot be read: restore a copy of it") from None
    _same_points(course, records, assignment, folder, known)
    with _uninterrupted(), records:
        for student, (held, written) in sorted(known.items()):
            submission = course.submission(student, assignment)
            now = _digests(course.autograded(submission))
            if now in (written, {}):  # none: it was stopped between the gradebook and the files
                records.put_back(submission, held, folder / student)
                done.append(student)
            elif now != _digests(folder / student):  # else it was stopped before
                left.append(f"{student}: was graded once more since then, and is left as it is")
    if left:
        folder.rename(folder.with_name(f"undone-{folder.name}"))
    else:
        rmtree(folder)
    return folder, done, left


def _same_points(course: Course, records: Records, assignment: str, folder: Path, students: Iterable[str]) -> None:
    """Refuse to put scores back that are out of other points than the checks have now."""
    released = records.released(assignment).cells
    for student in sorted(students):
        for name, cells in released.items():
            path = folder / student / f"{name}.ipynb"
            then = course.reader.ask(points_in, path) if path.is_file() else {}
            for cell, points in then.items():
                if cell in cells and cells[cell].points != points:
                    what = f"{cell} was worth {points:g} then and is worth {cells[cell].points:g} now"
                    how = "run `make notebooks exercises` and `grade`, then --undo again"
                    raise CourseError(f"{what}: put its points back in graders/sets/, {how}")


def _points(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def _digests(folder: Path) -> dict[str, str]:
    """Return a digest of each notebook in a folder, by name."""
    return {path.stem: sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.ipynb"))}


def _as_data(held: Mapping[str, Held]) -> dict[str, object]:
    return {name: asdict(one) for name, one in held.items()}


def _of_data(data: Mapping[str, object]) -> Held:
    cells = {name: Cell(**cell) for name, cell in data["cells"].items()}  # type: ignore[attr-defined]
    return Held(cells, data["comments"], data["penalty"])  # type: ignore[arg-type]
