"""The turns of a chapter: cells in which the reader writes a line, and what belongs to them.

A turn is a code cell tagged ``turn:NAME``, in which one line holds the words ``your turn``; the notebook runs to its
end with that line as it stands. A later cell, tagged ``asks:NAME``, says whether the reader's line is right. After that
the first Python in a fence, inside a folded part of the text, is a right line: `filled` puts it in.
"""

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass

from nbformat import NotebookNode

MARK = "your turn"
FENCE = re.compile(r"<details>.*?^```python\n(?P<code>.*?)^```$.*?</details>", re.DOTALL | re.MULTILINE)


class TurnError(Exception):
    """A turn that is not as its reader needs it, in one line."""


@dataclass(frozen=True)
class Turn:
    """Where the parts of a turn stand.

    Args:
        name: of the turn.
        cell: the number of the cell in which the reader writes.
        asks: that of the cell which says whether it is right.
        code: a right line, or lines, as they stand in the cell.
    """

    name: str
    cell: int
    asks: int
    code: str


def named(cell: NotebookNode, kind: str) -> str:
    """Return the name in a cell's tag ``kind:NAME``; "" where it has none."""
    found = (tag.partition(":") for tag in cell.metadata.get("tags", []))
    return next((name for word, _, name in found if word == kind), "")


def turns(notebook: NotebookNode) -> Iterator[Turn]:
    """Yield the turns of a notebook, in order.

    Raises:
        TurnError: one has no line to fill in, or more than one, nothing that asks, or no right line.
    """
    cells = notebook.cells
    for place, cell in enumerate(cells):
        if not (name := named(cell, "turn")):
            continue
        if (count := sum(MARK in line for line in cell.source.splitlines())) != 1:
            raise TurnError(f"turn {name}: {count} lines say '{MARK}', 1 is needed")
        asks = next((i for i, c in enumerate(cells) if i > place and named(c, "asks") == name), None)
        if asks is None:
            raise TurnError(f"turn {name}: no later cell is tagged asks:{name}")
        after = next((c.source for c in cells[asks + 1 :] if c.cell_type == "markdown"), "")
        if (found := FENCE.search(after)) is None:
            raise TurnError(f"turn {name}: the text after cell {cells[asks].id} has no Python in a fence in <details>")
        yield Turn(name, place, asks, found["code"].rstrip("\n"))


def filled(notebook: NotebookNode) -> NotebookNode:
    """Return a copy in which every turn has its right line.

    Raises:
        TurnError: as `turns`.
    """
    notebook = copy.deepcopy(notebook)
    for turn in turns(notebook):
        cell = notebook.cells[turn.cell]
        cell.source = "\n".join(turn.code if MARK in line else line for line in cell.source.splitlines())
    return notebook
