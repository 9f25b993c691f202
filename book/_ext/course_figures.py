"""Loads the scripts of the figures that a page holds: `figures/kit.js`, and one file for each figure."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
FIGURE = re.compile(r'<figure\b[^>]* data-figure="([\w-]+)"')
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


def setup(app: Sphinx) -> dict[str, Any]:
    """Begin when a page's text is there."""
    app.connect("html-page-context", load_figures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
