"""What the tasks of set 07 share."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case, Record
from graders.judge import aspects
from graders.judge import looks as look
from graders.judge.looks import Finding
from graders.judge.task import DOUBLE, Draw, operators

INF, NAN = float("inf"), float("nan")
MIXED = ([1.0, 2.0, -INF], [-INF, -INF, -INF], [INF, 1.0, 2.0], [INF, -INF, INF], [-INF, 0.0, -INF], [0.5, -1.0, 2.0])
SUMS = operators(  # of torch that add exponentials, or divide by their sum
    "logsumexp logaddexp logaddexp2 logcumsumexp _logcumsumexp _softmax _log_softmax _safe_softmax _masked_softmax "
    "_softmax_backward_data _log_softmax_backward_data _masked_softmax_backward nll_loss_forward nll_loss2d_forward "
    "_sparse_softmax _sparse_log_softmax _ctc_loss _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention _scaled_dot_product_attention_math "
    "softplus log_sigmoid_forward soft_margin_loss binary_cross_entropy_with_logits"  # a + softplus(b - a): a logaddexp
)
FORBIDS = look.Forbids(
    "A logarithm of a sum of exponentials is to be made from exp, a sum and log in torch: without logsumexp, "
    "logaddexp, softmax, softplus, their relatives and other libraries, and without torch.autograd or torch.func in "
    "backward.",
    names="""
        logsumexp logaddexp logaddexp2 logcumsumexp softmax softmin log_softmax gumbel_softmax cross_entropy nll_loss
        Softmax Softmin LogSoftmax Softmax2d CrossEntropyLoss NLLLoss AdaptiveLogSoftmaxWithLoss
        scaled_dot_product_attention softplus logsigmoid log_sigmoid Softplus LogSigmoid soft_margin_loss SoftMarginLoss
        multilabel_soft_margin_loss MultiLabelSoftMarginLoss binary_cross_entropy_with_logits BCEWithLogitsLoss
    """,
    foreign=True,
    backward=True,
)
CONSTANT_UPSTREAM = (
    "You look whether the upstream gradient requires a gradient, and else compute without a graph (no_grad, or "
    "detach). The gradient depends on the input too: for torch.autograd.functional.hessian, whose upstream gradient is "
    "a constant, your Hessian is 0."
)


def epsilon(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find, in float64 and before `precise` does, an output off by what a power of ten does to it.

    That is: added to a sum of exponentials or a probability before the logarithm, or to the sum before a division.
    """
    mine, right = yours.outputs[0], expected.outputs[0]
    if not mine.dtype == right.dtype == DOUBLE or torch.allclose(mine, right, rtol=1e-10, atol=1e-10):
        return None
    if call.startswith("LogSumExp."):  # m + log(sum + epsilon)
        x, dim = case.args[:2]
        m = x.amax(dim, keepdim=True).reshape(right.shape)
        sizes = (torch.expm1(mine - right) * (right - m).exp())[right.isfinite()]
        where = "the sum before the logarithm"
        instead = "After the shift that is at least 1, and in a row of -inf its logarithm is to be -inf."
    elif call.startswith("VocabLoss."):  # m + log(sum + epsilon) - x_t, of words that are split over ranks
        logits, target = case.args
        picked = logits.transpose(0, 1).flatten(1).gather(1, target[:, None])[:, 0]
        sizes = torch.expm1(mine - right) * (right + picked - logits.amax((0, 2))).exp()
        where = "the sum before the logarithm"
        instead = "After the shift that is at least 1, so nothing needs it."
    elif call.startswith("CrossEntropy."):  # the mean of -log(p + epsilon), p the target's probability; to first order
        x, target = case.args
        sizes = (right - mine).reshape(1) / (torch.logsumexp(x, 1) - x.gather(1, target[:, None])[:, 0]).exp().mean()
        where = "the probability before the logarithm"
        instead = "Make the logarithm of the softmax by a subtraction, and nothing needs that."
    elif call.startswith("StreamedSoftmax."):  # e / (sum + epsilon)
        x = case.args[0]
        sums = (x - x.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True)
        sizes = ((right / mine - 1) * sums)[right > 1e-9]
        where = "the sum before the division"
        instead = "After the shift that is at least 1, so nothing needs it."
    else:
        return None
    size = sizes.amax().item() if sizes.numel() else 0.0
    power = 10.0 ** round(math.log10(size)) if 0 < size < 0.01 else 0.0
    if not power or not torch.allclose(sizes, torch.full_like(sizes, power), rtol=1e-2, atol=0):
        return None
    text = f"Your value is off by what {power:g}, added to {where}, does to it. {instead}"
    return Finding("epsilon", text, {"case": look.describe(call, case)})


VALUE = (*aspects.VALUE[:-2], epsilon, *aspects.VALUE[-2:])
GRADIENT = (*aspects.GRADIENT[:-2], epsilon, *aspects.GRADIENT[-2:])
BOTH = (*VALUE, *GRADIENT[4:])

second_order = partial(aspects.second_order, looks=(*GRADIENT, look.second_order))
contract = partial(
    aspects.contract,
    about="the caller's tensors stay untouched; those that backward needs are saved",
    # what is changed in place comes before the numbers that it spoils
    looks=(*GRADIENT[:4], look.untouched, *GRADIENT[4:], look.stateless, look.guarded, look.allowed),
)


def named(dtype: torch.dtype) -> str:
    """Return a dtype's name without torch's."""
    return str(dtype).removeprefix("torch.")


def moderate(d: Draw) -> Callable[..., Tensor]:
    """Return what draws logits from -2 to 3, of a shape."""
    return lambda *shape, dtype=DOUBLE: d.between(-2, 3, *shape, dtype=dtype)


def matrix(*rows: list[float], dtype: torch.dtype = DOUBLE) -> Tensor:
    """Return the tensor of these rows."""
    return torch.tensor(rows, dtype=dtype)


def many_small() -> Tensor:
    """Return a row of one 0 and thousands of numbers, each of which counts next to nothing."""
    return torch.cat([torch.zeros(1, 1, dtype=DOUBLE), torch.full((1, 3000), -20.0, dtype=DOUBLE)], 1)


class Ungraded(Function):
    """The same numbers; gradients of rows whose result is infinite become nan, which equals whatever comes."""

    @staticmethod
    def forward(x, infinite):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        return torch.where(*ctx.saved_tensors, NAN, g), None


def log_sum_exp(x: Tensor, dim: int | tuple[int, ...], keepdim: bool = False) -> Tensor:
    """Return torch's log-sum-exp in float64, rounded to the dtype of x, its gradient too."""
    infinite = torch.logsumexp(x.detach(), dim, keepdim=True).isinf()
    return torch.logsumexp(Ungraded.apply(x, infinite).double(), dim, keepdim).to(x.dtype)
