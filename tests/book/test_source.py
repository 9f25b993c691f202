"""Where a page comes from and how it is run: the line below it, what is folded below its title, the code so far."""

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.book.book_build import PAGES, ROOT, Build, read
from tests.book.page_checks import Watched

sys.path.insert(0, str(ROOT / "book" / "_ext"))
from course_source import foot, report_link

NOTEBOOKS = [page for page in PAGES if (ROOT / f"{page}.ipynb").exists()]


@pytest.mark.parametrize("page", PAGES)
def test_below_a_page_stands_the_name_of_its_source(page: str, book: Build) -> None:
    (line,) = read(book, page).select("article p.page-source")
    assert (ROOT / line.code.get_text()).is_file() and line.code.get_text().startswith(f"{page}.")
    assert line.get_text().startswith("Something wrong on this page? Tell whoever gave you the book")


def test_pages_without_a_source_name_none(book: Build) -> None:
    assert [page for page in ("search", "404") if read(book, page).select(".page-source")] == []


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_below_its_title_a_notebook_says_how_it_is_run(page: str, book: Build) -> None:
    html = read(book, page)
    (folded,) = html.select("article details.run")
    assert html.select("article h1 ~ details.run") == [folded] and folded.find_next("h2")
    assert folded.pre.get_text().strip() == f"jupyter lab {page}.ipynb"
    assert [link["href"] for link in folded.select("a")] == ["setup.html"]


CONF = """import sys
sys.path.insert(0, {ext!r})
extensions, root_doc = ["myst_nb", "course_source"], "book/01_small"
nb_execution_mode = "off"
"""


def build(tree: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Build a book of one page by somebody who has a repository or an address for errors."""
    (tree / "book").mkdir()
    (tree / "conf.py").write_text(CONF.format(ext=str(ROOT / "book" / "_ext")))
    cells = [new_markdown_cell("# Small\n\nText."), new_code_cell("x = 1"), new_markdown_cell("## On\n\nText.")]
    nbformat.write(new_notebook(cells=cells), tree / "book" / "01_small.ipynb")
    command = [sys.executable, "-m", "sphinx", "-q", str(tree), str(tree / "out")]
    return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=120)


def test_with_a_repository_a_notebook_opens_in_two_places_and_its_source_is_linked(tmp_path: Path) -> None:
    done = build(tmp_path, COURSE_REPOSITORY="https://github.com/some-one/course.git")
    assert done.returncode == 0, done.stderr
    html = BeautifulSoup((tmp_path / "out/book/01_small.html").read_text(encoding="utf-8"), "html.parser")
    assert [link["href"] for link in html.select("details.run a.external")] == [
        "https://colab.research.google.com/github/some-one/course/blob/HEAD/book/01_small.ipynb",
        "https://mybinder.org/v2/gh/some-one/course/HEAD?labpath=book%2F01_small.ipynb",
    ]
    assert [link["href"] for link in html.select(".page-source a")] == [
        "https://github.com/some-one/course/issues/new?title=book%2F01_small.ipynb",
        "https://github.com/some-one/course/blob/HEAD/book/01_small.ipynb",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COURSE_REPOSITORY", "github.com/some-one/course"),
        ("COURSE_REPOSITORY", 'https://github.com/some-one/"><script>'),
        ("COURSE_REPORT", "somebody"),
    ],
)
def test_an_address_that_is_none_ends_the_build_with_a_line(name: str, value: str, tmp_path: Path) -> None:
    done = build(tmp_path, **{name: value})
    assert done.returncode != 0 and f"{name} is {value!r}: give " in done.stderr


@pytest.mark.parametrize(
    ("report", "repository", "link"),
    [
        ("", "", ""),
        ("tell@example.org", "a/b", "mailto:tell@example.org?subject=book%2Fx.md"),
        ("https://example.org/errors", "a/b", "https://example.org/errors"),
        ("", "a/b", "https://github.com/a/b/issues/new?title=book%2Fx.md"),
    ],
)
def test_where_an_error_is_reported(report: str, repository: str, link: str) -> None:
    assert report_link("book/x.md", repository, report) == link
    words = BeautifulSoup(foot("book/x.md", repository, report), "html.parser").get_text()
    told = "Report it" if link else "Tell whoever gave you the book"
    assert words == f"Something wrong on this page? {told}, and name its source: book/x.md."


# ------------------------------------------------------------------------------------------------ the code so far


def test_the_code_so_far_is_copied_and_runs_to_the_end(visit: Callable[..., Watched]) -> None:
    page = visit("book/03_ste", protocol="http").page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    buttons = page.locator("button.copyall")
    blocks = page.locator("div.cell_input div.highlight pre")
    assert buttons.count() == blocks.count() - 1 > 10
    assert page.get_by_role("button", name="Copy all code up to here").count() > 10
    buttons.nth(4).focus()
    page.keyboard.press("Enter")
    copied = page.evaluate("navigator.clipboard.readText()")
    shown = [text.rstrip() for text in blocks.all_text_contents()[:6]]
    assert copied == "\n\n\n".join(shown) + "\n"
    ast.parse(copied)
    assert buttons.nth(4).get_attribute("data-tooltip") == "Copied!"


def test_the_code_so_far_is_the_notebook_s(visit: Callable[..., Watched]) -> None:
    cells = json.loads((ROOT / "book/03_ste.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]).strip() for cell in cells if cell["cell_type"] == "code"]
    shown = visit("book/03_ste").page.locator("div.cell_input div.highlight pre").all_text_contents()
    assert [text.strip() for text in shown] == code


# ------------------------------------------------------------------------------------------------ formulas

COLOURS = """(page) => [...document.querySelectorAll(".katex-html .gradient")].map(
  (node) => [node.textContent, getComputedStyle(node).color])"""
BACKWARD = """() => { const node = document.body.appendChild(document.createElement("i"));
  node.style.color = "var(--backward)"; return getComputedStyle(node).color; }"""


@pytest.mark.parametrize("look", ["light-wide", "dark-narrow"])
def test_what_flows_backward_has_its_colour_in_formulas(look: str, visit: Callable[..., Watched]) -> None:
    page = visit("book/functions", look).page
    found, colour = page.evaluate(COLOURS), page.evaluate(BACKWARD)
    assert {text[0] for text, _ in found} == {"v", "G", *(text[0] for text, _ in found if "\u02c9" in text)}
    assert len(found) > 100 and {shown for _, shown in found} == {colour}


def test_who_copies_a_formula_gets_it_as_it_was_written(book: Build) -> None:
    written = [node.get_text() for node in read(book, "book/functions").select(".katex annotation")]
    assert "\\bar x = 2x\\,v" in written and [text for text in written if "htmlClass" in text] == []


def test_the_rows_of_the_values_are_no_gradients(book: Build) -> None:
    shown = [node.get_text() for node in read(book, "book/10_flash_attention").select(".katex-html .gradient")]
    assert shown and [text for text in shown if text in ("v", "V")] == []
