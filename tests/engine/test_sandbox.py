"""The walls: what is visible inside, who one is there, and what is said where there can be none."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from graders.engine import memory, parents, sandbox
from graders.engine.bounds import Exceeded
from graders.engine.job import Settings
from graders.engine.kernel import Kernel
from graders.engine.sandbox import Parent, SandboxError, WarmParent
from tests.engine.conftest import SETTINGS, text

ROOT = Path(__file__).parents[2]
LOOK = """
import os, sys
for path in {paths!r}:
    print(path, os.path.exists(path))
print("course", os.access("/course", os.R_OK), [m for m in sys.modules if m.startswith("graders.") and "sets" in m])
print("pids", sorted(p for p in os.listdir("/proc") if p.isdigit()))
print("uid", os.getuid(), "groups", os.getgroups(), open("/proc/self/status").read().split("CapEff:")[1].split()[0])
print("net", [line.split(":")[0].strip() for line in open("/proc/self/net/dev").readlines()[2:]])
print("env", sorted(k for k in os.environ if "GRADERS" in k or "NBGRADER_" in k))
print("fds", sorted(os.listdir("/proc/self/fd")))
"""


def test_nothing_of_the_course_is_visible(execute, monkeypatch):
    monkeypatch.setenv("GRADERS_SEED", "4711")
    paths = [str(ROOT / name) for name in ("graders", "solutions", "gradebook.db", "tests")] + [
        str(Path.home() / ".ssh")
    ]
    (shown,) = execute(LOOK.format(paths=paths))
    lines = text(shown).splitlines()
    assert [line.split()[-1] for line in lines[: len(paths)]] == ["False"] * len(paths)
    assert lines[len(paths) :][0] == "course False []"
    assert "pids ['1']" in lines
    assert "net ['lo']" in lines
    assert "0000000000000000" in text(shown)
    assert "env ['NBGRADER_EXECUTION']" in lines, text(shown)


@pytest.mark.parametrize(
    "reach",
    [
        "open('/usr/x', 'w')",
        "open('{prefix}/x', 'w')",
        "import socket; socket.create_connection(('127.0.0.1', 22), 2)",
        "import socket; socket.create_connection(('8.8.8.8', 53), 2)",
        "import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0",
        "import ctypes; assert ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0",
        "import os; os.setuid(0)",
        "import os; os.chroot('/tmp')",
        "import os; os.open('/proc/1/root/../../etc/shadow', os.O_RDONLY)",
        "import graders.judge.task",
        "import graders.sets.relu",
    ],
)
def test_what_is_out_of_reach(execute, reach):
    (shown,) = execute(reach.format(prefix=sys.prefix))
    assert shown.outputs[-1].output_type == "error", text(shown)


def test_an_ordinary_user_has_the_same_walls(warm):
    """The same in a process that is not root: as one is, or with a user namespace around it."""
    code = (
        "from graders.engine.run import run; from graders.engine.parents import close\n"
        "from graders.engine.job import Job; import nbformat, os, sys\n"
        "from nbformat.v4 import new_code_cell, new_notebook\n"
        "assert os.geteuid() != 0\n"
        "text = 'import os; print(os.getuid(), os.path.exists(%r), os.listdir(\".\"))' % sys.argv[1]\n"
        "print(run(Job(nbformat.writes(new_notebook(cells=[new_code_cell(text)]))))); close()"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(ROOT / "graders")]
    if os.geteuid() == 0:
        command = ["unshare", "--user", "--map-user=1234", "--map-group=1234", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "1000 False []" in done.stdout


def test_a_machine_without_bubblewrap_is_told_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        SandboxError, match=r"bwrap is not installed; install bubblewrap .* or grade without .* --no-sandbox"
    ):
        WarmParent("required")


def test_a_sandbox_that_does_not_start_says_why(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    parent = WarmParent("required")
    try:
        with pytest.raises(SandboxError, match=r"No permissions to create new namespace.*--no-sandbox"):
            parent.kernel(Settings())
    finally:
        parent.close()


def test_a_course_in_its_own_environment_is_refused(monkeypatch, tmp_path):
    """`python -m venv .` in the course's folder: student code sees the environment, so it would see the solutions."""
    (tmp_path / "nbgrader_config.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sandbox, "_environments", lambda: [tmp_path])
    with pytest.raises(SandboxError, match=r"the course is in the Python environment .*python3 -m venv \.venv"):
        WarmParent("required")


def test_a_program_that_cannot_be_started_says_why(monkeypatch):
    def started(*arguments: object, **more: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(sandbox.subprocess, "Popen", started)
    with pytest.raises(SandboxError, match=r"does not start \(.*Cannot allocate memory\)"):
        WarmParent("required")


def test_the_end_of_the_grader_is_the_end_of_all(warm):
    """A grader that is killed leaves no process and no control group's members behind."""
    code = (
        "from graders.engine.sandbox import WarmParent; from graders.engine.kernel import Kernel\n"
        "from graders.engine.job import Settings; import os, signal\n"
        "w = WarmParent('required'); k = Kernel(w, Settings())\n"
        "k.quiet('import os, time\\nif os.fork() == 0:\\n    os.setsid()\\n    time.sleep(1000)', 20)\n"
        "print(w._process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    session = int(done.stdout)
    for _ in range(50):
        left = [p for p in Path("/proc").glob("[0-9]*/stat") if _session(p) == session]
        if not left:
            return
        subprocess.run(["sleep", "0.1"], check=True)
    pytest.fail(f"still there: {left}")


def _session(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[3])
    except OSError:
        return 0


def test_a_control_group_is_made_and_removed(warm):
    if warm._group is None:
        pytest.skip("no control groups that are ours to make")
    parent = WarmParent("required")
    parent.end(parent.kernel(SETTINGS)[0])
    group = parent._group
    assert group.is_dir()
    assert (group / "warm" / "cgroup.procs").read_text().split()
    parent.kernel(SETTINGS)  # still there when its parent ends
    parent.close()
    assert not group.exists()


def test_a_folder_that_is_no_control_group_is_not_taken_for_one(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "ROOT", tmp_path)
    assert memory.new_group() is None
    assert list(tmp_path.iterdir()) == []


def test_a_notebook_has_a_control_group_of_its_own(warm):
    if warm._group is None:
        pytest.skip("no control groups that are ours to make")
    before = set((warm._group / "warm" / "cgroup.procs").read_text().split())
    for parent in (warm, warm.twin()):
        share = parent.share(SETTINGS)
        own = share.group
        kernels = [parent.kernel(SETTINGS, share=share) for _ in range(2)]
        processes = set((own / "cgroup.procs").read_text().split())
        assert len(processes) == 2 and not processes & before and own.parent == warm._group  # the limit of all holds
        limit = next(path for path in (own / "memory.limit_in_bytes", own / "memory.max") if path.exists())
        assert int(limit.read_text()) == SETTINGS.memory * 3 // 2
        for kernel, _ in kernels:
            parent.end(kernel)
        share.close()
        assert not own.exists() or not (own / "cgroup.procs").read_text()
        if parent is not warm:
            parent.close()


def order_and_die(parent: Parent) -> None:
    """Give an order in a forked process that is killed before it has read the answer."""
    if (child := os.fork()) == 0:
        sandbox.socket.recv_fds = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        parent.kernel(SETTINGS)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def order_and_give_up(parent: Parent, error: BaseException) -> None:
    """Give an order, and be stopped before the answer has come."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox.socket, "recv_fds", Mock(side_effect=error))
        with pytest.raises(type(error)):
            parent.kernel(SETTINGS)
        with pytest.raises(type(error)):
            parent.signal(1, 0)


GIVEN_UP = {
    "death": order_and_die,
    "time": lambda parent: order_and_give_up(parent, Exceeded()),
    "Ctrl-C": lambda parent: order_and_give_up(parent, KeyboardInterrupt()),
}


@pytest.mark.parametrize("how", GIVEN_UP)
def test_the_answer_to_an_order_that_was_given_up_is_nobodys(warm, how):
    bare = warm.bare()
    for parent in (warm, bare):
        GIVEN_UP[how](parent)
        for _ in range(2):
            with Kernel(parent, SETTINGS) as kernel:
                kernel.quiet("answer = 42", 20)
                assert kernel.alive
    assert parents.warm() is warm and warm.bare() is bare


def test_a_twin_that_did_not_learn_what_to_refuse_is_not_used(warm, monkeypatch):
    with closing(warm.twin()) as parent, monkeypatch.context() as patch:
        give = Parent._command

        def fail(self: Parent, order: dict[str, object], *descriptors: int) -> object:
            return 1 / 0 if order["do"] == "no autograd" else give(self, order, *descriptors)

        patch.setattr(Parent, "_command", fail)
        with pytest.raises(ZeroDivisionError):
            parent.bare()
        assert parent._bare is None


def test_a_new_warm_parent_follows_one_that_is_gone(warm):
    assert parents.warm() is parents.warm()
