"""The failing case of a verdict as Python that runs below the answer, and prints what comes out beside what should.

It is made of the case, the reference's record and the finding alone. Of the student's record only numbers, shapes and
names that are known here choose what is printed: no text of a student's gets into code that others may paste.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from graders.inside.observe import GRAD
from graders.inside.records import Case, Record
from graders.inside.wire import inexact
from graders.judge.looks import Finding, describe, parameters
from graders.judge.script import FEW, MOST, TRACED, Script, comment, draws, nested, off, size, tensors, written

# How many elements of a tensor are pasted where a look does not care which numbers it holds; larger ones are random.
AT_RANDOM = dict.fromkeys(["keeps", "bytes", "largest", "peak", "counts"], 8)
AT_RANDOM |= dict.fromkeys(["allowed", "by hand", "function", "no function", "shape", "dtype"], MOST)
REFUSAL = "this function may not be used here"  # what `observe` raises in place of a function that a case denies

GRAPH = """nodes = [{root}.grad_fn]
for node in nodes:
    nodes += [n for n, _ in node.next_functions if n is not None and n not in nodes]"""
STATE = {  # how what torch holds for all code is printed, and how it is where nothing changed it
    "the anomaly detection": ("torch.is_anomaly_enabled()", "False"),
    "the autocast state": (
        'torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")',
        "False torch.bfloat16",
    ),
    "the default device": ("torch.get_default_device()", "cpu"),
    "the default dtype": ("torch.get_default_dtype()", "torch.float32"),
    "the gradient mode": ("torch.is_grad_enabled()", "True"),
    "the saved-tensor hooks": ("torch._C._autograd._top_saved_tensors_default_hooks(True)", "None"),
    "the stack of modes": ("torch.overrides._get_current_function_mode_stack()", "[]"),
}


def pasted(call: str, finding: Finding) -> str:
    """Return the case of a finding as code; "" where none would show what is found.

    Args:
        call: how the task's text writes the call.
        finding: of a look.
    """
    if finding.failing is None or finding.look not in KINDS:
        return ""
    failing = [pair for pair in finding.failing() if pair[1].look == finding.look]
    if not failing:
        return ""
    (case, yours, expected), found = failing[0]
    if size(case) > MOST:  # the first one is what the verdict tells of
        (case, yours, expected), found = min(failing, key=lambda pair: size(pair[0][0]))
    script = Script(call, case, AT_RANDOM.get(finding.look, 0))
    if large := script.too_large():
        text = f"The smallest case that fails is too large to be pasted: {large}. It is {describe(call, case)}."
        return "\n".join(comment(text))
    KINDS[finding.look](script, yours, expected, found)
    return script.text() if script.shows else ""


def pasted_gradcheck(call: str, args: Sequence[object], upstream: Tensor | None) -> str:
    """Return torch's gradcheck of these arguments as code, or with an upstream gradient its gradgradcheck."""
    flags = tuple(map(inexact, args))
    script = Script(call, Case("gradcheck", tuple(args), requires_grad=flags))
    if script.too_large() or (upstream is not None and upstream.numel() > MOST):
        return ""
    script.inputs()
    given = ", ".join(script.expressions)
    given = f"({given},)" if len(args) == 1 else f"({given})"
    name, more = "gradcheck", ""
    if upstream is not None:
        script.tensor("upstream", upstream, True)
        name, more = "gradgradcheck", ", (upstream,)"
    told = f"torch.autograd.{name}({script.head}, {given}{more}, fast_mode=True, check_undefined_grad=False)"
    script.print(told, "True")
    return script.text()


# --- what is shown, by the look that found it -------------------------------------------------------------------------


def _value(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    s.inputs()
    s.forward(expected)
    s.print_outputs(yours, expected)


def _gradient(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    if expected.grads is None:
        return
    s.inputs()
    s.forward(expected)
    s.backward(s.upstreams(yours, expected))
    s.print_grads([f"{name}.grad" for name in s.asked], yours.grads, expected.grads)


def _precise(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    narrow = any(
        not torch.allclose(a, b, rtol=1e-10, atol=1e-10, equal_nan=True)
        for a, b in zip(yours.outputs, expected.outputs, strict=False)
        if a.shape == b.shape and a.dtype == b.dtype
    )
    (_value if expected.grads is None or narrow else _gradient)(s, yours, expected, finding)


def _second(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    case = s.case
    if expected.second is None or not isinstance(case.upstream, Tensor) or case.directions is None:
        return
    s.inputs()
    s.forward(expected)
    constant = case.how == "constant"
    s.tensor("upstream", case.upstream, not constant)
    names = [f"direction_of_{name}" for name in s.asked]
    for name, direction in zip(names, case.directions, strict=True):
        s.tensor(name, direction)
    asked = ", ".join(s.asked)
    if "state" in case.watch:
        plain = "upstream" if constant else "upstream.detach()"
        s.add(f"torch.autograd.grad({s.output}, [{asked}], {plain}, retain_graph=True, allow_unused=True)")
    s.add(
        f"grads = torch.autograd.grad({s.output}, [{asked}], upstream, create_graph=True, allow_unused=True)",
        f"pairs = zip(grads, [{', '.join(names)}])",
        "total = sum((grad * direction).sum() for grad, direction in pairs if grad is not None)",
    )
    if case.directions and case.directions[0].is_complex():
        s.add("total = total.real + 0.5 * total.imag")
    more = "" if constant else ", upstream"
    s.add(f"second = torch.autograd.grad(total, [{asked}{more}], allow_unused=True)")
    wanted = [
        torch.zeros_like(case.upstream)
        if b is None and i == len(s.asked)
        else torch.zeros_like(a)
        if b is None and a is not None
        else b
        for i, (a, b) in enumerate(zip(yours.second or expected.second, expected.second, strict=True))
    ]
    wanted = wanted[: len(s.asked) + (not constant)]
    mine = [
        torch.zeros_like(b) if a is None and b is not None and not b.any() else a
        for a, b in zip(yours.second or expected.second, wanted, strict=False)
    ]
    s.print_grads([f"second[{i}]" for i in range(len(wanted))], tuple(mine), tuple(wanted), none=True)


def _runs(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    failure = yours.failure
    if failure is None or (failure.kind == "NotImplementedError" and not failure.message):
        return
    if failure.message == REFUSAL:
        _allowed(s, yours, expected, finding)
    elif failure.stage == "second order":
        _second(s, yours, expected, finding)
    elif (failure.called and yours.kind) or failure.stage == "second backward":
        _stateless(s, yours, expected, finding)
    elif failure.called or expected.grads is None:
        _value(s, yours, expected, finding)
    elif yours.grads is None:
        _gradient(s, yours, expected, finding)
    else:
        _stateless(s, yours, expected, finding)


def _returns(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    s.inputs()
    s.forward(expected)
    if expected.numbers and yours.kind == expected.kind:
        s.print_outputs(yours, expected)
    elif yours.kind == expected.kind:
        s.print(f"len({s.output})", str(len(expected.outputs)))
    elif " " in yours.kind and expected.kind == "Tensor":
        right = f"torch.strided cpu {expected.outputs[0].dtype}"
        s.print(f"{s.output}.layout, {s.output}.device, {s.output}.dtype", right)
    else:
        s.print(f"type({s.output}).__name__", expected.kind)


def _attribute(name: str, tell: Callable[[Tensor], str]) -> Callable[[Script, Record, Record, Finding], None]:
    def shown(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
        s.inputs()
        s.forward(expected)
        pairs = zip(yours.outputs, expected.outputs, strict=False)
        place = next((i for i, (a, b) in enumerate(pairs) if tell(a) != tell(b)), 0)
        output = s.output if expected.kind == "Tensor" else f"{s.output}[{place}]"
        told = f"{output}.{name}"
        s.print(f"tuple({told})" if name == "shape" else told, tell(expected.outputs[place]))

    return shown


def _function(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    s.inputs()
    s.forward(expected)
    several = expected.kind != "Tensor"
    place = next((i for i, d in enumerate(expected.differentiable) if d), 0)
    output = f"{s.output}[{place}]" if several else s.output
    if any(yours.differentiable) != any(expected.differentiable):
        s.print(f"{output}.requires_grad", str(any(expected.differentiable)))
        return
    s.add(GRAPH.format(root=output))
    s.print(
        "sorted({node.name() for node in nodes})",
        "the backward of your own Function, AccumulateGrad, and nothing of torch's that computes",
    )


def _no_function(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    s.inputs()
    s.forward(expected)
    s.add(GRAPH.format(root=s.output))
    s.print("[n.name() for n in nodes if isinstance(n, torch.autograd.function.BackwardCFunction)]", "[]")


def _untouched(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    what, *rest = (yours.changed or ("",))[0].partition(" .")[::2]
    part = rest[0] if rest else ""
    upstream = isinstance(s.case.upstream, Tensor)
    s.inputs()
    pairs = s.upstreams(yours, expected)
    held = s.held.get(int(what.split()[1]), []) if what.startswith("argument") else []
    graded = part == "grad" and s.case.how != "backward"
    if graded:
        s.add(*(f"{name}.grad = torch.full_like({name}, {GRAD})" for name in held))
    if what == "the random stream":
        s.seed()
        s.within("forward", f"{s.output} = {s.called()}")
        s.add("torch.rand(())", "before = torch.get_rng_state()")
        s.backward(pairs)
        s.print("torch.equal(before, torch.get_rng_state())", "True")
        return
    s.forward(expected)
    if graded and pairs:
        asked = ", ".join(s.asked)
        outputs, sent = (", ".join(column) for column in zip(*pairs, strict=True))
        s.add(f"torch.autograd.grad([{outputs}], [{asked}], [{sent}], allow_unused=True)")
    elif not what and upstream and not yours.shares_memory:  # a sibling
        asked = ", ".join(s.asked)
        s.add(
            f"sibling = torch.zeros_like({s.output}, memory_format=torch.contiguous_format).requires_grad_()",
            f"*_, of_sibling = torch.autograd.grad({s.output} + sibling, [{asked}, sibling], {pairs[0][1]}, "
            "allow_unused=True)",
        )
        assert isinstance(s.case.upstream, Tensor)
        s.print_tensor("of_sibling", yours.sibling, s.case.upstream)
        return
    elif pairs and yours.failure is None and what:
        s.backward(pairs)
    given = dict(zip(parameters(s.call), s.case.args, strict=False))
    if held:
        was = tensors(tuple(given.values())[int(what.split()[1])])
        for name, tensor in zip(held, was, strict=False):
            if part == "requires_grad":
                s.print(f"{name}.requires_grad", str(name in s.asked))
            elif part == "_backward_hooks":
                s.print(f"bool({name}._backward_hooks or {name}._post_accumulate_grad_hooks)", "False")
            elif graded:
                if name in s.asked:
                    s.print(f"None if {name}.grad is None else {name}.grad.unique().tolist()", f"[{GRAD}]")
            else:
                if tensor.numel() <= FEW:
                    s.print(f"{name}.tolist()", nested(tensor.tolist()))
                s.print(f"{name}._version", "0")
    elif what == "the upstream gradient":
        for (_, name), one in zip(pairs, tensors(s.case.upstream), strict=False):
            s.print(f"{name.split('.to')[0]}.tolist()", nested(one.tolist()))
    elif what == "the output":
        s.print_tensor(s.output, expected.outputs[0], expected.outputs[0])
    elif what in STATE:
        s.print(*STATE[what])
    elif yours.shares_memory:
        names = [n for names in s.held.values() for n in names]
        pointer = f"{s.output}.untyped_storage().data_ptr()"
        s.print(f"[{pointer} == a.untyped_storage().data_ptr() for a in ({', '.join(names)},)]", _falses(len(names)))


def _falses(count: int) -> str:
    return repr([False] * count)


def _stateless(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    case = s.case
    if expected.grads is None or not isinstance(case.upstream, Tensor):
        return
    s.inputs()
    s.forward(expected)
    if case.between is not None:
        others = s.others(case.between)
    else:
        others = [_other(e, v) for e, v in zip(s.expressions, case.args, strict=True)]
    s.within("between", f"{s.called(others)}  # another forward before backward")
    pairs = s.upstreams(yours, expected)
    s.backward(pairs, keep=True)
    s.print_grads([f"{name}.grad" for name in s.asked], yours.interleaved, expected.grads)
    s.add(*(f"{name}.grad = None" for name in s.asked))
    s.backward(pairs)
    s.print_grads([f"{name}.grad" for name in s.asked], yours.repeated, expected.grads)


def _other(expression: str, value: object) -> str:
    """Return other numbers in the place of an argument: see `observe._other`."""
    if isinstance(value, float):
        return repr(value + 0.75)
    if not isinstance(value, Tensor):
        return expression
    made = f"({expression}.detach() * -0.5 + 0.25)"
    if not inexact(value):
        return f"{made}.to({value.dtype})"
    return f"{made}.requires_grad_({expression}.requires_grad)"


def _guarded(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    if expected.grads is None:
        return
    places = [(what, grads) for what, grads in yours.overwritten if grads is not None and " ." not in what]
    wrong = [(w, g) for w, g in places if any(off(a, b) for a, b in zip(g, expected.grads, strict=False))]
    if not wrong and any(w.endswith(" .version") for w, _ in places):
        return  # what is seen is that nothing raises, where no number changes
    what: str = wrong[0][0] if wrong else "the output"
    grads = wrong[0][1] if wrong else None
    s.inputs()
    s.forward(expected)
    pairs = s.upstreams(yours, expected)
    name, tensor = s.output, expected.outputs[0]
    if what.startswith("argument"):
        place = int(what.split()[1])
        name, argument = s.expressions[place], s.case.args[place]
        assert isinstance(argument, Tensor)  # what is changed in place is one
        tensor = argument
    spoilt = f"{name}.mul_(-3).add_(0.3)" if inexact(tensor) else f"{name}.copy_({name}.roll(1))"
    s.add("with torch.no_grad():", f"    {spoilt}")
    if wrong:
        s.add("# expected: backward raises a RuntimeError, or the gradient is that of the numbers as they were")
    else:
        s.add("# expected: backward raises nothing")
    s.backward(pairs)
    s.print_grads([f"{n}.grad" for n in s.asked], grads, expected.grads)


def _allowed(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    if yours.nested:
        _by_hand(s, yours, expected, finding)
        return
    ran = " ".join([*yours.denied, finding.evidence.get("ran", "")])
    names = [n for n in s.case.deny if f" {n.split('.')[0]} " in f" {ran} " and "::" in n]
    python = [n for n in s.case.deny if "::" not in n]
    if not names and not (python and yours.failure is not None and yours.failure.message == REFUSAL):
        return
    s.inputs()
    pairs = s.upstreams(yours, expected) if expected.grads is not None else []
    if names:
        s.trace()
        s.add("trace = Trace()")
        s.forward(expected, "trace")
        if pairs:
            s.backward(pairs, "trace")
        found = sorted({n.split(".")[0] for n in names})
        s.print(f"[name for name in {found!r} if name in {{n.split('.')[0] for n in trace.operators}}]", "[]")
        return
    with _profiled(s):
        s.forward(expected)
        if pairs:
            s.backward(pairs)
    modules = sorted({n.rpartition(".")[0] for n in python} - {"torch"})
    s.imports |= {f"import {m}": None for m in modules}
    s.print(f"[f.__name__ for f in ({', '.join(python)},) if f.__code__ in ran]", "[]")


@contextmanager
def _profiled(s: Script) -> Iterator[None]:
    """Put what is added within among lines that note the functions of Python's that run, whatever name they go by."""
    s.imports["import sys"] = None
    s.add("ran = []", 'sys.setprofile(lambda frame, event, _: ran.append(frame.f_code) if event == "call" else None)')
    s.add("try:")
    start = len(s.lines)
    yield
    s.lines[start:] = [f"    {line}" for line in s.lines[start:]]
    s.add("finally:", "    sys.setprofile(None)")


def _by_hand(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    if not yours.nested or expected.grads is None:
        return
    s.inputs()
    pairs = s.upstreams(yours, expected)
    s.forward(expected)
    with _profiled(s):
        s.backward(pairs)
    s.print("ran.count(torch.autograd.grad.__code__)", "0")
    s.print("ran.count(torch.autograd.backward.__code__)", "1 (the call above)")


def _memory(attribute: str) -> Callable[[Script, Record, Record, Finding], None]:
    """Return what shows the memory of the passes: what is kept, the largest tensor, the worst moment."""

    def shown(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
        told = finding.evidence.get("expected", "less")
        told = f"at most {told}" if told.isdecimal() else told
        s.inputs()
        if finding.look == "keeps" and told == "only the output kept":
            place = next(iter(yours.kept_arguments), 0)
            s.imports |= dict.fromkeys(TRACED[:2])
            s.add(
                f"copy = {s.expressions[place]}.clone()  # a tensor that nothing but your code can keep",
                "memory = StorageWeakRef(copy.untyped_storage())",
            )
            s.expressions[place] = "copy"
            s.forward(expected)
            s.add("del copy", "gc.collect()")
            s.print("memory.expired()", "True")
            return
        s.trace()
        known = [n for names in s.held.values() for n in names]
        s.add(f"forward = Trace({', '.join(known)})")
        s.forward(expected, "forward")
        if attribute == "kept":
            s.add("gc.collect()")
            s.print(f"forward.alive() - {s.output}.nbytes", told)
            return
        s.print(f"forward.{attribute}", told)
        if expected.grads is not None and isinstance(s.case.upstream, Tensor):
            pairs = s.upstreams(yours, expected)
            s.add(f"backward = Trace({', '.join([*known, s.output, 'upstream'])})")
            s.add("backward.known |= set(forward.made)")
            s.backward(pairs, "backward")
            s.print(f"backward.{attribute}", told)

    return shown


def _counts(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    s.inputs()
    names = sorted({name for text in s.defined for name in re.findall(r"TALLY\['(\w+)'\]", text)})
    if not names:
        return
    pairs = s.upstreams(yours, expected) if expected.grads is not None else []
    s.add("TALLY.clear()")
    s.forward(expected)
    if pairs:
        s.backward(pairs)
    s.print(
        f"TALLY[{names[0]!r}]" if len(names) == 1 else "dict(TALLY)",
        finding.evidence.get("expected", "less: see the verdict"),
    )


def _stream(s: Script, yours: Record, expected: Record, finding: Finding) -> None:
    s.inputs()
    if not draws(expected):
        s.seed()
    s.forward(expected)
    s.print("torch.rand((), dtype=torch.float64).item()", written(expected.drawn))


KINDS: dict[str, Callable[[Script, Record, Record, Finding], None]] = {
    "runs": _runs,
    "returns": _returns,
    "shape": _attribute("shape", lambda t: str(tuple(t.shape))),
    "dtype": _attribute("dtype", lambda t: str(t.dtype)),
    "value": _value,
    "epsilon": _value,
    "precise": _precise,
    "gradient": _gradient,
    "second order": _second,
    "function": _function,
    "no function": _no_function,
    "untouched": _untouched,
    "stateless": _stateless,
    "guarded": _guarded,
    "allowed": _allowed,
    "by hand": _by_hand,
    "keeps": _memory("kept"),
    "bytes": _memory("kept"),
    "largest": _memory("largest"),
    "peak": _memory("peak"),
    "counts": _counts,
    "stream": _stream,
}
