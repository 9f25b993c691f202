"""The kernels of book/d_kernels.ipynb, beyond what its stored outputs say.

The C++ extension needs a compiler and ninja. Triton's kernels are run on its interpreter and compiled for a GPU where
Triton is installed, the CUDA source is compiled where there is an nvcc and run where there is a GPU; elsewhere those
tests are skipped.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
import torch
from torch.utils.cpp_extension import include_paths

from bench import kernels as bench
from tools.notebooks import ROOT

HAS_TRITON = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed: pip install triton==3.7.1")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")

Pair = tuple


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The page's definitions."""
    return bench.page(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def built(page: ModuleType) -> Pair:
    """Forward and backward of the page's extension."""
    ops = page.build()
    return ops.geglu_forward, ops.geglu_backward


def outputs() -> dict[str, str]:
    """What the page's cells have printed, by their ids."""
    cells = nbformat.read(bench.NOTEBOOK, as_version=4).cells
    return {c.id: "".join(o.get("text", "") for o in c.outputs) for c in cells if c.cell_type == "code"}


def test_the_stored_outputs_come_from_a_run_with_a_compiler_and_triton() -> None:
    shown = outputs()
    assert shown["build-run"] == "C++: built\n"
    assert shown["square-run"] == "C++\n  sizes True\n  layouts True\n  gradcheck True\n"
    for cell in ("square-others", "triton-run", "flash-run"):
        assert "Triton, interpreter, CPU\n" in shown[cell], "run `make notebooks` with Triton installed"
        assert "False" not in shown[cell]
    assert shown["square-mask"].splitlines() == [
        "with the mask, what follows: [-1, -1, -1, -1, -1, -1]",
        "without the mask, what follows: [100, 121, 144, 169, 196, 225]",
    ]
    assert "CUDA: not run here" in shown["square-others"], "then say in the page's text what was run"
    assert shown["blind"].count("\n") == 4
    assert shown["cuda-run"].startswith("CUDA: not run here"), "then say in the page's text what was run"


def squares(page: ModuleType, right: str = "", wrong: str = "", flags: tuple = ()) -> Pair:
    """The two passes of the smallest kernel, perhaps with a fault."""
    ops = page.load("square", [part.replace(right, wrong) for part in page.SQUARE_FOR_CPU], [], flags)
    return ops.square, ops.slope


def test_the_smallest_kernel_passes_its_list_and_refuses_what_it_cannot_read(page: ModuleType) -> None:
    pair = squares(page)
    assert all(page.square_checks(pair).values())
    with pytest.raises(RuntimeError, match="expected scalar type Double but found Float"):
        pair[0](torch.ones(3))
    with pytest.raises(RuntimeError, match="gradient: other shape"):
        pair[1](torch.ones(2).double(), torch.ones(3).double())


@pytest.mark.parametrize(
    ("right", "wrong", "seen"),
    [
        ("i < n; ++i) y", "i < n - n % 2; ++i) y", "sizes"),
        ("2 * x[i] * g[i]", "x[i] * g[i]", "sizes"),
        ("x = torch::stable::contiguous(x_)", "x = x_", "layouts"),
        ("g = torch::stable::contiguous(g_)", "g = torch::stable::clone(g_)", "layouts"),
    ],
)
def test_a_fault_in_the_smallest_kernel_is_seen(page: ModuleType, right: str, wrong: str, seen: str) -> None:
    assert not page.square_checks(squares(page, right, wrong))[seen]


def test_the_extension_passes_the_list(page: ModuleType, built: Pair) -> None:
    assert all(page.checks(built).values()), page.checks(built)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_shape_that_fills_vectors_and_leaves_a_rest(page: ModuleType, built: Pair, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    for n in (1, 7, 16, 31, 33, 129):
        x, bias = torch.randn(5, 2 * n).to(dtype), torch.randn(2 * n).to(dtype)
        assert page.compare(lambda x, b: page.Geglu.apply(x, b, built), x, bias, page.ramp), n


def test_the_exponential_is_as_right_as_its_argument(page: ModuleType, built: Pair) -> None:
    p = torch.linspace(-30, 30, 200_001)
    x = torch.stack([p, torch.ones_like(p)], -1)
    ours = built[0](x, torch.zeros(2))[:, 0].double()
    argument = 2 * (2 / torch.pi) ** 0.5 * p.double() * (1 + 0.044715 * p.double() ** 2)
    right = p.double() * torch.sigmoid(argument)  # (1 + tanh) / 2 is 0 where this is 1e-20
    far = (ours - right).abs() > 3e-7 * (2 + argument.abs()) * right.abs() + 1e-36
    assert not far.any(), p[far][:5]


def test_the_number_of_threads_changes_no_bit(built: Pair) -> None:
    torch.manual_seed(0)
    g, x, bias = torch.randn(333, 40), torch.randn(333, 80), torch.randn(80)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found.append((built[0](x, bias), *built[1](g, x, bias)))
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_the_composed_backward_serves_create_graph_and_torch_func_and_no_one_else(page: ModuleType) -> None:
    def kernel(*args: torch.Tensor) -> None:
        raise RuntimeError("the kernel's backward")

    def total(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return page.Geglu.apply(x, bias, (page.composed, kernel)).sum()

    x, bias = torch.randn(3, 8, requires_grad=True), torch.randn(8)
    (right,) = torch.autograd.grad(page.composed(x, bias).sum(), x)
    torch.testing.assert_close(torch.autograd.grad(total(x, bias), x, create_graph=True)[0], right)
    torch.testing.assert_close(torch.func.grad(total)(x.detach(), bias), right)
    with pytest.raises(RuntimeError, match="the kernel's backward"):
        torch.autograd.grad(total(x, bias), x)


def test_inputs_are_left_alone(page: ModuleType, built: Pair) -> None:
    x, bias, g = torch.randn(5, 8), torch.randn(8), torch.randn(5, 4)
    kept = [t.clone() for t in (x, bias, g)]
    built[0](x, bias)
    built[1](g, x, bias)
    assert all(map(torch.equal, kept, (x, bias, g)))


REFUSED = {
    "odd": ((torch.ones(3, 5), torch.ones(5)), "even last dimension"),
    "0-d": ((torch.ones(()), torch.ones(2)), "even last dimension"),
    "bias of another length": ((torch.ones(3, 6), torch.ones(3)), "shape (2n,)"),
    "bias of another dtype": ((torch.ones(3, 6), torch.ones(6).double()), "dtype of x"),
    "integers": ((torch.ones(3, 6).long(), torch.ones(6).long()), "float dtype"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_pointers_cannot_see_is_refused(case: str, built: Pair) -> None:
    inputs, words = REFUSED[case]
    with pytest.raises(RuntimeError, match=words.replace("(", r"\(").replace(")", r"\)")):
        built[0](*inputs)


def test_a_gradient_of_another_size_is_refused(built: Pair) -> None:
    with pytest.raises(RuntimeError, match="gradient: other shape"):
        built[1](torch.ones(2, 3), torch.ones(3, 6), torch.ones(6))
    with pytest.raises(RuntimeError, match="gradient: other dtype"):
        built[1](torch.ones(3, 3).double(), torch.ones(3, 6), torch.ones(6))


PLANTED = {  # one change in the source, and the check that must see it
    "value without its bias": (
        "gelu(A(p[j]) + A(b[j]), value, slope);\n    y",
        "gelu(A(p[j]), value, slope);\n    y",
        "parity",
    ),
    "slope of another function": ("c * (1 + 3 * k * square)", "c * (1 + k * square)", "gradcheck"),
    "sum of the left half alone": ("sum_q[j] += right", "sum_q[j] += 0", "gradcheck"),
    "one chunk alone": ("i < std::min(rows, end * CHUNK)", "i < std::min(rows, CHUNK)", "parity"),
    "overflow": ("return x > 88.f ? INFINITY :", "return x > 88.f ? 1.f :", "inf, nan"),
    "strides of the gradient": ("g = torch::stable::contiguous(g_)", "g = torch::stable::clone(g_)", "layouts"),
    "another dtype in memory": ("f(torch::headeronly::BFloat16{}, float{})", "f(double{}, float{})", "dtypes"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_seen(fault: str, page: ModuleType) -> None:
    right, wrong, seen = PLANTED[fault]
    source = [part.replace(right, wrong) for part in page.FOR_CPU]
    assert source != page.FOR_CPU
    ops = page.build(source, flags=())
    try:
        passed = page.checks((ops.geglu_forward, ops.geglu_backward))
    except RuntimeError as error:  # the stable headers know a pointer's dtype
        assert fault == "another dtype in memory", error
    else:
        assert not passed[seen], passed


def script(cells: str = "") -> str:
    """The page's code cells as one program; of the definitions alone where `cells` says so."""
    kept = [
        c.source
        for c in nbformat.read(bench.NOTEBOOK, as_version=4).cells
        if c.cell_type == "code" and (not cells or cells in c.metadata.get("tags", []))
    ]
    return "\n\n\n".join(kept)


def run(folder: Path, source: str, **environment: str) -> str:
    """What a program prints, in a process of its own."""
    file = folder / "program.py"
    file.write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file)],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("missing", ["c++", "ninja"])
def test_without_its_tools_the_page_goes_on(missing: str, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in {"c++", "ninja"} - {missing}:
        (tools / tool).symlink_to(shutil.which(tool) or sys.executable)
    source = script().replace('sysconfig.get_path("scripts")', '""')  # where pip puts ninja
    # Triton's interpreter takes long, and the build is not its matter
    shown = run(tmp_path, source.replace("TRITON = importlib", "TRITON = None and importlib"), PATH=str(tools))
    lines = [line for line in shown.splitlines() if line.startswith("C++")]
    assert lines == 2 * [
        f"C++ is left out below: {missing} not found. Install a C++ compiler (Debian: apt-get install g++; "
        "macOS: xcode-select --install) and ninja (pip install ninja)."
    ]
    assert "composed\n  parity True\n" in shown and shown.count("Triton: not run here") == 4


def test_no_python_headers_and_no_cache_are_needed(page: ModuleType, tmp_path: Path) -> None:
    source = tmp_path / "main.cpp"
    source.write_text("\n".join(["#define NAME test", *page.FOR_CPU]))
    paths = [f"-I{path}" for path in include_paths("cpu")]
    done = subprocess.run(
        ["c++", "-std=c++20", "-M", *paths, str(source)], capture_output=True, text=True, timeout=120, check=True
    )
    assert "stable/library.h" in done.stdout
    assert "Python.h" not in done.stdout and "pybind11" not in done.stdout


@needs_nvcc
@pytest.mark.parametrize("name", ["SQUARE_FOR_CUDA", "FOR_CUDA"])
def test_the_cuda_source_compiles(name: str, page: ModuleType, tmp_path: Path) -> None:
    source = tmp_path / "cuda.cu"
    source.write_text("\n".join(["#define NAME test", *getattr(page, name)]))
    paths = [f"-I{path}" for path in include_paths("cpu")]
    chips = [f"-gencode=arch=compute_{chip},code=sm_{chip}" for chip in (80, 90)]
    done = subprocess.run(
        ["nvcc", "-c", "-std=c++20", *chips, *paths, str(source), "-o", str(tmp_path / "cuda.o")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@needs_gpu
def test_cuda_passes_the_list(page: ModuleType, built: Pair) -> None:
    assert all(page.checks(built, "cuda").values()), page.checks(built, "cuda")


INTERPRETED = """
import json, warnings

with warnings.catch_warnings(action="ignore"):
    results = {"square": square_checks((triton_square, triton_slope), DEVICE)}
    results |= {"geglu": checks((triton_forward, triton_backward), DEVICE), "flash": flash_checks(DEVICE)}


@triton.jit
def padded_keys_seen(qi, kj, i, j, nk, scale, CAUSAL: constexpr, EVEN: constexpr):
    s = dot(qi, tl.trans(kj)) * scale
    if CAUSAL:
        s = tl.where(j[None, :] <= i[:, None], s, -float("inf"))
    return s


scores = padded_keys_seen
results["planted"] = [flash_error(*flash_inputs(16, nk, 16, device=DEVICE), False) < 1e-10 for nk in (16, 33)]
print(json.dumps(results))
"""


@needs_triton
def test_triton_passes_the_lists(tmp_path: Path) -> None:
    results = json.loads(run(tmp_path, script(bench.DEFINITIONS) + INTERPRETED).splitlines()[-1])
    assert all(results["square"].values()) and len(results["square"]) == 3, results
    assert all(results["geglu"].values()) and len(results["geglu"]) == 7, results
    assert all(results["flash"].values()) and len(results["flash"]) == 7, results
    assert results["planted"] == [True, False]  # seen where the keys do not fill their blocks


COMPILED = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

kinds = {"fp32": tl.float32, "fp64": tl.float64, "fp16": tl.float16, "bf16": tl.bfloat16}
for kind, T in kinds.items():
    wider = "fp64" if kind == "fp64" else "fp32"
    types = dict.fromkeys(("lse", "delta", "sums"), f"*{wider}") | dict.fromkeys(("rows", "n", "nq", "nk", "d"), "i32")
    for kernel in (square_kernel, slope_kernel, forward_kernel, backward_kernel, flash_forward, flash_dq, flash_dkdv):
        constants = {"CHUNK": 16, "BLOCK": 256, "A": getattr(tl, "float" + wider[2:])}
        constants |= {"CAUSAL": True, "B": 64, "C": 64, "D": 64, "T": T, "EVEN": False, "scale": 0.125}
        constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
        signature = {name: types.get(name, f"*{kind}") for name in kernel.arg_names}
        signature |= dict.fromkeys(constants, "constexpr")
        made = triton.compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", 90, 32))
        assert made.asm["cubin"]
        print(kernel.__name__, kind, made.metadata.shared)
"""


@needs_triton
def test_triton_compiles_for_a_gpu(tmp_path: Path) -> None:
    shown = run(
        tmp_path, script(bench.DEFINITIONS) + COMPILED, TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path / "cache")
    )
    lines = [line.split() for line in shown.splitlines()]
    assert len(lines) == 28
    assert all(int(shared) <= 227 * 1024 for *_, shared in lines)  # what a block may have on sm_90


def test_the_page_names_the_commands_that_exist() -> None:
    text = (ROOT / "book/d_kernels.ipynb").read_text(encoding="utf-8")
    for option in ("--gpu", "--headers"):
        assert f"python -m bench.kernels {option}" in text and f'"{option}"' in Path(bench.__file__).read_text()


def test_what_the_page_says_of_a_gpu_is_what_was_measured() -> None:
    gpu = json.loads((ROOT / "book/gpu.json").read_text(encoding="utf-8"))
    assert all(gpu["machine"].values()) and gpu["command"] == "python -m bench.kernels --gpu --json book/gpu.json"
    assert len(gpu["proofs"]) == 5 and all(all(passed.values()) for passed in gpu["proofs"].values())
    assert gpu["race"]["most"] <= 7 < gpu["race"]["right"]
    rows = {(row["way"], row["d"], row["N"]): row for row in gpu["attention"]}
    at = {way: rows[way, 128, 4096] for way in ("plain", "SDPA, flash", "FlexAttention", "SDPA, cuDNN", "Triton")}
    for speed in ("forward TFLOP/s", "backward TFLOP/s"):
        own = at["Triton"][speed]
        assert own > at["SDPA, flash"][speed]
        assert at["FlexAttention"][speed] < 1.3 * own and at["SDPA, cuDNN"][speed] < 1.7 * own
    text = (ROOT / "book/d_kernels.ipynb").read_text(encoding="utf-8")
    for way, words in (("plain", "plain {}"), ("SDPA, flash", "flash kernel {}"), ("Triton", "this page's kernel {}")):
        assert words.format(f"{at[way]['forward TFLOP/s']:.0f}") in text, "the alternative text of the figure"
    ratios = [
        rows[w, 128, n]["forward TFLOP/s"] / rows["plain", 128, n]["forward TFLOP/s"] for w, d, n in rows if d == 128
    ]
    fused = [ratio for ratio in ratios if ratio != 1]
    assert round(min(fused)) == 2 and round(max(fused)) == 7, "the figure's title"
    unit = gpu["unit"]["ms"]
    assert unit["bfloat16"]["backward"]["torch.compile"] > 2 * unit["bfloat16"]["backward"]["Triton"]
    assert unit["float32"]["backward"]["torch.compile"] > 1.2 * unit["float32"]["backward"]["Triton"]
