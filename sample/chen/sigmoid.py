# %% Sigmoid
class Sigmoid(torch.autograd.Function):
    """1 / (1 + exp(-x)), written so that exp never sees a positive number."""

    @staticmethod
    def forward(x):
        e = torch.exp(-x.abs())          # in (0, 1]
        small = e / (1 + e)              # sigmoid(-|x|)
        return torch.where(x < 0, small, 1 - small)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return g * (y - y * y)

# %% SigmoidTests
%%writefile test_sigmoid.py
"""Tests for Sigmoid: values, gradients, shapes."""
import torch

from sigmoid import Sigmoid


def check_close(a, b, tol=1e-6):
    assert torch.allclose(a, b, atol=tol, rtol=tol), (a, b)


def test_values():
    x = torch.linspace(-6, 6, 25, dtype=torch.float64)
    check_close(Sigmoid.apply(x), torch.sigmoid(x))


def test_keeps_dtype_and_shape():
    for dtype in [torch.float16, torch.bfloat16, torch.float32, torch.float64]:
        x = torch.zeros(2, 3, dtype=dtype)
        y = Sigmoid.apply(x)
        assert y.dtype == dtype and y.shape == (2, 3)


def test_gradient_with_upstream():
    x = torch.linspace(-6, 6, 25, dtype=torch.float64, requires_grad=True)
    g = torch.arange(25, dtype=torch.float64)
    check_close(torch.autograd.grad(Sigmoid.apply(x), x, g)[0], torch.autograd.grad(torch.sigmoid(x), x, g)[0])


def test_does_not_touch_its_input():
    x = torch.linspace(-1, 1, 5)
    keep = x.clone()
    Sigmoid.apply(x)
    assert torch.equal(x, keep)

# %% Cube
class Cube(torch.autograd.Function):
    """x^3, gradient 3 x^2 g, from the messages one by one: the factor, the upstream gradient, what is saved."""

    @staticmethod
    def forward(x):
        return x.pow(3)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * 3 * x.pow(2)
