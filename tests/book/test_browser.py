"""Every page of the book in a browser: light and dark, wide and narrow, over http and from a file."""

from collections.abc import Callable

import pytest

from tests.book import page_checks
from tests.book.book_build import PAGES, Build
from tests.book.page_checks import LOOKS, Watched


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", [*PAGES, "search"])
def test_page(name: str, look: str, visit: Callable[..., Watched], book: Build) -> None:
    watched = visit(name, look)
    theme = watched.page.locator("html").get_attribute("data-theme")
    faults = {
        "theme": [] if look.startswith(str(theme)) else [f"the page is {theme}"],
        "overflow": page_checks.overflowing(watched),
        "titles": page_checks.cut_titles(watched),
        "axe": page_checks.inaccessible(watched, look),
        "code": page_checks.pale_code(watched),
        "pictures": page_checks.pale_pictures(watched, book.html),
        "figures": page_checks.dead_figures(watched),
        "overflow of moved figures": page_checks.overflowing(watched),
    }
    if look in page_checks.CONTRAST:
        faults |= {"contrast": page_checks.pale_text(watched)}
    if look == "light-wide":  # the same in every look
        faults |= {
            "links": page_checks.broken_links(watched, book.html),
            "formulas": page_checks.red_formulas(watched),
            "images": page_checks.missing_images(watched),
        }
    faults |= {
        "external": page_checks.external_requests(watched),
        "complaints": page_checks.complaints(watched),
    }
    assert {kind: found for kind, found in faults.items() if found} == {}


@pytest.mark.parametrize("protocol", ["http", "file"])
@pytest.mark.parametrize("words", ["upstream gradient", "gradcheck"])
def test_search_finds_and_leads_to_a_page(words: str, protocol: str, visit: Callable[..., Watched]) -> None:
    watched = visit(PAGES[0], protocol=protocol)
    assert any(found.startswith("Glossary > ") for found in page_checks.found_by_search(watched, words))
    watched.page.locator("#search-results li > a", has_text="Glossary").first.click()
    watched.page.wait_for_url("**/book/glossary.html*")
    assert watched.complaints == watched.external == []


def test_a_term_is_found_first_in_the_glossary(visit: Callable[..., Watched]) -> None:
    assert page_checks.found_by_search(visit(PAGES[0]), "gradcheck")[0] == "Glossary > gradcheck"


@pytest.mark.parametrize("look", ["light-wide", "light-narrow"])
def test_the_icon_of_the_search_field_stands_before_the_words(look: str, visit: Callable[..., Watched]) -> None:
    page = visit(PAGES[0], look).page
    page.keyboard.press("Control+k")
    field = page.locator("dialog .bd-search")
    icon, box = field.locator(".fa-magnifying-glass").bounding_box(), field.locator("input").bounding_box()
    padding = field.locator("input").evaluate("(input) => parseFloat(getComputedStyle(input).paddingLeft)")
    assert icon["x"] + icon["width"] <= box["x"] + padding


@pytest.mark.parametrize("protocol", ["http", "file"])
def test_search_leads_to_a_section_and_shows_some_of_its_words(protocol: str, visit: Callable[..., Watched]) -> None:
    watched = visit(PAGES[0], protocol=protocol)
    page_checks.found_by_search(watched, "debugging the central difference")
    first = watched.page.locator("#search-results li").first
    assert "central difference" in first.inner_text().lower() and first.locator("mark").count() > 0
    assert len(first.inner_text()) < 400
    link = first.locator("a")
    assert "#" in link.get_attribute("href") and " > " in link.inner_text()
    assert watched.complaints == watched.external == []


@pytest.mark.parametrize(
    ("typed", "taken"), [("gradchek", "gradcheck"), ("gradhceck", "gradcheck"), ("gradcheckk", "gradcheck")]
)
def test_a_typing_error_is_forgiven_and_told(typed: str, taken: str, visit: Callable[..., Watched]) -> None:
    watched = visit(PAGES[0])
    assert any("gradcheck" in found for found in page_checks.found_by_search(watched, typed)[:3])
    (told,) = watched.page.locator(".search-typo").all_inner_texts()
    assert typed in told and taken in told


def test_a_word_that_is_there_is_not_taken_for_another(visit: Callable[..., Watched]) -> None:
    watched = visit(PAGES[0])
    page_checks.found_by_search(watched, "gradcheck")
    assert watched.page.locator(".search-typo").count() == 0


def test_on_its_own_page_the_search_answers_while_one_types(visit: Callable[..., Watched]) -> None:
    page = visit("search").page
    page.locator(".bd-article-container input[name=q]").first.click()
    for typed in ("upstr", "eam gradient"):
        page.keyboard.type(typed)
        page.locator("#search-results .search-summary").filter(has_text="finished").wait_for()
    page.wait_for_url("**/search.html?q=upstream%20gradient")
    page.locator("#search-results li > a", has_text="Glossary > Upstream gradient").wait_for()
    assert page.locator("#search-results .search-summary").count() == 1


def test_a_snippet_shows_markup_as_text(visit: Callable[..., Watched]) -> None:
    page = visit("search").page
    page.evaluate("""() => { for (const page of Object.values(window.courseSections))
        for (const section of page) section[2] = '<img src=x onerror="window.spoilt = 1"> gradcheck'; }""")
    page.locator(".bd-article-container input[name=q]").first.fill("gradcheck")
    page.locator("#search-results mark").first.wait_for()
    assert page.locator("#search-results img").count() == 0 and page.evaluate("window.spoilt") is None


def test_search_finds_nothing_for_a_word_that_is_not_there(visit: Callable[..., Watched]) -> None:
    assert page_checks.found_by_search(visit(PAGES[0]), "zyzzyva") == []


@pytest.mark.parametrize(
    ("words", "marked"), [("an upstream gradient has this shape", "upstream"), ("has gradient", "gradient")]
)
def test_what_was_searched_for_is_marked_where_it_says_something(
    words: str, marked: str, visit: Callable[..., Watched]
) -> None:
    watched = visit(PAGES[0])
    page_checks.found_by_search(watched, words)
    watched.page.locator("#search-results li > a", has_text="Glossary").first.click()
    watched.page.wait_for_url("**/book/glossary.html*")
    watched.page.locator("article .highlighted").first.wait_for()
    found = {text.lower() for text in watched.page.locator("article .highlighted").all_inner_texts()}
    assert marked in found
    assert not found & {"an", "has"}


def test_nothing_moves_for_a_reader_who_asks_for_less_motion(visit: Callable[..., Watched]) -> None:
    moving = """() => [...document.querySelectorAll("*")].map((node) => getComputedStyle(node))
        .filter((s) => s.transitionDuration !== "0s" || s.animationName !== "none").length"""
    assert visit("book/02_sigmoid").page.evaluate(moving) == 0
