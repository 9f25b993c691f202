"""For pytest: with ``--gradreview`` each `Review` at the top of a test file is a test for each item of the checklist.

Without the option it does nothing, and it loads torch only where a test file has done so.
"""

import json
import sys
from collections.abc import Iterator
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
    """Note what the items say, where a file is asked for."""
    if config.getoption("gradreview_json", None):
        config.pluginmanager.register(_Report(config.getoption("gradreview_json")), "gradreview-report")


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
        answer = self.parent.answer(self.name)
        if answer.item != self.name:
            pytest.skip(f"it does not run: {answer.text}")
        self.user_properties.append(("gradreview", {"verdict": answer.verdict, "text": answer.text}))
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


class _Report:
    """Writes what all items said into a file, also under pytest-xdist, whose main process hears of every test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, dict[str, dict[str, str]]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note an item's answer."""
        said = dict(report.user_properties).get("gradreview")
        if report.when == "call" and isinstance(said, dict):
            review, _, item = report.nodeid.rpartition("::")
            self.found.setdefault(review, {})[item] = said

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file."""
        if hasattr(session.config, "workerinput"):
            return
        reviews = [
            {
                "name": review,
                "failed": [item for item, said in items.items() if said["verdict"] == "failed"],
                "items": [{"item": item, "question": QUESTIONS[item], **said} for item, said in items.items()],
            }
            for review, items in self.found.items()
        ]
        self.path.write_text(json.dumps({"form": 1, "reviews": reviews}, indent=1) + "\n", encoding="utf-8")
