"""No operator of torch's computes what a set forbids without being on its list.

All of torch's operators are called, in children that may crash, with whatever fits their arguments. One whose result is
the forbidden function's, or another that a task does not allow, has to be denied, or to run what is. Each walk through
all operators takes up to a minute, the five of them less than four: they are run where WALK is set, as `.ci/run` does,
and the others always.
"""

import faulthandler
import itertools
import math
import os
import pickle
import resource
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graders.inside.memory import Trace
from graders.sets import module
from graders.sets.logsumexp.common import SUMS
from graders.sets.logsumexp.cross_entropy import LOSSES

F = torch.nn.functional
X = torch.tensor([-2.3, -0.7, 0.3, 0.45, 1.9, 3.1], dtype=torch.float64)
P = X.abs() + 0.05
U = X / 4
G = torch.tensor([0.7, -1.3, 0.2, 1.1, -0.4, 0.9], dtype=torch.float64)
M = torch.stack([X[:4], X[2:], G[:4]])
TARGET = torch.tensor([0, 2, 1])
Q, K, V = (torch.randn(1, 2, 5, 8, generator=torch.Generator().manual_seed(i)) for i in (1, 2, 3))
CHANGES = ("aten::from_file", "aten::manual_seed", "aten::_cuda", "aten::set_data", "aten::resize", "aten::_resize")
in_full = pytest.mark.skipif(
    not os.environ.get("WALK"),
    reason="a walk through all operators takes a minute: WALK=1 .venv/bin/python -m pytest tests/engine/test_denied.py",
)
MOST = 40  # ways of changing so many of an operator's arguments
ROOM = 1 << 30  # bytes for an operator that takes what it finds in memory for a size; else it takes the whole machine's


def _fillings(schema: object, pools: dict[str, list]) -> Iterator[tuple[list, dict]]:
    """Arguments for an operator: from the pool of each type, at most two of them changed from the first choice.

    That is the first of the pool for every argument; or the first for the first, the second for the second, ...
    """
    choices, turned, seen = [], [], {}
    for argument in schema.arguments:
        kind = str(argument.type)
        inner = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind
        pool, count = list(pools.get(inner, ())), seen.setdefault(inner, 0)
        seen[inner] += 1
        around = [*pool[count % len(pool) :], *pool[: count % len(pool)]] if pool else []
        if argument.has_default_value():
            pool, around = [argument.default_value, *pool[:3]], [argument.default_value, *pool[:3]]
        elif kind.startswith("Optional["):
            pool, around = [*pool, None], [None, *around]
        if not pool:
            return
        choices.append(pool)
        turned.append(around)
    keywords = [a.name if a.kwarg_only else "" for a in schema.arguments]
    for changes, pool in itertools.islice(((c, p) for c in range(3) for p in (turned, choices)), 6):
        for values in itertools.islice(_changed(pool, changes), MOST):
            yield (
                [v for v, n in zip(values, keywords, strict=True) if not n],
                {n: v for v, n in zip(values, keywords, strict=True) if n},
            )


def _changed(pool: list[list], changes: int) -> Iterator[list]:
    """The first of each, but for so many."""
    for places in itertools.combinations(range(len(pool)), changes):
        for values in itertools.product(*(pool[i][1:] for i in places)):
            yield [values[places.index(i)] if i in places else p[0] for i, p in enumerate(pool)]


def _fresh(value: object) -> object:
    return (
        value.clone() if isinstance(value, Tensor) else [_fresh(v) for v in value] if isinstance(value, list) else value
    )


def _tensors(result: object) -> list[Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, Tensor)]


def _matches(schema: object, pools: dict[str, list], targets: list[Tensor]) -> set[tuple[str, ...]]:
    """For each way to get a target from an operator, what ran."""
    found = set()
    function = torch._C._get_operation_overload(schema.name, schema.overload_name)[0]
    for args, keywords in _fillings(schema, pools):
        args, trace = _fresh(args), Trace()
        try:
            with trace:
                result = function(*args, **keywords)
            if any(_equal(t, targets) for t in _tensors([result, args])):
                found.add(tuple(sorted({name.split(".")[0] for name in trace.operators})))
        except Exception:  # it wants other arguments
            continue
    return found


def _equal(tensor: Tensor, targets: list[Tensor]) -> bool:
    """Whether a tensor equals one of the targets, which are stacked by shape."""
    return tensor.is_floating_point() and any(
        torch.isclose(tensor.to(t.dtype), t, 1e-5, 1e-6).flatten(1).all(1).any()
        for t in targets
        if t.shape[1:] == tensor.shape
    )


def _sound(given: list[Tensor], before: list[Tensor]) -> bool:
    """Whether torch still works, and the arguments are what they were."""
    try:
        with Trace() as trace:
            right = torch.allclose(torch.sigmoid(X), 1 / (1 + torch.exp(-X)))
        return right and "aten::sigmoid" in trace.operators and all(map(torch.equal, given, before))
    except Exception:
        return False


def walked(
    pools: dict[str, list], targets: list[Tensor], chosen: Callable[[str], bool]
) -> dict[str, set[tuple[str, ...]]]:
    """Every operator that makes a target, with what it ran; one that kills its process is left out."""
    schemas = [s for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::") and chosen(s.name)]
    schemas = [s for s in schemas if not s.name.startswith(CHANGES) and "out" not in s.overload_name]
    schemas = [s for s in schemas if any("Tensor" in str(a.type) for a in s.arguments)]
    given = [v for pool in pools.values() for v in pool if isinstance(v, Tensor)]
    targets = [t for t in targets if not any(g.shape == t.shape and torch.allclose(g.to(t.dtype), t) for g in given)]
    targets = [torch.stack([t for t in targets if t.shape == shape]) for shape in {t.shape for t in targets}]
    found, start, before = {}, 0, [t.clone() for t in given]
    while (began := start) < len(schemas):
        source, sink = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(source)
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1), os.dup2(null, 2)
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0)), faulthandler.disable()
                most = ROOM + os.sysconf("SC_PAGE_SIZE") * int(Path("/proc/self/statm").read_text().split()[0])
                _, hard = resource.getrlimit(resource.RLIMIT_AS)
                most = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.setrlimit(resource.RLIMIT_AS, (most, most))
                with open(sink, "wb") as out:
                    for i in range(start, len(schemas)):
                        pickle.dump((i, None), out), out.flush()
                        pickle.dump((i, _matches(schemas[i], pools, targets)), out), out.flush()
                        if not _sound(given, before):
                            break  # the next child goes on
            finally:  # nothing of it runs pytest any further
                os._exit(0)
        os.close(sink)
        with open(source, "rb") as inside:
            while True:
                try:
                    place, ran = pickle.load(inside)
                except EOFError:
                    break
                start = place + 1
                if ran:
                    found.setdefault(schemas[place].name, set()).update(ran)
        os.waitpid(child, 0)
        assert start > began, "not one operator was tried"
    return found


def undenied(found: dict[str, set[tuple[str, ...]]], deny: tuple[str, ...]) -> list[str]:
    """The operators that make a target, are not denied and run nothing that is."""
    names = {name.split(".")[0] for name in deny}
    return sorted(name for name, ways in found.items() if any(not names.intersection((name, *way)) for way in ways))


# --- the sets ---------------------------------------------------------------------------------------------------------


def _pools(tensors: list[Tensor], **more: list) -> dict[str, list]:
    pools = {"Tensor": tensors, "int": [-1, 0, 1], "float": [1.0, 0.0, 0.5], "bool": [False, True]}
    pools |= {"number": [1.0, 2.0, math.e], "List[int]": [[-1], [0]], "str": ["none", "mean", "tanh"]}
    pools |= {
        "List[Tensor]": [[t] for t in tensors[:2]],
        "List[Optional[Tensor]]": [[tensors[0]]],
        "List[bool]": [[True] * 3],
    }
    return pools | more


def _everything(name: str) -> bool:
    return True


@cache
def _transcendental() -> dict:
    s = torch.sigmoid
    targets = [
        s(X),
        s(-X),
        F.logsigmoid(X),
        F.softplus(X),
        F.silu(X),
        torch.tanh(X),
        torch.tanh(X / 2),
        s(X) * (1 - s(X)),
    ]
    targets += [1 - torch.tanh(X) ** 2, F.mish(X), F.gelu(X), F.gelu(X, approximate="tanh"), F.elu(X), F.selu(X)]
    targets += [
        f(X) for f in (torch.exp2, torch.sin, torch.cos, torch.tan, torch.sinh, torch.cosh, torch.asinh, torch.atan)
    ]
    targets += [
        f(X) for f in (torch.erf, torch.erfc, torch.lgamma, torch.digamma, torch.i0, torch.sinc, torch.special.ndtr)
    ]
    targets += [f(P) for f in (torch.log, torch.log2, torch.log10, torch.log1p, torch.acosh)] + [X.abs() ** X, P**P]
    targets += [f(U) for f in (torch.asin, torch.acos, torch.atanh, torch.erfinv, torch.logit)]
    targets += [torch.logaddexp(X, torch.zeros_like(X)), torch.special.entr(P), torch.xlogy(P, P)]
    zeros, ones = torch.zeros_like(X), torch.ones_like(X)
    given = [X, P, zeros, U, ones, -X, torch.stack([X, zeros], -1), torch.cat([ones, X])]
    return walked(_pools(given), targets, _everything)


@in_full
def test_whatever_is_transcendental_is_denied_to_sigmoid() -> None:
    found = _transcendental()
    assert len(found) > 60 and {"aten::sigmoid", "aten::special_expit", "aten::glu"} <= set(found)
    assert undenied(found, module("sigmoid").sigmoid.DENIED) == []


@in_full
def test_whatever_adds_exponentials_is_denied_to_logsumexp() -> None:
    targets = [f(M, d) for f in (torch.logsumexp, torch.softmax, torch.log_softmax, torch.logcumsumexp) for d in (0, 1)]
    targets += [torch.logsumexp(M, 1, True), torch.logaddexp(M, M + 1), torch.logaddexp2(M, M + 1), F.softmin(M, 1)]
    targets += [f(t) for f in (F.softplus, F.logsigmoid) for t in (M, -M)]
    found = walked(
        _pools([M, M + 1, torch.zeros_like(M), torch.eye(4, dtype=M.dtype)], int=[1, 0, -1]), targets, _everything
    )
    assert {f"aten::{n}" for n in ("logsumexp", "_softmax", "logaddexp", "softplus", "log_sigmoid")} <= set(found)
    assert undenied(found, SUMS) == []


def test_whatever_attends_makes_no_softmax() -> None:
    """Attention of the identity is a softmax, and one of torch's gives the logarithm of the sum as well."""
    eye = torch.eye(5).expand(1, 1, 5, 5).contiguous()
    scores = Q[:, :1, :, :5].contiguous()
    scaled = scores @ eye.mT / math.sqrt(5)
    found = walked(
        _pools([scores, eye, eye.clone()]), [scaled.softmax(-1), scaled.logsumexp(-1)], lambda n: "atten" in n
    )
    assert found and undenied(found, SUMS) == []


@in_full
def test_whatever_attends_is_denied_to_attention() -> None:
    o = F.scaled_dot_product_attention(Q, K, V)
    found = walked(_pools([Q, K, V]), [o, o.transpose(1, 2)], _everything)
    turned = [t.transpose(1, 2).contiguous() for t in (Q, K, V)]
    found |= walked(_pools(turned), [o, o.transpose(1, 2)], lambda name: "atten" in name)
    assert "aten::scaled_dot_product_attention" in found
    assert undenied(found, module("flash_attention").common.DENIED) == []


@in_full
def test_whatever_ends_in_a_loss_is_denied_to_cross_entropy() -> None:
    each = F.cross_entropy(M, TARGET, reduction="none")
    pools = _pools([M, TARGET, M.log_softmax(1), F.one_hot(TARGET, 4).double()], int=[1, 0, 2, -100])
    found = walked(pools, [each.mean(), each.sum(), each], _everything)
    assert {"aten::nll_loss", "aten::cross_entropy_loss"} <= set(found)
    assert undenied(found, LOSSES) == []


def test_whatever_quantises_is_denied() -> None:
    narrow = X.float()
    right = torch.stack([(torch.clamp(torch.round(narrow / 0.5) + 1, -4, 7) - 1) * 0.5])
    pools = {"Tensor": [narrow, torch.tensor([0.5]), torch.tensor([1], dtype=torch.int32), torch.tensor([1.0])]}
    more = [torch.tensor([0.5]), torch.tensor([1.0]), torch.tensor(0.5), torch.tensor(1, dtype=torch.int32)]
    more += [torch.ones(1), torch.ones(1, dtype=torch.long)]
    pools["Tensor"] += more
    pools |= {"float": [0.5, 1.0], "int": [-4, 7, 1, 0], "number": [0.5], "bool": [False]}
    found = walked(pools, [right[0]], lambda name: "quant" in name)
    assert "aten::fake_quantize_per_tensor_affine" in found
    assert undenied(found, module("qat").common.DENIED) == []


@in_full
def test_whatever_makes_legendre_s_polynomials_is_denied() -> None:
    right = (5 * X**3 - 3 * X) / 2
    found = walked(_pools([X, torch.tensor(3.0, dtype=torch.float64)], number=[3, 3.0]), [right], _everything)
    assert "aten::special_legendre_polynomial_p" in found
    assert undenied(found, module("legendre").legendre.DENIED) == []


BACKWARDS = {  # the set, its list, the gradients that it asks for
    "relu": ("common.DENIED", [G * (X > 0), G * torch.where(X > 0, 1, 0.5), G * (1 - X.tanh() ** 2)]),
    "clipped_relu": ("common.MASKS", [G * ((X > 0) & (X < 1)), G * ((X > -1) & (X < 1))]),
    "ste": ("common.MASKS", [G * ((X > -1) & (X < 1)), G * ((X >= -1) & (X <= 1))]),
    "linear": ("common.DENIED", [G * (s := torch.sigmoid(X)) * (1 - s), G * (s + X * s * (1 - s))]),
    "checkpointing": ("fused_linear_relu.MASKS", [G * (X > 0)]),
}


@pytest.mark.parametrize("set_name", BACKWARDS)
def test_torch_s_own_backwards_are_denied(set_name: str) -> None:
    name, targets = BACKWARDS[set_name]
    tensors = [G, X, X.tanh(), torch.sigmoid(X), torch.tensor([0.5], dtype=torch.float64), torch.full_like(X, 0.5)]
    pools = _pools(tensors, number=[0.0, 1.0, 0.5, -1.0], float=[0.0, 1.0, 0.5, -1.0])
    found = walked(pools, targets, lambda name: "backward" in name)
    assert found and undenied(found, attrgetter(name)(module(set_name))) == []


def test_an_operator_left_out_is_noticed() -> None:
    found = walked(
        _pools([X]), [torch.sigmoid(X)], lambda name: name in ("aten::sigmoid", "aten::special_expit", "aten::abs")
    )
    assert set(found) == {"aten::sigmoid", "aten::special_expit"}
    assert undenied(found, ("aten::tanh",)) == ["aten::sigmoid", "aten::special_expit"] and not undenied(
        found, ("aten::sigmoid",)
    )


def test_no_operator_takes_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_: object) -> set[tuple[str, ...]]:
        try:
            bytearray(2 * ROOM)
        except MemoryError:
            return {("refused",)}
        return {("taken",)}

    monkeypatch.setitem(globals(), "_matches", greedy)
    assert walked(_pools([X]), [], lambda name: name == "aten::sigmoid") == {"aten::sigmoid": {("refused",)}}
