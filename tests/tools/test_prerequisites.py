"""Chapters and sets use what was taught before, and each rule is seen to refuse a planted fault."""

import functools

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.tools.prerequisites import FUNCTIONS, MEMBERS, OPTIONS, Page, chapter_faults, names_in, read_page, set_faults
from tools.notebooks import ROOT, NotebookError, read

CHAPTERS = sorted(ROOT.glob("book/[0-9][0-9]_*.ipynb"))
SETS = sorted(ROOT.glob("solutions/[0-9][0-9]_*/*.ipynb"))


def page_at(path):
    """The page of a file; one that is no notebook has this as its fault."""
    try:
        return read_page(read(path), (ROOT / "book/glossary.md").read_text(encoding="utf-8"))
    except NotebookError as error:
        return Page(unreadable=[str(error)])


@functools.cache
def pages():
    return {path.name: page_at(path) for path in CHAPTERS}


@pytest.mark.parametrize("file", [path.name for path in CHAPTERS])
def test_a_chapter_uses_what_was_taught(file):
    faults = list(chapter_faults(file, pages()))
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.parent.name)
def test_a_set_uses_what_its_chapter_taught(path):
    faults = list(set_faults(page_at(path), path.name, f"{path.parent.name}.ipynb", pages()))
    assert not faults, "\n".join(faults)


GLOSSARY = "## Terms\n\n### Kink\n\nA corner.\n\n### Grad mode\n\nOn or off.\n\n### torch.func\n\nTransforms.\n"
CARD = """**You will be able to**

- write one
- prove it
- ship it

**What it takes**

- **Time:** 60 minutes
- **Difficulty:** 2 of 5
- **Needs:** """
FIRST = (
    "`torch.autograd.Function` has `forward`, `backward(ctx, g)` and `apply`; `ctx.mark_dirty` says what changed; "
    "`create_graph=True` records backward; `x.requires_grad`. A [kink](glossary.md#kink). Later: `save_for_backward`."
)
OP = """import torch


class Op(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g


x = torch.ones(1, requires_grad=True)
Op.apply(x).backward(create_graph=True)"""


def notebook(prose="", code="", needs=(), magic="", tags=(), fence=""):
    """A notebook with a card, a text, a code cell and a fence; `needs` are numbers of chapters."""
    text = ", ".join(f"[Chapter {n}](0{n}_c.ipynb)" for n in needs) or "tensors, `.backward()` and partial derivatives"
    cells = [
        new_markdown_cell("# Title", id="title"),
        new_markdown_cell(CARD + text, id="card", metadata={"tags": ["card"]}),
        new_markdown_cell(prose, id="text"),
        new_code_cell(magic + code, id="code", metadata={"tags": list(tags)}),
        new_markdown_cell(fence, id="hint"),
    ]
    return new_notebook(cells=cells)


def small_course(**changed):
    """Three chapters, the second needing the first and the third both; `changed` replaces what a chapter is made of."""
    parts = {
        "one": {"prose": FIRST, "code": OP + "\nOp.mark_dirty"},
        "two": {
            "prose": "`grad` under `no_grad`, that is [grad mode](glossary.md#grad-mode).",
            "code": "import torch\nfrom torch.autograd import grad\n\ntorch.no_grad(), grad(x, x, create_graph=True)",
            "needs": (1,),
        },
        "three": {"prose": "Kinks in grad mode.", "code": OP + "\ntorch.autograd.grad(x, x)", "needs": (1, 2)},
    }
    made = [notebook(**parts[name] | changed.get(name, {})) for name in parts]
    return {f"0{i}_c.ipynb": read_page(made[i - 1], GLOSSARY) for i in (1, 2, 3)}


def faults_of(course):
    return [fault for file in course for fault in chapter_faults(file, course)]


@pytest.mark.parametrize(
    ("prose", "said"), [("Grad modes.", {"grad-mode"}), ("Grad mode, a mode.", {"grad-mode", "mode"})]
)
def test_a_term_is_not_said_by_a_longer_one_that_holds_it(prose, said):
    assert set(read_page(notebook(prose), GLOSSARY + "\n### Mode\n\nOn or off.\n").said) == said


def test_a_course_that_keeps_the_rules_passes():
    assert faults_of(small_course()) == []


USES = "uses `{}`: introduce it in the prose, as inline code, or name the chapter that does in the card"
PLANTED = {
    "a member": ({"three": {"code": "ctx.needs_input_grad"}}, USES.format("needs_input_grad")),
    "a member of a tensor": ({"three": {"code": "x.register_hook(print)"}}, USES.format("register_hook")),
    "a hook of a module": (
        {"three": {"code": "net.register_full_backward_hook(f)"}},
        USES.format("register_full_backward_hook"),
    ),
    "a staticmethod": (
        {"three": {"code": "class A(Op):\n    @staticmethod\n    def jvp(ctx, t):\n        return t"}},
        USES.format("jvp"),
    ),
    "a class attribute": (
        {"three": {"code": "class A(Op):\n    generate_vmap_rule = True"}},
        USES.format("generate_vmap_rule"),
    ),
    "an import": (
        {"three": {"code": "from torch.autograd.function import once_differentiable as od"}},
        USES.format("torch.autograd.function.once_differentiable"),
    ),
    "a function by its path": (
        {"three": {"code": "import torch\ntorch.autograd.functional.hvp(f, x, v)"}},
        USES.format("torch.autograd.functional.hvp"),
    ),
    "a function of an aliased module": (
        {"three": {"code": "import torch.autograd.functional as AF\nAF.hessian(f, x)"}},
        USES.format("torch.autograd.functional.hessian"),
    ),
    "torch.nn.grad": (
        {"three": {"code": "from torch import nn\nnn.grad.conv1d_input(s, w, g)"}},
        USES.format("torch.nn.grad.conv1d_input"),
    ),
    "the other grad": ({"three": {"code": "import torch\ntorch.func.grad(f)"}}, USES.format("torch.func.grad")),
    "named in the path of a function": (
        {"three": {"code": OP + "\nx.grad", "prose": "`torch.func.grad`. Kinks in grad mode."}},
        USES.format("grad"),
    ),
    "an option": (
        {"three": {"code": "import torch\ntorch.autograd.grad(y, x, allow_unused=True)"}},
        USES.format("allow_unused="),
    ),
    "an option of backward": ({"three": {"code": "y.backward(retain_graph=True)"}}, USES.format("retain_graph=")),
    "in a written file": (
        {"three": {"magic": "%%writefile test_it.py\n", "code": "x.retain_grad()"}},
        USES.format("retain_grad"),
    ),
    "below a line magic": ({"three": {"code": "%matplotlib inline\nx.retain_grad()"}}, USES.format("retain_grad")),
    "in a fence": ({"three": {"fence": "```python\n    x.retain_grad()\n```"}}, USES.format("retain_grad")),
    "in an unmarked fence": ({"three": {"fence": "```\nx.retain_grad()\n```"}}, USES.format("retain_grad")),
    "named in a fence": (
        {"three": {"code": "x.retain_grad()", "prose": "```text\n`retain_grad`\n```\nKinks in grad mode."}},
        USES.format("retain_grad"),
    ),
    "named without code": (
        {"three": {"code": "x.retain_grad()", "prose": "Kinks in grad mode retain_grad."}},
        USES.format("retain_grad"),
    ),
    "introduced in passing": ({"three": {"code": "ctx.save_for_backward(x)"}}, USES.format("save_for_backward")),
    "not in the card": (
        {"three": {"needs": (2,)}, "two": {"needs": (), "code": "", "prose": "[Grad mode](glossary.md#grad-mode)"}},
        "03_c.ipynb, cell code: " + USES.format("torch.autograd.Function") + " (01_c.ipynb introduces it)",
    ),
    "introduced later": (
        {"one": {"code": OP + "\nx.retain_grad()"}, "three": {"code": "x.retain_grad()", "prose": "`retain_grad`"}},
        "01_c.ipynb, cell code: " + USES.format("retain_grad") + " (03_c.ipynb introduces it)",
    ),
    "a term not linked": (
        {"one": {"prose": FIRST.replace("(glossary.md#kink)", "(bibliography.md)")}},
        "01_c.ipynb, cell text: uses the term 'kink': link it to the glossary",
    ),
    "a term of a later chapter": (
        {"one": {"prose": FIRST + " Grad  modes."}},
        "01_c.ipynb, cell text: uses the term 'grad-mode': link it to the glossary, or name the chapter that does in "
        "the card (02_c.ipynb introduces it)",
    ),
    "needed for nothing": (
        {"three": {"prose": "Kinks.", "code": OP}},
        "03_c.ipynb: its card needs 02_c.ipynb, but it uses no name and no term that is introduced there",
    ),
    "needed for what was known": (
        {"three": {"prose": "Kinks.", "code": OP}, "two": {"prose": "`create_graph=True` again; `grad`, `no_grad`"}},
        "03_c.ipynb: its card needs 02_c.ipynb, but it uses no name and no term that is introduced there",
    ),
    "no Python": ({"three": {"code": "x = = 1"}}, "03_c.ipynb, cell code: its code cannot be read"),
    "a fence that is no Python": (
        {"three": {"fence": "```python\nx = = 1\n```"}},
        "03_c.ipynb, cell hint: its code cannot be read",
    ),
}


@pytest.mark.parametrize(("changed", "fault"), PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_refused(changed, fault):
    assert any(fault in found for found in faults_of(small_course(**changed))), faults_of(small_course(**changed))


ALLOWED = {
    "in a figure": {"three": {"code": OP + "\nx.retain_grad()", "tags": ["figure:line"], "prose": "Grad mode, kinks."}},
    "in a comment and a string": {"three": {"code": OP + '\n"x.retain_grad()"  # x.retain_grad()'}},
    "in another language": {"three": {"magic": "%%bash\n", "code": "x.retain_grad()"}},
    "in a written text": {"three": {"magic": "%%writefile notes.txt\n", "code": "x.retain_grad() ="}},
    "in an output": {"three": {"fence": "```text\nx.retain_grad()\n```"}},
    "in an unmarked output": {"three": {"fence": "```\n1 x.retain_grad()\n```"}},
    "introduced where it is used": {
        "three": {"code": "x.retain_grad()", "prose": "`x.retain_grad()`, grad mode, kink"}
    },
    "introduced two chapters before": {"three": {"needs": (2,), "prose": "Grad mode."}},
    "in place of what is known": {"three": {"code": OP + "\nx.requires_grad_()"}},
    "layers and optimizers": {"three": {"code": "import torch\ntorch.optim.SGD(torch.nn.Linear(1, 1).parameters())"}},
    "a module named like a member": {"three": {"code": OP + "\ntorch.utils.data.TensorDataset(x)"}},
    "another library's": {"three": {"code": OP + "\nimport numpy as np\nnp.gradient(x)"}},
    "needed for a section": {"three": {"prose": "Kinks [are known](02_c.ipynb#kinks)", "code": OP}},
    "a chapter not written": {"three": {"needs": (1, 2, 7)}},
    "a term within a word or a path": {
        "one": {"prose": FIRST + " `grad mode`, Grad models, a retrograd mode, [x](02_c.ipynb#grad mode)"}
    },
}


@pytest.mark.parametrize("changed", ALLOWED.values(), ids=ALLOWED)
def test_what_is_no_fault_is_accepted(changed):
    assert faults_of(small_course(**changed)) == []


def set_of(**parts):
    course = small_course()
    return list(set_faults(read_page(notebook(**parts), GLOSSARY), "set.ipynb", "02_c.ipynb", course))


def test_a_set_uses_what_its_chapter_and_those_before_taught():
    assert (
        set_of(prose="A [kink](../../book/glossary.md#kink) in grad mode.", code=OP + "\nwith torch.no_grad(): 1") == []
    )


SET_PLANTED = {
    "a member": ({"code": "x.retain_grad()"}, "cell code: uses `retain_grad`"),
    "a member in a hint": ({"fence": "```python\nx.retain_grad()\n```"}, "cell hint: uses `retain_grad`"),
    "explained by the set alone": (
        {"prose": "`x.retain_grad()`", "code": "x.retain_grad()"},
        "set.ipynb, cell code: uses `retain_grad`: introduce and show it in 02_c.ipynb, or do without",
    ),
    "a word in passing": ({"code": "ctx.save_for_backward(x)"}, "cell code: uses `save_for_backward`"),
    "an option": ({"code": "y.backward(retain_graph=True)"}, "cell code: uses `retain_graph=`"),
    "a term": ({"prose": "Ask torch.func."}, "cell text: uses the term 'torchfunc'"),
    "a linked term": ({"prose": "[this](../../book/glossary.md#torchfunc)"}, "cell text: uses the term 'torchfunc'"),
    "no Python": ({"code": "x = = 1"}, "set.ipynb, cell code: its code cannot be read"),
}


@pytest.mark.parametrize(("parts", "fault"), SET_PLANTED.values(), ids=SET_PLANTED)
def test_a_planted_fault_in_a_set_is_refused(parts, fault):
    assert any(fault in found for found in set_of(**parts)), set_of(**parts)


def test_a_set_without_its_chapter_is_refused():
    assert list(set_faults(Page(), "set.ipynb", "07_c.ipynb", small_course())) == [
        "set.ipynb: there is no chapter 07_c.ipynb"
    ]


def test_a_file_that_is_no_notebook_is_a_fault_and_no_crash(tmp_path):
    (tmp_path / "half.ipynb").write_text('{"cells": [')
    course = small_course() | {"04_c.ipynb": page_at(tmp_path / "half.ipynb")}
    assert faults_of(course) == ["04_c.ipynb, not a notebook: NotJSONError"]


def test_the_vocabulary_is_torchs_own():
    functions = set(FUNCTIONS.values())
    assert {"save_for_backward", "mark_non_differentiable", "set_materialize_grads", "needs_input_grad"} <= MEMBERS
    assert {"register_hook", "register_post_accumulate_grad_hook", "grad_fn", "detach", "register_fake"} <= MEMBERS
    assert {"torch.no_grad", "torch.vmap", "torch.func.jacrev", "torch.utils.checkpoint.checkpoint"} <= functions
    assert {"torch.library.opcheck", "torch.autograd.graph.save_on_cpu", "torch.amp.custom_bwd"} <= functions
    assert {"create_graph=", "allow_unused=", "fast_mode=", "use_reentrant="} <= OPTIONS
    assert not {name for name in functions if name.rpartition(".")[2] in ("Any", "cast", "contextlib", "tree_map")}
    assert id(None) not in FUNCTIONS, "a path leads nowhere"


@pytest.mark.parametrize(
    ("code", "known", "functions"),
    [
        ("torch.func.grad", {}, {"torch.func.grad"}),
        ("functional.hessian(f, x)", {}, {"torch.autograd.functional.hessian"}),
        ("hessian", {}, {"torch.autograd.functional.hessian", "torch.func.hessian"}),
        ("grad", {"grad": "torch.autograd.grad"}, {"torch.autograd.grad"}),
        ("AF.hvp(f, x, v)", {"AF": "torch.autograd.functional"}, {"torch.autograd.functional.hvp"}),
        ("x.grad", {}, set()),
    ],
)
def test_a_path_names_one_function_and_a_word_all_that_it_may_mean(code, known, functions):
    assert {name for name in names_in(code, known) if name in FUNCTIONS.values()} == functions


def test_only_the_folded_cell_of_a_set_s_helpers_may_use_more():
    """The same code counts in a cell that stands open, and in a folded one of another name."""
    for name, hidden, uses in (("a-setup", True, False), ("a-setup", False, True), ("a-check", True, True)):
        cell = new_code_cell(OP, id=name, metadata={"jupyter": {"source_hidden": hidden}})
        assert bool(read_page(new_notebook(cells=[cell]), GLOSSARY).used) is uses, name
