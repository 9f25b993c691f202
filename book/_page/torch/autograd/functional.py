"""torch.autograd.functional: jacobian, of one tensor by another."""

from .. import _ops as ops
from .._base import count, fail, lacking, refuse
from .._engine import enable_grad, grad
from .._tensor import Tensor

MUST = " must be either a Tensor or a tuple of Tensors but the given "


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """Return the derivatives of each number of what func returns by each number of its input."""
    if strict or strategy != "reverse-mode" or isinstance(inputs, (tuple, list)):
        refuse("jacobian in this form")
    if not isinstance(inputs, Tensor):
        fail(TypeError, "The inputs given to jacobian" + MUST + "inputs has type " + str(type(inputs)) + ".")
    with enable_grad():
        graph = create_graph and inputs.requires_grad
        x = ops.view(inputs, inputs._shape) if graph else inputs.detach().requires_grad_()
        y = func(x)
        if isinstance(y, (tuple, list)):
            refuse("jacobian of several outputs")
        if not isinstance(y, Tensor):
            who = "The outputs of the user-provided function given to jacobian"
            fail(TypeError, who + MUST + "outputs of the user-provided function has type " + str(type(y)) + ".")
        rows = []
        flat = ops.reshape(y, (count(y._shape),))
        for i in range(count(y._shape)):
            found = None
            if y.requires_grad:
                (found,) = grad(flat[i], x, retain_graph=True, create_graph=create_graph, allow_unused=True)
            rows.append(ops.zeros_like(x) if found is None else found)
        return ops.view(ops.stack(rows), y._shape + x._shape)


__getattr__ = lacking("torch.autograd.functional")
