"""What `grade --json` and `scores --json` print: ``graders/coach/verdicts.schema.json`` says what stands where."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from graders.classroom.course import Course
from graders.classroom.gradebook import Records
from graders.judge.data import document
from graders.judge.verdict import Verdict, one_line
from graders.notebook.problem import Problem

TEXT = 1000  # characters of a name or of a sentence that a student may have written


def problem(found: Problem) -> dict[str, Any]:
    """Return a problem as data."""
    number, name = str(found.code).split(" ", 1)
    texts = {key: one_line(getattr(found, key), TEXT) for key in ("file", "what", "remedy")}
    return {"code": number, "name": name, **texts, "fatal": found.fatal, "repaired": found.repaired}


def graded(
    course: Course,
    assignment: str,
    seed: int | None,
    students: Sequence[str],
    problems: Mapping[str, Sequence[Problem]],
) -> dict[str, Any]:
    """Return what was graded of a set: scores, verdicts and problems, by student.

    Args:
        course: the course.
        assignment: the set.
        seed: of the hidden inputs; None: each student has one.
        students: those that were asked for.
        problems: what a person should know of their submissions.
    """
    with Records(course) as records:
        rows, most = records.scores()
        submissions = []
        for student in students:
            score = rows.get(student, {}).get(assignment)
            verdicts: list[Verdict] = [] if score is None else records.verdicts(assignment, student)
            submissions.append(
                {
                    "student": one_line(student, TEXT),
                    "score": score,
                    "problems": [problem(found) for found in problems.get(student, ())],
                    "verdicts": [verdict.data() for verdict in verdicts],
                }
            )
    return document("grade", set=assignment, seed=seed, points=most[assignment], submissions=submissions)


def scores(records: Records, why: bool, only: str = "") -> dict[str, Any]:
    """Return the scores of the class, of one set or of all, and with `why` what each lost point was lost by."""
    rows, most = records.scores(only)
    students = [
        {
            "student": one_line(student, TEXT),
            "scores": {name: rows[student].get(name) for name in most},
            "total": sum(score or 0.0 for score in rows[student].values()),
        }
        for student in sorted(rows)
    ]
    notes = [one_line(note, TEXT) for note in records.notes(only)]
    lost = [asdict(one) for one in records.every_lost(rows)] if why else None
    return document("scores", points=most, students=students, notes=notes, lost=lost)
