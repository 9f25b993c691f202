"""What every page owes its reader besides its text: a description, a way on, quick loading, a keyboard, paper."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import pytest
import tinycss2
import yaml
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Page
from pygments import highlight
from pygments.lexers import PythonLexer
from pygments.styles import get_style_by_name
from pygments.token import Text

from bench import lighthouse
from tests.book.book_build import PAGES, ROOT, Build, read

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import course_lean
import course_pages

DESCRIPTIONS = yaml.safe_load((ROOT / course_pages.DESCRIPTIONS).read_text(encoding="utf-8"))
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
MOST = {"width": 673, "height": 1000}  # A4 less margins of 16 mm, in CSS pixels


def said(html: BeautifulSoup) -> dict[str, list[str]]:
    """What the head says under each name."""
    named: dict[str, list[str]] = {}
    for tag in html.select("head meta[content]"):
        named.setdefault(tag.get("name") or tag.get("property"), []).append(tag["content"])
    return named


# ------------------------------------------------------------------------------------------------- the head


@pytest.mark.parametrize("page", [*PAGES, "search", "404", "index"])
def test_a_page_says_what_it_is(page: str, book: Build) -> None:
    html = read(book, page)
    head, told = said(html), DESCRIPTIONS[PAGES[0] if page == "index" else page].strip()
    assert head["description"] == head["og:description"] == [told]
    for name in ("og:title", "og:type", "og:site_name", "twitter:card"):
        assert len(head[name]) == 1 and head[name][0], name
    assert head["og:title"][0] in html.title.text
    assert (head.get("robots") == ["noindex"]) == (page in ("search", "404"))
    absent = {"og:url", "og:image"} & head.keys()
    assert not absent and not html.select("link[rel=canonical]"), "nobody named the site's address"
    icons = html.select("link[rel=icon], link[rel=apple-touch-icon]")
    assert len(icons) >= 2
    assert [icon for icon in icons if not (book.html / page).parent.joinpath(icon["href"]).is_file()] == []


def test_descriptions_are_of_a_length_that_is_shown_and_no_two_the_same() -> None:
    pages = {*PAGES, *course_pages.EXTRA}
    assert (
        list(course_pages.description_faults({page: text.strip() for page, text in DESCRIPTIONS.items()}, pages)) == []
    )


@pytest.mark.parametrize(
    ("descriptions", "fault"),
    [
        ({}, ("a", "no description: add a line `a: ...` to book/descriptions.yml")),
        ({"a": "x" * 69}, ("a", "its description has 69 characters: 70 to 160 are shown whole")),
        ({"a": "x" * 161}, ("a", "its description has 161 characters: 70 to 160 are shown whole")),
        (
            {"a": "x" * 70, "b": "x" * 70},
            ("b", "has the description of a: write one of its own in book/descriptions.yml"),
        ),
        ({"a": "x" * 70, "c": "y" * 70}, ("c", "described in book/descriptions.yml, and no page: remove its line")),
    ],
)
def test_a_description_that_is_missing_or_wrong_is_named(descriptions: dict, fault: tuple) -> None:
    pages = {"a", "b"} if "b" in descriptions else {"a"}
    assert list(course_pages.description_faults(descriptions, pages)) == [fault]


CONF = """import sys
sys.path.insert(0, {ext!r})
extensions, root_doc, html_title = ["course_pages"], "book/intro", "T"
"""


def small_build(tree: Path, url: str, described: str) -> subprocess.CompletedProcess[str]:
    """Build a book of two pages for a site at ``url``."""
    (tree / "book").mkdir()
    (tree / "conf.py").write_text(CONF.format(ext=str(ROOT / "book" / "_ext")))
    (tree / "book" / "intro.rst").write_text("Intro\n=====\n\n.. toctree::\n\n   a_errors\n")
    (tree / "book" / "a_errors.rst").write_text('A & "b"\n=======\n')
    (tree / course_pages.DESCRIPTIONS).write_text(described)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(tree), str(tree / "out")]
    return subprocess.run(command, env={"COURSE_URL": url}, capture_output=True, text=True, timeout=120)


FOUR = json.dumps({page: page[-1] * 70 for page in ("book/intro", "book/a_errors", "search", "404")})


def test_with_an_address_pages_name_it_and_the_lost_page_holds_at_any_depth(tmp_path: Path) -> None:
    done = small_build(tmp_path, "https://example.org/course", FOUR)
    assert done.returncode == 0, done.stderr
    book = Build(0, "", tmp_path / "out")
    for page, address in (("book/a_errors", "book/a_errors"), ("index", "book/intro"), ("404", "404")):
        html = read(book, page)
        assert said(html)["og:url"] == [f"https://example.org/course/{address}.html"]
        assert said(html)["og:image"] == ["https://example.org/course/_static/social-card.png"]
        assert said(html)["twitter:card"] == ["summary_large_image"]
        assert html.select_one("link[rel=canonical]")["href"] == said(html)["og:url"][0]
    assert said(read(book, "book/a_errors"))["og:title"] == [
        "A & \N{LEFT DOUBLE QUOTATION MARK}b\N{RIGHT DOUBLE QUOTATION MARK}"
    ]
    lost = read(book, "404")
    links = [tag[name] for name in ("href", "src", "action") for tag in lost.select(f"[{name}]")]
    local = [link for link in links if not link.startswith(("#", "https:"))]
    assert len(local) > 5 and [link for link in local if not link.startswith("/course/")] == []
    pages = [unquote(urlsplit(link).path).removeprefix("/course/") for link in local if ".html" in link]
    assert {"book/intro.html", "search.html", "book/a_errors.html"} <= set(pages)
    assert [page for page in pages if not (book.html / page).is_file()] == []


@pytest.mark.parametrize(
    ("url", "described", "told"),
    [
        ("example.org/course", FOUR, "COURSE_URL is 'example.org/course': give the site's address, such as https://"),
        ("", "{search: x", "book/descriptions.yml cannot be read"),
        ("", FOUR.replace("book/a_errors", "book/b"), "book/a_errors: no description: add a line"),
    ],
)
def test_a_build_fails_on_a_wrong_address_or_a_page_without_description(
    url: str, described: str, told: str, tmp_path: Path
) -> None:
    done = small_build(tmp_path, url, described)
    assert done.returncode != 0 and told in done.stderr, done.stderr


# -------------------------------------------------------------------------------------------------- the way on


def test_the_lost_page_leads_on(book: Build) -> None:
    links = [link["href"] for link in read(book, "404").select("article a[href]:not([href^='#'])")]
    assert len(links) == 3 and [link for link in links if not (book.html / link).is_file()] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_its_neighbours_and_its_sections_beside_it(page: str, book: Build) -> None:
    html, at = read(book, page), PAGES.index(page)
    before, after = PAGES[at - 1 : at] if at else [], PAGES[at + 1 : at + 2]
    for relation, button, expected in (("prev", "left-prev", before), ("next", "right-next", after)):
        for found in (
            html.select(f"link[rel={relation}]"),
            html.select(f".prev-next-area a.{button}"),
        ):
            assert [PurePosixPath(tag["href"]).stem for tag in found] == [PurePosixPath(name).stem for name in expected]
    beside = {link["href"] for link in html.select("#pst-secondary-sidebar a[href^='#']")}
    sections = {f"#{section['id']}" for section in html.select("article section > section:has(> h2)")}
    assert sections and sections <= beside


def test_code_has_a_copy_button(open_page: Callable[..., Page]) -> None:
    page = open_page("book/02_sigmoid")
    blocks = page.locator("div.cell_input div.highlight pre").count()
    assert blocks > 10 and page.locator("div.cell_input button.copybtn").count() == blocks


# ---------------------------------------------------------------------------------------------- quick to show


@pytest.mark.parametrize("page", [*PAGES, "search", "404"])
def test_a_page_is_quick_to_show(page: str, book: Build) -> None:
    html = read(book, page)
    assert html.html["data-theme"] == "light", "a page without scripts has colours"
    sheets = [urlsplit(tag["href"]).path for tag in html.select("link[rel=stylesheet]")]
    assert len(sheets) == 1 and (book.html / page).parent.joinpath(sheets[0]).resolve() == book.html / course_lean.SHEET
    blocking = [str(tag)[:120] for tag in html.select("script[src]") if not tag.has_attr("defer")]
    assert blocking == []
    images = html.select("article img")
    assert [tag.get("loading") for tag in images] == [None, *["lazy"] * (len(images) - 1)][: len(images)]
    assert lighthouse.weight(book.html / f"{page}.html") < lighthouse.MOST


def test_the_style_sheet_is_small_and_whole(book: Build, open_page: Callable[..., Page]) -> None:
    text = (book.html / course_lean.SHEET).read_text(encoding="utf-8")
    assert len(lighthouse.compressed(book.html / course_lean.SHEET)) < 40_000
    written = tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True)
    understood = open_page("book/intro", "http").evaluate("""() => document.styleSheets[0].cssRules.length""")
    assert [rule.message for rule in written if rule.type == "error"] == []
    assert understood >= 0.97 * len(written) > 500, "a browser drops rules for other browsers, but few"
    named = {url for url in re.findall(r'url\("([^"]+)"\)', text) if not url.startswith(("data:", "#"))}
    assert named and [url for url in named if not (book.html / "_static" / url).is_file()] == []


def test_icons_are_drawn_from_the_small_font(open_page: Callable[..., Page], site: str) -> None:
    """A browser asks for the theme's font of 156 KB where a page has an icon that the small one lacks."""
    page = open_page("book/intro", "http", NARROW)
    for name in [*PAGES, "search", "404"]:
        page.goto(f"{site}/{name}.html")
        page.evaluate("() => document.fonts.ready")
        drawn = """() => [...document.fonts].some((font) => /Awesome/.test(font.family) && font.status === 'loaded')"""
        assert page.evaluate(drawn), name
        assert [request for request in page.requests if "webfonts" in request] == [], name


LEAN = [  # a rule, what is left of it on a page with the class `a` and a script that names `later`
    (".a{color:red}", ".a{color:red}"),
    (".gone{color:red}", ""),
    ("p.a, p.gone, div{color:red}", "p.a,div{color:red}"),
    ("#i .later{color:red}", "#i .later{color:red}"),
    (".a:not(.gone):hover{color:red}", ".a:not(.gone):hover{color:red}"),
    (".a:is(.gone, .b){color:red}", ".a:is(.gone, .b){color:red}"),
    ("@media print{.gone{color:red}}", ""),
    ("@media print{.gone{x:y}.a{color:red}}", "@media print{.a{color:red}}"),
    ('.a{--b:url("data:x;y,{}")}', '.a{--b:url("data:x;y,{}")}'),
    (".a{background:url(../x.png)}", '.a{background:url("x.png")}'),
    ("@font-face{src:url(f.woff2)}", '@font-face{src:url("s/f.woff2")}'),
    ("@keyframes k{to{top:0}}", "@keyframes k{to{top:0}}"),
    ('@charset "UTF-8";.a{top:0}', ".a{top:0}"),
    ("/*! Licence */ .a{top:0} /* no licence */", "/*! Licence */\n.a{top:0}"),
]


@pytest.mark.parametrize(("rule", "left"), LEAN)
def test_what_is_left_of_a_rule(rule: str, left: str, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "s.css").write_text(rule)
    assert course_lean.style_sheet(tmp_path, ["s/s.css"], {"a", "later"}).strip() == left


def test_a_second_build_takes_a_new_style(tmp_path: Path) -> None:
    """Sphinx itself copies no style sheet while no page changed."""
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'book' / '_ext')!r})\nextensions = ['course_lean']\n"
        f"templates_path = [{str(ROOT / 'book' / '_templates')!r}]\n"
        "html_theme, html_static_path, html_css_files = 'sphinx_book_theme', ['book/_static'], ['a.css']\n"
    )
    (tmp_path / "index.rst").write_text("Title\n=====\n\nText.\n")
    style, out = tmp_path / "book" / "_static" / "a.css", tmp_path / "out"
    style.parent.mkdir(parents=True)
    addresses = []
    for colour in ("#123456", "#654321", "#654321"):
        style.write_text(f"p {{ color: {colour} }}")
        command = [sys.executable, "-m", "sphinx", "-q", str(tmp_path), str(out)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert colour in (out / course_lean.SHEET).read_text(encoding="utf-8")
        addresses.append(read(Build(0, "", out), "index").select_one("link[rel=stylesheet]")["href"])
    assert addresses[0] != addresses[1] == addresses[2]


def test_a_second_build_still_finds_messages(tmp_path: Path) -> None:
    """Sphinx itself forgets the entries of a page that did not change."""
    extensions = str(ROOT / "book" / "_ext")
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {extensions!r})\nextensions = ['course_search']\nroot_doc = 'other'\n"
    )
    (tmp_path / "book").mkdir()
    (tmp_path / "_static").mkdir()
    (tmp_path / "book" / "a_errors.rst").write_text(
        "Errors\n======\n\nTwice\n-----\n\n``a graph a second time``\n\nWhy.\n"
    )
    for text in ("Text.", "Another."):
        (tmp_path / "other.rst").write_text(f"Title\n=====\n\n{text}\n\n.. toctree::\n\n   book/a_errors\n")
        out = tmp_path / "out"
        (out / "_static").mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "sphinx", "-q", str(tmp_path), str(out)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert "a graph a second time" in (out / "searchindex.js").read_text(encoding="utf-8"), text


def test_code_without_elements_for_what_has_no_colour() -> None:
    for name in ("light", "dark"):
        style = get_style_by_name(f"a11y-high-contrast-{name}")
        shown = [style.style_for_token(kind) for kind in (Text, *course_lean.PLAIN)]
        assert [look for look in shown if look != shown[0]] == []
    html = highlight("x.y in z", PythonLexer(), course_lean.PlainCode(nowrap=True))
    assert html == 'x<span class="o">.</span>y <span class="ow">in</span> z\n'


# ------------------------------------------------------------------------------------------ keyboard and paper


@pytest.fixture
def open_page(chromium: Browser, book: Build, site: str) -> Iterator[Callable[..., Page]]:
    """Open a page of the book; its ``requests`` are the addresses that it asked for."""
    contexts = []

    def opened(name: str, protocol: str = "file", size: dict = WIDE, scheme: str = "light") -> Page:
        contexts.append(chromium.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce"))
        page = contexts[-1].new_page()
        page.requests = []
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(f"{site if protocol == 'http' else book.html.as_uri()}/{name}.html")
        return page

    yield opened
    for context in contexts:
        context.close()


def focused(page: Page, question: str = "node.className") -> object:
    """What the question says of the element that has the focus."""
    return page.evaluate(f"() => {{ const node = document.activeElement; return {question}; }}")


def test_the_first_key_leads_past_the_menus(open_page: Callable[..., Page]) -> None:
    page = open_page("book/03_ste")
    page.keyboard.press("Tab")
    assert focused(page, "node.hash") == "#main-content"
    assert focused(page, "node.getBoundingClientRect().top >= 0"), "the link is seen when it is reached"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert focused(page, "Boolean(node.closest('main'))")


@pytest.mark.parametrize(("toggle", "drawer"), [("primary", "primary"), ("secondary", "secondary")])
def test_a_drawer_opens_and_gives_the_focus_back(toggle: str, drawer: str, open_page: Callable[..., Page]) -> None:
    page = open_page("book/03_ste", size=NARROW)
    button, dialog = page.locator(f".{toggle}-toggle"), page.locator(f"#pst-{drawer}-sidebar-modal")
    button.focus()
    page.keyboard.press("Enter")
    assert dialog.evaluate("node => node.open") and focused(page, "Boolean(node.closest('dialog'))")
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.querySelector('dialog[open]')")
    assert f"{toggle}-toggle" in focused(page)


def test_search_opens_and_closes_by_keyboard(open_page: Callable[..., Page]) -> None:
    page = open_page("book/03_ste")
    page.keyboard.press("Control+k")
    assert focused(page, "node.type + node.closest('dialog').id") == "searchpst-search-dialog"
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.querySelector('dialog[open]')")


def test_what_has_the_focus_is_seen(open_page: Callable[..., Page]) -> None:
    page = open_page("book/03_ste")
    for _ in range(40):
        page.keyboard.press("Tab")
        ring = "getComputedStyle(node).outlineStyle !== 'none' && parseFloat(getComputedStyle(node).outlineWidth) >= 2"
        assert focused(page, f"({ring}) || getComputedStyle(node).boxShadow !== 'none'"), focused(
            page, "node.outerHTML"
        )


@pytest.mark.parametrize("name", ["book/02_sigmoid", "book/05_clipped_relu", "book/10_flash_attention", "book/errata"])
def test_paper_is_light_whole_and_open(name: str, open_page: Callable[..., Page]) -> None:
    page = open_page(name, size=MOST, scheme="dark")
    root, answers = page.locator("html"), page.locator(".bd-article details:not(.hide)")
    closed = answers.evaluate_all("all => all.filter((node) => !node.open).length")
    page.emulate_media(media="print")
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    assert root.get_attribute("data-theme") == "light"
    assert answers.evaluate_all("all => all.every((node) => node.open)")
    cut = """all => all.filter((node) => node.scrollWidth > node.clientWidth + 1
        && getComputedStyle(node).display !== 'inline').map((node) => node.outerHTML.slice(0, 150))"""
    assert page.locator(".bd-article pre").evaluate_all(cut) == []
    menus = ".bd-sidebar-primary, .bd-sidebar-secondary, .prev-next-footer, .bd-header-article, .skip-link, .copybtn"
    assert (
        page.locator(menus).evaluate_all("all => all.filter((n) => n.checkVisibility()).map((n) => n.className)") == []
    )
    page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    assert root.get_attribute("data-theme") == "dark"
    assert answers.evaluate_all("all => all.filter((node) => !node.open).length") == closed


def test_a_page_is_dark_before_its_scripts_are_there(
    open_page: Callable[..., Page], chromium: Browser, site: str
) -> None:
    context = chromium.new_context(color_scheme="dark")
    page = context.new_page()
    page.route("**/*.js*", lambda route: route.abort())
    page.goto(f"{site}/book/intro.html")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    context.close()
