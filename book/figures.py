"""The figures of the course: one function a figure, one style for all.

A chapter does not import this file. The notebook tool writes the style and the function that a chapter names into
the chapter itself, so that a downloaded chapter runs alone; edit the figure here and run ``make notebooks``.
In a notebook, the cell tagged ``figure:NAME`` ends with a line ``NAME(...)``; all lines above it are generated.

Every figure has a transparent ground and mid-tone colours that keep a contrast of at least 3 : 1 on white and on the
book's dark ground, and tells its lines apart by dash or marker as well as by colour.
"""

import matplotlib.pyplot as plt
from matplotlib_inline.backend_inline import set_matplotlib_formats

INK, BLUE, ORANGE, GREEN = "#7d7d7d", "#3f87c7", "#d0722b", "#3a9a6b"


def canvas(columns=1, height=3.0):
    """Axes in a row, in the course's style.

    Args:
        columns: how many axes.
        height: inches; the width is 7 inches in all.

    Returns:
        A figure and a list of its axes.
    """
    set_matplotlib_formats("svg", metadata={"Date": None})
    plt.rcParams.update(
        {"svg.hashsalt": "course", "axes.facecolor": "none", "font.size": 11, "lines.linewidth": 2}
        | dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], INK)
    )
    figure, axes = plt.subplots(1, columns, figsize=(7, height), facecolor="none", layout="constrained", squeeze=False)
    for ax in axes[0]:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, list(axes[0])


def autograd_graph(root, **leaves):
    """Draw the graph that backward will walk, from a result's node to the leaves.

    Args:
        root: the ``grad_fn`` of a tensor.
        leaves: the leaf tensors, by the names to print for them.
    """
    axes = canvas(height=2.4)[1][0]
    depth, edges, queue, boxes = {root: 0}, {}, [root], {}
    for node in queue:
        for parent in (p for p, _ in node.next_functions if p):
            depth[parent] = max(depth.get(parent, 0), depth[node] + 1)
            edges[node, parent] = None
            queue.append(parent)
    for node, column in depth.items():
        layer = [n for n in depth if depth[n] == column]
        name = "".join(f"\n{k}" for k, v in leaves.items() if getattr(node, "variable", None) is v)
        at = column, (len(layer) - 1) / 2 - layer.index(node)
        style = {"boxstyle": "round", "facecolor": "none", "edgecolor": INK if name else BLUE}
        boxes[node] = axes.text(*at, node.name().split(":")[-1] + name, ha="center", va="center", size=10, bbox=style)
    for a, b in edges:
        arrow = {"arrowstyle": "->", "color": ORANGE, "connectionstyle": f"arc3,rad={0.45 * (depth[b] > depth[a] + 1)}"}
        patches = {"patchA": boxes[a].get_bbox_patch(), "patchB": boxes[b].get_bbox_patch(), "lw": 1.5}
        axes.annotate("", boxes[b].get_position(), boxes[a].get_position(), arrowprops=arrow | patches)
    axes.set(xlim=(-0.45, max(depth.values()) + 0.45), ylim=(-1, 1), frame_on=False, xticks=[], yticks=[])


def relu_kink(x, y, gradient, quotients):
    """Plot ReLU with its hand-written gradient and central differences, and the distance between the two.

    Args:
        x: points from -1 to 1, one of them 0.
        y: ReLU at x.
        gradient: the hand-written gradient at x.
        quotients: step size to central difference at x.
    """
    left, right = canvas(columns=2)[1]
    left.plot(x, y, "-.", color=INK, label="ReLU")
    for side in (x <= 0, x > 0):
        left.plot(x[side], gradient[side], color=BLUE, label="gradient" if side[0] else None)
    left.plot(0, 0, "o", color=BLUE)
    for (h, quotient), color, dash in zip(quotients.items(), (ORANGE, GREEN), ("--", ":"), strict=True):
        left.plot(x, quotient, dash, color=color, label=f"difference, h = {h}")
        right.plot(x, abs(quotient - gradient), dash, color=color, label=f"h = {h}")
        right.axvspan(-h, h, color=color, alpha=0.12, lw=0)
    left.set(xlabel="x", title="values", ylim=(-0.05, 1.75), yticks=[0, 0.5, 1])
    right.set(xlabel="x", title="error of the difference", ylim=(-0.02, 0.72))
    for ax in (left, right):
        ax.legend(frameon=False, labelcolor=INK, fontsize=9, loc="upper left")


def arctan_differences(x, y, gradient, quotients, bound, steps, errors):
    """Plot arctan's hand-written gradient under its central differences, and step size against error.

    Args:
        x: points.
        y: arctan at x.
        gradient: the hand-written gradient at x.
        quotients: the central differences at x with step 1e-6, in float32 and in float64.
        bound: how far rounding can move the float32 difference at x.
        steps: step sizes.
        errors: the mean error at each step, in float32 and in float64.
    """
    left, right = canvas(columns=2, height=3.4)[1]
    left.fill_between(x, gradient - bound, gradient + bound, color=ORANGE, alpha=0.3, lw=0, label="float32 bound")
    left.plot(x, y, "-.", color=INK, label="arctan")
    left.plot(x, gradient, color=BLUE, label="gradient")
    for quotient, error, marker, color, bits in zip(quotients, errors, "xo", (ORANGE, GREEN), (32, 64), strict=True):
        style = {"color": color, "marker": marker, "mfc": "none", "ms": 5, "label": f"float{bits}"}
        left.plot(x, quotient, ls="", **style)
        right.loglog(steps, error, ls="--" if bits == 32 else "-", **style)
    right.axvline(1e-6, color=INK, ls=":", label="eps of gradcheck")
    left.set(xlabel="x", title="value and gradient", ylim=(-0.25, 2.1), yticks=[0, 0.5, 1, 1.5])
    right.set(xlabel="step h", title="mean error", ylim=(1e-13, 1e4))
    for ax, columns in ((left, 2), (right, 1)):
        ax.legend(frameon=False, labelcolor=INK, fontsize=9, loc="upper left", ncols=columns)
