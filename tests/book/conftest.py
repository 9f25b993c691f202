"""One build of the book for all tests and all workers, one server for each worker."""

import functools
import os
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from filelock import FileLock
from playwright.sync_api import Browser

from tests.book.book_build import Build, build_book
from tests.book.page_checks import LOOKS, Watched


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Build:
    """The built book; COURSE_HTML names the HTML of a build made elsewhere and spares one here."""
    if elsewhere := os.environ.get("COURSE_HTML"):
        return Build(0, "", Path(elsewhere).resolve())
    shared = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        shared = shared.parent  # one folder for all workers
    tree, log, status = shared / "course", shared / "build.log", shared / "build.status"
    with FileLock(shared / "build.lock"):
        if not status.exists():
            tree.mkdir()
            built = build_book(tree)
            log.write_text(built.log, encoding="utf-8")
            status.write_text(str(built.status))
    return Build(int(status.read_text()), log.read_text(encoding="utf-8"), tree / "_build" / "html")


class Quiet(SimpleHTTPRequestHandler):
    """A file server that says nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Print no line for a request."""


@pytest.fixture(scope="session")
def site(book: Build) -> Iterator[str]:
    """The address of the built book over http."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(book.html)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture
def visit(chromium: Browser, book: Build, site: str) -> Iterator[Callable[..., Watched]]:
    """Open a page of the book in one of the LOOKS, with or without its scripts."""
    contexts = []

    def opened(name: str, look: str = "light-wide", protocol: str | None = None, scripts: bool = True) -> Watched:
        scheme, size, usual = LOOKS[look]
        root = site if (protocol or usual) == "http" else book.html.as_uri()
        context = chromium.new_context(
            viewport=size, color_scheme=scheme, reduced_motion="reduce", java_script_enabled=scripts
        )
        contexts.append(context)
        watched = Watched(context, site if root == site else "file://")
        watched.page.goto(f"{root}/{name}.html")
        return watched

    yield opened
    for context in contexts:
        context.close()
