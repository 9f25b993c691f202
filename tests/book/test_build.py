"""The book builds from a clean copy with warnings as errors, and what it built is whole."""

import contextlib
import importlib.util
import io
import json
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from pybtex.database import parse_file
from sphinxcontrib import katex

from tests.book.book_build import PAGES, ROOT, Build
from tools import check_book

TERMS = {  # what a reader would look for on each page
    "book/intro": "bump",
    "book/setup": "powershell",
    "book/01_relu": "needs_input_grad",
    "book/02_sigmoid": "arctan",
    "book/03_ste": "estimator",
    "book/04_legendre": "chebyshev",
    "book/05_clipped_relu": "hardtanh",
    "book/06_linear": "broadcast",
    "book/07_logsumexp": "softmax",
    "book/08_qat": "quantisation",
    "book/09_checkpointing": "recompute",
    "book/10_flash_attention": "tiled",
    "book/a_errors": "setup_context",
    "book/b_library": "opcheck",
    "book/c_transforms": "tangent",
    "book/d_kernels": "triton",
    "book/e_checklist": "checklist",
    "book/f_implicit": "sinkhorn",
    "book/g_across": "megatron",
    "book/h_engine": "accumulategrad",
    "book/i_wild": "snntorch",
    "book/review": "gradreview",
    "book/jax": "custom_vjp",
    "book/functions": "softplus",
    "book/errata": "torch",
    "book/instructors": "gradebook",
    "book/ai": "assistant",
    "book/trust": "sandbox",
    "book/notation": "tuple",
    "book/glossary": "subgradient",
    "book/bibliography": "higham",
}


def source(page: str) -> Path:
    """The file that a page is made from."""
    return next(path for path in (ROOT / f"{page}.ipynb", ROOT / f"{page}.md") if path.exists())


def markdown(page: str) -> str:
    """The Markdown of a page: its text, or that of its notebook's markdown cells."""
    path = source(page)
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def without_code(text: str) -> str:
    """The Markdown without its fenced code."""
    return re.sub(r"^(`{3,}|~{3,}).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)


def headings(text: str) -> list[str]:
    """The headings of a Markdown text that hold no formula."""
    found = re.findall(r"^#{1,6} +(.+?) *$", without_code(text), re.MULTILINE)
    return [heading for heading in found if "$" not in heading]


def plain(heading: str) -> str:
    """A heading's letters and digits, without its number: what neither Markdown nor typography changes."""
    return re.sub(r"[\W_]", "", re.sub(r"^[\d.]+\. ", "", heading))


def slug(heading: str) -> str:
    """The name that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def html_of(book: Build, page: str) -> BeautifulSoup:
    """A built page."""
    return BeautifulSoup((book.html / f"{page}.html").read_text(encoding="utf-8"), "html.parser")


def test_the_build_has_no_warning(book: Build) -> None:
    if "COURSE_HTML" in os.environ:
        pytest.skip("COURSE_HTML names a build made elsewhere")
    assert book.status == 0, book.log[-4000:]
    assert "WARNING" not in book.log


def test_every_listed_page_is_built_and_no_other(book: Build) -> None:
    built = {str(path.relative_to(book.html).with_suffix("")) for path in book.html.rglob("*.html")}
    built = {page for page in built if not page.startswith("_")}  # what the theme carries
    assert built == {*PAGES, "index", "search", "404"}


@pytest.mark.parametrize("page", PAGES)
def test_page_is_whole(page: str, book: Build) -> None:
    html = html_of(book, page)
    shown = {plain(heading.get_text().removesuffix("#")) for heading in html.select("article :is(h1, h2, h3, h4)")}
    assert [heading for heading in headings(markdown(page)) if plain(heading) not in shown] == []
    assert len(html.select("article h1")) == 1
    assert html.select("article h2"), "the theme's script needs a section"


def test_what_make_book_looks_for_in_the_html_is_not_there(book: Build) -> None:
    assert check_book.faults(book.html, ROOT / "_toc.yml") == []


def test_formulas_and_their_style_sheet_are_of_one_katex() -> None:
    styles = (ROOT / "book/_static/katex/katex.min.css").read_text(encoding="utf-8")
    assert f'content:"{katex.katex_version}"' in styles
    fonts = {f"fonts/{path.name}" for path in (ROOT / "book/_static/katex/fonts").iterdir()}
    assert set(re.findall(r"url\((.*?)\)", styles)) == fonts


@pytest.mark.parametrize("page", PAGES)
def test_the_search_index_answers_for_each_page(page: str, book: Build) -> None:
    index = json.loads(re.search(r"Search\.setIndex\((.*)\)", (book.html / "searchindex.js").read_text("utf-8"))[1])
    number = index["docnames"].index(page)
    words = {
        word
        for part in ("terms", "titleterms")
        for word, where in index[part].items()
        if number in (where if isinstance(where, list) else [where])
    }
    assert any(TERMS[page].startswith(word) for word in words if len(word) > 3), sorted(words)


def test_glossary_is_sorted_and_every_link_to_it_has_its_entry() -> None:
    terms = re.findall(r"^### (.+)$", markdown("book/glossary"), re.MULTILINE)
    assert terms == sorted(terms, key=str.casefold) and len(terms) == len(set(map(slug, terms)))
    entries = set(map(slug, terms))
    linked = {page: set(re.findall(r"\]\(glossary\.md#([^)\s]+)\)", markdown(page))) for page in PAGES}
    linked["book/glossary"] |= set(re.findall(r"\]\(#([^)\s]+)\)", markdown("book/glossary")))
    assert {page: links - entries for page, links in linked.items() if links - entries} == {}
    assert all(linked[page] for page in PAGES if source(page).suffix == ".ipynb"), "a chapter links to no term"


def test_every_work_has_its_place_and_is_cited(book: Build) -> None:
    works = {f"ref-{key}" for key in parse_file(ROOT / "book" / "references.bib").entries}
    places = {node["id"] for node in html_of(book, "book/bibliography").select("article [id^=ref-]")}
    cited = {key for page in PAGES for key in re.findall(r"\]\(bibliography\.md#([^)\s]+)\)", markdown(page))}
    assert places == works
    assert cited - works == set(), "cited, and not in references.bib"
    assert works - cited == set(), "in references.bib, and cited nowhere"


def test_an_exercise_set_is_a_download_on_the_page(book: Build) -> None:
    for page in PAGES:
        if not re.match(r"book/\d\d_", page):
            continue
        links = html_of(book, page).select("article a.download[href$='.ipynb']")
        targets = {(book.html / "book" / link["href"]).resolve() for link in links}
        assert targets and all(target.is_file() for target in targets), f"{page} offers no exercise set"


@pytest.mark.parametrize("page", ["book/intro", "book/setup"])
def test_what_a_page_shows_is_what_its_code_prints(page: str) -> None:
    """Run the Python of a page from top to bottom; the text block after each piece is its output."""
    block = r"((?:(?!```).*\n)*)```"
    pieces = re.findall(rf"^```python\n{block}\n\n```text\n{block}", markdown(page), re.MULTILINE)
    assert pieces
    names: dict[str, object] = {}
    for code, shown in pieces:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page, "exec"), names)
        assert printed.getvalue().rstrip() == shown.rstrip()


def test_a_node_that_does_not_run_ends_the_build_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("course_book", ROOT / "book/_ext/course_book.py")
    course_book = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(course_book)
    monkeypatch.setattr(katex, "NODEJS_BINARY", sys.executable)  # which takes KaTeX's script for wrong Python
    with pytest.raises(katex.KaTeXError, match="ended with status 1 before it listened"):
        course_book.start_katex(tmp_path, 60.0)


def test_what_grading_and_tools_write_is_not_part_of_the_book() -> None:
    """A notebook or a README in one of these folders would end the build, or be published."""
    excluded = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["exclude_patterns"]
    ignored = re.findall(r"^/?([\w.]+)/$", (ROOT / ".gitignore").read_text(encoding="utf-8"), re.MULTILINE)
    own = {"_build", "__pycache__", ".ipynb_checkpoints", ".jupyter_cache", ".virtual_documents", ".doctor"}
    assert len(ignored) > 10 and {*ignored} - {*excluded} - own - {".import_linter_cache"} == set()
