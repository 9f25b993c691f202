"""Grading on arrival: an inbox is looked at; what is complete there is collected, graded, and given its page.

What was taken is noted in ``watched/SET.json``, after its pages are written: after a kill or a power cut it is taken
once more, found to be graded, and noted. Nothing in the inbox is changed.
"""

import hashlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from graders.classroom.collect import collect
from graders.classroom.course import Course
from graders.classroom.errors import CourseError
from graders.classroom.giving import give
from graders.classroom.grading import FOR_ALL, Grading, Kept
from graders.classroom.lock import alone
from graders.engine.errors import PoolError
from graders.notebook.problem import printable

NOTES = "watched"  # in the course's folder
AT_ONCE = 16  # hand-ins that are collected before the first of them is graded
WAIT = 30.0  # seconds until the next look, where the disk is full or another command grades the set
FILES = 2000  # of a folder that are looked at; `collect` takes no more
UNFINISHED = re.compile(r"^\.|^~|(\.part|\.partial|\.tmp|\.crdownload|~)$")  # as browsers, rsync and editors name them
EXCHANGED = re.compile(r"(?P<student>[^+]+)\+(?P<set>[^+]+)\+[0-9][^+]*(\+[^+]*)?")  # nbgrader's inbound/


class Clerk:
    """A process that collects and makes pages, forked before there are threads: what is forked later may hang.

    Args:
        course: the course.
        assignment: the set.
    """

    def __init__(self, course: Course, assignment: str) -> None:
        self._channel, theirs = Pipe()
        self._process = os.fork()
        if not self._process:
            self._channel.close()
            _serve(theirs, course, assignment)
        theirs.close()

    def ask(self, **order: Any) -> dict[str, Any]:
        """Have something done; return the answer.

        Raises:
            CourseError: it cannot be done at the moment: the disk is full, the list of students cannot be read.
            PoolError: the process is gone.
        """
        try:
            self._channel.send_bytes(json.dumps(order).encode())
            answer: dict[str, Any] = json.loads(self._channel.recv_bytes())
        except (EOFError, OSError):
            raise PoolError("the process that collects has ended: start `watch` again, it goes on there") from None
        if "wait" in answer:
            raise CourseError(answer["wait"])
        return answer

    def close(self) -> None:
        """End it."""
        self._channel.close()
        with suppress(OSError):
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)


def _serve(channel: Connection, course: Course, assignment: str) -> None:
    """In the clerk's process: answer until nobody asks; never return."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks
        while True:
            try:
                order = json.loads(channel.recv_bytes())
            except (EOFError, OSError):
                break
            try:
                answer = _done(course, assignment, order)
            except CourseError as error:
                answer = {"wait": str(error)}
            except (Exception, SystemExit) as error:  # whatever somebody handed in: the next one is taken
                what = printable(f"{type(error).__name__}: {error}", 300)
                if isinstance(error, OSError) and error.errno in FOR_ALL:
                    answer = {"wait": f"the course's folder cannot be written ({error.strerror})"}
                else:
                    which = printable(order.get("name") or order.get("page"), 100)
                    answer = {"students": [], "lines": [f"{which}: left out, it cannot be taken ({what})"]}
            channel.send_bytes(json.dumps(answer).encode())
    finally:
        os._exit(0)


def _done(course: Course, assignment: str, order: Mapping[str, Any]) -> dict[str, Any]:
    if "page" in order:
        given = give(course, course.gradebook(), assignment, [order["page"]], 1, False, lambda line: None)
        return {"lines": list(given.lines)}
    path = Path(order["path"])
    names = {path: order["name"]} if path.is_dir() else {}
    came = collect(course.root, assignment, [path], names=names, closed=order["closed"])
    return {"students": sorted(came.students), "lines": [*came.left_out, *came.replaced]}


@dataclass
class Notes:
    """What was taken from an inbox.

    Args:
        path: the file.
        taken: by name in the inbox, what was there: see `look`.
        attempts: by student, how many different files were graded.
    """

    path: Path
    taken: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path) -> "Notes":
        """Read them; there may be none yet.

        Raises:
            CourseError: they cannot be read.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            taken = {str(name): str(what) for name, what in data["taken"].items()}
            return cls(path, taken, {str(name): int(number) for name, number in data["attempts"].items()})
        except FileNotFoundError:
            return cls(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            remedy = "restore a copy, or remove it, and the whole inbox is checked again"
            what = f"cannot be read ({type(error).__name__}): {remedy}"
            raise CourseError(f"{path.parent.name}/{path.name} {what}") from None

    def write(self) -> None:
        """Write them whole, or not at all."""
        self.path.parent.mkdir(exist_ok=True)
        part = self.path.with_name(f".{self.path.name}.part")
        part.write_text(json.dumps({"taken": self.taken, "attempts": self.attempts}, indent=1), encoding="utf-8")
        part.replace(self.path)


def look(inbox: Path) -> dict[str, str]:
    """Return what is in an inbox: by name, something that changes when the file or the folder does.

    No file is opened, no link followed; what a program is still writing by the look of its name is left out.

    Raises:
        CourseError: it cannot be read.
    """
    try:
        found = sorted(inbox.iterdir())
    except OSError as error:
        raise CourseError(f"{inbox} cannot be read ({error.strerror}): name a folder of yours") from None
    return {path.name: what for path in found if not UNFINISHED.search(path.name) and (what := _state(path))}


def _state(path: Path) -> str:
    try:
        inside = path.is_dir() and not path.is_symlink()
        paths = [path, *sorted(islice(path.rglob("*"), FILES))] if inside else [path]
        info = [(str(one.relative_to(path)), one.lstat()) for one in paths]
    except OSError:  # it is being moved
        return ""
    text = repr([(name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in info])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Watch:
    """Takes what comes into an inbox.

    Args:
        grading: of the set.
        clerk: of the same set.
        inbox: a folder: in it a folder, an archive or a notebook for each hand-in, named as `collect` takes them, or as
            nbgrader's exchange names them in ``inbound/``.
        attempts: how many different files of a student are graded; 0: all.
        say: gets each line.
    """

    def __init__(self, grading: Grading, clerk: Clerk, inbox: Path, attempts: int, say: Callable[[str], None]) -> None:
        self._grading, self._clerk, self._inbox, self._attempts, self._say = grading, clerk, inbox, attempts, say
        self._course, self._set = grading.course, grading.assignment
        self._notes = Notes.of(self._course.root / NOTES / f"{self._set}.json")
        self._seen: dict[str, str] = {}
        self.graded = 0

    def once(self) -> bool:
        """Look once, and take what is new and has not changed since the last look; return whether more is to come.

        Raises:
            OSError, CourseError: nothing can be graded at the moment; what was not finished is taken again.
        """
        now = look(self._inbox)
        new = {name: what for name, what in now.items() if self._notes.taken.get(name) != what}
        ready = [name for name, what in new.items() if self._seen.get(name) == what][:AT_ONCE]
        self._seen = now
        if ready:
            with alone(self._course.source(self._set)):
                self._take({name: new[name] for name in ready})
        return len(new) > len(ready)

    def _take(self, ready: Mapping[str, str]) -> None:
        start, students = time.monotonic(), dict[str, list[str]]()
        for name, what in ready.items():
            found = EXCHANGED.fullmatch(name)
            if found and found["set"] != self._set:
                self._notes.taken[name] = what  # another set's
                continue
            if (self._inbox / name).is_symlink():  # it may lead to what another student handed in
                self._say(f"{printable(name, 100)}: left out, it is a symbolic link. Put the file itself there")
                continue
            full = f"{self._attempts} of {self._attempts} attempts are used"
            closed = {s: full for s, number in self._notes.attempts.items() if 0 < self._attempts <= number}
            answer = self._clerk.ask(
                path=str(self._inbox / name), name=found["student"] if found else name, closed=closed
            )
            for line in answer["lines"]:
                self._say(line)
            if not answer["students"] and not answer["lines"]:
                self._say(f"{printable(name, 100)}: left out, there is no notebook of {self._set} in it")
            for student in answer["students"]:
                students.setdefault(student, []).append(name)
        for outcome, problems in self._grading.each(sorted(students)):
            student = outcome.submission.student
            for problem in problems:
                self._say(f"{printable(student, 60)}: {problem}")
            if any(problem.fatal for problem in problems):
                continue
            for line in self._clerk.ask(page=student)["lines"]:
                self._say(line)
            if isinstance(outcome, Kept):
                self._say(f"{printable(student, 60)}: the same file as before, which is graded already")
                continue
            self.graded += 1
            self._notes.attempts[student] = self._notes.attempts.get(student, 0) + 1
            self._notes.write()
            score = self._grading.records.score(outcome.submission)
            late = sum(held.penalty or 0 for held in self._grading.records.held(outcome.submission).values())
            points = "not graded" if score is None else f"{score:g} points"
            points += f", {late:g} less for being late" if late else ""
            self._say(f"{printable(student, 60)}: {points}, after {time.monotonic() - start:.1f} s")
        self._notes.taken |= ready
        self._notes.write()


def watch(one: Watch, every: float, until_empty: bool) -> None:
    """Look again and again.

    Args:
        one: what looks.
        every: seconds between two looks.
        until_empty: end when nothing new is there; else only Ctrl-C ends it.
    """
    told = ""
    while True:
        try:
            more = one.once()
            told, pause = "", every
        except (OSError, CourseError) as error:
            if isinstance(error, OSError) and error.errno not in FOR_ALL:
                raise
            line = (
                f"the course's folder cannot be written ({error.strerror})"
                if isinstance(error, OSError)
                else str(error)
            )
            if line != told:  # once, not every half minute
                print(f"graders: {printable(line, 1000)}; trying again every {WAIT:.0f} s", file=sys.stderr, flush=True)
            told, more, pause = line, True, WAIT
        if until_empty and not more:
            return
        time.sleep(pause)
