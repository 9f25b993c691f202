"""What the tasks of set 09 share."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.task import DOUBLE, Draw


def named(dtype: torch.dtype) -> str:
    """Return a dtype's name without torch's."""
    return str(dtype).removeprefix("torch.")


def called(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """Find that fn ran too often: it may once in forward, and once more in a checkpoint's backward."""
    most = 2 if call.startswith("checkpoint") and case.upstream is not None else 1
    seen = dict(yours.tally).get("calls", 0)
    if dict(expected.tally).get("calls") and seen > most:
        where = "forward and backward together may run it twice" if most == 2 else "once is enough"
        return look.Finding(
            "counts", f"{case.name}: fn ran {seen} times; {where}.", {"yours": str(seen), "expected": str(most)}
        )
    return None


def layer(d: Draw, *shape: int, out: int = 4, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor, Tensor]:
    """Return x of this shape, weight and bias.

    No output of theirs is near 0, where a rounding would decide; from four outputs on some are on either side.
    """
    while True:
        x, weight, bias = (d.between(-1.5, 1.5, *s, dtype=dtype) for s in (shape, (out, shape[-1]), (out,)))
        before = F.linear(x.double(), weight.double(), bias.double())
        mixed = before.numel() < 4 or ((before > 0).any() and (before < 0).any())
        if mixed and (before.abs() > 0.1).all():
            return x, weight, bias


class Surroundings:
    """The random stream and the autocast state, as they are now."""

    def __init__(self) -> None:
        self.stream = torch.get_rng_state()
        self.cast = {"enabled": torch.is_autocast_enabled("cpu"), "dtype": torch.get_autocast_dtype("cpu")}

    @contextmanager
    def again(self) -> Iterator[None]:
        """Bring both back inside a with statement, where gradients are enabled too."""
        with torch.random.fork_rng([]), torch.autocast("cpu", **self.cast), torch.enable_grad():
            torch.set_rng_state(self.stream)
            yield


def as_leaf(argument: object) -> object:
    """Return a tensor as a leaf of its own, which requires a gradient if the tensor does; all else as it is."""
    if isinstance(argument, Tensor):
        return argument.detach().requires_grad_(argument.requires_grad)
    return argument
