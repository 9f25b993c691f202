"""What the messages of several tasks say alike."""

NO_FUNCTION = (
    "The gradient of your output is torch's, wholly or in part: its graph holds more than your torch.autograd.Function. The "
    "task is to write all of it yourself, in backward."
)
NOTHING_RETURNED = "Your backward returns None (is a return statement missing?): x gets no gradient at all."
ZEROS_RETURNED = "Your gradient is zero everywhere, so nothing before this operation would ever learn."
UPSTREAM_SUMMED = (
    "Your backward sums the upstream gradient first. Each element of the input has its own upstream gradient: multiply "
    "element by element."
)
UPSTREAM_AVERAGED = "Your backward takes the mean of the upstream gradient; each element has its own."
ONE_TOO_MANY = "Your backward returns two gradients; forward has one argument, and torch wants one gradient for each."
VIEW_NEEDED = "Your Function uses view, which fails on a tensor that is not contiguous in memory; work on it as it is (or use reshape)."
FLOAT32 = "Your output is float32 whatever the input is: you convert x inside. Keep the input's dtype."
FLOAT32_AND_BACK = (
    "You compute in float32 and cast back: for float64 input half of the digits are lost, and gradcheck fails. Compute in "
    "the dtype of x (only the halves may take the detour through float32)."
)
CUT_OFF = (
    "Your backward is cut off from the graph (by once_differentiable, by no_grad around all of it, or by detach, .data or NumPy on "
    "the upstream gradient), so the gradient cannot be differentiated again. Leave that out."
)
WRITES_INTO_UPSTREAM = (
    "Your backward writes into the upstream gradient. That tensor is not yours: another branch of the graph, or the caller, "
    "holds the same one and now has wrong numbers. Make a new tensor."
)
KEPT_AS_ATTRIBUTE = (
    "You keep x as an attribute of ctx, where torch does not watch it: when x is changed in place before backward, the "
    "gradient is silently wrong. Use ctx.save_for_backward."
)
KEPT_OUTSIDE = (
    "You keep tensors outside ctx (on the class, or in a global): a second call overwrites them before the first one's "
    "backward. Use ctx.save_for_backward."
)
MASK_MULTIPLIED = (
    "Where the mask is 0 and the upstream gradient infinite, your gradient is nan: inf * 0 = nan. Choose with "
    "torch.where instead of multiplying by a mask."
)
