"""The sample class: answers in ``sample/STUDENT/SET.py`` become notebooks in ``submitted/``, some damaged by rule.

A set's file is what the student typed into the answer cells: blocks headed by ``# %% NAME OF THE ANSWER CELL``. A block
that is not there is a task not attempted. ``sample/damage.toml`` names the notebooks that arrive broken,
``sample/expected.json`` the scores, lost points and faults of the class.
"""

import json
import re
import shutil
import tomllib
from pathlib import Path

import nbformat

from graders.classroom.course import Course, optional
from graders.classroom.errors import CourseError
from graders.classroom.giving import give, noted
from graders.classroom.gradebook import Records
from graders.classroom.grading import Grading
from graders.classroom.report import table
from graders.classroom.submission import LEFT_BEHIND
from graders.engine.cores import cores
from graders.engine.job import Settings
from graders.engine.pool import Crew
from graders.notebook.problem import Problem, printable

HEAD = re.compile(r"^# %% (\w+)\n", re.MULTILINE)
HANDED_IN = "2026-02-02 12:00:00 UTC"  # nbgrader's release_feedback needs a time
STEPS = ("submitted", "autograded", "feedback")


class SampleError(CourseError):
    """The sample class cannot be built; the text is one line with a remedy."""


def blocks(text: str) -> dict[str, str]:
    """The answers of a set's file by answer cell."""
    parts = HEAD.split(text)
    return {name: code.strip("\n") for name, code in zip(parts[1::2], parts[2::2], strict=True)}


def students(root: Path) -> list[str]:
    """The names of the sample class."""
    return sorted(path.name for path in (root / "sample").iterdir() if path.is_dir())


def clear(course: Course) -> None:
    """Remove what an earlier run left, so that sets may have changed since.

    Raises:
        SampleError: some of it is someone else's.
    """
    notes = f"feedback/{noted('*')}"  # beside the students' folders
    there = [
        (path.name, f"{step}/") for step in STEPS for path in (course.root / step).glob("*") if not path.match(notes)
    ]
    with Records(course) as records:
        there += [(name, "gradebook.db") for name in records.scores()[0]]
    own = {*students(course.root), *LEFT_BEHIND}
    if others := sorted({name for name, _ in there} - own):
        places = list(dict.fromkeys(place for name, place in there if name not in own))
        more = f", nor {'is' if len(others) == 2 else 'are'} {len(others) - 1} more" if len(others) > 1 else ""
        raise SampleError(
            f"{printable(others[0], 60)} is not in the sample class{more}: sample would remove {', '.join(places)}; "
            "run it in another clone, or move these away first"
        )
    for step in STEPS:
        shutil.rmtree(course.root / step, ignore_errors=True)
    (course.root / "gradebook.db").unlink(missing_ok=True)


def build(root: Path, assignments: list[str]) -> None:
    """Write the class into ``submitted/``.

    Raises:
        SampleError: an answer has no cell, or a damage no meaning.
    """
    damage = tomllib.loads((root / "sample/damage.toml").read_text(encoding="utf-8"))["damage"]
    rules = {(rule["student"], rule["set"]): rule for rule in damage}
    for student in students(root):
        for assignment in assignments:
            slug = assignment.partition("_")[2]
            answers = root / "sample" / student / f"{slug}.py"
            if answers.is_file():
                folder = root / "submitted" / student / assignment
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "timestamp.txt").write_text(HANDED_IN + "\n", encoding="utf-8")
                text = _fill(root / "exercises" / assignment / f"{slug}.ipynb", answers, rules.get((student, slug), {}))
                (folder / f"{slug}.ipynb").write_text(text, encoding="utf-8")


def _fill(exercise: Path, answers: Path, rule: dict[str, str]) -> str:
    notebook = nbformat.read(exercise, as_version=4)
    cells = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell for cell in notebook.cells}
    for name, code in blocks(answers.read_text(encoding="utf-8")).items():
        if name not in cells or not cells[name].metadata.nbgrader.solution:
            raise SampleError(f"{answers}: {exercise} has no answer cell {name!r}")
        cells[name].source = code
    match rule.get("kind"):
        case None:
            pass
        case "cell deleted":
            notebook.cells.remove(cells[rule["cell"]])
        case "cut short":
            text = nbformat.writes(notebook)
            return text[:300]
        case kind:
            raise SampleError(f"sample/damage.toml: there is no damage of the kind {kind!r}")
    return nbformat.writes(notebook)


def observed(
    records: Records, rows: dict[str, dict[str, float | None]], faults: dict[str, dict[str, list[Problem]]]
) -> dict[str, dict[str, dict[str, object]]]:
    """Return scores, lost points and faults of the graded class, in the form of ``sample/expected.json``."""
    seen: dict[str, dict[str, dict[str, object]]] = {}
    for student, scores in sorted(rows.items()):
        for assignment, score in sorted(scores.items()):
            lost = [] if score is None else [str(x).split("  ", 2)[2] for x in records.lost(assignment, student)]
            said = [str(problem) for problem in faults.get(assignment, {}).get(student, [])]
            seen.setdefault(student, {})[assignment] = {"score": score, "lost": lost, "faults": said}
    return seen


def differences(expected: dict[str, dict], seen: dict[str, dict]) -> list[str]:
    """One line on each student and set that came out otherwise than expected."""
    keys = sorted({(student, name) for book in (expected, seen) for student in book for name in book[student]})
    lines = []
    for student, name in keys:
        want, got = expected.get(student, {}).get(name), seen.get(student, {}).get(name)
        if want is None or got is None:
            lines.append(f"{student}, {name}: {'not expected' if want is None else 'missing'}")
            continue
        lines += [f"{student}, {name}: {k} {got[k]!r}, expected {want[k]!r}" for k in want if got[k] != want[k]]
    return lines


def of_sets(book: dict[str, dict], assignments: list[str]) -> dict[str, dict]:
    """Return the part of ``expected.json`` that is about these sets."""
    part = {student: {name: sets[name] for name in sets if name in assignments} for student, sets in book.items()}
    return {student: sets for student, sets in part.items() if sets}


def merged(old: dict[str, dict], new: dict[str, dict], assignments: list[str]) -> dict[str, dict]:
    """Return ``expected.json`` with what is new of these sets, and what was there of the others."""
    kept = {student: {name: sets[name] for name in sets if name not in assignments} for student, sets in old.items()}
    every = {student: kept.get(student, {}) | new.get(student, {}) for student in sorted(kept.keys() | new.keys())}
    return {student: dict(sorted(sets.items())) for student, sets in every.items() if sets}


def run_sample(
    course: Course, crew: Crew, settings: Settings, update: bool = False, assignments: list[str] | None = None
) -> int:
    """Build, grade, write feedback, print the scores, compare with what is expected; return the exit code.

    Args:
        course: the course folder.
        crew: the workers that execute notebooks.
        settings: the limits of an execution.
        update: write ``sample/expected.json`` in place of comparing with it.
        assignments: the sets; none: all that are not optional.
    """
    assignments = assignments or [name for name in course.assignments if not optional(name)]
    course.secret = b""  # what is expected was drawn from one seed
    clear(course)
    build(course.root, assignments)
    faults = {}
    for assignment in assignments:
        if not course.students(assignment):
            continue
        course.register(assignment)
        faults[assignment] = Grading(course, assignment, crew, settings).grade(course.students(assignment), force=True)
        give(course, course.gradebook(), assignment, course.students(assignment), cores(), True, lambda line: None)
    with Records(course) as records:
        rows, most = records.scores()
        print(f"\n{table(rows, most)}\n")
        print("\n".join(records.lines(rows)))
        seen = observed(records, rows, faults)
    path = course.root / "sample/expected.json"
    if update:
        old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        new = merged(old, seen, assignments)
        path.write_text(json.dumps(new, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"\nWritten to {path.relative_to(course.root)}: read the difference before you commit it.")
        return 0
    wrong = differences(of_sets(json.loads(path.read_text(encoding="utf-8")), assignments), seen)
    for line in wrong:
        print(f"not as expected: {line}")
    if not wrong:
        print("\nThe sample class scored as sample/expected.json says, its damaged notebooks included.")
    return 1 if wrong else 0
