"""Sigmoid: made from exp or expm1 alone, finite for every number."""

import torch
from torch import Tensor
from torch.autograd import Function

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.aspects import GRADIENT, VALUE, contract, gradient, second_order, value
from graders.judge.task import BRAIN, DOUBLE, HALF, SINGLE, Check, Draw, Task, operators
from graders.judge.wording import KEPT_AS_ATTRIBUTE, KEPT_OUTSIDE, NO_FUNCTION, WRITES_INTO_UPSTREAM
from graders.judge.wrong import Wrong
from graders.sets.sigmoid.common import SECOND, sizes, wide_inputs

PLACE = 1
GLOBAL: dict[str, Tensor] = {}  # where the mistake `kept_outside_ctx` keeps things


# Every operator of torch that computes the sigmoid, or a transcendental function other than exp and expm1.
_NAMES = """
    sigmoid log_sigmoid_forward log_sigmoid_backward logit softplus silu mish gelu glu elu celu selu tanh softmax _softmax
    log_softmax _log_softmax _safe_softmax _masked_softmax _softmax_backward_data _log_softmax_backward_data
    logsumexp logaddexp logaddexp2 logcumsumexp _logcumsumexp binary_cross_entropy binary_cross_entropy_with_logits
    soft_margin_loss multilabel_margin_loss poisson_nll_loss
    exp2 special_exp2 log log2 log10 log1p xlogy special_xlog1py special_entr pow.Scalar pow.Tensor_Tensor float_power
    sin cos tan sinh cosh asin acos atan atan2 asinh acosh atanh sinc special_sinc hypot angle polar
    erf erfc erfinv special_erfcx special_ndtr special_log_ndtr special_ndtri lgamma digamma polygamma mvlgamma
    special_i0e special_i1 special_i1e i0 linalg_matrix_exp matrix_exp
    _foreach_sigmoid _foreach_tanh _foreach_log _foreach_log2 _foreach_log10 _foreach_log1p _foreach_lgamma
    _foreach_sin _foreach_cos _foreach_tan _foreach_asin _foreach_acos _foreach_atan _foreach_sinh _foreach_cosh
    _foreach_erf _foreach_erfc _foreach_pow.List _foreach_pow.ScalarAndTensor ldexp logspace _standard_gamma_grad
    special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
    special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_bessel_j0 special_bessel_j1
    special_bessel_y0 special_bessel_y1 special_spherical_bessel_j0 special_airy_ai special_zeta
    igamma igammac _ctc_loss _sparse_softmax _sparse_log_softmax _sparse_softmax_backward_data
    _sparse_log_softmax_backward_data
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_efficient_attention _scaled_dot_product_attention_math _thnn_fused_lstm_cell _thnn_fused_gru_cell
"""


DENIED = (*operators(_NAMES), "aten::pow_.Tensor", "aten::_foreach_pow_.List")


FORBIDS = look.Forbids(
    "Sigmoid is asked for from exp or expm1 alone, in backward too: no built-in sigmoid, no other transcendental function, no other "
    "library, no math or powers of Python's own numbers, and in backward no torch.autograd or torch.func.",
    names="""
        sigmoid sigmoid_ expit logsigmoid logit softplus silu mish gelu glu elu celu selu tanh tanh_ softmax softmin log_softmax
        logsumexp logaddexp logaddexp2 logcumsumexp Sigmoid LogSigmoid Softplus SiLU Mish GELU GLU ELU CELU SELU Tanh Softmax
        exp2 log log2 log10 log1p xlogy xlog1py entr float_power sin cos tan sinh cosh asin acos atan atan2 asinh acosh atanh
        arcsin arccos arctan arctan2 arcsinh arccosh arctanh sinc hypot erf erfc erfcx erfinv ndtr log_ndtr ndtri
        lgamma gammaln digamma polygamma gammainc gammaincc igamma igammac ctc_loss CTCLoss i0 i0e i1 i1e matrix_exp scaled_dot_product_attention binary_cross_entropy_with_logits
    """,
    foreign=True,
    numbers=True,
    backward=True,
)


EDGES = {  # around where exp of x, and its square, overflow
    HALF: [-1000.0, -17.0, -11.5, -6.0, 0.0, 6.0, 11.5, 17.0, 1000.0],
    BRAIN: [-1000.0, -104.0, -89.0, -45.0, 0.0, 45.0, 89.0, 104.0, 1000.0],
    SINGLE: [-1000.0, -104.0, -88.8, -45.0, -20.0, 0.0, 20.0, 45.0, 88.8, 104.0, 1000.0],
    DOUBLE: [-1000.0, -750.0, -710.0, -360.0, -40.0, 0.0, 40.0, 360.0, 710.0, 750.0, 1000.0],
}


def _flanks(draw: Draw, order: int = 1) -> Case:
    """Return a case where the sigmoid is nearly flat and its derivatives are small, but not 0."""
    return draw.case("|x| from 4 to 16", draw.sides(12, away=4, reach=16), order=order)


def _edges(draw: Draw) -> list[Case]:
    """Return a case for each dtype, with numbers up to +-1000."""
    return [
        draw.case(
            f"{str(dtype).removeprefix('torch.')} far from 0",
            torch.tensor(numbers, dtype=dtype),
            order=2,
            watch=("trace",) if dtype == DOUBLE else (),
            deny=DENIED if dtype == DOUBLE else (),
        )
        for dtype, numbers in EDGES.items()
    ]


task = Task(
    "Sigmoid",
    "Sigmoid.apply(x)",
    reference=lambda x: torch.sigmoid(x),
    checks=(
        value(
            1,
            about="the output equals torch.sigmoid in every dtype, shape and layout",
            cases=lambda d: [
                d.case("every size", sizes(d, 1.6, 12), order=0),
                *d.forms(wide_inputs(d), order=0),
                *d.lopsided(lambda x: (x,), 5, order=0),
            ],
        ),
        gradient(
            2,
            about="the gradient equals torch's for upstream gradients of any size, and gradcheck passes",
            why="Backward returns the upstream gradient times the derivative y (1 - y), one number for each element of x.",
            cases=lambda d: [
                d.case("both signs", wide_inputs(d)(8)),
                d.case("every size", sizes(d, 1.6, 12)),
                _flanks(d),
                *d.forms(wide_inputs(d)),
                *d.lopsided(lambda x: (x,), 5),
            ],
            gradcheck=lambda d: (wide_inputs(d)(6),),
        ),
        Check(
            "extremes",
            2,
            about="up to +-1000, in every dtype, value, first and second derivative are finite and right",
            why="One nan in one element ends a training run.",
            cases=_edges,
            looks=(*VALUE, *SECOND, look.allowed),
        ),
        second_order(
            2,
            about="the gradient can be differentiated again, and the result is right",
            cases=lambda d: [
                d.case("both signs", wide_inputs(d)(8), order=2),
                _flanks(d, order=2),
                d.case("a matrix", wide_inputs(d)(2, 3), order=2),
                *d.lopsided(lambda x: (x,), 5, order=2),
            ],
            looks=SECOND,
            gradcheck=lambda d: (wide_inputs(d)(3),),
        ),
        contract(
            1,
            cases=lambda d: [
                d.case("both signs", wide_inputs(d)(6), watch=("state", "overwrite")),
                d.case("far from 0", torch.tensor(EDGES[DOUBLE], dtype=DOUBLE)),
            ],
            looks=look.CONTRACT[:-1],  # what is allowed has a check of its own
        ),
        Check(
            "allowed",
            1,
            about="exp and expm1 with arithmetic, comparison, clamp and the like, in backward too",
            why="The task is to make the sigmoid, not to call it.",
            cases=lambda d: [d.case("both signs", wide_inputs(d)(6), watch=("trace",), deny=DENIED)],
            looks=(*VALUE, *GRADIENT, look.allowed),
        ),
    ),
    forbids=FORBIDS,
)

# --- Right ways -------------------------------------------------------------------------------------------------------


@task.solution
class SigmoidNew(Function):
    """exp of a number that is never positive: prefer it, it cannot overflow in any dtype."""

    @staticmethod
    def forward(x):
        e = torch.exp(-x.abs())
        return torch.where(x >= 0, 1 / (1 + e), e / (1 + e))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * (1 - y)


@task.solution
class SigmoidPlain(Function):
    """The formula itself in the old style: 1 / inf is 0, and the saved output never sees the infinity. The shortest."""

    @staticmethod
    def forward(ctx, x):
        y = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * (y - y * y)


@task.solution
class SigmoidByExpm1(SigmoidNew):
    """(1 + tanh(x / 2)) / 2, with tanh from expm1: one formula for both signs, without torch.where."""

    @staticmethod
    def forward(x):
        t = torch.expm1(-x.abs())
        return 0.5 - 0.5 * torch.sign(x) * t / (t + 2)


# --- Further right ways, which no check may refuse --------------------------------------------------------------------


@task.solution
class SigmoidRecomputed(Function):
    """Saves x; the derivative is even, so one formula serves both signs."""

    @staticmethod
    def forward(x):
        e = torch.exp(-x.abs())
        return torch.where(x < 0, e, torch.ones_like(x)) / (1 + e)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        e = torch.exp(-x.abs())
        return g * e / (1 + e) ** 2


@task.solution
class SigmoidOfItself(SigmoidRecomputed):
    """Backward applies the Function again, to both signs of x."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * SigmoidOfItself.apply(x) * SigmoidOfItself.apply(-x)


@task.solution
class SigmoidWide(Function):
    """The halves in float32 inside."""

    @staticmethod
    def forward(ctx, x):
        wide = x.float() if x.element_size() < 4 else x
        e = torch.exp(-wide.abs())
        y = (torch.where(wide > 0, torch.ones_like(e), e) / (1 + e)).to(x.dtype)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y) * y


# --- Mistakes ---------------------------------------------------------------------------------------------------------

# Those that a test file is run against (sigmoid_tests.py) are classes: it gets their text.

wrong = Wrong(task, of=SigmoidNew)
wrong.habits(
    "float32_inside float32_and_back nothing_returned not_differentiable_twice",
    upstream_unchanged="Your gradient is the upstream gradient unchanged; multiply it by y (1 - y).",
    sign_flipped="Your gradient has the wrong sign: it is g y (1 - y), not g y (y - 1).",
    detached="Your first derivative is right and your second is zero: detach (or .data) cuts the saved output out of "
    "the graph of the gradient. Use it as it is.",
    writes_into_input="Your forward works in place (neg_, exp_, clamp_, ...) on x: the caller's tensor is overwritten. "
    "Return a new tensor.",
)


@task.mistake("value", "The exponent has the wrong sign: 1 / (1 + exp(x)) is sigmoid(-x). It is 1 / (1 + exp(-x)).")
class sign_in_exponent(SigmoidNew):
    @staticmethod
    def forward(x):
        e = torch.exp(-x.abs())
        return torch.where(x <= 0, 1 / (1 + e), e / (1 + e))


@task.mistake(
    "value",
    "Where x < 0 your output is sigmoid(|x|), or where x > 0 it is sigmoid(-|x|): after exp(-|x|) the two signs need two "
    "formulas. Choose between 1 / (1 + e) and e / (1 + e) with torch.where.",
)
class branch_forgotten(SigmoidNew):
    @staticmethod
    def forward(x):
        return 1 / (1 + torch.exp(-x.abs()))


@wrong.forward(
    "value",
    "You compute the half precisions in float32, which is sound, and do not cast back: their output has to be float16 or "
    "bfloat16 again.",
)
def halves_left_wide(x):
    x = x.float() if x.element_size() < 4 else x
    e = torch.exp(-x.abs())
    return torch.where(x >= 0, 1 / (1 + e), e / (1 + e))


@task.mistake(
    "value",
    "For half-precision input your output is float32: a tensor made by torch.ones(shape), torch.zeros(shape) or "
    "torch.tensor([...]) is float32 and widens what it meets. Use torch.ones_like(x), or plain numbers.",
)
class ones_in_float32(SigmoidNew):
    @staticmethod
    def forward(x):
        e, ones = torch.exp(-x.abs()), torch.ones(x.shape)
        return torch.where(x >= 0, ones, e) / (ones + e)


@task.mistake(
    "value",
    "Your output is flat: it has one dimension whatever the input has. Give it the shape of x, also for a 0-d x.",
)
class flattened(SigmoidNew):
    @staticmethod
    def forward(x):
        x = x.reshape(-1)
        e = torch.exp(-x.abs())
        return torch.where(x >= 0, 1 / (1 + e), e / (1 + e))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        e = torch.exp(-x.abs())
        return g.reshape(x.shape) * e / (1 + e) ** 2


@task.mistake(
    "extremes",
    "For large x your output is nan: exp(x) overflows and inf / inf is nan. Take the exponential of a number that is never "
    "positive, such as -|x|.",
)
class exponentials_overflow(SigmoidNew):
    @staticmethod
    def forward(x):
        return torch.exp(x) / (1 + torch.exp(x))


@wrong.forward(
    "extremes",
    "You replace nan by 0. The nan came from inf / inf at large x, where the sigmoid is 1: avoid the overflow instead, by an "
    "exponential of a number that is never positive.",
)
def nan_replaced(x):
    return torch.nan_to_num(torch.exp(x) / (1 + torch.exp(x)))


@wrong.forward(
    "extremes",
    "You clamp x so tightly that the output shows it: at x = -1000 it is exp(-10) or so, where it should be 0 to all digits. "
    "Where exp has an argument that is never positive, no clamp is needed.",
)
def clamped_too_early(x):
    return 1 / (1 + torch.exp(-x.clamp(-10, 10)))


@wrong.forward(
    "extremes",
    "Your clamp keeps exp finite in float32 and float64; in float16 exp overflows at 11 already, and inf / inf is nan. Take "
    "the exponential of a number that is never positive, and every dtype is safe.",
)
def clamped_too_late(x):
    e = torch.exp(x.clamp(-80, 80))
    return e / (1 + e)


@task.mistake(
    "extremes",
    "Your output is right everywhere and your gradient is nan at large negative x: exp(-x) / (1 + exp(-x))^2 is inf / inf "
    "there. Save the output and use y (1 - y), or take exp(-|x|).",
)
class overflow_in_backward(SigmoidNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.exp(-x) / (1 + torch.exp(-x)) ** 2


@wrong.backward(
    "extremes",
    "Your first derivative is finite and your second is nan at large |x|: torch.where picks the right branch, but "
    "differentiating it multiplies the other branch's inf by 0. Keep the exponent of both branches from being positive.",
    saves=lambda x, y: (x,),
)
def where_poisons(x, g):
    y = torch.where(x >= 0, 1 / (1 + torch.exp(-x)), torch.exp(x) / (1 + torch.exp(x)))
    return g * y * (1 - y)


@task.mistake("gradient", "Your gradient is y (1 - y): the upstream gradient is missing. Multiply by it.")
class upstream_ignored(SigmoidNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * (1 - y)


@wrong.backward("gradient", "Your gradient is g y: the factor 1 - y is missing.")
def value_for_derivative(y, g):
    return g * y


@task.mistake("gradient", "Your gradient is g (1 - y^2), the one of tanh. For the sigmoid it is g y (1 - y).")
class tanh_derivative(SigmoidNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


@wrong.backward(
    "gradient",
    "Your backward takes the sigmoid of the saved output once more: the output is sigmoid(x) already, so use y (1 - y) "
    "as it is.",
)
def sigmoid_twice(y, g):
    y = 1 / (1 + torch.exp(-y))
    return g * y * (1 - y)


@wrong.backward("gradient", "Your gradient is g y - y: parentheses are missing. It is g * y * (1 - y).")
def parentheses_missing(y, g):
    return g * y * 1 - y


@wrong.saves(
    "gradient", "Your gradient is g x (1 - x): the formula y (1 - y) takes the output, and you saved the input."
)
def input_for_output(x, y):
    return (x,)


@task.mistake(
    "gradient",
    "Where x < 0 your gradient has the wrong sign. The derivative e / (1 + e)^2 with e = exp(-|x|) is the same for x and -x: "
    "the sigmoid rises everywhere.",
)
class sign_of_the_branch(SigmoidRecomputed):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        e = torch.exp(-x.abs())
        slope = e / (1 + e) ** 2
        return g * torch.where(x >= 0, slope, -slope)


@task.mistake(
    "second_order",
    "Your first derivative is right and your second is zero: what you save (y (1 - y), an exponential, a copy of y) was "
    "computed in forward, so torch takes it for a constant. Save the output itself, or x, and compute in backward.",
)
class saves_derivative(Function):
    @staticmethod
    def forward(ctx, x):
        e = torch.exp(-x.abs())
        y = torch.where(x >= 0, 1 / (1 + e), e / (1 + e))
        ctx.save_for_backward(y * (1 - y))
        return y

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        return g * d


@wrong.backward(
    "second_order",
    "Only half of your second derivative is there: one of the factors y and 1 - y is detached, or was computed in forward "
    "and saved, so torch takes it for a constant. Both have to come from the saved output, or from x, in backward.",
)
def half_detached(y, g):
    return g * y * (1 - y.detach())


@task.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(SigmoidNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g.mul_(y * (1 - y))


@task.mistake(
    "contract",
    "Your forward changes x in place on the way (abs_, neg_, clamp_): the output is right, and the caller's tensor is no "
    "longer what it was. Make a new tensor.",
)
class input_changed_on_the_way(SigmoidNew):
    @staticmethod
    def forward(x):
        positive = x >= 0
        e = torch.exp(x.abs_().neg_())
        return torch.where(positive, 1 / (1 + e), e / (1 + e))


@wrong.backward(
    "contract",
    "Your backward works in place on the saved output. That tensor is the one your forward returned: the caller's "
    "activations change, and a second backward is wrong. Make a new tensor.",
)
def writes_into_saved(y, g):
    return y.mul_(1 - y).mul_(g)


@task.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(SigmoidNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        (ctx.x,) = inputs

    @staticmethod
    def backward(ctx, g):
        e = torch.exp(-ctx.x.abs())
        return g * e / (1 + e) ** 2


@task.mistake(
    "contract",
    "You keep the output as an attribute of ctx: torch does not watch it there (changed in place, it gives a silently wrong "
    "gradient), and the reference cycle holds the graph in memory. Use ctx.save_for_backward.",
)
class output_as_attribute(SigmoidNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.y = output

    @staticmethod
    def backward(ctx, g):
        return g * ctx.y * (1 - ctx.y)


@task.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Function):
    @staticmethod
    def forward(ctx, x):
        GLOBAL["y"] = 1 / (1 + torch.exp(-x))
        return GLOBAL["y"].clone()

    @staticmethod
    def backward(ctx, g):
        return g * GLOBAL["y"] * (1 - GLOBAL["y"])


@wrong.forward(
    "allowed",
    "Your forward calls torch.sigmoid. The task is to make it from exp or expm1: 1 / (1 + exp(-x)), rearranged.",
)
def builtin_sigmoid(x):
    return torch.sigmoid(x)


@wrong.backward(
    "allowed",
    "Your forward is your own and your backward calls torch.sigmoid. Save the output: y (1 - y) needs nothing else.",
    saves=lambda x, y: (x,),
)
def builtin_in_backward(x, g):
    y = torch.sigmoid(x)
    return g * y * (1 - y)


@task.mistake(
    "gradient",
    "Your backward lets torch.autograd differentiate forward. The task is to write the vector-Jacobian product yourself: "
    "g y (1 - y).",
)
class autograd_in_backward(SigmoidRecomputed):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
            y = SigmoidRecomputed.forward(x)
            return torch.autograd.grad(y, x, g, create_graph=True)[0]


@task.mistake("gradient", NO_FUNCTION)
def no_function(x):
    return 1 / (1 + torch.exp(-x))


@wrong.forward(
    "value",
    "For a half-precision input without dimensions your output is float32: torch.tensor(1.0) is float32 and wins. Write the "
    "number 1.0, which takes the dtype of x.",
)
def constant_in_float32(x):
    return torch.tensor(1.0) / (torch.tensor(1.0) + torch.exp(-x))


@wrong.forward(
    "contract",
    "Your forward clamps x in place (clamp_): numbers far from 0 change in the caller's tensor. Use clamp, which makes a new one.",
)
def clamps_input(x):
    return 1 / (1 + torch.exp(-x.clamp_(-80, 80)))
