"""Direction: z / |z|, a function of complex numbers that has no complex derivative."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case, Helper, Record
from graders.judge import looks as look
from graders.judge.aspects import GRADIENT, VALUE, WATCHED, contract, gradient, second_order, value
from graders.judge.looks import Finding
from graders.judge.task import Check, Draw, Task
from graders.judge.wording import WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong

PLACE = 2
NARROW, WIDE = torch.complex64, torch.complex128


def plane(d: Draw, *shape: int, dtype: torch.dtype = WIDE, low: float = 0.5, high: float = 2.0) -> Tensor:
    """Draw complex numbers in all directions, of a modulus between two numbers."""
    angles = d.between(-3.1, 3.1, *shape)
    return torch.polar(d.between(low, high, *shape), angles).to(dtype)


def row(*numbers: complex, dtype: torch.dtype = WIDE) -> Tensor:
    """Return a vector of these numbers."""
    return torch.tensor(numbers, dtype=dtype)


def _forms(d: Draw, order: int) -> list[Case]:
    """Return cases of both dtypes, and of every shape and layout."""
    inputs = [
        ("a vector", plane(d, 5)),
        ("a complex64 input", plane(d, 2, 3, dtype=NARROW)),
        ("a 0-d input", plane(d)),
        ("a 0-d complex64 input", plane(d, dtype=NARROW)),
        ("an empty input", plane(d, 0, 3)),
        ("a 3-d input", plane(d, 2, 1, 3)),
        ("a transposed input", plane(d, 3, 2).t()),
        ("a permuted 3-d input", plane(d, 2, 3, 2).permute(1, 2, 0)),
        ("every second row", plane(d, 4, 3)[::2]),
        ("an expanded input", plane(d, 1, 3).expand(2, 3)),
        ("on the axes", row(2, 2j, -0.5, -3j)),
        ("along the diagonals", row(1 + 1j, -1 + 1j, 1 - 1j, -2 - 2j)),
        ("moduli from 0.001 to 1000", plane(d, 4) * row(1e-3, 0.1, 30, 1e3)),
        ("near the axes", row(1 + 3e-9j, -1 + 1e-9j, -2 - 1e-12j, 1e-160 + 1j, 3e-9 - 2j)),
        ("complex64 near the axes", row(1 + 2e-4j, -1 + 1e-4j, -2 - 3e-4j, dtype=NARROW)),
        ("one direction", d.between(0.5, 2, 4) * row(0.6 + 0.8j)),
    ]
    return [d.case(name, z, order=order) for name, z in inputs]


def _lopsided(d: Draw, order: int) -> list[Case]:
    """Return cases of numbers in one quarter of the plane, and of one that is large against all others."""
    return d.lopsided(lambda x: (torch.complex(x, x.flip(0)),), 4, order=order, zeros=False)


def _ends(d: Draw) -> list[Case]:
    """Return cases at 0, near it and far out, where squares are 0 or infinite."""
    apart = row(1e-200, 1e-100j, 1e200, 3 + 4j, 1e100j, -1e-200j)  # so far that no scale is right for all of them
    parts = row(1e-180 + 1e180j, 1e180 - 1e-180j, -1e-150 + 1e-10j, 1e10 - 1e-150j)
    return [
        d.case("0 among others", row(0, 1 + 2j, 0, -3j)),
        d.case("moduli from 1e-200 to 1e200", apart, upstream=apart * plane(d, 6)),
        d.case("one part far below the other", parts, upstream=parts * plane(d, 4)),
        d.case("0 alone", torch.zeros((), dtype=WIDE)),
        d.case("complex64, 0 among others", row(0, 1 + 2j, 0, -3j, dtype=NARROW)),
        d.case("near 0", plane(d, 4) * 1e-9),
        d.case("near 1e-200", plane(d, 4) * 1e-200, upstream=plane(d, 4) * 1e-200),
        d.case("near 1e200", plane(d, 4) * 1e200, upstream=plane(d, 4) * 1e200),
        d.case("complex64 near 1e-25", plane(d, 3).mul(1e-25).to(NARROW), upstream=plane(d, 3).mul(1e-25).to(NARROW)),
        d.case("complex64 near 1e25", plane(d, 3).mul(1e25).to(NARROW), upstream=plane(d, 3).mul(1e25).to(NARROW)),
    ]


def _gradient_beside_0(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look at the gradients of what is not 0: that of 0 is another check's."""
    z = case.args[0]
    if not isinstance(z, Tensor) or not expected.grads or expected.grads[0] is None or bool((z != 0).all()):
        return look.gradient(call, case, yours, expected)
    elsewhere = torch.where(z == 0, complex("nan"), expected.grads[0])
    return look.gradient(call, case, yours, replace(expected, grads=(elsewhere,)))


def _reference(z: Tensor) -> Tensor:
    return torch.sgn(z)  # which calls it input


task = Task(
    "Direction",
    "Direction.apply(z)",
    reference=_reference,
    checks=(
        value(
            1,
            about="z / |z|, of any shape and layout, in complex64 and complex128",
            cases=lambda d: [
                *_forms(d, order=0),
                *_lopsided(d, order=0),
                d.case("z by keyword", plane(d, 3), order=0, keywords=("z",)),
                d.case("a conjugate that torch puts off", Helper("conjugated", (plane(d, 4),)), order=0),
            ],
            looks=VALUE,
        ),
        gradient(
            1,
            about="the gradient equals torch's, whatever comes from above; gradcheck passes",
            why="Only what turns z changes its direction: of the upstream gradient the part across y counts, divided by |z|.",
            cases=lambda d: [
                *_forms(d, order=1),
                *_lopsided(d, order=1),
                d.case("a real upstream gradient", plane(d, 4), upstream=d.normal(4).to(WIDE)),
                d.case("an imaginary upstream gradient", plane(d, 4), upstream=d.normal(4) * 1j),
                d.case("upstream gradients of every size", plane(d, 6), upstream=plane(d, 6) * d.scales(6)),
                d.case(
                    "an expanded upstream gradient", plane(d, 2, 3), upstream=d.normal(2, 1, dtype=WIDE).expand(2, 3)
                ),
                d.case("a transposed upstream gradient", plane(d, 2, 3), upstream=d.normal(3, 2, dtype=WIDE).t()),
                d.case("one row upstream, for each", plane(d, 3, 4), upstream=plane(d, 1, 4).expand(3, 4)),
                d.case("an upstream gradient that torch conjugates later", plane(d, 4), how="conjugated"),
                d.case("an upstream gradient along z", z := plane(d, 4), upstream=z * 1.5),
            ],
            looks=GRADIENT,
            gradcheck=lambda d: (plane(d, 4),),
        ),
        Check(
            "ends",
            1,
            about="0 at 0, its gradient too; right where |z| squared is too small or large",
            why="Torch takes 0 at 0. The modulus of a number is fine long after its square is not: take z.abs().",
            cases=_ends,
            looks=(*VALUE[:5], look.untouched, *VALUE[5:], *GRADIENT[4:]),
        ),
        second_order(
            1,
            about="the gradient can be differentiated again, by z and by the upstream gradient",
            why="The gradient depends on z twice, by its direction and by its modulus: both have to be in the graph.",
            cases=lambda d: [
                d.case("a vector", plane(d, 4), order=2),
                d.case("a matrix", plane(d, 2, 3), order=2),
                d.case("a 0-d input", plane(d), order=2),
                d.case("complex64", plane(d, 4, dtype=NARROW), order=2),
                d.case("an upstream gradient that is a constant", plane(d, 4), order=2, how="constant"),
                d.case("a real upstream gradient", plane(d, 4), upstream=d.normal(4).to(WIDE), order=2),
                d.case("an upstream gradient of zeros", plane(d, 4), upstream=row(0, 0, 0, 0), order=2),
                d.case("zeros upstream", plane(d, 4), upstream=plane(d, 4) * row(0, 1, 0, 1), order=2),
                # at 0 torch's is nan, and anything is right; what is sent there is 0 too, so that no first one shows
                d.case("0 among others", row(0, 1 + 2j, 0, -3j), upstream=plane(d, 4) * row(0, 1, 0, 1), order=2),
                *_lopsided(d, order=2),
            ],
            looks=(*GRADIENT[:-1], _gradient_beside_0, look.second_order),
            gradcheck=lambda d: (plane(d, 3),),
        ),
        contract(
            1,
            about="z and the upstream gradient stay as they are; what is saved is watched",
            cases=lambda d: [
                d.case("a vector", plane(d, 4), watch=WATCHED, between=(plane(d, 3),)),
                d.case("a complex64 matrix", plane(d, 2, 3, dtype=NARROW), watch=("state", "overwrite")),
            ],
            # what is changed in place comes before the numbers that it spoils
            looks=(*GRADIENT[:4], look.untouched, *GRADIENT[4:], look.stateless, look.guarded, look.allowed),
        ),
    ),
    forbids=look.GRADIENT,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class DirectionAcross(Function):
    """Takes away the part of the upstream gradient that lies along y: the picture, written down."""

    @staticmethod
    def forward(z):
        r = z.abs()
        return torch.where(r == 0, 0, z / r)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        z, y = ctx.saved_tensors
        r = z.abs()
        across = g - y * (y.conj() * g).real
        return torch.where(r == 0, 0, across / r)


@task.solution
class DirectionTurned(DirectionAcross):
    """The part across is along iy, and its length an imaginary part: the shortest, and it subtracts nothing."""

    @staticmethod
    def backward(ctx, g):
        z, y = ctx.saved_tensors
        grad = 1j * y * (y.conj() * g).imag / z.abs()
        return torch.where(z == 0, 0, grad)


@task.solution
class DirectionWirtinger(Function):
    """By the derivatives with respect to z and to its conjugate: for functions that have no picture as plain as this."""

    @staticmethod
    def forward(ctx, z):
        y = torch.sgn(z)
        ctx.save_for_backward(z, y)
        return y

    @staticmethod
    def backward(ctx, g):
        z, y = ctx.saved_tensors
        half = 0.5 / z.abs()  # dy/dz; that with respect to the conjugate is -y^2 times this
        grad = half * g - half * y * y * g.conj()
        return grad.masked_fill(z == 0, 0)


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class DirectionByParts(DirectionAcross):
    """Two real numbers in, two out, and the Jacobian of that; z is saved alone."""

    @staticmethod
    def forward(z):
        r = torch.hypot(z.real, z.imag)
        safe = r.masked_fill(r == 0, 1)
        return torch.complex(z.real / safe, z.imag / safe)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        r = torch.hypot(z.real, z.imag)
        zero = r == 0
        r = r.masked_fill(zero, 1)
        a, b = z.real / r, z.imag / r
        turn = (a * g.imag - b * g.real) / r
        turn = turn.masked_fill(zero, 0)
        return torch.complex(-b * turn, a * turn)


@task.solution
class DirectionPolar(DirectionAcross):
    """By the angle alone, with torch.polar."""

    @staticmethod
    def forward(z):
        return torch.polar((z != 0).to(z.real.dtype), z.angle())


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class Turning(Function):
    """A right Direction in steps, for the wrong ones to change one of them."""

    @staticmethod
    def modulus(z: Tensor) -> Tensor:
        """Return |z|."""
        return z.abs()

    @staticmethod
    def filled(quotient: Tensor, r: Tensor) -> Tensor:
        """Return a quotient by r, with 0 where r is 0."""
        return torch.where(r == 0, 0, quotient)

    @classmethod
    def forward(cls, z):
        r = cls.modulus(z)
        return cls.filled(z / r, r)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def along(y: Tensor, g: Tensor) -> Tensor:
        """Return the length of the part of g along y."""
        return (y.conj() * g).real

    @classmethod
    def across(cls, y: Tensor, g: Tensor) -> Tensor:
        """Return the part of g across y."""
        return g - y * cls.along(y, g)

    @staticmethod
    def scaled(across: Tensor, r: Tensor) -> Tensor:
        """Return the gradient, of a modulus that is not 0."""
        return across / r

    @staticmethod
    def grad_filled(quotient: Tensor, r: Tensor) -> Tensor:
        """Return the gradient, 0 where r is 0."""
        return torch.where(r == 0, 0, quotient)

    @classmethod
    def backward(cls, ctx, g):
        z, y = ctx.saved_tensors
        r = cls.modulus(z)
        return cls.grad_filled(cls.scaled(cls.across(y, g), r), r)


wrong = Wrong(task, of=Turning)


@task.mistake(
    "value",
    "You divide z by |z|^2, which is 1 / conj(z). It points the right way and has the wrong length: divide by |z|, that is by "
    "z.abs().",
)
class divided_by_the_square(Turning):
    @classmethod
    def forward(cls, z):
        return torch.where(z == 0, 0, z / (z * z.conj()).real)


@task.mistake(
    "value",
    "Your output is the conjugate of z / |z|: the angle has the other sign. Leave the conjugate out of forward.",
)
class conjugate_in_forward(Turning):
    @classmethod
    def forward(cls, z):
        return Turning.forward(z).conj().resolve_conj()


@task.mistake(
    "value",
    "You take sqrt(z * z) for the modulus: of a complex z that is z or -z, and your output 1 or -1. The modulus is the root of "
    "z * conj(z), or z.abs().",
)
class root_of_the_square(Turning):
    @classmethod
    def forward(cls, z):
        return torch.where(z == 0, 0, z / (z * z).sqrt())


@task.mistake(
    "value",
    "You divide the real part and the imaginary part each by its own size, and get 1, -1, i or -i alone, added up. Both are "
    "divided by one number, |z|.",
)
class sign_of_each_part(Turning):
    @classmethod
    def forward(cls, z):
        return torch.complex(z.real.sign(), z.imag.sign())


@task.mistake(
    "value",
    "You return the angle, a real number. The direction is the complex number of that angle and of modulus 1: z / |z|.",
)
class angle_returned(Turning):
    @classmethod
    def forward(cls, z):
        return z.angle()


@task.mistake("value", "You return the modulus |z|, a real number. What's asked for is z divided by it.")
class modulus_returned(Turning):
    @classmethod
    def forward(cls, z):
        return z.abs()


@task.mistake(
    "value",
    "You divide by the largest modulus in the whole tensor, or by its norm. Each number is divided by its own modulus: z.abs() "
    "goes number by number.",
)
class norm_of_the_tensor(Turning):
    @classmethod
    def forward(cls, z):
        r = z.abs().square().sum().sqrt()
        return torch.where(z == 0, 0, z / r)


@wrong.step(
    "modulus",
    "value",
    "You add a small number to |z|, such as 1e-8, so that nothing is divided by 0. Every output is then too short. Choose with "
    "torch.where at 0 instead.",
)
def epsilon_added(z):
    return z.abs() + 1e-8


@wrong.forward(
    "value",
    "You add a small number, such as 1e-12, to |z|. Where |z| is 0.001 the output is short by 1e-9, and where it's 1e-200, far more. "
    "Choose with torch.where at 0 instead.",
)
def small_epsilon_added(z):
    return z / (z.abs() + 1e-12)


@wrong.forward(
    "value",
    "You take the angle from imag / real, by atan: that doesn't know z from -z, and left of the imaginary axis your output has the "
    "wrong sign. Divide z by |z|, or take z.angle().",
)
def atan_for_the_angle(z):
    angle = torch.atan(z.imag / torch.where(z.real == 0, 1e-300, z.real))
    return torch.where(z == 0, 0, torch.polar(torch.ones_like(angle), angle))


@wrong.forward(
    "value",
    "You take the angle from acos(real / |z|). Near the real axis that has half of its digits left, and the imaginary part of your "
    "output is wrong. Divide z by |z|.",
)
def acos_for_the_angle(z):
    r = z.abs()
    angle = torch.acos((z.real / torch.where(r == 0, 1, r)).clamp(-1, 1))
    angle = torch.where(z.imag < 0, -angle, angle)
    return torch.where(r == 0, 0, torch.complex(angle.cos(), angle.sin()))


@wrong.forward(
    "value",
    "You ask whether z is 0 by the sum of its parts, which is 0 for 1 - i too: there your output is 0. Ask z == 0.",
)
def zero_by_the_sum(z):
    return torch.where(z.real + z.imag == 0, 0, z / z.abs())


@wrong.forward(
    "value",
    "torch.view_as_real raises where z is a conjugate that torch has not computed yet, as w.conj() is: it looks at memory. Use z.real "
    "and z.imag, or z.resolve_conj() first.",
)
def memory_of_the_input(z):
    pair = torch.view_as_real(z)
    r = torch.hypot(pair[..., 0], pair[..., 1])[..., None]
    return torch.view_as_complex(torch.where(r == 0, 0, pair / r))


@wrong.forward(
    "value", "Your forward's parameter is not called z. Callers may write apply(z=...): take the name of the task."
)
def other_name(x):
    return Turning.forward(x)


@wrong.forward(
    "value",
    "You convert to complex64 inside: for a complex128 input the output has another dtype, and half of the digits. Compute in the "
    "dtype of z.",
)
def complex64_inside(z):
    return Turning.forward(z.to(NARROW))


@wrong.forward(
    "value",
    "You compute in complex64 and convert back: for a complex128 input half of the digits are lost. Compute in the dtype of z.",
)
def complex64_and_back(z):
    return Turning.forward(z.to(NARROW)).to(z.dtype)


@wrong.forward(
    "value",
    "You build the output from its parts in float32 (torch.zeros or torch.empty without dtype=), so a complex128 input gives "
    "complex64 digits. Take torch.empty_like(z), or torch.complex of parts in their own dtype.",
)
def parts_in_float32(z):
    y = Turning.forward(z)
    parts = torch.zeros(*z.shape, 2)
    parts[..., 0], parts[..., 1] = y.real, y.imag
    return torch.view_as_complex(parts)


@wrong.step(
    "across",
    "gradient",
    "Your gradient is g / |z|, as if |z| were a constant. It changes with z: moving z outwards makes both larger and leaves the "
    "direction as it is. Take away the part of g along y.",
)
def modulus_taken_for_constant(y, g):
    return g.clone()


@wrong.step(
    "across",
    "gradient",
    "Your gradient is g / (2|z|): the derivative with respect to z alone. The one with respect to the conjugate of z is not 0 "
    "here, and adds a term with the conjugate of g.",
)
def conjugate_s_term_missing(y, g):
    return g / 2


@wrong.step(
    "across",
    "gradient",
    "Your gradient is twice what it should be: both derivatives, with respect to z and to its conjugate, have a factor 1/2: "
    "(g - y^2 conj(g)) / (2|z|).",
)
def halves_forgotten(y, g):
    return g - y * y * g.conj()


@wrong.step(
    "across",
    "gradient",
    "The term of the conjugate has the upstream gradient as it is, and needs its conjugate: g / (2|z|) - y^2 conj(g) / (2|z|).",
)
def conjugate_of_g_forgotten(y, g):
    return (g - y * y * g) / 2


@wrong.step(
    "across",
    "gradient",
    "You have the conjugate of y where y belongs: g - conj(y) Re(y g), or a term conj(y)^2 conj(g). It's g - y Re(conj(y) g), or "
    "y^2 conj(g).",
)
def square_conjugated(y, g):
    return (g - (y * y).conj() * g.conj()) / 2


@wrong.step(
    "across",
    "gradient",
    "The two terms of your gradient are added. The derivative with respect to the conjugate of z is -y^2 / (2|z|): mind its sign.",
)
def terms_added(y, g):
    return (g + y * y * g.conj()) / 2


@wrong.step(
    "along",
    "gradient",
    "The length of g along y is the real part of conj(y) g, and you left the conjugate out: y g is turned by y twice over.",
)
def conjugate_forgotten(y, g):
    return (y * g).real


@wrong.step(
    "along",
    "gradient",
    "You take away y conj(y) g, which is all of g, since y has modulus 1: nothing is left. Take the real part of conj(y) g first.",
)
def real_part_forgotten(y, g):
    return y.conj() * g


@wrong.step(
    "along",
    "gradient",
    "You take the imaginary part of conj(y) g for the part along y: that's the part across it. With the real part g - y (...) "
    "is right.",
)
def imaginary_for_real(y, g):
    return (y.conj() * g).imag


@wrong.step(
    "along",
    "gradient",
    "You take the modulus of conj(y) g for the part along y. That's how long all of g is, in whatever direction: take the real part.",
)
def length_of_all(y, g):
    return (y.conj() * g).abs()


@wrong.step(
    "along",
    "gradient",
    "You sum Re(conj(y) g) over the whole tensor, as if that were one vector. Each complex number is a vector by itself: leave out "
    "the sum.",
)
def along_summed(y, g):
    return (y.conj() * g).real.sum()


@wrong.step(
    "across",
    "gradient",
    "torch.view_as_real raises where the upstream gradient is a conjugate that torch has not computed yet, as behind y.conj(): it looks "
    "at memory. Use .real and .imag, or g.resolve_conj() first.",
)
def memory_of_the_upstream(y, g):
    parts, of_y = torch.view_as_real(g), torch.view_as_real(y)
    return torch.view_as_complex(parts - of_y * (of_y * parts).sum(-1, keepdim=True))


@task.mistake(
    "gradient",
    "Your gradient is 0 on all of the imaginary axis, since you ask whether z.real is 0. It's 0 at 0 alone: ask z == 0.",
)
class zero_by_the_real_part(Turning):
    @classmethod
    def backward(cls, ctx, g):
        z, y = ctx.saved_tensors
        return torch.where(z.real == 0, 0, cls.across(y, g) / z.abs())


@task.mistake(
    "gradient",
    "Your gradient is 0 where the parts of z cancel, as of 1 - i: you ask whether their sum is 0. Ask z == 0.",
)
class gradient_zero_by_the_sum(Turning):
    @classmethod
    def backward(cls, ctx, g):
        z, y = ctx.saved_tensors
        return torch.where(z.real + z.imag == 0, 0, cls.across(y, g) / z.abs())


@wrong.step(
    "across",
    "gradient",
    "You return the part of the upstream gradient along y. Moving z that way changes its length, not its direction: return the "
    "rest, divided by |z|.",
)
def part_along_returned(y, g):
    return y * Turning.along(y, g)


@wrong.step(
    "across",
    "gradient",
    "You take the part along y off each part of g by itself: the real part times the real part, the imaginary times the imaginary. "
    "The length along y is one number, the sum of both.",
)
def each_part_by_itself(y, g):
    return torch.complex(g.real - y.real * y.real * g.real, g.imag - y.imag * y.imag * g.imag)


@wrong.step(
    "across",
    "gradient",
    "Of the upstream gradient you use the real part alone. A loss may use the imaginary part of the output: g is complex, use "
    "all of it.",
)
def upstream_s_real_part(y, g):
    return g.real - y * (y.conj() * g.real).real


@wrong.step(
    "across",
    "gradient",
    "You take the conjugate of the upstream gradient. In torch g is dL/dx + i dL/dy already: use it as it is.",
)
def upstream_conjugated(y, g):
    return Turning.across(y, g.conj())


@wrong.step(
    "across",
    "gradient",
    "Your gradient is the conjugate of torch's. Torch returns dL/dx + i dL/dy, so that minus the gradient leads downhill; other "
    "libraries and books have it with a minus.",
)
def gradient_conjugated(y, g):
    return Turning.across(y, g).conj()


@wrong.step(
    "scaled",
    "gradient",
    "Your gradient isn't divided by |z|. The farther out z is, the less a step turns it.",
)
def modulus_missing(across, r):
    return across


@wrong.step(
    "scaled",
    "gradient",
    "You divide by |z| twice. The y in your formula is z / |z| already, so one division is left.",
)
def divided_twice(across, r):
    return across / r**2


@wrong.step(
    "scaled",
    "gradient",
    "You multiply by |z| where it has to be a division: the farther out z is, the less a step turns it.",
)
def multiplied_by_the_modulus(across, r):
    return across * r


@task.mistake(
    "gradient",
    "Your formula has z where y belongs, the z / |z| that forward returned: it's right where |z| is 1. Save the output and use it.",
)
class z_for_y(Turning):
    @classmethod
    def backward(cls, ctx, g):
        z, _ = ctx.saved_tensors
        r = z.abs()
        return torch.where(r == 0, 0, cls.across(z, g) / r)


@wrong.step(
    "grad_filled",
    "gradient",
    "You return the real part of the gradient alone, and torch takes its imaginary part for 0. z can move up and down too: "
    "return the complex number.",
)
def real_part_returned(quotient, r):
    return torch.where(r == 0, 0, quotient).real


wrong.habits(
    "zeros_returned one_too_many no_function",
    nothing_returned="Your backward returns None (is a return statement missing?): z gets no gradient at all.",
    upstream_ignored="Your gradient does not depend on the upstream gradient, as if that were 1. Put g where the formula has v.",
    upstream_unchanged="Your gradient is the upstream gradient unchanged. The part along y goes, and what's left is divided by |z|.",
    upstream_summed="Your backward sums the upstream gradient first. Each number has its own: go number by number.",
    sign_flipped="Your gradient has the wrong sign everywhere: it's g - y Re(conj(y) g), divided by |z|.",
)


@wrong.step(
    "filled",
    "ends",
    "At z = 0 your output is nan: 0 / 0. Torch takes 0 there, as your gradient does: choose with torch.where in forward too.",
)
def nan_at_zero(quotient, r):
    return quotient


@task.mistake(
    "ends",
    "At z = 0 your output and your gradient are both nan: 0 / 0. Torch takes 0 for both: choose with torch.where in forward and in "
    "backward.",
)
class nan_both_ways(Turning):
    @staticmethod
    def filled(quotient, r):
        return quotient

    @staticmethod
    def grad_filled(quotient, r):
        return quotient


@wrong.step(
    "grad_filled",
    "ends",
    "At z = 0 your output is right and your gradient is infinite or nan: it's divided by |z| = 0. Torch takes 0 there.",
)
def gradient_divided_by_zero(quotient, r):
    return quotient


@task.mistake(
    "ends",
    "Where |z| is 0 you divide by 1, so the upstream gradient comes through unchanged. Torch takes a gradient of 0 there: set it.",
)
class upstream_passes_at_zero(Turning):
    @classmethod
    def backward(cls, ctx, g):
        z, y = ctx.saved_tensors
        r = z.abs()
        return cls.across(y, g) / r.masked_fill(r == 0, 1)


@wrong.forward(
    "ends",
    "At z = 0 your output is 1. Torch takes 0 there, in no direction at all.",
)
def one_at_zero(z):
    return torch.polar(torch.ones_like(z.real), z.angle())


@wrong.step(
    "modulus",
    "ends",
    "You make the modulus of squares, x * x + y * y: beyond 1e154 (1e19 in complex64) that's infinite, and below 1e-162 it's 0. Use "
    "z.abs(), which is not.",
)
def modulus_by_squares(z):
    return (z.real * z.real + z.imag * z.imag).sqrt()


@wrong.forward(
    "ends",
    "Forward makes the modulus of squares: beyond 1e154 (1e19 in complex64) that's infinite, and below 1e-162 it's 0. Use "
    "z.abs() there too, as in backward.",
)
def squares_in_forward(z):
    r = (z.real * z.real + z.imag * z.imag).sqrt()
    return torch.where(r == 0, 0, z / r)


@wrong.forward(
    "ends",
    "You add a tiny number, such as 1e-20, to |z|. Beside a z of 1e-200 it's not tiny, and the output is nearly 0. Choose with "
    "torch.where at 0 instead.",
)
def tiny_epsilon_added(z):
    return z / (z.abs() + 1e-20)


@wrong.forward(
    "ends",
    "You scale by the largest modulus in the tensor before you square. A number far smaller than that is 0 then. z.abs() scales "
    "each number by itself.",
)
def scaled_by_the_largest(z):
    if not z.any():
        return torch.zeros_like(z)
    s = z / z.abs().max()
    r = (s.real * s.real + s.imag * s.imag).sqrt()
    return torch.where(r == 0, 0, s / r)


@task.mistake(
    "ends",
    "One 0 among the numbers makes your whole gradient 0: any() asks about all of them. Choose number by number, with torch.where.",
)
class zero_for_all(Turning):
    @classmethod
    def backward(cls, ctx, g):
        z, y = ctx.saved_tensors
        return torch.zeros_like(z) if (z == 0).any() else cls.across(y, g) / z.abs()


@wrong.step(
    "modulus",
    "ends",
    "You keep |z| from falling below some small number, by clamp or maximum. Smaller z are then too short, and their gradients too "
    "small: only 0 itself is an exception.",
)
def modulus_clamped(z):
    return z.abs().clamp(min=1e-8)


@task.mistake(
    "ends",
    "In backward you divide by |z|^2 or |z|^3, whose square is 0 or infinite for small or large z. Use y, which has modulus 1, "
    "and one division by |z|.",
)
class cube_in_backward(Turning):
    @classmethod
    def backward(cls, ctx, g):
        z, _ = ctx.saved_tensors
        r = z.abs()
        return torch.where(r == 0, 0, g / r - z * (z.conj() * g).real / r**3)


@wrong.step(
    "grad_filled",
    "ends",
    "Where |z| is small you return a gradient of 0, as at 0 itself. There it's large, not 0: only where z == 0 torch takes 0.",
)
def zero_near_zero(quotient, r):
    return torch.where(r < 1e-6, 0, quotient)


@task.mistake(
    "second_order",
    "You save |z| as forward made it, on the way to the output. To torch that's a constant in the second derivative. Save z, and "
    "take its modulus in backward.",
)
class modulus_saved(Turning):
    @staticmethod
    def forward(ctx, z):
        y, r = Turning.forward(z), z.abs()
        ctx.save_for_backward(y, r)
        return y

    setup_context = Function.setup_context

    @classmethod
    def backward(cls, ctx, g):
        y, r = ctx.saved_tensors
        return torch.where(r == 0, 0, cls.across(y, g) / r)


@wrong.saves(
    "second_order",
    "You save a copy of the output, or a direction made on the way: a constant for the second derivative. Save the output itself, "
    "or make it again of z in backward.",
)
def saves_copy_of_output(z, y):
    return z, y.detach().clone()


@wrong.step(
    "along",
    "second_order",
    "The part along y is a constant for the second derivative: item, detach or no_grad cuts it off. Leave it in the graph.",
)
def along_detached(y, g):
    return (y.conj() * g).real.detach()


wrong.habits(
    "not_differentiable_twice",
    detached="Your first derivatives are right and the second ones lack what depends on z: detach (or .data) in backward cuts z "
    "and y out of the graph. Use what you saved as it is.",
)


@task.mistake(
    "second_order",
    "Where a 0 is among the numbers you detach all of them: the others have a second derivative. Put torch.where around the "
    "quotient, and leave z and y in the graph.",
)
class detached_for_a_zero(Turning):
    @classmethod
    def backward(cls, ctx, g):
        z, y = ctx.saved_tensors
        zero = z == 0
        if zero.any():
            z, y = torch.where(zero, 1, z.detach()), y.detach()
        return torch.where(zero, 0, cls.across(y, g) / z.abs())


@task.mistake(
    "second_order",
    "Of an input without dimensions you make a Python number, by item(), and of that a tensor: it's cut off from the graph. Use the "
    "formula for all shapes.",
)
class number_without_dimensions(Turning):
    @classmethod
    def backward(cls, ctx, g):
        grad = Turning.backward(ctx, g)
        return grad if grad.ndim else torch.tensor(grad.item(), dtype=grad.dtype)


@wrong.backward(
    "second_order",
    "Where the upstream gradient is all zeros you return new zeros, cut off from it. The gradient's derivative by g is not 0, at g = 0 either: "
    "leave that branch out.",
)
def zeros_made_anew(ctx, g):
    return Turning.backward(ctx, g) if g.any() else torch.zeros_like(g)


@wrong.step(
    "across",
    "second_order",
    "Where the upstream gradient is 0 you put a 0 that does not depend on it. The gradient's derivative by it is the same there as "
    "anywhere: choose by z == 0 alone.",
)
def zero_for_a_zero_upstream(y, g):
    return torch.where(g == 0, 0, Turning.across(y, g))


@wrong.step(
    "across",
    "second_order",
    "A real upstream gradient is made a real tensor first, so its derivative by the imaginary part is lost. A complex number of "
    "imaginary part 0 is complex: leave that branch out.",
)
def real_upstream_narrowed(y, g):
    return Turning.across(y, g if g.imag.any() else g.real)


@wrong.step(
    "across",
    "second_order",
    "You take |v| times the sine of an angle, and |v| has no derivative at v = 0, nor has the angle. y Im(conj(y) v) i is the same, "
    "and has one everywhere.",
)
def by_angles(y, g):
    return 1j * y * g.abs() * torch.sin(g.angle() - y.angle())


@wrong.backward(
    "second_order",
    "You look whether the upstream gradient requires a gradient, and else compute without a graph. The gradient depends on z too: "
    "with a constant upstream gradient your second derivative is 0.",
)
def graph_for_upstream_alone(ctx, g):
    with torch.set_grad_enabled(g.requires_grad):
        return Turning.backward(ctx, g)


@wrong.forward(
    "ends",
    "Forward writes 1 into the zeros of z and puts the 0 back: torch counts the changes, and whoever saved z for a backward of theirs "
    "is refused. Divide by torch.where(z == 0, 1, z.abs()).",
)
def zeros_put_back(z):
    zero = z == 0
    if zero.any():
        z[zero] = 1
    y = z / z.abs()
    if zero.any():
        z[zero] = 0
        y[zero] = 0
    return y


@task.mistake(
    "ends",
    "Backward changes the output in place, by .data, and the caller has it: what is computed from it afterwards is wrong. Make a new "
    "tensor.",
)
class output_normalised_again(Turning):
    @classmethod
    def backward(cls, ctx, g):
        _, y = ctx.saved_tensors
        y.data.div_(y.data.abs())
        return Turning.backward(ctx, g)


@wrong.backward(
    "ends",
    "Backward sets numbers of the upstream gradient to 0 in place, where z is 0. It belongs to the caller: put torch.where around your "
    "result instead.",
)
def upstream_set_to_zero(z, y, g):
    g[z == 0] = 0
    return Turning.across(y, g) / torch.where(z == 0, 1, z.abs())


wrong.habits(
    caught_by="contract",
    writes_into_upstream=WRITES_INTO_UPSTREAM,
    writes_into_input="Your forward divides z in place (div_ or /=): the caller's tensor is no longer what it was. Make a new one: "
    "z / z.abs().",
    kept_as_attribute="You keep z or the output as an attribute of ctx, where torch does not watch it: when it's changed in place "
    "before backward, the gradient is silently wrong. Use ctx.save_for_backward.",
    kept_outside_ctx="You keep tensors outside ctx, on the class or in a global: a second call overwrites them before the first "
    "one's backward. Use ctx.save_for_backward.",
)
