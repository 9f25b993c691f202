"""Attacks with the notebook file itself: test cells, points, tags, metadata, links in its place."""

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path

from tests.engine.attacks import Arena, Attack, find, own_cell, tests

ATTACKS: list[Attack] = []


def _edit(name: str, tries: str, change: object = None, **more: object) -> None:
    ATTACKS.append(Attack(name, "The notebook file", tries, change=change, **more))


def _own(source: str, name: str, **meta: object) -> dict:
    cell = own_cell(source, name)
    base = {"grade_id": name, "grade": True, "locked": True, "solution": False, "task": False, "schema_version": 3}
    cell["metadata"]["nbgrader"] = {**base, "cell_type": "code", "points": 100, **meta}
    return cell


def _deleted(notebook: dict) -> None:
    notebook["cells"] = [cell for cell in notebook["cells"] if not cell["metadata"]["nbgrader"].get("grade")]


_edit("deleted-tests", "deletes all test cells", _deleted, sees="was deleted")


def _retyped(notebook: dict) -> None:
    for number, cell in enumerate(tests(notebook)):
        cell["cell_type"] = ("markdown", "raw")[number % 2]
        cell["metadata"]["nbgrader"]["cell_type"] = cell["cell_type"]
        cell.pop("outputs"), cell.pop("execution_count")


_edit("retyped-tests", "turns the test cells into text", _retyped, sees="was turned into")


def _edited(notebook: dict) -> None:
    for cell in tests(notebook):
        cell["source"] = "True"
        cell["metadata"]["nbgrader"].pop("checksum", None)


_edit("edited-tests", "replaces the source of the test cells by True and drops their checksums", _edited)


def _points(notebook: dict) -> None:
    for cell in tests(notebook):
        cell["metadata"]["nbgrader"]["points"] = 1000


_edit("edited-points", "makes each test worth 1000 points", _points, sees="the metadata of cell")


def _unlocked(notebook: dict) -> None:
    for cell in tests(notebook):
        cell["metadata"]["nbgrader"].update(locked=False, solution=True)
        cell["source"] = "True"


_edit("unlocked-tests", "declares the test cells to be answers, so that its own text stays", _unlocked, sees="metadata")


def _ungraded(notebook: dict) -> None:
    for cell in tests(notebook):
        cell["metadata"]["nbgrader"]["grade"] = False


_edit("ungraded-tests", "declares the tests it fails to be no tests", _ungraded, sees="the metadata of cell")


def _claims(notebook: dict) -> None:
    notebook["cells"] += [
        _own("100", "extra-number"),
        _own("print(100)", "extra-print"),
        _own("return 100", "extra-return"),
    ]


_edit("own-grade-cells", "adds graded cells of its own, 100 points each", _claims, sees="are not of this assignment")


def _twins(notebook: dict) -> None:
    for cell in tests(notebook):
        twin = copy.deepcopy(cell)
        twin["id"], twin["source"] = f"twin-{cell['id']}", "True"
        notebook["cells"].append(twin)


_edit(
    "twin-tests",
    "adds a second cell with the grade_id of each test, ending in True",
    _twins,
    sees="occurs more than once",
)


def _swapped(notebook: dict) -> None:
    names = [cell["metadata"]["nbgrader"]["grade_id"] for cell in tests(notebook)]
    easy = [name for name in names if name.startswith("test_Square")]
    for number, cell in enumerate(tests(notebook)):
        cell["metadata"]["nbgrader"]["grade_id"] = easy[number % len(easy)]


_edit(
    "renamed-tests",
    "gives the tests it fails the grade_id of tests that it passes",
    _swapped,
    sees="occurs more than once",
)


def _order(notebook: dict) -> None:
    last = find(notebook, "LeakyReLU")
    notebook["cells"].remove(last)
    notebook["cells"].append(last)
    tests(notebook)[4]["metadata"]["nbgrader"]["grade_id"] = {"a": ["dictionary"]}
    notebook["cells"][3]["metadata"]["nbgrader"] = ["no", "dictionary"]


_edit("odd-metadata", "gives nbgrader metadata of types it does not expect", _order)


def _tags(notebook: dict) -> None:
    for cell in notebook["cells"]:
        cell["metadata"]["tags"] = ["raises-exception", "skip-execution", "remove-cell", "hide-cell", "parameters"]
        cell["metadata"]["execution"] = {"iopub.execute_input": "2026-01-01", "timeout": 0}
        cell["metadata"]["celltoolbar"] = "Create Assignment"
        if cell["cell_type"] == "code":
            cell["execution_count"] = 1
    for cell in tests(notebook):
        data = {"text/plain": "True"}
        cell["outputs"] = [{"output_type": "execute_result", "execution_count": 1, "data": data, "metadata": {}}]


_edit("tags", "tags all cells with skip-execution and raises-exception and hands in the outputs ready made", _tags)


def _schema(notebook: dict) -> None:
    for number, cell in enumerate(tests(notebook)):
        cell["metadata"]["nbgrader"]["schema_version"] = (1, 2, 99, "3")[number % 4]


_edit("old-schema", "claims other versions of nbgrader's metadata", _schema)


def _kernel(notebook: dict) -> None:
    notebook["metadata"] = {
        "kernelspec": {"name": "../../../tmp/evil", "display_name": "x", "language": "bash"},
        "language_info": {"name": "bash"},
        "celltoolbar": "Create Assignment",
        "widgets": {"application/vnd.jupyter.widget-state+json": {"state": {}}},
    }


_edit("another-kernel", "asks for a kernel of its own in the notebook's metadata", _kernel)


def _many(notebook: dict) -> None:
    at = notebook["cells"]
    at += [own_cell("'x' * 1000", f"many-{number}") for number in range(3000)]


_edit("many-cells", "adds 3000 cells of its own, each with output", _many)


def _same_ids(notebook: dict) -> None:
    for cell in notebook["cells"]:
        cell["id"] = "same"
    notebook["cells"].append({**own_cell("1", "same"), "metadata": {"nbgrader": None}})


_edit("same-ids", "gives all cells the same id", _same_ids)


def _answer_graded(notebook: dict) -> None:
    for name in ("LeakyReLU", "Tanh"):
        find(notebook, name)["metadata"]["nbgrader"].update(grade=True, points=8)


_edit(
    "graded-answers", "declares its answer cells to be graded by hand, 8 points each", _answer_graded, sees="metadata"
)


def _link(folder: Path, arena: Arena) -> None:
    path = folder / "relu.ipynb"
    path.unlink()
    path.symlink_to(arena.course / "submitted/alice/01_relu/relu.ipynb")


_edit("linked-notebook", "hands in a link to a classmate's notebook", place=_link, sees="symbolic link")


def _links(folder: Path, arena: Arena) -> None:
    (folder / "db").symlink_to(arena.course / "gradebook.db")
    (folder / "all").symlink_to("/")


_edit("linked-beside", "hands in links to the gradebook and to /", place=_links, sees="symbolic link")


def _hard(folder: Path, arena: Arena) -> None:
    os.link(arena.course / "gradebook.db", folder / "data.db")


_edit(
    "hard-linked-gradebook",
    "hands in a hard link to the gradebook and opens it for writing",
    place=_hard,
    first="""
import sqlite3
db = sqlite3.connect("data.db")
db.execute("UPDATE grade SET auto_score = 2, manual_score = 2")
db.commit()
""",
)


def _loop(folder: Path, arena: Arena) -> None:
    (folder / "up").symlink_to("..")
    (folder / "self").symlink_to("self")
    os.mkfifo(folder / "pipe")


_edit("links-in-circles", "hands in links that lead in circles and a named pipe", place=_loop, sees="link")


def _pipe(folder: Path, arena: Arena) -> None:
    os.mkfifo(folder / "timestamp.txt")


_edit("named-pipe", "hands in a named pipe in place of timestamp.txt: who reads it waits for ever", place=_pipe)


def _deep(folder: Path, arena: Arena) -> None:
    (folder / "relu.ipynb").write_text("[" * 100_000 + "]" * 100_000)


_edit("deep-json", "hands in JSON nested 100,000 levels deep", place=_deep, sees="is nested too deeply")


def _wide(folder: Path, arena: Arena) -> None:
    path = folder / "relu.ipynb"
    notebook = json.loads(path.read_text())
    notebook["cells"][0]["source"] = "x" * 50_000_000
    path.write_text(json.dumps(notebook))


_edit("huge-notebook", "hands in a notebook of 50 MB", place=_wide)


_edit(
    "deep-source",
    "hands in code nested so deep that whoever parses it runs out of stack",
    answers={
        "LeakyReLU": "x = " + "-" * 90_000 + "1\nLeakyReLU = " + "a" + ".b" * 60_000,
        "Tanh": "Tanh = " + "(" * 3_000 + ")" * 3_000 + "\n" + "if 1:\n".join(" " * n for n in range(200)),
    },
)
_edit(
    "odd-source",
    "hands in code with null bytes, byte-order marks, form feeds, magics without end and a coding line of its own",
    answers={
        "LeakyReLU": "# -*- coding: utf-7 -*-\nx = 1\0\n\ufeff\x0c\r\x0b\u2028LeakyReLU = 2",
        "Tanh": "%%writefile /tmp/mallory.py\n" + "%" * 10_000 + "!" * 10_000 + "?" * 10_000,
    },
)


def _json(text: str) -> Callable[[Path, Arena], None]:
    def place(folder: Path, arena: Arena) -> None:
        path = folder / "relu.ipynb"
        path.write_text(
            path.read_text(encoding="utf-8").replace('"cells": [', text + '"cells": [', 1), encoding="utf-8"
        )

    return place


_edit("huge-number", "writes an integer of 100,000 digits into the notebook", place=_json(f'"mine": {"9" * 100_000}, '))
_edit("no-number", "writes NaN, Infinity and 1e999 into the notebook", place=_json('"mine": [NaN, Infinity, 1e999], '))
_edit("same-keys", "has its keys twice: the cells too", place=_json('"cells": [], "nbformat": 3, '))


def _surrogates(notebook: dict) -> None:
    bad = "\ud800"
    find(notebook, "Tanh")["source"] += f"\n# {bad}"
    notebook["cells"].append(
        {"cell_type": "markdown", "id": "mine", "metadata": {bad: bad, "tags": [bad]}, "source": bad}
    )


_edit("surrogates", "writes characters that no encoding has into code, texts and metadata", _surrogates)


def _formats(notebook: dict) -> None:
    notebook["nbformat"], notebook["nbformat_minor"] = 9, -1


_edit("another-format", "claims to be of a later version of the notebook format", _formats)


def _worksheets(notebook: dict) -> None:
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["input"], cell["language"], cell["prompt_number"] = (
                cell.pop("source"),
                "bash",
                cell.pop("execution_count"),
            )
    notebook["worksheets"] = [{"cells": notebook.pop("cells")}]
    notebook["nbformat"], notebook["nbformat_minor"] = 3, 0


_edit("old-format", "claims to be of version 3 of the notebook format, with worksheets", _worksheets)


def _no_cells(notebook: dict) -> None:
    for number, cell in enumerate(notebook["cells"]):
        if number % 3 == 0:
            cell["cell_type"] = "spam"
        if number % 3 == 1:
            cell["source"] = [1, None, {"a": "b"}]
        cell["metadata"] = [[]] if number % 3 == 2 else cell["metadata"]
        cell["outputs"] = {"a": 1}


_edit("odd-cells", "has cells of unknown types, with sources and metadata that are none", _no_cells)
