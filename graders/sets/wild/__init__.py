"""The set of the appendix In the wild: RowNorm, Normalize; optional for a class. The page's own Functions are no tasks."""

from graders.sets import found

TASKS, CHAPTER = found(__name__)
