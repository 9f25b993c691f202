"""Makes the built pages quick to show: one style sheet of the rules that a page can use, lean code and scripts.

A page waits for its style sheets, which have 90 KB after compression; without the rules for classes that no page and no
script has, 27 KB are left, and on a telephone a page is shown 0.4 seconds sooner. ``book/_templates/layout.html`` names
the sheet.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import attrgetter
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any, TextIO

import tinycss2
from docutils import nodes
from pygments.formatters import HtmlFormatter
from pygments.token import Name, Punctuation, Text
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.highlighting import PygmentsBridge
from tinycss2 import ast

SHEET = "_static/course.css"
THEME = ["basic.css", "styles/pydata-sphinx-theme.css"]  # what the theme names in its layout; Sphinx knows the others
SCRIPTS = ("a11y.js", "message_filter.js", "page.js")
COMMENT = re.compile(r"\A/\*(?:[^*]|\*(?!/))*\*/\n|^[ \t]*//[^\n]*\n", re.MULTILINE)
CLASSES = re.compile(r'\bclass="([^"]*)"')
WORD = re.compile(r"[A-Za-z_][\w-]*")
ADDRESS = re.compile(r"""url\((["']?)(?!data:|#|%23)([^"')]+)\1\)""")
BUILT_BY_SCRIPT = "bs-tooltip-auto"  # the one name that Bootstrap's script puts together
PLAIN = {Name, Name.Namespace, Name.Other, Punctuation, Punctuation.Marker, Text.Whitespace}  # they have no colour


class PlainCode(HtmlFormatter):
    """Code in HTML, without an element around each name and bracket, which have the colour of the code itself."""

    def format(self, tokensource: Iterable[tuple[Any, str]], outfile: TextIO) -> None:
        """Write the tokens, the plain ones as mere text."""
        super().format(((Text if kind in PLAIN else kind, text) for kind, text in tokensource), outfile)


def load_later(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Let a browser load the images of a page when a reader comes near, but the first at once."""
    for image in list(doctree.findall(nodes.image))[1:]:
        image["loading"] = "lazy"


def can_match(selector: list[ast.Node], names: set[str]) -> bool:
    """Return whether each class that the selector asks for is one of ``names``; its brackets are not looked at."""
    return all(name.value in names for dot, name in pairwise(selector) if dot == "." and name.type == "ident")


def kept_rules(rules: Iterable[ast.Node], names: set[str]) -> Iterator[str]:
    """Yield the rules that elements with the classes ``names`` can match, and licences, as text."""
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors: list[list[ast.Node]] = [[]]
            for node in rule.prelude:
                if node == ",":
                    selectors.append([])
                else:
                    selectors[-1].append(node)
            kept = [tinycss2.serialize(selector).strip() for selector in selectors if can_match(selector, names)]
            if kept:
                yield f"{','.join(kept)}{{{tinycss2.serialize(rule.content).strip()}}}"
        elif rule.type == "at-rule" and rule.lower_at_keyword in ("media", "supports"):
            inside = "".join(kept_rules(tinycss2.parse_rule_list(rule.content), names))
            if inside:
                yield f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{inside}}}"
        elif rule.type == "at-rule" or (rule.type == "comment" and rule.value.startswith("!")):
            yield rule.serialize()


def style_sheet(static: Path, sheets: list[str], names: set[str]) -> str:
    """Return the rules of ``sheets``, paths in the folder ``static``, that the classes ``names`` can use."""
    rules: list[str] = []
    for sheet in sheets:
        folder = PurePosixPath(sheet).parent
        text = (static / sheet).read_text(encoding="utf-8").removeprefix('@charset "UTF-8";')
        text = ADDRESS.sub(lambda found, folder=folder: f'url("{normpath(folder / found[2])}")', text)
        rules += kept_rules(tinycss2.parse_stylesheet(text), names)
    return "\n".join([*rules, ""])


def write_sheet(app: Sphinx, exception: Exception | None) -> None:
    """Write the one style sheet, and its checksum into the pages, so that no browser takes an old one."""
    if exception is not None or app.builder.name != "html":
        return
    html, static = Path(app.outdir), Path(app.outdir, "_static")
    pages = {page: page.read_text(encoding="utf-8") for page in html.rglob("*.html")}
    names = {BUILT_BY_SCRIPT}
    for text in pages.values():
        names.update(*map(str.split, CLASSES.findall(text)))
    for script in static.rglob("*.js"):
        if script.parent.name == "live":  # with styles of their own; most of them are Python and data
            continue
        names.update(WORD.findall(script.read_text(encoding="utf-8")))
    own = sorted(app.builder._css_files, key=attrgetter("priority"))  # in this order Sphinx links them
    sheets = [*THEME, *(PurePosixPath(sheet.filename).relative_to("_static").as_posix() for sheet in own)]
    sheet = style_sheet(static, list(dict.fromkeys(sheets)), names)
    (html / SHEET).write_text(sheet, encoding="utf-8")
    address = f"{SHEET}?v={hashlib.sha256(sheet.encode()).hexdigest()[:8]}"
    for page, text in pages.items():
        page.write_text(re.sub(rf'{re.escape(SHEET)}[^"]*', address, text), encoding="utf-8")


def write_lean_scripts(app: Sphinx, exception: Exception | None) -> None:
    """Write the scripts that every page loads without the lines that are comments."""
    if exception is not None or app.builder.name != "html":
        return
    for name in SCRIPTS:
        source = Path(app.srcdir, "book", "_static", name)
        if source.is_file():
            text = source.read_text(encoding="utf-8")
            Path(app.outdir, "_static", name).write_text(COMMENT.sub("", text), encoding="utf-8")


def read_look(app: Sphinx, config: Config) -> None:
    """Make styles, scripts and these extensions a setting: Sphinx makes all pages again when one changes."""
    files = [*Path(app.srcdir, "book", "_static").rglob("*.*s"), *Path(__file__).parent.glob("*.*")]  # css, js; py
    config.course_look = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()


def setup(app: Sphinx) -> dict[str, Any]:
    """Begin when all pages are written."""
    PygmentsBridge.html_formatter = PlainCode
    app.add_config_value("course_look", "", "env", str)
    app.connect("config-inited", read_look)
    app.connect("doctree-resolved", load_later)
    app.connect("build-finished", write_sheet, priority=600)
    app.connect("build-finished", write_lean_scripts, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
