"""The comparison of graders compares what it says: submissions, scores, ratios; how fast they are is no test."""

import csv
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from bench import grading as bench
from bench.grading import Difference, Timed
from bench.stock_phases import clock as bench_clock
from graders.engine.timing import phase
from tests.path.course_maker import ROOT, make_course, release

RIGHT = {"double": "def double(x):\n    return 2 * x", "triple": "def triple(x):\n    return 3 * x"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with the tiny set and a sample class of three, one of them damaged on the way."""
    course = make_course(tmp_path / "project")
    release(course)
    answers = {"amara": RIGHT, "bjorn": RIGHT | {"triple": "def triple(x):\n    return x + 5"}, "jun": RIGHT}
    for student, blocks in answers.items():
        path = course / "sample" / student / "tiny.py"
        path.parent.mkdir(parents=True)
        path.write_text("".join(f"# %% {name}\n{code}\n" for name, code in blocks.items()), encoding="utf-8")
    damage = '[[damage]]\nstudent = "jun"\nset = "tiny"\nkind = "cut short"\n'
    (course / "sample/damage.toml").write_text(damage, encoding="utf-8")
    return course


def test_a_class_is_the_sample_and_copies_of_it(root: Path, tmp_path: Path) -> None:
    names = bench.class_of(root, "01_tiny", 5)
    assert names == {"amara": "amara", "bjorn": "bjorn", "amara-2": "amara", "bjorn-2": "bjorn", "amara-3": "amara"}
    assert bench.left_out(root)["jun", "01_tiny"] == "damaged: cut short"
    submitted = bench.hand_in(root, tmp_path / "class", {"01_tiny": names})
    text = {name: (submitted / name / "01_tiny/tiny.ipynb").read_text(encoding="utf-8") for name in names}
    assert text["amara"] == text["amara-2"] == text["amara-3"] != text["bjorn"] == text["bjorn-2"]
    assert "x + 5" in text["bjorn"] and sorted(path.name for path in submitted.iterdir()) == sorted(names)


def test_what_only_shows_something_is_run_where_asked(root: Path, tmp_path: Path) -> None:
    text = [
        (bench.our_course(root, tmp_path / str(visible), [], visible) / "nbgrader_config.py").read_text(
            encoding="utf-8"
        )
        for visible in (False, True)
    ]
    assert text[1] == text[0] + "\nc.TrustedExecute.visible = True\n"
    assert text[0] == (root / "nbgrader_config.py").read_text(encoding="utf-8")


def test_the_default_class_is_sixty_of_the_sample() -> None:
    classes = {name: bench.class_of(ROOT, name, 20) for name in bench.SETS}
    assert [len(names) for names in classes.values()] == [20, 20, 20]
    without = bench.left_out(ROOT)
    assert {("ivo", "01_relu"), ("jun", "01_relu"), *bench.LEFT_OUT} <= set(without)
    assert not [1 for name, names in classes.items() for student in names.values() if (student, name) in without]
    for name, names in classes.items():
        slug = name.partition("_")[2]
        handed_in = {path.parent.name for path in (ROOT / "sample").glob(f"*/{slug}.py")}
        assert set(names.values()) == {student for student in handed_in if (student, name) not in without}


def test_differences_are_by_cell(monkeypatch) -> None:
    stock = {("amara", "a"): 2.0, ("amara", "b"): 1.0, ("bjorn-2", "a"): 2.0}
    assert bench.differences("01_tiny", stock, dict(stock)) == []
    ours = {("amara", "a"): 2.0, ("amara", "b"): 0.0, ("chen", "a"): None}
    found = bench.differences("01_tiny", stock, ours)
    assert found == [
        Difference("01_tiny", "amara", "b", 1.0, 0.0),
        Difference("01_tiny", "bjorn-2", "a", 2.0, None),
    ]
    assert not any(difference.explained for difference in found)
    monkeypatch.setitem(bench.EXPLAINED, ("bjorn", "01_tiny", "a"), "stock does not look")
    assert found[1].explained and str(found[1]) == "01_tiny, bjorn-2, a: stock 2.0, ours None (stock does not look)"


def runs(assignment: str, stock: float, **ours: float) -> list[Timed]:
    """A turn of a set: stock before each of ours, `w2=4.0` is two workers; stock is slower each time."""
    found = []
    for i, (name, seconds) in enumerate(ours.items()):
        found.append(Timed(assignment, 20, 0, 0, 0.5, stock + i))
        found.append(Timed(assignment, 20, int(name[1:]), 0, 0.5, seconds, first=1.0))
    return found


def test_a_ratio_is_that_of_neighbours() -> None:
    seen = runs("a", 100, w1=20, w2=10.5, w4=9) + runs("b", 50, w1=10, w2=6, w4=5)
    assert bench.neighbours(seen, 1, "a") == (100, 20) and bench.neighbours(seen, 4, "b") == (52, 5)
    assert bench.neighbours(seen, 2) == (152, 16.5)
    assert bench.neighbours(runs("a", 100, w1=20) * 2, 1, "a") == (200, 40)  # two turns
    lines = [line.split() for line in bench.table(seen, cores=2).splitlines()]
    assert ["a", "1", "100.0", "20.0", "5.0", "1.0", "1.000"] in lines
    assert ["a", "2", "101.0", "10.5", "9.6", "1.0", "0.500", "2.00", "(100%", "of", "linear)"] in lines
    assert ["a", "4", "102.0", "9.0", "11.3", "1.0", "0.421", "2.38"] in lines  # more workers than cores: no share
    assert ["in", "all", "2", "152.0", "16.5", "9.2", "2.0", "0.382", "1.93", "(97%", "of", "linear)"] in lines
    alone = [replace(t, first=0.0) for t in seen]
    assert "linear)" not in bench.table(alone, cores=2)
    assert "in all" not in bench.table(runs("a", 100, w1=20), cores=2)


def test_seconds_of_the_cpu_are_compared_where_they_are_counted() -> None:
    seen = [replace(t, cpu=t.seconds * (t.workers + 1)) for t in runs("a", 100, w1=20, w2=10.5)]
    lines = [line.split() for line in bench.table(seen, cores=2).splitlines()]
    assert lines[2][:11] == ["a", "2", "101.0", "10.5", "9.6", "101.0", "31.5", "3.2", "1.0", "0.500", "2.00"]
    seen[0] = replace(seen[0], cpu=0.0)
    assert "CPU" not in bench.table(seen, cores=2)


def test_all_that_a_command_starts_is_counted(tmp_path: Path) -> None:
    burn = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    orphan = f"import os\nif not os.fork():\n os.setsid()\n exec({burn!r})\n"
    with bench.accounted() as account:
        if account is None:
            pytest.skip("no control group to be had")
        pipe = subprocess.PIPE  # ends when the orphan does
        subprocess.run(
            ["sh", "-c", bench.IN_GROUP, str(account), sys.executable, "-c", orphan], stdout=pipe, check=True
        )
        assert int((account / "cpuacct.usage").read_text()) > 0.5e9
    assert not account.exists()


def test_workers_are_tried_up_to_the_cores() -> None:
    assert bench.counts_up_to(1) == bench.counts_up_to(2) == bench.counts_up_to(4) == [1, 2, 4]
    assert bench.counts_up_to(6) == [1, 2, 4, 6] and bench.counts_up_to(16) == [1, 2, 4, 8, 16]


def test_phases_are_a_submission_and_the_start_a_command(tmp_path: Path) -> None:
    file = tmp_path / "phases"
    noted = [("plots", 3.0), ("start: imports", 2.0), ("plots", 1.0)]
    file.write_text("".join(json.dumps({"phase": p, "seconds": s}) + "\n" for p, s in noted), encoding="utf-8")
    stock = bench.phases(file, 4)
    assert stock == Counter({"plots": 1.0, "start: imports": 2.0})
    lines = [line.split() for line in bench.where_table("a", stock, Counter({"fork": 0.5})).splitlines()]
    assert lines[2:] == [
        ["plots", "1.000", "-"],
        ["fork", "-", "0.500"],
        ["start:", "imports", "2.000", "-"],
        ["a", "submission,", "start", "apart", "1.000", "0.500"],
    ]


@pytest.mark.parametrize("clock", [bench_clock, phase], ids=["stock", "ours"])
def test_clocks_count_no_second_twice(clock: Callable, tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "phases"
    monkeypatch.setenv("GRADERS_PROFILE", str(file))
    start = time.perf_counter()
    with clock(file, "outer") if clock is bench_clock else clock("outer"):
        for _ in range(2):
            with suppress(ValueError), clock(file, "inner") if clock is bench_clock else clock("inner"):
                time.sleep(0.05)
                raise ValueError
    whole = time.perf_counter() - start
    noted = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [n["phase"] for n in noted] == ["inner", "inner", "outer"]
    assert all(n["seconds"] >= 0.05 for n in noted[:2]), "a step that raises counts too"
    assert noted[2]["seconds"] >= 0 and sum(n["seconds"] for n in noted) <= whole


def test_no_clock_runs_unasked(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRADERS_PROFILE", raising=False)
    with phase("alone"):
        pass
    assert not list(tmp_path.iterdir())


def test_the_whole_on_a_tiny_set(root: Path, tmp_path: Path, capsys) -> None:
    folder, file = tmp_path / "work", tmp_path / "all.csv"
    options = ["--sets", "01_tiny", "--copies", "3", "--workers", "1", "--where", "1", "--folder", str(folder)]
    options += [] if shutil.which("bwrap") else ["--no-sandbox"]
    assert bench.main([*options, "--csv", str(file)], root) == 0, capsys.readouterr()
    out = capsys.readouterr().out
    assert "01_tiny: 3 submissions, those of amara, bjorn\nleft out: jun, 01_tiny (damaged: cut short)\n" in out
    assert "(check_..., plot_...) are run by stock; ours leaves them out" in out
    assert "Scores: 3 submissions, 0 cells that differ." in out
    assert "grade cells" in out and "start: interpreter and imports" in out
    rows = list(csv.DictReader(file.open(encoding="utf-8")))
    assert [row["workers"] for row in rows] == ["0", "1"] and all(float(row["seconds"]) > 0 for row in rows)
    for course in ("stock", "ours"):
        scores = bench.scores(folder / course, "01_tiny")
        assert len(scores) == 9 and scores["amara-2", "test_triple_value"] == 2.0, course
        assert scores["bjorn", "test_triple_value"] == 0.0, course


@pytest.mark.parametrize("explained", [True, False])
def test_a_difference_is_printed_and_tells(explained: bool, root: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    class Other(bench.Bench):
        """Grades nothing; with two workers one cell comes out otherwise."""

        def __init__(self, root: Path, folder: Path, classes: dict, options: list[str], figures: bool) -> None:
            self.classes, self.environment = classes, {"OMP_NUM_THREADS": "1"}

        def timed(self, assignment: str, workers: int, turn: int) -> tuple[Timed, bench.Scores]:
            return Timed(assignment, 1, workers, turn, 0.0, 1.0 + workers), {("amara", "a"): 2.0 - (workers == 2)}

    monkeypatch.setattr(bench, "Bench", Other)
    if explained:
        monkeypatch.setitem(bench.EXPLAINED, ("amara", "01_tiny", "a"), "stock does not look")
    options = ["--sets", "01_tiny", "--copies", "1", "--where", "0", "--workers", "1", "2", "4"]
    assert bench.main(options, root) == (0 if explained else 1)
    out = capsys.readouterr().out
    assert "Scores: 1 submissions, 1 cells that differ.\ndiffers: 01_tiny, amara, a: stock 2.0, ours 1.0" in out
    assert ("(stock does not look)" in out) is explained


def test_a_submission_without_a_score_ends_it(root: Path, monkeypatch) -> None:
    made = bench.Bench.__new__(bench.Bench)
    made.classes, made.options = {"01_tiny": {"amara": "amara", "bjorn": "bjorn"}}, []
    made.stock = made.ours = root
    monkeypatch.setattr(made, "seconds", lambda course, command: (1.0, 0.0))
    for found, who in (
        ({("amara", "a"): 2.0}, "bjorn"),
        ({("amara", "a"): None, ("amara", "b"): 1.0, ("bjorn", "a"): 0.0}, "amara"),
    ):
        monkeypatch.setattr(bench, "scores", lambda course, assignment, found=found: found)
        with pytest.raises(bench.BenchError, match=f"stock left {who} without a score in 01_tiny"):
            made.timed("01_tiny", 0, 0)
    monkeypatch.setattr(bench, "scores", lambda course, assignment: {("amara", "a"): 2.0, ("bjorn", "a"): 0.0})
    assert made.timed("01_tiny", 2, 0)[0].workers == 2


def test_a_command_that_fails_says_so(root: Path, tmp_path: Path) -> None:
    made = bench.Bench.__new__(bench.Bench)
    made.environment, course = bench.environment(), tmp_path / "course"
    course.mkdir()
    course.with_suffix(".fresh").touch()
    with pytest.raises(bench.BenchError, match=r"(?s)`python -m nowhere` ended with 1:.*No module named nowhere"):
        made.seconds(course, ["nowhere"])


def test_wrong_commands() -> None:
    assert bench.main(["--sets", "99_none"]) == 2
    with pytest.raises(SystemExit) as stop:
        bench.main(["--copies", "none"])
    assert stop.value.code == 2


def test_a_larger_class_is_reckoned_by_what_one_more_takes() -> None:
    stock = Timed("a", 20, 0, 0, 0.0, 80.0, cpu=80.0)
    ours = Timed("a", 20, 2, 0, 0.0, 10.0, cpu=14.5, first=5.0, first_cpu=5.0)  # half a second each
    assert bench.in_a_class([stock, ours], 2, "a", 20) == pytest.approx(80 / 14.5)
    assert bench.in_a_class([stock, ours], 2, None, 300) == pytest.approx(1200 / (5 + 299 * 0.5))
    assert bench.in_a_class([stock, replace(ours, first_cpu=0.0)], 2, "a", 300) == 0
    assert "in a class of 300, by what one more submission takes: 7.8 (a), 7.8 (in all)." in bench.table(
        [stock, ours], 2
    )
