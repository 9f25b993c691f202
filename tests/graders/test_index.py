"""What a set's index.json says of its mistakes is what they do, and it costs none of them its name."""

import warnings

import pytest

from graders.inside.operation import local
from graders.judge.task import FRESH, Mistake, Task
from graders.sets import load
from tools.index import index_of, indexed, looks

SEED = 11  # one of those that the file was made with


@pytest.fixture(autouse=True)
def quietly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_there_is_an_index():
    assert indexed() == ["flash_attention", "linear", "relu", "sigmoid"]


@pytest.mark.parametrize("name", indexed())
def test_the_index_is_what_the_mistakes_do(name: str) -> None:
    said = {task.name: task.index for task in load(name).values() if isinstance(task, Task) and task.index}
    found = index_of(name, [SEED])
    other = "run `python -m tools.index` and look at what has changed"
    stale = [f"{task}.{mistake}" for task, mistakes in said.items() for mistake in mistakes.keys() - found[task].keys()]
    assert stale == [], other
    missing = [
        f"{task}.{mistake}, {check}: {look}"
        for task, mistakes in said.items()
        for mistake, checks in mistakes.items()
        for check in found[task][mistake]
        for look in found[task][mistake][check]
        if look not in checks[check]
    ]
    assert missing == [], other


def test_where_the_index_leaves_no_doubt_a_mistake_is_not_run(monkeypatch):
    task = load("relu")["Square"]
    mistake, check, ran = task.mistakes[0], task.check("gradient"), []
    monkeypatch.setattr(type(task), "loses_by", lambda *given: ran.append(given) or "value")
    for looks_of_it, look, right, runs in (
        (["value"], "value", True, 0),
        (["value"], "gradient", False, 0),
        (["gradient", "value"], "value", True, 1),
        ([], "value", True, 1),
    ):
        ran.clear()
        monkeypatch.setattr(task, "index", {mistake.name: {check.name: looks_of_it}})
        assert (task._by_this_look(mistake, check, look, 0), len(ran)) == (right, runs)


def test_mistakes_are_told_apart_where_the_index_says_that_they_differ():
    task = load("flash_attention")["FlashAttention"]
    kept = [m for m in task.mistakes if m.name in ("saves_p", "tiles_kept_for_backward")]
    halves = [m for m in task.mistakes if m.name in ("scale_missing", "missing_d")]

    def names(mistakes: list[Mistake], *, symptoms: bool) -> list[str]:
        return [check.name for check in task._telling(task.checks, mistakes, symptoms)]

    assert names(kept, symptoms=False) == [], "all their numbers are right"
    assert names(kept, symptoms=True)[0] == "memory", "there the one makes a large tensor, the other many"
    assert set(names(halves, symptoms=False)) == {check.name for check in task.checks}
    assert names(halves, symptoms=False)[-1] in ("gradient", "contract"), "both lose it by the gradient"


def test_a_mistake_that_the_index_does_not_know_is_recognised():
    task = load("relu")["Square"]
    mistake = next(m for m in task.mistakes if m.caught_by == "gradient")
    index = looks(task, [0])
    for known, name in ((index, mistake.name), ({}, mistake.name), (index | {mistake.name: {"gradient": []}}, "")):
        task.index = known
        try:
            assert task.judge("gradient", local(mistake.operation)).mistake == name
        finally:
            task.index = {}
    del index[mistake.name]
    assert all(task.loses_by(mistake, task.check("gradient"), seed + FRESH) for seed in (0, 1))
