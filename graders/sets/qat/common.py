"""What the tasks of set 08 share."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from graders.inside.records import Case, Record
from graders.judge import aspects
from graders.judge import looks as look
from graders.judge.task import DOUBLE, DTYPES, Draw, operators

NARROWED = (
    "You compute in float32 and cast back (x.float()): for float64 input half of the digits are lost. Compute in the "
    "dtype of x, as far as it is not a half."
)
NOTHING_FOR_X = "Your backward returns None for x (is a return statement missing?): x gets no gradient at all."
HALF_UP = (
    "You round by floor(v + 0.5), which sends every tie up: 0.5 to 1, 2.5 to 3. torch.round sends a tie to the even "
    "neighbour, as hardware and torch's own quantisers do."
)
CLAMP_MISSING = (
    "Nothing holds the codes between qmin and qmax: x far outside comes back as itself. Clamp the rounded code."
)
INTEGER_CODES = (
    "You make integers of the codes. int32 holds no more than 2^31, so that 1e12 steps wrap around (int8 and int16 "
    "far sooner), and an integer tensor times a scale that is a Python number is float32, also for float64 input. "
    "Leave the codes floating: round has made them whole."
)
FORBIDDEN = (
    "Your Function calls torch's own quantiser. The task is to build it: divide, round, clamp and multiply with "
    "plain tensor operations."
)
DENIED = operators(
    "fake_quantize_per_tensor_affine fake_quantize_per_tensor_affine_cachemask "
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fake_quantize_learnable_per_tensor_affine "
    "fake_quantize_per_channel_affine fake_quantize_per_channel_affine_cachemask "
    "_fake_quantize_learnable_per_channel_affine quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel"
)
FORBIDS = look.Forbids(
    "The quantiser is to be built from plain tensor operations: no fake_quantize or quantize function of torch's, "
    "nothing from torch.ao or torch.quantization, and no torch.autograd or torch.func in backward.",
    names=" ".join({name.removeprefix("aten::").strip("_") for name in DENIED} | {"FakeQuantize", "FakeQuantizeBase"}),
    paths=("torch.ao", "torch.quantization"),
    backward=True,
)

# --- Checks -----------------------------------------------------------------------------------------------------------


def precise(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """Look as `look.precise` does; where a scale is a Python number, say what makes float32 of that."""
    found = look.precise(call, case, yours, expected)
    if found and any(isinstance(a, float) for a in case.args):
        text = (
            " A scale that is a Python number is float32 as torch.tensor(scale), and where it multiplies an integer "
            "tensor."
        )
        return replace(found, message=found.message + text)
    return found


def x_alone(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """Look whether an argument other than x gets a gradient."""
    names = [n for n, required in zip(look.parameters(call), case.requires_grad, strict=True) if required]
    for name, a, b in zip(names, yours.grads or (), expected.grads or (), strict=False):
        if a is not None and b is None:
            text = (
                f"{name} gets a gradient, and the task says that it has none: its place in what backward returns is "
                "None."
            )
            return look.Finding("gradient", text, {"case": look.describe(call, case)})
    return None


def by_upstream(call: str, case: Case, yours: Record, expected: Record) -> look.Finding | None:
    """Look at the second order with respect to the upstream gradient; what belongs to the inputs is not asked."""
    if expected.second is None:
        return None
    nothing = (None,) * (len(expected.second) - 1)
    mine = replace(yours, second=(*nothing, (yours.second or (None,))[-1]))
    return look.second_order(call, case, mine, replace(expected, second=(*nothing, expected.second[-1])))


VALUE = (*look.FORWARD[:-1], precise, look.value)
BOTH = (*look.FIRST[:-1], look.dtype, precise, look.value, look.gradient)

value = partial(aspects.value, looks=(*VALUE, look.allowed))
gradient = partial(
    aspects.gradient,
    why="Values and gradients are compared with what the text states: of an estimator nothing else is proof.",
    looks=BOTH,
    gradcheck=None,
)
second_order = partial(
    aspects.second_order,
    about="the gradient can be differentiated again, by the upstream gradient",
    why="A gradient penalty differentiates your backward.",
    gradcheck=None,
)
contract = partial(
    aspects.contract,
    about="the caller's tensors stay untouched, also when one changes before backward",
    why="Memory is looked at here, and these numbers first: a gradient that is wrong elsewhere is wrong here too.",
    # what is changed in place comes before the numbers that it spoils
    looks=(*BOTH[:4], look.untouched, *BOTH[4:], look.stateless, look.guarded, look.allowed),
)

# --- Cases ------------------------------------------------------------------------------------------------------------


def only_x(draw: Draw, name: str, x: Tensor, *rest: object, **options: object) -> Case:
    """Return a case in which x alone requires a gradient."""
    return draw.case(name, x, *rest, requires=(True, *(False for _ in rest)), **options)


def lopsided(draw: Draw, *rest: object, shape: tuple[int, ...] = (5,), order: int = 1) -> list[Case]:
    """Return cases of an x that is no even mixture (`Draw.lopsided`), which alone requires a gradient."""
    cases = draw.lopsided(lambda x: (x, *rest), *shape, order=0)
    return [only_x(draw, c.name, *c.args, order=order) for c in cases]


def layouts(cases: list[Case]) -> list[Case]:
    """Return the cases of `Draw.forms` but for its one of each dtype, where other cases have the dtypes already."""
    return [c for c in cases if c.name not in {f"a {str(t)[6:]} input" for t in DTYPES}]


def around(draw: Draw, low: int | Tensor, high: int | Tensor, shape: tuple[int, ...], open_ends: bool = True) -> Tensor:
    """Return numbers inside, above, inside and below low..high in turn, at 1/8 or more from each tie.

    Args:
        open_ends: with False, none lies within half a step of an end on its outer side, or on an end.
    """

    def whole(a: int | Tensor, b: int | Tensor) -> Tensor:
        return draw.between(a, b + 1, *shape).floor().clamp(max=b)

    turn = torch.arange(torch.Size(shape).numel()).reshape(shape) % 4
    part = whole(-3, 3) / 8
    inside = whole(low, high) + part
    if not open_ends:
        inside = inside.clamp(low + 1 / 8, high - 1 / 8)
    above, below = whole(high + 1, high + 4) + part, whole(low - 4, low - 1) + part
    return torch.where(turn == 1, above, torch.where(turn == 3, below, inside))


def usual(draw: Draw, scale: float = 0.5, zero: int = 1, qmin: int = -4, qmax: int = 7) -> Callable[..., Tensor]:
    """Return a sampler for `Draw.forms`, of numbers around the range."""
    return lambda *shape, dtype=DOUBLE: (around(draw, qmin - zero, qmax - zero, shape) * scale).to(dtype)


# --- Quantisers -------------------------------------------------------------------------------------------------------


def affine(x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int) -> Tensor:
    """Quantise and go back, in float64; the gradient is the upstream one where the code lies in the range.

    Args:
        scale, zero_point: broadcastable to x.
    """
    wide, scale = x.double(), scale.detach().double()
    code = (wide.detach() / scale).round() + zero_point
    inside = (code >= qmin) & (code <= qmax)
    return ((code.clamp(qmin, qmax) - zero_point) * scale + (wide - wide.detach()) * inside).to(x.dtype)


def fake_quantize(x: Tensor, scale: object, zero_point: object, qmin: int, qmax: int) -> Tensor:
    """Quantise and go back as `affine` does; scale and zero_point are numbers or 0-d tensors."""
    return affine(x, torch.as_tensor(scale, dtype=DOUBLE), torch.as_tensor(zero_point), qmin, qmax)


def learned(x: Tensor, scale: Tensor, qmin: int, qmax: int, factor: float = 1.0) -> Tensor:
    """Quantise and go back as Esser et al. 2020 do, eqs. 1 to 5; inside is where the rounded quotient is.

    Args:
        factor: that of section 2.2, on the gradient of scale.
    """
    wide, step = x.double(), scale.double().reshape(())
    quotient = (wide / step).detach()
    code = quotient.round()
    inside = (code >= qmin) & (code <= qmax)
    slope = factor * torch.where(inside, code - quotient, quotient.clamp(qmin, qmax))
    value = code.clamp(qmin, qmax) * step.detach()
    return (value + inside * (wide - wide.detach()) + slope * (step - step.detach())).to(x.dtype)


def spread(parameter: Tensor, x: Tensor, axis: int) -> Tensor:
    """Return one number for each index along the axis, in a shape that broadcasts against x."""
    return parameter.reshape([-1 if i == axis else 1 for i in range(x.dim())])


def codes(x: Tensor, scale: object, zero_point: object) -> Tensor:
    """Return the codes of x before they are clamped."""
    return torch.round(x / scale) + zero_point


def in_range(x: Tensor, scale: object, zero_point: object, qmin: int, qmax: int) -> Tensor:
    """Return the mask of what has its code in the range."""
    code = codes(x, scale, zero_point)
    return (code >= qmin) & (code <= qmax)


def quantised(x: Tensor, scale: object, zero_point: object, qmin: int, qmax: int) -> Tensor:
    """Return what the codes of x stand for, in the dtype that comes of it."""
    return (codes(x, scale, zero_point).clamp(qmin, qmax) - zero_point) * scale
