"""Submissions that attack the grading, as data: each is made from a set of `exercises/` and says what it may earn.

An attack is handed in by a student of its name. `graders grade` and stock nbgrader get the same files. Texts may hold
@COURSE@, @HOME@, @PORT@ and @SOCKET@: a strong attacker, who knows where everything is. What would harm the machine of
whoever runs the tests stops by itself: memory at 6 GB, processes at 300, and no signal to all where many are seen.
"""

import copy
import importlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
MARK = "mallory"  # in the name of every file that an attack plants
SECRET = "s3cret-"  # how every secret begins that the arena hides
MODULES = (
    "verdicts",
    "notebooks",
    "limits",
    "files",
    "escapes",
    "replies",
    "reading",
    "operators",
    "gradients",
    "pages",
    "keeping",
    "python_ways",
    "torch_ways",
    "markup",
    "neighbours",
)

RIGHT = """class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g
"""
WRONG = """class {name}(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, *rest):
        ctx.save_for_backward(x)
        ctx.rest = len(rest)
        return x + 1

    @staticmethod
    def backward(ctx, g):
        return g * 0 + 7, *[None] * ctx.rest
"""
RELU = {"Square": RIGHT, "LeakyReLU": WRONG.format(name="LeakyReLU"), "Tanh": WRONG.format(name="Tanh")}
ASKED = """
import sys
def asked():
    frame = sys._getframe()
    while frame:
        if frame.f_code.co_name in ("observe", "_answer"):
            return True
        frame = frame.f_back
    return False
"""  # whether it is a test that calls, and not a cell that the student sees
HONEST = 4.0  # what the answers above earn in 01_relu: Square

EARNED: dict[str, float | None] = {  # here, by those that do not earn their honest part
    # refused: never executed
    "linked-notebook": None,
    "linked-beside": None,
    "two-documents": None,
    "wild-clock": None,
    "broken-clock": None,
    "deep-folders": None,
    "folder-notebook": None,
    "odd-files": None,
    "links-in-circles": None,
    "hard-linked-gradebook": None,
    "named-pipe": None,
    "deep-json": None,
    "huge-notebook": None,
    "many-cells": None,
    "huge-number": None,
    "another-format": None,
    "odd-cells": None,
    "odd-language": None,
    # harm done to their own right answers
    "mode-left-on": 1,
    "global-switches": 0,
    "builtins": 0,
    "answers-ahead": 0,
    "audit-hook": 4,
    "odd-records": 0,
    "odd-bytes": 0,
    "deep-display": 0,
    "odd-end": 0,
    "closed-by-collector": 0,
    # and where a check looks inside their process
    "hidden-name": 5,
    "hidden-foreach": 5,
    "kept-before": 5,
    "popped-mode": 5,
    "disabled-dispatch": 5,
    "redispatch": 5,
    "registered-again": 5,
    "destroyed-library": 5,
    "fetched-kernel": 5,
    "scripted": 5,
    "out-and-foreach": 5,
    "helper-process": 5,
    "hidden-math": 5,
    "two-faces": 5,
    "registered-subclass": 5,
    "restored-python": 5,
    # refused where a task forbids something, since their text reaches for what could lift it
    "patched-gradcheck": 3,
    "patched-comparison": 3,
    "patched-equality": 3,
    "patched-methods": 3,
    "patched-grad": 3,
    "fake-module": 3,
    "import-hook": 3,
    "patched-grader": 3,
    "ast-transformer": 3,
    "input-transformer": 3,
    "replaced-run-cell": 3,
    "suppressed-errors": 3,
    "formatter": 3,
    "display-hook": 3,
    "raw-message": 3,
    "silent-kernel": 3,
    "records-of-a-twin": 3,
    "tampered-observer": 3,
    "walked-frames": 1,
    "sums-double": 0,
    "many-bindings": 3,
    "format-fields": 1,
    "resolved-names": 1,
    "evaluated-hints": 1,
    "own-console": 1,
    "own-pool": 8,
    "paged-out": 8,
    "late-garbage": 8,
    **{f"quiet-{how}": 15 for how in ("observer", "timeit", "mock", "pickle", "reduce", "attrgetter", "signal")},
}


@dataclass(frozen=True)
class Arena:
    """Where the attacks take place, which they know all about.

    Args:
        course: the course's folder.
        home: the grader's home.
        port: a TCP port of the loopback interface, and `socket` an abstract Unix socket, where somebody listens.
    """

    course: Path
    home: Path
    port: int = 0
    socket: str = ""

    def fill(self, text: str) -> str:
        """`text` with the places in it named."""
        for name in ("course", "home", "port", "socket"):
            text = text.replace(f"@{name.upper()}@", str(getattr(self, name)))
        return text


@dataclass(frozen=True)
class Attack:
    """One attack.

    Args:
        name: a word or two; the student's name too.
        kind: the attacks that it belongs to.
        tries: what it tries, in one sentence.
        first: a cell of the student's before all others.
        answers: what is in the answer cells.
        last: a cell of the student's after all others.
        change: edits the notebook's JSON at the end.
        beside: files handed in beside the notebook.
        place: what else is done to the folder handed in.
        set: the set it is handed in for.
        honest: what its honest part is worth.
        sees: what a person sees: this stands in a line of `graders grade` about the student or in a verdict.
        slow: it takes all the time it gets.
    """

    name: str
    kind: str
    tries: str
    first: str = ""
    answers: Mapping[str, str] = field(default_factory=dict)
    last: str = ""
    change: Callable[[dict], None] | None = None
    beside: Mapping[str, str] = field(default_factory=dict)
    place: Callable[[Path, Arena], None] | None = None
    set: str = "01_relu"
    honest: float = HONEST
    sees: str = ""
    slow: bool = False

    @property
    def module(self) -> str:
        """The module that it stands in."""
        return next(m for m in MODULES if self in importlib.import_module(f"{__name__}.{m}").ATTACKS)

    @property
    def ours(self) -> float | None:
        """What it scores here; None: it is refused, with a line that says why."""
        return EARNED.get(self.name, self.honest)


def late(code: str) -> dict[str, str]:
    """Answers that run `code` when Square, which is right, is done with."""
    return {"LeakyReLU": f"{code}\n{RELU['LeakyReLU']}"}


def own_cell(source: str, name: str) -> dict:
    """A code cell that the student made."""
    return {"cell_type": "code", "id": name, "metadata": {}, "source": source, "outputs": [], "execution_count": None}


def find(notebook: dict, grade_id: str) -> dict:
    """The cell of a released notebook."""
    return next(c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == grade_id)


def tests(notebook: dict) -> list[dict]:
    """The test cells of a released notebook."""
    return [c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade")]


def build(exercise: Path, answers: Mapping[str, str], first: str = "", last: str = "") -> dict:
    """The notebook of `exercise` with these answers and cells."""
    notebook = json.loads(exercise.read_text(encoding="utf-8"))
    for name, text in answers.items():
        find(notebook, name)["source"] = text
    if first:
        notebook["cells"].insert(0, own_cell(first, "mine-first"))
    if last:
        notebook["cells"].append(own_cell(last, "mine-last"))
    return notebook


def hand_in(attack: Attack, arena: Arena, student: str) -> Path:
    """Put an attack into the course's `submitted/` as handed in by `student`; its folder."""
    folder = arena.course / "submitted" / student / attack.set
    folder.mkdir(parents=True)
    slug = attack.set.partition("_")[2]
    answers = {**RELU, **attack.answers} if attack.set == "01_relu" else attack.answers
    notebook = build(ROOT / "exercises" / attack.set / f"{slug}.ipynb", answers, attack.first, attack.last)
    for cell in notebook["cells"]:
        cell["source"] = arena.fill("".join(cell["source"]))
    if attack.change:
        notebook = copy.deepcopy(notebook)
        attack.change(notebook)
    (folder / f"{slug}.ipynb").write_text(json.dumps(notebook, indent=1), encoding="utf-8")
    for name, text in attack.beside.items():
        (folder / name).write_text(arena.fill(text), encoding="utf-8")
    if attack.place:
        attack.place(folder, arena)
    os.utime(folder / f"{slug}.ipynb", follow_symlinks=False)
    return folder


def _collect() -> list[Attack]:
    found = [a for name in MODULES for a in importlib.import_module(f"{__name__}.{name}").ATTACKS]
    names = [attack.name for attack in found]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two attacks are called {', '.join(sorted(doubled))}")
    return found


ATTACKS = _collect()  # the suite, by kind
