"""Set 04: Legendre, fit_sine, hvp; and the chapter's Chebyshev."""

from graders.sets import found

TASKS, CHAPTER = found(__name__)
