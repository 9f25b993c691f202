"""Runs jobs ahead of nbgrader's loop: in processes of this machine, or on the machines of a Dask scheduler.

nbgrader's loop stays the only one that writes. What is here hands it results, and a worker that dies costs at most the
submission that it had in hand.
"""

import hashlib
import json
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
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree

import torch

from graders.classroom.nbgrader_steps import TrustedExecute
from graders.engine import run as engine
from graders.engine.job import Job, Settings
from graders.engine.kernel import Kernel
from graders.engine.sandbox import NoMemory, SandboxError
from graders.engine.timing import phase

Result = str | BaseException  # an executed notebook, or why there is none
PATIENCE = 5.0  # seconds without a result after which a crew is looked at


class PoolError(Exception):
    """The work cannot go on anywhere; its text is one line with a remedy."""


class Lost(Exception):
    """A submission for which there is no result, because nobody who executed it came back."""


class Mismatch(Exception):
    """A worker has other code than the one who asks."""


class Local:
    """Processes of this machine, forked from this one: what it has imported they need not.

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
        self._start()

    def _start(self) -> None:
        context = get_context("fork")
        try:
            with phase("start: warm parent"):
                engine.warm(self._settings.sandbox).wait()
        except SandboxError as error:
            raise PoolError(str(error)) from None
        self._executor = ProcessPoolExecutor(
            self.workers, context, initializer=_begin, initargs=(os.getpid(), self._folder.name, context.Lock())
        )
        self._starting = [self._executor.submit(_ready, self._settings) for _ in range(self.workers)]

    @property
    def window(self) -> int:
        """Enough that nobody waits while a result is written."""
        return 2 * self.workers + 1

    def submit(self, job: Job) -> Future[str]:
        """Have a job run."""
        return self._executor.submit(engine.run, job)

    def restart(self) -> None:
        """Begin anew with other processes: one that dies takes its pool along."""
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
        engine.close()
        self._folder.cleanup()

    def _end(self) -> None:
        processes = list((self._executor._processes or {}).values())  # from Python 3.14 on: kill_workers()
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
                f"no scheduler answers at {url} ({reason}): start one with `dask scheduler`, give the address it prints"
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
        return 2 * sum(self._client.nthreads().values()) + 2

    def submit(self, job: Job) -> Future[str]:
        """Have a job run."""
        return self._executor.submit(answer, job, stamp())

    def restart(self) -> None:
        """Dask goes on by itself."""

    def look(self) -> None:
        """Say when all workers are gone.

        Raises:
            PoolError: the scheduler is gone.
        """
        if self._client.status != "running":
            raise PoolError(f"the scheduler at {self._url} is gone: start it again; the same command goes on from here")
        self._wait(once=True)

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
                self._say(f"{self._url} has no worker: `dask worker {self._url} --nthreads 1` starts one; waiting")
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
            raise PoolError(f"{'; '.join(wrong)}: install the same there, and start the workers again")


Crew = Local | Remote


@dataclass
class _Work:
    """A submission on its way."""

    name: str
    jobs: Sequence[Job]
    results: dict[Job, Result] = field(default_factory=dict)


def executed(crew: Crew, work: Iterable[tuple[str, Sequence[Job]]]) -> Iterator[tuple[str, dict[Job, Result]]]:
    """Have the jobs of submissions run, a few of them at a time; each submission as soon as all its jobs are done.

    One that takes long holds up no other. When a worker dies, those that it may have had in hand run again, each alone:
    whose worker then dies too has ``Lost`` for a result. One that others left no memory runs again alone too; whom that
    happens to even then has ``NoMemory``.

    Args:
        crew: those who run them.
        work: names and jobs; taken from only as fast as they are run.

    Raises:
        PoolError: they cannot run at all.
    """
    source = iter(work)
    waiting: list[_Work] = []
    running: dict[Future[str], tuple[_Work, Job]] = {}
    suspects: list[tuple[_Work, Job]] = []
    alone, more = False, True
    while True:
        while more and not suspects and not alone and len(running) < crew.window:
            if (got := next(source, None)) is None:
                more = False
                break
            item = _Work(*got)
            if not item.jobs:
                yield item.name, {}
                continue
            waiting.append(item)
            running |= {_submit(crew, job): (item, job) for job in item.jobs}
        if suspects and not running:
            alone = True
            item, job = suspects.pop(0)
            running[_submit(crew, job)] = item, job
        if not running:
            if not more:
                return
            continue
        with phase("waiting for an execution"):
            done, _ = wait(running, PATIENCE, "FIRST_COMPLETED")
        if not done:
            crew.look()
        if any(isinstance(_error(future), crew.broken) for future in done):
            if crew.broken is BrokenProcessPool:
                done, _ = wait(running)  # they all are
            crew.restart()
        for future in done:
            item, job = running.pop(future)
            error = _error(future)
            if isinstance(error, (crew.broken, NoMemory)) and not alone:
                suspects.append((item, job))
                continue
            if isinstance(error, crew.broken):
                error = Lost("whatever executed it died, and so did a second one")
            elif isinstance(error, CancelledError):
                crew.look()
                error = Lost("its execution was cancelled")
            item.results[job] = future.result() if error is None else error
        alone = alone and bool(running)
        for item in [item for item in waiting if len(item.results) == len(set(item.jobs))]:
            waiting.remove(item)
            yield item.name, item.results


def _submit(crew: Crew, job: Job) -> Future[str]:
    """Have a job run; a pool that broke in between says so when it is asked for the result."""
    try:
        return crew.submit(job)
    except BrokenProcessPool as error:
        future: Future[str] = Future()
        future.set_exception(error)
        return future


def _error(future: Future[str]) -> BaseException | None:
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


@contextmanager
def answering(results: dict[Job, Result], crew: Crew) -> Iterator[None]:
    """Within it nbgrader gets these results; a job that is not among them is run when nbgrader asks for it."""
    known = {_essence(job): result for job, result in results.items()}

    def ahead(job: Job) -> str:
        result = known.get(_essence(job))
        if result is None:
            ((_, others),) = executed(crew, [("", [job])])
            result = others[job]
        if isinstance(result, BaseException):
            raise result
        return result

    TrustedExecute.ahead = ahead
    try:
        yield
    finally:
        TrustedExecute.ahead = None


def _essence(job: Job) -> Job:
    """The job without the ids of its cells: nbformat draws them anew each time where a notebook has none."""
    notebook = json.loads(job.notebook)
    for cell in notebook["cells"]:
        cell.pop("id", None)
    return replace(job, notebook=json.dumps(notebook, sort_keys=True))


def cores() -> int:
    """How many cores this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        count = min(count, max(1, int(quota) // int(period)))
    return count


def answer(job: Job, wanted: dict[str, str]) -> str:
    """What a worker of another machine does.

    Raises:
        Mismatch: it has other code than the one who asks, ``wanted``.
    """
    if difference := _difference(stamp(), wanted):
        raise Mismatch(
            f"a worker on {os.uname().nodename} has {difference}: install the same there, and start it again"
        )
    torch.set_num_threads(1)
    return engine.run(job)


@lru_cache
def stamp() -> dict[str, str]:
    """What has to be the same for a verdict to be the same: this package's code, and torch's version."""
    code = hashlib.sha256()
    package = Path(str(files("graders")))
    for path in sorted(package.rglob("*.py")):
        code.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return {
        "graders": code.hexdigest()[:12],
        "torch": torch.__version__.partition("+")[0],  # with CUDA or without
        "Python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }


def _difference(found: dict[str, str], wanted: dict[str, str]) -> str:
    return ", ".join(
        f"{name} {found[name]} where here is {wanted[name]}" for name in wanted if found[name] != wanted[name]
    )


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0][:200]


@contextmanager
def nobody(settings: Settings) -> Iterator[None]:
    """For no crew: within it this process itself runs jobs, when nbgrader asks for it.

    Raises:
        PoolError: it cannot.
    """
    try:
        _ready(settings)
        yield
    except (SandboxError, NoMemory) as error:
        raise PoolError(str(error)) from None
    finally:
        engine.close()


def _ready(settings: Settings) -> None:
    """Start this process's warm parent, and see a kernel of it start."""
    with Kernel(engine.warm(settings.sandbox), settings):
        pass


def _begin(parent: int, folder: str, lock: AbstractContextManager) -> None:
    """What a forked worker does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, who ends us
    engine.adopt(lock)
    tempfile.tempdir = folder
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent, folder), daemon=True).start()


def _end_with(parent: int, folder: str) -> None:
    """End when the parent process has, however it did: nobody else would end us."""
    while os.getppid() == parent:
        time.sleep(0.2)
    rmtree(folder, ignore_errors=True)
    os._exit(1)
