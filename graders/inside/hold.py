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
    """What is alive between the two questions."""

    leaf: Tensor | None = None
    output: Tensor | None = None
    args: tuple[Any, ...] = ()
    grads: dict[int, Tensor]


_held = _Held()


def _take(place: int, grad: Tensor) -> None:
    _held.grads[place] = grad.detach()


def lend(message: Message) -> Message:
    """Take arguments for `hold`: the bytes that they came in are gone when the next message is there."""
    _held.output, _held.args, _held.grads = None, tuple(message["args"]), {}
    if not message["args"]:  # what is free before would not be seen to be taken
        give_back()
    return {"held": True}


def hold(operation: Callable[..., object], message: Message) -> Message:
    """Run the operation on the arguments that were lent; keep its output, and the arguments where it may keep them."""
    # a sum with a scalar: what autograd itself would keep of a leaf that is asked for its gradient is all of it
    _held.leaf = torch.zeros((), dtype=torch.float64, requires_grad=True)
    args, _held.args = list(_held.args), ()
    for place, required in enumerate(message["requires_grad"]):
        given = args[place]
        args[place] = given + _held.leaf.to(given.dtype) if required else fresh(given)
        if required:
            args[place].register_hook(partial(_take, place))
        del given
    with ended_modes():
        output = operation(*args)
    if not isinstance(output, Tensor):
        raise TypeError(f"forward returned {type(output).__name__}, not a tensor")
    _held.output = output.as_subclass(Tensor)
    _held.args = tuple(args) if message["keeps"] else ()
    del args, output
    give_back()
    return {"held": True}


def release(message: Message) -> Message:
    """Run backward, each number of the upstream gradient the same; return those of the gradients that are asked for."""
    output = _held.output
    if output is None:
        raise RuntimeError("nothing is held")
    ENGINE["backward"]([output], [torch.full_like(output, message["upstream"])])
    grads = _held.grads
    found = [grads[p].flatten()[i].clone() if p in grads else None for p, i in message["elements"]]
    _held.output, _held.leaf, _held.args, _held.grads = None, None, (), {}
    del output, grads
    give_back()
    return {"elements": found}


def give_back() -> None:
    """Give the memory back that nothing is in any more: it would count as held."""
    gc.collect()
    with suppress(AttributeError, OSError):  # not in every C library
        ctypes.CDLL(None).malloc_trim(0)
