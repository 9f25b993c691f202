"""Refuses operators of torch's at the dispatcher, for good: before any student code runs, and below all of Python.

Runs on the kernel's side. What is registered here cannot be taken back: nobody holds the registration any more.

All of torch's autograd can be refused likewise. What then still carries a gradient is `torch.autograd.Function`, and
what only moves, repeats or sums numbers: a gradient that arrives was computed by a backward that somebody wrote.
"""

import ctypes
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from types import FunctionType
from typing import Any

import torch

KEYS = ("CPU", "SparseCPU", "SparseCsrCPU", "MkldnnCPU", "QuantizedCPU", "NestedTensorCPU", "Meta")
REFUSED = "is refused here"
AUTOGRAD = "autograd"  # among the names that are forbidden: all of torch's own
# operators that keep their gradient: those whose nodes `observe.STRUCTURAL` takes for nobody's
STRUCTURAL = frozenset(
    (  # noqa: SIM905 (words)
        "alias clone expand permute _reshape_alias select slice squeeze sum t _to_copy transpose unsqueeze _unsafe_view"
        " view detach detach_ set_ resize_"
    ).split()
)
# the one for all devices; and those of some, where an operator has a derivative for them alone
LAYERS = ("Autograd", "AutogradCPU", "AutogradOther", "AutogradNestedTensor", "AutogradMeta")
# the older executor of scripted code, or who writes its graphs by hand, has derivatives that are no operators'
SCRIPTED = (
    "_jit_set_profiling_executor _jit_set_profiling_mode _jit_differentiate _jit_pass_create_autodiff_subgraphs"
    " _debug_set_autodiff_subgraph_inlining _create_function_from_graph parse_ir"
)


def forbid(names: Iterable[str]) -> None:
    """Make these raise from now on, in this process and in those it forks.

    Args:
        names: as in `records.Case.deny`: operators, as ``aten::tanh`` (every overload) or ``aten::add.out``,
            and Python functions by their full names; and `AUTOGRAD`.
    """
    names = set(names)
    if AUTOGRAD in names:
        _switch_off_autograd()
    library = torch._C._dispatch_library("IMPL", "aten", "")
    for name in sorted(names - {AUTOGRAD}):
        if "::" in name:
            operator, _, overload = name.partition(".")
            for schema in torch._C._jit_get_schemas_for_operator(operator):
                if not overload or schema.overload_name == overload:
                    full = f"{schema.name}.{schema.overload_name}".rstrip(".").removeprefix("aten::")
                    for key in KEYS:
                        library.impl(full, key, _refusal(operator))
        else:
            module, _, last = name.rpartition(".")
            function = getattr(import_module(module), last)
            if not isinstance(function, FunctionType):
                raise TypeError(f"{name} has no code of Python's")
            _empty(function)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))  # it lives on, and no name leads to it


def without_autograd() -> bool:
    """Return whether torch's own autograd has been refused in this process."""
    return not hasattr(torch._C, SCRIPTED.split()[0])


def _switch_off_autograd() -> None:
    """Take every operator's derivative away, the structural ones' apart; once is enough for all forked processes."""
    if without_autograd():
        return
    library: Any = torch._C._dispatch_library("IMPL", "aten", "")
    with warnings.catch_warnings(action="ignore"):  # of what was registered before
        for name, layer in _derivatives():
            library.impl(name, layer, torch.library.fallthrough_kernel, False)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
    for name in SCRIPTED.split():
        delattr(torch._C, name)


def _derivatives() -> Iterator[tuple[str, str]]:
    """Yield each operator that has a derivative, with the layer that has it."""
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        full = f"{schema.name}.{schema.overload_name}".rstrip(".")
        if space != "aten" or name in STRUCTURAL or not torch._C._dispatch_has_kernel(full):
            continue
        has = partial(torch._C._dispatch_has_kernel_for_dispatch_key, full)
        # what is composed of others comes apart into those that have one; for some devices it may have its own as well
        layers = [layer for layer in LAYERS if has(layer)]
        layers += [LAYERS[0]] if not has("CompositeImplicitAutograd") and LAYERS[0] not in layers else []
        yield from ((full.removeprefix("aten::"), layer) for layer in layers)


def _refusal(operator: str) -> Callable[..., None]:
    text = f"{operator} {REFUSED}"

    def refuse(*args: object, **keywords: object) -> None:
        raise RuntimeError(text)

    return refuse


def _empty(function: FunctionType) -> None:
    """Make a function raise under whatever name it was imported before, as `graders.inside.observe` does."""

    def refuse(*args: object, **keywords: object) -> None:
        raise RuntimeError("this function may not be used here")

    function.__code__, function.__defaults__, function.__kwdefaults__ = refuse.__code__, None, None
