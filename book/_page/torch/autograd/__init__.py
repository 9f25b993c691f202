"""torch.autograd: grad, backward's machinery for custom Functions, and the checks."""

from .._base import lacking
from .._check import gradcheck, gradgradcheck
from .._engine import enable_grad, grad, no_grad
from .._function import Function
from . import function, functional

__getattr__ = lacking("torch.autograd")
