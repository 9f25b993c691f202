"""Review a torch.autograd.Function, one line for each question that a careful reviewer asks.

    from checklist import review

    x = torch.tensor([-2.0, 0.7], dtype=torch.float64, requires_grad=True)
    assert review(YourFunction.apply, x, reference=torch.relu, elementwise=True) == []

Needs torch alone. Written from the appendix "Checklist: review your Function" of the course "Custom Gradients in
PyTorch", which says what each item asks and shows what fails it.
"""

# checklist: what is reviewed
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields
from unittest.mock import patch

import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.autograd.function import BackwardCFunction
from torch.autograd.gradcheck import GradcheckError
from torch.autograd.graph import saved_tensors_hooks

DTYPES = torch.float64, torch.float32, torch.float16, torch.bfloat16


@dataclass
class Op:
    """An operation, inputs for it, and what its author promises."""

    f: Callable  # YourFunction.apply, or what calls it
    cases: tuple  # tuples of arguments, float64, for every branch
    reference: Callable | None = None  # the same, by torch's operations
    surrogate: Callable | None = None  # whose gradient an estimator has
    order: int = 2  # 1: it refuses a second derivative
    dtypes: tuple = DTYPES
    elementwise: bool = False  # takes any shape
    broadcasts: bool = False  # takes two shapes that broadcast
    vmap: bool = False  # works under torch.vmap and torch.func.grad
    jvp: bool = False  # has a forward mode
    compiles: bool = False  # into one graph
    skips: bool = False  # computes no gradient that nobody needs
    keeps: int | None = None  # at most, bytes beyond inputs and outputs

    def tensors(self, *args) -> tuple[Tensor, ...]:
        """The outputs that have a gradient."""
        return tuple(with_graph(outputs(self.f, args)))


# checklist: the items
ITEMS = {}  # the list: names, and the functions that check


def item(name: str) -> Callable:
    """Put the function below on the list."""

    def put(check: Callable) -> Callable:
        ITEMS[name] = check
        return check

    return put


class NotApplicable(Exception):
    """Why an item has nothing to say."""


# checklist: arguments and outputs
def is_float(t: object) -> bool:
    return isinstance(t, Tensor) and t.is_floating_point()


def fresh(args: tuple, how: Callable = torch.clone) -> list:
    """The arguments again, each float tensor a new leaf made by `how`."""
    again = list(args)
    for i, a in enumerate(args):
        if is_float(a):
            again[i] = how(a.detach().clone()).detach()
            again[i].requires_grad_(a.requires_grad)
    return again


def wanted(args: list) -> list[int]:
    """The places of the arguments that require a gradient."""
    return [i for i, a in enumerate(args) if is_float(a) and a.requires_grad]


def outputs(f: Callable, args: list) -> list[Tensor]:
    """The tensors that f returns."""
    y = f(*args)
    y = y if isinstance(y, tuple) else (y,)
    return [t for t in y if isinstance(t, Tensor)]


# checklist: gradients
def with_graph(ys: list[Tensor]) -> list[Tensor]:
    found = [t for t in ys if t.requires_grad]
    assert found, "no output requires a gradient, where an input does"
    return found


def upstream(ys: list[Tensor]) -> list[Tensor]:
    """An upstream gradient for each output, no two elements alike."""
    ramps = [torch.linspace(0.5, 1.5, t.numel()).to(t) for t in ys]
    signs = [1 - 2 * (i % 2) for i in range(len(ys))]
    return [s * g.reshape(t.shape) for s, g, t in zip(signs, ramps, ys, strict=True)]


def pull(ys: list, args: list, gs: list | None = None, again: bool = True) -> list:
    """The arguments' gradients, zeros where none comes."""
    xs = [args[i] for i in wanted(args)]
    how = {"allow_unused": True, "materialize_grads": True}
    ys = with_graph(ys)
    gs = upstream(ys) if gs is None else gs
    return list(grad(ys, xs, gs, retain_graph=again, **how))


# checklist: what differs, and where
def place(t: Tensor) -> int:
    """Where the memory of a tensor is."""
    return t.untyped_storage().data_ptr()


def index(t: Tensor, k: int) -> tuple[int, ...]:
    """The index of element k of the flattened tensor."""
    return tuple(map(int, torch.unravel_index(torch.tensor(k), t.shape)))


def at(t: Tensor, k: int) -> str:
    return f" at {list(index(t, k))}" if t.ndim else ""


def differs(ours: list, right: list, limit: float = 1e-9, names=None) -> str:
    """Which tensor differs first, and where most; empty if they agree."""
    if len(ours) != len(right):
        return f"{len(ours)} tensors, right {len(right)}"
    for name, a, b in zip(names or range(len(ours)), ours, right, strict=True):
        if a.shape != b.shape:
            return f"{name}: shape {list(a.shape)}, right {list(b.shape)}"
        a, b = a.double(), b.double()
        same = torch.isclose(a, b, limit, limit, equal_nan=True)
        if not same.all():
            gap = (a - b).abs().nan_to_num(torch.inf)
            gap = torch.where(same, -1, gap).flatten()
            k = int((gap >= 0.99 * gap.max()).nonzero()[0])  # the first of equals
            pair = f"{a.flatten()[k]:.5g}, right {b.flatten()[k]:.5g}"
            return f"{name}{at(a, k)}: {pair}"
    return ""


def close(a: list[Tensor], b: list[Tensor], limit: float = 1e-9) -> bool:
    return not differs(a, b, limit)


# checklist: what backward itself returns
def nodes(ys: list[Tensor]) -> list:
    """The nodes that Functions made, in the graph of ys."""
    found, seen, queue = [], set(), [t.grad_fn for t in ys]
    while queue:
        node = queue.pop()
        if node is not None and node not in seen:
            seen.add(node)
            queue += [parent for parent, _ in node.next_functions]
            if isinstance(node, BackwardCFunction):
                found.append(node)
    return found


def returned(op: Op, args: list) -> list[tuple]:
    """ctx and gradients as each backward returns them.

    The engine casts them afterwards, sums them, and drops what nobody needs.
    """
    ys, seen = with_graph(outputs(op.f, args)), []
    if not (classes := {node._forward_cls for node in nodes(ys)}):
        raise NotApplicable("there is no Function in its graph")
    with ExitStack() as stack:
        for function in classes:

            def spy(ctx, *gs, backward=function.backward):
                grads = backward(ctx, *gs)
                tuple_ = grads if isinstance(grads, tuple) else (grads,)
                seen.append((ctx, tuple_))
                return grads

            watch = patch.object(function, "backward", staticmethod(spy))
            stack.enter_context(watch)
        pull(ys, args)
    return seen


# checklist: what a gradient should be like
def unlike(ctx, grads: tuple) -> str:
    """The first gradient that is not like its input in shape, dtype and device; empty if all are."""
    edges = iter([edge for edge in ctx.next_functions if edge[0] is not None])
    for k, (needed, g) in enumerate(zip(ctx.needs_input_grad, grads, strict=False)):
        if not needed:
            continue
        node, slot = next(edges)
        x = node._input_metadata[slot]  # what the engine knows of the input
        if g is None:
            continue
        same = {"shape": (list(g.shape), list(x.shape)), "dtype": (g.dtype, x.dtype)}
        same["device"] = (g.device, x.device)
        for name, (ours, right) in same.items():
            if ours != right:
                return f"argument {k}: a gradient of {name} {ours}, the input has {right}"
    return ""


# checklist: it runs, values and dtypes
LIMITS = dict(zip(DTYPES, (1e-9, 1e-5, 5e-3, 3e-2), strict=True))


@item("runs")
def runs(op: Op) -> None:
    for args in map(fresh, op.cases):
        pull(outputs(op.f, args), args)


@item("parity")
def parity(op: Op) -> None:
    if op.reference is None:
        raise NotApplicable("no reference given")
    slope = op.surrogate or op.reference
    for args in op.cases:
        for dtype in op.dtypes:
            a, b, c = (fresh(args, lambda t, d=dtype: t.to(d)) for _ in range(3))
            y, z = outputs(op.f, a), outputs(op.reference, b)
            gap = differs(y, z, LIMITS[dtype])
            assert not gap, f"another value than the reference, {dtype}, output {gap}"
            ours, theirs = pull(y, a), pull(outputs(slope, c), c)
            gap = differs(ours, theirs, LIMITS[dtype], wanted(a))
            assert not gap, f"another gradient than the reference, {dtype}, input {gap}"


@item("dtypes kept")
def dtypes(op: Op) -> None:
    for args in op.cases:
        for dtype in op.dtypes:
            low = fresh(args, lambda t, d=dtype: t.to(d))
            for t in filter(is_float, outputs(op.f, low)):
                assert t.dtype is dtype, f"{dtype} in, {t.dtype} out"
            for _, grads in returned(op, low):
                for g in filter(is_float, grads):
                    kept = g.dtype is dtype
                    assert kept, f"{dtype} in, a gradient in {g.dtype}"


# checklist: shapes of gradients
@item("gradients fit")
def fit(op: Op) -> str:
    note = ""
    for args in map(fresh, op.cases):
        for gap in (unlike(*pair) for pair in returned(op, args)):
            summed = op.broadcasts and ": a gradient of shape" in gap
            assert not gap or summed, f"{gap}: the engine changes that, unasked"
            note = note or gap
    return note


# checklist: sizes of gradients
LARGE, SMALL = 1e6, 1e-6


def strange(g: Tensor) -> Tensor:
    """Where a gradient is above 1e6, below 1e-6 and not 0, or no number."""
    size = g.abs()
    return ~g.isfinite() | (size > LARGE) | ((size < SMALL) & (size > 0))


def spread(g: Tensor) -> str:
    """Mean and standard deviation of a gradient, and how much of it is large or tiny."""
    if not g.numel():
        return "empty"
    large, small = int((g.abs() > LARGE).sum()), int((g.abs() < SMALL).sum())
    text = f"mean {g.mean():.3g}, std {g.std(correction=0):.3g}"
    return f"{text}, {large} > 1e6, {small} < 1e-6"


# checklist: sizes of gradients, the item
@item("magnitudes")
def magnitudes(op: Op) -> str:
    model = op.surrogate or op.reference
    found = {}
    for args in op.cases:
        ours = pull(outputs(op.f, mine := fresh(args)), mine)
        theirs = pull(outputs(model, own := fresh(args)), own) if model else ours
        for i, g, right in zip(wanted(mine), ours, theirs, strict=True):
            odd = strange(g) & ~(strange(right) if model else torch.zeros_like(g).bool())
            for k in odd.flatten().nonzero().flatten()[:1].tolist():
                why = "below 1e-6, where gradcheck sees nothing"
                if not g.flatten()[k].abs() < SMALL:
                    why = "above 1e6, or no number"
                raise AssertionError(f"input {i}{at(g, k)}: {g.flatten()[k]:.3g}: {why}")
            found[i] = torch.cat([found.get(i, g.new_empty(0)), g.flatten()])
    return "; ".join(f"input {i}: {spread(g)}" for i, g in found.items())


# checklist: backward against differences
def worst(op: Op, args: list, h: float = 1e-6) -> str:
    """Where backward is farthest from finite differences, and a likely cause."""
    gs = upstream(ys := op.tensors(*args))
    grads = pull(ys, args, gs)

    def total(i: int, k: int, step: float) -> float:
        moved = fresh(args)
        moved[i].detach()[index(moved[i], k)] += step
        pairs = zip(gs, op.tensors(*moved), strict=True)
        return sum((g * y).sum() for g, y in pairs).item()

    found = []
    for i, g in zip(wanted(args), grads, strict=True):
        for k, claim in enumerate(g.flatten().tolist()):
            low, here, high = (total(i, k, step) for step in (-h, 0, h))
            slope, bend = (high - low) / (2 * h), abs(high - 2 * here + low) / h
            gap = abs(claim - slope)
            gap = gap if not math.isnan(gap) else torch.inf
            found.append((gap, slope, bend, claim, f"input {i}{at(g, k)}"))
    most = 0.99 * max(gap for gap, *_ in found)  # the first of equals
    _, slope, bend, claim, where = next(row for row in found if row[0] >= most)
    text = f"{where}: backward {claim:.5g}, differences {slope:.5g}"
    if math.isnan(slope):
        return f"{text}; forward gives inf or nan: fix it, or move this input"
    if bend > 1e-2:
        return f"{text}; a kink or a jump: move this input, or test by parity"
    if not any(slope for _, slope, *_ in found):
        return f"{text}; if it is an estimator, name its surrogate"
    doubled = pull(ys, args, [2 * g for g in gs])
    if not math.isnan(claim) and close(doubled, grads):
        return f"{text}; it ignores the upstream gradient"
    return text


# checklist: first and second order
@item("gradcheck")
def first_order(op: Op) -> str | None:
    passes = []
    for args in map(fresh, op.cases):
        try:
            passes.append(gradcheck(op.tensors, args))
        except RuntimeError as error:
            if "mismatch" not in str(error):
                raise
            assert op.surrogate is not None, worst(op, args)
        if op.surrogate is not None:
            theirs = pull(outputs(op.surrogate, args), args)
            ours = pull(outputs(op.f, args), args)
            gap = differs(ours, theirs, names=wanted(args))
            assert not gap, f"another gradient than the surrogate's, input {gap}"
    if op.surrogate is not None:
        assert len(passes) < len(op.cases), "passes: is it an estimator?"
        return "fails, as it must; the gradient is the surrogate's"


@item("second order")
def second_order(op: Op) -> str | None:
    for args in map(fresh, op.cases):
        if op.order > 1:
            check_twice(op, args)
            continue
        squares = [t.square().sum() for t in op.tensors(*args)]
        first = grad(squares, [args[i] for i in wanted(args)], create_graph=True)
        try:
            sum(t.sum() for t in first).backward()
        except RuntimeError as error:
            if "differentiate twice" in str(error):
                return "refused, as promised"
        raise AssertionError("not refused: decorate backward by once_differentiable")


# checklist: the second derivative
def check_twice(op: Op, args: list) -> None:
    with torch.random.fork_rng([]):  # gradgradcheck draws numbers
        torch.manual_seed(0)
        try:
            gradgradcheck(op.tensors, args)
        except RuntimeError as error:
            if not isinstance(error, GradcheckError):
                raise
            how = "save inputs and outputs alone, compute the rest in backward"
            text = f"wrong or missing; if nothing above failed, {how}"
            text += "; or refuse it, order=1"
            raise AssertionError(text) from error


# checklist: layouts and shapes
@item("non-contiguous")
def strides(op: Op) -> None:
    def strided(t: Tensor) -> Tensor:
        return t.repeat_interleave(2, -1)[..., ::2] if t.ndim else t

    def transposed(t: Tensor) -> Tensor:
        return t.mT.contiguous().mT if t.ndim > 1 else t

    for args in op.cases:
        y = op.tensors(*(plain := fresh(args)))
        for way in (strided, transposed):
            z = op.tensors(*(turned := fresh(args, way)))
            assert close(y, z), f"another value, input {way.__name__}"
            gs = [way(g) for g in upstream(z)]
            same = close(pull(y, plain), pull(z, turned, gs))
            assert same, f"another gradient, upstream {way.__name__}"
        ones = [torch.ones_like(t) for t in y]
        wide = [t.new_ones(()).expand(t.shape) for t in y]
        same = close(pull(y, plain, ones), pull(y, plain, wide))
        assert same, "another gradient, upstream expanded as by a sum"


@item("empty and 0-d")
def shapes(op: Op) -> None:
    if not op.elementwise:
        raise NotApplicable("elementwise not promised")
    for shape in ((), (0,), (0, 3), (1,)):

        def filled(t: Tensor, shape=shape) -> Tensor:
            return t.flatten()[0].expand(shape).clone()

        ys = op.tensors(*(args := fresh(op.cases[0], filled)))
        for t in [*ys, *pull(ys, args)]:
            assert t.shape == shape, f"{shape} becomes {tuple(t.shape)}"


# checklist: broadcasting, and the same twice
@item("broadcasting")
def broadcasting(op: Op) -> str:
    if not op.broadcasts:
        raise NotApplicable("not promised")
    pairs = (
        [(3, 1), (4,)],
        [(), (2, 3)],
        [(2, 1, 3), (1, 4, 1)],
        [(0, 1), (4,)],
    )
    own = True
    for pair in pairs:
        full, queue = torch.broadcast_shapes(*pair), list(pair)

        def shaped(t: Tensor, queue=queue) -> Tensor:
            shape = torch.Size(queue.pop(0))
            return t.flatten().repeat(99)[: shape.numel()].reshape(shape)

        args = fresh(op.cases[0], shaped)
        own &= not any(unlike(*pair) for pair in returned(op, args))
        wide = [a.expand(full) if is_float(a) else a for a in args]
        theirs = pull(outputs(op.f, wide), args)
        same = close(pull(outputs(op.f, args), args), theirs)
        assert same, f"{pair}: another gradient than of expanded inputs"
    return "" if own else "by the engine; backward returns larger shapes"


@item("same twice")
def twice(op: Op) -> None:
    for args in map(fresh, op.cases):
        y, z = op.tensors(*args), op.tensors(*args)
        assert close(y, z, 0), "two calls, two values"
        first, second = pull(y, args), pull(z, args)
        assert close(first, second, 0), "two calls, two gradients"
        assert close(first, pull(y, args), 0), "two backwards differ"


# checklist: infinities, and writing
@item("infinite upstream")
def infinite(op: Op) -> None:
    if not (theirs := op.surrogate or op.reference):
        raise NotApplicable("no reference given")
    for args in op.cases:
        for special in (torch.inf, -torch.inf, torch.nan):
            for place in (slice(0, 1), slice(-1, None)):
                pulls = []
                for f, a in ((op.f, fresh(args)), (theirs, fresh(args))):
                    gs = upstream(ys := with_graph(outputs(f, a)))
                    for g in gs:
                        g.view(-1)[place] = special
                    pulls.append(pull(ys, a, gs))
                for ours, right in zip(*pulls, strict=True):
                    if not math.isnan(special):
                        worse = (ours.isnan() & ~right.isnan()).any()
                        assert not worse, f"{special} gives nan, unlike the reference"
                    else:
                        lost = right.isnan().any() and not ours.isnan().any()
                        assert not lost, "nan is swallowed"


@item("inputs unchanged")
def unchanged(op: Op) -> None:
    for args in map(fresh, op.cases):
        before = [a.clone() for a in filter(is_float, args)]
        ys = op.tensors(*args)
        places = {place(a) for a in filter(is_float, args) if a.numel()}
        shared = any(place(t) in places for t in ys)
        assert not shared, "an output shares its memory with an input: clone it"
        pull(ys, args, gs := upstream(ys))
        assert close(gs, upstream(ys), 0), "backward wrote to the upstream gradient"
        same = close([*filter(is_float, args)], before, 0)
        assert same, "an input was changed"


# checklist: saved tensors
@item("changes noticed")
def watched(op: Op) -> None:
    for args in op.cases:
        leaves = fresh(args)
        right, size = pull(op.tensors(*leaves), leaves), len(args)
        for k in range(size + len(outputs(op.f, leaves))):
            inner = [a.clone() if is_float(a) else a for a in leaves]
            ys = outputs(op.f, inner)
            if not is_float(target := (inner + ys)[k]):
                continue
            target.detach().add_(1)  # between forward and backward
            try:
                same = close(pull(ys, leaves), right)
            except RuntimeError as error:
                if "modified" not in str(error):
                    raise
            else:
                what = f"input {k}" if k < size else f"output {k - size}"
                text = "another gradient, no error: use save_for_backward"
                assert same, f"{what} changed: {text}"


@item("nothing on ctx")
def attributes(op: Op) -> None:
    for args in map(fresh, op.cases):
        for node in nodes(outputs(op.f, args)):
            kept = vars(node).items()
            names = [f"ctx.{n}" for n, v in kept if any(map(is_float, held(v)))]
            verb = "holds a tensor" if len(names) == 1 else "hold tensors"
            assert not names, f"{', '.join(names)} {verb}: use save_for_backward"


def held(value: object) -> list[Tensor]:
    """The tensors in a value, a list, a tuple or a dict."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [t for part in value for t in held(part)]
    return [value] if isinstance(value, Tensor) else []


# checklist: memory and work
@item("memory kept")
def memory(op: Op) -> str:
    most = 0
    for args in map(fresh, op.cases):
        packed = []
        with saved_tensors_hooks(packed.append, lambda _: None):
            ys = outputs(op.f, args)
        packed += [t for node in nodes(ys) for t in held(vars(node))]
        sizes = {place(t): t.untyped_storage().nbytes() for t in packed}
        for t in held(args) + ys:
            sizes.pop(place(t), None)
        most = max(most, sum(sizes.values()))
    text = f"{most} bytes beyond inputs and outputs"
    if op.keeps is None:
        raise NotApplicable(f"not promised; {text}")
    assert most <= op.keeps, f"{text}, {op.keeps} promised"
    return text


@item("frozen inputs")
def frozen(op: Op) -> None:
    if not op.skips:
        raise NotApplicable("not promised")
    asked = 0
    for args in op.cases:
        some = [args[i] for i in wanted(args)]
        for one in some if len(some) > 1 else ():
            alone = fresh(args)
            for a, b in zip(args, alone, strict=True):
                if is_float(b):
                    b.requires_grad_(a is one)
            for ctx, grads in returned(op, alone):
                asked += 1
                pairs = zip(ctx.needs_input_grad, grads, strict=False)
                for k, (needed, g) in enumerate(pairs):
                    idle = needed or g is None
                    assert idle, f"computes a gradient for input {k}, frozen"
    if not asked:
        raise NotApplicable("one input")


# checklist: several outputs
@item("outputs marked")
def marks(op: Op) -> None:
    def shifted(t: Tensor) -> Tensor:
        return t + 1e-6 * (1 + t.abs()) * upstream([t])[0]

    for i in range(len(outputs(op.f, fresh(op.cases[0])))):
        flows = moves = False
        for args in map(fresh, op.cases):
            y = outputs(op.f, args)[i]
            near = outputs(op.f, fresh(args, shifted))[i]
            moves |= is_float(y) and not y.equal(near)
            if y.requires_grad:
                flows |= any(g.any().item() for g in pull([y], args))
        idle = y.requires_grad and y.numel() and not (flows or moves)
        assert not idle, f"output {i} is not marked, and no case gives it a gradient"
        cut = moves and not y.requires_grad
        assert not cut, f"output {i} moves with the inputs, without a gradient"


@item("unused outputs")
def unused(op: Op) -> None:
    for args in map(fresh, op.cases):
        if len(ys := op.tensors(*args)) < 2:
            raise NotApplicable("one output with a gradient")
        for i, (y, g) in enumerate(zip(ys, upstream(ys), strict=True)):
            gs = [torch.zeros_like(t) for t in ys]
            gs[i] = g
            same = close(pull([y], args, [g]), pull(ys, args, gs))
            assert same, f"output {i} alone: another gradient than with zeros"


# checklist: vmap
@item("vmap")
def mapped(op: Op) -> None:
    if not op.vmap:
        raise NotApplicable("not promised")

    def total(*a):
        return sum(t.sum() for t in outputs(op.f, a) if is_float(t))

    for args in op.cases:
        args = [a.detach() if is_float(a) else a for a in args]
        places = [i for i, a in enumerate(args) if is_float(a)]
        slope = torch.func.grad(total, tuple(places))
        for some in [places, *([i] for i in places)]:
            for dim in (0, -1):
                dims, batch, rows = [None] * len(args), [*args], []
                for k in range(3):
                    rows.append([*args])
                    for i in some:
                        rows[k][i] = args[i].roll(k)
                for i in some:
                    dims[i] = dim
                    batch[i] = torch.stack([row[i] for row in rows], dim)
                for f, name in ((op.f, "value"), (slope, "gradient")):
                    ours = outputs(torch.vmap(f, tuple(dims)), batch)
                    loop = zip(*(outputs(f, row) for row in rows), strict=True)
                    same = close(ours, [torch.stack(t) for t in loop])
                    assert same, f"another {name} than a loop, {dims}"


# checklist: forward mode and torch.compile
@item("forward mode")
def forward_mode(op: Op) -> None:
    if not op.jvp:
        raise NotApplicable("not promised")
    how = {"check_forward_ad": True, "check_backward_ad": False}
    for args in map(fresh, op.cases):
        gradcheck(op.f, args, **how)


@item("torch.compile")
def compiled(op: Op) -> None:
    if not op.compiles:
        raise NotApplicable("not promised")
    torch.compiler.reset()
    how = {"backend": "aot_eager", "fullgraph": True}
    f = torch.compile(lambda *a: op.f(*a), **how)
    for args in op.cases:
        ours, plain = fresh(args), fresh(args)
        z = outputs(op.f, plain)
        try:
            y = outputs(f, ours)
            first = pull(y, ours, again=False)
        except Exception as error:
            raise AssertionError(said(error)) from error
        assert close(y, z), "another value than in eager mode"
        assert close(first, pull(z, plain)), "another gradient than in eager mode"


# checklist: the review
def said(error: Exception) -> str:
    """What an error says, its first line; two if the first only announces."""
    first, *rest = str(error).strip().splitlines() or [""]
    if first.endswith(":") and rest:
        first = f"{first} {next(filter(None, map(str.strip, rest)), '')}"
    own = type(error) is AssertionError
    return first if own else f"{type(error).__name__}: {first}"


def prepared(f: Callable, cases: tuple, promises: dict) -> Op:
    """The operation to be reviewed, or an error that says what is missing."""
    if not __debug__:
        raise RuntimeError("python -O removes all assertions")
    if isinstance(f, type):
        raise TypeError(f"give {f.__name__}.apply, not the class")
    known = [field.name for field in fields(Op)[2:]]
    for name in promises:
        if name not in known:
            raise ValueError(f"no promise is called {name}; there are {known}")
    cases = tuple(c if isinstance(c, tuple) else (c,) for c in cases)
    floats = [a for args in cases for a in args if is_float(a)]
    single = {a.dtype for a in floats} != {torch.float64}
    if single or not all(map(wanted, cases)):
        raise ValueError("give cases in float64, with requires_grad=True in each")
    return Op(f, cases, **promises)


# checklist: the verdicts
def verdicts(f: Callable, *cases, only=(), **promises) -> Iterator[tuple]:
    """Each item's name, its verdict, and what it saw."""
    op = prepared(f, cases, promises)
    only = [only] if isinstance(only, str) else only
    for name in only:
        if name not in ITEMS:
            raise ValueError(f"no item is called {name!r}; there are {list(ITEMS)}")
    for name in only or ITEMS:
        try:
            with warnings.catch_warnings(action="ignore"):
                verdict, text = "passed", ITEMS[name](op) or ""
        except NotApplicable as why:
            verdict, text = "n/a", str(why)
        except (Exception, SystemExit) as error:
            verdict, text = "FAILED", said(error)
        yield name, verdict, text
        if (name, verdict) == ("runs", "FAILED"):
            return  # the others would say the same again


def review(f: Callable, *cases, **promises) -> list[str]:
    """Go through the list, print each item's line; return what failed.

    f: YourFunction.apply, or a function that calls it. cases: arguments for
    each branch, a tuple or one tensor. promises: see Op; `only` names items.
    """
    failed = []
    for name, verdict, text in verdicts(f, *cases, **promises):
        line = f"{verdict:6} {name}" + (f": {text}" if text else "")
        print(textwrap.fill(line, 72, subsequent_indent=" " * 7))
        failed += [name] * (verdict == "FAILED")
    return failed
