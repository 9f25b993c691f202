"""The sample class scores as it is said to, and the commands of instructors.md do on it what that page says.

`make` grades the whole class; here every answer is judged in this process, and three students go the whole way.
"""

import json
import re
import shlex
import shutil
from contextlib import suppress
from types import SimpleNamespace

import nbformat
import pytest

from graders.classroom import report, sample
from graders.classroom.course import Course, optional
from graders.inside.operation import local
from graders.judge.once import once
from graders.sets import load
from tests.path.course_maker import ROOT

EXPECTED = json.loads((ROOT / "sample/expected.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "book/instructors.md").read_text(encoding="utf-8")
FEW = ("hana", "ivo", "jun")


@pytest.fixture(scope="module")
def course(tmp_path_factory, run):
    """A clone's course folder with three of the class, after `python -m graders sample`."""
    root = tmp_path_factory.mktemp("clone")
    shutil.copy(ROOT / "nbgrader_config.py", root)
    for name in ("solutions", "exercises"):
        shutil.copytree(ROOT / name, root / name)
    for name in FEW:
        shutil.copytree(ROOT / "sample" / name, root / "sample" / name)
    shutil.copy(ROOT / "sample/damage.toml", root / "sample")
    expected = {name: EXPECTED[name] for name in FEW}
    (root / "sample/expected.json").write_text(json.dumps(expected), encoding="utf-8")
    return SimpleNamespace(root=root, done=run(root, "graders", "sample"))


def test_three_students_go_the_whole_way(course):
    assert course.done.returncode == 0, course.done.stdout + course.done.stderr
    assert "Traceback" not in course.done.stderr
    for name in FEW:
        for result in EXPECTED[name].values():
            assert all(line in course.done.stdout for line in result["lost"])
            assert all(line in course.done.stderr for line in result["faults"])
    pages = {path.relative_to(course.root / "feedback").as_posix() for path in course.root.glob("feedback/*/*/*.html")}
    assert pages == {
        f"{student}/{name}/{name.partition('_')[2]}.html"
        for student in FEW
        for name, result in EXPECTED[student].items()
        if result["score"] is not None
    }


@pytest.mark.filterwarnings("ignore::UserWarning")  # what wrong answers deserve
@pytest.mark.parametrize(
    ("student", "assignment"),
    [(s, name) for s, sets in EXPECTED.items() for name, result in sets.items() if result["score"] is not None],
)
def test_every_answer_is_judged_as_expected(student, assignment):
    slug = assignment.partition("_")[2]
    tasks, names, lost, judged = load(slug), _first_cell(assignment), [], []
    answers = sample.blocks((ROOT / "sample" / student / f"{slug}.py").read_text(encoding="utf-8"))
    for task, code in answers.items():
        if code.startswith("%%"):
            verdicts = [tasks[task].judge(check.name, code.partition("\n")[2]) for check in tasks[task].checks]
        else:
            with suppress(NameError):  # what an answer needs is not imported: its task is not there
                exec(code, names)
            if task not in names:
                continue
            operation = local(eval(tasks[task].call.partition("(")[0], names))
            verdicts = [tasks[task].judge(check.name, operation) for check in tasks[task].checks]
        judged.append(task)
        lines = [
            report.Lost("", "", " ".join((v.task, v.check.replace("_", " "))), v.earned, v.points, said)
            for v, said in zip(verdicts, once(verdicts), strict=True)
        ]
        lost += [str(line).strip() for line in lines if line.earned < line.points]
    said = EXPECTED[student][assignment]["lost"]
    assert lost == [line for line in said if line.startswith(tuple(f"{task} " for task in judged))]


def _first_cell(assignment):
    """What a notebook's first code cell leaves behind: the imports that answers may use."""
    notebook = nbformat.read(ROOT / "exercises" / assignment / f"{assignment.partition('_')[2]}.ipynb", as_version=4)
    names: dict[str, object] = {}
    exec(next(cell.source for cell in notebook.cells if cell.cell_type == "code"), names)
    return names


def test_the_class_is_one_worth_grading():
    """In each set some right in all and some losing points; two damaged notebooks or more."""
    sets = sorted({name for results in EXPECTED.values() for name in results})
    for name in sets:
        scores = [results[name]["score"] for results in EXPECTED.values() if name in results]
        assert len(scores) >= (8 if name in sets[:2] else 4), name
        points = 10 if optional(name) else 20
        assert points in scores and any(score < points for score in scores if score is not None), name
    assert sum(all(r["score"] == 20 for name, r in s.items() if not optional(name)) for s in EXPECTED.values()) >= 2
    assert sum(bool(result["faults"]) for sets in EXPECTED.values() for result in sets.values()) >= 2


@pytest.mark.parametrize(
    ("student", "sets", "checks"),
    [
        (
            "diego",
            5,
            "(Binarize|GradientReversal|Legendre|hvp|Linear|BroadcastMul|Swish|SwiGLU) (?!value)|hvp value|"
            "(LogSumExp|StreamedSoftmax|CrossEntropy|FakeQuantize|FakeQuantizePerChannel|LSQ) (?!value)",
        ),
        (
            "elif",  # a graph or a matrix that is kept earns little in 09 and 10, though all gradients are right
            6,
            ".* (second order|ends|extremes|zero|memory)|checkpoint (?!value)|MixedLinear contract|"
            "FlashAttention (gradient|causal)",
        ),
        ("farah", 6, ".* contract"),
    ],
)
def test_some_make_one_mistake_everywhere(student, sets, checks):
    """No upstream gradient, an intermediate of forward saved, tensors on ctx: in all that they hand in from 03 on."""
    results = [result for name, result in EXPECTED[student].items() if name >= "03" and not optional(name)]
    assert len(results) >= sets
    for result in results:
        assert result["lost"]
        assert all(re.match(rf"({checks}).*:", line) for line in result["lost"]), result["lost"]


@pytest.mark.parametrize(("key", "value"), [("score", 19), ("lost", []), ("faults", ["another"])])
def test_a_difference_is_named(key, value):
    wrong = json.loads(json.dumps(EXPECTED))
    name = sorted(wrong["elif"])[0]
    wrong["elif"][name][key] = value
    (line,) = sample.differences(EXPECTED, wrong)
    assert line.startswith(f"elif, {name}: {key} {value!r}, expected")


def test_a_missing_student_is_named():
    fewer = {name: sets for name, sets in EXPECTED.items() if name != "amara"}
    assert all(line.endswith("missing") for line in sample.differences(EXPECTED, fewer))
    assert all(line.endswith("not expected") for line in sample.differences(fewer, EXPECTED))
    assert sample.differences(EXPECTED, fewer)


def test_of_one_set_the_others_stay_as_they_were():
    new = {"amara": {"01_relu": {"score": 1.0}}, "zoe": {"01_relu": {"score": 2.0}}}
    part = sample.of_sets(EXPECTED, ["01_relu"])
    assert {name for sets in part.values() for name in sets} == {"01_relu"}
    assert sample.merged(EXPECTED, part, ["01_relu"]) == EXPECTED
    found = sample.merged(EXPECTED, new, ["01_relu"])
    assert found["amara"] == EXPECTED["amara"] | new["amara"] and found["zoe"] == new["zoe"]
    assert "01_relu" not in found["bjorn"] and found["bjorn"]["02_sigmoid"] == EXPECTED["bjorn"]["02_sigmoid"]


def test_someone_elses_work_is_left_alone(tmp_path):
    for name in ("sample", "solutions"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    (tmp_path / "submitted/zoe").mkdir(parents=True)
    (tmp_path / "feedback/amara").mkdir(parents=True)
    (tmp_path / "feedback/.01_relu.json").write_text("{}", encoding="utf-8")  # an earlier run's, of no person
    (tmp_path / "submitted/jane doe").mkdir(parents=True)
    said = "jane doe is not in the sample class, nor is 1 more: sample would remove submitted/; run it in another clone"
    with pytest.raises(sample.SampleError, match=said):
        sample.clear(Course(tmp_path))
    (tmp_path / "submitted/jane doe").rmdir()
    with pytest.raises(sample.SampleError, match="zoe is not in the sample class: sample would remove submitted/;"):
        sample.clear(Course(tmp_path))
    assert (tmp_path / "feedback/amara").is_dir()
    (tmp_path / "submitted/zoe").rmdir()
    with Course(tmp_path).gradebook() as gradebook:
        gradebook.add_student("yan")
    with pytest.raises(sample.SampleError, match=r"yan is not in the sample class: sample would remove gradebook\.db;"):
        sample.clear(Course(tmp_path))
    with Course(tmp_path).gradebook() as gradebook:
        gradebook.remove_student("yan")
    sample.clear(Course(tmp_path))
    assert not (tmp_path / "feedback").exists() and not (tmp_path / "gradebook.db").exists()


def test_a_second_run_clears_what_the_first_one_left(course, tmp_path):
    for name in ("sample", "solutions", *sample.STEPS):
        shutil.copytree(course.root / name, tmp_path / name)
    for name in ("nbgrader_config.py", "gradebook.db"):
        shutil.copy(course.root / name, tmp_path)
    assert [*(tmp_path / "feedback").glob(".*.json")], "which pages were made is noted no longer"
    sample.clear(Course(tmp_path))
    assert not any((tmp_path / name).exists() for name in (*sample.STEPS, "gradebook.db"))


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("damage.toml", '"cut short"', '"chewed by a dog"', "no damage of the kind"),
        ("amara/relu.py", "# %% Square", "# %% Squares", "no answer cell 'Squares'"),
        ("amara/relu.py", "# %% Square", "# %% test_Square_value", "no answer cell 'test_Square_value'"),
    ],
)
def test_a_faulty_sample_is_refused(tmp_path, file, old, new, said):
    for name in ("sample", "exercises"):
        shutil.copytree(ROOT / name, tmp_path / name)
    path = tmp_path / "sample" / file
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(sample.SampleError, match=said):
        sample.build(tmp_path, ["01_relu"])


def documented() -> list[tuple[str, list[str]]]:
    """The commands of instructors.md, each with the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line.strip() not in ("", "..."):
                found[-1][1].append(line)
    return found


def _plain(text: str) -> str:
    """Without times, counts and who was ready when: three students are fewer than ten."""
    text = re.sub(r"\b\d+ of( \d+| them)", "N of N", re.sub(r"\d+:\d\d", "M:SS", text))
    text = re.sub(r"\b\d+ submissions, \d+ to grade", "N submissions, N to grade", text)
    return re.sub(r"N of N, \w+(, [\d.]+ a (second|minute), M:SS left)?$", "N of N, STUDENT", text)


def test_the_documented_commands_do_what_the_page_says(course, run):
    commands = [(command, said) for command, said in documented() if command.split()[0] in ("nbgrader", "python")]
    assert len(commands) >= 6
    scores = {s: {name: r["score"] for name, r in sets.items() if not optional(name)} for s, sets in EXPECTED.items()}
    table = report.table(scores, dict.fromkeys(next(iter(scores.values())), 20.0)).splitlines()
    for command, said in commands:
        words = shlex.split(command)
        words = words[2:] if words[0] == "python" else words
        done = course.done if words[:2] == ["graders", "sample"] else run(course.root, *words)
        assert done.returncode == (words[:2] == ["graders", "grade"]), (command, done.stdout, done.stderr)
        printed = [_plain(line) for line in (done.stdout + done.stderr).splitlines()]
        for line in said:
            assert _plain(line) in printed or line in table, (command, line, done.stdout, done.stderr)
