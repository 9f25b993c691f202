"""Bring in submissions from folders and archives, through nbgrader's own ``zip_collect``.

What comes from students is not trusted: an archive is unpacked within limits, its links and its ways out of the folder
are left out, and nothing in it makes it another student's. What is replaced is kept, and nothing older replaces it.
"""

import filecmp
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from nbgrader.apps import ZipCollectApp
from nbgrader.plugins import ExtractorPlugin, FileNameCollectorPlugin

from graders.classroom.archive import (
    ARCHIVES,
    MAX_FILES,
    MAX_UNPACKED,
    TIMES,
    ArchiveError,
    Budget,
    folder_of,
    stem_of,
    unpack,
)
from graders.classroom.gradescope import named
from graders.classroom.platforms import FOLDERS, signed
from graders.classroom.roster import read_roster
from graders.classroom.submission import read_time
from graders.classroom.whose import Arrival, Claim, whose
from graders.notebook.codes import Code
from graders.notebook.files import MAX_BYTES, no_file
from graders.notebook.problem import printable

REPLACED = "replaced"  # the folder of what was handed in before: replaced/STUDENT/SET/TIME/


@dataclass
class Intake:
    """What came in during one run of ``zip_collect``; its plugins share it.

    Args:
        left_out: a line on each file that was left out.
        given: the folder that each argument was copied to, and the one that it means where it was typed.
        places: the folder that each archive went to, and that archive as if it had been copied like other files.
        archives: those folders of arguments to which an archive was copied that was typed itself.
        wrappers: those of the archives' folders that are the download of a whole class.
        claims: what ``zip_collect`` gets on each file that is taken, None before all of them are there.
        students: those whose files are taken.
        same: those of them whose files were there already.
        replaced: a line on each earlier hand-in that was replaced, or came again.
        budget: what may still come in.
        platform: whose downloads these are, None: each archive is a student's.
        older: whether what is older than an earlier hand-in replaces it.
        closed: why nothing more is taken of a student, by student.
    """

    left_out: list[str] = field(default_factory=list)
    given: dict[str, Path] = field(default_factory=dict)
    places: dict[Path, Path] = field(default_factory=dict)
    archives: set[str] = field(default_factory=set)
    wrappers: set[Path] = field(default_factory=set)
    claims: dict[Path, dict[str, object]] | None = None
    students: set[str] = field(default_factory=set)
    same: set[str] = field(default_factory=set)
    replaced: list[str] = field(default_factory=list)
    budget: Budget = field(default_factory=lambda: Budget(MAX_UNPACKED, MAX_FILES))
    platform: str | None = None
    older: bool = False
    closed: Mapping[str, str] = field(default_factory=dict)

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
        return str(name)

    def arrival(self, path: Path, root: Path) -> Arrival:
        """Return a file below ``root`` with the names that may say whose it is."""
        parts = path.relative_to(root).parts
        skipped = 1 if parts[0] in self.given else 0  # the folder of all that came by one argument
        if root.joinpath(*parts[: skipped + 1]) in self.wrappers:
            skipped += 1
        for at in range(skipped, len(parts) - 1):
            if packed := self.places.get(root.joinpath(*parts[: at + 1])):
                return Arrival("/".join(parts), (*parts[skipped:at], stem_of(packed)), parts[at + 1 :])
        return Arrival("/".join(parts), parts[skipped:])

    def arrivals(self, root: Path, assignment: str) -> list[Arrival]:
        """Return all files below ``root``; of a platform's download that is one folder, what is in that folder."""
        found = [self.arrival(path, root) for path in sorted(root.rglob("*")) if path.is_file()]
        if self.platform in (None, FOLDERS):
            return found
        arrivals = []
        for place in self.given:
            ones = [one for one in found if one.file.startswith(f"{place}/")]
            tops = {one.outer[0] if len(one.outer) > 1 else "" for one in ones}
            within = len(tops) == 1 and "" not in tops and not signed(next(iter(tops)), assignment, self.platform)
            arrivals += [one._replace(outer=one.outer[1:]) if within else one for one in ones]
        return arrivals


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
            whole_class = intake.platform is not None and path.relative_to(given).parts[0] in intake.archives
            try:
                unpacked = unpack(path, folder, intake.budget, whole_class)
                intake.left_out += [f"{name}/{line}" for line in unpacked.left_out]
                intake.places[folder] = copied
                intake.places |= {folder / inner: folder / packed for inner, packed in unpacked.places.items()}
                if whole_class:
                    intake.wrappers.add(folder)
            except ArchiveError as error:
                intake.left_out.append(f"{name}: left out, {error}. Ask for another")


def _copy(source: Path, target: Path) -> None:
    """Copy a file's bytes and its time, nothing else."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    info = source.stat()
    os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))


class Collector(FileNameCollectorPlugin):
    """nbgrader's ``zip_collect`` plugin for this course: the student is the outermost folder or archive, see `whose`.

    ``ada/relu.ipynb``, ``ada.zip`` holding ``relu.ipynb``, ``ada/01_relu/relu.ipynb`` and ``ada_relu.ipynb`` are all of
    them ada's. Folders that the course itself has (``exercises``, ``01_relu``) say nothing about the student.
    With ``c.FileNameCollectorPlugin.named_regexp`` set that tells the student's name, which must be found in the
    outermost folder's, archive's or file's name as well.
    """

    def collect(self, submitted_file: str) -> dict[str, object] | None:
        """Return the student, the notebook and the time of one extracted file, None for a file to leave out."""
        path, intake = Path(submitted_file), Intake.of(self.parent)
        if intake.claims is None:
            intake.claims = self._claims(intake)
            if not intake.given:  # it is nbgrader's own command: nobody else shows them
                for line in intake.left_out + intake.replaced:
                    self.log.warning(printable(line, 1000))
        found = intake.claims.get(path)
        if found:
            intake.students.add(str(found["student_id"]))
        return found

    def _claims(self, intake: Intake) -> dict[Path, dict[str, object]]:
        """Return what to tell ``zip_collect`` about each file that is taken."""
        app: ZipCollectApp = self.parent
        root = Path(app._format_collect_path(app.extracted_directory))
        assignment = app.coursedir.assignment_id
        released = Path(app.coursedir.format_path(app.coursedir.release_directory, ".", assignment))
        submitted = Path(app.coursedir.root, app.coursedir.submitted_directory)
        names = sorted(notebook.stem for notebook in released.glob("*.ipynb"))
        roster = read_roster(Path(app.coursedir.root), app.coursedir.db_url)
        arrivals = intake.arrivals(root, assignment)
        arrivals, unnamed = named(arrivals, root, roster, lambda file: intake.shown(root / file, root))
        intake.left_out += unnamed
        claims, left_out = whose(
            arrivals,
            assignment,
            names,
            {path.name for path in submitted.glob("*")},
            shown=lambda file: intake.shown(root / file, root),
            same=lambda one, other: filecmp.cmp(root / one, root / other, shallow=False),
            when=lambda file: Time.of(root / file).timestamp(),
            roster=roster,
            platform=intake.platform,
            rule=(lambda one: self._ruled(one, root, names)) if self.named_regexp else None,
        )
        intake.left_out += left_out
        taken: dict[str, dict[str, list[Path]]] = {}
        for file, student, name in claims:
            if student in intake.closed:
                intake.left_out.append(f"{intake.shown(root / file, root)}: left out, {intake.closed[student]}")
                continue
            taken.setdefault(student, {}).setdefault(name, []).append(root / file)
        stamps = _stamps(claims, root, intake)
        found: dict[Path, dict[str, object]] = {}
        for student, notebooks in taken.items():
            hand_in = {}
            for name, files in notebooks.items():
                written = [stamps[path.parent] for path in files if path.parent in stamps]
                when = min(written or map(Time.of, files))  # the same file may have come twice
                hand_in[name] = (files[0], _not_in_future(when, intake, files[0], root))
            folder = Path(app.coursedir.format_path(app.coursedir.submitted_directory, student, assignment))
            if reason := replace(folder, hand_in, Path(app.coursedir.root), intake):
                files = [file for file, _ in hand_in.values()]
                intake.left_out.append(
                    f"{' and '.join(intake.shown(file, root) for file in files)}: left out, {reason}"
                )
                continue
            for name, (path, when) in hand_in.items():
                found[path] = {"student_id": student, "file_id": f"{name}.ipynb", "timestamp": when}
        return found

    def _ruled(self, one: Arrival, root: Path, names: list[str]) -> tuple[str, str] | str:
        """Return the student and the notebook that ``named_regexp`` finds in a file's path, or why there are none."""
        path = str(root / one.file)
        if not path.endswith(tuple(self.valid_ext)):
            return f"it does not end in {' or '.join(self.valid_ext)}"
        found = re.match(self.named_regexp, path)
        if not found or not found["student_id"] or not found["file_id"]:
            return "c.FileNameCollectorPlugin.named_regexp does not fit its path"
        after = sum(len(name) + 1 for name in (*one.outer, *one.inner))
        start, end = found.span("student_id")
        first = len(path) + 1 - after
        if start < first or end > first + len(one.outer[0]):
            where = f"where the student chose the name, or outside of {one.outer[0]!r}"
            return f"c.FileNameCollectorPlugin.named_regexp finds the student {found['student_id']!r} {where}"
        notebook = found["file_id"].removesuffix(".ipynb")
        if notebook not in names:
            return f"the assignment has only {' and '.join(f'{name}.ipynb' for name in names)}, not {notebook!r}"
        return found["student_id"], notebook


def _stamps(claims: Iterable[Claim], root: Path, intake: Intake) -> "dict[Path, Time]":
    """Return the times in the ``timestamp.txt`` of folders that hold one student's notebooks; others are nobody's."""
    students: dict[Path, set[str]] = {}
    for file, student, _ in claims:
        students.setdefault((root / file).parent, set()).add(student)
    stamps: dict[Path, Time] = {}
    for folder in students:
        stamp = folder / "timestamp.txt"
        if len(students[folder]) == 1 and stamp.exists() and stamp.stat().st_size:
            try:
                stamps[folder] = Time.read(stamp)
            except ValueError as error:
                what = f"it {error}; the notebook's own time is used. Fix it and collect again if that is wrong"
                intake.left_out.append(f"{intake.shown(stamp, root)}: left out, {what}")
    return stamps


def _not_in_future(when: "Time", intake: Intake, file: Path, root: Path) -> "Time":
    """Return a time, or now where it is later than any clock on earth has it: nothing could replace that hand-in."""
    now = Time.now(UTC).replace(tzinfo=None, microsecond=0)
    if when <= now + timedelta(days=1):
        return when
    what = f"its time, {when.isoformat()}, is in the future; the time of collection is used instead"
    intake.left_out.append(f"{intake.shown(file, root)}: {what}")
    return now


def replace(folder: Path, hand_in: "dict[str, tuple[Path, Time]]", root: Path, intake: Intake) -> str | None:
    """Keep what a student handed in before and is replaced now; return why it is not to be replaced.

    Args:
        folder: the submission's.
        hand_in: by the notebook's name, the file that came in and its time; gets the earlier time of the same files.
        root: the course's folder; what is replaced is kept in its ``replaced/``.
        intake: gets a line on what is replaced.
    """
    owner = f"{folder.parent.name}'s"
    for place in (folder.parent, folder):
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            return f"{place.relative_to(root)} is not a folder. Move it away and collect again"
    before = sorted(folder.glob("*.ipynb")) if folder.is_dir() else []
    if not before:
        return None
    new, old = max(when for _, when in hand_in.values()), Time.of_submission(folder, before)
    equal = {path.stem for path in before} == set(hand_in) and all(
        filecmp.cmp(path, hand_in[path.stem][0], shallow=False) for path in before
    )
    if equal and (new == old or not intake.older):
        intake.same.add(folder.parent.name)
    if equal and new == old:
        return None
    if equal and new > old and not intake.older:
        for name, (file, _) in hand_in.items():
            hand_in[name] = (file, old)
        what = f"the same came in again, of {new.isoformat()}; its time stays {old.isoformat()}"
        intake.replaced.append(f"{owner} {folder.name}: {what}. To take the new time, use --older")
        return None
    if not intake.older and new < old:
        said = f"it is of {new.isoformat()}, older than what was handed in at {old.isoformat()}"
        return f"{said}. To take it all the same, use --older"
    day = f"{old:%Y-%m-%d_%H%M%S}"
    kept = root / REPLACED / folder.parent.name / folder.name
    kept = next(path for path in (kept / f"{day}{'~' * number}" for number in count()) if not path.exists())
    try:
        shutil.copytree(folder, kept, symlinks=True)
    except OSError as error:
        return (
            f"what it would replace cannot be kept in {kept.relative_to(root)} ({error.strerror or 'its permissions'})"
        )
    what = f"the hand-in of {old.isoformat()} is replaced by that of {new.isoformat()}"
    intake.replaced.append(f"{owner} {folder.name}: {what}; it is kept in {kept.relative_to(root).as_posix()}/")
    return None


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
    def of_submission(cls, folder: Path, notebooks: Iterable[Path]) -> "Time":
        """Return when what lies in ``submitted/`` was handed in: as ``timestamp.txt`` says, else as the files do."""
        with suppress(ValueError, OSError):
            return cls.read(folder / "timestamp.txt")
        return max(map(cls.of, notebooks))

    @classmethod
    def read(cls, path: Path) -> "Time":
        """Return the time in a ``timestamp.txt``; ValueError says why there is none."""
        with suppress(ValueError):
            if when := read_time(path):
                return cls(*when.timetuple()[:6])
        raise ValueError("does not contain the time of submission")


def stage(paths: Iterable[Path], archive: Path, intake: Intake, names: Mapping[Path, str]) -> None:
    """Copy folders, notebooks and archives to where ``zip_collect`` looks, each path to a folder of its own.

    A file that is refused gets its line in ``intake``. Of a folder in `names` its name there says whose it is; of
    another one the names in it do.
    """
    archive.mkdir(parents=True)
    for number, given in enumerate(paths):
        place, name = str(number), names.get(given, "")
        base = given if given.is_dir() else given.parent
        intake.given[place] = base.parent if name else base
        if not given.is_dir() and given.name.lower().endswith(ARCHIVES):
            intake.archives.add(place)
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
                    intake.budget.take(size)
                    _copy(file, archive / place / name / file.relative_to(base))
                except ArchiveError:
                    most_of_all = f"{MAX_UNPACKED // 1_000_000:,} MB or {MAX_FILES:,} files"
                    rest = f"it and all after it are more than {most_of_all}. Collect fewer at a time"
                    intake.left_out.append(f"{file}: left out, {rest}")
                    return
                except OSError as error:
                    intake.left_out.append(
                        f"{file}: left out, it cannot be read ({error.strerror}). Check its permissions"
                    )


class Collecting(ZipCollectApp):
    """nbgrader's ``zip_collect``, each hand-in whole or not at all: half a notebook would count as the newest one."""

    def _transfer_files(self, collected_data: Mapping[str, Mapping[str, Any]]) -> None:
        for student, data in collected_data.items():
            folder = Path(
                self.coursedir.format_path(self.coursedir.submitted_directory, student, self.coursedir.assignment_id)
            )
            part, old = (folder.with_name(f".{folder.name}.{end}") for end in ("part", "old"))
            try:
                for left in (part, old):  # by a kill
                    shutil.rmtree(left, ignore_errors=True)
                part.mkdir(parents=True)
                for source, name in zip(data["src_files"], data["file_ids"], strict=True):
                    (part / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, part / name)
                if data["timestamp"] is not None:
                    (part / "timestamp.txt").write_text(data["timestamp"].isoformat(" "), encoding="utf-8")
                if folder.exists():
                    folder.rename(old)
                part.rename(folder)
            except BaseException:
                if old.exists() and not folder.exists():
                    old.rename(folder)
                shutil.rmtree(part, ignore_errors=True)
                raise
            shutil.rmtree(old, ignore_errors=True)


def collect(
    root: Path,
    assignment: str,
    paths: Iterable[Path],
    platform: str | None = None,
    older: bool = False,
    names: Mapping[Path, str] | None = None,
    closed: Mapping[str, str] | None = None,
) -> Intake:
    """Collect ``paths`` into ``submitted/``; return what came in.

    Args:
        root: the course's folder.
        assignment: the set.
        paths: folders, archives and notebooks.
        platform: the one that they were downloaded from: archives among them hold a whole class.
        older: whether what is older than an earlier hand-in replaces it.
        names: folders that each hold one hand-in, and the name that says whose it is.
        closed: why nothing more is taken of a student, by student.

    Raises:
        CourseError: the list of students cannot be read.
    """
    app = Collecting()
    app.initialize([assignment, "--Collecting.force=True", "--log-level=CRITICAL", f"--CourseDirectory.root={root}"])
    downloaded = root / app.downloaded_directory
    downloaded.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="collect-", dir=downloaded) as folder:  # what lies there may be the path
        app.downloaded_directory = str(Path(app.downloaded_directory, Path(folder).name))
        intake = Intake.of(app)
        intake.platform, intake.older, intake.closed = platform, older, closed or {}
        stage(paths, Path(app._format_collect_path(app.archive_directory)), intake, names or {})
        app.start()
    with suppress(OSError):  # it is not empty
        downloaded.rmdir()
    intake.left_out = [printable(line, 1000) for line in intake.left_out]
    intake.replaced = [printable(line, 1000) for line in intake.replaced]
    return intake
