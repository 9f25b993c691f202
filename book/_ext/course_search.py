"""Search that takes a whole error message, as it was printed: it leads to the section that quotes the message."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config

PAGE = "book/a_errors"
NAMES = re.compile(r"\b(Sin|Older|WithSelf)(Backward)?\b|'scale'")  # the page's own: a reader's message has others


def messages(section: nodes.section) -> list[str]:
    """The messages of an entry: the paragraphs right below its heading that are one piece of code each."""
    found = []
    for node in section.children[1:]:
        if not isinstance(node, nodes.paragraph) or [type(part) for part in node.children] != [nodes.literal]:
            break
        found.append(" ".join(NAMES.sub("", node.astext()).split()))
    return found


def list_messages(app: Sphinx, doctree: nodes.document) -> None:
    """Put each message into the search index, with the place of its section."""
    if app.env.docname != PAGE:
        return
    for section in list(doctree.findall(nodes.section)):
        entries = [("single", text, section["ids"][0], "", None) for text in messages(section)]
        if entries:
            section.insert(1, addnodes.index(entries=entries))


def take_script(app: Sphinx, config: Config) -> None:
    """Let the search page run ``search.js``, which compares what was typed with the messages."""
    config.html_search_scorer = str(Path(__file__).with_name("search.js"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect both."""
    app.connect("config-inited", take_script)
    app.connect("doctree-read", list_messages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
