"""The table at the end of `grade`: whose submission a person should look at, worst first."""

from collections import Counter
from collections.abc import Mapping, Sequence

from graders.notebook.codes import Code
from graders.notebook.problem import Problem, printable

ROWS = 20  # students at most
ALIKE = 5  # lines about one student with the same code; the doctor prints them all
LINKS = (Code.SYMBOLIC_LINK, Code.HARD_LINK, Code.NAMED_PIPE, Code.SOCKET, Code.DEVICE, Code.LINKED_FOLDER)
STOPPED = (Code.CELL_TIME, Code.KERNEL_DIED, Code.NOTEBOOK_TIME)
RESTORED = (
    Code.CELL_DELETED, Code.ALL_UNMARKED, Code.CELL_TWICE, Code.UNKNOWN_CELL, Code.CELL_TYPE, Code.CELL_METADATA,
    Code.CELL_TAGS, Code.CELL_TEXT, Code.ANSWER_DELETED,
)  # fmt: skip


def _kind(problem: Problem) -> tuple[int, str] | None:
    """Return how bad a problem is, from 0, the worst, and a word for it; None where nobody has to look."""
    if problem.code in (Code.SUSPECT, Code.FORGED_REPLY, *LINKS):
        return 0, "suspicious"
    if problem.fatal:
        return 1, "not graded"
    if problem.code in STOPPED:
        return 2, "stopped"
    return (3, "restored") if problem.code in RESTORED else None


def brief(student: str, problems: Sequence[Problem]) -> list[str]:
    """Return the lines about a student: of many with the same code the first few, then how many more there are.

    A notebook in which everything was changed would otherwise push what is said of others off the screen.
    """
    lines, counts = [], Counter(problem.code for problem in problems)
    seen: Counter[Code] = Counter()
    for problem in problems:
        seen[problem.code] += 1
        if seen[problem.code] < ALIKE or counts[problem.code] <= ALIKE:
            lines.append(f"{student}: {problem}")
        elif seen[problem.code] == ALIKE:
            more = counts[problem.code] - ALIKE + 1
            lines.append(f"{student}: {printable(problem.file, 100)}: {more} more faults like the one before.")
    return lines


def attention(faults: Mapping[str, Sequence[Problem]]) -> list[str]:
    """Return the table's lines, none where nothing is to be looked at: who, what it is, its worst line, how many more.

    Args:
        faults: the problems by student.
    """
    found = []
    for student, problems in faults.items():
        kinds = [(kind, number) for number, problem in enumerate(problems) if (kind := _kind(problem))]
        if kinds:
            (rank, word), number = min(kinds)
            more = f" (+{len(kinds) - 1})" if len(kinds) > 1 else ""
            problem = problems[number]
            what = printable(f"{problem.file}: {problem.what}", 100)
            found.append((rank, student, word, f"{what}{more}"))
    if not found:
        return []
    found.sort()
    width = max(len(printable(student, 40)) for _, student, _, _ in found[:ROWS])
    lines = [f"  {printable(who, 40):{width}}  {word:10}  {what}" for _, who, word, what in found[:ROWS]]
    rest = [f"  and {len(found) - ROWS} more, in the lines above"] if len(found) > ROWS else []
    return ["Look at these first:", *lines, *rest]
