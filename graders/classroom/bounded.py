"""Call a function on what strangers sent in a process of its own, within limits of time and memory."""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

MAX_REPLY = 16_000_000  # bytes of what the function returns, as JSON


class BoundedError(Exception):
    """The function did not return; the text says why, going on from "it"."""


def call(function: Callable[..., Any], *arguments: Any, cpu: int, memory: int, size: int, wall: float) -> Any:
    """Call a function in a forked child and return what it returned, which must be JSON.

    Args:
        function: what to call; it may write files.
        arguments: what it is given.
        cpu: seconds of a processor that the child may use.
        memory: bytes that it may take beyond what this process has.
        size: bytes of the largest file that it may write.
        wall: seconds after which it is ended, whatever it does.

    Raises:
        BoundedError: it raised an exception, went over a limit, or died.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        _child(reader, writer, function, arguments, (cpu, memory, size))
    os.close(writer)
    try:
        reply = _read(reader, time.monotonic() + wall)
    finally:
        os.close(reader)
        with suppress(ProcessLookupError):  # it has nothing more to do, or went over a limit
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if reply is None:
        raise BoundedError(f"takes more than {wall:.0f} seconds to read")
    try:
        kind, value = json.loads(reply)
    except (ValueError, RecursionError):
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            raise BoundedError(f"takes more than {cpu} seconds of a processor to read") from None
        raise BoundedError("cannot be read within the limits of memory") from None
    if kind != "returned":
        raise BoundedError(str(value))
    return value


def _child(
    reader: int, writer: int, function: Callable[..., Any], arguments: tuple[Any, ...], limits: tuple[int, int, int]
) -> NoReturn:
    """Run the function and write what came of it; nothing of this process's state is left to be tidied up."""
    try:
        os.close(reader)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        _limit(*limits)
        try:
            reply = json.dumps(["returned", function(*arguments)])
        except MemoryError:
            reply = json.dumps(["raised", "needs more memory than an archive may take"])
        except BaseException as error:  # whatever a stranger's file provokes
            reply = json.dumps(["raised", f"is damaged ({type(error).__name__}: {str(error)[:200]})"])
        with open(writer, "wb", closefd=False) as pipe:
            pipe.write(reply.encode())
    finally:
        os._exit(0)


def _limit(cpu: int, memory: int, size: int) -> None:
    """Limit this process, once and for all."""
    import resource  # not on Windows, where nothing is called in this way

    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    with suppress(OSError, ValueError):  # where there is no /proc, there is no limit of memory either
        has = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (has + memory, has + memory))


def _read(reader: int, deadline: float) -> bytes | None:
    """Return all that comes from a pipe before its other end is closed, None where that lasts too long."""
    reply = bytearray()
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            return None
        data = os.read(reader, 1 << 16)
        if not data or len(reply) > MAX_REPLY:
            return bytes(reply)
        reply += data
