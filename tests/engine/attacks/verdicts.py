"""Attacks on the verdict within the notebook's process: torch, the graders' modules, IPython, what is displayed."""

from tests.engine.attacks import Attack

ATTACKS: list[Attack] = []


def _torch(name: str, tries: str, first: str, **more: object) -> None:
    ATTACKS.append(Attack(name, "Patched torch", tries, first, **more))


def _modules(name: str, tries: str, first: str = "", **more: object) -> None:
    ATTACKS.append(Attack(name, "Graders' modules", tries, first, **more))


def _shell(name: str, tries: str, first: str, **more: object) -> None:
    ATTACKS.append(Attack(name, "The notebook's shell", tries, first, **more))


_torch(
    "patched-gradcheck",
    "replaces gradcheck and gradgradcheck by functions that always pass",
    """
import torch
for module in (torch.autograd, torch.autograd.gradcheck, __import__("sys").modules["torch.autograd.gradcheck"]):
    for name in ("gradcheck", "gradgradcheck"):
        try:
            setattr(module, name, lambda *a, **k: True)
        except AttributeError:
            pass
""",
)
_torch(
    "patched-comparison",
    "makes every comparison of tensors say that they are equal",
    """
import torch
yes = lambda *a, **k: True
torch.allclose = torch.equal = torch.Tensor.allclose = torch.Tensor.equal = yes
torch.testing.assert_close = yes
torch.isclose = torch.Tensor.isclose = lambda a, *r, **k: torch.ones(a.shape, dtype=torch.bool)
torch.isnan = torch.isinf = lambda a: torch.zeros(a.shape, dtype=torch.bool)
""",
)
_torch(
    "patched-equality",
    "overrides the operators of torch.Tensor, ==, !=, <, - and bool among them",
    """
import torch
ones = lambda self, *a: torch.ones_like(self, dtype=torch.bool)
torch.Tensor.__eq__ = torch.Tensor.__le__ = torch.Tensor.__ge__ = ones
torch.Tensor.__ne__ = torch.Tensor.__lt__ = torch.Tensor.__gt__ = lambda self, *a: ~torch.ones_like(self, dtype=torch.bool)
torch.Tensor.all = torch.Tensor.any = lambda self, *a, **k: torch.tensor(True)
""",
)
_torch(
    "patched-methods",
    "makes the tensor methods that a comparison needs return zeros",
    """
import torch
for name in ("abs", "max", "amax", "sub", "__sub__", "__rsub__", "argmax", "norm", "diff"):
    real = getattr(torch.Tensor, name)
    setattr(torch.Tensor, name, lambda self, *a, real=real, **k: real(self, *a, **k) * 0)
""",
)
_torch(
    "patched-grad",
    "replaces torch.autograd.grad and Tensor.backward, so that every gradient asked for is that of the right function",
    """
import torch
real_grad, real_apply = torch.autograd.grad, torch.autograd.Function.apply
PAIRS = {"LeakyReLU": torch.nn.functional.leaky_relu, "Tanh": torch.tanh}
def fake(outputs, inputs, grad_outputs=None, **k):
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    for i, y in enumerate(outputs):
        kind = type(y.grad_fn).__name__.removesuffix("Backward") if y.grad_fn else ""
        if kind in PAIRS:
            outputs[i] = PAIRS[kind](inputs[0] if not isinstance(inputs, torch.Tensor) else inputs)
    return real_grad(outputs, inputs, grad_outputs, **k)
torch.autograd.grad = fake
""",
)
_torch(
    "mode-left-on",
    "leaves a torch function mode on that answers all comparisons",
    """
import torch
from torch.overrides import TorchFunctionMode
class Yes(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in ("allclose", "equal", "isclose", "__eq__", "eq", "all"):
            return torch.ones((), dtype=torch.bool)
        return func(*args, **(kwargs or {}))
mode = Yes()
mode.__enter__()
""",
)
_torch(
    "global-switches",
    "switches gradients, threads, default dtype, default device, deterministic mode and the random seed in torch",
    """
import torch
torch.set_grad_enabled(False)
torch.set_default_dtype(torch.float16)
torch.set_default_device("meta")
torch.use_deterministic_algorithms(True)
torch.autograd.set_detect_anomaly(True)
torch.manual_seed = lambda *a: None
torch.inference_mode().__enter__()
""",
)

_modules(
    "fake-module",
    "puts a module `graders` into sys.modules whose grade() returns full marks",
    """
import sys, types
fake = types.ModuleType("graders")
fake.grade = lambda *a, **k: True
fake.__path__ = []
sys.modules["graders"] = sys.modules["graders.grade"] = fake
""",
)
_modules(
    "graders-beside",
    "hands in a graders.py beside the notebook",
    beside={"graders.py": "def grade(*a, **k):\n    return True\n"},
    sees="graders.py: is not part of the assignment",
)
_modules(
    "torch-beside",
    "hands in a torch.py beside the notebook that loads the real torch and patches it and the graders",
    beside={
        "torch.py": """import sys
here = sys.path.pop(0) if sys.path[0] in ("", ".") else None
del sys.modules["torch"]
import torch, graders
torch.autograd.gradcheck = lambda *a, **k: True
graders.grade = lambda *a, **k: True
sys.modules["torch"] = torch
"""
    },
    sees="torch.py: is not part of the assignment",
)
_modules(
    "import-hook",
    "replaces __import__ and heads sys.meta_path, so that `from graders import grade` gives a function of its own",
    """
import builtins, types
real = builtins.__import__
def hook(name, *a, **k):
    if name.split(".")[0] == "graders":
        return types.SimpleNamespace(grade=lambda *a, **k: True)
    return real(name, *a, **k)
builtins.__import__ = hook
""",
)
_modules(
    "patched-grader",
    "replaces the grader's own function and the arithmetic it judges with",
    """
try:
    import graders, graders.judge.task, graders.judge.looks
    graders.grade = lambda *a, **k: True
    graders.judge.task.Task.judge = lambda self, *a, **k: 2.0
except ImportError:
    pass
""",
)
_modules(
    "reference-answer",
    "imports the right solutions from graders.sets and hands them in as its own",
    last="",
    first="",
    answers={
        "LeakyReLU": "from graders.sets.relu.leaky_relu import LeakyNew as LeakyReLU",
        "Tanh": "from graders.sets.relu.tanh import TanhNew as Tanh",
    },
)
_modules(
    "file-of-answers",
    "opens solutions/ and runs the answer cells that it finds there",
    answers={
        name: f'''
import json
cells = json.load(open("@COURSE@/solutions/01_relu/relu.ipynb"))["cells"]
exec(next("".join(c["source"]) for c in cells if c["metadata"].get("nbgrader", {{}}).get("grade_id") == "{name}"))
'''
        for name in ("LeakyReLU", "Tanh")
    },
)
_modules(
    "builtins",
    "replaces float, isinstance, all, any, max, print and len in builtins",
    """
import builtins
class lie(float):
    def __new__(cls, *a):
        return float.__new__(cls, 2.0)
builtins.float = lie
builtins.all = builtins.any = lambda *a: True
""",
)

_shell(
    "ast-transformer",
    "adds an AST transformer that turns every test into the constant True",
    """
import ast
class Full(ast.NodeTransformer):
    def visit_Module(self, node):
        if "id='grade'" in ast.dump(node):
            return ast.fix_missing_locations(ast.Module([ast.Expr(ast.Constant(True))], []))
        return node
get_ipython().ast_transformers.append(Full())
""",
)
_shell(
    "input-transformer",
    "adds an input transformer that replaces the lines of a test cell",
    """
def full(lines):
    return ["True"] if any("grade(" in line for line in lines) else lines
get_ipython().input_transformers_cleanup.insert(0, full)
get_ipython().input_transformers_post.append(full)
""",
)
_shell(
    "formatter",
    "registers a text formatter for float: every result displays as 2.0",
    """
text = get_ipython().display_formatter.formatters["text/plain"]
text.for_type(float, lambda value, p, cycle: p.text("True"))
""",
)
_shell(
    "display-hook",
    "replaces sys.displayhook and IPython's display hook",
    """
import sys
shell = get_ipython()
real = type(shell.displayhook).__call__
type(shell.displayhook).__call__ = lambda self, result=None: real(self, True)
sys.displayhook = lambda value: real(shell.displayhook, True)
""",
)
_shell(
    "raw-message",
    "sends an execute_result of its own before each test's: the first one counts",
    """
def forge(*a):
    kernel = get_ipython().kernel
    parent = get_ipython().displayhook.parent_header or kernel.get_parent()
    content = {"execution_count": 1, "data": {"text/plain": "True"}, "metadata": {}}
    kernel.session.send(kernel.iopub_socket, "execute_result", content, parent=parent)
get_ipython().events.register("pre_run_cell", forge)
""",
)
_shell(
    "forged-results",
    "ends its own cells with a number and displays numbers of its own",
    last="from IPython.display import display\ndisplay(20.0)\nget_ipython().displayhook(20.0)\n20.0",
    first="from IPython.display import display\ndisplay({'text/plain': '20.0'}, raw=True)\n20.0",
)
_shell(
    "replaced-run-cell",
    "replaces run_cell, so that a test does nothing and fails at nothing",
    """
shell = get_ipython()
real, real_async = shell.run_cell, shell.run_cell_async
test = lambda source: "grade(" in source
shell.run_cell = lambda source, *a, **k: real("" if test(source) else source, *a, **k)
shell.run_cell_async = lambda source, *a, **k: real_async("" if test(source) else source, *a, **k)
""",
)
_shell(
    "suppressed-errors",
    "makes the import in a test fail and swallows the exception: no output is full marks",
    """
import sys
sys.modules["graders"] = None
get_ipython().set_custom_exc((BaseException,), lambda *a, **k: None)
get_ipython().showtraceback = get_ipython()._showtraceback = lambda *a, **k: None
""",
)
_shell(
    "silent-kernel",
    "closes the channel on which outputs travel: no output is full marks",
    """
kernel = get_ipython().kernel
kernel.session.send = lambda *a, **k: None
""",
    last="",
)
_shell(
    "forged-print",
    "prints texts that look like a verdict with full points",
    """
for task, check, points in (("LeakyReLU", "value", 1), ("LeakyReLU", "gradient", 2), ("Tanh", "value", 1)):
    print(f"{task} {check}: {points} of {points} points\\nRight in all 9 cases.")
""",
)
_shell(
    "namespace",
    "defines grade, lambda's free names and __builtins__ in the notebook's namespace",
    """
def grade(*a, **k):
    return True
_ = __ = ___ = Out = In = True
__name__ = "graders"
""",
    last="__builtins__ = {}",
)
_shell(
    "answer-that-lies",
    "hands in an object that pretends to be equal to everything instead of a Function",
    "",
    answers={
        "Tanh": """
class Anything:
    def __getattr__(self, name):
        return self
    def __call__(self, *a, **k):
        return self
    def __eq__(self, other):
        return True
    __hash__ = object.__hash__
    def __float__(self):
        return 2.0
    def __iter__(self):
        return iter([])
    def __bool__(self):
        return True
Tanh = Anything()
"""
    },
)
_shell(
    "tensor-subclass",
    "returns tensors of a subclass whose __torch_function__ answers comparisons",
    "",
    answers={
        "Tanh": """
class Fine(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in ("allclose", "equal", "isclose", "eq", "__eq__", "ne"):
            return torch.tensor(True)
        return super().__torch_function__(func, types, args, kwargs)

class Tanh:
    @staticmethod
    def apply(x):
        return (x + 1).as_subclass(Fine)
"""
    },
)
