"""One mistake is said once: a check that another mistake keeps from being judged says so in one line."""

import pytest
import torch

from graders.inside.operation import local
from graders.judge.once import once, waits
from graders.judge.verdict import Verdict
from graders.sets import load


def judged(slug: str, task_name: str, operation: object) -> list[Verdict]:
    """The verdicts of all checks of a task."""
    task = load(slug)[task_name]
    return [task.judge(check.name, local(operation)) for check in task.checks]


def mistake(slug: str, task_name: str, name: str) -> list[Verdict]:
    """The verdicts on a known mistake."""
    (operation,) = [m.operation for m in load(slug)[task_name].mistakes if m.name == name]
    return judged(slug, task_name, operation)


def test_a_named_mistake_is_said_where_the_check_is_about_it():
    verdicts = mistake("relu", "Tanh", "upstream_ignored")
    value, gradient, second_order, saved, contract = once(verdicts)
    assert value.startswith("Right in ") and gradient.startswith("Your gradient is 1 - y^2 alone")
    assert second_order == saved == contract == "Judged once the gradient is right."
    assert [v.after for v in verdicts] == ["", "", "gradient", "gradient", "gradient"]


def test_the_verdicts_themselves_keep_everything():
    verdicts = mistake("relu", "Tanh", "upstream_ignored")
    lost = [v for v in verdicts if v.earned < v.points]
    assert len({v.message for v in lost}) == 1 and {v.mistake for v in lost} == {"upstream_ignored"}
    assert all(v.evidence and v.code for v in lost)
    assert [Verdict.of(v.data()) for v in verdicts] == verdicts


def test_a_check_above_the_one_that_is_about_a_mistake_points_down():
    verdicts = mistake("relu", "Square", "writes_into_upstream")
    lines = once(verdicts)
    assert lines[1] == waits("contract") == "Judged once the contract holds."
    assert lines[3].startswith("Your backward writes into the upstream gradient.")


def test_a_wrong_number_without_a_name_is_said_once():
    class Odd(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.tanh()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (1 - x.tanh() ** 2) * 1.37 + x.sin()

    verdicts = judged("relu", "Tanh", Odd.apply)
    assert not any(v.mistake for v in verdicts)
    assert once(verdicts)[2:4] == [waits("gradient")] * 2


def test_gradcheck_of_a_wrong_value_waits_for_the_value():
    verdicts = mistake("relu", "Square", "derivative_for_value")
    assert (verdicts[1].look, verdicts[1].after, verdicts[1].mistake) == ("gradcheck", "value", "")
    assert once(verdicts)[:2] == [verdicts[0].message, waits("value")]


def test_what_is_not_written_yet_is_said_once():
    def stub(x):
        raise NotImplementedError

    lines = once(judged("relu", "Square", stub))
    assert lines == ["Square is not written yet.", *[waits("value")] * 3]


@pytest.mark.parametrize("second", [Verdict("B", "value", 1, 0, "Wrong."), Verdict("A", "slopes", 1, 0, "Otherwise.")])
def test_nothing_else_is_left_out(second):
    first = Verdict("A", "value", 1, 0, "Wrong.", mistake="")
    assert once([first, second]) == [first.message, second.message]


def test_a_check_that_has_no_words_of_its_own_is_named():
    assert waits("one_pass") == "Judged once the check of one pass passes."
