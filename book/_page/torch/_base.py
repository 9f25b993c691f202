"""What a tensor is made of: its type, its numbers, how they lie; and how to refuse what is not here.

The rule of this small torch: it may refuse, never differ. What it lacks raises `NotInPage`.
"""

import math
from array import array

try:
    from ._names import NAMES  # what torch has, by owner; written by tools.page_python
except ImportError:  # where the files of the page are imported as they lie
    NAMES = {}


class NotInPage(Exception):
    """What the page's torch lacks and torch may have."""


_raised = [None]


def refuse(what):
    """Raise the error of what is not here."""
    raise NotInPage(what + " is not in the page's torch: run this in Jupyter")


def fail(kind, text):
    """Raise an error that torch raises too."""
    _raised[0] = kind(text)
    raise _raised[0]


def public(name, f):
    """Return f for callers outside: what it did not foresee is refused, and its own errors pass."""

    def called(*args, **kwargs):
        try:
            return f(*args, **kwargs)
        except Exception as error:
            if isinstance(error, (NotInPage, MemoryError)) or error is _raised[0]:
                raise
        refuse(name + " in this form")

    return called


def nobodys(where, name):
    """Return whether torch has no such name either."""
    return where in NAMES and not name.startswith("_") and " " + name + " " not in NAMES[where]


def lacking(where):
    """Return a module's __getattr__."""

    def missing(name):
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        if nobodys(where, name):
            fail(AttributeError, "module '" + where + "' has no attribute '" + name + "'")
        refuse(where + "." + name)

    return missing


class dtype:
    """A type of numbers."""

    def __init__(self, name, order, floating, tensor, short, itemsize):
        self._name = name
        self._order = order
        self.is_floating_point = floating
        self.is_complex = False
        self._tensor = tensor
        self._short = short
        self.itemsize = itemsize

    def __repr__(self):
        return "torch." + self._name

    def __str__(self):
        return "torch." + self._name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        refuse("dtype." + name)


bool_ = dtype("bool", 0, False, "torch.BoolTensor", "Bool", 1)
int64 = dtype("int64", 1, False, "torch.LongTensor", "Long", 8)
float32 = dtype("float32", 2, True, "torch.FloatTensor", "Float", 4)
float64 = dtype("float64", 3, True, "torch.DoubleTensor", "Double", 8)
DTYPES = (bool_, int64, float32, float64)


class Size:
    """A shape. No tuple, as in torch: MicroPython's arithmetic on what inherits from tuple is not safe."""

    def __init__(self, sizes=()):
        self._n = tuple(sizes)

    def __repr__(self):
        return "torch.Size([" + ", ".join([str(n) for n in self._n]) + "])"

    def __str__(self):
        return self.__repr__()

    def __len__(self):
        return len(self._n)

    def __iter__(self):
        return iter(self._n)

    def __getitem__(self, at):
        return Size(self._n[at]) if isinstance(at, slice) else self._n[at]

    def __eq__(self, other):
        if isinstance(other, Size):
            return self._n == other._n
        return isinstance(other, tuple) and self._n == other

    def __ne__(self, other):
        return not self.__eq__(other)

    def __hash__(self):
        return hash(self._n)

    def __bool__(self):
        return bool(self._n)

    def __contains__(self, n):
        return n in self._n

    def __add__(self, other):
        return Size(self._n + tuple(other))

    def __radd__(self, other):
        return Size(tuple(other) + self._n)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        refuse("Size." + name)

    def numel(self):
        """Return how many elements a tensor of this shape has."""
        return count(self._n)


class Storage:
    """Numbers that one or more tensors show, and how often they were written in place."""

    def __init__(self, data):
        self.data = data
        self.version = 0


def count(shape):
    """Return the number of elements of a shape."""
    n = 1
    for size in shape:
        n *= size
    return n


def dense(shape):
    """Return the strides of a contiguous tensor."""
    out = []
    step = 1
    for size in reversed(shape):
        out.append(step)
        step *= max(size, 1)
    out.reverse()
    return tuple(out)


def places(shape, strides, offset):
    """Return where the elements of a tensor lie in its storage, in order."""
    out = [offset]
    for size, stride in zip(shape, strides):
        if size == 1:
            continue
        steps = [i * stride for i in range(size)]
        out = [p + q for p in out for q in steps]
    return out


def fit(values, kind):
    """Return a list of numbers as a dtype holds them."""
    if kind is float32:
        return list(array("f", values))
    return values


def to_long(value):
    """Return a number as int64 holds it."""
    if isinstance(value, float):
        if value != value or value in (math.inf, -math.inf) or abs(value) >= 9.2e18:
            refuse("a number that int64 cannot hold")
        return int(value)
    return int(value)


def cast(values, old, new):
    """Return numbers of one dtype as those of another."""
    if old is new:
        return list(values)
    if new is bool_:
        return [v != 0 for v in values]
    if new is int64:
        return [to_long(v) for v in values]
    if old.is_floating_point and new is float64:
        return list(values)
    return fit([float(v) for v in values], new)


def broadcast(shapes):
    """Return the shape to which all shapes broadcast."""
    n = max([len(s) for s in shapes])
    out = [1] * n
    for s in shapes:
        for i in range(len(s) - 1, -1, -1):
            size = s[i]
            at = n - len(s) + i
            if size != 1:
                if out[at] != 1 and out[at] != size:
                    a, b = out[at], size
                    fail(
                        RuntimeError,
                        "The size of tensor a ("
                        + str(a)
                        + ") must match the size of tensor b ("
                        + str(b)
                        + ") at non-singleton dimension "
                        + str(at),
                    )
                out[at] = size
    return tuple(out)


def wrap_dim(dim, n):
    """Return a dimension counted from the front."""
    if isinstance(dim, bool) or not isinstance(dim, int):
        refuse("a dimension that is no int")
    m = max(n, 1)
    if not -m <= dim < m:
        fail(
            IndexError,
            "Dimension out of range (expected to be in range of ["
            + str(-m)
            + ", "
            + str(m - 1)
            + "], but got "
            + str(dim)
            + ")",
        )
    return dim + m if dim < 0 else dim


def higher(a, b):
    """Return the dtype of two that holds both kinds."""
    if a is None:
        return b
    if b is None or a._order >= b._order:
        return a
    return b


def combine(first, second):
    """Return what tensors of the dtype first make of others that count less."""
    if first is None:
        return second
    if second is None or first.is_floating_point:
        return first
    if first is bool_ or second.is_floating_point:
        return higher(first, second)
    return first
