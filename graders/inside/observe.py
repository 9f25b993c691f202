"""Runs cases on an operation and writes down what happened. Runs where the student's code runs; judges nothing."""

import gc
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial, reduce
from importlib import import_module
from traceback import walk_tb
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from graders.inside import helpers
from graders.inside.memory import Trace
from graders.inside.pristine import ended_modes, pristine, settings
from graders.inside.records import Case, Failure, Gradients, Helper, Record
from graders.inside.wire import DTYPES, copy_of, inexact

STUDENT_ERRORS = (Exception, SystemExit)
STRUCTURAL = re.compile(
    r"(torch::autograd::)?(AccumulateGrad|(Alias|Clone|Contiguous|Expand|Permute|Reshape|ReshapeAlias|Select|Slice|Squeeze|Sum"
    r"|T|ToCopy|Transpose|Unsqueeze|UnsafeView|View)Backward\d*)"
)


class _Stop(Exception):
    """The rest of a case cannot be observed."""


def told(stage: str, error: BaseException) -> Failure:
    """Return an exception as data; its text may be anything, or raise itself."""
    try:
        text = str(error)
    except STUDENT_ERRORS:
        text = ""
    return Failure(stage, type(error).__name__, text[:2000].encode("utf-8", "replace").decode())


def resolve(get: Callable[[], Callable[..., object]]) -> Callable[..., object] | Failure:
    """Look up the student's operation now; return a Failure for a missing name, raise nothing."""
    try:
        return get()
    except STUDENT_ERRORS as error:
        return told("exists", error)


def observe(operation: Callable[..., object] | Failure, case: Case) -> Record:
    """Run one case. Whatever the operation raises ends in the record."""
    record = Record()
    if isinstance(operation, Failure):
        record.failure = operation
        return record
    try:
        with pristine(), _provided(operation, case), _disabled(case):
            if case.refuse == "autograd":
                _bare(operation, case, record)
                return record
            _first_order(operation, case, record)
            for name in case.watch if record.kind == "Tensor" else ():
                {"state": _state, "overwrite": _overwrite, "trace": _trace}[name](operation, case, record)
            if case.directions is not None:
                _second_order(operation, case, case.directions, record)
    except _Stop:
        pass
    except STUDENT_ERRORS as error:  # what was returned cannot even be looked at
        record.failure = record.failure or told("result", error)
    return record


def _scope(operation: Callable[..., object]) -> dict[str, object]:
    """Return the names of the module that the operation's code stands in, under decorators too."""
    while isinstance(operation, partial):
        operation = operation.func
    owner = getattr(operation, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        operation = owner.forward
    names: dict[str, object] = inspect.unwrap(operation).__globals__
    return names


@contextmanager
def _provided(operation: Callable[..., object], case: Case) -> Iterator[None]:
    """Put the helpers that the case provides in the place of the same names in the operation's module."""
    if not case.provide:
        yield
        return
    scope = _scope(operation)
    kept = {name: scope[name] for name in case.provide if name in scope}
    scope.update({name: getattr(helpers, name) for name in case.provide})
    try:
        yield
    finally:
        for name in case.provide:
            scope.pop(name, None)
        scope.update(kept)


def _refuse(*args: object, **keywords: object) -> None:
    raise RuntimeError("this function may not be used here")


def _in_python(function: Callable[..., object]) -> FunctionType:
    """Return the function, which has to be one that is written in Python."""
    if not isinstance(function, FunctionType):
        raise TypeError(f"{function} has no code of Python's")
    return function


@contextmanager
def _replaced(replaced: Callable[..., object], other: Callable[..., object]) -> Iterator[None]:
    """Make calls of `replaced` run `other`, under whatever name it was imported before. `other` has no free names."""
    function = _in_python(replaced)
    kept = function.__code__, function.__defaults__, function.__kwdefaults__
    function.__code__, function.__defaults__, function.__kwdefaults__ = _in_python(other).__code__, None, None
    try:
        yield
    finally:
        function.__code__, function.__defaults__, function.__kwdefaults__ = kept


@contextmanager
def _disabled(case: Case) -> Iterator[None]:
    """Make the Python functions that a case denies raise."""
    with ExitStack() as stack:
        for name in case.deny:
            if "::" not in name:
                module, _, function = name.rpartition(".")
                stack.enter_context(_replaced(getattr(import_module(module), function), _refuse))
        yield


@contextmanager
def _stage(name: str, record: Record) -> Iterator[None]:
    try:
        with ended_modes() as left:
            yield
    except STUDENT_ERRORS as error:
        if record.failure is None:
            record.failure = told(_part(name), error)
        raise _Stop from None
    _note(record, left)


def _part(stage: str) -> str:
    """Return the part of the call in which the present exception was raised: torch runs setup_context after forward."""
    frames = (frame.f_code.co_name for frame, _ in walk_tb(sys.exc_info()[2]))
    return "setup_context" if stage == "forward" and "setup_context" in frames else stage


def _note(record: Record, changed: list[str]) -> None:
    """Add to what was changed, each once."""
    record.changed = tuple(dict.fromkeys([*record.changed, *changed]))


class Handed(NamedTuple):
    """A tensor of a call's.

    Args:
        position: its argument's.
        was: as it was sent.
        now: as it was made for the call.
        required: whether it requires a gradient.
        version: how often it had been changed in place.
    """

    position: int
    was: Tensor
    now: Tensor
    required: bool
    version: int


Given = list[Handed]


def _handed(position: int, value: Tensor, required: bool) -> Handed:
    made = leaf(value, required)
    return Handed(position, value, made, required, made._version)


def leaf(tensor: Tensor, requires_grad: bool) -> Tensor:
    """Return a tensor of its own for one call, with or without a gradient to come."""
    return copy_of(tensor).requires_grad_(requires_grad)


def fresh(value: object) -> object:
    """Return an argument of its own for one call; tensors in it require no gradient."""
    if isinstance(value, Helper):
        return _made(value, 0, [])
    if isinstance(value, tuple):
        return tuple(fresh(v) for v in value)
    return copy_of(value) if isinstance(value, Tensor) else value


def _made(helper: Helper, position: int, given: Given) -> object:
    """Return the argument that a helper makes; add the tensors that it holds to `given`."""
    function = getattr(helpers, helper.name)
    if helper.args is None:
        return function
    parts: list[object] = []
    for value, required in zip(helper.args, helper.requires_grad or (False,) * len(helper.args), strict=True):
        if isinstance(value, Tensor):
            given.append(_handed(position, value, required))
            parts.append(given[-1].now)
        else:
            parts.append(fresh(value))
    return function(*parts)


def _arguments(case: Case) -> tuple[list[object], list[Tensor], Given]:
    """Return fresh arguments, those tensors that require a gradient (helpers' last), and all tensors."""
    args: list[object] = []
    own: Given = []
    held: Given = []
    for i, (value, required) in enumerate(zip(case.args, case.requires_grad or (False,) * len(case.args), strict=True)):
        if isinstance(value, Tensor):
            own.append(_handed(i, value, required))
            args.append(own[-1].now)
        else:
            args.append(_made(value, i, held) if isinstance(value, Helper) else fresh(value))
    given = own + held
    return args, [one.now for one in given if one.required], given


WITHIN: dict[
    str, tuple[str, Callable[[], AbstractContextManager[object]]]
] = {  # what a case may say: the pass, and around it
    "": ("", nullcontext),
    "autocast": ("forward", partial(torch.autocast, "cpu", torch.bfloat16)),
    "autocast in float16": ("forward", partial(torch.autocast, "cpu", torch.float16)),
    "autocast around backward": ("backward", partial(torch.autocast, "cpu", torch.bfloat16)),
    "no_grad": ("forward", torch.no_grad),
}


def surroundings(case: Case, stage: str = "forward") -> AbstractContextManager[object]:
    """Return what the forward, or the backward, of a case runs within."""
    where, around = WITHIN[case.within]
    return around() if where == stage else nullcontext()


SEED = 20  # of torch's random stream, before each forward


def _call(operation: Callable[..., object], case: Case, args: list[object]) -> object:
    split = len(args) - len(case.keywords)
    torch.default_generator.manual_seed(SEED)
    torch.rand(3)  # the stream is somewhere, not at the start that its seed names
    with surroundings(case):
        return operation(*args[:split], **dict(zip(case.keywords, args[split:], strict=True)))


def _forward(operation: Callable[..., object], case: Case, args: list[object], record: Record) -> object:
    with _stage("forward", record):
        result = _call(operation, case, args)
        if isinstance(result, Tensor) and type(result) is not Tensor:
            return result.as_subclass(Tensor)  # a subclass may bend what is asked of it
        return result


def _again(operation: Callable[..., object], case: Case, args: list[object], record: Record) -> Tensor:
    """Run the forward once more, of an operation that returned a tensor the first time."""
    result = _forward(operation, case, args, record)
    if not isinstance(result, Tensor):
        record.kind = type(result).__name__
        raise _Stop
    return result


def same(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same values, nan included, without a tolerance; 0.0 and -0.0 are the same."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    # equal is fast, and says no where both are nan
    return torch.equal(a, b) or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def _odd(value: object) -> str:
    """Return what a value is, or "" for a dense tensor on the CPU of a dtype that can be sent."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    if value.layout is not torch.strided or value.device.type != "cpu":
        return f"a {str(value.layout).removeprefix('torch.')} tensor on {value.device.type}"
    return "" if value.dtype in DTYPES.values() else f"a tensor of {value.dtype}"


def _values(grads: Sequence[Tensor | None]) -> Gradients:
    if odd := next((what for g in grads if g is not None and (what := _odd(g))), None):
        raise TypeError(f"the gradient is {odd}, not a dense tensor")
    return tuple(None if g is None else copy_of(g) for g in grads)


GRAD = 0.5  # what stands in an argument's .grad while an operation runs, where gradients do not arrive there


def _changed(case: Case, given: Given, before: dict[str, object]) -> list[str]:
    found = []
    for i, was, now, required, version in given:
        if not same(was, now.detach()):
            found.append(f"argument {i}")
        elif now._version != version:  # it was put back, or holds what it held
            found.append(f"argument {i} .version")
        if now.requires_grad != required:
            found.append(f"argument {i} .requires_grad")
        if now._backward_hooks or now._post_accumulate_grad_hooks:
            found.append(f"argument {i} ._backward_hooks")
        if case.how != "backward" and now.requires_grad and (now.grad is None or not (now.grad == GRAD).all()):
            found.append(f"argument {i} .grad")
    after = settings()
    return list(dict.fromkeys(found)) + [name for name, was in before.items() if was != after[name]]


def _nodes(output: Tensor) -> Iterator[torch.autograd.graph.Node]:
    """Yield the nodes of the graph of `output`, each once."""
    todo, seen = [output.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [n for n, _ in node.next_functions]
            yield node


def _custom(node: torch.autograd.graph.Node) -> bool:
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def _gradient_is_own(output: Tensor) -> bool:
    """Return whether the graph of `output` is Python Functions and what only moves, repeats or sums numbers."""
    nodes = list(_nodes(output))
    return any(map(_custom, nodes)) and all(_custom(n) or STRUCTURAL.fullmatch(n.name()) for n in nodes)


def _upstreams(case: Case, outputs: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the outputs that require a gradient, and copies of their upstream gradients; none where shapes differ."""
    sent = (case.upstream,) if isinstance(case.upstream, Tensor) else case.upstream or ()
    if len(sent) != len(outputs) or any(o.shape != u.shape for o, u in zip(outputs, sent, strict=True)):
        return [], []
    pairs = [(o, _sent(case, u).to(o.dtype)) for o, u in zip(outputs, sent, strict=True) if o.requires_grad]
    return [o for o, _ in pairs], [u for _, u in pairs]


def _upstream(case: Case, output: Tensor) -> Tensor:
    """Return a copy of the upstream gradient of the one output, in its dtype."""
    if not isinstance(case.upstream, Tensor):
        raise TypeError("a case that looks further into an operation has one upstream gradient")
    return _sent(case, case.upstream).to(output.dtype)


def _sent(case: Case, upstream: Tensor) -> Tensor:
    """Return a copy of an upstream gradient; with its conjugation put off, where the case asks for that."""
    copy = copy_of(upstream)
    return copy.conj().resolve_conj().conj() if case.how == "conjugated" else copy


def _gradients(
    case: Case, outputs: list[Tensor], inputs: list[Tensor], upstreams: list[Tensor], **keywords: bool
) -> Gradients:
    """Return the gradients of the inputs, by the way that the case asks for; None where none arrived."""
    if case.how != "backward":
        grads: Gradients = ENGINE["grad"](outputs, inputs, upstreams, allow_unused=True, **keywords)
        return grads
    for tensor in inputs:
        tensor.grad = None
    ENGINE["backward"](outputs, upstreams, **keywords)
    return tuple(tensor.grad for tensor in inputs)


def _returned(result: object, record: Record) -> tuple[Tensor, ...]:
    """Note what was returned; return the tensors.

    Raises:
        _Stop: there is nothing more to see, of numbers, or of what cannot be sent.
    """
    record.kind = type(result).__name__
    returned = tuple(result) if isinstance(result, tuple | list) else (result,)
    if any(isinstance(o, int) and int.__abs__(o) >= 1 << 63 for o in returned):
        record.kind = "int of more than 64 bits"  # it may not even be printed
        raise _Stop
    numbers = [o for o in returned if isinstance(o, int | float)]
    if numbers and len(numbers) == len(returned):
        # plain numbers: what a subclass makes of itself may not be sent
        record.numbers = tuple(float.__add__(n, 0.0) if isinstance(n, float) else int.__add__(n, 0) for n in numbers)
        raise _Stop
    outputs = tuple(o for o in returned if isinstance(o, Tensor))
    if odd := [what for o in returned if (what := _odd(o))]:
        record.kind = odd[0] if isinstance(result, Tensor) else record.kind
        raise _Stop
    record.kind = "Tensor" if isinstance(result, Tensor) else record.kind
    record.outputs = tuple(map(copy_of, outputs))
    return outputs


def _first_order(operation: Callable[..., object], case: Case, record: Record) -> None:
    args, inputs, given = _arguments(case)
    for tensor in inputs if case.how != "backward" else ():
        tensor.grad = torch.full_like(tensor, GRAD)
    helpers.TALLY.clear()
    before = settings()
    result = _forward(operation, case, args, record)
    record.drawn = torch.rand((), dtype=torch.float64).item()
    record.tally = tuple(sorted(helpers.TALLY.items()))
    _note(record, _changed(case, given, before))
    outputs = _returned(result, record)
    record.differentiable = tuple(o.requires_grad for o in outputs)
    record.function = any(_gradient_is_own(o) for o in outputs)
    record.custom = any(_custom(n) for o in outputs for n in _nodes(o))
    memory = {a.untyped_storage().data_ptr() for a in args if isinstance(a, Tensor) and a.numel()}
    record.shares_memory = any(o.untyped_storage().data_ptr() in memory for o in outputs if o.numel())
    if case.upstream is None:
        return
    roots, upstreams = _upstreams(case, outputs)
    if not roots or isinstance(result, Tensor) == isinstance(case.upstream, tuple):
        raise _Stop
    was = [copy_of(u) for u in upstreams]
    sibling = torch.zeros_like(roots[0], memory_format=torch.contiguous_format).requires_grad_()
    stream = torch.get_rng_state()  # a draw past where forward left it: whatever backward needs, it is not here
    with _stage("backward", record):
        roots = [roots[0] + sibling, *roots[1:]]
        NESTED.clear()
        with surroundings(case, "backward"), _noted():
            found = _gradients(case, roots, [*inputs, sibling], upstreams)
        record.nested = bool(NESTED)
        *grads, record.sibling = _values(found)
        record.grads = tuple(grads)
    record.tally = tuple(sorted(helpers.TALLY.items()))
    changed = _changed(case, given, before)
    changed += ["the random stream"] if not torch.equal(stream, torch.get_rng_state()) else []
    changed += ["the upstream gradient"] if not all(map(same, was, upstreams)) else []
    changed += (
        ["the output"] if not all(same(r, o.detach()) for r, o in zip(record.outputs, outputs, strict=True)) else []
    )
    _note(record, changed)


def _bare(operation: Callable[..., object], case: Case, record: Record) -> None:
    """Record the outputs and their gradients, with no operator between them and the operation: it may be refused."""
    args, inputs, _ = _arguments(case)
    result = _forward(operation, case, args, record)
    record.drawn = torch.rand((), dtype=torch.float64).item()
    outputs = _returned(result, record)
    record.differentiable = tuple(o.requires_grad for o in outputs)
    if case.upstream is None:
        return
    roots, upstreams = _upstreams(case, outputs)
    if not roots or isinstance(result, Tensor) == isinstance(case.upstream, tuple):
        raise _Stop
    with _stage("backward", record):
        with surroundings(case, "backward"):
            found = _gradients(case, roots, inputs, upstreams)
        record.grads = _values(found)


def _second_order(operation: Callable[..., object], case: Case, directions: tuple[Tensor, ...], record: Record) -> None:
    args, inputs, _ = _arguments(case)
    output = _again(operation, case, args, record)
    upstream = _upstream(case, output).requires_grad_(case.how != "constant")
    if "state" in case.watch:  # what an ordinary backward leaves behind
        with _stage("backward", record):
            _gradients(case, [output], inputs, [_upstream(case, output)], retain_graph=True)
    with _stage("second order", record):
        grads = torch.autograd.grad(output, inputs, upstream, create_graph=True, allow_unused=True)
        pairs = [(g, d) for g, d in zip(grads, directions, strict=True) if g is not None and g.requires_grad]
        if not pairs:
            record.second = (None,) * (len(inputs) + 1)
            return
        total = reduce(torch.add, [_real((g * copy_of(d)).sum()) for g, d in pairs])
        asked = [*inputs, upstream] if upstream.requires_grad else inputs
        found = torch.autograd.grad(total, asked, allow_unused=True)
        record.second = _values(found) + (None,) * (not upstream.requires_grad)


def _real(total: Tensor) -> Tensor:
    """Return a number that can be differentiated: of a complex one, what both of its parts are in."""
    return total.real + 0.5 * total.imag if total.is_complex() else total


def _other(value: object) -> object:
    """Return an argument of the same shape with other values; a float stays positive if it was."""
    if isinstance(value, float):
        return value + 0.75
    if not isinstance(value, Tensor):
        return value
    return (value.detach() * -0.5 + 0.25).to(value.dtype).requires_grad_(value.requires_grad)


def _once_more(value: object, args: list[object]) -> object:
    """Return an argument of a call in between: one of the first call's tensors itself, where it has these numbers."""
    known = (a for a in args if isinstance(a, Tensor) and isinstance(value, Tensor) and same(a.detach(), value))
    found = next(known, None)
    return fresh(value) if found is None else found


def _state(operation: Callable[..., object], case: Case, record: Record) -> None:
    if case.upstream is None:
        return
    args, inputs, _ = _arguments(case)
    output = _again(operation, case, args, record)
    between = [_other(a) for a in args] if case.between is None else [_once_more(a, args) for a in case.between]
    _forward(operation, replace(case, within=""), between, record)
    upstream = _upstream(case, output)
    with _stage("backward", record):
        record.interleaved = _values(_gradients(case, [output], inputs, [upstream], retain_graph=True))
    upstream = _upstream(case, output)
    with _stage("second backward", record):
        record.repeated = _values(_gradients(case, [output], inputs, [upstream]))


def _spoil(tensor: Tensor) -> None:
    """Change a tensor in place: other signs and sizes; integers trade places, since an index has a range."""
    if inexact(tensor):
        tensor.mul_(-3).add_(0.3)
    else:
        tensor.copy_(tensor.roll(1))


def _touch(tensor: Tensor) -> None:
    """Change a tensor in place so that it holds what it held: torch counts it all the same."""
    tensor.copy_(tensor.clone())


def _overwrite(operation: Callable[..., object], case: Case, record: Record) -> None:
    if case.upstream is None:
        return
    names = [f"argument {i}" for i, a in enumerate(case.args) if isinstance(a, Tensor)]
    found: list[tuple[str, Gradients | None]] = []
    for name in [*names, "the output"]:
        found.append((name, _after(_spoil, name, operation, case, record)))
        if found[-1][1] is None:  # by torch's count of changes, or by a comparison of the operation's own
            unnoticed = _after(_touch, name, operation, case, record)
            found += [(f"{name} .version", unnoticed)] if unnoticed is not None else []
    record.overwritten = tuple(found)


def _after(
    change: Callable[[Tensor], None], name: str, operation: Callable[..., object], case: Case, record: Record
) -> Gradients | None:
    """Return the gradients of a call of which a tensor is changed before backward; None where that raises."""
    args, inputs, given = _arguments(case)
    output = _again(operation, case, args, record)
    targets = {f"argument {one.position}": one.now for one in given if one.now is args[one.position]}
    try:
        with torch.no_grad():
            change(output if name == "the output" else targets[name])
        return _values(_gradients(case, [output], inputs, [_upstream(case, output)]))
    except STUDENT_ERRORS:
        return None


def _denied(trace: Trace, case: Case, where: str) -> list[str]:
    names = {name for name in trace.operators if name in case.deny or name.split(".")[0] in case.deny}
    return [f"{name.split('.')[0]} in {where}" for name in sorted(names)]


def _trace(operation: Callable[..., object], case: Case, record: Record) -> None:
    args, inputs, held = _arguments(case)
    # copies, so that nothing but the operation can keep them alive
    copies = [a.clone() if isinstance(a, Tensor) else a for a in args]
    given = {i: StorageWeakRef(a.untyped_storage()) for i, a in enumerate(copies) if isinstance(a, Tensor)}
    # as long as a weak reference is there, its address is taken
    before = [StorageWeakRef(now.untyped_storage()) for _, _, now, *_ in held]
    known = {ref.cdata for ref in (*given.values(), *before)}
    forward = Trace(known)
    with forward:
        output = _again(operation, case, copies, record)
    del copies
    result = StorageWeakRef(output.untyped_storage()).cdata
    own = output.numel() * output.element_size()  # what else lies in its storage is kept with it

    def kept() -> int:
        return sum(max(size - own, 0) if key == result else size for key, size in forward.alive().items())

    if kept() or not all(ref.expired() for ref in given.values()):
        gc.collect(1)  # young cycles only: an old one cannot hold what was made just now
    record.kept_bytes = kept()
    record.kept_arguments = tuple(i for i, ref in given.items() if not ref.expired())
    record.denied = tuple(_denied(forward, case, "forward"))
    record.largest, record.peak = (forward.largest,), (forward.peak,)
    if case.upstream is None:
        return
    NESTED.clear()
    upstream = _upstream(case, output)
    taken = forward.hold()
    known |= {ref.cdata for ref in taken} | {StorageWeakRef(upstream.untyped_storage()).cdata}
    backward = Trace(known)
    with _stage("backward", record), backward, _noted():
        _gradients(case, [output], inputs, [upstream])
    del taken
    record.denied += tuple(_denied(backward, case, "backward"))
    record.largest, record.peak = (forward.largest, backward.largest), (forward.peak, backward.peak)
    record.nested = record.nested or bool(NESTED)


@contextmanager
def _noted() -> Iterator[None]:
    """Note in `NESTED` the calls of torch.autograd that are made within."""
    with _replaced(torch.autograd.grad, _grad_within), _replaced(torch.autograd.backward, _backward_within):
        yield


def _twin(original: Callable[..., object]) -> Callable[..., Any]:
    """Return the function as it is now, whatever becomes of its code."""
    function = _in_python(original)
    twin = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


ENGINE = {"grad": _twin(torch.autograd.grad), "backward": _twin(torch.autograd.backward)}
NESTED: list[str] = []  # the calls of torch.autograd made by a backward that is traced


def nested(name: str, args: tuple[object, ...], keywords: dict[str, object]) -> object:
    """Note a call of ``torch.autograd.<name>`` inside a traced backward, and run it."""
    NESTED.append(name)
    return ENGINE[name](*args, **keywords)


def _grad_within(*args: object, **keywords: object) -> object:
    from graders.inside.observe import nested  # the code runs among torch's names, not these

    return nested("grad", args, keywords)


def _backward_within(*args: object, **keywords: object) -> object:
    from graders.inside.observe import nested

    return nested("backward", args, keywords)
