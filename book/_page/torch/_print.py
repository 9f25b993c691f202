"""How a tensor is printed."""

import math

from ._base import count, dense, refuse

WIDTH = 80


class _Form:
    def __init__(self, values, floating):
        self.floating = floating
        self.whole = True
        self.scientific = False
        self.width = 1
        if not floating:
            for v in values:
                self.width = max(self.width, len(str(v)))
            return
        some = [v for v in values if v == v and v not in (math.inf, -math.inf) and v != 0]
        if not some:
            return
        sizes = [abs(v) for v in some]
        low, high = min(sizes), max(sizes)
        for v in some:
            if v != math.ceil(v):
                self.whole = False
                break
        self.scientific = high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4
        for v in some:
            self.width = max(self.width, len(self._text(v)))

    def _text(self, v):
        if self.scientific:
            return "%.4e" % v
        if self.whole:
            text = "%.0f" % v
            return text if v != v or v in (math.inf, -math.inf) else text + "."
        return "%.4f" % v

    def text(self, v):
        """Return a number as it is printed."""
        text = self._text(v) if self.floating else str(v)
        return " " * (self.width - len(text)) + text


def _part(values, at, shape, strides, indent, form):
    if not shape:
        return form.text(values[at])
    if len(shape) == 1:
        per_line = max(1, (WIDTH - indent) // (form.width + 2))
        words = [form.text(values[at + i]) for i in range(shape[0])]
        lines = [", ".join(words[i : i + per_line]) for i in range(0, len(words), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    parts = [_part(values, at + i * strides[0], shape[1:], strides[1:], indent + 1, form) for i in range(shape[0])]
    return "[" + ("," + "\n" * (len(shape) - 1) + " " * (indent + 1)).join(parts) + "]"


def text_of(t):
    """Return what print shows."""
    shape = t._shape
    n = count(shape)
    kind = t.dtype
    if n > 1000:
        refuse("printing more than 1000 numbers")
    notes = []
    if n == 0:
        if len(shape) != 1:
            notes.append("size=" + str(shape))
        if kind._name != "float32":
            notes.append("dtype=" + str(kind))
        text = "[]"
    else:
        if kind._name == "float64":
            notes.append("dtype=" + str(kind))
        values = t._flat()
        text = _part(values, 0, shape, dense(shape), 7, _Form(values, kind.is_floating_point))
    try:
        name = None if t.grad_fn is None else t.grad_fn.name().split("::")[-1]
    except RuntimeError:
        name = "Invalid"
    if name is not None:
        notes.append("grad_fn=<" + name + ">")
    elif t.requires_grad:
        notes.append("requires_grad=True")
    out = "tensor(" + text
    last = len(out) - out.rfind("\n") + 1
    for note in notes:
        if last + len(note) + 2 > WIDTH:
            out += ",\n" + " " * 7 + note
            last = 7 + len(note)
        else:
            out += ", " + note
            last += len(note) + 2
    return out + ")"
