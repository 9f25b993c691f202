"""What may happen to a cell besides its own code: the names that its error output carries, and the same as data."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from nbformat import NotebookNode

CELL_TIME, NOTEBOOK_TIME, KERNEL_DIED, OUTPUT_CUT = "CellTimeLimit", "NotebookTimeLimit", "KernelDied", "OutputLimit"
SUSPECT = "Suspect"  # a cell whose text reaches for what no answer needs
RUNNING_ON = (OUTPUT_CUT, SUSPECT)  # what neither ends a cell nor keeps it from running
CUT = "output cut: this cell wrote more than"
KEY = "graders"  # in the metadata of an executed notebook


@dataclass(frozen=True)
class Event:
    """Something that ended a cell, kept it from running, cut what it wrote, or that a person should look at.

    Args:
        cell: its number in the notebook, from 0.
        name: `CELL_TIME`, `KERNEL_DIED`, `NOTEBOOK_TIME`, `OUTPUT_CUT` or `SUSPECT`.
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
