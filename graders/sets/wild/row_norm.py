"""RowNorm: the length of each row, whose gradient at a row of zeros is 0 and not nan."""

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.aspects import VALUE, WATCHED, gradient, value
from graders.judge.looks import Finding
from graders.judge.task import BRAIN, DOUBLE, DTYPES, HALF, SINGLE, Check, Draw, Task
from graders.judge.wording import WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.wild.common import (
    BOTH,
    CONSTANT_UPSTREAM,
    EXPANDED,
    FROM_START,
    LEFT_BEHIND,
    MADE_OF_X,
    ONE_BY_ONE,
    STRIDES,
    apart,
    away,
    contract,
    held_still,
    long_row,
    matrix,
    named,
    not_nan,
    second_order,
)

PLACE = 1
FAR = ((DOUBLE, 1e200), (SINGLE, 1e30), (BRAIN, 1e30), (HALF, 1e4))  # squares overflow; those of the inverses are 0


def _row_norm(x: Tensor) -> Tensor:
    """Return the norm in float64, rounded to the dtype of x."""
    wide = x.double()
    most = wide.detach().abs().amax(-1, keepdim=True)
    most = torch.where(most == 0, 1, most)
    square = (wide / most).square().sum(-1)
    root = torch.where(square == 0, 0, torch.where(square == 0, 1, square).sqrt())
    return (root * most.squeeze(-1)).to(x.dtype)


def _forms(d: Draw, order: int) -> list[Case]:
    """Return cases of every dtype, shape and layout."""
    x = away(d)
    inputs = [(f"a {named(t)} input", x(2, 3, dtype=t)) for t in DTYPES] + [
        ("a vector", x(3)),
        ("one number", x(1)),
        ("one row", x(1, 4)),
        ("one column", x(3, 1)),
        ("no rows", x(0, 3)),
        ("as many rows as columns", x(3, 3)),
        ("a 3-d input", x(2, 3, 4)),
        ("a 3-d input with axes of one", x(1, 2, 1)),
        ("a 4-d input", x(2, 3, 2, 2)),
        ("no rows in 3-d", x(2, 0, 3)),
        ("a 3-d input, its axes turned round", x(4, 3, 2).permute(2, 1, 0)),
        ("a transposed input", x(3, 2).t()),
        ("every second row", x(4, 3)[::2]),
        ("every second column", x(3, 6)[:, ::2]),
        ("an expanded input", x(1, 3).expand(2, 3)),
    ]
    cases = [d.case(name, t, order=order) for name, t in inputs]
    return [*cases, d.case("x by keyword", x(2, 3), order=order, keywords=("x",))]


def _far(d: Draw, order: int) -> list[Case]:
    """Return cases of numbers whose squares are infinite, or 0, beside others."""
    x = away(d)
    cases = []
    for dtype, far in FAR:
        sizes = torch.tensor([[far], [1.0], [1 / far]], dtype=DOUBLE)
        cases += [
            d.case(f"{named(dtype)}, rows around {far:g}, 1 and {1 / far:g}", (sizes * x(3, 4)).to(dtype), order=order),
            d.case(
                f"{named(dtype)}, {far:g} beside {1 / far:g}", matrix([far, 1 / far, -1.0], dtype=dtype), order=order
            ),
            d.case(
                f"{named(dtype)}, 1 and {1 / far:g} beside {-far:g}",
                matrix([1.0, -far, 1 / far], [1 / far, 1.0, -far], dtype=dtype),
                order=order,
            ),
            d.case(
                f"{named(dtype)}, near the largest number",
                _near_the_largest(dtype),
                order=order,
                upstream=d.sides(2, away=0.25, reach=1, dtype=dtype),  # not above 1: the reference multiplies first
            ),
            d.case(f"{named(dtype)}, near the smallest normal number", _near_the_smallest(dtype), order=order),
        ]
    return [
        *cases,
        d.case("rows around 1e200", 1e200 * x(2, 3), order=order),
        d.case("rows around 1e-200", 1e-200 * x(2, 3), order=order),
        d.case("a vector around 1e-200", 1e-200 * x(3), order=order),
        d.case("float32 around 1e-30", (1e-30 * x(2, 3)).float(), order=order),
        d.case("rows around 1e-161", 1e-161 * x(2, 3), order=order),
        d.case("float32 around 1e-22", (1e-22 * x(2, 3)).float(), order=order),
    ]


def _near_the_largest(dtype: torch.dtype) -> Tensor:
    """Return rows whose lengths fit, and the sum of whose sizes, or the largest times the root of their number, does not."""
    return (matrix([0.5, 0.5, -0.5, 0.0], [0.9, 0.0, -0.1, 0.0]) * torch.finfo(dtype).max).to(dtype)


def _near_the_smallest(dtype: torch.dtype) -> Tensor:
    """Return rows that are short, and not so short that they lose digits."""
    return (matrix([4.0, -8.0, 16.0], [-8.0, 4.0, 0.0]) * torch.finfo(dtype).tiny).to(dtype)


def _upstream_far(d: Draw) -> list[Case]:
    """Return cases of an upstream gradient that doesn't fit times x, or over the length; the gradient fits."""
    x, found = away(d), []
    for dtype, far, up in ((DOUBLE, 1e200, 1e150), (SINGLE, 1e30, 1e15), (BRAIN, 1e30, 1e15), (HALF, 1e4, 100)):
        large = 1.0 if dtype is DOUBLE else far  # the reference has no wider dtype than that
        sizes = torch.tensor([[large], [1.0], [1 / far]], dtype=DOUBLE)
        g = (up * d.sides(3, away=0.5)).to(dtype)
        found.append(d.case(f"{named(dtype)}, upstream around {up:g}", (sizes * x(3, 4)).to(dtype), upstream=g))
    return found


def relative(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find a norm that is off by more than rounding, in proportion to itself: a small one, or that of zeros."""
    (a,), (b,) = yours.outputs, expected.outputs
    if b.dtype not in (DOUBLE, SINGLE) or a.dtype != b.dtype:
        return None
    off = b.isfinite() & ~((a.double() - b.double()).abs() <= 1e-4 * b.double())
    if not off.any() or (b[off] > 1e-3).any():  # what `look.value` sees as well
        return None
    index = tuple(off.nonzero()[0].tolist())
    at = f" at index {index}" if index else ""
    zeros = not b[off].any()
    text = (
        f"Wrong value{at}: a row of zeros has length 0 exactly."
        if zeros
        else f"Wrong value{at}, of a row of small numbers."
    )
    return Finding(
        "value",
        text,
        {"case": look.describe(call, case), "yours": look.number(a[index]), "expected": look.number(b[index])},
    )


def at_zeros(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find a gradient that is a number, and not 0, in a row of zeros."""
    (x,), a = case.args, (yours.grads or (None,))[0]
    if not isinstance(x, Tensor) or a is None or a.shape != x.shape:
        return None
    wrong = (x == 0).all(-1, keepdim=True) & (a != 0) & a.isfinite()
    if not wrong.any():
        return None
    index = tuple(wrong.nonzero()[0].tolist())
    text = (
        f"At a row of zeros your gradient is {look.number(a[index])} at index {index}. It's to be 0: of all directions none "
        "is special there, and 0 is their mean."
    )
    return Finding(
        "gradient", text, {"case": look.describe(call, case), "yours": look.number(a[index]), "expected": "0"}
    )


def _zeros(d: Draw) -> list[Case]:
    """Return cases with rows of zeros, alone and beside others."""
    x = away(d)
    beside = x(4, 3)
    beside[1] = 0
    some = x(2, 3, 2)
    some[0, 1] = some[1, 0] = 0
    column = torch.tensor([[0.0], [2.0], [-3.0], [0.0]], dtype=DOUBLE)
    part = matrix([0.0, 3.0, -4.0], [0.0, 0.0, 0.0], [0.0, 0.0, 2.0])
    cases = [
        d.case("a row of zeros beside others", beside, order=2),
        d.case("zeros in 3-d", some, order=2),
        d.case("one column", column),
        d.case("two rows, one of zeros", matrix([3.0, -4.0], [0.0, 0.0]), order=2),
        d.case("zeros in a row that is none", part, order=2),
        d.case("-0.0", -torch.zeros(2, 3, dtype=DOUBLE), order=2),
        *(d.case(f"{named(t)}, nothing but zeros", torch.zeros(2, 3, dtype=t), order=2) for t in DTYPES),
        d.case("a vector of zeros", torch.zeros(3, dtype=DOUBLE), order=2),
        d.case("zeros beside 1e-200 and 1e200", matrix([0.0, 0.0], [3e-200, 4e-200], [3e200, -4e200])),
    ]
    return [held_still(case) for case in cases]


task = Task(
    "RowNorm",
    "RowNorm.apply(x)",
    reference=_row_norm,
    checks=(
        value(
            1,
            about="the length of each row, in every dtype, shape and layout; of 1e200, 1e-200 and zeros",
            cases=lambda d: [
                *_forms(d, order=0),
                *_far(d, order=0),
                *(d.case(f"{named(t)} zeros", torch.zeros(2, 3, dtype=t), order=0) for t in DTYPES),
                d.case("zeros beside others", matrix([3.0, -4.0], [0.0, 0.0]), order=0),
                d.case("a long row, one number of it large", long_row(), order=0),
                d.case("a long row, one number of it not 0", torch.eye(1, 600, dtype=HALF), order=0),
                *d.lopsided(lambda x: (x,), 2, 3, order=0),
            ],
            looks=(*VALUE[:-2], relative, *VALUE[-2:]),
        ),
        gradient(
            1,
            about="x over its length, times g of the row, however g lies in memory; gradcheck passes",
            why="Each row of the gradient is x / |x|, of length 1, times the upstream gradient of that row.",
            cases=lambda d: [
                *_forms(d, order=1),
                *_far(d, order=1),
                *_upstream_far(d),
                d.case("upstream of every size", away(d)(6, 3), upstream=d.scales(6)),
                d.case("expanded upstream", away(d)(2, 3, 4), upstream=d.normal(2, 1).expand(2, 3)),
                d.case("one upstream number for all rows", away(d)(3, 4), upstream=d.normal(1).expand(3)),
                d.case("transposed upstream", away(d)(2, 3, 4), upstream=d.normal(3, 2).t()),
                d.case("upstream with gaps", away(d)(4, 3), upstream=apart(d, 4)),
                d.case("a part of a wider upstream", away(d)(3, 2, 4), upstream=d.normal(3, 5)[:, 2:4]),
                *d.lopsided(lambda x: (x,), 2, 3, zeros=False),
            ],
            gradcheck=lambda d: (away(d)(2, 3),),
        ),
        Check(
            "zeros",
            1,
            about="a row of zeros: gradient 0, second derivative no nan, and right in the rows beside it",
            why="Padding is made of zeros. A nan there ends a training run, and it's no use that a mask stands behind it.",
            cases=_zeros,
            looks=(*BOTH[:-1], at_zeros, BOTH[-1], not_nan, look.second_order),
        ),
        second_order(
            1,
            about="the gradient can be differentiated again, by x and by the upstream gradient",
            why="The length depends on x too: what was computed before backward, or cut off there, is a constant.",
            cases=lambda d: [
                d.case("rows", away(d)(2, 3), order=2),
                d.case("a vector", away(d)(4), order=2),
                d.case("a 3-d input", away(d)(2, 2, 3), order=2),
                d.case("one column", away(d)(3, 1), order=2),
                d.case("float32", away(d)(2, 3, dtype=SINGLE), order=2),
                d.case("float16", 2 * away(d)(2, 3, dtype=HALF), order=2),
                d.case("bfloat16", 2 * away(d)(2, 3, dtype=BRAIN), order=2),
                d.case("a transposed input", away(d)(3, 2).t(), order=2),
                d.case("a 3-d input, its axes turned round", away(d)(3, 2, 2).permute(2, 1, 0), order=2),
                d.case("after an ordinary backward", away(d)(2, 3), order=2, watch=("state",)),
                d.case("rows around 1e-100", 1e-100 * away(d)(2, 3), order=2),
                d.case("expanded upstream", away(d)(2, 3), order=2, upstream=d.normal(1).expand(2)),
                d.case("an upstream gradient that is a constant", away(d)(2, 3), order=2, how="constant"),
                *d.lopsided(lambda x: (x,), 2, 3, order=2, zeros=False),
            ],
            gradcheck=lambda d: (away(d)(2, 3),),
        ),
        contract(
            1,
            cases=lambda d: [
                d.case("rows", away(d)(3, 4), watch=WATCHED, between=(away(d)(3, 4),)),
                d.case("a row of zeros", matrix([1.0, -2.0], [0.0, 0.0]), watch=WATCHED),
                d.case("float32", away(d)(2, 3, dtype=SINGLE), watch=("state", "overwrite")),
                d.case("one column", away(d)(3, 1), watch=("overwrite",)),
                d.case("one column, nothing below 0", matrix([2.0], [0.5]), watch=("overwrite",)),
                d.case("float16", away(d)(2, 3, dtype=HALF), watch=("trace",)),
                d.case("bfloat16", away(d)(2, 3, dtype=BRAIN), watch=("trace",)),
                d.case("a transposed input", away(d)(3, 2).t(), watch=("trace",)),
                d.case("rows around 1e8", 1e8 * away(d)(2, 3), watch=("trace",)),
                d.case("many rows", away(d)(32, 8), watch=("trace",)),
            ],
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class RowNormNew(Function):
    """Scales by the largest number of each row, and saves x and the output: the one to write."""

    @staticmethod
    def forward(x):
        most = x.abs().amax(-1, keepdim=True)
        most = torch.where(most == 0, 1, most)
        return (x / most).square().sum(-1).sqrt() * most.squeeze(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        y = torch.where(y == 0, 1, y).unsqueeze(-1)
        return g.unsqueeze(-1) * (x / y)


@task.solution
class RowNormAgain(Function):
    """Saves x alone and makes the length again: where the output is not to be kept, for a second pass over x."""

    @staticmethod
    def forward(x):
        most = x.abs().amax(-1, keepdim=True)
        most = most.masked_fill(most == 0, 1)
        return (torch.linalg.vector_norm(x / most, dim=-1, keepdim=True) * most).squeeze(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        most = x.detach().abs().amax(-1, keepdim=True)
        z = x / torch.where(most > 0, most, 1)  # the factor cancels, so it may be a constant
        square = z.square().sum(-1, keepdim=True)
        length = torch.where(square > 0, square, 1).sqrt()
        return z / length * g[..., None]


@task.solution
class RowNormOld(Function):
    """The older form, with a second mask for the result: plain to see that zeros give 0; no torch.func."""

    @staticmethod
    def forward(ctx, x):
        scale = x.abs().max(-1, keepdim=True).values
        scale[scale == 0] = 1
        y = (x / scale).norm(dim=-1) * scale[..., 0]
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = (t if i == 0 else t[..., None] for i, t in enumerate(ctx.saved_tensors))
        there = y > 0
        return torch.where(there, x / torch.where(there, y, torch.ones_like(y)), 0) * g[..., None]


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class RowNormByParts(RowNormNew):
    """A power of two as the scale, the gradient row after row."""

    @staticmethod
    def forward(x):
        most = x.abs().amax(-1, keepdim=True)
        _, exponent = torch.frexp(most.double())
        wide = torch.ldexp(x.double(), -exponent)
        return torch.ldexp(wide.square().sum(-1).sqrt(), exponent.squeeze(-1)).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None
        x, y = ctx.saved_tensors
        return torch.einsum("...i,...->...i", x / y.masked_fill(y == 0, 1).unsqueeze(-1), g)


@task.solution
class RowNormContiguous(RowNormNew):
    """g laid out in rows first; the reciprocal of the scaled length."""

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        flat, length, g = x.reshape(-1, x.shape[-1]), y.reshape(-1, 1), g.contiguous().view(-1, 1)
        return (flat.div(length + (length == 0).to(length.dtype)) * g).reshape(x.shape)


# --- Mistakes ---------------------------------------------------------------------------------------------------------

wrong = Wrong(task, of=RowNormNew)


def _safe(y: Tensor) -> Tensor:
    """Return the lengths as a column, 1 in place of 0."""
    return torch.where(y == 0, 1, y).unsqueeze(-1)


@wrong.forward(
    "value",
    "You add up the squares of x as they are. That of 1e200 is infinite and that of 1e-200 is 0, though both lengths fit. "
    "Divide each row by its largest number first, and multiply its length by that.",
)
def squares_overflow(x):
    return x.square().sum(-1).sqrt()


@wrong.backward(
    "zeros",
    "At a row of zeros your gradient is nan: x / |x| is 0 / 0 there. Divide by 1 where the length is 0, and x makes it 0.",
)
def nan_at_zeros(x, y, g):
    return g.unsqueeze(-1) * (x / y.unsqueeze(-1))


@wrong.backward(
    "zeros",
    "At a row of zeros your gradient is right and your second derivative nan: x / |x| is computed there all the same, and "
    "what hides it (where, nan_to_num) multiplies an infinite slope by 0. Put a 1 in place of the length before you divide.",
)
def masked_after(x, y, g):
    y = y.unsqueeze(-1)
    return torch.where(y > 0, g.unsqueeze(-1) * (x / y), 0)


@wrong.backward(
    "zeros",
    "Your gradient is right and your second derivative nan: x / |x| (or 1 / |x|) divides by 0 at a row of zeros, and what is "
    "put around it (torch.where, nan_to_num) multiplies an infinite slope by 0. Put a 1 in place of the length before you divide.",
)
def quotient_masked(x, y, g):
    y = y.unsqueeze(-1)
    return g.unsqueeze(-1) * torch.where(y > 0, x / y, 0)


@wrong.backward(
    "gradient",
    "You add a small number to the length before you divide, or divide by at least that (clamp). Next to 1e-200 even 1e-12 is "
    "huge, and the gradient is 0 there. Put a 1 where the length is exactly 0, and leave all others as they are.",
)
def epsilon_in_backward(x, y, g):
    return g.unsqueeze(-1) * x / (y.unsqueeze(-1) + 1e-12)


@task.mistake("gradient", STRIDES)
class upstream_contiguous(RowNormNew):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        rows = g.as_strided(g.shape, torch.empty(g.shape).stride())
        return rows.unsqueeze(-1) * (x / _safe(y))


@wrong.backward(
    "contract",
    "Your backward writes into the saved output, as y[y == 0] = 1 or y.clamp_ does. That's the tensor that your forward "
    "returned: the caller's lengths change. Use torch.where, which makes a new one.",
)
def writes_into_saved(x, y, g):
    at = y == 0
    y[at] = 1
    return g.unsqueeze(-1) * (x / y.unsqueeze(-1))


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is wrong: x / |x| was computed in forward and saved, so it's a constant in "
    "backward. Save x and the output, and divide in backward.",
    saves=lambda x, y: (x / _safe(y),),
)
def saves_derivative(u, g):
    return g.unsqueeze(-1) * u


@wrong.forward(
    "value",
    "You scale by the largest number of the whole tensor. Beside a row around 1e200 one around 1e-200 becomes 0: each row "
    "needs its own scale, amax(-1, keepdim=True).",
)
def scale_of_everything(x):
    most = x.abs().max() if x.numel() else torch.ones((), dtype=x.dtype)
    most = torch.where(most == 0, 1, most)
    return (x / most).square().sum(-1).sqrt() * most


@wrong.forward(
    "value",
    "Your length of a row of zeros is nan: its largest number is 0, and you divide by that. Take 1 as the scale there.",
)
def scale_of_zero(x):
    most = x.abs().amax(-1, keepdim=True)
    return (x / most).square().sum(-1).sqrt() * most.squeeze(-1)


@wrong.forward(
    "value",
    "Your scale is the largest number of the row, not the largest size: where all are negative, or the largest is 0, it "
    "leaves the squares to overflow, or divides by 0. Take abs() before amax.",
)
def scale_without_abs(x):
    most = x.amax(-1, keepdim=True)
    most = torch.where(most == 0, 1, most)
    return (x / most).square().sum(-1).sqrt() * most.squeeze(-1)


@wrong.forward(
    "value",
    "You scale the row and don't multiply its length by the scale again. The length of x / m is that of x, over m.",
)
def scale_not_undone(x):
    most = x.abs().amax(-1, keepdim=True)
    return (x / torch.where(most == 0, 1, most)).square().sum(-1).sqrt()


@wrong.forward(
    "value",
    "You call torch's own norm on x as it is. It adds up squares too: 1e200 gives inf and 1e-200 gives 0. Divide each row by "
    "its largest number first.",
)
def torchs_norm(x):
    return torch.linalg.vector_norm(x, dim=-1)


@wrong.forward(
    "value",
    "You compute in float64, which has room for the squares of float32 and not for its own: 1e200 gives inf and 1e-200 gives 0. "
    "Divide each row by its largest number first.",
)
def float64_instead_of_scale(x):
    return x.double().square().sum(-1).sqrt().to(x.dtype)


@wrong.forward(
    "value",
    "You add a small number to the sum of squares, so a row of zeros has a length above 0. Leave it out: the root of 0 is "
    "harmless in forward, and backward can tell zeros by the length.",
)
def epsilon_under_root(x):
    return (x.square().sum(-1) + 1e-12).sqrt()


@wrong.forward(
    "value",
    "You add a small number to the scale, or put one in its place where it's smaller: a row around 1e-200 is then divided by far "
    "too much, and its length is 0. Put 1 where the scale is exactly 0.",
)
def scale_clamped(x):
    most = x.abs().amax(-1, keepdim=True).clamp(min=1e-12 if x.dtype in (SINGLE, DOUBLE) else 1e-7)
    return (x / most).square().sum(-1).sqrt() * most.squeeze(-1)


@wrong.forward("value", "The root is missing: this is the square of the length.")
def root_forgotten(x):
    return x.square().sum(-1)


@wrong.forward("value", "You add up the numbers' sizes. The Euclidean length is the root of the sum of their squares.")
def sizes_added(x):
    return x.abs().sum(-1)


@wrong.forward("value", "You take the mean of the squares where their sum is asked for.")
def mean_of_squares(x):
    most = x.abs().amax(-1, keepdim=True)
    most = torch.where(most == 0, 1, most)
    return (x / most).square().mean(-1).sqrt() * most.squeeze(-1)


@task.mistake(
    "value", "Your output is one length for the whole tensor. Each row has its own: reduce over the last axis alone."
)
class one_length(RowNormNew):
    @staticmethod
    def forward(x):
        return torch.linalg.vector_norm(x)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * x / y


@task.mistake(
    "value", "Your output keeps the last axis, with size 1 (keepdim=True). It's to go: squeeze it away at the end."
)
class axis_kept(RowNormNew):
    @staticmethod
    def forward(x):
        return RowNormNew.forward(x).unsqueeze(-1)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * (x / torch.where(y == 0, 1, y))


@task.mistake(
    "value", "Your output is squeezed of every axis of size 1. Only the last axis goes: squeeze(-1), or no keepdim."
)
class squeezes_everything(RowNormNew):
    @staticmethod
    def forward(x):
        return RowNormNew.forward(x).squeeze()

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g.reshape(x.shape[:-1]).unsqueeze(-1) * x / _safe(y.reshape(x.shape[:-1]))


@task.mistake(
    "value", "You reduce over the first axis, and a row lies along the last: dim=-1, in any number of dimensions."
)
class first_axis(RowNormNew):
    @staticmethod
    def forward(x):
        return x.norm(dim=0)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * (x / torch.where(y == 0, 1, y))


wrong.habits(
    "float32_inside float32_and_back nothing_returned one_too_many no_function upstream_summed "
    "not_differentiable_twice kept_outside_ctx",
    upstream_ignored="Your gradient is x / |x| alone: multiply each row by the upstream gradient of its length.",
    sign_flipped="Your gradient has the wrong sign: the length grows along x, so it is plus x / |x|.",
    view_needed="Your Function uses view, which refuses an upstream gradient that isn't contiguous in memory. unsqueeze(-1) and "
    "reshape take any.",
    detached="Your first derivative is right and your second is wrong: detach (or .data) cuts x and the output out of the "
    "graph of the gradient. Use what you saved as it is.",
    kept_as_attribute="You keep x and the output as attributes of ctx, where torch doesn't watch them: when one is changed in "
    "place before backward, the gradient is silently wrong. Use ctx.save_for_backward.",
    autograd_in_backward="Your backward lets torch.autograd differentiate. The task is to write the gradient, from tensors.",
)


@wrong.backward(
    "gradient",
    "Your gradient is x times the upstream gradient: divide by the length of the row. (The gradient of the squared length is "
    "2x.)",
)
def not_divided(x, y, g):
    return g.unsqueeze(-1) * x


@wrong.backward("gradient", "You divide by the square of the length. The gradient is x / |x|, whose length is 1.")
def divided_by_square(x, y, g):
    return g.unsqueeze(-1) * (x / _safe(y) / _safe(y))


@wrong.backward(
    "gradient", "Your gradient is twice too large: the 2 of the square's slope is halved by that of the root."
)
def factor_two(x, y, g):
    return g.unsqueeze(-1) * 2 * x / _safe(y)


@wrong.backward(
    "gradient", "Your gradient is half as large as it should be: the root's 1/2 cancels the 2 of the square."
)
def factor_half(x, y, g):
    return g.unsqueeze(-1) * 0.5 * x / _safe(y)


@wrong.backward(
    "gradient",
    "The upstream gradient has one number for each row, and needs an axis of size 1 to meet x: g.unsqueeze(-1). Without "
    "it torch raises, or, where there are as many rows as columns, it multiplies the wrong numbers.",
)
def axis_not_added(x, y, g):
    return g * (x / _safe(y))


@wrong.backward(
    "gradient",
    "The length has one number for each row, and needs an axis of size 1 to divide x: y.unsqueeze(-1). Without it torch "
    "raises, or, where there are as many rows as columns, it divides by the wrong lengths.",
)
def axis_of_length_not_added(x, y, g):
    return g.unsqueeze(-1) * (x / torch.where(y == 0, 1, y))


@wrong.backward(
    "gradient",
    "You make the length again in backward, from the squares of x as they are, and 1e200 and 1e-200 are lost there. "
    "Save the output, which is that length.",
    saves=lambda x, y: (x,),
)
def squares_in_backward(x, g):
    square = x.square().sum(-1, keepdim=True)
    return g.unsqueeze(-1) * x / torch.where(square == 0, 1, square).sqrt()


@wrong.backward(
    "gradient",
    "You call torch's norm again in backward, which adds up the squares of x as they are: 1e200 and 1e-200 are lost there. Save the "
    "output, which is that length.",
    saves=lambda x, y: (x,),
)
def norm_in_backward(x, g):
    length = x.norm(dim=-1, keepdim=True)
    return g.unsqueeze(-1) * x / torch.where(length == 0, 1, length)


@wrong.backward(
    "gradient",
    "You add the dtype's eps to the length before you divide. That's a distance between numbers near 1; next to 1e-200 it's huge, "
    "and the gradient is 0 there. Put a 1 where the length is exactly 0, and leave all others as they are.",
)
def epsilon_of_dtype_in_backward(x, y, g):
    return g.unsqueeze(-1) * x / (y.unsqueeze(-1) + torch.finfo(x.dtype).eps)


@wrong.backward(
    "gradient",
    "You divide by the square of the length, and that of 1e200 is infinite, that of 1e-200 is 0. x / |x| needs the length "
    "alone: divide once.",
)
def product_first(x, y, g):
    return g.unsqueeze(-1) * x * y.unsqueeze(-1) / _safe(y * y)


@wrong.backward("gradient", "Your gradient is zero everywhere, so nothing before this operation would ever learn.")
def zeros_returned(x, y, g):
    return torch.zeros_like(x)


@wrong.backward("gradient", "Your gradient is the upstream gradient, spread over its row: multiply it by x / |x|.")
def upstream_spread(x, y, g):
    return g.unsqueeze(-1).expand_as(x).clone()


@wrong.backward(
    "gradient", "Your gradient has only the signs of x, as if the length were a sum of sizes. It is x / |x|."
)
def signs_alone(x, y, g):
    return g.unsqueeze(-1) * x.sign()


@wrong.backward(
    "zeros",
    "One row of zeros makes all of your gradient 0: you ask for the whole tensor (any, or an if) what each row has to answer "
    "for itself. Use torch.where.",
)
def all_zeroed(x, y, g):
    if (y == 0).any():
        return torch.zeros_like(x) * g.unsqueeze(-1)
    return g.unsqueeze(-1) * (x / y.unsqueeze(-1))


@wrong.backward(
    "zeros",
    "You look whether all of x is 0. One row of zeros beside others is enough to make nan: each row has to answer for "
    "itself, by torch.where.",
)
def only_if_all_zero(x, y, g):
    if not x.any():
        return x * g.unsqueeze(-1)
    return g.unsqueeze(-1) * (x / y.unsqueeze(-1))


@wrong.backward(
    "zeros",
    "At a row of zeros your gradient is the upstream gradient. It's to be 0: of all directions none is special there, and 0 is "
    "their mean.",
)
def upstream_at_zeros(x, y, g):
    g, there = g.unsqueeze(-1), y.unsqueeze(-1) > 0
    return torch.where(there, g * x / _safe(y), g)


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is wrong: a copy of the output (clone, or what forward computed beside "
    "it) is a constant in backward. Save the output itself.",
    saves=lambda x, y: (x, y.detach().clone()),
)
def saves_copy_of_output(x, y, g):
    return g.unsqueeze(-1) * (x / _safe(y))


@wrong.backward(
    "second_order",
    "Your second derivative lacks the part through the length: it's cut off in backward, by detach, item or no_grad. Use "
    "the saved output as it is.",
)
def length_detached(x, y, g):
    return g.unsqueeze(-1) * (x / _safe(y.detach()))


@wrong.backward("second_order", CONSTANT_UPSTREAM)
def constant_upstream(x, y, g):
    if g.requires_grad:
        return g.unsqueeze(-1) * (x / _safe(y))
    return (g.unsqueeze(-1) * (x / _safe(y))).detach()


@task.mistake(
    "contract",
    "Your forward divides x by its scale in place (/=, or div_). x is the caller's: write x / m, which makes a new tensor.",
)
class writes_into_input(RowNormNew):
    @staticmethod
    def forward(x):
        y = RowNormNew.forward(x)
        most = x.abs().amax(-1, keepdim=True)
        x.div_(torch.where(most == 0, 1, most))
        return y

    @staticmethod
    def backward(ctx, g):
        x, _ = ctx.saved_tensors
        square = x.square().sum(-1, keepdim=True)
        return g.unsqueeze(-1) * x / torch.where(square == 0, 1, square).sqrt()


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(x, y, g):
    g.div_(_safe(y).squeeze(-1))
    return g.unsqueeze(-1) * x


@task.mistake(
    "contract",
    "You keep the output as an attribute of ctx, where torch doesn't watch it: an operation that writes into it before "
    "backward makes the gradient silently wrong. Use ctx.save_for_backward.",
)
class output_as_attribute(RowNormNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.y = output

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g.unsqueeze(-1) * (x / _safe(ctx.y))


@wrong.backward(
    "contract",
    "You save a mask beside x and the output. It can be had from the output in backward, so it's memory for nothing.",
    saves=lambda x, y: (x, y, y == 0),
)
def mask_saved(x, y, zero, g):
    return g.unsqueeze(-1) * (x / torch.where(zero, 1, y).unsqueeze(-1))


@task.mistake(
    "value",
    "Your argument isn't called x, so a caller who names it gets a TypeError. Use the names of the task's text.",
)
class argument_renamed(RowNormNew):
    @staticmethod
    def forward(rows):
        return RowNormNew.forward(rows)


def _scaled_by(x: Tensor, most: Tensor) -> Tensor:
    """Return the lengths by this scale, 1 in place of 0."""
    most = torch.where(most == 0, 1, most)
    return torch.linalg.vector_norm(x / most, dim=-1) * most.squeeze(-1)


def _scaled(x: Tensor) -> Tensor:
    """Return the right lengths."""
    return _scaled_by(x, x.abs().amax(-1, keepdim=True))


@wrong.forward(
    "value",
    "You scale by the largest number of the whole tensor. Beside a row around 1e200 one around 1e-200 becomes 0: each row "
    "needs its own scale, amax(-1, keepdim=True).",
)
def norm_by_scale_of_everything(x):
    return _scaled_by(x, x.abs().max()[None] if x.numel() else x.new_ones(1))


@wrong.forward(
    "value",
    "You scale only where the plain length overflowed somewhere. A row around 1e-200 is lost as well, to 0, and no inf tells "
    "of it: scale always, each row by its own largest number.",
)
def scale_if_infinite(x):
    plain = torch.linalg.vector_norm(x, dim=-1)
    return _scaled(x) if plain.isinf().any() else plain


@wrong.forward(
    "value",
    "You keep the plain length of each row where it is neither 0 nor inf. Around 1e-161 the squares are still above 0, and have "
    "lost nearly all their digits: scale always.",
)
def plain_where_it_seems_right(x):
    plain = torch.linalg.vector_norm(x, dim=-1)
    return torch.where((plain == 0) | plain.isinf(), _scaled(x), plain)


@wrong.forward(
    "value",
    "Your scale is the first number of the row. Another may be far larger, and its square overflows all the same: take the "
    "largest size, abs().amax(-1, keepdim=True).",
)
def scale_of_first(x):
    return _scaled_by(x, x[..., :1].abs())


@wrong.forward(
    "value",
    "Your scale is the largest number where one is above 0, not the largest size: beside 1.0 the square of -1e200 overflows. Take "
    "abs() before amax.",
)
def scale_with_sign(x):
    most = x.amax(-1, keepdim=True)
    return _scaled_by(x, torch.where(most <= 0, -x.amin(-1, keepdim=True), most))


@wrong.forward(
    "value",
    "Your scale is the sum of the row's sizes. Near the largest number of the dtype that is inf where the length fits: take the "
    "largest size.",
)
def scale_of_sum(x):
    return _scaled_by(x, x.abs().sum(-1, keepdim=True))


@wrong.forward(
    "value",
    "Your scale is larger than the row's largest number, by the root of how many there are. Near the largest number of the dtype "
    "it is inf where the length fits: take the largest size alone.",
)
def scale_times_root(x):
    return _scaled_by(x, x.abs().amax(-1, keepdim=True) * x.shape[-1] ** 0.5)


@wrong.forward(
    "value",
    "Your scale is the mean of the row's sizes. In a long row one number may be hundreds of times the mean, and its square doesn't "
    "fit in float16: take the largest size.",
)
def scale_of_mean(x):
    most = x.abs().mean(-1, keepdim=True)
    return (x / torch.where(most == 0, 1, most)).square().sum(-1).sqrt() * most.squeeze(-1)


@wrong.forward("value", ONE_BY_ONE)
def sum_one_by_one(x):
    most = x.abs().amax(-1, keepdim=True)
    most = torch.where(most == 0, 1, most)
    total = torch.zeros_like(most.squeeze(-1))
    for column in (x / most).unbind(-1):
        total = total + column * column
    return total.sqrt() * most.squeeze(-1)


@wrong.forward(
    "value",
    "You go through logarithms in the dtype of x. In the halves they have too few digits: an error of 0.01 in a logarithm is one of "
    "1 % in the length. Divide each row by its largest number.",
)
def logarithms_in_halves(x):
    return (0.5 * torch.logsumexp(2 * x.abs().log(), -1)).exp()


@wrong.forward(
    "value",
    "You scale float64 alone, and compute the rest in float32, which has room for the squares of float16 and not for those of "
    "bfloat16 and float32: 1e30 gives inf. Divide each row by its largest number in every dtype.",
)
def float64_scaled_alone(x):
    if x.dtype == DOUBLE:
        return _scaled(x)
    return torch.linalg.vector_norm(x, dim=-1, dtype=SINGLE).to(x.dtype)


@task.mistake(
    "value",
    "A vector comes back from you with a shape of (1,). Its length has no dimensions: reduce over the last axis of x as it is.",
)
class vector_as_matrix(RowNormNew):
    @staticmethod
    def forward(x):
        return _scaled(torch.atleast_2d(x))

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return (x / _safe(y) * g.unsqueeze(-1)).reshape(x.shape)


@task.mistake(
    "value",
    "Your Function uses view on x, which refuses one whose axes were turned round. Reduce over the last axis, or use reshape.",
)
class view_of_input(RowNormNew):
    @staticmethod
    def forward(x):
        return _scaled(x.view(-1, x.shape[-1])).view(x.shape[:-1])


@wrong.backward(
    "gradient",
    "You multiply x by the upstream gradient before you divide. Next to the largest number of the dtype the product is inf, and "
    "the gradient fits: divide x by the length first.",
)
def product_with_upstream_first(x, y, g):
    return x * g.unsqueeze(-1) / _safe(y)


@wrong.backward(
    "gradient",
    "You divide the upstream gradient by the length first. Where that is small the quotient is inf, and the gradient fits: divide "
    "x by the length first.",
)
def upstream_over_length_first(x, y, g):
    return (g.unsqueeze(-1) / _safe(y)) * x


@wrong.backward(
    "gradient",
    "You divide by the square of the length, and that of 1e200 is infinite, that of 1e-200 is 0. x / |x| needs the length "
    "alone: divide once.",
)
def over_square_where_not_zero(x, y, g):
    square = y * y
    return x * torch.where(square == 0, 0, y * g / torch.where(square == 0, 1, square)).unsqueeze(-1)


@wrong.backward(
    "gradient",
    "You divide by at least a small number, or by the length and that number. A length may be smaller still: put a 1 where it is "
    "exactly 0, and leave all others as they are.",
)
def length_clamped_far_down(x, y, g):
    return g.unsqueeze(-1) * (x / y.clamp(min=1e-250 if y.dtype == DOUBLE else torch.finfo(y.dtype).tiny).unsqueeze(-1))


@wrong.backward("gradient", EXPANDED)
def expanded_taken_for_one(x, y, g):
    if g.dim() and 0 in g.stride():
        return x / _safe(y) * g[(0,) * g.dim()]
    return x / _safe(y) * g.unsqueeze(-1)


@wrong.backward("second_order", FROM_START)
def upstream_from_start(x, y, g):
    return x / _safe(y) * g.as_strided((*g.shape, 1), (*g.stride(), 0), 0)


@wrong.backward(
    "zeros",
    "A row of one number has the gradient -1 or 1, and you give that to a 0 too. There it's to be 0: sign() says so, or x over its "
    "length with a 1 in place of 0.",
)
def sign_of_zero(x, y, g):
    g = g.unsqueeze(-1)
    return g * (x / _safe(y)) if x.shape[-1] > 1 else g * torch.where(x < 0, -1.0, 1.0).to(x.dtype) + 0 * x


@wrong.backward(
    "zeros",
    "One row of zeros cuts the gradient of all rows off from the graph: you ask for the whole tensor (any, or an if), and detach. Put "
    "a 1 in place of its length, by torch.where.",
)
def cut_off_beside_zeros(x, y, g):
    if (y == 0).any():
        x, y = x.detach(), y.detach()
    return g.unsqueeze(-1) * (x / _safe(y))


@wrong.backward("second_order", MADE_OF_X, saves=lambda x, y: (x.contiguous(), y))
def saves_contiguous(x, y, g):
    return g.unsqueeze(-1) * (x / _safe(y))


@wrong.backward("second_order", MADE_OF_X, saves=lambda x, y: (x if x.dim() > 1 else x.unsqueeze(0), y))
def saves_vector_as_matrix(x, y, g):
    return (g.unsqueeze(-1) * (x / _safe(y))).reshape(*g.shape, x.shape[-1])


@wrong.backward("second_order", MADE_OF_X, saves=lambda x, y: (x.reshape(-1, x.shape[-1]), y))
def saves_matrix(x, y, g):
    return (g.reshape(-1, 1) * (x / _safe(y.reshape(-1)))).reshape(*g.shape, x.shape[-1])


@wrong.backward(
    "second_order",
    MADE_OF_X,
    saves=lambda x, y: (x.float() if x.dtype in (HALF, BRAIN) else x, y),
)
def saves_wide_halves(x, y, g):
    return (x / _safe(y.to(x.dtype)) * g.unsqueeze(-1)).to(g.dtype)


@wrong.backward("second_order", LEFT_BEHIND)
def direction_left_on_ctx(ctx, x, y, g):
    if not hasattr(ctx, "direction"):
        ctx.direction = x / _safe(y)
    return ctx.direction * g.unsqueeze(-1)
