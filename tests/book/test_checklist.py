"""The checklist: each item fails on its fault and passes without it, on Functions that the page does not have."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from nbformat import NotebookNode
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.book.book_build import ROOT
from tests.tools.chapters import MYST, size_faults
from tools.notebooks import read

PAGE = read(ROOT / "book/e_checklist.ipynb")


def source(notebook: NotebookNode) -> str:
    """The list as a module: the cells that a reader copies."""
    cells = [cell.source for cell in notebook.cells if cell.source.startswith("# checklist: ")]
    return "\n\n\n".join(cells) + "\n"


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
ELEMENTWISE = {"elementwise": True, "vmap": True}
SOFTSIGN = Call(Softsign.apply, X, ELEMENTWISE | {"reference": torch.nn.functional.softsign})
POSITIVE = Call(Positive.apply, X, ELEMENTWISE | {"reference": lambda x: torch.where(x > 0, x * x, 0)})
ONCE = Call(Softsign.apply, X, {"order": 1})
SIGN = Call(Sign.apply, X, ELEMENTWISE | {"reference": torch.sign, "surrogate": torch.clone})
POLAR = Call(Polar.apply, PAIR, ELEMENTWISE | {"reference": polar, "broadcasts": True})
FORWARD = Call(PolarForward.apply, PAIR, {"jvp": True, "vmap": True, "compiles": False})


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
        "another gradient",
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
    "no mask": (
        "gradcheck",
        POSITIVE,
        variant(Positive, backward=lambda ctx, g: 2 * ctx.saved_tensors[0] * g),
        "Jacobian mismatch for output 0 with respect to input 0; if it is an estimator",
    ),
    "scaled estimator": ("gradcheck", SIGN, variant(Sign, backward=lambda ctx, g: 3 * g), "than the surrogate's"),
    "no estimator": ("gradcheck", SIGN, variant(Sign, forward=lambda x: x.clone()), "is it an estimator?"),
    "slope saved": (
        "second order",
        SOFTSIGN,
        variant(Softsign, setup_context=saves_slope, backward=lambda ctx, g: g * ctx.saved_tensors[0]),
        "Jacobian mismatch",
    ),
    "not refused": ("second order", ONCE, Softsign.apply, "not refused"),
    "layout": ("non-contiguous", SOFTSIGN, variant(Softsign, backward=wants_contiguous), "another gradient"),
    "rows": (
        "empty and 0-d",
        SOFTSIGN,
        variant(Softsign, forward=lambda x: torch.stack([t / (1 + t.abs()) for t in x])),
        "0-d",
    ),
    "sum left out": ("broadcasting", POLAR, variant(Polar, backward=unsummed), "the engine has to sum"),
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
        "backward changed its argument",
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
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(checklist.ITEMS)
    assert all(re.match(r"passed |n/a    ", line) for line in lines)


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


NOT_APPLICABLE = {
    "parity": (Call(Softsign.apply, X), "no reference given"),
    "infinite upstream": (Call(Softsign.apply, X), "no reference given"),
    "dtypes kept": (Call(torch.sin, X), "no Function in its graph"),
    "empty and 0-d": (Call(Softsign.apply, X), "not promised"),
    "broadcasting": (Call(Softsign.apply, X), "not promised"),
    "vmap": (Call(Softsign.apply, X), "not promised"),
    "forward mode": (Call(Softsign.apply, X), "not promised"),
    "torch.compile": (Call(Softsign.apply, X, {"compiles": False}), "not promised"),
    "frozen inputs": (Call(Softsign.apply, X), "one input"),
    "unused outputs": (Call(Softsign.apply, X), "one output"),
}


@pytest.mark.parametrize("item", NOT_APPLICABLE)
def test_what_does_not_apply_says_why(item: str, checklist: SimpleNamespace) -> None:
    call, why = NOT_APPLICABLE[item]
    verdict, text = call.verdict(checklist, item)
    assert verdict == "n/a"
    assert why in text


@pytest.mark.parametrize("case", [X.detach().float().requires_grad_(), X.detach(), 3.0])
def test_inputs_that_cannot_be_checked_are_refused(case: object, checklist: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="give inputs in float64, with requires_grad=True"):
        checklist.review(Softsign.apply, case)


def test_a_function_without_a_graph_fails(checklist: SimpleNamespace) -> None:
    call = Call(lambda x: Softsign.apply(x).detach(), X, {"compiles": False})
    assert call.verdict(checklist, "gradcheck") == ("FAILED", "no output requires a gradient")


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
    (text,) = re.findall(r"\w+ of the \w+ wrong ones pass", markdown())
    assert "19 wrong, 10 pass both gradient checks" in cell.outputs[0].text
    assert text == "ten of the nineteen wrong ones pass"


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
