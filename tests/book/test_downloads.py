"""The two archives that the first page offers: the course for JupyterLab, and the book without a network."""

import importlib.util
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.book.book_build import PAGES, ROOT, Build
from tests.book.page_checks import WIDE, Watched, found_by_search
from tools import check_book, students

spec = importlib.util.spec_from_file_location("course_downloads", ROOT / "book/_ext/course_downloads.py")
downloads = importlib.util.module_from_spec(spec)
spec.loader.exec_module(downloads)


@pytest.fixture(scope="module")
def offline(book: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book's archive, unpacked in an empty folder."""
    folder = tmp_path_factory.mktemp("offline")
    with zipfile.ZipFile(book.html / "_downloads" / downloads.BOOK) as archive:
        archive.extractall(folder)
    (top,) = folder.iterdir()
    return top


def test_the_course_archive_is_what_students_get(book: Build) -> None:
    with zipfile.ZipFile(book.html / "_downloads" / downloads.COURSE) as archive:
        names = {name.removeprefix(f"{students.NAME}/") for name in archive.namelist()}
    assert names == set(students.collect(ROOT))


def test_the_first_page_links_to_both_and_says_their_size(book: Build) -> None:
    text = (ROOT / "book/intro.md").read_text(encoding="utf-8")
    for name in (downloads.COURSE, downloads.BOOK):
        stated = re.search(
            rf'href="\.\./_downloads/{re.escape(name)}" download>{re.escape(name)}</a>, ([\d.]+) MB', text
        )
        assert stated, name
        size = (book.html / "_downloads" / name).stat().st_size / 1e6
        assert abs(size - float(stated[1])) < max(0.2, 0.1 * size), f"{name} has {size:.1f} MB"


def test_the_unpacked_book_is_whole_and_does_not_offer_itself(offline: Path) -> None:
    assert check_book.faults(offline, ROOT / "_toc.yml") == []
    first = (offline / "book/intro.html").read_text(encoding="utf-8")
    assert f'href="../_downloads/{downloads.BOOK}"' not in first and "(you are reading it)" in first
    assert (offline / "_downloads" / downloads.COURSE).is_file()


def test_a_page_that_the_archive_lacks_is_a_fault(offline: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "less.zip", "w") as archive:
        for path in offline.rglob("*"):
            if path.name != "setup.html":
                archive.write(path, path.relative_to(offline))
    with zipfile.ZipFile(tmp_path / "less.zip") as archive:
        archive.extractall(tmp_path / "less")
    assert any("setup.html" in fault for fault in check_book.faults(tmp_path / "less", ROOT / "_toc.yml"))


@pytest.mark.parametrize("page", PAGES)
def test_the_unpacked_book_opens_from_the_disk(page: str, offline: Path, chromium: Browser) -> None:
    context = chromium.new_context(viewport=WIDE)
    watched = Watched(context, "file://")
    watched.page.goto((offline / f"{page}.html").as_uri())
    assert watched.page.locator("article h1").count() == 1
    assert watched.external == watched.complaints == []
    context.close()


def test_the_unpacked_book_is_entered_by_its_index_and_searched(offline: Path, chromium: Browser) -> None:
    context = chromium.new_context(viewport=WIDE)
    watched = Watched(context, "file://")
    watched.page.goto((offline / "index.html").as_uri())
    watched.page.wait_for_url("**/book/intro.html")
    assert "Glossary" in found_by_search(watched, "straight-through")
    assert watched.external == watched.complaints == []
    context.close()


@pytest.fixture
def small(tmp_path: Path) -> Callable[[], bytes]:
    """Write the archive of a small book and return its bytes."""
    html = tmp_path / "html"
    (html / "_downloads").mkdir(parents=True)
    (html / "index.html").write_text(f'<p>Get <a class="download" href="_downloads/{downloads.BOOK}" download>all</a>.')

    def written() -> bytes:
        downloads.book_archive(html, html / "_downloads")
        return (html / "_downloads" / downloads.BOOK).read_bytes()

    return written


def test_the_same_book_makes_the_same_archive(small: Callable[[], bytes], tmp_path: Path) -> None:
    first = small()
    (tmp_path / "html/index.html").touch()
    assert small() == first
    with zipfile.ZipFile(tmp_path / "html/_downloads" / downloads.BOOK) as archive:
        assert archive.namelist() == ["custom-gradients-book/index.html"]
        assert archive.read("custom-gradients-book/index.html") == b"<p>Get all (you are reading it)."
