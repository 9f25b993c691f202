"""Attacks on what lies around: reading secrets and answers, writing scores and traps, the network, the next student."""

from tests.engine.attacks import Attack, late

ATTACKS: list[Attack] = []


def _read(name: str, tries: str, code: str = "", **more: object) -> None:
    ATTACKS.append(Attack(name, "Reading", tries, **{"answers": late(code), **more}))


def _write(name: str, tries: str, code: str = "", **more: object) -> None:
    ATTACKS.append(Attack(name, "Writing", tries, **{"answers": late(code), **more}))


def _net(name: str, tries: str, code: str = "", **more: object) -> None:
    ATTACKS.append(Attack(name, "Network", tries, **{"answers": late(code), **more}))


def _next(name: str, tries: str, code: str = "", **more: object) -> None:
    ATTACKS.append(Attack(name, "The next student", tries, **{"answers": late(code), **more}))


# Prints every secret that it finds in the files below some folders.
HUNT = """
import os, re
def hunt(*places, most=4000):
    seen = 0
    for place in places:
        for folder, _, names in os.walk(place, onerror=lambda error: None):
            for name in names:
                path = os.path.join(folder, name)
                if seen > most or not os.path.isfile(path):
                    continue
                seen += 1
                try:
                    with open(path, "rb") as file:
                        look(path, file.read(2**21))
                except OSError:
                    pass
def look(path, data):
    for found in set(re.findall(rb"s3cret-[a-z]+-[0-9a-f]{8}", data)):
        print("found", found.decode(), "in", path)
"""

_read(
    "read-course",
    "reads the gradebook, the answers and what the class handed in",
    HUNT + 'hunt("@COURSE@", "../../..")',
)
_read(
    "read-home",
    "reads the grader's home: keys, tokens, history",
    HUNT + 'hunt("@HOME@", "/root", "/home", "/run", "/mnt")',
)
_read("read-environment", "reads the environment of its process, of its parents and of everybody else", HUNT + """
for name in os.environ:
    look(name, os.environ[name].encode())
import ctypes
environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
number = 0
while environ[number]:
    look("environ", environ[number])
    number += 1
""")  # fmt: skip
_read("read-proc", "reads /proc of every process: environment, command line, descriptors, memory", HUNT + """
for pid in [n for n in os.listdir("/proc") if n.isdigit()] + ["self", "1"]:
    for name in ("environ", "cmdline", "mountinfo", "net/unix"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                look(f"/proc/{pid}/{name}", file.read())
        except OSError:
            pass
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            if target.startswith("/") and not target.startswith("/dev"):
                with open(f"/proc/{pid}/fd/{fd}", "rb") as file:
                    look(target, file.read(2**20))
    except OSError:
        pass
""")  # fmt: skip
_read("read-memory", "searches the memory of its process and its parent for what the grader left there", HUNT + """
for pid in ("self", str(os.getppid()), "1"):
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                area, mode, _, device, inode, *name = line.split()
                start, end = (int(x, 16) for x in area.split("-"))
                if mode.startswith("rw") and not name or name and name[0] in ("[heap]", "[stack]"):
                    try:
                        memory.seek(start)
                        data = memory.read(min(end - start, 2**25))
                        # its own source holds the pattern, not the secret
                        look(f"/proc/{pid}/mem", data)
                    except (OSError, ValueError, OverflowError):
                        pass
    except OSError as error:
        print(pid, error)
""")  # fmt: skip
_read("read-hidden-tests", "looks for the sources of the hidden tests and the deny lists in memory, frames and files", HUNT + """
import gc, sys
found = set()
for thing in gc.get_objects():
    if isinstance(thing, dict):
        for value in list(thing.values()):
            if isinstance(value, str) and "HIDDEN" + " TESTS" in value:
                found.add(value[:80])
frame = sys._getframe()
while frame:
    found |= {v[:80] for v in frame.f_locals.values() if isinstance(v, str) and "BEGIN HIDDEN" + " TESTS" in v}
    frame = frame.f_back
if found:
    print("DAMAGE: sees", len(found), "hidden tests")
""")  # fmt: skip
_read("read-sets", "reads the files of graders/sets: right solutions, cases, messages", HUNT + """
import importlib.util, pathlib
for name in ("graders.sets.relu", "graders.sets", "graders"):
    try:
        spec = importlib.util.find_spec(name)
        for path in sorted(pathlib.Path(spec.origin).parent.rglob("square.py")):
            print("DAMAGE: reads", name, path.name, len(path.read_text()))
    except (ImportError, OSError, AttributeError, ValueError) as error:
        print(type(error).__name__)
try:
    print("DAMAGE: reads", len(open("@COURSE@/solutions/01_relu/relu.ipynb").read()))
except OSError as error:
    print(error)
""")  # fmt: skip

_read("watch-programs", "watches which programs of the machine are started, by inotify, fanotify, leases and page cache", """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
watch = libc.inotify_init1(0)
if watch >= 0 and libc.inotify_add_watch(watch, b"/usr/bin", 0x21) >= 0:
    print("DAMAGE: watches by inotify")
place = os.open("/usr/bin", os.O_RDONLY)
if libc.fcntl(place, 1026, 1) >= 0:
    print("DAMAGE: watches by dnotify")
if libc.fanotify_init(0x200, 0) >= 0:
    print("DAMAGE: watches by fanotify")
if libc.fcntl(os.open("/usr/bin/env", os.O_RDONLY), 1024, 0) >= 0:
    print("DAMAGE: holds a lease")
""")  # fmt: skip
_write("write-gradebook", "opens the gradebook and gives itself full marks and alice none", """
import glob, sqlite3
for path in ["@COURSE@/gradebook.db", *glob.glob("../../../gradebook.db")]:
    try:
        db = sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=1)
        db.execute("UPDATE grade SET manual_score = 0, auto_score = 0")
        db.commit()
        print("DAMAGE: wrote", path)
    except sqlite3.Error as error:
        print(error)
""")  # fmt: skip
_write("write-marks", "gives itself full marks in the gradebook while its own tests are being saved", """
import os, subprocess, sys
code = '''
import os, sqlite3, time
os.setsid()
for _ in range(200):
    time.sleep(0.1)
    try:
        db = sqlite3.connect("file:@COURSE@/gradebook.db?mode=rw", uri=True, timeout=1)
        db.execute("UPDATE grade SET manual_score = (SELECT max_points FROM grade_cells WHERE grade_cells.id = grade.cell_id) "
                   "WHERE auto_score < 2")
        db.commit()
    except sqlite3.Error:
        pass
'''
try:
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
except OSError as error:
    print(error)
""")  # fmt: skip
_write("write-submissions", "overwrites what zoe handed in, and the notebooks in autograded/", """
import glob
for path in glob.glob("@COURSE@/submitted/zoe/*/*.ipynb") + glob.glob("@COURSE@/autograded/*/*/*.ipynb"):
    try:
        import os
        os.chmod(path, 0o666)
        open(path, "w").write('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
        print("DAMAGE: wrote", path)
    except OSError as error:
        print(error)
""")  # fmt: skip
_write("write-startup", "writes a start-up file for IPython, Jupyter and the shell into the grader's home", """
import os
for home in {"@HOME@", os.path.expanduser("~")}:
    for name in (".ipython/profile_default/startup/00-mallory.py", ".jupyter/mallory.py", ".bashrc-mallory",
                 ".config/mallory", ".local/lib/python3.11/site-packages/mallory.pth"):
        try:
            path = os.path.join(home, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write("import sys\\nsys.modules['graders'] = None\\n" if name.endswith(".py") else "")
        except OSError as error:
            print(error)
""")  # fmt: skip
_write("write-environment", "writes into the Python environment and the project: .pth, sitecustomize, graders, bytecode", """
import os, sysconfig
import torch
places = {sysconfig.get_paths()["purelib"], os.path.dirname(torch.__file__), os.path.dirname(os.__file__), "/etc", "/usr/bin"}
try:
    import graders
    places |= {os.path.dirname(graders.__file__), os.path.dirname(graders.__file__) + "/__pycache__"}
except ImportError:
    pass
for place in places:
    try:
        with open(f"{place}/mallory_planted.txt", "w") as file:
            file.write("planted")
    except OSError as error:
        print(error)
""")  # fmt: skip
_write("write-everywhere", "writes wherever a directory lets it, below /", """
import os
for folder, names, _ in os.walk("/"):
    names[:] = [n for n in names if n not in ("proc", "sys", "room")][:60]
    if folder.count("/") > 4:
        names[:] = []
    try:
        with open(f"{folder}/mallory-was-here", "w") as file:
            file.write("x")
    except OSError:
        pass
""")  # fmt: skip

_net("network-tcp", "connects to a server on the grader's own machine and sends what it knows", """
import socket
for host in ("127.0.0.1", "::1", "localhost"):
    try:
        with socket.create_connection((host, @PORT@), 1) as s:
            s.sendall(b"mallory")
    except OSError as error:
        print(error)
""")  # fmt: skip
_net("network-unix", "connects to an abstract Unix socket of the grader's machine and to those in its files", """
import glob, socket
for name in ["\\0@SOCKET@", *glob.glob("/tmp/**/*", recursive=True), *glob.glob("/run/**/*", recursive=True)][:2000]:
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(0.2)
            s.connect(name)
            s.sendall(b"mallory")
            print("connected", repr(name))
    except (OSError, ValueError):
        pass
""")  # fmt: skip
_net("network-server", "listens for the next student and for the world", """
import os, socket
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", 0))
s.listen()
a = socket.socket(socket.AF_UNIX)
a.bind("\\0mallory")
a.listen()
try:
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    print("raw")
except OSError as error:
    print(error)
try:
    packets = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
except OSError as error:
    print(error)
""")  # fmt: skip

PASS_ON = """
import ctypes, glob, os, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
places = ["/tmp", "/dev/shm", "/var/tmp", "/run", "/run/lock", os.path.expanduser("~"), "/room", "@HOME@", "/dev/mqueue",
          os.path.expanduser("~/.cache"), "/etc", "/"]
try:
    import matplotlib
    places += [matplotlib.get_cachedir(), matplotlib.get_configdir()]
except Exception:
    pass
"""
_next("leave-behind", "leaves the answers to the tests for an accomplice: files, shared memory, message queues, keys, sockets",
      PASS_ON + """
for place in places:
    try:
        os.makedirs(place, exist_ok=True)
        with open(f"{place}/mallory-message", "w") as file:
            file.write("the answers")
    except OSError:
        pass
number = libc.shmget(0x6d616c6c, 4096, 0o1666)
libc.msgget(0x6d616c6c, 0o1666)
libc.semget(0x6d616c6c, 1, 0o1666)
for ring in (-3, -4, -5, -1, -2):
    libc.syscall(248, b"user", b"mallory", b"the answers", 11, ring)
    libc.syscall(250, 5, ring, 0x3f3f3f3f)
try:
    import matplotlib, numpy, torch
    for module in (matplotlib, numpy, torch):
        module.mallory = "the answers"
except ImportError:
    pass
""")  # fmt: skip
_next("pick-up", "looks for what an accomplice, graded before, left for it", PASS_ON + """
found = []
for place in places:
    found += glob.glob(f"{place}/mallory-m*")
if libc.shmget(0x6d616c6c, 4096, 0) >= 0 or libc.msgget(0x6d616c6c, 0) >= 0 or libc.semget(0x6d616c6c, 1, 0) >= 0:
    found.append("System V")
for ring in (-3, -4, -5, -1, -2):
    if libc.syscall(250, 10, ring, b"user", b"mallory", 0) > 0 or libc.syscall(249, b"user", b"mallory", None, ring) > 0:
        found.append(f"key ring {ring}")
import matplotlib, numpy, torch
found += [m.__name__ for m in (matplotlib, numpy, torch) if hasattr(m, "mallory")]
if found:
    print("DAMAGE: finds", found)
""")  # fmt: skip
_next("locked-files", "leaves a message for whoever is graded at the same time, by locks on files of the system", """
import fcntl, glob, os, struct
for path in sorted(glob.glob("/usr/share/doc/*/copyright"))[:16]:
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("DAMAGE: locks files for another to see")
    except OSError:
        pass
    try:
        fcntl.fcntl(file, fcntl.F_SETLK, struct.pack("hhqqi", fcntl.F_RDLCK, 0, 0, 0, 0))
        fcntl.fcntl(file, fcntl.F_GETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))
        print("DAMAGE: sees locks of others")
    except OSError:
        pass
""")  # fmt: skip
