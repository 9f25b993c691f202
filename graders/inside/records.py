"""What a check asks of an operation, and what the operation was seen to do: plain data, nothing else.

A `Case` goes to where the student's code runs; a `Record` comes back. Both travel over a pipe (`wire`), so they hold
tensors, numbers, strings, None and tuples of these, never code.
"""

from dataclasses import dataclass

from torch import Tensor

Gradients = tuple[Tensor | None, ...]  # None: nothing arrived there

SETTINGS = (  # what of torch's own a `Record` may name as changed
    "the anomaly detection",
    "the autocast state",
    "the default device",
    "the default dtype",
    "the gradient mode",
    "the random stream",  # by backward
    "the saved-tensor hooks",
    "the stack of modes",
)


@dataclass(frozen=True)
class Helper:
    """An argument that is code: the name of a function in `graders.inside.helpers` (the f of an ``hvp``, say).

    Args:
        name: the function's.
        args: None: the function is the argument. Else it is called, for each call of the operation anew, with copies of
            these, and what it returns is the argument: an iterator, a function with parameters.
        requires_grad: one bool for each of `args`. What gradients they get is compared after those of the arguments.
    """

    name: str
    args: tuple[object, ...] | None = None
    requires_grad: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Case:
    """One call of the operation, and what to observe around it.

    Args:
        name: what a verdict calls it: "a 0-d input".
        args: tensors, numbers, None, `Helper`s and tuples of these, by position. Strides are part of a tensor.
        keywords: names for the last arguments, which are then passed by keyword.
        requires_grad: one bool an argument; False for what is not a floating tensor.
        upstream: the upstream gradient, of the output's shape, or a tuple of them where the output is one; None: only
            the forward runs.
        directions: one tensor for each argument that requires a gradient; None: no second order. The second order is
            the gradient of ``sum_i <gradient_i, direction_i>`` with respect to those and the upstream gradient.
        watch: what to observe besides, where one tensor is returned: "trace" (what is kept for backward, which
            operators run), "state" (another forward in between, backward twice, and an ordinary backward before the one
            of second order), "overwrite" (each tensor changed in place before backward).
        deny: operators, as ``aten::tanh``, whose use a "trace" reports; or Python functions, by their full names, that
            raise while the operation runs.
        provide: helpers that take the place of the names they share in the operation's module, so that one task may
            rest on another without suffering from its faults.
        between: the arguments of the forward in between that "state" runs, within nothing; a tensor with the numbers of
            one of `args` is that tensor; None: other tensors and floats than `args`.
        how: "grad": gradients come from ``torch.autograd.grad``; "backward": from ``backward``, into ``.grad``,
            as what calls autograd in its own backward needs; "constant": as "grad", and in the second order the
            upstream gradient requires none, as in ``torch.autograd.functional.hessian``; "conjugated": as "grad",
            and the upstream gradient is one whose conjugation torch has put off, as after ``y.conj()``.
        refuse: "operators": those of `deny` are refused where the case runs; "nothing": they are watched alone;
            "autograd": they are refused and all of torch's own autograd, and the outputs and first-order gradients are
            all that is looked at. Numbers that come from there were computed by what the student wrote.
        within: what a pass runs within, one of `observe.WITHIN`: "autocast" and "autocast in float16" (bfloat16
            without the name) and "no_grad" are around the forward alone, "autocast around backward" is around that.
    """

    name: str
    args: tuple[object, ...]
    keywords: tuple[str, ...] = ()
    requires_grad: tuple[bool, ...] = ()
    upstream: Tensor | tuple[Tensor, ...] | None = None
    directions: tuple[Tensor, ...] | None = None
    watch: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    provide: tuple[str, ...] = ()
    between: tuple[object, ...] | None = None
    how: str = "grad"
    within: str = ""
    refuse: str = "operators"

    def __post_init__(self) -> None:
        if self.how not in ("grad", "backward", "constant", "conjugated"):
            raise ValueError(f"a case's gradients come by no way called {self.how!r}")
        if self.refuse not in ("operators", "nothing", "autograd"):
            raise ValueError(f"a case refuses nothing called {self.refuse!r}")


@dataclass(frozen=True)
class Failure:
    """An exception of the student's code.

    Attributes:
        stage: "exists", "forward", "setup_context", "backward", "second backward", "second order", "gradcheck", or
            "result": what came back cannot be looked at.
        kind: the exception's type.
        message: its text.
    """

    stage: str
    kind: str
    message: str

    @property
    def called(self) -> bool:
        """Whether the call itself raised, and no backward."""
        return self.stage in ("forward", "setup_context")


@dataclass
class Record:
    """What one case showed.

    Numbers are proof; what is said of memory and operators is the observer's word, so it can be forged by student code.

    Attributes:
        failure: the first exception; what comes after its stage was not observed.
        kind: "Tensor", or the name of the type returned.
        outputs: the tensors returned.
        numbers: the Python numbers returned, where no tensors were.
        differentiable: whether each output requires a gradient.
        function: whether the output's gradient is made by Python `torch.autograd.Function`s alone.
        custom: whether any Python `torch.autograd.Function` is in its graph.
        grads: per argument that requires one, its gradient or None. None as a whole: not asked, or not possible.
        second: the second order, likewise; the last entry belongs to the upstream gradient.
        changed: what was changed in place: "argument 0" (or a tensor that its helper holds), "argument 0 .grad" (or
            another of its parts, as "._backward_hooks" where a hook was left on it), "the upstream gradient", "the
            output"; and `SETTINGS`.
        shares_memory: whether an output uses an argument's memory.
        sibling: the gradient of a tensor that was added to the output: the upstream gradient, if nobody wrote into it.
        interleaved: the gradients when another forward runs before backward.
        repeated: the gradients of a second backward through the same graph.
        overwritten: per tensor changed in place before backward, (its name, the gradients, or None where that raised);
            where it raised, and does not if the tensor holds what it held, (its name .version, the gradients) as well.
        kept_bytes: what stays in memory for backward beside the arguments and the numbers of the outputs.
        kept_arguments: the arguments (by position) that are kept for backward.
        denied: operators of `Case.deny` that ran, with the pass: "aten::tanh in backward".
        nested: whether a backward called `torch.autograd`.
        tally: what the helpers counted during the first call, its backward included, as (name, number).
        drawn: a random number drawn after the forward, which shows where that left the random stream.
        largest: the elements of the largest tensor made by forward, and by backward; arguments and their views apart.
        peak: the bytes of all that forward had made, and backward, at the moment when most of it was alive.
    """

    failure: Failure | None = None
    kind: str = ""
    outputs: tuple[Tensor, ...] = ()
    numbers: tuple[int | float, ...] = ()
    differentiable: tuple[bool, ...] = ()
    function: bool = False
    custom: bool = False
    grads: Gradients | None = None
    second: Gradients | None = None
    changed: tuple[str, ...] = ()
    shares_memory: bool = False
    sibling: Tensor | None = None
    interleaved: Gradients | None = None
    repeated: Gradients | None = None
    overwritten: tuple[tuple[str, Gradients | None], ...] = ()
    kept_bytes: int = 0
    kept_arguments: tuple[int, ...] = ()
    denied: tuple[str, ...] = ()
    nested: bool = False
    tally: tuple[tuple[str, int], ...] = ()
    drawn: float = 0.0
    largest: tuple[int, ...] = ()
    peak: tuple[int, ...] = ()
