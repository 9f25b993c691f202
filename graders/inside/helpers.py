"""Functions that a case may name as an argument (`graders.inside.records.Helper`). They run beside the student's code.

No answer may stand here: a submission can read this module.
"""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from typing import Any

import torch
from numpy.polynomial.legendre import leg2poly
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

Made = Callable[..., object]  # what the makers below return: a function of tensors
TALLY: Counter[str] = Counter()  # what the helpers count while an operation runs; a record takes it over


# --- what an hvp is asked of: functions of one tensor of any shape, with a 0-d result ---------------------------------


class Counted(torch.autograd.Function):
    """The same numbers; counts the backward passes. Of the older form, with NumPy: for no torch.func or vmap."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        TALLY["backward_passes"] += 1
        g.detach().numpy()
        counted: Tensor = Counted.apply(g)
        return counted


def _parameter(like: Tensor, value: float) -> Tensor:
    """A 0-d tensor that requires a gradient; who writes into its ``.grad`` is counted."""

    def count(_: Tensor) -> None:
        TALLY["gradients_accumulated"] += 1

    parameter = torch.tensor(value, dtype=like.dtype, requires_grad=True)
    parameter.register_post_accumulate_grad_hook(count)
    return parameter


def coupled(x: Tensor) -> Tensor:
    """Each element multiplies each other one."""
    return (x**4).sum() / 12 + x.sum() ** 3 / 6


def separate(x: Tensor) -> Tensor:
    """Each element by itself: the Hessian is diagonal."""
    return (x**4).sum() / 12


def first_row(x: Tensor) -> Tensor:
    """Rows are not alike."""
    return (x[0] ** 3).sum() + x.sum() ** 3


def projected(x: Tensor) -> Tensor:
    """Holds a matrix of float32, for vectors of three elements."""
    return (torch.linspace(-1, 2, 9, dtype=torch.float32).reshape(3, 3) @ x).square().sum()


def waves(x: Tensor) -> Tensor:
    """Sines of neighbours."""
    x = x.reshape(-1)
    return (x.sin() * x.flip(0).cos() + x * x).sum()


def linear(x: Tensor) -> Tensor:
    """Its gradient is a constant without a graph."""
    return (3 * x).sum()


def weighted(x: Tensor) -> Tensor:
    """Linear in x; its gradient depends on a parameter."""
    return (_parameter(x, 2.0) ** 2 * x).sum()


def partly(x: Tensor) -> Tensor:
    """Only every second element counts."""
    return (x.reshape(-1)[::2] ** 3).sum()


def trained(x: Tensor) -> Tensor:
    """Has a parameter of its own."""
    return (_parameter(x, 0.5) * x.sin()).sum()


def counted(x: Tensor) -> Tensor:
    """`separate`, with its backward passes counted."""
    return separate(Counted.apply(x))


# --- a tensor that is not what its memory holds -----------------------------------------------------------------------


def conjugated(w: Tensor) -> Tensor:
    """The conjugate; torch puts off computing it, and remembers that it has to."""
    return w.conj()


# --- what one task of a set lends to another ----------------------------------------------------------------------


@cache
def _powers(n: int) -> tuple[float, ...]:
    return tuple(leg2poly([0] * n + [1])[::-1].tolist())


class Legendre:
    """P_n for a fit: plain torch, its gradient torch's. For small n only: powers of x lose digits."""

    @staticmethod
    def apply(x: Tensor, n: int) -> Tensor:
        value = torch.zeros_like(x)
        for coefficient in _powers(n):
            value = value * x + coefficient
        return value


# --- chunks for an online_logsumexp -----------------------------------------------------------------------------------


def given_one_by_one(*chunks: Tensor) -> Iterator[Tensor]:
    """The chunks, once. Counts those that are still alive when the next one is asked for, and those changed by then."""
    alive: list[StorageWeakRef] = []
    for given in chunks:
        chunk = given.clone()
        alive.append(StorageWeakRef(chunk.untyped_storage()))
        yield chunk
        TALLY["chunks_changed"] += not torch.equal(chunk, given)
        del chunk
        alive = [ref for ref in alive if not ref.expired()]
        TALLY["chunks_alive"] = max(TALLY["chunks_alive"], len(alive))


def _held() -> tuple[int, int]:
    """How many elements the tensors have that the garbage collector has not met yet, and how many objects there are."""
    young = [o for o in gc.get_objects(0) if type(o) is Tensor]
    memory = {o.untyped_storage().data_ptr(): o.untyped_storage().nbytes() // o.element_size() for o in young}
    return sum(memory.values()), sys.getallocatedblocks()


def many_chunks(rows: Tensor) -> Iterator[Tensor]:
    """280 rows, `given_one_by_one`. Counts how many numbers a row pile up, in tensors or not, while they are taken.

    What piles up grows between the first of three looks and the second, and again before the third. The first look is
    late: up to a hundred numbers come out of a store that Python keeps.
    """
    at = (119, 199, 279)
    looks, running = [], gc.isenabled()
    gc.disable()
    try:
        for i, chunk in enumerate(given_one_by_one(*rows)):
            if i in at:
                looks.append(_held())
            yield chunk
            del chunk
    finally:
        if running:
            gc.enable()
    grown = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairwise(looks)]
    TALLY["numbers_kept"] = max(0, *(round(min(kind) / 80) for kind in zip(*grown, strict=True)))


# --- what saved_bytes is asked of: functions whose saved tensors are counted ------------------------------------------


class Keeps(torch.autograd.Function):
    """The cube; keeps the square, which only `save_for_backward` knows of."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        square = x * x
        ctx.save_for_backward(square)
        return square * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        square: Tensor = ctx.saved_tensors[0]
        return 3 * g * square


def in_a_row(x: Tensor) -> Tensor:
    """Two of the three steps keep what they return."""
    return x.sin().exp().tanh()


def one_for_two(x: Tensor) -> Tensor:
    """One tensor that three nodes keep."""
    y = x.exp()
    return y * y.sin()


def one_size(x: Tensor) -> tuple[Tensor, ...]:
    """Three tensors of one size."""
    return x.exp(), x.tanh(), x.sigmoid()


def pieces(x: Tensor) -> Tensor:
    """Two views of one tensor, with a square of the second."""
    first, second = (x + 1).chunk(2)
    return first * second * second.sin()


def corner(x: Tensor) -> Tensor:
    """A small piece of a large tensor, and the same again."""
    y = x * 2
    return y[:1] ** 3 + y[:1] ** 4


def spread(x: Tensor) -> Tensor:
    """A view with more elements than its memory has."""
    y = (x[:1] + 1).expand(50, *x.shape[1:])
    return y**2


def chosen(x: Tensor) -> tuple[Tensor, Tensor]:
    """Masks and indices are kept."""
    y = torch.where(x > 0, x, -x).masked_fill(x > 1, 0.5)
    return y.max(1).values, y[:, torch.tensor([0, 0, 1])]


def custom(x: Tensor) -> Tensor:
    """A Function that keeps what it made."""
    twice: Tensor = Keeps.apply(Keeps.apply(x))
    return twice


_LENT: list[Tensor] = []  # the tensor that `lent` made last


def lent(x: Tensor) -> Tensor:
    """The tensor itself, as an argument; it remains the caller's, who may give it again: `lent_again`."""
    _LENT[:] = [x]
    return x


def lent_again() -> Tensor:
    """The tensor that an earlier argument is, or holds, once more."""
    return _LENT[-1]


def tail(x: Tensor) -> Tensor:
    """A view that does not begin where its storage does."""
    return x[1:]


def dropped_on_the_way(x: Tensor) -> Tensor:
    """Much of what it computes leads to no result, and its memory is used again."""
    for _ in range(12):
        x.sum().expand(500).exp()
    return x.tanh()


def small_and_large(x: Tensor) -> Tensor:
    """The last tensor kept is the smallest."""
    return (x.exp().sum(0).exp() * 2).tanh().sum().exp()


def once(x: Tensor) -> Tensor:
    """Counts its calls."""
    TALLY["calls"] += 1
    return x.exp().tanh()


def slope_of_a_cube(x: Tensor) -> Tensor:
    """Differentiates, and insists on a right result."""
    y = x.exp()
    (slope,) = torch.autograd.grad((y**3).sum(), y, create_graph=True)
    if not torch.allclose(slope, 3 * y * y):
        raise ValueError("a gradient that fn takes is wrong: a saved tensor does not come back as it was")
    return slope.sin()


def slope_of_the_caller_s(x: Tensor) -> Made:
    """A function that differentiates with respect to the tensor that it is given, known to it beforehand."""
    lent(x)

    def function(given: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(given.exp().sum(), x, create_graph=True)
        return slope.sin()

    return function


def no_result(x: Tensor) -> None:
    """For what it does, not for what it returns."""
    x.exp().sin()


class Named:
    """A callable that is no function; returns a dict."""

    def __call__(self, x: Tensor) -> dict[str, Tensor]:
        return {"y": x.exp().tanh()}


def callable_object() -> Named:
    """An object with ``__call__``."""
    return Named()


def product(x: Tensor, y: Tensor) -> Tensor:
    """Keeps its arguments."""
    return x * y


def views_of_it(x: Tensor) -> Tensor:
    """Keeps views of its argument."""
    return (x.t() @ x[:, 1:]) * x.reshape(-1)[:1]


def cut_off(x: Tensor) -> Tensor:
    """Keeps its argument as a constant, and what is made of it."""
    return x.detach() * x.cos()


def leaf_inside(x: Tensor) -> Tensor:
    """Makes a tensor that requires a gradient."""
    return torch.ones_like(x).requires_grad_() * x.exp()


def powers(x: Tensor, n: int, also: object) -> Tensor:
    """Arguments that are no tensors."""
    return x.exp() ** n if also is None else x


def with_constant(c: Tensor) -> Made:
    """A function that keeps a constant of its own, and a piece of it."""
    return lambda x: x * c + x[:1] * c[:1]


def with_slice(c: Tensor) -> Made:
    """A function that keeps a part of a constant, which keeps all of it."""
    part = c[1:].detach()
    return lambda x: x * part


def with_layer(weight: Tensor, bias: Tensor) -> Made:
    """A function with two parameters; it keeps the transpose of one."""
    return lambda x: torch.nn.functional.linear(x.exp(), weight, bias) * bias


def with_twisted(weight: Tensor) -> Made:
    """A function that keeps views of views of its parameter, and its square."""
    return lambda x: (weight.t()[1:].t() @ x[1:]) ** 2 + weight[0, 0] * (weight * weight).sin().sum()


# --- what checkpoint is asked of: makers of functions with parameters, which count their calls ------------------------


def counting(function: Made) -> Made:
    """The function, with its calls counted."""

    def counted(*args: object) -> object:
        TALLY["calls"] += 1
        return function(*args)

    return counted


def net(w1: Tensor, b1: Tensor, w2: Tensor) -> Made:
    """Two layers."""
    return counting(lambda x: (x @ w1 + b1).tanh() @ w2)


def deep(w: Tensor) -> Made:
    """Three layers that share a weight, each of which keeps its output."""

    def function(x: Tensor) -> Tensor:
        for _ in range(3):
            x = (x @ w).tanh()
        return x

    return counting(function)


def gated(w: Tensor) -> Made:
    """Two arguments and a parameter, each of which needs the others."""
    return counting(lambda x, y: (x @ w).sin() * y.exp())


def of_all_kinds(table: Tensor) -> Made:
    """Takes indices, a number, a bool, None and a string between two tensors."""

    def function(x: Tensor, index: Tensor, n: int, on: bool, nothing: None, word: str, y: Tensor) -> Tensor:
        if on is not True or nothing is not None or word != "sum" or not isinstance(n, int):
            raise TypeError(f"fn was given {n!r}, {on!r}, {nothing!r}, {word!r}")
        return (table[index] * x).sin() * n + y**n

    return counting(function)


def in_pairs(w: Tensor) -> Made:
    """A tuple."""
    return counting(lambda x: ((x @ w).sin(), (x * x).exp()))


def with_indices(w: Tensor) -> Made:
    """A tuple in which one tensor has no gradient."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        largest, where = (x @ w).max(-1)
        return where, largest.sin()

    return counting(function)


def tuple_of_one(w: Tensor) -> Made:
    """A tuple with one tensor."""
    return counting(lambda x: ((x @ w).sin(),))


def without_arguments(w: Tensor) -> Made:
    """Takes nothing."""
    return counting(lambda: (w * w).sin())


class Block:
    """Holds its parameter in a list."""

    def __init__(self, w: Tensor) -> None:
        self.parameters_of_it = [w]

    def method(self, x: Tensor) -> Tensor:
        return (x @ self.parameters_of_it[0]).sin()


def bound_method(w: Tensor) -> Made:
    """A method; its parameter is found in no closure."""
    return Block(w).method


def partial_product(w: Tensor) -> Made:
    """A function of torch's with its first argument given."""
    return partial(torch.mul, w)


def watched(w: Tensor) -> Made:
    """Has a parameter of its own, twice; counts the gradients that come to it with a graph of theirs."""

    def count(parameter: Tensor) -> None:
        TALLY["gradients_with_a_graph"] += parameter.grad is not None and parameter.grad.requires_grad

    parameter = w.clone().requires_grad_()
    parameter.register_post_accumulate_grad_hook(count)
    return lambda x: x * parameter * parameter


def dropping(w: Tensor) -> Made:
    """Draws three times."""
    dropout = torch.nn.functional.dropout

    def function(x: Tensor) -> Tensor:
        y = dropout(dropout(x, 0.4) @ w, 0.5)
        return y * torch.rand_like(y) + y.sin()

    return counting(function)


# --- what the chapter recomputes: functions that get their parameters as arguments ------------------------------------


def two_layers(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """Linear, GELU, linear."""
    linear = torch.nn.functional.linear
    return linear(torch.nn.functional.gelu(linear(x, w1, b1)), w2, b2)


def dropped(x: Tensor, w: Tensor) -> Tensor:
    """A product of which half is dropped."""
    return torch.nn.functional.dropout(x @ w, 0.5)
