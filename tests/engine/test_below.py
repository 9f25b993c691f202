"""A gradient is the student's own where torch's autograd is refused below Python: the kernel, and grading in it."""

import os
from collections.abc import Callable

import pytest
import torch

from graders.engine.kernel import Kernel
from graders.inside import refusal
from graders.inside.observe import STRUCTURAL, observe
from graders.inside.operation import local
from graders.inside.records import Case
from graders.judge.task import Task
from graders.sets import load, module, names
from tests.engine.attacks.gradients import (
    ATTACKS,
    FUNCTIONS,
    HIDDEN,
    PROGRAM,
    WRAPPED,
)
from tests.engine.conftest import SETTINGS, cell, text
from tests.engine.test_run import GRADE, RIGHT, squares

X = torch.linspace(-1, 1, 6, dtype=torch.float64)
G = torch.arange(6.0, dtype=torch.float64)


def in_child(act: Callable[[], object], *denied: str) -> str:
    """What `act` returns, as text, in a fork of this process in which autograd is refused; or what it raises."""
    heard, said = os.pipe()
    if os.fork() == 0:
        try:
            refusal.forbid([refusal.AUTOGRAD, *denied])
            result = str(act())
        except BaseException as error:
            result = f"{type(error).__name__}: {error}"
        os.write(said, result.encode())
        os._exit(0)
    os.close(said)
    with os.fdopen(heard) as pipe:
        answer = pipe.read()
    os.wait()
    return answer


class Hand(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "around",
    [
        lambda f, x: f(x),
        lambda f, x: f(x.reshape(2, 3)).t().reshape(6),
        lambda f, x: f(x.expand(2, 6)).sum(0).squeeze(),
        lambda f, x: f(x.unsqueeze(0).transpose(0, 1)[:, 0].clone().contiguous().to(torch.float64)),
    ],
)
def test_a_gradient_by_hand_arrives(dtype, around):
    """For an upstream gradient that is not contiguous too, and through what only moves, repeats or sums."""
    g = torch.stack([G, G], 1)[:, 0].to(dtype)

    def gradient(f):
        x = X.to(dtype).requires_grad_()
        y = around(f, x)
        (found,) = torch.autograd.grad(y, x, g.to(y.dtype))
        return found.double()

    expected = gradient(torch.tanh)
    near = 5e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-6
    assert in_child(lambda: torch.allclose(gradient(Hand.apply), expected, atol=near)) == "True"
    assert "does not require grad" in in_child(lambda: gradient(torch.tanh))


def scripted(older: bool):
    set_executor = getattr(torch._C, "_jit_set_" + "profiling_executor")
    set_executor(not older)

    @torch.jit.script
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * x.exp()

    return [f(X.clone().requires_grad_()).grad_fn for _ in range(4)][-1]


DISGUISES = {
    "bare": lambda: torch.tanh(X.clone().requires_grad_()).grad_fn,
    "autograd.grad": lambda: torch.autograd.grad(torch.tanh(a := X.clone().requires_grad_()), a, G),
    "backward": lambda: torch.tanh(X.clone().requires_grad_()).backward(G),
    "engine": lambda: torch.autograd.graph._engine_run_backward(
        (torch.tanh(a := X.clone().requires_grad_()),),
        (G,),
        True,
        True,
        (a,),
        allow_unreachable=True,
        accumulate_grad=False,
    ),
    "node": lambda: torch.tanh(X.clone().requires_grad_()).grad_fn(G),
    "forward mode": lambda: torch.func.jvp(torch.tanh, (X,), (G,))[1].any(),
    "vjp": lambda: torch.func.vjp(torch.tanh, X)[1](G)[0].any(),
    "jacobian": lambda: torch.autograd.functional.jacobian(torch.tanh, X).any(),
    "foreach": lambda: torch._foreach_tanh([X.clone().requires_grad_()])[0].grad_fn,
    "nested": lambda: torch.tanh(torch.nested.nested_tensor([X], requires_grad=True)).grad_fn,
    "nested linear": lambda: (
        torch.nn.functional.linear(
            torch.nested.nested_tensor([X.reshape(2, 3)], requires_grad=True), torch.ones(2, 3, dtype=torch.float64)
        ).grad_fn
    ),
    "mkldnn": lambda: torch.tanh(X.float().to_mkldnn().requires_grad_()).grad_fn,
    "sparse": lambda: torch.tanh(X.to_sparse().requires_grad_()).grad_fn,
    "complex": lambda: torch.tanh(X.to(torch.complex128).requires_grad_()).grad_fn,
    "checkpoint": lambda: (
        torch.utils.checkpoint.checkpoint(torch.tanh, X.clone().requires_grad_(), use_reentrant=False).grad_fn
    ),
    "in place": lambda: torch.zeros(6).double().copy_(X.clone().requires_grad_()).grad_fn,
    "layer": lambda: torch.nn.LSTM(6, 6)(X.float()[None])[0].grad_fn,
    "compiled": lambda: torch.compile(torch.tanh, backend="aot_eager")(X.clone().requires_grad_()).grad_fn,
    "scripted": lambda: scripted(False),
    "scripted, older": lambda: scripted(True),
}


@pytest.mark.parametrize("name", DISGUISES)
def test_torch_gives_no_gradient_under_any_name(name):
    answer = in_child(DISGUISES[name])
    assert answer in ("None", "False", "tensor(False)") or "Error: " in answer, answer


@pytest.mark.parametrize("name", DISGUISES)
def test_and_where_autograd_is_not_refused_each_of_them_does(name):
    """So what is tested above is the refusal."""
    heard, said = os.pipe()
    if os.fork() == 0:  # what an executor is set to stays
        try:
            answer = str(DISGUISES[name]())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(said, answer.encode())
        os._exit(0)
    os.close(said)
    with os.fdopen(heard) as pipe:
        answer = pipe.read()
    os.wait()
    if name != "backward":
        assert answer not in ("None", "False", "tensor(False)") and "Error" not in answer, answer


def test_what_is_structural_is_so_above_and_below():
    """The nodes that the observer takes for nobody's are those of the operators that keep their derivative."""
    camel = lambda name: "".join(part.capitalize() for part in name.strip("_").split("_"))  # noqa: E731
    without_node = {"detach", "detach_", "set_", "resize_"}
    for name in refusal.STRUCTURAL - without_node:
        assert STRUCTURAL.fullmatch(f"{camel(name)}Backward0"), name


def test_a_proof_looks_at_numbers_alone():
    case = Case("a", (X,), requires_grad=(True,), upstream=G, refuse="autograd")
    record = observe(Hand.apply, case)
    assert record.failure is None and record.grads is not None and not record.function
    with pytest.raises(ValueError, match="refuses nothing called 'all'"):
        Case("a", (X,), refuse="all")


@pytest.mark.parametrize("set_name", names())
def test_right_solutions_are_proved(set_name):
    """Every right solution of every task gives its numbers where autograd, and all that the task denies, is refused."""
    for task in load(set_name).values():
        if not isinstance(task, Task) or not any(task._proves(c, task._expected(c, 0)[0]) for c in task.checks):
            continue
        seen = {
            (name, check.name): (local(right).observe(task._expected(check, 0)[0]), check)
            for name, right in task.solutions.items()
            for check in task.checks
            if task._proves(check, task._expected(check, 0)[0])
        }
        denied = task._denied(0)

        def act(task=task, seen=seen, denied=denied):
            found = {}
            for (name, check_name), (records, check) in seen.items():
                cases, expected = task._expected(check, 0)
                found[name, check_name] = task._proof(
                    check, cases, records, expected, local(task.solutions[name]), denied
                )
            return {key: finding for key, finding in found.items() if finding}

        assert in_child(act, *denied) == "{}", task.name


# --- in the engine ----------------------------------------------------------------------------------------------------

TESTS = {
    f"{task} {check.name}": GRADE.format(set="relu", task=task, check=check.name, get=f"{task}.apply")
    for task in FUNCTIONS
    for check in load("relu")[task].checks
}


def scores(execute, *cells: str) -> dict[str, float]:
    """The points of each check of set 01."""
    done = execute(*cells, *[cell("", name) for name in TESTS], tests=TESTS)[len(cells) :]
    assert all(c.outputs for c in done), [text(c) for c in done]
    return {name: float(c.outputs[-1].data["text/plain"]) for name, c in zip(TESTS, done, strict=True)}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.name)
def test_torchs_gradient_earns_what_is_honest(execute, attack):
    earned = scores(execute, "import torch\n" + attack.first, *attack.answers.values())
    assert sum(earned.values()) == attack.honest, {name: points for name, points in earned.items() if points}


def test_another_program_computes_no_gradient(execute):
    text = "\n".join("        " + line for line in PROGRAM.replace("{function}", "torch.tanh").split("\n"))
    code = WRAPPED.replace("{body}", text).format(name="Tanh", function="torch.tanh", before=HIDDEN)
    tests = {"Tanh gradient": TESTS["Tanh gradient"]}
    _, _, graded = execute("import torch", code, cell("", "Tanh gradient"), tests=tests)
    assert graded.outputs[-1].data["text/plain"] == "0.0"


@pytest.mark.parametrize(
    "before",
    [
        "x = torch.ones(2, requires_grad=True)\nx.tanh().sum().backward()\ngrown = x.grad + 1\nfactor = grown.sum()",
        "raise ValueError('stops here')\nRIGHT = 0",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-V'])",
    ],
)
def test_cells_that_need_autograd_or_programs_cost_nothing(execute, before):
    """What raises for what is refused is skipped, and what follows in its cell is defined."""
    tests = squares("gradient") | {}
    first, second = (
        (f"import torch\n{before}", RIGHT) if "raise" in before else (f"import torch\n{before}\n{RIGHT}", "0")
    )
    *_, graded = execute(first, second, cell("", "test"), tests=tests)
    assert graded.outputs[-1].data["text/plain"] == "1.0", text(graded)


def test_a_notebook_has_one_kernel_more(execute, monkeypatch):
    started = []
    start = Kernel.__init__
    monkeypatch.setattr(
        Kernel, "__init__", lambda self, *a, **k: started.append(a[2] if len(a) > 2 else ()) or start(self, *a, **k)
    )
    right = {
        name: points for name, points in scores(execute, "import torch", RIGHT).items() if name.startswith("Square")
    }
    assert sum(right.values()) == 4 and len(started) == 2, started


def test_the_twin_is_replaced_when_it_is_lost(execute, warm):
    tests = squares("gradient")
    for _ in range(2):
        *_, graded = execute(RIGHT, cell("", "test"), tests=tests)
        assert graded.outputs[-1].data["text/plain"] == "1.0"
        warm._bare.close()
    assert SETTINGS.sandbox == "required" and warm.alive


# --- what is the process's word ---------------------------------------------------------------------------------------

# looks that go by what a process says of itself, and no number proves; `guarded` hangs on the versions of saved tensors
WORDS = frozenset(
    (  # noqa: SIM905 (words)
        "untouched guarded keeps_at_most keeps_nothing keeps_output_alone keeps_lse_alone largest peak no_matrix"
        " graphless stream counts called manners leaves_gradients streamed unless_causal"
    ).split()
)


def on_word() -> dict[str, float]:
    """The points of all sets that hang on each look that nothing proves."""
    found: dict[str, float] = {}
    for set_name in names():
        for task in module(set_name).TASKS:
            for check in task.checks if isinstance(task, Task) else ():
                looks = {getattr(look, "__name__", "") for look in check.looks}
                proved = task._proves(check, task._expected(check, 0)[0])
                claims = looks.intersection(WORDS) | (
                    looks & {"function", "no_function", "allowed"} if not proved else set()
                )
                for look in claims:
                    found[look] = found.get(look, 0) + check.points
                if claims:
                    found["any"] = found.get("any", 0) + check.points
    return found


def test_no_points_hang_on_the_word_whose_gradient_it_is():
    found = on_word()
    assert "function" not in found, found
    points = sum(task.points for set_name in names() for task in module(set_name).TASKS)
    assert found.get("any", 0) < 0.3 * points, (found, points)
