"""The download of who learns alone: the class's, and a coach that runs with nothing of the repository beside it."""

import argparse
import json
import os
import shutil
import subprocess
import sys

import pytest

from graders import cli
from tests.book.test_places import all_places
from tests.tools.test_students import unpack
from tools import coach_commands, release, students


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """What a class gets."""
    return unpack(tmp_path_factory.mktemp("student"), students.NAME)


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """What somebody gets who learns alone."""
    return unpack(tmp_path_factory.mktemp("study"), students.STUDY)


def test_the_coach_makes_the_only_difference(unpacked, studied, tmp_path):
    small, large = release.files(unpacked), release.files(studied)
    assert small.keys() < large.keys()
    more = {name.split("/")[0] for name in large.keys() - small.keys()}
    assert more == {"graders", "pyproject.toml"}
    assert {name for name in small if small[name] != large[name]} == {
        "README.md", "AGENTS.md", "requirements.txt", "book/setup.md"
    }  # fmt: skip
    assert release.files(unpack(tmp_path, students.NAME, coach=True)) == large


def test_who_learns_alone_has_nothing_that_grades_a_class(studied):
    rooms = {path.name for path in (studied / "graders").iterdir()}
    assert {"coach", "judge", "inside", "sets"} <= rooms and not rooms & {"classroom", "engine", "cli.py"}


@pytest.mark.parametrize("archive", ["unpacked", "studied"])
def test_each_place_that_a_verdict_leads_to_is_in_the_archive(archive, request):
    course = request.getfixturevalue(archive)
    found = all_places()
    files = {place.file: (course / place.file).read_text(encoding="utf-8") for place in found}
    lines = {
        place: f"# {place.heading}"
        if place.file.endswith(".md")
        else json.dumps(f"# {place.heading}", ensure_ascii=False)
        for place in found
    }
    lost = {line for place, line in lines.items() if line.strip('"') not in files[place.file]}
    assert len(found) > 150 and sorted(lost) == []


def alone(folder, *arguments):
    """Run Python with these arguments in a folder, with nothing of this repository on its path."""
    module = arguments[0] == "-m"
    code = (
        f"import runpy, sys; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f)]; {OWN[module]}"
    )
    command = [sys.executable, "-c", code, *arguments[1:]]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "GRADERS_STUDY")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


# Python finds the graders of this repository by a finder of its environment's, which goes first.
OWN = ["exec(sys.argv[1])", "sys.argv.pop(0); runpy.run_module(sys.argv[0], alter_sys=True, run_name='__main__')"]
IMPORT_ALL = """
import importlib, pathlib
for path in sorted(pathlib.Path("graders").rglob("*.py")):
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    if not module.endswith("__main__"):
        importlib.import_module(module)
assert pathlib.Path(importlib.import_module("graders").__file__).parent == pathlib.Path("graders").resolve()
"""


def test_all_that_the_coach_needs_is_there(studied):
    done = alone(studied, "-c", IMPORT_ALL)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_missing_would_be_missed(studied, tmp_path):
    shutil.copytree(studied / "graders", tmp_path / "graders")
    (tmp_path / "graders/judge/looks.py").unlink()
    assert "No module named 'graders.judge.looks'" in alone(tmp_path, "-c", IMPORT_ALL).stderr


def test_both_commands_run_where_it_was_unpacked(studied):
    done = alone(studied, "-m", "graders", "study")
    assert done.returncode == 0 and "Square" in done.stdout, done.stderr
    done = alone(studied, "-m", "graders", "coach", "exercises/01_relu/relu.ipynb", "Square", "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["tasks"][0]["task"] == "Square", done.stderr
    done = alone(studied, "-m", "graders", "grade", "relu")
    assert done.returncode == 2 and "choose from" in done.stderr


def test_a_test_file_is_judged_where_it_was_unpacked(studied, tmp_path):
    """What runs it is started by its path, so nothing imports it: it has to be in the archive all the same."""
    from graders.sets.sigmoid.sigmoid_tests import task

    exercise = studied / "exercises/02_sigmoid/sigmoid.ipynb"
    texts = {"right": task.solutions["terse"], "wrong": task.mistakes[1].source, "untouched": ""}
    said = {}
    for name, text in texts.items():
        notebook = json.loads(exercise.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if text and cell["metadata"].get("nbgrader", {}).get("grade_id") == task.name:
                cell["source"] = f"{task.first_line}\n{text}"
        (tmp_path / name).mkdir()
        path = tmp_path / name / "sigmoid.ipynb"
        path.write_text(json.dumps(notebook), encoding="utf-8")
        done = alone(studied, "-m", "graders", "coach", str(path), task.name, "--json")
        ((check,),) = [told["checks"] for told in json.loads(done.stdout)["tasks"]]
        said[name] = check["state"], check["verdict"]["message"]
    assert said["right"] == ("holds", "Catches 12 of 12 wrong Sigmoids and passes the 4 right ones.")
    assert said["wrong"][0] == "not yet" and said["wrong"][1].startswith("Catches 3 of 12 wrong Sigmoids")
    assert said["untouched"] == ("not yet", "SigmoidTests is not written yet.")


def test_the_commands_have_the_options_of_the_whole_course():
    """Here they are a part of the graders' command line, in a download they stand alone."""
    whole, own = (parsed(main) for main in (cli._parser, coach_commands.parser))
    assert own == {command: whole[command] for command in ("coach", "study")}


def parsed(parser):
    """The options of each command of a command line, and what they say of themselves."""
    (commands,) = [action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return {
        name: {action.dest: (action.option_strings, action.help) for action in sub._actions if action.dest != "verbose"}
        for name, sub in commands.choices.items()
    }
