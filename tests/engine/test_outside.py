"""What is kept for backward, seen from outside: no right solution loses, and nobody's word is asked for it."""

import gc
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

import pytest
import torch

from graders.engine import memory
from graders.engine.memory import Share
from graders.inside.hold import give_back
from graders.inside.operation import Operation, Responder, local, receive, send, serve
from graders.inside.records import Case
from graders.inside.replies import answered
from graders.inside.wire import WireError
from graders.judge.outside import SLACK, TRIES
from graders.judge.task import Check, Task
from tests.engine.attacks import ROOT

MODULES = (
    "relu.tanh",
    "checkpointing.fused_linear_relu",
    "checkpointing.checkpoint",
    "flash_attention.flash_attention",
    "engine.packed_leaky_relu",
)
TASKS: list[Task] = [import_module(f"graders.sets.{name}").task for name in MODULES]
WEIGHED: list[tuple[Task, Check]] = [(t, c) for t in TASKS for c in t.checks if c.outside]
RIGHT = [pytest.param(t, c, n, id=f"{t.name}-{n}") for t, c in WEIGHED for n in t.solutions]
KEEPS = {  # mistakes that keep what is as large as what is measured
    "Tanh": ("saves_input", "saves_both", "input_as_attribute"),
    "FusedLinearReLU": ("saves_mask", "saves_pre_activation"),
    "checkpoint": ("no_checkpoint", "graph_kept"),
    "FlashAttention": ("saves_p", "tiles_kept_for_backward"),
    "PackedLeakyReLU": ("input_saved", "byte_mask_saved", "factor_saved"),
}
WRONG = [pytest.param(t, c, n, id=f"{t.name}-{n}") for t, c in WEIGHED for n in KEEPS[t.name]]


@pytest.fixture(scope="module", params=["control group", "resident size"])
def share(request) -> Iterator[Share]:
    """A notebook's share; where there is no control group, what /proc says of its processes."""
    group = memory.new_group() if request.param == "control group" else None
    if group is None and request.param == "control group":
        pytest.skip("no control groups that are ours to make")
    yield Share(group, 2 << 30)
    if group:
        memory.remove(group)


@contextmanager
def apart(share: Share, function: Callable[..., object]) -> Iterator[Operation]:
    """The function in a process of its own, whose memory is seen from here."""
    ours, theirs = socket.socketpair()
    give_back()  # as the warm parent does
    child = os.fork()
    if child == 0:
        try:
            ours.close()
            gc.freeze()  # as in a kernel: to look at what was there before would copy all of it
            with theirs.makefile("rb") as source, theirs.makefile("wb") as sink:
                source.read(1)
                serve(Responder(lambda: function), source, sink)
        finally:
            os._exit(0)
    theirs.close()
    share.take(child)
    with ours, ours.makefile("rb") as source, ours.makefile("wb") as sink:
        sink.write(b"!")  # it has done nothing before

        def ask(message):
            send(sink, message)
            return receive(source)

        operation = Operation(ask)
        operation.memory = share.memory
        yield operation
    os.waitpid(child, 0)
    share._tree.roots.clear()


def found(task: Task, check: Check, operation: Operation) -> str:
    """What is found from outside alone."""
    finding = check.outside.find(task.call, operation, task._weighed(check, 0))
    gc.collect()
    return finding.message if finding else ""


def test_the_checks_that_are_about_memory_look_from_outside():
    assert [(t.name, c.name) for t, c in WEIGHED] == [
        ("Tanh", "saved"), ("FusedLinearReLU", "memory"), ("checkpoint", "memory"), ("FlashAttention", "memory"),
        ("PackedLeakyReLU", "bits"),
    ]  # fmt: skip


@pytest.mark.parametrize(("task", "check", "name"), RIGHT)
def test_a_right_solution_keeps_no_more_than_it_may(share, task, check, name):
    with apart(share, task.solutions[name]) as operation:
        assert found(task, check, operation) == ""
        assert operation.trips in (4, 8)  # seen at the first look; on a busy machine, at the second


@pytest.mark.parametrize(("task", "check", "name"), WRONG)
def test_what_is_kept_beside_is_seen_from_outside(share, task, check, name):
    mistake = next(m for m in task.mistakes if m.name == name)
    with apart(share, mistake.operation) as operation:
        assert "keeps memory" in found(task, check, operation)
        assert operation.trips >= 4 * TRIES


class Forgetful(torch.autograd.Function):
    """Keeps nothing at all, so that its gradient can only be guessed."""

    @staticmethod
    def forward(ctx, x):
        return torch.tanh(x)

    @staticmethod
    def backward(ctx, g):
        return g / 2


class Listed(torch.autograd.Function):
    """A leaky ReLU that keeps its bits in a list of Python's, which no observer of torch's tensors sees."""

    @staticmethod
    def forward(ctx, x, slope):
        ctx.above, ctx.slope = (x > 0).tolist(), slope
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def backward(ctx, g):
        return torch.where(torch.tensor(ctx.above), g, ctx.slope * g), None


def test_what_is_kept_in_a_list_of_python_s_is_seen(share):
    task, check = WEIGHED[-1]
    assert task.name == "PackedLeakyReLU"
    with apart(share, Listed.apply) as operation:
        assert "keeps memory" in found(task, check, operation)


class Hoarder(torch.autograd.Function):
    """A tanh that keeps its input, and lets go of as much that it took when nobody weighed it."""

    size = 12 << 20  # bytes
    room: bytearray | None = None

    @staticmethod
    def forward(x):
        if x.numel() < 1000:
            Hoarder.room = bytearray(b"1") * Hoarder.size
        return torch.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        ctx.also = inputs[0] * 1.0
        if output.numel() > 1000:
            Hoarder.room = None

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        Hoarder.room = bytearray(b"1") * Hoarder.size
        return g * (1 - y * y)


@pytest.mark.parametrize("size", [3, 12, 40, 200])
def test_who_lets_go_of_something_else_meanwhile_is_seen_to_keep_too_much(share, size, monkeypatch):
    task, check = WEIGHED[0]
    monkeypatch.setattr(Hoarder, "size", size << 20)
    monkeypatch.setattr(memory, "KERNEL", 1 << 20)  # a process that runs nothing else writes to less
    with apart(share, Hoarder.apply) as operation:
        operation.observe([Case("small", (torch.ones(3, dtype=torch.double),))])
        assert "keeps memory" in found(task, check, operation)


def test_a_right_solution_beside_which_much_is_held_loses_nothing(share):
    task, check = WEIGHED[0]
    rooms = []

    def beside(x):
        rooms[:] = rooms or [bytearray(b"1") * (60 << 20)]
        return task.solutions["TanhNew"](x)

    with apart(share, beside) as operation:
        operation.observe([Case("small", (torch.ones(3, dtype=torch.double),))])
        assert found(task, check, operation) == ""


def test_of_more_than_can_be_told_apart_a_person_is_told(share):
    task, check = WEIGHED[0]
    told = []
    with apart(share, task.solutions["TanhNew"]) as operation:
        operation.memory, operation.tell = (lambda: share.memory() + (700 << 20)), told.append
        assert found(task, check, operation) == ""
    assert len(told) == 1
    assert re.fullmatch(
        r"found (69|70)\d MB held before it weighed what backward keeps: too much to tell apart", told[0]
    )


def test_how_much_can_be_told_apart_is_what_the_manual_says():
    ends = sorted((task._weighed(check, 0).most * check.outside.least - SLACK) >> 20 for task, check in WEIGHED)
    said = f"That ends at {ends[0]} to {ends[-1]} MB, by the task."
    assert said in (ROOT / "book/trust.md").read_text(encoding="utf-8")


def test_a_second_process_that_ends_meanwhile_hides_nothing(share):
    task, check = WEIGHED[0]

    class Killer(Hoarder):
        other = 0

        @staticmethod
        def forward(x):
            if x.numel() > 1000:
                with suppress(ProcessLookupError):
                    os.kill(Killer.other, signal.SIGKILL)
            return torch.tanh(x)

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * (1 - y * y)

    ready, say = os.pipe()
    Killer.other = os.fork()
    if Killer.other == 0:
        time.sleep(0.2)  # until it is in its group
        room = bytearray(b"1") * (8 << 20)
        os.write(say, b"!")
        time.sleep(600)
        os._exit(len(room) > 0)
    os.close(say)
    share.take(Killer.other)
    assert os.read(ready, 1)
    os.close(ready)
    try:
        with apart(share, Killer.apply) as operation:
            assert "keeps memory" in found(task, check, operation)
    finally:
        with suppress(ProcessLookupError):
            os.kill(Killer.other, signal.SIGKILL)
        os.waitpid(Killer.other, 0)


def test_what_was_kept_has_to_be_enough_for_the_gradient(share):
    task, check = WEIGHED[0]
    with apart(share, Forgetful.apply) as operation:
        assert found(task, check, operation) == "On large arguments the gradient with respect to x is wrong."


def test_what_cannot_stand_large_arguments_is_told_so(share):
    task, check = WEIGHED[0]

    def small(x):
        if x.numel() > 1000:
            raise ValueError("too large")
        return task.solutions["TanhNew"](x)

    with apart(share, small) as operation:
        finding = task._outside(check, operation, 0)
    assert finding and finding.message == "On large arguments your code raised ValueError: too large"


def test_where_nobody_can_tell_no_point_is_lost():
    task, check = WEIGHED[0]
    operation = local(task.mistakes[0].operation)
    assert operation.memory() is None
    assert task._outside(check, operation, 0) is None and operation.trips == 0


ASKED = {"do": "release", "upstream": 1.0, "elements": [[0, torch.arange(3)], [1, torch.arange(2)]]}


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"do": "hold"}, {"held": False}),
        ({"do": "lend"}, {"held": True, "more": 1}),
        (ASKED, {"elements": []}),
        (ASKED, {"elements": [torch.ones(3)]}),
        (ASKED, {"elements": [torch.ones(3), torch.ones(3)]}),
        (ASKED, {"elements": [torch.ones(3), 1.0]}),
        (ASKED, {"elements": None}),
    ],
)
def test_an_answer_of_another_form_is_refused(asked, answer):
    with pytest.raises(WireError):
        answered(asked, answer)


def test_a_gradient_that_does_not_arrive_is_an_answer():
    answer = {"elements": [torch.ones(3), None]}
    assert answered(ASKED, answer) == answer
