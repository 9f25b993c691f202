"""Reading what a student wrote costs what its length is: each regular expression, and each reader of text as a whole.

No time is compared with a clock's: one length is with four times that length. A cost that grows with the square is
sixteen times as high there, and the limit is ten; the least of several tries counts. What doubles with each letter
never ends: all of it runs in a reader's process, which is ended.
"""

import ast
import importlib
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from graders.classroom.outcome import _line
from graders.classroom.platforms import PLATFORMS, signed
from graders.classroom.reader import Reader
from graders.engine.outputs import Outputs
from graders.judge.cells import read_cell
from graders.judge.reading import forbidden, joined
from graders.notebook import form
from graders.notebook.cells import bound_names, without_magics
from graders.notebook.files import resembles
from graders.sets import load

PACKAGE = Path(__file__).parents[2] / "graders"
ROOMS = ("classroom", "notebook", "judge", "engine", "inside")
FUNCTIONS = ("compile", "sub", "subn", "match", "fullmatch", "search", "split", "findall", "finditer")
# Patterns that no text of a student meets, each with the reason.
NEVER = {
    r"^[^\n]*BEGIN HIDDEN TESTS.*?(END HIDDEN TESTS[^\n]*\n?|\Z)": "the gradebook's own cells",
    r"^# %% (\w+)\n": "the sample class's answers",
    r"\W": "how a task's own text writes the call",
}
UNITS = [
    *" \t\n'\"()[]{}<>,.;:-_=+/%!?\\#*~0aZé",
    *("\u2028", "(1)", " (1)", " - copy", "-copy", " - copy(1)", ".a", "a.", "a ", " -a", " a,", "a=", "= ", "torch."),
    *("_a", "..a", "/graders/", "Backward", "a'", "1)", "x line 1", "(x, line ", "argument 1 .", ".json", ".ipynb"),
    *("%time ", "_1_"),
]
TAILS = ("", "!", "\n")
FLAGS = re.compile(r"re\.[A-Z]+( \| re\.[A-Z]+)*")
LETTERS, TRIES, MOST = 2_000, 2, 10
DIRECT: dict[str, set[str]] = {}  # the functions of `re` that each pattern is given to
NAMED: dict[str, str] = {}  # the patterns that have a name
# an instructor's own, and those of platforms' names (see below) and columns: they meet one name, which is short
OF_NAMES = ("self.named_regexp", "one.surplus", "form", "table.form.grades", "table.form.worth")


def _patterns() -> dict[str, int]:
    """Every pattern that a module of the rooms gives to `re`, with its flags."""
    found = {}
    for room in ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            module = importlib.import_module(f"graders.{room}.{path.stem}") if path.stem != "__init__" else None
            NAMED.update({n: v.pattern for n, v in vars(module or object).items() if isinstance(v, re.Pattern)})
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                function = node.func if isinstance(node, ast.Call) else None
                of_re = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
                if of_re and function.value.id == "re" and function.attr in FUNCTIONS:
                    if ast.unparse(node.args[0]) in OF_NAMES:
                        continue
                    text = _text(node.args[0], module)
                    found[text] = _flags(node, module)
                    DIRECT.setdefault(text, set()).add(function.attr)
    return found


def _text(node: ast.expr, module: object) -> str:
    """A pattern as it is written; what a formatted one gets is left as it stands."""
    if isinstance(node, ast.JoinedStr):
        parts = node.values
        return "".join(p.value if isinstance(p, ast.Constant) else f"{{{ast.unparse(p.value)}}}" for p in parts)
    return eval(ast.unparse(node), dict(vars(module)))


def _flags(call: ast.Call, module: object) -> int:
    """The flags among the arguments: `re.X` by position, or by name."""
    given = [*call.args[1:], *(k.value for k in call.keywords if k.arg == "flags")]
    return sum(
        int(eval(ast.unparse(node), vars(module).copy())) for node in given if FLAGS.fullmatch(ast.unparse(node))
    )


PATTERNS = _patterns()


def _heads(pattern: str) -> list[str]:
    """What a text may begin with so that the first parts of a pattern fit: the words in it, and nothing."""
    return ["", *dict.fromkeys(re.findall(r"[a-zA-Z]{3,}[=/ ]?|%%", pattern))][:3]


def _cost(act: Callable[[str], object], text: str) -> int:
    least = []
    for _ in range(TRIES):
        start = time.thread_time_ns()
        act(text)
        least.append(time.thread_time_ns() - start)
    return min(least)


def _grows(act: Callable[[str], object], make: Callable[[int], str], letters: int) -> float:
    """How many times as much the text of four times the length costs; the least of three, where it is too much."""
    ratios = []
    while not ratios or (ratios[-1] >= MOST and len(ratios) < 3):
        ratios.append(_cost(act, make(4 * letters)) / max(_cost(act, make(letters)), 2_000))
    return min(ratios)


def _uses(pattern: str) -> set[str]:
    """How the package asks for a pattern: `search` stands for all that look at every place of a text."""
    texts = [path.read_text(encoding="utf-8") for room in ROOMS for path in (PACKAGE / room).rglob("*.py")]
    names = {name for name, value in NAMED.items() if value == pattern}
    asked = {way for text in texts for name in names for way in re.findall(rf"\b{name}\.(\w+)\(", text)}
    asked |= DIRECT.get(pattern, set()) - {"compile"}
    if not names and DIRECT.get(pattern) == {"compile"}:
        asked = {"search"}  # it stands in a table of several
    return {"search" if way not in ("match", "fullmatch") else way for way in asked}


def _worst(pattern: str, flags: int, uses: set[str]) -> tuple[float, str]:
    """The text at which a pattern's cost grows most, and by how much."""
    compiled, found = re.compile(pattern, flags), (0.0, "")
    for way in sorted(uses):
        use = (lambda text: list(compiled.finditer(text))) if way == "search" else getattr(compiled, way)
        for head in _heads(pattern):
            for unit in UNITS:
                for tail in TAILS:
                    ratio = _grows(use, lambda n, h=head, u=unit, t=tail: h + u * (n // len(u)) + t, LETTERS)
                    found = max(found, (ratio, f"{head!r} + {unit!r} * n + {tail!r}"))
                    if ratio >= MOST:
                        return found
    return found


@pytest.fixture(scope="module")
def reader():
    """A process that may die; half of its CPU seconds would do for the slowest."""
    started = Reader(None, seconds=120)
    yield started
    started.close()


def _name_cost(pattern: str) -> float:
    """How much more a name of 296 letters costs than one of 74, at worst."""
    compiled = re.compile(pattern, re.DOTALL)
    makes = [lambda n, u=unit, t=tail: u * (n // len(u)) + t for unit in UNITS for tail in TAILS]
    return max(_grows(compiled.fullmatch, make, 74) for make in makes)


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_platforms_name_costs_little_even_where_it_is_not_linear(reader, name):
    """Names have fewer than 300 characters, or are not looked at; for these, the third power is 64 times as much."""
    platform = PLATFORMS[name]
    assert reader.ask(_name_cost, platform.form.replace("@SET@", "(01-relu|relu)")) < 100
    assert reader.ask(_name_cost, platform.surplus) < 100
    assert signed(platform.example + "x" * 300, "01_relu", name) is None


def test_every_pattern_is_found():
    assert set(NEVER) <= set(PATTERNS)
    assert len(PATTERNS) > 25


@pytest.mark.parametrize("pattern", sorted(set(PATTERNS) - set(NEVER)))
def test_a_regular_expression_is_linear(reader, pattern):
    assert _uses(pattern), "nothing uses it"
    ratio, text = reader.ask(_worst, pattern, PATTERNS[pattern], _uses(pattern))
    assert ratio < MOST, f"{pattern} on {text}"


@pytest.mark.parametrize(
    "pattern",
    [r"\s*\((\S+, )?line (\d+)\)", r"^(\s*[\w.,\s]+=\s*)[!%].*$"],
)
def test_what_is_not_linear_is_found(reader, pattern):
    """Two that once stopped a class."""
    assert reader.ask(_worst, pattern, 0, {"search"})[0] >= MOST


# --- readers as a whole -----------------------------------------------------------------------------------------------

FORBIDS = load("sigmoid")["Sigmoid"].forbids


def _forbidden(text: str) -> object:
    read_cell.cache_clear()
    forbidden.cache_clear()
    return forbidden(joined(text.split("\0")), "Sigmoid", FORBIDS)


def _displayed(text: str) -> object:
    outputs = Outputs(1_000_000)
    for line in text.split("\n"):
        outputs({"msg_type": "stream", "content": {"name": "stdout", "text": line}})
    return outputs.list


def _bound(text: str) -> object:
    from graders.notebook import cells

    cells._bound.cache_clear()
    return bound_names({"cells": [{"cell_type": "code", "source": text}]})


def _notebook(text: str) -> object:
    cell = f'{{"cell_type": "code", "source": "x", "metadata": {text}, "id": "a"}}'
    return form.parse(
        f'{{"nbformat": 4, "nbformat_minor": 5, "metadata": {text}, "cells": [{cell}, {cell}]}}'.encode(), "x"
    )


def _answer(body: str, before: str = "") -> str:
    return f"{before}\ndef Sigmoid(x):\n{body or '    pass'}\n"


def _each(count: int, line: str) -> str:
    return "".join(line.format(i=i, last=max(0, i - 1)) for i in range(count))


def _nested(depth: int) -> str:
    return (
        "".join(f"{' ' * i}{f'class A{i}' if i % 2 else f'def f{i}()'}:\n" for i in range(depth))
        + " " * depth
        + "pass\n"
    )


# Texts by a number of parts: what reads them, how many parts the shorter one has, the text.
SHAPES: dict[str, tuple[Callable[[str], object], int, Callable[[int], str]]] = {
    "a message of blanks": (_line, 5_000, lambda n: " " * n),
    "a message of lines": (_line, 5_000, lambda n: "(x, line 1" * n),
    "a line of blanks": (without_magics, 5_000, lambda n: " " * n + "y"),
    "a name of copies": (
        lambda text: resembles("relu.ipynb", text),
        30,
        lambda n: "relu" + " - copy(1)" * n + "x.ipynb",
    ),
    "names bound twice": (
        _forbidden,
        20,
        lambda n: _answer(f"    a{n - 1}", _each(n, "a{i} = a{last}\na{i} = a{last}\n")),
    ),
    "local names bound twice": (
        _forbidden,
        20,
        lambda n: _answer(_each(n, "    a{i} = a{last}\n    a{i} = a{last}\n") + f"    a{n - 1}.exp()"),
    ),
    "sums of themselves": (
        _forbidden,
        20,
        lambda n: _answer(_each(n, "    a{i} = a{last} + a{last}\n") + f"    x ** a{n - 1}"),
    ),
    "names in a circle": (
        _forbidden,
        20,
        lambda n: _answer(f"    a{n - 1}", _each(n, f"a{{i}} = a{{last}}\na{{i}} = a{n - 1}\n")),
    ),
    "classes in functions": (_forbidden, 20, lambda n: _nested(n) + _answer("")),
    "a chain of attributes": (_forbidden, 100, lambda n: _answer("    x" + ".a" * n)),
    "many chains of attributes": (_forbidden, 10, lambda n: _answer(("    x" + ".a" * 200 + "\n") * n)),
    "a name bound again and again": (_forbidden, 200, lambda n: _answer("    a\n" * n, "a = b\n" * n)),
    "a statement that binds many names": (
        _forbidden,
        200,
        lambda n: _answer(_each(n, "    a{i}\n"), _each(n, "a{i},") + " = b\n"),
    ),
    "many names": (_forbidden, 200, lambda n: _answer(_each(n, "    a{i}\n"), _each(n, "a{i} = b{i} = 1\n"))),
    "commands in a long cell": (
        _forbidden,
        20,
        lambda n: _answer("", "y = [1, 2, 3]\n" * 40 * n + _each(n, "q{i} = !true\n")),
    ),
    "marks of a merge": (form._merged, 5_000, lambda n: "<<<<<<< a\n" * n),
    "names that are bound": (_bound, 1_000, lambda n: _each(n, "a{i} = 1\n")),
    "many small outputs": (_displayed, 1_000, lambda n: "x\n" * n),
    "many long outputs": (_displayed, 400, lambda n: (("x" * 100) + "\n") * n),
    "lists in metadata": (_notebook, 2_000, lambda n: '{"x": [' + ",".join(["[]"] * n) + "]}"),
    "keys in metadata": (_notebook, 2_000, lambda n: "{" + ",".join(f'"k{i}": 0' for i in range(n)) + "}"),
    "objects for the language": (
        _notebook,
        2_000,
        lambda n: '{"language_info": {"name": [' + ",".join(["{}"] * n) + "]}}",
    ),
    "tags": (_notebook, 2_000, lambda n: '{"tags": [' + ",".join(f'"t{i}"' for i in range(n)) + "]}"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_reader_is_linear(reader, shape):
    assert reader.ask(_shape, shape) < MOST


def _shape(name: str) -> float:
    act, parts, make = SHAPES[name]
    return _grows(act, make, parts)
