"""PackedLeakyReLU: which side of the kink each number was on, kept in one bit."""

from typing import ClassVar

import numpy
import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.aspects import GRADIENT, VALUE, WATCHED, gradient, second_order, value
from graders.judge.looks import Finding
from graders.judge.outside import Outside
from graders.judge.task import BRAIN, DOUBLE, DTYPES, HALF, MASKS, SINGLE, Check, Draw, Task
from graders.judge.wording import MASK_MULTIPLIED, VIEW_NEEDED, WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong

PLACE = 1
SLOPE = 0.1
INF = float("inf")
MANY = 6 << 20  # so many numbers that a byte for each stands out in a process's memory
RAGGED = (1, 2, 7, 9, 15, 17, 23)
LONG = 5003  # more than bfloat16, float16 or a byte can count, and no multiple of 8
# in float32 all of these are 0; times the slope of their case the smallest are what they are
TINY = torch.tensor([5e-324, -5e-324, 1e-310, -1e-310, 1e-250, -1e-250, 1e-60, -1e-60], dtype=DOUBLE)


def named(dtype: torch.dtype) -> str:
    """Return a dtype's name without torch's."""
    return str(dtype).removeprefix("torch.")


def _kinks(d: Draw) -> list[Case]:
    """Return cases at 0, of slopes of every kind, and of upstream gradients of every size, infinite ones too."""
    kink = torch.tensor([-1.0, -0.0, 0.0, 1.0, 0.0, -2.0, 2.0, -0.0], dtype=DOUBLE)
    ends = torch.tensor([INF, -INF, 1e4, -1e4, INF, -INF, 1.0, INF], dtype=DOUBLE)
    return [
        *(
            d.case(f"{named(t)}, at 0", kink.to(t), SLOPE, upstream=d.sides(8, away=0.25, reach=1).to(t))
            for t in DTYPES
        ),
        d.case("at 0, slope 3", kink, 3.0),
        d.case("upstream gradients of every size", d.scales(16), SLOPE, upstream=d.scales(16)),
        d.case("infinite upstream gradients", d.sides(8), SLOPE, upstream=ends),
        d.case("tiny numbers", TINY, 0.7),
    ]


def _slopes(d: Draw, order: int) -> list[Case]:
    cases = [d.case(f"slope {s:g}", d.sides(8), s, order=order) for s in (0.0, -0.7, 3.0, 0.25, 1e17)]
    cases.append(d.case("slope -0.7, large", d.sides(8, away=30, reach=60), -0.7, order=order))
    return [*cases, d.case("slope by keyword", d.sides(8), 0.3, keywords=("slope",), order=order)]


def _halves(d: Draw, order: int) -> list[Case]:
    """Return cases of float16, whose largest number is 65504: what is right fits, and what is on the way need not."""
    large = d.between(4e4, 6e4, 8, dtype=HALF)
    return [
        d.case("large float16 numbers, slope 2", large, 2.0, order=order),
        d.case("large negative float16 numbers, slope -1", -large, -1.0, order=order),
    ]


def _ragged(d: Draw) -> list[Case]:
    """Return cases of numbers that are no multiple of 8, with what is kept."""
    shapes: list[tuple[int, ...]] = [*((n,) for n in RAGGED), (), (5, 3), (2, 3, 7), (3, 5, 1)]
    named_ = {(): "a 0-d input", (0, 3): "an empty input", (3, 0): "an empty input of shape (3, 0)"}
    return [
        *(d.case(named_.get(s, f"shape {s}"), d.sides(*s), SLOPE, watch=("trace",)) for s in [*shapes, (0, 3), (3, 0)]),
        d.case("a negative 0-d input", -d.sides(), SLOPE, watch=("trace",)),
        *(d.case(f"{n} positive numbers", d.between(0.5, 2, n), SLOPE, watch=("trace",)) for n in (9, 15)),
        *(d.case(f"{n} negative numbers", d.between(-2, -0.5, n), SLOPE, watch=("trace",)) for n in (9, 15)),
        d.case("a float16 input of 13", d.sides(13, dtype=HALF), -0.7, watch=("trace",)),
        d.case("a transposed input", d.sides(5, 3).t(), SLOPE, watch=("trace",)),
        d.case(f"{LONG} bfloat16 numbers", d.sides(LONG, dtype=BRAIN), SLOPE, watch=("trace",)),
    ]


def _kept(call: str, case: Case, yours: Record, most: int, wanted: str) -> Finding | None:
    x = case.args[0]
    if "trace" not in case.watch or not isinstance(x, Tensor):
        return None
    told = {"case": look.describe(call, case), "expected": wanted}
    if yours.kept_arguments:
        text = "x is kept for backward, all of it. Of each number one bit is enough: was it above 0?"
        return Finding("keeps", text, told | {"yours": "x itself"})
    if yours.kept_bytes > most:
        text = (
            f"For {x.numel()} numbers {yours.kept_bytes} bytes are kept for backward. Eight answers to 'above 0?' go into "
            "one byte."
        )
        return Finding("bytes", text, told | {"yours": f"{yours.kept_bytes} bytes"})
    return None


def packs_at_all(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find that nothing is packed: a byte for each number, or more, or x itself."""
    x = case.args[0]
    count = x.numel() if isinstance(x, Tensor) else 0
    return _kept(call, case, yours, count - 1, "less than a byte for each number")


def one_bit(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find more than a bit for each number, rounded up to bytes."""
    x = case.args[0]
    most = max(1, -(-x.numel() // 8)) if isinstance(x, Tensor) else 0
    return _kept(call, case, yours, most, f"{most} byte{'s' * (most != 1)}")


def lets_go(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find that backward needs x or the output: it raises when one was changed in place."""
    for what, grads in yours.overwritten:
        if grads is None:
            name = "x" if what.startswith("argument") else "the output"
            text = (
                f"Backward raises when {name} is changed in place before it: {name} is saved, all of it. What you pack is a "
                "tensor of your own, and needs neither x nor the output."
            )
            return Finding("guarded", text, {"case": look.describe(call, case)})
    return None


task = Task(
    "PackedLeakyReLU",
    "PackedLeakyReLU.apply(x, slope)",
    reference=lambda x, slope: F.leaky_relu(x, slope),
    checks=(
        value(
            1,
            about="x above 0, slope * x elsewhere: every dtype, shape, layout and slope",
            cases=lambda d: [
                *d.forms(d.sides, SLOPE, order=0),
                *_slopes(d, order=0),
                *_halves(d, order=0),
                d.case("both by keyword", d.sides(8), SLOPE, keywords=("x", "slope"), order=0),
                d.case("every size", d.scales(16), SLOPE, order=0),
                *d.lopsided(lambda x: (x, SLOPE), 8, order=0),
            ],
        ),
        gradient(
            1,
            about="the gradient equals torch's, at 0 too, from less than a byte a number",
            why="Above 0 it is the upstream gradient, elsewhere slope times it, and a bit says which.",
            cases=lambda d: [
                *_kinks(d),
                *_slopes(d, order=1),
                *_halves(d, order=1),
                *d.forms(d.sides, SLOPE),
                d.case("a transposed upstream gradient", d.sides(4, 6), SLOPE, upstream=d.normal(6, 4).t()),
                d.case("a permuted 3-d input", d.sides(2, 3, 4).permute(1, 2, 0), SLOPE),
                d.case("one row upstream, for each", d.sides(4, 6), SLOPE, upstream=d.normal(1, 6).expand(4, 6)),
                d.case("every second number upstream", d.sides(8), SLOPE, upstream=d.normal(16)[::2]),
                *d.lopsided(lambda x: (x, SLOPE), 8),
                d.case("64 numbers", d.sides(64), SLOPE, watch=("trace",), deny=MASKS),
            ],
            looks=(*GRADIENT, packs_at_all, look.allowed),
            gradcheck=lambda d: (d.sides(2, 4), SLOPE),
        ),
        Check(
            "bits",
            1,
            about="8 numbers keep a byte and nothing else; x and the output may change",
            why="Memory is looked at here, and these numbers first: a gradient that is wrong elsewhere is wrong here too.",
            cases=lambda d: [
                # what a call of another shape leaves behind does not cover this one
                d.case("64 numbers", d.sides(64), SLOPE, watch=WATCHED, between=(d.sides(16), 0.3)),
                d.case("a float32 matrix", d.sides(4, 8, dtype=SINGLE), 0.25, watch=WATCHED),
                d.case("8 float16 numbers", d.sides(8, dtype=HALF), 3.0, watch=("trace", "overwrite")),
                d.case("a transposed input", d.sides(8, 5).t(), SLOPE, watch=("trace", "overwrite")),
                d.case("an expanded input", d.sides(1, 8).expand(4, 8), SLOPE, watch=("trace",)),
                d.case("slope 0", d.sides(16), 0.0, watch=("trace", "overwrite")),
                d.case("1024 numbers", d.sides(32, 32), SLOPE, watch=("trace",)),
            ],
            looks=(
                *GRADIENT[:4],
                look.untouched,
                *GRADIENT[4:],
                look.stateless,
                look.guarded,
                one_bit,
                lets_go,
                look.allowed,
            ),
            outside=Outside(
                lambda d: (d.normal(MANY, dtype=HALF), SLOPE), "the output", least=MANY - MANY // 8, more=MANY // 8
            ),
        ),
        Check(
            "ragged",
            1,
            about="7, 9, one or no numbers: right, and the last byte is filled up",
            why="Only the last byte may have bits to spare.",
            cases=_ragged,
            looks=(*VALUE, *GRADIENT[4:], one_bit),
        ),
        second_order(
            1,
            about="the gradient can be differentiated again, by the upstream gradient",
            why="A gradient penalty differentiates your backward, with respect to the upstream gradient.",
            cases=lambda d: [
                d.case("8 numbers", d.sides(8), SLOPE, order=2),
                d.case("a matrix", d.sides(4, 6), 0.3, order=2),
                d.case("a negative 0-d input", -d.sides(), SLOPE, order=2),
                *(d.case(f"{named(t)}", d.sides(8, dtype=t), SLOPE, order=2) for t in (SINGLE, HALF, BRAIN)),
                d.case("an upstream gradient of zeros", d.sides(8), SLOPE, upstream=d.normal(8) * 0, order=2),
                d.case("zeros upstream", d.sides(8), SLOPE, upstream=d.normal(8) * (torch.arange(8) % 3 > 0), order=2),
                *_slopes(d, order=2),
                *d.lopsided(lambda x: (x, SLOPE), 8, order=2),
            ],
            gradcheck=lambda d: (d.sides(8), SLOPE),
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class PackedNew(Function):
    """Eight bits times 1, 2, 4, ..., 128, added up: reads as what it is, and makes a few large tensors on the way."""

    @staticmethod
    def forward(x, slope):
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.shape = x.shape
        bits = (x > 0).reshape(-1)
        bits = F.pad(bits, (0, -len(bits) % 8)).reshape(-1, 8)
        ctx.save_for_backward((bits * 2 ** torch.arange(8)).sum(1).to(torch.uint8))

    @staticmethod
    def backward(ctx, g):
        (packed,) = ctx.saved_tensors
        bits = packed[:, None] // 2 ** torch.arange(8) % 2
        above = bits.reshape(-1)[: g.numel()].reshape(ctx.shape) == 1
        return torch.where(above, g, ctx.slope * g), None


@task.solution
class PackedShifts(Function):
    """Every eighth number at a time, in bytes throughout: the one for large inputs, where memory is the point."""

    @staticmethod
    def forward(ctx, x, slope):
        above = (x > 0).flatten()
        packed = torch.zeros(-(-len(above) // 8), dtype=torch.uint8)
        for place in range(8):
            every = above[place::8]
            packed[: len(every)] |= every.to(torch.uint8) << place
        ctx.save_for_backward(packed)
        ctx.slope = slope
        return x.clamp(min=0) + slope * x.clamp(max=0)

    @staticmethod
    def backward(ctx, g):
        (packed,) = ctx.saved_tensors
        above = torch.empty(g.numel(), dtype=torch.bool)
        for place in range(8):
            every = above[place::8]
            every.copy_(packed[: len(every)] >> place & 1)
        return g.where(above.view(g.shape), ctx.slope * g), None


@task.solution
class PackedNumpy(PackedNew):
    """NumPy packs bits itself: the shortest, on a CPU; a GPU would have to send its bits there and back."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.save_for_backward(torch.from_numpy(numpy.packbits((x > 0).numpy())))

    @staticmethod
    def backward(ctx, g):
        (packed,) = ctx.saved_tensors
        above = torch.from_numpy(numpy.unpackbits(packed.numpy(), count=g.numel())).bool()
        return torch.where(above.reshape(g.shape), g, ctx.slope * g), None


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


class Packing(Function):
    """A right PackedLeakyReLU in steps, for the wrong ones to change one of them."""

    @staticmethod
    def above(x: Tensor) -> Tensor:
        """Return what the bits say."""
        return x > 0

    @staticmethod
    def rows(flat: Tensor) -> Tensor:
        """Return the bits, eight in a row, filled up with 0."""
        return F.pad(flat, (0, -len(flat) % 8)).reshape(-1, 8)

    @staticmethod
    def weights() -> Tensor:
        """Return what each of the eight counts for."""
        return 2 ** torch.arange(8)

    @classmethod
    def pack(cls, above: Tensor) -> Tensor:
        """Return the bytes."""
        return (cls.rows(above.flatten()) * cls.weights()).sum(1).to(torch.uint8)

    @staticmethod
    def bits(packed: Tensor) -> Tensor:
        """Return eight bits of each byte."""
        return (packed[:, None] >> torch.arange(8)) & 1

    @staticmethod
    def cut(flat: Tensor, count: int) -> Tensor:
        """Return the bits without those that fill up the last byte."""
        return flat[:count]

    @classmethod
    def unpack(cls, packed: Tensor, shape: torch.Size) -> Tensor:
        """Return the answers in the shape of x."""
        return cls.cut(cls.bits(packed).flatten(), shape.numel()).reshape(shape).bool()

    @classmethod
    def forward(cls, x, slope):
        return torch.where(x > 0, x, slope * x)

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.shape = x.shape
        ctx.save_for_backward(cls.pack(cls.above(x)))

    @staticmethod
    def grad(above: Tensor, g: Tensor, slope: float) -> Tensor:
        """Return the gradient."""
        return torch.where(above, g, slope * g)

    @classmethod
    def backward(cls, ctx, g):
        (packed,) = ctx.saved_tensors
        return cls.grad(cls.unpack(packed, ctx.shape), g, ctx.slope), None


task.solution(Packing)


@task.solution
class PackedProduct(Packing):
    """The sum as a product with the weights, in float32, which holds it exactly; the gradient written into a copy."""

    @classmethod
    def pack(cls, above):
        return (cls.rows(above.flatten()).float() @ cls.weights().float()).to(torch.uint8)

    @staticmethod
    def grad(above, g, slope):
        result = slope * g
        result[above] = g[above]
        return result


# --- Mistakes ---------------------------------------------------------------------------------------------------------

wrong = Wrong(task, of=Packing)
wrong.habits(
    "float32_inside float32_and_back no_function",
    upstream_ignored="Your gradient is 1 or the slope, whatever comes from above. Where x > 0 backward returns the upstream "
    "gradient, elsewhere slope times it.",
    upstream_unchanged="Your gradient is the upstream gradient, unchanged. Where x was not above 0 it's multiplied by slope: "
    "the bits say where.",
    nothing_returned="Your backward returns None for x (is a return statement missing?): x gets no gradient at all.",
    none_forgotten="Your backward returns one gradient, and forward has two arguments: return the gradient of x, then None, "
    "for slope.",
    one_too_many="Your backward returns three gradients, and forward has two arguments: return the gradient of x, then None, "
    "for slope.",
    not_differentiable_twice="Your backward is cut off from g (by once_differentiable, no_grad, detach or .data), so the gradient "
    "can't be differentiated again. It's linear in g, and a gradient penalty goes back through that: use g as it is.",
    view_needed=VIEW_NEEDED,
)


@wrong.forward("value", "Your forward is a ReLU: where x <= 0 it returns 0, and should return slope * x.")
def relu_forward(x, slope):
    return x.clamp(min=0)


@wrong.forward(
    "value", "Your forward has a slope of its own, 0.1 or 0.01, whatever the caller asks for. Use the argument slope."
)
def slope_fixed_forward(x, slope):
    return torch.where(x > 0, x, 0.01 * x)


@wrong.forward(
    "value",
    "max(x, slope * x) is right for slopes up to 1. Above 1 it takes the other branch: choose by the sign of x.",
)
def maximum_of_both(x, slope):
    return torch.maximum(x, slope * x)


@wrong.forward(
    "value",
    "A factor made by torch.where(x > 0, 1.0, slope), or of bools times slope, is float32, whatever x is: your output has another "
    "dtype, or half of its digits. Choose between x and slope * x.",
)
def factor_in_float32(x, slope):
    return x * torch.where(x > 0, 1.0, slope)


@wrong.forward(
    "value",
    "torch.tensor(slope) is float32, whatever x is: in float64 your output has half of its digits, and a float16 number without "
    "dimensions becomes float32. Multiply by slope itself, a Python number.",
)
def slope_as_a_tensor(x, slope):
    return torch.where(x > 0, x, torch.tensor(slope) * x)


@wrong.forward(
    "value",
    "slope * x + (1 - slope) * relu(x) is right on paper. With a large slope its two terms cancel, and of x little or nothing is "
    "left. Choose with torch.where.",
)
def large_terms_cancel(x, slope):
    return slope * x + (1 - slope) * x.clamp(min=0)


@wrong.forward(
    "value",
    "(1 + slope) / 2 * x + (1 - slope) / 2 * |x| is right on paper. With a large slope its two terms cancel, and of x little or "
    "nothing is left. Choose with torch.where.",
)
def halves_of_both(x, slope):
    return (1 + slope) / 2 * x + (1 - slope) / 2 * x.abs()


@wrong.forward(
    "value",
    "x - (1 - slope) * min(x, 0) is right on paper. In float16 its second term may be infinite where slope * x is not. Choose with "
    "torch.where.",
)
def term_too_large(x, slope):
    return x - (1 - slope) * x.clamp(max=0)


@wrong.forward(
    "value",
    "Your forward multiplies both branches by 0 or 1 and adds them. Where slope * x is too large for float16 it's infinite, and "
    "inf * 0 is nan, though x itself was asked for. torch.where chooses.",
)
def masks_multiplied_in_forward(x, slope):
    above = (x > 0).to(x.dtype)
    return above * x + (1 - above) * (slope * x)


@wrong.forward(
    "value",
    "Your forward's first parameter is not called x. Callers may write apply(x=..., slope=...): take the names of the task.",
)
def other_names(inp, slope):
    return torch.where(inp > 0, inp, slope * inp)


@wrong.step("grad", "gradient", "Where x was not above 0 your gradient is 0, as for a ReLU. There it's slope times g.")
def slope_forgotten(above, g, slope):
    return torch.where(above, g, 0)


@wrong.step(
    "grad", "gradient", "Your two branches are swapped: g itself goes where x was above 0, slope times g elsewhere."
)
def branches_swapped(above, g, slope):
    return torch.where(above, slope * g, g)


@wrong.step(
    "grad",
    "gradient",
    "Where x was not above 0 your gradient is the slope itself. Multiply the upstream gradient by it.",
)
def slope_for_the_gradient(above, g, slope):
    return torch.where(above, g, torch.full_like(g, slope))


@wrong.step(
    "above",
    "gradient",
    "At exactly x = 0 your gradient is that of the right side: you packed x >= 0. Torch takes the slope there, so pack x > 0.",
)
def right_side_at_zero(x):
    return x >= 0


@wrong.step(
    "above",
    "gradient",
    "Tiny positive numbers have no bit: you compare with a small number, such as 1e-7, or look at a float32 copy, in which 1e-60 "
    "is 0. Ask x > 0, of x itself.",
)
def tiny_for_zero(x):
    return x > 1e-7


@task.mistake(
    "gradient",
    "Your bits are the signs of the output. With a negative slope it's positive on both sides of 0. Pack the signs of x.",
)
class signs_of_the_output(Packing):
    @classmethod
    def setup_context(cls, ctx, inputs, output):
        Packing.setup_context(ctx, (output, inputs[1]), output)


@wrong.step(
    "grad",
    "gradient",
    "Your bits choose the sign of the upstream gradient in place of x's: backward applies the leaky ReLU to g. Use the bits that "
    "you unpack.",
)
def sign_of_the_upstream(above, g, slope):
    return torch.where(g > 0, g, slope * g)


@wrong.step("grad", "gradient", MASK_MULTIPLIED)
def mask_multiplied(above, g, slope):
    return g * above + slope * g * ~above


@wrong.step(
    "grad",
    "gradient",
    "slope + (1 - slope) * bit should be 1 where the bit is. A large slope leaves nothing of that: in floats 1e17 + (1 - 1e17) is 0. "
    "Choose with torch.where.",
)
def factor_by_a_difference(above, g, slope):
    return g * (slope + (1 - slope) * above.to(g.dtype))


@wrong.step(
    "grad",
    "gradient",
    "A factor from torch.where(above, 1.0, slope) or torch.tensor(slope) is float32, in which 0.1 is 0.10000000149: your gradient "
    "has another dtype, or half of its digits. Choose between g and slope * g.",
)
def factor_in_float32_in_backward(above, g, slope):
    return g * torch.where(above, 1.0, slope)


@wrong.backward(
    "gradient",
    "Your backward returns a gradient for slope, a Python number, which can have none. Return the gradient of x, then None.",
)
def gradient_for_the_slope(ctx, g):
    return Packing.backward(ctx, g)[0], g.sum()


@wrong.backward(
    "gradient",
    "Your gradient is a vector: the bits come out in one row, and you leave it so. Give them the shape of g: "
    "bits.reshape(g.shape).",
)
def shape_not_restored(ctx, g):
    above = Packing.unpack(*ctx.saved_tensors, torch.Size([g.numel()]))
    return torch.where(above, g.flatten(), ctx.slope * g.flatten()), None


@wrong.step(
    "bits",
    "gradient",
    "You pack with the first of eight numbers in the lowest bit and unpack with it in the highest, or the other way round. "
    "Use the same order of weights in both.",
)
def unpacked_backwards(packed):
    return ((packed[:, None] >> torch.arange(8)) & 1).flip(1)


@wrong.step(
    "bits",
    "gradient",
    "byte & 8 is 8 or 0, and you ask whether it's 1: of each eight bits only the first is ever found. Ask whether it's not 0.",
)
def compared_with_one(packed):
    return (packed[:, None] & 2 ** torch.arange(8)) == 1


@wrong.step(
    "weights",
    "gradient",
    "You add up eight bits without weights, so the byte says how many were above 0, not which. Multiply them by 1, 2, 4, "
    "..., 128 first.",
)
def weights_forgotten():
    return torch.ones(8, dtype=torch.long)


@wrong.step(
    "weights",
    "gradient",
    "Your weights are 0, 1, 2, ..., 7, whose sums are not different for different bits. They have to be powers of two: "
    "2 ** torch.arange(8).",
)
def weights_not_powers():
    return torch.arange(8)


@wrong.step(
    "weights",
    "gradient",
    "Your weights begin at 2, so the last of eight is 256, which doesn't fit into a byte: that bit is lost, and the others "
    "come out one place late. Begin at 1, which is 2 ** 0.",
)
def weights_begin_at_two():
    return 2 ** torch.arange(1, 9)


@wrong.step(
    "pack",
    "gradient",
    "You pack the signs of x in the order of its memory (by a view, or by its storage), and unpack in the order of its shape. "
    "For a transposed x these differ: reshape(-1) goes by the shape.",
)
def in_memory_order(above):
    order = sorted(range(above.ndim), key=lambda i: -above.stride(i))
    return Packing.pack(above.permute(order))


@task.mistake(
    "gradient",
    "You pack in the order of memory, and go back by the same permutation. With three dimensions that isn't always the way back: "
    "reshape(-1) goes by the shape, and needs none.",
)
class permuted_twice(Packing):
    @classmethod
    def setup_context(cls, ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.order = sorted(range(x.ndim), key=lambda i: -x.stride(i))
        ctx.save_for_backward(cls.pack((x > 0).permute(ctx.order)))

    @classmethod
    def backward(cls, ctx, g):
        shape = torch.Size([g.shape[i] for i in ctx.order])
        above = cls.unpack(*ctx.saved_tensors, shape).permute(ctx.order).reshape(g.shape)
        return cls.grad(above, g, ctx.slope), None


@wrong.backward("bits", WRITES_INTO_UPSTREAM)
def writes_into_upstream(ctx, g):
    below = ~Packing.unpack(*ctx.saved_tensors, ctx.shape)
    g[below] *= ctx.slope
    return g, None


@wrong.forward(
    "bits",
    "Your forward changes x in place: the caller's tensor is no longer what it was. Build a new one with torch.where.",
)
def writes_into_input(x, slope):
    return x.copy_(Packing.forward(x.clone(), slope))


@wrong.backward(
    "bits",
    "Backward takes the bits off the saved bytes in place, by .data, so a second backward (retain_graph=True) finds none. "
    "Make new tensors: packed >> place.",
)
def bytes_used_up(ctx, g):
    (packed,) = ctx.saved_tensors
    rows = []
    for _ in range(8):
        rows.append(packed % 2)
        packed.data.floor_divide_(2)
    above = torch.stack(rows, 1).flatten()[: g.numel()].reshape(g.shape) == 1
    return torch.where(above, g, ctx.slope * g), None


wrong.habits(
    caught_by="bits",
    kept_outside_ctx="You keep bits, shape or slope outside ctx, on the class or in a global: a second call overwrites them "
    "before the first one's backward. The bits go through ctx.save_for_backward, the rest becomes attributes of ctx.",
)


@task.mistake(
    "bits",
    "You keep the shape, or the number of elements, on the class or in a global. After a second call, of another shape, the "
    "first one's backward unpacks too few bits: g has the shape, or keep it on ctx.",
)
class shape_outside_ctx(Packing):
    shape: tuple[int, ...] = ()

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        Packing.setup_context(ctx, inputs, output)
        shape_outside_ctx.shape = inputs[0].shape

    @classmethod
    def backward(cls, ctx, g):
        above = Packing.unpack(*ctx.saved_tensors, shape_outside_ctx.shape)
        return Packing.grad(above, g, ctx.slope), None


@task.mistake(
    "bits",
    "You keep the slope outside ctx, on the class or in a global: a second call with another slope overwrites it before the "
    "first one's backward. Each call has its own ctx: ctx.slope = slope.",
)
class slope_outside_ctx(Packing):
    slope = 0.0

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        Packing.setup_context(ctx, inputs, output)
        slope_outside_ctx.slope = inputs[1]

    @classmethod
    def backward(cls, ctx, g):
        return Packing.grad(Packing.unpack(*ctx.saved_tensors, ctx.shape), g, slope_outside_ctx.slope), None


@task.mistake(
    "bits",
    "You keep the bytes in a dictionary of the class or in a global one, by shape: a second call of the same shape overwrites "
    "them before the first one's backward. Use ctx.save_for_backward.",
)
class kept_by_shape(Packing):
    kept: ClassVar[dict[torch.Size, Tensor]] = {}

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        x, ctx.slope = inputs
        kept_by_shape.kept[x.shape] = cls.pack(x > 0)

    @classmethod
    def backward(cls, ctx, g):
        return cls.grad(cls.unpack(kept_by_shape.kept[g.shape], g.shape), g, ctx.slope), None


@task.mistake(
    "bits",
    "You count the numbers in uint8, which begins again after 255: of more than 256 numbers the later ones share the bytes of the "
    "first. Count in int64, as torch.arange does.",
)
class counted_in_a_byte(Packing):
    @staticmethod
    def pack(above):
        place = torch.arange(above.numel(), dtype=torch.uint8)
        packed = torch.zeros(-(-above.numel() // 8), dtype=torch.uint8)
        return packed.index_add_(0, (place // 8).long(), above.flatten().to(torch.uint8) << (place % 8))

    @staticmethod
    def unpack(packed, shape):
        place = torch.arange(shape.numel(), dtype=torch.uint8)
        return (packed[(place // 8).long()] >> (place % 8) & 1 == 1).reshape(shape)


class Unpacked(Packing):
    """Keeps the answers as they are, for the mistakes that pack nothing."""

    @staticmethod
    def saved(x: Tensor, slope: float, y: Tensor) -> Tensor:
        """Return what is saved."""
        return x

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        _, ctx.slope = inputs
        ctx.save_for_backward(cls.saved(*inputs, output))

    @classmethod
    def backward(cls, ctx, g):
        return cls.grad(ctx.saved_tensors[0] > 0, g, ctx.slope), None


@task.mistake(
    "bits",
    "You save x, which is 32 or 64 times as much as backward needs. Ask each number whether it's above 0 already in forward, and "
    "pack eight answers into a byte.",
)
class input_saved(Unpacked):
    pass


@task.mistake(
    "bits",
    "You save x > 0, and torch keeps a whole byte for each True or False. Eight of them fit into one: multiply by 1, 2, 4, ..., "
    "128, add up, and convert to torch.uint8.",
)
class byte_mask_saved(Unpacked):
    @staticmethod
    def saved(x, slope, y):
        return x > 0


@task.mistake(
    "bits",
    "You save the factor, 1 or slope, for each number: as large as x itself. There are two of them, so one bit says which.",
)
class factor_saved(Unpacked):
    @staticmethod
    def saved(x, slope, y):
        return torch.where(x > 0, torch.ones_like(x), torch.full_like(x, slope))

    @classmethod
    def backward(cls, ctx, g):
        (factor,) = ctx.saved_tensors
        return torch.where(factor == 1, g, ctx.slope * g), None


@task.mistake(
    "bits",
    "You save the output and look at its sign. It's as large as x, and with a negative slope it's positive on both sides. "
    "Pack x > 0.",
)
class output_saved(Unpacked):
    @staticmethod
    def saved(x, slope, y):
        return y


@task.mistake(
    "bits",
    "You save the indices of the positive numbers: 8 bytes for each of them, 64 times a bit. Pack x > 0.",
)
class indices_saved(Packing):
    @classmethod
    def setup_context(cls, ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.save_for_backward((x > 0).flatten().nonzero().flatten())

    @classmethod
    def backward(cls, ctx, g):
        above = torch.zeros(g.numel(), dtype=torch.bool)
        above[ctx.saved_tensors[0]] = True
        return cls.grad(above.reshape(g.shape), g, ctx.slope), None


@wrong.step(
    "pack",
    "bits",
    "You keep eight bytes where one is enough. A sum of bools times numbers is int64: convert it to torch.uint8. A column of a larger "
    "tensor keeps all of that: clone it.",
)
def not_converted_to_bytes(above):
    return (Packing.rows(above.flatten()) * Packing.weights()).sum(1)


@wrong.step(
    "rows",
    "bits",
    "You add a byte even where the count is a multiple of 8: 8 - n % 8 is 8 there, not 0. Pad by -n % 8.",
)
def one_byte_too_many(flat):
    return F.pad(flat, (0, 8 - len(flat) % 8)).reshape(-1, 8)


@task.mistake(
    "bits",
    "You save the weights 1, 2, 4, ..., 128 along with the bits: 64 bytes more with each call. Make them again in backward.",
)
class weights_saved(Packing):
    @classmethod
    def setup_context(cls, ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.shape = x.shape
        ctx.save_for_backward(cls.pack(x > 0), cls.weights())

    @classmethod
    def backward(cls, ctx, g):
        packed, weights = ctx.saved_tensors
        bits = (packed[:, None] & weights) != 0
        return cls.grad(cls.cut(bits.flatten(), g.numel()).reshape(ctx.shape), g, ctx.slope), None


@task.mistake(
    "bits",
    "You keep two bits a number: one pack for x > 0 and one for the rest. What isn't above 0 is the rest, so the first pack says "
    "it all.",
)
class packed_twice(Packing):
    @classmethod
    def setup_context(cls, ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.shape = x.shape
        ctx.save_for_backward(cls.pack(x > 0), cls.pack(x <= 0))

    @classmethod
    def backward(cls, ctx, g):
        return cls.grad(cls.unpack(ctx.saved_tensors[0], ctx.shape), g, ctx.slope), None


@wrong.step(
    "rows",
    "ragged",
    "You cut the bits into eights without filling up the last byte: reshape(-1, 8) raises unless their number is a multiple of 8. "
    "Pad with -n % 8 zeros first.",
)
def padding_missing(flat):
    return flat.reshape(-1, 8)


@task.mistake(
    "ragged",
    "You pack in forward and cut the bits into eights as they are: reshape(-1, 8) raises unless their number is a multiple of 8, and "
    "nothing is returned. Pad with -n % 8 zeros first.",
)
class padding_missing_in_forward(Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.slope, ctx.shape = slope, x.shape
        rows = (x > 0).reshape(-1, 8)
        ctx.save_for_backward((rows * Packing.weights()).sum(1).to(torch.uint8))
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def backward(ctx, g):
        return Packing.backward(ctx, g)


@wrong.step(
    "cut",
    "ragged",
    "You leave the bits that fill up the last byte among the others, so there are more of them than numbers. Cut first: "
    "bits[:n].",
)
def padding_left_on(flat, count):
    return flat


@wrong.step(
    "cut",
    "ragged",
    "You pad behind the bits and cut off in front: bits[-n:]. What's left over is at the end, so keep bits[:n].",
)
def cut_in_front(flat, count):
    return flat[len(flat) - count :]


@wrong.step(
    "rows",
    "ragged",
    "You pad in front of the bits (the first number of F.pad) and cut off behind. Pad where you cut: F.pad(bits, (0, -n % 8)).",
)
def padded_in_front(flat):
    return F.pad(flat, (-len(flat) % 8, 0)).reshape(-1, 8)


@task.mistake(
    "ragged",
    "You pack n // 8 bytes, so the numbers after the last full eight have no bit, and count as below 0. Round up: -(-n // 8).",
)
class last_byte_dropped(Packing):
    @staticmethod
    def rows(flat):
        return flat[: len(flat) // 8 * 8].reshape(-1, 8)

    @staticmethod
    def cut(flat, count):
        return F.pad(flat, (0, count - len(flat)))


@task.mistake(
    "ragged",
    "You pack each row by itself, along the last dimension: every row has bits to spare, and a 0-d input has no row. Flatten "
    "first, and only the last byte has.",
)
class each_row_by_itself(Packing):
    @classmethod
    def pack(cls, above):
        padded = F.pad(above, (0, -above.shape[-1] % 8))
        return (padded.unflatten(-1, (-1, 8)) * cls.weights()).sum(-1).to(torch.uint8)

    @classmethod
    def unpack(cls, packed, shape):
        return ((packed[..., None] >> torch.arange(8)) & 1).flatten(-2)[..., : shape[-1]].bool()


@task.mistake(
    "ragged",
    "A 0-d input makes your packing raise: len(x), x.shape[0] or an index needs a dimension. Use x.numel() and "
    "x.reshape(-1).",
)
class length_for_the_count(Packing):
    @classmethod
    def setup_context(cls, ctx, inputs, output):
        len(inputs[0])
        Packing.setup_context(ctx, inputs, output)


@task.mistake(
    "ragged",
    "An input of no elements makes your packing raise: torch.stack and torch.cat want at least one tensor, and max at least one "
    "number. No numbers are no bytes.",
)
class fails_for_nothing(Packing):
    @classmethod
    def pack(cls, above):
        if not above.numel():
            torch.stack([])
        return Packing.pack(above)


@task.mistake(
    "ragged",
    "You make rows of the last dimension, reshape(-1, x.shape[-1]), and torch cannot tell how many rows of nothing there are: an "
    "input of shape (3, 0) raises. Use reshape(-1).",
)
class rows_of_the_last_dimension(Packing):
    @classmethod
    def setup_context(cls, ctx, inputs, output):
        x, _ = inputs
        if x.ndim > 1:
            x.reshape(-1, x.shape[-1])
        Packing.setup_context(ctx, inputs, output)


@wrong.step(
    "grad",
    "second_order",
    "Of an input without dimensions you make a number, by item() or float(), and of that a tensor: it's cut off from the graph. Use "
    "the formula for all shapes.",
)
def number_without_dimensions(above, g, slope):
    if not g.ndim:
        return torch.tensor(g.item() * (1 if above.item() else slope), dtype=g.dtype)
    return torch.where(above, g, slope * g)


@wrong.step(
    "grad",
    "second_order",
    "Where the upstream gradient is all zeros you return new zeros, cut off from it. The gradient's derivative by g is 1 or the slope, at "
    "0 too: leave that branch out.",
)
def zeros_made_anew(above, g, slope):
    return torch.where(above, g, slope * g) if g.any() else torch.zeros_like(g)


@wrong.step(
    "grad",
    "second_order",
    "Where x was not above 0, nothing of a gradient penalty goes back. The slope's part of your gradient is cut off from g, by "
    "detach or by a number, or the backward of a backward of yours forgets it. Use slope * g.",
)
def slope_s_part_detached(above, g, slope):
    return torch.where(above, g, (slope * g).detach())
