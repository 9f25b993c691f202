"""Where a page comes from: how to run it yourself, the name of its source, and where to report an error in it.

Two environment variables say what only who publishes the book can know: COURSE_REPOSITORY, the address of the course on
GitHub, and COURSE_REPORT, an e-mail address or a web page for errors; without the second it is the repository's issues.
"""

import os
import re
from html import escape
from itertools import takewhile
from typing import Any
from urllib.parse import quote, urlsplit

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError

REPOSITORY = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?")
MAIL = re.compile(r"[^@\s/?&]+@[^@\s/?&]+\.[^@\s/?&]+")
RUN = '<details class="brief run"><summary>Run this page yourself</summary>'
HOW = (
    '<p>In the course\u2019s folder (<a class="reference internal" href="setup.html">Setup</a> says how you get it), '
    "with its environment active:</p>"
)
COLAB = "https://colab.research.google.com/github/{name}/blob/HEAD/{file}"
BINDER = "https://mybinder.org/v2/gh/{name}/HEAD?labpath={path}"


def read_settings(app: Sphinx, config: Config) -> None:
    """Take both addresses; where one changes, all pages are read again.

    Raises:
        ConfigError: one of them is no address.
    """
    repository, report = (os.environ.get(name, "").strip() for name in ("COURSE_REPOSITORY", "COURSE_REPORT"))
    if repository and not REPOSITORY.fullmatch(repository):
        told = "give the course's address on GitHub, such as https://github.com/someone/course"
        raise ConfigError(f"COURSE_REPOSITORY is {repository!r}: {told}")
    if report and not MAIL.fullmatch(report) and not urlsplit(report).netloc:
        raise ConfigError(f"COURSE_REPORT is {report!r}: give an e-mail address, or that of a page, https://...")
    found = REPOSITORY.fullmatch(repository)
    config.course_repository = found[1] if found else ""
    config.course_report = report


def report_link(source: str, repository: str, report: str) -> str:
    """Return where an error in a source file is reported; "" where nobody said."""
    if MAIL.fullmatch(report):
        return f"mailto:{report}?subject={quote(source, safe='')}"
    if report:
        return report
    return f"https://github.com/{repository}/issues/new?title={quote(source, safe='')}" if repository else ""


def linked(address: str, html: str) -> str:
    """Return a link to another site."""
    return f'<a class="reference external" href="{escape(address)}">{html}</a>'


def foot(source: str, repository: str, report: str) -> str:
    """Return the line below a page, as HTML.

    Args:
        source: the page's file, such as ``book/01_relu.ipynb``.
        repository: ``owner/name`` on GitHub, or "".
        report: an e-mail address, a page's address, or "".
    """
    name = f"<code>{escape(source)}</code>"
    if repository:
        name = (
            f'<a class="reference external" href="https://github.com/{repository}/blob/HEAD/{quote(source)}">{name}</a>'
        )
    link = report_link(source, repository, report)
    tell = (
        f'<a class="reference external" href="{escape(link)}">Report it</a>'
        if link
        else "Tell whoever gave you the book"
    )
    return f'<p class="page-source">Something wrong on this page? {tell}, and name its source: {name}.</p>'


def add_foot(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Put the line below the text of a page that has a source."""
    if doctree is not None and context.get("body"):
        source = app.env.doc2path(page, base=False)
        context["body"] += foot(str(source), app.config.course_repository, app.config.course_report)


def offer_run(app: Sphinx, doctree: nodes.document) -> None:
    """Say below the title of a notebook how to run it; with a repository, link two places that run it in a browser."""
    source = str(app.env.doc2path(app.env.docname, base=False))
    chapter = next(iter(doctree.findall(nodes.section)), None)
    if chapter is None or not source.endswith(".ipynb"):
        return
    command = nodes.literal_block("", f"jupyter lab {source}", language="text")
    html = ""
    if name := app.config.course_repository:
        binder = BINDER.format(name=name, path=quote(source, safe=""))
        links = [("Colab", COLAB.format(name=name, file=quote(source))), ("Binder", binder)]
        offered = " or ".join(linked(to, where) for where, to in links)
        html = f"<p>Or in the browser, with nothing installed: {offered}.</p>"
    before = list(takewhile(lambda child: not isinstance(child, nodes.section), chapter.children))
    folded = [at for at, child in enumerate(before, 1) if child.astext() == "</details>"]
    begin, end = (nodes.raw("", text, format="html") for text in (RUN + HOW, f"{html}</details>"))
    chapter.insert(folded[0] if folded else 1, [begin, command, end])


def setup(app: Sphinx) -> dict[str, Any]:
    """Offer it when a page is read, after `course_look` has made the lines below its title."""
    app.add_config_value("course_repository", "", "env", str)
    app.add_config_value("course_report", "", "html", str)
    app.connect("config-inited", read_settings)
    app.connect("doctree-read", offer_run, priority=650)
    app.connect("html-page-context", add_foot)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
