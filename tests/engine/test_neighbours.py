"""Neighbours: what notebooks that run at the same time take from each other, and what they see of the machine."""

import errno
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from graders.engine import clock, memory, parents, sandbox
from graders.engine.clock import PATIENCE, Clock, Group, Tree
from graders.engine.kernel import Kernel
from graders.engine.memory import PERIOD, WEIGHT, Share
from graders.engine.outcome import CELL_TIME
from graders.inside import testrun
from graders.inside.confine import CALLS, Line, _program
from tests.engine.conftest import SETTINGS, text

SPIN = """
import os, time
for _ in range(14):
    if os.fork() == 0:
        os.setsid()
        end = time.time() + 60
        while time.time() < end: pass
        os._exit(0)
"""
WORK = "import time\nwhile time.process_time() < start + {seconds}: pass\nprint('done')"
BEGIN = "import time\nstart = time.process_time()"


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [True, False])
def test_an_honest_neighbour_of_14_spinning_processes_keeps_its_time(execute, warm, monkeypatch, groups):
    """A cell of two thirds of its time in processor seconds, which takes several times as long by the clock."""
    if not groups:
        monkeypatch.setattr(sandbox, "new_group", lambda: None)
        monkeypatch.setattr(parents, "_warm", {})
        warm = parents.warm()
    share = warm.share(SETTINGS)
    try:
        with Kernel(warm, SETTINGS, share=share) as neighbour:
            neighbour.quiet(SPIN, 20)
            _, shown = execute(BEGIN, WORK.format(seconds=2), settings=replace(SETTINGS, cell_time=3))
        assert text(shown) == "done\n"
    finally:
        share.close()
        if not groups:
            parents.close()


def test_a_spinning_notebook_is_stopped_for_what_it_took(execute, warm):
    """Its own processes are no neighbours: what they take is its time, also where nothing shows it by the clock."""
    spins = SPIN + "time.sleep(1000)"
    shown, after = execute(spins, "1", settings=replace(SETTINGS, cell_time=2, notebook_time=600))
    assert shown.outputs[-1].ename == CELL_TIME
    assert text(after) == "1"


@contextmanager
def _spinning(number: int) -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_students_test_file_has_its_time_on_a_busy_machine():
    """The clock behind the seconds of the processor stands still too while others have it."""
    file = "import time\ndef test_a():\n    end = time.process_time() + 1\n    while time.process_time() < end: pass\n"
    with _spinning(4 * (os.cpu_count() or 1)):
        (said,) = testrun.run(file, "test_x.py", "offer", [""], 0, limit=5, total=2)
    assert said["status"] == "passed", said
    (said,) = testrun.run("import time\ndef test_a(): time.sleep(9)", "test_x.py", "offer", [""], 0, limit=5, total=1)
    assert said["status"] == "timed out", said


class _Said:
    """Processes of which is said what a test wants."""

    used: float | None = 0.0

    def seconds(self) -> float | None:
        return self.used

    def threads(self) -> Iterator[str]:
        yield from ()


@pytest.mark.parametrize(
    ("used", "waited", "gone"),
    [
        (0.5, 0.0, 6.0),  # it slept: its own doing
        (0.5, 5.5, 1.0),  # it wanted a processor: nobody's but the neighbours', until patience ends
        (2.0, 4.0, 2.0),
        (2.0, 30.0, 2.0),  # many of its threads waited
        (14.0, 0.0, 14.0),  # several of its processes ran at a time
        (2.0, None, 2.0),  # the system does not tell who waited
        (None, 4.0, 6.0),  # nor who ran
    ],
)
def test_the_clock_goes_by_what_a_notebook_had(monkeypatch, used, waited, gone):
    said, now, delays = _Said(), [100.0], iter((None, waited))
    said.used = None if used is None else 0.0
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    monkeypatch.setattr(Clock, "_waits", lambda self: next(delays))
    own = Clock(said)
    now[0], said.used = 106.0, used
    assert own() == pytest.approx(gone) and gone >= 6 / PATIENCE


def test_what_a_tree_of_processes_takes_is_seen_without_control_groups():
    code = "import os\nif os.fork() == 0:\n    while True: pass\nos.wait()"
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    tree = Tree()
    assert tree.seconds() is None
    tree.roots.append(child.pid)
    try:
        while len(list(tree.threads())) < 2 or (tree.seconds() or 0) < 0.3:
            subprocess.run(["sleep", "0.1"], check=True)
    finally:
        os.killpg(child.pid, 9)
        child.wait()


# --- control groups ---------------------------------------------------------------------------------------------------


def test_a_notebook_has_one_processor_and_as_much_of_it_as_the_others(warm):
    if not any(Path("/sys/fs/cgroup/cpu").glob(warm._group.name if warm._group else "-")):
        pytest.skip("no control groups of version 1 that are ours to make")
    share = warm.share(SETTINGS)
    with Kernel(warm, SETTINGS, share=share) as kernel:
        place = Path("/sys/fs/cgroup/cpu") / share.group.relative_to("/sys/fs/cgroup/memory")
        read = [int((place / f"cpu.{name}").read_text()) for name in ("shares", "cfs_quota_us", "cfs_period_us")]
        assert read == [WEIGHT, PERIOD, PERIOD]
        assert (place / "cgroup.procs").read_text().split() == (share.group / "cgroup.procs").read_text().split()
        before = share.clock()
        kernel.quiet("import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass", 20)
        assert share.clock._processes.seconds() >= 0.5 and share.clock() - before >= 0.4
    share.close()
    assert not place.exists() or not (place / "cgroup.procs").read_text()


def test_the_groups_of_a_grader_that_was_killed_go_in_every_hierarchy(tmp_path, monkeypatch):
    places = [tmp_path / name / "graders-999999999-x" for name in ("memory", "cpu", "cpuacct")]
    for place in places:
        (place / "share").mkdir(parents=True)
    monkeypatch.setattr(memory, "ROOT", tmp_path)
    assert memory.new_group() is None
    assert not any(place.exists() for place in places)


LIKE_V2 = {
    "cgroup.procs": "", "cgroup.threads": "", "cgroup.subtree_control": "", "cpu.stat": "usage_usec 0\nuser_usec 0\n",
}  # fmt: skip
CONTROLLED = {
    "memory": {"memory.max": "max\n", "memory.current": "0\n", "memory.events": "low 0\nhigh 0\nmax 0\noom_kill 0\n"},
    "cpu": {"cpu.max": "max 100000\n", "cpu.weight": "100\n"},
}


@pytest.fixture
def version_2(tmp_path, monkeypatch):
    """A folder that behaves like control groups of version 2: what a new one holds depends on the one above."""
    made, removed, wrote = Path.mkdir, Path.rmdir, Path.write_text
    given = {tmp_path: ["memory", "cpu"]}

    def mkdir(self: Path, *arguments: object, **more: object) -> None:
        made(self, *arguments, **more)
        if tmp_path in self.parents:
            for files in (LIKE_V2, *(CONTROLLED[name] for name in given.get(self.parent, ()))):
                for name, content in files.items():
                    wrote(self / name, content)

    def rmdir(self: Path) -> None:
        for file in self.iterdir() if tmp_path in self.parents else ():
            if not file.is_dir():
                file.unlink()
        removed(self)

    def write_text(self: Path, data: str, *arguments: object, **more: object) -> int:
        if self.name == "cgroup.subtree_control":
            given.setdefault(self.parent, []).append(data.removeprefix("+"))
        return wrote(self, data, *arguments, **more)

    monkeypatch.setattr(memory, "ROOT", tmp_path)
    for name, act in (("mkdir", mkdir), ("rmdir", rmdir), ("write_text", write_text)):
        monkeypatch.setattr(Path, name, act)
    return tmp_path


def test_control_groups_of_version_2_limit_the_same(version_2):
    """By a copy of their files: memory for all, memory and a processor for each notebook, its time by cpu.stat."""
    group = memory.new_group()
    assert group.parent == version_2 and int((group / "memory.max").read_text()) > 0
    share = Share(group, 1 << 20)
    assert (share.group / "memory.max").read_text() == str(1 << 20)
    assert (share.group / "cpu.max").read_text() == f"{PERIOD} {PERIOD}"
    assert (share.group / "cpu.weight").read_text() == "100\n"  # as much as each other
    share.take(4711)
    assert (share.group / "cgroup.procs").read_text() == "4711"
    (share.group / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2500000\nsystem_usec 0\n")
    (share.group / "cgroup.threads").write_text("4711\n4712\n")
    own = Group([share.group])
    assert (own.seconds(), list(own.threads())) == (2.5, ["4711", "4712"])
    share.close()
    assert not share.group.exists()
    memory.remove(group)
    assert not group.exists()


def test_the_seconds_of_a_real_group_of_version_2(tmp_path):
    """Its cpu.stat and cgroup.threads are there without any controller."""
    root = next(
        (p for p in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")) if (p / "cgroup.threads").exists()), None
    )
    place = root and root / f"graders-{os.getpid()}-test"
    try:
        place.mkdir()
    except (OSError, AttributeError):
        pytest.skip("no control groups of version 2 that are ours to make")
    child = subprocess.Popen(
        [sys.executable, "-c", "input()\nfor _ in range(10**7): pass\ninput()"], stdin=subprocess.PIPE
    )
    try:
        (place / "cgroup.procs").write_text(str(child.pid))
        group = Group([place])
        before = group.seconds()
        assert list(group.threads()) == [str(child.pid)]
        child.stdin.write(b"\n")
        child.stdin.flush()
        while group.seconds() - before < 0.1:
            subprocess.run(["sleep", "0.05"], check=True)
    finally:
        child.kill()
        child.wait()
        place.rmdir()


# --- what a notebook sees and says ------------------------------------------------------------------------------------

REFUSED = {  # from Linux's asm/unistd_64.h, and asm-generic/unistd.h
    "x86_64": {
        "inotify_init": 253, "inotify_init1": 294, "fanotify_init": 300, "flock": 73, "syslog": 103,
        "memfd_secret": 447, "cachestat": 451,
    },
    "aarch64": {
        "inotify_init1": 26, "fanotify_init": 262, "flock": 32, "syslog": 116, "memfd_secret": 447, "cachestat": 451,
    },
}  # fmt: skip
FCNTL = {"x86_64": 72, "aarch64": 25}
SOCKET = {"x86_64": 41, "aarch64": 198}


def _filtered(program: Sequence[Line], arch: int, number: int, *arguments: int) -> int:
    """How a filter lets a call end: 0 or an error number. What the kernel's own interpreter does."""
    data = struct.pack("IIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    at, held = 0, 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        if code == 0x06:
            return 0 if value == 0x7FFF0000 else value & 0xFFFF
        if code == 0x20:
            (held,) = struct.unpack_from("I", data, value)
        else:
            at += yes if {0x15: held == value, 0x35: held >= value, 0x45: held & value}[code] else no


@pytest.mark.parametrize("machine", list(CALLS))
def test_the_filter_refuses_what_tells_of_the_system_on_each_processor(machine):
    calls, program = CALLS[machine], _program(CALLS[machine])
    for name, number in REFUSED[machine].items():
        assert _filtered(program, calls.arch, number) == errno.EPERM, name
    for command in (5, 36, 1024, 1026):
        assert _filtered(program, calls.arch, FCNTL[machine], 3, command) == errno.EPERM
    for command in (0, 1, 2, 3, 4, 6, 7, 37, 1030, 1033):  # descriptors, flags, locks, pipes' sizes, seals
        assert _filtered(program, calls.arch, FCNTL[machine], 3, command) == 0
    assert [_filtered(program, calls.arch, SOCKET[machine], family) for family in (1, 2, 10)] == [0, 0, 0]
    assert _filtered(program, calls.arch, SOCKET[machine], 16) == errno.EAFNOSUPPORT


def test_the_numbers_of_this_processor_are_the_systems():
    if platform.machine() != "x86_64" or not (file := Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")).exists():
        pytest.skip("the system's list of calls is not here")
    said = dict(line.split()[1:3] for line in file.read_text().splitlines() if line.startswith("#define __NR_"))
    for name, number in (REFUSED["x86_64"] | {"fcntl": 72, "socket": 41}).items():
        assert said.get(f"__NR_{name}", str(number)) == str(number), name
