"""The student's operation as a check sees it: something to ask, wherever it runs.

A `Responder` answers beside the student's code; an `Operation` asks. Between them lies a function from message to
message: a direct call in one process, a pipe across two. A check cannot tell the difference.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from graders.inside.hold import hold, lend, release
from graders.inside.observe import STUDENT_ERRORS, fresh, leaf, observe, resolve, told
from graders.inside.pristine import ended_modes, pristine
from graders.inside.records import Case, Failure, Gradients, Record
from graders.inside.replies import answered
from graders.inside.wire import MAX_BYTES, Message, WireError, decode_message, encode

Tensors = list[Tensor | None]
Elements = Sequence[tuple[int, Tensor]]


class OperationError(Exception):
    """The student's code raised while torch's gradcheck was calling it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind}: {failure.message}")
        self.failure = failure


class Held(NamedTuple):
    """What was seen of an operation's memory.

    Args:
        grown: bytes by which it grew: the outputs, the arguments if they stay, and what is kept for backward.
        before: bytes that were held before, and may have been let go of meanwhile.
        grads: of each output that was held at a time, the gradients that were asked for.
    """

    grown: int
    before: int
    grads: list[Tensors]


class Responder:
    """Answers what an `Operation` asks about ``get()``, the student's operation."""

    def __init__(self, get: Callable[[], Callable[..., object]]) -> None:
        self.get = get

    def __call__(self, message: Message) -> Message:
        with pristine():
            return self._answer(resolve(self.get), message)

    def _answer(self, operation: Callable[..., object] | Failure, message: Message) -> Message:
        if message["do"] == "all":
            return {"answers": [self._answer(operation, m) for m in message["messages"]]}
        if message["do"] == "observe":
            return {"records": [observe(operation, case) for case in message["cases"]]}
        if isinstance(operation, Failure):
            return {"failure": operation}
        if message["do"] == "lend":
            return lend(message)
        if message["do"] in ("hold", "release"):
            try:
                return hold(operation, message) if message["do"] == "hold" else release(message)
            except STUDENT_ERRORS as error:
                return {"failure": told("gradcheck", error)}
        inputs = _leaves(message["inputs"], message["requires_grad"])
        upstreams = [_leaves(level, [True] * len(level)) for level in message["upstreams"]]
        try:
            with ended_modes():
                results = _derivative(operation, message["args"], message["slots"], inputs, upstreams, message["graph"])
            flags = [r is not None and r.requires_grad for r in results]
        except STUDENT_ERRORS as error:
            return {"failure": told("gradcheck", error)}
        return {"results": [None if r is None else r.detach() for r in results], "differentiable": flags}


def _leaves(tensors: Tensors, flags: list[bool]) -> Tensors:
    return [None if t is None else leaf(t, r) for t, r in zip(tensors, flags, strict=True)]


def _derivative(
    operation: Callable[..., object],
    args: tuple[object, ...],
    slots: list[int],
    inputs: Tensors,
    upstreams: list[Tensors],
    graph: bool = True,
) -> Tensors:
    """Compute the operation (no upstreams), its vector-Jacobian product (one level of them), the VJP of that (two), ...

    Args:
        args: the operation's arguments.
        slots: the positions in `args` that the tensors of `inputs` take.
        inputs: the tensors that a gradient may be asked for.
        upstreams: per level, one upstream gradient for each result of the level below; the inputs of a level are those
            of the level below and its upstreams, and its results are one gradient (or None) for each of them.
        graph: whether the results are to be differentiated again; a backward of first order only need not stand that.
    """
    if not upstreams:
        given = dict(zip(slots, inputs, strict=True))
        result = operation(*[given[i] if i in given else fresh(a) for i, a in enumerate(args)])
        return [_tensor(r) for r in (result if isinstance(result, tuple | list) else [result])]
    *lower, upstream = upstreams
    results = _derivative(operation, args, slots, inputs, lower)
    variables = [*inputs, *(u for level in lower for u in level)]
    pairs = [(r, u) for r, u in zip(results, upstream, strict=True) if r is not None and r.requires_grad]
    wanted = [v for v in variables if v is not None and v.requires_grad]
    if not pairs or not wanted:
        return [None] * len(variables)
    outputs, weights = map(list, zip(*pairs, strict=True))
    found = iter(torch.autograd.grad(outputs, wanted, weights, create_graph=graph, allow_unused=True))
    return [next(found) if v is not None and v.requires_grad else None for v in variables]


def _tensor(result: object) -> Tensor | None:
    """Return a result of the operation as what it is below a subclass: see `observe._forward`."""
    if result is not None and not isinstance(result, Tensor):
        raise TypeError(f"a result is {type(result).__name__}, not a tensor")
    return None if result is None else result.as_subclass(Tensor)


class Operation:
    """Asks a responder, and counts the round trips. What is no answer to the question is a `WireError`.

    Args:
        ask: takes a message, returns the answer.

    Attributes:
        source: the text of the student's cells, as `graders.judge.reading.joined` makes it; None: it is not known.
        proves: whether cases that ask for a proof are run where operators, and autograd, are refused.
        memory: the bytes, seen from outside, that its process holds beyond its own; None: nobody can tell.
        tell: told what a person should look at, as the end of a sentence about the check.
        asked: the messages so far that asked for a derivative, as they were sent.
    """

    def __init__(self, ask: Callable[[Message], Message]) -> None:
        self.ask = ask
        self.trips = 0
        self.source: str | None = None
        self.proves = False
        self.memory: Callable[[], int | None] = lambda: None
        self.tell: Callable[[str], None] = lambda did: None
        self.asked: list[bytes] = []
        self._ready: dict[bytes, list[Message]] = {}

    @contextmanager
    def prepared(self, messages: list[bytes]) -> Iterator[None]:
        """Ask all of `messages` in one round trip; inside the block, what asks the same is answered from there.

        What gradcheck asks does not depend on the answers. So it can be rehearsed on another operation, and all that
        it asked there be asked here at once. Each message is answered as often as it stands in the list, by as many
        calls of the student's code: an operation that answers differently each time is still seen to do so.
        """
        answers = self._send({"do": "all", "messages": [decode_message(m) for m in messages]})["answers"]
        for message, answer in zip(messages, answers, strict=True):
            self._ready.setdefault(message, []).append(answer)
        try:
            yield
        finally:
            self._ready.clear()

    def observe(self, cases: Sequence[Case]) -> list[Record]:
        """Run the cases, all in one round trip."""
        records: list[Record] = self._send({"do": "observe", "cases": list(cases)})["records"]
        return records

    def held(
        self,
        args: Sequence[object],
        requires_grad: Sequence[bool],
        keeps: bool,
        upstream: float,
        elements: Elements,
        times: Callable[[int], int] = lambda before: 1,
    ) -> Held | None:
        """Run forward on large arguments and then backward; return by how much the memory grew between, and gradients.

        Args:
            args: the operation's arguments.
            requires_grad: which of them require a gradient; others go as they are.
            keeps: whether the arguments stay alive for the caller.
            upstream: each number of the upstream gradient.
            elements: which of the gradients are asked for: an argument's place, and indices into it, made flat.
            times: how often forward runs before the first backward, from the bytes that are held before.

        Returns:
            None where nobody can tell.

        Raises:
            OperationError: the student's code raised.
        """
        if self.memory() is None:
            return None
        self._unless_failed({"do": "lend", "args": []})
        before = self.memory()
        count = times(before or 0)
        for _ in range(count):
            self._unless_failed({"do": "lend", "args": list(args)})
            self._unless_failed({"do": "hold", "requires_grad": list(requires_grad), "keeps": keeps})
        after = self.memory()
        release = {"do": "release", "upstream": upstream, "elements": [list(pair) for pair in elements]}
        grads = [self._unless_failed(release)["elements"] for _ in range(count)]
        return None if before is None or after is None else Held(after - before, before, grads)

    def _unless_failed(self, message: Message) -> Message:
        answer = self._send(message)
        if "failure" in answer:
            raise OperationError(answer["failure"])
        return answer

    def __call__(self, *args: object) -> Tensor | tuple[Tensor, ...]:
        """Call it as a differentiable function, for torch's gradcheck: every order is asked for, not computed.

        Raises:
            OperationError: the student's code raised.
        """
        results: tuple[Tensor, ...] = _Asked.apply(self, True, *_split(args))
        return results[0] if len(results) == 1 else results

    def vjp(self, *args: object) -> tuple[Tensor, ...]:
        """Call its vector-Jacobian product as a differentiable function: gradcheck of it is gradgradcheck.

        Args:
            args: the operation's arguments, then the upstream gradient of its one output.

        Returns:
            The gradients of the arguments that require one.
        """
        *given, upstream = args
        return tuple(r for r in _Asked.apply(self, True, *_split(given, 1), upstream) if r is not None)

    def derivative(
        self, args: tuple[object, ...], slots: list[int], inputs: Tensors, upstreams: list[Tensors], graph: bool
    ) -> Message:
        """Ask for one derivative of the operation: see `_derivative`."""
        flags = [t is not None and t.requires_grad for t in inputs]
        message = {
            "do": "derive",
            "args": args,
            "slots": slots,
            "inputs": list(inputs),
            "requires_grad": flags,
            "graph": graph,
        }
        message["upstreams"] = [list(level) for level in upstreams]
        self.asked.append(encode(message))  # as it is now: gradcheck moves its inputs about in place
        ready = self._ready.get(self.asked[-1])
        answer = ready.pop(0) if ready else self._send(message)
        if "failure" in answer:
            raise OperationError(answer["failure"])
        return answer

    def _send(self, message: Message) -> Message:
        self.trips += 1
        return answered(message, self.ask(message))


def _split(args: Sequence[object], *levels: int) -> tuple[object, ...]:
    """Return what `_Asked` takes: the arguments without tensors, their places, upstreams per level, and the tensors."""
    slots = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    return tuple(None if isinstance(a, Tensor) else a for a in args), slots, levels, *[args[i] for i in slots]


class _Asked(torch.autograd.Function):
    """A Function whose forward asks for numbers, and whose backward is again such a Function, one order higher."""

    @staticmethod
    def forward(
        ctx: Any,
        operation: Operation,
        graph: bool,
        args: tuple[object, ...],
        slots: list[int],
        levels: tuple[int, ...],
        *tensors: Tensor | None,
    ) -> Gradients:
        ctx.save_for_backward(*tensors)
        ctx.rest = operation, args, slots, levels
        inputs, others = list(tensors[: len(slots)]), list(tensors[len(slots) :])
        upstreams: list[Tensors] = []
        for count in levels:
            upstreams.append(others[:count])
            others = others[count:]
        answer = operation.derivative(args, slots, inputs, upstreams, graph)
        results, flags = answer["results"], answer["differentiable"]
        ctx.mark_non_differentiable(*[r for r, f in zip(results, flags, strict=True) if r is not None and not f])
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[object, ...]:
        operation, args, slots, levels = ctx.rest
        graph = torch.is_grad_enabled()  # in backward: whether create_graph was asked for
        results = _Asked.apply(operation, graph, args, slots, (*levels, len(upstream)), *ctx.saved_tensors, *upstream)
        return None, None, None, None, None, *results


def local(function: Callable[..., object]) -> Operation:
    """Return an operation in this process."""
    return Operation(Responder(lambda: function))


def serve(responder: Responder, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer messages from `source` on `sink` until it ends."""
    while message := receive(source):
        send(sink, responder(message))


def send(sink: BinaryIO, message: Message) -> None:
    """Write one message: its length, then its bytes."""
    data = encode(message)
    sink.write(struct.pack(">Q", len(data)) + data)
    sink.flush()


def receive(source: BinaryIO) -> Message | None:
    """Read one message; None at the end.

    Raises:
        WireError: the message is cut off, too long or damaged.
    """
    head = source.read(8)
    if not head:
        return None
    size = struct.unpack(">Q", head)[0] if len(head) == 8 else MAX_BYTES + 1
    data = source.read(size) if size <= MAX_BYTES else b""
    if len(data) != size:
        raise WireError("a message that is cut off or too long")
    return decode_message(data)
