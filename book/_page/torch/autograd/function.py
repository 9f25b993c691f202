"""torch.autograd.function."""

from .._base import lacking
from .._function import Function, once_differentiable

__getattr__ = lacking("torch.autograd.function")
