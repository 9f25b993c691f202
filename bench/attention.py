"""Time and peak memory of attention, forward and backward, against the number of queries and keys N.

    python -m bench.attention                        N = 256 to 8192, on the CPU, or on a GPU where there is one
    python -m bench.attention --lengths 256 512 --repeats 1 --csv attention.csv

Four ways, measured in turn: *plain* (the matrix of scores as a whole), *tiled* (the set's loop over tiles,
its backward left to autograd), *ours* (the set's `FlashAttention`) and *SDPA* (torch's
`scaled_dot_product_attention`, as torch chooses its kernel). On a GPU also SDPA's flash kernel, by itself.

Each measurement is a process of its own: one call to warm up (on the CPU a short one, which leaves little memory
behind), one that is measured. Memory is what the process (on a GPU: torch's allocator) held at most while it ran, less
what it held before; so it counts the output and the gradients too, and below a megabyte or so it is noise. Ratios are
of medians; the ways take turns, so that what else the machine does meets them all.

What it does not say: how fast causal attention is, or a batch, or the forward alone; nor what a loop over tiles could
do without Python, which starts each tile's operations one by one; nor, as long as the answers make tensors on the CPU,
how *ours* does on a GPU. Plain and SDPA compute in the dtype of q, the loops over tiles in float32 at least. The CPU's
memory holds a call's fresh pages: their first touch is part of the time.
"""

import argparse
import csv
import ctypes
import gc
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import nbformat
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

NOTEBOOK = Path(__file__).resolve().parents[1] / "solutions/10_flash_attention/flash_attention.ipynb"
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
MIB = 2**20
LIMIT = 900  # seconds for one measurement

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Setting:
    """What is measured.

    Args:
        device, dtype: of q, k and v.
        heads, width: q, k and v have the shape (1, heads, N, width): only of four dimensions SDPA is fused on the CPU.
        block: queries and keys of a tile.
        threads: that torch may use on the CPU.
    """

    device: str
    dtype: str
    heads: int
    width: int
    block: int
    threads: int


@dataclass(frozen=True)
class Measured:
    """Seconds of forward and backward, and the bytes held at most."""

    seconds: float
    peak: int


def answers() -> dict:
    """The names that the answer cells of chapter 10's set define."""
    names: dict = {}
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        marks = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "code" and (not names or marks.get("solution")):  # the first cell imports
            exec(cell.source, names)
    return names


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) v, with the whole matrix of scores."""
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


def flash_kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """SDPA's flash kernel alone, of which there is one for GPUs; it takes float16 and bfloat16."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v)


def ways(setting: Setting) -> list[str]:
    """The names of what is compared."""
    return ["plain", "tiled", "ours", "SDPA", *(["SDPA flash"] if setting.device == "cuda" else [])]


def attention(setting: Setting, way: str) -> Attention:
    """One of the `ways`, as a function of q, k and v."""
    block = setting.block
    match way:
        case "tiled":
            tiled = answers()["tiled_attention"]
            return lambda q, k, v: tiled(q, k, v, block)
        case "ours":
            ours = answers()["FlashAttention"]
            return lambda q, k, v: ours.apply(q, k, v, False, block, block)
    return {"plain": plain, "SDPA": F.scaled_dot_product_attention, "SDPA flash": flash_kernel}[way]


def inputs(setting: Setting, n: int) -> list[Tensor]:
    """q, k, v and the upstream gradient, from one seed."""
    random = torch.Generator().manual_seed(n)
    made = [torch.randn(1, setting.heads, n, setting.width, generator=random) for _ in range(4)]
    made = [t.to(setting.device, getattr(torch, setting.dtype)) for t in made]
    return [*(t.requires_grad_() for t in made[:3]), made[3]]


def resident(what: str) -> int:
    """``VmRSS``, the bytes of this process in memory, or ``VmHWM``, the most there were (Linux)."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(what):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"no {what} in /proc/self/status")


def start_counting(device: str) -> int:
    """The bytes held now; from now on the most is noted."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # sets VmHWM to VmRSS
    return resident("VmRSS")


def held_at_most(device: str) -> int:
    """The most bytes held since `start_counting`."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else resident("VmHWM")


def measure(setting: Setting, way: str, n: int) -> Measured:
    """One forward and backward, after one that warms up: on the CPU on a length that leaves little memory behind.

    A GPU takes the length itself, since a kernel is loaded when it first runs, and each length may choose its own.
    """
    torch.set_num_threads(setting.threads)
    function = attention(setting, way)
    for size in (n if setting.device == "cuda" else min(n, 2 * setting.block), n):
        q, k, v, upstream = inputs(setting, size)
        before, start = start_counting(setting.device), time.perf_counter()
        torch.autograd.backward(function(q, k, v), upstream)
        if setting.device == "cuda":
            torch.cuda.synchronize()
        seconds, peak = time.perf_counter() - start, held_at_most(setting.device) - before
    return Measured(seconds, peak)


def _answer(pipe, *arguments) -> None:
    try:
        pipe.send(measure(*arguments))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}")


def apart(setting: Setting, way: str, n: int) -> Measured | str:
    """`measure` in a process of its own; why there is nothing, where it failed."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(there, setting, way, n), daemon=True)
    process.start()
    there.close()
    try:
        return here.recv() if here.poll(LIMIT) else f"no answer after {LIMIT} s"
    except EOFError:
        process.join()
        return f"the process ended with {process.exitcode}; was there enough memory?"
    finally:
        process.kill()
        process.join()


def slope(lengths: list[int], values: list[float]) -> float:
    """The slope of log(value) against log(N), by least squares."""
    x, y = [math.log(n) for n in lengths], [math.log(v) for v in values]
    return statistics.linear_regression(x, y).slope


def table(title: str, names: list[str], rows: dict[int, dict[str, float]], form: str) -> str:
    """A line for each N, a column for each way; "-" where there is no number."""
    width = max(10, *(len(name) + 2 for name in names))
    lines = [title, f"{'N':>6}" + "".join(f"{name:>{width}}" for name in names)]
    for n, row in rows.items():
        cells = [format(row[name], form) if name in row else "-" for name in names]
        lines.append(f"{n:>6}" + "".join(f"{cell:>{width}}" for cell in cells))
    return "\n".join(lines)


def machine(setting: Setting) -> str:
    """What was measured on: "cpu with 2 threads", "NVIDIA H200"."""
    if setting.device == "cuda":
        return torch.cuda.get_device_name()
    return f"{setting.device} with {setting.threads} thread{'s' * (setting.threads > 1)}"


def report(setting: Setting, seen: dict[tuple[int, str], list[Measured]], names: list[str]) -> str:
    """The medians, their ratios to plain attention, and how memory grows."""
    lengths = sorted({n for n, _ in seen})
    rows = {n: {name: seen[n, name] for name in names if seen.get((n, name))} for n in lengths}
    seconds = {n: {k: statistics.median(m.seconds for m in v) for k, v in row.items()} for n, row in rows.items()}
    memory = {n: {k: statistics.median(m.peak for m in v) for k, v in row.items()} for n, row in rows.items()}

    def ratios(values: dict) -> dict:
        return {n: {k: v / row["plain"] for k, v in row.items()} for n, row in values.items() if row.get("plain")}

    parts = [
        f"Forward and backward on {machine(setting)}, {setting.dtype}, q, k and v of shape "
        f"(1, {setting.heads}, N, {setting.width}), tiles of {setting.block} x {setting.block}, "
        f"torch {torch.__version__}, medians of {max(map(len, seen.values()))}",
        table("Milliseconds", names, {n: {k: 1e3 * s for k, s in r.items()} for n, r in seconds.items()}, ".1f"),
        table("Time, plain = 1", names, ratios(seconds), ".2f"),
        table("Peak memory in MiB", names, {n: {k: b / MIB for k, b in r.items()} for n, r in memory.items()}, ".1f"),
        table("Peak memory, plain = 1", names, ratios(memory), ".3f"),
    ]
    far = [n for n in lengths if n >= 1024]
    slopes = []
    for name in names:
        known = [n for n in far if memory[n].get(name, 0) > 0]
        if len(known) > 1:
            slopes.append(f"{name} {slope(known, [memory[n][name] for n in known]):.2f}")
    if slopes:
        parts.append(f"Memory grows as N to the power of (from N = {far[0]}): {', '.join(slopes)}")
    return "\n\n".join(parts)


def positive(text: str) -> int:
    """An argument that is a whole number above 0."""
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def arguments(given: list[str] | None) -> argparse.Namespace:
    """What the command line says."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(
        prog="python -m bench.attention", description="Time and peak memory of attention, forward and backward."
    )
    parser.add_argument(
        "--lengths", type=positive, nargs="+", default=LENGTHS, metavar="N", help="default: 256 to 8192"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if cuda else "cpu")
    parser.add_argument(
        "--dtype", choices=("float32", "float16", "bfloat16"), help="default: float32; bfloat16 on a GPU"
    )
    parser.add_argument("--heads", type=positive, default=1)
    parser.add_argument("--width", type=positive, default=64, help="of a head; default: 64")
    parser.add_argument("--block", type=positive, default=256, help="queries and keys of a tile; default: 256")
    parser.add_argument("--threads", type=positive, default=torch.get_num_threads(), help="on the CPU; default: all")
    parser.add_argument("--repeats", type=positive, default=3, help="the median of so many; default: 3")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write each measurement there as well")
    options = parser.parse_args(given)
    if options.device == "cuda" and not cuda:
        parser.error("--device cuda: torch finds no GPU here")
    if options.device == "cpu" and not Path("/proc/self/clear_refs").exists():
        parser.error("peak memory on the CPU is read from /proc, which only Linux has")
    options.dtype = options.dtype or ("bfloat16" if options.device == "cuda" else "float32")
    return options


def main(given: list[str] | None = None) -> int:
    """Measure, and print the tables; what is there by Ctrl-C is printed too."""
    options = arguments(given)
    setting = Setting(options.device, options.dtype, options.heads, options.width, options.block, options.threads)
    names = ways(setting)
    seen: dict[tuple[int, str], list[Measured]] = {}
    failed: dict[tuple[int, str], str] = {}
    jobs = [(n, name, turn) for n in sorted(options.lengths) for turn in range(options.repeats) for name in names]
    stopped, start = False, time.monotonic()
    try:
        for i, (n, name, _) in enumerate(jobs, 1):
            if (n, name) in failed:
                continue
            print(
                f"\r\033[K{i} of {len(jobs)}, {time.monotonic() - start:.0f} s: N = {n}, {name}",
                end="",
                file=sys.stderr,
            )
            found = apart(setting, name, n)
            if isinstance(found, Measured):
                seen.setdefault((n, name), []).append(found)
            else:
                failed[n, name] = found
    except KeyboardInterrupt:
        stopped = True
    print("\r\033[K", end="", file=sys.stderr)
    for (n, name), why in failed.items():
        print(f"bench.attention: N = {n}, {name}: {why}", file=sys.stderr)
    if seen:
        print(report(setting, seen, names))
    if options.csv:
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["N", "way", "seconds", "peak bytes", *asdict(setting)])
            for (n, name), measured in seen.items():
                for m in measured:
                    writer.writerow([n, name, m.seconds, m.peak, *asdict(setting).values()])
    return 130 if stopped else 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
