"""Cells that run in the page: which they are, and the files that a page loads when its reader first runs one.

In the page stands one class on each of these cells and one line below *Exercises*; all else is in ``_static/live/``, in
scripts, since a page that is opened from a file can load nothing else: ``live.js`` and its styles, ``python.js`` (the
runtime and its torch), for each set the tasks with the known mistakes, for each chapter what its cells need.
"""

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from course_look import LABEL
from course_source import RUN
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

FOLDER = "_static/live"
SOURCES = "book/_live"
SEAM = "page-torch.js"  # in _static/torch, to be replaced by who hosts the book
MADE_OF = (  # the scripts
    *("book/_page", "book/_live", "graders"),
    *("tools/page_tasks.py", "tools/page_python.py", "tools/page_graders.py"),
)
BEGIN, END = '<div class="live-tasks">', '<i class="live-tasks-end"></i>'
BOX = '<div class="live-task"'
TASKS = re.compile(rf"{BEGIN}(.*?){END}\s*</div>", re.DOTALL)
HERE = "<p>What has a <em>Run</em> button above it runs right here, with nothing installed. For all of it:</p>"
OPEN = '<p class="live-open" hidden></p>'  # page.js puts a button there
DONE = (
    ("the check below prints `right` down to its last line", "every check below holds"),
    ("the check passes", "every check holds"),
)
FIRST, BUMP, BUMPED = "book/intro", "class Bump(", "misconception:Bump"
WRONG = "        # wrong: the slope is -2 * x * y\n        return g * (-2 * x)"
MENDED = "        return g * (-2 * x) * torch.exp(-x * x)"
CARD = re.compile(r"\A## (\w+)\n\n\*(.+?)\*\n")
HANDED_IN = re.compile(r"^- After you hand in,.*\n", re.MULTILINE)  # of the fine print: not here
FINE = re.compile(r"<details><summary>Fine print</summary>.*?</details>", re.DOTALL)


def tools(app: Sphinx) -> Any:
    """Return the project's tools: what of a chapter a page can run, and the tasks as data."""
    sys.path.insert(0, str(app.srcdir))
    try:
        from tools import page_cells, page_graders, page_python, page_tasks
    finally:
        sys.path.pop(0)
    return page_cells, page_python, page_tasks, page_graders


def exercises(app: Sphinx, page: str) -> Path:
    """Return the notebook of a chapter's exercises."""
    name = tools(app)[2].SETS[page]
    return Path(app.srcdir, "exercises", f"{page[5:7]}_{name}", f"{name}.ipynb")


def task_cells(path: Path, wanted: list[str]) -> list[nbformat.NotebookNode]:
    """Return the exercises of a set as cells of its chapter: each task's text and hints, in a box with its name.

    None where the page can judge no task of the set.
    """
    made = [BEGIN]
    for cell in nbformat.read(path, 4).cells:
        text = HANDED_IN.sub("", cell.source.replace("../../book/", ""))
        card = CARD.match(text)
        if cell.id.endswith("-title"):
            made += FINE.findall(text)
        elif card and card[1] in wanted:
            for old, new in DONE:
                text = text.replace(old, new)
            head = f'{BOX} data-task="{card[1]}">\n\n**{card[1]}** · *{card[2]}*'
            made.append(f"{head}\n\n{text[card.end() :].strip()}\n\n</div>")
        elif cell.id.endswith("-hints") and made[-1].startswith(BOX):
            made[-1] = f"{made[-1].removesuffix('</div>')}{text}\n\n</div>"
    if not any(part.startswith(BOX) for part in made):
        return []
    return [nbformat.v4.new_markdown_cell(part) for part in (*made, f"{END}</div>")]


def add_tasks(app: Sphinx, page: str, source: list[str]) -> None:
    """Put a chapter's exercises below its section of that name; `take_out` moves them into a file."""
    page_tasks = tools(app)[2]
    if page not in page_tasks.SETS:
        return
    notebook = nbformat.reads(source[0], 4)
    texts = [cell.source if cell.cell_type == "markdown" else "" for cell in notebook.cells]
    at = next(i for i, text in enumerate(texts) if text.startswith("## Exercises"))
    own, mark, rest = texts[at].partition("\n## ")  # the section may share its cell with the one after it
    notebook.cells[at].source = own
    after = [nbformat.v4.new_markdown_cell(mark.lstrip("\n") + rest)] if rest else []
    notebook.cells[at + 1 : at + 1] = [*task_cells(exercises(app, page), page_tasks.TASKS), *after]
    source[0] = nbformat.writes(notebook)


def mark_cells(app: Sphinx, doctree: nodes.document) -> None:
    """Give the cells that the page can run their class."""
    page_cells, _, page_tasks, _ = tools(app)
    page = app.env.docname
    if page not in page_tasks.SETS:
        return
    app.env.note_dependency(str(exercises(app, page)))
    names = {f"tag_{cell.name}" for cell in page_cells.of_page(Path(app.srcdir), page)}
    for cell in doctree.findall(nodes.container):
        if names.intersection(cell["classes"]):
            cell["classes"].append("live")


def take_out(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Move what only a reader who runs cells needs from a page into its script."""
    page_cells, _, page_tasks, _ = tools(app)
    if page == FIRST:
        write_page(app, page, {"set": "", "cells": {BUMPED: bump(app)}})
    if page not in page_tasks.SETS or not context.get("body"):
        return
    found = TASKS.search(context["body"])
    context["body"] = context["body"].replace(found[0] if found else "\0", OPEN).replace(RUN, RUN + HERE, 1)
    cells = {
        cell.name: {"before": cell.before, "after": cell.after, "solution": cell.solution}
        | ({"text": cell.code} if cell.name.partition(":")[2] in page_cells.CLASS_ALONE else {})
        for cell in page_cells.of_page(Path(app.srcdir), page)
    }
    starts = {
        cell.metadata.nbgrader.grade_id: cell.source
        for cell in nbformat.read(exercises(app, page), 4).cells
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("solution")
    }
    names = page_tasks.TASKS
    data = {
        "set": page_tasks.SETS[page],
        "cells": cells,
        "tasks": found[1].strip() if found else "",
        "starts": {name: text for name, text in starts.items() if name in names},
    }
    write_page(app, page, data)


def script_of(data: object) -> str:
    """Return data as a script may hold it."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")


def write_page(app: Sphinx, page: str, data: dict[str, Any]) -> None:
    """Write the script of a page."""
    folder = Path(app.outdir, FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    text = f"(window.livePages ??= {{}})[{json.dumps(page)}] = {script_of(data)};\n"
    (folder / f"{page.rpartition('/')[2]}.js").write_text(text, encoding="utf-8")


def mark_bump(app: Sphinx, doctree: nodes.document) -> None:
    """Make of the first page's wrong version a cell that can be mended."""
    if app.env.docname != FIRST:
        return
    for block in doctree.findall(nodes.literal_block):
        if block.astext().startswith(BUMP) or f"\n{BUMP}" in block.astext():
            inside = nodes.container("", block.deepcopy(), classes=["cell_input"])
            label = nodes.paragraph("", LABEL, classes=["rank"])
            classes = ["cell", "rank-wrong", "live", f"tag_{BUMPED}"]
            block.replace_self(nodes.container("", label, inside, classes=classes))
            return
    raise ExtensionError(f"{FIRST} has no block with {BUMP}")


def bump(app: Sphinx) -> dict[str, Any]:
    """Return the first page's one cell: the class that it shows, asked by the call that it shows."""
    source = Path(app.srcdir, f"{FIRST}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", source, re.DOTALL | re.MULTILINE)
    text = next(BUMP + block.partition(BUMP)[2].partition("\n\n\n")[0] for block in blocks if BUMP in block)
    after = next(block for block in blocks if "gradcheck(Bump.apply, x)" in block)
    after = f'{after}else:\n    print("\u2713 gradcheck passes: every factor is there.")\n'
    right = text.replace(WRONG, MENDED)
    assert right != text  # the page shows the wrong line
    return {"text": text, "before": "import torch", "after": after, "solution": right}


def state(root: Path) -> str:
    """Return a hash of all that the scripts of Python and tasks are made of."""
    found = hashlib.sha256()
    for name in MADE_OF:
        path = root / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return found.hexdigest()


def write_scripts(app: Sphinx, exception: Exception | None) -> None:
    """After a build that went well, write the scripts that all pages share, where what they are made of has changed."""
    if exception is not None or app.builder.name != "html":
        return
    _, page_python, page_tasks, page_graders = tools(app)
    root, folder, stamp = Path(app.srcdir), Path(app.outdir, FOLDER), Path(app.doctreedir, "live.sha256")
    now = state(root)
    files = ["live.js", "live.css", "python.js", "coach.js", *(f"tasks-{name}.js" for name in page_tasks.SETS.values())]
    if stamp.exists() and stamp.read_text() == now and all((folder / name).exists() for name in files):
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("live.js", "live.css"):
        (folder / name).write_bytes((root / SOURCES / name).read_bytes())
    seam = folder.parent / "torch" / SEAM
    if not seam.exists():  # else it may be the host's own
        seam.parent.mkdir(exist_ok=True)
        seam.write_bytes((root / SOURCES / SEAM).read_bytes())
    (folder / "python.js").write_text(page_python.bundle(), encoding="utf-8")
    (folder / "coach.js").write_text(f"window.liveCoach = {script_of(page_graders.files())};\n", encoding="utf-8")
    for name in page_tasks.SETS.values():
        text = f"(window.liveTasks ??= {{}})[{json.dumps(name)}] = {script_of(page_tasks.exported(name))};\n"
        (folder / f"tasks-{name}.js").write_text(text, encoding="utf-8")
    stamp.write_text(now)


def setup(app: Sphinx) -> dict[str, Any]:
    """Begin before a notebook is read; cut last, when the page is whole; write before the archives."""
    app.connect("source-read", add_tasks)
    app.connect("doctree-read", mark_cells, priority=650)
    app.connect("doctree-read", mark_bump, priority=650)
    app.connect("html-page-context", take_out, priority=850)
    app.connect("build-finished", write_scripts, priority=700)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
