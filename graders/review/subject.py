"""What is reviewed: a Function, cases for its branches, what its author promises; and how it is found by name."""

import ast
import importlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from graders.review import checklist
from graders.review.questions import QUESTIONS

PASSED, FAILED, ACCEPTED, NOT_ASKED = "passed", "failed", "accepted", "not asked"
VERDICTS = {"passed": PASSED, "FAILED": FAILED, "n/a": NOT_ASKED}
NUMBERS = {int, float, bool, str}


class ReviewError(Exception):
    """Why nothing can be reviewed: one line that says what to do."""


@dataclass(frozen=True)
class Answer:
    """What came out for one item.

    Args:
        item: its name, a key of `QUESTIONS`.
        verdict: `PASSED`, `FAILED`, `NOT_ASKED`, or `ACCEPTED`: it fails, and the author has said why it may.
        text: what was seen, or why it was not asked; "" for nothing to say.
    """

    item: str
    verdict: str
    text: str


class Review:
    """A Function to be reviewed.

    Args:
        function: its ``apply``, or a function that calls it.
        cases: tuples of arguments, or single tensors: float64, with ``requires_grad`` where a gradient is wanted, so
            that each branch is reached by one of them.
        accepted: items that may fail, each with the reason. One that passes nevertheless is a failure, so that the
            list stays true.
        promises: as the checklist has them: ``reference``, ``surrogate``, ``order``, ``dtypes``, ``elementwise``,
            ``broadcasts``, ``vmap``, ``jvp``, ``compiles``, ``skips``, ``keeps``.

    Raises:
        TypeError: `function` is a class.
        ValueError: a case, a promise or an accepted item is not what it has to be.
    """

    def __init__(
        self, function: Callable[..., Any], *cases: Any, accepted: Mapping[str, str] | None = None, **promises: Any
    ) -> None:
        if not cases:
            raise ValueError("give at least one case: a tuple of arguments, or a tensor")
        checklist.prepared(function, cases, promises)  # raises where something is missing
        self.function, self.cases, self.promises = function, cases, promises
        self.accepted = dict(accepted or {})
        if unknown := set(self.accepted) - set(QUESTIONS):
            raise ValueError(f"no item is called {min(unknown)!r}; there are {', '.join(QUESTIONS)}")
        if empty := [item for item, why in self.accepted.items() if not str(why).strip()]:
            raise ValueError(f"say why {empty[0]!r} may fail")

    def answers(self, only: Sequence[str] = ()) -> Iterator[Answer]:
        """Yield each item's answer as soon as it is there; after "runs" has failed there are no more.

        Args:
            only: the items, in this order; (): all.
        """
        for item, verdict, text in checklist.verdicts(self.function, *self.cases, only=tuple(only), **self.promises):
            yield self._judged(item, VERDICTS[verdict], text)

    def _judged(self, item: str, verdict: str, text: str) -> Answer:
        why = self.accepted.get(item)
        if why is None or verdict == NOT_ASKED:
            return Answer(item, verdict, text)
        if verdict == FAILED:
            return Answer(item, ACCEPTED, f"{why} ({text})")
        return Answer(item, FAILED, "passes, though it was accepted as failing: take it out of `accepted`")


@dataclass(frozen=True)
class Subject:
    """What a name on the command line stands for.

    Args:
        name: of the Function or the review.
        review: of it.
        note: what the reader has to know of its cases; "" where they are the author's.
    """

    name: str
    review: Review
    note: str = ""


@dataclass(frozen=True)
class Given:
    """What was given on the command line besides the name: expressions as they were typed, and promises."""

    cases: Sequence[str] = ()
    functions: Mapping[str, str] | None = None  # reference, surrogate
    promises: Mapping[str, Any] | None = None

    def __bool__(self) -> bool:
        return bool(self.cases or self.functions or self.promises)


def dtypes(names: Sequence[str]) -> tuple[torch.dtype, ...]:
    """Return the dtypes of these names, as in ``float32``.

    Raises:
        ReviewError: one is not a floating-point dtype that the checklist can compare.
    """
    known = {str(dtype).removeprefix("torch."): dtype for dtype in checklist.DTYPES}
    for name in names:
        if name not in known:
            raise ReviewError(f"--dtypes {name}: there are {', '.join(known)}")
    return tuple(known[name] for name in names)


def subjects(target: str, given: Given) -> list[Subject]:
    """Return what is to be reviewed.

    Args:
        target: ``package.module:Function``, ``file.py:Function``, or either without a name: all reviews in it.
        given: cases and promises, for a Function that has no `Review` yet.

    Raises:
        ReviewError: it cannot be found or loaded, or cannot be reviewed so.
    """
    place, colon, name = target.rpartition(":") if not target.endswith(".py") else (target, "", "")
    place = place or target
    module = _loaded(place)
    if not colon:
        if found := {key: value for key, value in vars(module).items() if isinstance(value, Review)}:
            _no_more(given, place)
            return [Subject(key, value) for key, value in found.items()]
        functions = [k for k, v in vars(module).items() if _is_function(v) and v.__module__ == module.__name__]
        which = (
            f"name one of its Functions: {place}:{functions[0]}" if functions else "name a Function: MODULE:FUNCTION"
        )
        raise ReviewError(f"{place} has no Review; {which}")
    thing: Any = module
    for part in name.split("."):
        if not hasattr(thing, part):
            raise ReviewError(f"{place} has no {name}")
        thing = getattr(thing, part)
    if isinstance(thing, Review):
        _no_more(given, target)
        return [Subject(name, thing)]
    if not callable(thing) or (isinstance(thing, type) and not _is_function(thing)):
        raise ReviewError(f"{target} is {_kind(thing)}, and has to be a Function, a function or a Review")
    return [_subject(name, thing, module, given)]


def _kind(thing: object) -> str:
    return "another class" if isinstance(thing, type) else f"of type {type(thing).__name__}"


def _no_more(given: Given, target: str) -> None:
    if given:
        raise ReviewError(f"{target} is a Review with cases and promises of its own: change them there")


def _is_function(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, Function) and thing is not Function


def _loaded(place: str) -> ModuleType:
    """Return a module by its name, or by its file's."""
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise ReviewError(f"there is no file {place}")
        sys.path.insert(0, str(path.resolve().parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None  # the name ends in .py
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        load: Callable[[], object] = lambda: spec.loader.exec_module(module)  # type: ignore[union-attr] # noqa: E731
    else:
        sys.path.insert(0, "")
        load = lambda: importlib.import_module(place)  # noqa: E731
    try:
        loaded = load()
    except ModuleNotFoundError as error:
        hint = _hint(place, error.name)
        raise ReviewError(f"{place} cannot be loaded: {error}{hint}") from error
    except ImportError as error:
        relative = "no known parent package" in str(error)
        hint = "; it belongs to a package: write PACKAGE.MODULE:FUNCTION" if relative else ""
        raise ReviewError(f"{place} cannot be loaded: {type(error).__name__}: {error}{hint}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit, of a script, and pytest's Skipped
        raise ReviewError(f"{place} cannot be loaded: {type(error).__name__}: {error}") from error
    return loaded if isinstance(loaded, ModuleType) else module


def _hint(place: str, missing: str | None) -> str:
    """Return what to type instead of a module that there is not; "" if one that it imports is missing."""
    if missing == place.partition(".")[0]:
        return "; to name a file, write FILE.py:FUNCTION"
    parent, _, last = place.rpartition(".")
    return f"; to name a Function, write {parent}:{last}" if parent and missing == place else ""


def _subject(name: str, thing: Callable[..., Any], module: ModuleType, given: Given) -> Subject:
    """Return a Function with the cases that were given, or with some that are guessed."""
    names = {"torch": torch, "F": functional, "math": math, **vars(module)}
    function = thing.apply if _is_function(thing) else thing  # type: ignore[attr-defined]
    promises = dict(given.promises or {})
    promises |= {key: _evaluated(key, text, names) for key, text in (given.functions or {}).items()}
    note = ""
    cases: list[tuple[Any, ...]] = []
    if given.cases:
        torch.manual_seed(0)  # so that the same command says the same
        for text in given.cases:
            case = _evaluated("case", text, names)
            cases.append(tuple(map(_ready, case if isinstance(case, tuple) else (case,))))
    else:
        cases, note = _guessed(name, thing)
    try:
        return Subject(name, Review(function, *cases, **promises), note)
    except (TypeError, ValueError) as error:
        raise ReviewError(f"{name}: {error}") from error


def _evaluated(what: str, text: str, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression that was typed, with torch and the module's own names at hand."""
    try:
        ast.parse(text, mode="eval")
        return eval(text, dict(names))
    except (Exception, SystemExit) as error:
        raise ReviewError(f"--{what} {text!r}: {type(error).__name__}: {error}") from error


def _ready(argument: Any) -> Any:
    """Return an argument as the checklist wants it: float64, and a leaf that requires a gradient."""
    if not (isinstance(argument, Tensor) and argument.is_floating_point()):
        return argument
    return argument.detach().double().requires_grad_()


def _guessed(name: str, thing: Callable[..., Any]) -> tuple[list[tuple[Any, ...]], str]:
    """Return one case, and the sentence that says it was guessed from the parameters of forward."""
    asked = 'give cases, as in --case "torch.randn(2, 3), 0.5"'
    forward = inspect.getattr_static(thing, "forward", None) if _is_function(thing) else thing
    forward = forward.__func__ if isinstance(forward, staticmethod) else forward
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        raise ReviewError(f"{name}: its parameters are unknown: {asked}") from None
    if _is_function(thing) and thing.setup_context is Function.setup_context:  # type: ignore[attr-defined]
        parameters = parameters[1:]  # ctx
    case = []
    for place, parameter in enumerate(p for p in parameters if p.default is p.empty):
        annotated = parameter.annotation in NUMBERS or parameter.annotation in {t.__name__ for t in NUMBERS}
        if annotated or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ReviewError(f"{name}: nobody can guess a value for its parameter {parameter.name}: {asked}")
        case.append(torch.linspace(-1.7, 2.3, 6, dtype=torch.float64).roll(place).reshape(2, 3).requires_grad_())
    if not case:
        raise ReviewError(f"{name}: it has no parameter for a tensor: {asked}")
    shapes = ", ".join(p.name for p in parameters[: len(case)])
    return [tuple(case)], f"The case is guessed: {shapes} of shape (2, 3), from -1.7 to 2.3. Better {asked}."
