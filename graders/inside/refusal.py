"""Refuses operators of torch's at the dispatcher, for good: before any student code runs, and below all of Python.

Runs on the kernel's side. What is registered here cannot be taken back: nobody holds the registration any more.
"""

import ctypes
from collections.abc import Callable, Iterable
from importlib import import_module
from types import FunctionType

import torch

KEYS = ("CPU", "SparseCPU", "SparseCsrCPU", "MkldnnCPU", "QuantizedCPU", "NestedTensorCPU", "Meta")
REFUSED = "is refused here"


def forbid(names: Iterable[str]) -> None:
    """Make these raise from now on, in this process and in those it forks.

    Args:
        names: as in `records.Case.deny`: operators, as ``aten::tanh`` (every overload) or ``aten::add.out``,
            and Python functions by their full names.
    """
    library = torch._C._dispatch_library("IMPL", "aten", "")
    for name in names:
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


def _refusal(operator: str) -> Callable[..., None]:
    text = f"{operator} {REFUSED}"

    def refuse(*args: object, **keywords: object) -> None:
        raise RuntimeError(text)

    return refuse


def _empty(function: FunctionType) -> None:
    """The function raises under whatever name somebody imported it before, as in `graders.inside.observe`."""

    def refuse(*args: object, **keywords: object) -> None:
        raise RuntimeError("this function may not be used here")

    function.__code__, function.__defaults__, function.__kwdefaults__ = refuse.__code__, None, None
