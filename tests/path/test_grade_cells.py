"""Each test cell of the course against nbgrader's own rule for points.

Five students per set, graded by the commands: the solutions; the solutions with code that warns and writes to stderr,
its descriptor too; answers that are wrong; answers that raise; nothing attempted.
"""

import json
import re
import shutil
from types import SimpleNamespace

import nbformat
import pytest
from nbgrader.utils import determine_grade, is_grade

from graders.course import Course
from graders.report import read_verdict
from tests.path.course_maker import ROOT

SETS = sorted(path.parent.name for path in (ROOT / "solutions").glob("*/*.ipynb"))
KINDS = ("right", "noisy", "wrong", "raising", "blank")

FUNCTION = """class {name}(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, *rest):
        {forward}

    @staticmethod
    def backward(ctx, upstream):
        return upstream + 0.125, None"""
NOISE = """

def _noisy(function):
    import functools, os, sys, warnings

    @functools.wraps(function)
    def wrapped(*args, **named):
        warnings.warn("a warning")
        print("to stderr", file=sys.stderr)
        os.write(2, b"to descriptor 2\\n")
        return function(*args, **named)
    return staticmethod(wrapped)


{name}.forward, {name}.backward = _noisy({name}.forward), _noisy({name}.backward)"""
NOISY_FILE = """
import os, sys, warnings
warnings.warn("a warning")
print("to stderr", file=sys.stderr)
os.write(2, b"to descriptor 2\\n")
"""


def answer(kind: str, name: str, solution: str) -> str:
    """An answer of this kind to the task whose solution is given."""
    lines = [line for line in solution.split("\n") if not re.match(r"\s*### (BEGIN|END) SOLUTION", line)]
    solution = "\n".join(lines)
    if solution.startswith("%%"):
        body = {
            "noisy": solution + NOISY_FILE,
            "wrong": lines[0] + "\ndef test_nothing():\n    pass",
            "raising": lines[0] + "\nraise RuntimeError('on import')",
        }
    else:
        body = {
            "noisy": solution + NOISE.format(name=name),
            "wrong": FUNCTION.format(name=name, forward="return x + 1"),
            "raising": FUNCTION.format(name=name, forward="raise RuntimeError('no answer')"),
        }
    return body.get(kind, solution)


@pytest.fixture(scope="module", params=SETS)
def graded(request, tmp_path_factory, run):
    """The set's five notebooks after grading, and the course."""
    assignment, slug = request.param, request.param.partition("_")[2]
    root = tmp_path_factory.mktemp(slug)
    shutil.copy(ROOT / "nbgrader_config.py", root)
    shutil.copytree(ROOT / "solutions" / assignment, root / "solutions" / assignment)
    released = run(root, "nbgrader", "generate_assignment", assignment)
    assert released.returncode == 0, released.stderr
    solved = nbformat.read(root / "solutions" / assignment / f"{slug}.ipynb", as_version=4)
    for kind in KINDS:
        notebook = nbformat.read(root / "exercises" / assignment / f"{slug}.ipynb", as_version=4)
        for cell, solution in zip(notebook.cells, solved.cells, strict=True):
            meta = cell.metadata.get("nbgrader", {})
            if meta.get("solution") and kind != "blank":
                cell.source = answer(kind, meta.grade_id, solution.source)
        path = root / "submitted" / kind / assignment / f"{slug}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)
    said = run(root, "graders", "grade", assignment)
    feedback = run(root, "nbgrader", "generate_feedback", assignment)
    assert feedback.returncode == 0, feedback.stderr
    course = Course(root)
    books = {kind: course.graded_notebook(assignment, kind, slug) for kind in KINDS}
    return SimpleNamespace(course=course, assignment=assignment, slug=slug, books=books, said=said)


def points(graded, kind: str) -> dict[str, tuple[float, float]]:
    return {c.metadata.nbgrader.grade_id: determine_grade(c) for c in graded.books[kind].cells if is_grade(c)}


@pytest.mark.parametrize("kind", ["right", "noisy"])
def test_right_answers_get_all_points(graded, kind):
    lost = {name: got for name, got in points(graded, kind).items() if got[0] != got[1]}
    assert not lost, [str(line) for line in graded.course.lost(graded.assignment, kind)]
    assert graded.course.scores()[0][kind][graded.assignment] == 20


@pytest.mark.parametrize("kind", ["raising", "blank"])
def test_no_answer_no_points(graded, kind):
    assert {name: got for name, got in points(graded, kind).items() if got[0]} == {}
    assert graded.course.scores()[0][kind][graded.assignment] == 0


def test_wrong_answers_lose_points_on_every_task(graded):
    got = points(graded, "wrong")
    for name in {name.split("_")[1] for name in got}:
        tests = {test: pair for test, pair in got.items() if test.split("_")[1] == name}
        assert sum(earned for earned, _ in tests.values()) <= sum(most for _, most in tests.values()) / 2, tests


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_test_cell_leaves_behind(graded, kind):
    """One verdict on stdout, one plain number, nothing on stderr; the gradebook has the number."""
    with graded.course.gradebook() as gradebook:
        grades = {g.name: g for g in gradebook.find_submission_notebook(graded.slug, graded.assignment, kind).grades}
        for cell in filter(is_grade, graded.books[kind].cells):
            name = cell.metadata.nbgrader.grade_id
            outputs = [(o.output_type, o.get("name")) for o in cell.outputs]
            assert outputs == [("stream", "stdout"), ("execute_result", None)], (name, cell.outputs)
            verdict, earned = read_verdict(cell.outputs[0].text), float(cell.outputs[1].data["text/plain"])
            assert (verdict.earned, f"test_{verdict.task}_{verdict.check}") == (earned, name)
            assert verdict.points == grades[name].max_score == determine_grade(cell)[1]
            assert grades[name].auto_score == determine_grade(cell)[0] == earned
            assert verdict.message


def test_stderr_outside_the_capture_would_cost_the_points(graded):
    """The rule that `grade` guards against is there: the same cell with stderr in it scores 0."""
    cell = next(filter(is_grade, graded.books["right"].cells)).copy()
    cell.outputs = [nbformat.v4.new_output("stream", name="stderr", text="a warning"), *cell.outputs]
    assert determine_grade(cell)[0] == 0


@pytest.mark.parametrize("kind", ["right", "wrong", "raising"])
def test_feedback_hides_the_tests(graded, kind):
    path = graded.course.root / f"feedback/{kind}/{graded.assignment}/{graded.slug}.html"
    html = path.read_text(encoding="utf-8")
    for secret in ("HIDDEN TESTS", "from graders", "graders/", "graders.", "lambda: ", "SOLUTION", 'grade("'):
        assert secret not in html.replace("lambda: <", ""), secret
    for cell in filter(is_grade, graded.books[kind].cells):
        verdict = read_verdict(cell.outputs[0].text)
        assert f"{verdict.task} {verdict.check}: {verdict.earned:g} of {verdict.points:g} points" in html


def test_hidden_tests_stand_in_the_source_only(graded):
    """What the test above looks for is really in the autograded notebook, which students never get."""
    text = json.dumps(graded.books["right"])
    assert "BEGIN HIDDEN TESTS" in text and "from graders" in text
    released = graded.course.root / f"exercises/{graded.assignment}/{graded.slug}.ipynb"
    assert "graders" not in released.read_text(encoding="utf-8")
