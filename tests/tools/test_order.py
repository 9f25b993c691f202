"""How the tests are shared among workers: what leans on one another stays together."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.path.course_maker import ROOT

SPEC = importlib.util.spec_from_file_location("order", ROOT / "conftest.py")
order = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(order)


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("tests/graders/test_sets.py::test_a[relu-Square]", "tests/graders/test_sets.py::test_b[relu-Square-it]", True),
        ("tests/graders/test_sets.py::test_a[relu-Square]", "tests/graders/test_sets.py::test_a[relu-Tanh]", False),
        ("tests/path/test_sample.py::test_a[amara-relu]", "tests/path/test_sample.py::test_b[amara-ste]", True),
        ("tests/path/test_sample.py::test_a[amara]", "tests/path/test_sample.py::test_a[chen]", False),
        ("tests/tools/test_x.py::test_a[one]", "tests/tools/test_x.py::test_b[two]", True),
        ("book/01_relu.ipynb::Cell 1", "book/01_relu.ipynb::Cell 2", True),
        ("book/01_relu.ipynb::Cell 1", "book/02_sigmoid.ipynb::Cell 1", False),
    ],
)
def test_what_stays_on_one_worker(one: str, other: str, together: bool) -> None:
    assert (order.group(one) == order.group(other)) == together


def test_the_files_that_are_named_are_there() -> None:
    missing = [path for path in (*order.APART, *order.FIRST) if not (ROOT / path).exists()]
    assert not missing


def test_the_longest_come_first() -> None:
    class Item:
        def __init__(self, nodeid: str) -> None:
            self.nodeid = nodeid

    names = ["tests/tools/test_x.py::a", "book/01_relu.ipynb::Cell 1", "tests/path/test_s.py::b", "tests/graders/c"]
    items = [Item(name) for name in names]
    order.pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items] == [names[2], names[3], names[1], names[0]]


def test_each_commit_draws_a_quarter_of_the_slow_tests_and_all_have_their_turn() -> None:
    tests = [f"tests/path/test_x.py::test_{i}" for i in range(400)]
    runs = [{t for t in tests if order.drawn(t, 4, f"{commit:040x}")} for commit in range(40)]
    assert all(60 < len(run) < 140 for run in runs)
    assert set.union(*runs) == {*tests}
    assert len(runs[0] & runs[1]) < 60
    assert {t for t in tests if order.drawn(t, 4, f"{1:040x}")} == runs[1]


def test_what_shares_a_fixture_is_drawn_together() -> None:
    for commit in map(str, range(40)):
        attacks = {order.drawn(f"tests/engine/test_attacks.py::test_{t}[pages01-x]", 4, commit) for t in "ab"}
        assert len(attacks) == 1


@pytest.mark.parametrize("of", [None, "4"])
def test_what_is_not_slow_is_always_run(monkeypatch: pytest.MonkeyPatch, of: str | None) -> None:
    monkeypatch.delenv("COURSE_SLOW", raising=False)
    if of:
        monkeypatch.setenv("COURSE_SLOW", of)

    class Item:
        def __init__(self, nodeid: str) -> None:
            self.nodeid, self.marks = nodeid, set()

        def add_marker(self, mark: pytest.MarkDecorator) -> None:
            self.marks.add(mark.name)

    slow = [Item(f"tests/path/test_newcomer.py::test_x[{i}]") for i in range(40)]
    quick = [Item(f"tests/engine/test_wire.py::test_x[{i}]") for i in range(40)]
    order.pytest_collection_modifyitems([*slow, *quick])
    assert all(item.marks == set() for item in quick)
    assert all("slow" in item.marks for item in slow)
    left = sum("skip" in item.marks for item in slow)
    assert 15 < left < 40 if of else left == 0


def test_a_worker_that_dies_costs_its_test_and_nothing_hangs(tmp_path: Path) -> None:
    """xdist 3.8 hands out again what the dead worker had done, in empty orders, and then waits for ever."""
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    for i in range(20):
        body = "import os\ndef test_it():\n    " + ("os._exit(7)" if i == 12 else "pass") + "\n"
        (tmp_path / f"test_{i:02}.py").write_text(body, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert "test_12.py::test_it" in done.stdout and "crashed while running" in done.stdout
    assert "1 failed, 19 passed" in done.stdout


def test_what_is_left_out_or_asked_of_some_is_there() -> None:
    """A test that was renamed would quietly be asked of everybody again."""
    missing = []
    for name in (*order.SLOW, *order.SOME):
        path, _, test = name.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        if f"def {test.partition('[')[0]}" not in text:
            missing.append(name)
    assert not missing
