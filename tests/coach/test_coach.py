"""`coach(Square)`: what it says, of which answers, and what it leaves alone."""

import _thread
import functools
import html
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient

import graders
from graders import coach, solutions
from graders.coach import display, find, links, page, session
from graders.coach.session import FAILS, HOLDS, WAITS, Step
from graders.coach.trying import CURED, NEXT, PLAIN, next_step
from graders.judge.looks import NO_RETURN
from graders.judge.task import Task
from graders.judge.verdict import Verdict
from graders.sets import load, names
from tests.coach.conftest import HALF, HEAD, KEPT, RIGHT, defined

ROOT = Path(__file__).resolve().parents[2]


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    coach(*arguments)
    return capsys.readouterr().out


def judged(source: str, task: str = "Square") -> list[Step]:
    return list(session.steps(find.find(task), defined(source, task)))


# --- what it says -----------------------------------------------------------------------------------------------------


def test_a_right_answer_hears_that_all_holds(capsys) -> None:
    out = said(capsys, defined(RIGHT))
    assert out.count("\nholds ") == 4 and "All 4 checks hold." in out
    assert "coach.solutions(Square) shows three right ways" in out and "Not judged here: grading also" in out


def test_a_mistake_is_named_and_what_holds_is_said_too(capsys) -> None:
    out = said(capsys, defined(KEPT))
    assert "You keep x as an attribute of ctx" in out and "Use ctx.save_for_backward." in out
    assert "Value, gradient and second order hold; what is left is contract." in out
    assert "Try: " in out and "Not judged here" not in out


def test_a_check_that_is_worth_nothing_can_fail(capsys) -> None:
    """The tasks that a chapter alone shows give no points."""
    wrong = "class FlashSkeleton:\n    apply = staticmethod(lambda q, k, v, block: 2 * q)"
    out = said(capsys, defined(wrong, "FlashSkeleton"))
    assert "\nholds " not in out and "not yet" in out


def test_the_failing_case_runs_below_the_answer() -> None:
    step = next(step for step in judged(HALF) if step.state == FAILS)
    source = f"{HEAD}{HALF}\n{step.verdict.code}"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=True)
    expected = re.search(r"# expected: \[(-?\d+\.\d+)", step.verdict.code).group(1)
    assert float(done.stdout.strip("[]\n").split(",")[0]) == pytest.approx(float(expected) / 2)


def test_under_another_name_the_failing_case_runs_as_well() -> None:
    mine = defined(HALF.replace("Square", "Mine"), "Mine")
    step = next(step for step in session.steps(find.find("Mine", "Square"), mine) if step.state == FAILS)
    assert step.verdict.code.startswith("Square = Mine\n")


def test_one_mistake_is_said_once(capsys) -> None:
    steps = judged(HALF)
    assert [step.state for step in steps] == [HOLDS, FAILS, WAITS, WAITS]
    assert [step.after for step in steps] == ["", "", "gradient", "gradient"]
    out = said(capsys, defined(HALF))
    assert out.count("the factor 2 of the derivative 2x is missing") == 1
    assert out.count("Judged once the gradient is right.") == 2


def test_two_mistakes_are_both_said() -> None:
    both = KEPT.replace("return 2 * x * grad_output", "return x * grad_output")
    first = [step for step in judged(both) if step.state == FAILS]
    assert first[0].verdict.check == "gradient"
    shared = KEPT.replace("return x * x", "return x.mul_(x)")
    assert any(step.state == FAILS for step in judged(shared))


def test_the_verdicts_are_the_judge_s_own() -> None:
    """What is left out of the search is left out of what is repeated: the first mistake is that of grading."""
    task = load("relu")["LeakyReLU"]
    found = find.find("LeakyReLU")
    for mistake in task.mistakes:
        thing = type("LeakyReLU", (), {"apply": staticmethod(mistake.operation)})
        steps = list(session.steps(found, thing))
        first = next(step for step in steps if step.state == FAILS)
        plain = task.judge(first.verdict.check, find.operation(found, thing), session.SEED)
        assert first.verdict == plain, mistake.name
        assert next(s for s in steps if s.verdict.check == mistake.caught_by).state != HOLDS
        assert [s.state == HOLDS for s in steps] == [
            task.judge(c.name, find.operation(found, thing), session.SEED).earned == c.points for c in task.checks
        ], mistake.name


def test_each_look_that_fails_has_a_next_step() -> None:
    """What may be found, beside what the coach cannot see or what has a sentence of its own, has a next step."""
    source = (ROOT / "graders/judge/looks.py").read_text(encoding="utf-8")
    looks = set(re.findall(r'(?:_found|Finding)\(\s*"([a-z ]+)"', source)) | {"gradcheck", "source"}
    assert len(looks) > 15 and looks <= set(NEXT), looks - set(NEXT)


def test_who_forgot_the_return_is_sent_to_no_element() -> None:
    message = f"The gradient with respect to x is None: nothing is passed back. {NO_RETURN} It is what optimisers see."
    verdict = Verdict("ReLU", "gradient", 1, 0, message, look="gradient", code="y = ReLU.apply(x)")
    assert next_step(verdict).startswith(CURED)


def test_what_to_try_is_said_of_what_was_written() -> None:
    """A plain function has no forward of its author's, and where the cure was said nothing is to be sought."""
    code = {"Square": "y = Square.apply(x)", "round_ste": "result = round_ste(x)"}
    for look in NEXT:
        said = {task: next_step(Verdict(task, "value", 1, 0, "", look=look, code=text)) for task, text in code.items()}
        assert look not in PLAIN or said["Square"] != said["round_ste"]
        assert not re.search(r"\b(forward|setup_context)\b", said["round_ste"]), look
    cured = judged(RIGHT.replace("(x,) = ctx", "x = ctx"))
    step = next(step for step in cured if step.state == FAILS)
    assert "unpack it by" in step.message and step.next == CURED and "traceback" not in step.next
    step = next(s for s in judged(RIGHT.replace("return x * x", "return x * nobody")) if s.state == FAILS)
    assert "raised NameError" in step.message and "traceback" in step.next


# --- which answers ----------------------------------------------------------------------------------------------------

BY_HAND = "class Square:\n    pass\n"
LINES = {  # an answer that cannot be judged, and what its line says
    "a function": ("def Square(x):\n    return x * x\n", "is to be a class", "class Square(torch.autograd.Function):"),
    "no Function": (BY_HAND, "is not a torch.autograd.Function", "begin with"),
    "an instance": (RIGHT + "\nSquare = Square()\n", "That is an instance", "coach(Square)"),
    "a tensor": (RIGHT + "\nSquare = Square.apply(torch.ones(2))\n", "That is a tensor", "coach(Square)"),
    "a number": ("Square = 3\n", "That is an int", "coach(Square)"),
    "another name": (RIGHT.replace("Square", "Sqare") + "\nSquare = Sqare\n", "no task called Sqare", '"Square"'),
    "no task": (RIGHT.replace("Square", "Exp") + "\nSquare = Exp\n", "no task called Exp. coach() lists", "gradcheck"),
    "no name at all": ("import functools\nSquare = functools.partial(max, 1)\n", "hides the name", "Say which"),
}


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("case", LINES)
def test_what_cannot_be_judged_gets_one_line_with_the_remedy(capsys, case: str) -> None:
    source, what, remedy = LINES[case]
    out = said(capsys, defined(source))
    assert out.count("\n") == 1 and what in out and remedy in out, out


def test_a_class_where_a_function_is_asked_for_gets_one_line(capsys) -> None:
    out = said(capsys, defined(RIGHT), "round_ste")
    assert out.count("\n") == 1 and "round_ste is to be a function" in out


FAULTS = {
    "raises": ("return x * x", "raise ValueError('<b>no\\x1b[31m')", "The forward raised ValueError: <b>no\\x1b[31m"),
    "exits": ("return x * x", "raise SystemExit(3)", "The forward raised SystemExit: 3"),
    "returns nothing": ("return x * x", "return None", "returned NoneType, expected Tensor"),
    "is not written": ("return x * x", "raise NotImplementedError", "Square is not written yet."),
    "recurses": ("return x * x", "return Square.apply(x)", "RecursionError"),
    "gives no gradient": ("return 2 * x * grad_output", "pass", "is a return statement missing?"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_an_answer_with_a_fault_is_told_so(capsys, case: str) -> None:
    old, new, sentence = FAULTS[case]
    out = said(capsys, defined(RIGHT.replace(old, new)))
    assert sentence in " ".join(out.split()), out
    assert "Judged once" in out


def test_by_name_by_apply_and_by_the_set(capsys) -> None:
    Square = defined(RIGHT)
    for arguments in ((Square.apply,), (Square, "relu"), (Square, "01_relu"), (Square, "relu.Square")):
        assert "All 4 checks hold." in said(capsys, *arguments), arguments
    assert "Tanh is not defined yet" in said(capsys, "Tanh")
    assert "no task called Square" in said(capsys, Square, "linear")


def test_two_tasks_of_one_name_are_told_apart_by_the_set(capsys, monkeypatch) -> None:
    """No name stands in two sets today; `find` goes by what it finds."""
    twin = (find.Found("linear", load("relu")["Square"]),)
    own = find.tasks
    monkeypatch.setattr(find, "_mentions", lambda set_, name: set_ in ("relu", "linear"))
    monkeypatch.setattr(find, "tasks", lambda name: twin if name == "linear" else own(name))
    out = said(capsys, defined(RIGHT))
    assert 'say which is meant: coach(Square, "relu") or coach(Square, "linear")' in out
    assert "All 4 checks hold." in said(capsys, defined(RIGHT), "relu")


def test_every_task_of_the_course_is_found_by_its_name() -> None:
    assert [*find.ORDER] == [
        path.name.partition("_")[2] for path in sorted((ROOT / "solutions").iterdir()) if path.is_dir()
    ]
    assert sorted(find.ORDER) == names()
    for set_ in find.sets():
        for found in find.tasks(set_):
            assert find.find(found.task.name, set_) == found
            assert find.find("whatever", found.key) == found


def test_a_function_is_judged(capsys) -> None:
    right = "def round_ste(x):\n    return x + (x.round() - x).detach()\n"
    assert "All 3 checks hold." in said(capsys, defined(right, "round_ste"))


def test_a_test_file_is_judged() -> None:
    task = load("sigmoid")["SigmoidTests"]
    (step,) = session.steps(find.find("SigmoidTests"), task.solutions["terse"])
    assert step.state == HOLDS
    (step,) = session.steps(find.find("SigmoidTests"), None)
    assert step.state == FAILS and "%%writefile" in step.message
    assert session.summary([step], 1) == "Nothing holds yet; begin with catches."
    part = replace(step, verdict=replace(step.verdict, earned=4.5))
    assert session.summary([part], 1) == "Not all of it holds yet; begin with catches."


def test_a_reader_s_own_module_names_are_seen(capsys) -> None:
    """Names of the cell's own, not of this module's: as `coach("Square")` is typed."""
    names: dict = {"coach": coach}
    exec(HEAD + RIGHT + "\ncoach('Square')", names)
    assert "All 4 checks hold." in capsys.readouterr().out


# --- what it leaves alone ---------------------------------------------------------------------------------------------


def test_an_interrupt_comes_through_and_leaves_what_was_found(capsys, study_file) -> None:
    loop = "\n        import time\n        while time.monotonic() < {}:\n            pass"
    endless = RIGHT.replace("return 2 * x * grad_output", loop.format(time.monotonic() + 60))  # for a minute
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest's workers have none
    timer = threading.Timer(1.0, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        coach(defined(endless))
    timer.cancel()
    signal.signal(signal.SIGINT, before)
    out = capsys.readouterr().out
    assert "holds    value" in out and "Stopped at gradient while it was in backward, line" in out
    assert "Value holds. 3 of 4 checks did not run." in out
    assert study_file.exists()


def test_prints_and_warnings_of_the_answer_are_kept_out(capsys) -> None:
    noisy = RIGHT.replace("return x * x", "print('noise'); import warnings; warnings.warn('noise'); return x * x")
    out = said(capsys, defined(noisy))
    assert "noise" not in out and capsys.readouterr().err == ""
    assert "All 4 checks hold." in out
    print("still here")
    assert capsys.readouterr().out == "still here\n"


def test_torch_is_as_it_was(capsys) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    rude = RIGHT.replace("return x * x", "torch.set_default_dtype(torch.float64); torch.rand(3); return x * x")
    with torch.no_grad():
        said(capsys, defined(rude))
        assert not torch.is_grad_enabled()
    assert torch.equal(before, torch.get_rng_state()) and torch.get_default_dtype() == torch.float32
    random.seed(0)


# --- how it is shown --------------------------------------------------------------------------------------------------


def test_the_page_escapes_what_an_answer_says() -> None:
    raising = RIGHT.replace("return x * x", "raise ValueError('<script>alert(1)</script>')")
    steps = judged(raising)
    shown = page.table(find.find("Square"), steps, ["<script>"])
    assert "<script>" not in shown and html.escape("<script>alert(1)") in shown


def test_the_page_says_in_words_what_it_says_in_colour() -> None:
    shown = page.table(find.find("Square"), judged(HALF), ["the end"])
    text = re.sub(r"<[^>]+>", " ", shown)
    assert " holds " in text and " not yet " in text and text.count(" waits ") == 2 and "the end" in text
    for colour in page.COLOURS.values():
        assert _contrast(colour) >= 4.5
    loose = [
        style for style in re.findall(r'style="([^"]*)"', shown) if "color:#" in style and "background" not in style
    ]
    assert not loose  # a colour of the words alone would be unreadable on one of two themes


def _contrast(colour: str) -> float:
    """Of white on a colour: WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)


def test_a_check_that_runs_is_named_while_it_runs() -> None:
    steps = judged(RIGHT)
    assert "second order" in page.table(find.find("Square"), steps[:2], ())
    assert "…" not in page.table(find.find("Square"), steps, ("done",))


def test_in_a_notebook_one_table_is_replaced(monkeypatch, capsys) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, bundle: dict, raw: bool) -> None:
            shown.append(bundle["text/html"])

    def displayed(bundle: dict, raw: bool, display_id: bool) -> Handle:
        shown.append(bundle["text/html"])
        return Handle()

    import IPython.display

    monkeypatch.setattr(display, "notebook", lambda: True)
    monkeypatch.setattr(IPython.display, "display", displayed)
    coach(defined(RIGHT))
    assert len(shown) == 6 and "All 4 checks hold." in shown[-1]  # before the first, after each, and the end
    assert [page.count(">holds<") for page in shown] == [0, 1, 2, 3, 4, 4]
    assert capsys.readouterr().out == ""


def test_in_a_kernel(tmp_path: Path) -> None:
    """The one test with a kernel: what a notebook in JupyterLab keeps is the table as it is at the end."""
    sources = ["import torch\nfrom graders import coach", f"{HALF}\ncoach(Square)", "coach.solutions(Square)"]
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRADERS_STUDY": str(tmp_path / "study.json")}
    client = NotebookClient(made, kernel_name="python3", timeout=120)
    client.execute(env=environment)
    (table,) = made.cells[1].outputs
    assert table.output_type == "display_data" and "the factor 2 of the derivative 2x" in table.data["text/html"]
    assert table.data["text/html"].count(">waits<") == 2 and "Value holds; what is left" in table.data["text/plain"]
    (line,) = made.cells[2].outputs  # nobody can be asked here
    assert "has not passed yet" in line.text


LOST = Verdict("Square", "gradient", 2, 0, "Wrong.", look="gradient")


def test_a_place_becomes_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    link, place = links.link(LOST), LOST.place
    assert link is not None and place is not None and link.near == ""
    assert link.target == f"{place.page}.html#{place.anchor}"
    assert links.link(Verdict("Square", "gradient", 2, 2, "Right.")) is None
    odd = links.Link("01_relu", "how-it-breaks", "How <it> breaks")
    step = Step(LOST, "about", FAILS, link=odd)
    assert "How <it> breaks (01_relu.html#how-it-breaks)" in page.line(step)
    assert "How &lt;it&gt; breaks (01_relu.html#how-it-breaks)" in page._said(step)


def test_a_link_leads_to_the_book_beside_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "exercises/01_relu")
    link = links.link(LOST)
    assert link is not None and Path(link.near.partition("#")[0]).resolve() == ROOT / "book/01_relu.ipynb"
    assert f'<a href="{link.near}">{html.escape(link.title)}</a>' in page._said(Step(LOST, "about", FAILS, link=link))


# --- the package ------------------------------------------------------------------------------------------------------


def test_the_package_can_be_called() -> None:
    assert callable(coach) and coach is sys.modules["graders.coach"] and graders.solutions is solutions
    assert "one after the other" in coach.__call__.__doc__


ALONE = """
import importlib.abc, sys

ALLOWED = {allowed!r}


class Wall(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ALLOWED:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None


sys.meta_path.insert(0, Wall())
for name in {missing!r}:
    sys.modules[name] = None
import torch
from graders import coach, solutions
from graders.coach import command
{source}
coach(Square)
coach()
coach("flash_attention")
solutions(Square)
"""
# what torch itself needs, and NumPy, which it turns tensors into
TORCH = ["torch", "numpy", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock"]
TORCH += ["typing_extensions", "functorch", "torchgen", "graders"]


@pytest.mark.parametrize("missing", [[], ["resource", "fcntl", "pwd", "grp", "termios"]], ids=["Linux", "Windows"])
def test_it_needs_torch_and_the_standard_library_alone(missing: list[str], tmp_path: Path) -> None:
    """Neither IPython nor what only a class needs; nor, for all but the test file, what Windows has not got."""
    script = ALONE.format(allowed=TORCH, missing=missing, source=RIGHT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRADERS_STUDY": str(tmp_path / "other.json")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=300, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "All 4 checks hold." in done.stdout and "01_relu: 1 of 3 done" in done.stdout
    assert "10_flash_attention: 0 of 2 done" in done.stdout
    assert "Square: 3 right ways" in done.stdout


def test_no_task_s_checks_are_lost() -> None:
    """The coach judges each check that grading judges."""
    for set_ in find.sets():
        for found in find.tasks(set_):
            assert session.count(found.task) == len(found.task.checks) >= 1
            if isinstance(found.task, Task):
                assert functools.reduce(lambda a, b: a and bool(b.about), found.task.checks, True)
