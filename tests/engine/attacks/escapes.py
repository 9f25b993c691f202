"""Attacks on the sandbox itself and on the process that all kernels are forked from."""

from tests.engine.attacks import Attack, late
from tests.engine.attacks.files import HUNT
from tests.engine.attacks.limits import CONTAINED

ATTACKS: list[Attack] = []

SYSTEM = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(name, *args):
    result = getattr(libc, name)(*args)
    print(name, result, os.strerror(ctypes.get_errno()) if result < 0 else "ok")
    return result
"""


def _escape(name: str, tries: str, code: str = "", **more: object) -> None:
    ATTACKS.append(Attack(name, "Leaving the sandbox", tries, **{"answers": late(code), **more}))


def _parent(name: str, tries: str, code: str = "", **more: object) -> None:
    ATTACKS.append(Attack(name, "The warm parent", tries, **{"answers": late(code), **more}))


_escape("open-handle", "goes up from every open directory handle, and from the roots and working folders in /proc", HUNT + """
for fd in range(3, 1024):
    try:
        os.fchdir(fd)
        for _ in range(30):
            os.chdir("..")
        hunt("." + "@COURSE@", "." + "@HOME@")
    except OSError:
        pass
for pid in [n for n in os.listdir("/proc") if n.isdigit()]:
    for name in ("root", "cwd"):
        hunt(f"/proc/{pid}/{name}@COURSE@", f"/proc/{pid}/{name}@HOME@")
""")  # fmt: skip
_escape("chroot", "makes a root of its own, keeps a handle outside and climbs to the real root", HUNT + SYSTEM + """
here = os.open("/", os.O_RDONLY)
os.makedirs("jail", exist_ok=True)
for act in (lambda: os.chroot("jail"), lambda: os.fchdir(here)):
    try:
        act()
    except OSError as error:
        print(error)
for _ in range(30):
    os.chdir("..")
try:
    os.chroot(".")
except OSError as error:
    print(error)
hunt("@COURSE@", "@HOME@")
""")  # fmt: skip
_escape("new-namespaces", "makes a user namespace of its own, where it has all capabilities, and mounts what it finds",
        HUNT + SYSTEM + CONTAINED + """
pid = os.fork()
if pid == 0:
    try:
        for flags in (0x10000000 | 0x20000, 0x20000, 0x10000000, 0x40000000, 0x02000000):
            call("unshare", flags)
        os.makedirs("mnt", exist_ok=True)
        for source, kind, flags in ((b"/", None, 4096), (b"proc", b"proc", 0), (b"/dev/vda", b"ext4", 1), (b"none", b"tmpfs", 0),
                                    (b"none", b"sysfs", 0), (b"none", b"cgroup2", 0), (b"/", b"", 32 | 4096)):
            if call("mount", source, b"mnt", kind, flags, None) == 0:
                print("DAMAGE: mounted", source, kind)
                hunt("mnt@COURSE@", "mnt@HOME@")
        for place in (b"/room", b"/tmp", b"/proc", b"/course", b"/"):
            if call("umount2", place, 2) == 0:
                print("DAMAGE: unmounted", place)
        call("syscall", 155, b".", b".")
        call("syscall", 428, -100, b"/", 0x1)
        call("syscall", 430, b"tmpfs", 0)
    finally:
        import sys
        sys.stdout.flush()
        os._exit(0)
os.waitpid(pid, 0)
""")  # fmt: skip
_escape("other-namespaces", "enters the namespaces of every process it can see", HUNT + SYSTEM + """
for pid in [n for n in os.listdir("/proc") if n.isdigit()]:
    for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        try:
            fd = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
        except OSError:
            continue
        same = os.readlink(f"/proc/{pid}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}")
        if libc.setns(fd, 0) == 0 and not same:
            print("DAMAGE: entered", pid, kind)
        os.close(fd)
hunt("@COURSE@")
""")  # fmt: skip
_escape("capabilities", "uses set-user-id programs and capabilities: su, mount, raw devices, kernel settings", SYSTEM + """
import subprocess
for command in (["su", "-c", "id"], ["mount", "-t", "tmpfs", "none", "/tmp"], ["unshare", "-Ur", "id", "-u"], ["sudo", "-n", "id"]):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5)
        if done.returncode == 0:
            print("DAMAGE:", command, done.stdout[:80])
    except (OSError, subprocess.SubprocessError) as error:
        print(error)
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper",
             "/proc/sys/kernel/hostname", "/sys/fs/cgroup/cgroup.procs", "/dev/mem", "/dev/vda", "/dev/kmsg"):
    try:
        os.close(os.open(path, os.O_WRONLY))
        print("DAMAGE: opened for writing", path)
    except OSError:
        pass
for kind, number in (("c", os.makedev(1, 1)), ("b", os.makedev(254, 0))):
    try:
        os.mknod(f"mallory-{kind}", 0o600 | (0o20000 if kind == "c" else 0o60000), number)
        print("DAMAGE: made a device")
    except OSError:
        pass
try:
    status = open("/proc/self/status").read()
    caps = [line for line in status.splitlines() if line.startswith(("CapEff", "CapPrm", "NoNewPrivs"))]
    print(caps)
except OSError:
    pass
""")  # fmt: skip
_escape("fork-outside", "clones into new namespaces with clone3 and vfork, and sends its descriptors away", SYSTEM + """
import array, socket
for flags in (0x10000000, 0x20000, 0x20000000):
    pid = libc.syscall(56, flags | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    if pid > 0:
        os.waitpid(pid, 0)
        if flags != 0x20000000:
            print("cloned", hex(flags))
""")  # fmt: skip

_parent("signal-parent", "sends every signal to its parent, to process 1 and to its group", CONTAINED + """
import os
for target in (os.getppid(), 1):
    for number in (1, 2, 3, 10, 12, 13, 14, 15, 18, 20, 23, 28):
        try:
            if target not in (0, os.getpid()):
                os.kill(target, number)
        except OSError:
            pass
""")  # fmt: skip
_parent("write-into-parent", "writes into the memory of its parent and of every process, by ptrace and /proc", CONTAINED + """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
class Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
data = ctypes.create_string_buffer(8)
for pid in [int(n) for n in os.listdir("/proc") if n.isdigit()] + [os.getppid()]:
    if pid in (0, os.getpid()):
        continue
    if libc.ptrace(16, pid, None, None) == 0:
        print("DAMAGE: traces", pid)
        libc.ptrace(17, pid, None, None)
    here, there = Span(ctypes.addressof(data), 8), Span(id(int), 8)
    if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) == 8:
        print("DAMAGE: reads the memory of", pid)
    try:
        with open(f"/proc/{pid}/mem", "r+b", 0):
            print("DAMAGE: opens the memory of", pid)
    except OSError:
        pass
    pidfd = libc.syscall(434, pid, 0)
    if pidfd >= 0:
        for fd in range(64):
            if libc.syscall(438, pidfd, fd, 0) >= 0:
                print("DAMAGE: takes a descriptor of", pid)
                break
    try:
        import resource
        resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))
        print("DAMAGE: limits", pid)
    except (OSError, ValueError):
        pass
""")  # fmt: skip
_parent("poison-parent", "changes modules, type slots and interned objects, hoping that the next kernel is forked from them", """
import ctypes, sys
import numpy, torch, matplotlib
try:
    import graders.inside.operation, graders.inside.observe, graders.inside.wire
    graders.inside.wire.encode = graders.inside.observe.observe = graders.inside.operation.send = None
except ImportError:
    pass
torch.where = numpy.array = lambda *a, **k: None
torch.autograd.Function.apply = classmethod(lambda cls, *a: a[0])
torch.tensor = None
ctypes.memmove(id(257) + 24, (42).to_bytes(4, "little"), 4)
sys.modules["torch"].float64 = torch.float16
""")  # fmt: skip
_parent("parent-descriptors", "writes commands and junk to every descriptor that it inherited", """
import os, json
lines = [json.dumps({"do": "end", "kernel": n}).encode() + b"\\n" for n in range(8)]
for fd in range(0, 256):
    for junk in (*lines, b'{"do": "quit"}\\n'):
        try:
            os.set_blocking(fd, False)
            os.write(fd, junk)
        except OSError:
            break
""")  # fmt: skip
