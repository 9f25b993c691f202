"""Search by section, which forgives a typing error and takes a whole error message as it was printed.

The message leads to the section that quotes it. What each section says is written into ``sections.js``, which the
search page alone loads: so there is a snippet for a page that was opened from the disk too, where no script may read
others.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment

PAGE = "book/a_errors"
SECTIONS = "_static/sections.js"
SILENT = (nodes.literal_block, nodes.raw, nodes.comment, nodes.image, nodes.target)
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


def write_messages(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Name the page, to be written each time: of a page that a build leaves as it is, Sphinx forgets the entries."""
    return [PAGE] if PAGE in env.found_docs else []


def said(node: nodes.Node) -> Iterator[str]:
    """Yield the words of a section, those of its subsections and its code left out."""
    for child in node.children:
        if isinstance(child, nodes.Text):
            yield child.astext()
        elif isinstance(child, nodes.math | nodes.math_block):
            yield "\N{HORIZONTAL ELLIPSIS}"  # a snippet shows no formulas
        elif not isinstance(child, (nodes.section, nodes.title, *SILENT)):
            yield from said(child)
            if isinstance(child, nodes.TextElement) and not isinstance(child, nodes.Inline):
                yield " "


def sections(doctree: nodes.document) -> Iterator[tuple[str, str, str]]:
    """Yield the place, the title and the words of each section of a page."""
    for section in doctree.findall(nodes.section):
        yield section["ids"][0], section[0].astext(), " ".join("".join(said(section)).split())


def write_sections(app: Sphinx, exception: Exception | None) -> None:
    """Write what each section says, in the order in which the search's own index names the pages."""
    if exception is not None or app.builder.name != "html":
        return
    pages = {page: [*sections(app.env.get_doctree(page))] for page in sorted(app.env.found_docs)}
    text = json.dumps(pages, ensure_ascii=False, separators=(",", ":"))
    Path(app.outdir, SECTIONS).write_text(f"window.courseSections={text};\n", encoding="utf-8")


def take_script(app: Sphinx, config: Config) -> None:
    """Let the search page run ``search.js``, which compares what was typed with the messages."""
    config.html_search_scorer = str(Path(__file__).with_name("search.js"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect all of them."""
    app.connect("config-inited", take_script)
    app.connect("doctree-read", list_messages)
    app.connect("env-updated", write_messages)
    app.connect("build-finished", write_sections)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
