"""Set 10: tiled_attention, FlashAttention; and the chapter's FlashSkeleton."""

from graders.sets import found

TASKS, CHAPTER = found(__name__)
