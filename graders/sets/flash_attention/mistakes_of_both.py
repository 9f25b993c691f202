"""Mistakes that can be made in tiled_attention, and some of them in FlashAttention as well."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from graders.judge.task import Mistake
from graders.judge.wording import FLOAT32, FLOAT32_AND_BACK, VIEW_NEEDED
from graders.judge.wrong import changed
from graders.sets.flash_attention.common import attention
from graders.sets.flash_attention.flash_attention import task as flash
from graders.sets.flash_attention.parts import Parts
from graders.sets.flash_attention.tiled_attention import task as tiled


class Undivided(Parts):
    """For steps that divide by themselves: the output is what they have added up."""

    @staticmethod
    def finish(acc, total, dtype):
        return acc


def both(step: str, caught_by: str, message: str, in_flash: str = "", of: type[Parts] = Parts) -> Callable:
    """Decorate another version of one step of `Parts`: a mistake in tiled_attention.

    Args:
        step: the step's name.
        caught_by: the check of tiled_attention that must catch it.
        message: what its author hears.
        in_flash: the check of FlashAttention; "": there the mistake is not listed.
        of: the steps of which it changes one.
    """

    def add(act: Callable) -> Callable:
        spoiled = changed(of, **{step: act})
        tiled.mistakes.append(Mistake(act.__name__, caught_by, message, spoiled.tiled))
        if in_flash:
            flash.mistakes.append(Mistake(act.__name__, in_flash, message, spoiled.apply))
        return act

    return add


# --- The running maximum ----------------------------------------------------------------------------------------------


@both(
    "maximum",
    "extremes",
    "Your tiles add exp(s) without taking a maximum away first: right for small scores, infinite above 709 (in "
    "float32 above 88). Keep the maximum of each row so far, and rescale the sum and the output when it moves.",
    in_flash="extremes",
)
def no_running_max(m, s):
    return torch.zeros_like(m)


@both(
    "start",
    "extremes",
    "Your running maximum starts at 0. For a row whose scores are all far below 0 it stays there, every exp(s - m) "
    "becomes 0, and the row ends as 0 / 0. Start at -inf: exp(-inf - m) is 0.",
    in_flash="extremes",
)
def max_started_at_zero():
    return 0.0


@both(
    "start",
    "extremes",
    "Your running maximum starts at a number such as -1e4. A row whose scores are all below it loses every term and "
    "ends as 0 / 0. Start at -inf.",
    in_flash="extremes",
)
def max_started_at_a_number():
    return -1e4


@both(
    "maximum",
    "extremes",
    "You take the maximum of the tile at hand for the running maximum. When that is smaller than the one before, "
    "exp(m_old - m_new) overflows. The maximum may only rise: torch.maximum(m, the tile's).",
)
def max_of_the_tile(m, s):
    return s.amax(-1, keepdim=True)


@both(
    "maximum",
    "extremes",
    "You take the maximum of the first tile and keep it. A later tile with larger scores overflows: update the "
    "maximum with every tile, and rescale what was summed so far.",
)
def max_of_the_first_tile(m, s):
    return torch.where(m == -torch.inf, s.amax(-1, keepdim=True), m)


@both(
    "maximum",
    "extremes",
    "You use one maximum for all rows of a tile. A row whose scores lie far below it loses every term and ends as 0 "
    "/ 0. The maximum belongs to the row: amax(-1, keepdim=True).",
)
def one_max_for_all_rows(m, s):
    return torch.maximum(m, s.amax().expand_as(m))


@both(
    "forward",
    "extremes",
    "You keep one running maximum for all queries. A row whose scores lie far below it loses every term and ends as 0 / 0. "
    "Each row has its own: amax(-1, keepdim=True).",
)
def one_max_for_all_queries(q, k, v, causal, block_q, block_k):
    shared = changed(Parts, maximum=one_max_for_all_rows)
    return shared.forward(q, k, v, causal, q.shape[-2], block_k)


@both(
    "step",
    "extremes",
    "You leave out tiles whose largest score lies far below the maximum of another row. What is next to nothing in one row "
    "may be all that another has: compare row by row, or leave no tile out.",
    in_flash="extremes",
)
def tiles_left_out_for_all_rows(m, total, acc, s, v_j):
    return (m, total, acc) if s.max() < m.max() - 40 else Parts.step(m, total, acc, s, v_j)


@tiled.mistake(
    "extremes",
    "You take the maximum of the scores before they are scaled, and subtract it from the scaled ones. It is not their maximum: "
    "where scores are large, every exp is 0 and the row ends as 0 / 0, or they overflow. Scale first, then take the maximum.",
)
def maximum_before_the_scale(q, k, v, block):
    dtype, root = torch.promote_types(q.dtype, torch.float32), q.shape[-1] ** 0.5
    m = torch.full_like(q[..., :1], -torch.inf, dtype=dtype)
    total, acc = torch.zeros_like(m), torch.zeros(*q.shape[:-1], v.shape[-1], dtype=dtype)
    for k_j, v_j in zip(k.split(block, -2), v.split(block, -2), strict=True):
        s = q.to(dtype) @ k_j.to(dtype).mT
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        total, acc = Parts.rescaled(torch.exp(m - new), total, acc)
        p = torch.exp(s / root - new)
        m, total, acc = new, total + p.sum(-1, keepdim=True), acc + p @ v_j.to(dtype)
    return (acc / total).to(q.dtype)


@both(
    "product",
    "extremes",
    "You clamp the scores. Beyond the bound all keys count alike, and scores may be as large as 1e5 here: the running "
    "maximum keeps exp finite by itself, for scores of any size.",
    in_flash="extremes",
)
def scores_clamped(q_i, k_j, scale, dtype):
    return Parts.product(q_i, k_j, scale, dtype).clamp(-5e4, 5e4)


# --- The sums ---------------------------------------------------------------------------------------------------------


@both(
    "rescaled",
    "value",
    "You do not rescale the old sum. When the maximum rises from m to m_new, all that was summed so far is too large "
    "by the factor exp(m_new - m): multiply it by exp(m - m_new) before you add.",
)
def sum_not_rescaled(shrink, total, acc):
    return total, shrink * acc


@both(
    "rescaled",
    "value",
    "You rescale the sum, and not the output. The output summed so far has the old maximum in it as well: multiply "
    "it by exp(m - m_new), too.",
)
def output_not_rescaled(shrink, total, acc):
    return shrink * total, acc


@both(
    "rescaled",
    "value",
    "You rescale nothing when the maximum rises: the sum and the output have terms of different maxima. Multiply "
    "both by exp(m - m_new) before you add.",
)
def nothing_rescaled(shrink, total, acc):
    return total, acc


@both(
    "step",
    "value",
    "You divide the output by the sum after each tile, and go on adding to the quotient as if it were the sum of p "
    "v. Divide once, after the last tile (or multiply by the old sum before you add).",
    of=Undivided,
)
def divided_in_each_tile(m, total, acc, s, v_j):
    m, total, acc = Parts.step(m, total, acc, s, v_j)
    return m, total, acc / total


@both(
    "step",
    "value",
    "You divide each tile's share by the sum as it stands after that tile, and only rescale by exp(m - m_new) what is there "
    "already. The shares then have different divisors. Divide once, after the last tile.",
    of=Undivided,
)
def each_share_divided(m, total, acc, s, v_j):
    new, total, _ = Parts.step(m, total, acc, s, v_j)
    return new, total, torch.exp(m - new) * acc + (torch.exp(s - new) / total) @ v_j


@both(
    "step",
    "value",
    "Your running log-sum-exp starts at 0, the logarithm of one: it counts a key with score 0 and value 0 that is not there. "
    "Start at -inf, the logarithm of nothing.",
    of=Undivided,
)
def lse_started_at_zero(m, total, acc, s, v_j):
    old = torch.where(m == -torch.inf, 0, m)  # m is the log-sum-exp so far
    new = torch.logaddexp(old, torch.logsumexp(s, -1, keepdim=True))
    return new, total, torch.exp(old - new) * acc + torch.exp(s - new) @ v_j


@both(
    "step",
    "value",
    "You take the softmax of each tile by itself and add the results. The weights of a row sum to 1 over all keys, "
    "not over each tile: that needs the running maximum and the running sum.",
    of=Undivided,
)
def softmax_of_each_tile(m, total, acc, s, v_j):
    m, total, _ = Parts.step(m, total, acc, s, v_j)
    return m, total, acc + torch.softmax(s, -1) @ v_j


# --- Scale, lengths and shapes ----------------------------------------------------------------------------------------


@both(
    "scale",
    "value",
    "You do not scale the scores. They are q k^T / sqrt(d), d the last dimension of q.",
    in_flash="value",
)
def scale_missing(q, v):
    return 1.0


@both(
    "scale",
    "value",
    "You divide the scores by d. It is the square root of d, the last dimension of q.",
    in_flash="value",
)
def scale_without_root(q, v):
    return 1 / q.shape[-1]


@both(
    "scale",
    "value",
    "You scale the scores by the last dimension of v. It is that of q and k that counts, 1 / sqrt(d): over d they "
    "are summed.",
    in_flash="value",
)
def scale_of_v(q, v):
    return v.shape[-1] ** -0.5


@both(
    "keys",
    "value",
    "You leave out the last tile where the block does not divide the number of keys, so those keys count for "
    "nothing. Let the loop run to N_k: range(0, N_k, block); slices end where the tensor ends.",
    in_flash="value",
)
def ragged_tail_dropped(q, k, i, causal, block_q, block_k):
    n = k.shape[-2]
    whole = range(0, n - n % block_k if n > block_k else n, block_k)
    return [j for j in whole if not causal or j < i + block_q]


@both(
    "forward",
    "value",
    "You fill the last tile up with zeros, and the padded keys take part in the softmax with a score of 0. Let the "
    "last tile be smaller, or set those scores to -inf.",
)
def padded_keys_count(q, k, v, causal, block_q, block_k):
    pad = (0, 0, 0, -k.shape[-2] % block_k)
    return Parts.forward(q, F.pad(k, pad), F.pad(v, pad), causal, block_q, block_k)


@both(
    "forward",
    "value",
    "You fill the last tile up with zeros, and the padded keys take part in the softmax with a score of 0. Let the "
    "last tile be smaller, or set those scores to -inf.",
)
def padded_keys_count_in_short_blocks(q, k, v, causal, block_q, block_k):
    return padded_keys_count(q, k, v, causal, block_q, min(block_k, k.shape[-2]))


@both(
    "forward",
    "value",
    "You refuse lengths that the block does not divide. Here they are part of the task: the last tile is smaller, "
    "which slices and split give you for nothing.",
)
def block_must_divide(q, k, v, causal, block_q, block_k):
    if q.shape[-2] % block_q or k.shape[-2] % block_k:
        raise ValueError("the blocks do not divide the lengths")
    return Parts.forward(q, k, v, causal, block_q, block_k)


@both(
    "keys",
    "value",
    "You use one length for queries and keys: your loop over the keys ends at N_q. Keys beyond it count for nothing, "
    "and with fewer keys you slice past their end. Take N_k from k.",
)
def one_length_for_both(q, k, i, causal, block_q, block_k):
    return range(0, min(q.shape[-2], i + block_q) if causal else q.shape[-2], block_k)


@both(
    "result",
    "value",
    "Your output has the last dimension of q. It is d_v, the last dimension of v: the rows of the output are means "
    "of rows of v.",
)
def output_like_q(q, v):
    return torch.zeros_like(q)


@both(
    "forward",
    "value",
    "Your running output starts with the shape of the queries (zeros_like(q_i)). Its rows are means of rows of v, so its "
    "last dimension is that of v: zeros of shape (*q_i.shape[:-1], v.shape[-1]).",
)
def sum_begun_like_q(q, k, v, causal, block_q, block_k):
    wide, scale, outs = Parts.wide(q.dtype), Parts.scale(q, v), []
    for i in range(0, q.shape[-2], block_q):
        q_i = q[..., i : i + block_q, :].to(wide)
        m = torch.full_like(q_i[..., :1], -torch.inf)
        total, acc = torch.zeros_like(m), torch.zeros_like(q_i)
        for j in range(0, k.shape[-2], block_k):
            s = Parts.product(q_i, k[..., j : j + block_k, :].to(wide), scale, q.dtype)
            m, total, acc = Parts.step(m, total, acc, s, v[..., j : j + block_k, :].to(wide))
        outs.append((acc / total).to(q.dtype))
    return torch.cat(outs, -2), None


@both(
    "forward",
    "value",
    "You set up the running maximum, sum and output once, before the loop over the queries, so each block of queries goes "
    "on with the state of the block before it. Start all three anew for each block.",
)
def state_started_once(q, k, v, causal, block_q, block_k):
    wide, scale, outs = Parts.wide(q.dtype), Parts.scale(q, v), []
    m = torch.full((*q[..., :block_q, :].shape[:-1], 1), -torch.inf, dtype=wide)
    total, acc = torch.zeros_like(m), torch.zeros(*m.shape[:-1], v.shape[-1], dtype=wide)
    for i in range(0, q.shape[-2], block_q):
        q_i = q[..., i : i + block_q, :].to(wide)
        for j in range(0, k.shape[-2], block_k):
            s = Parts.product(q_i, k[..., j : j + block_k, :].to(wide), scale, q.dtype)
            m, total, acc = Parts.step(m, total, acc, s, v[..., j : j + block_k, :].to(wide))
        outs.append((acc / total).to(q.dtype))
    return torch.cat(outs, -2), None


@both(
    "forward",
    "value",
    "Your code takes the shape of q apart into batch, heads, length and d. The leading dimensions may be any number, "
    "none too: count from the end, q.shape[-2] and q[..., i:j, :].",
)
def four_dimensions_only(q, k, v, causal, block_q, block_k):
    _, _, _, _ = q.shape
    return Parts.forward(q, k, v, causal, block_q, block_k)


@both(
    "product",
    "value",
    "You swap axes by numbers that count from the front (transpose(1, 2), or .t()), which suits one number of "
    "leading dimensions alone. k.transpose(-2, -1), or k.mT, suits all.",
)
def axes_from_the_front(q_i, k_j, scale, dtype):
    return scale * (q_i @ k_j.transpose(1, 2))


@both(
    "forward",
    "value",
    "Your code counts rows from the front (q.shape[0], k[j : j + block], transpose(0, 1)), which suits matrices alone. "
    "With a batch or heads in front the rows are dimension -2: q.shape[-2], k[..., j : j + block, :], .mT.",
)
def rows_from_the_front(q, k, v, causal, block_q, block_k):
    if q.dim() > 2:
        return q @ k[:block_k].transpose(0, 1)  # the first product, which raises
    return Parts.forward(q, k, v, causal, block_q, block_k)


ONE_IN_FRONT = (
    "You take a dimension of 1 away at the end (squeeze) that the caller may have put in front: (1, N_q, d) gives (N_q, "
    "d_v). Give the output the leading dimensions of q: reshape(*q.shape[:-1], v.shape[-1])."
)


@both("forward", "value", ONE_IN_FRONT, in_flash="value")
def one_in_front_squeezed(q, k, v, causal, block_q, block_k):
    o, lse = Parts.forward(q, k, v, causal, block_q, block_k)
    return o if o.dim() == 2 else o.squeeze(0), lse


@both("forward", "value", ONE_IN_FRONT, in_flash="value")
def one_head_squeezed(q, k, v, causal, block_q, block_k):
    o, lse = Parts.forward(q, k, v, causal, block_q, block_k)
    return o.squeeze(0) if o.dim() == 3 else o, lse


# --- dtypes -----------------------------------------------------------------------------------------------------------


@both("forward", "value", FLOAT32)
def float32_inside(q, k, v, causal, block_q, block_k):
    return Parts.forward(q.float(), k.float(), v.float(), causal, block_q, block_k)


@both("wide", "value", FLOAT32_AND_BACK)
def float32_and_back(dtype):
    return torch.float32


@both(
    "kept",
    "extremes",
    "In bfloat16 and float16 you add up in the dtype of the input. A sum in bfloat16 has 8 bits: 1 + 0.003 is 1, and "
    "a long row loses most of its keys. Keep maximum, sum and output in float32, and round once at the end.",
    in_flash="extremes",
)
def low_precision_sums(m, total, acc, dtype):
    return tuple(t.to(dtype).to(t.dtype) for t in (m, total, acc))


@both(
    "forward",
    "value",
    "For float16 and bfloat16 your output stays in float32, in which you compute. It has the dtype of the input: convert "
    "it at the end with .to of the dtype that q came with (q itself may be float32 by then).",
    in_flash="value",
)
def output_stays_float32(q, k, v, causal, block_q, block_k):
    wide = Parts.wide(q.dtype)
    return Parts.forward(q.to(wide), k.to(wide), v.to(wide), causal, block_q, block_k)


@both(
    "kept",
    "extremes",
    "You keep the running sum of the weights in the dtype of the input. In bfloat16 it has 8 bits: 1 + 0.003 is 1, and many "
    "small weights are lost. Keep it in float32, as you do the output.",
    in_flash="extremes",
)
def low_precision_total(m, total, acc, dtype):
    return m, total.to(dtype).to(total.dtype), acc


@both(
    "kept",
    "extremes",
    "You keep the sum in float32, but add up the output in the dtype of the input. In bfloat16 small parts of it are "
    "lost: keep the output in float32 as well, and round once at the end.",
)
def low_precision_output(m, total, acc, dtype):
    return m, total, acc.to(dtype).to(acc.dtype)


@both(
    "finish",
    "value",
    "You add a small number to the sum before you divide by it. The sum is never 0, since the largest key of a row "
    "adds exp(0) = 1; leave it out.",
)
def epsilon_added(acc, total, dtype):
    return acc / (total + 1e-6)


@both(
    "finish",
    "value",
    "You add a small number such as 1e-8 to the sum before you divide, which float64 shows. The sum is never 0, since the "
    "largest key of a row adds exp(0) = 1; leave it out.",
    in_flash="value",
)
def small_epsilon_added(acc, total, dtype):
    return acc / (total + 1e-8)


@both(
    "scale",
    "value",
    "Your scale is a tensor of float32 (as of torch.tensor(d).sqrt()), which rounds 1 / sqrt(d) to seven digits, for "
    "float64 too. Take a Python number: q.shape[-1] ** -0.5.",
    in_flash="value",
)
def scale_in_float32(q, v):
    return torch.tensor(float(q.shape[-1])).rsqrt().item()


@both(
    "scale",
    "extremes",
    "Your scale is a tensor in the dtype of q: in bfloat16 1 / sqrt(d) is off by up to 0.4 percent, which counts where "
    "scores are large. Take a Python number, q.shape[-1] ** -0.5, and multiply in float32.",
    in_flash="extremes",
)
def scale_in_halves(q, v):
    return torch.tensor(q.shape[-1] ** -0.5, dtype=q.dtype).item()


IN_HALVES = (
    "You multiply q and k in float16 or bfloat16. The product is rounded to that dtype: beyond 65504 it is infinite, "
    "and in bfloat16 scores near 90 lie half a unit apart. Convert the tiles to float32 first."
)


@both("product", "extremes", IN_HALVES, in_flash="extremes")
def low_precision_scores(q_i, k_j, scale, dtype):
    return (scale * (q_i.to(dtype) @ k_j.to(dtype).mT)).to(q_i.dtype)


@both("product", "extremes", IN_HALVES, in_flash="extremes")
def low_precision_product(q_i, k_j, scale, dtype):
    return scale * (q_i.to(dtype) @ k_j.to(dtype).mT).to(q_i.dtype)


@both(
    "product",
    "extremes",
    "You multiply q by the scale in float16 or bfloat16, before you convert. The product is rounded, and where q k^T "
    "is a difference of large numbers the scores are others. Convert first, then scale.",
)
def scaled_before_converting(q_i, k_j, scale, dtype):
    return (q_i.to(dtype) * scale).to(q_i.dtype) @ k_j.mT


@both(
    "finish",
    "extremes",
    "You round the output and the sum to the input's dtype before you divide. In float16 a sum of values above 65504 "
    "is infinite, though their mean is not. Divide in float32, and round the quotient.",
)
def rounded_before_dividing(acc, total, dtype):
    return acc.to(dtype) / total.to(dtype)


@both(
    "forward",
    "extremes",
    "You multiply the weights and v in float16 or bfloat16. The weights are rounded, and in float16 a tile's sum of values "
    "is infinite above 65504, though their mean is not. Convert v to float32 before p @ v.",
    in_flash="extremes",
)
def p_v_in_halves(q, k, v, causal, block_q, block_k):
    def weighted(p, v_j):
        return (p.to(q.dtype) @ v_j.to(q.dtype)).to(p.dtype)

    return changed(Parts, weighted=weighted).forward(q, k, v, causal, block_q, block_k)


@both("forward", "value", VIEW_NEEDED)
def view_needed(q, k, v, causal, block_q, block_k):
    flat = [t.view(-1, *t.shape[-2:]) for t in (q, k, v)]
    return tuple(t.view(*q.shape[:-1], -1) for t in Parts.forward(*flat, causal, block_q, block_k))


# --- Memory -----------------------------------------------------------------------------------------------------------


@both(
    "forward",
    "memory",
    "Your numbers are right, but you compute the scores of all queries with all keys at once: N_q x N_k of them, as "
    "plain attention does. Compute them tile by tile.",
    in_flash="memory",
)
def whole_scores(q, k, v, causal, block_q, block_k):
    wide = Parts.wide(q.dtype)
    s = Parts.scores(q.to(wide), k.to(wide), 0, 0, causal, Parts.scale(q, v), q, k)
    lse = s.logsumexp(-1, keepdim=True)
    return (torch.exp(s - lse) @ v.to(wide)).to(q.dtype), lse


@both(
    "forward",
    "memory",
    "Your numbers are right, but only the queries come in blocks: each block's scores with all keys are in memory at "
    "once. The keys come in blocks as well, which is what the running maximum and sum are for.",
    in_flash="memory",
)
def rows_of_scores(q, k, v, causal, block_q, block_k):
    wide, scale, outs, lses = Parts.wide(q.dtype), Parts.scale(q, v), [], []
    for i in range(0, q.shape[-2], block_q):
        s = Parts.scores(q[..., i : i + block_q, :].to(wide), k.to(wide), i, 0, causal, scale, q, k)
        outs.append((torch.softmax(s, -1) @ v.to(wide)).to(q.dtype))
        lses.append(s.logsumexp(-1, keepdim=True))
    return torch.cat(outs, -2), torch.cat(lses, -2)


@both(
    "forward",
    "memory",
    "Your numbers are right, but you collect something of every tile in a list: its scores, its weights, or its "
    "share of the output. All together grow with the product of the lengths. Use each tile for the running maximum, "
    "sum and output, and let it go.",
    in_flash="memory",
)
def tiles_collected(q, k, v, causal, block_q, block_k):
    wide, scale = Parts.wide(q.dtype), Parts.scale(q, v)
    o, lse, tiles = Parts.result(q, v), torch.empty(*q.shape[:-1], 1, dtype=wide), {}
    for i in range(0, q.shape[-2], block_q):
        for j in Parts.keys(q, k, i, causal, block_q, block_k):
            q_i, k_j = q[..., i : i + block_q, :].to(wide), k[..., j : j + block_k, :].to(wide)
            tiles[i, j] = Parts.scores(q_i, k_j, i, j, causal, scale, q, k)
    for i in range(0, q.shape[-2], block_q):
        row = {j: s for (at, j), s in tiles.items() if at == i}
        most = torch.stack([s.amax(-1) for s in row.values()]).amax(0).unsqueeze(-1)
        total = sum(torch.exp(s - most).sum(-1, keepdim=True) for s in row.values())
        o[..., i : i + block_q, :] = sum(
            torch.exp(s - most) @ v[..., j : j + block_k, :].to(wide) / total for j, s in row.items()
        )
        lse[..., i : i + block_q, :] = most + total.log()
    return o, lse


BEFORE_THE_SUM = (
    "Your numbers are right, but you multiply each query with each key element by element and sum over d: that tensor "
    "has d times as many elements as a tile. Use a matrix product, q_i @ k_j.mT, which makes the scores alone."
)


@both("product", "memory", BEFORE_THE_SUM, in_flash="memory")
def product_before_the_sum(q_i, k_j, scale, dtype):
    return scale * (q_i.unsqueeze(-2) * k_j.unsqueeze(-3)).sum(-1)


@both("forward", "memory", BEFORE_THE_SUM)
def product_of_all_queries_before_the_sum(q, k, v, causal, block_q, block_k):
    return changed(Parts, product=product_before_the_sum).forward(q, k, v, causal, q.shape[-2], block_k)


@both(
    "forward",
    "memory",
    "You call torch's scaled_dot_product_attention. The task is to write what it does, tile by tile.",
    in_flash="memory",
)
def calls_torch_s(q, k, v, causal, block_q, block_k):
    _, lse = Parts.forward(q, k, v, causal, block_q, block_k)
    return attention(q, k, v, causal), lse


@both(
    "forward",
    "memory",
    "You scale q in place (q *= ..., mul_): the caller's tensor is changed. Multiply into a new tensor: q * scale.",
)
def scales_q_in_place(q, k, v, causal, block_q, block_k):
    o, lse = Parts.forward(q, k, v, causal, block_q, block_k)
    q.mul_(q.shape[-1] ** -0.5)
    return o, lse
