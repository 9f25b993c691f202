"""The report on a class: one page that loads nothing, and its checks as comma-separated values."""

import ast
import csv
import hashlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from graders.classroom.analysis import BINS, Cluster, Concern, Handed, Made, Overview, concerns, overview, tomorrow
from graders.classroom.course import Course
from graders.classroom.gradebook import Records
from graders.classroom.report import course_site, field
from graders.classroom.templates import face, templates
from graders.notebook.problem import printable

Class = dict[str, dict[str, Handed]]  # by student and set: a row for each student, with what was handed in
SHOWN = 12  # mistakes, and kinds of unexplained answers, of a set that are shown open; the rest is folded
LINE = 2000  # characters of a line of an answer that is shown
COLUMNS = ["set", "task", "check", "points", "answers", "full", "none", "facility", "discrimination"]


@dataclass(frozen=True)
class Unexplained:
    """A kind of answers without a name: one of them, and a mistake to be made of it."""

    cluster: Cluster
    answer: str
    stub: str


def gather(course: Course, records: Records, say: Callable[[str, bool], None]) -> tuple[Class, dict[str, float]]:
    """Return what the class handed in, and what each set is worth.

    Args:
        course: the course.
        records: of it, open.
        say: gets a line on how far it is, and whether it is a set's last.
    """
    rows, worth = records.scores()
    handed: Class = {student: {} for student in rows}
    for assignment in worth:
        times = records.times(assignment)
        those = [student for student in sorted(rows) if assignment in rows[student]]
        for number, student in enumerate(those, 1):
            score = rows[student][assignment]
            verdicts = () if score is None else tuple(records.verdicts(assignment, student))
            at, due = times.get(student, (None, None))
            tries = records.tries(assignment, student)
            handed[student][assignment] = Handed(student, assignment, score, verdicts, at, due, tries)
            say(f"{assignment}: {number} of {len(those)} read", number == len(those))
    return handed, worth


def anonymised(handed: Class) -> tuple[Class, dict[str, str]]:
    """Return the same class with numbers for names, in an order that says nothing of them; and the names by number."""
    order = sorted(handed, key=lambda student: hashlib.sha256(f"class report {student}".encode()).digest())
    width = len(str(len(order)))
    number = {student: f"student {i:0{width}}" for i, student in enumerate(order, 1)}
    rows = {
        number[student]: {name: replace(one, student=number[student]) for name, one in row.items()}
        for student, row in handed.items()
    }
    return rows, {new: old for old, new in number.items()}


def overviews(handed: Class, worth: Mapping[str, float]) -> list[Overview]:
    """Return each set that somebody handed in, in the order of the course."""
    found = []
    for assignment, points in worth.items():
        if submissions := [row[assignment] for row in handed.values() if assignment in row]:
            found.append(overview(assignment, points, submissions))
    return found


# --- answers without a name -------------------------------------------------------------------------------------------


def unexplained(
    found: Overview, answer: Callable[[str, str], str], anonymous: bool, most: int = SHOWN
) -> list[Unexplained]:
    """Return the largest clusters of a set, with one answer of each.

    Args:
        found: the set.
        answer: gives a student's answer to a task, as text.
        anonymous: take comments and docstrings out of it.
        most: how many.
    """
    shown = []
    for cluster in found.clusters[:most]:
        code = answer(cluster.students[0], cluster.task)
        code = _without_words(code) if anonymous else code
        code = "\n".join(printable(line.expandtabs(4), LINE) for line in code.split("\n"))
        shown.append(Unexplained(cluster, code, stub(found.assignment, cluster, code)))
    return shown


def _without_words(code: str) -> str:
    """Return Python without its comments and docstrings, which may hold a name; what is no Python, not at all."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and body:
            first = body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def stub(assignment: str, cluster: Cluster, answer: str) -> str:
    """Return a mistake to be finished: the answer under a decorator, for the task's module.

    Its author writes the sentence, and names it for what was done.
    """
    check = cluster.losses[0][0]
    renamed = re.sub(rf"^(class|def) {re.escape(cluster.task)}\b", r"\1 name_it", answer.strip(), count=1, flags=re.M)
    before, found, after = renamed.partition(_heading(renamed))
    decorator = (
        f'@task.mistake(\n    "{check}",\n    "You ... (what was done, why it is wrong, and what to do instead).",\n)\n'
    )
    where = f"# {_module(assignment, cluster.task)}, below the other mistakes; name_it: say what was done\n\n"
    return f"{where}{before}{decorator}{found}{after}\n" if found else f"{where}{decorator}{renamed}\n"


def _heading(code: str) -> str:
    found = re.search(r"^(class|def) name_it\b", code, flags=re.M)
    return found[0] if found else "\0"


def _module(assignment: str, task: str) -> str:
    """Return the file that holds a task."""
    slug = assignment.partition("_")[2]
    folder = f"graders/sets/{slug}"
    try:
        package = import_module(f"graders.sets.{slug}")
    except ModuleNotFoundError:  # a set of the instructor's own
        return folder
    for module in iter_modules(package.__path__):
        if getattr(getattr(import_module(f"{package.__name__}.{module.name}"), "task", None), "name", "") == task:
            return f"{folder}/{module.name}.py"
    return folder


# --- what is written --------------------------------------------------------------------------------------------------


def page(
    handed: Class,
    worth: Mapping[str, float],
    answer: Callable[[str, str, str], str],
    *,
    anonymous: bool = False,
    book: str = "",
    face: str = "",
) -> str:
    """Return the report as HTML that loads nothing.

    Args:
        handed: the class.
        worth: points by set.
        answer: gives a student's answer: of whom, in which set, to which task.
        anonymous: whether names have been left out, so that they are left out of answers too.
        book: the address of the built book, for links; "": none.
        face: the text face, as WOFF2 in base64; "": the system's own.
    """
    sets = overviews(handed, worth)
    counted = [one for one in sets if 2 * one.handed >= len(handed) and one.graded]
    last = next(iter(reversed(counted or [one for one in sets if one.graded])), None)

    def clusters(found: Overview) -> list[Unexplained]:
        return unexplained(found, lambda student, task: answer(student, found.assignment, task), anonymous)

    return (
        templates()
        .get_template("classreport.html")
        .render(
            sets=[{"of": one, "unexplained": clusters(one), "scale": _scale(one)} for one in sets],
            students=len(handed),
            concerns=concerns(list(worth), handed, worth),
            last=last,
            tomorrow=tomorrow(last) if last else "",
            link=lambda made: _link(made, book),
            anonymous=anonymous,
            bins=BINS,
            shown=SHOWN,
            face=face,
        )
    )


def _scale(found: Overview) -> int:
    """Return the largest bin of the distribution, which is drawn full."""
    return max(found.histogram, default=1) or 1


def _link(made: Made, book: str) -> str:
    return made.place.url(book) if made.place and book else ""


def as_csv(sets: Sequence[Overview]) -> str:
    """Return the checks of all sets, one a line, with the commonest known mistake of each task's check."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, "commonest mistake", "made by"])
    for one in sets:
        for item in one.items:
            made = next((m for m in one.mistakes if (m.task, m.check) == (item.task, item.check)), None)
            told = "" if item.discrimination is None else f"{item.discrimination:.3f}"
            numbers = [f"{item.points:g}", item.answers, item.full, item.none, f"{item.facility:.3f}", told]
            last = [made.name, len(made.students)] if made else ["", ""]
            writer.writerow([*map(field, (one.assignment, item.task, item.check)), *numbers, *last])
    return text.getvalue()


def write(
    course: Course, records: Records, target: Path, anonymous: bool, say: Callable[[str, bool], None]
) -> tuple[list[Overview], list[Concern]]:
    """Write the page to ``target``, and the checks beside it as ``.csv``; each whole or not at all.

    Args:
        course: the course.
        records: of it, open.
        target: the page's file.
        anonymous: leave names out.
        say: gets a line on how far it is, and whether it is a set's last.
    """
    handed, worth = gather(course, records, say)
    names = {student: student for student in handed}
    if anonymous:
        handed, names = anonymised(handed)

    def answer(student: str, assignment: str, task: str) -> str:
        return records.answers(assignment, names[student]).get(task, "")

    built = course.root / "_build" / "html"
    book = course_site() or ("_build/html" if built.is_dir() and target.resolve().parent == course.root else "")
    text = page(handed, worth, answer, anonymous=anonymous, book=book, face=face(course.root))
    sets = overviews(handed, worth)
    for path, content in ((target.with_suffix(".csv"), as_csv(sets)), (target, text)):
        part = path.with_name(f".{path.name}.part")
        part.write_text(content, encoding="utf-8")
        part.replace(path)
    return sets, concerns(list(worth), handed, worth)
