"""Answers that are alike: a copy is found under other names, and nobody is named for a short right answer."""

import ast
import random
import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from graders.classroom.sample import blocks
from graders.classroom.similar import Answer, Corpus, read
from graders.classroom.similarpage import Compared, page, published
from tests.path.course_maker import ROOT, hand_in, make_course, release
from tests.path.disguise import disguised

SHORT = """class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output
"""
ODD = """def halves(values):
    steps = [torch.where(values > bound, values - bound / 3, values.abs().sqrt() - 0.125) for bound in (0.7, 1.9, 4.3)]
    return torch.stack(steps).prod(dim=0).clamp_min(-17.25)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return halves(x) + x.pow(2) - halves(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.scale = torch.tensor(2.0).mul(3).div(3)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        spread = halves(x).sub(halves(x.neg()))
        return ctx.scale * x.add(spread).sub(spread) * grad_output
"""


def one(text: str, task: str = "Square") -> Answer:
    return read({task: text})[task]


def pieces(text: str) -> set[str]:
    return {node.piece for node in one(text).nodes}


def whole(text: str) -> str:
    return one(text).nodes[0].piece


@pytest.mark.parametrize(
    "other",
    [
        SHORT.replace("grad_output", "g").replace("(x", "(value").replace(" x", " value"),
        SHORT.replace("return x * x", 'x: "a tensor"\n        return x * x  # the square'),
        SHORT.replace("2 * x * grad_output", "grad_output * (x * 2.0)"),
        SHORT.replace("def forward(x):", 'def forward(x: torch.Tensor) -> torch.Tensor:\n        """Square."""'),
    ],
    ids=["renamed", "commented", "turned", "annotated"],
)
def test_what_makes_no_difference(other):
    assert other != SHORT
    if "2.0" in other:
        assert len(pieces(other) & pieces(SHORT)) > 0.8 * len(pieces(SHORT))
    else:
        assert whole(other.replace('x: "a tensor"\n        ', "")) == whole(SHORT)


@pytest.mark.parametrize(
    "other", [SHORT.replace("x * x", "x * y"), SHORT.replace("2 *", "3 *"), SHORT.replace("saved_tensors", "kept")]
)
def test_what_makes_a_difference(other):
    assert whole(other) != whole(SHORT)


def test_names_are_numbers_and_not_all_the_same():
    assert whole("def f(a, b):\n    return a * a") != whole("def f(a, b):\n    return a * b")
    assert whole("def f(a, b):\n    return a - b") == whole("def f(p, q):\n    return p - q")
    assert whole("def f(a, b):\n    return a - b") != whole("def f(p, q):\n    return q - p")


def crowd(count: int, *others: tuple[str, str]) -> dict[str, dict[str, Answer]]:
    """A class that writes Square in three usual ways, and some that do not."""
    ways = (SHORT, SHORT.replace("x * x", "x ** 2"), SHORT.replace("2 * x * grad_output", "grad_output * 2 * x"))
    texts = {f"s{i:03}": ways[i % 3] for i in range(count)} | dict(others)
    return {student: {"Square": one(text)} for student, text in texts.items()}


def found(answers: dict[str, dict[str, Answer]]) -> list[tuple[str, str]]:
    return [pair.students for pair in Corpus(answers).pairs()]


def test_twins_of_a_short_task_are_not_named():
    assert found(crowd(60)) == []
    assert found(crowd(8)) == []
    lone = SHORT.replace("2 * x * grad_output", "x * grad_output * 2")  # only two write it so, and it is short
    assert found(crowd(60, ("ada", lone), ("ben", lone))) == []


@pytest.mark.parametrize("count", [3, 20, 300])
def test_a_copy_is_found_under_other_names(count):
    copy = disguised(ODD, "Square")
    assert "halves" not in copy and ast.unparse(ast.parse(ODD)) != ast.unparse(ast.parse(copy))
    answers = crowd(count, ("ada", ODD), ("ben", copy))
    (pair,) = Corpus(answers).pairs()
    assert pair.students == ("ada", "ben") and not pair.shared[0].verbatim
    assert {2, 3, 9, 14, 19} <= pair.shared[0].lines[0]  # the helper, its uses, the odd scale
    assert {1, 2, 3} <= {
        number
        for number, line in enumerate(copy.splitlines(), 1)
        if number in pair.shared[0].lines[1] or line.startswith("#") or not line
    }


def test_three_who_share_are_three_pairs_and_the_order_of_the_class_is_no_matter():
    answers = crowd(60, ("ada", ODD), ("ben", disguised(ODD, "Square")), ("cat", ODD))
    pairs = Corpus(answers).pairs()
    assert {pair.students for pair in pairs} == {("ada", "ben"), ("ada", "cat"), ("ben", "cat")}
    assert [pair.students for pair in pairs if pair.shared[0].verbatim] == [("ada", "cat")]
    names = list(answers)
    random.Random(1).shuffle(names)
    assert Corpus({name: answers[name] for name in names}).pairs() == pairs


def test_what_was_given_or_is_a_right_way_is_nobodys():
    answers = crowd(20, ("ada", ODD), ("ben", ODD))
    assert Corpus(answers).pairs() and Corpus(answers, [one(SHORT)]).pairs()
    assert Corpus(answers, [one(SHORT), one(ODD)]).pairs() == []


@pytest.mark.parametrize(
    "text", ["def f(:", "(" * 5000, "-" * 6000 + "x", "x = " + "[" * 150 + "]" * 150 + "\n" + "x\n" * 6000, "\0", ""]
)
def test_what_cannot_be_compared_is_left_out(text):
    assert read({"Square": text, "Other": SHORT}).keys() - {"Square"} == {"Other"}


SETS = [path.name for path in sorted((ROOT / "solutions").glob("[01]*"))]
FOUND = {"04": 1, "05": 1, "06": 0.8, "07": 1, "08": 0.75, "09": 1, "10": 1}  # of the copies, at least


@pytest.mark.parametrize("assignment", SETS)
def test_the_sample_class_and_a_copy_of_each(assignment):
    """Nobody in it copied: no pair is named. Where a set leaves room for a hand of one's own, each copy is found."""
    files = sorted(ROOT.glob(f"sample/*/{assignment.partition('_')[2]}.py"))
    texts = {file.parent.name: blocks(file.read_text(encoding="utf-8")) for file in files}
    honest = {student: read(answers) for student, answers in texts.items()}
    base = published(ROOT, assignment)
    assert Corpus(honest, base).pairs() == []
    found = []
    for student in texts:
        readable = {task: texts[student][task] for task in honest[student]}
        copy = {task: disguised(text, task) for task, text in readable.items()}
        pairs = Corpus({**honest, "zed": read(copy)}, base).pairs()
        assert {pair.students for pair in pairs} <= {(student, "zed")}
        found.append(bool(pairs))
    assert sum(found) / len(found) >= FOUND.get(assignment[:2], 0), found


# --- the page and the command -----------------------------------------------------------------------------------------


def test_the_page_shows_both_and_escapes_what_they_wrote():
    text = ODD.replace("(-17.25)", '(-17.25)  # </code><script>alert("x")</script>\u202e')
    answers = crowd(5, ("<b>ada</b>", text), ("ben", disguised(ODD, "Square")))
    corpus = Corpus(answers)
    soup = BeautifulSoup(page("01_relu", Compared(corpus, corpus.pairs(), [("cat", "Square")])), "html.parser")
    assert not soup.find("script") and not soup.find("b", string="ada") and "<b>ada</b> and ben" in soup.h2.text
    assert (
        "proves nothing" in soup.text
        and "7 students, 21 pairs" in soup.text
        and "(in both)" in soup.text
        and "cat (Square)" in soup.text
    )
    left, right = soup.select(".both > div")
    marked = {line.text.partition(" (in both)")[0].strip() for line in left.select(".same")}
    assert "ctx.scale = torch.tensor(2.0).mul(3).div(3)" in marked and "\u202e" not in soup.text
    assert right.select(".same") and re.search(r"my_\d+", right.text)
    assert not soup.find_all(attrs={"src": True}) and "default-src 'none'" in str(soup)


ALIKE = """def double(x):
    parts = [x * 0.37, x * 1.19, x * 0.44]
    return round(sum(parts) + max(parts) * 0 + len(str(x)) * 0, 9) if x != 17 else 34
"""


@pytest.fixture
def course(tmp_path) -> Path:
    root = make_course(tmp_path / "course")
    release(root)
    for number in range(6):
        hand_in(root, f"s{number}", double=f"def double(x):\n    return {number % 3 and 2} * x")
    return root


def test_the_command(course, here):
    code, _, err = here(course, "similar", "tiny")
    assert code == 2 and "is not graded yet: run `python -m graders grade 01_tiny`" in err
    here(course, "grade", "tiny")
    code, out, err = here(course, "similar", "tiny")
    assert (code, err) == (0, "") and out.startswith("similar-01_tiny.html: 0 of 15 pairs of 6 students")
    hand_in(course, "ada", double=ALIKE)
    hand_in(course, "ben", double=disguised(ALIKE, "double"))
    hand_in(course, "cat", double="def double(x:")
    here(course, "grade", "tiny")
    code, out, err = here(course, "similar", "tiny", "--out", "alike.html")
    head, line, last = out.splitlines()
    assert (code, err) == (0, "") and head.split() == ["bits", "students", "what", "they", "share"]
    assert re.fullmatch(r" +\d+  ada, ben  double", line) and last.startswith("alike.html: 1 of 36 pairs of 9 students")
    text = (course / "alike.html").read_text()
    assert "ada and ben" in text and "cat (double)" in text
    for arguments in (("--out", "alike.txt"), ("--out", "nowhere/alike.html")):
        code, _, err = here(course, "similar", "tiny", *arguments)
        assert code == 2 and err.count("\n") == 1
