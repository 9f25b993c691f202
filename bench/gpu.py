"""What the kernels of book/d_kernels.ipynb do on a GPU: the lists that prove them, then time and memory beside torch's.

    python -m bench.kernels --gpu --json book/gpu.json      all of it: some minutes

`bench.kernels` has the command; this module measures, and returns what the page shows as one dictionary that JSON can
hold. Times are medians of CUDA events over repeated calls, with the cache of the chip emptied in between
(`triton.testing.do_bench`). Attention: no mask, bfloat16, heads times width 2048 and batch times length 16,384 tokens
(the setting of FlashAttention-3, arXiv 2407.08608, section 4), so that every length N has the same q, k and v to read.
Its operations are counted as there: 4 N^2 d for a head's forward, 2.5 times as many for its backward, whatever a kernel
computes twice.
"""

import datetime
import platform
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import cpp_extension

TOKENS, MODEL = 16_384, 2048  # batch times length; heads times width
WIDTHS = (64, 128)
GIB = 2**30
OUT_OF_MEMORY = "out of memory"
PASSES = {"forward": 3, "backward": 5}  # numbers that one kernel must move, a row, in units of n

Way = Callable[[Tensor, Tensor, Tensor], Tensor]
Report = Callable[[str], None]


def machine() -> dict[str, str]:
    """What measured: the GPU, its driver, and the versions."""
    import triton

    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = ""
    with suppress(OSError, subprocess.CalledProcessError):
        driver = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()
    return {
        "date": datetime.date.today().isoformat(),
        "gpu": torch.cuda.get_device_name(),
        "driver": driver,
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
    }


OLDER = """
#include <torch/csrc/stable/c/shim.h>
#include <torch/headeronly/util/Exception.h>
#ifndef STD_CUDA_KERNEL_LAUNCH_CHECK
#define STD_CUDA_KERNEL_LAUNCH_CHECK() do { const cudaError_t e = cudaGetLastError(); \\
  STD_TORCH_CHECK(e == cudaSuccess, cudaGetErrorString(e)); } while (0)
#endif
static void* stream_of(int device) {
  void* handle = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(device, &handle) == 0, "no stream");
  return handle;
}
"""
STREAM, RUNTIME = "accelerator::getCurrentStream(device).nativeHandle()", "#include <cuda_runtime.h>\n"


def older(sources: Sequence[str]) -> list[str]:
    """The page's CUDA sources for a torch before 2.13, whose stable headers lack the stream's handle and a check."""
    return [part.replace(RUNTIME, RUNTIME + OLDER).replace(STREAM, "stream_of(device)") for part in sources]


def extensions(module: ModuleType) -> tuple[Any, Any]:
    """The page's two CUDA extensions: that of the square and that of the unit."""
    square, unit = module.SQUARE_FOR_CUDA, module.FOR_CUDA
    with ExitStack() as stack:
        if tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) < (2, 13):
            square, unit, build = older(square), older(unit), cpp_extension.load_inline

            def with_newer_language(*args: Any, **given: Any) -> Any:
                flags = {name: [*given[name], "-std=c++20"] for name in ("extra_cflags", "extra_cuda_cflags")}
                return build(*args, **given | flags)

            stack.enter_context(mock.patch.object(cpp_extension, "load_inline", with_newer_language))
        return module.load("square", module.SQUARE_FOR_CPU, square), module.load("geglu_forward", module.FOR_CPU, unit)


def milliseconds(run: Callable[[], object], repeat: int = 60) -> float:
    """The median of a call's milliseconds, over about `repeat` milliseconds of calls."""
    from triton.testing import do_bench

    return float(do_bench(run, warmup=20, rep=repeat, return_mode="median"))


def copied() -> float:
    """GB/s of a copy of 2 GiB on the device: bytes read and bytes written."""
    source = torch.randn(GIB // 2, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / milliseconds(lambda: target.copy_(source)) / 1e6


def proofs(module: ModuleType, square: Any, unit: Any) -> dict[str, dict[str, bool]]:
    """The page's own lists, on the GPU.

    Args:
        module: the page's definitions.
        square, unit: its two extensions.
    """
    found = {
        "Triton, square": module.square_checks((module.triton_square, module.triton_slope), "cuda"),
        "Triton, unit": module.checks((module.triton_forward, module.triton_backward), "cuda"),
        "Triton, attention": module.flash_checks("cuda"),
        "CUDA, square": module.square_checks((square.square, square.slope), "cuda"),
        "CUDA, unit": module.checks((unit.geglu_forward, unit.geglu_backward), "cuda"),
    }
    return {kernel: {name: bool(passed) for name, passed in results.items()} for kernel, results in found.items()}


def race(module: ModuleType, programs: int = 4096, tries: int = 20) -> dict[str, float]:
    """What is lost where all programs add to one place (the page's `racing`): right, and the least and most found."""
    x = torch.ones(programs, 8, device="cuda")
    sums = []
    for _ in range(tries):
        total = torch.zeros(8, device="cuda")
        module.racing[(programs,)](x, total, 8, BLOCK=8)
        sums += total.tolist()
    return {"right": float(programs), "least": min(sums), "most": max(sums)}


def unit(functions: dict[str, Callable], dtype: str, rows: int, width: int) -> dict[str, dict[str, float]]:
    """Milliseconds of the gated unit in one dtype: {"forward": {way: ms}, "backward": ...}."""
    shapes = (rows, 2 * width), (2 * width,), (rows, width)
    x, bias, g = (torch.randn(s, device="cuda").to(getattr(torch, dtype)) for s in shapes)
    x.requires_grad_(), bias.requires_grad_()
    found: dict[str, dict[str, float]] = {"forward": {}, "backward": {}}
    for name, function in functions.items():
        with torch.no_grad():
            found["forward"][name] = milliseconds(lambda f=function: f(x, bias))
        y = function(x, bias)
        found["backward"][name] = milliseconds(partial(torch.autograd.grad, y, (x, bias), g, retain_graph=True))
        del y
    return found


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The formula: the scores as a whole."""
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


def ways(module: ModuleType) -> dict[str, Way]:
    """Attention by whoever can: the formula, torch's kernels, FlexAttention compiled, and the page's."""
    from torch.nn.attention.flex_attention import flex_attention

    def sdpa(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v)

    compiled = torch.compile(flex_attention, dynamic=False)
    return {
        "plain": plain,
        "SDPA, flash": partial(sdpa, SDPBackend.FLASH_ATTENTION),
        "SDPA, cuDNN": partial(sdpa, SDPBackend.CUDNN_ATTENTION),
        "FlexAttention": lambda q, k, v: compiled(q, k, v),
        "Triton": lambda q, k, v: module.triton_flash(q, k, v, False, None),
    }


def once(way: Way, d: int, n: int) -> dict[str, float | str]:
    """One way at one width and length: milliseconds, TFLOP/s and GiB that a step needs at most."""
    shape = TOKENS // n, MODEL // d, n, d
    q, k, v, g = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    for t in (q, k, v):
        t.requires_grad_()
    work = 4 * n * n * d * shape[0] * shape[1] / 1e9  # the forward's operations, in units of 1e9: by ms it is TFLOP/s
    with torch.no_grad():
        forward = milliseconds(lambda: way(q, k, v))
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    o = way(q, k, v)
    torch.autograd.grad(o, (q, k, v), g, retain_graph=True)
    torch.cuda.synchronize()
    most = torch.cuda.max_memory_allocated() - before
    backward = milliseconds(partial(torch.autograd.grad, o, (q, k, v), g, retain_graph=True))
    return {
        "forward ms": forward,
        "backward ms": backward,
        "forward TFLOP/s": work / forward,
        "backward TFLOP/s": 2.5 * work / backward,
        "GiB": most / GIB,
    }


def attention(module: ModuleType, lengths: Sequence[int], report: Report) -> list[dict[str, float | str]]:
    """Every way at every width and length; where memory runs out, that is what is said."""
    rows: list[dict[str, float | str]] = []
    q, k, v = (torch.randn(1, 2, 512, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    right = plain(q.double(), k.double(), v.double())
    for name, way in ways(module).items():
        torch.testing.assert_close(way(q, k, v).double(), right, rtol=3e-2, atol=3e-2, msg=f"{name} is wrong")
        for d in WIDTHS:
            for n in lengths:
                report(f"attention, {name}, width {d}, N = {n}")
                torch._dynamo.reset()  # after eight shapes it would give up compiling FlexAttention
                row: dict[str, float | str] = {"way": name, "d": d, "N": n}
                try:
                    row |= once(way, d, n)
                except torch.OutOfMemoryError:
                    row["said"] = OUT_OF_MEMORY
                torch.cuda.empty_cache()
                rows.append(row)
    return rows


def everything(module: ModuleType, options: Any, report: Report) -> dict[str, Any]:
    """All that the page shows; `options` are those of `bench.kernels`."""
    report("building the CUDA extensions")
    square, gated = extensions(module)
    found: dict[str, Any] = {"machine": machine(), "command": options.command}
    report("the lists")
    found["proofs"] = proofs(module, square, gated)
    found["race"] = race(module)
    found["copy GB/s"] = copied()
    pairs = {
        "CUDA": (gated.geglu_forward, gated.geglu_backward),
        "Triton": (module.triton_forward, module.triton_backward),
    }
    functions: dict[str, Callable] = {"composed": module.composed, "torch.compile": torch.compile(module.composed)}
    functions |= {way: partial(_applied, module, pair) for way, pair in pairs.items()}
    found["unit"] = {"rows": options.rows, "n": options.width, "ms": {}}
    for dtype in options.dtypes:
        report(f"the gated unit, {dtype}")
        found["unit"]["ms"][dtype] = unit(functions, dtype, options.rows, options.width)
        torch.cuda.empty_cache()
    found["attention"] = attention(module, options.lengths, report)
    return found


def _applied(module: ModuleType, pair: tuple, x: Tensor, bias: Tensor) -> Tensor:
    result: Tensor = module.Geglu.apply(x, bias, pair)
    return result


def tables(found: dict[str, Any]) -> str:
    """What was found, for a terminal."""
    machine = found["machine"]
    lines = [f"{machine['gpu']}, driver {machine['driver']}, torch {machine['torch']}, Triton {machine['triton']}"]
    lines += [f"copy: {found['copy GB/s']:.0f} GB/s", ""]
    for kernel, results in found["proofs"].items():
        wrong = [name for name, passed in results.items() if not passed]
        lines.append(f"{kernel}: {'fails ' + ', '.join(wrong) if wrong else f'{len(results)} checks pass'}")
    rows, n = found["unit"]["rows"], found["unit"]["n"]
    lines += ["", f"Gated unit, x ({rows}, {2 * n}): milliseconds, and the share of the copy's speed that they mean"]
    for dtype, passes in found["unit"]["ms"].items():
        size = torch.finfo(getattr(torch, dtype)).bits // 8
        for name, ways in passes.items():
            need = PASSES[name] * rows * n * size / found["copy GB/s"] / 1e6
            told = "  ".join(f"{way} {ms:.3f} ({need / ms:.0%})" for way, ms in ways.items())
            lines.append(f"{dtype + ' ' + name:20} {told}")
    lines += ["", "Attention, bfloat16, no mask: TFLOP/s forward, backward; GiB of a step"]
    for row in found["attention"]:
        said = row.get("said") or "{:6.0f} {:6.0f} {:8.2f}".format(
            *(row[name] for name in ("forward TFLOP/s", "backward TFLOP/s", "GiB"))
        )
        lines.append(f"{row['way']:16} width {row['d']:4} N {row['N']:6} {said}")
    return "\n".join(lines)
