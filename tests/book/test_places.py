"""Every known mistake of every task has a place in the built book and in its sources, which the archives hold."""

import json
import re
from functools import cache

import pytest

from graders.judge import places
from graders.judge.places import Place, place
from graders.judge.places_table import IDEA, PAGES, RUN, TAUGHT, WRONG
from graders.sets import load, names
from tests.book.book_build import ROOT, Build
from tools import check_book

LEAST = 360  # of all known mistakes: those that a page of the book runs
MARKDOWN = re.compile(r"^#{1,6} (.*?)\s*$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
TASKS = {name: task for slug in names() for name, task in load(slug).items()}
MISTAKES = [(name, getattr(m, "caught_by", "catches"), m.name) for name, task in TASKS.items() for m in task.mistakes]
KNOWN = {f"{task}.{name}" for task, _, name in MISTAKES}


@cache
def cells(page: str) -> list[dict]:
    """The cells of a page; a page in Markdown is one of text."""
    path = next(path for suffix in ("ipynb", "md") if (path := ROOT / f"book/{page}.{suffix}").exists())
    text = path.read_text(encoding="utf-8")
    found = [{"cell_type": "markdown", "source": text}] if path.suffix == ".md" else json.loads(text)["cells"]
    return [cell | {"source": "".join(cell["source"])} for cell in found]


@cache
def sections(page: str) -> dict[str, str]:
    """By each heading of a page: the code of its section, in cells and between fences."""
    found, heading = {}, ""
    for cell in cells(page):
        if cell["cell_type"] == "code":
            found[heading] = found.get(heading, "") + cell["source"]
            continue
        prose = FENCED.sub("", cell["source"])
        for heading in MARKDOWN.findall(prose):
            found.setdefault(heading, "")
        if ">>>" in cell["source"]:
            _, *pieces = re.split(r"^(#{1,6} .*)$", cell["source"], flags=re.MULTILINE)
            found |= {h.lstrip("# "): text for h, text in zip(pieces[::2], pieces[1::2], strict=True) if ">>>" in text}
    return found


def tags(page: str) -> list[str]:
    """The tags of the wrong versions that a page runs."""
    found = [tag for cell in cells(page) for tag in cell.get("metadata", {}).get("tags", [])]
    return [tag.removeprefix("misconception:") for tag in found if tag.startswith("misconception:")]


def all_places() -> set[Place]:
    """Every place that a verdict can have."""
    checks = {place(name, check.name) for name, task in TASKS.items() for check in task.checks}
    return checks | {place(*mistake) for mistake in MISTAKES}


@pytest.mark.parametrize("page", PAGES)
def test_each_place_is_in_the_built_book(page: str, book: Build) -> None:
    ids = {*check_book.read(book.html / f"book/{page}.html").ids}
    found = {p.anchor for p in all_places() if p.page == page}
    assert found and sorted(found - ids) == []


@pytest.mark.parametrize("page", PAGES)
def test_each_place_is_in_the_sources(page: str) -> None:
    found = [p for p in all_places() if p.page == page]
    assert [p.file for p in found if not (ROOT / p.file).is_file()] == []
    assert sorted({p.heading for p in found} - sections(page).keys()) == []


def test_a_wrong_version_lies_where_it_is_announced(book: Build) -> None:
    """Its link leads to the words that announce it, above its code; the table has the book's tags, and no other."""
    shown = {}
    for page in PAGES:
        html = (book.html / f"book/{page}.html").read_text(encoding="utf-8")
        for tag in (tag for tag in tags(page) if tag in KNOWN):  # an appendix's are of no task
            words = re.search(rf'<p id="{places.slug(tag)}"><strong>(.*?)\.?</strong>', html)
            shown[tag] = page, re.sub(r"<[^>]*>", "", words[1]) if words else ""
    assert shown == {tag: (page, lead.replace("`", "")) for tag, (page, lead) in WRONG.items()}


def test_a_page_that_is_said_to_run_a_mistake_has_code_there() -> None:
    run = {p for mistake in MISTAKES if (p := place(*mistake)).runs}
    assert sorted(f"{p.page}: {p.heading}" for p in run if not sections(p.page)[p.heading]) == []


def test_so_many_mistakes_are_run_by_a_page() -> None:
    run = [mistake for mistake in MISTAKES if place(*mistake).runs]
    assert len(run) >= LEAST, f"{len(run)} of {len(MISTAKES)} mistakes have a page that runs them"
    assert {f"{task}.{name}" for task, _, name in MISTAKES} >= WRONG.keys()
    for tag in WRONG:
        task, _, name = tag.partition(".")
        (caught_by,) = [check for other, check, n in MISTAKES if (other, n) == (task, name)]
        assert place(task, caught_by, name) == places._at(tag, True)


def test_the_tables_name_tasks_checks_and_mistakes_that_exist() -> None:
    assert {name: {*checks} for name, checks in TAUGHT.items()} == {
        name: {check.name for check in task.checks} for name, task in TASKS.items()
    }
    known = {name for task, _, mistake in MISTAKES for name in (mistake, f"{task}.{mistake}")}
    assert sorted((RUN.keys() | IDEA.keys()) - known) == []
    assert sorted(RUN.keys() & IDEA.keys()) == []


def test_a_place_says_where_it_is() -> None:
    wrong, section = place("Tanh", "gradient", "upstream_ignored"), place("Tanh", "saved")
    assert str(wrong.title) == "Chapter 1: The upstream gradient ignored" and wrong.runs
    assert wrong.url("https://example.org/course/ ") == (
        "https://example.org/course/book/01_relu.html#relu-upstream-ignored"
    )
    assert (section.title, section.runs) == ("Chapter 1: Save the input or the output", False)
    assert section.url() == "book/01_relu.html#save-the-input-or-the-output"
    assert section.in_lab() == "../../book/01_relu.ipynb#Save-the-input-or-the-output"
    errata = place("LeakyReLU", "value", "float32_inside")
    assert errata.title == 'Errata: "(x > 0).float() is the step"' and errata.file == "book/errata.md"
    with pytest.raises(KeyError):
        place("Cosine", "gradient")
