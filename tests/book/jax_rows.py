"""What book/jax.md says, run: the pieces of its code in their order, then what its tables and its paragraphs claim.

A program of its own, `python -m tests.book.jax_rows`: JAX starts threads and sets a dtype for the whole process, and
the tests' workers fork. It reads the pieces as a list in JSON, and prints what came out as JSON. `ROWS` has a check for
each row of the tables, by its first cell; `SAID` one for what the prose claims without showing it, by its words. With
`--pieces` the code alone is run.
"""

# ruff: noqa: E731 (a lambda with a name: a rule is a line of mathematics, and stands beside its twin)

import contextlib
import io
import json
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from jax.custom_batching import custom_vmap
from jax.test_util import check_grads
from torch import Tensor
from torch.autograd import Function, grad, gradcheck, gradgradcheck
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

POLICIES = jax.checkpoint_policies

jax.config.update("jax_enable_x64", True)
A, B = jnp.array([1.0, 2.0]), jnp.array([3.0, 5.0])
VALUES = [1.0, 2.0], [3.0, 5.0]


def leaves(grads: tuple[bool, bool] = (True, True)) -> list[Tensor]:
    """A and B in torch."""
    pairs = zip(VALUES, grads, strict=True)
    return [torch.tensor(values, dtype=torch.float64, requires_grad=needs) for values, needs in pairs]


def function(forward: Callable, backward: Callable, setup: Callable | None = None, **rest: Any) -> Callable:
    """The apply of a Function; what is a tensor among its inputs is saved unless `setup` says otherwise."""

    def save(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.save_for_backward(*(value for value in inputs if isinstance(value, Tensor)))

    parts = {"forward": lambda *args: forward(*args), "backward": backward, "setup_context": setup or save}
    parts = {name: staticmethod(part) for name, part in parts.items()}
    return type("F", (Function,), parts | rest).apply


def custom(fwd: Callable, bwd: Callable, f: Callable | None = None, **options: bool) -> Callable:
    """A function of JAX with a derivative of its own."""
    made = jax.custom_vjp(f or (lambda *args: fwd(*args)[0]))
    made.defvjp(fwd, bwd, **options)
    return made


def total(f: Callable) -> Callable:
    """The sum of what a function returns."""
    return lambda *args: f(*args).sum()


def raises(kind: type[Exception] | str, action: Callable, *args: Any) -> str:
    """The message of an error, which must be raised."""
    try:
        action(*args)
    except Exception as error:
        assert kind in (type(error), type(error).__name__), repr(error)
        return str(error)
    raise AssertionError(f"{kind} was not raised")


def same(*found: Any) -> bool:
    """Say whether arrays, tensors and lists have one shape and the same numbers."""
    first, *rest = (np.asarray(value.detach() if isinstance(value, Tensor) else value) for value in found)
    return all(first.shape == other.shape and np.allclose(first, other) for other in rest)


# ------------------------------------------------------------------- the first table


def two_forwards() -> None:
    called = []

    def note(name: str, value: Any) -> Any:
        called.append(name)
        return value

    f = custom(lambda a: (note("fwd", 2 * a), None), lambda _, g: (note("bwd", 2 * g),), lambda a: note("f", 3 * a))
    assert same(f(A), 3 * A) and called == ["f"], "the two are not compared"
    assert same(jax.grad(total(f))(A), [2, 2]) and called == ["f", "fwd", "bwd"]
    assert same(jax.vjp(f, A)[0], 2 * A)
    seen = []
    for value in (jnp.ones((3, 4)), A.astype("float32")):
        f = custom(lambda a, value=value: (value, None), lambda _, g: (seen.append(g), A)[1:], lambda a: 3 * a)
        assert same(f(A), 3 * A) and same(jax.grad(total(f))(A), A)
    assert seen[0].shape == (3, 4) and seen[1].dtype == "float32"
    called.clear()
    scanned = lambda f: lambda a: lax.scan(lambda _, row: (None, f(row)), None, a[None])[1]
    for inside in (jax.jit, jax.checkpoint, scanned):
        for value in (jnp.ones((3, 4)), A.astype("float32")):
            f = custom(lambda a, value=value: (value, None), lambda _, g: (A,), lambda a: 3 * a)
            assert "fwd rule" in raises(TypeError, jax.grad(total(inside(f))), A)
        f = custom(lambda a: (note("fwd", 2 * a), None), lambda _, g: (2 * g,), lambda a: note("f", 3 * a))
        assert same(jax.value_and_grad(total(inside(f)))(A)[0], 6), "of the values nobody says a word"
        assert {*called} == {"f", "fwd"}
        called.clear()


def residuals() -> None:
    f = custom(lambda a: (a**3, {"n": 3, "a": [a]}), lambda kept, g: (kept["n"] * kept["a"][0] ** 2 * g,))
    assert same(jax.grad(total(f))(A), jax.jit(jax.grad(total(f)))(A), [3, 12])
    text = custom(lambda a: (a, "text"), lambda _, g: (g,))
    assert "is not a valid JAX type" in raises(TypeError, jax.grad(total(text)), A)
    bare = custom(lambda a: (jnp.sin(a), (a, jnp.cos)), lambda kept, g: (kept[1](kept[0]) * g,))
    assert "is not a valid JAX type" in raises(TypeError, jax.grad(total(bare)), A)

    @jax.tree_util.register_static
    class Name:
        def __init__(self, name: str) -> None:
            self.name = name

    named = custom(lambda a: (jnp.sin(a), (a, Name("cos"))), lambda kept, g: (getattr(jnp, kept[1].name)(kept[0]) * g,))
    cosine = jax.tree_util.Partial(jnp.cos)
    wrapped = custom(lambda a: (jnp.sin(a), (a, cosine)), lambda kept, g: (kept[1](kept[0]) * g,))
    for f in (named, wrapped):
        assert same(jax.grad(total(f))(A), jax.jit(jax.grad(total(f)))(A), jnp.cos(A))

    def setup(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.text = "text"

    (x, _), found = leaves(), []
    f = function(torch.clone, lambda ctx, g: (found.append(ctx.text), g)[1], setup)
    assert same(grad(f(x).sum(), x)[0], [1, 1]) and found == ["text"]


def a_tuple() -> None:
    x, _ = leaves()
    assert same(grad(function(torch.clone, lambda ctx, g: g)(x).sum(), x)[0], [1, 1])
    assert "tuple" in raises(TypeError, jax.grad(total(custom(lambda a: (a, None), lambda _, g: g))), A[:1])
    for kind in (tuple, list):
        assert same(jax.grad(total(custom(lambda a: (a, None), lambda _, g, kind=kind: kind([g]))))(A), [1, 1])


def none_for_a_tensor() -> None:
    x, w = leaves()
    y = function(torch.mul, lambda ctx, g: (g * ctx.saved_tensors[1], None))(x, w).sum()
    assert "appears to not have been used" in raises(RuntimeError, partial(grad, retain_graph=True), y, w)
    assert grad(y, (x, w), allow_unused=True, retain_graph=True)[1] is None
    assert same(grad(y, (x, w), materialize_grads=True)[1], [0, 0])
    for nothing in (None, jnp.zeros(2)):
        f = custom(lambda a, b: (a * b, b), lambda b, g, nothing=nothing: (g * b, nothing))
        assert same(jax.grad(total(f), 1)(A, B), [0, 0])


def none_for_integers() -> None:
    x, whole = leaves()[0], torch.tensor([2, 3])
    for answers, right in (((None,), True), ((torch.zeros(2),), True), ((torch.ones(5),), True), ((), False)):
        f = function(torch.mul, lambda ctx, g, answers=answers: (g * ctx.saved_tensors[1], *answers))
        if right:
            assert same(grad(f(x, whole).sum(), x)[0], [2, 3])
        else:
            assert "incorrect number of gradients" in raises(RuntimeError, grad, f(x, whole).sum(), x)
    zeros = np.zeros(2, jax.dtypes.float0)
    for answers, right in (((None,), True), ((zeros,), True), ((jnp.ones(5),), True), ((), False)):
        f = custom(lambda a, n: (a * n, n), lambda n, g, answers=answers: (g * n, *answers))
        if right:
            assert same(jax.grad(total(f))(A, jnp.array([2, 3])), [2, 3])
        else:
            raises(TypeError, jax.grad(total(f)), A, jnp.array([2, 3]))
    assert jax.vjp(lambda a, n: a * n, A, jnp.array([2, 3]))[1](B)[1].dtype == jax.dtypes.float0


def none_for_a_number() -> None:
    for option in ({"nondiff_argnums": (1,)}, {"nondiff_argnames": ("n",)}):
        power = jax.custom_vjp(lambda a, n: a**n, **option)
        power.defvjp(lambda a, n: (a**n, a), lambda n, a, g: (n * a ** (n - 1) * g,))
        assert same(jax.grad(lambda a, f=power: f(a, 3).sum())(A), [3, 12])
        traced = jax.jit(lambda a, n, f=power: f(a, n))
        assert "nondiff_argnums" in raises("UnexpectedTracerError", traced, A, 3)
    ordinary = custom(lambda a, n: (a**n, (a, n)), lambda kept, g: (kept[1] * kept[0] ** (kept[1] - 1) * g, None))
    assert same(jax.grad(total(ordinary))(A, 3), jax.jit(jax.grad(total(ordinary)))(A, 3), [3, 12])


def who_needs_a_gradient() -> None:
    found = []

    def note(ctx: Any, g: Tensor) -> tuple:
        found.append(ctx.needs_input_grad)
        return g * ctx.saved_tensors[1], None

    x, w = leaves((True, False))
    grad(function(torch.mul, note)(x, w).sum(), x)

    def fwd(a: Any, b: Any) -> tuple:
        found.append((a.perturbed, b.perturbed))
        return a.value * b.value, b.value

    f = custom(fwd, lambda b, g: (g * b, None), jnp.multiply, symbolic_zeros=True)
    assert same(jax.grad(lambda a: f(a, B).sum())(A), B)
    assert found == [(True, False), (True, False)]
    plain = []
    f = custom(lambda a: (a, plain.append(type(a))), lambda _, g: (g,))
    jax.grad(total(f))(A)
    assert "CustomVJPPrimal" not in str(plain), "off by default"


def an_output_without_a_gradient() -> None:
    for materialize in (True, False):
        found = []

        def setup(ctx: Any, inputs: tuple, output: Any, materialize: bool = materialize) -> None:
            ctx.set_materialize_grads(materialize)

        def backward(ctx: Any, g: Tensor, h: Tensor | None, found: list = found) -> Tensor:
            found.append(h)
            return g

        x, _ = leaves()
        grad(function(lambda x: (x.clone(), x + 1), backward, setup)(x)[0].sum(), x)

        def bwd(_: Any, g: tuple, found: list = found) -> tuple:
            found.append(g[1])
            return (g[0],)

        value = (lambda a: a) if materialize else (lambda a: a.value)
        fwd = partial(lambda value, a: ((value(a), value(a) + 1), None), value)
        f = custom(fwd, bwd, lambda a: (a, a + 1), symbolic_zeros=not materialize)
        jax.grad(lambda a, f=f: f(a)[0].sum())(A)
        if materialize:
            assert same(*found, [0, 0])
        else:
            assert found[0] is None and type(found[1]).__name__ == "SymbolicZero"


def forward_mode() -> None:
    both = function(
        torch.sin,
        lambda ctx, g: g * ctx.saved_tensors[0].cos(),
        lambda ctx, inputs, output: (ctx.save_for_backward(*inputs), ctx.save_for_forward(*inputs)),
        jvp=staticmethod(lambda ctx, dx: dx * ctx.saved_tensors[0].cos()),
    )
    x, _ = leaves()
    (reverse,) = grad(both(x).sum(), x)
    forward = torch.func.jvp(both, (x.detach(),), (torch.ones_like(x.detach()),))[1]
    sine = jax.custom_jvp(jnp.sin)
    sine.defjvp(lambda at, d: (jnp.sin(at[0]), jnp.cos(at[0]) * d[0]))
    ones = jnp.ones(2)
    assert same(reverse, forward, jax.grad(total(sine))(A), jax.jvp(sine, (A,), (ones,))[1], np.cos(VALUES[0]))
    covered = custom(lambda a: (sine(a), a), lambda a, g: (g * jnp.cos(a),))
    raises(TypeError, jax.jvp, covered, (A,), (ones,))  # the rule inside does not count


def batches() -> None:
    cube = custom(lambda a: (a**3, a), lambda a, g: (3 * a**2 * g,), lambda a: a**3)
    assert same(jax.vmap(cube)(A), A**3) and same(jax.vmap(jax.grad(cube))(A), [3, 12])
    x, _ = leaves((False, False))
    setup = lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
    parts = lambda x: x**3, lambda ctx, g: 3 * ctx.saved_tensors[0] ** 2 * g, setup
    raises(RuntimeError, torch.vmap(function(*parts)), x)
    assert same(torch.vmap(torch.func.grad(function(*parts, generate_vmap_rule=True)))(x), [3, 12])
    by_hand = staticmethod(lambda info, in_dims, x: (100 + x, in_dims[0]))
    assert same(torch.vmap(function(*parts, vmap=by_hand))(x), [101, 102])
    ruled = custom_vmap(lambda a: a**3)
    ruled.def_vmap(lambda size, batched, a: (100 + a, batched[0]))
    assert same(jax.vmap(ruled)(A), [101, 102])
    raises(ValueError, jax.grad(ruled), 2.0)
    wrapped = custom(lambda a: (ruled(a), a), lambda a, g: (3 * a**2 * g,), ruled)
    assert same(jax.vmap(wrapped)(A), [101, 102]) and same(jax.vmap(jax.grad(wrapped))(A), [3, 12])


def from_outside() -> None:
    x, w = leaves()
    y = function(lambda x: x * w, lambda ctx, g: g * w)(x).sum()
    assert same(grad(y, x, retain_graph=True)[0], w) and grad(y, (x, w), allow_unused=True)[1] is None
    inside = lambda a, b: custom(lambda a: (a * b, None), lambda _, g: (g * b,))(a).sum()
    assert same(jax.grad(inside)(A, B), B)
    raises("UnexpectedTracerError", jax.grad(inside, 1), A, B)


# ------------------------------------------------------------------- the second table


def stop() -> None:
    x, _ = leaves()
    stopped = jax.grad(lambda a: (a * lax.stop_gradient(a)).sum())(A)
    assert same(grad((x * x.detach()).sum(), x)[0], stopped, [1, 2])
    assert x.detach().data_ptr() == x.data_ptr()


def checkpoints() -> None:
    called = []

    def sine(x: Tensor) -> Tensor:
        called.append("torch")
        return x.sin()

    def sine_in_jax(a: Any) -> Any:
        called.append("jax")
        return jnp.sin(a)

    x, _ = leaves()
    (ours,) = grad(checkpoint(sine, x, use_reentrant=False).sum(), x)
    assert same(ours, jax.grad(total(jax.checkpoint(sine_in_jax)))(A))
    assert called == ["torch", "torch", "jax"]

    twice = lambda a: jnp.sin(jnp.sin(a))
    sines = [str(jax.make_jaxpr(jax.grad(total(f)))(A)).count("= sin ") for f in (twice, jax.checkpoint(twice))]
    assert sines == [2, 3], "the inner one again, in backward"

    matrix = jnp.ones((3, 3))
    two = lambda a: jnp.sin(matrix @ jnp.sin(a)).sum()
    kept = [
        sum(leaf.size for leaf in jax.tree.leaves(jax.vjp(jax.checkpoint(two, policy=policy), jnp.ones(3))[1]))
        for policy in (POLICIES.nothing_saveable, POLICIES.dots_saveable)
    ]
    assert kept[0] < kept[1]

    products = []

    def policy(ctx: Any, operation: Any, *args: Any, **rest: Any) -> CheckpointPolicy:
        products.append(operation)
        keep = operation is torch.ops.aten.mv.default
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = partial(create_selective_checkpoint_contexts, policy)
    square, z = torch.ones(3, 3, dtype=torch.float64), torch.ones(3, dtype=torch.float64, requires_grad=True)
    y = checkpoint(lambda z: (square @ z.sin()).sin().sum(), z, use_reentrant=False, context_fn=contexts)
    assert same(grad(y, z)[0], jax.grad(two)(jnp.ones(3))) and torch.ops.aten.mv.default in products


def compiled() -> None:
    look = lambda a: a if a.sum() > 0 else 0 * a
    raises("TracerBoolConversionError", jax.jit(look), A)
    assert same(torch.compile(look, backend="eager")(leaves()[0]), A)
    torch.compiler.reset()  # else the graphs just made serve
    raises("Unsupported", torch.compile(look, backend="eager", fullgraph=True), leaves()[0])


def second_order() -> None:
    x, _ = leaves()  # a first derivative that is wrong on purpose, 5 x^2, says whose derivative the second is
    backward = lambda ctx, g: 5 * ctx.saved_tensors[0] ** 2 * g
    (first,) = grad(function(lambda x: x**3, backward)(x).sum(), x, create_graph=True)
    f = custom(lambda a: (a**3, a), lambda a, g: (5 * a**2 * g,))
    assert same(grad(first.sum(), x)[0], jax.grad(total(jax.grad(total(f))))(A), [10, 20])


def checks() -> None:
    assert {"check_grads", "check_jvp", "check_vjp"} <= {*dir(jax.test_util)}
    cube = custom(lambda a: (a**3, a), lambda a, g: (3 * a**2 * g,))
    check_grads(cube, (A,), 1, modes=["rev"])
    assert "forward-mode" in raises(TypeError, check_grads, cube, (A,), 1)
    wrong = custom(lambda a: (a**3, a), lambda a, g: (2 * a**2 * g,))
    one = custom(lambda a: (a**3, a), lambda a, g: ((3 * a**2 * g).at[1].mul(1.1),))
    for f in (wrong, one):
        raises(AssertionError, partial(check_grads, modes=["rev"]), f, (A,), 1)
    looked = []
    count = lambda a, g: (looked.append(1), (3 * a**2 * g,))[1]
    check_grads(custom(lambda a: (a**3, a), count), (A,), 1, modes=["rev"])
    assert len(looked) == 1, "one direction"
    looked.clear()
    x, _ = leaves()
    backward = lambda ctx, g: (looked.append(g.tolist()), 3 * ctx.saved_tensors[0] ** 2 * g)[1]
    gradcheck(function(lambda x: x**3, backward), x)
    assert [1, 0] in looked and [0, 1] in looked, "each element"


def second_checks() -> None:
    wrong = custom(lambda a: (a**3, a), lambda a, g: (3 * lax.stop_gradient(a) ** 2 * g,))
    check = partial(check_grads, modes=["rev"])
    check(wrong, (A,), 1)
    raises(AssertionError, check, wrong, (A,), 2)
    first = custom(lambda a: (a**3, a), lambda a, g: (2 * a**2 * g,))
    raises(AssertionError, check, first, (A,), 2)
    x, _ = leaves()
    f = function(lambda x: x**3, lambda ctx, g: 3 * ctx.saved_tensors[0].detach() ** 2 * g)
    assert gradcheck(f, x) and not gradgradcheck(f, x, raise_exception=False)
    f = function(lambda x: x**3, lambda ctx, g: 2 * ctx.saved_tensors[0] ** 2 * g)
    assert gradgradcheck(f, x), "which does not look at the first order"


def dtypes() -> None:
    with jax.enable_x64(False), warnings.catch_warnings(action="error"):  # it says nothing
        assert jnp.array(np.ones(2)).dtype == "float32"
        assert "float64" in raises(UserWarning, partial(jnp.asarray, dtype=np.float64), np.ones(2))
        with jax.enable_x64(True):
            assert jnp.array(np.ones(2)).dtype == "float64"
    assert jnp.array(np.ones(2)).dtype == "float64"
    assert torch.from_numpy(np.ones(2)).dtype is torch.float64


def in_place() -> None:
    a, x = jnp.zeros(2), torch.zeros(2)
    x.add_(1)
    assert same(a.at[:].add(1), x, [1, 1]) and same(a, [0, 0]) and x._version == 1

    def write() -> None:
        a[0] = 1

    assert "immutable" in raises(TypeError, write)

    def through_a_cell(a: Any) -> Any:
        cell = jax.new_ref(a)
        cell[...] = cell[...] ** 2
        cell[0] = 5 * cell[1]
        return cell[...].sum()  # 5 b^2 + b^2

    cell = jax.new_ref(A)
    cell[...] = 7 * A
    assert same(cell[...], [7, 14]) and same(A, VALUES[0])
    assert same(jax.grad(through_a_cell)(A), jax.jit(jax.grad(through_a_cell))(A), [0, 24])


def solvers() -> None:
    newton = lambda f, start: lax.fori_loop(0, 30, lambda _, y: y - f(y) / jax.grad(f)(y), start)
    root = lambda a: lax.custom_root(lambda y: y * y - a, 1.0, newton, lambda g, y: y / g(1.0))
    x = torch.tensor(4.0, dtype=torch.float64, requires_grad=True)

    def setup(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_backward(output)

    f = function(torch.sqrt, lambda ctx, g: g / (2 * ctx.saved_tensors[0]), setup)
    assert same(grad(f(x), x)[0], jax.grad(root)(4.0), 0.25)
    matrix = np.array([[2.0, 1.0], [0.0, 3.0]])

    def solved(matrix: Any, b: Any) -> Any:
        solve = lambda _, b: jnp.linalg.solve(matrix, b)
        transposed = lambda _, b: jnp.linalg.solve(matrix.T, b)
        return lax.custom_linear_solve(lambda v: matrix @ v, b, solve, transposed).sum()

    torchs = torch.from_numpy(matrix).requires_grad_()
    (right,) = grad(torch.linalg.solve(torchs, leaves()[0]).sum(), torchs)
    assert same(jax.grad(solved)(jnp.array(matrix), A), right)


ROWS = {
    "`forward`, `setup_context`": two_forwards,
    "`ctx.save_for_backward`": residuals,
    "`backward(ctx, g)`": a_tuple,
    "`None` for a tensor": none_for_a_tensor,
    "`None` for integers": none_for_integers,
    "`None` for a number": none_for_a_number,
    "`needs_input_grad`": who_needs_a_gradient,
    "`set_materialize_grads`": an_output_without_a_gradient,
    "`jvp`": forward_mode,
    "`generate_vmap_rule`, `vmap`": batches,
    "a tensor from outside": from_outside,
    "`x.detach()`": stop,
    "`checkpoint(f, x)`": checkpoints,
    "`torch.compile(f)`": compiled,
    "`create_graph=True`": second_order,
    "`gradcheck`": checks,
    "`gradgradcheck`": second_checks,
    "a dtype for each tensor": dtypes,
    "`x.add_(1)`": in_place,
    "a Function around a solver": solvers,
}

# ------------------------------------------------------------------- what the prose says besides


def torch_is_lenient() -> None:
    x, _ = leaves()
    for backward, right in (
        (lambda ctx, g: 2 * g, [2, 2]),
        (lambda ctx, g: torch.ones(7, 2) * g, [7, 7]),
        (lambda ctx, g: 2 * g.float(), [2, 2]),
    ):
        (found,) = grad(function(torch.clone, backward)(x).sum(), x)
        assert same(found, right) and found.dtype is torch.float64


def step_against() -> None:
    loss, start, rate = (lambda z: abs(z) ** 2 + z.imag), 1 + 2j, 0.01
    z = torch.tensor(start, dtype=torch.complex128, requires_grad=True)
    ours = grad(loss(z), z)[0].item()
    theirs = jax.grad(loss)(start)
    assert same(ours, theirs.conj())
    turned = [loss(start - rate * ours * np.exp(0.1j * k)) for k in range(63)]
    assert min(turned) == turned[0] and loss(start - rate * theirs) > turned[0]


def a_product_with_a_constant() -> None:
    c = 2 + 3j
    z = torch.tensor(1 + 2j, dtype=torch.complex128, requires_grad=True)
    by_hand = function(lambda z: c * z, lambda ctx, g: g * c.conjugate())
    assert same(grad(by_hand(z).abs(), z)[0], grad((c * z).abs(), z)[0])
    f = custom(lambda z: (c * z, None), lambda _, g: (g * c,))
    assert same(jax.grad(lambda z: abs(f(z)))(1 + 2j), jax.grad(lambda z: abs(c * z))(1 + 2j))


def a_value_looked_at() -> None:
    look = lambda a: a if a > 0 else 0 * a
    assert same(look(torch.tensor(1.0)), 1.0)
    raises(RuntimeError, torch.vmap(look), torch.ones(2))
    for fwd, bwd in ((lambda a: (look(a), a), lambda a, g: (g,)), (lambda a: (a, a), lambda a, g: (look(g),))):
        slope = jax.grad(custom(fwd, bwd, lambda a: a))
        assert same(slope(1.0), 1.0)
        raises("TracerBoolConversionError", jax.jit(slope), 1.0)
    for cured in (lambda a: jnp.where(a > 0, a, 0 * a), lambda a: lax.cond(a > 0, lambda: a, lambda: 0 * a)):
        assert same(jax.jit(cured)(1.0), jax.vmap(cured)(jnp.ones(1))[0], 1.0)


def forward_by_a_custom_jvp() -> None:
    cube = jax.custom_jvp(lambda a: a**3)
    cube.defjvp(lambda at, d: (cube(at[0]), 3 * at[0] ** 2 * d[0]))
    assert same(jax.jacfwd(cube)(A), np.diag([3, 12])) and same(jax.hessian(total(cube))(A), np.diag([6, 12]))


def two_ways_to_ask() -> None:
    f = lambda a, b: (a * b).sum()
    assert same(jax.grad(f)(A, B), B)
    assert "scalar" in raises(TypeError, jax.grad(lambda a: 2 * a), A)
    square, x = lambda a: a**2, leaves()[0].detach()
    for ours, value in ((jax, A), (torch.func, x)):
        assert same(ours.grad(total(square))(value), [2, 4]) and same(ours.jacfwd(square)(value), np.diag([2, 4]))
        assert same(ours.hessian(total(square))(value), np.diag([2, 2]))


def stand_ins() -> None:
    seen = []

    def look(a: Any) -> Any:
        seen.append((isinstance(a, jax.core.Tracer), a.shape, a.dtype.name))
        return (a**2).sum()

    jax.grad(look)(A)
    jax.jit(look)(A)
    assert seen == [(True, (2,), "float64")] * 2


def in_reverse_first() -> None:
    called = []
    fwd, bwd = (lambda a: (called.append("fwd"), (a**3, a))[1]), lambda a, g: (called.append("bwd"), (3 * a**2 * g,))[1]
    f = custom(fwd, bwd, lambda a: a**3)
    assert same(jax.hessian(total(f))(A), jax.jacfwd(jax.grad(total(f)))(A), np.diag([6, 12]))
    assert called == ["fwd", "bwd"] * 2


def without_the_flag() -> None:
    with jax.enable_x64(False):
        assert jnp.array([1.0, 2.0]).dtype == "float32"


SAID = {
    "torch takes a bare tensor": torch_is_lenient,
    "you step against it": step_against,
    "the backward of `c * z`": a_product_with_a_constant,
    "Under `jax.jit` it raises": a_value_looked_at,
    "write a `custom_jvp`": forward_by_a_custom_jvp,
    "# else float32": without_the_flag,
    "for its first argument": two_ways_to_ask,
    "stand-ins for the arrays": stand_ins,
    "`jax.hessian` differentiates in reverse first": in_reverse_first,
}


def printed(pieces: list[str]) -> list[str]:
    """What each piece of the page's code prints, all in one namespace, and the traceback of one that raises."""
    names: dict[str, Any] = {}
    found = []
    for code in pieces:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            outcome = told(lambda code=code: exec(compile(code, "book/jax.md", "exec"), names))
        found.append(said.getvalue() + outcome)
    return found


def told(check: Callable) -> str:
    """Nothing if a check passes, else its traceback."""
    try:
        check()
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    result = {
        "versions": {name: version(name).partition("+")[0] for name in ("torch", "jax")},
        "printed": printed(json.load(sys.stdin)),
    }
    if "--pieces" not in sys.argv:
        result |= {"rows": {name: told(check) for name, check in ROWS.items()}}
        result |= {"said": {name: told(check) for name, check in SAID.items()}}
    json.dump(result, sys.stdout)
