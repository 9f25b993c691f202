"""Where the book runs a mistake, or has the section whose idea it breaks."""

import os
from dataclasses import dataclass
from pathlib import Path

from graders.coach.state import root
from graders.judge.places import Place
from graders.judge.verdict import Verdict


@dataclass(frozen=True)
class Link:
    """A place in the book.

    Args:
        page: the file below ``book/``, without its ending: ``01_relu``.
        anchor: the heading's id on the built page; "": the page as a whole.
        title: what the reader sees.
        near: the way to the source from the folder that the notebook lies in, as JupyterLab opens it; "": the book is
            not beside it.
    """

    page: str
    anchor: str
    title: str
    near: str = ""

    @property
    def target(self) -> str:
        """What a reader without JupyterLab looks for: the source where it is near, else the page of the built book."""
        return self.near or f"{self.page}.html{'#' * bool(self.anchor)}{self.anchor}"


def link(verdict: Verdict) -> Link | None:
    """Return the place in the book that a verdict names; None where it names none."""
    place = verdict.place
    return Link(place.page, place.anchor, place.title, _near(place)) if place else None


def _near(place: Place) -> str:
    """Return the way from the working directory, a notebook's folder, to a place's source; "" where it is not there."""
    course = root()
    if course is None or not (course / place.file).is_file():
        return ""
    return place.in_lab(os.path.relpath(course, Path.cwd()).replace(os.sep, "/"))
