"""What a page does by script for its reader: quizzes that answer, read marks, cards for terms, the filter of messages.

Without script each page says the same: ``test_quiz.py`` opens the answers so, and here nothing is added.
"""

import json
import re
import sys
from collections.abc import Callable
from functools import cache

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Locator, Page, expect

from tests.book import page_checks
from tests.book.book_build import PAGES, ROOT, Build, read
from tests.book.page_checks import Watched

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import course_page_data

Visit = Callable[..., Watched]
QUIZZES = [page for page in PAGES if re.match(r"book/(\d\d|[b-d])_", page)]
KEY = "custom-gradients"
REFUSED = f"""for (const name of ["getItem", "setItem", "removeItem"]) {{
    const usual = Storage.prototype[name];
    Storage.prototype[name] = function (key, ...rest) {{
        if (key === "{KEY}") throw new DOMException("refused", "SecurityError");
        return usual.call(this, key, ...rest);
    }};
}}"""


@cache
def plain(text: str) -> str:
    """The text with single spaces, without the forms of a formula that are not seen."""
    return " ".join(text.split())


def memory(page: Page) -> dict:
    """What the browser remembers of the book."""
    return json.loads(page.evaluate(f"() => localStorage.getItem('{KEY}') ?? '{{}}'"))


# ------------------------------------------------------------------------------------------------------- quizzes


def verdict(page: Page, number: int, letter: str) -> str:
    """Choose an option of a question, and return what the page says of it."""
    quiz = page.locator("fieldset.quiz").nth(number - 1)
    quiz.locator("li").nth("abcd".index(letter)).locator("input").check()
    told = quiz.locator(".quiz-verdict").evaluate("""(node) => {
        const copy = node.cloneNode(true);
        for (const hidden of copy.querySelectorAll(".katex-mathml")) hidden.remove();
        return copy.textContent;
    }""")
    return plain(told)


@pytest.mark.parametrize("name", QUIZZES)
def test_each_option_of_a_quiz_is_judged_and_told_why(name: str, visit: Visit, book: Build) -> None:
    watched = visit(name)
    answers = read(book, name).select("#predict-then-run details")
    quizzes = watched.page.locator("fieldset.quiz")
    assert quizzes.count() == len(answers) > 1
    for number, answer in enumerate(answers, 1):
        right = answer.select_one("p > strong").text
        letters = [strong.text for strong in answer.find_previous_sibling("ul").select("li > p > strong:first-child")]
        for letter in letters:
            told = verdict(watched.page, number, letter)
            if letter == right:
                assert told.startswith("Right. ") and len(told) > 15, (number, letter)
            else:
                named = answer.find_all("strong", string=letter)
                assert told.startswith("Not so. ") and named, (number, letter)
                assert re.search(rf"\b{letter}\b", told.removeprefix("Not so. ")), (number, letter, told)
        assert quizzes.nth(number - 1).locator("details summary").inner_text() == f"Answer {number}"
    assert watched.complaints == []


SAID = [  # a sentence of its own; one that names two; the right one told by the others; what follows and names none
    ("book/01_relu", 1, "d", "Not so. d has no mask at all."),
    (
        "book/01_relu",
        3,
        "b",
        "Right. Without a return, Python returns None, and to torch None means that no gradient goes to this argument.",
    ),
    ("book/03_ste", 1, "b", "Not so. a is the mask left out, b the upstream gradient clipped."),
    (
        "book/07_logsumexp",
        2,
        "a",
        "Right. b is the formula for rows that sum to 1, and c would need the factor on both terms.",
    ),
    (
        "book/06_linear",
        2,
        "b",
        "Not so. b is what you get if you sum and expand back, since the engine then sums once more.",
    ),
    (
        "book/02_sigmoid",
        3,
        "b",
        "Right. A slope right to 7 digits is within rtol, so gradcheck passes. But gradgradcheck takes differences of "
        "backward.",
    ),
    ("book/10_flash_attention", 1, "c", "Not so. c forgets rounding: only in exact arithmetic is every shift right."),
    (
        "book/10_flash_attention",
        2,
        "b",
        "Right. One lse describes a whole row, whatever tiles it was computed from; a and c take it for a property "
        "of tiles.",
    ),
    (
        "book/d_kernels",
        3,
        "a",
        "Not so. a needs a second order, composed or of its own. To refuse every time, raise in an undecorated "
        "backward where torch.is_grad_enabled(); that refuses torch.func too.",
    ),
]


@pytest.mark.parametrize(("name", "number", "letter", "said"), SAID)
def test_what_is_said_of_an_option_is_what_the_answer_says_of_it(
    name: str, number: int, letter: str, said: str, visit: Visit
) -> None:
    assert verdict(visit(name, protocol="file").page, number, letter) == said


def test_a_quiz_is_a_group_of_native_controls_and_its_verdict_is_announced(visit: Visit) -> None:
    page = visit("book/01_relu").page
    group = page.get_by_role("group", name=re.compile(r"^2\. .*What happens\?$"))
    assert [radio.evaluate("n => n.type") for radio in group.get_by_role("radio").all()] == ["radio"] * 3
    live = group.locator("[aria-live=polite]")
    expect(live).to_be_empty()
    group.get_by_role("radio").first.focus()
    page.keyboard.press("Space")
    assert live.inner_text().startswith("Not so.")
    page.keyboard.press("ArrowDown")
    assert live.inner_text().startswith("Right.")
    assert group.get_by_role("radio", name=re.compile(r"^b ")).is_checked()
    colours = [live.locator("strong").first.evaluate("n => getComputedStyle(n).color")]
    page.keyboard.press("ArrowDown")
    colours.append(live.locator("strong").first.evaluate("n => getComputedStyle(n).color"))
    assert len(set(colours)) == 2, "right and wrong differ in colour too"


@pytest.mark.parametrize("protocol", ["http", "file"])
def test_a_choice_is_remembered_as_long_as_the_option_says_the_same(protocol: str, visit: Visit) -> None:
    page = visit("book/01_relu", protocol=protocol).page
    told = verdict(page, 2, "a")
    page.reload()
    quiz = page.locator("fieldset.quiz").nth(1)
    assert quiz.locator("input").first.is_checked() and plain(quiz.locator(".quiz-verdict").inner_text()).endswith(
        told[-20:]
    )
    assert page.locator("fieldset.quiz input:checked").count() == 1
    page.evaluate(f"""() => {{
        const kept = JSON.parse(localStorage.getItem("{KEY}"));
        kept.answers["book/01_relu"][2] = "a what it said before";
        localStorage.setItem("{KEY}", JSON.stringify(kept));
    }}""")
    page.reload()
    assert page.locator("fieldset.quiz").count() == 3 and page.locator("fieldset.quiz input:checked").count() == 0


def test_where_storage_is_refused_or_spoilt_a_page_does_the_rest(visit: Visit) -> None:
    watched = visit("book/01_relu")
    watched.page.evaluate(f"() => localStorage.setItem('{KEY}', 'no JSON')")
    watched.page.reload()
    assert verdict(watched.page, 1, "a").startswith("Right.")
    watched.page.add_init_script(REFUSED)
    watched.page.reload()
    assert verdict(watched.page, 1, "b").startswith("Not so.")
    watched.page.goto(watched.page.url.replace("01_relu", "intro"))
    assert watched.page.locator("p.continue").count() == 0
    assert watched.complaints == []


# ---------------------------------------------------------------------------------------- the map of the chapters


def test_each_box_of_the_map_leads_to_its_chapter_and_is_ticked_when_that_is_read(visit: Visit) -> None:
    page = visit("book/intro").page
    boxes = page.locator("svg.map a")
    assert boxes.count() == 10
    for box in boxes.all():
        assert re.fullmatch(r"Chapter \d+, .+: \d+ minutes, difficulty \d of 5", box.get_attribute("aria-label"))
    page.evaluate(f"""() => localStorage.setItem("{KEY}", JSON.stringify({{ read: ["book/02_sigmoid"] }}))""")
    page.reload()
    ticked = page.locator("svg.map a.read")
    assert ticked.get_attribute("aria-label").endswith("(read)") and ticked.text_content().rstrip().endswith("✓")
    ticked.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/book/02_sigmoid.html")


def test_the_map_leads_on_without_a_script(visit: Visit) -> None:
    page = visit("book/intro", scripts=False).page
    page.locator("svg.map a").first.click()
    page.wait_for_url("**/book/01_relu.html")


# ---------------------------------------------------------------------------------------- read marks, "continue at"


def to_the_end(page: Page) -> None:
    """Scroll to the end of the page, and wait until the observers have seen it."""
    page.locator("article > section > section").last.locator(":scope > *").last.scroll_into_view_if_needed()
    page.wait_for_timeout(300)


def marked(page: Page) -> list[str]:
    """The entries of the sidebar's list that are marked, as a screen reader says them."""
    return [plain(text) for text in page.locator(".bd-sidenav a:has(.read-mark)").all_text_contents()]


def test_a_chapter_is_read_when_its_summary_was_seen(visit: Visit) -> None:
    page = visit("book/02_sigmoid").page
    assert page.locator("article section#summary ~ section#further").count() == 1
    page.set_viewport_size({"width": 1280, "height": 200})  # what goes further is not on the screen
    page.locator("article section#summary > h2").scroll_into_view_if_needed()
    expect(page.locator(".read-mark")).to_have_count(1)


def test_a_chapter_that_was_read_to_its_end_is_marked(visit: Visit, site: str) -> None:
    page = visit("book/02_sigmoid").page
    page.wait_for_timeout(300)
    assert marked(page) == [], "it was opened, not read"
    to_the_end(page)
    expect(page.locator(".read-mark")).to_have_count(1)
    assert marked(page) == ["2. Sigmoid: prove it ✓ (read)"]
    shown = page.locator(".read-mark > span")
    assert shown.nth(0).get_attribute("aria-hidden") == "true" and shown.nth(0).is_visible()
    assert shown.nth(1).bounding_box()["width"] <= 1, "words for a screen reader"
    page.goto(f"{site}/book/glossary.html")
    to_the_end(page)
    assert marked(page) == ["2. Sigmoid: prove it ✓ (read)"], "a page that one looks things up on is not read"


def test_the_first_page_leads_on_and_forgets(visit: Visit, site: str) -> None:
    page = visit("book/intro").page
    assert page.locator("p.continue").count() == 0
    page.goto(f"{site}/book/03_ste.html")
    page.locator("#see-it > h2").scroll_into_view_if_needed()
    page.evaluate("() => document.querySelector('#see-it').scrollIntoView()")
    page.wait_for_timeout(300)
    verdict(page, 1, "c")
    page.goto(f"{site}/book/03_ste.html")
    page.evaluate("() => document.querySelector('#see-it').scrollIntoView()")
    page.wait_for_timeout(300)
    assert memory(page)["last"]["place"] == "see-it"
    page.goto(f"{site}/book/intro.html")
    line = page.locator("p.continue")
    assert plain(line.inner_text()).startswith("Continue at: See it of Straight-through estimators")
    line.get_by_role("link").click()
    page.wait_for_url("**/book/03_ste.html#see-it")
    to_the_end(page)
    page.goto(f"{site}/book/intro.html")
    assert len(marked(page)) == 1
    line.get_by_role("button", name="Forget what I have read, answered and written").click()
    assert line.evaluate("node => node === document.activeElement") and "forgotten" in line.inner_text()
    assert memory(page) == {} and marked(page) == []
    page.reload()
    assert line.count() == 0


# ------------------------------------------------------------------------------------------------ cards for terms

SENTENCES = [
    ("Short. " + "Long " * 20 + "end. Third.", "Short. " + "Long " * 20 + "end."),
    ("w" * 90 + ". Next.", "w" * 90 + "."),
    ("w" * 90 + " <code>a. B</code> on. Next.", "w" * 90 + " <code>a. B</code> on."),
    ("w" * 90 + ", e.g. here. Next.", "w" * 90 + ", e.g. here."),
    ('A <a href="#x">link</a>. End.', "A link. End."),
]


@pytest.mark.parametrize(("text", "first"), SENTENCES)
def test_the_first_sentences_of_a_definition(text: str, first: str) -> None:
    assert course_page_data.first_sentences(text) == first


def test_a_page_gets_the_terms_that_it_links_once_and_anew() -> None:
    places = ("glossary.html#a", "../book/glossary.html#a", "glossary.html#c")
    page = "<body>" + "".join(f'<a href="{place}">A</a>' for place in places) + "</body>"
    once = course_page_data.with_terms(page, {"a": "old", "b": "no"})
    assert once.count("data-term") == 1 and '<template data-term="a">old</template>' in once
    assert course_page_data.with_terms(once, {"a": "new"}) == once.replace("old", "new")
    assert course_page_data.with_terms(once, {}) == page


@pytest.mark.parametrize("name", PAGES)
def test_each_linked_term_has_its_definition_in_the_page(name: str, book: Build) -> None:
    html = read(book, name)
    (*terms,) = html.select("template#terms > template")
    linked = {str(link["href"]).partition("#")[2] for link in html.select('article a[href*="glossary.html#"]')}
    assert {str(term["data-term"]) for term in terms} == linked
    for term in terms:
        card = BeautifulSoup(term.decode_contents(), "html.parser")
        for formula in card.select(".katex"):
            formula.decompose()
        assert card.strong.text and not card.select("a, [id]"), term["data-term"]
        assert 40 < len(plain(card.text)) < 400, f"{term['data-term']}: {plain(card.text)}"


def term(page: Page) -> Locator:
    """A link to the glossary, in the middle of the window."""
    link = page.locator('article a[href*="glossary.html#"]').nth(1)
    link.evaluate("node => node.scrollIntoView({ block: 'center' })")
    return link


@pytest.mark.parametrize("protocol", ["http", "file"])
def test_a_card_is_shown_on_hover_can_be_hovered_and_is_dismissed(protocol: str, visit: Visit) -> None:
    page = visit("book/03_ste", protocol=protocol).page
    card, link = page.locator("#term-card"), term(page)
    assert not card.is_visible()
    link.hover()
    expect(card).to_be_visible()
    assert card.locator("strong").inner_text() == "Hook" and "register_hook" in card.inner_text()
    card.hover()
    page.wait_for_timeout(600)
    assert card.is_visible(), "the pointer is on it"
    page.mouse.move(640, 5)
    expect(card).to_be_hidden()
    link.hover()
    expect(card).to_be_visible()
    page.wait_for_timeout(600)
    assert card.is_visible(), "it stays"
    page.keyboard.press("Escape")
    assert not card.is_visible()


def test_a_card_is_shown_to_the_keyboard_and_described(visit: Visit) -> None:
    page = visit("book/03_ste").page
    card, link = page.locator("#term-card"), term(page)
    page.keyboard.press("Tab")
    link.focus()
    expect(card).to_be_visible()
    assert link.get_attribute("aria-describedby") == card.get_attribute("id")
    assert card.get_attribute("role") == "tooltip"
    page.mouse.move(640, 5)
    page.wait_for_timeout(600)
    assert card.is_visible(), "the focus is on its link"
    page.keyboard.press("Escape")
    assert not card.is_visible() and link.get_attribute("aria-describedby") is None
    assert link.evaluate("node => node === document.activeElement")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    expect(card).to_be_visible()
    page.keyboard.press("Tab")
    assert not card.is_visible() or link.get_attribute("aria-describedby") is None


def test_a_finger_follows_the_link_of_a_term(chromium: Browser, site: str) -> None:
    context = chromium.new_context(viewport=page_checks.NARROW, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(f"{site}/book/03_ste.html")
    page.evaluate("""() => {
        const card = document.querySelector("#term-card");
        new MutationObserver(() => { if (!card.hidden) document.title = "shown"; }).observe(card, { attributes: true });
    }""")
    link = term(page)
    box = link.bounding_box()
    finger = {"x": box["x"] + 5, "y": box["y"] + 5}
    session = context.new_cdp_session(page)
    session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [finger]})
    page.wait_for_timeout(400)  # longer than a pointer must stay
    assert page.title() != "shown"
    session.send("Input.dispatchTouchEvent", {"type": "touchCancel", "touchPoints": []})
    link.tap()
    page.wait_for_url("**/book/glossary.html#hook")
    context.close()


@pytest.mark.parametrize("name", ["book/01_relu", "book/errata"])
def test_a_card_stays_in_the_window(name: str, visit: Visit) -> None:
    watched = visit(name, "light-narrow")
    page, card = watched.page, watched.page.locator("#term-card")
    page.keyboard.press("Tab")
    for link in page.locator('article a[href*="glossary.html#"]:visible').all():
        link.focus()
        expect(card).to_be_visible()
        box = card.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["y"] + box["height"] <= 845, link
    assert page_checks.overflowing(watched) == []


# ------------------------------------------------------------------------------------- the filter of error messages

ERRORS = "book/a_errors"
TYPED = {
    "function GeluBackward returned an incorrect number of gradients (expected 4)": "Too few or too many gradients",
    "modified by an inplace operation": "A saved tensor was changed in place",
    "hook changed siz": "A hook returned another shape or dtype",
    "mygelu hook changed size": "A hook returned another shape or dtype",
    "Sizes of tensors must match except in dimension": "The parts of a gradient do not fit together",
    "'Context' object has no attribute 'saved_tensors'": "ctx has no saved_tensors",
    "save_for_backward() takes 1 positional argument": "save_for_backward takes any number of tensors",
    "Expected to get 3 gradient(s) for backward": "Expected to get so many gradients",
    'Traceback (most recent call last):\n  File "train.py", line 81, in <module>\n    loss.backward()\nRuntimeError: '
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed).": "backward ran a second time",
}


def left(page: Page) -> list[str]:
    """The headings of the entries that are shown."""
    return [text.removesuffix("#") for text in page.locator("article h3:visible").all_inner_texts()]


@pytest.mark.parametrize("typed", TYPED)
def test_the_filter_leaves_the_entry_of_a_message(typed: str, visit: Visit) -> None:
    page = visit(ERRORS, protocol="file").page
    page.get_by_label("Paste your message").fill(typed)
    found = left(page)
    assert TYPED[typed] in found and len(found) <= 8, found
    said = page.locator(".message-filter output").inner_text()
    assert said.startswith(f"{len(found)} of ")
    rows = page.locator("#find-your-message tbody tr:visible a")
    places = set(rows.evaluate_all("all => all.map((link) => link.hash.slice(1))"))
    assert places <= set(page.locator("article section:has(> h3):visible").evaluate_all("all => all.map((n) => n.id)"))
    assert places, "the table has what is left"


def test_each_message_of_the_page_pasted_whole_is_found(visit: Visit) -> None:
    """With another name where it has the page's, as `course_search` takes them out."""
    page = visit(ERRORS).page
    quoted = page.locator("article section:has(> h3)").evaluate_all("""all => all.flatMap((node) =>
        [...node.querySelectorAll(":scope > p > code:only-child")]
            .filter((code) => code.textContent === code.parentElement.textContent)
            .map((code) => [node.id, code.textContent]))""")
    assert len(quoted) > 80
    field, lost, many = page.get_by_label("Paste your message"), [], []
    for place, text in quoted:
        field.fill(re.sub(r"Sin|Older|WithSelf", "MyGelu", text))
        if not page.locator(f"[id='{place}']").is_visible():
            lost.append(text)
        shown = len(left(page))
        if shown > 20:
            many.append((shown, text))
    assert lost == []
    assert many == []


def test_the_filter_is_reset_and_links_lead_to_what_it_hid(visit: Visit) -> None:
    page = visit(ERRORS).page
    field, count = page.get_by_label("Paste your message"), len(left(page))
    assert count > 80
    field.fill("zyzzyva")
    assert left(page) == []
    said = page.locator(".message-filter output")
    assert said.inner_text() == "No entry matches. Try fewer words."
    assert said.evaluate("node => node.nodeName") == "OUTPUT", "which a screen reader announces"
    assert page.locator("article h2", has_text="Find your message").is_visible()
    field.dispatch_event("keydown", {"key": "Escape"})  # a browser may empty the field by itself, as this one does
    assert len(left(page)) == count and field.input_value() == ""
    for _ in range(2):  # the second time the address does not change
        field.fill("hook changed size")
        assert len(left(page)) < 5
        contents = page.locator("#pst-secondary-sidebar a[href='#no-node-anywhere']")
        contents.click()
        page.wait_for_timeout(200)
        assert len(left(page)) == count
        assert 0 <= page.locator("#no-node-anywhere").bounding_box()["y"] < 500


def test_only_the_page_of_messages_loads_the_filter(book: Build) -> None:
    having = [name for name in PAGES if read(book, name).select('script[src*="message_filter.js"]')]
    assert having == [ERRORS]


# ------------------------------------------------------------------------------------------ all of it, in each look


def stirred(watched: Watched) -> None:
    """Do on a page what its script answers to."""
    page = watched.page
    for quiz in page.locator("fieldset.quiz").all():
        quiz.locator("input").nth(1).check()
    if page.locator("#message-filter").count():
        page.locator("#message-filter").fill("hook changed size")
    if page.locator("template#terms").count():
        page.keyboard.press("Tab")
        page.locator('article a[href*="glossary.html#"]:visible').first.focus()
        expect(page.locator("#term-card")).to_be_visible()


@pytest.mark.parametrize("look", ["light-wide", "dark-wide", "light-narrow"])
@pytest.mark.parametrize("name", ["book/01_relu", "book/a_errors", "book/intro"])
def test_what_is_added_is_accessible_and_fits(name: str, look: str, visit: Visit, site: str) -> None:
    watched = visit("book/02_sigmoid", look, protocol="http")
    to_the_end(watched.page)
    watched.page.goto(f"{site}/{name}.html")
    stirred(watched)
    assert watched.page.locator(".read-mark").count() == 1
    assert page_checks.inaccessible(watched, look) + page_checks.pale_text(watched) == []
    assert page_checks.overflowing(watched) == []
    assert watched.complaints == watched.external == []


@pytest.mark.parametrize("name", ["book/01_relu", "book/a_errors", "book/intro"])
def test_without_script_nothing_is_added(name: str, visit: Visit) -> None:
    page = visit(name, scripts=False).page
    assert page.locator("fieldset.quiz, .message-filter, .term-card, .read-mark, p.continue").count() == 0
    assert page.locator("template#terms").count() in (0, 1) and not page.locator("#terms").is_visible()
