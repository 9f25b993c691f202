"""The pieces under the checks: the wire, the observer, the operation, and what a grade cell calls."""

import functools
import gc
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.autograd import Function
from torch.overrides import TorchFunctionMode, _len_torch_function_stack
from torch.utils._python_dispatch import TorchDispatchMode, _len_torch_dispatch_stack

from graders.gradecell import grade
from graders.inside.observe import observe
from graders.inside.operation import Operation, OperationError, local
from graders.inside.pristine import settings
from graders.inside.records import SETTINGS, Case, Failure, Helper, Record
from graders.inside.wire import WireError, copy_of, decode, encode
from graders.judge import looks as look
from graders.judge.draw import Draw
from graders.judge.task import Check, Task
from graders.sets import load

X = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)


def case(**changes: object) -> Case:
    given = {"args": (X,), "requires_grad": (True,), "upstream": torch.ones(3, dtype=torch.float64)}
    return Case("a case", **(given | changes))


class Twice(Function):
    """The operation that the observer is tried on; subclasses misbehave."""

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return 2 * g * len(ctx.saved_tensors)


# --- the wire ---------------------------------------------------------------------------------------------------------

TENSORS = [
    torch.arange(6.0).reshape(2, 3).t(),
    torch.arange(8.0)[::3],
    torch.ones(1, 3, dtype=torch.bfloat16).expand(2, 3),
    torch.tensor(float("nan"), dtype=torch.float16),
    torch.empty(0, 3, dtype=torch.float64),
    torch.tensor([True, False]),
    torch.arange(4)[2:],
]


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda t: f"{t.dtype}-{tuple(t.stride())}")
def test_a_tensor_comes_back_with_its_values_and_strides(tensor: torch.Tensor) -> None:
    back = decode(encode(tensor))
    assert back.dtype == tensor.dtype and back.shape == tensor.shape and back.stride() == tensor.stride()
    assert torch.equal(back.isnan(), tensor.isnan()) and torch.equal(back.nan_to_num(), tensor.nan_to_num())
    copy = copy_of(tensor)
    assert copy.stride() == tensor.stride() and copy._base is None and not copy.requires_grad


def test_cases_records_and_numbers_come_back_equal() -> None:
    record = Record(Failure("forward", "ValueError", "no"), outputs=(X,), grads=(None, X), changed=("argument 0",))
    back = decode(encode({"a": [1, 2.5, float("inf"), None, "s", True], "r": record, "h": Helper("f")}))
    assert back["a"] == [1, 2.5, float("inf"), None, "s", True] and back["h"] == Helper("f")
    assert back["r"].failure == record.failure and look.same_behaviour(back["r"], record)
    sent = decode(encode(case(keywords=("x",), watch=("trace",))))
    assert sent.keywords == ("x",) and sent.watch == ("trace",) and torch.equal(sent.args[0], X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b[:-1], "cut off"),
        (lambda b: b + b"x", "left over"),
        (lambda b: b[:4], "4 bytes"),
        (lambda b: b.replace(b"float64", b"float96"), "add up"),
        (lambda b: b.replace(b'"shape": [3]', b'"shape":[-3]'), "no possible size"),
        (lambda b: b.replace(b'"shape": [3]', b'"shape": [9]'), "cut off"),
        (lambda b: b.replace(b"[1]", b"{1]"), "add up"),
    ],
)
def test_a_forged_message_is_refused(change: Callable[[bytes], bytes], message: str) -> None:
    good = encode(X)
    assert change(good) != good
    with pytest.raises(WireError, match=message):
        decode(change(good))


def test_code_cannot_be_sent() -> None:
    with pytest.raises(WireError, match="cannot send a function"):
        encode({"f": lambda: 1})


# --- the observer -----------------------------------------------------------------------------------------------------


def test_a_quiet_operation_leaves_a_quiet_record() -> None:
    seen = observe(Twice.apply, case(watch=("trace", "state", "overwrite"), directions=(X,)))
    assert seen.failure is None and seen.kind == "Tensor" and seen.function and seen.differentiable == (True,)
    assert torch.equal(seen.outputs[0], 2 * X) and torch.equal(seen.grads[0], torch.full_like(X, 2))
    assert seen.second[0] is None and torch.equal(seen.second[1], 2 * X)
    assert not seen.changed and not seen.shares_memory and not seen.denied and not seen.nested
    assert seen.kept_bytes == 0 and seen.kept_arguments == (0,)
    assert dict(seen.overwritten)["argument 0"] is None  # x is saved, so changing it raises


@pytest.mark.parametrize(
    ("backward", "field", "expected"),
    [
        (lambda ctx, g: g.mul_(2), "changed", ("the upstream gradient",)),
        (lambda ctx, g: 2 * g + 0 * ctx.saved_tensors[0].mul_(3), "changed", ("argument 0",)),
        (lambda ctx, g: 2 * g + 0 * ctx.saved_tensors[0].mul_(2).div_(2), "changed", ("argument 0 .version",)),
        (lambda ctx, g: torch.sin(g), "denied", ("aten::sin in backward",)),
        (lambda ctx, g: torch.autograd.grad((a := g.clone().requires_grad_()) @ a, a), "nested", True),
    ],
)
def test_the_observer_sees_what_backward_does(backward: Callable, field: str, expected: object) -> None:
    def bad(ctx: object, g: torch.Tensor) -> object:
        with torch.set_grad_enabled(field == "nested"):
            return backward(ctx, g)

    wrong = type("Wrong", (Twice,), {"backward": staticmethod(bad)})
    assert getattr(observe(wrong.apply, case(watch=("trace",), deny=("aten::sin",))), field) == expected


def test_a_hook_left_on_an_argument_is_a_change() -> None:
    def hooked(x: torch.Tensor, removed: bool) -> torch.Tensor:
        handle = x.register_hook(lambda g: 2 * g)
        if removed:
            handle.remove()
        return x.clone()

    for removed, changed in ((True, ()), (False, ("argument 0 ._backward_hooks",))):
        assert observe(hooked, case(args=(X, removed), requires_grad=(True, False))).changed == changed


def test_a_gradient_left_on_an_argument_is_a_change() -> None:
    def practises(x: torch.Tensor) -> torch.Tensor:
        y = Twice.apply(x)
        y.sum().backward(retain_graph=True)
        return y

    def hooked(x: torch.Tensor) -> torch.Tensor:
        x.register_post_accumulate_grad_hook(lambda _: None)
        return Twice.apply(x)

    for asked in (case(), case(upstream=None)):
        assert observe(practises, asked).changed == ("argument 0 .grad",)
        assert observe(hooked, asked).changed == ("argument 0 ._backward_hooks",)
        assert observe(Twice.apply, asked).changed == ()


class Faulty(TorchDispatchMode):
    """Spoils whatever runs while it is on."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise RuntimeError("spoilt")


class Watching(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


LEFT_ON = {
    "the stack of modes": lambda: Faulty().__enter__(),
    "the stack of modes ": lambda: Watching().__enter__(),
    "the default device": lambda: torch.set_default_device("meta"),
    "the default dtype": lambda: torch.set_default_dtype(torch.float64),
    "the autocast state": lambda: torch.set_autocast_dtype("cpu", torch.float16),
    "the autocast state ": lambda: torch.set_autocast_enabled("cpu", True),
    "the anomaly detection": lambda: torch.autograd.set_detect_anomaly(True),
    "the gradient mode": lambda: torch.set_grad_enabled(False),
}


@pytest.mark.filterwarnings("ignore:Error detected")
@pytest.mark.parametrize("what", LEFT_ON)
@pytest.mark.parametrize("watch", [(), ("trace",), ("state", "overwrite", "trace")])
def test_what_is_left_on_is_told_and_does_not_reach_the_next_case(what: str, watch: tuple[str, ...]) -> None:
    def careless(x: torch.Tensor) -> torch.Tensor:
        y = Twice.apply(x)
        LEFT_ON[what]()
        return y

    def state() -> tuple:
        return settings(), torch.get_default_device(), _len_torch_function_stack(), _len_torch_dispatch_stack()

    before = state()
    seen = observe(careless, case(watch=watch))
    assert seen.changed == (what.strip(),) and what.strip() in SETTINGS
    told = look.untouched("Twice.apply(x)", case(), seen, Record()).message
    assert told == f"Your code leaves {what.strip()} other than it was."
    if what.strip() != "the gradient mode":
        assert torch.equal(seen.grads[0], 2 * case().upstream)
    quiet = observe(Twice.apply, case(watch=watch))
    assert state() == before and quiet.failure is None and quiet.changed == ()


def test_a_helper_left_half_way_does_not_reach_the_next_case() -> None:
    kept = []

    def first_alone(chunks: Iterator[torch.Tensor]) -> torch.Tensor:
        kept.append(chunks)
        return next(chunks)

    observe(first_alone, case(args=(Helper("many_chunks", (torch.ones(280, 1),)),), requires_grad=(False,)))
    assert kept[0].gi_frame is not None and gc.isenabled()  # it is still open, and has garbage collection off


def test_modes_left_on_under_gradcheck_do_not_reach_the_next_question() -> None:
    def careless(x: torch.Tensor) -> torch.Tensor:
        y = Twice.apply(x)
        Faulty().__enter__()
        return y

    asked = local(careless)
    with pytest.raises(OperationError, match="spoilt"):
        torch.autograd.gradcheck(asked, X.clone().requires_grad_(), fast_mode=True)
    with local(careless).prepared([*asked.asked, *asked.asked]):
        torch.autograd.gradcheck(local(Twice.apply), X.clone().requires_grad_(), fast_mode=True)


def test_a_subclass_does_not_bend_gradcheck() -> None:
    class Bent(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "bent" if func is torch.Tensor.detach else super().__torch_function__(func, types, args, kwargs)

    bent = local(lambda x: Twice.apply(x).as_subclass(Bent))
    assert torch.autograd.gradcheck(bent, X.clone().requires_grad_(), fast_mode=True)


def test_anomaly_detection_that_is_on_costs_no_points() -> None:
    class Infinite(Twice):
        @staticmethod
        def backward(ctx, g):
            return g * torch.nan

    with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
        assert observe(Infinite.apply, case()).failure is None
        assert torch.is_anomaly_enabled()


def test_what_is_returned_the_second_time_is_told() -> None:
    def alternates() -> Callable:
        turns = itertools.cycle([Twice.apply, lambda x: None])
        return lambda x: next(turns)(x)

    for watch in ("trace", "state", "overwrite"):
        seen = observe(alternates(), case(watch=(watch,)))
        assert seen.failure is None and seen.kind == "NoneType"


@pytest.mark.parametrize("number", [10**5000, -(1 << 63), (1.0, 10**5000)], ids=["wide", "just", "among others"])
def test_a_number_that_cannot_be_printed(number: int | tuple) -> None:
    seen = decode(encode(observe(lambda x: number, case())))
    assert (seen.kind, seen.numbers) == ("int of more than 64 bits", ())
    told = look.returns("count(x)", case(), seen, Record(kind="int")).message
    assert told == "Your function returned int of more than 64 bits, expected int."


def test_integers_are_overwritten_too() -> None:
    class Unguarded(Function):
        @staticmethod
        def forward(ctx, x, at):
            ctx.at = at
            return x[at]

        @staticmethod
        def backward(ctx, g):
            return torch.zeros_like(X).index_add(0, ctx.at, g), None

    class Guarded(Unguarded):
        @staticmethod
        def forward(ctx, x, at):
            ctx.save_for_backward(at)
            return x[at]

        @staticmethod
        def backward(ctx, g):
            return torch.zeros_like(X).index_add(0, *ctx.saved_tensors, g), None

    at = torch.tensor([2, 0, 1])
    asked = case(args=(X, at), requires_grad=(True, False), upstream=X, watch=("overwrite",))
    assert dict(observe(Guarded.apply, asked).overwritten)["argument 1"] is None  # changing it raises
    seen = observe(Unguarded.apply, asked)
    assert seen.grads[0].tolist() == [0.5, 2.0, -1.0]
    assert dict(seen.overwritten)["argument 1"][0].tolist() == [2.0, -1.0, 0.5]


def test_another_forward_takes_another_number() -> None:
    class Scales(Twice):
        @staticmethod
        def forward(x, factor):
            Scales.factor = factor
            return factor * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return Scales.factor * g, None

    seen = observe(Scales.apply, case(args=(X, 0.5), requires_grad=(True, False), watch=("state",)))
    assert torch.equal(seen.grads[0], torch.full_like(X, 0.5))
    assert torch.equal(seen.interleaved[0], torch.full_like(X, 1.25))
    whole = case(args=(X, 2), requires_grad=(True, False), watch=("state",), between=(X, 7))
    assert torch.equal(observe(Scales.apply, whole).interleaved[0], torch.full_like(X, 7))


def test_what_hangs_on_ctx_is_counted() -> None:
    class Hides(Twice):
        @staticmethod
        def forward(ctx, x):
            ctx.mask = x > 0
            ctx.half = x / 2
            return 2 * x

        setup_context = Function.setup_context

    assert observe(Hides.apply, case(watch=("trace",))).kept_bytes == 3 * 8 + 3 * 1


def test_an_upstream_gradient_may_come_with_its_conjugation_put_off() -> None:
    """What looks at its memory alone is seen to be wrong, or raises."""

    class Doubled(Function):
        @staticmethod
        def forward(ctx, z):
            return 2 * z

        @staticmethod
        def backward(ctx, g):
            return torch.view_as_complex(2 * torch.view_as_real(g))

    z = torch.tensor([1 + 2j, 3 - 1j])
    asked = {"args": (z,), "upstream": z, "watch": ("state",)}
    right = observe(Doubled.apply, case(**asked))
    assert right.failure is None and right.sibling is not None and torch.equal(right.grads[0], 2 * z)
    told = observe(Doubled.apply, case(how="conjugated", **asked)).failure
    assert told is not None and told.stage == "backward" and "unresolved conjugated" in told.message
    found = observe(lambda z: 2 * z, case(how="conjugated", **asked))
    assert torch.equal(found.grads[0], 2 * z) and torch.equal(found.sibling, z) and not found.changed
    assert torch.equal(found.repeated[0], 2 * z) and found.sibling.is_conj() is False


def test_a_way_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="no way called 'bakward'"):
        case(how="bakward")


def test_what_lies_beside_the_output_in_its_storage_is_counted() -> None:
    def padded(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([2 * x, torch.zeros(1000, dtype=x.dtype)])[:3]

    assert observe(padded, case(watch=("trace",))).kept_bytes == 1000 * 8
    assert observe(lambda x: x.sum().expand(3), case(watch=("trace",))).kept_bytes == 0


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        (lambda x: None, "NoneType"),
        (lambda x: 3.0, "float"),
        (lambda x: [x, "y"], "list"),
        (lambda x: x.to_sparse(), "sparse"),
        (lambda x: x.to("meta"), "meta"),
    ],
)
def test_anything_may_be_returned(operation: Callable, kind: str) -> None:
    seen = observe(operation, case())
    assert kind in seen.kind
    assert look.first_finding(look.FIRST, "Twice.apply(x)", [(case(), seen, observe(Twice.apply, case()))])


@pytest.mark.parametrize("error", [SystemExit(1), ValueError("no"), RecursionError()])
def test_anything_may_be_raised(error: BaseException) -> None:
    def raises(x: torch.Tensor) -> None:
        raise error

    seen = observe(raises, case())
    assert seen.failure.stage == "forward" and seen.failure.kind == type(error).__name__


def test_the_caller_s_random_stream_is_left_alone() -> None:
    torch.manual_seed(1)
    first = torch.rand(1)
    torch.manual_seed(1)
    observe(lambda x: x * torch.rand(3, dtype=x.dtype), case())
    assert torch.equal(torch.rand(1), first)


# --- the operation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("far", [False, True], ids=["here", "behind a pipe"])
def test_every_order_of_derivative_can_be_asked_for(far: bool, forked: Callable) -> None:
    square = next(iter(load("relu")["Square"].solutions.values()))
    x = X.clone().requires_grad_()

    def third(operation: Operation) -> torch.Tensor:
        y = operation(x) ** 2  # x^4
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        return torch.autograd.grad(second.sum(), x)[0]

    if far:
        with forked(lambda: square) as operation:
            found = third(operation)
    else:
        found = third(local(square))
    torch.testing.assert_close(found, 24 * X)


def test_gradcheck_asks_no_more_of_a_backward_than_torch_s_own_does() -> None:
    class FirstOrder(Function):
        """Its backward may not run under create_graph: views of a split are changed in place."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            grad = torch.zeros_like(g)
            for total, x, part in zip(*(t.split(1) for t in (grad, ctx.saved_tensors[0], g)), strict=True):
                total += part * x.exp()
            return grad

    x = X.clone().requires_grad_()
    torch.autograd.gradcheck(FirstOrder.apply, x)
    torch.autograd.gradcheck(local(FirstOrder.apply), x, fast_mode=True, check_undefined_grad=False)
    with pytest.raises(OperationError):
        torch.autograd.gradgradcheck(local(FirstOrder.apply), x)


def test_cases_travel_together() -> None:
    operation = local(Twice.apply)
    assert len(operation.observe([case()] * 5)) == 5
    assert operation.trips == 1


# --- verdicts ---------------------------------------------------------------------------------------------------------

double = Task(
    "Double",
    "Double.apply(x)",
    lambda x: 2 * x,
    (Check("gradient", 2, "the gradient", "Because.", lambda d: [d.case("numbers", d.normal(3))], look.FIRST),),
)


def test_a_verdict_says_where_yours_expected_and_why() -> None:
    class Off(Twice):
        @staticmethod
        def backward(ctx, g):
            return torch.stack([2 * g[0], 3 * g[1], 2 * g[2]])

    verdict = double.judge("gradient", local(Off.apply))
    assert verdict.message.startswith("Wrong gradient with respect to x at index (1,) where x = ")
    assert verdict.message.endswith("Because.")
    assert float(verdict.evidence["yours"]) == pytest.approx(1.5 * float(verdict.evidence["expected"]), rel=1e-5)
    assert verdict.evidence["case"] == "numbers: x float64 of shape (3,)"
    assert str(verdict).startswith("Double gradient: 0 of 2 points\nWrong gradient")


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (6.0, " Every number is 3 times the right one. Because."),
        (-2.0, " Every number has the wrong sign. Because."),
        (0.0, " Every number is 0. Because."),
        (torch.tensor([2.0, 3.0, 2.0]), ". Because."),
    ],
)
def test_a_verdict_says_what_all_wrong_numbers_have_in_common(factor: float | torch.Tensor, said: str) -> None:
    class Off(Twice):
        @staticmethod
        def backward(ctx, g):
            return factor * g

    message = double.judge("gradient", local(Off.apply)).message
    assert message.endswith(said) and message.count("Every number") == said.count("Every number")


def test_when_two_mistakes_fit_none_is_named() -> None:
    task = Task("Double", "Double.apply(x)", double.reference, double.checks)

    class zero(Twice):
        @staticmethod
        def backward(ctx, g):
            return 0 * g

    task.mistake("gradient", "first")(zero)
    assert task.judge("gradient", local(zero.apply)).message == "first"
    task.mistake("gradient", "second")(type("other", (zero,), {}))
    assert task.judge("gradient", local(zero.apply)).mistake == ""


@pytest.mark.parametrize("returned", ["tuple", "empty", "expanded", "unprintable"])
def test_whatever_a_student_returns_or_raises_ends_in_a_verdict(returned: str) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise ValueError

    def odd(x: torch.Tensor) -> object:
        if returned == "unprintable":
            raise Unprintable
        square = x * x
        return {"tuple": (square,), "empty": (), "expanded": square.sum().expand(x.shape)}[returned]

    for check in load("relu")["Square"].checks:
        assert load("relu")["Square"].judge(check.name, local(odd)).earned == 0


def test_a_contract_is_not_lost_for_a_number_far_out() -> None:
    """exp overflows at 1000: that costs value and gradient, in part. What is written into is seen all the same."""
    tanh, sigmoid = load("relu")["Tanh"], load("sigmoid")["Sigmoid"]
    overflow = next(local(m.operation) for m in tanh.mistakes if m.name == "exponentials_overflow")
    assert [tanh.judge(c, overflow).earned for c in ("value", "gradient", "contract")] == [0, 1.25, 1]
    clamps = next(local(m.operation) for m in sigmoid.mistakes if m.name == "clamps_input")
    assert sigmoid.judge("contract", clamps).earned == 0


def test_a_borrowed_gradient_is_not_the_author_s_own() -> None:
    class Identity(Twice):
        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g.clone()

    verdict = load("relu")["Square"].judge("gradient", local(lambda x: Identity.apply(x) ** 2))
    assert verdict.earned == 0 and verdict.mistake == "no_function"


def test_an_error_of_its_own_is_not_taken_for_a_known_mistake() -> None:
    class Broken(Twice):
        @staticmethod
        def forward(x):
            raise RuntimeError("my own bug")

    for check in load("relu")["Square"].checks:
        assert load("relu")["Square"].judge(check.name, local(Broken.apply)).mistake == ""


def test_grade_leaves_torch_as_it_was(capfd: pytest.CaptureFixture) -> None:
    right = next(iter(load("relu")["Square"].solutions.values()))
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    state = torch.get_rng_state()
    try:
        scores = [grade("relu", "Square", check.name, lambda: right) for check in load("relu")["Square"].checks]
        assert scores == [1, 1, 1, 1]
        assert not torch.is_grad_enabled() and torch.get_default_dtype() == torch.float64
        assert torch.equal(torch.get_rng_state(), state)
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)


def test_inputs_follow_the_seed() -> None:
    def drawn(seed: int) -> torch.Tensor:
        return Draw(double.reference, seed).normal(4)

    assert torch.equal(drawn(3), drawn(3)) and not torch.equal(drawn(3), drawn(4))


class Loud(Twice):
    """Right, and noisy on every channel that nbgrader reads."""

    @staticmethod
    def forward(x):
        warnings.warn("deprecated", stacklevel=1)
        print("debug"), print("debug", file=sys.stderr)
        import os

        os.write(2, b"from C\n")
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g


def test_grade_returns_a_float_and_prints_the_verdict_alone(capfd: pytest.CaptureFixture) -> None:
    with warnings.catch_warnings(record=True) as caught:
        score = grade("relu", "Square", "gradient", lambda: Loud.apply)
    out, err = capfd.readouterr()
    assert type(score) is float and score == 1.0 and err == "" and not caught
    assert out == "Square gradient: 1 of 1 points\nRight in 19 cases, and gradcheck agrees.\n"


def test_grade_of_a_missing_name_is_a_verdict(capfd: pytest.CaptureFixture) -> None:
    assert grade("relu", "Square", "value", lambda: Sqare.apply) == 0.0  # noqa: F821
    assert "Square.apply could not be found: NameError: name 'Sqare' is not defined." in capfd.readouterr().out


def test_the_seed_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    wrong = load("relu")["Square"].mistakes[0].operation
    told = []
    for seed in ("0", "0", "5"):
        monkeypatch.setenv("GRADERS_SEED", seed)
        grade("relu", "Square", "gradient", lambda: wrong)
        told.append(capfd.readouterr().out)
    assert told[0] == told[1] != told[2]


# --- functions as operations ------------------------------------------------------------------------------------------


def asked(**changes: object) -> Case:
    """A case of an operation whose gradient is not asked for."""
    return case(upstream=None, **changes)


def found(operation: Callable, *looks: Callable, expected: Callable = Twice.apply, **changes: object) -> str:
    """What the looks say of an operation, "" for nothing."""
    given = asked(**changes)
    finding = look.first_finding(looks, "f(x)", [(given, observe(operation, given), observe(expected, given))])
    return finding.message if finding else ""


def test_python_numbers_are_observed() -> None:
    assert observe(lambda x: (1.5, 2.0), asked()).numbers == (1.5, 2.0)
    right = lambda x: (1.5, 2e-9)  # noqa: E731
    assert found(lambda x: (1.501, 0.0), look.returns, look.numbers(1e-3), expected=right) == ""
    for wrong, text in (
        (lambda x: (1.6, 0.0), "Wrong number 0"),
        (lambda x: (1.5, float("nan")), "Wrong number 1"),
        (lambda x: (1.5,), "has 1 numbers, expected 2"),
        (lambda x: (1.5, 0), "tuple of 2 Python floats"),
        (lambda x: (x.sum(), x.sum()), "tuple of 2 Python floats"),
        (lambda x: [1.5, 0.0], "returned list"),
        (lambda x: (1.5, "0"), "tuple of 2 Python floats"),
    ):
        assert text in found(wrong, look.returns, look.numbers(1e-3), expected=right), text


@pytest.mark.parametrize(
    ("operation", "what"),
    [
        (lambda x: setattr(x, "grad", None) or 2 * x, "x.grad"),
        (lambda x: x.grad.zero_() + 2 * x, "x.grad"),
        (lambda x: (2 * x).sum().backward() or 2 * x, "x.grad"),
        (lambda x: 2 * x.requires_grad_(False), "x.requires_grad"),
        (lambda x: x.data.mul_(2), "x in place"),
    ],
)
def test_what_becomes_of_the_argument_is_seen(operation: Callable, what: str) -> None:
    assert what in found(operation, look.untouched)
    assert found(lambda x: 2 * x, look.untouched) == ""


def test_a_stub_is_told_from_a_not_implemented_of_torch() -> None:
    for said, message in (
        ("", "Twice is not written yet."),
        ("no jvp", "The forward raised NotImplementedError: no jvp."),
    ):
        raised = Record(Failure("forward", "NotImplementedError", said))
        assert look.runs("Twice.apply(x)", case(), raised, Record()).message == message


def test_a_denied_function_raises_under_any_name_and_works_again_after() -> None:
    from torch.autograd.functional import hvp as held

    case_ = asked(deny=("torch.autograd.functional.hvp",))
    seen = observe(lambda x: held(lambda t: (t**3).sum(), x, x)[1], case_)
    assert seen.failure.stage == "forward" and "may not be used here" in seen.failure.message
    assert held(lambda t: (t**3).sum(), X, X)[1].shape == X.shape


def test_autograd_within_backward_is_seen_under_any_name() -> None:
    from torch.autograd import grad as held

    class Sly(Twice):
        @staticmethod
        def backward(ctx, g):
            with torch.enable_grad():
                a = torch.ones(3, dtype=g.dtype, requires_grad=True)
                return held((2 * a * g).sum(), a)[0]

    assert observe(Sly.apply, case(watch=("trace",))).nested
    assert not observe(Twice.apply, case(watch=("trace",))).nested
    a = X.clone().requires_grad_()
    assert torch.equal(held((2 * a).sum(), a)[0], torch.full_like(X, 2))


def uses_a_neighbour(x: torch.Tensor) -> torch.Tensor:
    return neighbour(x)  # noqa: F821 (a case provides it, or nobody does)


def test_a_case_provides_what_the_operation_rests_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert observe(uses_a_neighbour, asked()).failure.kind == "NameError"
    monkeypatch.setattr("graders.inside.helpers.neighbour", lambda x: 2 * x, raising=False)
    assert torch.equal(observe(uses_a_neighbour, asked(provide=("neighbour",))).outputs[0], 2 * X)
    assert "neighbour" not in globals()


def as_function(forward: Callable) -> Callable:
    return type("F", (Twice,), {"forward": staticmethod(forward)}).apply


@pytest.mark.parametrize("wrap", [torch.enable_grad(), functools.partial, as_function])
def test_what_is_provided_reaches_decorated_operations(wrap: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graders.inside.helpers.neighbour", lambda x: 2 * x, raising=False)
    assert torch.equal(observe(wrap(uses_a_neighbour), asked(provide=("neighbour",))).outputs[0], 2 * X)


CALLS = 0


def counts_its_calls(x: torch.Tensor) -> torch.Tensor:
    global CALLS
    CALLS += 1
    return 2 * x


def test_the_operation_s_own_globals_stay_as_it_leaves_them() -> None:
    before = CALLS
    for _ in range(2):
        observe(counts_its_calls, asked())
    assert before + 2 == CALLS


@pytest.mark.parametrize("name", ["torch.sigmoid", "aten::tanhh", "aten::pow.Nothing", "torch.autograd.grad"])
def test_what_cannot_be_denied_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be denied"):
        Draw(Twice.apply, 0).case("a case", X, deny=(name,))


def test_a_case_that_denies_keeps_its_name() -> None:
    assert Draw(Twice.apply, 0).case("a case", X, deny=("aten::sin", "aten::cos")).name == "a case"


def test_odd_operations_get_a_verdict() -> None:
    class Bent(torch.Tensor):
        pass

    class Sly:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return Twice.apply(x)

        def __getattr__(self, name: str) -> object:
            raise RuntimeError(name)

    assert observe(Sly(), case()).failure is None
    seen = observe(lambda x: Twice.apply(x).as_subclass(Bent), case(watch=("trace",), directions=(X,)))
    assert seen.failure is None and not seen.nested and seen.function
    assert torch.equal(observe(lambda x: torch._neg_view(-2 * x.detach()), asked()).outputs[0], 2 * X)
    assert observe(lambda x: 3.0, case(directions=(X,))).failure is None  # its kind says what is wrong
    two, three = (lambda x: (x, x)), (lambda x: (x, x, x))
    assert "holds 3 tensors, expected 2" in found(three, *look.FORWARD, expected=two)
    assert "holds 0 tensors, expected 2" in found(lambda x: (1.0, 2.0), *look.FORWARD, expected=two)


def test_what_helpers_count_is_in_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    from graders.inside import helpers

    def twice(x: torch.Tensor) -> torch.Tensor:
        helpers.TALLY["calls"] += 1
        return 2 * x

    monkeypatch.setattr("graders.inside.helpers.twice", twice, raising=False)
    given = {"args": (Helper("twice"), X), "requires_grad": (False, False)}
    assert "3 calls" in found(
        lambda f, x: (f(x), f(x), f(x))[0], look.counts(calls=2), expected=lambda f, x: f(x), **given
    )
    assert found(lambda f, x: (f(x), f(x))[0], look.counts(calls=2), expected=lambda f, x: f(x), **given) == ""


def test_a_whole_number_the_stream_and_the_bytes_kept() -> None:
    three = lambda x: 3  # noqa: E731
    assert found(three, look.whole, expected=three) == ""
    assert "not a Python int" in found(lambda x: 3.0, look.whole, expected=three)
    assert "not a Python int" in found(lambda x: (3, 3), look.whole, expected=three)
    assert "Wrong number" in found(lambda x: 4, look.whole, expected=three)

    def draws(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rand(3)

    def puts_back(x: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng([]):
            return draws(x)

    assert found(draws, look.value, look.stream, expected=draws) == ""
    assert "random stream" in found(puts_back, look.value, look.stream, expected=draws)

    keeps = lambda x: x.sin() * x.cos()  # noqa: E731
    traced = {"watch": ("trace",), "expected": keeps}
    assert "48 bytes" in found(keeps, look.keeps_at_most(47), **traced)
    assert found(keeps, look.keeps_at_most(48), **traced) == ""
    assert found(keeps, look.keeps_at_most(0), expected=keeps) == ""  # not watched


def test_exact_and_no_function_and_differentiable() -> None:
    nearly = lambda x: 2 * x * (1 + 2**-52)  # noqa: E731
    assert "not exact" in found(nearly, look.exact) and found(nearly, look.value) == ""
    assert found(lambda x: x + x, look.exact, look.no_function, look.differentiable) == ""
    assert "torch.autograd.Function" in found(Twice.apply, look.no_function)
    assert "does not require a gradient" in found(lambda x: (2 * x).detach(), look.differentiable)


# --- gradcheck in one round trip --------------------------------------------------------------------------------------


def rehearsed(operation: Callable) -> tuple[bool, int]:
    """Whether gradcheck accepts an operation whose answers were asked for in one message, and the round trips."""
    inputs = (X.clone().requires_grad_(),)
    rehearsal, there = local(Twice.apply), local(operation)
    torch.autograd.gradcheck(rehearsal, inputs, fast_mode=True)
    with there.prepared(rehearsal.asked):
        accepted = torch.autograd.gradcheck(there, inputs, fast_mode=True, raise_exception=False)
    return accepted, there.trips


def test_a_rehearsed_gradcheck_takes_one_round_trip_and_still_refuses() -> None:
    class Wrong(Twice):
        @staticmethod
        def backward(ctx, g):
            return 2.01 * g

    calls = []

    class Fickle(Twice):
        @staticmethod
        def backward(ctx, g):
            calls.append(1)
            return (2 + 1e-3 * (len(calls) % 2)) * g

    assert rehearsed(Twice.apply) == (True, 1)
    assert not rehearsed(Wrong.apply)[0]  # after a refusal torch asks more, for its message
    assert not rehearsed(Fickle.apply)[0]


def test_what_was_not_rehearsed_is_asked() -> None:
    operation = local(Twice.apply)
    with operation.prepared([]):
        assert torch.equal(operation(X), 2 * X)
    assert operation.trips == 2


def test_a_place_just_above_one_is_not_printed_as_one() -> None:
    above = torch.nextafter(torch.ones(()), torch.tensor(2.0))
    assert look.place(above) == "1.0000001192092896" and look.place(torch.ones(())) == "1"
    assert look.place(torch.tensor(0.3)) == "0.3" and look.place(0.1 + 0.2) == "0.30000000000000004"
    assert look.place(torch.tensor(float("inf"))) == "inf"


def test_the_case_that_is_shown_has_numbers_that_differ_and_an_ordinary_upstream_gradient() -> None:
    """The others are shown where nothing else fails; what is off in tiny numbers alone is found all the same."""

    def triple(name: str, x: list[float], upstream: list[float], factor: float = 2.0):
        wide = [torch.tensor(numbers, dtype=torch.float64) for numbers in (x, upstream)]
        given = case(args=(wide[0],), upstream=wide[1])
        given = Case(name, given.args, requires_grad=given.requires_grad, upstream=given.upstream)
        record = functools.partial(Record, kind="Tensor", outputs=(wide[0],), differentiable=(True,), function=True)
        return given, record(grads=(factor * wide[1],)), record(grads=(wide[1],))

    zeros = triple("zeros", [0.0, 0.0, 0.0], [0.5, -0.25, 1.0])
    small = triple("a small upstream", [1.0, -2.0, 0.5], [1e-6, -2e-6, 3e-6])
    large = triple("numbers far out", [1e4, -2.0, 0.5], [0.5, -0.25, 1.0])
    plain = triple("plain", [1.0, -2.0, 0.5, 3.0], [0.5, -0.25, 1.0, 2.0])
    looks = (look.precise, look.gradient)
    for shown, given in (
        ("plain", (zeros, small, large, plain)),
        ("numbers far out", (zeros, small, large)),
        ("zeros", (zeros,)),
        ("a small upstream", (small,)),
    ):
        found = look.first_finding(looks, "F.apply(x)", list(given))
        assert found and found.look == "gradient" and found.evidence["case"].startswith(f"{shown}:"), shown
        assert next(found.failing())[0][0].name == shown
    right = triple("plain", [1.0, -2.0, 0.5, 3.0], [0.5, -0.25, 1.0, 2.0], factor=1.0)
    assert look.first_finding(looks, "F.apply(x)", [right]) is None


def test_a_plain_function_is_told_of_itself_and_a_function_of_its_forward() -> None:
    raised = Record(Failure("forward", "ValueError", "no"))
    nothing = Record(kind="NoneType")
    for call, speaker, hint in (
        ("Twice.apply(x)", "The forward", "Does forward end"),
        ("twice(x)", "Your function", "Does it end"),
    ):
        assert look.runs(call, case(), raised, Record()).message == f"{speaker} raised ValueError: no."
        told = look.returns(call, case(), nothing, Record(kind="Tensor")).message
        assert told.startswith(f"{speaker} returned NoneType, expected Tensor.") and hint in told


# --- helpers with tensors of their own, backward into .grad, what surrounds a forward ---------------------------------


def affine(weight: torch.Tensor, bias: torch.Tensor) -> Callable:
    """A function with two parameters, as a helper makes it; its bias need not require a gradient."""
    return lambda x: weight * x + bias + 0 * torch.rand(()) * x


class Recomputed(Function):
    """fn(x), computed again in backward; keeps to the manners, or breaks one of them."""

    fault = ""

    @staticmethod
    def forward(ctx, fn, dummy, x):
        ctx.fn, ctx.stream = fn, torch.get_rng_state()
        ctx.save_for_backward(x)
        return fn(x)

    @staticmethod
    def backward(ctx, g):
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.stream)
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.fn(x)
        torch.set_rng_state(now if Recomputed.fault != "the random stream" else ctx.stream)
        if Recomputed.fault == "the parameters":
            return None, None, torch.autograd.grad(y, x, g)[0]
        torch.autograd.backward(y, g)
        return None, None, x.grad


def recomputed(fn: Callable, x: torch.Tensor) -> torch.Tensor:
    if Recomputed.fault == "the autocast state":
        torch.set_autocast_enabled("cpu", True)
    if Recomputed.fault == "the saved-tensor hooks":
        torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()
    if Recomputed.fault == "fn":
        fn.__closure__[0].cell_contents.data.mul_(2)
    return Recomputed.apply(fn, torch.empty(0, requires_grad=True), x)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("", ""),
        ("the parameters", "gradient with respect to parameter 0 of fn is None"),
        ("the random stream", "leaves the random stream other than it was"),
        ("the autocast state", "leaves the autocast state other than it was"),
        ("the saved-tensor hooks", "leaves the saved-tensor hooks other than it was"),
        ("fn", "changes fn in place"),
    ],
)
@pytest.mark.parametrize("required", [(True, False), (True, True)])
def test_the_parameters_of_a_helper_are_observed(
    monkeypatch: pytest.MonkeyPatch, fault: str, told: str, required: tuple[bool, ...]
) -> None:
    monkeypatch.setattr("graders.inside.helpers.affine", affine, raising=False)
    monkeypatch.setattr(Recomputed, "fault", fault)
    fn = Helper("affine", (2 * X, X), required)
    asked = case(args=(fn, X), requires_grad=(False, False), how="backward")
    asked = decode(encode(asked))
    yours, right = observe(recomputed, asked), observe(lambda fn, x: fn(x), asked)
    assert [None if g is None else g.shape for g in right.grads] == [X.shape] * sum(required)
    looks = (look.runs, look.untouched) if fault == "fn" else (look.runs, look.value, look.gradient, look.untouched)
    found = look.first_finding(looks, "recomputed(fn, *args)", [(asked, yours, right)])
    assert (told in found.message) if told else found is None, found
    quiet = observe(lambda x: 2 * x, case())  # one case does not disturb the next
    assert not quiet.changed and quiet.failure is None


def test_a_helper_is_made_anew_for_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graders.inside.helpers.chunks", lambda *parts: iter(parts), raising=False)
    asked = case(args=(Helper("chunks", (X, 2 * X)),), requires_grad=(False,), upstream=None)
    for _ in range(2):
        assert torch.equal(observe(lambda chunks: sum(chunks), asked).outputs[0], 3 * X)
    assert observe(lambda chunks: sum(c.zero_() for c in chunks), asked).changed == ("argument 0",)


def test_each_forward_draws_the_same_random_numbers() -> None:
    seen = []
    for seed in (1, 2):  # wherever the process has its random stream
        torch.manual_seed(seed)
        seen.append(observe(lambda x: x * torch.rand(3), case()).outputs[0])
    assert torch.equal(*seen)


def test_a_tuple_of_outputs_takes_a_tuple_of_upstream_gradients() -> None:
    def both(x: torch.Tensor) -> tuple:
        return 2 * x, x.sum()

    drawn = Draw(both, 1).case("two outputs", X)
    assert [u.shape for u in drawn.upstream] == [(3,), ()]
    seen = observe(both, drawn)
    assert torch.allclose(seen.grads[0], 2 * drawn.upstream[0] + drawn.upstream[1])
    assert observe(lambda x: 2 * x, drawn).grads is None
    for more in ({"watch": ("trace",)}, {"order": 2}):  # it would be left out without a word
        with pytest.raises(ValueError, match="several outputs"):
            Draw(both, 1).case("two outputs", X, **more)
    assert observe(both, case()).grads is None


@pytest.mark.parametrize(("within", "dtype"), [("autocast", torch.bfloat16), ("autocast in float16", torch.float16)])
def test_a_forward_may_run_under_autocast(within: str, dtype: torch.dtype) -> None:
    seen = observe(lambda x: x @ x, case(args=(X.float(),), within=within, upstream=torch.ones(())))
    assert seen.outputs[0].dtype == dtype and not seen.changed


def test_the_forward_in_between_runs_outside_autocast() -> None:
    under = []

    def noting(x: torch.Tensor) -> torch.Tensor:
        under.append(torch.is_autocast_enabled("cpu"))
        return x * x

    observe(noting, case(within="autocast", watch=("state",)))
    assert under == [True, True, False]


def test_a_backward_may_run_under_autocast_and_a_forward_under_no_grad() -> None:
    under = []

    class Noting(Twice):
        @staticmethod
        def forward(x):
            under.append(torch.is_autocast_enabled("cpu"))
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            under.append(torch.is_autocast_enabled("cpu"))
            return 2 * g

    seen = observe(Noting.apply, case(within="autocast around backward"))
    assert under == [False, True] and not seen.changed
    assert observe(lambda x: 2 * x, case(within="no_grad", upstream=None)).differentiable == (False,)


def test_the_random_stream_is_not_where_its_seed_puts_it() -> None:
    def again(x):
        mask = torch.rand(3)
        torch.manual_seed(torch.initial_seed())
        assert torch.equal(mask, torch.rand(3))
        return 2 * x

    assert observe(again, case()).failure.kind == "AssertionError"


def test_the_largest_tensor_and_the_peak_are_seen() -> None:
    class Table(Twice):
        @staticmethod
        def forward(x):
            return torch.outer(x, x).sum(0)  # 9 numbers, then 3 more

        @staticmethod
        def backward(ctx, g):
            rows = [g * i for i in range(4)]
            return sum(rows)

    seen = observe(Table.apply, case(watch=("trace",)))
    assert seen.largest == (9, 3) and seen.peak[0] == 12 * 8 and seen.peak[1] >= 5 * 3 * 8
    assert observe(Twice.apply, case(watch=("trace",))).largest == (3, 3)


def test_a_second_order_whose_upstream_gradient_is_a_constant() -> None:
    """A graph that is made only where the upstream gradient asks for one is seen to be missing."""

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            with torch.set_grad_enabled(g.requires_grad):
                return 2 * g * ctx.saved_tensors[0]

    for how, found in (("grad", ""), ("constant", "second order")):
        asked = case(directions=(X,), how=how)
        right = observe(lambda x: x * x, asked)
        assert right.second[0] is not None and (right.second[1] is None) == (how == "constant")
        seen = look.second_order("Square.apply(x)", asked, observe(Square.apply, asked), right)
        assert (seen.look if seen else "") == found
