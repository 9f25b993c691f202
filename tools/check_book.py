"""Check the built book for what Sphinx builds without a word; `make book` ends with it.

    python -m tools.check_book [HTML] [--toc FILE]

Sphinx's warnings are errors already. It says nothing of a page that the table of contents lists and that was not built,
of a formula in red, of a raw link whose file or place does not exist, of a picture without alternative text, of a link
to a term that the glossary lacks, of two elements with one id. Each fault is one line: the page, what is wrong, what
to do.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

from tools.notebooks import ROOT

GLOSSARY = "book/glossary.html"
LOST = "404.html"  # a server shows it at any depth, so with COURSE_URL its links begin at the root
THEIRS = ("_static", "_sources", "_downloads", "_images", "_sphinx_design_static")  # folders that hold no page
RED = re.compile(r"katex-error|(?:color: ?|mathcolor=\")#cc0000", re.IGNORECASE)  # what KaTeX makes of what it refuses
LINKS = {"href": ("a", "area", "link"), "src": ("img", "script", "iframe", "source", "video", "audio", "embed")}

FORWARD = re.compile(r"^\d+; *url=(.+)", re.IGNORECASE)  # the page that the first one leads on to
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}  # endless
REMEDY = {
    "img": 'describe what it shows, ![so](...), or in a code cell\'s metadata: "mystnb": {"image": {"alt": "so"}}',
    "svg": 'give it role="img" and an aria-label, or aria-hidden="true" where the text beside it says the same',
}


class Page(HTMLParser):
    """What a page of the book holds: ids, links to this book's files, pictures without text, red formulas."""

    def __init__(self, text: str) -> None:
        """Read the page's HTML."""
        super().__init__()
        self.ids: list[str] = []
        self.links: set[str] = set()
        self.silent: list[str] = []
        self.hidden = 0  # how deep the parser is in what a screen reader leaves out, such as KaTeX's drawing
        self.unsaid: str | None = None  # a drawing that has no words yet
        self.red = bool(RED.search(text))
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element's id, its link, and what it shows without saying so."""
        given = {name: (value or "").strip() for name, value in attrs}
        self.ids += {given.get("id", ""), given.get("name", "") if tag == "a" else ""} - {""}
        for attribute, tags in LINKS.items():
            if tag in tags and given.get(attribute):
                self.links.add(given[attribute])
        if tag == "meta" and (forward := FORWARD.search(given.get("content", ""))):
            self.links.add(forward[1])
        if tag == "img" and given.get("alt", "") in ("", given.get("src")):  # docutils puts the address in its place
            self.silent.append(f"<img> {given.get('src', '')[:60]}")
        if self.unsaid and tag != "title":
            self.silent.append(self.unsaid)
        self.unsaid = None
        if self.hidden or given.get("aria-hidden") == "true":
            self.hidden += tag not in VOID
        elif tag == "svg" and not (given.get("aria-label") or given.get("aria-labelledby")):
            self.unsaid = (self.get_starttag_text() or "")[:60]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take `<path/>` for an element that ends; HTML's own, such as `<br/>`, have no end."""
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """Leave an element."""
        self.hidden -= bool(self.hidden) and tag not in VOID


@lru_cache(maxsize=128)
def read(file: Path) -> Page:
    """The page in `file`."""
    return Page(file.read_text(encoding="utf-8"))


def pages(html: Path) -> list[Path]:
    """The book's pages, sorted; not what the theme or a download brings along."""
    found = (file for file in html.rglob("*.html") if file.relative_to(html).parts[0] not in THEIRS)
    return sorted(found)


def listed(toc: Path) -> list[str]:
    """The pages that the table of contents `toc` lists, without suffix."""
    contents = yaml.safe_load(toc.read_text(encoding="utf-8"))
    parts = contents.get("parts", [contents])
    return [contents["root"], *(entry["file"] for part in parts for entry in part.get("chapters", []))]


def contents_faults(html: Path, toc: Path) -> Iterator[str]:
    """Where the pages in `html` are not those that the table of contents lists; other pages may lie at the top."""
    wanted = {f"{name}.html" for name in listed(toc)}
    built = {file.relative_to(html).as_posix() for file in pages(html)}
    for name in sorted(wanted - built):
        source = name.removesuffix(".html")
        yield f"{name}: {toc.name} lists it, but it was not built: does {source}.md or {source}.ipynb exist?"
    for name in sorted(name for name in built - wanted if "/" in name):
        remedy = f"remove {html.name}/ and build again, or list it"
        yield f"{name}: {toc.name} does not list it; an older build left it: {remedy}"


def page_faults(file: Path, html: Path) -> Iterator[str]:
    """What is wrong on one page of the book in `html`, one line each."""
    page, name = read(file), file.relative_to(html).as_posix()
    if page.red:
        yield f"{name}: a formula is red, KaTeX could not read it: look for the red text on the page, and fix its TeX"
    for picture in page.silent:
        yield f"{name}: no alternative text: {picture}: {REMEDY['svg' if picture.startswith('<svg') else 'img']}"
    for twin in sorted({i for i in page.ids if page.ids.count(i) > 1}):
        yield f"{name}: two elements have the id {twin}: a link finds only the first; rename a heading or an id"
    for link in sorted(page.links):
        if fault := link_fault(link, file, html):
            yield f"{name}: {fault}"


def link_fault(link: str, file: Path, html: Path) -> str | None:
    """Why a reader who follows `link` on the page in `file` finds nothing; None where it is sound, or leads out."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    path = unquote(parts.path)
    if path.startswith("/") and file == html / LOST:
        path = below(path, html)
    if path.startswith("/"):
        return f"the link to {link} begins at the root, which a book opened from disk does not have: make it relative"
    target = (file.parent / path).resolve() if path else file
    if target.is_dir():
        return (
            f"the link to {link} leads to a folder, which shows no page when opened from disk: link to its index.html"
        )
    if not target.is_file():
        return f"the link to {link} leads to a missing file: fix the link, or add the file"
    place = unquote(parts.fragment)
    if not place or target.suffix != ".html" or place in read(target).ids:
        return None
    if target == (html / GLOSSARY).resolve():
        return f"the link to {link} names a term without an entry: add it to book/glossary.md, or fix the link"
    return f"the link to {link} leads to a place that the page does not have: link to one of its headings"


def below(path: str, html: Path) -> str:
    """The part of a path from the site's root that lies in `html`: the site may be a folder of its host."""
    parts = path.strip("/").split("/")
    tails = ("/".join(parts[i:]) for i in range(len(parts)))
    return next((tail for tail in tails if (html / tail).is_file()), parts[-1])


def faults(html: Path, toc: Path) -> list[str]:
    """All faults of the book built in `html`, one line each.

    Args:
        html: the folder with the book's `index.html`.
        toc: the `_toc.yml` that it was built from.
    """
    read.cache_clear()  # the book may have been built anew
    html = html.resolve()
    return [*contents_faults(html, toc), *(fault for file in pages(html) for fault in page_faults(file, html))]


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.check_book",
        description="Check the built book: pages, formulas, links, alternative texts, terms, ids.",
    )
    parser.add_argument(
        "html",
        nargs="?",
        type=Path,
        default=ROOT / "_build/html",
        help="the folder with the HTML (default: _build/html)",
    )
    parser.add_argument("--toc", type=Path, default=ROOT / "_toc.yml", help="its table of contents (default: _toc.yml)")
    options = parser.parse_args(arguments)
    if not options.html.is_dir():
        print(f"check_book: there is no {options.html}: build the book first, `make book`", file=sys.stderr)
        return 2
    if not options.toc.is_file():
        print(f"check_book: there is no {options.toc}: name the book's _toc.yml with --toc", file=sys.stderr)
        return 2
    try:
        listed(options.toc)
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        why = " ".join(str(error).split())
        print(f"check_book: {options.toc} cannot be read, {type(error).__name__}: {why}", file=sys.stderr)
        return 2
    found = faults(options.html, options.toc)
    for fault in found:
        print(fault, file=sys.stderr)
    if found:
        print(f"check_book: {len(found)} fault{'s' * (len(found) > 1)} in {options.html}", file=sys.stderr)
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())
