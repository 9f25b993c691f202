"""The figures of Lighthouse: reports are read right, what is not good enough is named, what fails is one clear line."""

import gzip
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from bench import lighthouse as bench
from tests.path.course_maker import ROOT


@pytest.fixture
def html(tmp_path: Path) -> Path:
    """A built book of five pages; `heavy` has an image of its own, `light` shows one that is not the book's."""
    book = tmp_path / "html" / "book"
    book.mkdir(parents=True)
    (book.parent / "_images").mkdir()
    (book.parent / "_images" / "a.png").write_bytes(bytes(range(256)) * 8)
    for number, name in enumerate(("intro", "light", "middle", "heavy", "other")):
        image = '<img alt="x" src="../_images/a.png?v=1">' if name == "heavy" else '<img src="../_static/logo.svg">'
        (book / f"{name}.html").write_text(f"<html>{image}{'word %d ' * number}</html>" % tuple(range(number)))
    return book.parent


def report(performance: float = 1, seo: float = 1) -> dict:
    """What Lighthouse prints, as far as it is read."""
    refs = {
        "performance": [("total-blocking-time", 30, "metrics"), ("font-display", 0, "insights"), ("old", 0, "hidden")],
        "accessibility": [("color-contrast", 7, "a11y")],
        "best-practices": [("errors-in-console", 1, "general")],
        "seo": [("meta-description", 1, "seo-content")],
    }
    scores = {"total-blocking-time": performance, "font-display": 0.5, "old": 0, "meta-description": seo}
    audits = {
        name: {"title": f"Title of {name}.", "score": scores.get(name, 1), "numericValue": 7.0}
        for name in (*bench.METRICS, *(entry[0] for entries in refs.values() for entry in entries))
    }
    audits["network-requests"] = {"details": {"items": [{"transferSize": 1000}, {"transferSize": 234}, {}]}}
    of = {"performance": performance, "seo": seo}
    categories = {
        name: {
            "score": of.get(name, 1),
            "auditRefs": [{"id": id, "weight": weight, "group": group} for id, weight, group in entries],
        }
        for name, entries in refs.items()
    }
    return {"audits": audits, "categories": categories}


def test_a_report_is_read() -> None:
    run = bench.read(report(performance=0.83, seo=0.5))
    assert run.scores == {"performance": 83, "accessibility": 100, "best-practices": 100, "seo": 50}
    assert run.transferred == 1234 and run.metrics["total-blocking-time"] == 7
    assert run.failed == (
        "perf: Title of total-blocking-time",
        "perf: Title of font-display",
        "SEO: Title of meta-description",
    )
    with pytest.raises(bench.BenchError, match="could not look at the page: no paint"):
        bench.read({"runtimeError": {"code": "NO_FCP", "message": "no paint"}})


def test_medians_and_what_is_not_good_enough(html: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [bench.read(report(performance)) for performance in (0.5, 0.94, 0.96)]
    middle = bench.median(runs)
    assert middle.scores["performance"] == 94
    page = html / "book" / "heavy.html"
    results = {("heavy", "mobile"): middle, ("heavy", "desktop"): middle, ("intro", "mobile"): runs[2]}
    assert bench.short(results, [page]) == ["heavy, mobile: performance 94, below 95"]
    monkeypatch.setattr(bench, "MOST", 500)
    assert bench.short({}, [page]) == [f"heavy: {bench.weight(page) / 1000:.0f} KB, over 0"]
    poor = {("intro", "desktop"): bench.read(report(seo=0.99))}
    assert bench.short(poor, []) == ["intro, desktop: seo 99, below 100"]


def test_the_table_and_the_audits_that_failed(html: Path) -> None:
    page = html / "book" / "heavy.html"
    run = bench.read(report(0.83))
    results = {("heavy", form): run for form in bench.FORMS}
    rows = [line.split() for line in bench.table(results, [page]).splitlines()]
    assert rows[1] == ["heavy", "mobile", "83", "100", "100", "100", "0.01", "7", "7.000"]
    assert rows[-1] == ["heavy", f"{len(bench.compressed(page)) / 1000:.1f}", f"{bench.weight(page) / 1000:.1f}", "1.2"]
    assert bench.failures(results)[0] == "perf: Title of total-blocking-time: heavy mobile, heavy desktop"


def test_the_heaviest_pages_are_chosen_with_their_images(html: Path) -> None:
    heavy, light = html / "book" / "heavy.html", html / "book" / "light.html"
    assert bench.own_files(heavy) == {heavy, html / "_images" / "a.png"} and bench.own_files(light) == {light}
    assert bench.weight(heavy) == len(bench.compressed(heavy)) + 2048  # an image is sent as it is
    assert [page.stem for page in bench.chosen(html, [])] == ["intro", "heavy", "other", "middle"]
    assert [page.stem for page in bench.chosen(html, ["light"])] == ["light"]


def test_the_host_compresses_as_the_web_does(html: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(bench.Host, directory=str(html)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    root = f"http://127.0.0.1:{server.server_port}"
    with urllib.request.urlopen(f"{root}/book/heavy.html?x=1") as answer:
        assert answer.headers["Content-Encoding"] == "gzip" and answer.headers["Content-Type"] == "text/html"
        assert gzip.decompress(answer.read()) == (html / "book" / "heavy.html").read_bytes()
    with urllib.request.urlopen(f"{root}/_images/a.png") as answer:
        assert answer.headers["Content-Encoding"] is None and len(answer.read()) == 2048
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{root}/book/no.html")
    server.shutdown()


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, with nothing in its environment but what is given."""
    command = [sys.executable, "-m", "bench.lighthouse", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (
            ["--html", "no-such-folder"],
            {},
            "holds no book: run `make book`, or name the folder of its HTML with --html",
        ),
        (["--html", "HTML", "hevy"], {}, "there is no page 'hevy'; the pages are heavy, intro, light, middle, other"),
        (["--html", "HTML"], {"PATH": "/nowhere"}, "is on PATH: install Chromium, or name it in CHROME_PATH"),
        (["--html", "HTML"], {"CHROME_PATH": "/no/chrome"}, "CHROME_PATH names /no/chrome, which is no file"),
        (["--runs", "0"], {}, "'0' is not a whole number above 0"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    arguments: list[str], environment: dict[str, str], said: str, html: Path
) -> None:
    done = run(*[str(html) if argument == "HTML" else argument for argument in arguments], **environment)
    assert done.returncode == 2 and said in done.stderr.splitlines()[-1], done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr


def installed(folder: Path, version: str) -> Path:
    """What npm leaves in ``folder`` of that version of Lighthouse."""
    package = folder / "node_modules" / "lighthouse"
    (package / "cli").mkdir(parents=True)
    (package / "cli" / "index.js").touch()
    (package / "package.json").write_text(json.dumps({"version": version}))
    return package / "cli" / "index.js"


@pytest.mark.parametrize("before", [None, "1.0.0", bench.VERSION])
def test_lighthouse_is_installed_where_this_version_is_not(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lighthouse"
    monkeypatch.setattr(bench, "FOLDER", folder)
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    script = installed(folder, before) if before else None
    if before == bench.VERSION:
        assert bench.lighthouse() == script
        return
    with pytest.raises(bench.BenchError, match=r"npm cannot install Lighthouse \(.*ECONNREFUSED.*connect to npm's"):
        bench.lighthouse()


def test_help() -> None:
    done = run("--help")
    assert done.returncode == 0 and "Exit code: 0 every page is good enough" in done.stdout
