"""Set 04: Legendre, fit_sine, hvp; and the chapter's Chebyshev."""

import math

import torch
from torch import Tensor
from torch.autograd import Function, grad
from torch.autograd.function import once_differentiable as once

from graders.inside.helpers import Legendre
from graders.inside.records import Case, Helper, Record
from graders.judge import looks as look
from graders.judge.looks import Finding
from graders.judge.task import BRAIN, DOUBLE, HALF, SINGLE, Check, Draw, Task
from graders.judge.wording import (
    CUT_OFF,
    FLOAT32_AND_BACK,
    KEPT_AS_ATTRIBUTE,
    NO_FUNCTION,
    NOTHING_RETURNED,
    WRITES_INTO_UPSTREAM,
)

GLOBAL: dict = {}  # where the mistakes `kept_outside_ctx` and `order_kept_outside` keep things


def _precise(or_else: str) -> look.Look:
    """`look.precise`, with another thing that costs digits in its message."""

    def precise(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
        found = look.precise(call, case, yours, expected)
        text = f"In float64 about half of your digits are right: something narrows them to float32, or {or_else}."
        return found and Finding(found.look, text, found.evidence)

    return precise


DIVIDED = _precise("a division by nearly 0 has lost them")
FORWARD = (*look.FORWARD[:-1], DIVIDED, look.value)
FIRST = (*look.FIRST[:-1], DIVIDED, look.gradient)
SECOND = (*FIRST, look.second_order)

# --- Legendre ---------------------------------------------------------------------------------------------------------

DENIED = ("aten::special_legendre_polynomial_p",)
FORBIDS = look.Forbids(
    "P_n is to be made by Bonnet's recurrence: torch.special, scipy and numpy.polynomial are forbidden, and so are "
    "torch.autograd and torch.func in backward.",
    names="special_legendre_polynomial_p legendre_polynomial_p",
    paths=("torch.special", "scipy", "numpy.polynomial"),
    backward=True,
)
ENDS = torch.tensor([-1.0, 1.0], dtype=DOUBLE)
NEAR = torch.tensor([1e-13, 1e-11, 1e-9], dtype=DOUBLE)  # so far from an end


def _inputs(draw: Draw):
    """Numbers inside and outside of [-1, 1]."""
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, reach=1.5, dtype=dtype)


def _layouts(cases: list[Case]) -> list[Case]:
    """`Draw.forms` without its cases in half precision, where other cases have them already."""
    return [c for c in cases if "float16" not in c.name]


def _right(x: Tensor, n: int) -> Tensor:
    """P_n by Bonnet's recurrence (DLMF 14.10.3) in float64, rounded to the dtype of x."""
    wide = x.double()
    before, p = 1 + 0 * wide, wide
    for k in range(1, n):
        before, p = p, ((2 * k + 1) * wide * p - k * before) / (k + 1)
    return (p + 0 if n else before).to(x.dtype)


def _ends(draw: Draw) -> list[Case]:
    near = torch.cat([s * (1 + t * NEAR) for s in (-1, 1) for t in (-1, 1)])
    return [
        *(draw.case(f"n = {n} at x = -1 and 1", ENDS, n, order=2) for n in (1, 4)),
        draw.case("n = 20 at x = -1 and 1", ENDS, 20),
        draw.case("n = 3 within 1e-9 of x = -1 and 1", near, 3, order=2),
        *(draw.case(f"{str(t)[6:]} at x = -1 and 1", ENDS.to(t), 3) for t in (HALF, BRAIN, SINGLE)),
    ]


legendre = Task(
    "Legendre",
    "Legendre.apply(x, n)",
    _right,
    (
        Check(
            "value",
            2,
            "the output is P_n(x) up to n = 20, beyond |x| = 1 too, in every dtype, shape and layout",
            "All else rests on these numbers. Powers of x with explicit coefficients cancel, and lose digits as n grows.",
            lambda d: [
                *(d.case(f"n = {n}", _inputs(d)(4), n, order=0) for n in (0, 1, 4)),
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
                d.case("n by keyword", _inputs(d)(2), 3, order=0, keywords=("n",)),
                *(
                    d.case(f"{str(t)[6:]}, n = {n}", _inputs(d)(4, dtype=t), n, order=0)
                    for t, n in ((HALF, 0), (HALF, 4), (BRAIN, 0), (BRAIN, 3))
                ),
                *_layouts(d.forms(_inputs(d), 2, order=0)),
            ],
            (*FORWARD, look.allowed),
        ),
        Check(
            "gradient",
            2,
            "the gradient is upstream * P_n'(x), zeros at n = 0, and gradcheck passes",
            "Everything before this operation learns from these numbers.",
            lambda d: [
                *(d.case(f"n = {n}", _inputs(d)(4), n) for n in (4, 1, 0)),
                d.case("n = 20", d.sides(4, reach=1.3), 20),
                d.case("every size", d.scales(6), 3, upstream=d.scales(6)),
                *(d.case(f"{str(t)[6:]}, n = 4", d.sides(4, away=1.2, reach=1.6, dtype=t), 4) for t in (HALF, BRAIN)),
                *_layouts(d.forms(_inputs(d), 2)),
            ],
            FIRST,
            lambda d: (_inputs(d)(4), 3),
        ),
        Check(
            "ends",
            2,
            "at x = -1 and 1, and close to them, value, first and second derivative are finite and right",
            "A slope over 1 - x^2 is 0/0 at the ends and has lost its digits nearby; a recurrence of the slopes divides by no x.",
            _ends,
            (*FORWARD, *SECOND),
        ),
        Check(
            "second_order",
            2,
            "the gradient can be differentiated again, and the result is right, at x = 0 too",
            "A Hessian, a gradient penalty or a physics loss differentiates your backward.",
            lambda d: [
                *(
                    d.case(f"n = {n}", torch.cat([_inputs(d)(3), torch.zeros(1, dtype=DOUBLE)]), n, order=2)
                    for n in (0, 1, 4)
                ),
                d.case("a float32 matrix", _inputs(d)(2, 2, dtype=SINGLE), 3, order=2),
            ],
            SECOND,
            lambda d: (_inputs(d)(2), 3),
            order=2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; changing one before backward spoils no gradient",
            "Memory is looked at here, and these numbers first: a gradient that is wrong elsewhere is wrong here too.",
            lambda d: [
                d.case(
                    "both signs",
                    x := _inputs(d)(5),
                    3,
                    watch=("state", "overwrite", "trace"),
                    deny=DENIED,
                    between=(x.flip(0), 4),
                ),
                d.case("n = 1", _inputs(d)(5), 1),
                d.case("n = 0", _inputs(d)(5), 0),
            ],
            look.CONTRACT,
        ),
    ),
    forbids=FORBIDS,
)


def _value(x: Tensor, n: int) -> Tensor:
    if n < 2:
        return x.clone() if n else torch.ones_like(x)
    before, p = 1, x
    for k in range(1, n):
        before, p = p, ((2 * k + 1) * x * p - k * before) / (k + 1)
    return p


def _slope(x: Tensor, n: int) -> Tensor:
    if n < 2:
        return torch.full_like(x, n)
    before, p = 1, x
    slope_before, slope = 0, 1
    for k in range(1, n):
        slope_before, slope = slope, slope_before + (2 * k + 1) * p
        if k + 1 < n:
            before, p = p, ((2 * k + 1) * x * p - k * before) / (k + 1)
    return slope


@legendre.solution
class LegendreNew(Function):
    """P'_{k+1} = P'_{k-1} + (2k + 1) P_k beside Bonnet's recurrence."""

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


@legendre.solution
class LegendreOld(Function):
    """forward and setup_context in one; Bonnet's recurrence differentiated by the product rule."""

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


@legendre.solution
class LegendreOfItself(LegendreNew):
    """Backward applies the Function again: P_n' = sum of (2k + 1) P_k over k = n-1, n-3, ..."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = torch.zeros_like(x)
        for k in range(ctx.n - 1, -1, -2):
            slope = slope + (2 * k + 1) * LegendreOfItself.apply(x, k)
        return g * slope, None


@legendre.solution
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


@legendre.solution
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


@legendre.mistake(
    "value",
    "Your recurrence mixes up n and n + 1: from P_k and P_{k-1} it makes P_{k+1} = ((2k + 1) x P_k - k P_{k-1}) / (k + 1). "
    "Written for P_k the factors are 2k - 1, k - 1 and k.",
)
class index_off_by_one(LegendreNew):
    @staticmethod
    def forward(x, n):
        a, b = torch.ones_like(x), x.clone()
        for k in range(2, n + 1):
            a, b = b, ((2 * k + 1) * x * b - k * a) / (k + 1)
        return b if n else a


@legendre.mistake(
    "value", "You return P_{n-1}: your loop makes one step too few (range ends before its second argument)."
)
class one_step_too_few(LegendreNew):
    @staticmethod
    def forward(x, n):
        return _value(x, max(n - 1, 0))


@legendre.mistake(
    "value", "Your recurrence lacks the division: ((2k + 1) x P_k - k P_{k-1}) is (k + 1) P_{k+1}, not P_{k+1}."
)
class division_forgotten(LegendreNew):
    @staticmethod
    def forward(x, n):
        a, b = torch.zeros_like(x), torch.ones_like(x)
        for k in range(n):
            a, b = b, (2 * k + 1) * x * b - k * a
        return b


@legendre.mistake(
    "value",
    "That is the Chebyshev polynomial T_n: its recurrence is 2 x T_n - T_{n-1}. P_n has Bonnet's, with n in it.",
)
class chebyshev(LegendreNew):
    @staticmethod
    def forward(x, n):
        a, b = torch.ones_like(x), x.clone()
        for _ in range(n):
            a, b = b, 2 * x * b - a
        return a


@legendre.mistake("value", "At n = 0 you return x, which is P_1: the loop has no case for P_0 = 1. Return ones there.")
class zero_order_forgotten(LegendreNew):
    @staticmethod
    def forward(x, n):
        a, b = torch.ones_like(x), x.clone()
        for k in range(2, n + 1):
            a, b = b, ((2 * k - 1) * x * b - (k - 1) * a) / k
        return b


@legendre.mistake(
    "value", "You clamp x to [-1, 1]. The polynomials are defined for every real x, and P_n(x) grows like x^n beyond 1."
)
class clamped_to_the_interval(LegendreNew):
    @staticmethod
    def forward(x, n):
        return _value(x.clamp(-1, 1), n)


@legendre.mistake(
    "value",
    "Your values at n = 20 have lost their digits: the coefficients of the powers of x are large and of both signs, and "
    "their sum is small. Bonnet's recurrence has no such cancellation.",
)
class powers_of_x(LegendreNew):
    @staticmethod
    def forward(x, n):
        terms = (
            (-1) ** k * math.comb(n, k) * math.comb(2 * n - 2 * k, n) / 2**n * x ** (n - 2 * k)
            for k in range(n // 2 + 1)
        )
        return sum(terms)


@legendre.mistake(
    "value",
    "For some inputs your output is float32: a tensor made by torch.ones(shape) or torch.zeros(shape) is float32 and widens "
    "what it meets. Use torch.ones_like(x).",
)
class ones_in_float32(LegendreNew):
    @staticmethod
    def forward(x, n):
        a, b = torch.zeros(x.shape), torch.ones(x.shape)
        for k in range(n):
            a, b = b, ((2 * k + 1) * x * b - k * a) / (k + 1)
        return b


@legendre.mistake("value", FLOAT32_AND_BACK)
class float32_and_back(LegendreNew):
    @staticmethod
    def forward(x, n):
        return _value(x.float(), n).to(x.dtype)


@legendre.mistake(
    "value",
    "Your loop writes the next polynomial into the tensor of the one before the last. The first of these is x itself: from "
    "the third step on the caller's x is overwritten, and your recurrence goes on with wrong numbers. Make new tensors.",
)
class writes_into_input(LegendreNew):
    @staticmethod
    def forward(x, n):
        a, b = torch.ones_like(x), x
        for k in range(1, n):
            a.copy_(((2 * k + 1) * x * b - k * a) / (k + 1))
            a, b = b, a
        return b.clone() if n else a


@legendre.mistake(
    "value",
    "You call torch's own Legendre polynomial, which this task forbids (and which has no derivative). Make P_n by Bonnet's "
    "recurrence.",
)
class torchs_own(LegendreNew):
    @staticmethod
    def forward(x, n):
        wide = x.float() if x.element_size() < 4 else x
        return torch.special.legendre_polynomial_p(wide, n).to(x.dtype)


@legendre.mistake(
    "value",
    "save_for_backward takes tensors, and your call hands it n as well (`*inputs` has both arguments). Save x, and keep n as "
    "ctx.n.",
)
class number_saved(LegendreNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


@legendre.mistake("gradient", "Your gradient is P_n'(x) alone: the upstream gradient is missing. Multiply by it.")
class upstream_ignored(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return _slope(x, ctx.n), None


@legendre.mistake("gradient", NOTHING_RETURNED)
class nothing_returned(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        return None, None


@legendre.mistake(
    "gradient", "Your slope is n P_{n-1}, the power rule of x^n. P_n is a sum of powers; the rule does not hold for it."
)
class power_rule(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.n * _value(x, max(ctx.n - 1, 0)), None


@legendre.mistake(
    "gradient",
    "Your slope is n U_{n-1}, the chapter's for the Chebyshev polynomial T_n. For P_n it is P'_{n+1} = P'_{n-1} + (2n + 1) P_n.",
)
class chebyshev_slope(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        u, after = torch.zeros_like(x), torch.ones_like(x)
        for _ in range(ctx.n):
            u, after = after, 2 * x * after - u
        return g * ctx.n * u, None


@legendre.mistake(
    "gradient",
    "Your slope adds (2k + 1) P_k over all k below n. The identity P'_{k+1} = P'_{k-1} + (2k + 1) P_k goes in steps of two: "
    "k = n - 1, n - 3, ...",
)
class every_order_summed(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * sum(((2 * k + 1) * _value(x, k) for k in range(ctx.n)), torch.zeros_like(x)), None


@legendre.mistake(
    "gradient",
    "Your slope follows the recurrence of the values alone. The product x P_k has two factors that depend on x: its "
    "derivative is P_k + x P_k'.",
)
class product_rule_forgotten(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        (x,), n = ctx.saved_tensors, ctx.n
        a, b = torch.zeros_like(x), torch.ones_like(x)  # P_0', P_1'
        for k in range(2, n + 1):
            a, b = b, ((2 * k - 1) * x * b - (k - 1) * a) / k
        return g * (b if n else a), None


@legendre.mistake("gradient", "Your gradient is that of P_{n-1}: the loop in backward makes one step too few.")
class slope_one_step_too_few(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * _slope(x, max(ctx.n - 1, 0)), None


@legendre.mistake(
    "gradient",
    "At n = 0 your backward returns None for x. P_0 does not change with x: its gradient is zeros, of the shape of x.",
)
class none_at_zero_order(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (g * _slope(x, ctx.n) if ctx.n else None), None


@legendre.mistake(
    "gradient", "Your backward returns one gradient; forward has two arguments. Return None in the place of n."
)
class none_for_n_forgotten(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * _slope(x, ctx.n)


@legendre.mistake("gradient", NO_FUNCTION)
def no_function(x, n):
    return _value(x, n) + 0 * x


def _quotient(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Numerator and denominator of P_n' (DLMF 14.10.5)."""
    return n * (_value(x, max(n - 1, 0)) - x * _value(x, n)), 1 - x * x


@legendre.mistake(
    "ends",
    "Your slope divides by 1 - x^2, which is 0/0 at x = -1 and 1: nan there, although P_n' is finite, and digits are lost "
    "nearby. Use an identity without a division: P'_{n+1} = P'_{n-1} + (2n + 1) P_n.",
)
class divides_at_ends(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        above, below = _quotient(ctx.saved_tensors[0], ctx.n)
        return g * above / below, None


@legendre.mistake(
    "ends",
    "You replace nan by 0. The nan came from 0/0 at x = -1 and 1, where the slope is n (n + 1) / 2 up to sign: use an "
    "identity without a division.",
)
class nan_replaced(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        above, below = _quotient(ctx.saved_tensors[0], ctx.n)
        return g * torch.nan_to_num(above / below), None


@legendre.mistake(
    "ends",
    "You put the right slope in at exactly x = -1 and 1 and divide by 1 - x^2 elsewhere. Close to the ends the quotient has "
    "lost its digits, and the second derivative at the ends is wrong. Use an identity without a division.",
)
class ends_patched(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        (x,), n = ctx.saved_tensors, ctx.n
        above, below = _quotient(x, n)
        at_end = x.abs() == 1
        slope = torch.where(at_end, x ** (n + 1) * n * (n + 1) / 2, above / torch.where(at_end, 1, below))
        return g * slope, None


@legendre.mistake(
    "second_order",
    "Your first derivative is right and your second is wrong: what you saved (P_n', lower orders or a copy of x) was computed in "
    "forward or setup_context and is a constant to torch. Save x itself, and compute from it in backward.",
)
class saves_derivative(LegendreNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(_slope(*inputs))

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0], None


@legendre.mistake(
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


@legendre.mistake(
    "second_order",
    "Your first derivative is right and your second is wrong: x is cut out of the graph of the gradient, by detach or .data where "
    "it is saved or where it is used. Save x itself, and use it as it comes back.",
)
class detached(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        return g * _slope(ctx.saved_tensors[0].detach(), ctx.n), None


@legendre.mistake(
    "second_order",
    "At exactly x = 0 your second derivative is wrong: |x| and sign(x) have the derivative 0 there. The recurrences hold for x of "
    "either sign; no symmetry is needed.",
)
class by_symmetry(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = _slope(x.abs(), ctx.n)
        return g * (slope if ctx.n % 2 else slope * torch.sign(x)), None


@legendre.mistake("second_order", CUT_OFF)
class not_differentiable_twice(LegendreNew):
    @staticmethod
    @once
    def backward(ctx, g):
        return g * _slope(ctx.saved_tensors[0], ctx.n), None


@legendre.mistake(
    "contract",
    "Your backward calls torch.autograd on a second run of the loop. The numbers are right; the task is to write the "
    "derivative yourself, by a recurrence.",
)
class autograd_in_backward(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        (x,), again = ctx.saved_tensors, torch.is_grad_enabled()
        with torch.enable_grad():
            x = x if x.requires_grad else x.detach().requires_grad_()
            return *torch.autograd.grad(_value(x, ctx.n) + 0 * x, x, g, create_graph=again), None


@legendre.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(LegendreNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        g *= _slope(x, ctx.n)
        return g, None


@legendre.mistake(
    "contract",
    "At n = 1 your forward returns x itself, so the output is the caller's tensor: changing one in place changes the other. "
    "Return a new tensor (x.clone()).",
)
class returns_its_input(LegendreNew):
    @staticmethod
    def forward(x, n):
        return x if n == 1 else _value(x, n)


@legendre.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(LegendreNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.n = inputs

    @staticmethod
    def backward(ctx, g):
        return g * _slope(ctx.x, ctx.n), None


@legendre.mistake(
    "contract",
    "You keep n outside ctx (on the class, or in a global): a second call with another n overwrites it before the first one's "
    "backward. Use ctx.n.",
)
class order_kept_outside(Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        GLOBAL["n"] = n
        return _value(x, n)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * _slope(x, GLOBAL["n"]), None


# --- fit_sine ---------------------------------------------------------------------------------------------------------

START = (0.0, -1.0, 0.0, 0.3)
FIT_NAMES = ("a", "b", "c", "d", "loss")


def narrow_numbers(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """All numbers nearly right, and not to the digits of float64."""
    if [*map(type, yours.numbers)] != [float] * len(expected.numbers):
        return None
    pairs = [*zip(yours.numbers, expected.numbers, strict=True)]
    off = [abs(a - b) / max(abs(b), 1e-3) for a, b in pairs]
    if not 1e-9 < max(off) < 1e-6:
        return None
    text = (
        "Your numbers are right to about seven digits. The text wants float64 throughout: torch.linspace and torch.tensor "
        "make float32 unless they are given a dtype. Or something small is added to the plain step."
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


def _data(points: int = 2000, end: float = math.pi) -> tuple[Tensor, Tensor]:
    x = torch.linspace(-end, end, points, dtype=DOUBLE)
    return x, torch.sin(x)


def _loss(parameters: Tensor, data: tuple[Tensor, Tensor], degree: int = 3) -> Tensor:
    a, b, c, d = parameters
    x, y = data
    return (a + b * Legendre.apply(c + d * x, degree) - y).square().sum()


def _fit(steps: int, lr: float, start=START, loss=_loss, data=None, **options) -> tuple[list[float], list[float]]:
    """The parameters at the end and the losses before each update, by torch.optim.SGD with `options`."""
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


def _right_fit(steps: int, lr: float) -> tuple[float, ...]:
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
    return draw.between(2e-6, 4.5e-6).item()


fit_sine = Task(
    "fit_sine",
    "fit_sine(steps, lr)",
    _right_fit,
    (
        Check(
            "start",
            1,
            "one step: the loss at the start, and the four parameters after one update",
            "From the printed start come the loss, its four gradients at one point, then the update; returned is (a, b, c, d, loss).",
            lambda d: [d.case("one step", 1, _rate(d), order=0, provide=("Legendre",))],
            FIT,
        ),
        Check(
            "steps",
            3,
            "after several steps: the parameters, and the loss of the last step before its update",
            "Every step is made, and like the first: from the new parameters, with new gradients. Every call begins anew.",
            lambda d: [
                d.case(f"{n} steps", n, rate, order=0, provide=("Legendre",), keywords=("steps", "lr"))
                for n, rate in ((2, _rate(d)), (8, _rate(d)), (6, 1e-10))
            ],
            FIT,
        ),
    ),
)


@fit_sine.solution
def plain_loop(steps, lr):
    """Four leaves, updated in place."""
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


@fit_sine.solution
def by_optimizer(steps, lr):
    """torch.optim.SGD."""
    parameters, losses = _fit(steps, lr)
    return (*parameters, losses[-1])


@fit_sine.solution
def by_grad(steps, lr):
    """One vector of parameters, a new one in every step."""
    data, p = _data(), torch.tensor(START, dtype=DOUBLE)
    for _ in range(steps):
        p.requires_grad_()
        loss = _loss(p, data)
        (g,) = grad(loss, p)
        p = (p - lr * g).detach()
    return (*p.tolist(), loss.item())


@fit_sine.solution
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


@fit_sine.solution
def without_autograd(steps, lr):
    """The four gradients by the chain rule."""
    return _right_fit(steps, lr)


@fit_sine.mistake(
    "start",
    "Your loss is the mean of the squared errors. The text asks for their sum, and the rates are chosen for it.",
)
def mean_for_sum(steps, lr):
    parameters, losses = _fit(steps, lr, loss=lambda p, data: _loss(p, data) / 2000)
    return (*parameters, losses[-1])


@fit_sine.mistake(
    "start", "Your loss is half the sum of the squared errors, and so is every gradient. Leave the factor out."
)
def halved(steps, lr):
    parameters, losses = _fit(steps, lr, loss=lambda p, data: 0.5 * _loss(p, data))
    return (*parameters, losses[-1])


@fit_sine.mistake(
    "start",
    "The loss you return is computed again after the final update. The one that is asked for is the loss of the last step, "
    "before its update: the number that the loop has at hand.",
)
def loss_after_the_update(steps, lr):
    parameters, _ = _fit(steps, lr)
    return (*parameters, _fit(steps + 1, lr)[1][-1])


@fit_sine.mistake(
    "steps", "The loss you return is that of the first step. Return the one of the last, before its update."
)
def loss_of_the_first_step(steps, lr):
    parameters, losses = _fit(steps, lr)
    return (*parameters, losses[0])


@fit_sine.mistake(
    "steps", "The loss you return is the sum over all steps. Return the one of the last, before its update."
)
def losses_summed(steps, lr):
    parameters, losses = _fit(steps, lr)
    return (*parameters, sum(losses))


@fit_sine.mistake("start", "You make one step too many. range(steps) makes exactly `steps`.")
def one_step_too_many(steps, lr):
    parameters, losses = _fit(steps + 1, lr)
    return (*parameters, losses[-1])


@fit_sine.mistake(
    "start",
    "The last update is missing: you return the parameters before it. The loss belongs before the final update, the "
    "parameters after it.",
)
def last_update_missing(steps, lr):
    return (*_fit(steps - 1, lr)[0], _fit(steps, lr)[1][-1])


@fit_sine.mistake(
    "steps",
    "The gradients of earlier steps are still in .grad, for backward adds to what is there. Set .grad to None in every step.",
)
def gradients_accumulate(steps, lr):
    parameters, losses = _fit(steps, lr, momentum=1.0)
    return (*parameters, losses[-1])


@fit_sine.mistake(
    "steps",
    "You stop before the last step, when the loss hardly changes any more. The text asks for `steps` steps, however small they are.",
)
def stops_early(steps, lr):
    losses = _fit(steps, lr)[1]
    made = next((i + 1 for i in range(1, steps) if abs(losses[i - 1] - losses[i]) < 1e-2), steps)
    return (*_fit(made, lr)[0], losses[made - 1])


@fit_sine.mistake("start", "You return c and d in each other's place. The order is a, b, c, d, loss.")
def c_and_d_swapped(steps, lr):
    (a, b, c, d), losses = _fit(steps, lr)
    return a, b, d, c, losses[-1]


@fit_sine.mistake(
    "steps", "You use momentum; the text asks for plain gradient descent: parameter minus lr times gradient."
)
def with_momentum(steps, lr):
    parameters, losses = _fit(steps, lr, momentum=0.9)
    return (*parameters, losses[-1])


@fit_sine.mistake("start", "Your update goes uphill: subtract lr times the gradient, do not add it.")
def uphill(steps, lr):
    parameters, losses = _fit(steps, lr, maximize=True)
    return (*parameters, losses[-1])


@fit_sine.mistake("start", "You use Adam; the text asks for plain gradient descent: parameter minus lr times gradient.")
def with_adam(steps, lr):
    data, p = _data(), torch.tensor(START, dtype=DOUBLE, requires_grad=True)
    optimizer = torch.optim.Adam([p], lr=lr)
    for _ in range(steps):
        loss = _loss(p, data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return *p.tolist(), loss.item()


@fit_sine.mistake("start", "Your update ignores lr and takes 5e-6 whatever is asked for: the rate is an argument.")
def rate_ignored(steps, lr):
    parameters, losses = _fit(steps, 5e-6)
    return (*parameters, losses[-1])


@fit_sine.mistake(
    "start", "You return the values that the text quotes for 2000 steps. Run the fit, for the steps and the rate given."
)
def values_quoted(steps, lr):
    return 0.0, -2.2085, 0.0, 0.2555, 8.9436


@fit_sine.mistake("start", "You start from b = 1. The text starts from (a, b, c, d) = (0, -1, 0, 0.3).")
def starts_at_plus_one(steps, lr):
    parameters, losses = _fit(steps, lr, start=(0.0, 1.0, 0.0, 0.3))
    return (*parameters, losses[-1])


@fit_sine.mistake("start", "Your polynomial is P_2. The fit uses P_3: Legendre.apply(c + d * x, 3).")
def second_polynomial(steps, lr):
    parameters, losses = _fit(steps, lr, loss=lambda p, data: _loss(p, data, 2))
    return (*parameters, losses[-1])


@fit_sine.mistake(
    "start", "Your points leave out the right end, as arange does. linspace(-pi, pi, 2000) includes both ends."
)
def end_left_out(steps, lr):
    x = torch.arange(2000, dtype=DOUBLE) / 2000 * 2 * math.pi - math.pi
    parameters, losses = _fit(steps, lr, data=(x, torch.sin(x)))
    return (*parameters, losses[-1])


@fit_sine.mistake("start", "Your points go from -1 to 1. The sine is to be fitted from -pi to pi.")
def other_interval(steps, lr):
    parameters, losses = _fit(steps, lr, data=_data(end=1.0))
    return (*parameters, losses[-1])


@fit_sine.mistake("start", "You return the loss first. The order is a, b, c, d, loss.")
def loss_first(steps, lr):
    parameters, losses = _fit(steps, lr)
    return losses[-1], *parameters


@fit_sine.mistake("start", "You return tensors. Five Python floats are asked for: take .item() of each.")
def tensors_returned(steps, lr):
    parameters, losses = _fit(steps, lr)
    return tuple(torch.tensor(v, dtype=DOUBLE) for v in (*parameters, losses[-1]))


@fit_sine.mistake(
    "start",
    "You take .item() of the loss and then need its gradient: a Python float has none. Call backward on the tensor, and take "
    ".item() for what you return.",
)
def number_before_backward(steps, lr):
    data, p = _data(), torch.tensor(START, dtype=DOUBLE, requires_grad=True)
    for _ in range(steps):
        loss = _loss(p, data).item()
        loss.backward()
    return *p.tolist(), loss


@fit_sine.mistake(
    "start",
    "Your update changes a leaf that requires a gradient while torch records it, which torch refuses. Put the update under "
    "torch.no_grad().",
)
def update_recorded(steps, lr):
    data, p = _data(), torch.tensor(START, dtype=DOUBLE, requires_grad=True)
    for _ in range(steps):
        loss = _loss(p, data)
        loss.backward()
        p -= lr * p.grad
        p.grad = None
    return *p.tolist(), loss.item()


@fit_sine.mistake("start", "Your d stays where it starts. All four parameters are updated.")
def one_parameter_fixed(steps, lr):
    parameters, losses = _fit(steps, lr, loss=lambda p, data: _loss((*p[:3], p[3].detach()), data))
    return (*parameters, losses[-1])


@fit_sine.mistake(
    "steps",
    "You update the parameters one after the other, each with a loss of its own. A step takes all gradients at the same point, "
    "and then updates.",
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


@fit_sine.mistake(
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


@fit_sine.mistake(
    "steps",
    "`p = p - lr * p.grad` under no_grad makes a new tensor that requires no gradient, so the second step has nothing to "
    "differentiate. Change the parameter in place (`p -= ...`), or call requires_grad_() on the new one.",
)
def rebinds_parameters(steps, lr):
    data, p = _data(), torch.tensor(START, dtype=DOUBLE, requires_grad=True)
    for _ in range(steps):
        loss = _loss(p, data)
        loss.backward()
        with torch.no_grad():
            p = p - lr * p.grad
    return *p.tolist(), loss.item()


# --- hvp --------------------------------------------------------------------------------------------------------------

LIBRARY = (
    *(f"torch.autograd.functional.{name}" for name in ("hvp", "vhp", "hessian", "jacobian")),
    "torch.func.hessian",
)
NO_LIBRARY = look.Forbids(
    "H v is to be made by two backward passes of yours: hvp, vhp, hessian and jacobian of torch.autograd.functional, and "
    "torch.func.hessian, are forbidden.",
    paths=(*LIBRARY, "functorch.hessian"),
)


def leaves_gradients(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Nobody wrote into the .grad of a parameter that f uses."""
    if dict(yours.tally).get("gradients_accumulated"):
        text = "Your code changes the .grad of a parameter that f uses; it belongs to the caller."
        return Finding("counts", text, {"case": look.describe(call, case)})
    return None


DIFFERENCE = _precise("they come from a difference of two gradients, which is not exact")
LOOKS = (look.exists, look.runs, look.returns, look.shape, look.dtype, DIFFERENCE, look.value)


def zeros_not_none(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """What autograd gives where there is no path is None, and is meant as zeros."""
    if yours.kind == "NoneType":
        text = (
            "Your function returns None: where there is no path to x, allow_unused=True gives None in place of zeros."
        )
        return Finding("returns", text, {"case": look.describe(call, case)})
    return None


def _asked(d: Draw, name: str, f: str, x: Tensor, v: Tensor | None = None, requires: bool = False) -> Case:
    """hvp(f, x, v), the gradient flag of x as given."""
    v = d.normal(*x.shape, dtype=x.dtype) if v is None else v
    return d.case(name, Helper(f), x, v, order=0, requires=(False, requires, False), deny=LIBRARY)


def _values(d: Draw) -> list[Case]:
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
    ]


def _second_of(f, x: Tensor, v: Tensor) -> Tensor:
    """Reverse over reverse."""
    x = x.detach().requires_grad_()
    (g,) = grad(f(x), x, create_graph=True)
    if not g.requires_grad:
        return torch.zeros_like(x)
    return grad(g, x, v, materialize_grads=True)[0]


hvp = Task(
    "hvp",
    "hvp(f, x, v)",
    _second_of,
    (
        Check(
            "value",
            3,
            "the result is the Hessian of f at x times v, for x of any shape and dtype",
            "Newton steps and curvature estimates rest on these numbers.",
            _values,
            LOOKS,
        ),
        Check(
            "linear",
            1,
            "zeros where f is linear in x or does not depend on a part of it",
            "A loss may be linear in a layer, and then its gradient has no graph, or none that leads to x.",
            lambda d: [
                _asked(d, "f linear", "linear", d.sides(3)),
                _asked(d, "f linear, x requires a gradient", "linear", d.sides(2, 2), requires=True),
                _asked(d, "f linear, a parameter its factor", "weighted", d.sides(3)),
                _asked(d, "f linear, x float32 and 0-d", "weighted", d.sides(dtype=SINGLE)),
                _asked(d, "every second element of x used", "partly", d.sides(2, 3)),
            ],
            (*LOOKS[:2], zeros_not_none, *LOOKS[2:]),
        ),
        Check(
            "untouched",
            1,
            "x, v, x.requires_grad and every .grad are as before",
            "A product is asked for in the middle of a training step.",
            lambda d: [
                _asked(d, "x requires no gradient", "separate", d.sides(4)),
                _asked(d, "x requires a gradient and has one", "separate", d.sides(4), requires=True),
                _asked(d, "f has a parameter", "trained", d.sides(4)),
            ],
            (*LOOKS, look.untouched, leaves_gradients),
        ),
        Check(
            "cost",
            2,
            "as many backward passes for 30 elements as for 3, none batched; f may hold any Function",
            "A Hessian of a million parameters has 10^12 numbers; its product with a vector is one more gradient.",
            lambda d: [_asked(d, f"{n} elements", "counted", d.sides(n, reach=1)) for n in (3, 30)],
            (*LOOKS, look.counts(backward_passes=6)),
        ),
    ),
    forbids=NO_LIBRARY,
)


@hvp.solution
def through_the_gradient(f, x, v):
    """v as the upstream gradient of the gradient."""
    return _second_of(f, x, v)


@hvp.solution
def by_inner_product(f, x, v):
    """The gradient of <gradient, v>; a term that is 0 makes a path to x."""
    x = x.detach().clone().requires_grad_(True)
    (g,) = grad(f(x) + 0 * x.sum(), x, create_graph=True)
    total = (g * v).sum() + 0 * (x * x).sum()
    return grad(total, x)[0]


@hvp.solution
def by_checks(f, x, v):
    """Differentiates at a fresh leaf of the same values; allow_unused and a None."""
    at = torch.empty_like(x).copy_(x.detach()).requires_grad_()
    with torch.enable_grad():
        g = torch.autograd.grad(f(at), at, create_graph=True)[0]
        if g.grad_fn is None:
            return torch.zeros_like(x)
        result = torch.autograd.grad((g * v).sum(), at, allow_unused=True)[0]
    return torch.zeros_like(x) if result is None else result


@hvp.solution
def by_functional_vjp(f, x, v):
    """The vector-Jacobian product of the gradient by torch.autograd.functional."""

    def gradient(at):
        return grad(f(at), at, create_graph=True)[0]

    return torch.autograd.functional.vjp(gradient, x.detach(), v)[1]


def _gradient(f, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    (g,) = grad(f(x), x, create_graph=True)
    return x, g


def _through(g: Tensor, x: Tensor, v: Tensor) -> Tensor:
    """What the right one does with a gradient."""
    return grad(g, x, v, materialize_grads=True)[0] if g.requires_grad else torch.zeros_like(x)


@hvp.mistake(
    "value", "You return the gradient of f. Its product with the Hessian takes a second backward pass, with v."
)
def gradient_returned(f, x, v):
    return _gradient(f, x)[1].detach()


@hvp.mistake(
    "value",
    "You return gradient times v, element by element. v belongs to a second backward pass, through the gradient.",
)
def gradient_times_v(f, x, v):
    return _gradient(f, x)[1].detach() * v


@hvp.mistake(
    "value",
    "Your second backward pass starts from the sum of the gradient: that is H times ones. Give it v to start from.",
)
def v_ignored(f, x, v):
    x, g = _gradient(f, x)
    return _through(g, x, torch.ones_like(v))


@hvp.mistake(
    "value",
    "You differentiate the sum of the gradient and multiply by v afterwards: row sums of H times v, right for a diagonal H "
    "alone. v goes in before the second pass: differentiate (gradient * v).sum().",
)
def v_multiplied_afterwards(f, x, v):
    x, g = _gradient(f, x)
    return _through(g, x, torch.ones_like(v)) * v


@hvp.mistake(
    "value",
    "Your first pass leaves no graph: without create_graph=True the gradient is a constant, and a second pass has nothing to go "
    "through.",
)
def create_graph_missing(f, x, v):
    x = x.detach().requires_grad_()
    (g,) = grad(f(x), x)
    return grad((g * v).sum(), x)[0]


@hvp.mistake(
    "value",
    "You differentiate with respect to x as it comes, and x need not require a gradient. Work on x.detach().requires_grad_(), a "
    "tensor of its own.",
)
def x_as_it_comes(f, x, v):
    (g,) = grad(f(x), x, create_graph=True)
    return _through(g, x, v)


@hvp.mistake(
    "value",
    "Your result is zero everywhere: the gradient has lost its graph (create_graph=True is missing, or there is a detach), and "
    "your branch for a linear f takes it.",
)
def graph_lost(f, x, v):
    x = x.detach().requires_grad_()
    (g,) = grad(f(x), x)
    return _through(g, x, v)


@hvp.mistake(
    "value",
    "You build the product with @, torch.dot or mv, which want vectors: x has any shape. Multiply element by element and sum, or "
    "give v to the second pass as its upstream gradient.",
)
def vectors_alone(f, x, v):
    x, g = _gradient(f, x)
    return grad(torch.dot(g, v), x, materialize_grads=True)[0] if g.requires_grad else torch.zeros_like(x)


@hvp.mistake("value", "Your result is flat: it has one dimension whatever x has. Give it the shape of x.")
def flattened(f, x, v):
    return _second_of(f, x, v).flatten()


@hvp.mistake("value", FLOAT32_AND_BACK)
def float32_and_back(f, x, v):
    return _second_of(f, x.float(), v.float()).to(x.dtype)


@hvp.mistake(
    "value",
    "You flatten x before f sees it. f is a function of a tensor of the shape of x: x[0] may be a row to it. Differentiate at "
    "x.detach(), and flatten afterwards if you must.",
)
def f_sees_x_flat(f, x, v):
    return _second_of(f, x.flatten(), v.flatten()).reshape(x.shape)


@hvp.mistake(
    "value",
    "You convert x to float64 before f sees it. f may hold tensors of the dtype of x, and an operation between the two dtypes "
    "raises. Differentiate at x.detach().",
)
def f_sees_x_wide(f, x, v):
    return _second_of(f, x.double(), v.double()).to(x.dtype)


@hvp.mistake(
    "value",
    "You take the difference of two gradients at x + h v and x - h v. It is near for one h and one size of x and v, and far off "
    "in single precision or for a large v. Differentiate the gradient instead: that is exact.",
)
def finite_difference(f, x, v):
    def gradient(at):
        return _gradient(f, at)[1].detach()

    return (gradient(x + 1e-5 * v) - gradient(x - 1e-5 * v)) / 2e-5


@hvp.mistake(
    "value",
    "You call a function that this task forbids: hvp, vhp, hessian and jacobian of torch.autograd.functional, "
    "torch.func.hessian. Two calls of torch.autograd.grad do it.",
)
def library_called(f, x, v):
    return torch.autograd.functional.hvp(f, x, v)[1]


@hvp.mistake(
    "linear",
    "For a linear f the gradient is a constant that requires no gradient, and a second pass raises. The Hessian is 0: return "
    "zeros.",
)
def linear_raises(f, x, v):
    x, g = _gradient(f, x)
    return grad(g, x, v)[0]


@hvp.mistake(
    "linear",
    "allow_unused=True (or materialize_grads=True) serves an f whose gradient leads to a parameter and not to x. A gradient that "
    "is a constant has no graph at all, and the second pass raises: add 0 * x.sum(), or return zeros there.",
)
def constant_gradient_raises(f, x, v):
    x, g = _gradient(f, x)
    return grad(g, x, v, materialize_grads=True)[0]


@hvp.mistake(
    "linear",
    "You look whether the gradient requires a gradient, and it may, by way of a parameter, and still not depend on x: then the "
    "second pass raises. With allow_unused=True it gives None, which stands for zeros.",
)
def unused_raises(f, x, v):
    x, g = _gradient(f, x)
    return grad(g, x, v)[0] if g.requires_grad else torch.zeros_like(x)


@hvp.mistake(
    "linear",
    "Where the gradient does not depend on x your result is None (allow_unused=True). Return zeros of the shape of x.",
)
def none_returned(f, x, v):
    x, g = _gradient(f, x)
    return grad(g, x, v, allow_unused=True)[0] if g.requires_grad else None


@hvp.mistake(
    "linear",
    "Where the gradient does not depend on x your result is a single 0. It has the shape of x: torch.zeros_like(x).",
)
def single_zero(f, x, v):
    x, g = _gradient(f, x)
    result = grad(g, x, v, allow_unused=True)[0] if g.requires_grad else None
    return torch.zeros((), dtype=x.dtype) if result is None else result


@hvp.mistake(
    "untouched",
    "You call requires_grad_() on x itself, and the caller's tensor requires a gradient from then on. Work on x.detach(), which "
    "is a tensor of its own.",
)
def x_marked(f, x, v):
    x.requires_grad_()
    (g,) = grad(f(x), x, create_graph=True)
    return _through(g, x, v)


@hvp.mistake(
    "untouched",
    "You set x.grad to None, or to the new gradient: it belongs to the caller, who may be about to use it. Work on x.detach(), or "
    "with torch.autograd.grad, which writes into no .grad.",
)
def grad_of_x_replaced(f, x, v):
    at = x if x.requires_grad else x.detach().requires_grad_()
    at.grad = None
    f(at).backward(create_graph=True, inputs=[at])
    g, at.grad = at.grad, None
    result = _through(g, at, v)
    return result.detach()


@hvp.mistake(
    "untouched",
    "Your .backward() reaches everything that f uses: it adds to the .grad of its parameters. torch.autograd.grad differentiates "
    "with respect to x alone and writes into no .grad.",
)
def backward_called(f, x, v):
    x = x.detach().requires_grad_()
    f(x).backward(create_graph=True)
    g, x.grad = x.grad, None
    return _through(g, x, v).detach()


@hvp.mistake(
    "untouched",
    "You multiply v in place: the caller's v is overwritten. Make a new tensor.",
)
def writes_into_v(f, x, v):
    x, g = _gradient(f, x)
    result = _through(g, x, v.clone())
    v.mul_(g.detach())
    return result


@hvp.mistake(
    "cost",
    "You form the Hessian row by row, one backward pass for each element of x. H v takes two passes, whatever the size: the "
    "second is of (gradient * v).sum().",
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


@hvp.mistake(
    "cost",
    "You differentiate with torch.func (grad, vjp, jvp, jacrev, ...) or in forward mode. Those go through no Function of the older "
    "form, forward(ctx, x), and forward mode through none without a jvp. Two calls of torch.autograd.grad serve any f.",
)
def by_torch_func(f, x, v):
    return torch.func.grad(lambda at: (torch.func.grad(f)(at) * v).sum())(x.detach())


@hvp.mistake(
    "cost",
    "You form the Hessian in one batched pass (is_grads_batched, or vectorize=True): that takes the memory of the whole matrix, and "
    "not every Function can go backward for many rows at once. Two passes, each of one upstream gradient, serve any f.",
)
def rows_in_one_batch(f, x, v):
    x, g = _gradient(f, x)
    if not g.requires_grad or not x.numel():
        return torch.zeros_like(x)
    units = torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)
    h = grad(g, x, units, is_grads_batched=True, materialize_grads=True)[0]
    return (h.reshape(x.numel(), -1).t() @ v.reshape(-1)).reshape(x.shape)


# --- Chebyshev (the chapter's) ----------------------------------------------------------------------------------------


def _chebyshev(x: Tensor, n: int) -> Tensor:
    """T_n, T_{n+1} from T_{n-1}, T_n (DLMF 18.9.1)."""
    t, after = 1 + 0 * x, x
    for _ in range(n):
        t, after = after, 2 * x * after - t
    return t + 0 * x


chebyshev_task = Task(
    "Chebyshev",
    "Chebyshev.apply(x, n)",
    _chebyshev,
    (
        Check(
            "value",
            0,
            "the output is T_n(x) in every dtype, shape and layout",
            "Forward is what every later number rests on.",
            lambda d: (
                [d.case(f"n = {n}", _inputs(d)(4), n, order=0) for n in (0, 1, 2, 5)] + d.forms(_inputs(d), 3, order=0)
            ),
            FORWARD,
        ),
        Check(
            "gradient",
            0,
            "the gradient is the upstream gradient times n U_{n-1}(x), at x = -1 and 1 too",
            "Backward returns one gradient for each argument of forward.",
            lambda d: (
                [d.case(f"n = {n}", torch.cat([ENDS, _inputs(d)(4)]), n) for n in (0, 1, 2, 3, 5)]
                + d.forms(_inputs(d), 3)
            ),
            FIRST,
            lambda d: (torch.cat([ENDS, _inputs(d)(3)]), 4),
        ),
        Check(
            "second_order",
            0,
            "the gradient can be differentiated again, at x = -1 and 1 too",
            "A fit to a differential equation differentiates your backward.",
            lambda d: [d.case(f"n = {n}", torch.cat([ENDS, _inputs(d)(4)]), n, order=2) for n in (0, 1, 2, 3, 5)],
            SECOND,
            lambda d: (torch.cat([ENDS, _inputs(d)(3)]), 4),
            order=2,
        ),
    ),
)


@chebyshev_task.solution
class ChebyshevNew(Function):
    """In the form of chapter 4."""

    @staticmethod
    def forward(x, n):
        t, after = torch.ones_like(x), x.clone()
        for _ in range(n):
            t, after = after, 2 * x * after - t
        return t

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.n = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        u, after = torch.zeros_like(x), torch.ones_like(x)
        for _ in range(ctx.n):
            u, after = after, 2 * x * after - u
        return g * ctx.n * u, None


@chebyshev_task.mistake(
    "gradient",
    "Your slope divides by 1 - x^2, which is 0/0 at x = -1 and 1: nan there, although T_n'(+-1) is finite, n^2 up to sign. "
    "Use an identity without a division: T_n' = n U_{n-1}, by the recurrence of U.",
)
class divides_at_ends(ChebyshevNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        before, t = x, torch.ones_like(x)
        for _ in range(ctx.n):
            before, t = t, 2 * x * t - before
        return g * ctx.n * (before - x * t) / (1 - x * x), None


@chebyshev_task.mistake(
    "gradient",
    "Your slope is n T_{n-1}, the power rule of x^n; the slope of T_n is n U_{n-1}, whose recurrence starts with 1 and 2x. At "
    "n = 0 and 1 the two agree, so test larger n.",
)
class power_rule(ChebyshevNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        before, t = x, torch.ones_like(x)
        for _ in range(ctx.n):
            before, t = t, 2 * x * t - before
        return g * ctx.n * before, None


@chebyshev_task.mistake(
    "second_order",
    "Your first derivative is right, but n U_{n-1} is computed in setup_context and saved: it comes back as a constant, and "
    "the second derivative loses T_n''. Save x and run the recurrence in backward.",
)
class saves_derivative(ChebyshevNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, n = inputs
        u, after = torch.zeros_like(x), torch.ones_like(x)
        for _ in range(n):
            u, after = after, 2 * x * after - u
        ctx.save_for_backward(n * u)

    @staticmethod
    def backward(ctx, g):
        (slope,) = ctx.saved_tensors
        return g * slope, None


@chebyshev_task.mistake(
    "second_order",
    "Your backward is marked once_differentiable, so its result has no path back to x: second derivatives are silently 0 or "
    "incomplete, and an error comes only from a .backward() that walks the whole graph. Leave it out: your recurrence is made "
    "of differentiable operations.",
)
class once_differentiable(ChebyshevNew):
    @staticmethod
    @once
    def backward(ctx, g):
        return ChebyshevNew.backward(ctx, g)


TASKS = (legendre, fit_sine, hvp)
CHAPTER = (chebyshev_task,)
