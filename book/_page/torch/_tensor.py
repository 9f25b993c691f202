"""Tensors and what autograd notes of them: nodes, what is saved, and how an operation is recorded."""

from ._base import (
    NotInPage,
    Size,
    Storage,
    bool_,
    broadcast,
    count,
    dense,
    fail,
    float32,
    float64,
    int64,
    nobodys,
    places,
    refuse,
)

LEAF = "a leaf Variable that requires grad is being used in an in-place operation."
TWICE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)


WHY = {  # why a view may not be written in place, by what made it
    "quiet": " Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving "
    "both the view and the inplace either both inside the no_grad block (if you don't want the inplace to be tracked) or "
    "both outside (if you want the inplace to be tracked).",
    "many": " This view is the output of a function that returns multiple views. Such functions do not allow the output "
    "views to be modified inplace. You should replace the inplace operation by an out-of-place one.",
    "custom": " This view was created inside a custom Function (or because an input was returned as-is) and the autograd "
    "logic to handle view+inplace would override the custom backward associated with the custom Function, leading to "
    "incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the custom Function.",
}


class Mode:
    """Whether operations are recorded, and how many nodes there have been."""

    enabled = True
    nodes = 0


class Saved:
    """A tensor that a node keeps, with the version that it had."""

    def __init__(self, t, node):
        self.t = t
        self.version = t._s.version
        self.own = node is not None and t._fn is node
        self.nr = t._nr

    def get(self, node):
        """Return the tensor, which must be as it was."""
        t = self.t
        if t._s.version != self.version:
            text = "one of the variables needed for gradient computation has been modified by an inplace operation: ["
            if not self.own:
                t._known()
            text += t.dtype._tensor + " [" + ", ".join([str(n) for n in t._shape]) + "]]"
            fn = node if self.own else t._fn
            if fn is not None:
                text += (
                    ", which is output "
                    + str(self.nr if self.own else t._nr)
                    + " of "
                    + fn.name().split("Backward")[0]
                    + ","
                )
            text += " is at version " + str(t._s.version) + "; expected version " + str(self.version) + " instead."
            text += " Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
            text += "torch.autograd.set_detect_anomaly(True)."
            fail(RuntimeError, text)
        return t


class Node:
    """A step of the graph: where gradients go, and how they get there."""

    _always = False  # whether it runs without any gradient
    _hooks = None  # what is called with the gradient of an output, as (number of the output, function)

    def __init__(self, name, inputs, run):
        self._name = name
        self._run = run
        self._edges = []
        for t in inputs:
            if t is None or not t.requires_grad:
                self._edges.append(None)
                continue
            to = edge(t)
            self._edges.append(None if to is None else (to, t._shape, t.dtype))
        self._saved = ()
        self._freed = False
        self._seq = Mode.nodes
        Mode.nodes += 1
        self._outputs = 1

    def name(self):
        """Return the name that torch gives it."""
        return self._name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        refuse("grad_fn." + name)

    def hooks(self):
        """Return the list of its hooks."""
        if self._hooks is None:
            self._hooks = []
        return self._hooks

    def _kept(self):
        if self._freed:
            fail(RuntimeError, TWICE)
        return [s if s is None or not isinstance(s, Saved) else s.get(self) for s in self._saved]

    def _free(self):
        if self._saved:
            self._saved = ()
            self._freed = True

    def _apply(self, grads):
        needs = [e is not None for e in self._edges]
        out = self._run(grads[0], self._kept(), needs)
        return out if isinstance(out, tuple) else (out,)


class Accumulate(Node):
    """Where a leaf gets its gradient."""

    def __init__(self, t):
        self._t = t
        self._name = "torch::autograd::AccumulateGrad"
        self._edges = []
        self._saved = ()
        self._freed = False
        self._seq = 1 << 29
        self._outputs = 1
        self.after = []  # hooks called with the tensor when its gradient was collected

    def _apply(self, grads):
        t = self._t
        g = grads[0]
        if g is None:
            return ()
        if t.grad is None:
            t._grad = clone(g) if Mode.enabled else g._copy()
        elif Mode.enabled:
            t._grad = t.grad + g
        else:
            t.grad.add_(g)
        for _, hook in list(self.after):
            out = hook(t)
            if out is not None:
                fail(TypeError, "expected Variable, but hook returned '" + type(out).__name__ + "'")
        return ()


def edge(t):
    """Return the node and the number to which the gradient of t goes; None where it goes nowhere."""
    t._known()
    if t._fn is not None:
        return (t._fn, t._nr)
    if not t._leaf:  # a view made without gradients, of a tensor that wants them
        return None
    if t._acc is None:
        t._acc = Accumulate(t)
    return (t._acc, 0)


def record(out, name, inputs, saves, run):
    """Note how the gradient of out gets to the inputs, where one of them wants it.

    ``run(g, saved, needs)`` returns a gradient for each input; ``saves`` are tensors, None, or what needs no version.
    """
    if Mode.enabled and out.dtype.is_floating_point:
        for t in inputs:
            if t is not None and t.requires_grad:
                node = Node(name, inputs, run)
                out._fn = node
                out._nr = 0
                node._saved = [Saved(s, node) if isinstance(s, Tensor) else s for s in saves]
                return out
    return out


class Tensor:
    """Numbers of one dtype in a shape."""

    def __init__(self, *args, **kwargs):
        refuse("torch.Tensor(...)")

    def _fill(self, storage, shape, strides, offset, kind):
        self._s = storage
        self._shape = shape
        self._st = strides
        self._o = offset
        self.dtype = kind
        self._leaf = False  # requires_grad was set
        self._fn = None
        self._nr = 0
        self._acc = None
        self._grad = None
        self._base = None  # of a view: what it shows
        self._seen = 0  # the version of which a view knows the history
        self._odd = False  # how it lies in memory may differ from torch
        self._number = False  # a Python number
        self._custom = None  # of a view that torch lets no one write into: how it was made, a key of WHY, or "odd"
        return self

    # --- what it is

    @property
    def shape(self):
        """Return the sizes."""
        return Size(self._shape)

    @property
    def ndim(self):
        """Return the number of dimensions."""
        return len(self._shape)

    @property
    def requires_grad(self):
        """Return whether a gradient is wanted."""
        return self._leaf or self._fn is not None or (self._base is not None and self._base.requires_grad)

    @requires_grad.setter
    def requires_grad(self, value):
        self.requires_grad_(value)

    @property
    def grad_fn(self):
        """Return the node that made it."""
        self._known()
        return self._fn

    @property
    def is_leaf(self):
        """Return whether no node made it."""
        self._known()
        return self._fn is None

    @property
    def grad(self):
        """Return the gradient that was collected."""
        return self._grad

    @grad.setter
    def grad(self, value):
        if value is not None:
            if not isinstance(value, Tensor):
                fail(
                    TypeError,
                    "assigned grad expected to be a Tensor or None but got grad of type " + type(value).__name__,
                )
            if value is self or value.dtype is not self.dtype or value._shape != self._shape:
                refuse("this .grad")
        self._grad = value

    @property
    def _version(self):
        """Return how often it was written in place."""
        return self._s.version

    @property
    def T(self):
        """Return the transpose of a matrix."""
        if len(self._shape) != 2:
            refuse("Tensor.T of what is no matrix")
        return self.permute(1, 0)

    @property
    def mT(self):
        """Return it with the last two dimensions swapped."""
        if len(self._shape) < 2:
            refuse("Tensor.mT of what is no matrix")
        return self.transpose(-2, -1)

    @property
    def itemsize(self):
        """Return the bytes of an element."""
        return self.dtype.itemsize

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if nobodys("Tensor", name):
            fail(AttributeError, "'Tensor' object has no attribute '" + name + "'")
        refuse("Tensor." + name)

    def _known(self):
        """Do what torch does when it asks for the history of a view that was written in place since it was made."""
        base = self._base
        if base is None or self._seen == self._s.version or (self._fn is None and not base.requires_grad):
            return
        if self._custom is not None:
            self._forbidden("its base or another view of its base has been modified inplace")
        if base._rewritten > self._seen:
            refuse("a view of a tensor that was then changed in place with a gradient")
        if self._fn is None:
            refuse("a view made before its base wanted a gradient")
        old = self._fn
        self._fn = Node("AsStridedBackward0", (), old._run)
        self._fn._edges = old._edges
        self._seen = self._s.version

    def _forbidden(self, what, name=None):
        """Raise what torch says of a view written in place that it cannot give a history; name is of a part of it."""
        if self._custom == "odd":
            refuse("in-place change of a reshaped tensor that may be a copy")
        if self._fn is None and name is None:
            text = "A view was created in no_grad mode and " + what + " with grad mode enabled."
        else:
            at = self._place or self._nr if name is None else 0
            name = (name or self._fn.name()).split("Backward")[0]
            if self._custom == "quiet":
                text = " is a view of a view which was created in no_grad mode and " + what + " with grad mode enabled."
            else:
                text = " is a view and " + what + "."
            text = "Output " + str(at) + " of " + name + text
        fail(RuntimeError, text + WHY[self._custom])

    _made = None  # what made a view
    _place = 0  # among several views that one call returned
    _void = False  # zeros that count for nothing in a sum of gradients
    _rewritten = -1  # the version at which an operation with a gradient last wrote into it

    # --- its numbers

    def _contiguous(self):
        return self._st == dense(self._shape) or count(self._shape) < 2 or _lies(self._shape, self._st)

    def _places(self):
        return places(self._shape, self._st, self._o)

    def _flat(self):
        """Return the numbers in order; not to be written into."""
        data = self._s.data
        if self._o == 0 and len(data) == count(self._shape) and self._contiguous():
            return data
        return [data[i] for i in self._places()]

    def _copy(self):
        out = make(list(self._flat()), self._shape, self.dtype)
        out._odd = strange(self)
        return out

    def _write(self, values):
        """Write into the storage, and count it."""
        data = self._s.data
        n = count(self._shape)
        if self._o == 0 and len(data) == n and self._contiguous():
            data[:] = values
        else:
            for i, v in zip(self._places(), values):
                data[i] = v
        self._s.version += 1


def _lies(shape, strides):
    """Return whether strides are those of a contiguous tensor, where sizes of 1 do not count."""
    step = 1
    for i in range(len(shape) - 1, -1, -1):
        if shape[i] != 1:
            if strides[i] != step:
                return False
            step *= shape[i]
    return True


def strange(t):
    """Return whether what is computed from t may lie in memory as torch alone knows."""
    return t._odd or (len(t._shape) > 1 and not t._contiguous())


def blank():
    """Return a Tensor without anything."""
    return object.__new__(Tensor)


def make(values, shape, kind):
    """Return a new tensor of these numbers, which are of that dtype already."""
    return blank()._fill(Storage(values), shape, dense(shape), 0, kind)


def number(value):
    """Return a Python number as a tensor that counts less than others for the dtype."""
    if isinstance(value, bool):
        kind = bool_
    elif isinstance(value, int):
        kind = int64
    elif isinstance(value, float):
        kind = float64
    else:
        raise NotInPage("a " + type(value).__name__ + " is no number for the page's torch: run this in Jupyter")
    out = make([value], (), kind)
    out._number = True
    return out


def clone(t):
    """Return a copy, with its history."""
    return record(t._copy(), "CloneBackward0", (t,), (), lambda g, saved, needs: g)


__all__ = [
    "LEAF",
    "Accumulate",
    "Mode",
    "Node",
    "Saved",
    "Tensor",
    "broadcast",
    "clone",
    "edge",
    "float32",
    "make",
    "number",
    "record",
]
