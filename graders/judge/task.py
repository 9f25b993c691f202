"""Tasks, their checks and known mistakes, and the judging of an operation against them."""

import re
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Any, TypeVar

import torch
from torch import Tensor

from graders.inside.observe import fresh, surroundings
from graders.inside.operation import Operation, OperationError, local
from graders.inside.pristine import pristine
from graders.inside.records import Case, Helper, Record
from graders.inside.wire import WireError
from graders.judge.looks import OBSERVED, SYMPTOMS, Finding, Forbids, Look, allowed, first_finding, same_behaviour
from graders.judge.reading import forbidden
from graders.judge.verdict import Verdict

HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
DTYPES = (HALF, BRAIN, SINGLE, DOUBLE)
NUMBERS = ("value", "gradient", "second order")  # the looks whose message ends with why the check matters
# what torch's gradcheck raises, also of numbers that fit nothing
REFUSALS = (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AssertionError, AttributeError)
W = TypeVar("W", bound=type[Any] | Callable[..., Any])  # a class with ``apply``, or a function
FRESH = 1_000_003  # added to the seed for the inputs on which a mistake is recognised


def operators(names: str) -> tuple[str, ...]:
    """Operators for `Case.deny`, with their in-place forms and backwards as far as torch has them.

    Args:
        names: separated by spaces, without the ``aten::``.
    """
    found = []
    for name in names.split():
        forms = (f"aten::{name}_", f"aten::{name}_backward")
        found += [f"aten::{name}", *(form for form in forms if _schemas(form))]
    return tuple(found)


def _schemas(operator: str) -> list[Any]:
    schemas: list[Any] = torch._C._jit_get_schemas_for_operator(operator)
    return schemas


MASKS = operators(  # torch's own backwards of what is linear in pieces: with the right numbers each is any other
    "threshold_backward hardtanh_backward leaky_relu_backward elu_backward _prelu_kernel_backward "
    "rrelu_with_noise_backward"
)


@cache
def _known_to_torch(name: str) -> None:
    """Whether a case can deny this.

    Raises:
        ValueError: there is no such operator, or no such Python function, or the observer needs it itself.
    """
    if "::" in name:
        operator, _, overload = name.partition(".")
        known = any(not overload or schema.overload_name == overload for schema in _schemas(operator))
    else:
        module, _, function = name.rpartition(".")
        known = isinstance(getattr(import_module(module), function, None), FunctionType)
        known = known and name not in ("torch.autograd.grad", "torch.autograd.backward")
    if not known:
        raise ValueError(f"{name} cannot be denied: no operator of torch's, nor a Python function that may be stopped")


class Draw:
    """Seeded inputs, and the cases made of them.

    Args:
        reference: the right operation; gives the shape of the upstream gradient.
        seed: the one source of chance.
    """

    def __init__(self, reference: Callable[..., Any], seed: int) -> None:
        self.reference = reference
        self.random = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=self.random, dtype=DOUBLE).to(dtype)

    def between(self, low: float, high: float, *shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
        """Uniform numbers."""
        return (low + (high - low) * torch.rand(shape, generator=self.random, dtype=DOUBLE)).to(dtype)

    def sides(self, *shape: int, away: float = 0.1, reach: float = 2.0, dtype: torch.dtype = DOUBLE) -> Tensor:
        """Numbers of both signs in turn, at least `away` from 0."""
        size = self.between(away, reach, *shape)
        signs = 1.0 - 2.0 * (torch.arange(size.numel()) % 2).double()
        return (size * signs.reshape(shape)).to(dtype)

    def scales(self, *shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
        """Numbers of both signs in turn and of every size from 1e-6 to 1000."""
        return self.sides(*shape, away=1, reach=1, dtype=dtype) * 10 ** self.between(-6, 3, *shape, dtype=dtype)

    def case(
        self,
        name: str,
        *args: object,
        order: int = 1,
        upstream: Tensor | None = None,
        keywords: tuple[str, ...] = (),
        watch: tuple[str, ...] = (),
        deny: tuple[str, ...] = (),
        requires: tuple[bool, ...] | None = None,
        provide: tuple[str, ...] = (),
        between: tuple[object, ...] | None = None,
        how: str = "grad",
        within: str = "",
    ) -> Case:
        """A case whose floating arguments require gradients.

        Args:
            order: 0: forward; 1: and backward; 2: and backward of backward.
            upstream: in place of a random one of the output's shape.
            requires: which arguments require a gradient, where it is not all of the floating ones.
            keywords, watch, deny, provide, between, how, within: as in `Case`.
        """
        for denied in deny:
            _known_to_torch(denied)
        flags = requires or tuple(isinstance(a, Tensor) and a.is_floating_point() for a in args)
        case = Case(name, args, keywords, flags, None, None, watch, deny, provide, between, how, within)
        upstreams: Tensor | tuple[Tensor, ...] | None = upstream
        if order and upstream is None:
            with pristine(), surroundings(case):
                output = self.reference(*[fresh(a) if isinstance(a, Helper) else a for a in args])
            upstreams = tuple(map(self._upstream, output)) if isinstance(output, tuple) else self._upstream(output)
        directions = None
        if isinstance(upstreams, tuple) and (order == 2 or watch):
            raise ValueError(f"{name}: of several outputs nothing is watched, and no second order")
        if order == 2:
            asked = [a for a, f in zip(args, flags, strict=True) if f and isinstance(a, Tensor)]
            directions = tuple(self.normal(*a.shape, dtype=a.dtype) for a in asked)
        return replace(case, upstream=upstreams if order else None, directions=directions)

    def _upstream(self, output: Tensor) -> Tensor:
        if output.dtype in (HALF, BRAIN):  # not above 1: it multiplies the rounding of the rest
            return self.sides(*output.shape, away=0.25, reach=1, dtype=output.dtype)
        return self.normal(*output.shape, dtype=output.dtype)

    def forms(self, sample: Callable[..., Tensor], *rest: object, order: int = 1) -> list[Case]:
        """An elementwise operation's input in every dtype, shape and layout.

        Args:
            sample: called with a shape and a dtype.
            rest: the other arguments.
        """
        wide = sample(4, 3)
        inputs = [(f"a {str(d).removeprefix('torch.')} input", sample(2, 3, dtype=d)) for d in DTYPES] + [
            ("a 0-d input", sample()),
            ("a 0-d float16 input", sample(dtype=HALF)),
            ("an empty input", sample(0, 3)),
            ("a 3-d input", sample(2, 1, 3)),
            ("a transposed input", sample(3, 2).t()),
            ("every second row", wide[::2]),
            ("an expanded input", sample(1, 3).expand(2, 3)),
        ]
        cases = [self.case(name, x, *rest, order=order) for name, x in inputs]
        if order:
            upstream = self.normal(2, 1, 3).expand(2, 2, 3)  # neither view(-1) nor view(-1, 3) takes it
            cases.append(
                self.case("an expanded upstream gradient", sample(2, 2, 3), *rest, order=order, upstream=upstream)
            )
        return cases


@dataclass(frozen=True)
class Check:
    """One aspect of a task: one grade cell.

    Args:
        name: the last part of the grade cell's name.
        points: what it earns, all or nothing.
        about: one line, printed in the grade cell for the student.
        why: why it matters; ends a message that names no known mistake.
        cases: inputs that reach every branch.
        looks: what is looked at, in order.
        gradcheck: arguments on which torch's gradcheck (or with `order` 2 gradgradcheck) must pass as well.
    """

    name: str
    points: float
    about: str
    why: str
    cases: Callable[[Draw], list[Case]]
    looks: tuple[Look, ...]
    gradcheck: Callable[[Draw], tuple[Any, ...]] | None = None
    order: int = 1


@dataclass(frozen=True)
class Mistake:
    """A wrong idea with a name: an operation that a person would write.

    Args:
        name: as the chapters tag it.
        caught_by: the check that must catch it.
        message: one or two sentences to its author.
    """

    name: str
    caught_by: str
    message: str
    operation: Callable[..., Any]


@dataclass(eq=False)
class Task:
    """What a student is asked for, how it is judged, and the mistakes that are known.

    Args:
        name: the solution cell's name.
        call: how the task's text writes the call: ``Square.apply(x)``.
        reference: the right operation, in differentiable torch.
        checks: in the order of the grade cells.
        forbids: what may not be used, for the checks that forbid anything.
    """

    name: str
    call: str
    reference: Callable[..., Any]
    checks: tuple[Check, ...]
    forbids: Forbids | None = None
    mistakes: list[Mistake] = field(default_factory=list)
    solutions: dict[str, Callable[..., Any]] = field(default_factory=dict)

    @property
    def points(self) -> float:
        """What the task is worth."""
        return sum(c.points for c in self.checks)

    def mistake(self, caught_by: str, message: str) -> Callable[[W], W]:
        """Decorator: a wrong solution. Its name is the mistake's, a Function's ``apply`` is the operation."""

        def add(wrong: W) -> W:
            self.mistakes.append(Mistake(wrong.__name__, caught_by, message, _operation(wrong)))
            return wrong

        return add

    def solution(self, right: W) -> W:
        """Decorator: a right solution, kept for the tests."""
        self.solutions[right.__name__] = _operation(right)
        return right

    def check(self, name: str) -> Check:
        """The check of that name."""
        return next(c for c in self.checks if c.name == name)

    def judge(self, name: str, operation: Operation, seed: int = 0) -> Verdict:
        """Put the operation through one check.

        Args:
            name: the check's.
            operation: the student's, wherever it runs.
            seed: of all inputs.
        """
        try:
            return self._judge(self.check(name), operation, seed)
        except WireError as error:
            message = f"What came back from your code was damaged, so nothing can be said of it: {error}."
            return Verdict(self.name, name, self.check(name).points, 0.0, message)

    def _judge(self, check: Check, operation: Operation, seed: int) -> Verdict:
        finding = self.find(check, operation, seed)
        if finding is None:
            count = len(self._expected(check, seed)[0])
            message = f"Right in {count} case{'s' * (count > 1)}" + (
                ", and gradcheck agrees." if check.gradcheck else "."
            )
            return Verdict(self.name, check.name, check.points, check.points, message)
        mistake = (
            None
            if finding.look in ("exists", "source")
            else self._recognise(check, finding.look, operation, seed + FRESH)
        )
        message = (
            mistake.message
            if mistake
            else f"{finding.message} {check.why}"
            if finding.look in NUMBERS
            else finding.message
        )
        return Verdict(
            self.name,
            check.name,
            check.points,
            0.0,
            message,
            finding.evidence,
            mistake=mistake.name if mistake else "",
            look=finding.look,
        )

    def find(self, check: Check, operation: Operation, seed: int) -> Finding | None:
        """What the check finds wrong first; None: nothing."""
        cases, expected = self._expected(check, seed)
        finding = self._find(check, cases, operation.observe(cases), expected)
        return finding or self._gradcheck(check, operation, seed) or self._source(check, cases, operation.source)

    def _source(self, check: Check, cases: list[Case], source: str | None) -> Finding | None:
        """What the text of the submission shows of what the check forbids."""
        if source is None:
            return None
        if self.forbids and (allowed in check.looks or any(c.deny for c in cases)):
            forbids = self.forbids
        elif any(c.watch for c in cases):
            forbids = OBSERVED
        else:
            return None
        use = forbidden(source, re.split(r"\W", self.call)[0], forbids)
        return None if use is None else Finding("source", f"{forbids.says} {use.sentence}", use.evidence)

    def _draw(self, check: Check, seed: int) -> Draw:
        return Draw(self.reference, seed * 1009 + zlib.crc32(f"{self.name} {check.name}".encode()))

    @cache  # noqa: B019 (a task lives as long as the program)
    def _expected(self, check: Check, seed: int) -> tuple[list[Case], list[Record]]:
        """The cases of a check and the reference's records of them."""
        cases = check.cases(self._draw(check, seed))
        return cases, local(self.reference).observe(cases)

    @cache  # noqa: B019
    def _record(self, mistake: Mistake, check: Check, seed: int, place: int) -> Record:
        """A mistake's record of one case."""
        return local(mistake.operation).observe([self._expected(check, seed)[0][place]])[0]

    def _known(self, mistake: Mistake, check: Check, seed: int) -> list[Record]:
        """A mistake's records of all cases of a check."""
        return [self._record(mistake, check, seed, i) for i in range(len(self._expected(check, seed)[0]))]

    def _fits(self, mistake: Mistake, check: Check, seed: int, yours: list[Record], looks: Collection[str]) -> bool:
        """Whether a mistake behaves as these records say; most part after a case or two."""
        return all(same_behaviour(r, self._record(mistake, check, seed, i), looks) for i, r in enumerate(yours))

    def _loses_by(self, mistake: Mistake, check: Check, seed: int) -> str:
        """The look that finds fault with a mistake, gradcheck apart; "": none."""
        cases, expected = self._expected(check, seed)
        finding = self._find(check, cases, self._known(mistake, check, seed), expected)
        return finding.look if finding else ""

    def _find(self, check: Check, cases: list[Case], yours: list[Record], expected: list[Record]) -> Finding | None:
        finding = first_finding(check.looks, self.call, list(zip(cases, yours, expected, strict=True)))
        if finding and self.forbids and (operator := finding.evidence.get("ran")):
            return replace(finding, message=f"{self.forbids.says} Yours runs {operator}.")
        return finding

    def _gradcheck(self, check: Check, operation: Operation, seed: int) -> Finding | None:
        if check.gradcheck is None:
            return None
        name = "gradcheck" if check.order == 1 else "gradgradcheck"
        try:
            with operation.prepared(self._rehearsal(check, seed)):
                self._run_gradcheck(check, operation, seed)
        except OperationError as error:
            return Finding("gradcheck", f"Under {name} your code raised {error}")
        except WireError:
            raise
        except REFUSALS as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(",")
            return Finding("gradcheck", f"torch.autograd.{name} refuses: {first}")
        return None

    @cache  # noqa: B019
    def _rehearsal(self, check: Check, seed: int) -> list[bytes]:
        """What gradcheck asks, found out on the reference."""
        reference = local(self.reference)
        self._run_gradcheck(check, reference, seed)
        return reference.asked

    def _run_gradcheck(self, check: Check, operation: Operation, seed: int) -> None:
        """Torch's gradcheck of the operation, or, at order 2, of its vector-Jacobian product: that is gradgradcheck."""
        assert check.gradcheck is not None  # it is asked for
        args = [
            a.requires_grad_() if isinstance(a, Tensor) and a.is_floating_point() else a
            for a in check.gradcheck(self._draw(check, seed))
        ]
        function: Callable[..., Tensor | tuple[Tensor, ...]] = operation
        if check.order == 2:
            function, output = operation.vjp, self.reference(*args)
            args.append(torch.linspace(-1, 1.5, output.numel(), dtype=DOUBLE).reshape(output.shape).requires_grad_())
        with pristine():
            # undefined upstream gradients become zeros on the way, so torch's test of them would test nothing
            torch.autograd.gradcheck(function, args, fast_mode=True, check_undefined_grad=False)

    def _recognise(self, check: Check, look: str, operation: Operation, seed: int) -> Mistake | None:
        """The one known mistake that behaves, on fresh inputs, as this operation does; None if several do.

        First the check that failed: its numbers, and what it had to go by. Where several mistakes fit, the numbers of
        the other checks, and then all that was observed, may tell them apart.
        """
        others = [c for c in self.checks if c is not check]
        yours = operation.observe(self._expected(check, seed)[0])
        fitting = [m for m in self.mistakes if self._fits(m, check, seed, yours, [look])]
        fitting = [m for m in fitting if self._loses_by(m, check, seed) == look]
        for checks, looks in ((others, []), (self.checks, SYMPTOMS)):
            for tried in checks if len(fitting) > 1 else ():
                yours = operation.observe(self._expected(tried, seed)[0])
                fitting = [m for m in fitting if self._fits(m, tried, seed, yours, looks)]
        return fitting[0] if len(fitting) == 1 else None


def _operation(thing: type[Any] | Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(thing, type):
        return thing
    function: Any = thing
    apply: Callable[..., Any] = function.apply
    return apply
