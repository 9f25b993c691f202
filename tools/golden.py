"""What torch answers to thousands of small questions, kept for the page's own torch (book/_page/torch).

``python -m tools.golden`` writes tests/page/golden.json; with ``--check`` it asks torch again and says what differs.
The page's torch is asked the same in tests/page/test_page.py, in its own runtime.
"""

import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).parent.parent / "tests" / "page" / "golden.json"

UNARY = (
    "neg", "abs", "sign", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "atan", "tanh", "sigmoid", "relu",
    "floor", "ceil", "trunc", "reciprocal", "round", "square",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
SIGNS = ("+", "-", "*", "/", "==", "!=", "<", "<=", ">", ">=")
REDUCE = ("sum", "mean", "amax", "amin", "logsumexp", "all", "any", "max", "min", "argmax")
PAIRS = [("a", "b"), ("m", "n"), ("m", "r"), ("m", "c"), ("m", "w"), ("r", "c"), ("a", "s"), ("s", "a"), ("u", "a"), ("z", "y"),
         ("y", "z"), ("e", "u"), ("t", "t")]  # fmt: skip


def one_number() -> Iterator[str]:
    """Yield cases of functions of one number."""
    for name in UNARY:
        for what in ("a", "p", "q", "m", "s", "e", "z", "y", "g", "l", "h"):
            for kind in "df":
                yield f"G(lambda x: x.{name}(), I('{what}', '{kind}'))"
        for what in ("k", "B"):
            yield f"torch.{name}(I('{what}'))"
        yield f"G(torch.{name}, I('m').T.detach().requires_grad_())"
        yield f"torch.{name}(3)"
        for what in ("a", "p"):
            yield f"x = I('{what}')\ny = x * 1\nz = y.{name}_()\n[z is y, y._version, y, grad(y.sum(), x, allow_unused=True)]"
        yield f"I('a').{name}_()"
        yield f"x = I('p')\ny = x * 1\nz = y.{name}()\ny.mul_(2)\ngrad(z.sum(), x)"
        yield f"x = I('p')\nz = x.{name}()\nz.mul_(2)\ngrad(z.sum(), x)"
        yield f"x = I('p')\nz = x.{name}()\nz.sum().backward()\nz.sum().backward()\nx.grad"
        yield f"I('p').{name}().grad_fn.name()"


def two_numbers() -> Iterator[str]:
    """Yield cases of functions of two numbers."""
    for name in (*BINARY, "maximum", "minimum"):
        for one, two in PAIRS:
            for kinds in ("dd", "ff", "df", "fd"):
                yield f"G(torch.{name}, I('{one}', '{kinds[0]}'), I('{two}', '{kinds[1]}'))"
        yield f"I('a').{name}(I('b')).grad_fn.name()"
        yield f"G(torch.{name}, I('a'), I('k'))"
        yield f"torch.{name}(I('k'), I('j'))"
        yield f"torch.{name}(I('B'), I('k'))"
        yield f"torch.{name}(I('a'), I('w'))"
    for one in "aszm":
        yield f"[I('{one}') == None, I('{one}') != None, None == I('{one}'), I('{one}') in (None,)]"
    for sign in SIGNS:
        for one, two in PAIRS:
            yield f"G(lambda x, y: x {sign} y, I('{one}'), I('{two}'))"
        for value in ("2", "0.1", "True", "inf", "0"):
            for what in ("I('a', 'd')", "I('a', 'f')", "I('k')", "I('z')"):
                yield f"G(lambda x: x {sign} {value}, {what})"
        if sign in "+-*/":
            for value in ("2", "0.1", "0"):
                for what in ("I('a', 'd')", "I('a', 'f')", "I('k')", "I('z')", "I('B')"):
                    yield f"G(lambda x: {value} {sign} x, {what})"
            yield f"I('B') {sign} I('B')"
            yield f"I('k') {sign} I('j')"
            yield f"I('k') {sign} I('a')"
            yield f"(I('a') {sign} 2).grad_fn.name()"
            yield f"(2 {sign} I('a')).grad_fn.name()"
    for name in COMPARE:
        for one, two in (
            ("'a'", "'b'"),
            ("'z'", "'y'"),
            ("'k'", "'j'"),
            ("'B'", "'B'"),
            ("'m'", "'w'"),
            ("'k'", "'a'"),
        ):
            yield f"torch.{name}(I({one}), I({two}))"
        yield f"I('t').{name}(3)"
    for base in (
        "I('a')",
        "I('p')",
        "I('z')",
        "I('a', 'f')",
        "I('p', 'f')",
        "I('g')",
        "I('z', 'f')",
        "I('k')",
        "I('s')",
    ):
        for exponent in ("2", "3", "0.5", "-1", "-2", "-0.5", "0", "1", "4", "2.5", "1.5"):
            yield f"G(lambda x: x ** {exponent}, {base})"
            yield f"G(lambda x: x.pow({exponent}), {base})"
    for base in ("2", "0.5", "0", "-1.5", "1"):
        for exponent in ("I('a')", "I('p', 'f')", "I('z')"):
            yield f"G(lambda x: {base} ** x, {exponent})"
    for one, two in (("p", "a"), ("p", "b"), ("a", "t"), ("t", "t"), ("z", "y"), ("p", "s")):
        for kind in "df":
            yield f"G(torch.pow, I('{one}', '{kind}'), I('{two}', '{kind}'))"
    for sign, word in (("&", "and"), ("|", "or"), ("^", "xor")):
        yield f"I('B') {sign} (I('a') > 0)"
        yield f"(I('a') > 0) {sign} (I('b') > 0)"
        yield f"torch.logical_{word}(I('a'), I('z')[:5])"
        yield f"torch.logical_{word}(I('k'), I('B'))"
    yield "~I('B')"
    yield "~I('k')"
    yield "~I('a')"
    yield "I('z').logical_not()"
    for name in ("isnan", "isinf", "isfinite"):
        yield f"torch.{name}(I('z'))"
        yield f"I('k').{name}()"
    for sign in ("+=", "-=", "*=", "/=", "**=", "&=", "|="):
        method = {"+=": "add_", "-=": "sub_", "*=": "mul_", "/=": "div_", "**=": "pow_"}.get(sign)
        if method is None:
            continue
        for other in ("2", "0.5", "I('b')", "I('s')", "I('w')", "I('b', 'f')", "I('k')"):
            yield f"x = I('a')\nw = I('b')\ny = x * 1\nz = y.{method}({other})\n[z is y, y._version, y, grad(y, x, V(y))]"
            yield f"y = I('a', 'f', False)\ny.{method}({other})\ny"
            yield f"y = I('k')\ny.{method}({other})\ny"
        yield f"I('a').{method}(1)"
        yield f"y = I('m') * 1\ny.{method}(I('o'))"


def choices() -> Iterator[str]:
    """Yield cases of where, clamp and their kin."""
    for one, two in (("I('a')", "I('b')"), ("I('a')", "0"), ("1", "I('a')"), ("I('a', 'f')", "I('b')"), ("I('a', 'f')", "0.1"),
                     ("I('k')", "0.5"), ("I('k')", "I('a')"), ("1", "0"), ("1.0", "0"), ("I('s')", "I('a')"), ("I('s', 'f')", "I('s')"),
                     ("I('k')", "2"), ("I('z')[:5]", "I('a')"), ("True", "I('a')")):  # fmt: skip
        for mask in ("I('a') > 0", "I('B')"):
            yield f"torch.where({mask}, {one}, {two})"
            yield f"G(lambda x: torch.where(x <= 0, {one} if True else x, x * {two}), I('b'))"
    yield "G(lambda x, y: torch.where(x > 0, x, y), I('m'), I('r'))"
    yield "G(lambda x, y: torch.where(X('m') > 0, x, y), I('s'), I('w'))"
    yield "G(lambda x: x.where(x > 0, 0), I('a'))"
    yield "torch.where(I('a'), I('a'), I('b'))"
    for bounds in (
        "min=0",
        "max=1",
        "0, 1",
        "-0.5, 0.8",
        "min=0.5, max=2",
        "1, -1",
        "min=-inf",
        "max=inf",
        "0",
        "None, 0.3",
        "",
        "2",
    ):
        for what in ("I('a')", "I('a', 'f')", "I('z')", "I('m')", "I('k')", "I('t')", "I('q', 'f')"):
            yield f"G(lambda x: x.clamp({bounds}), {what})"
        yield f"G(lambda x: torch.clip(x{', ' if bounds else ''}{bounds}), I('b'))"
        yield f"x = I('a')\ny = x * 1\ny.clamp_({bounds})\n[y, y._version, grad(y, x, V(y))]"
    for one, two in (
        ("I('b')", "None"),
        ("None", "I('b')"),
        ("I('b')", "I('p')"),
        ("I('s')", "None"),
        ("None", "I('s')"),
    ):
        for what in ("I('a')", "I('t')"):
            yield f"G(lambda x: x.clamp(min={one}, max={two}), {what})"
        yield f"G(lambda x, y: x.clamp(max=y), I('a'), I('{'b' if 'b' in one else 's'}'))"
        yield f"G(lambda x, y: x.clamp(min=y), I('t'), I('{'t' if 'b' in one else 's'}'))"
        yield "G(lambda x, y, z: x.clamp(y, z), I('a'), I('b'), I('q'))"
    yield "G(lambda x: x.clamp_min(0.5), I('a'))"
    yield "G(lambda x: x.clamp_max(0.5), I('a'))"
    for value in ("0", "1.5", "inf", "torch.tensor(2.0)", "True"):
        for mask in ("x > 0", "X('m') > 0", "X('Bm')"):
            yield f"G(lambda x: x.masked_fill({mask}, {value}), I('m'))"
        yield f"x = I('m')\ny = x * 1\ny.masked_fill_(y > 0, {value})\n[y, grad(y, x, V(y))]"
        yield f"torch.masked_fill(I('a', 'f'), I('B'), {value})"
    for one in ("x > 5", "x < 5", "torch.tensor([True, False, True])", "torch.tensor(True)"):
        yield f"x = torch.zeros(1).expand(3)\nx.masked_fill_({one}, 2.0)\n[x, x._version]"
    yield "x = X('r').expand(2, 3)\nx.masked_fill_(X('Bm'), -1.5)\n[x, x._version]"
    yield "x = I('s').expand(3)\nx.masked_fill_(x > 5, 2.0)"
    yield "G(lambda x, v: x.masked_fill(X('Bm'), v), I('m'), I('s'))"
    yield "I('a').masked_fill(I('b'), 0)"
    for bounds in ("", ", 0, 1", ", -0.5, 2.0", ", 0.0, 0.5"):
        for what in ("I('a')", "I('a', 'f')", "I('z')", "I('t')"):
            yield f"G(lambda x: F.hardtanh(x{bounds}), {what})"
    for slope in ("", ", 0.1", ", 0.0", ", -0.7", ", 3.0", ", negative_slope=0.2", ", 1"):
        for what in ("I('a')", "I('a', 'f')", "I('z')", "I('z', 'f')"):
            yield f"G(lambda x: F.leaky_relu(x{slope}), {what})"
    for name in ("relu", "sigmoid", "tanh"):
        yield f"G(F.{name}, I('a', 'f'))"
    for name in ("relu_",):
        yield f"x = I('a')\ny = torch.{name}(x * 1)\n[y, grad(y, x, V(y))]"


def sums() -> Iterator[str]:
    """Yield cases of reductions."""
    for name in REDUCE:
        for what in ("a", "m", "s", "t", "z", "o", "u"):
            for kind in "df":
                dims = ["dim=0", "-1", "0, True", "dim=-1, keepdim=True"]
                if name not in ("logsumexp",):
                    dims.append("")
                if name in ("sum", "mean", "amax", "amin", "logsumexp"):
                    dims += ["dim=(0, 1)", "(0, -1), True"] if what in "mo" else []
                for dim in dims:
                    if kind == "f" and what in ("z", "u"):
                        continue
                    yield f"G(lambda x: x.{name}({dim}), I('{what}', '{kind}'))"
        yield f"torch.{name}(I('k'), 0)" if name != "mean" else "I('k').mean()"
        yield f"I('B').{name}(0)"
        yield f"I('m').{name}(5)"
        yield f"I('m').{name}(0).grad_fn" if name in ("all", "any", "argmax") else f"I('a').{name}(0)"
    for name in ("sum", "amax", "amin", "mean", "max", "min", "all", "any"):
        yield f"I('e').{name}()"
        yield f"I('e', wants=False).{name}()"
        yield f"I('km').{name}()" if name != "mean" else "I('k').mean()"
        yield f"(I('m').{name}()).requires_grad"
    for name in ("sum", "mean"):
        yield f"I('a').{name}(dtype=torch.float32)"
        yield f"I('a', 'f').{name}(0, dtype=torch.float64)"
        yield f"I('h').{name}(1)"
        yield f"I('k').{name}(dtype=torch.float64)"
        yield f"I('m').{name}((0, 0))"
        yield f"I('m').{name}(dim=()).shape"
    for name in ("max", "min"):
        yield f"G(lambda x: x.{name}(0)[0], I('t'))"
        yield f"I('m').{name}(1).indices"
        yield f"G(lambda x: x.{name}(1, True).values, I('m'))"
        yield f"G(torch.{name}, I('a'), I('b'))"
        yield f"G(lambda x: x.{name}(), I('t'))"
    for what in ("a", "m", "s", "o", "g", "t"):
        for kind in "df":
            for name in ("softmax", "log_softmax"):
                for axis in (0, -1):
                    if what == "o" and kind == "f":
                        continue  # second derivatives in float32 are rounding alone there
                    yield f"G(lambda x: x.{name}({axis}), I('{what}', '{kind}'))"
                    yield f"G(lambda x: F.{name}(x, dim={axis}), I('{what}', '{kind}'))"
    for row in ("[-inf, -inf]", "[inf, 0.0]", "[-inf, 1.0]", "[nan, 1.0]", "[inf, -inf]", "[1e4, -1e4]"):
        for name in ("logsumexp(0)", "softmax(0)", "log_softmax(0)", "amax()", "max()", "sum()", "mean()"):
            yield f"G(lambda x: x.{name}, torch.tensor({row}, dtype=torch.float64, requires_grad=True))"


def shapes() -> Iterator[str]:
    """Yield cases of views, copies and what is put together."""
    forms = [
        "reshape(3, 2)", "reshape(-1)", "reshape((6,))", "reshape(1, -1, 2)", "view(6)", "view(3, 2)", "view(-1, 1)", "view([2, 3])",
        "transpose(0, 1)", "t()", "T", "mT", "permute(1, 0)", "permute((1, 0))", "unsqueeze(0)", "unsqueeze(-1)", "unsqueeze(1)", "squeeze()",
        "squeeze(0)", "expand(2, 3)", "expand(4, 2, 3)", "expand(-1, 3)", "expand_as(X('o')[:, :, 0])", "flatten()", "contiguous()",
        "clone()", "T.reshape(-1)", "T.view(-1)", "T.contiguous().view(-1)", "T.reshape(2, 3)", "t().t().view(-1)", "view(4)", "reshape(4)",
        "reshape(-1, -1)", "expand(2, 4)", "expand(3)", "squeeze(5)", "transpose(0, 3)", "permute(0, 0)", "unsqueeze(4)", "double()",
        "float()", "to(torch.float32)", "to(torch.float64)", "to(X('a'))", "type_as(I('a', 'f'))", "split(2, 1)", "split(1)", "split([1, 2], 1)",
        "unbind()", "unbind(1)", "diag()", "view_as(I('m'))", "reshape_as(X('m').reshape(3, 2))", "detach()", "long()", "bool()",
    ]  # fmt: skip
    for form in forms:
        for kind in "df":
            yield f"G(lambda x: x.{form}, I('m', '{kind}'))"
        yield (
            f"I('m', wants=False).{form}.stride()"
            if not form.startswith(("split", "unbind"))
            else f"len(I('m').{form})"
        )
        if not form.startswith(
            (
                "split",
                "unbind",
                "detach",
                "long",
                "bool",
                "contiguous",
                "flatten",
                "to(torch.float64)",
                "double",
                "to(X",
            )
        ):
            yield f"I('m').{form}.grad_fn.name()"
    keys = [
        "0", "1", "-1", "5", "0, 1", "0, 0, 0", ":", "...", "None", ":1", "1:", "::2", "-1:", ":, 0", ":, -1", ":, 1:", ":, ::2", "..., 0", "..., 1:",
        "0, ...", ":, None", "None, 0", "x > 0", "X('Bm')", "torch.tensor([True, False])", "torch.tensor([1, 0])", "torch.tensor([1, 1, 0])",
        "[1, 0]", ":, torch.tensor([2, 0])", ":, [2, 0, 0]", "torch.tensor([7])", "torch.tensor([True])", "torch.tensor(1)", "::-1", "1.0", "0:0",
        "3:", ":-5", "1, 1:", ":, :, 0", "torch.tensor([[0, 1], [1, 0]])", "0, x[0] > 0", "..., torch.tensor([0, 2])",
    ]  # fmt: skip
    for key in keys:
        for kind in "df":
            yield f"G(lambda x: x[{key}], I('m', '{kind}'))"
        yield f"x = X('m')\nx[{key}].shape"
        for value in ("0", "1.5", "I('s')", "X('w')", "X('r')[0, 0]"):
            yield f"x = X('m')\nx[{key}] = {value}\n[x, x._version]"
            yield f"w = I('m')\nx = w * 1\nx[{key}] = {value}\n[x, grad(x, w, V(x))]"
        yield f"x = I('m')\nx[{key}] = 0\nx"
    yield "w = I('m')\nv = I('s')\nx = w * 2\nx[0] = v * 3\n[grad(x, [w, v], V(x)), x.grad_fn.name()]"
    yield "w = I('m')\nx = torch.zeros(2, 3, dtype=torch.float64)\nx[1] = w[0] * w[1]\n[x, grad(x, w, V(x))]"
    yield "w = I('m')\nx = torch.empty_like(w)\nx[..., :2] = w[..., 1:]\nx[..., 2] = 0\n[x, grad(x, w, V(x))]"
    yield "I('s')[0]"
    yield "I('s')[...]"
    yield "I('s')[None]"
    yield "X('o')[1, :, 2]"
    yield "G(lambda x: x[:, 1:, ::2], I('o'))"
    yield "G(lambda x: x.permute(2, 0, 1), I('o'))"
    yield "G(lambda x: x.transpose(1, 2).reshape(2, -1), I('o'))"
    yield "X('o').permute(2, 0, 1).stride()"
    yield "X('o').view(2, 12).stride()"
    yield "X('o').permute(2, 0, 1).is_contiguous()"
    for name in ("cat", "stack"):
        for items in (
            "[x, x]",
            "[x, y]",
            "(x, y, x)",
            "[x]",
            "[x, y * 2]",
            "[x[:1], y]",
            "[x.float(), y]",
            "[x, x > 0]",
            "[]",
            "[x[0], y[0]]",
        ):
            for dim in ("", ", 0", ", 1", ", dim=-1", ", 3"):
                yield f"G(lambda x, y: torch.{name}({items}{dim}), I('m'), I('n'))"
        yield f"torch.{name}([I('k'), I('j')])"
        yield f"torch.{name}([I('k'), I('a')])"
        yield f"torch.{name}([I('s'), I('s')])"
        yield f"torch.{name}([I('m'), I('r')])"
        yield f"torch.{name}([I('m'), I('a')])"
    for what in ("w", "a", "m"):
        yield f"G(torch.diag, I('{what}'))"
    yield "torch.diag(I('o'))"
    yield "torch.diag(I('k'))"
    yield "[list(map(float, [v.item() for v in X('a')])), len(X('m'))]"
    for attribute in ("ndim", "shape", "dtype", "is_leaf", "requires_grad", "size()", "size(0)", "size(-1)", "dim()", "numel()", "nelement()",
                      "element_size()", "is_floating_point()", "itemsize", "tolist()", "stride()", "is_contiguous()", "shape[0]", "shape[1:]",
                      "shape.numel()", "shape == (2, 3)", "item()", "grad"):  # fmt: skip
        for what in ("I('m')", "I('m', 'f') * 2", "I('s')", "I('km')", "I('Bm')", "I('e')"):
            yield f"({what}).{attribute}"


def made() -> Iterator[str]:
    """Yield cases of new tensors."""
    for call in (
        "tensor([1, 2])", "tensor([1.0, 2])", "tensor([True, False])", "tensor([True, 2])", "tensor([1, 2.5, False])", "tensor(3)", "tensor(3.5)",
        "tensor(True)", "tensor([])", "tensor([[1, 2], [3, 4]])", "tensor([[1.5], [2]])", "tensor([[]])", "tensor([[1], [2, 3]])",
        "tensor([0.1], dtype=torch.float64)", "tensor([0.1])", "tensor([1.7, -1.7], dtype=torch.int64)", "tensor([0, 2], dtype=torch.bool)",
        "tensor([1.0], requires_grad=True)", "tensor([1], requires_grad=True)", "tensor((1, (2)))", "tensor([1e40, -1e40, 1e-46])",
        "zeros(2)", "zeros(2, 3)", "zeros((2, 3))", "zeros([2])", "zeros(())", "zeros(0)", "zeros(2, dtype=torch.int64)", "zeros(2, dtype=torch.bool)",
        "ones(2, 2)", "ones(3, dtype=torch.float64)", "ones([])", "ones(2, requires_grad=True)", "full((2,), 3)", "full((2,), 3.5)", "full((2,), True)",
        "full((), 0.1, dtype=torch.float64)", "full([2, 1], inf)", "arange(4)", "arange(1, 4)", "arange(1, 8, 3)", "arange(4.0)", "arange(0, 1, 0.25)",
        "arange(3, dtype=torch.float64)", "arange(5, 0, -2)", "arange(0)", "arange(-2, 3)", "linspace(0, 1, 5)", "linspace(-2, 2, 7, dtype=torch.float64)",
        "linspace(3, -1, 4)", "linspace(0, 1, 1)", "linspace(0, 1, 2)", "linspace(0, 1, 11)", "linspace(0, 1, 0)", "linspace(-3.3, 7.1, 13, dtype=torch.float64)",
        "zeros_like(I('m'))", "ones_like(I('m', 'f'))", "full_like(I('m'), 2)", "full_like(I('k'), 7)", "zeros_like(I('B'))",
        "zeros_like(I('k'), dtype=torch.float32)", "ones_like(I('s'))", "empty_like(I('m')).shape", "empty(2, 3).shape", "broadcast_shapes((2, 1), (3,))",
        "is_tensor(I('a'))", "is_tensor(3)", "is_grad_enabled()", "numel(I('m'))", "is_floating_point(I('k'))", "inf", "nan", "pi", "e",
        "float32", "float64", "int64", "bool", "double", "float", "long", "float32.is_floating_point", "float64.itemsize", "int64.is_floating_point",
        "tensor([0.1, 0.2]).double()", "tensor([1.0, 2.5]).long()", "tensor([-1.5]).long()", "tensor([0.0, 2.0, nan]).bool()", "tensor(2.0).item()",
    ):  # fmt: skip
        yield f"torch.{call}"
    for call in (
        "new_zeros(2)",
        "new_zeros((2, 3))",
        "new_ones(2, 2)",
        "new_full((2,), 3)",
        "new_tensor([1, 2])",
        "new_full((), inf)",
    ):
        for what in ("I('a')", "I('a', 'f')", "I('k')"):
            if not (what == "I('k')" and "inf" in call):
                yield f"{what}.{call}"
    for name, extra in (("allclose", ""), ("isclose", ""), ("equal", ""), ("allclose", ", equal_nan=True"), ("isclose", ", rtol=0.1"),
                        ("allclose", ", 0, 1e-3"), ("isclose", ", atol=1.0, rtol=0.0")):  # fmt: skip
        for one, two in (("I('a')", "I('a')"), ("I('a')", "I('b')"), ("I('a')", "I('a') + 1e-9"), ("I('z')", "I('z')"), ("I('a', 'f')", "I('a', 'f') * 1.0001"),
                         ("I('z')", "I('y')")):  # fmt: skip
            yield f"torch.{name}({one}, {two}{extra})"
    yield "torch.equal(I('a'), I('m'))"
    yield "torch.equal(I('k'), I('j'))"


PRINTED = (
    "[1.0, 2.0]", "[0.1, -2.5, 3]", "[1e-5, 1]", "[1e9, 1]", "[nan, inf, -inf, 1]", "[nan, 0.5]", "[]", "[[1.0, 2], [3, 4.5]]", "1.5", "3", "True", "[True, False]",
    "[1, -20, 300]", "[[1], [2]]", "[[[1.0]], [[2.0]]]", "[0.0, -0.0]", "[1e-8, 1e8]", "[100000.0, 0.1]", "[123456.0, 7]", "[i * 0.5 for i in range(30)]",
    "[i for i in range(40)]", "[[i * 1.25 for i in range(12)], [i * -0.1 for i in range(12)]]", "[1001.0, 1.0]", "[0.0001, 0.1]", "[0.00009, 0.05]",
    "[2.0 ** i for i in range(12)]", "[[], []]", "[99999999.0]", "[100000001.0, 5.0]", "[0.99999, 0.00001]", "[1.00005, 2.00015]",
)  # fmt: skip


def printed() -> Iterator[str]:
    """Yield cases of what print shows."""
    for values in PRINTED:
        yield f"str(torch.tensor({values}))"
        yield f"repr(torch.tensor({values}, dtype=torch.float64))"
        yield f"x = torch.tensor({values}, dtype=torch.float64, requires_grad=True)\nstr(x)"
        yield f"x = torch.tensor({values}, dtype=torch.float32, requires_grad=True)\nstr(x * 2) + str(x.sum()) + str(x.exp())"
        yield f"x = torch.tensor({values}, dtype=torch.float64)\n[v for v in (x / 3).reshape(-1).tolist()]"
        yield f"str(torch.tensor({values}).shape)"
    yield "str(I('m').max(1))"
    yield "str([I('a'), I('s')])"
    yield "str(torch.float64)"


HEAD = """class A(Function):
    @staticmethod
    def forward(ctx, x{more}):
        {forward}
    @staticmethod
    def backward(ctx, {g}):
        {backward}
"""
APART = """class A(Function):
    @staticmethod
    def forward(x{more}):
        {forward}
    @staticmethod
    def setup_context(ctx, inputs, output):
        {setup}
    @staticmethod
    def backward(ctx, {g}):
        {backward}
"""


def functions() -> Iterator[str]:
    """Yield cases of custom Functions."""
    ends = (
        "x = I('a')\ny = A.apply(x)\n[y, y.grad_fn.name(), y.requires_grad, grad(y, x, V(y))]",
        "G(A.apply, I('m'))",
        "A.apply(X('a'))",
        "gradcheck(A.apply, I('w'))",
        "gradgradcheck(A.apply, (I('w'),))",
        "gradcheck(A.apply, I('w'), raise_exception=False)",
        "gradgradcheck(A.apply, I('w'), raise_exception=False)",
        "x = I('a')\nA.apply(x).sum().backward()\nA.apply(x).sum().backward()\nx.grad",
        "x = I('a')\ny = A.apply(x)\ny.sum().backward()\ny.sum().backward()",
        "x = I('a')\nu = x * 1\ny = A.apply(u)\nu.neg_()\ny.sum().backward()\nx.grad",
        "x = I('a')\ny = A.apply(x * 1)\ny.mul_(2)\n[y, grad(y.sum(), x)]",
        "x = I('a')\nu = x * 1\nv = V(x)\n(A.apply(u) + u).backward(v)\n[x.grad, v]",
        "x = I('a', 'f')\ny = A.apply(x)\n[y, grad(y, x, V(y).double())]",
        "with torch.no_grad():\n    y = A.apply(I('a'))\n[y, y.grad_fn]",
        "x = I('a')\ny = A.apply(x)\ngrad(y.sum(), x, retain_graph=True)\ngrad(y.sum(), x)",
        "x = I('a')\n(g,) = grad(A.apply(x).sum(), x, create_graph=True)\n[g.requires_grad, g]",
        "A.apply(3)",
    )
    bodies = [
        ("ctx.save_for_backward(x); return x * x", "(x,) = ctx.saved_tensors; return 2 * x * g"),
        ("ctx.save_for_backward(x); return x * x", "(x,) = ctx.saved_tensors; return x * g"),
        ("ctx.save_for_backward(x); return x ** 3", "(x,) = ctx.saved_tensors; return 3 * x ** 2 * g"),
        ("ctx.save_for_backward(x); return x.clamp(min=0)", "(x,) = ctx.saved_tensors; return torch.where(x <= 0, 0, g)"),
        ("ctx.save_for_backward(x); return x.clamp(min=0)", "(x,) = ctx.saved_tensors; return g * (x > 0)"),
        ("ctx.save_for_backward(x); return x.clamp(min=0)", "(x,) = ctx.saved_tensors; return (x > 0).to(g.dtype)"),
        ("ctx.save_for_backward(x); return x.clamp(min=0)", "(x,) = ctx.saved_tensors; g[x <= 0] = 0; return g"),
        ("ctx.x = x; return x * x", "return 2 * ctx.x * g"),
        ("y = x.exp(); ctx.save_for_backward(y); return y", "(y,) = ctx.saved_tensors; return y * g"),
        ("y = x.exp(); ctx.save_for_backward(y.detach()); return y", "(y,) = ctx.saved_tensors; return y * g"),
        ("y = x.tanh(); ctx.save_for_backward(y); return y", "(y,) = ctx.saved_tensors; return g * (1 - y * y)"),
        ("y = 1 / (1 + (-x).exp()); ctx.save_for_backward(y); return y", "(y,) = ctx.saved_tensors; return g * y * (1 - y)"),
        ("return x.clone()", "return -g"), ("return x", "return -g"), ("return x.view_as(x)", "return g"), ("return x.clone()", "return None"),
        ("return x * 2", "return g, g"), ("return x * 2", "return ()"), ("return x * 2", "return 2"), ("return x * 2", "return [g]"), ("return x * 2", "return g[:2]"),
        ("return x * 2", "return g.expand(7, *g.shape)"), ("return x * 2", "return g.sum()"), ("return x * 2", "return g.float()"), ("return x * 2", "return (g, None, None)"),
        ("return x * 2", "return g.unsqueeze(0)"), ("return x * 2", "return ctx.nothing"), ("return x * 2", "raise NotImplementedError('your turn')"),
        ("return x * 2", "return ctx.saved_tensors[0]"), ("ctx.save_for_backward(3); return x", "return g"), ("ctx.save_for_backward(None, x); return x * x", "return ctx.saved_tensors[1] * 2 * g"),
        ("ctx.save_for_backward(x); ctx.save_for_backward(x * 2); return x * x", "return ctx.saved_tensors[0] * g"),
        ("ctx.mark_dirty(x); x.mul_(2); return x", "return g * 2"), ("ctx.mark_dirty(x); return x.clone()", "return g"), ("x.mul_(2); return x.clone()", "return g"),
        ("y = x > 0; ctx.mark_non_differentiable(y); return y", "return None"), ("y = x.sign(); ctx.mark_non_differentiable(y); return y", "return g"),
        ("return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)", "return g"), ("return x.detach()", "return g"), ("return x.sum()", "return g"), ("return x.sum()", "return g.expand(5)"),
        ("ctx.n = x.shape; return x.sum()", "return g.expand(ctx.n)"), ("return x.round()", "return g.clamp(-1, 1)"), ("return x * 2", "return g.mul_(2)"),
        ("return 3", "return g"), ("return x * 2, 5", "return g * 2"), ("ctx.set_materialize_grads(False); return x * 2", "return None if g is None else 2 * g"),
        ("ctx.save_for_backward(x); return x * x", "(x,) = ctx.saved_tensors; x.mul_(2); return x * g"), ("return x * 2", "return torch.zeros(3)"),
        ("ctx.needs = ctx.needs_input_grad; return x * 2", "return g * len(ctx.needs) * ctx.needs_input_grad[0]"), ("return x[:2]", "return torch.cat([g, g, g[:1]])"),
    ]  # fmt: skip
    for forward, backward in bodies:
        head = HEAD.format(more="", forward=forward, g="g" if "5" not in forward else "g, h=None", backward=backward)
        for end in ends:
            if "mul_(2); return x.clone" in forward and "gradcheck" in end:
                continue
            yield head + end
        if (
            "; return" in forward
            and "ctx." in forward
            and "y" not in forward
            and "mark" not in forward
            and "x.mul_" not in forward
            and "3); " not in forward
        ):
            kept, _, value = forward.rpartition("; ")
            setup = "(x,) = inputs; " + kept
            head = APART.format(more="", forward=value, setup=setup, g="g", backward=backward)
            for end in ends[::3]:
                yield head + end
    for forward, setup in (
        ("return x", "ctx.save_for_backward(*inputs)"), ("return x", "ctx.save_for_backward(output)"), ("return x", "pass"), ("return x.view_as(x)", "ctx.save_for_backward(*inputs)"),
        ("return x.view_as(x)", "ctx.save_for_backward(output)"), ("x.mul_(2); return x", "ctx.mark_dirty(inputs[0]); ctx.save_for_backward(output)"), ("x.mul_(2); return x", "ctx.save_for_backward(*inputs)"),
        ("return x, x * 2", "ctx.save_for_backward(*inputs)"), ("return x * 1", "ctx.save_for_backward(output)"),
    ):  # fmt: skip
        head = APART.format(more="", forward=forward, setup=setup, g="*g", backward="return g[0] * 3")
        for end in (
            "G(lambda x: A.apply(x * 1), I('a'))",
            "G(A.apply, I('a'))",
            "A.apply(X('a'))",
            "with torch.no_grad():\n    y = A.apply(I('a'))\ny",
            "x = I('a')\nA.apply(x * 1)[0].grad_fn.name()",
        ):
            yield head + end
    once = HEAD.format(
        more="",
        forward="ctx.save_for_backward(x); return x * x",
        g="g",
        backward="(x,) = ctx.saved_tensors; return 2 * x * g",
    )
    once = once.replace("    def backward", "    @once_differentiable\n    def backward")
    for end in ends:
        yield once + end
    two = HEAD.format(more=", k", forward="ctx.k = k; ctx.save_for_backward(x); return x * k", g="g", backward="BODY")
    for body in (
        "return g * ctx.k, None",
        "return g * ctx.k",
        "return g * ctx.k, g",
        "return None, None",
        "return g * ctx.k, None, None",
        "return g, None, g",
        "return None, g",
    ):
        for end in (
            "x = I('a')\ngrad(A.apply(x, 3).sum(), x)",
            "x = I('a')\ny = A.apply(x, 3)\ny.grad_fn.needs_input_grad",
            "gradcheck(A.apply, (I('a'), 2.5))",
            "gradgradcheck(A.apply, (I('a'), 2))",
        ):
            yield two.replace("BODY", body) + end
    both = APART.format(
        more=", y", forward="return x * y", setup="ctx.save_for_backward(*inputs)", g="g", backward="BODY"
    )
    for body in (
        "x, y = ctx.saved_tensors; return g * y, g * x", "x, y = ctx.saved_tensors; return g * x, g * y", "x, y = ctx.saved_tensors; return g * y, (g * x).sum()",
        "x, y = ctx.saved_tensors; a, b = ctx.needs_input_grad; return g * y if a else None, g * x if b else None", "x, y = ctx.saved_tensors; return g * y, (g * x).sum().reshape(())",
        "x, y = ctx.saved_tensors; return g * y, None", "x, y = ctx.saved_tensors; return None, g * x",
    ):  # fmt: skip
        for one, two_ in (
            ("I('a')", "I('b')"),
            ("I('a')", "X('b')"),
            ("X('a')", "I('b')"),
            ("I('a')", "I('s')"),
            ("I('m')", "I('r')"),
            ("I('a', 'f')", "I('b')"),
        ):
            for end in (
                "G(A.apply, P, Q)",
                "gradcheck(A.apply, (P, Q))",
                "gradgradcheck(A.apply, (P, Q))",
                "P_ = P\nA.apply(P_, Q).sum().backward()\nP_.grad",
            ):
                if ("'f'" in one and "gradc" in end) or ("'f'" in one and "gradg" in end):
                    continue
                yield both.replace("BODY", body) + end.replace("P_", "T").replace("P", one).replace("Q", two_).replace(
                    "T.", "x."
                ).replace("T", "x")
    outs = HEAD.format(more="", forward="ctx.save_for_backward(x); return FORWARD", g="*gs", backward="BODY")
    for forward in ("(x * 2, x * 3)", "(x * 2, x > 0)", "(x.sum(), x.clone())"):
        for body in (
            "(x,) = ctx.saved_tensors; return gs[0] * 2 + gs[1] * 3",
            "return gs[0] * 2",
            "return sum([g.sum() for g in gs if g is not None]) + ctx.saved_tensors[0] * 0",
        ):
            for end in (
                "y, z = A.apply(I('a'))\n[y, z, y.grad_fn is z.grad_fn]", "x = I('a')\ny, z = A.apply(x)\ngrad(y.sum(), x)", "x = I('a')\ny, z = A.apply(x)\ngrad((y * z).sum(), x)",
                "gradcheck(A.apply, I('w'))", "gradcheck(lambda x: A.apply(x)[0], I('a'))", "G(A.apply, I('a'))",
            ):  # fmt: skip
                yield outs.replace("FORWARD", forward).replace("BODY", body) + end
    yield "class A(Function):\n    pass\nA.apply(I('a'))"
    yield "class A(Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * 2\nA.apply(I('a')).sum().backward()"
    yield "class A(Function):\n    @staticmethod\n    def forward(ctx, x):\n        return len(ctx.saved_tensors)\nA.apply(I('a'))"


def special() -> Iterator[str]:
    """Yield cases of torch.special."""
    for name in ("bessel_j0", "bessel_j1"):
        for kind in "df":
            for what in ("a", "p", "m", "s", "e", "t"):
                yield f"torch.special.{name}(I('{what}', '{kind}').detach().clamp(-2, 2))"
            yield f"torch.special.{name}(I('m', '{kind}').detach().clamp(-2, 2).t())"
        yield f"torch.special.{name}(I('a'))"
        yield f"torch.special.{name}(I('k'))"
        yield f"with torch.no_grad():\n    y = torch.special.{name}(I('w').clamp(-2, 2))\n[y, y.requires_grad]"
        yield f"torch.special.{name}(3)"


def slips() -> Iterator[str]:
    """Yield cases of what is written by mistake: the error that torch raises, or what it makes of it."""
    for what in ("I('a', 'd')", "I('a', 'f')", "I('s', 'd')", "I('m', 'f')"):
        for form in ("(x,) * x", "x * (x,)", "[x] * x", "2 * (x,) * x", "torch.where(x > 0, x)"):
            yield f"x = {what}\n{form}"
        for sign in "^&|":
            for other in ("2", "x", "True"):
                yield f"x = {what}\nx {sign} {other}"
                yield f"x = {what}\n{other} {sign} x"
        for grad_of in ("torch.where(x > 0, 1, 0)", "x > 0", "(x > 0) & (x < 1)", "torch.where(x > 0, 2, -3)"):
            yield (
                "class A(Function):\n    @staticmethod\n    def forward(x):\n        return x * x\n    @staticmethod\n"
                "    def setup_context(ctx, inputs, output):\n        ctx.save_for_backward(*inputs)\n    @staticmethod\n"
                f"    def backward(ctx, g):\n        (x,) = ctx.saved_tensors\n        return {grad_of}\n"
                f"x = {what}\ny = A.apply(x)\ngrad(y, x, V(y))"
            )


def single_masks() -> Iterator[str]:
    """Yield cases of indexing with one bool."""
    for key in ("x <= 0", "x > 0", "True", "False", "torch.tensor(True)", "torch.tensor(False)", "None, True", "..., True", "X('s') > 0", "True, None", "x != x",
                "(X('s') > 0,)", "torch.tensor(True), 0", ":, torch.tensor(True)", "torch.tensor(False), 1:",
                "torch.tensor(True)[None]", "torch.tensor([])"):  # fmt: skip
        for what in ("'s', 'd'", "'s', 'f'", "'a', 'd'", "'e', 'd'"):
            if "x" in key and "'s'" not in what:
                continue
            yield f"G(lambda x: x[{key}], I({what}))"
            yield f"x = I({what}, False)\n[x[{key}].shape, x[{key}]]"
            for value in (
                "0",
                "1.5",
                "True",
                "I('s')",
                "X('s')",
                "X('u')",
                "X('a')",
                "X('e')",
                "torch.ones(1, 1, dtype=torch.float64)",
                "x * 2",
            ):
                if value in ("X('u')", "True", "X('e')") and "'s', 'd'" not in what:
                    continue
                if value in ("1.5", "x * 2", "X('a')") and "', 'f'" in what:
                    continue
                yield f"x = I({what}, False)\nx[{key}] = {value}\n[x, x._version, x.requires_grad]"
                yield f"w = I({what})\nx = w * 1\nx[{key}] = {value}\n[x, x._version, grad(x, w, V(x)), x.grad_fn.name()]"
            yield f"x = I({what})\nx[{key}] = 0\nx"
            yield f"x = I({what})\nwith torch.no_grad():\n    x[{key}] = 0\n[x, x._version]"
        yield f"x = X('s')\nx[{key}].grad_fn is None"
        yield f"x = I('s')\nx[{key}].grad_fn.name()"
    yield "x = X('s')\ny = x[torch.tensor(True)]\ny[0] = 5\n[x, y]"
    yield "x = X('s')\ny = x[True]\ny[0] = 5\n[x, y]"
    for value in (
        "X('a')",
        "X('s')",
        "X('a')[:2]",
        "I('k')",
        "torch.tensor(3)",
        "X('a')[x > 0]",
        "X('u')",
        "X('u')[None]",
        "X('a')[x > 1.5]",
    ):
        yield f"x = I('a', 'f', False)\nx[x > 0] = {value}\nx"
        yield f"x = I('a', 'f', False)\nx[x > 1.5] = {value}\nx"
        yield f"w = I('a', 'f')\nx = w * 1\nx[x > 1.5] = {value}\n[x, grad(x, w, V(x))]"
        yield f"x = I('a', 'f', False)\nx[torch.tensor([1, 0])] = {value}\nx"
        yield f"x = I('a', 'f', False)\nx[1:4] = {value}\nx"
    yield "I('k')[True]"
    yield "x = I('k')\nx[torch.tensor(True)] = 7\nx"
    yield "x = I('B')\nx[torch.tensor(True)] = False\nx"
    for forward in ("y = x * 1; y[y <= 0] = 0; return y", "y = x.clone(); y[x > 0] = 2; return y"):
        head = HEAD.format(
            more="",
            forward="ctx.save_for_backward(x); " + forward,
            g="g",
            backward="(x,) = ctx.saved_tensors; g = g.clone(); g[x <= 0] = 0; return g",
        )
        for what in ("'s'", "'a'", "'m', 'f'", "'e'"):
            yield head + f"G(A.apply, I({what}))"
            yield head.replace("g = g.clone(); ", "") + f"x = I({what})\nv = V(x)\n[grad(A.apply(x), x, v), v]"
            yield (
                head.replace("g = g.clone(); ", "") + f"x = I({what})\nv = V(x)\ny = A.apply(x)\n[grad(y + x, x, v), v]"
            )


VIEWS = ("x[1:]", "x.t()", "x.T", "x.view(-1)", "x.view(3, 2)", "x.reshape(-1)", "x.expand(2, 3)", "x.expand(2, 2, 3)", "x[0]", "x[None]", "x[:, ::2]", "x.unsqueeze(0)",
         "x.permute(1, 0)", "x.transpose(0, 1)[1:]", "x.squeeze()", "x.view_as(x)", "x.unbind()[1]", "x.split(1)[1]", "x[...]", "x.detach()", "x.detach()[0]", "x.T.reshape(-1)",
         "x.flatten()", "x.contiguous()", "x.clone()", "x[x > 0]")  # fmt: skip
WRITES = (
    "v.mul_(2)",
    "v.add_(1)",
    "v.zero_()",
    "v.copy_(v * 3)",
    "v[0] = 7",
    "v[v > 0] = 0",
    "x.mul_(2)",
    "x[0] = 3",
    "v.fill_(2)",
    "v.clamp_(min=0)",
    "v.neg_()",
    "v += 1",
)
AFTER = (
    "[x, v, x._version, v._version, x.requires_grad, v.requires_grad]", "v.grad_fn is None", "v.grad_fn.name()", "v.is_leaf", "str(v)", "str(x)", "v * 2", "(v * 2).requires_grad",
    "grad(v.sum(), x)", "grad((v * v).sum(), x)", "v.add_(1)", "[v.detach(), v.clone().detach()]", "z = (x * 3).sum()\ngrad(z, x)", "with torch.no_grad():\n    y = v * 2\ny",
    "v.sum().backward()\nx.grad", "v.requires_grad_()\nv.requires_grad", "[v.shape, v.T]", "grad((v[..., 0] * 2).sum(), x)", "grad((v.view(-1) * 2).sum(), x)",
)  # fmt: skip


def views() -> Iterator[str]:
    """Yield cases of views that are written in place: without gradients, and where they are wanted."""
    draw = random.Random(4)
    for view in VIEWS:
        for write in WRITES:
            for start in ("x = I('m')", "x = X('m')", "x = I('m') * 1", "x = I('m', 'f')"):
                for code in (
                    f"v = {view}\nwith torch.no_grad():\n    {write}\n",
                    f"with torch.no_grad():\n    v = {view}\n    {write}\n",
                    f"with torch.no_grad():\n    v = {view}\n{write}\n",
                    f"v = {view}\n{write}\n",
                    f"v = {view}\nz = v * v\nwith torch.no_grad():\n    {write}\n",
                ):
                    if draw.random() < 0.12:
                        code = start + "\n" + code
                        yield code + (
                            draw.choice(AFTER) if "z = v" not in code or draw.random() < 0.3 else "grad(z.sum(), x)"
                        )
    for view in VIEWS:
        for after in AFTER:
            yield f"x = I('m')\nwith torch.no_grad():\n    v = {view}\n{after}"
            if draw.random() < 0.3:
                yield f"x = I('m') * 1\nwith torch.no_grad():\n    v = {view}\n{after}"
    for forward in (
        "return x", "return x.view_as(x)", "return x.view(-1)", "y = x.view(-1); y.mul_(2); return y", "x.mul_(2); return x", "x.view(-1).mul_(2); return x.clone()", "return x.t()",
        "y = x.view(-1); y[0] = 5; return y.view_as(x)", "y = x.t(); y.mul_(2); return y.t()", "return x.expand(2, *x.shape)", "return x[:1]", "x[0] = 1; return x * 2", "return x.detach()",
        "y = x.view(-1); x.mul_(2); return y", "y = x * 1; y.t().mul_(2); return y", "y = x * 1; y[0].add_(1); return y", "return x.reshape(-1)", "return x.unbind()[0]", "return (x * 2).view(-1)",
    ):  # fmt: skip
        head = HEAD.format(
            more="",
            forward=forward,
            g="g",
            backward="return g.expand(2, 3) * 3 if g.dim() < 2 and g.numel() < 6 else (g.reshape(-1)[:6] * 3).reshape(2, 3)",
        )
        for start in ("x = I('m')", "x = X('m')", "x = I('m') * 1"):
            for middle in (
                "y = A.apply(x)", "y = A.apply(x)\nwith torch.no_grad():\n    y.mul_(2)", "y = A.apply(x)\nwith torch.no_grad():\n    x.mul_(2)", "with torch.no_grad():\n    y = A.apply(x)",
                "with torch.no_grad():\n    y = A.apply(x)\n    y.mul_(2)", "y = A.apply(x)\ny.mul_(2)", "with torch.no_grad():\n    y = A.apply(x)\ny.mul_(2)",
                "y = A.apply(x)\nz = y * y\nwith torch.no_grad():\n    y.mul_(2)\ngrad(z.sum(), x)", "y = A.apply(x)[0]\ny.mul_(2)", "y = A.apply(x)[0]\nwith torch.no_grad():\n    y.mul_(2)",
            ):  # fmt: skip
                for after in (
                    "[x, y, x._version, y._version, x.requires_grad, y.requires_grad]",
                    "y.grad_fn is None",
                    "y.is_leaf",
                    "str(y)",
                    "grad(y, x, V(y))",
                ):
                    if draw.random() < 0.2:
                        yield head + start + "\n" + middle + "\n" + after
    yield "x = X('a')\nv = x[1:]\nx.requires_grad_()\n[v.requires_grad, v.is_leaf]"
    yield "x = X('a')\nv = x[1:]\nx.requires_grad_()\n(v * 2).requires_grad"
    yield "x = X('a')\nv = x[1:]\nv.requires_grad_()\nv.mul_(2)"
    yield "x = X('a')\nv = x[1:]\nv.requires_grad_()\nwith torch.no_grad():\n    v.mul_(2)\n(v * v).sum().backward()\n[x, v.grad, x.grad]"
    yield "x = X('s')\ny = x.expand(3)\nwith torch.no_grad():\n    y.mul_(2)\nx"
    for what in ("I('m')", "X('m')", "I('m') * 1"):
        for write in ("v.fill_(2)", "v.zero_()", "v.add_(1)"):
            yield f"x = {what}\nv = x.expand(2, 2, 3)\nwith torch.no_grad():\n    {write}\n[x, v]"


CALLED = """class A(Function):
    @staticmethod
    def forward({parameters}):
        return x * 2
{setup}    @staticmethod
    def backward(ctx, *g):
        return (g[0] * len(ctx.needs_input_grad),) + (None,) * len(ctx.needs_input_grad[1:])
"""
SETUP = """    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.given = inputs
"""


def named() -> Iterator[str]:
    """Yield cases of apply with named arguments, and with arguments left out."""
    ways = (
        "x", "x, k=3.0", "x, 3.0", "k=3.0, x=x", "x=x", "x, m=4", "x, m=4, k=2", "m=1, x=x", "x, 1, 2", "x, 1, 2, 3", "x, 1, 2, 3, 4", "", "k=1", "x, 1, k=2",
        "x, x=3", "x, zork=1", "x, 1, 2, m=3", "x, z=1", "x, k=2, z=1", "x, ctx=3", "x, 1, 2, z=4", "x, k=I('b')", "k=I('b'), x=x", "x, None", "x, k=None",
    )  # fmt: skip
    signatures = (
        "x", "x, k", "x, k=2.0", "x, k=2.0, m=None", "x, k, m=(1, 2)", "x, k=2.0, *, z=1.0", "x, *, z", "x, *rest", "x, *rest, k=2.0", "x, k=1, *rest, **more",
        "x, k, **more", "x, /, k=2.0", "x, /, k, *, m=3", "x: float, k: float = 2.0, m: 'int' = 3", "x, k='a=b, c', m={'a': [1, 2]}", "x, k=(lambda a, b=2: a), m=-1",
        "x,\n            k=2.0,  # with, a comment = 3\n            m=[\n                1, 2],\n",
    )  # fmt: skip
    for signature in signatures:
        for first, setup in (("", SETUP), ("ctx, ", "")):
            head = CALLED.format(parameters=first + signature, setup=setup)
            for way in ways:
                yield head + f"x = I('a')\ny = A.apply({way})\n[y, grad(y, x, V(y))]"
            if setup and "lambda" not in signature and "{" not in signature:
                yield (
                    head.replace("ctx.given = inputs", "ctx.given = inputs[1:]")
                    + "x = I('a')\nA.apply(x, 1).grad_fn.given"
                )
                yield (
                    head.replace("ctx.given = inputs", "ctx.given = inputs[1:]")
                    + "x = I('a')\nA.apply(x).grad_fn.given"
                )
            yield head + "class B(A):\n    pass\nx = I('a')\ny = B.apply(x, k=1)\n[y, y.grad_fn.name()]"
    for setup in (SETUP, ""):
        head = CALLED.format(parameters="x, k" if setup else "ctx, x, k", setup=setup)
        again = head.replace("x, k", "x, m=2").replace("A(", "B(")
        yield head + again + "x = I('a')\nA.apply(x, k=1)"
        yield head + again + "x = I('a')\nB.apply(x, m=1)"
        yield head + again + "x = I('a')\nB.apply(x, k=1)"
        yield head + again.replace("class B", "C = A\nclass A") + "x = I('a')\n[C.apply(x, k=1), A.apply(x, m=1)]"
        yield head + again.replace("B(Function)", "B(A)") + "x = I('a')\nB.apply(x)"
        yield "K = 3.0\n" + head.replace("x, k", "x, k=K * 2") + "K = 1.0\nx = I('a')\nA.apply(x).sum()"
        yield "K = 3.0\n" + head.replace("x, k", "x, k=K * 2") + "K = 1.0\nx = I('a')\nA.apply(x, k=1).sum()"
        yield head + "A.apply(k=2, x=3)"
        yield (
            head.replace("    @staticmethod\n    def forward", "    @staticmethod  # here\n\n    def forward")
            + "A.apply(I('a'), k=3)"
        )
        first, f = ("", "f") if setup else ("ctx, ", "h")
        yield (
            f"def {f}({first}x, k=2.0):\n    return x * k\n"
            + head.replace(f"def forward({first}x, k)", "def zork(x)")
            + f"A.forward = staticmethod({f})\nA.apply(I('a'), k=3)"
        )
        yield (
            f"def {f}({first}x, k=2.0):\n    return x * k\n"
            + head.replace(f"def forward({first}x, k)", "def zork(x)")
            + f"A.forward = staticmethod({f})\nA.apply(I('a'))"
        )
    for setup in (SETUP, ""):
        head = CALLED.format(parameters="x, k=2.0" if setup else "ctx, x, k=2.0", setup=setup)
        for end in (
            "gradcheck(A.apply, (I('a'), 2.5))",
            "G(lambda x: A.apply(x, k=3), I('m'))",
            "with torch.no_grad():\n    y = A.apply(X('a'), k=3)\ny",
            "G(lambda x: A.apply(x=x), I('s'))",
        ):
            yield head + end


def engine() -> Iterator[str]:
    """Yield cases of backward, grad, modes and in-place changes."""
    yield from (
        "I('a').backward()", "I('s').backward()", "x = I('s')\nx.backward()\nx.grad", "X('s').backward()", "(X('a') * 2).sum().backward()",
        "I('a').sum().backward(torch.ones(3))", "x = I('a')\n(x * 2).backward(V(x))\nx.grad", "x = I('a')\n(x * 2).backward(V(x).float())\nx.grad",
        "x = I('a')\ny = x * x\ny.sum().backward()\ny.sum().backward()", "x = I('a')\ny = x + x\ny.sum().backward()\ny.sum().backward()\nx.grad",
        "x = I('a')\ny = x * x\ny.sum().backward(retain_graph=True)\ny.sum().backward()\nx.grad", "x = I('a')\n(x * x).sum().backward()\n[x.grad, x.grad.requires_grad]",
        "x = I('a')\n(x ** 3).sum().backward(create_graph=True)\n[x.grad, x.grad.grad_fn is None]", "x = I('a')\ng = None\n(x * 2).sum().backward()\ng = x.grad\n(x * 3).sum().backward()\n[g is x.grad, g]",
        "x = I('a')\ngrad(x * 2, x)", "x = I('a')\ngrad((x * 2).sum(), I('b'))", "x = I('a')\ny = I('b')\ngrad((x * 2).sum(), [x, y], allow_unused=True)", "x = I('a')\ngrad((x * 2).sum(), X('a'))",
        "x = I('a')\ngrad(X('a').sum(), x)", "x = I('a')\ny = x * 2\nz = y.sin()\ngrad(z.sum(), [x, y])", "x = I('a')\ny = x * 2\ngrad(y.sum(), y)", "x = I('a')\ngrad([x.sum(), (x * x).sum()], x)",
        "x = I('a')\ngrad([x * 2, x * 3], x, [V(x), None])", "x = I('a')\ngrad(x.sum(), x, torch.ones(2))", "x = I('a')\ngrad(x * 2, x, 3)", "x = I('a')\ngrad(x.sum(), [])",
        "x = I('a')\nwith torch.no_grad():\n    y = x * 2\n[y.requires_grad, x.requires_grad, torch.is_grad_enabled()]", "x = I('a')\nwith torch.no_grad():\n    with torch.enable_grad():\n        y = x * 2\ny.requires_grad",
        "@torch.no_grad()\ndef f(x):\n    return x * 2\n[f(I('a')).requires_grad, torch.is_grad_enabled()]", "x = I('a')\nwith torch.no_grad():\n    x.mul_(2)\n[x, x._version, x.is_leaf]", "x = I('a')\nx.detach().mul_(2)\n[x, x._version]",
        "x = I('a')\ny = x * 2\ny.detach_()\n[y.requires_grad, y.is_leaf]", "x = I('a')\ny = (x * 2).requires_grad_(False)\nx", "x = X('a')\nx.requires_grad = True\n[x.requires_grad, (x * 2).requires_grad]", "I('k').requires_grad_()",
        "x = I('a')\nx.requires_grad_(False)\nx.requires_grad", "x = I('a')\ny = x * 1\nz = y * y\ny.add_(1)\nz.sum().backward()", "x = I('a')\ny = x * 1\nz = y + y\ny.add_(1)\nz.sum().backward()\nx.grad",
        "x = I('a')\ny = x.exp()\ny.add_(1)\ny.sum().backward()", "x = I('a')\ny = x * 2\nw = I('b')\nz = y * w\ny.add_(1)\ngrad(z.sum(), x)", "x = I('a')\ny = x * 2\nw = I('b')\nz = y * w\ny.add_(1)\ngrad(z.sum(), w)",
        "x = I('a')\ny = x * 1\ny[0] = 5\n[y, grad(y.sum(), x)]", "x = I('a')\ny = x * 1\nz = y.sin()\ny[0] = 5\nz.sum().backward()", "x = I('a')\ny = x * 1\ny[y > 0] = 0\ngrad((y * y).sum(), x)",
        "x = I('a')\nx[0] = 1\nx", "x = I('a')\nx[x > 0] = 1\nx", "x = I('a')\nx[:2].mul_(2)", "x = I('a')\nx.expand(2, 5).mul_(2)", "X('s').expand(3).mul_(2)", "x = X('a')\ny = x[1:3]\ny.mul_(10)\n[x, y, x._version, y._version]",
        "x = X('m')\ny = x.T\ny[0] = 7\n[x, y]", "x = X('a')\ny = x.detach()\ny.zero_()\nx", "x = X('a')\ny = x.clone()\ny.zero_()\nx", "x = X('m')\ny = x.view(-1)\ny[0] = 9\n[x, x._version]", "x = X('m')\ny = x.reshape(-1)\ny[0] = 9\nx",
        "x = X('m').T\ny = x.reshape(-1)\ny[0] = 9\nx", "x = X('a')\nx.fill_(3)\nx", "x = X('a')\nx.copy_(I('k'))\nx", "x = I('a')\ny = x * 1\ny.zero_()\ngrad(y.sum(), x)", "x = I('a')\nw = I('b')\ny = x * 1\ny.copy_(w)\ngrad(y, [x, w], V(y))",
        "x = X('a')\nw = I('s')\nx.mul_(w)\n[x.requires_grad, x.is_leaf, grad(x.sum(), w)]", "x = X('a')\nw = I('s')\nx[0] = w\n[x.requires_grad, grad(x.sum(), w)]", "x = I('a')\ny = x * 1\ny += 1\n[y._version, grad(y.sum(), x)]",
        "x = I('a')\ny = x * 1\nold = y\ny -= x\n[y is old, y, grad(y.sum(), x)]", "x = I('a')\nx += 1\nx", "if I('a') > 0:\n    pass\n0", "bool(I('s') > 0)", "bool(torch.tensor([]))", "bool(torch.tensor([0.0]))", "len(I('s'))", "[v for v in I('s')]",
        "a, b = X('c')\n[a, b]", "I('a').item()", "I('a').tolist()", "x = I('a')\nx.grad = V(x)\n(x * 2).sum().backward()\nx.grad", "x = I('a')\nx.grad = 3\nx", "x = I('a')\nx.grad = None\nx.grad",
        "x = I('a')\n[x.grad, x.is_leaf, (x * 1).is_leaf, X('a').is_leaf]", "x = I('a', 'f')\ny = x.double() * 2\ngrad(y.sum(), x)", "x = I('a')\ny = x.float()\ngrad(y.sum(), x)", "x = I('a')\ngrad(x.sum() * x, x, V(x))",
        "x = I('s')\ny = I('a')\ngrad((x * y).sum(), [x, y])", "gradcheck(torch.relu, torch.zeros(1, dtype=torch.float64, requires_grad=True))", "gradcheck(torch.exp, X('a'))", "gradcheck(lambda x: x.detach(), I('a'))", "gradcheck(lambda x: (x.detach() * 0), I('a'))",
        "gradcheck(lambda x: x * 2, [I('a')])", "gradcheck(lambda x, y: x * y, (I('a'), I('b')))", "gradcheck(lambda x, y: (x * y, x + y), (I('a'), I('b')))", "gradcheck(lambda x: x.clone(), I('s').expand(3))", "gradcheck(torch.exp, I('a'), eps=1e-3, atol=1e-4)",
        "gradcheck(torch.exp, I('a'), eps=1e-2, rtol=0.0, atol=1e-9)", "gradcheck(lambda x: x.detach() * x, I('a'))", "gradgradcheck(lambda x: x.detach() * x, I('a'))", "gradgradcheck(torch.exp, I('a'), V(I('a')).requires_grad_())",
        "x = I('a')\ny = torch.sigmoid(x)\n(g,) = grad(y.sum(), x, create_graph=True)\n(h,) = grad(g.sum(), x, create_graph=True)\n(k,) = grad(h.sum(), x)\n[g, h, k]",
        "x = I('a')\ny = torch.tanh(x)\n(g,) = grad(y.sum(), x, create_graph=True)\n(h,) = grad(g.sum(), x, create_graph=True)\n(k,) = grad(h.sum(), x)\n[g, h, k]",
        "x = I('a')\ny = x * 1\nv = V(x)\n(y + y * 2).backward(v)\n[x.grad, v]", "x = I('m')\ny = x[0]\nz = y * 2\nz.sum().backward()\nx.grad", "x = I('m')\nx.T.sum(0).backward(torch.ones(2, dtype=torch.float64))\nx.grad",
        "x = I('a')\nfor i in range(3):\n    (x * i).sum().backward()\nx.grad", "x = I('a')\ny = x\nfor i in range(60):\n    y = y * 1.01\ngrad(y.sum(), x)", "x = I('a')\nx * 'a'", "I('a') + [1]", "I('a') @ I('b')" if False else "I('a').zork" if False else "0",
        "w = I('w')\nx = X('w')\nfor _ in range(5):\n    w.grad = None\n    ((w * x - 1) ** 2).mean().backward()\n    with torch.no_grad():\n        w -= 0.1 * w.grad\n[w, w.grad]",
    )  # fmt: skip


def matrices() -> Iterator[str]:
    """Yield cases of products, norms, and of some functions of one or two numbers."""
    pairs = [
        ("w", "w"),
        ("m", "w"),
        ("c", "r"),
        ("r", "c"),
        ("m", "n"),
        ("a", "b"),
        ("m", "a"),
        ("s", "w"),
        ("w", "s"),
        ("e", "e"),
        ("o", "w"),
        ("h", "e"),
        ("u", "r"),
    ]
    for name in ("matmul", "mm", "mv", "dot", "outer"):
        for one, two in pairs:
            for kinds in ("dd", "ff", "fd"):
                if kinds == "dd" or (one, two) in (("w", "w"), ("m", "w"), ("c", "r"), ("a", "b")):
                    yield f"G(torch.{name}, I('{one}', '{kinds[0]}'), I('{two}', '{kinds[1]}'))"
        yield f"torch.{name}(I('k'), I('j'))"
        yield f"torch.{name}(I('k'), I('a'))"
        yield f"I('a').{name}(3)"
        yield f"torch.{name}([1.0], I('a'))"
        yield f"torch.{name}(I('B'), I('B'))"
    for code in ("x @ y.T", "x.T @ y", "x.T @ x", "x @ y[0]", "x[0] @ y.T", "y[0] @ x[0]", "(x @ y.T) @ x", "x.t().mm(y)", "x.mv(y[1])", "x[0].dot(y[1])", "torch.outer(x[0], y[:, 0])",
                 "x[:, ::2] @ y[:, :2]", "x[0].outer(y[1]).T @ x[1]", "x[0] @ y.T.clone()", "(x @ y.T).exp()", "x @ y", "x[0] @ y", "x[0] @ y[0, :2]", "x[:, :0] @ y[:, :0].T", "x[0, 0] @ y", "x @ 3"):  # fmt: skip
        for kind in "df":
            yield f"G(lambda x, y: {code}, I('m', '{kind}'), I('n', '{kind}'))"
        yield f"x, y = I('m'), I('n')\nz = {code}\n[z.grad_fn.name(), z._version]"
    for one, two in (("m", "w"), ("w", "w"), ("m", "n.T"), ("w", "n.T")):
        code = f"x, y = I('{one}') * 1, I('{two[0]}') * 1\nz = x @ y{two[1:]}\n"
        for change in ("x.mul_(2)", "y.mul_(2)", "z.mul_(2)"):
            yield code + f"{change}\nz.sum().backward()"
        yield f"x, y = X('{one}'), I('{two[0]}') * 1\nz = x @ y{two[1:]}\ny.mul_(2)\ngrad(z.sum(), y, allow_unused=True)"
        yield f"x, y = X('{one}'), I('{two[0]}')\nz = x @ y{two[1:]}\nz.sum().backward()\ny.grad"
    yield "w = X('m').requires_grad_()\nx = X('n')\nfor i in range(3):\n    w.grad = None\n    ((x @ w.T - torch.eye(2, dtype=torch.float64)) ** 2).mean().backward()\n    with torch.no_grad():\n        w -= 0.1 * w.grad\nw"
    for call in ("eye(2)", "eye(2, 3)", "eye(3, 1, dtype=torch.int64)", "eye(0)", "eye(2, dtype=torch.bool)", "eye(2, requires_grad=True)", "eye(2, dtype=torch.int64, requires_grad=True)",
                 "eye(-1)", "eye(2, -3)", "eye(3, dtype=torch.float64)"):  # fmt: skip
        yield f"torch.{call}"
    for what in ("m", "s", "a", "e", "z", "o", "u", "g"):
        for kind in "df":
            for rest in ("", ", dim=-1", ", 2, 0, True", ", dim=(0, 1)", ", ord=2.0"):
                fits = ("(0, 1)" in rest) == (what in "mo") or not rest.endswith(")")
                if fits and not (kind == "f" and what in "zog"):
                    yield f"G(lambda x: torch.linalg.vector_norm(x{rest}), I('{what}', '{kind}'))"
    yield "G(torch.linalg.vector_norm, torch.zeros(2, dtype=torch.float64, requires_grad=True))"
    yield "torch.linalg.vector_norm(I('k'))"
    yield "torch.linalg.vector_norm(3)"
    yield "torch.linalg.vector_norm(I('a')).grad_fn.name()"
    for what in ("a", "z", "s", "e", "m"):
        for kind in "df":
            for rest in ("", "0.5", "nan=1", "1.0, 2.0", "0, 3.0, -3.0", "posinf=7", "neginf=-0.1"):
                yield f"G(lambda x: x.nan_to_num({rest}), I('{what}', '{kind}'))"
            yield f"torch.nan_to_num(I('{what}', '{kind}', False))"
            yield f"x = I('{what}', '{kind}')\ny = x * 1\ny.nan_to_num_()\n[y, y._version, grad(y, x, V(y))]"
    yield "torch.nan_to_num(I('k'))"
    yield "torch.nan_to_num(I('B'))"
    yield "torch.nan_to_num(I('a')).grad_fn.name()"
    for name in ("heaviside", "copysign"):
        for one, two in (*PAIRS[:8], ("z", "y"), ("e", "u"), ("t", "t"), ("m", "a")):
            for kinds in ("dd", "ff", "fd"):
                yield f"torch.{name}(I('{one}', '{kinds[0]}', False), I('{two}', '{kinds[1]}', False))"
                if kinds != "ff" or name == "copysign":
                    yield f"G(torch.{name}, I('{one}', '{kinds[0]}'), I('{two}', '{kinds[1]}'))"
        yield f"torch.{name}(I('k'), I('j'))"
        yield f"torch.{name}(I('k'), X('a'))"
        yield f"torch.{name}(3, I('a'))"
        yield f"torch.{name}(I('a'), I('b')).grad_fn.name()"
        yield f"torch.{name}(I('a'), [1.0])" if name == "heaviside" else "G(lambda x: x.copysign(-1), I('a'))"
        yield f"x = I('a')\ny = x * 1\nz = torch.{name}(y, X('b'))\ny.mul_(2)\nz.sum().backward()"
    for value in ("2", "-0.0", "-3.5", "True", "nan"):
        yield f"G(lambda x: x.copysign({value}), I('z'))"
        yield f"torch.copysign(I('k'), {value})"
    yield "torch.copysign(I('a'), 1).grad_fn.name()"
    yield "torch.heaviside(I('a'), 1.0)"
    yield "torch.copysign(I('B'), -1)"


def hooks() -> Iterator[str]:
    """Yield cases of hooks on tensors."""
    heard = "r = []\nx = I('a')\n"
    for hook in ("lambda g: g * 2", "lambda g: None", "lambda g: r.append(g)", "lambda g: g.mul_(2)", "lambda g: 3", "lambda g: (g,)", "lambda g: g[:1]", "lambda g: g.float()", "lambda g: g.clone()",
                 "lambda g: g + x.detach()", "lambda g: g * x"):  # fmt: skip
        for on in ("x", "y"):
            code = heard + f"y = x * x\nh = {on}.register_hook({hook})\n"
            for end in (
                "(y * 3).sum().backward()\n[x.grad, r]", "grad((y * 3).sum(), x) + (r,)", "grad((y * 3).sum(), [y, x]) + (r,)", "v = V(y)\n(y + y).backward(v)\n[x.grad, v, r]", "h.remove()\ny.sum().backward()\n[x.grad, r]",
                "(g,) = grad((y * y).sum(), x, create_graph=True)\ngrad(g.sum(), x) + (len(r),)", "y.sum().backward()\n(x * x).sum().backward()\n[x.grad, len(r)]",
                "v = V(y)\ny.backward(v)\n[x.grad, v, r]",
            ):  # fmt: skip
                yield code + end
    yield from (
        heard + "x.register_hook(lambda g: g * 2)\nx.register_hook(lambda g: g + 1)\nx.sum().backward()\nx.grad", heard + "x.detach().register_hook(print)\n0", heard + "h = x.register_hook(lambda g: g * 2)\nh.remove()\nh.remove()\n(x * 2).sum().backward()\nx.grad",
        heard + "with x.register_hook(lambda g: g * 2):\n    x.sum().backward()\nx.sum().backward()\nx.grad", heard + "y = x * 1\ny.register_hook(lambda g: g * 2)\ny.mul_(3)\ny.sum().backward()\nx.grad",
        heard + "y = x * 1\ny.mul_(3)\ny.register_hook(lambda g: g * 5)\ny.sum().backward()\nx.grad", heard + "y = x.exp()\nz = x.sin()\ny.register_hook(r.append)\nz.register_hook(r.append)\n(y * z).sum().backward()\n[len(r), r[0].requires_grad]",
        heard + "x.register_hook(lambda g: r.append(torch.is_grad_enabled()))\nx.sum().backward()\nx.sum().backward(create_graph=True)\nr", heard + "x.register_hook(3)\nx.sum().backward()",
        heard + "a, b = X('a'), x * 2\nb.register_hook(lambda g: g * 0)\n(b + x).sum().backward()\nx.grad", heard + "y = x.view(-1)\ny.register_hook(lambda g: g * 2)\ny.sum().backward()\nx.grad",
        "class A(Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n    @staticmethod\n    def backward(ctx, g):\n        return g * 3\nx = I('a')\ny = A.apply(x)\ny.register_hook(lambda g: g * 5)\ny.sum().backward()\nx.grad",
        "gradcheck(lambda x: x * 2, X('a').requires_grad_())",
        "def f(x):\n    y = x * 1\n    y.register_hook(lambda g: -g)\n    return y\ngradcheck(f, I('a'), raise_exception=False)",
    )  # fmt: skip
    for hook in ("lambda t: r.append(t.grad.clone())", "lambda t: 3", "lambda t: t.grad.mul_(2) is None or None", "lambda t: setattr(t, 'grad', None)",
                 "lambda t: r.append([t is x, torch.is_grad_enabled(), t._version])"):  # fmt: skip
        code = heard + f"h = x.register_post_accumulate_grad_hook({hook})\n"
        for end in (
            "(x * 3).sum().backward()\n[x.grad, r]",
            "(x * 3).sum().backward()\n(x * x).sum().backward()\n[x.grad, r]",
            "grad((x * 3).sum(), x) + (r,)",
            "h.remove()\nx.sum().backward()\n[x.grad, r]",
        ):
            yield code + end
    yield (
        heard
        + "def f(t):\n    t.sub_(0.1 * t.grad)\n    t.grad = None\nx.register_post_accumulate_grad_hook(f)\nfor i in range(3):\n    (x * x).sum().backward()\n[x, x.grad, x._version]"
    )
    yield (
        heard
        + "def f(t):\n    with torch.no_grad():\n        t -= 0.1 * t.grad\nx.register_post_accumulate_grad_hook(f)\n(x * x).sum().backward()\n[x, x.grad]"
    )
    yield heard + "(x * 1).register_post_accumulate_grad_hook(print)"
    yield heard + "x.detach().register_post_accumulate_grad_hook(print)"
    yield (
        heard
        + "x.register_hook(lambda g: g * 2)\nx.register_post_accumulate_grad_hook(lambda t: r.append(t.grad.clone()))\nx.sum().backward()\nr"
    )


def checks() -> Iterator[str]:
    """Yield cases of assert_close, jacobian, and of what a format says of a tensor."""
    close = "said = 'nothing'\ntry:\n    torch.testing.assert_close({})\nexcept Exception as e:\n    said = type(e).__name__ + ' ' + str(e).replace('\\n', ' ~ ')\nsaid"
    for one, two in (("I('a')", "I('a')"), ("I('a')", "I('b')"), ("I('a')", "I('m')"), ("I('a')", "I('a', 'f')"), ("I('a', 'f')", "I('a', 'f') + 1e-6"), ("I('a', 'f')", "I('a', 'f') + 1e-4"), ("I('a')", "I('a') + 1e-8"),
                     ("I('a')", "I('a') + 1e-6"), ("I('z')", "I('z')"), ("I('z')", "I('y')"), ("I('s')", "I('s') * 2"), ("I('s', 'f')", "I('s', 'f') * 2"), ("I('k')", "I('j')"), ("I('k')", "I('k')"), ("I('B')", "~I('B')"),
                     ("I('e')", "I('e')"), ("I('m')", "I('n')"), ("I('m', 'f')", "I('n', 'f')"), ("I('m').T", "I('m').T + 1"), ("1.0", "1.1"), ("1", "2"), ("1", "1.0"), ("True", "False"), ("True", "True"), ("nan", "nan"), ("inf", "inf"),
                     ("1.0", "0.0"), ("[I('a'), 1.0]", "[I('a'), 2.0]"), ("(I('a'), I('b'))", "(I('a'), I('a'))"), ("[[1.0], [2.0]]", "[[1.0], [2.5]]"), ("None", "None"), ("torch.tensor(3)", "torch.tensor(4)"), ("X('a')", "I('a')")):  # fmt: skip
        for rest in (
            "",
            ", rtol=0, atol=0",
            ", rtol=0.5, atol=0.5",
            ", equal_nan=True",
            ", check_dtype=False",
            ", atol=0.1",
            ", msg='no'",
            ", rtol=0.1, atol=1e-3, msg=lambda m: 'so: ' + m",
        ):
            if rest in ("", ", rtol=0.5, atol=0.5", ", equal_nan=True") or one in ("I('a')", "I('k')", "1.0"):
                yield close.format(f"{one}, {two}{rest}")
    for f in ("lambda v: v * v", "lambda v: v.sum()", "lambda v: v.exp().sum(0, True)", "lambda v: v.reshape(-1, 1) * v", "lambda v: torch.ones(2)", "lambda v: v.detach()", "lambda v: v", "lambda v: 3", "lambda v: v.float()",
              "lambda v: v[:0]", "torch.relu", "lambda v: v @ v", "lambda v: v * w"):  # fmt: skip
        for what in ("a", "s", "m", "e"):
            if "@" in f and what != "a":
                continue
            for rest in ("", ", create_graph=True"):
                code = f"from torch.autograd.functional import jacobian\nx, w = I('{what}'), I('s')\ny = jacobian({f}, x{rest})\n"
                yield code + "[y, x.grad]"
                if rest and "exp" in f:
                    yield code + "[y.grad_fn.name(), grad(y.sum(), x)]"
    yield "torch.autograd.functional.jacobian(lambda v: v * v, X('a'))"
    yield "torch.autograd.functional.jacobian(lambda v: v * v, 3)"
    yield "torch.autograd.functional.jacobian(lambda v: v * v, I('k'))"
    yield "x = X('a')\ntorch.autograd.functional.jacobian(lambda v: v * v, x, create_graph=True)"
    yield "with torch.no_grad():\n    y = torch.autograd.functional.jacobian(lambda v: v * v, I('a'))\ny"
    for field in (
        "{x}",
        "{x:.3f}",
        "{x:>9.2f}|",
        "{x!r}",
        "{x!s:>40}",
        "{x=}",
        "{x=:.2f}",
        "{x * 2:.4f} {x:e}",
        "{{x}}",
        "{x:.0f}{x}",
        "{x:g}",
        "{'a' if x > 0 else 'b'}",
        "{[x]}",
        "{(x, 1)}",
        "{x.item():.2f}",
        "{x.shape}",
        "{x + 1}",
    ):
        for what in ("I('s')", "I('s', 'f')", "X('s') * 3", "torch.tensor(3)", "torch.tensor(True)", "I('a')", "2.6"):
            if ":e" in field and what == "torch.tensor(True)":
                continue
            if ("item" in field or "shape" in field) and what == "2.6":
                continue
            yield f'x = {what}\nf"{field}"'
    for call in (
        '"{}".format(x)',
        '"{:.2f} {}".format(x, 1)',
        '"{a:.1f}".format(a=x)',
        '"{0:.3f} {0}".format(*[x])',
        "format(x, '.2f')",
        "format(x)",
        "float(x)",
        "int(x)",
        "float(x) + int(x)",
        "[float(x)]",
        "'%s' % x",
        "str(x)",
    ):
        for what in ("I('s')", "X('s')", "I('u')", "torch.tensor(3)", "I('a')", "2.5"):
            if "format(*" in call or (what == "I('u')" and call == "str(x)"):
                continue
            if what in ("I('a')", "I('u')") and call in ('"{:.2f} {}".format(x, 1)', '"{a:.1f}".format(a=x)'):
                continue
            yield f"x = {what}\n{call}"


STEPS = (
    "{x}.exp()", "{x}.tanh()", "{x}.sigmoid()", "{x}.sin()", "{x}.abs()", "{x}.square()", "{x}.relu()", "-{x}", "{x} * 2", "{x} + 1.5", "1 - {x}", "{x} / 3", "2 / ({x} * {x} + 1)",
    "{x}.clamp(-0.9, 0.9)", "torch.where({x} > 0, {x}, 0.1 * {x})", "{x} * {x}.detach()", "{x} * {y}", "{x} + {y}", "{x} - {y}", "{x} / ({y} * {y} + 1)", "torch.maximum({x}, {y})",
    "torch.minimum({x}, {y})", "torch.where({x} > {y}, {x}, {y})", "{x}.softmax(-1)", "{x} - {x}.mean(-1, keepdim=True)", "{x} - {x}.logsumexp(-1, keepdim=True)", "{x} * {x}.sum(0)",
    "{x}.log_softmax(0)", "{x} / {x}.abs().sum(-1, keepdim=True)", "({x} * {x} + 1).sqrt()", "({x} * {x} + 0.5).log()", "{x} ** 3", "{x}.masked_fill({x} > 1, 0.5)", "F.leaky_relu({x}, 0.2)",
    "{x}[..., :1] * {x}", "torch.cat([{x}[..., 1:], {x}[..., :1]], -1)", "{x} + {x}.amax(-1, keepdim=True)", "torch.stack([{x}, {x} * 2]).sum(0)", "{x}.atan()", "{x} * ({x} > 0)",
    "{x}.T.exp().T" , "{x}.reshape(-1).reshape({x}.shape)", "{x}.float().double()", "F.hardtanh({x}, -1.0, 1.5)",
)  # fmt: skip


def chains(count: int) -> Iterator[str]:
    """Yield random chains of operations."""
    draw = random.Random(20)
    for _ in range(count):
        one, two = draw.choice((("m", "n"), ("m", "r"), ("a", "b"), ("m", "s"), ("m", "c"), ("w", "s")))
        code = "x"
        for _ in range(draw.randint(2, 4)):
            step = draw.choice(STEPS)
            if ".T" in step and one != "m":
                continue
            code = step.format(x=f"({code})" if len(code) > 1 else code, y="y")
        if len(code) < 260:
            yield f"G(lambda x, y: {code}, I('{one}'), I('{two}'))"


def cases() -> list[str]:
    """Return all cases, each once."""
    found: dict[str, None] = {}
    for maker in (
        one_number(),
        two_numbers(),
        choices(),
        sums(),
        shapes(),
        made(),
        printed(),
        functions(),
        named(),
        special(),
        slips(),
        single_masks(),
        views(),
        matrices(),
        hooks(),
        checks(),
        engine(),
        chains(400),
    ):
        found |= dict.fromkeys(maker)
    return list(found)


def shorter(answer: str) -> str:
    """Return an answer with as many digits as are compared."""
    if answer[:1] in "!'":
        return answer
    parts = answer.split("; ")
    for at, part in enumerate(parts):
        digits = 9 if part.lstrip("(")[:1] == "f" else 14
        for number in set(re.findall(r"-?\d+\.\d{8,}(?:e-?\d+)?", part)):
            part = part.replace(number, f"{float(number):.{digits}g}")
        parts[at] = part
    return "; ".join(parts)


def packed(pairs: list[list[str]]) -> str:
    """Return cases as they are committed: what stands before the last `class A`'s use is written once for many."""
    heads: dict[str, int] = {"": 0}
    ends: dict[str, int] = {}
    lines = []
    for code, answer in pairs:
        body = [i for i, line in enumerate(code.split("\n")) if line.startswith("    ")]
        cut = body[-1] + 1 if code.startswith("class") else 0
        head = "".join(line + "\n" for line in code.split("\n")[:cut])
        number = heads.setdefault(head, len(heads))
        end = ends.setdefault(code[len(head) :], len(ends))
        lines.append(json.dumps([number, end, answer], separators=(",", ":"), ensure_ascii=False))
    tables = [json.dumps(list(table), indent=0, ensure_ascii=False) for table in (heads, ends)]
    return "[" + ",\n".join(tables) + ",\n[" + ",\n".join(lines) + "]]\n"


def unpacked(text: str) -> list[list[str]]:
    """Return the cases of a committed file, as [code, answer]."""
    heads, ends, answers = json.loads(text)
    return [[heads[head] + ends[end], answer] for head, end, answer in answers]


def answered() -> list[list[str]]:
    """Return the cases with torch's answers."""
    from tools import golden_driver

    return [[code, shorter(golden_driver.ask(code))] for code in cases()]


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    from tools.golden_driver import alike

    new = answered()
    if "--check" in sys.argv:
        old = unpacked(FILE.read_text(encoding="utf-8"))
        wrong = [
            code for (code, a), (other, b) in zip(new, old, strict=False) if code != other or not alike(a, b, code)
        ]
        print(f"{len(new)} cases, {len(wrong) + abs(len(new) - len(old))} differ", *wrong[:10], sep="\n")
        sys.exit(bool(wrong or len(new) != len(old)))
    if FILE.exists():  # another machine rounds otherwise: what is alike stays as it is
        kept = dict(unpacked(FILE.read_text(encoding="utf-8")))
        new = [[code, kept[code] if code in kept and alike(a, kept[code], code) else a] for code, a in new]
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(packed(new), encoding="utf-8")
    print(f"{len(new)} cases, {FILE.stat().st_size} bytes")
