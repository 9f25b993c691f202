"""Grading the sample class: stock nbgrader and this project in turn, seconds and ratio, and where the time goes.

    python -m bench.grading                    60 submissions: three sets, 20 of each; half an hour on two cores
    python -m bench.grading --sets 01_relu --copies 3 --workers 1 2 --where 0

What is timed are whole commands, from the start of the interpreter to its end: `nbgrader autograde SET` in a course
folder of stock nbgrader (`tools/stock.py`: its own preprocessors, its own Execute), and `python -m graders grade SET
--workers N` in a folder with this project's configuration. Both have the same submissions, and a gradebook into which
the set was just released. They take turns, stock before each number of workers, so that what else the machine does
meets both; a ratio is that of neighbours. Torch has one thread in both unless OMP_NUM_THREADS says otherwise: its
tensors here are small, and on a busy machine stock is slower with more.

Where a control group can count them (version 1, as root), there are also the seconds of CPU that a command and all that
it started took. On a machine that does other work they say more: what waits for a core takes none.

Every submission must have the same score from both, cell by cell. A difference is printed, and one that `EXPLAINED`
does not name makes the exit code 1.

Left out, and named in the output: submissions of which stock makes something else (damaged on their way), and one whose
endless recursion costs stock half a minute for its traceback alone, which is no measure of grading.
"""

import argparse
import csv
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from itertools import pairwise
from pathlib import Path

from nbgrader.api import Gradebook

from graders.classroom.sample import build, students
from tools.stock import ROOT, StockError, environment, nbgrader, stock_course

SETS = ("01_relu", "06_linear", "10_flash_attention")
TRACEBACK = "it calls itself without end, and stock takes half a minute to write the traceback"
LEFT_OUT = {("goran", "10_flash_attention"): TRACEBACK}
EXPLAINED: dict[tuple[str, str, str], str] = {}  # (sample student, set, grade cell): what the manual says of it
CLASSES = (30, 100, 300)  # for whose size the CPU seconds of a set are compared
GRADEBOOK = "gradebook.db"
ACCOUNTS = Path("/sys/fs/cgroup/cpuacct")
IN_GROUP = 'echo $$ >"$0/cgroup.procs" && exec "$@"'  # a shell that moves itself, and becomes the command

Scores = dict[tuple[str, str], float | None]  # by student and grade cell


class BenchError(Exception):
    """Why there is nothing to compare; its text is for the terminal."""


@dataclass(frozen=True)
class Timed:
    """One command: which, on how many submissions of a set, and how long it took. Stock has no workers (0).

    `first`, `first_cpu`: the seconds of our command on one submission, right after; all above that is what more take.
    """

    assignment: str
    submissions: int
    workers: int
    turn: int
    load: float  # before it started
    seconds: float
    cpu: float = 0.0  # 0: not counted
    first: float = 0.0
    first_cpu: float = 0.0


@dataclass(frozen=True)
class Difference:
    """A grade cell that the two graders score differently."""

    assignment: str
    student: str
    cell: str
    stock: float | None
    ours: float | None

    @property
    def explained(self) -> str:
        """What the manual says of it; "": nothing."""
        return EXPLAINED.get((self.student.partition("-")[0], self.assignment, self.cell), "")

    def __str__(self) -> str:
        why = f" ({self.explained})" if self.explained else ""
        return f"{self.assignment}, {self.student}, {self.cell}: stock {self.stock}, ours {self.ours}{why}"


def left_out(root: Path) -> dict[tuple[str, str], str]:
    """The sample students' submissions that are not compared, and why: (student, set)."""
    damage = tomllib.loads((root / "sample/damage.toml").read_text(encoding="utf-8")).get("damage", [])
    sets = {path.name.partition("_")[2]: path.name for path in (root / "solutions").iterdir()}
    return LEFT_OUT | {(d["student"], sets.get(d["set"], d["set"])): f"damaged: {d['kind']}" for d in damage}


def class_of(root: Path, assignment: str, count: int) -> dict[str, str]:
    """The names of `count` students of a set, and whose submission each has: the sample's own, then copies in turn."""
    slug, without = assignment.partition("_")[2], left_out(root)
    own = [s for s in students(root) if (s, assignment) not in without and (root / f"sample/{s}/{slug}.py").is_file()]
    if not own:
        raise BenchError(f"no student of the sample class handed in {assignment}")
    return {
        own[i % len(own)] + (f"-{i // len(own) + 1}" if i >= len(own) else ""): own[i % len(own)] for i in range(count)
    }


def hand_in(root: Path, folder: Path, classes: dict[str, dict[str, str]]) -> Path:
    """Build the submissions of each set's class; the folder `submitted` that they are in."""
    (folder / "sample").mkdir(parents=True)
    (folder / "sample/damage.toml").write_text("damage = []\n", encoding="utf-8")
    for assignment, names in classes.items():
        slug = assignment.partition("_")[2]
        shutil.copytree(root / "exercises" / assignment, folder / "exercises" / assignment)
        for name, student in names.items():
            (folder / "sample" / name).mkdir(exist_ok=True)
            shutil.copyfile(root / f"sample/{student}/{slug}.py", folder / f"sample/{name}/{slug}.py")
    build(folder, list(classes))
    return folder / "submitted"


def our_course(root: Path, target: Path, sets: Sequence[str], visible: bool = False) -> Path:
    """The same course as `stock_course` makes, with this project's configuration; if asked, all that stock runs."""
    target.mkdir(parents=True)
    settings = (root / "nbgrader_config.py").read_text(encoding="utf-8")
    settings += "\nc.TrustedExecute.visible = True\n" if visible else ""
    (target / "nbgrader_config.py").write_text(settings, encoding="utf-8")
    for name in sets:
        shutil.copytree(root / "solutions" / name, target / "solutions" / name, ignore=shutil.ignore_patterns(".*"))
        done = nbgrader(target, "generate_assignment", name)
        if done.returncode:
            raise BenchError(f"nbgrader refuses {name} under {root / 'nbgrader_config.py'}:\n{done.stderr.strip()}")
    return target


class Bench:
    """Two course folders with the same submissions, graded over and over from the same start.

    Args:
        root: the project's folder.
        folder: an empty one to work in.
        classes: by set, the names of its students and whose submission each has.
        options: for our command, beside the number of workers.
        visible: whether ours runs the cells that only show something, as stock does.
    """

    def __init__(
        self, root: Path, folder: Path, classes: dict[str, dict[str, str]], options: Sequence[str], visible: bool
    ) -> None:
        self.classes, self.options = classes, options
        submitted = hand_in(root, folder / "class", classes)
        self.stock = stock_course(root, folder / "stock", list(classes))
        self.ours = our_course(root, folder / "ours", list(classes), visible)
        for course in (self.stock, self.ours):
            shutil.copytree(submitted, course / "submitted")
            shutil.copyfile(course / GRADEBOOK, course.with_suffix(".fresh"))
        self.environment = {k: v for k, v in environment().items() if not k.startswith("GRADERS_")}
        self.environment.setdefault("OMP_NUM_THREADS", "1")

    def seconds(self, course: Path, module: Sequence[str], **more: str) -> tuple[float, float]:
        """Run `python -m` in a course that nothing is graded in yet; how long it takes, and the seconds of CPU or 0.

        Raises:
            BenchError: it failed.
        """
        shutil.rmtree(course / "autograded", ignore_errors=True)
        shutil.copyfile(course.with_suffix(".fresh"), course / GRADEBOOK)
        log = course.with_suffix(".log")
        command = [sys.executable, "-m", *module]
        with log.open("w", encoding="utf-8") as sink, accounted() as account, kernels() as apart:
            start = time.perf_counter()
            done = subprocess.run(
                ["sh", "-c", IN_GROUP, str(account), *command] if account else command,
                cwd=course,
                env=self.environment | more,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )
            seconds = time.perf_counter() - start
            cpu = int((account / "cpuacct.usage").read_text()) / 1e9 + sum(apart.values()) if account else 0.0
        if done.returncode > (module[0] == "graders"):  # ours ends with 1 where it told a fault; scores are compared
            last = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
            raise BenchError(f"`python -m {' '.join(module)}` ended with {done.returncode}:\n{last}")
        return seconds, cpu

    def command(self, assignment: str, workers: int, *students: str) -> list[str]:
        """Stock's (0 workers) or our command for a set; ours for some of its students."""
        if not workers:
            return ["nbgrader", "autograde", assignment]
        return ["graders", "grade", assignment, *students, "--workers", str(workers), *self.options]

    def timed(self, assignment: str, workers: int, turn: int) -> tuple[Timed, Scores]:
        """Grade a set; how long it took, and the scores."""
        course, load = self.ours if workers else self.stock, os.getloadavg()[0]
        seconds, cpu = self.seconds(course, self.command(assignment, workers))
        found = scores(course, assignment)
        missing = set(self.classes[assignment]) - {student for student, _ in found}
        if missing or None in found.values():
            who = "ours" if workers else "stock"
            ungraded = sorted(missing | {student for (student, _), score in found.items() if score is None})
            raise BenchError(f"{who} left {', '.join(ungraded)} without a score in {assignment}")
        first, first_cpu, names = 0.0, 0.0, list(self.classes[assignment])
        if workers and len(names) > 1:
            first, first_cpu = self.seconds(course, self.command(assignment, workers, names[0]))
        return Timed(assignment, len(names), workers, turn, load, seconds, cpu, first, first_cpu), found

    def where(self, assignment: str, count: int) -> tuple[Counter[str], Counter[str]]:
        """Seconds by phase, of stock a submission of `count`, of ours (1 worker) a submission of all.

        What happens once a command ("start: ...") is not divided.
        """
        names = list(self.classes[assignment])
        few = self.stock.with_name("few")
        shutil.rmtree(few, ignore_errors=True)
        shutil.copytree(self.stock, few, ignore=shutil.ignore_patterns("submitted", "autograded"))
        shutil.copyfile(self.stock.with_suffix(".fresh"), few.with_suffix(".fresh"))
        chosen = names[:: max(1, len(names) // count)][:count]
        for name in chosen:
            shutil.copytree(self.stock / "submitted" / name / assignment, few / "submitted" / name / assignment)
        file = few.with_suffix(".phases")
        file.unlink(missing_ok=True)
        self.seconds(few, ["bench.stock_phases", str(file), *self.command(assignment, 0)[1:]])
        theirs = phases(file, len(chosen))
        file.unlink()
        self.seconds(self.ours, self.command(assignment, 1), GRADERS_PROFILE=str(file))
        return theirs, phases(file, len(names)) if file.exists() else Counter()


@contextmanager
def accounted() -> Iterator[Path | None]:
    """A control group that counts the CPU's seconds of whatever is in it; None where there can be none."""
    group = ACCOUNTS / f"bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        for _ in range(50):  # what was killed may take a moment to be gone
            with suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


@contextmanager
def kernels() -> Iterator[dict[str, float]]:
    """The seconds of CPU, by control group, of notebooks that our command moves into groups of its own meanwhile."""
    found: dict[str, float] = {}
    earlier = {group.name for group in ACCOUNTS.glob("graders-*")}
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.05):
            for group in ACCOUNTS.glob("graders-*"):
                with suppress(OSError):  # it is gone: what was seen last stands
                    if group.name not in earlier:
                        found[group.name] = int((group / "cpuacct.usage").read_text()) / 1e9

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()


def scores(course: Path, assignment: str) -> Scores:
    """What the gradebook of a course holds for a set."""
    with Gradebook(f"sqlite:///{course / GRADEBOOK}") as gradebook:
        return {
            (submission.student_id, grade.name): None if grade.needs_manual_grade else grade.score
            for submission in gradebook.assignment_submissions(assignment)
            for notebook in submission.notebooks
            for grade in notebook.grades
        }


def differences(assignment: str, stock: Scores, ours: Scores) -> list[Difference]:
    """The cells on which two gradings of a set differ."""
    keys = sorted(set(stock) | set(ours))
    return [Difference(assignment, *k, stock.get(k), ours.get(k)) for k in keys if stock.get(k) != ours.get(k)]


def phases(file: Path, count: int) -> Counter[str]:
    """The seconds of each phase that a file of JSON lines notes, a submission; of the start, in all."""
    total: Counter[str] = Counter()
    for line in file.read_text(encoding="utf-8").splitlines():
        noted = json.loads(line)
        total[noted["phase"]] += noted["seconds"] / (1 if noted["phase"].startswith("start") else count)
    return total


def neighbours(
    seen: Sequence[Timed], workers: int, assignment: str | None = None, what: str = "seconds"
) -> tuple[float, float]:
    """The seconds of the stock runs right before ours with so many workers (of one set, or of all), and of ours."""
    pairs = [(s, o) for s, o in pairwise(seen) if o.workers == workers and assignment in (None, o.assignment)]
    return sum(getattr(s, what) for s, _ in pairs), sum(getattr(o, what) for _, o in pairs)


def further(seen: Sequence[Timed], workers: int, assignment: str | None = None) -> float:
    """Seconds that ours takes for each submission after the first: without the command's start. 0: not measured."""
    chosen = [t for t in seen if t.workers == workers and t.first and assignment in (None, t.assignment)]
    more = sum(t.submissions - 1 for t in chosen)
    return max(0.0, sum(t.seconds - t.first for t in chosen)) / more if more else 0.0


def in_a_class(seen: Sequence[Timed], workers: int, assignment: str | None, students: int) -> float:
    """How many times fewer CPU seconds ours takes for a set in a class of so many, by what one more takes of each.

    Of several sets, the mean one. 0: not measured.
    """
    pairs = [
        (stock, ours)
        for stock, ours in pairwise(seen)
        if ours.workers == workers and assignment in (None, ours.assignment) and ours.first_cpu and stock.cpu
    ]
    theirs = sum(students * stock.cpu / stock.submissions for stock, _ in pairs)
    own = sum(
        ours.first_cpu + (students - 1) * (ours.cpu - ours.first_cpu) / (ours.submissions - 1) for _, ours in pairs
    )
    return theirs / own if own else 0.0


def larger(seen: Sequence[Timed], workers: int, sets: Sequence[str]) -> list[str]:
    """A line for each of `CLASSES`: the ratio of CPU seconds there."""
    lines = []
    for size in CLASSES:
        told = [(name or "in all", in_a_class(seen, workers, name, size)) for name in [*sets, None]]
        if all(ratio for _, ratio in told):
            each = ", ".join(f"{ratio:.1f} ({name})" for name, ratio in told)
            lines.append(f"CPU, stock to ours, in a class of {size}, by what one more submission takes: {each}.")
    return lines


def table(seen: Sequence[Timed], cores: int) -> str:
    """A line for each set and number of workers: seconds of both, the ratio, and what more workers bring.

    "first" is our command on one submission, "further" each of the others: what a larger class costs.
    """
    counts = sorted({t.workers for t in seen if t.workers})
    sets = list(dict.fromkeys(t.assignment for t in seen))
    counted = all(t.cpu for t in seen)
    head = f"{'set':<22}{'workers':>7}{'stock s':>10}{'ours s':>9}{'ratio':>7}"
    head += f"{'stock CPU':>12}{'ours CPU':>10}{'ratio':>7}" if counted else ""
    lines = [f"{head}{'first s':>9}{'further s':>11}  further, to 1 worker"]
    for name in [*sets, *([None] if len(sets) > 1 else [])]:
        alone = further(seen, 1, name)
        for workers in counts:
            stock, ours = neighbours(seen, workers, name)
            if not ours:
                continue
            line = f"{name or 'in all':<22}{workers:>7}{stock:>10.1f}{ours:>9.1f}{stock / ours:>7.1f}"
            if counted:
                theirs, own = neighbours(seen, workers, name, "cpu")
                line += f"{theirs:>12.1f}{own:>10.1f}{theirs / own:>7.1f}"
            if each := further(seen, workers, name):
                line += f"{neighbours(seen, workers, name, 'first')[1]:>9.1f}{each:>11.3f}"
                if alone and workers > 1:
                    line += f"  {alone / each:.2f}"
                    line += f" ({alone / each / workers:.0%} of linear)" if workers <= cores else ""
            lines.append(line)
    lines += larger(seen, counts[-1], sets) if counted else []
    spread = [t.seconds for t in seen if not t.workers and t.assignment == sets[0]]
    if len(spread) > 1:
        off = (max(spread) - min(spread)) / statistics.median(spread)
        lines.append(f"Stock's runs of {sets[0]} differ by {off:.0%} among themselves: so much is noise.")
    return "\n".join(lines)


def where_table(assignment: str, stock: Counter[str], ours: Counter[str]) -> str:
    """A line for each phase, those of stock first, and the sums."""
    names = sorted(set(stock) | set(ours), key=lambda n: (n.startswith("start"), n not in stock, -stock[n], -ours[n]))
    lines = [f"{assignment}: seconds a submission (start: of the command)", f"{'':<42}{'stock':>9}{'ours':>9}"]
    rows = [(n, stock.get(n), ours.get(n)) for n in names]
    sums = [sum(v for n, v in phase.items() if not n.startswith("start")) for phase in (stock, ours)]
    for name, *pair in [*rows, ("a submission, start apart", *sums)]:
        lines.append(f"{name:<42}" + "".join(f"{'-' if v is None else format(v, '.3f'):>9}" for v in pair))
    return "\n".join(lines)


def machine(threads: str) -> str:
    """What was measured on and with."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    models = (
        [x.split(":")[1].strip() for x in info.read_text().splitlines() if "model name" in x] if info.exists() else []
    )
    bwrap = shutil.which("bwrap")
    versions = [f"Python {platform.python_version()}"]
    versions += [f"{p} {importlib.metadata.version(p)}" for p in ("torch", "nbgrader", "nbclient", "ipykernel")]
    said = subprocess.run([bwrap, "--version"], capture_output=True, text=True).stdout.strip() if bwrap else ""
    load = ", ".join(f"{x:.2f}" for x in os.getloadavg())
    system = f"{platform.system()} {platform.release()}"
    return (
        f"{cores()} cores of {models[0] if models else name}, {system}, load before {load}\n"
        f"{', '.join(versions)}, {said or 'no bubblewrap'}; OMP_NUM_THREADS={threads}"
    )


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def counts_up_to(cores: int) -> list[int]:
    """Numbers of workers to try: doubled up to the cores, the cores themselves, and 4 in any case."""
    return sorted({1, 2, 4, cores} | {2**i for i in range(cores.bit_length())})


def positive(text: str) -> int:
    """An argument that is a whole number above 0."""
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench.grading", description=__doc__.split("\n")[0])
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="SET", help=f"default: {' '.join(SETS)}")
    parser.add_argument(
        "--copies",
        type=positive,
        default=20,
        metavar="N",
        help="submissions of each set, the sample students' own and copies under further names; default: 20",
    )
    default = counts_up_to(cores())
    parser.add_argument("--workers", type=positive, nargs="+", default=default, metavar="N", help=f"default: {default}")
    parser.add_argument("--turns", type=positive, default=1, metavar="N", help="all of it so often; default: 1")
    parser.add_argument(
        "--where",
        type=int,
        default=3,
        metavar="N",
        help="say where the time goes, of N submissions by stock; default: 3",
    )
    parser.add_argument("--visible", action="store_true", help="ours runs visible checks and figures too")
    parser.add_argument("--no-sandbox", action="store_true", help="where there is none")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="work in this new folder and leave all there")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write each measurement there as well")
    return parser.parse_args(given)


def measure(bench: Bench, options: argparse.Namespace, seen: list[Timed]) -> list[Difference]:
    """Run everything; the measurements go to `seen` as they are made. Returns the scores' differences."""
    found: dict[tuple[str, str, str], Difference] = {}
    runs = [(s, t, w) for s in bench.classes for t in range(options.turns) for n in options.workers for w in (0, n)]
    start, stock = time.monotonic(), {}
    for number, (assignment, turn, workers) in enumerate(runs, 1):
        who = f"{workers} worker{'s' * (workers > 1)}" if workers else "stock"
        progress(f"{number} of {len(runs)}, {time.monotonic() - start:.0f} s: {assignment}, {who}")
        timed, got = bench.timed(assignment, workers, turn)
        seen.append(timed)
        if not workers:
            stock = got
            continue
        for difference in differences(assignment, stock, got):
            found[difference.assignment, difference.student, difference.cell] = difference
    return list(found.values())


def progress(text: str) -> None:
    """A line on stderr: on a terminal one that the next one overwrites."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def main(given: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Measure, print; 0, or 1 where a score differs without a reason, 2 where nothing can be measured."""
    options = arguments(given)
    seen: list[Timed] = []
    try:
        if missing := [name for name in options.sets if not (root / "solutions" / name).is_dir()]:
            raise BenchError(f"there is no set {', '.join(missing)}")
        classes = {name: class_of(root, name, options.copies) for name in options.sets}
        with tempfile.TemporaryDirectory(prefix="bench-grading-") as temporary:
            folder = options.folder or Path(temporary)
            progress("making two courses")
            bench = Bench(root, folder, classes, ["--no-sandbox"] if options.no_sandbox else [], options.visible)
            progress("")
            print(machine(bench.environment["OMP_NUM_THREADS"]))
            for name, names in classes.items():
                print(f"{name}: {len(names)} submissions, those of {', '.join(dict.fromkeys(names.values()))}")
            for (student, name), why in left_out(root).items():
                if name in classes:
                    print(f"left out: {student}, {name} ({why})")
            print(f"the sandbox is {'off' if options.no_sandbox else 'on'}")
            who = (
                "both"
                if options.visible
                else "stock; ours leaves them out, as configured, since no point hangs on them"
            )
            print(f"visible checks and figures (check_..., plot_...) are run by {who}\n", flush=True)
            try:
                differing = measure(bench, options, seen)
            finally:
                progress("")
                if any(t.workers for t in seen):
                    print(table(seen, cores()), flush=True)
                if options.csv:
                    write(options.csv, seen)
            for name in classes if options.where > 0 else []:
                progress(f"where the time goes: {name}")
                stock, ours = bench.where(name, options.where)
                progress("")
                print(f"\n{where_table(name, stock, ours)}", flush=True)
    except (BenchError, StockError) as error:
        progress("")
        print(f"bench.grading: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    cells = sum(len(names) for names in classes.values())
    print(f"\nScores: {cells} submissions, {len(differing)} cells that differ.")
    for difference in differing:
        print(f"differs: {difference}")
    return 1 if any(not d.explained for d in differing) else 0


def write(file: Path, seen: Sequence[Timed]) -> None:
    """Each measurement as a line of comma-separated values."""
    with file.open("w", encoding="utf-8", newline="") as sink:
        writer = csv.writer(sink)
        writer.writerow([field.name for field in fields(Timed)])
        writer.writerows(astuple(t) for t in seen)


if __name__ == "__main__":
    sys.exit(main())
