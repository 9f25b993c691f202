"""Python's textwrap for ordinary text: words between spaces, some with hyphens. The rest is refused."""

from torch._base import lacking, refuse

_SPACE = " \t\n\r\x0b\x0c"


def _pieces(word):
    """Return a word in the parts between which a line may end: after a hyphen between letters."""
    if "--" in word:
        refuse("textwrap of a dash of hyphens")
    out = []
    start = 0
    for at in range(1, len(word) - 1):
        if word[at] != "-":
            continue
        before = word[at - 2 : at] if at >= 2 else ""
        after = word[at + 1 : at + 3]
        if len(before) == 2 and len(after) == 2 and _letters(before) and _letters(after):
            out.append(word[start : at + 1])
            start = at + 1
        elif _letters(word[at - 1]) and _letters(word[at + 1]):
            refuse("textwrap of this hyphen")
    out.append(word[start:])
    return out


def _letters(text):
    return all([c.isalpha() or ord(c) > 127 for c in text])


def _chunks(text):
    """Return words and the spaces between them."""
    out = []
    at, n = 0, len(text)
    while at < n:
        start = at
        space = text[at] == " "
        while at < n and (text[at] == " ") == space:
            at += 1
        out += [text[start:at]] if space else _pieces(text[start:at])
    return out


def wrap(text, width=70, initial_indent="", subsequent_indent="", **other):
    """Return the lines of a paragraph, none longer than width."""
    if other or not isinstance(width, int) or width <= 0:
        refuse("textwrap.wrap in this form")
    text = "".join([" " if c in _SPACE and c != "\t" else c for c in text])
    if "\t" in text:
        refuse("textwrap of tabs")
    chunks = _chunks(text)
    chunks.reverse()
    lines = []
    while chunks:
        indent = subsequent_indent if lines else initial_indent
        room = width - len(indent)
        line = []
        size = 0
        if lines and not chunks[-1].strip():
            chunks.pop()
        while chunks and size + len(chunks[-1]) <= room:
            size += len(chunks[-1])
            line.append(chunks.pop())
        if chunks and len(chunks[-1]) > room:
            refuse("textwrap of a word longer than a line")
        if line and not line[-1].strip():
            line.pop()
        if line:
            lines.append(indent + "".join(line))
    return lines


def fill(text, width=70, initial_indent="", subsequent_indent="", **other):
    """Return a paragraph as one string."""
    return "\n".join(wrap(text, width, initial_indent, subsequent_indent, **other))


def dedent(text):
    """Return text without the spaces that all its lines begin with."""
    lines = [line if line.strip() else "" for line in text.split("\n")]
    starts = [len(line) - len(line.lstrip(" ")) for line in lines if line]
    if any([line.lstrip(" ")[:1] == "\t" for line in lines]):
        refuse("textwrap.dedent of tabs")
    first = min(starts) if starts else 0
    return "\n".join([line[first:] for line in lines])


__getattr__ = lacking("textwrap")
