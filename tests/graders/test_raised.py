"""What torch's errors are said to mean: raised here by what a newcomer writes, each leads to its section."""

import time
import warnings
from copy import copy

import pytest
import torch
from torch.autograd import Function

from graders.inside.operation import local
from graders.inside.records import Failure, Record
from graders.judge.looks import same_behaviour
from graders.judge.places import of_message
from graders.judge.raised import MEANINGS, meaning
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
    "comma": ({"unpacks": "x = ctx.saved_tensors"}, "A tuple or a list stands where a tensor is", True),
    "comma, other order": (
        {"unpacks": "x = ctx.saved_tensors", "returns": "g * (x - 1)"},
        "A tuple or a list stands where a tensor is meant. ctx.saved_tensors is a tuple, even of one tensor: unpack it",
        True,
    ),
    "ctx in forward": ({"forward": "ctx, x", "saves": "pass"}, "Your forward does not take what", True),
    "shape": ({"returns": "(2 * x * g)[..., :1]"}, "Your gradient of x has shape", True),
    "added up": ({"returns": "(2 * x * g).sum()"}, "Your gradient of x has shape (), and x has", True),
    "count": (
        {"returns": "(2 * x * g, g)"},
        "Your backward returns 2 gradients, and forward takes 1 argument",
        True,
    ),
    "None": ({"saves": "ctx.save_for_backward(None)"}, "You compute with None here.", False),
    "a number and a tensor": (
        {"first": "x = x.clamp(0, torch.ones(1, dtype=x.dtype))"},
        "clamp takes two numbers or two tensors, and one of each raises",
        False,
    ),
    "a number for a gradient": ({"returns": "2.0"}, "Your backward returns a number or a tuple where", False),
    "if": ({"first": "x = x if x > 0 else -x"}, "Python's if, and, or, min, max and", False),
    "a chain": ({"first": "x = torch.where(-1 <= x <= 1, x, x)"}, "Python's if, and, or, min, max and", False),
    "power": ({"first": "x = x ^ 2"}, "^ is not a power in Python, but the exclusive or of bits: write x ** 2", False),
    "power in backward": ({"returns": "g * 2 * x ^ 1"}, "^ is not a power in Python", False),
    "half a power": ({"first": "x = x ^ 0.5"}, "^ is not a power in Python", False),
    "and": (
        {"first": "torch.where(x > 0 & x < 1, x, x)"},
        "& and | bind before comparisons, and take no floats: put each comparison in parentheses",
        False,
    ),
    "or": ({"first": "torch.where(x < 0 | x > 1.5, x, x)"}, "& and | bind before comparisons", False),
    "and of numbers": ({"first": "torch.where(x > 0 & 1.5 > x, x, x)"}, "& and | bind before comparisons", False),
    "the whole maximum": ({"first": "x - x.max()"}, "max() without dim takes the largest number of the whole", False),
    "the whole minimum": ({"first": "x - torch.amin(x)"}, "amin() without dim takes the smallest number of", False),
    "in place on the upstream": ({"returns": "g.mul_(2 * x)"}, "An operation that works in place (its name", True),
    "no parentheses": ({"first": "x + x.detach"}, "A method stands where what it returns is meant", False),
    "no parentheses, the other way": ({"returns": "g * x.abs * 2"}, "A method stands where what it returns", False),
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


def test_what_none_lacks_is_not_taken_for_what_a_float_lacks() -> None:
    def raised(message: str) -> Record:
        return Record(Failure("forward", "AttributeError", message))

    of_none, of_float = (raised(f"'{kind}' object has no attribute 'zero_'") for kind in ("NoneType", "float"))
    assert same_behaviour(of_none, raised(of_none.failure.message)) and not same_behaviour(of_none, of_float)
    of_yours, of_mine = (raised(f"'{kind}' object has no attribute 'kept'") for kind in ("Yours", "Mine"))
    assert same_behaviour(of_yours, of_mine), "a class's name is the student's own"


def test_a_gradient_for_a_number_is_not_wanted() -> None:
    class ScaleGradient(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor, g

    verdict = load("ste")["ScaleGradient"].judge("gradient", local(ScaleGradient.apply))
    assert verdict.message.startswith("Your backward returns a gradient for factor, and factor is not a tensor: return")


def test_of_attention_no_single_number_is_named() -> None:
    task = load("flash_attention")["FlashAttention"]
    wrong = next(m for m in task.mistakes if m.name == "missing_d")
    finding = task.find(task.check("gradient"), local(wrong.operation), 0)
    assert finding and finding.message.startswith("Wrong gradient with respect to q at index (")
    assert (
        "where q = " not in finding.message
        and " v = " not in finding.message
        and "the upstream gradient" not in finding.message
    )


def test_a_scalar_is_written_as_python_writes_it() -> None:
    told = "Function F returned an invalid gradient at index 1 - got [] but expected shape compatible with [2, 3]"
    said = meaning(told, ["x", "beta"]).sentence
    assert said.startswith("Your gradient of beta has shape (), and beta has (2, 3): ")
    assert "Your gradient of argument 2 has shape ()" in meaning(told).sentence


SHAPES = "Function F returned an invalid gradient at index 0 - got [{}] but expected shape compatible with [2, 3]"


def test_a_number_for_a_gradient_may_be_added_up_or_another_argument_s() -> None:
    both = meaning(SHAPES.format(""), ["x", "beta"]).sentence.split(". ")[0]
    assert "plain .sum()" in both and "another argument's place" in both
    assert "another argument" not in meaning(SHAPES.format(""), ["x"]).sentence
    assert "order of forward's arguments" in meaning(SHAPES.format("3"), ["x", "beta"]).sentence
    assert "order" not in meaning(SHAPES.format("3"), ["x"]).sentence


IN_PLACE = {
    "a leaf": "x.round_()",
    "a part of a leaf": "x[x > 0] *= 2",
    "a view of a leaf": "x[:1].mul_(2)",
    "an expanded tensor": "x.detach()[:1].expand(3).mul_(2)",
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_the_caller_s_is_not_changed_in_place(name: str) -> None:
    with pytest.raises(RuntimeError) as raised:
        exec(IN_PLACE[name], {"x": torch.tensor([-1.0, 1.0, 2.0], requires_grad=True)})
    said = meaning(str(raised.value))
    assert said.sentence.startswith("An operation that works in place (its name ends in _")
    assert "use the version without" in said.sentence.split(". ")[0] and of_message(said.heading).runs


def test_each_pattern_takes_a_time_that_grows_as_the_text_does() -> None:
    for text in ('"bitwise_xor_' * 50_000, "got [" + "1, " * 200_000, "unsupported operand type(s) for " * 20_000):
        start = time.perf_counter()
        assert meaning(text).sentence == ""
        assert all(not pattern.search(text) for pattern, _, _ in MEANINGS)
        assert time.perf_counter() - start < 2


def test_each_section_is_there() -> None:
    errors = {"a": "element 0 of tensors does not require grad", "b": "modified by an inplace operation: x"}
    for text in (*errors.values(), "Trying to backward through the graph a second time"):
        assert meaning(text).heading in sections("a_errors") and not meaning(text).sentence
        assert of_message(meaning(text).heading).runs


FORGETS = """
class LeakyReLU(Function):
    @staticmethod
    def forward(x, negative_slope):
        return torch.where(x > 0, x, negative_slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        {setup}

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        {backward}
"""
KEEPS = "x, ctx.slope = inputs; ctx.save_for_backward(x)"
RETURNS = "return torch.where(x > 0, g, ctx.slope * g), None"


@pytest.mark.parametrize(
    ("setup", "backward", "said", "check"),
    [
        ("ctx.save_for_backward(x)", RETURNS, "setup_context does not know x: it gets all arguments", "value"),
        ("ctx.save_for_backward(y)", RETURNS, "setup_context does not know y: forward's variables are", "value"),
        ("x, slope = inputs[0]", RETURNS, "Your setup_context raised ValueError: too many values to unpack", "value"),
        (
            KEEPS,
            RETURNS.replace("ctx.slope", "negative_slope"),
            "backward does not know negative_slope: keep it on ctx in setup_context",
            "gradient",
        ),
        (
            "pass",
            RETURNS,
            "More names stand on the left than the tuple on the right holds. ctx.saved_tensors",
            "gradient",
        ),
        (KEEPS, "raise NotImplementedError", "LeakyReLU's backward is not written yet.", "gradient"),
        (KEEPS, RETURNS, "", "gradient"),
    ],
)
def test_an_argument_that_is_used_where_it_is_not_known(setup: str, backward: str, said: str, check: str) -> None:
    names: dict = {"torch": torch, "Function": Function}
    exec(FORGETS.format(setup=setup, backward=backward), names)
    verdict = load("relu")["LeakyReLU"].judge(check, local(names["LeakyReLU"].apply))
    assert verdict.message.startswith(said or "Right in") and (verdict.earned == verdict.points) == (not said)


def test_a_sum_without_its_shape_is_told_from_one_that_went_too_far() -> None:
    message = "function F returned an invalid gradient at index 1 - got [] but expected shape compatible with [{}]"
    assert "Give it the shape: .reshape(alpha.shape)." in meaning(message.format("1"), ["x", "alpha"]).sentence
    assert "added up too far" in meaning(message.format("3"), ["x", "alpha"]).sentence


def test_a_return_that_is_missing_is_asked_for() -> None:
    names: dict = {"torch": torch, "Function": Function}
    exec(FORGETS.format(setup="ctx.save_for_backward(inputs[0])", backward="torch.where(x > 0, g, 0)"), names)
    names["LeakyReLU"].forward = staticmethod(lambda x: x.clamp(min=0))
    task = copy(load("relu")["ReLU"])
    task.mistakes = []  # it knows this one by name
    verdict = task.judge("gradient", local(names["LeakyReLU"].apply))
    assert "Does your backward end in a return statement?" in verdict.message
