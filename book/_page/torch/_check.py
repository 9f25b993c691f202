"""gradcheck and gradgradcheck: the slow mode, as torch has it."""

from ._base import fail, refuse
from ._engine import grad
from ._ops import ne, reshape
from ._tensor import Mode, Node, Tensor, clone, make, record


class GradcheckError(RuntimeError):
    """What gradcheck found."""


def _as_tuple(value):
    if isinstance(value, tuple):
        return value
    return tuple(value) if isinstance(value, list) else (value,)


def _differentiable(outputs):
    return tuple([o for o in _as_tuple(outputs) if o.requires_grad])


def _wants(t):
    return isinstance(t, Tensor) and t.requires_grad


def _matrix(rows, n_out, kind):
    """Return rows, one for each number of an input, as a tensor."""
    flat = []
    for row in rows:
        flat.extend(row)
    return make(flat, (len(rows), n_out), kind)


def _called(f, inputs, at, shown):
    """Return the outputs at inputs, one of which is a copy that asks for a gradient."""
    given = list(inputs)
    given[at] = shown
    return [clone(o) for o in _as_tuple(f(*given))]


def _numerical(f, inputs, outputs, eps):
    """Return for each input that asks the measured matrix of each output."""
    out = []
    for at, x in enumerate(inputs):
        if not _wants(x):
            continue
        lies = x._places()
        data = x._s.data
        columns = []
        for p in lies:
            before = data[p]
            low = _round(before - eps, x.dtype)
            high = _round(before + eps, x.dtype)
            was = Mode.enabled
            data[p] = low
            try:
                first = _flat_outputs(f, inputs)
                data[p] = high
                second = _flat_outputs(f, inputs)
            finally:
                data[p] = before
                Mode.enabled = was
            if any([k._name == "bool" for _, k in first]):
                fail(
                    RuntimeError,
                    "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
                    "`logical_xor()` operator instead.",
                )
            columns.append(
                [
                    [_round(_round(b - a, k) / (2 * eps), k) for a, b in zip(u, v)]
                    for (u, k), (v, _) in zip(first, second)
                ]
            )
        per_output = []
        for i, o in enumerate(outputs):
            n = 1
            for size in o._shape:
                n *= size
            per_output.append(_matrix([c[i] for c in columns], n, o.dtype))
        out.append(per_output)
    return out


def _round(v, kind):
    from ._base import fit

    return fit([v], kind)[0]


def _flat_outputs(f, inputs):
    return [(list(o._flat()), o.dtype) for o in _as_tuple(f(*inputs))]


def _analytical(inputs, output, check_dtypes, tol):
    wanted = [x for x in inputs if _wants(x)]
    first, types_ok, sizes_ok = _rows(wanted, output)
    second, _, _ = _rows(wanted, output)
    same = True
    for a, b in zip(first, second):
        for v, w in zip(a._flat(), b._flat()):
            if abs(v - w) > tol:
                same = False
    if not types_ok and check_dtypes:
        fail(GradcheckError, "Gradient has dtype mismatch")
    if not sizes_ok:
        fail(GradcheckError, "Analytical gradient has incorrect size")
    if not same:
        fail(
            GradcheckError,
            "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
            "different values, although analytical gradient matches numerical gradient.The tolerance for nondeterminism "
            "was " + str(float(tol)) + ".",
        )
    return first


def _rows(wanted, output):
    n = 1
    for size in output._shape:
        n *= size
    base = make([0.0] * n, output._shape, output.dtype)
    columns = [[] for _ in wanted]
    for j in range(n):
        base._write([1.0 if i == j else 0.0 for i in range(n)])
        found = grad(output, wanted, base, retain_graph=True, allow_unused=True)
        for i, g in enumerate(found):
            columns[i].append(None if g is None else (list(g._flat()), g._shape, g.dtype))
    out = []
    types_ok = sizes_ok = True
    for x, column in zip(wanted, columns):
        size = 1
        for s in x._shape:
            size *= s
        flat = [0.0] * (size * n)
        for j, entry in enumerate(column):
            if entry is None:
                continue
            values, shape, kind = entry
            if shape != x._shape:
                sizes_ok = False
            elif kind is not x.dtype:
                types_ok = False
            for i, v in enumerate(values):
                flat[i * n + j] = v
        out.append(make(flat, (size, n), x.dtype))
    return out, types_ok, sizes_ok


def close(a, b, rtol, atol, equal_nan=False):
    """Return whether two lists of numbers are close."""
    for v, w in zip(a, b):
        if v == w:
            continue
        if v != v or w != w:
            if equal_nan and v != v and w != w:
                continue
            return False
        if w - w != 0 or v - v != 0 or not abs(v - w) <= atol + rtol * abs(w):
            return False
    return True


class Undefined(Node):
    """Pass nothing on."""

    def _apply(self, grads):
        return (None,)


def _undefined(t):
    out = record(clone(t.detach()), "UndefinedGrad", (t,), (), None)
    node = Undefined("UndefinedGrad", (t,), None)
    out._fn, out._nr = node, 0
    return out


def gradcheck(
    func,
    inputs,
    eps=1e-6,
    atol=1e-5,
    rtol=1e-3,
    raise_exception=True,
    nondet_tol=0.0,
    check_undefined_grad=True,
    check_grad_dtypes=False,
    **other,
):
    """Compare the gradients of func with what is measured."""
    if other:
        refuse("gradcheck(" + sorted(other)[0] + "=...)")
    if raise_exception:
        return _gradcheck(func, inputs, eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes)
    try:
        return _gradcheck(func, inputs, eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes)
    except GradcheckError:
        return False


def _gradcheck(func, inputs, eps, atol, rtol, tol, undefined, check_dtypes):
    inputs = _as_tuple(inputs)
    asked = False
    for i, x in enumerate(inputs):
        if _wants(x):
            if x.dtype._name != "float64":
                refuse("gradcheck in float32, which warns and mostly fails,")
            for size, step in zip(x._shape, x._st):
                if step == 0 and size > 1:
                    fail(
                        RuntimeError,
                        "The "
                        + str(i)
                        + "th input has a dimension with stride 0. gradcheck only supports inputs that are "
                        "non-overlapping to be able to compute the numerical gradients correctly. You should call "
                        ".contiguous on the input before passing it to gradcheck.",
                    )
            asked = True
    if not asked:
        fail(
            ValueError,
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True.",
        )
    result = func(*inputs)
    for o in _as_tuple(result):
        if not isinstance(o, Tensor):
            refuse("gradcheck of what returns no tensor")
    outputs = _differentiable(result)
    every = _as_tuple(result)
    measured = _numerical(func, inputs, every, eps)
    if not outputs:
        for matrices in measured:
            for m in matrices:
                if any(ne(m, 0)._flat()):
                    fail(GradcheckError, "Numerical gradient for function expected to be zero")
    else:
        k = 0
        for at, o in enumerate(every):
            if not o.requires_grad:
                continue
            ours = _analytical(inputs, o, check_dtypes, tol)
            for j, a in enumerate(ours):
                n = measured[j][at]
                if not close(a._flat(), n._flat(), rtol, atol):
                    fail(
                        GradcheckError,
                        "Jacobian mismatch for output "
                        + str(k)
                        + " with respect to input "
                        + str(j)
                        + ",\nnumerical:"
                        + repr(n)
                        + "\nanalytical:"
                        + repr(a)
                        + "\n",
                    )
            k += 1
    _multiplied(outputs, inputs)
    if undefined:
        _supports_undefined(func, outputs, inputs)
    return True


def _zeros(t):
    return make([0.0] * len(t._flat()), t._shape, t.dtype)


def _multiplied(outputs, inputs):
    wanted = [x for x in inputs if _wants(x)]
    if not outputs:
        return
    found = grad(outputs, wanted, [_zeros(o) for o in outputs], allow_unused=True)
    for g, x in zip(found, wanted):
        if g is None:
            continue
        if not all([v == 0 for v in g._flat()]):
            fail(GradcheckError, "backward not multiplied by grad_output")
        if g.dtype is not x.dtype:
            fail(GradcheckError, "grad is incorrect type")
        if g._shape != x._shape:
            fail(GradcheckError, "grad is incorrect size")


def _supports_undefined(func, outputs, inputs):
    wanted = [x for x in inputs if _wants(x)]
    cases = [[_undefined(o) for o in _differentiable(func(*inputs))]]
    if len(cases[0]) > 1:
        for i in range(len(outputs)):
            fresh = _differentiable(func(*inputs))
            cases.append([_undefined(o) if j == i else o for j, o in enumerate(fresh)])
    for case in cases:
        if not case:
            continue
        try:
            found = grad(case, wanted, [_zeros(o) for o in case], allow_unused=True)
        except RuntimeError:
            fail(
                GradcheckError,
                'Expected backward function to handle undefined output grads. Please look at "Notes about undefined '
                'output gradients" in "tools/autograd/derivatives.yaml"',
            )
        for g in found:
            if g is not None and not all([v == 0 for v in g._flat()]):
                fail(
                    GradcheckError,
                    "Expected all input grads to be undefined or zero when all output grads are undefined or zero. "
                    'Please look at "Notes about undefined output gradients" in "tools/autograd/derivatives.yaml"',
                )


class _Draw:
    seed = 12345

    @staticmethod
    def next():
        """Return a number in [-1, 1)."""
        _Draw.seed = (_Draw.seed * 1103 + 12289) % 65521
        return 2.0 * _Draw.seed / 65521 - 1.0


def gradgradcheck(
    func,
    inputs,
    grad_outputs=None,
    eps=1e-6,
    atol=1e-5,
    rtol=1e-3,
    raise_exception=True,
    nondet_tol=0.0,
    check_undefined_grad=True,
    check_grad_dtypes=False,
    **other,
):
    """Compare the second derivatives of func with what is measured."""
    if other:
        refuse("gradgradcheck(" + sorted(other)[0] + "=...)")
    inputs = _as_tuple(inputs)
    if grad_outputs is None:
        upstream = []
        for o in _differentiable(func(*inputs)):
            g = make([_Draw.next() for _ in o._flat()], o._shape, o.dtype)
            g._leaf = True
            upstream.append(g)
        upstream = tuple(upstream)
    else:
        upstream = _as_tuple(grad_outputs)
    n = len(upstream)
    if n == 0:
        refuse("gradgradcheck of what has no gradient")
    asked = [i for i, x in enumerate(inputs) if _wants(x)]
    asked_up = [i for i, x in enumerate(upstream) if x.requires_grad]

    def first(*args):
        own = tuple([x.requires_grad_() if i in asked else x for i, x in enumerate(args[:-n])])
        outputs = _differentiable(func(*own))
        ups = tuple([x.requires_grad_() if i in asked_up else x for i, x in enumerate(args[-n:])])
        wanted = tuple([x for i, x in enumerate(own) if i in asked])
        found = grad(outputs, wanted, ups, create_graph=True, allow_unused=True)
        return tuple([g for g in found if g is not None])

    return gradcheck(
        first,
        inputs + upstream,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
    )


__all__ = ["GradcheckError", "close", "gradcheck", "gradgradcheck", "reshape"]
