"""How a submission is read, nbgrader preprocessors that clean it up before its own, and one that saves the grades."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from nbconvert.exporters import NotebookExporter
from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.converters.base import BaseConverter, NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor, SaveAutoGrades

from graders.classroom.submission import Original, notebook_problems, read_notebook
from graders.notebook import form
from graders.notebook.cells import meaning
from graders.notebook.files import no_file

# nbgrader's ClearHiddenTests takes these lines out of what students get.
HIDDEN = re.compile(r"^[^\n]*BEGIN HIDDEN TESTS.*?(END HIDDEN TESTS[^\n]*\n?|\Z)", re.DOTALL | re.MULTILINE)

MARK = "graders"  # in a graded notebook's metadata: which file it is the grading of


def originals(gradebook: Gradebook, coursedir: CourseDirectory, assignment: str, notebook: str) -> dict[str, Original]:
    """The released cells of a notebook as the gradebook holds them (with hidden tests), in the notebook's order."""
    held = gradebook.find_notebook(notebook, assignment)
    grades = {cell.name: cell.max_score for cell in held.grade_cells}
    solutions = {cell.name for cell in held.solution_cells}
    found = {
        cell.name: Original(
            cell.name,
            cell.cell_type,
            cell.source,
            cell.checksum,
            cell.name in grades,
            cell.name in solutions,
            cell.locked,
            grades.get(cell.name, 0.0),
            visible(cell.source),
        )
        for cell in held.source_cells
    }
    source = Path(coursedir.format_path(coursedir.source_directory, ".", assignment)) / f"{notebook}.ipynb"
    cells = json.loads(source.read_text(encoding="utf-8"))["cells"]  # a database promises no order
    order = [cell["metadata"].get("nbgrader", {}).get("grade_id") for cell in cells]
    return {name: found[name] for name in order if name in found}


def visible(source: str) -> str:
    """What students get of a cell's text."""
    return HIDDEN.sub("", source).rstrip("\n")


def shown(cell: Original) -> Original:
    """The cell as students have it."""
    return cell.with_source(visible(cell.source))


class SubmissionExporter(NotebookExporter):
    """nbconvert's way to a notebook, with the course's way of reading one: limits, and repairs of its form."""

    def from_filename(self, filename: str, resources: ResourcesDict | None = None, **kw: Any) -> tuple[str, Any]:
        """Convert a notebook; what is no plain file is not even opened: a pipe would never end."""
        if reason := no_file(Path(filename)):
            raise NbGraderException(f"{filename} {reason}")
        return super().from_filename(filename, resources=resources, **kw)

    def from_file(self, file_stream: IO[str], resources: ResourcesDict | None = None, **kw: Any) -> tuple[str, Any]:
        """Convert the notebook of an open file, read anew: ``nbformat.read`` trips over a byte-order mark."""
        notebook = read_notebook(Path(file_stream.name), limited=self.parent._sanitizing)  # else it is nbgrader's own
        return self.from_notebook_node(notebook, resources=resources, **kw)


class CleanSubmission(NbGraderPreprocessor):
    """Refuse symbolic links, drop files that the assignment does not list, restore released cells."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        """Clean up ``nb`` and the folder that nbgrader has copied the submission's other files to."""
        about = resources["nbgrader"]
        converter: BaseConverter = self.parent.parent
        coursedir = converter.coursedir
        source = Path(coursedir.format_path(coursedir.source_directory, ".", about["assignment"]))
        submitted = Path(coursedir.format_path(coursedir.submitted_directory, about["student"], about["assignment"]))
        copied = Path(coursedir.format_path(coursedir.autograded_directory, about["student"], about["assignment"]))
        if any(path.is_symlink() for path in (submitted.parent, submitted, submitted / f"{about['notebook']}.ipynb")):
            raise NbGraderException(f"{submitted}: symbolic links are not graded")
        for folder, _, names in os.walk(copied):
            for name in names:
                path = Path(folder, name)
                listed = name == "timestamp.txt" or (source / path.relative_to(copied)).is_file()
                if not listed:
                    self.log.warning("Leaving out %s, which is not part of the assignment", path)
                    path.unlink()
        with Gradebook(about["db_url"]) as gradebook:
            known = originals(gradebook, coursedir, about["assignment"], about["notebook"])
        for problem in notebook_problems(f"{about['notebook']}.ipynb", nb, known):
            if problem.fatal:
                raise NbGraderException(f"{about['student']}: {problem}")
            self.log.warning("%s: %s", about["student"], problem)
        nb.metadata.pop(MARK, None)
        return nb, resources


class SaveGrades(SaveAutoGrades):
    """nbgrader's, with all grades of a notebook in one transaction; and the notebook says which file was graded.

    nbgrader writes a notebook into autograded/ before it executes it, and commits each cell's grade on its own: after a
    kill it cannot tell what is finished. The mark is written with the executed notebook, when the grades are in.
    """

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        """Save the grades of ``nb``, mark it."""
        about = resources["nbgrader"]
        self.notebook_id, self.assignment_id, self.student_id = about["notebook"], about["assignment"], about["student"]
        with Gradebook(about["db_url"]) as self.gradebook:
            session = self.gradebook.db
            commit, session.commit = session.commit, session.flush
            nb, resources = NbGraderPreprocessor.preprocess(self, nb, resources)
            commit()
            coursedir: CourseDirectory = self.parent.parent.coursedir
            known = originals(self.gradebook, coursedir, about["assignment"], about["notebook"])
        folder = coursedir.format_path(coursedir.submitted_directory, about["student"], about["assignment"])
        nb.metadata[MARK] = {"graded": digest(Path(folder, f"{about['notebook']}.ipynb"), known)}
        return nb, resources


def digest(path: Path, known: Mapping[str, Original]) -> str:
    """What tells one notebook handed in from another that would be graded in another way."""
    return meaning(form.read(path)[0], known)
