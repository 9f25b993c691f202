"""Leave out the tests that are proved: whose files are as they were when they last passed.

A plugin of pytest's: ``python -m pytest -p tools.proved --proved=skip book tests``, as `make test` calls it. What a
group of tests depends on, `tests/groups.toml` says in coarse keys: folders, sets, pages. A stamp,
`_build/proved/GROUP.json`, holds the hash of these files and of the environment, and the test files that passed with
it. A test file that failed, that was interrupted, or of which a test was deselected, is not stamped. Where CI is set,
nothing is left out.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from textwrap import fill
from typing import Any

import pytest

TABLE = "tests/groups.toml"
STAMPS = "_build/proved"
PROGRAMS = ("bwrap", "c++", "chromium", "chromium-browser", "google-chrome", "initdb")  # without one, tests are skipped
REQUIRE = "COURSE_REQUIRE_"  # with such a variable they fail instead
NAMES = {  # what a group is made for each of, as the files of the tree show it
    "set": r"solutions/(?:\d\d|[a-z])_(\w+)/.*",
    "page": r"book/(\w+)\.(?:ipynb|md)",
    "notebook": r"book/(\w+)\.ipynb",
}
MADE = {"page": {"search"}}  # by Sphinx
LOADS_SETS = "tests/graders/test_sets.py"  # those that COURSE_SETS names; else all
CODE = "code of "
Pair = tuple[str, str]  # a group and one of its test files


@dataclass(frozen=True)
class Group:
    """Tests that depend on the same files: a row of the table, and the set, page or notebook that it is made for."""

    part: str
    tests: list[str]
    sources: list[str]
    word: str


def groups(rows: dict[str, Any], lists: dict[str, list[str]], files: Iterable[str]) -> dict[str, Group]:
    """Return all groups of a tree with these files."""
    found = {}
    for name, row in rows.items():
        each = row.get("each")
        words = {m[1] for f in files if (m := re.fullmatch(NAMES[each], f))} | MADE.get(each, set()) if each else {""}
        for word in sorted(words):
            tests, sources = (_spelt(part, lists, word) for part in (row["tests"], [*row["sources"], "@always"]))
            found[name.replace("{}", word)] = Group(row["part"], tests, sources, word)
    return found


def _spelt(patterns: list[str], lists: dict[str, list[str]], word: str) -> list[str]:
    """Return the patterns with the lists that they name written out, and the word in its place."""
    named = {pattern: _spelt(lists[pattern[1:]], lists, word) for pattern in patterns if pattern[0] == "@"}
    return [found for pattern in patterns for found in named.get(pattern, [pattern.replace("{}", word)])]


class Tree:
    """A folder, those of its files that git knows or would take, and the groups of its tests."""

    def __init__(self, root: Path) -> None:
        """Read the list of files and the table."""
        self.root = root
        listed = self._git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
        self.files = sorted({name for name in listed if name and (root / name).is_file()})
        rows = tomllib.loads((root / TABLE).read_text(encoding="utf-8"))
        self.unproved, lists = rows.pop("unproved"), rows.pop("lists")
        self.groups = groups(rows, lists, self.files)
        self._digests: dict[str, str] = {}

    def _git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self.root, capture_output=True, text=True, check=False).stdout

    def commit(self) -> str:
        """Return the commit that is checked out, with a + where files differ from it."""
        return self._git("rev-parse", "--short", "HEAD").strip() + "+" * bool(self._git("status", "--porcelain"))

    def sources(self, group: str) -> list[str]:
        """Return the files that a group depends on, its tests and what stands beside them included.

        Those of which the code alone counts begin with `CODE`.
        """
        row = self.groups[group]
        found: set[str] = set()
        for pattern in row.sources:
            prefix = CODE if pattern.startswith(CODE) else ""
            wanted = pattern.removeprefix(CODE).removeprefix("!")
            matched = {prefix + file for file in self.files if fnmatchcase(file, wanted)}
            found = found - matched if pattern[0] == "!" else found | matched
        return sorted(found | {file for place in _places(row.tests) for file in self.files if _serves(file, place)})

    def hash(self, group: str) -> str:
        """Return the hash of all that a group depends on."""
        parts = [environment(), *(f"{name} {self._digest(name)}" for name in self.sources(group))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _digest(self, name: str) -> str:
        if name not in self._digests:
            data = (self.root / name.removeprefix(CODE)).read_bytes()
            if name.startswith(CODE):
                with suppress(ValueError, KeyError):  # half written: then all of it counts
                    cells = [cell for cell in json.loads(data)["cells"] if cell["cell_type"] == "code"]
                    data = json.dumps(cells, sort_keys=True).encode()
            self._digests[name] = hashlib.sha256(data).hexdigest()
        return self._digests[name]

    def group(self, nodeid: str) -> str | None:
        """Return the group that a test belongs to."""
        file, _, test = nodeid.partition("::")
        name, _, parameters = test.partition("[")
        given = parameters.rstrip("]").split("-")[:2]
        words = {re.sub(form, "", p) for p in given for form in (r"^(\d\d_|book/)", r"^[a-z]_")}
        if any(_lists(pattern, file, name, words) for pattern in self.unproved):
            return None
        for group, row in self.groups.items():
            if any(_lists(pattern, file, name, words) for pattern in row.tests):
                return group
        return None

    def may_hold(self, file: str) -> set[str]:
        """Return the groups that may have tests in a file; "": tests that belong to none."""
        if file in self.unproved:
            return {""}
        patterns = {"": self.unproved} | {group: row.tests for group, row in self.groups.items()}
        return {group for group, tests in patterns.items() if any(_within(file, place) for place in _places(tests))}


def _places(tests: list[str]) -> set[str]:
    """Return the files and folders that patterns of tests name."""
    return {re.split(r"::|\[", pattern)[0] for pattern in tests}


def _lists(pattern: str, file: str, name: str, words: set[str]) -> bool:
    """Return whether a pattern lists a test: of this file, of this name, with these words among its parameters."""
    place, _, parameter = pattern.partition("[")
    place, _, wanted = place.partition("::")
    return _within(file, place) and wanted in ("", name) and (not parameter or parameter[:-1] in words)


def _within(file: str, place: str) -> bool:
    return file == place or file.startswith(f"{place}/")


def _serves(file: str, place: str) -> bool:
    """Return whether a file is one of the tests there, or a module beside them."""
    folder, _, name = file.rpartition("/")
    beside = folder == place.rpartition("/")[0] and name.endswith(".py") and not name.startswith("test_")
    return place.startswith("tests/") and (beside or _within(file, place))


@cache
def environment() -> str:
    """Return what else the outcome depends on: Python, torch, the machine, its programs, what is asked of the tests."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    programs = [name for name in PROGRAMS if shutil.which(name)]
    asked = {name: value for name, value in sorted(os.environ.items()) if name == "WALK" or name.startswith(REQUIRE)}
    return json.dumps([platform.python_version(), torch, platform.platform(), programs, asked])


class Stamps:
    """What is proved of a tree: per group the hash, and the test files that passed, with the commit."""

    def __init__(self, tree: Tree) -> None:
        """Hash all groups, and read the stamps that there are."""
        self.tree = tree
        self.hashes = {group: tree.hash(group) for group in tree.groups}
        files = {group: self._file(group) for group in tree.groups}
        self.known = {group: json.loads(file.read_text()) for group, file in files.items() if file.is_file()}

    def proved(self) -> dict[Pair, str]:
        """Return what is proved, with the commit at which it was."""
        valid = {g: stamp for g, stamp in self.known.items() if stamp["hash"] == self.hashes[g]}
        return {(group, file): commit for group, stamp in valid.items() for file, commit in stamp["files"].items()}

    def changed(self) -> set[str]:
        """Return the groups that were proved once, and are not as they were then."""
        return {group for group, stamp in self.known.items() if stamp["hash"] != self.hashes[group]}

    def keep(self, passed: Iterable[Pair]) -> None:
        """Stamp what passed, but for groups whose files have changed meanwhile."""
        commit, now = self.tree.commit(), Tree(self.tree.root)
        for group, pairs in groupby(sorted(passed), key=itemgetter(0)):
            hashed = self.hashes[group]
            if group in now.groups and now.hash(group) == hashed:
                old = self.known.get(group, {})
                files = old["files"] if old.get("hash") == hashed else {}
                stamp = {"hash": hashed, "files": files | {file: commit for _, file in pairs}}
                self._file(group).parent.mkdir(parents=True, exist_ok=True)
                new = self._file(group).with_suffix(".new")
                new.write_text(json.dumps(stamp, indent=1) + "\n")
                new.replace(self._file(group))  # whole, or as it was

    def _file(self, group: str) -> Path:
        return self.tree.root / STAMPS / f"{group.replace(' ', '-')}.json"


class Selection:
    """Leaves out tests while they are collected, and notes which were; in every process that collects."""

    def __init__(self, tree: Tree, proved: set[Pair], wanted: set[str]) -> None:
        self.tree, self.proved, self.wanted = tree, proved, wanted
        self.tests: dict[Pair, set[str]] = defaultdict(set)  # that will run
        self.deselected: set[Pair] = set()  # by others: -k, -m

    def pair(self, nodeid: str) -> Pair:
        """Return a test's group ("": none) and file."""
        return self.tree.group(nodeid) or "", nodeid.partition("::")[0]

    def leaves_out(self, pair: Pair) -> bool:
        """Return whether these tests do not run."""
        return pair[0] not in self.wanted or pair in self.proved

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Do not even read a file all of whose tests are left out."""
        if not collection_path.is_file() or not collection_path.is_relative_to(self.tree.root):
            return None
        file = collection_path.relative_to(self.tree.root).as_posix()
        holders = self.tree.may_hold(file)
        return True if holders and all(self.leaves_out((group, file)) for group in holders) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop what is left out."""
        items[:] = [item for item in items if not self.leaves_out(self.pair(item.nodeid))]

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Remember which files do not run as a whole, but for the slow tests: a stamp is of the others."""
        self.deselected |= {self.pair(item.nodeid) for item in items if item.get_closest_marker("slow") is None}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember what is to run."""
        for item in session.items:
            self.tests[self.pair(item.nodeid)].add(item.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the process that started this worker."""
        if hasattr(session.config, "workeroutput"):
            tests = [[*pair, sorted(names)] for pair, names in self.tests.items()]
            session.config.workeroutput["proved"] = tests, sorted(self.deselected)


class Keeper:
    """Hears how the tests end, and stamps what passed; in the one process that starts the others."""

    def __init__(self, stamps: Stamps, selection: Selection) -> None:
        self.stamps, self.selection = stamps, selection
        self.failed: set[Pair] = set()
        self.finished: set[str] = set()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Say what is left out."""
        proved, groups_at = self.stamps.proved(), defaultdict(set)
        for (group, file), commit in proved.items():
            if group in self.selection.wanted and (group, file) in self.selection.proved:
                groups_at[commit].add(group)
        for commit, names in groups_at.items():
            print(fill(f"proved at {commit}: {', '.join(sorted(names))}", 120, subsequent_indent="    "))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker what to leave out."""
        node.workerinput["left_out"] = sorted(self.selection.proved), sorted(self.selection.wanted)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker collected."""
        tests, deselected = getattr(node, "workeroutput", {}).get("proved", ([], []))
        for group, file, names in tests:
            self.selection.tests[group, file] |= {*names}
        self.selection.deselected |= {(group, file) for group, file in deselected}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hear how a test goes."""
        if report.failed:
            self.failed.add(self.selection.pair(report.nodeid))
        if report.when == "teardown":
            self.finished.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Stamp what ran as a whole and passed."""
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.selection.proved:
            session.exitstatus = pytest.ExitCode.OK
        parts = any("::" in argument for argument in session.config.args)
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not parts:
            whole = {pair for pair, names in self.selection.tests.items() if pair[0] and names <= self.finished}
            self.stamps.keep(whole - self.failed - self.selection.deselected)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options."""
    about = "skip: leave out what is proved (not where CI is set), and stamp what passes; write: stamp alone"
    parser.addoption("--proved", choices=("skip", "write"), help=about)
    parser.addoption("--only", default="", help="the groups to run, by their names, sets or parts, with commas")


def pytest_configure(config: pytest.Config) -> None:
    """Decide what is left out: once, in the process that starts the others."""
    if config.getoption("--proved") is None:
        return
    tree = Tree(config.rootpath)
    if not tree.files:
        raise pytest.UsageError("--proved needs git: it knows which files are the project's")
    if hasattr(config, "workerinput"):
        proved, wanted = config.workerinput["left_out"]
        config.pluginmanager.register(Selection(tree, {(group, file) for group, file in proved}, {*wanted}))
        return
    stamps, only = Stamps(tree), {word for word in config.getoption("--only").split(",") if word}
    if unknown := only - {word for g, row in tree.groups.items() for word in (g, row.part, row.word)}:
        raise pytest.UsageError(f"no tests are called {' or '.join(sorted(unknown))}")
    wanted = {g for g, row in tree.groups.items() if not only or only & {g, row.part, row.word}}
    skips = config.getoption("--proved") == "skip" and not os.environ.get("CI")
    selection = Selection(tree, {*stamps.proved()} if skips else set(), wanted if only else wanted | {""})
    config.pluginmanager.register(selection)
    config.pluginmanager.register(Keeper(stamps, selection))
    loads = {g: row.word for g, row in tree.groups.items() if row.word and LOADS_SETS in _places(row.tests)}
    sets = {word for group, word in loads.items() if not selection.leaves_out((group, LOADS_SETS))}
    os.environ.setdefault("COURSE_SETS", " ".join(sorted(sets)))
    os.environ["COURSE_CHANGED"] = " ".join(tree.groups[g].word for g in stamps.changed() if g.startswith("set "))
