"""The comparison of devices runs where there is no GPU, sees what lies on another device, and says what it refuses."""

import json

import pytest
import torch
from torch import Tensor

from bench import devices
from graders.inside.records import Case


def test_on_the_cpu_all_is_the_same(capsys, tmp_path) -> None:
    file = tmp_path / "devices.json"
    assert devices.main(["--device", "cpu", "checkpointing", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert {"checkpointing.FusedLinearReLU", "dropout in chapter 9's OnGpus"} <= {row["task"] for row in found}
    assert all(row["said"] == "" and row["cases"] for row in found)
    assert f"{len(found)} tasks on cpu, {len(found)} the same as on the CPU" in capsys.readouterr().out


def test_a_tensor_made_on_the_cpu_is_seen_on_another_device() -> None:
    x = torch.ones(3)
    case = Case("three", (x,), requires_grad=(True,), upstream=x)
    right, wrong = torch.exp, lambda x: torch.exp(x) * torch.arange(3)
    assert isinstance(devices.numbers_of(right, case, "meta"), dict)
    assert isinstance(devices.numbers_of(wrong, case, "meta"), RuntimeError)
    said = devices.difference(devices.numbers_of(wrong, case, "cpu"), devices.numbers_of(wrong, case, "meta"), "meta")
    assert said.startswith("only meta raises RuntimeError: ")


def test_a_number_an_absent_gradient_and_a_dtype_that_differ_are_named() -> None:
    here: dict[str, Tensor | None] = {"output 0": torch.ones(2), "gradient 0": torch.ones(2)}
    assert devices.difference(here, here, "cpu") == ""
    for other, said in (
        ({"gradient 0": torch.tensor([1.0, 1.5])}, "gradient 0 is off by 0.5"),
        ({"gradient 0": None}, "gradient 0: none on cpu alone"),
        ({"output 0": torch.ones(2).double()}, "output 0: torch.float64 (2,), on the CPU torch.float32 (2,)"),
    ):
        assert devices.difference(here, here | other, "cpu") == said


def test_an_expanded_argument_stays_expanded() -> None:
    assert devices.copy(torch.ones(1).expand(4), "cpu").stride() == (0,)
    assert devices.copy(torch.ones(3, 4).mT, "cpu").stride() == (1, 4)


def test_without_the_device_it_says_so_in_one_line(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        devices.main(["--device", "nonsense"])
    assert stop.value.code == 2 and capsys.readouterr().err.count("\n") == 1


def test_an_unknown_set_is_named(capsys) -> None:
    with pytest.raises(SystemExit):
        devices.main(["--device", "cpu", "nonsense"])
    assert "there is no set nonsense" in capsys.readouterr().err


def test_a_reader_who_stops_it_sees_one_line(monkeypatch, capsys) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(devices, "found_on", stop)
    assert devices.main(["--device", "cpu"]) == 130
    assert capsys.readouterr().err.endswith("bench.devices: stopped\n")
