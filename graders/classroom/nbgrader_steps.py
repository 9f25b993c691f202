"""nbgrader's step that executes a submission: makes a `Job` of it and has it run, here or wherever a pool runs it."""

import json
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import nbformat
from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Bool, Enum, Integer

from graders.classroom.execute import LimitedExecute
from graders.classroom.preprocess import originals
from graders.classroom.submission import Original
from graders.engine.job import Job, Settings
from graders.engine.run import run


class TrustedExecute(NbGraderPreprocessor):
    """Run the student's cells in a sandbox and the grade cells outside of it.

    Takes the place of nbgrader's ``Execute`` in ``c.Autograde.autograde_preprocessors``.
    """

    timeout = Integer(Settings.cell_time, help="Seconds for one cell.").tag(config=True)
    notebook_timeout = Integer(Settings.notebook_time, help="Seconds for all cells of a notebook.").tag(config=True)
    max_output = Integer(Settings.max_output, help="Characters of output kept per cell.").tag(config=True)
    memory = Integer(Settings.memory, help="Bytes that a process of a notebook may take.").tag(config=True)
    processes = Integer(Settings.processes, help="Processes and threads of a notebook at a time.").tag(config=True)
    disk = Integer(Settings.disk, help="Bytes of files that a notebook may write.").tag(config=True)
    figures = Bool(False, help="Run locked cells that only draw (plot_...): half of the time.").tag(config=True)
    sandbox = Enum(
        ("required", "off"),
        "required",
        help="'off': go on without a sandbox. What is handed in can then do all that you can.",
    ).tag(config=True)

    ahead: ClassVar[Callable[[Job], str] | None] = None  # who has run jobs already, if anybody has

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        """Execute ``nb``.

        Raises:
            SandboxError: there is no sandbox, and one is required.
        """
        if os.name != "posix" and self.sandbox == "off":  # no fork there
            return LimitedExecute(parent=self.parent).preprocess(nb, resources)
        job = self.job(nb, resources)
        executed = (TrustedExecute.ahead or run)(job)
        return nbformat.reads(executed, as_version=4), resources

    def job(self, nb: NotebookNode, resources: ResourcesDict) -> Job:
        """What has to be executed of a sanitised ``nb``: all that is trusted in it comes from the gradebook."""
        about = resources["nbgrader"]
        cells = _released(about["db_url"], self._coursedir(), about["assignment"], about["notebook"]).values()
        code = [cell for cell in cells if cell.cell_type == "code"]
        return Job(
            json.dumps(nb),
            tests=tuple((cell.grade_id, cell.source) for cell in code if cell.grade and not cell.solution),
            given=tuple(cell.source for cell in code if cell.locked and not cell.grade),
            answers=tuple(cell.source for cell in code if cell.solution),
            settings=self.settings(),
        )

    def settings(self) -> Settings:
        """The limits, as configured; the seed comes from the environment."""
        return Settings(
            cell_time=self.timeout,
            notebook_time=self.notebook_timeout,
            max_output=self.max_output,
            memory=self.memory,
            processes=self.processes,
            disk=self.disk,
            seed=int(os.environ.get("GRADERS_SEED", "0")),
            figures=self.figures,
            sandbox=self.sandbox,
        )

    def _coursedir(self) -> CourseDirectory:
        return self.parent.parent.coursedir


def _released(db_url: str, coursedir: CourseDirectory, assignment: str, notebook: str) -> dict[str, Original]:
    """The released cells, read from the gradebook once for each version of the source."""
    source = Path(coursedir.format_path(coursedir.source_directory, ".", assignment)) / f"{notebook}.ipynb"
    return _read(db_url, coursedir, assignment, notebook, source.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _read(db_url: str, coursedir: CourseDirectory, assignment: str, notebook: str, _: int) -> dict[str, Original]:
    with Gradebook(db_url) as gradebook:
        return originals(gradebook, coursedir, assignment, notebook)
