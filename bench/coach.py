"""How long the coach takes: its import, its first verdict, and each further check, for every task of the course.

    python -m bench.coach                         all tasks, every fifth mistake of each: some minutes
    python -m bench.coach --every 1 relu.Square   all mistakes of one task

Each task is judged in a fresh process, as in a reader's kernel that has loaded torch: first its first right way, then
mistakes, each as if it were the first answer that the kernel sees (what the judge remembers is dropped in between). A
later try of the same reader is quicker than what stands here. The goal is a first verdict within 1 s of the import,
and 0.3 s for each further check. Seconds are those of the clock and, in brackets, of the processor: on a machine that
does other work the second ones say more; they count the process that runs a test file. Torch has one thread unless
OMP_NUM_THREADS says otherwise.

Checks beyond the goal are listed at the end, slowest first. The exit code is 0: this is a measurement, no test.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

GOAL = 0.3
ROW = "{:38} {:>13} {:>13} {:>13} {:>13} {:>9}"


@dataclass(frozen=True)
class Row:
    """One check of one answer.

    Args:
        answer: the right way or the mistake.
        check: its name.
        first: whether it was the first one of its answer.
        state: what the coach said of it.
        clock, processor: seconds.
    """

    answer: str
    check: str
    first: bool
    state: str
    clock: float
    processor: float


def _spent() -> float:
    """Return the seconds of the processor that this process and its children took."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure(key: str, every: int) -> tuple[tuple[float, float], list[Row]]:
    """Return the seconds of the import, and the rows of a task; to be called in a fresh process."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    before = time.perf_counter(), _spent()
    from graders import coach  # noqa: F401 (what a reader's first cell does)

    imported = time.perf_counter() - before[0], _spent() - before[1]
    from graders.coach.find import find
    from graders.coach.session import steps
    from graders.judge.task import Task

    found = find("", key)
    task = found.task
    answers: list[tuple[str, object]] = []
    if isinstance(task, Task):
        operations = [next(iter(task.solutions.items())), *((m.name, m.operation) for m in task.mistakes[::every])]
        for name, operation in operations:
            thing = type(task.name, (), {"apply": staticmethod(operation)}) if found.applied else operation
            answers.append((name, thing))
    else:
        answers = [*task.solutions.items()][:1]
    remembered = [method for method in vars(Task).values() if hasattr(method, "cache_clear")]
    rows = []
    for name, thing in answers:
        for cached in remembered:
            cached.cache_clear()
        judging, first, start = steps(found, thing), True, (time.perf_counter(), _spent())
        for step in judging:
            end = time.perf_counter(), _spent()
            rows.append(Row(name, step.verdict.check, first, step.state, end[0] - start[0], end[1] - start[1]))
            first, start = False, end
    return imported, rows


def _asked(key: str, every: int) -> tuple[tuple[float, float], list[Row]]:
    """Measure a task in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.coach", "--one", key, "--every", str(every)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
    )
    said = json.loads(done.stdout.splitlines()[-1])
    return (said["import"][0], said["import"][1]), [Row(**row) for row in said["rows"]]


def _seconds(pairs: Sequence[tuple[float, float]]) -> str:
    return f"{max(c for c, _ in pairs):.2f} ({max(p for _, p in pairs):.2f})" if pairs else "-"


def _typical(rows: Sequence[Row]) -> str:
    if not rows:
        return "-"
    return f"{statistics.median(r.clock for r in rows):.2f} ({statistics.median(r.processor for r in rows):.2f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.coach", description="Measure how long the coach takes.")
    parser.add_argument("tasks", nargs="*", metavar="SET.TASK", help="only these: relu.Square")
    parser.add_argument("--every", type=int, default=5, metavar="N", help="every N-th mistake (default 5)")
    parser.add_argument("--one", metavar="SET.TASK", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.one:
        imported, rows = measure(chosen.one, chosen.every)
        print(json.dumps({"import": imported, "rows": [vars(row) for row in rows]}))
        return 0
    from graders.coach.find import sets, tasks

    known = [found.key for name in sets() for found in tasks(name)]
    if strange := [key for key in chosen.tasks if key not in known]:
        parser.error(f"there is no task {strange[0]}: give a set and a task of it, as in {known[0]}")
    keys = chosen.tasks or [found.key for name in sets() for found in tasks(name) if not found.turn]
    print(ROW.format("task, seconds (of the processor)", "import", "first", "further", "slowest", "over 0.3"))
    every: list[tuple[str, Row]] = []
    for key in keys:
        imported, rows = _asked(key, chosen.every)
        first = [(row.clock, row.processor) for row in rows if row.first]
        further = [row for row in rows if not row.first]
        over = sum(row.processor > GOAL for row in further)
        slowest = _seconds([(row.clock, row.processor) for row in further])
        line = (key, _seconds([imported]), _seconds(first), _typical(further), slowest, f"{over}/{len(further)}")
        print(ROW.format(*line), flush=True)
        every += [(key, row) for row in rows]
    beyond = [(k, row) for k, row in every if row.processor > (1.0 if row.first else GOAL)]
    print(f"\n{len(every)} checks, {len(beyond)} beyond the goal by the processor's seconds.")
    for key, row in sorted(beyond, key=lambda pair: -pair[1].processor):
        print(f"  {key} {row.check}, {row.answer}: {row.clock:.2f} ({row.processor:.2f}), {row.state}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
