"""The comparison with another torch, on a small course and a torch of a few lines: nothing is downloaded."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import latest
from tools.latest import Change, LatestError, Ran, Report
from tools.notebooks import ROOT, normalise, to_text, write

PATTERNS = [("<Figure size [^>]*>", "<Figure>")]
PINS = {
    "requirements.txt": "# a student's\n-c constraints.txt\ntorch==2.13.0           # the version that is shown\n",
    "requirements-dev.txt": "-r requirements.txt\n-c constraints.txt\n",
    "constraints.txt": "sympy==1.14.0\ntorch==2.13.0\n",
}


def printed(text: str, name: str = "stdout") -> NotebookNode:
    """What a cell printed."""
    return new_output("stream", name=name, text=text)


def drawn(**data: str) -> NotebookNode:
    """What a cell drew."""
    return new_output("display_data", data={kind.replace("_", "/"): text for kind, text in data.items()})


def raised(message: str) -> NotebookNode:
    """What a cell raised."""
    return new_output("error", ename="RuntimeError", evalue=message, traceback=["a path", "of this machine"])


def changes(was: list[NotebookNode], now: list[NotebookNode], tags: tuple[str, ...] = ()) -> list[Change]:
    """The changes between the outputs of one cell."""
    old, new = (
        new_notebook(cells=[new_code_cell("f()", id="a", outputs=outputs, metadata={"tags": list(tags)})])
        for outputs in (was, now)
    )
    return list(latest.compare(old, new, PATTERNS))


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        (
            [printed("x\n1.0000\ny")],
            [printed("x\n1.0001\ny")],
            Change("a", "output", [" x", "-1.0000", "+1.0001", " y"]),
        ),
        ([printed("1\n")], [], Change("a", "output", ["-1"])),
        ([], [drawn(text_plain="2")], Change("a", "output", ["+2"])),
        ([], [printed("UserWarning: new\n", "stderr")], Change("a", "warning", ["+UserWarning: new"])),
        ([], [raised("no such operation")], Change("a", "error", ["+RuntimeError: no such operation"])),
        ([drawn(image_svg="<a>\n<b>\n<c>")], [drawn(image_svg="<a>\n<d>\n<c>")], None),
    ],
    ids=["changed", "gone", "new", "warning", "error", "picture"],
)
def test_a_change_is_found(was: list, now: list, expected: Change | None) -> None:
    (found,) = changes(was, now)
    assert found == (expected or Change("a", "output", ["the picture differs, in 1 of 3 lines"]))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ([printed("1\n")], [printed("1\n")]),
        ([printed("1\n2\n")], [printed("1\n"), printed("2\n")]),
        ([drawn(text_plain="<Figure size 640x480>")], [drawn(text_plain="<Figure size 99x99>")]),
        ([drawn(image_png="AAAA", text_plain="x")], [drawn(image_png="BBBB", text_plain="x")]),
        ([raised("known")], [raised("known")]),
    ],
    ids=["same", "pieces", "sanitised", "png", "error"],
)
def test_what_is_no_change_is_none(was: list, now: list) -> None:
    assert changes(was, now) == []


def test_of_a_cell_that_is_a_machine_s_own_only_errors_and_warnings_count() -> None:
    tags = ("nbval-ignore-output",)
    assert changes([printed("a GPU")], [printed("no GPU")], tags) == []
    assert [c.kind for c in changes([printed("a GPU")], [raised("x"), printed("y", "stderr")], tags)] == [
        "error",
        "warning",
    ]


def test_a_long_difference_is_cut() -> None:
    lines = latest.short(f"+{'x' * 300}" for _ in range(100))
    assert len(lines) == latest.DIFF_LINES + 1 and lines[-1] == f"... {100 - latest.DIFF_LINES} lines more"
    assert max(map(len, lines)) < latest.LINE_LENGTH + 10


def test_only_torch_loses_its_pin(tmp_path: Path) -> None:
    for name, text in PINS.items():
        (tmp_path / name).write_text(text)
    latest.requirements(tmp_path, tmp_path / "new", "torch==2.12.1")
    new = {name: (tmp_path / "new" / name).read_text() for name in PINS}
    assert new["requirements.txt"] == PINS["requirements.txt"].replace("2.13.0", "2.12.1")
    assert new["requirements-dev.txt"] == PINS["requirements-dev.txt"]
    assert new["constraints.txt"].split() == ["sympy==1.14.0"]


def test_the_course_pins_torch_where_it_is_looked_for(tmp_path: Path) -> None:
    latest.requirements(ROOT, tmp_path, "torch==0.0.1")
    assert "\ntorch==0.0.1 " in (tmp_path / "requirements.txt").read_text()
    assert not [line for line in (tmp_path / "constraints.txt").read_text().splitlines() if line.startswith("torch==")]


def wheel(folder: Path, version: str) -> None:
    """A torch that is nothing but a version."""
    folder.mkdir(exist_ok=True)
    info = f"torch-{version}.dist-info"
    with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr("torch/__init__.py", f'__version__ = "{version}"\n')
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, the only one in which pip looks."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    for name, text in PINS.items():
        (tmp_path / name).write_text(text)
    return tmp_path / "wheels"


def test_the_environment_is_made_kept_and_brought_up_to_date(shelf: Path, tmp_path: Path) -> None:
    def torch(wanted: str, fresh: bool = False) -> str:
        return latest.facts(latest.environment(tmp_path, tmp_path / "new", wanted, fresh)).packages["torch"]

    wheel(shelf, "9.9.0")
    assert torch("torch") == "9.9.0"
    (kept := tmp_path / "new/venv/kept").touch()
    wheel(shelf, "9.10.0")
    assert torch("torch") == "9.10.0", "the newest"
    assert torch("torch==9.9.0") == "9.9.0"
    assert kept.exists(), "made anew"
    with pytest.raises(
        LatestError, match=r"pip cannot install torch==9.8: No matching distribution found for torch==9.8"
    ):
        torch("torch==9.8")
    assert torch("torch", fresh=True) == "9.10.0" and not kept.exists()


def chapter(*cells: NotebookNode) -> NotebookNode:
    """A chapter of which each cell has run."""
    for count, cell in enumerate(cells, 1):
        cell.execution_count = count
    return normalise(new_notebook(cells=[new_markdown_cell("# Title", id="title"), *cells]), outputs=True)


def small(root: Path, *cells: NotebookNode, tests: str = "def test_it(): pass") -> Path:
    """A course of one chapter and one test."""
    for name in ("book", "tests/graders"):
        (root / name).mkdir(parents=True)
    write(root / "book/01_tiny.ipynb", to_text(chapter(*cells)))
    (root / "book/errata.md").write_text("*torch 2.13:* so. In torch 2.12 not.\n")
    shutil.copy(ROOT / "tests/nbval_sanitize.cfg", root / "tests")
    shutil.copy(ROOT / "conftest.py", root)
    (root / "tests/graders/test_it.py").write_text(tests)
    (root / ".gitignore").write_text("_build/\n")
    subprocess.run(["git", "init", "--quiet", root], check=True)
    return root


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Compare a small course with itself in this environment, no book being built; the status and the report."""
    monkeypatch.setattr(latest, "environment", lambda *_: Path(sys.executable))
    monkeypatch.setattr(latest, "build_book", lambda *_: [])
    monkeypatch.setattr(latest, "facts", lambda _: latest.Facts("3.11.7", {"torch": "2.14.1"}))
    monkeypatch.setattr(latest, "version", lambda _: "2.13.0+cpu")

    def run(*cells: NotebookNode, **changes: str) -> tuple[int, str]:
        root = small(tmp_path / "course", *cells, **changes)
        before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and ".git" not in path.parts}
        status = latest.latest(root, root / "_build/latest", "torch", fresh=False)
        assert {path: path.read_bytes() for path in before} == before, "the course itself was changed"
        return status, (root / "_build/latest/report.md").read_text(encoding="utf-8")

    return run


def test_where_nothing_changed_the_exit_code_is_0(
    compared: Callable, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(latest, "run_tests", lambda *_: ("9 tests, 0 failed", []))
    status, report = compared(new_code_cell("print(1)", id="prints", outputs=[printed("1\n")]))
    said = capfd.readouterr().out
    assert status == 0, report
    assert "1 notebooks run, 0 changed" in report and "9 tests, 0 failed" in report and "Incomplete" not in report
    assert "Builds without a warning" in report and "- book/errata.md: 1" in report
    assert "01_tiny.ipynb: unchanged" in said and "Nothing changed" in said


def test_what_changed_is_in_the_report(compared: Callable, capfd: pytest.CaptureFixture, tmp_path: Path) -> None:
    status, report = compared(
        new_code_cell("print(2)", id="prints", outputs=[printed("1\n")]),
        new_code_cell("raise RuntimeError('no longer')", id="raises"),
        new_code_cell("import os, warnings\nwarnings.warn('soon gone: ' + os.getcwd())", id="warns"),
        new_code_cell("print(3)", id="goes-on", outputs=[printed("3\n")]),
        tests="def test_it():\n    assert 1 == 2, 'it differs'\n\n\ndef test_on():\n    pass\n",
    )
    assert status == 1
    assert "| 01_tiny.ipynb | 1 | 1 | 1 |" in report
    assert "Cell `prints`, output:\n\n```diff\n-1\n+2\n```" in report
    assert "Cell `raises`, error:\n\n```diff\n+RuntimeError: no longer\n```" in report
    assert "Cell `warns`, warning:" in report and "soon gone: tree/book" in report and "Cell `goes-on`" not in report
    assert "2 tests, 1 failed" in report and "- `test_it`: AssertionError: it differs" in report
    assert "The stored outputs are from torch 2.13.0+cpu; these are from torch 2.14.1, Python 3.11.7." in report
    assert "3 cells changed" in capfd.readouterr().out
    new = nbformat.read(tmp_path / "course/_build/latest/tree/book/01_tiny.ipynb", as_version=4)
    assert new.cells[1].outputs[0].text == "2\n" and new.cells[1].id == "prints"


def test_a_notebook_that_dies_has_not_come_to_its_end(tmp_path: Path) -> None:
    root = small(tmp_path / "course", new_code_cell("import os\nos._exit(1)", id="dies"))
    ran = latest.run_chapter(Path(sys.executable), root / "book/01_tiny.ipynb", dict(os.environ), PATTERNS)
    assert "Kernel died" in ran.stopped and Report("2.13.0", ran=[ran]).changed
    assert "It did not finish: " in Report("2.13.0", ran=[ran]).text()


def verdict_on(root: Path, tests: str) -> tuple[str, list[str]]:
    """What is said of a file of the graders' tests."""
    return latest.run_tests(Path(sys.executable), small(root, tests=tests), root / "_build", dict(os.environ))


def test_tests_that_cannot_be_read_are_a_failure(tmp_path: Path) -> None:
    said, (found,) = verdict_on(tmp_path / "course", "import nothing_of_this_name")
    assert said == "1 tests, 1 failed" and "No module named 'nothing_of_this_name'" in found
    assert Report("2.13.0", failures=[found]).changed


def test_a_test_that_ends_the_process_is_a_failure_and_the_others_are_run(tmp_path: Path) -> None:
    tests = "import os\ndef test_a(): pass\ndef test_b(): os.abort()\ndef test_c(): assert 1 == 2, 'differs'\n"
    said, found = verdict_on(tmp_path / "course", tests)
    assert said == "3 tests, 2 failed"
    assert found == ["`test_b`: the process ended with status -6", "`test_c`: AssertionError: differs"]


def test_a_test_that_never_ends_is_a_failure_and_the_others_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = subprocess.run

    def hang(command: list, **options: object) -> subprocess.CompletedProcess:
        if "pytest" not in command or any("--deselect" in str(part) for part in command):
            return run(command, **options)
        options["stdout"].write("tests/graders/test_it.py::test_a PASSED\ntests/graders/test_it.py::test_b ")
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", hang)
    said, found = verdict_on(tmp_path / "course", "def test_a(): pass\ndef test_b(): pass\n")
    assert (said, found) == ("2 tests, 1 failed", ["`test_b`: its file ran for more than 1800 s"])


def test_a_course_without_tests_is_no_sound_one(tmp_path: Path) -> None:
    root = small(tmp_path / "course")
    (root / "tests/graders/test_it.py").unlink()
    assert latest.run_tests(Path(sys.executable), root, root / "_build", {}) == (
        "0 tests, 0 failed",
        ["no test was found"],
    )


def test_ctrl_c_leaves_a_report_of_what_was_seen(
    compared: Callable, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def run(_: Path, path: Path, *__: object) -> Ran:
        assert "stopped while running 01_tiny.ipynb" in (path.parents[2] / "report.md").read_text(), "if it were killed"
        return Ran("01_tiny.ipynb", 1.0, [Change("prints", "output", ["-1", "+2"])])

    monkeypatch.setattr(latest, "run_chapter", run)
    monkeypatch.setattr(latest, "run_tests", interrupt)
    status, report = compared()
    assert status == 130
    assert "**Incomplete: stopped while running the graders' tests." in report and "Cell `prints`" in report
    assert "Not run." in report and "Not built." in report
    assert "interrupted while running the graders' tests; the report is partial" in capfd.readouterr().out


def test_what_cannot_run_is_one_line_and_exit_code_2(
    compared: Callable, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise LatestError("pip cannot install torch==9: none")

    monkeypatch.setattr(latest, "environment", refuse)
    status, report = compared()
    assert status == 2 and "Incomplete: stopped while making the environment" in report
    assert capfd.readouterr().err == "tools.latest: while making the environment: pip cannot install torch==9: none\n"


def test_a_folder_that_is_no_clone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LatestError, match="run it in a clone"):
        latest.copy_course(tmp_path, tmp_path / "tree")
    with pytest.raises(LatestError, match=r"there is no requirements\.txt"):
        latest.requirements(tmp_path, tmp_path / "new", "torch")


def test_the_copy_is_what_git_sees_and_what_is_new(tmp_path: Path) -> None:
    root = tmp_path / "course"
    (root / "_build").mkdir(parents=True)
    for name, text in {".gitignore": "_build/\n", "a.md": "", "gone.md": "", "_build/b.md": ""}.items():
        (root / name).write_text(text)
    subprocess.run(["git", "init", "--quiet", root], check=True)
    subprocess.run(["git", "-C", root, "add", "a.md", "gone.md"], check=True)
    (root / "gone.md").unlink()
    (root / "new.md").touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/left.md").touch()
    latest.copy_course(root, tmp_path / "tree")
    assert sorted(path.name for path in (tmp_path / "tree").iterdir()) == [".gitignore", "a.md", "new.md"]


def test_the_book_s_warnings_and_faults_are_named(tmp_path: Path) -> None:
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: intro\n")
    (tmp_path / "_config.yml").write_text("title: Small\n")
    (tmp_path / "intro.md").write_text('# Intro\n\n[x](missing.md) <a href="nowhere.html">y</a>\n')
    found = latest.build_book(Path(sys.executable), tmp_path, dict(os.environ))
    assert any("WARNING" in line and "missing" in line and str(tmp_path) not in line for line in found), found
    assert any("nowhere.html leads to a missing file" in line for line in found), found


def test_of_a_build_that_ends_in_an_error_the_reason_is_kept() -> None:
    log = "reading\na.md:3: WARNING: no x\na.md:3: WARNING: no x\nExtensionError: downloads:\n  cell a: raised\n  at 9"
    assert latest.complaints(log) == ["a.md:3: WARNING: no x", "ExtensionError: downloads: cell a: raised"]


def test_the_report_lists_other_packages_that_differ() -> None:
    old, new = (
        {"sympy": "1.14.0", "torch": "2.13.0", "pip": "1", "only": "1"},
        {"sympy": "1.15.0", "torch": "3", "pip": "2"},
    )
    report = Report("2.13.0", packages=latest.differing(old, new), ran=[Ran("a.ipynb", 1.0)])
    assert "- sympy 1.14.0 is 1.15.0" in report.text() and report.text().count(" is 1.15.0") == 1 and not report.changed


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--help"], 0, "Exit codes: 0 nothing changed"),
        (["--torch", "new"], 2, "--torch takes a version such as 2.14.1"),
    ],
)
def test_the_command_line(arguments: list[str], status: int, said: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        latest.main(arguments)
    shown = capsys.readouterr()
    assert ended.value.code == status and said in " ".join((shown.out + shown.err).split())
