"""Executes a job: a notebook goes in, the executed notebook comes out. No submission makes it raise."""

import ast
import re
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from functools import partial
from time import sleep
from typing import TypeVar

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_output

from graders.engine.bounds import Exceeded, spending
from graders.engine.job import Job, Settings
from graders.engine.kernel import Kernel, KernelGone, OutOfTime, Stuck
from graders.engine.outcome import CELL_TIME, KERNEL_DIED, NOTEBOOK_TIME, OUTPUT_CUT, SUSPECT, Event, put_events
from graders.engine.outputs import Outputs, error
from graders.engine.parents import warm
from graders.engine.sandbox import NoMemory, Parent, SandboxError
from graders.engine.timing import phase
from graders.engine.trusted import Bench
from graders.inside.records import Case, Record
from graders.inside.refusal import AUTOGRAD, REFUSED
from graders.inside.replies import answered
from graders.inside.wire import Message, WireError
from graders.judge.proxy import Desk
from graders.judge.reading import joined, suspect
from graders.judge.verdict import Verdict

FOR_THE_EYE = ("check_", "plot_")  # how the ids of locked cells begin whose only use is what they show
CELLS_FULL = 5  # so many cells may show as much as one may; a notebook of more is cut too
LITTLE = 1000  # characters that a cell may always show
Answer = TypeVar("Answer")
AGAIN = 1.0  # seconds for a cell that has run out of time once
JUDGING = 20  # CPU seconds that a cell may cost the grader beyond those that the cell has for itself
RESPITE = 2.0  # seconds for a machine without memory to find some
MORE = {  # what in a cell makes a kernel load more than it has: see `graders.inside.warm.MORE`
    "compiler": re.compile(r"\b(func|functorch|vmap|optim|checkpoint|_dynamo|jacrev|jacfwd|hessian)\b|torch\.compile"),
    "figures": re.compile(r"\bplt\."),
}
NOT_RUN = "Not run while grading; run the cell to see it.\n"
_one_at_a_time = threading.Lock()  # a worker may have several threads; stdout is one


def judging(settings: Settings) -> int:
    """Return how many CPU seconds of the grader's own a cell may cost: reading what it shows, judging its answers."""
    return settings.cell_time + JUDGING


def run(job: Job) -> str:
    """Execute a notebook as `execute` does; return it as JSON, for another process."""
    executed = execute(job)
    with phase("notebook: reading and writing"):
        return str(nbformat.writes(executed))


def execute(job: Job) -> NotebookNode:
    """Execute a notebook within its limits; return the executed notebook.

    Whatever a submission does ends in its outputs: a cell that was stopped, or not reached, has an error. The same as
    data, the `Event`s, is in the notebook's metadata.

    Raises:
        SandboxError: there is no sandbox, and one is required.
        NoMemory: twice, because of others on this machine.
    """
    with _one_at_a_time:
        try:
            executed, sound = _execute(job)
            if sound:
                return executed
        except SandboxError:
            pass
        except NoMemory:
            sleep(RESPITE)
        executed, _ = _execute(job)  # the warm parent was lost, maybe by another's doing: once more, with a new one
        return executed


def _execute(job: Job) -> tuple[NotebookNode, bool]:
    """The executed notebook, and whether nothing went wrong that may be none of its doing.

    Raises:
        SandboxError, NoMemory: as `run`.
    """
    parent = warm(job.settings.sandbox)
    with phase("notebook: reading and writing"):
        notebook = nbformat.reads(job.notebook, as_version=4)
    for what in more_of(notebook, job):
        with phase(f"start: loading more, {what}"):
            parent.load_more(what)
    execution = Execution(parent, job, notebook)
    execution.run()
    if execution.starved:
        raise NoMemory(f"memory ran out in {execution.starved} because other processes had taken it")
    with phase("student's cells: reading"), suppress(Exceeded), spending(judging(job.settings)):
        execution.suspect()
    put_events(notebook, execution.events)
    return notebook, execution.sound and parent.alive


def more_of(notebook: NotebookNode, job: Job) -> list[str]:
    """Return the names in `MORE` of what a notebook uses, by figures of its own or those that are drawn."""
    every = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    own = every if job.settings.visible else [source for source in every if source not in job.given]
    return [w for w, used in MORE.items() if any(map(used.search, own if w == "figures" else every))]


class Execution:
    """One notebook on its way."""

    def __init__(self, parent: Parent, job: Job, notebook: NotebookNode) -> None:
        self.parent, self.settings, self.notebook = parent, job.settings, notebook
        self.tests = dict(job.tests)
        self.bench = Bench(job.given, job.answers)
        self.given = frozenset(job.given)
        self.stopped: tuple[str, str] | None = None  # the event's name, and why no further cell runs
        self.events: list[Event] = []
        self.sound = True
        self.share = parent.share(job.settings)
        self.clock = self.share.clock
        self.deadline = self.clock() + job.settings.notebook_time
        self.starved = ""  # the cell in which memory ran out that others had taken
        self.room = CELLS_FULL * job.settings.max_output  # characters of output left to the notebook
        self.forbidding: dict[frozenset[str], tuple[Kernel, int]] = {}  # kernels, and the cells that ran in each
        self.number = 0  # of the cell that is next
        self.asking = False  # whether a kernel may have more to say
        self.judged: dict[tuple[str, str], Verdict] = {}  # what the checks found since the last of the student's cells
        self.endless: set[int] = set()  # student cells that ran out of time
        self.again = 0.0  # seconds of student's cells run once more, which are no question's time

    def run(self) -> None:
        """Execute all cells, whatever happens in them; once.

        Raises:
            SandboxError, NoMemory: a kernel did not start; of SandboxError, the first one.
        """
        with closing(self.share), self._kernel() as self.kernel:
            try:
                for number, cell in enumerate(self.notebook.cells):
                    self.number = number
                    if cell.cell_type == "code":
                        cell.execution_count = None
                        cell.outputs = []
                        if cell.source.strip() or _id(cell) in self.tests:
                            self._bounded(cell)
            finally:
                with phase("kernel: end"):
                    for kernel in (self.kernel, *(kernel for kernel, _ in self.forbidding.values())):
                        kernel.close()

    def suspect(self) -> None:
        """Note what in the student's cells a person should look at, whether a check asks for it or not."""
        self.number = len(self.notebook.cells)
        for number, cell in self._student_cells():
            if cell.source not in self.given and (use := suspect(cell.source)):
                self.events.append(Event(number, SUSPECT, use))

    def _kernel(self, forbid: Collection[str] = ()) -> Kernel:
        with phase("kernel: start"):
            parent = self.parent.bare() if AUTOGRAD in forbid else self.parent
            return Kernel(parent, self.settings, forbid, share=self.share)

    def _bounded(self, cell: NotebookNode) -> None:
        """Run a cell; one that costs the grader too much is given up, and with it the kernel that it was asking."""
        most = judging(self.settings)
        try:
            with spending(most):
                self._cell(cell)
        except Exceeded:
            self._event(cell, CELL_TIME, f"took the grader more than {most} CPU seconds and was given up")
            if self.asking:
                for kernel in (self.kernel, *(kernel for kernel, _ in self.forbidding.values())):
                    kernel.close()
                self._stop(CELL_TIME, "an earlier cell was given up")

    def _cell(self, cell: NotebookNode) -> None:
        self.asking = False
        if self.stopped:
            name, why = self.stopped
            self._event(cell, name, f"was not run: {why}", f"not run: {why}", ran=False)
            return
        seconds = self._left()
        try:
            if _id(cell) in self.tests:
                with phase("grade cells: judging"):
                    self._test(cell, seconds)
            elif str(_id(cell)).startswith(FOR_THE_EYE) and not self.settings.visible:
                cell.outputs = [new_output("stream", text=NOT_RUN)]
                self.asking = True
                self.kernel.quiet(definitions(cell.source), seconds)  # which another cell may use
            else:
                self.judged.clear()  # what was found is of the answers before this cell
                outputs = Outputs(max(LITTLE, min(self.settings.max_output, self.room)))
                cell.outputs = outputs.list
                try:
                    with phase("visible checks" if str(_id(cell)).startswith(FOR_THE_EYE) else "student's cells"):
                        self.asking = True
                        self.kernel.cell(cell.source, outputs, seconds)
                finally:
                    self.room -= outputs.size
                    if outputs.cut:
                        self._note(OUTPUT_CUT, "wrote more than the limit of output")
        except OutOfTime:
            self._event(cell, CELL_TIME, f"ran longer than {seconds:.0f} s and was stopped")
            if _id(cell) not in self.tests:
                self.endless.add(self.number)
        except Stuck:
            self._event(cell, CELL_TIME, f"ran longer than {seconds:.0f} s and could not be interrupted")
            self._stop(CELL_TIME, "an earlier cell could not be interrupted")
        except KernelGone:
            if self.share.starved:
                self.starved = f"cell {_id(cell) or self.number + 1}"
            self._event(cell, KERNEL_DIED, "ended the kernel", "the kernel died in this cell")
            self._stop(KERNEL_DIED, "the kernel had died before")
        except SandboxError:  # of a second kernel
            self.sound = False
            self._event(cell, KERNEL_DIED, "had no kernel", "the separate kernel for this cell did not start")
        if not self.stopped and self.clock() > self.deadline:
            self.stopped = NOTEBOOK_TIME, f"the notebook's {self.settings.notebook_time} s had run out"

    def _event(self, cell: NotebookNode, name: str, did: str, text: str = "", ran: bool = True) -> None:
        """Note what happened to the cell that is next, and show it as the cell's error."""
        self._note(name, did, ran)
        cell.outputs.append(error(name, text or f"this cell {did}"))

    def _note(self, name: str, did: str, ran: bool = True) -> None:
        self.events.append(Event(self.number, name, did, ran))

    def _stop(self, name: str, why: str) -> None:
        if not self.kernel.alive:
            self.stopped = name, why

    def _left(self) -> float:
        return max(1.0, min(self.settings.cell_time, self.deadline - self.clock()))

    def _test(self, cell: NotebookNode, seconds: float) -> None:
        """Run a grade cell on the trusted side. Its time is what it waits for the submission, all together."""
        left = seconds

        def timed(act: Callable[[float], Answer]) -> Answer:
            nonlocal left
            start = self.clock()
            self.asking = True
            try:
                with phase("grade cells: asking"):
                    answer = act(max(0.1, left))
            except Exception:
                self.asking = False
                raise
            finally:
                left -= self.clock() - start - self.again
                self.again = 0.0
            self.asking = False
            return answer

        desk = Desk(
            ask=lambda path, message: timed(lambda s: self._ask(path, message, s)),
            run_file=lambda message: timed(lambda s: self._run_file(message, s)),
            cell_source=self._cell_source,
            source=joined((cell.source for _, cell in self._student_cells()), self.given),
            seed=self.settings.seed,
            memory=self.share.memory,
            tell=partial(self._note, SUSPECT),
            judged=self.judged,
        )
        source = self.tests[str(_id(cell))]
        cell.source = source
        cell.outputs = self.bench.run(source, desk)

    def _student_cells(self, first: int = 0) -> list[tuple[int, NotebookNode]]:
        """The code cells up to here, with their numbers, that are no grade cells."""
        cells = enumerate(self.notebook.cells[: self.number])
        return [(n, c) for n, c in cells if n >= first and c.cell_type == "code" and _id(c) not in self.tests]

    def _cell_source(self, first_line: str) -> str | None:
        for _, cell in reversed(self._student_cells()):
            head, _, rest = cell.source.lstrip("\n").partition("\n")
            if head.replace('"', "").replace("'", "").split() == first_line.split():
                return str(rest)
        return None

    def _run_file(self, message: Message, seconds: float) -> list[Message]:
        """What a test file says of each class, up to the first that runs out of time.

        Each class has a kernel of its own: none holds the text of another, nor how many there were.
        """
        end = self.clock() + min(seconds, message["total"])
        said: list[Message] = []
        for source in message["sources"]:
            left = max(0.1, end - self.clock())
            asked = message | {"sources": [source], "total": left}
            with (
                phase("grade cells: a file's tests"),
                Kernel(self.parent, self.settings, file=True, share=self.share) as kernel,
            ):
                answer = kernel.test_file(asked, left + 5)
            if not (isinstance(answer, list) and len(answer) == 1 and isinstance(answer[0], dict)):
                raise WireError("an answer that is not about one class")
            said += answer
            if answer[0].get("status") == "timed out":
                if answer[0].get("limit") != message["limit"]:  # the clock's, for all of them
                    answer[0]["limit"] = message["total"]
                break
        return said

    def _ask(self, path: str, message: Message, seconds: float) -> Message:
        """Ask the kernel; cases that forbid operators, a kernel in which these were refused before it ran a cell."""
        denies = {_operators(case) for case in message["cases"]} if message["do"] == "observe" else {frozenset()}
        if denies == {frozenset()}:
            return self.kernel.ask(path, message, seconds)
        end = self.clock() + seconds
        records: dict[int, Record] = {}
        for deny in denies:
            chosen = [i for i, case in enumerate(message["cases"]) if _operators(case) == deny]
            asked = {"do": "observe", "cases": [message["cases"][i] for i in chosen]}
            if deny:
                answer = self._ask_forbidding(path, asked, deny, end)
            else:
                answer = answered(asked, self._ask_until(self.kernel, path, asked, end))
            records |= dict(zip(chosen, answer["records"], strict=True))
        if not any(AUTOGRAD in deny for deny in denies):
            self._explain(path, message["cases"], records, end)
        return {"records": [records[i] for i in range(len(message["cases"]))]}

    def _ask_until(self, kernel: Kernel, path: str, asked: Message, end: float) -> Message:
        return kernel.ask(path, asked, max(0.1, end - self.clock()))

    def _ask_forbidding(self, path: str, asked: Message, deny: frozenset[str], end: float) -> Message:
        """Ask a kernel that refuses at least these; where that is too much, one that refuses just these."""
        more = [d for d in self.forbidding if d > deny and AUTOGRAD in deny] if deny not in self.forbidding else []
        for refused in (*more[:1], deny):
            kernel, spent = self._forbidding(refused)
            end += spent
            answer = answered(asked, self._ask_until(kernel, path, asked, end))
            if refused == deny or not any(record.failure for record in answer["records"]):
                return answer
        raise AssertionError("the last one answers")

    def _forbidding(self, deny: frozenset[str]) -> tuple[Kernel, float]:
        """The kernel that refuses these, in which all of the student's cells up to here have run; the time that took.

        A cell that takes longer than a cell may, here where more of it raises, is left as the others' loops are.
        """
        start = self.clock()
        if deny not in self.forbidding:
            self.forbidding[deny] = self._kernel(deny), 0
        kernel, first = self.forbidding[deny]
        with phase("student's cells again, forbidding"):
            for number, cell in self._student_cells(first):
                if str(_id(cell)).startswith(FOR_THE_EYE):
                    continue
                # what an endless cell did before its loop is done again; its time is not spent again
                with suppress(OutOfTime):
                    kernel.quiet(cell.source, AGAIN if number in self.endless else self._left(), _ended(cell))
        self.forbidding[deny] = kernel, self.number
        spent = self.clock() - start
        self.again += spent
        return kernel, spent

    def _explain(self, path: str, cases: Sequence[Case], records: dict[int, Record], end: float) -> None:
        """Where an operator was refused, see what the code does without the refusal: its author needs that too."""
        refused = {i: word for i, record in records.items() if (word := _refusal(record))}
        if not refused:
            return
        asked = {"do": "observe", "cases": [cases[i] for i in refused]}
        answer = answered(asked, self.kernel.ask(path, asked, end - self.clock()))
        for (i, word), record in zip(refused.items(), answer["records"], strict=True):
            if word not in record.denied:
                record.denied = (*record.denied, word)
            records[i] = record


def definitions(source: str) -> str:
    """Return the functions, classes and imports of a released cell; a cell that cannot be read has none."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ""
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return ast.unparse(ast.Module([node for node in tree.body if isinstance(node, kinds)], []))


def _id(cell: NotebookNode) -> object:
    meta = cell.metadata.get("nbgrader")
    name = meta.get("grade_id") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else None


def _ended(cell: NotebookNode) -> tuple[str, str]:
    """The name and the text of the exception that ended a cell; ("", "") if it ran to its end."""
    errors = [output for output in cell.outputs if output.get("output_type") == "error"]
    return (str(errors[-1].get("ename", "")), str(errors[-1].get("evalue", ""))) if errors else ("", "")


def _operators(case: Case) -> frozenset[str]:
    """What a case has refused at the dispatcher."""
    if case.refuse == "autograd":
        return frozenset(case.deny) | {AUTOGRAD}
    if case.refuse == "nothing":
        return frozenset()
    return frozenset(case.deny) if any("::" in name for name in case.deny) else frozenset()


def _refusal(record: Record) -> str:
    """What was refused while a case ran, as `Record.denied` has it: "aten::tanh in backward"."""
    failure = record.failure
    if failure is None or REFUSED not in failure.message:
        return ""
    operator = failure.message.partition(REFUSED)[0].rstrip().rpartition(" ")[2]
    if not operator.startswith("aten::"):  # the student's own words
        return ""
    return f"{operator} in {'forward' if failure.called else 'backward'}"
