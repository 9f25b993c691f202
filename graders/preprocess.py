"""nbgrader preprocessors that stand before its own when a submission is cleaned up for grading."""

import json
import os
from pathlib import Path

from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.converters.base import BaseConverter, NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor

from .submission import Original, restore


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
        )
        for cell in held.source_cells
    }
    source = Path(coursedir.format_path(coursedir.source_directory, ".", assignment)) / f"{notebook}.ipynb"
    cells = json.loads(source.read_text(encoding="utf-8"))["cells"]  # a database promises no order
    order = [cell["metadata"].get("nbgrader", {}).get("grade_id") for cell in cells]
    return {name: found[name] for name in order if name in found}


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
        for what, _ in restore(nb, known):
            self.log.warning("%s, %s: %s", about["student"], about["notebook"], what)
        return nb, resources
