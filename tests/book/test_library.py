"""The page on operators: its operator on inputs that the page does not use, and what its tables promise.

nbval compares the page's outputs. Here the operator meets other sizes, dtypes and layouts, and the page's lists and
tables are held to what its cells print. Each check is shown a page with a fault planted into it.
"""

import contextlib
import importlib.util
import io
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from nbformat import NotebookNode
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck
from torch.testing._internal.optests.generate_tests import DEFAULT_TEST_UTILS

from tests.book.book_build import ROOT

PAGE = ROOT / "book/b_library.ipynb"
DEFINING = [  # the cells that define the operator and the Functions around it
    *("imports", "gtsv", "function", "function-proof", "same", "operator", "fake"),
    *("register-autograd", "vmap", "both-classes", "both-forward"),
]
EXPORTING = ["converts", "outcome", "tools", "made", "compile-function", "both-total", "export-run", "onnx-tools"]
ONNX = ("onnx-run", "onnx-named-run")  # what needs the cells above, and packages that the course does not install
COUNT = itertools.count()

Names = dict[str, Any]
Edit = tuple[str, str, str]  # cell, old text, new text


def sources() -> dict[str, str]:
    """The page's code cells by their ids."""
    return {cell.id: cell.source for cell in nbformat.read(PAGE, as_version=4).cells if cell.cell_type == "code"}


def run(edit: Edit | None = None, more: Sequence[str] = ()) -> Names:
    """The names that the page defines, one of its cells changed, under a namespace of operators of its own.

    What the last cell prints is under the name "printed".
    """
    code, names = sources(), {"__name__": "page"}
    if edit is not None:
        cell, old, new = edit
        assert code[cell].count(old) == 1, f"{cell}: {old!r}"
        code[cell] = code[cell].replace(old, new)
    space = f"page{next(COUNT)}"
    for cell in (*DEFINING, *more):
        text = re.sub(r"\bcourse(::|\.)", rf"{space}\1", code[cell])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(text, cell, "exec"), names)
    names["printed"] = printed.getvalue().replace(space, "course")
    names["tridiagonal"].register_vmap(names["chained"])
    return names


def example(n: int, m: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> list[torch.Tensor]:
    """Three diagonals, the main one large, and right sides."""
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(size, generator=generator, dtype=torch.float64) for size in ((n - 1,), (n,), (n - 1,), (n, m))]
    parts[1] = 4 + parts[1].abs()
    return [part.to(dtype) for part in parts]


def ways(names: Names) -> list[Callable]:
    """The forms in which the page wraps the routine."""
    return [names["tridiagonal"], *(names[name].apply for name in ("Tridiagonal", "Solve", "SolveForward"))]


def wrong_values(names: Names) -> list[str]:
    """Sizes, dtypes and layouts at which value or dtype are wrong."""
    found = []
    for (n, m), dtype in itertools.product(((2, 1), (3, 4), (17, 3), (6, 0)), (torch.float64, torch.float32)):
        inputs = example(n, m, dtype)
        right = names["dense"](*(t.double() for t in inputs)).to(dtype)
        spread = [t.repeat_interleave(2, 0)[::2] for t in inputs]  # the same numbers, with gaps
        for f, (layout, given) in itertools.product(ways(names), (("dense", inputs), ("gaps", spread))):
            try:
                torch.testing.assert_close(f(*given), right)
            except AssertionError as error:
                found.append(f"{n} x {m} {dtype} {layout}: {str(error).splitlines()[0]}")
    return found


def wrong_gradients(names: Names) -> list[str]:
    """The forms whose gradients are wrong, in reverse or, where there is a jvp, in forward mode."""
    leaves = [t.requires_grad_() for t in example(4, 3, seed=1)]
    quiet = {"raise_exception": False}
    found = [f"reverse {i}" for i, f in enumerate(ways(names)) if not gradcheck(f, leaves, **quiet)]
    found += [f"second {i}" for i, f in enumerate(ways(names)) if not gradgradcheck(f, leaves, **quiet)]
    if not gradcheck(names["SolveForward"].apply, leaves, check_forward_ad=True, **quiet):
        found.append("forward")
    return found


def wrong_registrations(names: Names) -> list[str]:
    """The tests of opcheck that fail on a right side in rows or in columns."""
    *diagonals, rhs = example(5, 3, seed=2)
    found = []
    for layout in (rhs, rhs.T.contiguous().T):
        inputs = [t.detach().clone().requires_grad_() for t in diagonals] + [layout.detach().requires_grad_()]
        results = opcheck(names["tridiagonal"], inputs, raise_exception=False)
        found += [test for test, result in results.items() if result != "SUCCESS"]
    return found


def wrong_batches(names: Names) -> list[tuple]:
    """The choices of batched axes at which the vmap rule is wrong: three samples, each axis, or none."""
    batches = [torch.stack(parts) for parts in zip(*(example(4, 2, seed=seed) for seed in range(3)), strict=True)]
    found = []
    for dims in itertools.product(*((None, *range(t.ndim)) for t in batches)):
        if all(dim is None for dim in dims):
            continue
        inputs = [t[0] if d is None else t.movedim(0, d) for t, d in zip(batches, dims, strict=True)]
        rows = [[t[0] if d is None else t[i] for t, d in zip(batches, dims, strict=True)] for i in range(3)]
        right = torch.stack([names["dense"](*row) for row in rows])
        for f in (names["tridiagonal"], names["Solve"].apply):
            ours = torch.vmap(f, dims)(*inputs)
            if ours.shape != right.shape or not torch.allclose(ours, right):
                found.append(dims)
    return found


CHECKS = [wrong_values, wrong_gradients, wrong_registrations, wrong_batches]
PLANTED: dict[Callable, Edit] = {
    wrong_values: ("function", ").to(rhs)", ")"),
    wrong_gradients: ("both-forward", "d = d_rhs - d_diag", "d = d_rhs + d_diag"),
    wrong_registrations: ("fake", "rhs.new_empty(rhs.shape)", "torch.empty_like(rhs)"),
    wrong_batches: ("vmap", "(0, 1)).flatten()", "(0, 1), value=1.0).flatten()"),
}


@pytest.fixture(scope="module")
def page() -> Names:
    """What the page defines."""
    return run()


@pytest.mark.parametrize("check", CHECKS)
def test_the_operator_is_right_where_the_page_does_not_look(check: Callable, page: Names) -> None:
    assert check(page) == []


@pytest.mark.parametrize("check", CHECKS)
def test_a_planted_fault_is_found(check: Callable) -> None:
    assert check(run(PLANTED[check]))


def test_a_singular_matrix_raises_in_every_form(page: Names) -> None:
    for f in ways(page):
        with pytest.raises(RuntimeError, match="A is singular"):
            f(torch.zeros(2), torch.zeros(3), torch.zeros(2), torch.ones(3, 1))


# ---------------------------------------------------------------------------------------------- the page's tables


def text_of(notebook: NotebookNode) -> str:
    """The page's Markdown."""
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def slug(heading: str) -> str:
    """The name that a heading has in a link."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def rows_without_a_run(notebook: NotebookNode) -> list[str]:
    """The rows of the decision table that link to no section of this page whose cells print something."""
    printing, place = set(), ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            headings = re.findall(r"^#{2,3} (.+)$", cell.source, re.MULTILINE)
            place = slug(headings[-1]) if headings else place
        elif cell.outputs:
            printing.add(place)
    table = text_of(notebook).partition("## Operator or Function?")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!you need|--)(.+) \|$", table, re.MULTILINE)
    return [row for row in rows if not printing & set(re.findall(r"\]\(#([^)]+)\)", row))] or ([] if rows else ["none"])


def opchecks_not_seen_to_fail(notebook: NotebookNode) -> set[str]:
    """The tests that opcheck has, those that the page lists, but for those that it does both: lists, and makes fail."""
    listed = set(re.findall(r"^- `(test_\w+)`", text_of(notebook), re.MULTILINE))
    printed = "".join(o.text for c in notebook.cells if c.id == "faults-run" for o in c.outputs)
    failing = set(re.findall(r"test_\w+", printed))
    return (listed | set(DEFAULT_TEST_UTILS)) - (listed & failing & set(DEFAULT_TEST_UTILS))


def faults_that_nothing_finds(notebook: NotebookNode) -> list[str]:
    """The planted faults of the page that its table lacks, or that pass everything there."""
    cells = {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}
    names = set(re.findall(r"\w+", "".join(cells["faults"].source.splitlines(keepends=True)[:-1])))
    names -= {"kernels", "fakes", "backwards"}
    table = "".join(o.text for o in cells["faults-run"].outputs)
    found = dict(re.findall(r"^  (\w+): (.+)$", table, re.MULTILINE))
    return sorted(name for name in names if found.get(name, "passes all") == "passes all")


def without_a_link(notebook: NotebookNode) -> None:
    cell = next(c for c in notebook.cells if c.cell_type == "markdown" and "## Operator or Function?" in c.source)
    cell.source = cell.source.replace("[`vmap`](#register_vmap)", "`vmap`")


def with_an_untested_test(notebook: NotebookNode) -> None:
    cell = next(c for c in notebook.cells if c.id == "faults-run")
    cell.outputs[0].text = cell.outputs[0].text.replace("test_schema", "gradcheck")


def with_a_harmless_fault(notebook: NotebookNode) -> None:
    cell = next(c for c in notebook.cells if c.id == "faults-run")
    cell.outputs[0].text = re.sub(r"single: .+", "single: passes all", cell.outputs[0].text)


@pytest.mark.parametrize(
    ("check", "plant"),
    [
        (rows_without_a_run, without_a_link),
        (opchecks_not_seen_to_fail, with_an_untested_test),
        (faults_that_nothing_finds, with_a_harmless_fault),
    ],
)
def test_the_page_keeps_what_its_tables_promise(check: Callable, plant: Callable) -> None:
    notebook = nbformat.read(PAGE, as_version=4)
    assert not check(notebook)
    plant(notebook)
    assert check(notebook)


# ------------------------------------------------------------------------------------------------ which way, and ONNX


def headings_that_print(page: Path) -> set[str]:
    """The sections of a page, each also under those of its subsections, whose cells print something or draw."""
    found, place, over = set(), "", ""
    for cell in nbformat.read(page, as_version=4).cells:
        if cell.cell_type == "markdown":
            for level, heading in re.findall(r"^(#{2,3}) (.+)$", cell.source, re.MULTILINE):
                place = slug(heading)
                over = place if level == "##" else over
        elif cell.outputs:
            found |= {place, over}
    return found


def ends_without_a_run(notebook: NotebookNode) -> list[str]:
    """The ends of the decision figure that the list below it lacks, or for which it names no section that prints."""
    cells = {cell.id: cell.source for cell in notebook.cells}
    drawn = re.findall(r'"(\d)  ([^",\\]+)', cells["which-way"])
    listed = dict(re.findall(r"^(\d)\. (.+)$", cells["ends"], re.MULTILINE))
    found = []
    for number, name in drawn:
        line = re.sub(r"\[([^]]+)\]\(glossary[^)]+\)", r"\1", listed.get(number, ""))
        if not line.startswith(f"**{name.strip()}**"):
            found.append(f"{number}: {line}")
        for file, place in re.findall(r"\]\(([\w.]*)#([^)]+)\)", line):
            if place not in headings_that_print(PAGE.with_name(file or PAGE.name)):
                found.append(f"{number}: {file}#{place}")
        if "](" not in line:
            found.append(f"{number}: no link")
    return found if len(drawn) == len(listed) == 7 else [*found, f"{len(drawn)} ends, {len(listed)} lines"]


def without_a_run(notebook: NotebookNode) -> None:
    cell = next(c for c in notebook.cells if c.id == "ends")
    cell.source = cell.source.replace("(03_ste.ipynb#hooks)", "(03_ste.ipynb#summary)")


def with_another_end(notebook: NotebookNode) -> None:
    cell = next(c for c in notebook.cells if c.id == "which-way")
    cell.source = cell.source.replace("2  A hook", "2  A mask")


@pytest.mark.parametrize("plant", [without_a_run, with_another_end])
def test_each_end_of_the_figure_has_a_run(plant: Callable) -> None:
    notebook = nbformat.read(PAGE, as_version=4)
    assert ends_without_a_run(notebook) == []
    plant(notebook)
    assert ends_without_a_run(notebook)


def printed(cell_id: str) -> str:
    """What a cell of the page has printed."""
    cells = nbformat.read(PAGE, as_version=4).cells
    return "".join(o.text for c in cells if c.id == cell_id for o in c.outputs)


@pytest.mark.parametrize("cell", ONNX)
def test_what_the_page_shows_of_onnx_comes_from_a_run(cell: str) -> None:
    assert "as torch True" in printed(cell), "run `make notebooks` with onnx and onnxscript installed"


@pytest.mark.parametrize("cell", ONNX)
def test_onnx_prints_what_the_page_shows(cell: str) -> None:
    """nbval cannot compare these cells, since most machines have no ONNX."""
    names = run(more=(*EXPORTING, *ONNX[: ONNX.index(cell) + 1]))
    if importlib.util.find_spec("onnxscript") is None:
        assert names["printed"] == f"{names['ABSENT']}\n"
        pytest.skip("no ONNX: pip install onnx==1.23.2 onnxscript==0.7.2")
    assert names["printed"] == printed(cell)
