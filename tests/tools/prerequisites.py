"""What a chapter teaches, what it and its set use, and whether the first covers the second: functions of notebooks.

The names are torch's own, read from torch:

- functions and classes of the modules in MODULES, by their path: `torch.func.grad` is not `torch.autograd.grad`;
- members of `ctx`, a Function, a node and a custom op, and those of tensors and modules that are about gradients, by
  their name alone, since the type of what stands before the dot is not known. An underscore at the end counts for
  nothing: who knows `detach` knows `detach_`;
- options: the keywords with a default in calls of these functions and of `backward`, such as `create_graph=`.

A chapter *names* what stands in its prose as inline code. It *introduces* what it names and its code shows as well: a
word in passing introduces nothing. (An option needs no showing, since code passes options on by `**`.) It introduces a
term by a link to the glossary. To *use* a name is to have it in code: code cells, files that %%writefile writes, Python
in fences; to use a term is to say it. Figure cells are generated and hidden, so they are left out.

Who needs tensors, `.backward()` and partial derivatives has trained a net, as the first page does: all of torch.nn,
torch.nn.functional and torch.optim is known, but for the hooks of a module and torch.nn.grad.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType

import torch
import torch.autograd.forward_ad
import torch.nn.grad
import torch.utils.checkpoint
from nbformat import NotebookNode
from torch.autograd.function import FunctionCtx

from tools.cards import read_card
from tools.notebooks import figure_name

MODULES = [
    torch.autograd,
    torch.autograd.function,
    torch.autograd.graph,
    torch.autograd.functional,
    torch.autograd.forward_ad,
    torch.func,
    torch.nn.grad,
    torch.library,
    torch.utils.checkpoint,
]
MORE = ["torch.is_grad_enabled", "torch.amp.custom_fwd", "torch.amp.custom_bwd"]
OWNERS = [torch.autograd.Function, FunctionCtx, torch.autograd.graph.Node, torch.library.CustomOpDef]
ABOUT_GRADIENTS = re.compile(r"grad|backward|detach|hook|leaf")
KNOWN = {"name", "metadata", "zero_grad"}  # two words too common to tell, and what every optimizer has
PYTHON_MAGICS = {"writefile", "time", "timeit", "capture", "prun"}
FENCE = re.compile(r"^```(?P<info>.*)\n(?P<body>(?:.*\n)*?)```", re.MULTILINE)


def public(module: ModuleType) -> Iterator[tuple[str, object]]:
    """The functions and classes that a module offers: its `__all__`, and what it defines besides."""
    for name in sorted(vars(module)):
        value = getattr(module, name)
        own = not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        if callable(value) and (own or name in getattr(module, "__all__", ())):
            yield name, value


def resolve(path: str) -> object:
    """What a dotted path names, None where it names nothing that is imported here."""
    head, *rest = path.split(".")
    value = sys.modules.get(head)
    for part in rest:
        value = getattr(value, part, None)
    return value


def _functions() -> dict[int, str]:
    """The path of each function and class, by its identity: torch has many of them at two paths."""
    found = {id(resolve(path)): path for path in MORE}
    for module in MODULES:
        for name, value in public(module):
            short = f"torch.{name}"
            found.setdefault(id(value), short if resolve(short) is value else f"{module.__name__}.{name}")
    return found


def _members() -> set[str]:
    names = {"_version", "data"}
    for owner in OWNERS:
        names |= set(dir(owner))
    for owner in (torch.Tensor, torch.nn.Module):
        names |= {name for name in dir(owner) if ABOUT_GRADIENTS.search(name)}
    return {name for name in names if not name.startswith("_") or name == "_version"} - KNOWN


FUNCTIONS = _functions()
MEMBERS = _members()


def _options(function: object) -> set[str]:
    """The keywords of `function` that a call may leave out."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set()
    return {f"{p.name}=" for p in parameters if p.default is not p.empty}


OPTIONS = set().union(*(_options(resolve(path)) for path in FUNCTIONS.values()), _options(torch.Tensor.backward))
VOCABULARY = MEMBERS | OPTIONS | set(FUNCTIONS.values())


@dataclass
class Page:
    """A chapter or a set, as far as prerequisites go."""

    used: dict[str, str] = field(default_factory=dict)  # a name, and the first cell that uses it
    named: set[str] = field(default_factory=set)  # names in the prose
    linked: dict[str, str] = field(default_factory=dict)  # a term's slug, and the first cell that links it
    said: dict[str, str] = field(default_factory=dict)  # a term's slug, and the first cell with its words
    needs: list[str] = field(default_factory=list)
    sections: set[str] = field(default_factory=set)  # chapters to whose sections the text links
    unreadable: list[str] = field(default_factory=list)  # faults

    @property
    def introduced(self) -> set[str]:
        """Names and terms that a reader of this page has met, explained."""
        return (self.named & (self.used.keys() | OPTIONS)) | {f"#{slug}" for slug in self.linked}


def python(source: str) -> str | None:
    """The Python of a cell's source, None where it is another language's."""
    lines = source.splitlines()
    if lines and lines[0].startswith("%%"):
        words = lines[0].removeprefix("%%").split()
        if words[0] not in PYTHON_MAGICS or (words[0] == "writefile" and not words[-1].endswith(".py")):
            return None
        lines = lines[1:]
    return "\n".join(line for line in lines if not re.match(r"\s*[%!]", line))


def parses(source: str) -> bool:
    """Whether `source` is Python."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def sources(notebook: NotebookNode) -> Iterator[tuple[str, str]]:
    """Cell and source of all code that a reader sees: code cells, and Python in fences."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for fence in FENCE.finditer(cell.source):
                info, body = fence["info"].strip(), textwrap.dedent(fence["body"])
                if info in ("python", "py") or (info == "" and parses(body)):
                    yield cell.id, body
        elif cell.cell_type == "code" and figure_name(cell) is None and (source := python(cell.source)) is not None:
            yield cell.id, source


def prose(cell: NotebookNode) -> str:
    """The Markdown of a cell without fences."""
    return FENCE.sub("", cell.source) if cell.cell_type == "markdown" else ""


def aliases(trees: list[ast.AST]) -> dict[str, str]:
    """The dotted path behind each imported name."""
    found = {"torch": "torch"}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Import):
            found |= {a.asname: a.name for a in node.names if a.asname}
            found |= {a.name.split(".")[0]: a.name.split(".")[0] for a in node.names if not a.asname}
        elif isinstance(node, ast.ImportFrom):
            found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return found


def full_path(node: ast.AST, known: dict[str, str]) -> str | None:
    """The path of an expression `a.b.c` that begins with an imported name, None for all else."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute) and (base := full_path(node.value, known)):
        return f"{base}.{node.attr}"
    return None


def names_used(node: ast.AST, known: dict[str, str]) -> Iterator[str]:
    """The names that one node of a syntax tree uses, not counting what stands inside it."""
    path = full_path(node, known)
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield FUNCTIONS.get(id(resolve(f"{node.module}.{alias.name}")), "")
    elif path and id(resolve(path)) in FUNCTIONS:
        yield FUNCTIONS[id(resolve(path))]
    elif isinstance(node, ast.Attribute):
        if not (path and isinstance(resolve(path.rpartition(".")[0]), ModuleType)):
            yield node.attr.rstrip("_")
    elif isinstance(node, ast.ClassDef):
        for statement in node.body:
            targets = getattr(statement, "targets", [getattr(statement, "target", statement)])
            yield from (getattr(t, "name", getattr(t, "id", "")) for t in targets)
    elif isinstance(node, ast.Call):
        function = resolve(full_path(node.func, known) or "")
        options = _options(function) if id(function) in FUNCTIONS else set()
        if isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            options = _options(torch.Tensor.backward)
        yield from (f"{k.arg}=" for k in node.keywords if f"{k.arg}=" in options)
        yield from (k.arg for k in node.keywords if k.arg == "requires_grad")


def names_in(code: str, known: dict[str, str]) -> Iterator[str]:
    """The names that a piece of inline code mentions.

    A path counts as the function that it ends in. A single word counts as all that it may mean: a member, an option,
    and the function that the page imports under that name or, where it imports none, each function of that name.
    """
    for path in re.findall(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", code):
        head, *rest = path.split(".")
        exact = FUNCTIONS.get(id(resolve(".".join([known.get(head, head), *rest]))))
        ending = {name for name in FUNCTIONS.values() if name.endswith(f".{path}")}
        yield from {exact} if exact else ending
        if rest and (exact or ending):
            continue
        for part in path.split("."):
            yield from (part.rstrip("_"), f"{part}=")


def slug(term: str) -> str:
    """The anchor of a term's heading."""
    return re.sub(r"[^\w -]", "", term.casefold()).replace(" ", "-")


def terms(glossary: str) -> list[str]:
    """The terms of the glossary, by its headings."""
    return re.findall(r"^### (.+?) *$", glossary, re.MULTILINE)


def read_page(notebook: NotebookNode, glossary: str) -> Page:
    """What a notebook uses, names, links and needs."""
    page, trees = Page(), []
    for cell, source in sources(notebook):
        try:
            trees.append((cell, ast.parse(source)))
        except SyntaxError as error:
            page.unreadable.append(
                f"cell {cell}: its code cannot be read ({error.msg}); if it is no Python, mark it so"
            )
    known = aliases([tree for _, tree in trees])
    folded = {cell.id for cell in notebook.cells if cell.id.endswith("-setup") and _hidden(cell)}
    for cell, tree in trees:
        if cell in folded:
            continue  # the helpers of a set's checks, which say that nobody need read them
        for name in (name for node in ast.walk(tree) for name in names_used(node, known)):
            if name in VOCABULARY:
                page.used.setdefault(name, cell)
    for cell in notebook.cells:
        text = prose(cell)
        for code in re.findall(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", text, re.DOTALL):
            page.named |= VOCABULARY.intersection(names_in(code[1], known))
        for anchor in re.findall(r"glossary\.md#([\w-]+)\)", text):
            page.linked.setdefault(anchor, cell.id)
        words = re.sub(r"`[^`]*`|\]\([^)]*\)|<[^>]*>|\s+", " ", text)
        for term in sorted(terms(glossary), key=len, reverse=True):  # a saved-tensor hook is not a hook
            words, times = re.subn(rf"\b{re.escape(term)}(s|es)?\b", " ", words, flags=re.IGNORECASE)
            if times:
                page.said.setdefault(slug(term), cell.id)
        if "card" not in cell.metadata.get("tags", []):
            page.sections |= set(re.findall(r"\]\((\d\d_\w+\.ipynb)#", text))
        elif card := read_card(cell.source):
            page.needs = card.needs
    return page


def _hidden(cell: NotebookNode) -> bool:
    """Whether JupyterLab folds the cell's source away."""
    return bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


def closure(file: str, pages: dict[str, Page]) -> set[str]:
    """The chapters that `file` needs, and those that they need; those not written yet left out."""
    found: set[str] = set()
    queue = [file]
    while queue:
        new = {needed for needed in pages[queue.pop()].needs if needed in pages} - found
        found |= new
        queue += new
    return found - {file}


def introduced(files: set[str], pages: dict[str, Page]) -> set[str]:
    """What these chapters introduce."""
    return set().union(*(pages[file].introduced for file in files))


def shown(name: str) -> str:
    """A name as a message has it."""
    return f"the term {name.removeprefix('#')!r}" if name.startswith("#") else f"`{name}`"


def _elsewhere(name: str, pages: dict[str, Page]) -> str:
    where = [file for file in sorted(pages) if name in pages[file].introduced]
    return f" ({where[0]} introduces it)" if where else ""


def chapter_faults(file: str, pages: dict[str, Page]) -> Iterator[str]:
    """What a chapter uses without having introduced it, and what its card asks for without using it.

    Args:
        file: the chapter's file name.
        pages: all chapters, by file name.
    """
    page = pages[file]
    yield from (f"{file}, {fault}" for fault in page.unreadable)
    known = introduced(closure(file, pages), pages)
    for name, cell in page.used.items():
        if name not in page.named and name not in known:
            yield (
                f"{file}, cell {cell}: uses {shown(name)}: introduce it in the prose, as inline code, "
                f"or name the chapter that does in the card{_elsewhere(name, pages)}"
            )
    for slug_, cell in page.said.items():
        if slug_ not in page.linked and f"#{slug_}" not in known:
            yield (
                f"{file}, cell {cell}: uses {shown(f'#{slug_}')}: link it to the glossary, "
                f"or name the chapter that does in the card{_elsewhere(f'#{slug_}', pages)}"
            )
    uses = page.used.keys() | {f"#{slug_}" for slug_ in page.said.keys() | page.linked.keys()}
    for needed in page.needs:
        if needed in pages and needed != file and needed not in page.sections:
            before = introduced(closure(needed, pages), pages)
            if not uses & (pages[needed].introduced - before):
                yield (
                    f"{file}: its card needs {needed}, but it uses no name and no term that is introduced there, "
                    "and links to none of its sections: take it off the card"
                )


def set_faults(page: Page, name: str, chapter: str, pages: dict[str, Page]) -> Iterator[str]:
    """What a set uses that its chapter, and those which that needs, do not introduce.

    Args:
        page: the set, its solutions and checks.
        name: its name in messages.
        chapter: the file name of its chapter.
        pages: all chapters, by file name.
    """
    yield from (f"{name}, {fault}" for fault in page.unreadable)
    if chapter not in pages:
        yield f"{name}: there is no chapter {chapter}"
        return
    known = introduced({chapter} | closure(chapter, pages), pages)
    uses = page.used | {f"#{slug_}": cell for slug_, cell in (page.said | page.linked).items()}
    for thing, cell in uses.items():
        if thing not in known:
            yield (
                f"{name}, cell {cell}: uses {shown(thing)}: introduce and show it in {chapter}, "
                f"or do without{_elsewhere(thing, pages)}"
            )
