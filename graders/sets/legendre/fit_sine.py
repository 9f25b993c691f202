"""fit_sine: gradient descent by hand, with the student's own Legendre."""

import math

import torch
from torch import Tensor
from torch.autograd import grad

from graders.inside.helpers import Legendre
from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.looks import Finding
from graders.judge.task import DOUBLE, Check, Draw, Task

PLACE = 2

START = (0.0, -1.0, 0.0, 0.3)
FIT_NAMES = ("a", "b", "c", "d", "loss")


def narrow_numbers(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find numbers that are all nearly right, and not to the digits of float64."""
    if [*map(type, yours.numbers)] != [float] * len(expected.numbers):
        return None
    pairs = [*zip(yours.numbers, expected.numbers, strict=True)]
    off = [abs(a - b) / max(abs(b), 1e-3) for a, b in pairs]
    if not 1e-9 < max(off) < 1e-6:
        return None
    text = (
        "Your numbers are right to about seven digits. The text wants float64 throughout: torch.linspace and "
        "torch.tensor make float32 unless they are given a dtype. Or something small is added to the plain step."
    )
    i = off.index(max(off))
    return Finding(
        "precise",
        text,
        {
            "case": look.describe(call, case),
            "yours": f"{FIT_NAMES[i]} = {pairs[i][0]!r}",
            "expected": repr(pairs[i][1]),
        },
    )


FIT = (look.exists, look.runs, narrow_numbers, look.numbers(1e-9, FIT_NAMES, absolute=1e-9))


def _data(end: float = math.pi) -> tuple[Tensor, Tensor]:
    """Return 2000 points from -end to end, and their sines."""
    x = torch.linspace(-end, end, 2000, dtype=DOUBLE)
    return x, torch.sin(x)


def _right_fit(steps: int, lr: float) -> tuple[float, ...]:
    """Return the parameters and the last loss, the four gradients by the chain rule."""
    (x, y), (a, b, c, d) = _data(), START
    for _ in range(steps):
        z = c + d * x
        p, slope = z * (2.5 * z * z - 1.5), 7.5 * z * z - 1.5
        off = a + b * p - y
        loss, into_z = off.square().sum().item(), 2 * off * b * slope
        a, b = a - lr * 2 * off.sum().item(), b - lr * 2 * (off * p).sum().item()
        c, d = c - lr * into_z.sum().item(), d - lr * (into_z * x).sum().item()
    return a, b, c, d, loss


def _rate(draw: Draw) -> float:
    """Return a rate at which the fit is stable."""
    return draw.between(2e-6, 4.5e-6).item()


task = Task(
    "fit_sine",
    "fit_sine(steps, lr)",
    reference=_right_fit,
    checks=(
        Check(
            "start",
            1,
            about="one step: the loss at the start, and the four parameters after one update",
            why="From the printed start come the loss, its four gradients at one point, then the update; returned is "
            "(a, b, c, d, loss).",
            cases=lambda d: [d.case("one step", 1, _rate(d), order=0, provide=("Legendre",))],
            looks=FIT,
        ),
        Check(
            "steps",
            3,
            about="after several steps: the parameters, and the loss of the last step before its update",
            why="Every step is made, and like the first: from the new parameters, with new gradients. Every call "
            "begins anew.",
            cases=lambda d: [
                d.case(f"{n} steps", n, rate, order=0, provide=("Legendre",), keywords=("steps", "lr"))
                for n, rate in ((2, _rate(d)), (8, _rate(d)), (6, 1e-10))
            ],
            looks=FIT,
        ),
    ),
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
def plain_loop(steps, lr):
    """Four leaves, updated in place: shows all that an optimizer does, and the one to write here."""
    x, y = _data()
    a, b, c, d = parameters = [torch.tensor(v, dtype=DOUBLE, requires_grad=True) for v in START]
    for _ in range(steps):
        loss = (a + b * Legendre.apply(c + d * x, 3) - y).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= lr * p.grad
                p.grad = None
    return a.item(), b.item(), c.item(), d.item(), loss.item()


@task.solution
def by_optimizer(steps, lr):
    """By torch.optim.SGD: for many parameters, and where momentum or another rule is to be tried."""
    (x, y), p = _data(), torch.tensor(START, dtype=DOUBLE, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=lr)
    for _ in range(steps):
        a, b, c, d = p
        loss = (a + b * Legendre.apply(c + d * x, 3) - y).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (*p.tolist(), loss.item())


@task.solution
def by_grad(steps, lr):
    """One vector of parameters, a new one in every step: nothing changes in place, and no .grad has to be emptied."""
    (x, y), p = _data(), torch.tensor(START, dtype=DOUBLE)
    for _ in range(steps):
        a, b, c, d = p.requires_grad_()
        loss = (a + b * Legendre.apply(c + d * x, 3) - y).square().sum()
        (g,) = grad(loss, p)
        p = (p - lr * g).detach()
    return (*p.tolist(), loss.item())


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
def by_module(steps, lr):
    """A module, mse_loss and its own P_3."""

    class Curve(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, value in zip("abcd", START, strict=True):
                setattr(self, name, torch.nn.Parameter(torch.tensor(value, dtype=DOUBLE)))

        def forward(self, x):
            z = self.c + self.d * x
            return self.a + self.b * 0.5 * (5 * z**3 - 3 * z)

    (x, y), model = _data(), Curve()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), y, reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return tuple(p.item() for p in (model.a, model.b, model.c, model.d, loss))


@task.solution
def without_autograd(steps, lr):
    """The four gradients by the chain rule."""
    return _right_fit(steps, lr)


# --- Mistakes ---------------------------------------------------------------------------------------------------------


def _loss(parameters: Tensor, data: tuple[Tensor, Tensor], degree: int = 3) -> Tensor:
    """Return the sum of the squared errors."""
    a, b, c, d = parameters
    x, y = data
    return (a + b * Legendre.apply(c + d * x, degree) - y).square().sum()


def _fit(steps: int, lr: float, start=START, loss=_loss, data=None, **options) -> tuple[list[float], list[float]]:
    """Return the parameters at the end and the losses before each update, by torch.optim.SGD with `options`."""
    data, losses = data or _data(), []
    parameters = torch.tensor(start, dtype=DOUBLE, requires_grad=True)
    optimizer = torch.optim.SGD([parameters], lr=lr, **options)
    for _ in range(steps):
        value = loss(parameters, data)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return parameters.tolist(), losses


def _result(steps: int, lr: float, **options: object) -> tuple[float, ...]:
    """Return what the task asks for, of a fit that differs in `options`."""
    parameters, losses = _fit(steps, lr, **options)
    return (*parameters, losses[-1])


@task.mistake(
    "start",
    "Your loss is the mean of the squared errors. The text asks for their sum, and the rates are chosen for it.",
)
def mean_for_sum(steps, lr):
    return _result(steps, lr, loss=lambda p, data: _loss(p, data) / 2000)


@task.mistake(
    "start", "Your loss is half the sum of the squared errors, and so is every gradient. Leave the factor out."
)
def halved(steps, lr):
    return _result(steps, lr, loss=lambda p, data: 0.5 * _loss(p, data))


@task.mistake(
    "start",
    "The loss you return is computed again after the final update. The one that is asked for is the loss of the last "
    "step, before its update: the number that the loop has at hand.",
)
def loss_after_the_update(steps, lr):
    parameters, _ = _fit(steps, lr)
    return (*parameters, _fit(steps + 1, lr)[1][-1])


@task.mistake("steps", "The loss you return is that of the first step. Return the one of the last, before its update.")
def loss_of_the_first_step(steps, lr):
    parameters, losses = _fit(steps, lr)
    return (*parameters, losses[0])


@task.mistake("steps", "The loss you return is the sum over all steps. Return the one of the last, before its update.")
def losses_summed(steps, lr):
    parameters, losses = _fit(steps, lr)
    return (*parameters, sum(losses))


@task.mistake("start", "You make one step too many. range(steps) makes exactly `steps`.")
def one_step_too_many(steps, lr):
    return _result(steps + 1, lr)


@task.mistake(
    "start",
    "The last update is missing: you return the parameters before it. The loss belongs before the final update, the "
    "parameters after it.",
)
def last_update_missing(steps, lr):
    return (*_fit(steps - 1, lr)[0], _fit(steps, lr)[1][-1])


@task.mistake(
    "steps",
    "The gradients of earlier steps are still in .grad, for backward adds to what is there. Set .grad to None in "
    "every step.",
)
def gradients_accumulate(steps, lr):
    return _result(steps, lr, momentum=1.0)


@task.mistake(
    "steps",
    "You stop before the last step, when the loss hardly changes any more. The text asks for `steps` steps, however "
    "small they are.",
)
def stops_early(steps, lr):
    losses = _fit(steps, lr)[1]
    made = next((i + 1 for i in range(1, steps) if abs(losses[i - 1] - losses[i]) < 1e-2), steps)
    return (*_fit(made, lr)[0], losses[made - 1])


@task.mistake("start", "You return c and d in each other's place. The order is a, b, c, d, loss.")
def c_and_d_swapped(steps, lr):
    (a, b, c, d), losses = _fit(steps, lr)
    return a, b, d, c, losses[-1]


@task.mistake("steps", "You use momentum; the text asks for plain gradient descent: parameter minus lr times gradient.")
def with_momentum(steps, lr):
    return _result(steps, lr, momentum=0.9)


@task.mistake("start", "Your update goes uphill: subtract lr times the gradient, do not add it.")
def uphill(steps, lr):
    return _result(steps, lr, maximize=True)


@task.mistake("start", "You use Adam; the text asks for plain gradient descent: parameter minus lr times gradient.")
def with_adam(steps, lr):
    data, p = _data(), torch.tensor(START, dtype=DOUBLE, requires_grad=True)
    optimizer = torch.optim.Adam([p], lr=lr)
    for _ in range(steps):
        loss = _loss(p, data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return *p.tolist(), loss.item()


@task.mistake("start", "Your update ignores lr and takes 5e-6 whatever is asked for: the rate is an argument.")
def rate_ignored(steps, lr):
    return _result(steps, 5e-6)


@task.mistake(
    "start", "You return the values that the text quotes for 2000 steps. Run the fit, for the steps and the rate given."
)
def values_quoted(steps, lr):
    return 0.0, -2.2085, 0.0, 0.2555, 8.9436


@task.mistake("start", "You start from b = 1. The text starts from (a, b, c, d) = (0, -1, 0, 0.3).")
def starts_at_plus_one(steps, lr):
    return _result(steps, lr, start=(0.0, 1.0, 0.0, 0.3))


@task.mistake("start", "Your polynomial is P_2. The fit uses P_3: Legendre.apply(c + d * x, 3).")
def second_polynomial(steps, lr):
    return _result(steps, lr, loss=lambda p, data: _loss(p, data, 2))


@task.mistake(
    "start", "Your points leave out the right end, as arange does. linspace(-pi, pi, 2000) includes both ends."
)
def end_left_out(steps, lr):
    x = torch.arange(2000, dtype=DOUBLE) / 2000 * 2 * math.pi - math.pi
    return _result(steps, lr, data=(x, torch.sin(x)))


@task.mistake("start", "Your points go from -1 to 1. The sine is to be fitted from -pi to pi.")
def other_interval(steps, lr):
    return _result(steps, lr, data=_data(end=1.0))


@task.mistake("start", "You return the loss first. The order is a, b, c, d, loss.")
def loss_first(steps, lr):
    parameters, losses = _fit(steps, lr)
    return losses[-1], *parameters


@task.mistake("start", "You return tensors. Five Python floats are asked for: take .item() of each.")
def tensors_returned(steps, lr):
    parameters, losses = _fit(steps, lr)
    return tuple(torch.tensor(v, dtype=DOUBLE) for v in (*parameters, losses[-1]))


@task.mistake(
    "start",
    "You take .item() of the loss and then need its gradient: a Python float has none. Call backward on the tensor, "
    "and take .item() for what you return.",
)
def number_before_backward(steps, lr):
    data, p = _data(), torch.tensor(START, dtype=DOUBLE, requires_grad=True)
    for _ in range(steps):
        loss = _loss(p, data).item()
        loss.backward()
    return *p.tolist(), loss


@task.mistake(
    "start",
    "`p = p - lr * p.grad` under no_grad makes a new tensor, whose .grad is None: p.grad.zero_() has nothing to set to "
    "zero. Change the parameter in place (`p -= ...`).",
)
def rebinds_and_zeroes(steps, lr):
    data, p = _data(), torch.tensor(START, dtype=DOUBLE, requires_grad=True)
    for _ in range(steps):
        loss = _loss(p, data)
        loss.backward()
        with torch.no_grad():
            p = p - lr * p.grad
            p.grad.zero_()
    return *p.tolist(), loss.item()


@task.mistake(
    "start",
    "Your update changes a leaf that requires a gradient while torch records it, which torch refuses. Put the update "
    "under torch.no_grad().",
)
def update_recorded(steps, lr):
    data, p = _data(), torch.tensor(START, dtype=DOUBLE, requires_grad=True)
    for _ in range(steps):
        loss = _loss(p, data)
        loss.backward()
        p -= lr * p.grad
        p.grad = None
    return *p.tolist(), loss.item()


@task.mistake("start", "Your d stays where it starts. All four parameters are updated.")
def one_parameter_fixed(steps, lr):
    return _result(steps, lr, loss=lambda p, data: _loss((*p[:3], p[3].detach()), data))


@task.mistake(
    "steps",
    "You update the parameters one after the other, each with a loss of its own. A step takes all gradients at the "
    "same point, and then updates.",
)
def one_after_the_other(steps, lr):
    data, p = _data(), torch.tensor(START, dtype=DOUBLE)
    for _ in range(steps):
        first = _loss(p, data)
        for i in range(4):
            p.requires_grad_()
            (g,) = grad(_loss(p, data), p)
            p = (p - lr * g * torch.eye(4, dtype=DOUBLE)[i]).detach()
    return *p.tolist(), first.item()


@task.mistake(
    "steps",
    "`p = p - lr * p.grad` makes a new tensor: no leaf, and its .grad stays None, so the second step fails. Use "
    "torch.autograd.grad, and make the new one a leaf by .detach().requires_grad_().",
)
def rebinds_while_recorded(steps, lr):
    data, p = _data(), torch.tensor(START, dtype=DOUBLE, requires_grad=True)
    for _ in range(steps):
        loss = _loss(p, data)
        loss.backward()
        p = p - lr * p.grad
    return *p.tolist(), loss.item()


@task.mistake(
    "steps",
    "`p = p - lr * p.grad` under no_grad makes a new tensor that requires no gradient, so the second step has "
    "nothing to differentiate. Change the parameter in place (`p -= ...`), or call requires_grad_() on the new one.",
)
def rebinds_parameters(steps, lr):
    data, p = _data(), torch.tensor(START, dtype=DOUBLE, requires_grad=True)
    for _ in range(steps):
        loss = _loss(p, data)
        loss.backward()
        with torch.no_grad():
            p = p - lr * p.grad
    return *p.tolist(), loss.item()
