"""Jobs for the engine. Where no sandbox can be had its tests are skipped; with COURSE_REQUIRE_SANDBOX set they fail."""

import os
from collections.abc import Callable, Iterator

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from graders.engine import parents, run
from graders.engine.job import Job, Settings
from graders.engine.sandbox import SandboxError, WarmParent

SETTINGS = Settings(cell_time=20, notebook_time=60)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[None]:
    """There is one."""
    try:
        parent = parents.warm()
        parent.end(parent.kernel(SETTINGS)[0])
    except SandboxError as error:
        if os.environ.get("COURSE_REQUIRE_SANDBOX"):
            raise
        pytest.skip(str(error))
    yield
    parents.close()


@pytest.fixture
def warm(sandbox) -> WarmParent:
    """The warm parent of this process, in its sandbox; a new one where a test has ended the last."""
    return parents.warm()


def cell(source: str, name: str | None = None, **meta: object) -> NotebookNode:
    """A code cell, of the student's own or with a grade_id."""
    made = new_code_cell(source)
    if name:
        base = {"grade_id": name, "grade": False, "solution": False, "locked": False, "schema_version": 3}
        made.metadata["nbgrader"] = base | meta
    return made


@pytest.fixture
def execute(warm) -> Callable[..., list[NotebookNode]]:
    """Run cells as a submission; the executed cells. ``tests``: what the gradebook has under the ids of grade cells."""

    def do(
        *cells: NotebookNode | str,
        tests: dict[str, str] | None = None,
        given: tuple[str, ...] = (),
        answers: tuple[str, ...] = (),
        settings: Settings = SETTINGS,
    ) -> list[NotebookNode]:
        cells = [cell(c) if isinstance(c, str) else c for c in cells]
        job = Job(nbformat.writes(new_notebook(cells=cells)), tuple((tests or {}).items()), given, answers, settings)
        return nbformat.reads(run.run(job), as_version=4).cells

    return do


def text(executed: NotebookNode) -> str:
    """All that a cell printed, its result, and its error's name and text."""
    parts = []
    for output in executed.outputs:
        match output.output_type:
            case "stream":
                parts.append(output.text)
            case "error":
                parts.append(f"{output.ename}: {output.evalue}")
            case _:
                parts.append(output.data.get("text/plain", ""))
    return "\n".join(parts)
