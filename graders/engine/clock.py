"""A notebook's own time: it stands still while the processors are busy with others."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Protocol

PATIENCE = 6  # so many times its time by the wall's clock a notebook may take, however busy the machine is
EASE = 50  # looking at the clock takes at most one part of so many of the time
SOONEST = 0.02  # seconds from one look to the next
EXITING = 4  # among the flags of /proc/NUMBER/stat: PF_EXITING of Linux, also of a process that nobody has waited for
TICKS = os.sysconf("SC_CLK_TCK")


class Processes(Protocol):
    """Some processes of this machine."""

    def seconds(self) -> float | None:
        """Return the processor seconds that they and those that have ended took; None: nobody says."""

    def threads(self) -> Iterator[str]:
        """Yield the numbers of the threads that are there."""


class Group:
    """The processes of a control group.

    Args:
        places: its folder in each hierarchy; of version 2 there is one.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = places

    def seconds(self) -> float | None:
        """Return the processor seconds that all of them took, those that have ended too; None: nobody says."""
        for place in self._places:
            with suppress(OSError, ValueError):
                return int((place / "cpuacct.usage").read_text()) / 1e9
            with suppress(OSError, ValueError, KeyError):
                return int(dict(map(str.split, (place / "cpu.stat").read_text().splitlines()))["usage_usec"]) / 1e6
        return None

    def threads(self) -> Iterator[str]:
        """Yield the numbers of the threads that are there."""
        for name in ("tasks", "cgroup.threads"):
            with suppress(OSError):
                yield from (self._places[0] / name).read_text().split()
                return


class Tree:
    """Processes and all that came of them, as far as /proc shows it: not what nobody has waited for."""

    def __init__(self) -> None:
        self.roots: list[int] = []

    def seconds(self) -> float | None:
        """Return the processor seconds that they, and what they have waited for, took; None: nobody says."""
        found = self._found()
        return sum(sum(map(int, found[number][11:15])) for number in found) / TICKS if found else None

    def threads(self) -> Iterator[str]:
        """Yield the numbers of the threads that are there."""
        for number in self._found():
            with suppress(OSError):
                yield from os.listdir(f"/proc/{number}/task")

    def memory(self) -> int | None:
        """Return the bytes of memory that they hold, with the files in memory that are theirs; None: nobody says."""
        held = sum(map(resident, self._found()))
        return held + sum(map(_files, self.roots)) if held else None

    def alive(self) -> list[int]:
        """Return the roots that are not ending: one that is may have given its memory back already."""
        found = self._found()
        return [number for number in self.roots if number in found and not int(found[number][6]) & EXITING]

    def _found(self) -> dict[int, list[str]]:
        """Return what /proc/NUMBER/stat says, from the third field on, of each process that is there."""
        every: dict[int, list[str]] = {}
        if self.roots:
            with suppress(OSError):
                for name in filter(str.isdigit, os.listdir("/proc")):
                    with suppress(OSError):
                        every[int(name)] = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
        own = [number for number in self.roots if number in every]
        for number in own:  # it grows
            own += [child for child, said in every.items() if int(said[1]) == number and child not in own]
        return {number: every[number] for number in own}


def resident(number: int) -> int:
    """Return the bytes that a process holds and no file on disk has; 0 of one that has ended."""
    size = 0
    with suppress(OSError):
        for line in Path(f"/proc/{number}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                size += int(line.split()[1]) << 10
    return size


def _files(number: int) -> int:
    """Return the bytes of the files in memory that a process alone sees, as far as one may look."""
    size = 0
    with suppress(OSError):
        if os.readlink(f"/proc/{number}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
            for place in ("room", "tmp", "dev/shm"):
                with suppress(OSError):
                    held = os.statvfs(f"/proc/{number}/root/{place}")
                    size += (held.f_blocks - held.f_bfree) * held.f_frsize
    return size


class Clock:
    """Seconds that some processes have had to themselves, since it was made: call it.

    It goes as fast as the wall's, less what they or this process waited for a processor that others had; and no slower
    than they used processors, nor than one part in `PATIENCE` of the wall's. Where the system says nothing of
    processors it is the wall's.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._gone = 0.0
        self._next = self._cost = 0.0
        self._wall = monotonic()
        self._used = processes.seconds()
        self._waited: dict[str, int] = {}
        self._waits()

    def __call__(self) -> float:
        """Return the seconds so far; what passed since the last look only if it is worth one."""
        if (now := monotonic()) >= self._next:
            self._look(now)
            after = monotonic()
            self._next = after + max(SOONEST, EASE * (after - now))
        return self._gone

    def _look(self, now: float) -> None:
        passed, self._wall = now - self._wall, now
        used, before = self._processes.seconds(), self._used
        self._used = used
        waited = self._waits()
        if used is None:
            self._gone += passed
            return
        own = used - (before or 0.0)
        self._gone += max(own, passed / PATIENCE, 0.0 if waited is None else passed - waited)

    def _waits(self) -> float | None:
        """Return the seconds that they waited for a processor since the last look; None: nobody says."""
        before, self._waited = self._waited, {}
        for number in ("self", *self._processes.threads()):
            with suppress(OSError, ValueError, IndexError):
                self._waited[number] = int(Path("/proc", number, "schedstat").read_text().split()[1])
        new = [delay - before.get(number, 0) for number, delay in self._waited.items()]
        return sum(new) / 1e9 if new else None
