"""hvp: a Hessian times a vector, by two backward passes."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import grad

from graders.inside.records import Case, Helper, Record
from graders.judge import looks as look
from graders.judge.aspects import value
from graders.judge.looks import Finding
from graders.judge.task import BRAIN, DOUBLE, HALF, SINGLE, Check, Draw, Task
from graders.judge.wording import FLOAT32_AND_BACK
from graders.sets.legendre.common import precise

PLACE = 3

LIBRARY = (
    *(f"torch.autograd.functional.{name}" for name in ("hvp", "vhp", "hessian", "jacobian")),
    "torch.func.hessian",
)
NO_LIBRARY = look.Forbids(
    "H v is to be made by two backward passes of yours: hvp, vhp, hessian and jacobian of torch.autograd.functional, "
    "and torch.func.hessian, are forbidden.",
    paths=(*LIBRARY, "functorch.hessian"),
)


def leaves_gradients(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find a .grad that was written into, of a parameter that f uses."""
    if dict(yours.tally).get("gradients_accumulated"):
        text = "Your code changes the .grad of a parameter that f uses; it belongs to the caller."
        return Finding("counts", text, {"case": look.describe(call, case)})
    return None


DIFFERENCE = precise("they come from a difference of two gradients, which is not exact")
LOOKS = (look.exists, look.runs, look.returns, look.shape, look.dtype, DIFFERENCE, look.value)


def zeros_not_none(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find the None that autograd gives where there is no path, and that is meant as zeros."""
    if yours.kind == "NoneType":
        text = (
            "Your function returns None: where there is no path to x, allow_unused=True gives None in place of zeros."
        )
        return Finding("returns", text, {"case": look.describe(call, case)})
    return None


def _asked(d: Draw, name: str, f: str, x: Tensor, v: Tensor | None = None, requires: bool = False) -> Case:
    """Return the case of hvp(f, x, v), the gradient flag of x as given."""
    v = d.normal(*x.shape, dtype=x.dtype) if v is None else v
    return d.case(name, Helper(f), x, v, order=0, requires=(False, requires, False), deny=LIBRARY)


def _lopsided(d: Draw, name: str, pair: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> list[Case]:
    """Return cases of one of x and v that is no even mixture; `pair` makes the two of it and of another tensor."""
    other, f = d.sides(5), Helper("coupled")
    cases = d.lopsided(lambda one: (f, *pair(one, other)), 5, order=0)
    return [replace(c, name=f"{name}: {c.name}", requires_grad=(False,) * 3, deny=LIBRARY) for c in cases]


def _values(d: Draw) -> list[Case]:
    """Return cases of every shape, dtype and size of x and v."""
    shapes = [
        ("a vector", d.sides(5)),
        ("a matrix", d.sides(2, 3)),
        ("a 0-d x", d.sides()),
        ("a 3-d x", d.sides(2, 1, 2)),
        ("an empty x", d.sides(0, 2)),
        ("a transposed x", d.sides(3, 2).t()),
        *((f"a {str(t)[6:]} x", d.sides(2, 2, reach=1, dtype=t)) for t in (HALF, BRAIN, SINGLE)),
    ]
    return [
        *(_asked(d, name, "coupled", x) for name, x in shapes),
        _asked(d, "x requires a gradient", "coupled", d.sides(4), requires=True),
        _asked(d, "a transposed v", "coupled", d.sides(2, 3), v=d.normal(3, 2).t()),
        _asked(d, "v of every size", "coupled", d.sides(6), v=d.scales(6)),
        _asked(d, "x of every size", "coupled", d.scales(6)),
        _asked(d, "v is zero", "coupled", d.sides(4), v=torch.zeros(4, dtype=DOUBLE)),
        _asked(d, "sines of a matrix", "waves", d.sides(2, 2)),
        _asked(d, "f looks at the first row", "first_row", d.sides(2, 3)),
        _asked(d, "f multiplies by a float32 matrix", "projected", d.sides(3, dtype=SINGLE)),
        *_lopsided(d, "x", lambda x, other: (x, other)),
        *_lopsided(d, "v", lambda v, other: (other, v)),
    ]


def _second_of(f, x: Tensor, v: Tensor) -> Tensor:
    """Return H v by reverse over reverse."""
    x = x.detach().requires_grad_()
    (g,) = grad(f(x), x, create_graph=True)
    if not g.requires_grad:
        return torch.zeros_like(x)
    return grad(g, x, v, materialize_grads=True)[0]


task = Task(
    "hvp",
    "hvp(f, x, v)",
    reference=_second_of,
    checks=(
        value(
            3,
            about="the result is the Hessian of f at x times v, for x of any shape and dtype",
            why="Newton steps and curvature estimates rest on these numbers.",
            cases=_values,
            looks=LOOKS,
        ),
        Check(
            "linear",
            1,
            about="zeros where f is linear in x or does not depend on a part of it",
            why="A loss may be linear in a layer, and then its gradient has no graph, or none that leads to x.",
            cases=lambda d: [
                _asked(d, "f linear", "linear", d.sides(3)),
                _asked(d, "f linear, x requires a gradient", "linear", d.sides(2, 2), requires=True),
                _asked(d, "f linear, a parameter its factor", "weighted", d.sides(3)),
                _asked(d, "f linear, x float32 and 0-d", "weighted", d.sides(dtype=SINGLE)),
                _asked(d, "every second element of x used", "partly", d.sides(2, 3)),
            ],
            looks=(*LOOKS[:2], zeros_not_none, *LOOKS[2:]),
        ),
        Check(
            "untouched",
            1,
            about="x, v, x.requires_grad and every .grad are as before",
            why="A product is asked for in the middle of a training step.",
            cases=lambda d: [
                _asked(d, "x requires no gradient", "separate", d.sides(4)),
                _asked(d, "x requires a gradient and has one", "separate", d.sides(4), requires=True),
                _asked(d, "f has a parameter", "trained", d.sides(4)),
            ],
            looks=(*LOOKS, look.untouched, leaves_gradients),
        ),
        Check(
            "cost",
            2,
            about="as many backward passes for 30 elements as for 3, none batched; f may hold any Function",
            why="A Hessian of a million parameters has 10^12 numbers; its product with a vector is one more gradient.",
            cases=lambda d: [_asked(d, f"{n} elements", "counted", d.sides(n, reach=1)) for n in (3, 30)],
            looks=(*LOOKS, look.counts(backward_passes=6)),
        ),
    ),
    forbids=NO_LIBRARY,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
def through_the_gradient(f, x, v):
    """v as the upstream gradient of the gradient: no product is built, and the one to write."""
    x = x.detach().requires_grad_()
    (g,) = grad(f(x), x, create_graph=True)
    if not g.requires_grad:
        return torch.zeros_like(x)
    return grad(g, x, v, materialize_grads=True)[0]


@task.solution
def by_inner_product(f, x, v):
    """The gradient of <gradient, v>: reads as the formula does; terms that are 0 make a path to x without a branch."""
    x = x.detach().clone().requires_grad_(True)
    (g,) = grad(f(x) + 0 * x.sum(), x, create_graph=True)
    total = (g * v).sum() + 0 * (x * x).sum()
    return grad(total, x)[0]


@task.solution
def by_checks(f, x, v):
    """Each case of a linear f has a check of its own; works under no_grad too: for code that others call."""
    at = torch.empty_like(x).copy_(x.detach()).requires_grad_()
    with torch.enable_grad():
        g = torch.autograd.grad(f(at), at, create_graph=True)[0]
        if g.grad_fn is None:
            return torch.zeros_like(x)
        result = torch.autograd.grad((g * v).sum(), at, allow_unused=True)[0]
    return torch.zeros_like(x) if result is None else result


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
def by_functional_vjp(f, x, v):
    """The vector-Jacobian product of the gradient by torch.autograd.functional."""

    def gradient(at):
        return grad(f(at), at, create_graph=True)[0]

    return torch.autograd.functional.vjp(gradient, x.detach(), v)[1]


# --- Mistakes ---------------------------------------------------------------------------------------------------------


def _gradient(f, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a leaf of the values of x, and the gradient there, with its graph."""
    x = x.detach().requires_grad_()
    (g,) = grad(f(x), x, create_graph=True)
    return x, g


def _through(g: Tensor, x: Tensor, v: Tensor) -> Tensor:
    """Return what the right one makes of a gradient."""
    return grad(g, x, v, materialize_grads=True)[0] if g.requires_grad else torch.zeros_like(x)


@task.mistake(
    "value", "You return the gradient of f. Its product with the Hessian takes a second backward pass, with v."
)
def gradient_returned(f, x, v):
    return _gradient(f, x)[1].detach()


@task.mistake(
    "value",
    "You return gradient times v, element by element. v belongs to a second backward pass, through the gradient.",
)
def gradient_times_v(f, x, v):
    return _gradient(f, x)[1].detach() * v


@task.mistake(
    "value",
    "Your second backward pass starts from the sum of the gradient: that is H times ones. Give it v to start from.",
)
def v_ignored(f, x, v):
    x, g = _gradient(f, x)
    return _through(g, x, torch.ones_like(v))


@task.mistake(
    "value",
    "You differentiate the sum of the gradient and multiply by v afterwards: row sums of H times v, right for a "
    "diagonal H alone. v goes in before the second pass: differentiate (gradient * v).sum().",
)
def v_multiplied_afterwards(f, x, v):
    x, g = _gradient(f, x)
    return _through(g, x, torch.ones_like(v)) * v


@task.mistake(
    "value",
    "Your first pass leaves no graph: without create_graph=True the gradient is a constant, and a second pass has "
    "nothing to go through.",
)
def create_graph_missing(f, x, v):
    x = x.detach().requires_grad_()
    (g,) = grad(f(x), x)
    return grad((g * v).sum(), x)[0]


@task.mistake(
    "value",
    "You differentiate with respect to x as it comes, and x need not require a gradient. Work on "
    "x.detach().requires_grad_(), a tensor of its own.",
)
def x_as_it_comes(f, x, v):
    (g,) = grad(f(x), x, create_graph=True)
    return _through(g, x, v)


@task.mistake(
    "value",
    "Your result is zero everywhere: the gradient has lost its graph (create_graph=True is missing, or there is a "
    "detach), and your branch for a linear f takes it.",
)
def graph_lost(f, x, v):
    x = x.detach().requires_grad_()
    (g,) = grad(f(x), x)
    return _through(g, x, v)


@task.mistake(
    "value",
    "You build the product with @, torch.dot or mv, which want vectors: x has any shape. Multiply element by element "
    "and sum, or give v to the second pass as its upstream gradient.",
)
def vectors_alone(f, x, v):
    x, g = _gradient(f, x)
    return grad(torch.dot(g, v), x, materialize_grads=True)[0] if g.requires_grad else torch.zeros_like(x)


@task.mistake("value", "Your result is flat: it has one dimension whatever x has. Give it the shape of x.")
def flattened(f, x, v):
    return _second_of(f, x, v).flatten()


@task.mistake("value", FLOAT32_AND_BACK)
def float32_and_back(f, x, v):
    return _second_of(f, x.float(), v.float()).to(x.dtype)


@task.mistake(
    "value",
    "You flatten x before f sees it. f is a function of a tensor of the shape of x: x[0] may be a row to it. "
    "Differentiate at x.detach(), and flatten afterwards if you must.",
)
def f_sees_x_flat(f, x, v):
    return _second_of(f, x.flatten(), v.flatten()).reshape(x.shape)


@task.mistake(
    "value",
    "You convert x to float64 before f sees it. f may hold tensors of the dtype of x, and an operation between the "
    "two dtypes raises. Differentiate at x.detach().",
)
def f_sees_x_wide(f, x, v):
    return _second_of(f, x.double(), v.double()).to(x.dtype)


@task.mistake(
    "value",
    "You take the difference of two gradients at x + h v and x - h v. It is near for one h and one size of x and v, "
    "and far off in single precision or for a large v. Differentiate the gradient instead: that is exact.",
)
def finite_difference(f, x, v):
    def gradient(at):
        return _gradient(f, at)[1].detach()

    return (gradient(x + 1e-5 * v) - gradient(x - 1e-5 * v)) / 2e-5


@task.mistake(
    "value",
    "You call a function that this task forbids: hvp, vhp, hessian and jacobian of torch.autograd.functional, "
    "torch.func.hessian. Two calls of torch.autograd.grad do it.",
)
def library_called(f, x, v):
    return torch.autograd.functional.hvp(f, x, v)[1]


@task.mistake(
    "linear",
    "For a linear f the gradient is a constant that requires no gradient, and a second pass raises. The Hessian is "
    "0: return zeros.",
)
def linear_raises(f, x, v):
    x, g = _gradient(f, x)
    return grad(g, x, v)[0]


@task.mistake(
    "linear",
    "allow_unused=True (or materialize_grads=True) serves an f whose gradient leads to a parameter and not to x. A "
    "gradient that is a constant has no graph at all, and the second pass raises: add 0 * x.sum(), or return zeros "
    "there.",
)
def constant_gradient_raises(f, x, v):
    x, g = _gradient(f, x)
    return grad(g, x, v, materialize_grads=True)[0]


@task.mistake(
    "linear",
    "You look whether the gradient requires a gradient, and it may, by way of a parameter, and still not depend on "
    "x: then the second pass raises. With allow_unused=True it gives None, which stands for zeros.",
)
def unused_raises(f, x, v):
    x, g = _gradient(f, x)
    return grad(g, x, v)[0] if g.requires_grad else torch.zeros_like(x)


@task.mistake(
    "linear",
    "Where the gradient does not depend on x your result is None (allow_unused=True). Return zeros of the shape of x.",
)
def none_returned(f, x, v):
    x, g = _gradient(f, x)
    return grad(g, x, v, allow_unused=True)[0] if g.requires_grad else None


@task.mistake(
    "linear",
    "Where the gradient does not depend on x your result is a single 0. It has the shape of x: torch.zeros_like(x).",
)
def single_zero(f, x, v):
    x, g = _gradient(f, x)
    result = grad(g, x, v, allow_unused=True)[0] if g.requires_grad else None
    return torch.zeros((), dtype=x.dtype) if result is None else result


@task.mistake(
    "untouched",
    "You call requires_grad_() on x itself, and the caller's tensor requires a gradient from then on. Work on "
    "x.detach(), which is a tensor of its own.",
)
def x_marked(f, x, v):
    x.requires_grad_()
    (g,) = grad(f(x), x, create_graph=True)
    return _through(g, x, v)


@task.mistake(
    "untouched",
    "You set x.grad to None, or to the new gradient: it belongs to the caller, who may be about to use it. Work on "
    "x.detach(), or with torch.autograd.grad, which writes into no .grad.",
)
def grad_of_x_replaced(f, x, v):
    at = x if x.requires_grad else x.detach().requires_grad_()
    at.grad = None
    f(at).backward(create_graph=True, inputs=[at])
    g, at.grad = at.grad, None
    result = _through(g, at, v)
    return result.detach()


@task.mistake(
    "untouched",
    "Your .backward() reaches everything that f uses: it adds to the .grad of its parameters. torch.autograd.grad "
    "differentiates with respect to x alone and writes into no .grad.",
)
def backward_called(f, x, v):
    x = x.detach().requires_grad_()
    f(x).backward(create_graph=True)
    g, x.grad = x.grad, None
    return _through(g, x, v).detach()


@task.mistake("untouched", "You multiply v in place: the caller's v is overwritten. Make a new tensor.")
def writes_into_v(f, x, v):
    x, g = _gradient(f, x)
    result = _through(g, x, v.clone())
    v.mul_(g.detach())
    return result


@task.mistake(
    "cost",
    "You form the Hessian row by row, one backward pass for each element of x. H v takes two passes, whatever the "
    "size: the second is of (gradient * v).sum().",
)
def hessian_formed(f, x, v):
    x, g = _gradient(f, x)
    if not g.requires_grad:
        return torch.zeros_like(x)
    rows = [grad(e, x, retain_graph=True, materialize_grads=True)[0] for e in g.reshape(-1)]
    return sum(
        ((row * v).sum() * torch.eye(len(rows), dtype=x.dtype)[i] for i, row in enumerate(rows)),
        x.detach().reshape(-1) * 0,
    ).reshape(x.shape)


@task.mistake(
    "cost",
    "You differentiate with torch.func (grad, vjp, jvp, jacrev, ...) or in forward mode. Those go through no "
    "Function of the older form, forward(ctx, x), and forward mode through none without a jvp. Two calls of "
    "torch.autograd.grad serve any f.",
)
def by_torch_func(f, x, v):
    return torch.func.grad(lambda at: (torch.func.grad(f)(at) * v).sum())(x.detach())


@task.mistake(
    "cost",
    "You form the Hessian in one batched pass (is_grads_batched, or vectorize=True): that takes the memory of the "
    "whole matrix, and not every Function can go backward for many rows at once. Two passes, each of one upstream "
    "gradient, serve any f.",
)
def rows_in_one_batch(f, x, v):
    x, g = _gradient(f, x)
    if not g.requires_grad or not x.numel():
        return torch.zeros_like(x)
    units = torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)
    h = grad(g, x, units, is_grads_batched=True, materialize_grads=True)[0]
    return (h.reshape(x.numel(), -1).t() @ v.reshape(-1)).reshape(x.shape)
