"""Measure the Python of the pages in Chromium, from a file: size, start, two gradchecks, a chapter's first verdict.

``python -m bench.page_python``; needs a Chromium on PATH, and for its last lines the built book (``make book``). Each
time is the median of five, each in a new runtime. The last lines are chapter 1's: from the click on *Run* to the
coach's words, with all that is loaded for it, and once more when it is there.
"""

import gzip
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tools.page_python import bundle

HTML = Path(__file__).parent.parent / "_build" / "html"
CHAPTER = HTML / "book" / "01_relu.html"
LOADED = ["torch/page-torch.js"] + [
    f"live/{name}" for name in ("live.js", "live.css", "01_relu.js", "python.js", "coach.js", "tasks-relu.js")
]
CLICK = """async () => {
    const cell = document.querySelector(".tag_turn\\\\:relu");
    const answer = (button) => new Promise((resolve) => {
        const began = performance.now();
        const seen = new MutationObserver(() => {
            if (!cell.querySelector(".live-torch")) return;
            seen.disconnect();
            resolve(performance.now() - began);
        });
        seen.observe(cell, { childList: true, subtree: true });
        button.click();
    });
    const first = await answer(cell.querySelector("button.live-start"));
    cell.querySelector(".live-out").replaceChildren();
    return [first, await answer(cell.querySelector(".live-run"))];
}"""
CHECKS = """import torch
from torch.autograd import Function, gradcheck, gradgradcheck


class Square(Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


x = torch.linspace(-2, 2, 20, dtype=torch.float64, requires_grad=True)
print(gradcheck(Square.apply, x), gradcheck(torch.tanh, x))
"""


def main() -> None:
    """Print the table."""
    names = ("chromium", "chromium-browser", "google-chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        sys.exit(f"None of {', '.join(names)} is on PATH.")
    script = bundle().encode()
    starts, checks = [], []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        (Path(folder) / "page-python.js").write_bytes(script)
        page_file = Path(folder) / "index.html"
        page_file.write_text('<!doctype html><meta charset="utf-8"><script src="page-python.js"></script>')
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_context(offline=True).new_page()
        page.goto(page_file.as_uri())
        for _ in range(5):
            began = "const began = performance.now(); await pagePython.start(); return performance.now() - began;"
            starts.append(page.evaluate(f"async () => {{ {began} }}"))
            answer = page.evaluate("code => pagePython.run(code, 60000)", CHECKS)
            assert answer["printed"] == "True True\n", answer
            checks.append(answer["ms"])
            page.evaluate("pagePython.stop()")
        clicks = [clicked(browser) for _ in range(5)] if CHAPTER.exists() else []
        browser.close()
    print(f"size              {len(script) / 1e3:8.0f} kB, gzipped {len(gzip.compress(script, 9)) / 1e3:.0f} kB")
    print(f"start             {statistics.median(starts):8.0f} ms")
    print(f"two gradchecks    {statistics.median(checks):8.0f} ms, of 20 numbers each")
    if not clicks:
        print("The book is not built: make book, for a chapter's first verdict.")
        return
    first, again = (statistics.median(times) for times in zip(*clicks, strict=True))
    loaded = [HTML / "_static" / name for name in LOADED]
    whole = sum(path.stat().st_size for path in loaded)
    packed = sum(len(gzip.compress(path.read_bytes(), 9)) for path in loaded)
    print(f"a click loads     {whole / 1e3:8.0f} kB, gzipped {packed / 1e3:.0f} kB, of chapter 1")
    print(f"first verdict     {first:8.0f} ms after the click")
    print(f"the next          {again:8.0f} ms")


def clicked(browser: Browser) -> tuple[float, float]:
    """Return the milliseconds from a click on chapter 1's first Function to its verdict, and of the next run."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(CHAPTER.as_uri())
    page.wait_for_load_state()
    times = page.evaluate(CLICK)
    context.close()
    return times[0], times[1]


if __name__ == "__main__":
    main()
