"""A class is graded by a user who is not root and has no sudo, behind the same walls."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graders.engine import sandbox
from tests.engine import arena
from tests.engine.attacks import ATTACKS, ROOT, hand_in

SOMEBODY = "54321"
TRIED = ("kept-list", "two-faced-stack", "patched-gradcheck", "memory-processes", "write-gradebook", "capabilities")
pytestmark = pytest.mark.skipif(
    not sandbox.available() and not os.environ.get("COURSE_REQUIRE_SANDBOX"), reason="bubblewrap is not installed"
)


def _become(*paths: Path) -> list[str]:
    """Return how root starts a command as somebody who can read these, in whatever private folder they lie."""
    opened: dict[Path, list[str]] = {}
    for path in paths:
        if private := [folder for folder in path.parents if not folder.stat().st_mode & 1]:
            shown = private[-1] / path.relative_to(private[-1]).parts[0]
            opened.setdefault(private[-1], []).extend(["--ro-bind", str(shown), str(shown)])
    options = [part for folder, binds in opened.items() for part in ("--perms", "0755", "--tmpfs", str(folder), *binds)]
    user = ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups", "--no-new-privs"]
    return ["bwrap", "--dev-bind", "/", "/", *options, "--cap-add", "ALL", "--", *user]


def test_an_ordinary_user_grades_a_class():
    """No rights are given up on the way: the class has its points, and its attackers what is theirs."""
    root = arena.temporary()
    try:
        place, more = arena.make_ours(root, "01_relu")
        arena.hand_in_right(place.course, arena.VICTIM, "01_relu")
        attacks = [attack for attack in ATTACKS if attack.name in TRIED]
        assert len(attacks) == len(TRIED)
        for attack in attacks:
            hand_in(attack, place, attack.name)
        fonts = place.home / "fonts"
        shutil.copytree(more["MPLCONFIGDIR"], fonts)
        become: list[str] = []
        if os.geteuid() == 0:
            become = _become(Path(sys.base_prefix), Path(sys.prefix), ROOT)
            for path in (root, *root.rglob("*")):
                os.chown(path, int(SOMEBODY), int(SOMEBODY), follow_symlinks=False)
        command = [*become, sys.executable, "-m", "graders", "grade", "relu", "--workers", "2", "--timeout", "10"]
        done = subprocess.run(
            command,
            cwd=place.course,
            env=os.environ | more | {"MPLCONFIGDIR": str(fonts), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "7 of 7 submissions graded" in done.stdout, done.stdout + done.stderr
        assert "sandbox" not in done.stderr and "Traceback" not in done.stderr
        assert (place.course / "autograded").stat().st_uid == (int(SOMEBODY) if become else os.geteuid())
        wanted = {arena.VICTIM: arena.FULL} | {attack.name: attack.ours for attack in attacks}
        assert arena.scores_of(place.course, "custom-gradients", "01_relu", list(wanted)) == wanted
    finally:
        shutil.rmtree(root, ignore_errors=True)
