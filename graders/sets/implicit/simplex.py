"""Simplex: the nearest point with shares that sum to 1, differentiated where it lies."""

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.aspects import WATCHED, contract, gradient, second_order, value
from graders.judge.looks import Finding
from graders.judge.task import DOUBLE, SINGLE, Check, Draw, Task
from graders.judge.wrong import Wrong
from graders.sets.implicit.common import AUTOGRAD, CONTRACT, DTYPES, GRADIENT, NO_FUNCTION, SECOND, VALUE, named

PLACE = 2
INF = float("inf")


def _simplex(x: Tensor) -> Tensor:
    """Return the projection of each row: who is in decides the threshold, and the threshold alone is differentiated."""
    wide = x.double() - x.detach().double().amax(-1, keepdim=True)
    with torch.no_grad():
        low, high = torch.full_like(wide[..., :1], -1), torch.zeros_like(wide[..., :1])
        for _ in range(70):
            middle = (low + high) / 2
            above = (wide - middle).clamp(min=0).sum(-1, keepdim=True) > 1
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        inside = wide > high
    tau = (torch.where(inside, wide, 0).sum(-1, keepdim=True) - 1) / inside.sum(-1, keepdim=True)
    return torch.where(inside, wide - tau, 0).to(x.dtype)


def row(*numbers: float, dtype: torch.dtype = DOUBLE) -> Tensor:
    """Return a vector of these numbers."""
    return torch.tensor(numbers, dtype=dtype)


def spread(d: Draw, *shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
    """Draw rows of which some elements are in, and some are out."""
    return d.between(-0.6, 0.9, *shape, dtype=dtype)


def _supports(d: Draw) -> Tensor:
    """Return rows of six with one element in, two, three, four, five and six: the rest is far enough below."""
    rows = d.between(-0.06, 0.06, 6, 6)
    for i in range(6):
        rows[i, torch.randperm(6, generator=d.random)[: 5 - i]] -= 1.5
    return rows


def _forms(d: Draw, order: int) -> list[Case]:
    """Return cases of both dtypes, and of every shape and layout."""
    inputs = [(f"a {named(t)} input", spread(d, 3, 5, dtype=t)) for t in DTYPES] + [
        ("a vector", spread(d, 5)),
        ("as many rows as columns", spread(d, 4, 4)),
        ("one column", spread(d, 3, 1)),
        ("no rows", spread(d, 0, 3)),
        ("no rows in three dimensions", spread(d, 2, 0, 3)),
        ("no pages in three dimensions", spread(d, 0, 2, 3)),
        ("a 3-d input", spread(d, 2, 3, 5)),
        ("a 3-d input, all in", d.between(0, 0.1, 2, 3, 4)),
        ("a 4-d input", spread(d, 2, 2, 1, 3)),
        ("a transposed input", spread(d, 5, 3).t()),
        ("every second row", spread(d, 4, 5)[::2]),
        ("an expanded input", spread(d, 1, 5).expand(3, 5)),
        ("from one element in to all six", _supports(d)),
        ("all elements above 0", d.between(0.1, 0.9, 3, 5)),
        ("all elements below 0", d.between(-0.9, -0.1, 3, 5)),
        ("a row that sums to less than 1", d.between(0.01, 0.1, 2, 5)),
    ]
    return [d.case(name, x, order=order) for name, x in inputs]


def _known(order: int, d: Draw) -> list[Case]:
    """Return cases that are easy to work out: points that lie there already, equal elements, and a small share."""
    return [
        d.case("equal elements", row(0.3, 0.3, 0.3, 0.3), order=order),
        d.case("the two largest are equal", row(0.7, -0.4, 0.7, 0.1), order=order),
        d.case("a point that lies there already", row(0.2, 0.5, 0.3), order=order),
        d.case("a share of 0.002", row(0.002, 0.6, 0.398, -0.7) + d.between(-0.5, 0.5, 1), order=order),
        d.case("a share of 1e-7", row(0.25, 0.25 - 1 + 2e-7, -0.9), order=order),
        d.case("shares of 1e-7 in two rows", torch.stack([row(0.4, 2e-7 - 0.6), row(2e-7 - 0.2, 0.8)]), order=order),
        d.case("float32, a share of 5e-6", row(0.0, 1e-5 - 1, -2.0, dtype=SINGLE), order=order),
        d.case("a lead of 0.95", row(0.95, 0.0, -0.3), order=order),
        d.case("nearly shares already", row(0.25, 0.5, 0.250005), order=order),
        d.case("a long row, all in", d.between(0.2, 0.205, 70), order=order),
        d.case("a long row, some in", _steep(d), order=order),
    ]


def _steep(d: Draw) -> Tensor:
    """Return a row of 80 of which nine are in, and the others leave a few at a time."""
    return (0.3 - (torch.arange(1, 81, dtype=DOUBLE) / 80).sqrt())[torch.randperm(80, generator=d.random)]


def _far(d: Draw, order: int) -> list[Case]:
    """Return cases where a sum of the elements has lost the digits that decide, and of -inf."""
    levels = torch.tensor([[1e4], [0.0], [-1e4]], dtype=DOUBLE)
    none = torch.stack([row(-INF, 0.4, 0.1, -INF), row(0.2, -INF, -INF, -0.3), row(-INF, -INF, -INF, 2.0)])
    return [
        d.case("rows around 10000, 0 and -10000", levels + spread(d, 3, 5), order=order),
        *(
            d.case(f"float32 around {n:g}", (n + spread(d, 6, 7)).float(), order=order)
            for n in (200, 800, 1000, -1000, 1e4)
        ),
        d.case("float32, rows far apart", (levels + spread(d, 3, 5)).float(), order=order),
        d.case("one element far above", row(-3e4, 1e4, 2e3, 9e3), order=order),
        d.case("1e30", row(1e30, 1e30, -1e30, 0.0), order=order),
        d.case("3e29 below 1e30", row(3e29, 1e30, 0.0), order=order),
        d.case("-inf", none, order=order),
        d.case("float32, -inf", none.float(), order=order),
        d.case("-inf, and nothing else above -1e30", row(-INF, -1e30, -INF, -1e30), order=order),
    ]


def nothing_for_losers(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether those that are out have exactly 0: a backward that asks who is above 0 believes it."""
    for a, b in zip(yours.outputs, expected.outputs, strict=True):
        if (some := (b == 0) & (a != 0)).any():
            index = tuple(some.nonzero()[0].tolist())
            text = f"The share at index {index} is not 0, though the element is out: it should be exactly 0."
            evidence = {"case": look.describe(call, case), "yours": look.number(a[index]), "expected": "0"}
            return Finding("value", text, evidence)
    return None


task = Task(
    "Simplex",
    "Simplex.apply(x)",
    reference=_simplex,
    checks=(
        value(
            1,
            about="the nearest point of the simplex, for each row, with one element in or all of them",
            why="Each row of the result has elements of 0 or more, sums to 1, and no other such row is as near to x.",
            cases=lambda d: [
                *_forms(d, order=0),
                *_known(0, d),
                *d.lopsided(lambda x: (x,), 5, order=0),
                d.case("x by keyword", spread(d, 2, 3), keywords=("x",), order=0),
            ],
            looks=(*VALUE, nothing_for_losers),
        ),
        gradient(
            1,
            about="the gradient is that of the elements that are in, and gradcheck passes",
            why="Among those that are in, only differences count, and those that are out don't move.",
            cases=lambda d: [
                *_forms(d, order=1),
                *_known(1, d),
                *d.lopsided(lambda x: (x,), 5),
                d.case("upstream of every size", spread(d, 3, 4), upstream=d.scales(3, 4)),
                d.case("expanded upstream", spread(d, 2, 4), upstream=d.normal(2, 1).expand(2, 4)),
                d.case("transposed upstream", spread(d, 3, 4), upstream=d.normal(4, 3).t()),
                d.case("1e12 upstream of one that is out", row(0.5, 0.3, -1.0), upstream=row(1.1, 5.3, 1e12)),
            ],
            looks=GRADIENT,
            gradcheck=lambda d: (_supports(d),),
        ),
        Check(
            "extremes",
            1,
            about="elements of 10000 and -10000, rows far apart, 1e30 and -inf: value and gradient",
            why="The same number added to a row changes nothing: take the row's maximum off before you add anything up.",
            cases=lambda d: _far(d, order=1),
            looks=(*VALUE, *GRADIENT[4:]),
        ),
        second_order(
            1,
            about="the gradient can be differentiated again, by the upstream gradient too",
            why="The mean that you subtract is made of the upstream gradient, so it has to stay in its graph.",
            cases=lambda d: [
                d.case("rows", spread(d, 3, 4), order=2),
                d.case("a vector", spread(d, 5), order=2),
                d.case("from one element in to all six", _supports(d), order=2),
                d.case("float32", spread(d, 2, 5, dtype=SINGLE), order=2),
                d.case("a 3-d input", spread(d, 2, 2, 4), order=2),
                *d.lopsided(lambda x: (x,), 5, order=2),
            ],
            looks=SECOND,
            gradcheck=lambda d: (_supports(d)[1:4],),
        ),
        contract(
            1,
            about="the output is kept and no other tensor; nobody's tensors are changed or given back",
            why="The output says who is in; the next operation keeps it anyway.",
            cases=lambda d: [
                d.case("rows", spread(d, 3, 5), watch=WATCHED),
                d.case("more rows", spread(d, 4, 6), watch=WATCHED),
                d.case("float32", spread(d, 4, 6, dtype=SINGLE), watch=WATCHED),
                d.case("a transposed input", spread(d, 6, 4).t(), watch=WATCHED),
                d.case("a vector", spread(d, 6), watch=WATCHED),
                d.case("points that lie there already", torch.eye(3, 4, dtype=DOUBLE) * 0.5 + 0.125, watch=WATCHED),
            ],
            looks=(*CONTRACT, look.keeps_nothing),
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class SimplexNew(Function):
    """Sorts each row: the largest k are in, for the largest k that leaves them all above 0. The one to write."""

    @staticmethod
    def forward(x):
        z = x - x.amax(-1, keepdim=True)
        largest = z.sort(-1, descending=True).values
        k = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        excess = largest.cumsum(-1) - 1
        count = (k * largest > excess).sum(-1, keepdim=True)
        tau = excess.gather(-1, count - 1) / count
        return (z - tau).clamp(min=0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        inside = y > 0
        mean = torch.where(inside, g, 0).sum(-1, keepdim=True) / inside.sum(-1, keepdim=True)
        return torch.where(inside, g - mean, 0)


@task.solution
class SimplexByHalving(Function):
    """Halves the interval that the threshold lies in: no sort, for rows so long that sorting takes the time."""

    @staticmethod
    def forward(ctx, x):
        z = x - x.amax(-1, keepdim=True)
        low = torch.full_like(z[..., :1], -1)
        high = torch.zeros_like(low)
        for _ in range(60):
            middle = (low + high) / 2
            above = (z - middle).clamp(min=0).sum(-1, keepdim=True) > 1
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        inside = z > high
        tau = (z.masked_fill(~inside, 0).sum(-1, keepdim=True) - 1) / inside.sum(-1, keepdim=True)
        y = (z - tau).clamp(min=0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        inside = (y > 0).to(y.dtype)
        mean = (grad_output * inside).sum(-1, keepdim=True) / inside.sum(-1, keepdim=True)
        return inside * (grad_output - mean)


@task.solution
class SimplexByNewton(Function):
    """Newton's method for the threshold: drop who is below 0, share anew, until nobody is. Few rounds, and no sort."""

    @staticmethod
    def forward(x):
        z = x - x.amax(-1, keepdim=True)
        inside = z > -1
        for _ in range(x.shape[-1]):
            tau = (z.masked_fill(~inside, 0).sum(-1, keepdim=True) - 1) / inside.sum(-1, keepdim=True)
            fewer = inside & (z > tau)
            if torch.equal(fewer, inside):
                break
            inside = fewer
        return (z - tau).clamp(min=0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        outside = y == 0
        kept = g.masked_fill(outside, 0)
        count = (~outside).sum(-1, keepdim=True)
        return (kept - kept.sum(-1, keepdim=True) / count).masked_fill(outside, 0)


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class SimplexThroughItself(SimplexNew):
    """Its gradient is written as a sign: the sign of a share is 1 inside and 0 outside."""

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        inside = y.sign()
        centred = g - torch.einsum("...i,...i->...", g, inside).unsqueeze(-1) / inside.sum(-1, keepdim=True)
        return torch.mul(inside, centred)


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class Shares(Function):
    """A right Simplex in steps, for the wrong ones to change one of them."""

    @staticmethod
    def shift(x: Tensor) -> Tensor:
        """Return what a row is moved by."""
        return x.amax(-1, keepdim=True)

    @staticmethod
    def tau(z: Tensor) -> Tensor:
        """Return the threshold of each row."""
        largest = z.sort(-1, descending=True).values
        k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
        excess = largest.cumsum(-1) - 1
        count = (k * largest > excess).sum(-1, keepdim=True)
        return excess.gather(-1, count - 1) / count

    @staticmethod
    def cut(z: Tensor, tau: Tensor) -> Tensor:
        """Return the shares."""
        return (z - tau).clamp(min=0)

    @classmethod
    def solve(cls, x: Tensor) -> Tensor:
        """Return the projection."""
        z = x - cls.shift(x)
        return cls.cut(z, cls.tau(z))

    @classmethod
    def forward(cls, x):
        return cls.solve(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def support(y: Tensor) -> Tensor:
        """Return who is in."""
        return y > 0

    @staticmethod
    def mean(inside: Tensor, g: Tensor) -> Tensor:
        """Return the mean of the upstream gradient over those that are in."""
        return torch.where(inside, g, 0).sum(-1, keepdim=True) / inside.sum(-1, keepdim=True)

    @classmethod
    def backward(cls, ctx, g):
        (y,) = ctx.saved_tensors
        inside = cls.support(y)
        return torch.where(inside, g - cls.mean(inside, g), 0)


wrong = Wrong(task, of=Shares)
plain = Wrong(task, of=SimplexNew)  # for what is done around forward


@wrong.backward(
    "gradient",
    "You subtract the mean over the whole row. Only those that are in share the sum of 1: take the mean over them alone.",
)
def mean_over_all(y, g):
    return torch.where(y > 0, g - g.mean(-1, keepdim=True), 0)


@wrong.backward(
    "gradient",
    "You pass the upstream gradient on where the output is above 0, as a ReLU does. But the shares still sum to 1: when "
    "one grows, the others shrink. Subtract the mean over those that are in.",
)
def mean_missing(y, g):
    return torch.where(y > 0, g, 0)


@wrong.backward(
    "gradient",
    "Those that are out get minus the mean. They don't move, and their gradient is 0: choose after the subtraction, not "
    "before.",
)
def outside_not_zero(y, g):
    inside = y > 0
    return torch.where(inside, g, 0) - Shares.mean(inside, g)


@wrong.backward(
    "gradient",
    "Your gradient is that of softmax, p (g - sum of p g). This is another function: inside its support it is linear, and "
    "its gradient is g minus a mean in which each counts alike.",
)
def softmax_gradient(y, g):
    return y * (g - (y * g).sum(-1, keepdim=True))


@wrong.step(
    "mean",
    "gradient",
    "Your sum goes over those that are in, and is divided by the length of the row. Divide by how many are in.",
)
def divided_by_all(inside, g):
    return torch.where(inside, g, 0).sum(-1, keepdim=True) / g.shape[-1]


@task.mistake(
    "value",
    "Your output is a softmax. It sums to 1 as well, but no element of it is 0: asked for is the nearest point.",
)
class softmax_instead(Shares):
    @staticmethod
    def forward(x):
        return torch.softmax(x, -1)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * (g - (y * g).sum(-1, keepdim=True))


@wrong.forward(
    "value",
    "You cut off what is below 0 and divide by the sum. The result sums to 1, and is not the nearest point: subtract one number "
    "from all, so that what is left above 0 sums to 1.",
)
def clamped_and_divided(x):
    y = x.clamp(min=0)
    return y / y.sum(-1, keepdim=True).clamp(min=1e-12)


@wrong.step(
    "tau",
    "value",
    "You share the difference from 1 among all elements of a row and then cut off what is below 0: what is left sums to more "
    "than 1. Share it among those that stay.",
)
def shared_among_all(z):
    return (z.sum(-1, keepdim=True) - 1) / z.shape[-1]


@wrong.step(
    "cut",
    "value",
    "You subtract the threshold, and leave what falls below 0 as it is. Those elements are out: set them to 0.",
)
def not_cut_off(z, tau):
    return z - tau


@wrong.step(
    "cut",
    "value",
    "Those that are out get a tiny share, where 0 is asked for, and your backward then takes them for in. Cut off at 0: clamp(min=0).",
)
def losers_not_zero(z, tau):
    return (z - tau).clamp(min=1e-12)


@wrong.step(
    "tau",
    "value",
    "You sort along the first axis: sort(0). A row lies along the last one: sort(-1).",
)
def sorted_along_the_first_axis(z):
    largest = z.sort(0, descending=True).values
    k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    excess = largest.cumsum(-1) - 1
    count = (k * largest > excess).sum(-1, keepdim=True)
    return excess.gather(-1, count - 1) / count


@wrong.step(
    "tau",
    "value",
    "Your loop ends as soon as one row has nobody left to drop, and the others are not there yet. Ask whether all rows have.",
)
def stops_at_the_first_row(z):
    inside = z > -1
    for _ in range(z.shape[-1] + 1):
        tau = (torch.where(inside, z, 0).sum(-1, keepdim=True) - 1) / inside.sum(-1, keepdim=True)
        fewer = z > tau
        if (fewer == inside).all(-1).any():
            break
        inside = fewer
    return tau


@wrong.step(
    "solve",
    "value",
    "A row whose sum is nearly 1 comes back as it is: allclose takes 1.000005 for 1. Leave the exception out, such a row is no case "
    "of its own.",
)
def nearly_shares_returned(x):
    there = x.numel() and (x >= 0).all() and torch.allclose(x.sum(-1), torch.ones_like(x.sum(-1)))
    return x.clone() if there else Shares.solve(x)


@wrong.forward(
    "value",
    "Your rows are columns: you work along the first axis. A row lies along the last one, dim=-1.",
)
def along_the_first_axis(x):
    return Shares.solve(x.movedim(0, -1)).movedim(-1, 0)


@wrong.forward(
    "value",
    "You project the whole tensor as one row: all of it together sums to 1. Each row has a sum of its own.",
)
def one_row(x):
    return Shares.solve(x.reshape(1, -1)).reshape(x.shape) if x.numel() else x.clone()


@wrong.step(
    "tau",
    "value",
    "You sort upwards: sort does so by itself. The largest come first: say descending=True.",
)
def sorted_upwards(z):
    smallest = z.sort(-1).values
    k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    excess = smallest.cumsum(-1) - 1
    count = (k * smallest > excess).sum(-1, keepdim=True).clamp(min=1)
    return excess.gather(-1, count - 1) / count


@wrong.step(
    "tau",
    "value",
    "Your k begins at 0: the largest element alone is k = 1. Take arange(1, n + 1).",
)
def counted_from_zero(z):
    largest = z.sort(-1, descending=True).values
    k = torch.arange(z.shape[-1], dtype=z.dtype)
    excess = largest.cumsum(-1) - 1
    count = (k * largest > excess).sum(-1, keepdim=True).clamp(min=1)
    return excess.gather(-1, count - 1) / count


@wrong.step(
    "tau",
    "value",
    "Your sum lacks the 1: the threshold is (sum - 1) / k. Without it the shares sum to 0.",
)
def one_missing(z):
    largest = z.sort(-1, descending=True).values
    k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    count = (k * largest > largest.cumsum(-1) - 1).sum(-1, keepdim=True)
    return largest.cumsum(-1).gather(-1, count - 1) / count


@wrong.step(
    "tau",
    "value",
    "You look up the sum at k, and places are counted from 0: the sum of the k largest stands at k - 1.",
)
def one_place_late(z):
    largest = z.sort(-1, descending=True).values
    k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    excess = largest.cumsum(-1) - 1
    count = (k * largest > excess).sum(-1, keepdim=True)
    return excess.gather(-1, count.clamp(max=z.shape[-1] - 1)) / count


@wrong.step(
    "tau",
    "value",
    "You drop those below 0 once, and share among the rest. Some of these then fall below 0 themselves: repeat until none "
    "does, or sort.",
)
def dropped_once(z):
    inside = z > (z.sum(-1, keepdim=True) - 1) / z.shape[-1]
    return (torch.where(inside, z, 0).sum(-1, keepdim=True) - 1) / inside.sum(-1, keepdim=True)


@wrong.forward(
    "value",
    "You take for granted that elements above 0 are in and the others out. Who is in depends on the row: the same number added "
    "to all of it changes nothing.",
)
def positive_ones_in(x):
    inside = x > 0
    tau = (torch.where(inside, x, 0).sum(-1, keepdim=True) - 1) / inside.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(inside, (x - tau).clamp(min=0), 0)


@wrong.forward(
    "value",
    "A row that sums to less than 1 comes back as it is. The sum has to be 1 exactly: such a row moves up.",
)
def at_most_one(x):
    small = (x.clamp(min=0).sum(-1, keepdim=True) <= 1).expand(x.shape)
    return torch.where(small, x.clamp(min=0), Shares.solve(x))


@wrong.forward(
    "value",
    "Your rows are all 0 but for a 1 at the largest element. That is the nearest corner; the nearest point lies between the "
    "corners, where the largest elements are near each other.",
)
def largest_alone(x):
    return torch.zeros_like(x).scatter(-1, x.argmax(-1, keepdim=True), 1.0)


@wrong.step(
    "tau",
    "value",
    "You halve the interval ten times: that is three digits. Halve it sixty times, or compute the threshold from those that "
    "are in.",
)
def halved_ten_times(z):
    low = torch.full_like(z[..., :1], -1)
    high = torch.zeros_like(low)
    for _ in range(10):
        middle = (low + high) / 2
        above = (z - middle).clamp(min=0).sum(-1, keepdim=True) > 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return (low + high) / 2


@wrong.forward(
    "value",
    "Your forward takes two dimensions for granted, and a vector is one row: work along dim=-1, and take the length "
    "from x.shape[-1].",
)
def two_dimensions_alone(x):
    _, n = x.shape
    return Shares.solve(x.reshape(-1, n))


plain.habits(
    "float32_inside",
    float32_and_back="You compute in float32 and cast back: for float64 input half of the digits are lost, and gradcheck fails. "
    "Compute in the dtype of x.",
)


@wrong.backward(
    "gradient",
    "You subtract the mean everywhere, as if all elements were in. Those at 0 don't move: find out who is in first.",
)
def everybody_in(y, g):
    return g - g.mean(-1, keepdim=True)


@wrong.step(
    "mean",
    "gradient",
    "You subtract the sum over those that are in, not their mean: divide by how many they are.",
)
def sum_for_mean(inside, g):
    return torch.where(inside, g, 0).sum(-1, keepdim=True)


@wrong.backward(
    "gradient",
    "Your mean is weighted with the shares. In it each one that is in counts alike, however small its share.",
)
def weighted_mean(y, g):
    return torch.where(y > 0, g - (y * g).sum(-1, keepdim=True), 0)


@wrong.step(
    "mean",
    "gradient",
    "You divide by how many are in, in all rows together: sum() without a dimension counts the whole tensor. Count each row: "
    "sum(-1, keepdim=True).",
)
def counted_in_all_rows(inside, g):
    return torch.where(inside, g, 0).sum(-1, keepdim=True) / inside.sum()


@wrong.backward(
    "gradient",
    "Your mean is right, and you subtract it everywhere: those that are out get their upstream gradient minus it. They don't move, "
    "and their gradient is 0.",
)
def losers_keep_theirs(y, g):
    return g - Shares.mean(y > 0, g)


@wrong.backward(
    "gradient",
    "Your sum over those that are in is the sum over all, minus that over those that are out: large upstream gradients of these cancel, "
    "and take the digits with them. Add up those that are in.",
)
def sum_of_all_less_losers(y, g):
    out = y == 0
    rest = g.sum(-1, keepdim=True) - (g * out).sum(-1, keepdim=True)
    return torch.where(out, 0, g - rest / (~out).sum(-1, keepdim=True))


@wrong.step(
    "mean",
    "gradient",
    "Your mean is one number for the whole tensor: sum() without a dimension adds up the rows as well. Sum over dim=-1, with "
    "keepdim=True.",
)
def one_mean(inside, g):
    return torch.where(inside, g, 0).sum() / inside.sum()


@wrong.step(
    "mean",
    "gradient",
    "Your mean lacks keepdim=True: one number a row, in a shape that meets the columns when you subtract it.",
)
def mean_without_keepdim(inside, g):
    return torch.where(inside, g, 0).sum(-1) / inside.sum(-1)


@wrong.backward(
    "gradient",
    "You take those for in whose x is above 0. Where the row lies doesn't matter, and its output shows who is in: save that.",
    saves=lambda x, y: (x,),
)
def support_of_the_input(x, g):
    inside = x > 0
    mean = torch.where(inside, g, 0).sum(-1, keepdim=True) / inside.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(inside, g - mean, 0)


@wrong.step(
    "support",
    "gradient",
    "You take shares below 0.01 for 0. Those that are out are 0 exactly: compare with 0.",
)
def small_shares_out(y):
    return y > 0.01


@wrong.step(
    "support",
    "gradient",
    "You take tiny shares for 0: above a bound of yours they are in, below it out. Those that are out are 0 exactly: compare with 0.",
)
def tiny_shares_out(y):
    return y > 1e-6


@wrong.step(
    "support",
    "gradient",
    "You take shares as small as a multiple of eps for 0. Those that are out are 0 exactly, and a share of that size is still "
    "a share: compare with 0.",
)
def shares_of_eps_out(y):
    return y > 100 * torch.finfo(y.dtype).eps


@wrong.backward(
    "gradient",
    "Your gradient is p (1 - p) times the upstream gradient, the slope of a sigmoid. Here a share's slope by its own element is "
    "1 - 1 / k, with k elements in.",
)
def diagonal_of_softmax(y, g):
    return y * (1 - y) * g


@wrong.backward(
    "gradient",
    "Your gradient has the slope of each share by its own element, 1 - 1 / k, and nothing of the others. Each element moves all "
    "shares that are in: subtract the mean of their upstream gradients.",
)
def diagonal_alone(y, g):
    inside = y > 0
    return torch.where(inside, g * (1 - 1 / inside.sum(-1, keepdim=True)), 0)


@wrong.backward(
    "gradient",
    "Your gradient is made in a tensor of zeros that is float32: torch.zeros(shape) makes it so, and for float64 half of the "
    "digits are lost. Take torch.zeros_like.",
)
def buffer_in_float32(y, g):
    grad = torch.zeros(y.shape)
    inside = y > 0
    grad[inside] = (g - Shares.mean(inside, g))[inside].float()
    return grad.to(y.dtype)


wrong.habits(
    "zeros_returned nothing_returned one_too_many view_needed",
    upstream_unchanged="Your gradient is the upstream gradient as it came. Those that are out don't move, and of the others only "
    "differences count: subtract their mean.",
    sign_flipped="Your gradient has the wrong sign: it is g minus the mean, not the mean minus g.",
    no_function=NO_FUNCTION,
    autograd_in_backward=AUTOGRAD,
)

plain.habits("not_differentiable_twice")


@wrong.step(
    "mean",
    "second_order",
    "Your mean is a constant for the second derivative: detach, item or no_grad cuts it off. It is made of the upstream gradient: "
    "leave it a tensor in its graph.",
)
def mean_detached(inside, g):
    return Shares.mean(inside, g).detach()


@wrong.step(
    "shift",
    "extremes",
    "You add up the elements as they are. Around 10000 a sum in float32 has three digits after the point left, and the "
    "shares no more: subtract the maximum of the row first.",
)
def no_shift(x):
    return torch.zeros_like(x[..., :1])


@wrong.step(
    "shift",
    "extremes",
    "You subtract the mean of the finite elements of a row. That may lie far from the largest ones, as with 1e30 and -1e30, and the sum "
    "then has no digits left for the 1: subtract the maximum.",
)
def shift_by_the_finite_mean(x):
    return torch.where(x > -1e308, x, 0).mean(-1, keepdim=True)


@wrong.step(
    "solve",
    "extremes",
    "You limit x to 100000 or more before you begin: elements beyond become equal, and share alike. Subtracting the maximum of the row "
    "is enough for any of them.",
)
def input_limited_far_out(x):
    return Shares.solve(x.clamp(-1e6, 1e6))


@wrong.step(
    "solve",
    "extremes",
    "You put a finite number in the place of -inf. In a row that lies below it these elements win: leave -inf as it is, it is out of "
    "every sum that you choose by torch.where.",
)
def infinity_replaced(x):
    return Shares.solve(x.masked_fill(x == -INF, -1e9))


@wrong.step(
    "shift",
    "extremes",
    "You subtract the maximum of the whole tensor. A row far below it then has few digits left: each row needs the maximum "
    "of its own.",
)
def shift_of_everything(x):
    return torch.full_like(x[..., :1], x.max().item() if x.numel() else 0.0)


@wrong.step(
    "shift",
    "extremes",
    "You subtract the mean of the row, and that is -inf where an element is, or far from the largest ones: subtract the "
    "maximum.",
)
def shift_by_the_mean(x):
    return x.mean(-1, keepdim=True)


@wrong.step(
    "solve",
    "extremes",
    "You limit x to 100 either way before you begin: larger elements then become equal, and share alike. Subtract the maximum of the "
    "row in place of that.",
)
def input_limited(x):
    x = x.clamp(-100, 100)
    return Shares.solve(x)


@wrong.step(
    "tau",
    "extremes",
    "You choose who is in by multiplying with 0 and 1. An element of -inf times 0 is nan: choose with torch.where or masked_fill.",
)
def chosen_by_product(z):
    largest = z.sort(-1, descending=True).values
    k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    inside = k * largest > largest.cumsum(-1) - 1
    return ((largest * inside).sum(-1, keepdim=True) - 1) / inside.sum(-1, keepdim=True)


@wrong.backward(
    "contract",
    "You keep the mask of who is in. The output says that too, and the next operation keeps it anyway: save the output, and "
    "compare it with 0.",
    saves=lambda x, y: (y > 0,),
)
def mask_kept(inside, g):
    return torch.where(inside, g - Shares.mean(inside, g), 0)


@wrong.backward(
    "contract",
    "You keep a tensor more than the output, of the size of x: the sorted row, or the shifted one. Backward can do without it.",
    saves=lambda x, y: (y, x - x.amax(-1, keepdim=True)),
)
def one_more_kept(y, _, g):
    inside = y > 0
    return torch.where(inside, g - Shares.mean(inside, g), 0)


@wrong.backward(
    "contract",
    "You keep a copy of the output. Save the output itself: somebody holds that anyway.",
    saves=lambda x, y: (y.clone(),),
)
def copy_kept(y, g):
    inside = y > 0
    return torch.where(inside, g - Shares.mean(inside, g), 0)


@wrong.backward(
    "contract",
    "You save the output made float64. For a float32 input that is another tensor, twice as large: save the output itself.",
    saves=lambda x, y: (y.double(),),
)
def saved_in_float64(y, g):
    inside = y > 0
    return torch.where(inside, g - Shares.mean(inside, g), 0)


@wrong.backward(
    "contract",
    "You save what contiguous() gives. Where the output is not contiguous, as for a transposed input, that is a copy: save the output "
    "itself.",
    saves=lambda x, y: (y.contiguous(),),
)
def saved_contiguous(y, g):
    inside = y > 0
    return torch.where(inside, g - Shares.mean(inside, g), 0)


@wrong.step(
    "solve",
    "contract",
    "A row that lies on the simplex already comes back as the caller's own tensor: who changes one changes the other. Return a new "
    "one.",
)
def x_returned(x):
    there = x.numel() and (x >= 0).all() and (x.sum(-1) == 1).all()
    return x if there else Shares.solve(x)


plain.habits(
    "writes_into_upstream",
    writes_into_input="Your forward works in x itself, with sub_ or clamp_: the caller's tensor is overwritten. Write x - ..., a "
    "new tensor.",
    kept_as_attribute="You keep the output as an attribute of ctx, where torch does not watch it: when it is changed in place "
    "before backward, the gradient is silently wrong. Use ctx.save_for_backward.",
    kept_outside_ctx="You keep the output outside ctx, on the class or in a global: a second call overwrites it before the first "
    "one's backward. Use ctx.save_for_backward.",
)
