"""Every chapter keeps the rules, and each rule is seen to refuse a planted fault."""

import copy

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.tools.chapters import CELLS, HEADINGS, chapter_faults, words
from tools.cards import Card, read_card
from tools.notebooks import ROOT

CHAPTERS = sorted(path.name for path in ROOT.glob("book/[0-9][0-9]_*.ipynb"))
CARD = """**You will be able to**

- write one
- prove it
- ship it

**What it takes**

- **Time:** 60 minutes
- **Difficulty:** 2 of 5
- **Needs:** [Chapter 1](01_relu.ipynb)"""
WRONG = "class ReLU(torch.autograd.Function):\n    pass"
ALT = "ReLU from -1 to 1 as a line, and its gradient, 0 on the left and 1 on the right."


@pytest.mark.parametrize("file", CHAPTERS)
def test_chapters_keep_the_rules(file):
    assert chapter_faults(nbformat.read(ROOT / "book" / file, as_version=4), file, CHAPTERS) == []


def chapter():
    """A chapter that keeps every rule."""
    cells = [new_markdown_cell("# Two", id="title"), new_markdown_cell(CARD, id="card", metadata={"tags": ["card"]})]
    for heading in HEADINGS:
        name = heading.lower().replace(" ", "-").replace(",", "")
        cells.append(new_markdown_cell(f"## {heading}\n\nWords.", id=name))
        if heading == "See it":
            metadata = {
                "tags": ["figure:line", "hide-input"],
                "jupyter": {"source_hidden": True},
                "mystnb": {"image": {"alt": ALT}},
                "finding": "The gradient is 1 where the function rises.",
            }
            picture = new_output("display_data", data={"image/svg+xml": "<svg/>"})
            cells.append(new_code_cell("line()", id="figure", metadata=metadata, outputs=[picture]))
        if heading == "How it breaks":
            for wrong in ("upstream_ignored", "mask_multiplied"):
                tags = {"tags": [f"misconception:ReLU.{wrong}"]}
                cells.append(new_code_cell(WRONG, id=wrong.replace("_", "-"), metadata=tags))
    return new_notebook(cells=cells)


MOVING = 'Look:\n\n<figure class="interactive" data-figure="line">\n<table></table>\n</figure>'


def with_moving(notebook, *tags):
    """Put a figure that moves before the picture, and these tags on the picture."""
    place = next(i for i, c in enumerate(notebook.cells) if c.id == "figure")
    notebook.cells.insert(place, new_markdown_cell(MOVING, id="moves"))
    notebook.cells[place + 1].metadata.tags += tags
    return notebook


def faults_of(notebook):
    return chapter_faults(notebook, "02_two.ipynb", ["01_relu.ipynb", "02_two.ipynb", "03_three.ipynb"])


def test_a_chapter_that_keeps_the_rules_passes():
    assert faults_of(chapter()) == []
    assert read_card(CARD) == Card(["write one", "prove it", "ship it"], 60, 2, ["01_relu.ipynb"])


def cell(notebook, cell_id):
    return next(cell for cell in notebook.cells if cell.id == cell_id)


def card_with(old, new):
    assert old in CARD
    return lambda n: cell(n, "card").update(source=CARD.replace(old, new))


def swap_parts(n):
    a, b = cell(n, "the-idea"), cell(n, "the-problem")
    a.source, b.source = b.source, a.source


FUNCTION = "class Long(Function):\n" + "    x = 1\n" * 25
PLANTED = {
    "too many cells": (lambda n: n.cells.extend([new_markdown_cell("x")] * 60), "cells, 70 at most"),
    "too many words": (lambda n: cell(n, "summary").update(source="## Summary\n\n" + "word " * 2500), "words, 2500"),
    "long code": (lambda n: cell(n, "mask-multiplied").update(source=WRONG + "\n#" * 39), "41 lines, 40 at most"),
    "long median": (
        lambda n: [cell(n, i).update(source=WRONG + "\n#" * 11) for i in ("mask-multiplied", "upstream-ignored")],
        "in the median",
    ),
    "long Function": (lambda n: n.cells.append(new_code_cell(FUNCTION)), "Long has 26 lines"),
    "no title": (lambda n: n.cells.pop(0), "not the title"),
    "parts swapped": (swap_parts, "the parts are"),
    "part missing": (lambda n: cell(n, "the-proof").update(source="text"), "the parts are"),
    "further in the middle": (
        lambda n: cell(n, "the-proof").update(source="## Further\n\n## The proof"),
        "the parts are",
    ),
    "one part more": (lambda n: n.cells.append(new_markdown_cell("## More")), "the parts are"),
    "a MyST directive": (lambda n: cell(n, "title").update(source="# Two\n\n```{note}\nx\n```"), "shows raw"),
    "a MyST role": (lambda n: cell(n, "title").update(source="# Two\n\n{term}`VJP`"), "shows raw"),
    "no card": (lambda n: cell(n, "card").metadata.clear(), "the card is the second cell"),
    "two abilities": (card_with("- ship it\n", ""), "the card breaks the grammar"),
    "no minutes": (card_with("60 minutes", "an hour"), "the card breaks the grammar"),
    "endless": (card_with("60 minutes", "600 minutes"), "600 minutes"),
    "difficulty 6": (card_with("2 of 5", "6 of 5"), "the card breaks the grammar"),
    "vague needs": (card_with("[Chapter 1](01_relu.ipynb)", "some torch"), "the card breaks the grammar"),
    "needs a later one": (card_with("01_relu", "03_three"), "needs 03_three.ipynb, which is not an earlier"),
    "needs itself": (card_with("01_relu", "02_two"), "needs 02_two.ipynb, which is not an earlier"),
    "needs nothing there": (card_with("01_relu", "01_gone"), "needs 01_gone.ipynb, which does not exist"),
    "no alt text": (lambda n: cell(n, "figure").metadata.pop("mystnb"), "its alt text does not say"),
    "no finding": (lambda n: cell(n, "figure").metadata.pop("finding"), "no finding in its metadata"),
    "empty words": (
        lambda n: cell(n, "figure").metadata.mystnb.image.update(
            alt="A figure of the function and of its gradient, drawn with matplotlib."
        ),
        "its alt text does not say",
    ),
    "figure in the open": (lambda n: cell(n, "figure").metadata.pop("jupyter"), "source_hidden"),
    "untagged picture": (lambda n: cell(n, "figure").metadata.pop("tags"), "draws, but is not tagged"),
    "figure without a picture": (lambda n: cell(n, "figure").update(outputs=[]), "draws nothing"),
    "picture twice on the page": (with_moving, "tag the picture remove-cell"),
    "picture not on the page": (
        lambda n: cell(n, "figure").metadata.tags.append("remove-cell"),
        "cell figure: only a picture right after a figure that moves",
    ),
    "text between": (
        lambda n: cell(with_moving(n, "remove-cell"), "moves").update(source=MOVING + "\n\nWords."),
        "cell figure: only a picture right after a figure that moves",
    ),
    "code not on the page": (
        lambda n: cell(n, "mask-multiplied").metadata.tags.append("remove-cell"),
        "cell mask-multiplied: only a picture",
    ),
    "markdown picture": (lambda n: cell(n, "summary").update(source="## Summary\n\n![](a.svg)"), "no alt text"),
    "html picture": (lambda n: cell(n, "summary").update(source='## Summary\n\n<img src="a.svg">'), "no alt text"),
    "bad tag": (
        lambda n: cell(n, "mask-multiplied").metadata.update(tags=["misconception:mask"]),
        "is not misconception:",
    ),
    "other class": (lambda n: cell(n, "mask-multiplied").update(source="class Other: pass"), "holds no class ReLU"),
    "one wrong version": (lambda n: cell(n, "mask-multiplied").metadata.clear(), "two to four wrong versions"),
    "named twice": (
        lambda n: cell(n, "mask-multiplied").metadata.update(tags=["misconception:ReLU.upstream_ignored"]),
        "two to four wrong versions",
    ),
    "wrong version elsewhere": (
        lambda n: n.cells.append(copy.deepcopy(cell(n, "mask-multiplied"))),
        "a wrong version outside 'How it breaks'",
    ),
}


@pytest.mark.parametrize(("edit", "fault"), PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_refused(edit, fault):
    notebook = chapter()
    edit(notebook)
    assert any(fault in found for found in faults_of(notebook)), faults_of(notebook)


def test_a_notebook_picture_follows_its_figure_and_is_no_cell_of_the_path():
    notebook = with_moving(chapter(), "remove-cell")
    assert faults_of(notebook) == []
    room = CELLS - len(notebook.cells) + 1  # one cell does not count
    notebook.cells[-1:-1] = [new_markdown_cell("x") for _ in range(room)]
    assert faults_of(notebook) == []
    notebook.cells.insert(-1, new_markdown_cell("x"))
    assert faults_of(notebook) == [f"{CELLS + 1} cells, {CELLS} at most"]


def test_the_lines_of_a_figure_are_limited_elsewhere():
    notebook = chapter()
    cell(notebook, "figure").source = "#\n" * 47 + "line()"
    assert faults_of(notebook) == []


def test_what_goes_further_has_no_limit():
    notebook = chapter()
    more = [new_markdown_cell("## Further\n\n" + "word " * 3000, id="further"), *[new_markdown_cell("x")] * 60]
    notebook.cells.extend(more)
    assert faults_of(notebook) == []


def test_pictures_and_tags_are_no_words():
    assert words("Two words. <svg><text>none of these</text></svg> <b>three</b> - ---") == 3
    assert words("Two words.\n<details><summary>Fine print</summary>\n\nmuch more\n</details>\n<figure>1</figure>") == 2
