"""Grade one hand-in where a platform has put it, and write its file of results: Gradescope's, or GitHub Classroom's.

    python -m graders.classroom.autograder relu /autograder/submission /autograder/results/results.json
    python -m graders.classroom.autograder relu --form github submission "$GITHUB_OUTPUT"

The form of the results (``tests`` with ``name``, ``score``, ``max_score``, ``output``, ``status``) is that of
Gradescope's autograders in 2026, or that of Classroom's runners: `for_github`. Nothing is written where the machine is
at fault, such as one without a sandbox: the platform then says that the autograder failed, and nobody has nought points
for it.
"""

import argparse
import base64
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graders.classroom.collect import collect
from graders.classroom.course import Course
from graders.classroom.errors import CourseError
from graders.notebook.codes import Code
from graders.notebook.problem import printable

STUDENT = "submission"  # whose it is, the platform knows
PATIENCE = 1200  # seconds for the whole of it, as long as a platform waits at most
FAULTS = {code.number for code in (Code.NOT_EXECUTED, Code.NO_MEMORY, Code.NOT_RECORDED)}  # not the student's
LOST = "The failing case, to be pasted into a cell below your answer:"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code: 0 where the file of results was written."""
    parser = argparse.ArgumentParser(
        prog="python -m graders.classroom.autograder", description="Grade one hand-in, and write a platform's results."
    )
    parser.add_argument("set", metavar="SET", help="the set: 01_relu, or relu for short")
    parser.add_argument("submission", metavar="FOLDER", type=Path, help="what was handed in")
    parser.add_argument("results", metavar="FILE", type=Path, help="the file of results to write")
    parser.add_argument("--seed", metavar="N", default="", help="seed of the hidden inputs")
    parser.add_argument("--form", choices=("gradescope", "github"), default="gradescope", help="whose results")
    options = parser.parse_args(arguments)
    try:
        found = results(Path.cwd(), options.set, options.submission, options.seed)
        if options.form == "github":
            with options.results.open("a", encoding="utf-8") as outputs:
                outputs.write(f"result={base64.b64encode(json.dumps(for_github(found)).encode()).decode()}\n")
            return 0
        part = options.results.with_name(f".{options.results.name}.part")
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(found, indent=2), encoding="utf-8")
        part.replace(options.results)
    except (CourseError, OSError) as error:
        print(f"not graded: {printable(error, 1000)}", file=sys.stderr)
        return 1
    return 0


def results(root: Path, name: str, submission: Path, seed: str = "") -> dict[str, Any]:
    """Return the results of one hand-in, as Gradescope reads them.

    Args:
        root: the course's folder; the hand-in is graded in its ``submitted/``.
        name: the set.
        submission: the folder of what was handed in.
        seed: of the hidden inputs; "": the course's own.

    Raises:
        CourseError: the machine or the course is at fault.
    """
    course = Course(root)
    try:
        assignment = course.find(name)
        worth = _worth(course, assignment)
        came = collect(root, assignment, [submission], names={submission: STUDENT}, older=True)
    finally:
        course.close()
    if STUDENT not in came.students:
        wanted = " and ".join(f"{notebook}.ipynb" for notebook in course.notebooks(assignment))
        lines = [line.replace(f"{submission}/", "") for line in came.left_out]
        return _nothing(worth, [f"No notebook of this set was found: hand in {wanted}.", *lines])
    with (
        tempfile.TemporaryDirectory() as own,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        command = [sys.executable, "-m", "graders", "grade", assignment, STUDENT, "--force", "--json"]
        # a gradebook of its own: in a container that is used again no earlier score stands
        command += ["--db", f"sqlite:///{own}/gradebook.db", *(["--seed", seed] if seed else [])]
        try:
            done = subprocess.run(command, cwd=root, stdout=out, stderr=err, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise CourseError(f"grading took more than {PATIENCE // 60} minutes") from None
        for file in (out, err):
            file.seek(0)
        said, complained = out.read(), err.read().strip()
    if done.returncode not in (0, 1):
        raise CourseError(complained.splitlines()[-1] if complained else f"grading ended with {done.returncode}")
    return of_document(json.loads(said), worth)


def _worth(course: Course, assignment: str) -> float:
    """Return the points of a set, as its notebooks have them."""
    cells = [
        cell["metadata"].get("nbgrader", {})
        for notebook in course.notebooks(assignment)
        for cell in json.loads((course.source(assignment) / f"{notebook}.ipynb").read_text("utf-8"))["cells"]
    ]
    return float(sum(cell.get("points", 0) for cell in cells if cell.get("grade")))


def _nothing(worth: float, lines: Sequence[str]) -> dict[str, Any]:
    return {"score": 0.0, "output": "\n".join(lines), "tests": [{"name": "Graded", "score": 0.0, "max_score": worth}]}


def of_document(document: Mapping[str, Any], worth: float) -> dict[str, Any]:
    """Return what `grade --json` printed of one hand-in as Gradescope's results.

    Args:
        document: as it was printed.
        worth: the points of the set.

    Raises:
        CourseError: it was not graded, and not for anything that its author did.
    """
    (one,) = document["submissions"]
    lines = [f"{problem['file']}: {problem['what']}. {problem['remedy']}" for problem in one["problems"]]
    if one["score"] is None:
        if FAULTS & {problem["code"] for problem in one["problems"]}:
            raise CourseError(" ".join(lines))
        return _nothing(worth, lines)
    tests = []
    for verdict in one["verdicts"]:
        code = verdict.get("code") or ""
        tests.append(
            {
                "name": f"{verdict['task']} {verdict['check']}".replace("_", " "),
                "score": verdict["earned"],
                "max_score": verdict["points"],
                "status": "passed" if verdict["earned"] == verdict["points"] else "failed",
                "output": "\n\n".join([verdict["message"], *([LOST, code] if code else [])]),
                "output_format": "text",
            }
        )
    return {"score": one["score"], "output": "\n".join(lines), "output_format": "text", "tests": tests}


def for_github(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return Gradescope's results as those of one of Classroom's runners, which its reporter adds up and prints.

    The reporter prints a test's ``test_code`` into the job's log as it is. There a line that begins with ``::``, or has
    ``##[`` anywhere in it, is a command to GitHub's runner: the one gets a bar before it, the other a gap.
    """
    tests = []
    for test in found["tests"]:
        whole = test["score"] == test["max_score"]
        said = "" if whole else test.get("output") or found["output"]
        tests.append(
            {
                "name": test["name"],
                "status": "pass" if whole else "fail",
                "score": test["score"],
                "message": "",
                "test_code": "\n".join(
                    f"| {line}" if line.strip().startswith("::") else line
                    for line in said.replace("##[", "## [").splitlines()
                ),
                "filename": "",
                "line_no": 0,
                "execution_time": 0,
            }
        )
    whole = all(test["status"] == "pass" for test in tests)
    most = sum(test["max_score"] for test in found["tests"])
    return {"version": 1, "status": "pass" if whole else "fail", "max_score": most, "tests": tests}


if __name__ == "__main__":
    sys.exit(main())
