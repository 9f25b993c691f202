"""Answer a golden case: run its code with whatever torch is imported, and say what came out, in one line.

It runs with torch, where `tools.golden` writes the answers down, and in the page's MicroPython, where they are compared.
So it uses nothing that one of them lacks.
"""

import torch
from torch import nn
from torch.autograd import Function, grad, gradcheck, gradgradcheck
from torch.autograd.function import once_differentiable

GIVEN = {}
if torch.__version__ == "page":
    cell = __import__("cell")  # beside the page's torch

    GIVEN = cell.GIVEN


def prepared(code):
    """Return the code of a case as the page runs it."""
    if not GIVEN:
        return code
    cell._function.forget()
    return cell.prepare(code)


inf, nan = torch.inf, torch.nan
SHORT = {"torch.float64": "d", "torch.float32": "f", "torch.int64": "i", "torch.bool": "b"}
TABLE = {
    "a": ([0.5, -1.25, 2.0, -0.75, 1.5], None),
    "b": ([1.75, 0.25, -0.5, 2.5, -3.0], None),
    "p": ([0.5, 1.25, 2.0, 0.1, 3.75], None),
    "q": ([0.3, 0.9, 0.05, 0.6, 0.45], None),
    "m": ([0.5, -1.0, 2.5, -0.3, 0.8, 1.2], (2, 3)),
    "n": ([1.5, 0.7, -0.4, 2.2, -1.6, 0.9], (2, 3)),
    "r": ([0.4, -1.1, 0.9], (1, 3)),
    "c": ([1.3, -0.6], (2, 1)),
    "w": ([1.1, -0.2, 0.7], None),
    "s": ([0.7], ()),
    "u": ([-1.4], (1,)),
    "e": ([], (0,)),
    "h": ([], (2, 0)),
    "z": ([-inf, -2.0, -0.0, 0.0, 2.0, inf, nan], None),
    "y": ([inf, 1.0, -3.0, 0.0, -0.0, -inf, 1.5], None),
    "t": ([1.0, 3.0, 3.0, -2.0, 3.0], None),
    "g": ([100.0, -100.0, 1000.0, -750.0, 1e-20], None),
    "l": ([2.5, -1.5, 0.5, 1.5, -2.5], None),
    "o": ([0.1 * i - 1.1 for i in range(24)], (2, 3, 4)),
}
INTS = {"k": ([3, -1, 2, 0, 5], None), "j": ([2, 2, -3, 1, 4], None), "km": ([1, -2, 3, 0, 5, 4], (2, 3))}
BOOLS = {"B": ([True, False, True, True, False], None), "Bm": ([True, False, True, False, False, True], (2, 3))}


def I(name, kind="d", wants=True):  # noqa: E743
    """Return a fresh tensor of the table."""
    if name in INTS:
        values, shape = INTS[name]
        t = torch.tensor(values)
    elif name in BOOLS:
        values, shape = BOOLS[name]
        t = torch.tensor(values)
    else:
        values, shape = TABLE[name]
        t = torch.tensor(values, dtype=torch.float32 if kind == "f" else torch.float64)
    if shape is not None:
        t = t.reshape(shape).clone()
    if wants and t.is_floating_point():
        t = t.clone().requires_grad_()
    return t


def X(name):
    """Return a fresh tensor of the table that wants no gradient."""
    return I(name, "d", False)


def V(t, first=1.5):
    """Return an upstream gradient for t, no two numbers alike."""
    n = t.numel()
    values = [first - 0.35 * i + 0.5 * (i % 2) for i in range(n)]
    return torch.tensor(values, dtype=t.dtype).reshape(t.shape).clone()


def G(f, *inputs):
    """Return f of the inputs, its gradients, and the gradients of these."""
    y = f(*inputs)
    out = [y]
    wanted = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    if not wanted:
        return out
    ys = [y] if isinstance(y, torch.Tensor) else [t for t in y if t.requires_grad]
    ys = [t for t in ys if t.requires_grad]
    if not ys:
        return out
    vs = [V(t).requires_grad_() for t in ys]
    first = grad(ys, wanted, vs, create_graph=True, allow_unused=True)
    out.append(list(first))
    again = [g for g in first if g is not None and g.requires_grad]
    if again:
        second = grad(again, wanted + vs, [V(g, 0.8) for g in again], allow_unused=True)
        out.append(list(second))
    return out


def number(v):
    """Return a number as text."""
    if v is True or v is False:
        return "1" if v else "0"
    return repr(v)


def said(value):
    """Return what a value is, as text."""
    if isinstance(value, torch.Tensor):
        head = SHORT[str(value.dtype)] + ",".join([str(n) for n in value.shape]) + ("r" if value.requires_grad else "")
        flat = value.detach().clone().reshape(-1).tolist()
        return head + "|" + " ".join([number(v) for v in flat])
    if isinstance(value, torch.Size):
        return "Size" + ",".join([str(n) for n in value])
    if value is None:
        return "None"
    if isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, float):
        return "#" + repr(value)
    if isinstance(value, str):
        return "'" + value
    if isinstance(value, torch.dtype):
        return str(value)
    return "(" + "; ".join([said(v) for v in value]) + ")"


def first_sentence(text):
    """Return the first sentence of a message."""
    return text.split("\n")[0].split(". ")[0].replace("isn't", "is not")


def ask(code):
    """Run a case and return its answer: what its last line is, or its error."""
    names = {
        "torch": torch, "nn": nn, "F": nn.functional, "Function": Function, "grad": grad, "gradcheck": gradcheck,
        "gradgradcheck": gradgradcheck, "once_differentiable": once_differentiable, "I": I, "X": X, "G": G, "V": V,
        "inf": inf, "nan": nan,
    }  # fmt: skip
    names.update(GIVEN)
    lines = code.rstrip().split("\n")
    try:
        lines = prepared(code.rstrip()).split("\n")
        if len(lines) > 1:
            exec("\n".join(lines[:-1]) + "\n", names)
        return said(eval(lines[-1], names))
    except Exception as error:
        return "!" + type(error).__name__ + ": " + first_sentence(str(error))


def near(ours, theirs, slack, scale):
    """Return whether two numbers, as text, are alike: slack is 0 for float64, and counts units in the last place of float32."""
    if ours == theirs:
        return True
    a, b = float(ours), float(theirs)
    if a != a or b != b:
        return a != a and b != b
    if a == b:
        return a != 0 or (ours[:1] == "-") == (theirs[:1] == "-")
    if a - a != 0 or b - b != 0:
        return False
    if slack:
        return abs(a - b) <= slack * 1.2e-7 * abs(b) + 1.2e-7 * scale + 1.5e-45
    return abs(a - b) <= 1e-12 * abs(b) + 1e-13 * scale + 4e-15


def parts(answer):
    """Return an answer as a list of what is not nested."""
    return answer.replace("(", "").replace(")", "").split("; ")


def alike(ours, theirs, code=""):
    """Return whether two answers to a case say the same."""
    if ours == theirs:
        return True
    one, two = parts(ours), parts(theirs)
    if "!" in (ours[:1], theirs[:1]) or ours[:1] == "'" or ours.count("(") != theirs.count("(") or len(one) != len(two):
        return False
    single = any([word in code for word in ("'f'", "'ff'", "float()", "float32")])
    every = [abs(float(v)) for part in two[1:] if "|" in part for v in part.split("|")[1].split() if "n" not in v]
    largest = max(every) if every else 0.0
    for at, (a, b) in enumerate(zip(one, two)):
        if a == b:
            continue
        if a[:1] == "#" and b[:1] == "#":
            if not near(a[1:], b[1:], 1 if single else 0, 0.0):
                return False
            continue
        if "|" not in a or "|" not in b:
            return False
        (head, left), (other, right) = a.split("|"), b.split("|")
        left, right = left.split(), right.split()
        if head != other or len(left) != len(right):
            return False
        slack = 0 if not single and head[:1] != "f" else (1 if at == 0 else 16)
        finite = [abs(float(v)) for v in right if "n" not in v]
        summed = single and any(
            [word in code for word in ("sum", "mean", "softmax", "@", "mm(", "mv(", "mul", "dot(", "norm(")]
        )
        scale = largest if at else (max(finite) if finite and (summed or not single) else 0.0)
        for v, w in zip(left, right):
            if not near(v, w, slack, scale * max(slack, 1)) and not (at > 1 and float(v) == float(w) == 0):
                return False
    return True


def check(cases):
    """Return the cases, given as [code, answer], that are answered otherwise, with what they got."""
    out = []
    for code, answer in cases:
        ours = ask(code)
        if not alike(ours, answer, code):
            out.append([code, answer, ours])
    return out
