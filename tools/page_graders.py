"""The graders' own code as modules for the page's Python: what observes an answer, finds fault with it, and names it.

Nothing of the graders is written a second time for the page. `modules` takes the functions that the page needs out of
the package, with all that they rest on, and writes them as MicroPython reads them: without annotations and docstrings,
data classes spelled out, f-strings put together by hand. What rests on torch's inside or on the machine comes from
``book/_page/seam.py`` instead (`SEAM`).

``python -m tools.page_graders`` prints the modules.
"""

import ast
import functools
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOOKED = {  # the looks that the page has
    "graders.judge.looks": [
        *("runs", "returns", "shape", "dtype", "value", "exact", "precise", "function", "gradient", "sound"),
        *("second_order", "untouched", "stateless", "guarded"),
    ],
    "graders.sets.ste.common": ["output_is_free"],
    "graders.sets.clipped_relu.common": ["keeps_nan"],
}
LOOKS = {name: module for module, names in LOOKED.items() for name in names}
PAGE = Path(__file__).parent.parent / "book" / "_page"
ROOTS = LOOKED | {  # what the page asks for
    "graders.inside.observe": ["observe"],
    "graders.inside.records": ["Case", "Failure", "Helper", "Record"],
    "graders.judge.task": ["Check", "Mistake", "Task"],
    "graders.coach.session": ["FAILS", "HOLDS", "WAITS", "_said"],
}
METHODS = {  # of these classes no others; of the rest, all
    "Task": [
        *("check", "judge", "_found", "_judge", "find", "_find", "_seen", "_known", "_fits", "_failing", "_blamed"),
        *("_smallest_first", "_explained", "_by_this_look", "_recognise", "_telling", "_resembled"),
    ],
    "Verdict": [],
    "Case": [],
    "Failure": [],
    "Step": ["message"],
}
SEAM = {  # what stands in seam.py in its place, with the reason
    "graders.inside.observe": [
        *("_provided", "_disabled", "_noted", "surroundings"),  # no helpers, nothing denied, no autocast
        "_trace",  # what is kept in memory
        *("told", "_part"),  # Python's words for an error, and the part of a Function, are the page's to know
        *("_custom", "_nodes", "_odd", "ENGINE", "STUDENT_ERRORS"),  # nodes, tensors and engine of the page's torch
    ],
    "graders.inside.pristine": ["pristine", "ended_modes", "settings"],  # torch's global settings
    "graders.inside.wire": ["copy_of", "inexact", "WireError"],
    "graders.inside": ["helpers"],
    "graders.judge.half": ["kept", "whole"],  # points
    "graders.judge.outside": ["OUTSIDE"],
    "graders.judge.script": ["tensors"],
    "graders.coach.links": ["link"],
}
ATTRIBUTES = {"_backward_hooks": "_hooks_of", "_post_accumulate_grad_hooks": "_hooks_of"}  # of a tensor: likewise
TORCH = ["nonzero", "median", "is_complex", "roll"]  # methods that the page's torch has not: functions of the seam
NAMES = ["removeprefix"]  # methods of texts that MicroPython has not: likewise


@functools.cache
def _parsed(module: str) -> tuple[dict[str, ast.stmt], dict[str, tuple[str, str]]]:
    """Return what a module defines, by name, and what it imports: where from, and under which name there."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    defined: dict[str, ast.stmt] = {}
    imported: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                defined |= {n.id: node for n in ast.walk(target) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            defined[node.target.id] = node
        elif isinstance(node, ast.Import):
            imported |= {a.asname or a.name.split(".")[0]: (a.name, "") for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {a.asname or a.name: (node.module, a.name) for a in node.names}
    return defined, imported


class _Plain(ast.NodeTransformer):
    """Writes code as MicroPython reads it."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        keep = METHODS.get(node.name)
        node.body = [s for s in node.body if not isinstance(s, ast.FunctionDef) or keep is None or s.name in keep]
        node.body = [s for s in node.body if not isinstance(s, ast.FunctionDef) or s.name != "__post_init__"]
        decorators = {ast.unparse(d).split("(")[0] for d in node.decorator_list}
        bases = {ast.unparse(base) for base in node.bases}
        if "NamedTuple" in bases:
            names = [s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
            return ast.parse(f"{node.name} = namedtuple({node.name!r}, {tuple(names)!r})").body[0]
        if "dataclass" in decorators:
            node.body = [*_made(node), *(s for s in node.body if not isinstance(s, ast.AnnAssign))]
        node.decorator_list = []
        return self._body(node)

    def _body(self, node: Any) -> ast.AST:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            node.body = node.body[1:] or [ast.Pass()]
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        assert node.value is not None
        return ast.Assign([node.target], node.value)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return ast.Pass()

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        return self._unpacked(node, "tuple")

    def visit_List(self, node: ast.List) -> ast.AST:
        return self._unpacked(node, "list")

    def _unpacked(self, node: ast.Tuple | ast.List, kind: str) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or not any(isinstance(e, ast.Starred) for e in node.elts):
            return node
        parts: list[ast.expr] = [
            _call(kind, e.value) if isinstance(e, ast.Starred) else type(node)([e], ast.Load()) for e in node.elts
        ]
        return functools.reduce(lambda a, b: ast.BinOp(a, ast.Add(), b), parts)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        return _call("_joined", *(_field(part) for part in node.values))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr == "__getitem__":
            return _call("_item_of", node.value)
        return _call(ATTRIBUTES[node.attr], node.value) if node.attr in ATTRIBUTES else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.left, ast.Call) and ast.unparse(node.left.func).endswith(".keys"):
            node.left = _call("set", node.left)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.slice, ast.Slice) and node.slice.step and not node.slice.lower and not node.slice.upper:
            return _call("_every", node.value, node.slice.step)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.keywords = [k for k in node.keywords if k.arg != "strict"]
        if isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            node.args[1] = _kinds(node.args[1])
        if isinstance(node.func, ast.Name) and node.func.id == "float":
            return _call("_float", *node.args)
        if isinstance(node.func, ast.Attribute):
            owner, name = node.func.value, node.func.attr
            if isinstance(owner, ast.Name) and owner.id in ("int", "float") and name in ("__abs__", "__add__"):
                return _call(name.strip("_") if name == "__abs__" else "_added", *node.args)
            if name in TORCH or name in NAMES:
                return _call(f"_{name}", owner, *node.args)
            if ast.unparse(node.func) == "dict.fromkeys":
                return _call("_once", *node.args)
            if name == "data_ptr" and isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute):
                return _call("_memory", owner.func.value)
        return node


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def _kinds(node: ast.expr) -> ast.expr:
    """Return the types of ``A | B`` as a tuple."""
    if not isinstance(node, ast.BinOp):
        return node
    left = _kinds(node.left)
    return ast.Tuple([*(left.elts if isinstance(left, ast.Tuple) else [left]), node.right], ast.Load())


def _field(part: ast.expr) -> ast.expr:
    """Return a part of an f-string as an expression; a format is applied by `seam._formatted`."""
    if not isinstance(part, ast.FormattedValue):
        return part
    if part.conversion == ord("r"):
        return _call("repr", part.value)
    if part.format_spec is None:
        return part.value
    (spec,) = part.format_spec.args if isinstance(part.format_spec, ast.Call) else (part.format_spec,)
    return _call("_formatted", part.value, spec)


def _made(node: ast.ClassDef) -> list[ast.stmt]:
    """Return the fields of a data class and the ``__init__`` that takes them."""
    names, takes, does = [], [], []
    for s in node.body:
        if not isinstance(s, ast.AnnAssign) or not isinstance(s.target, ast.Name):
            continue
        name = s.target.id
        names.append(name)
        default = None if s.value is None else ast.unparse(s.value)
        if isinstance(s.value, ast.Call):  # field(...)
            given = {k.arg: ast.unparse(k.value) for k in s.value.keywords}
            default = given.get("default", "None")
            made = given.get("default_factory")
            value = f"{made}() if {name} is None else {name}" if made else name
        else:
            value = name
        takes.append(name if default is None else f"{name}={default}")
        does.append(f"    self.{name} = {value}")
    code = f"_fields = {tuple(names)!r}\ndef __init__(self, {', '.join(takes)}):\n" + "\n".join(does)
    return ast.parse(code).body


def _plain(node: ast.stmt) -> ast.stmt:
    """Return a definition as MicroPython reads it."""
    copy = ast.parse(ast.unparse(node)).body[0]
    return ast.fix_missing_locations(_Plain().visit(copy))


def _used(node: ast.AST) -> Iterator[str]:
    """Yield the names that a definition uses, and those of modules with what is taken from them: ``look.describe``."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            yield f"{part.value.id}.{part.attr}"


def _is_module(name: str) -> bool:
    try:
        return inspect.ismodule(importlib.import_module(name))
    except ImportError:
        return False


def named(module: str) -> str:
    """Return what a module is called in the page: ``graders_judge_looks``."""
    return module.replace(".", "_")


def modules() -> dict[str, str]:
    """Return the modules by file.

    Raises:
        KeyError: what `ROOTS` names is no longer there.
    """
    wanted = [(module, name) for module, names in ROOTS.items() for name in names]
    bodies: dict[str, dict[str, ast.stmt]] = {}  # by module and name
    lines: dict[str, dict[str, str]] = {}  # its imports, by the name that it uses
    while wanted:
        module, name = wanted.pop()
        defined, imported = _parsed(module)
        body, own = bodies.setdefault(module, {}), lines.setdefault(module, {})
        if name in body:
            continue
        body[name] = made = _plain(defined[name])
        for used in _used(made):
            owner, _, part = used.partition(".")
            if owner in SEAM.get(module, ()):
                own[owner] = f"from seam import {owner}"
            elif not part and owner in defined and owner != name:
                wanted.append((module, owner))
            elif owner in imported and owner not in defined:
                source, there = imported[owner]
                inner = f"{source}.{there}"
                if there in SEAM.get(source, ()) or not source.startswith("graders"):
                    own[owner] = f"from seam import {there or source}" + f" as {owner}" * (owner != (there or source))
                elif _is_module(inner):
                    own[owner] = f"import {named(inner)} as {owner}"
                    wanted += [(inner, part)] if part else []
                else:
                    own[owner] = f"from {named(source)} import {there}" + f" as {owner}" * (owner != there)
                    wanted.append((source, there))
    return {f"{named(module)}.py": _written(module, body, lines[module]) for module, body in bodies.items()}


def files() -> dict[str, str]:
    """Return all files of the page's coach: the graders' modules, what they rest on, and the coach."""
    own = {name: (PAGE / name).read_text(encoding="utf-8") for name in ("seam.py", "coach.py")}
    return modules() | own


@functools.cache
def _helpers() -> frozenset[str]:
    """Return the functions of the seam that stand for what MicroPython or the page's torch has not."""
    tree = ast.parse((PAGE / "seam.py").read_text(encoding="utf-8"))
    imported = [a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names]
    own = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("_")]
    return frozenset([*own, *(name for name in imported if name == "namedtuple")])


def _written(module: str, body: dict[str, ast.stmt], lines: dict[str, str]) -> str:
    """Return a module's text, its definitions in the order of the graders' file."""
    defined = _parsed(module)[0]
    order = list(dict.fromkeys(id(node) for node in defined.values()))
    texts = {id(defined[name]): ast.unparse(node) for name, node in body.items()}
    used = {name for node in body.values() for name in _used(node)}
    tools = sorted((used & _helpers()) - defined.keys() - lines.keys())
    head = sorted({*lines.values(), *([f"from seam import {', '.join(tools)}"] if tools else [])})
    return "\n".join([*head, *(texts[key] for key in order if key in texts), ""])


if __name__ == "__main__":
    for path, text in modules().items():
        print(f"# {path}\n{text}")
