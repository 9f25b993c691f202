"""What you have done and tried: one plain file on your machine, which you may read, copy and delete.

It is ``.study.json`` in the course's folder (the one that holds ``book/`` and ``exercises/``), so that it goes with the
course when you move it. Where a notebook lies outside of a course's folder, it is
``$XDG_STATE_HOME/custom-gradients/study.json``, or ``~/.local/state/custom-gradients/study.json``. With the variable
``GRADERS_STUDY`` you name another file; ``GRADERS_STUDY=off`` keeps none.

    {
      "version": 1,
      "tasks": {
        "relu.Square": {                              the set, and the task
          "tries": 3,                                 how often the coach was asked
          "first": "2026-11-02T19:04:11+01:00",       when it was asked first
          "last": "2026-11-02T19:20:40+01:00",        and last
          "checks": 4,                                how many checks the task has
          "held": ["value", "gradient"],              which of them held the last time
          "best": 3,                                  how many held at the best time
          "done": "2026-11-02T19:20:40+01:00",        when all held first, or null
          "opened": null                              when the solutions were shown first, or null
        }
      }
    }

It holds no code and no name. Nothing is sent anywhere. ``python -m graders study --forget`` deletes it.
"""

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from pathlib import Path

VERSION = 1
NAME = ".study.json"
VARIABLE = "GRADERS_STUDY"
MOST = 1_000_000  # bytes; a whole course has 20,000


@dataclass
class Progress:
    """What is known of one task; see above."""

    tries: int = 0
    first: str = ""
    last: str = ""
    checks: int = 0
    held: list[str] = field(default_factory=list)
    best: int = 0
    done: str | None = None
    opened: str | None = None


@dataclass
class Study:
    """What is known of all tasks.

    Args:
        tasks: by set and name: ``relu.Square``.
        note: one line on a file that could not be read; "" for none.
    """

    tasks: dict[str, Progress] = field(default_factory=dict)
    note: str = ""

    def done(self, key: str) -> bool:
        """Return whether a task has passed once."""
        return key in self.tasks and self.tasks[key].done is not None


def root() -> Path | None:
    """Return the course's folder, which the working directory is or lies in; None where it does not."""
    with suppress(OSError):
        here = Path.cwd()
        for folder in (here, *here.parents):
            if (folder / "book").is_dir() and (folder / "exercises").is_dir():
                return folder
    return None


def file() -> Path | None:
    """Return where the file is, or will be; None where none is to be kept."""
    given = os.environ.get(VARIABLE, "")
    if given:
        return None if given == "off" else Path(given).expanduser()
    if folder := root():
        return folder / NAME
    home = os.environ.get("XDG_STATE_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path("~/.local/state").expanduser()
    return base / "custom-gradients" / "study.json"


def read(path: Path | None = None) -> Study:
    """Return what the file holds; of a file that is damaged, nothing, and a note that says so."""
    path = path or file()
    if path is None:
        return Study()
    try:
        if path.stat().st_size > MOST:
            raise ValueError("it is too large")
        data = json.loads(path.read_text(encoding="utf-8"))
        return Study({str(key): _progress(value) for key, value in _tasks(data).items()})
    except FileNotFoundError:
        return Study()
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "it is damaged"
        return Study(note=f"{path.name} could not be read ({reason}); what you did before is not known.")


def _tasks(data: object) -> dict[str, object]:
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("tasks"), dict):
        raise ValueError("another form")
    tasks: dict[str, object] = data["tasks"]
    return tasks


def _progress(value: object) -> Progress:
    """Return an entry; what is missing is as at the start.

    Raises:
        ValueError: something in it is not of its kind.
    """
    if not isinstance(value, dict):
        raise ValueError("another form")
    known = {part.name: value[part.name] for part in fields(Progress) if part.name in value}
    for name in ("tries", "checks", "best"):
        if type(known.get(name, 0)) is not int:
            raise ValueError(name)
    for name in ("first", "last"):
        if not isinstance(known.get(name, ""), str):
            raise ValueError(name)
    for name in ("done", "opened"):
        if not isinstance(known.get(name), str | None):
            raise ValueError(name)
    held = known.get("held", [])
    if not isinstance(held, list) or not all(isinstance(check, str) for check in held):
        raise ValueError("held")
    return Progress(**known)


def tried(key: str, checks: list[tuple[str, bool]], total: int) -> str:
    """Note that a task was judged.

    Args:
        key: the task's: ``relu.Square``.
        checks: those that were judged, and whether they hold.
        total: how many there are.

    Returns:
        One line on what went wrong with the file; "" for nothing.
    """
    if not checks:
        return ""
    now = _now()
    study = read()
    progress = study.tasks.setdefault(key, Progress(first=now))
    progress.tries += 1
    progress.last, progress.checks = now, total
    progress.held = [name for name, holds in checks if holds]
    progress.best = max(progress.best, len(progress.held))
    if len(progress.held) == total:
        progress.done = progress.done or now
    return write(study)


def opened(key: str) -> str:
    """Note that the solutions of a task were shown; return as `tried`."""
    study = read()
    progress = study.tasks.setdefault(key, Progress(first=_now(), last=_now()))
    progress.opened = progress.opened or _now()
    return write(study)


def write(study: Study) -> str:
    """Write the file, whole or not at all; a damaged one is kept beside it. Return as `tried`."""
    path = file()
    if path is None:
        return ""
    note = study.note
    text = json.dumps({"version": VERSION, "tasks": {k: asdict(p) for k, p in sorted(study.tasks.items())}}, indent=2)
    new = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if note and path.is_file():
            os.replace(path, path.with_name(f"{path.name}.damaged"))
            note += f" It is kept as {path.name}.damaged."
        handle, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with open(handle, "w", encoding="utf-8") as opened_file:
            opened_file.write(text + "\n")
        os.replace(new, path)
    except OSError as error:
        if new:
            Path(new).unlink(missing_ok=True)
        return (
            f"What you did could not be noted in {path.name} ({error.strerror}); the verdicts above hold all the same."
        )
    return note


def forget() -> Path | None:
    """Delete the file; return where it was, None where there was none."""
    path = file()
    if path is None or not path.exists():
        return None
    path.unlink()
    return path


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
