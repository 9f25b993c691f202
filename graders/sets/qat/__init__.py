"""Set 08: FakeQuantize, FakeQuantizePerChannel, LSQ; and the chapter's FakeQuantBits, FakeQuantRows, LearnedStep.

The gradients are estimators, so gradcheck would refuse the right ones: each is compared with the gradient intended.
Inputs keep away from what is open: x / scale and x * (1 / scale) round alike everywhere, and are exact in the halves.
"""

from graders.sets import found

TASKS, CHAPTER = found(__name__)
