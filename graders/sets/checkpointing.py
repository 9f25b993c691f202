"""Set 09: saved_bytes, FusedLinearReLU, checkpoint; and what the chapter shows in their place."""

import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graders.inside.records import Case, Helper, Record
from graders.judge import looks as look
from graders.judge.task import DOUBLE, DTYPES, MASKS, SINGLE, Check, Draw, Task
from graders.judge.wording import (
    CUT_OFF,
    FLOAT32,
    FLOAT32_AND_BACK,
    KEPT_OUTSIDE,
    NO_FUNCTION,
    VIEW_NEEDED,
)

GLOBAL: dict[str, object] = {}  # where the mistakes `kept_outside_ctx` keep things
ALL = ("state", "overwrite", "trace")

FORWARD = (*look.FORWARD[:-1], look.precise, look.value)
FIRST = (*look.FIRST[:-1], look.precise, look.gradient)
SECOND = (*FIRST, look.second_order)
# what is changed in place comes before the numbers that it spoils
CONTRACT = (*FIRST[:4], look.untouched, *FIRST[4:], look.stateless, look.guarded, look.allowed)


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def called(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """How often fn ran: once in forward, and once more in a checkpoint's backward."""
    most = 2 if call.startswith("checkpoint") and case.upstream is not None else 1
    seen = dict(yours.tally).get("calls", 0)
    if dict(expected.tally).get("calls") and seen > most:
        where = "forward and backward together may run it twice" if most == 2 else "once is enough"
        return look.Finding(
            "counts", f"{case.name}: fn ran {seen} times; {where}.", {"yours": str(seen), "expected": str(most)}
        )
    return None


# --- saved_bytes ------------------------------------------------------------------------------------------------------


def _packed(fn: Callable, *args: object) -> list[Tensor]:
    """What autograd packs while fn runs, in order."""
    kept = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        fn(*args)
    return kept


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _given(args: tuple) -> set[int]:
    """The memory of the arguments."""
    return {_address(a) for a in args if isinstance(a, Tensor)}


def _learns(tensor: Tensor) -> bool:
    """Whether this is a leaf that requires grad, or a view of one."""
    root = tensor if tensor._base is None else tensor._base
    return root.is_leaf and root.requires_grad


def _counted(packed: list[Tensor], free: set[int]) -> int:
    """The bytes of the distinct storages, but for those at `free` and those of leaves that learn."""
    sizes = {_address(t): t.untyped_storage().nbytes() for t in packed if not _learns(t)}
    return sum(size for address, size in sizes.items() if address not in free)


WORDS = {  # what the functions without parameters do
    "in_a_row": "x.sin().exp().tanh()",
    "one_for_two": "y * y.sin() of y = x.exp()",
    "one_size": "exp, tanh and sigmoid of x",
    "pieces": "products of the two halves of x + 1",
    "corner": "powers of the first row of 2 x",
    "spread": "an expanded row, squared",
    "chosen": "masks and indices",
    "custom": "a Function that saves what it made",
    "dropped_on_the_way": "fn makes twelve graphs and drops them",
    "small_and_large": "tensors of several sizes",
    "no_result": "fn returns None",
    "once": "x.exp().tanh()",
    "slope_of_a_cube": "fn takes a gradient on its way",
    "product": "x * y",
    "views_of_it": "products of views of x",
    "cut_off": "x.detach() * x.cos()",
    "leaf_inside": "fn makes a leaf",
    "powers": "a number and None among the arguments",
}


def _count_of(d: Draw, helper: str, *args: object, requires: tuple[bool, ...] | None = None, more: str = "") -> Case:
    """A case of a function without parameters."""
    flags = requires or tuple(isinstance(a, Tensor) and a.is_floating_point() for a in args)
    return d.case(WORDS[helper] + more, Helper(helper), *args, order=0, requires=(False, *flags))


def _counts(d: Draw) -> list[Case]:
    n = int(d.between(4, 9))
    x = d.normal(n, 3)
    plain = ("in_a_row", "one_for_two", "one_size", "corner", "spread", "chosen", "custom", "dropped_on_the_way")
    plain += ("small_and_large", "no_result")
    return [
        *(_count_of(d, helper, x) for helper in plain),
        _count_of(d, "pieces", d.normal(2 * n, 3)),
        *(_count_of(d, "in_a_row", d.normal(n, dtype=t), more=f", {_named(t)}") for t in DTYPES[:3]),
        _count_of(d, "in_a_row", d.normal(), more=", a 0-d argument"),
        _count_of(d, "in_a_row", d.normal(0, 3), more=", an empty argument"),
        d.case("fn is an object that is called", Helper("callable_object", ()), x, order=0),
        d.case("the caller is under no_grad", Helper("in_a_row"), x, order=0, within="no_grad"),
    ]


def _free(d: Draw) -> list[Case]:
    n = int(d.between(4, 9))
    x, y = d.normal(n, 4), d.normal(n, 4)
    layer = Helper("with_layer", (d.normal(3, 4), d.normal(3)), (True, True))
    return [
        _count_of(d, "product", x, y),
        _count_of(d, "product", x, y, requires=(True, False), more=", y requires no gradient"),
        _count_of(d, "views_of_it", x),
        _count_of(d, "views_of_it", d.normal(5, n)[:, 1:], more=", its argument a view itself"),
        _count_of(d, "cut_off", x),
        _count_of(d, "leaf_inside", x),
        _count_of(d, "powers", x, 3, None),
        d.case("fn holds a layer's parameters", layer, x, order=0),
        d.case("fn holds parameters, and x requires no gradient", layer, x, order=0, requires=(False, False)),
        d.case(
            "fn holds views of a parameter", Helper("with_twisted", (d.normal(3, 4),), (True,)), d.normal(4, n), order=0
        ),
        d.case("fn holds a constant", Helper("with_constant", (d.normal(n, 4),)), x, order=0),
        d.case("fn holds a slice of a constant", Helper("with_slice", (d.normal(n + 1, 4),)), x, order=0),
        d.case("x * y, y a slice", Helper("product"), x, Helper("tail", (d.normal(n + 1, 4),)), order=0),
    ]


saved_bytes = Task(
    "saved_bytes",
    "saved_bytes(fn, *args)",
    lambda fn, *args: _counted(_packed(fn, *args), _given(args)),
    (
        Check(
            "count",
            2,
            "what autograd packs, in bytes: any dtype, outputs too, each storage once and whole",
            "Tensors share storages, a view keeps all of its own, and what fn drops leaves its address to the next.",
            _counts,
            (look.exists, look.runs, look.returns, look.whole),
        ),
        Check(
            "free",
            2,
            "arguments and leaves that require grad are free, their views too; constants count",
            "Arguments and parameters are alive anyway; what counts is what is kept for backward alone.",
            _free,
            (look.exists, look.runs, look.returns, look.whole),
        ),
        Check(
            "contract",
            1,
            "fn runs once and may take gradients; the arguments and torch stay as they were",
            "A measurement changes nothing: fn gets the arguments themselves, unpack returns what was packed.",
            lambda d: [
                _count_of(d, "once", d.normal(3, 4)),
                _count_of(d, "slope_of_a_cube", d.normal(3, 4)),
                d.case(
                    "fn differentiates by the caller's x",
                    Helper("slope_of_the_caller_s", (d.normal(3, 4),), (True,)),
                    Helper("lent_again", ()),
                    order=0,
                ),
                _count_of(d, "once", d.normal(3, 4), requires=(False,), more=", x requires no gradient"),
                *(
                    _count_of(d, helper, d.normal(4, 3))
                    for helper in ("one_for_two", "corner", "custom", "views_of_it")
                ),
                _count_of(d, "pieces", d.normal(6, 3)),
            ],
            (look.exists, look.runs, look.returns, called, look.untouched, look.whole),
        ),
    ),
)


@saved_bytes.solution
def saved_by_base(fn, *args):
    """Sizes by address, noted while fn runs; what is noted stays alive."""
    free = _given(args)
    sizes, alive = {}, []

    def pack(t):
        root = t if t._base is None else t._base
        if not (root.is_leaf and root.requires_grad) and _address(t) not in free:
            alive.append(t.detach())
            sizes[_address(t)] = t.untyped_storage().nbytes()
        return t.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        fn(*args)
    return sum(sizes.values())


@saved_bytes.solution
def saved_by_graph(fn, *args):
    """The parameters found in the graph of each packed tensor."""
    packed = _packed(fn, *args)
    free = _given(args)
    todo = [t.grad_fn for t in packed]
    free |= {_address(t) for t in packed if t.is_leaf and t.requires_grad}
    seen = set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            free.add(_address(node.variable))
        todo += [n for n, _ in node.next_functions]
    return sum({_address(t): t.untyped_storage().nbytes() for t in packed if _address(t) not in free}.values())


@saved_bytes.solution
class saved_by_storage:
    """The storages themselves, one by one; pack hands out numbers."""

    def __init__(self, fn, args):
        self.packed, self.storages = [], []
        self.total = 0
        with torch.autograd.graph.saved_tensors_hooks(self.pack, self.packed.__getitem__):
            self.known = [a.untyped_storage() for a in args if isinstance(a, Tensor)]
            fn(*args)

    def pack(self, t):
        storage = t.untyped_storage()
        held = {s._cdata for s in (*self.known, *self.storages)}
        learns = t.is_leaf or (t._is_view() and t._base.is_leaf)
        if storage._cdata not in held and not (learns and t.requires_grad):
            self.storages.append(storage)
            self.total += len(storage)
        self.packed.append(t.detach())
        return len(self.packed) - 1

    @classmethod
    def apply(cls, fn, *args):
        return cls(fn, args).total


@saved_bytes.solution
def saved_afterwards(fn, *args):
    """A list first, by entering and leaving the hooks by hand; then the sum."""
    found = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: found.append(t) or t.detach(), lambda t: t)
    hooks.__enter__()
    try:
        fn(*args)
    finally:
        hooks.__exit__(None, None, None)
    total, seen = 0, [a for a in args if torch.is_tensor(a)]
    for t in found:
        if not _learns(t) and all(_address(t) != _address(s) for s in seen):
            seen.append(t)
            total += t.untyped_storage().nbytes()
    return total


def _sum_of(fn: Callable, args: tuple, key: Callable, size: Callable) -> int:
    """The right sum, but for what tells tensors apart and for what one counts."""
    free = _given(args)
    sizes = {key(t): size(t) for t in _packed(fn, *args) if not _learns(t) and _address(t) not in free}
    return sum(sizes.values())


def _nbytes(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes()


@saved_bytes.mistake(
    "count",
    "You count every tensor that is packed. A tensor that two nodes keep is packed twice, and so are two views of one "
    "storage: count each storage once.",
)
def every_pack_counted(fn, *args):
    free = _given(args)
    return sum(_nbytes(t) for t in _packed(fn, *args) if not _learns(t) and _address(t) not in free)


@saved_bytes.mistake(
    "count",
    "You count the elements of each tensor. A view keeps its whole storage alive, and one that is expanded has more elements "
    "than memory: ask t.untyped_storage().nbytes().",
)
def elements_of_the_view(fn, *args):
    return _sum_of(fn, args, _address, lambda t: t.numel() * t.element_size())


@saved_bytes.mistake(
    "count",
    "You take every element for four bytes. That is float32; float64 and indices have eight, halves two, a mask one. "
    "t.untyped_storage().nbytes() knows.",
)
def four_bytes_each(fn, *args):
    return _sum_of(fn, args, _address, lambda t: 4 * (_nbytes(t) // t.element_size()))


@saved_bytes.mistake("count", "You count elements. The number asked for is in bytes: t.untyped_storage().nbytes().")
def elements_not_bytes(fn, *args):
    return _sum_of(fn, args, _address, lambda t: _nbytes(t) // t.element_size())


@saved_bytes.mistake(
    "count",
    "You tell tensors apart by id (or by `is`). Two views are two objects with one storage, and what autograd hands you may be a "
    "new object each time: compare t.untyped_storage().data_ptr().",
)
def same_by_identity(fn, *args):
    return _sum_of(fn, args, id, _nbytes)


@saved_bytes.mistake(
    "count",
    "You tell tensors apart by t.data_ptr(), the address of the first element. Two views of one storage begin at different "
    "places: ask the storage, t.untyped_storage().data_ptr().",
)
def same_by_first_element(fn, *args):
    return _sum_of(fn, args, Tensor.data_ptr, _nbytes)


@saved_bytes.mistake(
    "count",
    "You tell tensors apart by shape or size, so of several storages of one size only one is counted. Tell them apart by the "
    "storage's address.",
)
def same_by_size(fn, *args):
    return _sum_of(fn, args, _nbytes, _nbytes)


@saved_bytes.mistake(
    "count",
    "You leave out what is not of a floating dtype. Masks and indices are kept for backward as well, a byte or eight an element.",
)
def floats_only(fn, *args):
    free = _given(args)
    return _counted([t for t in _packed(fn, *args) if t.is_floating_point()], free)


@saved_bytes.mistake(
    "count",
    "You leave out every leaf. Masks, indices and constants are leaves too, as nothing computes their gradient: only leaves "
    "that require grad are free.",
)
def leaves_left_out(fn, *args):
    free = _given(args)
    packed = _packed(fn, *args)
    return _counted([t for t in packed if not (t if t._base is None else t._base).is_leaf], free)


@saved_bytes.mistake(
    "count",
    "You leave out every tensor that requires grad. So does all that is computed from x: what is free are leaves alone, which "
    "t.is_leaf tells.",
)
def all_that_require_grad_left_out(fn, *args):
    free = _given(args)
    return _counted([t for t in _packed(fn, *args) if not t.requires_grad], free)


@saved_bytes.mistake(
    "count",
    "You leave out what fn returns. An output that backward needs is kept for backward, and is counted.",
)
def outputs_left_out(fn, *args):
    results = []
    packed = _packed(lambda *a: results.append(fn(*a)), *args)
    outputs = results[0] if isinstance(results[0], tuple) else (results[0],)
    return _counted(packed, _given(args) | {_address(o) for o in outputs if isinstance(o, Tensor)})


@saved_bytes.mistake(
    "count",
    "You count in the unpack hook, which runs in backward. Nothing is unpacked while fn runs: count in the pack hook.",
)
def counts_what_is_unpacked(fn, *args):
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(Tensor.detach, lambda t: kept.append(t) or t):
        fn(*args)
    return _counted(kept, _given(args))


@saved_bytes.mistake(
    "count",
    "You run fn without gradients (under no_grad, or on detached arguments), so autograd keeps nothing and the sum is 0.",
)
def without_gradients(fn, *args):
    with torch.no_grad():
        return _counted(_packed(fn, *args), _given(args))


@saved_bytes.mistake(
    "count",
    "You walk through the graph of the result and add what its nodes show as _saved_... A Function's own tensors stand elsewhere, "
    "and a graph that fn drops cannot be walked. The pack hook sees all of them.",
)
def walks_the_graph(fn, *args):
    result = fn(*args)
    results = result if isinstance(result, tuple) else (result,)
    todo, seen, found = [o.grad_fn for o in results if isinstance(o, Tensor)], set(), []
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found += [getattr(node, name) for name in dir(node) if name.startswith("_saved_")]
        todo += [n for n, _ in node.next_functions]
    return _counted([t for t in found if isinstance(t, Tensor)], _given(args))


@saved_bytes.mistake(
    "count",
    "You run fn under torch.enable_grad(). Where the caller is under no_grad, autograd keeps nothing of fn, and the number is 0.",
)
def gradients_enabled(fn, *args):
    with torch.enable_grad():
        return _counted(_packed(fn, *args), _given(args))


@saved_bytes.mistake(
    "free",
    "You count the elements of the tensor that a view is of, t._base. A detached slice says nothing of what it is a slice of, and keeps "
    "all of its memory: ask t.untyped_storage().nbytes().",
)
def size_of_the_base(fn, *args):
    def size(t):
        root = t if t._base is None else t._base
        return root.numel() * root.element_size()

    return _sum_of(fn, args, _address, size)


@saved_bytes.mistake("count", "You return a tensor. Asked for is a Python int: .item() makes one of it.")
def tensor_returned(fn, *args):
    return torch.tensor(_counted(_packed(fn, *args), _given(args)))


@saved_bytes.mistake(
    "free",
    "You count the arguments. They are alive anyway, so what autograd keeps of them costs nothing: leave out their storages.",
)
def arguments_counted(fn, *args):
    free = set()
    return sum(
        {
            _address(t): _nbytes(t)
            for t in _packed(fn, *args)
            if _address(t) not in free and not (_learns(t) and _address(t) not in _given(args))
        }.values()
    )


@saved_bytes.mistake(
    "free",
    "You count fn's parameters: leaves that require grad. They are alive anyway, whoever calls fn.",
)
def parameters_counted(fn, *args):
    free = _given(args)
    return sum({_address(t): _nbytes(t) for t in _packed(fn, *args) if _address(t) not in free}.values())


@saved_bytes.mistake(
    "free",
    "You compare tensors with the arguments by identity, so a view of an argument is counted with all of the argument's memory. "
    "Compare storages: t.untyped_storage().data_ptr().",
)
def views_of_arguments_counted(fn, *args):
    packed = [t for t in _packed(fn, *args) if not any(t is a for a in args)]
    leaves = [a for a in args if isinstance(a, Tensor)]
    own = [t for t in packed if not _learns(t) or any(t._base is a for a in leaves)]
    return sum({_address(t): _nbytes(t) for t in own}.values())


@saved_bytes.mistake(
    "free",
    "You leave out parameters, but not views of them: a linear layer keeps weight.t(), which is no leaf and has the weight's "
    "memory. Ask the tensor it is a view of, t._base, whether it is a leaf that requires grad.",
)
def views_of_parameters_counted(fn, *args):
    free = _given(args)
    packed = [t for t in _packed(fn, *args) if not (t.is_leaf and t.requires_grad) and _address(t) not in free]
    return sum({_address(t): _nbytes(t) for t in packed}.values())


@saved_bytes.mistake(
    "free",
    "You leave out leaves that require grad, and take that for the arguments too. An argument that requires no gradient is just "
    "as free: compare with the storages of all arguments.",
)
def only_learning_arguments_free(fn, *args):
    return _counted(_packed(fn, *args), set())


@saved_bytes.mistake(
    "free",
    "You know the arguments by a.data_ptr(), the address of the first element. An argument that is a slice begins elsewhere than its "
    "storage: compare a.untyped_storage().data_ptr().",
)
def arguments_by_first_element(fn, *args):
    return _counted(_packed(fn, *args), {a.data_ptr() for a in args if isinstance(a, Tensor)})


@saved_bytes.mistake(
    "free",
    "Your saved_bytes takes one argument for fn. It takes any number, *args, and hands on all of them.",
)
def one_argument_alone(fn, x):
    return _counted(_packed(fn, x), _given((x,)))


@saved_bytes.mistake(
    "free",
    "You ask every argument for its storage. An argument may be a number or None: only tensors have one.",
)
def tensors_only(fn, *args):
    return _counted(_packed(fn, *args), {_address(a) for a in args})


@saved_bytes.mistake(
    "contract",
    "You run fn more than once: to look at its result, or to warm up. It may be slow, or draw random numbers: once is enough.",
)
def runs_twice(fn, *args):
    fn(*args)
    return _counted(_packed(fn, *args), _given(args))


@saved_bytes.mistake(
    "contract",
    "Your hooks stay on after saved_bytes returns, and see all that autograd packs from then on. Use saved_tensors_hooks in a "
    "with statement.",
)
def hooks_left_on(fn, *args):
    kept = []
    torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t.detach(), lambda t: t).__enter__()
    fn(*args)
    return _counted(kept, _given(args))


@saved_bytes.mistake(
    "contract",
    "What your hooks hand back is not the tensor (is a return missing?). A function that takes a gradient on its way unpacks what "
    "you packed: pack returns what unpack needs to return the tensor.",
)
def nothing_handed_back(fn, *args):
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t), lambda t: t):
        fn(*args)
    return _counted(kept, _given(args))


@saved_bytes.mistake(
    "contract",
    "You hand fn detached copies of its arguments. A function that takes a gradient with respect to the caller's tensor does not find it "
    "in the graph: call fn on the arguments as they are.",
)
def arguments_detached(fn, *args):
    return _counted(_packed(fn, *map(_own, args)), _given(args))


@saved_bytes.mistake(
    "contract",
    "You let the arguments require gradients. They belong to the caller, and where they require none autograd keeps less: count "
    "what it keeps for the arguments as they are.",
)
def arguments_made_to_learn(fn, *args):
    for a in args:
        if isinstance(a, Tensor) and a.is_floating_point():
            a.requires_grad_()
    return _counted(_packed(fn, *args), _given(args))


# --- FusedLinearReLU --------------------------------------------------------------------------------------------------


def _layer(d: Draw, *shape: int, out: int = 4, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor, Tensor]:
    """x of this shape, weight and bias; no output near 0, where a rounding would decide, and from 4 on some are 0."""
    while True:
        x, weight, bias = (d.between(-1.5, 1.5, *s, dtype=dtype) for s in (shape, (out, shape[-1]), (out,)))
        before = F.linear(x.double(), weight.double(), bias.double())
        mixed = before.numel() < 4 or ((before > 0).any() and (before < 0).any())
        if mixed and (before.abs() > 0.1).all():
            return x, weight, bias


def _layers(d: Draw, order: int = 1) -> list[Case]:
    """Every dtype, leading dimensions of every kind, layouts, and sizes that are 1 or equal."""
    shapes = {"a vector": (3,), "a batch of batches": (2, 2, 3), "no rows": (0, 3)}
    cases = [d.case(f"{_named(t)} input", *_layer(d, 2, 3, dtype=t), order=order) for t in DTYPES[:3]]
    cases += [d.case(name, *_layer(d, *shape), order=order) for name, shape in shapes.items()]
    cases += [d.case("one row, a square weight", *_layer(d, 1, 3, out=3), order=order)]
    cases += [d.case("one input, one output", *_layer(d, 2, 1, out=1), order=order)]
    x, weight, bias = _layer(d, 2, 2, 3)
    weight = weight.t().contiguous().t()
    cases += [d.case("a transposed x and weight", x.transpose(0, 1), weight, bias, order=order)]
    cases += [d.case("an expanded x and bias", x[:1].expand(2, 2, 3), weight, bias[:1].expand(4), order=order)]
    return cases


def _small(d: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """A layer whose outputs are tiny, exactly."""
    x, weight, bias = _layer(d, 3, 3)
    return x, weight * 2.0**-40, bias * 2.0**-40


def _some(d: Draw) -> list[Case]:
    """Which of the arguments require a gradient."""
    cases = []
    for flags in [tuple(bool(i >> k & 1) for k in range(3)) for i in range(1, 7)]:
        wanted = " and ".join(n for n, flag in zip(("x", "weight", "bias"), flags, strict=True) if flag)
        cases.append(d.case(f"a gradient for {wanted} alone", *_layer(d, 2, 3), requires=flags))
    return cases


def _at_zero(d: Draw, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor, Tensor]:
    """Before the ReLU [[0, 4], [-2, 0]], exactly, times a power of 2."""
    rows = torch.tensor([[1.0, 2.0], [-1.0, 0.0]]), torch.tensor([[2.0, -1.0], [1.0, 1.0]]), torch.tensor([0.0, 1.0])
    x, weight, bias = (r.to(dtype) for r in rows)
    factor = 2.0 ** int(d.between(-2, 3))
    return x, weight * factor, bias * factor


def _edges(d: Draw) -> list[Case]:
    cases = [d.case(f"{_named(t)}, 0 before the ReLU", *_at_zero(d, t)) for t in DTYPES]
    zeros = (torch.zeros(2, 3, dtype=DOUBLE), d.normal(2, 3), torch.zeros(2, dtype=DOUBLE))
    cases.append(d.case("zeros before the ReLU throughout", *zeros))
    inf = float("inf")
    for t in DTYPES:
        upstream = torch.tensor([[inf, 0.75], [-inf, inf]], dtype=t)
        name = f"{_named(t)}, an infinite upstream gradient where the output is 0"
        cases.append(d.case(name, *_at_zero(d, t), upstream=upstream))
    return cases


fused = Task(
    "FusedLinearReLU",
    "FusedLinearReLU.apply(x, weight, bias)",
    lambda x, weight, bias: F.relu(F.linear(x, weight, bias)),
    (
        Check(
            "value",
            1,
            "the output equals F.relu(F.linear(...)) for any leading dimensions and dtype",
            "Forward is what every later number rests on.",
            lambda d: [
                *_layers(d, order=0),
                d.case("every size", d.scales(4, 3), *_layer(d, 2, 3)[1:], order=0),
                d.case("named arguments", *_layer(d, 2, 3), keywords=("x", "weight", "bias"), order=0),
            ],
            FORWARD,
        ),
        Check(
            "gradient",
            2,
            "all gradients equal torch's, whichever are needed, and gradcheck passes",
            "The ReLU lets g through where the output is above 0; what passes goes on as in a linear layer.",
            lambda d: [
                *_layers(d),
                d.case("every size", d.scales(4, 3), *_layer(d, 4, 3)[1:], upstream=d.scales(4, 4)),
                d.case(
                    "an expanded upstream gradient", *_layer(d, 2, 2, 3), upstream=d.normal(2, 1, 4).expand(2, 2, 4)
                ),
                *_some(d),
                d.case("outputs near 1e-12", *_small(d)),
            ],
            FIRST,
            lambda d: _layer(d, 2, 2, 3),
        ),
        Check(
            "edges",
            1,
            "no gradient where the output is 0: at the kink, and where g is infinite",
            "Torch's relu has the gradient 0 at 0, and 0 times infinity is nan.",
            _edges,
            (*FORWARD, look.function, look.gradient),
        ),
        Check(
            "second_order",
            1,
            "each gradient can be differentiated again, by the other factor and by g",
            "A Hessian or a gradient penalty differentiates your backward.",
            lambda d: [
                *(d.case(f"x of shape {s}", *_layer(d, *s), order=2) for s in ((2, 3), (3,), (2, 2, 3))),
                d.case("weight requires no gradient", *_layer(d, 2, 3), order=2, requires=(True, False, True)),
            ],
            SECOND,
            lambda d: _layer(d, 2, 3, out=2),
            order=2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; backward is yours; nothing changes unnoticed",
            "Tensors that your Function did not make belong to others.",
            lambda d: [
                d.case("a matrix", *_layer(d, 2, 3), watch=ALL, deny=MASKS),
                d.case("a float32 vector", *_layer(d, 3, dtype=SINGLE), watch=("state",)),
                d.case("a batch of batches", *_layer(d, 2, 2, 3), watch=("state", "overwrite")),
            ],
            CONTRACT,
        ),
        Check(
            "memory",
            1,
            "nothing beside x, weight, bias and the output stays in memory for backward",
            "A layer that is fused to save memory must not keep more than the two it replaces.",
            lambda d: [
                d.case("a matrix", *_layer(d, 5, 3), watch=("trace",)),
                d.case("a float32 batch of batches", *_layer(d, 2, 3, 3, dtype=SINGLE), watch=("trace",)),
                d.case("a transposed x", _layer(d, 3, 5, 3)[0].transpose(0, 1), *_layer(d, 3)[1:], watch=("trace",)),
                d.case("weight requires no gradient", *_layer(d, 5, 3), watch=("trace",), requires=(True, False, True)),
            ],
            (*FIRST, look.value, look.keeps_at_most(0)),
        ),
    ),
    forbids=look.GRADIENT,
)


def _backward(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of a linear layer."""
    rows = g.reshape(-1, weight.shape[0])
    return g @ weight, rows.t() @ x.reshape(-1, weight.shape[1]), rows.sum(0)


@fused.solution
class FusedNew(Function):
    """The mask made of the output, in backward."""

    @staticmethod
    def forward(x, weight, bias):
        return F.relu(F.linear(x, weight, bias))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight, output)

    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        return _backward(torch.where(y > 0, g, 0), x, weight)


@fused.solution
class FusedOld(Function):
    """forward and setup_context in one; computes the layer again in backward, and saves no output."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight, bias)
        return (x.matmul(weight.mT) + bias).clamp_(min=0)

    @staticmethod
    def backward(ctx, g):
        x, weight, bias = ctx.saved_tensors
        with torch.no_grad():
            dead = x.matmul(weight.mT) + bias <= 0
        g = g.masked_fill(dead, 0)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        grad_weight = grad_bias = None
        if needs_weight:
            grad_weight = torch.outer(g, x) if x.ndim == 1 else (g.mT @ x).sum_to_size(weight.shape)
        if needs_bias:
            grad_bias = g.sum_to_size(bias.shape)
        return g.matmul(weight) if needs_x else None, grad_weight, grad_bias


@fused.solution
class FusedEinsum(FusedNew):
    """Every product an einsum; the bias gradient is left to the engine to sum."""

    @staticmethod
    def forward(x, weight, bias):
        return (torch.einsum("...i,oi->...o", x, weight) + bias).clamp(min=0)

    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        g = torch.where(y == 0, torch.zeros_like(g), g)
        grad_weight = torch.einsum("no,ni->oi", g.flatten(0, -2) if g.ndim > 1 else g[None], x.reshape(-1, x.shape[-1]))
        return torch.einsum("...o,oi->...i", g, weight), grad_weight, g


@fused.solution
class FusedByBroadcasting(FusedNew):
    """A product over a new axis, and sums; a copy of g whose dead places are overwritten."""

    @staticmethod
    def forward(x, weight, bias):
        y = (x.unsqueeze(-2) * weight).sum(-1) + bias
        return torch.maximum(y, torch.zeros((), dtype=y.dtype))

    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        g = g.clone()
        g[~(y > 0)] = 0
        wide = g.unsqueeze(-1)
        grad_weight = (wide * x.unsqueeze(-2)).sum_to_size(weight.shape)
        return (wide * weight).sum(-2), grad_weight, g.sum_to_size(weight.shape[:1])


@fused.mistake(
    "value",
    "Your output is the linear layer's alone: the ReLU is missing. Negative numbers become 0 before you return them.",
)
class relu_left_out(FusedNew):
    @staticmethod
    def forward(x, weight, bias):
        return F.linear(x, weight, bias)


@fused.mistake(
    "value",
    "You add the bias after the ReLU. It belongs before: relu(x W^T + b), so that the output is never negative.",
)
class bias_after_relu(FusedNew):
    @staticmethod
    def forward(x, weight, bias):
        return F.relu(x @ weight.t()) + bias


@fused.mistake(
    "value",
    "You multiply by weight as it is. Its shape is (out, in), as in F.linear, so x is multiplied by its transpose: "
    "x @ weight.t().",
)
class weight_not_transposed(FusedNew):
    @staticmethod
    def forward(x, weight, bias):
        return F.relu(x @ weight + bias)


@fused.mistake(
    "value",
    "Your forward multiplies with mm or addmm, which take matrices alone: an x with one dimension, or with three, raises. "
    "F.linear and the operator @ take any leading dimensions.",
)
class two_dimensions_only(FusedNew):
    @staticmethod
    def forward(x, weight, bias):
        return torch.addmm(bias, x, weight.t()).relu_()


@fused.mistake("value", FLOAT32)
class float32_inside(FusedNew):
    @staticmethod
    def forward(x, weight, bias):
        return F.relu(F.linear(x.float(), weight.float(), bias.float()))


@fused.mistake("value", FLOAT32_AND_BACK)
class float32_and_back(FusedNew):
    @staticmethod
    def forward(x, weight, bias):
        return F.relu(F.linear(x.float(), weight.float(), bias.float())).to(x.dtype)


@fused.mistake(
    "gradient",
    "Your gradients are those of the linear layer: the ReLU is missing in backward. Set the upstream gradient to 0 where the "
    "output is 0, before you multiply or sum anything.",
)
class mask_left_out(FusedNew):
    @staticmethod
    def backward(ctx, g):
        x, weight, _ = ctx.saved_tensors
        return _backward(g, x, weight)


@fused.mistake(
    "gradient",
    "Your gradients do not depend on the upstream gradient, as if it were 1 everywhere. What passes the ReLU is the upstream "
    "gradient where the output is above 0.",
)
class upstream_ignored(FusedNew):
    @staticmethod
    def backward(ctx, g):
        return FusedNew.backward(ctx, torch.ones_like(g))


@fused.mistake(
    "gradient",
    "You multiply the upstream gradient by the output. The derivative of ReLU is 1 where the output is above 0, whatever "
    "its size: ask whether the output is above 0 and let g through there.",
)
class multiplied_by_output(FusedNew):
    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        return _backward(g * y, x, weight)


@fused.mistake(
    "gradient",
    "You put the upstream gradient itself through a ReLU, so negative gradients are lost. Backward asks where the output is "
    "above 0, and lets gradients of both signs through there.",
)
class gradient_clamped_too(FusedNew):
    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        return _backward(torch.where(y > 0, g, 0).clamp(min=0), x, weight)


@fused.mistake(
    "gradient",
    "The gradient of bias sums the upstream gradient as it came. The ReLU comes after the bias, so it stands between them in "
    "backward too: sum what passes the ReLU.",
)
class bias_past_the_mask(FusedNew):
    @staticmethod
    def backward(ctx, g):
        grad_x, grad_weight, _ = FusedNew.backward(ctx, g)
        return grad_x, grad_weight, g.reshape(-1, g.shape[-1]).sum(0)


@fused.mistake(
    "gradient",
    "You let the gradient through only where the output is above a small number such as 1e-6. Where it is smaller, and not 0, the ReLU has "
    "slope 1 as well: ask y > 0.",
)
class threshold_above_zero(FusedNew):
    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        return _backward(torch.where(y > 1e-6, g, 0), x, weight)


@fused.mistake(
    "gradient",
    "Your gradient for weight is x^T g, of shape (in, out): the transpose of what it should be. A gradient has the shape of "
    "its argument, (out, in), so it is g^T x.",
)
class weight_gradient_transposed(FusedNew):
    @staticmethod
    def backward(ctx, g):
        grad_x, grad_weight, grad_bias = FusedNew.backward(ctx, g)
        return grad_x, grad_weight.t(), grad_bias


@fused.mistake(
    "gradient",
    "Your backward works for matrices alone: .t() takes two dimensions at most, so an x with three raises. Make one long "
    "batch of the leading dimensions first, with reshape(-1, n), n the last size.",
)
class matrices_only_in_backward(FusedNew):
    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        g = torch.where(y > 0, g, 0)
        grad_weight = g.t() @ x if g.ndim != 1 else torch.outer(g, x)
        return g @ weight, grad_weight, g.sum_to_size(weight.shape[:1])


@fused.mistake(
    "gradient",
    "Your gradients for weight and bias are divided by the number of rows. Each row uses them once, and what the rows send "
    "back adds up. If the loss is a mean, g has the 1/N already.",
)
class batch_averaged(FusedNew):
    @staticmethod
    def backward(ctx, g):
        grad_x, grad_weight, grad_bias = FusedNew.backward(ctx, g)
        rows = max(g.numel() // g.shape[-1], 1)
        return grad_x, grad_weight / rows, grad_bias / rows


@fused.mistake(
    "gradient",
    "Your backward returns None for everything (is a return statement missing?): nothing gets a gradient at all.",
)
class nothing_returned(FusedNew):
    @staticmethod
    def backward(ctx, g):
        return None, None, None


@fused.mistake("gradient", VIEW_NEEDED)
class view_needed(FusedNew):
    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        rows = torch.where(y > 0, g, 0).view(-1, weight.shape[0])
        return (rows @ weight).view(x.shape), rows.t() @ x.view(-1, weight.shape[1]), rows.sum(0)


@fused.mistake(
    "gradient",
    "ctx.needs_input_grad[0] decides about all three of your gradients. Each argument has an entry of its own: 0 is x, 1 is "
    "weight, 2 is bias.",
)
class x_decides_for_all(FusedNew):
    @staticmethod
    def backward(ctx, g):
        return FusedNew.backward(ctx, g) if ctx.needs_input_grad[0] else (None, None, None)


@fused.mistake(
    "gradient",
    "Your linear layer is a Function of yours and the ReLU is torch's, outside it, with a gradient of torch's own. The task is "
    "one Function for both: apply the ReLU in forward, and the mask in backward.",
)
def relu_outside(x, weight, bias):
    return F.relu(only_linear.apply(x, weight, bias))


class only_linear(relu_left_out):  # part of the above
    backward = mask_left_out.backward


@fused.mistake("gradient", NO_FUNCTION)
def no_function(x, weight, bias):
    return F.relu(F.linear(x, weight, bias))


@fused.mistake(
    "edges",
    "Where the layer is exactly 0 before the ReLU, your gradient passes. Torch's relu stops it there, so the mask is > 0 and not "
    ">= 0. The output, which you may save, is 0 there as well: y > 0 is the same mask.",
)
class passes_at_zero(FusedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight, bias = ctx.saved_tensors
        return _backward(torch.where(F.linear(x, weight, bias) >= 0, g, 0), x, weight)


@fused.mistake(
    "edges",
    "You multiply the upstream gradient by the mask, and infinity times 0 is nan. Choose between g and 0 instead of "
    "multiplying: torch.where.",
)
class mask_multiplied(FusedNew):
    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        return _backward(g * (y > 0), x, weight)


@fused.mistake(
    "second_order",
    "Your first derivatives are right and your second are missing: detach (or .data) in backward cuts x and weight out of the "
    "graph of the gradients. Use what you saved as it is.",
)
class detached(FusedNew):
    @staticmethod
    def backward(ctx, g):
        x, weight, y = (t.detach() for t in ctx.saved_tensors)
        return _backward(torch.where(y > 0, g, 0), x, weight)


@fused.mistake(
    "second_order",
    "What you save is made in forward: x reshaped to rows, or made contiguous. It comes back as a constant, so the gradient of weight no longer "
    "depends on x. Save x as it is, and reshape in backward.",
)
class saves_rows(FusedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x.reshape(-1, x.shape[-1]), weight, output)
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, g):
        rows, weight, y = ctx.saved_tensors
        grad_x, grad_weight, grad_bias = _backward(torch.where(y > 0, g, 0).reshape(-1, g.shape[-1]), rows, weight)
        return grad_x.reshape(ctx.shape), grad_weight, grad_bias


@fused.mistake("second_order", CUT_OFF)
class not_differentiable_twice(FusedNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return FusedNew.backward(ctx, g)


@fused.mistake(
    "contract",
    "Your backward sets the upstream gradient to 0 in place. That tensor is not yours: another branch of the graph, or the "
    "caller, holds the same one and now has wrong numbers. torch.where makes a new one.",
)
class writes_into_upstream(FusedNew):
    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        with torch.no_grad():
            g[y == 0] = 0
        return _backward(g, x, weight)


@fused.mistake(
    "contract",
    "You keep x, weight or the output as an attribute of ctx, where torch does not watch it: when it is changed in place before "
    "backward, the gradient is silently wrong. Use ctx.save_for_backward.",
)
class kept_as_attribute(FusedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.weight, _ = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return _backward(torch.where(y > 0, g, 0), ctx.x, ctx.weight)


@fused.mistake(
    "contract",
    "You keep the output as an attribute of ctx, or detached from it (output.data). Torch does not watch it there: changed in place, it "
    "gives another mask and a silently wrong gradient. Give ctx.save_for_backward the output itself.",
)
class output_as_attribute(FusedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)
        ctx.y = output

    @staticmethod
    def backward(ctx, g):
        return _backward(torch.where(ctx.y > 0, g, 0), *ctx.saved_tensors)


@fused.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(FusedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        GLOBAL["layer"] = *inputs[:2], output

    @staticmethod
    def backward(ctx, g):
        x, weight, y = GLOBAL["layer"]
        return _backward(torch.where(y > 0, g, 0), x, weight)


@fused.mistake(
    "contract",
    "Your backward lets torch.autograd differentiate forward. The task is to write the vector-Jacobian product yourself: mask g, "
    "then g @ weight, g^T x, and a sum.",
)
class autograd_in_backward(FusedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            own = [t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in ctx.saved_tensors]
            return torch.autograd.grad(F.relu(F.linear(*own)), own, g, create_graph=True)


@fused.mistake(
    "contract",
    "Your backward calls torch's own backward of relu. Write it yourself: the upstream gradient where the output is above 0, "
    "else 0.",
)
class torch_s_backward(FusedNew):
    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        return _backward(torch.ops.aten.threshold_backward(g, y, 0), x, weight)


@fused.mistake(
    "memory",
    "You save the mask: a byte for each element of the output, since a bool takes a byte and not a bit. The output is alive "
    "anyway and says the same. Save it, and compute the mask in backward.",
)
class saves_mask(FusedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight, output > 0)

    @staticmethod
    def backward(ctx, g):
        x, weight, mask = ctx.saved_tensors
        return _backward(torch.where(mask, g, 0), x, weight)


@fused.mistake(
    "memory",
    "Beside the output you keep as many bytes again: the layer's numbers from before the ReLU, a copy, or a mask of floats. The "
    "output is alive anyway, and is 0 wherever the gradient stops: save it, as it is.",
)
class saves_pre_activation(Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        before = F.linear(x, weight, bias)
        ctx.save_for_backward(x, weight, before)
        return F.relu(before)

    @staticmethod
    def backward(ctx, g):
        x, weight, before = ctx.saved_tensors
        return _backward(torch.where(before > 0, g, 0), x, weight)


# --- checkpoint -------------------------------------------------------------------------------------------------------

RANDOM_STATE = 8192  # bytes that a checkpoint may keep beside the arguments: the state of the random stream is 5056
TORCH_S_OWN = ("torch.utils.checkpoint._get_autocast_kwargs",)  # which every checkpoint of torch's calls
FORBIDS = look.Forbids(
    "checkpoint is to be written: torch.utils.checkpoint is forbidden.", paths=("torch.utils.checkpoint",)
)


def _ran(
    d: Draw, name: str, helper: Helper, *args: object, requires: tuple[bool, ...] | None = None, **keywords
) -> Case:
    """A case of a function with parameters; gradients by backward."""
    flags = requires or tuple(isinstance(a, Tensor) and a.is_floating_point() for a in args)
    keywords = {"how": "backward", "deny": TORCH_S_OWN} | keywords
    return d.case(name, helper, *args, requires=(False, *flags), **keywords)


def _net(d: Draw, dtype: torch.dtype = DOUBLE, learns: bool = True) -> Helper:
    """Two layers, whose parameters learn or are frozen."""
    parameters = (d.normal(3, 4, dtype=dtype), d.normal(4, dtype=dtype), d.normal(4, 2, dtype=dtype))
    return Helper("net", parameters, (learns,) * 3)


def _holding(d: Draw, name: str, *shape: int, learns: bool = False) -> Helper:
    """A function with one parameter of this shape."""
    return Helper(name, (d.normal(*shape),), (learns,))


def _deep(d: Draw, learns: bool = False, **keywords) -> Case:
    """A case in which much would be kept, and little may be."""
    deep = Helper("deep", (d.normal(32, 32) / 4,), (learns,))
    return _ran(d, "three layers", deep, d.normal(100, 32), watch=("trace",), **keywords)


def _of_all_kinds(d: Draw, order: int = 1, **keywords) -> Case:
    index = torch.tensor([2, 0, 2, 1])
    args = (d.normal(4, 3), index, 2, True, None, "sum", d.normal(4, 3))
    held = _holding(d, "of_all_kinds", 3, 3)
    return _ran(d, "tensors, indices, numbers, a bool, None", held, *args, order=order, **keywords)


def _cast(d: Draw) -> list[Case]:
    """Forward under autocast in another dtype; and backward under it, where forward was not."""
    x, y = (4 * d.normal(3, 3, dtype=SINGLE) for _ in range(2))
    w = Helper("gated", (4 * d.normal(3, 3, dtype=SINGLE),), (False,))
    some = {"requires": (False, True)}  # what is differentiated is no product of matrices, so autocast changes nothing
    return [
        _ran(d, "forward under autocast in float16", w, x, y / 8, within="autocast in float16", **some),
        _ran(d, "backward alone under autocast", w, x, y / 8, within="autocast around backward", **some),
    ]


def _tuples(d: Draw, order: int = 1) -> list[Case]:
    return [
        _ran(d, "a tuple of two", _holding(d, "in_pairs", 3, 4), d.normal(2, 3), order=order),
        _ran(d, "a tuple of one", _holding(d, "tuple_of_one", 3, 4), d.normal(2, 3), order=order),
        _ran(d, "a tuple with indices", _holding(d, "with_indices", 3, 4), d.normal(2, 3), order=order),
    ]


def manners(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """As `untouched`, but for the random stream, which a check of its own is about."""
    changed = tuple(what for what in yours.changed if what != "the random stream")
    return look.untouched(call, case, replace(yours, changed=changed), expected)


def graphless(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """What arrives in a parameter's .grad needs no gradient itself."""
    if dict(yours.tally).get("gradients_with_a_graph"):
        text = "What your backward adds to a parameter's .grad has a graph of its own, which keeps all it is made of alive."
        return look.Finding("counts", f"{case.name}: {text} Leave out create_graph=True.", {})
    return None


CHECKPOINT = (*look.FORWARD, look.differentiable)
FREED = look.keeps_at_most(RANDOM_STATE, "keeps")
LESS = look.keeps_at_most(40_000, "keeps")  # what the layers keep is more: whoever calls fn alone earns nothing

checkpoint = Task(
    "checkpoint",
    "checkpoint(fn, *args)",
    lambda fn, *args: fn(*args),
    (
        Check(
            "value",
            1,
            "forward returns what fn(*args) returns, a tensor or a tuple, for arguments of every kind",
            "Whoever puts checkpoint around a part of a net must get the same net.",
            lambda d: [
                _ran(d, "a net", _net(d), d.normal(2, 3), order=0),
                _ran(d, "a float32 net", _net(d, SINGLE), d.normal(2, 3, dtype=SINGLE), order=0),
                _ran(d, "two arguments", _holding(d, "gated", 3, 3), d.normal(2, 3), d.normal(2, 3), order=0),
                _of_all_kinds(d, 0),
                *_tuples(d, 0),
                _ran(d, "no argument", _holding(d, "without_arguments", 3, learns=True), order=0),
            ],
            CHECKPOINT,
        ),
        Check(
            "arguments",
            1,
            "arguments get their gradients, whatever stands between them, from every output",
            "Backward runs fn again on the saved arguments, and differentiates that run with the upstream gradient.",
            lambda d: [
                _ran(d, "two arguments", _holding(d, "gated", 3, 3), d.normal(2, 3), d.normal(2, 3)),
                _ran(d, "a net, and a transposed x", _net(d, learns=False), d.normal(3, 2).t()),
                _ran(
                    d,
                    "y requires no gradient",
                    _holding(d, "gated", 3, 3),
                    d.normal(2, 3),
                    d.normal(2, 3),
                    requires=(True, False),
                ),
                _of_all_kinds(d),
                *_tuples(d),
                d.case(
                    "one tensor given twice",
                    Helper("product"),
                    Helper("lent", (d.normal(2, 3),), (True,)),
                    Helper("lent_again", ()),
                    how="backward",
                ),
                _deep(d),
            ],
            (*CHECKPOINT, look.gradient, LESS),
        ),
        Check(
            "parameters",
            2,
            "the gradients of parameters that fn uses, also where no argument requires one",
            "A checkpoint that reaches its arguments alone trains nothing inside it.",
            lambda d: [
                _ran(d, "a net", _net(d), d.normal(2, 3)),
                _ran(d, "a float32 net", _net(d, SINGLE), d.normal(2, 3, dtype=SINGLE)),
                _ran(d, "a net, and x requires no gradient", _net(d), d.normal(2, 3), requires=(False,)),
                _ran(d, "no argument", _holding(d, "without_arguments", 3, learns=True)),
                _ran(d, "fn is a method", _holding(d, "bound_method", 3, 4, learns=True), d.normal(2, 3)),
                _ran(d, "fn is a partial", _holding(d, "partial_product", 2, 3, learns=True), d.normal(2, 3)),
                _deep(d, learns=True),
                _deep(d, learns=True, requires=(False,)),
            ],
            (*CHECKPOINT, look.gradient, LESS),
        ),
        Check(
            "randomness",
            1,
            "masks repeat in backward; both passes leave the random stream where it belongs",
            "A gradient through another dropout mask belongs to an output that you did not return.",
            lambda d: [
                _ran(d, "dropout and noise", _holding(d, "dropping", 6, 5), d.normal(7, 6)),
                _deep(d),
            ],
            (*CHECKPOINT, look.gradient, look.stream, look.untouched, LESS),
        ),
        Check(
            "autocast",
            1,
            "what ran under autocast is recomputed under it, and what did not is not",
            "Backward runs where loss.backward() stands, outside the autocast block.",
            lambda d: [
                _ran(
                    d,
                    "forward under autocast",
                    _net(d, SINGLE, learns=False),
                    d.normal(2, 3, dtype=SINGLE),
                    within="autocast",
                ),
                _ran(d, "no autocast", _net(d, SINGLE, learns=False), d.normal(2, 3, dtype=SINGLE)),
                *_cast(d),
                _deep(d),
            ],
            (*CHECKPOINT, look.gradient, manners, LESS),
        ),
        Check(
            "memory",
            1,
            "what fn makes on its way is freed until backward; fn runs once in each pass",
            "Memory for time: that is the purpose of it.",
            lambda d: [
                _deep(d, learns=True),
                _deep(d),
                _ran(d, "a net", _net(d), d.normal(2, 3)),
                *_tuples(d),
                _ran(d, "a parameter", _holding(d, "watched", 3), d.normal(2, 3)),
            ],
            (*CHECKPOINT, look.gradient, FREED, called, graphless),
        ),
        Check(
            "contract",
            1,
            "several graphs side by side, backward twice; no change of an argument goes unnoticed",
            "A checkpoint stands in a net with others, and fn's arguments belong to the net.",
            lambda d: [
                _ran(d, "a net", _net(d, learns=False), d.normal(2, 3), watch=("state", "overwrite")),
                _ran(
                    d,
                    "two arguments",
                    _holding(d, "gated", 3, 3),
                    d.normal(2, 3),
                    d.normal(2, 3),
                    watch=("state", "overwrite"),
                    between=(_holding(d, "in_pairs", 3, 4), d.normal(2, 3)),
                ),
                _of_all_kinds(d, watch=("overwrite",)),
                _ran(
                    d,
                    "y requires no gradient",
                    _holding(d, "gated", 3, 3),
                    d.normal(2, 3),
                    d.normal(2, 3),
                    requires=(True, False),
                ),
                _deep(d),
            ],
            (*CHECKPOINT, manners, look.gradient, look.stateless, look.guarded, LESS),
        ),
    ),
    forbids=FORBIDS,
)


class _Surroundings:
    """The random stream and the autocast state, as they are now."""

    def __init__(self) -> None:
        self.stream = torch.get_rng_state()
        self.cast = {"enabled": torch.is_autocast_enabled("cpu"), "dtype": torch.get_autocast_dtype("cpu")}

    @contextmanager
    def again(self) -> Iterator[None]:
        with torch.random.fork_rng([]), torch.autocast("cpu", **self.cast), torch.enable_grad():
            torch.set_rng_state(self.stream)
            yield


def _own(tensor: object) -> object:
    """A leaf of its own, where the argument is a tensor."""
    return tensor.detach().requires_grad_(tensor.requires_grad) if isinstance(tensor, Tensor) else tensor


def _as_tuple(result: object) -> tuple:
    return result if isinstance(result, tuple) else (result,)


@checkpoint.solution
class Rerun(Function):
    """An anchor that requires a gradient, and a backward within backward. Most mistakes change one thing here."""

    @classmethod
    def apply(cls, fn, *args):
        return super().apply(fn, _Surroundings(), torch.empty(0, requires_grad=True), *args)

    @staticmethod
    def forward(fn, around, anchor, *args):
        return fn(*args)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.fn, ctx.around, _, *args = inputs
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[a if isinstance(a, Tensor) else None for a in args])

    @staticmethod
    def arguments(ctx) -> list:
        return [_own(other if t is None else t) for t, other in zip(ctx.saved_tensors, ctx.others, strict=True)]

    @staticmethod
    def backward(ctx, *upstream):
        args = Rerun.arguments(ctx)
        with ctx.around.again():
            outputs = _as_tuple(ctx.fn(*args))
        return Rerun.gradients(args, outputs, upstream)

    @staticmethod
    def gradients(args: list, outputs: tuple, upstream: tuple) -> tuple:
        pairs = [(o, g) for o, g in zip(outputs, upstream, strict=True) if o.requires_grad]
        torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        return None, None, None, *[a.grad if isinstance(a, Tensor) and a.is_leaf else None for a in args]


@checkpoint.solution
class Older:
    """forward and setup_context in one, which sees the random stream before fn does."""

    class Function(Function):
        @staticmethod
        def forward(ctx, anchor, fn, *args):
            ctx.fn, ctx.stream = fn, torch.random.get_rng_state()
            ctx.cast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
            ctx.places = [i for i, a in enumerate(args) if torch.is_tensor(a)]
            ctx.args = [None if torch.is_tensor(a) else a for a in args]
            ctx.save_for_backward(*[args[i] for i in ctx.places])
            return fn(*args)

        @staticmethod
        def backward(ctx, *upstream):
            args = list(ctx.args)
            for i, t in zip(ctx.places, ctx.saved_tensors, strict=True):
                args[i] = t.detach()
                args[i].requires_grad = t.requires_grad
            enabled, dtype = ctx.cast
            now = torch.random.get_rng_state()
            torch.random.set_rng_state(ctx.stream)
            try:
                with torch.enable_grad(), torch.autocast("cpu", dtype=dtype, enabled=enabled):
                    results = ctx.fn(*args)
            finally:
                torch.random.set_rng_state(now)
            results = [results] if torch.is_tensor(results) else results
            with torch.enable_grad():
                total = sum((r * g).sum() for r, g in zip(results, upstream, strict=True) if r.requires_grad)
            total.backward()
            return None, None, *[getattr(a, "grad", None) for a in args]

    @classmethod
    def apply(cls, fn, *args):
        return cls.Function.apply(torch.zeros((), requires_grad=True), fn, *args)


@checkpoint.solution
def by_hooks(fn, *args):
    """No Function: what autograd would save is computed anew when it asks for it."""
    around, versions = _Surroundings(), [a._version for a in args if isinstance(a, Tensor)]
    count, found = itertools.count(), {}

    def again() -> None:
        if versions != [a._version for a in args if isinstance(a, Tensor)]:
            raise RuntimeError("an argument was changed in place")
        place = itertools.count()

        def keep(tensor: Tensor) -> Tensor:
            found[next(place)] = tensor.detach()
            return tensor.detach()

        with around.again(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            fn(*map(_own, args))

    def unpack(index: int) -> Tensor:
        if index not in found:
            again()
        return found.pop(index)

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: next(count), unpack):
        return fn(*args)


def _leaves(outputs: tuple) -> list[Tensor]:
    """The leaves in the graph of the outputs."""
    todo, seen, found = [o.grad_fn for o in outputs if o.requires_grad], set(), []
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found += [node.variable] if hasattr(node, "variable") else []
        todo += [n for n, _ in node.next_functions]
    return found


@checkpoint.solution
class by_searching:
    """Parameters found in the graph of the second run, and added to by hand."""

    class Function(Rerun):
        @staticmethod
        def gradients(args, outputs, upstream):
            pairs = [(o, g) for o, g in zip(outputs, upstream, strict=True) if o.requires_grad]
            own = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
            others = [t for t in _leaves(outputs) if not any(t is a for a in own)]
            grads = torch.autograd.grad([o for o, _ in pairs], own + others, [g for _, g in pairs], allow_unused=True)
            for leaf, grad in zip(others, grads[len(own) :], strict=True):
                leaf.grad = grad if leaf.grad is None else leaf.grad + grad
            found = dict(zip(map(id, own), grads, strict=False))
            return None, None, None, *[found.get(id(a)) for a in args]

        @staticmethod
        def backward(ctx, *upstream):
            args = Rerun.arguments(ctx)
            with ctx.around.again():
                outputs = _as_tuple(ctx.fn(*args))
            return by_searching.Function.gradients(args, outputs, upstream)

    @classmethod
    def apply(cls, fn, *args):
        return cls.Function.apply(fn, *args)


@checkpoint.solution
def with_parameters_found_first(fn, *args):
    """One run that keeps a graph without tensors; its leaves become arguments of a Function."""
    around = _Surroundings()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: None, lambda nothing: nothing):
        result = fn(*args)
    outputs = _as_tuple(result)
    own = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    leaves = [t for t in _leaves(outputs) if not any(t is args[i] for i in own)]
    outputs = tuple(o.detach() for o in outputs)

    class Given(Function):
        @staticmethod
        def forward(ctx, *tensors):
            ctx.save_for_backward(*tensors[: len(own)])
            ctx.mark_non_differentiable(*[o for o in outputs if not o.is_floating_point()])
            return outputs if isinstance(result, tuple) else outputs[0]

        @staticmethod
        def backward(ctx, *upstream):
            again = list(args)
            for i, t in zip(own, ctx.saved_tensors, strict=True):
                again[i] = _own(t)
            with around.again():
                second = _as_tuple(fn(*again))
            pairs = [(o, g) for o, g in zip(second, upstream, strict=True) if o.requires_grad]
            wanted = [again[i] for i in own if again[i].requires_grad] + leaves
            found = iter(torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True))
            return *[next(found) if again[i].requires_grad else None for i in own], *found

    return Given.apply(*[args[i] for i in own], *leaves)


# --- its mistakes -----------------------------------------------------------------------------------------------------


@checkpoint.mistake(
    "value",
    "You return the first tensor of a tuple alone. What fn returns is what checkpoint returns: a tensor, or a tuple.",
)
class first_output_returned(Rerun):
    @staticmethod
    def forward(fn, around, anchor, *args):
        return _as_tuple(fn(*args))[0]


@checkpoint.mistake(
    "value",
    "You return a tuple also where fn returns a tensor. Remember which it was: a tensor comes back as a tensor.",
)
class always_a_tuple(Rerun):
    @staticmethod
    def forward(fn, around, anchor, *args):
        return _as_tuple(fn(*args))


@checkpoint.mistake(
    "value",
    "You give save_for_backward all arguments. It takes tensors and None: keep a number, a bool or a string on ctx, and "
    "remember the places.",
)
class saves_numbers(Rerun):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.fn, ctx.around, _, *args = inputs
        ctx.others = [None] * len(args)
        ctx.save_for_backward(*args)


@checkpoint.mistake(
    "value",
    "Your output is cut off from the graph: fn runs under no_grad and nothing of yours takes its place. The Function's apply "
    "must return the output, with its anchor among the arguments.",
)
def cut_off(fn, *args):
    with torch.no_grad():
        return fn(*args)


@checkpoint.mistake(
    "arguments",
    "You differentiate the sum of the outputs: the upstream gradient is missing. Give it to the backward of the second run.",
)
class upstream_ignored(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        return Rerun.backward(ctx, *map(torch.ones_like, upstream))


@checkpoint.mistake(
    "arguments",
    "Parameters get their gradients and the arguments get None. Either their copies in the second run do not require gradients "
    "(after detach() comes requires_grad_()), or what is in the copies' .grad is not what you return.",
)
class nothing_for_arguments(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        return tuple(None for _ in Rerun.backward(ctx, *upstream))


@checkpoint.mistake(
    "arguments",
    "You run fn on the saved arguments themselves. The inner backward then goes on into the caller's graph, and what you return "
    "comes on top: gradients are doubled. Run it on x.detach().requires_grad_().",
)
class not_detached(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        args = [other if t is None else t for t, other in zip(ctx.saved_tensors, ctx.others, strict=True)]
        with ctx.around.again():
            outputs = _as_tuple(ctx.fn(*args))
        return Rerun.gradients(args, outputs, upstream)


@checkpoint.mistake(
    "arguments",
    "You let every tensor argument require a gradient, and torch refuses that for integers: indices. Ask the saved tensor: "
    "copy.requires_grad_(t.requires_grad).",
)
class indices_required(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        saved = zip(ctx.saved_tensors, ctx.others, strict=True)
        args = [other if t is None else t.detach().requires_grad_() for t, other in saved]
        with ctx.around.again():
            outputs = _as_tuple(ctx.fn(*args))
        return Rerun.gradients(args, outputs, upstream)


@checkpoint.mistake(
    "arguments",
    "Backward runs without gradients, so what you differentiate there needs a graph of its own. Put the second run, and all that you compute from its outputs, into "
    "torch.enable_grad().",
)
class enable_grad_forgotten(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        args = Rerun.arguments(ctx)
        with ctx.around.again(), torch.no_grad():
            outputs = _as_tuple(ctx.fn(*args))
        torch.autograd.backward(outputs, upstream)
        return None, None, None, *[a.grad if isinstance(a, Tensor) else None for a in args]


@checkpoint.mistake(
    "arguments",
    "You return the gradients of the tensors one after another, and None for the rest behind them. Where a number stands between "
    "two tensors, gradients land in the wrong places: one entry for each argument, in order.",
)
class places_lost(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        head, found = Rerun.backward(ctx, *upstream)[:3], Rerun.backward(ctx, *upstream)[3:]
        tensors = [g for g, t in zip(found, ctx.saved_tensors, strict=True) if t is not None]
        return *head, *tensors, *[None] * (len(found) - len(tensors))


@checkpoint.mistake(
    "arguments",
    "Your inner backward starts at the first output only. Each output has an upstream gradient: torch.autograd.backward takes "
    "a list of both.",
)
class first_output_only(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        args = Rerun.arguments(ctx)
        with ctx.around.again():
            outputs = _as_tuple(ctx.fn(*args))
        where = next(i for i, o in enumerate(outputs) if o.requires_grad)
        return Rerun.gradients(args, outputs[where : where + 1], upstream[where : where + 1])


@checkpoint.mistake(
    "arguments",
    "You know the copies of the arguments by their address, so one tensor given twice has one copy, whose gradient you return in both "
    "places: twice too much. Each place has a copy of its own.",
)
class copies_by_address(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        args, copies = Rerun.arguments(ctx), {}
        args = [copies.setdefault(a.data_ptr(), a) if isinstance(a, Tensor) and a.numel() else a for a in args]
        with ctx.around.again():
            outputs = _as_tuple(ctx.fn(*args))
        return Rerun.gradients(args, outputs, upstream)


@checkpoint.mistake(
    "parameters",
    "Parameters of fn get no gradient: torch.autograd.grad returns those of the arguments, and fn's parameters are none of them. "
    "The layer inside never learns. An inner backward() adds to the .grad of every leaf it reaches.",
)
class parameters_none(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        args = Rerun.arguments(ctx)
        with ctx.around.again():
            outputs = _as_tuple(ctx.fn(*args))
        pairs = [(o, g) for o, g in zip(outputs, upstream, strict=True) if o.requires_grad]
        own = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
        grads = torch.autograd.grad([o for o, _ in pairs], own, [g for _, g in pairs], allow_unused=True)
        found = dict(zip(map(id, own), grads, strict=True))
        return None, None, None, *[found.get(id(a)) for a in args]


@checkpoint.mistake(
    "parameters",
    "Where no argument requires a gradient, your output requires none either, and fn's parameters get nothing. Give the Function "
    "one tensor more, that always requires a gradient and is not used.",
)
class without_anchor(Rerun):
    @classmethod
    def apply(cls, fn, *args):
        return super(Rerun, cls).apply(fn, _Surroundings(), None, *args)


@checkpoint.mistake(
    "parameters",
    "You look for fn's parameters: in its closure, or by parameters(). fn is any callable, and may hold them in a list, in an object whose "
    "method it is, or in functools.partial. An inner backward() reaches the leaves without knowing them.",
)
class parameters_searched(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        args = Rerun.arguments(ctx)
        with ctx.around.again():
            outputs = _as_tuple(ctx.fn(*args))
        own = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
        found = _held_by(ctx.fn)
        pairs = [(o, g) for o, g in zip(outputs, upstream, strict=True) if o.requires_grad]
        grads = torch.autograd.grad([o for o, _ in pairs], own + found, [g for _, g in pairs], allow_unused=True)
        for leaf, grad in zip(found, grads[len(own) :], strict=True):
            leaf.grad = grad if leaf.grad is None or grad is None else leaf.grad + grad
        known = dict(zip(map(id, own), grads, strict=False))
        return None, None, None, *[known.get(id(a)) for a in args]


def _held_by(fn: Callable) -> list[Tensor]:
    """The leaves in a function's closure, and in those of functions there; a part of the above."""
    held = [cell.cell_contents for cell in fn.__closure__ or ()]
    found = [t for t in held if isinstance(t, Tensor) and t.requires_grad]
    return found + [t for f in held if hasattr(f, "__closure__") for t in _held_by(f)]


@checkpoint.mistake(
    "parameters",
    "Parameters get their gradients twice: your inner backward runs twice, once for the arguments and once for the rest. Once adds "
    "to every leaf, the arguments' copies included.",
)
class parameters_doubled(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        args = Rerun.arguments(ctx)
        with ctx.around.again():
            outputs = _as_tuple(ctx.fn(*args))
        pairs = [(o, g) for o, g in zip(outputs, upstream, strict=True) if o.requires_grad]
        torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs], retain_graph=True)
        for a in args:
            if isinstance(a, Tensor):
                a.grad = None
        return Rerun.gradients(args, outputs, upstream)


@checkpoint.mistake(
    "randomness",
    "Your second run draws new dropout masks, so the gradient belongs to an output that you did not return. Take "
    "torch.get_rng_state() before fn runs, and set it for the second run.",
)
class masks_redrawn(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        ctx.around.stream = torch.get_rng_state()
        return Rerun.backward(ctx, *upstream)


@checkpoint.mistake(
    "randomness",
    "You take the random state after fn has run, in setup_context or at the end of forward, so the second run draws the numbers "
    "after those. Take it before, outside the Function or first thing in forward(ctx, ...).",
)
class state_taken_late(Rerun):
    @staticmethod
    def setup_context(ctx, inputs, output):
        Rerun.setup_context(ctx, inputs, output)
        ctx.around.stream = torch.get_rng_state()


@checkpoint.mistake(
    "randomness",
    "You keep the seed of the random stream, or set one, and seed the second run. The stream has moved on since it was seeded, so the masks "
    "differ. Take its state where it is, torch.get_rng_state(), and set that.",
)
class seed_for_state(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        with torch.random.fork_rng([]):
            torch.manual_seed(torch.initial_seed())
            ctx.around.stream = torch.get_rng_state()
        return Rerun.backward(ctx, *upstream)


@checkpoint.mistake(
    "randomness",
    "Your backward sets the random stream back for the second run and leaves it there. What the caller draws next repeats earlier "
    "numbers: put the stream back where it was, or use torch.random.fork_rng.",
)
class stream_left_behind(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        args = Rerun.arguments(ctx)
        torch.set_rng_state(ctx.around.stream)
        with torch.enable_grad(), torch.autocast("cpu", **ctx.around.cast):
            outputs = _as_tuple(ctx.fn(*args))
        return Rerun.gradients(args, outputs, upstream)


@checkpoint.mistake(
    "autocast",
    "The forward ran under autocast and your second run does not, so backward differentiates a float32 function that nobody "
    "computed. Note torch.is_autocast_enabled and the dtype before fn runs, and enter the same autocast again.",
)
class autocast_forgotten(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        ctx.around.cast["enabled"] = False
        return Rerun.backward(ctx, *upstream)


@checkpoint.mistake(
    "autocast",
    "Your second run is always under autocast, also where the forward was not: in float32 the gradient gets the digits of "
    "bfloat16. Enter it with enabled= as it was.",
)
class autocast_always(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        ctx.around.cast["enabled"] = True
        return Rerun.backward(ctx, *upstream)


@checkpoint.mistake(
    "autocast",
    "Your second run is under autocast where the forward was, but always in bfloat16 (the CPU's default). Note "
    "torch.get_autocast_dtype as well, and enter it with that dtype.",
)
class autocast_dtype_forgotten(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        ctx.around.cast["dtype"] = torch.bfloat16
        return Rerun.backward(ctx, *upstream)


@checkpoint.mistake(
    "autocast",
    "You enter autocast where the forward was under it, and never switch it off. Where backward is called under autocast and the forward was "
    "not, the second run is in bfloat16: enter it with enabled= as it was, False too.",
)
class autocast_never_off(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        ctx.around.cast["enabled"] |= torch.is_autocast_enabled("cpu")
        return Rerun.backward(ctx, *upstream)


@checkpoint.mistake(
    "memory",
    "Your inner backward keeps a graph of the gradients (create_graph=True), and a parameter's .grad holds it and all it is made of. "
    "Leave it out: the task asks for first derivatives.",
)
class graph_of_gradients(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        args = Rerun.arguments(ctx)
        with warnings.catch_warnings(), ctx.around.again():
            warnings.simplefilter("ignore")
            outputs = _as_tuple(ctx.fn(*args))
            pairs = [(o, g) for o, g in zip(outputs, upstream, strict=True) if o.requires_grad]
            torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs], create_graph=True)
        return None, None, None, *[a.grad if isinstance(a, Tensor) else None for a in args]


@checkpoint.mistake(
    "memory",
    "You call fn as if there were no checkpoint: all that it makes on its way stays in memory until backward. It runs without a "
    "graph first, and again, with one, in backward.",
)
def no_checkpoint(fn, *args):
    return fn(*args)


@checkpoint.mistake(
    "memory",
    "Your forward runs fn with a graph and keeps it for backward, so nothing is recomputed and nothing is freed. Keep fn and its "
    "arguments, and run it again in backward.",
)
class graph_kept(Rerun):
    @staticmethod
    def forward(fn, around, anchor, *args):
        around.args = list(map(_own, args))
        with torch.enable_grad():
            result = fn(*around.args)
        around.outputs = _as_tuple(result)
        outputs = tuple(o.detach() for o in around.outputs)
        return outputs if isinstance(result, tuple) else outputs[0]

    @staticmethod
    def backward(ctx, *upstream):
        return Rerun.gradients(ctx.around.args, ctx.around.outputs, upstream)


@checkpoint.mistake(
    "memory",
    "You run fn in forward more than once, to see what it returns or to save the right things. It runs once in forward and once in "
    "backward.",
)
class twice_in_forward(Rerun):
    @staticmethod
    def forward(fn, around, anchor, *args):
        with torch.random.fork_rng([]):
            fn(*args)
        return fn(*args)


@checkpoint.mistake(
    "contract",
    "You keep the arguments on ctx, or in a closure, where torch does not watch them: changed in place before backward, they give "
    "a silently wrong gradient. Tensors go through ctx.save_for_backward.",
)
class kept_as_attribute(Rerun):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.fn, ctx.around, _, *ctx.args = inputs

    @staticmethod
    def backward(ctx, *upstream):
        args = list(map(_own, ctx.args))
        with ctx.around.again():
            outputs = _as_tuple(ctx.fn(*args))
        return Rerun.gradients(args, outputs, upstream)


@checkpoint.mistake(
    "contract",
    "Floating tensors go through ctx.save_for_backward, tensors of indices stay on ctx, where torch does not watch them: changed in place "
    "before backward, they lead gradients to wrong places. Save every tensor.",
)
class indices_unwatched(Rerun):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.fn, ctx.around, _, *args = inputs
        watched = [a if isinstance(a, Tensor) and a.is_floating_point() else None for a in args]
        ctx.others = [a if t is None else None for a, t in zip(args, watched, strict=True)]
        ctx.save_for_backward(*watched)


@checkpoint.mistake(
    "contract",
    "You keep fn outside ctx (on the class, or in a global): a second checkpoint puts its fn there, and the first one's backward runs the "
    "wrong function. What is no tensor is kept on ctx.",
)
class fn_outside_ctx(Rerun):
    @staticmethod
    def setup_context(ctx, inputs, output):
        Rerun.setup_context(ctx, inputs, output)
        GLOBAL["fn"] = ctx.fn

    @staticmethod
    def backward(ctx, *upstream):
        ctx.fn = GLOBAL["fn"]
        return Rerun.backward(ctx, *upstream)


@checkpoint.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Rerun):
    @staticmethod
    def setup_context(ctx, inputs, output):
        GLOBAL["checkpoint"] = inputs

    @staticmethod
    def backward(ctx, *upstream):
        fn, around, _, *args = GLOBAL["checkpoint"]
        args = list(map(_own, args))
        with around.again():
            outputs = _as_tuple(fn(*args))
        return Rerun.gradients(args, outputs, upstream)


@checkpoint.mistake(
    "contract",
    "Your backward works once. With retain_graph=True it may run again: forget nothing in it (fn, arguments, what you recomputed "
    "and handed out), or compute it anew.",
)
class works_once(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        grads = Rerun.backward(ctx, *upstream)
        ctx.fn = None
        return grads


@checkpoint.mistake(
    "contract",
    "Your backward writes into the upstream gradient. That tensor is not yours: another branch of the graph, or the caller, "
    "holds the same one and now has wrong numbers.",
)
class writes_into_upstream(Rerun):
    @staticmethod
    def backward(ctx, *upstream):
        grads = Rerun.backward(ctx, *upstream)
        for g in upstream:
            g.zero_()
        return grads


@checkpoint.mistake(
    "contract",
    "You call torch.utils.checkpoint. It does what the task asks for, and is what the task is not to be solved with.",
)
def torch_s_own(fn, *args):
    return torch.utils.checkpoint.checkpoint(fn, *args, use_reentrant=False)


# --- The chapter's own: Recompute, LinearTanh -----------------------------------------------------------------------------


def _parts(d: Draw, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, ...]:
    """x, w1, b1, w2, b2 of two layers."""
    return tuple(d.normal(*s, dtype=dtype) for s in ((2, 3), (4, 3), (4,), (2, 4), (2,)))


def _two_layers(d: Draw, dtype: torch.dtype = DOUBLE) -> tuple[object, ...]:
    x, *parameters = _parts(d, dtype)
    return x, Helper("two_layers"), *parameters


recompute = Task(
    "Recompute",
    "Recompute.apply(x, f, *parameters)",
    lambda x, f, *parameters: f(x, *parameters),
    (
        Check(
            "value",
            0,
            "the output is f(x, *parameters)",
            "Forward is what every later number rests on.",
            lambda d: [d.case("two layers", *_two_layers(d), order=0)],
            look.FORWARD,
        ),
        Check(
            "gradient",
            0,
            "x and every parameter get a gradient; dropout masks and autocast repeat",
            "A gradient belongs to the output that was returned.",
            lambda d: [
                d.case("two layers", *_two_layers(d)),
                d.case("dropout", d.normal(6, 5), Helper("dropped"), d.normal(5, 4)),
                d.case("under autocast", *_two_layers(d, SINGLE), within="autocast"),
            ],
            look.FIRST,
        ),
        Check(
            "second_order",
            0,
            "the gradients can be differentiated again",
            "A Hessian differentiates your backward.",
            lambda d: [d.case("two layers", *_two_layers(d), order=2)],
            look.SECOND,
        ),
    ),
)


@recompute.solution
class Recompute(Function):
    """As the chapter has it."""

    @classmethod
    def apply(cls, x, f, *parameters):
        return super().apply(_Surroundings(), f, x, *parameters)

    @staticmethod
    def forward(state, f, *tensors):
        return f(*tensors)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.state, ctx.f, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, g):
        twice = torch.is_grad_enabled()
        with ctx.state.again():
            tensors = [t.view_as(t) for t in ctx.saved_tensors]
            y = ctx.f(*tensors)
        needed = [t for t in tensors if t.requires_grad]
        grads = iter(torch.autograd.grad(y, needed, g, create_graph=twice, allow_unused=True))
        return None, None, *(next(grads) if t.requires_grad else None for t in tensors)


class _RecomputeOnce(Recompute):
    """First order only, as the chapter's wrong versions have it."""

    @staticmethod
    def backward(ctx, g):
        with ctx.state.again():
            tensors = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            y = ctx.f(*tensors)
        return None, None, *torch.autograd.grad(y, tensors, g)


@recompute.mistake(
    "gradient",
    "You return a gradient for x and None for each parameter, so the block never learns. Ask torch.autograd.grad for x and the "
    "parameters, and return one gradient for each.",
)
class parameters_none(_RecomputeOnce):
    @staticmethod
    def backward(ctx, g):
        x, *parameters = ctx.saved_tensors
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.f(x, *parameters)
        return None, None, *torch.autograd.grad(y, x, g), *(None for _ in parameters)


@recompute.mistake(
    "gradient",
    "The recomputation draws new dropout masks, so the gradient belongs to another output than the one you returned. Take the "
    "random state before f runs and put it back for the recomputation.",
)
class masks_redrawn(_RecomputeOnce):
    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            tensors = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            y = ctx.f(*tensors)
        return None, None, *torch.autograd.grad(y, tensors, g)


@recompute.mistake(
    "gradient",
    "Forward ran under autocast, the recomputation does not: backward differentiates a float32 function that nobody computed. "
    "Keep the autocast state with the random state and enter it again.",
)
class autocast_forgotten(_RecomputeOnce):
    @staticmethod
    def backward(ctx, g):
        ctx.state.cast["enabled"] = False
        return _RecomputeOnce.backward(ctx, g)


linear_tanh = Task(
    "LinearTanh",
    "LinearTanh.apply(x, weight, bias)",
    lambda x, weight, bias: torch.tanh(F.linear(x, weight, bias)),
    (
        Check(
            "value",
            0,
            "the output is tanh(F.linear(x, weight, bias))",
            "Forward is what every later number rests on.",
            lambda d: [d.case(f"{_named(t)} input", *_layer(d, 2, 3, dtype=t), order=0) for t in DTYPES],
            FORWARD,
        ),
        Check(
            "gradient",
            0,
            "the gradients equal torch's",
            "A gradient belongs to the output that was returned.",
            lambda d: [d.case(f"{_named(t)} input", *_layer(d, 2, 3, dtype=t)) for t in DTYPES],
            FIRST,
            lambda d: _layer(d, 2, 3),
        ),
        Check(
            "second_order",
            0,
            "the gradients can be differentiated again",
            "A Hessian differentiates your backward.",
            lambda d: [d.case("a matrix", *_layer(d, 2, 3), order=2, watch=("trace",))],
            (*SECOND, look.keeps_at_most(0)),
            lambda d: _layer(d, 2, 3),
            2,
        ),
    ),
)


@linear_tanh.solution
class LinearTanh(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(x, weight, bias):
        return torch.tanh(F.linear(x, weight, bias))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight, output)

    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        d = g * (1 - y * y)
        return d @ weight, d.T @ x, d.sum(0)


@linear_tanh.mistake(
    "second_order",
    "You save the pre-activation: n times o elements that nothing else keeps alive, and a constant in double backward. Save the "
    "output: tanh' = 1 - y^2 needs no more.",
)
class saves_pre_activation(LinearTanh):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias = inputs
        ctx.save_for_backward(x, weight, x @ weight.T + bias)

    @staticmethod
    def backward(ctx, g):
        x, weight, z = ctx.saved_tensors
        d = g * (1 - z.tanh() ** 2)
        return d @ weight, d.T @ x, d.sum(0)


TASKS = (saved_bytes, fused, checkpoint)
CHAPTER = (recompute, linear_tanh)
