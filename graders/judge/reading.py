"""A look at the syntax tree of a submission, for the checks that forbid something.

What torch runs is refused at the dispatcher. Here is looked for what the dispatcher does not see: other libraries, what
Python computes with its own numbers, and whatever could lift the refusal. Only the code that an answer reaches counts,
but for the last (`graders.judge.lifting`), which counts wherever it stands. Whoever hides a name well enough is not
seen; a person has to look.
"""

import ast
import re
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache

from graders.judge.cells import LOCKED, SEPARATOR, Book, read_cell
from graders.judge.looks import Forbids
from graders.judge.paths import Answers, TooLong, Use, called, dotted, imports, listed, quoted, root_of, shallow, within

MAX_TEXT = 1_000_000  # characters
# elsewhere harmless, but what these make or start is not the code that is read
ELSEWHERE = listed("""
    torch.jit torch.compile torch.compiler torch.export torch.fx torch.multiprocessing torch.hub torch.package
    torch.load
    subprocess multiprocessing concurrent.futures asyncio socket urllib http ssl pty os shutil runpy pkgutil importlib
    code pickle dill cloudpickle joblib builtins.open builtins.globals builtins.vars
""")
IN_ANSWERS = " That could hide what runs: it is refused in an answer."
# what differentiates for its caller, in a backward that is to do it itself
DERIVING = listed("torch.func torch.autograd.functional torch.autograd.forward_ad torch.autograd.Variable")
CONSTANTS = listed("pi e tau inf nan newaxis ndarray number floating integer dtype bool_ euler_gamma")
SHAPES = listed("shape ndim dtype device itemsize layout")
SIZES = listed("size dim numel nelement element_size ndimension stride is_floating_point")
OWN = ("self", "cls", "ctx")
# what IPython has among a notebook's names; what else no cell defines was put there by code that is not read
PRESENT = listed("display get_ipython __name__ __doc__ __file__ __builtins__")


def joined(cells: Iterable[str], locked: Collection[str] = ()) -> str:
    """Return the text of cells as `forbidden` takes it.

    Args:
        cells: in the order in which they ran.
        locked: those of the course: their names count, and what else they use is no student's doing.
    """
    sound = [cell for cell in cells if SEPARATOR not in cell]  # Python compiles none that holds it
    marked = [(LOCKED if cell in locked else "") + cell.replace(LOCKED, "$") for cell in sound]  # no Python, as it was
    return SEPARATOR.join(marked)


@lru_cache(maxsize=100)  # the checks of a task ask one after the other
def forbidden(source: str, answer: str, forbids: Forbids) -> Use | None:
    """Return the first thing in the submission that the task forbids.

    Args:
        source: the cells, `joined`.
        answer: the name asked for.
        forbids: what may not be there.
    """
    if len(source) > MAX_TEXT:
        return Use("is too long to be read")
    try:
        cells = [cell for text in source.split(SEPARATOR) if (cell := read_cell(text)) is not None]
        return next((cell.lift for cell in cells if cell.lift), None) or _reached(Book(cells), answer, forbids)
    except RecursionError:
        return Use("is nested too deeply to be read")
    except TooLong:
        return Use("is too long to be read")


def suspect(cell: str) -> str:
    """Return what in a cell of the student's could lift a refusal, or reach the tests; "" for nothing.

    Returns:
        The end of a sentence that begins with the cell: "uses sys.modules (line 3)".
    """
    if len(cell) > MAX_TEXT or SEPARATOR in cell:
        return "is too long to be read" if len(cell) > MAX_TEXT else ""
    try:
        read = read_cell(cell.replace(LOCKED, "$"))
    except TooLong:
        return "is too long to be read"
    except RecursionError:
        return "is nested too deeply to be read"
    use = read.lift or read.strange if read else None
    return "" if use is None else use.what + (f" (line {use.line})" if use.line else "")


def _reached(book: Book, answer: str, forbids: Forbids) -> Use | None:
    """Return the first forbidden thing in the code that the answer reaches."""
    if answer not in book.bindings:
        return Use(f"cannot be found: no cell defines {answer}")
    reader, done, todo = _Reader(book, forbids), {answer}, deque([answer])
    visited: set[int] = set()  # a statement may bind many names
    while todo:
        name = todo.popleft()
        for binding in book.relevant(name):
            if id(binding.node) not in visited:
                visited.add(id(binding.node))
                reader.visit(binding.node)
            if name == answer:
                for bound, path in imports(binding.node):
                    if bound == answer:
                        reader.judge(path, binding.node)
            if use := reader.finds() or reader.stray():
                return use
        new = reader.names - done
        reader.names.clear()
        todo += sorted(new)
        done |= new
    return None


class _Reader(ast.NodeVisitor):
    """Looks through one statement for what a task forbids."""

    def __init__(self, book: Book, forbids: Forbids) -> None:
        self.book, self.forbids = book, forbids
        self.functions = frozenset(forbids.names.split())
        self.scopes: list[dict[str, list[ast.AST | str]]] = []  # per function: each name, and what it may stand for
        self._paths: list[Answers[str, str | None]] = []  # per function: what names stand for, seen from there
        self._frees: list[Answers[str, bool]] = []  # and whether they are free of the values of tensors
        self.names: set[str] = set()  # of the student's, that are used
        self.loaded: dict[str, ast.AST] = {}  # of these, those whose value is taken, and that `stray` has not seen
        self.uses: list[Use] = []
        self.taken: Use | None = None  # where tensors become Python numbers
        self.powers: Use | None = None
        self.backward = False

    def visit(self, node: ast.AST) -> None:
        """Look through a node: a step."""
        self.book.steps.take()
        super().visit(node)

    def finds(self) -> Use | None:
        """Return the first use; of Python numbers and powers of them, only both together."""
        if not self.uses and self.forbids.numbers and self.taken and self.powers:
            return replace(self.powers, what="raises Python numbers to a power")
        return self.uses[0] if self.uses else None

    def stray(self) -> Use | None:
        """Return a name that is used and that nothing defines: what it stands for was put there unseen."""
        for name, node in self.loaded.items():
            if name not in self.book.names and self.book.path(name) is None and name not in PRESENT:
                return Use(f"uses {name}, which no cell defines", *quoted(node), IN_ANSWERS)
        self.loaded.clear()
        return None

    @contextmanager
    def _within(self, names: dict[str, list[ast.AST | str]]) -> Iterator[None]:
        """Be in the scope of a function, or of a comprehension."""
        self.scopes.append(names)
        self._paths.append(Answers(None, self.book.steps))
        self._frees.append(Answers(True, self.book.steps))  # `n = n + 1`: it hangs on its other values
        yield
        for per_scope in (self.scopes, self._paths, self._frees):
            per_scope.pop()

    def _values(self, name: str) -> Iterator[ast.AST | str]:
        """Yield what a name that is local to a function may stand for."""
        for value in next(scope[name] for scope in reversed(self.scopes) if name in scope):
            self.book.steps.take()
            yield value

    def _is_local(self, name: str) -> bool:
        return any(name in scope for scope in self.scopes)

    def _lookup(self, name: str) -> str | None:
        if not self._is_local(name):
            return self.book.path(name)
        return self._paths[-1].get(name, lambda: self._local_path(name))

    def _local_path(self, name: str) -> str | None:
        for value in self._values(name):
            if isinstance(value, str):
                return value
            if isinstance(value, ast.Name | ast.Attribute) and (path := self.resolve(value)):
                return path
        return None

    def resolve(self, node: ast.AST) -> str | None:
        """Return the full name of what stands in a module."""
        known: dict[int, str | None] = {}
        path = dotted(node, self._lookup, known)
        self.book.steps.take(len(known))
        return path

    def _own(self, node: ast.AST) -> bool:
        """Return whether an attribute is of the student's own making: of a class of theirs, of ctx."""
        root = root_of(node)
        return root in OWN or (root in self.book.bindings and not self._is_local(root) and not self.book.path(root))

    def _free(self, node: ast.AST) -> bool:
        """Return whether an expression is free of the values of tensors: constants, shapes, limits of dtypes."""
        free = self._free
        self.book.steps.take()
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Name) and self._is_local(node.id):
            return self._frees[-1].get(node.id, lambda: self._free_name(node.id))
        if isinstance(node, ast.Name):
            if self.resolve(node):
                return True
            values = [isinstance(value, ast.Constant) for value in self.book.assigned(node.id)]
            return bool(values) and all(values)
        if isinstance(node, ast.Attribute):
            return node.attr in SHAPES or self.resolve(node) is not None or free(node.value)
        if isinstance(node, ast.Call):
            path = self.resolve(node.func)
            if path in ("torch.finfo", "torch.iinfo", "builtins.len"):
                return True
            if isinstance(node.func, ast.Attribute) and path is None:
                return node.func.attr in SIZES
            return path is not None and all(map(free, [*node.args, *(k.value for k in node.keywords)]))
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare | ast.IfExp | ast.Tuple | ast.List):
            return all(free(c) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr))
        if isinstance(node, ast.Subscript | ast.Starred):
            return free(node.value)
        return False

    def _free_name(self, name: str) -> bool:
        values = list(self._values(name))
        return bool(values) and all(isinstance(v, str) or self._free(v) for v in values)

    def _add(self, what: str, node: ast.AST, why: str = "") -> None:
        if not self.uses:  # only the first is told, and its text may be long
            self.uses.append(Use(what, *quoted(node), why))

    def judge(self, path: str, node: ast.AST, call: ast.Call | None = None) -> None:
        """Judge a full name, called or not."""
        parts = path.split(".")
        shown, top = call or node, parts[0]
        if (top == "torch" and self.functions.intersection(parts[1:])) or within(path, self.forbids.paths):
            self._add(f"uses {path}", shown)
        elif within(path, ELSEWHERE):
            self._add(f"uses {path.removeprefix('builtins.')}", shown, IN_ANSWERS)
        elif self.backward and (within(path, DERIVING) or path in ("torch.autograd.grad", "torch.autograd.backward")):
            self._add(f"calls {path} in backward", shown)
        elif self._foreign(top, path) and not (
            parts[-1] in CONSTANTS or re.fullmatch(r"u?int\d+|float\d+", parts[-1])
            if call is None
            else self._free_call(call) and top != "matplotlib"  # of which a part made of constants computes too
        ):
            self._add(f"uses {top}", shown)

    def _foreign(self, top: str, path: str) -> bool:
        if self.forbids.numbers and top in ("math", "cmath", "decimal", "statistics", "fractions"):
            return True
        return self.forbids.foreign and top not in ("torch", "", *sys.stdlib_module_names)

    def _free_call(self, call: ast.Call) -> bool:
        return all(map(self._free, [*call.args, *(k.value for k in call.keywords)]))

    def visit_Name(self, node: ast.Name) -> None:
        if not self._is_local(node.id):
            self.names.add(node.id)
            if isinstance(node.ctx, ast.Load):
                self.loaded.setdefault(node.id, node)
        if isinstance(node.ctx, ast.Load) and (path := self.resolve(node)):
            self.judge(path, node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if path := self.resolve(node):
            self.judge(path, node)
            self._use(node)
            return
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):  # of `a.b.c` that is in no module, `a.b` is in none either
            inner = inner.value
        self.visit(inner)

    def _use(self, node: ast.AST) -> None:
        """Note the student's own name that a path begins with: ``f = torch.exp`` and then ``f(x)``."""
        if (root := root_of(node)) and not self._is_local(root):
            self.names.add(root)
            self.loaded.setdefault(root, node)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Do nothing: an import is judged where its name is used."""

    visit_ImportFrom = visit_Import

    def visit_Call(self, node: ast.Call) -> None:
        path, inside = self.resolve(node.func), [*node.args, *(k.value for k in node.keywords)]
        if path == "builtins.print":
            return
        if whole := self.resolve(node):  # getattr(torch, "sigmoid")
            self.judge(whole, node)
        if path:
            self._use(node.func)
            self.judge(path, node.func, node)
            if path in ("builtins.float", "builtins.complex", "builtins.int") and not self._free_call(node):
                self.taken = self.taken or Use("", *quoted(node))
            if path == "builtins.pow" and len(node.args) > 1 and not self._free(node.args[1]):
                self.powers = self.powers or Use("", *quoted(node))
        elif isinstance(node.func, ast.Attribute):
            self._method(node, node.func)
            self.visit(node.func.value)
        else:
            self.visit(node.func)
        for part in inside:
            self.visit(part)

    def _method(self, node: ast.Call, method: ast.Attribute) -> None:
        if self._own(method.value):
            return
        if method.attr in self.functions:
            self._add(f"uses .{method.attr}()", node)
        elif method.attr == "backward" and self.backward and len(node.args) < 2 and not called(method.value, "super"):
            self._add("calls .backward() in backward", node)
        elif method.attr in ("numpy", "__array__") and self.forbids.foreign:
            self._add("hands its numbers to numpy", node)
        elif method.attr == "tolist" and self.forbids.numbers and not self._free(method.value):
            self._add("computes with Python numbers", node)
        elif method.attr in ("item", "__float__"):
            self.taken = self.taken or Use("", *quoted(node))

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Pow) and not self._free(node.right):
            self.powers = self.powers or Use("", *quoted(node))
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        for part in [*getattr(node, "decorator_list", []), *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(part)
        was, name = self.backward, getattr(node, "name", "")
        self.backward = was or (self.forbids.backward and name in ("backward", "vjp"))
        with self._within(_local(node)):
            for part in node.body if isinstance(node.body, list) else [node.body]:
                self.visit(part)
        self.backward = was

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        names: dict[str, list[ast.AST | str]] = {
            n.id: [] for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)
        }
        with self._within(names):
            self.generic_visit(node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)


def _local(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> dict[str, list[ast.AST | str]]:
    """Return a function's local names: parameters (of which nothing is known), imports, and what else is assigned."""
    args = [a for a in ast.walk(function.args) if isinstance(a, ast.arg)]
    found: dict[str, list[ast.AST | str]] = {a.arg: [] for a in args}
    unknown, shared = set(found), set()
    body = function.body if isinstance(function.body, list) else []
    for node in (n for statement in body for n in shallow(statement)):
        if isinstance(node, ast.Global | ast.Nonlocal):
            shared |= set(node.names)
        for name, path in imports(node):
            if name:
                found.setdefault(name, []).append(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.setdefault(node.name, []).append(node)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                        found.setdefault(part.id, []).append(node.value)
        elif isinstance(node, ast.NamedExpr | ast.AugAssign | ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).extend([node.value] if node.value else [])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            unknown.add(node.name)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.With | ast.AsyncWith):
            targets = [getattr(node, "target", None), *(i.optional_vars for i in getattr(node, "items", []))]
            unknown |= {n.id for t in filter(None, targets) for n in ast.walk(t) if isinstance(n, ast.Name)}
    for name in unknown:  # a loop's, a with's, a parameter's
        found[name] = [v for v in found.get(name, []) if isinstance(v, str)]
    return {name: values for name, values in found.items() if name not in shared}
