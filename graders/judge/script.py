"""Code that is written for a student to paste: numbers as Python reads them, helpers' sources, and lines of calls.

`graders.judge.paste` says what goes into it. Only a case and the reference's record of it are written here.
"""

import ast
import inspect
import textwrap
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graders.inside import helpers
from graders.inside.observe import SEED, same
from graders.inside.records import Case, Gradients, Helper, Record
from graders.inside.wire import inexact, memory
from graders.judge.looks import describe, parameters, wrong_at

MOST = 128  # elements of a tensor that is pasted number by number
FEW = 24  # elements of a tensor that is printed as a whole
WIDTH = 100

TRACE = '''
class Trace(TorchDispatchMode):
    """Notes the operators below autograd, and the memory of what they make."""

    def __init__(self, *known):
        super().__init__()
        self.known = {t.untyped_storage()._cdata for t in known}
        self.operators, self.made, self.largest, self.peak = set(), {}, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.operators.add(func.name())
        for t in tree_leaves(result):
            if isinstance(t, torch.Tensor) and t.untyped_storage()._cdata not in self.known:
                storage = t.untyped_storage()
                self.made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
                self.largest = max(self.largest, storage.nbytes() // t.element_size())
        self.peak = max(self.peak, self.alive())
        return result

    def alive(self):
        self.made = {key: pair for key, pair in self.made.items() if not pair[0].expired()}
        return sum(size for _, size in self.made.values())
'''
TRACED = (
    "import gc",
    "from torch.multiprocessing.reductions import StorageWeakRef",
    "from torch.utils._python_dispatch import TorchDispatchMode",
    "from torch.utils._pytree import tree_leaves",
)

# --- numbers, tensors, lines ------------------------------------------------------------------------------------------


def written(value: object, dtype: torch.dtype | None = None) -> str:
    """Return the shortest text that Python, and torch in this dtype, read as the same number."""
    if isinstance(value, bool) or not isinstance(value, float):
        return repr(value)
    if value != value or value in (float("inf"), -float("inf")):
        return repr(value)  # names that `Script.text` imports
    if dtype == torch.float32:
        return repr(float(str(np.float32(value))))
    if dtype in (torch.float16, torch.bfloat16):
        for digits in range(1, 9):
            short = float(f"{value:.{digits}g}")
            if torch.tensor(short, dtype=dtype).item() == value:
                return repr(short)
    return repr(value)


def nested(values: object, dtype: torch.dtype | None = None) -> str:
    if isinstance(values, list):
        return f"[{', '.join(nested(v, dtype) for v in values)}]"
    return written(values, dtype)


def _wrapped(text: str, first: str = "", rest: str = "    ") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def comment(text: str) -> list[str]:
    return _wrapped(text, "# ", "#   ")


def literal(tensor: Tensor, requires: bool = False) -> str:
    """Return an expression that makes the tensor, its strides too."""
    dtype, shape = tensor.dtype, tuple(tensor.shape)
    ends = f", dtype={dtype}"
    if not tensor.numel():
        made = f"torch.zeros({shape}{ends})"
    elif _constant(tensor):
        made = f"torch.full({shape}, {written(tensor.reshape(-1)[0].item(), dtype)}{ends})"
    elif tensor.is_contiguous():
        made = f"torch.tensor({nested(tensor.tolist(), dtype)}{ends})"
    elif tensor.dim() == 2 and tensor.t().is_contiguous():
        made = f"torch.tensor({nested(tensor.t().tolist(), dtype)}{ends}).t()"
    elif (once := _once(tensor)).is_contiguous():
        made = f"torch.tensor({nested(once.tolist(), dtype)}{ends}).expand{shape}"
    else:
        held = memory(tensor)
        made = f"torch.tensor({nested(held.tolist(), dtype)}{ends}).as_strided({shape}, {tuple(tensor.stride())})"
    return f"{made}.requires_grad_()" if requires else made


def _once(tensor: Tensor) -> Tensor:
    """Return the tensor without the repetitions of `expand`."""
    return tensor[tuple(slice(0, 1) if s == 0 else slice(None) for s in tensor.stride())]


def _constant(tensor: Tensor) -> bool:
    """Return whether the tensor is so much of one number that it is written as that."""
    return tensor.numel() > 8 and tensor.is_contiguous() and bool((tensor == tensor.reshape(-1)[0]).all())


def size(case: Case) -> int:
    """Return the elements of the largest tensor that would have to be pasted number by number."""
    given = [*tensors(case.args), *tensors(case.upstream), *tensors(case.directions)]
    return max([_once(t).numel() for t in given if t.numel() and not _constant(t)], default=0)


def tensors(value: object) -> list[Tensor]:
    if isinstance(value, Helper):
        return tensors(value.args)
    if isinstance(value, tuple):
        return [t for v in value for t in tensors(v)]
    return [value] if isinstance(value, Tensor) else []


# --- helpers ----------------------------------------------------------------------------------------------------------


class _Bare(ast.NodeTransformer):
    """Leaves out annotations and docstrings, and gives classes other names."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def _body(self, node: Any) -> Any:
        self.generic_visit(node)
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1:
            node.body.pop(0)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._body(node)  # type: ignore[no-any-return] # a node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        return self._body(node)  # type: ignore[no-any-return] # a node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        assert node.value is not None  # a helper declares nothing without a value
        return ast.copy_location(ast.Assign([node.target], node.value), node)


@cache
def source(names: tuple[str, ...], renamed: bool = False) -> tuple[tuple[str, ...], str]:
    """Return the imports and the text of these helpers and of what they need.

    Args:
        names: of functions and classes in `helpers`.
        renamed: whether these are to stand in for the student's own of the same names.
    """
    others = {name: f"Given{name}" for name in names} if renamed else {}
    tree = _Bare(others).visit(ast.parse(inspect.getsource(helpers)))
    imports: dict[str, str] = {}
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                start = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
                imports[alias.asname or alias.name] = f"{start}import {ast.unparse(alias)}"
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            defined[node.targets[0].id] = node
    wanted, todo = set(), [others.get(name, name) for name in names]
    while todo:
        name = todo.pop()
        if name not in wanted and name in {*defined, *imports}:
            wanted.add(name)
            todo += _free(defined[name]) if name in defined else []
    text = "\n\n".join(ast.unparse(node) for name, node in defined.items() if name in wanted)
    return tuple(line for name, line in imports.items() if name in wanted), text


def _free(node: ast.AST) -> set[str]:
    """Return the names that a definition takes from its module."""
    nodes = [n for n in ast.walk(node) if n is not node]
    bound = {n.name for n in nodes if isinstance(n, ast.FunctionDef)} | {n.arg for n in nodes if isinstance(n, ast.arg)}
    return {n.id for n in nodes if isinstance(n, ast.Name)} - bound


def draws(expected: Record) -> bool:
    """Return whether the reference draws random numbers."""
    stream = torch.Generator().manual_seed(SEED)
    torch.rand(3, generator=stream)
    return expected.drawn not in (0.0, torch.rand((), dtype=torch.float64, generator=stream).item())


# --- the script -------------------------------------------------------------------------------------------------------


class Script:
    """Code that grows line by line.

    Args:
        call: how the task's text writes the call.
        case: what is asked.
        random: any numbers will do for tensors of more elements; 0: for none.
    """

    def __init__(self, call: str, case: Case, random: int = 0) -> None:
        self.call, self.case, self.random = call, case, random
        self.head = call[: call.index("(")]
        self.lines: list[str] = []
        self.imports: dict[str, None] = {}
        self.defined: list[str] = []
        self.expressions: list[str] = []  # of the arguments
        self.asked: list[str] = []  # the names of what gradients belong to
        self.held: dict[int, list[str]] = {}  # the names of the tensors that an argument is, or that its helper holds
        self.shows = False
        self.output = "y" if "." in self.head else "result"

    def too_large(self) -> str:
        """Return which of the arguments, or of the upstream gradients, cannot be pasted."""
        if self.random:
            return ""
        named: list[tuple[str, object]] = list(zip(parameters(self.call), self.case.args, strict=False))
        named += [("the upstream gradient", self.case.upstream), ("a direction", self.case.directions)]
        large = (n for n, a in named for t in tensors(a) if _once(t).numel() > MOST and not _constant(t))
        return next(large, "")

    def text(self) -> str:
        """Return all of it."""
        body = [*comment(describe(self.call, self.case)), *self.lines]
        code = [line for line in body if not line.lstrip().startswith("#")]
        names = [n for n in ("inf", "nan") if any(n in _words(line) for line in code)]
        imports = ["import torch", *self.imports, *([f"from math import {', '.join(names)}"] if names else [])]
        imports = sorted(dict.fromkeys(imports), key=lambda line: (line.startswith("from"), line))
        parts = ["\n".join(imports), *self.defined, "\n".join(body)]
        return "\n\n".join(part.strip("\n") for part in parts)

    def add(self, *lines: str) -> None:
        """Add lines."""
        self.lines += lines

    def tensor(self, name: str, value: Tensor, requires: bool = False) -> None:
        """Add the making of a tensor."""
        if self.random and _once(value).numel() > self.random and not _constant(value):
            crossed = value.dim() == 2 and not value.is_contiguous() and value.t().is_contiguous()
            shape, turned = (tuple(value.t().shape), ".t()") if crossed else (tuple(value.shape), "")
            made = f"torch.randn({shape}, dtype={value.dtype}){turned}" if inexact(value) else ""
            made = made or f"torch.randint({int(value.max()) + 1}, {tuple(value.shape)})"
            self.add(f"{name} = {made}{'.requires_grad_()' * requires}  # any numbers will do")
            return
        plain = requires and (text := literal(value)).startswith("torch.tensor(") and text.endswith(f"{value.dtype})")
        made = f"{text[:-1]}, requires_grad=True)" if plain else literal(value, requires)
        self.add(*_wrapped(f"{name} = {made}"))

    def inputs(self) -> None:
        """Add the arguments."""
        names = [n.replace("[", "").replace("]", "") for n in parameters(self.call)]
        flags = self.case.requires_grad or (False,) * len(self.case.args)
        own, taken = [], set(names)
        for i, (name, value, required) in enumerate(zip(names, self.case.args, flags, strict=False)):
            if isinstance(value, Helper):
                self.expressions.append(self._helper(i, value, taken))
                continue
            if isinstance(value, Tensor):
                self.tensor(name, value, required)
                own += [name] if required else []
                self.held[i] = [name]
            self.expressions.append(name if isinstance(value, Tensor) else self.plain(value))
        self.asked = own + self.asked
        if self.case.provide:
            imports, text = source(self.case.provide, True)
            self._define(("from unittest.mock import patch", *imports), text)

    def others(self, values: Sequence[object]) -> list[str]:
        """Return other arguments, the tensors of helpers made before."""
        taken = {*parameters(self.call), *self.asked, *(n for names in self.held.values() for n in names)}
        found, asked, held = [], self.asked, self.held
        self.asked, self.held = [], {}
        for i, value in enumerate(values):
            if isinstance(value, Helper):
                found.append(self._helper(i, value, taken))
            else:
                found.append(self._given(value) or literal(value) if isinstance(value, Tensor) else self.plain(value))
        self.asked, self.held = asked, held
        return found

    def _given(self, value: Tensor) -> str:
        """Return the name of the argument that has these numbers: see `observe._once_more`."""
        pairs = zip(self.expressions, self.case.args, strict=False)
        return next((name for name, a in pairs if isinstance(a, Tensor) and same(a, value)), "")

    def plain(self, value: object) -> str:
        if isinstance(value, tuple):
            inner = [literal(v) if isinstance(v, Tensor) else self.plain(v) for v in value]
            return f"({', '.join(inner)}{',' * (len(inner) == 1)})"
        return written(value)

    def _helper(self, place: int, helper: Helper, taken: set[str]) -> str:
        imports, text = source((helper.name,))
        self._define(imports, text)
        if helper.args is None:
            return helper.name
        known = list(inspect.signature(getattr(helpers, helper.name)).parameters.values())
        names = [p.name for p in known]
        if known and known[-1].kind is inspect.Parameter.VAR_POSITIONAL:
            names[-1:] = [f"{names[-1]}{i}" for i in range(len(helper.args))]
        parts = []
        for name, value, required in zip(
            names, helper.args, helper.requires_grad or (False,) * len(helper.args), strict=False
        ):
            if isinstance(value, Tensor):
                while name in taken:
                    name += "_"
                taken.add(name)
                self.tensor(name, value, required)
                self.asked += [name] if required else []
                self.held.setdefault(place, []).append(name)
                parts.append(name)
            else:
                parts.append(self.plain(value))
        return f"{helper.name}({', '.join(parts)})"

    def _define(self, imports: Sequence[str], text: str) -> None:
        self.imports |= dict.fromkeys(i for i in imports if i != "import torch")
        if text and text not in self.defined:
            self.defined.append(text)

    def trace(self) -> None:
        """Add what notes operators and memory."""
        self._define(TRACED, TRACE)

    # --- passes

    def _around(self, stage: str) -> list[str]:
        within = {
            "autocast": ("forward", 'torch.autocast("cpu", torch.bfloat16)'),
            "autocast in float16": ("forward", 'torch.autocast("cpu", torch.float16)'),
            "autocast around backward": ("backward", 'torch.autocast("cpu", torch.bfloat16)'),
            "no_grad": ("forward", "torch.no_grad()"),
        }
        where, context = within.get(self.case.within, ("", ""))
        found = [context] if where == stage else []
        if stage in ("forward", "between") and self.case.provide:
            given = ", ".join(f"{name}=Given{name}" for name in self.case.provide)
            found.append(f"patch.dict({self.head}.__globals__, {given})")
        return found

    def within(self, stage: str, line: str, *more: str) -> None:
        """Add a line inside what the pass runs within."""
        contexts = [*more, *self._around(stage)]
        self.add(*([f"with {', '.join(contexts)}:", f"    {line}"] if contexts else [line]))

    def called(self, expressions: Sequence[str] | None = None) -> str:
        """Return the call."""
        given = list(expressions or self.expressions)
        split = len(given) - len(self.case.keywords)
        named = [f"{n}={e}" for n, e in zip(self.case.keywords, given[split:], strict=True)]
        return f"{self.head}({', '.join([*given[:split], *named])})"

    def forward(self, expected: Record, *more: str) -> None:
        """Add the call."""
        if draws(expected):
            self.seed()
        self.within("forward", f"{self.output} = {self.called()}", *more)

    def seed(self) -> None:
        """Add where the random stream is."""
        self.add(f"torch.manual_seed({SEED})", "torch.rand(3)")

    def upstreams(self, yours: Record, expected: Record) -> list[tuple[str, str]]:
        """Add the upstream gradients; return them with their outputs."""
        sent = self.case.upstream
        if sent is None:
            return []
        if isinstance(sent, Tensor):
            if self.case.how == "conjugated":
                self.tensor("upstream", sent.conj().resolve_conj())
                self.add("upstream = upstream.conj()")
            else:
                self.tensor("upstream", sent)
            other = yours.outputs and yours.outputs[0].dtype != sent.dtype
            return [(self.output, f"upstream.to({self.output}.dtype)" if other else "upstream")]
        found = []
        for i, (tensor, differs) in enumerate(zip(sent, expected.differentiable, strict=True)):
            if differs:
                self.tensor(f"upstream{i}", tensor)
                found.append((f"{self.output}[{i}]", f"upstream{i}"))
        return found

    def backward(self, pairs: list[tuple[str, str]], *more: str, keep: bool = False) -> None:
        """Add the backward pass."""
        kept = ", retain_graph=True" * keep
        if len(pairs) == 1:
            self.within("backward", f"{pairs[0][0]}.backward({pairs[0][1]}{kept})", *more)
        else:
            outputs, upstreams = (", ".join(part) for part in zip(*pairs, strict=True))
            self.within("backward", f"torch.autograd.backward([{outputs}], [{upstreams}]{kept})", *more)

    # --- prints

    def print(self, expression: str, expected: str) -> None:
        """Add a print, and what is expected of it."""
        self.shows = True
        line = f"print({expression})"
        if len(line) + len(expected) + 14 <= WIDTH:
            self.add(f"{line}  # expected: {expected}")
        else:
            self.add(line, *comment(f"expected: {expected}"))

    def print_tensor(self, expression: str, mine: Tensor | None, right: Tensor | None) -> None:
        """Add the print of a tensor: all of it, or of a large one an element that is wrong."""
        if right is None:
            self.print(expression, "None")
            return
        index = _place(mine, right)
        if right.numel() > FEW and index:
            expression = f"{expression}[{', '.join(map(str, index))}].item()"
            self.print(expression, written(right[index].item()))
        elif right.numel() > MOST:
            self.print(f"{expression}.sum().item()", written(right.sum().item()))
        else:
            none = f"None if {expression} is None else " if mine is None else ""
            self.print(f"{none}{expression}.tolist()", nested(right.tolist()))

    def print_outputs(self, yours: Record, expected: Record) -> None:
        """Add the print of what forward returned: of several tensors, of the first wrong one."""
        if expected.numbers:
            whole = expected.kind == "tuple"
            text = ", ".join(map(written, expected.numbers))
            self.print(self.output, f"({text})" if whole else text)
            return
        place = (_wrong(yours.outputs, expected.outputs) or [0])[0]
        name = f"{self.output}[{place}]" if expected.kind != "Tensor" else self.output
        mine = yours.outputs[place] if place < len(yours.outputs) else expected.outputs[place]
        self.print_tensor(name, mine, expected.outputs[place])

    def print_grads(
        self, names: Sequence[str], yours: Gradients | None, expected: Gradients, none: bool = False
    ) -> None:
        """Add the print of each wrong gradient; of all where none is known to be wrong.

        Args:
            names: expressions for them.
            yours: None where there are none.
            expected: of the same length.
            none: whether None stands for zeros.
        """
        mine = yours if yours is not None else expected
        for i in _wrong(mine, expected) or range(min(len(names), len(expected))):
            right = expected[i]
            if right is not None and right.isnan().any():
                self.add("# where nan is expected, anything will do")
            if none and right is not None and not right.any():
                self.print(f"{names[i]} is None or not {names[i]}.any()", "True")
            else:
                self.print_tensor(names[i], mine[i], right)


def _words(line: str) -> set[str]:
    return set("".join(c if c.isalnum() or c in "_." else " " for c in line).split())


def off(mine: Tensor | None, right: Tensor | None, exactly: bool = False) -> bool:
    if mine is None or right is None:
        return (mine is None) != (right is None)
    if mine.shape != right.shape or mine.dtype != right.dtype:
        return True
    if exactly:
        return not torch.allclose(mine, right, rtol=0, atol=0, equal_nan=True)
    return wrong_at(mine, right) is not None


def _wrong(mine: Sequence[Tensor | None], right: Sequence[Tensor | None]) -> list[int]:
    """Return the places of those that are wrong beyond rounding, or else of the first that differs at all."""
    for exactly in (False, True):
        pairs = enumerate(zip(mine, right, strict=False))
        places = [i for i, (a, b) in pairs if off(a, b, exactly) and not (b is None and a is not None and not a.any())]
        if places:
            return places[:1] if exactly else places
    return []


def _place(mine: Tensor | None, right: Tensor) -> tuple[int, ...] | None:
    """Return the index of an element that is wrong, or else of the one that is off by most."""
    if mine is None or mine.shape != right.shape:
        return None
    index = wrong_at(mine, right)
    if index is None and inexact(right) and right.numel() and not torch.equal(mine, right):
        index = tuple(int(i) for i in np.unravel_index(int((mine - right).abs().argmax()), tuple(right.shape)))
    return index
