"""Each check of ``page_checks`` is shown a page with its fault, and finds it; and a page without, and finds nothing."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.book import page_checks

PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
MOVED = """<figure data-figure="planted"><svg><path d="M0,0"/></svg>
    <label>h <input type="range" value="3" oninput="say.textContent = this.value"></label>
    <output id="say">3</output></figure>"""
CODE = '<pre>x = <span style="color: #00f">1</span></pre>'
SOUND = f'<p id="here">A <a href="#here">link</a>.</p><img src="{PIXEL}" alt="A dot">{MOVED}{CODE}'

PLANTED = {
    "external_requests": ('<script src="https://example.org/x.js"></script>', "example.org/x.js"),
    "complaints": ('<script>console.error("planted")</script>', "planted"),
    "complaints-exception": ('<script>throw new Error("planted")</script>', "planted"),
    "complaints-missing-file": ('<img src="no.png" alt="Nothing">', "ERR_FILE_NOT_FOUND"),
    "inaccessible": ('<button style="background: red"></button>', "button-name"),
    "inaccessible-contrast": ('<p style="color: #ccc; background: #fff">Pale</p>', "color-contrast"),
    "pale_code": ('<pre style="background: #eee">x <span style="color: #999">= 1</span></pre>', "rgb(153, 153, 153)"),
    "pale_code-dark": ('<pre style="background: #111; color: #555">x</pre>', "rgb(85, 85, 85)"),
    "overflowing": ('<div id="wide" style="width: 5000px">Wide</div>', 'id="wide"'),
    "red_formulas": ('<span style="color: #cc0000">\\unknown</span>', "\\unknown"),
    "red_formulas-class": ('<span class="katex-error">x</span>', "katex-error"),
    "missing_images": ('<img src="no.png" alt="Nothing">', "no.png"),
    "missing_images-alt": (f'<img src="{PIXEL}" alt=" ">', 'alt=" "'),
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


def faults(browser: Browser, folder: Path, check: str, body: str) -> list[str]:
    """Run one check on a page that holds ``body``."""
    file = folder / "page.html"
    file.write_text(
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Planted</title></head>'
        f"<body><main><h1>Planted</h1>{body}</main></body></html>",
        encoding="utf-8",
    )
    context = browser.new_context()
    watched = page_checks.Watched(context, "file://")
    watched.page.goto(file.as_uri())
    arguments = (watched, folder) if check == "broken_links" else (watched,)
    found = getattr(page_checks, check)(*arguments)
    context.close()
    page_checks.anchors.cache_clear()
    return found


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_fault_is_found(case: str, chromium: Browser, tmp_path: Path) -> None:
    body, named = PLANTED[case]
    found = faults(chromium, tmp_path, case.partition("-")[0], body)
    assert any(named in fault for fault in found), f"{case}: the fault is not among {found}"


@pytest.mark.parametrize("check", sorted({case.partition("-")[0] for case in PLANTED}))
def test_a_sound_page_has_no_fault(check: str, chromium: Browser, tmp_path: Path) -> None:
    assert faults(chromium, tmp_path, check, SOUND) == []
