"""Run and build everything with another torch, in a separate copy, and report what changed.

    python -m tools.latest [--torch VERSION] [--fresh]

In `_build/latest/` it makes an environment with the packages of `requirements-dev.txt`, torch apart, copies the course,
runs every notebook of the book, compares each cell's output with the stored one, runs the graders' tests, builds the
book, and writes `report.md`. Nothing outside that folder changes. The exit code is 0 where nothing changed, 1 where
something did, 2 where it could not run.
"""

import argparse
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from nbformat import NotebookNode
from nbval.plugin import get_sanitize_patterns

from tools import check_book
from tools.notebooks import NotebookError, normalise, read, to_text, write

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ("requirements.txt", "requirements-dev.txt", "constraints.txt")
UNCOMPARED = {"image/png", "image/jpeg"}  # as nbval: the same drawing may have other bytes
DIFF_LINES, LINE_LENGTH = 24, 200  # of what the report shows of a cell
CELL_SECONDS, TEST_SECONDS = 600, 1800  # a cell, a file of tests
QUICK = "not seeds and not pipe"  # all but the two that try each solution again and again: `make test` does


class LatestError(Exception):
    """Why nothing can be compared, and the remedy, in one line."""


@dataclass(frozen=True)
class Change:
    """What is new in a cell's outputs."""

    cell: str
    kind: str  # "error", "warning" or "output"
    lines: list[str]  # of a diff, or of the message


@dataclass(frozen=True)
class Ran:
    """A notebook that was run."""

    name: str
    seconds: float
    changes: list[Change] = field(default_factory=list)
    stopped: str = ""  # why it did not come to its end

    def count(self, kind: str) -> int:
        """How many cells have a change of this kind."""
        return len({change.cell for change in self.changes if change.kind == kind})


@dataclass
class Report:
    """What is known so far; `text` is the report."""

    was: str  # the torch of the stored outputs
    torch: str = "?"
    python: str = "?"
    doing: str = ""  # empty: everything was done
    packages: list[str] = field(default_factory=list)
    ran: list[Ran] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    tests: str = ""
    book: list[str] = field(default_factory=list)
    built: bool = False
    named: dict[str, int] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether anything is not as with the torch of the stored outputs."""
        return bool(any(ran.changes or ran.stopped for ran in self.ran) or self.failures or self.book)

    def text(self) -> str:
        """The report as Markdown."""
        lines = [f"# The course with torch {self.torch}", ""]
        if self.doing:
            lines += [f"**Incomplete: stopped while {self.doing}. The parts missing below were not checked.**", ""]
        lines += [
            f"The stored outputs are from torch {self.was}; these are from torch {self.torch}, Python {self.python}.",
            "",
        ]
        lines += [f"- {line}" for line in self.summary()]
        lines += [
            "",
            "## Notebooks",
            "",
            "| Notebook | Outputs | Errors | Warnings | Seconds |",
            "|---|--:|--:|--:|--:|",
        ]
        for ran in self.ran:
            counts = " | ".join(str(ran.count(kind)) for kind in ("output", "error", "warning"))
            lines.append(f"| {ran.name} | {counts} | {ran.seconds:.0f} |")
        for ran in self.ran:
            if ran.changes or ran.stopped:
                lines += ["", f"### {ran.name}"]
            if ran.stopped:
                lines += ["", f"It did not finish: {ran.stopped}"]
            for change in ran.changes:
                lines += ["", f"Cell `{change.cell}`, {change.kind}:", "", "```diff", *change.lines, "```"]
        lines += ["", "## The graders' tests", "", self.tests or "Not run."]
        lines += [f"- {failure}" for failure in self.failures]
        lines += ["", "## The book", ""]
        lines += [f"- {fault}" for fault in self.book] or [
            "Builds without a warning or a fault." if self.built else "Not built."
        ]
        if self.packages:
            lines += ["", "## Other packages that differ", "", *(f"- {package}" for package in self.packages)]
        if self.named:
            lines += ["", f"## Where torch {self.was.rpartition('.')[0]} is named", ""]
            lines += [f"- {name}: {count}" for name, count in self.named.items()]
        return "\n".join(lines) + "\n"

    def summary(self) -> Iterator[str]:
        """What a maintainer wants to know first, one line each."""
        cells = {kind: sum(ran.count(kind) for ran in self.ran) for kind in ("output", "error", "warning")}
        touched = sum(bool(ran.changes or ran.stopped) for ran in self.ran)
        yield (
            f"{len(self.ran)} notebooks run, {touched} changed: {cells['output']} cells with another output, "
            f"{cells['error']} with a new error, {cells['warning']} with a new warning"
        )
        yield f"graders: {self.tests or 'not run'}"
        yield f"the book: {f'{len(self.book)} faults' if self.book else 'builds' if self.built else 'not built'}"


def say(line: str) -> None:
    """A line of progress."""
    print(line, flush=True)


def requirements(root: Path, folder: Path, torch: str) -> None:
    """Write the requirements to `folder` with `torch` ("torch" or "torch==2.14.1") in the place of the pinned one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in REQUIREMENTS:
        try:
            text = (root / name).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise LatestError(f"there is no {name}: run it in a clone of the course") from error
        wanted = "" if name == "constraints.txt" else torch
        (folder / name).write_text(re.sub(r"^torch==\S+", wanted, text, flags=re.MULTILINE), encoding="utf-8")


def environment(root: Path, folder: Path, torch: str, fresh: bool) -> Path:
    """Make the environment in `folder`, or bring an earlier one up to date; return its Python."""
    requirements(root, folder / "requirements", torch)
    venv = folder / "venv"
    python = venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [str(python), "-m", "pip"]
    if fresh:
        shutil.rmtree(venv, ignore_errors=True)
    if not python.exists() or subprocess.run([*pip, "--version"], capture_output=True).returncode:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
    wanted = folder / "requirements" / "requirements-dev.txt"
    quiet = ["--quiet", "--disable-pip-version-check", "--no-compile", "--upgrade"]
    done = subprocess.run([*pip, "install", *quiet, "-r", str(wanted)], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        said = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        raise LatestError(
            f"pip cannot install {torch}: {said[-1] if said else last_line(done.stderr)} (`pip index versions torch` "
            "lists what it finds; if another package's pin is in the way, loosen it in constraints.txt)"
        )
    return python


class Facts(NamedTuple):
    """Python's version and all packages of an environment."""

    python: str
    packages: dict[str, str]


def facts(python: Path) -> Facts:
    """Look at an environment.

    Raises:
        LatestError: it cannot import torch.
    """
    code = (
        "import importlib.metadata as m, json, platform, torch\n"
        "packages = {d.metadata['Name']: d.version for d in m.distributions()} | {'torch': torch.__version__}\n"
        "print(json.dumps({'python': platform.python_version(), 'packages': packages}))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise LatestError(f"the new environment cannot import torch: {last_line(done.stderr)}; try --fresh")
    return Facts(**json.loads(done.stdout))


def differing(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """The packages of both environments whose versions differ; the course itself and torch apart."""
    both = sorted((old.keys() & new.keys()) - {"torch", "pip", "graders"}, key=str.lower)
    return [f"{name} {old[name]} is {new[name]}" for name in both if old[name] != new[name]]


def copy_course(root: Path, tree: Path) -> None:
    """Copy the course, as git sees it with what is not committed yet, to `tree`."""
    listing = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listing, capture_output=True, text=True)
    if done.returncode:
        raise LatestError(f"git does not list the course: {last_line(done.stderr)}; run it in a clone of the course")
    shutil.rmtree(tree, ignore_errors=True)
    for name in filter(None, done.stdout.split("\0")):
        if (root / name).is_file():  # not deleted since
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, tree / name)


def surroundings(python: Path, folder: Path, torch: str) -> dict[str, str]:
    """What programs of the new environment run with: its programs and kernel first, C++ built for its torch."""
    return os.environ | {
        "PATH": os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)]),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions" / torch),
        "OMP_NUM_THREADS": "1",  # as `make test`
        "MKL_CBWR": "COMPATIBLE",
        "NO_COLOR": "1",
    }


def run_notebook(python: Path, path: Path, environ: dict[str, str]) -> str:
    """Run the notebook in place, past cells that raise; return why it did not come to its end, if so."""
    command = [str(python), "-m", "nbconvert", "--to", "notebook", "--execute", "--allow-errors", "--inplace"]
    settings = [f"--ExecutePreprocessor.timeout={CELL_SECONDS}", "--ExecutePreprocessor.record_timing=False"]
    done = subprocess.run([*command, *settings, str(path)], env=environ, capture_output=True, text=True)
    return last_line(done.stderr) if done.returncode else ""


def shown(cell: NotebookNode, patterns: Sequence[tuple[str, str]]) -> dict[str, str]:
    """A cell's outputs by kind, as nbval compares them: numbers of cells left out, `patterns` replaced."""
    texts: dict[str, str] = {}
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            parts = {output.name: output.text}
        elif output.output_type == "error":
            parts = {"error": f"{output.ename}: {output.evalue}"}
        else:
            parts = {kind: text for kind, text in output.data.items() if kind not in UNCOMPARED}
        for kind, text in parts.items():
            for pattern, replacement in patterns:
                text = re.sub(pattern, replacement, str(text))
            texts[kind] = texts.get(kind, "") + str(text)
    return texts


def compare(old: NotebookNode, new: NotebookNode, patterns: Sequence[tuple[str, str]]) -> Iterator[Change]:
    """The changes from the stored notebook `old` to `new`, which has the same cells and was run."""
    for before, after in zip(old.cells, new.cells, strict=True):
        was, now = shown(before, patterns), shown(after, patterns)
        ignored = "nbval-ignore-output" in before.metadata.get("tags", [])  # a GPU's or a machine's own
        for kind in sorted(was.keys() | now.keys()):
            if was.get(kind) == now.get(kind):
                continue
            if kind in ("error", "stderr") and now.get(kind):
                name = "error" if kind == "error" else "warning"
                yield Change(after.id, name, short(f"+{line}" for line in now[kind].splitlines()))
            elif not ignored:
                yield Change(after.id, "output", difference(kind, was.get(kind, ""), now.get(kind, "")))


def difference(kind: str, was: str, now: str) -> list[str]:
    """The lines in which two outputs of a kind differ; of a picture, how many."""
    lines = list(difflib.unified_diff(was.splitlines(), now.splitlines(), lineterm="", n=1))[2:]
    if kind.startswith("image/"):
        added = sum(line.startswith("+") for line in lines)
        return [f"the picture differs, in {added} of {len(now.splitlines())} lines"]
    return short(line for line in lines if not line.startswith("@@"))


def short(lines: Iterator[str]) -> list[str]:
    """The lines as the report shows them."""
    whole = [line if len(line) <= LINE_LENGTH else f"{line[:LINE_LENGTH]} ..." for line in lines]
    return whole if len(whole) <= DIFF_LINES else [*whole[:DIFF_LINES], f"... {len(whole) - DIFF_LINES} lines more"]


def run_chapter(python: Path, path: Path, environ: dict[str, str], patterns: Sequence[tuple[str, str]]) -> Ran:
    """Run a notebook of the copy, bring it into the committed form and compare it with what it was."""
    old, started = read(path), time.monotonic()
    stopped = run_notebook(python, path, environ)
    if stopped:
        return Ran(path.name, time.monotonic() - started, stopped=stopped)
    new = normalise(read(path), outputs=True)
    write(path, to_text(new))
    return Ran(path.name, time.monotonic() - started, list(compare(old, new, patterns)))


def run_tests(python: Path, tree: Path, folder: Path, environ: dict[str, str]) -> tuple[str, list[str]]:
    """Run the graders' tests, by which every solution is graded: what happened, and the failures, one line each."""
    sets = sorted(path.stem for path in (tree / "graders/sets").glob("[a-z]*"))
    total = 0
    failures: list[str] = []
    for file in sorted((tree / "tests/graders").glob("test_*.py")):
        for name in (
            sets if file.name == "test_sets.py" else [""]
        ):  # set by set: each is long, and a crash ends one only
            started = time.monotonic()
            test = file.relative_to(tree).as_posix()
            count, found = run_file(python, test, tree, folder / "graders", environ | {"COURSE_SETS": name})
            total, failures = total + count, failures + found
            took = f"{count} tests, {len(found)} failed, {time.monotonic() - started:.0f} s"
            say(f"      {' '.join([file.name, name]).strip()}: {took}")
    return f"{total} tests, {len(failures)} failed", failures if total else ["no test was found"]


def run_file(python: Path, test: str, tree: Path, folder: Path, environ: dict[str, str]) -> tuple[int, list[str]]:
    """Run a file of tests, past each that ends the process or never ends: how many, and the failures."""
    folder.mkdir(parents=True, exist_ok=True)
    results, log = folder / "results.xml", folder / f"{Path(test).stem}{environ['COURSE_SETS']}.log"
    command = [str(python), "-m", "pytest", "-vv", "--tb=short", "-k", QUICK, f"--junitxml={results}", test]
    lost: dict[str, str] = {}  # tests that ended with the process, and how
    while True:
        results.unlink(missing_ok=True)
        with log.open("a" if lost else "w", encoding="utf-8") as sink:
            skipped = [f"--deselect={name}" for name in lost]
            try:
                done = subprocess.run(
                    [*command, *skipped],
                    cwd=tree,
                    env=environ,
                    timeout=TEST_SECONDS,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                )
                how = f"the process ended with status {done.returncode}"
            except subprocess.TimeoutExpired:
                how = f"its file ran for more than {TEST_SECONDS} s"
        if results.exists():
            break
        said = re.findall(
            r"^(\S+::\S+)(?: (?=PASSED|FAILED|SKIPPED|XFAIL|ERROR)(.+))?", log.read_text("utf-8"), re.MULTILINE
        )
        if not said or said[-1][1] or said[-1][0] in lost:
            return len(said) + len(lost), [*_told(lost), f"{test}: {how}, see {log}"]
        lost[said[-1][0]] = how
    cases = list(ElementTree.parse(results).iter("testcase"))
    faults = ((case, child) for case in cases for child in case if child.tag in ("failure", "error"))
    failed = {}
    for case, fault in faults:
        told = re.findall(r"^E +(.+)$", fault.text or "", re.MULTILINE) or [fault.get("message", "no message")]
        failed[case.get("name", "")] = told[0][:LINE_LENGTH]
    return len(cases) + len(lost), _told(lost | failed)


def _told(failures: dict[str, str]) -> list[str]:
    """Failures as the report lists them."""
    return [f"`{name.rpartition('::')[2]}`: {why}" for name, why in failures.items()]


def complaints(log: str) -> list[str]:
    """The warnings and errors of a build, each once; one that ends in a colon with the line that follows."""
    lines = log.splitlines()
    found = [
        f"{line} {after.strip()}" if line.endswith(":") else line
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
        if "WARNING" in line or "rror:" in line
    ]
    return list(dict.fromkeys(found))


def build_book(python: Path, tree: Path, environ: dict[str, str]) -> list[str]:
    """Build the book of the copy, with the new outputs; return what `make book` would say."""
    command = [str(python.parent / "jupyter-book"), "build", "-W", "--keep-going", "-n", "-q", "."]
    done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True)
    said = complaints(done.stdout + done.stderr)
    if done.returncode and not said:
        said = [f"jupyter-book ended with status {done.returncode}: {last_line(done.stderr)}"]
    html = tree / "_build" / "html"
    return [line.replace(f"{tree}/", "") for line in said] + check_book.faults(html, tree / "_toc.yml")


def naming(tree: Path, release: str) -> dict[str, int]:
    """The files that name `release` of torch, major and minor, with how often: they are read again after an update."""
    named = re.compile(rf"\btorch\b[^\w\n]{{0,6}}{re.escape(release)}\b", re.IGNORECASE)
    found = {}
    for path in sorted(p for p in tree.rglob("*") if p.suffix in (".md", ".txt", ".py", ".ipynb", ".toml", ".yml")):
        try:
            text = "\n".join(c.source for c in read(path).cells) if path.suffix == ".ipynb" else path.read_text("utf-8")
        except (NotebookError, UnicodeDecodeError):
            continue
        if count := len(named.findall(text)):
            found[path.relative_to(tree).as_posix()] = count
    return found


def last_line(text: str) -> str:
    """The last line of what a program said."""
    return (text.strip().splitlines() or ["it printed nothing"])[-1].strip()[:LINE_LENGTH]


def look(root: Path, folder: Path, report: Report, torch: str, fresh: bool) -> None:
    """Do everything; what is found goes into `report` at once, and into its file before each step."""

    def begin(step: str) -> None:
        report.doing = step
        save(report, folder)

    begin("making the environment")
    say(f"[1/4] the environment, {torch}: takes minutes, and gigabytes if pip installs a CUDA build")
    python = environment(root, folder, torch, fresh)
    there, here = facts(python), facts(Path(sys.executable))
    report.python, report.torch = there.python, there.packages["torch"]
    report.packages = differing(here.packages, there.packages)
    say(f"      torch {report.torch}; the stored outputs are from {report.was}")
    if "+cpu" in report.was and "+cpu" not in report.torch:
        say("      pip installed a CUDA build: set PIP_EXTRA_INDEX_URL to PyTorch's CPU index to get the CPU build")

    tree, environ = folder / "tree", surroundings(python, folder, report.torch)
    copy_course(root, tree)
    report.named = naming(tree, ".".join(report.was.split(".")[:2]))
    patterns = get_sanitize_patterns((tree / "tests/nbval_sanitize.cfg").read_text(encoding="utf-8"))
    patterns.append((re.escape(f"{folder}{os.sep}"), ""))  # in warnings
    chapters = sorted((tree / "book").glob("*.ipynb"))
    say(f"[2/4] {len(chapters)} notebooks")
    for path in chapters:
        begin(f"running {path.name}")
        ran = run_chapter(python, path, environ, patterns)
        report.ran.append(ran)
        verdict = ran.stopped or f"{len({c.cell for c in ran.changes})} cells changed" if ran.changes else "unchanged"
        say(f"      {path.name}: {ran.stopped or verdict}, {ran.seconds:.0f} s")

    begin("running the graders' tests")
    say("[3/4] the graders' tests: takes minutes")
    report.tests, report.failures = run_tests(python, tree, folder, environ)

    begin("building the book")
    say("[4/4] the book")
    report.book = build_book(python, tree, environ)
    report.built, report.doing = True, ""


def save(report: Report, folder: Path) -> None:
    """Write the report as it is now."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "report.md", report.text())


def latest(root: Path, folder: Path, torch: str, fresh: bool) -> int:
    """Look, write `report.md` whatever happens, and return the exit code."""
    report, status = Report(version("torch")), 2
    try:
        look(root, folder, report, torch, fresh)
        status = int(report.changed)
    except KeyboardInterrupt:
        say(f"\ntools.latest: interrupted while {report.doing}; the report is partial")
        status = 130
    except (LatestError, NotebookError, OSError, subprocess.CalledProcessError) as error:
        print(f"tools.latest: while {report.doing}: {error}", file=sys.stderr)
    save(report, folder)
    for line in report.summary() if status in (0, 1) else []:
        say(line)
    say(f"{'Nothing changed' if status == 0 else 'The report'}: {folder / 'report.md'}")
    return status


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.latest",
        description="Run and build everything with another torch, in a separate copy, and report what changed.",
        epilog="Exit codes: 0 nothing changed, 1 something changed, 2 it could not run. See _build/latest/report.md",
    )
    parser.add_argument(
        "--torch", metavar="VERSION", help="a version such as 2.14.1 (default: the newest that pip finds)"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="create a new environment instead of updating the existing one"
    )
    options = parser.parse_args(arguments)
    if options.torch is not None and not re.fullmatch(r"\d+(\.\d+)*[\w.+]*", options.torch):
        parser.error(f"--torch takes a version such as 2.14.1, not {options.torch!r}")
    torch = "torch" if options.torch is None else f"torch=={options.torch}"
    return latest(ROOT, ROOT / "_build" / "latest", torch, options.fresh)


if __name__ == "__main__":
    sys.exit(main())
