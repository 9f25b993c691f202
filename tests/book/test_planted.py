"""Each check of ``page_checks`` is shown a page with its fault, and finds it; and a page without, and finds nothing.

And the whole book is built with faults planted in its sources, and stored outputs that differ are shown to nbval.
"""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from playwright.sync_api import Browser

from tests.book import page_checks
from tests.book.book_build import ROOT, build, copy_sources
from tools import check_book

PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
MOVED = """<figure data-figure="planted"><svg><path d="M0,0"/></svg>
    <label>h <input type="range" value="3" oninput="say.textContent = this.value"></label>
    <output id="say">3</output></figure>"""
CODE = '<pre>x = <span style="color: #00f">1</span></pre>'
PLOT = """<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><g id="text_1"><g style="fill: #7d7d7d"><defs>
    <path id="x"/></defs><path d="M0,0H9V9"/></g></g></svg>"""
DARK = '<img src="plot.svg" alt="A word" style="filter: brightness(0.84)">'
NEXT = '<div class="prev-next-area"><a href="#here"><p>Quantisation</p></a></div>'
SOUND = f'<p id="here">A <a href="#here">link</a>.</p><img src="{PIXEL}" alt="A dot">{DARK}{MOVED}{CODE}{NEXT}'

PALE = '<p style="color: #ccc; background: #fff">Pale</p>'
SMALL = '<button style="width: 9px; height: 9px; padding: 0" aria-label="Small"></button>' * 3

PLANTED = {
    "external_requests": ('<script src="https://example.org/x.js"></script>', "example.org/x.js"),
    "complaints": ('<script>console.error("planted")</script>', "planted"),
    "complaints-exception": ('<script>throw new Error("planted")</script>', "planted"),
    "complaints-missing-file": ('<img src="no.png" alt="Nothing">', "ERR_FILE_NOT_FOUND"),
    "inaccessible": ('<button style="background: red"></button>', "button-name"),
    "pale_text": (PALE, "color-contrast"),
    "pale_text-dark": (PALE, "color-contrast"),
    "inaccessible-target": (SMALL, "target-size"),
    "inaccessible-scroll": (
        '<div style="height: 9em; overflow: auto">' + "<p>A line</p>" * 9 + "</div>",
        "scrollable-reg",
    ),
    "pale_code": ('<pre style="background: #eee">x <span style="color: #999">= 1</span></pre>', "rgb(153, 153, 153)"),
    "pale_code-dark": ('<pre style="background: #111; color: #555">x</pre>', "rgb(85, 85, 85)"),
    "pale_pictures": ('<img src="plot.svg" alt="A word">', "4.12 : 1, plot.svg: #7d7d7d, none"),
    "pale_pictures-dark": (
        '<div style="background: #14181e"><img src="plot.svg" alt="A word" style="filter: brightness(0.84)"></div>',
        "plot.svg: #7d7d7d, brightness(0.84), on rgb(20, 24, 30)",
    ),
    "pale_pictures-black": (
        '<div style="background: #14181e"><img src="black.svg" alt="A word"></div>',
        "black.svg: #000000, none, on rgb(20, 24, 30)",
    ),
    "overflowing": ('<div id="wide" style="width: 5000px">Wide</div>', 'id="wide"'),
    "cut_titles": (
        '<div class="prev-next-area"><a style="display: block; width: 3em; overflow: hidden">Quantisation</a></div>',
        "Quantisation",
    ),
    "cut_titles-outside": (
        '<div class="prev-next-area"><a style="display: block; margin-left: 50vw; width: 60vw">Next</a></div>',
        "Next",
    ),
    "red_formulas": ('<span style="color: #cc0000">\\unknown</span>', "\\unknown"),
    "red_formulas-class": ('<span class="katex-error">x</span>', "katex-error"),
    "missing_images": ('<img src="no.png" alt="Nothing">', "no.png"),
    "missing_images-alt": (f'<img src="{PIXEL}" alt=" ">', 'alt=" "'),
    "missing_images-address": (f'<img src="{PIXEL}" alt="{PIXEL}">', "data:image/gif"),
    "broken_links": ('<a href="no.html">x</a>', "no.html: no such file"),
    "broken_links-place": ('<a href="page.html#no">x</a>', "#no: no such place"),
    "dead_figures": ('<figure data-figure="dead"><table></table></figure>', "dead: nothing is drawn"),
    "dead_figures-alone": (
        '<figure data-figure="still"><svg><path d="M0,0"/></svg></figure>',
        "still: nothing to move",
    ),
    "dead_figures-deaf": (
        '<figure data-figure="deaf"><svg><path d="M0,0"/></svg><input type="range"><output>3</output></figure>',
        "deaf: ArrowLeft on its range changes nothing",
    ),
}


LOOK = {"pale_text-dark": "dark-wide", "inaccessible-target": "light-narrow", "inaccessible-scroll": "light-narrow"}


def faults(browser: Browser, folder: Path, check: str, body: str, look: str = "light-wide") -> list[str]:
    """Run one check on a page that holds ``body``."""
    (folder / "plot.svg").write_text(PLOT, encoding="utf-8")
    (folder / "black.svg").write_text(PLOT.replace(' style="fill: #7d7d7d"', ""), encoding="utf-8")
    file = folder / "page.html"
    file.write_text(
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Planted</title></head>'
        f"<body><main><h1>Planted</h1>{body}</main></body></html>",
        encoding="utf-8",
    )
    scheme, size, _ = page_checks.LOOKS[look]
    context = browser.new_context(color_scheme=scheme, viewport=size)
    watched = page_checks.Watched(context, "file://")
    watched.page.goto(file.as_uri())
    more = {"broken_links": (folder,), "pale_pictures": (folder,), "inaccessible": (look,)}
    found = getattr(page_checks, check)(watched, *more.get(check, ()))
    context.close()
    check_book.read.cache_clear()
    return found


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_fault_is_found(case: str, chromium: Browser, tmp_path: Path) -> None:
    body, named = PLANTED[case]
    found = faults(chromium, tmp_path, case.partition("-")[0], body, LOOK.get(case, "light-wide"))
    assert any(named in fault for fault in found), f"{case}: the fault is not among {found}"


@pytest.mark.parametrize("check", sorted({case.partition("-")[0] for case in PLANTED}))
def test_a_sound_page_has_no_fault(check: str, chromium: Browser, tmp_path: Path) -> None:
    for look in page_checks.LOOKS:
        assert faults(chromium, tmp_path, check, SOUND, look) == [], look


def test_what_the_build_of_the_book_says_of_faults_in_its_sources(tmp_path: Path) -> None:
    """One build for all of them; what Sphinx lets pass, `make book` finds in the HTML."""
    copy_sources(tmp_path)
    raw = '<a href="no-page.html">a page</a>, <a href="glossary.html#no-term">a term</a>, <p id="setup">an id</p>'
    with (tmp_path / "book/setup.md").open("a", encoding="utf-8") as page:
        page.write(f"\n[Page](no-file.md), [term](glossary.md#no-entry), ![](_static/logo.svg), {raw}\n")
    with (tmp_path / "book/trust.md").open("a", encoding="utf-8") as page:
        page.write("\n$\\nomacro$\n")  # KaTeX stops the build here, the last page in the alphabet
    chapter = tmp_path / "book/01_relu.ipynb"
    notebook = nbformat.read(chapter, as_version=4)
    figure = next(cell for cell in notebook.cells if "mystnb" in cell.metadata)
    del figure.metadata["mystnb"]
    nbformat.write(notebook, chapter)
    with (tmp_path / "_toc.yml").open("a", encoding="utf-8") as contents:
        contents.write("      - file: book/no_such_page\n")

    built = build(tmp_path)

    assert built.status != 0
    for warned in ("no-file", "no-entry", "no_such_page", r"nomacro"):
        assert re.search(rf"(WARNING|rror).*{warned}", built.log), (
            f"{warned} is not among the warnings: {built.log[-4000:]}"
        )
    found = "\n".join(check_book.faults(built.html, tmp_path / "_toc.yml"))
    for fault in (
        "book/no_such_page.html: _toc.yml lists it, but it was not built",
        "book/trust.html: _toc.yml lists it, but it was not built",
        "book/setup.html: the link to no-page.html leads to a missing file",
        "book/setup.html: the link to glossary.html#no-term names a term without an entry",
        "book/setup.html: two elements have the id setup",
        "book/setup.html: no alternative text",
        "book/01_relu.html: no alternative text",
    ):
        assert fault in found, found


def test_a_stored_output_that_differs_is_found(tmp_path: Path) -> None:
    """By nbval, called as `make test` calls it; all cells but the first and the last store what they do not say."""
    svg = 'from IPython.display import SVG\nSVG(\'<svg xmlns="http://www.w3.org/2000/svg"><path d="M0,0"/></svg>\')'
    drawn = '<svg xmlns="http://www.w3.org/2000/svg"><path d="M0,1"/></svg>'
    shown = {"image/svg+xml": drawn, "text/plain": "<IPython.core.display.SVG object>"}
    figure = {"text/plain": "<Figure size 640x480 with 1 Axes>"}
    sized = "from IPython.display import display\ndisplay({'text/plain': '<Figure size 9x9>'}, raw=True)"
    stored = {
        "print('as stored')": [new_output("stream", name="stdout", text="as stored\n")],
        "print(0.1235)": [new_output("stream", name="stdout", text="0.1234\n")],
        "print('more')": [],
        "pass": [new_output("stream", name="stdout", text="no longer\n")],
        "raise ValueError('new')": [new_output("error", ename="ValueError", evalue="old", traceback=[])],
        "import warnings; warnings.warn('new')": [],
        svg: [new_output("execute_result", data=shown, execution_count=7)],
        sized: [new_output("display_data", data=figure)],
    }
    cells = [
        new_code_cell(code, id=f"c{i}", execution_count=i, outputs=o) for i, (code, o) in enumerate(stored.items(), 1)
    ]
    nbformat.write(new_notebook(cells=cells), tmp_path / "planted.ipynb")
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    options = re.findall(r"--nbval\S*(?: tests/\S+| \d+)?", recipe)
    sanitized = "--nbval-sanitize-with tests/nbval_sanitize.cfg"
    assert options == ["--nbval", "--nbval-current-env", "--nbval-cell-timeout 300", sanitized]
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:xdist", *" ".join(options).split(), tmp_path]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    verdicts = dict(
        sorted((int(n), word) for word, n in re.findall(r"^(PASSED|FAILED) .*::Cell (\d+)", said, re.MULTILINE))
    )
    assert verdicts == {0: "PASSED", **dict.fromkeys(range(1, 7), "FAILED"), 7: "PASSED"}, said
