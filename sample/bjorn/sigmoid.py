# %% Sigmoid
class Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = 1/(1+torch.exp(-x))   # exp -> inf gives 0, fine
        ctx.save_for_backward(y)
        return y
    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return g*y*(1-y)

# %% SigmoidTests
%%writefile test_sigmoid.py
import torch
from sigmoid import Sigmoid

x64 = lambda: torch.linspace(-4, 4, 9, dtype=torch.float64, requires_grad=True)

def test_value():
    x = x64()
    assert torch.allclose(Sigmoid.apply(x), torch.sigmoid(x))

def test_gc():
    torch.autograd.gradcheck(Sigmoid.apply, (x64(),))

def test_ggc():
    torch.autograd.gradgradcheck(Sigmoid.apply, (x64(),))

def test_big():
    x = torch.tensor([-1000., 1000.], requires_grad=True)
    y = Sigmoid.apply(x)
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert y.isfinite().all() and g.isfinite().all()

def test_dtype_and_shape():
    for d in (torch.float16, torch.bfloat16, torch.float32):
        for s in ((), (2, 3)):
            x = torch.ones(s, dtype=d, requires_grad=True)
            y = Sigmoid.apply(x); y.sum().backward()
            assert y.dtype == d == x.grad.dtype and y.shape == x.shape == x.grad.shape

# %% Cube
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return x*x*x
    @staticmethod
    def backward(ctx, g): return 3*ctx.saved_tensors[0]**2*g
