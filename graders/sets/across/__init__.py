"""The set of the appendix Across machines: GatherRows, VocabLoss; optional for a class. The page's own Functions are no tasks."""

from graders.sets import found

TASKS, CHAPTER = found(__name__)
