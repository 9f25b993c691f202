"""The figures of the course: one function a figure, one style for all.

A chapter does not import this file. The notebook tool writes the style and the function that a chapter names into
the chapter itself, so that a downloaded chapter runs alone; edit the figure here and run ``make notebooks``.
In a notebook, the cell tagged ``figure:NAME`` ends with a line ``NAME(...)``; all lines above it are generated.

Every figure has a transparent ground and mid-tone colours, which the page darkens on white and brightens on the
book's dark ground, and tells its lines apart by dash or marker as well as by colour.

Values are blue, gradients orange, what is wrong is red, what passed is green, all else grey. Words stand beside the
curves, where there is room; a legend sends the eye away and back.
Two figures need blue and orange for something else, and say what: two dtypes in `arctan_differences`, the sign of a
number in `hessians`.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib import font_manager
from matplotlib_inline.backend_inline import set_matplotlib_formats

INK, BLUE, ORANGE, GREEN = "#7d7d7d", "#3f87c7", "#d0722b", "#3a9a6b"
RED = "#c8503f"  # what is wrong; dark words can be read on it


def canvas(columns=1, height=3.0, rows=1):
    """Axes in a grid, in the course's style.

    The width is 5 inches: on a telephone of 390 pixels a point is then about a pixel, so that text of 10 points or
    more stays legible. Prefer rows to columns.

    Args:
        columns: how many axes beside each other.
        height: inches in all.
        rows: how many axes below each other.

    Returns:
        A figure and a list of its axes, row by row.
    """
    set_matplotlib_formats("svg", metadata={"Date": None})
    faces = [*Path("_static/text").glob("*.ttf")]  # the book's own; elsewhere matplotlib's serves
    for face in faces:
        font_manager.fontManager.addfont(face)
    names, size = (["Course Text", "DejaVu Sans"], 12.5) if faces else (["DejaVu Sans"], 11)
    plt.rcParams.update(
        {"svg.hashsalt": "course", "axes.facecolor": "none", "lines.linewidth": 2, "mathtext.fontset": "custom"}
        | {"ytick.alignment": "center"}
        | {"font.family": names, "font.size": size, "legend.fontsize": size - 1.5, "legend.labelspacing": 0.15}
        | dict.fromkeys([f"mathtext.{style}" for style in ("rm", "it", "bf", "bfit", "cal", "sf", "tt")], names[0])
        | dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], INK)
        | dict.fromkeys(["axes.spines.right", "axes.spines.top"], False)
    )
    figure = plt.figure(figsize=(5, height), facecolor="none", layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def autograd_graph(root, note, **leaves):
    """Draw the graph that backward will walk, from a result's node down to the leaves.

    Args:
        root: the ``grad_fn`` of a tensor.
        note: what to write beside the two arrows that leave the root, one straight down and one past a node.
        leaves: the leaf tensors, by the names to print for them.
    """
    axes = canvas(height=3.4)[1][0]
    depth, edges, boxes = {root: 0}, [(root, p) for p, _ in root.next_functions if p], {}
    for node, parent in edges:
        depth[parent] = max(depth.get(parent, 0), depth[node] + 1)
        edges += [(parent, p) for p, _ in parent.next_functions if p]
    for node, row in depth.items():
        layer = [n for n in depth if depth[n] == row]
        name = "".join(f": {k}" for k, v in leaves.items() if getattr(node, "variable", None) is v)
        at = layer.index(node) - (len(layer) - 1) / 2, -row
        style = {"boxstyle": "round", "fc": "none", "ec": INK}
        boxes[node] = axes.text(*at, node.name().split(":")[-1] + name, ha="center", va="center", bbox=style)
    for a, b in dict.fromkeys(edges):
        skips = depth[b] > depth[a] + 1
        arrow = {"arrowstyle": "->", "color": ORANGE, "lw": 1.5, "connectionstyle": f"arc3,rad={-1.1 * skips}"}
        ends = {"patchA": boxes[a].get_bbox_patch(), "patchB": boxes[b].get_bbox_patch()}
        axes.annotate("", boxes[b].get_position(), boxes[a].get_position(), arrowprops=arrow | ends)
        x, y, side = (0.45, -1, "left") if skips else (-0.03, -0.5, "right")
        axes.text(x, y, note if a is root else "", ha=side, va="center")
    axes.set(xlim=(-1, 1), ylim=(-0.3 - max(depth.values()), 0.3), frame_on=False, xticks=[], yticks=[])


def drum_fit(r, height, fitted):
    """Plot the measured heights of a drum skin and a fitted wave.

    Args:
        r: distances from the centre.
        height: the heights there.
        fitted: those of the wave.
    """
    ax = canvas(height=2.6)[1][0]
    ax.axhline(0, color=INK, lw=0.8)
    ax.plot(r[::3], height[::3], "o", color=INK, ms=4)
    ax.plot(r, fitted, "--", color=RED)
    ax.text(0.62, 0.95, "the heights", color=INK)
    ax.text(0.3, -0.45, "the wave that training finds", color=RED, ha="center")
    ax.set(xlabel="distance from the centre", ylabel="height")


def relu_kink(x, y, gradient, quotients):
    """Plot ReLU with its hand-written gradient and central differences; shade where the two differ.

    Args:
        x: points from -1 to 1, one of them 0.
        y: ReLU at x.
        gradient: the hand-written gradient at x.
        quotients: step size to central difference at x.
    """
    ax = canvas(height=3.4)[1][0]
    ax.plot(x, y, "-.", color=BLUE)
    ax.text(0.75, 0.62, "ReLU", color=BLUE)
    for side in (x <= 0, x > 0):
        ax.plot(x[side], gradient[side], color=ORANGE)
    ax.plot(0, 0, "o", color=ORANGE)
    ax.plot(0, 1, "o", color=ORANGE, mfc="none")
    ax.text(0.75, 1.05, "gradient", color=ORANGE)
    for (h, quotient), dash, height in zip(quotients.items(), ("--", ":"), (0.4, 0.8), strict=True):
        ax.plot(x, quotient, dash, color=INK)
        ax.fill_between(x, gradient, quotient, color=INK, alpha=0.15, lw=0)
        pointer = {"arrowstyle": "-", "color": INK, "lw": 0.8}
        to, at = ((2 * height - 1) * h, height), (-0.35, height)
        ax.annotate(f"difference, h = {h}", to, at, ha="right", va="center", arrowprops=pointer)
    ax.set(xlabel="x", ylim=(-0.06, 1.18), yticks=[0, 0.5, 1])


def arctan_differences(x, y, gradient, quotients, bound, steps, errors):
    """Plot arctan's hand-written gradient under its central differences, and step size against error.

    Args:
        x: points.
        y: arctan at x.
        gradient: the hand-written gradient at x.
        quotients: the central differences at x with step 1e-6, in float32 and in float64; every tenth is drawn.
        bound: how far rounding can move the float32 difference at x.
        steps: step sizes.
        errors: the mean error at each step, in float32 and in float64.
    """
    top, bottom = canvas(rows=2, height=6)[1]
    top.fill_between(x, gradient - bound, gradient + bound, color=ORANGE, alpha=0.3, lw=0)
    top.plot(x, y, "-.", color=INK)
    top.plot(x, gradient, color=INK)
    top.text(3.1, 1.05, "arctan")
    top.text(1.3, 0.6, "circles: float64, on the gradient", color=BLUE)
    top.text(0.3, -0.36, "crosses: float32, where rounding allows", color=ORANGE)
    for quotient, error, marker, color, bits in zip(quotients, errors, "xo", (ORANGE, BLUE), (32, 64), strict=True):
        style = {"color": color, "marker": marker, "mfc": "none", "ms": 5}
        top.plot(x[::10], quotient[::10], ls="", zorder=4 - bits // 32, **style)
        bottom.loglog(steps, error, ls="--" if bits == 32 else "-", **style)
        bottom.text(1e-10, 3 if bits == 32 else 3e-6, f"float{bits}", color=color)
    bottom.axvline(1e-6, color=INK, ls=":")
    bottom.text(7e-7, 5e-13, "eps of gradcheck", ha="right")
    top.set(xlabel="x", title="differences with h = 1e-6", ylim=(-0.45, 1.45), yticks=[0, 0.5, 1])
    bottom.set(xlabel="step h", title="mean error", ylim=(1e-13, 1e2))


def spring_motion(s, u, x, bend):
    """Plot a wrong motion of a spring beside the right one; below it the second derivative of T_3 that is to blame.

    Args:
        s: times from -pi to pi.
        u: the motion that was found.
        x: points from -1 to 1.
        bend: the wrong second derivative of T_3 at x.
    """
    above, below = canvas(rows=2, height=5.6)[1]
    for ax, at, right, wrong in ((above, s, s.sin(), u), (below, x, 24 * x, bend)):
        ax.axhline(0, color=INK, lw=0.8)
        ax.plot(at, right, color=BLUE)
        ax.plot(at, wrong, "--", color=RED)
    above.text(2.45, 0.2, "right: sin s", color=BLUE, ha="right")
    above.text(3.05, 1.2, "found with EarlySlope", color=RED, ha="right")
    above.set(xlabel="time s", title="the spring: a wrong motion, and no error", ylim=(-1.5, 1.6), yticks=[-1, 0, 1])
    below.text(0.5, 15, "right: 24 x", color=BLUE, ha="right")
    below.text(0.9, -4.5, "EarlySlope: 0", color=RED, ha="right")
    below.set(xlabel="x", title="the cause: the second derivative of $T_3$", yticks=[-20, 0, 20])


def legendre_fit(x, target, curves, z, values, slopes):
    """Plot the fit of a target as it forms; below it P_n and its derivative, n from 1.

    Args:
        x: points of the fit.
        target: the values to fit at x.
        curves: step to the fitted values at x, four of them.
        z: points from -1 to 1.
        values: P_n at z, for four n from 1 on.
        slopes: their derivatives at z.
    """
    fit, above, below = canvas(rows=3, height=9)[1]
    dashes = (":", "-.", "--", "-")
    fit.plot(x, target, color=INK, lw=5, alpha=0.5, label="sin x")
    for (step, curve), dash in zip(curves.items(), dashes, strict=True):
        fit.plot(x, curve, dash, color=BLUE, label=f"step {step}")
    places = (0.55, 0.74), (0, -0.68), (-0.45, 0.6), (0, 0.54)
    for n, (value, slope, dash, at) in enumerate(zip(values, slopes, dashes, places, strict=True), 1):
        above.plot(z, value, dash, color=BLUE)
        above.text(*at, f"$P_{n}$", color=BLUE, ha="center", va="center", size=14)
        below.plot(z, slope, dash, color=ORANGE)
        below.plot([-1, 1], [slope[0], slope[-1]], "o", color=ORANGE, ms=5)
        below.text(1.06, slope[-1], f"that of $P_{n}$", color=ORANGE, va="center")
    fit.set(xlabel="x", title="fit", ylim=(-1.2, 1.95), yticks=[-1, 0, 1])
    fit.legend(frameon=False, labelcolor=INK, loc="upper left", ncols=3, columnspacing=1)
    above.set(title="Legendre polynomials", ylim=(-1.1, 1.1), yticks=[-1, 0, 1])
    below.set(title="their derivatives", ylim=(-11, 11), yticks=[-10, -6, -3, 1, 3, 6, 10])
    for ax in (above, below):
        ax.set(xlabel="x", xlim=(-1.1, 1.42), xticks=[-1, -0.5, 0, 0.5, 1])


def walked_past(path):
    """Plot the error of storing numbers against the range, as gradient descent walked down the curve and up again.

    Args:
        path: the range and its error at each step.
    """
    ax = canvas(height=2.8)[1][0]
    alphas, errors = zip(*path, strict=True)
    ax.plot(alphas, errors, color=BLUE)
    ax.plot(alphas[::10], errors[::10], "o", color=ORANGE)
    ax.annotate("step 0", (alphas[0], errors[0]), (0, 10), textcoords="offset points", color=INK, ha="center")
    ax.annotate("step 100", (alphas[-1], errors[-1]), (10, -3), textcoords="offset points", color=INK)
    lowest = min(path, key=lambda step: step[1])
    ax.annotate(
        f"lowest, at {lowest[0]:.1f}",
        lowest,
        (0, 48),
        textcoords="offset points",
        color=INK,
        ha="center",
        arrowprops={"arrowstyle": "->", "color": INK, "shrinkB": 6},
    )
    ax.set(xlabel="range α", title="mean squared error", xlim=(0, 4.3), ylim=(0, 0.72))


def storage_range(alphas, errors, learnt):
    """Plot the error of storing numbers in a few bits against the range, and the range that was learnt.

    Args:
        alphas: ranges.
        errors: number of bits to the error at each range.
        learnt: number of bits to a range and its error.
    """
    ax = canvas(height=3.4)[1][0]
    for bits, dash in zip(errors, ("--", "-", ":"), strict=True):
        ax.semilogy(alphas, errors[bits], dash, color=BLUE)
        ax.plot(*learnt[bits], "o", color=ORANGE)
        ax.text(alphas[-1] + 0.08, errors[bits][-1], f"{bits} bits", color=BLUE, va="center")
    ax.set(xlabel="range α", title="mean squared error", xlim=(0.4, 4.7), ylim=(0.006, 1))


def broadcast_grids(a, b, g):
    """Draw two small tensors beside the result of their broadcasting, and what comes back for each.

    The page has it as a figure that moves, `broadcast-shapes`.

    Args:
        a: a tensor of shape (3, 1), which requires a gradient.
        b: another, of shape (4,).
        g: the upstream gradient, (3, 4).
    """
    y = a + b
    forward, backward = (y, a, b), (g, *torch.autograd.grad(y, (a, b), g))
    axes = canvas(rows=2, height=7)[1]
    names = ("y = a + b", "a", "b"), ("g", "sum over axis 1", "sum over axis 0")
    for ax, tensors, labels, tip in zip(axes, (forward, backward), names, ("->", "<-"), strict=True):
        color, places = BLUE if tip == "->" else ORANGE, ((2.2, 1.7, "-"), (0, 1.7, "-"), (2.2, -0.5, "--"))
        for values, label, (left, top, dash) in zip(tensors, labels, places, strict=True):
            for i, row in enumerate(values.reshape(-1, values.shape[-1])):
                for j, value in enumerate(row):
                    ax.add_patch(plt.Rectangle((left + j, top + i), 1, 1, fc="none", ec=color, ls=dash, lw=1.5))
                    ax.text(left + j + 0.5, top + i + 0.5, f"{value:g}", ha="center", va="center")
            shape = f"{label}: {tuple(values.shape)}"
            x, y, side = (left, top - 0.3, "left") if dash == "--" else (left + 0.5 * values.shape[-1], 5.1, "center")
            ax.text(x, y, shape, ha=side, va="center", color=color)
        style = {"arrowprops": {"arrowstyle": tip, "lw": 1.5, "color": INK}}
        for k in range(4):
            ax.annotate("", (2.7 + k, 1.65), (2.7 + k, 0.55), **style)
            if k < 3:
                ax.annotate("", (2.15, 2.2 + k), (1.05, 2.2 + k), **style)
        ax.set(xlim=(-1.2, 6.3), ylim=(5.4, -1.1), aspect="equal", frame_on=False, xticks=[], yticks=[])


def line_fits(x, y, lines):
    """Plot points of a line over the lines that two shapes of the targets lead to.

    Args:
        x: places, of shape (n, 1).
        y: the points there; every fourth is drawn.
        lines: slope and offset by the shape, "column" and "row".
    """
    ax = canvas(height=2.8)[1][0]
    looks = (("column", BLUE, "-", -0.35, 1.95), ("row", RED, "--", -0.95, 0.75))
    for shape, color, dash, left, top in looks:
        w, c = lines[shape]
        ax.plot(x, w * x + c, dash, color=color)
        ax.text(left, top, f"targets as a {shape}", color=color)
    ax.plot(x[::4], y[::4], "o", color=INK, ms=4)
    ax.set(xlabel="x", ylabel="y", xticks=[-1, 0, 1])


def two_roads(x, values, slopes):
    """Plot a step over its ramp, and the slope of each.

    Args:
        x: points.
        values: of the "step" and of the "ramp".
        slopes: the same functions' slopes.
    """
    forward, backward = canvas(columns=2, height=2.6)[1]
    forward.plot(x, values["ramp"], "--", color=ORANGE)
    backward.plot(x, slopes["ramp"], color=ORANGE)
    for side in (x <= 0, x > 0):
        forward.plot(x[side], values["step"][side], color=BLUE)
        backward.plot(x[side], slopes["step"][side], ":", color=INK)
    forward.text(-1.5, 0.08, "the step", color=BLUE)
    forward.text(-0.12, 0.6, "a ramp", color=ORANGE, ha="right")
    backward.text(0, 1.06, "the ramp's", color=ORANGE, ha="center")
    backward.text(0, 0.08, "step's", color=INK, ha="center")
    for ax, title in ((forward, "forward: the value"), (backward, "backward: the slope")):
        ax.set(title=title, xlabel="x", ylim=(-0.1, 1.25), xticks=[-1, 0, 1], yticks=[0, 1])


def surrogates(x, curves):
    """Plot piecewise constant functions over the surrogates whose gradients stand in for theirs.

    Args:
        x: points.
        curves: name to the function at x, its identity surrogate and its clipped one (or None).
    """
    places = (
        ((-1.2, -1.25), (0.4, 0.3), (-1.9, 0.2)),
        ((-1.2, -1.75), (0.4, -0.1), (-1.9, -0.75)),
        ((0.75, 0.3), 0, (0.5, 1.2)),
    )
    for ax, (name, (value, identity, ramp)), at in zip(
        canvas(rows=3, height=7)[1], curves.items(), places, strict=True
    ):
        jump = (value.diff() != 0).tolist()
        line = value.tolist()
        for k, (left, right) in enumerate(zip([False, *jump], [*jump, False], strict=True)):
            if left:
                line[k] = float("nan")
            if left and right:
                ax.plot(x[k], value[k], "o", color=BLUE)
        if ramp is not None:
            ax.plot(x, ramp, color=ORANGE, lw=6, alpha=0.4)
            ax.text(*at[1], "clipped ramp", color=ORANGE)
        ax.plot(x, identity, ":", color=ORANGE)
        ax.text(*at[0], "identity", color=ORANGE)
        ax.plot(x, line, color=BLUE)
        ax.text(*at[2], name, color=BLUE)
        ax.set(ylim=(-2.2, 2.2), yticks=[-2, -1, 0, 1, 2], xticks=[-2, -1, 0, 1, 2])
    ax.set_xlabel("x")


def binary_training(losses, still, path):
    """Plot a binary net's loss without and with an estimator, and latent weights on their way.

    Args:
        losses: the loss before each step, first as it is, then with the estimator.
        still: latent weights before each step, a column each; as it is.
        path: the same weights with the estimator.
    """
    top, bottom = canvas(rows=2, height=6)[1]
    top.plot(losses[0], ":", color=INK)
    top.plot(losses[1], color=BLUE)
    top.text(60, 2.08, "as it is")
    top.text(60, 0.14, "with the clipped estimator", color=BLUE, ha="center")
    top.set(title="loss", ylim=(0, 2.4))
    bottom.fill_between([0, len(path) - 1], -0.5, 0.5, color=INK, alpha=0.15, lw=0)
    bottom.plot(still, ":", color=INK, lw=1.5)
    for bit, dash in ((1, "-"), (0, "--")):
        part = path[:, (path[-1] > 0) == bit]
        bottom.plot(part, dash, color=BLUE, lw=1.5)
        bottom.text(102, part[-1].max() if bit else part[-1].min(), f"end as\nbit {bit}", color=BLUE, va="center")
    bottom.text(102, 0, "as it is", va="center")
    bottom.set(title="latent weights; shaded: where the ramp rises", xlabel="step", ylim=(-0.7, 0.75))
    for ax in (top, bottom):
        ax.set(xlim=(-3, 122), xticks=range(0, 101, 20))


def checkpoint_timeline(plain, every):
    """Plot how many activations autograd keeps at each step, without a checkpoint and with one at every fourth layer.

    Args:
        plain: for each step, the activations kept, and those that backward computed again: without a checkpoint.
        every: the same, with one.
    """
    ax = canvas(height=3.2)[1][0]
    ax.step(range(1, len(plain) + 1), [kept + again for kept, again in plain], "--", where="mid", color=INK)
    steps = range(1, len(every) + 1)
    kept, alive = [kept for kept, _ in every], [kept + again for kept, again in every]
    ax.fill_between(steps, kept, step="mid", color=BLUE, alpha=0.35, lw=0)
    ax.fill_between(steps, kept, alive, step="mid", fc=ORANGE + "26", lw=0)
    ax.step(steps, kept, where="mid", color=BLUE)
    ax.step(steps, alive, where="mid", color=ORANGE)
    ax.text(20, 14.5, "no checkpoint: 17", color=INK)
    ax.text(29, 8, "at most 8: 4 kept,\n4 computed again", color=ORANGE)
    ax.text(7, 4.4, "kept", color=BLUE)
    ax.set(xlabel="step: a layer forward, forward again, or backward", ylabel="activations alive", ylim=(0, 18))
    ax.set_yticks(range(0, 17, 4))


def memory_time(ks, rows):
    """Plot what checkpointing keeps and at most holds, against the segment length and against the forwards it costs.

    Args:
        ks: segment lengths, the square root of the number of layers in the middle.
        rows: name of a plan to its layer forwards, KiB kept before backward, and KiB at most; "every k" for each k.
    """
    top, bottom = canvas(rows=2, height=7)[1]
    at_k = [rows[f"every {k}"] for k in ks]
    top.plot(ks, [most for _, _, most in at_k], "-o", color=ORANGE)
    top.plot(ks, [kept for _, kept, _ in at_k], "--s", color=BLUE)
    top.text(ks[len(ks) // 2], 190, "at most, in backward", color=ORANGE, ha="center")
    top.text(ks[len(ks) // 2], 12, "before backward", color=BLUE, ha="center")
    places, best = {}, ks[len(ks) // 2]
    for k in ks:
        places.setdefault(rows[f"every {k}"][::2], []).append(str(k))
    points = {place: (f"k = {', '.join(same)}", "o", ORANGE) for place, same in places.items()}
    points |= {rows["none"][::2]: ("none", "s", INK), rows[f"every {best}"][::2]: (f"k = {best} = √n", "*", ORANGE)}
    points |= {rows["halves"][::2]: ("halves in halves", "^", INK), rows["full"][::2]: ("full", "D", INK)}
    for place, (label, marker, color) in points.items():
        bottom.plot(*place, marker, ms=12 if marker == "*" else 8, color=color)
        bottom.annotate(label, place, (10, 0), textcoords="offset points", va="center")
    for ax, ticks in ((top, ks), (bottom, (16, 32, 64, 128))):
        ax.set_xscale("log", base=2)
        ax.set(xticks=ticks, xticklabels=ticks, ylim=(0, 295))
    top.set(title="a checkpoint at every k-th layer", xlabel="k", ylabel="KiB kept")
    bottom.set(title="all plans", xlabel="layer forwards", ylabel="KiB kept at most", xlim=(13, 220))


def float_window(x):
    """Draw exponentials against float32's range, and below them the same relative to the largest number.

    The page has it as a figure that moves, `float-window`.

    Args:
        x: six numbers, of which some exponentials are outside.
    """
    terms = [(x[:n] - x[:n].max()).exp() for n in (2, 4, 6)]  # after one piece, two, three
    top, bottom = canvas(rows=2, height=5.4)[1]
    names = [f"{v:g}" for v in x.tolist()]
    places = range(len(names))
    top.axvspan(-37.9, 38.5, color=BLUE, alpha=0.15, lw=0)
    for place, v, value in zip(places, x.tolist(), x.exp().tolist(), strict=True):
        style = {"color": RED, "hatch": "//"} if value == float("inf") else {"color": BLUE}
        top.barh(place, v / 2.3026 + 46, left=-46, height=0.6, **style)
        top.text(47, place, f"{value:.0e}".replace("+", ""), va="center")
    top.set(xlim=(-46, 46), xticks=[-38, 0, 38], xticklabels=["1e-38", "1", "3e38"])
    top.set(title="exp(x): shaded is what float32 can hold")
    bottom.barh(places, terms[-1], height=0.6, color=BLUE)
    for earlier in terms[:-1]:
        bottom.barh(places[: len(earlier)], earlier, height=0.6, fill=False, ec=INK, ls=":", lw=1.2)
    for place, value in zip(places, terms[-1].tolist(), strict=True):
        bottom.text(1.03, place, f"{value:.2f}" if value > 0.01 else f"{value:.0e}", va="center")
    bottom.set(xlim=(0, 1.02), xticks=[0, 0.5, 1], title="exp(x - m); dotted: with an earlier, smaller m")
    for ax in (top, bottom):
        ax.set(yticks=list(places), yticklabels=names, ylim=(5.6, -0.6))


def shifted_sum(a, sums, b, slopes):
    """Plot the errors of two ways to compute log-sum-exp, and of two ways to compute its gradient.

    Args:
        a: numbers added to the inputs.
        sums: the mean error at each a, of the formula and of the shifted sum; infinite where they overflow.
        b: further such numbers, evenly apart on a logarithmic axis.
        slopes: the largest relative error at each b, of exp(x - lse) and of the quotient.
    """
    top, bottom = canvas(rows=2, height=6)[1]
    broken = ~sums[:, 0].isfinite()
    for side, word in ((a < 0, "log 0"), (a > 0, "overflow")):
        span = a[broken & side]
        top.axvspan(span.min(), span.max(), color=RED, alpha=0.1, lw=0)
        top.text(span.mean(), 1e-4, word, ha="center", va="center", rotation=90)
    names = ("formula", (-92, 1e-3)), ("shifted", (-20, 6e-6))
    ways = ("exp(x − lse)", (30, 3e-4)), ("quotient", (1e3, 6e-7))
    for ax, at, errors, labels in ((top, a, sums, names), (bottom, b, slopes, ways)):
        ax.semilogy(at, errors[:, 1], color=BLUE, lw=6, alpha=0.4)
        ax.semilogy(at, errors[:, 0], "--", color=RED)
        for (label, place), color in zip(labels, (RED, BLUE), strict=True):
            ax.text(*place, label, color=color)
    top.set(title="log-sum-exp, float32: mean error", ylim=(1e-8, 1), xticks=[-100, -50, 0, 50, 100])
    bottom.set(title="softmax, float32: largest relative error", xscale="log", ylim=(1e-8, 1))
    for ax in (top, bottom):
        ax.set(xlabel="a, added to every input", yticks=[1e-7, 1e-5, 1e-3, 1e-1])


def hessians(matrices):
    """Draw two small matrices with their numbers: blue above 0, orange below, the stronger the larger.

    Args:
        matrices: name to a square matrix.
    """
    for ax, (name, matrix) in zip(canvas(columns=2, height=2.8)[1], matrices.items(), strict=True):
        for i, row in enumerate(matrix.tolist()):
            for j, value in enumerate(row):
                color = BLUE if value > 0 else ORANGE
                ax.add_patch(plt.Rectangle((j, i), 0.97, 0.97, fc=color, alpha=min(abs(value), 0.15), lw=0))
                ax.add_patch(plt.Rectangle((j, i), 0.97, 0.97, fill=False, ec=INK, lw=0.6))
                ax.text(j + 0.48, i + 0.5, f"{value:.2f}".replace("-", "−"), ha="center", va="center")
        ax.set(xlim=(0, len(matrix)), ylim=(len(matrix), 0), aspect="equal")
        ax.set(title=name, frame_on=False, xticks=[], yticks=[])


def attention_memory(lengths, floats, slopes):
    """Plot what autograd keeps of attention against the length.

    Args:
        lengths: of queries and keys.
        floats: name to the floats kept at each length; the last two lie on one line.
        slopes: name to the slope at the end.
    """
    ax = canvas(height=4.2)[1][0]
    looks = (
        (INK, "--^", 2, 3, "right"),
        (INK, ":s", 2, 0.9, "left"),
        (BLUE, "-o", 2, 0.5, "left"),
        (BLUE, "--", 6, 0.26, "left"),
    )
    middle = len(lengths) // 2
    for (name, kept), (color, style, width, lift, side) in zip(floats.items(), looks, strict=True):
        alpha = 0.5 if width > 2 else 1
        ax.loglog(lengths, kept, style, color=color, lw=width, ms=7, mfc="none", alpha=alpha)
        at = lengths[middle] * (1.3 if side == "left" else 0.9), kept[middle] * lift
        ax.text(*at, f"{name}: slope {slopes[name]:.2f}", color=color, ha=side, va="center")
    ax.set(xlabel="length N", title="floats kept for backward", ylim=(1.5e4, 1e8))
    ax.set_xticks(lengths, lengths)
    ax.minorticks_off()


def wave_bits(wave, weights):
    """Plot a wave and the weights of a hidden unit: in float64, and on a grid.

    At 2 bits, after training, the page has it as a figure that moves, `wave-bits`.

    Args:
        wave: 32 samples, the same on the grid, and the places whose gradient is 0.
        weights: the same of 32 weights.
    """
    for ax, (t, on_grid, clipped), name in zip(
        canvas(rows=2, height=4.4)[1], (wave, weights), ("a triangle", "32 weights of a hidden unit"), strict=True
    ):
        ax.axhline(0, color=INK, lw=0.8)
        ax.step(range(len(t)), on_grid, where="mid", color=BLUE)
        ax.plot(t, "o", color=INK, ms=4)
        ax.plot(clipped, t[clipped], "X", color=RED, ms=8, ls="")
        ax.set_title(name, loc="left", fontsize="medium")
    ax.set(xlabel="sample")


def quantiser_stairs(x, y, to_x, to_s, level):
    """Plot a quantiser, its gradient for its input and for its scale.

    Args:
        x: points.
        y: the quantised values.
        to_x: the gradient for x at each point.
        to_s: what each point adds to the gradient for the scale.
        level: the integer that each point is stored as, the true slope for the scale.
    """
    value, mask, saw = canvas(rows=3, height=6.4)[1]
    value.get_gridspec().set_height_ratios([3, 1.2, 3])
    value.plot(x, x, "--", color=INK, lw=1.5)
    value.text(2.35, 2.8, "x", ha="right")
    saw.plot(x, level, ":", color=INK)
    saw.text(-0.9, -3, "true slope q")
    labels = (value, y, BLUE, "y", (2.5, 0.8)), (mask, to_x, ORANGE, "gradient for x", (-0.25, 1.25))
    for ax, t, color, label, at in (*labels, (saw, to_s, ORANGE, "gradient for s", (-1, 1.4))):
        line = t.masked_fill(t.diff(prepend=t[:1]).abs() > 0.3, float("nan"))
        ax.plot(x, line, color=color)
        ax.text(*at, label, color=color, ha="center")
        ax.set_xlim(-3.2, 3.2)
    value.set(ylim=(-2.8, 3.2), yticks=[-2, -1, 0, 1, 1.5])
    mask.set(ylim=(-0.2, 2.2), yticks=[0, 1])
    saw.set(ylim=(-4.8, 3.8), yticks=[-4, -2, 0, 2, 3], xlabel="x")


def accuracy_bits(bits, floats, scores):
    """Plot the accuracy of quantised nets against the number of bits, with the spread over seeds.

    Args:
        bits: numbers of bits.
        floats: the accuracies in float64, one for each seed.
        scores: (grid, bits, steps) to the accuracies, one for each seed.
    """
    ax = canvas(height=4.2)[1][0]
    ax.axhspan(min(floats), max(floats), fc=INK + "66", ec=INK, lw=1)
    ax.text(3.25, min(floats) - 0.01, "float", va="top")
    after = [[a for (_, b, steps), runs in scores.items() if (b, steps) == (n, 0) for a in runs] for n in bits]
    ends = [min(a) for a in after], [max(a) for a in after]
    ax.fill_between(range(len(bits)), *ends, fc=INK + "1c", ec=INK, lw=1)
    ax.text(1.8, 0.5, "post-training", ha="right")
    names = {"tensor": (BLUE, ":s"), "row": (BLUE, "--^"), "learned": (BLUE, "-o")}
    for shift, (kind, (color, style)) in zip((-0.08, 0, 0.08), names.items(), strict=True):
        runs = [sorted(scores[kind, n, 100]) for n in bits]
        middle = [r[len(r) // 2] for r in runs]
        spread = [[r[len(r) // 2] - r[0] for r in runs], [r[-1] - r[len(r) // 2] for r in runs]]
        at = [k + shift for k in range(len(bits))]
        ax.errorbar(at, middle, spread, fmt=style, color=color, ms=7, mfc="none", capsize=3)
        ax.text(3.25, middle[-1] + shift / 3, f"trained, {kind}".replace("learned", "learnt"), color=color, va="center")
    ax.set(title="accuracy", xlim=(-0.25, 4.6), ylim=(0.25, 1.02), xlabel="bits", xticks=range(len(bits)))
    ax.set_xticklabels(bits)


def tape(relu):
    """Draw a small computation: forward, what it keeps, and backward, which reads that.

    The page has it as a figure that moves, `tape`.

    Args:
        relu: the chapter's ReLU.
    """
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    y = relu(u := 3 * x)
    loss = 10 * y[0] + y[1]
    kept = "", "3", "", f"u, version {u._version}", "", "10, 1", ""
    tensors = x, u, y, loss, *torch.autograd.grad(loss, (x, u, y, loss))
    n = [str(t.int().tolist()).translate(str.maketrans("[]-", "()−")) for t in tensors]
    forward = f"x = {n[0]}", "times 3", f"u = {n[1]}", "ReLU", f"y = {n[2]}", "weigh, add", f"L = {n[3]}"
    backward = f"x.grad = {n[4]}", "times 3", f"to u: {n[5]}", "0 where u ≤ 0", f"to y: {n[6]}", "times 10, 1", n[7]
    ax, boxes = canvas(height=4.8)[1][0], {}
    for lane, (name, words) in enumerate({"forward": forward, "kept": kept, "backward": backward}.items()):
        ax.text(lane, 0.7, name, ha="center", weight="bold")
        for row, text in enumerate(words):
            look = {"fc": BLUE + "40" if lane == 1 else "none", "ec": INK if row % 2 else (BLUE, INK, ORANGE)[lane]}
            boxes[lane, row] = ax.text(lane, -row, text, ha="center", va="center", bbox=look if text else None)
    ways = [way for row in range(6) for way in (((0, row), (0, row + 1)), ((2, row + 1), (2, row)))]
    ways += [((lane, row), (lane + 1, row)) for lane in (0, 1) for row in (1, 3, 5)]
    for a, b in ways:
        look = {"arrowstyle": "->", "color": ORANGE if b[0] == 2 else BLUE, "lw": 1.5}
        look |= {"patchA": boxes[a].get_bbox_patch(), "patchB": boxes[b].get_bbox_patch()}
        ax.annotate("", (b[0], -b[1]), (a[0], -a[1]), arrowprops=look)
    u.detach().neg_()
    broken, box = f"after u.neg_():\nversion {u._version}, an error", {"fc": "none", "ec": RED, "ls": "--"}
    ax.text(1, -4, broken, ha="center", va="center", bbox=box)
    ax.set(title="Backward reads what forward kept", xlim=(-0.5, 2.5), ylim=(-6.4, 1))
    ax.axis("off")


def fault_patterns():
    """Draw the Jacobian that each fault of a backward leaves, and fill what differs from the measured one.

    The page has it as a figure that moves, `read-matrix`.
    """
    x = torch.tensor([1.0, -1.0, 2.0, -2.0], dtype=torch.float64)
    right = torch.autograd.functional.jacobian(lambda t: 2 * torch.where(t > 0, t * t, t).cumsum(0), x).T
    own = right.diag()[:, None]  # what each input does to its own output, and to all later ones
    faults = {"right": right, "summed over everything": own.expand(4, 4)}
    faults |= {"summed from the wrong end": own * torch.ones(4, 4).tril()}
    faults |= {"a factor forgotten": right / 2, "one branch wrong": torch.where(x > 0, 1, 2 * x)[:, None] * right}
    faults |= {"detached": 0 * right}
    figure, axes = canvas(columns=2, rows=3, height=8.2)
    for ax, (name, matrix) in zip(axes, faults.items(), strict=True):
        for k, (number, off) in enumerate(zip(matrix.flatten().tolist(), (matrix != right).flatten(), strict=True)):
            i, j = divmod(k, 4)
            ax.add_patch(plt.Rectangle((j, i), 0.94, 0.94, fc=RED if off else "none", ec=INK, lw=0.8))
            word = {"s": f"{number + 0:g}".replace("-", "−"), "weight": "bold" if off else "normal"}
            ax.text(j + 0.47, i + 0.5, **word, color="black" if off else INK, ha="center", va="center")
        title = name.replace("from the", "from\nthe")
        ax.set(title=f"{title}\n{(matrix != right).sum()} of 16 differ", xlim=(0, 4), ylim=(4, 0), aspect="equal")
        ax.set_xticks([0.5, 1.5, 2.5, 3.5], ["y₀", "y₁", "y₂", "y₃"])
        ax.set_yticks([0.5, 1.5, 2.5, 3.5], [f"x{'₀₁₂₃'[i]} = {t:g}".replace("-", "−") for i, t in enumerate(x)])
        ax.tick_params(length=0, labelleft=ax in axes[::2])
        ax.set_frame_on(False)
    figure.suptitle("Five faults, five patterns.\nFilled: where backward is wrong.")


def one_tile():
    """Draw the score matrix of 10 queries and 11 keys, of which one tile exists, and what the queries carry.

    The page has it as a figure that moves, `attention-tiles`.
    """
    q = torch.tensor([1.0, -1, 2, -2, 1, 2, -1, -2, 2, 1])
    k = torch.tensor([0.0, 1, -1, 1, 2, 0, -2, -1, 1, 3, -3])
    scores = torch.outer(q, k) + 0  # no -0
    tiles = [(range(i, min(i + 4, 10)), range(j, min(j + 3, 11))) for i in (0, 4, 8) for j in (0, 3, 6, 9)]
    queries, keys = tiles[5]  # the sixth
    ax, words = canvas(height=3.7)[1][0], {(-1.1, -1.4): "queries", (5.5, -1.4): "keys and values"}
    words |= {(11.7, -0.5): "m", (13, -0.5): "ℓ", (14.6, -0.5): "a/ℓ"}
    for n, (rows, columns) in enumerate(tiles, 1):
        x, y, width, height = columns[0], rows[0], len(columns), len(rows)
        look = {"ec": INK, "fc": "none", "ls": "-" if n < 6 else ":"} if n != 6 else {"ec": ORANGE, "fc": ORANGE + "26"}
        ax.add_patch(plt.Rectangle((x + 0.05, y + 0.05), width - 0.1, height - 0.1, lw=1 + 1.5 * (n == 6), **look))
        words |= {(x + width / 2, -0.5): f"{x}–{columns[-1]}", (-1, y + height / 2): f"{y}–{rows[-1]}"}
        words |= {(x + width / 2, y + height / 2): "gone" if n < 6 else n} if n != 6 else {}
    words |= {(0.94 * j + 0.74, i + 0.5): f"{scores[i, j]:g}" for i in queries for j in keys}
    for i in range(queries.stop):
        seen = scores[i, : keys.stop if i in queries else len(k)]
        m, out = seen.max(), seen.softmax(0) @ torch.arange(len(seen)).float()
        carried = f"{m:g}", f"{(seen - m).exp().sum():.2f}", f"{out:.2f}"
        shrunk = (seen[: keys.start].max() - m).exp()
        last = "= o" if i not in queries else f"× {shrunk:.2f}" if shrunk < 1 else ""
        words |= {(x, i + 0.5): word for x, word in zip((11.7, 13, 14.6, 16.6), (*carried, last), strict=True)}
    for at, word in words.items():
        ax.text(*at, str(word).replace("-", "−"), ha="center", va="center", size=9)
    exist = f"Only one tile exists: {len(queries) * len(keys)} of {scores.numel()} scores."
    ax.set(title=f"{exist}\nWhat is gone lives on in m, ℓ and a/ℓ.", xlim=(-2.3, 17.8), ylim=(10.2, -2), aspect="equal")
    ax.set_axis_off()


def which_way():
    """Draw the questions that lead to plain torch, a hook, a checkpoint, a Function, an operator, or both of these.

    Where autograd has the backward the end is dashed, where you write it filled.
    """
    asked = {"Will plain torch do: its value,\nits gradient, its memory?": "1  Plain torch,\nor a Module"}
    asked |= {"Will you only watch or change\na gradient on its way?": "2  A hook"}
    asked |= {"Is the only trouble that\nautograd keeps too much?": "3  A checkpoint"}
    asked |= {"Does it stay in eager torch:\nno compile, no export?": "4  A Function\nof any code"}
    asked |= {"Is all of forward made\nof torch's operations?": "5  A Function,\ntraced into"}
    asked |= {"Is .backward() enough: neither\nfunc.grad nor forward mode?": "6  An operator"}
    asked |= {"7  An operator,\nand a Function around it": ""}
    ax, boxes = canvas(height=7.6)[1][0], {}
    place = {"ha": "center", "va": "center", "size": 10.5}
    yours = {"boxstyle": "round,pad=0.5", "fc": ORANGE + "26", "ec": ORANGE, "lw": 1.5}
    for row, (words, end) in enumerate(asked.items()):
        look = yours | ({"fc": "none", "ec": INK, "ls": "--"} if row < 3 else {})
        if not end:
            boxes[0, row] = ax.text(0, -row, words, **place, weight="bold", bbox=look)
            break
        boxes[0, row] = ax.text(0, -row, words, **place, bbox={"boxstyle": "square,pad=0.5", "fc": "none", "ec": INK})
        boxes[1, row] = ax.text(1, -row, end, **place, weight="bold", bbox=look)
        ax.text(0.62, 0.14 - row, "yes", **place)
        no = {3: "no, it's traced", 4: "no: NumPy, SciPy, C++, CUDA"}.get(row, "no")
        ax.text(0.04, -0.5 - row, no, va="center", size=10.5)
    for x, row in list(boxes)[1:]:
        before = (0, row - 1 + x)
        ends = {"patchA": boxes[before].get_bbox_patch(), "patchB": boxes[x, row].get_bbox_patch()}
        ax.annotate("", (x, -row), (0, -before[1]), arrowprops={"arrowstyle": "->", "color": INK, "lw": 1.5} | ends)
    title = "A Function is enough, until code that\ntorch cannot see is compiled or exported"
    ax.set(title=title, xlim=(-0.52, 1.36), ylim=(-6.4, 0.4))
    ax.axis("off")


def checklist_run(runs):
    """Draw what the checklist says of several Functions, a row for each item and a column for each Function.

    Args:
        runs: name of a Function to its verdicts: item, verdict and text.
    """
    ax, items = canvas(height=7.4)[1][0], [item for item, *_ in next(iter(runs.values()))]
    looks = {
        "passed": ("✓ passed", GREEN + "1c", INK),
        "FAILED": ("✗ FAILED", "none", RED),
        "n/a": ("n/a", "none", INK),
    }
    for row, item in enumerate(items):
        ax.text(-0.08, row, item, ha="right", va="center", size=10.5)
    for column, (name, found) in enumerate(runs.items()):
        ax.text(column + 0.5, -0.7, name, ha="center", va="bottom", size=10.5)
        for row, (_, verdict, _) in enumerate(found):
            word, fill, ink = looks[verdict]
            edge = {"ec": RED, "lw": 1.5} if verdict == "FAILED" else {"lw": 0}
            ax.add_patch(plt.Rectangle((column + 0.03, row - 0.42), 0.94, 0.84, fc=fill, **edge))
            style = {"color": ink, "weight": "bold" if verdict == "FAILED" else "normal"}
            ax.text(column + 0.5, row, word, ha="center", va="center", size=10.5, **style)
    caught = sum(any(verdict == "FAILED" for _, verdict, _ in found) for found in runs.values())
    passed = sum(("gradcheck", "passed") in [each[:2] for each in found] for found in runs.values())
    ax.set(title=f"gradcheck passes {passed} of {len(runs)};\nthe whole list fails {caught}", xlim=(-1.9, len(runs)))
    ax.set(ylim=(len(items) - 0.4, -2))
    ax.set_axis_off()


def traffic_bars(ways):
    """Draw what the operations of a forward and a backward pass read and write, to scale.

    Args:
        ways: name of a way to its forward and its backward: steps of a name, numbers read and numbers written, float32.
    """
    ax = canvas(height=5.9)[1][0]
    passes = [(kind, way, ways[way][k]) for k, kind in enumerate(("forward", "backward")) for way in ways]
    totals = dict.fromkeys(ways, 0.0)
    for row, (kind, way, steps) in enumerate(passes):
        left, (color, full) = 0.0, (BLUE, "#8cb7dd") if kind == "forward" else (ORANGE, "#e3aa80")
        for name, *sizes in steps:
            begin = left
            for size, fill, ink in zip(sizes, (color + "1c", full), (INK, "0.06"), strict=True):
                width = size / 2**18  # MiB
                ax.add_patch(plt.Rectangle((left, row), width, 0.34, fc=fill, ec=color))
                if width > 0.3:
                    ax.text(left + width / 2, row + 0.17, f"{width:.1f}", ha="center", va="center", size=10, color=ink)
                left += width
            words = name.replace("_", "\n" if left - begin > 1 else "_")
            ax.text((begin + left) / 2, row - 0.04, words, ha="center", va="bottom", size=10)
        ax.text(0, row - 0.36, f"{kind}, {way}: {left:.1f} MiB", va="bottom", weight="bold", size=10.5)
        totals[way] += left
    ax.text(0, len(passes) - 0.5, "pale: read      full: written      numbers: MiB", size=10)
    most, least = max(totals.values()), min(totals.values())
    title = ", ".join(f"{way} {total:.1f} MiB" for way, total in totals.items())
    ax.set(
        title=f"Fused, {least / most:.0%} of the bytes are moved:\n{title}",
        xlim=(0, 7.7),
        ylim=(len(passes) - 0.3, -0.6),
    )
    ax.set_axis_off()


def speed_by_length(rows, width):
    """Draw how many operations a second ways to compute attention reach, by the length.

    Args:
        rows: of a way, its width d, its length N, and TFLOP/s forward and backward.
        width: the d that is drawn.
    """
    dashes = {"plain": ":", "Triton": "-", "SDPA, flash": "-.", "FlexAttention": "--", "SDPA, cuDNN": (0, (7, 1))}
    axes = canvas(height=5.6, rows=2)[1]
    for ax, kind, color in zip(axes, ("forward", "backward"), (BLUE, ORANGE), strict=True):
        lines = {
            way: [(r["N"], r[f"{kind} TFLOP/s"]) for r in rows if (r["way"], r["d"]) == (way, width)] for way in dashes
        }
        room, below = 0.095 * max(y for points in lines.values() for _, y in points), 0.0
        for way, points in sorted(lines.items(), key=lambda item: item[1][-1][1]):
            own = way == "Triton"
            ax.plot(*zip(*points, strict=True), color=color, ls=dashes[way], lw=2.6 if own else 1.6)
            below = max(points[-1][1], below + room)
            words = "this page's kernel" if own else way
            ax.text(18_000, below, words, va="center", size=11, weight="bold" if own else "normal")
        lengths = [n for n, _ in lines["Triton"]]
        ax.set_xscale("log", base=2)
        ax.set_xticks(lengths, [str(n) if n < 1024 else f"{n // 1024}k" for n in lengths])
        finding = "The fused forwards run 2 to 7 times as fast as plain\n" if kind == "forward" else ""
        ax.set(title=f"{finding}{kind}, TFLOP/s", ylim=(0, None), xlim=(460, 120_000))
        ax.spines["bottom"].set_bounds(lengths[0], lengths[-1])
    axes[-1].set_xlabel("N, the number of queries and of keys")


def fixed_point_path():
    """Draw z = cos az, iterated from 0 with a = 1, and the slopes there that the derivative of its solution needs."""
    ax, z = canvas(height=4)[1][0], torch.linspace(-0.05, 1.12, 200, dtype=torch.float64)
    path, near, at = [(0.0, 0.0)], torch.tensor([-0.16, 0.16]), 0 * z[0]
    for _ in range(20):
        path += [(at, at.cos()), (at.cos(), at.cos())]
        at = at.cos()
    ax.plot(z, z, "--", color=INK, lw=1)
    ax.plot(z, z.cos(), color=BLUE)
    ax.plot(*zip(*path, strict=True), color=BLUE, lw=1)
    ax.plot(at + near, at.cos() - near * at.sin(), color=ORANGE, lw=5)
    ax.plot(at, at.cos(), "o", color=ORANGE, ms=8)
    ax.text(0.1, 0.02, "start", color=BLUE)
    ax.text(0.03, 0.55, "20 steps:\nforward", color=BLUE, va="center")
    slopes = f"slopes −{at.sin():.2f} in z,\n−{at * at.sin():.2f} in a:\nbackward"
    ax.text(0.89, 0.46, f"one step,\n{slopes}", color=ORANGE, va="top", ha="center")
    ax.text(0.31, 0.25, "y = z")
    ax.text(0.02, 0.88, "y = cos az, a = 1", color=BLUE)
    ax.set(xlabel="z", ylabel="one step", ylim=(0, 1.1), xlim=(-0.05, 1.12))
    ax.set(xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])


def gradient_errors(ks, by_loop, by_adjoint, by_one):
    """Plot how far three gradients of an iteration's solution are off, by the number of steps.

    Args:
        ks: numbers of steps.
        by_loop: the error of autograd through the loop, at each.
        by_adjoint: that of the adjoint, with as many steps.
        by_one: that of the last step alone.
    """
    ax = canvas(height=3.4)[1][0]
    ax.semilogy(ks, by_one, ":", color=RED)
    ax.semilogy(ks, by_loop, "--", color=ORANGE)
    ax.semilogy(ks, by_adjoint, "-", color=ORANGE)
    ax.text(ks[-1], 0.45, "the last step alone", color=RED, ha="right")
    ax.text(25, 3e-3, "through the loop", color=ORANGE)
    ax.text(6, 2e-5, "the adjoint", color=ORANGE)
    ax.set(xlabel="steps", title="error of the slope", xlim=(0, ks[-1] + 1), yticks=[1, 1e-2, 1e-4, 1e-6, 1e-8])


def roads(plan, p, q):
    """Draw who delivers how much to whom: bakeries on the left, cafés on the right, roads as wide as what they carry.

    Args:
        plan: what each bakery, a row, delivers to each café, a column.
        p: the bakeries' numbers.
        q: the cafés' numbers.
    """
    ax, style = canvas(height=3.4)[1][0], {"va": "center", "linespacing": 1.4}
    left, right = torch.linspace(0.5, 2.5, len(p)).tolist(), torch.linspace(0, 3, len(q)).tolist()
    for start, row in zip(left, plan.tolist(), strict=True):
        for end, carried in zip(right, row, strict=True):
            ax.plot((0, 1), (start, end), color=BLUE, lw=45 * carried, alpha=0.55, solid_capstyle="butt")
    for x, side, places, values, names in ((-0.03, "right", left, p, "bakery p"), (1.03, "left", right, q, "café q")):
        name, letter = names.split()
        for number, (place, value) in enumerate(zip(places, values.tolist(), strict=True), 1):
            label = f"{name} {number}\n{letter} = {round(value, 2) + 0.0:.2f}".replace("-", "−")  # no −0.00
            ax.text(x, place, label, ha=side, color=BLUE, **style)
    ax.set(xlim=(-0.42, 1.42), ylim=(3.3, -0.3), frame_on=False, xticks=[], yticks=[])


def there_and_back(out, back):
    """Plot Euler's way from 0 to 4, and the way back that the same steps take from its end.

    Args:
        out: the angles on the way out, evenly apart in time.
        back: those on the way back, at the same times.
    """
    ax, times = canvas(height=3.4)[1][0], torch.linspace(0, 4, len(out))
    ax.plot(times, out, "-o", color=BLUE, ms=5)
    ax.plot(times, back, "--s", color=RED, ms=5, mfc="none")
    for at, color in ((out[0], BLUE), (back[0], RED)):
        ax.text(-0.12, at, f"{at:.2f}", color=color, ha="right", va="center")
    ax.text(4.1, out[-1], f"{out[-1]:.2f}".replace("-", "−"), color=BLUE, va="center")
    ax.text(0.75, 0.1, "out: forward", color=BLUE, ha="right", va="top")
    ax.text(1.5, 2.2, "back, from the end:\nbackward's states", color=RED, va="center")
    ax.set(xlabel="time", title="angle of the pendulum", xlim=(-0.6, 4.6), yticks=[-2, -1, 0, 1, 2, 3])
    ax.set(xticks=range(5))


def engine_order():
    """Draw a small graph: values, gradients, when forward made each node, and when backward ran it."""
    x, w = (torch.tensor(value, requires_grad=True) for value in (2.0, 1.0))
    p = x * (s := w.sin())
    z = (q := p.exp()) + (r := p.cos())
    nodes, ran = [t.grad_fn for t in (z, q, r, p, s)], []
    nodes[3:3] = [nodes[3].next_functions[0][0], nodes[4].next_functions[0][0]]
    names = "z = q + r", "q = exp p", "r = cos p", "x", "w", "p = x · s", "s = sin w"
    values = [f"{t.item():.4f}".replace("-", "−") for t in (z, q, r, x, w, p, s)]
    places = [(0, 0), (-1, -1), (1, -1), (-1, -3), (1, -4), (0, -2), (1, -3)]
    for node in nodes:
        node.register_prehook(lambda g, node=node: ran.append((node, g[0].item())))
    z.backward()
    ax = canvas(height=5.2)[1][0]
    where = dict(zip(nodes, places, strict=True))
    boxes, box = {}, {"boxstyle": "round,pad=0.35", "fc": "none", "ec": BLUE}
    for number, (node, g) in enumerate(ran, 1):
        (left, top), k, leaf = where[node], nodes.index(node), hasattr(node, "variable")
        boxes[node] = ax.text(left, top, f"{names[k]}\n{values[k]}", color=BLUE, bbox=box, ha="center", va="center")
        ax.text(left - 0.5, top, f"ran {number}", ha="right", va="bottom", weight="bold")
        made = "a leaf" if leaf else f"made {node._sequence_nr() - nodes[-1]._sequence_nr() + 1}"
        ax.text(left - 0.5, top - 0.02, made, ha="right", va="top")
        came = f"{names[k]}.grad\n{g:.4f}" if leaf else f"{g:.4f}"
        ax.text(left + 0.5, top, came.replace("-", "−"), color=ORANGE, va="center")
    for a, b in ((n, after) for n in nodes for after, _ in n.next_functions if after in boxes):
        ends = {"patchA": boxes[a].get_bbox_patch(), "patchB": boxes[b].get_bbox_patch(), "arrowstyle": "->"}
        ax.annotate("", where[b], where[a], arrowprops=ends | {"color": ORANGE, "lw": 1.5})
    ax.text(0, 0.42, "value", color=BLUE, ha="center")
    ax.text(0.5, 0.42, "gradient", color=ORANGE)
    ax.set(xlim=(-2, 1.9), ylim=(-4.3, 0.65), frame_on=False, xticks=[], yticks=[])


def hook_places():
    """Draw where a hook can sit on the way back through z = 3 y, y = x x, in the order in which torch calls them."""
    x = torch.tensor(2.0, requires_grad=True)
    z = 3 * (y := x * x)
    nodes, ran, stops = {"y's Mul": y.grad_fn, "AccumulateGrad": y.grad_fn.next_functions[0][0]}, [], {}
    hooks = {f"x.{name}": getattr(x, name) for name in ("register_hook", "register_post_accumulate_grad_hook")}
    hooks |= {f"{w} of {k}": getattr(n, w) for k, n in nodes.items() for w in ("register_prehook", "register_hook")}
    for name, register in (hooks | {"y.register_hook": y.register_hook}).items():
        register(lambda *_, name=name: ran.append(name))
    for name, t in {"y": y, "x": x}.items():
        slope = torch.autograd.grad(z, t, retain_graph=True)[0].item()
        stops[len(ran)] = f"gradient\nof {name}: {slope:.0f}", f"grad(z, {name}) stops here"
        ran.clear()
    z.backward()
    ax, box = canvas(height=6.4)[1][0], {"boxstyle": "round,pad=0.35", "fc": "none", "ec": BLUE}
    for top, bottom in ((0.5, 2.45), (4.9, 6.35), (7.45, 9.2)):
        ax.annotate("", (0, bottom), (0, top), arrowprops={"arrowstyle": "->", "color": ORANGE, "lw": 1.5})
    ax.plot([-0.03, -0.03, 0, 0.03, 0.03], [3.5, 4.2, 4.85, 4.2, 3.5], color=ORANGE, lw=1.5)  # one for each factor
    for row, words in {0: "Mul\nz = 3 · y", 3: "Mul\ny = x · x", 6.9: "Accumulate-\nGrad"}.items():
        ax.text(0, row, words, color=BLUE, ha="center", va="center", bbox=box)
    for number, (row, name) in enumerate(zip((1, 2.1, 3.9, 4.9, 6, 7.8, 8.6), ran, strict=True), 1):
        ax.plot([-0.03, 0.03] if number == 3 else [0, 0], [row] * 2, "os"["of" in name] + "-", color=ORANGE, ms=8, lw=8)
        ax.text(-0.07, row, f"{number}", ha="right", va="center", weight="bold")
        ax.text(0.09, row, name, va="center", size=10.5)
        if stop := stops.get(number):
            ax.text(-0.16, row, stop[0], color=ORANGE, ha="right", va="center")
            ax.plot([-0.41, 1.05], [row + 0.5] * 2, "--", color=INK, lw=1)
            ax.text(1.05, row + 0.53, stop[1], ha="right", va="top", size=10.5)
    ax.set(title="Round: a tensor's. Square: a node's.", xlim=(-0.42, 1.06), ylim=(9.3, -0.5))
    ax.axis("off")


def complex_slope():
    """Draw the loss |z|^2 around z = 3 + 4i: torch's gradient, its conjugate, and a step against each."""
    z = torch.tensor(3 + 4j, requires_grad=True)
    (g,) = torch.autograd.grad(z.abs().square(), z)
    start, slope = z.item(), g.item()
    ax, turn = canvas(height=4.6)[1][0], torch.exp(1j * torch.linspace(0, 6.2832, 200))
    ring = z.detach().abs() * turn
    ax.plot(ring.real, ring.imag, color=BLUE)
    for way, name, colour, dash in ((slope, "gradient", ORANGE, "-"), (slope.conjugate(), "conjugate", INK, "--")):
        tip, after = start + way, start - 0.2 * way
        look = {"arrowstyle": "-|>", "color": colour, "lw": 2, "ls": dash, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (tip.real, tip.imag), (start.real, start.imag), arrowprops=look)
        words = f"{name}\n{way.real:.0f} {'−+'[way.imag > 0]} {abs(way.imag):.0f}i"
        ax.text(tip.real + 0.4, tip.imag, words, color=colour, va="center")
        step = {"color": GREEN, "marker": "o"} if colour == ORANGE else {"color": RED, "marker": "X"}
        ax.plot([start.real, after.real], [start.imag, after.imag], ms=9, lw=3, markevery=[1], **step)
        words = f"step, loss {abs(after) ** 2:.1f}"
        ax.text(after.real - 0.5, after.imag, words, color=step["color"], ha="right", va="center")
    ax.plot(start.real, start.imag, "o", color=BLUE, ms=9)
    ax.text(start.real + 0.7, start.imag, f"z = 3 + 4i, loss {abs(start) ** 2:.1f}", color=BLUE, va="center")
    ax.set(xlim=(-6, 13), ylim=(-6.5, 13), xlabel="real part", ylabel="imaginary part", aspect="equal")
    ax.set(xticks=[-5, 0, 5, 10], yticks=[-5, 0, 5, 10])


def memory_gaps():
    """Draw where the g lies that backward of `cat` hands back, and where a kernel reads that knows of no gaps."""
    stored = torch.arange(1, 13)  # the gradient of two tensors of shape (2, 3), side by side
    g = stored.reshape(2, 6)[:, :3]
    read = g.as_strided((2, 3), (3, 1))
    ax, style = canvas(height=2.2)[1][0], {"ha": "center", "va": "center"}
    for number in stored.tolist():
        own = {"fc": ORANGE + "40", "ec": ORANGE, "lw": 1.5} if number in g else {"fc": "none", "ec": INK, "lw": 0.8}
        ax.add_patch(plt.Rectangle((number - 0.95, -0.5), 0.9, 1, **own))
        ax.text(number - 0.5, 0, number, **style, color=ORANGE if number in g else INK)
    for row in range(2):
        right = read[row].equal(g[row])
        below = ("✓", GREEN) if right else ("✗", RED)
        for rows, sign, mark, color in ((g, -1, "g,", ORANGE), (read, 1, f"{below[0]} read as", below[1])):
            start, end = rows[row, 0].item() - 0.95, rows[row, 0].item() + 1.95
            near, far = 0.6 * sign, 0.8 * sign
            ax.plot([start, start, end, end], [near, far, far, near], color=color)
            ax.text(start + 1.45, 1.3 * sign, f"{mark} row {row + 1}", **style, color=color)
    ax.set(xlim=(-0.1, 12.1), ylim=(1.8, -1.8))
    ax.set_axis_off()


def wild_packages(rows):
    """Draw the Functions of each package, and how many of them failed which item of the checklist.

    Args:
        rows: of each Function its package, its name, and the items that it failed.
    """
    packages = {}
    for row in rows:
        name = row["function"].partition(",")[0]  # a Function may have two rows
        packages.setdefault(row["package"], {}).setdefault(name, {}).update(row["failed"])
    items = [item for functions in packages.values() for failed in functions.values() for item in failed]
    items = sorted(dict.fromkeys(items), key=items.count, reverse=True)
    ax, style = canvas(height=6.6)[1][0], {"va": "center", "size": 10.5}
    for column, item in enumerate(items):
        ax.text(column + 4.9, -0.7, item, ha="left", va="bottom", rotation=55, size=10.5)
    ax.text(2, -0.8, "Functions", ha="center", va="bottom", size=10.5)
    for line, (package, functions) in enumerate(packages.items()):
        ax.text(-0.2, line, package, ha="right", **style)
        for place, names in enumerate(functions.values()):
            mark, color = ("✗", INK) if names else ("✓", GREEN)
            ax.text(place + 0.5, line, mark, ha="center", color=color, **style)
        for column, item in enumerate(items):
            count = sum(item in names for names in functions.values())
            look = {"fc": INK + "18", "ec": INK, "lw": 1.2} if count else {"fc": "none", "ec": INK, "lw": 0.3}
            ax.add_patch(plt.Rectangle((column + 4.55, line - 0.42), 0.9, 0.84, **look))
            ax.text(column + 5, line, count or "", ha="center", **style)
    ax.set(xlim=(-4.6, len(items) + 6.4), ylim=(len(packages) - 0.4, -4.2))
    ax.set_axis_off()


def who_holds_what():
    """Draw the values and the gradients of one hidden layer on two ranks, and where they talk."""
    copies, a, b = torch.full((2,), 2.0, requires_grad=True), torch.tensor([3.0, -1.0]), torch.tensor([1.0, 2.0])
    (h := a * copies).retain_grad()
    (parts := b * h).retain_grad()
    (y := parts.sum()).retain_grad()
    (y.square() / 2).backward()
    forward = [copies, copies, h, parts, y.expand(2)]
    backward = [copies.grad.sum().expand(2), copies.grad, h.grad, parts.grad, y.grad.expand(2)]
    ax = canvas(height=4.4)[1][0]
    for name, at in (("f", 0.5), ("g", 3.5)):
        ax.plot([at, at], [0.95, -4.7], ":", color=INK, lw=1)
        ax.text(at, 1.05, name, ha="center", weight="bold")
    blocks = ("forward", 0, BLUE, forward, 3, 3), ("backward", -3.1, ORANGE, backward, 1, 0)
    for name, top, colour, steps, part, talks in blocks:
        ax.text(-1.25, top + 0.5, name, color=colour, weight="bold")
        for column, (word, values) in enumerate(zip(("x", "", "h = ax", "bh", "y"), steps, strict=True)):
            ax.text(column, top + 0.5, word, ha="center", color=colour)
            for rank in (0, 1):
                box = {"boxstyle": "round,pad=0.35", "fc": "none", "ec": colour, "ls": "--" if column == part else "-"}
                text = f"{values[rank].item():.0f}".replace("-", "−")
                ax.text(column, top - rank, text, color=colour, bbox=box, ha="center", va="center")
                for other in ((0, 1) if column == talks else (rank,)) * (column < 4):
                    start, end = [(column, top - rank), (column + 1, top - other)][:: 1 if colour == BLUE else -1]
                    arrow = {"arrowstyle": "->", "color": colour, "lw": 1.5, "shrinkA": 14, "shrinkB": 14}
                    ax.annotate("", end, start, arrowprops=arrow)
    words = ("rank 0", 0), ("rank 1", -1), ("rank 0", -3.1), ("rank 1", -4.1), ("each rank on its own", 1.15)
    for word, at in words:
        ax.text(2 if at > 1 else -0.95, at, word, va="center", ha="center")
    ax.set(xlim=(-1.3, 4.4), ylim=(-5, 1.4), frame_on=False, xticks=[], yticks=[])
