"""What kernels share, memory and processors: control groups, where this machine lets us make them."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from graders.engine.clock import Clock, Group, Tree, resident

ROOT = Path("/sys/fs/cgroup")
BESIDE = ("cpu", "cpuacct")  # of version 1: hierarchies beside that of memory
WEIGHT = 1024  # of a notebook among those that run at a time, where version 1 counts; version 2 begins with equals
KERNEL = 7 << 20  # bytes that a kernel soon has for itself of what it shares with the warm parent: 8 to 11 MB
PERIOD = 100_000  # microseconds: in each of them a notebook has one processor for so long, and no more


def new_group() -> Path | None:
    """Make a control group with half of this machine's memory: the warm parent goes into `warm` in it, kernels beside.

    None: there is no such thing here, or it is not ours to make. Then what each process may take is the only limit.
    """
    share = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    for root, file in ((ROOT / "memory", "memory.limit_in_bytes"), (ROOT, "memory.max")):
        for left in root.glob("graders-*"):  # by a grader that was killed
            if not Path("/proc", left.name.split("-")[1]).exists():
                with suppress(OSError):
                    remove(left)
        group = root / f"graders-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            with (group / file).open("r+") as limit:  # in a folder that is no control group there is none
                limit.write(str(share))
            if file == "memory.max":
                (group / "cgroup.subtree_control").write_text("+memory")
                with suppress(OSError):  # not everybody who is given memory to share out is given processors
                    (group / "cgroup.subtree_control").write_text("+cpu")
            (group / "warm").mkdir()
        except OSError:  # made, but of another hierarchy
            group.rmdir()
            continue
        for place in _beside(group):
            with suppress(OSError):  # it may be another name of the one before
                place.mkdir()
            _write(place / "cpu.shares", WEIGHT * (os.cpu_count() or 1))  # as if each notebook stood alone
        return group
    return None


def _beside(group: Path) -> list[Path]:
    """Return where a control group of version 1 is in the other hierarchies; of version 2 there is one."""
    top = ROOT / "memory"
    return [ROOT / name / group.relative_to(top) for name in BESIDE] if group.is_relative_to(top) else []


def _write(file: Path, value: object) -> None:
    """Write into a file of a control group, if it has it."""
    with suppress(OSError), file.open("r+") as held:
        held.write(str(value))


def remove(group: Path) -> None:
    """Remove a control group and those in it, in every hierarchy.

    Raises:
        OSError: something in it still runs.
    """
    for place in [*filter(Path.is_dir, _beside(group)), group]:
        if place.is_dir():  # another name of the one before
            for own in place.glob("*/"):
                own.rmdir()
            place.rmdir()


class Share:
    """What all kernels of a notebook may have together: a control group, where one can be made.

    Of memory so many bytes; of the processors one, and while others want them as much as each other notebook. The
    ``clock`` tells how much of its time the notebook has had.

    Args:
        run: the control group of all notebooks of a run; None where there is none.
        most: bytes. At most three quarters of what the run has: a notebook finds its own limit first.
    """

    def __init__(self, run: Path | None, most: int) -> None:
        self._run = run
        self.group: Path | None = None
        self._places: list[Path] = []
        self._tree = Tree()
        self._own: dict[int, int] = {}  # by process, the bytes that each has had from its start
        if run is not None:
            self._make(run, run / secrets.token_hex(4), most)
        self.clock = Clock(Group(self._places) if self.group else self._tree)

    def _make(self, run: Path, group: Path, most: int) -> None:
        with suppress(OSError, ValueError):
            group.mkdir()
            name = "memory.max" if (group / "memory.max").exists() else "memory.limit_in_bytes"
            (group / name).write_text(str(min(most, int((run / name).read_text()) * 3 // 4)))
            self.group = group
            self._places.append(group)
        for place in _beside(group) if self.group else ():
            with suppress(OSError):
                place.mkdir()
                self._places.append(place)
        for place in self._places:
            _write(place / "cpu.shares", WEIGHT)
            _write(place / "cpu.cfs_period_us", PERIOD)
            _write(place / "cpu.cfs_quota_us", PERIOD)
            _write(place / "cpu.max", f"{PERIOD} {PERIOD}")

    def take(self, process: int) -> None:
        """Bring a kernel that has not started anything under the limits, if that can be done.

        Args:
            process: its number here.
        """
        self._tree.roots.append(process)
        self._own[process] = KERNEL if self.group else resident(process)
        for place in self._places:
            with suppress(OSError):  # it may have ended meanwhile
                (place / "cgroup.procs").write_text(str(process))

    def memory(self) -> int | None:
        """Return the bytes that all of the notebook's processes hold, their files in memory too; None: nobody says.

        Less what kernels have by themselves: the rest their code may let go of at will, this only by ending one.
        """
        held = self._tree.memory() if self.group is None else _held(self.group)
        return None if held is None else held - sum(self._own[process] for process in self._tree.alive())

    @property
    def starved(self) -> bool:
        """Whether something of the notebook was killed below its own limit, because others had the memory.

        Without control groups nobody can tell, and the answer is no.
        """
        return self.group is not None and killed(self.group) > 0 and not _at_limit(self.group)

    def close(self) -> None:
        """Remove the group; while something in it is on its way out it stays, and goes with the run's."""
        for place in self._places:
            with suppress(OSError):
                place.rmdir()


def _held(group: Path) -> int | None:
    """Return the bytes of a control group, but for what the system keeps of files on disk; None: it does not say."""
    for whole, cache in (("memory.usage_in_bytes", "cache"), ("memory.current", "file")):
        with suppress(OSError, ValueError, KeyError):
            used = int((group / whole).read_text())
            stat = dict(map(str.split, (group / "memory.stat").read_text().splitlines()))
            return used - (int(stat[cache]) - int(stat["shmem"]))
    return None


def killed(group: Path) -> int:
    """Return how many processes of a control group the system has killed for want of memory."""
    return _counts(group).get("oom_kill", 0)


def _at_limit(group: Path) -> int:
    """Return how often a control group wanted more memory than it may have."""
    with suppress(OSError, ValueError):
        return int((group / "memory.failcnt").read_text())
    return _counts(group).get("max", 0)


def _counts(group: Path) -> dict[str, int]:
    for name in ("memory.events", "memory.oom_control"):
        with suppress(OSError, ValueError):
            return {key: int(count) for key, count in map(str.split, (group / name).read_text().splitlines())}
    return {}
