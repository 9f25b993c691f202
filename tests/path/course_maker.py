"""A course with one tiny set, for tests: its grade cells need no torch, so a submission is graded in about a second."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).parents[2]

CODE = """x = [3 & 7, "</pre><b>$x$ &amp;"][0]
print({task}(x))
# expected: three times as much, or twice; a line that is longer than a telephone is wide, to be scrolled"""
HIDDEN = """# {task}: {check}, on numbers
### BEGIN HIDDEN TESTS
def judge_{check}():
    import os

    from graders.judge.proxy import DESK
    from graders.judge.verdict import Verdict

    desk = DESK.get()
    seed = desk.seed if desk else int(os.environ.get("GRADERS_SEED", "0"))
    look = ""
    try:
        right = {task}(3 + seed) == {right}
        message = "Right in all 1 cases." if right else "Your result is another number; think of 3."
    except Exception as error:
        right, message, look = False, f"Your code raised {{type(error).__name__}}: {{error}}", "exists"
    evidence = {{"case": "3", "expected": "{right}"}}
    code = "" if right else {code!r}
    return Verdict("{task}", "{check}", 2.0, 2.0 * right, message, evidence, look=look, code=code)


verdict = judge_{check}()
verdict.show()
verdict.earned
### END HIDDEN TESTS"""


def _meta(name: str, **more: object) -> dict:
    base = {"grade_id": name, "grade": False, "solution": False, "locked": False, "task": False, "schema_version": 3}
    return {"nbgrader": base | more}


def _tests(task: str, check: str, right: str) -> NotebookNode:
    name = f"test_{task}_{check}"
    meta = _meta(name, grade=True, locked=True, points=2, cell_type="code")
    return new_code_cell(
        HIDDEN.format(task=task, check=check, right=right, code=CODE.format(task=task)),
        id=name.replace("_", "-"),
        metadata=meta,
    )


def _answer(task: str, solved: str) -> NotebookNode:
    stub = f"def {task}(x):\n    ### BEGIN SOLUTION\n    {solved}\n    ### END SOLUTION"
    return new_code_cell(stub, id=task, metadata=_meta(task, solution=True, cell_type="code"))


def tiny_notebook() -> NotebookNode:
    """Two tasks, `double` and `triple`: a locked card, an answer cell, a locked visible check and test cells each."""
    cells = [new_markdown_cell("# Numbers", id="title")]
    for task, solved, checks in (
        ("double", "return 2 * x", {"value": "2 * (3 + seed)", "type": "6 + 2 * seed"}),
        ("triple", "return 3 * x", {"value": "9 + 3 * seed"}),
    ):
        cells.append(_answer(task, solved))
        visible = new_code_cell(f"print({task}(1))", id=f"see-{task}", metadata=_meta(f"see_{task}", locked=True))
        visible.metadata.nbgrader["cell_type"] = "code"
        cells.append(visible)
        cells += [_tests(task, check, right) for check, right in checks.items()]
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def make_course(root: Path) -> Path:
    """A course folder with the project's own nbgrader_config.py and the set 01_tiny."""
    (root / "solutions/01_tiny").mkdir(parents=True)
    settings = (ROOT / "nbgrader_config.py").read_text(encoding="utf-8")
    (root / "nbgrader_config.py").write_text(settings, encoding="utf-8")
    nbformat.write(tiny_notebook(), root / "solutions/01_tiny/tiny.ipynb")
    return root


def release(root: Path) -> None:
    """What students get of the set, without the gradebook."""
    notebook = tiny_notebook()
    for cell in notebook.cells:
        lines = cell.source.split("\n")
        if "### BEGIN HIDDEN TESTS" in lines:
            cell.source = lines[0]
    path = root / "exercises/01_tiny/tiny.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)


def hand_in(root: Path, student: str, **answers: str) -> Path:
    """Put a submission with these answers into submitted/; the notebook's path."""
    notebook = nbformat.read(root / "exercises/01_tiny/tiny.ipynb", as_version=4)
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name in answers:
            cell.source = answers[name]
    path = root / f"submitted/{student}/01_tiny/tiny.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


def graded_course(root: Path, run: Callable, students: Mapping[str, Mapping[str, str]]) -> Path:
    """A course in which these students' answers are graded; a test that changes it takes a copy."""
    make_course(root)
    release(root)
    for student, answers in students.items():
        hand_in(root, student, **answers)
    done = run(root, "graders", "grade", "tiny")
    assert done.returncode == 0, done.stderr
    return root


def edit(path: Path, change: object) -> None:
    """Change the notebook's JSON in place."""
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
