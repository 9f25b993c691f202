"""Bring in submissions from folders and archives, through nbgrader's own ``zip_collect``."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from tarfile import is_tarfile
from zipfile import is_zipfile

from nbgrader.apps import ZipCollectApp
from nbgrader.plugins import FileNameCollectorPlugin

from .submission import LEFT_BEHIND

STUDENT = re.compile(r"[\w.@-]+")


class Collector(FileNameCollectorPlugin):
    """nbgrader's ``zip_collect`` plugin for this course: the student is the folder, or the start of the file's name.

    ``ada/relu.ipynb``, ``ada.zip`` holding ``relu.ipynb``, ``ada/01_relu/relu.ipynb`` and ``ada_relu.ipynb`` are all of
    them ada's. Folders that the course itself has (``exercises``, ``01_relu``) say nothing about the student.
    With ``c.FileNameCollectorPlugin.named_regexp`` set nbgrader's own rule is followed in place of this one.
    """

    def collect(self, submitted_file: str) -> dict[str, str] | None:
        """The student and the notebook of one extracted file, None for a file to leave out."""
        if self.named_regexp:
            return super().collect(submitted_file)
        app: ZipCollectApp = self.parent
        assignment = app.coursedir.assignment_id
        path = Path(submitted_file)
        released = Path(app.coursedir.format_path(app.coursedir.release_directory, ".", assignment))
        names = {notebook.stem for notebook in released.glob("*.ipynb")}
        told = app.__dict__.setdefault("told", [])
        parts = path.relative_to(app._format_collect_path(app.extracted_directory)).parts
        if LEFT_BEHIND & set(parts) or "__MACOSX" in parts:
            return None
        name = next((n for n in names if path.stem == n or re.search(rf"[_-]{re.escape(n)}$", path.stem)), None)
        if path.suffix != ".ipynb" or name is None:
            told.append(f"{'/'.join(parts)}: left out, the assignment has only {', '.join(sorted(names))}.ipynb")
            return None
        ours = {assignment, "exercises", "custom-gradients"}
        folders = [part for part in parts[:-1] if part not in ours]
        student = path.stem[: -len(name) - 1] or (folders[-1] if folders else "")
        if not STUDENT.fullmatch(student):
            told.append(
                f"{'/'.join(parts)}: left out, no student's name found ({student!r}). Put it into a folder NAME/"
            )
            return None
        seen = app.__dict__.setdefault("seen", {})
        if (student, name) in seen:
            told.append(f"{'/'.join(parts)}: left out, {seen[student, name]} is {student}'s {name}.ipynb too. Keep one")
            return None
        seen[student, name] = "/".join(parts)
        return {"student_id": student, "file_id": f"{name}.ipynb"}


def stage(paths: Iterable[Path], archive: Path) -> list[str]:
    """Copy folders, notebooks and archives to where ``zip_collect`` looks; a line on each file that was refused."""
    told: list[str] = []
    shutil.rmtree(archive.parent, ignore_errors=True)
    archive.mkdir(parents=True)
    for given in paths:
        files = sorted(given.rglob("*")) if given.is_dir() else [given]
        for file in files:
            name = file.relative_to(given) if given.is_dir() else Path(file.name)
            if file.is_symlink():
                told.append(f"{name}: left out, it is a symbolic link")
            elif file.suffix in (".zip", ".gz", ".tgz") and not (is_zipfile(file) or is_tarfile(file)):
                told.append(f"{name}: left out, it is damaged or no archive at all")
            elif file.is_file():
                name = name.with_name(re.sub(r"\.tgz$", ".tar.gz", name.name))  # the ending that nbgrader knows
                (archive / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, archive / name)
    return told


def collect(root: Path, assignment: str, paths: Iterable[Path]) -> tuple[list[str], list[str]]:
    """Collect ``paths`` into ``submitted/``; the students that came in, and a line on each file that was left out."""
    app = ZipCollectApp()
    app.initialize([assignment, "--force", "--log-level=CRITICAL", f"--CourseDirectory.root={root}"])
    told = stage(paths, Path(app._format_collect_path(app.archive_directory)))
    app.start()
    students = {student for student, _ in app.__dict__.get("seen", {})}
    return sorted(students), told + app.__dict__.get("told", [])
