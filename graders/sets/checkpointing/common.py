"""What the tasks of set 09 share."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.task import DOUBLE, DTYPES, Draw


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


def layers(d: Draw, order: int = 1) -> list[Case]:
    """Return cases of every dtype, leading dimensions of every kind, layouts, and sizes that are 1 or equal."""
    shapes = {"a vector": (3,), "a batch of batches": (2, 2, 3), "no rows": (0, 3)}
    cases = [d.case(f"{named(t)} input", *layer(d, 2, 3, dtype=t), order=order) for t in DTYPES[:3]]
    cases += [d.case(name, *layer(d, *shape), order=order) for name, shape in shapes.items()]
    cases += [d.case("one row, a square weight", *layer(d, 1, 3, out=3), order=order)]
    cases += [d.case("one input, one output", *layer(d, 2, 1, out=1), order=order)]
    x, weight, bias = layer(d, 2, 2, 3)
    weight = weight.t().contiguous().t()
    cases += [d.case("a transposed x and weight", x.transpose(0, 1), weight, bias, order=order)]
    cases += [d.case("an expanded x and bias", x[:1].expand(2, 2, 3), weight, bias[:1].expand(4), order=order)]
    return cases


def lopsided_layers(d: Draw, order: int) -> list[Case]:
    """Return cases in which one tensor after the other is no even mixture (`Draw.lopsided`)."""
    args, cases = layer(d, 2, 3), []
    for place, name in enumerate(("x", "weight", "bias")):
        before, after = args[:place], args[place + 1 :]
        found = d.lopsided(lambda t, b=before, a=after: (*b, t, *a), *args[place].shape, order=order)  # type: ignore[misc]
        cases += [replace(c, name=f"{name}: {c.name}") for c in found]
    return cases


def some_learn(d: Draw) -> list[Case]:
    """Return cases in which some of the arguments require a gradient."""
    cases = []
    for flags in [tuple(bool(i >> k & 1) for k in range(3)) for i in range(1, 7)]:
        wanted = " and ".join(n for n, flag in zip(("x", "weight", "bias"), flags, strict=True) if flag)
        cases.append(d.case(f"a gradient for {wanted} alone", *layer(d, 2, 3), requires=flags))
    return cases


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
