"""The checklist: each item fails on its fault and passes without it, on Functions that the page does not have."""

import ast
import math
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.book.book_build import ROOT
from tests.tools.chapters import MYST, size_faults
from tools.checklist import FILE, source
from tools.checklist import main as write_checklist
from tools.notebooks import read

PAGE = read(ROOT / "book/e_checklist.ipynb")


@pytest.fixture(scope="module")
def checklist() -> SimpleNamespace:
    names = {"__name__": "checklist"}
    exec(compile(source(PAGE), "checklist.py", "exec"), names)
    return SimpleNamespace(**names)


# ------------------------------------------------------------------- right Functions


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


class Softsign(Function):
    """x / (1 + |x|)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x / (1 + x.abs())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g / (1 + x.abs()).square()


class Positive(Softsign):
    """max(x, 0) squared: it has a zone without a gradient."""

    @staticmethod
    def forward(x):
        return x.clamp(min=0).square()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, 2 * x * g, 0)


class Sign(Positive):
    """An estimator: the sign, with the gradient of the identity."""

    @staticmethod
    def forward(x):
        return x.sign()

    @staticmethod
    def backward(ctx, g):
        return g


class Polar(Function):
    """Length and angle of (a, b), and which is larger: they broadcast, and the third output has no gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a, b):
        r = torch.hypot(a, b)
        return r, torch.atan2(b, a), (a > b).to(r.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx, g, h, _):
        a, b = ctx.saved_tensors
        r = torch.hypot(a, b)
        need_a, need_b = ctx.needs_input_grad
        grad_a = (g * a / r - h * b / r**2).sum_to_size(a.shape) if need_a else None
        grad_b = (g * b / r + h * a / r**2).sum_to_size(b.shape) if need_b else None
        return grad_a, grad_b


class PolarForward(Polar):
    """Polar with a forward mode."""

    @staticmethod
    def jvp(ctx, s, t):
        a, b = ctx.saved_tensors
        r = torch.hypot(a, b)
        return (a * s + b * t) / r, (a * t - b * s) / r**2, None


def polar(a, b):
    r = torch.hypot(a, b)
    return r, torch.atan2(b, a), (a > b).to(r.dtype)


@dataclass(frozen=True)
class Call:
    """What `review` is given."""

    f: Callable
    case: torch.Tensor | tuple
    promises: dict = field(default_factory=dict)

    def verdict(self, checklist: SimpleNamespace, item: str, f: Callable | None = None) -> tuple[str, str]:
        """What the list says of one item, of `f` in place of the right function."""
        ((name, verdict, text),) = checklist.verdicts(f or self.f, self.case, only=[item], **self.promises)
        assert name == item
        return verdict, text


X, PAIR = numbers(-1.5, 0.25, 2.0), (numbers(-1.5, 0.25, 2.0), numbers(0.5, -2.0, 1.0))
ELEMENTWISE = {"elementwise": True, "vmap": True, "compiles": True, "keeps": 0}
SOFTSIGN = Call(Softsign.apply, X, ELEMENTWISE | {"reference": torch.nn.functional.softsign})
POSITIVE = Call(Positive.apply, X, ELEMENTWISE | {"reference": lambda x: torch.where(x > 0, x * x, 0)})
ONCE = Call(Softsign.apply, X, {"order": 1})
SIGN = Call(Sign.apply, X, ELEMENTWISE | {"reference": torch.sign, "surrogate": torch.clone})
POLAR = Call(Polar.apply, PAIR, ELEMENTWISE | {"reference": polar, "broadcasts": True, "skips": True})
FORWARD = Call(PolarForward.apply, PAIR, {"jvp": True, "vmap": True, "skips": True})


# ------------------------------------------------------------------- their faults


def variant(base: type, **parts: Callable) -> Callable:
    """The Function's apply, with these parts in place of its own."""
    return type("Variant", (base,), {name: staticmethod(part) for name, part in parts.items()}).apply


def nothing(ctx, inputs, output):
    pass


def saves_slope(ctx, inputs, output):
    ctx.save_for_backward(1 / (1 + inputs[0].abs()).square())


def keeps_output(ctx, inputs, output):
    ctx.y = output.detach()


def keeps_parts(ctx, inputs, output):
    ctx.save_for_backward(*inputs)
    ctx.parts = {"signs": [inputs[0].sign()]}


def saves_more(ctx, inputs, output):
    ctx.save_for_backward(*inputs, inputs[0].sign())


def uses_first(ctx, g):
    return g / (1 + ctx.saved_tensors[0].abs()).square()


def writes_saved(ctx, g):
    (x,) = ctx.saved_tensors
    slope = Softsign.backward(ctx, g)
    x.detach().mul_(2)
    return slope


def writes_upstream(ctx, g):
    return Softsign.backward(ctx, g.mul_(1.5)) / 1.5


def wants_contiguous(ctx, g):
    (x,) = ctx.saved_tensors
    return Softsign.backward(ctx, g) if g.is_contiguous() and x.is_contiguous() else torch.zeros_like(x)


def random_digits(ctx, g):
    return Softsign.backward(ctx, g) * (1 + 1e-12 * torch.rand((), dtype=g.dtype))


def counts(ctx, g):
    ctx.calls = getattr(ctx, "calls", 0) + 1
    return Softsign.backward(ctx, g) * ctx.calls


def both(ctx, g, h, _):
    a, b = ctx.saved_tensors
    r = torch.hypot(a, b)
    return (g * a / r - h * b / r**2).sum_to_size(a.shape), (g * b / r + h * a / r**2).sum_to_size(b.shape)


def unsummed(ctx, g, h, _):
    a, b = ctx.saved_tensors
    r = torch.hypot(a, b)
    return g * a / r - h * b / r**2, g * b / r + h * a / r**2


def doubled(ctx, g, h, _):
    return tuple(d if d is None or d.shape == g.shape else 2 * d for d in Polar.backward(ctx, g, h, _))


def no_mark(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def too_many_marks(ctx, inputs, output):
    ctx.save_for_backward(*inputs)
    ctx.mark_non_differentiable(*output[1:])


def unmaterialised(ctx, inputs, output):
    Polar.setup_context(ctx, inputs, output)
    ctx.set_materialize_grads(False)


def all_or_nothing(ctx, g, h, _):
    return (None, None) if g is None or h is None else Polar.backward(ctx, g, h, _)


def first_dimension(info, in_dims, x):
    return x / (1 + x.abs()), 0


def half_a_tangent(ctx, s, t):
    r, angle, _ = PolarForward.jvp(ctx, s, t)
    return r, angle / 2, None


FAULTS = {  # what is wrong: the item, the right call, the wrong function in its place, and a part of what is said
    "a gradient too many": ("runs", SOFTSIGN, variant(Softsign, backward=lambda ctx, g: (g, g)), "incorrect number"),
    "value": ("parity", SOFTSIGN, variant(Softsign, forward=lambda x: x.tanh()), "another value"),
    "half values": (
        "parity",
        SOFTSIGN,
        variant(Softsign, forward=lambda x: (x if x.dtype is torch.float64 else x * 1.01) / (1 + x.abs())),
        "another value than the reference, torch.float32",
    ),
    "gradient": (
        "parity",
        SOFTSIGN,
        variant(Softsign, backward=lambda ctx, g: 2 * Softsign.backward(ctx, g)),
        "another gradient than the reference, torch.float64, input 0 at [1]: 1.28, right 0.64",
    ),
    "low gradient": (
        "dtypes kept",
        SOFTSIGN,
        variant(Softsign, backward=lambda ctx, g: Softsign.backward(ctx, g).float()),
        "a gradient in torch.float32",
    ),
    "double output": (
        "dtypes kept",
        SOFTSIGN,
        variant(Softsign, forward=lambda x: x.double() / (1 + x.abs())),
        "torch.float32 in, torch.float64 out",
    ),
    "an axis too many": (
        "gradients fit",
        SOFTSIGN,
        variant(Softsign, backward=lambda ctx, g: Softsign.backward(ctx, g)[None]),
        "argument 0: a gradient of shape [1, 3], the input has [3]",
    ),
    "a gradient cast": (
        "gradients fit",
        SOFTSIGN,
        variant(Softsign, backward=lambda ctx, g: Softsign.backward(ctx, g).float()),
        "a gradient of dtype torch.float32, the input has torch.float64",
    ),
    "tiny": (
        "magnitudes",
        SOFTSIGN,
        variant(Softsign, backward=lambda ctx, g: 1e-8 * Softsign.backward(ctx, g)),
        "input 0 at [0]: 8e-10: below 1e-6, where gradcheck sees nothing",
    ),
    "huge": (
        "magnitudes",
        ONCE,
        variant(Softsign, backward=lambda ctx, g: 1e8 * Softsign.backward(ctx, g)),
        "above 1e6, or no number",
    ),
    "no number": (
        "magnitudes",
        SOFTSIGN,
        variant(Softsign, backward=lambda ctx, g: g / (0 * g)),
        "input 0 at [0]: inf: above 1e6",
    ),
    "no mask": (
        "gradcheck",
        POSITIVE,
        variant(Positive, backward=lambda ctx, g: 2 * ctx.saved_tensors[0] * g),
        "input 0 at [0]: backward -1.5, differences 0",
    ),
    "scaled estimator": ("gradcheck", SIGN, variant(Sign, backward=lambda ctx, g: 3 * g), "than the surrogate's"),
    "no estimator": ("gradcheck", SIGN, variant(Sign, forward=lambda x: x.clone()), "is it an estimator?"),
    "slope saved": (
        "second order",
        SOFTSIGN,
        variant(Softsign, setup_context=saves_slope, backward=lambda ctx, g: g * ctx.saved_tensors[0]),
        "wrong or missing",
    ),
    "not refused": ("second order", ONCE, Softsign.apply, "not refused"),
    "layout": ("non-contiguous", SOFTSIGN, variant(Softsign, backward=wants_contiguous), "another gradient"),
    "rows": (
        "empty and 0-d",
        SOFTSIGN,
        variant(Softsign, forward=lambda x: torch.stack([t / (1 + t.abs()) for t in x])),
        "0-d",
    ),
    "sum doubled": ("broadcasting", POLAR, variant(Polar, backward=doubled), "another gradient"),
    "random value": ("same twice", SOFTSIGN, variant(Softsign, forward=lambda x: x + torch.rand(())), "two values"),
    "random gradient": ("same twice", SOFTSIGN, variant(Softsign, backward=random_digits), "two gradients"),
    "counting": ("same twice", SOFTSIGN, variant(Softsign, backward=counts), "two backwards differ"),
    "mask multiplied": (
        "infinite upstream",
        POSITIVE,
        variant(Positive, backward=lambda ctx, g: 2 * ctx.saved_tensors[0].clamp(min=0) * g),
        "inf gives nan",
    ),
    "nan replaced": (
        "infinite upstream",
        POSITIVE,
        variant(Positive, backward=lambda ctx, g: Positive.backward(ctx, g).nan_to_num()),
        "nan is swallowed",
    ),
    "input written": ("inputs unchanged", SOFTSIGN, variant(Softsign, backward=writes_saved), "an input was changed"),
    "upstream written": (
        "inputs unchanged",
        SOFTSIGN,
        variant(Softsign, backward=writes_upstream),
        "backward wrote to the upstream gradient",
    ),
    "view": (
        "inputs unchanged",
        SOFTSIGN,
        variant(Softsign, forward=lambda x: x.view_as(x), setup_context=nothing, backward=lambda ctx, g: g),
        "shares its memory",
    ),
    "output on ctx": (
        "changes noticed",
        SOFTSIGN,
        variant(Softsign, setup_context=keeps_output, backward=lambda ctx, g: g * (1 - ctx.y.abs()).square()),
        "output 0 changed",
    ),
    "in a dict": ("nothing on ctx", SOFTSIGN, variant(Softsign, setup_context=keeps_parts), "ctx.parts"),
    "saved in vain": (
        "memory kept",
        SOFTSIGN,
        variant(Softsign, setup_context=saves_more, backward=uses_first),
        "24 bytes",
    ),
    "on ctx in vain": ("memory kept", SOFTSIGN, variant(Softsign, setup_context=keeps_parts), "24 bytes"),
    "both": ("frozen inputs", POLAR, variant(Polar, backward=both), "input 1, frozen"),
    "no mark": ("outputs marked", POLAR, variant(Polar, setup_context=no_mark), "output 2 is not marked"),
    "marks": ("outputs marked", POLAR, variant(Polar, setup_context=too_many_marks), "output 1 moves"),
    "None": (
        "unused outputs",
        POLAR,
        variant(Polar, setup_context=unmaterialised, backward=all_or_nothing),
        "output 0 alone",
    ),
    "out_dims": (
        "vmap",
        SOFTSIGN,
        variant(Softsign, vmap=first_dimension, generate_vmap_rule=False),
        "another value than a loop, [-1]",
    ),
    "tangent": (
        "forward mode",
        FORWARD,
        variant(PolarForward, jvp=half_a_tangent),
        "forward mode mismatch for output 1",
    ),
    "jvp": ("torch.compile", POLAR, PolarForward.apply, "Unsupported custom jvp"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_item_fails_on_its_fault_and_passes_without(fault: str, checklist: SimpleNamespace) -> None:
    item, right, wrong, said = FAULTS[fault]
    if right is ONCE:
        right = Call(variant(Softsign, backward=once_differentiable(Softsign.backward)), X, right.promises)
    assert right.verdict(checklist, item)[0] == "passed"
    torch.manual_seed(0)
    verdict, text = right.verdict(checklist, item, wrong)
    assert verdict == "FAILED"
    assert said in text


def test_each_item_has_a_fault(checklist: SimpleNamespace) -> None:
    assert {item for item, *_ in FAULTS.values()} == set(checklist.ITEMS)


RIGHT = {"softsign": SOFTSIGN, "positive": POSITIVE, "sign": SIGN, "polar": POLAR, "forward": FORWARD}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_fails_nowhere(name: str, checklist: SimpleNamespace, capsys: pytest.CaptureFixture) -> None:
    call = RIGHT[name]
    assert checklist.review(call.f, call.case, **call.promises) == []
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(7 * " ")]
    assert len(lines) == len(checklist.ITEMS)
    assert all(re.match(r"passed |n/a    ", line) for line in lines)


def uniform(*shape: int) -> torch.Tensor:
    """Numbers between -2 and 2, away from 0 and from each other."""
    size = math.prod(shape)
    ramp = torch.linspace(-2, 2.1, size, dtype=torch.float64)[torch.arange(size) * 7 % size]
    return ramp.reshape(shape).requires_grad_()


class Attend(Function):
    """softmax(a b^T) b, causal: compiled for two shapes, it keeps tensors that a retained graph may not."""

    @staticmethod
    def weights(a, b):
        later = torch.ones(a.shape[-2], b.shape[-2], dtype=torch.bool).triu(1)
        return (a @ b.mT).masked_fill(later, -torch.inf).softmax(-1)

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return Attend.weights(a, b) @ b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        p = Attend.weights(a, b)
        d = p * (g @ b.mT)
        d = d - p * d.sum(-1, keepdim=True)
        return d @ b, d.mT @ a + p.mT @ g


OTHERS = {  # calls without a Function, or with arguments that are no float tensors
    "torch.sin": Call(torch.sin, X, ELEMENTWISE | {"jvp": True, "reference": torch.sin}),
    "gather": Call(lambda x, i: x.gather(0, i), (X, torch.tensor([2, 0]))),
    "number": Call(lambda x, n: Softsign.apply(x) * n, (X, 3)),
    "frozen factor": Call(lambda a, b: Polar.apply(a, b)[0], (PAIR[0], PAIR[1].detach()), {"vmap": True}),
    "in place": Call(lambda x: x.clone().sin_(), X, {"keeps": 24}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_any_call_can_be_reviewed(name: str, checklist: SimpleNamespace) -> None:
    call = OTHERS[name]
    assert checklist.review(call.f, call.case, **call.promises) == []


def test_cases_of_several_shapes_can_be_compiled(checklist: SimpleNamespace) -> None:
    cases = [(uniform(n, 2), uniform(n, 2)) for n in (4, 5)]
    assert checklist.review(Attend.apply, *cases, compiles=True, only="torch.compile") == []


NOT_APPLICABLE = {
    "parity": (Call(Softsign.apply, X), "no reference given"),
    "infinite upstream": (Call(Softsign.apply, X), "no reference given"),
    "dtypes kept": (Call(torch.sin, X), "no Function in its graph"),
    "gradients fit": (Call(torch.sin, X), "no Function in its graph"),
    "empty and 0-d": (Call(Softsign.apply, X), "not promised"),
    "broadcasting": (Call(Softsign.apply, X), "not promised"),
    "vmap": (Call(Softsign.apply, X), "not promised"),
    "forward mode": (Call(Softsign.apply, X), "not promised"),
    "torch.compile": (Call(Softsign.apply, X), "not promised"),
    "memory kept": (
        Call(variant(Softsign, setup_context=saves_more, backward=uses_first), X),
        "not promised; 24 bytes",
    ),
    "frozen inputs": (Call(Softsign.apply, X, {"skips": True}), "one input"),
    "unused outputs": (Call(Softsign.apply, X), "one output"),
}


@pytest.mark.parametrize("item", NOT_APPLICABLE)
def test_what_does_not_apply_says_why(item: str, checklist: SimpleNamespace) -> None:
    call, why = NOT_APPLICABLE[item]
    verdict, text = call.verdict(checklist, item)
    assert verdict == "n/a"
    assert why in text


REFUSED = {  # what is given: f, the case, the rest, the error and a part of its line
    "float32": (Softsign.apply, X.detach().float().requires_grad_(), {}, ValueError, "give cases in float64"),
    "no gradient": (Softsign.apply, X.detach(), {}, ValueError, "with requires_grad=True in each"),
    "a number": (Softsign.apply, 3.0, {}, ValueError, "give cases in float64"),
    "a class": (Softsign, X, {}, TypeError, "give Softsign.apply, not the class"),
    "a promise": (Softsign.apply, X, {"referense": torch.sin}, ValueError, "no promise is called referense; there are"),
    "an item": (Softsign.apply, X, {"only": ["grad check"]}, ValueError, "no item is called 'grad check'; there are"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_reviewed_is_refused_in_a_line(what: str, checklist: SimpleNamespace) -> None:
    f, case, rest, error, line = REFUSED[what]
    with pytest.raises(error) as caught:
        checklist.review(f, case, **rest)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_does_not_run_is_said_once(checklist: SimpleNamespace, capsys: pytest.CaptureFixture) -> None:
    wrong = variant(Softsign, backward=lambda ctx, g: g * ctx.saved_tensors)
    assert checklist.review(wrong, X, **SOFTSIGN.promises) == ["runs"]
    assert capsys.readouterr().out.startswith("FAILED runs: TypeError: only integer tensors")


HINTS = {  # a cause that gradcheck's item names: a wrong function, or a wrong case, and what it says
    "kink": (Positive.apply, numbers(-1.0, 0.0), None),
    "relu at its kink": (torch.relu, numbers(-1.0, 0.0), "at [1]: backward 0, differences 0.75; a kink or a jump"),
    "estimator": (Sign.apply, X, "differences 0; if it is an estimator, name its surrogate"),
    "upstream": (
        variant(Softsign, backward=lambda ctx, g: Softsign.backward(ctx, torch.ones_like(g))),
        X,
        "it ignores the upstream gradient",
    ),
    "factor": (variant(Softsign, backward=lambda ctx, g: 2 * Softsign.backward(ctx, g)), X, "differences"),
}


@pytest.mark.parametrize("cause", HINTS)
def test_gradcheck_names_the_cause(cause: str, checklist: SimpleNamespace) -> None:
    f, case, said = HINTS[cause]
    verdict, text = Call(f, case).verdict(checklist, "gradcheck")
    assert (verdict, said is None or said in text) == ("passed" if said is None else "FAILED", True)
    hints = ("a kink", "an estimator", "ignores")
    assert sum(hint in text for hint in hints) == (cause not in ("kink", "factor"))


def test_a_sum_left_to_the_engine_passes_with_a_note(checklist: SimpleNamespace) -> None:
    verdict, text = POLAR.verdict(checklist, "broadcasting", variant(Polar, backward=unsummed))
    assert (verdict, text) == ("passed", "by the engine; backward returns larger shapes")


def test_a_function_inside_is_compared_with_its_own_inputs(checklist: SimpleNamespace) -> None:
    inside = Call(lambda n, x: Softsign.apply(x.reshape(3, 1).expand(3, n)).sum(1), (2, X))
    assert inside.verdict(checklist, "gradients fit") == ("passed", "")
    wrong = variant(Softsign, backward=lambda ctx, g: Softsign.backward(ctx, g)[None])
    around = Call(lambda n, x: wrong(x.reshape(3, 1).expand(3, n)).sum(1), (2, X))
    verdict, text = around.verdict(checklist, "gradients fit")
    assert verdict == "FAILED" and "of shape [1, 3, 2], the input has [3, 2]" in text


def test_an_input_that_is_shifted_in_place_is_seen_after_all_other_items(checklist: SimpleNamespace) -> None:
    """`x.to` of its own dtype is `x`: an item that works on it must not spoil the case for those that follow."""

    class Shifted(Function):
        @staticmethod
        def forward(ctx, x):
            x -= x.max()
            ctx.save_for_backward(y := x.softmax(-1))
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return y * (g - (g * y).sum())

    x = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64, requires_grad=True)
    found = {item: verdict for item, verdict, _ in checklist.verdicts(Shifted.apply, x)}
    assert found["inputs unchanged"] == "FAILED"
    assert x.tolist() == [1, 3, 2]


def test_a_size_that_the_reference_has_too_passes(checklist: SimpleNamespace) -> None:
    far = numbers(-3e4, 0.5, 2e5)
    assert Call(Softsign.apply, far).verdict(checklist, "magnitudes")[0] == "FAILED"
    call = Call(Softsign.apply, far, {"reference": F.softsign})
    verdict, text = call.verdict(checklist, "magnitudes")
    assert (verdict, text) == ("passed", "input 0: mean 0.148, std 0.21, 0 > 1e6, 2 < 1e-6")


def test_a_sum_that_is_promised_may_be_left_to_the_engine(checklist: SimpleNamespace) -> None:
    pair = numbers(0.5, -2.0, 1.0), numbers(0.7)
    left = variant(Polar, backward=unsummed)
    call = Call(left, pair, {"broadcasts": True})
    verdict, text = call.verdict(checklist, "gradients fit")
    assert (verdict, text) == ("passed", "argument 1: a gradient of shape [3], the input has [1]")
    assert Call(left, pair).verdict(checklist, "gradients fit")[0] == "FAILED"


def test_one_element_alone_is_compared(checklist: SimpleNamespace) -> None:
    ours, right = torch.tensor([[1.0, 2.0], [3.0, 4.5]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert checklist.differs([right, ours], [right, right], names=[0, 3]) == "3 at [1, 1]: 4.5, right 4"
    assert checklist.differs([ours[0]], [ours]) == "0: shape [2], right [2, 2]"
    assert checklist.differs([ours], []) == "1 tensors, right 0"
    assert checklist.differs([torch.tensor(torch.nan)], [torch.tensor(torch.nan)]) == ""


@pytest.fixture(scope="module")
def solutions() -> dict:
    """The right solutions of the exercise sets, by name."""
    names = {"torch": torch, "math": math, "Function": Function, "nn": torch.nn, "F": F}
    for path in sorted(ROOT.glob("solutions/*/*.ipynb")):
        for cell in read(path).cells:
            if cell.metadata.get("nbgrader", {}).get("solution") and not cell.source.startswith("%%"):
                exec(cell.source, names)
    return names


Y, SHAPE = uniform(5), {"elementwise": True}
SOLUTIONS = {  # the cases, and what each solution promises
    "Square": ([Y], SHAPE | {"reference": torch.square, "keeps": 0}),
    "LeakyReLU": ([(Y, 0.1), (Y, 2)], SHAPE | {"reference": F.leaky_relu}),
    "Tanh": ([Y], SHAPE | {"reference": torch.tanh, "keeps": 0}),
    "Sigmoid": ([Y], SHAPE | {"reference": torch.sigmoid}),
    "GradientReversal": ([(Y, 0.5)], SHAPE | {"surrogate": lambda x, alpha: -alpha * x}),
    "MulConstant": ([(Y, 3), (Y, 0)], SHAPE | {"reference": torch.mul}),
    "ClippedReLU": ([(Y, 1.5)], SHAPE | {"reference": lambda x, clip: F.hardtanh(x, 0, clip)}),
    "Linear": (
        [(uniform(3, 4), uniform(2, 4), uniform(2)), (uniform(4), uniform(2, 4), None)],
        {"reference": F.linear},
    ),
    "BroadcastMul": ([(uniform(2, 1), uniform(3))], SHAPE | {"reference": torch.mul, "broadcasts": True}),
    "Swish": ([(Y, uniform(5))], {"reference": lambda x, beta: x * torch.sigmoid(beta * x), "broadcasts": True}),
    "LogSumExp": ([(uniform(3, 4), 1), (uniform(3, 4), 0, True)], {"reference": torch.logsumexp}),
    "CrossEntropy": ([(uniform(3, 4), torch.tensor([0, 3, 1]))], {"reference": F.cross_entropy}),
    "MixedLinear": ([(uniform(3, 4), uniform(2, 4), uniform(2))], {"reference": F.linear, "keeps": 0}),
    "FusedLinearReLU": (
        [(uniform(3, 4), uniform(2, 4), uniform(2))],
        {"reference": lambda x, weight, bias: F.linear(x, weight, bias).relu()},
    ),
}


@pytest.mark.parametrize("task", SOLUTIONS)
def test_a_right_solution_fails_nowhere(task: str, checklist: SimpleNamespace, solutions: dict) -> None:
    cases, promises = SOLUTIONS[task]
    assert checklist.review(solutions[task].apply, *cases, **promises) == []


def test_a_function_without_a_graph_fails(checklist: SimpleNamespace) -> None:
    call = Call(lambda x: Softsign.apply(x).detach(), X)
    assert call.verdict(checklist, "runs") == ("FAILED", "no output requires a gradient, where an input does")


def test_without_assertions_the_list_refuses(tmp_path: Path) -> None:
    (tmp_path / "checklist.py").write_text(source(PAGE))
    program = "import torch, checklist; checklist.review(torch.sin, torch.ones(1, dtype=torch.float64))"
    command = [sys.executable, "-O", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "RuntimeError: python -O removes all assertions" in done.stderr


# ------------------------------------------------------------------- the page


def markdown() -> str:
    return "\n\n".join(cell.source for cell in PAGE.cells if cell.cell_type == "markdown")


def test_the_tables_have_every_item_and_every_promise(checklist: SimpleNamespace) -> None:
    section = re.search(r"^## What each item asks$(.+?)^## ", markdown(), re.MULTILINE | re.DOTALL)[1]
    listed = re.findall(r"^\| ([\w. -]+?) \| ", section, re.MULTILINE)
    assert listed[1:] == list(checklist.ITEMS)
    section = re.search(r"^## Use it$(.+?)^## ", markdown(), re.MULTILINE | re.DOTALL)[1]
    promised = set(re.findall(r"`(\w+)=", section))
    assert promised == {f.name for f in fields(checklist.Op)} - {"f", "cases"} | {"only"}


def test_the_page_shows_each_item_failing() -> None:
    (cell,) = (cell for cell in PAGE.cells if cell.id == "table-count")
    assert "items that never fail: none\n" in cell.outputs[0].text
    (text,) = re.findall(r"\w+ of the [\w-]+ wrong ones pass", markdown())
    assert "22 wrong, 12 pass both gradient checks" in cell.outputs[0].text
    assert text == "twelve of the twenty-two wrong ones pass"


def test_the_file_to_download_is_the_list(capsys: pytest.CaptureFixture) -> None:
    assert write_checklist(["--check"]) == 0, capsys.readouterr().err
    assert "(checklist.py)" in markdown()


def test_a_list_that_was_changed_is_not_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changed = tmp_path / "checklist.py"
    changed.write_text(FILE.read_text(encoding="utf-8") + "# more\n", encoding="utf-8")
    monkeypatch.setattr("tools.checklist.FILE", changed)
    assert write_checklist(["--check"]) == 1
    assert write_checklist([]) == 0
    assert changed.read_text(encoding="utf-8") == FILE.read_text(encoding="utf-8")


def test_a_page_that_is_no_notebook_is_one_line_and_the_file_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "page.ipynb").write_text("{", encoding="utf-8")
    monkeypatch.setattr("tools.checklist.PAGE", tmp_path / "page.ipynb")
    before = FILE.read_bytes()
    assert write_checklist([]) == 1 and FILE.read_bytes() == before
    assert capsys.readouterr().err == "book/e_checklist.ipynb: not a notebook: NotJSONError\n"


def test_the_list_needs_torch_and_nothing_else() -> None:
    for node in ast.walk(ast.parse(source(PAGE))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            top = name.partition(".")[0]
            assert top == "torch" or top in sys.stdlib_module_names


def test_the_page_keeps_the_form_of_a_chapter() -> None:
    assert [fault for fault in size_faults(PAGE) if "lines" in fault] == []
    for cell in PAGE.cells:
        assert cell.cell_type == "code" or not MYST.search(cell.source), cell.id
