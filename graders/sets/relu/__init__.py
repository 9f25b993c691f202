"""Set 01: Square, LeakyReLU, Tanh; and the chapter's ReLU."""

from graders.sets import found

TASKS, CHAPTER = found(__name__)
