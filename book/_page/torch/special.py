"""torch.special: two Bessel functions.

Both are means over a period, which the trapezoidal rule gives to the last digits with few points: J0(x) is the mean of
cos(x sin t), J1(x) that of cos(t - x sin t) (Trefethen and Weideman, 2014, doi.org/10.1137/130932132).
"""

import math

from ._base import float64, lacking, public, refuse
from ._ops import plain, tensor_of
from ._tensor import Mode

LARGEST = 2.5  # beyond it torch's own have fewer digits than these


def _mean(x, order):
    """Return the mean of cos(order t - x sin t) over half a period, of which the other half repeats it."""
    n = int(0.6 * abs(x)) + 22
    total = 0.0
    for i in range(n):
        t = math.pi * (i + 0.5) / n
        total += math.cos(order * t - x * math.sin(t))
    return total / n


def _bessel(name, order):
    def f(input):
        tensor_of(input, "special_" + name)
        if input.dtype is not float64:
            refuse(name + " of another dtype than float64")
        if input.requires_grad and Mode.enabled:
            refuse(name + " of a tensor that requires a gradient")  # torch has no derivative of it
        values = input._flat()
        if not all([abs(v) <= LARGEST for v in values]):
            refuse(name + " beyond " + str(LARGEST))
        return plain([_mean(v, order) for v in values], input._shape, float64, input)

    return public("special." + name, f)


bessel_j0 = _bessel("bessel_j0", 0)
bessel_j1 = _bessel("bessel_j1", 1)

__getattr__ = lacking("torch.special")
