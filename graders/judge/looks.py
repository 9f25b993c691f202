"""What a check looks at: pure functions of a case, your record of it and the expected record.

A look returns None, or a `Finding`: the first thing that is wrong, in words for the author of the code. A check looks
in the order of the tuples below: for what is missing before what is misshapen before what is off by a number.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from graders.inside.observe import same
from graders.inside.records import SETTINGS, Case, Gradients, Helper, Record
from graders.inside.wire import inexact
from graders.judge.raised import meaning

TOLERANCE = {  # relative, absolute; float64 as torch.testing.assert_close, halves as the task texts say
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1e-4, 1e-5),
    torch.float16: (5e-3, 5e-3),
    torch.bfloat16: (3e-2, 3e-2),
    torch.complex128: (1e-7, 1e-7),
    torch.complex64: (1e-4, 1e-5),
}
WIDE = {torch.float64: torch.float32, torch.complex128: torch.complex64}  # what has half of its digits


FINER = 2e-9  # relative: rounding to 32 bits is mostly 1e-8 or more

Triple = tuple[Case, Record, Record]  # a case, your record of it, and the expected one


@dataclass(frozen=True)
class Finding:
    """What is wrong, in one or two sentences, and the numbers that show it.

    Args:
        look: the name of what found it.
        message: to the author of the code.
        evidence: a failing case, by what each part of it is.
        failing: gives the cases in which the same look finds fault, this one first, each with what it finds there.
        tiny: whether the numbers are all so small that only a look at more digits sees that they are wrong.
    """

    look: str
    message: str
    evidence: dict[str, str] = field(default_factory=dict)
    failing: "Callable[[], Iterator[tuple[Triple, Finding]]] | None" = field(default=None, compare=False, repr=False)
    tiny: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True)
class Forbids:
    """What a task forbids beyond the operators in its cases: what only the text of a submission shows.

    Args:
        says: what is asked for, as a message begins: "Sigmoid is asked for from exp or expm1 alone."
        names: the last part of the forbidden functions' Python names, separated by spaces: torch's, or methods.
        paths: full names, or what they begin with: ``torch.utils.checkpoint``.
        foreign: whether other libraries may not compute with the values of tensors.
        numbers: whether Python's numbers may not either, beyond arithmetic.
        backward: whether a backward may not call autograd.
    """

    says: str
    names: str = ""
    paths: tuple[str, ...] = ()
    foreign: bool = False
    numbers: bool = False
    backward: bool = False


# what holds for every task whose gradient is to be written
GRADIENT = Forbids(
    "The gradient is to be computed from tensors, without torch.autograd, torch.func or torch's own backwards.",
    backward=True,
)

# what holds for every check that rests on what an observer beside the student's code says
OBSERVED = Forbids("This check observes your code from inside the process of your notebook.")

Look = Callable[[str, Case, Record, Record], Finding | None]


def number(value: object) -> str:
    """Return a number as a verdict prints it."""
    value = value.item() if isinstance(value, Tensor) else value
    return f"{value:.6g}" if isinstance(value, float | complex) else str(value)


def place(value: object) -> str:
    """Return `number`, but all digits where six would look like a rounder number: of the float just above 1, say."""
    held = value.dtype if isinstance(value, Tensor) else torch.float64
    short, value = number(value), value.item() if isinstance(value, Tensor) else value
    if isinstance(value, float) and len(short) < 5 and torch.tensor(float(short), dtype=held).item() != value:
        return repr(value) if value == value else short
    return short


def wrong_at(yours: Tensor, expected: Tensor) -> tuple[int, ...] | None:
    """Return the first index where they differ beyond the dtype's tolerance. Where nan is expected, all passes."""
    if yours.dtype == expected.dtype and torch.equal(yours, expected):  # the usual case, and fast
        return None
    if yours.is_complex() and not expected.is_complex():
        return (0,) * expected.ndim if expected.numel() else None  # whatever its real part is
    rtol, atol = TOLERANCE.get(expected.dtype, (0, 0))
    wrong = ~torch.isclose(yours.to(expected.dtype), expected, rtol=rtol, atol=atol, equal_nan=True) & (
        expected == expected
    )
    return tuple(wrong.nonzero()[0].tolist()) if wrong.any() else None


LOST_NAME = re.compile(r"name '(\w{1,50})' is not defined")


def parameters(call: str) -> list[str]:
    """Return the names of the parameters in a call: x, weight and bias for "Linear.apply(x, weight, bias=None)".

    What a star gathers is numbered: fn, args[0], args[1], ... for "checkpoint(fn, *args)".
    """
    names = [p.split("=")[0] for p in call[call.index("(") + 1 : -1].split(", ")]
    if names[-1].startswith("*"):
        names[-1:] = [f"{names[-1][1:]}[{i}]" for i in range(9)]
    return names


def describe(call: str, case: Case) -> str:
    """Describe a case in words: "a transposed input: x float64 of shape (2, 3)"."""
    words = []
    for name, arg in zip(parameters(call), case.args, strict=False):
        if isinstance(arg, Tensor):
            words.append(f"{name} {str(arg.dtype).removeprefix('torch.')} of shape {tuple(arg.shape)}")
        else:
            words.append(f"{name} = {arg.name if isinstance(arg, Helper) else arg}")
    return f"{case.name}: {', '.join(words)}"


def _found(look: str, call: str, case: Case, message: str, **evidence: object) -> Finding:
    return Finding(look, message, {"case": describe(call, case)} | {k: str(v) for k, v in evidence.items()})


WHOLE = ("q", "k", "v")  # of attention: each number of the output depends on rows of them, and none on one element


def _around(call: str, case: Case, index: tuple[int, ...], shape: torch.Size, upstream: bool) -> str:
    """Return the numbers among the arguments, and the elements at `index` of those of this shape: " where x = 1"."""
    given = list(zip(parameters(call), case.args, strict=False))
    if upstream and case.upstream is not None and not any(name in WHOLE for name, _ in given):
        given.append(("the upstream gradient", case.upstream))
    parts = []
    for name, value in given:
        if name in WHOLE:
            continue
        if isinstance(value, Tensor) and value.shape == shape:
            parts.append(f"{name} = {place(value[index])}")
        elif (isinstance(value, Tensor) and value.numel() == 1) or isinstance(value, int | float):
            parts.append(f"{name} = {place(value)}")
    return f" where {', '.join(parts)}" if parts else ""


def _in_all(yours: Tensor, expected: Tensor) -> str:
    """Return what all numbers have in common that are wrong, two or more: " Every number is 2 times the right one."."""
    there = expected != 0
    finite = (yours.isfinite() & expected.isfinite()).all()
    if yours.is_complex() or not finite or there.sum() < 2 or (yours[~there] != 0).any():
        return ""
    ratios = yours[there].double() / expected[there].double()
    if not torch.allclose(ratios, ratios[:1], rtol=1e-6, atol=0):
        return ""
    factor = number(ratios[0])
    if factor in ("1", "-1", "0"):
        return {"-1": " Every number has the wrong sign.", "0": " Every number is 0."}.get(factor, "")
    return f" Every number is {factor} times the right one."


def _differ(
    look: str, what: str, call: str, case: Case, yours: Tensor, expected: Tensor, upstream: bool = True
) -> Finding | None:
    index = wrong_at(yours, expected)
    if index is None:
        return None
    at = f" at index {index}" if index else ""
    text = f"Wrong {what}{at}{_around(call, case, index, yours.shape, upstream)}."
    if yours[index].isnan() and not expected[index].isnan():
        around = text.removeprefix(f"Wrong {what}").rstrip(".")
        text = f"Your {what} is nan{around}: on the way stands inf / inf, inf - inf, 0 * inf or 0 / 0."
    else:
        text += _in_all(yours, expected)
    a, b = number(yours[index]), number(expected[index])
    if a == b:  # they differ in later digits
        a, b = repr(yours[index].item()), repr(expected[index].item())
    return _found(look, call, case, text, yours=a, expected=b)


def _speaker(call: str, stage: str) -> str:
    """Return who raised or returned: a plain function has no forward."""
    if stage == "setup_context":
        return "Your setup_context"
    return "Your function" if stage == "forward" and ".apply(" not in call else f"The {stage}"


def exists(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether the name is there."""
    if yours.failure is None or yours.failure.stage != "exists":
        return None
    name = call.split("(")[0]
    return Finding("exists", f"{name} could not be found: {yours.failure.kind}: {yours.failure.message}.")


NO_RETURN = "Does your backward end in a return statement?"


OWN_NAMES = (
    "forward's variables are forward's own. setup_context gets the arguments as one tuple, inputs, and what forward "
    "returned, as output: save that."
)


def _lost_name(call: str, stage: str, message: str) -> str:
    """Return where what a name stands for can be had, if it was used where it is not known; else ""."""
    found = LOST_NAME.fullmatch(message)
    if not found or ".apply(" not in call:
        return ""
    name = found[1]
    if name not in parameters(call):
        return f"setup_context does not know {name}: {OWN_NAMES}" if stage == "setup_context" else ""
    if stage in ("forward", "setup_context"):  # forward has its arguments
        return f"setup_context does not know {name}: it gets all arguments as one tuple, inputs. Take {name} out of it."
    return f"backward does not know {name}: keep it on ctx in setup_context, and read it from ctx in backward."


def runs(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether something was raised."""
    failure = yours.failure
    if failure is None:
        return None
    if yours.denied:  # it may have been raised for that
        return allowed(call, case, yours, expected)
    unwritten = not failure.message or failure.message.startswith("your turn")  # torch raises it too, and says why
    if failure.kind == "NotImplementedError" and unwritten:
        name = call.split(".")[0].split("(")[0]
        part = f"'s {failure.stage}" if failure.stage in ("setup_context", "backward") and ".apply(" in call else ""
        return Finding("runs", f"{name}{part} is not written yet.")
    first = failure.message.strip().split("\n")[0][:300].rstrip(".")
    raised = f"{failure.kind}{first and ': '}{first}"
    if known := _lost_name(call, failure.stage, first) or meaning(first, parameters(call)).sentence:
        return _found("runs", call, case, known, raised=raised)
    return _found("runs", call, case, f"{_speaker(call, failure.stage)} raised {raised}.")


def returns(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether a tensor came back."""
    if yours.kind == expected.kind:
        if not expected.outputs or len(yours.outputs) == len(expected.outputs):
            return None
        text = f"The {yours.kind} returned holds {len(yours.outputs)} tensors, expected {len(expected.outputs)}."
        return _found("returns", call, case, text)
    hint = f" Does {'forward' if '.apply(' in call else 'it'} end in a return statement?"
    text = f"{_speaker(call, 'forward')} returned {yours.kind}, expected {expected.kind}."
    return _found("returns", call, case, text + hint * (yours.kind == "NoneType"))


def shape(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look at the output's shape."""
    for a, b in zip(yours.outputs, expected.outputs, strict=True):
        if a.shape != b.shape:
            text = "The output has the wrong shape."
            return _found("shape", call, case, text, yours=tuple(a.shape), expected=tuple(b.shape))
    return None


def dtype(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look at the output's dtype."""
    for a, b in zip(yours.outputs, expected.outputs, strict=True):
        if a.dtype != b.dtype:
            came, wanted = (str(t.dtype).removeprefix("torch.") for t in (a, b))
            made = "a conversion, or a tensor of that dtype among the others, makes it so"
            if a.dtype == torch.float32:
                made = (
                    "a tensor made without dtype= is float32, as by torch.tensor(...) or torch.ones(shape), and so is "
                    "what .float() gives"
                )
            text = f"Your output is {came} where {wanted} is wanted, the dtype of the input: {made}."
            return _found("dtype", call, case, text, yours=a.dtype, expected=b.dtype)
    return None


def value(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look at the output's numbers."""
    for a, b in zip(yours.outputs, expected.outputs, strict=True):
        if found := _differ("value", "value", call, case, a, b, upstream=False):
            return found
    return None


def function(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether the gradient is the author's own: by the observer's word, and then by proof (`Task.find`)."""
    if not any(expected.differentiable):
        return None
    if not any(yours.differentiable):
        text = "The output does not require a gradient, so nothing reaches x: is it cut off by detach or no_grad?"
        return _found("function", call, case, text)
    if not yours.function:
        text = "The gradient of your output is torch's, wholly or in part (see its grad_fn); the task asks for yours."
        return _found("function", call, case, text)
    return None


def by_hand(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether backward called autograd, by the observer's word; `Task.find` has the gradient proved besides."""
    if yours.nested:
        text = "Backward calls torch.autograd; write the vector-Jacobian product yourself."
        return _found("by hand", call, case, text)
    return None


def differentiable(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether a gradient can pass, whatever computes it."""
    if any(expected.differentiable) and not any(yours.differentiable):
        text = (
            "The output does not require a gradient, so nothing reaches the input: is it cut off by detach or no_grad?"
        )
        return _found("function", call, case, text)
    return None


def no_function(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether a Function of the author's is in the graph."""
    if yours.custom:
        text = "The graph of your output holds a torch.autograd.Function; this task is to be solved without one."
        return _found("no function", call, case, text)
    return None


def exact(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look at the output's numbers to the last bit."""
    for a, b in zip(yours.outputs, expected.outputs, strict=True):
        if a.dtype != b.dtype:
            return dtype(call, case, yours, expected)
        if not same(a, b):
            index = tuple((~((a == b) | ((a != a) & (b != b)))).nonzero()[0].tolist())
            at = f" at index {index}" if index else ""
            text = f"The value{at} is not exact{_around(call, case, index, a.shape, False)}."
            return _found("value", call, case, text, yours=repr(a[index].item()), expected=repr(b[index].item()))
    return None


def numbers(relative: float, names: tuple[str, ...] = (), absolute: float = 1e-6) -> Look:
    """Return a look at Python numbers, each within this relative and absolute distance of what is expected."""

    def numbers(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
        wanted = len(expected.numbers)
        if yours.numbers and len(yours.numbers) != wanted:
            text = f"The result has {len(yours.numbers)} numbers, expected {wanted}."
            return _found("returns", call, case, text)
        if not yours.numbers or not all(isinstance(n, float) for n in yours.numbers):
            text = f"The result is not a tuple of {wanted} Python floats: a tensor becomes one by .item()."
            return _found("returns", call, case, text)
        for i, (a, b) in enumerate(zip(yours.numbers, expected.numbers, strict=True)):
            if not (a == b or b != b or abs(a - b) <= relative * abs(b) + absolute):  # all passes for a nan expected
                text = f"Wrong {names[i]}." if names else f"Wrong number {i} of the {wanted} returned."
                told = (number(a), number(b)) if number(a) != number(b) else (repr(a), repr(b))
                return _found("value", call, case, text, yours=told[0], expected=told[1])
        return None

    return numbers


def whole(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look for one Python int, exactly."""
    if yours.kind != "int" or len(yours.numbers) != 1:
        return _found("returns", call, case, f"The result is {yours.kind}, not a Python int.")
    if yours.numbers != expected.numbers:
        text = "Wrong number."
        return _found("value", call, case, text, yours=yours.numbers[0], expected=expected.numbers[0])
    return None


def stream(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether the random stream is where it should be after the forward."""
    if yours.drawn != expected.drawn:
        text = "After your forward the random stream is not where it should be: what is drawn next differs."
        return _found("stream", call, case, text)
    return None


def counts(**most: int) -> Look:
    """Return a look at what the helpers counted: at most so many of each."""

    def counts(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
        for name, limit in most.items():
            if (seen := dict(yours.tally).get(name, 0)) > limit:
                text = f"Too much work: {seen} {name.replace('_', ' ')}; {limit} are enough for any size."
                return _found("counts", call, case, text, yours=seen, expected=f"at most {limit}")
        return None

    return counts


def _differentiated(call: str, case: Case) -> list[str]:
    """Return what a record's gradients belong to: arguments that require one, then tensors of helpers that do."""
    names = parameters(call)
    own = [name for name, required in zip(names, case.requires_grad, strict=False) if required]
    helpers = [(name, a) for name, a in zip(names, case.args, strict=False) if isinstance(a, Helper)]
    return own + [f"parameter {j} of {n}" for n, a in helpers for j, r in enumerate(a.requires_grad) if r]


def _compare_grads(
    look: str,
    what: str,
    call: str,
    case: Case,
    yours: Gradients | None,
    expected: Gradients | None,
    none_is_zero: bool = False,
) -> Finding | None:
    if expected is None:
        return None
    names = [*_differentiated(call, case), "the upstream gradient"]
    for name, a, b in zip(names, yours or (None,) * len(expected), expected, strict=False):
        if b is None and name == "the upstream gradient" and isinstance(case.upstream, Tensor):
            b = torch.zeros_like(case.upstream)
        b = torch.zeros_like(a) if b is None and a is not None and none_is_zero else b
        if a is None and b is not None and not (none_is_zero and not b.any()):
            text = f"The {what} with respect to {name} is None: nothing is passed back."
            if what == "gradient" and ".apply(" in call and all(one is None for one in yours or ()):
                text = f"{text[:-1]}. {NO_RETURN}"
            return _found(look, call, case, text)
        found = a is not None and b is not None and _differ(look, f"{what} with respect to {name}", call, case, a, b)
        if found:
            return found
    return None


def gradient(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look at the gradients; None where a number is expected is wrong."""
    return _compare_grads("gradient", "gradient", call, case, yours.grads, expected.grads)


def sound(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look at the gradients of cases that watch something: of others a contract asks only what is changed in place."""
    return gradient(call, case, yours, expected) if case.watch else None


def second_order(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look at the gradients of the gradients."""
    return _compare_grads(
        "second order", "second derivative", call, case, yours.second, expected.second, none_is_zero=True
    )


def precise(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether nearly right float64 numbers have more digits than float32 holds. It comes before `value`.

    Of complex128 and complex64 the same.

    Where all numbers are tiny, wrong ones are near them too: these are found here as well, and are told as wrong.
    """
    for what, a, b in (("value", yours.outputs, expected.outputs), ("gradient", yours.grads, expected.grads)):
        for place, (mine, right) in enumerate(zip(a or (), b or (), strict=False)):
            if mine is None or right is None or mine.shape != right.shape:
                continue
            if mine.dtype != right.dtype or right.dtype not in WIDE or torch.equal(mine, right):
                continue
            near, exact = (torch.isclose(mine, right, rtol=t, atol=t, equal_nan=True) for t in (1e-6, 1e-10))
            if not near.all() or exact.all():
                continue
            size = min(1.0, float(right.abs().max()))
            if torch.allclose(mine, right, rtol=1e-6, atol=1e-6 * size, equal_nan=True):
                wide, half = (str(t).removeprefix("torch.") for t in (right.dtype, WIDE[right.dtype]))
                how = "a conversion" if right.is_complex() else "a .float()"
                text = (
                    f"In {wide} your {what} has the digits of {half} only: most likely {how}, or a tensor "
                    "made without dtype=, narrows it on the way."
                )
                if _finer(mine, right) and not same(mine.to(WIDE[right.dtype]).to(right.dtype), mine):
                    text = (
                        f"In {wide} your {what} is a little off, mostly by less than {half} makes it. A loop that ends "
                        "too early does that, an epsilon, a constant with few digits, or a small part that is narrower."
                    )
                return _found("precise", call, case, text, off=f"by up to {number((mine - right).abs().max())}")
            to = f" with respect to {_differentiated(call, case)[place]}" if what == "gradient" else ""
            index = tuple((~exact).nonzero()[0].tolist())
            at = f" at index {index}" if index else ""
            around = _around(call, case, index, mine.shape, what == "gradient")
            text = f"Wrong {what}{to}{at}{around}."
            yours_there, right_there = repr(mine[index].item()), repr(right[index].item())
            return replace(_found(what, call, case, text, yours=yours_there, expected=right_there), tiny=True)
    return None


def _finer(mine: Tensor, right: Tensor) -> bool:
    """Return whether most numbers, of those that would lose digits in a narrower dtype, have lost few of them."""
    long = right.to(WIDE[right.dtype]).to(right.dtype) != right
    off = ((mine - right).abs() / right.abs())[long]
    return bool(off.numel() and off.median() < FINER)


def untouched(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether something that belongs to the caller was changed in place."""
    if yours.changed:
        what, *rest = yours.changed[0].partition(" .")[::2]
        what = parameters(call)[int(what.split()[1])] if what.startswith("argument") else what
        if rest == ["version"]:
            text = (
                f"Your code changes {what} in place, though {what} then holds what it held; it belongs to the caller."
            )
            return _found("untouched", call, case, text)
        what = ".".join([what, *filter(None, rest)])
        if what in SETTINGS:
            return _found("untouched", call, case, f"Your code leaves {what} other than it was.")
        return _found("untouched", call, case, f"Your code changes {what} in place; it belongs to the caller.")
    upstream = case.upstream[0] if isinstance(case.upstream, tuple) else case.upstream
    sibling = yours.sibling
    if sibling is not None and upstream is not None and not same(sibling, upstream.to(sibling.dtype)):
        text = "Your backward writes into the upstream gradient and corrupts the gradient of another branch."
        return _found("untouched", call, case, text)
    if yours.shares_memory:
        text = "The output shares memory with an argument: changing one in place changes the other."
        return _found("untouched", call, case, text)
    return None


def stateless(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether one graph disturbs another, and whether backward can run twice."""
    if "state" not in case.watch:
        return None
    ways = (("another forward before backward", yours.interleaved), ("running backward twice", yours.repeated))
    for what, grads in ways:
        if found := _compare_grads("stateless", f"gradient after {what}", call, case, grads, expected.grads):
            return found
    return None


def guarded(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether a tensor that backward needs can be changed unnoticed."""
    names = parameters(call)
    for what, grads in yours.overwritten:
        if grads is None:
            continue
        if what.endswith(" .version"):
            text = (
                "Your backward raises by a comparison of its own when a tensor was changed in place; torch counts the "
                "changes of what went through ctx.save_for_backward, whatever it then holds."
            )
            return _found("guarded", call, case, text)
        if _compare_grads("guarded", "gradient", call, case, grads, expected.grads):
            name = names[int(what.split()[1])] if what.startswith("argument") else what
            text = (
                f"You keep {name} where torch does not watch it, as an attribute of ctx or as a tensor that shares its "
                "memory: when it is changed in place before backward, the gradient is silently wrong. Use "
                "ctx.save_for_backward."
            )
            return _found("guarded", call, case, text)
    return None


def allowed(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether a forbidden operator ran, or backward called autograd."""
    if yours.nested:  # what runs inside is no choice of the author's
        text = "Backward calls torch.autograd; write the vector-Jacobian product yourself."
        return _found("allowed", call, case, text)
    if yours.denied:
        text = f"This task is to be solved without {yours.denied[0]}."
        return _found("allowed", call, case, text, ran=yours.denied[0])
    return None


def keeps_nothing(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether anything beside the arguments and the output stays in memory for backward."""
    if yours.kept_bytes:
        text = f"{yours.kept_bytes} bytes beside the input and the output are kept for backward."
        return _found("keeps", call, case, text, yours=f"{yours.kept_bytes} bytes", expected="0 bytes")
    return None


def keeps_at_most(limit: int, look: str = "bytes") -> Look:
    """Return a look at what stays in memory for backward beside the arguments and the output, to the byte.

    Args:
        limit: so many bytes.
        look: "bytes" tells mistakes apart by how much they keep, "keeps" does not.
    """

    def keeps_at_most(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
        if "trace" not in case.watch or yours.kept_bytes <= limit:
            return None
        text = f"{yours.kept_bytes} bytes beside the arguments and the output are kept for backward."
        return _found(look, call, case, text, yours=f"{yours.kept_bytes} bytes", expected=f"at most {limit} bytes")

    return keeps_at_most


def keeps_output_alone(call: str, case: Case, yours: Record, expected: Record) -> Finding | None:
    """Look whether only the output is kept for backward."""
    if "trace" in case.watch and yours.kept_arguments:
        text = "The input is kept for backward; the output alone is enough."
        return _found("keeps", call, case, text, yours="input kept", expected="only the output kept")
    return keeps_nothing(call, case, yours, expected)


# looks that go by the word of an observer beside the student's code, in cases that watch nothing too
WORDS: frozenset[Look] = frozenset([stream, untouched])

FORWARD: tuple[Look, ...] = (exists, runs, returns, shape, dtype, value)
FIRST: tuple[Look, ...] = (exists, runs, returns, shape, function, gradient)
SECOND: tuple[Look, ...] = (exists, runs, returns, shape, function, gradient, second_order)
CONTRACT: tuple[Look, ...] = (*FIRST[:-1], sound, untouched, stateless, guarded, allowed)


FAR = 1e-3  # relative and absolute
ORDINARY = (0.01, 10.0)
AWKWARD = 100  # a case of a single number, or of none, comes after one of so many


def first_finding(looks: tuple[Look, ...], call: str, triples: list[Triple]) -> Finding | None:
    """Return what the first look finds that finds anything, in the case in which it is clearest."""
    spare = None
    for look in looks:
        failing = [(triple, found) for triple in triples if (found := look(call, *triple))]
        if any(found.look == "precise" or found.tiny for _, found in failing) and any(map(_far, triples)):
            failing = [pair for pair in failing if pair[1].look != "precise"]  # rounding is not what is wrong
            if failing and all(found.tiny for _, found in failing):  # what is wrong shows in ordinary numbers too
                spare = spare or _clearest(failing)
                continue
        if failing:
            return _clearest(failing)
    return spare


def _clearest(failing: list[tuple[Triple, Finding]]) -> Finding:
    """Return the finding in the case in which it is clearest, which gives all of them."""
    first = min(failing, key=lambda pair: _unclear(pair[0]))
    return replace(first[1], failing=partial(iter, [first, *(pair for pair in failing if pair is not first)]))


def _far(triple: Triple) -> bool:
    """Return whether a number of 64 bits is off by more than any rounding to 32 makes of it."""
    _, yours, expected = triple
    pairs: list[tuple[Tensor | None, Tensor | None]] = [*zip(yours.outputs, expected.outputs, strict=False)]
    pairs += zip(yours.grads or (), expected.grads or (), strict=False)
    return any(
        a is not None
        and b is not None
        and a.dtype == b.dtype
        and b.dtype in WIDE
        and a.shape == b.shape
        and not torch.allclose(a, b, rtol=FAR, atol=FAR, equal_nan=True)
        for a, b in pairs
    )


def _ordinary(numbers: Tensor) -> bool:
    """Return whether the largest number is of a size that a person would write."""
    return not numbers.numel() or ORDINARY[0] <= float(numbers.abs().max()) <= ORDINARY[1]  # nan is neither


def _unclear(triple: Triple) -> tuple[bool, bool, bool, bool, bool, int]:
    """Return what makes a case a poor first one.

    No numbers, a narrow dtype, tiny differences, a fault hidden by equal numbers (zeros, above all) or by an upstream
    gradient of another size, numbers far from 1, many numbers.
    """
    given = [a for a in triple[0].args if isinstance(a, Tensor)]
    narrow = any(inexact(a) and a.dtype not in WIDE for a in given)
    numbers = sum(a.numel() for a in given)
    empty = any(not a.numel() for a in given)
    floats = [a.detach() for a in given if inexact(a)]
    equal = any(a.numel() > 1 and bool((a == a.flatten()[0]).all()) for a in floats)
    upstream = triple[0].upstream
    ups = upstream if isinstance(upstream, tuple) else (upstream,)
    hidden = equal or not all(u is None or _ordinary(u) for u in ups)
    extreme = not all(map(_ordinary, floats))
    return empty, narrow, not _far(triple), hidden, extreme, numbers if numbers > 1 else AWKWARD


def _narrow(r: Record) -> tuple[bool, ...]:
    """Return which of the numbers of 64 bits would pass through 32 unchanged."""
    wide = [t for t in (*r.outputs, *(r.grads or ())) if t is not None and t.dtype in WIDE]
    return tuple(same(t.to(WIDE[t.dtype]).to(t.dtype), t) for t in wide)


def ordinary(case: Case) -> bool:
    """Return whether a case has tensors of 64-bit numbers, some near 1, in a row or more."""
    given = [a for a in case.args if isinstance(a, Tensor) and inexact(a)]
    ups = case.upstream if isinstance(case.upstream, tuple) else (case.upstream,)
    wide = all(a.dtype in WIDE and a.numel() and a.ndim for a in given)
    return bool(given) and wide and all(u is None or _ordinary(u) for u in (*given, *ups))


# What a look at memory and manners has to go by, beside the numbers.
SYMPTOMS: dict[str, Callable[[Record], tuple[object, ...]]] = {
    "precise": _narrow,
    "untouched": lambda r: (r.changed, r.shares_memory, r.sibling),
    "stateless": lambda r: (r.interleaved, r.repeated),
    "guarded": lambda r: r.overwritten,
    "allowed": lambda r: (r.denied, r.nested),
    "by hand": lambda r: (r.nested,),
    "keeps": lambda r: (r.kept_bytes > 0, r.kept_arguments),
    "bytes": lambda r: (r.kept_bytes,),
    "stream": lambda r: (r.drawn,),
    "no function": lambda r: (r.custom,),
    "counts": lambda r: r.tally,
    # roughly: a right solution may pad or copy a little, and what is small tells nothing
    "largest": lambda r: tuple((elements >> 6).bit_length() for elements in r.largest),
    "peak": lambda r: tuple(size >= 1 << 13 for size in r.peak),
}


NAMES = r"\b\w+Backward|'[^']*'|(?<=modified by an inplace operation).*"


# what a number, a tuple or None lacks tells one mistake from another, and none of the names is the student's
LACKS = re.compile(r"'(NoneType|float|int|bool|str|tuple|list|dict|Tensor)' object has no attribute '")


def _close(a: object, b: object) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        rtol, atol = TOLERANCE.get(a.dtype, (0, 0))
        return torch.equal(a, b) or torch.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
    return a == b


def same_behaviour(yours: Record, theirs: Record, looks: Collection[str] = tuple(SYMPTOMS)) -> bool:
    """Return whether two records show the same behaviour: the numbers up to rounding, and the symptoms of `looks`."""

    def told(r: Record) -> tuple[object, ...]:
        # messages tell mistakes apart, but for what depends on names, or on how often a tensor was changed
        said = r.failure and re.sub(NAMES, "", r.failure.message, flags=re.S)
        if r.failure and LACKS.search(r.failure.message):
            said = r.failure.message
        failure = r.failure and (r.failure.stage, r.failure.kind, said)
        numbers: tuple[object, ...] = (failure, r.kind, r.outputs, r.numbers, r.differentiable, r.function, r.grads)
        numbers += () if set(looks) == {"gradient"} else (r.second,)  # a wrong gradient's own derivative may be any
        return numbers, tuple(SYMPTOMS[look](r) for look in looks if look in SYMPTOMS)

    return _close(told(yours), told(theirs))
