"""JupyterLab in a browser: start it in a folder, open a notebook, write cells, run them, read what they show."""

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

from playwright.sync_api import Browser, Locator, Page, expect

PATIENCE = (
    240.0  # seconds for the server to answer, a kernel to start, a cell to end: torch may be read from a cold disk
)


class Lab:
    """One JupyterLab in a folder, seen by a page that reaches nothing but it.

    Args:
        browser: a started browser.
        own: an empty folder for what Jupyter keeps of its user.
    """

    def __init__(self, browser: Browser, own: Path) -> None:
        self.own = own
        self.context = browser.new_context(viewport={"width": 1400, "height": 1000})
        self.address = ""
        self._running: subprocess.Popen[bytes] | None = None
        self.context.route("**/*", lambda route: route.continue_() if self._near(route.request.url) else route.abort())
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE * 1000)

    def _near(self, url: str) -> bool:
        return urlsplit(url).netloc == urlsplit(self.address).netloc or url.startswith(("data:", "blob:"))

    def start(self, python: str, folder: Path) -> None:
        """Start JupyterLab by an interpreter, in a folder, as typing ``jupyter lab`` there does."""
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = {
            "ServerApp": {
                "ip": "127.0.0.1",
                "port": port,
                "port_retries": 0,
                "open_browser": False,
                "allow_root": True,
            },
            "IdentityProvider": {"token": ""},
        }
        (self.own / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        folders = {
            f"JUPYTER_{name}": str(self.own / name.lower()) for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
        }
        folders |= {"IPYTHONDIR": str(self.own / "ipython"), "HOME": str(self.own)}
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        # an environment's own programs come first, as where it is activated
        environment["PATH"] = os.pathsep.join([str(Path(python).parent), environment.get("PATH", os.defpath)])
        with (self.own / "said").open("wb") as said:
            self._running = subprocess.Popen(
                [python, "-m", "jupyter", "lab", f"--config={self.own / 'settings.json'}"],
                cwd=folder,
                env=environment | folders,
                stdout=said,
                stderr=said,
            )
        self.address = f"http://127.0.0.1:{port}"
        end = time.monotonic() + PATIENCE
        while not _answers(f"{self.address}/api"):
            text = (self.own / "said").read_text(encoding="utf-8", errors="replace")[-3000:]
            assert self._running.poll() is None and time.monotonic() < end, text
            time.sleep(0.5)

    def open(self, path: str) -> None:
        """Open a notebook in a fresh workspace, and wait until its kernel is there.

        JupyterLab says "idle" before it has a kernel, and drops what is run then; the kernel's name comes later.
        """
        self.page.goto(f"{self.address}/lab/tree/{quote(path)}?reset")
        expect(self.page.locator(".jp-Notebook .jp-Cell").first).to_be_visible(timeout=PATIENCE * 1000)
        name = self.page.locator(".jp-NotebookPanel:visible .jp-KernelName")
        expect(name).to_contain_text("Python 3", timeout=PATIENCE * 1000)
        self._idle()

    def _idle(self) -> None:
        status = self.page.locator(".jp-NotebookPanel:visible .jp-Notebook-ExecutionIndicator")
        expect(status).to_have_attribute("data-status", "idle", timeout=PATIENCE * 1000)

    def cell(self, text: str) -> Locator:
        """The first code cell whose source has these words; the notebook is scrolled until it is there."""
        cells = self.page.locator(".jp-CodeCell")
        found = cells.filter(has=self.page.locator(".cm-content", has_text=re.compile(re.escape(text)))).first
        notebook = self.page.locator(".jp-WindowedPanel-outer").first
        for _ in range(60):
            if found.count():
                found.scroll_into_view_if_needed()
                return found
            notebook.evaluate("panel => panel.scrollBy(0, 500)")
            self.page.wait_for_timeout(100)
        raise AssertionError(f"no cell has {text!r}")

    def run_above(self, cell: Locator) -> None:
        """Run all cells above one, by the menu; code that is folded away runs too."""
        cell.locator(".cm-content").click()
        self.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile("^Run$")).click()
        self.page.locator(".lm-Menu-itemLabel", has_text="Run All Above Selected Cell").click()
        said = self.page.locator(".jp-NotebookPanel:visible .jp-Notebook-ExecutionIndicator-tooltip")
        expect(said).to_contain_text(re.compile(r"Executed \d+ cell"), timeout=PATIENCE * 1000)
        self._idle()

    def write(self, cell: Locator, source: str) -> None:
        """Replace the source of a cell, as by pasting."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.press("Delete")
        self.page.keyboard.insert_text(source)

    def run(self, cell: Locator) -> str:
        """Run a cell, wait for its end, and return the text of what it shows."""
        cell.locator(".cm-content").click()
        return self._run(cell)

    def _run(self, cell: Locator) -> str:
        prompt = cell.locator(".jp-InputPrompt")
        before = prompt.inner_text()
        self.page.keyboard.press("ControlOrMeta+Enter")
        self.page.wait_for_timeout(300)
        self._idle()
        expect(prompt).to_have_text(re.compile(r"\[\d+\]:"), timeout=PATIENCE * 1000)
        expect(prompt).not_to_have_text(before, timeout=PATIENCE * 1000)
        return cell.locator(".jp-Cell-outputArea").inner_text() if cell.locator(".jp-OutputArea-child").count() else ""

    def below(self, cell: Locator, source: str) -> Locator:
        """Add a cell below another and write into it; return it."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("b")
        new = self.page.locator(".jp-Cell.jp-mod-active")
        expect(new.locator(".cm-content")).to_have_text("")
        self.page.keyboard.press("Enter")
        self.page.keyboard.insert_text(source)
        return self.cell(source.splitlines()[0])

    def save(self) -> None:
        """Save the notebook, and wait until it is written to its file: what was just typed may not be in it yet."""
        for _ in range(20):
            self.page.keyboard.press("ControlOrMeta+s")
            self.page.wait_for_timeout(500)
            if not self.page.locator(".jp-mod-dirty").count():
                return
        expect(self.page.locator(".jp-mod-dirty")).to_have_count(0, timeout=PATIENCE * 1000)

    def dialog(self) -> str:
        """The text of a dialog that comes up; it is closed by its last button."""
        dialog = self.page.locator(".jp-Dialog-content")
        expect(dialog).to_be_visible(timeout=PATIENCE * 1000)
        text = dialog.inner_text()
        dialog.locator("button").last.click()
        return text

    def stop(self) -> None:
        """Close the page and end the server with its kernels."""
        self.context.close()
        if self._running:
            self._running.terminate()
            self._running.wait(60)


def _answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=20) as answer:
            return answer.status == 200
    except (URLError, TimeoutError, ConnectionError):
        return False


def labs(browser: Browser, folder: Path) -> Iterator[Lab]:
    """One JupyterLab for a test, ended after it; for a fixture."""
    lab = Lab(browser, folder)
    try:
        yield lab
    finally:
        lab.stop()
