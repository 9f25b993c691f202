"""What the coach says, as a small table for a notebook and as lines of text."""

import textwrap
from collections.abc import Sequence
from html import escape

from graders.coach.find import Found
from graders.coach.session import FAILS, HOLDS, WAITS, Step, count
from graders.judge.verdict import one_line

WIDTH = 100
COLOURS = {HOLDS: "#1a7f37", FAILS: "#b3261e", WAITS: "#6e6e6e"}  # white on each has a contrast above 4.5
BADGE = "color:#fff;background:{};border-radius:3px;padding:1px 7px;white-space:nowrap;font-size:90%"
CELL = (
    "text-align:left;vertical-align:top;padding:4px 12px 4px 0;background:transparent;color:inherit;font-size:inherit"
)
CODE = (
    "margin:6px 0;padding:8px;border:1px solid rgba(128,128,128,.45);border-radius:3px;background:rgba(128,128,128,.1);"
    "color:inherit;overflow-x:auto;white-space:pre;font-size:90%"
)
RUN = "The failing case, to run below your answer"


def line(step: Step) -> str:
    """Return a check as text: one line where it holds, all that helps where it does not."""
    head = f"{step.state:8} {step.name}"
    if step.state == HOLDS:
        return f"{head}: {step.about}"
    if step.state == WAITS:
        return f"{head}: {step.message}"
    parts = [f"{head}: {step.about}", _wrapped(step.message)]
    parts += [_wrapped(f"{name}: {value}") for name, value in step.verdict.evidence.items()]
    parts += [_wrapped(f"In the book: {step.link.title} ({step.link.target})")] if step.link else []
    parts += [_wrapped(f"Try: {step.next}")] if step.next else []
    if step.verdict.code:
        parts += [f"{' ' * 9}{RUN}:", "", textwrap.indent(step.verdict.code, " " * 4), ""]
    return "\n".join(parts)


def _wrapped(text: str) -> str:
    indent = " " * 9
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def title(found: Found) -> str:
    """Return what stands above the checks."""
    return f"{found.task.name} (set {found.set})"


def text(found: Found, steps: Sequence[Step], end: Sequence[str]) -> str:
    """Return all that is said as text."""
    return "\n".join([title(found), *map(line, steps), *end])


def table(found: Found, steps: Sequence[Step], end: Sequence[str]) -> str:
    """Return all that is said as HTML. It is readable on light and on dark, and where colours are not seen."""
    rows = [_row(step) for step in steps]
    running = len(steps) < count(found.task) and not end
    if running:
        check = found.task.checks[len(steps)].name.replace("_", " ")
        rows.append(_line("…", escape(check), ""))
    said = "".join(f'<p style="margin:4px 0">{escape(sentence)}</p>' for sentence in end)
    return (
        f'<div style="font-size:100%;line-height:1.45"><p style="margin:4px 0"><b>{escape(title(found))}</b></p>'
        f'<table style="border-collapse:collapse;border:0;margin:0;table-layout:auto;color:inherit;font-size:inherit">'
        f"<tbody>{''.join(rows)}</tbody></table>{said}</div>"
    )


def _row(step: Step) -> str:
    badge = f'<span style="{BADGE.format(COLOURS[step.state])}">{step.state}</span>'
    cells = (badge, f'<b style="white-space:nowrap">{escape(step.name)}</b>', _said(step))
    return _line(*cells)


def _line(*cells: str) -> str:
    return f'<tr style="background:transparent">{"".join(map(_cell, cells))}</tr>'


def _cell(html: str) -> str:
    return f'<td style="{CELL}">{html}</td>'


def _said(step: Step) -> str:
    about = f'<span style="opacity:.75">{escape(step.about)}</span>'
    if step.state == HOLDS:
        return about
    if step.state == WAITS:
        return escape(step.message)
    parts = [about, f"<div><b>{escape(step.message)}</b></div>"]
    evidence = " · ".join(f"{escape(name)}: {escape(value)}" for name, value in step.verdict.evidence.items())
    parts += [f"<div>{evidence}</div>"] if evidence else []
    if step.next:
        parts.append(f"<div>Try: {escape(step.next)}</div>")
    if step.link:
        place = escape(step.link.title)
        if step.link.near:
            place = f'<a href="{escape(step.link.near)}">{place}</a>'
        else:
            place = f"{place} ({escape(step.link.target)})"
        parts.append(f"<div>In the book: {place}</div>")
    if step.verdict.code:
        code = escape(step.verdict.code)
        parts.append(
            f'<details><summary style="cursor:pointer">{RUN}</summary><pre style="{CODE}">{code}</pre></details>'
        )
    return "".join(parts)


def stopped(step: str, place: str) -> str:
    """Return what is said where the reader stopped the coach, or time ran out."""
    where = f" while it was in {one_line(place, 200)}" if place else ""
    return f"Stopped at {step}{where}. A loop that does not end? What was found before stands above."
