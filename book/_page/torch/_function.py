"""Custom Functions: forward, what it keeps, and the backward that the engine calls."""

import sys

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


# ------------------------------------------------------------------------------------------------ with what forward is called

MICRO = sys.implementation.name == "micropython"
_kept = {}  # by the id of a function: itself, its title, and its parameters as (name, kind, whether it has a default, that)
_noted = {}  # by a function's name, where nothing better is known: its title and parameters; None where there were several


def keep(f, title, parameters):
    """Note the parameters of a function: MicroPython forgets their names."""
    _kept[id(f)] = (f, title, parameters)


def note(name, title, parameters):
    """Note the parameters of the functions of a name, each as (name, kind, source of its default or None)."""
    found = (title, parameters)
    _noted[name] = found if _noted.get(name, found) == found else None


def forget():
    """Forget what was noted by name, as a new cell begins."""
    _noted.clear()


def settle(names):
    """Keep what was noted by name for the functions that have these names now that a cell has run."""
    for name in _noted:
        f = names.get(name)
        if _noted[name] is not None and getattr(f, "__name__", None) == name and id(f) not in _kept:
            found = _by_name(name)
            if found is not None:
                keep(f, found[0], found[1])


def _by_name(name):
    """Return what is noted of a function's name; None where that is not all."""
    found = _noted.get(name)
    if found is None:
        return None
    out = []
    for each, kind, default in found[1]:
        if default is None:
            out.append((each, kind, False, None))
            continue
        try:
            out.append((each, kind, True, eval(default, {})))
        except Exception:  # it needs names
            return None
    return found[0], out


def _parameters(f):
    """Return the title of a function and its parameters; None where nobody knows them."""
    if id(f) in _kept:
        return _kept[id(f)][1:]
    if not MICRO:
        return _inspected(f)
    return _by_name(getattr(f, "__name__", None))


def _inspected(f):
    import inspect

    kinds = {
        "POSITIONAL_ONLY": "/",
        "POSITIONAL_OR_KEYWORD": "",
        "VAR_POSITIONAL": "*",
        "KEYWORD_ONLY": "k",
        "VAR_KEYWORD": "**",
    }
    try:
        found = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return None
    return getattr(f, "__qualname__", ""), [
        (p.name, kinds[p.kind.name], p.default is not p.empty, p.default) for p in found
    ]


def _wrong(text):
    fail(TypeError, text)


def _one_of(names):
    """Return the first of names that cannot be, in the order in which they were given, which MicroPython forgets."""
    if MICRO and len(names) > 1:
        refuse("apply with several named arguments that are wrong")
    return names[0]


def _bound(known, args, kwargs):
    """Return the arguments by position, as inspect.signature binds them, defaults filled in."""
    left = dict(kwargs)
    given = list(args)
    out = []
    named = False  # whether the arguments by position are used up
    any_name = False
    only_named = []
    for name, kind, has, default in known:
        if kind == "**":
            any_name = True
        elif kind == "*":
            out += given
            given = []
            named = True
        elif given and not named:
            if kind == "k":
                _wrong("too many positional arguments")
            if name in left and kind != "/":
                _wrong("multiple values for argument " + repr(name))
            out.append(given.pop(0))
        elif name in left and kind == "/":
            _wrong(repr(name) + " parameter is positional only, but was passed as a keyword")
        elif name not in left and not has:
            _wrong("missing a required argument: " + repr(name))
        elif kind == "k":
            only_named.append(name)
            left.pop(name, None)
        elif name in left:
            out.append(left.pop(name))
        else:
            out.append(default)
    if given:
        _wrong("too many positional arguments")
    if left and not any_name:
        _wrong("got an unexpected keyword argument " + repr(_one_of(list(left))))
    if only_named or left:  # what is only named, torch cannot pass on
        _unexpected(only_named[0] if only_named else _one_of(list(left)))
    return out


def _unexpected(name):
    _wrong("forward() got an unexpected keyword argument '" + name + "'")


def _placed(known, args, kwargs):
    """Return the arguments of a forward that takes ctx by position, as torch places those that were named."""
    names = [name for name, kind, _, _ in known if kind in ("", "/")][1:]
    wrong = [name for name in kwargs if name not in names or names.index(name) < len(args)]
    if wrong:
        name = _one_of(wrong)
        if name in names:
            _wrong("forward() got multiple values for argument '" + name + "'")
        _unexpected(name)
    out = list(args)
    for i in range(len(args), max([names.index(name) for name in kwargs]) + 1):
        if names[i] not in kwargs:
            _wrong("forward() missing required argument: '" + names[i] + "' (position " + str(i) + ")")
        out.append(kwargs[names[i]])
    return out


def _counted(title, known, n):
    """Raise what Python says of a call with another number of arguments than there are parameters; n counts ctx."""
    names = [(name, has) for name, kind, has, _ in known if kind in ("", "/")]
    most = len(names)
    least = len([name for name, has in names if not has])
    if n > most and not any([kind == "*" for _, kind, _, _ in known]):
        takes = str(most) if least == most else "from " + str(least) + " to " + str(most)
        takes += " positional argument" + ("" if most == 1 else "s")
        _wrong(title + "() takes " + takes + " but " + str(n) + (" was" if n == 1 else " were") + " given")
    _missing(title, "positional", [name for name, has in names[n:] if not has])
    _missing(title, "keyword-only", [name for name, kind, has, _ in known if kind == "k" and not has])


def _missing(title, what, names):
    if names:
        said = [repr(name) for name in names]
        text = said[0] if len(said) == 1 else " and ".join(said)
        if len(said) > 2:
            text = ", ".join(said[:-1]) + ", and " + said[-1]
        text = str(len(said)) + " required " + what + " argument" + ("s" if len(said) > 1 else "") + ": " + text
        _wrong(title + "() missing " + text)


def _takes(f):
    """Return how many positional arguments f takes; None where it takes any number, or where nobody can say."""
    try:
        f(*([None] * 60), **{"no such argument": 1})
    except TypeError as error:
        text = str(error)
        if "positional arguments but" in text:
            return int(text.split(" takes ")[1].split(" ")[0])
    except Exception:
        return None
    return None


def _way(t):
    to = edge(t)
    return None if to is None else (to, t._shape, t.dtype)


_nodes = {}
STAGE = ["forward"]  # which part of a Function ran last, for who asks where an error came from


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
        known = _parameters(cls.forward)
        if known is None:
            if kwargs:
                refuse("apply with a named argument, of a forward whose parameters are not known")
            if apart:
                takes = _takes(cls.forward)
                if takes is not None and takes > len(args):
                    refuse("apply with an argument left out, of a forward whose parameters are not known")
        elif apart:
            args = _bound(known[1], args, kwargs)
        else:
            if kwargs:
                args = _placed(known[1], args, kwargs)
            if known[0]:
                _counted(known[0], known[1], len(args) + 1)
        ctx = _node_of(cls)
        inputs = [a if isinstance(a, Tensor) else None for a in args]
        ctx._tensors = [t is not None for t in inputs]
        ctx.needs_input_grad = tuple([t is not None and t.requires_grad for t in inputs])
        active = Mode.enabled and any(ctx.needs_input_grad)
        was = Mode.enabled
        if active:
            ctx._edges = [_way(t) if t is not None and t.requires_grad else None for t in inputs]
        Mode.enabled = False
        STAGE[0] = "forward"
        try:
            if apart:
                result = cls.forward(*args)
                STAGE[0] = "setup_context"
                cls.setup_context(ctx, tuple(args), result)
                STAGE[0] = "forward"
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
        final = [_wrap(ctx, t, i, inputs, active, apart) if isinstance(t, Tensor) else t for i, t in enumerate(outputs)]
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


def _wrap(ctx, t, i, inputs, active, apart):
    is_input = any([t is x for x in inputs])
    dirty = any([t is x for x in ctx._dirty])
    fixed = any([t is x for x in ctx._fixed]) or not t.dtype.is_floating_point
    if dirty and not is_input:
        refuse("mark_dirty of what is no input")
    if not active:
        if is_input and not dirty:
            shown = t._fn is None and not t.requires_grad
            if shown:
                _saved_as_is(ctx, t, apart)
            t = _shown(t) if shown else t.detach()
        elif dirty and any(ctx.needs_input_grad):
            refuse("mark_dirty without gradients")
        elif t._base is not None:
            t._custom = t._custom if t._custom == "odd" else "custom"
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
        _saved_as_is(ctx, t, apart)
        t = _shown(t)
    elif t._fn is not None or t._leaf:
        refuse("an output that has a history of its own")
    elif t._base is not None:
        t._custom = t._custom if t._custom == "odd" else "custom"
        t._seen = t._s.version
    t._fn, t._nr = ctx, i
    return t


def _saved_as_is(ctx, t, apart):
    if apart and any([t is kept for kept in ctx._to_save or ()]):
        fail(
            RuntimeError,
            "An input that has been returned as-is as output is being saved for backward. This is not supported if you "
            "override setup_context. You should return and save a view of the input instead, e.g. with x.view_as(x) or "
            "setup ctx inside the forward function itself.",
        )


def _shown(t):
    was = Mode.enabled
    Mode.enabled = False
    out = alias(t, "ViewBackward0")
    Mode.enabled = was
    out._custom = "custom"
    return out


__all__ = ["Function", "once_differentiable", "zeros_like"]
