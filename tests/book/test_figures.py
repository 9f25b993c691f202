"""The figures that the reader moves: what they say is what torch, or the chapter's own code, computes."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from io import StringIO
from itertools import accumulate, pairwise

import nbformat
import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from matplotlib.ft2font import FT2Font
from playwright.sync_api import Locator
from torch import Tensor
from torch.autograd import Function, gradcheck

from tests.book.book_build import ROOT, Build
from tests.book.page_checks import Watched
from tests.tools.chapters import in_notebook_alone
from tools.notebooks import figure_name

FIGURES = {
    "bump": "book/intro",
    "tape": "book/01_relu",
    "read-matrix": "book/02_sigmoid",
    "fd-step": "book/02_sigmoid",
    "two-roads": "book/03_ste",
    "cut-path": "book/04_legendre",
    "sine-fit": "book/04_legendre",
    "tug": "book/05_clipped_relu",
    "clip-value": "book/05_clipped_relu",
    "broadcast-shapes": "book/06_linear",
    "float-window": "book/07_logsumexp",
    "streaming-lse": "book/07_logsumexp",
    "wave-bits": "book/08_qat",
    "quantiser-bits": "book/08_qat",
    "alive-when": "book/09_checkpointing",
    "attention-tiles": "book/10_flash_attention",
}
NOTHING = -math.inf


def moved(visit: Callable[..., Watched], name: str, look: str = "light-wide") -> Locator:
    """The figure ``name``, which must be drawn on its chapter's page."""
    figure = visit(FIGURES[name], look).page.locator(f'figure[data-figure="{name}"].ready')
    assert figure.count() == 1
    return figure


def table(visit: Callable[..., Watched], name: str) -> Locator:
    """What stands in the place of the figure ``name`` where no script runs."""
    return visit(FIGURES[name], scripts=False).page.locator(f'figure[data-figure="{name}"] table')


def said(figure: Locator) -> list[str]:
    """The lines that a figure prints."""
    return figure.locator("output > span").all_inner_texts()


def corners(line: Locator) -> list[tuple[float, ...]]:
    """The points of a drawn line, in pixels."""
    return [tuple(map(float, pair.split(","))) for pair in line.get_attribute("points").split()]


@cache
def chapter(stem: str, *cells: str) -> dict[str, object]:
    """The names that these cells of a chapter define."""
    notebook = nbformat.read(ROOT / f"book/{stem}.ipynb", 4)
    names: dict[str, object] = {"torch": torch, "Function": Function}
    for cell in notebook.cells:
        if cell.id in cells:
            exec(cell.source, names)
    return names


# ------------------------------------------------------------------- all figures


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "bump"])  # which has a picture
def test_a_table_wider_than_a_small_telephone_scrolls_in_its_own_box(visit: Callable[..., Watched], name: str) -> None:
    own = table(visit, name)
    own.page.set_viewport_size({"width": 320, "height": 700})
    assert own.count() > 0
    for box in (each.bounding_box() for each in own.all()):
        assert box is not None and box["x"] + box["width"] <= 320


def test_chapters_hold_the_figures_that_they_promise(book: Build) -> None:
    """A figure's place is raw HTML in a markdown cell; it must come through the build, and be tested here."""
    written = {}
    for path in (*(ROOT / "book").glob("*.ipynb"), *(ROOT / "book").glob("*.md")):
        for name in re.findall(r'data-figure=\\?"([\w-]+)', path.read_text(encoding="utf-8")):
            written[name] = f"book/{path.stem}"
    assert written == FIGURES
    for name, page in FIGURES.items():
        assert (book.html / f"{page}.html").read_text(encoding="utf-8").count(f'data-figure="{name}"') == 1


NOTEBOOKS = sorted(path.stem for path in (ROOT / "book").glob("*.ipynb"))


def picture_faults(notebook: nbformat.NotebookNode, html: BeautifulSoup) -> Iterator[str]:
    """Pictures of a notebook that its page lacks, or has where a figure says the same by moving."""
    shown = [image.get("alt", "") for image in html.select(".cell_output img")]
    for cell in notebook.cells:
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt")
        if alt is not None and (alt in shown) == in_notebook_alone(cell):
            yield f"{cell.id} is {'on' if alt in shown else 'not on'} the page"


@pytest.mark.parametrize("stem", NOTEBOOKS)
def test_figures_are_numbered_in_order(stem: str, book: Build) -> None:
    html = BeautifulSoup((book.html / f"book/{stem}.html").read_text(encoding="utf-8"), "html.parser")
    figures = html.select("figure.interactive, .cell[class*='tag_figure:']")
    place = stem.split("_")[0].lstrip("0")
    numbers = [[each.get_text() for each in figure.select(".figure-number")] for figure in figures]
    assert numbers == [[f"Figure {place}.{count}"] for count in range(1, len(figures) + 1)]
    captions = [each.get_text() for each in html.select(".figure-caption")]
    drawn = [cell for cell in nbformat.read(ROOT / f"book/{stem}.ipynb", 4).cells if figure_name(cell)]
    assert [caption.partition(" ")[2].partition(" ")[2] for caption in captions] == [
        cell.metadata.finding for cell in drawn if not in_notebook_alone(cell)
    ]


@pytest.mark.parametrize("stem", NOTEBOOKS)
def test_a_picture_is_on_the_page_or_a_figure_moves_in_its_place(stem: str, book: Build) -> None:
    html = BeautifulSoup((book.html / f"book/{stem}.html").read_text(encoding="utf-8"), "html.parser")
    assert list(picture_faults(nbformat.read(ROOT / f"book/{stem}.ipynb", 4), html)) == []


def test_a_picture_in_the_wrong_place_is_named() -> None:
    notebook = nbformat.read(ROOT / "book/01_relu.ipynb", 4)
    drum, tape = (next(c for c in notebook.cells if c.id == name) for name in ("drum-figure", "tape-picture"))
    notebook.cells = [drum, tape]
    page = '<div class="cell_output"><img alt="{}"></div>'
    assert (
        list(picture_faults(notebook, BeautifulSoup(page.format(drum.metadata.mystnb.image.alt), "html.parser"))) == []
    )
    turned = BeautifulSoup(page.format(tape.metadata.mystnb.image.alt), "html.parser")
    assert list(picture_faults(notebook, turned)) == ["drum-figure is not on the page", "tape-picture is on the page"]


@cache
def drawn(stem: str, name: str) -> str:
    """The picture of a figure cell, as SVG."""
    notebook = nbformat.read(ROOT / f"book/{stem}.ipynb", 4)
    (cell,) = (cell for cell in notebook.cells if cell.cell_type == "code" and figure_name(cell) == name)
    (picture,) = (output.data["image/svg+xml"] for output in cell.outputs if "image/svg+xml" in output.get("data", {}))
    return picture


def written(stem: str, name: str) -> list[str]:
    """The words in it, line by line: matplotlib draws them as outlines, and puts each line into a comment."""
    return re.findall("<!-- (.*?) -->", drawn(stem, name))


def pictures() -> list[str]:
    """All pictures that the notebooks store, as SVG."""
    outputs = (
        output.get("data", {})
        for path in sorted((ROOT / "book").glob("*.ipynb"))
        for cell in nbformat.read(path, 4).cells
        for output in cell.get("outputs", [])
    )
    return [data["image/svg+xml"] for data in outputs if "image/svg+xml" in data]


def lent(picture: str, own: FT2Font, other: FT2Font) -> set[str]:
    """The characters that a picture draws in matplotlib's face, though the course's own has them."""
    glyphs = {other.get_char_index(code): chr(code) for code in own.get_charmap()}
    used = {int(glyph, 16) for glyph in re.findall(r'id="DejaVuSans-(?:\w+-)?([0-9a-f]+)"', picture)}
    return {glyphs[glyph] for glyph in used & set(glyphs) - {0}}


def test_pictures_that_do_not_move_have_the_text_s_face() -> None:
    folder = ROOT / "book/_static/text"
    own = {style: FT2Font(folder / f"{style.lower()}.ttf") for style in ("Regular", "Bold")}
    for style, face in own.items():
        assert (face.family_name, face.style_name) == ("Course Text", style)
    other = FT2Font(findfont("DejaVu Sans"))
    assert len(pictures()) > 25
    for picture in pictures():
        assert 'id="CourseText-' in picture and lent(picture, own["Regular"], other) == set()
    elsewhere, written = Figure(figsize=(1, 1)), StringIO()
    elsewhere.text(0, 0, "aβ", fontfamily="DejaVu Sans")  # the face has no β
    elsewhere.savefig(written, format="svg")
    assert lent(written.getvalue(), own["Regular"], other) == {"a"}


def test_curves_are_named_where_they_are() -> None:
    legends = ['id="legend_' in picture for picture in pictures()]
    assert sum(legends) == 1 and 'id="legend_' in drawn("04_legendre", "legendre_fit"), "five curves cross too often"


SETTINGS = """figure => {
    const inputs = [...figure.querySelectorAll(".controls :is(input, select)")];
    const places = inputs.map((input) => {
        if (input.type === "checkbox") return [false, true];
        if (input.tagName === "SELECT") return [...input.options].map((option) => option.value);
        const [from, to, step] = [input.min, input.max, input.step].map(Number);
        const stride = Math.max(1, Math.floor((to - from) / step / 40)) * step;
        return Array.from({ length: Math.floor((to - from) / stride) + 1 }, (_, i) => from + i * stride);
    });
    const found = new Map();
    const visit = (n, setting) => {
        if (n === inputs.length) {
            const height = Math.round(figure.getBoundingClientRect().height);
            if (!found.has(height)) found.set(height, setting.join(", "));
            return;
        }
        for (const place of places[n]) {
            if (inputs[n].type === "checkbox") inputs[n].checked = place; else inputs[n].value = place;
            inputs[n].dispatchEvent(new Event("input", { bubbles: true }));
            visit(n + 1, [...setting, place]);
        }
    };
    visit(0, []);
    return Object.fromEntries(found);
}"""


@pytest.mark.parametrize("look", ["light-wide", "light-narrow"])
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_keeps_its_height(name: str, look: str, visit: Callable[..., Watched]) -> None:
    """What stands below a figure does not jump, wherever its controls are moved."""
    heights = moved(visit, name, look).evaluate(SETTINGS)
    assert len(heights) == 1, f"height in pixels, and a setting that has it: {heights}"


def test_each_figure_says_how_many_lines_its_text_has() -> None:
    """At both widths; without a number there is no room for the longest, and no browser says so."""
    style = (ROOT / "book/_static/custom.css").read_text(encoding="utf-8")
    rules = re.findall(r"^( *)figure(?::is\()?(.*?)\)? \{ --lines: \d+; \}", style, re.MULTILINE)
    wide, narrow = (
        {
            name
            for indent, names in rules
            if bool(indent) == inside
            for name in re.findall(r'data-figure="([^"]+)"', names)
        }
        for inside in (False, True)
    )
    assert wide == narrow == {*FIGURES}


# ------------------------------------------------------------------- bump: a factor forgotten, on the first page


@cache
def first_page_code() -> dict[str, object]:
    """The names that the first page's own code leaves."""
    names: dict[str, object] = {}
    for code in re.findall(r"^```python\n(.*?)^```", (ROOT / "book/intro.md").read_text(encoding="utf-8"), re.M | re.S):
        exec(code, names)
    return names


def test_bump_says_what_the_page_s_own_code_computes(visit: Callable[..., Watched]) -> None:
    names = first_page_code()
    bump, x = names["Bump"].apply, torch.tensor([-0.8, 0.5], dtype=torch.float64, requires_grad=True)
    figure = moved(visit, "bump")
    for forgotten in (True, False):
        figure.locator("input").set_checked(forgotten)
        f = bump if forgotten else (lambda t: torch.exp(-t * t))
        (mine,) = torch.autograd.grad(f(x).sum(), x)
        (right,) = torch.autograd.grad(torch.exp(-x * x).sum(), x)
        losses = names["by_hand" if forgotten else "by_autograd"]
        _, training, check = said(figure)
        shown = [list(map(float, found.replace("−", "-").split(", "))) for found in re.findall(r"\[(.+?)\]", check)]
        assert shown == [pytest.approx(mine.tolist(), abs=6e-5), pytest.approx(right.tolist(), abs=6e-5)]
        assert ("gradcheck: fails" in check) is forgotten is not gradcheck(f, x, raise_exception=False)
        first, last = map(float, re.search(r"loss (\S+) → (\S+)", training).groups())
        assert first == pytest.approx(losses[0], abs=6e-4) and last == pytest.approx(losses[-1], rel=0.02, abs=6e-4)
        points = corners(figure.locator("svg").first.locator("polyline:not(.law)"))
        assert len(points) == 51
        heights = [math.log10(loss) for loss in losses[::20]]
        scale = (points[-1][1] - points[0][1]) / (heights[-1] - heights[0])
        for (_, y), height in zip(points, heights, strict=True):
            assert y == pytest.approx(points[0][1] + scale * (height - heights[0]), abs=2)


def test_bump_draws_a_wrong_slope_that_leaves_the_measured_points(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "bump")
    line, points = figure.locator("svg").nth(1).locator("polyline"), figure.locator("svg").nth(1).locator("circle")
    measured = [(float(dot.get_attribute("cx")), float(dot.get_attribute("cy"))) for dot in points.all()]

    def farthest() -> float:
        drawn = corners(line)
        return max(min(math.dist(dot, corner) for corner in drawn) for dot in measured)

    wrong = farthest()
    figure.locator("input").press("Space")
    assert farthest() < 4 < 20 < wrong


def test_a_figure_plays_once_when_it_is_seen_and_an_input_ends_it(book: Build, chromium) -> None:
    """It begins at its start and comes to where it rests; at a press of a key it stays where it is."""
    address = (book.html / "book/01_relu.html").as_uri()
    for stopped in (False, True):
        page = chromium.new_page(viewport={"width": 1280, "height": 800})
        page.goto(address)
        slider = page.locator('figure[data-figure="tape"].ready input')
        assert slider.input_value() == "7"  # not yet seen
        slider.scroll_into_view_if_needed()
        page.wait_for_function("document.querySelector('figure[data-figure=tape] input').value === '1'")
        if stopped:
            slider.press("Home")
            page.wait_for_timeout(1000)
            assert slider.input_value() == "0"
        else:
            page.wait_for_function("document.querySelector('figure[data-figure=tape] input').value === '7'")
        page.close()


def test_bump_shows_its_picture_without_a_script(visit: Callable[..., Watched]) -> None:
    figure = visit("book/intro", scripts=False).page.locator('figure[data-figure="bump"]')
    assert "0.646 to 0.178" in figure.locator("img").get_attribute("alt")
    assert figure.locator("figcaption").is_visible()


# ------------------------------------------------------------------- tape: what is kept, and what comes back


class Taped(Function):
    """ReLU that keeps x in one of two ways, and may return None."""

    @staticmethod
    def forward(x: Tensor, how: str) -> Tensor:
        return x.clamp(min=0)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.x, ctx.how = inputs
        ctx.save_for_backward(ctx.x)

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple:
        if ctx.how == "none":
            return None, None
        (x,) = (ctx.x,) if ctx.how == "ctx" else ctx.saved_tensors
        return torch.where(x > 0, g, 0), None


@pytest.mark.parametrize(
    ("fault", "how", "changed"),
    [
        ("nothing", "saved", False),
        ("u is changed in place", "saved", True),
        ("u is changed, and was kept on ctx", "ctx", True),
        ("ReLU returns None", "none", False),
    ],
)
def test_tape_ends_as_torch_does(fault: str, how: str, changed: bool, visit: Callable[..., Watched]) -> None:
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    u = 3 * x
    y = Taped.apply(u, how)
    loss = 10 * y[0] + y[1]
    if changed:
        u.neg_()
    try:
        loss.backward()
        ends = "None" if x.grad is None else f"({', '.join(f'{g:g}' for g in x.grad.tolist())})"
    except RuntimeError as error:
        assert "is at version 1; expected version 0" in str(error)
        ends = "error"
    figure = moved(visit, "tape")
    figure.locator("select").select_option(fault)
    heard = {"error": "an error, which you hear, no x.grad"}.get(ends, f"x.grad {ends}")
    assert said(figure)[-1].endswith(heard)
    assert ("wrong" in said(figure)[-1]) == (ends not in ("error", "(0, 3)"))
    assert (figure.locator("rect.wrong").count() > 0) == (ends != "(0, 3)")


def test_tape_says_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "tape")
    rows = [row.inner_text() for row in table(visit, "tape").locator("tbody tr").all()]
    assert len(rows) == 7
    for step, row in enumerate(rows, 1):
        figure.locator("input").fill(str(step))
        pairs = re.findall(r"\([−\d, ]+\)", " ".join(said(figure)[0].split()))
        assert all(pair.replace(" ", "") in row.replace("\n", "").replace(" ", "") for pair in pairs), (step, row)


def test_tape_s_picture_says_what_torch_and_the_figure_say(visit: Callable[..., Watched]) -> None:
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    u = 3 * x
    y = torch.relu(u)
    loss = 10 * y[0] + y[1]
    tensors = (x, u, y, loss, *torch.autograd.grad(loss, (x, u, y, loss)))
    pairs = [", ".join(f"{number:g}" for number in t.flatten().tolist()).replace("-", "−") for t in tensors]
    words = written("01_relu", "tape")
    names = ("x = ({})", "u = ({})", "y = ({})", "L = {}", "x.grad = ({})", "to u: ({})", "to y: ({})", "{}")
    assert [name.format(pair) for name, pair in zip(names, pairs, strict=True) if name.format(pair) not in words] == []
    kept = "u, version 0"
    assert kept in words and ("after u.neg_():", "version 1, an error") in pairwise(words)  # as in the test above
    figure = moved(visit, "tape")
    told = [text.replace("\u2212", "−") for text in figure.locator("svg text").all_text_contents()]
    numbers_told = sorted(text for text in told if re.fullmatch(r"\([−\d, ]+\)|\d+|\d+, \d+", text))
    assert numbers_told == sorted([*(f"({p})" if "," in p else p for p in pairs), "3", "10, 1"]) and kept in told


# ------------------------------------------------------------------- read-matrix: the pattern that a fault leaves

FAULTS = [
    "right",
    "summed over everything",
    "summed from the wrong end",
    "a factor forgotten",
    "one branch wrong",
    "detached",
]
MYSTERIES = {  # the inputs, and the fault
    "mystery 1": ((2, -1, 1, -3), "summed from the wrong end"),
    "mystery 2": ((-2, 1, 3, -1), "one branch wrong"),
    "mystery 3": ((1, 3, -2, -1), "right"),
    "mystery 4": ((-1, 2, -3, 1), "a factor forgotten"),
    "mystery 5": ((3, -2, -1, 2), "detached"),
    "mystery 6": ((-3, -1, 2, 1), "summed over everything"),
}


class RunningSum(Function):
    """Twice the running sum of t * t where t > 0, else of t, with a fault in its backward."""

    @staticmethod
    def forward(x: Tensor, fault: str) -> Tensor:
        return 2 * torch.where(x > 0, x * x, x).cumsum(0)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        x, ctx.fault = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple:
        (x,) = ctx.saved_tensors
        slope = 2 * x if ctx.fault == "one branch wrong" else torch.where(x > 0, 2 * x, 1)
        if ctx.fault == "summed over everything":
            sent = g.sum()
        elif ctx.fault == "summed from the wrong end":
            sent = g.cumsum(0)
        else:
            sent = g.flip(0).cumsum(0).flip(0)
        factor = {"a factor forgotten": 1, "detached": 0}.get(ctx.fault, 2)
        return factor * slope * sent, None


def both_jacobians(inputs: tuple[float, ...], fault: str) -> tuple[Tensor, Tensor, bool]:
    """The analytical and the numerical Jacobian, a row for each input, and what gradcheck says."""
    x = torch.tensor(inputs, dtype=torch.float64, requires_grad=True)
    names = chapter("02_sigmoid", "jacobian-by-hand")

    def f(t: Tensor) -> Tensor:
        return RunningSum.apply(t, fault)

    analytical = torch.autograd.functional.jacobian(f, x).T
    numerical = names["numerical_jacobian"](f, x.detach()).T
    return analytical, numerical, gradcheck(f, x, raise_exception=False)


def numbers(text: str) -> list[float]:
    """The numbers in a text, with a true minus sign."""
    return [float(found.replace("−", "-")) for found in re.findall(r"[−\d.]+", text)]


@pytest.mark.parametrize("look", ["light-wide", "light-narrow"])
@pytest.mark.parametrize("shown", [*FAULTS, *MYSTERIES])
def test_read_matrix_says_what_torch_computes(shown: str, look: str, visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "read-matrix", look)
    select, answer = figure.locator("select").all()
    select.select_option(shown)
    inputs, fault = MYSTERIES.get(shown, ((1, -1, 2, -2), shown))
    analytical, numerical, passes = both_jacobians(inputs, fault)
    wanted = torch.stack([analytical, numerical, analytical - numerical])
    drawn = [numbers(text)[0] for text in figure.locator("svg text.number").all_text_contents()]
    torch.testing.assert_close(torch.tensor(drawn).double().reshape(3, 4, 4), wanted, atol=1e-6, rtol=0)
    labels = " ".join(figure.locator("svg text.small").all_text_contents())
    assert [float(x.replace("−", "-")) for x in re.findall(r"= (−?\d)", labels)] == list(inputs)
    off = int((wanted[2].abs() > 1e-6).sum())
    assert said(figure)[-1] == f"gradcheck {'passes' if passes else 'fails'}: {off} of 16 entries differ"
    assert passes == (fault == "right") == (off == 0)
    assert figure.locator("rect.cell.apart").count() == off
    assert answer.is_disabled() == (shown in FAULTS)


def test_read_matrix_asks_which_fault_it_is(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "read-matrix")
    select, answer = figure.locator("select").all()
    assert answer.locator("option").all_inner_texts() == ["choose", *FAULTS]
    for mystery, (_, fault) in MYSTERIES.items():
        select.select_option(mystery)
        assert answer.input_value() == "choose" and not any(fault in line for line in said(figure))
        for guess in FAULTS:
            answer.select_option(guess)
            assert said(figure)[0].startswith("Right." if guess == fault else f'Not so. If it were "{guess}"')


def test_read_matrix_says_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    rows = table(visit, "read-matrix").locator("tbody tr").all()
    assert [row.locator("th").inner_text() for row in rows] == FAULTS
    for fault, row in zip(FAULTS, rows, strict=True):
        analytical, _, _ = both_jacobians((1, -1, 2, -2), fault)
        assert numbers(row.locator("td").first.inner_text()) == analytical.flatten().tolist()


def test_read_matrix_s_picture_says_what_torch_computes() -> None:
    words = written("02_sigmoid", "fault_patterns")
    cells = [numbers(word)[0] for word in words if re.fullmatch(r"−?[\d.]+", word)]
    titles = re.findall(rf"(?:{'|'.join(FAULTS)}) \d+ of 16 differ", " ".join(words))
    analytical, off = [], []
    for fault in FAULTS:
        found, numerical, _ = both_jacobians((1, -1, 2, -2), fault)
        analytical.append(found)
        off.append(int(((found - numerical).abs() > 1e-6).sum()))
    torch.testing.assert_close(torch.tensor(cells).double().reshape(6, 4, 4), torch.stack(analytical), rtol=0, atol=0)
    assert titles == [f"{fault} {count} of 16 differ" for fault, count in zip(FAULTS, off, strict=True)]
    assert drawn("02_sigmoid", "fault_patterns").count("fill: #c8503f") == sum(off)


# ------------------------------------------------------------------- fd-step: the step of a finite difference


def central_difference(x: float, h: float, dtype: type[np.floating]) -> tuple[float, float]:
    """The central difference of arctan with every step rounded to ``dtype``, and what rounding may do to it."""

    def arctan(t: np.floating) -> np.floating:
        return dtype(math.atan(float(t)))

    quotient = (arctan(dtype(x) + dtype(h)) - arctan(dtype(x) - dtype(h))) / (dtype(2) * dtype(h))
    ulp = float(np.spacing(dtype(math.atan(x))))  # the browser's arctan may differ from Python's in its last digit
    return float(quotient), 2 * ulp / h


@pytest.mark.parametrize("x", ["0.5", "2"])
def test_fd_step_says_what_python_computes(x: str, visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "fd-step")
    figure.locator("select").select_option(x)
    figure.locator("input[type=checkbox]").check()
    slope = 1 / (1 + float(x) ** 2)
    third = (6 * float(x) ** 2 - 2) / (1 + float(x) ** 2) ** 3
    for exponent in (-1, -2.3, -4, -5, -6, -7.7, -9, -12, -14):
        figure.locator("input[type=range]").evaluate(
            "(node, value) => { node.value = value; node.dispatchEvent(new Event('input', {bubbles: true})); }",
            exponent,
        )
        step, *lines = said(figure)
        h = float(f"{10**exponent:.1e}")
        assert step == f"h = {h:.1e}, f′(x) = {slope:g}".replace("e-0", "e-")
        for line, (name, dtype) in zip(lines, {"float64": np.float64, "float32": np.float32}.items(), strict=True):
            shown = re.fullmatch(rf"{name}: quotient (\S+), error (\S+), (mostly|all) (truncation|rounding).*", line)
            assert shown, line
            expected, noise = central_difference(float(x), h, dtype)
            assert float(shown[1]) == pytest.approx(expected, abs=noise + 1e-12), (line, expected)
            assert float(shown[2]) == pytest.approx(abs(expected - slope), rel=0.06, abs=noise), (line, expected)
            cut = third * h**2 / 6
            rest = abs(expected - slope - cut)
            if abs(abs(cut) - rest) > noise:  # the browser's arctan may tip the scales
                assert shown[4] == ("truncation" if abs(cut) > rest else "rounding"), line


def test_fd_step_draws_a_line_for_each_dtype_and_marks_the_step(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "fd-step")
    curves, marks = figure.locator("polyline:not(.law)"), figure.locator("circle")
    assert (curves.count(), marks.count()) == (1, 1)
    before = float(marks.get_attribute("cx"))
    figure.locator("input[type=range]").press("ArrowLeft")
    assert float(marks.get_attribute("cx")) < before
    figure.locator("input[type=checkbox]").press("Space")
    assert (curves.count(), marks.count()) == (2, 2)
    for curve in curves.all():
        points = corners(curve)
        assert len(points) == 131
        lowest = max(points, key=lambda point: point[1])
        assert points[0][0] < lowest[0] < points[-1][0]  # both ends are worse than the middle
        assert min(points[0][1], points[-1][1]) < lowest[1] - 50


def test_fd_step_says_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    rows = table(visit, "fd-step").locator("tbody tr").all()
    assert len(rows) >= 5
    for row in rows:
        h, *cells = row.locator("th, td").all_inner_texts()
        for cell, dtype in zip(cells, (np.float64, np.float32), strict=True):
            expected, noise = central_difference(0.5, float(h), dtype)
            error, why = cell.split()
            assert float(error) == pytest.approx(abs(expected - 0.8), rel=0.06, abs=noise), (h, cell)
            cut = -0.256 * float(h) ** 2 / 6  # the third derivative is -0.256
            assert why == ("truncation" if abs(cut) > abs(expected - 0.8 - cut) else "rounding"), (h, cell)


# ------------------------------------------------------------------- cut-path: a slope that was computed early

LOSSES = {"y²": torch.square, "y": lambda y: y}
KEEPS = {"x": "Chebyshev", "the slope, computed early": "EarlySlope"}


def two_backwards(keeps: str, loss: str) -> tuple[float, float, float]:
    """b, the second derivative that the chapter's own Function gives, and the true one, of the loss of T_3 at 1."""
    op = chapter("04_legendre", "early-slope", "chebyshev")[KEEPS[keeps]].apply
    # The slope of EarlySlope is 0/0 at 1 itself; beside it, it's right to six digits.
    at = torch.tensor(1.0 if keeps == "x" else 1 - 1e-9, dtype=torch.float64, requires_grad=True)
    (b,) = torch.autograd.grad(LOSSES[loss](op(at, 3)), at, create_graph=True)
    polynomial = LOSSES[loss](4 * at**3 - 3 * at)
    (first,) = torch.autograd.grad(polynomial, at, create_graph=True)
    (true,) = torch.autograd.grad(first, at)
    second = torch.autograd.functional.hessian(lambda x: LOSSES[loss](op(x, 3)), at.detach())
    return b.item(), second.item(), true.item()


@pytest.mark.parametrize("look", ["light-wide", "light-narrow"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("keeps", KEEPS)
def test_cut_path_ends_as_the_chapter_s_functions_do(keeps: str, loss: str, look: str, visit) -> None:
    b, second, true = two_backwards(keeps, loss)
    figure = moved(visit, "cut-path", look)
    figure.locator("select").nth(0).select_option(keeps)
    figure.locator("select").nth(1).select_option(loss)
    figure.locator("input").fill("2")
    assert int(re.search(r"b = .* = (\d+)\.", said(figure)[0])[1]) == pytest.approx(b, rel=1e-6)
    figure.locator("input").fill("4")
    told = " ".join(said(figure)[1].split())
    assert int(re.match(r"Second derivative: (\d+),", told)[1]) == pytest.approx(second, rel=1e-6)
    right = second == pytest.approx(true, rel=1e-6)
    assert right == (keeps == "x") == told.endswith("right")
    assert right or int(re.search(r"True: (\d+)$", told)[1]) == pytest.approx(true, rel=1e-6)
    assert (figure.locator("path.cut").count() > 0) == (not right)


def test_cut_path_adds_what_comes_by_each_path(visit: Callable[..., Watched]) -> None:
    """The two gradients that are drawn beside x are the whole, together."""
    figure = moved(visit, "cut-path")
    figure.locator("select").nth(0).select_option("x")
    pills = [text for text in texts(figure, "score") if text.isdecimal()]
    assert {"162", "48", "9", "2", "18", "1"} <= set(pills)
    assert two_backwards("x", "y²")[1] == 162 + 48
    figure.locator("select").nth(0).select_option("the slope, computed early")
    assert "48" not in texts(figure, "score") and "–" in texts(figure, "score")


def test_cut_path_says_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    rows = [row.inner_text().split("\t") for row in table(visit, "cut-path").locator("tbody tr").all()]
    for column, keeps in enumerate(KEEPS, 1):
        b, second, _ = two_backwards(keeps, "y²")
        ends = [float(row[column].split("= ")[-1]) for row in (rows[1], rows[4], rows[5])]
        assert ends == pytest.approx([b, second, two_backwards(keeps, "y")[1]], rel=1e-6)


# ------------------------------------------------------------------- sine-fit: the fit as it forms


@cache
def fitted() -> dict[int, tuple[float, float, float]]:
    """By step: the loss of the chapter's fit before the step's update, the value at pi, and the largest gap."""
    curve = chapter("04_legendre", "p3", "module-class")["P3Curve"](0.0, -1.0, 0.0, 0.3)
    x = torch.linspace(-torch.pi, torch.pi, 2000, dtype=torch.float64)
    optimizer, states = torch.optim.SGD(curve.parameters(), lr=5e-6), {}
    for step in range(2000):
        off = curve(x) - torch.sin(x)
        loss = off.square().sum()
        states[step] = loss.item(), curve(x[-1]).item(), off.abs().max().item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return states


def test_sine_fit_says_what_the_chapter_s_fit_does(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "sine-fit")
    for place in range(0, 101, 5):
        figure.locator("input").fill(str(place))
        numbers = re.findall(r"−?\d+(?:\.\d+)?", " ".join(said(figure)))
        step, loss, _, _, end, gap = (float(number.replace("−", "-")) for number in numbers)
        assert step == max(20 * place - 1, 0)
        assert (loss, end, gap) == pytest.approx(fitted()[step], abs=6e-3)
        assert (end, gap) == pytest.approx(fitted()[step][1:], abs=6e-4)


def test_sine_fit_says_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    for row in table(visit, "sine-fit").locator("tbody tr").all():
        step, *shown = (float(text.replace("−", "-")) for text in row.inner_text().split("\t"))
        assert shown == pytest.approx(fitted()[step], abs=6e-3)
        assert shown[1:] == pytest.approx(fitted()[step][1:], abs=6e-4)


# ------------------------------------------------------------------- two-roads: a step forward, a surrogate backward

WAYS = {"a ramp": "Step", "the identity": "IdentityStep", "nothing": "composed"}  # as the chapter calls them


@cache
def roads() -> tuple[dict[str, Callable[[Tensor], Tensor]], dict[str, object]]:
    """The chapter's steps and what training by each gives, by what backward pretends."""
    code = chapter("03_ste", "problem-net", "problem-train", "problem-run", "identity", "functions")
    steps = {way: getattr(code[name], "apply", code[name]) for way, name in WAYS.items()}
    return steps, {way: code["train"](step) for way, step in steps.items()}


@pytest.mark.parametrize("way", WAYS)
def test_two_roads_send_back_what_the_chapter_s_functions_do(way: str, visit: Callable[..., Watched]) -> None:
    figure, step = moved(visit, "two-roads"), roads()[0][way]
    figure.locator("select").select_option(way)
    assert figure.locator("select option").all_inner_texts() == list(WAYS)
    for k in range(-6, 7):
        x = torch.tensor(k / 4, dtype=torch.float64, requires_grad=True)
        (back,) = torch.autograd.grad(step(x), x, torch.tensor(-2.0, dtype=torch.float64))
        figure.locator("input").first.fill(str(k / 4))
        line = " ".join(said(figure)[0].replace("−", "-").split())
        assert line.startswith(f"x = {k / 4:g}. Forward gives {step(x).item():g}. Backward gets -2, and ")
        assert line.endswith(f"x gets {back.item() + 0:g}.")


@pytest.mark.parametrize("way", WAYS)
def test_two_roads_draw_the_run_of_the_chapter(way: str, visit: Callable[..., Watched]) -> None:
    """Loss, bits and each weight's way, where the slider can stand."""
    figure, run = moved(visit, "two-roads"), roads()[1][way]
    figure.locator("select").select_option(way)
    slider, drawn = figure.locator("input").nth(1), figure.locator("svg").nth(1)
    for now in range(0, 100, 3):
        slider.fill(str(now))
        bits = " ".join(f"{w > 0:d}" for w in run.path[now, :8])
        line = " ".join(said(figure)[1].split())
        assert line == f"Training step {now}. Loss {run.losses[now]:.2f}, bits {bits}"
    (_, top), (_, bottom) = (corners(law)[0] for law in drawn.locator("polyline.law").all())
    lines = [corners(line) for line in drawn.locator("polyline.one").all()]
    assert len(lines) == 8
    for line, weights in zip(lines, run.path[::3, :8].T.tolist(), strict=True):
        heights = [0.5 - (y - top) / (bottom - top) for _, y in line]  # the two laws stand at 1/2 and -1/2
        assert heights == pytest.approx(weights, abs=2e-3)
    left, right = lines[0][0][0], lines[0][-1][0]
    assert [x for x, _ in lines[0]] == pytest.approx([left + n * (right - left) / 33 for n in range(34)])


def test_two_roads_say_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    steps, runs = roads()
    shown = {}
    for row in table(visit, "two-roads").locator("tbody tr").all():
        head, *cells = row.locator("th, td").all_inner_texts()
        shown[head] = [float(cell.replace("−", "-")) for cell in cells]
    assert list(shown) == list(WAYS)
    for way, (near, far, loss) in shown.items():
        x = torch.tensor([-0.25, -1], dtype=torch.float64, requires_grad=True)
        (back,) = torch.autograd.grad(steps[way](x), x, torch.full_like(x, -2))
        assert [near, far] == back.tolist()
        assert loss == round(runs[way].losses[-1], 2)


# ------------------------------------------------------------------- tug: what pulls a range outwards and inwards


def tugged(start: float, steps: int) -> dict[str, tuple[float, float, float, float]]:
    """The chapter's own code, with both pulls and by item(): range, error, clipping's pull, rounding's."""
    names = chapter("05_clipped_relu", "problem-data", "problem-fit")
    activations, found = names["activations"], {}
    for way, clip in {"whole": lambda x, a: x.clamp(-a, a), "item": names["by_number"]}.items():
        path = names["fit_range"](clip, steps=steps, start=start)
        alpha = torch.tensor(path[-1][0], dtype=torch.float64, requires_grad=True)
        lost = (activations - activations.clamp(-alpha, alpha)).square().mean()
        (out,) = torch.autograd.grad(lost, alpha)
        (inward,) = torch.autograd.grad(names["storage_error"](names["by_number"], alpha, 3), alpha)
        found[way] = (*path[-1], abs(out.item()), inward.item())
    return found


def test_tug_counts_the_chapter_s_activations() -> None:
    """Its bins hold them all, and the walks below begin from these counts alone."""
    source = (ROOT / "book/_static/figures/tug.js").read_text(encoding="utf-8")
    counts = [int(n) for n in re.search(r"COUNTS = \[(.+?)\]", source, re.DOTALL)[1].strip().strip(",").split(",")]
    activations = chapter("05_clipped_relu", "problem-data", "problem-fit")["activations"]
    edges = torch.linspace(-4, 4, 161, dtype=torch.float64)
    assert activations.abs().max() < 4
    assert counts == torch.bincount(torch.bucketize(activations, edges) - 1, minlength=160).tolist()


@pytest.mark.parametrize(("start", "steps"), [(4, 100), (4, 0), (4, 25), (0.5, 1), (0.5, 60), (2.25, 40), (3, 7)])
def test_tug_says_what_the_chapter_computes(start: float, steps: int, visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "tug")
    step, handle = figure.locator("input").all()
    step.fill(str(steps))
    handle.fill(str(start))
    for line, (alpha, error, out, inward) in zip(said(figure), tugged(start, steps).values(), strict=True):
        shown = [float(n) for n in re.findall(r"\d+\.\d+", line)]
        pulls = [out, inward] if line.startswith("whole") else [inward, out]
        assert shown == [pytest.approx(alpha, abs=0.011), *(pytest.approx(n, abs=2.1e-3) for n in (error, *pulls))], (
            line
        )


def test_tug_draws_the_range_where_it_is(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "tug")
    histogram, curve = figure.locator("svg").all()
    tugs = tugged(4, 100)
    lines = {
        look: [corners(line) for line in histogram.locator(f"polyline.{look}").all()] for look in ("right", "wrong")
    }
    for look, way in {"right": "whole", "wrong": "item"}.items():
        (left, _), (right, _) = (line[0] for line in lines[look])
        (edge_left, _), (edge_right, _) = (line[0] for line in lines["right"])
        share = (right - left) / (edge_right - edge_left)
        assert share == pytest.approx(tugs[way][0] / tugs["whole"][0], abs=0.02)
    assert histogram.locator("path.way:not(.back)").count() == 8
    assert curve.locator("circle").count() == 2
    figure.locator("input").first.fill("0")
    assert len({line.get_attribute("points") for line in histogram.locator("polyline").all()}) == 2  # the ghost is here


def test_tug_says_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    rows = table(visit, "tug").locator("tbody tr").all()
    assert len(rows) == 5
    for row in rows:
        step, *cells = row.locator("th, td").all_inner_texts()
        whole, item = tugged(4, int(step)).values()
        alpha, error, out, inward = whole
        digits = [f"{alpha:.2f}", f"{out:.3f}", f"{inward:.3f}", f"{error:.3f}", f"{item[0]:.2f}", f"{item[1]:.3f}"]
        assert cells == digits


# ------------------------------------------------------------------- clip-value: which branch a clip value reaches

INPUTS = (-0.85, 0.35, 0.95, 1.45, 2.25)


class NoUpperMask(Function):
    """The clipped ReLU that the figure judges: its gradient lacks the upper mask."""

    @staticmethod
    def forward(x, clip):
        return x.clamp(0, clip)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x <= 0, 0, g), None


def by_torch(clip: float) -> tuple[int, int, int, int, str]:
    """Inputs below 0, inside and above ``clip``, the gradient for it, upstream ones, and gradcheck's verdict."""
    x = torch.tensor(INPUTS, dtype=torch.float64, requires_grad=True)
    bound = torch.tensor(clip, dtype=torch.float64, requires_grad=True)
    (pull,) = torch.autograd.grad((x.abs() - (x - bound).abs() + bound).sum() / 2, bound)  # Choi et al. 2018, eq. 1
    passes = gradcheck(NoUpperMask.apply, (x, clip), raise_exception=False)
    below, above = (x < 0).sum().item(), (x > clip).sum().item()
    return below, len(x) - below - above, above, int(pull), "passes" if passes else "fails"


def test_clip_value_says_what_torch_computes(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "clip-value")
    slider, verdicts = figure.locator("input[type=range]"), set()
    for step in range(5, 31):
        clip = step / 10
        slider.fill(f"{clip:g}")
        below, inside, above, pull, verdict = by_torch(clip)
        summed = f"{' + '.join('1' * pull)} = {pull}" if pull > 1 else pull
        assert figure.locator("svg text", has_text="+1").count() == pull
        assert said(figure) == [
            f"α = {clip:g}. Inputs: {below} below 0, {inside} inside, {above} above",
            f"Gradient for α, v summed over x ≥ α: {summed}",
            f"gradcheck without the upper mask: {verdict}",
        ]
        verdicts.add(verdict)
    assert verdicts == {"passes", "fails"}


def test_clip_value_draws_the_function_its_gradient_and_the_inputs(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "clip-value")
    lines, open_ends = figure.locator("polyline"), figure.locator("circle.open")
    assert (lines.count(), figure.locator("circle.one").count(), open_ends.count()) == (4, len(INPUTS), 2)
    start, zero, bend, end = before = corners(lines.first)
    assert start[1] == zero[1] > bend[1] == end[1] and zero[0] < bend[0]  # pixels grow downwards
    assert sorted(float(mark.get_attribute("cx")) for mark in open_ends.all()) == pytest.approx([zero[0], bend[0]])
    figure.locator("input[type=range]").press("ArrowRight")
    after = corners(lines.first)
    assert after[:2] == before[:2] and after[2][0] > bend[0] and after[2][1] < bend[1]
    assert figure.locator("input[type=range]").get_attribute("aria-valuetext") == "α = 1.6"


def test_clip_value_says_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    rows = table(visit, "clip-value").locator("tbody tr").all()
    assert len(rows) >= 5
    for row in rows:
        clip, *cells = row.locator("th, td").all_inner_texts()
        assert cells == [str(value) for value in by_torch(float(clip))], clip


# ------------------------------------------------------------------- float-window: what float32 holds of exp(x)

SIX = (0.0, 1.0, 3.0, -20.0, 2.0, 4.0)


def window(a: float, pieces: int) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]:
    """The numbers of so many pieces, their exponentials in float32, and the states as the chapter merges them."""
    code = chapter("07_logsumexp", "shift-right", "pieces-functions")
    x = a + torch.tensor(SIX[: 2 * pieces])
    return x, x.exp(), list(accumulate((code["state"](piece) for piece in x.split(2)), code["merge"]))


def minus(text: str) -> str:
    """A text with a true minus sign before its numbers, but not in a power of ten."""
    return re.sub(r"(?<!e)-", "−", text)


def test_float_window_says_what_the_chapter_computes(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "float-window")
    slider, seen = figure.locator("input[type=range]").all()
    assert slider.input_value() == "100" and seen.input_value() == "3"
    fates = set()
    for a in range(-120, 121, 4):
        slider.fill(str(a))
        for pieces in (1, 2, 3):
            seen.fill(str(pieces))
            x, powers, states = window(a, pieces)
            (m, ell), plain = states[-1], powers.sum()
            gone = (powers == 0) | powers.isinf()
            short = (powers < torch.finfo(torch.float32).tiny) & ~gone
            lost, few = gone.sum().item(), short.sum().item()
            shrunk = f", the old sum × {(states[-2][0] - m).exp():.4f}" if pieces > 1 else ""
            assert said(figure) == [
                minus(f"a = {a}, {len(x)} numbers. ")
                + f"Exponentials in float32: {len(x) - lost - few} whole, {few} short of digits, {lost} lost",
                minus(f"Plain sum: {scientific(plain)}, its log {decimals(plain.log())}"),
                minus(f"Relative to the largest: m = {m:g}, ℓ = {ell:.4f}{shrunk}"),
                minus(f"m + log ℓ = {m + ell.log():.4f}"),
            ]
            fates.add((lost, few))
        assert slider.get_attribute("aria-valuetext") == minus(f"a = {a}")
        assert figure.locator("svg text.value").all_text_contents() == [scientific(power) for power in powers]
        assert figure.locator("svg rect.bar.lost").count() == lost
    assert {lost for lost, _ in fates} >= {0, 1, 6} and any(few for _, few in fates)


def test_float_window_moves_above_and_stays_below(visit: Callable[..., Watched]) -> None:
    """The bars relative to the largest number do not depend on a; a piece with a larger one shrinks them by c."""
    figure = moved(visit, "float-window")
    slider, seen = figure.locator("input[type=range]").all()

    def widths() -> list[float]:
        bars = figure.locator("svg rect.bar:not(.whole, .lost, .short, .ghost)")
        return [float(bar.get_attribute("width")) for bar in bars.all()]

    first = {}
    for pieces in (1, 2, 3):
        seen.fill(str(pieces))
        x, _, states = window(100, pieces)
        slider.fill("-120")
        at_the_bottom = widths()
        slider.fill("100")
        assert widths() == pytest.approx(at_the_bottom)
        m, ell = states[-1]
        unit = widths()[-1] / ell.item()
        assert widths()[:-1] == pytest.approx([unit * t for t in (x - m).exp().tolist()], abs=0.01)
        first[pieces] = widths()[:2]
    for pieces in (2, 3):
        states = window(100, pieces)[2]
        c = (states[-2][0] - states[-1][0]).exp().item()
        assert first[pieces] == pytest.approx([c * width for width in first[pieces - 1]], rel=1e-4)


def test_float_window_says_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    slid, merged = table(visit, "float-window").all()
    rows = slid.locator("tbody tr").all()
    assert len(rows) == 5
    for row in rows:
        a, *cells = row.locator("th, td").all_inner_texts()
        _, powers, states = window(float(a.replace("−", "-")), 3)
        (m, ell), plain = states[-1], powers.sum()
        expected = [decimals(plain.log()), f"{m:g}", f"{ell:.4f}", f"{m + ell.log():.4f}"]
        assert cells == [scientific(plain), *map(minus, expected)]
    for number, row in enumerate(merged.locator("tbody tr").all(), 1):
        x, _, states = window(100, number)
        m, ell = states[-1]
        assert row.locator("th, td").all_inner_texts() == [
            f"{number}: ({', '.join(f'{v:g}' for v in x[-2:].tolist())})",
            f"{m:g}",
            f"{(states[-2][0] - m).exp():.4f}" if number > 1 else "",
            f"{ell:.4f}",
            f"{m + ell.log():.4f}",
        ]


# ------------------------------------------------------------------- broadcast-shapes: copies out, gradients back

SHAPES = [((3, 1), (4,)), ((3, 4), (4,)), ((3, 4), (1, 4)), ((3, 4), ()), ((3, 4), (3,))]
SHAPES += [((64,), (64,)), ((64, 1), (64,))]


def added(one: tuple[int, ...], two: tuple[int, ...]) -> tuple[list[Tensor], Tensor, Tensor, list[Tensor]]:
    """The figure's two tensors, their sum, its upstream gradient, and what comes back."""
    counted = [torch.arange(1.0, math.prod(shape) + 1).reshape(shape) for shape in (one, two)]
    a, b = (10 * counted[0]).requires_grad_(), counted[1].requires_grad_()
    y = a + b
    g = torch.arange(1.0, y.numel() + 1).reshape(y.shape)
    return [a, b], y, g, list(torch.autograd.grad(y, (a, b), g))


def drawn_numbers(figure: Locator, look: str) -> list[float]:
    """The numbers in the boxes of one of the two panels."""
    return [float(text) for text in figure.locator(f"svg text.{look}").all_text_contents()]


@pytest.mark.parametrize("look", ["light-wide", "light-narrow"])
@pytest.mark.parametrize(("one", "two"), SHAPES)
def test_broadcast_shapes_draws_what_torch_computes(one: tuple, two: tuple, look: str, visit) -> None:
    figure = moved(visit, "broadcast-shapes", look)
    figure.locator("select").select_option(f"{one} and {two}")
    lines = said(figure)
    assert lines[0].startswith(f"{one} with {two}")
    try:
        inputs, y, g, back = added(one, two)
    except RuntimeError as error:
        found = re.search(r"tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", str(error))
        assert lines[0].endswith("is refused.") and f"{found[1]} meets {found[2]}, and neither is 1" in lines[1]
        assert figure.locator("svg text.back").count() == 0
        return
    assert f"gives {tuple(y.shape)}, {y.numel()} numbers." in lines[0]
    assert ("the trap" in lines[0]) == (y.numel() == 4096)
    for line, tensor, gradient in zip(lines[1:], inputs, back, strict=True):
        times = y.numel() // tensor.numel()
        assert f"is used {'once' if times == 1 else f'{times} times'}:" in line
        code = line.partition("its gradient is ")[2]
        assert re.fullmatch(r"g(\.sum\([^()]*\))?", code)
        torch.testing.assert_close(eval(code, {"g": g}), gradient, rtol=0, atol=0)
    if y.numel() < 64:
        wanted = [n for t in (*inputs, y) for n in t.flatten().tolist()]
        assert drawn_numbers(figure, "fore") == wanted
        assert drawn_numbers(figure, "back") == [n for t in (*back, g) for n in t.flatten().tolist()]


def test_broadcast_shapes_folds_what_it_copied(visit: Callable[..., Watched]) -> None:
    """On the way the copies are as many as the result has numbers, for each of the two; at the end they are gone."""
    figure = moved(visit, "broadcast-shapes")
    figure.locator("select").select_option("(3, 1) and (4,)")
    slider, counts = figure.locator("input"), {}
    for place in (0, 5, 10, 15, 20):
        slider.fill(str(place))
        looks = ("rect.value.flying", "rect.grad.flying", "text.fore", "text.back")
        counts[place] = tuple(figure.locator(f"svg {look}").count() for look in looks)
    assert counts == {0: (0, 0, 7, 12), 5: (24, 0, 7, 12), 10: (0, 0, 19, 12), 15: (0, 24, 19, 12), 20: (0, 0, 19, 19)}
    assert slider.get_attribute("aria-valuetext") == "backward is done"


def test_broadcast_shapes_says_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    rows = [row.inner_text() for row in table(visit, "broadcast-shapes").locator("tbody tr").all()]
    figure = moved(visit, "broadcast-shapes")
    assert figure.locator("option").all_inner_texts() == [f"{one} and {two}" for one, two in SHAPES]
    for row, (one, two) in zip(rows, SHAPES, strict=True):
        assert row.startswith(f"{one} and {two}")
        figure.locator("select").select_option(f"{one} and {two}")
        if "refused" in row:
            assert "is refused" in said(figure)[0]
            continue
        _, y, _, back = added(one, two)
        cells = row.split("\t")
        assert cells[1] == str(tuple(y.shape))
        for cell, line, gradient in zip(cells[2:], said(figure)[1:], back, strict=True):
            code, _, numbers = cell.partition(": ")
            assert line.endswith(code)
            if numbers and y.numel() < 64:
                assert [float(n) for n in numbers.split(", ")] == gradient.flatten().tolist()


# ------------------------------------------------------------------- streaming-lse: pieces merged in any order

PIECES = ([85.0, 87.0], [88.0, 86.0], [90.0, 89.0, 90.0], [84.0], [91.0, 88.5], [NOTHING, NOTHING])
ORDERS = {"as given": [0, 1, 2, 3, 4, 5], "reversed": [5, 4, 3, 2, 1, 0], "shuffled": [3, 2, 5, 0, 4, 1]}


def decimals(number: Tensor) -> str:
    """A number as the figure prints it."""
    return f"{number:.4f}".replace("-inf", "−∞").replace("inf", "∞")


def plain_sum(merged: list[Tensor]) -> Tensor:
    """What the chapter warns of: the exponentials of all pieces, added up in float32."""
    return torch.cat([torch.zeros(0), *merged]).exp().sum()


def scientific(number: Tensor | float, digits: int = 1) -> str:
    """A number as the figure prints it, with a power of ten."""
    mantissa, _, exponent = f"{number:.{digits}e}".partition("e")
    return "0" if number == 0 else "∞" if number == math.inf else f"{mantissa}e{int(exponent)}"


@pytest.mark.parametrize("order", ORDERS)
def test_streaming_lse_says_what_the_chapter_computes(order: str, visit: Callable[..., Watched]) -> None:
    figure, code = moved(visit, "streaming-lse"), chapter("07_logsumexp", "shift-right", "pieces-functions")
    figure.locator("select").select_option(order)
    slider = figure.locator("input[type=range]")
    pieces = [torch.tensor(PIECES[k]) for k in ORDERS[order]]
    end = decimals(torch.logsumexp(torch.cat(pieces).double(), 0))
    m, ell = torch.tensor(NOTHING), torch.tensor(0.0)  # nothing at all
    for count in range(7):
        own_m, own_ell, last = m, ell, "Nothing:"
        if count:
            own_m, own_ell = code["state"](pieces[count - 1])
            m, ell = code["merge"]((m, ell), (own_m, own_ell))
            last = f"The last, ({', '.join(f'{x:g}' for x in pieces[count - 1].tolist())}):"
        slider.fill(str(count))
        plain = plain_sum(pieces[:count])
        assert said(figure) == [
            f"{count} of 6 pieces. {last} m = {own_m:g}, ℓ = {decimals(own_ell)}".replace("-inf", "−∞"),
            f"Merged: m = {m:g}, ℓ = {decimals(ell)}, m + log ℓ = {decimals(m + ell.log())}".replace("-inf", "−∞"),
            f"Plain sum in float32: {scientific(plain)}, its log {decimals(plain.log())}",
            f"At the end: {', '.join(f'{name} {end}' for name in ORDERS)}",
        ]
        assert slider.get_attribute("aria-valuetext") == f"{count} of 6 pieces"
    assert plain == math.inf  # it is what the pieces avoid


def test_streaming_lse_draws_three_orders_that_end_at_one_point(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "streaming-lse")
    ways, trace = figure.locator("polyline.law"), figure.locator("polyline.one")
    paths = [corners(way) for way in ways.all()]
    assert len(paths) == 3
    assert len({path[-1] for path in paths}) == 1 < len({path[2] for path in paths})
    figure.locator("input[type=range]").fill("4")
    for name, path in zip(ORDERS, paths, strict=True):
        figure.locator("select").select_option(name)
        assert corners(trace) == path[:5]
        assert figure.locator("circle.element").count() == sum(len(PIECES[k]) for k in ORDERS[name][:4])


def test_streaming_lse_says_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    code = chapter("07_logsumexp", "shift-right", "pieces-functions")
    ways = []
    for order in ORDERS.values():
        states = accumulate((code["state"](torch.tensor(PIECES[k])) for k in order), code["merge"])
        ways.append(list(states))
    rows = table(visit, "streaming-lse").locator("tbody tr").all()
    for n, row in enumerate(rows):
        m, ell = ways[0][n]
        plain = plain_sum([torch.tensor(piece) for piece in PIECES[: n + 1]])
        assert row.locator("th, td").all_inner_texts() == [
            f"{n + 1}: ({', '.join(f'{x:g}' for x in PIECES[n])})".replace("-inf", "−∞"),
            f"{m:g}",
            decimals(ell),
            *(decimals(way[n][0] + way[n][1].log()) for way in ways),
            scientific(plain),
        ]
    assert len(rows) == len(PIECES)


# ------------------------------------------------------------------- wave-bits: a wave and weights on few bits

AFTER, WITH = "rounded after training", "trained with the rounding"
WAVE_CELLS = [
    "problem-data",
    "problem-net",
    "problem-round",
    "problem-wave",
    "fake-quant-bits",
    "fake-quant-run",
    "fake-quant-rows",
    "rows-run",
    "learned-step",
    "quantisers",
    "train",
]


@cache
def wave_on(bits: int, way: str) -> tuple[float, int, str, list[tuple[Tensor, ...]]]:
    """How often the chapter's first net is right, its weights that are 0, its answer, and what is clipped."""
    code = chapter("08_qat", *WAVE_CELLS)
    net, _, test = code["trials"][0]
    quantise = [lambda t: code["rounded"](t, bits)] * 4
    if way == WITH:
        net, quantise = code["train_aware"]("learned", bits, code["trials"][0], 100)
    zeros = int((quantise[1](net[0]) == 0).sum())
    answer = code["KINDS"][code["predict"](net, test[0], quantise)[10].argmax()]
    shown = []
    for tensor, quantiser, row in ((test[0], quantise[0], 10), (net[0], quantise[1], 15)):
        t = tensor.detach().requires_grad_()
        passed = torch.ones_like(t)  # the largest number fits
        if way == WITH:
            (passed,) = torch.autograd.grad(quantiser(t).sum(), t)
        shown.append((t[row].detach(), quantiser(t)[row].detach(), passed[row]))
    return code["accuracy"](net, test, quantise), zeros, answer, shown


@pytest.mark.parametrize("way", [AFTER, WITH])
def test_wave_bits_says_what_the_chapter_computes(way: str, visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "wave-bits")
    selects = figure.locator("select").all()
    selects[1].select_option(way)
    for bits in (8, 4, 3, 2):
        selects[0].select_option(str(bits))
        right, zeros, answer, shown = wave_on(bits, way)
        clipped = [int((passed == 0).sum()) for *_, passed in shown]
        verdict = "right" if answer == "triangle" else "wrong"
        what = "Gradient 0" if way == WITH else "Clipped"
        assert said(figure) == [
            f"{bits} bits, {way}: right {100 * right:.1f} % of the time",
            f"{zeros} of 1024 weights are 0. {what} here: {clipped[0]} samples, {clipped[1]} weights",
            f"It takes this triangle for a {answer}: {verdict}",
        ]
        for svg, (t, y, _), count, most in zip(figure.locator("svg").all(), shown, clipped, (2.4, 1.8), strict=True):
            assert svg.locator("circle.wrong").count() == count
            scale = (190 - 26 - 44) / (2 * most)
            level = scale * y.unique().diff().min().item()
            for look, wanted in (("one", y.repeat_interleave(2)), ("law", t)):
                drawn = [height for _, height in corners(svg.locator(f"polyline.{look}"))]
                pixels = [26 + scale * (most - value) for value in wanted.tolist()]
                assert len(drawn) == len(pixels)
                off = [abs(one - other) for one, other in zip(drawn, pixels, strict=True)]
                # a step that training ends with differs in the last digits from one processor to another: one sample,
                # which is drawn twice, may lie on the other side of the border between two levels
                assert max(off) <= 1.01 * level + 0.1 and sum(far > 0.1 for far in off) <= (2 if way == WITH else 0)


def test_wave_bits_says_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    rows = table(visit, "wave-bits").locator("tbody tr").all()
    assert len(rows) == 4
    for row in rows:
        bits, *cells = row.locator("th, td").all_inner_texts()
        wanted = []
        for right, zeros, answer, _ in (wave_on(int(bits), way) for way in (AFTER, WITH)):
            wanted += [f"{100 * right:.1f} %", str(zeros), answer]
        assert cells == wanted


# ------------------------------------------------------------------- quantiser-bits: rounding error, clipping error

TWELVE = torch.tensor(
    [-1.81, -1.12, -0.86, -0.58, -0.34, -0.07, 0.08, 0.34, 0.54, 0.76, 1.13, 2.3], dtype=torch.float64
)


@dataclass(frozen=True)
class Grid:
    """What a grid of ``bits`` bits makes of the twelve inputs, by the chapter's quantiser and by torch's."""

    scale: float
    rounding: float
    clipping: float
    zeros: int

    @property
    def error(self) -> float:
        """The whole mean squared error."""
        return self.rounding + self.clipping


@cache
def on_grid(bits: int, twentieths: int) -> Grid:
    """The scale is a fraction of the one at which the largest input fits, as the chapter's ``learned`` tries them."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    scale = TWELVE.abs().max() / high * twentieths / 20
    results = []
    for quantise in (
        lambda x: chapter("08_qat", "learned-step")["LearnedStep"].apply(x, scale, bits),
        lambda x: torch.fake_quantize_per_tensor_affine(x, scale.item(), 0, low, high),
    ):
        x = TWELVE.clone().requires_grad_()
        y = quantise(x)
        (passed,) = torch.autograd.grad(y.sum(), x)
        squares = (y.detach() - TWELVE).square() / len(TWELVE)
        results.append(
            (squares[passed == 1].sum().item(), squares[passed == 0].sum().item(), (passed == 0).sum().item())
        )
    assert results[0] == pytest.approx(results[1], rel=1e-4)  # torch's scale is float32
    return Grid(scale.item(), *results[0])


def test_quantiser_bits_says_what_torch_computes(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "quantiser-bits")
    width, scale = figure.locator("input[type=range]").all()
    counts, best_fractions = set(), []
    for bits in range(2, 9):
        width.fill(str(bits))
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        best = min(range(2, 21), key=lambda k: on_grid(bits, k).error)
        for k in range(2, 21):
            scale.fill(str(k))
            grid = on_grid(bits, k)
            step = significant(grid.scale)
            assert said(figure) == [
                f"b = {bits}: q from −{-low} to {high}, s = {step} ({5 * k} % of the scale at which all inputs fit)",
                f"Mean squared error {scientific(grid.error, 2)}: rounding {scientific(grid.rounding, 2)}, "
                f"clipping {scientific(grid.clipping, 2)}",
                f"Gradient 0 at {grid.zeros} of 12 inputs: x below −{-(low - 0.5) * grid.scale:.2f} "
                f"or above {(high + 0.5) * grid.scale:.2f}",
                f"Least error at {bits} bits: {scientific(on_grid(bits, best).error, 2)}, at {5 * best} %",
            ]
            assert width.get_attribute("aria-valuetext") == f"b = {bits}"
            assert (
                scale.get_attribute("aria-valuetext") == f"s = {step}, {5 * k} % of the scale at which all inputs fit"
            )
            assert figure.locator("svg").first.locator("circle.open").count() == grid.zeros
            counts.add(grid.zeros)
        best_fractions.append(best)
    assert {0, 1, 2} < counts and best_fractions[0] < best_fractions[1] < best_fractions[-1] == 20


def significant(number: float) -> str:
    """A number as the figure prints it, with three digits that count."""
    return f"{number:.{2 - math.floor(math.log10(number))}f}"


def test_quantiser_bits_draws_the_staircase_and_where_its_gradient_is_0(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "quantiser-bits")
    stairs, errors = figure.locator("svg").all()
    width, scale = figure.locator("input[type=range]").all()
    for bits, levels in ((2, 4), (3, 8), (4, 16), (8, 256)):  # at 12 / 20 of the scale all levels are in view
        width.fill(str(bits))
        heights = {round(y, 3) for _, y in corners(stairs.locator("polyline.one"))}
        assert len(heights) == levels, bits
    scale.fill("20")
    assert errors.locator("polyline.two").count() == 0  # all inputs fit: no clipping error to draw
    assert errors.locator("circle").count() == 1
    bands = stairs.locator("path.band")
    assert bands.count() == 2
    before = [band.evaluate("node => node.getBBox().width") for band in bands.all()]
    scale.fill("10")
    after = [band.evaluate("node => node.getBBox().width") for band in bands.all()]
    assert all(a < b for a, b in zip(before, after, strict=True))
    assert errors.locator("circle").count() == 2


def test_quantiser_bits_says_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    rows = table(visit, "quantiser-bits").locator("tbody tr").all()
    assert len(rows) >= 5
    for row in rows:
        bits, *cells = row.locator("th, td").all_inner_texts()
        best = min(range(2, 21), key=lambda k: on_grid(int(bits), k).error)
        fits, half, least = (on_grid(int(bits), k) for k in (20, 10, best))
        assert fits.clipping == 0
        assert cells == [
            *(scientific(error, 2) for error in (fits.rounding, half.rounding, half.clipping)),
            f"{half.zeros} of 12",
            f"{5 * best} %",
            scientific(least.error, 2),
        ]


# ------------------------------------------------------------------- attention-tiles: the score matrix, tile by tile

QUERIES, KEYS = ([0, 4, 8, 10], [0, 3, 6, 9, 11])  # where the blocks begin, and the end
NUMBERS = {"dtype": torch.float64, "requires_grad": True}
Q = torch.tensor([1, -1, 2, -2, 1, 2, -1, -2, 2, 1], **NUMBERS)[:, None]
K = torch.tensor([0, 1, -1, 1, 2, 0, -2, -1, 1, 3, -3], **NUMBERS)[:, None]
V = torch.arange(11, **NUMBERS)[:, None]


def scores_by_torch(causal: bool) -> torch.Tensor:
    """The figure's scores, 10 queries by 11 keys, as attention is given them."""
    i, j = torch.arange(10)[:, None], torch.arange(11)
    return (Q @ K.mT + 0).detach().masked_fill((j > i) & causal, NOTHING)


def tile_steps(causal: bool) -> list[tuple[range, range]]:
    """Queries and keys of each tile that is not masked as a whole, in the order of the loop."""
    blocks = [[range(a, b) for a, b in pairwise(ends)] for ends in (QUERIES, KEYS)]
    scores = scores_by_torch(causal)
    return [(q, k) for q in blocks[0] for k in blocks[1] if scores[q][:, k].max() > NOTHING]


def span(numbers: range) -> str:
    """A block as the figure names it."""
    return f"{numbers[0]} to {numbers[-1]}"


def texts(figure: Locator, look: str) -> list[str]:
    """What stands in the drawing in one look, with a minus as Python writes it."""
    return [text.replace("−", "-") for text in figure.locator(f"svg text.{look}").all_text_contents()]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_tiles_say_what_torch_computes(causal: bool, visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "attention-tiles")
    if causal:
        figure.locator("input[type=checkbox]").press("Space")
    slider, scores, steps = figure.locator("input[type=range]"), scores_by_torch(causal), tile_steps(causal)
    assert slider.get_attribute("max") == str(len(steps)) == ("9" if causal else "12")
    read = written = 0
    for number, (q, k) in enumerate(steps, 1):
        slider.fill(str(number))
        masked = (scores[q][:, k] == NOTHING).sum().item()
        seen = scores[q[-1], : k[-1] + 1]
        m, lse = seen.max(), seen.logsumexp(0)
        o = (torch.softmax(seen, 0) * torch.arange(len(seen))).sum()
        ell = (lse - m).exp()
        c = (scores[q[-1], : k[0]].max() - m).exp() if k[0] else 1
        first, last = number == 1 or steps[number - 2][0] != q, number == len(steps) or steps[number][0] != q
        read += first * len(q) + 2 * len(k)  # the queries once, keys and values with each tile
        written += last * 2 * len(q)  # o and lse
        expected = [
            f"Step {number} of {len(steps)}: queries {span(q)}, keys {span(k)}; {len(q) * len(k)} scores in memory"
            + (f", {masked} masked" if masked else ""),
            f"Slow memory so far: {read} read, {written} written; plain attention 252 and 230",
            f"Tiles skipped: {12 - len(steps)} of 12",
            f"Updates m, ℓ and a of queries {span(q)}. Query {q[-1]}: m {m:.0f}, ℓ {ell:.2f}, a {o * ell:.2f}"
            + (f", what it had × {c:.2f}" if c < 1 else ""),
        ]
        if last:
            expected.append(f"Rows {span(q)} are done: o = a/ℓ (query {q[-1]}: {o:.2f}) and lse = m + log ℓ are stored")
        assert [line.replace("−", "-") for line in said(figure)] == expected
        assert slider.get_attribute("aria-valuetext") == f"step {number} of {len(steps)}"
        assert texts(figure, "score") == [f"{s:.0f}".replace("inf", "∞") for s in scores[q][:, k].flatten()]
        assert texts(figure, "count") == [str(len(q) * len(k)), "110", str(read + written), "482"]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_tiles_carry_what_torch_computes(causal: bool, visit: Callable[..., Watched]) -> None:
    """Of each query that has met a tile: m, ell and a / ell; at the end o, as torch has it."""
    figure = moved(visit, "attention-tiles")
    figure.locator("input[type=checkbox]").set_checked(causal)
    scores, steps = scores_by_torch(causal), tile_steps(causal)
    for number, (q, k) in enumerate(steps, 1):
        figure.locator("input[type=range]").fill(str(number))
        ends = {i: keys[-1] + 1 for queries, keys in steps[:number] for i in queries}
        rows = [scores[i, :end] for i, end in ends.items()]
        outputs = [(torch.softmax(row, 0) @ V[: len(row)]).item() for row in rows]
        whole = [number == len(steps) or steps[number][0] != q if i in q else True for i in ends]
        assert texts(figure, "carry.m") == [f"{row.max():.0f}" for row in rows]
        assert texts(figure, "carry.ell") == [f"{(row.logsumexp(0) - row.max()).exp():.2f}" for row in rows]
        assert texts(figure, "carry.out") == [f"{o:.2f}{' = o' * end}" for o, end in zip(outputs, whole, strict=True)]
        moves = [(scores[i, : k[0]].max() - scores[i, : k[-1] + 1].max()).exp() for i in q] if k[0] else []
        assert texts(figure, "moved") == [f"× {c:.2f}" for c in moves if c < 1]
    right = torch.nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=causal)
    assert outputs == pytest.approx(right.flatten().tolist())


def test_attention_tiles_move_what_the_chapter_counts(visit: Callable[..., Watched]) -> None:
    """Forward by the chapter's own functions; backward by what each product reads and writes."""
    figure, code = moved(visit, "attention-tiles"), chapter("10_flash_attention", "plumbing", "see-traffic")
    plain, tiled = code["plain_traffic"](10, 11, 1), code["tiled_traffic"](10, 11, 1, 4)
    figure.locator("input[type=range]").fill("12")
    assert re.findall(r"\d+", said(figure)[1]) == [str(count) for count in (*tiled, *plain)]
    assert "moves 96 numbers" in (caption := figure.locator("figcaption").inner_text()) and "of 482" in caption
    assert sum(tiled) == 96 and sum(plain) == 482
    figure.locator("select").select_option("backward")
    whole, q, k = 10 * 11, 10, 11
    products = {  # read, written
        "dv": (whole + q, k),
        "dp": (q + k, whole),
        "ds": (2 * whole, whole),
        "dq": (whole + k, q),
        "dk": (whole + q, k),
    }
    plain = [sum(column) for column in zip(*products.values(), strict=True)]
    tiled = 4 * q + 3 * 4 * k, 2 * k + 3 * 2 * k + q  # dk and dv are zeroed, then read and written by each tile
    assert re.findall(r"\d+", said(figure)[1]) == [str(count) for count in (*tiled, *plain)]


def test_attention_tiles_light_up_in_order(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "attention-tiles")
    slider = figure.locator("input[type=range]")
    current, done, skipped = (figure.locator(f"svg rect.tile.{look}") for look in ("score.now", "done", "skipped"))
    for causal, steps in ((False, 12), (True, 9)):
        figure.locator("input[type=checkbox]").set_checked(causal)
        slider.fill("1")
        places = set()
        for number in range(1, steps + 1):
            assert (current.count(), done.count(), skipped.count()) == (1, number - 1, 12 - steps)
            assert figure.locator("svg text.number", has_text="gone").count() == number - 1
            places.add((current.get_attribute("x"), current.get_attribute("y")))
            slider.press("ArrowRight")
        assert len(places) == steps


def test_attention_tiles_backward_adds_to_queries_and_keys(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "attention-tiles")
    figure.locator("select").select_option("backward")
    figure.locator("input[type=range]").fill("12")
    assert figure.locator("output > span").last.inner_text() == (
        "Computes P again from lse. Adds to dq of queries 8 to 9, to dk and dv of keys 9 to 10"
    )
    assert {"dq", "dk, dv"} <= set(figure.locator("svg text").all_text_contents())
    assert texts(figure, "lse") == [f"{lse:.2f}" for lse in scores_by_torch(causal=False).logsumexp(1)]
    figure.locator("select").select_option("forward")
    assert {"m", "ℓ", "a / ℓ"} <= set(figure.locator("svg text").all_text_contents())


def test_attention_tiles_say_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    tiles = table(visit, "attention-tiles")
    heads = tiles.locator("thead th").all_inner_texts()[1:]
    assert heads == [f"keys {a}–{b - 1}" for a, b in pairwise(KEYS)]
    plain, causal, masked = tile_steps(False), tile_steps(True), scores_by_torch(True) == NOTHING
    for row, (a, b) in zip(tiles.locator("tbody tr").all(), pairwise(QUERIES), strict=True):
        head, *cells = row.locator("th, td").all_inner_texts()
        assert head == f"queries {a}–{b - 1}"
        for cell, (c, d) in zip(cells, pairwise(KEYS), strict=True):
            tile = range(a, b), range(c, d)
            last = f"{causal.index(tile) + 1}" if tile in causal else "skipped"
            last += ", masked" if tile in causal and masked[a:b, c:d].any() else ""
            assert cell == f"{plain.index(tile) + 1}; causal {last}"


def test_attention_tiles_picture_says_what_torch_computes() -> None:
    """As the figure rests: at the sixth step."""
    words = [word.replace("−", "-") for word in written("10_flash_attention", "one_tile")]
    scores, steps = scores_by_torch(causal=False), tile_steps(causal=False)
    queries, keys = steps[5]
    tile = [f"{s:.0f}" for s in scores[queries][:, keys].flatten()]
    carried = []
    for i in range(queries.stop):
        row = scores[i, : keys.stop if i in queries else 11]
        m, out = row.max(), torch.softmax(row, 0) @ V[: len(row), 0]
        c = (row[: keys.start].max() - m).exp()
        carried += [f"{m:.0f}", f"{(row.logsumexp(0) - m).exp():.2f}", f"{out:.2f}"]
        carried += ["= o"] if i not in queries else [f"× {c:.2f}"] if c < 1 else []
    ahead = ["gone"] * 5 + [str(n) for n in range(7, 13)]
    counted = [word for word in words if re.fullmatch(r"gone|= o|(× )?-?[\d.]+", word)]
    assert counted == [*ahead, *tile, *carried]
    assert {f"{block[0]}–{block[-1]}" for step in steps for block in step} <= set(words)
    assert f"Only one tile exists: {len(tile)} of {scores.numel()} scores." in words


# ------------------------------------------------------------------- alive-when: what autograd keeps, step by step


@cache
def plans() -> dict[str, tuple[int, int, int]]:
    """By plan: layer forwards, and the activations that the chapter counts before backward and at the peak."""
    cells = "plumbing", "timeline", "count", "recompute", "state", "proof-functions", "linear-tanh"
    names = chapter("09_checkpointing", *cells, "meter", "plans", "measure")
    return {name: (row[0], row[1] // 16, row[2] // 16) for name, row in names["table"].items()}


def test_alive_when_says_what_the_chapter_s_meter_counts(visit: Callable[..., Watched]) -> None:
    figure = moved(visit, "alive-when")
    offered = figure.locator("option").all_inner_texts()
    assert [*offered, "full"] == list(plans())
    for plan in offered:
        forwards, before, peak = plans()[plan]
        figure.locator("select").select_option(plan)
        figure.locator("input").fill("16")  # all layers have run forward
        assert said(figure) == [
            f"{plan}: {peak} alive at the peak, {forwards} layer forwards",
            f"step 16 of {forwards + 16}: layer 16 runs",
            f"alive {before}: {before} kept, 0 computed again",
        ]


@pytest.mark.parametrize("every", [None, 1, 2, 4, 8, 16])
def test_alive_when_goes_step_by_step_as_the_chapter_does(every: int | None, visit: Callable[..., Watched]) -> None:
    steps = chapter("09_checkpointing", "timeline")["timeline"](16, every)
    figure = moved(visit, "alive-when")
    figure.locator("select").select_option("none" if every is None else f"every {every}")
    for number, (kept, again) in enumerate(steps, 1):
        figure.locator("input").fill(str(number))
        assert said(figure)[-1] == f"alive {kept + again}: {kept} kept, {again} computed again", number


def test_alive_when_says_the_same_without_a_script(visit: Callable[..., Watched]) -> None:
    rows = [row.inner_text().split("\t") for row in table(visit, "alive-when").locator("tbody tr").all()]
    assert len(rows) == 7
    for plan, *row in rows:
        assert tuple(map(int, row)) == plans()[plan]
