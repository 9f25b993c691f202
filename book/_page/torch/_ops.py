"""What can be computed: each operation with its gradient, as torch has them."""

import math

from ._base import (
    bool_,
    broadcast,
    cast,
    combine,
    count,
    dense,
    fail,
    fit,
    float32,
    float64,
    higher,
    int64,
    places,
    refuse,
    wrap_dim,
)
from ._tensor import LEAF, Mode, Saved, Tensor, clone, make, number, record, strange

inf = math.inf
nan = math.nan


def tensor_of(value, name, at=1, word="input"):
    """Return value, which must be a tensor."""
    if not isinstance(value, Tensor):
        fail(
            TypeError,
            name + "(): argument '" + word + "' (position " + str(at) + ") must be Tensor, not " + type(value).__name__,
        )
    return value


def lift(value):
    """Return a tensor, or a Python number as one."""
    return value if isinstance(value, Tensor) else number(value)


def result_type(tensors):
    """Return the dtype in which tensors and numbers are computed together."""
    dims = zero = wrapped = None
    for t in tensors:
        if t._number:
            wrapped = higher(wrapped, float32 if t.dtype is float64 else t.dtype)
        elif t._shape == ():
            zero = higher(zero, t.dtype)
        else:
            dims = higher(dims, t.dtype)
    return combine(dims, combine(zero, wrapped))


def spread(t, shape, kind):
    """Return the numbers of t as a dtype holds them, broadcast to a shape; not to be written into."""
    if t._shape == shape:
        values = t._flat()
    elif count(t._shape) == 1:
        values = t._flat() * count(shape)
    else:
        lead = len(shape) - len(t._shape)
        strides = [0] * lead
        for size, stride in zip(t._shape, t._st):
            strides.append(0 if size == 1 else stride)
        data = t._s.data
        values = [data[i] for i in places(shape, strides, t._o)]
    return values if t.dtype is kind else cast(values, t.dtype, kind)


def floating(t):
    """Return the dtype in which a function of real numbers is computed."""
    return t.dtype if t.dtype.is_floating_point else float32


def plain(values, shape, kind, *sources):
    """Return a new tensor, in doubt of its layout where a source is."""
    out = make(values, shape, kind)
    for t in sources:
        if strange(t):
            out._odd = len(shape) > 1
    return out


# --- functions of one number


def _sign(v):
    return 1.0 if v > 0 else (-1.0 if v < 0 else 0.0)


def _exp(v):
    try:
        return math.exp(v)
    except (OverflowError, ValueError):  # MicroPython raises the second
        return inf


def _expm1(v):
    try:
        return math.expm1(v)
    except (OverflowError, ValueError):  # MicroPython raises the second
        return inf


def _log(v):
    if v > 0:
        return math.log(v) if v != inf else inf
    return -inf if v == 0 else nan


def _log1p(v):
    return _log1p_inside(v) if v > -1 else (-inf if v == -1 else nan)


def _log1p_inside(v):
    if v == inf or v == 0:
        return v
    u = 1.0 + v
    if u == 1.0:
        return v
    if abs(v) < 1e-2:  # a series: MicroPython has no log1p
        total, power, n = 0.0, v, 1
        while n < 12:
            total += power / n if n % 2 else -power / n
            power *= v
            n += 1
        return total
    return math.log(u) - ((u - 1.0) - v) / u


def _sqrt(v):
    return math.sqrt(v) if v >= 0 else nan


def _rsqrt(v):
    if v > 0:
        return 1.0 / math.sqrt(v)
    return math.copysign(inf, v) if v == 0 else nan


def _wave(f):
    return lambda v: nan if v in (inf, -inf) else f(v)


def _sigmoid(v):
    if v != v:
        return v
    if v >= 0:
        return 1.0 / (1.0 + _exp(-v))
    e = _exp(-v)
    return 1.0 / (1.0 + e)


def _sigmoid_single(v):
    return 0.0 if v < -88.72283935546875 else _sigmoid(v)  # there e to the -v is infinite in float32


def _whole(f):
    def g(v):
        if v != v or v in (inf, -inf) or abs(v) > 4503599627370496.0:
            return v
        return math.copysign(float(f(v)), v)

    return g


def _half_even(v):
    low = math.floor(v)
    rest = v - low
    if rest < 0.5 or (rest == 0.5 and low % 2 == 0):
        return low
    return low + 1


def _reciprocal(v):
    return 1.0 / v if v != 0 else math.copysign(inf, v)


def _relu(v):
    return 0.0 if v < 0 else v


def unary(name, node, value, slope, keeps, whole=None, single=None):
    """Return an operation on each element. Its gradient is slope(g, x or y); keeps says which: "x", "y" or ""."""

    def f(t):
        tensor_of(t, name)
        if t.dtype.is_floating_point:
            kind = t.dtype
            f = single if single is not None and kind is float32 else value
            values = fit([f(v) for v in t._flat()], kind)
        elif whole is not None:
            kind = t.dtype
            if kind is bool_:
                refuse(name + " of a bool tensor")
            values = [whole(v) for v in t._flat()]
        else:
            kind = float32
            values = fit([value(v) for v in cast(t._flat(), t.dtype, float32)], kind)
        out = plain(values, t._shape, kind, t)
        saves = (t,) if keeps == "x" else ((out,) if keeps == "y" else ())
        return record(out, node, (t,), saves, lambda g, saved, needs: slope(g, saved[0] if saved else None))

    return f


def _keep(v):
    return v


neg_ = unary("neg", "NegBackward0", lambda v: -v, lambda g, x: neg(g), "", lambda v: -v)


def neg(t):
    """Return -t."""
    if isinstance(t, Tensor) and t.dtype is bool_:
        fail(
            RuntimeError,
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the "
            "`~` or `logical_not()` operator instead.",
        )
    return neg_(t)


def _nothing(g):
    """Return zeros that leave what they are added to as it is, a zero's sign too."""
    out = zeros_like(g)
    out._void = True
    return out


absolute = unary("abs", "AbsBackward0", abs, lambda g, x: mul(g, sgn(x)), "x", abs)
sgn = unary("sgn", "SgnBackward0", _sign, lambda g, x: _nothing(g), "", lambda v: (v > 0) - (v < 0))
sign = unary("sign", "SignBackward0", _sign, lambda g, x: zeros_like(g), "", lambda v: (v > 0) - (v < 0))
exp = unary("exp", "ExpBackward0", _exp, lambda g, y: mul(g, y), "y")
expm1 = unary("expm1", "Expm1Backward0", _expm1, lambda g, y: mul(g, add(y, 1)), "y")
log = unary("log", "LogBackward0", _log, lambda g, x: div(g, x), "x")
log1p = unary("log1p", "Log1PBackward0", _log1p, lambda g, x: div(g, add(x, 1)), "x")
sqrt = unary("sqrt", "SqrtBackward0", _sqrt, lambda g, y: div(g, mul(2, y)), "y")
rsqrt = unary("rsqrt", "RsqrtBackward0", _rsqrt, lambda g, y: mul(mul(-0.5, g), pow_(y, 3)), "y")
sin = unary("sin", "SinBackward0", _wave(math.sin), lambda g, x: mul(g, cos(x)), "x")
cos = unary("cos", "CosBackward0", _wave(math.cos), lambda g, x: mul(g, neg(sin(x))), "x")
atan = unary("atan", "AtanBackward0", math.atan, lambda g, x: div(g, add(mul(x, x), 1)), "x")
tanh = unary("tanh", "TanhBackward0", math.tanh, lambda g, y: slope_of_tanh(g, y), "y")
sigmoid = unary(
    "sigmoid", "SigmoidBackward0", _sigmoid, lambda g, y: slope_of_sigmoid(g, y), "y", single=_sigmoid_single
)
relu = unary(
    "relu",
    "ReluBackward0",
    _relu,
    lambda g, y: _kinked(g, y, "Threshold", lambda h, z: where(le(z, 0), 0, h)),
    "y",
    lambda v: max(v, 0),
)
round_ = unary("round", "RoundBackward0", _whole(_half_even), lambda g, x: zeros_like(g), "", _keep)
floor = unary("floor", "FloorBackward0", _whole(math.floor), lambda g, x: zeros_like(g), "", _keep)
ceil = unary("ceil", "CeilBackward0", _whole(math.ceil), lambda g, x: zeros_like(g), "", _keep)
trunc = unary("trunc", "TruncBackward0", _whole(math.trunc), lambda g, x: zeros_like(g), "", _keep)
reciprocal = unary("reciprocal", "ReciprocalBackward0", _reciprocal, lambda g, y: mul(neg(g), mul(y, y)), "y")


def _kinked(g, x, name, rule):
    """Return rule(g, x), a gradient that x does not change by itself: its own gradient by x is 0."""
    was = Mode.enabled
    Mode.enabled = False
    try:
        out = rule(g, x)
    finally:
        Mode.enabled = was
    return record(
        out,
        name + "BackwardBackward0",
        (g, x),
        (x,),
        lambda h, saved, needs: (
            _kinked(h, saved[0], name, rule) if needs[0] else None,
            zeros_like(h) if needs[1] else None,
        ),
    )


def _together(g, y, name, value):
    """Return a gradient computed in one step of float64, as torch's own kernels do."""
    kind = g.dtype
    out = [value(a, b) for a, b in zip(g._flat(), y._flat())]
    return record(plain(fit(out, kind), g._shape, kind, g), name + "BackwardBackward0", (g, y), (g, y), _second(name))


def _second(name):
    def run(g2, saved, needs):
        g, y = saved
        if name == "Tanh":
            return slope_of_tanh(g2, y), mul(mul(g2, mul(g, -2)), y)
        return slope_of_sigmoid(g2, y), mul(mul(g2, g), sub(1, mul(2, y)))

    return run


def slope_of_tanh(g, y):
    """Return the gradient of tanh from its output."""
    return _together(g, y, "Tanh", lambda a, b: a * (1.0 - b * b))


def slope_of_sigmoid(g, y):
    """Return the gradient of sigmoid from its output."""
    return _together(g, y, "Sigmoid", lambda a, b: a * (1.0 - b) * b)


# --- functions of two numbers


def binary(a, b, value, exact=None, name=""):
    """Return value(a, b) for each pair; exact is for whole numbers."""
    a, b = lift(a), lift(b)
    kind = result_type((a, b))
    shape = broadcast((a._shape, b._shape))
    if not kind.is_floating_point:
        if exact is None:
            kind = float32
        elif kind is bool_:
            return _of_bools(name, a, b, shape)
    f = value if kind.is_floating_point else exact
    left, right = spread(a, shape, kind), spread(b, shape, kind)
    values = [f(v, w) for v, w in zip(left, right)]
    return a, b, plain(fit(values, kind), shape, kind, a, b)


def _of_bools(name, a, b, shape):
    if name == "sub":
        fail(
            RuntimeError,
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` "
            "operator instead.",
        )
    if name not in ("add", "mul"):
        refuse(name + " of two bool tensors")
    left, right = spread(a, shape, bool_), spread(b, shape, bool_)
    if name == "mul":
        values = [v and w for v, w in zip(left, right)]
    else:
        values = [v or w for v, w in zip(left, right)]
    return a, b, plain(values, shape, bool_, a, b)


def whole(v):
    """Return a whole number, if int64 can hold it."""
    return _int(v)


def _int(v):
    if not -9223372036854775808 <= v <= 9223372036854775807:
        refuse("a number that int64 cannot hold")
    return v


def add(a, b):
    """Return a + b."""
    a, b, out = binary(a, b, lambda v, w: v + w, lambda v, w: _int(v + w), "add")
    return record(out, "AddBackward0", (a, b), (), lambda g, saved, needs: (g, g))


def _no_bools(a, b):
    one, two = lift(a).dtype is bool_, lift(b).dtype is bool_
    if one and two:
        return
    if one or two:
        fail(
            RuntimeError,
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use "
            "the `~` or `logical_not()` operator instead.",
        )


def sub(a, b):
    """Return a - b."""
    _no_bools(a, b)
    a, b, out = binary(a, b, lambda v, w: v - w, lambda v, w: _int(v - w), "sub")
    return record(out, "SubBackward0", (a, b), (), lambda g, saved, needs: (g, neg(g) if needs[1] else None))


def rsub(b, a):
    """Return a - b, for a Python number a."""
    _no_bools(a, b)
    _, _, out = binary(a, b, lambda v, w: v - w, lambda v, w: _int(v - w), "sub")
    return record(out, "RsubBackward1", (b,), (), lambda g, saved, needs: neg(g))


def mul(a, b):
    """Return a * b."""
    a, b, out = binary(a, b, lambda v, w: v * w, lambda v, w: _int(v * w), "mul")
    saves = (a if b.requires_grad else None, b if a.requires_grad else None)

    def run(g, saved, needs):
        return (mul(g, saved[1]) if needs[0] else None, mul(g, saved[0]) if needs[1] else None)

    return record(out, "MulBackward0", (a, b), saves, run)


def _div(v, w):
    if w != 0:
        return v / w
    if v != v or w != w or v == 0:
        return nan
    return math.copysign(inf, v) * math.copysign(1.0, w)


def div(a, b):
    """Return a / b."""
    a, b, out = binary(a, b, _div)

    def run(g, saved, needs):
        x, y = saved
        return (div(g, y) if needs[0] else None, mul(neg(g), div(div(x, y), y)) if needs[1] else None)

    return record(out, "DivBackward0", (a, b), (a if b.requires_grad else None, b), run)


def _pow(v, w):
    if w == 0 or v == 1:
        return 1.0
    if v != v or w != w:
        return nan
    odd = w == math.floor(w) and abs(w) < 9007199254740992.0 and int(w) % 2 == 1
    if v == 0:
        if w > 0:
            return v if odd else 0.0
        return math.copysign(inf, v) if odd else inf
    if v in (inf, -inf):
        if w < 0:
            return math.copysign(0.0, v) if odd else 0.0
        return v if odd else inf
    if w in (inf, -inf):
        if v == -1:
            return 1.0
        return inf if (abs(v) > 1) == (w > 0) else 0.0
    if v < 0 and w != math.floor(w):
        return nan
    try:
        return math.pow(v, w)
    except (OverflowError, ValueError):  # MicroPython raises the second
        return -inf if v < 0 and odd else inf


def _power_by(w, kind):
    """Return the function of v that torch's kernel computes for an exponent that is a number."""

    def once(v):
        return fit([v], kind)[0]

    if w == 2:
        return lambda v: v * v
    if w == 3:
        return lambda v: once(v * v) * v
    if w == 0.5:
        return _sqrt
    if w == -0.5:
        return _rsqrt
    if w == -1:
        return _reciprocal
    if w == -2:
        return lambda v: _reciprocal(once(v * v))
    return lambda v: _pow(v, w)


def pow_(a, b):
    """Return a to the power b."""
    if isinstance(a, Tensor) and not isinstance(b, Tensor):
        b = number(b)
        kind = result_type((a, b))
        if kind is bool_:
            refuse("pow of a bool tensor")
        w = b._s.data[0]
        if kind is int64:
            if w < 0:
                fail(RuntimeError, "Integers to negative integer powers are not allowed.")
            return plain([_int(v**w) for v in spread(a, a._shape, int64)], a._shape, int64, a)
        w = fit([float(w)], kind)[0]
        f = _power_by(w, kind)
        if w == 0:
            f = lambda v: 1.0  # noqa: E731
        elif w == 1:
            f = _keep
        out = plain(fit([f(v) for v in spread(a, a._shape, kind)], kind), a._shape, kind, a)
        exponent = b._s.data[0]

        def slope(g, saved, needs):
            if exponent == 0:
                return zeros_like(saved[0])
            return mul(g, mul(exponent, pow_(saved[0], exponent - 1)))

        return record(out, "PowBackward0", (a,), (a,), slope)
    base_is_number = not isinstance(a, Tensor)
    a, b = lift(a), lift(b)
    if result_type((a, b)) is bool_:
        refuse("pow of a bool tensor")
    if result_type((a, b)) is int64:
        refuse("pow of two int64 tensors")
    a, b, out = binary(a, b, _pow)

    def slopes(g, saved, needs):
        x, y, z = saved
        first = second = None
        if needs[0]:
            first = where(eq(y, 0), 0, mul(g, mul(y, pow_(x, sub(y, 1)))))
        if needs[1]:
            rule = where(logical_and(eq(x, 0), ge(y, 0)), 0, mul(mul(g, z), log(x)))
            second = rule
        return first, second

    if base_is_number:

        def of_exponent(g, saved, needs):
            y, z = saved
            base = a._s.data[0]
            if base == 0:
                refuse("the gradient of 0 to a power")
            if base < 0:
                return mul(g, mul(z, nan))
            return mul(g, mul(z, math.log(base)))

        return record(out, "PowBackward2", (b,), (b, out), of_exponent)
    return record(out, "PowBackward1", (a, b), (a, b, out if b.requires_grad else None), slopes)


def _extreme(name, node, pick, below):
    def f(a, b):
        tensor_of(a, name)
        tensor_of(b, name, 2, "other")
        a, b, out = binary(a, b, pick, pick, name)

        def run(g, saved, needs):
            x, y = saved
            g = where(eq(x, y), div(g, 2), g)
            return (
                where(below(x, y), 0, g) if needs[0] else None,
                where(below(y, x), 0, g) if needs[1] else None,
            )

        return record(out, node, (a, b), (a, b), run)

    return f


def _max(v, w):
    return v if v != v or v > w or (v == w and not w != w) else w


def _min(v, w):
    return v if v != v or v < w or (v == w and not w != w) else w


maximum = _extreme("maximum", "MaximumBackward0", _max, lambda x, y: lt(x, y))
minimum = _extreme("minimum", "MinimumBackward0", _min, lambda x, y: gt(x, y))


def comparison(f):
    """Return an operation whose answers are bools."""

    def compare(a, b):
        a, b = lift(a), lift(b)
        kind = result_type((a, b))
        shape = broadcast((a._shape, b._shape))
        left, right = spread(a, shape, kind), spread(b, shape, kind)
        return plain([f(v, w) for v, w in zip(left, right)], shape, bool_, a, b)

    return compare


eq = comparison(lambda v, w: v == w)
ne = comparison(lambda v, w: v != w)
lt = comparison(lambda v, w: v < w)
le = comparison(lambda v, w: v <= w)
gt = comparison(lambda v, w: v > w)
ge = comparison(lambda v, w: v >= w)


def _logical(name, f):
    def compare(a, b):
        tensor_of(a, name)
        tensor_of(b, name, 2, "other")
        shape = broadcast((a._shape, b._shape))
        left, right = spread(a, shape, bool_), spread(b, shape, bool_)
        return plain([f(v, w) for v, w in zip(left, right)], shape, bool_, a, b)

    return compare


logical_and = _logical("logical_and", lambda v, w: v and w)
logical_or = _logical("logical_or", lambda v, w: v or w)
logical_xor = _logical("logical_xor", lambda v, w: v != w)


def logical_not(t):
    """Return where t is 0."""
    tensor_of(t, "logical_not")
    return plain([not v for v in t._flat()], t._shape, bool_, t)


def bitwise(name, f):
    """Return &, | or ^ of bools."""

    def of_bools(a, b):
        floats = [t.dtype for t in (a, b) if isinstance(t, Tensor) and t.dtype.is_floating_point]
        whole = all([isinstance(t, (bool, int)) or (isinstance(t, Tensor) and t.dtype is not bool_) for t in (a, b)])
        if floats and whole:
            kind = float64 if float64 in floats else float32
            word = {"&": "and", "|": "or", "^": "xor"}[name]
            fail(NotImplementedError, '"bitwise_' + word + "_cpu\" not implemented for '" + kind._short + "'")
        a, b = lift(a), lift(b)
        if a.dtype is not bool_ or b.dtype is not bool_:
            refuse(name + " of what is not bool")
        shape = broadcast((a._shape, b._shape))
        left, right = spread(a, shape, bool_), spread(b, shape, bool_)
        return plain([f(v, w) for v, w in zip(left, right)], shape, bool_, a, b)

    return of_bools


bit_and = bitwise("&", lambda v, w: v and w)
bit_or = bitwise("|", lambda v, w: v or w)
bit_xor = bitwise("^", lambda v, w: v != w)


def invert(t):
    """Return ~t of a mask."""
    if t.dtype.is_floating_point:
        fail(TypeError, "~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    if t.dtype is int64:
        return plain([-v - 1 for v in t._flat()], t._shape, int64, t)
    return logical_not(t)


def _test(f):
    def g(t):
        return plain([f(v) for v in tensor_of(t, "this")._flat()], t._shape, bool_, t)

    return g


isnan = _test(lambda v: v != v)
isinf = _test(lambda v: v == inf or v == -inf)
isfinite = _test(lambda v: v == v and v != inf and v != -inf)


# --- choosing


def where(condition, a, b):
    """Return a where the condition holds, b elsewhere."""
    if not isinstance(condition, Tensor):
        refuse("where with a condition that is no tensor")
    if condition.dtype is not bool_:
        fail(
            RuntimeError,
            "where expected condition to be a boolean tensor, but got a tensor with dtype " + condition.dtype._short,
        )
    a, b = lift(a), lift(b)
    kind = result_type((a, b))
    shape = broadcast((condition._shape, a._shape, b._shape))
    chosen = zip(spread(condition, shape, bool_), spread(a, shape, kind), spread(b, shape, kind))
    out = plain([v if c else w for c, v, w in chosen], shape, kind, condition, a, b)

    def run(g, saved, needs):
        c = saved[0]
        return (where(c, g, 0) if needs[0] else None, where(c, 0, g) if needs[1] else None)

    return record(out, "WhereBackward0", (a, b), (condition,), run)


def masked_fill(t, mask, value):
    """Return t with value where the mask holds."""
    tensor_of(t, "masked_fill")
    tensor_of(mask, "masked_fill", 2, "mask")
    if mask.dtype is not bool_:
        fail(RuntimeError, "masked_fill_ only supports boolean masks, but got mask with dtype " + name_of(mask.dtype))
    value_is_tensor = isinstance(value, Tensor)
    if value_is_tensor and value._shape != ():
        refuse("masked_fill with a value that is no number")
    value = lift(value)
    if value.dtype.is_floating_point and not t.dtype.is_floating_point:
        refuse("masked_fill of whole numbers with a float")
    shape = broadcast((t._shape, mask._shape))
    v = cast(value._flat(), value.dtype, t.dtype)[0]
    values = [v if m else w for m, w in zip(spread(mask, shape, bool_), spread(t, shape, t.dtype))]
    out = plain(values, shape, t.dtype, t, mask)

    def run(g, saved, needs):
        m = saved[0]
        second = sum_(where(m, g, zeros_like(g))) if needs[1] else None
        return (masked_fill(g, m, 0) if needs[0] else None, second)

    node = "MaskedFillBackward1" if value_is_tensor else "MaskedFillBackward0"
    return record(out, node, (t, value), (mask,), run)


def name_of(kind):
    return {"bool": "bool", "int64": "long int", "float32": "float", "float64": "double"}[kind._name]


def clamp(t, low=None, high=None):
    """Return t between two numbers."""
    tensor_of(t, "clamp")
    if low is None and high is None:
        fail(RuntimeError, "torch.clamp: At least one of 'min' or 'max' must not be None")
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        return _clamp_tensors(t, low, high)
    bounds = [number(v) for v in (low, high) if v is not None]
    kind = result_type([t] + bounds)
    if kind is bool_:
        refuse("clamp of a bool tensor")
    low_v = None if low is None else cast([low], number(low).dtype, kind)[0]
    high_v = None if high is None else cast([high], number(high).dtype, kind)[0]
    if low_v != low_v or high_v != high_v:
        refuse("clamp to nan")
    values = spread(t, t._shape, kind)
    if low_v is not None:
        values = [low_v if v < low_v else v for v in values]
    if high_v is not None:
        values = [high_v if v > high_v else v for v in values]
    out = plain(list(values), t._shape, kind, t)

    def run(g, saved, needs):
        x = saved[0]
        inside = None
        if low is not None:
            inside = ge(x, low)
        if high is not None:
            inside = le(x, high) if inside is None else logical_and(inside, le(x, high))
        return where(inside, g, 0)

    return record(out, "ClampBackward1", (t,), (t,), run)


def _clamp_tensors(t, low, high):
    for v in (low, high):
        if v is not None and not isinstance(v, Tensor):
            refuse("clamp between a tensor and a number")
    inputs = [t]
    inputs += [v for v in (low, high) if v is not None]
    kind = result_type(inputs)
    if kind is bool_:
        refuse("clamp of a bool tensor")
    shape = broadcast([v._shape for v in inputs])
    values = spread(t, shape, kind)
    if low is not None:
        values = [_max(v, w) for v, w in zip(values, spread(low, shape, kind))]
    if high is not None:
        values = [_min(v, w) for v, w in zip(values, spread(high, shape, kind))]
    out = plain(list(values), shape, kind, *inputs)

    def run(g, saved, needs):
        x, lo, hi = saved
        if lo is not None and hi is not None:
            inside = logical_and(ge(x, lo), le(x, hi))
            to_low = logical_and(lt(x, lo), lt(lo, hi))
            to_high = logical_or(gt(x, hi), lt(hi, lo))
        elif lo is not None:
            inside, to_low, to_high = ge(x, lo), lt(x, lo), None
        else:
            inside, to_low, to_high = le(x, hi), None, gt(x, hi)
        return (
            where(inside, g, 0) if needs[0] else None,
            where(to_low, g, 0) if lo is not None and needs[1] else None,
            where(to_high, g, 0) if hi is not None and needs[2] else None,
        )

    return record(out, "ClampBackward0", (t, low, high), (t, low, high), run)


def hardtanh(t, low=-1.0, high=1.0):
    """Return t between two numbers; the gradient at a bound is 0."""
    tensor_of(t, "hardtanh")
    if not t.dtype.is_floating_point or isinstance(low, Tensor) or isinstance(high, Tensor) or low > high:
        refuse("hardtanh in this form")
    low_v, high_v = fit([float(low), float(high)], t.dtype)
    values = [low_v if v < low_v else (high_v if v > high_v else v) for v in t._flat()]
    out = plain(values, t._shape, t.dtype, t)
    return record(
        out,
        "HardtanhBackward0",
        (t,),
        (t,),
        lambda g, saved, needs: _kinked(
            g, saved[0], "Hardtanh", lambda h, x: where(logical_or(le(x, low), ge(x, high)), 0, h)
        ),
    )


def leaky_relu(t, slope=0.01):
    """Return t where t > 0, slope t elsewhere."""
    tensor_of(t, "leaky_relu")
    if not t.dtype.is_floating_point or isinstance(slope, Tensor):
        refuse("leaky_relu in this form")
    s = fit([float(slope)], t.dtype)[0]
    values = fit([v if v > 0 else v * s for v in t._flat()], t.dtype)
    out = plain(values, t._shape, t.dtype, t)

    def run(g, saved, needs):
        return _kinked(g, saved[0], "LeakyRelu", lambda h, x: where(gt(x, 0), h, mul(h, slope)))

    return record(out, "LeakyReluBackward0", (t,), (t,), run)


# --- sums


def dims_of(dim, n):
    if dim is None:
        return list(range(n))
    if isinstance(dim, int) and not isinstance(dim, bool):
        d = wrap_dim(dim, n)
        return [d] if n else []
    if not isinstance(dim, (tuple, list)):
        refuse("a dimension that is no int")
    if not dim:
        return list(range(n))
    out = [wrap_dim(d, n) for d in dim]
    for i in range(len(out)):
        if out[i] in out[:i]:
            fail(RuntimeError, "dim " + str(out[i]) + " appears multiple times in the list of dims")
    return [] if n == 0 else sorted(out)


def grouped(t, dims, kind):
    """Return the shape that is left with and without the dimensions, and the list of numbers for each place in it."""
    keep = [d for d in range(len(t._shape)) if d not in dims]
    shape = tuple([t._shape[d] for d in keep])
    kept = tuple([1 if d in dims else t._shape[d] for d in range(len(t._shape))])
    values = t._flat() if t.dtype is kind else cast(t._flat(), t.dtype, kind)
    strides = dense(t._shape)
    starts = places(shape, [strides[d] for d in keep], 0)
    steps = places([t._shape[d] for d in dims], [strides[d] for d in dims], 0)
    if len(starts) == 1 and len(steps) == len(values):
        return shape, kept, [values]
    return shape, kept, [[values[s + q] for q in steps] for s in starts]


def _kept_shape(shape, dims):
    return tuple([1 if d in dims else shape[d] for d in range(len(shape))])


def unreduce(g, shape, dims):
    """Return g, one number for each sum, as one for each summand."""
    return expand(reshape(g, _kept_shape(shape, dims)), shape)


def sum_(t, dim=None, keepdim=False, dtype=None):
    """Return the sum over dimensions."""
    tensor_of(t, "sum")
    kind = dtype or (t.dtype if t.dtype.is_floating_point else int64)
    dims = dims_of(dim, len(t._shape))
    shape, kept, groups = grouped(t, dims, kind)
    values = [sum(v, 0.0 if kind.is_floating_point else 0) for v in groups]
    if kind is bool_:
        refuse("a sum of dtype bool")
    out = plain(fit(values, kind), kept if keepdim else shape, kind, t)
    whole = t._shape
    name = "SumBackward0" if dim is None else "SumBackward1"
    return record(out, name, (t,), (), lambda g, saved, needs: unreduce(g, whole, dims))


def mean(t, dim=None, keepdim=False, dtype=None):
    """Return the mean over dimensions."""
    tensor_of(t, "mean")
    kind = dtype or t.dtype
    if not kind.is_floating_point:
        fail(
            RuntimeError,
            "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: "
            + kind._short,
        )
    dims = dims_of(dim, len(t._shape))
    shape, kept, groups = grouped(t, dims, kind)
    n = count([t._shape[d] for d in dims])
    values = [_div(v, float(n)) for v in fit([sum(v, 0.0) for v in groups], kind)]
    out = plain(fit(values, kind), kept if keepdim else shape, kind, t)
    whole = t._shape
    name = "MeanBackward0" if dim is None else "MeanBackward1"
    return record(out, name, (t,), (), lambda g, saved, needs: div(unreduce(g, whole, dims), n))


def _best(values, pick):
    best = values[0]
    for v in values:
        best = pick(best, v)
    return best


def _empty(name, t, dims):
    for d in dims:
        if t._shape[d] == 0:
            if len(dims) == len(t._shape):
                fail(
                    RuntimeError,
                    name
                    + "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with "
                    "the 'dim' argument.",
                )
            fail(IndexError, name + "(): Expected reduction dim " + str(d) + " to have non-zero size.")


def _extremes(name, node, pick, nans=False):
    def f(t, dim=None, keepdim=False):
        tensor_of(t, name)
        dims = dims_of(dim, len(t._shape))
        if dim is not None or count(t._shape) == 0:
            if 0 in [t._shape[d] for d in dims]:
                if dim is None:
                    _empty(name, t, dims)
                refuse(name + " of nothing")
        shape, kept, groups = grouped(t, dims, t.dtype)
        out = plain([_best(v, pick) for v in groups], kept if keepdim else shape, t.dtype, t)
        whole = t._shape

        def run(g, saved, needs):
            x, y = saved
            mask = isnan(x) if nans and y._flat()[0] != y._flat()[0] else eq(x, unreduce(y, whole, dims))
            ties = sum_(mask, dims, True) if dims else sum_(mask)
            return mul(div(unreduce(g, whole, dims), reshape(ties, _kept_shape(whole, dims))), mask)

        return record(out, node, (t,), (t, out), run)

    return f


amax = _extremes("amax", "AmaxBackward0", _max)
amin = _extremes("amin", "AminBackward0", _min)
max_all = _extremes("max", "MaxBackward1", _max, True)
min_all = _extremes("min", "MinBackward1", _min, True)


class Pair:
    """Values and where they stand, as max along a dimension returns them."""

    def __init__(self, name, values, indices):
        self._name = name
        self.values = values
        self.indices = indices

    def __iter__(self):
        return iter((self.values, self.indices))

    def __len__(self):
        return 2

    def __getitem__(self, at):
        return (self.values, self.indices)[at]

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(self._name + "." + name)

    def __repr__(self):
        return (
            "torch.return_types."
            + self._name
            + "(\nvalues="
            + repr(self.values)
            + ",\nindices="
            + repr(self.indices)
            + ")"
        )


def _along(name, node, better):
    def f(t, dim, keepdim=False):
        d = wrap_dim(dim, len(t._shape))
        if t._shape == ():
            same = gather(t, [0], (), node)
            return Pair(name, same, make([0], (), int64))
        if t._shape[d] == 0:
            fail(IndexError, name + "(): Expected reduction dim " + str(d) + " to have non-zero size.")
        shape, kept, groups = grouped(t, [d], t.dtype)
        spots = []
        for values in groups:
            at = 0
            for i in range(1, len(values)):
                v, best = values[i], values[at]
                if best == best and (v != v or better(v, best)):
                    at = i
            spots.append(at)
        final = kept if keepdim else shape
        out = plain([v[i] for v, i in zip(groups, spots)], final, t.dtype, t)
        indices = plain(spots, final, int64, t)
        whole = t._shape

        def run(g, saved, needs):
            strides = dense(whole)
            starts = places(kept, strides, 0)
            return scatter(g, [s + i * strides[d] for s, i in zip(starts, spots)], whole)

        return Pair(name, record(out, node, (t,), (indices,), run), indices)

    return f


max_dim = _along("max", "MaxBackward0", lambda v, w: v > w)
min_dim = _along("min", "MinBackward0", lambda v, w: v < w)


def argmax(t, dim=None, keepdim=False):
    """Return where the largest number stands."""
    tensor_of(t, "argmax")
    if t.dtype is bool_:
        fail(RuntimeError, "argmax(): does not support bool input")
    if dim is None:
        if keepdim or count(t._shape) == 0:
            refuse("argmax in this form")
        flat = make(list(t._flat()), (count(t._shape),), t.dtype)
        return max_dim(flat, 0).indices
    return max_dim(t, dim, keepdim).indices


def all_(t, dim=None, keepdim=False):
    """Return whether all are not 0."""
    shape, kept, groups = grouped(tensor_of(t, "all"), dims_of(dim, len(t._shape)), bool_)
    return plain([all(v) for v in groups], kept if keepdim else shape, bool_, t)


def any_(t, dim=None, keepdim=False):
    """Return whether one is not 0."""
    shape, kept, groups = grouped(tensor_of(t, "any"), dims_of(dim, len(t._shape)), bool_)
    return plain([any(v) for v in groups], kept if keepdim else shape, bool_, t)


def logsumexp(t, dim, keepdim=False):
    """Return the logarithm of the sum of exponentials."""
    tensor_of(t, "logsumexp")
    if not t.dtype.is_floating_point:
        refuse("logsumexp of whole numbers")
    kind = t.dtype
    dims = dims_of(dim, len(t._shape))
    shape, kept, groups = grouped(t, dims, kind)
    values = []
    for v in groups:
        m = _best(v, _max) if v else -inf
        shift = 0.0 if m in (inf, -inf) else m
        total = sum(fit([_exp(w) for w in fit([w - shift for w in v], kind)], kind), 0.0)
        values.append(fit([_log(fit([total], kind)[0])], kind)[0] + shift)
    out = plain(fit(values, kind), kept if keepdim else shape, kind, t)
    whole = t._shape

    def run(g, saved, needs):
        x, y = saved
        return mul(unreduce(g, whole, dims), exp(sub(x, unreduce(y, whole, dims))))

    return record(out, "LogsumexpBackward0", (t,), (t, out), run)


def _softmax(t, dim, logs):
    kind = t.dtype
    d = wrap_dim(dim, len(t._shape))
    dims = [d] if t._shape else []
    shape, kept, groups = grouped(t, dims, kind)
    out = [None] * count(t._shape)
    strides = dense(t._shape)
    starts = places(kept, strides, 0)
    step = strides[d] if t._shape else 1
    for start, v in zip(starts, groups):
        if not v:
            continue
        m = _best(v, _max)
        shifted = fit([w - m for w in v], kind)
        e = fit([_exp(w) for w in shifted], kind)
        total = fit([sum(e, 0.0)], kind)[0]
        if logs:
            low = fit([_log(total)], kind)[0]
            e = [w - low for w in shifted]
        else:
            e = [_div(w, total) for w in e]
        for i, w in enumerate(e):
            out[start + i * step] = w
    return plain(fit(out, kind), t._shape, kind, t), dims


def softmax(t, dim):
    """Return exponentials that sum to 1 along a dimension."""
    if not t.dtype.is_floating_point:
        refuse("softmax of whole numbers")
    out, dims = _softmax(t, dim, False)

    def run(g, saved, needs):
        y = saved[0]
        gy = mul(g, y)
        return mul(sub(g, sum_(gy, dims, True) if dims else sum_(gy)), y)

    return record(out, "SoftmaxBackward0", (t,), (out,), run)


def log_softmax(t, dim):
    """Return the logarithm of softmax."""
    if not t.dtype.is_floating_point:
        refuse("log_softmax of whole numbers")
    out, dims = _softmax(t, dim, True)

    def run(g, saved, needs):
        return sub(g, mul(exp(saved[0]), sum_(g, dims, True) if dims else sum_(g)))

    return record(out, "LogSoftmaxBackward0", (t,), (out,), run)


# --- shapes


def gather(t, at, shape, name="IndexBackward0"):
    """Return the elements at these places of the contiguous t."""
    whole = t._shape
    flat = t._flat()
    out = make([flat[i] for i in at], shape, t.dtype)
    return record(out, name, (t,), (), lambda g, saved, needs: scatter(g, at, whole))


def scatter(g, at, shape):
    """Return zeros of a shape, with g added at these places."""
    values = [0.0] * count(shape)
    for i, v in zip(at, g._flat()):
        values[i] += v
    inner = g._shape
    out = make(fit(values, g.dtype), shape, g.dtype)
    return record(out, "ScatterBackward", (g,), (), lambda h, saved, needs: gather(h, at, inner))


def view_of(t, meta, name):
    """Return a view: meta(shape, strides, offset) gives its own."""
    shape, strides, offset = meta(t._shape, t._st, t._o)
    out = object.__new__(Tensor)._fill(t._s, tuple(shape), tuple(strides), offset, t.dtype)
    out._base = t._base if t._base is not None else t
    out._seen = t._s.version
    out._odd = t._odd
    out._made = name
    out._custom = t._custom if Mode.enabled or t._custom == "odd" else "quiet"
    whole = t._shape

    def run(g, saved, needs):
        inner, steps, start = meta(whole, dense(whole), 0)
        return scatter(g, places(inner, steps, start), whole)

    return record(out, name, (t,), (), run)


def view_strides(shape, strides, new):
    """Return the strides with which a view has another shape, None where there are none."""
    if count(shape) == 0:
        return dense(new)
    out = [0] * len(new)
    at = len(new) - 1
    base = strides[-1] if strides else 1
    block = have = 1
    for d in range(len(shape) - 1, -1, -1):
        block *= shape[d]
        if d == 0 or (shape[d - 1] != 1 and strides[d - 1] != block * base):
            while at >= 0 and (have < block or new[at] == 1):
                out[at] = have * base
                have *= new[at]
                at -= 1
            if have != block:
                return None
            if d > 0:
                base = strides[d - 1]
                block = have = 1
    if not shape:
        return dense(new)
    return None if at != -1 else tuple(out)


def new_shape(t, sizes):
    """Return the sizes with -1 filled in."""
    sizes = [s for s in sizes]  # noqa: C416
    for s in sizes:
        if isinstance(s, bool) or not isinstance(s, int):
            refuse("a size that is no int")
    n = count(t._shape)
    text = "shape '[" + ", ".join([str(s) for s in sizes]) + "]' is invalid for input of size " + str(n)
    if -1 in sizes:
        at = sizes.index(-1)
        rest = count(sizes[:at] + sizes[at + 1 :])
        if -1 in sizes[at + 1 :]:
            fail(RuntimeError, "only one dimension can be inferred")
        if rest == 0:
            refuse("-1 beside a size of 0")
        if rest < 0 or n % rest:
            fail(RuntimeError, text)
        sizes[at] = n // rest
    if [s for s in sizes if s < 0]:
        refuse("a size below -1")
    if count(sizes) != n:
        fail(RuntimeError, text)
    return tuple(sizes)


def view(t, sizes, name="ViewBackward0"):
    """Return the same numbers in another shape, or raise."""
    if Mode.enabled and t.requires_grad:
        t._known()
    new = new_shape(t, sizes)
    if t._odd:
        refuse("view of what may lie otherwise in torch")
    strides = view_strides(t._shape, t._st, new)
    if strides is None:
        fail(
            RuntimeError,
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead.",
        )

    def meta(shape, st, o):
        return new, view_strides(shape, st, new), o

    return view_of(t, meta, name)


def reshape(t, sizes):
    """Return the same numbers in another shape."""
    new = new_shape(t, sizes)
    if t._odd:
        out = gather(t, list(range(count(t._shape))), new, "ViewBackward0")
        out._custom = "odd"
        return out
    if view_strides(t._shape, t._st, new) is None:
        return gather(t, list(range(count(t._shape))), new, "UnsafeViewBackward0")
    return view(t, new)


def transpose(t, a, b, name="TransposeBackward0"):
    """Return t with two dimensions swapped."""
    n = len(t._shape)
    a, b = wrap_dim(a, n), wrap_dim(b, n)
    order = list(range(n))
    if n:
        order[a], order[b] = b, a
    return permute(t, order, name)


def permute(t, order, name="PermuteBackward0"):
    """Return t with its dimensions in another order."""
    n = len(t._shape)
    if len(order) != n:
        refuse("permute with another number of dimensions")
    order = [wrap_dim(d, n) for d in order]
    if sorted(order) != list(range(n)):
        fail(RuntimeError, "permute(): duplicate dims are not allowed.")

    def meta(shape, st, o):
        return [shape[d] for d in order], [st[d] for d in order], o

    return view_of(t, meta, name)


def t_(t):
    """Return the transpose of a matrix."""
    if len(t._shape) > 2:
        fail(RuntimeError, "t() expects a tensor with <= 2 dimensions, but self is " + str(len(t._shape)) + "D")
    if len(t._shape) < 2:
        return permute(t, list(range(len(t._shape))), "TBackward0")
    return transpose(t, 0, 1, "TBackward0")


def unsqueeze(t, dim):
    """Return t with a dimension of size 1 put in."""
    d = wrap_dim(dim, len(t._shape) + 1)

    def meta(shape, st, o):
        step = shape[d] * st[d] if d < len(shape) else 1
        return list(shape[:d]) + [1] + list(shape[d:]), list(st[:d]) + [step] + list(st[d:]), o

    return view_of(t, meta, "UnsqueezeBackward0")


def squeeze(t, dim=None):
    """Return t without dimensions of size 1."""
    n = len(t._shape)
    if dim is None:
        gone = [d for d in range(n) if t._shape[d] == 1]
    elif isinstance(dim, int) and not isinstance(dim, bool):
        d = wrap_dim(dim, n)
        gone = [d] if n and t._shape[d] == 1 else []
    else:
        refuse("squeeze in this form")

    def meta(shape, st, o):
        keep = [d for d in range(len(shape)) if d not in gone]
        return [shape[d] for d in keep], [st[d] for d in keep], o

    return view_of(t, meta, "SqueezeBackward0" if dim is None else "SqueezeBackward1")


def expand(t, sizes):
    """Return a view in which sizes of 1 are repeated."""
    sizes = list(sizes)
    own = t._shape
    lead = len(sizes) - len(own)
    if lead < 0:
        fail(
            RuntimeError,
            "expand("
            + t.dtype._tensor
            + "{["
            + ", ".join([str(s) for s in own])
            + "]}, size=["
            + ", ".join([str(s) for s in sizes])
            + "]): the number of sizes provided ("
            + str(len(sizes))
            + ") must be greater or equal to the number of dimensions in the tensor ("
            + str(len(own))
            + ")",
        )
    for i in range(len(sizes)):
        if isinstance(sizes[i], bool) or not isinstance(sizes[i], int):
            refuse("a size that is no int")
        have = own[i - lead] if i >= lead else 1
        if sizes[i] == -1 and i >= lead:
            sizes[i] = have
        elif sizes[i] < 0:
            refuse("expand to this size")
        elif have != 1 and sizes[i] != have:
            fail(
                RuntimeError,
                "The expanded size of the tensor ("
                + str(sizes[i])
                + ") must match the existing size ("
                + str(have)
                + ") at non-singleton dimension "
                + str(i)
                + ".  Target sizes: ["
                + ", ".join([str(s) for s in sizes])
                + "].  Tensor sizes: ["
                + ", ".join([str(s) for s in own])
                + "]",
            )

    def meta(shape, st, o):
        steps = [0] * lead
        for i in range(len(shape)):
            steps.append(0 if shape[i] == 1 and sizes[lead + i] != 1 else st[i])
        return sizes, steps, o

    return view_of(t, meta, "ExpandBackward0")


def select(t, d, i, name="SelectBackward0"):
    """Return the i-th of dimension d."""

    def meta(shape, st, o):
        return list(shape[:d]) + list(shape[d + 1 :]), list(st[:d]) + list(st[d + 1 :]), o + i * st[d]

    return view_of(t, meta, name)


def cut(t, d, start, stop, step, name="SliceBackward0"):
    """Return a slice of dimension d."""
    n = max(0, (stop - start + step - 1) // step)

    def meta(shape, st, o):
        sizes, steps = list(shape), list(st)
        sizes[d] = n
        steps[d] = st[d] * step
        return sizes, steps, o + (start * st[d] if n else 0)

    return view_of(t, meta, name)


def split(t, size, dim=0):
    """Return views of t, of a size along a dimension."""
    d = wrap_dim(dim, len(t._shape))
    if not t._shape:
        refuse("split of a number")
    n = t._shape[d]
    if isinstance(size, int) and not isinstance(size, bool):
        if size <= 0:
            refuse("split into pieces of this size")
        ends = list(range(size, n, size)) + [n]
        name = "SplitBackward0"
    else:
        ends = []
        for s in size:
            ends.append((ends[-1] if ends else 0) + s)
        if not ends or ends[-1] != n:
            refuse("split into these sizes")
        name = "SplitWithSizesBackward0"
    starts = [0] + ends[:-1]
    return tuple([_many(cut(t, d, a, b, 1, name), i) for i, (a, b) in enumerate(zip(starts, ends))])


def _many(t, i):
    """Mark one of several views that one call returned: torch forbids to write into it with a gradient."""
    if t._custom != "odd" and Mode.enabled:
        t._custom = "many"
    t._place = i
    return t


def unbind(t, dim=0):
    """Return the views of t along a dimension."""
    d = wrap_dim(dim, len(t._shape))
    if not t._shape:
        refuse("unbind of a number")
    return tuple([_many(select(t, d, i, "UnbindBackward0"), i) for i in range(t._shape[d])])


def cat(tensors, dim=0):
    """Return tensors one after the other along a dimension."""
    tensors = list(tensors)
    if not tensors:
        fail(ValueError, "torch.cat(): expected a non-empty list of Tensors")
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            refuse("cat of what is no tensor")
        if t._shape == ():
            fail(RuntimeError, "zero-dimensional tensor (at position " + str(i) + ") cannot be concatenated")
        if t._shape == (0,) and len(tensors) > 1:
            refuse("cat with an empty tensor")
    first = tensors[0]
    n = len(first._shape)
    d = wrap_dim(dim, n)
    kind = result_type(tensors)
    for i, t in enumerate(tensors):
        if len(t._shape) != n:
            fail(
                RuntimeError,
                "Tensors must have same number of dimensions: got " + str(n) + " and " + str(len(t._shape)),
            )
        for e in range(n):
            if e != d and t._shape[e] != first._shape[e]:
                fail(
                    RuntimeError,
                    "Sizes of tensors must match except in dimension "
                    + str(d)
                    + ". Expected size "
                    + str(first._shape[e])
                    + " but got size "
                    + str(t._shape[e])
                    + " for tensor number "
                    + str(i)
                    + " in the list.",
                )
    shape = list(first._shape)
    shape[d] = sum([t._shape[d] for t in tensors])
    shape = tuple(shape)
    values = [None] * count(shape)
    strides = dense(shape)
    spots = []
    start = 0
    for t in tensors:
        at = places(t._shape, strides, start * strides[d])
        spots.append((at, t._shape))
        for i, v in zip(at, spread(t, t._shape, kind)):
            values[i] = v
        start += t._shape[d]
    out = plain(values, shape, kind, *tensors)

    def run(g, saved, needs):
        return tuple([gather(g, at, inner) if need else None for (at, inner), need in zip(spots, needs)])

    return record(out, "CatBackward0", tuple(tensors), (), run)


def stack(tensors, dim=0):
    """Return tensors along a new dimension."""
    tensors = list(tensors)
    if not tensors:
        fail(RuntimeError, "stack expects a non-empty TensorList")
    for t in tensors:
        if not isinstance(t, Tensor):
            refuse("stack of what is no tensor")
    d = wrap_dim(dim, len(tensors[0]._shape) + 1)
    for i, t in enumerate(tensors):
        if t._shape != tensors[0]._shape:
            fail(
                RuntimeError,
                "stack expects each tensor to be equal size, but got "
                + str(list(tensors[0]._shape))
                + " at entry 0 and "
                + str(list(t._shape))
                + " at entry "
                + str(i),
            )
    kind = result_type(tensors)
    inner = tensors[0]._shape
    shape = inner[:d] + (len(tensors),) + inner[d:]
    values = [None] * count(shape)
    strides = dense(shape)
    steps = strides[:d] + strides[d + 1 :]
    spots = []
    for k, t in enumerate(tensors):
        at = places(inner, steps, k * strides[d])
        spots.append(at)
        for i, v in zip(at, spread(t, inner, kind)):
            values[i] = v
    out = plain(values, shape, kind, *tensors)

    def run(g, saved, needs):
        return tuple([gather(g, at, inner) if need else None for at, need in zip(spots, needs)])

    return record(out, "StackBackward0", tuple(tensors), (), run)


def diag(t):
    """Return the diagonal of a matrix, or a matrix with this diagonal."""
    tensor_of(t, "diag")
    if len(t._shape) == 1:
        n = t._shape[0]
        return _spread_out(t, [i * n + i for i in range(n)], (n, n))
    if len(t._shape) == 2:
        rows, columns = t._shape
        n = min(rows, columns)
        return gather(t, [i * columns + i for i in range(n)], (n,), "DiagonalBackward0_copy")
    fail(RuntimeError, "diag(): Supports 1D or 2D tensors. Got " + str(len(t._shape)) + "D")


def _spread_out(t, at, shape):
    zero = 0.0 if t.dtype.is_floating_point else (False if t.dtype is bool_ else 0)
    values = [zero] * count(shape)
    for i, v in zip(at, t._flat()):
        values[i] = v
    inner = t._shape
    out = make(values, shape, t.dtype)
    return record(out, "DiagEmbedBackward0", (t,), (), lambda g, saved, needs: gather(g, at, inner))


def zeros_like(t):
    """Return zeros of the shape and dtype of t."""
    zero = 0.0 if t.dtype.is_floating_point else (False if t.dtype is bool_ else 0)
    return plain([zero] * count(t._shape), t._shape, t.dtype, t)


def to_dtype(t, kind, copy=False):
    """Return t in another dtype, t itself where it has it."""
    if kind is t.dtype:
        return clone(t) if copy else t
    out = plain(cast(t._flat(), t.dtype, kind), t._shape, kind, t)
    old = t.dtype
    return record(out, "ToCopyBackward0", (t,), (), lambda g, saved, needs: to_dtype(g, old))


# --- in place


def overlapping(t):
    """Raise where two elements of t are one number."""
    if 0 in t._st and count(t._shape) > 1:
        for size, step in zip(t._shape, t._st):
            if step == 0 and size > 1:
                fail(
                    RuntimeError,
                    "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                    "location. Please clone() the tensor before performing the operation.",
                )


def writable(t, node_wanted, part=None):
    """Raise what torch raises where t may not be written into, or a part of it that was made so."""
    if t._custom == "odd":
        refuse("in-place change of a reshaped tensor that may be a copy")
    asks = t.requires_grad
    if not Mode.enabled or not (asks or node_wanted):
        return
    base = t._base
    if base is None:
        if asks and t._fn is None:
            fail(RuntimeError, LEAF)
        return
    if t._custom is not None:
        t._forbidden("is being modified inplace", part if asks else None)
    if asks and base._fn is None:
        fail(RuntimeError, "a view of a leaf Variable that requires grad is being used in an in-place operation.")
    refuse("in-place change of a view with a gradient")


def in_place(t, result_of, *others, alike=False):
    """Write result_of(a copy of t) into t, with its history; alike are numbers that are all one."""
    wanted = False
    for o in others:
        if isinstance(o, Tensor) and o.requires_grad:
            wanted = True
    writable(t, wanted)
    if not alike:
        overlapping(t)
    old = object.__new__(Tensor)._fill(t._s, t._shape, t._st, t._o, t.dtype)._copy()
    old._fn, old._nr, old._leaf, old._acc = t._fn, t._nr, t._leaf, t._acc
    out = result_of(old)
    if out.dtype is not t.dtype:
        if out.dtype.is_floating_point and not t.dtype.is_floating_point or t.dtype is bool_ and out.dtype is not bool_:
            fail(
                RuntimeError,
                "result type " + out.dtype._short + " can't be cast to the desired output type " + t.dtype._short,
            )
        if out.requires_grad:
            out = to_dtype(out, t.dtype)
        else:
            out = make(cast(out._flat(), out.dtype, t.dtype), out._shape, t.dtype)
    if out._shape != t._shape:
        fail(
            RuntimeError,
            "output with shape " + str(list(t._shape)) + " doesn't match the broadcast shape " + str(list(out._shape)),
        )
    t._write(out._flat())
    if Mode.enabled and (out._fn is not None or t._fn is not None):
        if out._fn is None:
            refuse("this in-place change of a tensor with a gradient")
        node = out._fn
        t._fn, t._nr = node, out._nr
        t._rewritten = t._s.version
        for s in node._saved:
            if isinstance(s, Saved) and s.own:
                s.t = t
                s.version = t._s.version
    return t


def masked_fill_in_place(t, mask, value):
    """Write value into t where the mask holds; several elements may share a place, if no gradient is wanted."""
    shared = 0 in t._st and count(t._shape) > 1
    if not shared or (Mode.enabled and (t.requires_grad or (isinstance(value, Tensor) and value.requires_grad))):
        return in_place(t, lambda o: masked_fill(o, mask, value), value)
    old = object.__new__(Tensor)._fill(t._s, t._shape, t._st, t._o, t.dtype)._copy()
    values = masked_fill(old, mask, value)
    if values._shape != t._shape:
        refuse("masked_fill_ of an expanded tensor by a larger mask")
    there = spread(mask, t._shape, bool_)
    now = old._flat()
    put = {at: v for at, v, m in zip(t._places(), values._flat(), there) if m}
    t._write([put.get(at, v) for at, v in zip(t._places(), now)])
    return t


def fill_value(t, value, name="FillBackward2"):
    """Return a tensor like t, all value."""
    if isinstance(value, Tensor):
        if value._shape != ():
            refuse("fill_ with a tensor that is no number")
        v = cast(value._flat(), value.dtype, t.dtype)[0]
        out = plain([v] * count(t._shape), t._shape, t.dtype, t)
        return record(out, "FillBackward3", (t, value), (), lambda g, s, needs: (zeros_like(g), sum_(g)))
    v = cast([value], number(value).dtype, t.dtype)[0]
    out = plain([v] * count(t._shape), t._shape, t.dtype, t)
    return record(out, name, (t,), (), lambda g, saved, needs: zeros_like(g))


def copied(t, source):
    """Return source in the shape and dtype of t, with the history of copy_."""
    tensor_of(source, "copy_", 1, "other")
    if broadcast((t._shape, source._shape)) != t._shape:
        fail(
            RuntimeError,
            "output with shape "
            + str(list(t._shape))
            + " doesn't match the broadcast shape "
            + str(list(broadcast((t._shape, source._shape)))),
        )
    out = plain(list(spread(source, t._shape, t.dtype)), t._shape, t.dtype, t)
    kind = source.dtype
    return record(out, "CopyBackwards", (t, source), (), lambda g, s, needs: (zeros_like(g), to_dtype(g, kind)))


# --- indexing


def parse(t, key):
    """Return a view for what is basic in an index, and the one tensor that is left with its dimension, or None."""
    sliced = isinstance(key, slice)
    if isinstance(key, list):
        key = (tensor_from_list(key),)
    if not isinstance(key, tuple):
        key = (key,)
    used = 0
    for k in key:
        if isinstance(k, Tensor) and k.dtype is bool_:
            used += len(k._shape)
        elif k is not None and k is not Ellipsis and not isinstance(k, bool):
            used += 1
    n = len(t._shape)
    if used > n:
        if n == 0 and len(key) == 1 and isinstance(key[0], int) and not isinstance(key[0], bool):
            fail(
                IndexError,
                "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert "
                "a 0-dim tensor to a number",
            )
        if n == 0 and sliced:
            fail(IndexError, "slice() cannot be applied to a 0-dim tensor.")
        fail(IndexError, "too many indices for tensor of dimension " + str(n))
    out = t
    d = 0
    found = None
    ellipsis = False
    for k in key:
        if k is None:
            out = unsqueeze(out, d)
            d += 1
        elif k is Ellipsis:
            if ellipsis:
                refuse("two ellipses in an index")
            ellipsis = True
            d += n - used
        elif isinstance(k, slice):
            size = out._shape[d]
            start, stop, step = k.start, k.stop, k.step
            step = 1 if step is None else step
            for v in (start, stop, step):
                if v is not None and (isinstance(v, bool) or not isinstance(v, int)):
                    refuse("a slice with what is no int")
            if step <= 0:
                fail(ValueError, "step must be greater than zero")
            start = 0 if start is None else (max(start + size, 0) if start < 0 else min(start, size))
            stop = size if stop is None else (max(stop + size, 0) if stop < 0 else min(stop, size))
            if (start, stop, step) == (0, size, 1):
                if len(key) == 1:
                    out = alias(out, "AliasBackward0")
            else:
                out = cut(out, d, start, max(stop, start), step)
            d += 1
        elif isinstance(k, bool) or (isinstance(k, Tensor) and k.dtype is bool_ and k._shape == ()):
            if found is not None:
                refuse("this index")
            out = unsqueeze(out, d)
            found = (make([bool(k)], (1,), bool_), d)
            d += 1
        elif isinstance(k, int):
            size = out._shape[d]
            if not -size <= k < size:
                fail(
                    IndexError,
                    "index " + str(k) + " is out of bounds for dimension " + str(d) + " with size " + str(size),
                )
            out = select(out, d, k + size if k < 0 else k)
        elif isinstance(k, (Tensor, list)):
            if isinstance(k, list):
                k = tensor_from_list(k)
            if found is not None or k.dtype.is_floating_point:
                refuse("this index")
            found = (k, d)
            d += len(k._shape) if k.dtype is bool_ else 1
        elif isinstance(k, float):
            fail(
                IndexError,
                "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
                "float)",
            )
        else:
            refuse("this index")
    if out is t and found is None:
        out = alias(t, "AliasBackward0")
    return out, found


def alias(t, name):
    """Return a view of all of t."""
    return view_of(t, lambda shape, st, o: (shape, st, o), name)


def tensor_from_list(values):
    """Return a list in an index as a tensor."""
    for v in values:
        if not isinstance(v, (bool, int)):
            refuse("this index")
    kind = bool_ if values and isinstance(values[0], bool) else int64
    for v in values:
        if isinstance(v, bool) != (kind is bool_):
            refuse("this index")
    return make(list(values), (len(values),), kind)


def spots(t, found):
    """Return the places in the contiguous t that a tensor as index names, and the shape of what is there."""
    index, d = found
    shape = t._shape
    if index.dtype is bool_:
        m = len(index._shape)
        for i in range(m):
            if index._shape[i] != shape[d + i]:
                fail(
                    IndexError,
                    "The shape of the mask "
                    + str(list(index._shape))
                    + " at index "
                    + str(i)
                    + " does not match the shape of the indexed tensor "
                    + str(list(shape))
                    + " at index "
                    + str(d + i),
                )
        chosen = [i for i, v in enumerate(index._flat()) if v]
        inner = (len(chosen),)
        unit = dense(shape)[d + m - 1]
        rest = shape[d + m :]
        at = [i * unit for i in chosen]
    else:
        size = shape[d]
        unit = dense(shape)[d]
        at = []
        for i in index._flat():
            if not -size <= i < size:
                fail(
                    IndexError,
                    "index " + str(i) + " is out of bounds for dimension " + str(d) + " with size " + str(size),
                )
            at.append((i + size if i < 0 else i) * unit)
        inner = index._shape
        rest = shape[d + 1 :]
    strides = dense(shape)
    ahead = places(shape[:d], strides[:d], 0)
    behind = places(rest, dense(rest), 0)
    return [a + b + c for a in ahead for b in at for c in behind], shape[:d] + inner + rest


def get_item(t, key):
    """Return t[key]."""
    out, found = parse(t, key)
    if found is None:
        return out
    at, shape = spots(out, found)
    return gather(out, at, shape)


def _fits(source, shape):
    lead = len(shape) - len(source)
    return lead >= 0 and all([n == 1 or n == shape[lead + i] for i, n in enumerate(source)])


def set_item(t, key, value):
    """Do t[key] = value."""
    if isinstance(key, bool):
        if not key:
            return
        key = None
    given = value
    grows = isinstance(value, Tensor) and value.requires_grad
    if not isinstance(value, Tensor):
        value = number(value)
        if not t.dtype.is_floating_point and value.dtype.is_floating_point:
            refuse("a float written into whole numbers")
    was = Mode.enabled
    Mode.enabled = False
    try:
        shown = object.__new__(Tensor)._fill(t._s, t._shape, t._st, t._o, t.dtype)
        inner, found = parse(shown, key)
    finally:
        Mode.enabled = was
    by_number = found is not None and found[0]._shape == () and found[0].dtype is int64
    if was and t._leaf and found is not None and (by_number or inner._shape != t._shape):
        fail(RuntimeError, "a view of a leaf Variable that requires grad is being used in an in-place operation.")
    whole = key is Ellipsis or (isinstance(key, slice) and (key.start, key.stop, key.step) == (None, None, None))
    if found is None and was and t._leaf and not whole:
        fail(RuntimeError, "a view of a leaf Variable that requires grad is being used in an in-place operation.")
    part = None if whole or inner is shown else inner._made
    writable(t, grows, part)
    if found is None:
        overlapping(inner)
        at, shape = inner._places(), inner._shape
    else:
        local, shape = spots(inner, found)
        lies = inner._places()
        at = [lies[i] for i in local]
        if len(at) > 1 and value._shape != () and found[0].dtype is not bool_:
            refuse("several numbers written to places that an int tensor names")
    drop = 0
    while len(value._shape) - drop > len(shape) and value._shape[drop] == 1:
        drop += 1
    source = value._shape[drop:]
    if found is None and len(source) <= len(shape):
        was_here = Mode.enabled
        Mode.enabled = False
        try:
            expand(make(list(value._flat()), source, value.dtype), shape)
        finally:
            Mode.enabled = was_here
    if not _fits(source, shape):
        fail(
            RuntimeError,
            "shape mismatch: value tensor of shape "
            + str(list(value._shape))
            + " cannot be broadcast to indexing result of shape "
            + str(list(shape)),
        ) if found is not None else refuse("a value of this shape at this index")
    cast_too = found is not None and found[0].dtype is bool_ and count(value._shape) == 1
    if cast_too and inner is not shown and not (isinstance(key, Tensor) and key._shape == ()):
        if given is value and value.dtype is not t.dtype:
            refuse("a value of another dtype at this index")
    if found is not None and given is value and value.dtype is not t.dtype and not (cast_too and inner is shown):
        text = (
            "Index put requires the source and destination dtypes match, got "
            + t.dtype._short
            + " for the destination and "
        )
        fail(RuntimeError, text + given.dtype._short + " for the source.")
    if drop:
        value = reshape(value, source)
    new = spread(value, shape, t.dtype)
    own = {}
    if was and (t._fn is not None or grows):
        for i, p in enumerate(t._places()):
            own[p] = i
    data = t._s.data
    for p, v in zip(at, new):
        data[p] = v
    t._s.version += 1
    if was and (t._fn is not None or grows) and t.dtype.is_floating_point:
        logical = [own[p] for p in at]
        before = object.__new__(Tensor)._fill(t._s, t._shape, t._st, t._o, t.dtype)
        before._fn, before._nr = t._fn, t._nr
        whole = t._shape

        def run(g, saved, needs):
            first = second = None
            if needs[0]:
                mask = [False] * count(whole)
                for i in logical:
                    mask[i] = True
                first = where(make(mask, whole, bool_), 0, g)
            if needs[1]:
                second = gather(g, logical, shape)
            return first, second

        dummy = make(data, whole, t.dtype)
        node_name = "IndexPutBackward0" if found is not None and inner is shown else "torch::autograd::CopySlices"
        record(dummy, node_name, (before, value), (), run)
        t._fn, t._nr = dummy._fn, 0
        t._rewritten = t._s.version
