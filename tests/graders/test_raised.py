"""What torch's errors are said to mean: raised here by what a newcomer writes, each leads to its section."""

import warnings

import pytest

from graders.inside.operation import local
from graders.judge.places import of_message
from graders.judge.raised import meaning
from graders.sets import load
from tests.book.test_places import sections

X = """import torch, math
class Square(torch.autograd.Function):
    @staticmethod
    def forward({forward}):
        {first}
        return x * x
    @staticmethod
    def setup_context(ctx, inputs, output):
        {saves}
    @staticmethod
    def backward(ctx, g):
        {unpacks}
        return {returns}
"""
RIGHT = {
    "forward": "x", "first": "pass", "saves": "ctx.save_for_backward(*inputs)", "unpacks": "(x,) = ctx.saved_tensors",
    "returns": "2 * x * g",
}  # fmt: skip
ANSWERS = {  # what is changed of a right answer, how the sentence begins, and the section
    "saves the tuple": ({"saves": "ctx.save_for_backward(inputs)"}, "save_for_backward takes tensors one by one", True),
    "comma": ({"unpacks": "x = ctx.saved_tensors"}, "A tuple stands where", True),
    "comma, other order": (
        {"unpacks": "x = ctx.saved_tensors", "returns": "g * (x - 1)"},
        "A tuple stands where",
        True,
    ),
    "ctx in forward": ({"forward": "ctx, x", "saves": "pass"}, "Your forward does not take what", True),
    "shape": ({"returns": "(2 * x * g)[..., :1]"}, "The shapes do not fit: your gradient of x has", True),
    "count": (
        {"returns": "(2 * x * g, g)"},
        "Your backward returns 2 gradients, and forward takes 1 argument",
        True,
    ),
    "if": ({"first": "x = x if x > 0 else -x"}, "Python's if, and, or, min and max", False),
    "a function of math": ({"first": "math.exp(x)"}, "Something of Python's, a function of math", False),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_error_is_told_in_a_sentence_with_its_section(name: str) -> None:
    change, begins, placed = ANSWERS[name]
    names: dict = {}
    exec(X.format(**RIGHT | change), names)
    task = load("relu")["Square"]
    task_mistakes, task.mistakes = task.mistakes, []  # named ones are told in their own words
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            verdicts = [task.judge(check.name, local(names["Square"].apply)) for check in task.checks]
    finally:
        task.mistakes = task_mistakes
    said = [v for v in verdicts if v.look == "runs"]
    assert said and all(v.message.startswith(begins) and "Error" in v.evidence["raised"] for v in said)
    assert all((v.place.page == "a_errors") == placed for v in said)


def test_a_right_answer_is_told_nothing() -> None:
    names: dict = {}
    exec(X.format(**RIGHT), names)
    assert all(load("relu")["Square"].judge(c, local(names["Square"].apply)).earned for c in ("value", "gradient"))
    assert meaning("").sentence == meaning("something else went wrong").heading == ""


def test_a_scalar_is_written_as_python_writes_it() -> None:
    told = "Function F returned an invalid gradient at index 1 - got [] but expected shape compatible with [2, 3]"
    said = meaning(told, ["x", "beta"]).sentence
    assert "your gradient of beta has shape (), and beta has (2, 3)." in said and ".sum()" in said
    assert "your gradient of argument 2 has shape ()" in meaning(told).sentence


def test_each_section_is_there() -> None:
    errors = {"a": "element 0 of tensors does not require grad", "b": "modified by an inplace operation: x"}
    for text in (*errors.values(), "Trying to backward through the graph a second time"):
        assert meaning(text).heading in sections("a_errors") and not meaning(text).sentence
        assert of_message(meaning(text).heading).runs
