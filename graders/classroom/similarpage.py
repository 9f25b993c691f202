"""The page on answers that are alike: both side by side, what they share marked."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from graders.classroom.course import Course
from graders.classroom.gradebook import Records
from graders.classroom.similar import Answer, Corpus, Pair, Shared, read
from graders.classroom.templates import face, templates
from graders.coach import find, right
from graders.coach.find import CoachError
from graders.notebook.problem import printable

LINE = 2000  # characters of a line that is shown


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
    corpus = Corpus(answers, _of_the_course(records, assignment))
    return Compared(corpus, corpus.pairs(), unread)


def _of_the_course(records: Records, assignment: str) -> dict[str, list[Answer]]:
    """Return what the course itself has, by task: what each answer cell holds at first, and right ways to fill it."""
    cells = [cell for known in records.released(assignment).cells.values() for cell in known.values() if cell.solution]
    found = {cell.grade_id: [*read({cell.grade_id: cell.source}).values()] for cell in cells}
    with suppress(ModuleNotFoundError):  # a set of the instructor's own has no right ways
        for one in find.tasks(assignment.partition("_")[2]):
            with suppress(CoachError):
                name = one.task.name
                found[name] = [
                    *found.get(name, []),
                    *(a for way in right.ways(one).each for a in read({name: way.code}).values()),
                ]
    return found


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


def write(course: Course, records: Records, assignment: str, target: Path, say: Callable[[str], None]) -> Compared:
    """Compare a set's answers, and write the page to ``target``, whole or not at all.

    Args:
        course: the course.
        records: of it, open.
        assignment: the set.
        target: the page's file.
        say: gets a line on how far it is.
    """
    found = compare(course, records, assignment, say)
    part = target.with_name(f".{target.name}.part")
    part.write_text(page(assignment, found, face(course.root)), encoding="utf-8")
    part.replace(target)
    return found


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
