"""Judge an answer in the page: what it does in the graders' cases, beside what is right and what known mistakes do there.

The graders' cases, the right records and those of every known mistake come as data, which `tools.page_tasks` writes when
the book is built; it runs this file under torch for that, so both sides are observed by the same lines.
"""

import json
import math

import torch

try:
    from cell import worded  # Python's words for an error, where the page's Python has others
    from torch._function import STAGE  # which part of a Function runs
except ImportError:  # under torch, when the tasks are exported
    STAGE = None

    def worded(text):
        """Return the text of an error."""
        return text


NEAR = {"d": (1e-7, 1e-7), "f": (1e-4, 1e-5)}  # relative, absolute: as the graders compare
LETTERS = ((torch.float64, "d"), (torch.float32, "f"), (torch.int64, "i"), (torch.bool, "b"))
(
    FAILURE,
    KIND,
    OUTPUTS,
    DIFFERENTIABLE,
    OWN,
    GRADS,
    SECOND,
    CHANGED,
    SIBLING,
    SHARED,
    BETWEEN,
    TWICE,
    OVERWRITTEN,
    NARROW,
) = range(14)
NUMBERS = (FAILURE, KIND, OUTPUTS, DIFFERENTIABLE, OWN, GRADS, SECOND)
FIRST = NUMBERS[:-1]  # a wrong gradient's own derivative may be any
SYMPTOMS = {
    "precise": (NARROW,),
    "untouched": (CHANGED, SIBLING, SHARED),
    "stateless": (BETWEEN, TWICE),
    "guarded": (OVERWRITTEN,),
}
GLOBAL = {}  # where the code of a case finds torch
FAR = 1e-3  # relative and absolute: what no rounding to float32 does
ALIKE = 2  # ordinary cases in which an answer must be wrong as a mistake is, to be taken for it whatever the edges show


class Refused(Exception):
    """The page's torch lacks what an answer needs."""


# ------------------------------------------------------------------------------------------------- what an answer does


def _letter(t):
    for dtype, letter in LETTERS:
        if t.dtype == dtype:
            return letter
    return str(t.dtype)


def _data(t):
    """Return a tensor as dtype, shape and numbers; what is no tensor as its type's name."""
    if t is None:
        return None
    if not isinstance(t, torch.Tensor):
        return type(t).__name__
    return [_letter(t), list(t.shape), t.detach().reshape(-1).tolist()]


def _made(code):
    return eval(code, GLOBAL)


def _arguments(case):
    args = [_made(code) for code in case["args"]]
    for a, required in zip(args, case["requires"]):
        if required:
            a.requires_grad_()
    return args, [a for a, required in zip(args, case["requires"]) if required]


def _again(codes, case):
    """Return the arguments of another call, which the case gives."""
    args = [_made(code) for code in codes]
    for a, required in zip(args, case["requires"]):
        if required:
            a.requires_grad_()
    return args


def _call(apply, case, args):
    names = case["keywords"]
    split = len(args) - len(names)
    return apply(*args[:split], **dict(zip(names, args[split:])))


def _first(text):
    """Return the first sentence of a message, without what depends on names or counts."""
    return text.strip().split("\n")[0].split(". ")[0][:160]


class _Stopped(Exception):
    pass


class _Stage:
    """Turns what an answer raises into a failure of its record."""

    def __init__(self, name, record):
        self.name = name
        self.record = record

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is None or isinstance(error, _Stopped):
            return False
        if not isinstance(error, Exception) or isinstance(error, MemoryError):
            return False
        text = worded(str(error))
        if type(error).__name__ == "NotInPage" or "not in the page's torch" in text:
            raise Refused(text)
        if self.record[FAILURE] is None:
            self.record[FAILURE] = [self._part(trace), type(error).__name__, text]
        raise _Stopped

    def _part(self, trace):
        """Return the part that raised: torch runs setup_context after forward."""
        if self.name != "forward":
            return self.name
        if STAGE is not None:
            return STAGE[0]
        while trace is not None:
            if trace.tb_frame.f_code.co_name == "setup_context":
                return "setup_context"
            trace = trace.tb_next
        return self.name


def _gradients(case, outputs, inputs, upstream, keep=False):
    return torch.autograd.grad(outputs, inputs, upstream, retain_graph=keep, allow_unused=True)


def observe(apply, case):
    """Return the record of one case: what came out, and what was changed. Nothing that the answer raises gets out.

    Raises:
        Refused: the page's torch lacks what the answer uses.
    """
    record = [None, "", None, False, False, None, None, [], None, False, None, None, None, []]
    try:
        _first_order(apply, case, record)
        if record[KIND] == "Tensor" and case["upstream"] is not None:
            if "state" in case["watch"]:
                _state(apply, case, record)
            if "overwrite" in case["watch"]:
                _overwrite(apply, case, record)
        if record[KIND] == "Tensor" and case["directions"] is not None:
            _second(apply, case, record)
    except _Stopped:
        pass
    return record


def _forward(apply, case, args, record):
    with _Stage("forward", record):
        return _call(apply, case, args)


def _narrow(t):
    """Return whether numbers of float64 are all such as float32 holds; None for what are none."""
    if t is None or t.dtype != torch.float64:
        return None
    return not _differs(t.detach().to(torch.float32).to(torch.float64), t.detach())


def _differs(a, b):
    return not torch.equal(a, b) and not torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def _changed(args, was, versions, record):
    for i, (a, copy, version) in enumerate(zip(args, was, versions)):
        if copy is None:
            continue
        if _differs(a.detach(), copy):
            found = "argument " + str(i)
        elif a._version != version:
            found = "argument " + str(i) + " .version"
        else:
            continue
        if found not in record[CHANGED]:
            record[CHANGED].append(found)


def _own(y):
    """Return whether a Function in Python makes the gradient, from leaves alone."""
    node = y.grad_fn
    if node is None:
        return False
    try:
        return isinstance(node.needs_input_grad, tuple)
    except Exception:
        return False


def _first_order(apply, case, record):
    args, inputs = _arguments(case)
    was = [a.detach().clone() if isinstance(a, torch.Tensor) else None for a in args]
    versions = [a._version if isinstance(a, torch.Tensor) else 0 for a in args]
    y = _forward(apply, case, args, record)
    record[KIND] = "Tensor" if isinstance(y, torch.Tensor) else type(y).__name__
    _changed(args, was, versions, record)
    if record[KIND] != "Tensor":
        return
    record[OUTPUTS] = _data(y)
    record[DIFFERENTIABLE] = y.requires_grad
    record[OWN] = _own(y)
    record[NARROW] = [_narrow(y)]
    if case["shared"]:
        record[SHARED] = _shares(apply, case)
    if case["upstream"] is None:
        return
    g = _made(case["upstream"])
    if not y.requires_grad or list(g.shape) != list(y.shape):
        raise _Stopped
    if g.dtype != y.dtype:
        g = g.to(y.dtype)
    kept = g.clone()
    before = y.detach().clone()
    with _Stage("backward", record):
        sibling = torch.zeros_like(y.detach()).requires_grad_()
        found = _gradients(case, y + sibling, inputs + [sibling], g)
        record[GRADS] = [_data(t) for t in found[:-1]]
        record[NARROW] += [_narrow(t) for t in found[:-1]]
        if found[-1] is not None and _differs(found[-1].detach(), kept):
            record[SIBLING] = True
    _changed(args, was, versions, record)
    if _differs(g, kept):
        record[CHANGED].append("the upstream gradient")
    if _differs(y.detach(), before):
        record[CHANGED].append("the output")


def _shares(apply, case):
    """Return whether a change of the output in place reaches an argument."""
    args = [_made(code) for code in case["args"]]
    was = [a.clone() if isinstance(a, torch.Tensor) else None for a in args]
    try:
        with torch.no_grad():
            y = _call(apply, case, args)
            y.add_(1)
    except Exception:
        return False
    return any([copy is not None and _differs(a, copy) for a, copy in zip(args, was)])


def _other(value):
    if isinstance(value, float):
        return value + 0.75
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.float64, torch.float32):
        return value
    return (value.detach() * -0.5 + 0.25).requires_grad_(value.requires_grad)


def _state(apply, case, record):
    args, inputs = _arguments(case)
    y = _forward(apply, case, args, record)
    between = case["between"]
    _forward(apply, case, [_other(a) for a in args] if between is None else _again(between, case), record)
    with _Stage("backward", record):
        record[BETWEEN] = [_data(t) for t in _gradients(case, y, inputs, _made(case["upstream"]), True)]
    with _Stage("second backward", record):
        record[TWICE] = [_data(t) for t in _gradients(case, y, inputs, _made(case["upstream"]))]


def _overwrite(apply, case, record):
    """Note the gradients after a tensor was changed in place before backward; None where torch raises."""
    found = []
    for at in range(len(case["args"]) + 1):
        args, inputs = _arguments(case)
        y = _forward(apply, case, args, record)
        target = y if at == len(args) else args[at]
        if not isinstance(target, torch.Tensor):
            found.append(None)
            continue
        try:
            with torch.no_grad():
                target.mul_(-3).add_(0.3)
            found.append([_data(t) for t in _gradients(case, y, inputs, _made(case["upstream"]))])
        except Exception as error:
            lacks = str(error)
            found.append(None)
            if "not in the page's torch" not in lacks:
                continue
        else:
            continue
        raise Refused(lacks)
    record[OVERWRITTEN] = found


def _second(apply, case, record):
    args, inputs = _arguments(case)
    y = _forward(apply, case, args, record)
    constant = case["how"] == "constant"
    g = _made(case["upstream"])
    if not y.requires_grad or list(g.shape) != list(y.shape):
        raise _Stopped
    if not constant:
        g.requires_grad_()
    with _Stage("second order", record):
        grads = torch.autograd.grad(y, inputs, g, create_graph=True, allow_unused=True)
        total = None
        for slope, code in zip(grads, case["directions"]):
            if slope is not None and slope.requires_grad:
                part = (slope * _made(code)).sum()
                total = part if total is None else total + part
        asked = inputs if constant else inputs + [g]
        if total is None:
            record[SECOND] = [None] * len(asked)
        else:
            record[SECOND] = [_data(t) for t in torch.autograd.grad(total, asked, allow_unused=True)]


# -------------------------------------------------------------------------------------------------- what is wrong there


def _close(a, b, letter):
    if a == b or (a != a and b != b):
        return True
    if isinstance(a, bool) or isinstance(b, bool) or letter not in NEAR:
        return False
    if a != a or b != b or math.isinf(a) or math.isinf(b):
        return False
    rtol, atol = NEAR[letter]
    return abs(a - b) <= atol + rtol * abs(b)


def _wrong_at(mine, right, nan_passes=True):
    """Return the place of the first number that differs, or None. Where nan is right all passes."""
    for i, (a, b) in enumerate(zip(mine[2], right[2])):
        if not _close(a, b, right[0]) and not (nan_passes and b != b):
            return i
    return None


def _alike(a, b):
    """Return whether two parts of records are the same: the numbers of tensors up to rounding."""
    if isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return False
        if len(a) == 3 and isinstance(a[0], str) and isinstance(a[2], list) and isinstance(b[2], list):
            return a[0] == b[0] and a[1] == b[1] and _wrong_at(a, b, False) is None
        return all([_alike(x, y) for x, y in zip(a, b)])
    return a == b


def _failed_alike(a, b):
    if a is None or b is None:
        return a is b
    # who raised, and where: torch's own words are the same in the page up to names and counts
    return a[0] == b[0] and a[1] == b[1] and _stripped(a[2]) == _stripped(b[2])


def _stripped(text):
    """Return a message without what depends on names and counts."""
    text = _first(text).split("modified by an inplace operation")[0]
    if "' object has no attribute '" not in text:
        text = "'".join(text.split("'")[::2])
    out = ""
    for c in text:
        out += c if not c.isdigit() else ""
    at = out.find("Backward")
    while at >= 0:
        start = at
        while start and (out[start - 1].isalpha() or out[start - 1] == "_"):
            start -= 1
        out = out[:start] + "~" + out[at + 8 :]
        at = out.find("Backward")
    return out


def same(mine, theirs, fields):
    """Return whether two records say the same in these fields."""
    for field in fields:
        if field == FAILURE:
            if not _failed_alike(mine[field], theirs[field]):
                return False
        elif not _alike(mine[field], theirs[field]):
            return False
    return True


def _place(shape, i):
    index = []
    for n in reversed(shape):
        index.append(i % n)
        i //= n
    return tuple(reversed(index))


def _number(value):
    if isinstance(value, float):
        text = "%.6g" % value
        return text
    return str(value)


def _item(code, shape, i):
    """Return the number at a place of an argument, where it has one there: of the same shape, or one alone."""
    value = _made(code)
    if not isinstance(value, torch.Tensor):
        return _number(value) if isinstance(value, (int, float)) else None
    if list(value.shape) == list(shape):
        return _number(value.reshape(-1).tolist()[i])
    if value.numel() == 1:
        return _number(value.reshape(-1).tolist()[0])
    return None


def _around(task, case, shape, i, upstream):
    parts = []
    given = [(name, code) for name, code in zip(task["parameters"], case["args"])]
    if upstream:
        given.append(("the upstream gradient", case["upstream"]))
    for name, code in given:
        value = _item(code, shape, i)
        if value is not None:
            parts.append(name + " = " + value)
    return " where " + ", ".join(parts) if parts else ""


def _differ(task, case, what, mine, right, upstream):
    if mine[1] != right[1]:
        return (
            "The " + what + " has the shape " + str(tuple(mine[1])) + ", and should have " + str(tuple(right[1])) + "."
        )
    at = _wrong_at(mine, right)
    if at is None:
        return None
    index = _place(right[1], at)
    said = " at index " + str(index) if index else ""
    a, b = _number(mine[2][at]), _number(right[2][at])
    if a == b:
        a, b = repr(mine[2][at]), repr(right[2][at])
    return (
        "Wrong "
        + what
        + said
        + _around(task, case, right[1], at, upstream)
        + ": yours is "
        + a
        + ", right is "
        + b
        + "."
    )


def _grads(task, case, what, mine, right, none_is_zero=False):
    if right is None:
        return None
    names = [name for name, required in zip(task["parameters"], case["requires"]) if required] + [
        "the upstream gradient"
    ]
    for name, a, b in zip(names, mine or [None] * len(right), right):
        if b is None and a is None:
            continue
        if b is None and (none_is_zero or name == "the upstream gradient"):
            b = [a[0], a[1], [0.0] * len(a[2])]
        if a is None and none_is_zero and not any([n != 0 for n in b[2]]):
            continue
        if a is None:
            return "The " + what + " with respect to " + name + " is None: nothing is passed back."
        if b is not None and not isinstance(a, str):
            found = _differ(task, case, what + " with respect to " + name, a, b, True)
            if found:
                return found
    return None


def _runs(task, case, mine, right):
    failure = mine[FAILURE]
    if failure is None:
        return None
    stage, kind, text = failure
    if kind == "NotImplementedError" and not text.startswith('"'):  # torch raises it too: "x" not implemented for ...
        return "Your " + stage + " is not written yet" + (": " + _first(text) if text else "") + "."
    if kind == "ValueError" and stage.endswith("backward") and "values to unpack" in text:
        text = (
            text.rstrip(".")
            + ". ctx.saved_tensors holds what went through ctx.save_for_backward, a tuple of that length"
        )
        return "The " + stage + " raised " + kind + ": " + text + "."
    return "The " + stage + " raised " + kind + (": " + _first(text) if text else "") + "."


def _returns(task, case, mine, right):
    if mine[KIND] == right[KIND]:
        return None
    hint = " Does forward end in a return statement?" if mine[KIND] == "NoneType" else ""
    return "The forward returned " + mine[KIND] + ", expected " + right[KIND] + "." + hint


def _shape(task, case, mine, right):
    a, b = mine[OUTPUTS], right[OUTPUTS]
    if a and b and a[1] != b[1]:
        return "The output has the shape " + str(tuple(a[1])) + ", and should have " + str(tuple(b[1])) + "."


DTYPES = {"d": "float64", "f": "float32", "i": "int64", "b": "bool"}


def _dtype(task, case, mine, right):
    a, b = mine[OUTPUTS], right[OUTPUTS]
    if a and b and a[0] != b[0]:
        return (
            "Your output is "
            + DTYPES.get(a[0], a[0])
            + " where "
            + DTYPES.get(b[0], b[0])
            + " is wanted, the dtype of the input."
        )


def _pairs(mine, right):
    """Return the float64 numbers of an output and of the gradients, beside the right ones, where shapes are alike."""
    pairs = [("value", mine[OUTPUTS], right[OUTPUTS])]
    pairs += [("gradient", a, b) for a, b in zip(mine[GRADS] or [], right[GRADS] or [])]
    return [(what, a, b) for what, a, b in pairs if a and b and a[0] == b[0] == "d" and a[1] == b[1]]


def _off(x, y, tolerance):
    if x == y or (x != x and y != y):
        return False
    return not abs(x - y) <= tolerance + tolerance * abs(y) or math.isinf(x) or math.isinf(y)


def _precise(task, case, mine, right):
    """Look whether nearly right float64 numbers have the digits of float32 alone."""
    for what, a, b in _pairs(mine, right):
        if any([_off(x, y, 1e-6) for x, y in zip(a[2], b[2])]) or not any(
            [_off(x, y, 1e-10) for x, y in zip(a[2], b[2])]
        ):
            continue
        size = min([1.0, max([abs(y) for y in b[2]])])
        if all([x == y or x != x or abs(x - y) <= 1e-6 * size + 1e-6 * abs(y) for x, y in zip(a[2], b[2])]):
            return (
                "precise",
                "In float64 your " + what + " has the digits of float32 only: a .float(), or a tensor made without "
                "dtype=, narrows it on the way.",
            )
        return what + " tiny", "Wrong " + what + ": the numbers are all tiny, and differ."
    return None


def _far(mine, right):
    """Return whether a number is off by more than rounding to float32 makes of it."""
    for _, a, b in _pairs(mine, right):
        if any([_off(x, y, FAR) for x, y in zip(a[2], b[2])]):
            return True
    return False


def _keeps_nan(task, case, mine, right):
    if mine[OUTPUTS] and right[OUTPUTS]:
        for i, (a, b) in enumerate(zip(mine[OUTPUTS][2], right[OUTPUTS][2])):
            if b != b and a == a:
                index = _place(right[OUTPUTS][1], i)
                at = " at index " + str(index) if index else ""
                return "value", "Wrong value" + at + ", where x is nan: a nan that is hidden is found later, elsewhere."
    return None


def _output_is_free(task, case, mine, right):
    found = mine[OVERWRITTEN]
    if found and found[-1] is None:
        return (
            "guarded",
            "When your output is changed in place before backward, torch raises; here it has to be free for that.",
        )
    return None


def _value(task, case, mine, right):
    if mine[OUTPUTS] and right[OUTPUTS]:
        return _differ(task, case, "value", mine[OUTPUTS], right[OUTPUTS], False)


def _exact(task, case, mine, right):
    """Look at the output's numbers to the last bit."""
    if mine[OUTPUTS] and right[OUTPUTS]:
        if mine[OUTPUTS][0] != right[OUTPUTS][0]:
            return _dtype(task, case, mine, right)
        for i, (a, b) in enumerate(zip(mine[OUTPUTS][2], right[OUTPUTS][2])):
            if a != b and (a == a or b == b):
                there = _around(task, case, right[OUTPUTS][1], i, False)
                return "The value is not exact" + there + ": yours is " + repr(a) + ", right is " + repr(b) + "."


def _function(task, case, mine, right):
    if not right[DIFFERENTIABLE] or mine[OUTPUTS] is None:
        return None
    if not mine[DIFFERENTIABLE]:
        return "The output does not require a gradient, so nothing reaches x: is it cut off by detach or no_grad?"
    if not mine[OWN]:
        return "The gradient of your output is torch's, wholly or in part (see its grad_fn); the task asks for yours."


def _gradient(task, case, mine, right):
    return _grads(task, case, "gradient", mine[GRADS], right[GRADS])


def _sound(task, case, mine, right):
    said = _gradient(task, case, mine, right) if case["watch"] else None
    return ("gradient", said) if said else None


def _second_order(task, case, mine, right):
    return _grads(task, case, "second derivative", mine[SECOND], right[SECOND], True)


def _untouched(task, case, mine, right):
    if mine[CHANGED]:
        what = mine[CHANGED][0].split(" .")[0]
        if what.startswith("argument"):
            what = task["parameters"][int(what.split()[1])]
        return "Your code changes " + what + " in place; it belongs to the caller."
    if mine[SIBLING]:
        return "Your backward writes into the upstream gradient and corrupts the gradient of another branch."
    if mine[SHARED]:
        return "The output shares memory with an argument: changing one in place changes the other."


def _stateless(task, case, mine, right):
    if mine[BETWEEN] is None or right[BETWEEN] is None:
        return None
    return _grads(task, case, "gradient after another forward before backward", mine[BETWEEN], right[GRADS]) or _grads(
        task, case, "gradient after running backward twice", mine[TWICE], right[GRADS]
    )


def _guarded(task, case, mine, right):
    for at, grads in enumerate(mine[OVERWRITTEN] or []):
        if grads is not None and _grads(task, case, "gradient", grads, right[GRADS]):
            name = task["parameters"][at] if at < len(case["args"]) else "the output"
            return (
                "You keep "
                + name
                + " where torch does not watch it: when it is changed in place before backward, the gradient is "
                "silently wrong. Use ctx.save_for_backward."
            )


LOOKS = {
    "runs": _runs, "returns": _returns, "shape": _shape, "dtype": _dtype, "precise": _precise, "value": _value,
    "function": _function, "gradient": _gradient, "sound": _sound, "second_order": _second_order, "untouched": _untouched,
    "stateless": _stateless, "guarded": _guarded, "exact": _exact,
    "keeps_nan": _keeps_nan, "output_is_free": _output_is_free,
}  # fmt: skip


def _finding(task, check, look, mine, right, i):
    """Return what a look finds wrong in a case, as its name and a sentence, or None."""
    said = LOOKS[look](task, check["cases"][i], mine[i], right[i])
    return (look, said) if isinstance(said, str) else said


def find(task, check, mine, right, places=None):
    """Return the look that finds fault first, the place of its case, and what it says; None where all is right."""
    places = range(len(mine)) if places is None else places
    spare = None
    for look in check["looks"]:
        failing = []
        for i in places:
            found = _finding(task, check, look, mine, right, i)
            if found:
                failing.append((found[0], i, found[1]))
        if look == "precise" and failing and any([_far(mine[i], right[i]) for i in places]):
            failing = [found for found in failing if found[0] != "precise"]  # rounding is not what is wrong
            if failing:
                spare = spare or failing[0]
                continue
        if failing:
            return _plain(failing[0])
    return _plain(spare) if spare else None


def _plain(found):
    return found[0].split(" ")[0], found[1], found[2]


# ------------------------------------------------------------------------------------------------------ whose mistake


def _theirs(check, name, i):
    """Return a mistake's record of a case: the right one with what it does otherwise."""
    record = list(check["right"][i])
    for field, value in check["known"][name].get(str(i), {}).items():
        record[int(field)] = value
    return record


def _fields(looks):
    fields = list(FIRST if list(looks) == ["gradient"] else NUMBERS)
    for look in looks:
        fields += SYMPTOMS.get(look, ())
    return fields


def _fitting(check, names, mine, looks, places):
    fields = _fields(looks)
    return [n for n in names if all([same(mine[i], _theirs(check, n, i), fields) for i in places])]


def recognise(task, check, found, seen, apply):
    """Return the one known mistake that does in the cases what the answer does; None where none or several do."""
    look, place, _ = found
    mine = seen(check)
    everywhere = [place] + [i for i in range(len(mine)) if i != place]
    names = [n for n in check["known"] if check["by"].get(n) == look]
    fitting = _fitting(check, names, mine, [look], everywhere)
    if not fitting and look in ("runs", "value", "gradient", "second_order"):
        places = [i for i in everywhere if check["cases"][i]["ordinary"]]
        wrong = [i for i in places if find(task, check, mine, check["right"], [i])]
        if len(wrong) < ALIKE:
            return None
        fitting = _fitting(check, list(check["known"]), mine, [], wrong + [i for i in places if i not in wrong])
    for looks in ([], list(SYMPTOMS)):
        for other in task["checks"]:
            if len(_said(task, fitting)) > 1:
                fitting = _fitting(other, fitting, seen(other), looks, range(len(other["cases"])))
    return fitting[0] if len(_said(task, fitting)) == 1 else None


def _said(task, names):
    said = []
    for name in names:
        text = task["mistakes"][name]["message"]
        if text not in said:
            said.append(text)
    return said


def judge(task, apply):
    """Return what each check says, as a list of (name, about, state, sentence, next, mistake)."""
    GLOBAL["torch"] = torch
    GLOBAL["inf"] = math.inf
    GLOBAL["nan"] = math.nan
    records = {}

    def seen(check):
        if check["name"] not in records:
            records[check["name"]] = [observe(apply, case) for case in check["cases"]]
        return records[check["name"]]

    said = []
    told = None  # the first check that failed, its look and its mistake
    for check in task["checks"]:
        try:
            found = find(task, check, seen(check), check["right"])
        except Refused as error:
            said.append((check["name"], check["about"], "lacks", str(error) + ".", "", ""))
            continue
        if found is None:
            count = len(check["cases"])
            text = "Right in " + str(count) + " case" + ("s" if count > 1 else "") + "."
            said.append((check["name"], check["about"], "holds", text, "", ""))
            continue
        try:
            mistake = recognise(task, check, found, seen, apply)
        except Refused:
            mistake = None
        if told and (told[2] == mistake or not mistake or task["mistakes"][mistake]["caught_by"] == told[0]):
            said.append(
                (
                    check["name"],
                    check["about"],
                    "waits",
                    "Judged once " + told[0].replace("_", " ") + " passes.",
                    "",
                    "",
                )
            )
            continue
        if mistake is None and told is None:
            told = (check["name"], found[0], None)
        elif mistake:
            told = told or (check["name"], found[0], mistake)
        text = task["mistakes"][mistake]["message"] if mistake else found[2]
        following = "" if mistake else task["next"].get(found[0], "")
        said.append((check["name"], check["about"], "not yet", text, following, mistake or ""))
    return said


# ---------------------------------------------------------------------------------------------------- what is printed

TASKS = {}  # by name, read once
MARKS = {"holds": "\u2713", "not yet": "\u2717", "waits": "\u2026", "lacks": "?"}
NAMES = [{}]  # where a reader's names are
HEARD = []  # what the coach said last, as data


def _numbers(value):
    """Put numbers in the place of the words that JSON has for those that are not finite."""
    if isinstance(value, dict):
        for key in value:
            _numbers(value[key])
    elif isinstance(value, list):
        if len(value) == 3 and isinstance(value[0], str) and value[0] in DTYPES:
            value[2][:] = [float(n) if isinstance(n, str) else n for n in value[2]]
        else:
            for each in value:
                _numbers(each)


def load(text):
    """Take up the tasks of a set."""
    for task in json.loads(text):
        for check in task["checks"]:
            _numbers(check["right"])
            _numbers(check["known"])
        TASKS[task["name"]] = task


def fresh(names):
    """Forget a reader's names, and give the coach."""
    for name in list(names):
        if not name.startswith("_") and name != "zip":
            del names[name]
    names["coach"] = coach
    NAMES[0] = names


def coach(thing, where=""):
    """Judge an answer by its task's checks, and print what each of them says."""
    name = thing if isinstance(thing, str) else getattr(thing, "__name__", "")
    if name not in TASKS:
        known = ", ".join(sorted(TASKS))
        print("No task here is called " + str(name) + ". " + ("There are " + known + "." if known else ""))
        return
    task = TASKS[name]
    NAMES[0]["print"] = lambda *values, **ways: None  # an answer runs dozens of times
    try:
        said = judge(task, thing.apply if hasattr(thing, "apply") else thing)
    finally:
        del NAMES[0]["print"]
    HEARD[:] = said
    held = 0
    for check, _, state, text, following, _ in said:
        held += state == "holds"
        print(MARKS[state] + " " + check.replace("_", " ") + ": " + text + (" " + following if following else ""))
    for check, about in task["unseen"]:
        print(
            "? "
            + check.replace("_", " ")
            + ": not checked in the page ("
            + about
            + "). The coach in Jupyter checks it."
        )
    total = len(said)
    if held == total:
        if task["unseen"]:
            print("All " + str(total) + " checks that run in the page hold.")
        else:
            print("All " + str(total) + " checks hold." if total > 1 else "The check holds.")
        print("Not checked in the page: " + task["left"] + ". The coach in Jupyter checks these.")
