"""torch.nn.functional."""

from .. import _methods
from .._base import lacking

for _name in _methods.FUNCTIONAL:
    globals()[_name] = _methods.FUNCTIONAL[_name]

__getattr__ = lacking("torch.nn.functional")
