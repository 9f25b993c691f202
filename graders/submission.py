"""What can be wrong with a submission, found by reading it: the folder, the notebook, and the notebook after grading.

Plain functions on paths and notebooks; ``graders/preprocess.py`` and the command line call them.
"""

import ast
import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from .execute import CELL_TIME, CUT, KERNEL_DIED, NOTEBOOK_TIME

LEFT_BEHIND = {"timestamp.txt", ".DS_Store", ".ipynb_checkpoints", "__pycache__", "submission_secret.txt"}
SYNTAX = ("SyntaxError", "IndentationError", "TabError")


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a submission: what, what to do, and whether it keeps the submission from being graded."""

    file: str
    what: str
    remedy: str
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.what}. {self.remedy}"


@dataclass(frozen=True)
class Original:
    """A cell of the released notebook as the gradebook holds it."""

    grade_id: str
    cell_type: str
    source: str
    checksum: str | None
    grade: bool
    solution: bool
    locked: bool
    points: float = 0.0

    def metadata(self) -> dict[str, object]:
        """The nbgrader metadata that this cell has to carry."""
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


def read_notebook(path: Path) -> NotebookNode:
    """The notebook at ``path``, in nbformat 4; ValueError says in one line why it is none."""
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"is not text in UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        if "<<<<<<<" in text and ">>>>>>>" in text:
            raise ValueError(f"is not JSON: it holds the marks of an unresolved merge (line {error.lineno})") from None
        raise ValueError(f"is not JSON (line {error.lineno}, column {error.colno}: {error.msg})") from None
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from None
    try:
        notebook = nbformat.reads(text, as_version=4)
        if not all(isinstance(cell.source, str) and isinstance(cell.metadata, dict) for cell in notebook.cells):
            raise TypeError("a cell without source or metadata")
    except Exception as error:  # nbformat raises many kinds for JSON that is no notebook
        kind = type(data).__name__ if not isinstance(data, dict) else f"{type(error).__name__}: {error}".split("\n")[0]
        raise ValueError(f"is JSON but not a notebook ({kind[:100]})") from None
    return notebook


def folder_problems(folder: Path, notebooks: Iterable[str], listed: Iterable[str] = ()) -> list[Problem]:
    """What is wrong with the files of a submission: links, files nobody asked for, notebooks that are not there.

    ``notebooks`` are the names that the assignment consists of, ``listed`` its other files.
    """
    wanted = [f"{name}.ipynb" for name in notebooks]
    found: list[Problem] = []
    if folder.is_symlink() or folder.parent.is_symlink():
        return [Problem(f"{folder.name}/", "the folder is a symbolic link", "Put the folder itself there.", fatal=True)]
    others = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found.append(Problem(name, "is a symbolic link", "Ask for the file itself.", fatal=True))
        elif path.is_file() and name not in {*wanted, *listed} and not LEFT_BEHIND & set(Path(name).parts):
            others.append(name)
    names = {problem.file for problem in found}
    for name in wanted:
        if name not in names and not (folder / name).is_file():
            near = difflib.get_close_matches(name, [other for other in others if other.endswith(".ipynb")], 1, 0.0)
            if near:
                others.remove(near[0])
                what, remedy = f"is missing, there is {near[0]!r} instead", f"Rename it to {name} and grade again."
            else:
                what, remedy = "is missing", "Ask for it; until then the set has no score."
            found.append(Problem(name, what, remedy, fatal=True))
    for name in others:
        found.append(Problem(name, "is not part of the assignment", "It is left out of grading and feedback."))
    return found


def restore(notebook: NotebookNode, originals: Mapping[str, Original]) -> list[tuple[str, str]]:
    """Give every released cell its metadata and type back, and each deleted test cell its place; (what, remedy) pairs.

    Of a cell that stands twice the last keeps its role, as in nbgrader's ``DeduplicateIds``. Unlike nbgrader's
    ``add_missing_cells`` this needs no neighbour: a test cell goes before the next released cell, after all that the
    student wrote for it. The locked source is put back later, by nbgrader's ``OverwriteCells``.
    """
    said: list[tuple[str, str]] = []
    place: dict[str, NotebookNode] = {}
    for cell in reversed(notebook.cells):
        meta = cell.metadata.pop("nbgrader", None)
        name = meta.get("grade_id") if isinstance(meta, dict) else None
        if name is None:
            continue
        if name not in originals:
            said.append((f"cell {name!r} is not of this assignment", "It is graded as a cell of the student's own."))
        elif name in place:
            said.append((f"cell {name} stands twice", "The last one counts; check by eye if the score surprises."))
        else:
            original = originals[name]
            said.extend(_repair(cell, meta, original))
            cell.metadata["nbgrader"] = NotebookNode(original.metadata())
            place[name] = cell
    said.reverse()
    order = list(originals)
    for number, name in reversed(list(enumerate(order))):
        original = originals[name]
        if name in place:
            continue
        if not original.locked:
            said.append((f"the answer cell {name} was deleted", "Its tests run on whatever defines the name."))
            continue
        after = next((place[later] for later in order[number + 1 :] if later in place), None)
        at = next((i for i, cell in enumerate(notebook.cells) if cell is after), len(notebook.cells))
        make = new_code_cell if original.cell_type == "code" else new_markdown_cell
        place[name] = make(original.source, id=f"restored-{name}"[:64], metadata={"nbgrader": original.metadata()})
        notebook.cells.insert(at, place[name])
        kind = "test cell" if original.grade else "locked cell"
        said.append((f"{kind} {name} was deleted", "nbgrader put it back and graded with it."))
    return said


def _repair(cell: NotebookNode, meta: Mapping[str, object], original: Original) -> list[tuple[str, str]]:
    said = []
    if cell.cell_type != original.cell_type:
        what = f"cell {original.grade_id} was turned into a {cell.cell_type} cell"
        said.append((what, f"It was graded as a {original.cell_type} cell."))
        cell.cell_type = original.cell_type
        if original.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        else:
            cell.pop("outputs", None), cell.pop("execution_count", None)
        cell.pop("attachments", None)
    truth = original.metadata()
    changed = [key for key in ("points", "grade", "solution", "locked") if meta.get(key) != truth.get(key)]
    if changed:
        told = ", ".join(f"{key} {meta.get(key)!r} for {truth.get(key)!r}" for key in changed)
        said.append((f"the metadata of cell {original.grade_id} were changed ({told})", "The released ones were used."))
    return said


def outcome_problems(notebook: NotebookNode) -> list[tuple[str, str]]:
    """What went wrong while a graded ``notebook`` ran beyond wrong answers: time, output, syntax, missing names."""
    said: list[tuple[str, str]] = []
    stopped = False
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type != "code":
            continue
        meta = cell.metadata.get("nbgrader") or {}
        name = f"cell {meta['grade_id']}" if meta.get("grade_id") else f"cell {number}"
        errors = {output.ename: output.evalue for output in cell.outputs if output.output_type == "error"}
        if CELL_TIME in errors and not errors[CELL_TIME].startswith("not run"):
            said.append((f"{name} {errors[CELL_TIME].removeprefix('this cell ')}", "Look for an endless loop."))
        elif KERNEL_DIED in errors and not errors[KERNEL_DIED].startswith("not run"):
            said.append((f"the kernel died in {name}", "What ran before keeps its points; look for exit or memory."))
        elif NOTEBOOK_TIME in errors and not stopped:
            stopped = True
            said.append(
                (f"stopped before {name}: {errors[NOTEBOOK_TIME].removeprefix('not run: ')}", "Look for loops.")
            )
        elif not meta.get("grade"):
            for kind in SYNTAX:
                if kind in errors:
                    said.append((f"{name} has a syntax error ({_line(errors[kind])})", "Its tests earn nothing."))
            raised = [kind for kind in errors if kind not in (*SYNTAX, CELL_TIME, KERNEL_DIED, NOTEBOOK_TIME)]
            if meta.get("solution") and raised:
                said.append((f"{name} raises {raised[0]} ({_line(errors[raised[0]])})", "Its tests earn nothing."))
        if any(CUT in output.get("text", "") for output in cell.outputs if output.output_type == "stream"):
            said.append((f"{name} wrote more than the limit of output", "The rest was cut; the points stand."))
    return said + _missing_names(notebook)


def _line(text: str) -> str:
    text = re.sub(r"\s*\((\S+, )?line (\d+)\)", r", line \2", text)  # without the kernel's name for the cell
    return " ".join(text.split())[:120]


def _missing_names(notebook: NotebookNode) -> list[tuple[str, str]]:
    """Answer cells whose name no cell of the notebook binds: a class deleted or renamed."""
    bound: set[str] = set()
    wanted: list[str] = []
    for cell in notebook.cells:
        meta = cell.metadata.get("nbgrader") or {}
        answer = cell.cell_type == "code" and meta.get("solution")
        if cell.cell_type != "code" or cell.source.startswith("%%"):
            continue
        try:
            tree = ast.parse(_plain(cell.source))
        except (SyntaxError, ValueError):
            continue  # named already
        if answer and not any(output.output_type == "error" for output in cell.outputs):  # else it has its line
            wanted.append(meta["grade_id"])
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                bound.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound.add(node.id)
            elif isinstance(node, ast.alias):
                bound.add((node.asname or node.name).split(".")[0])
    said = []
    for name in wanted:
        if name not in bound:
            near = difflib.get_close_matches(name, bound, 1, 0.5)
            hint = f"; there is {near[0]!r}" if near else ""
            said.append((f"nothing is called {name}{hint}", f"Rename it to {name} and grade again with --force."))
    return said


def _plain(source: str) -> str:
    """``source`` without IPython's magic and shell lines."""
    return "\n".join("" if line.lstrip().startswith(("%", "!", "?")) else line for line in source.splitlines())
