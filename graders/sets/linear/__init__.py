"""Set 06: Linear, BroadcastMul, Swish, SwiGLU; and the chapter's BroadcastDiv, Mean, Amax, Softplus."""

from graders.sets import found

TASKS, CHAPTER = found(__name__)
