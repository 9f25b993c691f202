"""Bring in submissions from folders and archives, through nbgrader's own ``zip_collect``.

What comes from students is not trusted: an archive is unpacked within limits, its links and its ways out of the folder
are left out, and a file's name does not make it another student's.
"""

import filecmp
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from nbgrader.apps import ZipCollectApp
from nbgrader.plugins import ExtractorPlugin, FileNameCollectorPlugin

from graders.classroom.archive import ARCHIVES, MAX_UNPACKED, TIMES, ArchiveError, folder_of, unpack
from graders.classroom.submission import read_time
from graders.classroom.whose import whose
from graders.notebook.codes import Code
from graders.notebook.files import MAX_BYTES, no_file
from graders.notebook.problem import printable


@dataclass
class Intake:
    """What came in during one run of ``zip_collect``; its plugins share it.

    Args:
        left_out: a line on each file that was left out.
        given: the folder that each argument was copied to, and the one that it means where it was typed.
        places: the folder that each archive went to, and that archive as if it had been copied like other files.
        claims: what ``zip_collect`` gets on each file that is taken, None before all of them are there.
        students: those whose files are taken.
    """

    left_out: list[str] = field(default_factory=list)
    given: dict[str, Path] = field(default_factory=dict)
    places: dict[Path, Path] = field(default_factory=dict)
    claims: dict[Path, dict[str, object]] | None = None
    students: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, app: ZipCollectApp) -> "Intake":
        """Return the one of this run."""
        return app.__dict__.setdefault("intake", cls())

    def shown(self, path: Path, root: Path) -> str:
        """Return the name that a file below ``root`` had where it came from; in an archive ``amara.zip/relu.ipynb``."""
        for folder in path.parents:
            if folder in self.places:
                return f"{self.shown(self.places[folder], root)}/{path.relative_to(folder).as_posix()}"
        name = path.relative_to(root)
        if name.parts[0] in self.given:
            return str(self.given[name.parts[0]].joinpath(*name.parts[1:]))
        return str(self.given.get("", Path()) / name)


class Extractor(ExtractorPlugin):
    """nbgrader's plugin for archives, with limits: nbgrader's own unpacks all, and stops at the first hostile name."""

    def extract(self, archive_path: str, extracted_path: str) -> None:
        """Unpack every archive below one folder into another and copy all other files there."""
        given, target = Path(archive_path), Path(extracted_path)
        intake = Intake.of(self.parent)
        files = [path for path in sorted(given.rglob("*")) if not path.is_dir()]
        archives = [path for path in files if path.name.lower().endswith(ARCHIVES)]
        for path in files:
            if path not in archives:
                _copy(path, target / path.relative_to(given))
        for path in archives:
            copied = target / path.relative_to(given)
            copied.parent.mkdir(parents=True, exist_ok=True)
            folder, name = folder_of(copied), intake.shown(copied, target)
            try:
                intake.left_out += [f"{name}/{line}" for line in unpack(path, folder, 0, intake.places)]
                intake.places[folder] = copied
            except ArchiveError as error:
                intake.left_out.append(f"{name}: left out, {error}. Ask for another")


def _copy(source: Path, target: Path) -> None:
    """Copy a file's bytes and its time, nothing else."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    info = source.stat()
    os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))


class Collector(FileNameCollectorPlugin):
    """nbgrader's ``zip_collect`` plugin for this course: the student is the folder, or the start of the file's name.

    ``ada/relu.ipynb``, ``ada.zip`` holding ``relu.ipynb``, ``ada/01_relu/relu.ipynb`` and ``ada_relu.ipynb`` are all of
    them ada's. Folders that the course itself has (``exercises``, ``01_relu``) say nothing about the student.
    With ``c.FileNameCollectorPlugin.named_regexp`` set nbgrader's own rule is followed in place of this one.
    """

    def collect(self, submitted_file: str) -> dict[str, object] | None:
        """Return the student, the notebook and the time of one extracted file, None for a file to leave out."""
        path, intake = Path(submitted_file), Intake.of(self.parent)
        if self.named_regexp:
            found = super().collect(submitted_file)
            if found and not found.get("timestamp"):
                found["timestamp"] = Time.of(path)
        else:
            if intake.claims is None:
                intake.claims = self._claims(intake)
            found = intake.claims.get(path)
        if found:
            intake.students.add(found["student_id"])
        return found

    def _claims(self, intake: Intake) -> dict[Path, dict[str, object]]:
        """Return what to tell ``zip_collect`` about each file that is taken."""
        app: ZipCollectApp = self.parent
        root = Path(app._format_collect_path(app.extracted_directory))
        assignment = app.coursedir.assignment_id
        released = Path(app.coursedir.format_path(app.coursedir.release_directory, ".", assignment))
        submitted = Path(app.coursedir.root, app.coursedir.submitted_directory)
        claims, left_out = whose(
            sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()),
            assignment,
            sorted(notebook.stem for notebook in released.glob("*.ipynb")),
            {path.name for path in submitted.glob("*")},
            shown=lambda file: intake.shown(root / file, root),
            same=lambda one, other: filecmp.cmp(root / one, root / other, shallow=False),
        )
        intake.left_out += left_out
        students: dict[Path, set[str]] = {}  # by folder
        taken: dict[tuple[str, str], list[Path]] = {}
        for file, student, name in claims:
            students.setdefault((root / file).parent, set()).add(student)
            taken.setdefault((student, name), []).append(root / file)
        stamps: dict[Path, Time] = {}
        for folder in students:
            stamp = folder / "timestamp.txt"
            if len(students[folder]) == 1 and stamp.exists() and stamp.stat().st_size:  # else it may be another's
                try:
                    stamps[folder] = Time.read(stamp)
                except ValueError as error:
                    what = f"it {error}; the notebook's own time is used. Fix it and collect again if that is wrong"
                    intake.left_out.append(f"{intake.shown(stamp, root)}: left out, {what}")
        found = {}
        for (student, name), files in taken.items():
            written = [stamps[path.parent] for path in files if path.parent in stamps]
            when = min(written or map(Time.of, files))  # the same file may have come twice
            found[files[0]] = {"student_id": student, "file_id": f"{name}.ipynb", "timestamp": when}
        return found


class Time(datetime):
    """When something was handed in, in UTC. nbgrader writes it by ``isoformat``, and reads it from that."""

    def isoformat(self, *_: object, **__: object) -> str:
        """Return the form of the course's ``timestamp.txt``."""
        return self.strftime("%Y-%m-%d %H:%M:%S UTC")

    @classmethod
    def of(cls, path: Path) -> "Time":
        """Return when a file was changed."""
        return cls.fromtimestamp(int(min(max(path.stat().st_mtime, 0), TIMES[1])), UTC).replace(tzinfo=None)

    @classmethod
    def read(cls, path: Path) -> "Time":
        """Return the time in a ``timestamp.txt``; ValueError says why there is none."""
        with suppress(ValueError):
            if when := read_time(path):
                return cls(*when.timetuple()[:6])
        raise ValueError("does not contain the time of submission")


def stage(paths: Iterable[Path], archive: Path, intake: Intake) -> None:
    """Copy folders, notebooks and archives to where ``zip_collect`` looks, each path after the first to its own folder.

    A file that is refused gets its line in ``intake``.
    """
    archive.mkdir(parents=True)
    for given in paths:
        place = ""
        if intake.given:
            place = next(name for name in map("~{}".format, count(1)) if not (archive / name).exists())
        intake.given[place] = given if given.is_dir() else given.parent
        for file in sorted(given.rglob("*")) if given.is_dir() else [given]:
            packed = file.name.lower().endswith(ARCHIVES)
            most = MAX_UNPACKED if packed else MAX_BYTES
            reason = no_file(file)
            if reason and reason.code is Code.FOLDER:
                continue
            if reason and reason.code is not Code.HARD_LINK:  # a copy of it is a file of its own
                intake.left_out.append(f"{file}: left out, it {reason}. Put the file itself there")
            elif (size := file.stat().st_size) > most:
                remedy = "Unpack it and collect the folder" if packed else "Ask for the notebook without its outputs"
                what = f"it has {size // 1_000_000:,} MB, more than {most // 1_000_000:,}"
                intake.left_out.append(f"{file}: left out, {what}. {remedy}")
            else:
                try:
                    _copy(file, archive / place / file.relative_to(intake.given[place]))
                except OSError as error:
                    intake.left_out.append(
                        f"{file}: left out, it cannot be read ({error.strerror}). Check its permissions"
                    )


def collect(root: Path, assignment: str, paths: Iterable[Path]) -> tuple[list[str], list[str]]:
    """Collect ``paths`` into ``submitted/``; return the students that came in, and a line on each file left out."""
    app = ZipCollectApp()
    app.initialize([assignment, "--force", "--log-level=CRITICAL", f"--CourseDirectory.root={root}"])
    downloaded = root / app.downloaded_directory
    downloaded.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="collect-", dir=downloaded) as folder:  # what lies there may be the path
        app.downloaded_directory = str(Path(app.downloaded_directory, Path(folder).name))
        intake = Intake.of(app)
        stage(paths, Path(app._format_collect_path(app.archive_directory)), intake)
        app.start()
    with suppress(OSError):  # it is not empty
        downloaded.rmdir()
    return sorted(intake.students), [printable(line, 1000) for line in intake.left_out]
