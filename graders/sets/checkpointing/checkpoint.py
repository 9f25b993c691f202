"""checkpoint: what fn makes on its way is freed, and made again in backward."""

import itertools
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case, Helper, Record
from graders.judge import looks as look
from graders.judge.aspects import contract, value
from graders.judge.outside import Outside
from graders.judge.task import DOUBLE, SINGLE, Check, Draw, Task
from graders.sets.checkpointing.common import Surroundings, as_leaf, called

PLACE = 4
ROWS = 1 << 14  # so many stand out in a process's memory
RANDOM_STATE = 8192  # bytes that a checkpoint may keep beside the arguments: the state of the random stream is 5056
TORCH_S_OWN = ("torch.utils.checkpoint._get_autocast_kwargs",)  # which every checkpoint of torch's calls


def _ran(
    d: Draw, name: str, helper: Helper, *args: object, requires: tuple[bool, ...] | None = None, **keywords
) -> Case:
    """Return a case of a function with parameters; gradients by backward."""
    flags = requires or tuple(isinstance(a, Tensor) and a.is_floating_point() for a in args)
    keywords = {"how": "backward", "deny": TORCH_S_OWN} | keywords
    return d.case(name, helper, *args, requires=(False, *flags), **keywords)


def _net(d: Draw, dtype: torch.dtype = DOUBLE, learns: bool = True) -> Helper:
    """Return two layers, whose parameters learn or are frozen."""
    parameters = (d.normal(3, 4, dtype=dtype), d.normal(4, dtype=dtype), d.normal(4, 2, dtype=dtype))
    return Helper("net", parameters, (learns,) * 3)


def _holding(d: Draw, name: str, *shape: int, learns: bool = False) -> Helper:
    """Return a function with one parameter of this shape."""
    return Helper(name, (d.normal(*shape),), (learns,))


def _deep(d: Draw, learns: bool = False, **keywords) -> Case:
    """Return a case in which much would be kept, and little may be."""
    deep = Helper("deep", (d.normal(32, 32) / 4,), (learns,))
    return _ran(d, "three layers", deep, d.normal(100, 32), watch=("trace",), **keywords)


def _of_all_kinds(d: Draw, order: int = 1, **keywords) -> Case:
    """Return a case with arguments of every kind."""
    index = torch.tensor([2, 0, 2, 1])
    args = (d.normal(4, 3), index, 2, True, None, "sum", d.normal(4, 3))
    held = _holding(d, "of_all_kinds", 3, 3)
    return _ran(d, "tensors, indices, numbers, a bool, None", held, *args, order=order, **keywords)


def _lopsided(d: Draw, order: int = 1) -> list[Case]:
    """Return cases of arguments that are no even mixture (`Draw.lopsided`), and of a negative number beside them."""
    held, other = _holding(d, "gated", 3, 3), d.normal(2, 3)
    cases = [
        *(replace(c, name=f"x: {c.name}") for c in d.lopsided(lambda x: (held, x, other), 2, 3, order=order)),
        *(replace(c, name=f"y: {c.name}") for c in d.lopsided(lambda y: (held, other, y), 2, 3, order=order)),
    ]
    args = (30 * d.sides(4, 3), torch.tensor([2, 0, 2, 1]), -2, True, None, "sum", 30 * d.sides(4, 3))
    held = _holding(d, "of_all_kinds", 3, 3)
    cases = [replace(c, how="backward", deny=TORCH_S_OWN) for c in cases]
    return [*cases, _ran(d, "a negative number, and large tensors", held, *args, order=order)]


def _cast(d: Draw) -> list[Case]:
    """Return cases with forward under autocast in another dtype, and with backward under it, where forward was not."""
    x, y = (4 * d.normal(3, 3, dtype=SINGLE) for _ in range(2))
    w = Helper("gated", (4 * d.normal(3, 3, dtype=SINGLE),), (False,))
    some = {"requires": (False, True)}  # what is differentiated is no product of matrices, so autocast changes nothing
    return [
        _ran(d, "forward under autocast in float16", w, x, y / 8, within="autocast in float16", **some),
        _ran(d, "backward alone under autocast", w, x, y / 8, within="autocast around backward", **some),
    ]


def _tuples(d: Draw, order: int = 1) -> list[Case]:
    """Return cases of functions that return tuples."""
    return [
        _ran(d, "a tuple of two", _holding(d, "in_pairs", 3, 4), d.normal(2, 3), order=order),
        _ran(d, "a tuple of one", _holding(d, "tuple_of_one", 3, 4), d.normal(2, 3), order=order),
        _ran(d, "a tuple with indices", _holding(d, "with_indices", 3, 4), d.normal(2, 3), order=order),
    ]


def manners(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """Find what `untouched` does, but for the random stream, which a check of its own is about."""
    changed = tuple(what for what in yours.changed if what != "the random stream")
    return look.untouched(call, case, replace(yours, changed=changed), expected)


def graphless(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """Find that what arrives in a parameter's .grad requires a gradient itself."""
    if dict(yours.tally).get("gradients_with_a_graph"):
        text = (
            f"{case.name}: What your backward adds to a parameter's .grad has a graph of its own, which keeps all it "
            "is made of alive. Leave out create_graph=True."
        )
        return look.Finding("counts", text, {})
    return None


CHECKPOINT = (*look.FORWARD, look.differentiable)
FREED = look.keeps_at_most(RANDOM_STATE, "keeps")
LESS = look.keeps_at_most(40_000, "keeps")  # what the layers keep is more: whoever calls fn alone earns nothing


task = Task(
    "checkpoint",
    "checkpoint(fn, *args)",
    reference=lambda fn, *args: fn(*args),
    checks=(
        value(
            1,
            about="forward returns what fn(*args) returns, a tensor or a tuple, for arguments of every kind",
            why="Whoever puts checkpoint around a part of a net must get the same net.",
            cases=lambda d: [
                _ran(d, "a net", _net(d), d.normal(2, 3), order=0),
                _ran(d, "a float32 net", _net(d, SINGLE), d.normal(2, 3, dtype=SINGLE), order=0),
                _ran(d, "two arguments", _holding(d, "gated", 3, 3), d.normal(2, 3), d.normal(2, 3), order=0),
                _of_all_kinds(d, 0),
                *_tuples(d, 0),
                _ran(d, "no argument", _holding(d, "without_arguments", 3, learns=True), order=0),
                *_lopsided(d, 0),
            ],
            looks=CHECKPOINT,
        ),
        Check(
            "arguments",
            1,
            about="arguments get their gradients, whatever stands between them, from every output",
            why="Backward runs fn again on the saved arguments, and differentiates that run with the upstream "
            "gradient.",
            cases=lambda d: [
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
                *_lopsided(d),
            ],
            looks=(*CHECKPOINT, look.gradient, LESS),
        ),
        Check(
            "parameters",
            1,
            about="the gradients of parameters that fn uses, also where no argument requires one",
            why="A checkpoint that reaches its arguments alone trains nothing inside it.",
            cases=lambda d: [
                _ran(d, "a net", _net(d), d.normal(2, 3)),
                _ran(d, "a float32 net", _net(d, SINGLE), d.normal(2, 3, dtype=SINGLE)),
                _ran(d, "a net, and x requires no gradient", _net(d), d.normal(2, 3), requires=(False,)),
                _ran(d, "no argument", _holding(d, "without_arguments", 3, learns=True)),
                _ran(d, "fn is a method", _holding(d, "bound_method", 3, 4, learns=True), d.normal(2, 3)),
                _ran(d, "fn is a partial", _holding(d, "partial_product", 2, 3, learns=True), d.normal(2, 3)),
                _deep(d, learns=True),
                _deep(d, learns=True, requires=(False,)),
            ],
            looks=(*CHECKPOINT, look.gradient, LESS),
        ),
        Check(
            "randomness",
            1,
            about="masks repeat in backward; both passes leave the random stream where it belongs",
            why="A gradient through another dropout mask belongs to an output that you did not return.",
            cases=lambda d: [
                _ran(d, "dropout and noise", _holding(d, "dropping", 6, 5), d.normal(7, 6)),
                _deep(d),
            ],
            looks=(*CHECKPOINT, look.gradient, look.stream, look.untouched, LESS),
        ),
        Check(
            "autocast",
            1,
            about="what ran under autocast is recomputed under it, and what did not is not",
            why="Backward runs where loss.backward() stands, outside the autocast block.",
            cases=lambda d: [
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
            looks=(*CHECKPOINT, look.gradient, manners, LESS),
        ),
        Check(
            "memory",
            1,
            about="what fn makes on its way is freed until backward; fn runs once in each pass",
            why="Memory for time: that is the purpose of it.",
            cases=lambda d: [
                _deep(d, learns=True),
                _deep(d),
                _ran(d, "a net", _net(d), d.normal(2, 3)),
                *_tuples(d),
                _ran(d, "a parameter", _holding(d, "watched", 3), d.normal(2, 3)),
            ],
            looks=(*CHECKPOINT, look.gradient, FREED, called, graphless),
            outside=Outside(
                lambda d: (Helper("deep", (d.normal(32, 32) / 4,), (False,)), d.normal(ROWS, 32)),
                "the arguments and the output",
                least=8 * ROWS * 32,
                keeps=True,
            ),
        ),
        contract(
            1,
            about="several graphs side by side, backward twice; no change of an argument goes unnoticed",
            why="A checkpoint stands in a net with others, and fn's arguments belong to the net.",
            cases=lambda d: [
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
            looks=(*CHECKPOINT, manners, look.gradient, look.stateless, look.guarded, LESS),
        ),
    ),
    forbids=look.Forbids(
        "checkpoint is to be written: torch.utils.checkpoint is forbidden.", paths=("torch.utils.checkpoint",)
    ),
)

# --- Right ways -------------------------------------------------------------------------------------------------------


def as_tuple(result: object) -> tuple:
    """Return what fn returns as a tuple."""
    return result if isinstance(result, tuple) else (result,)


@task.solution
class Recomputed(Function):
    """An anchor that requires a gradient, and a backward within backward, which reaches parameters: the one to write."""

    @classmethod
    def apply(cls, fn, *args):
        anchor = torch.empty(0, requires_grad=True)  # so that the output requires a gradient where no argument does
        return super().apply(fn, Surroundings(), anchor, *args)

    @staticmethod
    def forward(fn, around, anchor, *args):
        return fn(*args)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.fn, ctx.around, _, *args = inputs
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[a if isinstance(a, Tensor) else None for a in args])

    @staticmethod
    def backward(ctx, *upstream):
        args = [as_leaf(other if t is None else t) for t, other in zip(ctx.saved_tensors, ctx.others, strict=True)]
        with ctx.around.again():
            outputs = as_tuple(ctx.fn(*args))
        pairs = [(o, g) for o, g in zip(outputs, upstream, strict=True) if o.requires_grad]
        torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        return None, None, None, *[a.grad if isinstance(a, Tensor) else None for a in args]


@task.solution
class Older:
    """forward and setup_context in one, which sees the random stream before fn does: no class for the surroundings."""

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


@task.solution
def by_hooks(fn, *args):
    """No Function: what autograd would save is computed again when it asks for it.

    The output keeps its own graph, so that torch.autograd.grad reaches parameters too: torch's own is written so.
    """
    around, versions = Surroundings(), [a._version for a in args if isinstance(a, Tensor)]
    count, found = itertools.count(), {}

    def again() -> None:
        if versions != [a._version for a in args if isinstance(a, Tensor)]:
            raise RuntimeError("an argument was changed in place")
        place = itertools.count()

        def keep(tensor: Tensor) -> Tensor:
            found[next(place)] = tensor.detach()
            return tensor.detach()

        with around.again(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            fn(*map(as_leaf, args))

    def unpack(index: int) -> Tensor:
        if index not in found:
            again()
        return found.pop(index)

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: next(count), unpack):
        return fn(*args)


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class Rerun(Function):
    """The first of all, in steps, of which most mistakes change one."""

    @classmethod
    def apply(cls, fn, *args):
        return super().apply(fn, Surroundings(), cls.anchor(), *args)

    @staticmethod
    def anchor():
        """Return what makes the output require a gradient where no argument does."""
        return torch.empty(0, requires_grad=True)

    @staticmethod
    def forward(fn, around, anchor, *args):
        return fn(*args)

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        ctx.fn, ctx.around, _, *args = inputs
        saved = cls.saved(args)
        ctx.others = [a if t is None else None for a, t in zip(args, saved, strict=True)]
        ctx.save_for_backward(*saved)

    @staticmethod
    def saved(args):
        """Return what is saved: the tensors, and None in the places of all else."""
        return [a if isinstance(a, Tensor) else None for a in args]

    @classmethod
    def backward(cls, ctx, *upstream):
        args = cls.arguments(ctx)
        outputs = cls.run(ctx, args)
        pairs = [(o, g) for o, g in zip(outputs, upstream, strict=True) if o.requires_grad]
        return None, None, None, *cls.gradients(args, [o for o, _ in pairs], [g for _, g in pairs])

    @classmethod
    def arguments(cls, ctx):
        """Return the arguments of the second run."""
        return [cls.copy(other if t is None else t) for t, other in zip(ctx.saved_tensors, ctx.others, strict=True)]

    copy = staticmethod(as_leaf)

    @staticmethod
    def run(ctx, args):
        """Return the outputs of the second run."""
        with ctx.around.again():
            return as_tuple(ctx.fn(*args))

    @staticmethod
    def gradients(args, outputs, upstream):
        """Return the gradients of the arguments; those of parameters are added where they belong."""
        torch.autograd.backward(outputs, upstream)
        return [a.grad if isinstance(a, Tensor) and a.is_leaf else None for a in args]


def _leaves(outputs: tuple) -> list[Tensor]:
    """Return the leaves in the graph of the outputs."""
    todo, seen, found = [o.grad_fn for o in outputs if o.requires_grad], set(), []
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found += [node.variable] if hasattr(node, "variable") else []
        todo += [n for n, _ in node.next_functions]
    return found


@task.solution
class by_searching(Rerun):
    """Parameters found in the graph of the second run, and added to by hand."""

    @staticmethod
    def gradients(args, outputs, upstream):
        own = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
        others = [t for t in _leaves(outputs) if not any(t is a for a in own)]
        grads = torch.autograd.grad(outputs, own + others, upstream, allow_unused=True)
        for leaf, grad in zip(others, grads[len(own) :], strict=True):
            leaf.grad = grad if leaf.grad is None else leaf.grad + grad
        found = dict(zip(map(id, own), grads, strict=False))
        return [found.get(id(a)) for a in args]


@task.solution
def with_parameters_found_first(fn, *args):
    """One run that keeps a graph without tensors; its leaves become arguments of a Function."""
    around = Surroundings()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: None, lambda nothing: nothing):
        result = fn(*args)
    outputs = as_tuple(result)
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
                again[i] = as_leaf(t)
            with around.again():
                second = as_tuple(fn(*again))
            pairs = [(o, g) for o, g in zip(second, upstream, strict=True) if o.requires_grad]
            wanted = [again[i] for i in own if again[i].requires_grad] + leaves
            found = iter(torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True))
            return *[next(found) if again[i].requires_grad else None for i in own], *found

    return Given.apply(*[args[i] for i in own], *leaves)
