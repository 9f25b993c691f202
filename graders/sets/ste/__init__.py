"""Set 03: Binarize, GradientReversal, round_ste; and the chapter's Step and ScaleGradient.

The gradients are estimators, so gradcheck would refuse the right ones: each is compared with the gradient intended.
"""

from graders.sets import found

TASKS, CHAPTER = found(__name__)
