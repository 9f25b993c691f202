"""nbgrader's formgrader on a graded course, in a browser that reaches nothing but it: scores, verdicts, their code."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from types import SimpleNamespace
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from graders.judge.verdict import PASTE
from tests.path.course_maker import CODE, ROOT, edit, hand_in, make_course, release

RIGHT = {"double": "def double(x):\n    return 2 * x", "triple": "def triple(x):\n    return 3 * x"}
TEXT = "My $x^2$ <script>document.title = 'taken'</script> <img src=x onerror=\"document.title = 'taken'\">"
PATIENCE = 120.0  # seconds for the server to answer


@pytest.fixture(scope="module")
def server(tmp_path_factory, run):
    """The formgrader of a course that is graded, and has pages of feedback; its address, and ben's submission."""
    root = make_course(tmp_path_factory.mktemp("course"))
    release(root)
    hand_in(root, "ada", **RIGHT)
    cell = {"cell_type": "markdown", "id": "text", "metadata": {}, "source": TEXT}
    edit(
        hand_in(root, "ben", **RIGHT | {"triple": "def triple(x):\n    return x"}),
        lambda data: data["cells"].append(cell),
    )
    for command in (("graders", "grade", "tiny"), ("nbgrader", "generate_feedback", "01_tiny")):
        done = run(root, *command)
        assert done.returncode == 0, done.stdout + done.stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    extensions = {"nbgrader.server_extensions.formgrader": True}
    settings = {
        "ServerApp": {"jpserver_extensions": extensions, "ip": "127.0.0.1", "port": port, "port_retries": 0}
        | {"open_browser": False, "allow_root": True},
        "IdentityProvider": {"token": ""},
    }
    own = tmp_path_factory.mktemp("settings")
    (own / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    folders = {f"JUPYTER_{name}": str(own / name.lower()) for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")}
    command = [sys.executable, "-m", "jupyter_server", f"--config={own / 'settings.json'}"]
    with (own / "said").open("w") as said:
        running = subprocess.Popen(
            [*command, f"--ServerApp.root_dir={root}"],
            cwd=root,
            env={**os.environ, **folders, "PYTHONPATH": str(ROOT)},
            stdout=said,
            stderr=said,
        )
    try:
        address, end = f"http://127.0.0.1:{port}", time.monotonic() + PATIENCE
        while not _answers(f"{address}/formgrader/"):
            text = (own / "said").read_text()[-2000:]
            assert running.poll() is None and time.monotonic() < end, text
            time.sleep(0.5)
        yield SimpleNamespace(address=address, ben=_submission(root, "ben"))
    finally:
        running.terminate()
        running.wait(30)


def _answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=20) as answer:
            return answer.status == 200
    except (URLError, TimeoutError, ConnectionError):
        return False


def _submission(root, student: str) -> str:
    """The number under which the formgrader shows a student's notebook."""
    query = (
        "SELECT submitted_notebook.id FROM submitted_notebook JOIN submitted_assignment "
        "ON submitted_notebook.assignment_id = submitted_assignment.id WHERE submitted_assignment.student_id = ?"
    )
    with sqlite3.connect(root / "gradebook.db") as database:
        ((found,),) = database.execute(query, [student]).fetchall()
    return found


@pytest.fixture
def page(chromium, server):
    """A page that reaches the server alone."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    own = urlsplit(server.address).netloc
    context.route(
        "**/*", lambda route: route.continue_() if urlsplit(route.request.url).netloc == own else route.abort()
    )
    yield context.new_page()
    context.close()


def test_the_gradebook_has_the_scores(server, page):
    page.goto(f"{server.address}/formgrader/gradebook/01_tiny/tiny")
    page.wait_for_selector("table tbody tr:nth-child(2)")
    rows = page.locator("table tbody tr").all_inner_texts()
    assert sorted(row.split("\t")[2] for row in rows) == ["4 / 6", "6 / 6"], rows


def test_the_grading_page_has_scores_and_verdicts(server, page):
    page.goto(f"{server.address}/formgrader/submissions/{server.ben}/")
    page.wait_for_function("[...document.querySelectorAll('input.score')].every(i => i.placeholder || i.value)")
    scores = page.locator("input.score").evaluate_all("nodes => nodes.map(n => Number(n.value || n.placeholder))")
    assert scores == [2, 2, 0]
    shown = page.locator("div.output pre").all_inner_texts()
    verdict = next(text for text in shown if text.startswith("triple value: 0 of 2 points"))
    assert "Your result is another number" in verdict
    assert verdict.rstrip().endswith(f"{PASTE}\n\n{CODE.format(task='triple')}")
    assert page.title() != "taken" and page.locator("img[onerror]").count() == 0


def test_the_feedback_page_opens_from_the_same_server(server, page):
    address = f"{server.address}/files/feedback/ben/01_tiny/tiny.html"
    answer = page.goto(address, referer=f"{server.address}/formgrader/")  # as by a link: the server asks for it
    assert answer.status == 200
    lost = page.locator(".alert-danger")
    assert lost.all_inner_texts() == ["triple value: 0 of 2 points\nYour result is another number; think of 3."]
    assert page.locator(".alert ~ pre").inner_text() == CODE.format(task="triple")
    assert page.locator("math").count() == 1
