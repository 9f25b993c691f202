"""Seeded inputs, the cases made of them, and the operators that cases can deny."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from graders.inside.observe import fresh, surroundings
from graders.inside.pristine import pristine
from graders.inside.records import Case, Helper
from graders.inside.wire import inexact

HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
DTYPES = (HALF, BRAIN, SINGLE, DOUBLE)


def operators(names: str) -> tuple[str, ...]:
    """Return operators for `Case.deny`, with their in-place forms and backwards as far as torch has them.

    Args:
        names: separated by spaces, without the ``aten::``.
    """
    found = []
    for name in names.split():
        forms = (f"aten::{name}_", f"aten::{name}_backward")
        found += [f"aten::{name}", *(form for form in forms if _schemas(form))]
    return tuple(found)


def _schemas(operator: str) -> list[Any]:
    schemas: list[Any] = torch._C._jit_get_schemas_for_operator(operator)
    return schemas


MASKS = operators(  # torch's own backwards of what is linear in pieces: with the right numbers each is any other
    "threshold_backward hardtanh_backward leaky_relu_backward elu_backward _prelu_kernel_backward "
    "rrelu_with_noise_backward"
)


@cache
def _known_to_torch(name: str) -> None:
    """Check that a case can deny this.

    Raises:
        ValueError: there is no such operator, or no such Python function, or the observer needs it itself.
    """
    if "::" in name:
        operator, _, overload = name.partition(".")
        known = any(not overload or schema.overload_name == overload for schema in _schemas(operator))
    else:
        module, _, function = name.rpartition(".")
        known = isinstance(getattr(import_module(module), function, None), FunctionType)
        known = known and name not in ("torch.autograd.grad", "torch.autograd.backward")
    if not known:
        raise ValueError(
            f"{name} cannot be denied: neither an operator of torch nor a Python function that may be stopped"
        )


class Draw:
    """Seeded inputs, and the cases made of them.

    Args:
        reference: the right operation; gives the shape of the upstream gradient.
        seed: the one source of chance.
    """

    def __init__(self, reference: Callable[..., Any], seed: int) -> None:
        self.reference = reference
        self.random = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
        """Draw standard normal numbers; of a complex dtype, in both parts."""
        wide = torch.complex128 if dtype.is_complex else DOUBLE
        return torch.randn(shape, generator=self.random, dtype=wide).to(dtype)

    def places(self, size: int, most: int) -> Tensor:
        """Draw indices into so many elements."""
        return torch.randint(size, (min(most, size),), generator=self.random)

    def between(self, low: float, high: float, *shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
        """Draw uniform numbers."""
        return (low + (high - low) * torch.rand(shape, generator=self.random, dtype=DOUBLE)).to(dtype)

    def sides(self, *shape: int, away: float = 0.1, reach: float = 2.0, dtype: torch.dtype = DOUBLE) -> Tensor:
        """Draw numbers of both signs in turn, at least `away` from 0."""
        size = self.between(away, reach, *shape)
        signs = 1.0 - 2.0 * (torch.arange(size.numel()) % 2).double()
        return (size * signs.reshape(shape)).to(dtype)

    def scales(self, *shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
        """Draw numbers of both signs in turn and of every size from 1e-6 to 1000."""
        return self.sides(*shape, away=1, reach=1, dtype=dtype) * 10 ** self.between(-6, 3, *shape, dtype=dtype)

    def case(
        self,
        name: str,
        *args: object,
        order: int = 1,
        upstream: Tensor | None = None,
        keywords: tuple[str, ...] = (),
        watch: tuple[str, ...] = (),
        deny: tuple[str, ...] = (),
        requires: tuple[bool, ...] | None = None,
        provide: tuple[str, ...] = (),
        between: tuple[object, ...] | None = None,
        how: str = "grad",
        within: str = "",
    ) -> Case:
        """Make a case whose floating and complex arguments require gradients.

        Args:
            order: 0: forward; 1: and backward; 2: and backward of backward.
            upstream: in place of a random one of the output's shape.
            requires: which arguments require a gradient, where it is not all of those.
            keywords, watch, deny, provide, between, how, within: as in `Case`.
        """
        for denied in deny:
            _known_to_torch(denied)
        flags = requires or tuple(map(inexact, args))
        case = Case(name, args, keywords, flags, None, None, watch, deny, provide, between, how, within)
        upstreams: Tensor | tuple[Tensor, ...] | None = upstream
        if order and upstream is None:
            with pristine(), surroundings(case):
                output = self.reference(*[fresh(a) if isinstance(a, Helper) else a for a in args])
            upstreams = tuple(map(self._upstream, output)) if isinstance(output, tuple) else self._upstream(output)
        directions = None
        if isinstance(upstreams, tuple) and (order == 2 or watch):
            raise ValueError(f"{name}: with several outputs nothing can be watched, and there is no second order")
        if order == 2:
            asked = [a for a, f in zip(args, flags, strict=True) if f and isinstance(a, Tensor)]
            directions = tuple(self.normal(*a.shape, dtype=a.dtype) for a in asked)
        return replace(case, upstream=upstreams if order else None, directions=directions)

    def _upstream(self, output: Tensor) -> Tensor:
        if output.dtype in (HALF, BRAIN):  # not above 1: it multiplies the rounding of the rest
            return self.sides(*output.shape, away=0.25, reach=1, dtype=output.dtype)
        return self.normal(*output.shape, dtype=output.dtype)

    def lopsided(
        self,
        arguments: Callable[[Tensor], tuple[object, ...]],
        *shape: int,
        order: int = 1,
        large: float = 30.0,
        zeros: bool = True,
    ) -> list[Case]:
        """Make cases of one argument that is no even mixture: zeros, one sign only, one number against all others.

        Code that looks at a whole tensor (its sum, its largest element, whether anything is in it) to choose what it
        does to each element is right on random numbers and wrong on these.

        Args:
            arguments: all arguments of the operation, of this one.
            shape: the argument's, with three elements or more.
            order: as in `case`.
            large: what the numbers from 0.7 to 2 of the last two cases are multiplied by.
            zeros: whether zeros are among its numbers.
        """
        size = self.between(0.7, 2, *shape)
        first = torch.zeros_like(size)
        first.view(-1)[0] = 1
        against = size * (1 - 2 * first) * large
        inputs = {
            "zeros": torch.zeros_like(size),
            "only positive numbers": size,
            "only negative numbers": -size,
            "large negative numbers and a positive one": -against,
            "large positive numbers and a negative one": against,
        }
        return [self.case(name, *arguments(x), order=order) for name, x in inputs.items() if zeros or x.any()]

    def forms(self, sample: Callable[..., Tensor], *rest: object, order: int = 1) -> list[Case]:
        """Make cases of an elementwise operation's input in every dtype, shape and layout.

        That is: four dtypes; 0-d, empty and 3-d; transposed, every second row, expanded. No two elements of an
        upstream gradient are alike.

        Args:
            sample: called with a shape and a dtype.
            rest: the other arguments.
        """
        wide = sample(4, 3)
        inputs = [(f"a {str(d).removeprefix('torch.')} input", sample(2, 3, dtype=d)) for d in DTYPES] + [
            ("a 0-d input", sample()),
            ("a 0-d float16 input", sample(dtype=HALF)),
            ("an empty input", sample(0, 3)),
            ("a 3-d input", sample(2, 1, 3)),
            ("a transposed input", sample(3, 2).t()),
            ("every second row", wide[::2]),
            ("an expanded input", sample(1, 3).expand(2, 3)),
        ]
        cases = [self.case(name, x, *rest, order=order) for name, x in inputs]
        if order:
            upstream = self.normal(2, 1, 3).expand(2, 2, 3)  # neither view(-1) nor view(-1, 3) takes it
            cases.append(
                self.case("an expanded upstream gradient", sample(2, 2, 3), *rest, order=order, upstream=upstream)
            )
        return cases
