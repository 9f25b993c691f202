"""Run a submission's cells within limits: time per cell and per notebook, bytes of output, a kernel that dies.

Stock nbgrader gives up a whole submission when its kernel dies, and gives full points to a cell that did not run. So a
cell that was stopped or not reached gets an error output here: it scores 0, and all before it keeps its points.
"""

import asyncio
import atexit
import json
import math
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

from jupyter_client.manager import KernelManager
from jupyter_core.utils import ensure_event_loop, run_sync
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.preprocessors import Execute
from traitlets import Bool, Integer, Unicode

from graders.engine.outcome import CELL_TIME, CUT, KERNEL_DIED, NOTEBOOK_TIME, OUTPUT_CUT

PAYLOADS = ("stream", "display_data", "update_display_data", "execute_result", "error")


@dataclass
class _Kernel:
    """A started kernel, its directory, and the environment that it was given."""

    manager: KernelManager
    room: tempfile.TemporaryDirectory
    environment: dict[str, str]

    def close(self) -> None:
        if run_sync(self.manager.is_alive)():
            run_sync(self.manager.shutdown_kernel)(now=True)
        run_sync(self.manager.cleanup_resources)()
        self.room.cleanup()


class LimitedExecute(Execute):
    """nbgrader's Execute with a time budget per notebook, a limit on output, and a kernel that may die.

    The kernel works in an empty directory, so that files handed in beside a notebook are not imported. From a process's
    second notebook on, the next kernel starts while a notebook runs: every notebook has a fresh one and does not wait.
    """

    notebook_timeout = Integer(120, help="Seconds for all cells of a notebook together.").tag(config=True)
    max_output = Integer(1_000_000, help="Characters of output kept per cell.").tag(config=True)
    preload = Unicode("", help="Python that a waiting kernel runs, in a namespace of its own.").tag(config=True)

    coalesce_streams = Bool(True, help="A print whose pieces arrive apart is one output: a verdict is read from one.")

    _next: ClassVar[_Kernel | None] = None
    _executed: ClassVar[int] = 0

    def preprocess(
        self, nb: NotebookNode, resources: ResourcesDict, km: Any = None
    ) -> tuple[NotebookNode, ResourcesDict]:
        """Execute ``nb`` in a kernel of its own, within its time."""
        cls = LimitedExecute
        kernel, cls._next = cls._next, None
        if kernel and (kernel.environment != dict(os.environ) or not run_sync(kernel.manager.is_alive)()):
            kernel = kernel.close()
        kernel = kernel or self._start()
        if cls._executed:
            cls._next = self._start()
        cls._executed += 1
        self._deadline = monotonic() + self.notebook_timeout
        self._stopped: tuple[str, str] | None = None
        try:
            return super().preprocess(nb, resources, kernel.manager)
        except KeyboardInterrupt:
            for task in asyncio.all_tasks(ensure_event_loop()):  # or asyncio complains that nobody asked how they ended
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise
        finally:
            if self.kc is not None:
                self.kc.stop_channels()
            kernel.close()

    def _start(self) -> _Kernel:
        room = tempfile.TemporaryDirectory()
        work = Path(room.name, "work")
        work.mkdir()
        manager = self.kernel_manager_class(kernel_name="python3", config=self.config)
        manager.connection_file = str(Path(room.name, "kernel.json"))  # sockets, if ipc, where both ends see them
        run_sync(manager.start_kernel)(
            extra_arguments=[
                "--HistoryManager.hist_file=:memory:",
                "--InteractiveShell.xmode=Plain",  # a runaway recursion's coloured traceback takes half a minute
                f"--IPKernelApp.exec_lines=exec({self.preload!r}, {{}})",
            ],
            cwd=str(work),
            stdout=subprocess.DEVNULL,  # what it writes to its own terminal is nobody's output
            stderr=subprocess.DEVNULL,
        )
        return _Kernel(manager, room, dict(os.environ))

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        """Execute one cell; once the notebook is stopped, mark the cell as not run."""
        if cell.cell_type != "code" or not cell.source.strip():
            return cell, resources
        self._written = 0
        limit = self._get_timeout(cell)
        self.error_on_timeout = _reply(CELL_TIME, f"this cell ran longer than {limit} s and was stopped")
        if not self._stopped:
            try:
                cell, resources = super().preprocess_cell(cell, resources, index)
            except DeadKernelError:
                self._stop(cell, KERNEL_DIED, "the kernel died in this cell", "not run: the kernel had died before")
            except CellTimeoutError:  # an interrupt did not stop it
                here = f"this cell ran longer than {limit} s and could not be interrupted"
                self._stop(cell, CELL_TIME, here, "not run: an earlier cell could not be interrupted")
            if not self._stopped and monotonic() > self._deadline:
                self._stopped = NOTEBOOK_TIME, f"not run: the notebook's {self.notebook_timeout} s were over"
        else:
            cell.outputs = [_error(*self._stopped)]
        return cell, resources

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> NotebookNode | None:
        """Take one message of the kernel; past ``max_output`` characters only short results and errors are kept."""
        if msg["msg_type"] in PAYLOADS:
            content = msg["content"]
            size = len(content["text"]) if "text" in content else len(json.dumps(content, default=str))
            before, self._written = self._written, self._written + size
            if self._written > self.max_output:
                if before <= self.max_output:
                    text = f"\n[{CUT} {self.max_output:,} characters]\n"
                    cell.outputs.append(new_output("stream", name="stdout", text=text))
                if msg["msg_type"] in ("execute_result", "error") and size > 20_000:
                    cell.outputs.append(_error(OUTPUT_CUT, "the result was too long"))
                    return None
                if msg["msg_type"] not in ("execute_result", "error"):
                    return None
        return super().process_message(msg, cell, cell_index)

    def _get_timeout(self, cell: NotebookNode | None) -> int | None:
        timeout = super()._get_timeout(cell)
        left = max(1, math.ceil(self._deadline - monotonic()))
        return left if timeout is None else min(timeout, left)

    def _stop(self, cell: NotebookNode, name: str, here: str, later: str) -> None:
        self._stopped = name, later
        cell.setdefault("outputs", []).append(_error(name, here))


def _error(name: str, text: str) -> NotebookNode:
    return new_output("error", ename=name, evalue=text, traceback=[f"{name}: {text}"])


def _reply(name: str, text: str) -> dict[str, Any]:
    return {"ename": name, "evalue": text, "traceback": [f"{name}: {text}"]}


@atexit.register
def _close_next() -> None:
    if LimitedExecute._next:
        LimitedExecute._next.close()
