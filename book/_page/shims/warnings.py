"""Python's warnings, of which a page shows none: what keeps them silent does nothing, what would show them is refused."""

from torch._base import lacking, refuse

_SILENT = ("ignore", "default", "always", "once", "module")


def _action(action):
    if action not in _SILENT:
        refuse("warnings that are errors")


def warn(message, category=None, stacklevel=1, source=None):
    """Say nothing."""


def simplefilter(action, category=None, lineno=0, append=False):
    """Accept what would be shown or not."""
    _action(action)


def filterwarnings(action, message="", category=None, module="", lineno=0, append=False):
    """Accept what would be shown or not."""
    _action(action)


def resetwarnings():
    """Forget the filters, of which there are none."""


class catch_warnings:
    """A block in which nothing is warned of."""

    def __init__(self, record=False, module=None, action=None, category=None, lineno=0, append=False):
        if record or module is not None:
            refuse("warnings that are recorded")
        if action is not None:
            _action(action)

    def __enter__(self):
        return None

    def __exit__(self, *error):
        return False


__getattr__ = lacking("warnings")
