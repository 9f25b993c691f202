"""Which module may import which: the contracts of pyproject.toml hold, and each notices an import that breaks it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.notebooks import ROOT

PLANTED = {  # a module of a copy, what is imported in it, and the line that says so
    "graders/inside/wire.py": ("graders.judge.wording", "graders.inside is not allowed to import graders.judge"),
    "graders/judge/wording.py": ("graders.sets", "graders.judge is not allowed to import graders.sets"),
    "graders/sets/__init__.py": ("graders.engine.job", "graders.sets is not allowed to import graders.engine"),
    "graders/engine/job.py": ("graders.notebook", "graders.engine is not allowed to import graders.notebook"),
    "graders/engine/timing.py": ("graders.sets", "graders.engine is not allowed to import graders.sets"),
    "graders/engine/outcome.py": ("graders.classroom", "graders.engine is not allowed to import graders.classroom"),
    "graders/notebook/__init__.py": ("nbgrader.api", "graders.notebook -> nbgrader"),
    "graders/notebook/own.py": ("graders.inside.channel", "graders.notebook.own -> graders.inside.channel"),
    "graders/classroom/__init__.py": ("tools.cards", "graders is not allowed to import tools"),
    "graders/inside/__init__.py": ("tests.engine", "graders is not allowed to import tests"),
    "tools/cards.py": ("tests.engine", "tools is not allowed to import tests"),
    "graders/corridor.py": ("json", "corridor"),  # a room without a floor
}


def lint(root: Path) -> str:
    """What import-linter says of a tree, its lines unwrapped; "" where all contracts are kept."""
    program = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache", "--no-logo"]
    environment = {"PYTHONPATH": str(root), "COLUMNS": "200", "PATH": ""}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    return re.sub(r"\s+", " ", done.stdout) if done.returncode else ""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """What is said of a copy with all of these imports planted."""
    root = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", root)
    for folder in ("graders", "tools"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (imported, _) in PLANTED.items():
        with (root / name).open("a", encoding="utf-8") as file:
            file.write(f"\nimport {imported}\n")
    return lint(root)


def test_the_contracts_hold():
    assert lint(ROOT) == ""


@pytest.mark.parametrize("name", PLANTED)
def test_an_import_that_breaks_a_contract_is_named(report, name):
    assert PLANTED[name][1] in report
