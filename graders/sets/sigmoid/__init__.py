"""Set 02: Sigmoid, SigmoidTests, Cube; and the chapter's Arctan."""

from graders.sets import found

TASKS, CHAPTER = found(__name__)
