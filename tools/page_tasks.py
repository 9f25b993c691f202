"""The tasks as data for the coach in a page: the graders' cases, the right records, what each known mistake does.

``python -m tools.page_tasks SET`` prints the tasks of a set that the page can judge, as JSON. The cases are the
graders' own, drawn from the coach's seed, as code. A record is what the graders' own observer sees; in the page the
same observer runs (`tools.page_graders`). What the page cannot ask (narrow dtypes, helpers, memory) is left out, and
said there.
"""

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from graders.coach.session import SEED
from graders.coach.source import written
from graders.inside.operation import local
from graders.inside.records import Case, Failure, Record
from graders.judge.script import literal
from graders.judge.task import Check, Mistake, Task
from graders.sets import load
from tools.page_graders import LOOKS, named

SETS = {  # of the chapters whose turns run in the page
    "book/01_relu": "relu",
    "book/02_sigmoid": "sigmoid",
    "book/03_ste": "ste",
    "book/05_clipped_relu": "clipped_relu",
    "book/07_logsumexp": "logsumexp",
}
TASKS = [  # what the page's torch is made for
    *("ReLU", "Square", "LeakyReLU", "Tanh"),
    *("Arctan", "Sigmoid", "Cube"),
    *("Step", "ScaleGradient", "Binarize", "GradientReversal"),
    *("HardTanh", "SymmetricClip", "MulConstant", "ClippedReLU", "PACT"),
    *("LogSumExp1d", "SoftCrossEntropy"),
]
MOST = 40  # elements of a tensor that a case of the page has
DTYPES = (torch.float64, torch.float32, torch.int64, torch.bool)
UNSEEN = "float16 and bfloat16, what is kept in memory, and operations that the task forbids"
LETTERS = {torch.float64: "d", torch.float32: "f", torch.int64: "i", torch.bool: "b"}
DIGITS = 12  # of the numbers of a mistake that are neither right nor as float32 holds them


def code_of(value: object) -> str | None:
    """Return an argument as code that the page's torch runs; None for what it has not."""
    if isinstance(value, bool | int | float):
        return repr(value)
    if not isinstance(value, Tensor) or value.dtype not in DTYPES or value.numel() > MOST:
        return None
    if not value.is_contiguous() and value.dim() == 2 and 0 not in value.stride() and not value.t().is_contiguous():
        step = value.stride(0) // value.shape[1]  # every second row: of what lay between them nothing is asked
        whole = torch.zeros(step * value.shape[0], value.shape[1], dtype=value.dtype)
        whole[::step] = value
        return f"{literal(whole)}[::{step}]"
    text = literal(value)
    return None if "as_strided" in text else text


def asked(case: Case) -> Case | None:
    """Return a case as the page can ask it; None for one that it cannot."""
    if case.provide or case.within or case.how in ("backward", "conjugated") or isinstance(case.upstream, tuple):
        return None
    parts = (*case.args, *(case.between or ()), *(case.directions or ()))
    if any(code_of(part) is None for part in parts) or (case.upstream is not None and code_of(case.upstream) is None):
        return None
    return replace(case, watch=tuple(name for name in case.watch if name != "trace"), deny=())


def case_of(case: Case) -> dict[str, Any]:
    """Return a case as data: tensors as code."""
    made: dict[str, Any] = {"name": case.name, "args": [code_of(a) for a in case.args]}
    made |= {"keywords": case.keywords, "requires_grad": case.requires_grad, "watch": case.watch, "how": case.how}
    made["upstream"] = None if case.upstream is None else code_of(case.upstream)
    for name, values in (("directions", case.directions), ("between", case.between)):
        made[name] = None if values is None else [code_of(value) for value in values]
    return made


def _number(value: float, digits: int | None) -> float | str:
    """Return a number with so many digits, and as a word where JSON has none."""
    if not math.isfinite(value):
        return str(value)
    short = value if digits is None else float(f"{value:.{digits}g}")
    narrow = [torch.tensor(v, dtype=torch.float32).item() == v for v in (value, short)]
    return value if any(narrow) else short  # whether float32 holds it tells mistakes apart


def data_of_value(value: object, digits: int | None = None) -> Any:
    """Return a part of a record as JSON has it: a tensor as dtype, shape and numbers."""
    if isinstance(value, Tensor):
        numbers = value.detach().reshape(-1).tolist()
        floats = value.dtype.is_floating_point
        return {"t": [LETTERS[value.dtype], list(value.shape), [_number(n, digits) if floats else n for n in numbers]]}
    if isinstance(value, Failure):
        return {"f": [value.stage, value.kind, value.message]}
    if isinstance(value, tuple):
        return [data_of_value(v, digits) for v in value]
    return value


def record_of(record: Record) -> dict[str, Any]:
    """Return a record as data: what is not as in one that saw nothing."""
    empty, told = Record(), replace(record, drawn=0.0)
    return {f.name: data_of_value(getattr(told, f.name)) for f in fields(Record) if _other(told, empty, f.name)}


def _other(a: Record, b: Record, name: str) -> bool:
    return bool(data_of_value(getattr(a, name)) != data_of_value(getattr(b, name)))


def changes(record: Record, right: Record) -> dict[str, Any]:
    """Return what of a mistake's record is otherwise than in the right one."""
    told, right = replace(record, drawn=0.0), replace(right, drawn=0.0)
    return {f.name: data_of_value(getattr(told, f.name), DIGITS) for f in fields(Record) if _other(told, right, f.name)}


def page_task(task: Task) -> Task:
    """Return a task with the checks, the cases and the looks that the page has."""

    def cases(check: Check) -> list[Case]:
        return [one for case in task._expected(check, SEED)[0] if (one := asked(case))]

    def fixed(found: list[Case]) -> Callable[[object], list[Case]]:
        return lambda draw: found

    checks = []
    for check in task.checks:
        looks = tuple(look for look in check.looks if LOOKS.get(look.__name__) == look.__module__)
        if looks and (found := cases(check)):
            checks.append(replace(check, cases=fixed(found), looks=looks, gradcheck=None, outside=None))
    return Task(task.name, task.call, task.reference, tuple(checks), None, task.mistakes)


def check_of(task: Task, check: Check) -> dict[str, Any]:
    """Return a check of a page's task as data."""
    cases, right = task._expected(check, SEED)
    return {
        "name": check.name,
        "about": check.about,
        "why": check.why,
        "cases": [case_of(case) for case in cases],
        "looks": [[named(look.__module__), look.__name__] for look in check.looks],
        "right": [record_of(record) for record in right],
    }


def mistake_of(task: Task, mistake: Mistake) -> dict[str, Any]:
    """Return a mistake as data: by check, the look that finds fault with it, and its records' changes by case."""
    known, index = {}, {}
    for check in task.checks:
        right = task._expected(check, SEED)[1]
        theirs = local(mistake.operation).observe(task._expected(check, SEED)[0])
        told = {str(i): found for i, (a, b) in enumerate(zip(theirs, right, strict=True)) if (found := changes(a, b))}
        known[check.name] = told
        look = task.loses_by(mistake, check, SEED)
        index[check.name] = [look] if look else []
    return {
        "name": mistake.name, "caught_by": mistake.caught_by, "message": mistake.message, "known": known, "index": index
    }  # fmt: skip


def solution_of(task: Task) -> str:
    """Return the first right way as code that stands alone."""
    operation: Any = next(iter(task.solutions.values()))
    return written(getattr(operation, "__self__", operation), task.name, task.call)


def data_of(task: Task) -> dict[str, Any]:
    """Return a task as the page's coach reads it."""
    page = page_task(task)
    seen = {check.name for check in page.checks}
    return {
        "name": task.name,
        "call": task.call,
        "checks": [check_of(page, check) for check in page.checks],
        "mistakes": [mistake_of(page, mistake) for mistake in page.mistakes],
        "unseen": [[check.name, check.about] for check in task.checks if check.name not in seen],
        "left": UNSEEN,
        "solution": solution_of(task),
    }


def tasks_of(name: str) -> Iterator[Task]:
    """Yield the tasks of a set that the page judges."""
    for task in load(name).values():
        if isinstance(task, Task) and task.name in TASKS:
            yield task


def exported(name: str) -> str:
    """Return the tasks of a set as JSON."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = [data_of(task) for task in tasks_of(name)]
    return json.dumps(made, separators=(",", ":"), allow_nan=False)


if __name__ == "__main__":
    print(exported(sys.argv[1]))
