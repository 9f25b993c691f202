"""Attacks on the time, memory, processes and output that a notebook gets, and on the process that runs it."""

from tests.engine.attacks import ASKED, Attack, late

ATTACKS: list[Attack] = []


def _end(name: str, tries: str, first: str = "", **more: object) -> None:
    ATTACKS.append(Attack(name, "Ending the run", tries, first, **more))


def _time(name: str, tries: str, first: str = "", **more: object) -> None:
    ATTACKS.append(Attack(name, "Time", tries, first, **{"slow": True, **more}))


def _memory(name: str, tries: str, code: str = "", **more: object) -> None:
    ATTACKS.append(Attack(name, "Memory and disk", tries, **{"answers": late(code), **more}))


def _processes(name: str, tries: str, code: str = "", **more: object) -> None:
    ATTACKS.append(Attack(name, "Processes", tries, **{"answers": late(code), **more}))


def _output(name: str, tries: str, first: str = "", **more: object) -> None:
    ATTACKS.append(Attack(name, "Output", tries, first, **more))


# Where a sandbox is missing, what would reach all processes does not go off: it says so instead.
CONTAINED = """
import os
try:
    seen = len([n for n in os.listdir("/proc") if n.isdigit()])
except OSError:
    seen = 0
assert seen < 40, f"DAMAGE: sees {seen} processes"
"""

_end("sys-exit", "calls sys.exit, exit and raises SystemExit in its answer", "import sys\nsys.exit(0)", answers={
    "Tanh": "raise SystemExit(0)", "LeakyReLU": "exit()"}, sees="")  # fmt: skip
_end("os-exit", "ends its process with exit code 0 before the tests", answers={"LeakyReLU": "import os\nos._exit(0)"},
     sees="the kernel died in cell LeakyReLU")  # fmt: skip
_end(
    "exit-when-asked",
    "ends its process with exit code 0 when a test calls its code",
    answers={
        "LeakyReLU": ASKED
        + """
import os
class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        os._exit(0)
"""
    },
)
_end("kill-itself", "kills its own process", answers={"LeakyReLU": "import os\nos.kill(os.getpid(), 9)"},
     sees="nothing is called LeakyReLU")  # fmt: skip
_end("kill-parent", "kills its parent and the parent's group", answers={"LeakyReLU": """
import os
for act in (lambda: os.kill(os.getppid(), 9), lambda: os.killpg(os.getpgid(os.getppid()), 9)):
    try:
        act()
    except OSError as error:
        print(error)
"""})  # fmt: skip
_end("kill-all", "sends SIGKILL to every process that it may signal", answers={"LeakyReLU": CONTAINED + """
import os
os.kill(-1, 9)
for pid in range(1, 400):
    try:
        if pid != os.getpid():
            os.kill(pid, 9)
    except OSError:
        pass
"""})  # fmt: skip
_end("stop-parent", "stops its parent with SIGSTOP, and itself", answers={"LeakyReLU": """
import os
try:
    os.kill(os.getppid(), 19)
except OSError:
    pass
os.kill(os.getpid(), 19)
"""}, slow=True)  # fmt: skip
_end("segfault", "crashes the interpreter", answers={"LeakyReLU": "import ctypes\nctypes.string_at(0)"},
     sees="the kernel died in cell LeakyReLU")  # fmt: skip
_end("recursion", "recurses without end, in Python and in __repr__", answers={"LeakyReLU": """
import sys
sys.setrecursionlimit(10**9)
class R:
    def __repr__(self):
        return repr(self)
R()
"""})  # fmt: skip
_end("closed-descriptors", "closes every open file descriptor", answers={"LeakyReLU": """
import os
os.closerange(0, 4096)
"""})  # fmt: skip

_time("endless-loop", "loops, and catches every exception, KeyboardInterrupt too", answers={"LeakyReLU": """
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""})  # fmt: skip
_time("loop-in-c", "runs a C loop that never looks at signals", answers={
    "LeakyReLU": "import itertools\nsum(itertools.repeat(0))"})  # fmt: skip
_time("loop-in-thread", "holds the interpreter's lock in a thread for ever", answers={"LeakyReLU": """
import itertools, threading
threading.Thread(target=lambda: sum(itertools.repeat(0)), daemon=True).start()
"""})  # fmt: skip
_time("loop-in-del", "loops in __del__ of an object that is collected later", answers={"LeakyReLU": """
class Late:
    def __del__(self):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass
late = Late()
late = None
"""})  # fmt: skip
_time("loop-in-backward", "loops in backward, when a test asks for the gradient", answers={"LeakyReLU": ASKED + """
class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        return torch.where(x > 0, x, slope * x)
    @staticmethod
    def backward(ctx, g):
        while asked():
            try:
                while True:
                    pass
            except BaseException:
                pass
        return g, None
"""}, honest=5)  # fmt: skip
_time("loop-in-getattr", "loops when its name is looked up, and in the text of its exception", answers={"LeakyReLU": """
class Slow(Exception):
    def __str__(self):
        while True:
            pass
class Meta(type):
    def __getattribute__(cls, name):
        raise Slow
class LeakyReLU(metaclass=Meta):
    pass
"""})  # fmt: skip
_time("sleep-under-limit", "sleeps in each cell and each call, just below the time that one may take", answers={
    "LeakyReLU": """
import time
class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        time.sleep(1.7)
        return x + 1
    @staticmethod
    def backward(ctx, g):
        time.sleep(1.7)
        return g, None
"""}, first="import time\ntime.sleep(1.7)")  # fmt: skip
_time("ignored-interrupt", "ignores SIGINT and SIGTERM and sleeps", answers={"LeakyReLU": """
import signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
time.sleep(10**6)
"""})  # fmt: skip
_time("slow-everywhere", "makes each of its cells and its answers slow by a trace function", answers=late("""
import sys
def crawl(*a):
    for _ in range(2000):
        pass
    return crawl
sys.settrace(crawl)
sys.setprofile(crawl)
"""))  # fmt: skip
_time("regex", "lets a regular expression backtrack for years", answers={
    "LeakyReLU": "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')"})  # fmt: skip

GREEDY = """
import os, sys
MOST = 6000
said = set()
def say(megabytes):
    if megabytes >= 4000 and "DAMAGE" not in said:
        said.add("DAMAGE")
        print("DAMAGE: took 4 GB", flush=True)
"""
_memory("memory-list", "fills memory by Python objects", GREEDY + """
kept = []
try:
    while len(kept) < MOST:
        kept.append(b"x" * 2**20)
        say(len(kept))
except MemoryError:
    pass
say(len(kept))
del kept
""")  # fmt: skip
_memory("memory-tensor", "fills memory by one tensor, then by many", GREEDY + """
import torch
kept = []
try:
    while len(kept) < MOST // 100:
        kept.append(torch.ones(100 * 2**18))
        say(100 * len(kept))
    torch.ones(10**12)
except (RuntimeError, MemoryError):
    pass
say(100 * len(kept))
del kept
""")  # fmt: skip
_memory("memory-shared", "fills memory by shared mappings, segments and files that exist in memory alone", GREEDY + """
import ctypes, mmap
kept, size = [], 0
libc = ctypes.CDLL(None)
libc.shmat.restype, libc.shmdt.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
while size < MOST:  # it stays when it is mapped no more
    place = libc.shmat(libc.shmget(0, ctypes.c_size_t(100 * 2**20), 0o1600), None, 0)
    if place in (None, 2**64 - 1):
        break
    ctypes.memset(place, 1, 100 * 2**20)
    libc.shmdt(place)
    size += 100
    say(size)
try:
    while size < 1500:
        kept.append(mmap.mmap(-1, 50 * 2**20))
        kept[-1].write(b"x" * 50 * 2**20)
        size += 50
except (OSError, MemoryError, ValueError):
    pass
kept = [size]
for number in range(200):
    try:
        fd = os.memfd_create(f"{number}")
        while size < MOST:
            size += os.write(fd, b"x" * 2**20) >> 20
            say(size)
    except OSError:
        pass
print(kept, size)
""")  # fmt: skip
_memory("memory-processes", "fills memory by processes, each below the limit of one", GREEDY + """
import time
children, full = [], set()
r, w = os.pipe()
try:
    for number in range(10):
        pid = os.fork()
        if pid == 0:
            try:
                kept = [b"x" * 2**20 for _ in range(600)]
                os.write(w, bytes([number]))
            except BaseException:
                pass
            time.sleep(30)
            os._exit(0)
        children.append(pid)
except OSError:
    pass
os.set_blocking(r, False)
for _ in range(20):
    time.sleep(0.1)
    try:
        full.update(os.read(r, 100))
    except BlockingIOError:
        pass
    time.sleep(0.1)  # one that was killed for its memory gives it back before it is seen to be dead
    full = {number for number in full if os.waitpid(children[number], os.WNOHANG) == (0, 0)}
    say(600 * len(full))  # what they have at the same time
for pid in children:
    try:
        os.kill(pid, 9)
    except OSError:
        pass
print(len(full))
""", slow=True)  # fmt: skip
_memory("full-disk", "fills every folder that it can write to", GREEDY + """
size = 0
for place in (".", "/tmp", "/dev/shm", "/var/tmp", os.path.expanduser("~"), "/run", "/room", "@COURSE@"):
    try:
        with open(f"{place}/mallory-fill", "wb") as file:
            for _ in range(2000):
                if size < MOST:
                    size += file.write(b"x" * 2**20) >> 20
    except OSError as error:
        print(place, error)
say(size)
for place in (".", "/tmp", "/dev/shm", "/var/tmp", os.path.expanduser("~"), "/run", "/room", "@COURSE@"):
    try:
        os.remove(f"{place}/mallory-fill")
    except OSError:
        pass
""")  # fmt: skip
_memory("inodes", "makes as many small files as it can", """
import os
made = 0
for place in ("/tmp", "/dev/shm", "."):
    try:
        os.mkdir(f"{place}/mallory-many")
        for number in range(20_000):
            open(f"{place}/mallory-many/{number}", "w").close()
            made += 1
    except OSError as error:
        print(place, error)
if made >= 20_000:
    print(f"DAMAGE: made {made} files")
""")  # fmt: skip
_memory("descriptors", "opens files, sockets and pipes until no more can be opened", """
import os, socket
kept = []
try:
    while len(kept) < 100_000:
        kept += [os.open("/dev/null", 0), *socket.socketpair(), *os.pipe()]
except OSError as error:
    print(error)
if len(kept) > 10_000:
    print(f"DAMAGE: holds {len(kept)} descriptors")
""")  # fmt: skip
_memory("kernel-buffers", "fills the buffers of sockets and pipes, which no limit of a process counts", GREEDY + """
import fcntl, socket
kept, size = [], 0
try:
    while size < MOST and len(kept) < 20_000:
        a, b = socket.socketpair()
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**28)
        a.setblocking(False)
        kept += [a, b]
        try:
            while size < MOST:
                size += a.send(b"x" * 2**16) / 2**20
                say(size)
        except BlockingIOError:
            pass
except OSError:
    pass
print(int(size))
""")  # fmt: skip

_processes("fork-bomb", "forks until it cannot, 300 at most", """
import os, time
made = []
try:
    while len(made) < 300:
        pid = os.fork()
        if pid == 0:
            try:
                time.sleep(20)
            finally:
                os._exit(0)
        made.append(pid)
except OSError as error:
    print(error)
if len(made) >= 300:
    print("DAMAGE: made 300 processes")
""")  # fmt: skip
_processes("forked-twice", "forks in its answer and lets both go on: two kernels answer", answers={
    "LeakyReLU": "import os\nos.fork()"})  # fmt: skip
_processes("thread-bomb", "starts threads until it cannot, 3000 at most", """
import threading, time
made = []
try:
    while len(made) < 3000:
        made.append(threading.Thread(target=time.sleep, args=(10,), daemon=True))
        made[-1].start()
except (RuntimeError, MemoryError) as error:
    print(error)
if len(made) >= 3000:
    print("DAMAGE: made 3000 threads")
""")  # fmt: skip
_processes("daemon", "forks twice, opens a session, resets its death signal, ignores signals and stays", """
import ctypes, os, signal, time
if os.fork() == 0:
    try:
        os.setsid()
    except OSError:
        pass
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        os.closerange(0, 4096)
        time.sleep(60)
    os._exit(0)
""")  # fmt: skip
_processes("late-code", "leaves code for the end of the process: atexit, finalizers, threads, signal handlers", """
import atexit, signal, threading, time, weakref
def late(*a):
    while True:
        try:
            time.sleep(1)
        except BaseException:
            pass
atexit.register(late)
class Thing:
    pass
thing = Thing()
weakref.finalize(thing, late)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
    signal.signal(number, late)
threading.Thread(target=late).start()
""")  # fmt: skip
_processes("detached-program", "starts a shell command that goes on by itself", """
import subprocess
try:
    subprocess.Popen("nohup setsid sleep 60 >/dev/null 2>&1 &", shell=True, start_new_session=True)
except OSError as error:
    print(error)
""")  # fmt: skip
_processes("other-users", "becomes root, then one user after the other, to pass limits that count per user", """
import os
for uid in (0, *range(1, 3000)):
    try:
        os.setresuid(uid, uid, uid)
        print("became", uid)
    except OSError:
        pass
""")  # fmt: skip

_output("print-flood", "prints for ever", answers={"LeakyReLU": "while True:\n    print('x' * 1000)"}, slow=True)
_output("descriptor-flood", "writes to descriptors 1 and 2 for ever", answers={
    "LeakyReLU": "import os\nwhile True:\n    os.write(1, b'x' * 65536)\n    os.write(2, b'x' * 65536)"}, slow=True)  # fmt: skip
_output("display-flood", "displays and updates displays for ever", answers={"LeakyReLU": """
from IPython.display import display
handle = display("x", display_id=True)
while True:
    display("y" * 100)
    handle.update("z")
"""}, slow=True)  # fmt: skip
_output("huge-result", "ends a cell with a text of 300 MB", answers={"LeakyReLU": "'x' * 300_000_000"})
_output("huge-repr", "displays HTML, an image and a JSON of 60 MB each", answers={"LeakyReLU": """
from IPython.display import display
for kind in ("text/html", "image/png", "application/json", "text/markdown"):
    display({kind: "x" * 60_000_000}, raw=True)
"""})  # fmt: skip
_output("huge-error", "raises an exception with a message of 100 MB when asked", answers={"LeakyReLU": """
class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        raise ValueError("x" * 100_000_000)
"""})  # fmt: skip
_output("many-errors", "raises a group of exceptions, chained and nested a thousand times", answers={"LeakyReLU": """
error = ValueError("x")
for number in range(1000):
    try:
        raise ExceptionGroup(f"{number}", [error, ValueError()]) from error
    except ExceptionGroup as caught:
        error = caught
raise error
"""})  # fmt: skip
_output("clear-output", "clears outputs over and over and sends stderr into every cell", """
import sys, threading, time
from IPython.display import clear_output
def loop():
    for _ in range(300):
        print("noise", file=sys.stderr)
        clear_output()
        time.sleep(0.01)
threading.Thread(target=loop, daemon=True).start()
""")  # fmt: skip
_output("huge-outputs", "returns a tensor of 10^12 elements that needs no memory", answers={"LeakyReLU": """
class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        return torch.zeros((), dtype=x.dtype).expand(10**12)
    @staticmethod
    def backward(ctx, g):
        return g, None
"""})  # fmt: skip
