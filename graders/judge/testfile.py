"""Tasks whose answer is a test file: it must pass right classes and fail wrong ones."""

import ast
import inspect
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import connection, get_context
from pathlib import Path

import torch
from torch.autograd import Function

from graders import inside
from graders.inside.wire import Message
from graders.judge.verdict import Verdict

LIMIT = 10.0  # seconds of the processor for one run of the file
MAX_TEXT = 200_000  # characters of a file
TOTAL = 25.0  # seconds by the clock for all runs, which a file that sleeps comes to: a grade cell has 30
Ask = Callable[[Message], list[Message]]
COMPARISONS = {"allclose", "equal", "isclose", "isfinite", "isnan", "all", "any"}  # say nothing unless asserted
ASSERTIONS = {"gradcheck", "gradgradcheck", "assert_close", "assert_allclose", "raises", "fail"}
ENDED = {"passed", "failed", "no tests"}  # how a run ends that came to its end
TESTRUN = str(Path(inside.__file__).with_name("testrun.py"))  # by its path: it needs what Windows has not got

NOT_WRITTEN = "{} is not written yet."


def _unrun(error: Exception) -> str:
    """Return why no answer came of the process that runs the file, and what to do."""
    if isinstance(error, subprocess.TimeoutExpired):
        return "The file could not be run to its end in time: make its tests quicker, or look for an endless loop."
    if not isinstance(error, subprocess.CalledProcessError):
        return (
            f"The file could not be run, because the answer of its process cannot be read ({type(error).__name__}): "
            "leave out what writes to standard output past print, os.write or a subprocess."
        )
    if not Path(TESTRUN).is_file():
        return (
            "The file could not be run, because graders/inside/testrun.py is missing from the course's folder, which "
            "is not your fault: unpack the course again."
        )
    if error.returncode < 0:
        return (
            f"The file could not be run to its end, because its process was killed by signal {-error.returncode}: does "
            "it need much memory? Use smaller tensors."
        )
    last = (error.stderr or b"").decode("utf-8", "replace").strip().split("\n")[-1][:200]
    return (
        f"The file could not be run, because its process ended with code {error.returncode}"
        f"{last and ': '}{last.rstrip('.')}. Where that names no line of yours, the course or its Python is not whole: "
        "install it again, as the page on the setup says."
    )


def cell_source(first_line: str) -> str | None:
    """Return the text below `first_line` in the last cell run that begins with it, from this kernel's own history.

    What lies on disk under that name may be anybody's. The engine, which holds the notebook, does not need this.
    """
    module = sys.modules.get("IPython")  # where it is not loaded there is no kernel
    shell = module.get_ipython() if module else None
    history: list[str] = shell.history_manager.input_hist_raw if shell else []
    for cell in reversed(history):
        head, _, rest = cell.lstrip("\n").partition("\n")
        if head.replace('"', "").replace("'", "").split() == first_line.split():
            return rest
    return None


def ask(message: Message) -> list[Message]:
    """Run `testrun` in a fresh process; return its answer. The engine has a kernel in its sandbox for that."""
    one_thread = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}  # a fork must not meet another thread
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-I", TESTRUN],
            input=json.dumps(message).encode(),
            capture_output=True,
            timeout=message["total"] + 5,
            cwd=folder,
            env=os.environ | one_thread,
            check=True,
        )
    answers: list[Message] = json.loads(done.stdout)
    return answers


def ask_fork(message: Message) -> list[Message]:
    """Run `testrun` in a fork of this process, which has torch loaded: half a second, where `ask` takes two and more.

    A fork has no thread but the caller's, and keeps the locks that others held: a run could wait for one for good. So
    its answer counts where every run came to an end, or one used up its seconds of the processor. Otherwise `ask` has
    the last word, and it has the only one on systems other than Linux, whose libraries may not survive a fork.
    """
    if sys.platform == "linux":
        with suppress(EOFError, OSError, ValueError), tempfile.TemporaryDirectory() as folder:
            said = _forked(message, folder)
            last = said[-1] if said else {"status": "silent"}
            busy = last["status"] == "timed out" and last["limit"] == message["limit"]
            if busy or (len(said) == len(message["sources"]) and all(one["status"] in ENDED for one in said)):
                return said
    return ask(message)


def _forked(message: Message, folder: str) -> list[Message]:
    """Return what the fork says; [] if it is silent for as long as all runs may take."""
    context = get_context("fork")
    ear, mouth = context.Pipe(duplex=False)
    child = context.Process(target=_run_and_tell, args=(mouth, message, folder))
    child.start()
    assert child.pid is not None  # it has started
    mouth.close()
    try:
        said: list[Message] = json.loads(ear.recv_bytes()) if ear.poll(message["total"] + 5) else []
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        ear.close()
    return said


def _run_and_tell(mouth: connection.Connection, message: Message, folder: str) -> None:
    """Be the fork: run the file, tell what came of it, and end without what Python does at its end."""
    try:
        os.setsid()  # "Interrupt Kernel" goes to the reader's process alone
        os.chdir(folder)
        torch.set_default_device(None)
        if "pytest" in message["file"]:  # loaded once here, not in every run
            with suppress(ImportError):
                import_module("pytest")
        mouth.send_bytes(json.dumps(import_module("graders.inside.testrun").run(**message)).encode())
    finally:
        os._exit(0)


def source_of(function: type[Function], name: str) -> str:
    """Return a module's text with a class of that name that does what `function` does. Its methods use torch alone."""
    methods = [getattr(function, m) for m in ("forward", "setup_context", "backward")]
    own = [textwrap.dedent(inspect.getsource(m)) for m in methods if m not in (Function.setup_context,)]
    body = textwrap.indent("\n".join(own), "    ")
    imports = (
        "import torch\nfrom torch.autograd import Function\nfrom torch.autograd.function import once_differentiable"
    )
    return f"{imports}\n\n\nclass {name}(Function):\n{body}"


@dataclass(frozen=True)
class FileCheck:
    """The one aspect of a test file: one grade cell."""

    name: str
    points: float
    about: str


@dataclass(frozen=True)
class FileMistake:
    """A faulty test file that a person would write, what it earns and a part of what its author hears."""

    name: str
    source: str
    score: float
    message: str


@dataclass(frozen=True)
class Wrong:
    """A class that a test file has to fail, and in which of the kinds it is wrong."""

    source: str
    kind: str


@dataclass(eq=False)
class FileTask:
    """A test file is asked for; it is judged by the right and wrong classes that it is run against.

    Args:
        name: the solution cell's name.
        offer: the module that the file imports; its class has the same name, capitalised.
        checks: one `FileCheck`.
        right: texts of the module that the file has to pass.
        wrong: texts that it has to fail.
        advice: per kind of wrong, what a test of it does.
        mistakes: faulty files, for the tests of this task.
        solutions: right files.
        when: when to prefer which of these, by its name.
        limit: seconds of the processor for one run of the file.
        total: seconds by the clock for all runs.
    """

    name: str
    offer: str
    checks: tuple[FileCheck, ...]
    right: Mapping[str, str]
    wrong: Mapping[str, Wrong]
    advice: Mapping[str, str]
    mistakes: Sequence[FileMistake] = ()
    solutions: Mapping[str, str] = field(default_factory=dict)
    when: Mapping[str, str] = field(default_factory=dict)
    limit: float = LIMIT
    total: float = TOTAL

    @property
    def points(self) -> float:
        """What the task is worth."""
        return sum(c.points for c in self.checks)

    @property
    def file(self) -> str:
        """The file's name."""
        return f"test_{self.offer}.py"

    @property
    def first_line(self) -> str:
        """How the solution cell begins."""
        return f"%%writefile {self.file}"

    def judge(self, name: str, source: str | None, seed: int = 0, ask: Ask = ask) -> Verdict:
        """Run the file against every class: the share of wrong ones that it fails, or 0 if it fails a right one.

        Args:
            name: the check's.
            source: the file's text; None: there is no such cell.
            seed: of the order of the classes, and of torch's random numbers in each run.
            ask: where the file is run.
        """
        (check,) = (c for c in self.checks if c.name == name)
        if source is None:
            return self._lost(check, f"No cell that begins with {self.first_line} could be found.")
        if len(source) > MAX_TEXT:
            return self._lost(check, f"The file has more than {MAX_TEXT:,} characters, so it was not run.")
        try:
            said = self._run(source, seed, ask)
        except (subprocess.SubprocessError, ValueError) as error:
            return self._lost(check, _unrun(error))
        if trouble := self._trouble(source, said):
            return self._lost(check, *trouble)
        missed = Counter(w.kind for n, w in self.wrong.items() if said[n]["status"] == "passed")
        caught = len(self.wrong) - missed.total()
        message = (
            f"Catches {caught} of {len(self.wrong)} wrong {self._plural} and passes the {len(self.right)} right ones."
        )
        if missed:
            kinds = [f"{kind} ({missed[kind]}): {text}" for kind, text in self.advice.items() if kind in missed]
            message += f" What it lets through, and what would catch it: {'; '.join(kinds)}."
            returned = next(said[n].get("returned", []) for n in self.right)
            message += _silent(ast.parse(source), returned)
        earned = round(check.points * caught / len(self.wrong), 2)
        return Verdict(self.name, name, check.points, earned, message)

    @property
    def _plural(self) -> str:
        return f"{self.offer.capitalize()}s"

    def _lost(self, check: FileCheck, message: str, evidence: dict[str, str] | None = None) -> Verdict:
        look = "runs" * (message == NOT_WRITTEN.format(self.name))  # as of other tasks: no try, in the study
        return Verdict(self.name, check.name, check.points, 0.0, message, evidence or {}, look=look)

    def _run(self, source: str, seed: int, ask: Ask) -> dict[str, Message]:
        """Run the file; return what it says of each class by name, up to one that runs out of time."""
        texts = {**self.right, **{n: w.source for n, w in self.wrong.items()}}
        names = random.Random(seed).sample(sorted(texts), len(texts))
        message = {
            "file": source,
            "name": self.file,
            "offer": self.offer,
            "sources": [texts[n] for n in names],
            "seed": seed,
            "limit": self.limit,
            "total": self.total,
        }
        return dict(zip(names, ask(message), strict=False))

    def _trouble(self, source: str, said: dict[str, Message]) -> tuple[str, dict[str, str]] | None:
        """Return why the file earns nothing, and the place."""
        if late := [s for s in said.values() if s["status"] == "timed out"]:
            limit = late[0]["limit"]
            if limit > self.limit and len(said) > 1:
                return f"All runs of the file together took more than {int(limit)} s: it has to be quicker.", {}
            text = f"{late[0]['test'] or 'The file'} ran for more than {int(limit)} s and was stopped."
            return f"{text} A test has to end on every {self.offer.capitalize()}, right or wrong.", {}
        bad = [said[n] for n in self.right if said[n]["status"] != "passed"]
        if not bad:
            return None
        first, share = bad[0], f"{len(bad)} of the {len(self.right)} right {self._plural}"
        if first["status"] == "no tests":
            return "There is no test in the file: a test is a function whose name begins with test_.", {}
        if first["status"] == "died":
            return (
                f"{first['test'] or 'The file'} ended the whole process; a test ends by return or by an exception.",
                {},
            )
        if first["kind"] == "NotImplementedError" and not first["message"]:
            return NOT_WRITTEN.format(self.name), {}
        raised = ": ".join(filter(None, [first["kind"], first["message"]]))
        lines = source.splitlines()
        at = [f"{n}: {lines[n - 1].strip()}" for n in first["lines"] if n <= len(lines)]
        evidence = {"line": at[0]} if at else {}
        evidence |= {"which calls": at[-1]} if len(at) > 1 else {}  # the assertion may stand in a helper
        if not first["test"]:
            text = f"The file could not be run, so no test was run: {raised.rstrip('.')}."
            return f"{text} It needs torch and `from {self.offer} import {self.offer.capitalize()}`.", evidence
        return f"{first['test']} fails on {share} ({raised.rstrip('.')}). {_reason(first)}", evidence


def _reason(said: Message) -> str:
    """Return why a test is likely to fail what is right."""
    kind, message = said["kind"], said["message"]
    if kind == "GradcheckError":
        return "gradcheck needs float64 inputs with requires_grad, and its own default tolerances."
    if kind == "AssertionError":
        return (
            "Right ones round differently and may be exactly 0 in the tails: compare with a tolerance that suits the "
            "dtype (5e-3 in float16, 3e-2 in bfloat16), never for equality."
        )
    if kind == "TypeError" and "argument" in message and said["test"] in message:
        return "A test is called without arguments: no fixtures, no parametrize."
    if kind == "Failed" and "DID NOT RAISE" in message:
        return "It waits for an exception that a right one does not raise."
    return "A test must pass on a right one: the fault is in the test itself."


def _called(node: ast.AST) -> str:
    """Return the last name of what a call calls: "allclose" of torch.allclose(...)."""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", ""))


def _silent(tree: ast.Module, returned: list[str]) -> str:
    """Return a sentence on tests that look and do not assert; "" if there are none."""
    nodes = list(ast.walk(tree))
    if not any(isinstance(n, ast.Assert | ast.Raise) or _called(n) in ASSERTIONS for n in nodes):
        return " Nothing in the file asserts: a test that prints or computes passes whatever comes out."
    if returned:
        return f" {returned[0]} returns a value, and nobody looks at it: assert it."
    for test in (n for n in nodes if isinstance(n, ast.FunctionDef)):
        for node in ast.walk(test):
            if isinstance(node, ast.Expr) and (
                isinstance(node.value, ast.Compare)
                or _called(node.value) in COMPARISONS
                or (isinstance(node.value, ast.Call) and _called(node.value) in ASSERTIONS and _quiet(node.value))
            ):
                return f" In {test.name}, line {node.lineno}, a comparison is thrown away: put assert before it."
    return ""


def _quiet(call: ast.Call) -> bool:
    """Return whether gradcheck was asked to return False in place of raising."""
    return any(
        k.arg == "raise_exception" and isinstance(k.value, ast.Constant) and not k.value.value for k in call.keywords
    )
