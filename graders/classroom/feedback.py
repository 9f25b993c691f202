"""Feedback as a student reads it: points and messages, without hidden tests, grader source or scripts."""

import re
from html import escape

import nh3
from nbconvert.exporters.exporter import ResourcesDict
from nbconvert.filters import strip_ansi, strip_files_prefix
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.preprocessors import ClearHiddenTests
from nbgrader.utils import is_grade
from pygments.token import STANDARD_TYPES

from graders.judge.verdict import Verdict, shown_by

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


def clean_page(text: str) -> str:
    """Return rendered Markdown without what could run, load something, or be seen outside the student's own cell.

    nbgrader's feedback template does not sanitise a student's Markdown cells, whatever ``sanitize_html`` says; it
    passes them through the filter ``strip_files_prefix``, in whose place ``nbgrader_config.py`` puts this one.
    """
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
        return None if value.strip().lower().startswith("data:") else value
    if name == "style":
        return None if "url" in value.lower() or "\\" in value else value
    return value


class Feedback(ClearHiddenTests):
    """Between nbgrader's ``GetGrades`` and the writing of the page: hide the tests, show the verdicts."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, cell_index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        """Make one cell fit to be read by its student."""
        if cell.cell_type != "code":
            return cell, resources
        if is_grade(cell):
            self._remove_hidden_test_region(cell)
            cell.source = "\n".join(line for line in cell.source.splitlines() if not OURS.search(line)).strip()
            cell.outputs = _told(cell.outputs)
        else:
            for output in cell.outputs:
                if output.output_type == "error":
                    output.traceback = [frame for frame in output.traceback if not OURS.search(strip_ansi(frame))]
                elif "text/html" in output.get("data", {}):
                    output.data["text/html"] = clean_page(output.data["text/html"])
        return cell, resources


def _told(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """The outputs of a grade cell for its student: verdicts laid out, the bare number gone, errors without frames."""
    told = []
    for output in outputs:
        if output.output_type == "error":  # a frame would show the hidden test
            line = f"{output.ename}: {output.evalue}".strip(": ")
            told.append(new_output("error", ename=output.ename, evalue=output.evalue, traceback=[line]))
        elif verdict := shown_by([output]):
            told.append(new_output("display_data", {"text/html": _layout(verdict), "text/plain": str(verdict)}))
        elif output.output_type != "execute_result":
            told.append(output)
    return told


def _layout(verdict: Verdict) -> str:
    """A verdict in the few tags that nbconvert's sanitising lets through, dressed by the template's Bootstrap."""
    colour = "success" if verdict.earned == verdict.points else "danger" if not verdict.earned else "warning"
    rows = "".join(
        f'<div class="row"><div class="col-xs-2 text-muted">{escape(name)}</div>'
        f'<div class="col-xs-10"><code>{escape(value)}</code></div></div>'
        for name, value in verdict.evidence.items()
    )
    return (
        f'<div class="alert alert-{colour}"><div><strong>{escape(verdict.title)}</strong></div>'
        f"<div>{escape(verdict.message)}</div></div>{rows}"
    )
