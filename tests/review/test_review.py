"""The checklist as a command and as tests: what it prints, its exit codes, its data, and its page in the book."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch.autograd import Function

from graders.cli import main
from graders.review import Review, checklist
from graders.review.questions import PAGE, QUESTIONS
from graders.review.subject import Given, ReviewError, subjects
from tools.checklist import COPY, FILE, ROOT

GUIDE = (ROOT / "book/review.md").read_text(encoding="utf-8")
X = torch.tensor([-1.5, 0.3, 2.0], dtype=torch.float64, requires_grad=True)
SQUARE = """
import torch
from torch.autograd import Function

class Square(Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g

class Older(Function):
    @staticmethod
    def forward(ctx, x, n: int):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**n

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return ctx.n * x ** (ctx.n - 1) * g, None

def cube(x):
    return Older.apply(x, 3)

number = 3
"""


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project of its own: what a test loads from there is gone after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("ops", "leaky", "test_leaky"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    Path("ops.py").write_text(SQUARE)


def reviewed(*arguments: str) -> tuple[int, str, str]:
    """The exit code of ``python -m graders review``, and what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["review", *arguments])
    return code, out.getvalue(), err.getvalue()


# --- the list ---------------------------------------------------------------------------------------------------------


def test_each_item_has_a_question_and_the_list_is_the_page_s() -> None:
    assert list(QUESTIONS) == list(checklist.ITEMS)
    assert all(question.endswith("?") for question in QUESTIONS.values())
    assert COPY.read_bytes() == FILE.read_bytes()
    page, _, heading = PAGE.partition("#")
    headings = "".join(Path(ROOT / "book" / page.replace(".html", ".ipynb")).read_text(encoding="utf-8"))
    assert f"## {heading.replace('-', ' ').capitalize()}" in headings


def test_it_lists_the_questions() -> None:
    code, out, _ = reviewed("--list")
    assert code == 0 and len(out.splitlines()) == len(QUESTIONS)
    assert re.search(r"^gradcheck +Does backward belong to forward\?$", out, re.MULTILINE)


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_right_function_passes_and_a_wrong_one_names_the_item() -> None:
    code, out, _ = reviewed("ops:Square", "--reference", "torch.square", "--elementwise", "--keeps", "0")
    assert code == 0 and re.search(r"^0 failed; 16 passed, 6 not asked\.$", out, re.MULTILINE), out
    assert "FAILED" not in out and PAGE not in out
    Path("ops.py").write_text(SQUARE.replace("return 2 * x * g", "return 2 * x"))
    del sys.modules["ops"]
    code, out, _ = reviewed("ops:Square", "--only", "gradcheck", "runs")
    assert code == 1 and "it ignores the upstream gradient" in " ".join(out.split())
    assert out.endswith(f"{PAGE} in the book.\n")
    assert re.search(r"^1 failed \(gradcheck\); 1 passed\.$", out, re.MULTILINE)


def test_a_guess_is_told_and_a_number_is_not_guessed() -> None:
    _, out, _ = reviewed("ops.py:Square", "--only", "runs")
    assert "The case is guessed: x of shape (2, 3)" in " ".join(out.split())
    code, _, err = reviewed("ops.py:Older", "--only", "runs")
    assert code == 2 and "nobody can guess a value for its parameter n" in err and "--case" in err
    code, out, _ = reviewed("ops.py:Older", "--case", "torch.rand(3), number", "--only", "gradcheck")
    assert code == 0 and "guessed" not in out
    assert reviewed("ops.py:cube", "--only", "gradcheck")[0] == 0


def test_what_does_not_run_is_said_once() -> None:
    Path("ops.py").write_text(SQUARE.replace("return 2 * x * g", "return 2 * x * g, g"))
    code, out, _ = reviewed("ops.py:Square")
    assert code == 1 and out.count("FAILED") == 1 and "The other items are not asked." in out


def test_what_an_error_says_is_printed_as_text() -> None:
    Path("ops.py").write_text(SQUARE.replace("return 2 * x * g", "raise ValueError('\\x1b[31mred')"))
    _, out, _ = reviewed("ops.py:Square")
    assert "ValueError: \\x1b[31mred" in out and "\x1b" not in out


def test_a_case_outside_the_domain_is_named_as_such() -> None:
    Path("ops.py").write_text(SQUARE.replace("return x * x", "return x.log()").replace("2 * x * g", "g / x"))
    code, out, _ = reviewed("ops.py:Square", "--only", "gradcheck")  # the guess has negative numbers
    said = "backward -0.58824, differences nan; forward gives inf or nan: fix it, or move this input"
    assert code == 1 and re.sub(r"-0\.\d+", "-0.58824", " ".join(out.split())).count(said) == 1, out


def test_what_exits_has_failed() -> None:
    for ends in ("raise SystemExit(0)", "import sys; sys.exit()"):
        Path("ops.py").write_text(SQUARE.replace("return 2 * x * g", ends))
        code, out, _ = reviewed("ops.py:Square")
        assert code == 1 and "FAILED   runs: SystemExit" in out


def test_every_attribute_that_holds_a_tensor_is_named() -> None:
    kept = "ctx.n, ctx.x, ctx.y = n, x, [x**n]\n        return x**n"
    Path("ops.py").write_text(SQUARE.replace("ctx.n = n\n        return x**n", kept))
    _, out, _ = reviewed("ops.py:cube", "--only", "nothing on ctx")
    assert "FAILED   nothing on ctx: ctx.x, ctx.y hold tensors: use save_for_backward" in out


def test_one_that_writes_to_its_input_is_reviewed_on_a_copy() -> None:
    Path("ops.py").write_text(
        "from torch.autograd import Function\n"
        "class Double(Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        ctx.mark_dirty(x)\n        return x.mul_(2)\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return 2 * g\n"
        "copied = lambda x: Double.apply(x.clone())\n"
    )
    assert "leaf Variable" in " ".join(reviewed("ops.py:Double")[1].split())
    code, out, _ = reviewed("ops.py:copied", "--reference", "lambda x: 2 * x", "--elementwise")
    assert code == 0, out


WRONG: dict[str, tuple[Sequence[str], str]] = {
    "no name at all": ((), "name what to review"),
    "a name taken for an item": (("--only", "gradcheck", "ops:Square"), "--only takes all words after it: name what"),
    "a file taken for a dtype": (("--dtypes", "float32", "ops.py"), "--dtypes takes all words after it"),
    "a dot for a colon": (("package.inner.Square",), "to name a Function, write package.inner:Square"),
    "a file of a package": (("package/outer.py:F",), "it belongs to a package: write PACKAGE.MODULE:FUNCTION"),
    "another class": (("ops:torch.nn.ReLU",), "ops:torch.nn.ReLU is another class, and has to be a Function"),
    "no such file": (("gone.py:F",), "there is no file gone.py"),
    "no such module": (("gone:F",), "gone cannot be loaded: No module named 'gone'; to name a file"),
    "no such Function": (("ops:Cube",), "ops has no Cube"),
    "a file without a review": (("ops.py",), "ops.py has no Review; name one of its Functions: ops.py:Square"),
    "a number": (("ops:number",), "ops:number is of type int"),
    "a case that raises": (("ops:Square", "--case", "nothing"), "--case 'nothing': NameError"),
    "a case that is no expression": (("ops:Square", "--case", "x = 1"), "--case 'x = 1': SyntaxError"),
    "a case without a gradient": (("ops:Square", "--case", "3"), "give cases in float64, with requires_grad=True"),
    "no such item": (("ops:Square", "--only", "speed"), "no item is called 'speed'; `--list` prints them all"),
    "no such dtype": (("ops:Square", "--dtypes", "int8"), "--dtypes int8: there are float64, float32"),
    "a file that exits": (("ends.py:F",), "ends.py cannot be loaded: SystemExit: 0"),
    "a file that skips itself": (("skips.py",), "skips.py cannot be loaded: Skipped: not here"),
    "a case that exits": (("ops:Square", "--case", "exit(0)"), "--case 'exit(0)': SystemExit"),
    "a file that raises": (("broken.py:F",), "broken.py cannot be loaded: ZeroDivisionError"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_reviewed_is_one_line(what: str) -> None:
    Path("broken.py").write_text("1 / 0\n")
    Path("package").mkdir()
    for name in ("__init__", "inner"):
        Path(f"package/{name}.py").write_text("")
    Path("package/outer.py").write_text("from .inner import F\n")
    Path("ends.py").write_text("raise SystemExit(0)\n")
    Path("skips.py").write_text("import pytest\npytest.skip('not here', allow_module_level=True)\n")
    arguments, said = WRONG[what]
    code, out, err = reviewed(*arguments)
    assert code == 2 and err.startswith("graders: ") and err.count("\n") == 1 and said in err, err
    assert not out


def test_one_that_cannot_be_found_does_not_stop_the_others() -> None:
    code, out, err = reviewed("ops:Cube", "ops:Square", "--only", "runs")
    assert code == 2 and "passed   runs" in out and "ops has no Cube" in err


def test_as_data() -> None:
    code, out, _ = reviewed("ops:Square", "gone:F", "--json", "--only", "runs", "gradcheck", "vmap")
    data = json.loads(out)
    assert code == 2 and set(data) == {"form", "torch", "reviews", "troubles"}
    (review,) = data["reviews"]
    assert set(review) == {"target", "name", "note", "failed", "items"} and review["failed"] == []
    assert [(one["item"], one["verdict"]) for one in review["items"]] == [
        ("runs", "passed"),
        ("gradcheck", "passed"),
        ("vmap", "not asked"),
    ]
    assert review["items"][1]["question"] == QUESTIONS["gradcheck"]
    assert data["troubles"][0].startswith("gone cannot be loaded")


def test_what_the_function_prints_is_not_in_the_data() -> None:
    Path("ops.py").write_text("print('loading')\n" + SQUARE.replace("return x * x", "print('forward'); return x * x"))
    code, out, err = reviewed("ops.py:Square", "--json", "--only", "runs")
    assert code == 0 and json.loads(out)["reviews"][0]["failed"] == []
    assert "loading\nforward\n" in err


def test_the_same_command_says_the_same() -> None:
    command = ("ops.py:Square", "--case", "torch.randn(3)", "--only", "magnitudes")
    first = reviewed(*command)
    torch.rand(1)
    assert reviewed(*command) == first and "mean" in first[1]


# --- a Review ---------------------------------------------------------------------------------------------------------


class Kept(Function):
    """Right, but that it keeps x where torch does not watch it."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.x * g


def test_what_is_accepted_may_fail_and_must() -> None:
    review = Review(Kept.apply, X, accepted={"nothing on ctx": "x is never changed", "gradcheck": "no reason"})
    said = {answer.item: answer for answer in review.answers()}
    assert said["nothing on ctx"].verdict == "accepted" and "x is never changed (ctx.x" in said["nothing on ctx"].text
    assert said["gradcheck"].verdict == "failed" and "take it out of `accepted`" in said["gradcheck"].text
    assert said["changes noticed"].verdict == "failed"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Review(Kept.apply), "at least one case"),
        (lambda: Review(Kept, X), "give Kept.apply, not the class"),
        (lambda: Review(Kept.apply, X, accepted={"speed": "slow"}), "no item is called 'speed'"),
        (lambda: Review(Kept.apply, X, accepted={"vmap": " "}), "say why 'vmap' may fail"),
        (lambda: Review(Kept.apply, X, fast=True), "no promise is called fast"),
        (lambda: Review(Kept.apply, X.detach()), "with requires_grad=True in each"),
    ],
)
def test_a_review_that_cannot_be_is_refused(make, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        make()


def test_reviews_in_a_file_are_found_and_take_nothing_from_the_command_line() -> None:
    Path("reviews.py").write_text(
        "import torch\nfrom graders.review import Review\nfrom ops import Square\n"
        "x = torch.ones(2, dtype=torch.float64, requires_grad=True)\none = Review(Square.apply, x)\ntwo = one\n"
    )
    assert [subject.name for subject in subjects("reviews.py", Given())] == ["one", "two"]
    assert [subject.name for subject in subjects("reviews.py:two", Given())] == ["two"]
    with pytest.raises(ReviewError, match="cases and promises of its own"):
        subjects("reviews.py", Given(["torch.ones(1)"]))


# --- pytest -----------------------------------------------------------------------------------------------------------


def run_pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest here, as a project without this course's settings does."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}."}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def written(name: str) -> None:
    """Write a file of the guide's."""
    (text,) = re.findall(rf"```python\n# {re.escape(name)}\n(.*?)```", GUIDE, re.DOTALL)
    Path(name).write_text(text)


@pytest.fixture
def _project() -> None:
    written("leaky.py")
    written("test_leaky.py")
    Path("test_other.py").write_text("def test_other():\n    pass\n")


@pytest.mark.usefixtures("_project")
def test_each_item_is_a_test_where_it_is_asked_for() -> None:
    assert "1 passed" in run_pytest().stdout
    done = run_pytest("--gradreview", "-rsx")
    assert done.returncode == 1
    assert re.search(r"2 failed, 1[0-9] passed, [0-9]+ skipped, 1 xfailed", done.stdout), done.stdout
    assert "nothing on ctx: ctx.x holds a tensor: use save_for_backward" in done.stdout
    assert f"{QUESTIONS['nothing on ctx']} See {PAGE} in the book." in done.stdout
    assert "gradients are clipped before they get here (inf gives nan" in done.stdout
    assert "plugin.py" not in done.stdout.replace("graders/review/plugin.py:", "")  # no traceback through it


@pytest.mark.usefixtures("_project")
def test_the_answers_go_into_a_file_from_several_workers_too() -> None:
    done = run_pytest("--gradreview-json", "said.json", "-n", "2")
    data = json.loads(Path("said.json").read_text())
    (review,) = data["reviews"]
    assert done.returncode == 1 and review["name"] == "test_leaky.py::leaky"
    assert sorted(review["failed"]) == ["changes noticed", "nothing on ctx"]
    assert {one["item"] for one in review["items"]} == set(QUESTIONS)


def test_what_does_not_run_fails_once_and_skips_the_rest() -> None:
    Path("test_broken.py").write_text(
        "import torch\nfrom graders.review import Review\n"
        "x = torch.ones(2, dtype=torch.float64, requires_grad=True)\n"
        "broken = Review(lambda x: x.detach(), x)\n"
    )
    done = run_pytest("--gradreview", "-rs")
    assert f"1 failed, {len(QUESTIONS) - 1} skipped" in done.stdout
    assert "it does not run: no output requires a gradient" in done.stdout


def test_the_file_tells_of_what_did_not_get_that_far() -> None:
    Path("test_broken.py").write_text("import absent\n")
    Path("test_crash.py").write_text(
        "import os\nimport pytest\nimport torch\nfrom graders.review import Review\n"
        "def late(x):\n    pytest.fail('out of time')\n"
        "late = Review(late, torch.ones(2, dtype=torch.float64, requires_grad=True))\n"
    )
    run_pytest("--gradreview-json", "a/new/said.json", "--continue-on-collection-errors", "-k", "runs")
    data = json.loads(Path("a/new/said.json").read_text())
    assert set(data) == {"form", "torch", "reviews", "troubles"} and data["torch"] == torch.__version__
    assert data["troubles"] == ["test_broken.py: ModuleNotFoundError: No module named 'absent'"]
    (review,) = data["reviews"]
    assert review["failed"] == ["runs"] and review["items"][0]["text"].endswith("out of time")


def test_it_says_where_there_is_no_review() -> None:
    Path("test_other.py").write_text("def test_other():\n    pass\n")
    said = "gradreview: nothing was reviewed"
    assert said in run_pytest("--gradreview").stdout
    assert said in run_pytest("--gradreview-json", "said.json", "-n", "2").stdout
    assert said not in run_pytest().stdout


@pytest.mark.usefixtures("_project")
def test_it_does_not_say_so_where_there_is_one() -> None:
    assert "nothing was reviewed" not in run_pytest("--gradreview", "-k", "gradcheck", "-n", "2").stdout


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_project")
def test_the_guide_prints_what_is_printed() -> None:
    blocks = re.findall(r"```console\n\$ ([^\n]+)\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) == 2
    for typed, shown in blocks:
        command = typed.replace("python -m", f"{sys.executable} -m", 1)
        environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}.", "PYTEST_ADDOPTS": "-p no:cacheprovider"}
        done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, timeout=120)
        lines = done.stdout.splitlines()
        assert done.returncode == 1, done.stderr
        if "pytest" in typed:
            assert re.sub(r" +\[.*", "", lines[0]) == shown.strip()
        else:
            assert lines == shown.splitlines()


def test_what_the_guide_builds_is_ignored() -> None:
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"/build/", "/dist/"} <= set(lines) and "--wheel-dir dist ." in GUIDE


def test_the_guide_names_every_option_of_pytest_and_the_wheel() -> None:
    plugin = (ROOT / "graders/review/plugin.py").read_text(encoding="utf-8")
    assert all(option in GUIDE for option in re.findall(r'addoption\(\s*"(--[\w-]+)"', plugin))
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert set(re.findall(r"graders-(.+?)-py3", GUIDE)) == {version}
    pinned = re.search(r"^torch==([\d.]+)", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert set(re.findall(r"torch==([\d.]+)", GUIDE)) == {pinned}
