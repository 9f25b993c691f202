"""A set's whole way by mouse: the instructor in the formgrader, a student in JupyterLab, the exchange between them."""

import getpass
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.path.course_maker import ROOT, make_course
from tests.path.lab import PATIENCE, Lab, labs

STUDENT = getpass.getuser()  # whom the exchange takes a hand-in from
COMMENT = "Near: it is three times as much."


@pytest.fixture
def course(tmp_path, monkeypatch) -> Path:
    """The instructor's folder; the student's is beside it, and so is the exchange."""
    root, home, exchange = make_course(tmp_path / "course"), tmp_path / "home", tmp_path / "exchange"
    home.mkdir()
    exchange.mkdir(mode=0o777)
    exchange.chmod(0o777)
    with (root / "nbgrader_config.py").open("a") as file:
        file.write(f'\nc.Exchange.root = "{exchange}"\nc.Exchange.cache = "{tmp_path}/cache"\n')
    shutil.copy(root / "nbgrader_config.py", home)
    for folder in (root, home):
        (folder / "graders").symlink_to(ROOT / "graders")
    return root


@pytest.fixture
def instructor(chromium, course, tmp_path) -> Iterator[Lab]:
    yield from started(chromium, tmp_path / "instructor", course)


@pytest.fixture
def student(chromium, course, tmp_path) -> Iterator[Lab]:
    yield from started(chromium, tmp_path / "student", tmp_path / "home")


def started(chromium, own: Path, folder: Path) -> Iterator[Lab]:
    own.mkdir()
    for lab in labs(chromium, own):
        lab.start(sys.executable, folder)
        yield lab


def press(page: Page, row: Locator, what: str) -> str:
    """Press a button in a row of the formgrader; the text of the dialog that tells how it went, which is closed."""
    row.locator(f"td.{what} a").click()
    dialog = page.locator(".modal-content", has=page.locator(".modal-title", has_text=re.compile("Success|Error")))
    expect(dialog).to_be_visible(timeout=PATIENCE * 1000)
    text = dialog.inner_text()
    dialog.get_by_role("button", name="OK").click()
    expect(dialog).not_to_be_visible()
    return text


def managed(lab: Lab) -> Locator:
    """The row of the set among the formgrader's assignments."""
    lab.page.goto(f"{lab.address}/formgrader/manage_assignments")
    return lab.page.locator("table tbody tr", has_text="01_tiny")


def assignments(lab: Lab) -> Page:
    """Open the list of assignments in JupyterLab."""
    lab.page.goto(f"{lab.address}/lab?reset")
    lab.page.locator(".lm-MenuBar-itemLabel", has_text="Nbgrader").click()
    lab.page.locator(".lm-Menu-itemLabel", has_text="Assignment List").click()
    return lab.page


def test_from_assigning_to_the_feedback(course, instructor, student):
    page, row = instructor.page, managed(instructor)
    assert "Successfully created the student version" in press(page, row, "assign")
    assert "Successfully released '01_tiny'" in press(page, row, "release")

    theirs = assignments(student)
    theirs.locator("#released_assignments_list").get_by_role("button", name="Fetch").click()
    expect(theirs.locator("#fetched_assignments_list").get_by_role("button", name="Submit")).to_be_visible()
    student.open("01_tiny/tiny.ipynb")
    student.write(student.cell("def double"), "def double(x):\n    return 2 * x")
    student.write(student.cell("def triple"), "def triple(x):\n    return x")
    student.save()
    theirs.get_by_text("Validate", exact=True).first.click()
    assert "Success! Your notebook passes all the tests." in student.dialog()  # the visible ones
    assignments(student).locator("#fetched_assignments_list").get_by_role("button", name="Submit").click()
    fetch = theirs.locator("#submitted_assignments_list").get_by_role("button", name="Fetch Feedback")
    expect(fetch).to_be_visible()

    assert "Successfully collected submissions of '01_tiny'" in press(page, managed(instructor), "collect")
    page.goto(f"{instructor.address}/formgrader/manage_submissions/01_tiny")
    row = page.locator("table tbody tr", has_text=STUDENT)
    assert f"Successfully autograded '01_tiny' for student '{STUDENT}'" in press(page, row, "autograde")
    expect(row.locator("td.score")).to_have_text("4 / 6")

    row.locator("td.student-id a, td.student-name a").first.click()
    page.locator("table tbody tr", has_text="tiny").get_by_role("link").first.click()
    score = page.locator("input.score").nth(2)
    expect(score).to_have_attribute("placeholder", "0")
    score.fill("1.5")
    score.press("Tab")
    comment = page.locator("textarea.comment").last
    comment.fill(COMMENT)
    comment.press("Tab")
    expect(page.locator(".glyphicon-ok.save-icon:visible").first).to_be_visible()

    page.goto(f"{instructor.address}/formgrader/manage_submissions/01_tiny")
    expect(row.locator("td.score")).to_have_text("5.5 / 6")
    assert "Successfully generated feedback" in press(page, row, "generate-feedback")
    assert "Successfully released feedback" in press(page, row, "release-feedback")

    assignments(student)
    fetch.click()
    expect(theirs.get_by_text("(view feedback)")).to_be_visible()
    (feedback,) = (course.parent / "home/01_tiny/feedback").rglob("tiny.html")
    text = feedback.read_text(encoding="utf-8")
    assert COMMENT in text and "triple value: 0 of 2 points" in text and "5.5" in text
