"""Arctan, which the chapter alone shows."""

import torch
from torch.autograd import Function

from graders.judge.aspects import WATCHED, contract, gradient, second_order, value
from graders.judge.task import Task
from graders.judge.wording import FLOAT32_AND_BACK
from graders.judge.wrong import Wrong
from graders.sets.sigmoid.common import SECOND, sizes, wide_inputs

arctan = Task(
    "Arctan",
    "Arctan.apply(x)",
    reference=torch.atan,
    checks=(
        value(
            1,
            about="the output equals torch.atan in every dtype, shape and layout",
            cases=lambda d: [d.case("every size", sizes(d, 1.6, 12), order=0), *d.forms(wide_inputs(d), order=0)],
        ),
        gradient(
            1,
            about="the gradient equals torch's on both sides of |x| = 1, and gradcheck passes",
            why="Backward returns the upstream gradient times 1 / (1 + x^2), whatever the size of x.",
            cases=lambda d: [
                d.case("|x| below 1", d.sides(6, away=0.05, reach=0.95)),
                d.case("|x| above 1", d.sides(6, away=1.05, reach=6.0)),
                *d.forms(wide_inputs(d)),
            ],
            gradcheck=lambda d: (torch.cat([d.sides(4, reach=0.9), d.sides(4, away=1.1, reach=4.0)]),),
        ),
        second_order(
            1,
            about="the gradient can be differentiated again, and the result is right",
            cases=lambda d: [d.case("both sides of 1", d.sides(8, reach=3.0), order=2)],
            looks=SECOND,
            gradcheck=lambda d: (d.sides(4, reach=3.0),),
        ),
        contract(1, cases=lambda d: [d.case("both signs", d.sides(6), watch=WATCHED)]),
    ),
)


@arctan.solution
class ArctanNew(Function):
    """In the form of chapter 2: x is saved, and the slope computed in backward."""

    @staticmethod
    def forward(x):
        return torch.atan(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g / (1 + x * x)


wrong = Wrong(arctan, of=ArctanNew)


@wrong.backward(
    "gradient",
    "Where |x| > 1 your gradient is wrong: with r = 1 / x the slope is r^2 / (1 + r^2), and yours lacks the factor r^2. "
    "Check on inputs from both branches.",
)
def wrong_branch(x, g):
    large = x.abs() > 1
    r = 1 / torch.where(large, x, 1)
    return g * torch.where(large, 1 / (1 + r * r), 1 / (1 + x * x))


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is zero: 1 / (1 + x^2) was computed before backward and saved, so torch "
    "takes it for a constant. Save x and compute the slope in backward.",
    saves=lambda x, y: (1 / (1 + x * x),),
)
def saves_derivative(slope, g):
    return g * slope


@wrong.backward(
    "gradient",
    "Your slope is 1 / sqrt(1 + x^2) in place of 1 / (1 + x^2). Its own derivative is right, so gradgradcheck passes; only "
    "gradcheck compares the slope with the function.",
)
def consistent_but_wrong(x, g):
    return g / (1 + x * x).sqrt()


@arctan.mistake("value", FLOAT32_AND_BACK)
class float32_inside(ArctanNew):
    @staticmethod
    def forward(x):
        return torch.atan(x.float()).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        x = x.float()
        return (g.float() / (1 + x * x)).to(g.dtype)


@wrong.backward(
    "gradient",
    "You wrote g / 1 + x * x, and Python divides before it adds: that is g + x^2. The parentheses are missing: g / (1 + x * x).",
)
def parentheses_missing(x, g):
    return g / 1 + x * x


wrong.usual("writes_into_upstream kept_as_attribute", without="float32_and_back")

CHAPTER = (arctan,)
