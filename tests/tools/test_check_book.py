"""The check of the built book: each fault that Sphinx builds in silence is planted, and named with its remedy."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import check_book
from tools.notebooks import ROOT

TOC = "format: jb-book\nroot: book/intro\nchapters:\n  - file: book/one\n  - file: book/glossary\n"
FRAME = '<!DOCTYPE html><html lang="en"><head><title>A page</title></head><body><h1>A page</h1>{}</body></html>'
SOUND = {
    "index.html": '<meta http-equiv="Refresh" content="0; url=book/intro.html">',
    "book/intro.html": """<p id="here"><a href="#here">x</a> <a href="one.html#part">y</a> <a href="#">top</a>
        <a href="../_static/a.css">z</a> <a href="https://example.org/#no">out</a> <a href="mailto:me@x.org">me</a>""",
    "book/one.html": """<h2 id="part">P</h2><a href="glossary.html#leaf">leaf</a>
        <img src="../_images/a.svg" alt="A line"><span aria-hidden="true"><b><br/><svg><path d="M0,0"/></svg></b></span>
        <svg role="img" aria-label="A dot"><title>A dot</title></svg><svg><title>A dot</title></svg>""",
    "book/glossary.html": '<h3 id="leaf">Leaf</h3><a href="intro.html#he%72e">h</a>',
}


def built(folder: Path, added: str = "", page: str = "book/one.html") -> tuple[Path, Path]:
    """The HTML of a small sound book and its table of contents, with `added` on one page."""
    html = folder / "html"
    for name, body in SOUND.items():
        (html / name).parent.mkdir(parents=True, exist_ok=True)
        (html / name).write_text(FRAME.format(body + added * (name == page)), encoding="utf-8")
    for name in ("_static/a.css", "_images/a.svg", "_static/their.html", "_downloads/kept.html"):
        (html / name).parent.mkdir(exist_ok=True)
        (html / name).write_text('<a href="nowhere.html">theirs</a>', encoding="utf-8")
    toc = folder / "_toc.yml"
    toc.write_text(TOC, encoding="utf-8")
    return html, toc


def test_a_sound_book_has_no_fault(tmp_path: Path) -> None:
    assert check_book.faults(*built(tmp_path)) == []


@pytest.mark.parametrize(
    ("added", "fault"),
    [
        ('<a href="two.html">x</a>', "the link to two.html leads to a missing file: fix the link"),
        ('<a href="../_downloads/no.ipynb">x</a>', "the link to ../_downloads/no.ipynb leads to a missing file"),
        ('<script src="../_static/no.js"></script>', "the link to ../_static/no.js leads to a missing file"),
        ('<img src="no.png" alt="A line">', "the link to no.png leads to a missing file"),
        ('<a href="intro.html#no">x</a>', "the link to intro.html#no leads to a place that the page does not have"),
        ('<a href="#no">x</a>', "the link to #no leads to a place that the page does not have"),
        ('<a href="/book/intro.html">x</a>', "begins at the root, which a book opened from disk does not have"),
        ('<a href="../book/">x</a>', "the link to ../book/ leads to a folder"),
        ('<a href="glossary.html#branch">x</a>', "#branch names a term without an entry: add it to book/glossary.md"),
        ('<img src="../_images/a.svg">', "no alternative text: <img> ../_images/a.svg: describe what"),
        ('<img src="../_images/a.svg" alt=" ">', "no alternative text: <img> ../_images/a.svg"),
        ('<img src="../_images/a.svg" alt="../_images/a.svg">', "no alternative text: <img> ../_images/a.svg"),
        ('<svg role="img"><path d="M0,0"/></svg>', 'no alternative text: <svg role="img">: give it'),
        ('<p aria-hidden="true">x</p><svg><path/></svg>', "no alternative text: <svg>"),
        ('<span class="katex-error">x</span>', "a formula is red, KaTeX could not read it"),
        ('<mstyle mathcolor="#cc0000">x</mstyle>', "a formula is red"),
        ('<p id="part">x</p>', "two elements have the id part"),
    ],
)
def test_a_fault_on_a_page_is_named(added: str, fault: str, tmp_path: Path) -> None:
    (found,) = check_book.faults(*built(tmp_path, added))
    assert found.startswith("book/one.html: ") and fault in found and "\n" not in found


def test_a_page_that_was_not_built_is_named_and_so_is_every_link_to_it(tmp_path: Path) -> None:
    html, toc = built(tmp_path)
    (html / "book/one.html").unlink()
    assert check_book.faults(html, toc) == [
        "book/one.html: _toc.yml lists it, but it was not built: does book/one.md or book/one.ipynb exist?",
        "book/intro.html: the link to one.html#part leads to a missing file: fix the link, or add the file",
    ]


def test_a_page_that_an_older_build_left_is_named(tmp_path: Path) -> None:
    html, toc = built(tmp_path)
    (html / "book/gone.html").write_text(FRAME.format(""))
    (html / "404.html").write_text(FRAME.format(""))  # at the top, pages beside the book's may lie
    (found,) = check_book.faults(html, toc)
    remedy = "remove html/ and build again, or list it"
    assert found == f"book/gone.html: _toc.yml does not list it; an older build left it: {remedy}"


def test_a_first_page_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    html, toc = built(tmp_path)
    (html / "index.html").write_text('<meta http-equiv="Refresh" content="0; url=book/welcome.html">')
    assert check_book.faults(html, toc) == [
        "index.html: the link to book/welcome.html leads to a missing file: fix the link, or add the file"
    ]


def test_the_page_of_a_lost_reader_may_link_from_the_root_of_its_host(tmp_path: Path) -> None:
    html, toc = built(tmp_path)
    (html / "404.html").write_text('<a href="/course/book/intro.html#here">home</a><img src="/_images/a.svg" alt="x">')
    assert check_book.faults(html, toc) == []
    (html / "404.html").write_text('<a href="/course/book/no.html">home</a><a href="/course/book/intro.html#no">x</a>')
    place, page = check_book.faults(html, toc)
    assert (
        "intro.html#no leads to a place that the page does not have" in place
        and "no.html leads to a missing file" in page
    )


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command."""
    command = [sys.executable, "-m", "tools.check_book", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_command_fails_on_a_fault_and_where_there_is_no_book(tmp_path: Path) -> None:
    html, toc = built(tmp_path, '<a href="two.html">x</a>')
    failed = run(html, "--toc", toc)
    assert failed.returncode == 1 and failed.stderr.count("\n") == 2 and "two.html" in failed.stderr
    built(tmp_path)
    assert (sound := run(html, "--toc", toc)).returncode == 0 and sound.stdout + sound.stderr == ""
    assert (nothing := run(tmp_path / "no")).returncode == 2 and "build the book first" in nothing.stderr
    assert (nothing := run(html, "--toc", tmp_path / "no")).returncode == 2 and "--toc" in nothing.stderr


@pytest.mark.parametrize(
    "contents", ["root: [", "chapters: []", "root: a\nchapters:\n  - url: b", "- a", "root: a\nparts: 3"]
)
def test_contents_that_cannot_be_read_are_one_line(contents: str, tmp_path: Path) -> None:
    html, toc = built(tmp_path)
    toc.write_text(contents, encoding="utf-8")
    failed = run(html, "--toc", toc)
    assert failed.returncode == 2 and failed.stderr.startswith(f"check_book: {toc} cannot be read"), failed.stderr
    assert failed.stderr.count("\n") == 1


def test_make_book_ends_with_the_check() -> None:
    shown = subprocess.run(["make", "-n", "-W", "requirements.txt", "book"], cwd=ROOT, capture_output=True, text=True)
    build, check = (shown.stdout.find(part) for part in ("jupyter-book build -W", "python -m tools.check_book"))
    assert 0 < build < check, shown.stdout + shown.stderr
