"""Where the book treats a mistake: a wrong version that a chapter runs, an entry of the errata, an error message.

`place` looks in three steps, the finest first: for an entry of this task's mistake, for one of every task's mistake of
that name, and for the section that teaches what the check looks at (`TAUGHT`). The entries stand in `RUN` where a page
runs this very mistake, else in `IDEA`. A new task needs its lines in `TAUGHT`, and no more. `tests/book/test_places.py`
finds each page, heading and tag.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

from graders.judge.places_table import IDEA, PAGES, RUN, TAUGHT, WRONG

TEXTS = {"errata"}  # the pages among these that are Markdown, where the others are notebooks


@dataclass(frozen=True)
class Place:
    """A place in the book.

    Args:
        page: the file in `book/`, without its suffix: ``01_relu``.
        anchor: the id of the place in the built page.
        title: the page and what stands there: "Chapter 1: The upstream gradient ignored".
        heading: the heading in the source that it lies under, as it is written there.
        runs: whether the page runs this very mistake; else it teaches the idea that was broken.
    """

    page: str
    anchor: str
    title: str
    heading: str
    runs: bool

    @property
    def file(self) -> str:
        """The source, from the course's root: ``book/01_relu.ipynb``."""
        return f"book/{self.page}.{'md' if self.page in TEXTS else 'ipynb'}"

    def url(self, base: str = "") -> str:
        """Return the address in the built book.

        Args:
            base: the site's, as in COURSE_URL; without it the address is relative to the built book's root.
        """
        site = base.strip().rstrip("/")
        return f"{site}{'/' if site else ''}book/{self.page}.html#{self.anchor}"

    def in_lab(self, folder: str = "../..") -> str:
        """Return the link from a notebook to the source, with the heading as JupyterLab names it.

        Args:
            folder: the way from the notebook to the course's root.
        """
        return f"{folder}/{self.file}#{_shown(self.heading).replace(' ', '-')}"


def place(task: str, check: str, mistake: str | None = None) -> Place:
    """Return where the book treats what is wrong.

    Args:
        task: the task's name: ``Square``.
        check: the check that failed.
        mistake: the name of the known mistake; None or "": none.

    Raises:
        KeyError: no such task, or the task has no such check.
    """
    return _place(task, check, mistake or "")


@cache
def _place(task: str, check: str, mistake: str) -> Place:
    taught = TAUGHT[task][check]
    for name in (f"{task}.{mistake}", mistake):
        for table, runs in ((RUN, True), (IDEA, False)):
            if name in table:
                return _at(table[name], runs)
    return _at(taught, False)


def of_message(heading: str) -> Place:
    """Return the place of an error message: a section of the page on them."""
    return _at(f"a_errors: {heading}", True)


def known(task: str, check: str) -> bool:
    """Return whether a task of this name has this check."""
    return check in TAUGHT.get(task, {})


def _at(entry: str, runs: bool) -> Place:
    """Return the place of an entry of the tables: a section, or the tag of a wrong version."""
    page, _, heading = entry.partition(": ")
    if heading:
        return Place(page, slug(heading), f"{PAGES[page]}: {_shown(heading)}", heading, runs)
    page, lead = WRONG[entry]
    return Place(page, slug(entry), f"{PAGES[page]}: {lead}", "How it breaks", runs)


def _shown(heading: str) -> str:
    """Return a heading as a page shows it: without the marks of code."""
    return heading.replace("`", "")


def slug(heading: str) -> str:
    """Return the id that a heading, or the tag of a wrong version, has in the built page."""
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode().lower()
    return re.sub(r"^[-0-9]+|-+$", "", re.sub(r"[^a-z0-9]+", "-", plain))
