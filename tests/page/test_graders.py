"""The graders' own code for the page's Python: it is the graders', it is all there, and nothing in it is left over."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import page_graders, page_tasks

MODULES = page_graders.modules()
SEAM = ast.parse((page_graders.PAGE / "seam.py").read_text(encoding="utf-8"))


def defined(tree: ast.Module) -> set[str]:
    """The names that a module has at its top."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            found |= {alias.asname or alias.name for alias in node.names}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return found


def test_what_comes_from_the_seam_is_there() -> None:
    there = defined(SEAM)
    for path, text in MODULES.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and node.module == "seam":
                assert {alias.name for alias in node.names} <= there, path
            elif isinstance(node, ast.ImportFrom):
                other = defined(ast.parse(MODULES[f"{node.module}.py"]))
                assert {alias.name for alias in node.names} <= other, path


def test_every_exception_names_something_of_the_graders() -> None:
    """A name that the seam stands for, or a method that is kept, is still the graders'."""
    for module, names in page_graders.SEAM.items():
        owner = importlib.import_module(module)
        for name in names:
            assert hasattr(owner, name) or importlib.import_module(f"{module}.{name}"), (module, name)
    for name, methods in page_graders.METHODS.items():
        text = "\n".join(MODULES.values())
        assert f"class {name}:" in text or f"class {name}(" in text, name
        for method in methods:
            assert f"    def {method}(" in text, (name, method)


def test_nothing_in_the_seam_is_left_over() -> None:
    coach = (page_graders.PAGE / "coach.py").read_text(encoding="utf-8")
    seam = (page_graders.PAGE / "seam.py").read_text(encoding="utf-8")
    for node in SEAM.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            users = [*MODULES.values(), coach, seam.replace(f"def {node.name}(", "").replace(f"class {node.name}", "")]
            assert any(re.search(rf"\b{node.name}\b", text) for text in users), node.name


def sentences(node: ast.AST) -> list[str]:
    """The strings of a function, docstrings and annotations apart."""
    found = []
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef):
            part.returns = None
            for arg in (*part.args.args, *part.args.kwonlyargs):
                arg.annotation = None
            if ast.get_docstring(part):
                part.body = part.body[1:] or [ast.Pass()]
    for part in ast.walk(node):
        if isinstance(part, ast.AnnAssign):
            part.annotation = ast.Constant(None)
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value:
            found.append(part.value)
    return sorted(found)


@pytest.mark.parametrize("path", MODULES)
def test_each_sentence_is_the_graders_own(path: str) -> None:
    """What a function of theirs says it says in the page too, to the letter."""
    (module,) = [name for name in sys.modules if page_graders.named(name) == path.removesuffix(".py")]
    source = ast.parse(Path(sys.modules[module].__file__ or "").read_text(encoding="utf-8"))
    theirs = {node.name: node for node in source.body if isinstance(node, ast.FunctionDef)}
    for node in ast.parse(MODULES[path]).body:
        if isinstance(node, ast.FunctionDef):
            assert sentences(node) == sentences(theirs[node.name]), node.name


def test_every_look_is_asked() -> None:
    """Each look that the page has is one of a check in it."""
    asked = {
        look.__name__
        for name in page_tasks.SETS.values()
        for task in page_tasks.tasks_of(name)
        for check in task.checks
        for look in check.looks
    }
    assert set(page_graders.LOOKS) <= asked


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("f'{1 + 1}: {0.5:.3g} {\"a\"!r} {{}}'", "2: 0.5 'a' {}"),
        ("[*range(2), 5] + list((*'ab', 1))", [0, 1, 5, "a", "b", 1]),
        ("isinstance(1.0, int | float) and not isinstance('', int | float | list)", True),
        ("list(zip('ab', (1, 2), strict=True))", [("a", 1), ("b", 2)]),
        ("'torch.float64'.removeprefix('torch.') + 'c'.removeprefix('d')", "float64c"),
        ("list(dict.fromkeys([3, 1, 3]))", [3, 1]),
        ("sorted(range(3), key=[5, 1, 3].__getitem__)", [1, 2, 0]),
        ("'a .b'.partition(' .')[::2]", ["a", "b"]),
        ("float.__add__(1.5, 0.0) + int.__abs__(-2)", 3.5),
        ("sorted({'a': 1, 'b': 2}.keys() - {'a'})", ["b"]),
    ],
)
def test_what_is_rewritten_says_what_it_said(code: str, value: object) -> None:
    assert eval(code) == value or list(eval(code)) == value
    made = ast.unparse(page_graders._plain(ast.parse(f"found = {code}").body[0]))
    assert made != f"found = {code}"
    run = f"import sys\nsys.path[:0] = {[str(page_graders.PAGE)]!r}\nfrom seam import *\nimport seam\n"
    run += "globals().update({n: v for n, v in vars(seam).items() if not n.startswith('__')})\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{run}{made}\nprint(repr(found))"], capture_output=True, text=True, check=True
    )
    assert eval(done.stdout) == value
