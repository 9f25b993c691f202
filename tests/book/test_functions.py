"""The page of all Functions: it names each class of the notebooks, and what it says of each is run.

A class is taken from its notebook as it stands there, with the notebook's imports and helpers, and called on the inputs
that `CASES` and `WRONG` give. So a Function that is new, renamed or changed makes this file fail, and so does the page.
"""

import ast
import importlib
import inspect
import re
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import nbformat
import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from tests.book.book_build import PAGES, ROOT
from tests.book.test_build import slug, without_code
from tools.turns import filled

sys.path.insert(0, str(ROOT / "book"))  # whose checklist.py a page imports
PAGE = ROOT / "book/functions.md"
NOTEBOOKS = sorted(path for page in PAGES if (path := ROOT / f"{page}.ipynb").exists())
BASES = {"Function", "torch.autograd.Function"}
QUIET = {"raise_exception": False}

# ------------------------------------------------------------------- what the notebooks define


@dataclass(frozen=True)
class Place:
    """A class or a function of a notebook: its name, and the section that defines it."""

    notebook: str
    section: str
    name: str

    def __str__(self) -> str:
        return f"{self.notebook}#{self.section}: {self.name}"


@dataclass
class Notebook:
    """What a notebook defines."""

    names: dict[str, Any] = field(default_factory=dict)  # as Python leaves them
    functions: dict[Place, ast.ClassDef] = field(default_factory=dict)  # the classes that are Functions
    classes: dict[Place, type] = field(default_factory=dict)  # the same, to be called
    wrong: dict[str, tuple[str, type]] = field(default_factory=dict)  # by title: of what, and the class
    places: set[Place] = field(default_factory=set)  # all that has a name
    titles: list[str] = field(default_factory=list)  # of what "How it breaks" shows


def headings(markdown: str) -> list[str]:
    """The slugs of a text's headings."""
    return [slug(text) for text in re.findall(r"^#{1,3} +(.+?) *$", without_code(markdown), re.MULTILINE)]


def is_literal(node: ast.stmt) -> bool:
    """Say whether a statement gives a name to a literal."""
    try:
        return isinstance(node, ast.Assign) and (ast.literal_eval(node.value), True)[1]
    except ValueError:
        return False


def keeps_the_right_one(node: ast.stmt) -> bool:
    """Say whether a statement is of the form ``RightReLU = ReLU``, from which wrong versions inherit."""
    return re.match(r"Right(\w+) = \1$", ast.unparse(node)) is not None


def run(node: ast.stmt, names: dict[str, Any]) -> None:
    """Run an import, a definition, a literal, or what keeps a right version."""
    defines = isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
    if defines or is_literal(node) or keeps_the_right_one(node):
        try:
            exec(compile(ast.Module([node], []), "cell", "exec"), names)
        except NameError:
            return  # a helper of something that is not run here, such as a kernel of Triton


def read(notebook: nbformat.NotebookNode, name: str) -> Notebook:
    """What a notebook defines, its turns filled in; a wrong version does not replace the right one."""
    notebook = filled(notebook)
    found, section = Notebook({"__name__": "notebook"}), ""
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "markdown":
            section = (headings(cell.source) or [section])[-1]
            if section == "how-it-breaks":
                found.titles += re.findall(r"^\*\*(.+?)\.\*\*", cell.source, re.MULTILINE)
        if cell.cell_type != "code" or cell.source.startswith("%%") or any(t.startswith("figure:") for t in tags):
            continue
        tree = ast.parse(re.sub(r"\bcourse(::|\.)", r"functions\1", cell.source))
        misconceptions = [tag.split(":")[1].split(".")[0] for tag in tags if tag.startswith("misconception:")]
        names = dict(found.names) if misconceptions else found.names
        for node in tree.body:
            run(node, names)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.places.add(Place(name, section, node.name))
            for target in node.targets if isinstance(node, ast.Assign) else ():
                found.places.add(Place(name, section, ast.unparse(target)))
            if not isinstance(node, ast.ClassDef):
                continue
            known = {place.name for place in found.functions}
            known |= {f"Right{name}" for name in known}
            if not BASES.union(known).intersection(ast.unparse(base) for base in node.bases):
                continue
            if misconceptions:
                found.wrong[found.titles[len(found.wrong)]] = misconceptions[0], names[node.name]
            else:
                place = Place(name, section, node.name)
                found.functions[place] = node
                if node.name in names:
                    found.classes[place] = names[node.name]
    return found


@cache
def notebooks() -> dict[str, Notebook]:
    """All notebooks of the book, by file name."""
    return {path.name: read(nbformat.read(path, as_version=4), path.name) for path in NOTEBOOKS}


# ------------------------------------------------------------------- what the page says

LINK = re.compile(r"\[`(\w+)`\]\(([\w.]+)#([\w-]+)\)")
TITLE = re.compile(r"\[(.+?)\]\(([\w.]+)#how-it-breaks\)")
FUNCTION, WRONG, OTHER = "Function", "Wrong version", "Operation"


def page() -> str:
    """The page's text."""
    return PAGE.read_text(encoding="utf-8")


def tables(text: str, first: str) -> list[dict[str, str]]:
    """The rows of the tables whose first column has this head, each a dict of its cells."""
    rows = []
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        heads, _, *lines = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines())
        if heads[0] == first:
            rows += [dict(zip(heads, line, strict=True)) for line in lines]
    return rows


def links(text: str) -> list[Place]:
    """The definitions that a text leads to."""
    return [Place(notebook, section, name) for name, notebook, section in LINK.findall(text)]


def codes(cell: str) -> list[str]:
    """The code of a cell."""
    return re.findall(r"`(.+?)`", cell)


def attribute(name: str) -> Callable:
    """What a name of torch stands for."""
    where = {"F": F, "Tensor": Tensor, "torch": torch}
    first, *rest = name.split(".")
    found = where[first]
    for part in rest:
        found = getattr(found, part)
    return found


RIGHT = {links(row[FUNCTION])[0]: row for row in tables(page(), FUNCTION)}

# ------------------------------------------------------------------- what each is called with


def t(*values: float) -> Tensor:
    """Numbers in float64 that require a gradient."""
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers in float64 that require a gradient."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def positive(*shape: int) -> Tensor:
    """Numbers from 1 to 2 that require a gradient."""
    return (1 + torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).requires_grad_()


def call(function: type) -> Callable:
    """How a Function is called; of several outputs, those that have a gradient."""

    def apply(*args: Any) -> Any:
        out = function.apply(*args)
        return tuple(o for o in out if o.requires_grad) if isinstance(out, tuple) else out

    return apply


def on_a_copy(function: type) -> Callable:
    """The same for a Function that writes into its input."""
    return lambda x: function.apply(x * 1)


def with_kernels(function: type) -> Callable:
    """The same for `Geglu`, its two passes composed of torch's operations."""
    names = function.backward.__globals__
    return lambda x, bias: function.apply(x, bias, (names["composed"], names["composed_backward"]))


def with_squares(function: type) -> Callable:
    """The same for `Squared`."""
    return lambda x: function.apply(x, (lambda x: x * x, lambda g, x: 2 * x * g))


def of_complex(function: type) -> Callable:
    """The same for a Function of complex numbers, its parts real."""
    return lambda a, b: torch.view_as_real(function.apply(torch.complex(a, b)))


def complex_result(f: Callable, a: Tensor, b: Tensor) -> Tensor:
    """What torch's function gives there, its parts real."""
    return torch.view_as_real(f(torch.complex(a, b)))


class Alike:
    """In the place of `torch.distributed`: ranks that all hold the same numbers and ask alike, seen from rank 0."""

    ReduceOp = torch.distributed.ReduceOp

    def __init__(self, size: int) -> None:
        """Have this many ranks."""
        self.size = size

    def get_rank(self) -> int:
        """This rank."""
        return 0

    def get_world_size(self) -> int:
        """How many there are."""
        return self.size

    def all_reduce(self, x: Tensor, op: Any = torch.distributed.ReduceOp.SUM) -> None:
        """Add what all ranks hold, in place; the largest of the same is the same."""
        if op == torch.distributed.ReduceOp.SUM:
            x.mul_(self.size)

    def all_gather_single(self, out: Tensor, x: Tensor) -> None:
        """Put what all ranks hold one below the other."""
        out.copy_(torch.cat([x] * self.size))

    def reduce_scatter_single(self, out: Tensor, x: Tensor) -> None:
        """Add what all ranks hold, and keep the first slice."""
        out.copy_(self.size * x[: len(out)])


def on_ranks(size: int, before: str = "", after: str = "") -> Callable[[type], Callable]:
    """How a Function is called on ranks that ask alike, with another one of its page before or after it."""

    def call(function: type) -> Callable:
        names = notebooks()["g_across.ipynb"].names
        methods = (getattr(function, "forward", function.backward), function.backward)  # of a Spy, one
        for known in (names, *(method.__globals__ for method in methods)):
            known["dist"] = Alike(size)
        first, last = names.get(before), names.get(after)
        if last and isinstance(function, type) and issubclass(function, last):
            last = names["CopyTo"]  # f and g exchanged

        def f(x: Tensor) -> Tensor:
            y = function.apply(first.apply(x) if first else x)
            return last.apply(3 * y) if last else y

        return f

    return call


Rule = Callable[..., Tensor | tuple[Tensor | None, ...]]


@dataclass(frozen=True)
class Case:
    """Arguments that reach every branch and stay off the kinks; torch's counterpart, called as the Function is."""

    args: list[tuple]
    theirs: Callable = lambda f, *args: f(*args)  # the callables that the page names, then the arguments
    rule: Rule | None = None  # what an estimator's backward returns for g and the arguments
    edges: list[tuple] = field(default_factory=list)  # arguments on kinks and ties, for parity and rule
    call: Callable[[type], Callable] = call
    limits: dict[str, float] = field(default_factory=dict)  # for gradcheck


X = t(-2.1, -0.8, -0.3, 0.4, 0.9, 1.6)
SQUARE = torch.tensor([[-0.55, 1.7], [0.3, -2.6]], dtype=torch.float64, requires_grad=True)
ROWS = torch.tensor([0.25, 0.5], dtype=torch.float64)
NONE = torch.zeros(2, dtype=torch.int32)
QKV = normal(4, 3), normal(4, 3, seed=1), normal(4, 3, seed=2)
LAYER = normal(5, 3), normal(4, 3, seed=1), normal(4, seed=2)
BANDS = normal(3), (4 + normal(4).detach().abs()).requires_grad_(), normal(3, seed=1), normal(4, 2)
ANGLES = torch.arange(6.0, dtype=torch.float64).reshape(3, 2)
INDEX = torch.tensor([[0, 2, 2], [1, 1, 3]])
DIMS = [(normal(2, 3, 2), dim, keep) for dim in (None, 0, -1, (0, 2)) for keep in (False, True)]


def block(x: Tensor, weight: Tensor) -> Tensor:
    """What a checkpoint runs again."""
    return (x @ weight.T).sin()


def solve_dense(f: Callable, lower: Tensor, diag: Tensor, upper: Tensor, rhs: Tensor) -> Tensor:
    """The tridiagonal system with all of its matrix."""
    return f(torch.diag(diag) + torch.diag(lower, -1) + torch.diag(upper, 1), rhs)


def penalised(w: Tensor, lam: Tensor, x: Tensor) -> Tensor:
    """A loss that is convex in w."""
    return F.softplus(x @ w).sum() + lam / 2 * (w - 1).square().sum()


def definite(m: Tensor) -> Tensor:
    """A symmetric positive definite matrix."""
    return m @ m.mT + torch.eye(len(m), dtype=m.dtype)


def gated(f: Callable, x: Tensor, bias: Tensor) -> Tensor:
    """A gated GELU, composed."""
    p, q = (x + bias).chunk(2, -1)
    return f(p, approximate="tanh") * q


def within(g: Tensor, q: Tensor, low: int, high: int) -> Tensor:
    """g where q is in range, else 0."""
    return torch.where((q >= low) & (q <= high), g, 0)


def lsq(g: Tensor, x: Tensor, scale: Tensor, bits: int, signed: bool = True) -> tuple[Tensor, Tensor]:
    """LSQ's gradients, by the page's formula."""
    low = -(2 ** (bits - 1)) if signed else 0
    high = low + 2**bits - 1
    q = torch.round(x / scale)
    slope = torch.where(q > high, high, torch.where(q < low, low, q - x / scale))
    return within(g, q, low, high), (g * slope).sum() / (x.numel() * high) ** 0.5


SETTLES = Case(  # a step whose derivative is 0.8 at most
    [
        (
            lambda z, w, x: torch.tanh(z @ w.mT + x),
            torch.zeros(2, dtype=torch.float64),
            1e-12,
            t(0.1, 0.7, -0.7, 0.1).reshape(2, 2).detach().requires_grad_(),
            t(0.1, -0.2),
        )
    ]
)
WAVES = t(-1.0, 0.5, 2.0, 0.3, -0.7, 1.5).reshape(2, 3).detach().requires_grad_()

CASES: dict[str, dict[str, Case]] = {
    "01_relu.ipynb": {
        "ReLU": Case([(X,)], edges=[(t(-1, 0, 1),)]),
        "Square": Case([(X,)]),
        "Exp": Case([(X,)]),
        "Power": Case([(X, 1), (X, 3)], lambda f, x, n: f(x, n)),
        "BesselJ0": Case([(X,)]),
        "BesselJ": Case([(X, 0), (X, 1)], lambda f, x, n: torch.special.bessel_j1(x) if n else f(x)),
        "Maximum": Case([(X, t(0, 0, 0, 0, 0, 0))], edges=[(t(1, 2, 3), t(1, 3, 2))]),
        "ReLUInPlace": Case([(X,)], lambda f, x: f(x * 1), edges=[(t(-1, 0, 1),)], call=on_a_copy),
    },
    "02_sigmoid.ipynb": {
        "Arctan": Case([(X,)]),
        "PiecewiseArctan": Case([(X,)]),
        "FloorSTE": Case([(X,)], rule=lambda g, x: g),
    },
    "03_ste.ipynb": {
        "Round": Case([(X,)], rule=lambda g, x: g),
        "Step": Case(
            [(X,)],
            lambda f, x: f(x, torch.zeros_like(x)),
            rule=lambda g, x: torch.where(x.abs() <= 0.5, g, 0),
            edges=[(t(-0.5, -0.0, 0, 0.5),)],
        ),
        "IdentityStep": Case([(X,)], lambda f, x: f(x, torch.zeros_like(x)), rule=lambda g, x: g),
        "ScaleGradient": Case([(X, -3), (X, 0.1)], rule=lambda g, x, factor: factor * g),
    },
    "04_legendre.ipynb": {
        "LegendreP3": Case([(X,)], lambda f, x: f(x, 3)),
        "Chebyshev": Case([(t(-1, -0.6, 0.25, 1, 1.2), n) for n in (0, 1, 2, 3, 6)]),
    },
    "05_clipped_relu.ipynb": {
        "DivConstant": Case([(X, 4), (X, -0.5)]),
        "HardTanh": Case([(X, 1.0)], lambda f, x, bound: f(x, -bound, bound), edges=[(t(-1, 0, 1), 1.0)]),
        "SymmetricClip": Case(
            [(X, torch.ones((), dtype=torch.float64, requires_grad=True)), (X, t(0.5))],
            lambda f, x, alpha: f(x, -alpha, alpha),
        ),
        "ClipGrad": Case(
            [(X, 0.5), (X, 50.0)],
            rule=lambda g, x, tau: g * min(1, tau / (g.norm() + 1e-6)),
        ),
    },
    "06_linear.ipynb": {
        "MatMul": Case([(normal(2, 3), normal(3, 4))]),
        "BatchedMatMul": Case([(normal(5, 2, 3), normal(3, 4)), (normal(2, 1, 2, 3), normal(3, 3, 4))]),
        "Conv1d": Case([(normal(2, 3, 8), normal(4, 3, 3), normal(4), 2, 1), (normal(2, 3, 7), normal(4, 3, 3))]),
        "ChannelBias": Case([(normal(2, 3, 4, 3), normal(3))], lambda f, x, bias: f(x, bias.reshape(-1, 1, 1))),
        "Gather": Case([(normal(2, 4), 1, INDEX)]),
        "ScatterAdd": Case(
            [(normal(2, 3), 1, INDEX, (2, 4))],
            lambda f, x, dim, index, shape: f(x.new_zeros(shape), dim, index, x),
        ),
        "Embedding": Case([(normal(4, 2), INDEX)], lambda f, weight, tokens: f(tokens, weight)),
        "Scan": Case([(normal(4, 2), normal(4, 2, seed=1))]),
        "Rotate": Case([(normal(3, 4), ANGLES)]),
        "BiasAdd": Case([(normal(2, 3, 4), normal(4)), (normal(4), normal(4))]),
        "BroadcastDiv": Case(
            [(normal(3, 1), positive(4)), (normal(2, 3, 3), positive(1, 1, 3)), (t(1, -2), positive())]
        ),
        "Sum": Case(DIMS),
        "Mean": Case(DIMS),
        "Amax": Case([(x, () if dim is None else dim, keep) for x, dim, keep in DIMS], edges=[(t(0, 3, 3), 0)]),
        "HighLow": Case(
            [(normal(3, 4), 1), (normal(3, 4), 0)], lambda most, least, x, d: (most(x, d)[0], least(x, d)[0])
        ),
        "Softplus": Case(
            [(X, positive()), (normal(3, 4), positive(3, 1))],
            lambda f, x, beta: f(beta * x) / beta,
        ),
        "GLU": Case([(normal(3, 4),)]),
        "BesselJv": Case([(t(0.5, 2.5), t(0.7, 3))], limits={"eps": 1e-4, "atol": 1e-6, "rtol": 1e-6}),
    },
    "07_logsumexp.ipynb": {
        "LogSumExp1d": Case([(X,), (t(-901, -899.5),)], lambda f, x: f(x, 0)),
        "LogSoftmax": Case([(normal(2, 3, 4),), (normal(3, 3),)], lambda f, x: f(x, -1)),
        "SoftCrossEntropy": Case([(normal(3, 4), positive(3, 4))]),
        "StreamedSoftmax": Case([(normal(7), 3), (t(-901, -899.5), 1)], lambda f, x, size: f(x, 0)),
        "LinearCrossEntropy": Case(
            [(normal(3, 2), normal(5, 2), torch.tensor([4, 0, 4]), 2)],
            lambda f, lse, h, w, target, size: (f(h @ w.mT, target), lse(h @ w.mT, 1)),
        ),
    },
    "08_qat.ipynb": {
        "FakeQuantBits": Case(
            [(X, 0.25, 3, 3)],
            lambda f, x, s, z, bits: f(x, s, z, 0, 2**bits - 1),
            rule=lambda g, x, s, z, bits: within(g, (x / s).round() + z, 0, 2**bits - 1),
            edges=[(t(-1.125, -0.125, 0.125, 0.375), 0.25, 0, 3)],
        ),
        "FakeQuantRows": Case(
            [(SQUARE, ROWS, 3)],
            lambda f, w, s, bits: f(w, s.float(), NONE, 0, -4, 3),
            rule=lambda g, w, s, bits: within(g, (w / s[:, None]).round(), -4, 3),
        ),
        "LearnedStep": Case(
            [(X, t(0.5), 3, True), (X, t(0.5), 2, False)],
            lambda f, x, s, bits, signed: f(
                x.float(),
                s.float(),
                torch.zeros(1),
                -(2 ** (bits - 1)) * signed,
                2 ** (bits - signed) - 1,
                (6 * (2 ** (bits - signed) - 1)) ** -0.5,
            ),
            rule=lsq,
        ),
        "FloatGrid": Case(
            [(X, 0.5, 1, 0, 6.0)],
            rule=lambda g, x, s, mantissa, lowest, top: torch.where(x.abs() < 7 * s, g, 0),
            edges=[(t(-3.6, -3.4, 3.4, 3.6), 0.5, 1, 0, 6.0)],
        ),
        "StochasticRound": Case([(X, 0.25, torch.linspace(0, 0.9, 6))], rule=lambda g, x, step, u: g),
    },
    "09_checkpointing.ipynb": {
        "Recompute": Case(
            [(LAYER[0], block, LAYER[1])],
            lambda f, x, g, *weights: f(g, x, *weights, use_reentrant=False),
        ),
        "LinearTanh": Case([LAYER], lambda tanh, linear, *args: tanh(linear(*args))),
        "Product": Case([(normal(5, 3), normal(3, 4))]),
        "Mixed": Case([(normal(5, 3), normal(3, 4))]),
    },
    "10_flash_attention.ipynb": {
        "Tiles": Case([(*QKV, 2)], lambda f, q, k, v, size: f(q, k, v)),
        "TilesAndLse": Case([(*QKV, 2)]),
    },
    "a_errors.ipynb": {
        "Sin": Case([(X,)]),
        "Wave": Case([(X, X.detach().flip(0).requires_grad_())]),
    },
    "b_library.ipynb": {
        "Tridiagonal": Case([BANDS], solve_dense),
        "Solve": Case([BANDS], solve_dense),
    },
    "c_transforms.ipynb": {
        "RMSNorm": Case(
            [(normal(4), normal(4, seed=1), 1e-6), (normal(2, 4), normal(4, seed=1), 1e-6)],
            lambda f, x, w, eps: f(x, x.shape[-1:], w, eps),
        ),
        "Erf": Case([(X,)]),
        "Quartic": Case([(X,)], lambda f, x: f(x, 4)),
        "Power": Case([(X, 3)]),
        "Times": Case([(X, X.detach().flip(0).requires_grad_())]),
        "Halve": Case([(X,)], lambda f, x: f(x * 1, 0.5), call=on_a_copy),
    },
    "d_kernels.ipynb": {
        "Squared": Case([(X,)], call=with_squares),
        "Geglu": Case([(normal(3, 8), normal(8)), (normal(8), normal(8))], gated, call=with_kernels),
    },
    "e_checklist.ipynb": {
        "Hinge": Case([(X, t(0.1)), (X, t(-3, -1, 0, 0, 1, 2))]),
    },
    "f_implicit.ipynb": {
        "FixedPoint": SETTLES,
        "FixedPointAgain": SETTLES,
        "Argmin": Case(
            [
                (
                    penalised,
                    torch.zeros(2, dtype=torch.float64),
                    torch.tensor(0.3, dtype=torch.float64, requires_grad=True),
                    SQUARE,
                )
            ]
        ),
        "Solve": Case([(SQUARE, t(1, -2))]),
        "Tridiagonal": Case([(*BANDS[:3], normal(4))], solve_dense),
        "ConjugateGradients": Case(
            [(normal(4, 4), normal(4, seed=1))],
            lambda f, m, b: f(definite(m), b),
            call=lambda function: lambda m, b: function.apply(definite(m), b, 1e-12),
        ),
    },
    "g_across.ipynb": {
        "AllReduce": Case([(X,)], call=on_ranks(2)),
        "CopyTo": Case([(X,)], call=on_ranks(2, after="ReduceFrom")),
        "ReduceFrom": Case([(X,)], call=on_ranks(2, before="CopyTo")),
        "AllGather": Case([(X,)], call=on_ranks(2, after="ReduceScatter")),
        "ReduceScatter": Case([(X,)], call=on_ranks(2, before="AllGather")),
        "SplitLogSumExp": Case([(normal(2, 3),)], lambda f, x: f(x, 1), call=on_ranks(1)),
    },
    "h_engine.ipynb": {
        "Square": Case([(X, t(1, 0, -2, 0.5, 3, -1))], complex_result, call=of_complex),
        "Quartic": Case([(X,)], lambda f, x: f(x, 4)),
        "Watched": Case([(X,)]),
        "Head": Case([(X, 4), (X, 6)], lambda f, x, n: f(x, 0, 0, n)),
        "Phase": Case(
            [(X,)],
            lambda f, x: torch.view_as_real(f(1j * x)),
            call=lambda function: lambda x: torch.view_as_real(function.apply(x)),
        ),
    },
    "i_wild.ipynb": {
        "Ramp": Case([(WAVES,)]),
        "ByOutput": Case([(WAVES,)]),
    },
}
UNSHOWN = {"d_kernels.ipynb"}  # what it breaks is a source in C++
ELSEWHERE = {"TritonFlash"}  # test_kernels.py runs it, in a process of its own, where Triton is


def cases(wanted: Callable[[Case], Any] = bool) -> list[Any]:
    """One parameter for each row of the page that is run here and whose case is wanted."""
    places = [place for place in RIGHT if place.name not in ELSEWHERE]
    places = [place for place in places if wanted(CASES.get(place.notebook, {}).get(place.name, Case([])))]
    return [pytest.param(place, id=f"{place.notebook.partition('_')[0]}-{place.name}") for place in places]


def prepared(place: Place) -> tuple[type, Callable, Case]:
    """The class, how it is called, and with what."""
    function, case = notebooks()[place.notebook].classes[place], CASES[place.notebook][place.name]
    return function, case.call(function), case


def leaves(args: tuple) -> list[Tensor]:
    """The arguments that require a gradient."""
    return [a for a in args if isinstance(a, Tensor) and a.requires_grad]


def as_tuple(output: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """One output or several, as a tuple."""
    return output if isinstance(output, tuple) else (output,)


def upstream(outputs: tuple[Tensor, ...]) -> list[Tensor]:
    """An upstream gradient for each output, every element another number."""
    return [torch.linspace(-1, 2, o.numel(), dtype=o.dtype).reshape(o.shape) for o in outputs]


def vjp(outputs: tuple[Tensor, ...], inputs: list[Tensor], **how: bool) -> list[Tensor]:
    """The gradients of the inputs; zeros for one that takes no part."""
    found = grad(outputs, inputs, upstream(outputs), allow_unused=True, **how)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


# ------------------------------------------------------------------- the tests


WORDS = "zero", "exact", "not the derivative", "refused", "wrong"  # the last claims most


def order(f: Callable, args: tuple, limits: dict[str, float]) -> str:
    """The word for a Function's second order, as found by running it."""
    if not gradcheck(f, args, **QUIET, **limits):
        return "not the derivative"
    try:  # squared, so that the upstream gradient has a graph: else a refusal can go unheard
        sum(
            g.sum() for g in vjp(tuple(o.square() for o in as_tuple(f(*args))), leaves(args), create_graph=True)
        ).backward()
    except RuntimeError as error:
        assert "once_differentiable" in str(error)
        return "refused"
    if not gradgradcheck(f, args, **QUIET, **limits):
        return "wrong"
    first = [g for g in vjp(as_tuple(f(*args)), leaves(args), create_graph=True) if g.requires_grad]
    second = vjp(tuple(first), leaves(args)) if first else []
    return "exact" if any(g.abs().max() > 1e-12 for g in second) else "zero"


@pytest.mark.parametrize("place", cases())
def test_second_order_is_what_the_page_says(place: Place) -> None:
    _, f, case = prepared(place)
    found = max((order(f, args, case.limits) for args in case.args), key=WORDS.index)
    said = RIGHT[place]["Second order"].partition(",")[0]
    assert said == found
    assert (case.rule is not None) == (found == "not the derivative"), "an estimator needs a rule, and nothing else"


@pytest.mark.parametrize("place", cases(lambda case: case.rule))
def test_an_estimator_keeps_its_rule(place: Place) -> None:
    _, f, case = prepared(place)
    for args in case.args + case.edges:
        outputs = as_tuple(f(*args))
        with torch.no_grad():
            wanted = as_tuple(case.rule(*upstream(outputs), *args))
        torch.testing.assert_close(
            vjp(outputs, leaves(args)), [w.reshape(x.shape) for w, x in zip(wanted, leaves(args), strict=True)]
        )


def test_what_refuses_a_second_derivative_is_so_marked() -> None:
    marked = {
        p for n in notebooks().values() for p, node in n.functions.items() if "once_differentiable" in ast.unparse(node)
    }
    refused = {place for place, row in RIGHT.items() if row["Second order"] == "refused"}
    assert refused == {place for place in marked if place in RIGHT}


@dataclass(eq=False)
class Held:
    """A saved tensor; it is gone with the graph, such as one that a forward makes and drops."""

    tensor: Tensor


class Spy:
    """A Function in whose place it stands: it notes arguments, outputs, and what autograd keeps."""

    def __init__(self, function: type) -> None:
        """Stand in for ``function``."""
        self.function, self.backward, self.kept = function, function.backward, []

    def apply(self, *args: Any) -> Any:
        """Call the Function."""
        packed = []

        def pack(tensor: Tensor) -> Held:
            held = Held(tensor)
            packed.append(weakref.ref(held))
            return held

        with saved_tensors_hooks(pack, lambda held: held.tensor):
            self.args, self.outputs = args, self.function.apply(*args)
        self.kept = [held.tensor for each in packed if (held := each()) is not None]
        return self.outputs

    def names(self) -> dict[int, str]:
        """Whose memory each tensor is: an output's or an argument's."""
        own = "apply" in vars(self.function)
        parameters = inspect.signature(self.function.apply if own else self.function.forward)
        ctx = [None] if "ctx" in parameters.parameters else []  # the older form
        owners = {}
        for name, value in parameters.bind(*ctx, *self.args).arguments.items():
            owners |= {a.data_ptr(): name for a in as_tuple(value) if isinstance(a, Tensor)}
        return owners | {o.data_ptr(): "output" for o in as_tuple(self.outputs)}

    def saved(self) -> set[str]:
        """What is kept, in the page's words."""
        words = []
        for tensor in self.kept:
            special = {torch.bool: "mask", torch.int64: "indices"}.get(tensor.dtype)
            words.append(special or self.names().get(tensor.data_ptr(), "something else"))
        return {"outputs" if word == "output" and words.count(word) > 1 else word for word in words}


@pytest.mark.parametrize("place", cases())
def test_what_is_saved_is_what_the_page_says(place: Place) -> None:
    function, _, case = prepared(place)
    spy = Spy(function)
    case.call(spy)(*case.args[0])
    said = RIGHT[place]["Saves"]
    assert spy.saved() == (set() if said == "nothing" else set(said.replace("`", "").split(", ")))


@pytest.mark.parametrize("place", cases())
def test_torch_has_the_same(place: Place) -> None:
    _, f, case = prepared(place)
    said = RIGHT[place]["In torch"]
    if said == "none":
        assert not codes(said)
        return
    theirs = [attribute(name) for name in codes(said)]
    assert theirs
    for args in case.args + case.edges:
        ours, right = as_tuple(f(*args)), as_tuple(case.theirs(*theirs, *args))
        torch.testing.assert_close(ours, right, check_dtype=False)
        if not said.endswith(", value only"):
            torch.testing.assert_close(vjp(ours, leaves(args)), vjp(right, leaves(args)))
            continue
        try:
            assert any(
                not a.allclose(b) for a, b in zip(vjp(ours, leaves(args)), vjp(right, leaves(args)), strict=True)
            )
        except (RuntimeError, NotImplementedError) as error:
            assert re.search("does not require grad|not implemented|derivative", str(error))


# ------------------------------------------------------------------- wrong versions


def ruled(rule: str) -> Callable[[Any], Callable]:
    """RMSNorm of the page on transforms, under one of its wrong rules for vmap."""
    names = notebooks()["c_transforms.ipynb"].names
    return lambda _: names["with_rule"](names[rule])


VECTOR = [(normal(4), normal(4, seed=1))]
NORM = [(*VECTOR[0], 1e-6)]
ALONE: dict[str, Case] = {  # wrong versions that do not stand under a right one's name
    "DetachedExp": Case([(X,)]),
    "Guess": Case([(X,)]),
    "Decay": Case([(X,)]),
    "EarlySlope": Case([(t(-0.9, 0.1, 0.8), 3)]),
    "SavedP3": Case([(X,)]),
    "MSE": Case([(normal(3, 2), normal(3, 2, seed=1))]),
    "Checkpoint": Case([(X, torch.sin)]),
    "Bare": Case([(normal(5, 3), normal(3, 4))]),
    "Swapped": Case(VECTOR),
    "Stash": Case(NORM),
    "Sum": Case([(normal(2, 3, 3), normal(1, 1, 3))]),
    "The zero axis": Case(VECTOR, call=ruled("zero_axis")),
    "The axes it came with": Case(VECTOR, call=ruled("axes_it_came_with")),
    "No axis": Case(VECTOR, call=ruled("no_axis")),
    "One level": Case(VECTOR, call=ruled("one_level")),
    "Limit": Case([(X,), (X.detach().clamp(max=0.9).requires_grad_(),)]),
    "Round": Case([(X,)]),
    "Forgetful": Case(NORM),
}


def wrong_version(row: dict[str, str]) -> tuple[Callable, Case]:
    """How the wrong version of a row is called, and with what."""
    title = TITLE.match(row[WRONG])
    notebook = notebooks()[title[2] if title else links(row[WRONG])[0].notebook]
    if title and title[1] in notebook.wrong:
        of, function = notebook.wrong[title[1]]
        case = CASES[title[2]]["Tiles" if of == "FlashSkeleton" else of]
        assert row[WRONG].endswith(f", of `{of}`")
    elif title and title[1] in ALONE:
        function, case = object, ALONE[title[1]]
    else:
        function, case = notebook.classes[links(row[WRONG])[-1]], ALONE[links(row[WRONG])[-1].name]
    return case.call(function), case


def passes(check: Callable, f: Callable, case: Case) -> bool:
    """Say whether a check passes on all arguments of a case."""
    try:
        return all(check(f, args, **QUIET) for args in case.args)
    except RuntimeError:
        return False


@pytest.mark.parametrize("row", [pytest.param(row, id=row[WRONG].partition("]")[0]) for row in tables(page(), WRONG)])
def test_a_wrong_version_passes_what_the_page_says(row: dict[str, str]) -> None:
    f, case = wrong_version(row)
    words = {"passes": True, "fails": False, "first order only": False}
    assert words[row["`gradcheck`"]] == passes(gradcheck, f, case)
    assert words[row["`gradgradcheck`"]] == passes(gradgradcheck, f, case)


# ------------------------------------------------------------------- nothing is left out


def test_every_function_of_the_notebooks_is_on_the_page_and_no_other() -> None:
    functions = {place for notebook in notebooks().values() for place in notebook.functions}
    others = {place for row in tables(page(), OTHER) for place in links(row[OTHER])}
    named = links(page())
    assert len(named) == len(set(named)), "named twice"
    assert {str(place) for place in functions - set(named)} == set(), "not on the page"
    assert {str(place) for place in set(named) - functions - others} == set(), "no such Function in that section"
    assert {str(p) for p in others - set().union(*(n.places for n in notebooks().values()))} == set()
    assert not others & functions


def test_every_wrong_version_is_in_the_table_and_no_other() -> None:
    rows = [TITLE.match(row[WRONG]) for row in tables(page(), WRONG)]
    assert [(row[2], row[1]) for row in rows if row] == [
        (name, title) for name, notebook in notebooks().items() for title in notebook.titles if name not in UNSHOWN
    ]


def test_every_task_of_the_sets_is_named() -> None:
    for notebook in (path.name for path in sorted((ROOT / "solutions").iterdir()) if path.is_dir()):
        number, _, name = notebook.partition("_")
        tasks = importlib.import_module(f"graders.sets.{name}").TASKS
        names = ", ".join(f"`{task.name}`" for task in tasks)
        assert f"Exercises: [{names}](../exercises/{notebook}/{name}.ipynb)." in page(), f"chapter or appendix {number}"
