"""What Gradescope runs: the archive unpacked as there, its script run on a hand-in, the results as it reads them."""

import base64
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from graders.classroom.autograder import for_github, of_document
from graders.classroom.errors import CourseError
from graders.classroom.sample import blocks
from tests.path.course_maker import ROOT, edit
from tools import github, gradescope


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """The folder that is /autograder in Gradescope's container, with the archive of set 01 unpacked in it."""
    folder = tmp_path_factory.mktemp("autograder")
    assert gradescope.main(["relu", "--seed", "7", "--out", str(folder / "relu.zip")]) == 0
    subprocess.run(["unzip", "-q", "../relu.zip"], cwd=_made(folder / "source"), check=True)
    return folder


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.fixture
def submission(home) -> Path:
    shutil.rmtree(home / "submission", ignore_errors=True)
    (home / "results/results.json").unlink(missing_ok=True)
    return _made(home / "submission")


def graded(home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, "AUTOGRADER": str(home), "PYTHON": sys.executable, **environment}
    own.pop("PYTHONPATH", None)
    return subprocess.run(["./run_autograder"], cwd=home / "source", env=own, capture_output=True, text=True)


def results(home: Path) -> dict:
    return json.loads((home / "results/results.json").read_text())


def fill(path: Path, **answers: str) -> None:
    """Hand in set 01 with these answers."""
    shutil.copy(ROOT / "exercises/01_relu/relu.ipynb", path)

    def change(data: dict) -> None:
        for cell in data["cells"]:
            name = cell["metadata"].get("nbgrader", {}).get("grade_id")
            cell["source"] = answers.get(name, cell["source"])

    edit(path, change)


def test_a_hand_in_gets_a_line_for_each_check(home, submission):
    answers = blocks((ROOT / "sample/diego/relu.py").read_text(encoding="utf-8"))
    fill(submission / "relu.ipynb", **answers)
    done = graded(home)
    assert done.returncode == 0, done.stderr
    found = results(home)
    assert found["score"] == sum(test["score"] for test in found["tests"]) < 20
    assert sum(test["max_score"] for test in found["tests"]) == 20
    assert all((test["status"] == "passed") == (test["score"] == test["max_score"]) for test in found["tests"])
    lost = next(test for test in found["tests"] if "to be pasted into a cell" in test["output"])
    code = lost["output"].partition(":\n\n")[2]
    compile(code, "pasted", "exec")

    (submission / "relu.ipynb").write_text("{")  # the next one, in the same container: nothing of the last is left
    assert graded(home).returncode == 0
    assert results(home)["score"] == 0 and "is not JSON" in results(home)["output"]
    assert results(home)["tests"] == [{"name": "Graded", "score": 0.0, "max_score": 20.0}]


def test_what_is_no_notebook_of_the_set_is_told(home, submission):
    (submission / "essay.txt").write_text("My answer is 7.")
    assert graded(home).returncode == 0
    found = results(home)
    assert found["score"] == 0 and "hand in relu.ipynb" in found["output"]
    assert str(home) not in found["output"]


def test_where_the_machine_is_at_fault_nobody_has_nought(home, submission, tmp_path):
    fill(submission / "relu.ipynb")
    (tmp_path / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    done = graded(home, PATH=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 1 and done.stderr.startswith("not graded: graders: "), done.stderr
    assert "Traceback" not in done.stderr and not (home / "results/results.json").exists()


def test_a_fault_of_the_machine_s_in_grading_is_no_nought():
    """What keeps a hand-in from being graded is its author's or the machine's: the code of the problem tells."""
    problem = {"file": "relu.ipynb", "what": "failed", "remedy": "Run it again."}

    def document(code: str) -> dict:
        return {"submissions": [{"score": None, "verdicts": [], "problems": [problem | {"code": code}]}]}

    assert of_document(document("E202"), 20)["score"] == 0
    for code in ("E508", "E509", "E510"):
        with pytest.raises(CourseError, match=r"relu\.ipynb: failed"):
            of_document(document(code), 20)


def test_the_archive_is_the_same_twice_and_its_scripts_can_be_run(tmp_path, capsys):
    for name in ("a.zip", "b.zip"):
        assert gradescope.main(["01_relu", "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        assert "--seed" not in archive.read("run_autograder").decode()
    assert {name for name, mode in modes.items() if mode & stat.S_IXUSR} == {"setup.sh", "run_autograder"}
    assert "solutions/01_relu/relu.ipynb" in modes and not any("02_" in name for name in modes)
    for script in ("setup.sh", "run_autograder"):
        text = zipfile.ZipFile(tmp_path / "a.zip").read(script)
        assert subprocess.run(["bash", "-n"], input=text, check=False).returncode == 0
    assert gradescope.main(["rely", "--out", str(tmp_path / "c.zip")]) == 1
    assert "there is no set 'rely'; there are: 01_relu" in capsys.readouterr().err and not (tmp_path / "c.zip").exists()


def test_github_classroom_reads_what_a_push_earned(tmp_path):
    """As in the workflow: two checkouts, the script, and an output of the step that the reporter decodes."""
    assert github.main(["relu", "--seed", "7", "--out", str(tmp_path / "relu.zip")]) == 0
    subprocess.run(["unzip", "-q", "relu.zip"], cwd=tmp_path, check=True)
    answers = blocks((ROOT / "sample/diego/relu.py").read_text(encoding="utf-8"))
    fill(tmp_path / "template/relu.ipynb", **answers)
    (tmp_path / "outputs").write_text("before=1\n")
    own = {**os.environ, "GITHUB_OUTPUT": str(tmp_path / "outputs"), "PYTHON": sys.executable}
    own.pop("PYTHONPATH", None)
    command = ["bash", "grader/run_github", "template"]
    done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, line = (tmp_path / "outputs").read_text().splitlines()
    found = json.loads(base64.b64decode(line.removeprefix("result=")))
    assert before == "before=1" and found["max_score"] == 20 and found["status"] == "fail"
    assert 0 < sum(test["score"] for test in found["tests"]) < 20
    lost = next(test for test in found["tests"] if "to be pasted into a cell" in test["test_code"])
    assert lost["status"] == "fail"
    compile(lost["test_code"].partition(":\n\n")[2], "pasted", "exec")


def test_the_workflow_has_the_names_that_the_reporter_looks_for(tmp_path):
    workflow = yaml.safe_load(github.WORKFLOW)
    (job,) = workflow["jobs"].values()
    *_, grade, report = job["steps"]
    assert "run-autograding-tests" in workflow["jobs"] and workflow["permissions"]["checks"] == "write"
    runner = report["with"]["runners"]
    assert report["env"] == {f"{runner.upper()}_RESULTS": f"${{{{ steps.{grade['id']}.outputs.result }}}}"}
    inside = github.files(ROOT, "01_relu", 7)
    students = {name for name in inside if name.startswith("template/")}
    assert students == {f"template/{name}" for name in (
        ".github/workflows/classroom.yml", "constraints.txt", "relu.ipynb", "requirements.txt")}  # fmt: skip
    assert inside["template/relu.ipynb"] == (ROOT / "exercises/01_relu/relu.ipynb").read_text(encoding="utf-8")
    assert "--seed 7" in inside["grader/run_github"] and "grader/run_autograder" not in inside


def test_what_a_student_wrote_is_no_command_to_github_s_runner():
    output = "Wrong.\n  ::add-mask::x\r::set-output name=result::y\nx = 1  ##[error]z"
    test = {"name": "Square value", "score": 0.5, "max_score": 1.0, "output": output}
    (told,) = for_github({"output": "", "tests": [test]})["tests"]
    assert told["score"] == 0.5 and "##[" not in told["test_code"]
    assert not any(line.strip().startswith("::") for line in told["test_code"].splitlines())
    assert told["test_code"].splitlines()[0] == "Wrong."
