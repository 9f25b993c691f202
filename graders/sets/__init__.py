"""One module a set: ``TASKS`` are the tasks of its notebook, ``CHAPTER`` those that only its chapter shows."""

from importlib import import_module
from types import ModuleType

from graders.judge.task import Task
from graders.judge.testfile import FileTask


def module(name: str) -> ModuleType:
    """The module of a set."""
    return import_module(f"graders.sets.{name}")


def load(name: str) -> dict[str, Task | FileTask]:
    """The tasks of a set by their names, those of its chapter included.

    Args:
        name: the set's slug: ``relu``.

    Raises:
        ModuleNotFoundError: no such set.
    """
    found = module(name)
    return {task.name: task for task in (*found.TASKS, *found.CHAPTER)}
