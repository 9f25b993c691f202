"""The benchmark of the kernels runs, says what it measured, and refuses what it cannot; speed is no test."""

import importlib.util
import shutil
from pathlib import Path

import pytest
import torch

from bench import kernels as bench


def test_a_table() -> None:
    rows = {"float32 forward": {"a": 0.002, "b": 0.001}, "x": {"a": 0.5, "b": 1.0}}
    title, head, *lines = bench.table("Title", rows).splitlines()
    assert title == "Title" and head.split() == ["a", "ms", "b"]
    assert [line.split() for line in lines] == [["float32", "forward", "2.00", "2.00x"], ["x", "500.00", "0.50x"]]


def test_the_ways_take_turns_and_the_first_rounds_are_not_counted(monkeypatch) -> None:
    seen, seconds = [], iter([100.0, 100.0, 100.0, 100.0, 1.0, 4.0, 2.0, 5.0, 9.0, 6.0])
    monkeypatch.setattr(bench, "clock", lambda run: run() or next(seconds))
    runs = {name: lambda name=name: seen.append(name) for name in "ab"}
    assert bench.medians(runs, 3) == {"a": 2.0, "b": 5.0}
    assert seen == ["a", "b"] * 5


def test_without_a_gpu_it_says_so_in_one_line(monkeypatch, capsys) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stop:
        bench.main(["--gpu"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == "python -m bench.kernels --gpu: torch finds no GPU here\n"


def test_without_triton_it_says_so_in_one_line(monkeypatch, capsys) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as stop:
        bench.main(["--gpu"])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1 and "pip install triton==3.7.1" in error


@pytest.mark.parametrize(
    ("given", "missing", "said"),
    [
        (["--ways", "composed", "C++"], "ninja", "not found: ninja. Install"),
        (["--ways", "torch.compile"], "c++", "not found: a C++ compiler (Debian: apt-get install g++; macOS"),
        (["--headers"], "c++", "not found: a C++ compiler"),
    ],
)
def test_without_its_tools_it_says_so_in_one_line(given, missing, said, monkeypatch, capsys) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda tool: None if Path(tool).name == missing else which(tool))
    monkeypatch.setenv("CXX", "c++")
    with pytest.raises(SystemExit) as stop:
        bench.main(given)
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1 and said in error


def test_what_needs_no_compiler_asks_for_none(monkeypatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    assert bench.absent(["composed", "Triton"]) == []
    assert len(bench.absent(["CUDA", "C++"])) >= 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--json", "gpu.json"], "--json: for --gpu alone"),
        (["--lengths", "512"], "--lengths: for --gpu alone"),
    ],
)
def test_what_a_gpu_alone_is_asked_is_refused_elsewhere(given, said, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        bench.main(given)
    assert stop.value.code == 2 and said in capsys.readouterr().err


def test_an_unknown_way_is_named(capsys) -> None:
    with pytest.raises(SystemExit):
        bench.main(["--ways", "composed", "CUDA"])
    assert "--ways: CUDA: not among composed, torch.compile, C++" in capsys.readouterr().err


def test_the_command(capsys) -> None:
    small = ["--rows", "8", "--width", "6", "--repeats", "1", "--threads", "1", "--dtypes", "float32", "bfloat16"]
    before = torch.get_num_threads()
    assert bench.main(["--ways", "composed", "C++", *small]) == 0
    torch.set_num_threads(before)
    shown = capsys.readouterr().out
    assert "on cpu with 1 thread(s), x (8, 12)" in shown and "medians of 1\n" in shown
    lines = shown.splitlines()[1:]
    assert lines[0].split() == ["composed", "ms", "C++"]
    assert [line.split()[:2] for line in lines[1:]] == [
        [d, w] for d in ("float32", "bfloat16") for w in ("forward", "backward")
    ]


def test_a_reader_who_stops_it_sees_one_line(monkeypatch, capsys) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "page", stop)
    assert bench.main(["--ways", "composed"]) == 130
    assert capsys.readouterr().err.endswith("bench.kernels: stopped\n")
