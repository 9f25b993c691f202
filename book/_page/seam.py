"""What the graders' own code rests on in the page: torch and Python as far as it needs them.

`tools.page_graders` lists which names come from here, and why. What a page cannot have (settings of torch, memory,
helpers, a random stream) is said to be as it was.
"""

import math
from collections import namedtuple
from contextlib import contextmanager, nullcontext

import torch as _torch
from torch import Tensor

try:
    import js  # the browser's regular expressions: MicroPython has a part of Python's alone
except ImportError:  # CPython, in a test
    js = None

try:
    from cell import worded  # Python's words for an error, where the page's Python has others
    from torch._base import NotInPage
    from torch._function import STAGE  # which part of a Function ran last
except ImportError:  # a host's own torch
    STAGE = None

    class NotInPage(Exception):
        """Nothing raises it."""

    def worded(text):
        """Return the text of an error."""
        return text


class Refused(BaseException):
    """The page's torch lacks what an answer needs. It passes by all that catches an answer's errors."""


# --------------------------------------------------------------------------------------------------------------- Python


class partial:
    """functools.partial, of positions."""

    def __init__(self, function, *args):
        self.function = function
        self.args = args

    def __call__(self, *more):
        return self.function(*self.args, *more)


def cache(function):
    """Keep what a function of things that can be told apart has returned."""
    kept = {}

    def once(*args):
        if args not in kept:
            kept[args] = function(*args)
        return kept[args]

    return once


def reduce(function, values):
    """functools.reduce, of one value or more."""
    total = values[0]
    for value in values[1:]:
        total = function(total, value)
    return total


def replace(thing, **changed):
    """dataclasses.replace."""
    for name in thing._fields:
        if name not in changed:
            changed[name] = getattr(thing, name)
    return type(thing)(**changed)


def _joined(*parts):
    return "".join([part if isinstance(part, str) else str(part) for part in parts])


def _formatted(value, form):
    return ("{:" + form + "}").format(value)


def _float(value):
    """Return what Python's float makes, of a tensor too."""
    return value.item() if isinstance(value, Tensor) else float(value)


def _added(a, b):
    return a + b


def _every(values, step):
    """Return every so-many-th of a tuple or a list, from the first."""
    return [values[i] for i in range(0, len(values), step)]


def _item_of(values):
    """Return what gives the item at a place: MicroPython's lists have no __getitem__ to be handed on."""
    return lambda i: values[i]


def _once(values):
    out = []
    for value in values:
        if value not in out:
            out.append(value)
    return out


def _removeprefix(text, start):
    return text[len(start) :] if text.startswith(start) else text


class _Match:
    def __init__(self, found):
        self._found = [None if repr(found[i]) == "<undefined>" else found[i] for i in range(found.length)]

    def __getitem__(self, i):
        return self._found[i]

    def groups(self):
        return tuple(self._found[1:])


class _Pattern:
    def __init__(self, pattern):
        self._pattern = pattern
        self._made = {}

    def _exec(self, pattern, text):
        if pattern not in self._made:
            self._made[pattern] = js.RegExp.new(pattern)
        found = self._made[pattern].exec(text)
        return None if found is None else _Match(found)

    def search(self, text):
        return self._exec(self._pattern, text)

    def fullmatch(self, text):
        return self._exec("^(?:" + self._pattern + ")$", text)


class _Expressions:
    """Python's re, of the browser's expressions."""

    S = "s"

    def compile(self, pattern):
        return _Pattern(pattern)

    def sub(self, pattern, put, text, flags=""):
        made = js.RegExp.new(pattern, "g" + flags)
        out, at = [], 0
        while at <= len(text):
            made.lastIndex = at
            found = made.exec(text)
            if found is None:
                break
            end = found.index + len(found[0])
            out.append(text[at : found.index] + put + (text[end : end + 1] if end == found.index else ""))
            at = max(end, found.index + 1)
        return "".join(out) + text[at:]


if js is None:
    import re
else:
    re = _Expressions()


# ---------------------------------------------------------------------------------------------------------------- torch


class _Torch:
    """The page's torch, and what of it the observer alone may use: a random stream that nobody draws from."""

    contiguous_format = None

    class default_generator:
        @staticmethod
        def manual_seed(seed):
            pass

    def __getattr__(self, name):
        return getattr(_torch, name)

    def rand(self, *shape, dtype=None):
        return _torch.tensor(0.0, dtype=_torch.float64)

    def get_rng_state(self):
        return _torch.tensor(0)

    def zeros_like(self, tensor, memory_format=None):
        return _torch.zeros_like(tensor)


for _name in ("float16", "bfloat16", "complex64", "complex128"):  # dtypes that no tensor of the page has
    setattr(_Torch, _name, "torch." + _name)
torch = _Torch()
STUDENT_ERRORS = (Exception, SystemExit)
WIDE = (_torch.float64, _torch.float32)


class WireError(Exception):
    """Nothing raises it: there is no wire."""


def inexact(tensor):
    """Return whether a tensor's numbers are of a kind that has a gradient."""
    return tensor.dtype in WIDE


CODES = {}  # by the identity of a case's tensor: the code that makes one like it, strides included


def copy_of(tensor):
    """Return the same numbers in memory of their own, without a graph; of a case's tensor, in the same strides."""
    code = CODES.get(id(tensor))
    return tensor.detach().clone() if code is None else made(code)


GLOBAL = {"torch": _torch, "inf": math.inf, "nan": math.nan}


def made(code):
    """Return the argument that code makes."""
    return eval(code, GLOBAL)


def tensors(args):
    """Return the tensors among arguments."""
    return [a for a in args if isinstance(a, Tensor)]


def _memory(tensor):
    """Return what tells the memory of a tensor from that of others."""
    return id(tensor._s) if STAGE else tensor.untyped_storage().data_ptr()


def _hooks_of(tensor):
    """Return whether hooks were left on a tensor's gradient."""
    if not STAGE:
        return tensor._backward_hooks or tensor._post_accumulate_grad_hooks
    node = tensor._acc if tensor._fn is None else tensor._fn
    return node is not None and bool(node._hooks or getattr(node, "after", None))


def _nodes(output):
    """Yield the nodes of the graph of a tensor, each once."""
    todo, seen = [output.grad_fn], []
    while todo:
        node = todo.pop()
        if node is not None and all([node is not known for known in seen]):
            seen.append(node)
            if STAGE:
                todo += [edge[0][0] for edge in node._edges if edge is not None]
            else:
                todo += [other for other, _ in node.next_functions]
            yield node


def _nonzero(tensor):
    """Return the places of a bool tensor that are true, as what `tolist` is asked of."""
    flat = tensor.reshape(-1).tolist()
    return _Places([_place(tuple(tensor.shape), i) for i, there in enumerate(flat) if there])


class _Places:
    def __init__(self, places):
        self._places = places

    def __getitem__(self, i):
        return _Place(self._places[i])


class _Place:
    def __init__(self, place):
        self._place = place

    def tolist(self):
        return list(self._place)


def _place(shape, i):
    index = []
    for size in reversed(shape):
        index.append(i % size)
        i //= size
    return tuple(reversed(index))


def _median(tensor):
    values = sorted(tensor.reshape(-1).tolist())
    return values[(len(values) - 1) // 2]


def _is_complex(tensor):
    return False


def _roll(tensor, shift):
    values = tensor.reshape(-1).tolist()
    return _torch.tensor(values[-shift:] + values[:-shift], dtype=tensor.dtype).reshape(tensor.shape)


# ----------------------------------------------------------------------------------------------------------- an answer


def lacks(error):
    """Return whether an error says that the page's torch has not what is asked."""
    return isinstance(error, NotInPage) or "not in the page's torch" in str(error)


def asked(function):
    """Return a function that raises Refused where it raises that the page lacks something."""

    def call(*args, **keywords):
        try:
            return function(*args, **keywords)
        except STUDENT_ERRORS as error:
            if lacks(error):
                raise Refused(worded(str(error))) from None
            raise

    return call


def first(text):
    """Return the first sentence of an error's text: torch's further ones the page's torch has not."""
    return text.strip().split("\n")[0].split(". ")[0][:300]


def told(stage, error):
    """Return an exception as data."""
    from graders_inside_records import Failure

    text = worded(str(error))
    if lacks(error):
        raise Refused(text)
    if not STAGE and stage == "forward":
        trace = error.__traceback__
        while trace is not None:
            stage = "setup_context" if trace.tb_frame.f_code.co_name == "setup_context" else stage
            trace = trace.tb_next
    return Failure(stage, type(error).__name__, first(text))


def _part(stage):
    """Return the part of a Function that ran last: torch runs setup_context after forward."""
    return STAGE[0] if STAGE and stage == "forward" else stage


ENGINE = {"grad": asked(_torch.autograd.grad)}


def _custom(node):
    """Return whether a node of the graph is a Function's."""
    try:
        return isinstance(node.needs_input_grad, tuple)
    except Exception:  # another node has no such thing
        return False


def _odd(value):
    """Return what a value is, or "" for a tensor: those of the page are dense, and on the CPU."""
    return "" if isinstance(value, Tensor) else type(value).__name__


def pristine():
    """Leave torch's settings: the page has none that an answer could change."""
    return nullcontext()


def ended_modes():
    """Name no mode that was left on."""
    return nullcontext([])


def settings():
    """Return torch's settings that a record names."""
    return {"the gradient mode": _torch.is_grad_enabled()}


def _provided(operation, case):
    return nullcontext()


def _disabled(case):
    return nullcontext()


def _noted():
    return nullcontext()


def surroundings(case, stage="forward"):
    """Return what a pass runs within: nothing, since cases with more are not in the page."""
    return nullcontext()


def _trace(operation, case, record):
    raise ValueError("the page does not look at memory")


class helpers:
    """What cases provide: nothing."""

    TALLY = {}


# ------------------------------------------------------------------------------------------------------------- a verdict

OUTSIDE = "outside"


def whole(task, mistake, look):
    """Return that a check counts as a whole: the page gives no points."""
    return True


def kept(points, own, of):
    """Return what is kept of a check's points."""
    return points


def link(verdict):
    """Return no place in the book: the reader is there."""
    return None
