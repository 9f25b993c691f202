"""What the names in a cell stand for: ``F.relu`` is ``torch.nn.functional.relu``; and a bound on the work of asking.

The readers of `graders.judge.lifting`, `graders.judge.cells` and `graders.judge.reading` ask here.
"""

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeGuard, TypeVar

MAX_STEPS = 100_000  # of one reading: what a name or an expression stands for is asked so often; answers need 1,000
MAX_PATH = 500  # characters of a full name


def listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


USUAL = {"torch": "torch", "F": "torch.nn.functional", "nn": "torch.nn", "np": "numpy", "numpy": "numpy"}
USUAL |= {"math": "math", "plt": "matplotlib.pyplot"}  # what such a name stands for where no cell imports it
USUAL |= {name: name for name in listed("functools operator timeit typing")} | {"mock": "unittest.mock"}
# modules that others hold among their names: torch.nn.init.math is math
HELD = listed("math cmath np numpy scipy sys os gc ctypes inspect importlib builtins subprocess decimal")


@dataclass(frozen=True)
class Use:
    """What was found, and where.

    Attributes:
        what: "numpy".
        line: counted within the cell.
        text: the code.
        why: what more a message says of it.
    """

    what: str
    line: int = 0
    text: str = ""
    why: str = ""

    @property
    def sentence(self) -> str:
        """What a message says of it."""
        return f"Your solution {self.what}" + (f" (line {self.line} of its cell)." if self.line else ".") + self.why

    @property
    def evidence(self) -> dict[str, str]:
        """The code itself."""
        return {"your code": self.text} if self.text else {}


Key = TypeVar("Key")
Value = TypeVar("Value")


class TooLong(Exception):
    """Reading takes more steps than it may."""


class Steps:
    """The steps that a reading has left."""

    def __init__(self) -> None:
        self.left = MAX_STEPS

    def take(self, number: int = 1) -> None:
        """Take some of them.

        Raises:
            TooLong: there were not as many.
        """
        self.left -= number
        if self.left < 0:
            raise TooLong


class Answers(Generic[Key, Value]):
    """Answers to questions that lead to other questions of the kind; each is looked for once.

    Args:
        circle: the answer to a question that leads back to itself.
        steps: what each search takes one of.
    """

    def __init__(self, circle: Value, steps: Steps) -> None:
        self._circle, self._steps = circle, steps
        self._known: dict[Key, Value] = {}
        self._asked: dict[Key, int] = {}  # those that are being looked for, and how many were before them
        self._back = sys.maxsize  # the earliest of them that the present search has led back to

    def get(self, key: Key, find: Callable[[], Value]) -> Value:
        """Return the answer to a question, known or found. One that hangs on a circle is only kept by who began it."""
        if key in self._known:
            return self._known[key]
        self._steps.take()
        if key in self._asked:
            self._back = min(self._back, self._asked[key])
            return self._circle
        place, before, self._back = len(self._asked), self._back, sys.maxsize
        self._asked[key] = place
        try:
            found = find()
        finally:
            del self._asked[key]
        if self._back >= place:
            self._known[key], self._back = found, sys.maxsize
        self._back = min(self._back, before)
        return found


def quoted(node: ast.AST) -> tuple[int, str]:
    line = getattr(node, "lineno", 0)
    try:
        text = ast.unparse(node)
    except RecursionError:
        text = "..."
    return line, text if len(text) <= 60 else text[:57] + "..."


def called(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def within(path: str, prefixes: Iterable[str]) -> bool:
    return any(path == prefix or path.startswith(prefix + ".") for prefix in prefixes)


def imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that an import binds, and the full names that they stand for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
            if not alias.asname and "." in alias.name:
                yield "", alias.name
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, held(f"{'.' * node.level}{node.module or ''}.{alias.name}")


def held(path: str) -> str:
    """Shorten a path to the module it ends in: ``torch.nn.init.math.exp`` is ``math.exp``."""
    if len(path) > MAX_PATH:
        raise TooLong
    parts = path.split(".")
    place = max((i for i, part in enumerate(parts[:-1]) if part in HELD), default=0)
    if parts[-1] in HELD and len(parts) > 1 and parts[0] != "builtins":
        place = len(parts) - 1
    parts = parts[place:]
    return ".".join(["numpy" if parts[0] == "np" else parts[0], *parts[1:]])


def dotted(node: ast.AST, lookup: Callable[[str], str | None], known: dict[int, str | None]) -> str | None:
    """Return the full name of what an expression stands for, as far as it is a path through modules.

    Args:
        node: the expression.
        lookup: what a name stands for.
        known: gets the answers, by the ids of the nodes.
    """
    if id(node) not in known:
        known[id(node)] = _found(node, lookup, known)
    return known[id(node)]


def _found(node: ast.AST, lookup: Callable[[str], str | None], known: dict[int, str | None]) -> str | None:
    if isinstance(node, ast.Name):
        return lookup(node.id)
    if isinstance(node, ast.Attribute):
        base = dotted(node.value, lookup, known)
        return base and held(f"{base}.{node.attr}")
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[-1], ast.Constant):
        function, last = dotted(node.func, lookup, known), node.args[-1].value
        if function in ("builtins.__import__", "importlib.import_module") and isinstance(last, str):
            return held(last)
        if function == "builtins.getattr" and len(node.args) == 2 and isinstance(last, str):
            base = dotted(node.args[0], lookup, known)
            return base and held(f"{base}.{last}")
    return None


def shallow(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement that run with it: not those inside of functions."""
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            todo += ast.iter_child_nodes(node)


def root_of(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
