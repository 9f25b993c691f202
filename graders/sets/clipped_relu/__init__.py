"""Set 05: MulConstant, ClippedReLU, PACT, clip_by_norm; and the chapter's HardTanh and SymmetricClip."""

from graders.sets import found

TASKS, CHAPTER = found(__name__)
