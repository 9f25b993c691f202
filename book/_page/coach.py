"""Judge an answer in the page by the graders' own code, and say what it says.

`graders_*` are the graders' modules, which `tools.page_graders` writes for the page's Python; the tasks come as data,
which `tools.page_tasks` writes: cases as code, the right records, what known mistakes do otherwise.
"""

import json

import graders_coach_session as session
import graders_judge_task as judging
import seam
import torch
from graders_inside_observe import observe
from graders_inside_records import Case, Failure, Record

SEED = 0  # the cases are drawn already
LETTERS = {"d": torch.float64, "f": torch.float32, "i": torch.int64, "b": torch.bool}
Refused = seam.Refused


# ------------------------------------------------------------------------------------------------------------- the data


def _value(data):
    """Return what a part of a record is: a tensor, a failure, a tuple of such, or what JSON has."""
    if isinstance(data, list):
        return tuple([_value(each) for each in data])
    if not isinstance(data, dict):
        return data
    if "f" in data:
        stage, kind, message = data["f"]
        return Failure(stage, kind, seam.first(message))
    letter, shape, numbers = data["t"]
    numbers = [float(n) if isinstance(n, str) else n for n in numbers]
    return torch.tensor(numbers, dtype=LETTERS[letter]).reshape(shape)


def _argument(code):
    value = seam.made(code)
    if isinstance(value, torch.Tensor):
        seam.CODES[id(value)] = code
    return value


def _arguments(codes):
    return None if codes is None else tuple([_argument(code) for code in codes])


def _case(data):
    return Case(
        data["name"],
        _arguments(data["args"]),
        tuple(data["keywords"]),
        tuple(data["requires_grad"]),
        None if data["upstream"] is None else _argument(data["upstream"]),
        _arguments(data["directions"]),
        tuple(data["watch"]),
        between=_arguments(data["between"]),
        how=data["how"],
    )


def _record(data, right=None):
    """Return a record; of a mistake's, what is not said is as in the right one."""
    parts = {} if right is None else {name: getattr(right, name) for name in Record._fields}
    for name in data:
        parts[name] = _value(data[name])
    return Record(**parts)


class Task(judging.Task):
    """A task whose cases, right records and mistakes' records are data."""

    def __init__(self, data):
        super().__init__(data["name"], data["call"], None, ())
        checks = []
        self._data = {}
        for check in data["checks"]:
            looks = tuple([getattr(__import__(module), name) for module, name in check["looks"]])
            made = judging.Check(check["name"], 1, check["about"], check["why"], None, looks)
            checks.append(made)
            self._data[made.name] = check
        self.checks = tuple(checks)
        self._changes = {}
        self.index = {}
        for mistake in data["mistakes"]:
            name = mistake["name"]
            self.mistakes.append(judging.Mistake(name, mistake["caught_by"], mistake["message"], None))
            self._changes[name] = mistake["known"]
            self.index[name] = mistake["index"]
        self.unseen = data["unseen"]
        self.left = data["left"]
        self._found_cases = {}
        self._records = {}

    def _expected(self, check, seed):
        if check.name not in self._found_cases:
            data = self._data[check.name]
            self._found_cases[check.name] = [_case(c) for c in data["cases"]], [_record(r) for r in data["right"]]
        return self._found_cases[check.name]

    def _record(self, mistake, check, seed, place):
        key = mistake.name, check.name, place
        if key not in self._records:
            right = self._expected(check, seed)[1][place]
            changed = self._changes[mistake.name][check.name].get(str(place))
            self._records[key] = right if changed is None else _record(changed, right)
        return self._records[key]

    def loses_by(self, mistake, check, seed):
        """Return the look that finds fault with a mistake: the index has it of each."""
        found = self.index[mistake.name][check.name]
        return found[0] if found else ""

    def _near(self, mistake, check, seed, place, yours, looks):
        return True  # it saves running a mistake, and none runs here

    def _proves(self, check, cases):
        return False  # no kernel without autograd

    def _gradcheck(self, check, operation, seed):
        return None  # the numbers are compared as they are

    def _source(self, check, cases, source):
        return None  # nobody's points hang on it

    def _outside(self, check, operation, seed):
        return None  # no memory to be measured

    def _code(self, check, finding, seed):
        return ""  # the reader's cell is above


class Answer:
    """An answer as the judge asks it: each case runs once."""

    proves = False
    source = None

    def __init__(self, apply):
        self._apply = seam.asked(apply)
        self._seen = {}

    def observe(self, cases):
        """Return the records of cases.

        Raises:
            Refused: the page's torch lacks what the answer uses.
        """
        return [self._of(case) for case in cases]

    def _of(self, case):
        if id(case) not in self._seen:
            self._seen[id(case)] = observe(self._apply, case)
        return self._seen[id(case)]


def _upper(text):
    return text[:1].upper() + text[1:]


def judge(task, apply):
    """Return what each check says, as a list of (name, about, state, sentence, next, mistake)."""
    answer = Answer(apply)
    judged = {}
    earlier = []
    said = []
    for check in task.checks:
        try:
            verdict = task.judge(check.name, answer, SEED, judged, [s.verdict for s in earlier if s.state == "not yet"])
        except Refused as error:
            said.append((check.name, check.about, "lacks", str(error) + ".", "", ""))
            continue
        step = session._said(check, verdict, earlier, 0.0)
        earlier.append(step)
        following = "" if "ask the coach" in step.next else step.next  # Run does
        shown = [name + ": " + verdict.evidence[name] for name in ("yours", "expected") if name in verdict.evidence]
        message = step.message
        if step.state == session.FAILS and not verdict.mistake and shown:
            numbers = _upper(", ".join(shown)) + "."
            why = " " + check.why if message.endswith(" " + check.why) else ""
            message = message[: len(message) - len(why)] + " " + numbers + why
        said.append((check.name, check.about, step.state, message, following, verdict.mistake))
    return said


# ---------------------------------------------------------------------------------------------------- what is printed

TASKS = {}  # by name, read once
MARKS = {"holds": "\u2713", "not yet": "\u2717", "waits": "\u2026", "lacks": "?"}
NAMES = [{}]  # where a reader's names are
HEARD = []  # what the coach said last, as data


def load(text):
    """Take up the tasks of a set."""
    for task in json.loads(text):
        TASKS[task["name"]] = Task(task)


def fresh(names):
    """Forget a reader's names, and give the coach."""
    for name in list(names):
        if not name.startswith("_") and name != "zip":
            del names[name]
    names["coach"] = coach
    NAMES[0] = names


def coach(thing, where=""):
    """Judge an answer by its task's checks, and print what each of them says."""
    name = thing if isinstance(thing, str) else getattr(thing, "__name__", "")
    if name not in TASKS:
        known = ", ".join(sorted(TASKS))
        print("No task here is called " + str(name) + ". " + ("There are " + known + "." if known else ""))
        return
    task = TASKS[name]
    NAMES[0]["print"] = lambda *values, **ways: None  # an answer runs dozens of times
    try:
        said = judge(task, thing.apply if hasattr(thing, "apply") else thing)
    finally:
        del NAMES[0]["print"]
    HEARD[:] = said
    held = 0
    for check, _, state, text, following, _ in said:
        held += state == "holds"
        print(MARKS[state] + " " + check.replace("_", " ") + ": " + text + (" " + following if following else ""))
    for check, about in task.unseen:
        print(
            "? "
            + check.replace("_", " ")
            + ": not checked in the page ("
            + about
            + "). The coach in Jupyter checks it."
        )
    total = len(said)
    if held == total:
        if task.unseen:
            print("All " + str(total) + " checks that run in the page hold.")
        else:
            print("All " + str(total) + " checks hold." if total > 1 else "The check holds.")
        print("Not checked in the page: " + task.left + ". The coach in Jupyter checks these.")
