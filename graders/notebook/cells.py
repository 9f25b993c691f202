"""The cells of a set in a student's notebook: which they are, what grading makes of them, the answers as Python."""

import ast
import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from .codes import Code
from .form import CELL_KEYS, Notebook, give_ids
from .problem import Findings, Problem, printable, quoted

MAX_SOURCE = 200_000  # characters of a cell that are looked at as Python
NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)  # the last two: nested without end


@dataclass(frozen=True)
class Original:
    """A released cell of a set. ``source`` is what a restored cell gets, ``shown`` what students see of it."""

    grade_id: str
    cell_type: str
    source: str
    checksum: str | None
    grade: bool
    solution: bool
    locked: bool
    points: float = 0.0
    shown: str | None = None

    @property
    def visible(self) -> str:
        """Return the text that students were given."""
        return self.source if self.shown is None else self.shown

    def metadata(self) -> dict[str, object]:
        """Return the nbgrader metadata that this cell has to carry."""
        data = {
            "grade_id": self.grade_id,
            "cell_type": self.cell_type,
            "grade": self.grade,
            "solution": self.solution,
            "locked": self.locked,
            "task": False,
            "checksum": self.checksum,
            "schema_version": 3,
        }
        return data | {"points": self.points} if self.grade else data

    def with_source(self, source: str) -> "Original":
        """Return the same cell with another text, and the checksum that nbgrader computes for it."""
        locked = self.grade or (self.locked and not self.solution)
        parts = [source, self.cell_type, str(self.grade), str(self.solution), str(not self.solution and locked)]
        parts += [self.grade_id, *([str(float(self.points))] if self.grade else [])]
        checksum = hashlib.md5("".join(parts).encode("utf-8", "replace"), usedforsecurity=False).hexdigest()
        return replace(self, source=source, shown=None, checksum=checksum)


def released(notebook: Mapping[str, Any]) -> dict[str, Original]:
    """Return the cells of a released notebook that belong to the set, by their grade_id, in its order."""
    found = {}
    for cell in notebook["cells"]:
        meta = cell["metadata"].get("nbgrader") or {}
        if "grade_id" in meta:
            found[meta["grade_id"]] = Original(
                meta["grade_id"],
                cell["cell_type"],
                "".join(cell["source"]),
                meta.get("checksum"),
                meta["grade"],
                meta["solution"],
                meta["locked"],
                float(meta.get("points", 0.0)),
            )
    return found


def claimed(cell: Mapping[str, Any]) -> str | None:
    """Return the grade_id that a cell says it has."""
    meta = cell["metadata"].get("nbgrader")
    name = meta.get("grade_id") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else None


def of_another_set(notebook: Notebook, originals: Mapping[str, Original], file: str) -> Problem | None:
    """Return the problem of a notebook that has cells of some set and none of this one; None for all others."""
    names = [name for name in map(claimed, notebook["cells"]) if name]
    if not names or any(name in originals for name in names):
        return None
    what = f"holds cells of another set ({quoted(names)}) and none of this one"
    return Problem(Code.ANOTHER_SET, file, what, "Hand in the right one.", fatal=True)


def repair(notebook: Notebook, originals: Mapping[str, Original], file: str) -> list[Problem]:
    """Give every released cell its type, metadata and locked text back, and each deleted locked cell its place.

    Of a cell that stands twice the last keeps its role, as in nbgrader's ``DeduplicateIds``. Unlike nbgrader's
    ``add_missing_cells`` this needs no neighbour: a test cell goes before the next released cell, after all that the
    student wrote for it. A cell that claims to be of the set and is not is the student's own: it loses its claim.
    """
    problems = Findings(file)
    place: dict[str, Notebook] = {}
    twice: list[str] = []
    unknown: list[str] = []
    for cell in reversed(notebook["cells"]):
        name = claimed(cell)
        meta = cell["metadata"].pop("nbgrader", None)
        if name and name in originals and name not in place:
            place[name] = cell
            cell["metadata"]["nbgrader"] = meta
            _repair_cell(cell, originals[name], problems)
        elif name and name in originals:
            twice.append(name)
        elif meta is not None and meta != {}:
            unknown.append(name or "without a name")
    problems.reverse()
    for name in reversed(Counter(twice)):
        remedy = "The last one counts; look at them if the score is surprising."
        problems.repaired(Code.CELL_TWICE, f"cell {name} occurs more than once", remedy)
    if unknown:
        what = f"cell {quoted(unknown)} is" if len(unknown) == 1 else f"cells {quoted(unknown[::-1])} are"
        remedy = "Graded as a cell of the student's own."
        problems.repaired(Code.UNKNOWN_CELL, f"{what} not of this assignment", remedy)
    problems += _put_back(notebook["cells"], originals, place, file)
    give_ids(notebook["cells"])
    return problems


def _repair_cell(cell: Notebook, original: Original, problems: Findings) -> None:
    name, meta, truth = original.grade_id, cell["metadata"]["nbgrader"], original.metadata()
    if cell["cell_type"] != original.cell_type:
        what = f"cell {name} was turned into a {cell['cell_type']} cell"
        problems.repaired(Code.CELL_TYPE, what, f"It is graded as a {original.cell_type} cell.")
        cell["cell_type"] = original.cell_type
        for key in cell.keys() - CELL_KEYS[original.cell_type] | {"attachments"}:
            cell.pop(key, None)
        if original.cell_type == "code":
            cell |= {"outputs": [], "execution_count": None}
    if _of_another_release(cell, meta, original):
        cell["metadata"]["nbgrader"] = meta = truth
        cell["source"] = original.source if original.locked else cell["source"]
    given = {"checksum": None, "cell_type": original.cell_type, "task": False} | meta
    wrong = [key for key in truth if key != "checksum" and not _equal(given.get(key), truth[key])]
    if changed := sorted([*wrong, *(meta.keys() - truth.keys())]):
        values = [
            f"{printable(key, 30)} {printable(repr(meta.get(key)), 30)} instead of {truth.get(key)!r}"
            for key in changed[:4]
        ]
        what = f"the metadata of cell {name} were changed ({', '.join(values)})"
        problems.repaired(Code.CELL_METADATA, what, "The released ones are used.")
    if changed or not isinstance(meta.get("checksum"), str | None):
        cell["metadata"]["nbgrader"] = truth
    if tags := cell["metadata"].pop("tags", None):
        problems.repaired(Code.CELL_TAGS, f"cell {name} has the tags {quoted(tags)}", "Graded without them.")
    edited = _normal(cell["source"]) not in (_normal(original.visible), _normal(original.source))
    if original.locked and edited and original.with_source(cell["source"]).checksum != meta.get("checksum"):
        what = f"the text of the locked cell {name} was changed"
        problems.repaired(Code.CELL_TEXT, what, "The released text is graded.")
        cell["source"] = original.source


def _of_another_release(cell: Notebook, meta: Mapping[str, Any], original: Original) -> bool:
    """Return whether a grade cell is as a release had it in which it was worth other points: its checksum says so.

    A student can make such a checksum as well, and gains nothing by it: the points and the text are put right.
    """
    points = meta.get("points")
    if (
        not original.grade
        or isinstance(points, bool)
        or not isinstance(points, int | float)
        or points == original.points
    ):
        return False
    then = replace(original, points=float(points)).with_source(cell["source"])
    return {**meta, "points": float(points)} == then.metadata()


def _equal(one: object, other: object) -> bool:
    """Return whether two values are the same in JSON, where true is not 1 but 2 is 2.0."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _normal(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())


def _put_back(
    cells: list[Notebook], originals: Mapping[str, Original], place: dict[str, Notebook], file: str
) -> list[Problem]:
    problems = Findings(file)
    order = list(originals)
    for number, name in reversed(list(enumerate(order))):
        original = originals[name]
        if name in place or not original.locked:
            continue
        after = next((place[later] for later in order[number + 1 :] if later in place), None)
        at = next((i for i, cell in enumerate(cells) if cell is after), len(cells))
        cell: Notebook = {"id": f"restored-{name}"[:64], "cell_type": original.cell_type, "source": original.source}
        cell["metadata"] = {"deletable": False, "editable": False, "nbgrader": original.metadata()}
        if original.cell_type == "code":
            cell |= {"outputs": [], "execution_count": None}
        place[name] = cell
        cells.insert(at, cell)
        kind = "test cell" if original.grade else "locked cell"
        problems.repaired(Code.CELL_DELETED, f"{kind} {name} was deleted", "It is put back and graded.")
    if len(problems) > 8 and len(problems) == sum(original.locked for original in originals.values()):
        what = "none of the set's own cells is marked as such, as after a conversion"
        problems.clear()
        problems.repaired(Code.ALL_UNMARKED, what, "All of them are added again at the end.")
    return problems


def deleted_answers(notebook: Notebook, originals: Mapping[str, Original], file: str) -> list[Problem]:
    """List the answer cells that are not there: their stubs are not put back, they could undo an answer elsewhere."""
    problems = Findings(file)
    there = set(map(claimed, notebook["cells"]))
    for name, cell in originals.items():
        if cell.solution and not cell.locked and name not in there:
            remedy = "Its tests will use whichever cell defines that name."
            problems.found(Code.ANSWER_DELETED, f"the answer cell {name} was deleted", remedy)
    return problems


def without_magics(source: str) -> str:
    """Return ``source`` with IPython's own lines, which are not Python, replaced by lines that do nothing."""
    lines = (re.sub(r"^(\s*)([%!?].*|[\w.]+\?{1,2}\s*)$", r"\1pass", line) for line in source.split("\n"))
    return "\n".join(re.sub(r"^([\w.,\s]+=\s*)[!%].*$", r"\1None", line) for line in lines)


def python(source: str) -> ast.Module:
    """Return the syntax tree of a cell; raise one of ``NOT_PYTHON``."""
    if len(source) > MAX_SOURCE:
        raise ValueError("too long")
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile(without_magics(source), "cell", "exec", flags, dont_inherit=True)


def bound_names(notebook: Notebook) -> set[str]:
    """Return the names that the notebook's cells give to something."""
    return set().union(*(_bound(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"))


@lru_cache(maxsize=256)  # the released cells are the same in every submission
def _bound(source: str) -> frozenset[str]:
    bound: set[str] = set()
    if source.startswith("%%"):
        return frozenset()
    with suppress(*NOT_PYTHON):
        for node in ast.walk(python(source)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                bound.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound.add(node.id)
            elif isinstance(node, ast.alias):
                bound.add((node.asname or node.name).split(".")[0])
    return frozenset(bound)


def stubs(notebook: Notebook, originals: Mapping[str, Original], file: str) -> list[Problem]:
    """List the answers that are not written yet."""
    problems = Findings(file)
    cells = {claimed(cell): cell for cell in notebook["cells"]}
    for name, cell in originals.items():
        answer = cells.get(name) if cell.solution and not cell.locked else None
        if answer and _normal(answer["source"]) == _normal(cell.visible):
            what = f"the answer cell {name} is still as it was given out"
            problems.found(Code.ANSWER_UNWRITTEN, what, "It earns nothing.")
    return problems


def nearest(name: str, bound: Iterable[str]) -> str:
    """Return a hint at the name that may have been meant, or nothing."""
    some = sorted(other for other in bound if len(other) < 3 * len(name) + 10)[:1000]  # a comparison takes its time
    near = difflib.get_close_matches(name, some, 1, 0.5)
    return f"; there is {near[0]!r}" if near else ""


def answers(notebook: Notebook, originals: Mapping[str, Original], file: str) -> list[Problem]:
    """List what is wrong with the answers before they run: cells that are not Python, names that nothing has."""
    problems = Findings(file)
    problems += deleted_answers(notebook, originals, file)
    bound = bound_names(notebook)
    for cell in notebook["cells"]:
        name = claimed(cell)
        original = originals.get(name) if name else None
        if name is None or original is None or original.locked or not original.solution or cell["cell_type"] != "code":
            continue
        if cell["source"].startswith("%%") or _normal(cell["source"]) == _normal(original.visible):
            continue
        try:
            python(cell["source"])
        except NOT_PYTHON as error:
            where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
            why = printable(f"{getattr(error, 'msg', None) or type(error).__name__}{where}", 100)
            what = f"the answer cell {name} is not Python ({why})"
            problems.found(Code.ANSWER_NOT_PYTHON, what, "It earns nothing.")
            continue
        if name not in bound:
            what = f"nothing is called {name}{nearest(name, bound)}"
            problems.found(Code.ANSWER_RENAMED, what, "Its tests earn nothing: keep the name.")
        elif "raise NotImplementedError" in cell["source"]:
            what = f"the answer cell {name} still raises NotImplementedError"
            problems.found(Code.ANSWER_STILL_RAISES, what, "Take that line out.")
    return problems
