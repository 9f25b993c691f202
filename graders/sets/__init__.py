"""The exercise sets: a folder a set, in it a module a task.

A task's module holds the `Task` or `FileTask` as ``task`` and its ``PLACE`` in the set's notebook; ``chapter.py`` holds as
``CHAPTER`` those that only the set's chapter shows. The folder's ``__init__`` finds them: ``TASKS, CHAPTER = found(__name__)``.
"""

import json
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from graders.judge.task import Index, Task
from graders.judge.testfile import FileTask

Tasks = tuple[Task | FileTask, ...]


def names() -> list[str]:
    """Return the slugs of all sets."""
    return sorted(m.name for m in iter_modules(__path__))


def found(package: str) -> tuple[Tasks, Tasks]:
    """Return the tasks of a set's notebook, in its order, and those of its chapter alone."""
    inside = iter_modules(import_module(package).__path__)
    modules = [import_module(f"{package}.{m.name}") for m in inside]
    own = sorted((m for m in modules if hasattr(m, "PLACE")), key=lambda m: m.PLACE)
    for task_name, index in read_index(package).items():
        next(m.task for m in own if m.task.name == task_name).index = index
    return tuple(m.task for m in own), tuple(task for m in modules for task in getattr(m, "CHAPTER", ()))


def read_index(package: str) -> dict[str, Index]:
    """Return what ``index.json`` in a set's folder says of its tasks, by name; nothing where there is none.

    `tools.index` writes it, for sets whose mistakes take long to run.
    """
    file = Path(str(import_module(package).__file__)).with_name("index.json")
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def module(name: str) -> ModuleType:
    """Return the package of a set."""
    return import_module(f"graders.sets.{name}")


def load(name: str) -> dict[str, Task | FileTask]:
    """Return the tasks of a set by their names, those of its chapter included.

    Args:
        name: the set's slug: ``relu``.

    Raises:
        ModuleNotFoundError: no such set.
    """
    set_ = module(name)
    return {task.name: task for task in (*set_.TASKS, *set_.CHAPTER)}
