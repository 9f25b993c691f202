"""What a user reads at the command line is plain English: the help, the Makefile's targets and the messages.

Readers are students and instructors all over the world. `TURNS` lists turns of phrase that a native reader stumbles
over, each with the plain wording and a sentence in which it must be noticed.
"""

import argparse
import ast
import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tools.notebooks import ROOT


@dataclass(frozen=True)
class Turn:
    """A turn of phrase to avoid.

    Attributes:
        pattern: what it looks like; one of its own capitals asks for capitals, else they do not count.
        plain: what to write instead.
        example: a sentence in which it has to be noticed.
    """

    pattern: str
    plain: str
    example: str
    regex: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        cased = re.search(r"(?<!\\)[A-Z]", self.pattern)
        object.__setattr__(self, "regex", re.compile(self.pattern, 0 if cased else re.IGNORECASE))


START = r"(?:^|[.:;] )"  # of a sentence
TURNS = (
    # negation on the noun
    Turn(r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more\b|way\b)[a-z]", "is not a ...", "It is no folder."),
    Turn(r"\bor no \w+ at all\b", "or not a ...", "It is damaged or no archive at all."),
    Turn(r"\b(?:leads? to|leaves?) no\b", "a missing ..., does not leave a ...", "The link leads to no file."),
    Turn(r"\bcan have none\b", "cannot have a ...", "What is not a tensor can have none."),
    Turn(r", and no other\b", "only ...", "Keep relu.ipynb, and no other."),
    # free relatives and hidden agents
    Turn(START + r"Who [a-z]+s [^?]*$", "say what is done: Grading means ...", "Who grades runs strangers' code."),
    Turn(START + r"Those who\b", "name them: the workers that ...", "Those who execute submissions, ended with this."),
    Turn(
        START + r"What (?:is|was|are|were|does|did|has|had|came|ran|runs)\b[^?]*$",
        "name it: Cells that ..., Parts that ...",
        "It died. What ran before keeps its points.",
    ),
    Turn(r"\bwhat is handed in\b", "submitted code", "Go on without protection from what is handed in."),
    Turn(r"\bwho(?:so|m)?ever\b|\bwhoso\b|\bwhom\b", "name the person or program", "Whoever grades it sees the file."),
    Turn(r"\b(?:nobody|somebody)'s\b", "no student's, another's", "Nobody's name is on it."),
    Turn(
        r"\bwhatever (?:defines|execute[sd]|runs|ran|made|did|does)\b",
        "the cell that ..., the worker that ...",
        "Whatever executed it died.",
    ),
    Turn(r"\bwho would be\b", "which submissions would be", "Check who would be graded."),
    Turn(r"\b(?:they|it|you|we) need not\b", "do not have to", "What it has imported they need not."),
    Turn(r"\bif that is what it is\b", "if it is meant to be ...", "Rename it if that is what it is."),
    # archaisms, and words of another language
    Turn(r"\banew\b", "again, a new ...", "The same command begins anew."),
    Turn(r"\bmend(?:s|ed|ing)?\b", "fix, correct, repair", "Mend the link, or add the file."),
    Turn(r"\b(?:to|can|cannot|could|may) (?:not )?be had\b", "is (not) available", "Its truth is not to be had."),
    Turn(r"\bnowhere to be\b", "cannot be found", "It is nowhere to be seen."),
    Turn(r"\bto be seen\b", "is shown, can be seen", "Say what is to be seen."),
    Turn(r"\bwithout a word\b", "without a message", "It ended without a word."),
    Turn(r"\bwithout end\b", "endlessly, too deeply", "It is nested without end."),
    Turn(r"\b(?:is|are) plenty\b|, where \S+ are\b", "are enough", "Too much work: 12 passes, where 3 are plenty."),
    Turn(r"\b(?:lest|ere|nigh|amidst|amongst|whilst|unto)\b", "so that ... not, before, while", "Copy it, lest it go."),
    Turn(
        r"\b(?:there|where|here)(?:of|in|by|upon|with|fore|unto)\b(?<!therefore)",
        "of it, in it, by it",
        "A timestamp.txt without a time therein.",
    ),
    Turn(r"\bits rights\b", "its permissions", "Look at its rights."),
    Turn(r"\bhalf made\b", "incomplete", "The gradebook is half made."),
    Turn(r"\bwhite ground\b", "white background", "A picture has a white ground."),
    Turn(r"\bfrom the disk\b", "from disk", "A book read from the disk."),
    # constructions of another language
    Turn(r"\bin (?:the )?place of\b", "instead of", "Write the file in place of comparing with it."),
    Turn(r"\bin (?:its|their) (?:place|stead)\b", "instead, for it", "Return None in its place."),
    Turn(r"\bas it (?:now )?stands\b", "in its current state", "It would not be graded as it now stands."),
    Turn(r"\bstands? twice\b", "occurs more than once", "Cell relu stands twice."),
    Turn(r"\bfrom \d+ (?:up|on)\b", "1 or more", "'x' is not a number from 1 up."),
    Turn(r"\bonc?e an? (?:core|machine|line|fault|check|notebook)\b", "one per ...", "Workers (default: one a core)."),
    Turn(r"\bwhere here is\b", "instead of", "The worker has torch 2.12 where here is 2.13."),
    Turn(r"\bdoes not let [^.;]* be\b", "does not allow ... to be", "The system does not let the file be read."),
    Turn(r"\bc[oa]me to (?:its|their|an) end\b", "finish", "It did not come to its end."),
    Turn(r"\b(?:is|are|was|were) (?:not )?looked at\b", "checked", "What is missing was not looked at."),
    Turn(r"\bnothing to look at\b", "no problems", "Exit codes: 0 nothing to look at."),
    Turn(r"\ba wrong command\b", "usage error", "Exit codes: 2 a wrong command."),
    Turn(r"\b(?:the )?wrong way round\b", "swapped", "It has set and student the wrong way round."),
    Turn(
        r"\bgoes on from (?:here|there)\b", "run the same command to continue", "The same command goes on from there."
    ),
    Turn(r"\bis where (?:it|they) belongs?\b", "put ... into ...", "submitted/ada/ is where it belongs."),
    Turn(r"` does (?:it|so)\b", "run `...`", "Nothing is graded yet: `make grade` does it."),
    Turn(r"^See (?:whether|who|what|if)\b", "Check ...", "See whether your notebooks would be graded."),
    Turn(r"\bwhat can be(?=[.;,]|$)", "what can be repaired", "Repair what can be; write nothing."),
    Turn(r"\bsaid of\b", "say what could not be done", "It was damaged, so nothing can be said of it."),
    Turn(r"\bthe same there\b", "the same versions there", "The workers differ: install the same there."),
    Turn(r"\bthat are not? tests\b", "not tests", "Measurements that are no tests."),
)

GOOD = (
    "There is no folder relu: run this from the course's root.",
    "there is no set relu; there are: 01_relu",
    "The scheduler is no longer there.",
    "has no cells",
    "Who is there?",
    "What is missing?",
    "Report what is wrong and change nothing.",
    "The tests use whichever cell defines that name.",
    "Your output is float32 whatever the input is.",
    "is not a folder. Replace it with a folder containing relu.ipynb.",
    "Fix the link, or add the file.",
    "We recommend an amendment.",
    "Run the same command to start over.",
    "Only tensors have gradients: return None for it.",
    "is missing; there is 'tiny (1).ipynb' instead",
    "It is damaged or not an archive; therefore it is left out.",
    "The dtype is not where it should be.",
    "once a minute",
    "Written from the notebook's own time.",
)


@dataclass(frozen=True)
class Text:
    """A text that a user may read.

    Attributes:
        place: its file and line, or the command that prints it.
        words: the text in one line, with {} for what is filled in.
    """

    place: str
    words: str


def faults(texts: Iterator[Text]) -> list[str]:
    """A line on each turn in these texts: where, which, and what to write instead."""
    return [
        f"{text.place}: {found.group().strip()!r} in {text.words[:100]!r}: write {turn.plain!r}"
        for text in texts
        for turn in TURNS
        if (found := turn.regex.search(text.words))
    ]


def literals(file: Path, root: Path) -> Iterator[Text]:
    """The strings of a module that are not docstrings, each f-string as one."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    skipped |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        words = None
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            words = node.value
        elif isinstance(node, ast.JoinedStr):
            words = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        if words and " " in words.strip():
            yield Text(f"{file.relative_to(root)}:{node.lineno}", " ".join(words.split()))


def messages(root: Path = ROOT) -> Iterator[Text]:
    """All literals of the graders and tools, but the sets' verdicts to students, and headings quoted from the book."""
    sets, headings = root / "graders/sets", root / "graders/judge/places_table.py"
    for folder in ("graders", "tools"):
        for file in sorted((root / folder).rglob("*.py")):
            if not file.is_relative_to(sets) and file != headings:
                yield from literals(file, root)


def targets(makefile: Path) -> Iterator[Text]:
    """What `make help` says of each target, and what the recipes print."""
    for number, line in enumerate(makefile.read_text(encoding="utf-8").splitlines(), 1):
        for words in re.findall(r"^[a-z-]+:.*?##\s+(.+)|\becho \"([^\"]+)\"", line):
            yield Text(f"{makefile.name}:{number}", "".join(words))


class _Built(Exception):
    """A parser is complete: its owner wants to parse arguments."""


def parser_of(main: Callable[[list[str]], object], monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    """The parser that a `main` builds; the rest of it does not run."""
    seen: list[argparse.ArgumentParser] = []

    def stop(parser: argparse.ArgumentParser, *_: object) -> None:
        seen.append(parser)
        raise _Built

    with monkeypatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_args", stop)
        with pytest.raises(_Built):
            main([])
    return seen[0]


def helps(parser: argparse.ArgumentParser) -> Iterator[Text]:
    """The help of a parser and of its commands: each paragraph, so that a sentence has its start."""
    for part in re.split(r"\n\n|\n  (?=\S)|(?<=\S)   *(?=\S)", parser.format_help()):
        yield Text(f"{parser.prog} --help", " ".join(part.split()))
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from helps(command)


PROGRAMS = ["graders.cli", "graders.notebook.doctor"] + [
    f"tools.{file.stem}" for file in sorted(ROOT.glob("tools/*.py")) if "ArgumentParser(" in file.read_text("utf-8")
]


def test_the_messages_are_plain_english() -> None:
    texts = list(messages())
    assert len(texts) > 700, "the messages are not found"
    assert not "\n".join(faults(iter(texts)))


def test_the_makefile_is_plain_english() -> None:
    texts = list(targets(ROOT / "Makefile"))
    assert len(texts) > 15, "the targets are not found"
    assert not "\n".join(faults(iter(texts)))


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_help_is_plain_english(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = list(helps(parser_of(importlib.import_module(program).main, monkeypatch)))
    assert any("show this help message" in text.words for text in texts)
    assert not "\n".join(faults(iter(texts)))


def test_the_help_of_every_command_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {text.place for text in helps(parser_of(importlib.import_module("graders.cli").main, monkeypatch))}
    commands = (
        "",
        " coach",
        " study",
        " review",
        " init",
        " class",
        " grade",
        " collect",
        " doctor",
        " scores",
        " feedback",
        " fill",
        " extend",
        " watch",
        " roster",
        " report",
        " similar",
        " hand",
        " sample",
    )
    assert places == {f"python -m graders{command} --help" for command in commands}


# ---------------------------------------------------------------------------------------------------------------------
# the list itself
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("turn", TURNS, ids=[turn.example for turn in TURNS])
def test_each_turn_is_noticed(turn: Turn) -> None:
    assert turn.regex.search(turn.example)
    assert not turn.regex.search(turn.plain)


@pytest.mark.parametrize("words", GOOD)
def test_plain_english_is_left_alone(words: str) -> None:
    assert not faults(iter([Text("here", words)]))


PLANTED = '''"""A docstring may say anew."""


def refuse(name):
    """It is no folder."""
    # and a comment: mend it
    if not name:
        raise ValueError(f"{name} is no folder. "
                         "Mend it.")
    print("the folder", "was not looked at" if name else f"{name} is missing")
'''


def test_a_planted_sentence_is_named_with_its_place_and_what_to_write(tmp_path: Path) -> None:
    for name in ("tools/planted.py", "graders/classroom/planted.py", "graders/sets/planted.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(PLANTED)
    found = faults(messages(tmp_path))
    assert found == [
        f"{name}: {said}"
        for module in ("graders/classroom/planted.py", "tools/planted.py")
        for name, said in (
            (f"{module}:8", "'is no f' in '{} is no folder. Mend it.': write 'is not a ...'"),
            (f"{module}:8", "'Mend' in '{} is no folder. Mend it.': write 'fix, correct, repair'"),
            (f"{module}:10", "'was not looked at' in 'was not looked at': write 'checked'"),
        )
    ]


def test_a_planted_target_is_named(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text('book: ready  ## build the book anew\n\t@echo "Mend it"\n\nnew: ## a new book\n')
    found = faults(targets(tmp_path / "Makefile"))
    assert [line.partition(" in ")[0] for line in found] == ["Makefile:1: 'anew'", "Makefile:2: 'Mend'"]


def test_a_planted_help_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def main(arguments: list[str]) -> None:
        parser = argparse.ArgumentParser(prog="planted", description="See whether it works.")
        command = parser.add_subparsers().add_parser("make", help="make a book")
        command.add_argument("--fresh", action="store_true", help="make the environment anew")
        command.add_argument("--old", action="store_true", help="leave it")
        parser.parse_args(arguments)
        raise AssertionError("the rest of a program must not run")

    found = faults(helps(parser_of(main, monkeypatch)))
    assert [line.partition(" in ")[0] for line in found] == [
        "planted --help: 'See whether'",
        "planted make --help: 'anew'",
    ]
