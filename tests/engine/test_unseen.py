"""Attacks that were thought of after the engine stood, by somebody who had only read it."""

import ctypes
import json
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import nbformat
import nbgrader
import pytest

from graders.engine import parents, sandbox
from graders.engine.job import Settings
from graders.engine.kernel import Kernel
from graders.engine.memory import Share
from graders.engine.outcome import KERNEL_DIED
from graders.engine.outputs import Outputs
from graders.engine.sandbox import NoMemory, Parent, SandboxError, WarmParent
from tests.engine.conftest import SETTINGS, cell, text
from tests.engine.test_run import GRADE, RIGHT, sigmoid, squares

NUMPY = """import numpy as np, torch
def helper(x):
    "{mark}"  # {mark}
    return torch.from_numpy(1 / (1 + np.exp(-x.detach().double().numpy()))).to(x.dtype)"""
EXPONENTIAL = "e = torch.exp(-x.abs()); return torch.where(x >= 0, 1 / (1 + e), e / (1 + e))"
ALLOWED = {"test": GRADE.format(set="sigmoid", task="Sigmoid", check="allowed", get="Sigmoid.apply")}


@pytest.mark.parametrize("mark", ["\x01", "\ufffe"])
def test_a_control_character_hides_no_cell_that_runs(execute, mark):
    helper, _, graded = execute(NUMPY.format(mark=mark), sigmoid("return helper(x)"), cell("", "test"), tests=ALLOWED)
    assert helper.outputs == []
    assert graded.outputs[-1].data["text/plain"] == "0.0", text(graded)


FORGE = """
import json, os, stat, struct
fd = next(f for f in range(3, 256) if os.path.exists(f"/proc/self/fd/{f}") and stat.S_ISSOCK(os.fstat(f).st_mode))
def frame(kind, data):
    view = memoryview(struct.pack(">cQ", kind, len(data)) + data)
    while view:
        view = view[os.write(fd, view):]
def shown(kind, **content):
    frame(b"S", json.dumps({"msg_type": kind, "content": content}).encode())
"""


@pytest.mark.parametrize(
    "data",
    [
        {"text/xjson": {"a": 1}},  # nbformat takes no JSON under this name, and raises
        {"application/json\n": [1]},
        {"application/json": {"a": "\ud800"}},  # no file can hold it
        {"application/json": {"\udfff": 1}},
        {"application/json": [float("nan"), float("inf")]},  # no other reader takes it
        {"application/a+json": json.loads("[" * 90 + "]" * 90)},
    ],
)
def test_what_is_shown_can_be_kept_in_a_file(execute, data):
    code = f"data = json.loads({json.dumps(data)!r})"
    shown, after = execute(FORGE + code + '\nshown("display_data", data=data, metadata={})', "1")
    kept = nbformat.writes(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=shown.outputs)]))
    json.loads(kept.encode(), parse_constant=lambda name: pytest.fail(name))
    nbformat.validate(json.loads(kept))
    assert len(kept) < 1000
    assert text(after) == "1"


def test_an_update_counts_for_each_display_that_it_changes():
    outputs = Outputs(100_000)
    for _ in range(300):
        outputs({"msg_type": "display_data", "content": {"data": {}, "transient": {"display_id": "a"}}})
    update = {"data": {"text/plain": "x" * 50_000}, "transient": {"display_id": "a"}}
    outputs({"msg_type": "update_display_data", "content": update})
    assert (
        len(nbformat.writes(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=outputs.list)])))
        < 200_000
    )


def test_a_count_below_zero_is_none():
    outputs = Outputs(1000)
    outputs({"msg_type": "execute_result", "content": {"data": {"text/plain": "1"}, "execution_count": -5}})
    assert outputs.list[0].execution_count is None


@pytest.mark.parametrize("times", [1, 2])
def test_a_warm_parent_that_dies_costs_nobody_a_point(execute, warm, monkeypatch, times):
    """As by the out-of-memory killer. Whoever runs when it dies twice is named, and the rest of the class goes on."""
    monkeypatch.setattr(parents, "_warm", {})
    started, deaths = Parent.kernel, iter(range(times))

    def kernel(self: Parent, *args: object, **keywords: object) -> object:
        found = started(self, *args, **keywords)
        if next(deaths, None) is not None:
            threading.Timer(0.5, self._process.kill).start()
        return found

    monkeypatch.setattr(Parent, "kernel", kernel)
    try:
        *_, graded = execute(RIGHT, "import time; time.sleep(1.5)", cell("", "test"), tests=squares("value"))
    finally:
        parents.close()
    assert text(graded).startswith(KERNEL_DIED) if times == 2 else text(graded).endswith("\n1.0"), text(graded)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("when", ["in a cell", "in a second kernel", "as a kernel starts"])
def test_memory_that_others_took_costs_nobody_a_point(execute, warm, monkeypatch, when, times):
    """What all notebooks of a run may have is lowered to what is taken, or little more, so that it runs out."""
    whole, droughts = _limit(warm).read_text(), iter(range(times))
    shared, started = WarmParent.share, Parent.kernel

    def share(self: WarmParent, settings: Settings) -> Share:
        _limit(self).write_text(whole)
        return shared(self, settings)

    def dry(limit: Path, more: int) -> None:
        usage = "memory.current" if limit.name == "memory.max" else "memory.usage_in_bytes"
        limit.write_text(str(int(limit.with_name(usage).read_text()) + more))

    def kernel(self: Parent, settings: Settings, forbid: Iterable[str] = (), *args: object) -> object:
        if (when == "in a second kernel" and not forbid) or next(droughts, None) is None:
            return started(self, settings, forbid, *args)
        if when != "as a kernel starts":
            found = started(self, settings, forbid, *args)
            dry(_limit(self), 100 << 20)
            return found
        for _ in range(50):
            dry(_limit(self), 1 << 18)  # until the system finds nothing more that it can do without
            self.end(started(self, settings, forbid, *args)[0])
        pytest.fail("kernels start without memory")

    monkeypatch.setattr(WarmParent, "share", share)
    monkeypatch.setattr(Parent, "kernel", kernel)
    cells = sigmoid(EXPONENTIAL), "taken = bytearray(b'x') * (1 << 29)", cell("", "test"), "1"
    try:
        if times == 1:
            *_, graded, after = execute(*cells, tests=ALLOWED)
            assert text(graded).endswith("\n1.0") and text(after) == "1", text(graded) + text(after)
        else:
            with pytest.raises(NoMemory, match="memory ran out"):
                execute(*cells, tests=ALLOWED)
    finally:
        parents.close()


def test_memory_that_a_notebook_took_itself_costs_it_its_points(execute, warm, monkeypatch):
    """Its own limit was reached: that is told from a machine without memory, and nothing runs twice."""
    _limit(warm)
    seen, starved = [], Share.starved.fget
    monkeypatch.setattr(Share, "starved", property(lambda self: seen.append(starved(self)) or seen[-1]))
    processes = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        taken = bytearray(b"x") * (200 << 20); time.sleep(60)
os.wait()  # until the system has killed one
os._exit(1)
"""
    before, died, _ = execute("1", processes, "2", settings=replace(SETTINGS, memory=256 << 20))
    assert (text(before), text(died)) == ("1", f"{KERNEL_DIED}: the kernel died in this cell")
    assert seen == [False]


def test_the_kernels_of_a_notebook_have_their_memory_together(execute, warm):
    """Or the kernel that forbids operators, in which all cells run again, makes two limits of one."""
    _limit(warm)
    greedy = "taken = bytearray(b'x') * (230 << 20)"
    settings = replace(SETTINGS, memory=256 << 20)  # 384 MB together
    _, alone, graded, after = execute(
        sigmoid(EXPONENTIAL), greedy, cell("", "test"), "1", tests=ALLOWED, settings=settings
    )
    assert text(alone) == ""
    assert f"{KERNEL_DIED}: the kernel died in this cell" in (text(graded), text(after))  # whichever of the two it was


def _limit(warm: WarmParent) -> Path:
    """Where the limit of what all notebooks of a run may have together is written."""
    if warm._group is None:
        pytest.skip("no control group can be made here")
    return next(p for name in ("memory.max", "memory.limit_in_bytes") if (p := warm._group / name).exists())


@pytest.mark.parametrize("times", [1, 2])
def test_a_second_kernel_that_does_not_start_stops_nobody(execute, warm, monkeypatch, times):
    started, refusals = Parent.kernel, iter(range(times))

    def kernel(self: Parent, settings: Settings, forbid: Iterable[str] = (), *args: object) -> object:
        if forbid and next(refusals, None) is not None:
            raise SandboxError("no sandbox: a kernel could not start")
        return started(self, settings, forbid, *args)

    monkeypatch.setattr(Parent, "kernel", kernel)
    _, graded, after = execute(sigmoid(EXPONENTIAL), cell("", "test"), "1", tests=ALLOWED)
    assert text(graded).startswith(KERNEL_DIED) if times == 2 else text(graded).endswith("\n1.0"), text(graded)
    assert text(after) == "1"


def test_a_test_files_words_can_be_kept_in_a_file(execute):
    file = """%%writefile test_sigmoid.py
import json, os, struct
said = {"status": "failed", "test": "test_x", "kind": "\\ud800", "message": "\\ud800", "lines": []}
data = json.dumps(said).encode()
for fd in range(3, 64):
    try:
        os.write(fd, struct.pack("!i", len(data)) + data)
    except OSError:
        pass
def test_x():
    pass"""
    tests = {"test": 'from graders import grade\n\ngrade("sigmoid", "SigmoidTests", "catches")'}
    _, graded = execute(file, cell("", "test"), tests=tests)
    text(graded).encode()
    assert graded.outputs[-1].data["text/plain"] == "0.0", text(graded)


def test_a_test_file_sees_one_class_and_not_the_others(execute):
    """Of those that it is run on, some right, some wrong, their order would say which is which."""
    file = """%%writefile test_sigmoid.py
import sys
def texts(value, depth):
    if isinstance(value, str):
        return {value} if "class Sigmoid" in value and "def forward" in value and "seen" not in value else set()
    if isinstance(value, (list, tuple, dict)) and depth:
        inside = value.values() if isinstance(value, dict) else value
        return set().union(*(texts(v, depth - 1) for v in inside))
    return set()
def test_one():
    frame, seen = sys._getframe(), set()
    while frame:
        seen |= texts(dict(frame.f_locals), 4)
        frame = frame.f_back
    assert len(seen) == 1, len(seen)"""
    tests = {"test": 'from graders import grade\n\ngrade("sigmoid", "SigmoidTests", "catches")'}
    _, graded = execute(file, cell("", "test"), tests=tests)
    assert "Catches 0 of" in text(graded), text(graded)  # it failed on none


CALLS = """
import ctypes, fcntl, os, socket
libc = ctypes.CDLL(None, use_errno=True)
file, room = open("/usr/bin/env", "rb"), ctypes.create_string_buffer(64)
WATCHES = [(libc.inotify_init1, 0), (libc.inotify_init,), (libc.fanotify_init, 0x200, 0),
           (libc.syscall, 451, file.fileno(), room, room, 0), (libc.syscall, 300, 0, 0)]
TOLD = [(5, room), (36, room), (1024, 0), (1026, 1)]  # F_GETLK, F_OFD_GETLK, F_SETLEASE, F_NOTIFY
def leaves(name):
    return libc.syscall(248, b"user", name, b"x", 1, -3) > 0
def sees(name):
    return libc.syscall(250, 10, -3, b"user", name, 0) > 0
def makes(family, kind=socket.SOCK_STREAM):
    try:
        socket.socket(family, kind).close()
        return True
    except OSError:
        return False
def refused(call, *arguments):
    return ctypes.get_errno() if call(*arguments) < 0 else 0
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of another processor")
def test_keys_of_the_grader_are_not_seen_and_none_are_left(execute, monkeypatch):
    """Whoever logs in has a session keyring, and a kernel would be in the same session."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(250, 1, None) < 0 or libc.syscall(248, b"user", b"graders-own", b"x", 1, -3) < 0:
        pytest.skip("there are no keyrings")
    monkeypatch.setattr(parents, "_warm", {})  # a warm parent in the new session
    look = f"{CALLS}\nprint(sees(b'graders-own'), sees(b'mallory'), leaves(b'mallory'))"
    try:
        assert [text(c) for c in execute(look, look)] == ["False False False\n"] * 2
    finally:
        parents.close()


@pytest.mark.parametrize(
    ("reach", "found"),
    [
        ("makes(40)", False),  # AF_VSOCK: to the machine's host, from within any network namespace
        ("makes(1) and makes(2)", True),
        ("libc.syscall(425, 4, ctypes.create_string_buffer(200)) >= 0", False),  # io_uring
        ("libc.syscall(323, 1) >= 0", False),  # userfaultfd
        ("libc.syscall(0x40000000 | 39) >= 0", False),  # x32
        ("refused(libc.unshare, 0x10000000)", 1),  # EPERM: by the filter; where there may be none of it, ENOSPC
        ("refused(libc.syscall, 56, 0x10000000 | 17, 0, 0, 0, 0)", 1),  # clone, into a namespace for users
        (
            "[refused(get, 0, 4096, 0o1600) for get in (libc.shmget, libc.semget)]",
            [1, 1],
        ),  # no limit counts their memory
        ("refused(libc.msgget, 0, 0o1600)", 1),
        ("makes(16, socket.SOCK_RAW)", False),  # AF_NETLINK: a dozen protocols of the kernel's
        ("[refused(watch, *a) for watch, *a in WATCHES]", [1] * 5),  # who of the machine uses which file
        ("refused(libc.syscall, 103, 10, 0, 0)", 1),  # syslog: the machine's messages
        ("refused(libc.syscall, 447, 0)", 1),  # memfd_secret
        ("[refused(libc.fcntl, file.fileno(), *a) for a in TOLD]", [1] * 4),
        ("refused(libc.flock, file.fileno(), 1)", 1),  # a word for another notebook
        ("fcntl.lockf(open('own', 'w'), fcntl.LOCK_EX)", None),  # what sqlite does with a file of the notebook's
        ("sorted(os.listdir('/proc'))", ["1", "self", "thread-self"]),
        ("refused(libc.syscall, 435, 0, 0)", 38),  # clone3: libc takes clone
        ("os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1]", 0),
    ],
)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of another processor")
def test_what_no_namespace_holds_in_is_refused(execute, reach, found):
    (shown,) = execute(f"{CALLS}\nprint({reach})")
    assert text(shown) == f"{found}\n"


def test_a_kernel_stays_the_first_to_go_when_memory_runs_out(execute):
    first, second = execute(
        "open('/proc/self/oom_score_adj', 'w').write('0')", "print(open('/proc/self/oom_score_adj').read().strip())"
    )
    assert first.outputs[-1].ename == "OSError"
    assert text(second) == "1000\n"


def test_terminals_are_a_kernels_own(execute, warm):
    with Kernel(warm, SETTINGS) as other:
        other.quiet("import os\npairs = os.openpty()", 20)
        (shown,) = execute("import os\nprint(sorted(os.listdir('/dev/pts')))\nwhile True: os.openpty()")
    assert text(shown).startswith("['ptmx']\n")
    assert "No space left" in text(shown)


def test_a_package_installed_in_the_environment_is_not_seen(execute, monkeypatch):
    """As on a worker of another machine: there no checkout is needed."""
    package = Path(nbgrader.__file__).parent  # takes the part of ours, in the environment's site-packages
    look = f"import os\nprint(os.listdir({str(package)!r}))\nopen({str(package / 'x')!r}, 'w')"
    monkeypatch.setattr(sandbox, "_package", lambda: package)
    monkeypatch.setattr(parents, "_warm", {})
    try:
        (shown,) = execute(look)
    finally:
        parents.close()
    assert text(shown).startswith("[]\n")
    assert "Read-only" in text(shown)


def test_an_ordinary_users_kernels_leave_nothing_to_the_next(warm):
    code = (
        "from graders.engine.run import run; from graders.engine.parents import close\n"
        "from graders.engine.job import Job; import nbformat, os, sys\n"
        "from nbformat.v4 import new_code_cell, new_notebook\n"
        "assert os.geteuid() != 0\n"
        "job = Job(nbformat.writes(new_notebook(cells=[new_code_cell(sys.argv[1])])))\n"
        "print([run(job), run(job)][1]); close()"
    )
    leave = (
        "import os\n"
        "for folder, _, names in os.walk('/'):\n"
        "    if 'mallory' in names: print('FOUND', folder)\n"
        "    if not folder.startswith(('/proc', '/usr', '/work', '/root', '/home')):\n"
        "        try: open(folder + '/mallory', 'w').close()\n"
        "        except OSError: pass\n"
        "print('END')"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, leave]
    if os.geteuid() == 0:
        command = ["unshare", "--user", "--map-user=1234", "--map-group=1234", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "END" in done.stdout, done.stderr
    assert "FOUND /" not in done.stdout
