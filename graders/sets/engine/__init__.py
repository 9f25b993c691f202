"""The set of the appendix The engine: PackedLeakyReLU, Direction; optional for a class. The page's own are no tasks."""

from graders.sets import found

TASKS, CHAPTER = found(__name__)
