"""The kernel from inside: an IPython shell that takes cells and questions from a channel. Runs on the kernel's side.

It is no Jupyter kernel: a forked process is one at once, without threads or ports. What it sends has the form of
Jupyter's messages, so that outputs come out as they do under Jupyter.
"""

import ast
import io
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from graders.inside import channel as frames
from graders.inside import testrun
from graders.inside.channel import Channel
from graders.inside.observe import STUDENT_ERRORS, fresh, resolve, told
from graders.inside.operation import Responder
from graders.inside.pristine import pristine
from graders.inside.records import Failure
from graders.inside.wire import Message, WireError, decode_message, encode

PART = 500  # characters of an exception's text by which it is known again
PIECE = 1 << 16  # characters of a stream that are sent at once


class Sink:
    """Where everything goes that a cell shows; nowhere while `channel` is None."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.left = 0  # characters: beyond them the other side would throw it away

    def __call__(self, msg_type: str, **content: Any) -> None:
        if self.channel is None:
            return
        data = json.dumps({"msg_type": msg_type, "content": content}, default=str).encode("utf-8", "replace")
        if len(data) > frames.MAX_BYTES:
            if msg_type == "error":
                self(msg_type, ename=content["ename"][:PIECE], evalue=content["evalue"][:PIECE], traceback=[])
            data = json.dumps({"msg_type": frames.TOO_LONG, "content": {}}).encode()
        self.channel.send(frames.SHOWN, data)


class Stream(io.TextIOBase):
    """``sys.stdout`` or ``sys.stderr``."""

    encoding, errors = "utf-8", "replace"

    def __init__(self, name: str, sink: Sink) -> None:
        self.name, self.sink = name, sink
        self._held: list[str] = []
        self._size = 0

    def write(self, text: str) -> int:
        """Keep the text until there is a piece of it."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        worth = text[: max(0, self.sink.left)]
        self.sink.left -= len(worth)
        for start in range(0, len(worth), PIECE):
            piece = worth[start : start + PIECE]
            self._held.append(piece)
            self._size += len(piece)
            if self._size >= PIECE:
                self.flush()
        return len(text)

    def flush(self) -> None:
        """Send what is kept."""
        held, self._held, self._size = "".join(self._held), [], 0
        if held:
            self.sink("stream", name=self.name, text=held)

    def writable(self) -> bool:
        """Return True, as what can be written to does."""
        return True

    def isatty(self) -> bool:
        """Return False: this is no terminal."""
        return False


class Publisher(DisplayPublisher):
    """What `display` shows."""

    sink: Sink

    def publish(
        self,
        data: dict[str, object],
        metadata: dict[str, object] | None = None,
        source: object = None,
        *,
        transient: dict[str, object] | None = None,
        update: bool = False,
        **keywords: object,
    ) -> None:
        """Send a display, or the update of one."""
        _flush()
        kind = "update_display_data" if update else "display_data"
        self.sink(kind, data=data, metadata=metadata or {}, transient=transient or {})

    def clear_output(self, wait: bool = False) -> None:
        """Tell the other side to clear the cell's outputs."""
        _flush()
        self.sink("clear_output", wait=wait)


class Results(DisplayHook):
    """What the last expression of a cell shows."""

    sink: Sink

    def write_output_prompt(self) -> None:
        """Do nothing: the count is sent with the rest."""

    def write_format_data(self, format_dict: dict[str, object], md_dict: dict[str, object] | None = None) -> None:
        """Send the result."""
        _flush()
        shell: Any = self.shell
        count = shell.execution_count - 1
        self.sink("execute_result", data=format_dict, metadata=md_dict or {}, execution_count=count)

    def finish_displayhook(self) -> None:
        """Do nothing."""


class NotebookShell(InteractiveShell):
    """IPython as a notebook has it."""

    displayhook_class = Results
    display_pub_class = Publisher
    sink: Sink

    def enable_gui(self, gui: object = None) -> None:
        """Do nothing: there are no windows."""

    def ask_exit(self) -> None:
        """End the kernel, as ``exit`` does."""
        self.exit_now = True

    def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: list[str]) -> None:
        _flush()
        try:
            text = str(evalue)
        except Exception:
            text = ""
        self.sink("error", ename=str(etype.__name__), evalue=text, traceback=[str(line) for line in stb])


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # student code may have put anything there
            stream.flush()


def make_shell() -> NotebookShell:
    """Make the one shell of this process, empty. No history: that would be a thread and a database."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.xmode = "Plain"  # a runaway recursion's coloured traceback takes half a minute
    config.InteractiveShell.colors = "nocolor"
    sink = Sink()
    NotebookShell.sink = Publisher.sink = Results.sink = sink
    shell = NotebookShell.instance(config=config)
    sys.stdout, sys.stderr = Stream("stdout", sink), Stream("stderr", sink)
    return shell


class Server:
    """Serves one channel until it is closed.

    Args:
        shell: what `make_shell` made, in this process or the one that forked it.
        channel: where cells and questions come from.
        max_output: characters of a cell's streams that are worth sending.
    """

    def __init__(self, shell: NotebookShell, channel: Channel, max_output: int) -> None:
        self.shell, self.channel, self.max_output = shell, channel, max_output
        self._busy = False
        self._pid = os.getpid()

    def serve(self) -> None:
        """Answer until the other side hangs up."""
        signal.signal(signal.SIGINT, self._interrupt)
        todo: dict[bytes, Callable[[bytes], tuple[bytes, bytes]]] = {
            frames.CELL: self._cell,
            frames.QUIET: self._quiet,
            frames.ASK: self._ask,
            frames.FILE: self._file,
        }
        while not self.shell.exit_now:
            try:
                kind, data = self.channel.receive()
            except frames.ChannelError:
                return
            answer = todo[kind](data)
            if os.getpid() != self._pid:  # a fork that the student's code made and forgot
                os._exit(0)
            self.channel.send(*answer)

    def _interrupt(self, *_: object) -> None:
        if self._busy:
            raise KeyboardInterrupt

    def _guarded(self, act: Callable[[], object]) -> object:
        """Do something that an interrupt may end; return None if it did."""
        try:
            self._busy = True
            try:
                return act()
            finally:
                self._busy = False
        except KeyboardInterrupt:
            return None

    def _cell(self, data: bytes) -> tuple[bytes, bytes]:
        sink = self.shell.sink
        sink.channel, sink.left = self.channel, self.max_output + PIECE
        try:
            self._guarded(lambda: self.shell.run_cell(data.decode(), store_history=True))
            _flush()
        finally:
            sink.channel = None
        return frames.DONE, json.dumps({"count": self.shell.execution_count - 1}).encode()

    def _quiet(self, data: bytes) -> tuple[bytes, bytes]:
        asked = json.loads(data)
        self._guarded(lambda: self._statements(asked["code"], tuple(asked["ended"])))
        return frames.DONE, json.dumps({"count": 0}).encode()

    def _statements(self, code: str, ended: tuple[str, str]) -> None:
        """Run a cell's statements in turn up to the one that ended it elsewhere; skip others that raise.

        They raise for what is refused here, or for want of what an earlier one would have made.

        Args:
            ended: the exception's name and text.
        """
        names = self.shell.user_ns
        try:
            tree = ast.parse(self.shell.transform_cell(code))
        except (SyntaxError, ValueError, RecursionError):
            self.shell.run_cell(code, silent=True)  # top-level await, or no Python at all
            return
        for node in tree.body:
            try:
                exec(compile(ast.Module([node], []), "<cell>", "exec"), names)
            except STUDENT_ERRORS as error:
                if (type(error).__name__, told("cell", error).message[:PART]) == ended:
                    return

    def _ask(self, data: bytes) -> tuple[bytes, bytes]:
        asked = decode_message(data)
        get = lambda: eval(asked["path"], self.shell.user_ns)  # noqa: E731 (a dotted name, from the trusted side)
        respond = Responder(get) if asked["message"]["do"] != "call" else lambda message: _call(get, message)
        answer = self._guarded(lambda: respond(asked["message"]))
        if answer is None:
            return frames.DONE, b"{}"
        try:
            return frames.ANSWER, encode(answer)
        except (WireError, ValueError) as error:  # surrogates in a text, say
            return frames.ANSWER, encode({"failure": Failure("result", "TypeError", ascii(str(error)))})

    def _file(self, data: bytes) -> tuple[bytes, bytes]:
        said = self._guarded(lambda: testrun.run(**json.loads(data)))
        return frames.ANSWER, json.dumps(said).encode()


def _call(get: Callable[[], Callable[..., object]], message: Message) -> Message:
    """Return the value of a plain call, as data."""
    with pristine():
        operation = resolve(get)
        if isinstance(operation, Failure):
            return {"failure": operation}
        try:
            value = operation(*map(fresh, message["args"]), **message["keywords"])
            encode(value)
        except WireError as error:
            return {"failure": Failure("result", "TypeError", str(error))}
        except STUDENT_ERRORS as error:
            return {"failure": told("call", error)}
        return {"value": value}
