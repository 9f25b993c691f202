"""What an instructor meets over a term: changed checks, hand-given scores, due dates, the exchange, a failing disk."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_markdown_cell

from graders.classroom.course import Course
from graders.classroom.gradebook import Records
from graders.classroom.points import differing
from graders.notebook.cells import released, repair
from tests.path.course_maker import ROOT, _meta, hand_in, make_course, release, tiny_notebook
from tools.grade_cells import fill

DOUBLE, TRIPLE = "def double(x):\n    return 2 * x", "def triple(x):\n    return 3 * x"
RIGHT = {"double": DOUBLE, "triple": TRIPLE}


@pytest.fixture
def root(tmp_path) -> Path:
    """A course with its release, and nothing handed in."""
    root = make_course(tmp_path)
    release(root)
    return root


def score(root: Path, student: str = "ada") -> float | None:
    with Records(Course(root)) as records:
        return records.scores()[0][student]["01_tiny"]


# --- the exchange -----------------------------------------------------------------------------------------------------


def test_feedback_goes_back_through_the_exchange(root, run, tmp_path_factory):
    """Released, fetched, handed in, collected, graded and given back; each student finds the page by a secret."""
    exchange, home = tmp_path_factory.mktemp("exchange"), tmp_path_factory.mktemp("home")
    exchange.chmod(0o777)
    with (root / "nbgrader_config.py").open("a") as file:
        file.write(f'\nc.Exchange.root = "{exchange}"\nc.Exchange.cache = "{home}/cache"\n')
    shutil.copy(root / "nbgrader_config.py", home)
    shutil.rmtree(root / "exercises")

    def nbgrader(folder: Path, *words: str) -> None:
        done = run(folder, "nbgrader", *words)
        assert done.returncode == 0, done.stderr

    nbgrader(root, "generate_assignment", "01_tiny")
    nbgrader(root, "release_assignment", "01_tiny")
    nbgrader(home, "fetch_assignment", "01_tiny")
    nbgrader(home, "submit", "01_tiny")
    nbgrader(root, "collect", "01_tiny")
    done = run(root, "graders", "grade", "tiny", "--workers", "1")
    assert "1 of 1 submissions graded" in done.stdout, done.stderr
    nbgrader(root, "generate_feedback", "01_tiny")
    nbgrader(root, "release_feedback", "01_tiny")
    nbgrader(home, "fetch_feedback", "01_tiny")
    pages = list(home.rglob("tiny.html"))
    assert len(pages) == 1 and "double value: 0 of 2 points" in pages[0].read_text(encoding="utf-8")


# --- checks that changed ----------------------------------------------------------------------------------------------


def test_what_other_checks_judged_is_counted_and_kept(root, here, monkeypatch):
    hand_in(root, "ada", **RIGHT)
    assert here(root, "grade", "tiny")[0] == 0
    assert "other checks" not in here(root, "grade", "tiny")[1]
    line = (
        "graded 1 submission by other checks, or with another seed, than today's; `--again` shows what grading again "
    )
    line += "would change."
    assert line in here(root, "grade", "tiny", "--seed", "5")[1]
    monkeypatch.setattr("graders.classroom.version._code", lambda slug: "mended")
    assert line in here(root, "grade", "tiny")[1]
    assert "1 to grade" in here(root, "grade", "tiny", "--force")[1]
    assert "other checks" not in here(root, "grade", "tiny")[1]


def test_the_version_is_of_the_code_that_judges_this_set(tmp_path, monkeypatch):
    from graders.classroom import version

    package = tmp_path / "graders"
    shutil.copytree(ROOT / "graders", package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(version, "files", lambda name: package)

    def code() -> str:
        version._code.cache_clear()
        return version._code("relu")

    first = code()
    with (package / "sets/linear/linear.py").open("a") as file:
        file.write("# another set\n")
    with (package / "cli.py").open("a") as file:
        file.write("# judges nothing\n")
    assert code() == first
    seen = {first}
    for name in ("sets/relu/square.py", "judge/task.py", "inside/observe.py", "gradecell.py"):
        with (package / name).open("a") as file:
            file.write("# mended\n")
        seen.add(code())
    assert len(seen) == 5
    version._code.cache_clear()


def test_a_cell_of_a_release_with_other_points_accuses_nobody():
    """What students handed in says what its cells were worth when it was given out, and its checksum agrees."""
    text = (ROOT / "exercises/01_relu/relu.ipynb").read_text(encoding="utf-8")
    theirs = nbformat.reads(text, as_version=4)
    now = {
        name: replace(cell, points=cell.points + 1, shown="# another text\n") if cell.grade else cell
        for name, cell in released(json.loads(text)).items()
    }
    assert repair(theirs, now, "relu.ipynb") == []
    found = released(theirs)
    assert all(found[name].points == now[name].points and found[name].source == now[name].source for name in now)
    forged = nbformat.reads(text, as_version=4)
    cell = next(cell for cell in forged["cells"] if cell["metadata"].get("nbgrader", {}).get("grade"))
    cell["metadata"]["nbgrader"]["points"] = 20
    told = " ".join(problem.what for problem in repair(forged, released(json.loads(text)), "relu.ipynb"))
    assert "(points 20 instead of" in told
    assert released(forged) == released(json.loads(text))


def test_points_in_two_places_are_refused(root, here):
    """In the solutions' metadata, and in the check; a student would lose points that nobody can earn."""
    notebook = nbformat.read(ROOT / "solutions/01_relu/relu.ipynb", as_version=4)
    assert list(differing(notebook)) == []
    cell = next(c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade"))
    cell.metadata.nbgrader.points = 40
    (line,) = differing(notebook)
    assert cell.metadata.nbgrader.grade_id in line and "is worth 40 in solutions/, and its check" in line
    (root / "solutions/01_relu").mkdir()
    nbformat.write(notebook, root / "solutions/01_relu/relu.ipynb")
    hand_in(root, "ada", **RIGHT)
    shutil.copytree(root / "submitted/ada/01_tiny", root / "submitted/ada/01_relu")
    code, _, err = here(root, "grade", "relu")
    assert code == 2 and err.startswith(f"graders: 01_relu: {cell.metadata.nbgrader.grade_id} is worth 40")


def test_a_graded_cell_of_one_s_own_stays_in_the_notebook():
    notebook = nbformat.read(ROOT / "solutions/01_relu/relu.ipynb", as_version=4)
    own = next(cell for cell in tiny_notebook().cells if cell.id == "test-triple-value")
    notebook.cells.append(own)
    before = [cell.id for cell in notebook.cells]
    fill(notebook, "relu")
    assert sorted(cell.id for cell in notebook.cells) == sorted(before)


# --- scores given by hand ---------------------------------------------------------------------------------------------


def _set_by_hand(root: Path, cell: str, points: float) -> None:
    with sqlite3.connect(root / "gradebook.db") as database:
        query = "UPDATE grade SET manual_score = ?, needs_manual_grade = 0 WHERE cell_id = "
        database.execute(f"{query}(SELECT id FROM base_cell WHERE name = ?)", (points, cell))


def test_a_score_given_by_hand_is_named_when_it_outlives_its_file(root, here):
    hand_in(root, "ada", double=DOUBLE, triple="def triple(x):\n    return x")
    here(root, "grade", "tiny")
    _set_by_hand(root, "test_triple_value", 0.5)
    assert "triple value: 0.5 of 2. Given by hand; the checks say 0: Your result" in here(root, "scores", "--why")[1]
    hand_in(root, "ada", **RIGHT)
    code, _, err = here(root, "grade", "tiny")
    assert code == 1 and "cell test_triple_value keeps the score given by hand, 0.5 (the checks say 2)." in err
    assert score(root) == 4.5
    assert here(root, "grade", "tiny")[2] == ""
    with sqlite3.connect(root / "gradebook.db") as database:
        query = "UPDATE grade SET extra_credit = 1.5 WHERE cell_id = (SELECT id FROM base_cell WHERE name = ?)"
        database.execute(query, ("test_double_type",))
    hand_in(root, "ada", **RIGHT | {"double": DOUBLE + "  # again"})
    err = here(root, "grade", "tiny")[2]
    assert "cell test_double_type keeps 1.5 points of extra credit. It was given for an earlier file" in err


def test_cells_graded_by_hand_wait_for_a_score(root, here):
    question = new_markdown_cell("Why?", metadata=_meta("why", grade=True, solution=True, points=3))
    question.metadata.nbgrader["cell_type"] = "markdown"
    for path in (root / "solutions/01_tiny/tiny.ipynb", root / "exercises/01_tiny/tiny.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        notebook.cells.append(question)
        nbformat.write(notebook, path)
    hand_in(root, "ada", **RIGHT, why="Because.")
    assert here(root, "grade", "tiny")[2] == ""
    assert "1 of them earlier" in here(root, "grade", "tiny")[1]
    _, out, err = here(root, "scores", "--why")
    assert "01_tiny: 1 submission with cells to be graded by hand: open the formgrader." in out and not err
    assert "ada  01_tiny  why: 0 of 3. Waits to be graded by hand." in out
    _set_by_hand(root, "why", 2)
    out = here(root, "scores", "--why")[1]
    assert "formgrader" not in out and "why: 2 of 3. Graded by hand." in out and score(root) == 8


# --- time -------------------------------------------------------------------------------------------------------------

ZERO = '\nc.LateSubmissionPlugin.penalty_method = "zero"\n'


def _due(root: Path, time: str) -> None:
    with sqlite3.connect(root / "gradebook.db") as database:
        database.execute("UPDATE assignment SET duedate = ?", (f"{time}.000000",))


def test_a_due_date_counts_from_the_next_run_on_and_nothing_is_executed_for_it(root, here):
    hand_in(root, "ada", **RIGHT).with_name("timestamp.txt").write_text("2026-03-02 10:00:00 UTC")
    with (root / "nbgrader_config.py").open("a") as file:
        file.write(ZERO)
    assert here(root, "grade", "tiny")[0] == 0
    assert score(root) == 6
    _due(root, "2026-03-01 10:00:00")
    assert "0 to grade" in here(root, "grade", "tiny")[1]
    assert score(root) == 0
    out = here(root, "scores")[1]
    assert "ada  01_tiny  6 points less: handed in late." in out
    for days, points in ((2, 6), (0, 0)):
        with Course(root).gradebook() as gradebook:
            gradebook.grant_extension("01_tiny", "ada", days=days)
        here(root, "grade", "tiny")
        assert score(root) == points and ("late" in here(root, "scores")[1]) == (not points)
    time = root / "submitted/ada/01_tiny/timestamp.txt"
    time.write_text("2026-02-28 10:00:00 UTC")  # put right by the instructor
    assert "0 to grade" in here(root, "grade", "tiny")[1]
    assert score(root) == 6
    assert (root / "autograded/ada/01_tiny/timestamp.txt").read_text() == time.read_text()


def test_a_time_that_has_not_come_yet_has_its_line(root, here):
    time = hand_in(root, "ada", **RIGHT).with_name("timestamp.txt")
    time.write_text("2099-01-01 00:00:00 UTC")
    code, _, err = here(root, "grade", "tiny")
    assert code == 1 and "timestamp.txt: says 2099-01-01 00:00 UTC, which has not come yet." in err
    time.write_text(f"{datetime.now(UTC) + timedelta(hours=14):%Y-%m-%d %H:%M:%S} UTC")  # another time zone's clock
    assert here(root, "grade", "tiny")[0] == 0


# --- machines, disks, several commands --------------------------------------------------------------------------------


def test_scores_are_the_gradebook_s_wherever_it_was_graded(root, here):
    hand_in(root, "ada", double=DOUBLE, triple="")
    here(root, "grade", "tiny")
    shutil.rmtree(root / "autograded")
    _, out, err = here(root, "scores", "--why")
    assert score(root) == 4 and not err
    assert "ada  01_tiny  4; the reasons are where it was graded, in autograded/ada/01_tiny/" in out
    assert "ada,4,4" in here(root, "scores", "--csv")[1]


def test_a_read_only_gradebook_stops_the_run(root, here):
    for student in ("ada", "ben", "eve"):
        hand_in(root, student, **RIGHT)
    assert here(root, "grade", "tiny", "ada")[0] == 0
    code, _, err = _read_only(root)
    assert (code, len(err.splitlines())) == (2, 1), err
    assert err.startswith("graders: the gradebook cannot be written (attempt to write a readonly database): what was")
    assert here(root, "grade", "tiny")[0] == 0


def _read_only(root: Path) -> tuple[int, str, str]:
    """Grade with SQLite told that nothing may be written, as it is on a disk that is read-only or full."""
    code = (
        "import sys\nfrom sqlalchemy import event\nfrom sqlalchemy.engine import Engine\n"
        "import graders.classroom.gradebook as gradebook\nsave = gradebook.Records._save\n"
        "def first(self, *rest):\n    self._gradebook.db.execute(gradebook.text('PRAGMA query_only = 1'))\n"
        "    return save(self, *rest)\n"
        "from sqlalchemy import text\ngradebook.text = text\ngradebook.Records._save = first\n"
        "from graders.cli import main\nsys.exit(main(['grade', 'tiny', '--workers', '1']))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRADERS_SEED": "0"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_a_folder_that_cannot_be_written_stops_the_run(root, here):
    for student in ("ada", "ben"):
        hand_in(root, student, **RIGHT)
    (root / "autograded").symlink_to("/sys/kernel")  # where nobody makes a folder
    code, _, err = here(root, "grade", "tiny")
    assert (code, len(err.splitlines())) == (2, 1) and "cannot be written" in err, err
    (root / "autograded").unlink()
    assert here(root, "grade", "tiny")[0] == 0


def test_a_gradebook_is_there_whole_or_not_at_all(root, monkeypatch):
    """Killed while it is made, or made by two commands at a time."""
    course = Course(root)
    made: list[Path] = []

    class Killed(BaseException):
        pass

    import graders.classroom.course as module

    real = module.Gradebook

    def half(url: str, name: str) -> object:
        if "/.gradebook-" in url:
            made.append(Path(url.removeprefix("sqlite:///")))
            real(url, name).close()
            raise Killed
        return real(url, name)

    monkeypatch.setattr(module, "Gradebook", half)
    with pytest.raises(Killed):
        course.register("01_tiny")
    assert made and not (root / "gradebook.db").exists() and not list(root.glob(".gradebook-*"))
    monkeypatch.undo()
    course.register("01_tiny")
    assert Course(root)


def test_two_commands_start_two_sets_in_a_fresh_course(root):
    shutil.copytree(root / "solutions/01_tiny", root / "solutions/02_small")
    (root / "solutions/02_small/tiny.ipynb").rename(root / "solutions/02_small/small.ipynb")
    path = hand_in(root, "ada", **RIGHT)
    (root / "submitted/ada/02_small").mkdir()
    shutil.copy(path, root / "submitted/ada/02_small/small.ipynb")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRADERS_SEED": "0"}
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "graders", "grade", name, "--workers", "1"],
            cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for name in ("tiny", "small")
    ]  # fmt: skip
    ends = [(run.communicate(timeout=120), run.returncode) for run in runs]
    assert [code for _, code in ends] == [0, 0], ends


def test_an_unusable_check_of_points_says_so():
    cell = {"metadata": {"nbgrader": {"grade": True, "grade_id": "test_X_y"}}, "source": ['grade("relu", "X", "y")']}
    (line,) = differing({"cells": [cell]})
    assert line == "test_X_y asks for a check that graders/sets/ does not have: relu, X, y"


def test_release_refuses_points_in_two_places():
    from tools.release import gate

    notebook = nbformat.read(ROOT / "solutions/01_relu/relu.ipynb", as_version=4)
    released = nbformat.read(ROOT / "exercises/01_relu/relu.ipynb", as_version=4)
    assert not [line for line in gate(notebook, released) if "is worth" in line]
    cell = next(c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade"))
    cell.metadata.nbgrader.points = 7
    assert [line for line in gate(notebook, released) if "is worth 7 in solutions/" in line]


def test_errors_in_an_answer_say_what_they_cost(root, here):
    hand_in(root, "ada", double=f"{DOUBLE}\n1 / 0", triple=TRIPLE)
    _, _, err = here(root, "grade", "tiny")
    assert "cell double raises ZeroDivisionError (division by zero). What it defined before that is graded." in err
    assert score(root) == 6


def test_the_settings_find_the_graders_where_they_are_not_installed(tmp_path):
    """A hub's server starts elsewhere, where nbgrader alone is installed: it would grade as nbgrader does."""
    program = f"""
import sys
from importlib.util import find_spec
sys.path[:] = [entry for entry in sys.path if entry not in ("", {str(ROOT)!r})]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
assert find_spec("graders") is None
from traitlets.config import PyFileConfigLoader
settings = PyFileConfigLoader("nbgrader_config.py", path={str(ROOT)!r}).load_config()
print(settings.Autograde.autograde_preprocessors[0].__module__)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "graders.classroom.nbgrader_steps\n", done.stderr
