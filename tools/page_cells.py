"""The cells of a chapter that run in its page: each turn, each wrong version, and the code that they need before them.

A notebook runs from its top; a cell in the page runs alone. So what a cell needs is found from its names: the last
statement above that binds each of them, and what that needs in turn. A turn above counts as its right line fills it in.
"""

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.turns import MARK, filled, named, turns

KINDS = ("turn", "misconception")
GIVEN = {"coach", *dir(builtins)}
SKIPPED = ("matplotlib", "numpy", "IPython", "graders", "warnings")  # what a page has not, and its cells can do without

NOT_HERE = {  # cells that need what the page's torch lacks, and what that is
    "book/01_relu": {"turn:drum": "torch.special"},
    "book/02_sigmoid": {},
    "book/03_ste": {},
    "book/05_clipped_relu": {},
    "book/07_logsumexp": {},
}


@dataclass(frozen=True)
class PageCell:
    """A cell that a page can run.

    Args:
        name: ``turn:relu``, or ``misconception:ReLU.upstream_ignored``.
        at: the number of the cell in the notebook.
        code: what it holds.
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
    """A statement at a notebook's top level, the names it binds or changes, and those it uses."""

    text: str
    binds: frozenset[str]
    changes: frozenset[str]
    uses: frozenset[str]


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
    return _Statement(text, frozenset(binds), frozenset(changes), frozenset(used(node)))


def used(tree: ast.AST) -> set[str]:
    """Return the names that code loads, wherever; what it binds itself is among them."""
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} - GIVEN


def statements(source: str) -> Iterator[_Statement]:
    """Yield the statements of a cell that later ones may need."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a magic
        return
    lines = source.splitlines()
    for node in tree.body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        found = _statement("\n".join(lines[first - 1 : node.end_lineno]), node)
        if found:
            yield found


def needed(cells: list[str], code: str) -> str:
    """Return the statements of earlier cells that code needs, in their order."""
    above = [statement for cell in cells for statement in statements(cell)]
    wanted = used(ast.parse(code))
    kept = []
    for statement in reversed(above):
        if statement.binds & wanted:
            wanted -= statement.binds
        elif not statement.changes & wanted:
            continue
        kept.append(statement.text)
        wanted |= statement.uses | statement.changes
    return "\n".join(reversed(kept))


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
            right = "\n".join(turn.code if MARK in line else line for line in cell.source.splitlines())
            before = needed(above, "\n".join([right, *between, after]))
            yield PageCell(name, at, cell.source, before, "\n".join([*between, after]), right)
        else:
            after = f"coach({named(cell, kind).split('.')[0]})"
            yield PageCell(name, at, cell.source, needed(above, cell.source), after, "")


def of_page(root: Path, page: str) -> list[PageCell]:
    """Return the cells of a page that run there.

    Args:
        root: the course's folder.
        page: as Sphinx names it: ``book/01_relu``.
    """
    notebook = nbformat.read(root / f"{page}.ipynb", 4)
    return [cell for cell in page_cells(notebook) if cell.name not in NOT_HERE[page]]
