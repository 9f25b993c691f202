"""The failing case as code: below a mistake it shows what is wrong, and below a right answer what is expected."""

import cmath
import io
import json
import math
import re
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import graders.sets
from graders.inside.operation import local
from graders.inside.pristine import pristine
from graders.inside.records import Case, Failure, Helper, Record
from graders.judge import looks as look
from graders.judge import paste, script
from graders.judge.looks import TOLERANCE
from graders.judge.task import FRESH, Check, Mistake, Task
from graders.judge.verdict import CODE, PASTE, Verdict
from graders.sets import load

Tolerance = tuple[float, float, bool]  # relative, absolute, and whether all passes where nan is expected
NAMES = {"inf": math.inf, "nan": math.nan, "torch": torch}


@dataclass
class Ran:
    """What a pasted code printed, beside what it says is expected, and what it raised."""

    lines: list[tuple[str, str]]
    raised: Exception | None


def expectations(code: str) -> list[str]:
    """What the code says is expected of each print, in order."""
    found: list[str] = []
    open_ = False
    for line in map(str.strip, code.splitlines()):
        if line.startswith("print("):
            found.append(line.partition("  # expected: ")[2])
            open_ = not found[-1]
        elif line.startswith("#") and open_:
            found[-1] = f"{found[-1]} {line.lstrip('# ').removeprefix('expected: ')}".strip()
        else:
            open_ = False
    return found


def run(task: Task, code: str, operation: Callable) -> Ran:
    """Run the code in a fresh namespace that holds the operation alone, as a notebook's cell below the answer would."""
    root, _, attribute = task.call.partition("(")[0].partition(".")
    names: dict[str, object] = {root: SimpleNamespace(**{attribute: operation}) if attribute else operation}
    printed: list[str] = []
    names["print"] = lambda *parts: printed.append(" ".join(map(str, parts)))
    raised = None
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), pristine():
        warnings.simplefilter("ignore")
        try:
            exec(compile(code, "pasted", "exec"), names)
        except Exception as error:
            raised = error
    wanted = expectations(code)
    return Ran(list(zip(printed, wanted, strict=False)), raised)


def _evaluated(text: str) -> object:
    try:
        return eval(text, dict(NAMES))
    except (SyntaxError, NameError, AttributeError):
        return None


def near(printed: str, expected: str, tolerance: Tolerance) -> bool | None:
    """Whether a line is what is expected; None: that is said in words."""
    if limit := re.match(r"at most (\d+)", expected):
        return int(printed) <= int(limit[1])
    if printed == expected:
        return True
    a, b = _evaluated(printed), _evaluated(expected)
    if b is None:
        return False if expected == "None" else None
    return _alike(a, b, tolerance)


def _alike(a: object, b: object, tolerance: Tolerance) -> bool:
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_alike(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if a == b or (b != b and (a != a or tolerance[2])):
        return True
    if not (isinstance(a, complex | float | int) and isinstance(b, complex | float | int)):
        return False
    return cmath.isclose(a, b, rel_tol=tolerance[0], abs_tol=tolerance[1])


def tolerances(code: str) -> list[Tolerance]:
    """From loose to exact: those of the narrowest dtype in the code, `precise`'s, none."""
    used = [TOLERANCE[d] for d in TOLERANCE if re.search(rf"{d}\b", code)] or [(1e-7, 1e-7)]
    any_for_nan = "# where nan is expected, anything will do" in code
    return [(*both, any_for_nan) for both in (max(used), (1e-9, 1e-9), (1e-10, 1e-10), (0.0, 0.0))]


def differs(code: str, wrong: Ran, right: Ran) -> bool:
    """Whether what the mistake prints is not what is expected, where a right answer's is."""
    for tolerance in tolerances(code):
        mine = [near(*line, tolerance) for line in wrong.lines]
        theirs = [near(*line, tolerance) for line in right.lines]
        if False not in theirs and False in mine:
            return True
    return any(a != b and near(*a, (0, 0, True)) is None for a, b in zip(wrong.lines, right.lines, strict=False))


def trouble(task: Task, check: Check, operation: Callable, seed: int = 0) -> tuple[str, str, str]:
    """Why the code of what a check finds does not show it, "" where it does; the code, and the look."""
    with redirect_stdout(io.StringIO()):
        finding = task.find(check, local(operation), seed)
    assert finding is not None
    code = task._code(check, finding, seed)
    if code.startswith("# The smallest case that fails is too large"):  # and the code says so
        return "", code, finding.look
    if not code or not expectations(code):
        return "no code", code, finding.look
    wrong, right = run(task, code, operation), run(task, code, next(iter(task.solutions.values())))
    if len(code) > CODE:
        return f"{len(code)} characters", code, finding.look
    if finding.look == "guarded" and wrong.raised is None and isinstance(right.raised, RuntimeError):
        return "", code, finding.look
    if right.raised is not None:
        return f"a right answer raises {type(right.raised).__name__}: {right.raised}", code, finding.look
    if len(right.lines) != len(expectations(code)):
        return "a right answer does not come to the end", code, finding.look
    if all(False in [near(*line, t) for line in right.lines] for t in tolerances(code)):
        return f"a right answer prints {right.lines}", code, finding.look
    if finding.look == "runs" and wrong.raised is not None:
        told = f" raised {finding.evidence['raised']}" if "raised" in finding.evidence else finding.message
        said = f" raised {type(wrong.raised).__name__}"
        return ("" if said in told else f"raises {wrong.raised!r}"), code, finding.look
    if wrong.raised is not None and finding.look in ("second order", "guarded", "gradcheck", "stateless"):
        return "", code, finding.look
    if wrong.raised is not None:
        return f"raises {wrong.raised!r}", code, finding.look
    return ("" if differs(code, wrong, right) else f"prints {wrong.lines}"), code, finding.look


TASKS = [(s, t) for s in graders.sets.names() for t in load(s).values() if isinstance(t, Task)]


def _few(task: Task) -> list[Mistake]:
    """One mistake of each look that finds any, of a task that is quick."""
    found: dict[str, Mistake] = {}
    for mistake in task.mistakes:
        finding = task.find(task.check(mistake.caught_by), local(mistake.operation), 0)
        assert finding is not None
        found.setdefault(finding.look, mistake)
    return list(found.values())


@pytest.mark.parametrize(("set_name", "name"), [("relu", "Tanh"), ("ste", "round_ste")])
def test_the_code_shows_what_the_verdict_says(set_name: str, name: str) -> None:
    """One mistake of each look, of two tasks; all of them in `test_the_code_of_every_mistake`."""
    task = load(set_name)[name]
    assert isinstance(task, Task)
    for mistake in _few(task):
        why, code, found = trouble(task, task.check(mistake.caught_by), mistake.operation)
        assert not why, f"{name} {mistake.name} ({found}): {why}\n\n{code}"


@pytest.mark.filterwarnings("ignore::UserWarning")  # what wrong answers deserve
@pytest.mark.parametrize("set_name", graders.sets.names())
def test_the_code_of_every_mistake(set_name: str) -> None:
    """Of every known mistake, those of the chapter too: the code runs, and shows what the verdict says."""
    faults = []
    for task in (t for s, t in TASKS if s == set_name):
        for mistake in task.mistakes:
            why, code, found = trouble(task, task.check(mistake.caught_by), mistake.operation)
            faults += [f"{task.name} {mistake.name} ({found}): {why}\n\n{code}"] * bool(why)
    assert not faults, "\n\n".join(faults)


def test_a_verdict_has_the_code_as_data_of_its_own() -> None:
    task = load("relu")["Square"]
    assert isinstance(task, Task)
    wrong = next(m for m in task.mistakes if m.name == "upstream_ignored")
    verdict = task.judge("gradient", local(wrong.operation))
    assert "y = Square.apply(x)\n" in verdict.code and "y.backward(upstream)\n" in verdict.code
    assert "print(x.grad.tolist())" in verdict.code and "requires_grad=True" in verdict.code
    assert "code" not in verdict.evidence and str(verdict).endswith(f"{PASTE}\n\n{verdict.code}")
    assert Verdict.of(json.loads(json.dumps(asdict(verdict)))) == verdict
    assert Verdict.of({k: v for k, v in asdict(verdict).items() if k != "code"}) == replace(verdict, code="")
    assert task.judge("gradient", local(next(iter(task.solutions.values())))).code == ""


def test_a_code_is_whole_or_not_there_and_shows_what_a_terminal_would_obey() -> None:
    def verdict(code: str) -> Verdict:
        return Verdict("Square", "value", 1.0, 0.0, "Wrong.", code=code)

    assert verdict("x = 1\n" * (CODE // 6)).code.endswith("x = 1\n")
    assert verdict("x = 1\n" * CODE).code == ""
    assert verdict("a\x1b[2J\u202eb\r\nc").code == "a\\x1b[2J\\u202eb\\r\nc"


HOSTILE = "</pre><script>x</script> $x$ # \\\n__import__('os').system('x')"


def test_no_text_of_a_student_s_gets_into_the_code() -> None:
    """What is raised, tallied or denied by its own word, and the type that comes back, stay out."""

    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            raise RuntimeError(HOSTILE)

    task = load("relu")["Square"]
    assert isinstance(task, Task)
    verdict = task.judge("value", local(Raises.apply))
    assert "<script>" in verdict.message and "<script>" not in verdict.code and "y = Square" in verdict.code
    x = torch.tensor([1.0, 2.0])
    given = Case("a case", (x,), requires_grad=(True,), upstream=x, watch=("trace",), deny=("aten::tanh",))
    right = Record(kind="Tensor", outputs=(x,), differentiable=(True,), grads=(x,), numbers=())
    forged = Record(
        failure=Failure("forward", HOSTILE, HOSTILE),
        kind=HOSTILE,
        changed=(HOSTILE,),
        denied=(f"{HOSTILE} in forward",),
        tally=((HOSTILE, 9),),
        overwritten=((HOSTILE, (x,)),),
    )
    for name in paste.KINDS:
        found = look.Finding(name, HOSTILE, {"ran": HOSTILE, "yours": HOSTILE})
        found = replace(found, failing=lambda f=found: iter([((given, forged, right), f)]))
        with suppress(ValueError):  # not a name that a record may hold: `replies` refuses it
            assert "import__" not in paste.pasted("Square.apply(x)", found)


def shown(*args: object, call: str = "Square.apply(x)", **options: object) -> str:
    """The code of a wrong value for these arguments."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    out = tensors[0].clone() if tensors else torch.zeros(2)
    given = Case("a case", args, **options)
    yours, right = (Record(kind="Tensor", outputs=(o,), differentiable=(False,)) for o in (out + 1, out))
    found = look.Finding("value", "Wrong.")
    return paste.pasted(call, replace(found, failing=lambda: iter([((given, yours, right), found)])))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 2, dtype=torch.float64).t(),
        torch.randn(4, 3, dtype=torch.float64)[::2],
        torch.randn(1, 3, dtype=torch.float32).expand(2, 3),
        torch.randn(2, 3, 2, dtype=torch.float64).permute(2, 0, 1),
        torch.randn(8, dtype=torch.float16) * 1000,
        torch.randn(8, dtype=torch.bfloat16) * 1e30,
        torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0], dtype=torch.float64),
        torch.tensor(5e-324, dtype=torch.float64),
        torch.empty(0, 3, dtype=torch.float64),
        torch.full((5000,), -21.0, dtype=torch.float64),
        torch.tensor([[1, 2], [3, 4]]),
        torch.tensor([True, False]),
    ],
    ids=lambda t: f"{str(t.dtype)[6:]}-{'x'.join(map(str, t.shape))}",
)
def test_a_tensor_is_pasted_bit_by_bit_and_with_its_strides(tensor: Tensor) -> None:
    names: dict[str, Any] = {"Square": SimpleNamespace(apply=lambda x: x), "print": lambda *_: None}
    exec(shown(tensor), names)
    assert names["x"].dtype == tensor.dtype and names["x"].shape == tensor.shape
    assert names["x"].stride() == tensor.stride() or not tensor.numel()
    assert names["x"].tolist() == tensor.tolist() or str(names["x"].tolist()) == str(tensor.tolist())


def test_what_is_too_large_is_said() -> None:
    code = shown(torch.randn(300, dtype=torch.float64))
    assert code.startswith("# The smallest case that fails is too large to be pasted: x.") and "print" not in code


def test_the_smallest_case_is_pasted_where_the_first_is_large() -> None:
    cases = [Case(f"of {n}", (torch.randn(n, dtype=torch.float64),)) for n in (300, 200, 6, 40)]
    triples = [(c, *(Record(kind="Tensor", outputs=(c.args[0] + k,)) for k in (1, 0))) for c in cases]
    finding = look.first_finding((look.value,), "Square.apply(x)", triples)
    assert finding is not None and finding.evidence["case"].startswith("of 6:")
    assert "# of 6: x float64" in paste.pasted("Square.apply(x)", finding)
    by_size = sorted(triples, key=lambda triple: -triple[0].args[0].numel())
    first = replace(finding, failing=lambda: iter([(triple, finding) for triple in by_size]))
    assert "# of 6: x float64" in paste.pasted("Square.apply(x)", first)


def test_gradcheck_is_pasted_too() -> None:
    """Of what agrees in all cases and not with its own values."""
    task = load("relu")["Square"]
    assert isinstance(task, Task)
    for name, order, mistake in (("gradient", 1, "upstream_ignored"), ("second_order", 2, "detached")):
        check = task.check(name)
        code = task._code(check, look.Finding("gradcheck", "refused"), 0)
        wrong = next(m for m in task.mistakes if m.name == mistake)
        assert ("gradgradcheck(Square.apply, (x,), (upstream,)," in code) == (order == 2)
        assert run(task, code, next(iter(task.solutions.values()))).lines == [("True", "True")]
        assert isinstance(run(task, code, wrong.operation).raised, RuntimeError)


def test_helpers_have_no_name_of_a_task_s() -> None:
    """Pasted, they must not replace what the student wrote; a helper that stands in for it gets another name."""
    answers = {t.call.partition("(")[0].partition(".")[0] for _, t in TASKS}
    used = {h for _, t in TASKS for c in t.checks for case in t._expected(c, FRESH)[0] for h in _helpers(case)}
    provided = {p for _, t in TASKS for c in t.checks for case in t._expected(c, FRESH)[0] for p in case.provide}
    assert used and provided and not answers & used
    for name in used:
        assert not answers & set(re.findall(r"^(?:def|class) (\w+)", script.source((name,))[1], re.M))
    for name in provided:
        assert f"class Given{name}" in script.source((name,), True)[1]


def _helpers(case: Case) -> set[str]:
    return {a.name for a in (*case.args, *(case.between or ())) if isinstance(a, Helper)}
