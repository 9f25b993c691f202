"""The Python of the pages: the runtime, what stops it, and its torch, which may refuse and never differ from torch."""

import hashlib
import json
import random
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Page

from tests.page.conftest import MORE
from tools import golden, golden_driver, page_python
from tools.golden import FILE, unpacked

CASES = unpacked(FILE.read_text(encoding="utf-8"))
REFUSED = 237  # of the cases, those that the page's torch refuses; a name that it learns makes this smaller
CHUNK = 40  # as many that all may differ: what is printed has a limit
NOT_HERE = "not in the page's torch: run this in Jupyter"


@pytest.fixture(scope="module")
def page(opened: Callable[..., Page]) -> Page:
    return opened()


def run(page: Page, code: str, limit: int = 60_000) -> dict[str, Any]:
    """What window.pagePython.run answers."""
    return page.evaluate("([code, limit]) => pagePython.run(code, limit)", [code, limit])


def differing(page: Page, numbers: list[int], changes: dict[str, str] | None = None) -> list[list[str]]:
    """The cases that the page's torch answers otherwise, with its answers; changes are made to torch's before."""
    read = "import driver, json\nheads, ends, answers = json.load(open('/golden.json'))"
    assert run(page, read)["error"] is None
    found = []
    for start in range(0, len(numbers), CHUNK):
        code = f"""
cases = []
for number in {numbers[start : start + CHUNK]}:
    head, end, answer = answers[number]
    for old, new in {list((changes or {}).items())}:
        answer = answer.replace(old, new)
    cases.append([heads[head] + ends[end], answer])
print(json.dumps(driver.check(cases)))
"""
        answer = run(page, code)
        assert answer["error"] is None and not answer["cut"], answer
        found += json.loads(answer["printed"])
    return found


def test_what_is_vendored_is_what_came() -> None:
    folder = page_python.PAGE / "micropython"
    for name, pinned in page_python.VENDORED.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == pinned
        assert pinned in (folder / "README.md").read_text(encoding="utf-8")
    assert {path.name for path in folder.iterdir()} == {*page_python.VENDORED, "LICENSE", "README.md"}


def test_a_changed_runtime_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "micropython").mkdir()
    (tmp_path / "micropython/micropython.mjs").write_text("export async function loadMicroPython() {}")
    monkeypatch.setattr(page_python, "PAGE", tmp_path)
    with pytest.raises(ValueError, match="its hash is another"):
        page_python.bundle()


def test_every_case_is_answered_as_torch_answers(page: Page) -> None:
    assert len(CASES) > 5000
    found = differing(page, list(range(len(CASES))))
    refused = [case for case in found if case[2].startswith("!NotInPage") and case[2].endswith(NOT_HERE)]
    assert [case for case in found if case not in refused] == []
    assert len(refused) == REFUSED


def test_the_cases_are_those_of_the_tool_and_some_are_asked_again() -> None:
    """All of them are asked again by ``python -m tools.golden --check``, which takes longer."""
    assert [code for code, _ in CASES] == golden.cases()
    for code, answer in CASES[::40]:
        assert golden_driver.alike(golden_driver.ask(code), answer, code), code


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("mul(g, cos(x))", "mul(g, sin(x))"),
        ("lambda v, w: v < w", "lambda v, w: v <= w"),
        ('"CloneBackward0"', '"Clone"'),
    ],
)
def test_a_planted_fault_in_the_page_s_torch_is_seen(opened: Callable[..., Page], right: str, wrong: str) -> None:
    script = page_python.bundle(MORE)
    planted = script.replace(json.dumps(right)[1:-1], json.dumps(wrong)[1:-1])
    assert planted != script
    about = [i for i, (code, _) in enumerate(CASES) if any(word in code for word in ("sin()", " < ", "clone()"))]
    assert [case for case in differing(opened(planted), about[:400]) if not case[2].startswith("!NotInPage")]


@pytest.mark.parametrize(
    ("code", "answer", "altered"),
    [
        ("G(lambda x: x.exp(), I('a', 'd'))", "1.6487212707001", "1.6487212707101"),
        ("G(lambda x: x.exp(), I('a', 'f'))", "1.64872122", "1.64872222"),
        ("I('B') - I('B')", "two bool tensors", "bool tensors"),
        ("torch.arange(4)", "i4|", "d4|"),
        ("G(lambda x: x.abs(), I('a', 'd'))", "0.5", "-0.5"),
    ],
)
def test_an_altered_answer_is_seen(page: Page, code: str, answer: str, altered: str) -> None:
    number = [asked for asked, _ in CASES].index(code)
    assert answer in CASES[number][1] and differing(page, [number]) == []
    assert len(differing(page, [number], {answer: altered})) == 1


def test_every_name_that_it_lacks_is_refused(page: Page) -> None:
    """Names of torch, of its tensors, its functional and its dtypes: here, or refused in these words."""
    asked = {
        "torch": [name for name in dir(torch) if not name.startswith("_")],
        "torch.autograd": [name for name in dir(torch.autograd) if not name.startswith("_")],
        "torch.nn": [name for name in dir(torch.nn) if not name.startswith("_")],
        "torch.nn.functional": [name for name in dir(torch.nn.functional) if not name.startswith("_")],
        "torch.ones(2)": [name for name in dir(torch.Tensor) if not name.startswith("_")],
        "torch.float64": [name for name in dir(torch.float64) if not name.startswith("_")],
        "torch.ones(2).shape": [name for name in dir(torch.Size) if not name.startswith("_")],
    }
    code = f"""
import json, torch
lacking = []
wrong = []
for owner, names in json.loads({json.dumps(json.dumps(asked))}).items():
    for name in names:
        try:
            getattr(eval(owner), name)
        except Exception as error:
            if str(error).endswith({NOT_HERE!r}):
                lacking.append(name)
            else:
                wrong.append([owner, name, str(error)])
print(json.dumps([len(lacking), wrong]))
"""
    answer = run(page, code)
    assert answer["error"] is None
    lacking, wrong = json.loads(answer["printed"])
    assert lacking > 1000 and wrong == []


@pytest.mark.parametrize(
    "code",
    [
        "torch.ones(2).sum(axis=0)", "torch.exp(torch.ones(2), out=None)", "torch.fft", "torch.ones(2).cumsum(0)", "torch.nn.Linear",
        "F.gelu", "torch.ones(2) @ 2", "torch.ones(2) % 2", "list(map(float, [torch.ones(1)]))", "torch.Tensor.bmm", "import torch.func",
        "from torch import vmap", "f'{1e6:,.2f}'", "torch.special.erf", "import warnings\nwarnings.simplefilter('error')", "import textwrap\ntextwrap.shorten", "1 < torch.ones(2)", "torch.ones(2, device='cpu')", "torch.tensor(torch.ones(2))",
        "torch.manual_seed(0)", "torch.randn(3)", "x = torch.ones(2)\nx @= x", "torch.ones(2).data", "torch.float16", "gradcheck(torch.exp, x, fast_mode=True)",
        "class A(torch.autograd.Function):\n    forward = staticmethod(lambda ctx, x, k: x * k)\nA.apply(torch.ones(2), k=2)", "torch.ones(2).shape.index(2)",
    ],
)  # fmt: skip
def test_what_it_lacks_is_refused_in_these_words(page: Page, code: str) -> None:
    head = "import torch\nimport torch.nn.functional as F\nfrom torch.autograd import gradcheck\nx = torch.ones(2).double().requires_grad_()\n"
    answer = run(page, head + code)
    assert answer["error"]["type"] == "NotInPage" and answer["error"]["message"].endswith(NOT_HERE), answer


@pytest.mark.parametrize(
    ("code", "kind", "message", "line"),
    [
        ("x = 1\ny = x +\n", "SyntaxError", "invalid syntax", 2),
        ("def f():\n    return nothing\n\nf()\n", "NameError", "nothing", 2),
        ("import torch\n\ntorch.ones(2).view(3)", "RuntimeError", "shape '[3]' is invalid for input of size 2", 3),
        (
            "import torch\nx = torch.ones(2, requires_grad=True)\nx *= (\n    2\n)\n",
            "RuntimeError",
            "a leaf Variable",
            3,
        ),
        ("import torch\ntorch.Where(1)", "AttributeError", "module 'torch' has no attribute 'Where'", 2),
        ("import torch\n\ntorch.ones(2).sqaure()", "AttributeError", "'Tensor' object has no attribute 'sqaure'", 3),
        ("# “fine”\nprint(“hi”)", "SyntaxError", "invalid character '“' (U+201C)", 2),
        ("a = '–'\nb =\u00a02", "SyntaxError", "invalid non-printable character U+00A0", 2),
        ("raise NotImplementedError('your turn: one line')", "NotImplementedError", "your turn: one line", 1),
    ],
)
def test_an_error_has_the_reader_s_line(page: Page, code: str, kind: str, message: str, line: int) -> None:
    error = run(page, code)["error"]
    assert error["type"] == kind and message in error["message"] and error["line"] == line


def test_what_is_printed_comes_back_and_names_stay(page: Page) -> None:
    assert run(page, "a = 2\nprint('é', a)\nprint(a, end='')")["printed"] == "é 2\n2"
    assert run(page, "print(a + 1)")["printed"] == "3\n"


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("x = torch.ones(2)\ny = x\ny *= 3  # in place\nprint(x is y, x.tolist(), x._version)", "True [3.0, 3.0] 1"),
        ("x = torch.ones(2); y = x; y /= 2; y **= 2\nprint(x.tolist(), x._version)", "[0.25, 0.25] 2"),
        ("n = 5\nn **= 2\nn //= 3; n %= 5\nprint(n)", "3"),
        ("a = [1]\nb = a\nb *= 2\nprint(a)", "[1, 1]"),
        ("m = torch.ones(2) > 0\nk = m\nk &= torch.tensor([True, False])\nprint(m.tolist())", "[True, False]"),
        ("x = torch.ones(2)\nif True: x *= 2\nprint(x.tolist())", "[2.0, 2.0]"),
        ("t = 'a *= 2'\nd = {'k': 2}\nd['k'] *= 4 # *= 5\nprint(t, d['k'], 2 *3 == 6)", "a *= 2 8 True"),
        ("x = torch.ones(3)\nx[0] *= 5\nx[1:] *= (2 +\n  1)\nprint(x.tolist())", "[5.0, 3.0, 3.0]"),
    ],
)
def test_what_micropython_would_do_otherwise_is_done_as_python_does(page: Page, code: str, printed: str) -> None:
    answer = run(page, "import torch\n" + code)
    assert (answer["error"], answer["printed"]) == (None, printed + "\n")


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("import warnings\nwith warnings.catch_warnings(action='ignore'):\n    warnings.warn('never')\nprint(1)", "1"),
        (
            "from textwrap import fill\nprint(fill('a well-known word and another', 12))",
            "a well-known\nword and\nanother",
        ),
        ("from functools import reduce, partial\nprint(reduce(max, [1, 3, 2]), partial(pow, 2)(3))", "3 8"),
        (
            "from contextlib import contextmanager\n@contextmanager\ndef f(a):\n    yield a\n    print('out')\n"
            "with f(3) as b:\n    print(b)",
            "3\nout",
        ),
        ("print(list(zip([1], [2], strict=True)))", "[(1, 2)]"),
        (
            "try:\n    list(zip([1], [2, 3], strict=True))\nexcept ValueError as e:\n    print(e)",
            "zip() argument 2 is longer than argument 1",
        ),
        (
            "import torch\nx = torch.tensor(0.5)\nprint(f'{x:.2f} {x}', float(x), '{:.1f}'.format(x))",
            "0.50 0.5 0.5 0.5",
        ),
        ("def f(a, /, b):  # a comment\n    return a - b\nprint(f(3, b=1))", "2"),
    ],
)
def test_what_python_has_and_micropython_lacks_is_there(page: Page, code: str, printed: str) -> None:
    answer = run(page, code)
    assert (answer["error"], answer["printed"]) == (None, printed + "\n")


def test_the_wrapping_of_the_page_s_text_is_python_s() -> None:
    path = page_python.PAGE / "shims" / "textwrap.py"
    text = path.read_text(encoding="utf-8").replace("from torch._base import lacking, refuse", "")
    names: dict[str, Any] = {"lacking": lambda name: None, "refuse": pytest.fail}
    exec(compile(text, path, "exec"), names)
    draw = random.Random(3)
    words = ("the", "a", "of", "gradient,", "well-known", "(x)", "it's", "e.g.", "3-4", "end.", "custom-made", "\n")
    for _ in range(500):
        said, width = " ".join(draw.choices(words, k=draw.randint(0, 25))), draw.randint(14, 60)
        assert names["wrap"](said, width, "  ", " ") == textwrap.wrap(
            said, width, initial_indent="  ", subsequent_indent=" "
        )


@pytest.mark.parametrize(
    "code",
    [
        "x = 1\n\n  y = 2\n",
        "def f():\n\n# here\nreturn 1\n",
        "def f(\n    x,\n):\nreturn x\n",
        "class A:\n    def f(self):  # it\n    return 1\n",
        "if 1:\n    a = 1\n  b = 2\nc = 1\n",
        "class A:\n    def f(self):\n        x = 1\n\n        # y\n      y = 2\n",
        "if 1:\n    x = 1 2\n",
    ],
)
def test_an_indentation_that_fits_nothing_is_found_on_python_s_line(page: Page, code: str) -> None:
    with pytest.raises(SyntaxError) as told:
        compile(code, "cell", "exec")
    error = run(page, code)["error"]
    assert (error["type"], error["line"]) == (type(told.value).__name__, told.value.lineno)
    if error["type"] == "IndentationError":
        assert error["message"].split(" after ")[0] == told.value.msg.split(" after ")[0]


def test_a_colon_within_brackets_begins_no_block(page: Page) -> None:
    assert run(page, "x = {1:\n}\n")["error"]["type"] == "SyntaxError"


def test_a_loop_without_end_is_stopped_after_five_seconds_and_a_new_runtime_goes_on(page: Page) -> None:
    page.evaluate("began = performance.now()")
    answer = page.evaluate("pagePython.run('while True:\\n    pass')")
    assert answer["error"] == {"type": "TimeoutError", "message": "stopped after 5 seconds", "line": None}
    assert answer["fresh"] and 4900 < page.evaluate("performance.now() - began") < 8000
    assert run(page, "import torch\nprint(torch.ones(2))")["printed"] == "tensor([1., 1.])\n"


def test_what_is_stopped_answers_at_once_and_not_at_its_limit(page: Page) -> None:
    code = """async () => {
        const answer = pagePython.run("while True:\\n    pass", 600000);
        await new Promise((resolve) => setTimeout(resolve, 300));
        pagePython.stop();
        const late = new Promise((resolve) => setTimeout(resolve, 60000, null));
        return await Promise.race([answer, late]);
    }"""
    answer = page.evaluate(code)
    assert answer["error"]["type"] == "Stopped" and answer["fresh"]
    assert run(page, "print(1)")["printed"] == "1\n"


@pytest.mark.parametrize(
    "bomb",
    ["a = []\nwhile True:\n    a.append([0.5] * 100000)", "a = 'x'\nwhile True:\n    a = a + a", "a = [0.0] * 10**9"],
)
def test_memory_has_an_end(page: Page, bomb: str) -> None:
    answer = run(page, bomb)
    assert answer["error"]["type"] == "MemoryError"
    assert run(page, "import torch\nprint(torch.ones(2).sum())")["printed"] == "tensor(2.)\n"


def test_output_has_an_end(page: Page) -> None:
    answer = run(page, "for i in range(20000):\n    print('line', i)")
    assert answer["cut"] and len(answer["printed"]) == 20000 and answer["error"] is None


def test_recursion_without_end_is_an_error(page: Page) -> None:
    assert run(page, "def f(n):\n    return f(n + 1)\nf(0)")["error"]["type"] == "RuntimeError"


def test_nothing_starts_before_it_is_asked_for_and_nothing_is_fetched(opened: Callable[..., Page]) -> None:
    page = opened()
    assert page.workers == []
    run(page, "print(1)")
    assert len(page.workers) == 1
    assert [url for url in page.asked if not url.startswith(("file://", "blob:"))] == []  # type: ignore[attr-defined]
    assert [url.rsplit("/", 1)[1] for url in page.asked if url.startswith("file://")] == [
        "index.html",
        "page-python.js",
    ]  # type: ignore[attr-defined]
    for name in ("fetch", "XMLHttpRequest", "WebSocket", "importScripts"):
        assert run(page, f"import js\nprint(js.{name})")["error"] is not None or run(
            page, f"import js\nprint(js.{name})"
        )["printed"] in ("None\n", "<undefined>\n")
