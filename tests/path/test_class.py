"""A class of odd submissions, graded once by the commands that instructors.md documents."""

import copy
import csv
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup

from graders.classroom.course import Course, CourseError
from graders.classroom.gradebook import Records
from tests.path.course_maker import ROOT, edit, hand_in, make_course, release

DOUBLE, TRIPLE = "def double(x):\n    return 2 * x", "def triple(x):\n    return 3 * x"
RIGHT = {"double": DOUBLE, "triple": TRIPLE}
SCRIPTS = """
from IPython.display import HTML, Javascript, display
display(HTML("<script>alert('output')</script><b onclick=alert('handler')>bold</b>"), Javascript("alert('js')"))
"""


def _deleted(data: dict) -> None:
    """The answer in a new cell at the end of its task; the answer cell and what follows it gone."""
    gone = ("see_double", "test_double_value", "double")
    cells = data["cells"]
    data["cells"] = [c for c in cells if c["metadata"].get("nbgrader", {}).get("grade_id") not in gone]
    new = {"cell_type": "code", "metadata": {}, "source": DOUBLE, "id": "mine", "outputs": [], "execution_count": None}
    data["cells"].insert(1, new)


def _altered(data: dict) -> None:
    """A test cell twice and turned into text, points changed, a student's own text with a script."""
    cells = {c["metadata"].get("nbgrader", {}).get("grade_id"): c for c in data["cells"]}
    data["cells"].insert(1, copy.deepcopy(cells["test_double_type"]))
    cells["test_double_value"]["cell_type"] = "markdown"
    del cells["test_double_value"]["outputs"], cells["test_double_value"]["execution_count"]
    cells["test_triple_value"]["metadata"]["nbgrader"]["points"] = 40
    text = "**my** text <script>alert('text')</script> <img src=x onerror=alert('image')>"
    data["cells"].append({"cell_type": "markdown", "metadata": {}, "source": text, "id": "mine"})


def _own(data: dict) -> None:
    """A cell of the student's own with a syntax error."""
    new = {"cell_type": "code", "metadata": {}, "source": "x = (", "id": "mine", "outputs": [], "execution_count": None}
    data["cells"].insert(1, new)


def _hand_in_class(root: Path) -> None:
    hand_in(root, "right", **RIGHT)
    hand_in(root, "wrong", double=DOUBLE, triple="def triple(x):\n    return x * x * x")
    hand_in(root, "blank")
    hand_in(root, "raises", double="def double(x):\n    return 2 * x + undefined", triple=TRIPLE + SCRIPTS)
    path = hand_in(root, "cut", **RIGHT)
    path.write_text(path.read_text()[:900])
    edit(hand_in(root, "julia", **RIGHT), lambda data: data["metadata"].update(language_info={"name": "julia"}))
    path = hand_in(root, "misnamed", **RIGHT)
    path.rename(path.with_name("tiny (1).ipynb"))
    edit(hand_in(root, "deleted", **RIGHT), _deleted)
    edit(hand_in(root, "altered", **RIGHT), _altered)
    edit(hand_in(root, "own", **RIGHT), _own)
    hand_in(root, "syntax", double="def double(x)\n    return 2 * x", triple=TRIPLE)
    hand_in(root, "endless", double=DOUBLE, triple="while True:\n    pass")
    hand_in(root, "flood", double=DOUBLE + "\nprint('x' * 50_000_000)", triple=TRIPLE)
    hand_in(root, "renamed", double="def Double(x):\n    return 2 * x", triple=TRIPLE)
    hand_in(root, "dies", double=DOUBLE, triple="import os\nos._exit(3)")
    path = hand_in(root, "link", **RIGHT)
    path.rename(root / "elsewhere.ipynb")
    path.symlink_to(root / "elsewhere.ipynb")
    path = hand_in(root, "surplus", double=DOUBLE + "\nimport colorsys\ncolorsys.rgb_to_hsv", triple=TRIPLE)
    path.with_name("colorsys.py").write_text("shadowed = True")


@pytest.fixture(scope="module")
def course(tmp_path_factory, run):
    """The course, and what the commands said."""
    root = make_course(tmp_path_factory.mktemp("course"))
    released = run(root, "nbgrader", "generate_assignment", "01_tiny")
    _hand_in_class(root)
    first = run(root, "graders", "grade", "tiny", "--timeout", "4")
    feedback = run(root, "nbgrader", "generate_feedback", "01_tiny")
    export = run(root, "nbgrader", "export")
    return SimpleNamespace(
        root=root, released=released, first=first, feedback=feedback, export=export,
        scores={name: row["01_tiny"] for name, row in Records(Course(root)).scores()[0].items()},
    )  # fmt: skip


def lines(course, student: str) -> list[str]:
    return [line for line in course.first.stderr.splitlines() if line.startswith(f"{student}: ")]


def page(course, student: str) -> str:
    return (course.root / f"feedback/{student}/01_tiny/tiny.html").read_text(encoding="utf-8")


def test_release_has_no_student_level_and_needs_no_path(course):
    assert course.released.returncode == 0, course.released.stderr
    assert (course.root / "exercises/01_tiny/tiny.ipynb").is_file()
    with sqlite3.connect(course.root / "gradebook.db") as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchone()


@pytest.mark.parametrize(
    ("student", "score"),
    {
        "right": 6, "wrong": 4, "blank": 0, "raises": 2, "deleted": 6, "altered": 6, "syntax": 2, "endless": 4,
        "flood": 6, "own": 6, "renamed": 2, "dies": 4, "surplus": 6, "cut": None, "julia": None,
        "misnamed": None, "link": None,
    }.items(),
)  # fmt: skip
def test_scores(course, student, score):
    assert course.scores[student] == score, (course.first.stdout, course.first.stderr)


@pytest.mark.parametrize(
    ("student", "said"),
    [
        ("right", []),
        ("wrong", []),
        ("blank", []),
        ("raises", []),
        ("cut", ["is not JSON"]),
        (
            "julia",
            [
                "julia: tiny.ipynb: has a kernel for Julia, and only Python is graded. In JupyterLab, choose Kernel, "
                "Change Kernel, Python 3 (ipykernel); save it and hand it in again."
            ],
        ),
        (
            "misnamed",
            [
                "is missing; there is 'tiny (1).ipynb' instead. Rename it, or let `python -m graders doctor submitted/"
                "misnamed/01_tiny` do so, and grade again."
            ],
        ),
        ("deleted", ["test_double_value was deleted", "see_double was deleted", "answer cell double was deleted"]),
        (
            "altered",
            ["test_double_value was turned into", "test_double_type occurs more than once", "test_triple_value were"],
        ),
        ("syntax", ["cell double has a syntax error (expected ':', line 1). Nothing in it ran."]),
        ("own", ["cell 2 has a syntax error (incomplete input, line 1). Nothing in it ran; an answer that needs it"]),
        ("endless", ["cell triple ran longer than 4 s"]),
        ("flood", ["cell double wrote more than"]),
        ("renamed", ["nothing is called double; there is 'Double'"]),
        ("dies", ["the kernel died in cell triple", "cell triple uses os._exit (line 2). No exercise needs it"]),
        ("link", ["is a symbolic link"]),
        ("surplus", ["colorsys.py: is not part of the assignment"]),
    ],
)
def test_one_line_for_each_fault(course, student, said):
    found = lines(course, student)
    assert len(found) == len(said), found
    for part in said:
        assert sum(part in line for line in found) == 1, (part, found)


def test_nothing_else_on_stderr(course):
    assert all(": " in line and "Traceback" not in line for line in course.first.stderr.splitlines())
    assert len(course.first.stderr.splitlines()) == sum(len(lines(course, name)) for name in course.scores)


def test_exit_code_and_summary(course):
    assert course.first.returncode == 1
    lines = course.first.stdout.splitlines()
    table = lines.index("Look at these first:")
    assert "13 of 17 submissions graded" in lines[table - 1]
    assert [line.split()[:2] for line in lines[table + 1 :]] == [
        ["dies", "suspicious"], ["link", "suspicious"], ["cut", "not"], ["julia", "not"], ["misnamed", "not"],
        ["endless", "stopped"], ["altered", "restored"], ["deleted", "restored"],
    ]  # fmt: skip
    assert "17 of 17, " in course.first.stdout


def _progress(out: str) -> list[str]:
    """The lines before the summary and the table."""
    lines = out.splitlines()
    return lines[: lines.index("Look at these first:") - 1]


def test_running_again_grades_nothing_and_says_the_same(course, here):
    code, out, err = here(course.root, "grade", "01_tiny", "--timeout", "4")
    assert (code, sorted(err.splitlines())) == (1, sorted(course.first.stderr.splitlines()))  # who is done first
    assert "13 of them earlier" in out
    assert [line.partition(": ")[2].split(",")[0] for line in _progress(out)] == [
        "17 submissions",
        *(f"{sorted(course.scores).index(name) + 1} of 17" for name in ("cut", "julia", "link", "misnamed")),
    ]  # fmt: skip


def test_a_flood_of_output_is_not_stored(course):
    assert (course.root / "autograded/flood/01_tiny/tiny.ipynb").stat().st_size < 1_100_000


def test_surplus_files_go_no_further(course):
    found = {path.name for step in ("autograded", "feedback") for path in (course.root / step).rglob("*.*")}
    assert found == {"tiny.ipynb", "tiny.html"}


@pytest.mark.parametrize("student", ["right", "wrong", "raises", "altered", "dies", "endless"])
def test_feedback_shows_the_verdict_and_no_test(course, student):
    assert course.feedback.returncode == 0, course.feedback.stderr
    html = page(course, student)
    for secret in ("BEGIN HIDDEN", "END HIDDEN", "from graders", "graders/", "judge_value", "GRADERS_SEED"):
        assert secret not in html, secret
    assert "# double: value, on numbers" in html or "double: value, on numbers" in html


def test_feedback_says_points_and_message(course):
    assert "triple value: 0 of 2 points" in page(course, "wrong")
    assert "think of 3." in page(course, "wrong")
    assert "alert-success" in page(course, "right")
    assert 'class="alert alert-danger"' not in page(course, "right")
    assert "KernelDied" in page(course, "dies")


@pytest.mark.parametrize("student", ["raises", "altered"])
def test_feedback_runs_no_script_of_a_student(course, student):
    html = BeautifulSoup(page(course, student), "html.parser")
    assert ("my text" in html.get_text()) == (student == "altered")
    assert not [script for script in html.find_all("script") if "alert" in script.get_text()]
    assert not [tag for tag in html.find_all() for name in tag.attrs if name.startswith("on")]


def test_export(course):
    assert course.export.returncode == 0, course.export.stderr
    rows = {row["student_id"]: row for row in csv.DictReader((course.root / "grades.csv").open())}
    assert float(rows["wrong"]["score"]) == 4
    assert float(rows["right"]["max_score"]) == 6


def test_scores_command(course, here):
    code, out, err = here(course.root, "scores", "--why")
    assert (code, err) == (0, "")
    assert "wrong  01_tiny  triple value: 0 of 2. Your result is another number; think of 3." in out
    assert "cut  01_tiny  not graded" in out
    for cause in ("double value: 0 of 2. Your code raised NameError: name 'double' is not defined. Cell double has a "
                  "syntax error (expected ':', line 1).",
                  "triple value: 0 of 2. Your code raised NameError: name 'triple' is not defined. Cell triple ran "
                  "longer than 4 s and was stopped."):  # fmt: skip
        assert cause in out
    table = list(csv.reader(here(course.root, "scores", "--csv")[1].splitlines()))
    assert table[0] == ["student", "01_tiny", "total"]
    assert ["wrong", "4", "4"] in table
    assert ["cut", "", "0"] in table


def test_a_mended_notebook_is_graded_on_the_next_run(course, here):
    root = course.root
    (root / "submitted/misnamed/01_tiny/tiny (1).ipynb").rename(root / "submitted/misnamed/01_tiny/tiny.ipynb")
    hand_in(root, "wrong", **RIGHT)  # handed in again
    code, out, err = here(root, "grade", "tiny", "misnamed", "wrong", "right")
    assert (code, err) == (0, "")
    assert "1 of them earlier" in out
    rows = Records(Course(root)).scores()[0]
    assert rows["misnamed"]["01_tiny"] == rows["wrong"]["01_tiny"] == 6


def test_the_seed_reaches_the_hidden_tests(course, here):
    hand_in(course.root, "fixed", double="def double(x):\n    return 6", triple=TRIPLE)
    here(course.root, "grade", "tiny", "fixed")
    assert Records(Course(course.root)).scores()[0]["fixed"]["01_tiny"] == 6
    here(course.root, "grade", "tiny", "fixed", "--seed", "1", "--force")
    assert Records(Course(course.root)).scores()[0]["fixed"]["01_tiny"] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["grade", "nope"], "there is no set 'nope'; there are: 01_tiny"),
        (["grade", "tiny/", "zoe"], "nothing was handed in for 01_tiny by zoe; it belongs in submitted/zoe/01_tiny/"),
        (["grade", "tiny", "--timeout", "0"], "'0' is not a whole number of seconds"),
        (["grade"], "required: SET"),
        (["collect", "tiny", "nowhere"], "there is no nowhere"),
        (["frobnicate"], "invalid choice"),
    ],
)
def test_usage_errors(course, here, arguments, said):
    code, _, err = here(course.root, *arguments)
    assert code == 2
    assert said in err.splitlines()[-1]


def test_not_a_course(tmp_path):
    with pytest.raises(CourseError, match="no nbgrader_config"):
        Course(tmp_path)


def test_a_half_made_gradebook_is_refused(tmp_path):
    root = make_course(tmp_path)
    with sqlite3.connect(root / "gradebook.db") as database:
        database.execute("CREATE TABLE assignment (id TEXT)")
    with pytest.raises(CourseError, match="is incomplete"):
        Course(root)
    (root / "gradebook.db").write_bytes(b"not a database, by far" * 10)
    with pytest.raises(CourseError, match="cannot be read"):
        Course(root)


KILLED_WHILE_IT_WROTE = """
import os
import sqlite3

database = sqlite3.connect("gradebook.db")
database.execute("PRAGMA cache_size = 1")  # what is written leaves the memory before it is committed
database.execute("CREATE TABLE half (n TEXT)")
database.executemany("INSERT INTO half VALUES (?)", [["n" * 4000]] * 200)
os._exit(1)
"""


def test_what_a_killed_command_left_half_written_is_rolled_back(tmp_path):
    root = make_course(tmp_path)
    Course(root).gradebook().close()
    subprocess.run([sys.executable, "-c", KILLED_WHILE_IT_WROTE], cwd=root, check=False)
    assert (root / "gradebook.db-journal").stat().st_size > 0
    with Course(root).gradebook() as gradebook:
        assert gradebook.students == []
    assert not (root / "gradebook.db-journal").exists()
    with sqlite3.connect(root / "gradebook.db") as database:
        assert database.execute("SELECT count(*) FROM half").fetchall() == [(0,)]


def test_an_interruption_keeps_what_is_done(tmp_path, here):
    root = make_course(tmp_path)
    release(root)
    hand_in(root, "ada", **RIGHT)
    hand_in(root, "ben", double=DOUBLE, triple="import time\ntime.sleep(60)\n" + TRIPLE)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "graders", "grade", "tiny", "--timeout", "90"]
    with subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    ) as grading:  # fmt: skip
        recorded = root / "autograded/ada/01_tiny/tiny.ipynb"
        deadline = time.monotonic() + 80
        while not recorded.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1)
        grading.send_signal(signal.SIGINT)
        _, said = grading.communicate(timeout=50)
    assert grading.returncode == 130
    assert said.strip() == "graders: interrupted; what was graded is kept; run the same command to continue"
    assert Records(Course(root)).scores()[0] == {"ada": {"01_tiny": 6}, "ben": {"01_tiny": None}}
    hand_in(root, "ben", **RIGHT)
    code, out, err = here(root, "grade", "tiny")
    assert (code, err) == (0, "")
    assert "1 of them earlier" in out
    assert Records(Course(root)).scores()[0]["ben"]["01_tiny"] == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["grade", "tiny"], "what was graded is kept; run the same command to continue"),
        (["grade", "tiny", "--force"], "what was graded is kept; run it without --force to continue with what has "
                                       "no score yet"),
        (["sample"], "run the same command to start over"),
        (["scores"], "run the same command to start over"),
    ],
)  # fmt: skip
def test_a_stopped_command_says_what_goes_on(tmp_path, here, monkeypatch, arguments, said):
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("graders.classroom.course.Course", stopped)
    assert here(tmp_path, *arguments) == (130, "", f"\ngraders: interrupted; {said}\n")


@pytest.mark.parametrize("then", ["raise", "pass", "raise ImportError('cannot be loaded') from None"])
def test_an_interruption_while_modules_load_is_one_line(tmp_path, then):
    root = make_course(tmp_path / "course")
    text = f"import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt:\n    {then}\n"
    (tmp_path / "dateutil.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "graders", "grade", "tiny"], cwd=root, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ngraders: interrupted before it started\n")


def test_misplaced_submissions_are_named_and_the_rest_is_graded(tmp_path, here):
    root = make_course(tmp_path)
    release(root)
    path = hand_in(root, "ada", **RIGHT)
    for place in ("amara/tiny", "kim", "01_tiny/lou"):
        (root / "submitted" / place).mkdir(parents=True)
        shutil.copy(path, root / "submitted" / place)
    code, out, err = here(root, "grade", "tiny")
    assert code == 1
    assert err.splitlines() == [
        "lou: 01_tiny/lou: has the set and student folders swapped. Move it to submitted/lou/01_tiny/.",
        "amara: tiny: is not a set. Rename it to 01_tiny.",
        "kim: tiny.ipynb: is not in the folder of a set. Move it into submitted/kim/01_tiny/.",
    ]
    assert out.startswith("01_tiny: 1 submission, 1 to grade\n")
    assert "1 of 1 submissions graded" in out and "3 faults above" in out
    assert Records(Course(root)).scores()[0]["ada"]["01_tiny"] == 6
    assert here(root, "grade", "tiny", "ada")[0] == 0
    code, out, err = here(root, "grade", "tiny", "kim")
    assert (code, out) == (2, "")
    assert err.splitlines()[0].startswith("kim: tiny.ipynb: is not in the folder of a set.")
    shutil.rmtree(root / "submitted/ada")
    code, out, err = here(root, "grade", "tiny")
    assert (code, len(err.splitlines())) == (2, 4)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{")])
def test_the_score_of_an_earlier_file_stays_and_the_line_says_so(tmp_path, here, damage):
    root = make_course(tmp_path)
    release(root)
    path = hand_in(root, "ada", **RIGHT)
    assert here(root, "grade", "tiny")[0] == 0
    damage(path)
    hand_in(root, "ben").write_text("{")
    code, _, err = here(root, "grade", "tiny")
    assert code == 1
    ada, ben = err.splitlines()
    assert ada.startswith("ada: tiny.ipynb: is ")
    assert ada.endswith(" Until then the score of the file graded earlier stands: 6.")
    assert ben.endswith("Ask for a new one.")
    assert {name: row["01_tiny"] for name, row in Records(Course(root)).scores()[0].items()} == {"ada": 6, "ben": None}


def test_another_time_of_the_same_file_reaches_the_gradebook(tmp_path, here):
    """Nothing is executed for it."""
    root = make_course(tmp_path)
    release(root)
    stamp = hand_in(root, "ada", **RIGHT).with_name("timestamp.txt")
    for when, graded in (
        ("2026-03-01 10:00:00 UTC", "1 to grade"),
        ("2026-03-01 10:00:00 UTC", "0 to grade"),
        ("2026-03-02 10:00:00 UTC", "0 to grade"),
    ):
        stamp.write_text(when)
        assert graded in here(root, "grade", "tiny")[1]
        with Course(root).gradebook() as gradebook:
            assert f"{gradebook.find_submission('01_tiny', 'ada').timestamp} UTC" == when


def test_a_course_without_sets_names_the_folder(tmp_path, here):
    root = make_course(tmp_path)
    shutil.rmtree(root / "solutions")
    code, _, err = here(root, "grade", "tiny")
    assert code == 2
    assert f"there is no set in {root}/solutions/ (SET/NAME.ipynb): restore that folder from the course" in err


def test_the_help_names_all_exit_codes(tmp_path, here):
    code, out, _ = here(tmp_path, "grade", "--help")
    assert code == 0 and "130 interrupted by Ctrl-C" in " ".join(out.split())


def test_collect_folders_and_archives(tmp_path, here):
    root = make_course(tmp_path / "course")
    release(root)
    drop = tmp_path / "drop"
    for student in ("ada", "ben.k", "gil"):
        target = drop / student / "tiny.ipynb"
        target.parent.mkdir(parents=True)
        shutil.move(hand_in(root, "x", **RIGHT), target)
    edit(drop / "gil/tiny.ipynb", lambda data: data["cells"].pop())  # another than in gil.tar.gz
    (drop / "ada/notes.txt").write_text("hello")
    (drop / "eve").mkdir()
    (drop / "eve/tiny.ipynb").symlink_to("/etc/passwd")
    shutil.copy(drop / "ada/tiny.ipynb", drop / "dora_tiny.ipynb")
    zips = tmp_path / "zips"
    zips.mkdir()
    (tmp_path / "pack/01_tiny").mkdir(parents=True)
    shutil.copy(drop / "ada/tiny.ipynb", tmp_path / "pack/01_tiny/tiny.ipynb")
    shutil.make_archive(str(zips / "carl"), "zip", tmp_path / "pack")
    shutil.make_archive(str(zips / "gil"), "gztar", tmp_path / "pack")
    (zips / "hal.zip").write_bytes(b"PK broken")
    shutil.rmtree(root / "submitted")
    code, out, err = here(root, "collect", "tiny", str(drop), str(zips))
    assert code == 1
    assert out.strip() == "01_tiny: 5 collected into submitted/ (ada, ben.k, carl, dora, gil)"
    told = err.splitlines()
    for part in ("ada/notes.txt: left out", "eve/tiny.ipynb: left out, it is a symbolic link", "hal.zip: left out",
                 "gil's tiny.ipynb too"):  # fmt: skip
        assert sum(part in line for line in told) == 1, (part, told)
    assert len(told) == 4, told
    handed = sorted(path.relative_to(root / "submitted").as_posix() for path in (root / "submitted").rglob("*.ipynb"))
    assert handed == [f"{student}/01_tiny/tiny.ipynb" for student in ("ada", "ben.k", "carl", "dora", "gil")]
    assert json.loads((root / "submitted/carl/01_tiny/tiny.ipynb").read_text())["cells"]
