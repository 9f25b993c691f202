"""Answers as readers write them, and a study file of each test's own."""

from collections.abc import Callable
from pathlib import Path

import pytest

HEAD = "import torch\nfrom torch.autograd import Function\n"
RIGHT = """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output
"""
KEPT = RIGHT.replace("ctx.save_for_backward(x)", "ctx.x = x").replace("(x,) = ctx.saved_tensors", "x = ctx.x")
HALF = RIGHT.replace("2 * x", "x")


def defined(source: str, name: str = "Square") -> Callable:
    """What a cell defines under a name."""
    names: dict = {"__name__": "__main__"}
    exec(compile(HEAD + source, "<cell>", "exec"), names)
    return names[name]


@pytest.fixture(autouse=True)
def study_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's study is noted, and nobody's own."""
    path = tmp_path / "study.json"
    monkeypatch.setenv("GRADERS_STUDY", str(path))
    return path
