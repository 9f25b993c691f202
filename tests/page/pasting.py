"""Known mistakes as code that a page's Python runs: what a set file and `graders.judge.wrong` say, written out."""

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from torch.autograd import Function

from graders.coach.source import _Writer
from graders.judge import wrong as wrong_module
from graders.judge.task import Mistake, Task
from graders.judge.wrong import HABITS

TOOLS = ("changed", "_each", "_single", "_Outside")
INSTEAD = """
class _Instead:
    def __init__(self, ctx, **others):
        object.__setattr__(self, "_ctx", ctx)
        for name in others:
            object.__setattr__(self, name, others[name])
    def __getattr__(self, name):
        return getattr(self._ctx, name)
    def __setattr__(self, name, value):
        setattr(self._ctx, name, value)
"""  # as that of graders.judge.wrong, which changes its __dict__


class _Plain(ast.NodeTransformer):
    """Leaves out annotations, docstrings and the decorators that only CPython has."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        node.decorator_list = [
            d for d in node.decorator_list if ast.unparse(d) in ("staticmethod", "classmethod", "once_differentiable")
        ]
        return self._body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list = []
        return self._body(node)

    def _body(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1:
            node.body.pop(0)
        return node  # type: ignore[no-any-return] # a node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        assert node.value is not None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or not any(isinstance(e, ast.Starred) for e in node.elts):
            return node
        name = ast.Name("tuple", ast.Load())
        parts = [
            ast.Call(name, [e.value], []) if isinstance(e, ast.Starred) else ast.Tuple([e], ast.Load())
            for e in node.elts
        ]
        return functools.reduce(lambda a, b: ast.BinOp(a, ast.Add(), b), parts)  # type: ignore[arg-type,return-value]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.keywords = [k for k in node.keywords if k.arg != "strict"]
        return node


def plain(code: str) -> str:
    """Return code without what MicroPython has not."""
    return ast.unparse(ast.fix_missing_locations(_Plain().visit(ast.parse(code))))


def _of_wrong(name: str) -> str:
    return plain(inspect.getsource(getattr(wrong_module, name)))


class Paster:
    """Writes out what a mistake is made of."""

    def __init__(self) -> None:
        self.writer = _Writer("", "", ())
        self.writer.names = {}
        self.parts: list[str] = []

    def function(self, f: Callable[..., Any], name: str) -> str:
        """Write a function of a set file, or a lambda in it, under a name; return the name."""
        module = inspect.getmodule(f)
        assert isinstance(f, FunctionType) and module is not None
        text = inspect.getsource(module)
        line = f.__code__.co_firstlineno
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Lambda) and f.__name__ == "<lambda>" and node.lineno == line:
                code = f"{name} = {ast.unparse(node)}"
            elif (
                isinstance(node, ast.FunctionDef)
                and node.name == f.__name__
                and line
                in (
                    node.lineno,
                    *(d.lineno for d in node.decorator_list),
                )
            ):
                node.name = name
                code = ast.unparse(node)
            else:
                continue
            self.parts.append(plain(self.writer.renamed(plain(code), module)))
            return name
        raise LookupError(f"{f} stands nowhere in {module.__name__}")

    def right(self, cls: type) -> str:
        """Write a class of a set file, and return its name."""
        name = f"Of{cls.__name__}"
        self.parts.append(plain(self.writer.class_(cls, name)))
        return name

    def code(self) -> str:
        """Return all that was written."""
        above = [plain(part) for part in self.writer.above]
        imports = [
            "import torch",
            "from torch import Tensor",
            "from torch.autograd.function import once_differentiable",
            *self.writer.imports,
        ]
        tools = [_of_wrong(name) for name in TOOLS]
        return "\n\n".join(["\n".join(dict.fromkeys(imports)), INSTEAD, *tools, *above, *self.parts])


def pasted(task: Task, mistake: Mistake) -> str:
    """Return code that binds ``answer`` to a mistake's operation."""
    paster = Paster()
    operation = mistake.operation
    cls = getattr(operation, "__self__", None)
    if not isinstance(cls, type):
        paster.parts.append(f"answer = {_plain_function(paster, task, mistake)}")
        return paster.code()
    chain = [c for c in cls.__mro__ if issubclass(c, Function) and c.__module__ != "torch.autograd.function"]
    dynamic = [c for c in chain if c.__module__ == wrong_module.__name__ or not _defined(c)]
    base = next(c for c in chain if c not in dynamic)
    name = paster.right(base)
    if dynamic and _is_habit(dynamic[0], mistake):
        paster.parts.append(_habit(paster, mistake, base, name))
        return paster.code()
    for at, each in enumerate(reversed(dynamic)):
        methods = {key: value.__func__ for key, value in vars(each).items() if isinstance(value, staticmethod)}
        made = [f"{key}={_method(paster, key, f, name, at)}" for key, f in methods.items()]
        paster.parts.append(f"Changed{at} = changed({name}, {', '.join(made)})")
        name = f"Changed{at}"
    paster.parts.append(f"answer = {name}.apply")
    return paster.code()


def _defined(cls: type) -> bool:
    module = inspect.getmodule(cls)
    return (
        isinstance(module, ModuleType)
        and getattr(module, cls.__name__, None) is not None
        and cls.__module__ != wrong_module.__name__
    )


def _is_habit(cls: type, mistake: Mistake) -> bool:
    functions = [f.__func__ for f in vars(cls).values() if isinstance(f, staticmethod)]
    own = [f for f in functions if f.__qualname__.startswith(("_unpacking.", "_saving.")) or f.__name__ == mistake.name]
    return mistake.name in HABITS and not own


def _habit(paster: Paster, mistake: Mistake, base: type, name: str) -> str:
    spoil = HABITS[mistake.name].spoil
    act = inspect.unwrap(spoil)
    source = inspect.getsource(act)
    paster.parts.append(plain(source))
    if "@_of_backward" in source:
        return f"answer = changed({name}, backward=lambda ctx, g: {act.__name__}({name}.backward, ctx, g)).apply"
    if "@_of_forward" in source:
        names = ", ".join(inspect.signature(base.forward).parameters)
        paster.parts.append(f"def spoiled({names}):\n    return {act.__name__}({name}.forward, {names})")
        return f"answer = changed({name}, forward=spoiled).apply"
    return f"answer = {act.__name__}({name})"


def _method(paster: Paster, key: str, f: FunctionType, name: str, at: int) -> str:
    free = dict(zip(f.__code__.co_freevars, (c.cell_contents for c in f.__closure__ or ()), strict=True))
    if f.__qualname__.startswith("_unpacking."):
        act = paster.function(free["act"], f"act{at}")
        ctx = "ctx, " if next(iter(inspect.signature(free["act"]).parameters)) == "ctx" else ""
        return f"lambda ctx, *g: {act}({ctx}*ctx.saved_tensors, *g)"
    if f.__qualname__.startswith("_saving."):
        saves = paster.function(free["saves"], f"saves{at}")
        text = f"""
            def setup{at}(ctx, inputs, output):
                def save(*tensors):
                    ctx.save_for_backward(*{saves}(*inputs, output))
                {name}.setup_context(_Instead(ctx, save_for_backward=save), inputs, output)
        """
        paster.parts.append(textwrap.dedent(text).strip())
        return f"setup{at}"
    return paster.function(f, f"{key}{at}")


def _plain_function(paster: Paster, task: Task, mistake: Mistake) -> str:
    f = mistake.operation
    if f.__qualname__.endswith(".forward"):  # no Function: the right forward alone
        cls = getattr(inspect.getmodule(f), f.__qualname__.split(".")[0])
        return f"{paster.right(cls)}.forward"
    return paster.function(f, "answer_of")
