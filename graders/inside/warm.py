"""The warm parent: has loaded everything that a notebook needs, and forks a kernel in milliseconds.

Started by `sandbox` as a program of its own, inside the sandbox, with one thread: ``DESCRIPTOR UID FOLDER``. It takes
commands, JSON in a line, on the socket of that descriptor, and ends with it. It never runs student code itself.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it is loaded when it is known which user this process is to be
    from graders.inside.shell import NotebookShell

Order = dict[str, Any]  # what `graders.engine.sandbox` wants

WARM_UP = """
import ctypes, io, random, math, copy, functools, itertools, unittest.mock, asyncio
import numpy, torch, torch.nn.functional as F
import matplotlib.pyplot
import torch._subclasses.schema_check_mode
import torch.func, torch.testing, torch.autograd.functional, torch.utils.checkpoint, torch.autograd.forward_ad
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode
torch.set_num_threads(1)
x = torch.linspace(-1.0, 1.0, 3, dtype=torch.double, requires_grad=True)
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return 2 * x
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, g):
        return 2 * g
for function in (torch.sin, Twice.apply):
    gradcheck(function, x); gradgradcheck(function, x); gradcheck(function, x, fast_mode=True)
torch.testing.assert_close(x.detach(), x.detach())
try:
    torch.testing.assert_close(x.detach(), -x.detach())
except AssertionError:
    pass
torch.func.vmap(torch.sin)(x)
with torch.autocast("cpu", torch.bfloat16):
    F.linear(torch.ones(2, 2), torch.ones(2, 2))
with torch.random.fork_rng([]):
    torch.randn(2, generator=torch.Generator()) + 1
"""
MORE = {  # what few notebooks use, and takes most of a second to load when it is first called
    "compiler": """
import torch, torch._dynamo
x = torch.ones(2, requires_grad=True)
torch.func.grad(lambda x: x.sin().sum())(x.detach())
torch.optim.SGD([x], 0.1)
torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False).sum().backward()
""",
    "figures": """
import matplotlib.pyplot as plt
from IPython.display import display
figure, axes = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
axes[0].plot([1, 2], [1e-3, 2e3], "--o", label="a $x^2$"); axes[0].set_xlabel("x"); axes[0].set_yscale("log")
axes[1].imshow([[1, 2]]); axes[0].legend(); figure.legend(loc="outside lower center")
display(figure)
plt.close("all")
""",
}


def warm_up() -> "NotebookShell":
    """Load and run once what notebooks use; return the shell, empty."""
    from graders.inside import channel, confine, refusal  # noqa: F401 (loaded now: the files go away)
    from graders.inside.shell import make_shell

    shell = make_shell()
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(WARM_UP, names)
        shell.run_cell("1 + 1", silent=True)
        with suppress(Exception):
            shell.run_cell("raise ValueError", silent=True)
    names.clear()
    shell.reset(new_session=True)
    return shell


def trim() -> None:
    """Give back what is free: a kernel that did so would seem to let go of what its own code held."""
    from graders.inside import hold

    hold.trim()


def load_more(what: str) -> None:
    """Load what `MORE` says of a name, and run it once."""
    gc.disable()
    kept = dict(os.environ)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.tempdir = "/"  # must exist; nothing can be written any more
    with warnings.catch_warnings(), suppress(Exception):  # without it a kernel loads it by itself, or says why not
        warnings.simplefilter("ignore")
        exec(MORE[what], {})
    os.environ.clear()
    os.environ.update(kept)
    trim()
    gc.freeze()
    gc.enable()


class Children:
    """The kernels that are alive, by number."""

    def __init__(self, shell: "NotebookShell") -> None:
        self.shell = shell
        self.alive: dict[int, tuple[int, int | None]] = {}  # the process, and its descriptor where there is a sandbox
        self.number = 0

    def start(self, order: Order, sock: int, control: socket.socket) -> dict[str, object]:
        """Fork a kernel that serves `sock`; return its number, or why there is none."""
        heard, said = os.pipe()
        go, ready = os.pipe()
        first = os.fork()
        if first == 0:
            os.close(heard)
            os.close(ready)
            control.close()
            _become(order, sock, said, go, self.shell)
        os.close(said)
        os.close(go)
        os.close(sock)
        told = json.loads(_line(heard) or '{"error": "it died"}')
        if order["sandbox"]:
            os.waitpid(first, 0)
        self.number += 1
        if "error" not in told:
            process = told["process"] if order["sandbox"] else first
            self.alive[self.number] = process, os.pidfd_open(process) if order["sandbox"] else None
            os.write(ready, b"go")
            told = json.loads(_line(heard) or '{"error": "it died"}')
            if "error" in told:
                self.end(self.number)
        os.close(heard)
        os.close(ready)
        return told if "error" in told else {"kernel": self.number, "process": process}

    def handle(self, number: object) -> int | None:
        """Return the pidfd of a kernel in a sandbox, whose number means nothing outside."""
        return self.alive[number][1] if isinstance(number, int) else None

    def orphaned(self) -> "Children":
        """Return the children of a fork of this process: none, since those that are alive are not its own."""
        for _, descriptor in self.alive.values():
            if descriptor is not None:
                os.close(descriptor)
        return Children(self.shell)

    def signal(self, number: int, which: int) -> None:
        """Send a kernel a signal, if it is alive."""
        if number not in self.alive:
            return
        process, descriptor = self.alive[number]
        with suppress(ProcessLookupError):
            if descriptor is not None:
                signal.pidfd_send_signal(descriptor, which)
            else:
                (os.killpg if which == signal.SIGKILL else os.kill)(process, which)

    def end(self, number: int) -> None:
        """Kill a kernel, with all that it started, and wait until it is gone."""
        if number not in self.alive:
            return
        self.signal(number, signal.SIGKILL)
        process, descriptor = self.alive.pop(number)
        if descriptor is None:
            os.waitpid(process, 0)
        else:
            select.select([descriptor], [], [], 10)  # readable: it has ended; its namespace, and all in it, too
            os.close(descriptor)


def _line(descriptor: int) -> str:
    """Return a line from a pipe, "" at its end."""
    found = b""
    while not found.endswith(b"\n") and (more := os.read(descriptor, 4096)):
        found += more
    return found.decode(errors="replace") if found.endswith(b"\n") else ""


def _become(order: Order, sock: int, said: int, go: int, shell: "NotebookShell") -> None:
    """Put up the walls in the forked process, wait for the word, serve; never return."""

    def say(**what: object) -> None:
        os.write(said, (json.dumps(what) + "\n").encode())

    try:
        from graders.inside import confine

        signal.set_wakeup_fd(-1)
        if order["sandbox"]:
            confine.dumpable(True)  # a change of user has made its own /proc another's
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # where memory runs out, kernels go first
        if order["sandbox"]:
            confine.unshare()
            if (child := os.fork()) != 0:
                say(process=child)
                os._exit(0)
            os.setsid()  # kill(0) reaches a group across namespaces
            _closed_but(sock, said, go)
            os.read(go, 2)
            confine.confine(order["disk"], order["tmp"])
            os.chdir(confine.ROOM)
        else:
            os.setsid()
            _closed_but(sock, said, go)
            say(process=os.getpid())
            os.read(go, 2)
            os.chdir(order["room"])
        _serve(order, sock, say, said, go, shell)
    except BaseException as error:
        with suppress(OSError):
            say(error=f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def _serve(order: Order, sock: int, say: Callable[..., None], said: int, go: int, shell: "NotebookShell") -> None:
    from graders.inside import confine, refusal
    from graders.inside.channel import Channel
    from graders.inside.shell import Server

    if order["file"] and sys.platform == "linux":
        confine.dumpable(False)  # what a test file starts shall not look into the process that started it
    refusal.forbid(order["forbid"])
    if order["sandbox"] and refusal.without_autograd():
        confine.no_programs()  # a fresh Python would have another torch
    confine.limit(order["memory"], order["processes"] if order["sandbox"] else None, order["disk"], order["seconds"])
    room = os.getcwd()
    os.environ.update(NBGRADER_EXECUTION="autograde", HOME=room, TMPDIR="/tmp" if order["tmp"] else room)
    tempfile.tempdir = None  # what was found before is covered
    server = Server(shell, Channel(socket.socket(fileno=sock)), order["max_output"])
    say(ready=True)
    os.close(said)
    os.close(go)
    server.serve()


def _closed_but(*kept: int) -> None:
    """Close every descriptor but these; 0, 1 and 2 lead nowhere."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    low = 3
    for descriptor in [*sorted(kept), 1 << 16]:
        os.closerange(low, descriptor)
        low = descriptor + 1


def _become_user(uid: int) -> None:
    """Change from root to a user of its own; in a container without spare users, to nobody."""
    os.setgroups([])
    for tried in (uid, 65534):
        try:
            os.setresgid(tried, tried, tried)
            os.setresuid(tried, tried, tried)
            return
        except OSError:
            if tried == 65534:
                raise


def main() -> None:
    """Run `_main`; print what goes wrong where it is read."""
    try:
        _main()
    except Exception:
        traceback.print_exc(file=sys.__stderr__)  # sys.stderr is the shell's
        os._exit(1)


def _main() -> None:
    """Load everything, say so, take commands until the socket closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    if uid := int(sys.argv[2]):
        _become_user(uid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the grader, which closes the socket
    gc.disable()  # what is loaded stays
    children = Children(warm_up())
    from graders.inside import refusal

    trim()
    gc.freeze()  # and is shared: no collection in a kernel touches it
    gc.enable()
    control.sendall(b'{"ready": true}\n')
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1 << 20, 1)
        if not data:
            break
        for order in map(json.loads, data.splitlines()):  # the descriptor is the last one's; others were given up
            match order["do"]:
                case "start":
                    answer = children.start(order, descriptors[0], control)
                case "load more":
                    load_more(order["what"])
                    answer = {}
                case "no autograd":
                    refusal.forbid([refusal.AUTOGRAD])
                    answer = {}
                case "signal":
                    children.signal(order["kernel"], order["signal"])
                    answer = {}
                case "end":
                    children.end(order["kernel"])
                    answer = {}
                case "twin":
                    if os.fork() == 0:
                        control.close()
                        control, children = socket.socket(fileno=descriptors[0]), children.orphaned()
                        continue
                    os.close(descriptors[0])
                    answer = {}
            handle = children.handle(answer.get("kernel"))
            answer["order"] = order["order"]  # one who gave it up, or died, has not read the answer
            socket.send_fds(control, [(json.dumps(answer) + "\n").encode()], [] if handle is None else [handle])
    for number in list(children.alive):
        children.end(number)
    os._exit(0)  # there is nothing to save, and taking torch apart takes half a second
