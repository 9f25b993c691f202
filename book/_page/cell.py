"""Run a cell of the page: what it printed, and what ended it, with the reader's own line.

MicroPython is not CPython in everything. Where it would do something else without a word, the cell is changed first
(`prepare`); where it stumbles over a tensor, the error says that this is not in the page's torch.
"""

import json
import sys

import torch
from torch import _base

OPERATORS = ("**", "//", ">>", "<<", "*", "/", "%", "@", "&", "|", "^")
METHODS = {"**": "__ipow__", "*": "__imul__", "/": "__itruediv__", "&": "__iand__", "|": "__ior__", "^": "__ixor__"}
NAMES = {}


def _in_place(op, a, b):
    """Do what ``a op= b`` does, which MicroPython computes anew and binds, and return a."""
    if isinstance(a, torch.Tensor):
        if op not in METHODS:
            _base.refuse(op + "= of a tensor")
        return getattr(a, METHODS[op])(b)
    if isinstance(a, (list, set, dict)):
        if op == "*" and isinstance(a, list):
            a[:] = a * b
        elif op == "|" and not isinstance(a, list):
            a.update(b)
        else:
            _base.refuse(op + "= of a " + type(a).__name__)
        return a
    if op in METHODS and hasattr(a, METHODS[op]):
        return getattr(a, METHODS[op])(b)
    return eval("a " + op + " b", {"a": a, "b": b})


def prepare(source):
    """Return the source with each ``a *= b`` as a call, on the same lines."""
    if not any([op + "=" in source for op in OPERATORS]):
        return source
    out = []
    at = start = 0
    depth = 0
    n = len(source)
    pending = None
    while True:
        c = source[at] if at < n else "\n"
        if c in "'\"":
            quote = source[at : at + 3] if source[at : at + 3] in ("'''", '"""') else c
            at += len(quote)
            while at < n and source[at : at + len(quote)] != quote:
                if source[at] == "\\":
                    at += 1
                elif source[at] == "\n" and len(quote) == 1:
                    break
                at += 1
            at += len(quote)
            continue
        if c == "\\" and source[at : at + 2] == "\\\n":
            at += 2
            continue
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        ends = (c == "\n" and depth <= 0) or (c in ";#" and depth <= 0) or at >= n
        if ends and pending is not None:
            target, op, value_from = pending
            head = source[start : start + len(source[start:]) - len(source[start:].lstrip())]
            out.append(head + target + " = _in_place('" + op + "', " + target + ", (" + source[value_from:at] + "))")
            start = at
            pending = None
        if at >= n:
            out.append(source[start:at])
            break
        if c == "#":
            while at < n and source[at] != "\n":
                at += 1
            continue
        if ends or (c == ":" and depth <= 0 and pending is None):
            out.append(source[start : at + 1])
            start = at + 1
        elif c == "=" and depth <= 0 and pending is None and source[at : at + 2] != "==":
            for op in OPERATORS:
                if source[at - len(op) : at] == op:
                    target = source[start : at - len(op)].strip()
                    if "(" in target:
                        _base.refuse(op + "= of what a call returns")
                    pending = (target, op, at + 1)
                    break
        at += 1
    return "".join(out)


def _traceback(error):
    """Return the lines of a traceback."""
    if hasattr(sys, "print_exception"):
        import io

        text = io.StringIO()
        sys.print_exception(error, text)
        return text.getvalue().split("\n")
    import traceback

    return "".join(traceback.format_exception(error)).split("\n")


def _line(error):
    """Return the last line of the cell that led to the error, or None."""
    found = None
    for text in _traceback(error):
        text = text.strip()
        if text.startswith('File "cell", line '):
            found = int(text[18:].split(",")[0])
    return found


def described(error):
    """Return the type and the message of an error, as the page says them."""
    kind = type(error).__name__
    text = str(error)
    own = isinstance(error, _base.NotInPage) or error is _base._raised[0]
    if not own and isinstance(error, (TypeError, ValueError, AttributeError, ImportError)):
        if "Tensor" in text or "torch" in text or "'Size'" in text or "'Function'" in text:
            kind = "NotInPage"
            text += ": not in the page's torch: run this in Jupyter"
    return kind, text


def run(source):
    """Run a cell and return, as JSON, the error that ended it, or null."""
    NAMES["_in_place"] = _in_place
    NAMES["__name__"] = "__main__"
    try:
        exec(compile(prepare(source), "cell", "exec"), NAMES)
    except MemoryError:
        NAMES.clear()
        return json.dumps({"type": "MemoryError", "message": "the page's memory is full", "line": None})
    except BaseException as error:
        kind, text = described(error)
        return json.dumps({"type": kind, "message": text, "line": _line(error)})
    return "null"
