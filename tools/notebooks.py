"""Run notebooks and bring them into the one form in which they are committed.

    python -m tools.notebooks [--check] [--execute] [PATH...]

Chapters (``book/*.ipynb``) keep their outputs, solutions (``solutions/*/*.ipynb``) have none and get their grade cells
from the set file (`tools.grade_cells`). What has one right form
(key order, metadata, streams in one piece) is put into it. What only the author can mend is a fault: it is reported in
one line with its cell, and the file is left as it was.
"""

import argparse
import ast
import copy
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from traitlets.config import Config

from tools import grade_cells

ROOT = Path(__file__).resolve().parent.parent
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
CELL_METADATA = {"tags", "nbgrader", "mystnb", "jupyter", "deletable", "editable", "finding"}
FIGURE_LINES = 60  # a chapter's code has 40 at most; a figure's is folded away
RANDOM_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){0,3}(-[0-9a-f]{12})?|cell-[0-9a-f]{16}")
SLUG = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", re.IGNORECASE)
MACHINE = {
    "a path of this machine": re.compile(r"/(home|root|Users|tmp|var/folders)/|[A-Z]:\\|site-packages|ipykernel_\d"),
    "a memory address": re.compile(r"\b0x[0-9a-f]{6,}"),
}


class NotebookError(Exception):
    """What the author has to mend, in one line."""


def read(path: Path) -> NotebookNode:
    """The notebook at `path`; NotebookError where it is none."""
    try:
        # nbformat.read repairs what it meets, ids too; a fault is the author's to mend
        notebook = nbformat.reader.reads(path.read_text(encoding="utf-8"))
        invalid = next(iter(nbformat.validator.iter_validate(notebook)), None)
    except (
        ValueError,
        TypeError,
        AttributeError,
        KeyError,
        nbformat.reader.NotJSONError,
        nbformat.ValidationError,
    ) as error:
        raise NotebookError(f"not a notebook: {type(error).__name__}") from error
    if invalid is not None:
        raise NotebookError(f"not a notebook: {invalid.message.splitlines()[0][:120]}")
    return notebook


def to_text(notebook: NotebookNode) -> str:
    """The notebook as the bytes of its file: keys sorted, one space of indent, a newline at the end."""
    return nbformat.v4.writes(notebook) + "\n"


def write(path: Path, text: str) -> None:
    """Write `text` to `path` in one step: the old file or the new one, nothing in between."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8", newline="\n")
    os.replace(new, path)


def is_chapter(path: Path) -> bool:
    """Whether the notebook keeps its outputs: it lies in `book/`."""
    return path.resolve().parent.name == "book"


def normalise(notebook: NotebookNode, outputs: bool) -> NotebookNode:
    """A copy of `notebook` in the committed form, with its outputs or without."""
    notebook = copy.deepcopy(notebook)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.source = cell.source.rstrip("\n")
        cell.metadata = NotebookNode({key: value for key, value in cell.metadata.items() if key in CELL_METADATA})
        if cell.cell_type != "code":
            continue
        if outputs:
            cell.outputs = list(_coalesced(cell.outputs))
        else:
            cell.outputs, cell.execution_count = [], None
    return notebook


def _coalesced(outputs: Iterable[NotebookNode]) -> Iterator[NotebookNode]:
    """The outputs, neighbouring pieces of one stream joined."""
    last: NotebookNode | None = None
    for output in outputs:
        if last is not None and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
            continue
        if last is not None:
            yield last
        last = output
    if last is not None:
        yield last


def faults(notebook: NotebookNode, outputs: bool, figures: Path) -> Iterator[str]:
    """What is wrong in a normalised notebook and has no form to be put into, one line each.

    Args:
        notebook: from `normalise`.
        outputs: whether it keeps its outputs, as a chapter does.
        figures: the plotting module that figure cells are generated from.
    """
    seen: set[str] = set()
    count = 0
    for position, cell in enumerate(notebook.cells, 1):
        name = f"cell {cell.get('id', position)}"
        if "id" not in cell or RANDOM_ID.fullmatch(cell.id) or not SLUG.fullmatch(cell.id):
            yield f"{name}: give it an id that is short and means something, such as 'relu-backward'"
        elif cell.id in seen:
            yield f"{name}: two cells have this id"
        seen.add(cell.get("id", ""))
        if not cell.source.strip():
            yield f"{name}: empty"
        if cell.cell_type != "code":
            continue
        if outputs:
            count += 1
            yield from (f"{name}: {fault}" for fault in _output_faults(cell, count))
        try:
            if generated_source(cell, figures) not in (None, cell.source):
                yield f"{name}: differs from {figures.name}; run `make notebooks`"
        except NotebookError as error:
            yield f"{name}: {error}"


def _output_faults(cell: NotebookNode, count: int) -> Iterator[str]:
    """Faults of a chapter's code cell that should be the `count`-th to have run."""
    if cell.execution_count != count:
        yield f"execution count {cell.execution_count}, expected {count}; run `make notebooks`"
    for output in cell.outputs:
        if "execution_count" in output and output.execution_count != cell.execution_count:
            yield f"an output has execution count {output.execution_count}"
        if output.output_type == "error":
            yield f"raised {output.ename}; catch the error and print its message"
        if output.get("name") == "stderr":
            yield f"wrote to stderr: {output.text.strip().splitlines()[0]}"
        data = output.get("data", {})
        shown = "\n".join(
            [output.get("text", "")] + [data.get(f"text/{kind}", "") for kind in ("plain", "html", "markdown")]
        )
        for what, pattern in MACHINE.items():
            if match := pattern.search(shown):
                yield f"shows {what}: {match.group()}"
        if "<dc:date>" in data.get("image/svg+xml", ""):
            yield "a picture contains its date; draw it through canvas()"
        if "fill: #ffffff" in data.get("image/svg+xml", ""):
            yield "a picture has a white background; draw it through canvas()"


def figure_name(cell: NotebookNode) -> str | None:
    """The function a figure cell names by its tag ``figure:NAME``, None for other cells."""
    named = [tag.removeprefix("figure:") for tag in cell.metadata.get("tags", []) if tag.startswith("figure:")]
    return named[0] if named else None


def generated_source(cell: NotebookNode, figures: Path) -> str | None:
    """What a figure cell's source must be: the style, its function, then its own calls; None for other cells."""
    if (name := figure_name(cell)) is None:
        return None
    if not figures.exists():
        raise NotebookError(f"names figure {name}, but there is no {figures}")
    try:
        statements = ast.parse(cell.source).body
    except SyntaxError as error:
        raise NotebookError(f"line {error.lineno}: {error.msg}") from error
    calls = [s.lineno for s in statements if not isinstance(s, ast.FunctionDef) and name in _names(s)]
    if not calls:
        raise NotebookError(f"tagged figure:{name}, but does not call {name}()")
    own = "\n".join(cell.source.splitlines()[calls[0] - 1 :])
    source = _formatted(f"{_extract(figures, name)}\n\n\n{own}\n")
    if (lines := source.count("\n") + 1) > FIGURE_LINES:
        raise NotebookError(f"the figure takes {lines} lines; the limit is {FIGURE_LINES}")
    return source


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _extract(module: Path, name: str) -> str:
    """Function `name` of `module` and all of the module's that it uses, without docstrings, in the module's order."""
    source = module.read_text(encoding="utf-8")
    body = ast.parse(source).body
    defined = {definition: s for s in body for definition in _defines(s)}
    if not isinstance(defined.get(name), ast.FunctionDef):
        raise NotebookError(f"{module.name} has no function {name}")
    wanted, queue = set(), [name]
    while queue:
        statement = defined[queue.pop()]
        if statement not in wanted:
            wanted.add(statement)
            queue += _names(statement) & defined.keys()
    lines = source.splitlines()
    imports = [s for s in body if isinstance(s, ast.Import | ast.ImportFrom)]  # ruff removes those not used
    return "\n".join(_without_docstring(s, lines) for s in imports + [s for s in body if s in wanted])


def _defines(statement: ast.stmt) -> list[str]:
    """The names that a function definition or an assignment of a module binds."""
    if isinstance(statement, ast.FunctionDef):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [name for target in statement.targets for name in _names(target)]
    return []


def _without_docstring(statement: ast.stmt, lines: list[str]) -> str:
    text = lines[statement.lineno - 1 : statement.end_lineno]
    if isinstance(statement, ast.FunctionDef) and ast.get_docstring(statement) is not None:
        docstring = statement.body[0]
        end = docstring.end_lineno or docstring.lineno
        del text[docstring.lineno - statement.lineno : end - statement.lineno + 1]
    return "\n".join(text)


def _formatted(source: str) -> str:
    """`source` as ruff has it: imports sorted, unused ones gone, formatted."""
    for command in (["check", "--select", "I,F401", "--fix-only", "--quiet"], ["format", "--quiet"]):
        ruff = [
            sys.executable,
            "-m",
            "ruff",
            *command,
            "--config",
            str(ROOT / "pyproject.toml"),
            "--stdin-filename",
            "f.py",
            "-",
        ]
        done = subprocess.run(ruff, input=source, capture_output=True, text=True, encoding="utf-8", check=False)
        if done.returncode:
            raise NotebookError(f"ruff: {done.stderr.strip().splitlines()[0]}")
        source = done.stdout
    return source.strip("\n")


def fill_figures(notebook: NotebookNode, figures: Path) -> None:
    """Write the generated source into every figure cell of `notebook`."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            try:
                cell.source = generated_source(cell, figures) or cell.source
            except NotebookError as error:
                raise NotebookError(f"cell {cell.get('id')}: {error}") from error


SAME = {"MKL_CBWR": "COMPATIBLE"}  # a kernel's environment: the same last digits on every processor


def execute(notebook: NotebookNode, folder: Path, timeout: int = 120) -> None:
    """Run all cells of `notebook` in `folder`; NotebookError names the first cell that fails."""
    running = {"cell": "?"}
    with tempfile.TemporaryDirectory() as sockets:
        client = NotebookClient(
            notebook,
            timeout=timeout,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(folder)}},
            # over TCP every kernel would print a warning
            config=Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"}),
        )
        client.on_cell_execute = lambda cell, cell_index: running.update(cell=cell.get("id"))
        try:
            client.execute(env=os.environ | SAME)
        except CellExecutionError as error:
            reason = error.evalue.strip().splitlines()
            raise NotebookError(f"cell {running['cell']}: {error.ename}: {reason[0] if reason else ''}") from error
        except CellTimeoutError as error:
            raise NotebookError(f"cell {running['cell']}: ran over {timeout} s") from error
        except (DeadKernelError, RuntimeError) as error:
            raise NotebookError(f"cell {running['cell']}: {error}") from error


def missing(before: NotebookNode, after: NotebookNode) -> Iterator[str]:
    """The lines that say what is not on this machine, where outputs made with it would give way to them."""
    shown = {cell.get("id"): _printed(cell) for cell in before.cells}
    for cell in after.cells:
        old = shown.get(cell.get("id"), "").splitlines()
        new = [line for line in _printed(cell).splitlines() if "not run here" in line and line not in old]
        if old:
            yield from new


def _printed(cell: NotebookNode) -> str:
    return "".join(output.get("text", "") for output in cell.get("outputs", []))


def difference(old: str, new: str) -> str:
    """The first line in which two texts differ, in words."""
    old_lines, new_lines = old.splitlines(), new.splitlines()
    for number, (is_, should) in enumerate(zip(old_lines, new_lines, strict=False), 1):
        if is_ != should:
            return f"line {number} is {is_.strip()[:60]!r}, the committed form has {should.strip()[:60]!r}"
    return f"{len(old_lines)} lines, the committed form has {len(new_lines)}"


def process(path: Path, check: bool = False, run: bool = False) -> str:
    """Check, or run and normalise, one notebook; write it where it changed.

    Returns:
        What was done, in words.

    Raises:
        NotebookError: one line a fault; the file is left as it was.
    """
    outputs, figures = is_chapter(path), path.parent / "figures.py"
    started = time.monotonic()
    old = path.read_text(encoding="utf-8")
    notebook = read(path)
    if run and outputs:
        before = copy.deepcopy(notebook)
        fill_figures(notebook, figures)
        execute(notebook, path.parent)
        if gone := next(missing(before, notebook), None):
            return f"left as it was, to keep its outputs ({gone})"
    if path.resolve().is_relative_to(ROOT / "solutions"):
        grade_cells.fill(notebook, path.stem)
    notebook = normalise(notebook, outputs)
    found = list(faults(notebook, outputs, figures))
    new = to_text(notebook)
    if check and new != old:
        found.insert(0, f"not in the committed form (run `make notebooks`): {difference(old, new)}")
    if found:
        raise NotebookError("\n".join(found))
    if new != old:
        write(path, new)
    ran = f", ran in {time.monotonic() - started:.1f} s" if run and outputs else ""
    return ("in the committed form" if new == old else "written") + ran


def committed(root: Path = ROOT) -> list[Path]:
    """All notebooks that this tool answers for: the chapters, then the solutions."""
    return sorted(root.glob("book/*.ipynb")) + sorted(root.glob("solutions/*/*.ipynb"))


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.notebooks", description="Run notebooks and bring them into the committed form."
    )
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="notebooks; all chapters and solutions if none is named"
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if a notebook is not in the committed form"
    )
    parser.add_argument(
        "--execute", action="store_true", help="run the chapters first, with their figure cells made from figures.py"
    )
    options = parser.parse_args(arguments)
    if options.check and options.execute:
        parser.error("--check changes nothing, --execute does: choose one")
    failed = 0
    for path in options.paths or committed():
        try:
            print(f"{path.name}: {process(path, options.check, options.execute)}", flush=True)
        except (NotebookError, OSError) as error:
            failed += 1
            for line in str(error).splitlines():
                print(f"{path}: {line}", file=sys.stderr, flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
