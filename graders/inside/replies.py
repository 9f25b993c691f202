"""Whether an answer has the form that a `Responder` gives it, whoever sent it.

`wire.decode` takes care that a message is a tree of plain data. Here each field is held against what was asked:
the checks, and torch's gradcheck, may then take types, lengths, shapes and dtypes for granted. The numbers may be any.
"""

import re
from collections.abc import Callable

from torch import Tensor

from graders.inside.records import SETTINGS, Case, Failure, Helper, Record
from graders.inside.wire import WireError

STAGES = ("exists", "forward", "backward", "second backward", "second order", "gradcheck", "result", "call")
MAX_TEXT = 2000  # characters
MAX_ITEMS = 1000  # outputs, operators, ...
MAX_DERIVED = 1 << 16  # numbers in an answer to gradcheck, which asks of small tensors alone
PLACE = re.compile(r"argument (\d{1,3})( \.(grad|requires_grad|_backward_hooks))?")

Asked = list[Tensor]  # what gradients belong to


def answered(message: dict, answer: object) -> dict:
    """The answer, if it is one to this message.

    Args:
        message: what an `Operation` asked.
        answer: what came back.

    Raises:
        WireError: it has another form.
    """
    if message["do"] == "all":
        (answers,) = _parts(answer, "answers")
        _demand(type(answers) is list and len(answers) == len(message["messages"]), "the number of answers")
        return {"answers": [answered(m, a) for m, a in zip(message["messages"], answers, strict=True)]}
    if message["do"] == "observe":
        (records,) = _parts(answer, "records")
        return {"records": valid(records, message["cases"])}
    return (_called if message["do"] == "call" else _derived)(message, answer)


def valid(records: object, cases: list[Case]) -> list[Record]:
    """The records, if they can be what was seen of these cases.

    Raises:
        WireError: they cannot.
    """
    _demand(type(records) is list and len(records) == len(cases), "the number of records")
    for record, case in zip(records, cases, strict=True):
        _record(record, case)
    return records


def _demand(right: bool, what: str) -> None:
    if not right:
        raise WireError(f"{what} cannot be right")


def _parts(answer: object, *names: str) -> tuple:
    _demand(type(answer) is dict and tuple(answer) == names, "the parts of the answer")
    return tuple(answer.values())


def _failure(failure: object) -> None:
    _demand(type(failure) is Failure, "the failure")
    _demand(all(map(_text, (failure.stage, failure.kind, failure.message))), "the text of the failure")
    _demand(failure.stage in STAGES, "the stage of the failure")


def _plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(map(_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | str | Tensor)


def _called(message: dict, answer: object) -> dict:
    if type(answer) is dict and tuple(answer) == ("failure",):
        _failure(answer["failure"])
        return answer
    (value,) = _parts(answer, "value")
    _demand(_plain(value), "the value")
    return answer


def _derived(message: dict, answer: object) -> dict:
    if type(answer) is dict and tuple(answer) == ("failure",):
        _failure(answer["failure"])
        return answer
    results, flags = _parts(answer, "results", "differentiable")
    _demand(type(results) is list and 0 < len(results) <= MAX_ITEMS, "the number of results")
    _demand(all(r is None or _dense(r) for r in results), "a result")
    _demand(sum(r.numel() for r in results if r is not None) <= MAX_DERIVED, "the size of the results")
    _demand(type(flags) is list and len(flags) == len(results) and all(map(_flag, flags)), "what is differentiable")
    _demand(not any(f and r is None for r, f in zip(results, flags, strict=True)), "what is differentiable")
    if not message["upstreams"]:
        _demand(all(r is not None for r in results), "a result")
        return answer
    *lower, _ = message["upstreams"]
    variables = [*message["inputs"], *(u for level in lower for u in level)]
    _demand(len(results) == len(variables), "the number of gradients")
    for result, variable in zip(results, variables, strict=True):
        _demand(result is None or (variable is not None and _alike(result, variable)), "the shape of a gradient")
    return answer


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
    return _dense(value) and value.shape == tensor.shape and value.dtype == tensor.dtype


def _all(rule: Callable[[object], bool], most: int = MAX_ITEMS) -> Callable[[object], bool]:
    return lambda value: type(value) is tuple and len(value) <= most and all(map(rule, value))


def _pair(first: Callable[[object], bool], second: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: type(value) is tuple and len(value) == 2 and first(value[0]) and second(value[1])


def _asked(case: Case) -> Asked:
    """The tensors whose gradients a record holds, in its order: arguments, then those of helpers."""
    flags = case.requires_grad or (False,) * len(case.args)
    own = [a for a, r in zip(case.args, flags, strict=True) if r and isinstance(a, Tensor)]
    helpers = [a for a in case.args if isinstance(a, Helper) and a.args is not None]
    held = [zip(h.args, h.requires_grad, strict=True) for h in helpers if h.requires_grad]
    return own + [a for pairs in held for a, r in pairs if r and isinstance(a, Tensor)]


def _gradients(asked: Asked) -> Callable[[object], bool]:
    return lambda value: (
        type(value) is tuple
        and len(value) == len(asked)
        and all(v is None or _alike(v, a) for v, a in zip(value, asked, strict=True))
    )


def _second(case: Case, asked: Asked) -> Callable[[object], bool]:
    def second(value: object) -> bool:
        if type(value) is not tuple or len(value) != len(asked) + 1 or not isinstance(case.upstream, Tensor):
            return False
        last = value[-1]
        return _gradients(asked)(value[:-1]) and (last is None or (_dense(last) and last.shape == case.upstream.shape))

    return second


def _place(case: Case) -> Callable[[object], bool]:
    """The name of something that a case can change."""

    def place(value: object) -> bool:
        found = PLACE.fullmatch(value) if _text(value) else None
        if found:
            return int(found[1]) < len(case.args)
        return _text(value) and value in ("the output", "the upstream gradient", *SETTINGS)

    return place


def _or_none(rule: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or rule(value)


def _record(record: object, case: Case) -> None:
    """Each field by its rule, in the order of the dataclass; then what they say together."""
    _demand(type(record) is Record, "a record")
    if record.failure is not None:
        _failure(record.failure)
    asked = _asked(case)
    rules = {
        "kind": _text,
        "outputs": _all(_dense),
        "numbers": _all(_number),
        "differentiable": _all(_flag),
        "function": _flag,
        "custom": _flag,
        "grads": _or_none(_gradients(asked)),
        "second": _or_none(_second(case, asked)),
        "changed": _all(_place(case)),
        "shares_memory": _flag,
        "sibling": _or_none(_dense),
        "interleaved": _or_none(_gradients(asked)),
        "repeated": _or_none(_gradients(asked)),
        "overwritten": _all(_pair(_place(case), _or_none(_gradients(asked)))),
        "kept_bytes": _count,
        "kept_arguments": _all(lambda value: _count(value) and value < len(case.args)),
        "denied": _all(_text),
        "nested": _flag,
        "tally": _all(_pair(_text, _count)),
        "drawn": lambda value: type(value) is float,
        "largest": _all(_count, 2),
        "peak": _all(_count, 2),
    }
    for name, rule in rules.items():
        _demand(rule(getattr(record, name)), f"{name} of a record")
    _demand(not (record.outputs and record.numbers), "outputs and numbers of a record")
    _demand(len(record.differentiable) in (0, len(record.outputs)), "differentiable of a record")
    if record.kind == "Tensor" and record.failure is None:
        _demand(len(record.outputs) == len(record.differentiable) == 1, "outputs of a record")
    if record.sibling is not None:
        _demand(case.upstream is not None and record.sibling.is_floating_point(), "sibling of a record")
