"""Numbers the figures of a page, and loads the scripts of those that move: `figures/kit.js`, and a file for each."""

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
FIGURE = re.compile(r'<figure\b[^>]* data-figure="([\w-]+)"')
PLACE = re.compile(r"book/(\d+|[a-z])_")  # the number of a chapter or the letter of an appendix begins its name
# the caption of a figure that moves, or the cell of one that does not, up to its picture
NUMBERED = re.compile(
    r'<figure\b[^>]* data-figure="[\w-]+".*?<figcaption>'
    r'|<div class="cell [^"]*tag_figure:(?:(?!<div class="cell ).)*?<div class="cell_output[^>]*>\s*<img [^>]*>',
    re.DOTALL,
)
FOLDER = "figures"  # of book/_static


def load_figures(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Add the scripts of a page's figures to this page alone, the kit first."""
    names = list(dict.fromkeys(FIGURE.findall(context.get("body", ""))))
    for name in ["kit", *names] if names else []:
        file = f"{FOLDER}/{name}.js"
        if not Path(app.srcdir, "book/_static", file).exists():
            LOGGER.warning("%s: there is no book/_static/%s for the figure %s", page, file, name)
            continue
        app.add_js_file(file, defer="defer")


def findings(notebook: Path) -> list[str]:
    """Return what the figures of a notebook that do not move show, as their cells' metadata have it, in their order."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"] if notebook.is_file() else []
    kept = [cell["metadata"] for cell in cells if "remove-cell" not in cell["metadata"].get("tags", ())]
    drawn = [own for own in kept if any(tag.startswith("figure:") for tag in own.get("tags", ()))]
    return [own.get("finding", "") for own in drawn]


def numbered(body: str, place: str, found: Sequence[str]) -> str:
    """Return a page's text in which each figure has a number: "Figure 3.2" is the second of chapter 3.

    Args:
        body: HTML.
        place: the chapter's number, or the appendix's letter.
        found: what each of the figures that do not move shows, as `findings` has it.
    """
    count, shown = 0, iter(found)

    def add(figure: re.Match[str]) -> str:
        nonlocal count
        count += 1
        number = f'<span class="figure-number">Figure {place}.{count}</span> '
        if figure[0].startswith("<figure"):
            return f"{figure[0]}{number}"
        return f'{figure[0]}<p class="figure-caption">{number}{escape(next(shown, ""), quote=False)}</p>'

    return NUMBERED.sub(add, body)


def number_figures(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Number the figures of a chapter or an appendix."""
    if place := PLACE.match(page):
        told = findings(Path(app.srcdir, f"{page}.ipynb"))
        if "" in told:
            LOGGER.warning("%s: figure %s has no finding in its cell's metadata", page, told.index("") + 1)
        context["body"] = numbered(context.get("body", ""), place[1].lstrip("0"), told)


def setup(app: Sphinx) -> dict[str, Any]:
    """Begin when a page's text is there."""
    app.connect("html-page-context", load_figures)
    app.connect("html-page-context", number_figures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
