"""Each term of the glossary is linked where a page first says it, and each entry is linked from somewhere.

A page says a term in its prose: not in code, formulas, pictures, HTML, headings (also where a table quotes one), or the
text of a link elsewhere. An entry's forms are its heading, in any case and in the plural, and what stands after "Also:"
at its end, as written there.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

from tests.book.book_build import PAGES
from tests.book.test_build import markdown, slug

GLOSSARY = "book/glossary"
NOT_FOR_READING = {  # pages that explain in their own words, or hold no prose
    "book/intro": "promises what the course explains later; its reader is to stay on it",
    GLOSSARY: "links its entries to each other where that helps",
    "book/bibliography": "is generated",
    "book/trust": "is about attacks on the grader; what it says of hooks and gates is no mathematics",
}
OTHER_SENSE = {  # a word that names something else on this page, by page and anchor
    ("book/08_qat", "rounding-error"): "that of a quantiser, which the page defines",
    ("book/e_checklist", "gradcheck"): "names an item of the list",
    ("book/e_checklist", "vectorising-map"): "names an item of the list",
    ("book/functions", "rounding-error"): "that of a quantiser",
    ("book/09_checkpointing", "hook"): "short for saved-tensor hooks, which the page links",
    ("book/10_flash_attention", "hook"): "short for saved-tensor hooks, which the page links",
    ("book/b_library", "node"): "a step in the compiler's graph",
    ("book/instructors", "schema"): "the JSON Schema of verdicts",
}
PARSER = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin)
TO_GLOSSARY = re.compile(r"glossary\.md#([\w-]+)")


def entries(glossary: str) -> dict[str, list[re.Pattern[str]]]:
    """The forms of each entry, by its anchor."""
    found = {}
    for heading, body in re.findall(r"^### (.+?) *\n(.*?)(?=^### |\Z)", glossary, re.MULTILINE | re.DOTALL):
        also = re.search(r"^Also: (.+)\.$", body, re.MULTILINE)
        forms = [pattern(heading.removesuffix("s"), re.IGNORECASE)]
        found[slug(heading)] = forms + [pattern(form) for form in (also[1].split(", ") if also else [])]
    return found


def pattern(form: str, flags: int = 0) -> re.Pattern[str]:
    """The form or its plural as whole words, also at the start of a sentence, its words joined by spaces or hyphens."""
    first = f"[{form[0]}{form[0].upper()}]"
    rest = re.sub(r"(?:\\ |\\-)", "[ -]", re.escape(form[1:]))
    return re.compile(rf"(?<!\w){first}{rest}(?:s|es)?(?!\w)", flags)


def prose(text: str) -> tuple[str, dict[str, int]]:
    """What a page says, with a mark in place of all that is no prose; where it first links to each entry."""
    said, links = "", {}
    tokens = PARSER.parse(text)
    titles = {title.content for opening, title in pairwise(tokens) if opening.type == "heading_open"}
    for token in tokens:
        if token.type == "inline" and token.content not in titles:
            for part, anchor in pieces(token.children or []):
                if anchor is not None:
                    links.setdefault(anchor, len(said))
                said += part
            said += "|"
    return said, links


def pieces(children: list[Token]) -> Iterator[tuple[str, str | None]]:
    """The parts of a paragraph in their order: its words, and for each link to the glossary the entry's anchor."""
    inside = False
    for child in children:
        if child.type == "link_open":
            inside = True
            target = TO_GLOSSARY.fullmatch(str(child.attrs["href"]))
            yield "|", target[1] if target else None
        elif child.type == "link_close":
            inside = False
        elif child.type in ("softbreak", "hardbreak"):
            yield " ", None
        elif not inside and child.type == "text":
            yield child.content, None
        elif child.type not in ("em_open", "em_close", "strong_open", "strong_close"):
            yield "|", None


def not_linked(text: str, glossary: str) -> list[str]:
    """The terms that a page says before it links them, or without a link, each with the words around it."""
    page, links = prose(text)
    said = page
    forms = [(form, anchor) for anchor, found in entries(glossary).items() for form in found]
    first: dict[str, int] = {}
    for form, anchor in sorted(forms, key=lambda pair: len(pair[0].pattern), reverse=True):
        for match in form.finditer(said):  # a saved-tensor hook is no hook: the longer form takes its words
            first[anchor] = min(first.get(anchor, match.start()), match.start())
        said = form.sub(lambda match: "|" * len(match[0]), said)
    return [
        f"{anchor}: {page[max(0, place - 50) : place + 50]!r}"
        for anchor, place in sorted(first.items(), key=lambda pair: pair[1])
        if place < links.get(anchor, len(page))
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in NOT_FOR_READING])
def test_a_term_is_linked_where_a_page_first_says_it(page: str) -> None:
    found = {fault.split(":")[0]: fault for fault in not_linked(markdown(page), markdown(GLOSSARY))}
    excused = {anchor for place, anchor in OTHER_SENSE if place == page}
    assert excused <= set(found), f"{page} does not say {excused - set(found)}: take it out of OTHER_SENSE"
    faults = [fault for anchor, fault in found.items() if anchor not in excused]
    assert not faults, f"{page}: link each to the glossary:\n" + "\n".join(faults)


def test_each_entry_is_linked_from_a_page() -> None:
    linked = {anchor for page in PAGES if page != GLOSSARY for anchor in TO_GLOSSARY.findall(markdown(page))}
    assert set(entries(markdown(GLOSSARY))) - linked == set(), "entries that no page needs"


SMALL = (
    "## Terms\n\n### Hook\n\nA.\n\n### Saved-tensor hooks\n\nB.\n\n### Custom Function\n\nC.\n\nAlso: Function, op.\n"
)
LINKED = "A [hook](glossary.md#hook)."
SAID = {
    "a plain word": ("A hook.", "hook"),
    "at the start of a sentence": ("Hooks pile up.", "hook"),
    "in bold": ("A **hook** here.", "hook"),
    "in a table": ("| a |\n|---|\n| a hook |", "hook"),
    "before its link": ("This hook. " + LINKED, "hook"),
    "in a cell before its link": ("This hook.\n\n" + LINKED, "hook"),
    "linked to another entry": ("A hook is [one](glossary.md#custom-function).", "hook"),
    "the singular, over two lines": ("A saved-tensor\nhook.", "saved-tensor-hooks"),
    "partly in italics": ("A *custom* function.", "custom-function"),
    "without its hyphen": ("A saved tensor hook.", "saved-tensor-hooks"),
    "a second name": ("A Function.", "custom-function"),
    "a second name at the start of a sentence": ("Op by op.", "custom-function"),
    "a second name in the plural": ("Two ops.", "custom-function"),
}
SILENT = {
    "after its link": LINKED + " More hooks.",
    "after a link with other words": "The [thing](glossary.md#hook): a hook.",
    "in code": "`hook` and\n\n```text\na hook\n```",
    "in a heading": "### A hook\n\n| a |\n|---|\n| A hook |",
    "in a link elsewhere": "[a hook](03_ste.ipynb#hooks)",
    "in a formula": "$hook$ and\n\n$$hook$$",
    "in a picture": "![a hook](hook.svg)",
    "in HTML": "<figure>\n<figcaption>A hook</figcaption>\n</figure>",
    "a part of a word": "hooked, a rehook",
    "a part of a longer term": "[saved-tensor hooks](glossary.md#saved-tensor-hooks) and saved-tensor hooks",
    "a second name in another case": "a function",
}


@pytest.mark.parametrize(("text", "anchor"), SAID.values(), ids=SAID)
def test_a_term_without_a_link_is_found(text: str, anchor: str) -> None:
    assert [fault.split(":")[0] for fault in not_linked(text, SMALL)] == [anchor]


@pytest.mark.parametrize("text", SILENT.values(), ids=SILENT)
def test_what_says_no_term_or_links_it_passes(text: str) -> None:
    assert not_linked(text, SMALL) == []
