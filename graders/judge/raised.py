"""What torch's errors mean in an answer: the repair in a sentence, and the section of the book on the message."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graders.judge.places_table import SAVED_NUMBER


@dataclass(frozen=True)
class Raised:
    """What is said of an exception.

    Args:
        sentence: what to change; "": torch's own words say it.
        heading: the section of the page on error messages; "": none.
    """

    sentence: str
    heading: str = ""


Say = Callable[[re.Match[str], Sequence[str], str], Raised]  # of what was found, the arguments' names, the heading


def _shape(text: str) -> str:
    """Return a shape as Python writes it: "(3,)" of "3", "()" of nothing."""
    sizes = [size.strip() for size in text.split(",") if size.strip()]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def _wrong_shape(found: re.Match[str], names: Sequence[str], heading: str) -> Raised:
    place, got, wanted = int(found[1]), _shape(found[2]), _shape(found[3])
    name = names[place] if place < len(names) else f"argument {place + 1}"
    said = f"Your gradient of {name} has shape {got}, and {name} has {wanted}: "
    if got == "()" and set(found[3].replace(" ", "").split(",")) == {"1"}:
        said += f"the sum is one number, as it should be. Give it the shape: .reshape({name}.shape)."
        return Raised(said, heading)
    alone = len(names) == 1  # then no other argument's gradient can have come in its place
    if got == "()" and alone:
        said += "it is added up too far, as a plain .sum() does. Add up only what was broadcast."
    elif got == "()":
        said += (
            "either it is added up too far, as a plain .sum() does, or it stands in another argument's place. Add up "
            "only what was broadcast, and return the gradients in the order of forward's arguments."
        )
    else:
        said += "the shapes do not fit."
        said += " Gradients come in the order of forward's arguments, each in its argument's shape." * (not alone)
    return Raised(said, heading)


def _wrong_count(found: re.Match[str], names: Sequence[str], heading: str) -> Raised:
    wanted, got = found.groups()
    what = f"{got} gradient{'s' * (got != '1')}, and forward takes {wanted} argument{'s' * (wanted != '1')}"
    return Raised(f"Your backward returns {what}: return one for each, None where there is none.", heading)


def _not_none(found: re.Match[str], names: Sequence[str], heading: str) -> Raised:
    place = int(found[1])
    name = names[place - 1] if 0 < place <= len(names) else f"argument {place}"
    return Raised(
        f"Your backward returns a gradient for {name}, and {name} is not a tensor: return None for it. Gradients come "
        "in the order of forward's arguments.",
        heading,
    )


def _whole(found: re.Match[str], names: Sequence[str], heading: str) -> Raised:
    what = f"{'largest' if 'max' in found[1] else 'smallest'} number of the whole tensor"
    end = "amax" if "max" in found[1] else "amin"
    return Raised(
        f"{found[1]}() without dim takes the {what}, and an empty tensor has none: where each row or column has its "
        f"own, write x.{end}(dim, keepdim=True).",
        heading,
    )


def _unbound(found: re.Match[str], names: Sequence[str], heading: str) -> Raised:
    name = found[1] or found[2]
    return Raised(
        f"{name} gets its value in a branch or a loop that did not run in this case, and is used after it: give it one "
        "in every case, also where another argument alone wants a gradient.",
        heading,
    )


def _keyword(found: re.Match[str], names: Sequence[str], heading: str) -> Raised:
    return Raised(
        f"The caller names an argument {found[1]}, and your forward has none of that name: call it as the task's text "
        "does.",
        heading,
    )


def _always(sentence: str) -> Say:
    return lambda found, names, heading: Raised(sentence, heading)


NOT_UNPACKED = (
    "A tuple or a list stands where a tensor is meant. ctx.saved_tensors is a tuple, even of one tensor: unpack it by "
    "(x,) = ctx.saved_tensors. So is inputs in setup_context, and what chunk and split return."
)
IN_PLACE = (
    "An operation that works in place (its name ends in _, or it is x[...] = ..., += or *=) writes into a tensor that "
    "belongs to the caller, an argument or the upstream gradient: use the version without, which makes a new tensor."
)
WITH_CTX = (
    "Your forward does not take what it is called with. Beside a setup_context it gets the arguments alone, as in "
    "forward(x); without one it gets ctx before them."
)
EXPANDED = (
    "An operation that works in place (its name ends in _, or it is x[...] = ..., += or *=, or one inside a function "
    "of torch's) writes into an expanded tensor, whose elements share a place in memory: use the version without, "
    "which makes a new tensor. An argument and the upstream gradient belong to the caller."
)


def _bound(found: re.Match[str], names: Sequence[str], heading: str) -> Raised:
    if found[1] is None or found[1] in names:
        return Raised(WITH_CTX, heading)
    own = f" Callers may also name the arguments, as the task's text does: {found[1]} is none of its names."
    return Raised(WITH_CTX + own, heading)


MEANINGS: tuple[tuple[re.Pattern[str], Say, str], ...] = (
    (
        re.compile(r"save_for_backward can only save variables"),
        _always(
            "save_for_backward takes tensors one by one, and no tuple, list or number. Unpack a tuple with a star, as "
            "in ctx.save_for_backward(*inputs); keep a number as an attribute of ctx, and see that inputs are unpacked "
            "in the order of forward's arguments."
        ),
        SAVED_NUMBER.partition(": ")[2],
    ),
    (
        re.compile(
            r"only integer tensors of a single element can be converted to an index|'tuple' object has no attribute"
            r"|unsupported operand type\(s\) for [^:]{1,20}: ('tuple'|'\w{1,40}' and 'tuple')|must be Tensor, not tuple"
        ),
        _always(NOT_UNPACKED),
        "The comma after the unpacked tensor is missing",
    ),
    (
        re.compile(r"^clamp\(\) received an invalid combination of arguments"),
        _always(
            "clamp takes two numbers or two tensors, and one of each raises: there is no clamp(0, alpha). Clamp once "
            "by a number and once by a tensor, as in x.clamp(min=0).minimum(alpha), or choose with torch.where."
        ),
        "",
    ),
    (
        re.compile(
            r"unsupported operand type\(s\) for [^:]{1,20}: [^:]{0,60}'NoneType'|'NoneType' object "
            r"|must be Tensor, not (None|NoneType)"
        ),
        _always(
            "You compute with None here. It is an optional argument that was left out, or a tensor that you saved only "
            "under a condition: ask whether it is there by `is not None`, and save all that the wanted gradients are "
            "made of."
        ),
        "",
    ),
    (
        re.compile(
            r"missing a required argument: '(\w{1,40})'|too many positional arguments"
        ),  # of inspect: torch binds
        _bound,
        "forward takes ctx, and there is a setup_context",
    ),
    (
        re.compile(r"forward\(\) (missing \d+ required|takes \d+ positional)"),
        _always(WITH_CTX),
        "forward lacks ctx, and there is no setup_context",
    ),
    (
        re.compile(
            r"returned an invalid gradient at index (\d{1,3}) - got \[([\d, ]{0,99})\] but expected shape compatible "
            r"with \[([\d, ]{0,99})\]"
        ),
        _wrong_shape,
        "A gradient has the wrong shape",
    ),
    (
        re.compile(r"returned an incorrect number of gradients \(expected (\d{1,3}), got (\d{1,3})\)"),
        _wrong_count,
        "Too few or too many gradients",
    ),
    (
        re.compile(
            r"returned a gradient different than None at position (\d{1,3}), but the corresponding forward input"
        ),
        _not_none,
        "",
    ),
    (
        re.compile(r"expected Variable or None \(got (float|int|bool|list|tuple)\)"),
        _always(
            "Your backward returns a number or a tuple where the gradient of a tensor belongs: return the upstream "
            "gradient times the slope, a tensor of the argument's shape."
        ),
        "",
    ),
    (
        re.compile(r"Boolean value of Tensor with (more than one value|no values) is ambiguous"),
        _always(
            "Python's if, and, or, min, max and a chained comparison want one truth value, and a tensor has one for "
            "each element: choose with torch.where, write (-1 <= x) & (x <= 1) for -1 <= x <= 1, and ask for an "
            "optional argument by `is not None`."
        ),
        "",
    ),
    (
        re.compile(r"'(builtin_function_or_method|method)'"),
        _always(
            "A method stands where what it returns is meant. Its parentheses are missing: write x.detach(), and not "
            "x.detach."
        ),
        "",
    ),
    (
        re.compile(r'"bitwise_xor_\w{1,20}" not implemented for'),
        _always("^ is not a power in Python, but the exclusive or of bits: write x ** 2, or x * x."),
        "",
    ),
    (
        re.compile(
            r'"bitwise_(and|or)_\w{1,20}" not implemented for'
            r"|unsupported operand type\(s\) for [&|]: '(int|float)' and '(int|float)'"
        ),
        _always(
            "& and | bind before comparisons, and take no floats: put each comparison in parentheses, as in "
            "(x > 0) & (x < c)."
        ),
        "",
    ),
    (
        re.compile(r"leaf Variable that requires grad (is being|has been) used in an in-place operation"),
        _always(IN_PLACE),
        "A leaf was changed in place",
    ),
    (
        re.compile(r"more than one element of the written-to tensor refers to a single memory location"),
        _always(EXPANDED),
        "The upstream gradient was written to",
    ),
    (
        re.compile(r"\b(max|min|amax|amin|argmax|argmin)\(\): Expected reduction dim to be specified for input\.numel"),
        _whole,
        "",
    ),
    (
        re.compile(
            r"only one element tensors can be converted to Python scalars|elements cannot be converted to Scalar"
        ),
        _always(
            "Something of Python's, a function of math or a loop over the elements, takes one number at a time, and "
            "here it got a tensor of several: torch's own functions take every shape."
        ),
        "",
    ),
    (
        re.compile(r"inconsistent tensor size, expected tensor \["),
        _always(
            "Two vectors were multiplied where matrices are meant: .t() leaves a vector as it is, and @ of two "
            "vectors is one number. Make rows of them first, as in g.reshape(-1, g.shape[-1])."
        ),
        "",
    ),
    (
        re.compile(r"cannot access local variable '(\w{1,40})'|local variable '(\w{1,40})' referenced before"),
        _unbound,
        "",
    ),
    (
        re.compile(r"The size of tensor a \(\d{1,19}\) must match the size of tensor b \(\d{1,19}\)"),
        _always(
            "Two tensors meet in one operation, and along one axis their sizes differ and neither is 1: print both "
            "shapes on the line before. Where an input is not square, a size was taken from the wrong tensor or axis."
        ),
        "",
    ),
    (
        re.compile(r"not enough values to unpack \("),
        _always(
            "More names stand on the left than the tuple on the right holds. ctx.saved_tensors has what the last call "
            "of ctx.save_for_backward got, and nothing where there was no call: save all that backward needs in one."
        ),
        "save_for_backward was called twice, or not at all",
    ),
    (
        re.compile(r"tuple index out of range"),
        _always(
            "An index points past the end of a tuple. ctx.needs_input_grad and inputs have one entry for each argument "
            "of forward, the first at 0, and ctx is not among them."
        ),
        "",
    ),
    (
        re.compile(r"Dimension out of range \(expected to be in range of"),
        _always(
            "You count a dimension from the front, and this input has fewer: dim=-1 is the last one whatever the shape "
            "is."
        ),
        "",
    ),
    (
        re.compile(r"shape '\[[\d, -]{0,99}\]' is invalid for input of size \d"),
        _always(
            "A reshape or view asks for another number of elements than there are: a sum before it went over the wrong "
            "axes, or over too few or too many."
        ),
        "",
    ),
    (
        re.compile(r"got an unexpected keyword argument '(\w{1,40})'"),
        _keyword,
        "",
    ),
    (
        re.compile(r"view size is not compatible with input tensor's size and stride"),
        _always(
            "view() needs numbers that lie side by side in memory, and a tensor that was transposed or expanded has "
            "others between them: use reshape, which copies where it must."
        ),
        "",
    ),
    (
        re.compile(r"slice\(\) cannot be applied to a 0-dim tensor|too many indices for tensor of dimension 0"),
        _always(
            "x[...] with a slice needs a dimension, and an x of one number may have none. Nor is x[:] a copy, as it is "
            "of a list: x.clone() is, and an elementwise operation needs no index."
        ),
        "",
    ),
    (
        re.compile(r"NotImplementedError(: your turn|:? ?$)"),
        _always("This line is not written yet: replace the raise by yours, run the cell, and ask again."),
        "",
    ),
    (re.compile(r"element 0 of tensors does not require grad"), _always(""), "No node anywhere"),
    (re.compile(r"modified by an inplace operation"), _always(""), "A saved tensor was changed in place"),
    (re.compile(r"Trying to backward through the graph a second time"), _always(""), "backward ran a second time"),
)


def meaning(message: str, names: Sequence[str] = ()) -> Raised:
    """Return what is known of an exception; of an unknown one nothing is said.

    Args:
        message: its text.
        names: of the arguments of forward.
    """
    for pattern, say, heading in MEANINGS:
        if found := pattern.search(message[:1000]):
            return say(found, names, heading)
    return Raised("")
