"""A kernel as the grader sees it: something that runs cells and answers questions within a time, or is dead."""

import json
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from types import TracebackType

from graders.engine.clock import PATIENCE
from graders.engine.job import Settings
from graders.engine.memory import Share
from graders.engine.sandbox import Parent
from graders.inside import channel as frames
from graders.inside.channel import ChannelError
from graders.inside.wire import Message, WireError, decode_message, encode

PART = 500  # characters of an exception's text: see `graders.inside.shell.PART`
GRACE = 3.0  # seconds for an interrupt to arrive
TICK = 0.25  # seconds until the notebook's clock is looked at again


class KernelGone(Exception):
    """The kernel died, or had to be killed."""


class OutOfTime(Exception):
    """What it was asked for took too long, and was interrupted; the kernel is there for more."""


class Stuck(KernelGone):
    """What it was asked for took too long and could not be interrupted; the kernel was killed."""


class Kernel:
    """A process of its own, forked from a warm parent; close it by ``with``.

    Args:
        warm: where it comes from.
        settings: the limits.
        forbid: what raises in it from the start.
        file: whether it runs test files in place of cells.
        share: the memory that it has together with others.

    Raises:
        SandboxError, NoMemory: it does not start.
    """

    def __init__(
        self,
        warm: Parent,
        settings: Settings,
        forbid: Iterable[str] = (),
        file: bool = False,
        share: Share | None = None,
    ) -> None:
        self._warm = warm
        self._number, self._channel = warm.kernel(settings, forbid, file, share)
        self._clock: Callable[[], float] = share.clock if share else monotonic
        self.alive = True

    def __enter__(self) -> "Kernel":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process and all that it started."""
        if self.alive:
            self.alive = False
            self._channel.close()
            self._warm.end(self._number)

    def cell(self, source: str, show: Callable[[object], None], seconds: float) -> None:
        """Run a cell.

        Args:
            source: its text.
            show: called with what it shows, as JSON values that anybody may have written.
            seconds: how long it may take, of its own time: see `graders.engine.clock`.

        Raises:
            OutOfTime, KernelGone: it did not end by itself.
        """
        self._exchange(frames.CELL, source.encode("utf-8", "replace"), seconds, show)

    def quiet(self, source: str, seconds: float, ended: tuple[str, str] = ("", "")) -> None:
        """Run a cell statement by statement and show nothing; raise as `cell`.

        Args:
            source: its text.
            seconds: how long it may take.
            ended: the name and the text of the exception that ended it elsewhere, where less is refused; what else
                raises here is skipped.
        """
        name, text = ended
        code = source.encode("utf-8", "replace").decode()
        self._exchange(frames.QUIET, json.dumps({"code": code, "ended": [name, text[:PART]]}).encode(), seconds)

    def ask(self, path: str, message: Message, seconds: float) -> Message:
        """Ask what an `Operation` asks, of the student's ``path`` ("Square.apply").

        Raises:
            WireError: the answer is damaged.
            OutOfTime, KernelGone: there is none.
        """
        return decode_message(self._exchange(frames.ASK, encode({"path": path, "message": message}), seconds))

    def test_file(self, message: Message, seconds: float) -> object:
        """Run a student's test file: return what `graders.inside.testrun.run` says; raise as `ask`."""
        answer = self._exchange(frames.FILE, json.dumps(message).encode(), seconds)
        try:
            said = json.loads(answer)
            json.dumps(said, ensure_ascii=False).encode()  # half a character cannot be printed
            return said
        except (ValueError, RecursionError) as error:
            raise WireError(str(error)) from None

    def _exchange(
        self, kind: bytes, data: bytes, seconds: float, show: Callable[[object], None] | None = None
    ) -> bytes:
        if not self.alive:
            raise KernelGone("it had already died")
        end = self._clock() + seconds
        try:
            try:
                self._channel.send(kind, data, monotonic() + PATIENCE * seconds)
                return self._wait(kind, end, show)
            except TimeoutError:
                self._warm.signal(self._number, signal.SIGINT)
                self._wait(frames.CELL, self._clock() + GRACE, show)  # whatever ends it
        except TimeoutError:
            self.close()
            raise Stuck from None
        except ChannelError as error:
            self.close()
            raise KernelGone(str(error)) from None
        raise OutOfTime

    def _wait(self, kind: bytes, end: float, show: Callable[[object], None] | None) -> bytes:
        """Return the frame that ends what `kind` began."""
        wanted = (frames.DONE,) if kind == frames.QUIET else (frames.DONE, frames.ANSWER)
        while True:
            got, data = self._receive(end)
            if got in wanted:
                if got == frames.DONE and kind in (frames.ASK, frames.FILE):
                    raise ChannelError("no answer")
                return data
            if got == frames.SHOWN and show is not None:
                try:
                    show(json.loads(data))
                except (ValueError, RecursionError):
                    raise ChannelError("what it shows is not JSON") from None

    def _receive(self, end: float) -> tuple[bytes, bytes]:
        """Return the next frame, unless the clock comes to its end first."""
        while (left := end - self._clock()) > 0:
            with suppress(TimeoutError):
                return self._channel.receive(monotonic() + min(left, TICK))
        raise TimeoutError
