"""The warm parents of this process: whoever starts kernels asks here. Nothing of torch is loaded for that."""

from contextlib import AbstractContextManager, suppress

from graders.engine.sandbox import Parent, SandboxError, WarmParent
from graders.engine.timing import phase

_warm: dict[str, Parent] = {}
_others: list[dict[str, Parent]] = []


def warm(sandbox: str = "required") -> Parent:
    """This process's warm parent, started now if there is none."""
    if sandbox not in _warm or not _warm[sandbox].alive:
        close()
        with phase("start: warm parent"):
            _warm[sandbox] = WarmParent(sandbox)
    return _warm[sandbox]


def provide(parent: WarmParent) -> None:
    """Take a warm parent in a sandbox that was started before this module was loaded."""
    _warm["required"] = parent


def close() -> None:
    """End this process's warm parents."""
    while _warm:
        _warm.popitem()[1].close()


def forget() -> None:
    """After a fork: the warm parents are the parent process's. They are kept: one collected removes its folder."""
    _others.append(dict(_warm))
    _warm.clear()


def adopt(lock: AbstractContextManager[object]) -> None:
    """After a fork: take a twin of each warm parent of the parent process, which must have loaded everything.

    Args:
        lock: held by one of the forked processes at a time.
    """
    forget()
    for sandbox, parent in _others[-1].items():
        with lock, suppress(SandboxError):  # then a new one is started when it is needed
            _warm[sandbox] = parent.twin()
