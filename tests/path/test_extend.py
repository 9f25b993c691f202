"""More time for a student: the due date, what it makes of a penalty, and who cannot have it."""

import shutil
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from nbgrader.api import Gradebook

from graders.classroom.course import Course
from graders.classroom.errors import CourseError
from graders.classroom.extending import span
from graders.classroom.gradebook import Records
from graders.classroom.lateness import LatePolicy
from tests.path.course_maker import hand_in, make_course, release

RIGHT = {"double": "def double(x):\n    return 2 * x", "triple": "def triple(x):\n    return 3 * x"}
ZERO = '\nc.LateSubmissionPlugin.penalty_method = "zero"\n'


@pytest.fixture(scope="module")
def graded(tmp_path_factory, quick) -> Path:
    root = make_course(tmp_path_factory.mktemp("course"))
    settings = (root / "nbgrader_config.py").read_text(encoding="utf-8")
    (root / "nbgrader_config.py").write_text(settings + ZERO, encoding="utf-8")
    release(root)
    for student in ("ada", "ben"):
        folder = hand_in(root, student, **RIGHT).parent
        (folder / "timestamp.txt").write_text("2026-03-03 12:00:00 UTC")
    assert quick(root, "graders", "grade", "tiny").returncode == 0
    with Gradebook(f"sqlite:///{root}/gradebook.db") as gradebook:
        gradebook.find_assignment("01_tiny").duedate = datetime(2026, 3, 1, 12)
        gradebook.db.commit()
    assert quick(root, "graders", "grade", "tiny").returncode == 0
    return root


@pytest.fixture
def course(graded, tmp_path) -> Path:
    """A course of its own for each test, graded once for all."""
    return shutil.copytree(graded, tmp_path / "course")


def scores(root: Path, here) -> dict[str, str]:
    return dict(line.split(",")[:2] for line in here(root, "scores", "--csv")[1].splitlines()[1:])


def test_an_extension_is_given_replaced_and_taken_away(course, here):
    assert scores(course, here) == {"ada": "0", "ben": "0"}
    code, out, err = here(course, "extend", "tiny", "ada", "+3d")
    said = "01_tiny: ada: due 2026-03-04 12:00 UTC now; handed in 2026-03-03 12:00 UTC, in time; 0 -> 6 points\n"
    assert (code, out, err) == (0, said, "")
    assert scores(course, here) == {"ada": "6", "ben": "0"}
    assert "2 of them earlier" in here(course, "grade", "tiny")[1]
    assert scores(course, here) == {"ada": "6", "ben": "0"}  # it holds when the class is graded
    out = here(course, "extend", "tiny", "ada", "ben", "+1d12h")[1]
    assert out.splitlines() == [
        "01_tiny: ada: due 2026-03-03 00:00 UTC now; handed in 2026-03-03 12:00 UTC, late; 6 -> 0 points",
        "01_tiny: ben: due 2026-03-03 00:00 UTC now; handed in 2026-03-03 12:00 UTC, late",
    ]
    here(course, "extend", "tiny", "ben", "2w")
    out = here(course, "extend", "tiny", "ben", "0")[1]
    assert "due 2026-03-01 12:00 UTC now" in out and "late; 6 -> 0 points" in out


def test_who_has_handed_in_nothing_may_have_one_first(course, here):
    (course / "students.csv").write_text("id,first_name\nada,Ada\nzoe,Zoe\n")
    code, out, _ = here(course, "extend", "tiny", "zoe", "+1w")
    assert (code, out) == (0, "01_tiny: zoe: due 2026-03-08 12:00 UTC now; nothing is handed in yet\n")
    assert scores(course, here)["zoe"] == ""
    with closing(Course(course)) as there, Records(there) as records:
        assert records.scores()[0]["zoe"] == {}, "more time is no hand-in"
    folder = hand_in(course, "zoe", **RIGHT).parent
    (folder / "timestamp.txt").write_text("2026-03-05 12:00:00 UTC")
    here(course, "grade", "tiny")
    assert scores(course, here) == {"ada": "0", "ben": "0", "zoe": "6"}


def test_an_extension_before_anything_is_graded_keeps_nothing_from_being_graded(tmp_path, here):
    root = make_course(tmp_path)
    release(root)
    here(root, "init", "--due", "tiny=2026-03-01T12:00")
    (root / "students.csv").write_text("id,first_name\nada,Ada\nzoe,Zoe\n")
    hand_in(root, "ada", **RIGHT)
    code, out, err = here(root, "extend", "tiny", "ada", "zoe", "+1d")
    assert (code, err) == (0, "") and "ada: due 2026-03-02 12:00 UTC now; handed in, and not graded yet" in out
    assert scores(root, here) == {"ada": "", "zoe": ""}
    code, _, err = here(root, "grade", "tiny")
    assert (code, err) == (0, "") and scores(root, here) == {"ada": "6", "zoe": ""}
    assert "ada +1d, zoe +1d" in here(root, "class")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ada", "tomorrow"), "tomorrow is not a time: +3d, +12h, +1d12h, +2w or +90m; 0 takes an extension away"),
        (("ada", "+999w"), "+999w is more than two years"),
        (("bem", "+3d"), "there is no student bem in this course; there is ben"),
        (("ada", "zoe", "+3d"), "there is no student zoe in this course"),
    ],
)
def test_what_is_refused_changes_nothing(course, here, arguments, message):
    code, _, err = here(course, "extend", "tiny", *arguments)
    assert code == 2 and message in err
    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:
        assert {row.extension for row in gradebook.assignment_submissions("01_tiny")} == {None}


def test_without_a_due_date_there_is_nothing_to_extend(course, here):
    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:
        gradebook.find_assignment("01_tiny").duedate = None
        gradebook.db.commit()
    code, _, err = here(course, "extend", "tiny", "ada", "+3d")
    assert (
        code == 2
        and "01_tiny has no due date that could be extended: set one with `python -m graders init --due 01_tiny" in err
    )


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("+3d", timedelta(days=3)),
        ("3d", timedelta(days=3)),
        ("1d12h", timedelta(hours=36)),
        ("+90m", timedelta(minutes=90)),
        ("0", timedelta()),
        ("+0", timedelta()),
    ],
)
def test_times(text, length):
    assert span(text) == length


@pytest.mark.parametrize("text", ["", "+", "d", "-3d", "3 d", "3d ", "3y", "1e3d", "٣d", "+3d\n"])
def test_what_is_no_time(text):
    with pytest.raises(CourseError, match="is not a time"):
        span(text)


HOUR, DAY = 3600, 86400
DAILY = """
c.LatePolicy.penalty_method = "daily"
c.LatePolicy.percent_a_day = 10
c.LatePolicy.minutes_of_grace = 15
c.LatePolicy.days_at_most = 3
"""


@pytest.mark.parametrize(
    ("late", "left"),
    [
        *((1, 16), (15 * 60, 16), (15 * 60 + 1, 14.4), (DAY, 14.4), (DAY + 15 * 60, 14.4)),
        *((DAY + HOUR, 12.8), (3 * DAY, 11.2), (3 * DAY + HOUR, 0)),
    ],
)
def test_a_day_that_has_begun_takes_its_part(late, left):
    policy = LatePolicy(penalty_method="daily", percent_a_day=10, minutes_of_grace=15, days_at_most=3)
    assert 16 - (policy.late_submission_penalty("ada", 16.0, late) or 0) == pytest.approx(left)


def test_points_a_day_never_take_more_than_was_earned():
    policy = LatePolicy(penalty_method="daily", points_a_day=2)
    assert policy.late_submission_penalty("ada", 16.0, 5 * HOUR) == 2
    assert policy.late_submission_penalty("ada", 3.0, 2 * DAY) == 3
    both = LatePolicy(penalty_method="daily", points_a_day=1, percent_a_day=25)
    assert both.late_submission_penalty("ada", 16.0, DAY + 1) == 10  # two days of a point and four
    assert LatePolicy().late_submission_penalty("ada", 16.0, DAY) is None
    told = LatePolicy(penalty_method="daily", points_a_day=1, minutes_of_grace=1, days_at_most=1).told()
    assert told == "1 point for each day that has begun, after 1 minute of grace, and all of it after 1 day"
    assert LatePolicy(penalty_method="zero").late_submission_penalty("ada", 16.0, 1) == 16


def test_a_policy_by_the_day_counts_when_the_class_is_graded_and_with_more_time(course, here, run):
    settings = course / "nbgrader_config.py"
    settings.write_text(settings.read_text(encoding="utf-8").replace(ZERO, DAILY), encoding="utf-8")
    assert "0 to grade" in here(course, "grade", "tiny")[1]  # nothing is executed again
    assert scores(course, here) == {"ada": "4.8", "ben": "4.8"}  # two days
    assert "4.8 -> 5.4 points" in here(course, "extend", "tiny", "ada", "+1d")[1]
    assert "ada  01_tiny  0.6 points less: handed in late." in here(course, "scores")[1]
    made = run(course, "nbgrader", "generate_feedback", "01_tiny")
    assert made.returncode == 0, made.stderr
    page = BeautifulSoup((course / "feedback/ada/01_tiny/tiny.html").read_bytes(), "html.parser")
    told = "Late submission penalty (Score: -0.6): due 2026-03-02 12:00 UTC, handed in 2026-03-03 12:00 UTC"
    assert page.select_one(".late-penalty").get_text(strip=True) == told


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('LatePolicy.penalty_method = "dayly"', "expected any of ['none', 'zero', 'daily'], not the str 'dayly'"),
        ('LateSubmissionPlugin.penalty_method = "hourly"', "not the str 'hourly'"),
        ("LatePolicy.percent_a_day = 120", "should not be greater than 100.0"),
        ("LatePolicy.percent_per_day = 5", "LatePolicy has no setting percent_per_day. Did you mean percent_a_day?"),
        ('TrustedExecute.timeout = "soon"', "expected an int, not the str 'soon'"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_before_anything_is_graded(course, here, line, said):
    with (course / "nbgrader_config.py").open("a", encoding="utf-8") as file:
        file.write(f"c.{line}\n")
    code, _, err = here(course, "grade", "tiny")
    assert code == 2 and err.startswith("graders: nbgrader_config.py: ") and said in err and err.count("\n") == 1


def test_a_class_that_is_misspelt_is_refused(course, here):
    with (course / "nbgrader_config.py").open("a", encoding="utf-8") as file:
        file.write('c.LatePolcy.penalty_method = "daily"\n')
    code, _, err = here(course, "grade", "tiny")
    assert (code, err) == (2, "graders: nbgrader_config.py: nothing is called LatePolcy. Did you mean LatePolicy?\n")


def test_the_policy_is_told_and_whose_points_it_changed(course, here):
    settings = course / "nbgrader_config.py"
    settings.write_text(settings.read_text(encoding="utf-8").replace(ZERO, DAILY), encoding="utf-8")
    out = here(course, "init", "--check")[1]
    policy = "10 percent of what was earned for each day that has begun, after 15 minutes of grace"
    assert f"ok       late hand-ins: {policy}, and all of it after 3 days\n" in out
    assert (
        "2 submissions have other points than before, by the due date and the late policy."
        in here(course, "grade", "tiny")[1]
    )
    assert "than before" not in here(course, "grade", "tiny")[1]


def test_who_is_late_is_counted_before_grading_and_students_have_names(course, here):
    (course / "students.csv").write_text("id,first_name,last_name\nada,Ada,B\nben,Ben,C\nzoe,Zoe,de Wit\n")
    (hand_in(course, "zoe", **RIGHT).parent / "timestamp.txt").write_text("2026-03-02 12:00:00 UTC")
    assert here(course, "class")[1].splitlines()[-1].split()[-4:] == ["UTC", "3", "2", "3"]
    assert "01_tiny: zoe: due" in here(course, "extend", "tiny", "Zoe de Wit", "+3d")[1]
    assert here(course, "class")[1].splitlines()[-1].split()[-5:] == ["3", "2", "2", "zoe", "+3d"]
    code, _, err = here(course, "extend", "tiny", "Zo Wit", "+3d")
    assert code == 2 and "there is no student Zo Wit" in err
