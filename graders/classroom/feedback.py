"""Feedback as a student reads it: points and messages, without hidden tests, grader source or scripts."""

import re
from collections.abc import Iterator
from html import escape
from typing import Any

import nh3
from nbconvert.exporters.exporter import ResourcesDict
from nbconvert.filters import strip_ansi, strip_files_prefix
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.api import Gradebook
from nbgrader.preprocessors import ClearHiddenTests
from nbgrader.utils import is_grade, is_solution
from pygments.token import STANDARD_TYPES

from graders.classroom.report import checks_of, course_site
from graders.judge.once import once
from graders.judge.places import Place
from graders.judge.verdict import FORM, PASTE, Verdict, shown_by
from graders.notebook.cells import Original

LONGEST = 20_000  # characters of a text cell: Markdown takes the square of a cell's length on some texts
BOOK = re.compile(r"(?:\.\./)+book/(\w+)\.(?:ipynb|md|html)(#[\w-]*)?")
OURS = re.compile(r"[\\/]graders[\\/]|from graders\b|import graders\b")
TEXT = {"abbr", "acronym", "b", "blockquote", "br", "code", "del", "em", "hr", "i", "p", "pre", "strong", "sub", "sup"}
HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
LISTS = {"dd", "dl", "dt", "li", "ol", "ul"}
TABLES = {"table", "tbody", "td", "th", "thead", "tr"}
TAGS = TEXT | HEADINGS | LISTS | TABLES | {"a", "details", "div", "img", "span", "summary"}
ATTRIBUTES = {"*": {"title", "style"}, "a": {"href"}, "img": {"src", "alt"}, "ol": {"start"}}
ATTRIBUTES |= {name: {"align", "colspan", "rowspan"} for name in ("td", "th")}
CLASSES = {"div": {"highlight"}, "span": {*STANDARD_TYPES.values()} - {""}, "a": {"anchor-link"}}  # of coloured code
STYLES = {"color", "background-color", "font-style", "font-weight", "text-align", "text-decoration"}
SCHEMES = {"http", "https", "mailto", "data"}
PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*")


class Cleaned(str):
    """HTML that is clean already, with formulas that would not survive another cleaning."""


def clean_page(text: str) -> str:
    """Return rendered Markdown without what could run, load something, or be seen outside the student's own cell.

    nbgrader's feedback template does not sanitise a student's Markdown cells, whatever ``sanitize_html`` says; it
    passes them through the filter ``strip_files_prefix``, in whose place ``nbgrader_config.py`` puts this one.
    """
    if isinstance(text, Cleaned):
        return text
    return nh3.clean(
        strip_files_prefix(text),
        tags=TAGS,
        attributes=ATTRIBUTES,
        attribute_filter=_attribute,
        allowed_classes=CLASSES,
        filter_style_properties=STYLES,
        url_schemes=SCHEMES,
    )


def _attribute(tag: str, name: str, value: str) -> str | None:
    """Return the value of an attribute that may stay: pictures from the page itself, links to anything else."""
    if (tag, name) == ("img", "src"):
        return value if PICTURE.fullmatch(value) else None
    if (tag, name) == ("a", "href"):
        return _link(value.strip())
    if name == "style":
        return None if "url" in value.lower() or "\\" in value else value
    return value


def _link(target: str) -> str | None:
    """Return where a link leads: in the page, elsewhere, to the course's site; None: to a file that is not there.

    The course's texts link to ``../../book/01_relu.ipynb``. COURSE_URL, with which the book is built, is its address.
    """
    if target.startswith("#") or target.lower().startswith(("http://", "https://", "mailto:")):
        return target
    page, site = BOOK.fullmatch(target), course_site()
    return f"{site}/book/{page[1]}.html{page[2] or ''}" if page and site else None


class Feedback(ClearHiddenTests):
    """Between nbgrader's ``GetGrades`` and the writing of the page: hide the tests, show the verdicts."""

    _messages: Iterator[str] = iter(())  # what the verdicts of the cells to come say on this page

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        """Make all cells fit to be read, and name the tests for the page's index."""
        resources["graders"] = {"checks": checks_of(_as_released(nb)), "late": _late(resources.get("nbgrader", {}))}
        outputs = [output for cell in nb.cells if _tested(cell) for output in cell.outputs]
        verdicts = [verdict for output in outputs if (verdict := shown_by([output]))]
        self._messages = iter(once(verdicts))  # in the order of the cells
        return super().preprocess(nb, resources)

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, cell_index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        """Make one cell fit to be read by its student."""
        if cell.cell_type != "code":
            if len(cell.source) > LONGEST:
                note = f"*The rest is left out: this cell has {len(cell.source):,} characters.*"
                cell.source = f"{cell.source[:LONGEST]}\n\n{note}"
            return cell, resources
        if _tested(cell):
            self._remove_hidden_test_region(cell)
            cell.source = "\n".join(line for line in cell.source.splitlines() if not OURS.search(line)).strip()
            cell.outputs = _told(cell.outputs, self._messages, cell.metadata.nbgrader.get("score"))
        else:
            for output in cell.outputs:
                if output.output_type == "error":
                    output.traceback = [frame for frame in output.traceback if not OURS.search(strip_ansi(frame))]
                elif "text/html" in output.get("data", {}):
                    output.data["text/html"] = clean_page(output.data["text/html"])
        return cell, resources


def _late(known: dict[str, Any]) -> str:
    """Return when a hand-in that lost points was due, and when it came; "" for one that lost none.

    Args:
        known: what nbgrader's steps before know of the notebook, its late penalty among it.
    """
    if not known.get("late_penalty"):
        return ""
    with Gradebook(known["db_url"]) as gradebook:
        submission = gradebook.find_submission(known["assignment"], known["student"])
        due, came = submission.duedate, submission.timestamp
    return f"due {due:%Y-%m-%d %H:%M} UTC, handed in {came:%Y-%m-%d %H:%M} UTC" if due and came else ""


def _tested(cell: NotebookNode) -> bool:
    """Return whether a cell's outputs are the grader's: in a solution the student's code ran."""
    return cell.cell_type == "code" and is_grade(cell) and not is_solution(cell)


def _as_released(notebook: NotebookNode) -> dict[str, Original]:
    """Return the cells of a graded notebook that belong to the set, their texts the released ones in its test cells."""
    cells = [(cell, cell.metadata.get("nbgrader") or {}) for cell in notebook.cells]
    return {
        meta["grade_id"]: Original(
            meta["grade_id"],
            cell.cell_type,
            cell.source,
            None,
            bool(meta.get("grade")),
            bool(meta.get("solution")),
            True,
        )
        for cell, meta in cells
        if "grade_id" in meta
    }


def _told(outputs: list[NotebookNode], messages: Iterator[str], score: float | None = None) -> list[NotebookNode]:
    """The outputs of a grade cell for its student: its verdict laid out, the bare number gone, errors without frames.

    Args:
        outputs: the cell's.
        messages: what the verdicts of this cell and those below it say.
        score: what counts, extra credit included; None: not known.
    """
    told = []
    for output in outputs:
        if output.output_type == "error":  # a frame would show the hidden test
            line = f"{output.ename}: {output.evalue}".strip(": ")
            told.append(new_output("error", ename=output.ename, evalue=output.evalue, traceback=[line]))
        elif verdict := shown_by([output]):
            message = next(messages, verdict.message)
            told.append(
                new_output("display_data", {"text/html": _layout(verdict, message, score), "text/plain": message})
            )
        elif output.output_type != "execute_result":
            told.append(output)
    return told


def _layout(verdict: Verdict, message: str, score: float | None = None) -> str:
    """A verdict in the few tags that nbconvert's sanitising lets through, dressed by the template's Bootstrap.

    Args:
        verdict: it.
        message: what it says on this page; where that is another line than its own, the evidence is left out too.
        score: what counts; another one than the verdict's was given by a person.
    """
    lost = verdict.points - verdict.earned
    colour = "warning" if verdict.look == FORM or 0 < lost < verdict.points else "danger" if lost else "success"
    rows = "".join(
        f'<div class="row"><div class="col-xs-2 text-muted">{escape(name)}</div>'
        f'<div class="col-xs-10"><code>{escape(value)}</code></div></div>'
        for name, value in verdict.evidence.items()
    )
    code = f'<div class="text-muted">{PASTE}</div><pre><code>{escape(verdict.code)}</code></pre>'
    rest = f"{rows}{code if verdict.code else ''}" if message == verdict.message else ""
    link = _in_the_book(verdict.place) if verdict.place and message == verdict.message else ""
    by_hand = ""
    if score is not None and abs(score - verdict.earned) > 1e-6:
        said = f"{score:g} of {verdict.points:g} points count here: a person has changed the score."
        by_hand = f"<div><strong>{said}</strong></div>"
    return (
        f'<div class="alert alert-{colour}"><div><strong>{escape(verdict.title)}</strong></div>'
        f"{by_hand}<div>{escape(message)}</div>{link}</div>{rest}"
    )


def _in_the_book(place: Place) -> str:
    """Where the book treats the mistake, as a link where the course has an address."""
    title, site = escape(place.title), course_site()
    name = f'<a href="{escape(place.url(site))}">{title}</a>' if site else title
    return f"<div>In the book: {name}</div>"
