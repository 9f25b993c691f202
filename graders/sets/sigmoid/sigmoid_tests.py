"""SigmoidTests: a test file, run against right and wrong classes of the task Sigmoid."""

from graders.judge.testfile import FileCheck, FileMistake, FileTask, Wrong, source_of
from graders.sets.sigmoid.sigmoid import task as sigmoid

PLACE = 2


ADVICE = {
    "value": "compare the output with torch.sigmoid at numbers of both signs",
    "gradient": "compare the gradient with torch's at numbers of both signs and under an upstream gradient that is not all "
    "ones (gradcheck in float64 does both)",
    "second order": "differentiate the gradient again (gradgradcheck in float64)",
    "+-1000": "ask for a finite and right output and gradient at x = -1000 and x = 1000",
    "dtype": "ask that output and gradient have the dtype of x, in the half precisions too",
    "shape": "ask that the output has the shape of x, for a matrix and for a tensor without dimensions",
    "overwritten tensors": "compare x and the upstream gradient after backward with copies made before forward",
}


WRONG = {
    "sign_in_exponent": "value",
    "branch_forgotten": "value",
    "upstream_ignored": "gradient",
    "tanh_derivative": "gradient",
    "sign_of_the_branch": "gradient",
    "saves_derivative": "second order",
    "exponentials_overflow": "+-1000",
    "overflow_in_backward": "+-1000",
    "ones_in_float32": "dtype",
    "flattened": "shape",
    "input_changed_on_the_way": "overwritten tensors",
    "writes_into_upstream": "overwritten tensors",
}


# Test files that earn all points, in different styles.
FILES = {
    "thorough": """
import torch
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.testing import assert_close

from sigmoid import Sigmoid

TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}


def numbers(*shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def test_value_shape_and_dtype():
    for dtype, tolerance in TOLERANCE.items():
        for shape in [(), (0, 3), (7,), (2, 3)]:
            x = numbers(*shape, dtype=dtype)
            # assert_close compares shapes and dtypes as well
            assert_close(Sigmoid.apply(x), torch.sigmoid(x), rtol=tolerance, atol=tolerance)


def test_gradient():
    x = numbers(2, 3).requires_grad_()
    upstream = numbers(3, 2).t()
    (ours,) = grad(Sigmoid.apply(x), x, upstream)
    (right,) = grad(torch.sigmoid(x), x, upstream)
    assert_close(ours, right)
    gradcheck(Sigmoid.apply, x)


def test_second_order():
    gradgradcheck(Sigmoid.apply, numbers(5).requires_grad_())


def test_far_from_zero():
    x = torch.tensor([-1000.0, -50.0, 0.0, 50.0, 1000.0], requires_grad=True)
    y = Sigmoid.apply(x)
    assert_close(y, torch.sigmoid(x))
    (gradient,) = grad(y.sum(), x)
    assert_close(gradient, torch.tensor([0, 0, 0.25, 0, 0]))


def test_nothing_is_overwritten():
    x, upstream = numbers(5), numbers(5)
    x_before, upstream_before = x.clone(), upstream.clone()
    x.requires_grad_()
    y = Sigmoid.apply(x)
    y_before = y.detach().clone()
    y.backward(upstream)
    assert torch.equal(x, x_before) and torch.equal(upstream, upstream_before) and torch.equal(y, y_before)
""",
    "terse": """
import torch
from sigmoid import Sigmoid
f = Sigmoid.apply

def test_all():
    for x in (torch.linspace(-5, 5, 12).view(3, 4).half(), torch.tensor(-1000.), torch.tensor(1e3)):
        y = f(x); assert y.shape == x.shape and y.dtype == x.dtype and (y - x.sigmoid()).abs().max() < 1e-2
    x = torch.linspace(-5, 5, 12, dtype=torch.double, requires_grad=True)
    c = x.detach() + 0
    assert torch.autograd.gradcheck(f, x, raise_exception=False)
    assert torch.autograd.gradgradcheck(f, x, raise_exception=False)
    g = torch.ones(12).double(); f(x).backward(g); assert (g == 1).all() and (x == c).all()
    x = torch.tensor([-1e3, 1e3], requires_grad=True); f(x).sum().backward(); assert (x.grad == 0).all()
""",
    "against_torch": """
# The same questions to ours and to torch's, order by order.
import torch
from sigmoid import Sigmoid


def orders(f, x, g):
    x = x.clone().requires_grad_()
    y = f(x)
    (first,) = torch.autograd.grad(y, x, g, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return y, first, second


def check(x, tol):
    torch.manual_seed(1)
    g = torch.randn(x.shape).to(x.dtype)
    for what, ours, theirs in zip(("value", "first", "second"), orders(Sigmoid.apply, x, g), orders(torch.sigmoid, x, g)):
        assert ours.shape == theirs.shape, f"{what}: shape {ours.shape}"
        assert ours.dtype == theirs.dtype, f"{what}: dtype {ours.dtype}"
        assert torch.allclose(ours, theirs, rtol=tol, atol=tol), f"{what}: {ours} is not {theirs}"


def test_double():
    check(torch.linspace(-8, 8, 33, dtype=torch.float64), 1e-9)


def test_float():
    check(torch.linspace(-8, 8, 32).reshape(4, 8), 1e-5)


def test_halves():
    check(torch.linspace(-4, 4, 9).half(), 5e-3)
    check(torch.linspace(-4, 4, 9).bfloat16(), 3e-2)


def test_scalar():
    check(torch.tensor(0.7), 1e-5)


def test_extremes():
    check(torch.tensor([-1000.0, 1000.0], dtype=torch.float64), 1e-9)
    check(torch.tensor([-1000.0, 1000.0]), 1e-6)


def test_input_is_left_alone():
    x = torch.tensor([-1.0, 2.0])
    Sigmoid.apply(x)
    assert x.tolist() == [-1.0, 2.0]


def test_upstream_is_left_alone():
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    g = torch.tensor([3.0, 4.0])
    torch.autograd.grad(Sigmoid.apply(x), x, g)
    assert g.tolist() == [3.0, 4.0]
""",
    "from_the_definition": """
import math
import torch
from sigmoid import Sigmoid

POINTS = [-3.0, -1.0, 0.0, 0.5, 2.0]
s = lambda v: 1 / (1 + math.exp(-v))
near = lambda a, b, tol=1e-6: abs(float(a) - b) <= tol

def leaf(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype, requires_grad=True)

def test_numbers_one_by_one():
    for v in POINTS:
        x = leaf(v)
        y = Sigmoid.apply(x)
        assert y.dim() == 0
        assert near(y, s(v))
        g, = torch.autograd.grad(y, x, torch.tensor(2.0, dtype=torch.float64), create_graph=True)
        assert near(g, 2 * s(v) * (1 - s(v)))
        h, = torch.autograd.grad(g, x)
        assert near(h, 2 * s(v) * (1 - s(v)) * (1 - 2 * s(v)))

def test_finite_differences():
    for v in POINTS:
        h = 1e-5
        slope = (Sigmoid.apply(leaf(v + h)) - Sigmoid.apply(leaf(v - h))).item() / (2 * h)
        x = leaf(v)
        Sigmoid.apply(x).backward()
        assert near(x.grad, slope, 1e-8)

def test_big():
    for v, want in ((-1000.0, 0.0), (1000.0, 1.0)):
        x = leaf(v, torch.float32)
        y = Sigmoid.apply(x)
        y.backward()
        assert near(y, want) and near(x.grad, 0.0)

class Kept:
    def __init__(self, *tensors):
        self.pairs = [(t, t.detach().clone()) for t in tensors]
    def check(self):
        for now, before in self.pairs:
            assert torch.equal(now, before), "a tensor was overwritten"

def test_kept():
    x, g = leaf(POINTS), torch.ones(5, dtype=torch.float64)
    kept = Kept(x, g)
    Sigmoid.apply(x).backward(g)
    kept.check()

def test_types():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        y = Sigmoid.apply(leaf([[0.0, 1.0]], dtype))
        assert y.dtype is dtype and list(y.shape) == [1, 2]
""",
}
WHEN = {
    "thorough": "A test for each promise, each with a name that says what broke: the one to write, and the one to keep "
    "beside your own Functions.",
    "terse": "All in one function: quick to type while you are still trying things out, but the first assertion that "
    "fails hides all others.",
    "against_torch": "The same three orders of yours and of torch's, side by side: prefer it wherever torch has the "
    "operation already.",
}


# Faulty ones.
HEAD = "import torch\nfrom torch.autograd import gradcheck, gradgradcheck\nfrom sigmoid import Sigmoid\n\n"


FAULTY = (
    FileMistake(
        "nothing_asserted",
        HEAD
        + """
def test_value():
    x = torch.linspace(-5, 5, 11)
    y = Sigmoid.apply(x)
    error = (y - torch.sigmoid(x)).abs().max()

def test_backward_runs():
    x = torch.randn(5, requires_grad=True)
    Sigmoid.apply(x).sum().backward()
""",
        0.5,
        "Nothing in the file asserts",
    ),
    FileMistake(
        "value_alone",
        HEAD
        + """
def test_value():
    x = torch.linspace(-5, 5, 11)
    assert torch.allclose(Sigmoid.apply(x), torch.sigmoid(x), atol=1e-6)
""",
        1.5,
        "gradient (3): compare the gradient",
    ),
    FileMistake(
        "gradcheck_on_one_side",
        HEAD
        + """
def test_gradcheck():
    x = torch.rand(5, dtype=torch.float64) + 0.1
    gradcheck(Sigmoid.apply, x.requires_grad_())
    gradgradcheck(Sigmoid.apply, x.requires_grad_())
""",
        2.5,
        "gradient (1): compare the gradient with torch's at numbers of both signs",
    ),
    FileMistake(
        "result_thrown_away",
        HEAD
        + """
def test_value():
    x = torch.linspace(-5, 5, 11)
    torch.allclose(Sigmoid.apply(x), torch.sigmoid(x), atol=1e-6)

def test_gradient():
    gradcheck(Sigmoid.apply, torch.randn(5, dtype=torch.float64, requires_grad=True))
""",
        2.5,
        "In test_value, line 8, a comparison is thrown away",
    ),
    FileMistake(
        "returned_not_asserted",
        HEAD
        + """
def test_value():
    x = torch.linspace(-5, 5, 11)
    return torch.allclose(Sigmoid.apply(x), torch.sigmoid(x), atol=1e-6)

def test_gradient():
    gradcheck(Sigmoid.apply, torch.randn(5, dtype=torch.float64, requires_grad=True))
""",
        2.5,
        "test_value returns a value, and nobody looks at it",
    ),
    FileMistake(
        "exact_equality",
        HEAD
        + """
def test_value():
    x = torch.linspace(-5, 5, 101)
    assert torch.equal(Sigmoid.apply(x), torch.sigmoid(x))
""",
        0.0,
        "Right ones round differently",
    ),
    FileMistake(
        "halves_too_tight",
        HEAD
        + """
def test_every_dtype():
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        x = torch.linspace(-5, 5, 101, dtype=dtype)
        torch.testing.assert_close(Sigmoid.apply(x), torch.sigmoid(x))
""",
        0.0,
        "a tolerance that suits the dtype",
    ),
    FileMistake(
        "tails_compared_by_ratio",
        HEAD
        + """
def test_tails():
    x = torch.tensor([-740.0, -720.0], dtype=torch.float64)
    torch.testing.assert_close(Sigmoid.apply(x), torch.sigmoid(x), rtol=1e-6, atol=0)
""",
        0.0,
        "may be exactly 0 in the tails",
    ),
    FileMistake(
        "gradcheck_in_float32",
        HEAD
        + """
def test_gradcheck():
    assert gradcheck(Sigmoid.apply, torch.linspace(-2, 2, 5, requires_grad=True))
""",
        0.0,
        "gradcheck needs float64 inputs",
    ),
    FileMistake(
        "printed",
        HEAD
        + """
def test_value():
    x = torch.linspace(-5, 5, 11)
    print("same value:", torch.allclose(Sigmoid.apply(x), torch.sigmoid(x)))
    print("gradcheck:", gradcheck(Sigmoid.apply, x.double().requires_grad_(), raise_exception=False))
""",
        0.0,
        "What it lets through",
    ),
    FileMistake(
        "wrong_import",
        "import torch\nfrom solution import Sigmoid\n\ndef test_zero():\n    assert Sigmoid.apply(torch.zeros(1)) == 0.5\n",
        0.0,
        "No module named 'solution'. It needs torch and `from sigmoid import Sigmoid`.",
    ),
    FileMistake(
        "tests_with_arguments",
        HEAD
        + """
def test_value(x):
    assert torch.allclose(Sigmoid.apply(x), torch.sigmoid(x))

test_value(torch.linspace(-5, 5, 11, dtype=torch.float64))
""",
        0.0,
        "A test is called without arguments",
    ),
    FileMistake(
        "names_without_test",
        HEAD
        + """
def sigmoid_test():
    x = torch.randn(10)
    assert torch.allclose(Sigmoid.apply(x), torch.sigmoid(x))
""",
        0.0,
        "There is no test in the file",
    ),
    FileMistake(
        "endless_loop",
        HEAD
        + """
def test_approaches_one():
    x = torch.zeros(1)
    while Sigmoid.apply(x) < 1:
        y = x + 1
""",
        0.0,
        "test_approaches_one ran for more than",
    ),
    FileMistake(
        "waits_for_an_exception",
        HEAD
        + """
import pytest

def test_large_input():
    with pytest.raises(RuntimeError):
        Sigmoid.apply(torch.tensor([1000.0]))
""",
        0.0,
        "It waits for an exception that a right one does not raise",
    ),
)


def _text(name: str) -> str:
    """Return the text of a module with this right way or mistake of Sigmoid in it."""
    everybody = sigmoid.solutions | {m.name: m.operation for m in sigmoid.mistakes}
    return source_of(everybody[name].__self__, "Sigmoid")


task = FileTask(
    "SigmoidTests",
    "sigmoid",
    (FileCheck("catches", 6, "the file passes 4 right Sigmoids and fails 12 wrong ones; half a point for each"),),
    {name: _text(name) for name in ("SigmoidNew", "SigmoidPlain", "SigmoidByExpm1", "SigmoidRecomputed")},
    {name: Wrong(_text(name), kind) for name, kind in WRONG.items()},
    ADVICE,
    FAULTY,
    FILES,
    WHEN,
)
