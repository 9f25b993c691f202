"""The plugin behind ``nbgrader export``: nbgrader's columns, in fields that are safe to open in a spreadsheet."""

import csv
from collections.abc import Iterator
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.plugins import ExportPlugin

from graders.classroom.report import field

COLUMNS = [
    *("assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email"),
    *("raw_score", "late_submission_penalty", "score", "max_score"),
]


class Export(ExportPlugin):
    """Writes ``grades.csv``, or what ``--to`` names; nbgrader's own plugin quotes nothing."""

    def export(self, gradebook: Gradebook) -> None:
        """Write a line on each student and assignment; who handed nothing in has 0, as in nbgrader's own file."""
        target = Path(self.to or "grades.csv")
        self.log.info("Exporting grades to %s", target)
        with target.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(self._rows(gradebook))

    def _rows(self, gradebook: Gradebook) -> Iterator[list[str]]:
        for assignment in gradebook.assignments:
            if self.assignment and assignment.name not in self.assignment:
                continue
            for student in gradebook.students:
                if self.student and student.id not in self.student:
                    continue
                person = (
                    field(student.id),
                    *(field(text or "") for text in (student.last_name, student.first_name, student.email)),
                )
                try:
                    row = gradebook.find_submission(assignment.name, student.id)
                    penalty = row.late_submission_penalty
                    time, scores = row.timestamp, (row.score, penalty, max(0.0, row.score - penalty))
                except MissingEntry:
                    time, scores = None, (0.0, 0.0, 0.0)
                dates = [str(when or "") for when in (assignment.duedate, time)]
                yield [field(assignment.name), *dates, *person, *map(str, scores), str(assignment.max_score)]
