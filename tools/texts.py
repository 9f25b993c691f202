"""Where the texts of a download point: to what is in it, or to an address. Nothing else may stand in them."""

import json
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)|^\[[^\]]+\]:\s*([^#\s]+)", re.MULTILINE)  # [text](page.md), [name]: page.md
HTML = re.compile(r"""<[a-z]+\b[^>]*?\b(?:href|src)=["']([^"'#]+)[^"']*["']""")
ADDRESS = re.compile(r"[a-z][a-z+.-]*:")
MAKE = re.compile(r"`(?:[A-Z_]+=\S+ )*make [a-z][\w-]*[^`\n]*`|^ *(?:[A-Z_]+=\S+ )*make [a-z][\w-]*$", re.MULTILINE)
MODULE = re.compile(r"\b(?:python3?|py) -m ([A-Za-z_][\w.]*)(?: ([a-z]+)\b)?")
SCRIPT = re.compile(r"\bpython3? ([\w./-]+\.pyz?)\b")
# Places that a reader of the download cannot go to, unless the paragraph has their address.
ELSEWHERE = re.compile(
    r"(?i)\b(?:the|course's|book's|our) (?:web ?(?:page|site)|first page|repository|clone)\b|"
    r"page for instructors|instructors' page"
)
INSTALLED = frozenset(sys.stdlib_module_names) | {"pip", "ipykernel", "jupyterlab", "torch"}
COMMANDS = frozenset({"coach", "study"})  # of ``python -m graders``, in a download that has the coach
BARE = {".md", ".txt", ".py"}


def texts(name: str, content: bytes) -> Iterator[tuple[str, str, bool]]:
    """Yield the texts of a file: where in the file, the text, and whether it is prose, with links and paragraphs."""
    kind = PurePosixPath(name).suffix
    if kind == ".ipynb":
        for cell in json.loads(content)["cells"]:
            yield f", cell {cell.get('id')}", "".join(cell["source"]), cell["cell_type"] == "markdown"
    elif kind in BARE:
        yield "", content.decode("utf-8"), kind == ".md"


def dead_pointers(name: str, content: bytes, files: Collection[str]) -> Iterator[str]:
    """Say what a file of a download points to and the reader does not have, a line each.

    Args:
        name: the file's path in the download.
        content: its bytes; a notebook is valid JSON.
        files: the paths of all files in the download.
    """
    for place, text, prose in texts(name, content):
        said = f"{name}{place}"
        if prose:
            for target in _targets(text):
                if not ADDRESS.match(target) and resolve(name, target) not in files:
                    yield f"{said}: links to {target}, which is not in the download"
            for paragraph in re.split(r"\n\s*\n", text):
                if (match := ELSEWHERE.search(paragraph)) and "http" not in paragraph:
                    yield f"{said}: speaks of {match.group()!r} without its address"
        for match in MAKE.finditer(text):
            yield f"{said}: {match.group().strip()} is for who has the repository"
        for match in MODULE.finditer(text):
            module, command = match[1], match[2]
            if not _runs(module, files) or (module == "graders" and command not in COMMANDS | {None}):
                yield f"{said}: {match.group()!r} does not run here"
        for match in SCRIPT.finditer(text):
            if match[1] not in files and resolve(name, match[1]) not in files:
                yield f"{said}: {match.group()!r}: there is no {match[1]}"


def _targets(text: str) -> Iterator[str]:
    """Yield where the links of a Markdown text lead; what stands in code is no link."""
    text = re.sub(r"^(```+|~~~+).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    for pattern in (LINK, HTML):
        for match in pattern.finditer(text):
            yield next(filter(None, match.groups()))


def _runs(module: str, files: Collection[str]) -> bool:
    path = module.replace(".", "/")
    return module.split(".")[0] in INSTALLED or f"{path}.py" in files or f"{path}/__main__.py" in files


def resolve(name: str, target: str) -> str:
    """Return the path in the download that a link of file `name` leads to."""
    parts = name.split("/")[:-1]
    for part in target.split("/"):
        if part == "..":
            if not parts:
                return target
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
