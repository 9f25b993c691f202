"""Judge an answer in the reader's own process, check by check, and say what is worth saying of each."""

import io
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace

from graders.coach.find import CoachError, Found, named, operation
from graders.coach.links import Link, link
from graders.coach.right import COUNT
from graders.coach.trying import next_step
from graders.inside.pristine import pristine
from graders.judge.once import waits
from graders.judge.task import Check, Task
from graders.judge.testfile import FileCheck, FileTask, ask_fork, cell_source
from graders.judge.verdict import Verdict

SEED = 7  # of the inputs; graders draw others
HOLDS, FAILS, WAITS = "holds", "not yet", "waits"
FORWARD = ("exists", "runs", "returns", "shape", "dtype", "precise", "value")  # looks without which no other can be
NUMBERS = (*FORWARD, "function", "gradient", "gradcheck", "second order", "stateless", "guarded")


@dataclass(frozen=True)
class Step:
    """What the coach says of one check.

    Args:
        verdict: the judge's.
        about: one line on what the check looks at.
        state: `HOLDS`, `FAILS`, or `WAITS`: it fails by what was said of another check already.
        after: that other check, "" for none.
        next: what to try; "" where the check holds or waits.
        link: where the book has more on it.
        seconds: how long it took.
    """

    verdict: Verdict
    about: str
    state: str
    after: str = ""
    next: str = ""
    link: Link | None = None
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """The check's name in words."""
        return words(self.verdict.check)

    @property
    def message(self) -> str:
        """What is said of the check, in a sentence or two."""
        return waits(self.after.replace(" ", "_")) if self.state == WAITS else self.verdict.message


def words(check: str) -> str:
    """Return the name of a check in words: "second order" of ``second_order``."""
    return check.replace("_", " ")


def count(task: Task | FileTask) -> int:
    """Return how many checks a task has."""
    return len(task.checks)


def steps(found: Found, thing: object, seed: int = SEED) -> Iterator[Step]:
    """Judge an answer check by check; each is yielded as soon as it is done.

    Args:
        found: the task.
        thing: the Function or the function; for a test file its text, None where there is none.
        seed: of the inputs.

    Raises:
        CoachError: the answer is not what the task asks for.
        KeyboardInterrupt: it was interrupted; what was yielded stays.
    """
    task = found.task
    if isinstance(task, FileTask) and not hasattr(os, "fork"):
        raise CoachError(
            f"{task.name} can be judged on Linux and macOS alone: each run of the file is a forked process."
        )
    if isinstance(task, FileTask):
        text = _text(thing)
        return _each(task, "", lambda check, failed: task.judge(check, text, seed, ask_fork))
    asked = operation(found, thing)
    judged: dict[tuple[str, str], Verdict] = {}
    return _each(task, _alias(task, thing), lambda check, failed: task.judge(check, asked, seed, judged, failed))


def _each(task: Task | FileTask, alias: str, judge: Callable[[str, Sequence[Verdict]], Verdict]) -> Iterator[Step]:
    """Yield a step for each check.

    Args:
        task: with the checks.
        alias: a line of code in front of each failing case.
        judge: gives the verdict of a check, which may build on those that failed before.
    """
    earlier: list[Step] = []
    for check in task.checks:
        start = time.perf_counter()
        with quiet(), pristine():
            verdict = judge(check.name, [step.verdict for step in earlier if step.state == FAILS])
        if alias and verdict.code:
            verdict = replace(verdict, code=f"{alias}\n\n{verdict.code}")
        step = _said(check, verdict, earlier, time.perf_counter() - start)
        earlier.append(step)
        yield step


def _alias(task: Task, thing: object) -> str:
    """Return the line that gives an answer of another name the one that the failing case is written with."""
    name = named(thing)
    return f"{task.name} = {name}" if name.isidentifier() and name != task.name else ""


def _text(thing: object) -> str | None:
    if thing is None or isinstance(thing, str):
        return thing
    raise CoachError('A test file is asked for: give its name, as in coach("SigmoidTests").')


def file_text(task: FileTask) -> str | None:
    """Return the text of the cell that writes a task's test file, from this kernel's own history."""
    return cell_source(task.first_line)


def _said(check: Check | FileCheck, verdict: Verdict, earlier: Sequence[Step], seconds: float) -> Step:
    if verdict.earned >= verdict.points and not verdict.look:  # a check of a chapter's own task may be worth nothing
        return Step(verdict, check.about, HOLDS, seconds=seconds)
    if first := _before(verdict, earlier):
        return Step(verdict, check.about, WAITS, words(first.verdict.check), seconds=seconds)
    return Step(verdict, check.about, FAILS, "", next_step(verdict), link(verdict), seconds)


def _before(verdict: Verdict, earlier: Sequence[Step]) -> Step | None:
    """Return the step that said this already, or without which this cannot be told."""
    for step in earlier:
        told = step.verdict
        if step.state != FAILS:
            continue
        if verdict.message == told.message or (verdict.mistake and verdict.mistake == told.mistake):
            return step
        if verdict.mistake:
            continue  # another mistake, and it has a name
        if verdict.look == told.look:
            return step
        if verdict.look in NUMBERS and (told.look in FORWARD or told.look == "gradient"):
            return step
    return None


def untouched(steps: Sequence[Step]) -> bool:
    """Return whether nothing was written yet: no try, as the study counts them."""
    first = steps[0].verdict if steps else None
    return first is not None and first.look == "runs" and first.message.endswith("is not written yet.")


def summary(steps: Sequence[Step], total: int) -> str:
    """Return one sentence on what holds and what is left.

    Args:
        steps: of the checks so far.
        total: how many checks there are.
    """
    held = [step.name for step in steps if step.state == HOLDS]
    left = [step.name for step in steps if step.state != HOLDS]
    unseen = total - len(steps)
    if not left and not unseen:
        return "The check holds." if total == 1 else f"All {total} checks hold."
    if not held:
        part = any(step.verdict.earned > 0 for step in steps)
        start = "Not all of it holds yet" if part else "Nothing holds yet"
        said = f"{start}; begin with {left[0]}." if left else "Nothing was judged."
    elif left:
        said = f"{_upper(listed(held))} hold{'s' * (len(held) == 1)}; what is left is {listed(left)}."
    else:
        said = f"{_upper(listed(held))} hold{'s' * (len(held) == 1)}."
    return said + (f" {unseen} of {total} checks did not run." if unseen else "")


def listed(names: Sequence[str]) -> str:
    """Return names as a list in words: "value, gradient and memory"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def closing(found: Found, steps: Sequence[Step]) -> list[str]:
    """Return the sentences below the checks: what holds and what is left; where all holds, what is there to see next.

    Args:
        found: the task.
        steps: of the checks so far.
    """
    total = count(found.task)
    said = [summary(steps, total)]
    if len(steps) == total and all(step.state == HOLDS for step in steps):
        many = min(len(found.task.solutions), COUNT)
        ways = f"{('two', 'three')[many - 2]} right ways, and when to prefer which" if many > 1 else "one right way"
        said.append(f"coach.solutions({found.task.name}) shows {ways}.")
        said += filter(None, [beyond(found)])
    return said


def beyond(found: Found) -> str:
    """Return what grading looks at and the coach cannot, from inside the reader's own process; "" for nothing."""
    task = found.task
    if not isinstance(task, Task):
        return ""
    parts = []
    if weighed := [words(check.name) for check in task.checks if check.outside]:
        parts.append(f"weighs the memory of your process from outside, for the check of {listed(weighed)}")
    if task.forbids is not None:
        parts.append("reads the text of your answer for what the task forbids")
        if task.forbids.backward:
            parts.append("runs it where torch's own autograd is switched off")
    return f"Not judged here: grading also {listed(parts)}." if parts else ""


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what an answer prints, and warnings, out of the table: it runs dozens of times."""
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(io.StringIO()))
        stack.enter_context(redirect_stderr(io.StringIO()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield
