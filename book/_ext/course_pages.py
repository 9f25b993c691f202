"""What each page says of itself to search engines, messengers and a lost reader: description, card, address, 404.

The descriptions stand in ``book/descriptions.yml``, one for each page; a page without one fails the build. The address
of the site comes from the environment variable COURSE_URL; without it a page names no address, as nobody can know it.
"""

import os
import re
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.errors import ConfigError
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
DESCRIPTIONS = "book/descriptions.yml"
EXTRA = {"search", "404"}  # pages that no document is the source of
LENGTH = range(70, 161)  # characters that a search engine shows
CARD = "social-card.png"  # 1200 x 630, drawn by tools/social_card.py
CARD_SAYS = "Custom Gradients in PyTorch, from ReLU to FlashAttention: a function with a kink, and a point on it"
LOST = """<section><h1>Page not found</h1>
<p>No page of the course has this address. Perhaps it was moved, or the link has a letter too many.</p>
<ul><li><a href="{intro}">All chapters</a></li><li><a href="{search}">Search the course</a></li></ul>
<h2>Looking for an error message?</h2>
<p>The appendix <a href="{errors}">Error messages</a> has those of autograd, with cause and cure.</p></section>"""


def read_settings(app: Sphinx, config: Config) -> None:
    """Take the descriptions from their file and the site's address from COURSE_URL; with either, all pages change."""
    file = Path(app.srcdir) / DESCRIPTIONS
    try:
        descriptions = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{DESCRIPTIONS} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(descriptions, dict):
        raise ConfigError(f"{DESCRIPTIONS} must hold lines of the form `book/page: its description`")
    # both are settings that Sphinx knows: it writes all pages anew when one changes
    config.course_descriptions = {str(page): " ".join(str(text).split()) for page, text in descriptions.items()}
    if url := os.environ.get("COURSE_URL", "").strip():
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
            raise ConfigError(f"COURSE_URL is {url!r}: give the site's address, such as https://example.org/course/")
        config.html_baseurl = url.rstrip("/") + "/"


def description_faults(descriptions: dict[str, str], pages: set[str]) -> Iterator[tuple[str, str]]:
    """Name each page whose description is missing, double, too short or too long, and each without a page."""
    for page in sorted(pages - descriptions.keys()):
        yield page, f"no description: add a line `{page}: ...` to {DESCRIPTIONS}"
    first: dict[str, str] = {}
    for page, text in descriptions.items():
        if page not in pages:
            yield page, f"described in {DESCRIPTIONS}, and no page: remove its line"
        if len(text) not in LENGTH:
            yield page, f"its description has {len(text)} characters: {LENGTH[0]} to {LENGTH[-1]} are shown whole"
        if first.setdefault(text, page) != page:
            yield page, f"has the description of {first[text]}: write one of its own in {DESCRIPTIONS}"


def check_descriptions(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of each fault; warnings are errors."""
    for page, fault in description_faults(app.config.course_descriptions, set(env.found_docs) | EXTRA):
        LOGGER.warning("%s: %s", page, fault)


def head_tags(app: Sphinx, page: str, title: str, pathto: Any) -> str:
    """The description, the social card and the icons of a page, as HTML."""
    site, base = app.config.html_title, app.config.html_baseurl
    description = app.config.course_descriptions.get(page, "")
    named = [("description", description), ("twitter:card", "summary_large_image" if base else "summary")]
    graph = [
        ("og:type", "website" if page == app.config.root_doc else "article"),
        ("og:site_name", site),
        ("og:locale", "en_GB"),
        ("og:title", title),
        ("og:description", description),
    ]
    if page in EXTRA:
        named.append(("robots", "noindex"))
    if base:
        graph += [
            ("og:url", f"{base}{page}.html"),
            ("og:image", f"{base}_static/{CARD}"),
            ("og:image:width", "1200"),
            ("og:image:height", "630"),
            ("og:image:alt", CARD_SAYS),
        ]
    tags = [f'<meta name="{name}" content="{escape(content)}" />' for name, content in named]
    tags += [f'<meta property="{name}" content="{escape(content)}" />' for name, content in graph]
    for relation, sizes, name in (("icon", "48x48", "icon-48.png"), ("apple-touch-icon", "180x180", "icon-180.png")):
        tags.append(f'<link rel="{relation}" sizes="{sizes}" href="{pathto(f"_static/{name}", 1)}" type="image/png" />')
    return "\n    ".join(tags)


def describe(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Add a page's own tags to its head."""
    title = unescape(re.sub(r"<[^>]*>", "", context.get("title", ""))) or app.config.html_title
    context["metatags"] = context.get("metatags", "") + "\n    " + head_tags(app, page, title, context["pathto"])
    if page == "404":
        links = {"intro": app.config.root_doc, "search": "search", "errors": "book/a_errors"}
        context["body"] = LOST.format(**{name: context["pathto"](to) for name, to in links.items()})


def lost_page(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The page for an address that is none; `describe` writes its text, when links can be made."""
    yield "404", {"title": "Page not found", "body": ""}, "page.html"


def rooted(html: str, path: str) -> str:
    """A page of the root with its links made to start with ``path``, so that they hold wherever it is shown."""
    return re.sub(
        r'\b(href|src|action|data-content_root)="(?!#|/|[a-z]+:)(?:\./)?([^"]*)"',
        lambda match: f'{match[1]}="{path}{match[2]}"',
        html,
    )


def write_entrances(app: Sphinx, exception: Exception | None) -> None:
    """Write ``index.html``, which leads to the first page and says what a messenger shows; mend the links of 404."""
    if exception is not None or app.builder.format != "html":
        return
    folder, root, base = Path(app.outdir), app.config.root_doc, app.config.html_baseurl
    lost = folder / "404.html"
    if base and lost.exists():
        lost.write_text(rooted(lost.read_text(encoding="utf-8"), urlsplit(base).path), encoding="utf-8")
    title = app.env.titles[root].astext()
    tags = head_tags(app, root, title, lambda file, resource: file)
    canonical = f'<link rel="canonical" href="{base}{root}.html" />\n    ' if base else ""
    index = f"""<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta http-equiv="refresh" content="0; url={root}.html" />
    <title>{escape(title)}</title>
    {canonical}{tags}
  </head>
  <body><main><h1><a href="{root}.html">{escape(title)}</a></h1></main></body>
</html>
"""
    (folder / "index.html").write_text(index, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect all of it."""
    app.add_config_value("course_descriptions", {}, "html", dict)
    app.connect("config-inited", read_settings)
    app.connect("env-updated", check_descriptions)
    app.connect("html-collect-pages", lost_page)
    app.connect("html-page-context", describe)
    app.connect("build-finished", write_entrances, priority=700)  # after course_lean (600), before the archives (900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
