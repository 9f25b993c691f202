"""The names by which what can be computed is called: on tensors and in torch."""

import math

from . import _engine as engine
from . import _matrix as matrix
from . import _ops as ops
from ._base import (
    DTYPES,
    Size,
    bool_,
    cast,
    count,
    dtype,
    fail,
    fit,
    float32,
    float64,
    int64,
    public,
    refuse,
)
from ._check import close
from ._print import text_of
from ._tensor import Tensor, clone, make, strange

MODULE = {}  # what torch.NAME is


def method(name, f):
    """Give tensors a method."""
    setattr(Tensor, name, public("Tensor." + name, f))


def function(name, f):
    """Give torch a function."""
    MODULE[name] = public("torch." + name, f)


def both(name, f):
    """Give tensors a method and torch a function of the same name."""
    method(name, f)
    function(name, f)


def with_in_place(name, f):
    """The same, and a form that writes into the tensor."""
    both(name, f)
    method(name + "_", lambda t, *a: ops.in_place(t, lambda old: f(old, *a), *a))


for _name, _f in (
    ("neg", ops.neg),
    ("abs", ops.absolute),
    ("sign", ops.sign),
    ("exp", ops.exp),
    ("expm1", ops.expm1),
    ("log", ops.log),
    ("log1p", ops.log1p),
    ("sqrt", ops.sqrt),
    ("rsqrt", ops.rsqrt),
    ("sin", ops.sin),
    ("cos", ops.cos),
    ("atan", ops.atan),
    ("tanh", ops.tanh),
    ("sigmoid", ops.sigmoid),
    ("relu", ops.relu),
    ("floor", ops.floor),
    ("ceil", ops.ceil),
    ("trunc", ops.trunc),
    ("reciprocal", ops.reciprocal),
):
    with_in_place(_name, lambda t, f=_f: f(t))
with_in_place("round", lambda t: ops.round_(t))
MODULE["relu_"] = public("torch.relu_", lambda t: ops.in_place(ops.tensor_of(t, "relu_"), ops.relu))


def _square(t):
    return ops.pow_(ops.tensor_of(t, "square"), 2)


with_in_place("square", _square)


def _other(name, f):
    def g(input, other):
        ops.tensor_of(input, name)
        if not isinstance(other, (Tensor, bool, int, float)):
            fail(TypeError, name + "(): argument 'other' (position 2) must be Tensor, not " + type(other).__name__)
        return f(input, other)

    return g


for _name, _f in (("add", ops.add), ("sub", ops.sub), ("mul", ops.mul), ("div", ops.div)):
    with_in_place(_name, _other(_name, _f))
both("multiply", _other("multiply", ops.mul))
both("divide", _other("divide", ops.div))
both("subtract", _other("subtract", ops.sub))


def _pow(input, exponent):
    if not isinstance(input, Tensor) and not isinstance(exponent, Tensor):
        refuse("pow of two numbers")
    return ops.pow_(input, exponent)


function("pow", _pow)
method("pow", _pow)
method("pow_", lambda t, exponent: ops.in_place(t, lambda old: ops.pow_(old, exponent), exponent))
for _name, _f in (
    ("eq", ops.eq),
    ("ne", ops.ne),
    ("lt", ops.lt),
    ("le", ops.le),
    ("gt", ops.gt),
    ("ge", ops.ge),
    ("less", ops.lt),
    ("greater", ops.gt),
):
    both(_name, _other(_name, _f))
for _name, _f in (
    ("maximum", ops.maximum),
    ("minimum", ops.minimum),
    ("logical_and", ops.logical_and),
    ("logical_or", ops.logical_or),
    ("logical_xor", ops.logical_xor),
    ("logical_not", ops.logical_not),
    ("isnan", ops.isnan),
    ("isinf", ops.isinf),
    ("isfinite", ops.isfinite),
    ("diag", ops.diag),
):
    both(_name, _f)


def _clamp(input, min=None, max=None):
    return ops.clamp(input, min, max)


for _name in ("clamp", "clip"):
    both(_name, _clamp)
    method(
        _name + "_",
        lambda t, min=None, max=None: ops.in_place(t, lambda old: ops.clamp(old, min, max), min, max),
    )
both("clamp_min", lambda input, min: _one_bound(input, min, None))
both("clamp_max", lambda input, max: _one_bound(input, None, max))


def _one_bound(t, low, high):
    if isinstance(low, Tensor) or isinstance(high, Tensor) or (low is None and high is None):
        refuse("clamp_min with a tensor")
    out = ops.clamp(t, low, high)
    if out._fn is not None:
        out._fn._name = "ClampMaxBackward0" if low is None else "ClampMinBackward0"
    return out


def _where(condition, input=None, other=None):
    if isinstance(condition, Tensor) and isinstance(input, Tensor) and other is None:
        text = "where() received an invalid combination of arguments - got (Tensor, Tensor), but expected one of:\n"
        fail(TypeError, text + " * (Tensor condition)\n * (Tensor condition, Tensor input, Tensor other)\n")
    if input is None or other is None:
        refuse("where with one argument")
    return ops.where(condition, input, other)


function("where", _where)
method("where", lambda t, condition, other: ops.where(condition, t, other))
both("masked_fill", lambda input, mask, value: ops.masked_fill(input, mask, value))
method("masked_fill_", ops.masked_fill_in_place)


# --- matrices

function("matmul", lambda input, other: matrix.matmul(input, other))
method("matmul", lambda t, other: matrix.matmul(t, other, 1))
function("mm", lambda input, mat2: matrix.mm(input, mat2))
method("mm", lambda t, mat2: matrix.mm(t, mat2, 1))
function("mv", lambda input, vec: matrix.mv(input, vec))
method("mv", lambda t, vec: matrix.mv(t, vec, 1))
function("dot", lambda input, tensor: matrix.dot(input, tensor))
method("dot", lambda t, tensor: matrix.dot(t, tensor, 1))
function("outer", lambda input, vec2: matrix.outer(input, vec2))
method("outer", lambda t, vec2: matrix.outer(t, vec2, 1))
both("nan_to_num", lambda input, nan=None, posinf=None, neginf=None: matrix.nan_to_num(input, nan, posinf, neginf))
both("heaviside", lambda input, values: matrix.heaviside(input, values))
both("copysign", lambda input, other: matrix.copysign(input, other))
function("eye", lambda n, m=None, dtype=None, requires_grad=False: matrix.eye(n, m, _kind(dtype), requires_grad))
method(
    "nan_to_num_",
    lambda t, nan=None, posinf=None, neginf=None: ops.in_place(t, lambda o: matrix.nan_to_num(o, nan, posinf, neginf)),
)

# --- sums


def _kind(dtype):
    if dtype is not None and dtype not in DTYPES:
        refuse("this dtype")
    return dtype


def _dim_list(name, f):
    def g(t, *dim, **kw):
        keepdim = kw.pop("keepdim", False)
        if "dim" in kw:
            if dim:
                refuse(name)
            d = kw.pop("dim")
        elif len(dim) == 2:
            d, keepdim = dim
        elif len(dim) == 1:
            d = dim[0]
        elif dim:
            refuse(name)
        else:
            d = None
        kind = kw.pop("dtype", None) if name in ("sum", "mean") else None
        if kw or not isinstance(keepdim, bool) or isinstance(d, bool) or isinstance(d, dtype):
            refuse(name)
        if name in ("sum", "mean"):
            return f(t, d, keepdim, _kind(kind))
        return f(t, d, keepdim)

    return g


for _name, _f in (("sum", ops.sum_), ("mean", ops.mean), ("amax", ops.amax), ("amin", ops.amin)):
    both(_name, _dim_list(_name, _f))


def _no_list(name, f):
    inner = _dim_list(name, f)

    def g(t, *dim, **kw):
        d = kw.get("dim", dim[0] if dim else None)
        if isinstance(d, (tuple, list)):
            refuse(name + " over several dimensions")
        return inner(t, *dim, **kw)

    return g


both("all", _no_list("all", ops.all_))
both("any", _no_list("any", ops.any_))
both("argmax", _no_list("argmax", ops.argmax))


def _largest(name, whole, along, pair):
    def f(input, dim=None, keepdim=False):
        ops.tensor_of(input, name)
        if isinstance(dim, Tensor):
            return pair(input, dim)
        if dim is None:
            if keepdim:
                refuse(name)
            return whole(input)
        if isinstance(dim, bool) or not isinstance(dim, int):
            refuse(name)
        return along(input, dim, keepdim)

    return f


both("max", _largest("max", ops.max_all, ops.max_dim, ops.maximum))
both("min", _largest("min", ops.min_all, ops.min_dim, ops.minimum))
both("logsumexp", lambda input, dim, keepdim=False: ops.logsumexp(input, dim, keepdim))


def _soft(f):
    def g(input, dim):
        if isinstance(dim, bool) or not isinstance(dim, int):
            refuse("softmax without a dimension")
        return f(ops.tensor_of(input, "softmax"), dim)

    return g


both("softmax", _soft(ops.softmax))
both("log_softmax", _soft(ops.log_softmax))

# --- shapes


def _sizes(args):
    if len(args) == 1 and isinstance(args[0], (tuple, list, Size)):
        return tuple(args[0])
    return args


method("reshape", lambda t, *shape: ops.reshape(t, _sizes(shape)))
function("reshape", lambda input, shape: ops.reshape(input, tuple(shape)))


def _view(t, *shape):
    if len(shape) == 1 and isinstance(shape[0], dtype):
        refuse("view as another dtype")
    return ops.view(t, _sizes(shape))


method("view", _view)
method("view_as", lambda t, other: ops.view(t, other._shape))
method("reshape_as", lambda t, other: ops.reshape(t, other._shape))
both("transpose", lambda input, dim0, dim1: ops.transpose(input, dim0, dim1))
both("t", lambda input: ops.t_(input))
method("permute", lambda t, *dims: ops.permute(t, list(_sizes(dims))))
function("permute", lambda input, dims: ops.permute(input, list(dims)))
both("unsqueeze", lambda input, dim: ops.unsqueeze(input, dim))
both("squeeze", lambda input, dim=None: ops.squeeze(input, dim))
method("expand", lambda t, *sizes: ops.expand(t, _sizes(sizes)))
method("expand_as", lambda t, other: ops.expand(t, other._shape))


def _flatten(t):
    if len(t._shape) == 1:
        return t
    return ops.reshape(t, (-1,)) if count(t._shape) else ops.reshape(t, (0,))


both("flatten", lambda input: _flatten(input))
both("split", lambda tensor, split_size, dim=0: ops.split(tensor, split_size, dim))
both("unbind", lambda input, dim=0: ops.unbind(input, dim))
function("cat", lambda tensors, dim=0: ops.cat(tensors, dim))
function("stack", lambda tensors, dim=0: ops.stack(tensors, dim))


def _contiguous(t):
    if t._odd:
        refuse("contiguous of what may lie otherwise in torch")
    if t._contiguous():
        return t
    out = clone(t)
    out._odd = False
    return out


method("contiguous", _contiguous)


def _is_contiguous(t):
    if t._odd:
        refuse("is_contiguous of what may lie otherwise in torch")
    return t._contiguous()


def _stride(t, dim=None):
    if t._odd or (count(t._shape) == 0) or dim is not None:
        refuse("stride in this form")
    return tuple(t._st)


method("is_contiguous", _is_contiguous)
method("stride", _stride)
method("size", lambda t, dim=None: Size(t._shape) if dim is None else t._shape[ops.wrap_dim(dim, len(t._shape))])
method("dim", lambda t: len(t._shape))
method("numel", lambda t: count(t._shape))
function("numel", lambda input: count(input._shape))
method("nelement", lambda t: count(t._shape))
method("element_size", lambda t: t.dtype.itemsize)
method("is_floating_point", lambda t: t.dtype.is_floating_point)
function("is_floating_point", lambda input: input.dtype.is_floating_point)
function("is_tensor", lambda obj: isinstance(obj, Tensor))

# --- copies, dtypes, history


def _clone(input):
    return clone(ops.tensor_of(input, "clone"))


both("clone", _clone)


def _detach(t):
    out = object.__new__(Tensor)._fill(t._s, t._shape, t._st, t._o, t.dtype)
    out._odd = t._odd
    return out


both("detach", _detach)


def _detach_(t):
    if t._base is not None:
        refuse("detach_ of a view")
    t._fn = None
    t._leaf = False
    return t


method("detach_", _detach_)


def _requires_grad_(t, requires_grad=True):
    if requires_grad:
        if not t.dtype.is_floating_point:
            fail(RuntimeError, "only Tensors of floating point dtype can require gradients")
        if t._fn is None:
            t._leaf = True
    else:
        if t.requires_grad and t._fn is not None:
            fail(
                RuntimeError,
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
                "subgraph that doesn't require differentiation use var_no_grad = var.detach().",
            )
        t._leaf = False
    return t


method("requires_grad_", _requires_grad_)


def _to(t, kind, copy=False):
    if isinstance(kind, Tensor):
        kind = kind.dtype
    if kind not in DTYPES or not isinstance(copy, bool):
        refuse("Tensor.to in this form")
    return ops.to_dtype(t, kind, copy)


method("to", lambda t, dtype, copy=False: _to(t, dtype, copy))
method("type_as", lambda t, other: _to(t, other))
for _name, _k in (("double", float64), ("float", float32), ("long", int64), ("bool", bool_)):
    method(_name, lambda t, k=_k: ops.to_dtype(t, k))


def _item(t):
    if count(t._shape) != 1:
        fail(RuntimeError, "a Tensor with " + str(count(t._shape)) + " elements cannot be converted to Scalar")
    return t._flat()[0]


method("item", _item)


def _nested(values, at, shape):
    if not shape:
        return values[at]
    step = count(shape[1:])
    return [_nested(values, at + i * step, shape[1:]) for i in range(shape[0])]


method("tolist", lambda t: _nested(t._flat(), 0, t._shape))
method("fill_", lambda t, value: ops.in_place(t, lambda old: ops.fill_value(old, value), value, alike=True))
method("zero_", lambda t: ops.in_place(t, lambda old: ops.fill_value(old, 0, "ZeroBackward0"), alike=True))
method("copy_", lambda t, source: ops.in_place(t, lambda old: ops.copied(old, source), source))
Tensor.backward = lambda t, gradient=None, retain_graph=None, create_graph=False, **other: engine.backward(
    t, gradient, retain_graph, create_graph, **other
)


def _hooked(t, hook, hooks_of):
    if not t.requires_grad:
        fail(RuntimeError, "cannot register a hook on a tensor that doesn't require gradient")
    to = engine.edge(t)
    if to is None:
        refuse("a hook on a view made without gradients")
    node, nr = to
    return engine.Handle(hooks_of(node), (nr, hook))


def _register_hook(t, hook):
    return _hooked(t, hook, lambda node: node.hooks())


def _register_post(t, hook):
    if t.requires_grad and not t.is_leaf:
        fail(RuntimeError, "post accumulate grad hooks cannot be registered on non-leaf tensors")
    return _hooked(t, hook, lambda node: node.after)


method("register_hook", _register_hook)
method("register_post_accumulate_grad_hook", _register_post)

# --- operators


def _operator(name, f):
    def g(a, b):
        if name in ("__mul__", "__rmul__") and isinstance(b, (tuple, list)) and a.dtype.is_floating_point:
            fail(TypeError, "only integer tensors of a single element can be converted to an index")  # by tuple * n
        if b is None and name in ("__eq__", "__ne__"):
            return name == "__ne__"
        if not isinstance(b, (Tensor, bool, int, float)):
            refuse("Tensor." + name + " with a " + type(b).__name__)
        return f(a, b)

    setattr(Tensor, name, public("Tensor." + name, g))


for _name, _f in (
    ("__add__", ops.add),
    ("__radd__", ops.add),
    ("__sub__", ops.sub),
    ("__rsub__", ops.rsub),
    ("__mul__", ops.mul),
    ("__rmul__", ops.mul),
    ("__truediv__", ops.div),
    ("__rtruediv__", lambda a, b: _over(a, b)),
    ("__pow__", ops.pow_),
    ("__rpow__", lambda a, b: ops.pow_(b, a)),
    ("__eq__", ops.eq),
    ("__ne__", ops.ne),
    ("__lt__", ops.lt),
    ("__le__", ops.le),
    ("__gt__", ops.gt),
    ("__ge__", ops.ge),
    ("__and__", ops.bit_and),
    ("__or__", ops.bit_or),
    ("__xor__", ops.bit_xor),
    ("__rand__", ops.bit_and),
    ("__ror__", ops.bit_or),
    ("__rxor__", ops.bit_xor),
):
    _operator(_name, _f)
for _name, _f in (
    ("__iadd__", ops.add),
    ("__isub__", ops.sub),
    ("__imul__", ops.mul),
    ("__itruediv__", ops.div),
    ("__ipow__", ops.pow_),
    ("__iand__", ops.bit_and),
    ("__ior__", ops.bit_or),
    ("__ixor__", ops.bit_xor),
):
    _operator(_name, lambda a, b, f=_f: ops.in_place(a, lambda old: f(old, b), b))


def _over(a, b):
    out = ops.mul(ops.reciprocal(a), b)
    return out


_operator("__matmul__", lambda a, b: matrix.matmul(a, b) if isinstance(b, Tensor) else refuse("@ with a number"))
for _name in ("__rmatmul__", "__mod__", "__rmod__", "__floordiv__", "__rfloordiv__", "__imatmul__",
              "__imod__", "__ifloordiv__", "__lshift__", "__rshift__"):  # fmt: skip
    setattr(Tensor, _name, lambda a, b, name=_name: refuse("Tensor." + name))
setattr(Tensor, "__neg__", public("Tensor.__neg__", ops.neg))
setattr(Tensor, "__pos__", lambda t: t)
setattr(Tensor, "__abs__", public("Tensor.__abs__", ops.absolute))
setattr(Tensor, "__invert__", public("Tensor.__invert__", ops.invert))
setattr(Tensor, "__getitem__", public("Tensor[...]", ops.get_item))
setattr(Tensor, "__setitem__", public("Tensor[...] = ", ops.set_item))
setattr(Tensor, "__hash__", lambda t: id(t))
setattr(Tensor, "__repr__", public("print", text_of))
setattr(Tensor, "__str__", public("print", text_of))
setattr(Tensor, "__contains__", lambda t, v: refuse("in"))


def _bool(t):
    n = count(t._shape)
    if n != 1:
        text = "Boolean value of Tensor with no values is ambiguous" if n == 0 else None
        fail(RuntimeError, text or "Boolean value of Tensor with more than one value is ambiguous")
    return t._flat()[0] != 0


def _len(t):
    if not t._shape:
        fail(TypeError, "len() of a 0-d tensor")
    return t._shape[0]


def _iter(t):
    if not t._shape:
        fail(TypeError, "iteration over a 0-d tensor")
    return iter(ops.unbind(t, 0))


setattr(Tensor, "__bool__", _bool)
setattr(Tensor, "__len__", _len)
setattr(Tensor, "__iter__", _iter)


def _format(t, form):
    if t._shape == () and form:
        return format(_item(t), form)
    if form:
        refuse("a format of a tensor")
    return text_of(t)


setattr(Tensor, "__format__", _format)

# --- new tensors


def _finish(t, requires_grad):
    if requires_grad and not t.dtype.is_floating_point:
        fail(RuntimeError, "Only Tensors of floating point and complex dtype can require gradients")
    return _requires_grad_(t) if requires_grad else t


def _walk(data, shape, depth, out):
    if isinstance(data, Tensor):
        if len(data._shape) + depth != len(shape):
            refuse("a tensor in this list")
        out.extend(data._flat())
        return
    if isinstance(data, (list, tuple, Size)):
        if depth == len(shape):
            refuse("this list")
        if len(data) != shape[depth]:
            fail(
                ValueError,
                "expected sequence of length "
                + str(shape[depth])
                + " at dim "
                + str(depth)
                + " (got "
                + str(len(data))
                + ")",
            )
        for v in data:
            _walk(v, shape, depth + 1, out)
        return
    if depth != len(shape) or not isinstance(data, (bool, int, float)):
        refuse("this list")
    out.append(data)


def _tensor(data, dtype=None, requires_grad=False):
    _kind(dtype)
    if isinstance(data, Tensor):
        refuse("torch.tensor of a tensor, which warns,")
    shape = []
    inner = data
    while isinstance(inner, (list, tuple, Size)):
        shape.append(len(inner))
        if not len(inner):
            break
        inner = inner[0]
    if isinstance(inner, Tensor):
        if inner._shape != ():
            refuse("torch.tensor of a list of tensors")
    values = []
    _walk(data, shape, 0, values)
    if dtype is None:
        if not values or any([isinstance(v, float) for v in values]):
            dtype = float32
        elif all([isinstance(v, bool) for v in values]):
            dtype = bool_
        else:
            dtype = int64
        if isinstance(inner, Tensor) and inner.dtype is float64:
            refuse("torch.tensor of a list of tensors in float64")
    if dtype is bool_:
        values = [v != 0 for v in values]
    elif dtype is int64:
        values = [ops.to_whole(v) for v in values]
    else:
        values = fit([float(v) for v in values], dtype)
    return _finish(make(values, tuple(shape), dtype), requires_grad)


def _whole(v):
    from ._base import to_long

    return ops._int(to_long(v))


ops.to_whole = _whole
function("tensor", _tensor)


def _filled(value, shape, dtype, requires_grad=False):
    for n in shape:
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            refuse("this size")
    v = cast([value], ops.number(value).dtype, dtype)[0]
    return _finish(make([v] * count(shape), tuple(shape), dtype), requires_grad)


def _constant(name, value):
    function(
        name,
        lambda *size, dtype=None, requires_grad=False: _filled(
            value, _sizes(size), _kind(dtype) or float32, requires_grad
        ),
    )


_constant("zeros", 0)
_constant("ones", 1)
_constant("empty", 0)


def _full(size, fill_value, dtype=None, requires_grad=False):
    if isinstance(fill_value, Tensor) or not isinstance(size, (tuple, list, Size)):
        refuse("torch.full in this form")
    kind = _kind(dtype) or (
        bool_ if isinstance(fill_value, bool) else (int64 if isinstance(fill_value, int) else float32)
    )
    return _filled(fill_value, tuple(size), kind, requires_grad)


function("full", _full)


def _like(value):
    def f(input, dtype=None, requires_grad=False):
        out = _filled(value, ops.tensor_of(input, "like")._shape, _kind(dtype) or input.dtype, requires_grad)
        out._odd = strange(input)
        return out

    return f


function("zeros_like", _like(0))
function("ones_like", _like(1))
function("empty_like", _like(0))


def _full_like(input, fill_value, dtype=None, requires_grad=False):
    if isinstance(fill_value, Tensor):
        refuse("full_like with a tensor")
    out = _filled(fill_value, input._shape, _kind(dtype) or input.dtype, requires_grad)
    out._odd = strange(input)
    return out


function("full_like", _full_like)
method(
    "new_zeros",
    lambda t, *size, dtype=None, requires_grad=False: _filled(0, _sizes(size), dtype or t.dtype, requires_grad),
)
method(
    "new_ones",
    lambda t, *size, dtype=None, requires_grad=False: _filled(1, _sizes(size), dtype or t.dtype, requires_grad),
)
method(
    "new_full",
    lambda t, size, fill_value, dtype=None, requires_grad=False: _filled(
        fill_value, tuple(size), dtype or t.dtype, requires_grad
    ),
)
method("new_tensor", lambda t, data, dtype=None: _tensor(data, dtype or t.dtype))


def _arange(start, end=None, step=1, dtype=None, requires_grad=False):
    if end is None:
        start, end = 0, start
    for v in (start, end, step):
        if isinstance(v, (bool, Tensor)) or not isinstance(v, (int, float)):
            refuse("torch.arange in this form")
    whole = not any([isinstance(v, float) for v in (start, end, step)])
    kind = _kind(dtype) or (int64 if whole else float32)
    if kind is bool_ or (kind is int64 and not whole) or step == 0:
        refuse("torch.arange in this form")
    n = math.ceil((end - start) / step)
    if n < 0:
        refuse("torch.arange with these bounds")
    return _finish(
        make(fit(cast([start + i * step for i in range(n)], int64 if whole else float64, kind), kind), (n,), kind),
        requires_grad,
    )


function("arange", _arange)


def _linspace(start, end, steps, dtype=None, requires_grad=False):
    if isinstance(start, Tensor) or isinstance(end, Tensor) or isinstance(steps, bool) or not isinstance(steps, int):
        refuse("torch.linspace in this form")
    kind = _kind(dtype) or float32
    if not kind.is_floating_point or steps < 0:
        refuse("torch.linspace in this form")
    a, b = fit([float(start), float(end)], kind)
    if steps < 2:
        return _finish(make([a] * steps, (steps,), kind), requires_grad)
    step = fit([(b - a) / (steps - 1)], kind)[0]
    half = steps // 2
    values = []
    for i in range(steps):
        values.append(a + step * i if i < half else b - step * (steps - i - 1))
    return _finish(make(fit(values, kind), (steps,), kind), requires_grad)


function("linspace", _linspace)


# --- comparing


def _equal(input, other):
    ops.tensor_of(input, "equal")
    ops.tensor_of(other, "equal", 2, "other")
    if input._shape != other._shape:
        return False
    if input.dtype is not other.dtype:
        refuse("torch.equal of two dtypes")
    return all([v == w for v, w in zip(input._flat(), other._flat())])


both("equal", _equal)


def _near(input, other, rtol, atol, equal_nan):
    if input.dtype is not other.dtype:
        refuse("comparing two dtypes")
    if not input.dtype.is_floating_point:
        refuse("allclose of whole numbers")
    shape = ops.broadcast((input._shape, other._shape))
    return shape, [
        close([v], [w], rtol, atol, equal_nan)
        for v, w in zip(ops.spread(input, shape, input.dtype), ops.spread(other, shape, input.dtype))
    ]


both(
    "allclose",
    lambda input, other, rtol=1e-05, atol=1e-08, equal_nan=False: all(_near(input, other, rtol, atol, equal_nan)[1]),
)


def _isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    shape, values = _near(input, other, rtol, atol, equal_nan)
    return make(values, shape, bool_)


both("isclose", _isclose)


function("broadcast_shapes", lambda *shapes: Size(ops.broadcast([tuple(s) for s in shapes])))


# --- torch.nn.functional

FUNCTIONAL = {
    "relu": public("relu", lambda input: ops.relu(input)),
    "sigmoid": public("sigmoid", lambda input: ops.sigmoid(input)),
    "tanh": public("tanh", lambda input: ops.tanh(input)),
    "hardtanh": public("hardtanh", lambda input, min_val=-1.0, max_val=1.0: ops.hardtanh(input, min_val, max_val)),
    "leaky_relu": public("leaky_relu", lambda input, negative_slope=0.01: ops.leaky_relu(input, negative_slope)),
    "softmax": public("softmax", _soft(ops.softmax)),
    "log_softmax": public("log_softmax", _soft(ops.log_softmax)),
}
