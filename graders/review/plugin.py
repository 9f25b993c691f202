"""For pytest: with ``--gradreview`` each `Review` at the top of a test file is a test for each item of the checklist.

Without the option it does nothing, and it loads torch only where a test file has done so.
"""

import json
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from graders.review.questions import PAGE, QUESTIONS

if TYPE_CHECKING:
    from graders.review.subject import Answer, Review


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("gradreview", "review of torch.autograd.Functions")
    group.addoption("--gradreview", action="store_true", help="make each Review in the test files a test for each item")
    group.addoption(
        "--gradreview-json", metavar="FILE", type=Path, help="write what each item said as JSON; implies --gradreview"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Note what the items say, where they are asked for."""
    path = config.getoption("gradreview_json", None)
    if path or config.getoption("gradreview", False):
        config.pluginmanager.register(_Report(path), "gradreview-report")


def pytest_pycollect_makeitem(collector: pytest.Module, name: str, obj: object) -> "_Collector | None":
    """Take a Review for a collector of its items."""
    asked = collector.config.getoption("gradreview") or collector.config.getoption("gradreview_json")
    subject = sys.modules.get("graders.review.subject")
    if not asked or subject is None or not isinstance(obj, subject.Review):
        return None
    return _Collector.from_parent(collector, name=name, review=obj)


class _Failed(Exception):
    """An item failed; its text is for the report."""


class _Collector(pytest.Collector):
    """The items of one Review."""

    def __init__(self, *, review: "Review", **others: Any) -> None:
        super().__init__(**others)
        self.review = review
        self._runs: Answer | None = None

    def collect(self) -> Iterator["_Item"]:
        """Make a test of each item."""
        for item in QUESTIONS:
            yield _Item.from_parent(self, name=item)

    def answer(self, item: str) -> "Answer":
        """Return what an item says; where the Function does not run, what that says."""
        if self._runs is None:
            (self._runs,) = self.review.answers(["runs"])
        if item == "runs" or self._runs.verdict != "passed":
            return self._runs
        (answer,) = self.review.answers([item])
        return answer


class _Item(pytest.Item):
    """One item of one Review."""

    parent: _Collector

    def runtest(self) -> None:
        """Ask it."""
        said = {"verdict": "", "text": ""}  # not known yet
        self.user_properties.append(("gradreview", said))
        answer = self.parent.answer(self.name)
        if answer.item != self.name:
            pytest.skip(f"it does not run: {answer.text}")
        said |= {"verdict": answer.verdict, "text": answer.text}
        if answer.verdict == "not asked":
            pytest.skip(answer.text)
        if answer.verdict == "accepted":
            pytest.xfail(answer.text)
        if answer.verdict == "failed":
            raise _Failed(f"{self.name}: {answer.text}\n{QUESTIONS[self.name]} See {PAGE} in the book.")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Print the item's own words, without a traceback through this file."""
        if isinstance(excinfo.value, _Failed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return where it is, and what it is called."""
        return self.path, None, f"{self.parent.name}: {self.name}"


def _torch() -> str | None:
    """Return torch's version without loading it: under pytest-xdist the main process does not need it."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return None


class _Report:
    """Writes what all items said into a file, also under pytest-xdist, whose main process hears of every test.

    Args:
        path: the file; None: none is written.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.found: dict[str, dict[str, dict[str, str]]] = {}
        self.troubles: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be loaded: no Review in it was asked."""
        if report.failed:
            last = str(report.longrepr).strip().splitlines() or [""]
            self.troubles.append(f"{report.nodeid}: {last[-1].removeprefix('E ').strip()}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note an item's answer, or what kept it from giving one: a limit on its time, for instance."""
        said = dict(report.user_properties).get("gradreview")
        if not isinstance(said, dict):
            return
        review, _, item = report.nodeid.rpartition("::")
        if report.failed and said["verdict"] != "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            text = getattr(crash, "message", str(report.longrepr)).strip()
            said = {"verdict": "failed", "text": text.partition("\n")[0]}
        if said["verdict"]:
            self.found.setdefault(review, {}).setdefault(item, said)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file."""
        if self.path is None or hasattr(session.config, "workerinput"):
            return
        reviews = [
            {
                "name": review,
                "failed": [item for item, said in items.items() if said["verdict"] == "failed"],
                "items": [
                    {"item": item, "question": question, **items[item]}
                    for item, question in QUESTIONS.items()
                    if item in items
                ],
            }
            for review, items in self.found.items()
        ]
        data = {"form": 1, "torch": _torch(), "reviews": reviews, "troubles": self.troubles}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say so where nothing was reviewed: a file that pytest does not take for tests would look like a pass."""
        if not self.found and not terminalreporter.config.getoption("collectonly"):
            terminalreporter.write_line(
                "gradreview: nothing was reviewed: no test that ran belongs to a Review at the top of a test file",
                yellow=True,
            )
