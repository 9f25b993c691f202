"""Runs jobs: in other processes of this machine, or on the machines of a Dask scheduler.

Whoever asks gets each result with the key that came with the job. A worker that dies costs at most the jobs that it had
in hand.
"""

import gc
import hashlib
import importlib
import importlib.metadata
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from shutil import rmtree
from typing import Any, Generic, TypeVar
from weakref import WeakSet, WeakValueDictionary

from graders.engine import bounds, parents
from graders.engine.errors import Overspent, PoolError
from graders.engine.job import Job, Settings
from graders.engine.sandbox import NoMemory, SandboxError
from graders.engine.timing import phase

Key = TypeVar("Key")
Json = str
Result = Json | BaseException  # an executed notebook, or why there is none
MEMORY = 4 << 30  # bytes that a worker may map beyond what it starts with
PATIENCE = 5.0  # seconds without a result after which a crew is looked at


class Lost(Exception):
    """A submission for which there is no result, because nobody who executed it came back."""


class Mismatch(Exception):
    """A worker has other code than the one who asks."""


def load() -> None:
    """Load what workers need, torch above all, which takes a second or two: they are forked from this process.

    Whoever only reads what was graded does without it.
    """
    importlib.import_module("graders.engine.run")
    importlib.import_module("torch.fx.experimental.symbolic_shapes")  # the first backward's; here once for all


class Local:
    """Processes of this machine, forked from this one, so they inherit its imports.

    Args:
        workers: how many.
        settings: how they are going to run jobs.

    Raises:
        PoolError: jobs cannot run here.
    """

    broken = BrokenProcessPool

    def __init__(self, workers: int, settings: Settings) -> None:
        self.workers, self._settings = workers, settings
        self._folder = tempfile.TemporaryDirectory(prefix="grading-")
        self._number = 0  # of the last job
        self._futures: WeakValueDictionary[int, Future[str]] = WeakValueDictionary()
        self._spent: WeakSet[Future[str]] = WeakSet()
        self._start()

    def _start(self) -> None:
        context = get_context("fork")
        load()
        try:
            with phase("start: warm parent"):
                parents.warm(self._settings.sandbox).wait()
        except SandboxError as error:
            raise PoolError(str(error)) from None
        self._executor = ProcessPoolExecutor(
            self.workers, context, initializer=_begin, initargs=(os.getpid(), self._folder.name, context.Lock())
        )
        self._starting = [self._executor.submit(_ready, self._settings) for _ in range(self.workers)]
        self._processes = dict(self._executor._processes)  # all of them, from the first job on

    @property
    def window(self) -> int:
        """Enough that nobody waits while a result is written."""
        return 2 * self.workers + 1

    def submit(self, job: Job) -> Future[str]:
        """Have a job run."""
        self._number += 1
        future = self._executor.submit(_run, job, self._number, self._folder.name)
        self._futures[self._number] = future
        return future

    def overspent(self, future: Future[str]) -> bool:
        """Whether the process that had a job in hand was ended for what it spent on it."""
        return future in self._spent

    def restart(self) -> None:
        """Begin anew with other processes: one that dies takes its pool along."""
        for pid, process in self._processes.items():
            if _exit_code(process) == -signal.SIGXCPU:
                number = int(_in_hand(self._folder.name, pid).read_text())
                self._spent |= {self._futures[number]} if number in self._futures else set()
        self._end()
        self._start()

    def look(self) -> None:
        """A process that is busy is not lost."""

    def ready(self) -> None:
        """Wait until the first of them can run a job.

        Raises:
            PoolError: there is no sandbox, and one is required.
        """
        _error(self._starting[0])

    def stop(self) -> None:
        """Kill the processes, and with them what they started."""
        self._end()
        parents.close()
        self._folder.cleanup()

    def _end(self) -> None:
        processes = list(self._processes.values())  # from Python 3.14 on: kill_workers()
        # Python 3.11.2, which Debian 12 has, would wait at its end until jobs are written to a pipe that nobody reads.
        self._executor._call_queue.cancel_join_thread()  # type: ignore[attr-defined]
        for process in processes:
            process.kill()
        self._executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.join(2)


class Remote:
    """The workers of a Dask scheduler, wherever they are: they need this package and torch, but no course.

    Args:
        url: the scheduler's: ``tcp://HOST:8786``.
        say: told what a person should know, in one line.

    Raises:
        PoolError: nobody is there, or a worker has other code.
    """

    def __init__(self, url: str, say: Callable[[str], None]) -> None:
        from distributed import Client, KilledWorker

        self.broken: tuple[type[BaseException], ...] = (KilledWorker,)
        self._url, self._say, self._alone = url, say, False
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        try:
            self._client = Client(url, timeout=10, set_as_default=False, name="graders")
        except (OSError, ValueError, ImportError) as error:
            reason = f"{type(error).__name__}: {error}".split("\n")[0][:200]
            raise PoolError(
                f"no scheduler answers at {url} ({reason}): start one with `dask scheduler`, and pass the address "
                "that it prints"
            ) from None
        self._executor: Executor = self._client.get_executor(pure=False)
        try:
            self._wait()
            self._compare()
        except BaseException:
            self.stop()
            raise

    @property
    def window(self) -> int:
        """Enough that nobody waits for a message."""
        return 2 * int(sum(self._client.nthreads().values())) + 2

    def submit(self, job: Job) -> Future[str]:
        """Have a job run."""
        return self._executor.submit(answer, job, stamp())

    def overspent(self, future: Future[str]) -> bool:
        """Nobody can tell which process had it in hand."""
        return False

    def restart(self) -> None:
        """Dask goes on by itself."""

    def look(self) -> None:
        """Say when all workers are gone.

        Raises:
            PoolError: the scheduler is gone.
        """
        if self._client.status != "running":
            raise PoolError(
                f"the scheduler at {self._url} is gone: start it again, and run the same command to continue "
                "(without --force, which would start over)"
            )
        self._wait(once=True)

    def ready(self) -> None:
        """A worker has been seen."""

    def stop(self) -> None:
        """Leave; what the workers have in hand they finish for nobody."""
        with suppress(Exception):
            self._executor.shutdown(wait=False)
        with suppress(Exception):
            self._client.close(timeout=1)

    def _wait(self, once: bool = False) -> None:
        while self._client.status == "running":
            alone = not self._client.nthreads()
            if alone and not self._alone:
                self._say(
                    f"{self._url} has no worker yet: start one with `dask worker {self._url} --nthreads 1`; waiting"
                )
            self._alone = alone
            if once or not alone:
                return
            time.sleep(0.2)

    def _compare(self) -> None:
        wrong = []
        for address, found in self._client.run(stamp, on_error="return").items():
            if isinstance(found, BaseException):
                wrong.append(f"the worker at {address} has no usable graders ({_line(found)})")
            elif difference := _difference(found, stamp()):
                wrong.append(f"the worker at {address} has {difference}")
        if wrong:
            raise PoolError(f"{'; '.join(wrong)}: install the same versions there, and restart the workers")


Crew = Local | Remote


@contextmanager
def hired(settings: Settings, workers: int, scheduler: str | None, say: Callable[[str], None]) -> Iterator[Crew]:
    """Give the workers that execute jobs, and stop them afterwards.

    Args:
        settings: how they are going to run jobs.
        workers: how many on this machine.
        scheduler: the URL of a Dask scheduler whose workers take their place.
        say: gets what a person should know, in one line.
    """
    crew: Crew = Remote(scheduler, say) if scheduler else Local(workers, settings)
    try:
        yield crew
    finally:
        crew.stop()


def execute(crew: Crew, work: Iterable[tuple[Key, Sequence[Job]]]) -> Iterator[tuple[Key, list[Result]]]:
    """Have jobs run; yield the results of those that came together, in their order, as soon as all of them are there.

    With several workers some run at a time, and one that takes long holds up no other. A job whose worker died, or for
    which others left no memory, runs again with no other beside it; after the second time its result is `Lost`, or
    `NoMemory`.

    Args:
        crew: the workers that run them.
        work: keys and jobs; taken from only as fast as they are run.

    Raises:
        PoolError: they cannot run at all.
    """
    yield from _Queue(crew, work).run()


@dataclass(eq=False)
class _Batch(Generic[Key]):
    """Jobs that came together, and their results by their places."""

    key: Key
    jobs: Sequence[Job]
    results: dict[int, Result] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return len(self.results) == len(self.jobs)


_Task = tuple[_Batch[Key], int]  # a job: its batch, and its place there


class _Queue(Generic[Key]):
    """The jobs on their way, in one of three states: filling, draining, alone.

    It is *filling* while new jobs are taken as fast as they are done. After a job came back without a result it is
    *draining*: nothing new starts until no job runs. Then each suspect runs *alone*; after the last, it fills again.
    """

    def __init__(self, crew: Local | Remote, work: Iterable[tuple[Key, Sequence[Job]]]) -> None:
        self._crew, self._source = crew, iter(work)
        self._more, self._alone = True, False
        self._running: dict[Future[str], _Task[Key]] = {}
        self._suspects: list[_Task[Key]] = []

    def run(self) -> Iterator[tuple[Key, list[Result]]]:
        """See `execute`."""
        while True:
            if not self._suspects and not self._alone:
                yield from self._fill()
            elif self._suspects and not self._running:
                self._alone = True
                self._start(*self._suspects.pop(0))
            if self._running:
                yield from self._collect()
            elif not self._more and not self._suspects:
                return

    def _fill(self) -> Iterator[tuple[Key, list[Result]]]:
        """Start jobs until enough of them run; what has none is done at once."""
        while self._more and len(self._running) < self._crew.window:
            if (got := next(self._source, None)) is None:
                self._more = False
                return
            batch = _Batch(*got)
            if not batch.jobs:
                yield batch.key, []
            for place in range(len(batch.jobs)):
                self._start(batch, place)

    def _start(self, batch: _Batch[Key], place: int) -> None:
        self._running[_submit(self._crew, batch.jobs[place])] = batch, place

    def _collect(self) -> Iterator[tuple[Key, list[Result]]]:
        """Wait for results; a job that has none for a reason that may not be its own becomes a suspect, once."""
        for future in self._ended():
            batch, place = self._running.pop(future)
            error = _error(future)
            if isinstance(error, self._crew.broken) and self._crew.overspent(future):
                error = Overspent("ended the process that judged it: more CPU seconds than a cell has")
            elif isinstance(error, (self._crew.broken, NoMemory)) and not self._alone:
                self._suspects.append((batch, place))
                continue
            if isinstance(error, self._crew.broken):
                error = Lost("the worker that executed it died, and so did a second one")
            elif isinstance(error, CancelledError):
                self._crew.look()
                error = Lost("its execution was cancelled")
            batch.results[place] = future.result() if error is None else error
            if batch.done:
                yield batch.key, [batch.results[place] for place in range(len(batch.jobs))]
        self._alone = self._alone and bool(self._running)

    def _ended(self) -> Iterable[Future[str]]:
        with phase("waiting for an execution"):
            done, _ = wait(self._running, PATIENCE, "FIRST_COMPLETED")
        if not done:
            self._crew.look()
        if any(isinstance(_error(future), self._crew.broken) for future in done):
            if self._crew.broken is BrokenProcessPool:
                done, _ = wait(self._running)  # they all are
            self._crew.restart()
        return done


def _submit(crew: Local | Remote, job: Job) -> Future[str]:
    """Have a job run; a pool that broke in between says so when it is asked for the result."""
    try:
        return crew.submit(job)
    except BrokenProcessPool as error:
        future: Future[str] = Future()
        future.set_exception(error)
        return future


def _error(future: Future[Any]) -> BaseException | None:
    """What a finished job raised; PoolError at once for what would happen to every other too."""
    try:
        error = future.exception()
    except CancelledError as cancelled:
        return cancelled
    if isinstance(error, SandboxError | Mismatch):
        raise PoolError(str(error)) from None
    if isinstance(error, ImportError) or (isinstance(error, RuntimeError) and isinstance(error.__cause__, ImportError)):
        raise PoolError(f"a worker cannot import what it needs ({_line(error.__cause__ or error)})") from None
    return error


def answer(job: Job, wanted: dict[str, str]) -> str:
    """What a worker of another machine does.

    Raises:
        Mismatch: it has other code than the one who asks, ``wanted``.
    """
    if difference := _difference(stamp(), wanted):
        raise Mismatch(
            f"a worker on {os.uname().nodename} has {difference}: install the same versions there, and restart it"
        )
    import torch

    torch.set_num_threads(1)
    bounds.may_die()
    return _bounded(job)


@lru_cache
def stamp() -> dict[str, str]:
    """What has to be the same for a verdict to be the same: this package's code, and torch's version."""
    code = hashlib.sha256()
    package = Path(str(files("graders")))
    for path in sorted(package.rglob("*.py")):
        code.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return {
        "graders": code.hexdigest()[:12],
        "torch": importlib.metadata.version("torch").partition("+")[0],  # with CUDA or without
        "Python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }


def _difference(found: dict[str, str], wanted: dict[str, str]) -> str:
    return ", ".join(
        f"{name} {found[name]} instead of {wanted[name]}" for name in wanted if found[name] != wanted[name]
    )


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0][:200]


def _ready(settings: Settings) -> None:
    """Start this process's warm parent, and see a kernel of it start."""
    from graders.engine.kernel import Kernel

    with Kernel(parents.warm(settings.sandbox), settings):
        pass


def _exit_code(process: BaseProcess) -> int | None:
    """Return how a process ended, None if it does not; the pool's own thread may be asking the system just now."""
    end = time.monotonic() + 2
    while process.exitcode is None and time.monotonic() < end:
        process.join(0.05)
        time.sleep(0.01)
    return process.exitcode


def _in_hand(folder: str, process: int) -> Path:
    """Return the file in which a process notes the number of its job: it may have no time for more."""
    return Path(folder, f"{process}.job")


def _run(job: Job, number: int, folder: str) -> str:
    """What a worker of this machine does."""
    _in_hand(folder, os.getpid()).write_text(str(number))
    return _bounded(job)


def _bounded(job: Job) -> str:
    """Execute a notebook; each of its cells has bounds of its own, and what comes before and after as well."""
    from graders.engine import run

    bounds.end_after(run.judging(job.settings) + bounds.SPARE)
    try:
        return run.run(job)
    finally:
        bounds.end_after(None)


def _begin(parent: int, folder: str, lock: AbstractContextManager[object]) -> None:
    """What a forked worker does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, who ends us
    import torch

    parents.adopt(lock)
    gc.freeze()  # what was loaded stays: no collection goes through it again
    bounds.may_die(MEMORY)
    tempfile.tempdir = folder
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent, folder), daemon=True).start()


def _end_with(parent: int, folder: str) -> None:
    """End when the parent process has, however it did: nobody else would end us."""
    while os.getppid() == parent:
        time.sleep(0.2)
    rmtree(folder, ignore_errors=True)
    os._exit(1)
