"""The coach in the page: every right way passes there, and every known mistake hears its own sentence.

The tasks' data is what `tools.page_tasks` writes with torch; the answers are written out as code and run in the page's own
runtime. What cannot be so is in the lists below, each with its reason, and in no list is one too many.
"""

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from playwright.sync_api import Page

from graders.coach.find import Found
from graders.coach.session import steps
from graders.coach.source import written
from graders.judge.task import Mistake, Task
from tests.page.pasting import pasted, plain
from tools import page_graders, page_python, page_tasks
from tools.page_cells import NOT_HERE, PageCell, page_cells

ROOT = Path(__file__).parent.parent.parent
COACH = page_graders.files()
SET_OF = {
    "ReLU": "relu", "Square": "relu", "LeakyReLU": "relu", "Tanh": "relu", "Arctan": "sigmoid", "Sigmoid": "sigmoid",
    "Cube": "sigmoid", "Step": "ste", "ScaleGradient": "ste", "Binarize": "ste", "GradientReversal": "ste",
    "HardTanh": "clipped_relu", "SymmetricClip": "clipped_relu", "MulConstant": "clipped_relu",
    "ClippedReLU": "clipped_relu", "PACT": "clipped_relu", "LogSumExp1d": "logsumexp", "SoftCrossEntropy": "logsumexp",
}  # fmt: skip
CHAPTERS = {
    "01_relu": "relu", "02_sigmoid": "sigmoid", "03_ste": "ste", "05_clipped_relu": "clipped_relu",
    "07_logsumexp": "logsumexp",
}  # fmt: skip
NOT_IN_PAGE = "not in the page's torch"
REFUSED: dict[str, str] = {}  # right ways that the page refuses, with the reason
UNNAMED = {  # known mistakes that do not hear their own sentence, with the reason
    "Tanh.half_not_restored": NOT_IN_PAGE,  # float16
    "Tanh.torchs_own_backward": NOT_IN_PAGE,  # torch.ops
    "ClippedReLU.torchs_own_backward": NOT_IN_PAGE,  # torch.ops
    "Tanh.saves_input": "kept in memory alone",
    "Tanh.saves_both": "kept in memory alone",
    "Tanh.input_as_attribute": "kept in memory alone",
    "Sigmoid.halves_left_wide": "wrong in float16 alone",
    "Sigmoid.ones_in_float32": "wrong in float16 alone",
    "Sigmoid.constant_in_float32": "wrong in float16 alone",
    "Sigmoid.clamped_too_late": "wrong in float16 alone",
    "GradientReversal.alpha_in_the_dtype_of_x": "wrong in float16 alone",
    "Sigmoid.builtin_sigmoid": "right, but forbidden",
    "Sigmoid.builtin_in_backward": "right, but forbidden",
}


@cache
def exported(name: str) -> str:
    return page_tasks.exported(name)


@cache
def tasks(name: str) -> dict[str, Task]:
    return {task.name: task for task in page_tasks.tasks_of(name)}


def task_of(name: str) -> Task:
    return tasks(SET_OF[name])[name]


def files(name: str, data: str | None = None) -> dict[str, str]:
    """What a page of a set has besides the runtime's own files."""
    return COACH | {"tasks.json": exported(name) if data is None else data}


START = "import coach, json\nif not coach.TASKS:\n    coach.load(open('/tasks.json').read())\n"


def run(page: Page, code: str, limit: int = 60_000) -> dict[str, Any]:
    return page.evaluate("([code, limit]) => pagePython.run(code, limit)", [code, limit])


class Pages:
    """A page for each set, opened when it is asked for."""

    def __init__(self, opened: Callable[..., Page]) -> None:
        self.opened = opened
        self.pages: dict[str, Page] = {}

    def of(self, name: str) -> Page:
        if name not in self.pages:
            self.pages[name] = self.opened(page_python.bundle(files(name)))
            assert run(self.pages[name], START)["error"] is None
        return self.pages[name]


@pytest.fixture(scope="module")
def pages(opened: Callable[..., Page]) -> Iterator[Pages]:
    yield Pages(opened)


def heard(page: Page, task: str, code: str) -> list[list[str]] | str:
    """What the coach says of an answer, check by check; or the error that ended it."""
    answer = run(page, f"{START}{code}\nprint(json.dumps(coach.judge(coach.TASKS[{task!r}], answer)))")
    if answer["error"]:
        return f"{answer['error']['type']}: {answer['error']['message']}"
    said: list[list[str]] = json.loads(answer["printed"])
    return said


def right_ways(task: Task) -> dict[str, str]:
    """The right ways of a task as code."""
    ways = {}
    for name, operation in task.solutions.items():
        cls = getattr(operation, "__self__", None) or operation
        ways[name] = f"{plain(written(cls, task.name, task.call))}\nanswer = {task.name}.apply"
    return ways


def mistake_code(task: Task, mistake: Mistake) -> str | None:
    try:
        return pasted(task, mistake)
    except LookupError:  # what it is made of stands nowhere
        return None


def test_the_tasks_are_those_of_the_tool() -> None:
    assert set(SET_OF) == set(page_tasks.TASKS) and set(SET_OF.values()) == set(page_tasks.SETS.values())
    for name in SET_OF:
        assert task_of(name).name == name


@pytest.mark.parametrize("name", SET_OF)
def test_every_right_way_passes(pages: Pages, name: str) -> None:
    task = task_of(name)
    found = {}
    for way, code in right_ways(task).items():
        said = heard(pages.of(SET_OF[name]), name, code)
        if isinstance(said, str) or any(state != "holds" for _, _, state, *_ in said):
            found[f"{name}.{way}"] = said
    listed = {key for key in REFUSED if key.startswith(f"{name}.")}
    assert set(found) == listed, found
    assert all(isinstance(said, str) and REFUSED[key] in said for key, said in found.items()), found


@pytest.mark.parametrize("name", SET_OF)
def test_every_known_mistake_hears_its_own_sentence(pages: Pages, name: str) -> None:
    task = task_of(name)
    found = {}
    for mistake in task.mistakes:
        code = mistake_code(task, mistake)
        said = heard(pages.of(SET_OF[name]), name, code) if code else ""
        if isinstance(said, str) or mistake.message not in [sentence for _, _, _, sentence, *_ in said]:
            found[f"{name}.{mistake.name}"] = said
    listed = {key for key in UNNAMED if key.startswith(f"{name}.")}
    assert set(found) == listed, {key: found[key] for key in set(found) ^ listed if key in found}
    for key, said in found.items():
        if UNNAMED[key] == NOT_IN_PAGE:
            assert NOT_IN_PAGE in json.dumps(said), said  # of the answer, or of one check
        elif said:
            assert {state for _, _, state, *_ in said} == {"holds"}, said  # the page does not see it


def test_most_mistakes_are_named() -> None:
    total = sum(len(task_of(name).mistakes) for name in SET_OF)
    assert total > 400 and len(UNNAMED) < 0.05 * total


def test_an_export_is_the_same_each_time() -> None:
    assert page_tasks.exported("logsumexp") == exported("logsumexp")


def altered(change: Callable[[dict[str, Any]], None], name: str) -> str:
    data = json.loads(exported("logsumexp"))
    change(next(task for task in data if task["name"] == name))
    return json.dumps(data)


def test_a_changed_record_is_seen(opened: Callable[..., Page]) -> None:
    """A right number and a mistake's, changed in the data."""
    name = "LogSumExp1d"
    task = task_of(name)
    right = next(iter(right_ways(task).values()))
    mistake = next(m for m in task.mistakes if m.name == "no_guard")

    def change_right(data: dict[str, Any]) -> None:
        told = [record["outputs"][0]["t"] for record in data["checks"][0]["right"]]
        next(numbers for _, _, numbers in told if numbers and isinstance(numbers[0], float))[0] += 0.5

    def change_mistake(data: dict[str, Any]) -> None:
        for mistake in data["mistakes"]:
            for records in mistake["known"].values():
                for fields in records.values():
                    fields["kind"] = "a list"

    page = opened(page_python.bundle(files("logsumexp", altered(change_right, name))))
    said = heard(page, name, right)
    assert not isinstance(said, str) and [state for _, _, state, *_ in said].count("not yet") == 1
    page = opened(page_python.bundle(files("logsumexp", altered(change_mistake, name))))
    said = heard(page, name, pasted(task, mistake))
    assert not isinstance(said, str) and mistake.message not in [sentence for _, _, _, sentence, *_ in said]
    assert {state for _, _, state, *_ in said} & {"not yet"}


UNKNOWN = {  # answers that make no known mistake: what to put for what in the right one
    "a shift": ("return x * x", "return x * x + 0.1"),
    "a name that backward has not": ("return g * 2 * x", "return g * 2 * inputs"),
    "a shape": ("return x * x", "return (x * x).reshape(-1)[:1]"),
    "a gradient too far": ("return g * 2 * x", "return g * 2 * x + 0.3 * x * x"),
    "nan": ("return g * 2 * x", "return g * 2 * x * x / x"),
    "nothing saved": ("ctx.save_for_backward(*inputs)", "pass"),
    "no tensor": ("return x * x", "pass"),
    "an attribute": ("return x * x", "return x.numbers * x"),
    "both in place": ("return g * 2 * x", "return x.mul_(2).mul_(g)"),
}
SQUARE = """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * x
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x
answer = Square.apply
"""


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_has_no_name_hears_what_it_hears_in_jupyter(pages: Pages, name: str) -> None:
    old, new = UNKNOWN[name]
    assert old in SQUARE
    code = SQUARE.replace(old, new)
    names: dict[str, Any] = {"torch": torch}
    exec(code, names)
    task, page = task_of("Square"), heard(pages.of("relu"), "Square", f"import torch\n{code}")
    assert not isinstance(page, str), page
    jupyter = list(steps(Found("relu", task), names["Square"]))
    assert [state for _, _, state, *_ in page] == [step.state for step in jupyter]
    for (check, _, state, sentence, *_), step in zip(page, jupyter, strict=True):
        if state != "holds":
            evidence = step.verdict.evidence if state == "not yet" else {}
            shown = [f"{part}: {evidence[part]}" for part in ("yours", "expected") if part in evidence]
            numbers = f" Y{', '.join(shown)[1:]}." if shown else ""
            assert numbers in sentence and sentence.replace(numbers, "", 1) == step.message, (check, sentence)


# ---------------------------------------------------------------------------------------------- the cells of the chapters

LACKING = {  # cells that do not run in the page to their end, with what the error says
    f"{page.removeprefix('book/')} {name}": lacks for page, names in NOT_HERE.items() for name, lacks in names.items()
}


def cells() -> dict[str, PageCell]:
    found = {}
    for chapter in CHAPTERS:
        notebook = nbformat.read(ROOT / "book" / f"{chapter}.ipynb", as_version=4)
        found |= {f"{chapter} {cell.name}": cell for cell in page_cells(notebook)}
    return found


CELLS = cells()


def printed_by_torch(code: str) -> str:
    """What code prints in Python with torch, where the coach says nothing."""
    head = "import warnings\nwarnings.simplefilter('ignore')\ncoach = lambda *a: None\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_of_a_chapter_runs_as_in_python(pages: Pages, name: str) -> None:
    """A turn with its right line prints what it prints with torch, and its coach is content; a mistake is named."""
    cell = CELLS[name]
    page = pages.of(CHAPTERS[name.split()[0]])
    loud = textwrap.dedent("""
        import coach as whole
        whole.HEARD[:] = []
        def coach(thing, where=""):
            with_name = thing if isinstance(thing, str) else thing.__name__
            whole.HEARD[:] = whole.judge(whole.TASKS[with_name], thing.apply)
    """)
    assert run(page, START + loud)["error"] is None
    shown, errors = "", []
    for code in (cell.before, cell.solution or cell.code, cell.after):
        answer = run(page, code)
        shown += answer["printed"]
        errors += [answer["error"]] if answer["error"] else []
    if name in LACKING:
        assert errors and LACKING[name] in errors[0]["message"], errors
    else:
        assert errors == []
    said = json.loads(run(page, "print(json.dumps(whole.HEARD))")["printed"])
    if cell.solution:
        assert all(state == "holds" for _, _, state, *_ in said)
        assert "coach(" not in cell.after or said
        if name not in LACKING:
            assert shown == printed_by_torch("\n".join((cell.before, cell.solution, cell.after)))
    elif not (name in LACKING and not said):
        task, mistake = cell.name.partition(":")[2].split(".")
        message = next(m.message for m in task_of(task).mistakes if m.name == mistake)
        assert message in [sentence for _, _, _, sentence, *_ in said]


def test_the_list_of_cells_that_do_not_run_is_exact() -> None:
    assert set(LACKING) <= set(CELLS) and len(LACKING) < len(CELLS) / 3
