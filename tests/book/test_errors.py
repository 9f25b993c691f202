"""The page of error messages: each message it quotes is raised there, its index is whole, and the search finds it."""

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from bs4 import BeautifulSoup
from nbformat import NotebookNode
from playwright.sync_api import Browser
from torch.autograd import Function, grad, gradcheck

from tests.book import page_checks
from tests.book.book_build import ROOT, Build
from tests.book.page_checks import Watched
from tests.tools.chapters import MEDIAN_LINES, MOST_LINES, MYST, size_faults
from tools.notebooks import read

PAGE = ROOT / "book/a_errors.ipynb"
LEAST = 25
QUOTE = re.compile(r"(`+) ?(?P<message>.+?) ?\1", re.DOTALL)
ROW = re.compile(r"^\| \[`(?P<words>.+?)`\]\(#(?P<place>[^)]+)\) \| (?P<heading>.+?) \|$", re.MULTILINE)
NAMES = re.compile(r"^(\w*(Error|Warning)|Unsupported): ")
NEVER = "Messages that torch never prints"  # a section; the first message of each of its entries is not torch's
TYPED = {  # parts of messages, as a reader types or pastes them, and the heading that is found first
    "function GeluBackward returned an incorrect number of gradients (expected 4)": "Too few or too many gradients",
    "modified by an inplace operation": "A saved tensor was changed in place",
    "Trying to backward through the graph a second time": "backward ran a second time",
    "does not require grad and does not have a grad_fn": "No node anywhere",
    "hook changed size value": "A hook returned another shape or dtype",
    "Unsupported custom jvp": "A jvp under torch.compile",
    "Sizes of tensors must match except in dimension": "The parts of a gradient do not fit together",
    "'Context' object has no attribute 'saved_tensors'": "ctx has no saved_tensors",
    "save_for_backward() takes 1 positional argument": "save_for_backward takes any number of tensors",
    "Expected to get 3 gradient(s) for backward": "Expected to get so many gradients",
    "expected to get gradients for backward": "Expected to get so many gradients",
}
SEARCH = """(queries) => queries.map((query) => Search._performSearch(...Search._parseQuery(query)).reverse()
    .map(([page, title]) => title.replace(/<[^>]+>/g, "").replaceAll("’", "'")))"""


@dataclass(frozen=True)
class Entry:
    """A heading of the page, the messages quoted right below it, and what its cells print."""

    heading: str
    messages: list[str]
    printed: str
    section: str = ""


def plain(text: str) -> str:
    """The text without its line breaks."""
    return " ".join(text.split())


def slug(heading: str) -> str:
    """The name of a heading's place."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def entries(notebook: NotebookNode) -> list[Entry]:
    """The entries of the page: a heading of the third level each."""
    found: list[Entry] = []
    section = ""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            if found:
                text = "".join(output.get("text", "") for output in cell.outputs)
                found[-1] = replace(found[-1], printed=f"{found[-1].printed} {plain(text)}")
            continue
        section = (re.findall(r"^## (.+)$", cell.source, re.MULTILINE) or [section])[-1]
        for heading, body in re.findall(r"^### (.+)\n\n((?:.|\n)+)", cell.source, re.MULTILINE):
            messages = []
            for paragraph in body.split("\n\n"):
                if not (quote := QUOTE.fullmatch(paragraph)):
                    break
                messages.append(plain(quote["message"]))
            found.append(Entry(heading, messages, "", section))
    return found


def rows(notebook: NotebookNode) -> list[re.Match]:
    """The rows of the index, which is in the first cell."""
    return list(ROW.finditer(notebook.cells[0].source))


def faults(notebook: NotebookNode) -> Iterator[str]:
    """What is wrong with the entries and the index, one line each."""
    found, index = entries(notebook), rows(notebook)
    if sum(len(entry.messages) for entry in found) < LEAST:
        yield f"fewer than {LEAST} messages"
    places = [slug(entry.heading) for entry in found]
    yield from (f"{place}: two headings" for place in set(places) if places.count(place) > 1)
    for entry in found:
        if not entry.messages:
            yield f"{entry.heading}: quotes no message"
        for at, message in enumerate(entry.messages):
            if at == 0 and entry.section == NEVER:
                if any(NAMES.sub("", message) in other.printed for other in found):
                    yield f"{entry.heading}: printed after all: {message}"
            elif message not in entry.printed:
                yield f"{entry.heading}: not printed: {message}"
            listed = [row for row in index if row["place"] == slug(entry.heading)]
            if not any(row["words"] in message for row in listed):
                yield f"{entry.heading}: not in the index: {message}"
    by_place = {slug(entry.heading): entry for entry in found}
    for row in index:
        entry = by_place.get(row["place"])
        if entry is None or entry.heading != row["heading"]:
            yield f"the index leads nowhere: {row[0]}"
        elif not any(row["words"] in message for message in entry.messages):
            yield f"the index has words of no message: {row['words']}"
        if NAMES.match(row["words"]):
            yield f"the index is sorted by the message, not by its type: {row['words']}"
    words = [re.sub(r"[^\w ]", "", row["words"].lower()).strip() for row in index]
    if words != sorted(words):
        yield "the index is not in order"


@pytest.fixture
def notebook() -> NotebookNode:
    return read(PAGE)


def test_each_message_is_raised_and_in_the_index(notebook: NotebookNode) -> None:
    assert list(faults(notebook)) == []


def test_the_page_keeps_the_form_of_a_chapter(notebook: NotebookNode) -> None:
    sizes = [fault for fault in size_faults(notebook) if "lines" in fault]
    assert sizes == [], (MEDIAN_LINES, MOST_LINES)
    for cell in notebook.cells:
        assert cell.cell_type == "code" or not MYST.search(cell.source), cell.id


def edited(cell: str, old: str, new: str):
    def edit(notebook: NotebookNode) -> None:
        found = next(c for c in notebook.cells if c.id == cell)
        assert old in found.source
        found.source = found.source.replace(old, new, 1)

    return edit


def silent(notebook: NotebookNode) -> None:
    next(c for c in notebook.cells if c.id == "count").outputs = []


def shortened(notebook: NotebookNode) -> None:
    del notebook.cells[40:]


def unlisted(notebook: NotebookNode) -> None:
    row = next(row for row in rows(notebook) if row["place"] == "the-two-jacobians-differ")
    notebook.cells[0].source = notebook.cells[0].source.replace(row[0] + "\n", "")


def swapped(notebook: NotebookNode) -> None:
    one, two = (row[0] for row in rows(notebook)[:2])
    notebook.cells[0].source = notebook.cells[0].source.replace(f"{one}\n{two}", f"{two}\n{one}")


PLANTED = {
    "a message that nobody raises": (edited("on-count", "returned an", "gave an"), "not printed"),
    "a cell that prints nothing": (silent, "not printed"),
    "one that torch prints after all": (
        edited("on-never-expected", "Expected to get 2 gradient(s) for backward, but got 1", "function SinBackward"),
        "printed after all",
    ),
    "too few": (shortened, "fewer than 25 messages"),
    "a message left out of the index": (unlisted, "not in the index"),
    "a heading renamed": (edited("on-count", "### Too few", "### Few"), "the index leads nowhere"),
    "a heading twice": (edited("on-shape", "A gradient has the wrong shape", "Too few or too many gradients"), "two h"),
    "no quote": (edited("on-leaf", "`RuntimeError: a leaf", "See `a leaf"), "quotes no message"),
    "words of no message": (edited("title", "`a leaf Variable", "`a leafy Variable"), "words of no message"),
    "sorted by type": (edited("title", "[`a leaf", "[`RuntimeError: a leaf"), "not by its type"),
    "out of order": (swapped, "not in order"),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_fault_is_found(case: str, notebook: NotebookNode) -> None:
    edit, fault = PLANTED[case]
    edit(notebook)
    assert any(fault in found for found in faults(notebook)), list(faults(notebook))


@pytest.fixture(params=["http", "file"])
def searching(request: pytest.FixtureRequest, site: str, book: Build, chromium: Browser) -> Iterator[Watched]:
    """The search page, over http and from the disk."""
    origin = site if request.param == "http" else book.html.as_uri()
    context = chromium.new_context()
    watched = Watched(context, origin)
    watched.page.goto(f"{origin}/search.html")
    yield watched
    context.close()


def renamed(message: str) -> str:
    """The message as a reader meets it: other names, other numbers."""
    message = re.sub(r"\b(Sin|Older|WithSelf)(?=[B.' ]|\b)", "MyGelu", message)
    return re.sub(r"\b\d+\b", "31", message.replace("scale", "gain"))


def unfound(watched: Watched, sought: list[tuple[str, str]]) -> list[str]:
    """The messages whose section is not the first thing found, or among the first two where two quote the same."""
    answers = watched.page.evaluate(SEARCH, [message for message, _ in sought])
    faults = []
    for (message, heading), found in zip(sought, answers, strict=True):
        same = sum(message == other for other, _ in sought)
        if f"Error messages > {heading}" not in found[:same]:
            faults.append(f"{message}: {found[:3]}")
    return faults


@pytest.mark.parametrize("change", [str, renamed])
def test_the_search_leads_each_message_to_its_entry(
    change: Callable[[str], str], searching: Watched, notebook: NotebookNode
) -> None:
    sought = [(change(message), entry.heading) for entry in entries(notebook) for message in entry.messages]
    assert len(sought) >= LEAST
    assert unfound(searching, sought) == []
    assert page_checks.complaints(searching) == []


def test_a_message_that_the_page_does_not_quote_is_not_found(searching: Watched) -> None:
    assert len(unfound(searching, [("CUDA error: an illegal memory access was encountered", "No node anywhere")])) == 1


@pytest.mark.parametrize("words", TYPED)
def test_what_is_typed_into_the_search_leads_to_an_entry(words: str, searching: Watched, book: Build) -> None:
    heading = TYPED[words]
    assert page_checks.found_by_search(searching, words)[0] == f"Error messages > {heading}"
    searching.page.locator("#search-results li > a").first.click()
    place = re.sub(r"[^a-z0-9]+", "-", heading.lower())
    searching.page.wait_for_url(f"**/a_errors.html*#{place}")


@pytest.mark.parametrize(
    ("words", "page"), [("straight-through estimator", "3. Straight"), ("vmap rule", "Transforms")]
)
def test_the_search_still_finds_pages_by_words(words: str, page: str, searching: Watched) -> None:
    (found,) = searching.page.evaluate(SEARCH, [words])
    assert any(title.startswith(page) for title in found[:3]), found


def test_the_index_leads_to_every_entry_on_the_built_page(book: Build, notebook: NotebookNode) -> None:
    html = book.html / "book/a_errors.html"
    soup = BeautifulSoup(html.read_text(encoding="utf-8"), "html.parser")
    table = soup.select("article table")[0]
    targets = [link["href"] for link in table.select("tbody td:first-child a")]
    assert len(targets) == len(rows(notebook))
    assert {target.removeprefix("#") for target in targets} <= {node["id"] for node in soup.find_all(id=True)}
    assert len(set(targets)) == len(entries(notebook))


# ------------------------------------------------------------------- cures that the page names and does not run

SHOWN = re.compile(r"cured|no error|right: True|without|: True|requires_grad|by_vjp")


class Right(Function):
    """sin(x), with its cosine and, as a second output, the sign of x."""

    @staticmethod
    def forward(x, scale=1.0):
        return scale * x.sin(), x.sign()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.scale = inputs  # a number, set in every branch
        ctx.save_for_backward(x, output[0])  # in one call, one by one
        ctx.save_for_forward(x)
        ctx.mark_non_differentiable(output[1])  # a tensor, not a tuple
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, g, _):
        x, _ = ctx.saved_tensors
        return (None if g is None else ctx.scale * g * x.cos()), None

    @staticmethod
    def jvp(ctx, tangent, _):
        (x,) = ctx.saved_tensors
        return ctx.scale * tangent * x.cos(), None


class Plain(Function):
    """sin(x), right in every way, with a rule for vmap."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 9, 0, g.clone().mul_(2) * x.cos() / 2)


def leaf() -> torch.Tensor:
    return torch.tensor([0.5, 2], dtype=torch.float64, requires_grad=True)


def sine(x: torch.Tensor) -> torch.Tensor:
    return Right.apply(x)[0]


def passes(f: Callable = Plain.apply, **how: bool) -> bool:
    return gradcheck(f, leaf(), **how)


def under_hooks() -> bool:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone().mul_(2), lambda t: t / 2):
        y = Plain.apply(leaf())
    y.sum().backward()
    return True


def without_nan() -> bool:
    with warnings.catch_warnings(action="ignore"), torch.autograd.detect_anomaly():
        Plain.apply(leaf()).sum().backward()
    return True


def hooked(register: Callable) -> bool:
    x = leaf()
    register(x, Plain.apply(x)).remove()
    y = Plain.apply(x)
    y.register_hook(lambda g: 2 * g)
    y.sum().backward()
    return torch.equal(x.grad, 2 * x.cos().detach())


def first(create: bool) -> torch.Tensor:
    x = leaf()
    (slope,) = grad(Plain.apply(x).sum(), x, create_graph=create)
    assert x.grad is None
    return slope


def in_dtype(buffer: Callable) -> bool:
    x = leaf()
    return buffer(x).device == x.device and buffer(x).dtype is x.dtype


CURES = {
    "forward takes ctx, and there is a setup_context": passes,
    "forward is not found": passes,
    "Something other than a tensor was saved": lambda: passes(sine),
    "save_for_backward was called twice, or not at all": lambda: passes(sine),
    "An attribute of ctx was never set": lambda: passes(sine),
    "mark_non_differentiable or mark_dirty got no tensor": lambda: passes(sine),
    "An output marked as dirty was not an input": passes,
    "The comma after the unpacked tensor is missing": passes,
    "A gradient for an argument that is not a tensor": lambda: passes(lambda x: Right.apply(x, 3.0)[0]),
    "A gradient has the wrong shape": passes,
    "A gradient is on the wrong device": lambda: in_dtype(torch.zeros_like) and in_dtype(lambda x: x.new_zeros(2)),
    "A gradient that is not a tensor": passes,
    "The upstream gradient was written to": passes,
    "nan in backward, in anomaly mode": without_nan,
    "A saved-tensor hook writes, or returns no tensor": under_hooks,
    "The upstream gradient has another shape than the output": lambda: (
        Plain.apply(leaf()).backward(torch.ones(2).double()) is None
    ),
    "grad finds no path to the tensor": lambda: first(create=False) is not None,
    "grad is asked for a tensor that requires none": lambda: first(create=False) is not None,
    "backward with create_graph": lambda: first(create=True).requires_grad,
    "A hook returned another shape or dtype": lambda: hooked(lambda x, y: y.register_hook(lambda g: None)),
    "A hook cannot be registered on this tensor": lambda: hooked(
        lambda x, y: x.register_post_accumulate_grad_hook(lambda t: None)
    ),
    "The two Jacobians differ": passes,
    "gradcheck in fast mode": lambda: passes(fast_mode=True),
    "Two runs of backward differ": passes,
    "An undefined upstream gives a gradient": lambda: passes(sine, check_undefined_grad=True),
    "An output without a gradient moves with the input": passes,
    "The output's shape depends on the values": lambda: passes(lambda x: Plain.apply(x)[x > 1]),
    "There are two rules for vmap": lambda: torch.vmap(Plain.apply)(leaf().detach()).shape == (2,),
    "Values are looked at under vmap": lambda: passes(check_batched_grad=True),
    "torch.func.grad of more than one number": lambda: torch.func.jacrev(Plain.apply)(leaf().detach()).shape == (2, 2),
    "jvp reads what was saved for backward": lambda: passes(sine, check_forward_ad=True),
    "jvp returns too few or too many tangents": lambda: passes(sine, check_forward_ad=True),
    "jvp returns None": lambda: passes(sine, check_forward_ad=True),
    "A tangent has the wrong shape": lambda: passes(sine, check_forward_ad=True),
}


def uncured(notebook: NotebookNode) -> set[str]:
    """The entries whose cells show no cure at work."""
    return {entry.heading for entry in entries(notebook) if not SHOWN.search(entry.printed)}


def test_each_entry_shows_its_cure_or_has_it_run_here(notebook: NotebookNode) -> None:
    assert uncured(notebook) == CURES.keys()


@pytest.mark.parametrize("heading", CURES)
def test_a_cure_works(heading: str) -> None:
    with warnings.catch_warnings(action="error", category=UserWarning):
        assert CURES[heading]()
