"""Each test cell of the course against nbgrader's own rule for points.

The engine executes one notebook per set. It holds its setup and then, five times over, all answer and test cells: with
the solutions; with the solutions and code that warns and writes to stderr, its descriptor too; with answers that are
wrong; with answers that raise; with nothing attempted.
"""

import os
import re
from types import SimpleNamespace

import nbformat
import pytest
from nbgrader.utils import determine_grade, is_grade, is_solution

from graders.classroom.feedback import Feedback
from graders.engine.job import Job, Settings
from graders.engine.run import execute
from graders.engine.sandbox import SandboxError
from graders.judge.verdict import shown_by
from tests.path.course_maker import ROOT

SETS = sorted(path.parent.name for path in (ROOT / "solutions").glob("*/*.ipynb"))
KINDS = ("blank", "right", "noisy", "wrong", "raising")

FUNCTION = """class {name}(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, *rest):
        {forward}

    @staticmethod
    def backward(ctx, upstream):
        return upstream + 0.125, None"""
DEFINITION = """def {name}(*args, **keywords):
    {body}"""
NOISE = """

def _noisy(function):
    import functools, sys, warnings

    @functools.wraps(function)
    def wrapped(*args, **named):
        warnings.warn("a warning")
        print("to stderr", file=sys.stderr)
        print("to descriptor 2", file=sys.__stderr__)
        return function(*args, **named)
    return wrapped


"""
NOISE_OF_CLASS = """{name}.forward = staticmethod(_noisy({name}.forward))
{name}.backward = staticmethod(_noisy({name}.backward))"""
NOISE_OF_DEFINITION = "{name} = _noisy({name})"
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
            "raising": lines[0] + "\nraise LookupError('on import')",
        }
    elif re.search(rf"^def {name}\(", solution, re.MULTILINE):
        body = {
            "noisy": solution + NOISE + NOISE_OF_DEFINITION.format(name=name),
            "wrong": DEFINITION.format(name=name, body="return 12345.0"),
            "raising": DEFINITION.format(name=name, body="raise LookupError('no answer')"),
        }
    else:
        body = {
            "noisy": solution + NOISE + NOISE_OF_CLASS.format(name=name),
            "wrong": FUNCTION.format(name=name, forward="return x + 1"),
            "raising": FUNCTION.format(name=name, forward="raise LookupError('no answer')"),
        }
    return body.get(kind, solution)


@pytest.fixture(scope="module", params=SETS)
def graded(request, tmp_path_factory):
    """The set's test cells after execution, by the kind of answer."""
    slug = request.param.partition("_")[2]
    solved = nbformat.read(ROOT / "solutions" / request.param / f"{slug}.ipynb", as_version=4)
    released = nbformat.read(ROOT / "exercises" / request.param / f"{slug}.ipynb", as_version=4)
    first = next(i for i, cell in enumerate(solved.cells) if is_solution(cell))
    cells = [cell for cell in solved.cells[:first] if cell.cell_type == "code"]
    count = len(cells)
    for kind in KINDS:
        for cell, stub in zip(solved.cells[first:], released.cells[first:], strict=True):
            if cell.cell_type != "code" or not (is_solution(cell) or is_grade(cell)):
                continue
            new = nbformat.from_dict({**cell, "id": f"{kind}-{cell.id}"})
            if is_solution(cell):
                new.source = stub.source
                if kind != "blank":
                    new.source = answer(kind, cell.metadata.nbgrader.grade_id, cell.source)
            cells.append(new)
    job = Job(
        nbformat.writes(nbformat.v4.new_notebook(cells=cells)),
        tests=tuple((cell.metadata.nbgrader.grade_id, cell.source) for cell in solved.cells if is_grade(cell)),
        given=tuple(cell.source for cell in cells[:count]),
        answers=tuple(cell.source for cell in released.cells if is_solution(cell)),
        settings=Settings(cell_time=60, notebook_time=600),
    )
    try:
        executed = execute(job).cells[count:]
    except SandboxError as error:
        if os.environ.get("COURSE_REQUIRE_SANDBOX"):
            raise
        pytest.skip(str(error))
    books = {kind: [c for c in executed if is_grade(c) and c.id.startswith(kind)] for kind in KINDS}
    return SimpleNamespace(books=books, slug=slug, most=20 if request.param[0].isdigit() else 10)


def points(graded, kind: str) -> dict[str, tuple[float, float]]:
    return {cell.metadata.nbgrader.grade_id: determine_grade(cell) for cell in graded.books[kind]}


@pytest.mark.parametrize("kind", ["right", "noisy"])
def test_right_answers_get_all_points(graded, kind):
    said = [
        str(shown_by(cell.outputs))
        for cell in graded.books[kind]
        if determine_grade(cell)[0] != determine_grade(cell)[1]
    ]
    assert not said
    assert sum(most for _, most in points(graded, kind).values()) == graded.most


@pytest.mark.parametrize("kind", ["raising", "blank"])
def test_no_answer_no_points(graded, kind):
    assert {name: got for name, got in points(graded, kind).items() if got[0]} == {}


def test_wrong_answers_lose_points_on_every_task(graded):
    got = points(graded, "wrong")
    for task in {name.split("_")[1] for name in got}:
        tests = {test: pair for test, pair in got.items() if test.split("_")[1] == task}
        assert sum(earned for earned, _ in tests.values()) <= sum(most for _, most in tests.values()) / 2, tests


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_test_cell_leaves_behind(graded, kind):
    """One verdict, one plain number, nothing on stderr: what nbgrader's rule reads as that number."""
    for cell in graded.books[kind]:
        name = cell.metadata.nbgrader.grade_id
        outputs = [(o.output_type, o.get("name")) for o in cell.outputs]
        assert outputs == [("display_data", None), ("execute_result", None)], (name, cell.outputs)
        verdict, earned = shown_by(cell.outputs), float(cell.outputs[1].data["text/plain"])
        assert (verdict.earned, f"test_{verdict.task}_{verdict.check}") == (earned, name)
        assert determine_grade(cell) == (earned, verdict.points)
        assert verdict.message


def test_stderr_outside_the_capture_would_cost_the_points(graded):
    """The rule that `grade` guards against is there: the same cell with stderr in it scores 0."""
    cell = nbformat.from_dict(graded.books["right"][0])
    cell.outputs = [nbformat.v4.new_output("stream", name="stderr", text="a warning"), *cell.outputs]
    assert determine_grade(cell)[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_feedback_hides_the_tests(graded, kind):
    cells = [nbformat.from_dict(cell) for cell in graded.books[kind]]
    assert all("HIDDEN TESTS" in cell.source and "graders" in cell.source for cell in cells)
    Feedback().preprocess(nbformat.v4.new_notebook(cells=cells), {})
    for cell in cells:
        shown = cell.source + str(cell.outputs)
        assert not re.search(r"HIDDEN TESTS|graders|lambda:|SOLUTION|grade\(|Traceback", shown), shown
        assert " points" in cell.outputs[0].data["text/html"]
