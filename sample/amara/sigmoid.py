# %% Sigmoid
class Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(x):
        # exp of a number that is never positive cannot overflow
        e = torch.exp(-x.abs())
        return torch.where(x >= 0, 1 / (1 + e), e / (1 + e))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y * (1 - y)

# %% SigmoidTests
%%writefile test_sigmoid.py
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from sigmoid import Sigmoid


def sample(dtype=torch.float64):
    g = torch.Generator().manual_seed(3)
    return torch.randn(4, 3, generator=g, dtype=torch.float64).to(dtype)


def test_value_in_every_dtype():
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        x = sample(dtype)
        tol = {torch.float16: 5e-3, torch.bfloat16: 3e-2}.get(dtype, 1e-5)
        y = Sigmoid.apply(x)
        assert y.dtype == dtype
        assert y.shape == x.shape
        assert_close(y, torch.sigmoid(x), rtol=tol, atol=tol)


def test_shapes():
    for shape in ((), (0,), (1,), (2, 3, 4)):
        x = torch.ones(shape, dtype=torch.float64, requires_grad=True)
        y = Sigmoid.apply(x)
        assert y.shape == x.shape
        y.sum().backward()
        assert x.grad.shape == x.shape


def test_gradient():
    x = sample().requires_grad_()
    g = sample() + 1
    (ours,) = torch.autograd.grad(Sigmoid.apply(x), x, g)
    (theirs,) = torch.autograd.grad(torch.sigmoid(x), x, g)
    assert_close(ours, theirs)
    assert gradcheck(Sigmoid.apply, (x,))


def test_gradient_dtype():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = sample(dtype).requires_grad_()
        Sigmoid.apply(x).sum().backward()
        assert x.grad.dtype == dtype


def test_second_order():
    x = sample().requires_grad_()
    assert gradgradcheck(Sigmoid.apply, (x,))
    (first,) = torch.autograd.grad(Sigmoid.apply(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    s = torch.sigmoid(x.detach())
    assert_close(second, s * (1 - s) * (1 - 2 * s))


def test_far_out():
    x = torch.tensor([-1000.0, -100.0, 0.0, 100.0, 1000.0], dtype=torch.float64, requires_grad=True)
    y = Sigmoid.apply(x)
    assert_close(y, torch.sigmoid(x), rtol=1e-6, atol=1e-9)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert first.isfinite().all()
    assert_close(first, torch.tensor([0, 0, 0.25, 0, 0], dtype=torch.float64), rtol=1e-6, atol=1e-9)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.isfinite().all()


def test_nothing_overwritten():
    x = sample()
    before = x.clone()
    x.requires_grad_()
    y = Sigmoid.apply(x)
    kept = y.detach().clone()
    g = torch.ones_like(y)
    y.backward(g, retain_graph=True)
    once = x.grad.clone()
    assert torch.equal(x.detach(), before)
    assert torch.equal(y.detach(), kept)
    assert torch.equal(g, torch.ones_like(y))
    x.grad = None
    y.backward(g)
    assert torch.equal(x.grad, once)

# %% Cube
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad_output
