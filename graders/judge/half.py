"""What a mistake that has a name costs: at most half of its task's points.

It costs all of the check that is about it. Other checks that it keeps from passing cannot be judged, so each takes its
part of what is left of that half, in eighths of a point, rounded in the author's favour, and an eighth at least. An
answer in which no known mistake is recognised loses each check that it fails, whole.
"""

import math

# The looks that find an answer which is not the author's own, or which is none: nothing is given for it.
NOT_DONE = ("exists", "function", "no function", "by hand", "allowed", "source")
# The same by name, of any task or of one; the reason is shown by tests/graders/test_half.py.
WHOLE = {
    "nothing_returned": "there is no gradient",
    "zeros_returned": "there is no gradient",
    "one_gradient_returned": "there may be no gradient",
    "no_function": "the gradient is torch's",
    "autograd_in_backward": "the gradient is torch's",
    "torchs_own": "torch does the task",
    "Cube.as_given": "nothing was done",
    "hvp.library_called": "torch does the task",
    "hvp.gradient_returned": "the product, which the task is about, is not there",
    "checkpoint.torch_s_own": "torch does the task",
    "checkpoint.no_checkpoint": "nothing was done",
    "checkpoint.cut_off": "there is no gradient",
    "clip_by_norm.graph_cut_off": "there is no gradient",
    "clip_by_norm.gradient_clipped_instead": "nothing was done",
    "round_ste.everything_detached": "there is no gradient",
    "fit_sine.values_quoted": "nothing was done",
    "PackedLeakyReLU.input_saved": "the packing, which the task is about, is not there",
    "PackedLeakyReLU.byte_mask_saved": "the packing, which the task is about, is not there",
}


def whole(task: str, mistake: str, look: str) -> bool:
    """Return whether a mistake is so big that every check it fails is lost.

    Args:
        task: the task's name.
        mistake: the mistake's.
        look: what the check that is about it found it by.
    """
    return look in NOT_DONE or mistake in WHOLE or f"{task}.{mistake}" in WHOLE


def kept(points: float, own: float, total: float) -> float:
    """Return what a check gives that fails by a mistake which another check is about.

    Args:
        points: what the check is worth.
        own: what the check is worth that is about the mistake.
        total: what the task is worth.
    """
    rest = max(0.0, total / 2 - own) / (total - own)
    return points - min(points, max(1 / 8, math.floor(points * rest * 8) / 8))
