"""What a grade cell calls: in the student's kernel under stock nbgrader, in the grader's process under the engine."""

import io
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from graders.inside.operation import Operation, Responder
from graders.inside.pristine import pristine
from graders.judge import proxy, testfile
from graders.judge.proxy import DESK
from graders.judge.task import forget
from graders.sets import load

_seed: list[int] = []  # the last that was asked for


@contextmanager
def silence() -> Iterator[None]:
    """Keep prints, warnings and stderr (its descriptor too) out of the cell: nbgrader scores a cell with stderr 0."""
    sys.stderr.flush()
    kept = os.dup(2)
    with (
        tempfile.TemporaryFile() as sink,
        warnings.catch_warnings(),
        redirect_stderr(io.StringIO()),
        redirect_stdout(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def grade(set_name: str, task_name: str, check_name: str, get: Callable[[], Any] | None = None) -> float:
    """Judge one aspect of a task, show the verdict, return the points earned.

    Args:
        set_name: the set's module: ``relu``.
        task_name: the solution cell's name: ``Square``.
        check_name: the check's: ``gradient``.
        get: gives the student's operation when called, so that a missing name is a verdict and not a NameError. A task
            that asks for a file has none: the file is the text of its cell.

    Returns:
        A plain float from 0 to the check's points: the cell's last line, which nbgrader reads as its score.
    """
    task, desk = load(set_name)[task_name], DESK.get()
    seed = desk.seed if desk else int(os.environ.get("GRADERS_SEED", "0"))
    if _seed != [seed]:
        forget()  # the inputs of three hundred seeds would fill the memory
        _seed[:] = [seed]
    with silence(), pristine():
        if not isinstance(task, testfile.FileTask):
            if get is None:
                raise TypeError(
                    f"{task_name} is an operation: pass a function that returns it, such as lambda: {task_name}"
                )
            answer = proxy.operation(get()) if desk else Operation(Responder(get))
            verdict = task.judge(check_name, answer, seed, desk.judged if desk else None)
        elif desk:
            verdict = task.judge(check_name, desk.cell_source(task.first_line), seed, desk.run_file)
        else:
            verdict = task.judge(check_name, testfile.cell_source(task.first_line), seed)
    verdict.show()
    return float(verdict.earned)
