"""A peer that sends what it likes: it is refused, or judged, and costs neither memory nor time nor an exception."""

import dataclasses
import json
import math
import random
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
import torch

from graders.gradecell import silence
from graders.inside.operation import Operation, Responder, local
from graders.inside.records import Case, Failure, Helper, Record
from graders.inside.replies import answered, valid
from graders.inside.wire import MAX_BYTES, MAX_HEADER, WireError, decode, encode
from graders.judge.draw import Draw
from graders.judge.looks import wrong_at
from graders.judge.task import Task
from graders.sets import load

SETS = ("sigmoid", "flash_attention", "legendre", "logsumexp", "checkpointing", "qat", "clipped_relu")
TASKS = [(s, t) for s in SETS for t in load(s).values() if isinstance(t, Task) and t.solutions]
NAN = float("nan")


def message(header: object, blob: bytes = b"") -> bytes:
    """A message with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">Q", len(text)) + text + blob


def tensor(shape: list, stride: list, dtype: str = "float64") -> dict:
    return {"tensor": dtype, "shape": shape, "stride": stride}


FORGED = {
    "deep": b"[" * 500 + b"]" * 500,
    "deeper": b"[" * 400_000 + b"]" * 400_000,
    "deep tuples": b'{"tuple":[' * 40 + b"]}" * 40,
    "long digits": b"1" * 100_000,
    "not text": b"\xff\xfe[\x00]\x00",
    "half a character": rb'"\ud800"',
    "half a character in a name": rb'{"dict": {"\ud800": 1}}',
    "twice": b'{"dict": {"a": 1, "a": 2}}',
    "two forms": b'{"tuple": [], "dict": {}}',
    "a dict that is none": b'{"dict": [1]}',
    "a tuple that is none": b'{"tuple": {"a": 1}}',
    "a type": b'{"is": "Popen", "of": {}}',
    "a list of a type": b'{"is": ["Record"], "of": {}}',
    "fields": b'{"is": "Failure", "of": {"stage": "a", "kind": "b"}}',
    "other fields": b'{"is": "Failure", "of": {"stage": "a", "kind": "b", "message": "", "self": 1}}',
    "a case of its own": b'{"is": "Case", "of": {"how": 1}}',
    "a way": None,  # see below
    "a dtype": tensor([1], [1], "quint8"),
    "a dtype that is a list": {"tensor": ["float64"], "shape": [1], "stride": [1]},
    "huge": tensor([10**9], [0]),
    "huger": tensor([10**4299, 0], [1, 1]),
    "empty and huge": tensor([0, 2**63], [1, 1]),
    "far": tensor([2], [2**62]),
    "true": tensor([True], [1]),
    "halves": tensor([0.5], [1]),
    "negative": tensor([2], [-1]),
    "words": tensor("12", "11"),
    "dimensions": tensor([1] * 10_000, [0] * 10_000),
    "strides": tensor([1], [1, 1]),
    "many expanded": [tensor([1 << 20], [0])] * 3,
}
FORGED["a way"] = json.dumps(
    {
        "is": "Case",
        "of": {f.name: {"tuple": []} for f in dataclasses.fields(Case)} | {"how": "by force"},
    }
).encode()


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_header_is_refused(name: str) -> None:
    with pytest.raises(WireError) as caught:
        decode(message(FORGED[name], bytes(64)))
    assert len(str(caught.value)) < 200 and str(caught.value).isascii()


@pytest.mark.parametrize("size", [0, 1, 20, MAX_HEADER, 1 << 40, (1 << 64) - 1])
def test_a_header_ends_where_it_says(size: int) -> None:
    with pytest.raises(WireError):
        decode(struct.pack(">Q", size) + b"[1, 2, 3]")


COSTLY = {
    "lists": b"[" + b"[]," * (MAX_HEADER // 3 - 10) + b"[]]",
    "dicts": b"[" + b'{"dict":{}},' * (MAX_HEADER // 12 - 10) + b"[]]",
    "tensors": b"[" + b'{"tensor":"int8","shape":[0],"stride":[1]},' * (MAX_HEADER // 50) + b"[]]",
    "numbers": b"[" + b"1," * (MAX_HEADER // 2 - 10) + b"1]",
    "long numbers": b"[" + (b"9" * 4300 + b",") * (MAX_HEADER // 4400) + b"1]",
    "one blank": b" " * (MAX_HEADER - 10) + b"[]",
}


CHEAP = 10  # seconds of the processor, where a quiet machine takes two at most


@pytest.mark.parametrize("name", COSTLY)
def test_the_costliest_header_is_cheap(name: str) -> None:
    start = time.process_time()
    with pytest.raises(WireError):
        answered({"do": "observe", "cases": [CASE]}, {"records": decode(message(COSTLY[name]))})
    assert time.process_time() - start < CHEAP
    tracemalloc.start()
    decode(message(COSTLY[name]))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 100 << 20


def test_the_costliest_tensors_are_cheap() -> None:
    elements = MAX_BYTES // 8 - 100
    start = time.process_time()
    whole = decode(message(tensor([elements], [1]), bytes(8 * elements)))
    spread = decode(message(tensor([elements], [0]), bytes(8)))
    assert whole.numel() == spread.numel() == elements and time.process_time() - start < CHEAP


def test_a_bool_is_0_or_1() -> None:
    flags = decode(message(tensor([4], [1], "bool"), bytes([0, 1, 2, 255])))
    assert flags.view(torch.uint8).tolist() == [0, 1, 1, 1]


# --- what fits no field -----------------------------------------------------------------------------------------------

X = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
CASE = Case("a case", (X, 2.0), (), (True, False), torch.ones(3, dtype=torch.float64), (X,), ("trace", "state"))


def right(**changes: object) -> Record:
    """A record that can be of `CASE`, but for the changes."""
    fields = {"kind": "Tensor", "outputs": (2 * X,), "differentiable": (True,), "grads": (2 * X,), "sibling": X}
    fields |= {"second": (None, X), "changed": ("argument 1", "argument 0 .grad", "the output", "the random stream")}
    fields |= {"overwritten": (("argument 0", (X,)), ("the output", None)), "interleaved": (X,), "repeated": (None,)}
    fields |= {"tally": (("calls", 2),), "largest": (3, 3), "peak": (24, 24), "kept_arguments": (0,)}
    return Record(**(fields | changes))


def test_a_record_that_can_be_right_is_let_through() -> None:
    assert valid([right()], [CASE])[0].kind == "Tensor"
    assert valid([right(), right(failure=Failure("backward", "E", ""))], [CASE, CASE])
    assert valid([Record(kind="tuple", numbers=(1, NAN))], [CASE])


@pytest.mark.parametrize(
    "changes",
    [
        {"failure": "E"},
        {"failure": Failure("exists", "E", "x" * 2001)},
        {"failure": Failure("exists", 3, "")},
        {"failure": Failure("anywhere", "E", "")},
        {"kind": None},
        {"kind": X},
        {"outputs": [X]},
        {"outputs": (X, X)},
        {"outputs": ()},
        {"outputs": (CASE,)},
        {"outputs": (X,) * 1001, "kind": "tuple", "differentiable": (True,) * 1001},
        {"numbers": (1.0,)},
        {"outputs": (), "differentiable": (), "kind": "tuple", "numbers": (True,)},
        {"outputs": (), "differentiable": (), "kind": "tuple", "numbers": (10**400,)},
        {"outputs": (), "differentiable": (), "kind": "tuple", "numbers": ("1",)},
        {"differentiable": ()},
        {"differentiable": (1,)},
        {"function": 1},
        {"custom": None},
        {"grads": X},
        {"grads": ()},
        {"grads": (X, X)},
        {"grads": (X[:2],)},
        {"grads": (X.float(),)},
        {"grads": (X.expand(4, 3),)},
        {"grads": (1.0,)},
        {"second": (None,)},
        {"second": (None, X[:1])},
        {"second": (X[:1], None)},
        {"changed": "argument 0"},
        {"changed": ("argument 2",)},
        {"changed": ("argument x",)},
        {"changed": ("argument 0 .__class__",)},
        {"changed": ("your marks",)},
        {"changed": (X,)},
        {"shares_memory": X},
        {"sibling": (X,)},
        {"sibling": X.long()},
        {"interleaved": (X.float(),)},
        {"repeated": [X]},
        {"overwritten": ("argument 0", (X,))},
        {"overwritten": (("argument 0", X),)},
        {"overwritten": (("argument 7", None),)},
        {"overwritten": (("argument 0", (X,), 1),)},
        {"kept_bytes": NAN},
        {"kept_bytes": -1},
        {"kept_bytes": True},
        {"kept_bytes": 2**63},
        {"kept_arguments": (2,)},
        {"kept_arguments": (-1,)},
        {"denied": (("a",),)},
        {"nested": "no"},
        {"tally": (("calls",),)},
        {"tally": (("calls", NAN),)},
        {"tally": {"calls": 1}},
        {"drawn": 0},
        {"largest": (1, 2, 3)},
        {"largest": (1.5,)},
        {"peak": X},
    ],
    ids=str,
)
def test_a_record_that_cannot_be_right_is_refused(changes: dict) -> None:
    with pytest.raises(WireError, match="cannot be right"):
        valid([right(**changes)], [CASE])


def test_without_an_upstream_gradient_none_reaches_a_sibling() -> None:
    with pytest.raises(WireError, match="sibling"):
        valid([Record(kind="Tensor", outputs=(X,), differentiable=(True,), sibling=X)], [Case("a case", (X,))])


def test_a_record_for_each_case() -> None:
    for records in ([], [right()] * 2, (right(),), None, right(), [CASE], [None]):
        with pytest.raises(WireError, match="cannot be right"):
            valid(records, [CASE])


def test_the_gradients_of_a_helper_have_its_shapes() -> None:
    held = Case("a case", (Helper("f", (X, X[:1]), (False, True)), X), (), (False, True), X, (X,))
    assert valid([right(grads=(X, X[:1]), second=None, overwritten=(), interleaved=None, repeated=None)], [held])
    with pytest.raises(WireError, match="grads"):
        valid([right(grads=(X[:1], X), second=None)], [held])


DERIVE = {"do": "derive", "inputs": [X], "upstreams": []}
ONCE = DERIVE | {"upstreams": [[X[:2]]]}
CALL = {"do": "call", "args": (), "keywords": {}}
TWICE = DERIVE | {"upstreams": [[X[:2]], [X]]}


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (DERIVE, {"results": [X[:2]], "differentiable": [True]}),
        (ONCE, {"results": [X], "differentiable": [False]}),
        (ONCE, {"results": [None], "differentiable": [False]}),
        (TWICE, {"results": [X, X[:2]], "differentiable": [True, False]}),
        (DERIVE, {"failure": Failure("gradcheck", "E", "no")}),
        (CALL, {"failure": Failure("forward", "E", "no")}),
        (CALL, {"value": None}),
        (CALL, {"value": [(X, {"a": [1, 2.5, "b", True]})]}),
    ],
)
def test_a_derivative_that_can_be_right_is_let_through(asked: dict, answer: dict) -> None:
    assert answered(asked, answer) is answer
    assert answered({"do": "all", "messages": [asked]}, {"answers": [answer]})


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (DERIVE, None),
        (DERIVE, {}),
        (DERIVE, {"results": [X]}),
        (DERIVE, {"differentiable": [True], "results": [X]}),
        (DERIVE, {"failure": "E"}),
        (DERIVE, {"failure": Failure("gradcheck", "E", "no"), "results": [X]}),
        (DERIVE, {"results": [], "differentiable": []}),
        (DERIVE, {"results": [None], "differentiable": [False]}),
        (DERIVE, {"results": (X,), "differentiable": (True,)}),
        (DERIVE, {"results": [1.0], "differentiable": [True]}),
        (DERIVE, {"results": [X, X], "differentiable": [True]}),
        (DERIVE, {"results": [X], "differentiable": [1]}),
        (DERIVE, {"results": [X.expand(100_000, 3)], "differentiable": [True]}),
        (ONCE, {"results": [X, X], "differentiable": [True, True]}),
        (ONCE, {"results": [X[:2]], "differentiable": [True]}),
        (ONCE, {"results": [X.float()], "differentiable": [True]}),
        (ONCE, {"results": [None], "differentiable": [True]}),
        (TWICE, {"results": [X], "differentiable": [True]}),
        (CALL, {"value": 1, "failure": Failure("forward", "E", "no")}),
        (CALL, {"value": [Record()]}),
        (CALL, {"failure": Failure("forward", X, "no")}),
        (CALL, X),
        ({"do": "all", "messages": [DERIVE]}, {"answers": []}),
        ({"do": "all", "messages": [DERIVE]}, {"answers": [{"answers": []}]}),
        ({"do": "observe", "cases": [CASE]}, {"answers": [right()]}),
    ],
)
def test_a_derivative_that_cannot_be_right_is_refused(asked: dict, answer: object) -> None:
    with pytest.raises(WireError, match="cannot be right"):
        answered(asked, answer)


# --- seeded damage ----------------------------------------------------------------------------------------------------

ODD: list[object] = [None, True, -1, 0, 3, 2**62, 10**400, 1.5, NAN, math.inf, "", "x" * 5000, "argument 9", "Tensor"]
ODD += ["aten::exp in backward", "backward", "the output", (), [], {}, (1,) * 5000, [None] * 3, ((((),),),)]
ODD += [Record(), Record(kind="Tensor", outputs=(X,), differentiable=(True,)), CASE, Helper("f", (X,))]
ODD += [Failure("forward", "E", "'" * 2000), Failure("", "", ""), Failure("exists", "E", "")]
ODD += [torch.tensor(v) for v in (0.0, NAN, math.inf, 1, True, 1j)]
ODD += [torch.zeros(0), torch.zeros(1, dtype=torch.float16).expand(300, 1000), torch.full((2, 3), NAN), X.long()]
TWISTS: list[Callable[[torch.Tensor], object]] = [
    lambda t: t.to(torch.float32),
    lambda t: t.to(torch.complex64),
    lambda t: t.flatten(),
    lambda t: t.unsqueeze(0),
    lambda t: t[..., :0] if t.dim() else t,
    lambda t: torch.full_like(t, NAN) if t.is_floating_point() else t,
    lambda t: torch.zeros((), dtype=t.dtype).expand(t.shape),
    lambda t: t + 1e-3 if t.is_floating_point() else t,
]


def parts(value: object) -> Iterator[object]:
    """All that a tree is made of, itself first."""
    yield value
    if isinstance(value, tuple | list):
        inside = value
    elif isinstance(value, dict):
        inside = value.values()
    elif dataclasses.is_dataclass(value):
        inside = [getattr(value, f.name) for f in dataclasses.fields(value)]
    else:
        inside = ()
    for part in inside:
        yield from parts(part)


def changed(value: object, target: int, change: Callable[[object], object], count: list[int]) -> object:
    """The tree with part number `target` changed."""
    count[0] += 1
    if count[0] - 1 == target:
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)([changed(v, target, change, count) for v in value])
    if isinstance(value, dict):
        return {k: changed(v, target, change, count) for k, v in value.items()}
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return type(value)(**{k: changed(v, target, change, count) for k, v in fields.items()})
    return value


def damaged(answer: object, chance: random.Random) -> object:
    """The answer with one part of it changed."""
    everything = list(parts(answer))

    def change(value: object) -> object:
        if isinstance(value, torch.Tensor) and chance.random() < 0.7:
            return chance.choice(TWISTS)(value)
        if isinstance(value, tuple | list) and value and chance.random() < 0.5:
            return chance.choice([value[1:], value + value[:1], value[::-1], value * 3])
        if isinstance(value, bool):
            return not value
        return chance.choice(ODD) if chance.random() < 0.7 else chance.choice(everything)

    return changed(answer, chance.randrange(len(everything)), change, [0])


def bitten(data: bytes, chance: random.Random) -> bytes:
    """The message with some of its bytes changed, left out or put in."""
    header = 8 + struct.unpack(">Q", data[:8])[0]
    whole, data = len(data), bytearray(data)
    top = header if chance.random() < 0.8 else whole
    place, how = chance.randrange(top), chance.randrange(5)
    if how == 0:
        data[place] = chance.randrange(256)
    elif how == 1:
        data[place] = ord(chance.choice('{}[]",:0123456789-.eNaItruefalsn '))
    elif how == 2:
        del data[place : place + chance.randrange(1, 20)]
    elif how == 3:
        data[place:place] = data[chance.randrange(top) :][: chance.randrange(1, 40)]
    else:
        other = chance.randrange(top)
        data[place], data[other] = data[other], data[place]
    if 8 < place < header and chance.random() < 0.9:  # the header's length fits again
        data[:8] = struct.pack(">Q", header - 8 + len(data) - whole)
    return bytes(data)


def conversation(task: Task, operation: Callable) -> list[tuple[dict, dict]]:
    """All that is asked of a task's right solution, with the answers."""
    said = []
    responder = Responder(lambda: operation)

    def ask(question: dict) -> dict:
        said.append((question, responder(question)))
        return said[-1][1]

    for check in task.checks:
        task.judge(check.name, Operation(ask))
    return said


@pytest.mark.parametrize("set_name", SETS)
def test_bitten_messages_are_refused_or_fit(set_name: str) -> None:
    chance, outcomes = random.Random(set_name), {True: 0, False: 0}
    task = next(t for s, t in TASKS if s == set_name)
    said = [(question, encode(answer)) for question, answer in conversation(task, next(iter(task.solutions.values())))]
    for _ in range(400):
        question, data = chance.choice(said)
        try:
            answered(question, decode(bitten(data, chance)))
            outcomes[True] += 1
        except WireError:
            outcomes[False] += 1
    assert outcomes[False] > 100 and outcomes[True] > 3, outcomes


@pytest.mark.parametrize(("set_name", "task"), TASKS, ids=lambda v: v if isinstance(v, str) else v.name)
def test_whatever_comes_back_ends_in_a_verdict(set_name: str, task: Task) -> None:
    chance, seen = random.Random(f"{set_name} {task.name}"), []
    solutions = [*task.solutions.values(), *(m.operation for m in task.mistakes[:3])]
    responders = [Responder(lambda operation=operation: operation) for operation in solutions]
    known: dict[tuple[int, bytes], dict] = {}
    for _ in range(70):
        which = chance.randrange(len(responders))
        left = [chance.choice([1, 1, 2, 3])]  # which question is answered wrongly

        def ask(question: dict, which: int = which, left: list = left) -> dict:
            key = which, encode(question)
            if key not in known:
                known[key] = responders[which](question)
            left[0] -= 1
            answer = known[key]
            return decode(encode(damaged(answer, chance) if left[0] == 0 else answer))

        check = chance.choice(task.checks)
        start = time.process_time()
        with silence():
            verdict = task.judge(check.name, Operation(ask))
        assert 0 <= verdict.earned <= check.points and len(str(verdict).encode()) < 10_000
        assert time.process_time() - start < 10
        seen.append(verdict)
    assert any("corrupted" in v.message for v in seen) and any("corrupted" not in v.message for v in seen)


def test_a_damaged_answer_earns_nothing_and_says_so() -> None:
    task = load("relu")["Square"]
    right_one = local(next(iter(task.solutions.values())))

    def ask(question: dict) -> dict:
        answer = right_one.ask(question)
        for record in answer.get("records", []):
            record.grads = (torch.zeros(7),)
        return answer

    verdict = task.judge("gradient", Operation(ask))
    assert verdict.earned == 0 and verdict.message.startswith("Your code's reply was corrupted")
    assert "grads of a record cannot be right" in verdict.message


def test_a_complex_output_is_no_damaged_record() -> None:
    """Who returns complex numbers hears that, and not that the reply was corrupted."""

    def to_complex(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.complex64)

    task = load("ste")["round_ste"]
    said = {c.name: task.judge(c.name, local(to_complex)) for c in task.checks}
    assert said["value"].message.startswith("Your output is complex64 where float64 is wanted")
    assert not any("corrupted" in verdict.message for verdict in said.values())


# --- complex numbers --------------------------------------------------------------------------------------------------

Z = torch.tensor([1 + 2j, -0.5 - 0.25j, 3j], dtype=torch.complex128)


def complex_case() -> tuple[Case, Record]:
    """A case of a complex function, to the second order, and the right record of it."""
    draw = Draw(torch.sgn, 3)
    case = draw.case("a vector", Z, order=2, watch=("state", "overwrite"))
    return case, local(torch.sgn).observe([case])[0]


def test_complex_arguments_get_complex_gradients() -> None:
    case, record = complex_case()
    assert case.requires_grad == (True,) and case.upstream.dtype == case.directions[0].dtype == torch.complex128
    assert case.upstream.imag.all() and record.failure is None
    z = Z.clone().requires_grad_()
    (found,) = torch.autograd.grad(torch.sgn(z), z, case.upstream)
    assert torch.equal(record.grads[0], found) and record.grads[0].imag.any()
    assert all(t.is_complex() and t.imag.any() for t in record.second)
    assert record.overwritten[0][1] is None  # a spoilt z is noticed
    asked, answer = {"do": "observe", "cases": [case]}, {"records": [record]}
    back = answered(decode(encode(asked)), decode(encode(answer)))["records"][0]
    assert torch.equal(back.grads[0], record.grads[0]) and all(map(torch.equal, back.second, record.second))


@pytest.mark.parametrize("name", ["grads", "interleaved", "repeated", "second"])
@pytest.mark.parametrize(
    "forge",
    [lambda t: t.to(torch.complex64), lambda t: t.real.clone(), lambda t: torch.view_as_real(t), lambda t: t[:2]],
    ids=["complex64", "real", "two real numbers each", "too few"],
)
def test_a_gradient_that_is_not_of_the_complex_argument_s_kind_is_refused(name: str, forge: Callable) -> None:
    case, record = complex_case()
    first, *rest = getattr(record, name)
    forged = dataclasses.replace(record, **{name: (forge(first), *rest)})
    with pytest.raises(WireError, match=f"{name} of a record cannot be right"):
        answered({"do": "observe", "cases": [case]}, {"records": [forged]})


def test_an_imaginary_part_does_not_vanish_in_a_comparison() -> None:
    real = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert wrong_at(real + 5j, real) == (0,) and wrong_at((real + 0j)[:0], real[:0]) is None
    assert wrong_at(Z, Z + 1e-3j) == (0,) and wrong_at(Z, Z * (1 + 1e-12)) is None
    assert wrong_at(torch.tensor(complex(1, NAN)), torch.tensor(1 + 1j)) == ()
