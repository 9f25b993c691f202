"""The one place where grading reads what students wrote: a process beside the one that grades the class.

Whatever a notebook holds, reading it costs at most so many CPU seconds and so much memory; what takes more is one line
about one student.
"""

import gc
import io
import os
import pickle
import signal
import socket
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

from graders.engine import bounds
from graders.engine.errors import Overspent

SECONDS = 20.0  # CPU seconds for one question: a notebook of 10 MB takes less than one
MEMORY = 2 << 30  # bytes beyond what the process starts with
PATIENCE = 600.0  # seconds by the clock, for a disk that does not answer
MAX_ANSWER = 500_000_000  # bytes
Q = ParamSpec("Q")
A = TypeVar("A")


class Reader:
    """Calls functions in a process of its own.

    That process is forked from another one that waits, which was forked when there were no threads yet: one that dies
    is replaced in milliseconds.

    Args:
        course: stands for itself among the arguments, and is not copied.
        seconds: CPU seconds that a call may take.
        memory: bytes that the process may take beyond what it starts with.
    """

    def __init__(self, course: object, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._course, self._seconds, self._memory = course, seconds, memory
        self._control: socket.socket | None = None
        self._channel: Connection | None = None
        self._end: Callable[[], object] = lambda: None

    def start(self) -> None:
        """Fork the process that waits, as long as this one has no threads; the first question does it otherwise."""
        if self._control is not None or not hasattr(os, "fork"):
            return
        self._control, theirs = socket.socketpair()
        process = os.fork()
        if process == 0:
            _wait(theirs, self._course, self._seconds, self._memory)
        theirs.close()
        self._end = weakref.finalize(self, _ended, self._control, process)

    def close(self) -> None:
        """End both processes."""
        if self._channel is not None:
            self._channel.close()
        self._end()
        self._channel = self._control = None

    def ask(self, function: Callable[Q, A], *args: Q.args, **keywords: Q.kwargs) -> A:
        """Call a function there; return what it returns.

        Args:
            function: of a module. It may look at the arguments and at files, and change nothing here.
            args: the course, and what can be pickled.
            keywords: likewise.

        Raises:
            Overspent: it took more than it may, or its process died.
            Exception: what the function raised.
        """
        if not hasattr(os, "fork"):  # Windows, where nothing is graded
            return function(*args, **keywords)
        question = io.BytesIO()
        _Pickler(question, self._course).dump((function, args, keywords))
        for last in (False, True):
            channel = self._channel or self._hire()
            try:
                channel.send_bytes(question.getbuffer())
                break
            except OSError:  # it died after its last answer
                self._dismiss()
                if last:
                    raise
        try:
            if not channel.poll(PATIENCE):
                raise TimeoutError
            good, answer = pickle.loads(channel.recv_bytes(MAX_ANSWER))
        except (EOFError, OSError):
            self._dismiss()
            raise Overspent(
                f"takes more than {self._seconds:.0f} CPU seconds, or ends the process that reads it"
            ) from None
        if isinstance(answer, Overspent):
            self._dismiss()
        if not good:
            raise answer
        result: A = answer
        return result

    def _hire(self) -> Connection:
        self.start()
        for last in (False, True):
            ours, theirs = socket.socketpair()
            assert self._control is not None  # it was started
            try:
                with theirs:
                    socket.send_fds(self._control, [b"x"], [theirs.fileno()])
                break
            except OSError:  # it was killed, by whomever
                ours.close()
                if last:
                    raise
                self.close()
                self.start()
        self._channel = Connection(ours.detach())
        return self._channel

    def _dismiss(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, course: object) -> None:
        super().__init__(file)
        self._course = course

    def persistent_id(self, thing: object) -> str | None:
        return "course" if thing is self._course else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, course: object) -> None:
        super().__init__(file)
        self._course = course

    def persistent_load(self, mark: object) -> object:
        return self._course


def _ended(control: socket.socket, process: int) -> None:
    control.close()
    with suppress(ChildProcessError):
        os.waitpid(process, 0)


def _wait(control: socket.socket, course: object, seconds: float, memory: int) -> None:
    """In the process that waits: fork one that reads whenever it is told so, in place of the last; never return."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks, who closes the socket
        gc.freeze()
        os.closerange(3, control.fileno())  # locks, databases, other processes' sockets: none of its business
        os.closerange(control.fileno() + 1, 1 << 16)
        child = 0
        while True:
            data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
            if child:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            if not data:
                os._exit(0)
            child = os.fork()
            if child == 0:
                control.close()
                _read(Connection(descriptors[0]), course, seconds, memory)
            os.close(descriptors[0])
    finally:
        os._exit(1)


def _read(channel: Connection, course: object, seconds: float, memory: int) -> None:
    """In the process that reads: answer until the channel closes; never return."""
    bounds.may_die(memory)
    with suppress(EOFError, OSError):
        while True:
            question = channel.recv_bytes()
            bounds.end_after(seconds)
            answer = _answer(question, course, memory)
            bounds.end_after(None)
            channel.send_bytes(answer)
    os._exit(0)


def _answer(question: bytes, course: object, memory: int) -> bytes:
    try:
        function, args, keywords = _Unpickler(io.BytesIO(question), course).load()
        return pickle.dumps((True, function(*args, **keywords)))
    except MemoryError:
        return pickle.dumps((False, Overspent(f"takes more than {memory >> 20:,} MB of memory")))
    except Exception as error:
        return _raised(error)


def _raised(error: Exception) -> bytes:
    said: tuple[bool, Any] = (False, error)
    with suppress(Exception):
        answer = pickle.dumps(said)
        pickle.loads(answer)
        return answer
    return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))  # one that cannot be copied
