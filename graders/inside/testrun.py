"""Runs a student's test file against classes, each in a forked process of its own, within limits of time.

A run is limited in seconds of the processor: on a busy machine it takes longer, and costs no points for that. Behind
them stands the clock, for a file that sleeps.

A JSON message comes on stdin, one goes out on stdout. The file stands alone (the standard library and torch), so a
sandbox can hold it without the course. The classes come as source text, unnamed and in any order: the process that runs
the student's code does not know which of them are right.
"""

import inspect
import json
import math
import os
import resource
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing import connection, get_context
from time import monotonic
from types import ModuleType
from typing import Any

import torch

FORK = get_context("fork")
MAX_BYTES = 1 << 16
MAX_TEXT = 300
PATIENCE = 5  # so many times what is left by the clock a run may wait for a processor
OVER = (-signal.SIGKILL, -signal.SIGXCPU)  # how a process ends that has used up its seconds of the processor


def main() -> None:
    """Answer one message: see `run`."""
    json.dump(run(**json.load(sys.stdin)), sys.stdout)


def run(
    file: str, name: str, offer: str, sources: list[str], seed: int, limit: float, total: float
) -> list[dict[str, Any]]:
    """Return what the test file says of each class; the first that runs out of time ends the list.

    Args:
        file: the test file's text.
        name: the file's name.
        offer: the module that the file imports.
        sources: one text of that module per run.
        seed: of torch's random numbers in each run.
        limit: seconds of the processor for each run.
        total: seconds by the clock for all of them, less those in which another had the processor.
    """
    torch.set_num_threads(1)  # a child that shares out its work waits for the parent's threads, which it has not got
    # torch loads hundreds of modules at the first call of these: once here, not in every child
    x = torch.zeros(1, requires_grad=True)
    torch.autograd.grad(x.exp(), x, torch.ones_like(x))
    if "assert_close" in file:
        torch.testing.assert_close(x, x)
    end = monotonic() + total
    said: list[dict[str, Any]] = []
    for source in sources:
        answer, over = _watch(limit, end, file, name, offer, source, seed)
        said.append(answer)
        if answer["status"] == "timed out":
            answer["limit"] = limit if over else total
            break
    return said


def _watch(limit: float, end: float, *args: object) -> tuple[dict[str, Any], bool]:
    """Run the file once in a child, which is dead afterwards with all that it started.

    Args:
        limit: seconds of the processor.
        end: when the clock ends the run.
        args: what `_child` takes.

    Returns:
        What the child said, and whether it was stopped for what it took of the processor.
    """
    ear, mouth = FORK.Pipe(duplex=False)
    before, most = _spent(), PATIENCE * max(0.0, end - monotonic())
    child = FORK.Process(target=_child, args=(mouth, math.ceil(limit), *args))
    child.start()
    assert child.pid is not None  # it has started
    mouth.close()
    said: dict[str, Any] = {"status": "running", "test": ""}
    try:
        while said["status"] == "running":
            if ear.poll(max(0.0, (left := end + _waited(child.pid, most) - monotonic()))):
                said = json.loads(ear.recv_bytes(MAX_BYTES))
            elif left <= 0:
                said["status"] = "timed out"
    except (EOFError, OSError, ValueError):
        said["status"] = "died"
    finally:
        for kill, whom in ((os.killpg, child.pid), (os.kill, child.pid)):
            with suppress(ProcessLookupError, PermissionError):
                kill(whom, signal.SIGKILL)
        child.join()
    # the kernel counts in ticks where it limits, more finely where it reports
    over = said["status"] == "died" and child.exitcode in OVER and _spent() - before > 0.8 * limit
    return said | ({"status": "timed out"} if over else {}), over


def _waited(process: int, most: float) -> float:
    """Return the seconds that a process was ready to run while others had the processor, but no more than so many."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{process}/schedstat") as file:
        return min(most, int(file.read().split()[1]) / 1e9)
    return 0.0


def _spent() -> float:
    """Return the seconds of the processor that all children so far took."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def _child(mouth: connection.Connection, limit: int, file: str, name: str, offer: str, source: str, seed: int) -> None:
    """Run the file's tests in their order until one fails; tell which one runs, and how it ends."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    for low, high in ((3, mouth.fileno()), (mouth.fileno() + 1, 1 << 16)):  # whoever started us talks to others there
        os.closerange(low, high)
    sys.stdin = sys.stdout = sys.stderr = open(0, "r+", closefd=False)  # noqa: SIM115 (as long as the process lives)

    def tell(status: str, **more: object) -> None:
        mouth.send_bytes(json.dumps({"status": status, "test": test[:MAX_TEXT], **more}).encode())

    test, returned = "", []
    try:
        torch.manual_seed(seed)
        _load(offer, f"{offer}.py", source)
        tests = _load(name.removesuffix(".py"), name, file).__dict__
        tests = {n: f for n, f in tests.items() if n.startswith("test_") and callable(f)}
        if not tests:
            tell("no tests")
            return
        for test, function in tests.items():
            tell("running")
            if (result := function()) is not None:
                returned.append(test[:MAX_TEXT])
            if inspect.iscoroutine(result) or inspect.isgenerator(result):
                raise TypeError("an async function, or one with yield, does not run when it is called")
        tell("passed", returned=returned[:10])
    except BaseException as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == name]
        lines += [error.lineno] if isinstance(error, SyntaxError) and error.lineno else []
        text = str(error).strip().split("\n")[0][:MAX_TEXT]
        tell("failed", kind=type(error).__name__, message=text, lines=[*lines[:1], *lines[1:][-1:]])
    finally:
        os._exit(0)


def _load(name: str, path: str, source: str) -> ModuleType:
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = path
    exec(compile(source, path, "exec"), module.__dict__)
    return module


if __name__ == "__main__":
    main()
