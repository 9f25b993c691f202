"""Gives each page what its script needs: the definitions of the terms that it links, since a file may fetch nothing.

They stand in a ``<template>``, which a browser does not draw, once for each term. ``book/_static/page.js`` shows one as
a card beside its link. A definition is taken from the built glossary, so its formulas are drawn already. And the page
of error messages gets the script of its filter, which no other page loads.
"""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

MESSAGES = "book/a_errors"
GLOSSARY = "book/glossary.html"
ENTRY = re.compile(r'<section id="([^"]+)">\s*<h3>(.*?)<a class="headerlink".*?</h3>\s*<p>(.*?)</p>', re.DOTALL)
LINKED = re.compile(r'href="(?:\.\./|book/)*glossary\.html#([^"]+)"')
PIECE = re.compile(r"<[^>]+>|[^<]+")
SENTENCE_END = re.compile(r"[.?!](?=\s+[^a-z\s]|\s*$)")
TERMS = re.compile(r'<template id="terms">.*?</template><!-- terms -->', re.DOTALL)
END = "</body>"
SHORT = 90  # characters: a sentence that is shorter takes the next one with it


def first_sentences(html: str) -> str:
    """Return the first sentence of a paragraph, and the next where the first is short, without links.

    A sentence ends outside of all elements: a point in code or in a formula ends nothing.
    """
    html = re.sub(r"</?a\b[^>]*>", "", html)
    depth, written, letters = 0, "", 0
    for piece in PIECE.findall(html):
        if piece.startswith("<"):
            depth += -1 if piece.startswith("</") else not piece.endswith("/>")
            written += piece
            continue
        if depth == 0:
            for end in SENTENCE_END.finditer(piece):
                if letters + end.end() >= SHORT:
                    return written + piece[: end.end()]
            letters += len(piece)
        written += piece
    return written


def definitions(glossary: str) -> dict[str, str]:
    """Return what a card says of each term of the glossary's HTML, as HTML, by the term's place."""
    return {
        place: f"<strong>{' '.join(heading.split())}</strong> {first_sentences(' '.join(text.split()))}"
        for place, heading, text in ENTRY.findall(glossary)
    }


def with_terms(page: str, known: dict[str, str]) -> str:
    """Return a page's HTML with the definitions of the terms that it links, in place of those it may have had."""
    page = TERMS.sub("", page)
    linked = [place for place in dict.fromkeys(LINKED.findall(page)) if place in known]
    if not linked:
        return page
    cards = "".join(f'<template data-term="{place}">{known[place]}</template>' for place in linked)
    body, _, rest = page.rpartition(END)
    return f'{body}<template id="terms">{cards}</template><!-- terms -->{END}{rest}'


def write_terms(app: Sphinx, exception: Exception | None) -> None:
    """After a build of HTML that went well, put the definitions into all pages, also those that were not built anew."""
    glossary = Path(app.outdir, GLOSSARY)
    if exception is not None or app.builder.name != "html" or not glossary.is_file():
        return
    known = definitions(glossary.read_text(encoding="utf-8"))
    for file in Path(app.outdir).rglob("*.html"):
        old = file.read_text(encoding="utf-8")
        if file != glossary and (new := with_terms(old, known)) != old:
            file.write_text(new, encoding="utf-8")


def add_filter(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Let the page of error messages load its filter."""
    if page == MESSAGES:
        app.add_js_file("message_filter.js", defer="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Begin when all pages are written, before the style sheet (600) is made of what they have."""
    app.connect("html-page-context", add_filter)
    app.connect("build-finished", write_terms, priority=590)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
