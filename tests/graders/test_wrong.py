"""The language of mistakes: what its decorators hand over, what it refuses, and that a habit changes one thing."""

import pytest
import torch
from torch.autograd import Function

from graders.judge.task import Task
from graders.judge.wrong import HABITS, Wrong

X = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)


class Scaled(Function):
    """c x, its factor a step."""

    @staticmethod
    def forward(x, c=2.0):
        return c * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.c = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def factor(ctx):
        return ctx.c

    @classmethod
    def backward(cls, ctx, g):
        return cls.factor(ctx) * g, None


@pytest.fixture
def wrong() -> Wrong:
    return Wrong(Task("Scaled", "Scaled.apply(x, c=2.0)", reference=Scaled.apply, checks=()), of=Scaled)


def gradient(wrong: Wrong, *args: object, **keywords: object) -> torch.Tensor | None:
    """The gradient of x by the mistake added last."""
    x = X.clone().requires_grad_()
    y = wrong.task.mistakes[-1].operation(x, *args, **keywords)
    return torch.autograd.grad(y, x, torch.ones_like(y), allow_unused=True)[0]


def test_a_backward_gets_what_its_parameters_leave_room_for(wrong):
    @wrong.backward("gradient", "of what is saved")
    def saved_and_upstream(x, g):
        return x * g, None

    assert torch.equal(gradient(wrong), X)

    @wrong.backward("gradient", "of ctx too")
    def with_ctx(ctx, x, g):
        return ctx.c * x * g, None

    assert torch.equal(gradient(wrong, 5.0), 5 * X)

    @wrong.backward("gradient", "as torch calls it")
    def as_torch_calls_it(ctx, g):
        return ctx.saved_tensors[0] * g, None

    assert torch.equal(gradient(wrong), X)
    assert [m.name for m in wrong.task.mistakes] == ["saved_and_upstream", "with_ctx", "as_torch_calls_it"]
    assert wrong.task.mistakes[1].caught_by == "gradient" and wrong.task.mistakes[1].message == "of ctx too"


def test_other_tensors_are_saved_and_all_else_is_kept(wrong):
    @wrong.backward("second_order", "", saves=lambda x, c, y: (y, x * x))
    def saves_derivative(ctx, y, square, g):
        return ctx.c * (y + square), None

    assert torch.equal(gradient(wrong, 3.0), 3 * (3 * X + X * X))

    @wrong.saves("value", "")
    def saves_the_output(x, c, y):
        return (y,)

    assert torch.equal(gradient(wrong, 3.0), torch.full_like(X, 3.0))


def test_a_step_is_one_that_the_right_solution_has(wrong):
    @wrong.step("factor", "gradient", "")
    def factor_forgotten(ctx):
        return 1.0

    assert torch.equal(gradient(wrong), torch.ones_like(X))
    with pytest.raises(AttributeError, match="Scaled has no step 'power'"):
        wrong.step("power", "gradient", "")


def test_a_habit_keeps_the_names_and_defaults_of_the_arguments(wrong):
    wrong.habits("float32_inside")
    assert torch.equal(gradient(wrong), torch.full_like(X, 2.0)) and torch.equal(gradient(wrong, c=3.0), 3 + 0 * X)


@pytest.mark.parametrize("name", ["sign_flipped", "upstream_unchanged", "detached"])
def test_a_habit_without_words_wants_the_task_s(wrong, name):
    with pytest.raises(ValueError, match=f"{name} has no message that fits all tasks"):
        wrong.habits(name)
    wrong.habits(**{name: "Words."}, caught_by="other")
    assert (wrong.task.mistakes[-1].caught_by, wrong.task.mistakes[-1].message) == ("other", "Words.")


def test_no_habit_is_made_up(wrong):
    with pytest.raises(KeyError, match="coffee_forgotten"):
        wrong.habits("coffee_forgotten")
    assert not wrong.task.mistakes


@pytest.mark.parametrize("name", HABITS)
def test_the_right_solution_stays_right_beside_its_habits(wrong, name):
    wrong.habits(**{name: "Words."})
    x = X.clone().requires_grad_()
    (right,) = torch.autograd.grad(Scaled.apply(x, 3.0).sum(), x)
    assert torch.equal(right, torch.full_like(X, 3.0))
