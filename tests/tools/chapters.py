"""The rules of a chapter: size, parts in order, card, figures, wrong versions. Pure functions of a notebook."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise, takewhile
from statistics import median

from nbformat import NotebookNode

from tools.cards import read_card
from tools.notebooks import figure_name

HEADINGS = [
    "The problem",
    "The idea",
    "The Function",
    "The proof",
    "See it",
    "How it breaks",
    "Where it lives",
    "Predict, then run",
    "Exercises",
    "Summary",
]
FURTHER = "Further"  # what not everybody reads; it may follow the summary
CELLS, WORDS, MEDIAN_LINES, MOST_LINES, FUNCTION_LINES = 70, 2500, 12, 40, 25
NOTEBOOK_ONLY = "remove-cell"  # MyST-NB leaves a cell with this tag out of the page
MOVES = re.compile(r'<figure class="interactive".*</figure>\s*\Z', re.DOTALL)  # how a text cell ends
MISCONCEPTION = re.compile(r"misconception:(?P<task>[A-Z]\w*)\.(?P<name>[a-z][a-z0-9_]*)")
MYST = re.compile(r"^(```+|:::+)\{|\{[a-z:+-]+\}`", re.MULTILINE)


def words(markdown: str) -> int:
    """How many words everybody reads: pictures and tags are none, nor what is folded or stands in a figure's place."""
    text = re.sub(r"<(details|figure)\b.*?</\1>", " ", markdown, flags=re.DOTALL)
    text = re.sub(r"<(svg|style)\b.*?</\1>|<[^>]+>", " ", text, flags=re.DOTALL)
    return sum(any(character.isalnum() for character in word) for word in text.split())


def in_notebook_alone(cell: NotebookNode) -> bool:
    """Whether a cell is not on the page: a picture that says in JupyterLab what a moving figure says there."""
    return NOTEBOOK_ONLY in cell.metadata.get("tags", [])


def size_faults(notebook: NotebookNode) -> Iterator[str]:
    """Cells and words of the path that everybody reads, and lines of any code but a figure's, over their limits.

    A notebook picture is no cell of the path: nobody reads it besides the figure above it, but in its place.
    `tools.notebooks` limits the lines of figures.
    """
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and figure_name(cell) is None]
    read = takewhile(lambda cell: not cell.source.startswith(f"## {FURTHER}\n"), notebook.cells)
    path = [cell for cell in read if not in_notebook_alone(cell)]
    text = sum(words(cell.source) for cell in path if cell.cell_type == "markdown")
    if len(path) > CELLS:
        yield f"{len(path)} cells, {CELLS} at most"
    if text > WORDS:
        yield f"{text} words, {WORDS} at most"
    lines = [len(cell.source.splitlines()) for cell in code]
    if lines and median(lines) > MEDIAN_LINES:
        yield f"code cells have {median(lines)} lines in the median, {MEDIAN_LINES} at most"
    for cell in code:
        if (length := len(cell.source.splitlines())) > MOST_LINES:
            yield f"cell {cell.id}: {length} lines, {MOST_LINES} at most"


def part_faults(notebook: NotebookNode) -> Iterator[str]:
    """A title, then the ten parts of the template in their order; after them, perhaps, what goes further."""
    first = notebook.cells[0]
    if first.cell_type != "markdown" or not first.source.startswith("# "):
        yield "the first cell is not the title"
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            prose = re.sub(r"^```.*?^```", "", cell.source, flags=re.DOTALL | re.MULTILINE)
            found += re.findall(r"^##? (.+?) *$", prose, flags=re.MULTILINE)
            if match := MYST.search(prose if "```{" not in cell.source else cell.source):
                yield f"cell {cell.id}: {match.group()} shows raw outside the book"
    if [name for name in found[1:] if name != FURTHER or name != found[-1]] != HEADINGS:
        yield f"the parts are {found[1:]}"


def card_faults(notebook: NotebookNode, file: str, chapters: list[str]) -> Iterator[str]:
    """One card right after the title, needing earlier chapters only.

    Args:
        notebook: the chapter.
        file: its file name.
        chapters: the file names of all chapters.
    """
    places = [i for i, cell in enumerate(notebook.cells) if "card" in cell.metadata.get("tags", [])]
    if places != [1]:
        yield f"the card is the second cell, found at {places}"
        return
    if (card := read_card(notebook.cells[1].source)) is None:
        yield "the card breaks the grammar: three abilities, Time, Difficulty, Needs"
        return
    if not 10 <= card.minutes <= 180:
        yield f"{card.minutes} minutes"
    for needed in card.needs:
        if needed not in chapters:
            yield f"needs {needed}, which does not exist"
        elif needed >= file:
            yield f"needs {needed}, which is not an earlier chapter"


def figure_faults(notebook: NotebookNode) -> Iterator[str]:
    """Every picture has a text that says what is to be seen, and is on the page unless a figure moves there."""
    for before, cell in pairwise(notebook.cells):
        moves = before.cell_type == "markdown" and MOVES.search(before.source) is not None
        if in_notebook_alone(cell) and not (moves and figure_name(cell)):
            yield f"cell {cell.id}: only a picture right after a figure that moves is tagged {NOTEBOOK_ONLY}"
        if moves and figure_name(cell) and not in_notebook_alone(cell):
            yield f"cell {cell.id}: on the page the figure above it moves; tag the picture {NOTEBOOK_ONLY}"
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for picture in re.findall(r"!\[\s*\]\([^)]*\)|<img(?![^>]*\balt=\"[^\"]+\")[^>]*>", cell.source):
                yield f"cell {cell.id}: no alt text: {picture[:60]}"
            continue
        draws = any("image/svg+xml" in o.get("data", {}) or "image/png" in o.get("data", {}) for o in cell.outputs)
        if draws and figure_name(cell) is None:
            yield f"cell {cell.id}: draws, but is not tagged figure:<function>"
        if figure_name(cell) is None:
            continue
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        if len(alt) < 60 or not re.search(r"\d", alt):
            yield f"cell {cell.id}: its alt text does not say what is to be seen, with numbers: {alt!r}"
        if not in_notebook_alone(cell) and not cell.metadata.get("finding", "").endswith("."):
            yield f"cell {cell.id}: no finding in its metadata, a sentence for the caption"
        if not draws:
            yield f"cell {cell.id}: draws nothing"
        if "hide-input" not in cell.metadata.tags or cell.metadata.get("jupyter") != {"source_hidden": True}:
            yield f"cell {cell.id}: a figure cell is tagged hide-input and has jupyter.source_hidden"


def misconception_faults(notebook: NotebookNode) -> Iterator[str]:
    """Two to four wrong versions, each a class under a well-formed tag, all in "How it breaks"."""
    part, names = "", []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            part = [part, *re.findall(r"^## (.+?) *$", cell.source, flags=re.MULTILINE)][-1]
        for tag in cell.metadata.get("tags", []):
            if not tag.startswith("misconception"):
                continue
            match = MISCONCEPTION.fullmatch(tag)
            if match is None:
                yield f"cell {cell.id}: {tag!r} is not misconception:<Task>.<name>"
                continue
            names.append(tag)
            classes = [s.name for s in ast.parse(cell.source).body if isinstance(s, ast.ClassDef)]
            if not any(name.endswith(match["task"]) for name in classes):
                yield f"cell {cell.id}: holds no class {match['task']}"
            if part != "How it breaks":
                yield f"cell {cell.id}: a wrong version outside 'How it breaks'"
    if not 2 <= len(set(names)) == len(names) <= 4:
        yield f"two to four wrong versions, each named once; found {names}"


def function_faults(notebook: NotebookNode) -> Iterator[str]:
    """A Function has at most 25 lines, its docstring not counted."""
    for cell in notebook.cells:
        if cell.cell_type != "code" or cell.source.startswith("%%"):
            continue
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.ClassDef) and any("Function" in ast.unparse(base) for base in node.bases):
                lines = node.end_lineno - node.lineno + 1
                for inner in ast.walk(node):
                    if isinstance(inner, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(inner) is not None:
                        lines -= inner.body[0].end_lineno - inner.body[0].lineno + 1
                if lines > FUNCTION_LINES:
                    yield f"cell {cell.id}: {node.name} has {lines} lines, {FUNCTION_LINES} at most"


def chapter_faults(notebook: NotebookNode, file: str, chapters: list[str]) -> list[str]:
    """Everything in which a chapter departs from the rules, one line each."""
    return [
        *size_faults(notebook),
        *part_faults(notebook),
        *card_faults(notebook, file, chapters),
        *figure_faults(notebook),
        *misconception_faults(notebook),
        *function_faults(notebook),
    ]
