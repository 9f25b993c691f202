"""The tasks as data for the coach in a page: the graders' cases, the right records, what each known mistake does.

``python -m tools.page_tasks SET`` prints the tasks of a set that the page can judge, as JSON. The cases are the
graders' own, drawn from the coach's seed, as code. A record is what `book/_page/coach.py` observes, which runs here
under torch and in the page under the page's torch. What the page cannot ask (narrow dtypes, helpers, memory) is left
out, and said there.
"""

import importlib.util
import json
import math
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graders.coach.session import SEED
from graders.coach.source import written
from graders.coach.trying import NEXT
from graders.inside.records import Case
from graders.judge.looks import ordinary, parameters
from graders.judge.script import literal
from graders.judge.task import Check, Task
from graders.sets import load

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
LOOKS = {"second order": "second_order"}
ELSEWHERE = ("code below", "ask the coach")  # what is said of the table that Jupyter shows
UNSEEN = "float16 and bfloat16, what is kept in memory, and operations that the task forbids"
EXACT, NEAR = 17, 10  # digits of the right numbers, and of a mistake's


@cache
def coach() -> Any:
    """Return ``book/_page/coach.py`` as a module over torch."""
    path = Path(__file__).parent.parent / "book" / "_page" / "coach.py"
    spec = importlib.util.spec_from_file_location("page_coach", path)
    assert spec and spec.loader  # it is a file of Python
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module)["GLOBAL"].update(torch=torch, inf=math.inf, nan=math.nan)
    return module


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


def case_of(case: Case) -> dict[str, Any] | None:
    """Return a case as data; None for one that the page cannot ask."""
    if case.provide or case.within or case.how in ("backward", "conjugated") or isinstance(case.upstream, tuple):
        return None
    codes = [code_of(a) for a in case.args]
    upstream = None if case.upstream is None else code_of(case.upstream)
    directions = None if case.directions is None else [code_of(d) for d in case.directions]
    if None in codes or (upstream is None) != (case.upstream is None) or None in (directions or ()):
        return None
    return {
        "name": case.name,
        "args": codes,
        "keywords": list(case.keywords),
        "requires": list(case.requires_grad) or [False] * len(codes),
        "upstream": upstream,
        "directions": directions,
        "watch": list(case.watch),
        "shared": False,
        "between": None if case.between is None else [code_of(a) for a in case.between],
        "how": case.how,
        "ordinary": ordinary(case),
    }


def rounded(value: object, digits: int) -> object:
    """Return a record with so many digits of each number, and those that are not finite as JSON has no word for."""
    if isinstance(value, list):
        return [rounded(v, digits) for v in value]
    if isinstance(value, dict):
        return {key: rounded(v, digits) for key, v in value.items()}
    if isinstance(value, float):
        short = float(f"{value:.{digits}g}")
        return short if math.isfinite(short) else str(value)
    return value


def looks_of(check: Check) -> list[str]:
    """Return the names of what a check looks at, as far as the page can."""
    names = [look.__name__ for look in check.looks]
    return [name for name in names if name in coach().LOOKS]


def check_of(task: Task, check: Check) -> dict[str, Any] | None:
    """Return a check as data; None where the page can ask none of its cases."""
    page = coach()
    asked = task._expected(check, SEED)[0]
    looks = looks_of(check)
    cases = [one | {"shared": "untouched" in looks} for case in asked if (one := case_of(case))]
    if not cases or not looks:
        return None
    right = [page.observe(task.reference, case) for case in cases]
    for record in right:
        record[page.OWN] = record[page.DIFFERENTIABLE]  # the reference is torch's
    made: dict[str, Any] = {"name": check.name, "about": check.about, "cases": cases, "looks": looks, "right": right}
    made |= {"known": {}, "by": {}}
    for mistake in task.mistakes:
        theirs = [page.observe(mistake.operation, case) for case in cases]
        made["known"][mistake.name] = {
            str(i): changed for i, record in enumerate(theirs) if (changed := _changes(right[i], record))
        }
        if found := page.find({"parameters": parameters(task.call)}, made, theirs, right):
            made["by"][mistake.name] = found[0]
    made["right"], made["known"] = rounded(right, EXACT), rounded(made["known"], NEAR)
    return made


def _changes(right: list[Any], theirs: list[Any]) -> dict[str, Any]:
    return {str(k): b for k, (a, b) in enumerate(zip(right, theirs, strict=True)) if repr(a) != repr(b)}


def solution_of(task: Task) -> str:
    """Return the first right way as code that stands alone."""
    operation: Any = next(iter(task.solutions.values()))
    return written(getattr(operation, "__self__", operation), task.name, task.call)


def data_of(task: Task) -> dict[str, Any]:
    """Return a task as the page's coach reads it."""
    checks = [made for check in task.checks if (made := check_of(task, check))]
    return {
        "name": task.name,
        "parameters": parameters(task.call),
        "checks": checks,
        "mistakes": {m.name: {"caught_by": m.caught_by, "message": m.message} for m in task.mistakes},
        "next": {LOOKS.get(look, look): said for look, said in NEXT.items() if not any(w in said for w in ELSEWHERE)},
        "unseen": [[c.name, c.about] for c in task.checks if c.name not in {made["name"] for made in checks}],
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
