"""A page from a file, without any network, in which the page's Python runs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tools import golden
from tools.page_python import bundle

MORE = {
    "driver.py": (Path(golden.__file__).parent / "golden_driver.py").read_text(encoding="utf-8"),
    "golden.json": golden.FILE.read_text(encoding="utf-8"),
}


@pytest.fixture(scope="module")
def opened(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Page]]:
    """Open an empty page that has a bundle as its one script; what it asks for but that is an error."""
    contexts = []

    def open_page(script: str | None = None) -> Page:
        folder = tmp_path_factory.mktemp("page")
        (folder / "page-python.js").write_text(bundle(MORE) if script is None else script, encoding="utf-8")
        (folder / "index.html").write_text(
            '<!doctype html><meta charset="utf-8"><script src="page-python.js"></script>'
        )
        context = chromium.new_context(offline=True)
        contexts.append(context)
        page = context.new_page()
        page.asked = []  # type: ignore[attr-defined]
        page.on("request", lambda request: page.asked.append(request.url))  # type: ignore[attr-defined]
        page.goto((folder / "index.html").as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
