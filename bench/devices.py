"""Whether the course's right answers are right on another device: parity with the CPU, and torch's gradcheck there.

    python -m bench.devices                       the GPU that torch finds
    python -m bench.devices --device cuda --json devices.json
    python -m bench.devices --device cpu relu     the same calls on the CPU, one set: tries the command

The first right way of each task, and that of each chapter's own, gets the cases of its checks with every tensor on the
device. Its outputs, its gradients and its second order must lie there, have the dtype that they have on the CPU, and
agree with those of the CPU as far as the dtype's rounding lets two orders of summation agree. Where a check has a
gradcheck, that is run on the device too. The first difference of a task is printed.

What a task observes besides (what is kept, which operators run) is not compared: it is no matter of the device. So the
judge's observer, which takes tensors of the CPU alone, has no part in this. The exit code is 1 where anything differs:
on a GPU it does, since chapter 9's and the set's ways to recompute note the CPU's random state alone.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graders.inside import helpers
from graders.inside.records import Case, Helper
from graders.judge.task import Check, Task
from graders.sets import load, names

SUMS = {  # for sums in another order, relative and absolute: some hundred roundings of the dtype
    torch.float64: 1e-10,
    torch.float32: 1e-4,
    torch.float16: 3e-2,
    torch.bfloat16: 1e-1,
}
CHAPTER = Path(__file__).resolve().parents[1] / "book/09_checkpointing.ipynb"
OTHER = {  # checks that are about this process, and hold for no device
    "cost": "counts passes by a helper that goes by way of NumPy",
    "randomness": "draws from the CPU's stream; see `randomness`",
}


@dataclass(frozen=True)
class Result:
    """What was found of one task.

    Args:
        task: as ``relu.Square``.
        cases: how many were compared.
        gradchecks: how many of torch's own were run.
        said: the first difference; empty where there is none.
    """

    task: str
    cases: int
    gradchecks: int
    said: str


def copy(tensor: Tensor, device: str) -> Tensor:
    """The same numbers and strides in memory of its own on the device."""
    if tensor.numel() and 0 in tensor.stride():  # an expanded one: copy what it is expanded from
        small = tensor.detach()[tuple(slice(0, 1) if step == 0 else slice(None) for step in tensor.stride())]
        return small.to(device, copy=True).expand(tensor.shape)
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    return made.copy_(tensor.detach())


class Call:
    """One call of an operation on a device, with arguments of its own.

    Args:
        operation: what is called.
        case: the arguments, the upstream gradient and the directions; what else it asks for is not looked at.
        device: where all tensors go, those that helpers hold too.
    """

    def __init__(self, operation: Callable[..., Any], case: Case, device: str) -> None:
        self.operation, self.case, self.device = operation, case, device
        self.own: list[Tensor] = []
        self.held: list[Tensor] = []
        flags = case.requires_grad or (False,) * len(case.args)
        self.args = [self._made(a, r, self.own) for a, r in zip(case.args, flags, strict=True)]

    def _made(self, thing: Any, required: bool, learning: list[Tensor]) -> Any:
        if isinstance(thing, Tensor):
            made = copy(thing, self.device).requires_grad_(required)
            learning += [made] if required else []
            return made
        if isinstance(thing, tuple):
            return tuple(self._made(t, False, learning) for t in thing)
        if not isinstance(thing, Helper):
            return thing
        function = getattr(helpers, thing.name)
        if thing.args is None:
            return function
        flags = thing.requires_grad or (False,) * len(thing.args)
        return function(*(self._made(a, r, self.held) for a, r in zip(thing.args, flags, strict=True)))

    def numbers(self) -> dict[str, Tensor | None]:
        """Outputs, gradients and second order, by name; None where no gradient arrived."""
        split = len(self.args) - len(self.case.keywords)
        words = dict(zip(self.case.keywords, self.args[split:], strict=True))
        result = self.operation(*self.args[:split], **words)
        outputs = [o for o in (result if isinstance(result, tuple | list) else (result,)) if isinstance(o, Tensor)]
        found: dict[str, Tensor | None] = {f"output {i}": o.detach() for i, o in enumerate(outputs)}
        sent = self.case.upstream
        upstreams = [copy(u, self.device) for u in ((sent,) if isinstance(sent, Tensor) else sent or ())]
        pairs = [(o, u.to(o.dtype)) for o, u in zip(outputs, upstreams, strict=False) if o.requires_grad]
        inputs = self.own + self.held
        if not pairs or not inputs:
            return found
        roots, upstreams = [o for o, _ in pairs], [u.requires_grad_() for _, u in pairs]
        twice = self.case.directions is not None and self.case.how == "grad"
        grads = torch.autograd.grad(roots, inputs, upstreams, create_graph=twice, allow_unused=True)
        found |= {f"gradient {i}": g if g is None else g.detach() for i, g in enumerate(grads)}
        if twice:
            directions = [copy(d, self.device) for d in self.case.directions or ()]
            terms = [(g * d).sum() for g, d in zip(grads, directions, strict=True) if g is not None and g.requires_grad]
            asked = [*inputs, *upstreams]
            second = torch.autograd.grad(sum(terms), asked, allow_unused=True) if terms else [None] * len(asked)
            found |= {f"second order {i}": g for i, g in enumerate(second)}
        return found


def numbers_of(operation: Callable[..., Any], case: Case, device: str) -> dict[str, Tensor | None] | Exception:
    """What a call shows, or what it raises."""
    try:
        return Call(operation, case, device).numbers()
    except Exception as error:
        return error


def difference(here: dict | Exception, other: dict | Exception, device: str) -> str:
    """The first thing that differs, in words; nothing where they agree, or where both refuse."""
    if isinstance(here, Exception) and isinstance(other, Exception):
        return ""
    if isinstance(here, Exception) or isinstance(other, Exception):
        where, error = ("the CPU", here) if isinstance(here, Exception) else (device, other)
        return f"only {where} raises {type(error).__name__}: {str(error).splitlines()[0]}"
    if here.keys() != other.keys():
        return f"{', '.join(here)} on the CPU, {', '.join(other)} on {device}"
    for name, right in here.items():
        found = other[name]
        if right is None or found is None:
            if right is not found:
                return f"{name}: {'none' if found is None else 'one'} on {device} alone"
            continue
        if found.device.type != torch.device(device).type:
            return f"{name} lies on {found.device}"
        if found.dtype != right.dtype or found.shape != right.shape:
            return f"{name}: {found.dtype} {tuple(found.shape)}, on the CPU {right.dtype} {tuple(right.shape)}"
        near = SUMS.get(right.dtype, 0.0)
        scale = right.double().abs().nan_to_num(0, 0, 0).amax().clamp(min=1).item() if right.numel() else 1.0
        if not torch.allclose(found.cpu().double(), right.double(), rtol=near, atol=near * scale, equal_nan=True):
            off = (found.cpu().double() - right.double()).abs().nan_to_num(torch.inf).max().item()
            return f"{name} is off by {off:.3g}"
    return ""


def gradchecked(task: Task, check: Check, operation: Callable[..., Any], device: str) -> str:
    """What torch's gradcheck says on the device; nothing where it passes."""
    if check.gradcheck is None:
        return ""
    args = check.gradcheck(task._draw(check, 0))
    learning = tuple(isinstance(a, Tensor) and a.is_floating_point() for a in args)
    inputs = tuple(Call(operation, Case("", tuple(args), requires_grad=learning), device).args)
    test = torch.autograd.gradcheck if check.order == 1 else torch.autograd.gradgradcheck
    try:
        test(operation, inputs)
    except Exception as error:
        return f"gradcheck: {str(error).splitlines()[0]}"
    return ""


def compared(name: str, task: Task, device: str) -> Result:
    """One task."""
    operation = next(iter(task.solutions.values()))
    cases, gradchecks = 0, 0
    for check in task.checks:
        for case in task._expected(check, 0)[0]:
            if case.within.startswith("autocast") or check.name in OTHER or "dropout" in case.name:
                continue  # autocast is the CPU's there, and so are the random numbers
            cases += 1
            if said := difference(numbers_of(operation, case, "cpu"), numbers_of(operation, case, device), device):
                return Result(name, cases, gradchecks, f"{check.name}, {case.name}: {said}")
        if said := gradchecked(task, check, operation, device):
            return Result(name, cases, gradchecks, f"{check.name}: {said}")
        gradchecks += check.gradcheck is not None
    return Result(name, cases, gradchecks, "")


def chapter(*cells: str) -> dict[str, Any]:
    """What these cells of chapter 9 define."""
    found: dict[str, Any] = {}
    sources = {c["id"]: "".join(c["source"]) for c in json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]}
    lines = sources["plumbing"].splitlines()
    imports = [line for line in lines if line.startswith(("import ", "from ")) and "graders" not in line]
    exec("\n".join(imports), found)
    for name in cells:
        exec(sources[name], found)
    return found


def randomness(device: str) -> list[Result]:
    """Whether ways to recompute repeat a mask on the device, and where they leave its random numbers.

    The set's ways and chapter 9's `Recompute` note the CPU's random state alone; its `OnGpus` is to be right anywhere.
    """
    defined = chapter("state", "recompute", "gpus-class")
    ways: dict[str, Callable[..., Any]] = {
        f"chapter 9's {name}": lambda f, x, w, c=defined[name]: c.apply(x, f, w) for name in ("Recompute", "OnGpus")
    }
    ways |= {f"checkpoint, {name}": way for name, way in load("checkpointing")["checkpoint"].solutions.items()}
    found = []
    for name, checkpoint in ways.items():
        weight = torch.randn(64, 64, device=device, requires_grad=True)
        x = torch.randn(8, 64, device=device, requires_grad=True)

        def net(x: Tensor, weight: Tensor) -> Tensor:
            return torch.nn.functional.dropout(torch.tanh(x @ weight), 0.5)

        results = []
        for run in (net, partial(checkpoint, net)):
            torch.manual_seed(1)
            y = run(x, weight)
            drawn = torch.rand(3, device=device)
            gradients = torch.autograd.grad(y, (x, weight), torch.ones_like(y), allow_unused=True)
            results.append((y.detach(), drawn, *gradients, torch.rand(3, device=device)))
        words = ("the output", "what is drawn after forward", "x", "the weight", "what is drawn after backward")
        wrong = [
            word
            for word, a, b in zip(words, *results, strict=True)
            if a is None or b is None or not torch.allclose(a, b, atol=1e-4)
        ]
        found.append(Result(f"dropout in {name}", 1, 0, f"another: {', '.join(wrong)}" if wrong else ""))
    return found


def found_on(device: str, sets: Sequence[str]) -> list[Result]:
    """What was found of each task of these sets, in their order."""
    results = []
    for name in sets:
        for task in load(name).values():
            if not isinstance(task, Task):
                continue
            print(f"\r\033[K{name}.{task.name}", end="", file=sys.stderr)
            with warnings.catch_warnings(action="ignore"):
                results.append(compared(f"{name}.{task.name}", task, device))
                if (name, task.name) == ("checkpointing", "checkpoint"):
                    results += randomness(device)
    return results


def main(given: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.devices", description=str(__doc__).split("\n\n")[0])
    parser.add_argument("sets", nargs="*", metavar="SET", help="as relu; default: all")
    parser.add_argument("--device", default="cuda", help="as torch names it; default: cuda")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found there too")
    options = parser.parse_args(given)
    if unknown := [name for name in options.sets if name not in names()]:
        parser.error(f"there is no set {unknown[0]}; there are {', '.join(names())}")
    try:
        torch.zeros(1, device=options.device)
    except (RuntimeError, AssertionError) as error:
        parser.exit(2, f"python -m bench.devices: {options.device}: {str(error).splitlines()[0]}\n")
    try:
        results = found_on(options.device, options.sets or names())
    except KeyboardInterrupt:
        print("\r\033[Kbench.devices: stopped", file=sys.stderr)
        return 130
    print("\r\033[K", end="", file=sys.stderr)
    for r in results:
        print(f"{r.task:40} {r.cases:4} cases {r.gradchecks:2} gradchecks  {r.said or 'the same'}")
    wrong = sum(bool(r.said) for r in results)
    print(f"{len(results)} tasks on {options.device}, {len(results) - wrong} the same as on the CPU")
    if options.json:
        options.json.write_text(json.dumps([vars(r) for r in results], indent=1) + "\n", encoding="utf-8")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
