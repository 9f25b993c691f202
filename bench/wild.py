"""The checklist over Functions of public packages: what `book/i_wild.ipynb` reads into its table.

    python -m bench.wild                     every package, into book/packages.json
    python -m bench.wild entmax norse        these alone, printed and not written

Each package is installed in the one version that PINS names, without what it depends on, into a folder of its own, and
reviewed in a process of its own. Where its `__init__` needs more than torch and NumPy, the one module that holds the
Function is imported past it. `book/checklist.py` does the review: the same items as on the page.

A surrogate or straight-through gradient is not meant to be the derivative of the value. It is judged by the gradient
that the package's documentation states, `surrogate=`, up to a constant factor, and *second order* is not asked.
vmap, forward mode and torch.compile are not tried. Other items may fail where nothing was promised: an item that fails
is something to know, and not always a fault, and the page says which is which.
"""

import argparse
import importlib
import json
import math
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "book/packages.json"
PINS = {
    "brevitas": "0.13.4",
    "diffsort": "0.2.0",
    "e3nn": "0.6.0",
    "entmax": "1.3",
    "geffnet": "1.0.2",
    "gpytorch": "1.15.2",
    "kornia": "0.9.0",
    "norse": "1.1.0",
    "pytorch-revgrad": "0.2.0",
    "pytorch-tabnet": "4.1.0",
    "revtorch": "0.2.4",
    "roma": "1.8.0",
    "snntorch": "1.0.0",
    "sparsemax": "0.1.9",
    "spikingjelly": "2.0.0",
    "timm": "1.0.31",
    "torch-struct": "0.5",
    "torchdiffeq": "0.2.5",
}
FLOAT64 = {"dtypes": (torch.float64,)}  # where the code is documented for no other, or draws on LAPACK


@dataclass
class Subject:
    """A Function under review.

    Args:
        name: as the package calls it.
        f: what is called.
        cases: arguments for its branches.
        promises: what `review` may hold it to.
        kind: *derivative*, or *surrogate* where it is meant to be another gradient.
    """

    name: str
    f: Callable
    cases: list
    promises: dict = field(default_factory=dict)
    kind: str = "derivative"


def past(name: str, folder: str) -> types.ModuleType:
    """A module, imported without running the `__init__` of the packages that it lies in."""
    prepare(name.rpartition(".")[0], folder)
    return importlib.import_module(name)


def prepare(package: str, folder: str) -> None:
    """Put empty packages in the place of those that a module lies in, so that their `__init__` is not run."""
    parts = package.split(".")
    for i in range(1, len(parts) + 1):
        empty = types.ModuleType(".".join(parts[:i]))
        empty.__path__ = [str(Path(folder, *parts[:i]))]
        sys.modules.setdefault(empty.__name__, empty)


def t(*values: float) -> Tensor:
    """Numbers in float64 that require a gradient."""
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers that require a gradient, the same on each run."""
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return drawn.requires_grad_()


X = t(-4.2, -1.3, -0.4, 0.3, 0.9, 1.7, 3.6)  # off the kinks of all activations here


NEAR = t(-4.2, -0.4, 0.3)  # where surrogates of slope 25 are not yet gone, and one far below the threshold


def by_sort(x: Tensor) -> Tensor:
    """Sparsemax along the last axis, of torch's operations."""
    z = x.sort(-1, descending=True).values
    count = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    size = (1 + count * z > z.cumsum(-1)).sum(-1, keepdim=True)
    tau = (z.cumsum(-1).gather(-1, size - 1) - 1) / size.to(x.dtype)
    return (x - tau).clamp(min=0)


def conjugate(x: Tensor) -> Tensor:
    """The maximum of <x, p> - |p|^2 / 2 over the simplex, whose gradient is sparsemax."""
    p = by_sort(x)
    return (x * p).sum(-1) - p.square().sum(-1) / 2


# ------------------------------------------------------------------- the packages


def entmax(_: str) -> list[Subject]:
    import entmax as e

    rows = [(normal(3, 5),), (normal(2, 2, 5, seed=1),)]
    plain = FLOAT64 | {"reference": by_sort}
    return [
        Subject("SparsemaxFunction", lambda x: e.sparsemax(x, -1), rows, plain),
        Subject("Entmax15Function", lambda x: e.entmax15(x, -1), rows, FLOAT64),
        Subject("EntmaxBisectFunction", lambda x: e.entmax_bisect(x, 1.5, -1), rows, FLOAT64),
    ]


def sparsemax(_: str) -> list[Subject]:
    from sparsemax.sparsemax import SparsemaxFunction

    rows = [(normal(3, 5), -1), (normal(2, 2, 5, seed=1), -1)]
    plain = FLOAT64 | {"reference": lambda x, dim: by_sort(x)}
    return [Subject("SparsemaxFunction", SparsemaxFunction.apply, rows, plain)]


def pytorch_tabnet(folder: str) -> list[Subject]:
    m = past("pytorch_tabnet.sparsemax", folder)
    flat, deep = [(normal(3, 5), -1)], [((0.5 * normal(2, 1, 5)).detach().requires_grad_(), -1)]
    plain = FLOAT64 | {"reference": lambda x, dim: by_sort(x)}
    return [
        Subject("SparsemaxFunction, 2 axes", m.SparsemaxFunction.apply, flat, plain),
        Subject("SparsemaxFunction, 3 axes", m.SparsemaxFunction.apply, deep, plain),
        Subject("Entmax15Function", m.Entmax15Function.apply, flat + deep, FLOAT64),
        Subject("Entmoid15", m.Entmoid15.apply, [(t(-4.2, -1.3, -0.4, 0.3, 0.9, 1.7),)], {"elementwise": True}),
    ]


def hard_sigmoid(x: Tensor) -> Tensor:
    """F.hardsigmoid, whose slope in float64 is the 1/6 of float32."""
    return (x + 3).clamp(0, 6) / 6


def activations(m: types.ModuleType, jit: str) -> list[Subject]:
    how = {"elementwise": True}
    pairs = {"Swish": F.silu, "Mish": F.mish, "HardSigmoid": hard_sigmoid, "HardSwish": F.hardswish}
    return [
        Subject(f"{n}{jit}AutoFn", getattr(m, f"{n}{jit}AutoFn").apply, [(X,)], how | {"reference": f})
        for n, f in pairs.items()
    ]


def timm(folder: str) -> list[Subject]:
    return activations(past("timm.layers.activations_me", folder), "")


def geffnet(folder: str) -> list[Subject]:
    return activations(past("geffnet.activations.activations_me", folder), "Jit")


def squared(a: Tensor, b: Tensor) -> Tensor:
    """Squared distances of rows."""
    return (a[:, None] - b[None]).square().sum(-1)


def gpytorch(folder: str) -> list[Subject]:
    a, b = normal(3, 2).detach(), normal(4, 2, seed=1).detach()
    length = t(0.8).reshape(1, 1).detach().requires_grad_()
    rbf = past("gpytorch.functions.rbf_covariance", folder).RBFCovariance.apply
    matern = past("gpytorch.functions.matern_covariance", folder).MaternCovariance.apply
    cdf = past("gpytorch.functions._log_normal_cdf", folder).LogNormalCDF.apply

    def gauss(l: Tensor) -> Tensor:  # noqa: E741
        return (-squared(a.to(l), b.to(l)) / (2 * l * l)).exp()

    def laplace(l: Tensor) -> Tensor:  # noqa: E741
        return (-squared(a.to(l), b.to(l)).sqrt() / l).exp()

    return [
        Subject(
            "RBFCovariance",
            lambda l: rbf(a.to(l), b.to(l), l, squared),  # noqa: E741
            [(length,)],
            FLOAT64 | {"reference": gauss},
        ),
        Subject(
            "MaternCovariance",
            lambda l: matern(a.to(l), b.to(l), l, 0.5, lambda p, q: squared(p, q).sqrt()),  # noqa: E741
            [(length,)],
            FLOAT64 | {"reference": laplace},
        ),
        Subject("LogNormalCDF", cdf, [(X,)], FLOAT64 | {"reference": torch.special.log_ndtr}),
    ]


def e3nn(folder: str) -> list[Subject]:
    f = past("e3nn.math._soft_unit_step", folder).soft_unit_step
    return [Subject("_SoftUnitStep", f, [(X,)], FLOAT64 | {"elementwise": True})]


def torch_struct(folder: str) -> list[Subject]:
    f = past("torch_struct.semirings.sparse_max", folder)._SimplexProject.apply
    return [Subject("_SimplexProject", lambda x: f(x, -1), [(normal(3, 5),)], FLOAT64 | {"reference": conjugate})]


def torchdiffeq(_: str, adjoint: bool = True) -> list[Subject]:
    from torchdiffeq import odeint, odeint_adjoint

    class Spring(torch.nn.Module):
        def forward(self, s: Tensor, y: Tensor) -> Tensor:
            return torch.stack([y[1], -y[0].sin()])

    times = torch.linspace(0, 1, 3, dtype=torch.float64)

    def solve(y: Tensor) -> Tensor:
        how = {"rtol": 1e-11, "atol": 1e-11}
        if not adjoint:
            return odeint(Spring(), y, times, **how)[-1]
        return odeint_adjoint(Spring(), y, times, adjoint_params=(), **how)[-1]

    return [Subject("OdeintAdjointMethod", solve, [(t(0.5, -0.3),)], FLOAT64)]


def spike(x: Tensor, *_: object) -> Tensor:
    """The step that is the value of all of these."""
    return (x > 0).to(x.dtype) + 0 * x


def surrogates(pairs: dict[str, tuple[Callable, tuple, Callable]]) -> list[Subject]:
    how = {"elementwise": True}
    return [
        Subject(name, f, [(NEAR, *rest)], how | {"reference": spike, "surrogate": s}, "surrogate")
        for name, (f, rest, s) in pairs.items()
    ]


def snntorch(folder: str) -> list[Subject]:
    m = past("snntorch.surrogate", folder)
    return surrogates(
        {
            "Sigmoid": (m.Sigmoid.apply, (25,), lambda x, k: (k * x).sigmoid()),
            "FastSigmoid": (m.FastSigmoid.apply, (25,), lambda x, k: x / (1 + k * x.abs())),
            "ATan": (m.ATan.apply, (2.0,), lambda x, a: (math.pi * x * a / 2).atan() / math.pi),
            "StraightThroughEstimator": (m.StraightThroughEstimator.apply, (), torch.clone),
        }
    )


def norse(folder: str) -> list[Subject]:
    m = past("norse.torch.functional.threshold", folder)
    s = past("norse.torch.functional.superspike", folder)
    return surrogates(
        {
            "SuperSpike": (s.SuperSpike.apply, (100.0,), lambda x, a: x / (1 + a * x.abs())),
            "HeaviTanh": (m.HeaviTanh.apply, (2.5,), lambda x, k: (k * x).tanh() / k),
            "HeaviErfc": (m.HeaviErfc.apply, (2.5,), lambda x, k: (k * x).erf() / k),
        }
    )


def spikingjelly(folder: str) -> list[Subject]:
    m = past("spikingjelly.activation_based.surrogate", folder)
    return surrogates(
        {
            "atan": (m.atan.apply, (2.0,), lambda x, a: (math.pi / 2 * a * x).atan() / math.pi),
            "sigmoid": (m.sigmoid.apply, (4.0,), lambda x, a: (a * x).sigmoid()),
            "soft_sign": (m.soft_sign.apply, (2.0,), lambda x, a: a * x / (1 + (a * x).abs()) / 2),
        }
    )


def brevitas(folder: str) -> list[Subject]:
    prepare("brevitas.function", folder)
    sys.modules["brevitas"].jit = importlib.import_module("brevitas.jit")
    m = past("brevitas.ops.autograd_ste_ops", folder)
    how = {"elementwise": True, "surrogate": torch.clone}
    return [
        Subject(n, getattr(m, n).apply, [(X,)], how | {"reference": f}, "surrogate")
        for n, f in {"RoundSteFn": torch.round, "FloorSteFn": torch.floor, "CeilSteFn": torch.ceil}.items()
    ]


def pytorch_revgrad(_: str) -> list[Subject]:
    from pytorch_revgrad.functional import revgrad

    alpha = torch.tensor(0.5, dtype=torch.float64)
    how = {"elementwise": True, "reference": lambda x: x * 1, "surrogate": lambda x: -0.5 * x}
    return [Subject("RevGrad", lambda x: revgrad(x, alpha.to(x.dtype)), [(X,)], how, "surrogate")]


def diffsort(folder: str) -> list[Subject]:
    f = past("diffsort.functional", folder).NormalCDF.apply

    def cdf(x: Tensor, sigma: float) -> Tensor:
        return torch.special.ndtr(x / sigma)

    return [Subject("NormalCDF", f, [(X, 0.7)], FLOAT64 | {"elementwise": True, "reference": cdf})]


def roma(_: str) -> list[Subject]:
    import roma as r

    return [Subject("special_procrustes", r.special_procrustes, [(normal(2, 3, 3),)], FLOAT64)]


def kornia(folder: str) -> list[Subject]:
    f = past("kornia.losses.focal", folder)._TargetLogSoftmax.apply
    target = torch.tensor([[0], [2]])

    def plain(x: Tensor) -> Tensor:
        return x.log_softmax(1).gather(1, target)

    how = FLOAT64 | {"reference": plain}
    return [Subject("_TargetLogSoftmax", lambda x: f(x, target, None), [(normal(2, 4),)], how)]


def revtorch(folder: str) -> list[Subject]:
    m = past("revtorch.revtorch", folder)

    class Sine(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sin()

    def plain(x: Tensor) -> Tensor:
        a, b = x.chunk(2, 1)
        a = a + b.sin()
        return torch.cat([a, b + a.sin()], 1)

    block = m.ReversibleSequence(torch.nn.ModuleList([m.ReversibleBlock(Sine(), Sine())]), False)
    return [Subject("_ReversibleModuleFunction", block, [(normal(3, 4),)], FLOAT64 | {"reference": plain})]


# ------------------------------------------------------------------- numbers of what was found


def second(f: Callable, x: Tensor) -> float:
    """The second derivative of a sum of squares, as autograd has it."""
    (first,) = torch.autograd.grad(f(x).square().sum(), x, create_graph=True)
    return torch.autograd.grad(first, x)[0].item()


def slope(f: Callable, x: Tensor) -> list[float]:
    """The gradient of a sum."""
    return torch.autograd.grad(f(x).sum(), x)[0].flatten().tolist()


def numbers_entmax(_: str) -> dict[str, object]:
    import entmax as e

    drawn, rows = torch.Generator().manual_seed(0), {}
    for n in (3, 5, 10, 50):
        x = torch.randn(100, n, generator=drawn, dtype=torch.float64, requires_grad=True)
        p = e.entmax15(x, -1)
        (first,) = torch.autograd.grad(p.square().sum(), x, create_graph=True)
        (twice,) = torch.autograd.grad(first.square().sum(), x)
        (first_too,) = torch.autograd.grad(e.entmax_bisect(x, 1.5, -1).square().sum(), x, create_graph=True)
        (bisected,) = torch.autograd.grad(first_too.square().sum(), x)
        passes = torch.autograd.gradcheck(lambda x: e.entmax15(x, -1), x[:20].detach().requires_grad_())
        zeros, lost, same = ((each).any(-1).sum().item() for each in (p == 0, twice.isnan(), bisected.isnan()))
        rows[str(n)] = {"gradcheck": passes, "rows with a zero": zeros, "rows with nan": lost}
        rows[str(n)]["rows with nan, entmax_bisect"] = same
    return {"entmax15, 100 rows of standard normal random numbers, by their length": rows}


def numbers_gpytorch(folder: str) -> dict[str, object]:
    a, b = normal(3, 2).detach(), normal(4, 2, seed=1).detach()
    length = t(0.8).reshape(1, 1).detach().requires_grad_()
    rbf = past("gpytorch.functions.rbf_covariance", folder).RBFCovariance.apply
    cdf = past("gpytorch.functions._log_normal_cdf", folder).LogNormalCDF.apply
    z = torch.linspace(-12, 3, 15001, dtype=torch.float64)
    gap = (cdf(z) - torch.special.log_ndtr(z)).abs()
    return {
        "RBFCovariance, second derivative": second(lambda x: rbf(a, b, x, squared), length),
        "the same of torch's operations": second(lambda x: (-squared(a, b) / (2 * x * x)).exp(), length),
        "LogNormalCDF at -2, second derivative of its square": second(cdf, t(-2)),
        "the same of log_ndtr": second(torch.special.log_ndtr, t(-2)),
        "LogNormalCDF, largest error": gap.max().item(),
        "LogNormalCDF, where": z[gap.argmax()].item(),
    }


def numbers_norse(folder: str) -> dict[str, object]:
    f = past("norse.torch.functional.superspike", folder).SuperSpike.apply
    return {f"SuperSpike at 0.3, alpha {a:g}": slope(lambda x, a=a: f(x, a), t(0.3))[0] for a in (1.0, 10.0, 100.0)}


def numbers_snntorch(folder: str) -> dict[str, object]:
    f = past("snntorch.surrogate", folder).Sigmoid.apply
    found = [slope(lambda x: f(x, 25), torch.tensor([x], requires_grad=True))[0] for x in (-1.0, -3.0, -5.0)]
    return {"Sigmoid in float32 at -1, -3 and -5": [f"{g:.4g}" for g in found]}


def numbers_revtorch(folder: str) -> dict[str, object]:
    block = revtorch(folder)[0].f
    ways = {False: "F.relu", True: "F.relu(inplace=True)"}
    return {
        f"gradient below {name}": slope(lambda x, w=way: F.relu(block(x), inplace=w), normal(2, 4))[:4]
        for way, name in ways.items()
    }


def numbers_pytorch_tabnet(folder: str) -> dict[str, object]:
    f = past("pytorch_tabnet.sparsemax", folder).SparsemaxFunction.apply
    found = {}
    for shape in ((2, 3), (2, 1, 3)):
        x = t(-2, 0, 0.5, 0.1, 2, -0.4).detach().reshape(shape).requires_grad_()
        found[f"gradient of the sum of squared outputs, shape {shape}"] = slope(lambda x: f(x * 1, -1).square(), x)
    x = t(1, 3, 2)
    f(x, -1)
    return found | {"[1, 3, 2] after a call": x.tolist()}


def numbers_torchdiffeq(folder: str) -> dict[str, object]:
    solve = torchdiffeq(folder)[0].f
    y = t(0.5, -0.3)
    (first,) = torch.autograd.grad(solve(y).square().sum(), y, create_graph=True)
    found = {"a gradient with create_graph=True has a graph": first.requires_grad}
    for name, way in (("odeint_adjoint", solve), ("odeint", torchdiffeq(folder, adjoint=False)[0].f)):
        (first,) = torch.autograd.grad(way(y).square().sum() + y.pow(3).sum(), y, create_graph=True)
        found[f"second derivatives with the cubes of y in the loss, {name}"] = slope(lambda _, g=first: g, y)
    return found


NUMBERS = {name: globals().get(f"numbers_{name.replace('-', '_')}", lambda _: {}) for name in PINS}
PACKAGES = {name: globals()[name.replace("-", "_")] for name in PINS}

# ------------------------------------------------------------------- the run


def inside(name: str, folder: str) -> tuple[list[dict], dict]:
    """Review the Functions of one package, in this process."""
    sys.path[:0] = [folder, str(ROOT / "book")]
    from checklist import ITEMS, verdicts

    warnings.simplefilter("ignore")
    rows = []
    for subject in PACKAGES[name](folder):
        torch.manual_seed(0)
        asked = [item for item in ITEMS if (subject.kind, item) != ("surrogate", "second order")]
        found = list(verdicts(subject.f, *subject.cases, only=asked, **subject.promises))
        rows.append(
            {
                "package": name,
                "version": PINS[name],
                "function": subject.name,
                "kind": subject.kind,
                "passed": sum(verdict == "passed" for _, verdict, _ in found),
                "failed": {what: note for what, verdict, note in found if verdict == "FAILED"},
            }
        )
    return rows, NUMBERS[name](folder)


def main() -> None:
    """Install, review, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", help="these alone; nothing is written")
    parser.add_argument("--folder", help="where packages are installed, each in a folder of its name")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        print(json.dumps(inside(asked.packages[0], asked.folder)))
        return
    base = Path(asked.folder or tempfile.mkdtemp(prefix="wild-"))
    rows, numbers = [], {}
    for name in asked.packages or PINS:
        folder = base / name
        if not folder.exists():
            pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
            subprocess.run([*pip, f"{name}=={PINS[name]}"], check=True)
        command = [sys.executable, "-m", "bench.wild", name, "--inside", "--folder", str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{name}: {done.stderr.strip()[-1500:]}")
        found, numbers[name] = json.loads(done.stdout.splitlines()[-1])
        rows += found
        for row in found:
            print(f"{name} {row['version']} {row['function']}: {row['passed']} passed")
            for item, note in row["failed"].items():
                print(f"    FAILED {item}: {note}")
        for what, number in numbers[name].items():
            print(f"    {what}: {number}")
    if not asked.packages:
        torch_version = torch.__version__.partition("+")[0]
        found = {"torch": torch_version, "rows": rows, "numbers": {k: v for k, v in numbers.items() if v}}
        OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
