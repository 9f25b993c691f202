"""VocabLoss: the cross-entropy of logits whose words are split over ranks."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from graders.inside.records import Case, Record
from graders.judge import looks as look
from graders.judge.aspects import WATCHED, gradient, value
from graders.judge.looks import Finding
from graders.judge.task import BRAIN, DOUBLE, DTYPES, HALF, SINGLE, Check, Draw, Task
from graders.judge.wording import WRITES_INTO_UPSTREAM
from graders.judge.wrong import Backward, Forward, Wrong
from graders.sets.across.common import CONSTANT_UPSTREAM, INF, contract, named
from graders.sets.logsumexp.common import BOTH, FORBIDS, GRADIENT, SUMS, VALUE, second_order

PLACE = 2


def _vocab_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Return the loss of each row, in float64 and in one process, rounded to the dtype of the logits."""
    whole = logits.double().permute(1, 0, 2).flatten(1)
    return F.cross_entropy(whole, target, reduction="none").to(logits.dtype)


def _targets(d: Draw, ranks: int, rows: int, words: int, last: bool = True) -> Tensor:
    """Draw targets, the first and last words of ranks among them."""
    target = torch.randint(ranks * words, (rows,), generator=d.random)
    edges = torch.tensor([words, words - 1, ranks * words - 1 if last else words, 0])[:rows] % (ranks * words)
    target[: len(edges)] = edges
    return target[torch.randperm(rows, generator=d.random)]


def _split(
    d: Draw, ranks: int, rows: int, words: int, dtype: torch.dtype = DOUBLE, around: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return logits (ranks, rows, words) and targets; small ones in the halves, where the loss rounds as they do."""
    reach = 1.5 if dtype in (HALF, BRAIN) else 3.0
    return d.between(around - reach, around + reach, ranks, rows, words).to(dtype), _targets(d, ranks, rows, words)


def _many(d: Draw, words: int, dtype: torch.dtype, *target: int) -> tuple[Tensor, Tensor]:
    """Return logits of more words on two ranks than the dtype can number, and these targets."""
    return d.between(-1.5, 1.5, 2, len(target), words).to(dtype), torch.tensor(target)


def _forms(d: Draw, order: int) -> list[Case]:
    """Return cases of every dtype, shape and layout."""
    logits, target = _split(d, 3, 4, 2)
    return [
        *(d.case(f"{named(t)} logits", *_split(d, 3, 5, 2, t), order=order) for t in DTYPES),
        d.case("as many rows as ranks and as words", *_split(d, 3, 3, 3), order=order),
        d.case("as many rows as words", *_split(d, 2, 4, 4), order=order),
        d.case("as many ranks as words", *_split(d, 3, 5, 3), order=order),
        d.case("more ranks than words", *_split(d, 4, 5, 2), order=order),
        d.case("two ranks", *_split(d, 2, 5, 3), order=order),
        d.case("one rank", *_split(d, 1, 4, 5), order=order),
        d.case("a word on each rank", *_split(d, 4, 5, 1), order=order),
        d.case("one row", *_split(d, 2, 1, 3), order=order),
        d.case("no rows", *_split(d, 2, 0, 3), order=order),
        d.case("float32, no rows", *_split(d, 2, 0, 3, SINGLE), order=order),
        d.case("seven ranks", *_split(d, 7, 3, 2), order=order),
        d.case("six ranks", *_split(d, 6, 3, 1), order=order),
        d.case("a hundred words", *_split(d, 2, 2, 50), order=order),
        d.case("bfloat16, word numbers above 256", *_many(d, 160, BRAIN, 257, 319, 3), order=order),
        d.case("float16, word numbers above 2048", *_many(d, 1060, HALF, 2049, 2113), order=order),
        d.case("all words on rank 1", logits, torch.tensor([2, 3, 3, 2]), order=order),
        d.case("words nobody has", logits, torch.tensor([0, 1, 1, 0]), order=order),
        d.case("ranks last in memory", d.normal(4, 2, 3).permute(2, 0, 1), target, order=order),
        d.case("equal rows, expanded", d.normal(3, 1, 2).expand(3, 4, 2), target, order=order),
        d.case("every second target", logits, target.repeat_interleave(2)[::2], order=order),
        d.case("by keyword", logits, target, keywords=("target",), order=order),
    ]


def _far(d: Draw) -> list[Case]:
    """Return cases of large logits, of ranks and rows far apart, and of words of -inf."""
    apart = d.between(-2, 2, 3, 4, 2)
    ranks = torch.tensor([-1000.0, 0.0, 1000.0], dtype=DOUBLE)[:, None, None]
    rows = torch.tensor([1000.0, 0.0, -1000.0, -5000.0], dtype=DOUBLE)[:, None]
    target = _targets(d, 3, 4, 2)
    padded, out, empty, first = (apart.clone() for _ in range(4))
    padded[2, :, 1] = -INF
    out[1:, :, 0] = -INF
    empty[2] = -INF
    first[0, 1:3] = -INF
    middle, alone = apart.clone(), torch.full_like(apart, -INF)
    middle[1] = -INF
    for row, word in enumerate((0, 3, 5, 2)):
        alone[word // 2, row, word % 2] = apart[word // 2, row, word % 2]
    low = apart - 5000
    low[:, :, 1] = torch.tensor([-INF, -5001.0, -INF], dtype=DOUBLE)[:, None]
    early = torch.tensor([0, 3, 2, 1])
    late = torch.tensor([1, 3, 5, 4])
    return [
        d.case("around 1000", *_split(d, 2, 4, 3, around=1000), order=2),
        d.case("around -1000", *_split(d, 2, 4, 3, around=-1000), order=2),
        d.case("a rank at 1000, one at -1000", apart + ranks, target, order=2),
        d.case("ranks apart by 5", apart + ranks / 200, target, order=2),
        d.case("rows from -5000 to 1000", apart + rows, target, order=2),
        d.case("float32 around 95", *_split(d, 2, 4, 3, SINGLE, around=95), order=1),
        d.case("float32 around -110", *_split(d, 2, 4, 3, SINGLE, around=-110), order=1),
        d.case("float16 around 12", *_split(d, 2, 1, 3, HALF, around=12), order=0),
        d.case("the last word is padding, -inf", padded, early, order=2),
        d.case("a word ruled out, on two ranks", out, torch.tensor([0, 3, 5, 1]), order=2),
        d.case("a rank of padding", empty, early, order=2),
        d.case("-inf on rank 0, in two rows", first, late, order=2),
        d.case("a middle rank of padding", middle, torch.tensor([1, 4, 5, 0]), order=2),
        d.case("all words ruled out but the target", alone, torch.tensor([0, 3, 5, 2]), order=1),
        d.case("-inf among -5000", low, torch.tensor([0, 3, 4, 2]), order=2),
        d.case("a loss of 10000", apart + 5 * ranks, torch.tensor([0, 1, 0, 1]), order=1),
        d.case("float32, a loss of 220", (apart + 0.11 * ranks).float(), torch.tensor([0, 1, 0, 1]), order=1),
        d.case("float16, a rank of padding", (empty / 2).to(HALF), early, order=0),
        d.case("float32, a rank of padding", empty.float(), early, order=1),
        d.case("a rank of padding, around 1000", empty + 1000, early, order=1),
    ]


def _lopsided(d: Draw, order: int = 1) -> list[Case]:
    return d.lopsided(lambda x: (x, torch.tensor([3, 0, 4])), 2, 3, 3, order=order)


def alike(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find a loss that is that of equal logits, where all are large and differ: they were clamped."""
    logits, mine = case.args[0], yours.outputs[0]
    if not logits.numel() or not logits.isfinite().all() or logits.abs().amin() < 500:
        return None
    even = torch.full_like(mine, logits.shape[0] * logits.shape[2]).log()
    found = look.value(call, case, yours, expected)
    if found is None or not torch.allclose(mine, even):
        return None
    text = (
        "Where all logits are large your loss is that of equal ones: you clamp them so that exp stays finite, and their "
        "differences are lost. Subtract the maximum of the row over all ranks."
    )
    return replace(found, message=text)


def more_kept(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find what is kept beside logits, targets and output."""
    found = look.keeps_nothing(call, case, yours, expected)
    text = f"{yours.kept_bytes} bytes are kept for backward beside logits, targets and output. Make them again there."
    return found and replace(found, message=text)


MANNERS = (*GRADIENT[:4], look.untouched, *GRADIENT[4:], look.stateless, look.guarded, more_kept)

task = Task(
    "VocabLoss",
    "VocabLoss.apply(logits, target)",
    reference=_vocab_loss,
    checks=(
        value(
            1,
            about="the loss of each row over all ranks' words, in every dtype, shape and layout",
            cases=lambda d: [
                *_forms(d, order=0),
                d.case("a split batch", *_split(d, 3, 5, 2), order=0, watch=("trace",), deny=SUMS),
                *_lopsided(d, order=0),
            ],
            looks=(*VALUE, look.allowed),
        ),
        gradient(
            1,
            about="each rank's slice of the softmax, minus 1 at the target on its owner; gradcheck",
            why="On each rank the gradient is its own slice of p minus the one-hot, times the upstream gradient of the row.",
            cases=lambda d: [
                *_forms(d, order=1),
                d.case("upstream gradients of every size", *_split(d, 2, 6, 3), upstream=d.scales(6)),
                d.case("one upstream number for all rows", *_split(d, 2, 4, 3), upstream=d.normal(1).expand(4)),
                d.case("every second number upstream", *_split(d, 2, 4, 3), upstream=d.normal(8)[::2]),
                d.case("a split batch", *_split(d, 3, 5, 2), watch=("trace",), deny=SUMS),
                *_lopsided(d),
            ],
            looks=(*GRADIENT, look.allowed),
            gradcheck=lambda d: _split(d, 3, 4, 2),
        ),
        Check(
            "far",
            1,
            about="logits of 1000 and -1000, ranks and rows far apart, words of -inf: no nan, no inf",
            why="Logits of a rank may lie far from those of another, and words that fill up the vocabulary are -inf.",
            cases=_far,
            looks=(*BOTH[:5], alike, *BOTH[5:], look.second_order),
        ),
        second_order(
            1,
            about="the gradient can be differentiated again, by logits and upstream gradient",
            why="The softmax in your gradient depends on the logits of all ranks: nothing of it is a constant.",
            cases=lambda d: [
                d.case("a split batch", *_split(d, 3, 4, 2), order=2),
                d.case("one row", *_split(d, 2, 1, 3), order=2),
                d.case("one rank", *_split(d, 1, 3, 4), order=2),
                d.case("a word on each rank", *_split(d, 3, 3, 1), order=2),
                d.case("float32", *_split(d, 2, 3, 3, SINGLE), order=2),
                d.case("an upstream gradient that is a constant", *_split(d, 2, 3, 3), order=2, how="constant"),
                d.case(
                    "0 upstream in a row", *_split(d, 2, 3, 3), order=2, upstream=torch.tensor([0.7, 0, -1.3]).double()
                ),
                d.case("0 upstream", *_split(d, 2, 2, 3), order=2, upstream=torch.zeros(2, dtype=DOUBLE)),
                d.case("ranks last in memory", d.normal(3, 2, 3).permute(2, 0, 1), _targets(d, 3, 3, 2), order=2),
                *_lopsided(d, order=2),
            ],
            gradcheck=lambda d: _split(d, 2, 3, 3),
        ),
        contract(
            1,
            about="what's the caller's stays untouched; arguments and output alone are kept, and saved",
            cases=lambda d: [
                d.case("a split batch", *_split(d, 3, 4, 2), watch=WATCHED, between=_split(d, 3, 4, 2)),
                d.case(
                    "float32", *_split(d, 2, 4, 3, SINGLE), watch=("state", "overwrite"), between=_split(d, 2, 1, 3)
                ),
                d.case(
                    "another vocabulary in between",
                    *_split(d, 2, 3, 3),
                    watch=("state",),
                    between=_split(d, 3, 3, 2),
                ),
                d.case("many rows", *_split(d, 4, 32, 8), watch=("trace",)),
            ],
            looks=(*MANNERS, look.allowed),
        ),
    ),
    forbids=FORBIDS,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class VocabLossNew(Function):
    """A maximum, a sum and the right logit cross the ranks; backward has lse from the output: the one to write."""

    @staticmethod
    def forward(logits, target):
        ranks, _, words = logits.shape
        m = logits.amax(2).amax(0)
        total = (logits - m[:, None]).exp().sum(2).sum(0)
        at = target - words * torch.arange(ranks)[:, None]
        here = (at >= 0) & (at < words)
        right = logits.gather(2, at.where(here, 0)[..., None])[..., 0].where(here, 0).sum(0)
        return m - right + total.log()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        logits, target, loss = ctx.saved_tensors
        ranks, _, words = logits.shape
        at = target - words * torch.arange(ranks)[:, None]
        here = (at >= 0) & (at < words)
        right = logits.gather(2, at.where(here, 0)[..., None])[..., 0].where(here, 0).sum(0)
        p = (logits - right[:, None] - loss[:, None]).exp()
        one = at[..., None] == torch.arange(words)
        return g[:, None] * (p - one.to(p.dtype)), None


@task.solution
class VocabLossAgain(Function):
    """Saves the logits and targets alone, and makes maximum and sum again: where the output isn't to be kept."""

    @staticmethod
    def forward(logits, target):
        words = logits.shape[2]
        m = logits.amax((0, 2))
        total = (logits - m[:, None]).exp().sum((0, 2))
        ids = torch.arange(logits.shape[0] * words).reshape(-1, 1, words)  # the words of each rank
        right = torch.where(ids == target[:, None], logits - m[:, None], 0).sum((0, 2))
        return total.log() - right

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        words = logits.shape[2]
        e = (logits - logits.detach().amax((0, 2))[:, None]).exp()
        p = e / e.sum((0, 2))[:, None]
        ids = torch.arange(logits.shape[0] * words).reshape(-1, 1, words)
        return torch.where(ids == target[:, None], p - 1, p) * g[:, None], None


@task.solution
class VocabLossOld(Function):
    """The older form, with the owner and its own index of the word by division: short, in one process."""

    @staticmethod
    def forward(ctx, logits, target):
        owner, at = target // logits.shape[2], target % logits.shape[2]
        shifted = logits - logits.amax(2).amax(0)[:, None]
        loss = shifted.exp().sum(2).sum(0).log() - shifted[owner, torch.arange(len(target)), at]
        ctx.save_for_backward(logits, target)
        return loss

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        owner, at = target // logits.shape[2], target % logits.shape[2]
        m = logits.amax(2).amax(0)[:, None]
        e = (logits - m).exp()
        p = e / e.sum(2).sum(0)[:, None]
        one = torch.zeros_like(p)
        one[owner, torch.arange(len(target)), at] = 1
        return (p - one) * g[:, None], None


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class VocabLossMerged(VocabLossNew):
    """Each rank's own maximum and sum, merged as tiles of an attention are; a loop over the ranks."""

    @staticmethod
    def forward(logits, target):
        words = logits.shape[2]
        m = torch.full_like(logits[0, :, 0], -INF)
        total, right = torch.zeros_like(m), torch.zeros_like(m)
        for rank, own in enumerate(logits):
            larger = torch.maximum(m, own.amax(1))
            safe = torch.where(larger == -INF, 0, larger)
            total = total * (m - safe).exp() + (own - safe[:, None]).exp().sum(1)
            m = larger
            for row, t in enumerate(target.tolist()):
                if rank * words <= t < (rank + 1) * words:
                    right[row] = own[row, t - rank * words]
        return m - right + total.log()


@task.solution
class VocabLossTurned(VocabLossNew):
    """All words of a row side by side, which on real ranks sends all logits; right in one process all the same."""

    @staticmethod
    def forward(logits, target):
        whole = logits.transpose(0, 1).reshape(len(target), logits.shape[0] * logits.shape[2])
        shifted = whole - whole.amax(1, keepdim=True)
        return shifted.exp().sum(1).log() - shifted.gather(1, target[:, None]).squeeze(1)

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None, None
        logits, target, _ = ctx.saved_tensors
        ranks, rows, words = logits.shape
        whole = logits.transpose(0, 1).reshape(rows, ranks * words)
        e = (whole - whole.amax(1, keepdim=True)).exp()
        grad = e / e.sum(1, keepdim=True) - F.one_hot(target, ranks * words)
        return (grad * g[:, None]).reshape(rows, ranks, words).transpose(0, 1).to(logits.dtype), None


# --- Mistakes ---------------------------------------------------------------------------------------------------------


def _right(logits: Tensor, target: Tensor) -> Tensor:
    """Return the logit of each row's target, from the rank that has it."""
    words = logits.shape[2]
    return logits[target // words, torch.arange(len(target)), target % words]


def _lse(logits: Tensor) -> Tensor:
    """Return the log-sum-exp of each row, over all ranks."""
    m = logits.amax((0, 2)).detach()
    return m + (logits - m[:, None]).exp().sum((0, 2)).log()


def _one(logits: Tensor, target: Tensor) -> Tensor:
    """Return 1 at each row's target and 0 elsewhere."""
    ids = torch.arange(logits.shape[0] * logits.shape[2]).reshape(logits.shape[0], 1, -1)
    return (ids == target[:, None]).to(logits.dtype)


def _p(logits: Tensor, target: Tensor, loss: Tensor) -> Tensor:
    """Return each rank's slice of the softmax."""
    return (logits - _right(logits, target)[:, None] - loss[:, None]).exp()


def _again(logits: Tensor, target: Tensor, g: Tensor) -> tuple[Tensor, None]:
    """Return the gradient, without the output."""
    e = (logits - logits.amax((0, 2)).detach()[:, None]).exp()
    return g[:, None] * (e / e.sum((0, 2))[:, None] - _one(logits, target)), None


def _at(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return where each rank would have the target, and whether it has."""
    at = target - logits.shape[2] * torch.arange(logits.shape[0])[:, None]
    return at, (at >= 0) & (at < logits.shape[2])


wrong = Wrong(task, of=VocabLossNew)


@wrong.forward(
    "value",
    "Each rank shifts by its own maximum, and then the sums are added. Terms of one sum must all be shifted by the same number: "
    "take the maximum over the ranks first.",
)
def maximum_of_each_rank(logits, target):
    m = logits.amax(2)
    total = (logits - m[..., None]).exp().sum(2).sum(0)
    return m.amax(0) + total.log() - _right(logits, target)


@wrong.forward(
    "value",
    "You pick word target % words on every rank, and add: logits of other words come in. One rank has the target, the one at "
    "target // words; the others contribute 0.",
)
def picked_on_every_rank(logits, target):
    at = (target % logits.shape[2]).expand(logits.shape[0], -1)
    return _lse(logits) - logits.gather(2, at[..., None])[..., 0].sum(0)


@wrong.forward(
    "value",
    "You bend the index into the rank's range (clamp, or where) and add what each rank finds there. A rank that doesn't have the "
    "target is to contribute 0: mask its logit too.",
)
def index_clamped_alone(logits, target):
    at, _ = _at(logits, target)
    picked = logits.gather(2, at.clamp(0, logits.shape[2] - 1)[..., None])[..., 0]
    return _lse(logits) - picked.sum(0)


@wrong.forward(
    "far",
    "You take exp of the logits as they are: at 1000 it is infinite, and at -1000 the sum is 0. Shift by the maximum of the row "
    "over all ranks, and add it again.",
)
def no_shift(logits, target):
    return logits.exp().sum((0, 2)).log() - _right(logits, target)


@wrong.backward(
    "gradient",
    "The softmax in your backward is each rank's own: its slice sums to 1. All ranks' words share one sum: p is exp(logits - lse), with "
    "the lse of all of them.",
)
def softmax_of_each_rank(logits, target, loss, g):
    e = (logits - logits.amax(2, keepdim=True)).exp()
    return g[:, None] * (e / e.sum(2, keepdim=True) - _one(logits, target)), None


@wrong.backward(
    "gradient",
    "You subtract the one on every rank, at target % words. The target is one word, and one rank has it: the others keep "
    "their p.",
)
def one_on_every_rank(logits, target, loss, g):
    at = (target % logits.shape[2])[:, None] == torch.arange(logits.shape[2])
    return g[:, None] * (_p(logits, target, loss) - at.to(logits.dtype)), None


@wrong.backward(
    "gradient",
    "Your gradient is the softmax alone, that of lse. The target's logit is subtracted from it, so on the rank that has the target "
    "subtract 1.",
)
def one_missing(logits, target, loss, g):
    return g[:, None] * _p(logits, target, loss), None


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is wrong: the softmax (or your whole gradient, but for g) was made in forward "
    "and saved, so it's a constant in backward. Save the logits, and make it there.",
    saves=lambda logits, target, loss: (_p(logits, target, loss) - _one(logits, target),),
)
def softmax_saved(u, g):
    return g[:, None] * u, None


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is wrong: you save lse (or maximum and sum) as forward made it, on the way to the "
    "output. To torch that's a constant. The output plus the right logit is lse too, and it isn't one.",
    saves=lambda logits, target, loss: (logits, target, _lse(logits)),
)
def lse_saved(logits, target, lse, g):
    return g[:, None] * ((logits - lse[:, None]).exp() - _one(logits, target)), None


@wrong.backward(
    "second_order",
    "You subtract the 1 in place (p[...] -= 1), in the result of an exp that torch still needs for the second derivative, and it "
    "raises. Subtract a tensor of ones and zeros, or choose by torch.where.",
)
def subtracted_in_place(logits, target, loss, g):
    p = _p(logits, target, loss)
    words = logits.shape[2]
    p[target // words, torch.arange(len(target)), target % words] -= 1
    return g[:, None] * p, None


@wrong.forward(
    "value",
    "You take target // ranks for the owner, or target % ranks. The words are cut into slices: rank r has words * r up to "
    "words * (r + 1), so the owner is target // words.",
)
def dealt_out_in_turn(logits, target):
    ranks = logits.shape[0]
    return _lse(logits) - logits[target % ranks, torch.arange(len(target)), target // ranks]


@wrong.forward(
    "value",
    "You take rank 0's logits for all targets, at target % words. The rank that has word t is t // words.",
)
def picked_on_rank_0(logits, target):
    return _lse(logits) - logits[0].gather(1, (target % logits.shape[2])[:, None])[:, 0]


@wrong.forward(
    "value",
    "You count a target that is the first word of the next rank as this rank's too (at <= words), or leave a rank's first word "
    "out (at > 0). A rank has it where 0 <= at < words.",
)
def first_word_left_out(logits, target):
    at, _ = _at(logits, target)
    here = (at > 0) & (at < logits.shape[2])
    picked = logits.gather(2, at.where(here, 0)[..., None])[..., 0].where(here, 0)
    return _lse(logits) - picked.sum(0)


@wrong.forward(
    "value",
    "A rank that lies after the owner takes the target for its own: its place there is below 0, which at < words lets pass. A rank "
    "has it where 0 <= at < words.",
)
def lower_bound_forgotten(logits, target):
    at, _ = _at(logits, target)
    here = at < logits.shape[2]
    picked = logits.gather(2, at.clamp(0, logits.shape[2] - 1)[..., None])[..., 0].where(here, 0)
    return _lse(logits) - picked.sum(0)


@wrong.forward(
    "value",
    "The first word of the next rank counts twice: at <= words lets it pass, and clamp makes it this rank's last. A rank has the "
    "target where 0 <= at < words.",
)
def next_rank_s_first_word(logits, target):
    at, _ = _at(logits, target)
    here = (at >= 0) & (at <= logits.shape[2])
    picked = logits.gather(2, at.clamp(0, logits.shape[2] - 1)[..., None])[..., 0].where(here, 0)
    return _lse(logits) - picked.sum(0)


@wrong.forward(
    "value",
    "On a rank after the owner target - words * r is below 0, and a negative index counts from the end: another word's logit comes in. A "
    "rank has the target where 0 <= at < words.",
)
def negative_index_wraps(logits, target):
    at, _ = _at(logits, target)
    words = logits.shape[2]
    picked = logits.gather(2, at.remainder(words)[..., None])[..., 0].where((at < words) & (at >= -words), 0)
    return _lse(logits) - picked.sum(0)


@wrong.forward(
    "value",
    "You reshape (ranks, rows, words) to (rows, ranks * words) as it lies in memory, and words of several rows get into one. From the "
    "ranks to the words it takes a transpose(0, 1) first.",
)
def reshaped_without_turning(logits, target):
    ranks, rows, words = logits.shape
    whole = logits.reshape(rows, ranks * words)
    m = whole.amax(1)
    return m + (whole - m[:, None]).exp().sum(1).log() - whole.gather(1, target[:, None])[:, 0]


@wrong.forward(
    "value",
    "Your reshape has a -1, and where there are no rows any number would do for it, so torch raises. Write out ranks * words; flatten "
    "needs no number.",
)
def minus_one_of_no_rows(logits, target):
    whole = logits.transpose(0, 1).reshape(len(target), -1)
    m = whole.amax(1)
    return m + (whole - m[:, None]).exp().sum(1).log() - whole.gather(1, target[:, None])[:, 0]


@wrong.forward(
    "value",
    "You call squeeze() without a dimension: where there is one row, its dimension goes as well. Asked for is shape (rows,): squeeze the "
    "dimensions that you mean.",
)
def squeezed_too_far(logits, target):
    return (_lse(logits) - _right(logits, target))[None, :, None].squeeze()


@wrong.forward(
    "value",
    "In float16 and bfloat16 you compute in float32, which is fine, and the loss stays float32. It needs the dtype of the logits: "
    "convert it back at the end.",
)
def halves_not_converted_back(logits, target):
    wide = logits.float() if logits.dtype in (HALF, BRAIN) else logits
    return _lse(wide) - _right(wide, target)


@wrong.forward(
    "value",
    "You compare word numbers in the dtype of the logits. bfloat16 has no odd numbers above 256, and float16 none above 2048: two words "
    "match a target, or none does. Compare them as integers.",
)
def words_numbered_in_the_logits_dtype(logits, target):
    ranks, _, words = logits.shape
    ids = torch.arange(ranks * words).to(logits.dtype).reshape(ranks, 1, words)
    return _lse(logits) - torch.where(ids == target.to(logits.dtype)[:, None], logits, 0).sum((0, 2))


@wrong.forward(
    "value",
    "Your forward uses view on the logits, which refuses logits that aren't contiguous in memory. reshape and flatten take any.",
)
def view_of_logits_needed(logits, target):
    ranks, rows, words = logits.shape
    return _lse(logits.view(ranks * rows, words).reshape(logits.shape)) - _right(logits, target)


@wrong.forward(
    "value",
    "You call torch.logsumexp, which is the task: make it of exp, a sum and log, after the maximum over the ranks is subtracted.",
)
def calls_logsumexp(logits, target):
    return torch.logsumexp(logits, (0, 2)) - _right(logits, target)


@wrong.forward(
    "value",
    "You merge what the ranks have by torch.logaddexp, which is refused: add the ranks' sums of exponentials, all shifted by one "
    "maximum, and take one logarithm.",
)
def merges_by_logaddexp(logits, target):
    m = logits.amax((0, 2))
    total = torch.full_like(m, -INF)
    for own in logits:
        total = torch.logaddexp(total, (own - m[:, None]).exp().sum(1).log())
    return m + total - _right(logits, target)


@wrong.forward(
    "value",
    "You add lse minus the picked logit over the ranks, and so lse as often as there are ranks. All of them have it: add the picked logits "
    "alone.",
)
def lse_added_by_every_rank(logits, target):
    return len(logits) * _lse(logits) - _right(logits, target)


@wrong.forward(
    "value",
    "The sum of exponentials is not added over the ranks: your lse is that of one rank's words. The maximum has crossed the ranks, "
    "the sum has to as well.",
)
def sum_of_rank_0(logits, target):
    m = logits.amax((0, 2))
    return m + (logits[0] - m[:, None]).exp().sum(1).log() - _right(logits, target)


@wrong.forward(
    "value",
    "You add the ranks' log-sum-exps. Their exponentials add up, not their logarithms: add the sums and take one logarithm.",
)
def logs_added(logits, target):
    m = logits.amax((0, 2))
    return (m + (logits - m[:, None]).exp().sum(2).log()).sum(0) - _right(logits, target)


@wrong.forward(
    "value",
    "You take the mean of the ranks' log-sum-exps. Their exponentials add up: add the sums over the ranks and take one logarithm.",
)
def logs_averaged(logits, target):
    m = logits.amax((0, 2))
    return (m + (logits - m[:, None]).exp().sum(2).log()).mean(0) - _right(logits, target)


@wrong.forward(
    "value",
    "Your loss of a row is that of the rank that has its target, over that rank's words alone. The words of all ranks belong to "
    "the sum.",
)
def owner_alone(logits, target):
    m = logits.amax(2)
    own = m + (logits - m[..., None]).exp().sum(2).log()
    return own[target // logits.shape[2], torch.arange(len(target))] - _right(logits, target)


@wrong.forward("value", "You shift by the maximum and don't add it again: log of the shifted sum is lse - m.")
def shift_not_undone(logits, target):
    m = logits.amax((0, 2))
    return (logits - m[:, None]).exp().sum((0, 2)).log() - _right(logits, target)


@wrong.forward(
    "value",
    "You add the ranks' maxima where you want the largest of them: an all-reduce adds unless you say MAX, and here it's amax(0).",
)
def maxima_added(logits, target):
    m = logits.amax(2)
    return m.sum(0) + (logits - m.amax(0)[:, None]).exp().sum((0, 2)).log() - _right(logits, target)


@wrong.forward("value", "Your loss has the wrong sign: it is lse minus the right logit, and never negative.")
def sign_of_the_loss(logits, target):
    return _right(logits, target) - _lse(logits)


@wrong.forward("value", "Your output is lse. The loss is lse minus the logit of the target, which one rank has.")
def lse_alone(logits, target):
    return _lse(logits)


@task.mistake("value", "You return the mean over the rows. Asked for is a loss for each row.")
class mean_over_rows(VocabLossNew):
    @staticmethod
    def forward(logits, target):
        return (_lse(logits) - _right(logits, target)).mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        return g / len(target) * ((logits - _lse(logits)[:, None]).exp() - _one(logits, target)), None


@task.mistake("value", "You return the sum over the rows. Asked for is a loss for each row.")
class sum_over_rows(VocabLossNew):
    @staticmethod
    def forward(logits, target):
        return (_lse(logits) - _right(logits, target)).sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        return g * ((logits - _lse(logits)[:, None]).exp() - _one(logits, target)), None


@task.mistake(
    "value",
    "You return a copy of the losses for each rank. They share one loss, of shape (rows,), so that nobody adds copies.",
)
class copy_for_each_rank(VocabLossNew):
    @staticmethod
    def forward(logits, target):
        return torch.stack([_lse(logits) - _right(logits, target)] * len(logits))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        return g[..., None] * ((logits - _lse(logits)[:, None]).exp() - _one(logits, target)), None


@wrong.forward(
    "value",
    "Your sum runs over the ranks and rows, or over the wrong dimension: in (ranks, rows, words) the words of a row lie along 0 and 2.",
)
def words_of_all_rows(logits, target):
    m = logits.amax() if logits.numel() else logits.sum()
    return m + (logits - m).exp().sum().log() - _right(logits, target)


@wrong.forward(
    "far",
    "You shift by the maximum of all logits, one number for all rows. In a row far below it every term is 0, and the log of their sum "
    "-inf: each row has its own maximum, over ranks and words.",
)
def one_shift_for_all_rows(logits, target):
    m = logits.amax() if logits.numel() else logits.sum()
    return m + (logits - m).exp().sum((0, 2)).log() - _right(logits, target)


@wrong.forward(
    "far",
    "You shift by rank 0's maximum. Where another rank's logits are far above it exp is infinite, and where rank 0 has -inf alone "
    "you get nan: take the maximum over the ranks.",
)
def maximum_of_rank_0(logits, target):
    m = logits[0].amax(1)
    return m + (logits - m[:, None]).exp().sum((0, 2)).log() - _right(logits, target)


@wrong.forward(
    "far",
    "Your maximum over the ranks begins at 0, so it's never below 0. In a row of logits around -1000 every term is 0 then, and the log of "
    "their sum -inf: begin with -inf, or with rank 0's maximum.",
)
def maximum_begins_at_0(logits, target):
    m = logits.amax((0, 2)).clamp(min=0)
    return m + (logits - m[:, None]).exp().sum((0, 2)).log() - _right(logits, target)


@wrong.forward(
    "far",
    "You go through the ranks with a running maximum. Where the first of them has -inf alone, it stays -inf, and -inf - -inf is nan: "
    "shift by 0 until there is a word.",
)
def nan_in_a_running_maximum(logits, target):
    m = torch.full_like(logits[0, :, 0], -INF)
    total = torch.zeros_like(m)
    for own in logits:
        larger = torch.maximum(m, own.amax(1))
        total = total * (m - larger).exp() + (own - larger[:, None]).exp().sum(1)
        m = larger
    return m + total.log() - _right(logits, target)


@wrong.forward(
    "far",
    "Where all of a rank's words are -inf, its own maximum is -inf too, and -inf - -inf is nan. Shift by the maximum over the ranks, or "
    "let such a rank contribute 0.",
)
def nan_on_a_rank_of_padding(logits, target):
    m = logits.amax(2)
    most = m.amax(0)
    own = (logits - m[..., None]).exp().sum(2)
    return most + (own * (m - most).exp()).sum(0).log() - _right(logits, target)


@wrong.forward(
    "far",
    "You pick the right logit by multiplying with ones and zeros. A word of -inf times 0 is nan: choose with torch.where, gather or "
    "an index.",
)
def picked_by_a_product(logits, target):
    return _lse(logits) - (_one(logits, target) * logits).sum((0, 2))


@wrong.forward(
    "far",
    "You mask what a rank picks by multiplying with 0. Where the word it finds there is -inf, that's nan: choose with torch.where.",
)
def masked_by_a_product(logits, target):
    at, here = _at(logits, target)
    picked = logits.gather(2, at.clamp(0, logits.shape[2] - 1)[..., None])[..., 0]
    return _lse(logits) - (picked * here).sum(0)


@wrong.forward(
    "far",
    "You take the right probability first and its logarithm then. Far below the maximum it is 0, and the loss infinite: lse minus "
    "the logit has no such end.",
)
def log_of_the_probability(logits, target):
    e = (logits - logits.amax((0, 2))[:, None]).exp()
    return -(_right(e, target) / e.sum((0, 2))).log()


@wrong.forward(
    "far",
    "You add a small number before the logarithm so that it stays finite. Far below the maximum that number is all there is: the loss is "
    "lse minus the logit, which needs none.",
)
def epsilon_in_the_logarithm(logits, target):
    e = (logits - logits.amax((0, 2))[:, None]).exp()
    return -(_right(e, target) / e.sum((0, 2)) + 1e-12).log()


@wrong.backward(
    "gradient",
    "You add a small number to the sum of the exponentials before you divide. After the shift the sum is at least 1, and needs none.",
    saves=lambda logits, target, loss: (logits, target),
)
def epsilon_in_the_sum(logits, target, g):
    e = (logits - logits.amax((0, 2))[:, None]).exp()
    return g[:, None] * (e / (e.sum((0, 2)) + 1e-6)[:, None] - _one(logits, target)), None


@wrong.forward(
    "value",
    "You lay all words of a row side by side and call torch's cross-entropy, softmax or logsumexp. The task is to make it of exp, "
    "sums and log, of what each rank has.",
)
def calls_torchs_own(logits, target):
    whole = logits.transpose(0, 1).reshape(len(target), logits.shape[0] * logits.shape[2])
    return F.cross_entropy(whole, target, reduction="none")


@wrong.backward(
    "gradient",
    "The 1 is subtracted for every word of the rank that has the target. The target is one of its words: p - 1 there, and p at "
    "the others.",
)
def one_for_the_whole_rank(logits, target, loss, g):
    _, here = _at(logits, target)
    return g[:, None] * (_p(logits, target, loss) - here[..., None].to(logits.dtype)), None


@wrong.backward(
    "gradient",
    "Only the rank that has the target gets a gradient. All words are in the sum, so every rank has its slice of p.",
)
def owner_alone_learns(logits, target, loss, g):
    _, here = _at(logits, target)
    return g[:, None] * (_p(logits, target, loss) - _one(logits, target)) * here[..., None], None


@wrong.backward(
    "gradient",
    "You subtract the 1 on rank 0, whichever rank has the target. The owner is target // words.",
)
def one_on_rank_0(logits, target, loss, g):
    one = torch.zeros_like(logits)
    one[0, torch.arange(len(target)), target % logits.shape[2]] = 1
    return g[:, None] * (_p(logits, target, loss) - one), None


@wrong.backward(
    "gradient",
    "You subtract the 1 at a word dealt out in turn (target % ranks has it). Rank r has words * r up to words * (r + 1): the owner is "
    "target // words.",
)
def one_dealt_out_in_turn(logits, target, loss, g):
    ranks = logits.shape[0]
    one = torch.zeros_like(logits)
    one[target % ranks, torch.arange(len(target)), (target // ranks) % logits.shape[2]] = 1
    return g[:, None] * (_p(logits, target, loss) - one), None


@wrong.backward(
    "gradient", "Your gradient is one-hot minus p, the wrong way round: raising the target's logit lowers the loss."
)
def sign_flipped(logits, target, loss, g):
    return g[:, None] * (_one(logits, target) - _p(logits, target, loss)), None


@wrong.backward(
    "gradient", "You add the 1 where it is to be subtracted: the target's logit stands in the loss with a minus."
)
def one_added(logits, target, loss, g):
    return g[:, None] * (_p(logits, target, loss) + _one(logits, target)), None


@wrong.backward(
    "gradient",
    "Your one-hot has the words of a row side by side, and a reshape alone doesn't bring the ranks to the front: from (rows, ranks, "
    "words) it takes a transpose(0, 1).",
)
def one_hot_not_turned(logits, target, loss, g):
    ranks, rows, words = logits.shape
    one = F.one_hot(target, ranks * words).to(logits.dtype).reshape(ranks, rows, words)
    return g[:, None] * (_p(logits, target, loss) - one), None


@wrong.backward(
    "gradient",
    "Your backward calls torch's softmax or logsumexp. The task is to make it of exp, sums and log, of what each rank has.",
)
def softmax_of_torch_s(logits, target, loss, g):
    p = torch.softmax(logits.transpose(0, 1).flatten(1), 1)
    p = p.reshape(logits.transpose(0, 1).shape).transpose(0, 1)
    return g[:, None] * (p - _one(logits, target)), None


@wrong.backward(
    "gradient",
    "You multiply p by the upstream gradient, and not the 1: both parts of the loss have the same upstream gradient.",
)
def one_without_upstream(logits, target, loss, g):
    return g[:, None] * _p(logits, target, loss) - _one(logits, target), None


@wrong.backward(
    "gradient",
    "Your gradient is too large by the number of ranks: you add their copies of the upstream gradient. The loss is one that they share, "
    "so each has the whole.",
)
def copies_added(logits, target, loss, g):
    return len(logits) * g[:, None] * (_p(logits, target, loss) - _one(logits, target)), None


@wrong.backward(
    "gradient",
    "You divide by the number of ranks. Each rank has the whole upstream gradient of one shared loss, and its own slice of p.",
)
def divided_by_ranks(logits, target, loss, g):
    return g[:, None] * (_p(logits, target, loss) - _one(logits, target)) / len(logits), None


@wrong.backward(
    "gradient",
    "You divide by the number of rows, as if the loss were their mean. Each row has a loss, and an upstream gradient, of its own.",
)
def divided_by_rows(logits, target, loss, g):
    return g[:, None] * (_p(logits, target, loss) - _one(logits, target)) / max(len(target), 1), None


@wrong.backward(
    "gradient",
    "The upstream gradient has one number for each row, and rows are the middle dimension: g[:, None]. Without the axis torch "
    "raises, or multiplies along the words where there are as many.",
)
def axis_not_added(logits, target, loss, g):
    return g * (_p(logits, target, loss) - _one(logits, target)), None


@wrong.backward(
    "gradient",
    "You take exp(logits - loss) for p. The loss is lse minus the right logit: add that logit again, so that lse is subtracted.",
)
def loss_taken_for_lse(logits, target, loss, g):
    return g[:, None] * ((logits - loss[:, None]).exp() - _one(logits, target)), None


@wrong.backward(
    "far",
    "Your backward takes exp of the logits as they are, and at 1000 it is infinite: inf / inf is nan. Subtract lse before exp, or the "
    "maximum over the ranks.",
    saves=lambda logits, target, loss: (logits, target),
)
def no_shift_in_backward(logits, target, g):
    e = logits.exp()
    return g[:, None] * (e / e.sum((0, 2))[:, None] - _one(logits, target)), None


@wrong.backward(
    "far",
    "Your backward shifts by the maximum of all logits, one number for all rows. In a row far below it the sum is 0, and 0 / 0 nan: "
    "each row has its own maximum.",
    saves=lambda logits, target, loss: (logits, target),
)
def one_shift_for_all_rows_in_backward(logits, target, g):
    e = (logits - (logits.amax() if logits.numel() else 0)).exp()
    return g[:, None] * (e / e.sum((0, 2))[:, None] - _one(logits, target)), None


@wrong.backward(
    "gradient",
    "Each rank shifts by its own maximum in your backward, and the sum over the ranks adds terms with different shifts. One maximum "
    "for each row, over all ranks.",
    saves=lambda logits, target, loss: (logits, target),
)
def maximum_of_each_rank_in_backward(logits, target, g):
    e = (logits - logits.amax(2, keepdim=True)).exp()
    return g[:, None] * (e / e.sum((0, 2))[:, None] - _one(logits, target)), None


@wrong.backward(
    "far",
    "Where all of a rank's words are -inf, its own maximum in your backward is -inf too, and -inf - -inf is nan. Subtract what all ranks "
    "share: lse, or the maximum over the ranks.",
    saves=lambda logits, target, loss: (logits, target),
)
def nan_in_backward_on_a_rank_of_padding(logits, target, g):
    m = logits.amax(2, keepdim=True)
    e = (logits - m).exp() * (m - m.amax(0)).exp()
    return g[:, None] * (e / e.sum((0, 2))[:, None] - _one(logits, target)), None


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is wrong: you save the softmax that forward made, and it's a constant in backward. Save "
    "the logits, and make it there.",
    saves=lambda logits, target, loss: (_p(logits, target, loss), target),
)
def probabilities_saved(p, target, g):
    return g[:, None] * (p - _one(p, target)), None


@wrong.backward(
    "second_order",
    "Your first derivative is right and your second is wrong: you save the target's logit that forward picked, and to torch that's a "
    "constant. Pick it from the saved logits again.",
    saves=lambda logits, target, loss: (logits, target, loss, _right(logits, target)),
)
def right_logit_saved(logits, target, loss, right, g):
    return g[:, None] * ((logits - right[:, None] - loss[:, None]).exp() - _one(logits, target)), None


@wrong.backward(
    "second_order",
    "Your second derivative lacks the part through the sum of the exponentials: it's cut off (detach, item, no_grad). It changes with "
    "every logit: divide by it as it is.",
    saves=lambda logits, target, loss: (logits, target),
)
def sum_detached(logits, target, g):
    e = (logits - logits.amax((0, 2)).detach()[:, None]).exp()
    return g[:, None] * (e / e.sum((0, 2)).detach()[:, None] - _one(logits, target)), None


@wrong.backward(
    "second_order",
    "Your second derivative lacks the part through lse: it's cut off in backward, by detach, item or no_grad. It depends on the "
    "logits of all ranks: use it as it is.",
)
def lse_detached(logits, target, loss, g):
    lse = (_right(logits, target) + loss).detach()
    return g[:, None] * ((logits - lse[:, None]).exp() - _one(logits, target)), None


@wrong.backward(
    "second_order",
    "Your second derivative lacks the part through the loss: a copy of the output (clone, or what forward made beside it) is a "
    "constant in backward. Save the output itself.",
    saves=lambda logits, target, loss: (logits, target, loss.detach().clone()),
)
def saves_copy_of_output(logits, target, loss, g):
    return g[:, None] * (_p(logits, target, loss) - _one(logits, target)), None


@wrong.backward(
    "gradient",
    "You make the gradient with the words of a row side by side, and reshape it to (ranks, rows, words) as it lies in memory: numbers of "
    "one row get into others. Reshape to (rows, ranks, words), and then transpose(0, 1).",
)
def gradient_not_turned_back(logits, target, loss, g):
    grad = g[:, None] * (_p(logits, target, loss) - _one(logits, target))
    return grad.transpose(0, 1).reshape(logits.shape), None


@wrong.backward(
    "gradient",
    "You bend the target's index into each rank's range (clamp), and subtract the 1 there on every rank. One rank has the target: the "
    "others keep their p, so mask the 1 too.",
)
def one_at_the_bent_index(logits, target, loss, g):
    at, _ = _at(logits, target)
    one = at.clamp(0, logits.shape[2] - 1)[..., None] == torch.arange(logits.shape[2])
    return g[:, None] * (_p(logits, target, loss) - one.to(logits.dtype)), None


@wrong.backward(
    "far",
    "Your backward picks the target's logit by multiplying with ones and zeros. A word of -inf times 0 is nan: choose with torch.where, "
    "gather or an index.",
)
def picked_by_a_product_in_backward(logits, target, loss, g):
    one = _one(logits, target)
    lse = loss + (one * logits).sum((0, 2))
    return g[:, None] * ((logits - lse[:, None]).exp() - one), None


@wrong.backward(
    "far",
    "Your backward makes p as 1 / exp(lse - logits). Where a logit is -inf or far below, that's 1 / inf: p is 0, and its derivative nan, "
    "0 times inf. Write exp(logits - lse).",
)
def p_as_a_quotient(logits, target, loss, g):
    p = 1 / (_right(logits, target)[:, None] + loss[:, None] - logits).exp()
    return g[:, None] * (p - _one(logits, target)), None


@wrong.backward(
    "far",
    "You let a rank of -inf become nan and replace it by torch.where afterwards. The numbers are right, but the second derivative goes "
    "through the branch that isn't taken, as 0 times nan. Shift by something finite before exp.",
    saves=lambda logits, target, loss: (logits, target),
)
def nan_replaced_afterwards(logits, target, g):
    m = logits.amax(2, keepdim=True)
    e = torch.where(m == -INF, 0, (logits - m).exp()) * (m - m.amax(0)).exp()
    return g[:, None] * (e / e.sum((0, 2))[:, None] - _one(logits, target)), None


@wrong.backward(
    "second_order",
    "You detach the upstream gradient. Your gradient is p minus the one-hot times it, so it depends on it too: use it as it is.",
)
def upstream_detached(logits, target, loss, g):
    return g.detach()[:, None] * (_p(logits, target, loss) - _one(logits, target)), None


@wrong.backward(
    "second_order",
    "You save logits.contiguous(). Of logits that aren't contiguous that's a copy: memory for nothing, and to torch a constant, so the "
    "second derivative is wrong. Save the logits as they came.",
    saves=lambda logits, target, loss: (logits.contiguous(), target.contiguous()),
)
def contiguous_saved(logits, target, g):
    return _again(logits, target, g)


@wrong.backward("second_order", CONSTANT_UPSTREAM)
def constant_upstream(logits, target, loss, g):
    grad = g[:, None] * (_p(logits, target, loss) - _one(logits, target))
    return grad if g.requires_grad else grad.detach(), None


wrong.habits(
    "no_function float32_and_back not_differentiable_twice",
    nothing_returned="Your backward returns None (is a return statement missing?): the logits get no gradient at all.",
    upstream_ignored="Your gradient lacks the upstream gradient: multiply p minus the one-hot by that of its row.",
    upstream_summed="Your backward sums the upstream gradient first. Each row has its own: multiply row by row.",
    float32_inside="Your output is float32 whatever the logits are: you convert them, or a tensor made without dtype= comes in.",
    none_forgotten="Your backward returns one gradient. forward has two arguments, so torch wants two: None for the targets.",
    one_too_many="Your backward returns three gradients; forward has two arguments, and torch wants one for each.",
    detached="Your first derivative is right and your second is wrong: detach (or .data) cuts the logits and the output out of the "
    "graph of the gradient. Use what you saved as it is.",
    kept_as_attribute="You keep logits, targets or output as attributes of ctx, where torch doesn't watch them: when one is changed in "
    "place before backward, the gradient is silently wrong. Use ctx.save_for_backward.",
    kept_outside_ctx="You keep tensors outside ctx (on the class, or in a global): a second call overwrites them before the first one's "
    "backward. Use ctx.save_for_backward.",
)


@wrong.backward(
    "gradient", "Your backward lets torch.autograd differentiate. The task is to write the gradient, from tensors."
)
def autograd_in_backward(logits, target, loss, g):
    with torch.enable_grad():
        own = logits.view_as(logits) if logits.requires_grad else logits.detach().requires_grad_()
        again = _lse(own) - _right(own, target)
        return torch.autograd.grad(again, own, g, create_graph=True)[0], None


@wrong.backward("gradient", "Your gradient is zero everywhere, so nothing before this operation would ever learn.")
def zeros_returned(logits, target, loss, g):
    return torch.zeros_like(logits), None


@task.mistake(
    "contract",
    "Your forward subtracts the maximum from the logits in place (-=, or sub_). They are the caller's: write logits - m, which makes "
    "a new tensor.",
)
class writes_into_input(VocabLossNew):
    @staticmethod
    def forward(logits, target):
        loss = VocabLossNew.forward(logits, target)
        logits.sub_(logits.amax((0, 2))[:, None])
        return loss


@task.mistake(
    "contract",
    "Your forward makes the target the rank's own in place (target -= ..., or %=). The targets are the caller's, and every rank needs "
    "them as they came.",
)
class writes_into_target(VocabLossNew):
    @staticmethod
    def forward(logits, target):
        loss = VocabLossNew.forward(logits, target)
        target.remainder_(logits.shape[2])
        return loss


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(logits, target, loss, g):
    grad = g[:, None] * (_p(logits, target, loss) - _one(logits, target))
    g.mul_(0.5)
    return grad, None


@wrong.backward(
    "contract",
    "Your backward makes p in the memory of the logits (sub_, exp_). They are the caller's, and a second backward needs them too: write "
    "(logits - lse).exp(), which makes a new tensor.",
)
def logits_made_p(logits, target, loss, g):
    p = _p(logits, target, loss)
    if not torch.is_grad_enabled():
        logits.copy_(p)
    return g[:, None] * (p - _one(logits, target)), None


@wrong.backward(
    "contract",
    "You give the upstream gradient another shape in place (unsqueeze_). It is the caller's, shape and all: g[:, None], or unsqueeze, "
    "leaves it as it is.",
)
def upstream_unsqueezed(logits, target, loss, g):
    return g.unsqueeze_(1) * (_p(logits, target, loss) - _one(logits, target)), None


@wrong.backward(
    "contract",
    "Your backward counts the targets down in place (-= words) on its way through the ranks. They are the caller's, and a second backward "
    "needs them: write target - words * r.",
)
def target_counted_down(logits, target, loss, g):
    lse = _right(logits, target) + loss
    grads = []
    for own in logits:
        one = target[:, None] == torch.arange(logits.shape[2])
        grads.append(g[:, None] * ((own - lse[:, None]).exp() - one.to(own.dtype)))
        target -= logits.shape[2]
    return torch.stack(grads), None


@task.mistake(
    "contract",
    "You keep the shape of the logits outside ctx (on the class, or in a global): a second call, of another shape, overwrites it before the "
    "first one's backward. Read it from the logits that you save.",
)
class shape_outside_ctx(VocabLossNew):
    shape: tuple[int, ...] = ()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)
        shape_outside_ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, g):
        logits, target, loss = ctx.saved_tensors
        ranks, rows, words = shape_outside_ctx.shape
        right = logits[target // words, torch.arange(rows), target % words]
        ids = torch.arange(ranks * words).reshape(ranks, 1, words)
        p = (logits - (loss + right)[:, None]).exp()
        return g[:, None] * (p - (ids == target[:, None]).to(p.dtype)), None


@task.mistake(
    "contract",
    "You keep the targets as an attribute of ctx, where torch doesn't watch them: a loader that fills the next batch into them before "
    "backward makes your gradient silently wrong. Use ctx.save_for_backward.",
)
class target_as_attribute(VocabLossNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        logits, ctx.target = inputs
        ctx.save_for_backward(logits, output)

    @staticmethod
    def backward(ctx, g):
        logits, loss = ctx.saved_tensors
        return g[:, None] * (_p(logits, ctx.target, loss) - _one(logits, ctx.target)), None


@task.mistake(
    "contract",
    "You save the logits and keep the targets as an attribute of ctx, where torch doesn't watch them: a loader that fills the next batch "
    "into them before backward makes your gradient silently wrong. Use ctx.save_for_backward for both.",
)
class target_as_attribute_beside_logits(VocabLossNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        logits, ctx.target = inputs
        ctx.save_for_backward(logits)

    @staticmethod
    def backward(ctx, g):
        (logits,) = ctx.saved_tensors
        return _again(logits, ctx.target, g)


@task.mistake(
    "contract",
    "You keep the output as an attribute of ctx, where torch doesn't watch it: an operation that writes into it before "
    "backward makes the gradient silently wrong. Use ctx.save_for_backward.",
)
class output_as_attribute(VocabLossNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.loss = output

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        return g[:, None] * (_p(logits, target, ctx.loss) - _one(logits, target)), None


@wrong.backward(
    "contract",
    "Beside logits, targets and output you keep another tensor for backward: a mask, an index, a maximum. It can be made of those "
    "again, so it's memory for nothing.",
    saves=lambda logits, target, loss: (logits, target, loss, _one(logits, target).bool()),
)
def mask_saved(logits, target, loss, one, g):
    return g[:, None] * (_p(logits, target, loss) - one.to(logits.dtype)), None


@wrong.backward(
    "contract",
    "You keep something made of the targets in their place: a mask, an index or a one-hot. It can be made in backward, and they take less "
    "memory: save logits and targets.",
    saves=lambda logits, target, loss: (logits, loss, _one(logits, target).bool()),
)
def mask_in_place_of_targets(logits, loss, one, g):
    lse = loss + torch.where(one, logits, 0).sum((0, 2))
    return g[:, None] * ((logits - lse[:, None]).exp() - one.to(logits.dtype)), None


# A forward that is wrong far from 0 alone spoils the gradient where backward takes lse from the output. Here backward
# makes it of the logits once more, rightly, or wrongly as forward does.


def _beside(forward: Forward, **backwards: Backward) -> None:
    """Add a mistake of forward once more for each backward, with the backward's keyword at the end of its name."""
    known = next(m for m in task.mistakes if m.name == forward.__name__)

    def add(ending: str, right: type[Function], **methods: Forward | Backward) -> None:
        acts = {name: staticmethod(act) for name, act in methods.items()}
        task.mistake(known.caught_by, known.message)(type(f"{known.name}_{ending}", (right,), acts))

    add("alone", VocabLossAgain, forward=forward)
    for ending, backward in backwards.items():
        add(ending, VocabLossAgain, forward=forward, backward=partial(_called, backward))


def _called(backward: Backward, ctx: Any, g: Tensor) -> Any:
    return backward(*ctx.saved_tensors, g)


def _one_shift_detached(logits: Tensor, target: Tensor, g: Tensor) -> tuple[Tensor, None]:
    e = (logits - (logits.detach().amax() if logits.numel() else 0)).exp()
    return g[:, None] * (e / e.sum((0, 2))[:, None] - _one(logits, target)), None


_beside(no_shift, twice=no_shift_in_backward)
_beside(one_shift_for_all_rows, twice=one_shift_for_all_rows_in_backward, twice_detached=_one_shift_detached)
_beside(maximum_of_rank_0)
_beside(nan_on_a_rank_of_padding, twice=nan_in_backward_on_a_rank_of_padding)
_beside(picked_by_a_product)
_beside(masked_by_a_product)
_beside(log_of_the_probability)
_beside(epsilon_in_the_logarithm)
_beside(maximum_begins_at_0)
_beside(nan_in_a_running_maximum)
