"""The page's torch: what the first chapters write gradients with, in plain Python, for MicroPython.

It may refuse, never differ: what it lacks raises NotInPage, and what it has is held to torch by tests/book/golden.json.
"""

import math

from . import _methods
from ._base import NotInPage, Size, dtype, float32, float64, int64, lacking
from ._base import bool_ as bool
from ._engine import enable_grad, no_grad
from ._tensor import Mode, Tensor

for _name in _methods.MODULE:
    globals()[_name] = _methods.MODULE[_name]

double = float64
float = float32
long = int64
inf = math.inf
nan = math.nan
pi = math.pi
e = math.e
__version__ = "page"


def is_grad_enabled():
    """Return whether operations are recorded."""
    return Mode.enabled


from . import autograd, linalg, nn, special, testing  # noqa: E402

__getattr__ = lacking("torch")
