"""The self-quiz of each chapter: its form, its right answers, its wrong options, and that it opens without script.

A question's wrong options are wrong ideas that the graders know by name. IDEAS says which, and in which words the
answer names them; where the grader's own wrong version can meet the question's input, it is run and must give what the
option says. ANSWERS ties the letter of each right answer to what the cell after the quiz prints, which nbval compares.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import nbformat
import pytest
import torch
from nbformat import NotebookNode
from playwright.sync_api import Browser
from torch import Tensor
from torch.autograd import Function, grad, gradcheck, gradgradcheck
from torch.nn import functional as F

from graders.sets import load
from tests.book.book_build import ROOT

CHAPTERS = sorted(path.stem for path in ROOT.glob("book/[0-9][0-9]_*.ipynb"))
APPENDICES = [  # which teach; the other two are for looking things up
    "b_library",
    "c_transforms",
    "d_kernels",
    "f_implicit",
    "g_across",
    "h_engine",
    "i_wild",
]
HEADING = "## Predict, then run"
DETAILS = r"<details><summary>Answer {}</summary>\n\n(.+?)\n\n</details>"
LETTERS = re.compile(r"\*\*([a-d])\*\*")
INF = float("inf")

Operation = Callable
Answers = list[tuple[str, str]]


@dataclass(frozen=True)
class Question:
    """A question, its options by their letters, and the text of its answer."""

    text: str
    options: dict[str, str]
    answer: str

    @property
    def right(self) -> str:
        """The letter that the answer begins with; empty where it begins with none."""
        match = re.match(r"\*\*([a-d])\*\*", self.answer)
        return match[1] if match else ""


def questions(notebook: NotebookNode) -> list[Question]:
    """The self-quiz of a page."""
    (text,) = (c.source for c in notebook.cells if c.cell_type == "markdown" and HEADING in c.source)
    found = []
    parts = re.split(r"^\*\*\d\.\*\* ", text.partition(HEADING)[2], flags=re.MULTILINE)
    for number, part in enumerate(parts[1:], 1):
        asked, _, rest = part.partition("\n\n- **a** ")
        options = dict(re.findall(r"^- \*\*([a-d])\*\* (.+)$", "- **a** " + rest, re.MULTILINE))
        answer = re.search(DETAILS.format(number), part, re.DOTALL)  # whoever hears the page hears which answer
        found.append(Question(asked, options, answer[1] if answer else ""))
    return found


def shown(notebook: NotebookNode) -> str:
    """What the cell after the quiz prints, which is the page's next that prints anything."""
    place = next(i for i, c in enumerate(notebook.cells) if c.cell_type == "markdown" and HEADING in c.source)
    outputs = ("".join(o.get("text", "") for o in c.get("outputs", [])) for c in notebook.cells[place:])
    return next(filter(None, outputs))


def form_faults(notebook: NotebookNode) -> list[str]:
    """Where the quiz is not two or three questions whose answer speaks of each option, all of them run."""
    asked, printed = questions(notebook), shown(notebook)
    found = [] if len(asked) in (2, 3) else [f"{len(asked)} questions"]
    for number, question in enumerate(asked, 1):
        if "".join(question.options) not in ("abc", "abcd"):
            found.append(f"{number}: the options are {', '.join(question.options)}")
        if question.right not in question.options:
            found.append(f"{number}: the answer begins with the letter of no option")
        found += [f"{number}: no why for {x}" for x in question.options if x not in LETTERS.findall(question.answer)]
        if not re.search(rf"^{number}: ", printed, re.MULTILINE):
            found.append(f"{number}: not run")
    return found


# ---------------------------------------------------------------------------------------------------- right answers

ANSWERS: dict[str, Answers] = {  # the right letter, and what the cell prints of it
    "01_relu": [
        ("a", "1: [0.0, 30.0]"),
        ("b", "2: [0.37, 7.39]"),
        ("b", "3: None"),
    ],
    "02_sigmoid": [("b", "1: slope 0.8000, right: 0.2"), ("b", "2: 0.5000"), ("b", "3: passes and fails")],
    "03_ste": [
        ("c", "1: [1.0, -3.0, 0.0]"),
        ("c", "2: 2.1000"),
        ("b", "3: [0.0, 0.0, 0.0]\n3: element 0 of tensors does"),
    ],
    "04_legendre": [("b", "1: SavedP3 72.0"), ("c", "2: slope 0.0"), ("a", "3: passes 2")],
    "05_clipped_relu": [("b", "1: 1099.0"), ("b", "2: AssertionError: no input above bound"), ("b", "3: 2.0000")],
    "06_linear": [("b", "1: gradcheck False"), ("c", "2: gradcheck True"), ("b", "3: requires a gradient: False")],
    "07_logsumexp": [
        ("b", "1: 2.9176, right 2.9176\n1: 3.2143, right 2.9176"),
        ("a", "2: rows sum to 2, gradcheck False"),
        ("b", "3: gradcheck False"),
    ],
    "08_qat": [("c", "1: -0.6000"), ("b", "2: FakeQuantBits True\n2: NoMask False"), ("c", "3: 3")],
    "09_checkpointing": [
        ("b", "1: every 16: 272 KiB at the peak\n1: none: 272 KiB"),
        ("c", "2: twice True"),
        ("c", "3: right True, 272 KiB, 16 forwards"),
    ],
    "10_flash_attention": [("b", "1: True\n1: False"), ("b", "2: True"), ("c", "3: 512.0 rounded once: 1504.0")],
    "b_library": [("c", "1: True [0.0, 0.0, 0.0]"), ("b", "2: SUCCESS"), ("b", "3: []")],
    "d_kernels": [("c", "1: 4\n"), ("b", "2: 2048.0"), ("c", "3: the gradient of y.sum() alone: True\n3: trying to")],
    "c_transforms": [("b", "1: ['right', 'no rule']"), ("a", "2: {'right': 3} right"), ("c", "3: WRONG right")],
    "f_implicit": [
        ("b", "1: 18 steps, 16 bytes\n1: 41 steps, 16 bytes"),
        ("a", "2: 0.3536, right 0.3536"),
        ("b", "3: gradcheck False\n   backward exact: True"),
    ],
    "g_across": [
        ("b", "1: all 2 ranks: (8.0, 4.0)"),
        ("b", "2: all 2 ranks: 10.0"),
        ("c", "3: rank 0: hangs in ragged"),
    ],
    "h_engine": [("a", "1: 1 call"), ("b", "2: 8.0 of 4 and 4"), ("b", "3: 1j")],
    "i_wild": [("c", "1: setStorage: sizes [2, 3]"), ("b", "2: gradgradcheck True"), ("b", "3: gradcheck True")],
}


def answer_faults(notebook: NotebookNode, answers: Answers) -> list[str]:
    """The questions whose right letter or printed result is another one than is known."""
    asked, printed = questions(notebook), shown(notebook)
    found = [] if len(asked) == len(answers) else [f"{len(answers)} answers are known"]
    for number, (question, (letter, line)) in enumerate(zip(asked, answers, strict=False), 1):
        if question.right != letter:
            found.append(f"{number}: the answer is {question.right}, known is {letter}")
        if line not in printed:
            found.append(f"{number}: the cell does not print {line!r}")
    return found


# ------------------------------------------------------------------------------------------------------ wrong options


@dataclass(frozen=True)
class Idea:
    """A wrong idea of the chapter's set, as a question uses it.

    Args:
        question: its number.
        letter: of the option that it leads to: the right one where the question itself describes the idea.
        name: of the set's task and mistake.
        words: with which the question or its answer names the idea.
        gives: what the grader's wrong version gives on the question's input, in the option's words; None where the two
            do not meet.
    """

    question: int
    letter: str
    name: str
    words: str
    gives: Callable[[Operation], str] | None = None


def vector(*values: float) -> Tensor:
    """Numbers that require a gradient, in float64."""
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def written(tensor: Tensor) -> str:
    """A number, or a vector, as an option writes it."""
    values = [f"{value:g}" for value in tensor.tolist()]
    return f"({', '.join(values)})" if len(values) > 1 else values[0]


def passed(check: Callable, op: Operation, *args: object) -> bool:
    """Whether gradcheck or gradgradcheck passes."""
    return check(op, args, raise_exception=False)


def vjp(op: Operation, x: Tensor, *upstream: float) -> str:
    """The gradient for `x`."""
    return written(grad(op(x), x, torch.tensor(upstream, dtype=x.dtype))[0])


def changed_in_place(op: Operation) -> str:
    u = vector(-1, 2) * 1
    y = op(u)
    u.neg_()
    try:
        y.sum().backward()
    except RuntimeError:
        return "an error"
    return "found"


def fifty_points(op: Operation) -> str:
    points = vector(*torch.linspace(-0.9, 0.9, 50).tolist())
    wrong_at_two = vjp(op, vector(2), 1) != "0.2"
    good = passed(gradcheck, op, points) and passed(gradgradcheck, op, points)
    return "it is right, 50 points suffice" if good and wrong_at_two else "found"


def second_order_alone(op: Operation) -> str:
    wrong_at_two = vjp(op, vector(2), 1) != "0.2"
    return (
        "right, since the second order is too" if passed(gradgradcheck, op, vector(0.5)) and wrong_at_two else "found"
    )


def second_derivative(op: Operation, at: float) -> str:
    x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    (first,) = grad(op(x).square(), x, create_graph=True)
    return f"{grad(first, x)[0].item():.4g}"


def error_or_zeros(op: Operation) -> str:
    x = vector(1, 2)
    try:
        return written(grad(op(x, 0).sum(), x)[0])
    except RuntimeError:
        return "an error"


def backward_passes(product: Operation) -> str:
    passes = []

    class Counted(Function):
        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, v):
            passes.append(1)
            return v.clone()

    x = vector(*[0.1] * 1000)
    product(lambda x: Counted.apply(x).pow(3).sum(), x, torch.ones_like(x))
    return str(len(passes))


def alpha_gradient(op: Operation) -> str:
    x, alpha = vector(-2, 0.5, 1.5, 3).detach(), vector(1.5)
    upstream = torch.tensor([1, 10, 100, 1000], dtype=torch.float64)
    found = grad(op(x, alpha), alpha, upstream, allow_unused=True)[0]
    return "nothing" if found is None else f"{found.item():g}"


def thousand_normals(op: Operation) -> str:
    x = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    judged = [passed(gradcheck, op, x, bound) for bound in (6.0, 0.5)]
    return "both are right" if judged == [True, False] else "found"


def transposed_again(op: Operation) -> str:
    x, square, other = vector(1, 2, 3)[None], torch.randn(3, 3).double(), torch.randn(4, 3).double()
    silent = not grad(op(x, square).sum(), x)[0].allclose(grad(F.linear(x, square).sum(), x)[0])
    with pytest.raises(RuntimeError):
        grad(op(x, other).sum(), x)
    return "it raises unless `b` is square, and then is silently wrong" if silent else "right"


def times_too_large(op: Operation) -> str:
    b = vector(1, 2, 3, 4)
    (ratio,) = set(grad(op(torch.ones(3, 4, dtype=b.dtype), b).sum(), b)[0].tolist())
    return {3: "right", 9: "three times too large"}[ratio]


def merged(op: Operation) -> str:
    results = []
    for rows in ([[2.0, 0.0], [2.0, 1.0]], [[0.0, 1.0], [2.0, 2.0]]):
        chunks = torch.tensor(rows)
        results.append((op(iter(chunks)) - chunks.flatten().logsumexp(0)).item())
    same, other = results
    return "right if both pieces have the same maximum, else too large" if abs(same) < 1e-6 < 0.1 < other else "found"


def infinity_left(op: Operation) -> str:
    return str(op(torch.tensor([-torch.inf, -torch.inf])).item())


def step_sum(op: Operation) -> str:
    scale = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    return f"{grad(op(vector(-3, 0.3, 5).detach(), scale, -4, 3).sum(), scale)[0].item():.4g}"


def all_outside(op: Operation) -> str:
    judged = passed(gradcheck, lambda x: op(x, 0.5, 4, 3), vector(-9, 9))
    return "the right one, and the one with the mask missing" if not judged else "found"


def doubled(op: Operation) -> str:
    a, b = vector(1, 2), vector(3, 4)
    op(torch.mul, a, b).sum().backward()
    return "twice the right ones" if a.grad.equal(2 * b) and b.grad.equal(2 * a) else written(a.grad)


def of_parameters(op: Operation) -> str:
    x, weight = vector(1, 2), vector(3, 4)
    op(x, torch.mul, weight).sum().backward()
    return f"`{weight.grad}`"


def scores_far_below(op: Operation) -> str:
    query, keys = torch.ones(1, 1), torch.tensor([[-3.0], [-2.0]])
    near, far = (op(query, keys + shift, torch.ones(2, 1), 1) for shift in (0, -200))
    return "when a row's scores all lie far below 0" if near.isfinite().all() and far.isnan().all() else "found"


def shift_trusted(op: Operation) -> str:
    return "never: softmax does not care about the shift" if scores_far_below(op) != "found" else "found"


def sum_that_is_reached(op: Operation) -> str:
    query, keys, values = (torch.zeros(n, 1, dtype=torch.bfloat16) for n in (1, 1500, 1500))
    values[:2] = 1  # so the output is 2 / sum
    return f"{2 / op(query, keys, values, 2).item():g}"


IDEAS: dict[str, list[Idea]] = {
    "01_relu": [
        Idea(1, "b", "ReLU.mask_multiplied", "multiplies by the mask", lambda op: vjp(op, vector(-1, 2), INF, 30)),
        Idea(
            1, "c", "ReLU.upstream_ignored", "ignores the upstream gradient", lambda op: vjp(op, vector(-1, 2), INF, 30)
        ),
        Idea(2, "a", "Tanh.saves_input", "saves the input", changed_in_place),
        Idea(2, "c", "ReLU.kept_as_attribute", "kept as an attribute"),
    ],
    "02_sigmoid": [
        Idea(1, "a", "Arctan.wrong_branch", "the wrong branch", fifty_points),
        Idea(1, "c", "Arctan.consistent_but_wrong", "a consistent but wrong slope", second_order_alone),
        Idea(2, "b", "Arctan.saves_derivative", "the derivative saved", lambda op: second_derivative(op, 1)),
        Idea(3, "a", "Arctan.float32_inside", "float32 inside `forward`"),
    ],
    "03_ste": [
        Idea(1, "a", "Step.identity_outside", "the mask left out", lambda op: vjp(op, vector(-0.3, 0.2, 2), 1, -3, 5)),
        Idea(1, "b", "Step.clips_upstream", "gradient clipped", lambda op: vjp(op, vector(-0.3, 0.2, 2), 1, -3, 5)),
        Idea(3, "c", "GradientReversal.none_at_zero", "takes factor 0 for a cut", error_or_zeros),
    ],
    "04_legendre": [
        Idea(
            1,
            "b",
            "Legendre.saves_derivative",
            "the slope was saved",
            lambda op: second_derivative(partial(op, n=3), 1),
        ),
        Idea(
            2, "b", "Chebyshev.divides_at_ends", "divides at the ends", lambda op: vjp(partial(op, n=3), vector(1), 1)
        ),
        Idea(3, "b", "hvp.hessian_formed", "forms $H$ row by row", backward_passes),
    ],
    "05_clipped_relu": [
        Idea(1, "a", "SymmetricClip.lower_sign_forgotten", "forgets the lower sign", alpha_gradient),
        Idea(1, "d", "SymmetricClip.alpha_gets_none", "returned as None", alpha_gradient),
        Idea(2, "a", "HardTanh.upper_mask_missing", "a missing mask", thousand_normals),
    ],
    "06_linear": [
        Idea(1, "b", "Linear.weight_transposed_again", "in place of `g @ b.T`", transposed_again),
        Idea(2, "b", "BroadcastMul.summed_and_expanded", "sum and expand back", times_too_large),
    ],
    "07_logsumexp": [
        Idea(1, "b", "online_logsumexp.sum_not_rescaled", "*sum not rescaled*", merged),
        Idea(1, "a", "LogSumExp1d.no_guard", "would need an infinity", infinity_left),
    ],
    "08_qat": [
        Idea(1, "a", "LSQ.quotient_forgotten", "adds up $q$", step_sum),
        Idea(1, "b", "LSQ.outside_forgotten", "forgets the outside", step_sum),
        Idea(2, "c", "FakeQuantBits.mask_missing", "without the mask", all_outside),
    ],
    "09_checkpointing": [
        Idea(2, "b", "Recompute.parameters_none", "gave its parameters", of_parameters),
        Idea(2, "c", "checkpoint.not_detached", "on the saved tensors themselves", doubled),
        Idea(3, "c", "checkpoint.graph_kept", "keeps the result with its graph"),
    ],
    "10_flash_attention": [
        Idea(1, "b", "tiled_attention.max_started_at_zero", "starts $m$ at 0", scores_far_below),
        Idea(1, "c", "FlashSkeleton.no_running_max", "forgets rounding", shift_trusted),
        Idea(3, "c", "tiled_attention.low_precision_sums", "In bfloat16 a sum", sum_that_is_reached),
    ],
}


def idea_faults(notebook: NotebookNode, chapter: str, ideas: list[Idea]) -> list[str]:
    """The ideas that the set does not know, that the quiz does not name, or that give something else than it says."""
    asked, found = questions(notebook), []
    tasks = load(chapter.partition("_")[2])
    for idea in ideas:
        question, (task, mistake) = asked[idea.question - 1], idea.name.split(".")
        place = f"{idea.question} {idea.letter}"
        known = {m.name: m for m in tasks[task].mistakes} if task in tasks else {}
        if mistake not in known:
            found.append(f"{place}: the set knows no {idea.name}")
            continue
        if idea.words not in question.text + "\n" + question.answer:
            found.append(f"{place}: {idea.words!r} is not said")
        if idea.gives and (given := idea.gives(known[mistake].operation)) not in question.options.get(idea.letter, ""):
            found.append(f"{place}: {idea.name} gives {given!r}, the option says {question.options.get(idea.letter)!r}")
    return found


# ----------------------------------------------------------------------------------------------------------- the tests


def read(page: str) -> NotebookNode:
    """A page of the book."""
    return nbformat.read(ROOT / f"book/{page}.ipynb", as_version=4)


@pytest.mark.parametrize("page", [*CHAPTERS, *APPENDICES])
def test_each_option_has_its_why_and_each_question_is_run(page: str) -> None:
    assert form_faults(read(page)) == []


@pytest.mark.parametrize("page", [*CHAPTERS, *APPENDICES])
def test_the_right_answer_is_what_the_cell_prints(page: str) -> None:
    assert answer_faults(read(page), ANSWERS[page]) == []


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_wrong_options_are_wrong_ideas_that_the_graders_know(chapter: str) -> None:
    assert len({idea.name for idea in IDEAS[chapter]}) >= 2
    assert idea_faults(read(chapter), chapter, IDEAS[chapter]) == []


def replaced(page: str, old: str, new: str) -> NotebookNode:
    """A page with a fault planted into the text or the outputs from the quiz on."""
    notebook = read(page)
    start = next(i for i, c in enumerate(notebook.cells) if c.cell_type == "markdown" and HEADING in c.source)
    places = 0
    for cell in notebook.cells[start:]:
        places += cell.source.count(old) if cell.cell_type == "markdown" else 0
        if cell.cell_type == "markdown":
            cell.source = cell.source.replace(old, new)
        for output in cell.get("outputs", []):
            if "text" in output:
                places += output.text.count(old)
                output.text = output.text.replace(old, new)
    assert places == 1, f"{places} places: {old!r}"
    return notebook


PLANTED_FORM = {  # in chapter 1
    "no why": ("**d** has no mask at all.", "And no mask.", "1: no why for d"),
    "no letter": ("**a**. The product", "The product", "1: the answer begins with the letter of no option"),
    "no run": ("1: [0.0", "[0.0", "1: not run"),
    "two options": ("- **c** nothing: there is an error\n", "", "3: the options are a, b"),
    "an answer of another name": (
        "Answer 2</summary>",
        "Answer</summary>",
        "2: the answer begins with the letter of no",
    ),
    "no answer": ("**b**. Without a", "</details>\n\n**b**. Without a", "3: the answer begins"),
}
PLANTED_ANSWERS = {
    "another letter": ("**a**. The product", "**b**. The product", "1: the answer is b, known is a"),
    "another result": ("1: [0.0, 30.0]", "1: [0.0, 1.0]", "1: the cell does not print"),
    "a question fewer": ("**3.** The last line", "The last line", "3 answers are known"),
}
PLANTED_IDEAS = {
    "an option changed": ("- **b** (nan, 30)", "- **b** (0, nan)", "1 b: ReLU.mask_multiplied gives '(nan, 30)'"),
    "a name dropped": ("ignores the upstream gradient", "is wrong", "1 c: 'ignores the upstream gradient' is not said"),
}


@pytest.mark.parametrize("fault", PLANTED_FORM)
def test_a_fault_of_form_is_found(fault: str) -> None:
    old, new, says = PLANTED_FORM[fault]
    assert any(found.startswith(says) for found in form_faults(replaced("01_relu", old, new)))


def test_a_quiz_of_one_question_is_found() -> None:
    notebook = read("01_relu")
    cell = next(c for c in notebook.cells if c.cell_type == "markdown" and HEADING in c.source)
    cell.source = cell.source.partition("**2.** ")[0]
    assert form_faults(notebook) == ["1 questions"]


@pytest.mark.parametrize("fault", PLANTED_ANSWERS)
def test_a_wrong_answer_is_found(fault: str) -> None:
    old, new, says = PLANTED_ANSWERS[fault]
    assert any(found.startswith(says) for found in answer_faults(replaced("01_relu", old, new), ANSWERS["01_relu"]))


@pytest.mark.parametrize("fault", PLANTED_IDEAS)
def test_an_option_that_is_no_known_idea_is_found(fault: str) -> None:
    old, new, says = PLANTED_IDEAS[fault]
    found = idea_faults(replaced("01_relu", old, new), "01_relu", IDEAS["01_relu"])
    assert [f.startswith(says) for f in found] == [True]


def test_an_idea_that_the_set_does_not_know_is_found() -> None:
    unknown = replace(IDEAS["01_relu"][0], name="ReLU.mask_forgotten")
    assert idea_faults(read("01_relu"), "01_relu", [unknown]) == ["1 b: the set knows no ReLU.mask_forgotten"]


# ------------------------------------------------------------------------------------------------------- in a browser


@pytest.mark.parametrize("page", [*CHAPTERS, *APPENDICES])
def test_the_answers_open_by_keyboard_and_without_script(page: str, site: str, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False, viewport={"width": 390, "height": 800})
    tab = context.new_page()
    tab.goto(f"{site}/book/{page}.html")
    quiz = tab.locator("section#predict-then-run details")
    assert quiz.count() == len(questions(read(page)))
    first = quiz.first.locator("summary")
    first.focus()
    for number in range(quiz.count()):
        details = quiz.nth(number)
        summary, why = details.locator("summary"), details.locator("p").first
        if number:
            tab.keyboard.press("Tab")  # nothing between two answers takes the focus
        assert summary.evaluate("e => e === document.activeElement")
        assert not why.is_visible()
        tab.keyboard.press("Enter")
        assert why.is_visible() and why.locator("strong").first.inner_text() in "abcd"
        tab.keyboard.press("Space")
        assert not why.is_visible()
    context.close()
