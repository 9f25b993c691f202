"""Measure the Python of the pages in Chromium, from a file: its size, its start, two gradchecks of 20 numbers.

``python -m bench.page_python``; needs a Chromium on PATH. Each time is the median of five, each in a new runtime.
"""

import gzip
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tools.page_python import bundle

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
        browser.close()
    print(f"size              {len(script) / 1e3:8.0f} kB, gzipped {len(gzip.compress(script, 9)) / 1e3:.0f} kB")
    print(f"start             {statistics.median(starts):8.0f} ms")
    print(f"two gradchecks    {statistics.median(checks):8.0f} ms, of 20 numbers each")


if __name__ == "__main__":
    main()
