"""Write what students download: `students/custom-gradients/` and its zip, the same bytes while the course is the same.

    python -m tools.students

In it are the chapters, the pages they link to, the exercises, the requirements and a README. Every file passes a gate
first: no answer, hidden test, marker or grader, no instructor's command, no link that leads nowhere, nothing that is
not on the list. Where the gate closes, the old folder and zip stay. ``doctor.pyz`` is in it, a program by which a
student sees before handing in whether a notebook would be graded: ``graders/notebook/`` and the released cells.
"""

import argparse
import io
import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from nbformat import NotebookNode
from pybtex.database import parse_file
from pybtex.plugin import find_plugin

from graders.notebook import doctor
from graders.notebook.cells import released
from tools.notebooks import ROOT, NotebookError, read
from tools.release import GRADERS, MARKERS, gate, replace

NAME = "custom-gradients"
PAGES = ["setup", "notation", "glossary", "errata", "bibliography"]
INSTRUCTORS = re.compile(
    r"\b(gradebook|autograded?|generate_assignment|generate_feedback)\b|\b(solutions|sample|submitted)/"
)
PARTS = re.compile(
    r"book/(\w+\.(ipynb|md)|checklist\.py)|exercises/\w+/\w+\.ipynb|(requirements|constraints)\.txt|README\.md|"
    r"doctor\.pyz(/__main__\.py|/doctor/(\w+\.py|released\.json))"
)
OF_GRADERS = re.compile(r"constraints\.txt|doctor\.pyz/doctor/\w+\.py")  # they may name nbgrader
MAIN = """import sys

from doctor.doctor import main

sys.exit(main())
"""
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
DIRECTIVE = re.compile(r"^```\{bibliography\}\n.*?^```\n", re.DOTALL | re.MULTILINE)
README = """# Custom Gradients in PyTorch: from ReLU to FlashAttention

Chapters to read and run, and exercises to solve. You need Python 3.11, 3.12 or 3.13.

    python3 -m venv .venv
    source .venv/bin/activate        (Windows: .venv\\Scripts\\Activate.ps1)
    pip install -r requirements.txt
    jupyter lab

In JupyterLab open a chapter, run its cells from the top, then do its exercises. [Setup](book/setup.md) says more:
Windows, a smaller download, how to see that it works.

| Chapter | Exercises |
|---|---|
{rows}

Before you hand in, `python doctor.pyz exercises` says whether your notebooks would be graded, and repairs what it can.

Words are explained in the [glossary](book/glossary.md), symbols under [notation](book/notation.md), what tutorials get
wrong in the [errata](book/errata.md), and works cited are in the [bibliography](book/bibliography.md).

The code is under the MIT licence, the text under CC BY 4.0.
"""


class StudentsError(Exception):
    """Why nothing was written; one line a fault."""


def collect(root: Path) -> dict[str, bytes]:
    """The files for students by their paths in the folder."""
    chapters = sorted(root.glob("book/[0-9][0-9]_*.ipynb")) + sorted(root.glob("book/[a-e]_*.ipynb"))
    pages = [root / f"book/{page}.md" for page in PAGES]
    paths = chapters + pages + [root / name for name in ("book/checklist.py", "requirements.txt", "constraints.txt")]
    paths += sorted(
        path for path in root.glob("exercises/**/*") if path.is_file() and ".ipynb_checkpoints" not in path.parts
    )
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
    files["book/bibliography.md"] = _plain_bibliography(root).encode()
    rows = []
    for chapter in chapters:
        title = read(chapter).cells[0].source.splitlines()[0].removeprefix("# ")
        sets = [f"[{name}]({name})" for name in files if name.startswith(f"exercises/{chapter.stem}/")]
        rows.append(f"| [{title}](book/{chapter.name}) | {', '.join(sets)} |")
    files["doctor.pyz"] = _doctor(root)
    files["README.md"] = README.format(rows="\n".join(rows)).encode()
    return files


def _doctor(root: Path) -> bytes:
    """Zip the students' program: the modules of ``graders/notebook/`` and the released cells of all sets."""
    modules = Path(doctor.__file__).parent.glob("*.py")
    files = {f"doctor/{path.name}": path.read_bytes() for path in modules}
    return zipped(files | {"doctor/released.json": _released_cells(root), "__main__.py": MAIN.encode()})


def _released_cells(root: Path) -> bytes:
    """Collect the released cells of all sets, by notebook, as JSON."""
    sets = {}
    for path in sorted(root.glob("exercises/*/*.ipynb")):
        with suppress(NotebookError):  # the gate says so
            sets[path.stem] = [asdict(cell) for cell in released(read(path)).values()]
    return (json.dumps(sets, indent=0, ensure_ascii=False) + "\n").encode()


def _plain_bibliography(root: Path) -> str:
    """The page of the bibliography with its list written out: JupyterLab does not know the book's directive."""
    page = (root / "book/bibliography.md").read_text(encoding="utf-8")
    style = find_plugin("pybtex.style.formatting", "plain")()
    markdown = find_plugin("pybtex.backends", "markdown")()
    works = style.format_bibliography(parse_file(str(root / "book/references.bib")))
    entries = [f'- <a id="ref-{work.key}"></a>{" ".join(work.text.render(markdown).split())}\n' for work in works]
    return DIRECTIVE.sub(lambda _: "".join(entries), page)


def package_faults(files: dict[str, bytes], root: Path) -> Iterator[str]:
    """What students must not get, one line each, by file."""
    for name, content in _opened(files):
        if not PARTS.fullmatch(name):
            yield f"{name}: not a file that students get"
            continue
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            yield f"{name}: not text"
            continue
        pages, code = {"": text}, set()
        if name.endswith(".ipynb"):
            try:
                notebook = read(root / name)
            except NotebookError as error:
                yield f"{name}: {error}"
                continue
            pages = {f", cell {cell.id}": cell.source for cell in notebook.cells}
            code = {f", cell {cell.id}" for cell in notebook.cells if cell.cell_type == "code"} | {", outputs"}
            if name.startswith("exercises/"):
                yield from (f"{name}: {fault}" for fault in _exercise_faults(root, name, notebook))
            outputs = [str(output) for cell in notebook.cells for output in cell.get("outputs", [])]
            pages[", outputs"] = "\n".join(outputs)
        for place, page in pages.items():
            for pattern in (MARKERS, INSTRUCTORS) + (() if OF_GRADERS.fullmatch(name) else (GRADERS,)):
                if match := pattern.search(page):
                    yield f"{name}{place}: {match.group()!r}"
            if place not in code and name.endswith((".ipynb", ".md")):  # runs[name](norm) is no link
                for target in LINK.findall(page):
                    if not re.match(r"[a-z]+:", target) and _resolve(name, target) not in files:
                        yield f"{name}{place}: links to {target}, which students do not get"


def _opened(files: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield each file by its path, and what is in the students' program in its place."""
    for name, content in files.items():
        if name.endswith(".pyz"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                yield from ((f"{name}/{inner}", archive.read(inner)) for inner in archive.namelist())
        else:
            yield name, content


def _exercise_faults(root: Path, name: str, notebook: NotebookNode) -> Iterator[str]:
    source = root / name.replace("exercises/", "solutions/", 1)
    if not source.exists():
        yield "no set of this name in solutions/"
    else:
        yield from gate(read(source), notebook)


def _resolve(name: str, target: str) -> str:
    """The path in the folder that a link of file `name` leads to."""
    parts = name.split("/")[:-1]
    for part in target.split("/"):
        if part == "..":
            if not parts:
                return target
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def write_zip(files: dict[str, bytes], path: Path) -> None:
    """Write the files into a zip, in the folder that students unpack."""
    path.write_bytes(zipped({f"{NAME}/{name}": content for name, content in files.items()}))


def zipped(files: dict[str, bytes]) -> bytes:
    """Return a zip whose bytes depend on the files alone: sorted, with one date."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def students(root: Path = ROOT) -> str:
    """Write the folder and the zip.

    Returns:
        What was done, in words.

    Raises:
        StudentsError: the gate closed; what was there stays.
    """
    files = collect(root)
    if found := list(package_faults(files, root)):
        raise StudentsError("\n".join(found))
    with tempfile.TemporaryDirectory(dir=root, prefix=".students.") as folder:
        new = Path(folder) / "students"
        for name, content in files.items():
            path = new / NAME / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        write_zip(files, new / f"{NAME}.zip")
        size = (new / f"{NAME}.zip").stat().st_size
        replace(new, root / "students")
    return f"students/{NAME}.zip: {len(files)} files, {size / 1000:.0f} kB"


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.students", description="Write what students download.")
    parser.parse_args(arguments)
    try:
        print(students())
    except (StudentsError, NotebookError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
