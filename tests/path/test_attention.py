"""What `grade` says of a student with many faults."""

from graders.classroom.attention import ALIKE, brief
from graders.notebook.codes import Code
from graders.notebook.problem import Problem


def _problems(code: Code, count: int, file: str = "tiny.ipynb") -> list[Problem]:
    return [Problem(code, file, f"fault {number}", "The released ones are used") for number in range(count)]


def test_a_few_faults_are_a_line_each():
    problems = [*_problems(Code.CELL_METADATA, ALIKE), *_problems(Code.SUSPECT, 2)]
    assert brief("ada", problems) == [f"ada: {problem}" for problem in problems]


def test_of_many_alike_the_first_are_told_and_how_many_more_there_are():
    """And what else is wrong with the same submission is told in full."""
    flood, other = _problems(Code.CELL_METADATA, 32), _problems(Code.SUSPECT, 1)
    assert brief("ada", [*flood, *other]) == [
        *(f"ada: {problem}" for problem in flood[: ALIKE - 1]),
        f"ada: tiny.ipynb: {32 - ALIKE + 1} more faults like the one before.",
        f"ada: {other[0]}",
    ]
