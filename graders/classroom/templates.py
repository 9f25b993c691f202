"""Pages for the instructor: one file each, in the book's face and colours, that loads nothing."""

import base64
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from graders.notebook.problem import printable

FACE = Path("book/_static/text/regular.woff2")  # the book's text face, where the folder has the book


def templates() -> Environment:
    """Return the templates beside this module; what they print is escaped."""
    environment = Environment(
        loader=PackageLoader("graders.classroom", "."),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"safe_line": _safe_line, "share": "{:.0%}".format}
    return environment


def face(root: Path) -> str:
    """Return the book's text face, as WOFF2 in base64; "": the folder has no book.

    Args:
        root: the course's folder.
    """
    path = root / FACE
    return base64.b64encode(path.read_bytes()).decode() if path.exists() else ""


def _safe_line(text: object, most: int = 400) -> str:
    return printable(text, most)
