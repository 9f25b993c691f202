"""The wheel, in an environment that has torch and pytest and nothing else of the course: the review runs there."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tools.checklist import ROOT

OPS = """
import torch
from graders.review import Review

x = torch.linspace(-1.7, 2.3, 6, dtype=torch.float64, requires_grad=True)
sine = Review(torch.sin, x, reference=torch.sin, elementwise=True, vmap=True)
"""


def needed(*names: str) -> set[str]:
    """Names of distributions and of all that they need here."""
    found: set[str] = set()
    todo = [*names]
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in found:
            continue
        found.add(name)
        for text in importlib.metadata.requires(name) or []:
            other = re.match(r"[\w.-]+", text)[0]
            if "extra ==" in text:
                continue
            with suppress(importlib.metadata.PackageNotFoundError):  # another system's
                importlib.metadata.distribution(other)
                todo.append(other)
    return found


def tops(name: str) -> Iterator[tuple[Path, str]]:
    """The files and folders that a distribution has in site-packages."""
    distribution = importlib.metadata.distribution(name)
    place = Path(str(distribution.locate_file("")))
    for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}:
        yield place / top, top


def test_it_runs_where_only_torch_and_pytest_are(tmp_path: Path) -> None:
    run = {"capture_output": True, "text": True, "timeout": 300, "check": False}
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    copy = tmp_path / "source"
    shutil.copytree(ROOT / "graders", copy / "graders", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    done = subprocess.run([*build, "--wheel-dir", str(tmp_path), str(copy)], **run)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env/bin/python"
    (site,) = (tmp_path / "env/lib").glob("python*/site-packages")
    for name in needed("torch", "pytest"):
        for source, top in tops(name):
            if not (site / top).exists():
                (site / top).symlink_to(source)
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    done = subprocess.run(install, **run)
    assert done.returncode == 0, done.stderr
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTEST_ADDOPTS")}
    project = {"cwd": tmp_path / "project", "env": environment}
    project["cwd"].mkdir()
    for absent in ("nbgrader", "IPython", "jupyter_book", "nbformat"):
        assert subprocess.run([python, "-c", f"import {absent}"], **run, **project).returncode == 1, absent
    Path(project["cwd"], "test_ops.py").write_text(OPS)
    done = subprocess.run([python, "-m", "graders", "review", "test_ops.py"], **run, **project)
    assert done.returncode == 0 and "0 failed; " in done.stdout, done.stdout + done.stderr
    done = subprocess.run([python, "-m", "pytest", "--gradreview", "-p", "no:cacheprovider"], **run, **project)
    assert done.returncode == 0 and re.search(r"1\d passed, \d skipped", done.stdout), done.stdout + done.stderr
