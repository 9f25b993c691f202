"""Mistakes, each written as the one thing in which it differs from a right solution.

    wrong = Wrong(task, of=SquareNew)

    @wrong.backward("gradient", "Your gradient is g * x: the factor 2 of the derivative 2x is missing.")
    def factor_missing(x, g):
        return g * x

    wrong.habits("zeros_returned no_function", sign_flipped="The derivative of x * x is 2x, not -2x.")

A habit is a mistake that people make with any Function: it is written once, below, and knows how to spoil a right one.
What fits none of this is a class or a function below ``task.mistake``.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graders.judge import wording
from graders.judge.task import Mistake, Task

Right = type[Any]  # a Function, or a class with ``apply`` whose steps are static methods
Grads = Tensor | None | tuple[Tensor | None, ...]  # what a backward returns
Method = Callable[..., Any]
Backward = Callable[..., Grads]
Forward = Callable[..., Tensor]


class Wrong:
    """Adds mistakes to a task, as changes of one of its right solutions.

    Args:
        task: gets the mistakes.
        of: the right solution, with forward and setup_context apart.
    """

    def __init__(self, task: Task, of: Right) -> None:
        self.task, self.right = task, of

    def forward(self, caught_by: str, message: str) -> Callable[..., Any]:
        """Decorate another forward. Its parameters' names and defaults are what callers meet."""
        return self._decorator(caught_by, message, lambda act: changed(self.right, forward=act))

    def backward(
        self, caught_by: str, message: str, saves: Callable[..., tuple[Any, ...]] | None = None
    ) -> Callable[..., Any]:
        """Decorate another backward: of ``(x, g)``, what is saved and then the upstream gradient.

        With ``ctx`` in front, ``(ctx, x, g)``, it gets that too; ``(ctx, g)`` is a backward as torch calls it.

        Args:
            saves: what is saved in place of the right tensors, of the inputs and the output.
        """

        def spoil(act: Callable[..., Any]) -> Right:
            right = changed(self.right, setup_context=_saving(self.right, saves)) if saves else self.right
            return changed(right, backward=_unpacking(act))

        return self._decorator(caught_by, message, spoil)

    def saves(self, caught_by: str, message: str) -> Callable[..., Any]:
        """Decorate what is saved in place of the right tensors: a tuple, of the inputs and the output."""
        return self._decorator(
            caught_by, message, lambda act: changed(self.right, setup_context=_saving(self.right, act))
        )

    def step(self, name: str, caught_by: str, message: str) -> Callable[..., Any]:
        """Decorate another version of one step of a right solution in steps.

        Args:
            name: the step's: a static method that forward or backward, class methods, call on ``cls``.
        """
        if not hasattr(self.right, name):
            raise AttributeError(f"{self.right.__name__} has no step {name!r}")
        return self._decorator(caught_by, message, lambda act: changed(self.right, **{name: act}))

    def habits(self, names: str = "", caught_by: str = "", **messages: str) -> None:
        """Add what people do wrong with any Function.

        Args:
            names: habits in the words of `HABITS`, separated by spaces.
            caught_by: the check that must catch all of them, where it is another than in `HABITS`.
            messages: habits in the task's own words, by their names.

        Raises:
            KeyError: there is no such habit.
            ValueError: the habit has no message that fits all tasks.
        """
        for name in (*names.split(), *messages):
            habit = HABITS[name]
            message = messages.get(name, habit.message)
            if not message:
                raise ValueError(f"{name} has no message that fits all tasks: pass the task's own by keyword")
            self._add(name, caught_by or habit.caught_by, message, habit.spoil(self.right))

    def usual(self, more: str = "", without: str = "") -> None:
        """Add what people do wrong with any Function, in words that fit all tasks, but for what the task has already.

        For the tasks between the lines of a chapter, which have few mistakes of their own.

        Args:
            more: further habits in the words of `HABITS`, separated by spaces.
            without: habits that this Function cannot have, or that are another mistake's in its case.
        """
        known = {*without.split(), *(mistake.name for mistake in self.task.mistakes)}
        names = [name for name in (*USUAL, *more.split()) if name not in known]
        self.habits(
            " ".join(name for name in names if not USUAL.get(name)),
            **{name: USUAL[name] for name in names if USUAL.get(name)},
        )

    def _decorator(
        self, caught_by: str, message: str, spoil: Callable[[Callable[..., Any]], Right]
    ) -> Callable[..., Any]:
        def add(act: Method) -> Method:
            self._add(act.__name__, caught_by, message, spoil(act).apply)
            return act

        return add

    def _add(self, name: str, caught_by: str, message: str, operation: Callable[..., Any]) -> None:
        self.task.mistakes.append(Mistake(name, caught_by, message, operation))


def changed(right: Right, **methods: Callable[..., Any]) -> Right:
    """Return the Function with these methods in place of its own."""
    return type(right.__name__, (right,), {name: staticmethod(method) for name, method in methods.items()})


def _unpacking(act: Callable[..., Any]) -> Callable[..., Any]:
    """Return the backward that calls `act` with what its parameters leave room for."""
    parameters = list(inspect.signature(act).parameters)
    if parameters[0] != "ctx":
        return lambda ctx, *g: act(*ctx.saved_tensors, *g)
    if len(parameters) == 2:
        return act
    return lambda ctx, *g: act(ctx, *ctx.saved_tensors, *g)


def _saving(right: Right, saves: Callable[..., tuple[Any, ...]]) -> Callable[..., Any]:
    """Return the setup_context that saves other tensors and keeps all else."""

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        def save(*tensors: Tensor) -> None:
            ctx.save_for_backward(*saves(*inputs, output))

        right.setup_context(_Instead(ctx, save_for_backward=save), inputs, output)

    return setup_context


class _Instead:
    """A ctx of which some attributes are others; all that is set goes to the ctx itself."""

    def __init__(self, ctx: object, **others: object) -> None:
        self.__dict__.update(others, _ctx=ctx)

    def __getattr__(self, name: str) -> object:
        return getattr(self._ctx, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._ctx, name, value)


# --- habits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Habit:
    """A mistake that can be made with any Function.

    Args:
        caught_by: the check that must catch it.
        message: what its author hears where the task has no better words; "": the task must have some.
        spoil: makes the wrong operation of a right Function.
    """

    caught_by: str
    message: str
    spoil: Callable[[Right], Callable[..., Any]]


HABITS: dict[str, Habit] = {}


def _habit(caught_by: str, message: str = "") -> Callable[..., Any]:
    """Decorate a habit: from a right Function, the wrong operation."""

    def add(spoil: Callable[[Right], Callable[..., Any]]) -> Callable[..., Any]:
        HABITS[spoil.__name__] = Habit(caught_by, message, spoil)
        return spoil

    return add


def _of_backward(act: Callable[..., Any]) -> Callable[[Right], Callable[..., Any]]:
    """Make a habit of what is done around backward: `act` gets the right one, ctx and the upstream gradient."""

    @wraps(act)
    def spoil(right: Right) -> Any:
        return changed(right, backward=lambda ctx, g: act(right.backward, ctx, g)).apply

    return spoil


def _of_forward(act: Forward) -> Callable[[Right], Method]:
    """Make a habit of what is done around forward: `act` gets the right one and the arguments."""

    @wraps(act)
    def spoil(right: Right) -> Any:
        @wraps(right.forward)  # torch reads the parameters' names and defaults
        def forward(*args: object) -> Tensor:
            return act(right.forward, *args)

        return changed(right, forward=forward).apply

    return spoil


def _each(grads: Grads, change: Callable[[Tensor], Tensor | None]) -> Grads:
    """Change each gradient that is one."""
    if not isinstance(grads, tuple):
        return None if grads is None else change(grads)
    return tuple(None if grad is None else change(grad) for grad in grads)


@_habit("gradient", "Your gradient lacks the upstream gradient: backward returns it times the derivative.")
@_of_backward
def upstream_ignored(backward: Backward, ctx: Any, g: Tensor) -> Grads:
    return backward(ctx, torch.ones_like(g))


@_habit("gradient")
@_of_backward
def upstream_unchanged(backward: Backward, ctx: Any, g: Tensor) -> Grads:
    return tuple(g.clone() if needed else None for needed in ctx.needs_input_grad)


@_habit("gradient", wording.UPSTREAM_SUMMED)
@_of_backward
def upstream_summed(backward: Backward, ctx: Any, g: Tensor) -> Grads:
    return backward(ctx, g.sum().expand_as(g))


@_habit("gradient", wording.UPSTREAM_AVERAGED)
@_of_backward
def upstream_averaged(backward: Backward, ctx: Any, g: Tensor) -> Grads:
    return backward(ctx, (g.mean() if g.numel() else g).expand_as(g))


@_habit("gradient")
@_of_backward
def sign_flipped(backward: Backward, ctx: Any, g: Tensor) -> Grads:
    return _each(backward(ctx, g), torch.neg)


@_habit("gradient", wording.ZEROS_RETURNED)
@_of_backward
def zeros_returned(backward: Backward, ctx: Any, g: Tensor) -> Grads:
    return tuple(torch.zeros_like(g) if needed else None for needed in ctx.needs_input_grad)


@_habit("gradient", wording.NOTHING_RETURNED)
@_of_backward
def nothing_returned(backward: Backward, ctx: Any, g: Tensor) -> Grads:
    return tuple(None for _ in ctx.needs_input_grad)


@_habit("gradient", wording.ONE_TOO_MANY)
@_of_backward
def one_too_many(backward: Backward, ctx: Any, g: Tensor) -> Grads:
    grads = backward(ctx, g)
    return (*grads, g * 0) if isinstance(grads, tuple) else (grads, g * 0)


@_habit("gradient")
@_of_backward
def none_forgotten(backward: Backward, ctx: Any, g: Tensor) -> Grads:
    grads = backward(ctx, g)
    return grads[0] if isinstance(grads, tuple) else grads


@_habit("gradient", wording.VIEW_NEEDED)
@_of_backward
def view_needed(backward: Backward, ctx: Any, g: Tensor) -> Grads:
    return backward(ctx, g.view(-1).view(g.shape))


@_habit("second_order")
@_of_backward
def detached(backward: Backward, ctx: Any, g: Tensor) -> Grads:
    saved = tuple(t if t is None else t.detach() for t in ctx.saved_tensors)
    return backward(_Instead(ctx, saved_tensors=saved), g)


@_habit("second_order", wording.CUT_OFF)
def not_differentiable_twice(right: Right) -> Any:
    return changed(right, backward=once_differentiable(right.backward)).apply


@_habit("contract", wording.WRITES_INTO_UPSTREAM)
@_of_backward
def writes_into_upstream(backward: Backward, ctx: Any, g: Tensor) -> Grads:
    """Imitate ``g.mul_(...)``: of one gradient in the shape of g, where no other is computed after it."""
    return _each(backward(ctx, g.clone()), g.copy_)


@_habit("value", wording.FLOAT32)
@_of_forward
def float32_inside(forward: Forward, *args: Any) -> Tensor:
    return forward(*map(_single, args))


@_habit("value", wording.FLOAT32_AND_BACK)
@_of_forward
def float32_and_back(forward: Forward, *args: Any) -> Tensor:
    return forward(*map(_single, args)).to(args[0].dtype)


def _single(argument: object) -> object:
    return argument.float() if isinstance(argument, Tensor) and argument.is_floating_point() else argument


@_habit("contract")
@_of_forward
def writes_into_input(forward: Forward, x: Tensor, *rest: Any) -> Tensor:
    """Imitate ``x.mul_(...)``: of an output in the shape of x."""
    return x.copy_(forward(x.clone(), *rest))


@_habit("contract", wording.KEPT_AS_ATTRIBUTE)
def kept_as_attribute(right: Right) -> Any:
    """Keep what is to be saved as an attribute of ctx."""

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        def save(*tensors: Tensor) -> None:
            ctx.kept = tensors

        right.setup_context(_Instead(ctx, save_for_backward=save), inputs, output)

    def backward(ctx: Any, g: Tensor) -> Any:
        return right.backward(_Instead(ctx, saved_tensors=ctx.kept), g)

    return changed(right, setup_context=setup_context, backward=backward).apply


@_habit("contract", wording.KEPT_OUTSIDE)
def kept_outside_ctx(right: Right) -> Any:
    """Keep all that belongs on ctx, numbers too, in one place for all calls."""
    outside = _Outside()
    return changed(
        right,
        setup_context=lambda ctx, inputs, output: right.setup_context(outside, inputs, output),
        backward=lambda ctx, g: right.backward(outside, g),
    ).apply


class _Outside:
    """What stands in for every ctx; its other attributes are those that setup_context sets."""

    def save_for_backward(self, *tensors: Tensor) -> None:
        self.saved_tensors = tensors


@_habit("gradient")
def autograd_in_backward(right: Right) -> Any:
    """Let torch differentiate forward: of floating tensors, and arguments that are no tensors."""

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.others = [None if isinstance(a, Tensor) else a for a in inputs]
        ctx.save_for_backward(*(a if isinstance(a, Tensor) else None for a in inputs))

    def backward(ctx: Any, g: Tensor) -> Grads:
        saved = ctx.saved_tensors
        with torch.enable_grad():
            own = [t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in saved if t is not None]
            copies = iter(own)
            args = [other if t is None else next(copies) for t, other in zip(saved, ctx.others, strict=True)]
            grads = iter(torch.autograd.grad(right.forward(*args), own, g, create_graph=True))
        return tuple(None if t is None else next(grads) for t in saved)

    return changed(right, setup_context=setup_context, backward=backward).apply


@_habit("gradient", wording.NO_FUNCTION)
def no_function(right: Right) -> Any:
    return right.forward


USUAL = {  # habits of those who write their first Functions; "": as HABITS has it
    "upstream_ignored": "",
    "upstream_summed": "",
    "sign_flipped": "Your gradient has the wrong sign everywhere: it is minus what it should be.",
    "zeros_returned": "",
    "nothing_returned": "Your backward returns None (is a return statement missing?): nothing gets a gradient at all.",
    "not_differentiable_twice": "",
    "float32_inside": "",
    "float32_and_back": "",
}
