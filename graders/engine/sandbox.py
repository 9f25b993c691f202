"""Starts the warm parent inside bubblewrap, and kernels of it.

What is visible in there: the system and the Python environment, read-only; no course, no network, no other process.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from graders.engine.job import Settings
from graders.engine.memory import Share, killed, new_group, remove
from graders.inside.channel import Channel

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
OF_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "fonts")
HERE = Path(__file__).parents[1]  # the package
INSIDE = "/course/side"  # where the kernel's side is seen from inside
PATIENCE = 180  # seconds for an order; loading everything on a busy machine takes 20
FIRST_UID = 1 << 20  # as root: warm parents are users that nobody else is
START = "import sys; sys.path.insert(0, sys.argv[3]); from graders.inside.warm import main; main()"
REMEDY = (
    "install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap) on a Linux that allows user namespaces, or "
    "grade without protection from submitted code: --no-sandbox (for nbgrader: c.TrustedExecute.sandbox = 'off')"
)


class SandboxError(Exception):
    """There can be no sandbox, or what runs in it did not start; one line, with the remedy."""


class NoMemory(Exception):
    """Memory ran out that others had taken: what ran then is not to be judged."""


def available() -> bool:
    """Return whether bwrap is installed; whether it works only shows when it starts."""
    return sys.platform == "linux" and shutil.which("bwrap") is not None


def _side(folder: Path) -> None:
    """Copy `graders.inside` into a folder, and matplotlib's list of fonts, which takes seconds to make."""
    shutil.copytree(HERE / "inside", folder / "graders/inside", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "graders/__init__.py").touch()
    import matplotlib

    fonts = folder / "mpl"
    fonts.mkdir()
    for cached in Path(matplotlib.get_cachedir()).glob("fontlist*.json"):
        shutil.copyfile(cached, fonts / cached.name)
    folder.chmod(0o755)
    fonts.chmod(0o777)  # as root the warm parent is another user


def _environment(side: str) -> dict[str, str]:
    """Return all environment variables that are set inside."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return threads | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "LANG": "C.UTF-8",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "MPLCONFIGDIR": f"{side}/mpl",
        "HOME": f"{side}/mpl",
        "TMPDIR": f"{side}/mpl",
        "IPYTHONDIR": f"{side}/mpl/ipython",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }


def _package() -> Path:
    """Return the folder that this package is installed in."""
    return Path(str(files("graders"))).resolve()


def _environments() -> list[Path]:
    """Return the folders that Python and its packages are in."""
    places = (sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.realpath(sys.executable))
    return [Path(place) if os.path.isdir(place) else Path(place).parent for place in places]


def _has_tmp() -> bool:
    """Return whether a kernel can have its own /tmp: not where the environment lies in it; then it has its room."""
    return not any(place.is_relative_to("/tmp") for place in _environments())


def _walls(side: Path) -> list[str]:
    """Return the bubblewrap command up to the program that it runs."""
    root = os.geteuid() == 0
    command = ["bwrap", "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    command += ["--unshare-uts", "--unshare-cgroup-try", "--clearenv", "--hostname", "kernel"]
    command += ["--cap-drop", "ALL"]
    command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if root else ["--unshare-user"]
    for place in SYSTEM:
        if os.path.islink(place):
            command += ["--symlink", os.readlink(place), place]
        elif os.path.isdir(place):
            command += ["--ro-bind", place, place]
    for name in OF_ETC:
        command += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    seen = [Path(place) for place in SYSTEM]
    for real in _environments():
        if not any(real.is_relative_to(other) for other in seen):
            for parent in reversed(real.parents[:-1]):  # bwrap's own would be closed to the other user
                if not any(parent.is_relative_to(other) for other in seen):
                    command += ["--perms", "0755", "--dir", str(parent)]
            command += ["--ro-bind", str(real), str(real)]
            seen.append(real)
    course = Path.cwd()
    around = next((place for place in seen if course.is_relative_to(place)), None)
    if around and (course / "nbgrader_config.py").exists():
        raise SandboxError(
            f"no sandbox: the course is in the Python environment {around}, and student code must be able to read all "
            "of it; create the environment in a folder of its own (python3 -m venv .venv)"
        )
    package = _package()
    if any(package.is_relative_to(place) for place in seen):  # installed there: the right answers, the hidden tests
        command += ["--perms", "0555", "--tmpfs", str(package), "--remount-ro", str(package)]
    command += ["--bind", "/proc", "/proc", "--dev", "/dev", "--dir", "/room", "--dir", "/tmp"]
    command += ["--perms", "0755", "--dir", "/course"]  # what a kernel covers; the folder in it is soon no more
    command += ["--ro-bind", str(side), INSIDE, "--bind", str(side / "mpl"), f"{INSIDE}/mpl"]
    for name, value in _environment(INSIDE).items():
        command += ["--setenv", name, value]
    # an ordinary user is the owner of both, in every kernel
    return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]


def _number(handle: int) -> int:
    """Return the number of the process of a pidfd, -1 of one that has ended."""
    said = Path(f"/proc/self/fdinfo/{handle}").read_text()
    return int(next(line.split()[1] for line in said.splitlines() if line.startswith("Pid:")))


class Parent:
    """A process that forks kernels: one after the other, or several at a time.

    Args:
        control: the socket on which it takes orders.
        sandbox: whether it is in one.
        group: its control group, if it has one.
    """

    def __init__(self, control: socket.socket, sandbox: bool, group: Path | None = None) -> None:
        self._control, self.sandbox, self._group = control, sandbox, group
        control.settimeout(PATIENCE)
        self._rooms: dict[int, tempfile.TemporaryDirectory[str]] = {}
        self._lost = False
        self._bare: Parent | None = None
        self._more: set[str] = set()

    @property
    def alive(self) -> bool:
        """Whether it still takes orders, as far as is known."""
        return not self._lost

    def wait(self) -> None:
        """Wait until it has loaded everything: a twin has, like the parent that it was forked from."""

    def twin(self) -> "Parent":
        """Fork another process like this one, with all that it has loaded, for another process of the grader.

        Raises:
            SandboxError: this one is gone.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            self._command({"do": "twin"}, theirs.fileno())
        twin = Parent(ours, self.sandbox, self._group)
        twin._more = set(self._more)
        return twin

    def bare(self) -> "Parent":
        """Return its twin in which torch's own autograd is refused, forked when it is first asked for.

        Raises:
            SandboxError: this one is gone, or the twin was lost at once.
        """
        if self._bare is None or not self._bare.alive:
            twin = self.twin()
            twin._command({"do": "no autograd"})
            self._bare = twin
        return self._bare

    def load_more(self, what: str) -> None:
        """Load what `graders.inside.warm.MORE` has under a name, for the kernels that it will fork; once.

        Raises:
            SandboxError: this one is gone.
        """
        if what not in self._more:
            self._more.add(what)
            self._command({"do": "load more", "what": what})
            if self._bare and self._bare.alive:
                self._bare.load_more(what)

    def share(self, settings: Settings) -> Share:
        """Return what a notebook's kernels share of memory and processors; close it after them."""
        return Share(self._group, settings.memory * 3 // 2)

    def kernel(
        self, settings: Settings, forbid: Iterable[str] = (), file: bool = False, share: Share | None = None
    ) -> tuple[int, Channel]:
        """Start a kernel; return its number and the channel to it.

        Args:
            settings: the limits.
            forbid: what is refused in it for good: see `graders.inside.refusal`.
            file: whether it is to run a test file in place of cells.
            share: what it has together with others.

        Raises:
            SandboxError: it does not start.
            NoMemory: for want of memory.
        """
        ours, theirs = socket.socketpair()
        room = None if self.sandbox else tempfile.TemporaryDirectory()
        order = {
            "do": "start",
            "forbid": sorted(forbid),
            "file": file,
            "sandbox": self.sandbox,
            "room": room and room.name,
            "memory": settings.memory,
            "processes": settings.processes,
            "disk": settings.disk,
            "tmp": self.sandbox and _has_tmp(),
            "seconds": 2 * settings.notebook_time + 60,
            "max_output": settings.max_output,
        }
        before = self._starved()
        try:
            with theirs:
                answer = self._command(order, theirs.fileno())
            if "error" in answer:
                raise SandboxError(f"no sandbox: a kernel could not start ({answer['error']}); {REMEDY}")
        except SandboxError:
            ours.close()
            if self._starved() > before:
                raise NoMemory("memory ran out while a kernel started") from None
            raise
        if room:
            self._rooms[answer["kernel"]] = room
        if share and "process" in answer:
            share.take(answer["process"])
        return answer["kernel"], Channel(ours)

    def signal(self, kernel: int, which: int) -> None:
        """Send a kernel a signal."""
        self._command({"do": "signal", "kernel": kernel, "signal": int(which)})

    def _starved(self) -> int:
        """Return how often it, or a kernel that was just forked, was killed for want of memory."""
        return killed(self._group / "warm") if self._group else 0

    def end(self, kernel: int) -> None:
        """End a kernel and all that it started."""
        if self.alive:
            with suppress(SandboxError):
                self._command({"do": "end", "kernel": kernel})
        if room := self._rooms.pop(kernel, None):
            room.cleanup()

    def close(self) -> None:
        """End it, and its kernels with it."""
        if self._bare:
            self._bare.close()
        self._lost = True
        self._control.close()
        for room in self._rooms.values():
            room.cleanup()

    def _command(self, order: dict[str, object], *descriptors: int) -> dict[str, Any]:
        """Give an order; return the answer to it, whatever else is there to be read.

        An order may have been given up by an exception in the midst of it, or by the death of a forked process that
        uses the same socket: its answer is still to come, and is nobody's.
        """
        number = uuid.uuid4().hex
        try:
            line = json.dumps(order | {"order": number}) + "\n"
            socket.send_fds(self._control, [line.encode()], list(descriptors))
            while (answer := self._read()).get("order") != number:
                pass
            return answer
        except (OSError, EOFError):
            self._lost = True
            self._control.close()
            raise self._death() from None

    def _death(self) -> SandboxError:
        return SandboxError(f"no sandbox: its process did not start or has died ({self._last_word()}); {REMEDY}")

    def _last_word(self) -> str:
        return "it ended without a message"

    def _read(self) -> dict[str, Any]:
        """Return the last of the answers that have arrived; wait for one."""
        found, held = b"", []
        try:
            while not found.endswith(b"\n"):
                more, passed, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
                if passed:  # of the last answer: the system does not add to what comes with a descriptor
                    held, old = passed, held
                    for descriptor in old:
                        os.close(descriptor)
                if not more:
                    raise EOFError
                found += more
            answer: dict[str, Any] = json.loads(found.splitlines()[-1])
            if held:  # the process by a handle: its number in there is not the one that it has here
                answer["process"] = _number(held[0])
            return answer
        finally:
            for descriptor in held:
                os.close(descriptor)


class WarmParent(Parent):
    """A parent that is started here, and ended by `close` with all its twins.

    Args:
        sandbox: "required", or "off".

    Raises:
        SandboxError: it is required, and cannot be had.
    """

    def __init__(self, sandbox: str) -> None:
        wanted = sandbox == "required"
        if wanted and not available():
            raise SandboxError(
                f"no sandbox: {'bwrap is not installed' if sys.platform == 'linux' else 'this is not Linux'}; {REMEDY}"
            )
        self._folder = tempfile.TemporaryDirectory(prefix="kernel-side-")
        side = Path(self._folder.name)
        _side(side)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process lives)
        control, theirs = socket.socketpair()
        super().__init__(control, wanted)
        uid = FIRST_UID + os.getpid() if self.sandbox and os.geteuid() == 0 else 0
        place = INSIDE if self.sandbox else str(side)
        program = [sys.executable, "-c", START, str(theirs.fileno()), str(uid), place]
        program = [*_walls(side), *program] if self.sandbox else program
        if group := new_group() if self.sandbox else None:
            program = ["sh", "-c", 'echo $$ >"$0/warm/cgroup.procs"; exec "$@"', str(group), *program]
        self._group = group
        try:
            self._process = subprocess.Popen(
                program,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=None if self.sandbox else _environment(place),
                cwd="/",
                start_new_session=True,  # Ctrl-C on a terminal is not for it
            )
        except OSError as error:
            theirs.close()
            raise SandboxError(f"no sandbox: {program[0]} does not start ({error}); {REMEDY}") from None
        theirs.close()
        self._ready = False

    @property
    def alive(self) -> bool:
        """Whether it still takes orders, as far as is known."""
        return not self._lost and self._process.poll() is None

    def wait(self) -> None:
        """Wait until it has loaded everything.

        Raises:
            SandboxError: it does not get that far.
        """
        if not self._ready:
            try:
                self._read()
            except (OSError, EOFError):
                self._lost = True
                raise self._death() from None
            self._ready = True
            self._folder.cleanup()  # loaded; nothing is left behind by a grader that is killed

    def _command(self, order: dict[str, object], *descriptors: int) -> dict[str, Any]:
        self.wait()
        return super()._command(order, *descriptors)

    def _last_word(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        if self._log.closed:
            return "it was ended"
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip().splitlines()
        return said[-1] if said else super()._last_word()

    def close(self) -> None:
        """End it, its twins, and their kernels."""
        super().close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        self._folder.cleanup()
        group, self._group = self._group, None
        if group is None:
            return
        for _ in range(200):  # its last process may still be on its way out
            with suppress(OSError):
                remove(group)
                break
            time.sleep(0.005)
