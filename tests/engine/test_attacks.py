"""Submissions that attack the grading gain nothing, harm nobody, leave nothing and cost no more than their time.

They are graded in classes, each by one `python -m graders grade` with an honest student before, among and after them.
"""

import json
import os
import shutil
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from graders.engine import memory, parents, sandbox
from graders.engine import run as engine
from graders.engine.job import Job, Settings
from tests.engine import arena, attack_stock, reaper
from tests.engine.attacks import ATTACKS, MODULES, ROOT, build
from tests.engine.attacks.gaps import GAPS

pytestmark = pytest.mark.skipif(
    not sandbox.available() and not os.environ.get("COURSE_REQUIRE_SANDBOX"), reason="bubblewrap is not installed"
)
QUICK, SLOW = 10, 2  # seconds a cell; a notebook has four times that
SPARE = (
    12  # seconds more that a notebook may cost: kernels that start, an interrupt that is waited for, judging, nbgrader
)
SLOW_CLASSES = 3
BY_NAME = {attack.name: attack for attack in ATTACKS}


def _classes() -> dict[str, list[str]]:
    """Names of attacks by class: those of a module and a set together, the slow ones shared out."""
    found: dict[str, list[str]] = {}
    slow = [attack.name for attack in ATTACKS if attack.slow]
    for number in range(SLOW_CLASSES):
        found[f"slow{number}"] = slow[number::SLOW_CLASSES]
    for attack in ATTACKS:
        if not attack.slow:
            found.setdefault(f"{attack.module}{attack.set[:2]}", []).append(attack.name)
    return found


CLASSES = _classes()
PAGES = [kind for kind, names in CLASSES.items() if BY_NAME[names[0]].kind == "The feedback page"]


@pytest.fixture(scope="module")
def classes():
    """The classes that are graded already, by name."""
    done: dict[str, SimpleNamespace] = {}
    yield done
    for graded in done.values():
        shutil.rmtree(graded.root, ignore_errors=True)


@pytest.fixture
def graded(request, classes):
    """A class after grading, once for all tests of it."""
    if request.param not in classes:
        attacks = [BY_NAME[name] for name in CLASSES[request.param]]
        others = GAPS if request.param in PAGES else []
        timeout, root = SLOW if attacks[0].slow else QUICK, arena.temporary()
        known, more = arena.make_ours(root, attacks[0].set)
        options = ("--workers", "1", "--timeout", str(timeout))
        outcome = arena.grade(known, more, attacks[0].set, [*attacks, *others], *options)
        classes[request.param] = SimpleNamespace(
            root=root, more=more, outcome=outcome, attacks=attacks, timeout=timeout
        )
    return classes[request.param]


each = pytest.mark.parametrize(
    ("graded", "name"),
    [pytest.param(kind, name, id=f"{kind}-{name}") for kind, names in CLASSES.items() for name in names],
    indirect=["graded"],
)
each_class = pytest.mark.parametrize("graded", list(CLASSES), indirect=True)


@each
def test_it_gains_nothing_and_a_person_sees_it(graded, name):
    attack, score = BY_NAME[name], graded.outcome.scores[name]
    assert score is None or score <= attack.honest
    assert score == attack.ours
    assert attack.sees in graded.outcome.said(name)
    if attack.ours is None:
        assert graded.outcome.said(name), "refused without a word"


@pytest.fixture(scope="module")
def unlimited() -> set[str]:
    """The attacks that nothing holds where no control group can be made: several processes have no limit in common."""
    group = memory.new_group()
    if group is None:
        return {"memory-processes"}
    memory.remove(group)
    return set()


@each
def test_it_reaches_nothing(graded, name, unlimited):
    if name in unlimited:
        pytest.skip("no control groups that are ours to make")
    assert arena.damage_told(graded.outcome.texts[name]) == []


@each
def test_it_costs_no_more_than_its_time(graded, name):
    assert graded.outcome.pieces.get(name, 0) < 4 * graded.timeout + SPARE


@each_class
def test_the_others_are_graded(graded, unlimited):
    outcome = graded.outcome
    honest = (arena.VICTIM, *arena.BYSTANDERS)
    assert {name: outcome.scores[name] for name in honest} == dict.fromkeys(honest, arena.FULL)
    assert outcome.code in (0, 1)
    assert "Traceback" not in outcome.stderr
    assert arena.damage_told("".join(text for name, text in outcome.texts.items() if name not in unlimited)) == []


@each_class
def test_nothing_is_left(graded):
    assert graded.outcome.left == []
    assert graded.outcome.damage == []


@pytest.mark.parametrize("graded", PAGES, indirect=True)
def test_the_feedback_is_inert(graded):
    names = [attack.name for attack in graded.attacks if attack.ours is not None]  # what is refused has no page
    found = arena.feedback(graded.root / "course", graded.more, "01_relu", names)
    assert found == {name: [] for name in names}


@pytest.mark.parametrize("graded", PAGES, indirect=True)
def test_what_is_not_defended_is_what_the_manual_says(graded):
    """If one of these earns no more than it should, the wall is better than the page: good news for the page."""
    text = attack_stock.PAGE.read_text(encoding="utf-8")
    for gap in GAPS:
        assert graded.outcome.scores[gap.name] > gap.honest
        assert gap.sees in graded.outcome.said(gap.name)
        assert f"`{gap.name}`" in text


KEEPS = [a.name for a in ATTACKS if a.kind in ("The warm parent", "Ending the run") and not a.slow]
PROBE = """import torch, matplotlib.pyplot, numpy
x = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
y = torch.where(x > 0, x, 257 * x)
y.sum().backward()
print(y.tolist(), x.grad.tolist(), torch.__file__.endswith("torch/__init__.py"))"""


@pytest.mark.parametrize("name", KEEPS)
def test_the_warm_parent_stays_as_it_was(name):
    """The kernels after an attack come from the parent that was there before it, and compute as they should."""
    attack, exercise = BY_NAME[name], ROOT / "exercises/01_relu/relu.ipynb"
    answers = {**attack.answers, "Square": PROBE}
    hostile = build(exercise, answers, attack.first)
    probe = build(exercise, {"Square": PROBE})
    before = parents.warm()
    engine.run(Job(json.dumps(hostile), settings=Settings(cell_time=5, notebook_time=20)))
    after = parents.warm()
    said = json.loads(engine.run(Job(json.dumps(probe), settings=Settings(cell_time=20, notebook_time=40))))
    cell = next(c for c in said["cells"] if "257 * x" in "".join(c["source"]))
    assert "".join(cell["outputs"][0]["text"]) == "[1.0, -514.0] [1.0, 257.0] True\n"
    assert after is before and after.alive


def test_the_suite_is_large_and_every_attack_says_what_it_is():
    assert len(ATTACKS) >= 40
    assert {attack.module for attack in ATTACKS} == set(MODULES)
    assert min(Counter(attack.kind for attack in ATTACKS).values()) >= 2
    for attack in ATTACKS:
        assert attack.tries and not attack.tries.endswith(".") and "|" not in attack.tries, attack.name
        assert (ROOT / "exercises" / attack.set).is_dir()
        assert attack.ours is None or attack.ours <= attack.honest


def test_the_manual_has_this_suite_and_these_results():
    """The page's table: every attack, what it did on stock nbgrader, and the scores that the tests above hold."""
    results = json.loads(attack_stock.RESULTS.read_text(encoding="utf-8"))
    assert sorted(results) == sorted(set(BY_NAME) - attack_stock.NOT_RUN), (
        "run python -m tests.engine.attack_stock --new"
    )
    text = attack_stock.PAGE.read_text(encoding="utf-8")
    assert attack_stock.page(text, ATTACKS, results) == text, "run python -m tests.engine.attack_stock --page"


def test_what_a_command_leaves_is_found(tmp_path):
    """The reaper sees a process that forked twice, left its session and its parent."""
    code = "import os, time\nif not os.fork():\n    os.setsid()\n    if not os.fork():\n        time.sleep(30)"
    done = reaper.Left.of([sys.executable, "-c", code], tmp_path, dict(os.environ), 20)
    assert (done.code, len(done.left)) == (0, 1)
    assert "os.setsid()" in done.left[0]
    assert reaper.Left.of([sys.executable, "-c", "1"], tmp_path, dict(os.environ), 20).left == []


@pytest.mark.parametrize(
    "html",
    [
        "<script>mallory()</script>", "<img src=x onerror=mallory()>", "<a href=' javascript:mallory()'>x</a>",
        "<iframe srcdoc='mallory'></iframe>", "<img src='//mallory/a.png'>",
        "<p style='background:url(//mallory)'>x</p>",
        "<svg onload='mallory()'></svg>", "<form action='//mallory'></form>",
        "<img src='https://elsewhere.example/t.png'>", "<img src='//elsewhere/t.png'>", "<img src='beside.png'>",
        "<script src='https://cdn.example/jquery.js'></script>", "<img srcset='http://elsewhere/t.png'>",
        "<div class='text_cell_render'><div class='navbar navbar-fixed-top'>x</div></div>",
        "<div class='text_cell_render'><div class='modal-backdrop'>x</div></div>",
        "<div class='text_cell_render'><p style='position: fixed'>x</p></div>",
        "<div class='text_cell_render'><p style='height: 2000px'>x</p></div>",
        "<div class='text_cell_render'><p id='toc'>x</p></div>",
    ],
)  # fmt: skip
def test_what_is_live_in_a_page_is_found(html):
    assert arena.live(f"<html><body><div>{html}</div></body></html>")


def test_what_is_escaped_in_a_page_is_not_live():
    assert arena.live("<pre>&lt;script&gt;mallory()&lt;/script&gt;</pre><a href='#mallory'>x</a><b>mallory</b>") == []
