"""What the book's first page takes from the chapters and from its own code: the same bytes while those are the same.

    python -m tools.first_page [--check]

- ``book/map.svg``: the chapters and which comes before which, drawn from their cards;
- ``book/bump.svg``: the losses of the two nets that the page's code trains;
- ``book/floats.svg``: what is kept for one head of attention, as chapter 10 counted it;
- in ``book/intro.md``, the second line of each chapter's entry (minutes, difficulty, what it needs), the losses for the
  figure that the reader moves, and the strip of facts.

With ``--check`` nothing is written: the exit code is 1, with a line for each file that is out of date.
"""

import argparse
import contextlib
import io
import itertools
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

from tools.cards import FIRST_NEEDS, Card, read_card
from tools.notebooks import ROOT, SAME, NotebookError, read, write

BLUE, INK = "#3f87c7", "#7d7d7d"
BOXES = ["#3a78b2", "#2f6699", "#26547f", "#1d4267", "#15314e"]  # by difficulty, from 1: white is read on each
RED, GREEN = "#c8503f", "#3a9a6b"  # wrong, right
STYLE = 'font-family="system-ui, sans-serif"'
ENTRY = re.compile(r"^\d+\. \[.+?\]\((?P<file>\d\d_\w+\.ipynb)\).*\n   (?P<line>.*)\\$", re.MULTILINE)
FIGURE = r'(?<=data-figure="bump" )data-forgotten="[^">]*" data-autograd="[^">]*"'
FACTS = r'(?<=<p class="facts">).*?(?=</p>)'


class FirstPageError(Exception):
    """What the author has to mend, in one line."""


# ------------------------------------------------------------------- the map


def cards(root: Path) -> dict[str, tuple[str, Card]]:
    """Each chapter's title and card, by the name of its file, in order."""
    found = {}
    for path in sorted(root.glob("book/[0-9][0-9]_*.ipynb")):
        cells = read(path).cells
        card = read_card(cells[1].source) if len(cells) > 1 else None
        if card is None:
            raise FirstPageError(f"{path.relative_to(root)}: the second cell is not a card; see CONTRIBUTING.md")
        found[path.name] = cells[0].source.splitlines()[0].removeprefix("# "), card
    return found


def arrows(needs: dict[str, list[str]]) -> list[tuple[str, str]]:
    """The needs that do not follow from others: chapter 3 needs 2, which needs 1, so no arrow leads from 1 to 3."""
    before: dict[str, set[str]] = {}
    for chapter, direct in needs.items():
        before[chapter] = set(direct).union(*(before[need] for need in direct))
    return [
        (need, chapter)
        for chapter, direct in needs.items()
        for need in direct
        if not any(need in before[other] for other in direct)
    ]


def places(chapters: list[str], edges: list[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """A row and one of three columns for each chapter: below what it needs, with arrows that are short and free."""
    row = dict.fromkeys(chapters, 0)
    for need, chapter in edges:  # sorted by chapter, so that what a chapter needs has its row
        row[chapter] = max(row[chapter], row[need] + 1)
    rows = [[c for c in chapters if row[c] == r] for r in range(max(row.values()) + 1)]
    if max(map(len, rows)) > 3:
        raise FirstPageError("more than three chapters in one row of the map: draw it with more columns")

    def cost(column: dict[str, int]) -> int:
        """The columns that arrows cross, and much more for a chapter that an arrow would run through."""
        length = sum(abs(column[a] - column[b]) for a, b in edges)
        through = sum(
            column[c] == column[a] == column[b] and row[a] < row[c] < row[b] for a, b in edges for c in chapters
        )
        askew = sum(column[a] != column[b] and row[b] - row[a] > 1 for a, b in edges)
        return length + 10 * through + 10 * askew

    layouts = itertools.product(*(itertools.permutations(range(3), len(names)) for names in rows))
    columns = [
        {c: k for names, ks in zip(rows, layout, strict=True) for c, k in zip(names, ks, strict=True)}
        for layout in layouts
    ]
    best = min(columns, key=lambda column: (cost(column), abs(sum(column.values()) - len(chapters))))
    return {c: (row[c], best[c]) for c in chapters}


def draw_map(chapters: dict[str, tuple[str, Card]]) -> str:
    """The map as SVG: text lies on boxes of its own colour, so it is read on any ground."""
    edges = arrows({name: card.needs for name, (_, card) in chapters.items()})
    at = places(list(chapters), edges)
    wide, high, gap, step = 128, 56, 6, 88
    left = {name: column * (wide + gap) for name, (_, column) in at.items()}
    top = {name: row * step for name, (row, _) in at.items()}
    parts = []
    for a, b in edges:
        x, y, u, v = left[a] + wide / 2, top[a] + high, left[b] + wide / 2, top[b] - 2
        bend = min(16, (v - y) / 2)
        parts.append(
            f'<path d="M{x:g},{y}C{x:g},{y + bend:g} {u:g},{v - bend - 6:g} {u:g},{v}" fill="none" stroke="{INK}" '
            'stroke-width="1.5" marker-end="url(#tip)"/>'
        )
    for name, (title, card) in chapters.items():
        number, words = int(name[:2]), title.split(":")[0].removeprefix("A ")
        lines = [words] if len(words) < 15 else _halves(words)
        lines.append(f"{number} · {card.minutes} min · {'●' * card.difficulty}{'○' * (5 - card.difficulty)}")
        spoken = f"Chapter {number}, {words}: {card.minutes} minutes, difficulty {card.difficulty} of 5"
        parts.append(f'<a href="{Path(name).stem}.html" aria-label="{spoken}">')
        box = BOXES[card.difficulty - 1]
        at_corner = f'x="{left[name]}" y="{top[name]}"'
        parts.append(f'<rect {at_corner} width="{wide}" height="{high}" rx="6" fill="{box}" stroke="{INK}"/>')
        for n, line in enumerate(lines):
            across, down = left[name] + wide / 2, top[name] + high / 2 + 4 + 15 * (n - (len(lines) - 1) / 2)
            weight = 400 if line is lines[-1] else 600
            parts.append(f'<text x="{across:g}" y="{down:g}" font-weight="{weight}">{line}</text>')
        parts.append("</a>")
    total = sum(card.minutes for _, card in chapters.values())
    size = 3 * wide + 2 * gap, max(top.values()) + high
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" '
        f'height="{size[1]}" role="img" {STYLE} font-size="10.5" fill="#fff" text-anchor="middle">\n'
        f"<title>The {len(chapters)} chapters, {total} minutes, with an arrow from each to those that need it</title>\n"
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0,0L8,4L0,8z" fill="{INK}"/></marker></defs>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _halves(text: str) -> list[str]:
    """A title in two lines of about one length."""
    words = text.split()
    cut = min(range(1, len(words)), key=lambda k: abs(len(" ".join(words[:k])) - len(" ".join(words[k:]))))
    return [" ".join(words[:cut]), " ".join(words[cut:])]


# ------------------------------------------------------------------- the two losses


def losses(page: str) -> dict[str, list[float]]:
    """Run the page's Python, which leaves the losses of the two nets as ``by_hand`` and ``by_autograd``."""
    names: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(code, "book/intro.md", "exec"), names)
        except Exception as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            raise FirstPageError(
                f"book/intro.md: its code stops with {text}: run the page's pieces in order"
            ) from error
    try:
        return {"a factor forgotten": names["by_hand"], "autograd": names["by_autograd"]}
    except KeyError as missing:
        raise FirstPageError(
            f"book/intro.md: its code does not define {missing}; the figure needs both losses"
        ) from None


def draw_losses(curves: dict[str, list[float]]) -> str:
    """Loss against step, the loss on a logarithmic axis, as SVG."""
    left, right, top, bottom, width, height = 46, 20, 24, 40, 420, 220
    steps = max(map(len, curves.values())) - 1
    low, high = -3, 0  # powers of ten

    def x(step: float) -> float:
        return left + step / steps * (width - left - right)

    def y(loss: float) -> float:
        return top + (high - math.log10(loss)) / (high - low) * (height - top - bottom)

    parts = []
    for power, text in zip(range(low, high + 1), ("0.001", "0.01", "0.1", "1"), strict=True):
        parts.append(f'<path d="M{left},{y(10**power):.1f}H{width - right}" stroke="{INK}" stroke-opacity="0.3"/>')
        parts.append(f'<text x="{left - 6}" y="{y(10**power) + 4:.1f}" text-anchor="end">{text}</text>')
    for step in range(0, steps + 1, steps // 4):
        parts.append(f'<text x="{x(step):.1f}" y="{height - bottom + 18}" text-anchor="middle">{step:,}</text>')
    parts.append(f'<text x="{x(steps / 2):.1f}" y="{height - 4}" text-anchor="middle">step</text>')
    parts.append('<text x="0" y="12">loss</text>')
    looks = {"a factor forgotten": (RED, ' stroke-dasharray="7 4"'), "autograd": (GREEN, "")}
    for name, curve in curves.items():
        shown = [step for step in range(steps + 1) if step % 10 == 0 or step < 20]
        points = " ".join(f"{x(step):.1f},{y(curve[step]):.1f}" for step in shown)
        colour, dash = looks[name]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"{dash}/>')
        above = y(max(curve[int(0.6 * steps) :])) - 8  # the name stands over the last part of its line
        parts.append(
            f'<text x="{x(steps):.1f}" y="{above:.1f}" text-anchor="end" fill="{colour}" '
            f'font-weight="600">{name}: {curve[-1]:.3f}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" {STYLE} font-size="13" fill="{INK}">\n'
        "<title>Loss against training step for the two gradients</title>\n" + "\n".join(parts) + "\n</svg>\n"
    )


# ------------------------------------------------------------------- what is kept


def floats(root: Path) -> dict[str, int]:
    """How many numbers are kept for one head of attention over 4,096 tokens, from the stored output of chapter 10."""
    chapter = root / "book/10_flash_attention.ipynb"
    text = chapter.read_text(encoding="utf-8")
    kept = {}
    for name, shown in (("plain", "autograd"), ("skeleton", "your backward")):
        if (found := re.search(rf"{name} .*-> +(\d+), slope", text)) is None:
            raise FirstPageError(f"{chapter.relative_to(root)}: no line counts what {name} keeps")
        kept[shown] = int(found[1])
    return kept


def draw_floats(kept: dict[str, int]) -> str:
    """The numbers kept as bars to scale, as SVG: what a reader sees is how short the second is."""
    width, height, left = 420, 76, 110
    scale = (width - left - 112) / max(kept.values())
    parts = []
    for row, (name, count) in enumerate(kept.items()):
        y = 8 + 34 * row
        parts.append(f'<text x="{left - 8}" y="{y + 17}" text-anchor="end">{name}</text>')
        parts.append(f'<rect x="{left}" y="{y}" width="{count * scale:.1f}" height="24" fill="{BLUE}"/>')
        text = f"{count / 1e6:.1f} million"
        parts.append(f'<text x="{left + count * scale + 8:.1f}" y="{y + 17}" font-weight="600">{text}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" {STYLE} font-size="13" fill="{INK}">\n'
        "<title>Numbers kept for backward, to scale</title>\n" + "\n".join(parts) + "\n</svg>\n"
    )


# ------------------------------------------------------------------- the page


def facts(root: Path, chapters: dict[str, tuple[str, Card]]) -> str:
    """The strip of facts, as HTML: what the course holds, counted where it lies."""
    import graders.sets

    minutes = sum(card.minutes for _, card in chapters.values())
    tasks = [task for name in graders.sets.names() for task in graders.sets.module(name).TASKS]
    known = [task for name in graders.sets.names() for task in graders.sets.module(name).CHAPTER]
    mistakes = sum(len(getattr(task, "mistakes", ())) for task in (*tasks, *known))
    wrong = sum(
        tag.startswith("misconception:")
        for name in chapters
        for cell in read(root / "book" / name).cells
        for tag in cell.metadata.get("tags", ())
    )
    counted = {
        "chapters": f"{len(chapters)}",
        "hours to read and run": f"{minutes / 60:.0f}",
        "exercises": f"{len(tasks)}",
        "mistakes known by name": f"{mistakes:,}",
        "wrong versions that run without an error": f"{wrong}",
    }
    return "".join(f"<span><b>{count}</b> {what}</span> " for what, count in counted.items()).strip()


def traces(curves: dict[str, list[float]]) -> str:
    """The losses for the page's script, as attributes: a hundred times their decadic logarithms, at every 20th step."""
    names = {"a factor forgotten": "forgotten", "autograd": "autograd"}
    return " ".join(
        f'data-{names[name]}="{" ".join(f"{100 * math.log10(loss):.1f}" for loss in curve[::20])}"'
        for name, curve in curves.items()
    )


def fill(page: str, chapters: dict[str, tuple[str, Card]], shown: dict[str, str]) -> str:
    """The page with the second line of each chapter's entry as the cards have it, and with what it shows.

    Args:
        page: as it is.
        chapters: title and card of each.
        shown: what stands where a pattern is found, by the pattern.
    """
    seen = []
    for pattern, text in shown.items():
        if (count := len(found := re.findall(pattern, page))) != 1:
            raise FirstPageError(f"book/intro.md: {count} places for {pattern}, 1 is needed")
        if not same(found[0], text):  # what differs by rounding alone stays
            page = page.replace(found[0], text)

    def entry(match: re.Match[str]) -> str:
        file = match["file"]
        seen.append(file)
        if file not in chapters:
            return match[0]
        card = chapters[file][1]
        needs = [f"[{int(need[:2])}]({need})" for need in card.needs]
        comes = f"chapter{'s' * (len(needs) > 1)} {', '.join(needs)}" if needs else FIRST_NEEDS
        line = f"{card.minutes} minutes, difficulty {card.difficulty} of 5; needs {comes}."
        return match[0].removesuffix(match["line"] + "\\") + line + "\\"

    filled = ENTRY.sub(entry, page)
    if seen != list(chapters):
        raise FirstPageError(f"book/intro.md lists {seen or 'no chapters'}; the chapters are {list(chapters)}")
    return filled


def first_page(root: Path = ROOT) -> dict[Path, str]:
    """What each of the four files should hold."""
    page = (root / "book/intro.md").read_text(encoding="utf-8")
    chapters = cards(root)
    curves = losses(page)
    return {
        root / "book/map.svg": draw_map(chapters),
        root / "book/bump.svg": draw_losses(curves),
        root / "book/floats.svg": draw_floats(floats(root)),
        root / "book/intro.md": fill(page, chapters, {FIGURE: traces(curves), FACTS: facts(root, chapters)}),
    }


def same(old: str, new: str) -> bool:
    """Whether texts are the same but for coordinates that differ by a pixel: processors round losses differently."""
    pixels = re.compile(r"(?<=[ ,\"])-?\d+\.\d(?=[ ,\"])")
    numbers = [list(map(float, pixels.findall(text))) for text in (old, new)]
    return pixels.sub("", old) == pixels.sub("", new) and all(abs(a - b) <= 1 for a, b in zip(*numbers, strict=True))


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.first_page", description="Draw the first page's map and losses."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; report what is out of date")
    check = parser.parse_args(arguments).check
    os.environ.update(SAME)  # before torch is loaded
    try:
        files = first_page(root)
    except (FirstPageError, NotebookError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    old = [path for path, new in files.items() if not path.exists() or not same(path.read_text("utf-8"), new)]
    for path in old:
        name = path.relative_to(root)
        if check:
            print(f"{name} is out of date: run `python -m tools.first_page`", file=sys.stderr)
        else:
            write(path, files[path])
            print(f"{name} written")
    return int(check and bool(old))


if __name__ == "__main__":
    sys.exit(main())
