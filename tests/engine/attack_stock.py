"""Run the attack suite on nbgrader as it comes, in containers that are thrown away; write the table of book/trust.md.

    python -m tests.engine.attack_stock [--page] [NAME...]

Needs root on Linux with bubblewrap and overlayfs: an attack sees the whole system as it is and may do to it what it
likes; what it writes goes to memory and ends with it. It has no network but a loopback interface of its own. What each
earned and broke is kept in tests/engine/attacks/stock.json; `--page` writes the table from there and runs nothing.
"""

import argparse
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.engine import arena as arenas
from tests.engine.attacks import ATTACKS, ROOT, Arena, Attack, hand_in
from tools.stock import environment, nbgrader, stock_course

RESULTS = ROOT / "tests/engine/attacks/stock.json"
PAGE = ROOT / "book/trust.md"
BEGIN, END = "<!-- the table: tests/engine/attack_stock.py writes it -->", "<!-- the table ends -->"
# Attacks that were never run on stock, and of which the page says so: `--new` runs them.
LATER = ("python_ways", "torch_ways", "markup", "neighbours")
DUNDER = re.compile(r"(?<!`)\b__\w+__")
NOT_RUN = {"blank-error", "names-double", "sums-double"} | {a.name for a in ATTACKS if a.module in LATER}
CELL_TIME = 15  # seconds a cell, in place of stock's 30: endless loops are many
LIMIT = 240  # seconds for an attacker and a bystander; then the class counts as not graded
# Most attacks of these kinds stay in their kernel, so that several may be graded by one command.
TOGETHER = (
    "Patched torch",
    "Graders' modules",
    "The notebook's shell",
    "Lifting the ban",
    "Torch's gradient",
    "The notebook file",
    "Forged replies",
    "Reading",
    "Keeping too much",
    "The grader's own time",
    "The feedback page",
)
MOST = 12  # graded by one command
BYSTANDER = "zoe"

CONTAINER = """
set -e
mount -t tmpfs -o size=6g none {room}
mkdir {room}/up {room}/work {room}/all
mount -t overlay overlay -o lowerdir=/,upperdir={room}/up,workdir={room}/work {room}/all
timeout -k 5 {limit} bwrap --bind {room}/all / --dev /dev --proc /proc --unshare-pid --unshare-net --unshare-ipc \
    --unshare-uts --die-with-parent --new-session --chdir {root} {command} || true
cp {room}/up{folder}/result.json {folder}/result.json || true
"""


def template(folder: Path) -> dict[str, str]:
    """A stock course with its secrets, a bystander to come and a victim graded; the environment to grade with."""
    course = stock_course(ROOT, folder / "course", ["01_relu", "02_sigmoid"])
    with (course / "nbgrader_config.py").open("a") as file:
        file.write(f"c.Execute.timeout = {CELL_TIME}\n")
    more = arenas.prepare(course, folder / "home")
    for assignment in ("01_relu", "02_sigmoid"):
        arenas.hand_in_right(course, arenas.VICTIM, assignment)
    done = nbgrader(course, "autograde", "01_relu", timeout=300)
    assert done.returncode == 0, done.stderr
    return more


def inside(folder: Path, names: Sequence[str]) -> None:
    """Within the container: grade these attackers, and the bystander after a single one; write what happened."""
    arena = Arena(folder / "course", folder / "home")
    attacks = [attack for attack in ATTACKS if attack.name in names]
    assignment, course = attacks[0].set, arena.course
    students = [attack.name for attack in attacks]
    more = json.loads((folder / "environment.json").read_text())
    watched = [course / "solutions", course / "submitted", arena.home / ".ssh"]
    if len(students) == 1:
        students.append(BYSTANDER)
        arenas.hand_in_right(course, BYSTANDER, assignment)
    with arenas.listening(arena) as (known, ears):
        for attack in attacks:
            hand_in(attack, known, attack.name)
        before = arenas.contents(*watched)
        said, start, limit = "", time.monotonic(), LIMIT if len(attacks) == 1 else 25 * len(attacks)
        log = (folder / "log").open("w+b")
        process = subprocess.Popen(
            [sys.executable, "-m", "nbgrader", "autograde", assignment],
            cwd=course, env={**environment(), **more}, start_new_session=True,
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            said = f"grading did not end in {limit} s"
            os.killpg(process.pid, signal.SIGKILL)
        seconds = time.monotonic() - start
        time.sleep(0.5)
        damage = [said] if said else []
        damage += arenas.heard(ears)
    stayed = [
        p for p in Path("/proc").iterdir() if p.name.isdigit() and int(p.name) not in (1, os.getpid(), os.getppid())
    ]
    if stayed and not said:
        damage.append(f"{len(stayed)} process{'es' * (len(stayed) > 1)} left running")
    after = arenas.contents(*watched)
    changed = {
        Path(name).relative_to(folder).parts[1]
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    }
    damage += [f"changed {name}/" for name in sorted(changed)]
    names = {str(course): "the course", str(arena.home): "~", sys.prefix: "the environment"}
    names |= {str(ROOT): "the project", sys.base_prefix: "Python"}
    for path in sorted({str(path.parent) for path in arenas.planted(course, arena.home)}):
        place = next((path.replace(at, name, 1) for at, name in names.items() if path.startswith(at)), path)
        damage.append(f"planted files in {place}")
    scores = arenas.scores_of(course, "stock", assignment, students + [arenas.VICTIM] * (assignment == "01_relu"))
    told = {}
    for attack in attacks:
        slug = assignment.partition("_")[2]
        text = arenas.output_text(course / "autograded" / attack.name / assignment / f"{slug}.ipynb")
        told[attack.name] = arenas.damage_told(text)
        if attack.kind == "The feedback page" and scores[attack.name] is not None:
            nbgrader(course, "generate_feedback", assignment, "--student", attack.name, timeout=120)
            page = course / "feedback" / attack.name / assignment / f"{slug}.html"
            found = arenas.live(page.read_text(encoding="utf-8")) if page.is_file() else []
            told[attack.name] += [f"{len(found)} live pieces in the page"] if found else []
    result = {"scores": scores, "damage": damage, "told": told, "seconds": seconds, "log": log_text(log)}
    (folder / "result.json").write_text(json.dumps(result))


def log_text(file: object) -> str:
    """The end of what nbgrader said."""
    file.seek(0)
    return file.read().decode(errors="replace")[-3000:]


def run(folder: Path, room: Path, attacks: Sequence[Attack]) -> dict[str, dict]:
    """Run attacks in a container of their own; score and damage by name."""
    names = [attack.name for attack in attacks]
    command = [sys.executable, "-m", "tests.engine.attack_stock", "--inside", str(folder), *names]
    limit = LIMIT + 120 if len(names) == 1 else 35 * len(names)
    script = CONTAINER.format(room=room, folder=folder, limit=limit, root=ROOT, command=shlex.join(command))
    (folder / "result.json").unlink(missing_ok=True)
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )
    if not (folder / "result.json").is_file():
        return {name: {"score": None, "damage": ["every process of its grader was killed"]} for name in names} | (
            {"": {"damage": [done.stderr[-500:]]}} if len(names) > 1 else {}
        )
    result = json.loads((folder / "result.json").read_text())
    if os.environ.get("ATTACK_LOG"):
        print(result["seconds"], result["log"])
    common = list(result["damage"])
    scores = result["scores"]
    if len(names) == 1 and scores[BYSTANDER] != arenas.FULL:
        common.append(
            f"the next student {'is not graded' if scores[BYSTANDER] is None else f'scores {scores[BYSTANDER]:g}'}"
        )
    if scores.get(arenas.VICTIM, arenas.FULL) != arenas.FULL:
        common.append(f"an earlier student's score becomes {scores[arenas.VICTIM] or 0:g}")
    if len(names) > 1 and common:
        return {"": {"damage": common}}
    return {name: {"score": scores[name], "damage": common + result["told"][name]} for name in names}


def cell(score: float | None, damage: Sequence[str], honest: float) -> str:
    """A cell of the table."""
    text = "not graded" if score is None else f"{score:g}"
    if score is not None and score > honest:
        text = f"**{text}**"
    return "; ".join([text, *damage]).replace("|", "\\|").replace("<", "&lt;")


def table(attacks: Sequence[Attack], results: dict[str, dict]) -> str:
    """The page's table: a part for each kind of attack."""
    parts = []
    for kind in dict.fromkeys(attack.kind for attack in attacks):
        lines = [f"### {kind}", "", "| Attack | It | Worth | Stock | Here |", "|---|---|---|---|---|"]
        for attack in attacks:
            if attack.kind == kind:
                stock = results.get(attack.name)
                there = cell(stock["score"], stock["damage"], attack.honest) if stock else "not run"
                here = cell(attack.ours, [], attack.honest)
                tries = DUNDER.sub(r"`\g<0>`", attack.tries)  # in Markdown two underscores make words bold
                lines.append(f"| {attack.name} | {tries} | {attack.honest:g} | {there} | {here} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def page(text: str, attacks: Sequence[Attack], results: dict[str, dict]) -> str:
    """The text of the page with its table written anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(attacks, results)}\n\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.engine.attack_stock", description=__doc__.split("\n")[0])
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these attacks; * and ? stand for anything")
    parser.add_argument("--page", action="store_true", help="write the table from what is known; run nothing")
    parser.add_argument("--new", action="store_true", help="only attacks whose result is not known")
    parser.add_argument("--inside", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.inside:
        inside(chosen.inside, chosen.names)
        return 0
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    if not chosen.page:
        todo = [a for a in ATTACKS if not chosen.names or any(fnmatch.fnmatch(a.name, n) for n in chosen.names)]
        todo = [a for a in todo if not (chosen.new and a.name in results)]
        folder, room = Path(tempfile.mkdtemp(prefix="stock-")), Path(tempfile.mkdtemp(prefix="stock-room-"))
        try:
            (folder / "environment.json").write_text(json.dumps(template(folder)))
            for group in _groups(todo):
                found = run(folder, room, group)
                if "" in found:  # somebody did something to all: one by one
                    print(f"{group[0].kind}: {found['']['damage']}", flush=True)
                    found = {name: result for attack in group for name, result in run(folder, room, [attack]).items()}
                elif len(group) > 1:  # who was not graded may have been stopped by another
                    for attack in group:
                        if found[attack.name]["score"] is None:
                            found |= run(folder, room, [attack])
                for name, result in found.items():
                    print(f"{name:24} {result['score']} {'; '.join(result['damage'])}", flush=True)
                results = {a.name: {**results, **found}[a.name] for a in ATTACKS if a.name in {**results, **found}}
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            room.rmdir()
    if PAGE.is_file():
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), ATTACKS, results), encoding="utf-8")
    return 0


def _groups(attacks: Sequence[Attack]) -> list[list[Attack]]:
    """Those that may be graded by one command together, and the others alone."""
    groups, alone = [], []
    for kind in dict.fromkeys(attack.kind for attack in attacks):
        members = [attack for attack in attacks if attack.kind == kind]
        many = [a for a in members if kind in TOGETHER and not a.place and not a.slow]
        groups += [many[at : at + MOST] for at in range(0, len(many), MOST)]
        alone += [[attack] for attack in members if attack not in many]
    return groups + alone


if __name__ == "__main__":
    sys.exit(main())
