"""The archives that the first page offers: the course to study alone, for a class, and the book without a network."""

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

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


@pytest.mark.parametrize("file", [downloads.STUDY, downloads.COURSE])
def test_the_archives_of_the_course_are_what_readers_get(book: Build, file: str) -> None:
    name = file.removesuffix(".zip")
    with zipfile.ZipFile(book.html / "_downloads" / file) as archive:
        names = {path.removeprefix(f"{name}/") for path in archive.namelist()}
    assert names == set(students.collect(ROOT, name))
    assert ("graders/coach/__init__.py" in names) == (file == downloads.STUDY)


def stated(file: str) -> float:
    """The size of an archive in MB, as the first page's list has it."""
    text = (ROOT / "book/intro.md").read_text(encoding="utf-8")
    found = re.search(rf'href="\.\./_downloads/{re.escape(file)}" download>{re.escape(file)}</a>, ([\d.]+) MB', text)
    assert found, file
    return float(found[1])


def test_the_first_page_links_to_all_and_says_their_size(book: Build) -> None:
    for file in (downloads.STUDY, downloads.COURSE, downloads.BOOK):
        size = (book.html / "_downloads" / file).stat().st_size / 1e6
        assert abs(size - stated(file)) < max(0.1, 0.1 * size), f"{file} has {size:.1f} MB"


def test_the_button_of_the_first_page_gets_the_course_to_study(book: Build, visit: Callable[..., Watched]) -> None:
    text = (ROOT / "book/intro.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"the solutions, ([\d.]+) MB\. Unpack it", text)
    assert float(said) == stated(downloads.STUDY)
    page = visit("book/intro").page
    button = page.get_by_role("link", name="Get the course", exact=True)
    box = button.bounding_box()
    assert box and box["height"] >= 40, "a button that a thumb hits"
    with page.expect_download() as started:
        button.click()
    assert started.value.suggested_filename == downloads.STUDY
    assert Path(started.value.path()).read_bytes() == (book.html / "_downloads" / downloads.STUDY).read_bytes()


def test_the_unpacked_book_is_whole_and_does_not_offer_itself(offline: Path) -> None:
    assert check_book.faults(offline, ROOT / "_toc.yml") == []
    first = (offline / "book/intro.html").read_text(encoding="utf-8")
    assert f'href="../_downloads/{downloads.BOOK}"' not in first and "(you are reading it)" in first
    assert all((offline / "_downloads" / file).is_file() for file in (downloads.COURSE, downloads.STUDY))


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
    assert any(
        found.startswith("Glossary > Straight-through") for found in found_by_search(watched, "straight-through")
    )
    assert watched.external == watched.complaints == []
    context.close()


def colab(page: str) -> str:
    """The cell of the setup page that fetches the archive."""
    (cell,) = re.findall(r"```python\n((?:(?!```).)*COURSE_URL.*?)```", page, re.DOTALL)
    return cell


COACHED = """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]

coach(Square)
files = [module.__file__ for name, module in sys.modules.items() if name.startswith("graders")]
print([file for file in files if "custom-gradients-study" not in file])
"""


def test_colab_s_cell_fetches_the_coach_from_the_published_book(book: Build, site: str, tmp_path: Path) -> None:
    """From a local server, in an empty folder, with the standard library and what the book is read with."""
    cell = colab((ROOT / "book/setup.md").read_text(encoding="utf-8"))
    assert "%pip" not in cell and "!" not in cell
    finders = "import sys, torch; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f)]\n"
    script = finders + cell.replace("https://example.org/course", site) + COACHED
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"GRADERS_STUDY": "off"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert "the factor 2 of the derivative 2x is missing" in " ".join(done.stdout.split()), done.stdout + done.stderr
    assert done.stdout.endswith("[]\n"), "the graders are this repository's"
    assert (tmp_path / students.STUDY / "exercises/01_relu/relu.ipynb").is_file()


def test_the_page_and_the_archives_of_a_published_book_have_its_address() -> None:
    read = students.collect(ROOT, students.STUDY, site="https://a.net/b/")["book/setup.md"].decode()
    assert 'COURSE_URL = "https://a.net/b"' in colab(read)
    source = [(ROOT / "book/setup.md").read_text(encoding="utf-8")]
    for given, said in (("https://a.net/b", "https://a.net/b"), ("", "https://example.org/course")):
        text, app = list(source), SimpleNamespace(config=SimpleNamespace(course_address=given))
        downloads.address(app, "book/setup", text)
        assert f'COURSE_URL = "{said}"' in colab(text[0])


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
