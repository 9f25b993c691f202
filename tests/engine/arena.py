"""A class with attackers in it: made, graded as an instructor would, and looked at for all that an attack left."""

import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
from bs4 import BeautifulSoup, Tag
from nbgrader.api import Gradebook, MissingEntry
from pygments.token import STANDARD_TYPES

from graders.classroom.course import Course
from tests.engine.attacks import MARK, ROOT, SECRET, Arena, Attack, hand_in
from tests.engine.reaper import Left

VICTIM, BYSTANDERS = "alice", ("hugo", "zoe")  # graded before the attackers, among and after them
FULL = 20.0
PATH_MAX = 4096  # bytes of a path, as Linux has it: what lies deeper cannot be named
PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/etc", "/run", "/usr/bin", "/", "/root", "/var", "/home")


def secret(what: str) -> str:
    """A text that nobody can guess and everybody would recognise."""
    return f"{SECRET}{what}-{secrets.token_hex(4)}"


def prepare(course: Path, home: Path) -> dict[str, str]:
    """Hide secrets in a course folder whose `solutions/` stand, in a home and in an environment to grade with.

    Returns:
        The environment: its additional variables.
    """
    (course / "private.txt").write_text(secret("course"))
    (course / "solutions/private.txt").write_text(secret("solutions"))
    (course / "submitted").mkdir()
    home.mkdir(parents=True, exist_ok=True)
    (home / ".ssh").mkdir()
    (home / ".ssh/id_ed25519").write_text(secret("home"))
    fonts = matplotlib.get_cachedir()  # a new home would cost a new list of fonts: half a minute
    return {"HOME": str(home), "GRADER_TOKEN": secret("environment"), "MPLCONFIGDIR": fonts}


def hand_in_right(course: Path, student: str, assignment: str) -> None:
    """A right submission: the notebook of `solutions/` under a student's name."""
    slug = assignment.partition("_")[2]
    folder = course / "submitted" / student / assignment
    folder.mkdir(parents=True)
    released = json.loads((ROOT / "exercises" / assignment / f"{slug}.ipynb").read_text(encoding="utf-8"))
    solved = json.loads((ROOT / "solutions" / assignment / f"{slug}.ipynb").read_text(encoding="utf-8"))
    answers = {c["metadata"].get("nbgrader", {}).get("grade_id"): c["source"] for c in solved["cells"]}
    for cell in released["cells"]:
        meta = cell["metadata"].get("nbgrader", {})
        if meta.get("solution"):
            cell["source"] = "".join(answers[meta["grade_id"]]) + f"\n# {secret(student)}"
    (folder / f"{slug}.ipynb").write_text(json.dumps(released), encoding="utf-8")


def make_ours(root: Path, assignment: str) -> tuple[Arena, dict[str, str]]:
    """A course folder of this project with one set, and the environment to grade with."""
    course = root / "course"
    (course / "solutions").mkdir(parents=True)
    shutil.copy(ROOT / "nbgrader_config.py", course)
    leave = shutil.ignore_patterns(".*", "__pycache__")
    shutil.copytree(ROOT / "solutions" / assignment, course / "solutions" / assignment, ignore=leave)
    more = prepare(course, root / "home")
    Course(course).register(assignment)  # there is a gradebook to attack
    return Arena(course, root / "home"), more


@contextmanager
def listening(arena: Arena) -> Iterator[tuple[Arena, list[socket.socket]]]:
    """The arena with somebody who listens on the loopback interface and on an abstract Unix socket."""
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        name = f"graders-{secrets.token_hex(8)}"
        tcp.bind(("127.0.0.1", 0))
        unix.bind(f"\0{name}")
        for ear in (tcp, unix):
            ear.listen(64)
            ear.setblocking(False)
        yield Arena(arena.course, arena.home, tcp.getsockname()[1], name), [tcp, unix]


def heard(ears: Sequence[socket.socket]) -> list[str]:
    """Who of these was connected to."""
    found = []
    for ear in ears:
        try:
            ear.accept()[0].close()
            found.append(f"connected to a {'TCP' if ear.family == socket.AF_INET else 'Unix'} socket of the machine")
        except BlockingIOError:
            pass
    return found


def contents(*folders: Path) -> dict[str, str]:
    """Every file below some folders with what it holds or leads to."""
    found = {}
    for folder in folders:
        listed = (Path(place, name) for place, inside, files in os.walk(folder) for name in (*inside, *files))
        for path in sorted(path for path in listed if len(os.fsencode(path)) < PATH_MAX):
            if path.is_symlink():
                found[str(path)] = f"-> {os.readlink(path)}"
            elif path.is_file() and path.suffix != ".db":
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def planted(*roots: Path) -> list[Path]:
    """Files that an attack left: what bears its mark where nobody but the grader should write."""
    import torch

    import graders

    found = [path for root in roots for path in root.rglob(f"*{MARK}*")]
    library = Path(torch.__file__).parents[1]
    for folder in (
        *map(Path, PLACES),
        library,
        library / "torch",
        Path(graders.__file__).parent,
        Path(os.__file__).parent,
    ):
        found += [path for path in folder.glob(f"*{MARK}*") if path.name != f".{MARK}"]
    return sorted(set(found))


@dataclass
class Outcome:
    """What became of a class.

    Args:
        scores: by student; None: not graded.
        code: the exit code.
        stdout, stderr: what the command printed.
        seconds: how long the command took.
        left: the processes that it left.
        damage: what else was found, one line each.
        pieces: seconds by student, where one was graded after the other.
    """

    scores: dict[str, float | None]
    code: int
    stdout: str
    stderr: str
    seconds: float
    left: list[str]
    damage: list[str] = field(default_factory=list)
    pieces: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def said(self, student: str) -> str:
        """All that a person reads about a student: fault lines and the outputs of the notebook."""
        lines = [line for line in self.stderr.splitlines() if line.startswith(f"{student}: ")]
        return "\n".join([*lines, self.texts.get(student, "")])


def output_text(path: Path) -> str:
    """What a graded notebook shows, without its sources."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError):
        return ""
    return json.dumps([cell.get("outputs", []) for cell in cells], ensure_ascii=False)


def damage_told(text: str) -> list[str]:
    """What an attack itself says that it reached: its secrets and its boasts."""
    lines = [f"read {what}" for what in sorted(set(re.findall(rf"{SECRET}([a-z]+)-[0-9a-f]{{8}}", text)))]
    return lines + sorted({found.strip() for found in re.findall(r"DAMAGE: ([^\"\\]{1,80})", text)})


def scores_of(course: Path, course_id: str, assignment: str, students: Sequence[str]) -> dict[str, float | None]:
    """The scores in the gradebook; None: no score, or no graded notebook."""
    found: dict[str, float | None] = {}
    slug = assignment.partition("_")[2]
    with Gradebook(f"sqlite:///{course}/gradebook.db", course_id) as gradebook:
        for student in students:
            try:
                submission = gradebook.find_submission(assignment, student)
                ungraded = any(
                    g.auto_score is None and g.manual_score is None for n in submission.notebooks for g in n.grades
                )
                there = (course / "autograded" / student / assignment / f"{slug}.ipynb").is_file()
                found[student] = None if ungraded or not there else submission.score
            except MissingEntry:
                found[student] = None
    return found


def grade(
    arena: Arena, more: dict[str, str], assignment: str, attacks: Sequence[Attack], *options: str, limit: float = 600
) -> Outcome:
    """Hand the attacks in, grade the class by one `python -m graders grade`, and look at everything."""
    course = arena.course
    hand_in_right(course, VICTIM, assignment)
    for student in BYSTANDERS:
        hand_in_right(course, student, assignment)
    with listening(arena) as (known, ears):
        for attack in attacks:
            hand_in(attack, known, attack.name)
        kept = [course / "solutions", course / "submitted", arena.home / ".ssh"]
        before = contents(*kept)
        done = Left.of(
            [sys.executable, "-m", "graders", "grade", assignment, *options],
            cwd=course,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more},
            limit=limit,
        )
        damage = heard(ears)
    after = contents(*kept)
    damage += [
        f"changed {name}" for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)
    ]
    left_behind = list(planted(course / "autograded", arena.home, course.parent / "tmp"))
    damage += [f"planted {path}" for path in left_behind]
    for path in left_behind:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    students = sorted(path.name for path in (course / "submitted").iterdir())
    outcome = Outcome(
        scores_of(course, "custom-gradients", assignment, students),
        done.code, done.stdout, done.stderr, done.seconds, done.left, damage,
    )  # fmt: skip
    slug = assignment.partition("_")[2]
    end = done.start
    for student in students:
        path = course / "autograded" / student / assignment / f"{slug}.ipynb"
        outcome.texts[student] = output_text(path)
        if path.is_file():
            outcome.pieces[student], end = path.stat().st_mtime - end, path.stat().st_mtime
    return outcome


ATTRIBUTES = re.compile(r"^on|^(srcdoc|formaction|ping)$", re.I)
SCHEME = re.compile(r"^[\s\x00-\x20]*(javascript:|vbscript:|data:text/html)", re.I)


def live(html: str) -> list[str]:
    """What in a page comes from an attacker and would do something: scripts, handlers, frames, requests elsewhere."""
    page = BeautifulSoup(html, "html.parser")
    found = []
    for tag in page.find_all(True):
        text = str(tag)
        found += _seen_elsewhere(tag)
        own = MARK in text.lower() and (tag.name in ("script", "style") or len(text) < 4000)
        if not own:
            continue
        if tag.name in (
            "script",
            "iframe",
            "object",
            "embed",
            "form",
            "base",
            "link",
            "meta",
            "style",
            "frame",
            "applet",
        ):
            found.append(text[:100])
        for name, value in tag.attrs.items():
            value = " ".join(value) if isinstance(value, list) else str(value)
            loads = ("src", "action", "data", "poster", "xlink:href", "srcset") + (() if tag.name == "a" else ("href",))
            elsewhere = name in loads and "//mallory" in value  # a link does nothing until somebody follows it
            bad = ATTRIBUTES.match(name) and MARK in value.lower()
            if (
                bad
                or (SCHEME.match(value) and MARK in value.lower())
                or elsewhere
                or (name == "style" and "//mallory" in value)
            ):
                found.append(f"<{tag.name} {name}={value[:60]!r}>")
    return found


PAGE_CLASSES = {"highlight", "anchor-link", *STANDARD_TYPES.values()}  # what a text cell may carry: coloured code
PLACED = re.compile(r"position|z-index|float|height|width|margin|top|left|transform|display|url\s*\(|expression", re.I)


def _seen_elsewhere(tag: Tag) -> list[str]:
    """What of a tag loads something from a host, or takes a text cell out of its own box: classes, ids, placing."""
    found = []
    for name in ("src", "srcset", "poster", "background", "data", "xlink:href", "action"):
        value = str(tag.get(name, "")).strip()
        if re.match(r"(https?:)?//", value, re.I) or (
            tag.name == "img" and value and not value.startswith("data:image/")
        ):
            found.append(f"<{tag.name} {name}={value[:60]!r}>")
    if tag.find_parent(class_="text_cell_render") and not tag.find_parent("math"):
        foreign = {word for word in tag.get("class", ()) if word not in PAGE_CLASSES} - {"katex"}
        found += [f"<{tag.name} class={word!r}>" for word in sorted(foreign)]
        if PLACED.search(str(tag.get("style", ""))):
            found.append(f"<{tag.name} style={tag['style'][:60]!r}>")
        if tag.get("id") and tag.name not in ("h1", "h2", "h3", "h4", "h5", "h6"):
            found.append(f"<{tag.name} id={tag['id'][:60]!r}>")
    return found


def feedback(course: Path, more: dict[str, str], assignment: str, students: Sequence[str]) -> dict[str, list[str]]:
    """Write everybody's feedback; what is live in the pages of these students."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    command = [sys.executable, "-m", "nbgrader", "generate_feedback", assignment]
    done = subprocess.run(command, cwd=course, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    pages = {s: course / "feedback" / s / assignment / f"{assignment.partition('_')[2]}.html" for s in students}
    return {student: live(path.read_text(encoding="utf-8")) for student, path in pages.items()}


def temporary() -> Path:
    """A folder for a class; its path is short, since sockets are in it."""
    return Path(tempfile.mkdtemp(prefix="class-"))
