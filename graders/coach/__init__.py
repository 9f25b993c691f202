"""The coach: it judges an answer where it is written, and names the mistake.

    from graders import coach

    coach(Square)              # all checks of the task that this class is named after
    coach(Mine, "Square")      # the same, of a class of another name
    coach("SigmoidTests")      # a test file, by the name of its task
    coach()                    # the tasks of the set, and which of them are done
    coach.solutions(Square)    # right ways to write it, once the task has passed

It runs your code in this process, as you would, and nothing leaves your machine. Ctrl-C, or "Interrupt Kernel", stops
it.
"""

import gc
import sys
from contextlib import suppress
from importlib import import_module
from types import ModuleType

__all__ = ["coach", "solutions"]


def __getattr__(name: str) -> object:
    """Load what is asked for now: who reads what the coach has noted needs no torch."""
    if name in __all__:
        prepare()
        return getattr(import_module("graders.coach.ask"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def prepare() -> None:
    """Load what torch loads with the first gradcheck, sympy with it: a second that no check should have to wait for.

    What is loaded by then stays for as long as the kernel does, so no later collection of garbage goes through it: one
    would take a tenth of a second, in the midst of a check.
    """
    _Coach.__call__.__doc__ = import_module("graders.coach.ask").coach.__doc__
    late = "torch.fx.experimental.symbolic_shapes"
    if late in sys.modules and gc.get_freeze_count():
        return
    with suppress(ImportError):
        import_module(late)
    gc.collect()
    gc.freeze()


class _Coach(ModuleType):
    """This package, which can be called: ``from graders import coach`` gives it, once something has imported it."""

    def __call__(self, thing: object = None, where: str = "") -> None:
        from graders.coach.ask import coach

        coach(thing, where, depth=2)


sys.modules[__name__].__class__ = _Coach
