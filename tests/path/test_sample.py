"""The sample class scores as it is said to, and the commands of instructors.md do on it what that page says."""

import json
import re
import shlex
import shutil
from types import SimpleNamespace

import pytest

from graders import sample
from graders.course import Course
from tests.path.course_maker import ROOT

EXPECTED = json.loads((ROOT / "sample/expected.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "book/instructors.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def course(tmp_path_factory, run):
    """A clone's course folder after `python -m graders sample`."""
    root = tmp_path_factory.mktemp("clone")
    shutil.copy(ROOT / "nbgrader_config.py", root)
    for name in ("sample", "solutions", "exercises"):
        shutil.copytree(ROOT / name, root / name)
    return SimpleNamespace(root=root, done=run(root, "graders", "sample"))


def test_the_class_scores_as_expected(course):
    assert course.done.returncode == 0, course.done.stdout + course.done.stderr
    assert "Traceback" not in course.done.stderr
    for sets in EXPECTED.values():
        for result in sets.values():
            assert all(line in course.done.stdout for line in result["lost"])
            assert all(line in course.done.stderr for line in result["faults"])
    assert {path.name for path in (course.root / "feedback").rglob("*.html")} == {
        f"{name.partition('_')[2]}.html" for name in Course(course.root).assignments
    }


def test_the_class_is_one_worth_grading():
    """At least eight students with both sets, some right in all, some losing points, two damaged notebooks or more."""
    whole = [s for s, sets in EXPECTED.items() if len(sets) == 2 and all(r["score"] is not None for r in sets.values())]
    assert len(whole) >= 8
    assert sum(all(result["score"] == 20 for result in sets.values()) for sets in EXPECTED.values()) >= 2
    assert sum(bool(result["faults"]) for sets in EXPECTED.values() for result in sets.values()) >= 2


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


def test_someone_elses_work_is_left_alone(tmp_path):
    for name in ("sample", "solutions"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    (tmp_path / "submitted/zoe").mkdir(parents=True)
    (tmp_path / "feedback/amara").mkdir(parents=True)
    with pytest.raises(sample.SampleError, match="zoe is not of the sample class"):
        sample.clear(Course(tmp_path))
    assert (tmp_path / "feedback/amara").is_dir()
    (tmp_path / "submitted/zoe").rmdir()
    with Course(tmp_path).gradebook() as gradebook:
        gradebook.add_student("yan")
    with pytest.raises(sample.SampleError, match="yan is not of the sample class"):
        sample.clear(Course(tmp_path))
    with Course(tmp_path).gradebook() as gradebook:
        gradebook.remove_student("yan")
    sample.clear(Course(tmp_path))
    assert not (tmp_path / "feedback").exists() and not (tmp_path / "gradebook.db").exists()


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
    """Without times, which differ from run to run."""
    return re.sub(r"\d+:\d\d", "M:SS", text)


def test_the_documented_commands_do_what_the_page_says(course, run):
    commands = [(command, said) for command, said in documented() if command.split()[0] in ("nbgrader", "python")]
    assert len(commands) >= 6
    for command, said in commands:
        words = shlex.split(command)
        words = words[2:] if words[0] == "python" else words
        done = course.done if words[:2] == ["graders", "sample"] else run(course.root, *words)
        printed = _plain(done.stdout + done.stderr).splitlines()
        for line in said:
            assert _plain(line) in printed, (command, line, done.stdout, done.stderr)
