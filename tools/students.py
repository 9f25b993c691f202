"""Write what readers download, two folders and their zips in `students/`: the same bytes while the course is the same.

    python -m tools.students [--coach]

*class*, ``custom-gradients.zip``, is for the students of a course: the chapters, the pages they link to, the exercises,
the requirements and a README, and no answers. With ``--coach`` it has the coach as well, whose text has right ways and
mistakes. *study*, ``custom-gradients-study.zip``, is for who learns alone, and always has it (`tools.study`).

Every file passes a gate first: no answer, hidden test, marker or grader where none belongs, no instructor's command, no
pointer that leads nowhere (`tools.texts`), nothing that is not on the list. Where the gate closes, the old folders and
zips stay. ``doctor.pyz`` is in both, a program by which a student sees before handing in whether a notebook would be
graded: ``graders/notebook/`` and the released cells.
"""

import argparse
import io
import json
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from pybtex.database import parse_file
from pybtex.plugin import find_plugin

from graders.notebook import doctor
from graders.notebook.cells import released
from tools import study
from tools.notebooks import ROOT, NotebookError, read, to_text
from tools.release import COACH, GRADERS, MARKERS, gate, replace
from tools.texts import dead_pointers

NAME, STUDY = "custom-gradients", "custom-gradients-study"  # the folders, and their zips
PAGES = ["setup", "notation", "glossary", "errata", "bibliography"]
INSTRUCTORS = re.compile(
    r"\b(gradebook|autograded?|generate_assignment|generate_feedback)\b|\b(solutions|sample|submitted)/"
)
PARTS = re.compile(
    r"book/(\w+\.(ipynb|md)|checklist\.py|(gpu|packages)\.json)|exercises/\w+/\w+\.ipynb|(requirements|constraints)\.txt|(README|AGENTS)\.md|"
    r"bench/(kernels|gpu|wild)\.py|nbgrader_config\.py|doctor\.pyz(/__main__\.py|/doctor/(\w+\.py|released\.json))"
)
OF_GRADERS = re.compile(r"constraints\.txt|nbgrader_config\.py|doctor\.pyz/doctor/\w+\.py")  # they may name nbgrader
MAIN = """import sys

from doctor.doctor import main

sys.exit(main())
"""
CONFIG = '''"""For nbgrader's Validate button and `nbgrader validate`: a check cell that fails is a failure."""

c = get_config()  # noqa: F821
c.Validator.validate_all = True
'''
ONLY = r"<!-- {0} only -->\n.*?<!-- end of {0} only -->\n+"
WEB_ONLY, COACH_ONLY = (re.compile(ONLY.format(what), re.DOTALL) for what in ("web", "coach"))
WEB_TAG = "web-only"  # of a notebook's cell, as the comment of that name is of Markdown
REMARK = re.compile(r' ?<span class="without-script">The course\'s web page (.*?)</span>')  # below a figure that moves
LINK = re.compile(r"\]\((?P<page>(?:\w+\.ipynb)?)#(?P<id>[\w-]+)\)")  # to a heading, here or in a notebook beside it
DIRECTIVE = re.compile(r"^```\{bibliography\}\n.*?^```\n", re.DOTALL | re.MULTILINE)
README = """# Custom Gradients in PyTorch: from ReLU to FlashAttention

Chapters to read and run, and exercises to solve{besides}. You need Python 3.11, 3.12 or 3.13.

    python3 -m venv .venv
    source .venv/bin/activate        (Windows: .venv\\Scripts\\Activate.ps1)
    pip install -r requirements.txt
    jupyter lab

In JupyterLab open a chapter, run its cells from the top, then do its exercises. [Setup](book/setup.md) says more:
Windows, a smaller download, how to see that it works.

| Chapter | Exercises |
|---|---|
{rows}

{coach}Before you hand in, `python doctor.pyz` says whether your notebooks would be graded, and repairs what it can.

Words are explained in the [glossary](book/glossary.md), symbols under [notation](book/notation.md), what tutorials get
wrong in the [errata](book/errata.md), and works cited are in the [bibliography](book/bibliography.md). If you let an AI
assistant help you, let it read [AGENTS.md](AGENTS.md) first.

The code is under the MIT licence, the text under CC BY 4.0.
"""


class StudentsError(Exception):
    """Why nothing was written; one line a fault."""


def collect(root: Path, name: str = NAME, coach: bool = False, site: str | None = None) -> dict[str, bytes]:
    """The files of a download by their paths in its folder.

    Args:
        root: the course.
        name: which download: `NAME` or `STUDY`.
        coach: whether the class gets the coach; who studies alone always does.
        site: the address of the published book, "" for none; default: COURSE_URL.
    """
    site = (os.environ.get("COURSE_URL", "") if site is None else site).strip().rstrip("/")
    chapters = sorted(root.glob("book/[0-9][0-9]_*.ipynb")) + sorted(root.glob("book/[a-z]_*.ipynb"))
    pages = [root / f"book/{page}.md" for page in PAGES]
    paths = [root / f"book/{name}" for name in ("checklist.py", "gpu.json", "packages.json")]
    paths += [
        root / name
        for name in ("bench/kernels.py", "bench/gpu.py", "bench/wild.py", "requirements.txt", "constraints.txt")
    ]
    paths += sorted(
        path for path in root.glob("exercises/**/*") if path.is_file() and ".ipynb_checkpoints" not in path.parts
    )
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
    with_coach = coach or name == STUDY
    files |= {f"book/{path.name}": _here(path, site, with_coach) for path in chapters + pages}
    files["book/bibliography.md"] = _plain_bibliography(root).encode()
    rows = []
    for chapter in chapters:
        title = read(chapter).cells[0].source.splitlines()[0].removeprefix("# ")
        sets = [f"[{path}]({path})" for path in files if path.startswith(f"exercises/{chapter.stem}/")]
        rows.append(f"| [{title}](book/{chapter.name}) | {', '.join(sets)} |")
    files["doctor.pyz"] = _doctor(root)
    files["nbgrader_config.py"] = CONFIG.encode()
    if with_coach:
        files |= study.coach_files(root)
        files["requirements.txt"] += study.REQUIREMENT.encode()
    files["AGENTS.md"] = study.agents(with_coach).encode()
    words = {"besides": study.BESIDES if with_coach else "", "coach": study.COACH if with_coach else ""}
    files["README.md"] = README.format(rows="\n".join(rows), **words).encode()
    return files


def _here(path: Path, site: str, coach: bool) -> bytes:
    """A page as the download has it: what points to the web page gets its address, or is left out where it has none."""
    text = _in_lab(WEB_ONLY.sub("", path.read_text(encoding="utf-8")), path)
    if not coach:
        text = COACH_ONLY.sub("", text)
    if site:
        text = text.replace(study.SITE, site)
    if path.suffix != ".ipynb" or ("without-script" not in text and WEB_TAG not in text):
        return text.encode()
    page = f' <a href="{site}/book/{path.stem}.html">The course\'s web page</a> \\1'
    notebook = nbformat.reads(text, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if WEB_TAG not in cell.metadata.get("tags", [])]
    for cell in notebook.cells:
        cell.source = REMARK.sub(page if site else "", cell.source)
    return to_text(notebook).encode()


def _in_lab(text: str, page: Path) -> str:
    """A page's text with its links to headings of notebooks as JupyterLab knows them: "#How-it-breaks".

    The book knows a heading by its words in lower case; JupyterLab by all its letters, with hyphens for blanks.
    """

    def as_in_lab(link: re.Match[str]) -> str:
        target = page.with_name(link["page"]) if link["page"] else page
        heading = _headings(target).get(link["id"], "") if target.suffix == ".ipynb" and target.is_file() else ""
        return f"]({link['page']}#{heading or link['id']})"

    return LINK.sub(as_in_lab, text)


@cache
def _headings(page: Path) -> dict[str, str]:
    """The headings of a notebook, as JupyterLab's ids, by the book's; the first of several that are called alike."""
    found: dict[str, str] = {}
    for cell in read(page).cells:
        if cell.cell_type == "markdown":
            for words in re.findall(r"^#{1,6} (.+?)\s*$", cell.source, re.MULTILINE):
                shown = words.replace("`", "").replace(" ", "-")
                if re.fullmatch(r"[\w\-,.:;?!'’]+", shown):  # others would need escapes
                    found.setdefault(re.sub(r"[^\w-]", "", shown.lower()), shown)  # as MyST's heading anchors
    return found


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


def package_faults(files: dict[str, bytes], root: Path, coach: bool = False) -> Iterator[str]:
    """What may not be in a download, with the coach or without, one line each, by file."""
    for name, content in _opened(files):
        if coach and study.PARTS.fullmatch(name):
            yield from study.faults(name, content, files)
            continue
        if not PARTS.fullmatch(name):
            yield f"{name}: not a file that students get"
            continue
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            yield f"{name}: not text"
            continue
        pages = {"": text}
        if name.endswith(".ipynb"):
            try:
                notebook = read(root / name)
            except NotebookError as error:
                yield f"{name}: {error}"
                continue
            pages = {f", cell {cell.id}": cell.source for cell in notebook.cells}
            if name.startswith("exercises/"):
                yield from (f"{name}: {fault}" for fault in _exercise_faults(root, name, notebook))
            outputs = [str(output) for cell in notebook.cells for output in cell.get("outputs", [])]
            pages[", outputs"] = "\n".join(outputs)
        names_graders = OF_GRADERS.fullmatch(name) or (coach and study.NAMES_COACH.fullmatch(name))
        for place, page in pages.items():
            for pattern in (MARKERS, INSTRUCTORS) + (() if names_graders else (GRADERS,)):
                if match := pattern.search(COACH.sub("", page)):
                    yield f"{name}{place}: {match.group()!r}"
        yield from dead_pointers(name, content, files)


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


def write_zip(files: dict[str, bytes], path: Path, folder: str = NAME) -> None:
    """Write the files into a zip, in the folder that readers unpack."""
    path.write_bytes(zipped({f"{folder}/{name}": content for name, content in files.items()}))


def zipped(files: dict[str, bytes]) -> bytes:
    """Return a zip whose bytes depend on the files alone: sorted, with one date."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def download(root: Path, name: str, coach: bool = False, site: str | None = None) -> dict[str, bytes]:
    """The files of a download, as `collect` has them, which have passed the gate.

    Raises:
        StudentsError: the gate closed.
    """
    files = collect(root, name, coach, site)
    if found := [f"{name}: {fault}" for fault in package_faults(files, root, coach or name == STUDY)]:
        raise StudentsError("\n".join(found))
    return files


def students(root: Path = ROOT, coach: bool = False) -> str:
    """Write both folders and both zips.

    Args:
        root: the course.
        coach: whether the class gets the coach.

    Returns:
        What was done, in words.

    Raises:
        StudentsError: the gate closed; what was there stays.
    """
    downloads = {name: download(root, name, coach) for name in (NAME, STUDY)}
    lines = []
    with tempfile.TemporaryDirectory(dir=root, prefix=".students.") as folder:
        new = Path(folder) / "students"
        for name, files in downloads.items():
            for file, content in files.items():
                path = new / name / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            write_zip(files, new / f"{name}.zip", name)
            size = (new / f"{name}.zip").stat().st_size / 1000
            has = "with coach and solutions" if "graders/__init__.py" in files else "no answers"
            lines.append(f"students/{name}.zip: {len(files)} files, {size:.0f} kB, {has}")
        replace(new, root / "students")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.students", description="Write what readers download.")
    parser.add_argument(
        "--coach", action="store_true", help="put the coach, and all it knows, into the class's archive"
    )
    options = parser.parse_args(arguments)
    try:
        print(students(coach=options.coach))
    except (StudentsError, NotebookError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
