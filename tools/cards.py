"""The card at the top of each chapter: abilities, minutes, difficulty, and which chapters come before."""

import re
from dataclasses import dataclass

CARD = re.compile(
    r"\*\*You will be able to\*\*\n\n(?P<abilities>(?:- [^\n]+\n){3})\n"
    r"\*\*What it takes\*\*\n\n"
    r"- \*\*Time:\*\* (?P<minutes>\d+) minutes\n"
    r"- \*\*Difficulty:\*\* (?P<difficulty>[1-5]) of 5\n"
    r"- \*\*Needs:\*\* (?P<needs>[^\n]+)"
)
FIRST_NEEDS = "tensors, `.backward()` and partial derivatives"  # what the first chapter takes for granted
NEEDS = re.compile(rf"{re.escape(FIRST_NEEDS)}|(\[Chapter \d+\]\(\d\d_\w+\.ipynb\)(, | and |$))+")


@dataclass(frozen=True)
class Card:
    """What a chapter's card says."""

    abilities: list[str]
    minutes: int
    difficulty: int
    needs: list[str]  # file names of chapters


def read_card(source: str) -> Card | None:
    """The card that a cell holds, None where it breaks the grammar."""
    match = CARD.fullmatch(source)
    if match is None or not NEEDS.fullmatch(match["needs"]):
        return None
    abilities = [line.removeprefix("- ") for line in match["abilities"].splitlines()]
    return Card(abilities, int(match["minutes"]), int(match["difficulty"]), re.findall(r"\((\S+)\)", match["needs"]))
