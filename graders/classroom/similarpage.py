"""The page on answers that are alike: both side by side, what they share marked."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path

from graders.classroom.course import Course
from graders.classroom.gradebook import Records
from graders.classroom.similar import Answer, Corpus, Pair, Shared, read
from graders.classroom.templates import templates
from graders.notebook.problem import printable

LINE = 2000  # characters of a line that is shown
ALL_NODES = 200_000  # of the syntax tree of a module of ours


@dataclass(frozen=True)
class Compared:
    """What was compared, and found.

    Args:
        corpus: the answers.
        pairs: those to read.
        unread: whose answer to which task could not be compared.
    """

    corpus: Corpus
    pairs: list[Pair]
    unread: list[tuple[str, str]]


def compare(course: Course, records: Records, assignment: str, say: Callable[[str], None]) -> Compared:
    """Compare the answers of a set that are graded.

    Args:
        course: the course.
        records: of it, open.
        assignment: the set.
        say: gets a line on how far it is.
    """
    answers: dict[str, dict[str, Answer]] = {}
    unread = []
    students = course.students(assignment)
    for number, student in enumerate(students, 1):
        texts = records.answers(assignment, student)
        if not texts:
            continue
        found: dict[str, Answer] = {}
        with suppress(Exception):  # whatever a student wrote: the others are compared
            found = course.reader.ask(read, texts)
        unread += [(student, task) for task in sorted(texts.keys() - found.keys())]
        answers[student] = found
        say(f"{assignment}: {number} of {len(students)} read")
    say(f"{assignment}: comparing")
    corpus = Corpus(answers, _of_the_course(course, records, assignment))
    return Compared(corpus, corpus.pairs(), unread)


def _of_the_course(course: Course, records: Records, assignment: str) -> list[Answer]:
    """Return what anybody may have from the course: what the exercise's cells hold at first, and what is published."""
    cells = [cell for known in records.released(assignment).cells.values() for cell in known.values()]
    texts = {cell.grade_id: cell.source for cell in cells if cell.cell_type == "code"}
    return [*read(texts).values(), *published(course.root, assignment)]


def published(root: Path, assignment: str) -> list[Answer]:
    """Return what the chapter shows, and the set's right ways and mistakes with a name; of an own set, nothing.

    Args:
        root: the course's folder.
        assignment: the set.
    """
    texts: dict[str, str] = {}
    chapter = root / "book" / f"{assignment}.ipynb"
    if chapter.exists():
        cells = json.loads(chapter.read_text(encoding="utf-8"))["cells"]
        codes = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        texts |= {f"{chapter.name} {number}": code for number, code in enumerate(codes)}
    with suppress(ModuleNotFoundError):
        folder = files(import_module(f"graders.sets.{assignment.partition('_')[2]}"))
        texts |= {one.name: one.read_text("utf-8") for one in folder.iterdir() if one.name.endswith(".py")}
    return list(read(texts, ALL_NODES).values())


def page(assignment: str, found: Compared, font: str = "") -> str:
    """Return the page as HTML that loads nothing.

    Args:
        assignment: the set.
        found: what was compared.
        font: the text face, as WOFF2 in base64; "": the system's own.
    """

    def text(student: str, shared: Shared, side: int) -> Iterator[tuple[str, bool]]:
        answer = found.corpus.answers[student][shared.task]
        for number, line in enumerate(answer.text.split("\n"), 1):
            yield printable(line.expandtabs(4), LINE), number in shared.lines[side]

    count = len(found.corpus.answers)
    return (
        templates()
        .get_template("similar.html")
        .render(
            assignment=assignment,
            students=count,
            count=count * (count - 1) // 2,
            pairs=found.pairs,
            enough=found.corpus.enough,
            unread=found.unread,
            text=text,
            face=font,
        )
    )


def lines(found: Compared) -> Iterator[str]:
    """Yield the pairs for a terminal, those with most in common first."""
    if not found.pairs:
        return
    names = [", ".join(printable(student, 60) for student in pair.students) for pair in found.pairs]
    width = max(map(len, [*names, "students"]))
    yield f"bits  {'students':{width}}  what they share"
    for pair, name in zip(found.pairs, names, strict=True):
        tasks = ", ".join(f"{one.task}{' (word for word)' if one.verbatim else ''}" for one in pair.shared)
        yield f"{pair.bits:4.0f}  {name:{width}}  {printable(tasks, 200)}"
