"""The cells of a submission as a reader takes them: without magics, with the names that each binds."""

import ast
import builtins
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from graders.judge.lifting import lifts, strange
from graders.judge.paths import USUAL, Answers, Steps, TooLong, Use, dotted, held, imports, root_of, shallow

SEPARATOR, LOCKED = "\0", "\1"  # between cells, and before a locked one
MAX_MAGICS = 50  # lines of a cell: IPython reads the whole cell anew for each
MAX_REREAD = 200_000  # characters that it reads so, all together: two seconds
EVERYWHERE = " That could hide what runs: it is refused in every cell."
MAGIC = re.compile(r"%%(time|capture|prun|timeit)\b")  # cell magics that run the cell's own code
# and those of files, pages, other processes
APART = re.compile(
    r"%%(writefile|file|html|svg|latex|markdown|javascript|js|bash|sh|script|sx|system|!|perl|ruby|python[23]?|pypy)\b",
    re.IGNORECASE,
)
TIMED = re.compile(r"(\s*)%(?:time|timeit|prun)\s+(?:-\S+\s+)*(.*)")
ASSIGNED = re.compile(r"=[\s\\]*[%!]")  # a name is given what a magic or a command returns
HIDING = re.compile(r"\s*%?(run|macro|load|loadpy|edit|store|alias_magic|rerun|recall|rep|load_ext)\b")


@dataclass(frozen=True)
class Binding:
    """A statement that gives a name its value, or changes what it stands for."""

    name: str
    node: ast.stmt
    certain: bool  # it ran, whatever stood before it


@dataclass(frozen=True)
class Cell:
    """What a cell does to names.

    Attributes:
        bindings: its statements that bind.
        paths: the names that it imports, with what they stand for.
        names: all names that anything in it binds.
        lift: what in it could lift a refusal.
        strange: what else in it no exercise needs.
    """

    bindings: list[Binding]
    paths: list[tuple[str, str]]
    names: frozenset[str]
    lift: Use | None
    strange: Use | None = None


@lru_cache(maxsize=1000)  # most cells are the same in a whole class
def read_cell(text: str) -> Cell | None:
    """Read a cell without its magics; return None if it cannot have run, or is not Python."""
    lines, certain, locked = text.removeprefix(LOCKED).split("\n"), True, text.startswith(LOCKED)
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        magic = MAGIC.match(lines[first])
        if not magic:
            hides = not locked and not APART.match(lines[first])
            return _hiding(lines[first], first) if hides else None
        certain = magic[1] != "timeit"  # which runs it in a function
        lines[first] = ""
    magics = [line for line in lines if line.lstrip()[:1] in tuple("%!?,;/") or line.rstrip().endswith("?")]
    if len(magics) > MAX_MAGICS and not locked:
        return _hiding("too many magics", first)
    timed = [match.expand(r"\1\2") if (match := TIMED.match(line)) else line for line in lines]
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        tree = compile(_as_python("\n".join(timed), 0 if locked else len(magics)), "<cell>", "exec", flags)
    except (SyntaxError, ValueError, MemoryError, RuntimeError):
        # IPython takes a cell of one line for a magic even without the %
        alone = not locked and len(list(filter(str.strip, lines))) == 1
        return _hiding(lines[first], first) if alone and HIDING.match(lines[first]) else None
    lift = None if locked else next(lifts(tree), None)
    return Cell(
        [*_bindings(tree, certain)],
        [p for s in tree.body for n in shallow(s) for p in imports(n)],
        frozenset(_all_bound(tree)),
        lift and replace(lift, why=EVERYWHERE),
        None if locked else next(strange(tree), None),
    )


def _as_python(text: str, magics: int) -> str:
    """Return a cell as IPython reads it, magics and shell commands as the calls that they become.

    Args:
        text: the cell.
        magics: how many of its lines are magics.

    Raises:
        TooLong: for these, and for those whose value a name is given, IPython would read too much.
    """
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, MemoryError):
        magics += len(ASSIGNED.findall(text))
        if magics * len(text) > MAX_REREAD:
            raise TooLong from None
        from IPython.core.inputtransformer2 import TransformerManager  # for cells with magics alone

        return TransformerManager().transform_cell(text)
    return text  # as most are: the line numbers and the text stay


def _hiding(line: str, place: int) -> Cell:
    """Return a cell that makes IPython run what is not in it."""
    what = line if " " in line and not line.startswith("%") else line.split()[0]
    return Cell([], [], frozenset(), Use(f"uses {what}", place + 1, line[:60], EVERYWHERE))


def _all_bound(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a cell binds, those of its classes too, but none that are local to a function."""
    todo: list[tuple[ast.AST, bool, bool]] = [(tree, False, False)]  # whether inside of a function, and local to it
    while todo:
        node, inside, local = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield "" if local else getattr(node, "name", "")
            inside = local = True
        elif isinstance(node, ast.Global) and inside:
            yield from node.names
        if local:
            body = {id(statement) for statement in node.body} if isinstance(node, ast.ClassDef) else ()
            todo += [(child, True, id(child) not in body) for child in ast.iter_child_nodes(node)]
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            yield node.name or ""
        yield from (name for name, _ in imports(node))
        todo += [(child, inside, False) for child in ast.iter_child_nodes(node)]


class Book:
    """The names of all cells, and the statements that bind them."""

    def __init__(self, cells: list[Cell]) -> None:
        self.steps = Steps()
        self._known_paths: Answers[str, str | None] = Answers(None, self.steps)
        self._relevant: dict[str, list[Binding]] = {}
        self._defined: dict[int, set[str]] = {}  # by the id of the statement
        self.bindings: dict[str, list[Binding]] = {}
        self.paths: dict[str, str] = {}
        self.stars: list[str] = []
        self.names = frozenset().union(*(cell.names for cell in cells))
        for cell in cells:
            for binding in cell.bindings:
                self.bindings.setdefault(binding.name, []).append(binding)
            self.paths |= {name: path for name, path in cell.paths if name not in ("", "*")}
            self.stars += [path.removesuffix(".*") for name, path in cell.paths if name == "*"]

    def relevant(self, name: str) -> list[Binding]:
        """Return the bindings of a name, from the last on that certainly replaced the others."""
        if name not in self._relevant:
            found = self.bindings.get(name, [])
            whole = [i for i, b in enumerate(found) if b.certain and name in self._names(b.node)]
            self._relevant[name] = found[whole[-1] :] if whole else found
        return self._relevant[name]

    def _names(self, statement: ast.stmt) -> set[str]:
        if id(statement) not in self._defined:
            self._defined[id(statement)] = _defined(statement)
        return self._defined[id(statement)]

    def assigned(self, name: str) -> Iterator[ast.expr]:
        """Yield the values that the bindings of a name give it."""
        for binding in self.relevant(name):
            self.steps.take()
            if isinstance(binding.node, ast.Assign):
                yield binding.node.value

    def path(self, name: str) -> str | None:
        """Return what a global name stands for, if that is in a module."""
        return self._known_paths.get(name, lambda: self._path(name))

    def _path(self, name: str) -> str | None:
        if name in self.paths:
            return self.paths[name]
        if name in self.bindings:
            return next(filter(None, (dotted(value, self.path, {}) for value in self.assigned(name))), None)
        for module in self.stars:
            if hasattr(sys.modules.get(module), name) and not hasattr(builtins, name):
                return held(f"{module}.{name}")
        return f"builtins.{name}" if hasattr(builtins, name) else USUAL.get(name)


def _bindings(tree: ast.Module, certain: bool) -> Iterator[Binding]:
    for statement in tree.body:
        certain = certain and _plain(statement)
        yield from (Binding(name, statement, certain) for name in sorted(_bound(statement)))


def _defined(statement: ast.stmt) -> set[str]:
    """Return the names that a statement gives a new value without conditions."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return {t.id for t in targets if isinstance(t, ast.Name)}
    return {name for name, _ in imports(statement)}


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds, or whose values it changes; a function's global ones too."""
    found = set()
    for node in shallow(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            found |= {name for n in ast.walk(node) if isinstance(n, ast.Global) for name in n.names}
        elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            found.add(root_of(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr" and node.args:
            found.add(root_of(node.args[0]))
        found |= {name for name, _ in imports(node)}
    return found - {"", "*"}


def _plain(statement: ast.stmt) -> bool:
    """Return whether a statement cannot fail: an import, a definition made of definitions, a constant."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        known = ("torch", "matplotlib", "numpy", *sys.stdlib_module_names)
        return all(path.split(".")[0] in known for _, path in imports(statement)) and not getattr(statement, "level", 0)
    if isinstance(statement, ast.Expr | ast.Assign):
        return isinstance(statement.value, ast.Constant) and all(
            isinstance(t, ast.Name) for t in getattr(statement, "targets", [])
        )
    if isinstance(statement, ast.FunctionDef):
        defaults = [*statement.args.defaults, *filter(None, statement.args.kw_defaults)]
        noted = [a.annotation for a in ast.walk(statement.args) if isinstance(a, ast.arg)] + [statement.returns]
        return (
            all(isinstance(d, ast.Constant) for d in defaults)
            and not any(noted)
            and not any(
                root_of(d) not in ("staticmethod", "classmethod", "once_differentiable", "torch")
                for d in statement.decorator_list
            )
        )
    if isinstance(statement, ast.ClassDef):
        usual = all(root_of(b) in ("torch", "Function", "object") for b in statement.bases)
        return (
            usual
            and not statement.decorator_list
            and not statement.keywords
            and all(isinstance(s, ast.Pass) or _plain(s) for s in statement.body)
        )
    return False
