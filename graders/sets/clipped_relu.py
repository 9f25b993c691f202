"""Set 05: MulConstant, ClippedReLU, PACT, clip_by_norm; and the chapter's HardTanh and SymmetricClip."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.task import DOUBLE, DTYPES, HALF, MASKS, SINGLE, Check, Draw, Task
from graders.judge.wording import (
    CUT_OFF,
    FLOAT32,
    FLOAT32_AND_BACK,
    KEPT_AS_ATTRIBUTE,
    KEPT_OUTSIDE,
    NO_FUNCTION,
    UPSTREAM_SUMMED,
    VIEW_NEEDED,
    WRITES_INTO_UPSTREAM,
)

EDGE_BY_TOLERANCE = (
    "You compare with an edge by a tolerance (isclose, or an epsilon), so x that lies beside it counts as on it. An edge is one "
    "number: compare with <, <=, > and >=."
)
FLOAT32_IN_PLACE = (
    "For float32 input your forward changes the caller's x: x.float() makes no copy of what is float32 already, and what follows "
    "works in place. Leave the in-place operation out."
)
INFINITY = float("inf")
NAN = float("nan")
DENIED = MASKS  # torch's own backwards
GLOBAL: dict[str, object] = {}  # where the mistake `kept_outside_ctx` keeps things

FORWARD = (*look.FORWARD[:-1], look.precise, look.value)
BOTH = (*look.FIRST[:-1], look.dtype, look.precise, look.value, look.gradient)
BOTH_ORDERS = (*BOTH, look.second_order)


def _mannerly(looks: tuple[look.Look, ...]) -> tuple[look.Look, ...]:
    """The looks of a contract: what is changed in place comes before the numbers that it spoils."""
    return (*looks[:4], look.untouched, *looks[4:], look.stateless, look.guarded, look.allowed)


def keeps_nan(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """Where the output should be nan, it is."""
    for a, b in zip(yours.outputs, expected.outputs, strict=True):
        if (wrong := b.isnan() & ~a.isnan()).any():
            index = tuple(wrong.nonzero()[0].tolist())
            text = f"Wrong value at index {index}, where x is nan: a nan that is hidden is found later, elsewhere."
            evidence = {"case": look.describe(call, case), "yours": look.number(a[index]), "expected": "nan"}
            return look.Finding("value", text, evidence)
    return None


def _regions(draw: Draw, low: float, high: float) -> Callable[..., Tensor]:
    """A sampler of numbers inside, above and below (low, high) in turn, away from both edges."""
    width = high - low

    def sample(*shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
        far = draw.between(0.1, 0.9, *shape) * width
        turn = torch.arange(far.numel()).reshape(shape) % 3
        return torch.where(turn == 0, low + far, torch.where(turn == 1, high + far, low - far)).to(dtype)

    return sample


# --- MulConstant ------------------------------------------------------------------------------------------------------


def _sides(draw: Draw) -> Callable[..., Tensor]:
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, dtype=dtype)


def _constants(draw: Draw, order: int) -> list[Case]:
    """Every sort of constant."""
    return [draw.case(f"c = {c}", draw.sides(4), c, order=order) for c in (0, 0.0, 1, -3, 1 / 3, -1000.0)]


mul = Task(
    "MulConstant",
    "MulConstant.apply(x, c)",
    lambda x, c: x * c,
    (
        Check(
            "value",
            1,
            "the output equals x * c for an int or float c, in every dtype, shape and layout",
            "Forward is what every later number rests on.",
            lambda d: [
                *d.forms(_sides(d), 2.5, order=0),
                *_constants(d, 0),
                d.case("c by keyword", d.sides(4), -0.5, order=0, keywords=("c",)),
            ],
            FORWARD,
        ),
        Check(
            "gradient",
            1,
            "the gradient equals torch's, zeros at c = 0, None for c, and gradcheck passes",
            "The vector-Jacobian product of x * c is the upstream gradient times c, one number for each element of x.",
            lambda d: [
                *_constants(d, 1),
                d.case("every size", d.scales(12), -7, upstream=d.scales(12)),
                d.case("zeros", torch.zeros(3, dtype=DOUBLE), -3),
                *d.forms(_sides(d), 2.5),
            ],
            BOTH,
            lambda d: (d.sides(4), -3),
        ),
        Check(
            "contract",
            1,
            "the gradient can be differentiated again; the caller's tensors stay untouched",
            "Tensors that your Function did not make belong to others.",
            lambda d: [
                d.case(f"c = {c}", d.sides(5, dtype=t), c, order=2, watch=("state", "overwrite", "trace"))
                for c, t in ((-3, DOUBLE), (0.5, SINGLE), (1, DOUBLE))
            ],
            _mannerly(BOTH_ORDERS),
            lambda d: (d.sides(3), 2.5),
            order=2,
        ),
    ),
    forbids=look.GRADIENT,
)


@mul.solution
class MulNew(Function):
    """In the form of chapter 1."""

    @staticmethod
    def forward(x, c):
        return x * c

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.c = inputs

    @staticmethod
    def backward(ctx, g):
        return g * ctx.c, None


@mul.solution
class MulOld(Function):
    """forward and setup_context in one; asks whether anybody wants the gradient."""

    @staticmethod
    def forward(ctx, x, c):
        ctx.constant = c
        return torch.mul(x, c)

    @staticmethod
    def backward(ctx, grad_output):
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output.mul(ctx.constant)
        return grad_x, None


@mul.solution
class MulSaved(Function):
    """The constant as a tensor of x's dtype, saved."""

    @staticmethod
    def forward(x, c):
        return x * torch.tensor(c, dtype=x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, c = inputs
        ctx.save_for_backward(torch.tensor(c, dtype=x.dtype))

    @staticmethod
    def backward(ctx, g):
        (c,) = ctx.saved_tensors
        return c * g, None


@mul.solution
class MulOfItself(MulNew):
    """Linear, so backward is the Function itself."""

    @staticmethod
    def backward(ctx, g):
        return MulOfItself.apply(g, ctx.c), None


@mul.solution
class MulRefusesTensors(MulNew):
    """As the chapter advises."""

    @staticmethod
    def forward(x, c):
        if isinstance(c, torch.Tensor):
            raise TypeError("c is a number")
        return c * x


@mul.mistake("gradient", "Your gradient is c alone: the upstream gradient is missing. Backward returns g * c.")
class upstream_ignored(MulNew):
    @staticmethod
    def backward(ctx, g):
        return torch.full_like(g, ctx.c), None


@mul.mistake("gradient", "Your gradient is the upstream gradient unchanged; multiply it by c.")
class upstream_unchanged(MulNew):
    @staticmethod
    def backward(ctx, g):
        return g.clone(), None


@mul.mistake(
    "gradient",
    "Your gradient for x is g * x, which is what c would get if it were a tensor. The derivative of x * c with respect to x "
    "is c.",
)
class derivative_for_c(MulNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x, None


@mul.mistake("gradient", "Your backward multiplies by x as well: the derivative of x * c is c, whatever x is.")
class value_for_derivative(MulNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.c = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * ctx.c, None


@mul.mistake("gradient", "Your backward divides by c. That undoes the forward; the chain rule multiplies by c.")
class divided(MulNew):
    @staticmethod
    def backward(ctx, g):
        return g / ctx.c if ctx.c else torch.full_like(g, INFINITY), None


@mul.mistake(
    "gradient",
    "Your backward returns one gradient. Torch wants one for each argument of forward: return the gradient of x, and None for c.",
)
class none_forgotten(MulNew):
    @staticmethod
    def backward(ctx, g):
        return g * ctx.c


@mul.mistake(
    "gradient",
    "Your backward returns a tensor in c's place. c is a Python number and can have no gradient, not even zero: the second "
    "entry is None, the first the gradient of x.",
)
class gradient_for_c(MulNew):
    @staticmethod
    def backward(ctx, g):
        return g * ctx.c, torch.zeros(())


@mul.mistake(
    "gradient", "Your backward returns None for x (is a return statement missing?): x gets no gradient at all."
)
class nothing_returned(MulNew):
    @staticmethod
    def backward(ctx, g):
        return None, None


@mul.mistake("gradient", UPSTREAM_SUMMED)
class upstream_summed(MulNew):
    @staticmethod
    def backward(ctx, g):
        return (g.sum() * ctx.c).expand(g.shape), None


@mul.mistake(
    "gradient", "Your gradient has the wrong sign: it is the upstream gradient times c, c's own sign included."
)
class sign_flipped(MulNew):
    @staticmethod
    def backward(ctx, g):
        return -g * ctx.c, None


@mul.mistake(
    "gradient",
    "You find c again as output / input, which is 0 / 0 = nan where x is 0. Keep the number itself: ctx.c = c.",
)
class constant_from_the_output(MulNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * (y / x), None


@mul.mistake(
    "gradient",
    "At c = 0 your gradient is None, because 0 is false in Python (if ctx.c:). The gradient there is a tensor of zeros: "
    "multiply by c whatever it is.",
)
class none_at_zero(MulNew):
    @staticmethod
    def backward(ctx, g):
        return (g * ctx.c if ctx.c else None), None


@mul.mistake(
    "value",
    "save_for_backward takes tensors, and c is a number. Keep it as an attribute: ctx.c = c.",
)
class constant_saved_as_tensor(MulNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


@mul.mistake(
    "value",
    "In forward you make c a tensor without a dtype: torch.tensor(0.1) is float32. It loses half of the digits in float64, "
    "and for a 0-d float16 x the output becomes float32. Multiply by the number itself.",
)
class constant_in_float32(MulNew):
    @staticmethod
    def forward(x, c):
        return x * torch.tensor(float(c))


@mul.mistake("value", FLOAT32)
class float32_inside(MulNew):
    @staticmethod
    def forward(x, c):
        return x.float() * c


@mul.mistake("value", FLOAT32_AND_BACK)
class float32_and_back(MulNew):
    @staticmethod
    def forward(x, c):
        return (x.float() * c).to(x.dtype)


@mul.mistake(
    "value",
    "A c of 0 is taken for a missing one (c or 1) and replaced: in Python 0 is false. Use the argument as it is.",
)
class zero_replaced(MulNew):
    @staticmethod
    def forward(x, c):
        return x * (c or 1)


@mul.mistake(
    "value",
    "Your argument is not called c, so a caller who names it gets a TypeError. Use the names of the task's text.",
)
class argument_renamed(MulNew):
    @staticmethod
    def forward(x, constant):
        return x * constant


@mul.mistake("gradient", VIEW_NEEDED)
class view_needed(MulNew):
    @staticmethod
    def backward(ctx, g):
        return (g.view(-1) * ctx.c).view(g.shape), None


@mul.mistake(
    "gradient",
    "You round c before you keep it (round, or a dtype with few digits): the derivative of x * c is c with all of its digits. "
    "Keep the number itself: ctx.c = c.",
)
class constant_rounded(MulNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.c = round(inputs[1], 1)


@mul.mistake("contract", CUT_OFF)
class not_differentiable_twice(MulNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g * ctx.c, None


@mul.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(MulNew):
    @staticmethod
    def backward(ctx, g):
        return g.mul_(ctx.c), None


@mul.mistake(
    "contract",
    "Your forward works in place (x *= c): the caller's x is multiplied too. Return a new tensor.",
)
class writes_into_input(MulNew):
    @staticmethod
    def forward(x, c):
        x *= c
        return x


@mul.mistake("contract", FLOAT32_IN_PLACE)
class writes_into_float32(MulNew):
    @staticmethod
    def forward(x, c):
        return x * c if x.dtype == DOUBLE else x.float().mul_(c).clone().to(x.dtype)


@mul.mistake(
    "contract",
    "At c = 1 your forward returns x itself, so the output shares its memory: changing one in place changes the other. Return "
    "a new tensor always.",
)
class input_returned_at_one(MulNew):
    @staticmethod
    def forward(x, c):
        return x if c == 1 else x * c


@mul.mistake(
    "contract",
    "You keep c outside ctx (on the class, or in a global): a second call overwrites it before the first one's backward. Use "
    "an attribute of ctx.",
)
class kept_outside_ctx(MulNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        GLOBAL["c"] = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g * GLOBAL["c"], None


@mul.mistake("gradient", NO_FUNCTION)
def no_function(x, c):
    return x * c


# --- ClippedReLU, and the chapter's HardTanh --------------------------------------------------------------------------


def _edges(draw: Draw, low: float, high: float, *rest: object) -> list[Case]:
    """On both edges, in every dtype. A half holds 1.5 and 0.25, so there is no question which side they are on."""
    cases = []
    for dtype in DTYPES:
        x = torch.tensor([low - 1, low, (low + high) / 2, high, high + 1, -0.0], dtype=dtype)
        upstream = torch.tensor([1, 0.5, -0.25, 0.75, -0.125, 0.375], dtype=dtype)
        given = [r.to(dtype) if isinstance(r, Tensor) else r for r in rest]
        cases.append(draw.case("on the edges", x, *given, upstream=upstream))
    return cases


def _beside(draw: Draw, low: float) -> list[tuple[float, Tensor]]:
    """Bounds that are no round numbers, each with x so near the edges that comparing with a tolerance mistakes it."""
    high = 1 / 3
    near = [edge + side * max(abs(edge), 1e-3) * 1e-6 for edge in (low * high, high) for side in (-1, 1)]
    end, up = torch.tensor(1.5), torch.tensor(INFINITY)
    steps = [torch.nextafter(end, -up), torch.nextafter(end, up)]
    steps += [-s for s in steps] if low else [torch.tensor(1e-9), torch.tensor(-1e-9)]
    return [(high, torch.tensor(near, dtype=DOUBLE)), (1.5, torch.stack(steps))]


def _far(dtype: torch.dtype = DOUBLE) -> Tensor:
    return torch.tensor([-INFINITY, -1e4, 0.0, 1.0, 1e4, INFINITY], dtype=dtype)


def _bounded_checks(points: dict[str, float], low: float, name: str) -> tuple[Check, ...]:
    """The checks of a clip to [low * bound, bound], the bound a number called `name`."""

    def sample(draw: Draw, bound: float = 1.5) -> Callable[..., Tensor]:
        return _regions(draw, low * bound, bound)

    def gradient(d: Draw) -> list[Case]:
        return [
            d.case("below, inside and above", sample(d)(8), 1.5),
            *_edges(d, low * 1.5, 1.5, 1.5),
            *(d.case("beside the edges", x, bound) for bound, x in _beside(d, low)),
            d.case("every size", d.scales(12), 1.0, upstream=d.scales(12)),
            d.case("infinite x", _far(), 1.5),
            *d.forms(sample(d), 1.5)[len(DTYPES) :],  # the edges stand in every dtype already
        ]

    def numbers(d: Draw) -> list[Case]:
        return [
            *(d.case(f"{name} {c}", sample(d, c)(6), c) for c in (0.01, 1 / 3, 6.0)),
            d.case(f"{name} 1e20", torch.cat([d.sides(4), torch.tensor([3e20], dtype=DOUBLE)]), 1e20),
            d.case(f"float16, {name} 0.25", sample(d, 0.25)(6, dtype=HALF), 0.25),
            d.case(f"{name} 6, on the edges", torch.tensor([low * 6, 6.0], dtype=SINGLE), 6.0),
            d.case(f"{name} by keyword", sample(d, 0.3)(6), 0.3, keywords=(name,)),
        ]

    about_all = (
        ("value", "the output equals torch's in every dtype, shape and layout; nan stays nan",
         "Forward is what later numbers rest on.",
         lambda d: [
             *d.forms(sample(d), 1.5, order=0),
             d.case("every size", d.scales(12), 1.0, order=0),
             *(d.case("infinite x", _far(t), 1.5, order=0) for t in (HALF, DOUBLE)),
             d.case("nan among others", torch.tensor([NAN, 1.0, -1.0, NAN, 3.0], dtype=DOUBLE), 1.5, order=0),
         ],
         (*FORWARD, keeps_nan), None, 1),
        ("gradient", "the gradient equals torch's, at both edges too, and gradcheck passes away from them",
         "Optimisers see nothing of your Function but these numbers.",
         gradient, BOTH, lambda d: (sample(d)(6), 1.5), 1),
        (f"{name}s", f"every float above 0 is a {name}, by position or by keyword",
         f"The {name} is an argument: value and gradient have to follow it.",
         numbers, BOTH, None, 1),
        ("second_order", "the gradient can be differentiated again",
         "A gradient penalty differentiates your backward, with respect to the upstream gradient too.",
         lambda d: [d.case("below, inside and above", sample(d)(6), 1.5, order=2)],
         BOTH_ORDERS, lambda d: (sample(d)(5), 1.5), 2),
        ("contract", "the caller's tensors stay untouched; those that backward needs are saved",
         "Tensors that your Function did not make belong to others.",
         lambda d: [
             d.case("below, inside and above", sample(d)(6), 1.5, watch=("state", "overwrite", "trace"), deny=DENIED,
                    between=(sample(d, 0.7)(6).roll(1), 0.1)),
             d.case("inside alone", sample(d)(3)[:1], 1.5, watch=("overwrite",)),
             d.case("float32 input", sample(d)(6, dtype=SINGLE), 1.5),
         ],
         _mannerly(BOTH), None, 1),
    )  # fmt: skip
    return tuple(
        Check(name, points[name], about, why, cases, looks, gradcheck, order)
        for name, about, why, cases, looks, gradcheck, order in about_all
        if name in points
    )


def _clipped_relu(x: Tensor, clip: float) -> Tensor:
    return F.hardtanh(x, 0, clip)


clipped = Task(
    "ClippedReLU",
    "ClippedReLU.apply(x, clip)",
    _clipped_relu,
    _bounded_checks({"value": 1, "gradient": 2, "clips": 1, "second_order": 1, "contract": 1}, 0, "clip"),
    forbids=look.GRADIENT,
)


@clipped.solution
class ClippedNew(Function):
    """In the form of chapter 5."""

    @staticmethod
    def forward(x, clip):
        return x.clamp(0, clip)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.clip = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where((x > 0) & (x < ctx.clip), g, 0), None


@clipped.solution
class ClippedOld(Function):
    """Keeps a mask, in one forward."""

    @staticmethod
    def forward(ctx, x, clip):
        outside = (x <= 0) | (x >= clip)
        ctx.save_for_backward(outside)
        return F.hardtanh(x, 0.0, clip)

    @staticmethod
    def backward(ctx, grad_output):
        (outside,) = ctx.saved_tensors
        return grad_output.masked_fill(outside, 0), None


@clipped.solution
class ClippedByOutput(ClippedNew):
    """The output tells the regions apart as well as x does: inside they are equal."""

    @staticmethod
    def forward(x, clip):
        return torch.minimum(x.relu(), x.new_full((), clip))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.clip = torch.full_like(output, inputs[1])
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        inside = (y > 0).logical_and(y < ctx.clip)
        return g * inside, None


@clipped.solution
class ClippedByIndex(ClippedNew):
    """Copies, and writes into the copies."""

    @staticmethod
    def forward(x, clip):
        y = x.clone()
        y[x < 0] = 0
        y[x > clip] = clip
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        result = g.clone()
        result[x <= 0] = 0
        result[x >= ctx.clip] = 0
        return result, None


@clipped.solution
class ClippedTwice(ClippedNew):
    """Two clips, one after the other; refuses a tensor."""

    @staticmethod
    def forward(x, clip):
        if isinstance(clip, torch.Tensor) or clip <= 0:
            raise ValueError("clip is a number above 0")
        return x.clamp(min=0).clamp(max=clip)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        below = torch.where(x < ctx.clip, g, torch.zeros_like(g))
        return torch.where(x > 0, below, torch.zeros_like(g)), None


@clipped.mistake(
    "gradient",
    "Your gradient is the mask, 0 or 1: the upstream gradient is missing. Return the upstream gradient where 0 < x < clip, "
    "else 0.",
)
class upstream_ignored(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return ((x > 0) & (x < ctx.clip)).to(g.dtype), None


@clipped.mistake(
    "gradient",
    "Your gradient is the upstream gradient unchanged; outside 0 < x < clip the output is constant: return 0 there.",
)
class upstream_unchanged(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        return g.clone(), None


@clipped.mistake(
    "gradient",
    "Your gradient is ReLU's: above clip, where the output is constant, it is the upstream gradient instead of 0. Inputs that "
    "never exceed clip cannot show it.",
)
class upper_mask_missing(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, 0), None


@clipped.mistake(
    "gradient",
    "At exactly 0 and clip your gradient is the upstream gradient, as torch.clamp has it; F.hardtanh, which this operation "
    "follows, has 0 at both. Use > and <, not >= and <=.",
)
class edges_open(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where((x >= 0) & (x <= ctx.clip), g, 0), None


@clipped.mistake(
    "gradient",
    "At exactly x = clip your gradient is the upstream gradient; F.hardtanh has 0 there. Use x < clip, not x <= clip.",
)
class upper_edge_open(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where((x > 0) & (x <= ctx.clip), g, 0), None


@clipped.mistake(
    "gradient",
    "Your backward returns one gradient. Torch wants one for each argument of forward: return the gradient of x, and None for "
    "clip.",
)
class none_forgotten(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where((x > 0) & (x < ctx.clip), g, 0)


@clipped.mistake(
    "gradient",
    "Your backward returns a gradient for clip, which is a Python number and can have none. Return None in its place; a clip "
    "that learns is the next task.",
)
class gradient_for_the_clip(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where((x > 0) & (x < ctx.clip), g, 0), torch.where(x >= ctx.clip, g, 0).sum()


@clipped.mistake(
    "gradient",
    "Your gradient is written into torch.zeros(shape), which is float32 whatever x is. Use torch.zeros_like(g), or torch.where.",
)
class buffer_in_float32(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        result, inside = torch.zeros(g.shape), (x > 0) & (x < ctx.clip)
        result[inside] = g[inside]
        return result, None


@clipped.mistake(
    "gradient", "Your backward returns None for x (is a return statement missing?): x gets no gradient at all."
)
class nothing_returned(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        return None, None


@clipped.mistake("gradient", EDGE_BY_TOLERANCE)
class edge_by_tolerance(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        edge = torch.isclose(x, torch.zeros_like(x)) | torch.isclose(x, torch.full_like(x, ctx.clip))
        return torch.where((x > 0) & (x < ctx.clip) & ~edge, g, 0), None


@clipped.mistake(
    "gradient",
    "You round clip before backward compares with it, so x between the two counts for the wrong side. Keep the number itself.",
)
class clip_rounded(ClippedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, clip = inputs
        ctx.clip = round(clip, 2)
        ctx.save_for_backward(x)


@clipped.mistake("gradient", VIEW_NEEDED)
class view_needed(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        return ClippedNew.backward(ctx, g.view(-1).view(g.shape))


@clipped.mistake("value", "Your forward is ReLU: nothing holds the output at clip. It returns clip where x > clip.")
class upper_clip_missing(ClippedNew):
    @staticmethod
    def forward(x, clip):
        return x.clamp(min=0)


@clipped.mistake(
    "value",
    "A nan in x becomes a number in your output: every comparison with nan is false, so nan falls into the last branch. "
    "torch.clamp keeps it; or let the branch that is left over be x itself.",
)
class nan_swallowed(ClippedNew):
    @staticmethod
    def forward(x, clip):
        return torch.where(x >= clip, clip, torch.where(x > 0, x, 0))


@clipped.mistake(
    "value",
    "For infinite x your output is nan: a formula with |x| - |x - clip| meets inf - inf. Compare instead of subtracting.",
)
class infinity_minus_infinity(ClippedNew):
    @staticmethod
    def forward(x, clip):
        return (x.abs() - (x - clip).abs() + clip) / 2


@clipped.mistake(
    "value",
    "save_for_backward takes tensors, and clip is a number. Keep it as an attribute: ctx.clip = clip.",
)
class clip_saved_as_tensor(ClippedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


@clipped.mistake(
    "value",
    "For a 0-d float16 or float64 input your output is float32: torch.tensor(clip) is float32 and decides the dtype among 0-d "
    "tensors. torch.clamp takes the number itself.",
)
class clip_as_float32(ClippedNew):
    @staticmethod
    def forward(x, clip):
        return torch.minimum(x.clamp(min=0), torch.tensor(clip))


@clipped.mistake(
    "value",
    "Your forward changes x in place and marks it dirty. x is the caller's, and torch refuses this for a leaf that requires a "
    "gradient. Return a new tensor.",
)
class marks_dirty(Function):
    @staticmethod
    def forward(ctx, x, clip):
        ctx.save_for_backward((x > 0) & (x < clip))
        ctx.mark_dirty(x)
        return x.clamp_(0, clip)

    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return g * inside, None


@clipped.mistake("value", FLOAT32)
class float32_inside(ClippedNew):
    @staticmethod
    def forward(x, clip):
        return x.float().clamp(0, clip)


@clipped.mistake("value", FLOAT32_AND_BACK)
class float32_and_back(ClippedNew):
    @staticmethod
    def forward(x, clip):
        return x.float().clamp(0, clip).to(x.dtype)


@clipped.mistake(
    "clips", "Your forward follows clip and your backward does not: it has a fixed number in its place. Use ctx.clip."
)
class clip_fixed_backward(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where((x > 0) & (x < 1.5), g, 0), None


@clipped.mistake(
    "clips",
    "Your argument is not called clip, so a caller who names it gets a TypeError. Use the names of the task's text.",
)
class argument_renamed(ClippedNew):
    @staticmethod
    def forward(x, c):
        return x.clamp(0, c)


@clipped.mistake(
    "clips",
    "You subtract from clip and subtract the rest again: next to a large clip, such as 1e20, a small x has no digits left and "
    "comes back as 0. Use torch.clamp.",
)
class difference_of_large_numbers(ClippedNew):
    @staticmethod
    def forward(x, clip):
        return clip - (clip - x.relu()).relu()


@clipped.mistake("second_order", CUT_OFF)
class not_differentiable_twice(ClippedNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where((x > 0) & (x < ctx.clip), g, 0), None


@clipped.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        g[(x <= 0) | (x >= ctx.clip)] = 0
        return g, None


@clipped.mistake(
    "contract",
    "Your forward works in place (clamp_, or x[x < 0] = 0): the caller's x is clipped too. Return a new tensor.",
)
class writes_into_input(ClippedNew):
    @staticmethod
    def forward(x, clip):
        return x.clamp_(0, clip)


@clipped.mistake(
    "contract",
    "Your backward works in place on the saved x. That tensor is the caller's: it changes under the caller's hands. Make a "
    "new tensor.",
)
class writes_into_saved(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        inside = (x > 0) & (x < ctx.clip)
        return x.zero_().add_(inside).mul_(g), None


@clipped.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(ClippedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.clip = inputs

    @staticmethod
    def backward(ctx, g):
        return torch.where((ctx.x > 0) & (ctx.x < ctx.clip), g, 0), None


@clipped.mistake("contract", FLOAT32_IN_PLACE)
class writes_into_float32(ClippedNew):
    @staticmethod
    def forward(x, clip):
        wide = x.clone() if x.dtype == DOUBLE else x.float()
        return wide.clamp_(0, clip).clone().to(x.dtype)


@clipped.mistake(
    "contract",
    "You keep clip outside ctx (on the class, or in a global): a second call overwrites it before the first one's backward. "
    "Use an attribute of ctx.",
)
class clip_outside_ctx(ClippedNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, GLOBAL["clip"] = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where((x > 0) & (x < GLOBAL["clip"]), g, 0), None


@clipped.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Function):
    @staticmethod
    def forward(ctx, x, clip):
        GLOBAL["x"], GLOBAL["clip"] = x, clip
        return x.clamp(0, clip)

    @staticmethod
    def backward(ctx, g):
        return torch.where((GLOBAL["x"] > 0) & (GLOBAL["x"] < GLOBAL["clip"]), g, 0), None


@clipped.mistake(
    "contract",
    "Your backward calls torch's own (hardtanh_backward). The task is to write it: the upstream gradient where 0 < x < clip.",
)
class torchs_own_backward(ClippedNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.ops.aten.hardtanh_backward(g, x, 0, ctx.clip), None


@clipped.mistake("gradient", NO_FUNCTION)
def no_function(x, clip):
    return F.hardtanh(x, 0, clip)


def _hard_tanh(x: Tensor, bound: float) -> Tensor:
    return F.hardtanh(x, -bound, bound)


hard_tanh = Task(
    "HardTanh",
    "HardTanh.apply(x, bound)",
    _hard_tanh,
    _bounded_checks(dict.fromkeys(["value", "gradient", "bounds", "second_order", "contract"], 1), -1, "bound"),
)


@hard_tanh.solution
class HardTanhNew(Function):
    """In the form of chapter 5."""

    @staticmethod
    def forward(x, bound):
        return x.clamp(-bound, bound)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.bound = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() >= ctx.bound, 0, g), None


@hard_tanh.mistake(
    "gradient",
    "Your gradient is right below -bound and inside, but above bound, where the output is constant, it is the upstream "
    "gradient instead of 0. Inputs that never exceed bound cannot show it.",
)
class upper_mask_missing(HardTanhNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x <= -ctx.bound, 0, g), None


@hard_tanh.mistake(
    "gradient",
    "At exactly -bound and bound your gradient is the upstream gradient, as torch.clamp has it; F.hardtanh, which this "
    "operation follows, has 0 there. Use >=, not >.",
)
class edges_open(HardTanhNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() > ctx.bound, 0, g), None


# --- PACT, and the chapter's SymmetricClip ----------------------------------------------------------------------------


def _alpha(value: float, *shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
    return torch.full(shape, value, dtype=dtype)


def _learnable_checks(points: dict[str, float], low: float) -> tuple[Check, ...]:
    """The checks of a clip to [low * alpha, alpha], alpha a tensor."""

    def sample(draw: Draw, alpha: float = 1.5) -> Callable[..., Tensor]:
        return _regions(draw, low * alpha, alpha)

    def forms(d: Draw, order: int) -> list[Case]:
        inputs = [(c.name, c.args[0]) for c in d.forms(sample(d), order=0)]
        return [d.case(name, x, _alpha(1.5, dtype=x.dtype), order=order) for name, x in inputs]

    def gradient(d: Draw) -> list[Case]:
        x = sample(d)(9)
        return [
            d.case("below, inside and above", x, _alpha(1.5)),
            *_edges(d, low * 1.5, 1.5, _alpha(1.5)),
            *(d.case("beside the edges", x, _alpha(bound, dtype=x.dtype)) for bound, x in _beside(d, low)),
            d.case("nothing at or above alpha", x.clamp(max=1.25), _alpha(1.5)),
            d.case("every size", d.scales(12), _alpha(1.0), upstream=d.scales(12)),
            d.case("a large alpha", torch.cat([d.sides(4), torch.tensor([3e20], dtype=DOUBLE)]), _alpha(1e20)),
            *forms(d, 1)[len(DTYPES) :],  # the edges stand in every dtype already
            d.case(
                "an expanded upstream gradient",
                sample(d)(2, 2, 3),
                _alpha(1.5),
                upstream=d.normal(2, 1, 3).expand(2, 2, 3),
            ),
        ]

    def shapes(d: Draw) -> list[Case]:
        x = sample(d)(2, 3)
        given = (("2-d", x, (1,)), ("0-d, above", x[0, 1].clone(), (1,)))
        given += (("1-d", x[0].clone(), (1, 1)), ("0-d, inside", x[0, 0].clone(), (1, 1)))
        return [
            *(d.case(f"alpha of shape {s}, x {what}", x, _alpha(1.5, *s)) for what, x, s in given),
            d.case("x empty, alpha of shape (1,)", sample(d)(0, 3), _alpha(1.5, 1)),
            d.case("float16, alpha of shape (1,)", x.half(), _alpha(1.5, 1, dtype=HALF)),
            d.case("alpha by keyword", x, _alpha(1.5), keywords=("alpha",)),
        ]

    def subsets(d: Draw) -> list[Case]:
        return [
            d.case(f"{name} requires a gradient", sample(d)(2, 3), _alpha(1.5, *s), requires=flags)
            for s in ((), (1,))
            for name, flags in (("x alone", (True, False)), ("alpha alone", (False, True)))
        ]

    about_all = (
        ("value", "the output equals torch.clamp's in every dtype, shape and layout, at infinite x too",
         "Forward is what later numbers rest on.",
         lambda d: [
             *forms(d, 0),
             d.case("every size", d.scales(12), _alpha(1.0), order=0),
             *(d.case("infinite x", _far(t), _alpha(1.5, dtype=t), order=0) for t in (HALF, DOUBLE)),
         ],
         FORWARD, None, 1),
        ("gradient", "x and alpha get what the text says, at both edges too, and gradcheck passes away from them",
         "Optimisers see nothing of your Function but these numbers, and alpha learns from its own alone.",
         gradient, BOTH, lambda d: (sample(d)(6), _alpha(1.5)), 1),
        ("shapes", "alpha of shape (), (1,) or (1, 1): the output has x's shape, and each gradient its input's",
         "A parameter of one element comes in several shapes.",
         shapes, BOTH, None, 1),
        ("subsets", "x alone, or alpha alone, may require a gradient",
         "A layer may be frozen, and the first layer's input never requires a gradient.",
         subsets, BOTH, None, 1),
        ("second_order", "the gradient can be differentiated again",
         "A gradient penalty differentiates your backward, with respect to the upstream gradient too.",
         lambda d: [
             d.case("below, inside and above", sample(d)(6), _alpha(1.5), order=2),
             d.case("alpha alone requires a gradient", sample(d)(6), _alpha(1.5, 1), order=2, requires=(False, True)),
         ],
         BOTH_ORDERS, lambda d: (sample(d)(6), _alpha(1.5)), 2),
        ("contract", "the caller's tensors stay untouched; those that backward needs are saved",
         "Tensors that your Function did not make belong to others.",
         lambda d: [
             d.case("below, inside and above", sample(d)(6), _alpha(1.5), watch=("state", "overwrite", "trace"),
                    deny=DENIED, between=(sample(d, 0.7)(6).roll(1), _alpha(0.7))),
             d.case("inside alone", sample(d)(3)[:1], _alpha(1.5), watch=("overwrite",)),
             d.case("float32 inputs", sample(d)(6, dtype=SINGLE), _alpha(1.5, dtype=SINGLE)),
         ],
         _mannerly(BOTH), None, 1),
    )  # fmt: skip
    return tuple(
        Check(name, points[name], about, why, cases, looks, gradcheck, order)
        for name, about, why, cases, looks, gradcheck, order in about_all
        if name in points
    )


def _pact(x: Tensor, alpha: Tensor) -> Tensor:
    """Choi et al. 2018, eq. 1, with the gradient of eq. 3 at its kinks."""
    bound = alpha.reshape(())
    above = x >= bound
    return torch.where(above, bound, torch.where((x > 0) & ~above, x, 0))


PACT_POINTS = dict.fromkeys(["value", "gradient", "shapes", "subsets", "second_order", "contract"], 1)
pact = Task("PACT", "PACT.apply(x, alpha)", _pact, _learnable_checks(PACT_POINTS, 0), forbids=look.GRADIENT)


@pact.solution
class PACTNew(Function):
    """In the form of chapter 5."""

    @staticmethod
    def forward(x, alpha):
        return x.clamp(torch.zeros_like(alpha).reshape(()), alpha.reshape(()))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        above = x >= alpha
        return torch.where((x > 0) & ~above, g, 0), torch.where(above, g, 0).sum().reshape(alpha.shape)


@pact.solution
class PACTOld(Function):
    """Keeps masks, asks who wants a gradient, multiplies."""

    @staticmethod
    def forward(ctx, x, alpha):
        inside, above = (x > 0) & (x < alpha), x >= alpha
        ctx.save_for_backward(inside.reshape(x.shape), above.reshape(x.shape))
        ctx.shape = alpha.shape
        return torch.minimum(x.relu(), alpha.reshape(()))

    @staticmethod
    def backward(ctx, grad_output):
        inside, above = ctx.saved_tensors
        grad_x = grad_alpha = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output * inside
        if ctx.needs_input_grad[1]:
            grad_alpha = (grad_output * above).sum().view(ctx.shape)
        return grad_x, grad_alpha


@pact.solution
class PACTByNumber(Function):
    """The bound as a number, which is a copy: nobody can change it. The gradient does not need more."""

    @staticmethod
    def forward(x, alpha):
        if alpha.item() <= 0:
            raise ValueError("alpha must be above 0")
        return F.hardtanh(x, 0.0, alpha.item())

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, alpha = inputs
        ctx.alpha, ctx.shape = alpha.item(), alpha.shape
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        to_x = g.masked_fill((x <= 0) | (x >= ctx.alpha), 0)
        return to_x, g.masked_fill(x < ctx.alpha, 0).sum().expand(ctx.shape)


@pact.solution
class PACTByOutput(Function):
    """Saves the output, which is alpha exactly where x is at or above it."""

    @staticmethod
    def forward(x, alpha):
        bound = alpha.reshape(())
        return torch.where(x < 0, torch.zeros_like(x), torch.where(x > bound, bound, x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx, g):
        alpha, y = ctx.saved_tensors
        full = y == alpha.reshape(())
        return torch.where((y > 0) & ~full, g, 0), (g * full).sum().reshape(alpha.shape)


@pact.mistake(
    "gradient",
    "Your gradients are counts and masks: the upstream gradient is missing. x gets it where 0 < x < alpha, alpha its sum over "
    "x >= alpha.",
)
class upstream_ignored(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        above = x >= alpha
        return ((x > 0) & ~above).to(g.dtype), above.to(g.dtype).sum().reshape(alpha.shape)


@pact.mistake(
    "gradient",
    "Your gradient for alpha counts the elements at or above alpha: the upstream gradient is missing. Sum the upstream "
    "gradient over them.",
)
class alpha_counts(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        above = x >= alpha
        return torch.where((x > 0) & ~above, g, 0), above.to(g.dtype).sum().reshape(alpha.shape)


@pact.mistake(
    "gradient",
    "You return None for alpha, which means zero: alpha is a tensor that learns, so save it and return its gradient, the sum "
    "of the upstream gradient over x >= alpha.",
)
class alpha_gets_none(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        return torch.where((x > 0) & (x < alpha), g, 0), None


@pact.mistake(
    "gradient",
    "Your gradient for alpha has the wrong sign: a larger alpha raises the output where x >= alpha, so its slope is +1.",
)
class alpha_sign_flipped(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        above = x >= alpha
        return torch.where((x > 0) & ~above, g, 0), -torch.where(above, g, 0).sum().reshape(alpha.shape)


@pact.mistake(
    "gradient",
    "Your gradient for alpha is a mean. Every element above alpha adds its upstream gradient to alpha's: take the sum.",
)
class alpha_averaged(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        above = x >= alpha
        mean = torch.where(above, g, 0).sum() / max(g.numel(), 1)
        return torch.where((x > 0) & ~above, g, 0), mean.reshape(alpha.shape)


@pact.mistake(
    "gradient",
    "Your gradient for alpha is a Python number (.item()). Torch wants a tensor: leave the sum as it is, in alpha's shape.",
)
class number_returned(PACTNew):
    @staticmethod
    def backward(ctx, g):
        to_x, to_alpha = PACTNew.backward(ctx, g)
        return to_x, to_alpha.item()


@pact.mistake(
    "gradient",
    "Above alpha your x gets the upstream gradient too. There the output is alpha: alpha gets all of it, and x nothing.",
)
class upper_mask_missing(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        return torch.where(x > 0, g, 0), torch.where(x >= alpha, g, 0).sum().reshape(alpha.shape)


@pact.mistake(
    "gradient",
    "On both edges you follow torch.clamp, which passes the upstream gradient to x there. By the text's rule x gets it where "
    "0 < x < alpha, and alpha where x >= alpha.",
)
class edges_open(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        return torch.where((x >= 0) & (x <= alpha), g, 0), torch.where(x > alpha, g, 0).sum().reshape(alpha.shape)


@pact.mistake(
    "gradient",
    "At exactly x = alpha you give the upstream gradient to x (x <= alpha), as torch.clamp does. By the paper's rule it goes to "
    "alpha: alpha sums over x >= alpha.",
)
class edge_to_x(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        above = x > alpha
        return torch.where((x > 0) & ~above, g, 0), torch.where(above, g, 0).sum().reshape(alpha.shape)


@pact.mistake(
    "gradient",
    "At exactly x = alpha nobody gets the upstream gradient in your backward (x > alpha and x < alpha). By the text's rule it "
    "goes to alpha: use x >= alpha.",
)
class edge_to_nobody(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        return torch.where((x > 0) & (x < alpha), g, 0), torch.where(x > alpha, g, 0).sum().reshape(alpha.shape)


@pact.mistake(
    "gradient",
    "Your backward returns one gradient. alpha is an argument too, and a tensor that learns: return two, for x and for alpha.",
)
class alpha_forgotten(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        return torch.where((x > 0) & (x < alpha), g, 0)


@pact.mistake(
    "gradient", "Your two gradients are in the wrong order: they come in the order of forward, x first, then alpha."
)
class order_reversed(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        above = x >= alpha
        return torch.where(above, g, 0).sum().reshape(alpha.shape), torch.where((x > 0) & ~above, g, 0)


@pact.mistake(
    "gradient",
    "Your backward returns None for x and for alpha (is a return statement missing?): neither gets a gradient.",
)
class nothing_returned(PACTNew):
    @staticmethod
    def backward(ctx, g):
        return None, None


@pact.mistake("value", "Your forward is ReLU: nothing holds the output at alpha.")
class upper_clip_missing(PACTNew):
    @staticmethod
    def forward(x, alpha):
        return x.relu()


@pact.mistake(
    "value",
    "At infinite x your output is nan: the paper's (|x| - |x - alpha| + alpha) / 2 is inf - inf there, and in float16 far out "
    "it has lost its digits. Clamp, or compare, instead of subtracting.",
)
class infinity_minus_infinity(PACTNew):
    @staticmethod
    def forward(x, alpha):
        bound = alpha.reshape(())
        return (x.abs() - (x - bound).abs() + bound) / 2


@pact.mistake("value", FLOAT32)
class float32_inside(PACTNew):
    @staticmethod
    def forward(x, alpha):
        bound = alpha.float().reshape(())
        return x.float().clamp(torch.zeros_like(bound), bound)


@pact.mistake("value", FLOAT32_AND_BACK)
class float32_and_back(PACTNew):
    @staticmethod
    def forward(x, alpha):
        bound = alpha.float().reshape(())
        return x.float().clamp(torch.zeros_like(bound), bound).to(x.dtype)


@pact.mistake(
    "value",
    "save_for_backward takes tensors, and alpha.item() is a number. Save alpha itself, or keep the number as an attribute of "
    "ctx.",
)
class number_saved(PACTNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, alpha = inputs
        ctx.save_for_backward(x, alpha.item())


@pact.mistake(
    "shapes",
    "For a 0-d x, or for alpha of shape (1, 1), your output has alpha's dimensions: clamp and minimum broadcast. Take alpha as "
    "a 0-d tensor, alpha.reshape(()), and the output has the shape of x.",
)
class shape_of_alpha(PACTNew):
    @staticmethod
    def forward(x, alpha):
        return torch.minimum(x.relu(), alpha)


@pact.mistake(
    "shapes",
    "Your gradient for alpha is 0-d, which torch refuses when alpha has the shape (1,): bring the sum to alpha's shape, by "
    "reshape(alpha.shape).",
)
class alpha_gradient_0d(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        above = x >= alpha
        return torch.where((x > 0) & ~above, g, 0).reshape(x.shape), torch.where(above, g, 0).sum()


@pact.mistake(
    "shapes",
    "Your gradient for alpha is not summed; the engine does it where the shapes allow, and refuses where alpha has more "
    "dimensions than x. Sum it, and bring it to alpha's shape.",
)
class alpha_unsummed(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        bound = alpha.reshape(())
        above = x >= bound
        return torch.where((x > 0) & ~above, g, 0), torch.where(above, g, 0)


@pact.mistake(
    "subsets",
    "Where x requires no gradient you return None for alpha as well. Ask ctx.needs_input_grad for each argument by itself: "
    "entry 0 is x's, entry 1 alpha's.",
)
class early_return(PACTNew):
    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None, None
        return PACTNew.backward(ctx, g)


@pact.mistake(
    "subsets",
    "You mix up the entries of ctx.needs_input_grad: entry 0 says whether x wants a gradient, entry 1 whether alpha does.",
)
class needs_mixed_up(PACTNew):
    @staticmethod
    def backward(ctx, g):
        to_x, to_alpha = PACTNew.backward(ctx, g)
        return (to_x if ctx.needs_input_grad[1] else None), (to_alpha if ctx.needs_input_grad[0] else None)


@pact.mistake(
    "subsets",
    "Where alpha requires no gradient your backward returns one gradient, and forward has two arguments: return None in "
    "alpha's place.",
)
class one_when_frozen(PACTNew):
    @staticmethod
    def backward(ctx, g):
        grads = PACTNew.backward(ctx, g)
        return grads if ctx.needs_input_grad[1] else grads[0]


@pact.mistake("gradient", EDGE_BY_TOLERANCE)
class edge_by_tolerance(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        bound = alpha.reshape(())
        above = (x >= bound) | torch.isclose(x, bound)
        return torch.where((x > 0) & ~above, g, 0), torch.where(above, g, 0).sum().reshape(alpha.shape)


@pact.mistake("gradient", VIEW_NEEDED)
class view_needed(PACTNew):
    @staticmethod
    def backward(ctx, g):
        return PACTNew.backward(ctx, g.view(-1).view(g.shape))


@pact.mistake("contract", FLOAT32_IN_PLACE)
class writes_into_float32(PACTNew):
    @staticmethod
    def forward(x, alpha):
        wide = x.clone() if x.dtype == DOUBLE else x.float()
        return wide.clamp_(0, alpha.item()).clone().to(x.dtype)


@pact.mistake(
    "gradient",
    "You subtract from alpha and subtract the rest again: next to a large alpha a small x has no digits left and comes back as 0. "
    "Clamp, or compare.",
)
class difference_of_large_numbers(PACTNew):
    @staticmethod
    def forward(x, alpha):
        bound = alpha.reshape(())
        return bound - (bound - x.relu()).relu()


@pact.mistake("second_order", CUT_OFF)
class not_differentiable_twice(PACTNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return PACTNew.backward(ctx, g)


@pact.mistake(
    "second_order",
    "Your gradient for alpha is made of a Python number (.item()) or detached, so it cannot be differentiated again. Sum with "
    "tensors, and leave the sum a tensor.",
)
class alpha_detached(PACTNew):
    @staticmethod
    def backward(ctx, g):
        to_x, to_alpha = PACTNew.backward(ctx, g)
        return to_x, to_alpha.detach()


@pact.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(PACTNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        to_alpha = torch.where(x >= alpha, g, 0).sum().reshape(alpha.shape)
        g[(x <= 0) | (x >= alpha)] = 0
        return g, to_alpha


@pact.mistake("contract", "Your forward works in place (clamp_): the caller's x is clipped too. Return a new tensor.")
class writes_into_input(PACTNew):
    @staticmethod
    def forward(x, alpha):
        bound = alpha.reshape(())
        return x.clamp_(torch.zeros_like(bound), bound)


@pact.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(PACTNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.alpha = inputs

    @staticmethod
    def backward(ctx, g):
        above = ctx.x >= ctx.alpha
        return torch.where((ctx.x > 0) & ~above, g, 0), torch.where(above, g, 0).sum().reshape(ctx.alpha.shape)


@pact.mistake(
    "contract",
    "You keep alpha as an attribute of ctx, where torch does not watch it: an optimiser that changes it before backward makes "
    "the gradient silently wrong. alpha is a tensor: use ctx.save_for_backward.",
)
class alpha_as_attribute(PACTNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.alpha = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        above = x >= ctx.alpha
        return torch.where((x > 0) & ~above, g, 0), torch.where(above, g, 0).sum().reshape(ctx.alpha.shape)


@pact.mistake("gradient", NO_FUNCTION)
def no_function(x, alpha):
    return _pact(x, alpha)


def _symmetric_clip(x: Tensor, alpha: Tensor) -> Tensor:
    bound = alpha.reshape(())
    return torch.where(x >= bound, bound, torch.where(x <= -bound, -bound, x))


symmetric_clip = Task(
    "SymmetricClip", "SymmetricClip.apply(x, alpha)", _symmetric_clip, _learnable_checks(PACT_POINTS, -1)
)


@symmetric_clip.solution
class SymmetricClipNew(Function):
    """In the form of chapter 5."""

    @staticmethod
    def forward(x, alpha):
        bound = alpha.reshape(())
        return x.clamp(-bound, bound)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        bound = alpha.reshape(())
        above, below = x >= bound, x <= -bound
        signed = torch.where(above, g, torch.where(below, -g, 0))
        return torch.where(above | below, 0, g), signed.sum().reshape(alpha.shape)


@symmetric_clip.mistake(
    "gradient",
    "Your gradient for alpha adds up both sides. Where x <= -alpha the output is -alpha, whose slope in alpha is -1: subtract "
    "the sum over that side.",
)
class lower_sign_forgotten(SymmetricClipNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        outside = x.abs() >= alpha
        return torch.where(outside, 0, g).reshape(x.shape), torch.where(outside, g, 0).sum().reshape(alpha.shape)


@symmetric_clip.mistake(
    "gradient",
    "You return None for alpha, which means zero: alpha is a tensor that learns, so save it and return its gradient, the sum "
    "over x >= alpha minus the sum over x <= -alpha.",
)
class alpha_gets_none(SymmetricClipNew):
    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        return torch.where(x.abs() >= alpha, 0, g).reshape(x.shape), None


# --- clip_by_norm -----------------------------------------------------------------------------------------------------


def _clip_by_norm(x: Tensor, tau: float) -> Tensor:
    wide = x.double()
    square = (wide * wide).sum()
    large = square > tau * tau
    scale = torch.where(large, tau / torch.where(large, square, 1).sqrt(), 1)
    return (wide * scale).to(x.dtype)


def _away(draw: Draw) -> Callable[..., Tensor]:
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, away=0.5, reach=2.0, dtype=dtype)


def _lengths(draw: Draw, order: int) -> list[Case]:
    """Longer and shorter than tau, in every form; and of every size."""
    sample = _away(draw)
    return [
        *draw.forms(sample, 0.4, order=order),
        *(draw.case("shorter than tau", sample(2, 3, dtype=t), 50.0, order=order) for t in (HALF, DOUBLE)),
        draw.case("0-d, shorter than tau", sample(), 5.0, order=order),
        draw.case("a little longer than tau", torch.tensor([3.0, 0.0, -4.0], dtype=DOUBLE), 4.9, order=order),
        draw.case("a little shorter than tau", torch.tensor([3.0, 0.0, -4.0], dtype=DOUBLE), 5.1, order=order),
        draw.case("numbers of every size", draw.scales(12), 0.01, order=order),
        draw.case("a short vector and a shorter tau", sample(3) * 1e-6, 4e-7, order=order),
        draw.case("a long vector and a large tau", sample(3) * 1e6, 4e5, order=order),
    ]


def _precise(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    found = look.precise(call, case, yours, expected)
    return found and replace(found, message=f"{found.message} An epsilon added to the norm shows like this, too.")


LENGTH = (*look.FORWARD[:-1], _precise, look.value)
EITHER = (*look.FIRST[:-2], look.differentiable, look.dtype, _precise, look.value, look.gradient)

norm = Task(
    "clip_by_norm",
    "clip_by_norm(x, tau)",
    _clip_by_norm,
    (
        Check(
            "value",
            1,
            "x as it is up to the length tau, else scaled to it, in every dtype, shape and layout",
            "Forward is what every later number rests on.",
            lambda d: [
                *_lengths(d, 0),
                d.case("one small number", _away(d)(1) * 1e-3, 4e-4, order=0),
                d.case("zeros", torch.zeros(2, 3, dtype=DOUBLE), 0.5, order=0),
                d.case("tau by keyword", _away(d)(4), 0.4, order=0, keywords=("tau",)),
            ],
            LENGTH,
        ),
        Check(
            "gradient",
            1,
            "the gradient flows through the norm, and gradcheck passes",
            "Where x is scaled, each element of the output depends on each element of x, through the norm.",
            lambda d: [d.case("longer than tau", _away(d)(5), 0.8), *_lengths(d, 1)],
            EITHER,
            lambda d: (_away(d)(5), 0.8),
        ),
        Check(
            "zero",
            1,
            "at x = 0 the gradient is the upstream gradient and the second derivative 0, without nan",
            "A layer initialised to zeros meets x = 0 in its first step: a nan there ends the run, and an epsilon beside the norm shows.",
            lambda d: [
                *(d.case("zeros", torch.zeros(2, 2, dtype=t), 0.5, order=2) for t in (HALF, DOUBLE)),
                d.case("a 0-d zero", torch.zeros((), dtype=DOUBLE), 0.5, order=2),
                d.case("shorter than tau", _away(d)(3), 50.0, order=2),
                d.case("longer than tau", _away(d)(3), 0.8, order=2),
            ],
            (*EITHER, look.second_order),
            lambda d: (torch.zeros(3, dtype=DOUBLE), 0.5),
            order=2,
        ),
        Check(
            "second_order",
            1,
            "the gradient can be differentiated again, and the result is right",
            "A Hessian, a gradient penalty or a physics loss differentiates the gradient.",
            lambda d: [
                d.case("longer than tau", _away(d)(4), 0.8, order=2),
                d.case("a matrix", _away(d)(2, 3), 0.8, order=2),
                d.case("shorter than tau", _away(d)(4), 50.0, order=2),
                d.case("a short vector and a shorter tau", _away(d)(3) * 1e-3, 4e-4, order=2),
            ],
            (*EITHER, look.second_order),
            lambda d: (_away(d)(4), 0.8),
            order=2,
        ),
        Check(
            "contract",
            1,
            "a new tensor always; the caller's tensors stay untouched",
            "Tensors that your code did not make belong to others.",
            lambda d: [
                d.case("longer than tau", _away(d)(4), 0.8, watch=("state", "overwrite", "trace")),
                d.case("shorter than tau", _away(d)(4), 50.0, watch=("state", "overwrite", "trace")),
            ],
            _mannerly(EITHER),
        ),
    ),
)


@norm.solution
def by_condition(x, tau):
    """A Python condition on the norm."""
    length = torch.linalg.vector_norm(x)
    if length <= tau:
        return x.clone()
    return x * (tau / length)


@norm.solution
def by_python_maximum(x, tau):
    """Python's max leaves the norm out of the graph where it does not count."""
    return x / max(1.0, x.norm() / tau)


@norm.solution
def by_squares(x, tau):
    """The square of the norm is smooth at 0, and clamped before the root is taken."""
    wide = x.float() if x.element_size() < 4 else x
    square = (wide * wide).sum().clamp(min=tau**2)
    return (wide * tau * square.rsqrt()).to(x.dtype)


@norm.solution
def by_two_wheres(x, tau):
    """A harmless number takes the norm's place where the norm is not used."""
    square = x.square().sum()
    large = square > tau * tau
    length = torch.where(large, square, torch.ones_like(square)).sqrt()
    return torch.where(large, tau * x / length, x)


@norm.solution
class ClipByNormFunction(Function):
    """The closed form, by a Function."""

    @staticmethod
    def forward(x, tau):
        length = x.norm().item()
        return x * (tau / length) if length > tau else x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.tau = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        square = (x * x).sum()
        if square <= ctx.tau**2:
            return g.clone(), None
        return ctx.tau / square.sqrt() * (g - x * ((x * g).sum() / square)), None


class _Closed(Function):
    """What the mistakes below change."""

    forward = staticmethod(ClipByNormFunction.forward)
    setup_context = staticmethod(ClipByNormFunction.setup_context)

    @staticmethod
    def parts(ctx):
        """x, its norm (1 where it does not count), the scale, and whether x is scaled."""
        (x,) = ctx.saved_tensors
        square = (x * x).sum()
        large = square > ctx.tau**2
        length = torch.where(large, square, 1).sqrt()
        return x, length, ctx.tau / length, large


@norm.mistake(
    "gradient",
    "Your gradient is the upstream gradient times tau / norm: it takes the norm for a constant (item(), float() or detach() "
    "cut it off). The norm depends on x, and its gradient has to flow: leave it a tensor of the graph.",
)
def norm_detached(x, tau):
    return x * min(1.0, tau / max(x.detach().norm().item(), 1e-300))


@norm.mistake(
    "gradient",
    "Your backward is the upstream gradient times the scale alone. The scale depends on x too: subtract the part along x, "
    "tau / norm * x * <x, g> / norm^2.",
)
class projection_missing(_Closed):
    @staticmethod
    def backward(ctx, g):
        _, _, scale, large = _Closed.parts(ctx)
        return torch.where(large, g * scale, g), None


@norm.mistake(
    "gradient",
    "Your gradient is that of the scaled branch everywhere. Up to the length tau the output is x, and its gradient the "
    "upstream gradient.",
)
class scaled_branch_everywhere(_Closed):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        length = x.norm().clamp(min=1e-30)
        return ctx.tau / length * (g - x / length * (x / length * g).sum()), None


@norm.mistake(
    "gradient",
    "Your backward returns one gradient. Torch wants one for each argument of forward: return the gradient of x, and None for "
    "tau.",
)
class none_forgotten(_Closed):
    @staticmethod
    def backward(ctx, g):
        return ClipByNormFunction.backward(ctx, g)[0]


@norm.mistake(
    "gradient", "Your backward returns None for x (is a return statement missing?): x gets no gradient at all."
)
class nothing_returned(_Closed):
    @staticmethod
    def backward(ctx, g):
        return None, None


@norm.mistake(
    "gradient",
    "Your output has no graph: no_grad, detach, .data or torch.tensor cut it off, so nothing reaches x. Compute it from x by "
    "torch operations.",
)
def graph_cut_off(x, tau):
    with torch.no_grad():
        return by_condition(x, tau)


@norm.mistake(
    "value",
    "Something is added to the norm or to the sum of squares (torch.renorm adds 1e-7), so the scale is off where the norm is "
    "small itself. The definition has no epsilon; treat x = 0 by the case x shorter than tau.",
)
def epsilon_under_the_root(x, tau):
    length = ((x * x).sum() + 1e-12).sqrt()
    return torch.where(length <= tau, x, x * tau / length)


@norm.mistake(
    "value",
    "You add an epsilon to the norm, as torch.nn.utils.clip_grad_norm_ does: the output is a little shorter than tau. The "
    "definition has none; treat x = 0 by the case x shorter than tau.",
)
def epsilon_added(x, tau):
    return x * (tau / (x.norm() + 1e-6)).clamp(max=1)


@norm.mistake(
    "value",
    "You take a norm for each row. There is one norm, over all elements of x, whatever its shape.",
)
def norm_of_each_row(x, tau):
    length = x.norm(dim=-1, keepdim=True) if x.dim() else x.norm()
    return torch.where(length > tau, x * tau / torch.where(length > tau, length, 1), x)


@norm.mistake(
    "value",
    "You clip each element to [-tau, tau]. Clipping by norm scales all elements by one factor and keeps the direction.",
)
def clipped_by_value(x, tau):
    return x.clamp(-tau, tau)


@norm.mistake(
    "value",
    "You scale x to the length tau always. Up to the length tau it stays as it is: clipping makes nothing longer (and 0 has no "
    "direction).",
)
def always_scaled(x, tau):
    return x * tau / x.norm()


@norm.mistake(
    "value",
    "For a matrix torch.linalg.norm(x, ord=2) is its largest singular value, another norm. torch.linalg.vector_norm(x) takes "
    "all elements of any shape.",
)
def spectral_norm(x, tau):
    length = torch.linalg.norm(x, ord=2)
    return x * (tau / length) if length > tau else x.clone()


@norm.mistake(
    "value",
    "Your output is x, unclipped: torch.nn.utils.clip_grad_norm_, or a hook, clips a gradient and leaves x. Here x itself is "
    "clipped, and a new tensor returned.",
)
def gradient_clipped_instead(x, tau):
    torch.nn.utils.clip_grad_norm_([x], tau)
    return x.clone()


@norm.mistake(
    "value",
    "Your norm is a dot product of vectors (dot, or @), which fails for a matrix and for a 0-d tensor. Sum the squares of all "
    "elements.",
)
def vectors_only(x, tau):
    length = torch.dot(x, x).sqrt()
    return x * (tau / length) if length > tau else x.clone()


@norm.mistake("value", FLOAT32)
def float32_inside(x, tau):
    return by_condition(x.float(), tau)


@norm.mistake("value", FLOAT32_AND_BACK)
def float32_and_back(x, tau):
    return by_condition(x.float(), tau).to(x.dtype)


@norm.mistake(
    "value",
    "You scale x in place, which torch refuses for a leaf that requires a gradient and which is not yours to do. Return a new "
    "tensor.",
)
def writes_into_input(x, tau):
    length = x.norm()
    if length > tau:
        x *= tau / length
    return x


@norm.mistake(
    "value",
    "Your argument is not called tau, so a caller who names it gets a TypeError. Use the names of the task's text.",
)
def argument_renamed(x, max_norm):
    return by_condition(x, max_norm)


@norm.mistake(
    "zero",
    "At x = 0 your gradient is nan. tau / norm (or the root of the sum of squares) is differentiated at 0, where its slope is "
    "infinite, and clamp or torch.where multiplies that by 0. Keep the branch that is not taken out of the graph, or put a "
    "harmless number in its place before dividing.",
)
def nan_at_zero(x, tau):
    return x * (tau / x.norm()).clamp(max=1)


@norm.mistake(
    "zero",
    "At x = 0 your gradient is right and your second derivative nan: the norm is in the graph there, behind a clamp or a "
    "where, and its second derivative at 0 is infinite. Keep the norm out of that branch, or clamp its square.",
)
def hessian_nan_at_zero(x, tau):
    return x * (tau / x.norm().clamp(min=tau))


@norm.mistake(
    "zero",
    "At x = 0 your gradient is 0. The output is x in the whole ball around 0, so the gradient is the upstream gradient.",
)
def zero_at_zero(x, tau):
    return x * 0 if not x.any() else by_condition(x, tau)


@norm.mistake(
    "zero",
    "At x = 0 your output has no graph: a constant tensor is returned there. Return a new tensor computed from x.",
)
def constant_at_zero(x, tau):
    return torch.zeros_like(x) if x.numel() and not x.any() else by_condition(x, tau)


@norm.mistake(
    "zero",
    "Your backward divides by the norm before it chooses the branch, so at x = 0 the derivative of your gradient is nan: "
    "torch.where multiplies the branch not taken by 0, and 0 * nan is nan. Choose first.",
)
class divides_first(_Closed):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        length = x.norm()
        scaled = ctx.tau / length * (g - x * (x * g).sum() / length**2)
        return torch.where(length > ctx.tau, scaled, g), None


@norm.mistake(
    "second_order",
    "Your first derivative is right and your second is wrong: the norm was computed before backward and saved, so torch takes "
    "it for a constant. Save x and compute the norm in backward.",
)
class saves_norm(_Closed):
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.tau = inputs
        ctx.save_for_backward(x, x.norm())

    @staticmethod
    def backward(ctx, g):
        x, length = ctx.saved_tensors
        if length <= ctx.tau:
            return g.clone(), None
        return ctx.tau / length * (g - x * (x * g).sum() / length**2), None


@norm.mistake("second_order", CUT_OFF)
class not_differentiable_twice(_Closed):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return ClipByNormFunction.backward(ctx, g)


@norm.mistake(
    "contract",
    "Up to the length tau you return x itself, so the output shares its memory: changing one in place changes the other. "
    "Return a new tensor, x.clone().",
)
def input_returned(x, tau):
    length = x.norm()
    return x if length <= tau else x * (tau / length)


@norm.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(_Closed):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        square = (x * x).sum()
        if square > ctx.tau**2:
            g.sub_(x * ((x * g).sum() / square)).mul_(ctx.tau / square.sqrt())
        return g, None


@norm.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(_Closed):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.tau = inputs

    @staticmethod
    def backward(ctx, g):
        x = ctx.x
        square = (x * x).sum()
        if square <= ctx.tau**2:
            return g.clone(), None
        return ctx.tau / square.sqrt() * (g - x * ((x * g).sum() / square)), None


TASKS = (mul, clipped, pact, norm)
CHAPTER = (hard_tanh, symmetric_clip)
