"""Every page of the book in a browser: light and dark, wide and narrow, over http and from a file."""

import math
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Locator
from torch.autograd import Function, gradcheck

from tests.book import page_checks
from tests.book.book_build import PAGES, ROOT, Build
from tests.book.page_checks import Watched

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
LOOKS = {
    "light-wide": ("light", WIDE, "http"),
    "light-narrow": ("light", NARROW, "http"),
    "dark-wide": ("dark", WIDE, "http"),
    "dark-narrow": ("dark", NARROW, "file"),  # dark and narrow are seen apart over http above
}


@pytest.fixture
def visit(chromium: Browser, book: Build, site: str) -> Callable[..., Watched]:
    """Open a page of the book in one of the LOOKS."""
    contexts = []

    def opened(name: str, look: str = "light-wide", protocol: str | None = None) -> Watched:
        scheme, size, usual = LOOKS[look]
        root = site if (protocol or usual) == "http" else book.html.as_uri()
        contexts.append(chromium.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce"))
        watched = Watched(contexts[-1], site if root == site else "file://")
        watched.page.goto(f"{root}/{name}.html")
        return watched

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", [*PAGES, "search"])
def test_page(name: str, look: str, visit: Callable[..., Watched], book: Build) -> None:
    watched = visit(name, look)
    theme = watched.page.locator("html").get_attribute("data-theme")
    faults = {
        "theme": [] if look.startswith(str(theme)) else [f"the page is {theme}"],
        "overflow": page_checks.overflowing(watched),
        "axe": page_checks.inaccessible(watched),
        "code": page_checks.pale_code(watched),
        "links": page_checks.broken_links(watched, book.html),
        "formulas": page_checks.red_formulas(watched),
        "images": page_checks.missing_images(watched),
        "figures": page_checks.dead_figures(watched),
        "overflow of moved figures": page_checks.overflowing(watched),
        "external": page_checks.external_requests(watched),
        "complaints": page_checks.complaints(watched),
    }
    assert {kind: found for kind, found in faults.items() if found} == {}


@pytest.mark.parametrize("protocol", ["http", "file"])
@pytest.mark.parametrize("words", ["upstream gradient", "gradcheck"])
def test_search_finds_and_leads_to_a_page(words: str, protocol: str, visit: Callable[..., Watched]) -> None:
    watched = visit(PAGES[0], protocol=protocol)
    assert "Glossary" in page_checks.found_by_search(watched, words)
    watched.page.locator("#search-results li > a", has_text="Glossary").first.click()
    watched.page.wait_for_url("**/book/glossary.html*")
    assert watched.complaints == watched.external == []


def test_search_finds_nothing_for_a_word_that_is_not_there(visit: Callable[..., Watched]) -> None:
    assert page_checks.found_by_search(visit(PAGES[0]), "zyzzyva") == []


def test_nothing_moves_for_a_reader_who_asks_for_less_motion(visit: Callable[..., Watched]) -> None:
    moving = """() => [...document.querySelectorAll("*")].map((node) => getComputedStyle(node))
        .filter((s) => s.transitionDuration !== "0s" || s.animationName !== "none").length"""
    assert visit("book/02_sigmoid").page.evaluate(moving) == 0


# ------------------------------------------------------------------- fd-step: the step of a finite difference


def central_difference(x: float, h: float, dtype: type[np.floating]) -> tuple[float, float]:
    """The central difference of arctan with every step rounded to ``dtype``, and what rounding may do to it."""

    def arctan(t: np.floating) -> np.floating:
        return dtype(math.atan(float(t)))

    quotient = (arctan(dtype(x) + dtype(h)) - arctan(dtype(x) - dtype(h))) / (dtype(2) * dtype(h))
    ulp = float(np.spacing(dtype(math.atan(x))))  # the browser's arctan may differ from Python's in its last digit
    return float(quotient), 2 * ulp / h


def fd_step(watched: Watched) -> Locator:
    """The figure, which must be on the page."""
    figure = watched.page.locator('figure[data-figure="fd-step"].ready')
    assert figure.count() == 1
    return figure


@pytest.mark.parametrize("x", ["0.5", "2"])
def test_fd_step_says_what_python_computes(x: str, visit: Callable[..., Watched]) -> None:
    figure = fd_step(visit("book/02_sigmoid"))
    figure.locator("select").select_option(x)
    figure.locator("input[type=checkbox]").check()
    slope = 1 / (1 + float(x) ** 2)
    for exponent in (-1, -2.3, -4, -5, -6, -7.7, -9, -12, -14):
        figure.locator("input[type=range]").evaluate(
            "(node, value) => { node.value = value; node.dispatchEvent(new Event('input', {bubbles: true})); }",
            exponent,
        )
        step, *lines = figure.locator("output > span").all_inner_texts()
        h = float(f"{10**exponent:.1e}")
        assert step == f"h = {h:.1e}, f′(x) = {slope:g}".replace("e-0", "e-")
        for line, (name, dtype) in zip(lines, {"float64": np.float64, "float32": np.float32}.items(), strict=True):
            shown = re.fullmatch(rf"{name}: quotient (\S+), error (\S+), (mostly|all) (truncation|rounding).*", line)
            assert shown, line
            expected, noise = central_difference(float(x), h, dtype)
            assert float(shown[1]) == pytest.approx(expected, abs=noise + 1e-12), (line, expected)
            assert float(shown[2]) == pytest.approx(abs(expected - slope), rel=0.06, abs=noise), (line, expected)
            assert shown[4] == ("truncation" if exponent >= {"float64": -4, "float32": -1}[name] else "rounding"), line


def test_fd_step_draws_a_line_for_each_dtype_and_marks_the_step(visit: Callable[..., Watched]) -> None:
    figure = fd_step(visit("book/02_sigmoid"))
    curves, marks = figure.locator("polyline:not(.law)"), figure.locator("circle")
    assert (curves.count(), marks.count()) == (1, 1)
    before = float(marks.get_attribute("cx"))
    figure.locator("input[type=range]").press("ArrowLeft")
    assert float(marks.get_attribute("cx")) < before
    figure.locator("input[type=checkbox]").press("Space")
    assert (curves.count(), marks.count()) == (2, 2)
    for curve in curves.all():
        points = [tuple(map(float, pair.split(","))) for pair in curve.get_attribute("points").split()]
        assert len(points) == 131
        lowest = max(points, key=lambda point: point[1])
        assert points[0][0] < lowest[0] < points[-1][0]  # both ends are worse than the middle
        assert min(points[0][1], points[-1][1]) < lowest[1] - 50


def test_fd_step_says_the_same_without_a_script(chromium: Browser, book: Build) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((book.html / "book/02_sigmoid.html").as_uri())
    rows = page.locator('figure[data-figure="fd-step"] tbody tr').all()
    assert len(rows) >= 5
    for row in rows:
        h, *cells = row.locator("th, td").all_inner_texts()
        for cell, dtype in zip(cells, (np.float64, np.float32), strict=True):
            expected, noise = central_difference(0.5, float(h), dtype)
            assert float(cell.split()[0]) == pytest.approx(abs(expected - 0.8), rel=0.06, abs=noise), (h, cell)
    context.close()


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
    """Inputs below 0, inside and above ``clip``, the gradient of the outputs' sum for it, and gradcheck's verdict."""
    x = torch.tensor(INPUTS, dtype=torch.float64, requires_grad=True)
    bound = torch.tensor(clip, dtype=torch.float64, requires_grad=True)
    (pull,) = torch.autograd.grad(torch.minimum(x.clamp(min=0), bound).sum(), bound)
    passes = gradcheck(NoUpperMask.apply, (x, clip), raise_exception=False)
    below, above = (x < 0).sum().item(), (x > clip).sum().item()
    return below, len(x) - below - above, above, int(pull), "passes" if passes else "fails"


def clip_value(watched: Watched) -> Locator:
    """The figure, which must be on the page."""
    figure = watched.page.locator('figure[data-figure="clip-value"].ready')
    assert figure.count() == 1
    return figure


def test_clip_value_says_what_torch_computes(visit: Callable[..., Watched]) -> None:
    figure = clip_value(visit("book/05_clipped_relu"))
    slider, verdicts = figure.locator("input[type=range]"), set()
    for step in range(5, 31):
        clip = step / 10
        slider.fill(f"{clip:g}")
        below, inside, above, pull, verdict = by_torch(clip)
        assert figure.locator("output > span").all_inner_texts() == [
            f"C = {clip:g}. Inputs: {below} below 0, {inside} inside, {above} above",
            f"Gradient of the sum of the outputs for C: {pull}",
            f"gradcheck without the upper mask: {verdict}",
        ]
        verdicts.add(verdict)
    assert verdicts == {"passes", "fails"}


def test_clip_value_draws_the_function_its_gradient_and_the_inputs(visit: Callable[..., Watched]) -> None:
    figure = clip_value(visit("book/05_clipped_relu"))
    lines, open_ends = figure.locator("polyline"), figure.locator("circle.open")
    assert (lines.count(), figure.locator("circle.one").count(), open_ends.count()) == (4, len(INPUTS), 2)

    def corners(line: Locator) -> list[tuple[float, ...]]:
        return [tuple(map(float, pair.split(","))) for pair in line.get_attribute("points").split()]

    start, zero, bend, end = before = corners(lines.first)
    assert start[1] == zero[1] > bend[1] == end[1] and zero[0] < bend[0]  # pixels grow downwards
    assert sorted(float(mark.get_attribute("cx")) for mark in open_ends.all()) == pytest.approx([zero[0], bend[0]])
    figure.locator("input[type=range]").press("ArrowRight")
    after = corners(lines.first)
    assert after[:2] == before[:2] and after[2][0] > bend[0] and after[2][1] < bend[1]
    assert figure.locator("input[type=range]").get_attribute("aria-valuetext") == "C = 1.6"


def test_clip_value_says_the_same_without_a_script(chromium: Browser, book: Build) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((book.html / "book/05_clipped_relu.html").as_uri())
    rows = page.locator('figure[data-figure="clip-value"] tbody tr').all()
    assert len(rows) >= 5
    for row in rows:
        clip, *cells = row.locator("th, td").all_inner_texts()
        assert cells == [str(value) for value in by_torch(float(clip))], clip
    context.close()


# ------------------------------------------------------------------- attention-tiles: the score matrix, tile by tile

QUERIES, KEYS = ([0, 4, 8, 10], [0, 3, 6, 9, 11])  # where the blocks begin, and the end
NOTHING = float("-inf")


def scores_by_torch(causal: bool) -> torch.Tensor:
    """The figure's scores, 10 queries by 11 keys, as attention is given them."""
    i, j = torch.arange(10)[:, None], torch.arange(11)
    scores = ((4 * i + 3 * j + 2) % 11 - 5).double()
    return scores.masked_fill(j > i, NOTHING) if causal else scores


def tile_steps(causal: bool) -> list[tuple[range, range]]:
    """Queries and keys of each tile that is not masked as a whole, in the order of the loop."""
    blocks = [[range(a, b) for a, b in pairwise(ends)] for ends in (QUERIES, KEYS)]
    scores = scores_by_torch(causal)
    return [(q, k) for q in blocks[0] for k in blocks[1] if scores[q][:, k].max() > NOTHING]


def attention_tiles(watched: Watched) -> Locator:
    """The figure, which must be on the page."""
    figure = watched.page.locator('figure[data-figure="attention-tiles"].ready')
    assert figure.count() == 1
    return figure


def span(numbers: range) -> str:
    """A block as the figure names it."""
    return f"{numbers[0]} to {numbers[-1]}"


@pytest.mark.parametrize("causal", [False, True])
def test_attention_tiles_say_what_torch_computes(causal: bool, visit: Callable[..., Watched]) -> None:
    figure = attention_tiles(visit("book/10_flash_attention"))
    if causal:
        figure.locator("input[type=checkbox]").press("Space")
    slider, scores, steps = figure.locator("input[type=range]"), scores_by_torch(causal), tile_steps(causal)
    assert slider.get_attribute("max") == str(len(steps)) == ("9" if causal else "12")
    for number, (q, k) in enumerate(steps, 1):
        slider.fill(str(number))
        masked = (scores[q][:, k] == NOTHING).sum().item()
        seen = scores[q[-1], : k[-1] + 1]
        m, lse = seen.max(), seen.logsumexp(0)
        o = (torch.softmax(seen, 0) * torch.arange(len(seen))).sum()
        ell = (lse - m).exp()
        expected = [
            f"Step {number} of {len(steps)}: queries {span(q)}, keys {span(k)}; {len(q) * len(k)} scores in memory"
            + (f", {masked} masked" if masked else ""),
            f"Tiles skipped: {12 - len(steps)} of 12",
            f"Updates m, ℓ and a of queries {span(q)}. Query {q[-1]}: m {m:.0f}, ℓ {ell:.2f}, a {o * ell:.2f}",
        ]
        if number == len(steps) or steps[number][0] != q:
            expected.append(f"Rows {span(q)} are done: o = a/ℓ (query {q[-1]}: {o:.2f}) and lse = m + log ℓ are stored")
        assert figure.locator("output > span").all_inner_texts() == expected
        assert slider.get_attribute("aria-valuetext") == f"step {number} of {len(steps)}"
        shown = [text.replace("−", "-") for text in figure.locator("svg text.score").all_text_contents()]
        assert shown == [f"{s:.0f}".replace("inf", "∞") for s in scores[q][:, k].flatten()]


def test_attention_tiles_light_up_in_order(visit: Callable[..., Watched]) -> None:
    figure = attention_tiles(visit("book/10_flash_attention"))
    slider = figure.locator("input[type=range]")
    current, done, skipped = (figure.locator(f"svg rect.tile.{look}") for look in ("score.now", "done", "skipped"))
    for causal, steps in ((False, 12), (True, 9)):
        figure.locator("input[type=checkbox]").set_checked(causal)
        slider.fill("1")
        places = set()
        for number in range(1, steps + 1):
            assert (current.count(), done.count(), skipped.count()) == (1, number - 1, 12 - steps)
            places.add((current.get_attribute("x"), current.get_attribute("y")))
            slider.press("ArrowRight")
        assert len(places) == steps


def test_attention_tiles_backward_adds_to_queries_and_keys(visit: Callable[..., Watched]) -> None:
    figure = attention_tiles(visit("book/10_flash_attention"))
    figure.locator("select").select_option("backward")
    figure.locator("input[type=range]").fill("12")
    assert figure.locator("output > span").last.inner_text() == (
        "Computes P again from lse. Adds to dq of queries 8 to 9, to dk and dv of keys 9 to 10"
    )
    assert {"dq", "dk, dv"} <= set(figure.locator("svg text").all_text_contents())
    figure.locator("select").select_option("forward")
    assert {"m", "ℓ", "a"} <= set(figure.locator("svg text").all_text_contents())


def test_attention_tiles_say_the_same_without_a_script(chromium: Browser, book: Build) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((book.html / "book/10_flash_attention.html").as_uri())
    table = page.locator('figure[data-figure="attention-tiles"] table')
    heads = table.locator("thead th").all_inner_texts()[1:]
    assert heads == [f"keys {a}–{b - 1}" for a, b in pairwise(KEYS)]
    plain, causal, masked = tile_steps(False), tile_steps(True), scores_by_torch(True) == NOTHING
    for row, (a, b) in zip(table.locator("tbody tr").all(), pairwise(QUERIES), strict=True):
        head, *cells = row.locator("th, td").all_inner_texts()
        assert head == f"queries {a}–{b - 1}"
        for cell, (c, d) in zip(cells, pairwise(KEYS), strict=True):
            tile = range(a, b), range(c, d)
            last = f"{causal.index(tile) + 1}" if tile in causal else "skipped"
            last += ", masked" if tile in causal and masked[a:b, c:d].any() else ""
            assert cell == f"{plain.index(tile) + 1}; causal {last}"
    context.close()


def test_chapters_hold_the_figures_that_they_promise(book: Build) -> None:
    """A figure's place is raw HTML in a markdown cell; it must come through the build."""
    sources = {path.stem: path.read_text(encoding="utf-8") for path in Path(ROOT / "book").glob("*.ipynb")}
    written = {stem: len(re.findall(r'data-figure=\\"', text)) for stem, text in sources.items()}
    built = {stem: (book.html / f"book/{stem}.html").read_text(encoding="utf-8") for stem in written}
    assert {stem: text.count('data-figure="') for stem, text in built.items()} == written
    assert written["02_sigmoid"] >= 1
