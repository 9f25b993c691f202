"""Every task has cases that are no even mixture: who decides by a whole tensor what to do with its elements is seen.

Each right solution is spoiled in one class of cases only: where an argument's sum has one sign, where it is all zeros,
of one sign, or one number against all others, or where a number is negative and the others are large. Some check of
the task has to refuse that, for the value, for the gradient, and for the gradient's gradient.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from graders.inside.operation import local
from graders.inside.wire import inexact
from graders.judge.task import Task
from graders.sets import module, names

Arguments = tuple[Any, ...]
Class = Callable[[Arguments], bool]
LARGE = 20.0
_ABOVE_0 = {
    f"argument 1: {shape}": "scale is above 0, says the text"
    for shape in (
        "a negative sum",
        "zeros",
        "only negative numbers",
        "a large positive number, and",
        "a large negative number, and",
    )
}
# What cannot be asked of a task, by its name: an argument (or a class of one, or an order), and the reason.
NOT_ASKED: dict[str, dict[str, str]] = {
    "LeakyReLU": {"zeros, order 2": "which slope holds at exactly 0 is asked once, of the gradient"},
    "ClippedReLU": {"number 0: negative": "the clip is above 0, says the text"},
    "PACT": {
        f"argument 1: {shape}": reason
        for shape, reason in (
            ("a negative sum", "alpha is above 0, says the text"),
            ("zeros", "alpha is above 0, says the text"),
            ("only negative numbers", "alpha is above 0, says the text"),
            ("a large positive number, and", "alpha is one number, so none stands against others"),
            ("a large negative number, and", "alpha is one number, so none stands against others"),
        )
    },
    "clip_by_norm": {"number 0: negative": "tau is above 0, says the text"},
    "Legendre": {"number 0: negative": "the degree is 0 or more, says the text"},
    "fit_sine": {
        "number 0: negative": "steps is 1 or more, says the text, and there is no tensor to hold large inputs",
        "number 1: negative": "there is no tensor to hold large inputs, so the mutant is no other function",
    },
    "hvp": {"order 1": "the text leaves open whether the result carries a graph, so it is not differentiated"},
    "StreamedSoftmax": {"number 0: negative": "size is 1 or more, says the text"},
    "FakeQuantize": _ABOVE_0,
    "FakeQuantizePerChannel": {**_ABOVE_0, "number 0: negative": "axis is 0 or more, says the text"},
    "LSQ": _ABOVE_0,
    "Kepler": {
        f"argument 1: {shape}": "e is 0 or more and below 1, says the text"
        for shape in (
            "a negative sum",
            "only negative numbers",
            "a large positive number, and",
            "a large negative number, and",
        )
    },
    "RowNorm": {"zeros, order 2": "there is no second derivative by x, so its direction is 0 there"},
    "Normalize": {"number 0: negative": "eps is above 0, says the text"},
    "saved_bytes": dict.fromkeys(
        ("argument", "number"), "a Python int is returned, which the mutant leaves alone, so it is no other function"
    ),
    "checkpoint": {"argument 0": "what the mutant sees first is the solution's own anchor, which is always empty"},
    "tiled_attention": {
        "order 1": "forward alone is asked: no input requires a gradient",
        "number 0: negative": "block is 1 or more, says the text",
    },
    "FlashAttention": {
        "number 0: negative": "block_q is 1 or more, says the text",
        "number 1: negative": "block_k is 1 or more, says the text",
    },
}


def floating(args: Arguments) -> list[Tensor]:
    """The arguments that have gradients, by themselves or as what a callable's caller passes on."""
    return [a for a in args if isinstance(a, Tensor) and inexact(a)]


def real(a: Tensor) -> Tensor:
    """The numbers of a tensor; of a complex one both parts of each."""
    return torch.view_as_real(a.detach().cdouble()) if a.is_complex() else a.detach().double()


def numbers(args: Arguments) -> list[float]:
    return [a for a in args if isinstance(a, float | int) and not isinstance(a, bool)]


SHAPES: dict[str, Callable[[Tensor], object]] = {
    "a positive sum": lambda a: a.sum() > 0,
    "a negative sum": lambda a: a.sum() < 0,
    "zeros": lambda a: not a.any(),
    "only positive numbers": lambda a: (a > 0).all(),
    "only negative numbers": lambda a: (a < 0).all(),
    "a large positive number, and a negative sum": lambda a: a.max() > LARGE and a.sum() < 0,
    "a large negative number, and a positive sum": lambda a: a.min() < -LARGE and a.sum() > 0,
}


def classes(task: Task) -> Iterator[tuple[str, Class]]:
    """The classes of cases of a task, by the arguments that its cases have."""
    cases = [case for check in task.checks for case in task._expected(check, 0)[0]]

    def of(place: int, shape: Callable[[Tensor], object]) -> Class:
        return lambda args: (
            len(floating(args)) > place
            and floating(args)[place].numel() > 0
            and bool(shape(real(floating(args)[place])))
        )

    def negative(place: int) -> Class:
        return lambda args: (
            len(numbers(args)) > place
            and numbers(args)[place] < 0
            and any(a.numel() and a.abs().max() > LARGE for a in floating(args))
        )

    for place in range(max(len(floating(case.args)) for case in cases)):
        yield from ((f"argument {place}: {name}", of(place, shape)) for name, shape in SHAPES.items())
    for place in range(max(len(numbers(case.args)) for case in cases)):
        yield f"number {place}: negative, and large inputs", negative(place)


def spoiled(operation: Callable[..., Any], order: int, odd: Class) -> Callable[..., Any]:
    """The operation, wrong in a class of cases: half as much again of its value, gradient or gradient's gradient."""
    right = getattr(operation, "__self__", None)
    if not (isinstance(right, type) and issubclass(right, torch.autograd.Function)):
        return _function(operation, order, odd)
    newer = right.setup_context is not torch.autograd.Function.setup_context

    class Spoiled(right):  # type: ignore[misc, valid-type]
        @staticmethod
        def forward(*given: Any) -> Any:
            args = given if newer else given[1:]
            if not newer:
                given[0].odd = odd(args)
            result = right.forward(*given)
            return _more(result) if order == 0 and odd(args) else result

        @staticmethod
        def backward(ctx: Any, *upstream: Tensor) -> Any:
            grads = right.backward(ctx, *upstream)
            return _wrong(grads, order, upstream) if order and ctx.odd else grads

    Spoiled.forward.__signature__ = inspect.signature(right.forward)  # type: ignore[attr-defined]
    if newer:

        def setup_context(ctx: Any, inputs: Arguments, output: Any) -> None:
            ctx.odd = odd(inputs)
            right.setup_context(ctx, inputs, output)

        Spoiled.setup_context = staticmethod(setup_context)
    return Spoiled.apply


def _function(operation: Callable[..., Any], order: int, odd: Class) -> Callable[..., Any]:
    def act(*args: Any, **keywords: Any) -> Any:
        result = operation(*args, **keywords)
        if not odd((*args, *keywords.values())) or not isinstance(result, Tensor):
            return result
        return _more(result) if order == 0 else result.detach() + 1.5 * (result - result.detach())

    act.__signature__ = inspect.signature(operation)  # type: ignore[attr-defined]
    return act


def _more(result: Any) -> Any:
    return 1.5 * result + 1 if isinstance(result, Tensor) else tuple(map(_more, result))


def _wrong(grads: Any, order: int, upstream: Arguments) -> Any:
    if isinstance(grads, tuple):
        return tuple(_wrong(grad, order, upstream) for grad in grads)
    if grads is None or order == 1:
        return None if grads is None else 1.5 * grads + 1
    total = sum(g.sum() for g in upstream if isinstance(g, Tensor))
    return grads + total - total.detach()  # of which only the derivative differs


def survivors(task: Task) -> list[str]:
    """The classes in which nothing sees that a right solution was spoiled."""
    operation = next(iter(task.solutions.values()))
    twice = any(case.directions is not None for check in task.checks for case in task._expected(check, 0)[0])
    found = []
    for name, odd in classes(task):
        for order in range(3 if twice else 2):
            wrong = local(spoiled(operation, order, odd))
            if not any(task.find(check, wrong, 0) for check in task.checks):
                found.append(f"{name}, order {order}")
    return found


TASKS = [task for name in names() for task in module(name).TASKS if isinstance(task, Task)]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_has_cases_that_are_no_even_mixture(task):
    left = [name for name in survivors(task) if not any(known in name for known in NOT_ASKED.get(task.name, {}))]
    assert not left, "\n".join(left)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_what_is_not_asked_is_not_seen(task):
    """An exception that is none any more has to go."""
    left = survivors(task) if task.name in NOT_ASKED else []
    assert all(any(known in name for name in left) for known in NOT_ASKED.get(task.name, {}))
