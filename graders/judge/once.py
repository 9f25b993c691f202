"""What is said of a task whose checks are read together: a mistake once, where the check that is about it fails."""

from collections.abc import Sequence

from graders.judge.verdict import Verdict

HOLDS = {  # by check: what has to hold before others can be judged
    "value": "the value is right",
    "gradient": "the gradient is right",
    "second_order": "the second order is right",
    "contract": "the contract holds",
    "count": "the count is right",
}
HOME = ("value", "gradient")  # looks that bear the name of the check that is about them


def once(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the message of each verdict; one line in place of a paragraph that another of the same task says.

    A paragraph is said where the check is about the mistake, else where it comes first. A wrong value or gradient
    that other checks stumble over, too, is said by the check of that name.

    Args:
        verdicts: of one notebook, in the order of its cells.
    """
    said: dict[tuple[str, str], Verdict] = {}
    for verdict in sorted(verdicts, key=lambda v: bool(v.after)):
        if verdict.earned < verdict.points:
            said.setdefault((verdict.task, verdict.mistake or verdict.message), verdict)
            if verdict.check in HOME:
                said.setdefault((verdict.task, verdict.check), verdict)
    return [_line(verdict, said) or verdict.message for verdict in verdicts]


def _line(verdict: Verdict, said: dict[tuple[str, str], Verdict]) -> str:
    """Return the one line, "" where the verdict speaks for itself."""
    if verdict.earned >= verdict.points:
        return ""
    if verdict.after and not verdict.mistake:  # gradcheck, of a wrong value
        return waits(verdict.after)
    other = said[verdict.task, verdict.mistake or verdict.message]
    if other is verdict and not verdict.mistake and verdict.look in HOME:
        other = said.get((verdict.task, verdict.look), verdict)
    return "" if other is verdict else waits(other.check)


def waits(check: str) -> str:
    """Return the line of a check that waits for another: "Judged once the gradient is right."."""
    words = check.replace("_", " ")
    return f"Judged once {HOLDS.get(check) or f'the check of {words} passes'}."
