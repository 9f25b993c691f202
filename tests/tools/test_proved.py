"""What is proved is left out, nothing else is: in a small tree with planted changes, and by the project's own table."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tools.notebooks import ROOT
from tools.proved import CODE, TABLE, Tree, environment

# --- a small tree -----------------------------------------------------------------------------------------------------

SMALL = {
    "pytest.ini": "[pytest]\naddopts = -q --import-mode=importlib -p no:cacheprovider\nmarkers = late\n",
    ".gitignore": "_build/\n__pycache__/\n",
    "src/low.txt": "right",
    "src/high.txt": "right",
    "src/last.txt": "right",
    "book/page.ipynb": {"cells": [{"cell_type": "markdown", "source": "prose"}, {"cell_type": "code", "source": "1"}]},
    "solutions/01_relu/relu.ipynb": "{}",
    "solutions/02_ste/ste.ipynb": "{}",
    "tests/helper.py": """
import os
from pathlib import Path


def look(name):
    text = Path("src", name).read_text()
    if text == "interrupted":
        raise KeyboardInterrupt
    if text == "dead":
        os._exit(3)
    if text == "edited":
        Path("src", name).write_text("edited meanwhile")
    assert text != "wrong"
""",
    "tests/test_always.py": "def test_always():\n    pass\n",
    "tests/test_book.py": "def test_code():\n    pass\n",
    "tests/test_two.py": """
import pytest
from tests.helper import look


def test_low():
    look("low.txt")


def test_high():
    look("high.txt")


@pytest.mark.late
def test_higher():
    pass


def test_loose():
    pass
""",
    "tests/zoo/test_last.py": 'from tests.helper import look\n\n\ndef test_last():\n    look("last.txt")\n',
    "tests/graders/test_sets.py": """
import os

import pytest


@pytest.mark.parametrize("name", os.environ["COURSE_SETS"].split() or ["relu", "ste"])
def test_set(name):
    os.makedirs("_build", exist_ok=True)
    with open(f"_build/{name}", "w") as file:
        file.write("; ".join([os.environ["COURSE_SETS"], os.environ["COURSE_CHANGED"]]))
""",
    "tests/groups.toml": """
unproved = ["tests/test_always.py", "tests/test_two.py::test_loose"]

[lists]
always = ["pytest.ini"]
texts = ["src/*", "!src/low.txt"]

[lower]
part = "two"
tests = ["tests/test_two.py::test_low"]
sources = ["src/low.txt"]

[upper]
part = "two"
tests = ["tests/test_two.py"]
sources = ["@texts", "!src/last.txt"]

[code]
part = "book"
tests = ["tests/test_book.py"]
sources = ["code of book/*.ipynb"]

[last]
part = "zoo"
tests = ["tests/zoo"]
sources = ["!src/last.txt", "src/last.txt"]

["set {}"]
part = "sets"
each = "set"
tests = ["tests/graders/test_sets.py[{}]"]
sources = ["solutions/[0-9][0-9]_{}/*"]
""",
}
UNPROVED = {"always", "loose"}
GROUPS = {"low", "high", "higher", "code", "last", "set[relu]", "set[ste]"}
ALL = UNPROVED | GROUPS
WORKERS = ("-p", "xdist", "-n", "2", "--dist", "loadfile")


class Small:
    """A git repository with groups and tests of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, text: str | dict) -> None:
        """Write a file, and the folders that it needs."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text))

    def git(self, *words: str) -> None:
        """Run git as nobody in particular."""
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words]
        subprocess.run(command, cwd=self.root, check=True, capture_output=True, env=variables())

    def pytest(self, *words: str, status: int = 0, **more: str) -> subprocess.CompletedProcess:
        """Run pytest; the names of the tests that ran are in `ran`."""
        command = [sys.executable, "-m", "pytest", "-p", "tools.proved", "--proved=skip", "-rA", *words]
        done = subprocess.run(
            command, cwd=self.root, env=variables(**more), capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
        done.ran = set(re.findall(r"^(?:PASSED|FAILED) \S+::test_(\S+)", done.stdout, re.MULTILINE))
        return done

    def stamps(self) -> set[str]:
        """Return the names of the stamps."""
        return {path.stem for path in (self.root / "_build/proved").glob("*.json")}

    def ran(self, *words: str, **more: str) -> set[str]:
        """Run pytest without a fault, and return the tests that ran."""
        return self.pytest(*words, **more).ran


def variables(**more: str) -> dict[str, str]:
    """The variables of this process without those that pytest, git and the stamps heed, and with these."""
    heeded = ("CI", "WALK", "COURSE_", "PYTEST_", "GIT_", "PYTHONDONTWRITEBYTECODE")  # with bytecode it is quicker
    own = {name: value for name, value in os.environ.items() if not name.startswith(heeded)}
    return own | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | more


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The tree, committed, after a first run: all tests passed."""
    small = Small(tmp_path_factory.mktemp("small"))
    for name, text in SMALL.items():
        small.write(name, text)
    small.git("init", "--quiet")
    small.git("add", ".")
    small.git("commit", "--quiet", "--message", "small")
    assert small.ran() == ALL
    return small.root


@pytest.fixture
def proved(made, tmp_path) -> Small:
    """A copy of the tree with its stamps."""
    return Small(shutil.copytree(made, tmp_path / "small"))


@pytest.fixture
def new(proved) -> Small:
    """A copy without stamps."""
    shutil.rmtree(proved.root / "_build/proved")
    return proved


def test_the_second_run_leaves_out_what_passed(proved):
    second = proved.pytest()
    assert second.ran == UNPROVED
    assert re.search(r"^proved at [0-9a-f]{7,}: code, last, lower, set relu, set ste, upper$", second.stdout, re.M)


def test_a_run_with_nothing_left_is_a_success(proved):
    assert proved.ran("--only=code") == set()


def test_a_changed_source_reruns_its_group_alone(proved):
    """Each change comes on top of those before it, which are proved by then."""
    for changes, again in (
        ({"README.md": "new", "src/low.txt": "other"}, {"low"}),
        ({"src/low.txt": "right"}, {"low"}),  # a group has one stamp, the last
        ({"src/high.txt": "other"}, {"high", "higher"}),  # the same test file, another group
        ({"src/last.txt": "other"}, {"last"}),  # which ! leaves out of what stands before it, and of nothing else
        ({"src/new.txt": "new", "solutions/02_ste/ste.ipynb": "[]"}, {"high", "higher", "set[ste]"}),
        ({"tests/zoo/conftest.py": ""}, {"last"}),
        ({"tests/helper.py": SMALL["tests/helper.py"] + "\n"}, {"low", "high", "higher", "code", "last"}),
    ):
        for name, text in changes.items():
            proved.write(name, text)
        assert proved.ran() == UNPROVED | again, changes


def test_of_a_notebook_the_code_counts(proved):
    prose, code = SMALL["book/page.ipynb"]["cells"]
    proved.write("book/page.ipynb", {"cells": [prose | {"source": "better prose"}, code]})
    assert proved.ran() == UNPROVED
    proved.write("book/page.ipynb", {"cells": [prose, code | {"source": "2"}]})
    assert proved.ran() == UNPROVED | {"code"}
    proved.write("book/page.ipynb", '{"cells": [')
    assert proved.ran() == UNPROVED | {"code"}


@pytest.mark.parametrize("variable", ["WALK", "COURSE_REQUIRE_BROWSER"])
def test_what_is_asked_of_the_tests_counts(monkeypatch, variable):
    monkeypatch.delenv(variable, raising=False)
    before = environment.__wrapped__()
    monkeypatch.setenv(variable, "1")
    assert environment.__wrapped__() != before


def test_what_fails_runs_again(new):
    new.write("src/high.txt", "wrong")
    assert new.pytest(status=1).ran == ALL
    assert new.pytest(status=1).ran == UNPROVED | {"high", "higher"}


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (("-m", "not late"), {"high", "higher"}),
        (("-k", "high or last"), GROUPS - {"high", "higher", "last"}),
        (("tests/test_two.py::test_high", "tests/test_two.py::test_low"), GROUPS),
        (("tests/test_two.py",), {"code", "last", "set[relu]", "set[ste]"}),
    ],
    ids=["-m", "-k", "tests by name", "a file"],
)
def test_what_did_not_run_whole_runs_again(new, words, again):
    new.ran(*words)
    assert new.ran() == UNPROVED | again


def test_a_slow_test_that_is_left_out_keeps_no_other_from_being_proved(new):
    new.write("tests/test_two.py", SMALL["tests/test_two.py"].replace("mark.late", "mark.slow"))
    assert new.ran("-m", "not slow") == ALL - {"higher"}
    assert new.ran("-m", "not slow") == UNPROVED


def test_an_interrupted_run_proves_nothing(new):
    new.write("src/high.txt", "interrupted")
    new.pytest(status=2)
    assert new.stamps() == set()


def test_a_run_that_stops_at_a_fault_proves_what_ran_whole(new):
    """In the order of their names: tests/graders and two files first, tests/zoo never."""
    new.write("src/high.txt", "wrong")
    assert new.pytest("-x", status=1).ran == {"always", "code", "low", "high", "set[relu]", "set[ste]"}
    assert new.stamps() == {"code", "lower", "set-relu", "set-ste"}


def test_what_is_edited_meanwhile_is_not_proved(new):
    new.write("src/high.txt", "edited")
    assert new.ran() == ALL
    assert new.stamps() == {"code", "last", "lower", "set-relu", "set-ste"}


def test_with_workers_the_same_holds(new):
    assert new.ran(*WORKERS, "-m", "not late") == ALL - {"higher"}
    new.write("src/low.txt", "wrong")
    assert new.pytest(*WORKERS, status=1).ran == UNPROVED | {"low", "high", "higher"}
    assert new.pytest(*WORKERS, status=1).ran == UNPROVED | {"low"}


def test_a_worker_that_dies_proves_nothing_of_its_test(new):
    new.write("src/high.txt", "dead")
    new.pytest("-p", "xdist", "-n", "1", status=1)
    assert new.stamps() == {"code", "last", "lower", "set-relu", "set-ste"}


def test_where_ci_is_set_nothing_is_left_out(proved):
    assert proved.ran(CI="true") == ALL


def test_write_stamps_and_leaves_nothing_out(proved):
    (proved.root / "_build/proved/code.json").unlink()
    assert proved.ran("--proved=write") == ALL
    assert "code" in proved.stamps()


@pytest.mark.parametrize(
    ("only", "ran"),
    [
        (",", ALL),  # as `make test` says it
        ("two,", {"low", "high", "higher"}),
        ("relu,zoo", {"set[relu]", "last"}),
    ],
)
def test_only_names_groups_sets_and_parts(new, only, ran):
    assert new.ran(f"--only={only}") == ran


@pytest.mark.parametrize("only", ["nonsense,", "lower,nonsense"])
def test_an_unknown_name_is_said_in_one_line(new, only):
    done = new.pytest(f"--only={only}", status=4)
    assert (done.stdout + done.stderr).strip() == "ERROR: no tests are called nonsense"


def test_without_git_there_is_one_line(new):
    shutil.rmtree(new.root / ".git")
    done = new.pytest(status=4, GIT_CEILING_DIRECTORIES=str(new.root.parent))
    said = "ERROR: --proved needs git: it knows which files are the project's"
    assert (done.stdout + done.stderr).strip() == said


def test_the_sets_that_run_are_loaded_and_a_changed_one_is_named(proved):
    """Tests read COURSE_SETS and COURSE_CHANGED: the first says what they load, the second what gets all seeds."""
    proved.write("solutions/02_ste/ste.ipynb", "[]")
    assert proved.ran() == UNPROVED | {"set[ste]"}
    assert (proved.root / "_build/ste").read_text() == "ste; ste"


# --- the project's own table: these tests always run ------------------------------------------------------------------

NO_SOURCE = {"docs/page.png": "a picture that README.md shows; no test opens it"}
OTHER = "a_test_that_no_row_lists_by_name"


@pytest.fixture(scope="module")
def tree() -> Tree:
    """The project."""
    return Tree(ROOT)


def _test_files(tree: Tree) -> list[str]:
    return [f for f in tree.files if re.fullmatch(r"tests/.*/test_\w+\.py|book/(\w+\.ipynb|errata\.md)", f)]


def test_every_file_is_a_source(tree):
    """Else it could change, and all would count as proved."""
    covered = {name.removeprefix(CODE) for group in tree.groups for name in tree.sources(group)}
    assert sorted(set(tree.files) - covered) == sorted(NO_SOURCE), "give it to a group in tests/groups.toml"


def test_every_test_file_has_a_group(tree):
    """A new test in it has one too."""
    without = [f for f in _test_files(tree) if f not in tree.unproved and tree.group(f"{f}::{OTHER}") is None]
    assert without == []


def test_no_pattern_is_stale(tree):
    """Each matches some file; one of a row that is made for each set or page, for some of these."""
    rows = tomllib.loads((ROOT / TABLE).read_text(encoding="utf-8"))
    unproved, lists = rows.pop("unproved"), rows.pop("lists")
    used = json.dumps([lists, *rows.values()]) + '"@always"'  # that one, every row has
    stale = [f"@{name}" for name in lists if f'"@{name}"' not in used]
    stale += [pattern for pattern in unproved if not _names_tests(tree, pattern)]
    for name in rows:
        made = [row for group, row in tree.groups.items() if group == name.replace("{}", row.word)]
        for same in zip(*(row.tests for row in made), strict=True):
            stale += [f"{name}: {same[0]}"] * (not any(_names_tests(tree, pattern) for pattern in same))
        for same in zip(*(row.sources for row in made), strict=True):
            globs = [pattern.removeprefix(CODE).removeprefix("!") for pattern in same]
            stale += [f"{name}: {globs[0]}"] * (not any(fnmatchcase(f, glob) for f in tree.files for glob in globs))
        stale += [name] * (not made)
    assert stale == []


def _names_tests(tree: Tree, pattern: str) -> bool:
    """Return whether there are such tests: the file or folder, and in it the function."""
    place, _, function = pattern.partition("[")[0].partition("::")
    found = [file for file in tree.files if f"{file}/".startswith(f"{place}/")]
    return bool(found) and (not function or f"def {function}(" in (ROOT / found[0]).read_text(encoding="utf-8"))


def test_what_tests_import_is_a_source(tree):
    """What a test file imports of the project, with what stands beside it; a test's parameters may need less of it."""
    missing = []
    for file in _test_files(tree):
        group = tree.group(f"{file}::{OTHER}")
        if file.endswith(".py") and group:
            sources = {*tree.sources(group)}
            missing += [f"{group}: {name}, which {file} imports" for name in sorted(_imported(tree, file) - sources)]
    assert missing == []


def _imported(tree: Tree, file: str) -> set[str]:
    """Return the modules of the project that a test file, its conftest.py and what they share of tests/ import."""
    found, left = set(), [file, *({f"{file.rpartition('/')[0]}/conftest.py"} & {*tree.files})]
    while left:
        modules = set()
        for node in ast.walk(ast.parse((ROOT / left.pop()).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {_module(tree, alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules |= {
                    _module(tree, f"{node.module}.{alias.name}") or _module(tree, f"{node.module}")
                    for alias in node.names
                }
        left += [name for name in modules - found if name.startswith("tests/")]
        found |= modules
    return found - {""}


def _module(tree: Tree, name: str) -> str:
    """Return a module's file; "" where it is none of the project's."""
    path = name.replace(".", "/")
    return next((file for file in (f"{path}.py", f"{path}/__init__.py") if (tree.root / file).is_file()), "")


@pytest.mark.parametrize(
    ("file", "those", "others"),
    [
        (
            "graders/sets/relu/square.py",
            "book in relu, set relu, cells relu, engine with sets, engine, sample, quiz, notebooks, judge, tools",
            "set linear, cells linear, path, book, page 01_relu, test files, bounds and texts, what is proved",
        ),
        ("graders/sets/sigmoid/sigmoid.py", "set sigmoid, test files, bounds and texts", "what is proved"),
        ("graders/sets/linear/swish.py", "cells linear, sample, engine with sets", "cells relu, engine, path"),
        ("graders/sets/__init__.py", "cells relu, sample, engine, path, judge", "page 01_relu, book"),
        ("graders/review/subject.py", "review", "engine, path, sample, cells relu, coach, judge"),
        (
            "graders/engine/run.py",
            "engine, path, sample, cells relu, bounds and texts",
            "set relu, judge, quiz, test files",
        ),
        (
            "graders/judge/task.py",
            "set relu, set linear, judge, engine, quiz, test files, bounds and texts",
            "page 01_relu, book",
        ),
        (
            "book/01_relu.ipynb",
            "page 01_relu, quiz, book, notebooks",
            "page 02_sigmoid, set relu, engine, outputs 01_relu",
        ),
        (f"{CODE}book/01_relu.ipynb", "outputs 01_relu, book in relu, book in linear, code", "outputs 02_sigmoid"),
    ],
)
def test_what_depends_on_a_file(tree, file, those, others):
    """Coarse keys, but not so coarse that all runs again, nor so fine that a change is overlooked."""
    groups = {group for group in tree.groups if file in tree.sources(group)}
    assert {*those.split(", ")} <= groups
    assert {*others.split(", ")} <= {*tree.groups} - groups
