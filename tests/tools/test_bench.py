"""The benchmark runs, says what it measured, and tells of what failed; how fast things are is no test."""

import csv
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench import attention as bench
from tests.path.course_maker import ROOT

SETTING = bench.Setting("cpu", "float32", heads=2, width=8, block=4, threads=1)


@pytest.mark.parametrize("way", ["tiled", "ours", "SDPA"])
def test_the_ways_agree(way: str) -> None:
    def outcome(function: Callable) -> list[torch.Tensor]:
        q, k, v, upstream = bench.inputs(SETTING, 10)
        output = function(q, k, v)
        return [output, *torch.autograd.grad(output, (q, k, v), upstream)]

    torch.testing.assert_close(outcome(bench.attention(SETTING, way)), outcome(bench.plain))


@pytest.mark.parametrize("way", ["plain", "tiled", "ours", "SDPA"])
def test_the_ways_stay_on_their_device(way: str) -> None:
    elsewhere = replace(SETTING, device="meta")  # for want of a GPU: tensors without numbers
    q, k, v, upstream = bench.inputs(elsewhere, 10)
    torch.autograd.backward(bench.attention(elsewhere, way)(q, k, v), upstream)
    assert q.grad.device == k.grad.device == v.grad.device == upstream.device


def test_the_whole_length_is_what_is_measured() -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("memory is read from /proc")
    setting, n = replace(SETTING, block=64), 1024
    matrix = setting.heads * n * n * 4
    # in processes of their own: what other tests have let go of would be used again, unseen
    plain, ours = (bench.apart(setting, way, n) for way in ("plain", "ours"))
    assert plain.peak > 1.5 * matrix  # two: less what the system takes back meanwhile
    assert ours.peak < matrix / 2


def test_memory_is_that_of_what_was_held() -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("memory is read from /proc")
    before = bench.start_counting("cpu")
    torch.ones(32 << 20)  # 128 MiB, gone at once; less could be a piece of what the process has already
    assert 120 * bench.MIB < bench.held_at_most("cpu") - before < 140 * bench.MIB
    assert bench.held_at_most("cpu") - bench.start_counting("cpu") >= 120 * bench.MIB  # counted anew


def test_slopes_and_tables() -> None:
    assert bench.slope([256, 512, 1024], [1.0, 4.0, 16.0]) == pytest.approx(2)
    shown = bench.table("Title", ["a", "b"], {8: {"a": 1.25}, 16: {"a": 2.5, "b": 5}}, ".1f").splitlines()
    assert [line.split() for line in shown] == [["Title"], ["N", "a", "b"], ["8", "1.2", "-"], ["16", "2.5", "5.0"]]


def test_what_fails_is_a_line_and_the_rest_is_there(monkeypatch, capsys, tmp_path) -> None:
    def apart(setting: bench.Setting, way: str, n: int) -> bench.Measured | str:
        return "out of memory" if (way, n) == ("plain", 16) else bench.Measured(n / 1000, n * n * bench.MIB)

    monkeypatch.setattr(bench, "apart", apart)
    file = tmp_path / "all.csv"
    assert bench.main(["--lengths", "8", "16", "--repeats", "2", "--device", "cpu", "--csv", str(file)]) == 1
    out, err = capsys.readouterr()
    assert "bench.attention: N = 16, plain: out of memory" in err
    assert next(line for line in out.splitlines() if line.split()[:1] == ["16"]).split() == ["16", "-", *["16.0"] * 3]
    rows = list(csv.reader(file.open()))
    assert len(rows) == 1 + 2 * 7 and rows[1][:4] == ["8", "plain", "0.008", str(64 * bench.MIB)]
    assert dict(zip(rows[0], rows[1], strict=True))["width"] == "64"


def test_the_command() -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bench.attention", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)

    done = run("--lengths", "16", "--block", "8", "--repeats", "1", "--threads", "1", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "on cpu with 1 thread, float32" in done.stdout and "medians of 1\n" in done.stdout
    assert "Milliseconds" in done.stdout and "plain     tiled      ours      SDPA" in done.stdout
    wrong = run("--lengths", "many")
    assert wrong.returncode == 2 and wrong.stderr.endswith("'many' is not a whole number above 0\n")
