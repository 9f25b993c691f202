"""The page on JAX: its code prints what it shows, and each row of its tables is run in both libraries."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.book.book_build import ROOT
from tests.book.test_build import markdown

PAGE = "book/jax"
BLOCK = r"((?:(?!```).*\n)*)```\n"
PIECE = re.compile(rf"^```python\n{BLOCK}(?:\n```text\n{BLOCK})?", re.MULTILINE)
ROW = re.compile(r"^\| (?!torch \||-)(.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
VERSION = re.compile(r"\b(torch|jax) (\d+\.\d+\.\d+)")
LEAST = {"pieces": 8, "rows": 15, "said": 5}


def run(pieces: list[str], *options: str) -> dict[str, Any]:
    """What `jax_rows` finds, in a process of its own, on the CPU."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.book.jax_rows", *options],
        input=json.dumps(pieces),
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def faults(text: str, found: dict[str, Any]) -> Iterator[str]:
    """Where the page says something else than what was run, one line each."""
    pieces = PIECE.findall(text)
    for (code, shown), printed in zip(pieces, found["printed"], strict=True):
        if printed != shown:
            yield f"shown:\n{shown}printed:\n{printed}by:\n{code}"
    rows = [row[0] for row in ROW.findall(text)]
    yield from (f"no check for the row {row}" for row in rows if row not in found["rows"])
    yield from (f"a check for a row that is not there: {row}" for row in found["rows"] if row not in rows)
    plain = " ".join(text.split())
    yield from (f"a check for words that are not there: {words}" for words in found["said"] if words not in plain)
    for claim, outcome in (found["rows"] | found["said"]).items():
        if outcome:
            yield f"{claim}: {outcome}"
    if dict(VERSION.findall(text)) != found["versions"]:
        yield f"run with {found['versions']}"
    for what, number in (("pieces", pieces), ("rows", rows), ("said", found["said"])):
        if len(number) < LEAST[what]:
            yield f"too few {what}"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return run([code for code, _ in PIECE.findall(markdown(PAGE))])


def test_the_page_says_what_both_libraries_do(found: dict[str, Any]) -> None:
    assert list(faults(markdown(PAGE), found)) == []


PLANTED = {
    "a wrong number": ("[[6.0, 0.0], [0.0, 12.0]]", "[[6.0, 0.0], [0.0, 12.5]]", "shown:"),
    "the other convention": ("(2-5j)", "(2+5j)", "shown:"),
    "another error": ("NotImplementedError: You must", "RuntimeError: You must", "shown:"),
    "a message in other words": ("can't apply forward-mode", "cannot apply forward-mode", "shown:"),
    "a row that nobody runs": ("| `jvp` |", "| `jvp` of a Function |", "no check for the row `jvp` of a Function"),
    "a row taken out": ("| `x.detach()` |", "x.detach()", "a check for a row that is not there: `x.detach()`"),
    "a claim taken out": ("you step against it", "you go down", "a check for words that are not there: you step"),
    "another version": ("jax 0.10.2", "jax 0.10.1", "run with"),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_fault_is_found(case: str, found: dict[str, Any]) -> None:
    old, new, fault = PLANTED[case]
    text = markdown(PAGE)
    assert old in text
    assert any(line.startswith(fault) for line in faults(text.replace(old, new, 1), found))


def test_a_claim_that_fails_is_told(found: dict[str, Any]) -> None:
    planted = found | {"rows": found["rows"] | {"`jvp`": "AssertionError"}}
    assert list(faults(markdown(PAGE), planted)) == ["`jvp`: AssertionError"]


def test_code_that_is_wrong_or_raises_prints_something_else() -> None:
    torchs, jaxs = (code for code, _ in PIECE.findall(markdown(PAGE))[:2])
    wrong = [torchs.replace("ctx.n * x **", "x **"), jaxs.replace("nondiff_argnums=(1,)", "nondiff_argnums=(0,)")]
    wrong = run(wrong, "--pieces")
    assert wrong["printed"][0] == "[1.0, 4.0]\n"
    assert "Error" in wrong["printed"][1]
