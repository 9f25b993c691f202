"""The turns of the chapters: unfilled they say so, filled they are right, and what the text quotes is what is said."""

import os
import re

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from graders.sets import load, names
from tests.book.book_build import ROOT
from tools.turns import Turn, TurnError, filled, turns

RIGHT = {  # by page and turn: what the cell that asks prints where the line is right, and at no other time
    "01_relu": {
        "numbers": "the same as autograd: True",
        "relu": "All 5 checks hold.",
        "exp": "gradcheck: True",
        "power": "gradcheck: True",
        "drum": "gradcheck: True\nloss 0.4454 -> 0.0000, a = 1.5000, k = 2.4048",
        "catch": "right version passes: True\nwrong version passes: False",
    },
    "02_sigmoid": {
        "slope": "the same as Python's: True",
        "arctan": "All 4 checks hold.",
        "where": "gradient [0.16, 0.0, -0.16]",
        "pattern": "only the diagonal is left: True",
        "formula": "gradcheck passes\ngradgradcheck passes",
        "catch": "right versions pass: True True\nfloat32 inside passes: False",
    },
    "03_ste": {
        "numbers": "mine is the ramp's: True",
        "step": "All 5 checks hold.",
        "stop": "second term, for z and for the code: (tensor(-0.7500), None)\nthe second moves z alone: True",
        "scale": "All 5 checks hold.",
        "hook": "with my hook: 1.0\nright: True",
        "catch": "both are caught: True",
    },
    "04_legendre": {
        "paths": "autograd's second derivative: True",
        "chebyshev": "All 3 checks hold.",
        "p3": "gradcheck: True\ngradgradcheck: True",
        "product": "H v: tensor([26.,  2.])\nright: True",
        "degree": "at n = 2: True",
    },
    "05_clipped_relu": {
        "pull": "the same as measured: True",
        "bound": "All 6 checks hold.",
        "learn": "All 6 checks hold.",
        "scale": "with: (tensor([0.6000, 0.8000], dtype=torch.float64),)",
        "reach": "2.4000],\n       dtype=torch.float64, requires_grad=True)",
        "edges": "parity catches it: True",
    },
    "06_linear": {
        "sums": "the same as autograd: True",
        "matmul": "gradcheck: True\nsquare:    True",
        "fold": "not as torch: []",
        "mean": "All 4 checks hold.",
        "softplus": "All 4 checks hold.",
        "catch": "caught: True",
    },
    "07_logsumexp": {
        "shift": "1000 and 1001: 1001.3133",
        "guard": "-inf right: -inf\n0.0 right: 0.0\ninf right: inf",
        "gradient": "All 4 checks hold.",
        "loss": "All 4 checks hold.",
        "merge": "103.170 right: 103.170",
        "sum": "right version: True\nwrong version: False",
        "streamed": "in pieces of 3 as torch's: True\ngradient in pieces of 7 as torch's: True",
    },
    "08_qat": {
        "codes": "the same as torch: True",
        "bits": "All 4 checks hold.",
        "column": "2 axes, each row has its own scale: True\n4 axes, each row has its own scale: True",
        "step": "All 4 checks hold.",
        "ties": "told apart: [True, True, True]",
    },
    "09_checkpointing": {
        "bytes": "the same as counted: True",
        "peak": "as stepped through: True",
        "parameters": "gradients as plain: True",
        "state": "All 3 checks hold.",
        "slope": "All 3 checks hold.",
        "test": "passes plain: True | passes the copy: False\npasses with one wrong: False",
        "mixed": "as torch's: True\ngradcheck True",
    },
    "10_flash_attention": {
        "row": "the sum over all four: True",
        "tile": "one tile:  True\ntwo tiles: True\nlarge scores: True",
        "d": "the same as autograd: True",
        "ds": "one tile:  True\ntwo tiles: True",
        "keep": "All 3 checks hold.",
        "catch": "right version passes: True\nwrong version passes: False",
    },
    "f_implicit": {
        "slope": "the same: True",
        "adjoint": "as a solve with the matrix: True",
        "optimum": "as by the formula: True",
        "matrix": "the same as torch's: True",
    },
    "g_across": {
        "reduce": "all 2 ranks: 12.0",
        "pair": "all 2 ranks: y 2, gradient of x 2",
        "scatter": "rank 0: 11\nrank 1: 22",
        "sum": "all 2 ranks: 1.3863",
        "dead": "all 2 ranks: 4.0",
    },
    "h_engine": {
        "order": "as it ran: True",
        "step": "held at most: 16 KiB\nthe same weights: True",
        "conj": "complex: gradcheck True",
        "pack": "gradient off by 0.0042\n8 bits, rounded: True",
    },
    "i_wild": {
        "mend": "after_cat, as plain: True\nafter_transpose, as plain: True\nafter_sum, as plain: True",
        "cat": "right version passes: True\nwrong version passes: False",
        "item": "finds it: True",
        "stable": "as in float64: True",
    },
}
FIRST = 420  # words before the first turn


def read(stem: str) -> nbformat.NotebookNode:
    """A chapter."""
    return nbformat.read(ROOT / f"book/{stem}.ipynb", 4)


def text(cell: nbformat.NotebookNode) -> str:
    """What a cell printed or showed, as text."""
    return "".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)


def run(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Run a chapter to its end, where it lies."""
    environment = os.environ | {"GRADERS_STUDY": "off"}
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOT / "book")}}
    ).execute(env=environment)
    return notebook


@pytest.mark.parametrize("stem", RIGHT, ids="book/{}".format)
def test_every_turn_is_known_and_unfilled(stem: str) -> None:
    notebook = read(stem)
    found = {turn.name: turn for turn in turns(notebook)}
    assert list(found) == list(RIGHT[stem])
    further = next(i for i, cell in enumerate(notebook.cells) if cell.source.startswith("## Further\n"))
    assert 4 <= sum(turn.cell < further for turn in found.values()) <= 6
    for name, turn in found.items():
        assert RIGHT[stem][name] not in text(notebook.cells[turn.asks]), f"{name} is right before anything is written"


@pytest.mark.parametrize("stem", RIGHT, ids="book/{}".format)
def test_filled_in_every_turn_is_right(stem: str) -> None:
    """All cells run, the turns' too, and each that asks says yes."""
    notebook = run(filled(read(stem)))
    for turn in turns(read(stem)):
        assert RIGHT[stem][turn.name] in text(notebook.cells[turn.asks]), (
            f"{turn.name}: {text(notebook.cells[turn.asks])}"
        )


@pytest.mark.parametrize("stem", RIGHT, ids="book/{}".format)
def test_a_reader_soon_writes_something(stem: str) -> None:
    notebook = read(stem)
    first = next(turns(notebook)).cell
    prose = " ".join(c.source for c in notebook.cells[2:first] if c.cell_type == "markdown")
    prose = re.sub(r"<(figure|details)\b.*?</\1>|\]\([^)]*\)", " ", prose, flags=re.DOTALL)
    assert len(prose.split()) <= FIRST


@pytest.mark.parametrize("stem", RIGHT, ids="book/{}".format)
def test_what_a_chapter_quotes_the_graders_say(stem: str) -> None:
    """A quotation below a turn is the message of a known mistake."""
    notebook = read(stem)
    said = {" ".join(m.message.split()) for name in names() for task in load(name).values() for m in task.mistakes}
    quoted = re.findall(r"^> (.+)$", "\n".join(notebook.cells[turn.asks + 1].source for turn in turns(notebook)), re.M)
    assert [quote for quote in quoted if quote not in said] == []
    assert quoted or stem != "01_relu"


WAY = "<details><summary>One way</summary>\n\n```python\n    y = 2\n```\n\n</details>"


def small(
    turn: str = "if True:\n    y = None  # your turn", asks: str = "two", way: str = WAY
) -> nbformat.NotebookNode:
    """A notebook with one turn."""
    cells = [
        new_code_cell(turn, id="turn", metadata={"tags": ["turn:two"]}),
        new_code_cell("print(y)", id="asks", metadata={"tags": [f"asks:{asks}"]}),
        new_markdown_cell(way, id="way"),
    ]
    return new_notebook(cells=cells)


def test_a_turn_is_filled_in() -> None:
    assert list(turns(small())) == [Turn("two", 0, 1, "    y = 2")]
    assert filled(small()).cells[0].source == "if True:\n    y = 2"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"turn": "y = 1"}, "0 lines say 'your turn'"),
        ({"turn": "y = 1  # your turn\nz = 1  # your turn"}, "2 lines say"),
        ({"asks": "three"}, "no later cell is tagged asks:two"),
        ({"way": "```python\ny = 2\n```"}, "has no Python in a fence"),
    ],
    ids=["nothing to fill in", "two lines", "nothing asks", "no right line"],
)
def test_a_turn_that_is_not_whole_is_found(fault: dict[str, str], said: str) -> None:
    with pytest.raises(TurnError, match=said):
        list(turns(small(**fault)))
