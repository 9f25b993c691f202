"""Whether an answer has the form that a `Responder` gives it, whoever sent it.

`wire.decode` takes care that a message is a tree of plain data. Here each field is held against what was asked:
the checks, and torch's gradcheck, may then take types, lengths, shapes and dtypes for granted. The numbers may be any.
"""

import re
from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

from torch import Tensor

from graders.inside.records import SETTINGS, Case, Failure, Helper, Record
from graders.inside.wire import Message, WireError, inexact

STAGES = (
    "exists",
    "forward",
    "setup_context",
    "backward",
    "second backward",
    "second order",
    "gradcheck",
    "result",
    "call",
)
MAX_TEXT = 2000  # characters
MAX_ITEMS = 1000  # outputs, operators, ...
MAX_DERIVED = 1 << 16  # numbers in an answer to gradcheck, which asks of small tensors alone
PLACE = re.compile(r"argument (\d{1,3})( \.(grad|requires_grad|version|_backward_hooks))?")

Rule = Callable[[object], bool]
Asked = list[Tensor]  # what gradients belong to
T = TypeVar("T")


def answered(message: Message, answer: object) -> Message:
    """Return the answer, if it is one to this message.

    Args:
        message: what an `Operation` asked.
        answer: what came back.

    Raises:
        WireError: it has another form.
    """
    if type(answer) is not dict:
        raise WireError("the form of the answer cannot be right")
    if message["do"] == "all":
        (answers,) = _parts(answer, "answers")
        pairs = _pairs(message["messages"], answers, "the number of answers")
        return {"answers": [answered(m, a) for m, a in pairs]}
    if message["do"] == "observe":
        (records,) = _parts(answer, "records")
        return {"records": valid(records, message["cases"])}
    if tuple(answer) == ("failure",):
        _demand(_failure(answer["failure"]), "the failure")
    elif message["do"] in ("lend", "hold"):
        _demand(_parts(answer, "held") == (True,), "the answer")
    elif message["do"] == "release":
        (found,) = _parts(answer, "elements")
        for (_, indices), elements in _pairs(message["elements"], found, "the number of gradients"):
            right = elements is None or (isinstance(elements, Tensor) and elements.shape == indices.shape)
            _demand(right, "the shape of a gradient")
    elif message["do"] == "call":
        (value,) = _parts(answer, "value")
        _demand(_plain(value), "the value")
    else:
        _derived(message, *_parts(answer, "results", "differentiable"))
    return answer


def valid(records: object, cases: list[Case]) -> list[Record]:
    """Return the records, if they can be what was seen of these cases.

    Raises:
        WireError: they cannot.
    """
    return [_record(record, case) for case, record in _pairs(cases, records, "the number of records")]


def _demand(right: bool, what: str) -> None:
    if not right:
        raise WireError(f"{what} cannot be right")


def _parts(answer: Message, *names: str) -> tuple[object, ...]:
    _demand(tuple(answer) == names, "the parts of the answer")
    return tuple(answer.values())


def _pairs(asked: list[T], found: object, what: str) -> list[tuple[T, object]]:
    """Return each thing that was asked for with what came for it."""
    if type(found) is not list or len(found) != len(asked):
        raise WireError(f"{what} cannot be right")
    return list(zip(asked, found, strict=True))


def _failure(value: object) -> bool:
    return (
        type(value) is Failure and all(map(_text, (value.stage, value.kind, value.message))) and value.stage in STAGES
    )


def _plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(map(_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | str | Tensor)


def _derived(message: Message, results: object, flags: object) -> None:
    if type(results) is not list or not 0 < len(results) <= MAX_ITEMS:
        raise WireError("the number of results cannot be right")
    _demand(all(r is None or _dense(r) for r in results), "a result")
    _demand(sum(r.numel() for r in results if r is not None) <= MAX_DERIVED, "the size of the results")
    for result, flag in _pairs(results, flags, "what is differentiable"):
        _demand(_flag(flag) and not (flag and result is None), "what is differentiable")
    if not message["upstreams"]:
        _demand(all(r is not None for r in results), "a result")
        return
    *lower, _ = message["upstreams"]
    variables = [*message["inputs"], *(u for level in lower for u in level)]
    _demand(len(results) == len(variables), "the number of gradients")
    for result, variable in zip(results, variables, strict=True):
        _demand(result is None or (variable is not None and _alike(result, variable)), "the shape of a gradient")


def _text(value: object) -> bool:
    return type(value) is str and len(value) <= MAX_TEXT


def _flag(value: object) -> bool:
    return type(value) is bool


def _count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _number(value: object) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 1 << 63)


def _dense(value: object) -> bool:
    return isinstance(value, Tensor)


def _alike(value: object, tensor: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == tensor.shape and value.dtype == tensor.dtype


def _all(rule: Rule, most: int = MAX_ITEMS) -> Rule:
    return lambda value: type(value) is tuple and len(value) <= most and all(map(rule, value))


def _pair(first: Rule, second: Rule) -> Rule:
    return lambda value: type(value) is tuple and len(value) == 2 and first(value[0]) and second(value[1])


def _asked(case: Case) -> Asked:
    """Return the tensors whose gradients a record holds, in its order: those of arguments, then those of helpers."""
    flags = case.requires_grad or (False,) * len(case.args)
    own = [a for a, r in zip(case.args, flags, strict=True) if r and isinstance(a, Tensor)]
    helpers = [a for a in case.args if isinstance(a, Helper) and a.requires_grad]
    held = [zip(h.args, h.requires_grad, strict=True) for h in helpers if h.args is not None]
    return own + [a for pairs in held for a, r in pairs if r and isinstance(a, Tensor)]


def _gradients(asked: Asked) -> Rule:
    return lambda value: (
        type(value) is tuple
        and len(value) == len(asked)
        and all(v is None or _alike(v, a) for v, a in zip(value, asked, strict=True))
    )


def _second(case: Case, asked: Asked) -> Rule:
    def second(value: object) -> bool:
        if type(value) is not tuple or len(value) != len(asked) + 1 or not isinstance(case.upstream, Tensor):
            return False
        *first, last = value
        fits = last is None or (isinstance(last, Tensor) and last.shape == case.upstream.shape)
        return _gradients(asked)(tuple(first)) and fits

    return second


def _place(case: Case) -> Rule:
    """Return the rule for the name of something that a case can change."""

    def place(value: object) -> bool:
        if not isinstance(value, str) or not _text(value):
            return False
        if found := PLACE.fullmatch(value):
            return int(found[1]) < len(case.args)
        return value in ("the output", "the output .version", "the upstream gradient", *SETTINGS)

    return place


def _or_none(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


def _all_gradients(case: Case) -> Rule:
    return _or_none(_gradients(_asked(case)))


def _always(rule: Rule) -> Callable[[Case], Rule]:
    return lambda case: rule


RULES: dict[str, Callable[[Case], Rule]] = {  # what each field of a record of a case has to be
    "failure": _always(_or_none(_failure)),
    "kind": _always(_text),
    "outputs": _always(_all(_dense)),
    "numbers": _always(_all(_number)),
    "differentiable": _always(_all(_flag)),
    "function": _always(_flag),
    "custom": _always(_flag),
    "grads": _all_gradients,
    "second": lambda case: _or_none(_second(case, _asked(case))),
    "changed": lambda case: _all(_place(case)),
    "shares_memory": _always(_flag),
    "sibling": _always(_or_none(_dense)),
    "interleaved": _all_gradients,
    "repeated": _all_gradients,
    "overwritten": lambda case: _all(_pair(_place(case), _all_gradients(case))),
    "kept_bytes": _always(_count),
    "kept_arguments": lambda case: _all(lambda value: type(value) is int and 0 <= value < len(case.args)),
    "denied": _always(_all(_text)),
    "nested": _always(_flag),
    "tally": _always(_all(_pair(_text, _count))),
    "drawn": _always(lambda value: type(value) is float),
    "largest": _always(_all(_count, 2)),
    "peak": _always(_all(_count, 2)),
}
DEFAULTS = [(f.name, f.default) for f in fields(Record)]


def _record(record: object, case: Case) -> Record:
    """Return the record, if each field keeps its rule and they agree with each other."""
    if type(record) is not Record:
        raise WireError("a record cannot be right")
    for name, default in DEFAULTS:  # a field without a rule is an error at once
        rule, value = RULES[name], getattr(record, name)
        _demand(value is default or rule(case)(value), f"{name} of a record")
    _demand(not (record.outputs and record.numbers), "outputs and numbers of a record")
    _demand(len(record.differentiable) in (0, len(record.outputs)), "differentiable of a record")
    if record.kind == "Tensor" and record.failure is None:
        _demand(len(record.outputs) == len(record.differentiable) == 1, "outputs of a record")
    if record.sibling is not None:
        _demand(case.upstream is not None and inexact(record.sibling), "sibling of a record")
    return record
