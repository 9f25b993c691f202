"""Write by which looks the known mistakes of a set lose its checks, so that nobody has to run them all to tell.

    python -m tools.index                   the sets that have an index.json
    python -m tools.index flash_attention   these

The judge recognises a mistake by running those that may be it. Where they take long, as in the attention tasks, the
set's ``index.json`` says which cannot be: those that lose the check by another look. A mistake that is not in the file
is run as before, so a new one is recognised before this is run again. The tests compare the file with what those in it
do.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

import graders.sets
from graders.judge.task import FRESH, Task
from graders.sets import load

SEEDS = range(21)  # those of the tests, the coach's, and the one that grading begins with
FOLDER = Path(graders.sets.__path__[0])


def looks(task: Task, seeds: Sequence[int] = SEEDS) -> dict[str, dict[str, list[str]]]:
    """Return by mistake and check the looks that find fault with it; a check that it passes has none."""
    return {
        mistake.name: {
            check.name: sorted({task.loses_by(mistake, check, seed + FRESH) for seed in seeds} - {""})
            for check in task.checks
        }
        for mistake in task.mistakes
    }


def index_of(name: str, seeds: Sequence[int] = SEEDS) -> dict[str, dict[str, dict[str, list[str]]]]:
    """Return what a set's ``index.json`` has to say."""
    own = [task for task in graders.sets.module(name).TASKS if isinstance(task, Task)]
    return {task.name: looks(task, seeds) for task in own}


def indexed() -> list[str]:
    """Return the sets that have an index."""
    return sorted(file.parent.name for file in FOLDER.glob("*/index.json"))


def _written(found: Mapping[str, Mapping[str, object]]) -> str:
    """Return the file's text: a line for each mistake."""
    lines = {t: [f"    {json.dumps(m)}: {json.dumps(checks)}" for m, checks in own.items()] for t, own in found.items()}
    tasks = [f"  {json.dumps(task)}: {{\n" + ",\n".join(own) + "\n  }" for task, own in lines.items()]
    return "{\n" + ",\n".join(tasks) + "\n}\n"


def main(given: Sequence[str] | None = None) -> int:
    """Write the files."""
    parser = argparse.ArgumentParser(prog="python -m tools.index", description=str(__doc__).split("\n\n")[0])
    parser.add_argument("sets", nargs="*", metavar="SET", help="as flash_attention; default: those with an index")
    chosen = parser.parse_args(given).sets or indexed()
    torch.set_num_threads(1)
    for name in chosen:
        if name not in graders.sets.names():
            print(f"tools.index: there is no set {name}; there are {', '.join(graders.sets.names())}", file=sys.stderr)
            return 2
        load(name)
        print(f"{name}: running its mistakes on 21 seeds, which takes ten minutes", flush=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = index_of(name)
        (FOLDER / name / "index.json").write_text(_written(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
