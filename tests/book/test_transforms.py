"""The page on transforms: its Functions and its audit on inputs that the page does not use, and what its tables say.

nbval compares the page's outputs. Here its Functions meet other sizes, dtypes and depths, its audit meets rules that it
must find wrong, and its prose is held to what its tables print. Each check is shown a page with a planted fault.
"""

import contextlib
import io
import re
from collections.abc import Callable
from typing import Any

import nbformat
import pytest
import torch
import torch.nn.functional as F
from nbformat import NotebookNode
from torch.autograd import gradcheck, gradgradcheck
from torch.func import hessian, jacrev, vmap

from tests.book.book_build import ROOT

PAGE = ROOT / "book/c_transforms.ipynb"
DEFINING = [  # the cells that define the Functions, the audit and the transforms
    *("imports", "rmsnorm", "parts", "proof", "older", "generated", "loop", "audit", "hand", "noting", "only-erf"),
    *("jvp", "transforms", "transforms-more", "transforms-list", "transforms-all", "forms"),
]

Names = dict[str, Any]
Edit = tuple[str, str, str]  # cell, old text, new text


def run(edit: Edit | None = None) -> Names:
    """The names that the page defines, one of its cells changed."""
    cells = nbformat.read(PAGE, as_version=4).cells
    code, names = {cell.id: cell.source for cell in cells if cell.cell_type == "code"}, {"__name__": "page"}
    if edit is not None:
        cell, old, new = edit
        assert code[cell].count(old) == 1, f"{cell}: {old!r}"
        code[cell] = code[cell].replace(old, new)
    for cell in DEFINING:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code[cell], cell, "exec"), names)
    return names


@pytest.fixture(scope="module")
def page() -> Names:
    """What the page defines."""
    return run()


def forms(names: Names) -> dict[str, Callable]:
    """The page's forms of RMS normalisation that have a vmap rule, as functions of x and w."""
    return {name: lambda x, w, f=names[name]: f.apply(x, w, 1e-5) for name in ("Generated", "ByHand", "Both", "Full")}


def right(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """RMS normalisation by torch."""
    return F.rms_norm(x, x.shape[-1:], None, 1e-5) * w


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Normal numbers, the same for a shape at each call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def wrong_values(names: Names) -> list[str]:
    """Dtypes and shapes at which a form is wrong, one sample or a batch."""
    found = []
    for dtype in (torch.float64, torch.float32):
        for shape in ((7,), (2, 3), (3, 1, 5), (0, 4)):
            x, w = normal(*shape, dtype=dtype), normal(shape[-1], dtype=dtype)
            batches = torch.stack([x, x.cos()]), torch.stack([w, w.sin()])
            for name, f in forms(names).items():
                for ours, torchs in ((f(x, w), right(x, w)), (vmap(f)(*batches), vmap(right)(*batches))):
                    if ours.dtype != dtype or ours.shape != torchs.shape or not torch.allclose(ours, torchs, atol=1e-6):
                        found.append(f"{name} {dtype} {shape}")
    return found


def wrong_depths(names: Names) -> list[str]:
    """The forms that are wrong under three vmaps, or in a batch of Hessians taken in reverse."""
    x, w = normal(2, 3, 4, 5), normal(5)
    deep = []
    for name, f in forms(names).items():
        if not torch.allclose(vmap(vmap(vmap(f)))(x, x), right(x, x)):
            deep.append(f"{name}, three vmaps")
        ours, torchs = (vmap(jacrev(jacrev(lambda x, g=g: g(x, w).sin().sum())))(x[0, 0]) for g in (f, right))
        if not torch.allclose(ours, torchs):
            deep.append(f"{name}, reverse over reverse")
    return deep


def wrong_forward(names: Names) -> list[str]:
    """The forms with a jvp that gradcheck, or a Hessian, finds wrong in forward mode."""
    leaves = normal(2, 3).requires_grad_(), normal(3).requires_grad_()
    found = []
    for name in ("Both", "Full"):
        f = forms(names)[name]
        modes = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
        if not gradcheck(f, leaves, raise_exception=False, **modes):
            found.append(f"{name}: gradcheck")
        if not gradgradcheck(f, leaves, raise_exception=False, check_fwd_over_rev=True):
            found.append(f"{name}: gradgradcheck")
        ours, torchs = (hessian(lambda w, g=g: g(leaves[0], w).sin().sum())(leaves[1].detach()) for g in (f, right))
        if not torch.allclose(ours, torchs):
            found.append(f"{name}: hessian")
    return found


def blind_audit(names: Names) -> list[str]:
    """What the page's audit overlooks: wrong shapes, wrong gradients, a rule wrong at one axis, one that raises."""
    audit, x = names["audit"], normal(3, 4)

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return 2 * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    def unbatched(info, in_dims, x):
        return Twice.apply(x), None

    def only_axis_zero(info, in_dims, x):
        return Twice.apply(x), 0

    def raising(info, in_dims, x):
        raise ValueError

    class Thrice(Twice):
        backward = staticmethod(lambda ctx, g: 3 * g)
        vmap = staticmethod(torch.autograd.Function.vmap)
        generate_vmap_rule = True

    found = []
    rules = {"unbatched": unbatched, "only_axis_zero": only_axis_zero, "raising": raising}
    for name, rule in rules.items():
        Twice.vmap = staticmethod(rule)
        if audit(Twice.apply, lambda x: 2 * x, x).get("right", 0) == 2:
            found.append(name)
    if audit(Thrice.apply, lambda x: 2 * x, x).get("right"):
        found.append("a wrong gradient")
    if audit(torch.sin, torch.sin, x) != {"right": 2}:
        found.append("torch's own is refused")
    return found


CHECKS = [wrong_values, wrong_depths, wrong_forward, blind_audit]
PLANTED: dict[Callable, Edit] = {
    wrong_values: ("hand", "x.movedim(x_dim, 0)", "x.movedim(x_dim, -1)"),
    wrong_depths: ("hand", "*[1] * ones, *w.shape[1:]", "*[1] * ones, -1"),
    wrong_forward: ("jvp", "return dw * u + ", "return "),
    blind_audit: ("audit", "same(y, z) and same(*first)", "same(y, z)"),
}


@pytest.mark.parametrize("check", CHECKS)
def test_the_page_is_right_where_it_does_not_look(check: Callable, page: Names) -> None:
    assert check(page) == []


@pytest.mark.parametrize("check", CHECKS)
def test_a_planted_fault_is_found(check: Callable) -> None:
    try:
        found = check(run(PLANTED[check]))
    except RuntimeError:  # a rule may raise where it is wrong
        found = ["raises"]
    assert found


# ---------------------------------------------------------------------------------------------- the page's tables


def printed(notebook: NotebookNode, cell_id: str) -> str:
    """What a cell printed."""
    return "".join(o.text for c in notebook.cells if c.id == cell_id for o in c.outputs)


def table_faults(notebook: NotebookNode) -> list[str]:
    """Where the table of transforms says something else than the text around it."""
    head, *rows = printed(notebook, "table-run").splitlines()
    forms, found = [head[i : i + 10].strip() for i in range(15, len(head), 10)], []
    for row in rows:
        name, words = row[:15].strip(), re.findall(r"right|WRONG|no setup|no rule|no jvp|\S+", row[15:])
        if len(words) != len(forms):
            found.append(f"{name}: {len(words)} words")
        elif set(words) - {"right", "WRONG", "no setup", "no rule", "no jvp"}:
            found.append(f"{name}: {words}")
        elif ("WRONG" in words) != (name == "fwd of fwd"):
            found.append(f"{name} is the one row that is WRONG")
        elif name not in ("backward", "backward twice") and words[0] != "no setup":
            found.append(f"{name}: the older form is refused")
    return found


def wrong_versions_faults(notebook: NotebookNode) -> list[str]:
    """How many wrong versions the text announces and shows, and those whose check is not named."""
    text = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    part = text.partition("## How it breaks")[2].partition("## Where it lives")[0]
    shown = re.findall(r"^\*\*(.+?)\.\*\*", part, re.MULTILINE)
    numbers = {"Four": 4, "Five": 5, "Six": 6, "Seven": 7, "Eight": 8}
    announced = numbers[re.search(r"(\w+) versions that look right", part)[1]]
    found = [] if announced == len(shown) >= 4 else [f"{announced} announced, {len(shown)} shown"]
    groups = re.split(r"\*Caught by\*", part)
    return found + [f"no check named after {group[-40:]!r}" for group in groups[-1:] if "**" in group.strip()]


def messages_not_raised(notebook: NotebookNode) -> list[str]:
    """The messages of the table at the top that no cell of the page prints."""
    text = next(c.source for c in notebook.cells if c.id == "raises")
    shown = "".join(o.text for c in notebook.cells if c.cell_type == "code" for o in c.outputs)
    column = re.findall(r"^\| (.+?) \| ", text.partition("|---|")[2], re.MULTILINE)
    messages = [m for cell in column for m in re.findall(r"`([^`]{12,})`", cell)]
    return [m for m in messages if m not in shown] or ([] if len(messages) >= 9 else ["none"])


def with_another_message(notebook: NotebookNode) -> None:
    cell = next(c for c in notebook.cells if c.id == "raises")
    cell.source = cell.source.replace("`does not have vmap support`", "`has no support for vmap`")


def needs_faults(notebook: NotebookNode) -> list[str]:
    """The transforms for which the line below that table asks for something else than the large table finds missing."""
    text = next(c.source for c in notebook.cells if c.id == "raises").rpartition("|\n\n")[2]
    names = {"grad": "grad", "rev": "jacrev", "vmap": "vmap", "jvp": "jvp", "fwd": "jacfwd", "fwd of rev": "hessian"}
    groups = {  # what a form lacks of setup_context, a rule, a jvp; and the words that ask for it
        "right": r"((?:`\w+`(?: and )?)+) need `setup_context` alone",
        "no rule": r"(`\w+`) a rule too",
        "no jvp": r"(`\w+`) a `jvp` too",
        "all": r"((?:`\w+`(?: and )?)+) all three",
    }
    said = {name: kind for kind, words in groups.items() for name in re.findall(r"`(\w+)`", re.search(words, text)[1])}
    found = {}
    for row in printed(notebook, "table-run").splitlines()[1:]:
        words = [row[i : i + 10].strip() for i in range(15, len(row), 10)]
        if name := names.get(row[:15].strip()):
            no_rule, generated = words[1:3]
            found[name] = "all" if (no_rule, generated) == ("no rule", "no jvp") else no_rule
    return sorted(name for name in {*said, *found} if said.get(name) != found.get(name))


def with_less_needed(notebook: NotebookNode) -> None:
    cell = next(c for c in notebook.cells if c.id == "raises")
    cell.source = cell.source.replace("`grad` and `jacrev` need", "`grad`, `jacrev` and `jacfwd` need")
    cell.source = cell.source.replace("`jacfwd` and `hessian` all three", "`hessian` all three")


def with_another_word(notebook: NotebookNode) -> None:
    cell = next(c for c in notebook.cells if c.id == "table-run")
    cell.outputs[0].text = cell.outputs[0].text.replace("WRONG", "right")


def without_a_version(notebook: NotebookNode) -> None:
    cell = next(c for c in notebook.cells if c.cell_type == "markdown" and "**One level.**" in c.source)
    cell.source = cell.source.replace("**One level.**", "One level.")


@pytest.mark.parametrize(
    ("check", "plant"),
    [
        (table_faults, with_another_word),
        (wrong_versions_faults, without_a_version),
        (messages_not_raised, with_another_message),
        (needs_faults, with_less_needed),
    ],
)
def test_the_text_says_what_the_tables_show(check: Callable, plant: Callable) -> None:
    notebook = nbformat.read(PAGE, as_version=4)
    assert check(notebook) == []
    plant(notebook)
    assert check(notebook)
