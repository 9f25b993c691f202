"""What the build adds to the look of a chapter: wrong versions, Functions, and the lines below the title.

All of it is in the page as HTML, so that it is there without script. The sources stay plain Markdown and Python: a
wrong version is known by its cell's tag and the comment ``# wrong``, the rest by the tables of ``book/functions.md``.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html import escape
from itertools import groupby, pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from course_book import is_bold, tag_of
from docutils import nodes
from pygments.lexers import CudaLexer, Python3Lexer
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
TABLES = "book/functions.md"
MAP = "map.svg"  # of the chapters, drawn by tools/first_page.py
MARK = re.compile(r"[^#]*  # wrong")  # a whole line of code that is wrong, as its author marked it
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
NAME = re.compile(r"\[`(\w+)`\]\((\w+)\.ipynb#")  # of a Function, and the notebook that defines it
TITLE = re.compile(r"\[(.+?)\]\((\w+)\.ipynb#how-it-breaks\)")  # of a wrong version, and its notebook
INLINE = re.compile(r"`(?P<code>[^`]+)`|\$(?P<math>[^$]+)\$|\[(?P<text>[^\]]+)\]\([^)]*\)")
LABEL = "Wrong version: runs, and is wrong"
TURN = "Your turn: write here"
LANGUAGES = {"cpp": "C++", "cuda": "CUDA"}  # of the strings in a cell tagged `language:cpp` or `language:cuda`
STRING = re.compile(r'(?<=r""").*?(?=""")', re.DOTALL)
DOTS = ' <span class="dots" aria-hidden="true">{}{}</span>'
BRIEF = '<details class="brief"><summary>In 30 seconds</summary>'


@dataclass(frozen=True)
class Caught:
    """What the two checks say of a wrong version, and what catches it, as the table has it."""

    gradcheck: str
    gradgradcheck: str
    by: str


@dataclass(frozen=True)
class Tables:
    """What the page of all Functions says, by the notebook's name."""

    functions: set[tuple[str, str]] = field(default_factory=set)  # notebook, name
    wrong: dict[tuple[str, str], Caught] = field(default_factory=dict)  # notebook, title


def read_tables(text: str) -> Tables:
    """Read the tables of Functions and of wrong versions."""
    tables, kind = Tables(), ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("|") else [""]
        if cells[0] in ("", "Function", "Wrong version"):
            kind = cells[0]
        elif kind == "Function" and (found := NAME.match(cells[0])):
            tables.functions.add((found[2], found[1]))
        elif kind == "Wrong version" and (found := TITLE.match(cells[0])):
            tables.wrong[found[2], found[1].replace("`", "")] = Caught(*cells[2:])
    return tables


@cache
def tables_at(file: Path, changed: int) -> Tables:
    """The tables of a file, read once for each time that it ``changed``."""
    return read_tables(file.read_text(encoding="utf-8"))


def inline(text: str) -> Iterator[nodes.Node]:
    """Make nodes of a table's cell: code and formulas; of a link its words, since the text beside has the link."""
    at = 0
    for found in INLINE.finditer(text):
        yield nodes.Text(text[at : found.start()].replace("'", "\N{RIGHT SINGLE QUOTATION MARK}"))
        if found["code"]:
            yield nodes.literal("", found["code"])
        elif found["math"]:
            yield nodes.math("", found["math"])
        else:
            yield from inline(found["text"])
        at = found.end()
    yield nodes.Text(text[at:].replace("'", "\N{RIGHT SINGLE QUOTATION MARK}"))


def chips(kind: str, items: list[tuple[str, list[nodes.Node]]]) -> nodes.bullet_list:
    """A list that is shown in one line, of items with a class, or "", and their content."""
    listed = (nodes.list_item("", nodes.paragraph("", "", *content), classes=name.split()) for name, content in items)
    return nodes.bullet_list("", *listed, classes=["chips", kind])


# ------------------------------------------------------------------------------------------------------ code


class EmbeddedLexer(Python3Lexer):
    """Python whose raw strings in three quotes are C++ or CUDA, which has the words of C++ and some more."""

    def get_tokens_unprocessed(self, text: str, stack: tuple[str, ...] = ("root",)) -> Iterator[tuple[int, Any, str]]:
        """Yield the tokens of Python, and in place of each string's inside those of C++."""
        spans = [found.span() for found in STRING.finditer(text)]
        around = super().get_tokens_unprocessed(text, stack)
        tokens = [token for token in around if not any(begin <= token[0] < end for begin, end in spans)]
        for begin, end in spans:
            inside = CudaLexer().get_tokens_unprocessed(text[begin:end])
            tokens += [(begin + at, kind, word) for at, kind, word in inside]
        yield from sorted(tokens, key=lambda token: token[0])


def language_of(cell: nodes.Element) -> str:
    """Return the name of the language that a cell's strings are written in; "" for Python alone."""
    tags = (name.partition("tag_language:")[2] for name in cell.get("classes", ()))
    return next((LANGUAGES[tag] for tag in tags if tag in LANGUAGES), "")


def code_of(cell: nodes.Element) -> nodes.literal_block | None:
    """The block of code that a cell shows."""
    shown = (part for part in cell.children if isinstance(part, nodes.container) and "cell_input" in part["classes"])
    return next((block for part in shown for block in part.findall(nodes.literal_block)), None)


def announced(section: nodes.section) -> Iterator[tuple[nodes.container, str]]:
    """Yield the cells of a section that are tagged as wrong, each with the words in bold that announce it, or ""."""
    cells = [node for node in section.children if isinstance(node, nodes.container) and tag_of(node)]
    bold = [node for node in section.children if isinstance(node, nodes.paragraph) and is_bold(node)]
    titles = [next(iter(node.findall(nodes.strong))).astext().rstrip(".") for node in bold]
    yield from zip(cells, titles if len(titles) == len(cells) else [""] * len(cells), strict=True)


def show_wrong(cell: nodes.container, block: nodes.literal_block, caught: Caught) -> None:
    """Put a label above a wrong version, mark its lines, and say below it which check sees it."""
    lines = [number for number, line in enumerate(block.astext().splitlines(), 1) if MARK.fullmatch(line)]
    if not lines:
        LOGGER.warning("%s: no line ends in `# wrong`: mark the faulty one", tag_of(cell), location=cell)
    block["highlight_args"] = block.get("highlight_args", {}) | {"hl_lines": lines}
    cell["classes"].append("rank-wrong")
    row: list[tuple[str, list[nodes.Node]]] = [
        ("", [nodes.literal("", check), nodes.Text(f" {says}" if says in ("passes", "fails") else f": {says}")])
        for check, says in (("gradcheck", caught.gradcheck), ("gradgradcheck", caught.gradgradcheck))
    ]
    row.append(("caught", [nodes.strong("", "Caught by"), nodes.Text(" "), *inline(caught.by)]))
    cell.insert(1, chips("verdicts", row))
    cell.insert(0, nodes.paragraph("", LABEL, classes=["rank"]))


def rank_code(app: Sphinx, doctree: nodes.document) -> None:
    """Tell wrong versions, Functions and what the reader writes from the experiments around them."""
    file, notebook = Path(app.srcdir, TABLES), Path(app.env.docname).name
    cells = [node for node in doctree.findall(nodes.container) if "cell" in node["classes"]]
    if not cells:
        return
    app.env.note_dependency(TABLES)
    tables = tables_at(file, file.stat().st_mtime_ns)
    titles = dict(pair for section in doctree.findall(nodes.section) for pair in announced(section))
    for cell in cells:
        block = code_of(cell)
        if block is None:
            continue
        if language := language_of(cell):
            block["language"] = "python-cpp"
            cell["classes"].append("rank-language")
            cell.insert(0, nodes.paragraph("", f"{language}, in a string", classes=["rank"]))
            continue
        if tag := tag_of(cell):
            caught = tables.wrong.get((notebook, titles.get(cell, "")))
            if caught is None:
                told = "%s: %s has no row for %r: announce the cell in bold, and add the row"
                LOGGER.warning(told, tag, TABLES, titles.get(cell, ""), location=cell)
            else:
                show_wrong(cell, block, caught)
            continue
        if any(name.startswith("tag_turn:") for name in cell["classes"]):
            cell["classes"].append("rank-turn")
            cell.insert(0, nodes.paragraph("", TURN, classes=["rank"]))
            continue
        names = [name for name in CLASS.findall(block.astext()) if (notebook, name) in tables.functions]
        if names:
            cell["classes"].append("rank-function")
            label = nodes.paragraph("", "Function " if len(names) == 1 else "Functions ", classes=["rank"])
            for at, name in enumerate(names):
                label += [nodes.Text(", ")] * bool(at) + [nodes.literal("", name)]
            cell.insert(0, label)
            block.parent.insert(0, nodes.raw("", bar(block.astext()), format="html"))


def directions(code: str) -> list[tuple[str, int, int]]:
    """Return runs of lines: "forward", "backward" or "other", each with its first line and the one after its last.

    Args:
        code: of a cell; text that Python cannot parse, as with a magic, is all "other".
    """
    try:
        body = ast.parse(code).body
    except SyntaxError:
        body = []
    kinds = ["other"] * len(code.splitlines())
    for owner in (node for node in body if isinstance(node, ast.ClassDef)):
        kinds[owner.lineno - 1 : owner.end_lineno] = ["forward"] * (owner.end_lineno - owner.lineno + 1)
        for method in (node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == "backward"):
            first = min([method.lineno, *(each.lineno for each in method.decorator_list)])
            kinds[first - 1 : method.end_lineno] = ["backward"] * (method.end_lineno - first + 1)
    runs, at = [], 0
    for kind, lines in groupby(kinds):
        count = len(list(lines))
        runs.append((kind, at, at + count))
        at += count
    return runs


def bar(code: str) -> str:
    """Return the bar beside a Function: backward's lines have backward's colour, the class's others forward's."""
    total = len(code.splitlines())
    stops = []
    for kind, first, after in directions(code):
        ends = (f"calc(var(--above) + (100% - 2 * var(--above)) * {at} / {total})" for at in (first, after))
        stops.append(f"var(--{kind}) {' '.join(ends)}")
    return f'<span class="bar" aria-hidden="true" style="background: linear-gradient({", ".join(stops)})"></span>'


# ------------------------------------------------------------------------------------------- below the title


def find_card(chapter: nodes.section) -> tuple[nodes.paragraph, nodes.bullet_list] | None:
    """The words *What it takes* of a chapter's card, and the list below them; an appendix has another list."""
    for node, after in pairwise(chapter.children):
        if isinstance(node, nodes.paragraph) and node.astext() == "What it takes":
            return (node, after) if re.match(r"Time: .*\s+Difficulty: .*\s+Needs: ", after.astext()) else None
    return None


def show_card(app: Sphinx, doctree: nodes.document) -> None:
    """Show what a chapter takes in one line below its title, and below that its summary, folded."""
    chapter = next(iter(doctree.findall(nodes.section)), None)
    card = find_card(chapter) if chapter else None
    if chapter is None or card is None:
        return
    said: dict[str, list[nodes.Node]] = {}
    for item in card[1].children:
        name, *rest = (part for part in item[0].children if part.astext())
        said[name.astext()] = rest
    time, difficulty = ("".join(part.astext() for part in said[name]).strip() for name in ("Time:", "Difficulty:"))
    level = int(difficulty.split()[0])
    dots = nodes.raw("", DOTS.format("●" * level, "○" * (5 - level)), format="html")
    row: list[tuple[str, list[nodes.Node]]] = [
        ("", [nodes.Text(time)]),
        ("", [nodes.Text(f"difficulty {difficulty}"), dots]),
        ("", [nodes.Text("needs"), *said["Needs:"]]),
    ]
    for part in card:
        part.parent.remove(part)
    chapter.insert(1, [chips("takes", row), *brief(chapter)])


def brief(chapter: nodes.section) -> list[nodes.Node]:
    """The points of a chapter's summary, to be opened; they have no ids, since each stands in the summary already."""
    for section in chapter.findall(nodes.section):
        if section[0].astext() == "Summary":
            for listed in section.findall(nodes.bullet_list):
                copy = listed.deepcopy()
                for node in copy.findall(nodes.Element):
                    node["ids"], node["names"] = [], []
                return [nodes.raw("", BRIEF, format="html"), copy, nodes.raw("", "</details>", format="html")]
    LOGGER.warning("no list in a section Summary, for the lines below the title", location=chapter)
    return []


def open_map(app: Sphinx, doctree: nodes.document) -> None:
    """Put the map of the chapters into the page as it is drawn, so that its boxes are links."""
    for image in list(doctree.findall(nodes.image)):
        if PurePosixPath(image["uri"]).name == MAP:
            app.env.note_dependency(f"book/{MAP}")
            drawing = Path(app.srcdir, "book", MAP).read_text(encoding="utf-8")
            named = f'<svg class="map" role="group" aria-label="{escape(image.get("alt", ""))}"'
            html = re.sub(r"<svg\b(?= )", named, drawing.replace(' role="img"', "", 1), count=1)
            image.replace_self(nodes.raw("", re.sub(r"<title>.*?</title>\n", "", html), format="html"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Begin when a page is read, after its wrong versions have their names."""
    app.add_lexer("python-cpp", EmbeddedLexer)
    app.connect("doctree-read", open_map, priority=400)  # before Sphinx collects images
    app.connect("doctree-read", rank_code, priority=600)
    app.connect("doctree-read", show_card, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
