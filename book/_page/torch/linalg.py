"""torch.linalg: the norm of vectors."""

from . import _matrix
from ._base import lacking, public

vector_norm = public("vector_norm", _matrix.vector_norm)

__getattr__ = lacking("torch.linalg")
