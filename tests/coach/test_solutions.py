"""The right ways that open after a task has passed."""

import ast
import re

import pytest

from graders import coach, solutions
from graders.coach import ask, find, state
from graders.coach.right import COUNT, ways, when
from graders.coach.session import HOLDS, closing, steps
from graders.coach.source import highlighted
from graders.judge.testfile import FileTask
from tests.coach.conftest import HALF, RIGHT, defined

EVERY = [found for set_ in find.sets() for found in find.tasks(set_)]
GRADED = [found for found in EVERY if not found.turn]
each_task = pytest.mark.parametrize("found", EVERY, ids=lambda found: f"{found.set}-{found.task.name}")
INSIDE = re.compile(r"\bgraders\b|\bWrong\b|\bSteps\b|@task|\bwrong\.|\bcls\.(?!apply|Function)")


@each_task
def test_each_way_runs_as_it_is_shown_and_passes(found: find.Found) -> None:
    """Pasted into an empty notebook, or one that has the other tasks' answers, it is right."""
    for way in ways(found).each:
        assert not INSIDE.search(way.code), way.code
        if isinstance(found.task, FileTask):
            head, _, text = way.code.partition("\n")
            assert head == found.task.first_line
            answer: object = text
        else:
            names = _others(found, way.code)
            exec(compile(way.code, "<cell>", "exec"), names)
            answer = names[found.task.name]
        for step in steps(found, answer):
            assert step.state == HOLDS, f"{step.verdict}\n{way.code}"


def _others(found: find.Found, code: str) -> dict:
    """The first right way of each other task of the set that the code uses."""
    names: dict = {}
    for other in find.tasks(found.set):
        if other != found and re.search(rf"\b{other.task.name}\b", code) and not isinstance(other.task, FileTask):
            exec(compile(ways(other).each[0].code, "<cell>", "exec"), names)
    return names


@pytest.mark.parametrize("found", GRADED, ids=lambda found: f"{found.set}-{found.task.name}")
def test_each_task_has_three_ways_that_say_when_to_prefer_them(found: find.Found) -> None:
    shown = ways(found).each
    assert len(shown) == COUNT
    assert len({way.when for way in shown}) == COUNT and len({way.code for way in shown}) == COUNT
    for way in shown:
        assert len(way.when) >= 30 and way.when.endswith("."), way.when
        ast.parse(way.code.partition("\n")[2] if way.code.startswith("%%") else way.code)


def test_the_name_is_the_task_s_and_inherited_methods_are_written_in() -> None:
    first, _, careful = ways(find.find("Square")).each
    assert "class Square(torch.autograd.Function):" in careful.code and "SquareNew" not in careful.code
    assert "def setup_context" in careful.code and careful.code.count("def backward") == 1
    assert "needs_input_grad" in careful.code and "needs_input_grad" not in first.code
    assert first.code.startswith("import torch\n")


def test_a_way_of_which_nothing_is_known_has_no_sentence() -> None:
    """The test above can fail."""
    assert when(lambda x: x) == ""


def test_before_it_has_passed_they_are_not_shown(capsys, monkeypatch) -> None:
    monkeypatch.setattr(ask, "_asked", lambda found: False)
    Square = defined(HALF)
    coach(Square)
    capsys.readouterr()
    solutions(Square)
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and "has not passed yet" in out and "coach.solutions(Square, anyway=True)" in out
    assert state.read().tasks["relu.Square"].opened is None
    solutions(Square, anyway=True)
    assert "3 right ways" in capsys.readouterr().out
    assert state.read().tasks["relu.Square"].opened is not None


def test_once_it_has_passed_they_are_shown(capsys) -> None:
    coach(defined(RIGHT))
    capsys.readouterr()
    solutions("Square")
    assert "Square: 3 right ways" in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "shown"), [("y", True), ("yes ", True), ("", False), ("n", False)])
def test_one_question_is_asked_where_somebody_can_answer(capsys, monkeypatch, answer: str, shown: bool) -> None:
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
    solutions(defined(HALF))
    assert asked == ["Square has not passed. Show the solutions all the same? [y/N] "]
    assert ("right ways" in capsys.readouterr().out) == shown


def test_code_is_highlighted_and_nothing_of_it_is_lost() -> None:
    import html

    for found in GRADED:
        for way in ways(found).each:
            shown = highlighted(way.code)
            assert html.unescape(re.sub(r"</?(b|i|pre)\b[^>]*>", "", shown)) == way.code
            assert "<b>def</b>" in shown


def test_the_coach_says_how_many_ways_there_are_and_the_call_that_shows_them(capsys):
    for key, said in (("relu.Square", "shows three right ways, and"), ("relu.ReLU", "shows one right way.")):
        found = find.find("", key)
        thing = type(found.task.name, (), {"apply": staticmethod(next(iter(found.task.solutions.values())))})
        text = " ".join(closing(found, list(steps(found, thing))))
        assert f"coach.solutions({found.task.name}) {said}" in text
    assert ways(find.find("", "relu.ReLU")).text().startswith("ReLU: 1 right way\n")
    coach.solutions("Square", anyway=True)
    assert capsys.readouterr().out.startswith("Square: 3 right ways\n")
