"""ruff's two judgements and the two lists of requirements."""

import re
import subprocess
import sys

import pytest

from tools.notebooks import ROOT


def ruff(*arguments, folder=ROOT):
    return subprocess.run(
        [sys.executable, "-m", "ruff", *arguments, "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "command", [("check", "--output-format=concise"), ("format", "--check")], ids=["check", "format"]
)
def test_ruff_has_nothing_to_say(command):
    done = ruff(*command, ".")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("command", "text"), [(("check",), "import os\n"), (("format", "--check"), "x = { 1 }\n")], ids=["check", "format"]
)
def test_ruff_is_seen_to_refuse(command, text, tmp_path):
    (tmp_path / "planted.py").write_text(text)
    assert ruff(*command, "--config", str(ROOT / "pyproject.toml"), ".", folder=tmp_path).returncode == 1


def pins(name):
    """Package names, lower case with dashes, and their pinned versions; every line of the file is a pin."""
    found = {}
    for line in (ROOT / name).read_text().splitlines():
        line = line.partition("#")[0].strip()
        if not line or line.startswith(("-r ", "-c ")):
            continue
        match = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?==([\w.]+)( ; .+)?", line)
        assert match, f"{name}: {line!r} is not a pin"
        found[re.sub(r"[-_.]+", "-", match[1]).lower()] = match[2]
    return found


def test_requirements_are_pinned_as_in_the_constraints():
    constraints = pins("constraints.txt")
    for name in ("requirements.txt", "requirements-dev.txt"):
        for package, version in pins(name).items():
            assert constraints.get(package) == version, f"{name}: {package}"
    assert constraints["torch"] == "2.13.0"
    assert not [package for package in constraints if package.startswith(("nvidia-", "cuda-", "triton"))]
