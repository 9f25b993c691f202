"""Points stand in two places, in a grade cell's metadata and in the set's checks: they have to agree."""

import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

GRADE = re.compile(r'^grade\("(\w+)", "(\w+)", "(\w+)"', re.MULTILINE)  # as tools/grade_cells.py writes it


def worth(notebook: Mapping[str, Any]) -> float:
    """Return the points of a set's notebook, by its grade cells."""
    metas = [cell["metadata"].get("nbgrader") or {} for cell in notebook["cells"]]
    return float(sum(meta.get("points", 0) for meta in metas if meta.get("grade")))


def differing(notebook: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line on each grade cell whose points are not those of its check.

    Args:
        notebook: a set's, with its solutions.
    """
    for cell in notebook["cells"]:
        meta = cell["metadata"].get("nbgrader") or {}
        call = GRADE.search("".join(cell["source"])) if meta.get("grade") else None
        if call is None:
            continue
        slug, name, check = call.groups()
        try:
            tasks = importlib.import_module("graders.sets").load(slug)
            points = {check.name: check.points for check in tasks[name].checks}[check]
        except (ImportError, KeyError):
            yield f"{meta['grade_id']} asks for a check that graders/sets/ does not have: {slug}, {name}, {check}"
            continue
        if meta.get("points") != points:
            yield (
                f"{meta['grade_id']} is worth {meta.get('points', 0):g} in solutions/, and its check {points:g} in "
                f"graders/sets/{slug}/: points are set there, `make notebooks exercises` writes them into the notebook"
            )
