"""Archives in the built book: the course to study alone, the course for a class, the book without a network."""

import re
import sys
import zipfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError

STUDY, COURSE, BOOK = "custom-gradients-study.zip", "custom-gradients.zip", "custom-gradients-book.zip"
LINK = re.compile(rf'<a [^>]*href="[^"]*{re.escape(BOOK)}"[^>]*>(.*?)</a>', re.DOTALL)
DATE = (1980, 1, 1, 0, 0, 0)  # one date for all: the same book makes the same archive


def course_archives(root: Path, folder: Path, site: str) -> None:
    """What readers download, through the gate of ``tools.students``: to study alone, and for a class."""
    sys.path.insert(0, str(root))
    try:
        from tools import students
    finally:
        sys.path.pop(0)
    for file in (STUDY, COURSE):
        name = file.removesuffix(".zip")
        try:
            files = students.download(root, name, site=site)
        except students.StudentsError as error:
            raise ExtensionError(f"what readers download:\n{error}") from error
        students.write_zip(files, folder / file, name)


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


def address(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the address of the published book where a page says ``https://example.org/course`` for it."""
    if app.config.course_address and page == "book/setup":
        source[0] = source[0].replace("https://example.org/course", app.config.course_address)


def know_address(app: Sphinx, config: Config) -> None:
    """Take the address from what ``course_pages`` read from COURSE_URL; with another one the page is read again."""
    config.course_address = config.html_baseurl.rstrip("/")


def write_archives(app: Sphinx, exception: Exception | None) -> None:
    """After a build of HTML that went well, write the archives beside the other downloads."""
    if exception is not None or app.builder.name != "html":
        return
    folder = Path(app.outdir) / "_downloads"
    folder.mkdir(exist_ok=True)
    course_archives(Path(app.srcdir), folder, app.config.html_baseurl)
    book_archive(Path(app.outdir), folder)


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the archives last: other parts of the build change the pages when it is finished."""
    app.add_config_value("course_address", "", "env", str)
    app.connect("config-inited", know_address, priority=900)  # after course_pages
    app.connect("source-read", address)
    app.connect("build-finished", write_archives, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
