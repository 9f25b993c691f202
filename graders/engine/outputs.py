"""What a cell shows: messages that anybody may have written become a list of outputs that a notebook can hold."""

import json
import re

from nbformat import NotebookNode
from nbformat.v4 import new_output

from graders.engine.outcome import CUT, OUTPUT_CUT
from graders.inside.channel import TOO_LONG

JSON = re.compile(r"application/(.*\+)?json")
MAX_DEPTH = 50  # of what is shown as JSON; whoever reads the notebook later has less to spare than who wrote it
DEPTH = 8  # of what a message holds, in a notebook's file
MAX_INTEGER = 1 << 64  # beyond it no reader has to understand a number
LEAST = 100  # characters that a message counts as, so that many short ones end too
RESULT = 20_000  # a result or an error of more characters is not kept once the rest is cut


def error(name: str, text: str) -> NotebookNode:
    """Make an error output of one line."""
    output: NotebookNode = new_output("error", ename=name, evalue=text, traceback=[f"{name}: {text}"])
    return output


class Outputs:
    """The outputs of one cell.

    Args:
        most: characters that are kept; past them only short results and errors.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.list: list[NotebookNode] = []
        self._written = 0
        self._clear = False
        self._displays: dict[str, list[NotebookNode]] = {}

    @property
    def size(self) -> int:
        """About how many characters are kept."""
        return min(self._written, self.most)

    @property
    def cut(self) -> bool:
        """Whether something was left out."""
        return self._written > self.most

    def __call__(self, message: object) -> None:
        """Take one message, as in Jupyter's protocol; ignore anything else."""
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not isinstance(content, dict):
            return
        kind = message.get("msg_type")
        if kind == "clear_output":
            self._clear = bool(content.get("wait"))
            if not self._clear:
                self.list.clear()
            return
        if kind == TOO_LONG:
            self._cut()
        if kind not in ("stream", "display_data", "update_display_data", "execute_result", "error"):
            return
        if not self._fits(kind, content):
            return
        if self._clear:
            self.list.clear()
            self._clear = False
        if kind == "stream":
            self._stream("stderr" if content.get("name") == "stderr" else "stdout", _text(content.get("text")))
        elif kind == "error":
            lines = content.get("traceback")
            lines = [_text(line) for line in lines] if isinstance(lines, list) else []
            names = {key: _text(content.get(key)) for key in ("ename", "evalue")}
            self.list.append(new_output("error", **names, traceback=lines))
        else:
            self._display(kind, content)

    def _fits(self, kind: str, content: dict[str, object]) -> bool:
        size = max(LEAST, _size(content))
        if kind == "update_display_data":  # each display of that mark takes it
            size *= max(1, len(self._displays.get(_mark(content), ())))
        before, self._written = self._written, self._written + size
        if self._written <= self.most:
            return True
        if before <= self.most:
            self._say_cut()
        if kind not in ("execute_result", "error") or len(self.list) > 1000:
            return False
        if size > RESULT:
            self.list.append(error(OUTPUT_CUT, "the result was too long"))
            return False
        return True

    def _cut(self) -> None:
        if self._written <= self.most:
            self._written = self.most + 1
            self._say_cut()

    def _say_cut(self) -> None:
        self._stream("stdout", f"\n[{CUT} {self.most:,} characters]\n")

    def _stream(self, name: str, text: str) -> None:
        last = self.list[-1] if self.list else None
        if last is not None and last.output_type == "stream" and last.name == name:
            last.text += text
        else:
            self.list.append(new_output("stream", name=name, text=text))

    def _display(self, kind: str, content: dict[str, object]) -> None:
        data, metadata = _bundle(content.get("data")), _sizes(content.get("metadata"))
        mark = _mark(content)
        if kind == "update_display_data":
            for output in self._displays.get(mark, []):
                output.data, output.metadata = data, metadata
            return
        more = {}
        if kind == "execute_result":
            count = content.get("execution_count")
            more["execution_count"] = count if _is_count(count) else None
        output = new_output(kind, data=data, metadata=metadata, **more)
        self.list.append(output)
        if mark:
            self._displays.setdefault(mark, []).append(output)


def _mark(content: dict[str, object]) -> str:
    """Return the name by which a display is updated, "" where it has none."""
    transient = content.get("transient")
    mark = transient.get("display_id") if isinstance(transient, dict) else None
    return "" if mark is None else str(mark)


def _sizes(metadata: object) -> dict[str, dict[str, int]]:
    """Return how large images are shown, by media type. Pages write metadata as it is, so nothing else is kept."""
    found = metadata.items() if isinstance(metadata, dict) else ()
    kept = {
        _text(kind): {name: sizes[name] for name in ("width", "height") if _is_count(sizes.get(name))}
        for kind, sizes in found
        if isinstance(sizes, dict)
    }
    return {kind: sizes for kind, sizes in kept.items() if sizes and kind.startswith("image/")}


def _text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return text.encode("utf-8", "replace").decode()


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _size(value: object, depth: int = DEPTH) -> int:
    """About how many characters a value takes in a notebook's file, in which each entry has an indented line."""
    if isinstance(value, dict):
        return sum(len(str(k)) + depth + _size(v, depth + 1) for k, v in value.items())
    if isinstance(value, list):
        return sum(depth + _size(v, depth + 1) for v in value)
    if isinstance(value, int) and value.bit_length() > 64:  # to write it takes time
        return value.bit_length() // 4
    return len(value) if isinstance(value, str) else len(repr(value))


def _bundle(data: object) -> dict[str, object]:
    """Return what a notebook may hold as data: text by media type, JSON for those that nbformat takes as JSON."""
    data = data if isinstance(data, dict) else {}
    return {_text(k): _json(v) if JSON.fullmatch(_text(k)) else _text(v) for k, v in data.items()}


def _json(value: object) -> object:
    """Return the value if any file can hold it and any reader read it, or None.

    Half characters, NaN, integers of thousands of digits, too deep: these somebody could not.
    """
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value if _plain(value, MAX_DEPTH) else None


def _plain(value: object, left: int) -> bool:
    """Return whether a value is nested at most so deep, and its integers are those that every reader has."""
    if isinstance(value, int):
        return abs(value) < MAX_INTEGER
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return left > 0 and all(_plain(v, left - 1) for v in inside)
