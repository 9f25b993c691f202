"""What a class did: item analysis of its verdicts, and which students and answers to look at.

Nothing here reads a file: `Handed` holds what is known of one submission, and the functions count.

Facility and discrimination are those of classical test theory (Ebel and Frisbie, Essentials of Educational Measurement,
1991, chapters 13 and 14): the mean share of an item's points, and the correlation of that share with the points that
the student got for the rest of the set. For an item that gives all or nothing that is the point-biserial correlation,
corrected for the item's own part in the total.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import correlation, fmean, median, quantiles

from graders.judge.places import Place, known
from graders.judge.places import place as place_of
from graders.judge.verdict import FORM, REPLY, Verdict

FEW = 10  # answers; below this many no correlation is told: chance would speak
DROP = 0.25  # of a set's points: who falls this far below what they used to have is named
BINS = 10  # of a distribution
BEFORE = (
    ("more than three days before", 72.0),
    ("one to three days before", 24.0),
    ("on the last day", 1.0),
    ("in the last hour", 0.0),
)
NO_ANSWER = {REPLY, FORM, "exists"}  # looks of a verdict that says nothing about an answer


@dataclass(frozen=True)
class Handed:
    """One submission of a set.

    Args:
        student, assignment: whose it is, and of which set.
        score: points, late penalties taken off; None: not graded.
        verdicts: what its checks said.
        at: when it was handed in, in UTC without a zone as nbgrader has it; None: not known.
        due: when the set is due, likewise.
        tries: how often the coach was asked, by task, where the student's file says so.
    """

    student: str
    assignment: str
    score: float | None
    verdicts: tuple[Verdict, ...] = ()
    at: datetime | None = None
    due: datetime | None = None
    tries: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """A check, as the class met it.

    Args:
        task, check: their names.
        points: what it is worth.
        answers: how many were judged.
        full, none: how many got all of the points, and how many none.
        facility: the mean share of the points, from 0 to 1.
        discrimination: the correlation with the rest of the set, from -1 to 1; None: fewer than `FEW` answers, or all
            of them alike.
    """

    task: str
    check: str
    points: float
    answers: int
    full: int
    none: int
    facility: float
    discrimination: float | None


@dataclass(frozen=True)
class Made:
    """A known mistake, and who made it.

    Args:
        task, check, name: the task, the check that it lost first, the mistake's name.
        message: what its authors were told.
        students: who made it.
        share: of those who handed the set in.
        place: where the book treats it.
    """

    task: str
    check: str
    name: str
    message: str
    students: tuple[str, ...]
    share: float
    place: Place | None


@dataclass(frozen=True)
class Cluster:
    """Answers that lose points, that no known mistake explains, and that all behave alike.

    Args:
        task: the task.
        losses: the checks that were lost: name, kind of the difference, the failing case.
        message: what the first of these checks said.
        students: whose answers they are.
    """

    task: str
    losses: tuple[tuple[str, str, str], ...]
    message: str
    students: tuple[str, ...]


@dataclass(frozen=True)
class Overview:
    """A set, as the class did it.

    Args:
        assignment: its name.
        points: what it is worth.
        handed: how many handed it in; `graded` of them have a score.
        scores: of those, ascending.
        histogram: how many scores lie in each of `BINS` bins from 0 to `points`; full points are in the last.
        times: when they came: a word and a number each.
        late: how many came after the due date.
        items, mistakes, clusters: see there; mistakes and clusters with the largest first.
        tries: by task, how often the coach was asked by those whose file says so, ascending.
    """

    assignment: str
    points: float
    handed: int
    graded: int
    scores: tuple[float, ...]
    histogram: tuple[int, ...]
    times: tuple[tuple[str, int], ...]
    late: int
    items: tuple[Item, ...]
    mistakes: tuple[Made, ...]
    clusters: tuple[Cluster, ...]
    tries: Mapping[str, tuple[int, ...]]

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """The lower quartile, the median and the upper quartile of the scores.

        Raises:
            ValueError: nothing is graded.
        """
        if not self.scores:
            raise ValueError("nothing is graded")
        if len(self.scores) == 1:
            return (self.scores[0],) * 3
        low, middle, high = quantiles(self.scores, n=4, method="inclusive")
        return low, middle, high


@dataclass(frozen=True)
class Concern:
    """A student to talk to, and why."""

    student: str
    why: str


def overview(assignment: str, points: float, handed: Sequence[Handed]) -> Overview:
    """Return a set as the class did it.

    Args:
        assignment: the set.
        points: what it is worth.
        handed: its submissions, one a student.
    """
    graded = [one for one in handed if one.score is not None]
    scores = tuple(sorted(one.score for one in graded if one.score is not None))
    histogram = [0] * BINS
    for score in scores:
        histogram[min(int(BINS * score / points), BINS - 1) if points else 0] += 1
    tries: dict[str, list[int]] = defaultdict(list)
    for one in handed:
        for task, count in one.tries.items():
            tries[task].append(count)
    return Overview(
        assignment,
        points,
        len(handed),
        len(graded),
        scores,
        tuple(histogram),
        hand_ins(handed),
        sum(one.at is not None and one.due is not None and one.at > one.due for one in handed),
        items(graded),
        mistakes(graded),
        clusters(graded),
        {task: tuple(sorted(counts)) for task, counts in tries.items()},
    )


def hand_ins(handed: Iterable[Handed]) -> tuple[tuple[str, int], ...]:
    """Return when submissions came: before the due date where there is one, else by day."""
    known_times = [(one.at, one.due) for one in handed if one.at is not None]
    if any(due for _, due in known_times):
        found = Counter(_span(at, due) for at, due in known_times)
        words = [*(word for word, _ in BEFORE), "late", "no due date"]
        return tuple((word, found[word]) for word in words if word != "no due date" or found[word])
    days = Counter(at.date().isoformat() for at, _ in known_times)
    return tuple(sorted(days.items()))


def _span(at: datetime, due: datetime | None) -> str:
    if due is None:
        return "no due date"
    hours = (due - at).total_seconds() / 3600
    return next((word for word, least in BEFORE if hours >= least), "late")


# --- checks -----------------------------------------------------------------------------------------------------------


def items(graded: Sequence[Handed]) -> tuple[Item, ...]:
    """Return each check of a set; an answer whose check gave no verdict has none of its points."""
    order: dict[tuple[str, str], float] = {}
    for one in graded:
        for verdict in one.verdicts:
            if verdict.look != FORM:
                order.setdefault((verdict.task, verdict.check), verdict.points)
    judged = [one for one in graded if one.verdicts]  # the others were graded elsewhere
    earned = [{(v.task, v.check): v.earned for v in one.verdicts} for one in judged]
    found = []
    for (task, check), points in order.items():
        if not points:
            continue
        shares = [have.get((task, check), 0.0) / points for have in earned]
        rest = [sum(have.values()) - have.get((task, check), 0.0) for have in earned]
        full, none = sum(share == 1 for share in shares), sum(share == 0 for share in shares)
        found.append(Item(task, check, points, len(shares), full, none, fmean(shares), _correlation(shares, rest)))
    return tuple(found)


def _correlation(shares: Sequence[float], rest: Sequence[float]) -> float | None:
    if len(shares) < FEW or len(set(shares)) == 1 or len(set(rest)) == 1:
        return None
    return correlation(shares, rest)


# --- mistakes ---------------------------------------------------------------------------------------------------------


def mistakes(graded: Sequence[Handed]) -> tuple[Made, ...]:
    """Return the known mistakes that were made, the commonest first; one that several checks name is counted once."""
    made: dict[tuple[str, str], dict[str, Verdict]] = defaultdict(dict)
    for one in graded:
        for verdict in one.verdicts:
            if verdict.mistake:
                kept = made[verdict.task, verdict.mistake].setdefault(one.student, verdict)
                if kept.after and not verdict.after:  # the check that the mistake is about says it
                    made[verdict.task, verdict.mistake][one.student] = verdict
    found = []
    for (task, name), by_student in made.items():
        message, _ = Counter(verdict.message for verdict in by_student.values()).most_common(1)[0]
        check = next(verdict.check for verdict in by_student.values() if verdict.message == message)
        where = place_of(task, check, name) if known(task, check) else None
        students = tuple(sorted(by_student))
        found.append(Made(task, check, name, message, students, len(students) / len(graded), where))
    return tuple(sorted(found, key=lambda one: (-len(one.students), one.task, one.name)))


def clusters(graded: Sequence[Handed]) -> tuple[Cluster, ...]:
    """Return the answers that no known mistake explains, those together that lose the same checks in the same cases."""
    alike: dict[tuple[str, tuple[tuple[str, str, str], ...]], list[tuple[str, Verdict]]] = defaultdict(list)
    for one in graded:
        lost: dict[str, list[Verdict]] = defaultdict(list)
        for verdict in one.verdicts:
            if verdict.earned < verdict.points:
                lost[verdict.task].append(verdict)
        for task, verdicts in lost.items():
            unwritten = any(verdict.message.endswith("is not written yet.") for verdict in verdicts)
            if unwritten or any(verdict.mistake or verdict.look in NO_ANSWER for verdict in verdicts):
                continue
            losses = tuple((v.check, v.look, _kind(v)) for v in verdicts)
            alike[task, losses].append((one.student, verdicts[0]))
    found = [
        Cluster(task, losses, of[0][1].message, tuple(sorted(student for student, _ in of)))
        for (task, losses), of in alike.items()
    ]
    return tuple(sorted(found, key=lambda one: (-len(one.students), one.task, one.losses)))


def _kind(verdict: Verdict) -> str:
    """Return the failing case, and what was raised in it, without the numbers that a seed draws."""
    case = verdict.evidence.get("case", "").partition(":")[0]
    raised = verdict.evidence.get("raised", "").partition(":")[0]
    return f"{case}, {raised}".strip(", ")


# --- the class --------------------------------------------------------------------------------------------------------


def concerns(
    sets: Sequence[str], handed: Mapping[str, Mapping[str, Handed]], worth: Mapping[str, float]
) -> list[Concern]:
    """Return the students to talk to, by name: who stopped handing in, earned nothing last, or fell behind.

    A set counts when half of the class has handed it in, so that one that is still open accuses nobody.

    Args:
        sets: in the order of the course.
        handed: submissions by student and set, a row for each student of the class.
        worth: points by set.
    """
    counts = [name for name in sets if 2 * sum(name in row for row in handed.values()) >= len(handed)]
    found = []
    for student in sorted(handed):
        row = handed[student]
        last = max((i for i, name in enumerate(sets) if name in row), default=-1)
        missing = [name for name in sets[last + 1 :] if name in counts]
        if counts and not row:
            found.append(Concern(student, f"handed in none of the {len(counts)} sets that most have handed in"))
        elif len(missing) >= 2:
            text = f"handed in nothing since {sets[last]}: {len(missing)} sets are missing"
            found.append(Concern(student, text))
        elif last >= 0 and row[sets[last]].score == 0:
            found.append(Concern(student, f"earned nothing in {sets[last]}: was it handed in as it was given out?"))
        elif (fell := _fall(row, counts, worth)) is not None:
            before, now = fell
            text = f"had {before:.0%} of the points before, and {now:.0%} in {counts[-1]}"
            found.append(Concern(student, text))
    return found


def _fall(row: Mapping[str, Handed], counts: Sequence[str], worth: Mapping[str, float]) -> tuple[float, float] | None:
    """Return the median share of points before the last set and the share in it, where it is `DROP` lower."""
    shares = {name: row[name].score for name in counts if name in row and worth.get(name)}
    parts = {name: score / worth[name] for name, score in shares.items() if score is not None}
    earlier = [share for name, share in parts.items() if name != counts[-1]]
    if len(earlier) < 2 or counts[-1] not in parts:
        return None
    before, now = median(earlier), parts[counts[-1]]
    return (before, now) if now <= before - DROP else None


def tomorrow(found: Overview) -> str:
    """Return what to teach again, in one paragraph made of the figures; "": nothing stands out.

    What stands out is a known mistake that one in twenty made, three people at least, or a check that has less than
    half of its points.
    """
    common = [one for one in found.mistakes if len(one.students) >= 3 and one.share >= 0.05][:3]
    hard = sorted((one for one in found.items if one.facility < 0.5 and one.answers >= 3), key=lambda one: one.facility)
    parts = []
    for i, one in enumerate(common):
        where = f" ({one.place.title})" if one.place else ""
        who = f"{len(one.students)} of {found.graded}"
        parts.append(
            f"Begin with {one.task}: {who} made the same mistake there{where}. They were told: “{one.message}”"
            if i == 0
            else f"Then {one.task}, {who}{where}: “{one.message}”"
        )
    if hard:
        item = hard[0]
        name = f"{item.task} {item.check.replace('_', ' ')}"
        share = f"the class has {item.facility:.0%} of its points, and {item.none} of {item.answers} have none"
        parts.append(f"The hardest check is {name}: {share}.")
    if parts and found.clusters:
        several = [one for one in found.clusters if len(one.students) > 1]
        if several:
            parts.append(
                f"{len(several[0].students)} answers to {several[0].task} fail alike in a way that has no name yet: "
                "read one of them first."
            )
    return " ".join(parts)
