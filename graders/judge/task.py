"""Tasks, their checks and known mistakes, and the judging of an operation against them."""

import re
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from graders.inside.operation import Operation, OperationError, local
from graders.inside.pristine import pristine
from graders.inside.records import Case, Record
from graders.inside.refusal import REFUSED
from graders.inside.wire import WireError, inexact
from graders.judge.draw import (  # noqa: F401 (the sets take them from here)
    BRAIN,
    DOUBLE,
    DTYPES,
    HALF,
    MASKS,
    SINGLE,
    Draw,
    operators,
)
from graders.judge.half import kept, whole
from graders.judge.looks import (
    NO_RETURN,
    OBSERVED,
    SYMPTOMS,
    WORDS,
    Finding,
    Forbids,
    Look,
    allowed,
    by_hand,
    first_finding,
    function,
    ordinary,
    same_behaviour,
)
from graders.judge.outside import OUTSIDE, Outside, Weighed
from graders.judge.paste import pasted, pasted_gradcheck
from graders.judge.reading import forbidden
from graders.judge.script import tensors
from graders.judge.verdict import REPLY, Verdict

NUMBERS = ("value", "gradient", "second order")  # the looks whose message ends with why the check matters
PROVED = ("allowed", "by hand")  # the looks that may go by numbers which came where autograd is refused
# what torch's gradcheck raises, including for results of the wrong type or shape
REFUSALS = (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AssertionError, AttributeError)
W = TypeVar("W", bound=type[Any] | Callable[..., Any])  # a class with ``apply``, or a function
NOT_OWN = "Where torch's own autograd is switched off, your solution does not give the right numbers."
Index = Mapping[str, Mapping[str, Sequence[str]]]  # by mistake and check: the looks that may find fault with it
FRESH = 1_000_003  # added to the seed for the inputs on which a mistake is recognised
ALIKE = 2  # ordinary cases in which an answer must be wrong as a mistake is, to be taken for it whatever the edges show


@dataclass(frozen=True)
class Check:
    """One aspect of a task: one grade cell.

    Args:
        name: the last part of the grade cell's name.
        points: what it earns; all, nothing, or a part where it fails by a mistake that another check is about.
        about: one line, printed in the grade cell for the student.
        why: why it matters; ends a message that names no known mistake.
        cases: inputs that reach every branch.
        looks: what is looked at, in order.
        outside: large arguments on which what is kept shows in the memory of the submission's process.
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
    outside: Outside | None = None


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
        index: by which looks each mistake loses each check, as `tools.index` found; of a mistake that is not in it
            that is found out when it is needed.
    """

    name: str
    call: str
    reference: Callable[..., Any]
    checks: tuple[Check, ...]
    forbids: Forbids | None = None
    mistakes: list[Mistake] = field(default_factory=list)
    solutions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    index: Index = field(default_factory=dict)

    @property
    def points(self) -> float:
        """What the task is worth."""
        return sum(c.points for c in self.checks)

    def mistake(self, caught_by: str, message: str) -> Callable[[W], W]:
        """Decorate a wrong solution. Its name is the mistake's, a Function's ``apply`` is the operation."""

        def add(wrong: W) -> W:
            self.mistakes.append(Mistake(wrong.__name__, caught_by, message, _operation(wrong)))
            return wrong

        return add

    def solution(self, right: W) -> W:
        """Decorate a right solution, kept for the tests."""
        self.solutions[right.__name__] = _operation(right)
        return right

    def check(self, name: str) -> Check:
        """Return the check of that name."""
        return next(c for c in self.checks if c.name == name)

    def judge(
        self,
        name: str,
        operation: Operation,
        seed: int = 0,
        judged: dict[tuple[str, str], Verdict] | None = None,
        before: Sequence[Verdict] | None = None,
    ) -> Verdict:
        """Put the operation through one check, and where it fails by a mistake of another check, through that one too.

        Args:
            name: the check's.
            operation: the student's, wherever it runs.
            seed: of all inputs.
            judged: what each check found so far, by task and check, and what this call adds: no check is run twice.
            before: verdicts of other checks, for a reader who waits: where what they found explains this check too, or
                what this one finds explains the other it is a mistake of, nothing else is looked for. Quicker, and
                nothing to give points by.
        """
        judged = {} if judged is None else judged
        verdict = self._found(name, operation, seed, judged, before or ())
        about = verdict.after or ("value" if verdict.look == "gradcheck" and not verdict.mistake else "")
        if not about or about == name or all(c.name != about for c in self.checks):
            return verdict
        own = self._found(about, operation, seed, judged, () if before is None else (*before, verdict))
        if not own.mistake or own.after or verdict.mistake not in ("", own.mistake):
            return verdict  # there it is another mistake, or none: each counts
        verdict = replace(verdict, after=about)
        if whole(self.name, own.mistake, own.look) or not verdict.points:
            return verdict
        return replace(verdict, earned=kept(verdict.points, own.points, self.points))

    def _found(
        self,
        name: str,
        operation: Operation,
        seed: int,
        judged: dict[tuple[str, str], Verdict],
        before: Sequence[Verdict] = (),
    ) -> Verdict:
        """Return what a check finds, all or nothing; once for all that ask."""
        if (self.name, name) not in judged:
            try:
                judged[self.name, name] = self._judge(self.check(name), operation, seed, before)
            except WireError as error:
                message = f"Your code's reply was corrupted, so it could not be graded: {error}."
                judged[self.name, name] = Verdict(self.name, name, self.check(name).points, 0.0, message, look=REPLY)
        return judged[self.name, name]

    def _judge(self, check: Check, operation: Operation, seed: int, before: Sequence[Verdict]) -> Verdict:
        finding = self.find(check, operation, seed)
        if finding is None:
            count = len(self._expected(check, seed)[0])
            message = f"Right in {count} case{'s' * (count > 1)}" + (
                ", and gradcheck agrees." if check.gradcheck else "."
            )
            return Verdict(self.name, check.name, check.points, check.points, message)
        mistake = self._explained(check, finding.look, seed, before)
        unnamed = any(verdict.look == finding.look and not verdict.mistake for verdict in before)
        if mistake is None and not unnamed and finding.look not in ("exists", "source", OUTSIDE):
            mistake = self._recognise(check, finding.look, operation, seed + FRESH)
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
            code=self._code(check, finding, seed),
            after=mistake.caught_by if mistake and mistake.caught_by != check.name else "",
        )

    def _code(self, check: Check, finding: Finding, seed: int) -> str:
        """Return the failing case as code."""
        if finding.look != "gradcheck" or check.gradcheck is None:
            return pasted(self.call, finding)
        args = check.gradcheck(self._draw(check, seed))
        upstream = _weights(self.reference(*args)) if check.order == 2 else None
        return pasted_gradcheck(self.call, args, upstream)

    def find(self, check: Check, operation: Operation, seed: int) -> Finding | None:
        """Return what the check finds wrong first, or None."""
        cases, expected = self._expected(check, seed)
        proof = self._proves(check, cases) and operation.proves
        yours = self._seen(check, cases, operation)
        finding = self._find(check, cases, yours, expected) or self._gradcheck(check, operation, seed)
        if proof and finding is None:
            finding = self._proof(check, cases, yours, expected, operation, self._denied(seed))
        finding = finding or self._source(check, cases, operation.source)
        return finding or self._outside(check, operation, seed)

    def _proves(self, check: Check, cases: list[Case]) -> bool:
        """Return whether a check's numbers must come out where autograd, and what the task denies, is refused."""
        without = self.forbids is not None and self.forbids.backward
        return without and (function in check.looks or any(c.deny for c in cases))

    def _seen(self, check: Check, cases: list[Case], operation: Operation) -> list[Record]:
        """Return what is seen of the cases; where numbers prove what is forbidden, that only explains."""
        proof = self._proves(check, cases) and operation.proves
        return operation.observe([replace(c, refuse="nothing") for c in cases] if proof else cases)

    @cache  # noqa: B019
    def _denied(self, seed: int) -> tuple[str, ...]:
        """Return what any case of any check denies: so all of a task can be proved in one kernel."""
        return tuple(sorted({name for c in self.checks for case in self._expected(c, seed)[0] for name in case.deny}))

    def _proof(
        self,
        check: Check,
        cases: list[Case],
        yours: list[Record],
        expected: list[Record],
        operation: Operation,
        denied: tuple[str, ...],
    ) -> Finding | None:
        """Return what is wrong with the numbers where autograd is refused; first, where all that the task denies is."""
        finding = None
        for wide in (True, False) if denied else (False,):
            bare = [replace(c, watch=(), directions=None, refuse="autograd") for c in cases]
            asked = [replace(c, deny=denied) for c in bare] if wide else bare
            records = [_bare(*both) for both in zip(yours, operation.observe(asked), strict=True)]
            finding = self._unproved(check, cases, records, expected)
            if finding is None or all(a.deny == c.deny for a, c in zip(asked, cases, strict=True)):
                break
        return finding

    def _unproved(
        self, check: Check, cases: list[Case], records: list[Record], expected: list[Record]
    ) -> Finding | None:
        for triple in zip(cases, records, expected, strict=True):
            failure = triple[1].failure
            if failure and REFUSED in failure.message and self.forbids:
                operator = failure.message.partition(REFUSED)[0].rstrip().rpartition(" ")[2]
                text = f"{self.forbids.says} Your solution runs {operator}."
                found = Finding("allowed", text, {"ran": operator})
                return replace(found, failing=partial(iter, [(triple, found)]))
        finding = self._find(check, cases, records, expected)
        if finding is None:
            return None
        # of what is missing there the usual cause is another one
        raised = finding.evidence.get("raised")
        told = f"It raises {raised}." if raised else finding.message.removesuffix(f" {NO_RETURN}")
        return Finding("by hand", f"{NOT_OWN} {told}", finding.evidence)

    def _source(self, check: Check, cases: list[Case], source: str | None) -> Finding | None:
        """Return what the text of the submission shows of what the check forbids."""
        if source is None:
            return None
        if self.forbids and (allowed in check.looks or any(c.deny for c in cases)):
            forbids = self.forbids
        elif any(c.watch for c in cases) or WORDS.intersection(check.looks):
            forbids = OBSERVED
        else:
            return None
        use = forbidden(source, re.split(r"\W", self.call)[0], forbids)
        return None if use is None else Finding("source", f"{forbids.says} {use.sentence}", use.evidence)

    def _draw(self, check: Check, seed: int) -> Draw:
        return Draw(self.reference, seed * 1009 + zlib.crc32(f"{self.name} {check.name}".encode()))

    @cache  # noqa: B019 (a task lives as long as the program)
    def _expected(self, check: Check, seed: int) -> tuple[list[Case], list[Record]]:
        """Return the cases of a check and the reference's records of them."""
        cases = check.cases(self._draw(check, seed))
        return cases, local(self.reference).observe(cases)

    @cache  # noqa: B019
    def _record(self, mistake: Mistake, check: Check, seed: int, place: int) -> Record:
        """Return a mistake's record of one case."""
        return local(mistake.operation).observe([self._expected(check, seed)[0][place]])[0]

    def _known(self, mistake: Mistake, check: Check, seed: int) -> list[Record]:
        """Return a mistake's records of all cases of a check."""
        return [self._record(mistake, check, seed, i) for i in range(len(self._expected(check, seed)[0]))]

    def _fits(
        self, mistake: Mistake, check: Check, seed: int, yours: list[Record], looks: Collection[str], places: list[int]
    ) -> bool:
        """Return whether a mistake behaves in the cases at these places as these records say."""
        return all(
            self._near(mistake, check, seed, i, yours[i], looks)
            and same_behaviour(yours[i], self._record(mistake, check, seed, i), looks)
            for i in places
        )

    def _near(
        self, mistake: Mistake, check: Check, seed: int, place: int, yours: Record, looks: Collection[str]
    ) -> bool:
        """Return whether a mistake may behave as a record says: where a case watches much, its numbers come first."""
        if not self._expected(check, seed)[0][place].watch or yours.failure is not None:
            return True
        bare = self._unwatched(mistake, check, seed, place)
        return same_behaviour(yours, bare, [look for look in looks if look == "gradient"])

    @cache  # noqa: B019
    def _unwatched(self, mistake: Mistake, check: Check, seed: int, place: int) -> Record:
        """Return a mistake's record of one case in which nothing is watched that leaves the numbers as they are."""
        case = self._expected(check, seed)[0][place]
        twice = case.directions is not None and "state" in case.watch  # an ordinary backward comes first
        return local(mistake.operation).observe([replace(case, watch=("state",) if twice else ())])[0]

    @cache  # noqa: B019
    def _smallest_first(self, check: Check, seed: int) -> list[int]:
        """Return the places of a check's cases: many mistakes are told apart before they run on the large ones."""
        sizes = [sum(t.numel() for t in tensors(case.args)) for case in self._expected(check, seed)[0]]
        return sorted(range(len(sizes)), key=sizes.__getitem__)

    def _failing(self, check: Check, seed: int, finding: Finding | None) -> list[int]:
        """Return the place of the smallest case in which a look finds fault: most mistakes are right there."""
        if finding is None or finding.failing is None:
            return []
        failing = {id(triple[0]) for triple, _ in finding.failing()}
        cases = self._expected(check, seed)[0]
        return [i for i in self._smallest_first(check, seed) if id(cases[i]) in failing][:1]

    def _blamed(self, check: Check, seed: int, place: int, record: Record) -> str:
        """Return the look that finds fault with a record of one case; "" for none."""
        cases, expected = self._expected(check, seed)
        finding = self._find(check, [cases[place]], [record], [expected[place]])
        return finding.look if finding else ""

    @cache  # noqa: B019
    def loses_by(self, mistake: Mistake, check: Check, seed: int) -> str:
        """Return the look that finds fault with a mistake, gradcheck apart; "" for none."""
        cases, expected = self._expected(check, seed)
        finding = self._find(check, cases, self._known(mistake, check, seed), expected)
        return finding.look if finding else ""

    def _find(self, check: Check, cases: list[Case], yours: list[Record], expected: list[Record]) -> Finding | None:
        own = self.forbids is not None and self.forbids.backward and function in check.looks
        looks = (*check.looks, by_hand) if own else check.looks
        finding = first_finding(looks, self.call, list(zip(cases, yours, expected, strict=True)))
        if finding and self.forbids and (operator := finding.evidence.get("ran")):
            return replace(finding, message=f"{self.forbids.says} Your solution runs {operator}.")
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

    def _outside(self, check: Check, operation: Operation, seed: int) -> Finding | None:
        """Return what the memory of the submission's process shows, whatever that says of itself."""
        if check.outside is None or operation.memory() is None:
            return None
        try:
            return check.outside.find(self.call, operation, self._weighed(check, seed))
        except OperationError as error:
            return Finding(OUTSIDE, f"On large arguments your code raised {error}")

    @cache  # noqa: B019
    def _weighed(self, check: Check, seed: int) -> Weighed:
        """Return what is asked from outside, and the reference's answer."""
        assert check.outside is not None  # it is asked for
        return check.outside.weighed(self._draw(check, seed), self.reference)

    @cache  # noqa: B019
    def _rehearsal(self, check: Check, seed: int) -> list[bytes]:
        """Return what gradcheck asks, found out on the reference."""
        reference = local(self.reference)
        self._run_gradcheck(check, reference, seed)
        return reference.asked

    def _run_gradcheck(self, check: Check, operation: Operation, seed: int) -> None:
        """Run torch's gradcheck of the operation, or at order 2 of its vector-Jacobian product: gradgradcheck."""
        assert check.gradcheck is not None  # it is asked for
        args = [
            a.requires_grad_() if isinstance(a, Tensor) and inexact(a) else a
            for a in check.gradcheck(self._draw(check, seed))
        ]
        function: Callable[..., Tensor | tuple[Tensor, ...]] = operation
        if check.order == 2:
            function = operation.vjp
            args.append(_weights(self.reference(*args)).requires_grad_())
        with pristine():
            # undefined upstream gradients become zeros on the way, so torch's test of them would test nothing
            torch.autograd.gradcheck(function, args, fast_mode=True, check_undefined_grad=False)

    def _explained(self, check: Check, look: str, seed: int, before: Sequence[Verdict]) -> Mistake | None:
        """Return a mistake that other checks named and that this one would find by the same look."""
        named = {verdict.mistake for verdict in before}
        told = [m for m in self.mistakes if m.name in named]
        return next((m for m in told if self._by_this_look(m, check, look, seed)), None)

    def _by_this_look(self, mistake: Mistake, check: Check, look: str, seed: int) -> bool:
        """Return whether the check finds fault with a mistake by this look: as the index says, where it knows."""
        looks = self.index.get(mistake.name, {}).get(check.name, [])
        if looks and (look not in looks or len(looks) == 1):
            return look in looks
        return self.loses_by(mistake, check, seed) == look

    def _recognise(self, check: Check, look: str, operation: Operation, seed: int) -> Mistake | None:
        """Return the one known mistake that behaves, on fresh inputs, as this operation does; None if several do.

        First the check that failed: its numbers, and what it had to go by. Where several mistakes fit, the numbers of
        the other checks, and then all that was observed, may tell them apart.
        """
        others = [c for c in self.checks if c is not check]
        cases, expected = self._expected(check, seed)
        yours = self._seen(check, cases, operation)
        finding = self._find(check, cases, yours, expected)
        if look not in PROVED and finding is None:
            return None  # right this time, so it is like none of them; running all could take a minute
        first = self._failing(check, seed, finding)  # most mistakes differ there, and run on no other case
        rest = [i for i in self._smallest_first(check, seed) if i not in first]
        look = finding.look if finding and look not in PROVED else look  # by which the mistake loses on these inputs
        fitting = [m for m in self.mistakes if look in self.index.get(m.name, {}).get(check.name, [look])]
        fitting = [m for m in fitting if self._fits(m, check, seed, yours, [look], first)]
        if finding:
            for place in first:
                own = self._blamed(check, seed, place, yours[place])
                theirs = [self._blamed(check, seed, place, self._record(m, check, seed, place)) for m in fitting]
                fitting = [m for m, blamed in zip(fitting, theirs, strict=True) if blamed == own]
        fitting = [m for m in fitting if self._fits(m, check, seed, yours, [look], rest)]
        fitting = [m for m in fitting if self.loses_by(m, check, seed) == look]
        if not fitting:
            return self._resembled(check, yours, operation, seed) if look in (*NUMBERS, "runs") else None
        seen = {check.name: yours}
        for checks, looks in ((others, []), ([check], SYMPTOMS), (others, SYMPTOMS)):
            for tried in self._telling(checks, fitting, bool(looks)) if len(fitting) > 1 else ():
                if tried.name not in seen:
                    seen[tried.name] = self._seen(tried, self._expected(tried, seed)[0], operation)
                places = self._smallest_first(tried, seed)
                fitting = [m for m in fitting if self._fits(m, tried, seed, seen[tried.name], looks, places)]
                if len(fitting) <= 1:
                    break
        return fitting[0] if len(fitting) == 1 else None

    def _telling(self, checks: Sequence[Check], mistakes: Sequence[Mistake], symptoms: bool) -> list[Check]:
        """Return the checks that may tell mistakes apart: first those that lose by different looks, as the index says.

        Args:
            checks: among them.
            mistakes: more than one.
            symptoms: whether more than numbers is compared. Numbers tell nothing where all of them are right, whether
                the mistakes pass the check or lose it by a symptom.
        """

        def looks(check: Check) -> set[tuple[str, ...]]:
            return {tuple(self.index.get(m.name, {}).get(check.name, [m.name])) for m in mistakes}

        silent = SYMPTOMS.keys() - {"precise"}
        telling = [check for check in checks if symptoms or any(silent.isdisjoint(own) for own in looks(check) - {()})]
        return sorted(telling, key=lambda check: -len(looks(check)))

    def _resembled(self, check: Check, yours: list[Record], operation: Operation, seed: int) -> Mistake | None:
        """Return the one mistake that does in all ordinary cases what these records say; None if several do.

        What an answer does at the edges, as with no numbers, with huge ones or in a narrow dtype, depends on how its
        author spells a mistake: `/ rows` is nan for no rows, `/ max(rows, 1)` is not.
        """
        cases = self._expected(check, seed)[0]
        places = [i for i in self._smallest_first(check, seed) if ordinary(cases[i])]
        wrong = [i for i in places if self._blamed(check, seed, i, yours[i])]
        if len(wrong) < ALIKE:
            return None
        places = [*wrong, *(i for i in places if i not in wrong)]
        fitting = [m for m in self.mistakes if self.index.get(m.name, {}).get(check.name, ["any"])]
        fitting = [m for m in fitting if self._fits(m, check, seed, yours, [], places)]
        for other in self.checks if len(fitting) > 1 else ():
            cases = self._expected(other, seed)[0]
            yours = self._seen(other, cases, operation)
            places = [i for i in self._smallest_first(other, seed) if ordinary(cases[i])]
            fitting = [m for m in fitting if self._fits(m, other, seed, yours, [], places)]
        return fitting[0] if len(fitting) == 1 else None


def forget() -> None:
    """Let go of what was found out for the seeds asked so far: who has another for each student asks for none twice."""
    for member in vars(Task).values():
        if hasattr(member, "cache_clear"):
            member.cache_clear()


def _weights(output: Tensor) -> Tensor:
    """Return the upstream gradient with which gradcheck asks for the second order."""
    weights = torch.linspace(-1, 1.5, output.numel(), dtype=DOUBLE).reshape(output.shape)
    return weights * (1 + 0.5j) if output.is_complex() else weights


def _bare(yours: Record, bare: Record) -> Record:
    """Return the record with the numbers that came where autograd is refused."""
    return replace(
        yours,
        failure=bare.failure,
        kind=bare.kind,
        outputs=bare.outputs,
        numbers=bare.numbers,
        grads=bare.grads,
        drawn=yours.drawn,
    )


def _operation(thing: type[Any] | Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(thing, type):
        return thing
    function: Any = thing
    apply: Callable[..., Any] = function.apply
    return apply
