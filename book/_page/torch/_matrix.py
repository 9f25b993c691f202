"""Matrices and vectors: products, their gradients, the norm; and some functions that the known ways of tasks use."""

import math

from . import _ops as ops
from ._base import bool_, broadcast, fail, fit, float32, refuse
from ._tensor import Tensor, make, record

LARGEST = {"float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}


def _same(a, b, say):
    """Raise what torch says of two dtypes that are not one."""
    if a.dtype is bool_ or b.dtype is bool_:
        refuse("a product of bool tensors")
    if a.dtype is not b.dtype:
        say()


def _saves(a, b):
    return (a if b.requires_grad else None, b if a.requires_grad else None)


def _summed(pairs, kind):
    total = 0.0 if kind.is_floating_point else 0
    for v, w in pairs:
        total += v * w
    return total if kind.is_floating_point else ops.whole(total)


def dot(a, b, at=2):
    """Return the sum of the products of two vectors."""
    ops.tensor_of(a, "dot")
    ops.tensor_of(b, "dot", at, "tensor")
    if len(a._shape) != 1 or len(b._shape) != 1:
        sizes = str(len(a._shape)) + "D and " + str(len(b._shape)) + "D"
        fail(RuntimeError, "1D tensors expected, but got " + sizes + " tensors")
    text = "dot : expected both vectors to have same dtype, but found " + a.dtype._short + " and " + b.dtype._short
    _same(a, b, lambda: fail(RuntimeError, text))
    n, m = a._shape[0], b._shape[0]
    if n != m:
        text = (
            "inconsistent tensor size, expected tensor ["
            + str(n)
            + "] and src ["
            + str(m)
            + "] to have the same number "
        )
        fail(RuntimeError, text + "of elements, but got " + str(n) + " and " + str(m) + " elements respectively")
    out = make(fit([_summed(zip(a._flat(), b._flat()), a.dtype)], a.dtype), (), a.dtype)

    def run(g, saved, needs):
        return ops.mul(g, saved[1]) if needs[0] else None, ops.mul(g, saved[0]) if needs[1] else None

    return record(out, "DotBackward0", (a, b), _saves(a, b), run)


def mv(a, b, at=2):
    """Return a matrix times a vector."""
    ops.tensor_of(a, "mv")
    ops.tensor_of(b, "mv", at, "vec")
    if len(a._shape) != 2 or len(b._shape) != 1:
        sizes = [str(len(a._shape) - 1), str(len(a._shape)), str(len(b._shape))]
        if len(a._shape) != 1 or len(b._shape) != 1:
            refuse("mv of what is no matrix and no vector")
        fail(RuntimeError, "vector + matrix @ vector expected, got " + ", ".join(["1"] + sizes[1:]))
    _same(a, b, lambda: refuse("mv of two dtypes"))
    rows, n = a._shape
    if n != b._shape[0]:
        text = "size mismatch, got input (" + str(rows) + "), mat (" + str(rows) + "x" + str(n) + "), vec ("
        fail(RuntimeError, text + str(b._shape[0]) + ")")
    left, right = a._flat(), b._flat()
    values = [_summed(zip(left[i * n : i * n + n], right), a.dtype) for i in range(rows)]
    out = make(fit(values, a.dtype), (rows,), a.dtype)

    def run(g, saved, needs):
        return outer(g, saved[1]) if needs[0] else None, mv(ops.t_(saved[0]), g) if needs[1] else None

    return record(out, "MvBackward0", (a, b), _saves(a, b), run)


def mm(a, b, at=2):
    """Return the product of two matrices."""
    ops.tensor_of(a, "mm")
    ops.tensor_of(b, "mm", at, "mat2")
    if len(a._shape) != 2:
        fail(RuntimeError, "self must be a matrix")
    if len(b._shape) != 2:
        fail(RuntimeError, "mat2 must be a matrix")
    (rows, n), (m, columns) = a._shape, b._shape
    if n != m:
        sizes = str(rows) + "x" + str(n) + " and " + str(m) + "x" + str(columns)
        fail(RuntimeError, "mat1 and mat2 shapes cannot be multiplied (" + sizes + ")")
    names = [ops.name_of(t.dtype).replace("long int", "long long") for t in (a, b)]
    text = "expected m1 and m2 to have the same dtype, but got: " + names[0] + " != " + names[1]
    _same(a, b, lambda: fail(RuntimeError, text) if "long long" not in names else refuse("mm of two dtypes"))
    left, right = a._flat(), b._flat()
    values = []
    for i in range(rows):
        row = left[i * n : i * n + n]
        for j in range(columns):
            values.append(_summed(zip(row, [right[k * columns + j] for k in range(n)]), a.dtype))
    out = ops.plain(fit(values, a.dtype), (rows, columns), a.dtype, a, b)

    def run(g, saved, needs):
        return mm(g, ops.t_(saved[1])) if needs[0] else None, mm(ops.t_(saved[0]), g) if needs[1] else None

    return record(out, "MmBackward0", (a, b), _saves(a, b), run)


def matmul(a, b, at=2):
    """Return a @ b of vectors and matrices."""
    ops.tensor_of(a, "matmul")
    ops.tensor_of(b, "matmul", at, "other")
    one, two = len(a._shape), len(b._shape)
    if not one or not two:
        sizes = str(one) + "D and " + str(two) + "D"
        fail(RuntimeError, "both arguments to matmul need to be at least 1D, but they are " + sizes)
    if one > 2 or two > 2:
        refuse("matmul of more than two dimensions")
    if one == 1 and two == 1:
        return dot(a, b)
    if two == 1:
        return mv(a, b)
    if one == 2:
        return mm(a, b)
    wide = mm(ops.unsqueeze(a, 0), b)
    shape = wide._shape
    out = make(list(wide._flat()), shape[1:], wide.dtype)
    out._s.version = 1  # torch squeezes in place
    return record(out, "SqueezeBackward4", (wide,), (), lambda g, saved, needs: ops.reshape(g, shape))


def outer(a, b, at=2):
    """Return the products of each number of a vector with each of another."""
    ops.tensor_of(a, "outer")
    ops.tensor_of(b, "outer", at, "vec2")
    for t, name in ((a, "self"), (b, "vec2")):
        if len(t._shape) != 1:
            fail(RuntimeError, "outer: Expected 1-D argument " + name + ", but got " + str(len(t._shape)) + "-D")
    return ops.mul(ops.reshape(a, (a._shape[0], 1)), b)


def eye(n, m=None, dtype=None, requires_grad=False):
    """Return ones on the diagonal of zeros."""
    m = n if m is None else m
    for size in (n, m):
        if isinstance(size, bool) or not isinstance(size, int):
            refuse("torch.eye in this form")
    for size, name in ((n, "n"), (m, "m")):
        if size < 0:
            fail(RuntimeError, name + " must be greater or equal to 0, got " + str(size))
    kind = dtype or float32
    one, zero = (1.0, 0.0) if kind.is_floating_point else ((True, False) if kind is bool_ else (1, 0))
    out = make([one if i == j else zero for i in range(n) for j in range(m)], (n, m), kind)
    if requires_grad:
        if not kind.is_floating_point:
            fail(RuntimeError, "Only Tensors of floating point and complex dtype can require gradients")
        out._leaf = True
    return out


def vector_norm(t, ord=2, dim=None, keepdim=False):
    """Return the root of the sum of squares."""
    ops.tensor_of(t, "linalg_vector_norm")
    if isinstance(ord, (bool, Tensor)) or ord != 2 or not isinstance(keepdim, bool):
        refuse("vector_norm of another order than 2")
    kind = t.dtype
    if not kind.is_floating_point:
        text = "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
        fail(RuntimeError, text + kind._short)
    dims = ops.dims_of(dim, len(t._shape))
    shape, kept, groups = ops.grouped(t, dims, kind)
    values = [math.sqrt(_summed([(v, v) for v in group], kind)) for group in groups]
    out = ops.plain(fit(values, kind), kept if keepdim else shape, kind, t)
    whole = t._shape

    def run(g, saved, needs):
        x, y = saved
        wide, norm = ops.unreduce(g, whole, dims), ops.unreduce(y, whole, dims)
        return ops.mul(wide, ops.masked_fill(ops.div(x, norm), ops.eq(norm, 0), 0))

    return record(out, "LinalgVectorNormBackward0", (t,), (t, out), run)


def nan_to_num(t, nan=None, posinf=None, neginf=None):
    """Return t with numbers in the place of nan and infinities."""
    ops.tensor_of(t, "nan_to_num")
    for v in (nan, posinf, neginf):
        if v is not None and (isinstance(v, (bool, Tensor)) or not isinstance(v, (int, float))):
            refuse("nan_to_num in this form")
    if not t.dtype.is_floating_point:
        if nan is not None or posinf is not None or neginf is not None:
            refuse("nan_to_num of whole numbers in this form")
        return ops.plain(list(t._flat()), t._shape, t.dtype, t)
    most = LARGEST[t.dtype._name]
    puts = [0.0 if nan is None else float(nan), most if posinf is None else float(posinf)]
    puts = fit(puts + [-most if neginf is None else float(neginf)], t.dtype)
    values = [
        puts[0] if v != v else (puts[1] if v == math.inf else (puts[2] if v == -math.inf else v)) for v in t._flat()
    ]
    out = ops.plain(values, t._shape, t.dtype, t)

    def run(g, saved, needs):
        return ops.mul(g, ops.isfinite(saved[0]))

    return record(out, "NanToNumBackward0", (t,), (t,), run)


def heaviside(t, values):
    """Return 0 below 0, 1 above, and values at 0."""
    ops.tensor_of(t, "heaviside")
    ops.tensor_of(values, "heaviside", 2, "values")
    if t.dtype is not values.dtype:
        fail(RuntimeError, "heaviside is not yet implemented for tensors with different dtypes.")
    if t.dtype is bool_:
        refuse("heaviside of bool tensors")
    shape = broadcast((t._shape, values._shape))
    kind = t.dtype
    one, zero = (1.0, 0.0) if kind.is_floating_point else (1, 0)
    pairs = zip(ops.spread(t, shape, kind), ops.spread(values, shape, kind))
    out = ops.plain([w if v == 0 else (one if v > 0 else zero) for v, w in pairs], shape, kind, t, values)

    def run(g, saved, needs):
        fail(RuntimeError, "derivative for aten::heaviside is not implemented")

    return record(out, "torch::autograd::NotImplemented", (t, values), (), run)


def copysign(t, other):
    """Return t with the sign of other."""
    if not isinstance(t, Tensor) or not isinstance(other, Tensor) and not isinstance(other, (bool, int, float)):
        refuse("copysign in this form")
    name = "CopysignBackward0" if isinstance(other, Tensor) else "CopysignBackward1"
    a, b, out = ops.binary(t, other, math.copysign)

    def run(g, saved, needs):
        first = None
        if needs[0]:
            x, y = saved
            first = ops.mul(g, ops.masked_fill(ops.div(y, x), ops.eq(x, 0), 0))
        return first, ops.zeros_like(g) if needs[1] else None

    kept = (a, out) if a.requires_grad else (None, None)
    return record(out, name, (a, b), kept, run)
