"""What ``python -m graders review`` prints: a line for each item, or all of it as JSON."""

import contextlib
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from graders.notebook.problem import printable
from graders.review.questions import PAGE, QUESTIONS
from graders.review.subject import ACCEPTED, FAILED, NOT_ASKED, PASSED, Answer, Given, ReviewError, Subject, subjects

FORM = 1  # of the JSON
WIDTH = 100
HEADS = {PASSED: "passed", FAILED: "FAILED", ACCEPTED: "known", NOT_ASKED: "-"}


def run(targets: Sequence[str], given: Given, only: Sequence[str], as_json: bool, say: Any = print) -> int:
    """Review what the targets name.

    Args:
        targets: as `subjects` takes them.
        given: cases and promises.
        only: the items to ask; (): all.
        as_json: whether to print data.
        say: prints a line.

    Returns:
        0 if nothing failed, 1 if something did, 2 if something could not be reviewed: then the rest was, all the same.
    """
    if unknown := [item for item in only if item not in QUESTIONS]:
        raise ReviewError(f"no item is called {unknown[0]!r}; `--list` prints them all")
    found: list[dict[str, Any]] = []
    troubles: list[str] = []
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():  # what reviewed code prints
        for target in targets:
            try:
                chosen = subjects(target, given)
            except ReviewError as error:
                troubles.append(printable(error, 1000))
                continue
            for subject in chosen:
                found.append(_one(target, subject, only, None if as_json else say))
    if as_json:
        say(json.dumps({"form": FORM, "torch": torch.__version__, "reviews": found, "troubles": troubles}, indent=1))
    elif any(one["failed"] for one in found):
        say(f"\nWhat each item asks, and what fails it: {PAGE} in the book.")
    for trouble in troubles:
        _warn(trouble)
    return 2 if troubles else int(any(one["failed"] for one in found))


def _warn(line: str) -> None:
    print(f"graders: {line}", file=sys.stderr)


def _one(target: str, subject: Subject, only: Sequence[str], say: Any) -> dict[str, Any]:
    """Review one Function; return what came out."""
    answers: list[Answer] = []
    if say:
        say(f"{subject.name} ({printable(target)})")
        for line in textwrap.wrap(subject.note, WIDTH - 9):
            say(f"         {line}")
    for answer in subject.review.answers(only):
        answers.append(answer)
        if say:
            say(line_of(answer))
    failed = [answer.item for answer in answers if answer.verdict == FAILED]
    if say:
        say(_summary(answers, failed))
    return {
        "target": target,
        "name": subject.name,
        "note": subject.note,
        "failed": failed,
        "items": [
            {"item": a.item, "question": QUESTIONS[a.item], "verdict": a.verdict, "text": a.text} for a in answers
        ],
    }


def line_of(answer: Answer) -> str:
    """Return what is printed of an answer, on one line or more."""
    text = f"{answer.item}: {printable(answer.text, 1000)}" if answer.text else answer.item
    return textwrap.fill(
        text, WIDTH, initial_indent=f"{HEADS[answer.verdict]:9}", subsequent_indent=" " * 9, break_on_hyphens=False
    )


def _summary(answers: Sequence[Answer], failed: Sequence[str]) -> str:
    counts = Counter(answer.verdict for answer in answers)
    parts = [f"{counts[verdict]} {verdict}" for verdict in (PASSED, ACCEPTED, NOT_ASKED) if counts[verdict]]
    told = f"{len(failed)} failed" + f" ({', '.join(failed)})" * bool(failed)
    end = " The other items are not asked." if failed == ["runs"] and len(answers) == 1 else ""
    return f"{told}; {', '.join(parts)}.{end}" if parts else f"{told}.{end}"
