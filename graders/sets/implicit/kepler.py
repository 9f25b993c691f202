"""Kepler: the solution of an equation, found by Newton's method and differentiated without it."""

import math

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import WATCHED, contract, gradient, second_order, value
from graders.judge.outside import Outside
from graders.judge.task import DOUBLE, SINGLE, Check, Draw, Task
from graders.judge.wrong import Wrong
from graders.sets.implicit.common import (
    AUTOGRAD,
    CONSTANT_UPSTREAM,
    CONTRACT,
    DTYPES,
    GRADIENT,
    KEEPS,
    NO_FUNCTION,
    SECOND,
    VALUE,
    named,
)

PLACE = 1
LARGE = 1 << 19  # so many numbers stand out in a process's memory
STEPS = 40  # of the reference; from where it starts a dozen are enough


def _kepler(m: Tensor, e: Tensor) -> Tensor:
    """Return the solution, with derivatives: each step of Newton's method after the last one adds an order."""
    wide, flat = m.double(), e.double()
    with torch.no_grad():
        at = wide + flat * wide.sin().sign()
        for _ in range(STEPS):
            at = at - (at - flat * at.sin() - wide) / (1 - flat * at.cos())
    for _ in range(2):
        at = at - (at - flat * at.sin() - wide) / (1 - flat * at.cos())
    return at.to(m.dtype)


def orbit(d: Draw, *shape: int, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor]:
    """Draw m in one turn either way, and e that is not near 1."""
    return d.between(-6, 6, *shape, dtype=dtype), d.between(0.2, 0.7, *shape, dtype=dtype)


def _forms(d: Draw, order: int) -> list[Case]:
    """Return cases of both dtypes, and of every shape and layout."""
    m, e = orbit(d, 3, 2)
    rows = [t[::2] for t in orbit(d, 4, 3)]
    inputs = [(f"{named(t)} inputs", *orbit(d, 2, 3, dtype=t)) for t in DTYPES] + [
        ("0-d inputs", *orbit(d)),
        ("0-d float32 inputs", *orbit(d, dtype=SINGLE)),
        ("empty inputs", *orbit(d, 0, 3)),
        ("3-d inputs", *orbit(d, 2, 1, 3)),
        ("transposed inputs", m.t(), e.t()),
        ("m transposed, e not", orbit(d, 3, 2)[0].t(), orbit(d, 2, 3)[1]),
        ("every second row", *rows),
        ("an expanded e", orbit(d, 2, 3)[0], orbit(d, 1, 3)[1].expand(2, 3)),
    ]
    return [d.case(name, *both, order=order) for name, *both in inputs]


def _wide(d: Draw, order: int) -> list[Case]:
    """Return cases from circle to comet: e = 0, e near 1, several turns, and the places where the sine is 0.

    Beyond ten turns and with e near 1 the last digit of m is worth more than a right answer may be off: e ends at 0.7 there.
    """

    def row(*numbers: float) -> Tensor:
        return torch.tensor(numbers, dtype=DOUBLE)

    pi = math.pi
    few, half = d.between(0.3, 2.8, 5), d.between(0.2, 0.4)
    comets = {  # from m, from m + e and from m + e sign(m) the steps go astray at some of these
        "e of 0.99": row(-0.419, -0.322, -0.274, 0.03, 0.235, 0.264, 0.322, 2.0),
        "e of 0.99, beyond half a turn": row(4.485, -4.271, 5.131, 5.464, -5.01, -1.8, 4.315, 4.57),
        "e of 0.99 where m is near 0": row(0.0, 0.0001, -0.0003, 0.001, 0.003, -0.008),
    }
    return [
        d.case("circles", few, torch.zeros_like(few), order=order),
        d.case("a circle among others", few, row(0.0, 0.3, 0.0, 0.8, 0.5), order=order),
        d.case("e from 0.9 to 0.97", d.between(0.2, 3, 6), d.between(0.9, 0.97, 6), order=order),
        *(d.case(name, m, torch.full_like(m, 0.99), order=order) for name, m in comets.items()),
        d.case("e from 1e-12 to 1e-6", d.between(0.5, 2.5, 4), row(1e-12, 1e-10, 1e-8, 1e-6), order=order),
        d.case(
            "two orbits that mirror each other",
            torch.stack([half, -half]),
            torch.full((2,), 0.9, dtype=DOUBLE),
            order=order,
        ),
        d.case("several turns", row(-9.5, -7.0, 6.5, 8.0, 9.9), d.between(0.3, 0.9, 5), order=order),
        d.case("many turns", row(-1, 1, -1, 1, 1) * d.between(60, 100, 5), d.between(0.3, 0.7, 5), order=order),
        d.case("m at 0, and half a turn", row(0.0, pi, -pi, 0.5), d.between(0.3, 0.9, 4), order=order),
        d.case("an easy one beside a hard one", row(3.0, 0.05), row(0.01, 0.98), order=order),
    ]


def _lopsided(d: Draw, order: int) -> list[Case]:
    """Return cases of an m that is no even mixture, up to ten turns away."""
    return d.lopsided(lambda m: (m, d.between(0.2, 0.7, 5)), 5, order=order)


def _large(d: Draw) -> tuple[Tensor, Tensor]:
    return orbit(d, LARGE)


def _subsets(d: Draw, order: int = 1) -> list[Case]:
    return [
        d.case(f"{name} requires a gradient", *orbit(d, 2, 3), requires=flags, order=order)
        for name, flags in (("m alone", (True, False)), ("e alone", (False, True)))
    ]


task = Task(
    "Kepler",
    "Kepler.apply(m, e)",
    reference=_kepler,
    checks=(
        value(
            1,
            about="the E with E - e sin(E) = m, to the last digits, for any m and e up to 0.99",
            why="Put your E into E - e sin(E): it has to be m again, to the last digits. For e near 1 that takes a good start and "
            "as many steps as each element needs.",
            cases=lambda d: [
                *_forms(d, order=0),
                *_wide(d, order=0),
                *_lopsided(d, order=0),
                d.case("e by keyword", *orbit(d, 4), keywords=("e",), order=0),
                d.case("both by keyword", *orbit(d, 4), keywords=("m", "e"), order=0),
            ],
            looks=VALUE,
        ),
        gradient(
            1,
            about="m and e get the derivative of the solution, and gradcheck passes",
            why="Write E - e sin(E) = m with dE, dm and de, and solve for dE: what remains is a quotient for each input.",
            cases=lambda d: [
                *_forms(d, order=1),
                *_wide(d, order=1),
                *_lopsided(d, order=1),
                d.case("upstream of every size", *orbit(d, 6), upstream=d.scales(6)),
                d.case("expanded upstream", *orbit(d, 2, 3), upstream=d.normal(2, 1).expand(2, 3)),
                d.case("e by keyword", *orbit(d, 4), keywords=("e",)),
            ],
            looks=GRADIENT,
            gradcheck=lambda d: orbit(d, 5),
        ),
        second_order(
            1,
            about="the gradient can be differentiated again, by m, by e and by the upstream gradient",
            why="Backward uses e and the solution, and the solution depends on m and on e: each has to be in the graph.",
            cases=lambda d: [
                d.case("a vector", *orbit(d, 5), order=2),
                d.case("a matrix", *orbit(d, 2, 3), order=2),
                d.case("a transposed matrix", *(t.t() for t in orbit(d, 3, 2)), order=2),
                d.case("float32", d.between(0.5, 2.5, 4, dtype=SINGLE), d.between(0.2, 0.6, 4, dtype=SINGLE), order=2),
                d.case("a constant upstream gradient", *orbit(d, 4), order=2, how="constant"),
                d.case("circles", orbit(d, 4)[0], torch.zeros(4, dtype=DOUBLE), order=2),
                *_subsets(d, order=2),
                *_lopsided(d, order=2),
            ],
            looks=SECOND,
            gradcheck=lambda d: orbit(d, 4),
        ),
        Check(
            "memory",
            1,
            about="what is kept is m, e and the solution, and nothing of the steps",
            why="A loop of a hundred steps then costs no more memory than one of three.",
            cases=lambda d: [
                d.case("a vector", *orbit(d, 64), watch=("trace",)),
                d.case("e near 1", d.between(0.2, 3, 64), d.between(0.9, 0.97, 64), watch=("trace",)),
                d.case("float32", *orbit(d, 64, dtype=SINGLE), watch=("trace",)),
                d.case("a transposed matrix", *(t.t() for t in orbit(d, 8, 8)), watch=("trace",)),
            ],
            looks=KEEPS,
            outside=Outside(_large, "m, e and the output", least=8 * LARGE, keeps=True),
        ),
        contract(
            1,
            about="m alone or e alone may require a gradient; nobody's tensors are changed or given back",
            why="An input may be a constant, and tensors that your Function did not make belong to others.",
            cases=lambda d: [
                d.case("a vector", *orbit(d, 5), watch=WATCHED),
                d.case("a matrix", *orbit(d, 2, 3), watch=WATCHED),
                d.case("circles", orbit(d, 5)[0], torch.zeros(5, dtype=DOUBLE), watch=WATCHED),
                d.case("m of 0", torch.zeros(4, dtype=DOUBLE), orbit(d, 4)[1], watch=WATCHED),
                *_subsets(d),
            ],
            looks=CONTRACT,
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class KeplerNew(Function):
    """Thirty steps, whatever they find: nothing to decide, and from this start a dozen would do. The one to write."""

    @staticmethod
    def forward(m, e):
        at = m + e * m.sin().sign()
        for _ in range(30):
            at = at - (at - e * at.sin() - m) / (1 - e * at.cos())
        return at

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx, g):
        e, at = ctx.saved_tensors
        to_m = g / (1 - e * at.cos())
        return to_m, to_m * at.sin()


@task.solution
class KeplerUntilSettled(Function):
    """Stops when every step is lost in rounding: worth it for large inputs, and it can say that it has not settled."""

    @staticmethod
    def forward(ctx, m, e):
        near = 8 * torch.finfo(m.dtype).eps
        at = m + e * m.sin().sign()
        for _ in range(100):
            step = (at - e * at.sin() - m) / (1 - e * at.cos())
            at = at - step
            if (step.abs() <= near * (1 + m.abs()) / (1 - e)).all():
                break
        ctx.save_for_backward(e, at)
        return at

    @staticmethod
    def backward(ctx, grad_output):
        e, at = ctx.saved_tensors
        slope = 1 - e * at.cos()
        to_m = to_e = None
        if ctx.needs_input_grad[0]:
            to_m = grad_output / slope
        if ctx.needs_input_grad[1]:
            to_e = grad_output * at.sin() / slope
        return to_m, to_e


@task.solution
class KeplerByHalving(Function):
    """The solution lies within e of m, and each halving gains a bit: slower, and no start can send it astray."""

    @staticmethod
    def forward(m, e):
        low, high = m - e, m + e
        for _ in range(60):
            middle = (low + high) / 2
            above = middle - e * middle.sin() > m
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return (low + high) / 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        _, e, at = ctx.saved_tensors
        slope = (1 - e * at.cos()).reciprocal()
        return g * slope, g * slope * at.sin()


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class KeplerWithinATurn(KeplerNew):
    """Takes whole turns off first, begins half a turn away, where Newton's method cannot miss, and puts them on again."""

    @staticmethod
    def forward(m, e):
        turns = 2 * math.pi * torch.round(m / (2 * math.pi))
        rest = m - turns
        at = torch.where(rest < 0, -math.pi, math.pi).to(m.dtype)
        for _ in range(40):
            at = at - (at - e * at.sin() - rest) / (1 - e * at.cos())
        return at + turns


@task.solution
class KeplerByRecursion(KeplerNew):
    """Calls itself in backward, for the sine and cosine of the solution that it has."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        m, e = ctx.saved_tensors
        at = KeplerByRecursion.apply(m, e)
        return g / (1 - e * at.cos()), g * at.sin() / (1 - e * at.cos())


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class Orbit(Function):
    """A right Kepler in steps, for the wrong ones to change one of them."""

    @staticmethod
    def start(m: Tensor, e: Tensor) -> Tensor:
        """Return where Newton's method begins."""
        return m + e * m.sin().sign()

    @staticmethod
    def move(at: Tensor, m: Tensor, e: Tensor) -> Tensor:
        """Return one step."""
        return (at - e * at.sin() - m) / (1 - e * at.cos())

    @classmethod
    def solve(cls, m: Tensor, e: Tensor) -> Tensor:
        """Return the solution."""
        at = cls.start(m, e)
        for _ in range(40):
            at = at - cls.move(at, m, e)
        return at

    @classmethod
    def forward(cls, m, e):
        return cls.solve(m, e)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def slope(e: Tensor, at: Tensor) -> Tensor:
        """Return the derivative of the equation's left side by E."""
        return 1 - e * at.cos()

    @staticmethod
    def push(e: Tensor, at: Tensor) -> Tensor:
        """Return minus the derivative of the equation's left side by e."""
        return at.sin()

    @classmethod
    def backward(cls, ctx, g):
        e, at = ctx.saved_tensors
        to_m = g / cls.slope(e, at)
        return to_m, to_m * cls.push(e, at)


def newton(at: Tensor, m: Tensor, e: Tensor, steps: int = 30) -> Tensor:
    """Return where so many steps lead."""
    for _ in range(steps):
        at = at - Orbit.move(at, m, e)
    return at


wrong = Wrong(task, of=Orbit)
both = Wrong(task, of=KeplerNew)  # for what is done around forward


@wrong.step(
    "slope",
    "gradient",
    "The denominator is missing: you differentiate m + e sin(E) with E held still. But E moves too, and pushes itself: "
    "divide by 1 - e cos(E).",
)
def denominator_missing(e, at):
    return torch.ones_like(at)


@wrong.backward(
    "gradient",
    "Your denominator is taken at m, where the search begins, and not at the solution. Save the output, and use its "
    "sine and cosine.",
    saves=lambda m, e, at: (m, e),
)
def taken_at_the_start(m, e, g):
    return g / (1 - e * m.cos()), g * m.sin() / (1 - e * m.cos())


@wrong.step(
    "slope",
    "gradient",
    "Your denominator is 1 + e cos(E), with a wrong sign. Differentiate E - e sin(E) by E: it is 1 - e cos(E).",
)
def denominator_sign(e, at):
    return 1 + e * at.cos()


@wrong.step(
    "push",
    "gradient",
    "The gradient of e has the wrong sign. The term - e sin(E) stands on the left; solved for dE, it is + sin(E) de.",
)
def sign_of_e(e, at):
    return -at.sin()


@wrong.backward(
    "gradient",
    "e gets None, and so never learns. The solution depends on e too: its gradient is that of m, times sin(E).",
)
def none_for_e(e, at, g):
    return g / (1 - e * at.cos()), None


@wrong.forward(
    "value",
    "You stop too early. A few steps are enough for small e, and not near 1: repeat until nothing moves, or thirty times.",
)
def three_steps(m, e):
    return newton(Orbit.start(m, e), m, e, 3)


@wrong.forward(
    "value",
    "Your search begins at m itself. For e near 1 the slope there is nearly 0, so the first step goes far astray and "
    "the others after it: begin at m + e sign(sin(m)), from where every step leads to the solution.",
)
def starts_at_m(m, e):
    return newton(m.clone(), m, e)


@wrong.forward(
    "value",
    "Your search begins at m + e sign(m). E lies above m where the sine of m is above 0, and not where m is: between half a turn "
    "and a whole one you begin on the wrong side. Take the sign of m.sin().",
)
def starts_by_the_sign_of_m(m, e):
    return newton(m + e * m.sign(), m, e)


@wrong.forward(
    "value",
    "Your search begins at m + e for each m. Where the sine of m is below 0 the solution lies below m, and the steps from there "
    "may go astray: begin at m + e sign(sin(m)).",
)
def starts_above(m, e):
    return newton(m + e, m, e)


@wrong.forward(
    "value",
    "You repeat E = m + e sin(E), which gains a factor of e at each step and no more: for e of 0.99 fifty steps are far too "
    "few. Divide the step by 1 - e cos(E), as Newton does.",
)
def not_newton(m, e):
    at = m.clone()
    for _ in range(50):
        at = m + e * at.sin()
    return at


@wrong.forward(
    "value",
    "Your loop stops as soon as one element has settled, and the others are not there yet. Ask whether all of them have.",
)
def stops_at_the_first(m, e):
    at = Orbit.start(m, e)
    for _ in range(40):
        move = Orbit.move(at, m, e)
        at = at - move
        if (move.abs() <= 1e-14 * (1 + at.abs())).any():
            break
    return at


@wrong.forward(
    "value",
    "Your loop adds up the steps of all elements and stops where the sum is near 0: steps of opposite signs cancel, though neither "
    "is small. Ask whether the size of every step is small: (step.abs() <= tol).all().",
)
def stops_by_the_sum(m, e):
    at = Orbit.start(m, e)
    for _ in range(40):
        move = Orbit.move(at, m, e)
        at = at - move
        if move.sum().abs() < 1e-12:
            break
    return at


@wrong.forward(
    "value",
    "Your loop stops while E - e sin(E) is still 0.0001 from m. For e near 1 that is a hundred times as much in E: go on "
    "until the step itself is lost in rounding.",
)
def stops_early(m, e):
    at = Orbit.start(m, e)
    for _ in range(40):
        if ((at - e * at.sin() - m).abs() <= 1e-4).all():
            break
        at = at - Orbit.move(at, m, e)
    return at


both.habits(
    float32_inside="Your output is float32 whatever the inputs are: you convert them inside. Keep their dtype.",
    float32_and_back="You solve in float32 and cast back: for float64 inputs half of the digits are lost, and gradcheck "
    "fails. Solve in the dtype of the inputs.",
)


@wrong.forward(
    "value",
    "You ask for the largest step with max(), which fails where there are no elements. Ask (step.abs() <= tol).all(), which "
    "is True for none.",
)
def maximum_of_nothing(m, e):
    at = Orbit.start(m, e)
    for _ in range(40):
        move = Orbit.move(at, m, e)
        at = at - move
        if move.abs().max() == 0:
            break
    return at


@wrong.forward(
    "value",
    "Your loop asks `if step < tol` of a whole tensor, or takes item() of it: that works for one number. Ask all() of what "
    "the comparison gives.",
)
def one_number_only(m, e):
    at = Orbit.start(m, e)
    for _ in range(40):
        move = Orbit.move(at, m, e)
        at = at - move
        if move.abs() < 1e-15:
            break
    return at


@wrong.step(
    "move",
    "value",
    "You solve E + e sin(E) = m: the sign of the sine is wrong. It is E - e sin(E) = m.",
)
def equation_sign(at, m, e):
    return (at + e * at.sin() - m) / (1 + e * at.cos())


@wrong.forward(
    "value",
    "You solve E - e cos(E) = m: the equation has the sine. (Its derivative, in the denominator, has the cosine.)",
)
def cosine_for_sine(m, e):
    at = m + e
    for _ in range(60):
        at = (at + m + e * at.cos()) / 2  # damped, as who writes it would find out
    return at


@wrong.step(
    "solve",
    "value",
    "You take whole turns off m, and don't put them back on the result: E goes on beyond a turn, as m does.",
)
def turns_lost(m, e):
    rest = torch.remainder(m, 2 * math.pi)
    return Orbit.solve(rest, e)


@wrong.step(
    "solve",
    "value",
    "You return the difference of E and m, which is e sin(E), and not E itself: add m.",
)
def without_m(m, e):
    return Orbit.solve(m, e) - m


@wrong.forward(
    "value",
    "Your Function uses view, which fails on an input that is not contiguous in memory; work on it as it is (or use "
    "reshape).",
)
def view_in_forward(m, e):
    return Orbit.solve(m.view(-1), e.view(-1)).view(m.shape)


@wrong.step(
    "slope",
    "gradient",
    "Your denominator is 1 - e sin(E): that is no derivative of the equation. The derivative of e sin(E) by E is e cos(E).",
)
def sine_in_denominator(e, at):
    return 1 - e * at.sin()


@wrong.step(
    "slope",
    "gradient",
    "Your denominator is 1 - cos(E): the factor e is missing. It is 1 - e cos(E).",
)
def factor_e_missing(e, at):
    return 1 - at.cos()


@wrong.step(
    "slope",
    "gradient",
    "You multiply by 1 - e cos(E). It stands before dE on the left of the equation, so solving for dE divides by it.",
)
def multiplied(e, at):
    return 1 / (1 - e * at.cos())


@wrong.step(
    "slope",
    "gradient",
    "You differentiate three steps of E = m + e sin(E): 1 + c + c^2 with c = e cos(E). Those are the first terms of "
    "1 / (1 - c). All of them together are the quotient, so write that.",
)
def three_terms(e, at):
    c = e * at.cos()
    return 1 / (1 + c + c * c)


@wrong.backward(
    "gradient",
    "e gets sin(E) alone: the denominator is missing there, and right for m. Both inputs move the same E, so both are divided "
    "by 1 - e cos(E).",
)
def denominator_for_m_alone(e, at, g):
    return g / (1 - e * at.cos()), g * at.sin()


@wrong.step(
    "push",
    "gradient",
    "e gets the gradient of m: the factor sin(E) is missing. In the equation m stands alone, and e before sin(E).",
)
def sine_missing(e, at):
    return torch.ones_like(at)


@wrong.step(
    "push",
    "gradient",
    "The gradient of e has a factor e too many. The derivative of e sin(E) by e, with E held still, is sin(E).",
)
def factor_e_too_many(e, at):
    return e * at.sin()


@wrong.step(
    "push",
    "gradient",
    "The gradient of e has cos(E), where sin(E) belongs: e stands before sin(E) in the equation.",
)
def cosine_for_e(e, at):
    return at.cos()


@wrong.backward(
    "gradient",
    "The gradient of e has sin(m), where sin(E) belongs: everything is taken at the solution.",
    saves=lambda m, e, at: (m, e, at),
)
def sine_of_m(m, e, at, g):
    to_m = g / (1 - e * at.cos())
    return to_m, to_m * m.sin()


@wrong.backward(
    "gradient",
    "e gets the derivative without the upstream gradient, which is there for m: each gradient is the upstream gradient times a "
    "derivative.",
)
def upstream_for_m_alone(e, at, g):
    slope = 1 - e * at.cos()
    return g / slope, at.sin() / slope


@wrong.backward(
    "gradient",
    "e gets one number for all elements, the sum of their gradients. Each element has an e of its own: leave the sum out.",
)
def summed_for_e(e, at, g):
    to_m = g / (1 - e * at.cos())
    return to_m, (to_m * at.sin()).sum().expand(e.shape)


@wrong.step(
    "push",
    "gradient",
    "You make the sine from the cosine, by a square root, and a root is never below 0: where sin(E) is, your sign is wrong. "
    "Write E.sin().",
)
def sine_by_root(e, at):
    return (1 - at.cos() ** 2).clamp(min=0).sqrt()


@wrong.backward(
    "gradient",
    "You take sin(E) from (E - m) / e. For a small e that is a difference in which nearly all digits cancel, and for an e of 0 it is "
    "0 / 0: write E.sin().",
    saves=lambda m, e, at: (m, e, at),
)
def sine_from_difference(m, e, at, g):
    to_m = g / (1 - e * at.cos())
    return to_m, to_m * (at - m) / e


@wrong.backward(
    "gradient",
    "You take sin(E) from (E - m) / e. For a small e that is a difference in which nearly all digits cancel: write E.sin(), which "
    "needs no exception for an e of 0 either.",
    saves=lambda m, e, at: (m, e, at),
)
def sine_from_difference_apart(m, e, at, g):
    flat = e == 0
    sine = torch.where(flat, m.sin(), (at - m) / torch.where(flat, 1, e))
    to_m = g / (1 - e * at.cos())
    return to_m, to_m * sine


@wrong.backward(
    "gradient",
    "Your two gradients are in the wrong order: return them as forward has its arguments, first that of m, then that of e.",
)
def order_swapped(e, at, g):
    to_m = g / (1 - e * at.cos())
    return to_m * at.sin(), to_m


@wrong.backward(
    "gradient",
    "Your denominator is one number, the mean over all elements. Each element is an equation of its own, and has its own.",
)
def one_denominator(e, at, g):
    slope = (1 - e * at.cos()).mean() if at.numel() else 1.0
    return g / slope, g / slope * at.sin()


wrong.habits(
    "upstream_ignored upstream_summed upstream_averaged zeros_returned view_needed",
    nothing_returned="Your backward returns None (is a return statement missing?): neither input gets a gradient.",
    none_forgotten="Your backward returns one gradient, and forward has two arguments: return one for m and one for e.",
    one_too_many="Your backward returns three gradients. Forward has two arguments, m and e.",
    upstream_unchanged="Both inputs get the upstream gradient as it came: the derivative of the solution is missing.",
    sign_flipped="Both gradients have the wrong sign: E grows with m, so its derivative by m is above 0.",
    no_function=NO_FUNCTION,
)


@task.mistake("gradient", AUTOGRAD)
class autograd_in_backward(KeplerNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            own = [t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in ctx.saved_tensors]
            return torch.autograd.grad(KeplerNew.forward(*own), own, g, create_graph=True)


wrong.habits(
    "not_differentiable_twice",
    detached="Your first derivatives are right, and the second ones lack what e and E depend on: they are cut out of the graph, "
    "by detach or .data. Use what is saved as it comes back.",
)


@wrong.saves(
    "second_order",
    "Your first derivatives are right, but the solution that you saved is a copy, made on the way: a constant for the "
    "second. Save the output itself, which torch knows to depend on m and e.",
)
def saves_copy_of_output(m, e, at):
    return e, at.detach().clone()


@wrong.backward(
    "second_order",
    "Your first derivatives are right, but what you saved was computed in forward (the slope, or the sine and cosine): a "
    "constant for the second. Save e and the output, and compute the rest in backward.",
    saves=lambda m, e, at: (1 - e * at.cos(), at.sin()),
)
def saves_slope(slope, sine, g):
    return g / slope, g / slope * sine


@wrong.step(
    "slope",
    "second_order",
    "Your denominator is a constant for the second derivative: detach, item or no_grad cuts it off. It depends on e, and on "
    "m by way of E.",
)
def denominator_detached(e, at):
    return (1 - e * at.cos()).detach()


@wrong.backward(
    "second_order",
    "In your backward E is a constant: cut off, or solved for again under no_grad. Your second derivative then lacks all "
    "that comes by way of E. Save the output, and use it as it is.",
)
def solution_detached(e, at, g):
    at = at.detach()
    return g / (1 - e * at.cos()), g / (1 - e * at.cos()) * at.sin()


@wrong.backward(
    "second_order",
    "In your backward e is a constant: cut off by detach, or kept as a number. The denominator depends on e directly too, "
    "not by way of E alone.",
)
def e_detached(e, at, g):
    e = e.detach()
    return g / (1 - e * at.cos()), g / (1 - e * at.cos()) * at.sin()


@wrong.backward(
    "second_order",
    "You search for E again in backward, from inputs that are cut off: by detach, or under no_grad. Your second derivative then lacks "
    "all that comes by way of E. Save the output, and use it as it is.",
    saves=lambda m, e, at: (m, e),
)
def solved_again(m, e, g):
    at = Orbit.solve(m.detach(), e.detach())
    return g / (1 - e * at.cos()), g / (1 - e * at.cos()) * at.sin()


@wrong.backward(
    "second_order",
    "Your first derivatives are right, but the sine and the cosine that you saved are made in forward: constants for the second. Save "
    "the output, and take its sine and cosine in backward.",
    saves=lambda m, e, at: (e, at.sin(), at.cos()),
)
def saves_sine_and_cosine(e, sine, cosine, g):
    return g / (1 - e * cosine), g / (1 - e * cosine) * sine


@wrong.backward(
    "second_order",
    "Where e is 0 you take a shorter way, on which the gradient of m does not depend on e any more: its value is right there, and its "
    "derivative by e is lost. Leave the exception out, the quotient is right for circles too.",
)
def circles_apart(e, at, g):
    if e.numel() and not e.any():
        return g.clone(), g * at.sin()
    return g / (1 - e * at.cos()), g / (1 - e * at.cos()) * at.sin()


@wrong.saves(
    "second_order",
    "You save e and the output made float64. For float32 inputs these are copies: more memory, and constants for the second "
    "derivative. Save them as they are, and convert in backward.",
)
def saves_in_float64(m, e, at):
    return e.double(), at.double()


@wrong.saves(
    "second_order",
    "You save what contiguous() gives. Where a tensor is not contiguous that is a copy: more memory, and a constant for the second "
    "derivative. Save e and the output as they are.",
)
def saves_contiguous(m, e, at):
    return e.contiguous(), at.contiguous()


@wrong.backward("second_order", CONSTANT_UPSTREAM)
def graph_for_upstream_alone(ctx, g):
    with torch.set_grad_enabled(g.requires_grad):
        return Orbit.backward(ctx, g)


@task.mistake(
    "memory",
    "You keep what the steps went through, a tensor for each of them. Backward needs the last one alone: save the output.",
)
class steps_kept(Orbit):
    @staticmethod
    def forward(ctx, m, e):
        at, path = Orbit.start(m, e), []
        for _ in range(30):
            at = at - Orbit.move(at, m, e)
            path.append(at)
        ctx.path = path[:-1]
        ctx.save_for_backward(e, at)
        return at

    setup_context = Function.setup_context


@wrong.backward(
    "memory",
    "You keep one more tensor than e and the solution, of their size: a residual, a start, a copy, on ctx or "
    "elsewhere. Backward can do without it.",
    saves=lambda m, e, at: (e, at, at - e * at.sin() - m),
)
def one_more_kept(e, at, _, g):
    return g / (1 - e * at.cos()), g / (1 - e * at.cos()) * at.sin()


@task.mistake(
    "memory",
    "Your forward records a graph of its loop (under enable_grad) and keeps it on ctx: all the memory that the Function is "
    "there to save. Inside forward nothing need be recorded.",
)
class graph_kept(Orbit):
    @staticmethod
    def forward(ctx, m, e):
        with torch.enable_grad():
            ctx.graph = Orbit.solve(m.detach().requires_grad_(), e.detach().requires_grad_())
        at = ctx.graph.detach().clone()
        ctx.save_for_backward(e, at)
        return at

    setup_context = Function.setup_context


both.habits(
    "writes_into_upstream",
    writes_into_input="Your loop works in m itself: `E = m` gives it a second name, and `E -= ...` overwrites the caller's "
    "tensor. Write E = E - ..., or begin with a new tensor.",
    kept_as_attribute="You keep tensors as attributes of ctx, where torch does not watch them: when e or the output is "
    "changed in place before backward, the gradient is silently wrong. Use ctx.save_for_backward.",
    kept_outside_ctx="You keep tensors outside ctx, on the class or in a global: a second call overwrites them before the "
    "first one's backward. Use ctx.save_for_backward.",
)


@wrong.step(
    "solve",
    "contract",
    "Where all e are 0 you return m itself. The output then is the caller's tensor, and who changes one changes the other: "
    "return m.clone(), or leave this case to the loop.",
)
def m_returned(m, e):
    return m if m.numel() and not e.any() else Orbit.solve(m, e)


@wrong.step(
    "solve",
    "contract",
    "Where all m are 0 you return m itself. The output then is the caller's tensor, and who changes one changes the other: "
    "return m.clone(), or leave this case to the loop.",
)
def m_of_zero_returned(m, e):
    return m if m.numel() and not m.any() else Orbit.solve(m, e)


@wrong.backward(
    "contract",
    "You leave out the gradients that nobody needs, so that what you return is too short. Return one for each argument, "
    "with None in the place of those.",
)
def needed_alone_returned(ctx, g):
    grads = Orbit.backward(ctx, g)
    return tuple(grad for grad, needed in zip(grads, ctx.needs_input_grad, strict=True) if needed)


@wrong.backward(
    "contract",
    "Where m needs no gradient you return None for everything, and e gets nothing. ctx.needs_input_grad has an entry for "
    "each input: ask for e separately.",
)
def asks_for_m_alone(ctx, g):
    return Orbit.backward(ctx, g) if ctx.needs_input_grad[0] else (None, None)


@wrong.backward(
    "contract",
    "Where m needs no gradient its quotient is not computed, and e's is made of it: e gets the sine alone. Compute the "
    "quotient once, before you ask who needs what.",
)
def quotient_skipped(ctx, g):
    e, at = ctx.saved_tensors
    to_m = g / (1 - e * at.cos()) if ctx.needs_input_grad[0] else None
    return to_m, (g if to_m is None else to_m) * at.sin() if ctx.needs_input_grad[1] else None
