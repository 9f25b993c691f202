"""Test files as answers: what they earn, what their authors hear, and what keeps the run of a file in its bounds."""

import dataclasses
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from graders.gradecell import grade
from graders.inside import testrun
from graders.inside.operation import local
from graders.judge import testfile
from graders.judge.testfile import FileMistake, Wrong, cell_source, source_of
from graders.judge.verdict import Verdict
from graders.sets import load
from graders.sets.sigmoid.sigmoid import SigmoidNew, sign_in_exponent
from tests.coach.documents import sound

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = nbformat.read(ROOT / "solutions/02_sigmoid/sigmoid.ipynb", 4)
SIGMOID, TASK = load("sigmoid")["Sigmoid"], load("sigmoid")["SigmoidTests"]
HEAD = "from sigmoid import Sigmoid\n"
PASSES = HEAD + "def test_a():\n    pass\n"


def cell(name: str) -> str:
    return next(c.source for c in NOTEBOOK.cells if c.metadata.nbgrader.grade_id == name)


def judged(source: str, seed: int = 0, **changes: object) -> Verdict:
    """The verdict on a file, whose runs are forked from this process: it has torch loaded, and may be kept waiting.

    It has the form that the schema says.
    """
    task = dataclasses.replace(TASK, **({"total": 300.0} | changes))
    return sound(task.judge("catches", source, seed, lambda message: testrun.run(**message)))


# --- what files earn --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "name"), [*enumerate(TASK.solutions)])
def test_right_files_earn_all_points(seed: int, name: str) -> None:
    verdict = judged(TASK.solutions[name], seed)
    assert verdict.earned == TASK.points == 6, str(verdict)
    assert verdict.message == "Catches 12 of 12 wrong Sigmoids and passes the 4 right ones."


def test_the_file_of_the_notebook_earns_all_points() -> None:
    first, _, text = cell("SigmoidTests").partition("\n")
    assert first == TASK.first_line
    assert judged(text).earned == 6


@pytest.mark.parametrize("mistake", TASK.mistakes, ids=lambda m: m.name)
def test_a_faulty_file_earns_its_score_and_hears_why(mistake: FileMistake) -> None:
    verdict = judged(mistake.source, limit=1.0)
    assert (verdict.earned, verdict.mistake) == (mistake.score, "")
    assert mistake.message in verdict.message, str(verdict)
    assert "\n" not in verdict.message and "File " not in str(verdict)


def test_a_right_sigmoid_among_the_wrong_ones_is_let_through() -> None:
    """The count can fail: what is not wrong is not caught, and is named by its kind."""
    wrong = TASK.wrong | {"saves_derivative": Wrong(TASK.right["SigmoidNew"], "second order")}
    verdict = judged(TASK.solutions["against_torch"], wrong=wrong)
    assert verdict.earned == 5.5
    assert "second order (1): differentiate the gradient again" in verdict.message


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def test_a(:\n    pass\n", "The file could not be run, so no test was run: SyntaxError"),
        ("", "There is no test in the file"),
        (HEAD + "def test_a():\n    raise NotImplementedError()\n", "SigmoidTests is not written yet."),
        ("raise NotImplementedError()\n", "SigmoidTests is not written yet."),
        (HEAD + "def test_a():\n    yield\n", "does not run when it is called"),
        (HEAD + "async def test_a():\n    pass\n", "does not run when it is called"),
        (HEAD + "import os\ndef test_a():\n    os._exit(0)\n", "test_a ended the whole process"),
        (HEAD + "def test_a():\n    raise SystemExit\n", "test_a fails on 4 of the 4 right Sigmoids (SystemExit)"),
        (HEAD + "def test_a():\n    input()\n", "test_a fails on 4 of the 4 right Sigmoids (EOFError"),
    ],
)
def test_a_file_that_cannot_serve_earns_nothing(source: str, message: str) -> None:
    verdict = judged(source)
    assert verdict.earned == 0 and message in verdict.message, str(verdict)


@pytest.mark.parametrize(
    ("body", "evidence"),
    [
        ("    assert False\n", {"line": "3: assert False"}),
        ("    look(2)\ndef look(n):\n    assert n < 2\n", {"line": "3: look(2)", "which calls": "5: assert n < 2"}),
        ("    look(2)\ndef look(n):\n    look(n)\n", {"line": "3: look(2)", "which calls": "5: look(n)"}),
        ("    (\n", {"line": "3: ("}),
    ],
)
def test_the_lines_that_failed_are_shown(body: str, evidence: dict[str, str]) -> None:
    """The test's own line first; where it calls a helper of the file, the line in there too."""
    assert judged(f"{HEAD}def test_a():\n{body}").evidence == evidence


def test_no_cell_is_a_verdict() -> None:
    verdict = TASK.judge("catches", None)
    assert (verdict.earned, verdict.message) == (
        0.0,
        "No cell that begins with %%writefile test_sigmoid.py could be found.",
    )


UNRUN = {  # what comes of the process, and what is said of it: why, and what to do
    "killed": (subprocess.CalledProcessError(-9, "python"), "was killed by signal 9", "Use smaller tensors"),
    "ended": (
        subprocess.CalledProcessError(1, "python", stderr=b"Traceback\nModuleNotFoundError: No module named 'torch'\n"),
        "ended with code 1: ModuleNotFoundError: No module named 'torch'.",
        "install it again",
    ),
    "late": (subprocess.TimeoutExpired("python", 30), "to its end in time", "make its tests quicker"),
    "unreadable": (ValueError("Expecting value"), "cannot be read (ValueError)", "leave out what writes"),
}


@pytest.mark.parametrize("name", UNRUN)
def test_a_file_that_cannot_be_run_hears_why_and_what_to_do(name: str) -> None:
    error, why, remedy = UNRUN[name]

    def ask(message: object) -> list[dict]:
        raise error

    said = TASK.judge("catches", "def test_a(): pass\n", ask=ask).message
    assert said.startswith("The file could not be run") and "CalledProcess" not in said
    assert why in said and remedy in said


def test_a_course_without_what_runs_the_file_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(testfile, "TESTRUN", str(tmp_path / "testrun.py"))
    said = TASK.judge("catches", "def test_a(): pass\n").message
    assert "graders/inside/testrun.py is missing" in said and "unpack the course again" in said


def test_a_stub_is_no_try() -> None:
    assert judged("raise NotImplementedError()\n").look == "runs"


def test_a_module_that_raises_on_import_catches_too() -> None:
    source = HEAD + "import torch\nassert abs(Sigmoid.apply(torch.tensor(-1.0)) - 0.26894) < 1e-3\ndef test_a(): pass\n"
    assert judged(source).earned == 1  # the two wrong values


# --- the material -----------------------------------------------------------------------------------------------------


def function(source: str) -> type[Function]:
    names: dict = {}
    exec(source, names)
    return names["Sigmoid"]


def test_the_task_has_12_wrong_and_4_right_sigmoids_of_every_kind() -> None:
    assert len(TASK.wrong) == 12 and len(TASK.right) == 4
    assert {w.kind for w in TASK.wrong.values()} == set(TASK.advice)


def test_the_texts_do_what_the_classes_do() -> None:
    for name, source in TASK.right.items():
        for check in SIGMOID.checks:
            assert SIGMOID.judge(check.name, local(function(source).apply)).earned == check.points, name
    for name, wrong in TASK.wrong.items():
        mistake = next(m for m in SIGMOID.mistakes if m.name == name)
        assert SIGMOID.judge(mistake.caught_by, local(function(wrong.source).apply)).mistake == name


def test_the_texts_do_not_tell_who_is_right() -> None:
    sources = [*TASK.right.values(), *(w.source for w in TASK.wrong.values())]
    assert len(set(sources)) == 16
    for name in (*TASK.right, *TASK.wrong):
        assert not any(name in source for source in sources)


def test_right_sigmoids_round_differently() -> None:
    x = torch.linspace(-6, 6, 101)
    for dtype in (torch.float32, torch.float64):
        values = [function(source).apply(x.to(dtype)) for source in TASK.right.values()]
        assert any(not torch.equal(v, torch.sigmoid(x.to(dtype))) for v in values)
        assert any(not torch.equal(a, b) for a in values for b in values)


class Once(SigmoidNew):
    """Inherits all but a decorated backward."""

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * (1 - y)


def test_a_text_holds_inherited_methods_and_decorators() -> None:
    source = source_of(sign_in_exponent, "Sigmoid")
    assert source.count("def ") == 3 and "setup_context" in source
    assert "@once_differentiable" in source_of(Once, "Other") and "class Other(Function):" in source_of(Once, "Other")


# --- the run ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def run() -> Callable:
    def call(file: str, sources: int = 2, limit: float = 1.0, total: float = 60.0) -> list[dict]:
        texts = [TASK.right["SigmoidNew"]] * sources
        return testrun.run(file, "test_sigmoid.py", "sigmoid", texts, 0, limit, total)

    return call


def spent() -> float:
    """Return the seconds of the processor that all children of this process took."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" if Path("/proc").exists() else True


@pytest.mark.parametrize("end", ["", "    while True: pass\n"], ids=["ends", "hangs"])
def test_nothing_that_a_test_started_is_left(run: Callable, tmp_path: Path, end: str) -> None:
    source = (
        f"import subprocess\ndef test_a():\n    p = subprocess.Popen(['sleep', '60'])\n"
        f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid))\n{end}"
    )
    (said,) = run(source, sources=1)
    assert said["status"] == ("timed out" if end else "passed")
    pid = int((tmp_path / "pid").read_text())
    for _ in range(50):
        if not alive(pid):
            break
        time.sleep(0.02)
    assert not alive(pid)


@pytest.mark.parametrize(
    "first", ["", "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"], ids=["plain", "deaf"]
)
def test_the_first_that_hangs_ends_the_list(run: Callable, first: str) -> None:
    before = spent()
    said = run(f"{first}def test_a():\n    while True: pass\n", sources=5, limit=0.5, total=300.0)
    assert [(s["status"], s["test"], s["limit"]) for s in said] == [("timed out", "test_a", 0.5)]
    assert spent() - before < 5


def test_a_run_is_limited_by_what_it_takes_of_the_processor(run: Callable) -> None:
    """Not by the clock: who waits, for a busy machine say, is not late."""
    said = run("import time\ndef test_a():\n    time.sleep(1.5)\n", limit=0.5, total=300.0)
    assert [s["status"] for s in said] == ["passed", "passed"]


def test_a_file_does_not_wait_for_threads_of_the_process_that_forked_it(run: Callable) -> None:
    """OpenMP's threads stay with the parent; a child that shares out its work with them would wait for ever."""
    torch.set_num_threads(2)
    torch.randn(1 << 22).exp()
    said = run("import torch\ndef test_a():\n    torch.linspace(-5, 5, 101).exp()\n", limit=5.0, total=20.0)
    assert [s["status"] for s in said] == ["passed", "passed"]


def test_who_sleeps_is_stopped_by_the_clock(run: Callable) -> None:
    said = run("import time\ndef test_a():\n    time.sleep(600)\n", sources=5, limit=5.0, total=1.0)
    assert [(s["status"], s["test"], s["limit"]) for s in said] == [("timed out", "test_a", 1.0)]


def test_all_runs_together_have_a_limit(run: Callable) -> None:
    said = run("import time\ndef test_a():\n    time.sleep(0.4)\n", sources=9, limit=1.0, total=1.0)
    assert said[-1]["status"] == "timed out" and said[-1]["limit"] == 1.0 and len(said) < 5


def test_a_limit_that_the_file_makes_up_is_not_believed(run: Callable) -> None:
    forged = """import json, os, struct
data = json.dumps({"status": "timed out", "test": "test_a", "limit": "ten"}).encode()
for fd in range(3, 4096):
    try:
        os.write(fd, struct.pack("!i", len(data)) + data)
    except OSError:
        pass
"""
    (said,) = run(forged, sources=1)
    assert said == {"status": "timed out", "test": "test_a", "limit": 60.0}


@pytest.mark.parametrize(
    ("body", "total", "message"),
    [
        ("while True: pass", 300.0, "test_a ran for more than 1 s and was stopped. A test has to end on every Sigmoid"),
        ("time.sleep(600)", 2.0, "test_a ran for more than 2 s and was stopped. A test has to end on every Sigmoid"),
        ("time.sleep(0.3)", 2.0, "All runs of the file together took more than 2 s: it has to be quicker."),
        ("os.kill(os.getpid(), signal.SIGKILL)", 300.0, "test_a ended the whole process"),
    ],
)
def test_who_is_stopped_hears_by_which_limit(body: str, total: float, message: str) -> None:
    verdict = judged(f"import os, signal, time\n{HEAD}def test_a():\n    {body}\n", limit=1.0, total=total)
    assert verdict.earned == 0 and message in verdict.message, str(verdict)


def test_one_run_does_not_touch_the_next(run: Callable, capfd: pytest.CaptureFixture) -> None:
    source = (
        "import os, sys, torch\nfrom sigmoid import Sigmoid\n"
        "def test_a():\n    assert not hasattr(torch, 'spoilt')\n    torch.spoilt = True\n"
        "    print('noise'), os.write(1, b'noise'), os.write(2, b'noise')\n    sys.modules.clear()\n"
    )
    assert [s["status"] for s in run(source)] == ["passed", "passed"]
    assert capfd.readouterr() == ("", "")


def test_random_numbers_are_the_same_in_every_run(run: Callable) -> None:
    said = run("import torch\ndef test_a():\n    raise ValueError(torch.rand(1).item())\n", sources=3)
    assert len({s["message"] for s in said}) == 1


# --- the coach's way: a fork of the reader's own process --------------------------------------------------------------

linux = pytest.mark.skipif(sys.platform != "linux", reason="a fork is asked on Linux alone")


def message(body: str, **changes: object) -> dict:
    """What `FileTask.judge` asks about a file with this text of a test: of a right Sigmoid, and of none."""
    sources = [source_of(SigmoidNew, "Sigmoid"), "Sigmoid = None\n"]
    asked = {"file": f"{HEAD}def test_a():\n    {body}\n", "name": "test_sigmoid.py", "offer": "sigmoid", "seed": 3}
    return asked | {"sources": sources, "limit": 20.0, "total": 60.0} | changes


def never(message: dict) -> list[dict]:
    raise AssertionError("a fresh process was asked")


@linux
@pytest.mark.parametrize(
    "body",
    [
        "assert Sigmoid is not None",
        "import torch; raise ValueError(torch.rand(1).item(), torch.zeros(1).dtype, torch.get_num_threads())",
        "import pytest; pytest.fail('so it is')",
        "import os; open('here', 'x'); assert os.listdir() == ['here']",
    ],
    ids=["one fails", "torch as it starts", "pytest", "a folder of its own"],
)
def test_a_fork_says_what_a_fresh_process_says(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the reader's kernel has set, and the threads that it has started."""
    expected = testfile.ask(message(body))
    threads, folder = torch.get_num_threads(), os.getcwd()
    monkeypatch.setattr(testfile, "ask", never)
    torch.set_default_device("meta")
    torch.set_num_threads(2)
    torch.randn(1 << 22, device="cpu", requires_grad=True).exp().sum().backward()
    try:
        assert testfile.ask_fork(message(body)) == expected
        assert torch.get_num_threads() == 2 and os.getcwd() == folder
    finally:
        torch.set_default_device(None)
        torch.set_num_threads(threads)


@linux
def test_a_fork_s_word_counts_of_who_used_up_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testfile, "ask", never)
    (said,) = testfile.ask_fork(message("while True: pass", limit=1.0))
    assert (said["status"], said["limit"]) == ("timed out", 1.0)


@linux
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("import held; held.lock.acquire()", "failed"),
        ("import os, sys; os.kill(os.getpid(), 9 * ('held' in sys.modules))", "passed"),
        ("import os; os.kill(os.getpid(), 9)", "died"),
    ],
    ids=["waits for a lock", "crashes in a fork", "ends itself"],
)
def test_a_fresh_process_has_the_last_word_of_what_did_not_end(
    body: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread of the reader's held the lock when the process was forked: nobody gives it back there."""
    held = SimpleNamespace(lock=threading.Lock())
    held.lock.acquire()
    monkeypatch.setitem(sys.modules, "held", held)  # a fresh process has no such module
    start = time.monotonic()
    said = testfile.ask_fork(message(body, total=10.0))
    assert [one["status"] for one in said] == [status] * 2 and time.monotonic() - start < 60
    assert not multiprocessing.active_children()


@linux
def test_a_course_that_is_not_whole_hears_it_of_the_fork_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graders.inside.testrun", None)
    said = testfile.ask_fork(message("assert Sigmoid is not None"))
    assert [one["status"] for one in said] == ["passed", "failed"]


def test_systems_whose_libraries_may_not_survive_a_fork_ask_a_fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testfile.sys, "platform", "darwin")
    monkeypatch.setattr(testfile, "_forked", never)
    monkeypatch.setattr(testfile, "ask", lambda message: ["fresh"])
    assert testfile.ask_fork(message("pass")) == ["fresh"]


# --- the cell ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    cells: list[str] = []
    shell = SimpleNamespace(history_manager=SimpleNamespace(input_hist_raw=cells))
    loaded = {**sys.modules, "IPython": SimpleNamespace(get_ipython=lambda: shell)}
    monkeypatch.setattr(testfile, "sys", SimpleNamespace(modules=loaded, executable=sys.executable))
    return cells


def test_the_last_cell_with_the_magic_counts(history: list[str]) -> None:
    history += [
        "",
        "%%writefile test_sigmoid.py\nold",
        '\n%%writefile  "test_sigmoid.py"\nnew',
        "%%writefile other.py\nx",
    ]
    assert cell_source(TASK.first_line) == "new"
    assert cell_source("%%writefile third.py") is None


def test_without_a_notebook_there_is_no_cell() -> None:
    assert cell_source(TASK.first_line) is None


def test_a_grade_cell_reads_the_cell_and_not_the_disk(
    history: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """As in a kernel: a fresh process runs the file, nothing but the verdict is printed."""
    monkeypatch.chdir(tmp_path)
    Path("test_sigmoid.py").write_text(TASK.solutions["terse"], encoding="utf-8")
    Path("torch.py").write_text("raise SystemExit('imported from the folder')", encoding="utf-8")
    history.append(f"{TASK.first_line}\n{PASSES}")
    before = spent()
    score = grade("sigmoid", "SigmoidTests", "catches")
    out, err = capfd.readouterr()
    assert type(score) is float and score == 0.0 and err == ""
    assert out.startswith("SigmoidTests catches: 0 of 6 points\nCatches 0 of 12 wrong Sigmoids and passes the 4 right")
    assert spent() - before < 15  # 4 s on a quiet machine


def test_the_message_is_plain_data() -> None:
    """What goes to the other process is JSON, and names nobody."""
    sent: list[str] = []

    def ask(message: dict) -> list[dict]:
        sent.append(json.dumps(message))
        return [{"status": "passed", "test": "test_a", "returned": []}] * len(message["sources"])

    for seed in (1, 2):
        assert TASK.judge("catches", PASSES, seed, ask).earned == 0
    assert sent[0] != sent[1]
    assert not any(name in sent[0] for name in (*TASK.right, *TASK.wrong))


# --- what a student sees ----------------------------------------------------------------------------------------------


def visible(text: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.chdir(folder)
    Path("test_sigmoid.py").write_text(text, encoding="utf-8")
    names: dict = {}
    exec(cell("sigmoid-setup"), names)
    names["Sigmoid"] = function(TASK.right["SigmoidNew"])
    exec(cell("check_SigmoidTests"), names)


def test_the_visible_check_passes_right_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for text in TASK.solutions.values():
        visible(text, monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PASSES, "pass a Sigmoid that is wrong in its value: 0.01 too large"),
        (HEAD, "There is no test in the file"),
        (HEAD + "def test_a():\n    assert False\n", "A test fails on your Sigmoid"),
    ],
)
def test_the_visible_check_refuses(text: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=message):
        visible(text, monkeypatch, tmp_path)


def test_the_visible_check_shows_the_lines_that_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(AssertionError):
        visible(f"{HEAD}def test_a():\n    look(2)\ndef look(n):\n    assert n < 2\n", monkeypatch, tmp_path)
    failed = "test_a fails: AssertionError: \n       line 3: look(2)\n       line 5: assert n < 2\n"
    assert failed in capsys.readouterr().out


# --- Sigmoid: what may not be used -----------------------------------------------------------------------------------

FORBIDDEN = {
    "sigmoid_": lambda x: x.clone().sigmoid_(),
    "expit": torch.special.expit,
    "logsigmoid": lambda x: torch.nn.functional.logsigmoid(x).exp(),
    "softplus": lambda x: torch.exp(-torch.nn.functional.softplus(-x)),
    "silu": lambda x: torch.nn.functional.silu(x) / x,
    "glu": lambda x: torch.nn.functional.glu(torch.stack([torch.ones_like(x), x]), 0)[0].clone(),
    "tanh": lambda x: torch.tanh(x / 2) / 2 + 0.5,
    "log_softmax": lambda x: torch.stack([x, 0 * x]).log_softmax(0).exp()[0].clone(),
    "logaddexp": lambda x: torch.exp(-torch.logaddexp(torch.zeros_like(x), -x)),
    "logsumexp": lambda x: torch.exp(-torch.stack([0 * x, -x]).logsumexp(0)),
    "log1p": lambda x: torch.exp(-torch.log1p(torch.exp(-x))),
    "exp2": lambda x: 1 / (1 + torch.exp2(-x / 0.6931471805599453)),
    "e ** -x": lambda x: 1 / (1 + 2.718281828459045**-x),
    "pow of tensors": lambda x: 1 / (1 + torch.full_like(x, 2.718281828459045) ** -x),
    "cosh": lambda x: (x / 2).exp() / (2 * torch.cosh(x / 2)),
    "binary cross-entropy": lambda x: torch.exp(
        -torch.nn.functional.binary_cross_entropy_with_logits(x, torch.ones_like(x), reduction="none")
    ),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_built_in_loses_the_points_for_making_it(name: str) -> None:
    forward = staticmethod(lambda x: FORBIDDEN[name](x))
    called = type("Called", (SigmoidNew,), {"forward": forward})
    verdict = SIGMOID.judge("allowed", local(called.apply))
    assert verdict.earned == 0 and (
        "Your solution runs aten::" in verdict.message or verdict.mistake.startswith("builtin")
    )
    assert SIGMOID.judge("extremes", local(called.apply)).earned == 0
