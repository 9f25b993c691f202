"""Runs forward on large arguments, lets them go and keeps what backward needs: somebody outside reads the memory."""

import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graders.inside.observe import ENGINE, fresh
from graders.inside.pristine import ended_modes
from graders.inside.wire import Message


class _Held:
    """What is alive between the questions: the arguments lent, and each output, with its arguments if they may stay."""

    args: tuple[Any, ...] = ()
    outputs: list[tuple[Tensor, tuple[Any, ...]]]
    grads: dict[int, Tensor]


_held = _Held()
_held.outputs, _held.grads = [], {}


def _take(place: int, grad: Tensor) -> None:
    _held.grads[place] = grad.detach()


def lend(message: Message) -> Message:
    """Take arguments for `hold`: the bytes that they came in are gone when the next message is there.

    Without arguments all that is held is let go of.
    """
    _held.args = tuple(message["args"])
    if not message["args"]:
        _held.outputs, _held.grads = [], {}
        give_back()  # what is free before would not be seen to be taken
    return {"held": True}


def hold(operation: Callable[..., object], message: Message) -> Message:
    """Run the operation on the arguments that were lent; keep its output, and the arguments where it may keep them.

    What is held already stays.
    """
    # a sum with a scalar: what autograd itself would keep of a leaf that is asked for its gradient is all of it
    leaf = torch.zeros((), dtype=torch.float64, requires_grad=True)
    args, _held.args = list(_held.args), ()
    for place, required in enumerate(message["requires_grad"]):
        given = args[place]
        args[place] = given + leaf.to(given.dtype) if required else fresh(given)
        if required:
            args[place].register_hook(partial(_take, place))
        del given
    with ended_modes():
        output = operation(*args)
    if not isinstance(output, Tensor):
        raise TypeError(f"forward returned {type(output).__name__}, not a tensor")
    _held.outputs.append((output.as_subclass(Tensor), tuple(args) if message["keeps"] else ()))
    del args, output
    give_back()
    return {"held": True}


def release(message: Message) -> Message:
    """Run backward of the output that is held longest, each number of the upstream gradient the same; let go of it.

    Returns:
        Those of the gradients that are asked for.
    """
    if not _held.outputs:
        raise RuntimeError("nothing is held")
    output, _ = _held.outputs.pop(0)
    _held.grads = {}
    ENGINE["backward"]([output], [torch.full_like(output, message["upstream"])])
    grads = _held.grads
    found = [grads[p].flatten()[i].clone() if p in grads else None for p, i in message["elements"]]
    _held.grads = {}
    del output, grads
    give_back()
    return {"elements": found}


def give_back() -> None:
    """Give the memory back that nothing is in any more: it would count as held."""
    gc.collect()
    trim()


def trim() -> None:
    """Give back what is free, and collect nothing."""
    with suppress(AttributeError, OSError):  # not in every C library
        ctypes.CDLL(None).malloc_trim(0)
