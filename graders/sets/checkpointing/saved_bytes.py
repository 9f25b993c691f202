"""saved_bytes: what autograd keeps for backward, measured."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from graders.inside.records import Case, Helper
from graders.judge import looks as look
from graders.judge.aspects import contract
from graders.judge.task import DTYPES, Check, Draw, Task
from graders.sets.checkpointing.common import as_leaf, called, named

PLACE = 1
LOOKS = (look.exists, look.runs, look.returns, look.whole)
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


def _packed(fn: Callable, *args: object) -> list[Tensor]:
    """Return what autograd packs while fn runs, in order."""
    kept = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        fn(*args)
    return kept


def _address(tensor: Tensor) -> int:
    """Return where a tensor's storage begins."""
    return tensor.untyped_storage().data_ptr()


def _given(args: tuple) -> set[int]:
    """Return where the arguments' storages begin."""
    return {_address(a) for a in args if isinstance(a, Tensor)}


def _learns(tensor: Tensor) -> bool:
    """Return whether this is a leaf that requires grad, or a view of one."""
    root = tensor if tensor._base is None else tensor._base
    return root.is_leaf and root.requires_grad


def _nbytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's storage."""
    return tensor.untyped_storage().nbytes()


def _added(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of the distinct storages."""
    return sum({_address(t): _nbytes(t) for t in tensors}.values())


def _counted(packed: list[Tensor], free: set[int]) -> int:
    """Return the bytes of the distinct storages, but for those at `free` and those of leaves that learn."""
    return _added(t for t in packed if not _learns(t) and _address(t) not in free)


def _count_of(d: Draw, helper: str, *args: object, requires: tuple[bool, ...] | None = None, more: str = "") -> Case:
    """Return a case of a function without parameters."""
    flags = requires or tuple(isinstance(a, Tensor) and a.is_floating_point() for a in args)
    return d.case(WORDS[helper] + more, Helper(helper), *args, order=0, requires=(False, *flags))


def _counts(d: Draw) -> list[Case]:
    """Return cases of all that autograd keeps."""
    n = int(d.between(4, 9))
    x = d.normal(n, 3)
    plain = ("in_a_row", "one_for_two", "one_size", "corner", "spread", "chosen", "custom", "dropped_on_the_way")
    plain += ("small_and_large", "no_result")
    return [
        *(_count_of(d, helper, x) for helper in plain),
        _count_of(d, "pieces", d.normal(2 * n, 3)),
        *(_count_of(d, "in_a_row", d.normal(n, dtype=t), more=f", {named(t)}") for t in DTYPES[:3]),
        _count_of(d, "in_a_row", d.normal(), more=", a 0-d argument"),
        _count_of(d, "in_a_row", d.normal(0, 3), more=", an empty argument"),
        d.case("fn is an object that is called", Helper("callable_object", ()), x, order=0),
        d.case("the caller is under no_grad", Helper("in_a_row"), x, order=0, within="no_grad"),
    ]


def _free(d: Draw) -> list[Case]:
    """Return cases in which some of what autograd keeps is alive anyway."""
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


task = Task(
    "saved_bytes",
    "saved_bytes(fn, *args)",
    reference=lambda fn, *args: _counted(_packed(fn, *args), _given(args)),
    checks=(
        Check(
            "count",
            1,
            about="what autograd packs, in bytes: any dtype, outputs too, each storage once and whole",
            why="Tensors share storages, a view keeps all of its own, and what fn drops leaves its address to the "
            "next.",
            cases=_counts,
            looks=LOOKS,
        ),
        Check(
            "free",
            1,
            about="arguments and leaves that require grad are free, their views too; constants count",
            why="Arguments and parameters are alive anyway; what counts is what is kept for backward alone.",
            cases=_free,
            looks=LOOKS,
        ),
        contract(
            1,
            about="fn runs once and may take gradients; the arguments and torch stay as they were",
            why="A measurement changes nothing: fn gets the arguments themselves, unpack returns what was packed.",
            cases=lambda d: [
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
            looks=(*LOOKS[:-1], called, look.untouched, look.whole),
        ),
    ),
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
def saved_by_base(fn, *args):
    """Sizes by address, noted while fn runs: the one to write.

    What is noted stays alive, so that no address is given away and noted again.
    """
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


@task.solution
def saved_by_graph(fn, *args):
    """The parameters found in the graph of each packed tensor: where the private name _base is not to be used."""
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
    return _added(t for t in packed if _address(t) not in free)


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
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


@task.solution
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


# --- Mistakes ---------------------------------------------------------------------------------------------------------


def _sum_of(fn: Callable, args: tuple, key: Callable, size: Callable) -> int:
    """Return the right sum, but for what tells tensors apart and for what one counts."""
    free = _given(args)
    sizes = {key(t): size(t) for t in _packed(fn, *args) if not _learns(t) and _address(t) not in free}
    return sum(sizes.values())


@task.mistake(
    "count",
    "You count every tensor that is packed. A tensor that two nodes keep is packed twice, and so are two views of one "
    "storage: count each storage once.",
)
def every_pack_counted(fn, *args):
    free = _given(args)
    return sum(_nbytes(t) for t in _packed(fn, *args) if not _learns(t) and _address(t) not in free)


@task.mistake(
    "count",
    "You count the elements of each tensor. A view keeps its whole storage alive, and one that is expanded has more "
    "elements than memory: ask t.untyped_storage().nbytes().",
)
def elements_of_the_view(fn, *args):
    return _sum_of(fn, args, _address, lambda t: t.numel() * t.element_size())


@task.mistake(
    "count",
    "You take every element for four bytes. That is float32; float64 and indices have eight, halves two, a mask one. "
    "t.untyped_storage().nbytes() knows.",
)
def four_bytes_each(fn, *args):
    return _sum_of(fn, args, _address, lambda t: 4 * (_nbytes(t) // t.element_size()))


@task.mistake("count", "You count elements. The number asked for is in bytes: t.untyped_storage().nbytes().")
def elements_not_bytes(fn, *args):
    return _sum_of(fn, args, _address, lambda t: _nbytes(t) // t.element_size())


@task.mistake(
    "count",
    "You tell tensors apart by id (or by `is`). Two views are two objects with one storage, and what autograd hands "
    "you may be a new object each time: compare t.untyped_storage().data_ptr().",
)
def same_by_identity(fn, *args):
    return _sum_of(fn, args, id, _nbytes)


@task.mistake(
    "count",
    "You tell tensors apart by t.data_ptr(), the address of the first element. Two views of one storage begin at "
    "different places: ask the storage, t.untyped_storage().data_ptr().",
)
def same_by_first_element(fn, *args):
    return _sum_of(fn, args, Tensor.data_ptr, _nbytes)


@task.mistake(
    "count",
    "You tell tensors apart by shape or size, so of several storages of one size only one is counted. Tell them "
    "apart by the storage's address.",
)
def same_by_size(fn, *args):
    return _sum_of(fn, args, _nbytes, _nbytes)


@task.mistake(
    "count",
    "You leave out what is not of a floating dtype. Masks and indices are kept for backward as well, a byte or eight "
    "an element.",
)
def floats_only(fn, *args):
    free = _given(args)
    return _counted([t for t in _packed(fn, *args) if t.is_floating_point()], free)


@task.mistake(
    "count",
    "You leave out every leaf. Masks, indices and constants are leaves too, as nothing computes their gradient: only "
    "leaves that require grad are free.",
)
def leaves_left_out(fn, *args):
    free = _given(args)
    packed = _packed(fn, *args)
    return _counted([t for t in packed if not (t if t._base is None else t._base).is_leaf], free)


@task.mistake(
    "count",
    "You leave out every tensor that requires grad. So does all that is computed from x: what is free are leaves "
    "alone, which t.is_leaf tells.",
)
def all_that_require_grad_left_out(fn, *args):
    free = _given(args)
    return _counted([t for t in _packed(fn, *args) if not t.requires_grad], free)


@task.mistake(
    "count",
    "You leave out what fn returns. An output that backward needs is kept for backward, and is counted.",
)
def outputs_left_out(fn, *args):
    results = []
    packed = _packed(lambda *a: results.append(fn(*a)), *args)
    outputs = results[0] if isinstance(results[0], tuple) else (results[0],)
    return _counted(packed, _given(args) | {_address(o) for o in outputs if isinstance(o, Tensor)})


@task.mistake(
    "count",
    "You count in the unpack hook, which runs in backward. Nothing is unpacked while fn runs: count in the pack hook.",
)
def counts_what_is_unpacked(fn, *args):
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(Tensor.detach, lambda t: kept.append(t) or t):
        fn(*args)
    return _counted(kept, _given(args))


@task.mistake(
    "count",
    "You run fn without gradients (under no_grad, or on detached arguments), so autograd keeps nothing and the sum "
    "is 0.",
)
def without_gradients(fn, *args):
    with torch.no_grad():
        return _counted(_packed(fn, *args), _given(args))


@task.mistake(
    "count",
    "You walk through the graph of the result and add what its nodes show as _saved_... A Function's own tensors "
    "stand elsewhere, and a graph that fn drops cannot be walked. The pack hook sees all of them.",
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


@task.mistake(
    "count",
    "You run fn under torch.enable_grad(). Where the caller is under no_grad, autograd keeps nothing of fn, and the "
    "number is 0.",
)
def gradients_enabled(fn, *args):
    with torch.enable_grad():
        return _counted(_packed(fn, *args), _given(args))


@task.mistake(
    "free",
    "You count the elements of the tensor that a view is of, t._base. A detached slice says nothing of what it is a "
    "slice of, and keeps all of its memory: ask t.untyped_storage().nbytes().",
)
def size_of_the_base(fn, *args):
    def size(t):
        root = t if t._base is None else t._base
        return root.numel() * root.element_size()

    return _sum_of(fn, args, _address, size)


@task.mistake("count", "You return a tensor. Asked for is a Python int: .item() makes one of it.")
def tensor_returned(fn, *args):
    return torch.tensor(_counted(_packed(fn, *args), _given(args)))


@task.mistake(
    "free",
    "You count the arguments. They are alive anyway, so what autograd keeps of them costs nothing: leave out their "
    "storages.",
)
def arguments_counted(fn, *args):
    given = _given(args)
    return _added(t for t in _packed(fn, *args) if not _learns(t) or _address(t) in given)


@task.mistake(
    "free",
    "You count leaves that require grad, as fn's parameters are. They cost nothing here, wherever they were made: leave them out.",
)
def parameters_counted(fn, *args):
    free = _given(args)
    return _added(t for t in _packed(fn, *args) if _address(t) not in free)


@task.mistake(
    "free",
    "You compare tensors with the arguments by identity, so a view of an argument is counted with all of the "
    "argument's memory. Compare storages: t.untyped_storage().data_ptr().",
)
def views_of_arguments_counted(fn, *args):
    packed = [t for t in _packed(fn, *args) if not any(t is a for a in args)]
    tensors = [a for a in args if isinstance(a, Tensor)]
    return _added(t for t in packed if not _learns(t) or any(t._base is a for a in tensors))


@task.mistake(
    "free",
    "You leave out parameters, but not views of them: a linear layer keeps weight.t(), which is no leaf and has the "
    "weight's memory. Ask the tensor it is a view of, t._base, whether it is a leaf that requires grad.",
)
def views_of_parameters_counted(fn, *args):
    free = _given(args)
    packed = _packed(fn, *args)
    return _added(t for t in packed if not (t.is_leaf and t.requires_grad) and _address(t) not in free)


@task.mistake(
    "free",
    "You leave out leaves that require grad, and take that for the arguments too. An argument that requires no "
    "gradient is just as free: compare with the storages of all arguments.",
)
def only_learning_arguments_free(fn, *args):
    return _counted(_packed(fn, *args), set())


@task.mistake(
    "free",
    "You know the arguments by a.data_ptr(), the address of the first element. An argument that is a slice begins "
    "elsewhere than its storage: compare a.untyped_storage().data_ptr().",
)
def arguments_by_first_element(fn, *args):
    return _counted(_packed(fn, *args), {a.data_ptr() for a in args if isinstance(a, Tensor)})


@task.mistake(
    "free",
    "Your saved_bytes takes one argument for fn. It takes any number, *args, and hands on all of them.",
)
def one_argument_alone(fn, x):
    return _counted(_packed(fn, x), _given((x,)))


@task.mistake(
    "free",
    "You ask every argument for its storage. An argument may be a number or None: only tensors have one.",
)
def tensors_only(fn, *args):
    return _counted(_packed(fn, *args), {_address(a) for a in args})


@task.mistake(
    "contract",
    "You run fn more than once: to look at its result, or to warm up. It may be slow, or draw random numbers: once "
    "is enough.",
)
def runs_twice(fn, *args):
    fn(*args)
    return _counted(_packed(fn, *args), _given(args))


@task.mistake(
    "contract",
    "Your hooks stay on after saved_bytes returns, and see all that autograd packs from then on. Use "
    "saved_tensors_hooks in a with statement.",
)
def hooks_left_on(fn, *args):
    kept = []
    torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t.detach(), lambda t: t).__enter__()
    fn(*args)
    return _counted(kept, _given(args))


@task.mistake(
    "contract",
    "What your hooks hand back is not the tensor (is a return missing?). A function that takes a gradient on its way "
    "unpacks what you packed: pack returns what unpack needs to return the tensor.",
)
def nothing_handed_back(fn, *args):
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t), lambda t: t):
        fn(*args)
    return _counted(kept, _given(args))


@task.mistake(
    "contract",
    "You hand fn detached copies of its arguments. A function that takes a gradient with respect to the caller's "
    "tensor does not find it in the graph: call fn on the arguments as they are.",
)
def arguments_detached(fn, *args):
    return _counted(_packed(fn, *map(as_leaf, args)), _given(args))


@task.mistake(
    "contract",
    "You let the arguments require gradients. They belong to the caller, and where they require none autograd keeps "
    "less: count what it keeps for the arguments as they are.",
)
def arguments_made_to_learn(fn, *args):
    for a in args:
        if isinstance(a, Tensor) and a.is_floating_point():
            a.requires_grad_()
    return _counted(_packed(fn, *args), _given(args))
