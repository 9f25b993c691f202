"""Show something that grows: one output that is replaced in a notebook, lines that are added elsewhere."""

import sys
from typing import Any, TextIO


def shell() -> Any:
    """Return IPython's shell where there is one, else None; IPython is not imported for that."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module else None


def notebook() -> bool:
    """Return whether a front end replaces an output when it is asked to: a kernel does, a terminal does not."""
    return getattr(shell(), "kernel", None) is not None


class Screen:
    """Where the coach writes.

    Args:
        out: where lines of text go, if they do; default: what ``sys.stdout`` is now.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = out or sys.stdout  # as it is before answers run, whose prints are kept out
        self.handle: Any = None
        self.rich = out is None and notebook()

    def line(self, text: str) -> None:
        """Write a line, where there is no table that is replaced."""
        if not self.rich:
            print(text, file=self.out, flush=True)

    def replace(self, html: str, text: str) -> None:
        """Show a table in place of the one before; nothing happens where lines are written."""
        if not self.rich:
            return
        from IPython.display import display

        bundle = {"text/html": html, "text/plain": text}
        if self.handle is None:
            self.handle = display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)
