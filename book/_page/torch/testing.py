"""torch.testing: assert_close, of tensors and numbers."""

from . import _ops as ops
from ._base import fail, fit, float32, int64, lacking, refuse
from ._check import close
from ._ops import spread
from ._tensor import Tensor

CLOSE = {"float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
NUMBERS = (bool, int, float)


def _tolerances(kinds, rtol, atol):
    if rtol is not None:
        return rtol, atol
    found = [CLOSE.get(kind, (0.0, 0.0)) for kind in kinds]
    return max([r for r, _ in found]), max([a for _, a in found])


def _say(text, msg, where):
    text += "\n\nThe failure occurred for item " + where if where else ""
    if msg is not None:
        text = msg if isinstance(msg, str) else msg(text)
    fail(AssertionError, text)


def _allowed(tolerance, exact):
    return "" if exact else " (up to " + str(tolerance) + " allowed)"


def _scalars(a, b, rtol, atol, msg, where):
    """Raise what is said of two numbers that are not close."""
    exact = rtol == 0 and atol == 0
    far = abs(a - b)
    part = far / abs(b) if b else (float("inf") if far == far else far)
    text = (
        "Scalars are not " + ("equal" if exact else "close") + "!\n\nExpected " + str(b) + " but got " + str(a) + ".\n"
    )
    text += "Absolute difference: " + str(far) + _allowed(atol, exact)
    _say(text + "\nRelative difference: " + str(part) + _allowed(rtol, exact), msg, where)


def _place(at, shape):
    index = []
    for n in reversed(shape):
        index.append(at % n)
        at //= n
    return str(tuple(reversed(index)))


def _greatest(values):
    """Return the place of the largest number, or of the first nan."""
    at = 0
    for i, v in enumerate(values):
        if v != v:
            return i
        if v > values[at]:
            at = i
    return at


def _tensors(a, b, rtol, atol, equal_nan, check_dtype, msg, where):
    for name, one, two in (("shape", a.shape, b.shape), ("dtype", a.dtype, b.dtype)):
        if one != two and (name == "shape" or check_dtype):
            text = "The values for attribute '" + name + "' do not match: " + str(one) + " != " + str(two) + "."
            _say(text, msg, where)
    rtol, atol = _tolerances([a.dtype._name, b.dtype._name], rtol, atol)
    kind = ops.higher(a.dtype, b.dtype)
    floats = kind.is_floating_point
    work = kind if floats else int64
    left, right = spread(a, a._shape, work), spread(b, b._shape, work)
    matches = [close([v], [w], rtol, atol, equal_nan) for v, w in zip(left, right)]
    if all(matches):
        return
    if a._shape == ():
        _scalars(left[0], right[0], rtol, atol, msg, where)
    exact = rtol == 0 and atol == 0
    far = [0 if m else abs(v - w) for v, w, m in zip(left, right, matches)]
    if floats:
        far = fit([float(v) for v in far], kind)
    inf = float("inf")
    part = [0.0 if m else (d / abs(w) if w else (inf if d == d else d)) for d, w, m in zip(far, right, matches)]
    part = fit(part, kind if floats else float32)
    wrong = len([m for m in matches if not m])
    i, j = _greatest(far), _greatest(part)
    text = "Tensor-likes are not " + ("equal" if exact else "close") + "!\n\nMismatched elements: " + str(wrong) + " / "
    text += str(len(matches)) + " (" + "%.1f" % (100 * wrong / len(matches)) + "%)\nGreatest absolute difference: "
    text += (
        str(far[i]) + " at index " + _place(i, a._shape) + _allowed(atol, exact) + "\nGreatest relative difference: "
    )
    _say(text + str(part[j]) + " at index " + _place(j, a._shape) + _allowed(rtol, exact), msg, where)


def _compare(a, b, where, rtol, atol, equal_nan, check_dtype, msg):
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        _tensors(a, b, rtol, atol, equal_nan, check_dtype, msg, where)
    elif isinstance(a, bool) and isinstance(b, bool):
        if a != b:
            _say("Booleans mismatch: " + str(a) + " is not " + str(b), msg, where)
    elif isinstance(a, NUMBERS) and isinstance(b, NUMBERS) and not isinstance(a, bool) and not isinstance(b, bool):
        if check_dtype and type(a) is not type(b):
            _say("The (d)types do not match: " + str(type(a)) + " != " + str(type(b)) + ".", msg, where)
        kinds = ["float64" if isinstance(v, float) else "int64" for v in (a, b)]
        r, t = _tolerances(kinds, rtol, atol)
        if not close([a], [b], r, t, equal_nan):
            _scalars(a, b, r, t, msg, where)
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        for i, (v, w) in enumerate(zip(a, b)):
            _compare(v, w, where + "[" + str(i) + "]", rtol, atol, equal_nan, check_dtype, msg)
    elif a is not None or b is not None:
        refuse("assert_close of these")


def assert_close(
    actual, expected, rtol=None, atol=None, equal_nan=False, check_dtype=True, check_stride=False, msg=None, **other
):
    """Raise AssertionError where the two are not close."""
    if other or check_stride or isinstance(rtol, Tensor) or isinstance(atol, Tensor):
        refuse("assert_close in this form")
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        fail(ValueError, "Both 'rtol' and 'atol' must be either specified or omitted, but got no " + missing + ".")
    _compare(actual, expected, "", rtol, atol, equal_nan, check_dtype, msg)


__getattr__ = lacking("torch.testing")
