"""Mistakes that only FlashAttention has: in backward, in what is kept for it, and in the causal mask."""

import math
from typing import Any

import torch
from torch import Tensor

from graders.judge.wording import KEPT_OUTSIDE, NO_FUNCTION, WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong, changed
from graders.sets.flash_attention.flash_attention import Inner, task
from graders.sets.flash_attention.mistakes_of_both import one_length_for_both, ragged_tail_dropped, whole_scores
from graders.sets.flash_attention.parts import Parts, Run

OUTSIDE: dict[str, tuple] = {}  # where two of the mistakes keep things

wrong = Wrong(task, of=Parts)


def swept(parts: type[Parts], ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients with D as the sum of P * dP over the row, from a first pass over all tiles: not from o."""
    rows = []

    def no_delta(g_i, o_i):
        rows.append(0.0)

    def through_softmax(p, dp, delta):
        rows[-1] = rows[-1] + (p * dp).sum(-1, keepdim=True)
        return p

    changed(parts, delta=no_delta, through_softmax=through_softmax).backward(ctx, g)
    found = iter(rows)
    return changed(parts, delta=lambda g_i, o_i: next(found)).backward(ctx, g)


# --- Gradients --------------------------------------------------------------------------------------------------------


@wrong.step(
    "through_softmax",
    "gradient",
    "Your gradient of the scores is P * dP. Each row of P sums to 1, so raising one weight lowers the others: dS = P "
    "* (dP - D), D = rowsum(dO * O). The gradient of v does not need it and is right.",
)
def missing_d(p, dp, delta):
    return p * dp


@wrong.step(
    "through_softmax",
    "gradient",
    "You compute D from one tile, rowsum(P * dP) over its keys. The sum runs over all keys of the row, which is why "
    "it is taken from the output: D = rowsum(dO * O).",
)
def d_of_the_tile(p, dp, delta):
    return p * (dp - (p * dp).sum(-1, keepdim=True))


@wrong.step(
    "gradients", "gradient", "The gradients of q and k lack the factor 1 / sqrt(d): dq = scale dS k, dk = scale dS^T q."
)
def gradients_not_scaled(ds, p, q_i, k_j, g_i, scale):
    return ds @ k_j, ds.mT @ q_i, p.mT @ g_i


@wrong.step(
    "gradients",
    "gradient",
    "Your gradient of q lacks the factor 1 / sqrt(d), that of k has it: dq = scale dS k, dk = scale dS^T q.",
)
def dq_not_scaled(ds, p, q_i, k_j, g_i, scale):
    return ds @ k_j, scale * ds.mT @ q_i, p.mT @ g_i


@wrong.step(
    "gradients",
    "gradient",
    "Your gradient of k lacks the factor 1 / sqrt(d), that of q has it: dq = scale dS k, dk = scale dS^T q.",
)
def dk_not_scaled(ds, p, q_i, k_j, g_i, scale):
    return scale * ds @ k_j, ds.mT @ q_i, p.mT @ g_i


@wrong.step(
    "gradients",
    "gradient",
    "Your gradient of k has the factor 1 / sqrt(d) twice: the queries were scaled as you took them, so dk = dS^T q with "
    "these is scaled already.",
)
def dk_scaled_twice(ds, p, q_i, k_j, g_i, scale):
    return scale * ds @ k_j, scale**2 * ds.mT @ q_i, p.mT @ g_i


@wrong.step(
    "gradients",
    "gradient",
    "Your gradient of q has the factor 1 / sqrt(d) twice. It comes in once, with the scores: dq = scale dS k.",
)
def dq_scaled_twice(ds, p, q_i, k_j, g_i, scale):
    return scale**2 * ds @ k_j, scale * ds.mT @ q_i, p.mT @ g_i


@wrong.step(
    "write",
    "gradient",
    "Each block of keys adds to the gradient of a block of queries. You write it anew for each, so only the last block "
    "of keys remains: accumulate with +=.",
)
def dq_overwritten(dq_i, dk_j, dv_j, parts):
    dq_i.copy_(parts[0])
    dk_j += parts[1]
    dv_j += parts[2]


@wrong.step(
    "write",
    "gradient",
    "Each block of queries adds to the gradients of every block of keys and values. You write them anew for each, so "
    "only the last block of queries remains: accumulate with +=.",
)
def overwritten(dq_i, dk_j, dv_j, parts):
    dq_i += parts[0]
    dk_j.copy_(parts[1])
    dv_j.copy_(parts[2])


@wrong.step(
    "delta",
    "gradient",
    "You sum D over its row without keepdim, so it is subtracted from the columns of dP, or does not fit. One number a "
    "row needs a last dimension of 1: (dO * O).sum(-1, keepdim=True).",
)
def d_without_keepdim(g_i, o_i):
    return (g_i * o_i).sum(-1)


@wrong.backward(
    "causal",
    "With causal, backward ends at query N_k. Where there are more queries than keys the later ones see all keys, and have "
    "gradients as well: let the loop over the queries run to N_q.",
)
def queries_end_at_n_k(ctx, g):
    def queries(q, k, causal, block_q):
        return range(0, min(q.shape[-2], k.shape[-2]) if causal else q.shape[-2], block_q)

    return changed(Parts, queries=queries).backward(ctx, g)


@task.mistake(
    "gradient",
    "Your backward returns the gradients of k and v in the wrong order. They come as the arguments do: dq, dk, dv, and then "
    "None for causal, block_q and block_k.",
)
class gradients_in_wrong_order:
    @staticmethod
    def apply(q, k, v, causal, block_q, block_k):
        def backward(ctx, g, _):
            dq, dk, dv, *rest = Inner.backward(ctx, g, _)
            return dq, dv, dk, *rest

        return changed(Inner, backward=backward).apply(q, k, v, causal, block_q, block_k)[0]


wrong.habits(
    upstream_ignored="Your gradients do not depend on the upstream gradient, as if it were 1 everywhere. It enters "
    "three times: in dP = dO v^T, in D, and in dv = P^T dO."
)


@wrong.step(
    "lse",
    "gradient",
    "You save the running maximum in place of lse, so P = exp(S - m) is not divided by the sum. lse is m + log(sum).",
)
def lse_without_sum(m, total):
    return m


@wrong.step(
    "lse",
    "gradient",
    "Your log-sum-exp is in powers of 2 (exp2 and log2), and backward takes it from natural scores under exp. Multiply it by ln 2 "
    "before you save it, or use exp2 with scores times log2(e) in backward too.",
)
def lse_in_base_2(m, total):
    return (m + total.log()) / math.log(2)


@wrong.forward(
    "gradient",
    "Your lse has the maximum of the last tile in it. The sum was rescaled to the running maximum, which may come from an "
    "earlier tile: lse is m + log(sum), with that m.",
)
def lse_of_the_last_tile(q, k, v, causal, block_q, block_k):
    last = {}

    def maximum(m, s):
        last["m"] = s.amax(-1, keepdim=True)
        return torch.maximum(m, last["m"])

    def lse(m, total):
        return last["m"] + total.log()

    return changed(Parts, maximum=maximum, lse=lse).forward(q, k, v, causal, block_q, block_k)


@wrong.step(
    "weights",
    "gradient",
    "Backward takes the softmax of each tile by itself. The weights of a row sum to 1 over all keys: P = exp(S - "
    "lse), with the lse of the whole row.",
)
def softmax_of_the_tile_in_backward(q_i, k_j, i, j, causal, scale, q, k, lse_i):
    return torch.softmax(Parts.scores(q_i, k_j, i, j, causal, scale, q, k), -1)


@wrong.backward(
    "gradient",
    "Backward lets the keys run to N_q. Their number is N_k; with another number of queries some gradients stay 0, "
    "or slices are empty.",
)
def one_length_in_backward(ctx, g):
    return changed(Parts, keys=one_length_for_both).backward(ctx, g)


@wrong.backward(
    "gradient",
    "Forward goes through all keys, backward leaves out the last ones where the block does not divide their number. Let "
    "the loop run to N_k there as well: range(0, N_k, block_k).",
)
def ragged_tail_dropped_in_backward(ctx, g):
    return changed(Parts, keys=ragged_tail_dropped).backward(ctx, g)


@wrong.step(
    "weights",
    "extremes",
    "Backward divides exp(S) by exp(lse). Both are infinite for large scores, and inf / inf is nan. Take the difference "
    "first: exp(S - lse) is 1 at most.",
)
def exponentials_apart(q_i, k_j, i, j, causal, scale, q, k, lse_i):
    return torch.exp(Parts.scores(q_i, k_j, i, j, causal, scale, q, k)) / torch.exp(lse_i)


wrong.habits(
    nothing_returned="Your backward returns None for everything (is a return statement missing?): nothing gets a "
    "gradient at all."
)


@wrong.backward(
    "gradient",
    "Your backward asks the wrong entry of ctx.needs_input_grad: it has one for each argument, in their order, q "
    "first.",
)
def needs_shifted(ctx, g):
    dq, dk, dv = Parts.backward(ctx, g)
    _, _, k_needed, v_needed, *_ = ctx.needs_input_grad  # of Run: the parts come first
    return dq, dk if v_needed else None, dv if k_needed else None


@wrong.backward(
    "gradient",
    "Your backward returns None for all three where q needs no gradient. k and v may need one all the same: ask the entry "
    "of each in ctx.needs_input_grad, or compute all three.",
)
def nothing_without_q(ctx, g):
    return Parts.backward(ctx, g) if ctx.needs_input_grad[1] else (None, None, None)  # 0: the parts, of Run


@wrong.backward(
    "gradient",
    "Where q needs no gradient you leave out dS, and with it the gradient of k. Both are made of dS: dq = scale dS k and "
    "dk = scale dS^T q, so compute it where either of the two is wanted.",
)
def no_ds_without_q(ctx, g):
    dq, dk, dv = Parts.backward(ctx, g)
    return dq, dk if ctx.needs_input_grad[1] else torch.zeros_like(dk), dv


@wrong.backward(
    "gradient",
    "Your backward uses view on the upstream gradient, which may be expanded or otherwise not contiguous in memory. Use "
    "reshape, or slices that count from the end.",
)
def upstream_viewed(ctx, g):
    return Parts.backward(ctx, g.view(-1, *g.shape[-2:]).view(g.shape))


@wrong.step(
    "delta",
    "gradient",
    "Your D is the row sum of the upstream gradient alone. It is the row sum of its product with the output: D = "
    "rowsum(dO * O).",
)
def d_without_the_output(g_i, o_i):
    return g_i.sum(-1, keepdim=True)


@wrong.backward(
    "gradient",
    "Backward steps through the keys by block_k and cuts slices of block_q: some keys come twice, or not at all. Cut "
    "j to j + block_k.",
)
def keys_cut_by_block_q_in_backward(ctx, g):
    q, k, v, o, lse = ctx.saved_tensors
    causal, block_q, block_k = ctx.rest
    dtype, scale = lse.dtype, Parts.scale(q, v)
    dq, dk, dv = (torch.zeros(t.shape, dtype=dtype) for t in (q, k, v))
    for i in range(0, q.shape[-2], block_q):
        q_i, g_i, o_i, lse_i = (t[..., i : i + block_q, :].to(dtype) for t in (q, g, o, lse))
        for j in Parts.keys(q, k, i, causal, block_q, block_k):
            k_j, v_j = (t[..., j : j + block_q, :].to(dtype) for t in (k, v))
            p = Parts.weights(q_i, k_j, i, j, causal, scale, q, k, lse_i)
            ds = Parts.through_softmax(p, g_i @ v_j.mT, Parts.delta(g_i, o_i))
            there = (t[..., at : at + block_q, :] for t, at in ((dq, i), (dk, j), (dv, j)))
            Parts.write(*there, Parts.gradients(ds, p, q_i, k_j, g_i, scale))
    return tuple(d.to(t.dtype) for d, t in ((dq, q), (dk, k), (dv, v)))


@task.mistake("gradient", NO_FUNCTION)
def no_function(q, k, v, causal, block_q, block_k):
    return Parts.forward(q, k, v, causal, block_q, block_k)[0]


@task.mistake(
    "value",
    "Your apply returns a tuple. lse is your own business: let an inner Function return (o, lse), and "
    "FlashAttention.apply o alone.",
)
def returns_lse_too(q, k, v, causal, block_q, block_k):
    return Run.apply(Parts, q, k, v, causal, block_q, block_k)


# --- The mask ---------------------------------------------------------------------------------------------------------


@task.mistake(
    "causal", "You leave causal out of account: every query sees every key. With causal=True, query i sees keys j <= i."
)
def causal_ignored(q, k, v, causal, block_q, block_k):
    return Parts.apply(q, k, v, False, block_q, block_k)


@wrong.backward(
    "causal",
    "You mask in forward only. Backward computes P again, so it has to mask the same scores: exp(S - lse) is not 0 "
    "for a key that the query does not see.",
)
def causal_in_forward_only(ctx, g):
    ctx.rest = (False, *ctx.rest[1:])
    return Parts.backward(ctx, g)


BOTTOM_RIGHT = (
    "Where N_q and N_k differ your mask is aligned at the bottom right, the last query seeing all keys. Here, as in "
    "torch, it is aligned at the top left: query i sees keys j <= i whatever the lengths are."
)


@task.mistake("causal", BOTTOM_RIGHT)
class aligned_bottom_right(Parts):
    @staticmethod
    def keys(q, k, i, causal, block_q, block_k):
        return range(0, k.shape[-2], block_k)

    @staticmethod
    def hidden(i, rows, j, columns, q, k):
        return torch.arange(j, j + columns) > torch.arange(i, i + rows)[:, None] + k.shape[-2] - q.shape[-2]


@task.mistake("causal", BOTTOM_RIGHT)
class aligned_bottom_right_for_more_keys(aligned_bottom_right):
    @staticmethod
    def hidden(i, rows, j, columns, q, k):
        further = max(k.shape[-2] - q.shape[-2], 0)
        return torch.arange(j, j + columns) > torch.arange(i, i + rows)[:, None] + further


@task.mistake("causal", BOTTOM_RIGHT)
class aligned_bottom_right_and_skipped(aligned_bottom_right):
    @staticmethod
    def keys(q, k, i, causal, block_q, block_k):
        end = i + block_q + k.shape[-2] - q.shape[-2]
        return [j for j in range(0, k.shape[-2], block_k) if not causal or j < end]


WITHIN_THE_TILE = (
    "You compare places within the tile. The mask is about places in the whole sequence: add i, the place of the tile's first "
    "query, to its rows, and j, that of its first key, to its columns."
)


@wrong.step("hidden", "causal", WITHIN_THE_TILE)
def places_within_the_diagonal_tile(i, rows, j, columns, q, k):
    return (torch.arange(columns) > torch.arange(rows)[:, None]) & (j + columns > i)


@wrong.step("hidden", "causal", WITHIN_THE_TILE)
def places_within_the_tile(i, rows, j, columns, q, k):
    return torch.arange(columns) > torch.arange(rows)[:, None]


@wrong.step(
    "hidden",
    "causal",
    "Your mask hides the diagonal as well. Query i sees keys j <= i, itself included; query 0 would see nothing.",
)
def diagonal_hidden(i, rows, j, columns, q, k):
    return torch.arange(j, j + columns) >= torch.arange(i, i + rows)[:, None]


ONE_FURTHER = "Your mask lets each query see one key too many, j = i + 1. Query i sees keys j <= i."


@task.mistake("causal", ONE_FURTHER)
class one_key_further_in_all_tiles(Parts):
    @staticmethod
    def keys(q, k, i, causal, block_q, block_k):
        return range(0, k.shape[-2], block_k)

    @staticmethod
    def hidden(i, rows, j, columns, q, k):
        return one_key_further(i, rows, j, columns, q, k)


@wrong.step("hidden", "causal", ONE_FURTHER)
def one_key_further(i, rows, j, columns, q, k):
    return torch.arange(j, j + columns) > torch.arange(i, i + rows)[:, None] + 1


@wrong.step(
    "keys",
    "causal",
    "You leave out a tile of keys that the last query of the block still sees: the one that begins with that query's "
    "own key. The block's last query is i + block_q - 1, and it sees key i + block_q - 1.",
)
def skipped_one_too_early(q, k, i, causal, block_q, block_k):
    tiles = range(0, k.shape[-2], block_k)
    return [j for j in tiles if not causal or j == 0 or j < i + block_q - 1]


@wrong.step(
    "keys",
    "causal",
    "You end the loop over the keys at the tile that begins where the block of queries does (j >= i). That tile holds the "
    "diagonal, keys that these queries see: end it behind the last query, at i + block_q.",
)
def diagonal_tile_left_out(q, k, i, causal, block_q, block_k):
    return [j for j in range(0, k.shape[-2], block_k) if not causal or j < i]


@wrong.step(
    "hidden_score",
    "causal",
    "You set the hidden scores to 0, and exp(0 - m) is not 0. Set them to -inf before the maximum and the exp.",
)
def masked_to_zero():
    return 0.0


@wrong.step(
    "hidden_score",
    "extremes",
    "You set the hidden scores to a number such as -1e4. A row whose scores are all below it sees the hidden keys "
    "alone. Set them to -inf.",
)
def masked_to_a_number():
    return -1e4


@wrong.step(
    "keys",
    "causal",
    "You skip the tiles whose first key lies behind the first query of the block. Later queries of the block may see "
    "them: skip a tile when its first key lies behind the last query.",
)
def skipped_by_first_query(q, k, i, causal, block_q, block_k):
    return [j for j in range(0, k.shape[-2], block_k) if not causal or j <= i]


@wrong.step(
    "step",
    "causal",
    "A row of a tile of which nothing is seen gives nan: its own maximum is -inf, and -inf - -inf is nan, in a "
    "softmax too. Use the running maximum, which is finite from key 0 on (each query sees it), or a tile's logsumexp "
    "with masked weights.",
)
def hidden_row_is_nan(m, total, acc, s, v_j):
    here = s.amax(-1, keepdim=True)
    new, p = torch.maximum(m, here), torch.exp(s - here)
    old, weight = torch.exp(m - new), torch.exp(here - new)
    return new, old * total + weight * p.sum(-1, keepdim=True), old * acc + weight * (p @ v_j)


BEFORE_THE_MASK = (
    "Forward takes the maximum before it masks. A hidden score far above those that a row sees makes every exp(s - m) of "
    "the row 0, and the row ends as 0 / 0: set the hidden scores to -inf first."
)


@wrong.forward("extremes", BEFORE_THE_MASK)
def maximum_before_the_mask(q, k, v, causal, block_q, block_k):
    seen = {}

    def product(q_i, k_j, scale, dtype):
        seen["s"] = Parts.product(q_i, k_j, scale, dtype)
        return seen["s"]

    def maximum(m, s):
        return Parts.maximum(m, seen["s"])

    return changed(Parts, product=product, maximum=maximum).forward(q, k, v, causal, block_q, block_k)


@task.mistake("extremes", BEFORE_THE_MASK)
class masked_after_the_exp(Parts):
    @staticmethod
    def forward(q, k, v, causal, block_q, block_k):
        return maximum_before_the_mask(q, k, v, causal, block_q, block_k)

    @staticmethod
    def weights(q_i, k_j, i, j, causal, scale, q, k, lse_i):
        p = Parts.weights(q_i, k_j, i, j, False, scale, q, k, lse_i)
        return p.masked_fill(Parts.hidden(i, p.shape[-2], j, p.shape[-1], q, k), 0) if causal else p


MASKED_BY_A_PRODUCT = (
    "In backward you mask after the exp, by a product with 0 or False. For a hidden key exp(S - lse) may be "
    "infinite, and infinity times 0 is nan. Set the scores to -inf before the exp, as in forward, or choose with "
    "torch.where."
)


@wrong.backward("extremes", MASKED_BY_A_PRODUCT)
def masked_by_a_product_in_all_tiles(ctx, g):
    def keys(q, k, i, causal, block_q, block_k):
        return range(0, k.shape[-2], block_k)

    return changed(Parts, keys=keys, weights=masked_by_a_product).backward(ctx, g)


@wrong.step("weights", "extremes", MASKED_BY_A_PRODUCT)
def masked_by_a_product(q_i, k_j, i, j, causal, scale, q, k, lse_i):
    p = Parts.weights(q_i, k_j, i, j, False, scale, q, k, lse_i)
    return p * ~Parts.hidden(i, p.shape[-2], j, p.shape[-1], q, k) if causal else p


# --- dtypes -----------------------------------------------------------------------------------------------------------


@wrong.step(
    "sums",
    "extremes",
    "You add up the gradients in float16 or bfloat16. Each tile adds to them, and a sum in bfloat16 has 8 bits: "
    "small parts are lost. Accumulate in float32, and convert once at the end.",
)
def gradients_added_in_halves(dtype, wide):
    return dtype


@wrong.backward(
    "extremes",
    "You add up dk and dv in float16 or bfloat16 (torch.zeros_like(k) has the dtype of k). Each block of queries adds to "
    "them, and in bfloat16 small parts are lost. Accumulate in float32, as you do dq, and convert at the end.",
)
def dk_and_dv_added_in_halves(ctx, g):
    wanted = iter((True, False, False))  # q, k, v

    def sums(dtype, wide):
        return wide if next(wanted) else dtype

    return changed(Parts, sums=sums).backward(ctx, g)


@wrong.backward(
    "extremes",
    "You add up dk in float16 or bfloat16 (torch.zeros_like(k) has the dtype of k), and dv not. Each block of queries adds "
    "to both. Accumulate in float32, and convert at the end.",
)
def dk_added_in_halves(ctx, g):
    wanted = iter((True, False, True))  # q, k, v

    def sums(dtype, wide):
        return wide if next(wanted) else dtype

    return changed(Parts, sums=sums).backward(ctx, g)


@wrong.backward(
    "extremes",
    "You compute D = rowsum(dO * O) in float16 or bfloat16. dP - D is a difference of numbers that may be close, so the "
    "rounding of D counts: convert dO and O to float32 before you multiply them.",
)
def d_in_halves(ctx, g):
    def delta(g_i, o_i):
        return (g_i.to(g.dtype) * o_i.to(g.dtype)).sum(-1, keepdim=True).to(g_i.dtype)

    return changed(Parts, delta=delta).backward(ctx, g)


DP_IN_HALVES = (
    "You multiply dO and v in float16 or bfloat16. dP - D is a difference of numbers that may be close, so the rounding "
    "of dP counts: convert both tiles to float32 before the product."
)


def _rounding_dp(dtype: torch.dtype) -> type[Parts]:
    def through_values(g_i, v_j):
        return (g_i.to(dtype) @ v_j.to(dtype).mT).to(g_i.dtype)

    return changed(Parts, through_values=through_values)


@wrong.backward("extremes", DP_IN_HALVES)
def dp_in_halves(ctx, g):
    return _rounding_dp(g.dtype).backward(ctx, g)


@wrong.backward("extremes", DP_IN_HALVES)
def dp_in_halves_and_d_of_it(ctx, g):
    return swept(_rounding_dp(g.dtype), ctx, g)


@wrong.backward(
    "extremes",
    "You round dq and dk to the dtype of the input, and multiply by the scale after that. In float16 the sum without the "
    "scale may be infinite where the gradient is not: scale first, in float32, and round at the end.",
)
def gradients_scaled_after_rounding(ctx, g):
    dq, dk, dv = changed(Parts, gradients=gradients_not_scaled).backward(ctx, g)
    scale = dq.shape[-1] ** -0.5
    return scale * dq, scale * dk, dv


LSE_IN_FLOAT32 = (
    "You keep lse in float32, for float64 inputs too, so P = exp(S - lse) has seven digits in backward, and the gradients "
    "too. lse has the dtype in which you compute: torch.promote_types(q.dtype, torch.float32)."
)


@wrong.step("save", "gradient", LSE_IN_FLOAT32)
def lse_in_float32(ctx, q, k, v, o, lse):
    ctx.save_for_backward(q, k, v, o, lse.float())


@task.mistake("gradient", LSE_IN_FLOAT32)
class lse_in_float32_and_d_of_it(Parts):
    @staticmethod
    def save(ctx, q, k, v, o, lse):
        lse_in_float32(ctx, q, k, v, o, lse)

    @staticmethod
    def backward(ctx, g):
        return swept(Parts, ctx, g)


@wrong.step(
    "save",
    "extremes",
    "You save lse in the dtype of the input. In bfloat16 numbers near 90 lie half a unit apart, so P = exp(S - lse) "
    "is off by up to a quarter. Keep lse in float32.",
)
def lse_in_halves(ctx, q, k, v, o, lse):
    ctx.save_for_backward(q, k, v, o, lse.to(q.dtype))


# --- Memory -----------------------------------------------------------------------------------------------------------


@task.mistake(
    "memory",
    "Values and gradients are right, but the N_q x N_k matrix P stays in memory until backward. Save q, k, v, o and "
    "lse, and compute each tile of P again from them: P = exp(S - lse).",
)
class saves_p(Parts):
    forward = staticmethod(whole_scores)

    @staticmethod
    def save(ctx, q, k, v, o, lse):
        wide = Parts.wide(q.dtype)
        s = Parts.scores(q.to(wide), k.to(wide), 0, 0, ctx.rest[0], Parts.scale(q, v), q, k)
        ctx.save_for_backward(q, k, v, torch.exp(s - lse))

    @staticmethod
    def backward(ctx, g):
        *qkv, p = ctx.saved_tensors
        (q, k, v), g = (t.to(p.dtype) for t in qkv), g.to(p.dtype)
        dp = g @ v.mT
        ds = Parts.scale(q, v) * p * (dp - (p * dp).sum(-1, keepdim=True))
        return tuple(d.to(t.dtype) for d, t in zip((ds @ k, ds.mT @ q, p.mT @ g), qkv, strict=True))


@wrong.backward(
    "memory",
    "Forward works in tiles, but backward computes all of P at once, N_q x N_k numbers. Compute it tile by tile "
    "there as well.",
)
def scores_in_backward(ctx, g):
    ctx.rest = (ctx.rest[0], 10**6, 10**6)
    return Parts.backward(ctx, g)


QUERIES_NOT_CUT = (
    "Your numbers are right, but the queries do not come in blocks: each tile has the scores of all of them with a block "
    "of keys, N_q x block_k. Cut the queries into blocks of block_q as well."
)


@wrong.forward("memory", QUERIES_NOT_CUT)
def queries_not_cut(q, k, v, causal, block_q, block_k):
    return Parts.forward(q, k, v, causal, q.shape[-2], block_k)


@task.mistake("memory", QUERIES_NOT_CUT)
def queries_not_cut_in_both(q, k, v, causal, block_q, block_k):
    return Parts.apply(q, k, v, causal, q.shape[-2], block_k)


@wrong.backward(
    "memory",
    "Backward cuts the keys into blocks of block_q, as it does the queries: its tiles have block_q x block_q scores. The "
    "keys come in blocks of block_k there as well.",
)
def block_q_for_the_keys_in_backward(ctx, g):
    causal, block_q, _ = ctx.rest
    ctx.rest = (causal, block_q, block_q)
    return Parts.backward(ctx, g)


@wrong.backward(
    "memory",
    "Backward collects something of every tile in a list, P or dS or what each adds to a gradient. All together grow "
    "with the product of the lengths: add each tile's share to dq, dk and dv, and let it go.",
)
def tiles_collected_in_backward(ctx, g):
    held = []

    def through_softmax(p, dp, delta):
        held.append(p)
        return Parts.through_softmax(p, dp, delta)

    return changed(Parts, through_softmax=through_softmax).backward(ctx, g)


@wrong.step(
    "hidden",
    "memory",
    "You make the causal mask as a whole, N_q x N_k, and cut tiles out of it. Compare the places of one tile: two "
    "torch.arange.",
)
def whole_mask(i, rows, j, columns, q, k):
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
    return mask[i : i + rows, j : j + columns]


@wrong.step(
    "save",
    "memory",
    "You keep the tiles of P for backward (in a list, or on ctx). Together they are the N_q x N_k matrix: compute "
    "each again from q, k and lse.",
)
def tiles_kept_for_backward(ctx, q, k, v, o, lse):
    causal, block_q, block_k = ctx.rest
    wide, scale = Parts.wide(q.dtype), Parts.scale(q, v)
    ctx.save_for_backward(q, k, v, o, lse)
    ctx.tiles = []
    for i in range(0, q.shape[-2], block_q):
        q_i, lse_i = (t[..., i : i + block_q, :].to(wide) for t in (q, lse))
        for j in Parts.keys(q, k, i, causal, block_q, block_k):
            k_j = k[..., j : j + block_k, :].to(wide)
            ctx.tiles.append(Parts.weights(q_i, k_j, i, j, causal, scale, q, k, lse_i))


@wrong.step(
    "save",
    "memory",
    "You keep more for backward than q, k, v, o and one number a row: the maximum and the sum by themselves, or "
    "numbers that backward can find again (D, a mask, scaled copies). m + log(sum) is enough.",
)
def saves_max_and_sum(ctx, q, k, v, o, lse):
    ctx.save_for_backward(q, k, v, o, lse, lse.clone(), lse.clone())


@wrong.step(
    "save",
    "memory",
    "For float16 and bfloat16 you keep copies in float32, twice the memory. Save the tensors as they came, and "
    "convert tiles in backward.",
)
def saves_float32_copies(ctx, q, k, v, o, lse):
    wide = Parts.wide(q.dtype)
    ctx.save_for_backward(q.to(wide), k.to(wide), v.to(wide), o, lse)


@wrong.step(
    "save",
    "memory",
    "For float16 and bfloat16 you keep the output in float32 for backward, a copy besides the one that you return. Save "
    "the output as it is returned, and convert its tiles in backward.",
)
def saves_float32_output(ctx, q, k, v, o, lse):
    ctx.save_for_backward(q, k, v, o.to(lse.dtype), lse)


@wrong.step(
    "save",
    "memory",
    "You keep clones of q, k and v: three tensors more than are needed. ctx.save_for_backward keeps the tensors "
    "themselves, and torch raises where one is changed in place before backward.",
)
def saves_clones(ctx, q, k, v, o, lse):
    ctx.save_for_backward(q.clone(), k.clone(), v.clone(), o, lse)


@task.mistake(
    "memory",
    "You keep lse repeated, block_k times for each query. Keep one number a row, in a last dimension of 1: S - lse "
    "repeats it without a copy.",
)
class saves_lse_repeated(Parts):
    @staticmethod
    def save(ctx, q, k, v, o, lse):
        ctx.save_for_backward(q, k, v, o, lse.expand(*q.shape[:-1], ctx.rest[2]).clone())

    @staticmethod
    def saved(ctx):
        *rest, lse = ctx.saved_tensors
        return *rest, lse[..., :1]


@wrong.backward(
    "gradient",
    "Your backward asks torch.autograd for the gradient, of a tile or of all of them (of which autograd then keeps "
    "the whole matrix, and more). The task is to write the vector-Jacobian product yourself.",
)
def autograd_in_backward(ctx, g):
    q, k, v, *_ = ctx.saved_tensors
    with torch.enable_grad():
        again = [t.detach().requires_grad_() for t in (q, k, v)]
        return torch.autograd.grad(Parts.forward(*again, *ctx.rest)[0], again, g)


# --- What belongs to others -------------------------------------------------------------------------------------------


@task.mistake(
    "contract",
    "You keep tensors as attributes of ctx, where torch does not watch them: when one is changed in place before backward, "
    "the gradient is silently wrong. Use ctx.save_for_backward.",
)
class kept_as_attribute(Parts):
    @staticmethod
    def save(ctx, q, k, v, o, lse):
        ctx.kept = q, k, v, o, lse

    @staticmethod
    def saved(ctx):
        return ctx.kept


@wrong.step(
    "save",
    "contract",
    "torch does not watch what you keep of q, k and v: .data has no version, and attributes of ctx are not looked at. When "
    "one is changed in place before backward, the gradient is silently wrong: save the tensors themselves, "
    "ctx.save_for_backward(q, k, v, o, lse).",
)
def saves_data(ctx, q, k, v, o, lse):
    ctx.save_for_backward(q.data, k.data, v.data, o, lse)


@task.mistake(
    "contract",
    "You keep causal or the block sizes outside ctx (on the class, or in a global): a second call puts its own "
    "there, and the first one's backward goes by them. Keep what is not a tensor on ctx.",
)
class flags_outside_ctx(Parts):
    @staticmethod
    def save(ctx, q, k, v, o, lse):
        ctx.save_for_backward(q, k, v, o, lse)
        OUTSIDE["rest"] = tuple(ctx.rest)

    @staticmethod
    def saved(ctx):
        ctx.rest = OUTSIDE["rest"]
        return ctx.saved_tensors


@task.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Parts):
    @staticmethod
    def save(ctx, q, k, v, o, lse):
        ctx.save_for_backward(q, k, v, o)
        OUTSIDE["lse"] = (lse,)

    @staticmethod
    def saved(ctx):
        return *ctx.saved_tensors, *OUTSIDE["lse"]


@wrong.backward("contract", WRITES_INTO_UPSTREAM)
def writes_into_upstream(ctx, g):
    grads = Parts.backward(ctx, g)
    g.mul_(ctx.saved_tensors[3])
    return grads


@wrong.step(
    "delta",
    "contract",
    "Backward multiplies the saved output in place (o.mul_, or after a .to that made no copy). It is the caller's, and a "
    "second backward needs it too: D = (dO * O).sum(-1, keepdim=True).",
)
def output_multiplied_in_place(g_i, o_i):
    return o_i.mul_(g_i).sum(-1, keepdim=True)
