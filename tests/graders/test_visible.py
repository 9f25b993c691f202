"""No lost point comes as a surprise: what a student sees before handing in finds the mistakes that lose points later.

Every known mistake of every task goes through the visible check of its task. Those that pass it, and lose points when
the set is graded, are listed with a reason each in ``visible.toml``.
"""

import ast
import re
import signal
import tomllib
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import pytest
import torch
from torch import Tensor

import graders.sets
from graders.inside.pristine import pristine
from graders.judge.task import Task
from graders.judge.testfile import FileTask
from tests.graders.test_solutions import NOTEBOOKS, cells, each_notebook, visible

LISTED = tomllib.loads(Path(__file__).with_name("visible.toml").read_text(encoding="utf-8"))
SHARE = 0.05  # of all mistakes may pass what a student sees
LONG = 20  # CPU seconds; a check of a file takes one or two
COMMON = 10  # the first mistakes of a task's module are the commonest: none of them may
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@cache
def unseen(path: Path) -> dict[str, list[str]]:
    """The mistakes of each task that its visible check lets pass."""
    tasks = graders.sets.module(path.stem).TASKS
    return {task.name: [name for name, passes in _tried(path, task) if passes] for task in tasks}


def _tried(path: Path, task: Task | FileTask) -> Iterator[tuple[str, bool]]:
    """Each mistake of a task, and whether it passes the visible check."""
    for mistake in task.mistakes:
        with redirect_stdout(StringIO()), pristine():  # some leave a hook or a mode on
            if isinstance(task, Task):
                yield mistake.name, visible(path, task, mistake.operation) is None
            elif mistake.score < task.points:
                yield mistake.name, _file_passes(path, task, mistake.source)


def _file_passes(path: Path, task: FileTask, source: str) -> bool:
    """Whether a test file passes the visible check, where the Sigmoid of the notebook is a right one."""
    by_id = cells(path)
    names: dict = {}
    exec(next(c.source for name, c in by_id.items() if name.endswith("-setup")), names)
    exec(by_id[task.offer.capitalize()].source, names)
    Path(task.file).write_text(source.removeprefix(task.first_line).lstrip("\n"), encoding="utf-8")
    before = signal.signal(signal.SIGVTALRM, _too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONG)
    try:
        exec(by_id[f"check_{task.name}"].source, names)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return True


def _too_long(*_: object) -> None:
    raise TimeoutError  # in a notebook the cell does not end, and its author sees that


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that a notebook writes lies in a folder of the test's."""
    monkeypatch.chdir(tmp_path)


@each_notebook
def test_what_passes_the_visible_checks_is_listed_with_its_reason(path: Path) -> None:
    listed = LISTED.get(path.stem, {})
    assert {task: sorted(names) for task, names in unseen(path).items() if names} == {
        task: sorted(reasons) for task, reasons in listed.items()
    }
    assert all(len(reason) > 20 for reasons in listed.values() for reason in reasons.values())


@each_notebook
def test_none_of_the_commonest_mistakes_is_listed(path: Path) -> None:
    for task in graders.sets.module(path.stem).TASKS:
        common = {m.name for m in task.mistakes[:COMMON]}
        assert not common & LISTED.get(path.stem, {}).get(task.name, {}).keys(), task.name


def test_at_most_one_in_twenty_is_listed() -> None:
    known = sum(len(task.mistakes) for path in NOTEBOOKS for task in graders.sets.module(path.stem).TASKS)
    listed = sum(len(reasons) for tasks in LISTED.values() for reasons in tasks.values())
    assert listed <= SHARE * known


def test_a_mistake_that_a_check_lets_pass_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lists above can fail: a check that looks at nothing lets all mistakes pass."""
    path = next(p for p in NOTEBOOKS if p.stem == "relu")
    blind = cells(path)
    blind["check_Square"].source = "def check_Square():\n    pass\n\n\ncheck_Square()"
    monkeypatch.setattr("tests.graders.test_solutions.cells", lambda path: blind)
    task = graders.sets.load("relu")["Square"]
    assert all(passes for _, passes in _tried(path, task))


class VjpOfTorch(torch.autograd.Function):
    """A square whose gradient is torch's."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return torch.func.vjp(lambda x: x * x, *ctx.saved_tensors)[1](g)[0]


def test_a_backward_of_torch_func_hears_that_it_is_to_be_written() -> None:
    """And not that torch.func does not support the hooks, which are the check's."""
    path = next(p for p in NOTEBOOKS if p.stem == "relu")
    said = visible(path, graders.sets.load("relu")["Square"], VjpOfTorch.apply)
    assert said == "AssertionError: Backward calls torch.func. Write the gradient yourself, from tensors."


# --- the texts --------------------------------------------------------------------------------------------------------


def claims(source: str) -> Iterator[tuple[str, str, str]]:
    """Each statement of the examples of a text, and what its comment says: ``# y: [9.0, 0.25]``; else ""."""
    for block in EXAMPLE.findall(source):
        lines = block.splitlines()
        for statement in ast.parse(block).body:
            comment = lines[statement.end_lineno - 1][statement.end_col_offset :].strip()
            if found := re.fullmatch(r"# ([\w.\[\](), ]+?): (.+)", comment):
                yield ast.unparse(statement), found[1], found[2]
            else:
                assert not comment, f"not a claim that a test can read: {comment}"
                yield ast.unparse(statement), "", ""


def plain(thing: object) -> object:
    """A result with its tensors as lists, rounded to four decimals."""
    if isinstance(thing, Tensor):
        thing = thing.detach().to(torch.complex128 if thing.is_complex() else torch.float64).tolist()
    if isinstance(thing, complex):
        return [plain(thing.real), plain(thing.imag)] if thing.imag else plain(thing.real)
    if isinstance(thing, float):
        return round(thing, 4) + 0.0
    return [plain(part) for part in thing] if isinstance(thing, list | tuple) else thing


@each_notebook
def test_the_numbers_in_a_task_s_text_are_right(path: Path) -> None:
    """Two at least in each task; computed by the solutions."""
    by_id = cells(path)
    names: dict = {}
    for cell_name, cell in by_id.items():
        if cell_name.endswith("-setup") or (cell.metadata.nbgrader.solution and not cell.source.startswith("%%")):
            exec(cell.source, names)
    told = 0
    for cell in by_id.values():
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            here = dict(names)
            for statement, place, value in claims(cell.source):
                exec(statement, here)
                if place:
                    assert plain(eval(place, here)) == plain(eval(value, here)), f"{cell.id}: {statement}"
                    told += 1
    files = sum(isinstance(task, FileTask) for task in graders.sets.module(path.stem).TASKS)
    assert told >= 2 * (len(graders.sets.module(path.stem).TASKS) - files)


def test_a_wrong_number_in_a_text_is_noticed() -> None:
    text = "```python\nx = 3.0\ny = x * x  # y: 9.1\n```"
    [_, (statement, place, value)] = claims(text)
    assert (statement, place) == ("y = x * x", "y") and plain(9.0) != plain(eval(value))


@each_notebook
def test_every_plot_is_drawn(path: Path) -> None:
    """With the solutions in the notebook."""
    names: dict = {}
    for cell_name, cell in cells(path).items():
        answer = cell.metadata.nbgrader.solution and not cell.source.startswith("%%")
        if cell_name.endswith("-setup") or cell_name.startswith("plot_") or answer:
            exec(cell.source, names)
    assert plt.get_fignums()
    plt.close("all")


@each_notebook
def test_the_first_screen_is_the_first_task(path: Path) -> None:
    first, setup, task, *_ = nbformat.read(path, 4).cells
    opening = re.sub(r"<details>.*?</details>", "", first.source, flags=re.DOTALL)
    assert len(opening.split()) <= 90, "what stands open before the first task"
    assert "<summary>Fine print</summary>" in first.source and "setup.md#what-grading-refuses" in first.source
    assert not re.search(r"refuse|trust|cheat|eval|gc\.", opening)
    assert setup.metadata.jupyter.source_hidden and task.source.startswith("## ")


@each_notebook
def test_a_task_says_when_it_is_done_and_folds_its_conventions(path: Path) -> None:
    by_id = cells(path)
    for task in graders.sets.module(path.stem).TASKS:
        text = next(c.source for c in by_id.values() if c.source.startswith(f"## {task.name}\n"))
        opening, _, folded = text.partition("<details><summary>Fine print</summary>\n\n")
        assert folded.endswith("</details>") and "**Done** when" in opening, task.name
        assert len(opening.split()) <= 150, task.name


def test_the_notebooks_share_one_text_of_each_helper() -> None:
    """A helper that several notebooks have in their first cell is the same in all."""
    seen: dict[str, str] = {}
    for path in NOTEBOOKS:
        setup = next(c.source for name, c in cells(path).items() if name.endswith("-setup"))
        own = OF_COMPLEX if path.stem == "engine" else set()
        for node in ast.parse(setup).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in SHARED - own:
                assert seen.setdefault(node.name, ast.unparse(node)) == ast.unparse(node), f"{path.stem}: {node.name}"
    assert seen.keys() >= SHARED


OF_COMPLEX = {"slopes", "alike", "twice"}  # in the only set with complex numbers they know those too
SHARED = {"shown", "trying", "slopes", "Calls", "alike", "compare", "forms", "twice", "contract"}


@each_notebook
def test_a_set_runs_without_the_coach_and_says_so(path: Path, capsys: pytest.CaptureFixture) -> None:
    source = next(c.source for name, c in cells(path).items() if name.endswith("-setup"))
    assert "from graders import coach" in source
    names: dict = {}
    exec(source.replace("from graders import coach", "from nowhere_at_all import coach"), names)
    coach: Callable = names["coach"]
    coach(object)
    assert "no coach" in capsys.readouterr().out


def test_the_hint_of_rounding_is_not_given_for_an_element_too_many() -> None:
    """Near by their size alone, 11100111 and 11100000 are whole numbers that float32 holds: nothing rounded them."""
    notebook = nbformat.read(next(p for p in NOTEBOOKS if "clipped_relu" in p.name), 4)
    names: dict = {}
    exec(next(c.source for c in notebook.cells if "def alike(" in c.source), names)
    wide = {"dtype": torch.float64}
    for found, wanted, told in ((11100111.0, 11100000.0, False), (torch.tensor(0.1).item(), 0.1, True)):
        with pytest.raises(AssertionError) as raised:
            names["alike"](torch.tensor(found, **wide), torch.tensor(wanted, **wide), "The gradient.")
        assert ("digits of float32" in str(raised.value)) == told
