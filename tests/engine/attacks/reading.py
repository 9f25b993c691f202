"""Attacks on the grader's own time: texts, outputs and files that take whoever reads them for ever, or fill it."""

from tests.engine.attacks import RIGHT, Attack, own_cell
from tests.engine.attacks.replies import FRAMES

ATTACKS: list[Attack] = []


def _reading(name: str, tries: str, code: str = "", **more: object) -> None:
    ATTACKS.append(Attack(name, "The grader's own time", tries, **{"answers": {"LeakyReLU": code}, **more}))


def _own_cells(*sources: str):
    def change(notebook: dict) -> None:
        notebook["cells"] += [own_cell(source, f"mine-{number}") for number, source in enumerate(sources)]

    return change


def _twice(count: int, first: str, step: str) -> str:
    """Names of which each hangs twice on the one before."""
    return first + "".join(step.format(this=f"a{i}", last=f"a{i - 1}") for i in range(1, count))


def _nested(depth: int) -> str:
    """Functions and classes in each other."""
    lines = [f"{' ' * i}{f'class A{i}' if i % 2 else f'def f{i}()'}:\n" for i in range(depth)]
    return "".join(lines) + " " * depth + "pass\n"


IN_SQUARE = "a59\n        return x * x"
_reading(
    "blank-error",
    "raises an exception of 330,000 blanks",
    'raise ValueError(" " * 330_000)',
    sees="cell LeakyReLU raises ValueError",
)
_reading("blank-line", "has a line of 199,000 blanks in fifty cells", "x = '''\n" + " " * 199_000 + "y'''\n",
         change=_own_cells(*["x = '''\n" + " " * 199_000 + "y'''\n"] * 49))  # fmt: skip
_reading("names-double", "binds sixty names twice, each to the one before, and uses the last", answers={
    "Square": _twice(60, "a0 = torch; a0 = torch\n", "{this} = {last}\n{this} = {last}\n")
    + RIGHT.replace("return x * x", IN_SQUARE)})  # fmt: skip
_reading("sums-double", "makes sixty local names, each the sum of the one before with itself", set="02_sigmoid", honest=6, answers={
    "Cube": """class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x):
        a0 = x.item
""" + _twice(60, "", "        {this} = {last} + {last}\n") + """        return x ** float(a59)
"""})  # fmt: skip
_reading("nested-classes", "nests ninety classes and functions in each other", answers={"Square": _nested(90) + RIGHT})
_reading("many-bindings", "binds 30,000 names in one statement and uses them all", answers={
    "Square": ",".join(f"a{i}" for i in range(30_000)) + " = range(30_000)\n"
    + RIGHT.replace("return x * x", "(" + ",".join(f"a{i}" for i in range(30_000)) + ")\n        return x * x")})  # fmt: skip
_reading("magics", "gives 400 names what a shell command returns, below 20,000 ordinary lines",
         "y = [1,2,3,4,5,6,7,8,9]\n" * 20_000 + "".join(f"q{i} = !true\n" for i in range(400)))  # fmt: skip
_reading("long-integers", "displays 1,900 integers of 4,300 digits, four times", first=FRAMES + """
data = ('{"msg_type": "display_data", "content": {"metadata": {}, "data": {"application/json": ['
        + ",".join(["9" * 4300] * 1900) + "]}}}").encode()
for _ in range(4):
    frame(b"S", data)
""", answers={})  # fmt: skip
_reading("deep-lists", "displays a million empty lists, fifty levels deep: a file has a line with fifty blanks for each", first=FRAMES + """
data = ('{"msg_type": "display_data", "content": {"metadata": {}, "data": {"application/json": '
        + "[" * 45 + ",".join(["[]"] * 1_000_000) + "]" * 45 + "}}}").encode()
frame(b"S", data)
""", answers={})  # fmt: skip
_reading("odd-language", "writes 100,000 objects where the notebook's language is described", change=lambda notebook: notebook["metadata"].update(
    language_info={"name": "python", "codemirror_mode": [{"a": [i]} for i in range(100_000)]}), answers={})  # fmt: skip
_reading("copies", "hands in beside it a file called relu - copy(1) - copy(1), and so on to the longest name",
         beside={"relu" + " - copy(1)" * 24 + "x.ipynb": "{}"}, answers={})  # fmt: skip
