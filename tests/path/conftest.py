"""Commands in a course folder, as an instructor's shell would run them."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from graders.cli import main
from graders.engine import parents
from tests.path.course_maker import ROOT
from tests.path.lab import Lab, labs

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run() -> Run:
    """Run ``python -m`` with these arguments in a folder; the console scripts of the environment are not on PATH."""

    def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        environment.pop("GRADERS_SEED", None)
        return subprocess.run(
            [sys.executable, "-m", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )

    return command


@pytest.fixture(scope="session")
def close() -> Iterator[Callable[[], None]]:
    """What ends the warm parent: `here` leaves it to the next command, which takes seconds less to start."""
    yield parents.close
    parents.close()


@pytest.fixture(scope="session")
def quick(close) -> Run:
    """As `run`, for our own commands alone, in this process: for what a whole module starts from."""

    def command(folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        assert module == "graders"
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            code = _in_this_process(patch, folder, *arguments)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    return command


def _in_this_process(patch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    """The exit code of ``python -m graders`` with these arguments; the warm parent stays."""
    patch.chdir(folder)
    patch.setenv("PYTHONPATH", str(ROOT))
    patch.setenv("GRADERS_SEED", "0")
    patch.setattr(parents, "close", lambda: None)
    try:
        return main(arguments)
    except SystemExit as stop:
        return stop.code


@pytest.fixture
def here(monkeypatch, capsys, close) -> Callable[..., tuple[int, str, str]]:
    """Run ``python -m graders`` with these arguments in a folder, in this process; exit code, stdout, stderr."""

    def command(folder: Path, *arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = _in_this_process(monkeypatch, folder, *arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def lab(chromium, tmp_path) -> Iterator[Lab]:
    """JupyterLab in a browser, not started yet."""
    own = tmp_path / "lab"
    own.mkdir()
    yield from labs(chromium, own)
