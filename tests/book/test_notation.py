"""Mathematics and numbers are written as book/notation.md says, as far as a pattern can tell."""

import re

import pytest

from tests.book.book_build import PAGES
from tests.book.test_build import markdown
from tests.book.test_terms import PARSER, prose

IN_PROSE = {
    "a negative number is a formula": r"(?<![\w.)|-])[-\N{MINUS SIGN}]\d",
    "four digits take no comma": r"(?<![\d,])\d,\d{3}(?![\d,])",
    "a power of ten is a formula, or code": r"\b\d+(?:\.\d+)?e[-+]?\d+\b",
    "nan and inf stay in small letters": r"\b(?:NaN|NAN|Inf|INF)\b",
    "dtypes are words": r"\b(?:fp|FP|bf)(?:16|32|64)\b",
}
IN_FORMULAS = {
    "the product of elements is \\odot": r"\\circ\b",
    "the transpose is \\top": r"\^\{?(?:T|\\mathsf|\\intercal)\b",
    "the natural logarithm is \\log": r"\\ln\b",
    "a number takes no comma": r"\d,\d{3}",
    "$(n,)$ is the shape of a vector": r"^\(n\)$",
}


def formulas(text: str) -> list[str]:
    """The formulas of a page, those on lines of their own and those within."""
    tokens = PARSER.parse(text)
    within = [child for token in tokens for child in token.children or []]
    return [token.content for token in tokens + within if token.type.startswith("math")]


def departures(text: str) -> list[str]:
    """Where a page departs from the notation: the rule, and what stands there."""
    said, _ = prose(text)
    found = [(rule, said, match) for rule, form in IN_PROSE.items() for match in re.finditer(form, said)]
    for formula in formulas(text):
        found += [(rule, formula, match) for rule, form in IN_FORMULAS.items() for match in re.finditer(form, formula)]
    return [f"{rule}: {where[max(0, at.start() - 30) : at.end() + 30]!r}" for rule, where, at in found]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "book/trust"])  # it quotes what attacks write
def test_a_page_keeps_the_notation(page: str) -> None:
    faults = departures(markdown(page))
    assert not faults, f"{page}: write it as book/notation.md says:\n" + "\n".join(faults)


PLANTED = {
    "minus in prose": ("the slope is -2 there", "a negative number"),
    "a minus sign in prose": ("times \N{MINUS SIGN}1000", "a negative number"),
    "a comma in four digits": ("at 1,000 points", "four digits"),
    "a power of ten in prose": ("near 1e-6.", "a power of ten"),
    "nan in capitals": ("it gives NaN", "nan and inf"),
    "a dtype's nickname": ("in fp16", "dtypes"),
    "another product": ("$a \\circ b$", "the product"),
    "another transpose": ("$A^T$", "the transpose"),
    "another logarithm": ("$$\n\\ln x\n$$", "the natural logarithm"),
    "a comma in a formula": ("$N = 32,768$", "a number takes no comma"),
    "a vector's shape": ("of shape $(n)$", "$(n,)$"),
}
KEPT = "$-2$, 1000 to 65,535, `1e-6`, $10^{-6}$, nan, chapters 3-5, float16, $a \\odot b$, $A^\\top$, $(n,)$, $f(n)$"


@pytest.mark.parametrize(("text", "rule"), PLANTED.values(), ids=PLANTED)
def test_a_departure_is_found(text: str, rule: str) -> None:
    assert [fault.startswith(rule) for fault in departures(text)] == [True]


def test_what_follows_the_notation_passes() -> None:
    assert departures(KEPT) == []
