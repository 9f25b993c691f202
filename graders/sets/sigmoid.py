"""Set 02: Sigmoid, SigmoidTests, Cube; and the chapter's Arctan."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from graders.inside.records import Case
from graders.judge import looks as look
from graders.judge.task import BRAIN, DOUBLE, HALF, SINGLE, Check, Draw, Task, operators
from graders.judge.testfile import FileCheck, FileMistake, FileTask, Wrong, source_of
from graders.judge.wording import (
    CUT_OFF,
    FLOAT32,
    FLOAT32_AND_BACK,
    KEPT_AS_ATTRIBUTE,
    KEPT_OUTSIDE,
    NO_FUNCTION,
    NOTHING_RETURNED,
    ONE_TOO_MANY,
    UPSTREAM_AVERAGED,
    UPSTREAM_SUMMED,
    WRITES_INTO_UPSTREAM,
    ZEROS_RETURNED,
)

GLOBAL: dict[str, Tensor] = {}  # where the mistake `kept_outside_ctx` keeps things

FORWARD = (*look.FORWARD[:-1], look.precise, look.value)
FIRST = (*look.FIRST[:-1], look.precise, look.gradient)
SECOND = (*FIRST, look.second_order)

# --- Sigmoid ----------------------------------------------------------------------------------------------------------

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
        lgamma gammaln digamma polygamma i0 i0e i1 i1e matrix_exp scaled_dot_product_attention binary_cross_entropy_with_logits
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


def _wide(draw: Draw):
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, reach=4.0, dtype=dtype)


def _sizes(draw: Draw, top: float, *shape: int) -> Tensor:
    """Numbers of both signs and of every size from 0.001 to 10 ** top."""
    return draw.sides(*shape, away=1, reach=1) * 10 ** draw.between(-3, top, *shape)


def _flanks(draw: Draw, order: int = 1) -> Case:
    """Where the sigmoid is nearly flat and its derivatives are small, but not 0."""
    return draw.case("|x| from 4 to 16", draw.sides(12, away=4, reach=16), order=order)


def _edges(draw: Draw) -> list[Case]:
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


sigmoid = Task(
    "Sigmoid",
    "Sigmoid.apply(x)",
    lambda x: torch.sigmoid(x),
    (
        Check(
            "value",
            1,
            "the output equals torch.sigmoid in every dtype, shape and layout",
            "Forward is what every later number rests on.",
            lambda d: [
                d.case("every size", _sizes(d, 1.6, 12), order=0),
                *d.forms(_wide(d), order=0),
            ],
            FORWARD,
        ),
        Check(
            "gradient",
            2,
            "the gradient equals torch's for upstream gradients of any size, and gradcheck passes",
            "Backward returns the upstream gradient times the derivative y (1 - y), one number for each element of x.",
            lambda d: [
                d.case("both signs", _wide(d)(8)),
                d.case("every size", _sizes(d, 1.6, 12)),
                _flanks(d),
                *d.forms(_wide(d)),
            ],
            FIRST,
            lambda d: (_wide(d)(6),),
        ),
        Check(
            "extremes",
            2,
            "up to +-1000, in every dtype, value, first and second derivative are finite and right",
            "One nan in one element ends a training run.",
            _edges,
            (*FORWARD, *SECOND, look.allowed),
        ),
        Check(
            "second_order",
            2,
            "the gradient can be differentiated again, and the result is right",
            "A Hessian, a gradient penalty or a physics loss differentiates your backward.",
            lambda d: [
                d.case("both signs", _wide(d)(8), order=2),
                _flanks(d, order=2),
                d.case("a matrix", _wide(d)(2, 3), order=2),
            ],
            SECOND,
            lambda d: (_wide(d)(3),),
            order=2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; backward's go through save_for_backward",
            "Tensors that your Function did not make belong to others.",
            lambda d: [
                d.case("both signs", _wide(d)(6), watch=("state", "overwrite")),
                d.case("far from 0", torch.tensor(EDGES[DOUBLE], dtype=DOUBLE)),
            ],
            look.CONTRACT[:-1],  # what is allowed has a check of its own
        ),
        Check(
            "allowed",
            1,
            "exp and expm1 with arithmetic, comparison, clamp and the like, in backward too",
            "The task is to make the sigmoid, not to call it.",
            lambda d: [d.case("both signs", _wide(d)(6), watch=("trace",), deny=DENIED)],
            (*FORWARD, *FIRST, look.allowed),
        ),
    ),
    forbids=FORBIDS,
)


@sigmoid.solution
class SigmoidNew(Function):
    """exp of a number that is never positive."""

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


@sigmoid.solution
class SigmoidPlain(Function):
    """The formula itself in the old style: 1 / inf is 0, and the saved output never sees the infinity."""

    @staticmethod
    def forward(ctx, x):
        y = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * (y - y * y)


@sigmoid.solution
class SigmoidByExpm1(SigmoidNew):
    """(1 + tanh(x / 2)) / 2, with tanh from expm1."""

    @staticmethod
    def forward(x):
        t = torch.expm1(-x.abs())
        return 0.5 - 0.5 * torch.sign(x) * t / (t + 2)


@sigmoid.solution
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


@sigmoid.solution
class SigmoidOfItself(SigmoidRecomputed):
    """Backward applies the Function again, to both signs of x."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * SigmoidOfItself.apply(x) * SigmoidOfItself.apply(-x)


@sigmoid.solution
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


@sigmoid.mistake("value", "The exponent has the wrong sign: 1 / (1 + exp(x)) is sigmoid(-x). It is 1 / (1 + exp(-x)).")
class sign_in_exponent(SigmoidNew):
    @staticmethod
    def forward(x):
        e = torch.exp(-x.abs())
        return torch.where(x <= 0, 1 / (1 + e), e / (1 + e))


@sigmoid.mistake(
    "value",
    "Where x < 0 your output is sigmoid(|x|), or where x > 0 it is sigmoid(-|x|): after exp(-|x|) the two signs need two "
    "formulas. Choose between 1 / (1 + e) and e / (1 + e) with torch.where.",
)
class branch_forgotten(SigmoidNew):
    @staticmethod
    def forward(x):
        return 1 / (1 + torch.exp(-x.abs()))


@sigmoid.mistake("value", FLOAT32)
class float32_inside(SigmoidNew):
    @staticmethod
    def forward(x):
        e = torch.exp(-x.float().abs())
        return torch.where(x >= 0, 1 / (1 + e), e / (1 + e))


@sigmoid.mistake("value", FLOAT32_AND_BACK)
class float32_and_back(SigmoidNew):
    @staticmethod
    def forward(x):
        e = torch.exp(-x.float().abs())
        return torch.where(x >= 0, 1 / (1 + e), e / (1 + e)).to(x.dtype)


@sigmoid.mistake(
    "value",
    "You compute the half precisions in float32, which is sound, and do not cast back: their output has to be float16 or "
    "bfloat16 again.",
)
class halves_left_wide(SigmoidNew):
    @staticmethod
    def forward(x):
        x = x.float() if x.element_size() < 4 else x
        e = torch.exp(-x.abs())
        return torch.where(x >= 0, 1 / (1 + e), e / (1 + e))


@sigmoid.mistake(
    "value",
    "For half-precision input your output is float32: a tensor made by torch.ones(shape), torch.zeros(shape) or "
    "torch.tensor([...]) is float32 and widens what it meets. Use torch.ones_like(x), or plain numbers.",
)
class ones_in_float32(SigmoidNew):
    @staticmethod
    def forward(x):
        e, ones = torch.exp(-x.abs()), torch.ones(x.shape)
        return torch.where(x >= 0, ones, e) / (ones + e)


@sigmoid.mistake(
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


@sigmoid.mistake(
    "extremes",
    "For large x your output is nan: exp(x) overflows and inf / inf is nan. Take the exponential of a number that is never "
    "positive, such as -|x|.",
)
class exponentials_overflow(SigmoidNew):
    @staticmethod
    def forward(x):
        return torch.exp(x) / (1 + torch.exp(x))


@sigmoid.mistake(
    "extremes",
    "You replace nan by 0. The nan came from inf / inf at large x, where the sigmoid is 1: avoid the overflow instead, by an "
    "exponential of a number that is never positive.",
)
class nan_replaced(SigmoidNew):
    @staticmethod
    def forward(x):
        return torch.nan_to_num(torch.exp(x) / (1 + torch.exp(x)))


@sigmoid.mistake(
    "extremes",
    "You clamp x so tightly that the output shows it: at x = -1000 it is exp(-10) or so, where it should be 0 to all digits. "
    "Where exp has an argument that is never positive, no clamp is needed.",
)
class clamped_too_early(SigmoidNew):
    @staticmethod
    def forward(x):
        return 1 / (1 + torch.exp(-x.clamp(-10, 10)))


@sigmoid.mistake(
    "extremes",
    "Your clamp keeps exp finite in float32 and float64; in float16 exp overflows at 11 already, and inf / inf is nan. Take "
    "the exponential of a number that is never positive, and every dtype is safe.",
)
class clamped_too_late(SigmoidNew):
    @staticmethod
    def forward(x):
        e = torch.exp(x.clamp(-80, 80))
        return e / (1 + e)


@sigmoid.mistake(
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


@sigmoid.mistake(
    "extremes",
    "Your first derivative is finite and your second is nan at large |x|: torch.where picks the right branch, but "
    "differentiating it multiplies the other branch's inf by 0. Keep the exponent of both branches from being positive.",
)
class where_poisons(SigmoidNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        y = torch.where(x >= 0, 1 / (1 + torch.exp(-x)), torch.exp(x) / (1 + torch.exp(x)))
        return g * y * (1 - y)


@sigmoid.mistake("gradient", "Your gradient is y (1 - y): the upstream gradient is missing. Multiply by it.")
class upstream_ignored(SigmoidNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * (1 - y)


@sigmoid.mistake("gradient", "Your gradient is the upstream gradient unchanged; multiply it by y (1 - y).")
class upstream_unchanged(SigmoidNew):
    @staticmethod
    def backward(ctx, g):
        return g.clone()


@sigmoid.mistake("gradient", "Your gradient is g y: the factor 1 - y is missing.")
class value_for_derivative(SigmoidNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


@sigmoid.mistake("gradient", "Your gradient is g (1 - y^2), the one of tanh. For the sigmoid it is g y (1 - y).")
class tanh_derivative(SigmoidNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


@sigmoid.mistake(
    "gradient", "Your gradient is g x (1 - x): the formula y (1 - y) takes the output, and you saved the input."
)
class input_for_output(SigmoidNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


@sigmoid.mistake("gradient", "Your gradient has the wrong sign: it is g y (1 - y), not g y (y - 1).")
class sign_flipped(SigmoidNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * (y - 1)


@sigmoid.mistake(
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


@sigmoid.mistake("gradient", NOTHING_RETURNED)
class nothing_returned(SigmoidNew):
    @staticmethod
    def backward(ctx, g):
        return None


@sigmoid.mistake(
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


@sigmoid.mistake(
    "second_order",
    "Your first derivative is right and your second is zero: detach (or .data) cuts the saved output out of the graph of "
    "the gradient. Use it as it is.",
)
class detached(SigmoidNew):
    @staticmethod
    def backward(ctx, g):
        y = ctx.saved_tensors[0].detach()
        return g * y * (1 - y)


@sigmoid.mistake(
    "second_order",
    "Only half of your second derivative is there: one of the factors y and 1 - y is detached, or was computed in forward "
    "and saved, so torch takes it for a constant. Both have to come from the saved output, or from x, in backward.",
)
class half_detached(SigmoidNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * (1 - y.detach())


@sigmoid.mistake("second_order", CUT_OFF)
class not_differentiable_twice(SigmoidNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * (1 - y)


@sigmoid.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(SigmoidNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g.mul_(y * (1 - y))


@sigmoid.mistake(
    "contract",
    "Your forward works in place (neg_, exp_, clamp_, ...) on x: the caller's tensor is overwritten. Return a new tensor.",
)
class writes_into_input(SigmoidNew):
    @staticmethod
    def forward(x):
        return x.neg_().exp_().add_(1).reciprocal_()


@sigmoid.mistake(
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


@sigmoid.mistake(
    "contract",
    "Your backward works in place on the saved output. That tensor is the one your forward returned: the caller's "
    "activations change, and a second backward is wrong. Make a new tensor.",
)
class writes_into_saved(SigmoidNew):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y.mul_(1 - y).mul_(g)


@sigmoid.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(SigmoidNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        (ctx.x,) = inputs

    @staticmethod
    def backward(ctx, g):
        e = torch.exp(-ctx.x.abs())
        return g * e / (1 + e) ** 2


@sigmoid.mistake(
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


@sigmoid.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Function):
    @staticmethod
    def forward(ctx, x):
        GLOBAL["y"] = 1 / (1 + torch.exp(-x))
        return GLOBAL["y"].clone()

    @staticmethod
    def backward(ctx, g):
        return g * GLOBAL["y"] * (1 - GLOBAL["y"])


@sigmoid.mistake(
    "allowed",
    "Your forward calls torch.sigmoid. The task is to make it from exp or expm1: 1 / (1 + exp(-x)), rearranged.",
)
class builtin_sigmoid(SigmoidNew):
    @staticmethod
    def forward(x):
        return torch.sigmoid(x)


@sigmoid.mistake(
    "allowed",
    "Your forward is your own and your backward calls torch.sigmoid. Save the output: y (1 - y) needs nothing else.",
)
class builtin_in_backward(SigmoidNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        y = torch.sigmoid(*ctx.saved_tensors)
        return g * y * (1 - y)


@sigmoid.mistake(
    "allowed",
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


@sigmoid.mistake("gradient", NO_FUNCTION)
def no_function(x):
    return 1 / (1 + torch.exp(-x))


@sigmoid.mistake(
    "value",
    "For a half-precision input without dimensions your output is float32: torch.tensor(1.0) is float32 and wins. Write the "
    "number 1.0, which takes the dtype of x.",
)
class constant_in_float32(SigmoidNew):
    @staticmethod
    def forward(x):
        return torch.tensor(1.0) / (torch.tensor(1.0) + torch.exp(-x))


@sigmoid.mistake(
    "contract",
    "Your forward clamps x in place (clamp_): numbers far from 0 change in the caller's tensor. Use clamp, which makes a new one.",
)
class clamps_input(SigmoidNew):
    @staticmethod
    def forward(x):
        return 1 / (1 + torch.exp(-x.clamp_(-80, 80)))


# --- Cube -------------------------------------------------------------------------------------------------------------


def _sides(draw: Draw):
    return lambda *shape, dtype=DOUBLE: draw.sides(*shape, dtype=dtype)


cube = Task(
    "Cube",
    "Cube.apply(x)",
    lambda x: x**3,
    (
        Check(
            "gradient",
            2,
            "value and gradient are those of x**3 in every dtype, shape and layout, and gradcheck passes",
            "Backward returns the upstream gradient times 3 x^2, one number for each element of x.",
            lambda d: [
                d.case("both signs", _sides(d)(7)),
                d.case("every size", d.scales(12), upstream=d.scales(12)),
                d.case("zeros", torch.zeros(3, dtype=DOUBLE)),
                *d.forms(_sides(d)),
            ],
            (*FORWARD, *FIRST),
            lambda d: (_sides(d)(5),),
        ),
        Check(
            "second_order",
            2,
            "the gradient can be differentiated again, and the result is right",
            "gradcheck alone does not see this: gradgradcheck does.",
            lambda d: [
                d.case("both signs", _sides(d)(7), order=2),
                d.case("zeros", torch.zeros(3, dtype=DOUBLE), order=2),
                d.case("a matrix", _sides(d)(2, 3), order=2),
            ],
            SECOND,
            lambda d: (_sides(d)(3),),
            order=2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; backward's go through save_for_backward",
            "Tensors that your Function did not make belong to others.",
            lambda d: [
                d.case("both signs", _sides(d)(5), watch=("state", "overwrite", "trace")),
                d.case("every size", d.scales(4, 3)),
            ],
            look.CONTRACT,
        ),
    ),
    forbids=look.GRADIENT,
)  # fmt: skip


@cube.solution
class CubeNew(Function):
    """BuggyCube, mended."""

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


@cube.solution
class CubeOld(Function):
    """forward and setup_context in one; products."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3.0 * x * x * grad_output


@cube.solution
class CubeCareful(CubeNew):
    """Asks whether anybody wants the gradient."""

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0]:
            return None
        (x,) = ctx.saved_tensors
        return g.mul(x.square()).mul(3)


@cube.solution
class CubeAsSum(CubeNew):
    """Saves input and output; adds three equal parts."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, g):
        x, _ = ctx.saved_tensors
        part = g * x.pow(2)
        return part + part + part


@cube.mistake(
    "gradient",
    "This is BuggyCube as it was given: all three bugs are in it. Run gradcheck on it and begin with the first message: why "
    "does the analytical Jacobian of an elementwise function have entries off its diagonal?",
)
class as_given(CubeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x * x)

    @staticmethod
    def backward(ctx, g):
        (square,) = ctx.saved_tensors
        return 2 * square


@cube.mistake("gradient", "Your gradient is 3 x^2: the upstream gradient is missing. Backward returns g * 3 x^2.")
class upstream_ignored(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2


@cube.mistake(
    "gradient",
    "One bug is left: the factor. Numerical and analytical Jacobian differ by 3/2 everywhere; the power rule gives 3 x^2.",
)
class factor_two(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x**2


@cube.mistake(
    "gradient",
    "Two bugs are left: the upstream gradient is missing (the analytical Jacobian is not diagonal), and the factor is 3.",
)
class upstream_and_factor_left(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x**2


@cube.mistake(
    "gradient",
    "Two bugs are left: the upstream gradient is missing, and what you save was computed in forward, so the second "
    "derivative is lost.",
)
class upstream_and_saved_left(as_given):
    @staticmethod
    def backward(ctx, g):
        (square,) = ctx.saved_tensors
        return 3 * square


@cube.mistake(
    "gradient",
    "Two bugs are left: the factor is 3, and what you save was computed in forward, so the second derivative is lost.",
)
class factor_and_saved_left(as_given):
    @staticmethod
    def backward(ctx, g):
        (square,) = ctx.saved_tensors
        return g * 2 * square


@cube.mistake(
    "second_order",
    "One bug is left, which gradcheck does not see: the square that you save was computed before backward, so torch takes it for "
    "a constant and the second derivative is zero. Save x and compute the square in backward.",
)
class saves_derivative(as_given):
    @staticmethod
    def backward(ctx, g):
        (square,) = ctx.saved_tensors
        return 3 * square * g


@cube.mistake("gradient", "Your gradient is g x^2: the factor 3 of the derivative 3 x^2 is missing.")
class factor_missing(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x**2


@cube.mistake("gradient", "Your gradient is g 3x: the square is missing. The derivative of x^3 is 3 x^2.")
class square_missing(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x


@cube.mistake("gradient", "Your gradient has 2x, the derivative of the square. The derivative of x^3 is 3 x^2.")
class square_derivative(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x


@cube.mistake(
    "gradient", "Your gradient multiplies the upstream gradient by 6x, the second derivative; the first is 3 x^2."
)
class second_for_first(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 6 * x


@cube.mistake(
    "gradient", "Your gradient multiplies the upstream gradient by x^3, the value; it needs 3 x^2, the derivative."
)
class value_for_derivative(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x**3


@cube.mistake(
    "gradient", "Your gradient is 3 y / x with the output y: at x = 0 that is 0 / 0, nan. Save x and use 3 x^2."
)
class divided_by_input(CubeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * 3 * y / x


@cube.mistake(
    "gradient", "Your gradient is 3 y^2 with the output y = x^3 in it: the formula 3 x^2 takes the input. Save x."
)
class output_for_input(CubeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)


@cube.mistake("gradient", "Your gradient has the wrong sign: the derivative of x^3 is 3 x^2, never negative.")
class sign_flipped(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return -3 * x**2 * g


@cube.mistake(
    "gradient",
    "Your gradient is the upstream gradient unchanged; multiply it by the derivative of x^3, which is 3 x^2.",
)
class upstream_unchanged(CubeNew):
    @staticmethod
    def backward(ctx, g):
        return g.clone()


@cube.mistake("gradient", "Your gradient adds the upstream gradient to 3 x^2. The chain rule multiplies: g * 3 x^2.")
class upstream_added(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g + 3 * x**2


@cube.mistake("gradient", ZEROS_RETURNED)
class zeros_returned(CubeNew):
    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g)


@cube.mistake("gradient", NOTHING_RETURNED)
class nothing_returned(CubeNew):
    @staticmethod
    def backward(ctx, g):
        return None


@cube.mistake("gradient", UPSTREAM_SUMMED)
class upstream_summed(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g.sum()


@cube.mistake("gradient", UPSTREAM_AVERAGED)
class upstream_averaged(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * (g.mean() if g.numel() else g)


@cube.mistake("gradient", ONE_TOO_MANY)
class one_too_many(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g, g * 0


@cube.mistake("gradient", FLOAT32)
class float32_inside(CubeNew):
    @staticmethod
    def forward(x):
        return x.float() ** 3


@cube.mistake("gradient", FLOAT32_AND_BACK)
class float32_and_back(CubeNew):
    @staticmethod
    def forward(x):
        return (x.float() ** 3).to(x.dtype)


@cube.mistake(
    "second_order",
    "Your first derivative is right and your second is zero: detach (or .data) in backward cuts x out of the graph of the "
    "gradient. Use the saved x as it is.",
)
class detached(CubeNew):
    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0].detach()
        return 3 * x**2 * g


@cube.mistake("second_order", CUT_OFF)
class not_differentiable_twice(CubeNew):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


@cube.mistake(
    "second_order",
    "Half of your second derivative is there: one factor x is constant for torch (detached, or a copy that was made in "
    "forward). Both factors of x^2 have to come from the saved input.",
)
class half_detached(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x * x.detach() * g


@cube.mistake("contract", WRITES_INTO_UPSTREAM)
class writes_into_upstream(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        g *= 3 * x**2
        return g


@cube.mistake(
    "contract",
    "Your backward works in place on the saved x, which is the caller's own tensor: it changes, and a second backward is "
    "wrong. Make a new tensor.",
)
class writes_into_saved(CubeNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return x.mul_(x).mul_(3).mul_(g)


@cube.mistake("contract", KEPT_AS_ATTRIBUTE)
class kept_as_attribute(CubeNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        (ctx.x,) = inputs

    @staticmethod
    def backward(ctx, g):
        return 3 * ctx.x**2 * g


@cube.mistake("contract", KEPT_OUTSIDE)
class kept_outside_ctx(Function):
    @staticmethod
    def forward(ctx, x):
        GLOBAL["x"] = x
        return x**3

    @staticmethod
    def backward(ctx, g):
        return 3 * GLOBAL["x"] ** 2 * g


@cube.mistake("gradient", NO_FUNCTION)
def no_function(x):
    return x**3


# --- Arctan, the chapter's ---------------------------------------------------------------------------------------------

arctan = Task(
    "Arctan",
    "Arctan.apply(x)",
    torch.atan,
    (
        Check(
            "value",
            1,
            "the output equals torch.atan in every dtype, shape and layout",
            "Forward is what every later number rests on.",
            lambda d: [d.case("every size", _sizes(d, 1.6, 12), order=0), *d.forms(_wide(d), order=0)],
            FORWARD,
        ),
        Check(
            "gradient",
            1,
            "the gradient equals torch's on both sides of |x| = 1, and gradcheck passes",
            "A check sees the branches that its inputs reach, and no others.",
            lambda d: [
                d.case("|x| below 1", d.sides(6, away=0.05, reach=0.95)),
                d.case("|x| above 1", d.sides(6, away=1.05, reach=6.0)),
                *d.forms(_wide(d)),
            ],
            FIRST,
            lambda d: (torch.cat([d.sides(4, reach=0.9), d.sides(4, away=1.1, reach=4.0)]),),
        ),
        Check(
            "second_order",
            1,
            "the gradient can be differentiated again, and the result is right",
            "A Hessian, a gradient penalty or a physics loss differentiates your backward.",
            lambda d: [d.case("both sides of 1", d.sides(8, reach=3.0), order=2)],
            SECOND,
            lambda d: (d.sides(4, reach=3.0),),
            order=2,
        ),
        Check(
            "contract",
            1,
            "the caller's tensors stay untouched; backward's go through save_for_backward",
            "Tensors that your Function did not make belong to others.",
            lambda d: [d.case("both signs", d.sides(6), watch=("state", "overwrite", "trace"))],
            look.CONTRACT,
        ),
    ),
)


@arctan.solution
class ArctanNew(Function):
    """In the form of chapter 2."""

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


@arctan.mistake(
    "gradient",
    "Where |x| > 1 your gradient is wrong: with r = 1 / x the slope is r^2 / (1 + r^2), and yours lacks the factor r^2. "
    "Check on inputs from both branches.",
)
class wrong_branch(ArctanNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        large = x.abs() > 1
        r = 1 / torch.where(large, x, 1)
        return g * torch.where(large, 1 / (1 + r * r), 1 / (1 + x * x))


@arctan.mistake(
    "second_order",
    "Your first derivative is right and your second is zero: 1 / (1 + x^2) was computed before backward and saved, so torch "
    "takes it for a constant. Save x and compute the slope in backward.",
)
class saves_derivative(ArctanNew):
    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(1 / (1 + x * x))

    @staticmethod
    def backward(ctx, g):
        (slope,) = ctx.saved_tensors
        return g * slope


@arctan.mistake(
    "gradient",
    "Your slope is 1 / sqrt(1 + x^2) in place of 1 / (1 + x^2). Its own derivative is right, so gradgradcheck passes; only "
    "gradcheck compares the slope with the function.",
)
class consistent_but_wrong(ArctanNew):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
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


# --- SigmoidTests -----------------------------------------------------------------------------------------------------

ADVICE = {
    "value": "compare the output with torch.sigmoid at numbers of both signs",
    "gradient": "compare the gradient with torch's at numbers of both signs and under an upstream gradient that is not all "
    "ones (gradcheck in float64 does both)",
    "second order": "differentiate the gradient again (gradgradcheck in float64)",
    "+-1000": "ask for a finite and right output and gradient at x = -1000 and x = 1000",
    "dtype": "ask that output and gradient have the dtype of x, in the half precisions too",
    "shape": "ask that the output has the shape of x, for a matrix and for a tensor without dimensions",
    "overwritten tensors": "compare x and the upstream gradient after backward with copies made before forward",
}
WRONG = {
    "sign_in_exponent": "value",
    "branch_forgotten": "value",
    "upstream_ignored": "gradient",
    "tanh_derivative": "gradient",
    "sign_of_the_branch": "gradient",
    "saves_derivative": "second order",
    "exponentials_overflow": "+-1000",
    "overflow_in_backward": "+-1000",
    "ones_in_float32": "dtype",
    "flattened": "shape",
    "input_changed_on_the_way": "overwritten tensors",
    "writes_into_upstream": "overwritten tensors",
}

# Test files that earn all points, in different styles.
FILES = {
    "thorough": """
import torch
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.testing import assert_close

from sigmoid import Sigmoid

TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}


def numbers(*shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def test_value_shape_and_dtype():
    for dtype, tolerance in TOLERANCE.items():
        for shape in [(), (0, 3), (7,), (2, 3)]:
            x = numbers(*shape, dtype=dtype)
            # assert_close compares shapes and dtypes as well
            assert_close(Sigmoid.apply(x), torch.sigmoid(x), rtol=tolerance, atol=tolerance)


def test_gradient():
    x = numbers(2, 3).requires_grad_()
    upstream = numbers(3, 2).t()
    (ours,) = grad(Sigmoid.apply(x), x, upstream)
    (right,) = grad(torch.sigmoid(x), x, upstream)
    assert_close(ours, right)
    gradcheck(Sigmoid.apply, x)


def test_second_order():
    gradgradcheck(Sigmoid.apply, numbers(5).requires_grad_())


def test_far_from_zero():
    x = torch.tensor([-1000.0, -50.0, 0.0, 50.0, 1000.0], requires_grad=True)
    y = Sigmoid.apply(x)
    assert_close(y, torch.sigmoid(x))
    (gradient,) = grad(y.sum(), x)
    assert_close(gradient, torch.tensor([0, 0, 0.25, 0, 0]))


def test_nothing_is_overwritten():
    x, upstream = numbers(5), numbers(5)
    x_before, upstream_before = x.clone(), upstream.clone()
    x.requires_grad_()
    y = Sigmoid.apply(x)
    y_before = y.detach().clone()
    y.backward(upstream)
    assert torch.equal(x, x_before) and torch.equal(upstream, upstream_before) and torch.equal(y, y_before)
""",
    "terse": """
import torch
from sigmoid import Sigmoid
f = Sigmoid.apply

def test_all():
    for x in (torch.linspace(-5, 5, 12).view(3, 4).half(), torch.tensor(-1000.), torch.tensor(1e3)):
        y = f(x); assert y.shape == x.shape and y.dtype == x.dtype and (y - x.sigmoid()).abs().max() < 1e-2
    x = torch.linspace(-5, 5, 12, dtype=torch.double, requires_grad=True)
    c = x.detach() + 0
    assert torch.autograd.gradcheck(f, x, raise_exception=False)
    assert torch.autograd.gradgradcheck(f, x, raise_exception=False)
    g = torch.ones(12).double(); f(x).backward(g); assert (g == 1).all() and (x == c).all()
    x = torch.tensor([-1e3, 1e3], requires_grad=True); f(x).sum().backward(); assert (x.grad == 0).all()
""",
    "against_torch": """
# The same questions to ours and to torch's, order by order.
import torch
from sigmoid import Sigmoid


def orders(f, x, g):
    x = x.clone().requires_grad_()
    y = f(x)
    (first,) = torch.autograd.grad(y, x, g, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return y, first, second


def check(x, tol):
    torch.manual_seed(1)
    g = torch.randn(x.shape).to(x.dtype)
    for what, ours, theirs in zip(("value", "first", "second"), orders(Sigmoid.apply, x, g), orders(torch.sigmoid, x, g)):
        assert ours.shape == theirs.shape, f"{what}: shape {ours.shape}"
        assert ours.dtype == theirs.dtype, f"{what}: dtype {ours.dtype}"
        assert torch.allclose(ours, theirs, rtol=tol, atol=tol), f"{what}: {ours} is not {theirs}"


def test_double():
    check(torch.linspace(-8, 8, 33, dtype=torch.float64), 1e-9)


def test_float():
    check(torch.linspace(-8, 8, 32).reshape(4, 8), 1e-5)


def test_halves():
    check(torch.linspace(-4, 4, 9).half(), 5e-3)
    check(torch.linspace(-4, 4, 9).bfloat16(), 3e-2)


def test_scalar():
    check(torch.tensor(0.7), 1e-5)


def test_extremes():
    check(torch.tensor([-1000.0, 1000.0], dtype=torch.float64), 1e-9)
    check(torch.tensor([-1000.0, 1000.0]), 1e-6)


def test_input_is_left_alone():
    x = torch.tensor([-1.0, 2.0])
    Sigmoid.apply(x)
    assert x.tolist() == [-1.0, 2.0]


def test_upstream_is_left_alone():
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    g = torch.tensor([3.0, 4.0])
    torch.autograd.grad(Sigmoid.apply(x), x, g)
    assert g.tolist() == [3.0, 4.0]
""",
    "from_the_definition": """
import math
import torch
from sigmoid import Sigmoid

POINTS = [-3.0, -1.0, 0.0, 0.5, 2.0]
s = lambda v: 1 / (1 + math.exp(-v))
near = lambda a, b, tol=1e-6: abs(float(a) - b) <= tol

def leaf(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype, requires_grad=True)

def test_numbers_one_by_one():
    for v in POINTS:
        x = leaf(v)
        y = Sigmoid.apply(x)
        assert y.dim() == 0
        assert near(y, s(v))
        g, = torch.autograd.grad(y, x, torch.tensor(2.0, dtype=torch.float64), create_graph=True)
        assert near(g, 2 * s(v) * (1 - s(v)))
        h, = torch.autograd.grad(g, x)
        assert near(h, 2 * s(v) * (1 - s(v)) * (1 - 2 * s(v)))

def test_finite_differences():
    for v in POINTS:
        h = 1e-5
        slope = (Sigmoid.apply(leaf(v + h)) - Sigmoid.apply(leaf(v - h))).item() / (2 * h)
        x = leaf(v)
        Sigmoid.apply(x).backward()
        assert near(x.grad, slope, 1e-8)

def test_big():
    for v, want in ((-1000.0, 0.0), (1000.0, 1.0)):
        x = leaf(v, torch.float32)
        y = Sigmoid.apply(x)
        y.backward()
        assert near(y, want) and near(x.grad, 0.0)

class Kept:
    def __init__(self, *tensors):
        self.pairs = [(t, t.detach().clone()) for t in tensors]
    def check(self):
        for now, before in self.pairs:
            assert torch.equal(now, before), "a tensor was overwritten"

def test_kept():
    x, g = leaf(POINTS), torch.ones(5, dtype=torch.float64)
    kept = Kept(x, g)
    Sigmoid.apply(x).backward(g)
    kept.check()

def test_types():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        y = Sigmoid.apply(leaf([[0.0, 1.0]], dtype))
        assert y.dtype is dtype and list(y.shape) == [1, 2]
""",
}

# Faulty ones.
HEAD = "import torch\nfrom torch.autograd import gradcheck, gradgradcheck\nfrom sigmoid import Sigmoid\n\n"
FAULTY = (
    FileMistake(
        "nothing_asserted",
        HEAD
        + """
def test_value():
    x = torch.linspace(-5, 5, 11)
    y = Sigmoid.apply(x)
    error = (y - torch.sigmoid(x)).abs().max()

def test_backward_runs():
    x = torch.randn(5, requires_grad=True)
    Sigmoid.apply(x).sum().backward()
""",
        0.5,
        "Nothing in the file asserts",
    ),
    FileMistake(
        "value_alone",
        HEAD
        + """
def test_value():
    x = torch.linspace(-5, 5, 11)
    assert torch.allclose(Sigmoid.apply(x), torch.sigmoid(x), atol=1e-6)
""",
        1.5,
        "gradient (3): compare the gradient",
    ),
    FileMistake(
        "gradcheck_on_one_side",
        HEAD
        + """
def test_gradcheck():
    x = torch.rand(5, dtype=torch.float64) + 0.1
    gradcheck(Sigmoid.apply, x.requires_grad_())
    gradgradcheck(Sigmoid.apply, x.requires_grad_())
""",
        2.5,
        "gradient (1): compare the gradient with torch's at numbers of both signs",
    ),
    FileMistake(
        "result_thrown_away",
        HEAD
        + """
def test_value():
    x = torch.linspace(-5, 5, 11)
    torch.allclose(Sigmoid.apply(x), torch.sigmoid(x), atol=1e-6)

def test_gradient():
    gradcheck(Sigmoid.apply, torch.randn(5, dtype=torch.float64, requires_grad=True))
""",
        2.5,
        "In test_value, line 8, a comparison is thrown away",
    ),
    FileMistake(
        "returned_not_asserted",
        HEAD
        + """
def test_value():
    x = torch.linspace(-5, 5, 11)
    return torch.allclose(Sigmoid.apply(x), torch.sigmoid(x), atol=1e-6)

def test_gradient():
    gradcheck(Sigmoid.apply, torch.randn(5, dtype=torch.float64, requires_grad=True))
""",
        2.5,
        "test_value returns a value, and nobody looks at it",
    ),
    FileMistake(
        "exact_equality",
        HEAD
        + """
def test_value():
    x = torch.linspace(-5, 5, 101)
    assert torch.equal(Sigmoid.apply(x), torch.sigmoid(x))
""",
        0.0,
        "Right ones round differently",
    ),
    FileMistake(
        "halves_too_tight",
        HEAD
        + """
def test_every_dtype():
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        x = torch.linspace(-5, 5, 101, dtype=dtype)
        torch.testing.assert_close(Sigmoid.apply(x), torch.sigmoid(x))
""",
        0.0,
        "a tolerance that suits the dtype",
    ),
    FileMistake(
        "tails_compared_by_ratio",
        HEAD
        + """
def test_tails():
    x = torch.tensor([-740.0, -720.0], dtype=torch.float64)
    torch.testing.assert_close(Sigmoid.apply(x), torch.sigmoid(x), rtol=1e-6, atol=0)
""",
        0.0,
        "may be exactly 0 in the tails",
    ),
    FileMistake(
        "gradcheck_in_float32",
        HEAD
        + """
def test_gradcheck():
    assert gradcheck(Sigmoid.apply, torch.linspace(-2, 2, 5, requires_grad=True))
""",
        0.0,
        "gradcheck needs float64 inputs",
    ),
    FileMistake(
        "printed",
        HEAD
        + """
def test_value():
    x = torch.linspace(-5, 5, 11)
    print("same value:", torch.allclose(Sigmoid.apply(x), torch.sigmoid(x)))
    print("gradcheck:", gradcheck(Sigmoid.apply, x.double().requires_grad_(), raise_exception=False))
""",
        0.0,
        "What it lets through",
    ),
    FileMistake(
        "wrong_import",
        "import torch\nfrom solution import Sigmoid\n\ndef test_zero():\n    assert Sigmoid.apply(torch.zeros(1)) == 0.5\n",
        0.0,
        "No module named 'solution'. It needs torch and `from sigmoid import Sigmoid`.",
    ),
    FileMistake(
        "tests_with_arguments",
        HEAD
        + """
def test_value(x):
    assert torch.allclose(Sigmoid.apply(x), torch.sigmoid(x))

test_value(torch.linspace(-5, 5, 11, dtype=torch.float64))
""",
        0.0,
        "A test is called without arguments",
    ),
    FileMistake(
        "names_without_test",
        HEAD
        + """
def sigmoid_test():
    x = torch.randn(10)
    assert torch.allclose(Sigmoid.apply(x), torch.sigmoid(x))
""",
        0.0,
        "There is no test in the file",
    ),
    FileMistake(
        "endless_loop",
        HEAD
        + """
def test_approaches_one():
    x = torch.zeros(1)
    while Sigmoid.apply(x) < 1:
        y = x + 1
""",
        0.0,
        "test_approaches_one ran for more than",
    ),
    FileMistake(
        "waits_for_an_exception",
        HEAD
        + """
import pytest

def test_large_input():
    with pytest.raises(RuntimeError):
        Sigmoid.apply(torch.tensor([1000.0]))
""",
        0.0,
        "It waits for an exception that a right one does not raise",
    ),
)


def _text(name: str) -> str:
    everybody = sigmoid.solutions | {m.name: m.operation for m in sigmoid.mistakes}
    return source_of(everybody[name].__self__, "Sigmoid")


tests = FileTask(
    "SigmoidTests",
    "sigmoid",
    (FileCheck("catches", 6, "the file passes 4 right Sigmoids and fails 12 wrong ones; half a point for each"),),
    {name: _text(name) for name in ("SigmoidNew", "SigmoidPlain", "SigmoidByExpm1", "SigmoidRecomputed")},
    {name: Wrong(_text(name), kind) for name, kind in WRONG.items()},
    ADVICE,
    FAULTY,
    FILES,
)


TASKS = (sigmoid, tests, cube)
CHAPTER = (arctan,)
