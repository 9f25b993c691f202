"""Write what GitHub Classroom needs for a set: the assignment's template, and what grades each push.

    python -m tools.github relu --seed 7

The archive has two folders, for two repositories: ``template/`` is what students get, ``grader/`` has every answer in
it. The names in the workflow (the job ``run-autograding-tests``, a variable ``..._RESULTS`` for each runner) are those
by which ``education/autograding-grading-reporter`` finds the job's check and reads the results.
"""

import sys
from pathlib import Path

from tools import gradescope

WORKFLOW = """\
# Grades each push in the sandbox of the course, and gives Classroom the points.
name: Autograding Tests
on: [push, workflow_dispatch, repository_dispatch]
permissions:
  checks: write
  actions: read
  contents: read
jobs:
  run-autograding-tests:
    runs-on: ubuntu-24.04
    if: github.actor != 'github-classroom[bot]'
    timeout-minutes: 30
    steps:
      - uses: actions/checkout@v4
        with:
          path: submission
      - uses: actions/checkout@v4
        with:
          repository: ${{ vars.COURSE_GRADER }}
          token: ${{ secrets.COURSE_GRADER_TOKEN || github.token }}
          path: grader
      - name: Python, the sandbox, the packages
        run: |
          sudo sysctl -q -w kernel.apparmor_restrict_unprivileged_userns=0
          sudo bash grader/setup.sh
      - name: Grade
        id: course
        run: bash grader/run_github submission
      - uses: education/autograding-grading-reporter@v1
        env:
          COURSE_RESULTS: ${{ steps.course.outputs.result }}
        with:
          runners: course
"""
RUN = """#!/bin/bash
# Run for each push: run_github FOLDER grades what lies there, and leaves the results in $GITHUB_OUTPUT.
set -eu
submission="$(cd "$1" && pwd)"
cd "$(dirname "$0")"
exec "${{PYTHON:-.venv/bin/python}}" -m graders.classroom.autograder {set}{seed} --form github \\
    "$submission" "$GITHUB_OUTPUT"
"""


def files(root: Path, assignment: str, seed: int | None) -> dict[str, str]:
    """Return what the archive holds, by name.

    Args:
        root: the course.
        assignment: the set.
        seed: of the hidden inputs; None: the course's own.
    """
    grader = gradescope.files(root, assignment, seed)
    del grader["run_autograder"]
    grader["run_github"] = RUN.format(set=assignment, seed="" if seed is None else f" --seed {seed}")
    template = {".github/workflows/classroom.yml": WORKFLOW}
    template |= {name: (root / name).read_text(encoding="utf-8") for name in ("requirements.txt", "constraints.txt")}
    for path in sorted((root / "exercises" / assignment).glob("*.ipynb")):
        template[path.name] = path.read_text(encoding="utf-8")
    return {f"grader/{name}": text for name, text in grader.items()} | {
        f"template/{name}": text for name, text in template.items()
    }


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    about = "Write what GitHub Classroom needs for a set: a template for students, and what grades each push."
    then = "grader/ has every answer in it: students get template/ alone"
    return gradescope.command("github", about, files, then, arguments)


if __name__ == "__main__":
    sys.exit(main())
