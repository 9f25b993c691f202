"""Attacks on what travels between the notebook's process and the grader's, by who has read the engine's source."""

from tests.engine.attacks import ASKED, Attack

ATTACKS: list[Attack] = []

# Finds the sockets that it inherited, and writes frames to them as graders/inside/channel.py describes.
FRAMES = """
import json, os, stat, struct, sys, threading, time
def sockets():
    found = []
    for fd in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                found.append(fd)
        except OSError:
            pass
    return found
def raw(data):
    for fd in sockets():
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view):]
        except OSError:
            pass
def frame(kind, data):
    raw(struct.pack(">cQ", kind, len(data)) + data)
def shown(kind, **content):
    frame(b"S", json.dumps({"msg_type": kind, "content": content}).encode())
"""
# A Function that does something of the attacker's choice whenever a test calls it.
WHEN_ASKED = """
class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        if asked():
            act()
        return x + 1
    @staticmethod
    def backward(ctx, g):
        return g, None
"""


def _reply(name: str, tries: str, first: str = "", act: str = "", **more: object) -> None:
    if act:
        more["answers"] = {"LeakyReLU": f"{FRAMES}{ASKED}\ndef act():\n    {act}\n{WHEN_ASKED}"}
    ATTACKS.append(Attack(name, "Forged replies", tries, first and FRAMES + first, **more))


_reply("every-descriptor", "writes forged answers to every open file descriptor", """
for fd in range(0, 256):
    if not stat.S_ISSOCK(os.fstat(fd).st_mode) if os.path.exists(f"/proc/self/fd/{fd}") else True:
        try:
            os.write(fd, b'{"records": [], "earned": 20.0}')
        except OSError:
            pass
""")  # fmt: skip
_reply("junk-when-asked", "answers a question with random bytes", act="raw(os.urandom(4096))")
_reply("endless-frame", "answers with a frame of 2^63 bytes, and one of 60 MB that never ends", act=(
    'raw(struct.pack(">cQ", b"R", 60 << 20) + b"x" * 1000); time.sleep(1000)'), slow=True)  # fmt: skip
_reply("huge-frame", "announces a frame of 2^63 bytes", act='raw(struct.pack(">cQ", b"R", 1 << 63) + b"x")')
_reply("no-reply", "never answers: stops itself when it is asked", act="os.kill(os.getpid(), 19)", slow=True)
_reply("closed-channel", "closes the channel when it is asked", act="[os.close(fd) for fd in sockets()]")
_reply("answers-ahead", "sends answers before the questions: each test then reads the answer to the one before", """
from graders.inside.wire import encode
for _ in range(40):
    frame(b"R", encode({"records": [], "results": [], "differentiable": [], "answers": []}))
""")  # fmt: skip
_reply("records-of-a-twin", "answers each question for LeakyReLU with what Square's, asked with the same, would say", """
from graders.inside import operation
real = operation.Responder.__call__
def call(self, message):
    self.get = lambda: get_ipython().user_ns["Square"].apply
    return real(self, message)
operation.Responder.__call__ = call
""")  # fmt: skip
_reply("odd-records", "answers with records whose fields have other types, sizes and depths", """
import graders.inside.operation, torch
from graders.inside.records import Case, Failure, Record
odd = [None, "x", -1, 10**300, float("nan"), [[]], {"a": {}}, Record(), Failure("a", "b", "c"), torch.zeros(()).expand(10**9),
       {"records": "x"}, {"records": [Record()] * 500}, {"results": None}, {"failure": 3}, {"records": [1, None, {}]}]
state = {"n": 0}
def call(self, message):
    state["n"] += 1
    return odd[state["n"] % len(odd)]
graders.inside.operation.Responder.__call__ = call
""")  # fmt: skip
_reply("odd-bytes", "answers with damaged messages: cut, nested 100,000 deep, with sizes of 10^18", """
import graders.inside.shell as shell_module
from graders.inside import wire
bodies = [b"", b"{", b"[" * 100_000, b'{"a": ' * 50_000, b"\\xff" * 1000, b"null", b"1e999", b"9" * 100_000,
          b'{"header": {"shape": [1000000000000000000], "dtype": "float64"}}', struct.pack(">Q", 1 << 40), b"\\x00" * 64]
state = {"n": 0}
def encode(value):
    state["n"] += 1
    return bodies[state["n"] % len(bodies)]
shell_module.encode = encode
""")  # fmt: skip
_reply("odd-displays", "shows outputs that are none: unknown kinds, missing fields, wrong types, a million keys", """
shown("execute_result")
shown("execute_result", data=3, metadata=None, execution_count="x")
shown("stream", name="stdout", text=["a", 3, None])
shown("stream", name=7)
shown("error", ename={}, evalue=[], traceback="x")
shown("display_data", data={"text/plain": {"a": 1}, 7: None, "application/json": [[[]]] * 100}, metadata=[1])
shown("update_display_data", data={}, metadata={}, transient={"display_id": {"a": 1}})
shown("display_data", data={f"x/{n}": "y" for n in range(20_000)}, metadata={})
shown("status", execution_state="idle")
shown("comm_open", comm_id="x", target_name="jupyter.widget", data={"state": {}})
shown("execute_reply", status="ok", payload=[{"source": "set_next_input", "text": "True"}])
shown("clear_output", wait=3)
frame(b"S", b"[1, 2]")
frame(b"S", b'"text"')
frame(b"S", b'{"msg_type": 3}')
frame(b"S", json.dumps({"msg_type": "stream", "content": {"name": "stdout", "text": "\\ud800"}}).encode())
""")  # fmt: skip
_reply("deep-display", "shows JSON nested 100,000 levels deep", """
frame(b"S", b'{"msg_type": "display_data", "content": {"data": {"application/json": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}}")
""")  # fmt: skip
_reply("odd-end", "ends a cell with counts that are no numbers", """
frame(b"D", b'{"count": "many"}')
""")  # fmt: skip
_reply("display-in-answer", "shows results and forged verdicts while a test asks it", act=(
    'shown("execute_result", data={"text/plain": "20.0"}, metadata={}, execution_count=1); '
    'shown("stream", name="stdout", text="LeakyReLU value: 1 of 1 points")'))  # fmt: skip
_reply("flood-in-answer", "sends displays without end while a test waits for its answer", act=(
    '[shown("stream", name="stdout", text="x" * 60_000) for _ in iter(int, 1)]'), slow=True)  # fmt: skip
_reply("flood-from-thread", "writes frames from a thread, between those of the kernel", """
def flood():
    while True:
        shown("display_data", data={"text/plain": "x" * 100}, metadata={})
        time.sleep(0.001)
threading.Thread(target=flood, daemon=True).start()
""")  # fmt: skip
_reply("tampered-observer", "replaces the observer's functions and their code, found by name and by the garbage collector", """
import gc, types
def nothing(*a, **k):
    return []
for thing in gc.get_objects():
    if isinstance(thing, types.FunctionType) and thing.__module__.startswith("graders.inside.") and thing.__name__ in (
            "_state", "_overwrite", "_trace", "told", "ended_modes"):
        try:
            thing.__code__ = nothing.__code__
        except ValueError:
            pass
import graders.inside.observe
graders.inside.observe.observe = lambda operation, case: None
""")  # fmt: skip
_reply("closed-by-collector", "finds the engine's sockets, kernel and shell among all objects and breaks them", """
import gc, socket
for thing in gc.get_objects():
    try:
        if isinstance(thing, socket.socket):
            thing.close()
        elif type(thing).__name__ in ("Channel", "Server", "Responder", "Sink"):
            vars(thing).clear()
    except Exception:
        pass
""")  # fmt: skip
_reply("walked-frames", "walks up the stack to the engine's frames and changes what it finds there", """
frame_ = sys._getframe()
while frame_:
    for value in list(frame_.f_locals.values()):
        if type(value).__name__ in ("Channel", "Server"):
            value.max_output = 10**18
            if hasattr(value, "_busy"):
                value._answers = [b"R"] * 10
                value._pid = -1
    frame_ = frame_.f_back
""")  # fmt: skip


def _file(name: str, tries: str, text: str) -> None:
    answers = {"SigmoidTests": f"%%writefile test_sigmoid.py\n{text}"}
    ATTACKS.append(Attack(name, "Forged test results", tries, answers=answers, set="02_sigmoid", honest=0))


_file("test-file-forges", "is a test file that tells the result itself, on every descriptor, before any test has run", """
import json, os, struct
data = json.dumps({"status": "failed", "test": "test_x", "kind": "AssertionError", "message": "", "lines": []}).encode()
for fd in range(3, 64):
    try:
        os.write(fd, struct.pack("!i", len(data)) + data)
    except OSError:
        pass
def test_x():
    pass
""")  # fmt: skip
_file("test-file-kills", "is a test file that kills the process that started it, and ends with success", """
import os
for act in (lambda: os.kill(os.getppid(), 9), lambda: os.killpg(os.getpgid(os.getppid()), 9), lambda: os.kill(-1, 9)):
    try:
        if len([n for n in os.listdir("/proc") if n.isdigit()]) < 40:
            act()
    except OSError:
        pass
def test_x():
    os._exit(0)
""")  # fmt: skip
_file("test-file-hangs", "is a test file that leaves a process behind which keeps its pipe open", """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(60)
def test_x():
    assert False
""")  # fmt: skip
