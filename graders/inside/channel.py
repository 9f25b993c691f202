"""Frames over a socket: one byte of kind, eight of length, then the bytes. Both sides of the wall use it.

What comes from a kernel may be anything: who receives gives a deadline, and a frame that is too long is an error.
"""

import socket
import struct
from time import monotonic

HEAD = struct.Struct(">cQ")
MAX_BYTES = 17 << 20  # of a frame: `graders.inside.wire` has less

# to a kernel
CELL = b"C"  # text: run this cell, and show what it shows
QUIET = b"Q"  # text: run this cell statement by statement, show nothing
ASK = b"A"  # graders.inside.wire: {"path": ..., "message": ...}
FILE = b"F"  # JSON: what graders.inside.testrun takes
# from a kernel
SHOWN = b"S"  # JSON: {"msg_type": ..., "content": ...} as in Jupyter's protocol
TOO_LONG = "too_long"  # the msg_type of a SHOWN that stands for one that no frame holds
DONE = b"D"  # JSON: {"count": ...}: the cell has ended
ANSWER = b"R"  # to ASK (graders.inside.wire) and FILE (JSON)


class ChannelError(Exception):
    """The other side sent what is no frame."""


class Closed(ChannelError):
    """The other side is gone."""


class Channel:
    """One end of a connected stream socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._held = bytearray()

    def send(self, kind: bytes, data: bytes, deadline: float | None = None) -> None:
        """Send one frame.

        Raises:
            Closed: nobody is there.
            TimeoutError: the other side did not take it in time.
        """
        self._limit(deadline)
        try:
            self.sock.sendall(HEAD.pack(kind, len(data)) + data)
        except (BrokenPipeError, ConnectionError) as error:
            raise Closed(str(error)) from None

    def receive(self, deadline: float | None = None) -> tuple[bytes, bytes]:
        """The next frame, kind and bytes.

        Args:
            deadline: on `time.monotonic`'s clock; None: wait as long as it takes.

        Raises:
            TimeoutError: the frame was not there in time, as a whole.
            Closed, ChannelError: there is none, or it is too long.
        """
        self._fill(HEAD.size, deadline)
        kind, size = HEAD.unpack(self._held[: HEAD.size])
        if size > MAX_BYTES:
            raise ChannelError(f"a frame of {size} bytes")
        self._fill(HEAD.size + size, deadline)
        data = bytes(self._held[HEAD.size : HEAD.size + size])
        del self._held[: HEAD.size + size]
        return kind, data

    def close(self) -> None:
        """Close this end."""
        self.sock.close()

    def _fill(self, size: int, deadline: float | None) -> None:
        while len(self._held) < size:
            self._limit(deadline)
            try:
                more = self.sock.recv(max(1 << 16, size - len(self._held)))
            except ConnectionError:
                more = b""
            if not more:
                raise Closed("the connection was closed")
            self._held += more

    def _limit(self, deadline: float | None) -> None:
        if deadline is not None and (left := deadline - monotonic()) <= 0:
            raise TimeoutError
        self.sock.settimeout(None if deadline is None else left)
