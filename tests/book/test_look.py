"""What a page looks like: wrong versions, Functions, the lines below a title, what is printed, the text's face."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable
from copy import copy
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup, Tag
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from playwright.sync_api import Page

from tests.book.book_build import PAGES, ROOT, Build, read
from tests.book.page_checks import Watched
from tools.cards import read_card

EXT, STATIC = ROOT / "book" / "_ext", ROOT / "book" / "_static"
CHAPTERS = [page for page in PAGES if re.match(r"book/\d\d_", page)]
NOTEBOOKS = [page for page in PAGES if (ROOT / f"{page}.ipynb").exists()]
LABEL = "Wrong version: runs, and is wrong"


def cells(page: str) -> list[nbformat.NotebookNode]:
    """The cells of a page's notebook."""
    return nbformat.read(ROOT / f"{page}.ipynb", as_version=4).cells


def tags(cell: nbformat.NotebookNode) -> list[str]:
    """Which wrong versions a cell runs."""
    return [tag for tag in cell.metadata.get("tags", []) if tag.startswith("misconception:")]


def words(node: Tag | None) -> str:
    """What a reader reads of an element; a formula counts once."""
    assert node is not None
    copy = BeautifulSoup(str(node), "html.parser")
    for hidden in copy.select(".katex-html, annotation, .headerlink"):
        hidden.decompose()
    return " ".join(copy.get_text().split())


# ------------------------------------------------------------------------------------------------------ code


def rows(book: Build, page: str) -> dict[str, list[str]]:
    """The rows of the built table of wrong versions that lead to a section of ``page``, by their title."""
    table = read(book, "book/functions").select("#wrong-versions-and-the-check-that-catches-each tbody tr")
    found = {}
    for row in table:
        link = row.select_one("td a")
        if link is not None and link["href"] == f"{Path(page).name}.html#how-it-breaks":
            found[words(link)] = [words(cell) for cell in row.select("td")][2:]
    return found


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_wrong_version_says_so_and_who_catches_it(page: str, book: Build) -> None:
    html, table = read(book, page), rows(book, page)
    shown = html.select(".cell.rank-wrong")
    assert len(shown) == sum(bool(tags(cell)) for cell in cells(page)) == len(table)
    for cell, (title, (gradcheck, gradgradcheck, caught)) in zip(shown, table.items(), strict=True):
        assert words(cell.select_one(":scope > p.rank:first-child")) == LABEL, title
        code = cell.select_one(":scope > p.rank + .cell_input")
        marked = [line.get_text() for line in code.select(".hll")]
        assert marked and [line for line in marked if not re.fullmatch(r".*\S  # wrong\n", line)] == [], title
        assert code.get_text().count("# wrong") == len(marked) <= 2, title
        chips = [words(chip).replace(": ", " ") for chip in cell.select(":scope > .cell_input + ul.verdicts > li")]
        assert chips == [
            f"gradcheck {gradcheck}",
            f"gradgradcheck {gradgradcheck}",
            f"Caught by {caught}".replace(": ", " "),
        ]


def methods(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> dict[str, str]:
    """The methods of a class as Python reads them, without notes, and those of the known class that it is made from."""
    bases = [known[name] for base in node.bases if (name := ast.unparse(base)) in known and name != node.name]
    inherited = methods(bases[0], known) if bases else {}
    return inherited | {part.name: ast.unparse(part) for part in node.body if isinstance(part, ast.FunctionDef)}


@pytest.mark.parametrize("page", CHAPTERS)
def test_the_marked_line_stands_in_a_method_that_differs_from_the_right_one(page: str) -> None:
    right: dict[str, ast.ClassDef] = {}
    for cell in cells(page):
        if cell.cell_type != "code" or cell.source.startswith("%%"):
            continue
        classes = [node for node in ast.parse(cell.source).body if isinstance(node, ast.ClassDef)]
        if not tags(cell):
            assert "# wrong" not in cell.source, cell.id
            right |= {node.name: node for node in classes}
            continue
        marked = [at for at, line in enumerate(cell.source.splitlines(), 1) if line.endswith("  # wrong")]
        for line in marked:
            (where,) = [
                (node, part) for node in classes for part in node.body if begin(part) <= line <= part.end_lineno
            ]
            node, method = where
            kept = right.get(f"Right{node.name.removeprefix('Flash')}", right[node.name])
            assert ast.unparse(method) != methods(kept, right).get(method.name), f"{cell.id}: line {line}"


def begin(node: ast.stmt) -> int:
    """The first line of a statement, of its decorators where it has some."""
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])


RANKED = ".rank-function, .rank-turn, .rank-wrong"


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_functions_are_named_and_experiments_plain(page: str, book: Build) -> None:
    html, name = read(book, page), Path(page).name
    listed = {
        link.get_text()
        for table in read(book, "book/functions").select("table")
        if words(table.select_one("th")) == "Function"
        for row in table.select("tbody tr")
        if (link := row.select_one("td a"))["href"].startswith(f"{name}.html#")
    }
    named = [code.get_text() for code in html.select(".cell.rank-function > p.rank code")]
    turned = re.findall(
        r"^class (\w+)", "\n".join(cell.get_text() for cell in html.select(".rank-turn pre")), re.MULTILINE
    )
    assert set(named) <= listed <= {*named, *turned} and (named or page not in CHAPTERS)
    assert html.select(f".rank-function.rank-wrong, .cell:not({RANKED}, .rank-language) > p.rank") == []
    assert {words(cell.p) for cell in html.select(".cell.rank-turn")} <= {"Your turn: write here"}
    for cell in html.select(".cell.rank-function"):
        names = [code.get_text() for code in cell.select(":scope > p.rank code")]
        assert words(cell.p) == f"Function{'s' * (len(names) > 1)} {', '.join(names)}"
        assert [name for name in names if f"class {name}" not in cell.select_one(".cell_input").get_text()] == []


@pytest.mark.parametrize("look", ["light-wide", "dark-wide"])
def test_the_bar_beside_code_tells_the_ranks(look: str, visit: Callable[..., Watched]) -> None:
    opened = visit("book/01_relu", look).page
    edges = """all => [...new Set(all.map((node) => { const style = getComputedStyle(node);
        return style.borderLeft === style.borderTop && getComputedStyle(node, "::before").content; }))]"""
    plain, ranked = f".cell:not({RANKED}) > .cell_input", f".cell:is({RANKED}) > .cell_input"
    assert opened.locator(plain).evaluate_all(edges) == ["none"], "the theme's bar is green, which is for what is right"
    assert set(opened.locator(ranked).evaluate_all(edges)) == {"none", '""'}, "a Function's bar is in the page"
    bar = """node => { const style = getComputedStyle(node, "::before");
        return [style.backgroundImage, style.backgroundColor]; }"""
    wrong, turn = (opened.locator(f".rank-{rank} > .cell_input").first.evaluate(bar) for rank in ("wrong", "turn"))
    red, green, blue = map(int, re.findall(r"\d+", turn[1]))
    assert turn[0] == "none" and green > 1.3 * max(red, blue)
    red, green, blue = map(int, re.findall(r"\d+", wrong[1]))
    assert wrong[0] == "none" and red > 1.5 * max(green, blue)
    final = opened.locator(".rank-function", has_text="RightReLU = ReLU").locator(".bar")
    function = final.evaluate("node => getComputedStyle(node).backgroundImage")
    above, below, *_ = dict.fromkeys(re.findall(r"rgb\(([^)]*)\)", function))
    above, below = (list(map(int, colour.split(","))) for colour in (above, below))
    assert above[2] > above[0] and below[0] > below[2], "forward is blue, backward orange"


def test_the_bar_changes_its_colour_where_backward_begins(visit: Callable[..., Watched]) -> None:
    cell = visit("book/01_relu").page.locator(".rank-function", has_text="RightReLU = ReLU").locator(".cell_input")
    begins, ends = cell.evaluate("""node => {
        const code = node.querySelector("pre"), text = code.innerText, own = node.getBoundingClientRect();
        const top = (part) => {  // of the line in which a part of the text stands, as a share of the bar
            const walk = document.createTreeWalker(code, NodeFilter.SHOW_TEXT), range = document.createRange();
            for (let at = text.indexOf(part), passed = 0; walk.nextNode(); passed += walk.currentNode.length)
                if (at < passed + walk.currentNode.length) {
                    range.setStart(walk.currentNode, at - passed);
                    range.setEnd(walk.currentNode, at - passed + 1);
                    return (range.getBoundingClientRect().top - own.top) / own.height;
                }
        };
        return [top("def backward"), top("RightReLU = ReLU")];
    }""")
    style = cell.locator(".bar").get_attribute("style")
    lines = cell.locator("pre").inner_text().rstrip("\n").count("\n") + 1
    place = re.search(r"var\(--backward\) calc\(.*? \* (\d+) / (\d+)\) calc\(.*? \* (\d+) / ", style)
    assert place is not None and int(place[2]) == lines
    first, after = int(place[1]) / lines, int(place[3]) / lines
    assert begins - 2.2 / lines < first < begins, "orange from the decorator on"
    assert after < ends, "and not beside what stands below the class"


@pytest.mark.parametrize("page", ["book/functions", "book/10_flash_attention"])
def test_the_bar_above_a_letter_is_not_cut_off(page: str, visit: Callable[..., Watched]) -> None:
    room = """all => all.map((accent) => accent.getBoundingClientRect().top -
        accent.closest("span.math").getBoundingClientRect().top)"""
    above = visit(page).page.locator("span.math .accent").evaluate_all(room)
    assert above and min(above) > 2, "A without its bar is another formula"


CONF = f"""import sys
sys.path.insert(0, {str(EXT)!r})
extensions, root_doc, exclude_patterns = ["myst_nb", "course_look"], "book/01_relu", ["book/functions.md"]
nb_execution_mode, nitpicky, suppress_warnings = "off", False, ["toc"]
"""
TABLE = "| Wrong version | Where | `gradcheck` | `gradgradcheck` | Caught by |\n|---|---|---|---|---|\n"
ROW = "| [The `mask` missing](01_relu.ipynb#how-it-breaks), of `ReLU` | 1 | passes | fails | $x = 0$ |\n"
CARD = "**What it takes**\n\n- **Time:** 60 minutes\n- **Difficulty:** 1 of 5\n- **Needs:** nothing\n"
BROKEN = {
    "": ("return g  # wrong", TABLE + ROW, "- One.\n"),
    "no line ends in `# wrong`": ("return g", TABLE + ROW, "- One.\n"),
    "has no row for 'The mask missing'": ("return g  # wrong", TABLE, "- One.\n"),
    "no list in a section Summary": ("return g  # wrong", TABLE + ROW, "One.\n"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_the_build_fails_where_something_is_missing(fault: str, tmp_path: Path) -> None:
    line, table, summary = BROKEN[fault]
    (tmp_path / "book").mkdir()
    (tmp_path / "conf.py").write_text(CONF)
    (tmp_path / "book" / "functions.md").write_text(table)
    wrong = new_code_cell(f"class ReLU:\n    def backward(ctx, g):\n        {line}")
    wrong.metadata["tags"] = ["misconception:ReLU.mask_missing"]
    parts = ["# Title\n", CARD, "## How it breaks\n\n**The `mask` missing.** So.", wrong, f"## Summary\n\n{summary}"]
    language = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
    notebook = new_notebook(
        metadata=language, cells=[new_markdown_cell(part) if isinstance(part, str) else part for part in parts]
    )
    (tmp_path / "book" / "01_relu.ipynb").write_text(json.dumps(notebook))
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(tmp_path), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert bool(done.returncode) == bool(fault) and fault in done.stderr, done.stderr


def strings(page: str) -> dict[str, list[str]]:
    """The code of a page's cells whose strings are C++ or CUDA, by the language's tag."""
    found: dict[str, list[str]] = {}
    for cell in cells(page):
        for tag in cell.metadata.get("tags", []):
            if tag.startswith("language:"):
                found.setdefault(tag.removeprefix("language:"), []).append(cell.source)
    return found


def test_each_string_in_another_language_is_tagged() -> None:
    tagged = [source for sources in strings("book/d_kernels").values() for source in sources]
    assert sorted(c.source for c in cells("book/d_kernels") if '= r"""' in c.source) == sorted(tagged)
    assert {line for source in tagged for line in source.splitlines() if len(line) > 80} == set()


def test_strings_in_another_language_are_coloured_as_that_language(book: Build) -> None:
    html = read(book, "book/d_kernels")
    shown = html.select("article div.rank-language")
    names = {"C++, in a string": "cpp", "CUDA, in a string": "cuda"}
    found: dict[str, list[str]] = {}
    for cell in shown:
        code = cell.select_one("div.cell_input pre")
        found.setdefault(names[words(cell.select_one("p.rank"))], []).append(code.get_text().strip("\n"))
    assert found == strings("book/d_kernels")
    spans = {(span["class"][0], span.get_text()) for cell in shown for span in cell.select("pre span[class]")}
    assert {("kt", "double"), ("k", "for"), ("k", "const")} <= spans
    assert any(kind == "cp" and text.startswith("#include") for kind, text in spans)
    assert {("kr", "__global__"), ("nb", "threadIdx")} <= spans
    assert {text for kind, text in spans if kind == "err"} == set()


# ------------------------------------------------------------------------------------------- below the title


@pytest.mark.parametrize("page", CHAPTERS)
def test_below_the_title_stand_what_it_takes_and_the_summary(page: str, book: Build) -> None:
    html = copy(read(book, page))
    (card,) = filter(None, (read_card(cell.source) for cell in cells(page)))
    chips = html.select("article h1 + ul.takes > li")
    dots = chips[1].select_one("[aria-hidden]").extract().get_text()
    assert dots == "●" * card.difficulty + "○" * (5 - card.difficulty)
    said = [words(chip) for chip in chips]
    assert said[:2] == [f"{card.minutes} minutes", f"difficulty {card.difficulty} of 5"]
    assert said[2].startswith("needs ")
    assert [link["href"] for link in chips[2].select("a")] == [need.replace(".ipynb", ".html") for need in card.needs]
    article = words(html.article)
    assert "What it takes" not in article and "You will be able to" in article
    brief = html.select_one("article ul.takes + details.brief")
    assert not brief.has_attr("open") and words(brief.summary) == "In 30 seconds"
    summary = html.select_one("#summary > ul")
    assert [words(item) for item in brief.select("li")] == [words(item) for item in summary.select("li")] != []
    assert brief.select("[id]") == [], "a link leads to the summary itself"


# ------------------------------------------------------------------------------------ what is read, and in what


@pytest.mark.parametrize("look", ["light-wide", "light-narrow"])
@pytest.mark.parametrize("page", NOTEBOOKS)
def test_what_is_printed_is_whole_and_has_no_copy_button(page: str, look: str, visit: Callable[..., Watched]) -> None:
    opened = visit(page, look, "file").page
    cut = """all => all.filter((node) => node.scrollWidth > node.clientWidth + 1).map((node) => node.innerText)"""
    assert opened.locator(".cell_output pre").evaluate_all(cut) == []
    assert opened.locator(".cell_output button.copybtn").count() == 0


LINES = """() => [...document.querySelectorAll(".bd-article section > p")].flatMap((node) => {
    if (node.querySelector(".katex, code") || !node.checkVisibility()) return []; // they have other widths
    const range = document.createRange(), lines = [];
    const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
    for (let top = null; walker.nextNode(); ) for (let at = 0; at < walker.currentNode.length; at++) {
        range.setStart(walker.currentNode, at);
        range.setEnd(walker.currentNode, at + 1);
        const box = range.getBoundingClientRect();
        if (!box.width) continue;
        if (top === null || box.top > top + 10) { lines.push(0); top = box.top; }
        lines[lines.length - 1]++;
    }
    return lines.slice(0, -1); // the last is as long as it happens to be
})"""


@pytest.mark.parametrize("page", ["book/instructors", "book/trust"])
def test_lines_have_60_to_70_characters(page: str, visit: Callable[..., Watched]) -> None:
    opened = visit(page, "light-wide").page
    opened.evaluate("() => document.fonts.ready")
    lines = sorted(opened.evaluate(LINES))
    assert len(lines) > 10 and 60 <= lines[len(lines) // 2] <= 70 and lines[-1] <= 80, lines
    for look in ("light-wide", "light-narrow"):
        size = visit(page, look).page.locator("article section > p").first.evaluate("n => getComputedStyle(n).fontSize")
        assert 17 <= float(size.removesuffix("px")) <= 18
    code, text = (opened.locator(f"article {part}").first.bounding_box()["width"] for part in ("pre", "section > p"))
    assert code > 1.25 * text, "code has more room"


def faces(page: Page, state: str) -> set[str]:
    """The text's faces that are in this state, as style and weight."""
    page.evaluate("() => document.fonts.ready")
    ours = """state => [...document.fonts].filter((font) => font.family.replaceAll('"', "") === "Course Text" &&
        font.status === state).map((font) => `${font.style} ${font.weight}`)"""
    return set(page.evaluate(ours, state))


def test_the_text_has_its_own_face_from_a_file_too(visit: Callable[..., Watched]) -> None:
    for protocol in ("http", "file"):
        opened = visit("book/01_relu", "light-wide", protocol).page
        assert faces(opened, "loaded") == {"normal normal", "normal 500 900", "italic normal"}
        assert opened.locator("article p").first.evaluate("n => getComputedStyle(n).fontFamily").startswith('"Course T')
    folder = STATIC / "text"
    assert sum(file.stat().st_size for file in folder.glob("*.woff2")) <= 40_000
    licence = (folder / "OFL.txt").read_text(encoding="utf-8")
    assert licence.startswith("Copyright") and "SIL OPEN FONT LICENSE" in licence


def test_nothing_jumps_when_the_face_arrives(visit: Callable[..., Watched]) -> None:
    tall = "() => document.querySelector('article').getBoundingClientRect().height"
    watched = visit("book/intro", "light-wide")  # the other pages have formulas, whose fonts come late too
    watched.page.evaluate("() => document.fonts.ready")
    with_face = watched.page.evaluate(tall)
    watched.page.route("**/text/*.woff2", lambda route: route.abort())
    watched.page.reload()
    assert faces(watched.page, "error"), "the face is not there"
    if not watched.page.evaluate("""() => [...document.fonts].some((font) => /Fallback/.test(font.family) &&
            font.status === "loaded")"""):
        pytest.skip("no Arial, and nothing like it")
    assert watched.page.evaluate(tall) == pytest.approx(with_face, rel=0.01)
