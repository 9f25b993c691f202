"""Custom Functions: forward, what it keeps, and the backward that the engine calls."""

from ._base import fail, refuse
from ._ops import alias, zeros_like
from ._tensor import Mode, Node, Saved, Tensor, edge, make

CTX = (
    "save_for_forward", "next_functions", "register_hook", "register_prehook", "metadata", "apply", "dirty_tensors",
    "non_differentiable", "to_save", "materialize_grads", "maybe_clear_saved_tensors", "raw_saved_tensors",
    "saved_for_forward", "apply_jvp", "clear_saved_tensors_on_access", "boxed_grads_call", "apply_boxed", "vjp",
    "forward", "backward", "setup_context", "jvp", "vmap", "generate_vmap_rule", "saved_variables",
)  # fmt: skip


class FunctionNode(Node):
    """The ctx of a Function, which is its node."""

    _class = None
    _always = True

    def __init__(self):
        self._edges = []
        self._saved = ()
        self._freed = False
        self._seq = Mode.nodes
        Mode.nodes += 1
        self._outputs = 0
        self._to_save = None
        self._dirty = ()
        self._fixed = ()
        self._materialize = True
        self._made = False
        self.needs_input_grad = ()

    def name(self):
        """Return the name that torch gives it."""
        return type(self).__name__

    def __getattr__(self, name):
        if name in CTX or name.startswith("_"):
            if name.startswith("__"):
                raise AttributeError(name)
            refuse("ctx." + name)
        fail(AttributeError, "'" + type(self).__name__ + "' object has no attribute '" + name + "'")

    def save_for_backward(self, *tensors):
        """Keep tensors for backward."""
        self._to_save = tensors

    def mark_dirty(self, *tensors):
        """Say which inputs were changed in place."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors):
        """Say which outputs have no gradient."""
        self._fixed = tensors

    def set_materialize_grads(self, value):
        """Say whether a missing gradient is zeros or None."""
        self._materialize = bool(value)

    @property
    def saved_tensors(self):
        """Return what was saved, if nothing was written into it since."""
        if not self._made:
            return ()
        return tuple(self._kept())

    def _apply(self, grads):
        given = []
        for g, (shape, kind) in zip(grads, self._shapes):
            if g is None and self._materialize and shape is not None:
                g = make([0.0] * _count(shape), shape, kind)
            given.append(g)
        owner = self._class
        f = getattr(owner, "backward", None)
        if f is None or f is Function.backward:
            fail(
                NotImplementedError,
                "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
                "backward mode AD.",
            )
        out = f(self, *given)
        if isinstance(out, list):
            fail(RuntimeError, "expected Variable or None (got list)")
        if not isinstance(out, tuple):
            out = (out,)
        n = len(self.needs_input_grad)
        if len(out) > n:
            for extra in out[n:]:
                if extra is not None:
                    self._wrong_number(n, len(out))
            out = out[:n]
        if len(out) != n:
            self._wrong_number(n, len(out))
        for i, g in enumerate(out):
            if g is None:
                continue
            if not self._tensors[i]:
                fail(
                    RuntimeError,
                    "function "
                    + self.name()
                    + " returned a gradient different than None at position "
                    + str(i + 1)
                    + ", but the corresponding forward input was not a Variable",
                )
            if not isinstance(g, Tensor):
                fail(RuntimeError, "expected Variable or None (got " + type(g).__name__ + ")")
        return out

    def _wrong_number(self, expected, got):
        fail(
            RuntimeError,
            "function "
            + self.name()
            + " returned an incorrect number of gradients (expected "
            + str(expected)
            + ", got "
            + str(got)
            + ")",
        )


def _count(shape):
    n = 1
    for size in shape:
        n *= size
    return n


class Delayed(Node):
    """A node that raises when it is reached."""

    def __init__(self, t, text):
        self._name = "Error"
        self._text = text
        self._edges = [(edge(t), t._shape, t.dtype)]
        self._saved = ()
        self._freed = False
        self._seq = Mode.nodes
        Mode.nodes += 1
        self._outputs = 1

    def _apply(self, grads):
        fail(RuntimeError, self._text)


def once_differentiable(f):
    """Let the gradient of f be computed once, and raise where it is differentiated again."""

    def once(ctx, *args):
        was = Mode.enabled
        Mode.enabled = False
        try:
            outputs = f(ctx, *args)
        finally:
            Mode.enabled = was
        if not Mode.enabled:
            return outputs
        if not any([isinstance(a, Tensor) and a.requires_grad for a in args]):
            return outputs
        out = []
        for t in outputs if isinstance(outputs, tuple) else (outputs,):
            if t is not None:
                shown = t.detach()
                shown.requires_grad_()
                node = Delayed(
                    shown, "trying to differentiate twice a function that was marked with @once_differentiable"
                )
                t = alias(shown, "Error")
                t._base = None
                t._fn, t._nr = node, 0
            out.append(t)
        return tuple(out) if isinstance(outputs, tuple) else out[0]

    return once


def _takes(f):
    """Return how many positional arguments f takes; None where it takes any number, or where nobody can say."""
    code = getattr(f, "__code__", None)
    if hasattr(code, "co_argcount"):
        return None if code.co_flags & 4 else code.co_argcount
    try:
        f(*([None] * 60), **{"no such argument": 1})
    except TypeError as error:
        text = str(error)
        if "positional arguments but" in text:
            return int(text.split(" takes ")[1].split(" ")[0])
    except Exception:
        return None
    return None


_nodes = {}


def _node_of(owner):
    key = id(owner)
    if key not in _nodes:
        _nodes[key] = (owner, type(owner.__name__ + "Backward", (FunctionNode,), {"_class": owner}))
    return _nodes[key][1]()


class Function:
    """A step with a forward and a backward of one's own."""

    @staticmethod
    def forward(*args):
        """Compute the output; to be written."""
        fail(NotImplementedError, "You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Keep what backward needs; to be written, or forward takes ctx."""
        fail(NotImplementedError, "setup_context is not implemented.")

    @staticmethod
    def backward(ctx, *grads):
        """Return a gradient for each input; to be written."""
        fail(
            NotImplementedError,
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD.",
        )

    @classmethod
    def apply(cls, *args, **kwargs):
        """Run forward and note backward."""
        for name in ("vjp", "boxed_grads_call", "clear_saved_tensors_on_access"):
            if getattr(cls, name, None):
                refuse("a Function with " + name)
        apart = cls.setup_context is not Function.setup_context
        if kwargs:
            refuse("apply with a named argument")
        if apart:
            takes = _takes(cls.forward)
            if takes is not None and takes > len(args):
                refuse("apply with an argument left out")
        ctx = _node_of(cls)
        inputs = [a if isinstance(a, Tensor) else None for a in args]
        ctx._tensors = [t is not None for t in inputs]
        ctx.needs_input_grad = tuple([t is not None and t.requires_grad for t in inputs])
        active = Mode.enabled and any(ctx.needs_input_grad)
        was = Mode.enabled
        if active:
            ctx._edges = [(edge(t), t._shape, t.dtype) if t is not None and t.requires_grad else None for t in inputs]
        Mode.enabled = False
        try:
            if apart:
                result = cls.forward(*args)
                cls.setup_context(ctx, tuple(args), result)
            else:
                result = cls.forward(ctx, *args)
        finally:
            Mode.enabled = was
        single = not isinstance(result, tuple)
        if single and isinstance(result, list) and any([isinstance(r, Tensor) for r in result]):
            refuse("a list of tensors as output")
        outputs = [result] if single else list(result)
        ctx._outputs = len(outputs)
        _check(ctx, outputs)
        final = [_wrap(ctx, cls, t, i, inputs, active) if isinstance(t, Tensor) else t for i, t in enumerate(outputs)]
        ctx._shapes = [(t._shape, t.dtype) if isinstance(t, Tensor) else (None, None) for t in final]
        saved = []
        kept = ctx._to_save or ()
        for i, t in enumerate(kept):
            if not active:
                break
            if t is not None and not isinstance(t, Tensor):
                fail(
                    TypeError,
                    "save_for_backward can only save variables, but argument "
                    + str(i)
                    + " is of type "
                    + type(t).__name__,
                )
            saved.append(None if t is None else Saved(t, ctx))
        if active:
            ctx._saved = saved
        ctx._to_save = None
        ctx._made = True
        return final[0] if single else tuple(final)


def _check(ctx, outputs):
    for t in ctx._fixed:
        if not isinstance(t, Tensor):
            refuse("mark_non_differentiable of what is no tensor")
    for t in ctx._dirty:
        if not isinstance(t, Tensor):
            refuse("mark_dirty of what is no tensor")
        if not any([t is o for o in outputs]):
            fail(
                RuntimeError,
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that "
                "are modified inplace must all be outputs of the Function.",
            )


def _wrap(ctx, owner, t, i, inputs, active):
    is_input = any([t is x for x in inputs])
    dirty = any([t is x for x in ctx._dirty])
    fixed = any([t is x for x in ctx._fixed]) or not t.dtype.is_floating_point
    if dirty and not is_input:
        refuse("mark_dirty of what is no input")
    if not active:
        if is_input and not dirty:
            t = _shown(t, i, owner)
            t._fn = None
        elif dirty and any(ctx.needs_input_grad):
            refuse("mark_dirty without gradients")
        elif t._base is not None and any(ctx.needs_input_grad):
            refuse("a view as output without gradients")
        return t
    if fixed:
        if is_input or t.requires_grad:
            refuse("mark_non_differentiable of an input")
        return t
    if dirty:
        if t._leaf:
            fail(RuntimeError, "a leaf Variable that requires grad has been used in an in-place operation.")
        if t._base is not None:
            refuse("mark_dirty of a view")
        t._fn, t._nr = ctx, i
        t._rewritten = t._s.version
        return t
    if is_input:
        t = _shown(t, i, owner)
    elif t.requires_grad:
        refuse("an output that has a history of its own")
    elif t._base is not None:
        t._custom = (owner.__name__, i)
    t._fn, t._nr = ctx, i
    return t


def _shown(t, i, owner):
    was = Mode.enabled
    Mode.enabled = False
    out = alias(t, "ViewBackward0")
    Mode.enabled = was
    out._custom = (owner.__name__, i)
    return out


__all__ = ["Function", "once_differentiable", "zeros_like"]
