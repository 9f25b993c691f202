"""Two archives in the built book: the course for JupyterLab, and the book itself to read without a network."""

import re
import sys
import zipfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

COURSE, BOOK = "custom-gradients.zip", "custom-gradients-book.zip"
LINK = re.compile(rf'<a [^>]*href="[^"]*{re.escape(BOOK)}"[^>]*>(.*?)</a>', re.DOTALL)
DATE = (1980, 1, 1, 0, 0, 0)  # one date for all: the same book makes the same archive


def course_archive(root: Path, folder: Path) -> None:
    """What students download, through the gate of ``tools.students``."""
    sys.path.insert(0, str(root))
    try:
        from tools import students
    finally:
        sys.path.pop(0)
    files = students.collect(root)
    if faults := list(students.package_faults(files, root)):
        raise ExtensionError("what students download:\n" + "\n".join(faults))
    students.write_zip(files, folder / COURSE)


def book_archive(html: Path, folder: Path) -> None:
    """The built pages. In the archive a link to the archive is its text alone: it is not inside itself."""
    top = BOOK.removesuffix(".zip")
    with zipfile.ZipFile(folder / BOOK, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(html.rglob("*")):
            if not path.is_file() or path == folder / BOOK or path.name in (".buildinfo", ".nojekyll"):
                continue
            if path.suffix == ".map" or "vendor" in path.parts:  # the theme's, which no page asks for: 1.6 MB
                continue
            content = path.read_bytes()
            if path.suffix == ".html":
                content = LINK.sub(r"\1 (you are reading it)", content.decode("utf-8")).encode("utf-8")
            entry = zipfile.ZipInfo(f"{top}/{path.relative_to(html).as_posix()}", DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = (
                zipfile.ZIP_STORED if path.suffix in (".zip", ".woff2", ".png") else zipfile.ZIP_DEFLATED
            )
            archive.writestr(entry, content)


def write_archives(app: Sphinx, exception: Exception | None) -> None:
    """After a build of HTML that went well, write both archives beside the other downloads."""
    if exception is not None or app.builder.name != "html":
        return
    folder = Path(app.outdir) / "_downloads"
    folder.mkdir(exist_ok=True)
    course_archive(Path(app.srcdir), folder)
    book_archive(Path(app.outdir), folder)


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the archives last: other parts of the build change the pages when it is finished."""
    app.connect("build-finished", write_archives, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
