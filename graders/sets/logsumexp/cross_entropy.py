"""CrossEntropy: the mean over the rows, targets that are no floats, and logits far from 0."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import WATCHED, gradient, value
from graders.judge.task import BRAIN, DOUBLE, DTYPES, HALF, SINGLE, Check, Draw, Task, operators
from graders.judge.wording import WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.logsumexp.common import (
    BOTH,
    CONSTANT_UPSTREAM,
    GRADIENT,
    INF,
    MIXED,
    VALUE,
    contract,
    many_small,
    matrix,
    named,
    second_order,
)

PLACE = 4
TARGET = torch.tensor([0, 2, 1, 1])
PAIR = torch.tensor([2, 0])
LOSSES = (  # of torch that end in the logarithm of a probability
    *operators(
        "nll_loss_forward nll_loss2d_forward multi_margin_loss binary_cross_entropy binary_cross_entropy_with_logits"
    ),
    "torch.nn.functional.kl_div",
)
NO_LOSS = look.Forbids(
    "The loss is to be written in torch: softmax, log_softmax and logsumexp are allowed, a loss of torch's "
    "is not, other libraries are not, and in backward no torch.autograd or torch.func.",
    names="""
        cross_entropy nll_loss nll_loss_nd nll_loss2d cross_entropy_loss kl_div binary_cross_entropy multi_margin_loss
        binary_cross_entropy_with_logits CrossEntropyLoss NLLLoss NLLLoss2d KLDivLoss BCELoss BCEWithLogitsLoss
        MultiMarginLoss
    """,
    foreign=True,
    backward=True,
)


def _batch(
    d: Draw, n: int, classes: int, dtype: torch.dtype = DOUBLE, around: float = 0.0, last: int = 0
) -> tuple[Tensor, Tensor]:
    """Return logits (n, classes) and targets, none of the `last` classes among them."""
    target = torch.randint(0, classes - last, (n,), generator=d.random)
    return d.between(-2 + around, 3 + around, n, classes).to(dtype), target


def _batches(d: Draw, order: int) -> list[Case]:
    """Return cases of every dtype, shape and layout."""
    logits, target = _batch(d, 4, 3)
    other, _ = _batch(d, 3, 4)
    return [
        *(d.case(f"{named(t)} logits", *_batch(d, 4, 3, t), order=order) for t in DTYPES),
        d.case("as many rows as classes", *_batch(d, 3, 3), order=order),
        d.case("one row", *_batch(d, 1, 4), order=order),
        d.case("one class", *_batch(d, 3, 1), order=order),
        d.case("the last class missing", *_batch(d, 4, 3, last=1), order=order),
        d.case("transposed logits", other.t(), target, order=order),
        d.case("equal rows, expanded", logits[:1].expand(4, 3), target, order=order),
        d.case("every second target", logits[:2], target[::2], order=order),
        d.case("target by keyword", logits, target, keywords=("target",), order=order),
    ]


def _far_batches(d: Draw) -> list[Case]:
    """Return cases of large logits and -inf.

    In low precision the gradient only where one term is large: others lose digits in x - y.
    """
    second = torch.tensor([1, 0])
    masked = matrix([1.0, -INF, 2.0], [0.5, 0.0, -INF])
    cases = [
        d.case("around 10000, 0 and -10000", matrix([1e4], [0], [-1e4]) + _batch(d, 3, 4)[0], torch.tensor([3, 0, 1])),
        d.case(
            "10000 and -10000 in one row",
            matrix([1e4, -1e4, 0], [-1e4, 1e4, 1e4]),
            second,
            watch=("trace",),
            deny=LOSSES,
        ),
        d.case("float32 around 95", *_batch(d, 2, 3, SINGLE, 95)),
        d.case("float32 around -110", *_batch(d, 2, 3, SINGLE, -110)),
        *(d.case("float32 around 10000", *_batch(d, 1, 3, SINGLE, 1e4), order=0) for _ in range(4)),
        d.case("-inf beside the target", masked, torch.tensor([0, 0])),
        d.case("-inf at the target, where the loss is inf", masked, second),
        d.case("float16, -inf beside the target", masked.half(), torch.tensor([2, 1])),
    ]
    for dtype, far in ((SINGLE, 1e4), (HALF, 100.0), (BRAIN, 100.0)):
        one = matrix([far, -far, 0.0], [-far, -2 * far, -1.5 * far], dtype=dtype)
        cases += [
            d.case(f"{named(dtype)} at {far:g} and -{far:g}", one, second),
            d.case(f"{named(dtype)} at {far:g}, without loss", one, torch.tensor([0, 0])),
        ]
    return [
        *cases,
        d.case("float16 around 100", *_batch(d, 2, 3, HALF, 100), order=0),
        d.case("one 0, and 3000 logits at -20", many_small(), torch.tensor([0])),
    ]


task = Task(
    "CrossEntropy",
    "CrossEntropy.apply(logits, target)",
    reference=lambda logits, target: F.cross_entropy(logits.double(), target).to(logits.dtype),
    checks=(
        value(
            1,
            about="the loss equals F.cross_entropy, its mean over the rows, in every dtype and layout",
            cases=lambda d: [
                *_batches(d, order=0),
                d.case("a batch", *_batch(d, 4, 3), order=0, watch=("trace",), deny=LOSSES),
                *d.lopsided(lambda x: (x, PAIR), 2, 3, order=0),
            ],
            looks=(*VALUE, look.allowed),
        ),
        gradient(
            1,
            about="the gradient equals torch's for any upstream gradient, and gradcheck passes",
            why="Backward returns (p - y) / N times the upstream gradient, p the softmax of a row, y 1 at its target.",
            cases=lambda d: [
                *_batches(d, order=1),
                *(d.case("an upstream of any size", *_batch(d, 4, 3), upstream=u) for u in d.scales(3)),
                d.case("a batch", *_batch(d, 4, 3), watch=("trace",), deny=LOSSES),
                *d.lopsided(lambda x: (x, PAIR), 2, 3),
            ],
            looks=(*GRADIENT, look.allowed),
            gradcheck=lambda d: _batch(d, 4, 3),
        ),
        Check(
            "extremes",
            1,
            about="logits of 10000 and -10000, 100 and -100 in halves, and -inf: loss and gradient",
            why="Logits of this size are everyday, and -inf is how a class is ruled out.",
            cases=_far_batches,
            looks=(*BOTH, look.allowed),
        ),
        second_order(
            1,
            about="the gradient can be differentiated again, by logits and upstream gradient",
            why="The Hessian of a row is (diag(p) - p p^T) / N. Newton steps and gradient penalties need it.",
            cases=lambda d: [
                d.case("a batch", *_batch(d, 4, 3), order=2),
                d.case("one row", *_batch(d, 1, 3), order=2),
                d.case("one class", *_batch(d, 2, 1), order=2),
                d.case("float32", *_batch(d, 3, 4, SINGLE), order=2),
                d.case("around 1000", *_batch(d, 2, 3, around=1000), order=2),
                d.case("-inf beside the target", matrix(*MIXED[::5]), torch.tensor([1, 0]), order=2),
                d.case("an upstream gradient that is a constant", *_batch(d, 2, 3), order=2, how="constant"),
                *d.lopsided(lambda x: (x, PAIR), 2, 3, order=2),
            ],
            gradcheck=lambda d: _batch(d, 2, 3),
        ),
        contract(
            1,
            why="Memory is looked at here, and these numbers first: a gradient that is wrong elsewhere is wrong here "
            "too.",
            cases=lambda d: [
                d.case(
                    "a batch", _batch(d, 4, 3)[0], TARGET, watch=WATCHED, between=(_batch(d, 4, 3)[0], TARGET.flip(0))
                ),
                d.case(
                    "float32",
                    _batch(d, 4, 3, SINGLE)[0],
                    TARGET,
                    watch=("state", "overwrite"),
                    between=_batch(d, 1, 3, SINGLE),  # one row, so that what is kept of it broadcasts
                ),
            ],
        ),
    ),
    forbids=NO_LOSS,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


def _log_p(logits: Tensor) -> Tensor:
    """Return the logarithm of the softmax of each row."""
    shifted = logits - logits.amax(1, keepdim=True)
    return shifted - shifted.exp().sum(1, keepdim=True).log()


def _picked(values: Tensor, target: Tensor) -> Tensor:
    """Return the one of each row that the target names."""
    return values.gather(1, target[:, None])[:, 0]


@task.solution
class CrossEntropyNew(Function):
    """In the form of chapter 1: the maximum is taken away before the target's logit is, so that digits stay."""

    @staticmethod
    def forward(logits, target):
        return -_picked(_log_p(logits), target).mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        y = F.one_hot(target, logits.shape[1])
        return g * (_log_p(logits).exp() - y) / len(logits), None


@task.solution
class CrossEntropyOld(Function):
    """With torch's log_softmax and softmax, which this task allows: the least to write."""

    @staticmethod
    def forward(ctx, logits, target):
        ctx.save_for_backward(logits, target)
        log_p = torch.log_softmax(logits, dim=1)
        return -log_p[range(len(target)), target].sum() / len(target)

    @staticmethod
    def backward(ctx, grad_output):
        logits, target = ctx.saved_tensors
        p = torch.softmax(logits, dim=-1)
        y = torch.zeros_like(logits).scatter_(1, target.unsqueeze(1), 1.0)
        return grad_output / target.numel() * (p - y), None


@task.solution
class CrossEntropyWide(CrossEntropyNew):
    """In float64, so that log sum exp minus the target's logit keeps its digits: where memory is no concern."""

    @staticmethod
    def forward(logits, target):
        x = logits.double()
        at = torch.arange(x.shape[1]) == target[:, None]
        loss = torch.logsumexp(x, 1) - x[at]
        return loss.mean().to(logits.dtype)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        x = logits.double()
        p = (x - torch.logsumexp(x, 1, keepdim=True)).exp()
        at = torch.arange(x.shape[1]) == target[:, None]
        return (torch.where(at, p - 1, p) * (g.double() / len(x))).to(logits.dtype), None


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class CrossEntropyByRows(CrossEntropyNew):
    """A loop over the rows; index_add for the ones."""

    @staticmethod
    def forward(logits, target):
        losses = []
        for row, t in zip(logits, target.tolist(), strict=True):
            away = row - row.max()
            losses.append(away.exp().sum().log() - away[t])
        return torch.stack(losses).mean()

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None, None
        logits, target = ctx.saved_tensors
        n, classes = logits.shape
        away = logits - logits.max(1, keepdim=True).values
        p = away.exp() / away.exp().sum(1, keepdim=True)
        flat = p.reshape(-1).index_add(0, torch.arange(n) * classes + target, -torch.ones_like(p[:, 0]))
        return flat.reshape(n, classes) * (g / n), None


# --- Mistakes ---------------------------------------------------------------------------------------------------------

wrong = Wrong(task, of=CrossEntropyNew)
wrong.habits(
    "float32_and_back no_function not_differentiable_twice",
    upstream_ignored="Your gradient does not depend on the upstream gradient, as if the loss were always the last "
    "thing. It may be scaled, or one term of several: multiply by the upstream gradient.",
)


@wrong.forward(
    "value",
    "Your loss is the sum over the rows. The mean is asked for, as F.cross_entropy has it: divide by their number N.",
)
def sum_over_rows(logits, target):
    return -_picked(_log_p(logits), target).sum()


@wrong.forward(
    "value",
    "You divide your loss by the number of classes, logits.shape[1]. The mean over the rows is asked for: divide by "
    "their number N, logits.shape[0].",
)
def loss_divided_by_classes(logits, target):
    return -_picked(_log_p(logits), target).sum() / logits.shape[1]


@wrong.forward(
    "value", "Your loss has the wrong sign: it is minus the logarithm of the target's probability, and never negative."
)
def sign_of_the_loss(logits, target):
    return _picked(_log_p(logits), target).mean()


@task.mistake(
    "value",
    "You return one loss for each row. The mean over the rows is asked for, a tensor without dimensions.",
)
class loss_of_each_row(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return -_picked(_log_p(logits), target)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        return g[:, None] * (_log_p(logits).exp() - F.one_hot(target, logits.shape[1])), None


@task.mistake(
    "value",
    "Your softmax runs along the rows (dim 0). The classes are the columns: each row of the logits has probabilities "
    "that sum to 1, along dim 1.",
)
class softmax_over_the_batch(CrossEntropyNew):
    @staticmethod
    def forward(logits, target):
        return -_picked(_log_p(logits.t()).t(), target).mean()

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        p = _log_p(logits.t()).t().exp()
        return g * (p - F.one_hot(target, logits.shape[1])) / len(logits), None


@wrong.forward(
    "value",
    "Your indexing log_p[:, target] takes the columns of all targets for every row: an N x N matrix. One element a "
    "row is asked for: log_p[torch.arange(N), target], or gather.",
)
def columns_indexed(logits, target):
    return -_log_p(logits)[:, target].mean()


@wrong.forward(
    "value",
    "Your forward calls a loss of torch's (cross_entropy, nll_loss). The task is to write it: the mean of log sum "
    "exp minus the target's logit. A softmax or log_softmax is allowed, a loss is not.",
)
def calls_a_loss(logits, target):
    return F.nll_loss(_log_p(logits), target)


@wrong.forward(
    "value",
    "Your one_hot is told nothing of the number of classes, and takes the largest target for the last class. Where "
    "that class is absent from the batch the shapes do not fit: one_hot(target, logits.shape[1]).",
)
def classes_inferred(logits, target):
    return -(F.one_hot(target) * _log_p(logits)).sum() / len(logits)


@wrong.backward(
    "gradient",
    "Your loss is a mean over N rows, your gradient that of the sum: N times too large. Divide by N in backward too. "
    "With one row nothing shows.",
)
def mean_forgotten(logits, target, g):
    return g * (_log_p(logits).exp() - F.one_hot(target, logits.shape[1])), None


@wrong.backward(
    "gradient",
    "You divide your gradient by the number of classes, logits.shape[1]. The loss is a mean over the rows: divide by "
    "their number N, logits.shape[0].",
)
def divided_by_classes(logits, target, g):
    return g * (_log_p(logits).exp() - F.one_hot(target, logits.shape[1])) / logits.shape[1], None


@wrong.backward(
    "gradient",
    "You divide your gradient by the number of all logits (mean, or numel). The loss is a mean over the rows: divide by "
    "their number N, logits.shape[0].",
)
def divided_by_all(logits, target, g):
    return g * (_log_p(logits).exp() - F.one_hot(target, logits.shape[1])) / logits.numel(), None


@wrong.backward(
    "gradient",
    "Your gradient is the softmax alone: that of log sum exp. The target's logit is subtracted from it, so its "
    "gradient is p - 1.",
)
def target_forgotten(logits, _, g):
    return g * _log_p(logits).exp() / len(logits), None


@wrong.backward(
    "gradient",
    "The softmax in your backward runs over dim 0, so that each column sums to 1: take it over dim 1, where the classes "
    "are and each row sums to 1.",
)
def backward_over_the_batch(logits, target, g):
    return g * (torch.softmax(logits, 0) - F.one_hot(target, logits.shape[1])) / len(logits), None


@wrong.backward(
    "gradient",
    "The sum in your backward's softmax runs over dim 0, so that each column sums to 1: e / e.sum(1, keepdim=True) has "
    "the classes on dim 1, where each row sums to 1.",
)
def divided_by_sum_of_columns(logits, target, g):
    e = (logits - logits.amax(1, keepdim=True)).exp()
    return g * (e / e.sum(0) - F.one_hot(target, logits.shape[1])) / len(logits), None


@wrong.backward("gradient", "Your gradient has the wrong sign: y - p goes uphill. It is p - y, negative at the target.")
def sign_of_the_gradient(ctx, g):
    return CrossEntropyNew.backward(ctx, -g)


@wrong.backward(
    "gradient",
    "You subtract the number of the target's class from the whole row (p - target[:, None]). It is 1 that goes off, at "
    "the target alone: F.one_hot(target, logits.shape[1]) makes such rows of the numbers.",
)
def class_number_subtracted(logits, target, g):
    return g * (_log_p(logits).exp() - target[:, None]) / len(logits), None


@wrong.backward(
    "gradient",
    "You subtract 1 in whole columns (p[:, target] -= 1) or whole rows (p[target] -= 1). Pairs are asked for, one "
    "element a row: p[torch.arange(N), target], or scatter, or one_hot.",
)
def whole_columns(logits, target, g):
    p = _log_p(logits).exp()
    p[:, target] -= 1
    return g * p / len(logits), None


@wrong.backward(
    "gradient",
    "Your backward returns one gradient, or nothing (is there a return?), and forward has two arguments: torch wants "
    "one for each, None for target.",
)
def one_gradient_returned(ctx, g):
    return CrossEntropyNew.backward(ctx, g)[0]


@wrong.forward(
    "extremes",
    "Your softmax takes exp of the logits as they are: it overflows above 88.7 in float32. Subtract the maximum of "
    "each row first.",
)
def no_shift(logits, target):
    return (logits.exp().sum(1).log() - _picked(logits, target)).mean()


@wrong.forward(
    "extremes",
    "You take the logarithm of the softmax. A probability below the smallest number is 0, and its logarithm -inf, "
    "where the loss is large and finite: subtract log sum exp from the logits, and never form the probability.",
)
def logarithm_of_softmax(logits, target):
    return -_picked(torch.softmax(logits, 1), target).log().mean()


@wrong.forward(
    "extremes",
    "You bound the probability or its logarithm from below (clamp, or a small number added). A loss above that bound "
    "comes out too small, and -inf at the target should give inf. The shift by the maximum makes all that "
    "unnecessary.",
)
def probability_clamped(logits, target):
    return -_picked(_log_p(logits), target).clamp(min=-100).mean()


@wrong.forward(
    "extremes",
    "You subtract the target's logit from log sum exp: two numbers near 10000 whose difference is near 1, so that "
    "float32 keeps three digits of it. Subtract the maximum of the row from its logits first, and work with the "
    "small numbers.",
)
def digits_cancel(logits, target):
    return (torch.logsumexp(logits, 1) - _picked(logits, target)).mean()


@wrong.forward(
    "extremes",
    "You multiply log p by a one-hot matrix and add up. A class ruled out by -inf gives 0 * -inf, which is nan, also "
    "where it is not the target: pick the target's entry, by gather or by an index.",
)
def one_hot_times_infinity(logits, target):
    return -(F.one_hot(target, logits.shape[1]) * _log_p(logits)).sum() / len(logits)


@wrong.backward(
    "extremes",
    "Your forward is right, and your backward takes exp of the logits as they are: inf / inf is nan. Shift there "
    "too, or take torch.softmax.",
)
def no_shift_in_backward(logits, target, g):
    e = logits.exp()
    p = e / e.sum(1, keepdim=True)
    return g * (p - F.one_hot(target, logits.shape[1])) / len(logits), None


@wrong.backward(
    "second_order",
    "Your first derivative is right, but the softmax was computed in forward and saved (or detached), so it is a "
    "constant for the second: the Hessian is 0 where (diag(p) - p p^T) / N is right. Save the logits and compute p "
    "in backward.",
    saves=lambda logits, target, y: (torch.softmax(logits, 1), target),
)
def saves_softmax(p, target, g):
    return g * (p - F.one_hot(target, p.shape[1])) / len(p), None


@wrong.backward(
    "second_order",
    "Your backward changes the softmax in place (p[...] -= 1, p -= y, p /= N). It is your own tensor, but the "
    "derivative of exp, or of softmax, needs its values: torch cannot differentiate your gradient. Make a new one: p "
    "- y.",
)
def changes_softmax_in_place(logits, target, g):
    p = _log_p(logits).exp()
    p[torch.arange(len(p)), target] -= 1
    return g * p / len(p), None


@wrong.backward("second_order", CONSTANT_UPSTREAM)
def graph_for_upstream_alone(ctx, g):
    with torch.set_grad_enabled(g.requires_grad):
        return CrossEntropyNew.backward(ctx, g)


@wrong.forward(
    "contract",
    "Your forward subtracts the maximum in place (logits -= m, sub_): the caller's tensor is overwritten. Write "
    "logits - m, a new tensor.",
)
def writes_into_logits(logits, target):
    logits.sub_(logits.amax(1, keepdim=True))
    return (logits.exp().sum(1).log() - _picked(logits, target)).mean()


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(logits, target, g):
    g /= len(logits)
    return g * (_log_p(logits).exp() - F.one_hot(target, logits.shape[1])), None


@wrong.backward(
    "contract",
    "Your backward subtracts 1 in the saved softmax itself. A second backward through the same graph would subtract "
    "it again: torch raises. Subtract in a tensor of your own (and save the logits, not their softmax, for the "
    "second derivative).",
    saves=lambda logits, target, y: (torch.softmax(logits, 1), target),
)
def subtracts_in_saved(p, target, g):
    p[torch.arange(len(p)), target] -= 1
    return g * p / len(p), None


@task.mistake(
    "contract",
    "You keep the target as an attribute of ctx, where torch does not watch it: when it is changed in place before "
    "backward (a buffer that is used again), the gradient is silently wrong. save_for_backward takes integer tensors "
    "too.",
)
class target_kept_as_attribute(CrossEntropyNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        logits, ctx.target = inputs
        ctx.save_for_backward(logits)

    @staticmethod
    def backward(ctx, g):
        (logits,) = ctx.saved_tensors
        return g * (_log_p(logits).exp() - F.one_hot(ctx.target, logits.shape[1])) / len(logits), None


@wrong.backward(
    "gradient",
    "F.one_hot(target) has as many columns as the largest target here needs, and the logits have one for each class. Give it "
    "the number of classes: F.one_hot(target, logits.shape[1]).",
)
def one_hot_without_classes(logits, target, g):
    y = F.one_hot(target)
    return g * (_log_p(logits).exp() - y) / len(logits), None


@wrong.backward(
    "extremes",
    "You set the gradient to 0 wherever a logit is -inf (or infinite). Where that is the target's logit it is (0 - 1) / N times "
    "the upstream gradient. The softmax is 0 at -inf by itself: leave the mask out.",
)
def infinite_logits_masked(logits, target, g):
    p = _log_p(logits).exp() - F.one_hot(target, logits.shape[1])
    return g * p.masked_fill(logits.isinf(), 0) / len(logits), None
