"""A page of feedback as its student opens it: in a browser without a network, at two widths; and how it is made."""

import time
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup

from graders.classroom import pages
from graders.classroom.feedback import LONGEST, _layout, clean_page
from graders.classroom.formulas import LONGEST as LONGEST_FORMULA
from graders.classroom.formulas import Formulas
from graders.judge.verdict import MIME, PASTE, Verdict
from tests.path.course_maker import CODE, edit, hand_in, make_course, release

RIGHT = {"double": "def double(x):\n    return 2 * x", "triple": "def triple(x):\n    return 3 * x"}
TEXT = """# My thoughts

The gradient is $2x$, or $$\\frac{\\partial L}{\\partial x} = 2x.$$ In code: `$PATH and $HOME`, $\\nonsense{$.

\\begin{aligned} a &= b \\\\ c &= d \\end{aligned}

<details><summary>Hint</summary>Think of $x^2$.</details>

[the chapter](../../book/01_relu.ipynb) [torch](https://pytorch.org/) [mine](notes.ipynb)
"""
COVER = """<div class="navbar navbar-fixed-top" style="position: fixed; top: 0; height: 3000px; background-color: red">
Score: 20 of 20</div> ![x](https://mallory.example/t.png) $\\kern-999em x$ $\\rule{999em}{999em}$"""
WIDTHS = (1280, 390)
LIVE = [
    r"\href{https://mallory.example}{x}", r"\includegraphics{https://mallory.example/x.png}", r"\htmlClass{navbar}{x}",
    r"\htmlId{toc}{x}", r"\htmlStyle{position:fixed}{x}", "<script>x</script>",
]  # fmt: skip


def _text(name: str, source: str):
    return lambda data: data["cells"].append({"cell_type": "markdown", "id": name, "metadata": {}, "source": source})


@pytest.fixture(scope="module")
def made(tmp_path_factory, run, quick):
    """A course with pages, and what making them said. One student's cannot be laid out in the time that it gets."""
    root = make_course(tmp_path_factory.mktemp("course"))
    release(root)
    hand_in(root, "ada", **RIGHT)
    edit(hand_in(root, "ben", **RIGHT | {"triple": "def triple(x):\n    return x"}), _text("text", TEXT))
    edit(hand_in(root, "mallory", **RIGHT), _text("cover", COVER))
    path = hand_in(root, "slow", **RIGHT)
    for number in range(40):
        edit(path, _text(f"slow-{number}", "[" * 20_000))
    hand_in(root, "zoe", **RIGHT)
    graded = quick(root, "graders", "grade", "tiny")
    assert graded.returncode == 0, graded.stderr
    start = time.monotonic()
    said = run(root, "nbgrader", "generate_feedback", "01_tiny", "--FeedbackExporter.seconds=2")
    return SimpleNamespace(root=root, said=said, seconds=time.monotonic() - start)


def html(made, student: str) -> BeautifulSoup:
    return BeautifulSoup((made.root / f"feedback/{student}/01_tiny/tiny.html").read_bytes(), "html.parser")


def test_one_page_that_takes_too_long_is_a_line_and_the_others_are_made(made):
    assert made.said.returncode == 0, made.said.stderr
    lines = [line for line in made.said.stderr.splitlines() if "ERROR" in line]
    assert len(lines) == 1 and "slow/01_tiny/tiny.ipynb: making its page of feedback took too long" in lines[0]
    assert "could not be made" in html(made, "slow").get_text()
    for student in ("ada", "ben", "mallory", "zoe"):
        assert len(html(made, student).select(".alert")) == 3


def test_the_index_names_the_tests(made):
    said = [tag.get_text(" ", strip=True) for tag in html(made, "ben").select("#toc li")]
    assert said == [
        "double value (Score: 2.0 / 2.0)",
        "double type (Score: 2.0 / 2.0)",
        "triple value (Score: 0.0 / 2.0)",
    ]


@pytest.mark.parametrize("student", ["ada", "ben", "mallory", "slow"])
def test_a_page_has_a_policy_and_no_script(made, student):
    page = html(made, student)
    policy = page.find("meta", {"http-equiv": "Content-Security-Policy"})["content"]
    assert policy.startswith("default-src 'none'; ") and "script" not in policy
    assert not page.find_all(["script", "link", "iframe"])
    assert not [tag for tag in page.find_all("img") if not tag.get("src", "data:").startswith("data:")]


@pytest.mark.parametrize("site", ["", "https://course.example/site/"])
def test_a_link_into_the_book_leads_to_its_site_or_nowhere(monkeypatch, site):
    monkeypatch.setenv("COURSE_URL", site)
    links = BeautifulSoup(
        clean_page(
            '<a href="../../book/01_relu.ipynb#more">a</a><a href="notes.ipynb">b</a><a href="#c">c</a>'
            '<a href="https://pytorch.org/">d</a><a href="javascript:x()">e</a><a href="//mallory">f</a>'
        ),
        "html.parser",
    ).find_all("a")
    first = "https://course.example/site/book/01_relu.html#more" if site else None
    assert [link.get("href") for link in links] == [first, None, "#c", "https://pytorch.org/", None, None]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_failing_case_can_be_copied_and_the_scores_be_read(made, chromium, width, scheme):
    """The code below the verdict is whole, is taken as a whole by one click, and is nowhere but below lost points."""
    context = chromium.new_context(viewport={"width": width, "height": 900}, offline=True, color_scheme=scheme)
    page, code = context.new_page(), CODE.format(task="triple")
    page.goto((made.root / "feedback/ben/01_tiny/tiny.html").as_uri())
    assert page.locator(".alert-danger").inner_text().startswith("triple value: 0 of 2 points")
    assert page.locator(".alert-danger ~ .text-muted").inner_text() == PASTE
    block = page.locator(".alert ~ pre")
    assert block.all_inner_texts() == [code] and page.locator(".alert-danger ~ pre").count() == 1
    block.click(position={"x": 5, "y": 5})
    assert page.evaluate("String(getSelection())").strip() == code
    lines = block.evaluate("(node) => node.scrollHeight / parseFloat(getComputedStyle(node).lineHeight)")
    assert lines < 6 and block.evaluate("(node) => node.scrollWidth >= node.clientWidth")  # it is scrolled, not broken
    for heading in page.locator(".nbgrader_cell > .panel-heading").all():
        score, whole = heading.locator(".pull-right").bounding_box(), heading.bounding_box()
        assert score["y"] + score["height"] <= whole["y"] + whole["height"] + 1
    seen = block.evaluate("(node) => [getComputedStyle(node).color, getComputedStyle(node).backgroundColor]")
    assert seen[0] != seen[1]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("student", ["ben", "mallory"])
def test_in_a_browser_without_a_network(made, chromium, student, width):
    context = chromium.new_context(viewport={"width": width, "height": 900}, offline=True)
    page, asked, complaints = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((made.root / f"feedback/{student}/01_tiny/tiny.html").as_uri())
    assert len([url for url in asked if not url.startswith("data:")]) == 1
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    drawn = page.locator("math").all()
    assert len(drawn) == {"ben": 4, "mallory": 2}[student]
    if student == "ben":
        assert all(box["width"] > 4 and box["height"] > 4 for box in (math.bounding_box() for math in drawn[:3]))
        summary = page.locator("summary")
        assert summary.evaluate("(node) => getComputedStyle(node).display") == "list-item"  # else it has no marker
        assert not page.locator("details").evaluate("(node) => node.open")
        summary.click()
        assert page.locator("details").evaluate("(node) => node.open")
        assert page.locator("code", has_text="$PATH and $HOME").count() == 1
    else:
        cell = page.locator("div.text_cell", has_text="Score: 20 of 20").bounding_box()
        assert cell["height"] < 400 and cell["y"] > page.locator("#toc").bounding_box()["y"]
        top = "() => document.elementFromPoint(innerWidth / 2, 40).closest('.text_cell') === null"
        assert page.evaluate(top)
    context.close()


def test_formulas_are_drawn_once_and_hold_nothing_live():
    formulas = Formulas()
    try:
        assert "<msup>" in formulas.mathml("x^2", False)
        assert 'display="block"' in formulas.mathml("x^2", True)
        for tex in LIVE:
            found = BeautifulSoup(formulas.mathml(tex, False), "html.parser").find_all(True)
            assert not [
                tag for tag in found if tag.name in ("a", "img", "script") or {"href", "src", "id"} & set(tag.attrs)
            ]
            assert not [tag for tag in found if set(tag.get("class", ())) - {"katex"} and tag.name != "mi"]
        assert formulas.mathml(r"\nope", False) == formulas.mathml("x" * (LONGEST_FORMULA + 1), False) == ""
        assert formulas.mathml(r"\def\a{\a\a}\a", False) == ""
        formulas.close()
        start = time.monotonic()
        assert "<msup>" in formulas.mathml("x^2", False) and time.monotonic() - start < 0.05  # no node for it
        assert "<mi>" in formulas.mathml("y", False)
    finally:
        formulas.close()


def test_a_formula_in_a_page_is_no_tag_and_no_code():
    formulas = Formulas()
    try:
        page = pages.with_formulas("<p>a $x$ <code>$y$</code> <b>$</b> $z &lt; 1$ <pre>$$u$$</pre> \\$5</p>", formulas)
    finally:
        formulas.close()
    found = BeautifulSoup(page, "html.parser")
    assert [math.annotation.get_text() for math in found.find_all("math")] == ["x", "z < 1"]
    assert found.code.get_text() == "$y$" and found.pre.get_text() == "$$u$$" and page.endswith("\\$5</p>")


@pytest.mark.parametrize("text", ["$" * LONGEST, "$x " * LONGEST, "\\begin{a}" * 2000, "$$x" * 6000])
def test_looking_for_formulas_takes_time_in_proportion(text):
    none = SimpleNamespace(mathml=lambda tex, display: "")
    seconds = []
    for part in (text[: len(text) // 2], text):
        start = time.process_time()
        pages.with_formulas(part, none)
        seconds.append(time.process_time() - start)
    assert seconds[1] < 3 * seconds[0] + 0.1


@pytest.fixture(scope="module")
def taught(tmp_path_factory, run):
    """A graded course whose tests of `double` are about a mistake that the book treats, and how to ask it."""
    root = make_course(tmp_path_factory.mktemp("taught"))
    release(root)
    hand_in(root, "cleo", double="def double(x):\n    return x", triple="def triple(x):\n    return 3 * x")
    assert run(root, "graders", "grade", "tiny").returncode == 0

    def rename(data):
        tests = [cell for cell in data["cells"] if cell["metadata"].get("nbgrader", {}).get("grade")]
        for check, cell in zip(("gradient", "second_order"), tests, strict=False):
            (output,) = [o for o in cell["outputs"] if MIME in o.get("data", {})]
            output["data"][MIME] |= {"task": "Tanh", "check": check, "mistake": "upstream_ignored", "look": "gradient"}
            output["data"][MIME] |= {"after": "" if check == "gradient" else "gradient"}

    edit(root / "autograded/cleo/01_tiny/tiny.ipynb", rename)
    return (lambda *command: run(root, *command)), root


@pytest.mark.parametrize("site", ["", "https://course.example/site/"])
def test_a_lost_point_leads_to_the_book_and_is_explained_once(monkeypatch, taught, site):
    monkeypatch.setenv("COURSE_URL", site)
    ask, root = taught
    made = ask("nbgrader", "generate_feedback", "01_tiny", "--force")
    assert made.returncode == 0, made.stderr
    page = BeautifulSoup((root / "feedback/cleo/01_tiny/tiny.html").read_bytes(), "html.parser")
    first, second, right = page.select(".alert")
    address = "https://course.example/site/book/01_relu.html#relu-upstream-ignored"
    assert [link["href"] for link in page.select(".alert a")] == ([address] if site else [])
    assert first.get_text(" ", strip=True).endswith("In the book: Chapter 1: The upstream gradient ignored")
    assert second.get_text(" ", strip=True).endswith("points Judged once the gradient is right.")
    assert len(page.select(".alert ~ pre")) == 1 and "In the book" not in right.get_text()
    lines = ask("graders", "scores", "--why").stdout.splitlines()[-2:]
    told = f"think of 3. See Chapter 1: The upstream gradient ignored{f' ({address})' if site else ''}."
    assert lines[0].endswith(told) and lines[1].endswith("double type: 0 of 2. Judged once the gradient is right.")


def test_a_score_that_a_person_changed_is_told():
    """The page has said what the check took; what counts is another number, as in the gradebook."""
    verdict = Verdict("double", "value", 2.0, 2.0, "Right in all 1 cases.")
    assert "0.5 of 2 points count here: a person has changed the score." in _layout(verdict, verdict.message, 0.5)
    for score in (2.0, None):
        assert "a person" not in _layout(verdict, verdict.message, score)
