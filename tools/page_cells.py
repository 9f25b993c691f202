"""The cells of a chapter that run in its page: each turn, each wrong version, and the code that they need before them.

A notebook runs from its top; a cell in the page runs alone. So what a cell needs is found from its names: the last
statement above that binds each of them, and what that needs in turn. A turn above counts as its right line fills it in.
"""

import ast
import builtins
import symtable
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.turns import MARK, filled, named, turns

KINDS = ("turn", "misconception")
COMPREHENSIONS = ("listcomp", "setcomp", "dictcomp", "genexpr")  # they run where they stand
GIVEN = {"coach", *dir(builtins)}
SKIPPED = ("matplotlib", "numpy", "IPython", "graders")  # what a page has not, and its cells can do without

NOT_HERE: dict[str, dict[str, str]] = {}  # by page and cell: what the page's torch lacks that the cell needs
FIRST_LINE_ALONE = ("turn:drum",)  # checks of which the page runs the first line: gradcheck, and no training
STAND_INS = {  # what a cell gets in the place of a function that draws random numbers, where only their shape matters
    "normal": "def normal(*shape):\n"
    "    count = 1\n"
    "    for size in shape:\n"
    "        count *= size\n"
    "    numbers = torch.linspace(-1.5, 2, count, dtype=torch.float64)\n"
    "    return torch.sin(5 * numbers).reshape(shape).detach().requires_grad_()",
}
CLASS_ALONE = (  # wrong versions of which the page has the class, for the coach, and not the experiment below it
    *(f"Arctan.{name}" for name in ("wrong_branch", "saves_derivative", "consistent_but_wrong", "float32_inside")),
    *("HardTanh.upper_mask_missing", "SymmetricClip.lower_sign_forgotten", "SoftCrossEntropy.mean_forgotten"),
)


@dataclass(frozen=True)
class PageCell:
    """A cell that a page can run.

    Args:
        name: ``turn:relu``, or ``misconception:ReLU.upstream_ignored``.
        at: the number of the cell in the notebook.
        code: what it holds; of some wrong versions the class alone.
        before: the code that it needs, which a reader need not see.
        after: what says whether it is right, "" for nothing.
        solution: of a turn, the cell with its right line; "" for a wrong version.
    """

    name: str
    at: int
    code: str
    before: str
    after: str
    solution: str


@dataclass(frozen=True)
class _Statement:
    """A statement at a notebook's top level.

    Args:
        text: its lines.
        binds: the names that it binds.
        changes: those of which it changes a part.
        now: those that it uses when it runs.
        later: those that functions in it use when they are called.
    """

    text: str
    binds: frozenset[str]
    changes: frozenset[str]
    now: frozenset[str]
    later: frozenset[str]


def _bound(target: ast.expr) -> tuple[set[str], set[str]]:
    """Return the names that an assignment's target binds, and those of which it changes a part."""
    if isinstance(target, ast.Name):
        return {target.id}, set()
    if isinstance(target, ast.Tuple | ast.List):
        pairs = [_bound(t) for t in target.elts]
        return set().union(*(b for b, _ in pairs)), set().union(*(c for _, c in pairs))
    if isinstance(target, ast.Starred):
        return _bound(target.value)
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    return set(), {target.id} if isinstance(target, ast.Name) else set()


def _statement(text: str, node: ast.stmt) -> _Statement | None:
    """Return what a statement binds, changes and uses; None for one that has no part in what follows."""
    binds: set[str] = set()
    changes: set[str] = set()
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = {alias.asname or alias.name.split(".")[0] for alias in node.names}
        modules = {getattr(node, "module", None) or alias.name for alias in node.names}
        if any(m.split(".")[0] in SKIPPED for m in modules):
            return None
        binds = names
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        binds = {node.name}
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            b, c = _bound(target)
            binds, changes = binds | b, changes | c
        if isinstance(node, ast.AugAssign):
            changes |= binds
            binds = set()
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        _, changes = _bound(node.value.func)  # as x.requires_grad_()
        if not changes or not node.value.func.attr.endswith("_"):
            return None
    else:
        return None
    now, later = used(text)
    return _Statement(text, frozenset(binds), frozenset(changes), frozenset(now), frozenset(later))


def used(code: str) -> tuple[set[str], set[str]]:
    """Return the names of its module that code uses as it runs, and those that its functions use when called."""
    now: set[str] = set()
    later: set[str] = set()
    tables = [(symtable.symtable(code, "", "exec"), now)]
    while tables:
        table, into = tables.pop()
        top = table.get_type() == "module"
        into |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())}
        for child in table.get_children():
            apart = child.get_type() == "function" and child.get_name() not in COMPREHENSIONS
            tables.append((child, later if apart else into))
    return now - GIVEN, later - GIVEN


def statements(source: str, parts: bool = False) -> Iterator[_Statement]:
    """Yield the statements of a cell that later ones may need; all of them for the `parts` of what runs."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a magic
        return
    lines = source.splitlines()
    for node in tree.body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        text = "\n".join(lines[first - 1 : node.end_lineno])
        found = _statement(text, node)
        if found is None and parts:
            now, later = used(text)
            found = _Statement(text, frozenset(_names(node)), frozenset(), frozenset(now), frozenset(later))
        if found:
            yield found


def _names(node: ast.stmt) -> set[str]:
    """Return the names that a statement of any kind binds, a loop's too."""
    stored = (n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {n.id for n in stored}


def wanted(code: str) -> set[str]:
    """Return the names that code needs from above it."""
    now: set[str] = set()
    later: set[str] = set()
    bound: set[str] = set()
    for statement in statements(code, parts=True):
        now |= statement.now - bound
        later |= statement.later
        bound |= statement.binds
    return now | (later - bound)


def needed(cells: list[str], code: str) -> str:
    """Return the statements of earlier cells that code needs, in their order."""
    above = [statement for cell in cells for statement in statements(cell)]
    kept: set[int] = set()
    todo = [(name, len(above)) for name in sorted(wanted(code))]
    seen = set(todo)
    while todo:
        name, end = todo.pop()
        binder = next((i for i in reversed(range(end)) if name in above[i].binds), None)
        if binder is None:
            continue
        changers = [i for i in range(binder + 1, len(above)) if name in above[i].changes]
        for i in {binder, *changers} - kept:
            kept.add(i)
            fresh = {(n, i) for n in above[i].now | above[i].changes} | {(n, len(above)) for n in above[i].later}
            todo += sorted(fresh - seen)
            seen |= fresh
    stand_ins = {name: text for name, text in STAND_INS.items() if any({name} == above[i].binds for i in kept)}
    lines = [stand_ins.get(next(iter(above[i].binds), ""), above[i].text) for i in sorted(kept)]
    return "\n".join(lines)


def page_cells(notebook: NotebookNode) -> Iterator[PageCell]:
    """Yield the cells of a chapter that a page may run, in order.

    Raises:
        TurnError: as `tools.turns.turns`.
    """
    done = filled(notebook)
    asks = {turn.cell: turn for turn in turns(notebook)}
    for at, cell in enumerate(notebook.cells):
        kind = next((k for k in KINDS if named(cell, k)), "")
        if cell.cell_type != "code" or not kind:
            continue
        above = [c.source for c in done.cells[:at] if c.cell_type == "code"]
        name = f"{kind}:{named(cell, kind)}"
        if kind == "turn":
            turn = asks[at]
            between = [c.source for c in done.cells[at + 1 : turn.asks] if c.cell_type == "code"]
            after = notebook.cells[turn.asks].source
            if name in FIRST_LINE_ALONE:
                after = after.splitlines()[0]
            right = "\n".join(turn.code if MARK in line else line for line in cell.source.splitlines())
            before = needed(above, "\n".join([right, *between, after]))
            yield PageCell(name, at, cell.source, before, "\n".join([*between, after]), right)
        else:
            code = classes_of(cell.source) if named(cell, kind) in CLASS_ALONE else cell.source
            yield PageCell(name, at, code, needed(above, code), f"coach({named(cell, kind).split('.')[0]})", "")


def classes_of(source: str) -> str:
    """Return the classes that a cell defines, and nothing else of it."""
    lines = source.splitlines()
    found = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    return "\n\n\n".join("\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in found)


def of_page(root: Path, page: str) -> list[PageCell]:
    """Return the cells of a page that run there.

    Args:
        root: the course's folder.
        page: as Sphinx names it: ``book/01_relu``.
    """
    notebook = nbformat.read(root / f"{page}.ipynb", 4)
    return [cell for cell in page_cells(notebook) if cell.name not in NOT_HERE.get(page, {})]
