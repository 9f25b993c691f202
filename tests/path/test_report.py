"""The report on a class: planted frequencies come back, names can be left out, a page that needs nothing else."""

import csv
import io
import json
import random
import re
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from torch.autograd import Function

from graders.classroom.analysis import Handed, clusters, concerns, hand_ins, items, mistakes, overview, tomorrow
from graders.classroom.classreport import anonymised, as_csv, overviews, page, stub
from graders.inside.operation import local
from graders.judge.task import Task
from graders.judge.verdict import Verdict
from graders.sets.relu.leaky_relu import task as leaky
from graders.sets.relu.square import task as square
from tests.path.course_maker import hand_in, make_course, release

SET = "01_relu"
DUE = datetime(2026, 3, 2, 12)
CLASS = 300


class Tripled(Function):
    """Wrong in a way that no known mistake of Square is."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2.7 * g * x


def judged(task: Task, operation: object) -> tuple[Verdict, ...]:
    """The verdicts of a task's checks on an operation."""
    found: list[Verdict] = []
    for check in task.checks:
        found.append(task.judge(check.name, local(operation), before=found))
    return tuple(found)


@pytest.fixture(scope="module")
def planted() -> tuple[dict[str, dict[str, Handed]], Counter[str]]:
    """Three hundred students, each with real verdicts: most right, known mistakes in known numbers, 14 have no name."""
    right = [judged(task, next(iter(task.solutions.values()))) for task in (square, leaky)]
    plan = Counter()
    answers = []
    for mistake, count in zip(square.mistakes[:3], (57, 21, 6), strict=True):
        plan[mistake.name] = count
        answers += count * [(*judged(square, mistake.operation), *right[1])]
    answers += 14 * [(*judged(square, Tripled.apply), *right[1])]
    plan["no name"] = 14
    for mistake, count in zip(leaky.mistakes[:2], (33, 9), strict=True):
        plan[mistake.name] = count
        answers += count * [(*right[0], *judged(leaky, mistake.operation))]
    answers += (CLASS - len(answers)) * [(*right[0], *right[1])]
    random.Random(0).shuffle(answers)
    hours = [100, 30, 5, 0.5, -2]
    handed = {}
    for number, verdicts in enumerate(answers):
        student = f"student-{number:03}"
        score = sum(verdict.earned for verdict in verdicts)
        at = DUE - timedelta(hours=hours[number % 5])
        handed[student] = {SET: Handed(student, SET, score, verdicts, at, DUE)}
    return handed, plan


def of_set(handed: dict[str, dict[str, Handed]]) -> list[Handed]:
    return [row[SET] for row in handed.values() if SET in row]


# --- what is counted --------------------------------------------------------------------------------------------------


def test_planted_mistakes_come_back_in_their_numbers(planted):
    handed, plan = planted
    found = {one.name: len(one.students) for one in mistakes(of_set(handed))}
    assert found == {name: count for name, count in plan.items() if name != "no name"}


def test_answers_without_a_name_are_one_cluster(planted):
    handed, plan = planted
    (only,) = clusters(of_set(handed))
    assert only.task == "Square" and len(only.students) == plan["no name"]
    assert only.losses[0][:2] == ("gradient", "gradient")


def test_facility_is_the_share_of_the_points(planted):
    handed, _ = planted
    for item in items(of_set(handed)):
        got = [v.earned for one in of_set(handed) for v in one.verdicts if (v.task, v.check) == (item.task, item.check)]
        assert item.answers == CLASS
        assert item.facility == pytest.approx(sum(got) / (CLASS * item.points))
        assert (item.full, item.none) == (sum(g == item.points for g in got), sum(g == 0 for g in got))


def test_discrimination_is_the_correlation_with_the_rest():
    """By hand: who gets the first check gets most of the rest, who gets the last gets least of it."""

    def row(number: int, *earned: float) -> Handed:
        checks = ("one", "two", "three")
        verdicts = [Verdict("Square", c, 2.0, e, "") for c, e in zip(checks, earned, strict=True)]
        return Handed(f"{number}", SET, sum(earned), tuple(verdicts))

    found = items([row(n, *((2, 2, 0) if n < 6 else (0, 0, 2))) for n in range(12)])
    assert [item.discrimination for item in found] == [
        None,
        None,
        pytest.approx(-1.0),
    ]  # the rest of the first is 2 for all
    few = items([row(n, n % 2, 1, 1) for n in range(9)])
    assert all(item.discrimination is None for item in few)
    alike = items([row(n, 2, n % 3, n % 3) for n in range(12)])
    assert alike[0].discrimination is None and alike[1].discrimination == pytest.approx(1.0)


def test_an_answer_without_a_verdict_has_none_of_the_points():
    verdicts = (Verdict("Square", "value", 2.0, 2.0, ""), Verdict("Square", "gradient", 3.0, 3.0, ""))
    graded = [Handed("a", SET, 5.0, verdicts), Handed("b", SET, 2.0, verdicts[:1])]
    assert [item.facility for item in items(graded)] == [1.0, 0.5]


def test_hand_ins_are_told_before_the_due_date_or_by_day(planted):
    handed, _ = planted
    assert dict(hand_ins(of_set(handed))) == dict.fromkeys(
        ("more than three days before", "one to three days before", "on the last day", "in the last hour", "late"), 60
    )
    undated = [replace(one, due=None) for one in of_set(handed)]
    assert sum(count for _, count in hand_ins(undated)) == CLASS and hand_ins(undated)[0][0].startswith("2026-02-2")


def test_tomorrow_says_the_commonest_first_and_nothing_where_nothing_stands_out(planted):
    handed, plan = planted
    said = tomorrow(overview(SET, 9.0, of_set(handed)))
    name, count = plan.most_common(1)[0]
    message = next(mistake.message for mistake in square.mistakes if mistake.name == name)
    assert said.startswith(f"Begin with Square: {count} of {CLASS}") and message in said
    assert "14 answers to Square fail alike" in said
    best = [
        replace(one, verdicts=tuple(replace(v, earned=v.points, mistake="", look="") for v in one.verdicts))
        for one in of_set(handed)
    ]
    assert tomorrow(overview(SET, 9.0, best)) == ""


def test_students_to_talk_to():
    sets = ["01_a", "02_b", "03_c", "04_d"]  # the fourth is still open
    worth = dict.fromkeys(sets, 20.0)

    def row(student: str, *scores: float | None) -> dict[str, Handed]:
        pairs = zip(sets, scores, strict=False)
        return {name: Handed(student, name, score) for name, score in pairs if score is not None}

    handed = {
        "fine": row("fine", 18, 17, 19),
        "fell": row("fell", 18, 19, 9),
        "stopped": row("stopped", 18),
        "late": row("late", 18, 19),  # one set is missing: too early to say
        "never": {},
        "weak": row("weak", 6, 7, 5),
        "skipped": row("skipped", 18, None, 17),
        "ahead": row("ahead", 20, 20, 20, 20),
        "blank": row("blank", 18, 18, 0),
    }
    found = {one.student: one.why for one in concerns(sets, handed, worth)}
    assert found == {
        "fell": "had 92% of the points before, and 45% in 03_c",
        "stopped": "handed in nothing since 01_a: 2 sets are missing",
        "never": "handed in none of the 3 sets that most have handed in",
        "blank": "earned nothing in 03_c: was it handed in as it was given out?",
    }


# --- the page ---------------------------------------------------------------------------------------------------------


CODE = "class Square(Function):\n    '''By Ada.'''\n    # Ada & <b>Co</b>\n    pass"


def made(handed, **more) -> BeautifulSoup:
    return BeautifulSoup(page(handed, {SET: 9.0}, lambda *_: CODE, **more), "html.parser")


def test_the_page_says_what_was_counted(planted):
    handed, plan = planted
    text = made(handed, book="https://example.org").get_text(" ", strip=True)
    for name, count in plan.items():
        if name != "no name":
            assert re.search(rf"\b{count} {count / CLASS:.0%} ", text), name
    assert "14 answers" in text and "class Square(Function):" in text
    links = [a["href"] for a in made(handed, book="https://example.org").select("td a")]
    assert links and all(link.startswith("https://example.org/book/") for link in links if link.startswith("http"))


def test_the_page_loads_nothing_and_escapes_what_students_wrote(planted):
    handed, _ = planted
    hostile = "<script>alert(1)</script>‮ & co"
    renamed = {hostile: {SET: replace(next(iter(handed.values()))[SET], student=hostile)}} | handed
    text = page(renamed, {SET: 9.0}, lambda *_: CODE + hostile)
    soup = BeautifulSoup(text, "html.parser")
    assert not soup.find_all(["script", "img", "link", "iframe"])
    assert "default-src 'none'" in soup.find("meta", {"http-equiv": True})["content"]
    assert "‮" not in text and "\\u202e" in text
    assert soup.select_one("pre code").get_text().startswith(CODE)


def test_names_are_left_out(planted):
    handed, _ = planted
    rows, names = anonymised(handed)
    assert set(names.values()) == set(handed) and len(rows) == CLASS
    text = page(rows, {SET: 9.0}, lambda *_: CODE, anonymous=True)
    assert "student-0" not in text and "Ada" not in text and "class Square(Function):" in text
    assert [len(one.students) for one in mistakes(of_set(rows))] == [
        len(one.students) for one in mistakes(of_set(handed))
    ]


def test_the_csv_has_a_line_for_each_check(planted):
    handed, plan = planted
    rows = list(csv.DictReader(io.StringIO(as_csv(overviews(handed, {SET: 9.0})))))
    assert [(row["task"], row["check"]) for row in rows] == [
        (t.name, c.name) for t in (square, leaky) for c in t.checks
    ]
    assert {row["set"] for row in rows} == {SET}
    told = {row["commonest mistake"]: int(row["made by"]) for row in rows if row["made by"]}
    assert all(plan[name] == count for name, count in told.items()) and max(plan.values()) in told.values()


def test_a_stub_becomes_a_mistake_that_is_recognised(planted):
    """What the page offers runs once its author has written the sentence."""
    handed, _ = planted
    (only,) = clusters(of_set(handed))
    answer = (
        "class Square(Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x)\n"
        "        return x * x\n\n    @staticmethod\n    def backward(ctx, g):\n        (x,) = ctx.saved_tensors\n"
        "        return 2.7 * g * x\n"
    )
    text = stub(SET, only, answer)
    assert text.startswith("# graders/sets/relu/square.py, below the other mistakes")
    known = len(square.mistakes)
    try:
        exec(text, {"task": square, "Function": Function})
        assert [mistake.name for mistake in square.mistakes[known:]] == ["name_it"]
        assert judged(square, Tripled.apply)[1].mistake == "name_it"
    finally:
        del square.mistakes[known:]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_readable_in_a_browser(planted, chromium, tmp_path, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    handed, _ = planted
    (tmp_path / "report.html").write_text(page(handed, {SET: 9.0}, lambda *_: CODE), encoding="utf-8")
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, bypass_csp=True
    )
    try:
        tab = context.new_page()
        tab.goto((tmp_path / "report.html").as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(tab).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
    finally:
        context.close()


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def course(tmp_path_factory, quick) -> Path:
    root = make_course(tmp_path_factory.mktemp("course"))
    release(root)
    hand_in(root, "ada", double="def double(x):\n    return 2 * x", triple="def triple(x):\n    return 3 * x")
    for student in ("ben", "cy"):
        hand_in(
            root, student, double="def double(x):\n    return 2 * x", triple="def triple(x):\n    return x  # by me"
        )
    study = {"version": 1, "tasks": {"tiny.triple": {"tries": 7}}}
    (root / "submitted/ben/01_tiny/.study.json").write_text(json.dumps(study))
    (root / "submitted/cy/01_tiny/.study.json").write_text("[" * 100_000)
    done = quick(root, "graders", "grade", "tiny")
    assert "3 of 3 submissions graded" in done.stdout, done.stderr
    return root


def test_report(course, here):
    code, out, err = here(course, "report")
    assert (code, err) == (0, ""), out
    assert out.splitlines()[-1] == "report.html, report.csv: 1 set, 0 students to talk to"
    text = BeautifulSoup((course / "report.html").read_bytes(), "html.parser").get_text(" ", strip=True)
    assert "triple : 2 answers; Your result is another number; think of 3." in text and "return x  # by me" in text
    assert re.search(r"triple 1 7 7\b", text)  # one file of two can be read
    before = (course / "report.html").read_bytes()
    here(course, "report")
    assert (course / "report.html").read_bytes() == before


def test_report_anonymous(course, here):
    code, _, _ = here(course, "report", "--anonymous", "--out", "shown.html")
    text = (course / "shown.html").read_text()
    assert (
        code == 0
        and not re.search(r"\b(ada|ben|cy)\b", text)
        and "by me" not in text
        and re.search(r"student [123]", text)
    )
    assert (course / "shown.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "report.txt"), "report.txt is not a page: name a file that ends in .html"),
        (("--out", "nowhere/report.html"), "there is no folder nowhere: make it first"),
    ],
)
def test_report_refuses(course, here, arguments, message):
    code, _, err = here(course, "report", *arguments)
    assert code == 2 and message in err


def test_report_of_nothing(tmp_path, here):
    release(make_course(tmp_path))
    code, _, err = here(tmp_path, "report")
    assert code == 2 and "nothing has been handed in" in err
