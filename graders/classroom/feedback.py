"""Feedback as a student reads it: points and messages, without hidden tests, grader source or scripts."""

import re
from html import escape

import bleach
from bleach.css_sanitizer import CSSSanitizer
from nbconvert.exporters.exporter import ResourcesDict
from nbconvert.filters import strip_ansi, strip_files_prefix
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.preprocessors import ClearHiddenTests
from nbgrader.utils import is_grade

from graders.judge.verdict import Verdict, shown_by

OURS = re.compile(r"[\\/]graders[\\/]|from graders\b|import graders\b")
TAGS = bleach.ALLOWED_TAGS | {"p", "br", "hr", "div", "span", "pre", "img", "sub", "sup", "dl", "dt", "dd", "del"}
TAGS |= {"h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"}
ATTRIBUTES = {**bleach.ALLOWED_ATTRIBUTES, "*": ["class", "id", "style", "title"], "img": ["src", "alt"]}
ATTRIBUTES |= {name: ["align", "colspan", "rowspan"] for name in ("td", "th")}


def clean_page(text: str) -> str:
    """Rendered Markdown without what could run.

    nbgrader's feedback template does not sanitise a student's Markdown cells, whatever ``sanitize_html`` says; it
    passes them through the filter ``strip_files_prefix``, in whose place ``nbgrader_config.py`` puts this one.
    """
    return bleach.clean(
        strip_files_prefix(text),
        tags=TAGS,
        attributes=ATTRIBUTES,
        protocols={*bleach.ALLOWED_PROTOCOLS, "data"},
        css_sanitizer=CSSSanitizer(),
    )


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
