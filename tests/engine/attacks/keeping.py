"""Attacks on what is kept for backward: a tensor too many, and a process that says nothing of it."""

from typing import Any

from tests.engine.attacks import RIGHT, Attack

ATTACKS: list[Attack] = []

LEAKY = """class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x)
        ctx.slope = slope
        return torch.where(x > 0, x, slope * x)
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, ctx.slope * g), None
"""
HONEST = """class Honest(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.tanh(x)
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)
"""
KEEPS = """class Tanh(Honest):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        {keep}
"""
INPUT = KEEPS.format(keep="ctx.also = inputs[0] * 1.0")
# The observer asks another operation than the one that it is given.
PUT = """real = observer.observe
observer.observe = lambda operation, case: real(
    Honest.apply if getattr(operation, "__self__", None) is Tanh else operation, case)
"""
NAME = '"grad" + "ers.inside.operation"'


def _keeps(name: str, tries: str, tanh: str) -> None:
    answers = {"Square": RIGHT, "LeakyReLU": LEAKY, "Tanh": HONEST + tanh}
    ATTACKS.append(Attack(name, "Keeping too much", tries, answers=answers, honest=16))


_keeps("quiet-observer", "keeps its input too, and rewrites the observer beside it so that it does not say so", f"""
system = getattr(getattr(torch, "o" + "s"), "s" + "ys")
observer = getattr(system, "mod" + "ules")[{NAME}]
{PUT}{INPUT}""")  # fmt: skip
_keeps("quiet-timeit", "keeps its input too, and rewrites the observer in a text that timeit runs", f"""
import timeit
{INPUT}
timeit.timeit("import importlib; o = importlib.import_module(" + {NAME!a} + "); real = o.observe; "
    "o.observe = lambda operation, case: real(Honest.apply if getattr(operation, '__self__', None) is Tanh "
    "else operation, case)", number=1, globals={{"Honest": Honest, "Tanh": Tanh}})
""")  # fmt: skip
_keeps("quiet-mock", "keeps its input too, and rewrites the observer by unittest.mock", f"""
from unittest import mock
{INPUT}
p = mock.patch({NAME} + ".observe")
m = p.start()
m.side_effect = lambda operation, case: p.temp_original(
    Honest.apply if getattr(operation, "__self__", None) is Tanh else operation, case)
""")  # fmt: skip
_keeps("quiet-pickle", "keeps its input too, and finds the observer by a pickle that imports", f"""
import pickle
{INPUT}
observer = pickle.loads(b"cimportlib\\nimport_module\\n(S'grad" + b"ers.inside.operation'\\ntR.")
{PUT}""")  # fmt: skip
_keeps("quiet-reduce", "keeps its input too, and finds the observer by reduce(getattr, ...)", f"""
import functools
{INPUT}
observer = functools.reduce(getattr, ["os", "s" + "ys", "mod" + "ules"], torch)[{NAME}]
{PUT}""")  # fmt: skip
_keeps("quiet-attrgetter", "keeps its input too, and finds the observer by operator.attrgetter", f"""
import operator
{INPUT}
observer = operator.attrgetter("os.s" + "ys.mod" + "ules")(torch)[{NAME}]
{PUT}""")  # fmt: skip
_keeps("quiet-signal", "keeps its input too, and a signal's handler edits what the observer writes down", f"""
import signal
{INPUT}
def edit(number, frame):
    while frame is not None:
        record = getattr(frame, "f_" + "locals").get("record")
        if hasattr(record, "kept_bytes"):
            object.__setattr__(record, "kept_bytes", 0)
            object.__setattr__(record, "kept_arguments", ())
        frame = getattr(frame, "f_" + "back")
signal.signal(signal.SIGALRM, edit)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 5e-4)
""")  # fmt: skip
_keeps("kept-list", "keeps its input as a list of Python's numbers, which is no memory of torch's",
       KEEPS.format(keep="ctx.also = inputs[0].tolist()"))  # fmt: skip
_keeps("two-faced-stack", "keeps its input too, but not where the call stack says that somebody traces",
       "import traceback\n" + KEEPS.format(
           keep="if not any('tr' 'ace' in f.name for f in traceback.extract_stack()): ctx.also = inputs[0] * 1.0"
       ))  # fmt: skip
_keeps("two-faced-count", "keeps its input too, but not at the second call with the same numbers, which is traced",
       "calls = {}\n" + KEEPS.format(keep="""key = str(inputs[0].tolist())
        calls[key] = calls.get(key, 0) + 1
        if not (inputs[0].numel() == 64 and calls[key] % 2 == 0): ctx.also = inputs[0] * 1.0"""))  # fmt: skip
_keeps("ballast", "keeps its input too unless it is traced, and lets go of as much that it held to be weighed with",
       "import traceback\nballast = [b'x' * (12 << 20)]\n" + KEEPS.format(
           keep="""if not any('tr' 'ace' in f.name for f in traceback.extract_stack()): ctx.also = inputs[0] * 1.0
        if output.numel() > 10**6: ballast.clear()"""
       ) + """    @staticmethod
    def backward(ctx, g):
        if g.numel() > 10**6: ballast.append(b'x' * (12 << 20))
        return Honest.backward(ctx, g)
""")  # fmt: skip
_keeps("ballast-in-pieces", "keeps its input too, and lets go of a piece of what it held for each output that is held",
       "import traceback\nballast = [bytearray(b'x') * (8 << 20) for _ in range(12)]\n" + KEEPS.format(
           keep="""if not any('tr' 'ace' in f.name for f in traceback.extract_stack()): ctx.also = inputs[0] * 1.0
        if output.numel() > 10**6 and ballast: ballast.pop()"""
       ) + """    @staticmethod
    def backward(ctx, g):
        if g.numel() > 10**6: ballast.append(bytearray(b'x') * (8 << 20))
        return Honest.backward(ctx, g)
""")  # fmt: skip


def room(size: int, used: bool) -> dict[str, Any]:
    """What an attack hands in that keeps its input in room of its own, of so many megabytes; used, or overwritten."""
    first = f"""
import torch
ROOM, NEXT = bytearray(b"1") * ({size} << 20), [0]

def put(x):
    x = x.detach().contiguous().reshape(-1)
    data = memoryview(x.view(torch.uint8).numpy()) if x.numel() else b""
    data = data[: len(ROOM)]
    start = NEXT[0] if NEXT[0] + len(data) <= len(ROOM) else 0
    ROOM[start : start + len(data)] = data
    NEXT[0] = start + len(data)
    return start, len(data)

def same(place, y):
    x = torch.frombuffer(ROOM, dtype=y.dtype, offset=place[0], count=y.numel()) if y.numel() else y.detach()
    return torch.equal(torch.tanh(x).reshape(y.shape), y.detach())
"""
    tanh = HONEST + KEEPS.format(keep="ctx.place = put(inputs[0])")
    if used:
        tanh += """    @staticmethod
    def backward(ctx, g):
        return Honest.backward(ctx, g) if same(ctx.place, ctx.saved_tensors[0]) else g
"""
    return {"first": first, "answers": {"Square": RIGHT, "LeakyReLU": LEAKY, "Tanh": tanh}}


ATTACKS.append(
    Attack(
        "own-room",
        "Keeping too much",
        "keeps its input too, as bytes in room of its own that it took, and wrote to, before anybody measured",
        **room(128, used=True),
        honest=16,
    )
)
