"""How make picks a Python, and the one line it prints where there is none."""

import os
import shutil
import subprocess

import pytest

from tools.notebooks import ROOT


def fake(folder, name, version, venv=True):
    """A program that answers the two questions of find_python.sh as a Python would."""
    path = folder / name
    answer = "exit 0" if venv else "exit 1"
    path.write_text(f'#!/bin/sh\ncase "$2" in *version*) echo {version};; *) {answer};; esac\n')
    path.chmod(0o755)


def find(folder, *candidates):
    """Run the script where nothing but `folder` is on the path."""
    script = ROOT / "tools/find_python.sh"
    environment = {**os.environ, "PATH": str(folder)}
    return subprocess.run(
        ["/bin/sh", script, *candidates], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("present", "chosen"),
    [
        ({"python3": "3.11"}, "python3"),
        ({"python3": "3.14", "python3.12": "3.12"}, "python3.12"),
        ({"python3.13": "", "python3.11": "3.11"}, "python3.11"),  # a shim of pyenv that answers nothing
        ({"python3.11": "3.11", "python3.13": "3.13"}, "python3.13"),
        ({"python": "3.12"}, "python"),
    ],
)
def test_the_newest_that_fits_is_taken(present, chosen, tmp_path):
    for name, version in present.items():
        fake(tmp_path, name, version)
    done = find(tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / chosen)), done.stderr


def test_one_without_venv_gives_way_to_one_with(tmp_path):
    fake(tmp_path, "python3.13", "3.13", venv=False)
    fake(tmp_path, "python3.11", "3.11")
    assert find(tmp_path).stdout.strip().endswith("python3.11")


@pytest.mark.parametrize(
    ("present", "says"),
    [
        ({}, "found no Python 3.11, 3.12 or 3.13."),
        ({"python3": ("3.10", True)}, "found no Python 3.11, 3.12 or 3.13 (python3 is 3.10)."),
        ({"python3": ("3.14", True)}, "(python3 is 3.14)."),
        ({"python3": ("3.11", False)}, "apt-get install python3.11-venv"),
    ],
)
def test_none_that_fits_is_one_line_with_the_remedy(present, says, tmp_path):
    for name, (version, venv) in present.items():
        fake(tmp_path, name, version, venv)
    done = find(tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    assert says in done.stderr and "make PYTHON=" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_named_python_is_taken_or_refused(tmp_path):
    fake(tmp_path, "python3.13", "3.13")
    fake(tmp_path, "mine", "3.12")
    assert find(tmp_path, "mine").stdout.strip().endswith("mine")
    assert find(tmp_path, "gone").returncode == 1


def test_a_linked_environment_is_not_installed_into(tmp_path):
    for name in ("Makefile", "requirements.txt", "requirements-dev.txt", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".venv").symlink_to(tmp_path / "elsewhere")
    done = subprocess.run(["make", "venv"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and done.stderr.startswith(".venv is a link: ")
    assert list((tmp_path / "elsewhere").iterdir()) == []
