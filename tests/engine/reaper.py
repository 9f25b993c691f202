"""Runs a command and tells which processes it left: ``python reaper.py REPORT SECONDS COMMAND...``.

It adopts what its descendants leave behind (a subreaper), so nothing that they start can hide by a change of parent or
session; what others do on the machine does not disturb. What is left is killed.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SUBREAPER = 36


@dataclass(frozen=True)
class Left:
    """How a command ended and what it left."""

    code: int
    stdout: str
    stderr: str
    start: float
    seconds: float
    left: list[str]

    @classmethod
    def of(cls, command: Sequence[str], cwd: Path, env: Mapping[str, str], limit: float) -> "Left":
        """Run a command below a reaper."""
        with tempfile.TemporaryDirectory() as folder:
            report, out, err = (Path(folder, name) for name in ("report", "out", "err"))
            with out.open("wb") as stdout, err.open("wb") as stderr:
                subprocess.run(
                    [sys.executable, __file__, str(report), str(limit), *command],
                    cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, check=False,
                )  # fmt: skip
            told = json.loads(report.read_text())
            texts = (path.read_text(encoding="utf-8", errors="replace") for path in (out, err))
            return cls(told["code"], *texts, told["start"], told["seconds"], told["left"])


def descendants(of: int) -> dict[int, str]:
    """The processes below one, by number, each with its command line."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "stat").read_text()
                names[int(folder.name)] = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:
                continue
            _name, _, rest = status.rpartition(")")
            state, parent = rest.split()[:2]
            if state != "Z":
                parents[int(folder.name)] = int(parent)
    found: dict[int, str] = {}
    todo = {of}
    while todo:
        todo = {pid for pid, parent in parents.items() if parent in todo and pid not in found}
        found |= {pid: names[pid] for pid in todo}
    return found


def main() -> None:
    """See above."""
    report, limit, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    start, clock = time.time(), time.monotonic()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command)
    try:
        code = process.wait(float(limit))
    except subprocess.TimeoutExpired:
        code = -1
    seconds = time.monotonic() - clock
    time.sleep(0.3)  # what was killed may need a moment
    left = descendants(os.getpid())
    Path(report).write_text(
        json.dumps(
            {"code": code, "start": start, "seconds": seconds, "left": [f"{p}: {c[:120]}" for p, c in left.items()]}
        )
    )
    while left:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
        left = descendants(os.getpid())


if __name__ == "__main__":
    main()
