"""Legendre: a recurrence and one of its slopes, which divides by nothing."""

import math

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import WATCHED, contract, gradient, second_order, value
from graders.judge.task import BRAIN, DOUBLE, HALF, SINGLE, Check, Draw, Task
from graders.judge.wording import NO_FUNCTION
from graders.judge.wrong import Wrong
from graders.sets.legendre.common import ENDS, FIRST, FORWARD, SECOND, inside_and_out

PLACE = 1

DENIED = ("aten::special_legendre_polynomial_p",)
FORBIDS = look.Forbids(
    "P_n is to be made by Bonnet's recurrence: torch.special, scipy and numpy.polynomial are forbidden, and so are "
    "torch.autograd and torch.func in backward.",
    names="special_legendre_polynomial_p legendre_polynomial_p",
    paths=("torch.special", "scipy", "numpy.polynomial"),
    backward=True,
)
NEAR = torch.tensor([1e-13, 1e-11, 1e-9], dtype=DOUBLE)  # so far from an end


def _layouts(cases: list[Case]) -> list[Case]:
    """Return those of `Draw.forms` that are not in half precision, which other cases have already."""
    return [c for c in cases if "float16" not in c.name]


def _right(x: Tensor, n: int) -> Tensor:
    """Return P_n by Bonnet's recurrence (DLMF 14.10.3) in float64, rounded to the dtype of x."""
    wide = x.double()
    before, p = 1 + 0 * wide, wide
    for k in range(1, n):
        before, p = p, ((2 * k + 1) * wide * p - k * before) / (k + 1)
    return (p + 0 if n else before).to(x.dtype)


def _ends(draw: Draw) -> list[Case]:
    """Return cases at the ends and close to them."""
    near = torch.cat([s * (1 + t * NEAR) for s in (-1, 1) for t in (-1, 1)])
    return [
        *(draw.case(f"n = {n} at x = -1 and 1", ENDS, n, order=2) for n in (1, 4)),
        draw.case("n = 20 at x = -1 and 1", ENDS, 20),
        draw.case("n = 3 within 1e-9 of x = -1 and 1", near, 3, order=2),
        *(draw.case(f"{str(t)[6:]} at x = -1 and 1", ENDS.to(t), 3) for t in (HALF, BRAIN, SINGLE)),
    ]


task = Task(
    "Legendre",
    "Legendre.apply(x, n)",
    reference=_right,
    checks=(
        value(
            2,
            about="the output is P_n(x) up to n = 20, beyond |x| = 1 too, in every dtype, shape and layout",
            why="All else rests on these numbers. Powers of x with explicit coefficients cancel, and lose digits as "
            "n grows.",
            cases=lambda d: [
                *(d.case(f"n = {n}", inside_and_out(d)(4), n, order=0) for n in (0, 1, 4)),
                d.case("n = 20", d.sides(4, reach=3), 20, order=0),
                d.case("float32, n = 20", d.sides(6, away=0.8, reach=1, dtype=SINGLE), 20, order=0),
                d.case(
                    "every size",
                    torch.cat([d.scales(6), torch.tensor([7e4, -2e5], dtype=DOUBLE)]),
                    4,
                    order=0,
                    watch=("trace",),
                    deny=DENIED,
                ),
                d.case("n by keyword", inside_and_out(d)(2), 3, order=0, keywords=("n",)),
                *(
                    d.case(f"{str(t)[6:]}, n = {n}", inside_and_out(d)(4, dtype=t), n, order=0)
                    for t, n in ((HALF, 0), (HALF, 4), (BRAIN, 0), (BRAIN, 3))
                ),
                *_layouts(d.forms(inside_and_out(d), 2, order=0)),
                *d.lopsided(lambda x: (x, 4), 5, order=0),
            ],
            looks=(*FORWARD, look.allowed),
        ),
        gradient(
            2,
            about="the gradient is upstream * P_n'(x), zeros at n = 0, and gradcheck passes",
            why="Everything before this operation learns from these numbers.",
            cases=lambda d: [
                *(d.case(f"n = {n}", inside_and_out(d)(4), n) for n in (4, 1, 0)),
                d.case("n = 20", d.sides(4, reach=1.3), 20),
                d.case("every size", d.scales(6), 3, upstream=d.scales(6)),
                *(d.case(f"{str(t)[6:]}, n = 4", d.sides(4, away=1.2, reach=1.6, dtype=t), 4) for t in (HALF, BRAIN)),
                *_layouts(d.forms(inside_and_out(d), 2)),
                *d.lopsided(lambda x: (x, 4), 5, zeros=False),
            ],
            looks=FIRST,
            gradcheck=lambda d: (inside_and_out(d)(4), 3),
        ),
        Check(
            "ends",
            2,
            about="at x = -1 and 1, and close to them, value, first and second derivative are finite and right",
            why="A slope over 1 - x^2 is 0/0 at the ends and has lost its digits nearby; a recurrence of the slopes "
            "divides by no x.",
            cases=_ends,
            looks=(*FORWARD, *SECOND),
        ),
        second_order(
            2,
            about="the gradient can be differentiated again, and the result is right, at x = 0 too",
            cases=lambda d: [
                *(
                    d.case(f"n = {n}", torch.cat([inside_and_out(d)(3), torch.zeros(1, dtype=DOUBLE)]), n, order=2)
                    for n in (0, 1, 4)
                ),
                d.case("a float32 matrix", inside_and_out(d)(2, 2, dtype=SINGLE), 3, order=2),
                *d.lopsided(lambda x: (x, 4), 5, order=2),
            ],
            looks=SECOND,
            gradcheck=lambda d: (inside_and_out(d)(2), 3),
        ),
        contract(
            1,
            about="the caller's tensors stay untouched; changing one before backward spoils no gradient",
            why="Memory is looked at here, and these numbers first: a gradient that is wrong elsewhere is wrong here "
            "too.",
            cases=lambda d: [
                d.case("both signs", x := inside_and_out(d)(5), 3, watch=WATCHED, deny=DENIED, between=(x.flip(0), 4)),
                d.case("n = 1", inside_and_out(d)(5), 1),
                d.case("n = 0", inside_and_out(d)(5), 0),
            ],
        ),
    ),
    forbids=FORBIDS,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


def _value(x: Tensor, n: int) -> Tensor:
    """Return P_n by Bonnet's recurrence."""
    if n < 2:
        return x.clone() if n else torch.ones_like(x)
    before, p = 1, x
    for k in range(1, n):
        before, p = p, ((2 * k + 1) * x * p - k * before) / (k + 1)
    return p


def _slope(x: Tensor, n: int) -> Tensor:
    """Return P_n' beside it, by P'_{k+1} = P'_{k-1} + (2k + 1) P_k."""
    if n < 2:
        return torch.full_like(x, n)
    before, p = 1, x
    slope_before, slope = 0, 1
    for k in range(1, n):
        slope_before, slope = slope, slope_before + (2 * k + 1) * p
        if k + 1 < n:
            before, p = p, ((2 * k + 1) * x * p - k * before) / (k + 1)
    return slope


@task.solution
class LegendreNew(Function):
    """P'_{k+1} = P'_{k-1} + (2k + 1) P_k beside Bonnet's recurrence: the fewest operations, and the one to write."""

    @staticmethod
    def forward(x, n):
        return _value(x, n)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.n = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * _slope(x, ctx.n), None


@task.solution
class LegendreOld(Function):
    """Bonnet's recurrence differentiated by the product rule: for a recurrence whose slope has no known identity."""

    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        if n == 0:
            return torch.ones_like(x)
        a, b = torch.ones_like(x), x.clone()
        for k in range(2, n + 1):
            a, b = b, ((2 * k - 1) * x * b - (k - 1) * a) / k
        return b

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        if ctx.n == 0:
            return torch.zeros_like(grad_output), None
        a, b = torch.ones_like(x), x
        da, db = torch.zeros_like(x), torch.ones_like(x)
        for k in range(2, ctx.n + 1):
            da, db = db, ((2 * k - 1) * (b + x * db) - (k - 1) * da) / k
            a, b = b, ((2 * k - 1) * x * b - (k - 1) * a) / k
        return grad_output * db, None


@task.solution
class LegendreOfItself(LegendreNew):
    """P_n' = sum of (2k + 1) P_k over k = n-1, n-3, ..., by the Function again: for small n, its work grows as n^2."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = torch.zeros_like(x)
        for k in range(ctx.n - 1, -1, -2):
            slope = slope + (2 * k + 1) * LegendreOfItself.apply(x, k)
        return g * slope, None


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class LegendreReversed(LegendreNew):
    """Reverse mode by hand through the loop of forward, run again in backward."""

    @staticmethod
    def backward(ctx, g):
        (x,), n = ctx.saved_tensors, ctx.n
        p = [torch.ones_like(x), x]
        for k in range(1, n):
            p.append(((2 * k + 1) * x * p[k] - k * p[k - 1]) / (k + 1))
        into_x, into, into_next = torch.zeros_like(g), g, torch.zeros_like(g)  # of x, P_k and P_{k+1}
        for k in range(n, 0, -1):
            into_x = into_x + (2 * k - 1) / k * p[k - 1] * into
            into, into_next = (2 * k - 1) / k * x * into - k / (k + 1) * into_next, into
        return into_x, None


@task.solution
class LegendreWide(Function):
    """The halves in float32 inside; P'_{k+1} = (k + 1) P_k + x P'_k; coefficients as floats."""

    @staticmethod
    def forward(x, n):
        wide = x.float() if x.element_size() < 4 else x
        table = [torch.ones_like(wide)]
        for k in range(n):
            last = table[k - 1] if k else 0.0
            table.append((2 - 1 / (k + 1)) * wide * table[k] - (1 - 1 / (k + 1)) * last)
        return table[n].to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.n = inputs[1]

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0]
        wide = x.float() if x.element_size() < 4 else x
        slope = torch.zeros_like(wide)
        for k in range(ctx.n):
            slope = (k + 1) * LegendreWide.apply(wide, k) + wide * slope
        return (g * slope).to(x.dtype), None


# --- Mistakes ---------------------------------------------------------------------------------------------------------

wrong = Wrong(task, of=LegendreNew)
wrong.habits(
    "float32_and_back nothing_returned not_differentiable_twice writes_into_upstream kept_as_attribute",
    upstream_ignored="Your gradient is P_n'(x) alone: the upstream gradient is missing. Multiply by it.",
    detached="Your first derivative is right and your second is wrong: x is cut out of the graph of the gradient, by "
    "detach or .data where it is saved or where it is used. Save x itself, and use it as it comes back.",
)


@wrong.forward(
    "value",
    "Your recurrence mixes up n and n + 1: from P_k and P_{k-1} it makes P_{k+1} = ((2k + 1) x P_k - k P_{k-1}) / (k "
    "+ 1). Written for P_k the factors are 2k - 1, k - 1 and k.",
)
def index_off_by_one(x, n):
    a, b = torch.ones_like(x), x.clone()
    for k in range(2, n + 1):
        a, b = b, ((2 * k + 1) * x * b - k * a) / (k + 1)
    return b if n else a


@wrong.forward(
    "value",
    "Your k is one too small: with P_0 and P_1 in hand the first step makes P_2, so k = 1 there. Begin with P_{-1} = 0 and "
    "P_0 = 1 if your loop counts from k = 0.",
)
def counted_from_zero(x, n):
    a, b = torch.ones_like(x), x.clone()
    for k in range(n):
        a, b = b, ((2 * k + 1) * x * b - k * a) / (k + 1)
    return a


@wrong.forward("value", "You return P_{n-1}: your loop makes one step too few (range ends before its second argument).")
def one_step_too_few(x, n):
    return _value(x, max(n - 1, 0))


@wrong.forward(
    "value",
    "You return P_{n+1}: your loop makes one step too many. P_0 and P_1 are there before it begins, so n - 1 steps lead to "
    "P_n: range(1, n).",
)
def one_step_too_many(x, n):
    return _value(x, n + 1 if n else 0)


@wrong.forward(
    "value", "Your recurrence lacks the division: ((2k + 1) x P_k - k P_{k-1}) is (k + 1) P_{k+1}, not P_{k+1}."
)
def division_forgotten(x, n):
    a, b = torch.zeros_like(x), torch.ones_like(x)
    for k in range(n):
        a, b = b, (2 * k + 1) * x * b - k * a
    return b


@wrong.forward(
    "value",
    "That is the Chebyshev polynomial T_n: its recurrence is 2 x T_n - T_{n-1}. P_n has Bonnet's, with n in it.",
)
def chebyshev(x, n):
    a, b = torch.ones_like(x), x.clone()
    for _ in range(n):
        a, b = b, 2 * x * b - a
    return a


@wrong.forward("value", "At n = 0 you return x, which is P_1: the loop has no case for P_0 = 1. Return ones there.")
def zero_order_forgotten(x, n):
    a, b = torch.ones_like(x), x.clone()
    for k in range(2, n + 1):
        a, b = b, ((2 * k - 1) * x * b - (k - 1) * a) / k
    return b


@wrong.forward(
    "value", "You clamp x to [-1, 1]. The polynomials are defined for every real x, and P_n(x) grows like x^n beyond 1."
)
def clamped_to_the_interval(x, n):
    return _value(x.clamp(-1, 1), n)


@wrong.forward(
    "value",
    "Your values at n = 20 have lost their digits: the coefficients of the powers of x are large and of both signs, "
    "and their sum is small. Bonnet's recurrence has no such cancellation.",
)
def powers_of_x(x, n):
    terms = (
        (-1) ** k * math.comb(n, k) * math.comb(2 * n - 2 * k, n) / 2**n * x ** (n - 2 * k) for k in range(n // 2 + 1)
    )
    return sum(terms)


@wrong.forward(
    "value",
    "For some inputs your output is float32: a tensor made by torch.ones(shape) or torch.zeros(shape) is float32 and "
    "widens what it meets. Use torch.ones_like(x).",
)
def ones_in_float32(x, n):
    a, b = torch.zeros(x.shape), torch.ones(x.shape)
    for k in range(n):
        a, b = b, ((2 * k + 1) * x * b - k * a) / (k + 1)
    return b


@wrong.forward(
    "value",
    "Your loop writes the next polynomial into the tensor of the one before the last. The first of these is x "
    "itself: from the third step on the caller's x is overwritten, and your recurrence goes on with wrong numbers. "
    "Make new tensors.",
)
def writes_into_input(x, n):
    a, b = torch.ones_like(x), x
    for k in range(1, n):
        a.copy_(((2 * k + 1) * x * b - k * a) / (k + 1))
        a, b = b, a
    return b.clone() if n else a


@wrong.forward(
    "value",
    "You call torch's own Legendre polynomial, which this task forbids (and which has no derivative). Make P_n by "
    "Bonnet's recurrence.",
)
def torchs_own(x, n):
    wide = x.float() if x.element_size() < 4 else x
    return torch.special.legendre_polynomial_p(wide, n).to(x.dtype)


@wrong.saves(
    "value",
    "save_for_backward takes tensors, and your call hands it n as well (`*inputs` has both arguments). Save x, and "
    "keep n as ctx.n.",
)
def number_saved(x, n, y):
    return x, n


@wrong.backward(
    "gradient",
    "Your slope takes P_{k+1} where it needs P_k: P'_{k+1} = P'_{k-1} + (2k + 1) P_k. In the loop move the slopes on before "
    "the polynomials.",
)
def slope_of_the_next(ctx, x, g):
    p, after = torch.ones_like(x), x
    slope, slope_after = torch.zeros_like(x), torch.ones_like(x)
    for k in range(1, ctx.n + 1):
        p, after = after, ((2 * k + 1) * x * after - k * p) / (k + 1)
        slope, slope_after = slope_after, slope + (2 * k + 1) * after
    return g * slope, None


@wrong.backward(
    "gradient", "Your slope is n P_{n-1}, the power rule of x^n. P_n is a sum of powers; the rule does not hold for it."
)
def power_rule(ctx, x, g):
    return g * ctx.n * _value(x, max(ctx.n - 1, 0)), None


@wrong.backward(
    "gradient",
    "Your slope is n U_{n-1}, the chapter's for the Chebyshev polynomial T_n. For P_n it is P'_{n+1} = P'_{n-1} + "
    "(2n + 1) P_n.",
)
def chebyshev_slope(ctx, x, g):
    u, after = torch.zeros_like(x), torch.ones_like(x)
    for _ in range(ctx.n):
        u, after = after, 2 * x * after - u
    return g * ctx.n * u, None


@wrong.backward(
    "gradient",
    "Your slope adds (2k + 1) P_k over all k below n. The identity P'_{k+1} = P'_{k-1} + (2k + 1) P_k goes in steps "
    "of two: k = n - 1, n - 3, ...",
)
def every_order_summed(ctx, x, g):
    return g * sum(((2 * k + 1) * _value(x, k) for k in range(ctx.n)), torch.zeros_like(x)), None


@wrong.backward(
    "gradient",
    "Your slope follows the recurrence of the values alone. The product x P_k has two factors that depend on x: its "
    "derivative is P_k + x P_k'.",
)
def product_rule_forgotten(ctx, x, g):
    a, b = torch.zeros_like(x), torch.ones_like(x)  # P_0', P_1'
    for k in range(2, ctx.n + 1):
        a, b = b, ((2 * k - 1) * x * b - (k - 1) * a) / k
    return g * (b if ctx.n else a), None


@wrong.backward("gradient", "Your gradient is that of P_{n-1}: the loop in backward makes one step too few.")
def slope_one_step_too_few(ctx, x, g):
    return g * _slope(x, max(ctx.n - 1, 0)), None


@wrong.backward(
    "gradient",
    "At n = 0 your backward returns None for x. P_0 does not change with x: its gradient is zeros, of the shape of x.",
)
def none_at_zero_order(ctx, x, g):
    return (g * _slope(x, ctx.n) if ctx.n else None), None


@wrong.backward(
    "gradient", "Your backward returns one gradient; forward has two arguments. Return None in the place of n."
)
def none_for_n_forgotten(ctx, x, g):
    return g * _slope(x, ctx.n)


@task.mistake("gradient", NO_FUNCTION)
def no_function(x, n):
    return _value(x, n) + 0 * x


def _quotient(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return numerator and denominator of P_n' (DLMF 14.10.5)."""
    return n * (_value(x, max(n - 1, 0)) - x * _value(x, n)), 1 - x * x


@wrong.backward(
    "ends",
    "Your slope divides by 1 - x^2, which is 0/0 at x = -1 and 1: nan there, although P_n' is finite, and digits are "
    "lost nearby. Use an identity without a division: P'_{n+1} = P'_{n-1} + (2n + 1) P_n.",
)
def divides_at_ends(ctx, x, g):
    above, below = _quotient(x, ctx.n)
    return g * above / below, None


@wrong.backward(
    "ends",
    "You replace nan by 0. The nan came from 0/0 at x = -1 and 1, where the slope is n (n + 1) / 2 up to sign: use an "
    "identity without a division.",
)
def nan_replaced(ctx, x, g):
    above, below = _quotient(x, ctx.n)
    return g * torch.nan_to_num(above / below), None


@wrong.backward(
    "ends",
    "You put the right slope in at exactly x = -1 and 1 and divide by 1 - x^2 elsewhere. Close to the ends the "
    "quotient has lost its digits, and the second derivative at the ends is wrong. Use an identity without a "
    "division.",
)
def ends_patched(ctx, x, g):
    n, at_end = ctx.n, x.abs() == 1
    above, below = _quotient(x, n)
    slope = torch.where(at_end, x ** (n + 1) * n * (n + 1) / 2, above / torch.where(at_end, 1, below))
    return g * slope, None


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is wrong: what you saved (P_n', lower orders or a copy of x) was "
    "computed in forward or setup_context and is a constant to torch. Save x itself, and compute from it in "
    "backward.",
    saves=lambda x, n, y: (_slope(x, n),),
)
def saves_derivative(slope, g):
    return g * slope, None


@task.mistake(
    "second_order",
    "Your first derivative is right and your second is wrong: you save P_0 to P_{n-1} from forward, and there they are "
    "constants. Save x alone and make them again in backward.",
)
class saves_lower_orders(Function):
    @staticmethod
    def forward(ctx, x, n):
        lower = [_value(x, k) for k in range(n)]
        ctx.save_for_backward(x, *lower)
        return _value(x, n)

    @staticmethod
    def backward(ctx, g):
        x, *lower = ctx.saved_tensors
        slope = torch.zeros_like(x)
        for k, p in enumerate(lower):
            slope = (k + 1) * p + x * slope
        return g * slope, None


@wrong.backward(
    "second_order",
    "At exactly x = 0 your second derivative is wrong: |x| and sign(x) have the derivative 0 there. The recurrences "
    "hold for x of either sign; no symmetry is needed.",
)
def by_symmetry(ctx, x, g):
    slope = _slope(x.abs(), ctx.n)
    return g * (slope if ctx.n % 2 else slope * torch.sign(x)), None


@wrong.backward(
    "gradient",
    "Your backward calls torch.autograd on a second run of the loop. The numbers are right; the task is to write the "
    "derivative yourself, by a recurrence.",
)
def autograd_in_backward(ctx, x, g):
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        x = x if x.requires_grad else x.detach().requires_grad_()
        return *torch.autograd.grad(_value(x, ctx.n) + 0 * x, x, g, create_graph=again), None


@wrong.forward(
    "contract",
    "At n = 1 your forward returns x itself, so the output is the caller's tensor: changing one in place changes the "
    "other. Return a new tensor (x.clone()).",
)
def returns_its_input(x, n):
    return x if n == 1 else _value(x, n)


LATEST: dict[str, int] = {}  # where `order_kept_outside` keeps n


@task.mistake(
    "contract",
    "You keep n outside ctx (on the class, or in a global): a second call with another n overwrites it before the "
    "first one's backward. Use ctx.n.",
)
class order_kept_outside(LegendreNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, LATEST["n"] = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * _slope(x, LATEST["n"]), None
