"""Run a cell of the page: what it printed, and what ended it, with the reader's own line.

MicroPython is not CPython in everything. Where it would do something else without a word, the cell is changed first
(`prepare`); where it stumbles over a tensor, the error says that this is not in the page's torch.
"""

import json
import sys

import torch
from torch import _base, _function

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


def _shown(value):
    """Return what a field without a format says of value: of a tensor without dimensions, its number."""
    if isinstance(value, torch.Tensor) and value._shape == ():
        return value.item()
    return value


def _formatted(value):
    """Return what a format is applied to."""
    if isinstance(value, torch.Tensor) and value._shape != ():
        _base.fail(TypeError, "unsupported format string passed to Tensor.__format__")
    return _shown(value)


def _no_number(value):
    """Return value, which is given to some method format, if that may be anyone's."""
    if isinstance(value, torch.Tensor) and value._shape == ():
        _base.refuse("format of a tensor in this form")
    return value


def _format(value, form=""):
    """Return what Python's format does, which MicroPython lacks."""
    value = _formatted(value) if form else _shown(value)
    return ("{:" + form + "}").format(value)


def _one(value):
    if not isinstance(value, torch.Tensor):
        return value
    if value.numel() != 1:
        _base.fail(ValueError, "only one element tensors can be converted to Python scalars")
    return value.item()


def _float(*args):
    """Return what float does, of a tensor with one number too: MicroPython would take __float__ for more than float()."""
    return float(*[_one(a) for a in args])


def _int(*args):
    """Return what int does, of a tensor with one number too."""
    return int(*[_one(a) for a in args])


def _zip(*iterables, strict=False):
    """Return what Python's zip does; MicroPython's knows no strict."""
    return _strictly([iter(it) for it in iterables]) if strict else zip(*iterables)


def _strictly(its):
    end = object()
    while its:
        row = [next(its[0], end)]
        for i in range(1, len(its)):
            row.append(next(its[i], end))
            if (row[i] is end) != (row[0] is end):
                raise ValueError(_uneven(i, "shorter" if row[i] is end else "longer"))
        if row[0] is end:
            return
        yield tuple(row)


def _uneven(i, how):
    text = "argument 1" if i == 1 else "arguments 1-" + str(i)
    return "zip() argument " + str(i + 1) + " is " + how + " than " + text


# ------------------------------------------------------------------------------- what a cell says that MicroPython forgets

WORD = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"


def _string_end(source, at, n):
    """Return where a string ends whose quote stands at a place."""
    quote = source[at : at + 3] if source[at : at + 3] in ("'''", '"""') else source[at]
    at += len(quote)
    while at < n and source[at : at + len(quote)] != quote:
        if source[at] == "\\":
            at += 1
        elif source[at] == "\n" and len(quote) == 1:
            return at
        at += 1
    return min(at + len(quote), n)


def tokens(source):
    """Return the parts of a source, each as [kind, text]: a word, a string, a comment, space, a newline or a sign."""
    out = []
    at, n = 0, len(source)
    while at < n:
        c = source[at]
        start = at
        if c in "'\"":
            at = _string_end(source, at, n)
            kind = "string"
        elif c == "#":
            while at < n and source[at] != "\n":
                at += 1
            kind = "comment"
        elif c in " \t":
            while at < n and source[at] in " \t":
                at += 1
            kind = "space"
        elif c in WORD or ord(c) > 127:
            while at < n and (source[at] in WORD or ord(source[at]) > 127):
                at += 1
            kind = "word"
            if (
                at < n
                and source[at] in "'\""
                and source[start:at].lower() in ("f", "rf", "fr", "r", "b", "rb", "br", "u")
            ):
                at = _string_end(source, at, n)
                kind = "string"
        elif source[at : at + 2] == "\\\n":
            at += 2
            kind = "space"
        else:
            at += 1
            kind = "newline" if c == "\n" else "sign"
        out.append([kind, source[start:at]])
    return out


def _fields(text):
    """Return a string literal; where it is an f-string, with what its fields show of tensors."""
    first = 0
    while text[first] not in "'\"":
        first += 1
    if "f" not in text[:first].lower() or "{" not in text:
        return text
    out = [text[: first + 1]]
    at, n = first + 1, len(text)
    while at < n:
        c = text[at]
        if text[at : at + 2] in ("{{", "}}"):
            out.append(text[at : at + 2])
            at += 2
            continue
        if c != "{":
            out.append(c)
            at += 1
            continue
        end = _field_end(text, at + 1, n)
        inner = text[at + 1 : end]
        rest = text[end : end + 1]
        trimmed = inner.rstrip()
        if rest == "!" or (rest != ":" and trimmed.endswith("=")) or rest == "":
            out.append("{" + inner)
        elif trimmed.endswith("="):  # {x=:.3f}
            out.append(inner + "{_formatted(" + trimmed[:-1].strip() + ")")
        else:
            out.append("{" + ("_formatted(" if rest == ":" else "_shown(") + inner.strip() + ")")
        at = end
        while at < n and text[at] != "}":  # a format, with fields of its own left as they are
            if text[at] == "{":
                at = _copied(text, at, n, out)
                continue
            if text[at] == "," and rest == ":":
                _base.refuse("a comma in a format")
            out.append(text[at])
            at += 1
    return "".join(out)


def _copied(text, at, n, out):
    while at < n and text[at] != "}":
        out.append(text[at])
        at += 1
    out.append("}")
    return at + 1


def _field_end(text, at, n):
    """Return where the expression of a field ends: at its format, its conversion or its brace."""
    depth = 0
    while at < n:
        c = text[at]
        if c in "'\"":
            at = _string_end(text, at, n)
            continue
        if c in "([{":
            depth += 1
        elif c in ")]}":
            if depth == 0:
                return at
            depth -= 1
        elif depth == 0 and (c == ":" or (c == "!" and text[at + 1 : at + 2] != "=")):
            return at
        at += 1
    return at


def _after(parts, at, step=1):
    """Return where the next part is that is more than space and comments."""
    at += step
    while 0 <= at < len(parts) and parts[at][0] in ("space", "comment", "newline"):
        at += step
    return at


def _is(parts, at, text):
    return 0 <= at < len(parts) and parts[at][1] == text


def _closing(parts, at):
    """Return the place of the bracket that closes the one at a place."""
    depth = 0
    while at < len(parts):
        if parts[at][0] == "sign":
            if parts[at][1] in "([{":
                depth += 1
            elif parts[at][1] in ")]}":
                depth -= 1
                if depth == 0:
                    return at
        at += 1
    return at


def _split(parts, first, last):
    """Return the places at which the arguments between two brackets begin and end."""
    out = []
    depth = 0
    start = first
    for at in range(first, last):
        if parts[at][0] == "sign":
            if parts[at][1] in "([{":
                depth += 1
            elif parts[at][1] in ")]}":
                depth -= 1
            elif parts[at][1] == "," and depth == 0:
                out.append((start, at))
                start = at + 1
    out.append((start, last))
    return out


def _text(parts, first, last):
    """Return parts on one line."""
    return "".join(
        [" " if p[0] in ("comment", "newline") or p[1] == "\\\n" else p[1] for p in parts[first:last]]
    ).strip()


def parameters(parts, opening):
    """Return the parameters that stand in brackets, each as (name, kind, source of its default or None)."""
    out = []
    kind = ""
    for first, last in _split(parts, opening + 1, _closing(parts, opening)):
        text = _text(parts, first, last)
        if not text:
            continue
        if text == "/":
            out = [(name, "/", default) for name, _, default in out]
            for at in range(first - 1, last):  # MicroPython cannot read it
                if parts[at][1] in ("/", ",") and parts[at][0] == "sign":
                    parts[at][1] = ""
            continue
        if text[0] == "*":
            name = text.lstrip("*").split(":")[0].strip()
            if text[:2] == "**":
                out.append((name, "**", None))
            else:
                kind = "k"
                if name:
                    out.append((name, "*", None))
            continue
        depth = 0
        colon = equal = None
        for at in range(first, last):
            if parts[at][0] != "sign":
                continue
            c = parts[at][1]
            if c in "([{":
                depth += 1
            elif c in ")]}":
                depth -= 1
            elif depth == 0 and c == ":" and colon is None and equal is None:
                colon = at
            elif depth == 0 and c == "=" and equal is None:
                equal = at
        ends = [at for at in (colon, equal) if at is not None]
        name = _text(parts, first, ends[0] if ends else last)
        out.append((name, kind, None if equal is None else _text(parts, equal + 1, last)))
    return out


def _keeps_parameters(parts):
    """Note what each def is called with, where a Function may need it: MicroPython keeps no names of arguments."""
    indent = 0
    owner = ""  # the class at the top of which we are
    for at, part in enumerate(parts):
        if part[0] != "word" or part[1] not in ("def", "class"):
            continue
        before = parts[at - 1] if at else ["newline", ""]
        indent = len(before[1]) if before[0] == "space" and (at < 2 or parts[at - 2][0] == "newline") else 0
        name = _after(parts, at)
        if part[1] == "class":
            if indent == 0:
                owner = parts[name][1] if name < len(parts) else ""
            continue
        if indent == 0:
            owner = ""
        opening = _after(parts, name)
        if not _is(parts, opening, "("):
            continue
        found = parameters(parts, opening)
        above = _after(parts, at, -1)
        if _is(parts, above, "staticmethod") and _is(parts, _after(parts, above, -1), "@"):
            if not _is(parts, name, "forward"):
                continue
            named = ", ".join(["(" + repr(n) + ", " + repr(k) + ", " + str(d is not None) + ")" for n, k, d in found])
            values = ", ".join([d for _, _, d in found if d is not None])
            title = owner + ".forward" if owner and indent == 4 else ""
            parts[above][1] = "_of_forward(" + repr(title) + ", [" + named + "], [" + values + "])"
        elif name < len(parts):
            title = parts[name][1] if indent == 0 else ""
            _function.note(parts[name][1], title, found)


def _of_forward(title, named, values):
    """Return what makes a method static, and notes with what it is called."""
    values = list(values)
    noted = []
    for name, kind, has in named:
        noted.append((name, kind, has, values.pop(0) if has else None))

    def static(f):
        _function.keep(f, title, noted)
        return staticmethod(f)

    return static


def _with_formats(parts):
    """Let format take a tensor without dimensions for its number, as torch does."""
    for at, part in enumerate(parts):
        if part[0] != "word" or part[1] != "format" or not _is(parts, at - 1, ".") or not _is(parts, at + 1, "("):
            continue
        literal = at > 1 and parts[at - 2][0] == "string"
        wrap = "_shown(" if literal else "_no_number("
        for first, last in _split(parts, at + 2, _closing(parts, at + 1)):
            if not _text(parts, first, last):
                continue
            for start in range(first, last):
                if parts[start][0] not in ("space", "comment", "newline"):
                    break
            if _is(parts, start, "*"):
                continue
            equal = _after(parts, start)
            if equal < last and _is(parts, equal, "=") and not _is(parts, equal + 1, "="):
                start = _after(parts, equal)
            parts[start][1] = wrap + parts[start][1]
            parts[last - 1][1] += ")" if parts[last - 1][0] != "comment" else "\n)"


def _with_numbers(parts):
    """Let float and int take a tensor."""
    for at, part in enumerate(parts):
        if part[0] == "word" and part[1] in ("float", "int") and _is(parts, at + 1, "("):
            before = _after(parts, at, -1)
            if not (_is(parts, before, ".") or _is(parts, before, "def") or _is(parts, before, "class")):
                part[1] = "_" + part[1]


def prepare(source):
    """Return the source as MicroPython runs it, on the same lines."""
    if any([word in source for word in ("def ", "format(", "{", "float(", "int(")]):
        parts = tokens(source)
        _with_numbers(parts)
        for part in parts:
            if part[0] == "string":
                part[1] = _fields(part[1])
        if "format(" in source:
            _with_formats(parts)
        if "def " in source:
            _keeps_parameters(parts)
        source = "".join([part[1] for part in parts])
    return _calls_in_place(source)


def _calls_in_place(source):
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


GIVEN = {  # the names that a prepared cell uses
    "_in_place": _in_place,
    "_shown": _shown,
    "_formatted": _formatted,
    "_no_number": _no_number,
    "_float": _float,
    "_int": _int,
    "_of_forward": _of_forward,
    "format": _format,
    "zip": _zip,
}


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


SPACES = "\u00a0\u2007\u202f\u200b\ufeff"
STRANGE = SPACES + "\u201c\u201d\u2018\u2019\u00ab\u00bb\u2013\u2014\u2212\u00d7\u2026\u00b2\u00b3"
WORDS = (  # MicroPython's, and Python's
    ("' isn't defined", "' is not defined"),
    ("divide by zero", "division by zero"),
    ("unindent doesn't match any outer indent level", "unindent does not match any outer indentation level"),
)


def worded(text):
    """Return the text of an error in Python's words, where MicroPython has others."""
    for old, new in WORDS:
        text = text.replace(old, new)
    if text.startswith("need more than ") and text.endswith(" values to unpack"):
        got = text[15:-17]
        text = "not enough values to unpack (got " + got + ")"
    return text


def described(error):
    """Return the type and the message of an error, as the page says them."""
    kind = type(error).__name__
    text = worded(str(error))
    if kind == "ImportError" and text.startswith("no module named '"):
        name = text[17:-1]
        where = "torch" if name.split(".")[0] == "torch" else "Python"
        return "NotInPage", name + " is not in the page's " + where + ": run this in Jupyter"
    own = isinstance(error, _base.NotInPage) or error is _base._raised[0]
    if not own and isinstance(error, (TypeError, ValueError, AttributeError, ImportError)):
        if "Tensor" in text or "torch" in text or "'Size'" in text or "'Function'" in text:
            kind = "NotInPage"
            text += ": not in the page's torch: run this in Jupyter"
    if kind == "SyntaxError" and text == "*x must be assignment target":
        kind = "NotInPage"
        text = "a * in a tuple or a list is not in the page's Python: run this in Jupyter"
    return kind, text


BLOCKS = (")", "def ", "class ", "if ", "elif ", "else:", "for ", "while ", "with ", "try:", "except", "finally:")


def placed(source, kind, text, line):
    """Return the type, the text and the line of an error, mended where Python says more of an indentation.

    MicroPython names the line before one whose indentation fits no block, and says "invalid syntax" where a block is
    missing.
    """
    lines = source.split("\n")
    if line is None or kind not in ("IndentationError", "SyntaxError"):
        return kind, text, line

    def says(number):
        return lines[number - 1].split("#")[0].strip() if 0 < number <= len(lines) else ""

    if text.startswith("unindent"):
        line += 1
        while line < len(lines) and not says(line):
            line += 1
    elif text == "invalid syntax":
        above = line - 1
        while above > 0 and not says(above):
            above -= 1
        deep = [len(t) - len(t.lstrip()) for t in (lines[above - 1], lines[line - 1] if line <= len(lines) else "")]
        if says(above).endswith(":") and says(above).startswith(BLOCKS) and deep[1] <= deep[0]:
            return "IndentationError", "expected an indented block after line " + str(above), line
    return kind, text, line


def strange(source):
    """Return the error of the first letter outside of texts and comments that is none of Python's, and its line.

    Telephones write typographic quotes, and what is pasted may have spaces that do not break; MicroPython takes both
    for letters of a name.
    """
    if all([c < "\x80" for c in source]):
        return None
    at = 0
    while at < len(source):
        c = source[at]
        if c == "#":
            end = source.find("\n", at)
            at = len(source) if end < 0 else end
        elif c in "'\"":
            quote = source[at : at + 3] if source[at : at + 3] in ("'''", '"""') else c
            at += len(quote)
            while at < len(source) and source[at : at + len(quote)] != quote:
                at += 2 if source[at] == "\\" else 1
            at += len(quote)
        elif c in STRANGE:
            code = "U+" + ("0000" + hex(ord(c))[2:].upper())[-4:]
            text = (
                "invalid non-printable character " + code
                if c in SPACES
                else "invalid character '" + c + "' (" + code + ")"
            )
            return text, source[:at].count("\n") + 1
        else:
            at += 1
    return None


def run(source):
    """Run a cell and return, as JSON, the error that ended it, or null."""
    for name in GIVEN:
        NAMES.setdefault(name, GIVEN[name])
    NAMES["__name__"] = "__main__"
    found = strange(source)
    if found:
        return json.dumps({"type": "SyntaxError", "message": found[0], "line": found[1]})
    _function.forget()
    try:
        exec(compile(prepare(source), "cell", "exec"), NAMES)
        _function.settle(NAMES)
    except MemoryError:
        NAMES.clear()
        return json.dumps({"type": "MemoryError", "message": "the page's memory is full", "line": None})
    except BaseException as error:
        kind, text, line = placed(source, *described(error), _line(error))
        return json.dumps({"type": kind, "message": text, "line": line})
    return "null"
