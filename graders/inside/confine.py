"""Walls around a kernel that are put up after the fork: namespaces, mounts, limits, no way back. Linux only.

Runs on the kernel's side, before student code. `sandbox` has already started the warm parent inside bubblewrap; each
kernel gets namespaces of its own on top, so that kernels do not see each other either.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

NEW_NS, NEW_UTS, NEW_IPC = 0x20000, 0x4000000, 0x8000000
NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000
NEW_ANY = NEW_NS | NEW_UTS | NEW_IPC | NEW_USER | NEW_PID | NEW_NET | 0x2000000  # and cgroup
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 4, 24, 38, 47
CAPABILITY_VERSION_3 = 0x20080522
JOIN_SESSION_KEYRING = 1
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
TERMINALS = 16
UID = 1000  # inside
ROOM = "/room"  # where a kernel works


@dataclass(frozen=True)
class Calls:
    """A processor's numbers of the system calls that no notebook needs and no namespace holds in.

    Args:
        arch: what the kernel calls the processor.
        socket: of which families other than `FAMILIES` are refused: AF_VSOCK leads to the machine's host.
        keys: add_key, request_key, keyctl: keyrings outlive a process.
        segments: shmget, semget, msgget: memory that no limit of a process counts.
        others: io_uring_setup (sockets past this filter), userfaultfd, bpf, perf_event_open; unshare and setns: in a
            user namespace of its own a process would have capabilities.
        shared: of the system's files, which every notebook sees: inotify_init1, inotify_init, fanotify_init and
            cachestat tell who uses them, flock leaves word on them; syslog is the machine's, and memfd_secret is
            memory that nobody can look into.
        fcntl: with the commands `TELLING` for the same reason.
        clone: for the same reason refused with a flag of `NEW_ANY`.
        clone3: has its flags where no filter can look; said to be none of the kernel's, so that libc takes clone.
    """

    arch: int
    socket: int
    keys: tuple[int, ...]
    segments: tuple[int, ...]
    others: tuple[int, ...]
    shared: tuple[int, ...]
    fcntl: int
    clone: int
    clone3: int = 435


CALLS = {
    "x86_64": Calls(
        0xC000003E,
        41,
        (248, 249, 250),
        (29, 64, 68),
        (425, 323, 321, 298, 272, 308),
        (294, 253, 300, 451, 73, 103, 447),
        72,
        56,
    ),
    "aarch64": Calls(
        0xC00000B7,
        198,
        (217, 218, 219),
        (194, 190, 186),
        (425, 282, 280, 241, 97, 268),
        (26, 262, 451, 32, 116, 447),  # it has one call for inotify
        25,
        220,
    ),
}
FAMILIES = (1, 2, 10)  # unix, inet, inet6: each within a namespace
# F_GETLK, F_OFD_GETLK: whose lock is there; F_SETLEASE, F_NOTIFY: who opens it. Locks of a notebook's own files stay
TELLING = (5, 36, 1024, 1026)


class ConfineError(OSError):
    """A wall could not be put up."""


_libc = ctypes.CDLL(None, use_errno=True)


def _checked(what: str, result: int) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise ConfineError(error, f"{what}: {os.strerror(error)}")


def dumpable(on: bool) -> None:
    """Allow or forbid processes of the same user to look into this one, and this one into its own /proc."""
    _checked("prctl", _libc.prctl(PR_SET_DUMPABLE, int(on), 0, 0, 0))


def unshare() -> None:
    """Give this process new namespaces (for pid: its children), with one user in them."""
    uid, gid = os.getuid(), os.getgid()
    _checked("unshare", _libc.unshare(NEW_USER | NEW_PID | NEW_NS | NEW_NET | NEW_IPC | NEW_UTS))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{UID} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{UID} {gid} 1")


def confine(disk: int, tmp: bool = True) -> None:
    """Mount its own files in the first process of the new namespaces, then drop every capability that could undo that.

    Args:
        disk: bytes that all files together may take.
        tmp: whether there is a /tmp.
    """
    _mount("none", "/", "", MS_REC | MS_PRIVATE, "")
    if calls := CALLS.get(platform.machine()):  # a keyring of its own: the grader's session may have one with keys
        _libc.syscall(calls.keys[-1], JOIN_SESSION_KEYRING, None)
    with suppress(OSError):  # in this namespace: no new ones, in which it would have capabilities
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
    _mount_processes()
    for place, mode in ((ROOM, "0700"), *[("/tmp", "1777")] * tmp, ("/dev/shm", "1777")):
        _mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV, f"size={disk},nr_inodes=4096,mode={mode}")
    with suppress(ConfineError):  # terminals of its own: not those of the kernels beside it
        _mount(
            "devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, f"newinstance,ptmxmode=0666,mode=620,max={TERMINALS}"
        )
    _mount("tmpfs", "/course", "tmpfs", MS_NOSUID | MS_NODEV, "size=0,mode=0")
    _checked("prctl", _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    capability = 0
    while _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    _libc.prctl(PR_CAP_AMBIENT, 4, 0, 0, 0)  # clear all
    head = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    _checked("capset", _libc.capset(head, (ctypes.c_uint32 * 6)()))
    _checked("prctl", _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if calls:
        _filter(calls)


def _mount_processes() -> None:
    """Mount a /proc of its own: of its processes alone, where the kernel can; not of the machine's use and hardware."""
    for options in ("subset=pid", ""):
        with suppress(ConfineError):  # read-only: its oom_score_adj is to stay
            _mount("proc", "/proc", "proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, options)
            return
    # inside a container that hides parts of its own
    _mount("tmpfs", "/proc", "tmpfs", MS_NOSUID | MS_NODEV, "size=0,mode=0555")


Line = tuple[int, int, int, int]  # of a filter: what to do, lines to skip if so, lines to skip if not, a number
LOAD, EQUAL, AT_LEAST, ANY_BIT, END = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCH, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24  # where the kernel puts these for a filter to load
ALLOW, ERROR = 0x7FFF0000, 0x50000  # how a call ends: as it does, or with an error number


def _when(test: int, value: int, *lines: Line) -> list[Line]:
    """Return lines of a filter that run if what was loaded passes the test, and are skipped if not."""
    return [(test, 0, len(lines), value), *lines]


def _unless(test: int, value: int, *lines: Line) -> list[Line]:
    """Return lines of a filter that are skipped if what was loaded passes the test."""
    return [(test, len(lines), 0, value), *lines]


def _program(calls: Calls) -> list[Line]:
    """Return the filter of system calls, line by line."""
    allow: Line = (END, 0, 0, ALLOW)
    refuse, no_call, no_family = ((END, 0, 0, ERROR | e) for e in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT))
    first_argument: Line = (LOAD, 0, 0, FIRST_ARGUMENT)
    lines: list[Line] = [
        (LOAD, 0, 0, ARCH),
        *_unless(EQUAL, calls.arch, refuse),  # no other processor's numbers
        (LOAD, 0, 0, NUMBER),
        *_when(AT_LEAST, 1 << 30, refuse),  # nor x32's
    ]
    for number in (*calls.keys, *calls.segments, *calls.others, *calls.shared):
        lines += _when(EQUAL, number, refuse)
    commands = [line for command in TELLING for line in _when(EQUAL, command, refuse)]
    lines += _when(EQUAL, calls.fcntl, (LOAD, 0, 0, SECOND_ARGUMENT), *commands, allow)
    lines += _when(EQUAL, calls.clone3, no_call)
    lines += _when(EQUAL, calls.clone, first_argument, *_when(ANY_BIT, NEW_ANY, refuse), allow)
    lines += [*_unless(EQUAL, calls.socket, allow), first_argument]
    for family in FAMILIES:
        lines += _when(EQUAL, family, allow)
    return [*lines, no_family]


def _filter(calls: Calls) -> None:
    """Refuse system calls from now on, in all that is started too (where the kernel can: it is one wall more)."""
    _install(_program(calls))


def _install(lines: list[Line]) -> None:
    program = b"".join(struct.pack("HBBI", *line) for line in lines)
    held = ctypes.create_string_buffer(program)
    head = ctypes.create_string_buffer(struct.pack("HP", len(program) // 8, ctypes.addressof(held)))
    _libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, head, 0, 0)


EXECUTES = {"x86_64": (59, 322), "aarch64": (221, 281)}  # execve, execveat


def no_programs() -> None:
    """Refuse to start programs from now on; forks and threads go on."""
    if (machine := platform.machine()) in CALLS:
        lines: list[Line] = [(LOAD, 0, 0, NUMBER)]
        for number in EXECUTES[machine]:
            lines += _when(EQUAL, number, (END, 0, 0, ERROR | errno.EPERM))
        _install([*lines, (END, 0, 0, ALLOW)])


def _mount(source: str, place: str, kind: str, flags: int, data: str) -> None:
    result = _libc.mount(source.encode(), place.encode(), kind.encode(), flags, data.encode())
    _checked(f"mount {place}", result)


def limit(memory: int, processes: int | None, disk: int, seconds: int) -> None:
    """Set the resource limits of this process and all that it starts.

    Args:
        memory: bytes that each process may map beyond what is mapped now.
        processes: None: not limited (outside of a user namespace that would count the user's other processes).
        disk: bytes of all files; one may have a quarter.
        seconds: of CPU time of one process.
    """
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 128,
        resource.RLIMIT_FSIZE: disk // 4,  # of a file in memory alone too: these times 128 is all of them
        resource.RLIMIT_CPU: seconds,
    }
    if hasattr(resource, "RLIMIT_MSGQUEUE"):
        wanted |= {resource.RLIMIT_MSGQUEUE: 0, resource.RLIMIT_MEMLOCK: 1 << 16}
    if processes is not None:
        wanted[resource.RLIMIT_NPROC] = processes
    if mapped := _mapped():
        wanted[resource.RLIMIT_AS] = mapped + memory
    for what, most in wanted.items():
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def _mapped() -> int:
    """Return the bytes of address space of this process, 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
