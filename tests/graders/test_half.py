"""A mistake that has a name costs at most half of its task's points; each exception is listed with its reason."""

import os
import warnings
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch.autograd import Function

import graders.sets
from graders.gradecell import grade
from graders.inside.operation import Responder, local
from graders.judge.half import NOT_DONE, WHOLE, kept
from graders.judge.proxy import DESK, Desk, Proxy
from graders.judge.task import Mistake, Task
from graders.judge.verdict import Verdict
from graders.sets import load

SETS = os.environ.get("COURSE_SETS", "").split() or graders.sets.names()

BY_LOOK = {  # what the check that is about the mistake found it by: the answer is not the author's own, or not there
    "exists": "there is no answer",
    "function": "the gradient is torch's",
    "no function": "the task asks for another way",
    "by hand": "the gradient is torch's",
    "allowed": "a function that the task forbids does it",
    "source": "a function that the task forbids does it",
}
HEAVY = "the check that is about it is worth 3 of the task's 4 points"
ALIKE = "at one check it cannot be told from another mistake, so it has no name there"
BY_NAME = {
    "fit_sine.loss_of_the_first_step": HEAVY,
    "fit_sine.losses_summed": HEAVY,
    "fit_sine.gradients_accumulate": HEAVY,
    "fit_sine.stops_early": HEAVY,
    "fit_sine.with_momentum": HEAVY,
    "fit_sine.one_after_the_other": HEAVY,
    "fit_sine.rebinds_while_recorded": HEAVY,
    "fit_sine.rebinds_parameters": HEAVY,
    "SwiGLU.finite_difference": ALIKE,
    "online_logsumexp.sum_not_rescaled": ALIKE,
    "online_logsumexp.rescaled_upwards": ALIKE,
    "online_logsumexp.maximum_not_stored": ALIKE,
    "CrossEntropy.classes_inferred": ALIKE,
    "FakeQuantizePerChannel.ends_excluded": ALIKE,
    "FakeQuantBits.ends_excluded": ALIKE,
    "FakeQuantBits.mask_without_zero_point": ALIKE,
    "FusedLinearReLU.bias_after_relu": ALIKE,
}


@cache
def judged(task: Task, operation: Callable) -> dict[str, Verdict]:
    """The verdicts of all checks of a task, as a notebook's are."""
    before: dict[tuple[str, str], Verdict] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {check.name: task.judge(check.name, local(operation), 0, before) for check in task.checks}


def cost(task: Task, mistake: Mistake) -> float:
    """What a mistake costs."""
    return task.points - sum(verdict.earned for verdict in judged(task, mistake.operation).values())


def reason(task: Task, mistake: Mistake) -> str:
    """Why a mistake may cost more than half; "" for no reason."""
    name = f"{task.name}.{mistake.name}"
    by_name = BY_NAME.get(name) or WHOLE.get(name) or WHOLE.get(mistake.name, "")
    return by_name or BY_LOOK.get(judged(task, mistake.operation)[mistake.caught_by].look, "")


@pytest.mark.parametrize("set_name", SETS)
def test_a_mistake_costs_at_most_half(set_name: str) -> None:
    tasks = [t for t in load(set_name).values() if isinstance(t, Task) and t.points]
    over = [(task, mistake) for task in tasks for mistake in task.mistakes if cost(task, mistake) > task.points / 2]
    assert [f"{task.name}.{mistake.name}" for task, mistake in over if not reason(task, mistake)] == []
    stale = {name for name in BY_NAME if name.partition(".")[0] in {task.name for task in tasks}}
    assert sorted(stale - {f"{task.name}.{mistake.name}" for task, mistake in over}) == []


def test_each_exception_has_a_reason_and_a_mistake() -> None:
    tasks = [t for slug in graders.sets.names() for t in load(slug).values() if isinstance(t, Task)]
    names = {name for task in tasks for m in task.mistakes for name in (m.name, f"{task.name}.{m.name}")}
    assert sorted((WHOLE.keys() | BY_NAME.keys()) - names) == []
    assert BY_LOOK.keys() == {*NOT_DONE} and all([*BY_LOOK.values(), *BY_NAME.values(), *WHOLE.values()])


def test_what_other_checks_give() -> None:
    tanh = load("relu")["Tanh"]
    (ignored,) = [m for m in tanh.mistakes if m.name == "upstream_ignored"]
    found = judged(tanh, ignored.operation)
    assert {name: (v.earned, v.points) for name, v in found.items()} == {
        "value": (1, 1),
        "gradient": (0, 2),
        "second_order": (1.375, 2),
        "saved": (1.375, 2),
        "contract": (0.75, 1),
    }
    assert [v.after for v in found.values()] == ["", "", "gradient", "gradient", "gradient"]
    assert cost(tanh, ignored) == 3.5 <= tanh.points / 2


@pytest.mark.parametrize("total", [3, 4, 5, 8, 14])
@pytest.mark.parametrize("own", [1, 2, 3])
def test_what_is_taken_adds_up_to_no_more_than_half(total: int, own: int) -> None:
    others = total - own
    if others > 0 and total / 2 - own >= others / 8:
        assert own + sum(1 - kept(1, own, total) for _ in range(others)) <= total / 2
    if others > 0:
        assert 0 < kept(1, own, total) < 1 and kept(0.125, own, total) == 0


# --- nothing is gained by playing a mistake ---------------------------------------------------------------------------


def tanh(forgets: Callable[[torch.Tensor], bool]) -> Callable:
    """Tanh that ignores the upstream gradient where it is told to."""

    class Played(Function):
        @staticmethod
        def forward(x):
            return torch.tanh(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return (torch.ones_like(g) if forgets(y) else g) * (1 - y * y)

    return Played.apply


def test_a_mistake_that_is_played_at_another_check_alone_gains_nothing() -> None:
    task = load("relu")["Tanh"]
    found = judged(task, tanh(lambda y: y.shape == (64,)))  # the shape that "saved" asks for, and no other check
    assert found["gradient"].earned == 2
    assert (found["saved"].mistake, found["saved"].after, found["saved"].earned) == ("upstream_ignored", "gradient", 0)


def test_an_answer_that_has_no_name_gains_nothing() -> None:
    task = load("relu")["Tanh"]

    class Odd(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.tanh(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (1 - torch.tanh(x) ** 2) * 1.37 + x.sin()

    found = judged(task, Odd.apply)
    assert [v.earned for v in found.values()] == [1, 0, 0, 0, 0]


def test_an_answer_that_changes_is_judged_by_what_it_was() -> None:
    """The check that a share rests on is not run again: it cannot be lost for the one and won for itself."""
    task, wrong = load("relu")["Tanh"], [True]
    before: dict[tuple[str, str], Verdict] = {}
    played = tanh(lambda y: wrong[0])
    assert task.judge("saved", local(played), 0, before).earned == 1.375
    wrong[0] = False
    assert task.judge("gradient", local(played), 0, before).earned == 0
    assert task.judge("gradient", local(played)).earned == 2


def test_a_grade_cell_remembers_what_the_notebook_s_checks_found() -> None:
    """`judged` is the notebook's, on the trusted side."""
    wrong = [True]
    played = tanh(lambda y: wrong[0])
    before: dict[tuple[str, str], Verdict] = {}
    responder = Responder(lambda: played)
    desk = Desk(lambda path, message: responder(message), lambda m: [], lambda line: None, "", 0, judged=before)
    token = DESK.set(desk)
    try:
        assert grade("relu", "Tanh", "saved", lambda: Proxy("Tanh", desk)) == 1.375
        wrong[0] = False
        assert grade("relu", "Tanh", "gradient", lambda: Proxy("Tanh", desk)) == 0
    finally:
        DESK.reset(token)
    assert {check for _, check in before} == {"saved", "gradient"}
