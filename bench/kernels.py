"""Time of the fused kernels of book/d_kernels.ipynb against torch's own operations.

    python -m bench.kernels                  on the CPU: the C++ kernel under three sets of flags, and torch.compile
    python -m bench.kernels --gpu            on a GPU, some minutes: see bench/gpu.py
    python -m bench.kernels --gpu --json book/gpu.json      and write what the page shows
    python -m bench.kernels --headers        what a build takes under three sets of torch's headers
    python -m bench.kernels --ways composed C++ --rows 64 --width 64 --repeats 3

The kernels are those of the page: its cells are read and run. The gated unit: x of shape (rows, 2 width) and a bias, in
each dtype; *forward* is one call, *backward* the gradients for x and bias from a graph that is there. Ways:

    composed         three operations of torch, and autograd's backward: the unit that the others are measured in
    torch.compile    the same, fused by torch.compile (inductor)
    C++              the page's extension with the page's flags
    C++ -O3          with -O3 alone
    C++ -O0          the flags that load_inline takes when it is given none

The ways take turns, so that what else the machine does meets them all; medians, and their ratios to the first way.

What it does not say: how fast a whole net becomes. The matrix products around the unit take most of its time.
"""

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor
from torch.utils import cpp_extension

from bench import gpu

NOTEBOOK = Path(__file__).resolve().parents[1] / "book/d_kernels.ipynb"
DEFINITIONS = "page:definition"  # the tag of the cells that define what the page runs
FLAGS = {"C++": None, "C++ -O3": ("-O3",), "C++ -O0": ()}
CPU = ("composed", "torch.compile", "C++", "C++ -O3", "C++ -O0")
COMPILER = "a C++ compiler (Debian: apt-get install g++; macOS: xcode-select --install)"
NEEDS = {  # what a way is built with, on the machine that measures it
    **dict.fromkeys(("C++", "C++ -O3", "C++ -O0", "--headers"), (COMPILER, "ninja")),
    "torch.compile": (COMPILER,),
    "CUDA": (COMPILER, "ninja", "nvcc"),
}
DTYPES = ("float32", "bfloat16", "float16")
LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384)


STABLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
using torch::stable::Tensor;
Tensor same(const Tensor& x) { return torch::stable::clone(x); }
STABLE_TORCH_LIBRARY(NAME, m) { m.def("same(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(NAME, CPU, m) { m.impl("same", TORCH_BOX(&same)); }
"""
ORDINARY = """
#include <torch/library.h>
#include <ATen/ATen.h>
at::Tensor same(const at::Tensor& x) { return x.clone(); }
TORCH_LIBRARY(NAME, m) { m.def("same(Tensor x) -> Tensor", same); }
"""
EXTENSION = """
#include <torch/extension.h>
at::Tensor same(const at::Tensor& x) { return x.clone(); }
TORCH_LIBRARY(NAME, m) { m.def("same(Tensor x) -> Tensor", same); }
"""
HEADERS = {"torch/extension.h": EXTENSION, "torch/library.h, ATen/ATen.h": ORDINARY, "stable": STABLE}


def headers() -> str:
    """Seconds that an operator of one line takes to build, without optimisation, by the headers that it includes."""
    lines = ["Seconds to build an operator of one line"]
    for number, (name, source) in enumerate(HEADERS.items()):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            cpp_extension.load_inline(
                f"bench_headers_{number}",
                [source.replace("NAME", f"bench_headers_{number}")],
                build_directory=folder,
                is_python_module=False,
                no_implicit_headers=True,
            )
            lines.append(f"{name:30}{time.perf_counter() - start:6.1f}")
        assert getattr(torch.ops, f"bench_headers_{number}").same(torch.ones(2)).sum() == 2
    return "\n".join(lines)


def page(folder: Path) -> ModuleType:
    """The page's definitions as a module, in a file in `folder`: Triton reads the source of its kernels."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]  # a GPU's machine may have no Jupyter
    source = "\n\n\n".join("".join(cell["source"]) for cell in cells if DEFINITIONS in cell["metadata"].get("tags", []))
    file = folder / "page.py"
    file.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("page", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kernels(module: ModuleType, way: str) -> tuple[Callable, Callable]:
    """The forward and backward of one way of the gated unit."""
    flags = FLAGS.get(way)
    built = module.build() if flags is None else module.build(flags=flags)
    return built.geglu_forward, built.geglu_backward


def function(module: ModuleType, way: str) -> Callable[[Tensor, Tensor], Tensor]:
    """One way of the gated unit, as a function of x and bias."""
    if way == "composed":
        return module.composed
    if way == "torch.compile":
        return torch.compile(module.composed)
    pair = kernels(module, way)
    return lambda x, bias: module.Geglu.apply(x, bias, pair)


def clock(run: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def medians(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median seconds of each of `runs`, which take turns, after two rounds that warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 2):
        for name, run in runs.items():
            taken = clock(run)
            if turn > 1:
                seconds[name].append(taken)
    return {name: statistics.median(values) for name, values in seconds.items()}


def unit(functions: dict[str, Callable], dtype: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Seconds of the gated unit in one dtype: {"forward": {way: seconds}, "backward": ...}."""
    random = torch.Generator().manual_seed(0)
    shapes = (options.rows, 2 * options.width), (2 * options.width,), (options.rows, options.width)
    x, bias, g = (torch.randn(s, generator=random).to(getattr(torch, dtype)) for s in shapes)
    x.requires_grad_(), bias.requires_grad_()
    graphs = {name: f(x, bias) for name, f in functions.items()}
    backward = {name: lambda y=y: torch.autograd.grad(y, (x, bias), g, retain_graph=True) for name, y in graphs.items()}
    with torch.no_grad():
        forward = medians({name: lambda f=f: f(x, bias) for name, f in functions.items()}, options.repeats)
    return {"forward": forward, "backward": medians(backward, options.repeats)}


def table(title: str, rows: dict[str, dict[str, float]]) -> str:
    """For each row the milliseconds of the first way, and each other way's speed in units of the first's."""
    first, *others = next(iter(rows.values()))
    width = max(map(len, rows))
    head = f"{'':{width}}  {first + ' ms':>12}" + "".join(f"{name:>15}" for name in others)
    lines = [title, head]
    for name, seconds in rows.items():
        speeds = "".join(f"{seconds[first] / seconds[way]:>14.2f}x" for way in others)
        lines.append(f"{name:{width}}  {1e3 * seconds[first]:>12.2f}{speeds}")
    return "\n".join(lines)


def positive(text: str) -> int:
    """An argument that is a whole number above 0."""
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def absent(ways: Iterable[str]) -> list[str]:
    """What the ways are built with and this machine has not; what pip put beside Python is put on PATH."""
    scripts, path = sysconfig.get_path("scripts"), os.environ.get("PATH", "")
    if scripts not in path.split(os.pathsep):
        os.environ["PATH"] = path + os.pathsep + scripts
    found = {
        COMPILER: shutil.which(cpp_extension.get_cxx_compiler()),
        "ninja": shutil.which("ninja"),
        "nvcc": cpp_extension.CUDA_HOME,
    }
    wanted = dict.fromkeys(tool for way in ways for tool in NEEDS.get(way, ()))
    return [tool for tool in wanted if not found[tool]]


def arguments(given: list[str] | None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.kernels", description="Time of the page's fused kernels against torch's operations."
    )
    parser.add_argument("--gpu", action="store_true", help="measure the kernels for GPUs, and attention")
    parser.add_argument("--json", type=Path, metavar="FILE", help="with --gpu: write what the page shows there")
    parser.add_argument("--headers", action="store_true", help="measure builds instead")
    parser.add_argument("--ways", nargs="+", metavar="WAY", help=f"on the CPU, of {', '.join(CPU)}")
    parser.add_argument("--dtypes", nargs="+", choices=("float64", *DTYPES), default=DTYPES)
    parser.add_argument("--rows", type=positive, help="default: 2048, on a GPU 16384")
    parser.add_argument("--width", type=positive, help="of each half of x; default: 4096, on a GPU 8192")
    parser.add_argument("--lengths", type=positive, nargs="+", default=LENGTHS, metavar="N", help="of attention")
    parser.add_argument("--threads", type=positive, default=torch.get_num_threads(), help="on the CPU; default: all")
    parser.add_argument("--repeats", type=positive, default=15, help="on the CPU, the median of so many; default: 15")
    options = parser.parse_args(given)
    if options.gpu and not torch.cuda.is_available():
        parser.exit(2, "python -m bench.kernels --gpu: torch finds no GPU here\n")
    if options.gpu and importlib.util.find_spec("triton") is None:
        parser.exit(2, "python -m bench.kernels --gpu: Triton is not installed here, pip install triton==3.7.1\n")
    if (options.json or tuple(options.lengths) != LENGTHS) and not options.gpu:
        parser.error(f"{'--json' if options.json else '--lengths'}: for --gpu alone")
    if options.gpu and options.ways:
        parser.error("--ways: for the CPU; with --gpu all are measured")
    options.rows = options.rows or (16_384 if options.gpu else 2048)
    options.width = options.width or (8192 if options.gpu else 4096)
    options.command = " ".join(["python -m bench.kernels", *(sys.argv[1:] if given is None else given)])
    options.ways = options.ways or list(CPU)
    if unknown := [way for way in options.ways if way not in CPU]:
        parser.error(f"--ways: {', '.join(unknown)}: not among {', '.join(CPU)}")
    needed = ["CUDA", "torch.compile"] if options.gpu else ["--headers"] if options.headers else options.ways
    if tools := absent(needed):
        remedy = "Install it" if options.gpu or options.headers else "Install it, or choose by --ways"
        parser.exit(2, f"python -m bench.kernels: not found: {', '.join(tools)}. {remedy}\n")
    return options


def main(given: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = arguments(given)
    try:
        return measure(options)
    except KeyboardInterrupt:
        print("\r\033[Kbench.kernels: stopped", file=sys.stderr)
        return 130


def told(text: str) -> None:
    """One line of progress, in place of the last."""
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def measured_on_a_gpu(module: ModuleType, options: argparse.Namespace) -> int:
    """Measure on a GPU, print, and write what the page shows; 1 where a list does not pass."""
    found = gpu.everything(module, options, told)
    told("")
    print(gpu.tables(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(not all(passed for results in found["proofs"].values() for passed in results.values()))


def measure(options: argparse.Namespace) -> int:
    """Measure, and print the tables."""
    if options.headers:
        print(headers())
        return 0
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        module = page(Path(folder))
        if options.gpu:
            return measured_on_a_gpu(module, options)
        functions = {}
        for way in options.ways:
            told(f"preparing {way}")
            functions[way] = function(module, way)
        rows = {}
        for dtype in options.dtypes:
            told(f"measuring {dtype}")
            for what, seconds in unit(functions, dtype, options).items():
                rows[f"{dtype} {what}"] = seconds
        told("")
        shape = f"x ({options.rows}, {2 * options.width})"
        where = f"cpu with {options.threads} thread(s)"
        print(table(f"Gated unit on {where}, {shape}, torch {torch.__version__}, medians of {options.repeats}", rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
