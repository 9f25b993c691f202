"""Execution: a notebook as under Jupyter, its grade cells outside of the student's reach, and limits that hold."""

import os
import time
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest

from graders.engine import parents, run
from graders.engine.job import Job
from graders.engine.outcome import CELL_TIME, CUT, KERNEL_DIED, NOTEBOOK_TIME
from graders.engine.outputs import Outputs
from tests.engine.conftest import SETTINGS, cell, text

GRADE = 'from graders import grade\n\ngrade("{set}", "{task}", "{check}", lambda: {get})'
SQUARE = """import torch
class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * x
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, g):
        return {backward}"""
RIGHT = SQUARE.format(backward="2 * g * ctx.saved_tensors[0]")


def squares(check: str) -> dict[str, str]:
    """A grade cell on Square."""
    return {"test": GRADE.format(set="relu", task="Square", check=check, get="Square.apply")}


# --- as under Jupyter -------------------------------------------------------------------------------------------------


def test_cells_show_what_they_show_under_jupyter(execute):
    shown = execute(
        "x = 2\nx",
        "print('a'); print('b')\nimport sys; print('c', file=sys.stderr)",
        "1 / 0",
        "from IPython.display import display, HTML\nh = display(HTML('<b>1</b>'), display_id=True)",
        "h.update(HTML('<b>2</b>'))",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
        "import asyncio\nawait asyncio.sleep(0)\n%%time",
        "%%writefile note.txt\nhi",
        "open('note.txt').read()",
        "!echo out",
        "x;",
        "from IPython.display import clear_output\nprint(1); clear_output(); print(2)",
    )
    assert [c.execution_count for c in shown[:1]] == [None]
    assert shown[0].outputs[0].execution_count == 1
    assert shown[0].outputs[0].data == {"text/plain": "2"}
    assert [(o.name, o.text) for o in shown[1].outputs] == [("stdout", "a\nb\n"), ("stderr", "c\n")]
    assert shown[2].outputs[0].ename == "ZeroDivisionError"
    assert "image/png" in shown[5].outputs[0].data
    assert shown[8].outputs[0].data["text/plain"] == "'hi\\n'"
    assert text(shown[9]).strip() == "out"
    assert shown[10].outputs == []
    assert text(shown[11]) == "2\n"


def test_a_submission_finds_an_empty_room_and_leaves_nothing(execute):
    look = "import os, tempfile\nthere = tempfile.gettempdir() + '/x'\nprint(os.listdir('.'), os.path.exists(there))\n"
    (first,) = execute(look + "open(there, 'w'); open('y', 'w');")
    (second,) = execute(look)
    assert text(first) == text(second) == "[] False\n"


# --- what is trusted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backward", "check", "points", "message"),
    [
        ("2 * g * ctx.saved_tensors[0]", "gradient", 1.0, "Right in"),
        ("2 * g * ctx.saved_tensors[0]", "second_order", 1.0, "gradcheck agrees"),
        ("2 * ctx.saved_tensors[0]", "gradient", 0.0, "upstream"),
        ("g", "gradient", 0.0, ""),
        ("None", "gradient", 0.0, "None"),
        ("1 / 0", "gradient", 0.0, "ZeroDivisionError"),
    ],
)
def test_a_grade_cell_judges_through_the_wall(execute, backward, check, points, message):
    answer, graded = execute(SQUARE.format(backward=backward), cell("", "test", grade=True), tests=squares(check))
    assert answer.outputs == []
    assert graded.outputs[-1].data["text/plain"] == str(points)
    assert message in text(graded)


def test_a_missing_name_is_a_verdict(execute):
    (graded,) = execute(cell("", "test", grade=True), tests=squares("value"))
    assert "name 'Square' is not defined" in text(graded)
    assert graded.outputs[-1].data["text/plain"] == "0.0"


def test_what_the_notebook_has_in_a_grade_cell_is_not_run(execute):
    (graded,) = execute(cell("print('mine')\n100", "test", grade=True, locked=True), tests=squares("value"))
    assert "mine" not in text(graded)
    assert graded.source == squares("value")["test"]


def test_a_cell_that_only_claims_to_be_a_grade_cell_runs_in_the_kernel(execute):
    (claimed,) = execute(
        cell("import os\nprint(os.getpid(), 'graders.judge.task' in __import__('sys').modules)", "mine", grade=True)
    )
    assert text(claimed) == "1 False\n"


def test_grade_cells_share_names_and_take_imports_from_other_locked_cells(execute):
    tests = {
        "one": "def near(a, b):\n    return torch.allclose(a, b)\nx = torch.ones(2, requires_grad=True)",
        "two": "y = double(x)\nassert near(y, 2 * x)\ny.sum().backward()\nassert near(x.grad, 2 * x / x)\n3.0",
        "three": "assert helper(2) == 4 and double(4) == 8 and double('a') == 'aa'",
    }
    graded = execute(
        "import torch\ntorch.allclose = lambda *a, **k: False\ndef double(x):\n    return 2 * x",
        "def helper(x):\n    return 'bad'",
        *[cell("", name, grade=True) for name in tests],
        tests=tests,
        given=("import torch\ndef helper(x):\n    return x * x",),
        answers=("def double(x):\n    raise NotImplementedError",),
    )
    assert [text(c) for c in graded[2:]] == ["", "3.0", ""]


def test_an_error_of_the_students_reaches_a_plain_grade_cell(execute):
    tests = {"t": "try:\n    f(1)\nexcept ZeroDivisionError as error:\n    print(error)\nf"}
    (_, graded) = execute("def f(x):\n    return 1 / 0", cell("", "t"), tests=tests, answers=("def f(x): pass",))
    assert text(graded).startswith("division by zero\n")


def test_what_cannot_be_sent_is_an_error(execute):
    (_, graded) = execute("def f(x):\n    return object()", cell("", "t"), tests={"t": "f(1)"}, answers=("f = 1",))
    assert graded.outputs[0].ename == "TypeError"
    assert "cannot send a object" in text(graded)


# --- what is forbidden ------------------------------------------------------------------------------------------------


def sigmoid(forward: str, before: str = "") -> str:
    """A Sigmoid whose gradient is right."""
    return f"""import torch
{before}
class Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(x):
        {forward}
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * (1 - y)"""


OWN = "e = torch.exp(-x.abs()); return torch.where(x >= 0, 1 / (1 + e), e / (1 + e))"


@pytest.mark.parametrize(
    ("code", "points"),
    [
        (sigmoid(OWN), 1.0),
        (sigmoid(OWN, "print(torch.sigmoid(torch.zeros(2)))\nlimit = torch.sigmoid(torch.tensor(9.0))"), 1.0),
        (sigmoid("return torch.sigmoid(x)"), 0.0),
        (sigmoid("return getattr(torch, 'sig' + 'moid')(x)"), 0.0),
        (sigmoid("return (torch.tanh(x / 2) + 1) / 2"), 0.0),
        (sigmoid("return f(x)", "f = torch.sigmoid"), 0.0),
        (
            sigmoid(
                "with torch.utils._python_dispatch._disable_current_modes():\n            return torch.sigmoid(x)",
                "import torch.utils._python_dispatch",
            ),
            0.0,
        ),
    ],
)
def test_forbidden_operators_are_refused_below_python(execute, code, points):
    tests = {"test": GRADE.format(set="sigmoid", task="Sigmoid", check="allowed", get="Sigmoid.apply")}
    (_, graded) = execute(code, cell("", "test"), tests=tests)
    assert graded.outputs[-1].data["text/plain"] == str(points), text(graded)


def test_a_refusal_is_told_as_what_was_seen_of_it_would_be(execute):
    tests = {"test": GRADE.format(set="sigmoid", task="Sigmoid", check="allowed", get="Sigmoid.apply")}
    (_, graded) = execute(sigmoid("return torch.sigmoid(x)"), cell("", "test"), tests=tests)
    assert "is refused here" not in text(graded)
    assert "sigmoid" in text(graded)


# --- limits -----------------------------------------------------------------------------------------------------------


def test_an_endless_cell_is_interrupted_and_the_rest_runs(execute):
    settings = replace(SETTINGS, cell_time=1)
    loop, after, graded = execute(
        "while True: pass", RIGHT, cell("", "test"), tests=squares("value"), settings=settings
    )
    assert loop.outputs[-1].ename == CELL_TIME
    assert "was stopped" in loop.outputs[-1].evalue
    assert after.outputs == []
    assert graded.outputs[-1].data["text/plain"] == "1.0"


def test_an_endless_cell_takes_no_time_from_what_is_forbidden(execute):
    """A task that forbids operators runs the student's cells once more."""
    settings = replace(SETTINGS, cell_time=2, notebook_time=60)
    tests = {"test": GRADE.format(set="sigmoid", task="Sigmoid", check="allowed", get="Sigmoid.apply")}
    code = sigmoid("return f(x)", f"def f(x):\n    {OWN}")
    *_, graded = execute("limit = 1\nwhile True: pass", code, cell("", "test"), tests=tests, settings=settings)
    assert graded.outputs[-1].data["text/plain"] == "1.0", text(graded)


def test_a_cell_that_cannot_be_interrupted_ends_the_kernel(execute):
    before, loop, after = execute(
        "1",
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "2",
        settings=replace(SETTINGS, cell_time=1),
    )
    assert text(before) == "1"
    assert "could not be interrupted" in text(loop)
    assert text(after).startswith(f"{CELL_TIME}: not run")


def test_an_endless_answer_costs_its_check(execute):
    code = RIGHT.replace("return x * x", "while True: pass")
    _, graded = execute(code, cell("", "test"), tests=squares("value"), settings=replace(SETTINGS, cell_time=2))
    assert graded.outputs[-1].ename == CELL_TIME


def test_a_notebook_has_a_time_of_its_own(execute):
    cells = execute(*["import time; time.sleep(0.9)"] * 4, settings=replace(SETTINGS, notebook_time=2))
    assert NOTEBOOK_TIME in text(cells[-1])


@pytest.mark.parametrize(
    "end", ["import os; os._exit(0)", "import os, signal; os.kill(os.getppid(), 9); os._exit(1)", "exit"]
)
def test_a_dead_kernel_keeps_what_was_before(execute, warm, end):
    before, _, graded = execute(RIGHT, end, cell("", "test"), tests=squares("value"))
    assert warm.alive
    assert before.outputs == []
    assert graded.outputs[-1].ename == KERNEL_DIED


def test_an_answer_that_ends_the_process_loses_its_points(execute):
    code = RIGHT.replace("return x * x", "import os; os._exit(0)")
    _, graded, later = execute(code, cell("", "test"), "1", tests=squares("value"))
    assert graded.outputs[-1].ename == later.outputs[-1].ename == KERNEL_DIED


def test_a_flood_is_cut(execute):
    flood, after = execute(
        "for _ in range(10**5): print('x' * 1000)", "1", settings=replace(SETTINGS, max_output=10_000)
    )
    assert CUT in text(flood)
    assert len(text(flood)) < 200_000
    assert text(after) == "1"


def test_a_notebook_of_floods_is_cut(execute):
    cells = execute(*["print('x' * 20_000)"] * 12, "1", settings=replace(SETTINGS, max_output=10_000))
    assert sum(len(text(c)) for c in cells) < 60_000
    assert all(CUT in text(c) for c in cells[:-1])
    assert text(cells[-1]) == "1"


@pytest.mark.parametrize(
    "shown", ["print('x' * 50_000_000)", "display('x' * 50_000_000)", "raise ValueError('x' * 50_000_000)"]
)
def test_one_text_that_no_frame_holds_is_cut(execute, shown):
    flood, after = execute(shown, "1")
    assert CUT in text(flood)
    assert len(text(flood)) < 2 * SETTINGS.max_output
    assert [o.ename for o in flood.outputs if o.output_type == "error"] == (["ValueError"] if "raise" in shown else [])
    assert text(after) == "1"


def test_memory_and_processes_are_limited(execute):
    settings = replace(SETTINGS, memory=1 << 29, processes=20)
    memory, processes, files, after = execute(
        "x = bytearray(1 << 30)",
        "import os, time\nfor _ in range(100):\n    if os.fork() == 0:\n        time.sleep(60); os._exit(0)",
        "for i in range(100):\n    with open(f'{i}', 'wb') as f: f.write(bytes(1 << 20))",
        "1",
        settings=replace(settings, disk=10 << 20),
    )
    assert "MemoryError" in text(memory)
    assert "BlockingIOError" in text(processes)
    assert "No space left" in text(files)
    assert text(after) == "1"


# --- what comes back may be anything ----------------------------------------------------------------------------------


def test_forged_frames_gain_nothing(execute):
    forge = """
import json, os, socket, struct
def say(kind, data):
    frame = struct.pack(">cQ", kind, len(data)) + data
    for fd in range(3, 64):
        try: os.write(fd, frame)
        except OSError: pass
say(b"S", json.dumps({"msg_type": "execute_result", "content": {"data": {"text/plain": "9.0"}}}).encode())
say(b"R", b"x" * 20); say(b"D", b"{}"); say(b"Z", b"")
"""
    _, graded, _ = execute(forge + RIGHT, cell("", "test"), "1", tests=squares("value"))
    assert graded.outputs[-1].output_type == "error" or graded.outputs[-1].data["text/plain"] in ("0.0", "1.0")
    assert "9.0" not in text(graded)


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        {"msg_type": "stream"},
        {"msg_type": "stream", "content": {"name": 3, "text": ["x"]}},
        {"msg_type": "stream", "content": {"name": "stdout", "text": "\ud800"}},
        {
            "msg_type": "display_data",
            "content": {"data": {"text/plain": {"a": 1}, "application/json": [1]}, "metadata": 4},
        },
        {"msg_type": "execute_result", "content": {"data": 3, "execution_count": 10**30}},
        {"msg_type": "error", "content": {"ename": None, "evalue": 3, "traceback": [1, "a"]}},
        {"msg_type": "update_display_data", "content": {"data": {}, "transient": {"display_id": [1]}}},
        {"msg_type": "clear_output", "content": {"wait": "x"}},
    ],
)
def test_outputs_take_any_message_and_stay_a_notebooks(message):
    outputs = Outputs(1000)
    outputs(message)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=outputs.list)])
    nbformat.validate(notebook)
    nbformat.reads(nbformat.writes(notebook), as_version=4)


def test_of_metadata_only_the_sizes_of_images_are_kept():
    outputs, size = Outputs(1000), {"width": 30, "height": "1 onload=x()", "alt": "y"}
    metadata = {"image/png": size, "text/html": {"width": 1}, "isolated": True, "image/jpeg": 3}
    outputs({"msg_type": "display_data", "content": {"data": {"image/png": ""}, "metadata": metadata}})
    assert outputs.list[0].metadata == {"image/png": {"width": 30}}


def test_a_refusal_in_the_students_own_words_is_none(execute):
    tests = {"test": GRADE.format(set="sigmoid", task="Sigmoid", check="allowed", get="Sigmoid.apply")}
    for words in ("' is refused here'", "'aten::exp'", "'x is refused here'"):
        _, graded = execute(sigmoid(f"raise RuntimeError({words})"), cell("", "test"), tests=tests)
        assert graded.outputs[-1].data["text/plain"] == "0.0"
        assert "RuntimeError" in text(graded)


def test_a_check_of_what_is_kept_refuses_code_that_reaches_for_the_observer(execute):
    lie = "import sys\nsys.modules['graders.inside.observe'].__name__\n"
    kept = RIGHT.replace("class Square", "class Tanh").replace("x * x", "x.tanh()")
    kept = kept.replace("*inputs", "output").replace(
        "2 * g * ctx.saved_tensors[0]", "g * (1 - ctx.saved_tensors[0] ** 2)"
    )
    tests = {"test": GRADE.format(set="relu", task="Tanh", check="saved", get="Tanh.apply")}
    for before, points in (("", "2.0"), (lie, "0.0")):
        _, graded = execute(before + kept, cell("", "test"), tests=tests)
        assert graded.outputs[-1].data["text/plain"] == points, text(graded)


def test_many_short_messages_end(execute):
    outputs = Outputs(1000)
    for _ in range(5000):
        outputs({"msg_type": "display_data", "content": {"data": {"text/plain": ""}}})
    assert len(outputs.list) < 20


def test_the_warm_parent_outlives_all_that_and_can_be_replaced(execute, warm):
    assert warm.alive
    warm._process.kill()
    warm._process.wait()
    (shown,) = execute("1")
    assert text(shown) == "1"


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("x.sin()", set()),
        ("torch.func.grad(torch.sin)(x)", {"compiler"}),
        ("torch.optim.SGD([x.requires_grad_()], 0.1)", {"compiler"}),
        ("plt.plot([1, 2]);", {"figures"}),
    ],
)
def test_more_is_loaded_before_the_kernel_is_forked_where_it_is_used(execute, code, loaded):
    parents.close()  # what a parent has loaded stays
    there = "['torch._' + 'dynamo' in sys.modules, 'matplotlib.' + 'backends.backend_agg' in sys.modules]"
    first = f"import sys, torch\nimport matplotlib.pyplot as plt\nx = torch.tensor(1.0)\n{there}"
    before, used, after = execute(first, code, there)
    found = str(["compiler" in loaded, "figures" in loaded])
    assert (text(before), text(after)) == (found, found) and "Error" not in text(used)
    bare = parents.warm().bare()
    assert bare._more == loaded


@pytest.mark.parametrize("visible", [False, True])
def test_what_only_shows_something_is_not_run_and_its_names_are_there(warm, visible):
    shows = cell("def check_it():\n    print('run')\n\n\ncheck_it()\nflag = 1", "check_it")
    calls = cell("check_it()\nprint('flag' in globals())", "own")
    notebook = nbformat.writes(nbformat.v4.new_notebook(cells=[shows, calls]))
    executed = nbformat.reads(run.run(Job(notebook, settings=replace(SETTINGS, visible=visible))), as_version=4)
    shown, after = (found.outputs[0].text for found in executed.cells)
    assert (shown, after) == ("run\n" if visible else run.NOT_RUN, f"run\n{visible}\n")


def test_solutions_keep_every_point(warm):
    source = Path(__file__).parents[2] / "solutions/03_ste/ste.ipynb"
    notebook = nbformat.read(source, as_version=4)
    code = [c for c in notebook.cells if c.cell_type == "code" and "nbgrader" in c.metadata]
    tests = tuple((c.metadata.nbgrader.grade_id, c.source) for c in code if c.metadata.nbgrader.grade)
    given = tuple(c.source for c in code if c.metadata.nbgrader.locked and not c.metadata.nbgrader.grade)
    start = time.monotonic()
    executed = nbformat.reads(run.run(Job(nbformat.writes(notebook), tests, given, settings=SETTINGS)), as_version=4)
    assert time.monotonic() - start < SETTINGS.notebook_time
    points = {c.metadata.nbgrader.grade_id: c.metadata.nbgrader.get("points") for c in code}
    for done in executed.cells:
        name = done.metadata.get("nbgrader", {}).get("grade_id")
        if name in dict(tests):
            assert float(done.outputs[-1].data["text/plain"]) == points[name]


def test_without_a_sandbox_the_rest_is_the_same():
    settings = replace(SETTINGS, sandbox="off")
    notebook = nbformat.v4.new_notebook(cells=[cell(RIGHT), cell("import os; os.getcwd()"), cell("", "test")])
    job = Job(nbformat.writes(notebook), tuple(squares("gradient").items()), settings=settings)
    try:
        executed = nbformat.reads(run.run(job), as_version=4)
    finally:
        parents.close()
    assert executed.cells[2].outputs[-1].data["text/plain"] == "1.0"
    assert not os.path.exists(eval(text(executed.cells[1])))
