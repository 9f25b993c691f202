"""LogSumExp1d and SoftCrossEntropy, which the chapter alone shows."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from graders.inside.records import Case
from graders.judge.aspects import WATCHED, gradient, value
from graders.judge.task import DOUBLE, DTYPES, Check, Draw, Task
from graders.judge.wrong import Wrong
from graders.sets.logsumexp.common import GRADIENT, INF, VALUE, contract, log_sum_exp, moderate, named, second_order


def _sibling_checks(cases: Callable, second: Callable) -> tuple[Check, ...]:
    """Return the checks of a chapter's Function, a point each.

    Args:
        cases: from a Draw and an order, the cases of value and gradient.
        second: from a Draw, arguments for the second order, gradcheck and the contract.
    """
    both = "Everything after this is computed from these numbers, so start here."
    return (
        value(1, about="the output equals torch's", why=both, cases=lambda d: cases(d, 0), looks=VALUE),
        gradient(
            1,
            about="the gradients equal torch's",
            why=both,
            cases=lambda d: cases(d, 1),
            looks=GRADIENT,
            gradcheck=second,
        ),
        second_order(
            1,
            about="the gradients can be differentiated again",
            why="A Hessian differentiates your backward.",
            cases=lambda d: [d.case("a sample", *second(d), order=2)],
            gradcheck=second,
        ),
        contract(1, cases=lambda d: [d.case("a sample", *second(d), watch=WATCHED)]),
    )


# --- LogSumExp1d ------------------------------------------------------------------------------------------------------


def _vectors(d: Draw, order: int) -> list[Case]:
    """Return cases of every dtype, and of rows far from 0."""
    far = [[-INF, -INF], [INF, 0.0], [-INF, 0.0], [1000.0, 1000.0], [-1000.0, -1000.0]]
    return [
        *(d.case(f"a {named(t)} vector", moderate(d)(4, dtype=t), order=order) for t in DTYPES),
        *(d.case(f"x = {row}", torch.tensor(row, dtype=DOUBLE), order=order) for row in far),
    ]


vector = Task(
    "LogSumExp1d",
    "LogSumExp1d.apply(x)",
    reference=lambda x: log_sum_exp(x, 0),
    checks=_sibling_checks(_vectors, lambda d: (moderate(d)(5),)),
)


@vector.solution
class LogSumExp1dNew(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(x):
        m = x.amax()
        m = m.masked_fill(m.isinf(), 0)
        return m + (x - m).exp().sum().log()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * (x - y).exp()


wrong = Wrong(vector, of=LogSumExp1dNew)


@wrong.forward(
    "value",
    "Your shift is the maximum also where that is infinite: inf - inf is nan. A row of -inf must give -inf and a row "
    "with +inf must give inf: shift by 0 where the maximum is infinite.",
)
def no_guard(x):
    m = x.amax()
    return m + (x - m).exp().sum().log()


@wrong.backward(
    "gradient",
    "You add a gradient for the maximum that was added back. The same maximum was subtracted inside, and that "
    "cancels it: the result does not depend on the shift. The gradient is the softmax alone; its sum is 1.",
)
def max_gets_gradient(x, y, g):
    return g * ((x - y).exp() + (x == x.amax()))


@wrong.backward(
    "second_order",
    "Your first derivative is right, but the softmax was computed in forward and saved, so it comes back as a "
    "constant and the Hessian is 0, where diag(p) - p p^T is right. Save x and the output, compute exp(x - output) "
    "in backward. detach() or clone() before saving is no cure.",
    saves=lambda x, y: (torch.softmax(x, dim=0),),
)
def saves_softmax(p, g):
    return g * p


wrong.usual("writes_into_upstream kept_as_attribute", without="upstream_summed")


# --- SoftCrossEntropy -------------------------------------------------------------------------------------------------


def _soft(d: Draw, n: int = 3, classes: int = 4, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor]:
    """Return logits and probabilities that do not sum to 1."""
    return moderate(d)(n, classes, dtype=dtype), d.between(0.1, 1, n, classes, dtype=dtype)


def _softly(d: Draw, order: int) -> list[Case]:
    """Return cases of every dtype and shape."""
    return [
        *(d.case(f"{named(t)} inputs", *_soft(d, dtype=t), order=order) for t in DTYPES),
        d.case("one row", *_soft(d, 1), order=order),
        d.case("one class", *_soft(d, 3, 1), order=order),
    ]


soft = Task(
    "SoftCrossEntropy",
    "SoftCrossEntropy.apply(logits, probs)",
    reference=lambda logits, probs: F.cross_entropy(logits, probs),
    checks=_sibling_checks(_softly, _soft),
)


@soft.solution
class SoftCrossEntropyNew(Function):
    """As the chapter has it."""

    @staticmethod
    def forward(logits, probs):
        terms = probs * logits.log_softmax(-1)
        return -torch.where(probs == 0, 0, terms).sum() / len(logits)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, probs = ctx.saved_tensors
        logp, g = logits.log_softmax(-1), g / len(logits)
        total = probs.sum(-1, keepdim=True)
        return g * (logp.exp() * total - probs), -g * logp


wrong = Wrong(soft, of=SoftCrossEntropyNew)


@wrong.backward(
    "gradient",
    "Your loss is a mean over N rows, your gradient that of the sum: N times too large. Divide by N in backward too. "
    "With one row nothing shows.",
)
def mean_forgotten(logits, probs, g):
    logp = logits.log_softmax(-1)
    return g * (logp.exp() * probs.sum(-1, keepdim=True) - probs), -g * logp


@wrong.backward(
    "gradient",
    "Your gradient of the logits is p - y, which is right for rows of y that sum to 1. These need not: the softmax is "
    "multiplied by the sum of its row of y.",
)
def rows_taken_to_sum_to_1(logits, probs, g):
    logp, g = logits.log_softmax(-1), g / len(logits)
    return g * (logp.exp() - probs), -g * logp


@wrong.backward(
    "gradient",
    "You return None for probs, the second argument. It is a tensor, and its gradient is -log p, divided by the number of "
    "rows, times the upstream gradient.",
)
def probs_get_none(logits, probs, g):
    p = logits.softmax(-1)
    return g / len(logits) * (p * probs.sum(-1, keepdim=True) - probs), None


wrong.usual("writes_into_upstream kept_as_attribute", without="upstream_summed")

CHAPTER = (vector, soft)
