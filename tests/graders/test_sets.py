"""Every set, put through its own graders: right solutions pass, wrong ones fail on their check and hear their name."""

import ast
import dataclasses
import io
import itertools
import os
import random
import re
import subprocess
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path

import nbformat
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import graders.sets
from graders.inside import wire
from graders.inside.operation import Operation, OperationError, Responder, local
from graders.inside.records import Case, Record
from graders.inside.replies import answered
from graders.inside.wire import decode, encode
from graders.judge.looks import same_behaviour
from graders.judge.task import FRESH, Check, Mistake, Task
from graders.judge.verdict import Verdict
from graders.sets import load
from tests.coach.documents import sound

ROOT = Path(__file__).resolve().parents[2]
SETS = os.environ.get("COURSE_SETS", "").split() or graders.sets.names()  # while another set is half written
TASKS = [(s, t) for s in SETS for t in load(s).values() if isinstance(t, Task)]
GRADED = [(s, t) for s, t in TASKS if t.points and t in graders.sets.module(s).TASKS]
each_task = pytest.mark.parametrize(("set_name", "task"), TASKS, ids=lambda v: v if isinstance(v, str) else v.name)
each_mistake = pytest.mark.parametrize(
    ("set_name", "task", "mistake"),
    [(s, t, m) for s, t in TASKS for m in t.mistakes],
    ids=lambda v: v if isinstance(v, str) else v.name,
)


@cache
def judged(task: Task, operation: Callable, check: str) -> Verdict:
    """The verdict in this process, in the form that the schema says; several tests want it."""
    return sound(task.judge(check, local(operation)))


def _size(case: Case) -> int:
    """The numbers in a case's arguments."""
    return sum(a.numel() for a in tree_leaves(case.args) if isinstance(a, Tensor))


def refused(task: Task, check: Check, operation: Callable, seed: int, first: int = 0) -> int | None:
    """The place of a case that the check finds fault with, `first` and then small ones first; -1: gradcheck does.

    None: the operation is right.

    What `Task.find` finds, it finds in some case or in gradcheck; here the search ends there, and gradcheck asks the
    operation itself, without a rehearsal.
    """
    cases, expected = task._expected(check, seed)
    small = sorted(range(len(cases)), key=lambda i: (i != first, _size(cases[i])))
    for i in small if first >= 0 else []:
        if task._find(check, [cases[i]], local(operation).observe([cases[i]]), [expected[i]]):
            return i
    if check.gradcheck is not None:
        try:
            task._run_gradcheck(check, local(operation), seed)
        except (OperationError, RuntimeError, ValueError):
            return -1
    return None if first >= 0 else refused(task, check, operation, seed)


@each_task
def test_right_solutions_earn_all_points(set_name: str, task: Task) -> None:
    for name, right in task.solutions.items():
        for check in task.checks:
            verdict = judged(task, right, check.name)
            assert verdict.earned == check.points, f"{name}: {verdict}"


@each_mistake
def test_a_mistake_loses_its_check_and_hears_its_name(set_name: str, task: Task, mistake: Mistake) -> None:
    verdict = judged(task, mistake.operation, mistake.caught_by)
    assert verdict.earned == 0, f"not caught: {verdict}"
    assert verdict.mistake == mistake.name, str(verdict)
    assert verdict.message == mistake.message


def drawn(commit: str, count: int) -> list[int]:
    """Return `count` of the seeds 1 to 20: other ones for another commit, the same ones for the same."""
    return sorted(random.Random(commit).sample(range(1, 21), count))


@cache
def commit() -> str:
    """Return the hash of the commit that is checked out; "" where there is no git."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


@each_task
def test_other_seeds_give_the_same_verdict(set_name: str, task: Task) -> None:
    """On three seeds, which another commit draws anew; on all twenty where the set changed, or with COURSE_SEEDS=20."""
    places = dict.fromkeys(task.mistakes, 0)
    changed = set_name in os.environ.get("COURSE_CHANGED", "").split()
    for seed in drawn(commit(), 20 if changed else int(os.environ.get("COURSE_SEEDS", "3"))):
        for name, right in task.solutions.items():
            for check in task.checks:
                place = refused(task, check, right, seed)
                assert place is None, f"{name}, {check.name}, seed {seed}, case {place}"
        for mistake in task.mistakes:
            place = refused(task, task.check(mistake.caught_by), mistake.operation, seed, places[mistake])
            assert place is not None, f"{mistake.name}, seed {seed}"
            places[mistake] = place


def same(a: object, b: object) -> bool:
    """Return whether two trees of plain data are one: types, and of tensors dtype, layout and every bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        a, b = wire.detached(a), wire.detached(b)
        if (a.dtype, a.shape, a.stride()) != (b.dtype, b.shape, b.stride()):
            return False
        return not a.numel() or torch.equal(*(wire.memory(t).view(torch.uint8) for t in (a, b)))
    if dataclasses.is_dataclass(a):
        a, b = vars(a), vars(b)
    if isinstance(a, dict):
        return [*a] == [*b] and all(map(same, a.values(), b.values()))
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or a != a != b != b


def arrived(message: dict, answer: dict) -> dict:
    """Return the answer as the grader has it: over the wire, and held against what was asked."""
    return answered(message, decode(encode(answer)))


@each_task
def test_nothing_is_lost_on_the_wire(set_name: str, task: Task) -> None:
    """Each case, each record and each answer to gradcheck, of right solutions and of mistakes, arrives bit by bit."""
    operations = task.solutions | {m.name: m.operation for m in task.mistakes}
    for check in task.checks:
        cases, expected = task._expected(check, FRESH)
        asked = {"do": "observe", "cases": cases}
        assert same(decode(encode(asked)), asked), check.name
        seen = {name: local(right).observe(cases) for name, right in task.solutions.items()}
        seen |= {m.name: task._known(m, check, FRESH) for m in task.mistakes}
        for name, records in {"the reference": expected, **seen}.items():
            assert same(arrived(asked, {"records": records}), {"records": records}), f"{name} {check.name}"
        if check.gradcheck is not None:
            asked = {"do": "all", "messages": [decode(m) for m in task._rehearsal(check, FRESH)]}
            assert same(decode(encode(asked)), asked), check.name
            for name, operation in operations.items():
                answer = Responder(lambda operation=operation: operation)(asked)
                assert same(arrived(asked, answer), answer), f"{name} {check.name}"


@each_task
def test_behind_a_pipe_the_verdicts_are_the_same(set_name: str, task: Task, forked: Callable) -> None:
    """Of one right solution every verdict. Of one mistake the verdict that names it, and what each check finds."""
    name, operation = next(iter(task.solutions.items()))
    with forked(lambda: operation) as far:
        for check in task.checks:
            assert task.judge(check.name, far) == judged(task, operation, check.name), f"{name} {check.name}"
    mistake = task.mistakes[0]
    with forked(lambda: mistake.operation) as far:
        assert task.judge(mistake.caught_by, far) == judged(task, mistake.operation, mistake.caught_by), mistake.name
        for check in task.checks:
            near = task._find(check, *_beside(task, check, mistake)) or task._gradcheck(
                check, local(mistake.operation), FRESH
            )
            assert task.find(check, far, FRESH) == near, f"{mistake.name} {check.name}"


def _beside(task: Task, check: Check, mistake: Mistake) -> tuple[list, list, list]:
    """The cases of a check, the mistake's records of them as they are known, and the expected ones."""
    cases, expected = task._expected(check, FRESH)
    return cases, task._known(mistake, check, FRESH), expected


def fingerprint(task: Task, operation: Callable) -> list:
    """All that is observed of an operation, on the inputs on which mistakes are recognised."""
    return [r for c in task.checks for r in local(operation).observe(task._expected(c, FRESH)[0])]


@each_task
def test_no_two_solutions_share_a_record(set_name: str, task: Task) -> None:
    wrong = {m.name: [r for c in task.checks for r in task._known(m, c, FRESH)] for m in task.mistakes}
    right = {name: fingerprint(task, right) for name, right in task.solutions.items()}
    for (a, ra), (b, rb) in itertools.combinations([*wrong.items()], 2):
        assert not all(map(same_behaviour, ra, rb)), f"{a} and {b} cannot be told apart"
    for (a, ra), (b, rb) in itertools.product(wrong.items(), right.items()):
        assert not all(map(same_behaviour, ra, rb)), f"{b} is right and looks like {a}"


@pytest.mark.parametrize("set_name", SETS)
def test_a_right_submission_needs_few_round_trips(set_name: str) -> None:
    trips = 0
    for task in graders.sets.module(set_name).TASKS:
        if isinstance(task, Task):
            operation = local(next(iter(task.solutions.values())))
            for check in task.checks:
                task.judge(check.name, operation)
            trips += operation.trips
    assert trips <= 60


@pytest.mark.parametrize("set_name", SETS)
def test_size_of_a_set(set_name: str) -> None:
    tasks = graders.sets.module(set_name).TASKS
    assert sum(t.points for t in tasks) == (20 if chapters(set_name) else 10), {t.name: t.points for t in tasks}
    for task in tasks:
        assert all(check.points > 0 for check in task.checks), task.name
        assert len(task.solutions) >= 4, task.name
        assert len(task.mistakes) >= (12 if isinstance(task, Task) else 8), task.name


@each_task
def test_a_missing_name_and_a_stub_are_verdicts(set_name: str, task: Task) -> None:
    def missing() -> Callable:
        return Missing.apply  # noqa: F821

    def stub(*args: object, **keywords: object) -> None:
        raise NotImplementedError

    for check in task.checks:
        verdict = task.judge(check.name, Operation(Responder(missing)))
        assert verdict.earned == 0 and "could not be found" in verdict.message and "NameError" in verdict.message
        verdict = task.judge(check.name, local(stub))
        assert verdict.earned == 0 and "is not written yet" in verdict.message


# --- what the book shows ----------------------------------------------------------------------------------------------


def chapters(set_name: str) -> list[Path]:
    """The chapter of a set; none for an appendix's, whose page runs wrong versions of its own Functions."""
    return sorted((ROOT / "book").glob(f"[0-9][0-9]_{set_name}.ipynb"))


def definitions(source: str) -> list[str]:
    """The Functions and the functions that a cell defines; a wrong version may inherit from the right one."""
    return re.findall(r"^(?:class (?=\w+\((?:(?:\w+\.)*Function|Right\w+)\))|def )(\w+)", source, re.M)


PRELUDE = """
import math, torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
"""


DEFINES = ast.ClassDef | ast.FunctionDef | ast.Import | ast.ImportFrom


def keeps_the_right_one(statement: ast.stmt) -> bool:
    """Say whether a statement is of the form ``RightReLU = ReLU``, from which wrong versions inherit."""
    return re.match(r"Right(\w+) = \1$", ast.unparse(statement)) is not None


COUNT = itertools.count()


def registers_its_own(statement: ast.stmt) -> None:
    """Give each operator that a statement registers a namespace of its own.

    Torch frees an operator whose name is registered again, also one that somebody holds: to call it then is to read
    freed memory, and now and then the process dies.
    """
    for node in ast.walk(statement):
        for decorator in getattr(node, "decorator_list", ()):
            for part in ast.walk(decorator):
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and "::" in part.value:
                    part.value = f"pasted{next(COUNT)}::{part.value.rpartition('::')[2]}"


def run(*sources: str, names: dict | None = None) -> dict:
    """The names that a chapter's cells define, with what they import; magics and other statements are left out.

    `names`, if given, are those of the cells before.
    """
    names = {} if names is None else names
    for source in (PRELUDE, *sources):
        with suppress(SyntaxError):
            body = ast.parse(source).body
            kept = [s for s in body if isinstance(s, DEFINES) or keeps_the_right_one(s)]
            for statement in kept:
                registers_its_own(statement)
                with suppress(NameError, ModuleNotFoundError):  # of a statement left out, or of a file beside the page
                    exec(compile(ast.Module([statement], []), "<chapter>", "exec"), names)
    return names


def operation(thing: type | Callable) -> Callable:
    return thing.apply if isinstance(thing, type) else thing


@pytest.mark.parametrize("set_name", SETS)
def test_the_chapter_s_wrong_versions_are_named_by_the_grader(set_name: str) -> None:
    tasks, seen = load(set_name), 0
    for path in chapters(set_name):
        names: dict = {}  # of the cells before, the wrong versions left out
        for cell in nbformat.read(path, 4).cells:
            tags = [tag for tag in cell.metadata.get("tags", []) if tag.startswith("misconception:")]
            if cell.cell_type == "code" and not tags:
                run(cell.source, names=names)
            for tag in tags:
                task_name, name = tag.removeprefix("misconception:").split(".")
                task = tasks[task_name]
                mistake = next(m for m in task.mistakes if m.name == name)
                shown = next(c for c in definitions(cell.source) if c.endswith(task_name))
                wrong = run(cell.source, names=dict(names))[shown]
                verdict = task.judge(mistake.caught_by, local(operation(wrong)))
                assert verdict.mistake == name, f"{path.name} {tag}: {verdict}"
                seen += 1
    assert seen >= 2 or not chapters(set_name), "a chapter shows two to four wrong versions"


def renamed(cell: str, offer: str) -> str:
    """A chapter's test file, with the module, the class and the torch function that it is about renamed to `offer`."""
    text = cell.split("\n", 1)[1]
    module, name = re.search(r"^from (\w+) import ([A-Z]\w+)$", text, re.M).groups()
    in_torch = {"arctan": "atan"}.get(module, module)
    text = text.replace(f"torch.{in_torch}", f"torch.{offer}")
    return text.replace(name, offer.capitalize()).replace(module, offer)


def earned(task: Task, thing: type | Callable) -> float:
    """What a thing earns: the checks that it passes, and where there are any, its shares of those that it does not."""
    before: dict[tuple[str, str], Verdict] = {}
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if all(refused(task, c, operation(thing), 0) is not None for c in task.checks):
            return 0.0
        return sum(task.judge(c.name, local(operation(thing)), 0, before).earned for c in task.checks)


@cache
def pages() -> list[list[str]]:
    """The code cells of each notebook of the book."""
    files = sorted((ROOT / "book").glob("*.ipynb"))
    return [[c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code"] for path in files]


@cache
def defined() -> list[type | Callable]:
    """Each definition of the book as its cell leaves it, with what the cells before it define."""
    found = []
    for cells in pages():
        names: dict = {}
        for source in cells:
            if not source.startswith("%%"):
                run(source, names=names)
                found += [names[name] for name in definitions(source) if name in names]
    return found


@pytest.mark.parametrize("set_name", SETS)
def test_pasting_the_book_earns_at_most_five_points(set_name: str) -> None:
    assert defined()
    total = 0.0
    for task in graders.sets.module(set_name).TASKS:
        if isinstance(task, Task):  # every Function and function of the book, under this task's name
            total += max(earned(task, thing) for thing in defined())
        else:  # every file that a chapter writes, renamed to test what this task offers
            files = [source for cells in pages() for source in cells if source.startswith("%%writefile")]
            assert files
            total += max(task.judge("catches", renamed(f, task.offer)).earned for f in files)
    assert total <= (5 if chapters(set_name) else 2)


def test_a_pasted_answer_would_earn_its_points() -> None:
    """The sum above can exceed five."""
    task = load("relu")["Square"]
    assert earned(task, run("class Right(Function):" + SQUARE)["Right"]) == task.points


SQUARE = """
    forward = staticmethod(lambda x: x * x)
    setup_context = staticmethod(lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    backward = staticmethod(lambda ctx, g: 2 * g * ctx.saved_tensors[0])
"""


def test_what_is_pasted_registers_no_operator_twice() -> None:
    cell = (
        "from torch.library import custom_op\n@custom_op('course::it', mutates_args=())\ndef it(x: Tensor) -> Tensor:\n"
    )
    first, second = (run(cell + f"    return x * {factor}")["it"] for factor in (2, 3))
    assert first._qualname != second._qualname
    assert [op(torch.ones(1)).item() for op in (first, second)] == [2, 3]


def test_a_refusal_is_where_the_grader_finds_one() -> None:
    """The search that stops early agrees with the grader's own."""
    task = load("relu")["Tanh"]
    for operation in [*task.solutions.values(), *(m.operation for m in task.mistakes)]:
        for check in task.checks:
            found = task.find(check, local(operation), 3)
            for first in (-1, 0, 2):
                assert (refused(task, check, operation, 3, first) is None) == (found is None)


def test_a_planted_twin_is_noticed() -> None:
    """The test of records above can fail."""
    task = load("relu")["Square"]
    twin = fingerprint(task, task.mistakes[0].operation)
    assert all(map(same_behaviour, twin, fingerprint(task, task.mistakes[0].operation)))


def test_a_planted_loss_on_the_wire_is_noticed() -> None:
    """The test of the wire above can fail, in what `same_behaviour` does not look at too."""
    x = torch.ones(2, 3)
    record = Record(kind="Tensor", outputs=(x,), drawn=0.5, tally=(("calls", 1),))
    assert same(record, dataclasses.replace(record, outputs=(x.clone(),)))
    for loss in (
        {"kept_bytes": 8},
        {"drawn": 0.25},
        {"tally": (("calls", True),)},
        {"outputs": [x]},
        {"outputs": (x.t().contiguous().t(),)},
        {"outputs": (x.double(),)},
        {"outputs": (x.nextafter(2 * x),)},
    ):
        assert not same(record, dataclasses.replace(record, **loss)), loss


def test_the_seeds_are_other_ones_for_another_commit() -> None:
    few = {tuple(drawn(name, 3)) for name in ("a", "b", "c", "d")}
    assert len(few) == 4 and all(len(set(seeds)) == 3 and {*seeds} <= {*range(1, 21)} for seeds in few)
    assert drawn("a", 3) == drawn("a", 3) and drawn("a", 20) == [*range(1, 21)]
