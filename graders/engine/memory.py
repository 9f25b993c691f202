"""Memory that kernels share: control groups, where this machine lets us make them."""

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path


def new_group() -> Path | None:
    """A new control group, with half of this machine's memory: the warm parent goes into `warm` in it, kernels beside.

    None: there is no such thing here, or it is not ours to make. Then what each process may take is the only limit.
    """
    share = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    for root, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        for left in Path(root).glob("graders-*"):  # by a grader that was killed
            if not Path("/proc", left.name.split("-")[1]).exists():
                with suppress(OSError):
                    remove(left)
        group = Path(root, f"graders-{os.getpid()}-{secrets.token_hex(4)}")
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            with (group / file).open("r+") as limit:  # in a folder that is no control group there is none
                limit.write(str(share))
            if file == "memory.max":
                (group / "cgroup.subtree_control").write_text("+memory")
            (group / "warm").mkdir()
            return group
        except OSError:  # made, but of another hierarchy
            group.rmdir()
    return None


def remove(group: Path) -> None:
    """Remove a control group and those in it.

    Raises:
        OSError: something in it still runs.
    """
    for own in group.glob("*/"):
        own.rmdir()
    group.rmdir()


class Share:
    """What all kernels of a notebook may have of memory, together: a control group, where one can be made.

    Args:
        run: the control group of all notebooks of a run; None where there is none.
        most: bytes. At most three quarters of what the run has: a notebook finds its own limit first.
    """

    def __init__(self, run: Path | None, most: int) -> None:
        self._run = run
        self.group: Path | None = None
        if run is None:
            return
        group = run / secrets.token_hex(4)
        with suppress(OSError, ValueError):
            group.mkdir()
            name = "memory.max" if (group / "memory.max").exists() else "memory.limit_in_bytes"
            (group / name).write_text(str(min(most, int((run / name).read_text()) * 3 // 4)))
            self.group = group

    def take(self, process: int) -> None:
        """Bring a kernel that has not started anything under the limit, if that can be done.

        Args:
            process: its number where its parent is, one namespace further in than here.
        """
        if self._run is None or self.group is None:
            return
        with suppress(OSError):
            for number in (self._run / "warm" / "cgroup.procs").read_text().split():
                with suppress(FileNotFoundError, ProcessLookupError):  # another kernel, that has ended meanwhile
                    status = Path("/proc", number, "status").read_text()
                    if re.search(rf"^NSpid:\t\d+\t{process}\b", status, re.MULTILINE):
                        (self.group / "cgroup.procs").write_text(number)
                        return

    @property
    def starved(self) -> bool:
        """Whether something of the notebook was killed because others had the memory: it never was at its limit.

        Without control groups nobody can tell, and the answer is no.
        """
        return self.group is not None and killed(self.group) > 0 and not _at_limit(self.group)

    def close(self) -> None:
        """Remove the group; while something in it is on its way out it stays, and goes with the run's."""
        if self.group is not None:
            with suppress(OSError):
                self.group.rmdir()


def killed(group: Path) -> int:
    """How many processes of a control group the system has killed for want of memory."""
    return _counts(group).get("oom_kill", 0)


def _at_limit(group: Path) -> int:
    """How often a control group wanted more memory than it may have."""
    with suppress(OSError, ValueError):
        return int((group / "memory.failcnt").read_text())
    return _counts(group).get("max", 0)


def _counts(group: Path) -> dict[str, int]:
    for name in ("memory.events", "memory.oom_control"):
        with suppress(OSError, ValueError):
            return {key: int(count) for key, count in map(str.split, (group / name).read_text().splitlines())}
    return {}
