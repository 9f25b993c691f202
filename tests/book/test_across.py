"""The page on several ranks: what its runner says and leaves behind, and that its loss is the one of chapter 7."""

import time
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from torch.nn import functional as F

from tests.book.book_build import ROOT
from tests.book.test_functions import Alike, normal, notebooks

RUNNER = ("start", "rank", "each")  # the folded cells

JOBS = """
def waits():
    if dist.get_rank() == 0:
        dist.barrier()
    return "done"


def dies():
    if dist.get_rank() == 1:
        os._exit(3)
    return "done"


def raises():
    raise ValueError(f"rank {dist.get_rank()}\\nand more")


def spins():
    while dist.get_rank() == 1:
        pass
    return "done"
"""


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What the runner prints of jobs that go wrong, and then which processes are left."""
    page = nbformat.read(ROOT / "book/g_across.ipynb", 4)
    cells = [new_code_cell(c.source) for c in page.cells if c.id in RUNNER]
    cells += [new_code_cell("def broken(:\n    pass", metadata={"tags": ["raises-exception"]}), new_code_cell(JOBS)]
    cells += [new_code_cell(f'each(2, "{job}()", limit=2)') for job in ("waits", "dies", "raises", "spins")]
    cells.append(new_code_cell('each(2, "unknown")\nranks(torch.ones(2), 1)', metadata={"tags": ["raises-exception"]}))
    cells.append(
        new_code_cell(
            "import multiprocessing\nfrom multiprocessing.forkserver import _forkserver\n"
            "print(multiprocessing.active_children(), _forkserver._forkserver_pid)"
        )
    )
    notebook = new_notebook(cells=cells)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return ["".join(o.get("text", "") for o in cell.outputs) for cell in notebook.cells]


def test_a_rank_that_hangs_says_where(said: list[str]) -> None:
    assert said[5] == "rank 0: hangs in waits:\n  dist.barrier()\nrank 1: done\n"
    assert said[8] == "rank 0: done\nrank 1: hangs in spins:\n  while dist.get_rank() == 1:\n"


def test_a_rank_that_dies_or_raises_is_told(said: list[str]) -> None:
    assert said[6] == "rank 0: done\nrank 1: its process is gone\n"
    assert said[7] == "rank 0: ValueError: rank 0\nrank 1: ValueError: rank 1\n"
    assert said[9] == "all 2 ranks: NameError: name 'unknown' is not defined\n"


def test_no_process_is_left(said: list[str]) -> None:
    """Neither a rank nor, once the kernel is gone, the process that they are forked from."""
    children, _, server = said[10].partition("] ")
    assert children == "["
    end = time.monotonic() + 30
    while Path(f"/proc/{int(server)}").exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert not Path(f"/proc/{int(server)}").exists()


def test_the_loss_of_a_split_vocabulary_is_that_of_chapter_7() -> None:
    names, target = notebooks()["g_across.ipynb"].names, torch.tensor([3, 0, 3])
    names["dist"] = Alike(1)
    right = notebooks()["07_logsumexp.ipynb"].names["SoftCrossEntropy"].apply
    ours, theirs = normal(3, 4), normal(3, 4)
    loss = names["split_cross_entropy"](ours, target)
    wanted = right(theirs, F.one_hot(target, 4).double())
    torch.testing.assert_close(loss, wanted)
    loss.backward()
    wanted.backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
