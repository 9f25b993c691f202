"""Torch as it starts: its settings for everybody, what an operation left changed of them, and how they are put back."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.overrides import _len_torch_function_stack, _pop_mode
from torch.utils._python_dispatch import _len_torch_dispatch_stack, _pop_torch_dispatch_stack


@contextmanager
def pristine() -> Iterator[None]:
    """Torch as it starts: gradients on, float32 by default, nan no error; then as it was, the random stream too."""
    dtype, autocast, hooks = torch.get_default_dtype(), torch.is_autocast_enabled("cpu"), _hooks()
    narrow, collecting = torch.get_autocast_dtype("cpu"), gc.isenabled()
    with (
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        torch.autograd.set_detect_anomaly(False),
        ended_modes(),
    ):
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_autocast_enabled("cpu", autocast)
            torch.set_autocast_dtype("cpu", narrow)
            if collecting:
                gc.enable()
            while _hooks() is not hooks:
                torch._C._autograd._pop_saved_tensors_default_hooks()


@contextmanager
def ended_modes() -> Iterator[list[str]]:
    """Modes that code within leaves on end here, a default device among them; the list then names what was left on.

    A mode sees, and may spoil, all that the observer does.
    """
    left: list[str] = []
    functions, operators, device = _len_torch_function_stack(), _len_torch_dispatch_stack(), _device()
    try:
        yield left
    finally:
        if _device() is not device:
            torch.set_default_device(None)  # as torch starts
            left.append("the default device")
        if _len_torch_function_stack() > functions or _len_torch_dispatch_stack() > operators:
            left.append("the stack of modes")
        while _len_torch_function_stack() > functions:
            _pop_mode()
        while _len_torch_dispatch_stack() > operators:
            _pop_torch_dispatch_stack(None)


def _device() -> object:
    """The mode that a default device is; None: none was set. (`torch.get_default_device` would make a tensor.)"""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


def _hooks() -> object:
    """The pack hook for saved tensors that is on; None: none is."""
    top = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return top and top[0]


def settings() -> dict[str, object]:
    """What torch holds for everybody, under the names that a record gives it."""
    return {
        "the anomaly detection": torch.is_anomaly_enabled(),
        "the autocast state": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "the default dtype": torch.get_default_dtype(),
        "the gradient mode": torch.is_grad_enabled(),
        "the saved-tensor hooks": _hooks(),
    }
