"""Make `exercises/` from `solutions/` with nbgrader's generate_assignment, or leave it as it is.

    python -m tools.release [--check]

The release is made in a temporary copy of the course, brought into the committed form and put through gates: no
answer, no hidden test and no grader may stand in it, every stub raises NotImplementedError, nbgrader's metadata is
complete. Only a release without a fault takes the old one's place. With --check nothing is written: exit 1 unless the
committed release is, byte for byte, the one that would be made.
"""

import argparse
import ast
import io
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from graders.classroom.points import differing
from tools.notebooks import ROOT, NotebookError, faults, normalise, read, to_text, write

MARKERS = re.compile(r"(BEGIN|END) (SOLUTION|HIDDEN TESTS|MARK SCHEME)")
GRADERS = re.compile(r"\b(graders|nbgrader)\b")
COACH = re.compile(r"\bfrom graders import coach\b(?! *,)")  # the one thing of the graders that an exercise names
FIELDS = ("grade", "grade_id", "locked", "points", "schema_version", "solution", "task")
# Lines that any Function may share with an answer: they give nothing away.
COMMON = re.compile(
    r'@|def |class |import |from |#|"""|return None'
    r"|ctx\.save_for_backward\(\w+(, \w+)*\)$|\(?\w+(, ?\w*)*\)? = ctx\.saved_tensors$"
)
ANSWER_LENGTH = 20  # characters; shorter lines ("return x") say nothing


class ReleaseError(Exception):
    """Why there is no new release; one line a fault."""


def answer_lines(source: str) -> Iterator[str]:
    """The lines of a solution cell that nbgrader takes out and that give something away."""
    inside = "### BEGIN SOLUTION" not in source
    for line in map(str.strip, source.splitlines()):
        if MARKERS.search(line):
            inside = "BEGIN" in line
        elif inside and len(line) >= ANSWER_LENGTH and not COMMON.match(line):
            yield line


def hidden_lines(source: str) -> Iterator[str]:
    """The lines of a grade cell between the markers of its hidden tests."""
    inside = False
    for line in map(str.strip, source.splitlines()):
        if MARKERS.search(line):
            inside = "BEGIN" in line
        elif inside and len(line) >= ANSWER_LENGTH // 2:
            yield line


def gate(source: NotebookNode, release: NotebookNode) -> Iterator[str]:
    """What may not be in the release of a notebook, or is missing from it, one line each.

    Args:
        source: the notebook of `solutions/`.
        release: the one that was made from it.
    """
    graded = {cell.metadata.nbgrader.grade_id: cell for cell in source.cells if "nbgrader" in cell.metadata}
    released = {cell.metadata.nbgrader.grade_id: cell for cell in release.cells if "nbgrader" in cell.metadata}
    tasks = [name for name, cell in graded.items() if cell.metadata.nbgrader.solution]
    secret: dict[str, str] = {}
    for name, cell in graded.items():
        lines = answer_lines(cell.source) if cell.metadata.nbgrader.solution else hidden_lines(cell.source)
        secret |= dict.fromkeys(lines, name)

    for cell in release.cells:
        if match := MARKERS.search(cell.source) or GRADERS.search(COACH.sub("", cell.source)):
            yield f"cell {cell.id}: {match.group()!r}"
        for line in map(str.strip, cell.source.splitlines()):
            for text, name in secret.items():
                if text == line or (len(text) >= ANSWER_LENGTH and text in line):
                    yield f"cell {cell.id}: a line of {name} that students must not get: {text!r}"
    yield from differing(source)
    for name, cell in graded.items():
        meta = cell.metadata.nbgrader
        if (twin := released.get(name)) is None:
            yield f"cell {name}: missing from the release"
            continue
        if any(meta.get(field) != twin.metadata.nbgrader.get(field) for field in FIELDS):
            yield f"cell {name}: its nbgrader metadata differs from the solution's"
        if missing := [field for field in FIELDS if field not in meta and (field != "points" or meta.grade)]:
            yield f"cell {name}: its nbgrader metadata lacks {', '.join(missing)}"
        if (meta.grade or meta.solution or meta.locked) and not twin.metadata.nbgrader.get("checksum"):
            yield f"cell {name}: no checksum"
        if meta.solution and cell.cell_type == "code":
            yield from _stub_faults(name, twin.source)
        if meta.grade and not meta.solution and not any(re.fullmatch(rf"test_{task}_\w+", name) for task in tasks):
            yield f"cell {name}: a test cell must be named test_<solution cell>_<aspect>"
        if meta.grade and not meta.solution and not (meta.locked and twin.source.strip()):
            yield f"cell {name}: a test cell must be locked and say what it checks"


def _stub_faults(name: str, stub: str) -> Iterator[str]:
    if "raise NotImplementedError" not in stub:
        yield f"cell {name}: its stub does not raise NotImplementedError"
    if not stub.startswith("%%"):
        try:
            tree = ast.parse(stub)
        except SyntaxError as error:
            yield f"cell {name}: its stub is not Python, line {error.lineno}: {error.msg}"
            return
        if line := next(_raising(tree), 0):
            yield f"cell {name}: its stub raises in line {line} when the cell runs, not when it is called"


def _raising(node: ast.AST) -> Iterator[int]:
    """The lines that raise outside a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise):
            yield child.lineno
        elif not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield from _raising(child)


def generate(root: Path, target: Path) -> None:
    """Write the release of the course at `root` into the new folder `target`.

    Raises:
        ReleaseError: every fault of every set, one line each.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve()
        shutil.copy(root / "nbgrader_config.py", copy)
        shutil.copytree(root / "solutions", copy / "solutions", ignore=shutil.ignore_patterns(".*", "__pycache__"))
        for path in sorted(copy.glob("solutions/*/*.ipynb")):
            write(path, to_text(normalise(read(path), outputs=False)))
        _run_nbgrader(copy)
        for path in sorted(copy.glob("solutions/*/*.ipynb")):
            name = path.relative_to(copy / "solutions")
            found += [f"{name}: {fault}" for fault in _finish(read(path), copy / "exercises" / name)]
        if found:
            raise ReleaseError("\n".join(found))
        shutil.copytree(copy / "exercises", target)


def _run_nbgrader(course: Path) -> None:
    """Run generate_assignment for every set of the course, without a gradebook."""
    from nbgrader.apps import NbGrader
    from nbgrader.converters import GenerateAssignment
    from nbgrader.converters.base import NbGraderException

    log = io.StringIO()
    app = NbGrader()
    argv, sys.argv = sys.argv, sys.argv[:1]  # traitlets would read ours
    try:
        app.initialize([], root=str(course))
    finally:
        sys.argv = argv
    app.log.handlers[:] = [logging.StreamHandler(log)]
    app.config.SaveCells.enabled = False
    for folder in sorted((course / "solutions").iterdir()):
        app.coursedir.assignment_id = folder.name
        try:
            GenerateAssignment(coursedir=app.coursedir, parent=app, no_database=True).start()
        except (NbGraderException, SystemExit) as error:
            reasons = [line for line in log.getvalue().splitlines() if line.strip() and not line.startswith(" ")]
            raise ReleaseError(f"{folder.name}: nbgrader: {reasons[-1] if reasons else error}") from error


def _finish(source: NotebookNode, path: Path) -> Iterator[str]:
    """Bring a released notebook into the committed form; yield its faults."""
    if not path.exists():
        yield "nbgrader made no release of it"
        return
    made = read(path)
    release = normalise(made, outputs=False)
    if [cell.source for cell in made.cells] != [cell.source for cell in release.cells]:
        yield "nbgrader's release ends a cell with a newline: its checksum would not hold"
    try:
        nbformat.validate(release)
    except nbformat.ValidationError as error:
        yield f"not a valid notebook: {error}"
    yield from faults(release, outputs=False, figures=path.parent / "figures.py")
    yield from gate(source, release)
    write(path, to_text(release))


def files(folder: Path) -> dict[str, bytes]:
    """The files of a folder by their relative paths."""
    paths = (path for path in folder.rglob("*") if path.is_file() and ".ipynb_checkpoints" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def replace(new: Path, old: Path) -> None:
    """Put folder `new` in the place of `old`, which is kept until `new` stands there."""
    kept = old.with_name(f".{old.name}.old")
    shutil.rmtree(kept, ignore_errors=True)
    if old.exists():
        os.replace(old, kept)
    try:
        os.replace(new, old)
    except OSError:
        if kept.exists():
            os.replace(kept, old)
        raise
    shutil.rmtree(kept, ignore_errors=True)


def release(root: Path = ROOT, check: bool = False) -> str:
    """Make the release anew, or compare it with the committed one.

    Returns:
        What was done, in words.

    Raises:
        ReleaseError: the release has faults, or --check found a difference; the old release is left as it was.
    """
    target = root / "exercises"
    new = root / ".exercises.new"
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "exercises"
        generate(root, made)
        wanted, present = files(made), files(target)
        different = sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))
        if check and different:
            raise ReleaseError(
                "\n".join(
                    f"exercises/{name}: differs from what solutions/ makes; run `make exercises`" for name in different
                )
            )
        if not different:
            return f"exercises: {len(wanted)} files, unchanged"
        shutil.rmtree(new, ignore_errors=True)
        try:
            shutil.copytree(made, new)
            replace(new, target)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return f"exercises: written, changed: {', '.join(different)}"


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="Make exercises/ from solutions/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 unless exercises/ is up to date")
    options = parser.parse_args(arguments)
    try:
        print(release(check=options.check))
    except (ReleaseError, NotebookError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
