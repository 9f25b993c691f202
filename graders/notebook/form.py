"""From a file to a notebook in the form of nbformat 4.5, with what of its form was repaired, and back."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .codes import Code
from .files import MAX_BYTES, read_bytes
from .problem import Findings, Problem, Unreadable, printable

MAX_CELLS = 1_000
MAX_DEPTH = 100  # of lists and objects in each other; outputs need about ten

Notebook = dict[str, Any]

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CELL_KEYS = {
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
_FOREIGN = {"r": "R", "julia": "Julia"}  # languages that are refused; a kernel of any other is taken for Python's
_FOREIGN_KERNELS = re.compile(r"(?P<r>ir)|(?P<julia>julia)(?:-[\d.]+)?")  # as IRkernel, IJulia and Colab name them


def read(path: Path, limited: bool = True, file: str | None = None) -> tuple[Notebook, list[Problem]]:
    """Read the notebook at ``path`` in the form of nbformat 4.5; return it and what of its form was repaired.

    Args:
        path: the file.
        limited: False for one that grading itself wrote: it may be larger than one handed in.
        file: what problems call it; None: its name.

    Raises:
        Unreadable: it is not a notebook that can be graded.
    """
    data = read_bytes(path, MAX_BYTES if limited else 100 * MAX_BYTES, file)
    return parse(data, file or path.name, MAX_CELLS if limited else 10 * MAX_CELLS)


def parse(data: bytes, file: str, most_cells: int = MAX_CELLS) -> tuple[Notebook, list[Problem]]:
    """Read a notebook from the bytes of a file; see ``read``."""
    problems = Findings(file)
    text = _text(data, problems)
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        if "<<<<<<<" in text and ">>>>>>>" in text:
            what = f"is not JSON: it holds the marks of an unresolved merge (line {error.lineno})"
            raise Unreadable(Code.MERGE_MARKS, file, what) from None
        what = f"is not JSON (line {error.lineno}, column {error.colno}: {error.msg})"
        raise Unreadable(Code.NOT_JSON, file, what) from None
    except RecursionError:
        raise Unreadable(Code.TOO_DEEP, file, "is nested too deeply") from None
    except ValueError:
        what = "is not usable JSON: it holds a number with thousands of digits"
        raise Unreadable(Code.HUGE_NUMBER, file, what) from None
    if _depth(raw) > MAX_DEPTH:
        raise Unreadable(Code.TOO_DEEP, file, f"is nested deeper than {MAX_DEPTH} levels")
    if "\\u" in text and _replace_surrogates(raw):
        problems.repaired(
            Code.HALF_CHARACTERS, "holds incomplete characters (lone surrogates)", "Each is read as a question mark."
        )
    if not isinstance(raw, dict):
        raise not_a_notebook(file, type(raw).__name__)
    notebook = _format_4(raw, text, problems)
    _tidy(notebook, most_cells, problems)
    return notebook, problems


def not_a_notebook(file: str, why: str) -> Unreadable:
    """Return the exception for JSON that does not have the form of a notebook."""
    return Unreadable(Code.NOT_A_NOTEBOOK, file, f"is JSON but not a notebook ({why})")


def _text(data: bytes, problems: Findings) -> str:
    encoding = "utf-8"
    for mark, name in ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            data, encoding = data[len(mark) :], name
            what = f"starts with a byte-order mark ({name.upper()})"
            problems.repaired(Code.BYTE_ORDER_MARK, what, "It is read without the mark.")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise Unreadable(Code.NOT_TEXT, problems.file, f"is not text in UTF-8 (byte {error.start})") from None
    if "\r" in text:
        problems.repaired(Code.WINDOWS_LINES, "has Windows line endings", "They are read as Unix line endings.")
    return text


def _children(node: object) -> Iterator[object]:
    if isinstance(node, dict):
        yield from node.values()
    elif isinstance(node, list):
        yield from node


def _depth(raw: object) -> int:
    """Count the levels of lists and objects, up to one more than the limit."""
    depth, level = 0, [raw]
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [child for node in level for child in _children(node) if isinstance(child, dict | list)]
    return depth


def _replace_surrogates(raw: object) -> bool:
    """Replace lone surrogates, which no file in UTF-8 can hold; return whether there were any."""
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


def _format_4(raw: Notebook, text: str, problems: Findings) -> Notebook:
    file = problems.file
    version, minor = raw.get("nbformat"), raw.get("nbformat_minor")
    if type(version) is not int or version < 1:
        raise not_a_notebook(file, "it names no nbformat")
    if version > 4:
        raise Unreadable(Code.UNKNOWN_FORMAT, file, f"is in nbformat {printable(version, 20)}, which is unknown here")
    if version < 4:
        try:
            import nbformat

            raw = json.loads(nbformat.writes(nbformat.reads(text.replace("\ufeff", ""), as_version=4)))
        except ImportError:
            what = f"is in the old nbformat {version}: open and save it in JupyterLab"
            raise Unreadable(Code.OLD_FORMAT, file, what) from None
        except Exception as error:  # nbformat raises many kinds for JSON that is no notebook
            raise not_a_notebook(file, printable(f"{type(error).__name__}: {error}", 100)) from None
    if version < 4 or type(minor) is not int or minor < 5:
        what = f"is in the older nbformat {version}.{printable(minor, 20)}"
        problems.repaired(Code.OLDER_FORMAT, what, "It is read as nbformat 4.5.")
    raw["nbformat_minor"] = 5
    return raw


def _tidy(notebook: Notebook, most_cells: int, problems: Findings) -> None:
    """Give every cell the form of nbformat 4.5; refuse what cannot be read as a cell at all."""
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        raise not_a_notebook(problems.file, "it has no list of cells")
    if not cells:
        raise Unreadable(Code.EMPTY, problems.file, "has no cells")
    if len(cells) > most_cells:
        what = f"has {len(cells):,} cells; more than {most_cells:,} are not graded"
        raise Unreadable(Code.TOO_MANY_CELLS, problems.file, what)
    odd: list[int] = []
    ended: list[int] = []
    for number, cell in enumerate(cells, 1):
        source = cell.get("source") if isinstance(cell, dict) else None
        if isinstance(source, list) and all(isinstance(line, str) for line in source):
            source = "".join(source)
        if not isinstance(source, str):
            raise not_a_notebook(problems.file, f"cell {number} has no text")
        cell["source"] = re.sub("\r\n?", "\n", source)
        ended += [number] * (cell["source"] != source)
        odd += [number] * _tidy_cell(cell)
    if not any(cell["source"].strip() for cell in cells):
        raise Unreadable(Code.EMPTY, problems.file, "has no cell with anything in it")
    if merged := [n for n, cell in enumerate(cells, 1) if cell["cell_type"] == "code" and _merged(cell["source"])]:
        what = f"holds the marks of an unresolved merge in {_numbers(merged)}"
        remedy = "Keep one of the two versions, delete the marks <<<<<<<, ======= and >>>>>>>, and hand it in again."
        raise Unreadable(Code.MERGE_IN_CELL, problems.file, what, remedy)
    if odd:
        what = f"the form of {_numbers(odd)} was invalid"
        problems.repaired(Code.MALFORMED_CELLS, what, "Parts that do not belong there are left out.")
    if ended:
        what = f"{_numbers(ended)} had Windows line endings"
        problems.repaired(Code.WINDOWS_LINES, what, "They are read as Unix line endings.")
    if new := give_ids(cells):
        what = f"the id of {_numbers(new)} was missing, malformed or not unique"
        problems.repaired(Code.MALFORMED_IDS, what, "A new id is assigned.")
    _tidy_metadata(notebook, problems)


def _numbers(found: Sequence[int]) -> str:
    more = ", ..." if len(found) > 5 else ""
    return f"cell{'s' * (len(found) > 1)} {', '.join(map(str, found[:5]))}{more}"


def _merged(source: str) -> bool:
    """Return whether lines begin with the three marks of a merge, in their order."""
    lines = iter(source.split("\n"))
    return all(any(line.startswith(mark) for line in lines) for mark in ("<<<<<<< ", "=======", ">>>>>>> "))


def _tidy_cell(cell: Notebook) -> bool:
    """Bring one cell into form; return whether there was anything to do."""
    before = {key: value for key, value in cell.items() if key != "source"}
    if cell.get("cell_type") not in list(CELL_KEYS):  # a list: the type may be anything, unhashable too
        cell["cell_type"] = "raw"
    kind = cell["cell_type"]
    for key in cell.keys() - CELL_KEYS[kind]:
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


def give_ids(cells: Sequence[Notebook]) -> list[int]:
    """Give each cell an id of its own, the first of several keeping theirs; return the numbers of those changed."""
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
    return new


def _foreign(kernel: object, language: object) -> str | None:
    """Return the language of a kernel that does not run Python; None for all others.

    A kernel's name counts only where no language is given: anybody may call a Python kernel julia.
    """
    spec, info = (found if isinstance(found, dict) else {} for found in (kernel, language))
    given = [name for name in (spec.get("language"), info.get("name")) if isinstance(name, str) and name]
    if not given and isinstance(name := spec.get("name"), str) and (match := _FOREIGN_KERNELS.fullmatch(name)):
        given = [match.lastgroup or ""]
    return next((_FOREIGN[name.lower()] for name in given if name.lower() in _FOREIGN), None)


def _tidy_metadata(notebook: Notebook, problems: Findings) -> None:
    meta = notebook.get("metadata")
    if not isinstance(meta, dict):
        problems.repaired(Code.MALFORMED_METADATA, "the notebook's metadata were malformed", "They are left out.")
        meta = {}
    kernel, language = meta.get("kernelspec"), meta.get("language_info")
    if foreign := _foreign(kernel, language):
        what = f"has a kernel for {foreign}, and only Python is graded"
        remedy = "In JupyterLab, choose Kernel, Change Kernel, Python 3 (ipykernel); save it and hand it in again."
        raise Unreadable(Code.FOREIGN_KERNEL, problems.file, what, remedy)
    if (
        not isinstance(kernel, dict)
        or kernel.get("name") != "python3"
        or not isinstance(kernel.get("display_name"), str)
    ):
        name = kernel.get("name") if isinstance(kernel, dict) else None
        what = f"its kernel is {printable(name, 40)!r}" if name else "it names no kernel"
        problems.repaired(Code.OTHER_KERNEL, what, "It is graded with python3.")
        meta = meta | {"kernelspec": dict(_KERNEL)}
    if not isinstance(language, dict) or language.get("name") != "python":
        if language is not None:
            problems.repaired(Code.OTHER_LANGUAGE, "its language is not Python", "It is graded as Python.")
        meta = meta | {"language_info": {"name": "python"}}
    known = {"title": str, "authors": list, "orig_nbformat": int}
    for key, kind in known.items():
        if key in meta and not isinstance(meta[key], kind):
            problems.repaired(Code.MALFORMED_METADATA, f"the notebook's {key} is malformed", "It is left out.")
            meta = {name: value for name, value in meta.items() if name != key}
    if extra := notebook.keys() - {"nbformat", "nbformat_minor", "metadata", "cells"}:
        what = f"has {printable(', '.join(sorted(extra)), 60)} besides its cells"
        problems.repaired(Code.EXTRA_KEYS, what, "It is left out.")
        for key in extra:
            del notebook[key]
    notebook["metadata"] = meta


def to_bytes(notebook: Notebook) -> bytes:
    """Return the notebook as the bytes of a file, in the form that Jupyter gives it."""
    cells = [cell | {"source": cell["source"].splitlines(keepends=True)} for cell in notebook["cells"]]
    text = json.dumps(notebook | {"cells": cells}, indent=1, ensure_ascii=False, sort_keys=True)
    return f"{text}\n".encode()
