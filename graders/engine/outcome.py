"""What may happen to a cell besides its own code: the names that its error output carries, and the same as data."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from nbformat import NotebookNode

CELL_TIME, NOTEBOOK_TIME, KERNEL_DIED, OUTPUT_CUT = "CellTimeLimit", "NotebookTimeLimit", "KernelDied", "OutputLimit"
CUT = "output cut: this cell wrote more than"
KEY = "graders"  # in the metadata of an executed notebook


@dataclass(frozen=True)
class Event:
    """Something that ended a cell, kept it from running, or cut what it wrote.

    Args:
        cell: its number in the notebook, from 0.
        name: `CELL_TIME`, `KERNEL_DIED`, `NOTEBOOK_TIME` or `OUTPUT_CUT`.
        did: the end of a sentence that begins with the cell: "ran longer than 4 s and was stopped".
        ran: whether the cell began to run.
    """

    cell: int
    name: str
    did: str
    ran: bool = True


def put_events(notebook: NotebookNode, events: Iterable[Event]) -> None:
    """Write the events into the notebook's metadata, in place of whatever a student left there."""
    notebook.metadata[KEY] = {"events": [asdict(event) for event in events]}


def take_events(notebook: NotebookNode) -> list[Event]:
    """Take the events of an executed notebook out of its metadata."""
    return [Event(**event) for event in notebook.metadata.pop(KEY)["events"]]
