"""Review a Function of any project: the course's checklist as a command, and as tests for pytest.

    from graders.review import Review

    scale = Review(Scale.apply, (x, 2.0), reference=lambda x, factor: x * factor)

``python -m graders review test_scale.py`` prints a line for each question, ``pytest --gradreview`` makes each a test.
Both need torch alone. `checklist` is generated from the page that explains it (`tools/checklist.py`).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graders.review.subject import Review

__all__ = ["Review"]


def __getattr__(name: str) -> object:
    """Load `Review` when it is asked for: pytest imports this package at each start, and torch takes a second."""
    if name in __all__:
        return getattr(import_module("graders.review.subject"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
