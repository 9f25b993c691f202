"""The exporter behind ``nbgrader generate_feedback``: a page that loads nothing, each in a process with a deadline."""

import json
import os
import re
import signal
from collections.abc import Iterable
from contextlib import closing
from html import escape, unescape
from pathlib import Path
from typing import Any

from nbconvert.exporters.html import HTMLExporter, contextfilter
from nbformat import NotebookNode
from traitlets import Integer

from graders.classroom.feedback import Cleaned, clean_page
from graders.classroom.formulas import MOST, Formulas
from graders.notebook.problem import printable

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'; form-action 'none'"
)
HEAD = f"""<meta charset="utf-8" />
<meta http-equiv="Content-Security-Policy" content="{POLICY}" />
<meta name="viewport" content="width=device-width, initial-scale=1" />"""
STYLE = """<style>
summary { display: list-item; cursor: pointer; }
a:not([href]) { color: inherit; text-decoration: none; }
div.cell { contain: paint; }
pre, div.output_area, div.text_cell_render, math { max-width: 100%; overflow-x: auto; }
div.container { max-width: 100%; }
div.prompt { min-width: 0; }
.panel.nbgrader_cell > .panel-heading { height: auto; overflow: hidden; overflow-wrap: anywhere; }
.panel-heading code { white-space: normal; }
div.input_area, div.output_subarea { width: 100%; }
.output_html > .alert ~ .text-muted { margin-top: 10px; }
.output_html > .alert ~ pre { max-height: 26em; overflow: auto; user-select: all; }
.output_html > .alert ~ pre, .output_html > .alert ~ pre code { white-space: pre; overflow-wrap: normal; }
</style>
<style media="screen and (max-width: 600px)">
.output_html .row > .col-xs-2, .output_html .row > .col-xs-10 { width: 100%; }
div.input, div.output_area { flex-direction: column; align-items: stretch; }
#notebook-container, .container { padding-left: 4px; padding-right: 4px; }
</style>
</head>"""
SCRIPT = re.compile(r"<script\b[^>]*>.*?</script\s*>", re.DOTALL | re.IGNORECASE)
FONT = re.compile(r"@font-face\s*\{[^{}]*\}")  # of files beside the page, which are not there
TEST = re.compile(r'<a href="#([^"]*)">Test cell</a>')
LATE = re.compile(r'(<li class="late-penalty">[^<]*)')
# What is no formula: tags, and code. Then a formula on a line of its own, an environment, one in a line.
FORMULA = re.compile(
    r"(?P<none><(?P<tag>pre|code)\b.*?</(?P=tag)>|<[^<>]*>|\\\$)|\$\$(?P<own>[^<>$]{1,3000})\$\$"
    r"|(?P<env>\\begin\{(?P<name>[a-z]+\*?)\}[^<>$]{0,3000}?\\end\{(?P=name)\})|\$(?P<line>[^<>$]{1,3000})\$",
    re.DOTALL,
)
FORMULAS = Formulas()  # of this process


def with_formulas(page: str, formulas: Formulas) -> str:
    """Return cleaned HTML with its formulas as MathML; one that cannot be drawn stays as it was written."""
    left = MOST

    def drawn(match: re.Match[str]) -> str:
        nonlocal left
        tex, own = match["line"] or match["own"] or match["env"], not match["line"]
        if match["none"] or not left:
            return match[0]
        left -= 1
        return formulas.mathml(unescape(tex), own) or f"<code>{match[0]}</code>"

    return FORMULA.sub(drawn, page)


class FeedbackExporter(HTMLExporter):
    """nbgrader's page of feedback without what it loads: no scripts, formulas as MathML, a policy.

    A page takes as long as a student's text makes it, so each is made in a process of its own; where that fails, the
    page says so, a line is logged, and the other pages are made.
    """

    seconds = Integer(20, help="Seconds of the processor for one page.").tag(config=True)

    def from_filename(  # type: ignore[override] # as nbconvert's own HTML exporter: a page, no notebook
        self, filename: str, resources: dict[str, Any] | None = None, **kw: Any
    ) -> tuple[str, dict[str, Any]]:
        """Convert a notebook in a process of its own."""
        if not hasattr(os, "fork"):
            return super().from_filename(filename, resources=resources, **kw)
        FORMULAS.mathml("x", False)  # node is started here, once for all pages
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            self._child(filename, resources, write)
        os.close(write)
        with open(read, "rb") as pipe:
            data = pipe.read()
        _, status = os.waitpid(pid, 0)
        resources = self._init_resources(resources)
        resources["output_extension"] = self.file_extension
        try:
            page, formulas = json.loads(data)
        except ValueError:
            FORMULAS.close()  # it may wait for an answer that the child asked for
            why = "took too long" if status and os.WIFSIGNALED(status) else "failed"
            place = printable("/".join(Path(filename).parts[-3:]), 200)
            self.log.error(
                "%s: making its page of feedback %s; the page says only that. Read the notebook.", place, why
            )
            page, formulas = _excuse(Path(filename).stem), []
        FORMULAS.learn(formulas)
        return page, resources

    def _child(self, filename: str, resources: dict[str, Any] | None, write: int) -> None:
        """Make the page, write it into the pipe, end."""
        try:
            import resource  # not on Windows, which has no fork either

            signal.signal(signal.SIGXCPU, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CPU, (self.seconds, self.seconds + 1))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            page, _ = super().from_filename(filename, resources=resources)
            with closing(os.fdopen(write, "wb")) as pipe:
                pipe.write(json.dumps([page, FORMULAS.learnt()]).encode("utf-8", "replace"))
        except BaseException as error:  # no text of a student's leaves this process but in the page
            self.log.debug("%s", printable(f"{type(error).__name__}: {error}"))
            os._exit(1)
        os._exit(0)

    @contextfilter
    def markdown2html(self, context: Any, source: str) -> str:
        """Return a text cell as HTML that is clean, with its formulas drawn."""
        return Cleaned(with_formulas(clean_page(super().markdown2html(context, source)), FORMULAS))

    def from_notebook_node(  # type: ignore[override] # the same
        self, nb: NotebookNode, resources: dict[str, Any] | None = None, **kw: Any
    ) -> tuple[str, dict[str, Any]]:
        """Convert a notebook here."""
        page, resources = super().from_notebook_node(nb, resources, **kw)
        ours = resources.get("graders", {})
        names, late = ours.get("checks", {}), ours.get("late", "")
        page = FONT.sub("", SCRIPT.sub("", page))
        page = TEST.sub(lambda match: _named(match[1], names), page)
        page = LATE.sub(lambda match: f"{match[1]}: {escape(late)}" if late else match[1], page, count=1)
        page = re.sub(r'<meta charset="utf-8"\s*/>', lambda _: HEAD, page, count=1)
        return page.replace("</head>", STYLE, 1), resources


def _named(grade_id: str, names: dict[str, Iterable[str]]) -> str:
    name = " ".join(names.get(unescape(grade_id), ())) or "Test cell"
    return f'<a href="#{grade_id}">{escape(name)}</a>'


def _excuse(name: str) -> str:
    text = "This page could not be made: something in the notebook takes too long to be laid out. Ask your instructor."
    head = f"<head>\n{HEAD}\n<title>{escape(name)}</title>\n</head>"
    return f"<!DOCTYPE html>\n<html>\n{head}\n<body><p>{text}</p></body>\n</html>\n"
