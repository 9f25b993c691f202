"""What has to be executed: a notebook, what is trusted of it, the limits. Plain data, for another machine too."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """The limits of an execution.

    Args:
        cell_time: seconds for one cell.
        notebook_time: seconds for all cells of a notebook together.
        max_output: characters of output kept for one cell.
        memory: bytes that each process of a notebook may map beyond what it starts with.
        processes: how many processes and threads a kernel may have at a time.
        disk: bytes of files, all together.
        seed: of the hidden inputs.
        visible: whether the locked cells whose only use is what they show, visible checks and figures, are run.
        sandbox: "required", or "off": without one.
    """

    cell_time: int = 30
    notebook_time: int = 120
    max_output: int = 1_000_000
    memory: int = 2 << 30
    processes: int = 16
    disk: int = 64 << 20
    seed: int = 0
    visible: bool = False
    sandbox: str = "required"


@dataclass(frozen=True)
class Job:
    """One notebook to execute.

    Args:
        notebook: its JSON, as nbgrader has sanitised it.
        tests: the grade cells, (grade_id, source) each, from the gradebook. They run in the grader's process; what the
            notebook itself has under these ids is not looked at.
        given: the sources of the other locked code cells, where the tests find names that they do not define.
        answers: the sources of the released answer cells: the names that they bind are the student's.
        settings: the limits.
    """

    notebook: str
    tests: tuple[tuple[str, str], ...] = ()
    given: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    settings: Settings = Settings()
