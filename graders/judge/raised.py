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
    said = f"The shapes do not fit: your gradient of {name} has shape {got}, and {name} has {wanted}."
    if got == "()" and wanted != "()":
        said += " A plain .sum() adds everything up: add up only what was broadcast."
    return Raised(said, heading)


def _wrong_count(found: re.Match[str], names: Sequence[str], heading: str) -> Raised:
    wanted, got = found.groups()
    what = f"{got} gradient{'s' * (got != '1')}, and forward takes {wanted} argument{'s' * (wanted != '1')}"
    return Raised(f"Your backward returns {what}: return one for each, None where there is none.", heading)


def _always(sentence: str) -> Say:
    return lambda found, names, heading: Raised(sentence, heading)


NOT_UNPACKED = (
    "A tuple stands where a tensor is meant. ctx.saved_tensors is a tuple, also of one tensor: unpack it by "
    "(x,) = ctx.saved_tensors. So is inputs in setup_context."
)
WITH_CTX = (
    "Your forward does not take what it is called with. Beside a setup_context it gets the arguments alone, as in "
    "forward(x); without one it gets ctx before them."
)
MEANINGS: tuple[tuple[re.Pattern[str], Say, str], ...] = (
    (
        re.compile(r"save_for_backward can only save variables"),
        _always(
            "save_for_backward takes tensors one by one, and no tuple, list or number. Unpack a tuple with a star, as "
            "in ctx.save_for_backward(*inputs); keep a number as an attribute of ctx."
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
        re.compile(
            r"missing a required argument|too many positional arguments"
        ),  # of inspect, which torch has bind them
        _always(WITH_CTX),
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
        re.compile(r"Boolean value of Tensor with more than one value is ambiguous"),
        _always(
            "Python's if, and, or, min and max want one truth value, and a tensor has one for each element: choose "
            "with torch.where."
        ),
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
