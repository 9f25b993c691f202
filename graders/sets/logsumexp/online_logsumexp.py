"""online_logsumexp: chunks that come one by one, in a state that does not grow."""

from collections.abc import Iterable, Iterator
from functools import reduce

import torch
from torch import Tensor
from torch.nn import functional as F

from graders.inside.records import Case, Helper, Record
from graders.judge import looks as look
from graders.judge.aspects import value
from graders.judge.looks import Finding
from graders.judge.task import BRAIN, DOUBLE, DTYPES, HALF, SINGLE, Check, Draw, Task
from graders.judge.wrong import Wrong
from graders.sets.logsumexp.common import (
    FORBIDS,
    INF,
    SUMS,
    VALUE,
    moderate,
    named,
)

PLACE = 2
State = tuple[Tensor, Tensor]  # the maximum and the sum of exponentials relative to it


def _chunks(name: str, *chunks: Tensor | list[float], dtype: torch.dtype = DOUBLE, **options: object) -> Case:
    """Return a case of these chunks, from a generator."""
    given = tuple(c.to(dtype) if isinstance(c, Tensor) else torch.tensor(c, dtype=dtype) for c in chunks)
    return Case(name, (Helper("given_one_by_one", given),), requires_grad=(False,), **options)


def _streams(d: Draw) -> list[Case]:
    """Return cases of ragged chunks, single ones, and maxima in every order."""
    x = moderate(d)
    steps = torch.arange(5.0, dtype=DOUBLE)[:, None]
    return [
        _chunks("three chunks", x(4), x(2), x(3), watch=("trace",), deny=SUMS),
        *(_chunks(f"{named(t)} chunks", x(3), x(1), x(4), dtype=t) for t in DTYPES[:3]),
        _chunks("one chunk", x(5)),
        _chunks("one chunk of one number", x(1)),
        _chunks("chunks of one number", *x(5, 1)),
        _chunks("ascending maxima", *(2 * steps + x(5, 3))),
        _chunks("descending maxima", *(-2 * steps + x(5, 3))),
        _chunks("equal chunks", *x(1, 3).expand(4, 3)),
        *(_chunks(c.name, *c.args[0]) for c in d.lopsided(lambda chunks: (chunks,), 3, 2, order=0)),
    ]


def _streams_far(d: Draw) -> list[Case]:
    """Return cases where exp overflows or is 0."""
    x, up = moderate(d), torch.linspace(-1, 1, 5, dtype=DOUBLE)[:, None]
    cases = [
        _chunks("from -10000 up to 10000", *(1e4 * up + x(5, 3)), watch=("trace",), deny=SUMS),
        _chunks("from 10000 down to -10000", *(-1e4 * up + x(5, 3))),
        _chunks("all around -10000", *(x(3, 4) - 1e4)),
        _chunks("all around 1000", *(x(3, 4) + 1000)),
        _chunks("10000 in the middle", x(3), [1e4, -1e4], x(2)),
        _chunks("one 0, and 5000 numbers at -21", [0.0], torch.full((5000,), -21.0)),
        _chunks("float32 around 100", *(x(3, 2) + 100), dtype=SINGLE),
        _chunks("float32 around -120", *(x(3, 2) - 120), dtype=SINGLE),
    ]
    for dtype in (HALF, BRAIN):
        cases += [_chunks(f"{named(dtype)} around {n:g}", *(x(3, 2) + n), dtype=dtype) for n in (100, -100)]
    return [*cases, _chunks("a result of 0", *-torch.full((2, 2), 4.0, dtype=DOUBLE).log())]


def _streams_infinite(d: Draw) -> list[Case]:
    """Return cases of chunks with infinities, of them alone, and beside others."""
    x, none, some = moderate(d), [-INF, -INF], [INF, 0.0]
    return [
        _chunks("-inf first", none, x(3), x(2), watch=("trace",), deny=SUMS),
        _chunks("-inf first, then around -1000", none, x(3) - 1000),
        _chunks("-inf in the middle and last", x(3), none, x(2), [-INF]),
        _chunks("-inf beside numbers", [-INF, 1.0], [0.5, -INF]),
        _chunks("nothing but -inf", none, [-INF], none),
        _chunks("a single -inf", [-INF]),
        _chunks("inf first", some, x(3)),
        _chunks("inf in the middle", x(2), [INF], x(3)),
        _chunks("inf last", x(2), [1.0, INF]),
        _chunks("inf twice", [INF], x(2), some),
        _chunks("-inf, then inf", none, [INF], none),
        *(_chunks(f"{named(t)}, -inf first and last", none, x(3), none, dtype=t) for t in DTYPES[:3]),
    ]


def streamed(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Find more than one chunk at a time, what grows with their number, and chunks that were changed."""
    tally = dict(yours.tally)

    def found(message: str, **evidence: str) -> Finding:
        return Finding("counts", message, {"case": case.name, **evidence})

    if (alive := tally.get("chunks_alive", 0)) > 3:
        text = "Earlier chunks are still in memory when a later one is asked for: only the current one fits."
        return found(text, yours=f"{alive} chunks alive at once", expected="the current one")
    if (each := tally.get("numbers_kept", 0)) > 0:
        text = "Something grows with the number of chunks (a list of results?): a fixed number of scalars is enough."
        return found(text, yours=f"about {each} objects or numbers more for each chunk", expected="none")
    if tally.get("chunks_changed", 0):
        return found("Your function changes a chunk in place; it belongs to the caller.")
    return None


def _in_one(chunks: Iterator[Tensor]) -> Tensor:
    """Return torch's log-sum-exp of all chunks together, in float64, rounded to their dtype."""
    x = torch.cat(list(chunks))
    return torch.logsumexp(x.double(), 0).to(x.dtype)


task = Task(
    "online_logsumexp",
    "online_logsumexp(chunks)",
    reference=_in_one,
    checks=(
        value(
            1,
            about="the log-sum-exp of all chunks together, 0-d and in their dtype, from an iterator",
            why="A maximum that grows on the way changes what the earlier chunks are worth.",
            cases=_streams,
            looks=(*VALUE, look.allowed),
        ),
        Check(
            "extremes",
            1,
            about="maxima from -10000 to 10000 and back, 100 and -100 in halves",
            why="Every exponent is taken relative to the largest number so far, in whatever order they come.",
            cases=_streams_far,
            looks=(*VALUE, look.allowed),
        ),
        Check(
            "infinities",
            1,
            about="chunks of -inf, first, last and all; inf anywhere",
            why="Finite chunks stand beside infinite ones here, and both have to be right: -inf counts nothing, the "
            "first chunk of all too, and one inf makes inf.",
            cases=_streams_infinite,
            looks=(*VALUE, look.allowed),
        ),
        Check(
            "one_pass",
            1,
            about="the state does not grow with the number of chunks, and no chunk is changed",
            why="The chunks together do not fit into memory: that is why they come in chunks.",
            cases=lambda d: [
                _chunks("eight chunks", *moderate(d)(8, 3)),
                _chunks("chunks of 0 and 1", *torch.eye(4, dtype=DOUBLE)),
                Case("280 chunks", (Helper("many_chunks", (moderate(d)(280, 2),)),), requires_grad=(False,)),
            ],
            looks=(*VALUE[:3], streamed, *VALUE[3:]),
        ),
    ),
    forbids=FORBIDS,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
def with_running_maximum(chunks):
    """The state is a maximum and the sum of exponentials relative to it: the one to write."""
    m = s = None
    for chunk in chunks:
        high = chunk.max() if m is None else torch.maximum(m, chunk.max())
        shift = torch.where(high.isinf(), 0, high)
        part = (chunk - shift).exp().sum()
        s = part if s is None else s * (m - shift).exp() + part
        m = high
    return torch.where(m.isinf(), m, m + s.log())


@task.solution
def with_running_result(chunks):
    """The result so far is one more number of the next chunk: the least to write, at a logarithm a chunk."""
    result = None
    for chunk in chunks:
        x = chunk if result is None else torch.cat([result.reshape(1), chunk])
        m = x.max()
        result = m + (x - m).exp().sum().log() if m.isfinite() else m
    return result


@task.solution
def in_python_floats(chunks):
    """The state is two Python numbers, so that halves add up in float64; on a GPU each chunk has to be waited for."""
    m, s, like = -INF, 0.0, None
    for chunk in chunks:
        like = chunk
        high = float(chunk.max())
        if high > m:
            s, m = s * float(torch.exp(torch.tensor(m - high, dtype=DOUBLE))), high
        if m == INF:
            continue
        if high > -INF:
            s += (chunk.double() - m).exp().sum().item()
    if m in (INF, -INF):
        return torch.full((), m, dtype=like.dtype)
    return (m + torch.tensor(s, dtype=DOUBLE).log()).to(like.dtype)


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
def with_next(chunks):
    """The first chunk gives the state; pairs are merged by a function."""

    def state(x):
        m = x.amax()
        return m, (x - m.clamp(torch.finfo(x.dtype).min, torch.finfo(x.dtype).max)).exp().sum()

    def merge(one, two):
        (m, s), (n, t) = one, two
        if not m >= n:
            (m, s), (n, t) = (n, t), (m, s)
        return m, s + t * torch.exp(torch.nan_to_num(n - m, nan=0.0))

    chunks = iter(chunks)
    total = state(next(chunks))
    for chunk in chunks:
        total = merge(total, state(chunk))
    m, s = total
    return torch.where(m.isinf(), m, m + s.log())


# --- Mistakes ---------------------------------------------------------------------------------------------------------


class Running:
    """A right online_logsumexp in steps, for the wrong ones to change one of them."""

    @staticmethod
    def start(x: Tensor) -> State:
        """Return the state before the first chunk."""
        return torch.full((), -INF, dtype=x.dtype), torch.zeros((), dtype=x.dtype)

    @staticmethod
    def maximum(m: Tensor, x: Tensor) -> Tensor:
        """Return the maximum with one chunk more."""
        return torch.maximum(m, x.max())

    @staticmethod
    def shift(m: Tensor) -> Tensor:
        """Return what is subtracted: the maximum, 0 where that is infinite."""
        return torch.where(m.isinf(), 0, m)

    @staticmethod
    def shrink(m: Tensor, shift: Tensor) -> Tensor:
        """Return by what the sum is multiplied that was relative to m."""
        return (m - shift).exp()

    @classmethod
    def merged(cls, m: Tensor, s: Tensor, x: Tensor) -> State:
        """Return the state with one chunk more."""
        high = cls.maximum(m, x)
        shift = cls.shift(high)
        return high, s * cls.shrink(m, shift) + (x - shift).exp().sum()

    @staticmethod
    def result(m: Tensor, s: Tensor) -> Tensor:
        """Return the log-sum-exp."""
        return m + s.log()

    @classmethod
    def apply(cls, chunks: Iterable[Tensor]) -> Tensor:
        """Return the log-sum-exp of all chunks."""
        state = None
        for chunk in chunks:
            state = cls.merged(*(state or cls.start(chunk)), chunk)
        return cls.result(*state)


online = Running.apply
wrong = Wrong(task, of=Running)


@task.mistake(
    "value",
    "Your result is -inf: either the new maximum is never stored in the loop (m = new_m), or you go through the chunks "
    "twice, and an iterator is used up after the first time. Rescale the sum when the maximum grows, store both, and "
    "one pass is enough.",
)
def two_passes(chunks):
    m = torch.stack([chunk.max() for chunk in chunks]).max()
    s = torch.zeros_like(m)
    for chunk in chunks:
        s = s + (chunk - m).exp().sum()
    return torch.where(m.isinf(), m, m + s.log())


@wrong.step(
    "merged",
    "value",
    "The maximum of the first chunk is never replaced: store the new one at the end of the loop (m = new_m), beside the "
    "sum that is relative to it.",
)
def maximum_not_stored(m, s, x):
    high, total = Running.merged(m, s, x)
    return torch.where(m.isinf(), high, m), total


@wrong.step(
    "merged",
    "value",
    "You add a chunk's sum relative to the chunk's own maximum. Where the running maximum is larger and stays, the chunk "
    "then counts too much: take the running maximum away from its numbers, or multiply its sum by exp(its maximum - m).",
)
def chunk_kept_at_its_own_maximum(m, s, x):
    high, own = Running.maximum(m, x), Running.shift(x.max())
    return high, s * Running.shrink(m, Running.shift(high)) + (x - own).exp().sum()


@task.mistake(
    "value",
    "You ask for the length of chunks, or for chunks[0]. An iterator has neither: it gives the next one, and ends.",
)
def indexed(chunks):
    state = Running.start(chunks[0])
    for i in range(len(chunks)):
        state = Running.merged(*state, chunks[i])
    return Running.result(*state)


@wrong.step(
    "shrink",
    "value",
    "When a larger maximum comes, the sum so far stays as it is. It was relative to the old maximum: multiply it by "
    "exp(old - new) before the new terms are added.",
)
def sum_not_rescaled(m, shift):
    return 1


@wrong.step(
    "shrink",
    "value",
    "You rescale the sum the wrong way round: by exp(new - old), which is above 1 when the maximum grows. What "
    "counted 1 relative to the old maximum counts less relative to a larger one: exp(old - new).",
)
def rescaled_upwards(m, shift):
    return (shift - torch.where(m.isinf(), shift, m)).exp()


@task.mistake(
    "value",
    "You add the log-sum-exps of the chunks. Logarithms of sums do not add up: the sums under them do, once they are "
    "relative to the same maximum.",
)
def results_added(chunks):
    return sum(online([chunk]) for chunk in chunks)


@wrong.step(
    "merged",
    "value",
    "Your result is that of the last chunk: the state begins anew inside the loop. Set it before the loop and carry "
    "it on.",
)
def last_chunk_alone(m, s, x):
    return Running.merged(*Running.start(x), x)


@task.mistake(
    "value",
    "The first chunk is missing from your result: next(chunks) has taken it, to look at its dtype perhaps, and the "
    "loop begins with the second.",
)
def first_chunk_dropped(chunks):
    first = next(chunks)
    return Running.result(*reduce(lambda state, x: Running.merged(*state, x), chunks, Running.start(first)))


@wrong.step(
    "result",
    "value",
    "You leave out the maximum at the end. The sum is relative to it: the result is the maximum plus the logarithm "
    "of the sum.",
)
def maximum_not_added_back(m, s):
    return s.log()


@task.mistake(
    "value",
    "Your result is float32 whatever the chunks are: torch.tensor of a Python number is, and so is torch.zeros. Give "
    "the result the dtype of the chunks.",
)
def float32_result(chunks):
    return torch.tensor(online(chunks).item())


@task.mistake(
    "value", "You return a Python number. A tensor without dimensions is asked for, of the dtype of the chunks."
)
def number_returned(chunks):
    return online(chunks).item()


@task.mistake(
    "value",
    "Your state is float32 and the result is cast back: for float64 chunks half of the digits are lost. Take the "
    "dtype of the chunks, or float64.",
)
def float32_state(chunks):
    dtypes = []

    def single(chunk):
        dtypes[:] = [chunk.dtype]
        return chunk.float()

    return online(map(single, chunks)).to(*dtypes)


@task.mistake(
    "value",
    "You call a built-in that does the task (logsumexp, logaddexp, a softmax). Carry a maximum and a sum of "
    "exponentials, and take one logarithm at the end.",
)
def calls_logaddexp(chunks):
    return reduce(torch.logaddexp, (online([chunk]) for chunk in chunks))


@task.mistake(
    "value",
    "You merge by softplus: a + softplus(b - a) is the logaddexp of a and b, which torch has ready. Carry a maximum "
    "and a sum of exponentials, and take one logarithm at the end.",
)
def merges_by_softplus(chunks):
    return reduce(lambda a, b: a + F.softplus(b - a), (online([chunk]) for chunk in chunks))


@wrong.step(
    "maximum",
    "extremes",
    "Your maximum is that of the current chunk, not the largest so far. Where a chunk is far below an earlier one, "
    "the sum so far is multiplied by the exp of a large number, which overflows: take the larger of the two maxima.",
)
def maximum_of_the_chunk(m, x):
    new = x.max()
    return torch.maximum(m, new) if m.isinf() or new.isinf() else new


@wrong.step(
    "maximum",
    "extremes",
    "Every chunk is shifted by the maximum of the first one. A later one that is far above it overflows: let the "
    "maximum grow, and rescale the sum when it does.",
)
def first_maximum_kept(m, x):
    return Running.maximum(m, x) if m.isinf() or x.max().isinf() else m


@wrong.step(
    "merged",
    "extremes",
    "You leave out chunks that are far below the maximum. One number of theirs counts next to nothing; thousands of "
    "them do not.",
)
def far_chunks_skipped(m, s, x):
    return (m, s) if x.max() < m - 16 else Running.merged(m, s, x)


@task.mistake(
    "extremes",
    "You add up exp of the chunks as they are: it overflows above 88.7 in float32, and below -104 the sum is 0. Keep "
    "the largest number so far, and take every exponent relative to it.",
)
def no_shift(chunks):
    return sum(chunk.exp().sum() for chunk in chunks).log()


@wrong.step(
    "start",
    "extremes",
    "Your running maximum begins at 0 (or at another number of no account). Where all numbers are far below it, "
    "every exp is 0 and the result -inf. Begin at -inf, or with the first chunk.",
)
def begins_at_zero(x):
    return torch.zeros((), dtype=x.dtype), torch.zeros((), dtype=x.dtype)


@wrong.step(
    "shift",
    "infinities",
    "Your shift is the maximum also where that is infinite: inf - inf is nan. A first chunk of -inf makes everything "
    "nan, and inf anywhere too: shift by 0 where the maximum so far is infinite.",
)
def no_guard(m):
    return m


@wrong.step(
    "shift",
    "infinities",
    "You guard against a maximum of -inf, and one of inf still gives inf - inf, which is nan. With inf in any chunk "
    "the result is inf.",
)
def only_minus_infinity_guarded(m):
    return torch.where(m == -INF, 0, m)


@wrong.step(
    "maximum",
    "infinities",
    "Your state keeps the shift in place of the maximum: 0 for a chunk of -inf. Merged with numbers far below 0 it "
    "hides them all. Keep -inf as the maximum, and replace it where you subtract, nowhere else.",
)
def guard_kept_as_maximum(m, x):
    return Running.shift(Running.maximum(m, x))


@task.mistake(
    "infinities",
    "You return as soon as the maximum is infinite, and isinf() is true for -inf too: a first chunk of nothing but -inf "
    "ends the loop. Only +inf decides the result; with -inf go on to the next chunk.",
)
def minus_infinity_ends_it(chunks):
    state = None
    for chunk in chunks:
        state = Running.merged(*(state or Running.start(chunk)), chunk)
        if state[0].isinf():
            return state[0]
    return Running.result(*state)


@task.mistake(
    "infinities",
    "You leave out chunks whose maximum is infinite. That is right for one of -inf, as long as another follows; with "
    "inf in a chunk the result is inf, and of -inf alone it is -inf.",
)
def infinite_chunks_skipped(chunks):
    return online(chunk for chunk in chunks if chunk.max().isfinite())


@task.mistake(
    "one_pass",
    "You collect all chunks (torch.cat, list(chunks)) before you reduce them. They come one by one since they do not "
    "fit into memory together: carry a maximum and a sum instead.",
)
def collects_chunks(chunks):
    return online([torch.cat(list(chunks))])


@task.mistake(
    "one_pass",
    "You collect one result for each chunk, in a list, and join them at the end: a list that grows with the number "
    "of chunks. Merge each chunk into the state as it comes: two numbers are enough.",
)
def collects_results(chunks):
    return online([torch.stack([online([chunk]) for chunk in chunks])])


@task.mistake(
    "one_pass",
    "You join each chunk to the tensor of all chunks so far: at the end it holds everything. Merge each chunk into a "
    "maximum and a sum.",
)
def joins_chunks(chunks):
    return online([reduce(lambda one, two: torch.cat([one, two]), chunks)])


@task.mistake(
    "one_pass",
    "You subtract the maximum from the chunk in place (chunk -= m, sub_, exp_): it belongs to the caller. Write "
    "chunk - m, a new tensor.",
)
def writes_into_chunk(chunks):
    m = s = None
    for chunk in chunks:
        high = chunk.max() if m is None else torch.maximum(m, chunk.max())
        shift = torch.where(high.isinf(), 0, high)
        part = chunk.sub_(shift).exp_().sum()
        m, s = high, part if s is None else s * (m - shift).exp() + part
    return Running.result(m, s)
