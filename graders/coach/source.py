"""The source of a right solution as a student would write it: under the task's name, and with all that it needs.

A set file writes a right way as the difference from another (``class SquareCareful(SquareNew)``), under a name of its
own, with helpers that the set shares. Here the class is put together again, and what it uses is written above it.
"""

import ast
import builtins
import inspect
import io
import keyword
import sys
import textwrap
import tokenize
from collections.abc import Collection
from functools import cache
from html import escape
from types import FunctionType, ModuleType
from typing import Any

from torch.autograd import Function

OWN = "graders."  # what is written out; all else is imported
ORDER = ("forward", "setup_context", "backward")
PRE = (
    "margin:4px 0;padding:8px;border:1px solid rgba(128,128,128,.45);border-radius:3px;background:transparent;"
    "color:inherit;overflow-x:auto;white-space:pre"
)


def written(thing: Any, name: str, call: str, known: Collection[str] = ()) -> str:
    """Return a class or a function of a set file as code that stands alone, under another name.

    Args:
        thing: a right solution.
        name: what it is to be called.
        call: how the task's text calls it: where that is a function, a class gets one around it.
        known: names that the reader has: the other tasks of the set.
    """
    if isinstance(thing, type) and ".apply(" not in call:
        writer = _Writer(thing.__name__, thing.__name__, known)
        given = call[call.index("(") + 1 : -1]
        passed = ", ".join(part.partition("=")[0] for part in given.split(", "))
        around = f"def {name}({given}):\n    return {thing.__name__}.apply({passed})"
        body = f"{writer.class_(thing, thing.__name__)}\n\n\n{around}"
    else:
        writer = _Writer(thing.__name__, name, known)
        body = writer.class_(thing, name) if isinstance(thing, type) else writer.function(thing)
    return "\n\n\n".join(filter(None, ["\n".join(sorted(writer.imports, key=_import_order)), *writer.above, body]))


def _import_order(line: str) -> tuple[bool, str]:
    return line.startswith("from"), line


class _Writer:
    """Collects what stands above a solution.

    Args:
        old, new: the solution's name in the set file, and here.
        known: names that the reader has.
    """

    def __init__(self, old: str, new: str, known: Collection[str]) -> None:
        self.names = {old: new}
        self.imports: dict[str, None] = {}
        self.above: list[str] = []
        self.done: set[str] = set(known)

    def class_(self, thing: type, name: str) -> str:
        """Return a class with the methods that it inherits from others of the set files written in."""
        own = [c for c in thing.__mro__ if c.__module__.startswith(OWN)]
        if not issubclass(thing, Function):
            head = f"class {name}:"
        else:
            head = f"class {name}(torch.autograd.Function):"
            self.imports["import torch"] = None
        self.names |= {c.__name__: name for c in own}
        parts: dict[str, tuple[str, ModuleType]] = {}
        for c in reversed(own):
            module = sys.modules[c.__module__]
            text, node = _definition(module, c.__name__)
            assert isinstance(node, ast.ClassDef)
            for statement in node.body:
                if _is_docstring(statement):
                    continue
                key = getattr(statement, "name", ast.unparse(statement))
                parts[key] = (_segment(text, statement), module)
        order = sorted(parts, key=lambda key: ORDER.index(key) if key in ORDER else -1)
        bodies = [self.renamed(*parts[key]) for key in order]
        return f"{head}\n{textwrap.indent(f'{chr(10)}{chr(10)}'.join(bodies), '    ')}"

    def function(self, thing: FunctionType) -> str:
        """Return a function without its decorators of the set files and its docstring."""
        module = sys.modules[thing.__module__]
        text, node = _definition(module, thing.__name__)
        return self.renamed(_undocumented(_segment(text, node)), module)

    def renamed(self, code: str, module: ModuleType) -> str:
        """Return code under the new names; what it uses of its module is written above, or imported."""
        tree = ast.parse(code)
        for node in _free(tree):
            if node not in self.names:
                self._needed(node, module)
        places = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in self.names]
        heads = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name in self.names]
        lines = code.encode().split(b"\n")
        spots = [(n.lineno, n.col_offset, n.id) for n in places]
        for n in heads:
            skip = b"def " if isinstance(n, ast.FunctionDef) else b"class "
            spots.append((n.lineno, lines[n.lineno - 1].index(skip) + len(skip), n.name))
        for row, column, old in sorted(spots, reverse=True):
            line = lines[row - 1]
            lines[row - 1] = line[:column] + self.names[old].encode() + line[column + len(old.encode()) :]
        return b"\n".join(lines).decode()

    def _needed(self, name: str, module: ModuleType) -> None:
        """Write above what a name of a module stands for, or import it."""
        if name in self.done or hasattr(builtins, name) or not hasattr(module, name):
            return
        self.done.add(name)
        text, tree = _read(module)
        for statement in tree.body:
            if isinstance(statement, ast.Import | ast.ImportFrom) and name in map(_bound, statement.names):
                self._imported(name, statement)
                return
        found = _definition(module, name)[1]
        if isinstance(found, ast.ClassDef):
            self.above.append(self.class_(getattr(module, name), name))
        elif isinstance(found, ast.FunctionDef):
            self.above.append(self.renamed(_segment(text, found), module))
        else:
            self.above.append(self.renamed(_assigned(text, found, name), module))

    def _imported(self, name: str, statement: ast.Import | ast.ImportFrom) -> None:
        alias = next(a for a in statement.names if _bound(a) == name)
        renamed = f" as {alias.asname}" if alias.asname else ""
        if isinstance(statement, ast.Import):
            self.imports[f"import {alias.name}{renamed}"] = None
        elif not (statement.module or "").startswith(OWN):
            self.imports[f"from {statement.module} import {alias.name}{renamed}"] = None
        else:
            origin = sys.modules[statement.module or ""]
            self.done.discard(alias.name)
            self._needed(alias.name, origin)


def _bound(alias: ast.alias) -> str:
    """Return the name that an import binds."""
    return alias.asname or alias.name.split(".")[0]


def _free(tree: ast.Module) -> list[str]:
    """Return the names that code loads, in order; those that it binds itself are no names of its module's."""
    names = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return list(dict.fromkeys(names))


@cache
def _read(module: ModuleType) -> tuple[str, ast.Module]:
    text = inspect.getsource(module)
    return text, ast.parse(text)


def _definition(module: ModuleType, name: str) -> tuple[str, ast.stmt]:
    """Return a module's text, and the statement in it that binds a name."""
    text, tree = _read(module)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef) and statement.name == name:
            return text, statement
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(n, ast.Name) and n.id == name for t in targets for n in ast.walk(t)):
                return text, statement
    raise LookupError(f"{module.__name__} does not define {name}")


def _segment(text: str, node: ast.stmt) -> str:
    """Return the lines of a statement, its decorators with it but those of the set files, from the left margin."""
    lines = text.splitlines()
    body = lines[node.lineno - 1 : node.end_lineno]
    above = []
    for decorator in getattr(node, "decorator_list", []):
        if not ast.unparse(decorator).partition("(")[0].endswith((".solution", ".mistake")):
            above += lines[decorator.lineno - 1 : decorator.end_lineno]
    return textwrap.dedent("\n".join([*above, *body]))


def _assigned(text: str, node: ast.stmt, name: str) -> str:
    """Return the assignment of one name; of ``A, B = 1, 2`` its own part."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
        for target, value in zip(node.targets[0].elts, node.value.elts, strict=True):
            if isinstance(target, ast.Name) and target.id == name:
                return f"{name} = {ast.unparse(value)}"
    return _segment(text, node)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _undocumented(code: str) -> str:
    """Return a function without its docstring, which is shown above it."""
    (node,) = ast.parse(code).body
    first = node.body[0]  # type: ignore[attr-defined]
    if not _is_docstring(first):
        return code
    lines = code.splitlines()
    del lines[first.lineno - 1 : first.end_lineno]
    return "\n".join(lines)


def highlighted(code: str) -> str:
    """Return code as HTML: keywords bold, comments and texts slanted, in the colour of the page around it."""
    lines = code.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    parts, at = [], 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        said = escape(token.string)
        if token.type == tokenize.NAME and keyword.iskeyword(token.string):
            said = f"<b>{said}</b>"
        elif token.type in (tokenize.COMMENT, tokenize.STRING):
            said = f'<i style="opacity:.8">{said}</i>'
        else:
            continue
        parts += [escape(code[at:start]), said]
        at = end
    return f'<pre style="{PRE}">{"".join(parts)}{escape(code[at:])}</pre>'
