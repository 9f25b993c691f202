"""torch.nn: its functional alone."""

from .._base import lacking
from . import functional

__getattr__ = lacking("torch.nn")
