"""Draw what stands for the course elsewhere: the card that messengers show, the icons of browsers and telephones.

    python -m tools.social_card      write book/_static/social-card.png, icon-48.png and icon-180.png

The drawings are committed; run this again when the title changes. They are the same on every machine: matplotlib draws
them, in the book's own face.
"""

import argparse
import sys
from pathlib import Path

import matplotlib
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

FOLDER = Path(__file__).resolve().parents[1] / "book" / "_static"
BLUE, ORANGE, INK, PALE, GROUND = "#3f87c7", "#d0722b", "#e8ecf1", "#9aa7b5", "#14181e"
KINK = ([7, 30, 57], [16, 16, 48])  # the logo's line, y upwards, on 64 x 64


def canvas(width: int, height: int) -> Figure:
    """A drawing of that many pixels; a point is a pixel."""
    figure = Figure(figsize=(width / 72, height / 72), dpi=72, facecolor=GROUND)
    FigureCanvasAgg(figure)
    return figure


def mark(figure: Figure, left: float, bottom: float, size: float) -> None:
    """Draw the logo into a square of `size` pixels."""
    width, height = figure.get_size_inches() * figure.dpi
    axes = figure.add_axes((left / width, bottom / height, size / width, size / height))
    axes.set(xlim=(0, 64), ylim=(0, 64))
    axes.axis("off")
    unit = size / 64
    axes.plot(*KINK, color=BLUE, linewidth=8 * unit, solid_capstyle="round", solid_joinstyle="round")
    axes.plot([30], [16], "o", color=ORANGE, markersize=18 * unit, markeredgewidth=0)


def icon(size: int) -> Figure:
    """The logo on a dark square."""
    figure = canvas(size, size)
    mark(figure, size * 0.08, size * 0.08, size * 0.84)
    return figure


def card() -> Figure:
    """The title beside the logo, 1200 x 630 pixels."""
    figure = canvas(1200, 630)
    mark(figure, 790, 150, 330)
    left = 80 / 1200
    figure.text(left, 400 / 630, "Custom Gradients\nin PyTorch", color=INK, fontsize=76, fontweight="bold", va="center")
    figure.text(left, 235 / 630, "From ReLU to FlashAttention", color=PALE, fontsize=40, va="center")
    figure.text(left, 110 / 630, "Write it, prove it, ship it; know when not to.", color=PALE, fontsize=28, va="center")
    return figure


def drawings() -> dict[str, Figure]:
    """Every drawing, by the name of its file."""
    return {"social-card.png": card(), "icon-48.png": icon(48), "icon-180.png": icon(180)}


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    summary = __doc__.partition("\n")[0]
    argparse.ArgumentParser(prog="python -m tools.social_card", description=summary).parse_args(arguments)
    for face in (FOLDER / "text").glob("*.ttf"):
        font_manager.fontManager.addfont(face)
    with matplotlib.rc_context({"font.family": "Course Text"}):
        for name, figure in drawings().items():
            figure.savefig(FOLDER / name, dpi=72, facecolor=GROUND, metadata={"Software": None})
            print(f"written: book/_static/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
