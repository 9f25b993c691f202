"""Is this notebook the right one, is every cell of the set in it, and would it be graded? What can be repaired is.

    python doctor.py [--dry-run] exercises/01_relu/relu.ipynb

Nothing of a notebook is executed. The standard library is enough, so that the file also works alone, beside the
``doctor.json`` that students download with it; grading reads and repairs notebooks by the same functions.
"""

import argparse
import ast
import difflib
import hashlib
import json
import os
import re
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

MAX_BYTES = 10_000_000  # of a notebook; the largest of the course has 60 kB without outputs
MAX_CELLS = 1_000
MAX_DEPTH = 100  # of lists and objects in each other; outputs need about ten
MAX_SOURCE = 200_000  # characters of a cell that are looked at as Python
KEPT = ".doctor"  # the folder for files as they were before a repair

Said = tuple[str, str]  # what, and what is done or has to be done
Notebook = dict[str, Any]

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_COPY = re.compile(r"(?i)(\s*\(\d+\)|[-_ ]copy\d*|\s+-\s+copy(\s*\(\d+\))?)+$")
_CELLS = {
    "code": {"id", "cell_type", "metadata", "source", "outputs", "execution_count"},
    "markdown": {"id", "cell_type", "metadata", "source", "attachments"},
    "raw": {"id", "cell_type", "metadata", "source", "attachments"},
}
_METADATA: dict[str, Callable[[Any], bool]] = {  # what the notebook format says on keys that it knows
    "tags": lambda x: (
        isinstance(x, list) and all(isinstance(tag, str) and tag and "," not in tag for tag in x)
        and len(set(x)) == len(x)
    ),
    "name": lambda x: isinstance(x, str) and x != "",
    "jupyter": lambda x: isinstance(x, dict) and all(isinstance(flag, bool) for flag in x.values()),
    "execution": lambda x: isinstance(x, dict) and all(isinstance(time, str) for time in x.values()),
    "collapsed": lambda x: isinstance(x, bool),
    "scrolled": lambda x: isinstance(x, bool) or x == "auto",
    "format": lambda x: isinstance(x, str),
}  # fmt: skip
_KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)  # the last two: nested without end


def plain(text: object, most: int = 300) -> str:
    """``text`` on one line, fit for a terminal: control characters, escapes and turns of direction are spelled out."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)[: most + 1])
    return safe if len(safe) <= most else f"{safe[: most - 3]}..."


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a submission: what, what to do, and whether it keeps the submission from being graded."""

    file: str
    what: str
    remedy: str
    fatal: bool = False
    repaired: bool = False

    def __str__(self) -> str:
        return f"{plain(self.file, 100)}: {plain(self.what)}. {plain(self.remedy)}"


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
        """The text that students were given."""
        return self.source if self.shown is None else self.shown

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

    def with_source(self, source: str) -> "Original":
        """The same cell with another text, and the checksum that nbgrader computes for it."""
        locked = self.grade or (self.locked and not self.solution)
        parts = [source, self.cell_type, str(self.grade), str(self.solution), str(not self.solution and locked)]
        parts += [self.grade_id, *([str(float(self.points))] if self.grade else [])]
        checksum = hashlib.md5("".join(parts).encode("utf-8", "replace"), usedforsecurity=False).hexdigest()
        return replace(self, source=source, shown=None, checksum=checksum)


def released(notebook: Mapping[str, Any]) -> dict[str, Original]:
    """The cells of a released notebook that are the course's, in its order."""
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


# Reading: the file as nobody may have meant it, the text, the notebook.


def no_file(path: Path) -> str | None:
    """Why ``path`` is no plain file of its own; None if it is one. A link may lead anywhere on the machine."""
    try:
        return _no_file(path.lstat())
    except (OSError, ValueError) as error:
        return f"cannot be read ({getattr(error, 'strerror', None) or 'its name'})"


def _no_file(info: os.stat_result) -> str | None:
    for is_kind, name in (
        (stat.S_ISLNK, "is a symbolic link"),
        (stat.S_ISDIR, "is a folder"),
        (stat.S_ISFIFO, "is a named pipe"),
        (stat.S_ISSOCK, "is a socket"),
    ):
        if is_kind(info.st_mode):
            return name
    if not stat.S_ISREG(info.st_mode):
        return "is a device"
    return "is a hard link: the same file has another name elsewhere" if info.st_nlink > 1 else None


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """The bytes of a plain file; ValueError says in one line why it is not read."""
    if reason := no_file(path):
        raise ValueError(reason)
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            if reason := _no_file(os.fstat(file.fileno())):  # it was exchanged meanwhile
                raise ValueError(reason)
            data = file.read(most + 1)
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from None
    if len(data) > most:
        raise ValueError(f"has more than {most // 1_000_000} MB")
    return data


def read(path: Path, limited: bool = True) -> tuple[Notebook, list[Said]]:
    """The notebook at ``path`` in the form of nbformat 4.5, and what of its form was repaired.

    Args:
        path: the file.
        limited: False for one that grading itself wrote: it may be larger than one handed in.

    Raises:
        ValueError: why it is no notebook that can be graded, in one line.
    """
    return parse(read_bytes(path, MAX_BYTES if limited else 100 * MAX_BYTES), MAX_CELLS if limited else 10 * MAX_CELLS)


def parse(data: bytes, most_cells: int = MAX_CELLS) -> tuple[Notebook, list[Said]]:
    """As ``read``, of a file's bytes."""
    text, said = _text(data)
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        if "<<<<<<<" in text and ">>>>>>>" in text:
            raise ValueError(f"is not JSON: it holds the marks of an unresolved merge (line {error.lineno})") from None
        raise ValueError(f"is not JSON (line {error.lineno}, column {error.colno}: {error.msg})") from None
    except RecursionError:
        raise ValueError("is nested without end") from None
    except ValueError:
        raise ValueError("is not JSON that can be used: it holds a number of thousands of digits") from None
    if _depth(raw) > MAX_DEPTH:
        raise ValueError(f"is nested deeper than {MAX_DEPTH} levels")
    if "\\u" in text and _mend(raw):
        said.append(("holds halves of characters", "Each is read as a question mark."))
    if not isinstance(raw, dict):
        raise ValueError(f"is JSON but not a notebook ({type(raw).__name__})")
    notebook, old = _format_4(raw, text)
    return notebook, said + old + _tidy(notebook, most_cells)


def _text(data: bytes) -> tuple[str, list[Said]]:
    said = []
    encoding = "utf-8"
    for mark, name in ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            data, encoding = data[len(mark) :], name
            said.append((f"starts with a byte-order mark ({name.upper()})", "It is read as UTF-8 without."))
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"is not text in UTF-8 (byte {error.start})") from None
    if "\r" in text:
        said.append(("has Windows line ends", "They are read as plain ones."))
    return text, said


def _children(node: object) -> Iterator[object]:
    if isinstance(node, dict):
        yield from node.values()
    elif isinstance(node, list):
        yield from node


def _depth(raw: object) -> int:
    """Levels of lists and objects, counted up to one more than the limit."""
    depth, level = 0, [raw]
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [child for node in level for child in _children(node) if isinstance(child, dict | list)]
    return depth


def _mend(raw: object) -> bool:
    """Replace lone surrogates, which no file in UTF-8 can hold; whether there were any."""
    found = False

    def whole(value: object) -> object:
        nonlocal found
        if isinstance(value, str):
            mended = value.encode("utf-8", "replace").decode()
            found |= mended != value
            return mended
        if isinstance(value, dict):
            items = [(whole(key), whole(child)) for key, child in value.items()]
            value.clear()
            value.update(items)
        elif isinstance(value, list):
            value[:] = [whole(child) for child in value]
        return value

    whole(raw)
    return found


def _format_4(raw: Notebook, text: str) -> tuple[Notebook, list[Said]]:
    version, minor = raw.get("nbformat"), raw.get("nbformat_minor")
    if type(version) is not int or version < 1:
        raise ValueError("is JSON but not a notebook (it names no nbformat)")
    if version > 4:
        raise ValueError(f"is in nbformat {plain(version, 20)}, which is unknown here")
    said = [(f"is in the older nbformat {version}.{plain(minor, 20)}", "It is read as nbformat 4.5.")]
    if version < 4:
        try:
            import nbformat

            raw = json.loads(nbformat.writes(nbformat.reads(text.replace("\ufeff", ""), as_version=4)))
        except ImportError:
            raise ValueError(f"is in the old nbformat {version}: open and save it in JupyterLab") from None
        except Exception as error:  # nbformat raises many kinds for JSON that is no notebook
            raise ValueError(f"is JSON but not a notebook ({plain(f'{type(error).__name__}: {error}', 100)})") from None
    elif type(minor) is int and minor >= 5:
        said = []
    raw["nbformat_minor"] = 5
    return raw, said


def _tidy(notebook: Notebook, most_cells: int) -> list[Said]:
    """Give every cell the form of nbformat 4.5. What cannot be read as a cell at all raises ValueError."""
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        raise ValueError("is JSON but not a notebook (it has no list of cells)")
    if not cells:
        raise ValueError("has no cells")
    if len(cells) > most_cells:
        raise ValueError(f"has {len(cells):,} cells; more than {most_cells:,} are not graded")
    odd: list[int] = []
    ended: list[int] = []
    for number, cell in enumerate(cells, 1):
        source = cell.get("source") if isinstance(cell, dict) else None
        if isinstance(source, list) and all(isinstance(line, str) for line in source):
            source = "".join(source)
        if not isinstance(source, str):
            raise ValueError(f"is JSON but not a notebook (cell {number} has no text)")
        cell["source"] = re.sub("\r\n?", "\n", source)
        ended += [number] * (cell["source"] != source)
        odd += [number] * _tidy_cell(cell)
    if not any(cell["source"].strip() for cell in cells):
        raise ValueError("has no cell with anything in it")
    said = [(f"the form of {_numbers(odd)} was not a notebook's", "What does not belong there is left out.")] * bool(
        odd
    )
    said += [(f"{_numbers(ended)} had Windows line ends", "They are read as plain ones.")] * bool(ended)
    return [*said, *_tidy_ids(cells), *_tidy_metadata(notebook)]


def _numbers(found: Sequence[int]) -> str:
    more = ", ..." if len(found) > 5 else ""
    return f"cell{'s' * (len(found) > 1)} {', '.join(map(str, found[:5]))}{more}"


def _tidy_cell(cell: Notebook) -> bool:
    """Bring one cell into form; whether there was anything to do."""
    before = {key: value for key, value in cell.items() if key != "source"}
    if cell.get("cell_type") not in list(_CELLS):  # a list: the type may be anything, unhashable too
        cell["cell_type"] = "raw"
    kind = cell["cell_type"]
    for key in cell.keys() - _CELLS[kind]:
        del cell[key]
    meta = cell.get("metadata")
    cell["metadata"] = {
        key: value
        for key, value in (meta if isinstance(meta, dict) else {}).items()
        if key not in _METADATA or _METADATA[key](value)
    }
    if kind == "code":
        outputs = cell.get("outputs")
        good = [x for x in outputs if _is_output(x)] if isinstance(outputs, list) else []
        count = cell.get("execution_count")
        cell |= {"outputs": good, "execution_count": count if type(count) is int and count >= 0 else None}
    elif "attachments" in cell and not _are_attachments(cell["attachments"]):
        del cell["attachments"]
    return before != {key: value for key, value in cell.items() if key != "source"}


def _is_output(output: object) -> bool:
    if not isinstance(output, dict):
        return False
    match output.get("output_type"):
        case "stream":
            return isinstance(output.get("name"), str) and isinstance(output.get("text"), str | list)
        case "display_data" | "execute_result":
            return isinstance(output.get("data"), dict) and isinstance(output.get("metadata"), dict)
        case "error":
            return isinstance(output.get("traceback"), list) and isinstance(output.get("ename"), str)
    return False


def _are_attachments(found: object) -> bool:
    return isinstance(found, dict) and all(
        isinstance(bundle, dict) and all(isinstance(data, str | list) for data in bundle.values())
        for bundle in found.values()
    )


def _tidy_ids(cells: Iterable[Notebook]) -> list[Said]:
    """Give each cell an id of its own; of cells that share one, the first keeps it."""
    cells = list(cells)
    taken = {cell["id"] for cell in cells if isinstance(cell.get("id"), str)}
    seen: set[str] = set()
    new = []
    for number, cell in enumerate(cells, 1):
        name = cell.get("id")
        if not isinstance(name, str) or not _ID.fullmatch(name) or name in seen:
            name = next(
                n for n in (f"cell-{number}-{i}".removesuffix("-0") for i in range(len(cells) + 2)) if n not in taken
            )
            taken.add(name)
            new.append(number)
            cell["id"] = name
        seen.add(name)
    return [(f"the id of {_numbers(new)} was missing, malformed or another's", "A new one is given.")] * bool(new)


def _tidy_metadata(notebook: Notebook) -> list[Said]:
    said = []
    meta = notebook.get("metadata")
    if not isinstance(meta, dict):
        said.append(("the notebook's metadata were no metadata", "They are left out."))
        meta = {}
    kernel, language = meta.get("kernelspec"), meta.get("language_info")
    if (
        not isinstance(kernel, dict)
        or kernel.get("name") != "python3"
        or not isinstance(kernel.get("display_name"), str)
    ):
        name = kernel.get("name") if isinstance(kernel, dict) else None
        what = f"its kernel is {plain(name, 40)!r}" if name else "it names no kernel"
        said.append((what, "It is graded with python3."))
        meta = meta | {"kernelspec": dict(_KERNEL)}
    if not isinstance(language, dict) or language.get("name") != "python":
        if language is not None:
            said.append(("its language is not Python", "It is graded as Python."))
        meta = meta | {"language_info": {"name": "python"}}
    known = {"title": str, "authors": list, "orig_nbformat": int}
    for key, kind in known.items():
        if key in meta and not isinstance(meta[key], kind):
            said.append((f"the notebook's {key} is malformed", "It is left out."))
            meta = {name: value for name, value in meta.items() if name != key}
    if extra := notebook.keys() - {"nbformat", "nbformat_minor", "metadata", "cells"}:
        said.append((f"has {plain(', '.join(sorted(extra)), 60)} beside its cells", "It is left out."))
        for key in extra:
            del notebook[key]
    notebook["metadata"] = meta
    return said


# The set's own cells.


def _names(found: Sequence[str]) -> str:
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return ", ".join(plain(repr(name), 40) for name in found[:5]) + more


def claimed(cell: Mapping[str, Any]) -> str | None:
    """The grade_id that a cell says it has."""
    meta = cell["metadata"].get("nbgrader")
    name = meta.get("grade_id") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else None


def of_another_set(notebook: Notebook, originals: Mapping[str, Original]) -> str | None:
    """What to say of a notebook that has cells of some set and none of this one; None of all others."""
    names = [name for name in map(claimed, notebook["cells"]) if name]
    if not names or any(name in originals for name in names):
        return None
    return f"holds cells of another set ({_names(names)}) and none of this one"


def repair(notebook: Notebook, originals: Mapping[str, Original]) -> list[Said]:
    """Give every released cell its type, metadata and locked text back, and each deleted locked cell its place.

    Of a cell that stands twice the last keeps its role, as in nbgrader's ``DeduplicateIds``. Unlike nbgrader's
    ``add_missing_cells`` this needs no neighbour: a test cell goes before the next released cell, after all that the
    student wrote for it. A cell that claims to be of the set and is not is the student's own: it loses its claim.
    """
    said: list[Said] = []
    place: dict[str, Notebook] = {}
    twice: list[str] = []
    unknown: list[str] = []
    for cell in reversed(notebook["cells"]):
        name = claimed(cell)
        meta = cell["metadata"].pop("nbgrader", None)
        if name in originals and name not in place:
            place[name] = cell
            cell["metadata"]["nbgrader"] = meta
            said.extend(_repair_cell(cell, originals[name]))
        elif name in originals:
            twice.append(name)
        elif meta is not None and meta != {}:
            unknown.append(name or "without a name")
    said.reverse()
    said += [(f"cell {name} stands twice", "The last one counts; check by eye if the score surprises.")
             for name in reversed(Counter(twice))]  # fmt: skip
    if unknown:
        what = f"cell {_names(unknown)} is" if len(unknown) == 1 else f"cells {_names(unknown[::-1])} are"
        said.append((f"{what} not of this assignment", "Graded as a cell of the student's own."))
    return said + _put_back(notebook["cells"], originals, place)


def _repair_cell(cell: Notebook, original: Original) -> list[Said]:
    said: list[Said] = []
    name, meta, truth = original.grade_id, cell["metadata"]["nbgrader"], original.metadata()
    if cell["cell_type"] != original.cell_type:
        what = f"cell {name} was turned into a {cell['cell_type']} cell"
        said.append((what, f"It is graded as a {original.cell_type} cell."))
        cell["cell_type"] = original.cell_type
        for key in cell.keys() - _CELLS[original.cell_type] | {"attachments"}:
            cell.pop(key, None)
        if original.cell_type == "code":
            cell |= {"outputs": [], "execution_count": None}
    given = {"checksum": None, "cell_type": original.cell_type, "task": False} | meta
    wrong = [key for key in truth if key != "checksum" and not _equal(given.get(key), truth[key])]
    if changed := sorted([*wrong, *(meta.keys() - truth.keys())]):
        told = [f"{plain(key, 30)} {plain(repr(meta.get(key)), 30)} for {truth.get(key)!r}" for key in changed[:4]]
        said.append((f"the metadata of cell {name} were changed ({', '.join(told)})", "The released ones are used."))
    if changed or not isinstance(meta.get("checksum"), str | None):
        cell["metadata"]["nbgrader"] = truth
    if tags := cell["metadata"].pop("tags", None):
        said.append((f"cell {name} has the tags {_names(tags)}", "Graded without them."))
    edited = _normal(cell["source"]) != _normal(original.visible)
    if original.locked and edited and original.with_source(cell["source"]).checksum != meta.get("checksum"):
        said.append((f"the text of the locked cell {name} was changed", "The released text is graded."))
        cell["source"] = original.source
    return said


def _equal(one: object, other: object) -> bool:
    """Whether two values are the same in JSON, where true is not 1 but 2 is 2.0."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _normal(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())


def _put_back(cells: list[Notebook], originals: Mapping[str, Original], place: dict[str, Notebook]) -> list[Said]:
    said: list[Said] = []
    order = list(originals)
    for number, name in reversed(list(enumerate(order))):
        original = originals[name]
        if name in place or not original.locked:
            continue
        after = next((place[later] for later in order[number + 1 :] if later in place), None)
        at = next((i for i, cell in enumerate(cells) if cell is after), len(cells))
        cell = {"id": f"restored-{name}"[:64], "cell_type": original.cell_type, "source": original.source}
        cell["metadata"] = {"deletable": False, "editable": False, "nbgrader": original.metadata()}
        if original.cell_type == "code":
            cell |= {"outputs": [], "execution_count": None}
        place[name] = cell
        cells.insert(at, cell)
        kind = "test cell" if original.grade else "locked cell"
        said.append((f"{kind} {name} was deleted", "It is put back and graded."))
    if len(said) > 8 and len(said) == sum(original.locked for original in originals.values()):
        said = [("none of the set's own cells is marked as such, as if converted", "All are put back at its end.")]
    _tidy_ids(cells)
    return said


def meaning(notebook: Notebook, originals: Mapping[str, Original]) -> str:
    """What grading makes of a notebook, as a digest: the same before and after a repair, whatever its outputs are."""
    copy = json.loads(json.dumps(notebook))
    repair(copy, originals)
    cells = []
    for cell in copy["cells"]:
        name = claimed(cell)
        source = "" if name and originals[name].locked else cell["source"]
        cells.append([name, cell["cell_type"], source, cell["metadata"].get("tags")])
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def deleted_answers(notebook: Notebook, originals: Mapping[str, Original]) -> list[Said]:
    """The answer cells that are not there: their stubs are not put back, they could undo an answer elsewhere."""
    there = set(map(claimed, notebook["cells"]))
    gone = [name for name, cell in originals.items() if cell.solution and not cell.locked and name not in there]
    return [(f"the answer cell {name} was deleted", "Its tests run on whatever defines the name.") for name in gone]


def without_magics(source: str) -> str:
    """``source`` with IPython's own lines, which are not Python, replaced by lines that do nothing."""
    lines = (re.sub(r"^(\s*)([%!?].*|[\w.]+\?{1,2}\s*)$", r"\1pass", line) for line in source.split("\n"))
    return "\n".join(re.sub(r"^(\s*[\w.,\s]+=\s*)[!%].*$", r"\1None", line) for line in lines)


def python(source: str) -> ast.Module:
    """The syntax tree of a cell; raises one of ``NOT_PYTHON``."""
    if len(source) > MAX_SOURCE:
        raise ValueError("too long")
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile(without_magics(source), "cell", "exec", flags, dont_inherit=True)


def bound_names(notebook: Notebook) -> set[str]:
    """The names that the notebook's cells give to something."""
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


def stubs(notebook: Notebook, originals: Mapping[str, Original]) -> list[Said]:
    """The answers that nobody has written yet."""
    cells = {claimed(cell): cell for cell in notebook["cells"]}
    still = [name for name, cell in originals.items() if cell.solution and not cell.locked and name in cells
             and _normal(cells[name]["source"]) == _normal(cell.visible)]  # fmt: skip
    return [(f"the answer cell {name} is still as it was given out", "It earns nothing.") for name in still]


def nearest(name: str, bound: Iterable[str]) -> str:
    """A hint at the name that may have been meant, or nothing."""
    some = sorted(other for other in bound if len(other) < 3 * len(name) + 10)[:1000]  # a comparison takes its time
    near = difflib.get_close_matches(name, some, 1, 0.5)
    return f"; there is {near[0]!r}" if near else ""


def answers(notebook: Notebook, originals: Mapping[str, Original]) -> list[Said]:
    """What a look at the answers tells: cells that are not Python, names that nothing has."""
    said = deleted_answers(notebook, originals)
    bound = bound_names(notebook)
    for cell in notebook["cells"]:
        name = claimed(cell)
        original = originals.get(name) if name else None
        if original is None or original.locked or not original.solution or cell["cell_type"] != "code":
            continue
        if cell["source"].startswith("%%") or _normal(cell["source"]) == _normal(original.visible):
            continue
        try:
            python(cell["source"])
        except NOT_PYTHON as error:
            where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
            why = f"{getattr(error, 'msg', None) or type(error).__name__}{where}"
            said.append((f"the answer cell {name} is not Python ({plain(why, 100)})", "It earns nothing."))
            continue
        if name not in bound:
            said.append((f"nothing is called {name}{nearest(name, bound)}", "Its tests earn nothing: keep the name."))
        elif "raise NotImplementedError" in cell["source"]:
            said.append((f"the answer cell {name} still raises NotImplementedError", "Take that line out."))
    return said


# Files: names, and writing.


def alike(wanted: str, name: str) -> bool:
    """Whether ``name`` is how a browser, a system or a hand would have altered the file name ``wanted``."""
    stem = re.sub(r"(?i)(\.ipynb)?(\.(txt|json))?$", "", name.strip(), count=1)
    ends = re.search(r"(?i)\.ipynb(\.txt|\.json)?$|\.json$", name.strip())
    return bool(ends) and _COPY.sub("", stem.strip()).strip().casefold() == wanted.removesuffix(".ipynb").casefold()


def keep(path: Path, root: Path) -> Path:
    """Copy a file, as it is, into ``root/.doctor``; nothing there is ever overwritten. Returns the copy's path."""
    data = read_bytes(path)
    try:
        inside = path.absolute().relative_to(root.absolute())
    except ValueError:
        inside = Path(path.name)
    kept = root / KEPT / inside.parent / f"{inside.name}.{hashlib.sha256(data).hexdigest()[:12]}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    if not kept.exists():
        _write(kept, data)
    return kept


def to_bytes(notebook: Notebook) -> bytes:
    """The notebook's file, in the form that Jupyter gives it."""
    cells = [cell | {"source": cell["source"].splitlines(keepends=True)} for cell in notebook["cells"]]
    text = json.dumps(notebook | {"cells": cells}, indent=1, ensure_ascii=False, sort_keys=True)
    return f"{text}\n".encode()


def write(path: Path, notebook: Notebook, root: Path) -> Path:
    """Put a repaired notebook in its file's place; the file as it was is kept first. Returns where.

    It keeps its time of change, the only sign of when it was handed in where there is no other.
    """
    kept = keep(path, root)
    before = path.stat()
    _write(path, to_bytes(notebook), before)
    return kept


def _write(path: Path, data: bytes, like: os.stat_result | None = None) -> None:
    """Write a file that is there whole or not at all, with the rights and times of another."""
    handle, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(data)
        if like:
            os.chmod(new, stat.S_IMODE(like.st_mode) & 0o777)
            if hasattr(os, "chown"):
                with suppress(PermissionError):
                    os.chown(new, like.st_uid, like.st_gid)
            os.utime(new, ns=(like.st_atime_ns, like.st_mtime_ns))
        os.replace(new, path)
    except BaseException:
        Path(new).unlink(missing_ok=True)
        raise


def look(
    path: Path, originals: Mapping[str, Original], file: str | None = None, check: Callable[[Notebook], None] = bool
) -> tuple[Notebook | None, list[Problem]]:
    """Examine one notebook; nothing is written.

    Args:
        path: the file.
        originals: the set's own cells.
        file: what to call it.
        check: raises ValueError for a notebook that grading refuses for a reason of its own.

    Returns:
        The repaired notebook (None: there is nothing to repair, or no repair), and what is or was wrong.
    """
    file = file or path.name
    try:
        notebook, form = read(path)
        if other := of_another_set(notebook, originals):
            raise ValueError(other)
        said = form + repair(notebook, originals)
        check(notebook)
    except ValueError as error:
        return None, [Problem(file, str(error), remedy(str(error)), fatal=True)]
    problems = [Problem(file, *one, repaired=True) for one in said]
    problems += [Problem(file, *one) for one in answers(notebook, originals)]
    return (notebook if said else None), problems


def remedy(why: str) -> str:
    """What to do about a notebook that cannot be read."""
    if "MB" in why:
        return "Clear its outputs and save it again."
    return "Hand in the right one." if "another set" in why else "Ask for a new one."


# The student's command.


def load(path: Path) -> dict[str, dict[str, Original]]:
    """The sets' own cells, by notebook, from ``doctor.json``."""
    sets = json.loads(path.read_text(encoding="utf-8"))
    return {name: {cell["grade_id"]: Original(**cell) for cell in cells} for name, cells in sets.items()}


def notebooks_in(paths: Iterable[Path], names: Iterable[str]) -> list[Path]:
    """The notebooks that the arguments mean: files, and what a folder or its folders hold under a set's name."""
    wanted = [f"{name}.ipynb" for name in names]
    found: list[Path] = []
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            there = sorted([*path.glob("*"), *path.glob("*/*")])
            found += [p for p in there if any(alike(name, p.name) for name in wanted) and KEPT not in p.parts]
        else:
            found.append(path)
    return found


def treat(path: Path, sets: Mapping[str, Mapping[str, Original]], root: Path, dry_run: bool,
          check: Callable[[Notebook], None] = bool) -> tuple[bool, list[str]]:  # fmt: skip
    """Examine one notebook by itself and repair it; whether it would be graded, and a line on each finding."""
    names = [name for name in sets if alike(f"{name}.ipynb", path.name)]
    if not names:
        known = ", ".join(f"{name}.ipynb" for name in sets)
        return False, [str(Problem(path.name, "is not the name of a set's notebook", f"There are {known}."))]
    wanted = path.with_name(f"{names[0]}.ipynb")
    notebook, problems = look(path, sets[names[0]], check=check)
    fatal = any(problem.fatal for problem in problems)
    if not fatal:
        problems += [Problem(path.name, *said) for said in stubs(read(path)[0], sets[names[0]])]
    misnamed = path.name != wanted.name
    if misnamed:
        problems.insert(
            0, Problem(path.name, f"is not called {wanted.name}", f"It has to be {wanted.name}.", fatal=True)
        )
        others = [p.name for p in wanted.parent.iterdir() if alike(wanted.name, p.name)]
        if not fatal and others == [path.name]:
            problems[0] = Problem(path.name, f"is not called {wanted.name}", "It is renamed.", repaired=True)
        elif not fatal:
            others.remove(path.name)
            more = f"There is also {_names(sorted(others))}: hand in one of them, as {wanted.name}."
            problems[0] = Problem(path.name, f"is not called {wanted.name}", more, fatal=True)
    if not dry_run and not any(problem.fatal for problem in problems):
        if notebook is not None:
            write(path, notebook, root)
        if misnamed:
            os.rename(path, wanted)
            misnamed = False
    graded = not misnamed and not any(problem.fatal for problem in problems)
    return graded, [line(problem, dry_run) for problem in problems]


def line(problem: Problem, dry_run: bool) -> str:
    """One finding as it is printed."""
    mark = (" [would be repaired]" if dry_run else " [repaired]") if problem.repaired else ""
    return f"{problem}{mark}"


EXIT_CODES = "exit codes: 0 all would be graded, 1 at least one would not as it now stands, 2 a wrong command"


def main(arguments: Sequence[str] | None = None) -> int:
    """The student's command; returns its exit code."""
    truth = Path(__file__).with_suffix(".json")
    parser = argparse.ArgumentParser(
        prog="python doctor.py",
        description="See whether your notebooks would be graded, and repair what can be. The files as they were are "
        f"kept in {KEPT}/. Answers that are missing are named; they do not keep the rest from being graded.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("path", metavar="PATH", nargs="+", type=Path, help="a notebook, or a folder with notebooks")
    parser.add_argument("--dry-run", action="store_true", help="say what is wrong, write nothing")
    options = parser.parse_args(arguments)
    try:
        sets = load(truth)
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        print(f"{truth.name} is missing or damaged: take it from the course's download", file=sys.stderr)
        return 2
    return treat_all(options.path, sets, options.dry_run)


def treat_all(paths: Iterable[Path], sets: Mapping[str, Mapping[str, Original]], dry_run: bool,
              check: Callable[[Notebook], None] = bool) -> int:  # fmt: skip
    """Examine notebooks one by one, print what there is to say; the exit code."""
    paths = list(paths)
    if missing := [path for path in paths if not os.path.lexists(path)]:
        print(f"there is no {plain(missing[0])}", file=sys.stderr)
        return 2
    notebooks = notebooks_in(paths, sets)
    if not notebooks:
        print(f"there is no notebook of a set in {plain(paths[0])}", file=sys.stderr)
        return 2
    bad = 0
    for path in notebooks:
        try:
            graded, lines = treat(path, sets, path.absolute().parent, dry_run, check)
        except OSError as error:
            graded, lines = False, [f"{plain(path.name)}: cannot be repaired here ({plain(error.strerror)})"]
        bad += not graded
        for text in lines:
            print(text)
        print(f"{plain(path)}: would {'' if graded else 'NOT '}be graded{' as it now stands' * (not graded)}.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
