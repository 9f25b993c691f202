"""What the text of a submission shows of what a task forbids: attacks are refused, and nobody else."""

import ast
import json
import re
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import graders.sets
from graders.inside.operation import Operation, local
from graders.inside.records import Case, Failure, Record
from graders.judge.looks import OBSERVED, Forbids
from graders.judge.reading import MAX_TEXT, Use, forbidden, joined
from graders.judge.task import Task
from graders.sets import load

ROOT = Path(__file__).resolve().parents[2]
SETS = graders.sets.names()
NOTEBOOKS = {s: next(ROOT.glob(f"solutions/*/{s}.ipynb")) for s in SETS}
SIGMOID = load("sigmoid")["Sigmoid"].forbids
RIGHT = """
class Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(x):
        e = torch.exp(-x.abs())
        return torch.where(x >= 0, 1 / (1 + e), e / (1 + e))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * (1 - y)
"""


def found(*cells: str, name: str = "Sigmoid", locked: tuple[str, ...] = ()) -> str:
    """What is found in the cells: "" where nothing is."""
    use = forbidden(joined([*locked, *cells], locked), name, SIGMOID)
    return f"{use.sentence} {use.text}" if use else ""


def with_exp(code: str) -> str:
    """The right answer with other code in the place of its exponential."""
    return RIGHT.replace("torch.exp(-x.abs())", code)


# --- innocent ---------------------------------------------------------------------------------------------------------

DUAL = "torch.autograd.forward_ad.make_dual(y, g)"
INNOCENT = {
    "numpy beside it": "import numpy as np\nx = np.linspace(-3, 3)\nprint(np.abs(Sigmoid.apply(torch.tensor(x))))",
    "np.testing": "import numpy\nnumpy.testing.assert_allclose(Sigmoid.apply(torch.ones(2)).numpy(), 0.731, atol=1e-3)",
    "an equation called F": "def residual(E, e, m):\n    F = E - e * E.sin() - m\n    return F\nnn = 3",
    "a helper called math": "def math(x):\n    return x + 1\nmath(2)",
    "a variable called sigmoid": "sigmoid = Sigmoid.apply\nprint(sigmoid(torch.zeros(3)))",
    "item for a plot": "ys = [Sigmoid.apply(t).item() ** t.item() for t in torch.linspace(-1, 1, 5)]\nplt.plot(ys)",
    "compared with torch's": "assert torch.allclose(Sigmoid.apply(torch.ones(3)), torch.sigmoid(torch.ones(3)))",
    "magics": "%matplotlib inline\n%timeit Sigmoid.apply(torch.ones(3))\n!pip list\nSigmoid?\nfiles = !ls",
    "the same as a script has them": "from IPython import get_ipython\n"
    "get_ipython().run_line_magic('matplotlib', 'inline')\nget_ipython().system('ls')",
    "a reloader": "%load_ext autoreload\n%autoreload 2",
    "a file of its own": "%%writefile notes.py\ndef helper(x):\n    return torch.sigmoid(x)",
    "a cell that is no Python": "retrun Sigmoid",
    "display": "from IPython.display import Markdown, display\ndisplay(Markdown('fine'))",
    "a timed cell": "%%time\nSigmoid.apply(torch.ones(10))",
    "another language": "%%html\n<b>torch._C</b>",
    "colab": "import sys\nif 'google.colab' in sys.modules:\n    print(sys.version)",
    "the folder": "import os\nprint(os.getcwd(), os.environ.get('HOME'))",
    "memory": "import gc\ngc.collect()",
    "the signature": "import inspect\nprint(inspect.signature(Sigmoid.forward), inspect.getsource(Sigmoid))",
    "a comment": "# torch._C, ctypes and eval(...) are not for me\n'''exec, torch.library, sys.modules'''",
    "a syntax error": "def broken(:\n    torch._C",
    "a reference": "def reference(x):\n    return torch.special.expit(x)\nprint(reference(torch.ones(2)))",
    "a compiled copy": "fast = torch.compile(Sigmoid.apply)",
    "repeatable": "torch.backends.cudnn.deterministic = True\ntorch.manual_seed(0)",
    "a method": "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x\nprint(Net().eval())",
    "a getter": "import operator\nprint(max([(1, 2)], key=operator.itemgetter(1)))\n"
    "print(operator.attrgetter('shape')(torch.ones(2)))",
    "names in a loop": "for name in ('tanh', 'relu'):\n    print(getattr(torch, name)(torch.ones(2)))",
    "a timed call": "import timeit\nprint(timeit.timeit(lambda: Sigmoid.apply(torch.ones(9)), number=2))\n"
    "print(timeit.default_timer())",
    "a timed function": "from timeit import timeit\ndef act():\n    return 1\nprint(timeit(act, number=2))",
    "a mock": "from unittest.mock import Mock, patch\nwith patch.object(Sigmoid, 'backward', Mock()):\n    pass",
    "a reduction": "import functools\nprint(functools.reduce(lambda a, b: a + b, [1, 2]))",
    "a pattern": "import re\nre.compile('x')",
    "a first try": "import numpy as np\nclass Sigmoid:\n    def apply(x):\n        return np.exp(x)",
}


@pytest.mark.parametrize("name", INNOCENT)
def test_a_cell_beside_the_answer_costs_nothing(name: str) -> None:
    assert found("import torch", INNOCENT[name], RIGHT) == ""
    if name != "a first try":
        assert found("import torch", RIGHT, INNOCENT[name]) == ""


@pytest.mark.parametrize(
    "answer",
    [
        with_exp("torch.exp(-x.abs().clamp(max=math.log(torch.finfo(x.dtype).max)))"),
        with_exp("torch.exp(-x.abs().clamp(max=np.float64(700)))"),
        with_exp("torch.exp(x.new_full((), -math.inf) * 0 - x.abs()) ** 1"),
        with_exp("exp(-x.abs())").replace("class", "from torch import exp\nclass", 1),
        "def sigmoid(x):\n    return 1 / (1 + torch.exp(-x))\n" + with_exp("sigmoid(x)"),
        "class Own:\n    @staticmethod\n    def sigmoid(x):\n        return torch.exp(-x.abs())\n"
        + with_exp("Own.sigmoid(x)"),
        RIGHT.replace("save_for_backward(output)", "tanh = output").replace("(y,) = ctx.saved_tensors", "y = ctx.tanh"),
        RIGHT.replace("e = torch", "print(x.numpy(), np.exp(1.0))\n        e = torch"),
        RIGHT.replace("e = torch", "if x.numel() and x.max().item() > 0: pass\n        e = torch"),
        RIGHT.replace("e = torch", "math = x.abs()\n        e = torch"),
        RIGHT.replace("def forward(x)", "def forward(x: 'np.ndarray', math=None)"),
        RIGHT.replace("return g *", "n = 2\n        return g ** 1 * y ** (n - 2) *"),
        "%%time\n" + RIGHT,
        RIGHT + "Sigmoid.__doc__ = 'mine'\nsetattr(Sigmoid, 'name', 'mine')",
    ],
)  # fmt: skip
def test_an_odd_right_answer_is_let_through(answer: str) -> None:
    assert found("import torch, math\nimport numpy as np", "x = np.linspace(0, 1)", answer) == ""


def _cells(notebook: Path) -> list[tuple[str, dict]]:
    cells = [c for c in json.loads(notebook.read_text())["cells"] if c["cell_type"] == "code"]
    return [("".join(c["source"]), c["metadata"].get("nbgrader", {})) for c in cells]


def _tasks(set_name: str) -> list[Task]:
    return [t for t in load(set_name).values() if isinstance(t, Task)]


def _looked_at(task: Task, source: str, name: str = "") -> Use | None:
    return forbidden(source, name or re.split(r"\W", task.call)[0], task.forbids or OBSERVED)


@pytest.mark.parametrize("set_name", SETS)
def test_solutions_and_the_sample_class_are_let_through(set_name: str) -> None:
    cells = [(text, meta) for text, meta in _cells(NOTEBOOKS[set_name]) if not meta.get("grade")]
    locked = [text for text, meta in cells if meta.get("locked")]
    graded = [t for t in _tasks(set_name) if t in graders.sets.module(set_name).TASKS]
    for task in graded:
        assert _looked_at(task, joined([text for text, _ in cells], locked)) is None, task.name
    for student in sorted(ROOT.glob(f"sample/*/{set_name}.py")):
        blocks = re.split(r"(?m)^# %% (\w+).*\n", student.read_text())
        answers = dict(zip(blocks[1::2], blocks[2::2], strict=True))
        texts = [answers.get(meta.get("grade_id"), text) for text, meta in cells]
        uses = {t.name: use for t in graded if (use := _looked_at(t, joined(texts, locked)))}
        uses = {name: use for name, use in uses.items() if "cannot be found" not in use.what}
        # one calls the built-in, one forgot an import, and both are meant to
        meant = {("farah", "Sigmoid"), ("jun", "GradientReversal")}
        assert not uses or (student.parent.name, *uses) in meant, (student, uses)


@pytest.mark.parametrize("set_name", SETS)
def test_right_solutions_of_the_set_files_are_let_through(set_name: str) -> None:
    for task in _tasks(set_name):
        for name, solution in task.solutions.items():
            text = _alone(sys.modules[getattr(solution, "__self__", solution).__module__])
            assert _looked_at(task, joined([text], [text]), name) is None, f"{task.name} {name}"


def _alone(module: ModuleType) -> str:
    """A set's module without decorators and graders; what it has from its own set's modules stands in it."""
    body: list[ast.stmt] = []
    for node in ast.parse(Path(module.__file__).read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module.startswith(f"{module.__package__}."):
            body += ast.parse(_alone(sys.modules[node.module])).body
        elif isinstance(node, ast.ImportFrom) and node.module.startswith("graders"):
            body += ast.parse(" = ".join(a.asname or a.name for a in node.names) + " = None").body
        else:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                node.decorator_list = []
            body.append(node)
    return ast.unparse(ast.Module(body, []))


# --- attacks ----------------------------------------------------------------------------------------------------------

REACHED = {
    "numpy": ("torch.from_numpy(np.exp(-x.abs().numpy()))", "uses numpy (line 5"),
    "numpy by another name": ("n.exp(x)", "uses numpy"),
    "numpy held by a name": ("held(x)", "uses numpy"),
    "numpy of a helper": ("helper(x)", "uses numpy"),
    "numpy of a default": ("(lambda t, f=np.exp: f(t))(x)", "uses numpy"),
    "numpy handed on": ("(lambda o, n: getattr(o, n))(np, 'e' + 'xp')(x)", "uses numpy"),
    "an own name put together": ("getattr(np, 'e' + 'xp')(x)", "puts a name for getattr together"),
    "a name in pieces": ("name = 'ex' + 'p'; e = getattr(torch, name)(x)", "puts a name for getattr together"),
    "a dotted path": ("operator.attrgetter('_os.sys.modules')(random)", "puts a name for attrgetter together"),
    "a method by pieces": ("operator.methodcaller('sig' + 'moid')(x)", "puts a name for methodcaller together"),
    "a path reduced": ("functools.reduce(getattr, ['special', 'expit'], torch)(x)", "by reduce(getattr, ...)"),
    "a timed text": ("timeit.timeit('import math')", "runs a text by timeit.timeit"),
    "a patched path": ("mock.patch('torch.exp')", "patches what a text names"),
    "type hints": ("typing.get_type_hints(x)['a']", "uses typing.get_type_hints"),
    "matplotlib": ("matplotlib.scale.LogisticTransform('mask').transform_non_affine(x)", "uses matplotlib"),
    "gammaincc": ("torch.special.gammaincc(torch.ones_like(x), x)", "uses torch.special.gammaincc"),
    "ctc loss": ("torch.nn.functional.ctc_loss(x, x, x, x)", "ctc_loss"),
    "numpy imported inside": ("__import__('numpy').exp(x)", "uses __import__"),
    "its numbers": ("torch.as_tensor(1 / (1 + 2.718 ** -x.numpy()))", "hands its numbers to numpy"),
    "scipy": ("special.expit(x)", "uses scipy"),
    "scipy's name": ("expit(x)", "uses scipy"),
    "math": ("torch.tensor([math.exp(-v) for v in x.flatten()])", "uses math"),
    "math held by torch": ("torch.tensor(torch.nn.init.math.exp(-x))", "uses math"),
    "cmath": ("torch.tensor(cmath.exp(-x[0]).real)", "uses cmath"),
    "decimal": ("torch.tensor(float(decimal.Decimal(float(x)).exp()))", "uses decimal"),
    "tolist": ("torch.tensor([1 / (1 + 2.718 ** -v) for v in x.tolist()])", "Python numbers"),
    "item": ("torch.tensor(1 / (1 + 2.718 ** -x.item()))", "Python numbers to a power"),
    "float": ("torch.tensor(1 / (1 + pow(2.718, -float(x))))", "Python numbers to a power"),
    "a built-in": ("torch.sigmoid(x)", "uses torch.sigmoid (line 5"),
    "a built-in of F": ("F.silu(x)", "uses torch.nn.functional.silu"),
    "a method": ("x.abs().sigmoid()", "uses .sigmoid()"),
    "torch.special": ("torch.special.expit(x)", "uses torch.special.expit"),
    "an imported built-in": ("s(x)", "uses torch.sigmoid"),
    "a held built-in": ("kept(x)", "uses torch.sigmoid"),
    "a built-in through getattr": ("getattr(torch, 'sigmoid')(x)", "uses torch.sigmoid"),
    "a module": ("torch.nn.Sigmoid()(x)", "uses torch.nn.Sigmoid"),
    "a starred name": ("arctanh(x)", "uses numpy"),
    "torch.jit": ("torch.jit.script(f)(x)", "uses torch.jit.script"),
    "torch.compile": ("torch.compile(f)(x)", "uses torch.compile"),
    "another process": ("torch.tensor(float(subprocess.check_output(['python'])))", "uses subprocess"),
    "a file": ("torch.load('/tmp/x')", "uses torch.load"),
    "a module of one's own": ("mymodule.f(x)", "uses mymodule"),
    "names of the notebook": ("globals()['e' + 'xp'](x)", "uses globals"),
}
BEFORE = """
import functools, operator, random, timeit, typing, matplotlib.scale
from unittest import mock
import torch, math, cmath, decimal, subprocess
import numpy as np, numpy as n
from numpy import *
from scipy import special
from scipy.special import expit
from torch import sigmoid as s
import torch.nn.functional as F
import mymodule
kept = torch.sigmoid
held = np.exp
def helper(x):
    return deeper(x)
def deeper(x):
    return np.exp(x)
"""


@pytest.mark.parametrize("name", REACHED)
def test_what_the_answer_reaches_is_refused(name: str) -> None:
    code, message = REACHED[name]
    assert message in found(BEFORE, with_exp(code))
    assert found(BEFORE, RIGHT) == ""


ANYWHERE = {
    "torch.library": "torch.library.Library('aten', 'IMPL')",
    "torch._C": "from torch import _C as c",
    "torch._C by star": "from torch._C import *",
    "torch._C through getattr": "getattr(torch, '_C')",
    "torch.ops": "f = torch.ops.aten.sigmoid",
    "a dispatch mode": "from torch.utils._python_dispatch import TorchDispatchMode",
    "dynamo": "import torch._dynamo",
    "ctypes": "import ctypes as c",
    "cffi": "from cffi import FFI",
    "gc": "import gc\n[o for o in gc.get_objects()]",
    "sys.modules": "import sys\nsys.modules['graders']",
    "frames": "import sys\nsys._getframe(1)",
    "traces": "from sys import settrace",
    "a thread's trace": "import threading\nthreading.setprofile(print)",
    "inspect": "import inspect\ninspect.currentframe().f_back",
    "importlib": "import importlib\nimportlib.import_module('ct' + 'ypes')",
    "__import__": "__import__('ct' + 'ypes')",
    "exec": "exec('import ctypes')",
    "eval": "def f():\n    return eval('1')",
    "compile": "compile('1', '', 'eval')",
    "globals of a function": "f.__globals__",
    "code": "torch.autograd.grad.__code__ = (lambda *a: None).__code__",
    "closure": "f.__closure__[0].cell_contents",
    "builtins": "__builtins__",
    "subclasses": "object.__subclasses__()",
    "through getattr": "getattr(f, '__globals__')",
    "graders": "import graders.judge.task",
    "patching": "torch.exp = torch.sigmoid",
    "patching a method": "torch.Tensor.abs = f",
    "patching by setattr": "setattr(torch, 'exp', f)",
    "patching builtins": "import builtins\nbuiltins.print = f",
    "memory": "open('/proc/self/mem', 'r+b')",
    "the names of the notebook": "globals()['Sigmoid'] = f",
    "the shell": "get_ipython().run_cell('x')",
    "the shell's exec": "get_ipython().ex('Sigmoid = f')",
    "the shell's names": "get_ipython().push({'Sigmoid': f})",
    "the shell by a name": "shell = get_ipython()",
    "the shell by its module": "from IPython import get_ipython as g\ng().ex('Sigmoid = f')",
    "the shell that exit holds": "exit._ip.ex('Sigmoid = f')",
    "another file": "%run other.py",
    "another file, as one line": "run other.py",
    "another file, kept": "x = %run other.py",
    "another file, indented": "if True:\n    %run other.py",
    "another file by its function": "get_ipython().run_line_magic('run', 'other.py')",
    "a magic that is computed": "get_ipython().run_line_magic('r' + 'un', 'other.py')",
    "a macro": "%macro m 1-3",
    "another name for a magic": "%alias_magic r run",
    "a magic of one's own": "from IPython.core.magic import register_cell_magic",
    "a cell of that magic": "%%mine\nSigmoid = f",
    "a call without brackets": ",exec Sigmoid=f",
    "a stored name": "%store -r Sigmoid",
    "many magics": "%pwd\n" * 60 + "%run other.py",
    "timed": "%time f = torch._C",
    "in a timed cell": "%%time\nimport ctypes",
    "in a class": "class A:\n    class B:\n        import ctypes",
    "sys of torch": "torch.sys.modules.get('graders')",
    "code objects": "import types\ntypes.FunctionType(f, {})",
}


@pytest.mark.parametrize("name", ANYWHERE)
def test_what_could_lift_the_refusal_is_refused_anywhere(name: str) -> None:
    assert found("import torch", ANYWHERE[name], RIGHT).startswith("Your solution ")
    assert found("import torch", RIGHT, ANYWHERE[name])
    if "%%" not in ANYWHERE[name]:  # the course's own cells may
        assert found("import torch", RIGHT, locked=(ANYWHERE[name],)) == "" or name == "graders"


STRAYS = (
    "helper(x)",
    "helper.half(x)",
    "Out[2](x)",
    "_(x)",
    "(lambda: helper)()(x)",
    "[helper for _ in range(2)][0](x)",
)


@pytest.mark.parametrize("code", STRAYS)
def test_a_name_that_no_cell_defines_is_refused_in_an_answer(code: str) -> None:
    message = f"uses {re.search('helper|Out|_', code)[0]}, which no cell defines (line 5"
    assert message in found("import torch", with_exp(code))
    assert found("import torch", f"x = torch.ones(2)\n{code}", RIGHT) == ""
    for binding in (
        "helper, Out, _ = 1, 2, 3",
        "def f():\n    global helper, Out, _\n    helper = Out = _ = 1",
    ):
        assert found("import torch", binding, with_exp(code)) == ""
    assert message in found("import torch", "def f(helper, Out, _):\n    helper = Out = _ = 1", with_exp(code))


def test_a_name_with_a_type_is_an_answer_s_own() -> None:
    half = "def half(x):\n    e: torch.Tensor = {}\n    one: float\n    one = 1.0\n    return e * one"
    assert found("import torch", half.format("torch.exp(-x.abs())"), with_exp("half(x)")) == ""
    assert "sigmoid" in found("import torch", half.format("torch.sigmoid"), with_exp("half(x)"))


def test_names_of_classes_and_handlers_are_no_strays() -> None:
    inner = "class C:\n    half = 0.5\n    other = half * 2\n"
    made = "def f(x):\n" + textwrap.indent(f"{inner}return C.other * x\n", "    ")
    caught = "try:\n    one = 1\nexcept ValueError as error:\n    one = error\n"
    for cell in (f"{inner}def f(x):\n    return C.other * x\n", made, f"{caught}def f(x):\n    return one * x\n"):
        assert found("import torch", cell, with_exp("torch.exp(-f(x).abs())")) == "", cell


DECOYS = {
    "a cell that fails": (with_exp("np.exp(-x)"), "1 / 0\n" + RIGHT),
    "a name that is not there": (with_exp("np.exp(-x)"), "nothing\n" + RIGHT),
    "a base that is not there": (with_exp("np.exp(-x)"), RIGHT.replace("torch.autograd.Function", "Nothing")),
    "a condition": (with_exp("np.exp(-x)"), "if 0:" + RIGHT.replace("\n", "\n    ")),
    "a cell that never runs": (with_exp("np.exp(-x)"), RIGHT + "\0"),
    "a marked cell": ("\1" + RIGHT, with_exp("np.exp(-x)")),
    "in a function": (with_exp("np.exp(-x)"), "%%timeit\n" + RIGHT),
    "a changed method": (with_exp("np.exp(-x)").replace("Sigmoid", "Other"), RIGHT, "Sigmoid.forward = Other.forward"),
    "a set method": (RIGHT, "setattr(Sigmoid, 'forward', lambda x: np.exp(-x))"),
    "a global name": (RIGHT, "def f():\n    global Sigmoid\n    Sigmoid = np.exp\nf()"),
    "another name": (with_exp("np.exp(-x)").replace("Sigmoid", "Other"), "Sigmoid = Other"),
    "a base": (
        with_exp("np.exp(-x)").replace("Sigmoid", "Other"),
        "class Sigmoid(Other):\n    pass",
    ),
    "an unpacked name": (with_exp("np.exp(-x)").replace("Sigmoid", "Other"), "Sigmoid, other = Other, 1"),
    "an import": ("from mymodule import Sigmoid",),
    "nowhere": ("%run solution.py",),
    "in a string": ("code = 'class Sigmoid: pass'",),
}


@pytest.mark.parametrize("name", DECOYS)
def test_a_decoy_hides_nothing(name: str) -> None:
    assert found("import torch\nimport numpy as np", *DECOYS[name]).startswith("Your solution ")


def test_autograd_in_a_backward_is_refused_and_elsewhere_not() -> None:
    for code in ("torch.autograd.grad(y, y, g)[0]", "torch.func.vjp(f, y)[1](g)", "y.backward(g)", DUAL):
        assert "in backward" in found(BEFORE, RIGHT.replace("g * y", code + " * y"))
    inherited = RIGHT.replace("(torch.autograd.Function)", "(Other)").replace("g * y", "super().backward(ctx, g) * y")
    assert found(BEFORE, RIGHT.replace("Sigmoid", "Other"), inherited) == ""
    assert found(BEFORE, RIGHT, "x.backward(g)\ntorch.autograd.grad(x, x)") == ""


HARD = {
    "attributes": "x" + ".a" * 20_000,
    "sums": "x = " + "1 + " * 20_000 + "1",
    "parentheses": "x = " + "(" * 150 + ")" * 150,
    "minus signs": "x = " + "-" * 5000 + "1",
    "many names": "\n".join(f"a{i} = a{i + 1}" for i in range(3000)),
    "a circle": "a = b\nb = a\n" + with_exp("a.exp(x)"),
    "a circle inside": RIGHT.replace("e = torch.exp", "a = b\n        b = a\n        a = a + b\n        e = a.exp"),
    "doubling": RIGHT.replace(
        "e = torch",
        "".join(f"v{i} = v{i + 1} + v{i + 1}\n        " for i in range(60)) + "np.exp(v0)\n        e = torch",
    ),
    "magics": "%magic\n" * 5000,
    "null": "\0\0\1\0",
    "surrogates": "x = '\ud800'",
    "long": "#" * MAX_TEXT,
}


@pytest.mark.parametrize("name", HARD)
def test_hard_text_ends_soon(name: str) -> None:
    start = time.process_time()
    found("import torch\nimport numpy as np", RIGHT, HARD[name])
    found("import torch\nimport numpy as np", HARD[name])
    assert time.process_time() - start < 20  # it takes one; what backtracks takes hours


# --- in a verdict -----------------------------------------------------------------------------------------------------


def _asked(task: Task, source: str | None) -> Operation:
    operation = local(task.solutions["SigmoidNew"])
    operation.source = source
    return operation


def test_the_verdict_says_where_a_hiding_place_is_refused() -> None:
    assert "refused in every cell" in found("import torch", RIGHT, "torch._C")
    assert "refused in an answer" in found(BEFORE, with_exp("torch.compile(f)(x)"))
    assert "hide" not in found(BEFORE, with_exp("np.exp(x)"))


def test_the_verdict_says_what_is_asked_for_and_shows_the_line() -> None:
    task = load("sigmoid")["Sigmoid"]
    numpy = joined(["import torch\nimport numpy as np", with_exp("torch.from_numpy(np.exp(-x.abs().numpy()))")])
    for check in task.checks:
        assert task.judge(check.name, _asked(task, None)).earned == check.points
        assert task.judge(check.name, _asked(task, joined(["import torch", RIGHT]))).earned == check.points
        verdict = task.judge(check.name, _asked(task, numpy))
        if check.name in ("extremes", "allowed"):
            assert verdict.earned == 0 and verdict.message.startswith("Sigmoid is asked for from exp or expm1 alone")
            assert verdict.message.endswith("Your solution uses numpy (line 5 of its cell).")
            assert verdict.evidence == {"your code": "np.exp(-x.abs().numpy())"}
        else:
            assert verdict.earned == check.points


MERGE = """
def online_logsumexp(chunks):
    m, s = -math.inf, 0.0
    for chunk in chunks:
        high = max(m, chunk.max().item())
        s = s * math.exp(m - high) + (chunk - high).exp().sum().item()
        m = high
    return torch.tensor(m + math.log(s), dtype=chunk.dtype)
"""


def test_two_exponentials_are_a_sum_too_and_python_s_own_numbers_are_no_library() -> None:
    task = load("logsumexp")["online_logsumexp"]
    assert _looked_at(task, joined(["import math, torch", MERGE])) is None
    for merge in (
        "a + F.softplus(b - a)",
        "a - F.logsigmoid(a - b)",
        "a + torch.nn.Softplus()(b - a)",
        "np.logaddexp(a, b)",
    ):
        answer = f"def online_logsumexp(chunks):\n    a, b = chunks\n    return {merge}"
        assert _looked_at(task, joined(["import torch, numpy as np", answer])), merge


# --- what is refused is said ------------------------------------------------------------------------------------------

SETUP = (Path(__file__).parents[2] / "book/setup.md").read_text(encoding="utf-8")
REFUSED_EVERYWHERE = SETUP.partition("## What grading refuses\n")[2].partition("\n## ")[0]


def unsaid(forbids: Forbids, text: str, message: str) -> list[str]:
    """What is refused without a word in the task's text, or in the message."""
    wanted = ["other librar"] * forbids.foreign + ["torch.autograd", "torch.func"] * forbids.backward
    wanted += ["math", "own numbers"] * forbids.numbers
    wanted += [re.sub(r"(torch\.autograd\.functional|torch\.func|functorch)\.", "", path) for path in forbids.paths]
    libraries = ("another library", "other libraries", "other library")
    return [
        f"{word} in {name}"
        for word in wanted
        for name, said in (("text", text), ("message", message))
        if not (any(w in said for w in libraries) if word == "other librar" else word in said)
    ]


@pytest.mark.parametrize("set_name", SETS)
def test_whatever_is_refused_is_said_in_the_text_that_a_student_reads(set_name: str) -> None:
    cells = json.loads(NOTEBOOKS[set_name].read_text())["cells"]
    texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
    assert "../../book/setup.md#what-grading-refuses" in texts[0] and "reads your\ncells" in REFUSED_EVERYWHERE
    for task in _tasks(set_name):
        if task.forbids and task in graders.sets.module(set_name).TASKS:
            own = next(t for t in texts if t.startswith(f"## {task.name}\n"))
            forbids = replace(task.forbids, backward=task.forbids.backward and ".apply(" in task.call)
            assert unsaid(forbids, texts[0] + own + REFUSED_EVERYWHERE, forbids.says) == [], task.name


def test_what_is_left_unsaid_is_noticed() -> None:
    forbids = Forbids("", paths=("torch.ao",), foreign=True, numbers=True, backward=True)
    assert len(unsaid(forbids, "", "")) == 12 and not unsaid(Forbids(""), "", "")
    assert unsaid(forbids, "no other libraries, no math of your own numbers, no torch.func", "torch.ao and more")[
        :1
    ] == ["other librar in message"]


def test_what_the_dispatcher_refused_is_told_in_the_same_words() -> None:
    task = load("sigmoid")["Sigmoid"]
    check = task.check("allowed")
    cases, expected = task._expected(check, 0)
    refused = Record(Failure("forward", "RuntimeError", "aten::erf is refused here"), denied=("aten::erf in forward",))
    finding = task._find(check, cases, [refused], expected)
    assert finding.look == "allowed" and finding.message.startswith("Sigmoid is asked for from exp or expm1 alone")
    assert finding.message.endswith("Your solution runs aten::erf in forward.") and isinstance(cases[0], Case)
