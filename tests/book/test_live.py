"""Cells that a reader writes and runs in the page: by mouse, by keyboard, from a file, without a network."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String

from graders.sets import module
from tests.book import page_checks
from tests.book.book_build import ROOT, Build, read
from tests.book.page_checks import NARROW, WIDE, Watched
from tools import page_graders, page_tasks

CHAPTERS = list(page_tasks.SETS)
RELU = ".cell.tag_turn\\:relu"
BLANK = 'raise NotImplementedError("your turn: one line")'
WAIT = 30_000  # milliseconds until an answer is there, on a busy machine


class Asking:
    """A page without any network, and the files that it asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.files: list[str] = []
        page.on("request", lambda request: self.files.append(request.url))

    def live(self) -> list[str]:
        """The names of the files for cells that it has asked for."""
        return [url.rpartition("/")[2] for url in self.files if "/_static/live/" in url or "/_static/torch/" in url]


@pytest.fixture
def alone(chromium: Browser, book: Build) -> Iterator[Callable[..., Asking]]:
    """Open a page of the book from its file, with the network cut."""
    contexts = []

    def opened(name: str = "book/01_relu", size: dict[str, int] = WIDE, scheme: str = "light") -> Asking:
        context = chromium.new_context(viewport=size, color_scheme=scheme, offline=True, reduced_motion="reduce")
        contexts.append(context)
        asking = Asking(context.new_page())
        asking.page.goto(f"{book.html.as_uri()}/{name}.html")
        return asking

    yield opened
    for context in contexts:
        context.close()


def started(cell: Locator) -> Locator:
    """Press a cell's Run and wait for its answer."""
    cell.locator("button.live-start").click()
    return answered(cell)


def answered(cell: Locator) -> Locator:
    expect(cell.locator(".live-torch")).to_be_visible(timeout=WAIT)
    return cell.locator(".live-out")


def run(cell: Locator, old: str, new: str) -> str:
    """Write something in the place of something, run, and return what is said."""
    area = cell.locator("textarea")
    text = area.input_value()
    assert old in text
    area.fill(text.replace(old, new))
    cell.locator(".live-out").evaluate("(node) => node.replaceChildren()")
    cell.locator(".live-run").click()
    return answered(cell).inner_text()


KINDS = {  # those of Pygments that have a colour of their own in the editor
    Keyword.Constant: "kc",
    Operator.Word: "k",
    Keyword: "k",
    Comment: "c1",
    String: "s1",
    Number: "mi",
    Name.Function: "nf",
    Name.Class: "nc",
    Name.Decorator: "nd",
}
IN_THE_EDITOR = """(area) => [...area.parentNode.querySelectorAll('.live-under span')].flatMap((s) =>
    [...s.textContent].filter((c) => c.trim()).map((c) => [s.className, c]))"""


def by_pygments(code: str) -> list[tuple[str, str]]:
    """Each letter of the code that has a kind, with it."""
    found = []
    for token, text in PythonLexer().get_tokens(code):
        kind = next((kind for wanted, kind in KINDS.items() if token in wanted), None)
        found += [(kind, letter) for letter in text if kind and letter.strip()]
    return found


@pytest.mark.parametrize("name", CHAPTERS)
def test_an_editor_has_the_colours_of_the_book_s_code(name: str, alone: Callable[..., Asking]) -> None:
    page = alone(name).page
    starts = page.locator("button.live-start")
    for _ in range(starts.count()):
        starts.first.click()  # it goes where its cell opens
    areas = page.locator(".live-code textarea")
    assert areas.count() > 3
    for area in areas.all():
        shown = [(kind, letter) for kind, letter in area.evaluate(IN_THE_EDITOR) if kind in KINDS.values()]
        assert shown == by_pygments(area.input_value())


THEME_LOOKS = 400  # milliseconds; the theme waits for 300 before it makes what scrolls a stop of the Tab key
PLACES = """(cell) => ["textarea", ".live-colours"].map((name) => {  // both at once: the page may still be scrolling
    const node = cell.querySelector(name);
    const [style, box] = [getComputedStyle(node), node.getBoundingClientRect()];
    const names = ["fontFamily", "fontSize", "lineHeight", "tabSize", "letterSpacing", "paddingLeft", "paddingTop"];
    return [box.top, node.scrollWidth, node.scrollHeight, ...names.map((name) => style[name])];
})"""


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_the_coloured_code_lies_where_the_letters_are_written(
    size: dict[str, int], alone: Callable[..., Asking]
) -> None:
    page = alone(size=size).page
    cell = page.locator(RELU)
    cell.locator("button.live-start").click()
    area, below = cell.locator("textarea"), cell.locator(".live-colours")
    code = "x = '" + "a" * 300 + "'\nif x:\n\ty = 'open\n" + 'z = """two\n' * 9 + "\n"
    area.fill(code)
    assert below.evaluate("(node) => node.textContent") == code + "\n"
    area.evaluate("(area) => (area.scrollLeft = 170)")
    expect(below).to_have_attribute("style", re.compile(r"translateX\(-170px\)"))
    written, coloured = cell.evaluate(PLACES)
    assert written == coloured
    assert area.evaluate("(area) => getComputedStyle(area).color") == "rgba(0, 0, 0, 0)"
    page.evaluate("dispatchEvent(new Event('resize'))")  # what is wider than its box becomes a stop of the Tab key
    page.wait_for_timeout(THEME_LOOKS)
    assert page.locator("[aria-hidden=true] :is(pre, [tabindex='0'])").count() == 0


@pytest.mark.parametrize("name", CHAPTERS)
def test_without_a_click_nothing_is_loaded_and_a_page_holds_no_more_than_a_class(
    name: str, alone: Callable[..., Asking], book: Build
) -> None:
    asking = alone(name)
    asking.page.wait_for_load_state()
    assert asking.live() == []
    assert asking.page.workers == []
    html = (book.html / f"{name}.html").read_text(encoding="utf-8")
    assert "live-task" not in html and "tasks-" not in html
    page = read(book, name)
    assert len(page.select(".cell.live")) > 3
    assert asking.page.locator(".cell.live .rank button.live-start").count() == len(page.select(".cell.live"))
    own = set(page_tasks.TASKS) & {task.name for task in module(page_tasks.SETS[name]).TASKS}
    assert len(page.select(".live-open")) == bool(own)


def test_a_page_s_scripts_come_without_their_comments(book: Build) -> None:
    for name in ("page.js", "a11y.js", "message_filter.js"):
        built = (book.html / "_static" / name).read_text(encoding="utf-8")
        source = (ROOT / "book/_static" / name).read_text(encoding="utf-8")
        lines = [line for line in source.splitlines() if not re.match(r"\s*//|/\*| \*", line)]
        assert built.splitlines() == lines and len(built) < len(source)


def test_what_a_click_loads_comes_from_the_book_s_folder(alone: Callable[..., Asking]) -> None:
    asking = alone()
    started(asking.page.locator(RELU))
    wanted = ["live.js", "live.css", "01_relu.js", "page-torch.js", "python.js", "coach.js", "tasks-relu.js"]
    assert sorted(asking.live()) == sorted(wanted)
    assert [url for url in asking.files if not url.startswith(("file://", "blob:", "data:"))] == []
    asking.page.locator(".cell.tag_turn\\:exp button.live-start").click()
    answered(asking.page.locator(".cell.tag_turn\\:exp"))
    assert sorted(asking.live()) == sorted(wanted)  # once for a page


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (NARROW, "light"), (WIDE, "dark"), (NARROW, "dark")])
def test_a_turn_is_written_and_its_mistake_named(
    size: dict[str, int], scheme: str, alone: Callable[..., Asking]
) -> None:
    page = alone(size=size, scheme=scheme).page
    cell = page.locator(RELU)
    said = started(cell).inner_text()
    assert "✗ gradient: ReLU's backward is not written yet." in said
    assert cell.locator("textarea").evaluate("(a) => a.value.slice(a.selectionStart, a.selectionEnd)").strip() == BLANK
    said = run(cell, BLANK, "return (x > 0).to(g.dtype)")
    assert "✗ gradient: Your gradient is the mask, 0 or 1: the upstream gradient is missing." in said
    assert "… second order: Judged once the gradient is right." in said
    said = run(cell, "return (x > 0).to(g.dtype)", "return torch.where(x > 0, g, 0)")
    assert "All 5 checks hold." in said and "Not checked in the page: float16" in said
    assert "on the page's own small torch" in said
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide == size["width"]


def test_what_was_written_is_kept_reset_and_forgotten(alone: Callable[..., Asking]) -> None:
    page = alone().page
    cell = page.locator(RELU)
    started(cell)
    run(cell, BLANK, "return g  # mine")
    page.reload()
    assert cell.locator("button.live-start").inner_text() == "Go on"
    started(cell)
    assert "# mine" in cell.locator("textarea").input_value()
    cell.get_by_role("button", name="Reset").click()
    assert BLANK in cell.locator("textarea").input_value()
    page.reload()
    assert cell.locator("button.live-start").inner_text() == "Run"
    started(cell)
    run(cell, BLANK, "return g  # mine")
    page.goto(page.url.replace("01_relu", "intro"))
    forget = page.get_by_role("button", name="Forget what I have read, answered and written")
    for _ in range(20):  # another page of the same browser may see a moment later what was kept
        if forget.count():
            break
        page.wait_for_timeout(500)
        page.reload()
    forget.click()
    page.go_back()
    assert cell.locator("button.live-start").inner_text() == "Run"


def test_by_keyboard_alone(alone: Callable[..., Asking]) -> None:
    page = alone().page
    cell = page.locator(RELU)
    cell.locator("button.live-start").focus()
    page.keyboard.press("Enter")
    answered(cell)
    area = cell.locator("textarea")
    expect(area).to_be_focused()
    before = area.input_value()
    page.keyboard.type("pass")  # in the place of the statement that is selected
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("y = x")
    assert area.input_value().endswith("        pass\n            y = x")
    for _ in range(30):
        page.keyboard.press("Control+z")
    assert area.input_value() == before
    page.keyboard.press("Control+Enter")
    answered(cell)
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(cell.locator(".live-run")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(area).to_be_focused()
    page.keyboard.press("Tab")
    expect(area).to_be_focused()  # it indents again


def test_tab_indents_and_dedents_the_lines_that_are_chosen(alone: Callable[..., Asking]) -> None:
    page = alone().page
    cell = page.locator(RELU)
    started(cell)
    area = cell.locator("textarea")
    area.fill("if x:\n    a\n    b")
    area.evaluate("(a) => a.setSelectionRange(8, a.value.length)")
    page.keyboard.press("Tab")
    assert area.input_value() == "if x:\n        a\n        b"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    assert area.input_value() == "if x:\na\nb"
    area.evaluate("(a) => a.setSelectionRange(5, 5)")
    page.keyboard.press("Enter")
    page.keyboard.type("c")
    assert area.input_value() == "if x:\n    c\na\nb"
    assert cell.locator(".live-lines span").count() == 4


def test_an_error_names_its_line_and_marks_it(alone: Callable[..., Asking]) -> None:
    cell = alone().page.locator(".cell.tag_turn\\:numbers")
    started(cell)
    said = run(cell, "None]", "nothing]")
    assert "Line 3: NameError: name 'nothing' " in said
    assert cell.locator(".live-marked").inner_text().strip().endswith("3")
    assert re.search(r"Line \d: SyntaxError", run(cell, "nothing]", "nothing"))
    assert "the same as autograd: True" in run(cell, "nothing", "21.0]")
    assert cell.locator(".live-marked").count() == 0


def test_what_the_page_s_torch_lacks_leads_to_jupyter(alone: Callable[..., Asking]) -> None:
    cell = alone().page.locator(RELU)
    started(cell)
    said = run(cell, BLANK, "return torch.erf(x) * g")
    assert "✓ value: Right" in said  # what can be judged is
    assert "? gradient: torch.erf is not in the page's torch: run this in Jupyter." in said
    area = cell.locator("textarea")
    area.fill("import numpy\n" + area.input_value())
    cell.locator(".live-run").click()
    said = answered(cell).inner_text()
    expect(cell.locator(".live-wrong")).to_have_text(
        "Line 1: numpy is not in the page's Python. Run this in Jupyter: jupyter lab book/01_relu.ipynb"
    )


def test_a_loop_is_stopped_by_the_clock_and_by_its_reader(alone: Callable[..., Asking]) -> None:
    page = alone().page
    cell = page.locator(".cell.tag_turn\\:numbers")
    started(cell)
    area = cell.locator("textarea")
    text = area.input_value()
    area.fill("while True:\n    pass")
    cell.locator(".live-run").click()
    expect(cell.locator(".live-run")).to_have_text("Stop")
    cell.locator(".live-run").click()
    expect(cell.locator(".live-out")).to_have_text("Stopped.")
    expect(cell.locator(".live-run")).to_have_text("Run")
    cell.locator(".live-run").click()
    expect(cell.locator(".live-wrong")).to_contain_text("stopped after 5 seconds", timeout=WAIT)
    area.fill(text)
    assert "the same as autograd: True" in run(cell, "None]", "21.0]")
    assert "All 5 checks hold." in _mended(page.locator(RELU))  # the coach has its tasks in the new runtime, too


def test_a_cell_waits_for_another_and_its_clock_starts_then(alone: Callable[..., Asking]) -> None:
    page = alone().page
    first, second = page.locator(".cell.tag_turn\\:numbers"), page.locator(RELU)
    started(first)
    started(second)
    first.locator("textarea").fill("while True:\n    pass")
    second.locator("textarea").fill(
        second.locator("textarea").input_value().replace(BLANK, "return torch.where(x > 0, g, 0)")
    )
    first.locator(".live-run").click()
    second.locator(".live-run").click()
    expect(second.locator(".live-out")).to_have_text("Waiting for the cell that runs …")
    expect(first.locator(".live-wrong")).to_contain_text("stopped after 5 seconds", timeout=WAIT)
    expect(second.locator(".live-out")).to_contain_text("All 5 checks hold.", timeout=WAIT)


def test_who_stops_waiting_stops_nobody_else(alone: Callable[..., Asking]) -> None:
    page = alone().page
    first, second = page.locator(".cell.tag_turn\\:numbers"), page.locator(RELU)
    started(first)
    started(second)
    first.locator("textarea").fill("n = 0\nwhile n < 1_000_000:\n    n += 1\nprint('counted')")
    first.locator(".live-run").click()
    second.locator(".live-run").click()
    second.locator(".live-run").click()  # it waited, and is stopped
    expect(second.locator(".live-out")).to_have_text("Stopped.")
    expect(first.locator(".live-printed")).to_have_text("counted", timeout=WAIT)


def test_what_holds_keeps_its_mark_and_a_reset_can_be_undone(alone: Callable[..., Asking]) -> None:
    page = alone().page
    cell = page.locator(RELU)
    assert "All 5 checks hold." in _mended(cell)
    expect(cell.locator(".rank")).to_contain_text("✓ the checks hold")
    mine = cell.locator("textarea").input_value()
    cell.get_by_role("button", name="Reset").click()
    assert BLANK in cell.locator("textarea").input_value()
    page.keyboard.press("Control+z")
    assert cell.locator("textarea").input_value() == mine
    page.reload()
    expect(cell.locator(".rank")).to_contain_text("✓ the checks hold")
    expect(page.locator("section#exercises > .live-open button")).to_be_visible()


def test_what_is_printed_does_not_bury_what_is_said(alone: Callable[..., Asking]) -> None:
    cell = alone().page.locator(".cell.tag_turn\\:numbers")
    started(cell)
    run(cell, "mine = [31.0, None]", "mine = [31.0, 21.0]\nfor i in range(500):\n    print(i)")
    assert cell.locator(".live-out").bounding_box()["height"] < 500


def _mended(cell: Locator) -> str:
    started(cell)
    return run(cell, BLANK, "return torch.where(x > 0, g, 0)")


def test_a_wrong_version_is_mended(alone: Callable[..., Asking]) -> None:
    page = alone().page
    cell = page.locator(".cell.rank-wrong.live").first
    assert "the upstream gradient is missing" in started(cell).inner_text()
    assert "All 5 checks hold." in run(cell, "return (x > 0).to(g.dtype)", "return torch.where(x > 0, g, 0)")
    cell.get_by_role("button", name="Show a solution").click()
    assert "class ReLU" in cell.locator(".live-solution pre").inner_text()


def test_a_set_is_done_in_the_page(alone: Callable[..., Asking]) -> None:
    page = alone(size=NARROW).page
    page.get_by_role("button", name="Do the exercises here, in the page").click()
    tasks = page.locator(".live-task")
    expect(tasks).to_have_count(3)
    assert [task.get_attribute("data-task") for task in tasks.all()] == ["Square", "LeakyReLU", "Tanh"]
    square = tasks.first
    square.locator(".live-run").click()
    assert "✗ value: Square is not written yet." in answered(square).inner_text()
    assert square.locator("summary", has_text="Hint").count() == 3
    square.get_by_role("button", name="Show a solution").click()
    assert square.locator(".live-solution").count() == 0
    square.get_by_role("button", name="Not passed yet. Show it all the same").click()
    right = square.locator(".live-solution pre").inner_text()
    square.locator("textarea").fill(right.replace("2 * x", "x"))
    square.locator(".live-out").evaluate("(node) => node.replaceChildren()")
    square.locator(".live-run").click()
    assert "the factor 2 of the derivative 2x is missing" in answered(square).inner_text()
    assert "All 4 checks hold." in run(square, "x * g", "2 * x * g")
    for link in page.locator(".live-tasks a[href]").all():
        assert not link.get_attribute("href").startswith("../../")


def test_an_error_in_setup_context_is_not_forward_s_and_prints_are_not_repeated(alone: Callable[..., Asking]) -> None:
    cell = alone().page.locator(RELU)
    started(cell)
    said = run(cell, "ctx.save_for_backward(x)", "raise NotImplementedError()")
    assert "✗ value: ReLU's setup_context is not written yet." in said
    said = run(cell, "raise NotImplementedError()", "print(x)\n        ctx.save_for_backward(nothing)")
    assert "✗ value: setup_context does not know nothing: forward's variables are forward's own." in said
    assert "tensor(" not in said


def test_what_the_page_cannot_judge_is_said_of_the_task(alone: Callable[..., Asking]) -> None:
    page = alone().page
    page.get_by_role("button", name="Do the exercises here, in the page").click()
    tanh = page.locator(".live-task[data-task=Tanh]")
    tanh.get_by_role("button", name="Show a solution").click()
    tanh.get_by_role("button", name="Not passed yet. Show it all the same").click()
    tanh.locator("textarea").fill(tanh.locator(".live-solution pre").inner_text())
    tanh.locator(".live-run").click()
    said = answered(tanh).inner_text()
    assert "? saved: not checked in the page" in said and "All 4 checks that run in the page hold." in said


def test_the_first_page_s_bump_is_mended(alone: Callable[..., Asking]) -> None:
    cell = alone("book/intro").page.locator(".cell.live")
    assert "Jacobian mismatch for output 0 with respect to input 0" in started(cell).inner_text()
    said = run(cell, "return g * (-2 * x)", "return g * (-2 * x) * torch.exp(-x * x)")
    assert "✓ gradcheck passes: every factor is there." in said


STAND_IN = """
window.pageTorch = {
  name: "a stand-in for torch",
  put(path, text) { (this.files ??= {})[path] = text; },
  async start() { this.started = true; },
  async run(code) {
    (this.ran ??= []).push(code);
    return { printed: code.startsWith("class") ? "it ran\\n" : "", cut: false, error: null, fresh: false };
  },
  stop() {},
};
"""


def test_a_host_s_own_torch_runs_the_same_cells(visit: Callable[..., Watched]) -> None:
    page = visit("book/01_relu", protocol="http").page
    there = "**/_static/torch/page-torch.js"
    page.route(there, lambda route: route.fulfill(body=STAND_IN, content_type="text/javascript"))
    cell = page.locator(RELU)
    said = started(cell).inner_text()
    assert "it ran" in said and "on a stand-in for torch." in said
    put = page.evaluate("pageTorch.started && Object.keys(pageTorch.files).sort()")
    assert put == [*sorted(page_graders.files()), "tasks.json"]
    assert page.evaluate("pageTorch.ran.at(-1)") == "coach(ReLU)"
    assert page.evaluate("window.pagePython") is None


@pytest.mark.parametrize("look", ["light-wide", "light-narrow", "dark-wide"])
def test_a_screen_reader_finds_nothing_amiss(look: str, visit: Callable[..., Watched]) -> None:
    watched = visit("book/01_relu", look)
    cell = watched.page.locator(RELU)
    started(cell)
    run(cell, BLANK, "return (x > 0).to(g.dtype)")
    watched.page.get_by_role("button", name="Do the exercises here, in the page").click()
    expect(watched.page.locator(".live-task")).to_have_count(3)
    watched.page.wait_for_timeout(THEME_LOOKS)
    assert page_checks.inaccessible(watched, look) == []
    if look in page_checks.CONTRAST:
        assert page_checks.pale_text(watched) == []
    assert page_checks.overflowing(watched) == []
    assert cell.locator(".live-out").get_attribute("role") == "status"
    assert watched.complaints == watched.external == []


def test_without_script_a_page_is_as_it_was(visit: Callable[..., Watched]) -> None:
    page = visit("book/01_relu", protocol="http", scripts=False).page
    assert page.locator("button.live-start").count() == 0
    assert not page.locator(".live-open").is_visible()
    assert re.search(r"raise NotImplementedError", page.locator(RELU).inner_text())


def test_printed_an_open_cell_is_its_code_and_what_was_said(alone: Callable[..., Asking]) -> None:
    page = alone().page
    cell = page.locator(RELU)
    started(cell)
    page.emulate_media(media="print")
    assert not cell.locator(".live-run").is_visible()
    assert cell.locator("textarea").is_visible() and cell.locator(".live-out").is_visible()
